"""Do the intervals of the variance components hold in worlds that they were not made on?

    python lab/experiments/intervals/strange.py [--replicates 1000] [--processes 2]
    [--own FILE]

prints a row a world (lab/docs/theory/gradient.md, "In strange worlds") and writes the table
`strange`: how often the 95 % intervals of Vp, T, R and G* hold the truth, over all draws and over
those without a note, the share of draws with a note, and the excess error of the size that `plan`
names at 512 rollouts over that of the best. `--own` takes the WORLDS of a Python file of your own
instead, and writes nothing.
"""

import runpy
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.random import Generator

from groupwise.errors import InsufficientDataError
from groupwise.estimators.best_group_size import Budget, plan_from_components
from groupwise.estimators.components import components

sys.path.append(str(Path(__file__).resolve().parents[1]))  # common
from common import Row, arguments, print_table, results_of

from groupwise_lab.worlds.bandit import BanditWorld, softmax_world

PROMPTS, ARMS, WIDTH, BUDGET = 4000, 6, 12, 512
NAMES = ("vp", "t", "r", "g_star")


def right_or_wrong(rng: Generator, difficulty: float) -> BanditWorld:
    """Rewards of 0 and 1, whose mean falls as the difficulty rises."""
    length_P = np.exp(0.3 * rng.standard_normal(PROMPTS))
    feature_PAD = length_P[:, None, None] * rng.standard_normal((PROMPTS, ARMS, WIDTH))
    parameter_D, wanted_D = rng.standard_normal((2, WIDTH)) / np.sqrt(WIDTH)
    merit_PA = 2 * feature_PAD @ wanted_D + rng.standard_normal((PROMPTS, ARMS))
    merit_PA -= difficulty + rng.standard_normal((PROMPTS, 1))
    return softmax_world(feature_PAD, parameter_D, 1 / (1 + np.exp(-merit_PA)), binary=True)


def graded(
    rng: Generator, length_P: np.ndarray, noise: Callable[[tuple[int, int]], np.ndarray]
) -> BanditWorld:
    """Scores in pairs of either sign, times the prompt's length; rewards linear in them."""
    half_PAD = rng.standard_normal((PROMPTS, ARMS, WIDTH))
    score_POD = length_P[:, None, None] * np.concatenate([half_PAD, -half_PAD], axis=1)
    slope_PD = 0.3 * (np.eye(WIDTH)[0] + rng.standard_normal((PROMPTS, WIDTH)) / WIDTH**0.5)
    reward_PO = np.einsum("pod,pd->po", score_POD, slope_PD) + noise((PROMPTS, 2 * ARMS))
    equal = np.full((PROMPTS, 2 * ARMS), 0.5 / ARMS)
    return BanditWorld(equal, score_POD, reward_PO, np.full(PROMPTS, 1 / PROMPTS))


def unlike(rng: Generator, spread: float) -> BanditWorld:
    """Prompts whose scores differ in length, by a lognormal law."""
    return graded(rng, np.exp(spread * rng.standard_normal(PROMPTS)), rng.standard_normal)


def tailed(rng: Generator, noise: Callable[[tuple[int, int]], np.ndarray]) -> BanditWorld:
    """Rewards with the tails of a noise."""
    return graded(rng, np.ones(PROMPTS), noise)


# The world, prompts, rollouts of each, and how many copies of a prompt follow one another; shuffled
# below 0.
WORLDS: dict[str, tuple[Callable[[Generator], BanditWorld], int, int, int]] = {
    "right or wrong": (lambda rng: right_or_wrong(rng, 0.0), 64, 8, 1),
    "groups of four": (lambda rng: right_or_wrong(rng, 0.0), 64, 4, 1),
    "eight prompts": (lambda rng: right_or_wrong(rng, 0.0), 8, 8, 1),
    "eight copies of eight prompts": (lambda rng: right_or_wrong(rng, 0.0), 64, 8, 8),
    "eight copies, shuffled": (lambda rng: right_or_wrong(rng, 0.0), 64, 8, -8),
    "rare success": (lambda rng: right_or_wrong(rng, 5.0), 64, 4, 1),
    "rare success, groups of eight": (lambda rng: right_or_wrong(rng, 5.0), 64, 8, 1),
    "very rare success": (lambda rng: right_or_wrong(rng, 6.5), 64, 8, 1),
    "nearly all solved": (lambda rng: right_or_wrong(rng, -5.0), 64, 8, 1),
    "normal rewards, groups of four": (lambda rng: unlike(rng, 0.0), 64, 4, 1),
    "normal rewards": (lambda rng: unlike(rng, 0.0), 64, 8, 1),
    "unlike lengths": (lambda rng: unlike(rng, 0.5), 64, 8, 1),
    "very unlike lengths": (lambda rng: unlike(rng, 0.8), 64, 8, 1),
    "four moments": (lambda rng: tailed(rng, lambda size: rng.standard_t(5, size)), 64, 8, 1),
    "no fourth moment": (lambda rng: tailed(rng, lambda size: rng.standard_t(2.5, size)), 64, 8, 1),
    "skewed rewards": (
        lambda rng: tailed(rng, lambda size: rng.exponential(1, size) ** 2),
        64,
        8,
        1,
    ),
}


def row_of(name: str, replicates: int, seed: int) -> Row:
    """Coverage and excess in one world."""
    make, prompts, rollouts, copies = WORLDS[name]
    place = list(WORLDS).index(name)
    world = make(np.random.default_rng([20261124, place]))
    rng = np.random.default_rng([seed, place])
    truth = world.moments()
    size = np.arange(2, BUDGET + 1)
    error = (truth.vp + truth.t / size + truth.r / (size * (size - 1))) / (BUDGET // size)
    covered, noted, excess = (
        np.zeros((replicates, len(NAMES)), bool),
        np.zeros(replicates, bool),
        [],
    )
    for draw in range(replicates):
        prompt_B = np.repeat(world.draw_prompts(prompts // abs(copies), rng), abs(copies))
        if copies < 0:
            rng.shuffle(prompt_B)
        score_ND, reward_N, prompt_N = world.sample_at(prompt_B, rollouts, rng)
        estimate = components(reward_N, prompt_N, score_ND=score_ND)
        covered[draw] = [
            estimate.vp.interval.covers(truth.vp),
            estimate.t.interval.covers(truth.t),
            estimate.r.interval.covers(truth.r),
            estimate.group_size.covers(1 + np.sqrt(truth.r / truth.vp)),
        ]
        noted[draw] = bool(estimate.notes)
        with suppress(InsufficientDataError):
            plan = plan_from_components(estimate, Budget(BUDGET), rng=rng, draws=200)
            excess.append(error[plan.group_size - 2] / error.min() - 1)
    silent = covered[~noted].mean(axis=0) if (~noted).any() else np.full(len(NAMES), np.nan)
    row: Row = {"world": name, "prompts": prompts, "rollouts": rollouts, "noted": noted.mean()}
    row |= {f"covered_{key}": value for key, value in zip(NAMES, covered.mean(axis=0), strict=True)}
    row |= {f"silent_{key}": value for key, value in zip(NAMES, silent, strict=True)}
    return row | {"excess": float(np.mean(excess)), "always_4": error[2] / error.min() - 1}


def main() -> None:
    """Run all worlds."""
    given = arguments(__doc__, replicates=1000, processes=2, seed=2026, own="")
    own = runpy.run_path(given.own)["WORLDS"] if given.own else {}
    WORLDS.update(own)
    with ProcessPoolExecutor(given.processes) as pool:
        jobs = [pool.submit(row_of, name, given.replicates, given.seed) for name in own or WORLDS]
        rows = [job.result() for job in jobs]
    lines = [
        [
            f"{row['world']} | {row['prompts']} | {row['rollouts']} | {row['noted']:.0%}",
            *(f"{row[f'covered_{key}']:.3f} / {row[f'silent_{key}']:.3f}" for key in NAMES),
            f"{row['excess']:.1%} | {row['always_4']:.1%}",
        ]
        for row in rows
    ]
    header = (
        "world | B | m | with a note | Vp, all / without a note | T | R | G* | excess | of G = 4"
    )
    print_table("In strange worlds", header, lines)
    if not own:
        results_of(__file__).write("strange", rows, digits=4)


if __name__ == "__main__":
    main()
