"""Show the scores of forecasts, and a table of calibration, in the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console

from groupwise.intervals import percent
from groupwise.pages.tables import Grid
from groupwise.pages.text import Printer
from groupwise.wording import count, number
from groupwise_lab.forecasts.runs import METHOD_NAMES, Calibrated, Scores
from groupwise_lab.forecasts.scoreboard import ShareSummary


def print_scores(scores: Scores, console: Console, *, every: bool) -> None:
    """Print how well forecasts did on what came after, by the share that was seen; of every run
    where that is asked for.
    """
    out, rivals = Printer(console), scores.methods[1:]
    out.heading(
        "By the share of the run that was seen: error of groupwise over that of each method, and "
        "how its band did"
    )
    rows = [_line(part, rivals) for part in scores.summary.shares]
    head = _head(rivals)
    out.grid(Grid(head, tuple(rows), tuple(range(len(head)))))
    for sentence in scores.sentences():
        out.line(sentence)
    if every:
        _print_runs(scores, out)
    out.notes(f"left out {name}: {reason}" for name, reason in scores.left_out)


def _head(rivals: Sequence[str]) -> tuple[str, ...]:
    """The names of the columns of `_line`."""
    return (
        "Seen",
        "Runs",
        *(f"÷ {METHOD_NAMES.get(name, name)}" for name in rivals),
        "Windows in",
        "Above",
        "Below",
        "Rows in",
        "Width",
        "of rows",
        "Winkler",
        "CRPS",
    )


def _line(summary: ShareSummary, rivals: Sequence[str]) -> tuple[str, ...]:
    """What the runs seen to one share say; widths and scores in deviations of the run."""
    whole = summary.whole
    parts = whole.coverage.value, whole.above, whole.below, whole.row_coverage.value
    sizes = *whole.widths.values(), whole.interval_scores["groupwise"], whole.crps["groupwise"]
    return (
        percent(summary.share),
        str(summary.runs),
        *(f"{whole.ratios[name].value:.2f}" if name in whole.ratios else "–" for name in rivals),
        *map(percent, parts),
        *(f"{size:.2f}" for size in sizes),
    )


def _print_runs(scores: Scores, out: Printer) -> None:
    """Print the errors of every run, the smallest in bold."""
    rows, bold = [], set()
    for place, run in enumerate(scores.runs):
        result = run.result
        errors = [result.errors.get(method, math.nan) for method in scores.methods]
        best = min(result.errors.values())
        bold |= {(place, 3 + column) for column, error in enumerate(errors) if error == best}
        rows.append(
            (
                run.name,
                f"{result.n_train:,}",
                f"{result.n_test:,}",
                *map(number, errors),
                f"{result.covered} of {result.windows}",
            )
        )
    head = (
        "Run",
        "Rows seen",
        "Rows left",
        *(METHOD_NAMES.get(method, method) for method in scores.methods),
        "In the band",
    )
    out.heading("Mean absolute error of the rows left")
    out.grid(Grid(head, tuple(rows), tuple(range(1, len(head))), bold=frozenset(bold)))


def print_calibration(
    calibration: Calibrated, left_out: Sequence[tuple[str, str]], console: Console
) -> None:
    """Print how a table of calibration does on runs that it has not seen."""
    out = Printer(console)
    by_others = calibration.by_others
    out.heading(
        f"{count(by_others.runs, 'run')} in {count(by_others.clusters, 'cluster')}, each foretold "
        "by the table of the others"
    )
    rivals = tuple(by_others.whole.ratios)
    head = (*_head(rivals), "Winkler without")
    rows = [
        (*_line(part, rivals), f"{bare.whole.interval_scores['groupwise']:.2f}")
        for part, bare in zip(by_others.shares, calibration.uncalibrated.shares, strict=True)
    ]
    out.grid(Grid(head, tuple(rows), tuple(range(len(head)))))
    out.line(f"{calibration.sentence()} {calibration.worst()}")
    out.notes(f"left out {name}: {reason}" for name, reason in left_out)
