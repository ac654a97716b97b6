"""The command `groupwise forecast`: where one metric goes."""

from __future__ import annotations

from groupwise.cli.shared import (
    At,
    BandLevel,
    Column,
    Config,
    Json,
    Metric,
    Opening,
    Run,
    Settings,
    Until,
    out_console,
    print_json,
    steps_of,
)
from groupwise.errors import InsufficientDataError


def forecast(
    run: Run,
    *,
    metric: Metric = "reward",
    until: Until = None,
    at: At = None,
    level: BandLevel = 0.9,
    settings: Settings = None,
    config: Config = None,
    column: Column = None,
    as_json: Json = False,
) -> None:
    """Forecast one metric, with a band for its mean and one for the next rows."""
    from groupwise.analysis.fitted import cut, fit_metric
    from groupwise.diagnostics.judge import judge
    from groupwise.record.run import has_ended
    from groupwise.report.text import print_forecast

    opening = Opening.parse(column=column, settings=settings, config=config)
    steps = steps_of(at)
    record = opening.open(run)
    fitted = fit_metric(record, metric, until=until, at=steps, forecast_level=level)
    if fitted.outlook is None:
        raise InsufficientDataError(fitted.problem)
    judged = judge(cut(record, until), ended=has_ended(record))
    stands = {"state": judged.state, "headline": judged.headline}
    if as_json:
        print_json({**stands, "metric": fitted.metric, **fitted.outlook.as_dict()})
    else:
        print_forecast(fitted, judged, out_console())
