"""A fit and its forecast in sentences: no sentence says more than the result, and none judges the run."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import pytest

from groupwise.analysis.fitted import Fitted
from groupwise.analysis.headline import ahead, nothing_to_forecast
from groupwise.intervals import Interval
from groupwise.wording import ranged

Make = Callable[..., Fitted]


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        (Interval(0.8, 0.75, 0.85), "0.80 (0.75 to 0.85)"),
        (Interval(0.8, 0.7, math.inf), "0.80 (at least 0.70)"),
        (Interval(0.8, -math.inf, 0.9), "0.80 (at most 0.90)"),
        (Interval(0.8, -math.inf, math.inf), "0.80 (no limit either way)"),
    ],
)
def test_open_intervals_are_named(interval: Interval, text: str) -> None:
    assert ranged(interval) == text


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "The reward is 0.500 at step 100 and heads for 0.80 (0.75 to 0.85), all laws averaged."),
        (
            {"time_to_95": (200.0, 150.0, 250.0)},
            "The reward is 0.500 at step 100, at its plateau of 0.80 (0.75 to 0.85), all laws averaged.",
        ),
        ({"status": "flat", "law": "constant", "plateau": (0.5, 0.48, 0.52)}, "The reward stays at 0.500 (0.480 to 0.520) over 100 rows."),
        (
            {"status": "not_identifiable"},
            "The reward is 0.500 at step 100, and its mean is forecast at 0.55 to 0.65 by step 150: too early to say where it ends.",
        ),
        ({"status": "non_stationary", "change_time": 200.0}, ""),
        (
            {"metric": "entropy", "quantity": "entropy"},
            '"entropy" is 0.500 at step 100 and heads for 0.80 (0.75 to 0.85), all laws averaged.',
        ),
    ],
)
def test_where_a_law_takes_a_metric_is_said_without_a_judgement(made_fitted: Make, given: dict[str, object], said: str) -> None:
    assert ahead(made_fitted(**given)) == said


def test_a_metric_without_a_fit_is_not_said_to_be_anywhere(made_fitted: Make) -> None:
    bare = dataclasses.replace(made_fitted(), fit=None, outlook=None, problem="expected at least 3 rows, got 1")
    assert (ahead(bare), nothing_to_forecast(bare)) == ("", "")


def test_where_no_law_holds_the_place_is_named_once(made_fitted: Make) -> None:
    broken = made_fitted("non_stationary", message="collapsed: the level falls", change_time=200.0)
    none = "No law holds, so there is nothing to forecast by."
    assert nothing_to_forecast(broken) == f"{none} Find what happened at step 51 before training on."
    assert nothing_to_forecast(broken, dated=False) == none
    assert nothing_to_forecast(made_fitted("non_stationary", message="non-stationary: wanders", change_time=0.0)) == none
    assert nothing_to_forecast(made_fitted()) == ""


def test_names_from_a_log_are_cleaned(made_fitted: Make) -> None:
    said = ahead(made_fitted(metric="x\x1b[2J\u202e", quantity=""))
    assert "\x1b" not in said
    assert "\u202e" not in said
