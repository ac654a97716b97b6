"""The command `groupwise calibrate`: a table of how runs went on after a forecast."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from groupwise.cli import shared as cli
from groupwise.cli.backtest import tried_runs
from groupwise.plain import to_json


def calibrate(
    runs: cli.Runs,
    *,
    output: Annotated[Path, cli.option("FILE.json", "The table to write.", "-o", "--output")],
    metric: cli.Metric = "reward",
    min_rows: Annotated[int, cli.option("ROWS", "Leave out runs with fewer rows of the metric.", check=cli.whole(1))] = 40,
    settings: cli.Settings = None,
    config: cli.Config = None,
    column: cli.Column = None,
    force: Annotated[bool, cli.flag("--force", "Overwrite a table that is there already.")] = False,
    as_json: cli.Json = False,
) -> None:
    """Make a table of how runs went on after a forecast, which stretches the bands of forecasts to come."""
    from groupwise.analysis.calibrate import calibrated
    from groupwise.curves.backtest import SHARES
    from groupwise.curves.rivals import last_mean, smoothing
    from groupwise.files import free_target, write_whole
    from groupwise.report.text import print_calibration

    configs = [config] if config else []
    free_target(output, [*runs, *configs], force=force, endings=(".json",))
    opening = cli.Opening.parse(column=column, settings=settings, config=config)
    methods = {"last_mean": last_mean, "smoothing": smoothing}
    tried = tried_runs(runs, opening, metric, SHARES, min_rows, methods=methods, quiet=as_json)
    with cli.advancing(quiet=as_json, total=len({one.cluster for one in tried.runs})) as step:
        found = calibrated(tried.runs, step)
    free_target(output, [*runs, *configs, *tried.logs], force=force)
    write_whole(output, to_json(found.table.as_dict()) + "\n", force=force)
    if as_json:
        cli.print_json(found.as_dict() | {"left_out": [{"run": name, "reason": reason} for name, reason in tried.left_out]})
    else:
        print_calibration(found, tried.left_out, cli.out_console())
        cli.print_lines(f"The table: {output}")
