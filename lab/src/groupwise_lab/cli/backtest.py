"""The commands `groupwise-lab backtest`, forecasts scored on what came after, and `groupwise-lab
calibrate`, a table of how runs went on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from groupwise.cli import app as cli
from groupwise.errors import GroupwiseError, InsufficientDataError
from groupwise.plain import to_json

if TYPE_CHECKING:
    from groupwise_lab.forecasts.rivals import Method
    from groupwise_lab.forecasts.runs import TriedRun


def shares(param: typer.CallbackParam, given: list[float] | None) -> list[float] | None:
    """Refuse what is no share among several."""
    for share in given or ():
        cli.proportion(param, share)
    return given


def backtest(
    runs: list[Path],
    *,
    metric: str = "reward",
    from_share: Annotated[
        list[float] | None,
        typer.Option(
            "--from",
            metavar="SHARE",
            help="Share of each run that the forecast sees. Repeatable; by default .1, .2, .4 "
            "and .6.",
            callback=shares,
        ),
    ] = None,
    level: float = 0.9,
    calibration: Path | None = None,
    min_rows: int = 20,
    opening: cli.Opening,
    verbose: bool = False,
    as_json: bool = False,
) -> None:
    """Forecast each run from its beginning and score that on the rest, beside simple methods."""
    from groupwise.forecasting.forecast import shipped
    from groupwise_lab.forecasts.backtest import SHARES
    from groupwise_lab.forecasts.runs import ScoredRun, Scores
    from groupwise_lab.forecasts.text import print_scores

    table = cli.calibration_of(calibration) or shipped()
    tried = tried_runs(runs, opening, metric, from_share or SHARES, min_rows, quiet=as_json)
    scores = Scores.of(
        [
            ScoredRun(run.name, run.cluster, run.trial.score(table, level=level))
            for run in tried.runs
        ],
        tried.left_out,
    )
    if as_json:
        cli.print_json(scores.as_dict())
    else:
        print_scores(scores, cli.out_console(), every=verbose)


@dataclass(slots=True)
class Tried:
    """What was foretold of the runs of a command."""

    runs: list[TriedRun] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(
        default_factory=list
    )  # name and reason of those that could not be
    logs: list[Path] = field(default_factory=list)  # the files that they were read from


def tried_runs(
    paths: Sequence[Path],
    opening: cli.Opening,
    metric: str,
    shares: Sequence[float],
    min_rows: int,
    *,
    methods: Mapping[str, Method] | None = None,
    quiet: bool,
) -> Tried:
    """Foretell each run from each cli.share of it, and name those that cannot be with the
    reason.
    """
    from groupwise.series.metric import metric_series
    from groupwise.wording import clean
    from groupwise_lab.forecasts.runs import TriedRun, cluster_of, trial_of

    tried = Tried()
    with cli.advancing(quiet=quiet, total=len(paths)) as step:
        for path in paths:
            step(f"forecasting {path.name}")
            try:
                record = opening.open(path)
                series = metric_series(record, metric)
                if len(series.value_T) < min_rows:
                    raise InsufficientDataError(
                        f"expected at least {min_rows} rows with {series.metric}, got "
                        f"{len(series.value_T)}"
                    )
            except GroupwiseError as error:
                tried.left_out.append((clean(path.name), clean(error, longest=500)))
                continue
            tried.logs += cli.logs_of(record)
            for share in shares:
                try:
                    tried.runs.append(
                        TriedRun(
                            clean(record.name), cluster_of(path), trial_of(series, share, methods)
                        )
                    )
                except GroupwiseError as error:
                    tried.left_out.append((clean(path.name), clean(error, longest=500)))
    if not tried.runs:
        name, reason = tried.left_out[0]
        raise InsufficientDataError(
            reason
            if len(paths) == 1
            else f"none of {len(paths)} runs can be scored; {name}: {reason}"
        )
    return tried


def calibrate(
    runs: list[Path],
    *,
    output: Path,
    metric: str = "reward",
    min_rows: int = 40,
    opening: cli.Opening,
    force: bool = False,
    as_json: bool = False,
) -> None:
    """Make a table of how runs went on after a forecast, which stretches the bands of forecasts
    to come.
    """
    from groupwise.files import free_target, write_whole
    from groupwise_lab.forecasts.backtest import SHARES
    from groupwise_lab.forecasts.calibrate import written
    from groupwise_lab.forecasts.rivals import last_mean, smoothing
    from groupwise_lab.forecasts.runs import calibrated
    from groupwise_lab.forecasts.text import print_calibration

    configs = [opening.config] if opening.config else []
    free_target(output, [*runs, *configs], force=force, endings=(".json",))
    methods = {"last_mean": last_mean, "smoothing": smoothing}
    tried = tried_runs(runs, opening, metric, SHARES, min_rows, methods=methods, quiet=as_json)
    with cli.advancing(quiet=as_json, total=len({run.cluster for run in tried.runs})) as step:
        calibration = calibrated(tried.runs, step)
    free_target(output, [*runs, *configs, *tried.logs], force=force)
    write_whole(output, to_json(written(calibration.table)) + "\n", force=force)
    if as_json:
        cli.print_json(
            calibration.as_dict()
            | {"left_out": [{"run": name, "reason": reason} for name, reason in tried.left_out]}
        )
    else:
        print_calibration(calibration, tried.left_out, cli.out_console())
        cli.print_lines(f"The table: {output}")
