"""Whether a series was smoothed before it was logged: hits, false alarms, and what short series
leave open.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.signal import lfilter
from tests.cases import each_case

from groupwise.forecasting.fit import fit
from groupwise.forecasting.forecast import forecast
from groupwise.forecasting.observations import smoothing_window
from groupwise.forecasting.results import FitOutcome


def rise(time: np.ndarray, constant: float) -> np.ndarray:
    """A clean exponential rise from .2 to .8."""
    return np.asarray(0.8 - 0.6 * np.exp(-time / constant))


def averaged(value: np.ndarray, k: int) -> np.ndarray:
    """Plain moving average, full windows only."""
    return np.convolve(value, np.ones(k) / k, "valid")


# 100 replicates each: the bound is the count that a detector of the stated rate misses with
# probability below 1e-3.
@each_case(
    ("n", "k", "least"),
    [(200, 5, 89), (200, 10, 83), (200, 20, 65), (500, 5, 95), (500, 10, 95), (500, 20, 95)],
)
def test_moving_averages_of_white_noise_are_recognised(n: int, k: int, least: int) -> None:
    """True positive rate at least .97, .93, .80 (n = 200) and .99 (n = 500): P(fewer than
    `least` of 100) < 1e-3.
    """
    rng, curve = np.random.default_rng(n + k), rise(np.arange(float(n + k - 1)), n / 4)
    count = sum(
        smoothing_window(averaged(curve + rng.normal(0, 0.1, n + k - 1), k)) == k
        for _ in range(100)
    )
    assert count >= least


@each_case(("k", "least"), [(5, 80), (10, 76), (20, 37)])
def test_a_moving_average_of_a_swing_is_recognised(k: int, least: int) -> None:
    """Heavy ball with a period of 43 updates: true positive rate at least .9, .87, .5."""
    level, velocity, swing = 0.2, 0.0, []
    for _ in range(199 + k):
        swing.append(level)
        velocity = 0.9 * velocity + 0.02 * (0.8 - level)
        level += velocity
    rng = np.random.default_rng(k)
    noisy = (np.array(swing) + rng.normal(0, 0.02, 199 + k) for _ in range(100))
    assert sum(smoothing_window(averaged(value, k)) == k for value in noisy) >= least


@each_case("n", [200, 500])
@each_case("correlation", [0.0, 0.8])
def test_a_series_that_was_not_smoothed_is_left_alone(n: int, correlation: float) -> None:
    """False alarm rate at most 1 %: more than 9 of 300 have probability below 1e-3 then
    (binomial).
    """
    rng, curve = np.random.default_rng(n), rise(np.arange(float(n)), n / 4)
    alarms = 0
    for _ in range(300):
        noise = rng.normal(size=n)
        if correlation:
            noise[0] /= 0.6
            noise = lfilter([0.6], [1, -correlation], noise)
        alarms += smoothing_window(curve + 0.1 * noise) != 1
    assert alarms <= 9


@each_case(
    "value",
    [np.zeros(50), np.arange(50.0), np.arange(5.0), np.eye(1, 60, 30)[0]],
)
def test_degenerate_series_have_no_window(value: np.ndarray) -> None:
    assert smoothing_window(value) == 1


@each_case("rows", [5, 10, 30, 70])
def test_a_level_that_is_left_once_and_comes_back_is_no_average(rows: int) -> None:
    """An outage of some rows: the two jumps alone correlate as the ends of a window of as many
    rows do.
    """
    step, rng = np.arange(200), np.random.default_rng(rows)
    level = np.where((step > 60) & (step <= 60 + rows), 0.5, 0.95)
    assert [smoothing_window(level + rng.normal(0, 0.02, 200)) for _ in range(20)] == [1] * 20


@each_case(("smoothing", "doubted"), [(None, 4), (1, 0)])
def test_noise_as_slow_as_a_long_log_may_be_an_average(smoothing: int | None, doubted: int) -> None:
    """An exponential average over 50 of 200 rows leaves no mark; that the log is raw is believed."""
    curve, rng = rise(np.arange(200.0), 30), np.random.default_rng(1)
    slow = lfilter([0.02], [1, -0.98], rng.normal(0, 0.2, (5, 600)))[:, 400:]
    fits = [fit(np.arange(200), curve + noise, smoothing=smoothing) for noise in slow]
    outcomes = [result.outcome for result in fits]
    assert outcomes.count(FitOutcome.MAYBE_SMOOTHED) == doubted


@pytest.mark.slow
def test_a_short_smoothed_series_is_found_or_doubted_and_white_noise_is_not() -> None:
    """60 rows smoothed over 10, and 60 raw ones; that the log is raw is believed."""
    rng, time = np.random.default_rng(1), np.arange(60.0)
    doubted = {10: 0, 1: 0}
    for k in doubted:
        for _ in range(10):
            raw = rise(np.arange(59.0 + k), 15) + rng.normal(0, 0.1, 59 + k)
            result = fit(time, averaged(raw, k))
            doubted[k] += result.noise.smoothing > 1 or result.outcome is FitOutcome.MAYBE_SMOOTHED
    assert doubted[10] >= 8
    assert doubted[1] == 0
    believed = fit(time, averaged(raw, 1), smoothing=1)
    assert believed.outcome is not FitOutcome.MAYBE_SMOOTHED


@each_case("k", [1, 10])
def test_a_forecast_of_a_doubtful_series_holds_raw_or_smoothed(k: int) -> None:
    """60 rows of AR(.8), or of white noise smoothed over 10, to be continued by 60 more. All of at
    least seven hold: with probability below .008 where a band held half of them.
    """
    time, held, doubted = np.arange(60.0), 0, 0
    for seed in range(11):
        noise = np.random.default_rng(seed).normal(size=59 + k)
        if k == 1:
            noise = lfilter([0.6], [1, -0.8], noise)
        seen = averaged(rise(np.arange(59.0 + k), 15) + 0.1 * noise, k)
        result = fit(time, seen)
        if result.outcome is not FitOutcome.MAYBE_SMOOTHED:
            continue
        assert "a forecast is valid in both cases" in result.message
        ahead, later = forecast(time, seen, [74.0, 119.0]), rise(np.arange(119.0 + k), 15)
        curve = averaged(later, k)[[74, 119]]
        doubted += 1
        held += bool(((ahead.mean_low_S <= curve) & (curve <= ahead.mean_high_S)).all())
    assert doubted >= 7
    assert held == doubted
