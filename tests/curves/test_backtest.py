"""Forecasts scored on what came after, and many scores put together."""

from __future__ import annotations

import math

import numpy as np
import pytest

from groupwise.curves.backtest import SIMPLE, backtest, simple_forecast, summarise_backtests
from groupwise.curves.results import Backtest
from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.intervals import wilson

TIME = np.arange(120.0)


def rising(seed: int, deviation: float = 0.02) -> np.ndarray:
    """A noisy rise."""
    return 0.8 - 0.6 * np.exp(-TIME / 40) + np.random.default_rng(seed).normal(0, deviation, 120)


def test_the_last_mean_is_scored_by_hand() -> None:
    """A staircase: 48 rows seen, the last fifth of them is .5; ten windows of the rest lie at .7."""
    value = np.where(TIME < 30, 0.2, np.where(TIME < 48, 0.5, 0.7))
    score = backtest(TIME, value)
    assert (score.n_train, score.n_test, score.windows) == (48, 72, 10)
    assert score.errors["last_mean"] == pytest.approx(0.2)
    assert set(score.errors) == {"groupwise", *SIMPLE}


def test_errors_are_mean_absolute_errors_of_window_means() -> None:
    """The windows of 72 rows: two of 8, then eight of 7; the level seen is 0, so that the errors are the windows' means."""
    value = np.where(TIME < 48, 0.0, TIME)
    value[:48] += 1e-3 * np.random.default_rng(0).choice([-1.0, 1.0], 48)
    groups = np.array_split(np.arange(48, 120), 10)
    level = value[39:48].mean()
    expected = np.mean([abs(value[g].mean() - level) for g in groups])
    assert backtest(TIME, value).errors["last_mean"] == pytest.approx(expected, rel=1e-9)


def test_a_clean_rise_is_forecast_better_than_by_its_last_mean() -> None:
    score = backtest(TIME, rising(1))
    assert score.errors["groupwise"] < 0.5 * score.errors["last_mean"]
    assert score.covered >= 8
    assert score.level == 0.9


def test_missing_rows_do_not_count() -> None:
    value = rising(2)
    value[5::6] = np.nan
    keep = np.isfinite(value)
    variance = np.full(120, 4e-4)
    one, other = backtest(TIME, value, variance_T=variance), backtest(TIME[keep], value[keep], variance_T=variance[keep])
    assert one == other
    assert one.n_train + one.n_test == int(keep.sum())


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_the_share_seen_is_that_asked_for(share: float) -> None:
    assert backtest(TIME, rising(3), from_share=share).n_train == round(share * 120)


def test_the_future_is_not_seen() -> None:
    """What comes after the cut changes no forecast: errors move exactly as the truth does."""
    value = rising(4)
    moved = value.copy()
    moved[48:] += 10.0
    one, other = backtest(TIME, value), backtest(TIME, moved)
    for name in one.errors:
        assert other.errors[name] == pytest.approx(10.0, abs=1.0)
        assert other.errors[name] != one.errors[name]
    assert other.covered == 0


@pytest.mark.parametrize("name", SIMPLE)
def test_simple_methods_forecast_their_own_clean_curve(name: str) -> None:
    value = 0.8 - 0.6 * np.exp(-TIME / 20) if name in ("exponential", "last_mean") else rising(5, 0.0)
    got = simple_forecast(name, TIME[:100] + 500, value[:100], np.array([619.0]))
    assert float(got[0]) == pytest.approx(float(value[119]), abs=1e-3 if name == "exponential" else 0.03)


def test_simple_methods_do_not_run_away() -> None:
    """Levels stay within one observed range of the data, as curve fitters bound them."""
    line = np.linspace(0.2, 0.4, 40)
    for name in SIMPLE:
        far = float(simple_forecast(name, TIME[:40], line, np.array([1e6]))[0])
        assert 0.0 - 1e-6 <= far <= 0.6 + 1e-6


@pytest.mark.parametrize("share", [0.0, 1.0, -0.2, 1.5, math.nan])
def test_a_share_outside_zero_and_one_is_refused(share: float) -> None:
    with pytest.raises(InvalidArgumentError, match="between 0 and 1"):
        backtest(TIME, rising(6), from_share=share)


def test_too_short_a_series_is_refused_with_its_length() -> None:
    value = rising(7)
    value[19:] = np.nan
    with pytest.raises(InsufficientDataError, match="the series has 19"):
        backtest(TIME, value)


@pytest.mark.parametrize("time", [TIME[::-1], np.repeat(TIME[:60], 2)], ids=["backwards", "repeated"])
def test_times_that_do_not_increase_are_refused(time: np.ndarray) -> None:
    with pytest.raises(InvalidArgumentError, match="increase"):
        backtest(time, rising(8))


@pytest.mark.parametrize("keywords", [{"variance_T": np.ones(7)}, {"time_T": TIME[:50]}], ids=["variance", "time"])
def test_lengths_that_differ_are_refused(keywords: dict) -> None:
    with pytest.raises(InvalidArgumentError):
        backtest(**({"time_T": TIME, "value_T": rising(9)} | keywords))


# Many runs


def score(ours: float, last: float, exponential: float, covered: int) -> Backtest:
    """A score with two simple methods."""
    return Backtest({"groupwise": ours, "last_mean": last, "exponential": exponential}, covered, 10, 0.9, 40, 60)


def test_ratios_are_geometric_means_over_runs() -> None:
    summary = summarise_backtests([("a", score(0.1, 0.2, 0.1, 9)), ("b", score(0.2, 0.2, 0.8, 7))])
    assert summary.ratios["last_mean"] == pytest.approx(math.sqrt(0.5 * 1.0))
    assert summary.ratios["exponential"] == pytest.approx(math.sqrt(1.0 * 0.25))
    assert summary.best_simple == "last_mean"
    assert (summary.runs, summary.clusters) == (2, 2)
    assert summary.coverage.value == pytest.approx(0.8)
    assert (summary.coverage.low, summary.coverage.high) == (wilson(1.6, 2).low, wilson(1.6, 2).high)


def test_runs_of_one_cluster_count_once() -> None:
    """Three seeds of one sweep weigh as much as the one run beside them."""
    seeds = [("sweep", score(0.1, 0.4, 0.1, 10))] * 3
    summary = summarise_backtests([*seeds, ("alone", score(0.4, 0.1, 0.4, 5))])
    assert summary.ratios["last_mean"] == pytest.approx(1.0)
    assert (summary.runs, summary.clusters) == (4, 2)
    assert summary.coverage.value == pytest.approx(0.75)
    assert summary.coverage.low == pytest.approx(wilson(1.5, 2).low)


def test_a_perfect_error_does_not_break_the_mean() -> None:
    summary = summarise_backtests([("a", score(0.0, 0.0, 0.1, 10))])
    assert summary.ratios["last_mean"] == pytest.approx(1.0)
    assert math.isfinite(summary.ratios["exponential"])


def test_the_unit_of_the_metric_does_not_matter() -> None:
    plain = summarise_backtests([("a", score(0.1, 0.2, 0.1, 9))])
    small = summarise_backtests([("a", score(1e-8, 2e-8, 1e-8, 9))])
    assert small.ratios["last_mean"] == pytest.approx(plain.ratios["last_mean"])


def test_nothing_to_summarise_is_an_error() -> None:
    with pytest.raises(InsufficientDataError, match="at least 20 finite rows"):
        summarise_backtests([])
