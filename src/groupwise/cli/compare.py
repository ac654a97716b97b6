"""The command `groupwise compare`: is the difference of runs real, or is it what seeds do?

The mathematics is in `groupwise.comparison`; here paths become groups of runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from groupwise.cli.options import Opening, checked_share, checked_until, free_target, out_console, print_json, progress, write_whole
from groupwise.errors import InvalidArgumentError

if TYPE_CHECKING:
    from groupwise.analysis.compare import RunGroup

_APART = "vs"


@dataclass(frozen=True, slots=True)
class Grouping:
    """How runs become groups."""

    by: str | None  # a setting that groups them, or None
    baseline: str | None  # its value in the group that the others are held against, or None
    pair_by: str | None  # a setting that pairs runs of two groups, or None


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of the runs."""

    metric: str  # what to compare
    until: float | None  # last step to use
    late: float  # share of the steps whose mean is the level
    reach: float | None  # level that speed is the time to, or None
    effect: float | None  # smallest difference that matters, or None
    seed_deviation: float | None  # spread of seeds where it is known, or None
    level: float  # coverage of the intervals


def run(
    paths: Sequence[Path], opening: Opening, grouping: Grouping, asked: Asked, *, output: Path | None, force: bool, as_json: bool
) -> None:
    """Open, group, compare, print."""
    checked_share("--late", asked.late, example="for the last quarter write 0.25")
    checked_share("--level", asked.level)
    checked_until(asked.until)
    rows = _split(paths, grouping)
    every = [path for row in rows for path in row]
    if output is not None:
        if output.suffix.lower() != ".svg":
            raise InvalidArgumentError(f"-o expects a name that ends in .svg; got {output.name!r}")
        free_target(output, every, force=force)
    from groupwise.analysis.compare import compare_runs, comparison_chart, unpaired_note
    from groupwise.comparison.compare import Question

    paired = grouping.pair_by is not None
    question = Question(asked.late, asked.reach, asked.effect, asked.seed_deviation, asked.level, paired)
    with progress(quiet=as_json, total=2 * len(every)) as step:
        typed, groups = _groups(rows, opening, grouping, step)
        besides = [name for name in (grouping.by, grouping.pair_by) if name]
        notes = unpaired_note(typed, groups, grouping.pair_by) if grouping.pair_by else []
        found = compare_runs(groups, asked.metric, question, until=asked.until, besides=besides, notes=notes, step=step)
    if output is not None:
        if len(found.found.pairings) > 1:
            raise InvalidArgumentError(f"-o expects two groups, got {len(groups)}: name the two to be drawn")
        from groupwise.report.figures import standalone

        write_whole(output, standalone(comparison_chart(found, found.found.pairings[0]), prefix="compare"), force=force)
    if as_json:
        print_json(found.as_dict())
        return
    from groupwise.report.text import print_comparison

    print_comparison(found, out_console())
    if output is not None:
        print(f"\nThe figure: {output}")


def _split(paths: Sequence[Path], grouping: Grouping) -> list[list[Path]]:
    """Paths in groups: those between two `vs`; without one each by itself, unless a setting groups them."""
    rows: list[list[Path]] = [[]]
    for path in paths:
        if str(path) == _APART:
            rows.append([])
        else:
            rows[-1].append(path)
    if len(rows) > 1:
        if grouping.by is not None:
            raise InvalidArgumentError(f"expected groups put apart with {_APART} or with --by, got both: leave out one of them")
        if not all(rows):
            raise InvalidArgumentError(f"expected runs on both sides of {_APART}, got none on one side: write A1 A2 {_APART} B1 B2")
        return rows
    if len(rows[0]) < 2:
        raise InvalidArgumentError(f"expected two runs or more, got {len(rows[0])}: write A B, or A1 A2 {_APART} B1 B2")
    if grouping.baseline is not None and grouping.by is None:
        raise InvalidArgumentError("--baseline is a value of the setting of --by; got no --by")
    return rows if grouping.by is not None else [[path] for path in rows[0]]


def _groups(
    rows: Sequence[Sequence[Path]], opening: Opening, grouping: Grouping, step: Callable[[str], None]
) -> tuple[list[RunGroup], list[RunGroup]]:
    """Open the runs and sort them: into groups, and those into pairs where that is asked."""
    from groupwise.analysis.compare import grouped_by, paired_by, typed_groups

    records = []
    for row in rows:
        opened = []
        for path in row:
            step(path.name)
            opened.append(opening.open(path))
        records.append(opened)
    groups = typed_groups(records) if grouping.by is None else grouped_by(records[0], grouping.by, baseline=grouping.baseline)
    return groups, groups if grouping.pair_by is None else paired_by(groups, grouping.pair_by)
