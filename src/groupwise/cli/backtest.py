"""The command `groupwise backtest`: forecasts scored on what came after."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from groupwise.cli import shared as cli
from groupwise.errors import GroupwiseError, InsufficientDataError

if TYPE_CHECKING:
    from groupwise.analysis.backtest import ScoredRun


def backtest(
    runs: cli.Runs,
    *,
    metric: cli.Metric = "reward",
    from_share: Annotated[float, cli.option("SHARE", "Share of each run that the forecast sees.", "--from", check=cli.share)] = 0.4,
    level: cli.BandLevel = 0.9,
    min_rows: Annotated[int, cli.option("ROWS", "Leave out runs with fewer rows of the metric.", check=cli.whole(1))] = 20,
    settings: cli.Settings = None,
    config: cli.Config = None,
    column: cli.Column = None,
    as_json: cli.Json = False,
) -> None:
    """Forecast each run from its beginning and score that on the rest, beside simple methods."""
    from groupwise.analysis.backtest import Scores
    from groupwise.report.text import print_scores
    from groupwise.wording import clean

    opening = cli.Opening.parse(column=column, settings=settings, config=config)
    scored: list[ScoredRun] = []
    left_out: list[tuple[str, str]] = []
    with cli.advancing(quiet=as_json, total=len(runs)) as step:
        for path in runs:
            step(f"forecasting {path.name}")
            try:
                scored.append(_score(path, opening, metric, from_share=from_share, level=level, min_rows=min_rows))
            except GroupwiseError as error:
                left_out.append((clean(path.name), clean(error, longest=500)))
    if not scored:
        name, reason = left_out[0]
        raise InsufficientDataError(reason if len(left_out) == 1 else f"none of {len(left_out)} runs can be scored; {name}: {reason}")
    scores = Scores.of(scored, left_out)
    if as_json:
        cli.print_json(scores.as_dict())
    else:
        print_scores(scores, cli.out_console())


def _score(path: Path, opening: cli.Opening, metric: str, *, from_share: float, level: float, min_rows: int) -> ScoredRun:
    """Score one run."""
    from groupwise.analysis.backtest import ScoredRun, cluster_of
    from groupwise.curves.backtest import backtest as score_forecast
    from groupwise.series.metric import metric_series
    from groupwise.wording import clean

    record = opening.open(path)
    series = metric_series(record, metric)
    if len(series.value_T) < min_rows:
        raise InsufficientDataError(f"expected at least {min_rows} rows with {series.metric}, got {len(series.value_T)}")
    result = score_forecast(
        series.time_T,
        series.value_T,
        variance_T=series.variance_T,
        window=series.window,
        smoothing=series.smoothing,
        from_share=from_share,
        level=level,
        healthy=series.healthy,
        bounds=series.bounds,
    )
    return ScoredRun(clean(record.name), cluster_of(path), result)
