"""The judge judged: its moments against an enumeration of groups of one, its draws against its
probabilities.
"""

from __future__ import annotations

import itertools
from typing import Literal

import numpy as np
import pytest
from tests.enumeration import enumerate_groups, tabular_world

from groupwise.errors import InvalidArgumentError
from groupwise_lab.worlds.bandit import BanditWorld, random_world, softmax_world

KINDS: tuple[Literal["binary", "continuous", "noisy"], ...] = ("binary", "continuous", "noisy")


@pytest.fixture(params=KINDS)
def world(request: pytest.FixtureRequest) -> BanditWorld:
    return random_world(
        np.random.default_rng(3), prompts=4, arms=3, dimensions=5, rewards=request.param
    )


def test_the_moments_are_means_over_single_rollouts(world: BanditWorld) -> None:
    """Each moment by a plain loop over the outcomes, from its definition."""
    exact = world.moments()
    gradient_PD = []
    for x in range(4):
        outcomes = list(
            zip(world.probability_PO[x], world.score_POD[x], world.reward_PO[x], strict=True)
        )
        v = sum(p * z for p, _, z in outcomes)
        g = np.sum([p * s * z for p, s, z in outcomes], axis=0)
        gradient_PD.append(g)
        assert exact.value_P[x] == pytest.approx(v, abs=1e-12)
        np.testing.assert_allclose(exact.gradient_PD[x], g, atol=1e-12)
        assert exact.reward_variance_P[x] == pytest.approx(
            sum(p * (z - v) ** 2 for p, _, z in outcomes), abs=1e-12
        )
        assert exact.score_norm2_P[x] == pytest.approx(
            sum(p * (s @ s) for p, s, _ in outcomes), abs=1e-12
        )
        assert exact.kappa_P[x] == pytest.approx(
            sum(p * (s @ s) * (z - v) for p, s, z in outcomes), abs=1e-12
        )
        oracle = sum(p * np.sum((s * (z - v) - g) ** 2) for p, s, z in outcomes)
        assert exact.oracle_variance_P[x] == pytest.approx(oracle, abs=1e-12)
        np.testing.assert_allclose(
            exact.fisher_PDD[x],
            np.sum([p * np.outer(s, s) for p, s, _ in outcomes], axis=0),
            atol=1e-12,
        )
        assert exact.degenerate_P[x] == pytest.approx(
            np.trace(exact.fisher_PDD[x]) * exact.reward_variance_P[x] + g @ g, abs=1e-12
        )
    g = sum(w * row for w, row in zip(world.weight_P, gradient_PD, strict=True))
    np.testing.assert_allclose(exact.gradient_D, g, atol=1e-12)
    assert world.vp == pytest.approx(
        sum(w * np.sum((row - g) ** 2) for w, row in zip(world.weight_P, gradient_PD, strict=True)),
        abs=1e-12,
    )
    assert (world.t, world.r) == pytest.approx(
        (world.weight_P @ exact.oracle_variance_P, world.weight_P @ exact.degenerate_P), abs=1e-12
    )


def test_the_gradient_is_the_derivative_of_the_value() -> None:
    """Central differences of the mean value by the parameters: step 1e-5, error of order 1e-10."""
    rng = np.random.default_rng(0)
    feature, theta, reward, weight = (
        rng.normal(size=(3, 4, 5)),
        rng.normal(size=5),
        rng.random((3, 4)),
        rng.dirichlet(np.ones(3)),
    )

    def value(parameter: np.ndarray) -> float:
        made = softmax_world(feature, parameter, reward, weight_P=weight)
        return float(made.weight_P @ made.moments().value_P)

    step = 1e-5 * np.eye(5)
    slope = [(value(theta + h) - value(theta - h)) / 2e-5 for h in step]
    np.testing.assert_allclose(
        softmax_world(feature, theta, reward, weight_P=weight).moments().gradient_D,
        slope,
        atol=1e-9,
    )


def test_prompts_of_a_random_world_are_unlike_and_kappa_is_not_zero(world: BanditWorld) -> None:
    exact = world.moments()
    assert np.ptp(exact.value_P) > 0.1
    assert np.abs(exact.kappa_P).max() > 0.01
    assert world.vp > 0.01
    assert np.ptp(world.weight_P) > 0.01


def test_noise_and_chance_add_outcomes_but_no_gradient() -> None:
    feature, theta, reward = (
        np.random.default_rng(0).normal(size=(2, 3, 4)),
        np.zeros(4),
        np.full((2, 3), 0.25) + np.eye(2, 3) / 2,
    )
    plain = softmax_world(feature, theta, reward)
    noisy = softmax_world(feature, theta, reward, noise_PA=np.full((2, 3), 0.1))
    binary = softmax_world(feature, theta, reward, binary=True)
    for other in (noisy, binary):
        np.testing.assert_allclose(
            other.moments().gradient_PD, plain.moments().gradient_PD, atol=1e-15
        )
        assert (other.moments().reward_variance_P > plain.moments().reward_variance_P).all()
    np.testing.assert_allclose(
        noisy.moments().reward_variance_P - plain.moments().reward_variance_P, 0.01, atol=1e-15
    )
    value = binary.moments().value_P
    np.testing.assert_allclose(binary.moments().reward_variance_P, value * (1 - value), atol=1e-15)


def test_a_tabular_world_has_scores_of_its_own_for_each_prompt() -> None:
    world = tabular_world([[0.0, 1.0], [2.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]])
    assert world.score_POD.shape == (2, 2, 4)
    assert not world.score_POD[0, :, 2:].any()
    assert not world.score_POD[1, :, :2].any()


def test_all_groups_are_enumerated_once() -> None:
    world = tabular_world([[0.3, -0.2, 0.5]], [[1.0, 2.0, 4.0]])
    groups = enumerate_groups(world, 3)
    expected = {tuple(combination) for combination in itertools.product([1.0, 2.0, 4.0], repeat=3)}
    assert {tuple(row) for row in groups.reward_MG.tolist()} == expected
    assert len(groups.reward_MG) == 27
    assert float(groups.probability_M.sum()) == pytest.approx(1, abs=1e-14)
    row = groups.reward_MG.tolist().index([4.0, 1.0, 1.0])
    p = world.probability_PO[0]
    assert groups.probability_M[row] == pytest.approx(p[2] * p[0] ** 2, abs=1e-15)
    np.testing.assert_array_equal(groups.score_MGD[row], world.score_POD[0][[2, 0, 0]])
    assert groups.variance(groups.reward_MG[:, :1]) == pytest.approx(
        world.moments().reward_variance_P[0], abs=1e-13
    )


def test_draws_have_the_probabilities_of_the_world() -> None:
    """Chi-square over prompt x outcome cells.

    The seed is fixed; over seeds this would fail one time in 10,000.
    """
    from scipy.stats import chi2

    world = random_world(np.random.default_rng(1), prompts=3, arms=4, dimensions=2)
    draws, size = 40_000, 3
    score_ND, reward_N, group_N = world.sample(draws, size, np.random.default_rng(2))
    assert group_N.tolist() == np.repeat(np.arange(draws), size).tolist()
    order = np.argsort(
        world.reward_PO.ravel()
    )  # every outcome of this world has a reward of its own
    cell_N = order[np.searchsorted(world.reward_PO.ravel()[order], reward_N)]
    np.testing.assert_array_equal(world.reward_PO.ravel()[cell_N], reward_N)
    np.testing.assert_array_equal(world.score_POD.reshape(-1, 2)[cell_N], score_ND)
    assert (
        cell_N.reshape(draws, size) // 4 == cell_N.reshape(draws, size)[:, :1] // 4
    ).all()  # one prompt a group
    first = np.bincount(cell_N[::size], minlength=12)  # independent: one rollout a group
    expected = draws * (world.weight_P[:, None] * world.probability_PO).ravel()
    assert float(((first - expected) ** 2 / expected).sum()) < chi2.ppf(1 - 1e-4, 11)
    # Rollouts of a group are independent given the prompt: the pair frequencies of the first
    # prompt.
    pairs = cell_N.reshape(draws, size)[cell_N[::size] < 4]
    table = np.zeros((4, 4))
    np.add.at(table, (pairs[:, 0], pairs[:, 1]), 1)
    expected = len(pairs) * np.outer(world.probability_PO[0], world.probability_PO[0])
    assert float(((table - expected) ** 2 / expected).sum()) < chi2.ppf(1 - 1e-4, 15)


def test_ragged_groups_and_given_prompts() -> None:
    world = random_world(np.random.default_rng(1), prompts=3, arms=2, dimensions=2)
    score_ND, reward_N, group_N = world.sample_at([2, 0], [3, 1], np.random.default_rng(0))
    assert group_N.tolist() == [0, 0, 0, 1]
    assert score_ND.shape == (4, 2)
    assert set(reward_N[:3]) <= set(world.reward_PO[2])
    assert set(reward_N[3:]) <= set(world.reward_PO[0])


def test_a_projection_projects_every_moment(world: BanditWorld) -> None:
    rng = np.random.default_rng(5)
    matrix_DR = rng.normal(size=(5, 2))
    small = world.projected(matrix_DR).moments()
    np.testing.assert_allclose(
        small.gradient_PD, world.moments().gradient_PD @ matrix_DR, atol=1e-13
    )
    np.testing.assert_allclose(
        small.fisher_PDD, matrix_DR.T @ world.moments().fisher_PDD @ matrix_DR, atol=1e-12
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[[1.0], [0.0]]], [0.0], [[0.5, 0.5, 0.5]]), "expected 1 x 2 rewards and 1 parameters"),
        (([[[1.0], [0.0]]], [0.0, 1.0], [[0.5, 0.5]]), "got \\(1, 2\\) and \\(2,\\)"),
        (([[[1.0], [np.nan]]], [0.0], [[0.5, 0.5]]), "expected finite numbers in feature_PAD"),
    ],
)
def test_a_world_that_cannot_be_is_refused(arguments: tuple, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        softmax_world(*arguments)


def test_other_refusals() -> None:
    with pytest.raises(InvalidArgumentError, match="mean rewards from 0 to 1"):
        softmax_world([[[1.0], [0.0]]], [0.0], [[2.0, 0.5]], binary=True)
    with pytest.raises(InvalidArgumentError, match="sum to 1"):
        BanditWorld(np.array([[0.5, 0.4]]), np.zeros((1, 2, 1)), np.zeros((1, 2)), np.ones(1))
    with pytest.raises(InvalidArgumentError, match="mean zero"):
        BanditWorld(np.array([[0.5, 0.5]]), np.ones((1, 2, 1)), np.zeros((1, 2)), np.ones(1))
