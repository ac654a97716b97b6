"""What is known of a bandit without simulating it: against finite differences, and against the
simulated expectation.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.cases import each_case

from groupwise.errors import InvalidArgumentError
from groupwise_lab.simulate.bandit_runs import expected_path
from groupwise_lab.simulate.softmax_bandit import (
    Bandit,
    NoFixedPointError,
    Training,
    bandit,
    exact_gradient,
    exact_value,
    fisher_modes,
    fixed_point,
    policy_of,
    std_fixed_points,
)

FOUR = bandit([0.0, 0.3, 0.9, 1.0], reference_A=[0.4, 0.3, 0.2, 0.1], kl_weight=0.4)


def two(kl_weight: float) -> Bandit:
    return bandit([0, 1], reference_A=[0.7, 0.3], kl_weight=kl_weight)


def objective(task: Bandit, logit: np.ndarray) -> float:
    policy = np.exp(logit) / np.exp(logit).sum()
    return float(policy @ (task.reward_A - task.kl_weight * np.log(policy / task.reference_A)))


def test_the_gradient_is_the_slope_of_the_objective() -> None:
    logit = np.array([0.2, -0.4, 0.1, 0.5])
    numeric = [
        (objective(FOUR, logit + step) - objective(FOUR, logit - step)) / 2e-5
        for step in 1e-5 * np.eye(4)
    ]
    np.testing.assert_allclose(exact_gradient(FOUR, logit), numeric, atol=1e-10)
    assert exact_value(FOUR, logit + 7) == pytest.approx(
        policy_of(logit) @ FOUR.reward_A, abs=1e-15
    )


def test_fisher_modes_of_two_arms_and_of_a_uniform_policy() -> None:
    assert fisher_modes(np.log([0.7, 0.3]))[0] == pytest.approx([2 * 0.7 * 0.3], abs=1e-15)
    eigenvalue, vector = fisher_modes(np.zeros(5))
    np.testing.assert_allclose(eigenvalue, 0.2, atol=1e-15)
    np.testing.assert_allclose(vector.sum(axis=1), 0, atol=1e-14)


def drift_jacobian(task: Bandit, training: Training, logit: np.ndarray) -> np.ndarray:
    """Minus the derivative of the simulated expected gradient, by central differences."""

    def drift(at: np.ndarray) -> np.ndarray:
        return np.asarray(expected_path(task, training, steps=1, start_AS=at).logit_AS[:, 0] - at)

    step = 1e-5
    return -np.array(
        [
            (drift(logit + step * unit) - drift(logit - step * unit)) / (2 * step)
            for unit in np.eye(task.arms)
        ]
    ).T


@each_case("kl_place", ["loss", "reward"])
@each_case("advantage", ["vanilla", "leave_one_out", "full_group_mean"])
def test_the_fixed_point_rests_and_is_as_stiff_as_it_says(advantage: Any, kl_place: Any) -> None:
    training = Training(1.0, group_size=4, advantage=advantage, kl_place=kl_place)
    rest = fixed_point(FOUR, training)
    moved = expected_path(FOUR, training, steps=1, start_AS=rest.logit_A)
    np.testing.assert_allclose(moved.logit_AS[:, 0], rest.logit_A, atol=1e-14)
    jacobian = drift_jacobian(FOUR, training, rest.logit_A)
    np.testing.assert_allclose(
        np.sort(np.linalg.eigvals(jacobian).real)[:0:-1], rest.stiffness_M, atol=1e-9
    )
    for stiffness, direction in zip(rest.stiffness_M, rest.direction_MA, strict=True):
        np.testing.assert_allclose(jacobian @ direction, stiffness * direction, atol=1e-9)
    assert rest.visible_M.sum() == pytest.approx(1)


def test_the_numbers_of_the_theory() -> None:
    rest = fixed_point(two(0.5), Training(0.1))
    assert rest.value == pytest.approx(0.76, abs=5e-6)
    assert rest.stiffness == pytest.approx(0.182398, abs=5e-7)
    for size, full, std in ((4, 0.658, 0.888), (16, 0.737, 0.999)):
        assert fixed_point(
            two(0.5), Training(0.1, group_size=size, advantage="full_group_mean")
        ).value == pytest.approx(full, abs=1e-3)
        assert fixed_point(
            two(0.5), Training(0.1, group_size=size, advantage="std_normalised")
        ).value == pytest.approx(std, abs=1e-3)


@each_case("size", [2, 4, 16, 100])
@each_case("rewards", [[0, 1], [2.0, -1.0]])
def test_the_stiffness_of_std_normalised_advantages(size: int, rewards: list[float]) -> None:
    """Against the derivative of the simulated expectation."""
    task = bandit(rewards, reference_A=[0.6, 0.4], kl_weight=1.5)
    training = Training(1.0, group_size=size, advantage="std_normalised")
    rest = fixed_point(task, training)
    assert np.linalg.eigvals(
        drift_jacobian(task, training, rest.logit_A)
    ).real.max() == pytest.approx(rest.stiffness, rel=1e-7)


@pytest.mark.parametrize("size", [2, 5])
def test_std_normalised_advantages_drift_by_the_mean_deviation(size: int) -> None:
    """With hardly a floor D = (G-1)/G E[s]: one expected update moves the logits of the two arms
    by D and -D.
    """
    from math import comb

    mean = sum(
        comb(size, k) * 0.3**k * 0.7 ** (size - k) * np.sqrt(k * (size - k) / (size * (size - 1)))
        for k in range(size + 1)
    )
    training = Training(1.0, group_size=size, advantage="std_normalised", deviation_floor=1e-14)
    moved = expected_path(two(0.0), training, steps=1).logit_AS[:, 0] - np.log([0.7, 0.3])
    drift = (size - 1) / size * mean
    np.testing.assert_allclose(moved, [-drift, drift], rtol=1e-12)


@pytest.mark.slow
def test_a_saddle_node_of_large_groups() -> None:
    """Of infinite groups there are two fixed points above the minimum over theta of 1/[sqrt(pq)
    (theta - theta_0)] and none below it.

    Of large ones there is one more, which attracts, near certainty.
    """
    theta = np.linspace(-0.8, 20.0, 2_000_001)
    p = 1 / (1 + np.exp(-theta))
    least = float((1 / (np.sqrt(p * (1 - p)) * (theta - np.log(0.3 / 0.7)))).min())
    assert least == pytest.approx(1.08, abs=5e-3)
    (below,) = std_fixed_points(two(least * 0.98), 1000, deviation_floor=0.0)
    first, second, third = std_fixed_points(two(least * 1.02), 1000, deviation_floor=0.0)
    assert first[0] < second[0] < 8 < min(third[0], below[0])
    assert [stiffness > 0 for _, stiffness in (below, first, second, third)] == [
        True,
        True,
        False,
        True,
    ]


def test_what_has_no_fixed_point_is_said_to_have_none() -> None:
    with pytest.raises(NoFixedPointError, match="no fixed point without a KL term"):
        fixed_point(two(0.0), Training(0.1))
    with pytest.raises(NoFixedPointError, match="no signal from groups of one"):
        fixed_point(two(0.5), Training(0.1, group_size=1, advantage="full_group_mean"))
    with pytest.raises(InvalidArgumentError, match="two arms"):
        fixed_point(FOUR, Training(0.1, advantage="std_normalised"))
    with pytest.raises(InvalidArgumentError, match="KL term in the loss"):
        fixed_point(two(0.5), Training(0.1, advantage="std_normalised", kl_place="reward"))
    with pytest.raises(InvalidArgumentError, match="one group an update"):
        fixed_point(two(0.5), Training(0.1, advantage="batch_std", prompts=2))
    for advantage in ("leave_one_out", "std_normalised"):
        with pytest.raises(NoFixedPointError, match="short of a certain policy"):
            fixed_point(two(0.025), Training(0.1, advantage=advantage))
    for kl_weight in (1e-3, 1e-9, 1e-300):
        with pytest.raises(NoFixedPointError, match="no fixed point"):
            fixed_point(two(kl_weight), Training(0.1))
        with pytest.raises(NoFixedPointError, match="no fixed point"):
            fixed_point(two(kl_weight), Training(0.1, advantage="std_normalised"))
    assert fixed_point(two(0.5), Training(0.1, advantage="batch_std")).value == pytest.approx(
        fixed_point(two(0.5), Training(0.1, advantage="std_normalised")).value
    )
