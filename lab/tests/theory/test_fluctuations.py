"""Stationary variances against simulation of the recursion, and the tests of fluctuations
against their false-alarm rates.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from lab.tests.experiments.conftest import scripts_of

from groupwise.edge.mode import threshold
from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.estimators.components import components
from groupwise_lab.theory.mse import reward_band, variance_ratio
from groupwise_lab.theory.oscillator import oscillator
from groupwise_lab.theory.partly_stale import threshold_of_share

with scripts_of(
    Path(__file__).resolve().parents[2] / "experiments" / "predictable_grpo"
) as load_script:
    _script = load_script("stationary")
group_size_test = _script.group_size_test
stationary_variance = _script.stationary_variance
temperature_over_stiffness = _script.temperature_over_stiffness


def simulated_variance(
    force: float,
    momentum: float,
    lag: str,
    interval: int,
    *,
    runs: int = 4000,
    updates: int = 1200,
    seed: int = 0,
) -> float:
    """Variance over runs, mean over the last 400 updates: lines of their own."""
    rng = np.random.default_rng(seed)
    history = [np.zeros(runs)]
    velocity, total = np.zeros(runs), 0.0
    for now in range(updates):
        seen = {
            "none": now,
            "fixed": now - interval,
            "refresh": now - now % interval,
            "async": now - now % interval - interval,
        }[lag]
        velocity = momentum * velocity - force * history[max(seen, 0)] + rng.standard_normal(runs)
        history.append(history[now] + velocity)
        if now >= updates - 400:
            total += float(history[-1].var()) / 400
    return total


@pytest.mark.thinned(4)
@pytest.mark.parametrize("lag", ["none", "fixed", "refresh", "async"])
@pytest.mark.parametrize(
    ("momentum", "interval", "share"), [(0.0, 3, 0.3), (0.9, 4, 0.2), (0.5, 1, 0.5)]
)
def test_stationary_variance_is_that_of_simulated_runs(
    lag: str, momentum: float, interval: int, share: float
) -> None:
    """Within 8 %: 4,000 runs give 2.2 % on one update, and 400 correlated updates less, so a
    false alarm in under 1 of 1,000.
    """
    force = share * float(threshold(lag, momentum, interval))
    exact = stationary_variance(
        force, momentum, learning_rate=1.0, noise_variance=1.0, refresh_interval=interval, lag=lag
    )
    assert simulated_variance(force, momentum, lag, interval) == pytest.approx(exact, rel=0.08)


@pytest.mark.parametrize("lag", ["fixed", "refresh", "async"])
def test_a_partly_stale_force_swings_as_simulated(lag: str) -> None:
    """Both parts drawn by hand; within 8 %, a false alarm in under 1 of 1,000 as above."""
    interval, momentum, share = 3, 0.6, 0.6
    force = 0.3 * threshold_of_share(lag, momentum, interval, share)
    exact = stationary_variance(
        force,
        momentum,
        learning_rate=1.0,
        noise_variance=1.0,
        refresh_interval=interval,
        lag=lag,
        stale_share=share,
    )
    rng = np.random.default_rng(11)
    history, velocity, total = [np.zeros(4000)], np.zeros(4000), 0.0
    for now in range(900):
        seen = max(
            {
                "fixed": now - interval,
                "refresh": now - now % interval,
                "async": now - now % interval - interval,
            }[lag],
            0,
        )
        velocity = (
            momentum * velocity
            - force * (share * history[seen] + (1 - share) * history[now])
            + rng.standard_normal(4000)
        )
        history.append(history[now] + velocity)
        if now >= 600:
            total += float(history[-1].var()) / 300
    assert total == pytest.approx(exact, rel=0.08)
    whole = stationary_variance(
        force, momentum, learning_rate=1.0, noise_variance=1.0, refresh_interval=interval, lag=lag
    )
    assert abs(whole / exact - 1) > 0.005


def two_armed_prompts(
    rng: np.random.Generator, theta: np.ndarray, prompts: int, group_size: int
) -> tuple[np.ndarray, ...]:
    """Rollouts of prompts that have one parameter each: which prompt, reward and score; theta is
    (runs, prompts of the world).
    """
    runs, world = theta.shape
    which = rng.integers(world, size=(runs, prompts))
    p = 1 / (1 + np.exp(-np.take_along_axis(theta, which, 1)))
    reward = (rng.random((runs, prompts, group_size)) < p[:, :, None]).astype(np.float64)
    return which, reward, reward - p[:, :, None]


@pytest.mark.slow
def test_the_band_follows_from_rollouts_of_many_parameters() -> None:
    """Forty prompts with a parameter each, components estimated from rollouts and projected, then
    300 runs of GRPO: nothing fitted.

    The estimate's 4,000 prompts leave 4 %, the 300 runs 2 %: within 12 % a false alarm is below one
    in a hundred.
    """
    rng, world, prompts, group_size = np.random.default_rng(8), 40, 8, 4
    learning_rate, momentum, beta = 0.2, 0.5, 0.5
    rest = math.log(3 / 7) + 1 / beta
    p = 1 / (1 + math.exp(-rest))
    theta = np.full((1, world), rest)
    which, reward, score = two_armed_prompts(rng, theta, 4000, 8)
    sparse = np.zeros((4000 * 8, world))
    sparse[np.arange(32_000), np.repeat(which[0], 8)] = score.reshape(-1)
    gradient = np.full(world, p * (1 - p) / world)
    reward_first, label = reward.reshape(-1), np.repeat(np.arange(4000), 8)
    along = components(
        reward_first, label, score_ND=sparse @ gradient[:, None] / np.linalg.norm(gradient)
    )
    # Every prompt's parameter has the stiffness beta p q/world, so every direction is a mode.
    force = learning_rate * beta * p * (1 - p) / world
    true, _ = reward_band(
        (along.vp.value, along.t.value, along.r.value),
        stationary_variance(force, momentum, learning_rate=learning_rate, noise_variance=1.0),
        group_size=group_size,
        prompts=prompts,
        gain=float(np.linalg.norm(gradient)),
    )
    runs, updates = 300, 1200
    # From the start on the fixed point: (1 - mu)/a is 1,100 updates, so the variance after t is (1
    # - exp(-2 a t/(1 - mu))) of its end.
    theta, velocity = np.full((runs, world), rest), np.zeros((runs, world))
    for _ in range(updates):
        which, reward, score = two_armed_prompts(rng, theta, prompts, group_size)
        step = (
            ((reward - reward.mean(2, keepdims=True)) * score).sum(2) / (group_size - 1) / prompts
        )
        p_now = 1 / (1 + np.exp(-theta))
        total = -beta * p_now * (1 - p_now) * (theta - rest + 1 / beta) / world
        np.add.at(total, (np.arange(runs)[:, None], which), step)
        velocity = momentum * velocity + learning_rate * total
        theta = theta + velocity
    seen = float((1 / (1 + np.exp(-theta))).mean(1).std())
    grown = math.sqrt(1 - math.exp(-2 * force * updates / (1 - momentum)))
    assert true * grown == pytest.approx(seen, rel=0.12)
    # The trace over all forty parameters would say six times as wide.
    whole = components(reward_first, label, score_ND=sparse)
    assert math.sqrt(whole.t.value / along.t.value) > 5


def test_an_interval_of_one_is_on_policy() -> None:
    for momentum in (0.0, 0.7):
        plain = stationary_variance(0.05, momentum, learning_rate=0.3, noise_variance=2.0)
        assert stationary_variance(
            0.05, momentum, learning_rate=0.3, noise_variance=2.0, lag="refresh"
        ) == pytest.approx(plain, rel=1e-10)


def test_the_leading_order_holds_for_small_forces_and_diverges_with_the_damping() -> None:
    for momentum, lag, interval in ((0.9, "none", 1), (0.5, "refresh", 4), (0.5, "async", 4)):
        force = 1e-4 * (1 - momentum)
        damping = oscillator(force, momentum, refresh_interval=interval, lag=lag).damping
        exact = stationary_variance(
            force,
            momentum,
            learning_rate=1.0,
            noise_variance=1.0,
            refresh_interval=interval,
            lag=lag,
        )
        assert temperature_over_stiffness(
            force, damping, learning_rate=1.0, noise_variance=1.0
        ) == pytest.approx(exact, rel=0.01)
    limit = float(threshold("refresh", 0.9, 8))
    near = [
        stationary_variance(
            share * limit,
            0.9,
            learning_rate=1.0,
            noise_variance=1.0,
            refresh_interval=8,
            lag="refresh",
        )
        for share in (0.5, 0.99)
    ]
    assert near[1] > 10 * near[0]
    assert (
        stationary_variance(
            limit, 0.9, learning_rate=1.0, noise_variance=1.0, refresh_interval=8, lag="refresh"
        )
        == math.inf
    )
    assert temperature_over_stiffness(0.1, 0.0, learning_rate=1.0, noise_variance=1.0) == math.inf


def test_ratio_of_four_to_sixteen_is_the_notes() -> None:
    for rho in (0.0, 0.5, 1.0, 3.0):
        assert variance_ratio(0.0, 1.0, rho, 4, 16) == pytest.approx(20 * (3 + rho) / (15 + rho))
    assert variance_ratio(1e9, 1.0, 1.0, 4, 16) == pytest.approx(1.0)


@pytest.mark.slow
def test_the_band_takes_projections_and_not_traces() -> None:
    """A mode among many parameters: simulated in 200 dimensions, the projected components
    predict it and the traces miss by far.
    """
    rng = np.random.default_rng(4)
    dimensions, prompts, group_size, runs, updates = 200, 4, 8, 300, 800
    direction = np.zeros(dimensions)
    direction[0] = 1.0
    deviation = np.linspace(0.5, 2.0, dimensions)
    stiffness, learning_rate = 1.0, 0.05
    position, total = np.zeros((runs, dimensions)), 0.0
    for now in range(updates):
        # A batch gradient whose components T/(B G) differ by direction; nothing between prompts, no
        # second order.
        noise = (
            rng.standard_normal((runs, dimensions)) * deviation / math.sqrt(prompts * group_size)
        )
        position += learning_rate * (-stiffness * position + noise)
        if now >= updates - 300:
            total += float((position @ direction).var()) / 300
    unit = stationary_variance(
        stiffness * learning_rate, 0.0, learning_rate=learning_rate, noise_variance=1.0
    )
    projected, _ = reward_band(
        (0.0, float(deviation[0] ** 2), 0.0), unit, group_size=group_size, prompts=prompts, gain=1.0
    )
    trace, _ = reward_band(
        (0.0, float((deviation**2).sum()), 0.0),
        unit,
        group_size=group_size,
        prompts=prompts,
        gain=1.0,
    )
    assert projected == pytest.approx(math.sqrt(total), rel=0.1)
    assert trace > 10 * math.sqrt(total)


def test_the_measured_mean_swings_more_than_the_true_one() -> None:
    """By hand: an error of one prompt of 1/8 + 1/56 = 1/7, over 4 prompts 1/28, times the unit
    variance 7 and the gain's square.
    """
    true, measured = reward_band(
        (0.0, 1.0, 1.0),
        7.0,
        group_size=8,
        prompts=4,
        gain=0.2,
        reward_variance=0.25,
        value_variance=0.1,
    )
    assert true**2 == pytest.approx(0.2**2 * 7 / 28, rel=1e-12)
    assert measured**2 - true**2 == pytest.approx(0.25 / 32 + 0.1 / 4)
    for size, prompts in ((1, 4), (8, 0)):
        with pytest.raises(InvalidArgumentError, match="expected at least"):
            reward_band((0.0, 1.0, 1.0), 7.0, group_size=size, prompts=prompts, gain=0.2)


def test_exponent_of_the_group_size() -> None:
    """Chi-squared variances of runs that follow 1/G: the interval covers 1 in 95 % of 400,
    within four standard errors.
    """
    rng = np.random.default_rng(3)
    size, rows = np.array([2, 4, 8, 16, 32]), np.full(5, 200)
    hits = sum(
        group_size_test(size, 1 / size * rng.chisquare(rows) / rows, rows).exponent.covers(1.0)
        for _ in range(400)
    )
    assert abs(hits / 400 - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 400)
    floor = group_size_test(size, 0.2 + 1 / size, rows)
    assert "slower than 1/G" in floor.status


def test_known_deviations_from_one_over_the_group_size_are_expected_ones() -> None:
    """Variances that follow the components exactly differ from 1/G and agree with what the
    components lead to.
    """
    size, rows, components = np.array([2, 4, 8, 16, 32]), np.full(5, 2000), (0.05, 1.0, 2.0)
    law = np.array([0.05 + 1 / g + 2 / (g * (g - 1)) for g in size])
    test = group_size_test(size, 0.3 * law, rows, components=components)
    assert not test.exponent.covers(1.0)
    assert test.expected_exponent == pytest.approx(test.exponent.value)
    assert "agrees." in test.status
    assert "differs" in group_size_test(size, 1 / size, rows, components=components).status
    two = group_size_test([4, 16], [1.0, 0.2], [100, 100], components=(0.0, 1.0, 1.0))
    assert 4**two.expected_exponent == pytest.approx(variance_ratio(0.0, 1.0, 1.0, 4, 16))
    assert math.isnan(group_size_test(size, 1 / size, rows).expected_exponent)
    with pytest.raises(InvalidArgumentError, match="positive at every group size"):
        group_size_test(size, law, rows, components=(-1.0, 1.0, 0.0))


def test_bad_input_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="positive force"):
        stationary_variance(0.0, 0.5, learning_rate=1.0, noise_variance=1.0)
    with pytest.raises(InvalidArgumentError, match="noise variance of at least 0"):
        stationary_variance(0.1, 0.5, learning_rate=1.0, noise_variance=-1.0)
    with pytest.raises(InvalidArgumentError, match="expected at least 2 rollouts"):
        variance_ratio(0.0, 1.0, 1.0, 1, 4)
    with pytest.raises(InsufficientDataError, match="two or more group sizes"):
        group_size_test([4, 4], [0.1, 0.1], [50, 50])
