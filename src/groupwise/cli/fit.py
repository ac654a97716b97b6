"""The command `groupwise fit`: one metric, all laws."""

from __future__ import annotations

from typing import Annotated

from groupwise.cli import shared as cli
from groupwise.errors import InsufficientDataError


def fit(
    run: cli.Run,
    *,
    metric: cli.Metric = "reward",
    law: Annotated[str | None, cli.option("NAME", "Fit this law alone; by default all of them compete.")] = None,
    until: cli.Until = None,
    level: cli.FitLevel = 0.95,
    settings: cli.Settings = None,
    config: cli.Config = None,
    column: cli.Column = None,
    as_json: cli.Json = False,
) -> None:
    """Fit the laws to one metric: parameters with intervals, and what they mean."""
    from groupwise.analysis.fitted import cut, fit_metric
    from groupwise.curves.laws import law_by_name
    from groupwise.diagnostics.judge import judge
    from groupwise.record.run import has_ended
    from groupwise.report.text import print_fit

    opening = cli.Opening.parse(column=column, settings=settings, config=config)
    if law is not None:
        law_by_name(law)
    record = opening.open(run)
    fitted = fit_metric(record, metric, until=until, level=level, law=law)
    if fitted.fit is None:
        raise InsufficientDataError(fitted.problem)
    judged = judge(cut(record, until), ended=has_ended(record))
    stands = {"state": judged.state, "headline": judged.headline}
    if as_json:
        cli.print_json(stands | fitted.as_dict())
    else:
        print_fit(fitted, judged, cli.out_console())
