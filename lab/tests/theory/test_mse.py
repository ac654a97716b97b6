"""Every law of the gradient's error against an enumeration of all outcomes, to 1e-10: the rows of
the table, minibatches, finite sets.

The estimators are written out here from their definitions; only the laws under test come from the
package.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from tests.cases import each_case
from tests.enumeration import enumerate_groups, tabular_world

from groupwise.errors import InvalidArgumentError
from groupwise_lab.theory.mse import (
    BASELINES,
    PromptMoments,
    Reference,
    baseline_by_name,
    between_prompts,
    minibatch_mse,
    mse,
    oracle_excess,
    squared_bias,
    within_prompt_variance,
)
from groupwise_lab.worlds.bandit import BanditWorld, random_world, softmax_world

EXACT = 1e-10
KINDS: tuple[Literal["binary", "continuous", "noisy"], ...] = ("binary", "continuous", "noisy")
REFERENCE = 0.37
SHRINKAGE = 0.3


@pytest.fixture(params=KINDS)
def world(request: pytest.FixtureRequest) -> BanditWorld:
    return random_world(
        np.random.default_rng(3), prompts=3, arms=3, dimensions=4, rewards=request.param
    )


def moments_of(world: BanditWorld) -> PromptMoments:
    exact = world.moments()
    return PromptMoments(
        exact.value_P,
        exact.score_norm2_P,
        exact.reward_variance_P,
        exact.kappa_P,
        exact.oracle_variance_P,
        exact.gradient_norm2_P,
    )


def others(reward_MG: np.ndarray) -> np.ndarray:
    """Mean reward of the other rollouts of the group, rollout by rollout."""
    return np.stack(
        [np.delete(reward_MG, i, axis=1).mean(axis=1) for i in range(reward_MG.shape[1])], axis=1
    )


def baseline_values(name: str, world: BanditWorld, x: int, reward_MG: np.ndarray) -> np.ndarray:
    """What each baseline subtracts, from its definition."""
    exact = world.moments()
    best = sum(
        p * (s @ s) * z
        for p, s, z in zip(
            world.probability_PO[x], world.score_POD[x], world.reward_PO[x], strict=True
        )
    )
    table: dict[str, Callable[[], object]] = {
        "vanilla": lambda: 0.0,
        "constant": lambda: REFERENCE,
        "oracle": lambda: exact.value_P[x],
        "variance_optimal": lambda: best / exact.score_norm2_P[x],  # E[|s|^2 Z]/E|s|^2
        "leave_one_out": lambda: others(reward_MG),
        "full_group_mean": lambda: reward_MG.mean(axis=1, keepdims=True),
        "shrunk": lambda: SHRINKAGE * REFERENCE + (1 - SHRINKAGE) * others(reward_MG),
    }
    return np.asarray(np.broadcast_to(np.asarray(table[name](), dtype=float), reward_MG.shape))


def gradients(name: str, world: BanditWorld, x: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Probability and gradient of every group of a prompt."""
    groups = enumerate_groups(world, size, prompt=x)
    advantage_MG = groups.reward_MG - baseline_values(name, world, x, groups.reward_MG)
    return groups.probability_M, np.einsum("mgd,mg->md", groups.score_MGD, advantage_MG) / size


def mean_and_variance(
    probability_M: np.ndarray, gradient_MD: np.ndarray
) -> tuple[np.ndarray, float]:
    mean_D = probability_M @ gradient_MD
    return mean_D, float(probability_M @ ((gradient_MD - mean_D) ** 2).sum(axis=1))


GIVEN = Reference(REFERENCE, 0.0, SHRINKAGE)


def test_the_rows_are_those_of_the_table() -> None:
    names = [
        "vanilla",
        "constant",
        "oracle",
        "variance_optimal",
        "leave_one_out",
        "full_group_mean",
        "shrunk",
    ]
    assert [baseline.name for baseline in BASELINES] == names
    for baseline in BASELINES:
        assert baseline_by_name(baseline.name) is baseline


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("baseline", BASELINES, ids=lambda baseline: baseline.name)
def test_every_row_of_the_table(world: BanditWorld, baseline: object, size: int) -> None:
    """Mean, variance and squared bias of each baseline's gradient over all groups of every
    prompt.
    """
    name = getattr(baseline, "name")  # noqa: B009 - any entry of the registry has one
    exact, moments = world.moments(), moments_of(world)
    variance_P = within_prompt_variance(name, moments, size, reference=GIVEN)
    bias_P = squared_bias(name, moments, size)
    for x in range(3):
        mean_D, variance = mean_and_variance(*gradients(name, world, x, size))
        assert variance_P[x] == pytest.approx(variance, abs=EXACT)
        assert bias_P[x] == pytest.approx(
            float(((mean_D - exact.gradient_PD[x]) ** 2).sum()), abs=EXACT
        )
        scale = (size - 1) / size if name == "full_group_mean" else 1.0
        np.testing.assert_allclose(mean_D, scale * exact.gradient_PD[x], atol=EXACT)


@pytest.mark.parametrize("name", ["vanilla", "constant", "oracle", "variance_optimal"])
def test_baselines_that_need_no_group_work_with_one_rollout(world: BanditWorld, name: str) -> None:
    variance_P = within_prompt_variance(name, moments_of(world), 1, reference=GIVEN)
    for x in range(3):
        assert variance_P[x] == pytest.approx(
            mean_and_variance(*gradients(name, world, x, 1))[1], abs=EXACT
        )


@pytest.mark.parametrize("size", [2, 5, 32])
def test_the_printed_formulas_are_the_computed_ones(world: BanditWorld, size: int) -> None:
    """The text of each row, evaluated as it stands, with a sign for every product."""
    m = moments_of(world)
    for baseline in BASELINES:
        text = re.sub(
            r"(?<=[\w\])]) (?=[\w(\[])|(?<=G)(?=\()",
            "*",
            baseline.variance.split(",")[0].replace("^", "**"),
        )
        names = {
            "T_o": m.oracle_variance_P,
            "V": m.value_P,
            "S2": m.score_norm2_P,
            "kappa": m.kappa_P,
            "R": m.degenerate,
            "G": size,
            "c": REFERENCE,
            "mu": REFERENCE,
            "lam": SHRINKAGE,
        }
        expected = eval(text.replace("[", "(").replace("]", ")"), {"__builtins__": {}}, names)
        np.testing.assert_allclose(
            within_prompt_variance(baseline.name, m, size, reference=GIVEN), expected, rtol=1e-12
        )


def test_a_reference_that_is_an_estimate_costs_its_variance(world: BanditWorld) -> None:
    """mu is .2 or .6 by the toss of a coin before the group is drawn."""
    moments = moments_of(world)
    for name, share in (("constant", 1.0), ("shrunk", SHRINKAGE)):
        variance_P = within_prompt_variance(
            name, moments, 3, reference=Reference(0.4, 0.04, SHRINKAGE)
        )
        for x in range(3):
            groups = enumerate_groups(world, 3, prompt=x)
            gradient_MD = []
            for mu in (0.2, 0.6):
                advantage_MG = (
                    groups.reward_MG - share * mu - (1 - share) * others(groups.reward_MG)
                )
                gradient_MD.append(np.einsum("mgd,mg->md", groups.score_MGD, advantage_MG) / 3)
            both = mean_and_variance(
                np.tile(groups.probability_M / 2, 2), np.concatenate(gradient_MD)
            )[1]
            assert variance_P[x] == pytest.approx(both, abs=EXACT)


def test_the_optimal_shrinkage_is_the_minimum(world: BanditWorld) -> None:
    moments = moments_of(world)
    error, pairs = moments.value_P - REFERENCE, moments.degenerate / 3
    best_P = (pairs - error * moments.kappa_P) / ((error**2 + 0.01) * moments.score_norm2_P + pairs)

    def variance(x: int, share: float) -> float:
        return float(
            within_prompt_variance(
                "shrunk", moments, 4, reference=Reference(REFERENCE, 0.01, share)
            )[x]
        )

    for x in range(3):
        least = variance(x, best_P[x])
        assert all(least < variance(x, best_P[x] + step) for step in (-0.1, -0.01, 0.01, 0.1))


# Minibatches


def group_distribution(
    name: str, world: BanditWorld, size: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    return [gradients(name, world, x, size) for x in range(len(world.weight_P))]


def prompt_pairs(world: BanditWorld, *, replace: bool) -> Iterator[tuple[float, int, int]]:
    """Every ordered pair of prompts with its probability."""
    count = len(world.weight_P)
    for x, y in itertools.product(range(count), repeat=2):
        if replace:
            yield float(world.weight_P[x] * world.weight_P[y]), x, y
        elif x != y:
            yield 1 / (count * (count - 1)), x, y


def error_by_enumeration(name: str, world: BanditWorld, size: int, *, replace: bool) -> float:
    """Mean squared error of a minibatch of two prompts over every pair of prompts and every pair
    of their groups.
    """
    groups, g = group_distribution(name, world, size), world.moments().gradient_D
    total = 0.0
    for weight, x, y in prompt_pairs(world, replace=replace):
        (p, first_MD), (q, second_MD) = groups[x], groups[y]
        error_MMD = (first_MD[:, None] + second_MD[None]) / 2 - g
        total += weight * float(np.einsum("i,j,ijd->", p, q, error_MMD**2))
    return total


@pytest.mark.thinned(12)
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("name", [baseline.name for baseline in BASELINES])
def test_minibatches_of_two_prompts(world: BanditWorld, name: str, size: int) -> None:
    law = minibatch_mse(
        name, moments_of(world), size, 2, vp=world.vp, weight_P=world.weight_P, reference=GIVEN
    )
    assert law == pytest.approx(error_by_enumeration(name, world, size, replace=True), abs=EXACT)


@each_case("name", [baseline.name for baseline in BASELINES])
@each_case("kind", KINDS)
def test_minibatches_from_a_finite_set_of_prompts(
    kind: Literal["binary", "continuous", "noisy"], name: str
) -> None:
    drawn = random_world(np.random.default_rng(8), prompts=4, arms=3, dimensions=4, rewards=kind)
    world = replace(drawn, weight_P=np.full(4, 0.25))
    law = minibatch_mse(name, moments_of(world), 2, 2, vp=world.vp, prompt_set=4, reference=GIVEN)
    assert law == pytest.approx(error_by_enumeration(name, world, 2, replace=False), abs=EXACT)


def test_a_minibatch_of_all_prompts_has_no_error_between_them() -> None:
    drawn = random_world(np.random.default_rng(8), prompts=2, arms=3, dimensions=4)
    world = replace(drawn, weight_P=np.full(2, 0.5))
    law = float(mse(world.vp, world.t, world.r, 3, 2, prompt_set=2))
    assert law == pytest.approx(
        error_by_enumeration("leave_one_out", world, 3, replace=False), abs=EXACT
    )
    assert law == pytest.approx((world.t / 3 + world.r / 6) / 2, abs=EXACT)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_the_error_of_leave_one_out_in_three_numbers(world: BanditWorld, size: int) -> None:
    law = float(mse(world.vp, world.t, world.r, size, 5))
    table = minibatch_mse(
        "leave_one_out", moments_of(world), size, 5, vp=world.vp, weight_P=world.weight_P
    )
    assert law == pytest.approx(table, abs=1e-13)
    if size < 4:
        pairs = error_by_enumeration("leave_one_out", world, size, replace=True)
        assert float(mse(world.vp, world.t, world.r, size, 2)) == pytest.approx(pairs, abs=EXACT)


def test_a_mean_of_the_other_groups_correlates_the_groups() -> None:
    """With mu the mean of the other group, a minibatch of two has lam^2 |g|^2/(B(B-1)G^2) more
    error than its rows say.
    """
    world = random_world(np.random.default_rng(8), prompts=3, arms=3, dimensions=4)
    exact, share = world.moments(), 0.6
    total, rows = 0.0, 0.0
    for weight, x, y in prompt_pairs(world, replace=True):
        first, second = enumerate_groups(world, 2, prompt=x), enumerate_groups(world, 2, prompt=y)
        probability_MM = first.probability_M[:, None] * second.probability_M[None]
        estimate_MMD = np.zeros((*probability_MM.shape, 4))
        for group, mean_MM, letters in (
            (first, second.reward_MG.mean(axis=1)[None, :], "igd,ijg->ijd"),
            (second, first.reward_MG.mean(axis=1)[:, None], "jgd,ijg->ijd"),
        ):
            own = group.reward_MG - (1 - share) * others(group.reward_MG)
            own_MMG = own[:, None] if group is first else own[None]
            estimate_MMD += (
                np.einsum(letters, group.score_MGD, own_MMG - share * mean_MM[..., None]) / 4
            )
        total += weight * float(
            np.einsum("ij,ijd->", probability_MM, (estimate_MMD - exact.gradient_D) ** 2)
        )
        # Given both prompts the reference of the first is the other group's mean: V(y) on average,
        # with variance sigma2(y)/2.
        given = Reference(exact.value_P[y], exact.reward_variance_P[y] / 2, share)
        rows += weight * float(
            within_prompt_variance("shrunk", moments_of(world), 2, reference=given)[x]
        )
    expected = (world.vp + rows) / 2 + share**2 * float(exact.gradient_D @ exact.gradient_D) / (
        2 * 1 * 4
    )
    assert total == pytest.approx(expected, abs=EXACT)


# What follows from the table


def test_the_excess_over_the_oracle_goes_with_pairs_and_not_with_squares(
    world: BanditWorld,
) -> None:
    """Enumerated excess times G(G-1) is R at every G; times G^2 it is not constant."""
    pairs, squares = [], []
    for size in (2, 3, 4):
        excess = 0.0
        for x, weight in enumerate(world.weight_P):
            loo, oracle = (
                mean_and_variance(*gradients(name, world, x, size))[1]
                for name in ("leave_one_out", "oracle")
            )
            excess += weight * (loo - oracle)
        assert float(oracle_excess(world.r, size, 1)) == pytest.approx(excess, abs=EXACT)
        pairs.append(excess * size * (size - 1))
        squares.append(excess * size**2)
    np.testing.assert_allclose(pairs, world.r, atol=EXACT)
    assert squares[0] / squares[2] == pytest.approx(1.5, abs=1e-9)  # 2 against 4/3


def leave_one_out_wins_above(moments: PromptMoments) -> np.ndarray:
    """G > 1 + R/(V^2 S2 + 2 V kappa) where the denominator is positive; nowhere else."""
    gain = moments.value_P**2 * moments.score_norm2_P + 2 * moments.value_P * moments.kappa_P
    return 1 + np.divide(moments.degenerate, gain, out=np.full_like(gain, np.inf), where=gain > 0)


def test_where_leave_one_out_starts_to_win(world: BanditWorld) -> None:
    """Both variances on either side of the bound, by enumeration."""
    bound_P = leave_one_out_wins_above(moments_of(world))
    for x in range(3):
        for size in (2, 3, 4, 5):
            loo, vanilla = (
                mean_and_variance(*gradients(name, world, x, size))[1]
                for name in ("leave_one_out", "vanilla")
            )
            assert (loo < vanilla) == (size > bound_P[x])


def test_no_baseline_beats_leave_one_out_for_ever_where_kappa_is_negative_enough() -> None:
    """Two arms, rewards 1 and 0, one parameter: at p >= 2/3 no group is large enough; at p = .1
    the bound is 2.06.
    """
    p = np.array([0.1, 0.5, 0.66, 2 / 3 + 1e-9, 0.9])
    moments = [
        moments_of(softmax_world([[[1.0], [0.0]]], [float(np.log(v / (1 - v)))], [[1.0, 0.0]]))
        for v in p
    ]
    bound_P = np.concatenate([leave_one_out_wins_above(moment) for moment in moments])
    np.testing.assert_allclose(bound_P[:3], 1 + 2 * (1 - p[:3]) / (2 - 3 * p[:3]), rtol=1e-9)
    assert round(float(bound_P[0]), 2) == 2.06
    assert np.isinf(bound_P[3:]).all()
    for size in (2, 64, 100_000):
        assert (
            within_prompt_variance("leave_one_out", moments[4], size)[0]
            > within_prompt_variance("vanilla", moments[4], size)[0]
        )


def test_leave_one_out_needs_about_one_over_p_rollouts_where_the_score_says_nothing_of_the_reward() -> (
    None
):
    """kappa = 0 and a small gradient: the bound is 1 + q/p, here with |s| = 1 everywhere and no
    gradient at all.
    """
    p = np.array([0.01, 0.1, 0.5])
    q, zero = 1 - p, np.zeros(3)
    bound_P = leave_one_out_wins_above(PromptMoments(p, np.ones(3), p * q, zero, p * q, zero))
    np.testing.assert_allclose(bound_P, 1 / p, rtol=1e-12)


def test_kappa_is_what_the_best_baseline_gains(world: BanditWorld) -> None:
    """At large G leave-one-out is as good as the oracle, and the oracle is not the best:
    kappa^2/S2 is left.
    """
    moments = moments_of(world)
    size = 10**8
    gap_P = size * (
        within_prompt_variance("leave_one_out", moments, size)
        - within_prompt_variance("variance_optimal", moments, size)
    )
    np.testing.assert_allclose(gap_P, moments.kappa_P**2 / moments.score_norm2_P, atol=1e-6)
    assert gap_P.max() > 1e-3
    uncorrelated = replace(moments, kappa_P=np.zeros(3))
    assert (
        within_prompt_variance("oracle", uncorrelated, 4).tolist()
        == within_prompt_variance("variance_optimal", uncorrelated, 4).tolist()
    )


def test_a_kappa_of_zero_does_not_make_the_value_the_best_baseline_in_every_direction() -> None:
    """The trace of E[s s^T e] is zero, the matrix is not: a projection on one direction has a
    better baseline than V.
    """
    score_POD = np.array([[[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]])
    world = BanditWorld(
        np.full((1, 4), 0.25), score_POD, np.array([[1.0, 1.0, 0.0, 0.0]]), np.ones(1)
    )
    assert moments_of(world).kappa_P[0] == 0
    along = moments_of(world.projected([[1.0], [0.0]]))
    assert along.kappa_P[0] == pytest.approx(0.25)
    best, oracle = (
        within_prompt_variance(name, along, 8)[0] for name in ("variance_optimal", "oracle")
    )
    assert best < 0.1 * oracle


def test_from_a_finite_set_the_between_part_is_that_of_drawing_without_replacement() -> None:
    prompts = np.arange(1, 9)
    np.testing.assert_allclose(
        between_prompts(2.0, prompts, prompt_set=8), 2 * (8 - prompts) / (prompts * 7)
    )
    assert float(between_prompts(2.0, 1, prompt_set=1)) == 0


def test_two_arms_by_hand() -> None:
    """theta = 0, rewards 1 and 0, tabular: s = (+-.5, -+.5), T_o = 0, so all of the error is
    R/(G(G-1)) = .25/(G(G-1)).
    """
    moments = moments_of(tabular_world([[0.0, 0.0]], [[1.0, 0.0]]))
    assert within_prompt_variance("oracle", moments, 2).tolist() == [0.0]
    assert within_prompt_variance("leave_one_out", moments, 2).tolist() == [0.125]


# Bad input


def good() -> dict[str, np.ndarray]:
    names = (
        "value_P",
        "score_norm2_P",
        "reward_variance_P",
        "kappa_P",
        "oracle_variance_P",
        "gradient_norm2_P",
    )
    return {name: np.ones(2) for name in names}


@each_case("name", ["score_norm2_P", "reward_variance_P", "oracle_variance_P", "gradient_norm2_P"])
def test_negative_variances_are_refused(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"got -1.0 in {name}"):
        PromptMoments(**good() | {name: np.array([1.0, -1.0])})


def test_a_negative_value_or_kappa_is_none_of_our_business() -> None:
    PromptMoments(**good() | {"value_P": -np.ones(2), "kappa_P": -np.ones(2)})
    with pytest.raises(InvalidArgumentError, match="got nan in kappa_P"):
        PromptMoments(**good() | {"kappa_P": np.array([1.0, np.nan])})
    with pytest.raises(InvalidArgumentError, match="one number a prompt"):
        PromptMoments(**good() | {"kappa_P": np.ones(3)})
    with pytest.raises(InvalidArgumentError, match="one number a prompt"):
        PromptMoments(**{name: np.asarray(1.0) for name in good()})


@each_case("name", ["leave_one_out", "full_group_mean", "shrunk"])
def test_groups_of_one_have_no_others(name: str) -> None:
    for law in (within_prompt_variance, squared_bias):
        with pytest.raises(
            InvalidArgumentError,
            match=f"at least 2 rollouts a group for the baseline {name}, got 1",
        ):
            law(name, PromptMoments(**good()), 1)


def test_other_refusals() -> None:
    moments = PromptMoments(**good())
    with pytest.raises(InvalidArgumentError, match=r"expected a baseline of vanilla.*; got 'rloo'"):
        within_prompt_variance("rloo", moments, 2)
    with pytest.raises(
        InvalidArgumentError, match="at least 2 rollouts a group for leave-one-out, got 1"
    ):
        mse(1.0, 1.0, 1.0, [1, 2], 3)
    with pytest.raises(
        InvalidArgumentError, match="at least 2 rollouts a group for leave-one-out, got 1"
    ):
        oracle_excess(1.0, 1, 3)
    with pytest.raises(InvalidArgumentError, match="at least 1 prompts for a minibatch, got 0"):
        mse(1.0, 1.0, 1.0, 2, 0)
    with pytest.raises(InvalidArgumentError, match="at most 4 prompts without replacement, got 5"):
        mse(1.0, 1.0, 1.0, 2, 5, prompt_set=4)
