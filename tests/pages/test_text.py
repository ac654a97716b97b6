"""Text in the terminal: what a log holds is shown as it is, and styles nothing."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial

import pytest
from rich.console import Console

from groupwise.analysis.fitted import Fitted, fit_metric
from groupwise.diagnostics.judgement import Judgement, State
from groupwise.pages.text import print_fit, print_forecast
from groupwise.record.run import RunRecord

FINE = Judgement("demo", State.OK, "reward 0.2 → 0.5, still learning")
FAILED = Judgement(
    "demo", State.FAILED, "reward 0.8 → 0.0, collapsed at steps 51-55", since_step=51
)


def shown(show: Callable[[Console], None], *, terminal: bool = False) -> str:
    stream = io.StringIO()
    show(
        Console(
            file=stream,
            width=160,
            force_terminal=terminal,
            color_system="truecolor" if terminal else None,
        )
    )
    return stream.getvalue()


def test_a_fit_alone_lists_the_candidates(made_record: Callable[..., RunRecord]) -> None:
    fitted = fit_metric(made_record(), "reward")
    text = shown(lambda console: print_fit(fitted, FINE, console))
    assert "Weight" in text
    assert "single exponential" in text.lower()
    assert "neighbouring residuals" in text


def test_a_forecast_alone_says_where_it_begins_whatever_the_law(
    made_fitted: Callable[..., Fitted],
) -> None:
    for status in ("converged", "not_identifiable"):
        text = shown(partial(print_forecast, made_fitted(status), FINE))
        assert "forecast from step 100" in text
        assert "Expected" in text


def test_a_long_sentence_is_not_broken_in_a_pipe(made_fitted: Callable[..., Fitted]) -> None:
    text = shown(lambda console: print_forecast(made_fitted(), FINE, console))
    assert max(map(len, text.splitlines())) > 60
    assert "Its mean is forecast to be 0.60 (0.55 to 0.65) by step 150." in text


def test_where_no_law_holds_the_mean_is_forecast_and_no_plateau(
    made_fitted: Callable[..., Fitted],
) -> None:
    broken = made_fitted("non_stationary", message="collapsed: the level falls", change_time=200.0)
    text = shown(lambda console: print_forecast(broken, FINE, console))
    assert "Its mean is forecast to be 0.60 (0.55 to 0.65) by step 150" in text


@pytest.mark.parametrize("show", [print_fit, print_forecast])
def test_how_the_run_stands_is_said_first(
    made_fitted: Callable[..., Fitted], show: Callable[..., None]
) -> None:
    lines = shown(lambda console: show(made_fitted(), FINE, console)).splitlines()
    assert lines[:3] == ["✓ OK  demo  reward 0.2 → 0.5, still learning", "", lines[2]]
    assert lines[2].startswith("reward: ")


def test_after_a_failure_no_law_and_no_forecast_is_the_answer(
    made_fitted: Callable[..., Fitted],
) -> None:
    first = "✗ FAILED  demo  reward 0.8 → 0.0, collapsed at steps 51-55"
    lines = shown(lambda console: print_fit(made_fitted(), FAILED, console)).splitlines()
    assert lines[0] == first
    assert lines[3].startswith("The law is fitted to all rows and does not explain the failure.")
    assert shown(lambda console: print_forecast(made_fitted(), FAILED, console)).splitlines() == [
        first,
        "There is no forecast: rows after a failure say nothing about what comes next.",
    ]


def test_a_failure_is_dated_once(made_fitted: Callable[..., Fitted]) -> None:
    broken = made_fitted(
        "non_stationary", message="collapsed: the level falls from update 70 on", change_time=200.0
    )
    assert "update 70" not in shown(lambda console: print_forecast(broken, FAILED, console))
    assert "update 70" not in shown(lambda console: print_fit(broken, FAILED, console))
