"""Divided gradients for rewards 0 and 1 against an enumeration of all groups, to 1e-10, and the
objectives that they climb.
"""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
from tests.cases import each_case
from tests.enumeration import enumerate_groups

from groupwise.errors import InvalidArgumentError
from groupwise_lab.theory.mse import PromptMoments
from groupwise_lab.theory.normalisation import (
    NORMALISATIONS,
    expected_group_std,
    normalisation_by_name,
    normalised_objective,
    normalised_slope,
)
from groupwise_lab.worlds.bandit import BanditWorld, random_world

EXACT = 1e-10
NAMES = [normalisation.name for normalisation in NORMALISATIONS]
CHOICES = [(1, 0.0, False), (0, 0.0, False), (1, 1e-2, True), (0, 1e-4, True)]


@pytest.fixture(scope="module")
def world() -> BanditWorld:
    return random_world(np.random.default_rng(3), prompts=3, arms=3, dimensions=4, rewards="binary")


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


def advantages(
    name: str, reward_MG: np.ndarray, ddof: int, eps: float, leave_one_out: bool
) -> np.ndarray:
    """From the definition; zero where all rewards of the group are equal."""
    size = reward_MG.shape[1]
    mean_M1 = reward_MG.mean(axis=1, keepdims=True)
    others_MG = (reward_MG.sum(axis=1, keepdims=True) - reward_MG) / (size - 1)
    divisor = {
        "none": np.ones_like(mean_M1),
        "std": reward_MG.std(axis=1, ddof=ddof, keepdims=True),
        "mean": mean_M1,
    }[name] + eps
    differ = np.ptp(reward_MG, axis=1, keepdims=True) > 0
    return np.where(
        differ,
        (reward_MG - (others_MG if leave_one_out else mean_M1)) / np.where(differ, divisor, 1.0),
        0.0,
    )


@each_case(("ddof", "eps", "leave_one_out"), CHOICES)
@each_case("size", [2, 4])
@each_case("name", NAMES)
def test_mean_of_the_divided_gradient(
    world: BanditWorld, name: str, size: int, ddof: int, eps: float, leave_one_out: bool
) -> None:
    exact = world.moments()
    slope_P = normalised_slope(
        name, exact.value_P, size, ddof=ddof, eps=eps, leave_one_out=leave_one_out
    )
    for x in range(3):
        groups = enumerate_groups(world, size, prompt=x)
        advantage_MG = advantages(name, groups.reward_MG, ddof, eps, leave_one_out)
        gradient_MD = np.einsum("mgd,mg->md", groups.score_MGD, advantage_MG) / size
        np.testing.assert_allclose(
            groups.mean(gradient_MD), slope_P[x] * exact.gradient_PD[x], atol=EXACT
        )


def drift(name: str, p: float, size: int, **choices: bool) -> float:
    """The slope relative to that of a group without end."""
    limit = float(normalisation_by_name(name).limit_slope(np.array(p)))
    return float(normalised_slope(name, p, size, **choices)) / limit


@each_case(
    ("p", "std"),
    [
        (0.5, (0.70, 0.94)),
        (0.3, (0.65, 0.93)),
        (0.7, (0.65, 0.93)),
        (0.1, (0.44, 0.83)),
        (0.9, (0.44, 0.83)),
        (0.97, (0.25, 0.58)),
    ],
)
def test_the_table_of_the_drift(p: float, std: tuple[float, float]) -> None:
    """The table of lab/docs/theory/gradient.md, to the digits printed there."""
    for i, size in enumerate((4, 16)):
        assert round(drift("std", p, size), 2) == std[i]
        assert drift("none", p, size) == pytest.approx(1 - 1 / size, abs=1e-12)
        assert drift("none", p, size, leave_one_out=True) == pytest.approx(1, abs=1e-12)


@each_case("p", [0.05, 0.5, 0.9])
def test_the_drift_of_std_in_all_four_variants(p: float) -> None:
    """E[se]/(pq) with leave-one-out; the full mean costs (G-1)/G with ddof 1 and sqrt((G-1)/G)
    with ddof 0.
    """
    for size in (2, 5, 33):
        share = np.arange(size + 1) / size
        pmf = np.array([comb(size, k) * p**k * (1 - p) ** (size - k) for k in range(size + 1)])
        base = pmf @ np.sqrt(share * (1 - share) * size / (size - 1)) / (p * (1 - p))
        for ddof, loo, factor in (
            (1, True, 1),
            (1, False, (size - 1) / size),
            (0, False, np.sqrt((size - 1) / size)),
        ):
            assert float(
                normalised_slope("std", p, size, ddof=ddof, leave_one_out=loo)
            ) == pytest.approx(base * factor, rel=1e-11)


def test_the_logged_deviation_within_groups_depends_on_their_size() -> None:
    assert [
        round(float(expected_group_std(p, size)), 3) for p in (0.5, 0.9) for size in (4, 16)
    ] == [0.467, 0.499, 0.176, 0.265]
    assert float(expected_group_std(0.9, 100_000)) == pytest.approx(0.3, abs=1e-5)
    assert float(expected_group_std(0.5, 4, ddof=0)) == pytest.approx(
        float(expected_group_std(0.5, 4)) * np.sqrt(3 / 4), abs=1e-14
    )


@each_case("normalisation", NORMALISATIONS)
def test_slopes_are_derivatives_of_objectives(normalisation: object) -> None:
    """Central differences with a step of 1e-5: error of order 1e-9, at finite G and in the
    limit.
    """
    name, step, v = getattr(normalisation, "name"), 1e-5, np.array([0.1, 0.5, 0.9])  # noqa: B009
    for size in (2, 4, 16):
        for ddof, eps, loo in CHOICES:
            choices = {"ddof": ddof, "eps": eps, "leave_one_out": loo}
            up, down = (
                normalised_objective(name, v + sign * step, size, **choices)  # type: ignore[arg-type]
                for sign in (1, -1)
            )
            np.testing.assert_allclose(
                (up - down) / (2 * step),  # type: ignore[arg-type]
                normalised_slope(name, v, size, **choices),  # type: ignore[arg-type]
                atol=1e-7,
            )
    law = normalisation_by_name(name)
    quotient = (law.limit_objective(v + step) - law.limit_objective(v - step)) / (2 * step)
    np.testing.assert_allclose(quotient, law.limit_slope(v), rtol=1e-7)


@each_case("name", NAMES)
def test_the_objective_tends_to_its_limit(name: str) -> None:
    """2 arcsin sqrt V, log V and V: differences between two values, since constants do not
    matter.
    """
    v = np.array([0.2, 0.5, 0.8])
    limit = np.diff(normalisation_by_name(name).limit_objective(v))
    gaps = [
        np.abs(np.diff(normalised_objective(name, v, size)) - limit).max() for size in (8, 64, 512)
    ]
    assert gaps[0] > 4 * gaps[1] > 16 * gaps[2]
    assert gaps[2] < 3e-3


def test_divided_by_the_mean_it_climbs_a_sum_of_pass_at_k() -> None:
    """J_G = sum over k < G of pass@k/k, with slope (1 - (1-V)^(G-1))/V."""
    v = np.array([0.0, 0.01, 0.3, 1.0])
    for size in (2, 5, 40):
        expected = sum((1 - (1 - v) ** k) / k for k in range(1, size))
        np.testing.assert_allclose(normalised_objective("mean", v, size), expected, atol=1e-12)
        np.testing.assert_allclose(
            normalised_slope("mean", v[1:], size),
            (1 - (1 - v[1:]) ** (size - 1)) / v[1:],
            rtol=1e-11,
        )


def test_certain_rewards_are_no_trouble() -> None:
    v = np.array([0.0, 1.0])
    assert normalised_slope("none", v, 4).tolist() == [0.75, 0.75]
    assert np.isfinite(normalised_slope("std", v, 4)).all()


def test_large_groups_do_not_overflow() -> None:
    assert drift("std", 0.3, 20_000) == pytest.approx(1, abs=1e-3)


def test_bad_input_is_refused_in_one_line() -> None:
    with pytest.raises(
        InvalidArgumentError,
        match="expected a normalisation of none, std, mean; got 'rank'",
    ):
        normalised_slope("rank", 0.5, 4)
    with pytest.raises(InvalidArgumentError, match=r"values from 0 to 1, got 0.5 to 1.5"):
        normalised_slope("std", [0.5, 1.5], 4)
    with pytest.raises(InvalidArgumentError, match="at least 2 rollouts a group, got 1"):
        normalised_objective("std", 0.5, 1)
    with pytest.raises(InvalidArgumentError, match="ddof 0 or 1 and eps of at least 0, got 2"):
        expected_group_std(0.5, 4, ddof=2)
