"""How well the share of zero-variance groups is foreseen at larger group sizes: on real rollouts,
and in worlds whose truth is known.

    python lab/experiments/u_statistic/zero_variance.py --data ../shared/data/rollouts

Real rollouts of a fixed policy (16 or 32 a prompt) are dealt into groups of 4 and 8; the share
foreseen at twice and four times that size stands beside what all subsets of the same rollouts say,
and beside what one pass rate for all prompts would foresee.
"""

import csv
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.random import Generator

sys.path.append(str(Path(__file__).resolve().parents[1]))  # common.py
from common import Rows, arguments, results_of

from groupwise.arrays import Float
from groupwise.estimators.zero_variance import (
    RewardCounts,
    ZeroVarianceOutlook,
    zero_variance_of_columns,
    zero_variance_of_groups,
)

FILES = (
    "tinkerlab_p1b_arith_llama1b_G16",
    "tinkerlab_p1b_gsm8k_llama8b_inst_G32",
    "tinkerlab_p1b_gsm8k_qwen3_8b_G16",
)
WORLDS: dict[str, Callable[[Generator, int], Float]] = {
    "one pass rate .3": lambda rng, n: 0.3 + 0 * rng.random(n),
    "beta(.5, .5)": lambda rng, n: rng.beta(0.5, 0.5, n),
    "beta(.3, 2)": lambda rng, n: rng.beta(0.3, 2.0, n),
    "beta(2, 2)": lambda rng, n: rng.beta(2.0, 2.0, n),
    "half never right, else beta(1, 3)": lambda rng, n: np.where(
        rng.random(n) < 0.5, 0.0, rng.beta(1.0, 3.0, n)
    ),
    "a third always right, else .5": lambda rng, n: np.where(rng.random(n) < 1 / 3, 1.0, 0.5),
    "logit normal(0, 3)": lambda rng, n: 1 / (1 + np.exp(-rng.normal(0, 3, n))),
    "two pass rates, .05 and .7": lambda rng, n: np.where(rng.random(n) < 0.6, 0.05, 0.7),
}
MANY = 2_000_000


def main() -> None:
    """Print the tables, and write them beside this file."""
    options = arguments(__doc__, data="", repeats=200)
    if options.data:
        _written("zero_variance_real", _real(Path(options.data)))
    _written("zero_variance", _simulated(options.repeats))


def _real(folder: Path) -> Rows:
    """Deal rollouts into smaller groups, foresee, and compare."""
    rows = []
    for name in FILES:
        with (folder / f"{name}.csv").open(encoding="utf-8") as file:
            table = [(int(row["n_correct"]), int(row["n_samples"])) for row in csv.DictReader(file)]
        right_P, size = np.array([right for right, _ in table]), table[0][1]
        truth = RewardCounts.of_two(right_P, np.full(len(table), float(size)))
        for group in (4, 8):
            rng = np.random.default_rng(group)
            reward_PG = np.array(
                [rng.permutation(np.arange(size) < right) for right in right_P], dtype=float
            )
            zero_variance = zero_variance_of_groups(
                reward_PG.ravel(), np.arange(reward_PG.size) // group
            )
            equal_P = (
                (reward_PG.reshape(-1, group).sum(axis=1) % group == 0)
                .reshape(len(table), -1)
                .mean(axis=1)
            )
            columns = zero_variance_of_columns(
                equal_P, group, mean_T=reward_PG.mean(axis=1), groups=size // group
            )
            for place, other in enumerate((2 * group, 4 * group), start=1):
                if other <= size:
                    seen = truth.share_at(other, 0.95).share
                    rows.append(
                        {
                            "rollouts": name,
                            **_row(zero_variance, columns, reward_PG.mean(), place, seen.value),
                        }
                    )
    return rows


def _row(
    outlook: ZeroVarianceOutlook,
    columns: ZeroVarianceOutlook,
    mean: float,
    place: int,
    truth: float,
) -> dict[str, object]:
    """One size: what was seen, and what each way foresees."""
    other = outlook.shares[place].group_size
    rollouts, rows = outlook.shares[place].share, columns.shares[place].share
    return {
        "from_G": outlook.group_size,
        "at_G": other,
        "measured": round(truth, 3),
        "one_pass_rate": round(mean**other + (1 - mean) ** other, 3),
        "rollouts": f"{rollouts.value:.3f} ({rollouts.low:.3f} to {rollouts.high:.3f})",
        "columns": f"{rows.value:.3f} ({rows.low:.3f} to {rows.high:.3f})",
    }


def _simulated(repeats: int) -> Rows:
    """Coverage and error in worlds whose truth is known."""
    rows = []
    for world, draw in WORLDS.items():
        many = draw(np.random.default_rng(1), MANY)
        for group in (4, 8):
            truth = [(many**other + (1 - many) ** other).mean() for other in (2 * group, 4 * group)]
            for groups in (64, 512):
                rng = np.random.default_rng(groups + group)
                drawn = [_once(rng, draw, group, groups) for _ in range(repeats)]
                for place, other in enumerate((2 * group, 4 * group), start=1):
                    row = {
                        "world": world,
                        "from_G": group,
                        "groups": groups,
                        "at_G": other,
                        "truth": round(truth[place - 1], 3),
                    }
                    for name, way in (("rollouts", 0), ("columns", 1)):
                        shares = [pair[way].shares[place].share for pair in drawn]
                        row[f"{name}_mean"] = round(
                            float(np.mean([share.value for share in shares])), 3
                        )
                        row[f"{name}_width"] = round(
                            float(np.mean([share.width for share in shares])), 3
                        )
                        row[f"{name}_covered"] = round(
                            float(np.mean([share.covers(truth[place - 1]) for share in shares])), 3
                        )
                    rows.append(row)
    return rows


def _once(
    rng: Generator, draw: Callable[[Generator, int], Float], group: int, groups: int
) -> tuple[ZeroVarianceOutlook, ZeroVarianceOutlook]:
    """Foresee from the rollouts of one world, and from what a log's rows of eight groups would
    say of them.
    """
    right_P = rng.binomial(group, draw(rng, groups))
    reward_PG = (np.arange(group) < right_P[:, None]).astype(float)
    by_rows = right_P.reshape(-1, 8)
    columns = zero_variance_of_columns(
        (by_rows % group == 0).mean(axis=1), group, mean_T=by_rows.mean(axis=1) / group, groups=8
    )
    return zero_variance_of_groups(reward_PG.ravel(), np.repeat(np.arange(groups), group)), columns


def _written(name: str, rows: Rows) -> None:
    """Write a table and print it."""
    results_of(__file__).write(name, rows)
    for row in rows:
        print("  ".join(f"{key} {value}" for key, value in row.items()))


if __name__ == "__main__":
    main()
