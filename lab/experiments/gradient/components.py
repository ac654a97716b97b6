"""Are the variance components right, and do their intervals cover? Softmax bandits of unlike
prompts, where both are known exactly.

    python lab/experiments/gradient/components.py [--replicates 2000] [--processes 2] [--quick]

prints the first table of lab/docs/theory/gradient.md ("How well it works") and writes
the table `components`: for three kinds of reward, and for prompts whose scores differ in
length with the spread of rewards in proportion, by three laws (the intervals were chosen on the
lognormal one, and have met the others here only), B = 64 and 256 prompts and m = 4 to 64 rollouts,
the relative error of the mean estimate of Vp, T and R, and how often the 95 % intervals of the
three and of G* hold the truth.
"""

import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from numpy.random import Generator

from groupwise.estimators.components import components

sys.path.append(str(Path(__file__).resolve().parents[1]))  # common
from common import Rows, arguments, print_table, results_of

from groupwise_lab.worlds.bandit import BanditWorld, random_world

# How long a prompt's scores are, where prompts differ in that.
LENGTHS: dict[str, Callable[[Generator, int], np.ndarray]] = {
    "lognormal": lambda rng, count: np.exp(0.5 * rng.standard_normal(count)),
    "a tenth is long": lambda rng, count: np.where(rng.random(count) < 0.1, 3.0, 1.0),
    "gamma": lambda rng, count: rng.gamma(4.0, 0.25, count),
}
WORLDS = ("binary", "continuous", "noisy", *LENGTHS)
CELLS = [(64, 4), (64, 8), (64, 16), (64, 32), (64, 64), (256, 8)]
NAMES = ("vp", "t", "r")
OTHERS = ("g_star",)


def world_of(kind: str) -> BanditWorld:
    """Four thousand prompts whose difficulty, gradients and score sizes differ: in effect a
    population.
    """
    if kind in LENGTHS:
        return unlike_world(np.random.default_rng(20260101 + WORLDS.index(kind)), LENGTHS[kind])
    return random_world(
        np.random.default_rng(20260101 + WORLDS.index(kind)),
        prompts=4000,
        arms=6,
        dimensions=12,
        rewards=kind,
    )  # type: ignore[arg-type]


def unlike_world(
    rng: Generator,
    lengths: Callable[[Generator, int], np.ndarray],
    prompts: int = 4000,
    arms: int = 12,
    width: int = 8,
) -> BanditWorld:
    """Prompts with normal scores in pairs of either sign, times the prompt's length, and rewards
    that are linear in them and noisy.
    """
    length_P11 = lengths(rng, prompts)[:, None, None]
    half_PAD = rng.standard_normal((prompts, arms, width))
    score_POD = length_P11 * np.concatenate([half_PAD, -half_PAD], axis=1)
    slope_PD = 0.3 * (np.eye(width)[0] + rng.standard_normal((prompts, width)) / width**0.5)
    reward_PO = (
        np.einsum("pod,pd->po", score_POD, slope_PD)
        + rng.standard_normal((prompts, 2 * arms))
        + rng.standard_normal((prompts, 1))
    )
    return BanditWorld(
        np.full((prompts, 2 * arms), 0.5 / arms),
        score_POD,
        reward_PO,
        np.full(prompts, 1 / prompts),
    )


def one_cell(
    kind: str, prompts: int, rollouts: int, replicates: int, seed: int
) -> dict[str, object]:
    """Mean error and coverage of one cell."""
    world = world_of(kind)
    truth = dict(zip(NAMES, (world.vp, world.t, world.r), strict=True))
    rng = np.random.default_rng([seed, WORLDS.index(kind), prompts, rollouts])
    total, hits = (dict.fromkeys(NAMES, 0.0), dict.fromkeys((*NAMES, *OTHERS), 0))
    for _ in range(replicates):
        score, reward, prompt = world.sample(prompts, rollouts, rng)
        estimate = components(reward, prompt, score_ND=score)
        for name in NAMES:
            interval = getattr(estimate, name).interval
            total[name] += interval.value / truth[name]
            hits[name] += interval.covers(truth[name])
        hits["g_star"] += estimate.group_size.covers(1 + np.sqrt(truth["r"] / truth["vp"]))
    row = {"reward": kind, "prompts": prompts, "rollouts": rollouts, "replicates": replicates}
    row |= {f"error_{name}": total[name] / replicates - 1 for name in NAMES}
    return row | {f"coverage_{name}": count / replicates for name, count in hits.items()}


def show(rows: Rows) -> None:
    """Print the table in Markdown."""
    header = "reward | B | m | error of Vp | T | R | coverage of Vp | T | R | G*"
    lines = [
        [
            f"{row['reward']} | {row['prompts']} | {row['rollouts']}",
            *(f"{row[f'error_{name}']:+.1%}" for name in NAMES),
            *(f"{row[f'coverage_{name}']:.3f}" for name in (*NAMES, *OTHERS)),
        ]
        for row in rows
    ]
    print_table("Errors and coverage", header, lines)


def main() -> None:
    """Run all cells."""
    given = arguments(__doc__, replicates=2000, processes=2, seed=2026, quick=False)
    cells = [(kind, *cell) for kind in WORLDS for cell in ([(64, 8)] if given.quick else CELLS)]
    with ProcessPoolExecutor(given.processes) as pool:
        jobs = [pool.submit(one_cell, *cell, given.replicates, given.seed) for cell in cells]
        rows = [job.result() for job in jobs]
    show(rows)
    if not given.quick:
        results_of(__file__).write("components", rows, digits=17)


if __name__ == "__main__":
    main()
