"""Backtests of many runs together: every cluster of dependent runs weighs the same, and
intervals are drawn over clusters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from groupwise.arrays import Float
from groupwise.errors import InsufficientDataError
from groupwise.intervals import Interval
from groupwise.plain import Plain, frozen
from groupwise_lab.forecasts.results import Backtest, Tally

# Fewer clusters tell nothing of how far a mean of them may be off.
FEWEST_CLUSTERS = 5
_DRAWS, _SEED, _LEVEL = 2000, 0, 0.95


@frozen
class Pooled(Plain):
    """Tallies of several runs together."""

    ratios: dict[str, Interval]  # of our error to each other method's, geometric mean over clusters
    coverage: Interval  # share of windows inside the band
    above: float  # share of windows above it
    below: float  # and below
    row_coverage: Interval  # share of single rows inside the band of rows
    interval_scores: dict[
        str, float
    ]  # of each method with a band, in standard deviations of the run
    crps: dict[str, float]  # in the same
    widths: dict[str, float]  # of our bands of windows and rows, in the same


@frozen
class ShareSummary(Plain):
    """All runs seen to one share."""

    KEYS = "share runs clusters *whole thirds"

    share: float
    runs: int
    clusters: int
    whole: Pooled
    thirds: tuple[Pooled, ...]  # the near, the middle and the far third of the windows


@frozen
class BacktestSummary(Plain):
    """Backtests of many runs together."""

    KEYS = "runs clusters *whole best_simple shares"

    runs: int  # runs and shares that were scored
    clusters: int
    whole: Pooled  # over all shares
    shares: tuple[ShareSummary, ...]

    @property
    def best_simple(self) -> str:
        """The method with the smallest error beside ours."""
        return max(self.whole.ratios, key=lambda name: self.whole.ratios[name].value)


def summarise_backtests(scored: Sequence[tuple[str, Backtest]]) -> BacktestSummary:
    """Put backtests together, each with the cluster of its run: seeds of one sweep are one."""
    if not scored:
        raise InsufficientDataError(
            "no run was long enough to be scored; a backtest needs at least 20 finite rows"
        )
    shares = []
    for share in sorted({test.share for _, test in scored}):
        some = [(cluster, test) for cluster, test in scored if test.share == share]
        parts = zip(
            *(
                [(cluster, test, third) for third in test.thirds]
                for cluster, test in some
                if test.thirds
            ),
            strict=True,
        )
        thirds = tuple(_pooled(part) for part in parts)
        shares.append(
            ShareSummary(
                share,
                len(some),
                len({cluster for cluster, _ in some}),
                _pooled([(*test, test[1]) for test in some]),
                thirds,
            )
        )
    return BacktestSummary(
        max(test.runs for test in shares),
        len({cluster for cluster, _ in scored}),
        _pooled([(*test, test[1]) for test in scored]),
        tuple(shares),
    )


def _pooled(scored: Sequence[tuple[str, Backtest, Tally]]) -> Pooled:
    """Put tallies together, each with its cluster and the backtest that it is of."""

    def by_cluster(value: Callable[[Backtest, Tally], float]) -> Float:
        """Mean of a number over the runs of each cluster, those left out that have none."""
        values: dict[str, list[float]] = {}
        for cluster, test, tally in scored:
            if np.isfinite(number := value(test, tally)):
                values.setdefault(cluster, []).append(number)
        return np.array([np.mean(of_one) for of_one in values.values()])

    def ratio(method: str) -> Interval:
        """Geometric mean of our error over a method's."""
        between = mean_of_clusters(by_cluster(lambda _, tally: _log_ratio(tally, method)))
        return Interval(*(float(np.exp(end)) for end in (between.value, between.low, between.high)))

    def part(value: Callable[[Tally], int]) -> Interval:
        """Mean share of the windows."""
        mean = mean_of_clusters(
            by_cluster(lambda _, tally: value(tally) / tally.windows if tally.windows else np.nan)
        )
        return Interval(mean.value, max(mean.low, 0.0), min(mean.high, 1.0))

    def scores(name: str) -> dict[str, float]:
        """Mean score of each method in standard deviations."""
        methods = _names(getattr(tally, name) for *_, tally in scored)
        return {
            method: float(
                by_cluster(
                    lambda test, tally: getattr(tally, name).get(method, np.nan) / test.deviation  # noqa: B023
                ).mean()
            )
            for method in methods
        }

    return Pooled(
        {
            method: ratio(method)
            for method in _names(tally.errors for *_, tally in scored)
            if method != "groupwise"
        },
        part(lambda tally: tally.covered),
        part(lambda tally: tally.above).value,
        part(lambda tally: tally.below).value,
        part(lambda tally: tally.rows_covered),
        scores("interval_scores"),
        scores("crps"),
        scores("widths"),
    )


def _names(given: Iterable[Mapping[str, float]]) -> list[str]:
    """All names, in their order, each once."""
    return list(dict.fromkeys(name for backtest in given for name in backtest))


def _log_ratio(tally: Tally, method: str) -> float:
    """Logarithm of our error over a method's; no error counts as less than a millionth of the
    run's largest.
    """
    floor = 1e-6 * max(tally.errors.values(), default=0.0) or 1.0
    return (
        float(np.log(max(tally.errors["groupwise"], floor) / max(tally.errors[method], floor)))
        if method in tally.errors
        else np.nan
    )


def mean_of_clusters(value_C: Float) -> Interval:
    """Mean over clusters with the interval of their bootstrap, unlimited where they are few."""
    mean = float(value_C.mean())
    if value_C.size < FEWEST_CLUSTERS:
        return Interval(mean, -np.inf, np.inf, _LEVEL)
    drawn = np.random.default_rng(_SEED).integers(value_C.size, size=(_DRAWS, value_C.size))
    low, high = np.quantile(value_C[drawn].mean(1), [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    return Interval(mean, float(low), float(high), _LEVEL)
