"""The gradient as a U-statistic: the identity over pairs, Hoeffding's parts, and the classical
variance, by enumeration to 1e-10.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from math import comb
from typing import Literal

import numpy as np
import pytest
from tests.cases import each_case
from tests.enumeration import enumerate_groups

from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise_lab.theory.ustatistic import (
    gradient_kernel,
    hoeffding,
    kernel_variances,
    leave_one_out_gradient,
    u_statistic,
    u_statistic_variance,
)
from groupwise_lab.worlds.bandit import BanditWorld, random_world

EXACT = 1e-10
KINDS: tuple[Literal["binary", "continuous", "noisy"], ...] = ("binary", "continuous", "noisy")


@pytest.fixture(params=KINDS)
def world(request: pytest.FixtureRequest) -> BanditWorld:
    return random_world(
        np.random.default_rng(3), prompts=3, arms=3, dimensions=4, rewards=request.param
    )


def leave_one_out_by_hand(score_GD: np.ndarray, reward_G: np.ndarray) -> np.ndarray:
    """Mean of score times (reward minus the mean of the others), rollout by rollout."""
    size = len(reward_G)
    terms = [score_GD[i] * (reward_G[i] - np.delete(reward_G, i).mean()) for i in range(size)]
    return np.asarray(np.sum(terms, axis=0) / size)


@each_case("size", [2, 3, 5, 9])
def test_leave_one_out_is_the_mean_over_pairs(size: int) -> None:
    """Lemma 1: three ways to the same number, for any scores and rewards, none of them with mean
    zero.
    """
    rng = np.random.default_rng(size)
    score_GD, reward_G = rng.normal(1, 1, (size, 6)), rng.standard_cauchy(size)
    closed = leave_one_out_gradient(score_GD, reward_G)
    np.testing.assert_allclose(
        closed, leave_one_out_by_hand(score_GD, reward_G), rtol=1e-12, atol=EXACT
    )
    rollouts = list(zip(score_GD, reward_G.tolist(), strict=True))
    np.testing.assert_allclose(
        closed, u_statistic(gradient_kernel, rollouts, 2), rtol=1e-12, atol=EXACT
    )
    full_mean = (score_GD * (reward_G - reward_G.mean())[:, None]).mean(axis=0)
    np.testing.assert_allclose(full_mean, (size - 1) / size * closed, rtol=1e-12, atol=EXACT)


def test_many_groups_at_once_are_the_groups_one_by_one() -> None:
    rng = np.random.default_rng(0)
    score_PGD, reward_PG = rng.normal(size=(5, 4, 3)), rng.normal(size=(5, 4))
    one_by_one = [
        leave_one_out_gradient(score, reward)
        for score, reward in zip(score_PGD, reward_PG, strict=True)
    ]
    np.testing.assert_allclose(leave_one_out_gradient(score_PGD, reward_PG), one_by_one, atol=1e-15)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_the_gradient_is_unbiased(world: BanditWorld, size: int) -> None:
    for x in range(3):
        groups = enumerate_groups(world, size, prompt=x)
        mean_D = groups.mean(leave_one_out_gradient(groups.score_MGD, groups.reward_MG))
        np.testing.assert_allclose(mean_D, world.moments().gradient_PD[x], atol=EXACT)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_hoeffdings_parts_sum_to_the_error_and_are_uncorrelated(
    world: BanditWorld, size: int
) -> None:
    exact = world.moments()
    for x in range(3):
        groups = enumerate_groups(world, size, prompt=x)
        parts = hoeffding(
            groups.score_MGD, groups.reward_MG, float(exact.value_P[x]), exact.gradient_PD[x]
        )
        error_MD = leave_one_out_gradient(groups.score_MGD, groups.reward_MG) - exact.gradient_PD[x]
        np.testing.assert_allclose(parts.linear_D + parts.degenerate_D, error_MD, atol=EXACT)
        np.testing.assert_allclose(groups.mean(parts.linear_D), 0, atol=EXACT)
        np.testing.assert_allclose(groups.mean(parts.degenerate_D), 0, atol=EXACT)
        crossed = groups.mean(parts.linear_D[:, :, None] * parts.degenerate_D[:, None, :])
        np.testing.assert_allclose(crossed, 0, atol=EXACT)
        # The sizes of both parts: T_o/G and R/(G(G-1)).
        assert groups.variance(parts.linear_D) == pytest.approx(
            exact.oracle_variance_P[x] / size, abs=EXACT
        )
        assert groups.variance(parts.degenerate_D) == pytest.approx(
            exact.degenerate_P[x] / (size * (size - 1)), abs=EXACT
        )


def test_the_linear_part_is_the_oracle_estimator(world: BanditWorld) -> None:
    exact = world.moments()
    groups = enumerate_groups(world, 3, prompt=1)
    parts = hoeffding(
        groups.score_MGD, groups.reward_MG, float(exact.value_P[1]), exact.gradient_PD[1]
    )
    oracle_MD = (groups.score_MGD * (groups.reward_MG - exact.value_P[1])[:, :, None]).mean(axis=1)
    np.testing.assert_allclose(parts.linear_D, oracle_MD - exact.gradient_PD[1], atol=EXACT)


def test_the_degenerate_part_is_the_mean_of_an_explicit_kernel() -> None:
    """zeta_2(i, j) = -(s_i e_j + s_j e_i)/2, over all pairs of a sample."""
    rng = np.random.default_rng(0)
    score_GD, reward_G, value, gradient_D = (
        rng.normal(size=(6, 3)),
        rng.normal(size=6),
        0.3,
        rng.normal(size=3),
    )
    e = reward_G - value
    pairs = [-(score_GD[i] * e[j] + score_GD[j] * e[i]) / 2 for i, j in combinations(range(6), 2)]
    np.testing.assert_allclose(
        hoeffding(score_GD, reward_G, value, gradient_D).degenerate_D,
        np.mean(pairs, axis=0),
        atol=EXACT,
    )


def test_the_mean_of_the_kernel_given_one_rollout_is_half_of_s_e_plus_g(world: BanditWorld) -> None:
    """The paper prints 2 h_1 = s e; it is 2 h_1 - g = s e, and the difference is as large as the
    gradient.
    """
    exact = world.moments()
    for x in range(3):
        outcomes = list(zip(world.score_POD[x], world.reward_PO[x].tolist(), strict=True))
        for score_D, reward in outcomes:
            values = [gradient_kernel((score_D, reward), other) for other in outcomes]
            twice_h1_D = 2 * world.probability_PO[x] @ np.array(values)
            np.testing.assert_allclose(
                twice_h1_D - exact.gradient_PD[x], score_D * (reward - exact.value_P[x]), atol=EXACT
            )
    assert np.abs(exact.gradient_PD).max() > 0.1


@pytest.mark.parametrize("size", [2, 3, 4])
def test_the_classical_variance_as_matrices(world: BanditWorld, size: int) -> None:
    """Cov(U) by enumeration, by zeta_1 and zeta_2, and by Sigma_o/G + (F sigma^2 + g
    g^T)/(G(G-1)).
    """
    exact = world.moments()
    for x in range(3):
        groups = enumerate_groups(world, size, prompt=x)
        g = exact.gradient_PD[x]
        centred_MD = leave_one_out_gradient(groups.score_MGD, groups.reward_MG) - g
        covariance_DD = groups.mean(centred_MD[:, :, None] * centred_MD[:, None, :])
        enumeration = enumerate_groups(world, 1, prompt=x)
        oracle_MD = enumeration.score_MGD[:, 0] * (enumeration.reward_MG - exact.value_P[x]) - g
        sigma_DD = enumeration.mean(oracle_MD[:, :, None] * oracle_MD[:, None, :])
        rest_DD = exact.fisher_PDD[x] * exact.reward_variance_P[x] + np.outer(g, g)
        zeta_1, zeta_2 = kernel_variances(sigma_DD, rest_DD)
        np.testing.assert_allclose(
            u_statistic_variance(zeta_1, zeta_2, size), covariance_DD, atol=EXACT
        )
        np.testing.assert_allclose(
            sigma_DD / size + rest_DD / (size * (size - 1)), covariance_DD, atol=EXACT
        )
        assert np.trace(rest_DD) == pytest.approx(exact.degenerate_P[x], abs=EXACT)


def test_the_zetas_are_what_they_are_called(world: BanditWorld) -> None:
    """zeta_1 = Cov(h_1), zeta_2 = Cov(h), from the kernel over all pairs of outcomes."""
    exact = world.moments()
    p, g = world.probability_PO[0], exact.gradient_PD[0]
    outcomes = list(zip(world.score_POD[0], world.reward_PO[0].tolist(), strict=True))
    kernel_OOD = (
        np.array([[gradient_kernel(first, second) for second in outcomes] for first in outcomes])
        - g
    )
    first_OD = np.einsum("o,iod->id", p, kernel_OOD)
    sigma = exact.oracle_variance_P[0]
    zeta_1, zeta_2 = kernel_variances(sigma, exact.degenerate_P[0])
    assert float(zeta_1) == pytest.approx(np.einsum("o,od,od->", p, first_OD, first_OD), abs=EXACT)
    assert float(zeta_2) == pytest.approx(
        np.einsum("i,j,ijd,ijd->", p, p, kernel_OOD, kernel_OOD), abs=EXACT
    )


@each_case("order", [1, 2, 3])
def test_the_general_u_statistic_is_unbiased_for_central_moments(order: int) -> None:
    """Kernels of order 1, 2 and 3 for mean, variance and third cumulant, over all samples of
    five from three values.
    """
    kernels: dict[int, Callable[..., float]] = {
        1: lambda x: x,
        2: lambda x, y: (x - y) ** 2 / 2,
        3: lambda x, y, z: (2 * x - y - z) * (2 * y - x - z) * (2 * z - x - y) / 6,
    }
    value, p = np.array([0.0, 1.0, 4.0]), np.array([0.5, 0.3, 0.2])
    mean = p @ value
    truth = {1: mean, 2: p @ (value - mean) ** 2, 3: p @ (value - mean) ** 3}
    index = np.indices((3,) * 5).reshape(5, -1).T
    expectation = sum(
        p[row].prod() * float(u_statistic(kernels[order], value[row].tolist(), order))
        for row in index
    )
    assert expectation == pytest.approx(truth[order], abs=EXACT)


def test_the_number_of_kernel_calls_is_the_number_of_subsets() -> None:
    calls: list[tuple[int, ...]] = []

    def kernel(*chosen: int) -> float:
        calls.append(chosen)
        return 0.0

    u_statistic(kernel, range(6), 3)
    assert len(calls) == len(set(calls)) == comb(6, 3)


def test_bad_input_is_refused_in_one_line() -> None:
    with pytest.raises(InsufficientDataError, match="at least 2 rollouts, got 1"):
        leave_one_out_gradient([[1.0]], [1.0])
    with pytest.raises(InvalidArgumentError, match="one reward a score"):
        leave_one_out_gradient([[1.0], [2.0]], [1.0])
    with pytest.raises(InvalidArgumentError, match="finite numbers in reward_G"):
        leave_one_out_gradient([[1.0], [2.0]], [1.0, np.inf])
    with pytest.raises(InvalidArgumentError, match="a gradient of 1 entries"):
        hoeffding([[1.0], [2.0]], [1.0, 0.0], 0.5, [0.0, 0.0])
    with pytest.raises(InsufficientDataError, match="at least 3 samples"):
        u_statistic(lambda *_: 0.0, [1, 2], 3)
    with pytest.raises(InvalidArgumentError, match="order 0"):
        u_statistic(lambda *_: 0.0, [1, 2], 0)
    with pytest.raises(InsufficientDataError, match="a pair needs two"):
        u_statistic_variance(1.0, 1.0, 1)
