"""The command `groupwise report`: one page on one or several runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from groupwise.cli.shared import (
    At,
    BandLevel,
    Column,
    Config,
    Json,
    Metric,
    Opening,
    Runs,
    Settings,
    Until,
    advancing,
    flag,
    free_target,
    logs_of,
    option,
    out_console,
    print_json,
    print_lines,
    steps_of,
    typed_arguments,
    write_whole,
)

DEFAULT = Path("groupwise-report.html")
_FEWEST_POINTS = 120


def report(
    runs: Runs,
    *,
    output: Annotated[Path | None, option("FILE", "The page; by default groupwise-report.html in this folder.", "--output", "-o")] = None,
    metric: Metric = "reward",
    until: Until = None,
    at: At = None,
    level: BandLevel = 0.9,
    settings: Settings = None,
    config: Config = None,
    column: Column = None,
    as_json: Json = False,
    force: Annotated[bool, flag("--force", "Overwrite a page that is there already.")] = False,
) -> None:
    """Write one page on one or several runs, and its summary here."""
    from groupwise.analysis.charts import POINTS
    from groupwise.analysis.component_file import path_beside
    from groupwise.analysis.summary import summarise
    from groupwise.report.html import made_by, render
    from groupwise.report.text import print_summary

    opening = Opening.parse(column=column, settings=settings, config=config)
    steps = steps_of(at)
    target = output if output is not None or as_json else DEFAULT
    configs = [config] if config else []
    inputs = [*runs, *map(path_beside, runs), *configs]
    if target is not None:
        free_target(target, inputs, force=force)
    points = max(_FEWEST_POINTS, POINTS // len(runs))  # with many runs lines keep fewer points, so that pages stay small
    summaries = []
    with advancing(quiet=as_json, total=2 * len(runs) + 1) as step:
        for path in runs:
            step(f"reading {path.name}")
            record = opening.open(path)
            inputs += logs_of(record)
            step(f"fitting {path.name}")
            summaries.append(summarise(record, metric=metric, until=until, at=steps, forecast_level=level, points=points, opened=path))
        made = made_by(typed_arguments([*runs, *([target] if target else []), *configs]))
        if target is not None:
            step("drawing")
            free_target(target, inputs, force=force)
            write_whole(target, render(summaries, provenance=made), force=force)
    if as_json:
        print_json({"provenance": made, "runs": [summary.as_dict() for summary in summaries]})
        return
    for summary in summaries:
        print_summary(summary, out_console())
    print_lines(f"\nThe page: {target}")
