"""The command `groupwise report`: one page on one or several runs.

What stands on the page is decided in `groupwise.report`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from groupwise.cli.options import (
    Opening,
    checked_share,
    checked_until,
    free_target,
    out_console,
    print_json,
    progress,
    steps_of,
    typed_arguments,
    write_whole,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from groupwise.analysis.summary import Summary

DEFAULT = Path("groupwise-report.html")
_FEWEST_POINTS = 120


def run(
    paths: Sequence[Path],
    opening: Opening,
    *,
    output: Path | None,
    metric: str,
    until: float | None,
    at: str | None,
    level: float,
    as_json: bool,
    force: bool,
) -> None:
    """Summarise, write the page, print."""
    checked_share("--level", level)
    checked_until(until)
    steps = steps_of(at)
    target = output if output is not None or as_json else DEFAULT
    from groupwise.analysis.component_file import path_beside

    inputs = [*paths, *map(path_beside, paths), *([opening.config] if opening.config else [])]
    if target is not None:
        free_target(target, inputs, force=force)
    with progress(quiet=as_json, total=2 * len(paths) + 1) as step:
        summaries = _summaries(paths, opening, metric=metric, until=until, at=steps, level=level, step=step, inputs=inputs)
        from groupwise.report.html import made_by

        made = made_by(typed_arguments([*paths, *([target] if target else []), *([opening.config] if opening.config else [])]))
        if target is not None:
            step("drawing")
            from groupwise.report.html import render

            free_target(target, inputs, force=force)
            write_whole(target, render(summaries, provenance=made), force=force)
    if as_json:
        print_json({"provenance": made, "runs": [summary.as_dict() for summary in summaries]})
        return
    from groupwise.report.text import print_summary

    console = out_console()
    for summary in summaries:
        print_summary(summary, console)
    console.print(f"\nThe page: {target}", highlight=False, markup=False, soft_wrap=True)


def _summaries(
    paths: Sequence[Path],
    opening: Opening,
    *,
    metric: str,
    until: float | None,
    at: Sequence[float] | None,
    level: float,
    step: Callable[[str], None],
    inputs: list[Path],
) -> list[Summary]:
    """Open and summarise each run, add its files to the inputs; with many runs lines keep fewer points, so that pages stay small."""
    from groupwise.analysis.charts import POINTS
    from groupwise.analysis.summary import summarise

    points = max(_FEWEST_POINTS, POINTS // len(paths))
    summaries = []
    for path in paths:
        step(f"reading {path.name}")
        record = opening.open(path)
        inputs += [Path(source.path) for source in record.sources]
        step(f"fitting {path.name}")
        summaries.append(summarise(record, metric=metric, until=until, at=at, forecast_level=level, points=points, opened=path))
    return summaries
