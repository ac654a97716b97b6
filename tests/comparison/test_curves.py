"""Quantities of one run: exact cases, the same by other code, and coverage in simulation.

Sampling tests allow three standard errors of a proportion; the random numbers are fixed.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.polynomial.legendre import legval
from numpy.typing import NDArray
from scipy import stats
from tests.cases import each_case
from tests.golden.sentences import says

from groupwise.comparison.compare import (
    Curve,
    curve,
    held_rows,
    late_level,
    local_spread,
    passing,
    running_line,
    time_to,
)
from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.forecasting.fit import fit
from groupwise.forecasting.observations import noise_posterior
from groupwise.intervals import Interval, within

FloatArray = NDArray[np.float64]
ROWS = 80
STEP = np.arange(float(ROWS))
RISE = 0.8 - 0.6 * np.exp(-STEP / 20)


def noisy(
    rng: np.random.Generator, mean: FloatArray, *, correlation: float = 0.0, error: float = 0.1
) -> Curve:
    """A run of known mean: the smooth curve is the truth, the noise AR(1)."""
    noise = np.empty(len(mean))
    noise[0] = rng.normal(0, error)
    for t in range(1, len(mean)):
        noise[t] = correlation * noise[t - 1] + rng.normal(0, error * math.sqrt(1 - correlation**2))
    return Curve(np.arange(float(len(mean))), mean + noise, mean)


# The curve of a run


def test_a_run_moves_around_its_fitted_law() -> None:
    value = RISE + np.random.default_rng(1).normal(0, 0.02, ROWS)
    smoothed, law = curve(STEP, value), fit(STEP, value)
    assert law.status == "converged"
    np.testing.assert_array_equal(smoothed.smooth_T, law.curve_T)
    np.testing.assert_array_equal(smoothed.residual, value - law.curve_T)


def test_a_run_that_no_law_describes_moves_around_a_running_line() -> None:
    value = np.cumsum(np.random.default_rng(3).normal(0, 0.05, ROWS))
    assert fit(STEP, value).status == "non_stationary"
    np.testing.assert_array_equal(curve(STEP, value).smooth_T, running_line(STEP, value))


def test_what_cannot_be_fitted_is_refused() -> None:
    value = RISE + np.random.default_rng(4).normal(0, 0.02, ROWS)
    assert curve(STEP[:12], value[:12]).step_T.size == 12
    with pytest.raises(
        InsufficientDataError, match="at least 12 rows of the metric in each run; got 11"
    ):
        curve(STEP[:11], value[:11])
    for step, values in (
        (STEP, np.where(STEP == 5, np.nan, value)),
        (np.where(STEP == 5, 4.0, STEP), value),
    ):
        with pytest.raises(InvalidArgumentError, match="finite values at increasing steps"):
            curve(step, values)


def test_variances_and_windows_are_handed_to_the_fit() -> None:
    rng = np.random.default_rng(5)
    value, variance = RISE + rng.normal(0, 0.02, ROWS), rng.uniform(1e-4, 9e-4, ROWS)
    smoothed = curve(STEP, value, variance_T=variance, window=4.0)
    np.testing.assert_array_equal(
        smoothed.smooth_T, fit(STEP, value, variance_T=variance, window=4.0).curve_T
    )


@pytest.mark.parametrize("rows", [30, 99])
def test_a_running_line_is_least_squares_on_the_neighbouring_rows(rows: int) -> None:
    """A tenth of the rows on either side, at least four; uneven steps; against numpy.polyfit."""
    rng = np.random.default_rng(6)
    step, value, half = (
        np.cumsum(rng.uniform(0.5, 2, rows)),
        rng.normal(size=rows),
        max(4, rows // 10),
    )
    expected = []
    for t in range(rows):
        near = [s for s in range(rows) if abs(s - t) <= half]
        expected.append(np.polyval(np.polyfit(step[near], value[near], 1), step[t]))
    np.testing.assert_allclose(running_line(step, value), expected, atol=1e-9)


@pytest.mark.parametrize("rows", [30, 90])
def test_a_local_spread_is_the_root_mean_square_around_each_row(rows: int) -> None:
    """A sixth of the rows on either side, at least eight; never below a fifth of the whole."""
    residual = np.random.default_rng(7).normal(size=rows) * np.where(
        np.arange(rows) < rows // 2, 0.01, 1.0
    )
    half = max(8, rows // 6)
    local = [
        np.sqrt(np.mean([residual[s] ** 2 for s in range(rows) if abs(s - t) <= half]))
        for t in range(rows)
    ]
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
    assert few.interval.level == 0.8
    says("comparison/curves/1", few.problem)


def test_a_late_mean_without_noise_is_exact() -> None:
    measured = late_level(Curve(STEP, RISE, RISE), 60, 79, level=0.8)
    assert (
        measured.interval.low
        == measured.interval.high
        == measured.value
        == pytest.approx(RISE[60:].mean())
    )
    assert (measured.step_error, measured.interval.level) == (0.0, 0.8)


@each_case(
    ("first", "outside"), [(60, "polynomials"), (73.5, "polynomials"), (5, "one"), (0, "none")]
)
def test_the_step_noise_of_a_late_mean_is_that_of_whitened_residuals(
    first: float, outside: str
) -> None:
    """By other code: the columns written out, the error of the first of them under the noise of the
    residuals over their spread.

    In the window mean and slope; before it cubic polynomials in the root of time where there are
    more than eight rows, else a level.
    """
    run = noisy(np.random.default_rng(9), RISE, correlation=0.4)
    inside = run.step_T >= first
    spread = local_spread(run.residual)
    slope = np.where(
        inside, (run.step_T - run.step_T[inside].mean()) / np.ptp(run.step_T[inside]), 0.0
    )
    columns = [inside * 1.0, slope]
    if outside == "polynomials":
        columns += [
            np.where(inside, 0.0, legval(2 * np.sqrt(run.step_T / 79) - 1, np.eye(4)[k]))
            for k in range(4)
        ]
    elif outside == "one":
        columns += [1.0 - inside]
    noise = noise_posterior(
        run.step_T, np.ones(ROWS), np.column_stack(columns), run.residual / spread, gap=1.0
    )
    scale = float(noise.scale_EP[noise.best, 0]) * math.sqrt(np.mean(spread[inside] ** 2))
    measured = late_level(run, first, 79, level=0.9)
    assert measured.interval.high - measured.value == pytest.approx(
        scale * float(noise.widening(0.9)[0])
    )
    assert measured.value - measured.interval.low == pytest.approx(
        scale * float(noise.widening(0.9)[0])
    )
    assert measured.step_error == pytest.approx(
        scale * float(noise.widening(2 * stats.norm.cdf(1) - 1)[0])
    )


@pytest.mark.slow
@pytest.mark.parametrize("correlation", [0.0, 0.5])
def test_late_means_cover(correlation: float) -> None:
    rng, covered, n = np.random.default_rng(3), 0, 150
    for _ in range(n):
        measured = late_level(noisy(rng, RISE, correlation=correlation), 60, 79)
        covered += measured.interval.covers(float(RISE[60:].mean()))
    assert covered / n > 0.95 - 3 * math.sqrt(0.05 * 0.95 / n)


def test_an_interval_is_cut_to_the_range_of_its_quantity() -> None:
    """Ends move to the range, the value stays, and what is inside the range is covered or not as
    before.
    """
    assert within(Interval(0.9, 0.6, 1.2), (0.0, 1.0)) == Interval(0.9, 0.6, 1.0)
    assert within(Interval(0.1, -math.inf, math.inf, 0.9), (-1.0, 1.0)) == Interval(
        0.1, -1.0, 1.0, 0.9
    )
    assert within(Interval(0.5, 0.4, 0.6), (0.0, 1.0)) == Interval(0.5, 0.4, 0.6)
    assert within(Interval(5.0, 4.0, 6.0), (-math.inf, math.inf)) == Interval(5.0, 4.0, 6.0)


# The time to a level


def test_passing_is_where_isotonic_regression_crosses() -> None:
    """Against every possible split, by hand; a tenth of the rows, at least six, have to come
    after it and to be above on average.
    """
    rng = np.random.default_rng(6)
    seen = set()
    for _ in range(200):
        value = np.linspace(0, 1, 24) + rng.normal(0, 0.5, 24)
        scores = [(value[:k] - 0.6).sum() for k in range(25)]
        best = int(np.argmin(scores))
        held = best <= 18 and value[-6:].mean() >= 0.6
        crossings = passing(np.arange(24.0), value[None], 0.6)[0]
        assert crossings == (math.inf if not held else 0.0 if best == 0 else best - 0.5)
        seen.add((held, best > 18))
    assert seen == {(True, False), (False, False), (False, True)}
    uneven = np.array([1.0, 2.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0])
    values = np.array(
        [[0.0] * 2 + [1.0] * 6, [0.0] * 8, [1.0] * 8, [0.0] * 7 + [1.0], [1.0] * 2 + [0.0] * 6]
    )
    assert passing(uneven, values, 0.5).tolist() == [4.0, math.inf, 1.0, math.inf, math.inf]


@each_case(("rows", "last"), [(4, 4), (6, 6), (60, 6), (61, 7), (200, 20)])
def test_a_level_is_held_over_a_tenth_of_the_rows(rows: int, last: int) -> None:
    assert held_rows(rows) == last


def test_one_last_row_above_a_level_does_not_hold_it() -> None:
    """200 rows at .3 and the last one at 1; 20 last rows above hold it, 19 do not, and a level
    held and lost is not held.
    """
    step, low = np.arange(200.0), np.full(200, 0.3)
    for above, time in ((1, math.inf), (19, math.inf), (20, 179.5)):
        value = np.where(step >= 200 - above, 1.0, low)
        assert time_to(Curve(step, value, value), 0.4, np.random.default_rng(1)).value == time
    lost = np.where((step >= 40) & (step < 170), 0.9, low)
    assert math.isinf(time_to(Curve(step, lost, lost), 0.4, np.random.default_rng(1)).value)


def test_a_time_without_noise_is_exact() -> None:
    run = Curve(STEP, STEP / 2, STEP / 2)
    measured = time_to(run, 9.75, np.random.default_rng(1), level=0.8)
    assert (measured.value, measured.interval.low, measured.interval.high, measured.step_error) == (
        19.5,
        19.5,
        19.5,
        0.0,
    )
    assert measured.interval.level == 0.8
    assert math.isinf(time_to(run, 9.75, np.random.default_rng(1), last=24).value)
    assert time_to(run, 9.75, np.random.default_rng(1), last=25).value == 19.5


@pytest.mark.parametrize("correlation", [0.0, 0.6])
def test_the_step_noise_of_a_time_is_that_of_curves_simulated_around_it(correlation: float) -> None:
    """The same draws, the recursion of AR(1) written out, and the order statistics nearest to
    the tails.
    """
    run = noisy(np.random.default_rng(10), RISE, correlation=correlation, error=0.05)
    noise = noise_posterior(STEP, np.ones(ROWS), np.ones((ROWS, 1)), run.residual, gap=1.0)
    shape, rng = noise.best_shape, np.random.default_rng(2)
    assert (shape.share > 0) == (correlation > 0)
    simulated = rng.standard_normal((200, ROWS)) * math.sqrt(1 - shape.share)
    if shape.share:
        shocks = rng.standard_normal((200, ROWS))
        state = rng.standard_normal(200)
        for t in range(ROWS):
            state = (
                state
                if t == 0
                else shape.correlation * state + math.sqrt(1 - shape.correlation**2) * shocks[:, t]
            )
            simulated[:, t] += math.sqrt(shape.share) * state
    steps = np.sort(
        passing(
            STEP, run.smooth_T + math.sqrt(float(noise.variance_E[noise.best])) * simulated, 0.5
        )
    )
    measured = time_to(run, 0.5, np.random.default_rng(2), level=0.9)
    passed = float(passing(STEP, run.value_T[None], 0.5)[0])
    low, high = (
        float(np.quantile(steps, tail, method="closest_observation")) for tail in (0.05, 0.95)
    )
    assert (measured.value, measured.interval.low, measured.interval.high) == (
        passed,
        min(low, passed),
        max(high, passed),
    )
    assert measured.step_error == pytest.approx(float(np.std(steps, ddof=1)))


def test_a_level_that_is_never_passed_has_the_error_of_one_row() -> None:
    run = noisy(np.random.default_rng(11), np.zeros(ROWS))
    far = time_to(Curve(2 * run.step_T, run.value_T, run.smooth_T), 5.0, np.random.default_rng(1))
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


def test_a_pause_of_the_log_leaves_the_noise_of_the_rows_behind_it_as_it_was() -> None:
    """The memory of the noise is that of rows a usual gap apart, and one pause makes none usual."""
    run = noisy(np.random.default_rng(9), RISE, correlation=0.6)
    paused = replace(run, step_T=STEP + 1000 * (STEP >= 5))
    whole, behind = late_level(run, 5, 79), late_level(paused, 1005, 1079)
    assert behind.value == whole.value
    assert behind.step_error == pytest.approx(whole.step_error, rel=0.05)
