"""Measured stiffness against the exact one of regularised softmax bandits, whose lines are
written here.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.cases import each_case

from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise_lab.simulate.softmax_bandit import (
    Training,
    bandit,
    exact_gradient,
    exact_value,
    fixed_point,
)
from groupwise_lab.theory.oscillator import recursion
from groupwise_lab.theory.stiffness import kicked_stiffness, relaxed_stiffness


class Bandit:
    """Softmax over arms with rewards r and beta KL(pi || pi_ref), logits as parameters;
    everything in closed form.
    """

    def __init__(self, reward: list[float], reference: list[float], beta: float) -> None:
        self.reward, self.reference, self.beta = np.array(reward), np.array(reference), beta

    def policy(self, logits: np.ndarray) -> np.ndarray:
        weight = np.exp(logits - logits.max())
        return np.asarray(weight / weight.sum())

    def mean_reward(self, parameter_D: np.ndarray) -> float:
        return float(self.policy(parameter_D) @ self.reward)

    def expected_step(self, parameter_D: np.ndarray) -> np.ndarray:
        policy = self.policy(parameter_D)
        aim = self.reward - self.beta * (np.log(policy) - np.log(self.reference))
        return np.asarray(policy * (aim - policy @ aim))

    @property
    def fixed_point(self) -> np.ndarray:
        return np.asarray(np.log(self.reference) + self.reward / self.beta)


NOTE = Bandit([1.0, 0.0], [0.3, 0.7], 0.5)


def test_kicks_find_the_stiffness_of_the_note() -> None:
    """p0 = .3, beta = .5: p* = .76000, K = 2 beta p q = .182398."""
    policy = NOTE.policy(NOTE.fixed_point)
    assert policy[0] == pytest.approx(0.76, abs=1e-5)
    stiffness = kicked_stiffness(NOTE, NOTE.fixed_point, np.random.default_rng(1), size=0.02)
    assert stiffness.stiffness.value == pytest.approx(0.182398, rel=2e-3)
    assert (
        stiffness.stiffness.low < 0.182398 < stiffness.stiffness.high
        or stiffness.stiffness.width < 1e-3
    )


@each_case("kick", [0.05, -0.05, 0.01, 0.3])
@each_case(("learning_rate", "updates"), [(0.05, 400), (0.05, 200), (0.5, 200), (0.003, 60)])
def test_relaxation_holds_the_exact_stiffness(
    kick: float, learning_rate: float, updates: int
) -> None:
    """The bend of the landscape moves the slope of a kick of any size; a kick of .05 once gave
    .18182 to .18190.
    """
    policy = NOTE.policy(NOTE.fixed_point)
    exact, plateau = float(policy[0] * policy[1]), NOTE.mean_reward(NOTE.fixed_point)
    start = NOTE.fixed_point + np.array([kick, 0.0])
    stiffness = relaxed_stiffness(
        NOTE, start, learning_rate=learning_rate, plateau=plateau, updates=updates
    ).stiffness
    assert stiffness.covers(exact)
    assert stiffness.width < (0.005 if updates > 60 else 0.05) * exact


def test_a_reward_that_crosses_its_plateau_is_refused() -> None:
    """Two modes that pull the reward to opposite sides: the ratio of two gaps is no rate there."""
    bandit = Bandit([1.0, 0.4, 0.0, 0.7], [0.25] * 4, 0.4)
    start = bandit.fixed_point + 0.01 * np.array([1.0, -0.5, 0.3, 0.4])
    with pytest.raises(InsufficientDataError, match="crosses"):
        relaxed_stiffness(
            bandit,
            start,
            learning_rate=0.1,
            plateau=bandit.mean_reward(bandit.fixed_point),
            updates=2000,
        )


def test_along_one_mode_of_many_arms() -> None:
    """The stiffnesses are beta times the eigenvalues of diag(pi*) - pi* pi*^T; a kick along an
    eigenvector finds its own.
    """
    bandit = Bandit([1.0, 0.4, 0.0, 0.7], [0.25] * 4, 0.4)
    policy = bandit.policy(bandit.fixed_point)
    values, vectors = np.linalg.eigh(np.diag(policy) - np.outer(policy, policy))
    for column in (1, 2, 3):
        direction = vectors[:, [column]].T
        stiffness = kicked_stiffness(
            bandit,
            bandit.fixed_point,
            np.random.default_rng(0),
            kicks=4,
            size=0.005,
            directions=direction,
        )
        assert stiffness.stiffness.value == pytest.approx(bandit.beta * values[column], rel=0.02)


def test_measured_stiffness_predicts_the_recursion() -> None:
    """What kicks measure is what training does: the run's curve near the fixed point is that of
    the linear law.
    """
    value = kicked_stiffness(
        NOTE, NOTE.fixed_point, np.random.default_rng(1), size=0.02
    ).stiffness.value
    eta, mu = 0.2, 0.8
    point, velocity = NOTE.fixed_point + np.array([0.02, -0.02]), np.zeros(2)
    plateau = NOTE.mean_reward(NOTE.fixed_point)
    rewards = [NOTE.mean_reward(point)]
    for _ in range(200):
        velocity = mu * velocity + eta * NOTE.expected_step(point)
        point = point + velocity
        rewards.append(NOTE.mean_reward(point))
    linear = recursion(eta * value, mu, 200, lag="none", start=rewards[0], plateau=plateau)
    assert np.abs(np.array(rewards) - linear).max() < 0.03 * abs(rewards[0] - plateau)


class Simulated:
    """The package's own bandit by the protocol."""

    def __init__(self, reward: list[float], kl_weight: float) -> None:
        self.world = bandit(reward, kl_weight=kl_weight)

    def mean_reward(self, parameter_D: np.ndarray) -> float:
        return exact_value(self.world, parameter_D)

    def expected_step(self, parameter_D: np.ndarray) -> np.ndarray:
        return exact_gradient(self.world, parameter_D)


def test_kicks_find_every_stiffness_of_the_simulated_bandit() -> None:
    world = Simulated([1.0, 0.5, 0.2, 0.0, 0.7], 0.5)
    rest = fixed_point(world.world, Training(learning_rate=0.1))
    for stiffness, direction in zip(rest.stiffness_M, rest.direction_MA, strict=True):
        measured = kicked_stiffness(
            world,
            rest.logit_A,
            np.random.default_rng(0),
            kicks=4,
            size=0.003,
            directions=direction[None],
        )
        assert measured.stiffness.value == pytest.approx(stiffness, rel=0.02)


class Noisy(Bandit):
    """The note's bandit with rewards that are averages of many rollouts."""

    def __init__(self, noise: float, seed: int) -> None:
        super().__init__([1.0, 0.0], [0.3, 0.7], 0.5)
        self.noise, self.rng = noise, np.random.default_rng(seed)

    def mean_reward(self, parameter_D: np.ndarray) -> float:
        return super().mean_reward(parameter_D) + self.noise * float(self.rng.standard_normal())


@pytest.mark.slow
def test_noise_in_the_reward_does_not_shrink_the_stiffness() -> None:
    """Rewards noisy by half of what a kick moves them: the mean of 60 measurements is off by less
    than its own four standard errors.

    Without the instrument a seventh would be missing, which is seven of those.
    """
    direction = np.array([[1.0, -1.0]])
    estimates = [
        kicked_stiffness(
            Noisy(0.025, seed),
            NOTE.fixed_point,
            np.random.default_rng(seed),
            size=0.2,
            directions=np.repeat(direction, 200, axis=0),
        ).stiffness
        for seed in range(60)
    ]
    values = np.array([estimate.value for estimate in estimates])
    error = values.std(ddof=1) / np.sqrt(len(values))
    assert abs(values.mean() - 0.182398) < 4 * error
    assert error < 0.182398 / 28
    # 95 % intervals: at least 51 of 60 cover, five deviations below the nominal.
    assert sum(estimate.low < 0.182398 < estimate.high for estimate in estimates) >= 51


def test_what_cannot_be_measured_is_said() -> None:
    flat = Bandit([0.5, 0.5], [0.5, 0.5], 0.5)
    with pytest.raises(InsufficientDataError, match="a flat one"):
        kicked_stiffness(flat, flat.fixed_point, np.random.default_rng(1))
    with pytest.raises(InsufficientDataError, match="displace it more"):
        relaxed_stiffness(
            NOTE, NOTE.fixed_point, learning_rate=0.1, plateau=NOTE.mean_reward(NOTE.fixed_point)
        )
    with pytest.raises(InvalidArgumentError, match="at least 4 kicks"):
        kicked_stiffness(NOTE, NOTE.fixed_point, np.random.default_rng(1), kicks=2)
    with pytest.raises(InvalidArgumentError, match="rows of 2 numbers"):
        kicked_stiffness(
            NOTE, NOTE.fixed_point, np.random.default_rng(1), directions=np.ones((2, 3))
        )
    with pytest.raises(InvalidArgumentError, match="positive learning rate"):
        relaxed_stiffness(NOTE, NOTE.fixed_point, learning_rate=0.0, plateau=0.76)


def test_at_a_maximum_the_reward_relaxes_at_twice_the_rate_and_cannot_overshoot() -> None:
    class Hilltop:
        def mean_reward(self, parameter_D: np.ndarray) -> float:
            return float(0.9 - 0.3 * parameter_D[0] ** 2)

        def expected_step(self, parameter_D: np.ndarray) -> np.ndarray:
            return np.asarray(-0.6 * parameter_D)

    stiffness = relaxed_stiffness(
        Hilltop(), np.array([0.5]), learning_rate=0.001, plateau=0.9, updates=2000
    )
    assert stiffness.stiffness.value == pytest.approx(2 * 0.6, rel=1e-3)
    oscillating = recursion(0.05, 0.9, 400, lag="none", start=0.5, plateau=0.0)
    assert oscillating.min() < -0.1
    assert max(Hilltop().mean_reward(np.array([value])) for value in oscillating) <= 0.9


def test_an_unstable_point_has_a_negative_stiffness_and_says_so() -> None:
    class Hill(Bandit):
        def expected_step(self, parameter_D: np.ndarray) -> np.ndarray:
            return -super().expected_step(parameter_D)

    hill = Hill([1.0, 0.0], [0.3, 0.7], 0.5)
    stiffness = kicked_stiffness(hill, hill.fixed_point, np.random.default_rng(1), size=0.02)
    assert stiffness.stiffness.value < 0
    assert "not positive" in stiffness.status
