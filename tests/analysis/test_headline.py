"""A fit and its forecast in sentences: no sentence says more than the result, and none judges
the run.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest
from tests.cases import each_case
from tests.golden.sentences import says

from groupwise.analysis.fitted import (
    Fitted,
    ForecastRequest,
    Outlook,
    _with_plateau,
    ahead,
    fit_metric,
    gained,
)
from groupwise.diagnostics.judgement import Judgement, Learning, State
from groupwise.forecasting.results import no_fit
from groupwise.intervals import Interval
from groupwise.pages.tables import parameter_grid
from groupwise.record.run import RunRecord
from groupwise.record.table import steps_table
from groupwise.wording import ranged

Make = Callable[..., Fitted]
UNJUDGED = Judgement("made", State.OK, "")


@each_case(
    ("interval", "text"),
    [
        (Interval(0.8, 0.75, 0.85), "0.80 (0.75 to 0.85)"),
        (Interval(0.8, 0.7, math.inf), "0.80 (at least 0.70)"),
        (Interval(0.8, -math.inf, 0.9), "0.80 (at most 0.90)"),
        (Interval(0.8, -math.inf, math.inf), "0.80 (no limit either way)"),
        (Interval(0.8, 0.8, 0.8), "0.8"),
        (Interval(0.8, math.nan, math.nan), "0.8"),
    ],
)
def test_open_intervals_are_named(interval: Interval, text: str) -> None:
    assert ranged(interval) == text


@each_case(
    ("low", "high", "value", "ends"),
    [
        (0.0, math.inf, "–", "no limit either way"),
        (-math.inf, math.inf, "–", "no limit either way"),
        (3.73, math.inf, "–", "at least 3.73"),
        (-math.inf, 6.2, "–", "at most 6.20"),
        (0.0, 6.2, "5", "0.00 to 6.20"),
    ],
)
def test_a_parameter_that_the_rows_do_not_limit_is_no_number(
    made_fitted: Make, low: float, high: float, value: str, ends: str
) -> None:
    """Of a quantity above 0, the end 0 tells nothing where the other is open."""
    fit = made_fitted().fit
    assert fit is not None
    steep = dataclasses.replace(fit, parameters={"exponent": Interval(5.0, low, high)})
    assert parameter_grid(steep).rows[0][1:3] == (value, ends)


@each_case("status", ["converged", "flat", "not_identifiable", "non_stationary"])
def test_where_a_metric_goes_is_said_whatever_law_holds(made_fitted: Make, status: str) -> None:
    said = (
        "The reward is 0.500 at step 100. Its mean is forecast to be 0.60 (0.55 to 0.65) by "
        "step 150."
    )
    assert ahead(made_fitted(status, change_time=200.0), UNJUDGED) == said


def test_where_a_metric_stands_is_what_the_forecast_starts_from_and_no_law() -> None:
    """A dip in the middle pulls a law down to .8 at the end; the last fifty rows stand at .95."""
    step = np.arange(1, 201)
    reward = np.where((step > 60) & (step <= 130), 0.5, 0.95) + np.random.default_rng(0).normal(
        0, 0.02, 200
    )
    fitted = fit_metric(
        RunRecord("dip", steps_table(step.tolist(), {"reward": reward.clip(0, 1)})),
        "reward",
        ahead=ForecastRequest(),
    )
    assert fitted.outlook is not None
    said = float(ahead(fitted, UNJUDGED).split()[3])
    assert said == pytest.approx(fitted.outlook.grid[0].mean, abs=0.006)
    assert said == pytest.approx(0.95, abs=0.03)


def test_where_a_judged_reward_stands_is_what_the_judgement_says(made_fitted: Make) -> None:
    judged = dataclasses.replace(UNJUDGED, metric="reward", now=0.46, now_from=91)
    assert ahead(made_fitted(), judged).startswith(
        "The reward is 0.46 in the last 10 rows. Its mean is forecast to be "
    )
    assert ahead(made_fitted(), dataclasses.replace(judged, now_from=100)).startswith(
        "The reward is 0.46 at step 100. Its mean "
    )
    assert ahead(made_fitted(metric="entropy", quantity="entropy"), judged).startswith(
        '"entropy" is 0.500 at step 100. Its mean '
    )


def test_a_step_of_the_log_is_not_forecast(made_fitted: Make) -> None:
    fitted = made_fitted()
    assert fitted.outlook is not None
    rows = [dataclasses.replace(row, step=100.0) for row in fitted.outlook.rows]
    seen = dataclasses.replace(
        fitted, outlook=dataclasses.replace(fitted.outlook, rows=tuple(rows))
    )
    says("analysis/headline/1", ahead(seen, UNJUDGED))


def test_a_metric_goes_by_its_own_name(made_fitted: Make) -> None:
    assert ahead(made_fitted(metric="entropy", quantity="entropy"), UNJUDGED).startswith(
        '"entropy" is 0.500 at step 100. Its mean'
    )


def test_no_further_steps_gain_nothing(made_fitted: Make) -> None:
    fitted = made_fitted()
    assert fitted.outlook is not None
    assert gained(fitted)
    here = dataclasses.replace(fitted.outlook, grid=fitted.outlook.grid[:1])
    assert gained(dataclasses.replace(fitted, outlook=here)) == ""


def test_a_metric_without_a_fit_is_not_said_to_be_anywhere(made_fitted: Make) -> None:
    bare = dataclasses.replace(made_fitted(), fit=no_fit("expected 3 rows, got 1"), outlook=None)
    assert (ahead(bare, UNJUDGED), gained(bare)) == ("", "")


@each_case(
    ("here", "far", "settled"),
    [(0.87, 1.0, False), (0.87, 0.91, True), (0.5, 0.7, True), (0.8, 0.6, False), (1.2, 1.0, True)],
)
def test_a_plateau_that_the_forecast_goes_past_is_not_where_the_metric_ends(
    made_fitted: Make, here: float, far: float, settled: bool
) -> None:
    fitted = made_fitted(plateau=(0.9, 0.88, 0.92))
    assert fitted.outlook is not None
    first, last = fitted.outlook.grid
    rows, grid = (
        (dataclasses.replace(last, mean=far),),
        (dataclasses.replace(first, mean=here), last),
    )
    seen = _with_plateau(Outlook(fitted.outlook.result, rows, grid), fitted.fit)
    beside = dataclasses.replace(fitted, outlook=seen).beside_the_law
    assert (seen.plateau is not None, seen.as_dict()["plateau"] is not None, beside == "") == (
        settled,
    ) * 3


@each_case(
    ("learning", "said"),
    [(Learning.LEARNING, True), (Learning.ROSE, False), (Learning.AT_TOP, False)],
)
def test_no_plateau_is_settled_beside_a_reward_that_still_learns(
    made_fitted: Make, learning: Learning, said: bool
) -> None:
    fitted = made_fitted(plateau=(0.9, 0.88, 0.92))
    done = dataclasses.replace(fitted.fit, message="it rises; 90 % is done", course="it rises")
    fitted = dataclasses.replace(fitted, fit=done)
    judged = Judgement("run", State.OK, "", metric=fitted.metric, learning=learning)
    assert ("its plateau is not settled" in fitted.law_said(judged)) is said
    assert ("is done" in fitted.law_said(judged)) is not said  # one answer, not two
    other = dataclasses.replace(judged, metric="another")
    assert "its plateau" not in fitted.law_said(other)


@each_case(("high", "little"), [(0.7, False), (0.9, True)])
def test_a_band_of_most_of_the_range_tells_little(
    made_fitted: Make, high: float, little: bool
) -> None:
    """A reward between 0 and 1: a mean between .3 and .9 is no answer."""
    fitted = made_fitted()
    assert fitted.outlook is not None
    far = dataclasses.replace(
        fitted.outlook.rows[-1], mean_low=0.3, mean_high=high, low=0.2, high=1
    )
    outlook = dataclasses.replace(fitted.outlook, rows=(far,))
    said = ahead(dataclasses.replace(fitted, outlook=outlook), UNJUDGED)
    width = "says little: by step 150 the mean may be anywhere from 0.30 to 0.90"
    assert (width in said) is little
    assert ("is forecast to be" in said) is not little
    near = dataclasses.replace(fitted.outlook.rows[-1], step=120)
    outlook = dataclasses.replace(outlook, rows=(near, far))
    both = ahead(dataclasses.replace(fitted, outlook=outlook), UNJUDGED)
    assert ("by step 120. Beyond that the forecast says little" in both) is little
    # rows of a level that scatter ten times as widely as it has moved
    scattered = dataclasses.replace(far, low=-1.0, high=2.0)
    outlook = dataclasses.replace(fitted.outlook, rows=(scattered,))
    said = ahead(dataclasses.replace(fitted, outlook=outlook), UNJUDGED)
    assert "is forecast to be" in said


def given_gain(fitted: Fitted, value: float, low: float, high: float) -> Fitted:
    """The same with another gain of the steps ahead."""
    assert fitted.outlook is not None
    result = dataclasses.replace(
        fitted.outlook.result, expected_gain=Interval(value, low, high, 0.9)
    )
    return dataclasses.replace(fitted, outlook=dataclasses.replace(fitted.outlook, result=result))


def test_what_more_steps_gain_is_said_with_its_interval(made_fitted: Make) -> None:
    fitted = made_fitted()
    says("analysis/headline/3", gained(fitted))
    says("analysis/headline/2", gained(given_gain(fitted, -0.1, -0.2, 0.05)))
    assert gained(made_fitted(metric="entropy", quantity="entropy")) == ""


def test_what_a_forecast_starts_from_has_a_name_of_its_own(made_fitted: Make) -> None:
    """The mean at the last row is put between .495 and .505, whatever the last rows scatter to."""
    judged = dataclasses.replace(UNJUDGED, metric="reward", now=0.56, now_from=91)
    assert "is 0.56 in the last" in ahead(made_fitted(), judged)
    assert gained(made_fitted()).startswith("The forecast starts from the smoothed level, 0.50;")


def test_names_from_a_log_are_cleaned(made_fitted: Make) -> None:
    said = ahead(made_fitted(metric="x\x1b[2J\u202e", quantity=""), UNJUDGED)
    assert "\x1b" not in said
    assert "\u202e" not in said


def test_a_run_whose_learning_rate_has_ended_is_forecast_flat() -> None:
    """A cosine from 1e-6 to 0 at step 80 of 100: what the rows still gained before does not go
    on.
    """
    step = np.arange(1.0, 101.0)
    rate = 0.5e-6 * (1 + np.cos(np.pi * np.minimum(step / 80, 1)))
    reward = 0.3 + 0.4 * rate.cumsum() / rate.sum() + 0.02 * np.sin(17 * step**1.5)
    logged = {"reward": reward, "learning_rate": rate}
    with_rate, without = (
        RunRecord("run", steps_table(range(1, 101), {key: logged[key] for key in keys}))
        for keys in (("reward", "learning_rate"), ("reward",))
    )
    ends, plain = (
        fit_metric(record, "reward", ahead=ForecastRequest([200.0])).outlook
        for record in (with_rate, without)
    )
    assert ends is not None
    assert plain is not None
    assert ends.rows[0].mean == pytest.approx(0.7, abs=0.02)
    assert ends.rows[0].mean_high - ends.rows[0].mean_low < 0.05
    assert plain.rows[0].mean_high - plain.rows[0].mean_low > 0.1
    assert ends.result.time_S[0] == plain.result.time_S[0]
