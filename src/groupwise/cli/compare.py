"""The command `groupwise compare`: did a run fail, is a difference more than seeds do?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from groupwise.cli import app as cli
from groupwise.errors import InvalidArgumentError

if TYPE_CHECKING:
    from groupwise.record.run import RunRecord

_APART = "vs"


def compare(
    runs: Annotated[
        list[Path],
        cli.argument(
            "RUN...",
            "The runs to compare, each its own group, or one file with several runs; A1 A2 vs B1 "
            "B2 compares two groups of runs.",
        ),
    ],
    *,
    by: Annotated[
        str | None,
        cli.option("KEY", "Group the runs by a setting, a column, or a part of their names."),
    ] = None,
    baseline: Annotated[
        str | None,
        cli.option(
            "VALUE", "Value of --by to compare the others with; the default is the smallest."
        ),
    ] = None,
    metric: cli.Metric = "reward",
    until: cli.Until = None,
    late: Annotated[
        float,
        cli.option(
            "SHARE",
            "Share of the steps, at the end, whose mean is compared as the level.",
            check=cli.proportion,
        ),
    ] = 0.25,
    reach: Annotated[
        float | None,
        cli.option(
            "LEVEL",
            "Speed is the step from which this level is kept; the default is half of the change.",
        ),
    ] = None,
    level: cli.FitLevel = 0.95,
    opening: cli.Opening,
    why: Annotated[
        bool,
        typer.Option(
            "--why", "-v", help="Also print the tests, the judgement of every run, and notes."
        ),
    ] = False,
    as_json: cli.Json = False,
) -> None:
    """Did a run fail, and is the difference of the others real?

    Level and speed, with step noise and seed noise apart.
    """
    from groupwise.analysis.compare import compare_runs, run_groups
    from groupwise.comparison.compare import Question
    from groupwise.pages.comparison import print_comparison
    from groupwise.readers import run_records

    rows = _split(runs, by, baseline)
    every = [path for row in rows for path in row]
    question = Question(late, reach, level)
    with cli.advancing(quiet=as_json, total=2 * len(every)) as step:

        def opened(path: Path) -> list[RunRecord]:
            step(path.name)
            return run_records(path, **opening.asked, by=by or "")

        records = [[record for path in row for record in opened(path)] for row in rows]
        groups = run_groups(records, by, baseline)
        comparison = compare_runs(groups, metric, question, until=until, sorted_by=by, step=step)
    if as_json:
        cli.print_json(comparison.as_dict())
    else:
        print_comparison(comparison, cli.out_console(), why=why)


def _split(paths: Sequence[Path], by: str | None, baseline: str | None) -> list[list[Path]]:
    """Paths in groups: those between two `vs`; all of them in one without it."""
    rows: list[list[Path]] = [[]]
    for path in paths:
        if str(path) == _APART:
            rows.append([])
        else:
            rows[-1].append(path)
    if len(rows) > 1 and by is not None:
        raise InvalidArgumentError(
            f"expected groups separated by {_APART} or by --by, got both: leave one of them out"
        )
    if not all(rows):
        raise InvalidArgumentError(
            f"expected runs on both sides of {_APART}, got none on one side: write A1 A2 {_APART} "
            "B1 B2"
        )
    if baseline is not None and by is None:
        raise InvalidArgumentError(
            "--baseline needs --by, whose values it chooses from; got no --by"
        )
    return rows
