"""How well forecasts did on many runs, as plain data: each run's errors, and all of them together.

The scores are made in `curves.backtest`; here runs get their names and the numbers their sentences.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from groupwise.curves.backtest import BacktestSummary, summarise_backtests
from groupwise.curves.results import Backtest
from groupwise.plain import Plain
from groupwise.wording import clean, count, number, share

METHOD_NAMES = {
    "groupwise": "groupwise",
    "last_mean": "last mean",
    "exponential": "exponential",
    "scalerl_sigmoid": "sigmoid",
    "power_law": "power law",
}


@dataclass(frozen=True, slots=True)
class ScoredRun(Plain):
    """One run with its score."""

    KEYS: ClassVar[tuple[str, ...]] = ("run=name", "cluster", "*result")

    name: str  # of the run, cleaned
    cluster: str  # of the runs that depend on each other
    result: Backtest  # the score


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of all runs."""

    runs: tuple[ScoredRun, ...]  # those scored, at least one
    left_out: tuple[tuple[str, str], ...]  # name and reason of those that could not be
    summary: BacktestSummary  # all runs together

    @classmethod
    def of(cls, runs: Sequence[ScoredRun], left_out: Sequence[tuple[str, str]]) -> Scores:
        """Put scores together."""
        return cls(tuple(runs), tuple(left_out), summarise_backtests([(run.cluster, run.result) for run in runs]))

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods, ours first."""
        return tuple(self.runs[0].result.errors)

    def sentences(self) -> tuple[str, ...]:
        """What all runs together say."""
        whole = self.summary
        ratios = ", ".join(f"{number(ratio)} of {METHOD_NAMES.get(name, name)}" for name, ratio in whole.ratios.items())
        best = METHOD_NAMES.get(whole.best_simple, whole.best_simple)
        coverage = whole.coverage
        level = share(self.runs[0].result.level)
        ends = f"{share(coverage.low)} to {share(coverage.high)}"
        return (
            f"{count(whole.runs, 'run')} in {count(whole.clusters, 'cluster')}: names in one folder that differ only in numbers are one.",
            f"Error of groupwise, geometric mean over the clusters: {ratios}. The best simple method is the {best}.",
            f"The {level} band held {share(coverage.value)} of the window means ({ends}, Wilson interval by clusters).",
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        whole = self.summary
        return {
            "runs": [run.as_dict() for run in self.runs],
            "left_out": [{"run": name, "reason": reason} for name, reason in self.left_out],
            "summary": {
                "runs": whole.runs,
                "clusters": whole.clusters,
                "error_ratios": dict(whole.ratios),
                "best_simple": whole.best_simple,
                "coverage": whole.coverage.as_dict(),
            },
        }


def cluster_of(path: Path) -> str:
    """Name the cluster of a run: its folder, and its own name without numbers, so that seeds and settings of one sweep fall together."""
    name = path.resolve().name if path.name in ("", ".", "..") else path.name
    return clean(f"{path.absolute().parent.name}/{re.sub(r'[0-9]+(?:[._-][0-9]+)*', '#', name)}")
