"""Quantities of one run: exact cases, the same by other code, and coverage in simulation.

Sampling tests allow three standard errors of a proportion; the random numbers are fixed.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.polynomial.legendre import legval
from numpy.typing import NDArray
from scipy import stats

from groupwise.comparison.curves import Curve, curve, late_level, local_spread, passing, running_line, time_to
from groupwise.comparison.results import missing
from groupwise.curves.fit import fit
from groupwise.curves.noise import noise_posterior
from groupwise.curves.results import Outcome
from groupwise.errors import InsufficientDataError, InvalidArgumentError

FloatArray = NDArray[np.float64]
ROWS = 80
STEP = np.arange(float(ROWS))
RISE = 0.8 - 0.6 * np.exp(-STEP / 20)


def noisy(rng: np.random.Generator, mean: FloatArray, *, correlation: float = 0.0, error: float = 0.1) -> Curve:
    """A run of known mean: the smooth curve is the truth, the noise AR(1)."""
    noise = np.empty(len(mean))
    noise[0] = rng.normal(0, error)
    for t in range(1, len(mean)):
        noise[t] = correlation * noise[t - 1] + rng.normal(0, error * math.sqrt(1 - correlation**2))
    return Curve(np.arange(float(len(mean))), mean + noise, mean, missing(""))


# The curve of a run


def test_the_plateau_of_a_run_is_that_of_its_fit() -> None:
    value = RISE + np.random.default_rng(1).normal(0, 0.02, ROWS)
    found, law = curve(STEP, value, level=0.9), fit(STEP, value, level=0.9)
    assert law.status == "converged"
    assert found.plateau.interval == law.parameters["plateau"]
    assert found.plateau.step_error == pytest.approx(law.parameters["plateau"].width / 2 / stats.norm.ppf(0.95))
    np.testing.assert_array_equal(found.smooth_T, law.curve_T)
    np.testing.assert_array_equal(found.residual, value - law.curve_T)


def test_a_run_that_no_law_describes_has_a_running_line_and_no_plateau() -> None:
    value = np.where(STEP < 40, 0.9, 0.1) + np.random.default_rng(2).normal(0, 0.02, ROWS)
    found = curve(STEP, value, level=0.8)
    assert fit(STEP, value).status == "non_stationary"
    assert (found.plateau.problem, found.plateau.interval.level) == ("no law holds to the end of the run", 0.8)
    np.testing.assert_array_equal(found.smooth_T, running_line(STEP, value))


def test_a_log_that_may_have_been_smoothed_does_not_limit_its_plateau() -> None:
    raw = 0.8 - 0.6 * np.exp(-np.arange(69.0) / 15) + np.random.default_rng(0).normal(0, 0.1, 69)
    step, value = np.arange(60.0), np.convolve(raw, np.ones(10) / 10, "valid")
    found, law = curve(step, value, level=0.8), fit(step, value, level=0.8)
    assert law.outcome is Outcome.MAYBE_SMOOTHED
    assert (found.plateau.problem, found.plateau.interval.level) == ("the log does not limit the plateau", 0.8)
    np.testing.assert_array_equal(found.smooth_T, law.curve_T)


def test_what_cannot_be_fitted_is_refused() -> None:
    value = RISE + np.random.default_rng(4).normal(0, 0.02, ROWS)
    assert curve(STEP[:12], value[:12]).step_T.size == 12
    with pytest.raises(InsufficientDataError, match="at least 12 rows of the metric in each run; got 11"):
        curve(STEP[:11], value[:11])
    for step, values in ((STEP, np.where(STEP == 5, np.nan, value)), (np.where(STEP == 5, 4.0, STEP), value)):
        with pytest.raises(InvalidArgumentError, match="finite values at steps that increase"):
            curve(step, values)


def test_variances_and_windows_are_handed_to_the_fit() -> None:
    rng = np.random.default_rng(5)
    value, variance = RISE + rng.normal(0, 0.02, ROWS), rng.uniform(1e-4, 9e-4, ROWS)
    found = curve(STEP, value, variance_T=variance, window=4.0)
    np.testing.assert_array_equal(found.smooth_T, fit(STEP, value, variance_T=variance, window=4.0).curve_T)


@pytest.mark.parametrize("rows", [30, 99])
def test_a_running_line_is_least_squares_on_the_neighbouring_rows(rows: int) -> None:
    """A tenth of the rows on either side, at least four; uneven steps; against numpy.polyfit."""
    rng = np.random.default_rng(6)
    step, value, half = np.cumsum(rng.uniform(0.5, 2, rows)), rng.normal(size=rows), max(4, rows // 10)
    expected = []
    for t in range(rows):
        near = [s for s in range(rows) if abs(s - t) <= half]
        expected.append(np.polyval(np.polyfit(step[near], value[near], 1), step[t]))
    np.testing.assert_allclose(running_line(step, value), expected, atol=1e-9)


@pytest.mark.parametrize("rows", [30, 90])
def test_a_local_spread_is_the_root_mean_square_around_each_row(rows: int) -> None:
    """A sixth of the rows on either side, at least eight; never below a fifth of the whole."""
    residual = np.random.default_rng(7).normal(size=rows) * np.where(np.arange(rows) < rows // 2, 0.01, 1.0)
    half = max(8, rows // 6)
    local = [np.sqrt(np.mean([residual[s] ** 2 for s in range(rows) if abs(s - t) <= half])) for t in range(rows)]
    floor = 0.2 * np.sqrt(np.mean(residual**2))
    assert min(local) < floor
    np.testing.assert_allclose(local_spread(residual), np.maximum(local, floor))


# The late mean


def test_a_late_mean_is_the_mean_of_its_rows() -> None:
    run = noisy(np.random.default_rng(8), np.zeros(ROWS))
    assert late_level(run, 60, 79).value == pytest.approx(run.value_T[60:].mean(), abs=1e-15)
    assert late_level(run, 60, 70).value == pytest.approx(run.value_T[60:71].mean(), abs=1e-15)
    assert late_level(run, 74, 79).usable
    few = late_level(run, 75, 79, level=0.8)
    assert (few.problem, few.interval.level) == ("fewer than 6 rows lie in the late window", 0.8)


def test_a_late_mean_without_noise_is_exact() -> None:
    found = late_level(Curve(STEP, RISE, RISE, missing("")), 60, 79, level=0.8)
    assert found.interval.low == found.interval.high == found.value == pytest.approx(RISE[60:].mean())
    assert (found.step_error, found.interval.level) == (0.0, 0.8)


@pytest.mark.parametrize(("first", "outside"), [(60, "polynomials"), (73.5, "polynomials"), (5, "one"), (0, "none")])
def test_the_step_noise_of_a_late_mean_is_that_of_whitened_residuals(first: float, outside: str) -> None:
    """By other code: the columns written out, the error of the first of them under the noise of the residuals over their spread.

    In the window mean and slope; before it cubic polynomials in the root of time where there are more than eight rows, else a level.
    """
    run = noisy(np.random.default_rng(9), RISE, correlation=0.4)
    inside = run.step_T >= first
    spread = local_spread(run.residual)
    slope = np.where(inside, (run.step_T - run.step_T[inside].mean()) / np.ptp(run.step_T[inside]), 0.0)
    columns = [inside * 1.0, slope]
    if outside == "polynomials":
        columns += [np.where(inside, 0.0, legval(2 * np.sqrt(run.step_T / 79) - 1, np.eye(4)[k])) for k in range(4)]
    elif outside == "one":
        columns += [1.0 - inside]
    noise = noise_posterior(run.step_T, np.ones(ROWS), np.column_stack(columns), run.residual / spread, gap=1.0)
    scale = float(noise.scale_EP[noise.best, 0]) * math.sqrt(np.mean(spread[inside] ** 2))
    found = late_level(run, first, 79, level=0.9)
    assert found.interval.high - found.value == pytest.approx(scale * float(noise.widening(0.9)[0]))
    assert found.value - found.interval.low == pytest.approx(scale * float(noise.widening(0.9)[0]))
    assert found.step_error == pytest.approx(scale * float(noise.widening(2 * stats.norm.cdf(1) - 1)[0]))


@pytest.mark.parametrize("correlation", [0.0, 0.5])
def test_late_means_cover(correlation: float) -> None:
    rng, covered, n = np.random.default_rng(3), 0, 150
    for _ in range(n):
        found = late_level(noisy(rng, RISE, correlation=correlation), 60, 79)
        covered += found.interval.covers(float(RISE[60:].mean()))
    assert covered / n > 0.95 - 3 * math.sqrt(0.05 * 0.95 / n)


# The time to a level


def test_passing_is_where_isotonic_regression_crosses() -> None:
    """Against every possible split, by hand."""
    rng = np.random.default_rng(6)
    for _ in range(50):
        value = np.linspace(0, 1, 12) + rng.normal(0, 0.3, 12)
        scores = [(value[:k] - 0.5).sum() for k in range(13)]
        best = int(np.argmin(scores))
        found = passing(np.arange(12.0), value[None], 0.5)[0]
        assert found == (0.0 if best == 0 else math.inf if best == 12 else best - 0.5)
    uneven = passing(np.array([1.0, 2.0, 6.0, 7.0]), np.array([[0.0, 0.0, 1.0, 1.0], [0.0] * 4, [1.0] * 4]), 0.5)
    assert uneven.tolist() == [4.0, math.inf, 1.0]


def test_a_time_without_noise_is_exact() -> None:
    run = Curve(STEP, STEP / 2, STEP / 2, missing(""))
    found = time_to(run, 9.75, np.random.default_rng(1), level=0.8)
    assert (found.value, found.interval.low, found.interval.high, found.step_error) == (19.5, 19.5, 19.5, 0.0)
    assert found.interval.level == 0.8
    assert math.isinf(time_to(run, 9.75, np.random.default_rng(1), last=19).value)
    assert time_to(run, 9.75, np.random.default_rng(1), last=20).value == 19.5


@pytest.mark.parametrize("correlation", [0.0, 0.6])
def test_the_step_noise_of_a_time_is_that_of_curves_simulated_around_it(correlation: float) -> None:
    """The same draws, the recursion of AR(1) written out, and the order statistics nearest to the tails."""
    run = noisy(np.random.default_rng(10), RISE, correlation=correlation, error=0.05)
    noise = noise_posterior(STEP, np.ones(ROWS), np.ones((ROWS, 1)), run.residual, gap=1.0)
    shape, rng = noise.best_shape, np.random.default_rng(2)
    assert (shape.share > 0) == (correlation > 0)
    simulated = rng.standard_normal((200, ROWS)) * math.sqrt(1 - shape.share)
    if shape.share:
        shocks = rng.standard_normal((200, ROWS))
        state = rng.standard_normal(200)
        for t in range(ROWS):
            state = state if t == 0 else shape.correlation * state + math.sqrt(1 - shape.correlation**2) * shocks[:, t]
            simulated[:, t] += math.sqrt(shape.share) * state
    steps = np.sort(passing(STEP, run.smooth_T + math.sqrt(float(noise.variance_E[noise.best])) * simulated, 0.5))
    found = time_to(run, 0.5, np.random.default_rng(2), level=0.9)
    passed = float(passing(STEP, run.value_T[None], 0.5)[0])
    low, high = (float(np.quantile(steps, tail, method="closest_observation")) for tail in (0.05, 0.95))
    assert (found.value, found.interval.low, found.interval.high) == (passed, min(low, passed), max(high, passed))
    assert found.step_error == pytest.approx(float(np.std(steps, ddof=1)))


def test_a_level_that_is_never_passed_has_the_error_of_one_row() -> None:
    run = noisy(np.random.default_rng(11), np.zeros(ROWS))
    far = time_to(Curve(2 * run.step_T, run.value_T, run.smooth_T, run.plateau), 5.0, np.random.default_rng(1))
    assert (far.value, far.interval.low, far.step_error) == (math.inf, math.inf, 2.0)


def test_times_cover_and_are_never_where_a_run_collapses() -> None:
    rng, covered, n = np.random.default_rng(7), 0, 120
    reach = 0.8 - 0.6 * math.exp(-15 / 20)
    for _ in range(n):
        interval = time_to(noisy(rng, RISE, correlation=0.3), reach, rng).interval
        covered += interval.low - 0.5 <= 15 <= interval.high + 0.5
    assert covered / n > 0.95 - 3 * math.sqrt(0.05 * 0.95 / n)
    collapsed = np.where(STEP < 30, RISE, 0.0)
    assert math.isinf(time_to(noisy(rng, collapsed), reach, rng).value)
