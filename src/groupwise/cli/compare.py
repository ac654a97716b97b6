"""The command `groupwise compare`: did a run fail, is a difference more than seeds do?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from groupwise.cli import app as cli
from groupwise.errors import InvalidArgumentError

if TYPE_CHECKING:
    from groupwise.record.run import RunRecord

_APART = "vs"


def compare(
    runs: list[Path],
    *,
    by: str | None = None,
    baseline: str | None = None,
    metric: str = "reward",
    until: float | None = None,
    late: float = 0.25,
    reach: float | None = None,
    level: float = 0.95,
    opening: cli.Opening,
    why: bool = False,
    as_json: bool = False,
) -> None:
    """Did a run fail, and is the difference of the others real?

    Level and speed, with step noise and seed noise apart.
    """
    from groupwise.analysis.compare import compare_runs, run_groups
    from groupwise.comparison.compare import Question
    from groupwise.pages.comparison import print_comparison
    from groupwise.readers.find import run_records

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
