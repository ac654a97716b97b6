"""Show the scores of forecasts, and a table of calibration, in the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console

from groupwise.pages.tables import Grid
from groupwise.pages.text import Printer
from groupwise.wording import count, number, share
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
    head = (
        "Seen",
        "Runs",
        *(f"÷ {METHOD_NAMES.get(name, name)}" for name in rivals),
        *_BAND_HEAD,
        "Rows in",
        "Winkler",
        "CRPS",
    )
    rows = [
        (
            *_seen(part),
            *(
                f"{part.whole.ratios[name].value:.2f}" if name in part.whole.ratios else "–"
                for name in rivals
            ),
            *_band(part),
            share(part.whole.row_coverage.value),
            *(
                f"{score['groupwise']:.2f}"
                for score in (part.whole.interval_scores, part.whole.crps)
            ),
        )
        for part in scores.summary.shares
    ]
    out.grid(Grid(head, tuple(rows), tuple(range(len(head)))))
    for sentence in scores.sentences():
        out.line(sentence)
    if every:
        _print_runs(scores, out)
    out.notes(f"left out {name}: {reason}" for name, reason in scores.left_out)


_BAND_HEAD = ("Windows in", "Above", "Below")


def _seen(summary: ShareSummary) -> tuple[str, str]:
    """Return the share that was seen, and of how many runs."""
    return share(summary.share), str(summary.runs)


def _band(summary: ShareSummary) -> tuple[str, ...]:
    """Return the share of the windows inside the band, above and below it."""
    return tuple(
        share(part)
        for part in (summary.whole.coverage.value, summary.whole.above, summary.whole.below)
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
    out.heading(
        f"{count(calibration.table.runs, 'run')} in "
        f"{count(calibration.table.clusters, 'cluster')}, each foretold by the table of the others"
    )
    head = ("Seen", "Runs", *_BAND_HEAD, "Winkler", "without", "Error ÷ last mean", "÷ smoothing")
    rows = [
        (
            *_seen(share),
            *_band(share),
            *(f"{by.whole.interval_scores['groupwise']:.2f}" for by in (share, bare)),
            *(f"{share.whole.ratios[name].value:.2f}" for name in ("last_mean", "smoothing")),
        )
        for share, bare in zip(
            calibration.by_others.shares, calibration.uncalibrated.shares, strict=True
        )
    ]
    out.grid(Grid(head, tuple(rows), tuple(range(len(head)))))
    out.line(calibration.sentence())
    out.notes(f"left out {name}: {reason}" for name, reason in left_out)
