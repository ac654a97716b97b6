"""Scores of forecasts in the terminal."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console
from tests.cases import each_case

from groupwise.errors import InsufficientDataError
from groupwise_lab.forecasts.results import Backtest, Tally
from groupwise_lab.forecasts.runs import ScoredRun, Scores, cluster_of
from groupwise_lab.forecasts.text import print_scores


def shown(show: Callable[[Console], None]) -> str:
    stream = io.StringIO()
    show(Console(file=stream, width=160))
    return stream.getvalue()


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
        {"windows": 0.3, "rows": 0.5},
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
    assert row == [
        "40",
        "%",
        "4",
        "0.50",
        "1.00",
        "90",
        "%",
        "10",
        "%",
        "0",
        "%",
        "90",
        "%",
        "1.50",
        "2.50",
        "2.00",
        "0.25",
    ]
    assert "run 0" not in text
    assert "run 3" in shown(lambda console: print_scores(scores, console, every=True))
    assert scores.as_dict()["summary"]["coverage"]["level"] == 0.95
    assert scores.as_dict()["summary"]["best_simple"] == "smoothing"


def test_many_clusters_have_intervals() -> None:
    scores = Scores.of(
        [
            ScoredRun(f"run {i}", f"sweep {i}", score(0.1 * (1 + i % 2), 8 + i % 2))
            for i in range(8)
        ],
        [],
    )
    text = shown(lambda console: print_scores(scores, console, every=False))
    assert re.search(r"0\.7\d* \(0\.[56]\d* to 0\.[789]\d*\) of last mean", text)
    assert re.search(r"band held 85 % \(8[123] % to 8[789] %\)", text)
    assert "drawn over clusters" in text


def test_no_score_at_all_is_an_error() -> None:
    with pytest.raises(InsufficientDataError):
        Scores.of([], [("a", "b")])


@each_case(
    ("first", "second", "same"),
    [
        ("s/rho0.10_seed42.log", "s/rho3.00_seed7.log", True),
        ("s/run_ckpt300.json", "s/run_ckpt400.json", True),
        ("s/run_seed1.log", "t/run_seed1.log", False),
        ("s/alpha.log", "s/beta.log", False),
        ("s/lr1e-5.log", "s/lr3e-5.log", True),
    ],
)
def test_runs_that_differ_only_in_numbers_are_one_cluster(
    first: str, second: str, same: bool
) -> None:
    assert (cluster_of(Path(first)) == cluster_of(Path(second))) is same
