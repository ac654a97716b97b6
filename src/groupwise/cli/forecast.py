"""The command `groupwise forecast`: where one metric goes.

The mathematics is in `groupwise.curves`.
"""

from __future__ import annotations

from pathlib import Path

from groupwise.cli.options import Opening, checked_share, checked_until, out_console, print_json, steps_of
from groupwise.errors import InsufficientDataError


def run(path: Path, opening: Opening, *, metric: str, until: float | None, at: str | None, level: float, as_json: bool) -> None:
    """Forecast and print."""
    checked_share("--level", level)
    checked_until(until)
    steps = steps_of(at)
    from groupwise.analysis.fitted import fit_metric

    fitted = fit_metric(opening.open(path), metric, until=until, at=steps, forecast_level=level, with_rivals=False)
    if fitted.outlook is None:
        raise InsufficientDataError(fitted.problem)
    if as_json:
        print_json({"metric": fitted.metric, **fitted.outlook.as_dict()})
        return
    from groupwise.report.text import print_forecast

    print_forecast(fitted, out_console())
