"""Text in the terminal: what a log holds is shown as it is, and styles nothing."""

from __future__ import annotations

import dataclasses
import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from groupwise.analysis.backtest import ScoredRun, Scores, cluster_of
from groupwise.analysis.fitted import Fitted, fit_metric
from groupwise.diagnostics.judgement import Judgement, State
from groupwise.errors import InsufficientDataError
from groupwise.forecasting.results import Backtest, Tally
from groupwise.record.run import RunRecord
from groupwise.report.text import print_fit, print_forecast, print_scores

FINE = Judgement("demo", State.OK, "reward 0.2 → 0.5, still learning")
FAILED = Judgement("demo", State.FAILED, "reward 0.8 → 0.0, collapsed at steps 51-55", since_step=51)


def shown(show: Callable[[Console], None], *, terminal: bool = False) -> str:
    stream = io.StringIO()
    show(Console(file=stream, width=160, force_terminal=terminal, color_system="truecolor" if terminal else None))
    return stream.getvalue()


def test_a_fit_alone_lists_the_candidates(made_record: Callable[..., RunRecord]) -> None:
    fitted = fit_metric(made_record(), "reward")
    text = shown(lambda console: print_fit(fitted, FINE, console))
    assert "Weight" in text
    assert "single exponential" in text.lower()
    assert "neighbouring residuals" in text


def test_a_forecast_alone_says_where_it_begins_and_when_it_is_done_if_that_is_known(made_fitted: Callable[..., Fitted]) -> None:
    text = shown(lambda console: print_forecast(made_fitted(), FINE, console))
    assert "forecast from step 100" in text
    assert "95 % of the way: step 126." in text
    early = shown(lambda console: print_forecast(made_fitted("not_identifiable"), FINE, console))
    assert "Expected" in early
    assert "95 % of the way" not in early


def test_a_long_sentence_is_not_broken_in_a_pipe(made_fitted: Callable[..., Fitted]) -> None:
    text = shown(lambda console: print_forecast(made_fitted(), FINE, console))
    assert max(map(len, text.splitlines())) > 60
    assert "its mean is forecast at 0.60 (0.55 to 0.65) by step 150." in text


def score(ours: float, covered: int) -> Backtest:
    part = (
        {"groupwise": ours, "last_mean": 0.2, "smoothing": 0.1},
        covered,
        10,
        10 - covered,
        0,
        covered,
        {"groupwise": 0.4},
        {"groupwise": 0.05},
    )
    return Backtest(*part, 0.9, 40, 60, 0.4, 0.2, (Tally(*part),) * 3)


def test_scores_count_clusters_and_mark_the_best() -> None:
    runs = [ScoredRun(f"run {i}", "sweep" if i < 3 else "other", score(0.1, 9)) for i in range(4)]
    scores = Scores.of(runs, [("short.csv", "got 3 rows")])
    text = shown(lambda console: print_scores(scores, console, every=False))
    assert "4 runs in 2 clusters" in text
    assert "0.5 of last mean, 1 of smoothing" in text
    assert "The 90 % band held 90 % of the window means, 10 % lay above it and 0 % below." in text
    assert "Fewer than 5 clusters" in text
    assert "short.csv: got 3 rows" in text
    row = next(line.split() for line in text.splitlines() if line.strip().startswith("40 %"))
    assert row == ["40", "%", "4", "0.50", "1.00", "90", "%", "10", "%", "0", "%", "90", "%", "2.00", "0.25"]
    assert "run 0" not in text
    assert "run 3" in shown(lambda console: print_scores(scores, console, every=True))
    assert scores.as_dict()["summary"]["coverage"]["level"] == 0.95
    assert scores.as_dict()["summary"]["best_simple"] == "smoothing"


def test_many_clusters_have_intervals() -> None:
    scores = Scores.of([ScoredRun(f"run {i}", f"sweep {i}", score(0.1 * (1 + i % 2), 8 + i % 2)) for i in range(8)], [])
    text = shown(lambda console: print_scores(scores, console, every=False))
    assert re.search(r"0\.7\d* \(0\.[56]\d* to 0\.[789]\d*\) of last mean", text)
    assert re.search(r"band held 85 % \(8[123] % to 8[789] %\)", text)
    assert "drawn over clusters" in text


def test_no_score_at_all_is_an_error() -> None:
    with pytest.raises(InsufficientDataError):
        Scores.of([], [("a", "b")])


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("s/rho0.10_seed42.log", "s/rho3.00_seed7.log", True),
        ("s/run_ckpt300.json", "s/run_ckpt400.json", True),
        ("s/run_seed1.log", "t/run_seed1.log", False),
        ("s/alpha.log", "s/beta.log", False),
        ("s/lr1e-5.log", "s/lr3e-5.log", True),
    ],
)
def test_runs_that_differ_only_in_numbers_are_one_cluster(first: str, second: str, same: bool) -> None:
    assert (cluster_of(Path(first)) == cluster_of(Path(second))) is same


def test_where_no_law_holds_the_mean_is_forecast_and_no_plateau(made_fitted: Callable[..., Fitted]) -> None:
    broken = made_fitted("non_stationary", message="collapsed: the level falls", change_time=200.0)
    text = shown(lambda console: print_forecast(broken, FINE, console))
    assert "its mean is forecast at 0.60 (0.55 to 0.65) by step 150" in text
    assert "95 % of the way" not in text
    assert broken.outlook is not None
    assert broken.outlook.plateau is None


def test_what_lies_ahead_is_told_in_two_digits(made_fitted: Callable[..., Fitted]) -> None:
    fitted = made_fitted()
    assert fitted.outlook is not None
    outlook = dataclasses.replace(fitted.outlook, done_tokens=1_808_551.0, done_hours=4.6789)
    text = shown(lambda console: print_forecast(dataclasses.replace(fitted, outlook=outlook), FINE, console))
    assert "95 % of the way: step 126, 1.8 M tokens, 4.7 h." in text


def test_notes_of_the_fit_call_the_laws_by_name(made_fitted: Callable[..., Fitted]) -> None:
    fitted = made_fitted()
    assert fitted.fit is not None
    fit = dataclasses.replace(fitted.fit, notes=("logistic, power_law, scalerl_sigmoid fit as well (AICc within 2)",))
    text = shown(lambda console: print_fit(dataclasses.replace(fitted, fit=fit), FINE, console))
    assert "Logistic curve, power law, ScaleRL sigmoid fit as well" in text


@pytest.mark.parametrize("show", [print_fit, print_forecast])
def test_how_the_run_stands_is_said_first(made_fitted: Callable[..., Fitted], show: Callable[..., None]) -> None:
    lines = shown(lambda console: show(made_fitted(), FINE, console)).splitlines()
    assert lines[:3] == ["✓ OK  demo  reward 0.2 → 0.5, still learning", "", lines[2]]
    assert lines[2].startswith("reward: ")


def test_after_a_failure_no_law_and_no_forecast_is_the_answer(made_fitted: Callable[..., Fitted]) -> None:
    first = "✗ FAILED  demo  reward 0.8 → 0.0, collapsed at steps 51-55"
    assert shown(lambda console: print_fit(made_fitted(), FAILED, console)).splitlines()[:3] == [
        first,
        "The law is fitted to all rows, those of the failure included, and explains nothing of it.",
        "",
    ]
    assert shown(lambda console: print_forecast(made_fitted(), FAILED, console)).splitlines()[:3] == [
        first,
        "This is no answer to the failure: what follows goes on from all rows, those of the failure included.",
        "",
    ]


def test_a_failure_is_dated_once(made_fitted: Callable[..., Fitted]) -> None:
    broken = made_fitted("non_stationary", message="collapsed: the level falls from update 70 on", change_time=200.0)
    assert "update 70" not in shown(lambda console: print_forecast(broken, FAILED, console))
    assert "update 70" not in shown(lambda console: print_fit(broken, FAILED, console))
