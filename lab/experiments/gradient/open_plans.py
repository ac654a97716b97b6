"""Which group size to take where Vp cannot be told from zero: four rules, and the regret that each
has in worlds whose truth is exact.

    python lab/experiments/gradient/open_plans.py [--repeats 400]

Components are estimated from few groups of 8; where the interval of Vp reaches zero, each rule
chooses a size for 512 rollouts: `point` the best for the estimates, `draws` the least mean regret
over bootstrap draws of the components, `uniform` the same over Vp from 0 to the upper end of its
interval, `minimax` the least of the largest regret there. Regret is the excess of the true error
over that of the truly best size; writes the table
`open_plans`.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np

from groupwise.estimators.best_group_size import Budget, error_of
from groupwise.estimators.components import Components, components

sys.path.append(str(Path(__file__).resolve().parents[1]))
from common import arguments, results_of

from groupwise_lab.worlds.bandit import random_world

BUDGET, SIZE = Budget(512.0), 8
SIZES = np.unique(512 // np.arange(1, 257))
SIZES = SIZES[SIZES >= 2]


def regret_of(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The excess over the best at each size, one row for each Vp, T and R."""
    error = error_of(values, SIZES, BUDGET)
    return np.asarray(error / error.min(axis=-1, keepdims=True) - 1)


def choices(found: Components, rng: np.random.Generator) -> dict[str, int]:
    """The place of the size that each rule chooses."""
    vp, t, r = found.positive_vtr
    pseudo = found.pseudo_PC
    assert pseudo is not None
    weight = rng.multinomial(len(pseudo), np.full(len(pseudo), 1 / len(pseudo)), size=1000) / len(
        pseudo
    )
    drawn = np.maximum(weight @ pseudo[:, :3], 0)
    upper = max(found.vp.interval.high, 1e-12)
    even = np.column_stack([np.linspace(0, upper, 101), np.full(101, t), np.full(101, r)])
    return {
        "point": int(error_of(np.array([vp, t, r]), SIZES, BUDGET).argmin()),
        "draws": int(regret_of(drawn[drawn.sum(axis=1) > 0]).mean(axis=0).argmin()),
        "uniform": int(regret_of(even).mean(axis=0).argmin()),
        "minimax": int(regret_of(even).max(axis=0).argmin()),
    }


def main() -> None:
    """Draw, choose, and print."""
    repeats = arguments(__doc__, repeats=400).repeats
    rows = []
    for rewards in ("binary", "continuous"):
        for prompts in (1, 2, 4, 2000):  # one prompt has Vp = 0: there no group is too large
            world = random_world(
                np.random.default_rng(7), prompts=prompts, arms=5, dimensions=8, rewards=rewards
            )  # type: ignore[arg-type]
            truth = regret_of(np.array([world.vp, world.t, world.r]))
            for groups in (16, 48):
                rng = np.random.default_rng(groups)
                regret = {}
                for _ in range(repeats):
                    score, reward, prompt = world.sample(groups, SIZE, rng)
                    found = components(reward, prompt, score_ND=score)
                    if not found.vp.distinguishable and found.positive_vtr.any():
                        for rule, place in choices(found, rng).items():
                            regret.setdefault(rule, []).append(float(truth[place]))
                row = {
                    "rewards": rewards,
                    "prompts": prompts,
                    "groups": groups,
                    "best": int(SIZES[truth.argmin()]),
                }
                row["open"] = len(regret.get("point", ()))
                for rule, values in regret.items():
                    row |= {
                        f"{rule}_mean": round(float(np.mean(values)), 3),
                        f"{rule}_90": round(float(np.quantile(values, 0.9)), 3),
                    }
                print(row)
                rows += [row] if row["open"] else []
    results_of(__file__).write("open_plans", rows)


if __name__ == "__main__":
    main()
