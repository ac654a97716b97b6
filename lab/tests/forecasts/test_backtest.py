"""Forecasts scored on what came after: the cut, the scores by hand, and the methods that they
are held against.
"""

from __future__ import annotations

import math
from importlib.util import find_spec

import numpy as np
import pytest
from scipy.special import ndtri
from tests.cases import each_case

from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.forecasting.forecast import shipped
from groupwise_lab.forecasts.backtest import (
    PROBABILITIES,
    SHARES,
    backtest,
    crps,
    interval_score,
    rows_seen,
    trial,
)
from groupwise_lab.forecasts.calibrate import UNCALIBRATED
from groupwise_lab.forecasts.rivals import (
    MODELS,
    SIMPLE,
    Rival,
    Stretches,
    available,
    foretold_by,
    smoothing,
)

TIME = np.arange(120.0)
with_statsmodels = pytest.mark.skipif(
    find_spec("statsmodels") is None,
    reason="statsmodels is not installed: ETS and theta are not tried",
)


def rising(seed: int, deviation: float = 0.02) -> np.ndarray:
    """A noisy rise."""
    return 0.8 - 0.6 * np.exp(-TIME / 40) + np.random.default_rng(seed).normal(0, deviation, 120)


def stretches(seen: int, *rows: tuple[int, int]) -> Stretches:
    """Stretches of rows from one to another, counted from 1 after the last one seen."""
    first, last = np.array(rows, dtype=float).T
    return Stretches(seen - 1 + (first + last) / 2, first, last)


# Scores by hand


def test_the_interval_score_is_the_width_and_a_fine_of_twenty_times_the_miss() -> None:
    """At 90 %, 2/(1 - .9) = 20: bands from 1 to 3, truth inside, .1 below and .2 above."""
    truth, low, high = np.array([2.0, 0.9, 3.2]), np.full(3, 1.0), np.full(3, 3.0)
    assert interval_score(truth, low, high, 0.9) == pytest.approx(
        [2.0, 2.0 + 20 * 0.1, 2.0 + 20 * 0.2]
    )
    assert interval_score(truth, low, high, 0.5) == pytest.approx(
        [2.0, 2.0 + 4 * 0.1, 2.0 + 4 * 0.2]
    )


def test_the_crps_of_two_quantiles_by_hand() -> None:
    """Quantiles 0 at 1/4 and 1 at 3/4 weigh a half each; truth .5, -1 and 3.

    Of .5 the pinball losses are 1/4 * .5 and 1/4 * .5, of -1 they are 3/4 * 1 and 1/4 * 2, of 3
    they are 1/4 * 3 and 3/4 * 2.
    """
    truth = np.array([0.5, -1.0, 3.0])
    quantile = np.array([[0.0] * 3, [1.0] * 3])
    assert crps(truth, quantile, (0.25, 0.75)) == pytest.approx(
        [0.125 + 0.125, 0.75 + 0.5, 0.75 + 1.5]
    )


def test_a_quantile_weighs_the_probabilities_nearest_to_it() -> None:
    """At .1, .5 and .6 the borders are .3 and .55: weights .3, .25 and .45.

    Truth 1 above quantiles of 0.
    """
    score = crps(np.array([1.0]), np.zeros((3, 1)), (0.1, 0.5, 0.6))
    assert score == pytest.approx([2 * (0.3 * 0.1 + 0.25 * 0.5 + 0.45 * 0.6)])


def test_the_crps_of_a_normal_is_near_that_of_the_integral() -> None:
    """A normal foretold as it is has a CRPS of 1/sqrt(pi) standard deviations; eleven quantiles
    come within 4 % of it.
    """
    truth = ndtri((np.arange(4000) + 0.5) / 4000)
    quantile = np.repeat(ndtri(np.array(PROBABILITIES))[:, None], truth.size, axis=1)
    assert float(crps(truth, quantile, PROBABILITIES).mean()) == pytest.approx(
        math.pi**-0.5, rel=0.04
    )


# The cut


def test_the_last_mean_is_scored_by_hand() -> None:
    """A staircase: 48 rows seen, the last fifth of them is .5; ten windows of the rest lie at
    .7.
    """
    value = np.where(TIME < 30, 0.2, np.where(TIME < 48, 0.5, 0.7))
    score = backtest(TIME, value)
    assert (score.n_train, score.n_test, score.windows, score.share) == (48, 72, 10, 0.4)
    assert score.errors["last_mean"] == pytest.approx(0.2)
    assert score.deviation == pytest.approx(value.std())
    assert list(score.errors) == ["groupwise", *available()]
    assert (
        set(score.interval_scores)
        == set(score.crps)
        == set(score.errors) - {"last_mean", "smoothing"}
    )


def test_errors_are_mean_absolute_errors_of_window_means_also_by_thirds() -> None:
    """The windows of 72 rows: two of 8, then eight of 7; four, three and three of them are the
    thirds.
    """
    value = np.where(TIME < 48, 0.0, TIME)
    value[:48] += 1e-3 * np.random.default_rng(0).choice([-1.0, 1.0], 48)
    off = np.array(
        [
            abs(value[group].mean() - value[39:48].mean())
            for group in np.array_split(np.arange(48, 120), 10)
        ]
    )
    score = backtest(TIME, value)
    assert score.errors["last_mean"] == pytest.approx(off.mean(), rel=1e-9)
    assert [third.windows for third in score.thirds] == [4, 3, 3]
    assert [third.errors["last_mean"] for third in score.thirds] == pytest.approx(
        [off[:4].mean(), off[4:7].mean(), off[7:].mean()]
    )


@pytest.mark.usefixtures("few_rivals")
def test_the_thirds_add_up() -> None:
    score = backtest(TIME, rising(1), from_share=0.1)
    for name in ("covered", "above", "below", "windows", "rows_covered"):
        assert sum(getattr(third, name) for third in score.thirds) == getattr(score, name)
    assert score.covered + score.above + score.below == score.windows
    weights = [third.windows / score.windows for third in score.thirds]
    for name in ("errors", "interval_scores", "crps", "widths"):
        key = "rows" if name == "widths" else "groupwise"
        parts = [getattr(third, name)[key] for third in score.thirds]
        assert float(np.dot(weights, parts)) == pytest.approx(getattr(score, name)[key])
    # Of a band that holds all, the score is the width.
    within = score.interval_scores["groupwise"] == pytest.approx(score.widths["windows"])
    assert within == (score.covered == score.windows)


@pytest.mark.usefixtures("few_rivals")
def test_two_rows_left_have_no_thirds() -> None:
    score = backtest(np.arange(20.0), rising(1)[:20], from_share=0.9)
    assert (score.windows, score.n_test, score.thirds) == (2, 2, ())


def test_a_clean_rise_is_forecast_better_than_by_its_last_mean() -> None:
    score = backtest(TIME, rising(1))
    assert score.errors["groupwise"] < 0.6 * score.errors["last_mean"]
    assert score.covered >= 8
    assert score.level == 0.9


@pytest.mark.usefixtures("few_rivals")
def test_truth_beyond_the_band_is_counted_on_its_side() -> None:
    value = rising(4)
    up, down = value.copy(), value.copy()
    up[48:] += 10.0
    down[48:] -= 10.0
    score, other = backtest(TIME, up), backtest(TIME, down)
    assert (score.covered, score.above, score.below, score.rows_covered) == (0, 10, 0, 0)
    assert (other.covered, other.above, other.below, other.rows_covered) == (0, 0, 10, 0)
    assert score.interval_scores["groupwise"] > 20 * 9


@pytest.mark.usefixtures("few_rivals")
def test_the_future_is_not_seen() -> None:
    """What comes after the cut changes no forecast: errors move exactly as the truth does."""
    value = rising(4)
    moved = value.copy()
    moved[48:] += 10.0
    tested, other = trial(TIME, value, 0.4), trial(TIME, moved, 0.4)
    assert np.array_equal(tested.windows.centre_S, other.windows.centre_S)
    assert np.array_equal(tested.windows.spread_S, other.windows.spread_S)
    for name, rival in tested.rivals.items():
        assert np.array_equal(rival.centre_S, other.rivals[name].centre_S)
    assert other.truth_S - tested.truth_S == pytest.approx(10.0)


@pytest.mark.usefixtures("few_rivals")
def test_missing_rows_do_not_count() -> None:
    value = rising(2)
    value[5::6] = np.nan
    keep = np.isfinite(value)
    score, other = backtest(TIME, value), backtest(TIME[keep], value[keep])
    assert score == other
    assert score.n_train + score.n_test == int(keep.sum())


@each_case(("share", "seen"), [(0.02, 8), (0.2, 24), (0.5, 60), (0.8, 96)])
@pytest.mark.usefixtures("few_rivals")
def test_the_share_seen_is_that_asked_for_but_never_under_eight_rows(
    share: float, seen: int
) -> None:
    assert trial(TIME, rising(3), share, methods={}).n_train == rows_seen(120, share) == seen


@pytest.mark.usefixtures("few_rivals")
def test_bounds_hold_every_band() -> None:
    """A band of ETS or a law that leaves 0 to 1 is held there, as ours is."""
    value = np.minimum(0.4 + 0.04 * TIME, 0.95) + 0.1 * (rising(5) - rising(5, 0.0))
    free, held = (
        backtest(TIME, value, from_share=0.1, bounds=bounds) for bounds in (None, (0.0, 1.0))
    )
    assert all(
        held.interval_scores[name] <= free.interval_scores[name] + 1e-12
        for name in held.interval_scores
    )
    for name in ("groupwise", "power_law"):
        assert held.interval_scores[name] < free.interval_scores[name]


@pytest.mark.usefixtures("few_rivals")
def test_places_of_averaged_rows_count_in_the_rows_that_are_independent() -> None:
    """Of 48 rows that are means of six, eight are independent, and places count in steps of six
    rows.
    """
    value = rising(12, 0.05)
    raw, averaged = (trial(TIME, value, 0.4, smoothing=rows, methods={}) for rows in (1, 6))
    assert averaged.windows.seen == 8
    assert float(averaged.windows.place_S[0]) < float(raw.windows.place_S[0]) / 5


def test_a_table_stretches_the_band_and_leaves_the_rivals() -> None:
    tried = trial(TIME, rising(6), 0.1)
    scored, other = tried.score(shipped()), tried.score(UNCALIBRATED)
    assert scored.errors["groupwise"] != other.errors["groupwise"]  # the table moves the median
    assert all(scored.errors[name] == other.errors[name] for name in tried.rivals)
    assert scored.interval_scores["groupwise"] != other.interval_scores["groupwise"]
    assert scored.interval_scores["power_law"] == other.interval_scores["power_law"]


def test_a_case_is_the_error_in_spreads() -> None:
    tried = trial(TIME, rising(7), 0.2)
    case = tried.case("sweep", "run")
    assert (case.cluster, case.run, case.share, case.seen) == ("sweep", "run", 0.2, 24.0)
    assert case.row_S[0] == pytest.approx(np.arange(24, 34).mean())
    assert case.error_S[
        "window"
    ] * tried.windows.spread_S + tried.windows.centre_S == pytest.approx(tried.truth_S)
    assert case.error_S["row"] * tried.rows.spread_S + tried.rows.centre_S == pytest.approx(
        tried.row_S
    )


@each_case("share", [0.0, 1.0, -0.2, 1.5, math.nan])
def test_a_share_outside_zero_and_one_is_refused(share: float) -> None:
    with pytest.raises(InvalidArgumentError, match="between 0 and 1"):
        backtest(TIME, rising(6), from_share=share)


@pytest.mark.usefixtures("few_rivals")
def test_a_level_outside_zero_and_one_is_refused() -> None:
    tried = trial(TIME, rising(6), 0.4, methods={})
    for level in (0.0, 1.0, math.nan):
        with pytest.raises(InvalidArgumentError, match="between 0 and 1"):
            tried.score(UNCALIBRATED, level=level)


def test_too_short_a_series_is_refused_with_its_length() -> None:
    value = rising(7)
    value[19:] = np.nan
    with pytest.raises(InsufficientDataError, match="the series has 19"):
        backtest(TIME, value)


def test_rows_that_do_not_move_are_refused_for_there_is_no_band() -> None:
    with pytest.raises(
        InsufficientDataError,
        match=r"every one of the 48 rows seen is exactly 0\.25: there is no band to score",
    ):
        backtest(TIME, np.where(TIME < 48, 0.25, TIME))


@pytest.mark.parametrize(
    "time", [TIME[::-1], np.repeat(TIME[:60], 2)], ids=["backwards", "repeated"]
)
def test_times_that_do_not_increase_are_refused(time: np.ndarray) -> None:
    with pytest.raises(InvalidArgumentError, match="increase"):
        backtest(time, rising(8))


def test_lengths_that_differ_are_refused() -> None:
    with pytest.raises(InvalidArgumentError):
        backtest(TIME[:50], rising(9))


# The other methods


def test_smoothing_of_four_numbers_by_hand() -> None:
    """From the mean of the first three, 2, the squared errors of 1, 2, 3 and 6 at rate .9.

    Levels 2, 1.1, 1.91, 2.891, 5.6891; errors -1, .9, 1.09, 3.109: squares 12.6640. At .65: levels
    2, 1.35, 1.7725, 2.570375, 4.79963; errors -1, .65, 1.2275, 3.429625: 14.6916. Every slower rate
    is further off, so that .9 is taken.
    """
    value = np.array([1.0, 2.0, 3.0, 6.0])
    assert smoothing(np.arange(4.0), value, stretches(4, (1, 1), (2, 9))).centre_S == pytest.approx(
        [5.6891, 5.6891]
    )


def test_smoothing_takes_the_slowest_rate_where_rows_only_alternate() -> None:
    """Around 0 from a mean of 1/3: the slower, the nearer to 0 the errors."""
    value = np.tile([1.0, -1.0], 40)
    assert abs(float(smoothing(np.arange(80.0), value, stretches(80, (1, 1))).centre_S[0])) < 0.2


@each_case("name", SIMPLE)
def test_simple_methods_forecast_their_own_clean_curve(name: str) -> None:
    value = 0.8 - 0.6 * np.exp(-TIME / 20) if name in ("smoothing", "last_mean") else rising(5, 0.0)
    got = SIMPLE[name](
        TIME[:100] + 500,
        value[:100],
        Stretches(np.array([619.0]), np.array([20.0]), np.array([20.0])),
    )
    assert float(got.centre_S[0]) == pytest.approx(float(value[119]), abs=0.03)


def test_simple_methods_do_not_run_away() -> None:
    """Levels stay within one observed range of the data, as curve fitters bound them."""
    line = np.linspace(0.2, 0.4, 40)
    for name, method in SIMPLE.items():
        far = float(
            method(
                TIME[:40], line, Stretches(np.array([1e6]), np.array([1e6]), np.array([1e6]))
            ).centre_S[0]
        )
        assert 0.0 - 1e-6 <= far <= 0.6 + 1e-6, name


def test_the_band_of_a_law_is_that_of_its_noise_and_parameters() -> None:
    """A long flat noisy power law: little is unknown but the noise, and a mean of 25 rows has a
    fifth of it.
    """
    value = rising(11)
    rival = SIMPLE["power_law"](TIME, value, stretches(120, (1, 1), (1, 25)))
    assert rival.deviation_S is not None
    assert rival.deviation_S[0] == pytest.approx(0.02, rel=0.25)
    assert rival.deviation_S[1] < 0.5 * rival.deviation_S[0]
    assert rival.quantile(0.95) - rival.quantile(0.05) == pytest.approx(
        2 * 1.644854 * rival.deviation_S
    )


@with_statsmodels
def test_models_are_tried_where_they_are_installed() -> None:
    assert set(backtest(TIME, rising(1)).crps) >= set(MODELS)


@with_statsmodels
def test_the_deviation_of_ets_is_that_of_statsmodels() -> None:
    """Of single rows; a mean of rows is checked by simulation below."""
    pandas = pytest.importorskip("pandas")
    from statsmodels.tsa.exponential_smoothing.ets import ETSModel

    value = np.cumsum(np.random.default_rng(3).normal(0, 0.05, 80))
    rival = MODELS["ets_damped"](TIME[:80], value, stretches(80, (1, 1), (4, 4), (20, 20)))
    fit = ETSModel(pandas.Series(value), trend="add", damped_trend=True).fit(disp=False)
    ends = fit.get_prediction(80, 99).pred_int(alpha=0.1).to_numpy()
    assert rival.deviation_S is not None
    assert rival.quantile(0.05) == pytest.approx(ends[[0, 3, 19], 0], abs=1e-3)
    assert rival.quantile(0.95) == pytest.approx(ends[[0, 3, 19], 1], abs=1e-3)


@with_statsmodels
def test_the_deviation_of_a_mean_is_that_of_simulated_surprises() -> None:
    """Of theta every surprise e moves all rows after its own by alpha e: rows 3 to 7, drawn
    200,000 times.
    """
    from statsmodels.tsa.forecasting.theta import ThetaModel

    value = np.cumsum(np.random.default_rng(4).normal(0, 0.05, 80))
    rival = MODELS["theta"](TIME[:80], value, stretches(80, (3, 7)))
    fit = ThetaModel(value, deseasonalize=False).fit()
    surprise = np.random.default_rng(0).normal(0, math.sqrt(fit.sigma2), (200_000, 7))
    before = np.cumsum(surprise, axis=1) - surprise
    drawn = (surprise + fit.params["alpha"] * before)[:, 2:].mean(1)
    assert rival.deviation_S is not None
    assert float(rival.deviation_S[0]) == pytest.approx(float(drawn.std()), rel=0.01)


def test_a_method_that_gives_up_is_left_out() -> None:
    def broken(_time: np.ndarray, _value: np.ndarray, _ahead: Stretches) -> Rival:
        raise np.linalg.LinAlgError("singular")

    def endless(_time: np.ndarray, _value: np.ndarray, ahead: Stretches) -> Rival:
        return Rival(np.full(ahead.time_S.size, np.inf))

    assert foretold_by(broken, TIME, rising(0), stretches(120, (1, 1))) is None
    assert foretold_by(endless, TIME, rising(0), stretches(120, (1, 1))) is None
    score = trial(
        TIME, rising(0), 0.4, methods={"broken": broken, "last_mean": SIMPLE["last_mean"]}
    ).score(shipped())
    assert list(score.errors) == ["groupwise", "last_mean"]


def test_the_usual_shares_are_those_of_the_bar() -> None:
    assert SHARES == (0.1, 0.2, 0.4, 0.6)
