"""How well forecasts did on many runs, as plain data, and a table of calibration from runs that
have ended, scored on those left out.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from groupwise.errors import InsufficientDataError
from groupwise.forecasting.forecast import Calibration
from groupwise.forecasting.observations import rate_clock
from groupwise.intervals import Interval, percent
from groupwise.parsing import JsonObject
from groupwise.plain import Plain, frozen
from groupwise.wording import alike, clean, count, number
from groupwise_lab.forecasts.backtest import Trial, rows_seen, trial
from groupwise_lab.forecasts.calibrate import UNCALIBRATED, calibrate, written
from groupwise_lab.forecasts.results import Backtest
from groupwise_lab.forecasts.scoreboard import (
    FEWEST_CLUSTERS,
    BacktestSummary,
    Pooled,
    summarise_backtests,
)

if TYPE_CHECKING:
    from groupwise.series.metric import MetricSeries
    from groupwise_lab.forecasts.rivals import Method

METHOD_NAMES = {
    "groupwise": "groupwise",
    "last_mean": "last mean",
    "smoothing": "smoothing",
    "power_law": "power law",
    "scalerl_sigmoid": "sigmoid",
    "ets_damped": "ETS",
    "theta": "theta",
}


def trial_of(
    series: MetricSeries, seen: float, methods: Mapping[str, Method] | None = None
) -> Trial:
    """Foretell the rest of a series from a share of it; its likely range and the learning rate to
    come are known by the rows seen alone.
    """
    cut = rows_seen(series.value_T.size, seen)
    likely = dataclasses.replace(series, value_T=series.value_T[:cut]).likely_bounds
    rate = None if series.rate_T is None else series.rate_T[:cut]
    time = rate_clock(series.time_T[:cut], rate, series.time_T)
    given = {
        "window": series.window,
        "smoothing": series.smoothing,
        "bounds": likely,
        "methods": methods,
    }
    return trial(time, series.value_T, seen, **given)  # type: ignore[arg-type]


@frozen
class TriedRun:
    """What was foretold of one run from one share of it."""

    name: str  # of the run, cleaned
    cluster: str  # of the runs that depend on each other
    trial: Trial


@frozen
class ScoredRun(Plain):
    """One run with its score from one share of it."""

    KEYS: ClassVar = "run=name cluster *result"

    name: str  # of the run, cleaned
    cluster: str  # of the runs that depend on each other
    result: Backtest  # the score


@frozen
class Scores:
    """Scores of all runs."""

    runs: tuple[ScoredRun, ...]  # those scored, each once a share, at least one
    left_out: tuple[tuple[str, str], ...]  # name and reason of those that could not be
    summary: BacktestSummary  # all runs together

    @classmethod
    def of(cls, runs: Sequence[ScoredRun], left_out: Sequence[tuple[str, str]]) -> Scores:
        """Put scores together."""
        return cls(
            tuple(runs),
            tuple(dict.fromkeys(left_out)),
            summarise_backtests([(run.cluster, run.result) for run in runs]),
        )

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods, ours first."""
        return ("groupwise", *self.summary.whole.ratios)

    def sentences(self) -> tuple[str, ...]:
        """What all runs together say."""
        whole, level = self.summary.whole, percent(self.runs[0].result.level)
        ratios = ", ".join(
            f"{_ratio(ratio)} of {METHOD_NAMES.get(name, name)}"
            for name, ratio in whole.ratios.items()
        )
        few = self.summary.clusters < FEWEST_CLUSTERS
        doubt = (
            (
                f"Fewer than {FEWEST_CLUSTERS} clusters tell nothing of how far these figures may "
                "be off."
            )
            if few
            else "In brackets are 95 % intervals, drawn over clusters."
        )
        return (
            (
                f"{count(self.summary.runs, 'run')} in {count(self.summary.clusters, 'cluster')}: "
                "names in one folder that differ only in numbers are one."
            ),
            f"Error of groupwise over all shares: {ratios}.",
            (
                f"The {level} band held {held(whole)} of the window means, {percent(whole.above)} "
                f"lay above it and {percent(whole.below)} below."
            ),
            doubt,
        )

    def as_dict(self) -> JsonObject:
        """Plain data for JSON."""
        return {
            "summary": self.summary.as_dict(),
            "runs": [run.as_dict() for run in self.runs],
            "left_out": [{"run": name, "reason": reason} for name, reason in self.left_out],
        }


def _ratio(ratio: Interval) -> str:
    """Write a ratio, with its interval where there is one."""
    if not math.isfinite(ratio.high):
        return number(ratio.value, digits=2)
    value, low, high = alike(ratio.value, ratio.low, ratio.high)
    return f"{value} ({low} to {high})"


def held(pooled: Pooled) -> str:
    """Write the coverage, with its interval where there is one."""
    coverage = pooled.coverage
    return (
        percent(coverage.value)
        if (coverage.low, coverage.high) == (0.0, 1.0)
        else f"{percent(coverage.value)} ({percent(coverage.low)} to {percent(coverage.high)})"
    )


def cluster_of(path: Path) -> str:
    """Name the cluster of a run: its folder, and its own name without numbers, so that seeds and
    settings of one sweep fall together.
    """
    name = path.resolve().name if path.name in ("", ".", "..") else path.name
    return clean(f"{path.absolute().parent.name}/{re.sub(r'[0-9]+(?:[._-][0-9]+)*', '#', name)}")


_FEWEST_TO_LEAVE_OUT = 3
TOO_FAR = 1.3  # error over another method's that no cluster is to pass


@frozen
class Calibrated:
    """A table, and the scores of the runs that it was made from."""

    table: Calibration
    by_others: BacktestSummary  # each cluster by the table of the others
    uncalibrated: BacktestSummary  # by no table
    alone: Mapping[str, BacktestSummary]  # each cluster by the table of the others

    def sentence(self) -> str:
        """What the table is worth, in a sentence."""
        whole, bare = self.by_others.whole, self.uncalibrated.whole
        return (
            f"The 90 % band held {held(whole)} of the window means, {percent(whole.above)} lay "
            f"above it and {percent(whole.below)} below; without a table it held "
            f"{percent(bare.coverage.value)}."
        )

    def worst(self) -> str:
        """Where the error of the mean is furthest above that of the last mean, in a sentence; ""
        where that was not tried.
        """
        error = {
            name: part.whole.ratios["last_mean"].value
            for name, part in self.alone.items()
            if "last_mean" in part.whole.ratios
        }
        name = max(error, key=error.__getitem__, default="")
        many = sum(ratio > TOO_FAR for ratio in error.values())
        return (
            f"In the worst cluster, {name}, the error is {error[name]:.2f} of the last mean's; it "
            f"is over {TOO_FAR} in {many} of {len(error)}."
            if error
            else ""
        )

    def as_dict(self) -> JsonObject:
        """Plain data for JSON."""
        return {
            "table": written(self.table),
            "by_others": self.by_others.as_dict(),
            "uncalibrated": self.uncalibrated.as_dict(),
        }


def calibrated(
    tried: Sequence[TriedRun], step: Callable[[str], None] = lambda _doing: None
) -> Calibrated:
    """Make a table, and score every cluster by the table of the others."""
    clusters = sorted({run.cluster for run in tried})
    if len(clusters) < _FEWEST_TO_LEAVE_OUT:
        raise InsufficientDataError(
            f"expected runs of at least {_FEWEST_TO_LEAVE_OUT} clusters, got "
            f"{count(len(clusters), 'cluster')}: names in one folder that differ only in numbers "
            "are one; add runs of other work"
        )
    cases = [run.trial.case(run.cluster, run.name) for run in tried]
    scored = {}
    for cluster in clusters:
        step(f"leaving out {cluster}")
        table = calibrate([case for case in cases if case.cluster != cluster])
        scored[cluster] = [
            (cluster, run.trial.score(table)) for run in tried if run.cluster == cluster
        ]
    return Calibrated(
        calibrate(cases),
        summarise_backtests([test for own in scored.values() for test in own]),
        summarise_backtests([(run.cluster, run.trial.score(UNCALIBRATED)) for run in tried]),
        {cluster: summarise_backtests(own) for cluster, own in scored.items()},
    )
