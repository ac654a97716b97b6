"""How often `groupwise compare` is wrong: false alarms, coverage and power on runs whose truth is
known.

    python lab/experiments/comparison/rates.py [--groups 1000] [--pairs 200] [--six 1000]

Groups: runs are a level, a seed's own shift and AR(1) noise of steps; only the late mean is
compared. Pairs: two runs of one curve, fitted as the command fits them (a second a pair). Six: six
groups of three seeds of one rising curve, compared as `compare --by` compares them but with the
true mean in place of a fit; its false alarms are those of a family. 0 leaves a study out. Prints
the tables and writes the tables `groups`, `pairs` and `six`.
"""

import math
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))  # common.py
from common import Row, Rows, arguments, print_table, results_of

from groupwise.arrays import Float
from groupwise.comparison.compare import (
    Curve,
    Measured,
    Question,
    Setup,
    contrast,
    curve,
    group_comparison,
    late_level,
    seed_noise,
    time_to,
)
from groupwise.intervals import wilson

ROWS = 80
ERROR = 0.1


@dataclass(frozen=True)
class GroupCell:
    """One kind of groups: their sizes, the spread of seeds in each, what seeds are like, the
    noise of steps.
    """

    name: str
    runs: tuple[int, int]
    spread: tuple[float, float] = (0.05, 0.05)
    collapses: float = 0.0
    correlation: float = 0.5


GROUPS = (
    GroupCell("two seeds each", (2, 2)),
    GroupCell("three seeds each", (3, 3)),
    GroupCell("five seeds each", (5, 5)),
    GroupCell("one against three", (1, 3)),
    GroupCell("three each, no seed noise", (3, 3), (0.0, 0.0)),
    GroupCell("three each, one group scatters 3 times as much", (3, 3), (0.05, 0.15)),
    GroupCell("two against five, the two scatter 3 times as much", (2, 5), (0.15, 0.05)),
    GroupCell("four each, one seed in five collapses", (4, 4), collapses=0.2),
)


def noise(rng: np.random.Generator, rows: int, correlation: float) -> Float:
    """AR(1) noise of standard deviation ERROR."""
    value = np.empty(rows)
    value[0] = rng.normal(0, ERROR)
    for t in range(1, rows):
        value[t] = correlation * value[t - 1] + rng.normal(0, ERROR * math.sqrt(1 - correlation**2))
    return value


def relabelled(value_R: Float, count: int) -> float:
    """The share of relabellings whose means differ at least as much, ties by rounding included."""
    every = np.array(list(combinations(range(len(value_R)), count)))
    sums = value_R[every].sum(axis=1)
    apart = np.abs(sums / count - (value_R.sum() - sums) / (len(value_R) - count))
    return float(np.mean(apart >= apart[0] * (1 - 1e-12)))


def group_cell(cell: GroupCell, replicates: int, seed: int) -> Row:
    """False alarms, coverage and power of one kind of groups."""
    rng = np.random.default_rng(seed)
    step = np.arange(float(ROWS))
    alarms = permuted = covered = positives = spreads = 0
    for _ in range(replicates):
        groups = []
        for count, spread in zip(cell.runs, cell.spread, strict=True):
            own = rng.normal(0, spread, count)
            own = np.where(rng.random(count) < cell.collapses, -0.5, own)
            groups.append(
                [Curve(step, b + noise(rng, ROWS, cell.correlation), np.full(ROWS, b)) for b in own]
            )
        level = [[late_level(run, 0.75 * ROWS, ROWS) for run in group] for group in groups]
        seeds = seed_noise(level)
        setup = Setup(0.95, seeds)
        result = contrast("level", level[0], level[1], setup)
        alarms += result.p_value < 0.05
        value = np.array([run.value for group in level for run in group])
        permuted += relabelled(value, cell.runs[0]) < 0.05
        covered += result.difference.covers(0.0)
        spreads += seeds.deviation.covers(cell.spread[0])
        shift = 0.3
        moved = [
            Measured(
                type(r.interval)(r.value + shift, r.interval.low + shift, r.interval.high + shift),
                r.step_error,
            )
            for r in level[1]
        ]
        positives += contrast("level", level[0], moved, setup).p_value < 0.05
    rates = {
        "t": alarms,
        "permutation": permuted,
        "covered": covered,
        "seed_interval": spreads,
        "power": positives,
    }
    row = {
        "cell": cell.name,
        "n": replicates,
        **{name: hits / replicates for name, hits in rates.items()},
    }
    if cell.collapses or cell.spread[0] != cell.spread[1]:
        row["seed_interval"] = math.nan  # there is no one spread to cover
    return row


PAIRS = (
    ("40 rows, white", 40, 0.0),
    ("40 rows, AR(1) .5", 40, 0.5),
    ("120 rows, white", 120, 0.0),
    ("120 rows, AR(1) .5", 120, 0.5),
    ("120 rows, AR(1) .8", 120, 0.8),
    ("120 rows, means of 64 zeros and ones", 120, -1.0),
)


def pair_cell(name: str, rows: int, correlation: float, replicates: int, seed: int) -> Row:
    """Coverage of late mean and time to a level, as the command fits them."""
    rng = np.random.default_rng(seed)
    step = np.arange(float(rows))
    mean = 0.8 - 0.6 * np.exp(-step / (rows / 5))
    late, reach = mean[step >= 0.75 * rows].mean(), np.interp(rows / 6, step, mean)
    covered = timed = 0
    for _ in range(replicates):
        values = [
            rng.binomial(64, mean) / 64 if correlation < 0 else mean + noise(rng, rows, correlation)
            for _ in range(2)
        ]
        runs = [curve(step, value) for value in values]
        for run in runs:
            covered += late_level(run, 0.75 * rows, rows).interval.covers(late)
            time = time_to(run, reach, rng).interval
            timed += time.low - 0.5 <= rows / 6 <= time.high + 0.5
    return {
        "cell": name,
        "n": replicates,
        "late_covered": covered / (2 * replicates),
        "time_covered": timed / (2 * replicates),
    }


def six_groups(correlation: float, replicates: int, seed: int) -> Row:
    """How often any of five groups is called unlike the first where all six are alike, by any
    contrast.
    """
    rng = np.random.default_rng(seed)
    step = np.arange(float(ROWS))
    mean = 0.8 - 0.6 * np.exp(-step / (ROWS / 5))
    alarms = single = covered = 0
    for _ in range(replicates):
        groups = [
            [
                Curve(step, mean + shift + noise(rng, ROWS, correlation), mean + shift)
                for shift in rng.normal(0, 0.05, 3)
            ]
            for _ in range(6)
        ]
        pairings = group_comparison(groups, Question(), rng).pairings
        contrasts = [contrast for pairing in pairings for contrast in pairing.contrasts]
        alarms += any(contrast.status == "different" for contrast in contrasts)
        single += any(contrast.p_value < 0.05 for contrast in contrasts)
        covered += np.mean([pairing.contrasts[0].difference.covers(0.0) for pairing in pairings])
    most = wilson(alarms, replicates, level=0.9).high
    return {
        "correlation": correlation,
        "n": replicates,
        "family": alarms / replicates,
        "upper_95": most,
        "without_holm": single / replicates,
        "covered": covered / replicates,
    }


def show(name: str, rows: Rows) -> None:
    """Write a table and print it."""
    results_of(__file__).write(name, rows, digits=17)
    lines = [
        [f"{value:.3f}" if isinstance(value, float) else str(value) for value in row.values()]
        for row in rows
    ]
    print_table(name, list(rows[0]), lines)


def main() -> None:
    """Run both studies."""
    given = arguments(__doc__, groups=1000, pairs=200, six=1000)
    if given.groups:
        show("groups", [group_cell(cell, given.groups, 11 + i) for i, cell in enumerate(GROUPS)])
    if given.six:
        with ProcessPoolExecutor(3) as pool:
            jobs = [pool.submit(six_groups, c, given.six, 51) for c in (0.0, 0.5, 0.9)]
            show("six", [job.result() for job in jobs])
    if given.pairs:
        show("pairs", [pair_cell(*cell, given.pairs, 31 + i) for i, cell in enumerate(PAIRS)])


if __name__ == "__main__":
    main()
