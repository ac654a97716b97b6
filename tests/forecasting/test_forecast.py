"""Where a curve goes: bands that hold, quantities that are right on clean curves, and refusals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tests.cases import each_case

from groupwise.errors import GroupwiseError, InsufficientDataError, InvalidArgumentError
from groupwise.forecasting.forecast import forecast

N = 200
TIME = np.arange(float(N))


def rise(time: np.ndarray, constant: float = 40.0) -> np.ndarray:
    """From .2 to .8."""
    return np.asarray(0.8 - 0.6 * np.exp(-time / constant))


def run(seed: int, deviation: float = 0.02, n: int = N, constant: float = 40.0) -> np.ndarray:
    """A noisy rise."""
    time = np.arange(float(n))
    return rise(time, constant) + np.random.default_rng(seed).normal(0, deviation, n)


@pytest.mark.slow
def test_the_band_of_the_next_observation_holds_it_at_four_times_the_width_of_its_noise() -> None:
    """70 observations 30 % of the run ahead, four kinds of rises. At a true 90 % fewer than 54 held
    have probability below 1e-3.

    The band is never nearer than a mean that wanders, so that a law that holds to the end gets one
    far wider than it needs: here 4.4 times its noise.
    """
    inside, width, time = 0, 0.0, np.arange(100.0)
    for seed in range(70):
        value = rise(time, (10.0, 25.0, 60.0, 120.0)[seed % 4]) + np.random.default_rng(
            seed
        ).normal(0, 0.03, 100)
        ahead = forecast(time[:70], value[:70], time[99:])
        inside += bool(ahead.low_S[0] <= value[99] <= ahead.high_S[0])
        width += float(ahead.high_S[0] - ahead.low_S[0]) / (2 * 1.6449 * 0.03) / 70
    assert inside >= 54
    assert width == pytest.approx(4.4, abs=0.1)


def test_the_band_of_the_mean_holds_the_mean_and_lies_in_the_other() -> None:
    ahead = forecast(TIME, run(1), [210.0, 300.0])
    assert np.all(ahead.low_S < ahead.mean_low_S)
    assert np.all(ahead.mean_low_S < ahead.mean_S)
    assert np.all(ahead.mean_S < ahead.mean_high_S)
    assert np.all(ahead.mean_high_S < ahead.high_S)
    truth = rise(np.array([210.0, 300.0]))
    assert np.all((ahead.mean_low_S < truth) & (truth < ahead.mean_high_S))


def test_a_clean_rise_is_forecast_where_it_goes() -> None:
    ahead = forecast(TIME, run(2, 0.001), [220.0, 400.0])
    np.testing.assert_allclose(ahead.mean_S, rise(ahead.time_S), atol=0.003)
    assert ahead.expected_gain.value == pytest.approx(
        0.6 * (math.exp(-199 / 40) - math.exp(-400 / 40)), abs=0.003
    )
    assert ahead.status == "forecast"


def test_bands_widen_with_the_horizon() -> None:
    ahead = forecast(TIME, run(5), np.linspace(199, 1500, 40))
    assert np.all(np.diff(ahead.high_S - ahead.low_S) > 0)
    assert np.all(np.diff(ahead.mean_high_S - ahead.mean_low_S) > 0)


def test_the_mean_of_many_rows_has_a_narrower_band_than_one() -> None:
    single, many = (forecast(TIME, run(6, 0.1), [205.0], rows=rows) for rows in (1, 25))
    assert float((many.high_S - many.low_S)[0]) < 0.7 * float((single.high_S - single.low_S)[0])
    np.testing.assert_allclose(single.mean_S, many.mean_S)


def test_a_higher_level_is_a_wider_band() -> None:
    bands = [forecast(TIME, run(7), [250.0], level=level) for level in (0.5, 0.9, 0.99)]
    widths = [float((band.high_S - band.low_S)[0]) for band in bands]
    assert widths == sorted(widths)
    assert widths[2] > 1.5 * widths[0]


def test_a_flat_series_is_forecast_at_its_level() -> None:
    value = 0.4 + np.random.default_rng(9).normal(0, 0.05, N)
    ahead = forecast(TIME, value, [220.0])
    assert float(ahead.mean_S[0]) == pytest.approx(0.4, abs=0.03)
    assert abs(ahead.expected_gain.value) < 0.02


def test_an_early_forecast_stays_near_the_recent_level() -> None:
    """A tenth of the way: the prior keeps the plateau within three covered ranges or so of where
    the curve is.
    """
    time = np.arange(40.0)
    value = 0.1 + 0.002 * time + np.random.default_rng(10).normal(0, 0.02, 40)
    ahead = forecast(time, value, [80.0, 400.0])
    assert np.all(np.abs(ahead.mean_S - value[-10:].mean()) < 3 * np.ptp(value))


def test_a_metric_that_never_moved_says_nothing_of_how_far_it_can() -> None:
    ahead, held = (
        forecast(TIME, np.full(N, 0.25), [210.0, 1e6], bounds=bounds)
        for bounds in (None, (0.0, 1.0))
    )
    for ahead_now, low, high in ((ahead, -math.inf, math.inf), (held, 0.0, 1.0)):
        assert ahead_now.status == "still"
        np.testing.assert_array_equal(ahead_now.mean_S, [0.25, 0.25])
        for line, end in (
            (ahead_now.low_S, low),
            (ahead_now.mean_low_S, low),
            (ahead_now.high_S, high),
            (ahead_now.mean_high_S, high),
        ):
            np.testing.assert_array_equal(line, [end, end])
        assert "never" not in str(ahead_now)
        assert str(ahead_now).startswith("Every row is exactly 0.25")


@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1e9])
def test_units_of_reward_do_not_matter(scale: float) -> None:
    ahead, other = (
        forecast(TIME, run(11), [205.0, 300.0]),
        forecast(TIME, scale * run(11), [205.0, 300.0]),
    )
    for name in ("mean_S", "mean_low_S", "mean_high_S", "low_S", "high_S"):
        np.testing.assert_allclose(getattr(other, name) / scale, getattr(ahead, name), rtol=1e-3)


def test_the_clock_does_not_matter() -> None:
    ahead, other = (
        forecast(TIME, run(12), [205.0, 300.0]),
        forecast(1e-6 * TIME + 5, run(12), 5 + 1e-6 * np.array([205.0, 300.0])),
    )
    np.testing.assert_allclose(other.high_S, ahead.high_S, rtol=1e-4)


def test_window_means_are_forecast_in_the_same_clock() -> None:
    rng = np.random.default_rng(13)
    means = rise(np.arange(2000.0), 400.0).reshape(-1, 20).mean(1) + rng.normal(0, 0.005, 100)
    ahead = forecast(np.arange(20.0, 2001, 20), means, [2000.0, 4000.0], window=20)
    np.testing.assert_allclose(ahead.mean_S, rise(ahead.time_S, 400.0), atol=0.01)


def test_the_last_rows_pull_a_correlated_forecast() -> None:
    """Slow noise that stands high at the end is forecast to stand high a row later."""
    rng, noise = np.random.default_rng(14), np.zeros(N)
    for i in range(1, N):
        noise[i] = 0.9 * noise[i - 1] + 0.02 * rng.normal()
    noise[-8:] += np.linspace(0.02, 0.1, 8)
    ahead = forecast(TIME, 0.5 + noise, [200.0])
    assert float(ahead.mean_S[0]) > float((0.5 + noise).mean()) + 0.03


def test_few_rows_are_forecast_and_said_to_be_few() -> None:
    ahead = forecast(np.arange(5.0), [0.2, 0.25, 0.22, 0.3, 0.27], [10.0])
    assert ahead.status == "short"
    assert ahead.message.startswith("no public run was forecast from only 5 rows")
    assert ahead.low_S[0] < 0.2 < 0.3 < ahead.high_S[0]


@each_case(
    ("at", "keywords", "error"),
    [
        ([], {}, InvalidArgumentError),
        ([np.nan], {}, InvalidArgumentError),
        ([np.inf], {}, InvalidArgumentError),
        ([-1.0], {}, InvalidArgumentError),
        ([210.0], {"level": 1.0}, InvalidArgumentError),
        ([210.0], {"level": 0.0}, InvalidArgumentError),
        ([210.0], {"window": 0.0}, InvalidArgumentError),
    ],
)
def test_bad_arguments_are_refused_in_one_line(
    at: list[float], keywords: dict, error: type[GroupwiseError]
) -> None:
    with pytest.raises(error) as caught:
        forecast(TIME, run(15), at, **keywords)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("at", "keywords"), [([210.0], {"rows": 0}), ([210.0], {"rows": -3}), ([[210.0, 220.0]], {})]
)
def test_rows_and_times_outside_their_domain_are_refused(at: list, keywords: dict) -> None:
    with pytest.raises(InvalidArgumentError):
        forecast(TIME, run(16), at, **keywords)


def test_too_short_a_series_is_refused() -> None:
    with pytest.raises(InsufficientDataError):
        forecast([0, 1], [0.1, 0.2], [5.0])


def test_the_band_of_a_row_holds_that_of_the_mean() -> None:
    """After a collapse the table stretches the mean's band further than a row's: 200 steps on it
    would end at .88 and the row's at .86.
    """
    time = np.arange(1.0, 201.0)
    value = np.clip(
        0.86 / (1 + np.exp((time - 90) / 4)) + np.random.default_rng(1).normal(0, 0.01, 200), 0, 1
    )
    for bounds in ((0.0, 1.0), None):
        ahead = forecast(time, value, np.array([205.0, 250.0, 400.0, 2000.0]), bounds=bounds)
        assert (ahead.low_S <= ahead.mean_low_S).all()
        assert (ahead.high_S >= ahead.mean_high_S).all()


def test_no_band_is_nearer_than_that_of_a_mean_that_wanders() -> None:
    """A walk of .02 a row, seen over 120: where it is 80 rows on, the mean has a deviation of .18
    about the last, and the band has 90 % of that to each side and the doubt of where it stands.
    """
    rng = np.random.default_rng(31)
    walk = 0.5 + 0.02 * rng.normal(size=120).cumsum()
    ahead = forecast(np.arange(120.0), walk + 0.01 * rng.normal(size=120), [199.0])
    reach = 1.645 * 0.02 * math.sqrt(80)
    assert walk[-1] - 2 * reach < ahead.mean_low_S[0] < walk[-1] - 0.7 * reach
    assert walk[-1] + 2 * reach > ahead.mean_high_S[0] > walk[-1] + 0.7 * reach


def test_a_run_that_has_lost_its_height_is_not_forecast_to_rise() -> None:
    time = np.arange(100.0)
    value = np.where(time < 60, 0.2 + 0.01 * time, 0.1) + np.random.default_rng(32).normal(
        0, 0.02, 100
    )
    ahead = forecast(time, value, [120.0, 200.0], bounds=(0.0, 1.0))
    assert (ahead.mean_S < 0.13).all()


def test_without_bounds_no_band_leaves_the_line_through_the_range_of_the_rows() -> None:
    """Twice as many rows may end one range further."""
    value = run(33, 0.1)
    least, most = float(value.min()), float(value.max())
    ahead = forecast(TIME, value, [200.0, 399.0])
    assert ahead.high_S[0] <= most + 0.01
    assert ahead.high_S[1] <= most + (most - least) * 1.001
    assert ahead.low_S[1] >= least - (most - least) * 1.001


@each_case("at", [np.int64(120), np.float32(120), np.array(120), 120, [120]])
def test_a_single_time_may_be_any_number(at: Any) -> None:
    time = np.arange(100)
    curve = forecast(time, 0.5 + 0.01 * np.sin(time), at)
    assert curve.time_S.tolist() == [120.0]


@pytest.mark.parametrize("bounds", [(1, 0), (np.nan, 1), "ab", 1, (0, 1, 2), (0, 0)])
def test_bounds_that_are_none_are_refused(bounds: Any) -> None:
    value = np.linspace(0.6, 0.7, 40)
    with pytest.raises(InvalidArgumentError, match=r"a lower and a higher bound|array of numbers"):
        forecast(np.arange(40.0), value, [60.0], bounds=bounds)
