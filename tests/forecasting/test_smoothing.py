"""Whether a series was smoothed before it was logged: hits, false alarms, and what short series
leave open.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.cases import each_case

from groupwise.forecasting.observations import SHORT, may_be_smoothed, smoothing_window


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
    found = sum(
        smoothing_window(averaged(curve + rng.normal(0, 0.1, n + k - 1), k)) == k
        for _ in range(100)
    )
    assert found >= least


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
            for i in range(1, n):
                noise[i] = correlation * noise[i - 1] + 0.6 * noise[i]
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


def test_a_short_smoothed_series_is_found_or_doubted() -> None:
    """60 rows smoothed over 10: seen or doubted at least 90 % of the time; fewer than 80 of 100
    have probability below 1e-3.
    """
    rng, curve = np.random.default_rng(1), rise(np.arange(69.0), 15)
    smooth = (averaged(curve + rng.normal(0, 0.1, 69), 10) for _ in range(100))
    assert sum(smoothing_window(value) == 10 or may_be_smoothed(value) for value in smooth) >= 80


@pytest.mark.slow
def test_white_noise_is_not_doubted() -> None:
    """At most 2 % of white series are doubted: more than 8 of 100 have probability below 1e-3."""
    rng, curve = np.random.default_rng(2), rise(np.arange(60.0), 15)
    assert sum(may_be_smoothed(curve + rng.normal(0, 0.1, 60)) for _ in range(100)) <= 8


def test_long_and_constant_series_are_not_doubted() -> None:
    assert not may_be_smoothed(averaged(np.random.default_rng(3).normal(size=SHORT + 9), 10))
    assert not may_be_smoothed(np.ones(60))
    assert not may_be_smoothed(np.arange(5.0))


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_a_clean_curve_has_no_noise_that_could_have_been_smoothed(offset: float) -> None:
    """What rounding leaves of it would look like anything."""
    for n in (50, 100):
        for value in (
            np.arange(float(n)) / 100,
            np.arange(float(n)) ** 2,
            3.0 - np.arange(float(n)) ** 3 / 7,
        ):
            assert not may_be_smoothed(offset + value)
            assert smoothing_window(offset + value) == 1
