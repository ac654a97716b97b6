"""A table of calibration from runs that have ended, and what it is worth: every cluster foretold by the table of the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from groupwise.analysis.backtest import TriedRun, held
from groupwise.curves.calibration import UNCALIBRATED, Calibration, calibrate
from groupwise.curves.scoreboard import BacktestSummary, summarise_backtests
from groupwise.errors import InsufficientDataError
from groupwise.wording import count, share

FEWEST_CLUSTERS = 3


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A table, and the scores of the runs that it was made from."""

    table: Calibration
    by_others: BacktestSummary  # each cluster by the table of the others
    uncalibrated: BacktestSummary  # by no table

    def sentence(self) -> str:
        """What the table is worth, in a sentence."""
        whole, bare = self.by_others.whole, self.uncalibrated.whole
        return (
            f"The 90 % band held {held(whole)} of the window means, {share(whole.above)} lay above it and {share(whole.below)} below; "
            f"without a table it held {share(bare.coverage.value)}."
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"table": self.table.as_dict(), "by_others": self.by_others.as_dict(), "uncalibrated": self.uncalibrated.as_dict()}


def calibrated(tried: Sequence[TriedRun], step: Callable[[str], None] = lambda _doing: None) -> Calibrated:
    """Make a table, and score every cluster by the table of the others."""
    clusters = sorted({one.cluster for one in tried})
    if len(clusters) < FEWEST_CLUSTERS:
        raise InsufficientDataError(
            f"expected runs of at least {FEWEST_CLUSTERS} clusters, got {count(len(clusters), 'cluster')}: "
            "names in one folder that differ only in numbers are one; add runs of other work"
        )
    cases = [one.trial.case(one.cluster, one.name) for one in tried]
    scored = []
    for cluster in clusters:
        step(f"leaving out {cluster}")
        table = calibrate([case for case in cases if case.cluster != cluster])
        scored += [(cluster, one.trial.score(table)) for one in tried if one.cluster == cluster]
    bare = [(one.cluster, one.trial.score(UNCALIBRATED)) for one in tried]
    return Calibrated(calibrate(cases), summarise_backtests(scored), summarise_backtests(bare))
