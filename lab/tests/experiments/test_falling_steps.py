"""The regularised worlds and their runs: derivatives by differences, gradients by enumeration of
all groups, runs by their own law.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lab.tests.experiments.conftest import scripts_of
from scipy import stats
from tests.cases import each_case

from groupwise.errors import InvalidArgumentError

with scripts_of(Path(__file__).resolve().parents[2] / "experiments" / "u_statistic") as load:
    _script = load("falling_steps")
BASELINES, BY_INVERSION, RegularisedWorld = (
    _script.BASELINES,
    _script.BY_INVERSION,
    _script.RegularisedWorld,
)
bandit_world, linear_world = _script.bandit_world, _script.linear_world
falling_runs = _script.falling_runs


def drawn_gradients(
    world: Any,
    baseline: str,
    theta_D: np.ndarray,
    rng: np.random.Generator,
    *,
    group_size: int,
    prompts: int,
    draws: int,
) -> np.ndarray:
    """Independent minibatch gradients at one policy, one a row: the very ones that `falling_runs`
    steps along.
    """
    update = _script._update(world, baseline, group_size, prompts)
    return np.asarray(_script._gradient(update, np.tile(theta_D[:, None], (1, draws)), rng).T)


def small() -> Any:
    """Two prompts of three answers, unlike in all respects."""
    rng = np.random.default_rng(4)
    reference = np.array([[0.5, 0.3, 0.2], [0.2, 0.2, 0.6]])
    return RegularisedWorld(
        rng.standard_normal((2, 3, 2)),
        rng.standard_normal((2, 3)),
        reference,
        0.4,
        np.array([0.3, 0.7]),
    )


def by_enumeration(
    world: Any, theta: np.ndarray, baseline: str, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of one group's gradient, its prompt drawn too: every sequence of answers,
    term by term.
    """
    probability, gradient = [], []
    for prompt, often in enumerate(world.weight_P):
        weight = world.reference_PA[prompt] * np.exp(world.feature_PAD[prompt] @ theta)
        policy = weight / weight.sum()
        score = world.feature_PAD[prompt] - policy @ world.feature_PAD[prompt]
        value = float(policy @ world.reward_PA[prompt])
        pull = sum(
            policy[a] * (world.feature_PAD[prompt, a] @ theta) * score[a]
            for a in range(len(policy))
        )
        for group in product(range(len(policy)), repeat=size):
            reward = [world.reward_PA[prompt, a] for a in group]
            total = np.zeros(len(theta))
            for i, a in enumerate(group):
                others = (
                    (sum(reward) - reward[i]) / (size - 1) if baseline == "leave_one_out" else 0.0
                )
                total += (
                    score[a]
                    * (
                        reward[i]
                        - {"leave_one_out": others, "oracle": value, "vanilla": 0.0}[baseline]
                    )
                    / size
                )
            probability.append(often * np.prod([policy[a] for a in group]))
            gradient.append(total - world.kl_weight * pull)
    p, g = np.array(probability), np.array(gradient)
    mean = p @ g
    return mean, np.einsum("m,mi,mj->ij", p, g - mean, g - mean)


@pytest.mark.parametrize(
    "world", [small(), bandit_world([1.0, 0.2, 0.0], kl_weight=0.5)], ids=["linear", "bandit"]
)
def test_gradient_and_hessian_are_differences_of_the_objective(world: Any) -> None:
    theta, step = np.linspace(-0.4, 0.7, world.dimensions), 1e-4
    shifts = step * np.eye(world.dimensions)
    slope = [(world.objective(theta + d) - world.objective(theta - d)) / (2 * step) for d in shifts]
    bend = [(world.gradient(theta + d) - world.gradient(theta - d)) / (2 * step) for d in shifts]
    assert world.gradient(theta) == pytest.approx(np.array(slope), abs=1e-7)
    assert world.hessian(theta) == pytest.approx(np.array(bend), abs=1e-7)


def test_the_optimum_of_a_bandit_is_reward_over_kl_weight() -> None:
    world = bandit_world([1.0, 0.2, 0.0], kl_weight=0.5, reference_A=[0.2, 0.5, 0.3])
    best = world.optimum()
    assert best - best.mean() == pytest.approx(np.array([1.0, 0.2, 0.0]) / 0.5 - 0.8)
    assert np.linalg.eigvalsh(world.hessian(best))[-1] == pytest.approx(0, abs=1e-12)
    tries = best + 0.05 * np.random.default_rng(0).standard_normal((50, 3))
    assert (world.objectives(tries) <= world.objective(best)).all()


@each_case("baseline", BASELINES)
@each_case("size", [2, 4])
def test_drawn_gradients_have_the_moments_of_all_groups(baseline: str, size: int) -> None:
    """60,000 minibatches of three: every mean and covariance within 5 standard errors; wrong by
    chance less than 1e-5 of the time.
    """
    world, theta, draws = small(), np.array([0.5, -0.3]), 60_000
    mean, covariance = by_enumeration(world, theta, baseline, size)
    drawn = drawn_gradients(
        world, baseline, theta, np.random.default_rng(size), group_size=size, prompts=3, draws=draws
    )
    assert np.abs(drawn.mean(axis=0) - mean).max() < 5 * drawn.std() / np.sqrt(draws)
    off = drawn - mean
    outer = np.einsum("mi,mj->mij", off, off)
    assert (
        np.abs(outer.mean(axis=0) - covariance / 3) < 5 * outer.std(axis=0) / np.sqrt(draws)
    ).all()
    assert world.gradient(theta) == pytest.approx(mean, abs=1e-12)


def test_large_groups_are_drawn_another_way_with_the_same_moments() -> None:
    world, theta, size = small(), np.array([0.2, 0.1]), BY_INVERSION + 4
    drawn = drawn_gradients(
        world, "vanilla", theta, np.random.default_rng(1), group_size=size, prompts=1, draws=40_000
    )
    _, variance = by_enumeration(world, theta, "vanilla", 1)
    moments = world.moments(theta)
    own = moments.gradient_PD + moments.pull_PD
    between = np.einsum(
        "p,pi,pj->ij", world.weight_P, own - world.gradient(theta), own - world.gradient(theta)
    )
    expected = between + (variance - between) / size
    assert np.cov(drawn.T) == pytest.approx(expected, rel=0.06, abs=0.03 * np.trace(expected))


@pytest.mark.slow
def test_runs_end_where_their_steps_say() -> None:
    """One direction, b = 1/lambda: n updates from the optimum average n gradients, so the gap's
    mean is known; 4 standard errors.
    """
    world = linear_world(
        np.random.default_rng(0), prompts=3, answers=2, dimensions=1, kl_weight=1.0
    )
    best, runs = world.optimum(), 3000
    curvature = -float(world.hessian(best)[0, 0])
    _, noise = by_enumeration(world, best, "leave_one_out", 4)
    falling = falling_runs(
        world,
        "leave_one_out",
        np.random.default_rng(2),
        group_size=4,
        prompts=32,
        step_constant=1 / curvature,
        offset=20,
        steps=[5, 400],
        runs=runs,
    )
    assert falling.gap_SR.shape == (2, runs)
    scale = noise[0, 0] / 32 / (2 * curvature) * 400 / 420**2
    assert falling.gap_SR[1].mean() == pytest.approx(
        scale, abs=4 * scale * np.sqrt(2 / runs) + 0.01 * scale
    )
    assert stats.kstest(falling.gap_SR[1] / scale, stats.chi2(1).cdf).pvalue > 1e-4
    assert (falling.low_D < best).all()
    assert (best < falling.high_D).all()


def test_a_constant_step_without_noise_is_gradient_ascent() -> None:
    """One prompt, G = 1 and equal rewards: with the oracle no noise is left, and the KL term alone
    pulls back to the reference.
    """
    world = bandit_world([1.0, 1.0], kl_weight=0.5, reference_A=[0.3, 0.7])
    start, place = np.array([0.8, -0.4]), np.array([0.8, -0.4])
    for _ in range(30):
        place = place + 0.3 * world.gradient(place)
    runs = falling_runs(
        world,
        "oracle",
        np.random.default_rng(0),
        group_size=1,
        prompts=2,
        step_constant=0.3,
        power=0.0,
        steps=[30],
        runs=2,
        start_D=start,
    )
    assert runs.gap_SR[0] == pytest.approx(
        world.objective(world.optimum()) - world.objective(place), rel=1e-3
    )


WORLD = bandit_world([1.0, 0.0], kl_weight=0.5)


@each_case(
    ("change", "sentence"),
    [
        ({"group_size": 1}, "leave-one-out needs two"),
        ({"step_constant": 0.0}, "b above 0"),
        ({"steps": [5, 2]}, "rising"),
        ({"baseline": "group"}, "baseline"),
    ],
)
def test_bad_runs_get_a_sentence(change: dict[str, object], sentence: str) -> None:
    settings: dict[str, object] = {
        "group_size": 2,
        "prompts": 1,
        "step_constant": 1.0,
        "steps": [2],
        "runs": 1,
    } | change
    with pytest.raises(InvalidArgumentError, match=sentence):
        falling_runs(
            WORLD, settings.pop("baseline", "leave_one_out"), np.random.default_rng(0), **settings
        )


@each_case(
    ("call", "sentence"),
    [
        (lambda: bandit_world([1.0, 0.0], kl_weight=0.0), "KL weight above 0"),
        (lambda: bandit_world([1.0, 0.0], kl_weight=0.5, reference_A=[0.5, 0.6]), "add up to 1"),
        (lambda: bandit_world([1.0], kl_weight=0.5), "two answers"),
        (
            lambda: RegularisedWorld(
                np.ones((1, 2, 1)), np.ones((1, 3)), np.ones((1, 2)) / 2, 0.5, np.ones(1)
            ),
            "reward_PA",
        ),
    ],
)
def test_bad_worlds_get_a_sentence(call, sentence: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InvalidArgumentError, match=sentence):
        call()
