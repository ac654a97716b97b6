"""How often a level was reached that `--target` gave a chance: every usable public run by the table
of the other clusters.

    python lab/experiments/forecast/targets.py [DATA]

DATA is a folder of public logs (default: ../shared/data). Each run is foretold from 10, 20, 40 and
60 % of it. The levels asked for are what a user could name then: the mean of the last fifth seen,
and that plus a half, one and two spreads of the forecast at the end. A level is reached where the
mean of the last of ten windows lies above it. Each cluster of runs weighs the same.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from backtest import foretold, parser, usable

from groupwise.forecasting.calibration import UNCALIBRATED, Calibration
from groupwise_lab.forecasts.calibrate import calibrate
from groupwise_lab.forecasts.rivals import last_mean
from groupwise_lab.forecasts.runs import TriedRun
from groupwise_lab.forecasts.scoreboard import mean_of_clusters

STEPS = (0.0, 0.5, 1.0, 2.0)  # of a level above the mean seen, in spreads
EDGES = (0.0, 0.05, 0.2, 0.4, 0.6, 0.8, 0.95, 1.0)


@dataclass(frozen=True)
class Asked:
    """A chance that was given, and whether the level was reached."""

    cluster: str
    chance: float
    reached: bool


def asked_of(one: TriedRun, table: Calibration) -> Iterator[Asked]:
    """The levels asked of one run; those beyond its bounds are none."""
    ours, seen = (
        replace(one.trial.windows, table=table),
        float(one.trial.rivals["last_mean"].centre_S[-1]),
    )
    for step in STEPS:
        level = seen + step * float(ours.spread_S[-1])
        if ours.bounds is None or level < ours.bounds[1]:
            yield Asked(
                one.cluster,
                float(ours.chance_above(level)[-1]),
                bool(one.trial.truth_S[-1] > level),
            )


def by_others(tried: Sequence[TriedRun]) -> tuple[list[Asked], list[Asked]]:
    """Chances by the table of the other clusters, and by none."""
    cases = [one.trial.case(one.cluster, one.name) for one in tried]
    found = []
    for cluster in sorted({one.cluster for one in tried}):
        table = calibrate([case for case in cases if case.cluster != cluster])
        found += [
            asked for one in tried if one.cluster == cluster for asked in asked_of(one, table)
        ]
    return found, [asked for one in tried for asked in asked_of(one, UNCALIBRATED)]


def of_clusters(some: Sequence[Asked], values: Sequence[float]) -> list[float]:
    """The mean of a number over each cluster."""
    clusters = sorted({one.cluster for one in some})
    return [
        np.mean([value for one, value in zip(some, values, strict=True) if one.cluster == name])
        for name in clusters
    ]


def brier(some: Sequence[Asked]) -> float:
    """Mean squared distance of the chance to what came, 0 or 1; clusters weigh the same."""
    return np.mean(of_clusters(some, [(one.chance - one.reached) ** 2 for one in some]))


def show(title: str, every: Sequence[Asked]) -> None:
    """Print how often levels were reached, by the chance that was given."""
    print(
        f"\n{title}: Brier score {brier(every):.3f}\n\n| chance given | levels | clusters | mean "
        "chance | reached (95 % interval) |"
    )
    print("|---|---|---|---|---|")
    for low, high in pairwise(EDGES):
        some = [one for one in every if low <= one.chance < high or one.chance == high == 1.0]
        if some:
            chance, reached = (
                np.array(of_clusters(some, values))
                for values in ([one.chance for one in some], [one.reached for one in some])
            )
            share = mean_of_clusters(reached)
            span = (
                f" ({max(share.low, 0):.2f}-{min(share.high, 1):.2f})"
                if np.isfinite(share.low)
                else ""
            )
            print(
                f"| {low:.0%} to {high:.0%} | {len(some)} | {chance.size} | {chance.mean():.2f} | "
                f"{share.value:.2f}{span} |"
            )


def main() -> None:
    """Read the arguments and print the tables."""
    tried = foretold(usable(parser(__doc__).parse_args().data), {"last_mean": last_mean})
    if not tried:
        print("no usable run")
        return
    stretched, bare = by_others(tried)
    show("By the table of the other clusters", stretched)
    show("Without a table", bare)


if __name__ == "__main__":
    main()
