"""Quantities of one run, and where two runs part: exact cases, rates in simulation, negative controls.

Sampling tests allow three standard errors of a proportion; the random numbers are fixed.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from groupwise.comparison.compare import Question, compare
from groupwise.comparison.curves import Curve, curve, late_level, passing, running_line, time_to
from groupwise.comparison.divergence import group_divergence, innovations, log_evidence, run_divergence
from groupwise.comparison.results import missing
from groupwise.curves.noise import NoiseShape
from groupwise.errors import InsufficientDataError, InvalidArgumentError

FloatArray = NDArray[np.float64]
ROWS = 80
STEP = np.arange(float(ROWS))


def noisy(rng: np.random.Generator, mean: FloatArray, *, correlation: float = 0.0, error: float = 0.1) -> Curve:
    """A run of known mean: the smooth curve is the truth, the noise AR(1)."""
    noise = np.empty(len(mean))
    noise[0] = rng.normal(0, error)
    for t in range(1, len(mean)):
        noise[t] = correlation * noise[t - 1] + rng.normal(0, error * math.sqrt(1 - correlation**2))
    return Curve(np.arange(float(len(mean))), mean + noise, mean, missing(""))


@pytest.mark.parametrize("correlation", [0.0, 0.5])
def test_late_means_cover(correlation: float) -> None:
    rng, covered, n = np.random.default_rng(3), 0, 150
    mean = 0.8 - 0.6 * np.exp(-STEP / 20)
    for _ in range(n):
        found = late_level(noisy(rng, mean, correlation=correlation), 60, 79)
        covered += found.interval.covers(float(mean[60:].mean()))
    assert covered / n > 0.95 - 3 * math.sqrt(0.05 * 0.95 / n)


def test_a_late_mean_is_the_mean_of_its_rows() -> None:
    run = noisy(np.random.default_rng(4), np.zeros(ROWS))
    assert late_level(run, 60, 79).value == pytest.approx(run.value_T[60:].mean(), abs=1e-15)
    assert "fewer than" in late_level(run, 78, 79).problem


def test_correlated_noise_widens_a_late_mean() -> None:
    rng = np.random.default_rng(5)
    white, red = (
        np.mean([late_level(noisy(rng, np.zeros(ROWS), correlation=c), 40, 79).step_error for _ in range(30)]) for c in (0.0, 0.8)
    )
    assert red > 1.7 * white


def test_passing_is_where_isotonic_regression_crosses() -> None:
    """Against every possible split, by hand."""
    rng = np.random.default_rng(6)
    for _ in range(50):
        value = np.linspace(0, 1, 12) + rng.normal(0, 0.3, 12)
        scores = [(value[:k] - 0.5).sum() for k in range(13)]
        best = int(np.argmin(scores))
        found = passing(np.arange(12.0), value[None], 0.5)[0]
        assert found == (0.0 if best == 0 else math.inf if best == 12 else best - 0.5)


def test_times_cover_and_are_never_where_a_run_collapses() -> None:
    rng, covered, n = np.random.default_rng(7), 0, 120
    mean = 0.8 - 0.6 * np.exp(-STEP / 20)
    reach = 0.8 - 0.6 * math.exp(-15 / 20)
    for _ in range(n):
        interval = time_to(noisy(rng, mean, correlation=0.3), reach, rng).interval
        covered += interval.low - 0.5 <= 15 <= interval.high + 0.5
    assert covered / n > 0.95 - 3 * math.sqrt(0.05 * 0.95 / n)
    collapsed = np.where(STEP < 30, mean, 0.0)
    assert math.isinf(time_to(noisy(rng, collapsed), reach, rng).value)


def test_innovations_are_white() -> None:
    """Against the inverse Cholesky factor of the covariance."""
    shape = NoiseShape(0.7, 0.6)
    distance = np.abs(np.subtract.outer(np.arange(12), np.arange(12)))
    covariance = 0.6 * 0.7**distance + 0.4 * np.eye(12)
    value = np.random.default_rng(8).normal(size=12)
    assert innovations(value, shape) == pytest.approx(np.linalg.solve(np.linalg.cholesky(covariance), value), abs=1e-12)


def test_evidence_is_a_fair_bet() -> None:
    """Standard normal scores raise an alarm at 20 in at most 5 % of runs, looked at after every row."""
    rng, n = np.random.default_rng(9), 400
    alarms = sum(float(log_evidence(rng.normal(size=60)).max()) >= math.log(20) for _ in range(n))
    assert alarms / n < 0.05 + 3 * math.sqrt(0.05 * 0.95 / n)


@pytest.mark.parametrize("correlation", [0.0, 0.5])
def test_runs_of_one_mean_rarely_diverge_and_others_do(correlation: float) -> None:
    rng, n, alarms, onsets = np.random.default_rng(10), 80, 0, []
    mean = 0.8 - 0.6 * np.exp(-STEP / 20)
    bent = mean + np.where(STEP >= 40, 0.3, 0.0)
    for _ in range(n):
        first = noisy(rng, mean, correlation=correlation)
        alarms += run_divergence(first, noisy(rng, mean, correlation=correlation)).status == "diverged"
        parted = run_divergence(first, noisy(rng, bent, correlation=correlation))
        if parted.status == "diverged":
            onsets.append(parted.step)
    assert alarms / n < 0.05 + 3 * math.sqrt(0.05 * 0.95 / n)
    if correlation == 0:
        assert len(onsets) > 0.9 * n
        assert abs(float(np.median(onsets)) - 40) <= 2


def test_runs_logged_at_other_steps_are_binned() -> None:
    rng = np.random.default_rng(11)
    dense = noisy(rng, np.where(np.arange(200) >= 100, 0.5, 0.0))
    sparse = Curve(np.arange(0.5, 200, 5), rng.normal(0, 0.05, 40), np.zeros(40), missing(""))
    found = run_divergence(sparse, dense)
    assert found.status == "diverged"
    assert 90 <= found.step <= 110
    assert run_divergence(sparse, Curve(np.arange(300.0, 400.0), np.zeros(100), np.zeros(100), missing(""))).status == "unavailable"


def test_groups_part_where_they_do_and_seeds_alone_do_not() -> None:
    rng, alarms, n = np.random.default_rng(12), 0, 200
    for _ in range(n):
        runs = [noisy(rng, np.full(ROWS, rng.normal(0, 0.1))) for _ in range(6)]
        alarms += group_divergence(runs[:3], runs[3:]).status == "diverged"
    assert alarms / n < 0.05 + 3 * math.sqrt(0.05 * 0.95 / n)
    low = [noisy(rng, np.full(ROWS, rng.normal(0, 0.02))) for _ in range(4)]
    high = [noisy(rng, np.where(STEP < 40, 0.0, 1.0) + rng.normal(0, 0.02)) for _ in range(4)]
    assert 39 <= group_divergence(low, high).step <= 48


def test_a_running_line_follows_a_line_to_its_ends() -> None:
    line = 3 + 0.5 * STEP
    assert running_line(STEP, line) == pytest.approx(line, abs=1e-12)


def learned(rng: np.random.Generator, seed: float, end: float = 0.8, pace: float = 15.0) -> Curve:
    return curve(STEP, end + seed - 0.6 * np.exp(-STEP / pace) + rng.normal(0, 0.05, ROWS))


def test_a_comparison_finds_level_speed_and_plateau_where_they_differ() -> None:
    rng = np.random.default_rng(13)
    seeds = rng.normal(0, 0.01, (2, 4))
    same = compare([[learned(rng, s) for s in row] for row in seeds], ["A", "B"], Question(rises=True), rng).pairings[0]
    assert {c.status for c in same.contrasts} == {"not_separable"}
    assert same.divergence.status == "none"
    slow = [[learned(rng, s, pace=pace) for s in row] for row, pace in zip(seeds, (8.0, 20.0), strict=True)]
    slower = compare(slow, ["A", "B"], Question(rises=True), rng).pairings[0].contrasts[1]
    assert slower.status == "different"
    assert slower.difference.value > 2
    high = [[learned(rng, s, end=end) for s in row] for row, end in zip(seeds, (0.7, 0.8), strict=True)]
    higher = compare(high, ["A", "B"], Question(rises=True), rng).pairings[0]
    assert higher.contrasts[0].status == "different"
    assert "late mean" in higher.message
    assert higher.contrasts[0].difference.covers(0.1)
    assert higher.contrasts[2].difference.covers(0.1)


def test_a_flat_or_falling_reward_has_no_time_to_a_level() -> None:
    rng = np.random.default_rng(14)
    flat = [[curve(STEP, 0.5 + rng.normal(0, 0.05, ROWS))] for _ in range(2)]
    found = compare(flat, ["A", "B"], Question(rises=True), rng)
    assert found.pairings[0].contrasts[1].status == "unavailable"
    fall = [[curve(STEP, 0.9 - 0.5 * STEP / ROWS + rng.normal(0, 0.02, ROWS))] for _ in range(2)]
    assert math.isnan(compare(fall, ["A", "B"], Question(rises=True), rng).reach)
    assert 0.4 < compare(fall, ["A", "B"], Question(), rng).reach < 0.8


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(InsufficientDataError, match="at least 12 rows"):
        curve(np.arange(5.0), np.zeros(5))
    with pytest.raises(InvalidArgumentError, match="finite values"):
        curve(STEP, np.full(ROWS, math.nan))
    run = noisy(np.random.default_rng(15), np.zeros(ROWS))
    later = Curve(STEP + 1000, run.value_T, run.smooth_T, run.plateau)
    with pytest.raises(InvalidArgumentError, match="share no steps"):
        compare([[run], [later]], ["A", "B"], Question(), np.random.default_rng(0))
    with pytest.raises(InvalidArgumentError, match="two groups"):
        compare([[run]], ["A"], Question(), np.random.default_rng(0))
    with pytest.raises(InvalidArgumentError, match="late"):
        Question(late=0.0)


def test_a_run_does_not_diverge_from_itself() -> None:
    step = np.arange(40.0)
    run = Curve(step, np.random.default_rng(3).normal(0, 0.1, 40), np.zeros(40), missing(""))
    found = run_divergence(run, run)
    assert (found.status, "same values" in found.message) == ("none", True)
