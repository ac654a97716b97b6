"""The commands `groupwise fit`, all laws of one metric, and `groupwise forecast`."""

from pathlib import Path

from groupwise.cli import app as cli
from groupwise.errors import InsufficientDataError


def fit(
    run: Path,
    *,
    metric: str = "reward",
    law: str | None = None,
    until: float | None = None,
    level: float = 0.95,
    opening: cli.Opening,
    as_json: bool = False,
) -> None:
    """Fit the laws to one metric: parameters with intervals, and what they mean."""
    from groupwise.analysis.fitted import fit_metric
    from groupwise.forecasting.laws import law_by_name
    from groupwise.pages.text import print_fit

    if law is not None:
        law_by_name(law)
    record = opening.open(run)
    fitted = fit_metric(record, metric, until=until, level=level, law=law)
    if fitted.problem:
        raise InsufficientDataError(fitted.problem)
    judged = cli.judgement_of(record, until)
    if as_json:
        cli.print_json(cli.stands(judged) | fitted.as_dict())
    else:
        print_fit(fitted, judged, cli.out_console())


def forecast(
    run: Path,
    *,
    metric: str = "reward",
    until: float | None = None,
    at: str | None = None,
    level: float = 0.9,
    calibration: Path | None = None,
    opening: cli.Opening,
    as_json: bool = False,
) -> None:
    """Forecast one metric, with a band for its mean and one for the next rows."""
    from groupwise.analysis.fitted import ForecastRequest, fit_metric
    from groupwise.pages.text import print_forecast

    steps = cli.steps_of(at)
    record = opening.open(run)
    table = cli.calibration_of(calibration)
    fitted = fit_metric(record, metric, until=until, ahead=ForecastRequest(steps, level, table))
    if fitted.problem:
        raise InsufficientDataError(fitted.problem)
    judged = cli.judgement_of(record, until)
    if as_json:
        answer = fitted.told_ahead(judged).as_dict()
        cli.print_json({**cli.stands(judged), "metric": fitted.metric, **answer})
    else:
        print_forecast(fitted, judged, cli.out_console())
