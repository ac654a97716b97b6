"""Do the intervals of the variance components hold in worlds that they were not made on?

    python lab/experiments/intervals/strange.py [--replicates 1000] [--processes 2]
    [--own FILE] [--drawn 40]

prints a row a world (lab/docs/theory/gradient.md, "In strange worlds") and writes the table
`strange`: how often the 95 % intervals of Vp, T, R and G* hold the truth, over all draws and over
those without a note, the share of draws with a note, how wide the intervals of Vp, T and R are over
the range of 95 % of the estimates, and the excess error of the size that `plan` names at 512
rollouts over that of the best. `--own` takes the WORLDS of a Python file of your own instead, and
`--drawn` so many worlds that the seed draws; neither writes.
"""

import runpy
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import partial
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


def unlike(
    rng: Generator, spread: float, noise: Callable[[tuple[int, int]], np.ndarray] | None = None
) -> BanditWorld:
    """Prompts whose scores differ in length, by a lognormal law."""
    length_P = np.exp(spread * rng.standard_normal(PROMPTS))
    return graded(rng, length_P, noise or rng.standard_normal)


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


NOISES: dict[str, Callable[[Generator, tuple[int, int]], np.ndarray]] = {
    "normal": lambda rng, size: rng.standard_normal(size),
    "uniform": lambda rng, size: rng.uniform(-2, 2, size),
    "t of 5": lambda rng, size: rng.standard_t(5, size),
    "t of 2.5": lambda rng, size: rng.standard_t(2.5, size),
    "exponential squared": lambda rng, size: rng.exponential(1, size) ** 2,
    "rare bonus": lambda rng, size: rng.standard_normal(size) + 8 * (rng.random(size) < 0.01),
}


def draw_world(rng: Generator, number: int) -> None:
    """Rewards of right or wrong, or with a noise where lengths differ, in turn."""
    kind, share = str(rng.choice(list(NOISES))), rng.uniform()

    def make(rng: Generator) -> BanditWorld:
        if number % 2:
            return unlike(rng, share, partial(NOISES[kind], rng))
        return right_or_wrong(rng, 12 * share - 6)

    name = f"{kind}, lengths {share:.2f}" if number % 2 else f"difficulty {12 * share - 6:.1f}"
    prompts, rollouts = (int(rng.choice(some)) for some in ([16, 32, 64, 128], [4, 6, 8, 16]))
    WORLDS[f"{number}: {name}"] = make, prompts, rollouts, 1


def row_of(name: str, replicates: int, seed: int) -> Row:
    """Coverage and excess in one world."""
    make, prompts, rollouts, copies = WORLDS[name]
    place = list(WORLDS).index(name)
    world = make(np.random.default_rng([20261124, place]))
    rng = np.random.default_rng([seed, place])
    truth = world.moments()
    size = np.arange(2, BUDGET + 1)
    error = (truth.vp + truth.t / size + truth.r / (size * (size - 1))) / (BUDGET // size)
    truths = truth.vp, truth.t, truth.r, 1 + np.sqrt(truth.r / truth.vp)
    noted, excess, ends = np.zeros(replicates, bool), [], np.zeros((3, replicates, len(NAMES)))
    for draw in range(replicates):
        prompt_B = np.repeat(world.draw_prompts(prompts // abs(copies), rng), abs(copies))
        if copies < 0:
            rng.shuffle(prompt_B)
        score_ND, reward_N, prompt_N = world.sample_at(prompt_B, rollouts, rng)
        text_N = (prompt_B[prompt_N] if abs(copies) > 1 else prompt_N).astype(str).tolist()
        estimate = components(reward_N, prompt_N, score_ND=score_ND, text_N=text_N)
        parts = [part.interval for part in (estimate.vp, estimate.t, estimate.r)]
        ends[:, draw] = np.transpose(
            [(part.value, part.low, part.high) for part in (*parts, estimate.group_size)]
        )
        noted[draw] = bool(estimate.notes)
        with suppress(InsufficientDataError):
            plan = plan_from_components(estimate, Budget(BUDGET), rng=rng, draws=200)
            excess.append(error[plan.group_size - 2] / error.min() - 1)
    value, low, high = ends
    covered = (low <= truths) & (truths <= high)
    silent = covered[~noted].mean(axis=0) if (~noted).any() else np.full(len(NAMES), np.nan)
    row: Row = {"world": name, "prompts": prompts, "rollouts": rollouts, "noted": noted.mean()}
    width = np.median(high - low, axis=0)[:3] / np.ptp(
        np.quantile(value[:, :3], [0.025, 0.975], axis=0), axis=0
    )
    for part, values in ("covered", covered.mean(axis=0)), ("silent", silent), ("width", width):
        row |= {f"{part}_{key}": value for key, value in zip(NAMES, values, strict=False)}
    return row | {"excess": float(np.mean(excess))}


def main() -> None:
    """Run all worlds."""
    given = arguments(__doc__, replicates=1000, processes=2, seed=2026, own="", drawn=0)
    named = len(WORLDS)
    WORLDS.update(runpy.run_path(given.own)["WORLDS"] if given.own else {})
    rng = np.random.default_rng([given.seed, 1])
    for number in range(given.drawn):
        draw_world(rng, number)
    own = list(WORLDS)[named:]
    with ProcessPoolExecutor(given.processes) as pool:
        jobs = [pool.submit(row_of, name, given.replicates, given.seed) for name in own or WORLDS]
        rows = [job.result() for job in jobs]
    lines = [
        [
            f"{row['world']} | {row['prompts']} | {row['rollouts']} | {row['noted']:.0%}",
            *(f"{row[f'covered_{key}']:.3f}/{row[f'silent_{key}']:.3f}" for key in NAMES),
            "/".join(f"{row[f'width_{key}']:.1f}" for key in NAMES[:3]),
            f"{row['excess']:.1%}",
        ]
        for row in rows
    ]
    header = "world | B | m | with a note | Vp, all/without a note | T | R | G* | widths | excess"
    print_table("In strange worlds", header, lines)
    if not own:
        results_of(__file__).write("strange", rows, digits=4)


if __name__ == "__main__":
    main()
