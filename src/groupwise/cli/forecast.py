"""The command `groupwise forecast`: where one metric goes."""

from __future__ import annotations

from typing import Annotated

from groupwise.cli import shared as cli
from groupwise.errors import InsufficientDataError


def forecast(
    run: cli.Run,
    *,
    metric: cli.Metric = "reward",
    until: cli.Until = None,
    at: cli.At = None,
    target: Annotated[float | None, cli.option("LEVEL", "Say how likely the mean ends above this level, and when it is reached.")] = None,
    level: cli.BandLevel = 0.9,
    calibration: cli.CalibrationTable = None,
    settings: cli.Settings = None,
    config: cli.Config = None,
    column: cli.Column = None,
    as_json: cli.Json = False,
) -> None:
    """Forecast one metric, with a band for its mean and one for the next rows."""
    from groupwise.analysis.fitted import Ahead, cut, fit_metric
    from groupwise.diagnostics.judge import judge
    from groupwise.record.run import has_ended
    from groupwise.report.text import print_forecast

    opening = cli.Opening.parse(column=column, settings=settings, config=config)
    steps = cli.steps_of(at)
    record = opening.open(run)
    table = cli.calibration_of(calibration)
    fitted = fit_metric(record, metric, until=until, ahead=Ahead(steps, level, target, table))
    if fitted.outlook is None:
        raise InsufficientDataError(fitted.problem)
    judged = judge(cut(record, until), ended=has_ended(record))
    stands = {"state": judged.state, "headline": judged.headline}
    if as_json:
        cli.print_json({**stands, "metric": fitted.metric, **fitted.outlook.as_dict()})
    else:
        print_forecast(fitted, judged, cli.out_console())
