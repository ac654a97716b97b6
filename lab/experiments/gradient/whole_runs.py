"""What a group size costs over a whole run, and what can be told of it before: worlds whose truth
is exact.

    python lab/experiments/gradient/whole_runs.py [--worlds 120] [--seed 1]
    [--tables]

Softmax policies linear in features, 96 prompts of 8 answers, AdamW-like steps of 64 rollouts at the
best of five learning rates of G = 8; three kinds of world: skills that groups of prompts share,
formats (an answer at all, then which of two), and prompts much alike. Writes the table
`whole_runs`: a row a world with the area that every size learns, the size that the plan names
safe, and the price of each size beside 4 as it is told before, now and at most.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.random import Generator

from groupwise.arrays import Float
from groupwise.estimators.best_group_size import (
    Budget,
    ceiling,
    error_of,
    safe_sizes,
    speed_lost,
    worst_excess,
)
from groupwise.estimators.components import components

sys.path.append(str(Path(__file__).resolve().parents[1]))  # common
from common import Rows, arguments, print_table, results_of

PROMPTS, ANSWERS, ROLLOUTS = 96, 8, 64
SIZES, RATES = np.array([2, 4, 8, 16, 32]), (0.01, 0.03, 0.1, 0.3, 1.0)
EDGES = [-0.05, 0.02, 0.08, 0.15, 0.25, 0.4]  # of the price told now
KINDS, REFERENCE = ("skills", "format", "alike"), 1  # the place of G = 4


@dataclass(frozen=True)
class StartingPolicy:
    """A policy at its start, and its prompts."""

    feature_PAD: Float
    logit_PA: Float
    right_PA: Float
    earns_PA: Float  # probability of a reward of 1
    updates: int

    def policy(self, weight_SD: Float) -> Float:
        """The probability of each answer."""
        logit = np.einsum("sd,pad->spa", weight_SD, self.feature_PAD, optimize=True)
        logit += self.logit_PA
        policy = np.exp(logit - logit.max(2, keepdims=True))
        return np.asarray(policy / policy.sum(2, keepdims=True))

    def level(self, weight_SD: Float) -> Float:
        """The true mean reward."""
        return np.asarray((self.policy(weight_SD) * self.right_PA).sum(2).mean(1))


def world_of(kind: str, rng: Generator) -> StartingPolicy:
    """A world drawn."""
    shape = (PROMPTS, ANSWERS)
    right = np.eye(ANSWERS)[rng.integers(2 if kind == "format" else ANSWERS, size=PROMPTS)]
    skill = np.eye(32)[rng.integers(rng.choice([1, 4, 16, 32]), size=PROMPTS)]
    own, habit = (0.1, 0.0) if kind == "alike" else rng.choice([0.3, 1, 2], size=2)
    shared = 1.0 if kind == "alike" else rng.choice([0, 0.5, 1])
    form = np.zeros(shape)
    if kind == "format":
        form[:, :2] = 1
    parts = [
        right[..., None] * skill[:, None],
        shared * right[..., None],
        form[..., None],
        np.broadcast_to(habit * np.eye(ANSWERS), (*shape, ANSWERS)),
        own * rng.normal(size=(*shape, 24)) * 0.4,
    ]
    spread = 0.3 if kind == "alike" else rng.choice([0.3, 1, 2])
    ease = rng.normal(rng.choice([-2.5, -1.0, 0.5, 2.0]), spread, size=(PROMPTS, 1))
    logit = 0.3 * rng.normal(size=shape) + right * (ease + 2) - rng.choice([0, 2]) * form
    false = rng.choice([0, 0, 0.1, 0.25])
    return StartingPolicy(
        np.concatenate(parts, axis=2),
        logit,
        right,
        right * (1 - 2 * false) + false,
        int(rng.choice([30, 75])),
    )


def trained(world: StartingPolicy, size: int, rate: float, seeds: int, rng: Generator) -> Float:
    """The area of each of some runs."""
    flat = world.feature_PAD.reshape(PROMPTS * ANSWERS, -1)
    weight = np.zeros((seeds, flat.shape[1]))
    first, second, area = np.zeros_like(weight), np.zeros_like(weight), np.zeros(seeds)
    for update in range(1, world.updates + 1):
        area += world.level(weight) / world.updates
        prompt = rng.integers(PROMPTS, size=(seeds, ROLLOUTS // size))
        policy = world.policy(weight)[np.arange(seeds)[:, None], prompt].cumsum(2)
        answer = (rng.random((*prompt.shape, size, 1)) > policy[:, :, None, :-1]).sum(3)
        reward = rng.random(answer.shape) < world.earns_PA[prompt[..., None], answer]
        advantage = (reward - reward.mean(2, keepdims=True)) * size / (size - 1) / ROLLOUTS
        place = (np.arange(seeds)[:, None, None] * PROMPTS + prompt[..., None]) * ANSWERS + answer
        pull = np.bincount(place.ravel(), advantage.ravel(), seeds * PROMPTS * ANSWERS)
        gradient = pull.reshape(seeds, -1) @ flat
        first += 0.1 * (gradient - first)
        second += 0.001 * (gradient**2 - second)
        root = np.sqrt(second / (1 - 0.999**update)) + 1e-8
        weight += rate * first / (1 - 0.9**update) / root
    return area


def measured_price(world: StartingPolicy, rng: Generator) -> dict[str, float]:
    """What 32 x 16 rollouts say before: the safe size, and the price of each size beside 4."""
    prompt = np.repeat(rng.integers(PROMPTS, size=32), 16)
    policy = world.policy(np.zeros((1, world.feature_PAD.shape[2])))[0]
    answer = (rng.random((512, 1)) > policy[prompt].cumsum(1)[:, :-1]).sum(1)
    score = world.feature_PAD[prompt, answer] - np.einsum(
        "na,nad->nd", policy[prompt], world.feature_PAD[prompt]
    )
    reward = (rng.random(512) < world.earns_PA[prompt, answer]).astype(float)
    estimate = components(reward, np.repeat(np.arange(32), 16), score_ND=score)
    (vp, t, r), budget = estimate.positive_vtr, Budget(ROLLOUTS)
    low, norm2 = max(estimate.vp.interval.low, 0.0), estimate.gradient_norm2
    excess = worst_excess(low, t, r, SIZES, budget)
    row = {"safe": int(safe_sizes(excess, SIZES)[-1])}
    ends = [(vp, norm2.value), (low, norm2.interval.low), (ceiling(r), norm2.interval.low)]
    lost = []
    for between, length in ends:
        error = error_of(np.array([between, t, r]), SIZES, budget)
        lost.append(speed_lost(error, error[REFERENCE], max(length, 0.0)))
    row |= {f"now_{size}": share for size, share in zip(SIZES, lost[0], strict=True)}
    most = np.maximum(*lost[1:])
    return row | {f"most_{size}": share for size, share in zip(SIZES, most, strict=True)}


def row_of(kind: str, seed: int) -> dict[str, object]:
    """A world, what is told of it, and what it comes to."""
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    world = world_of(kind, rng)
    rate = max(RATES, key=lambda rate: trained(world, 8, rate, 16, rng).mean())
    start = float(world.level(np.zeros((1, world.feature_PAD.shape[2])))[0])
    areas = [trained(world, int(size), rate, 32, rng) for size in SIZES]
    row: dict[str, object] = {"kind": kind, "seed": seed, "start": start, "rate": rate}
    row |= {f"area_{size}": area.mean() for size, area in zip(SIZES, areas, strict=True)}
    for name, factor in (("slower", 1 / 3), ("faster", 3.0)):
        row[name] = trained(world, SIZES[REFERENCE], factor * rate, 32, rng).mean()
    row["error"] = max(area.std(ddof=1) for area in areas) / 32**0.5
    return row | measured_price(world, rng)


@dataclass(frozen=True)
class Outcome:
    """What worlds that learn came to, as shares of what the best size learns; a row a world."""

    regret: Float  # of each size against the best
    named: Float  # of the safe size
    lost: Float  # of each size against 4
    now: Float  # the same as it was told: now
    most: Float  # and at most
    slack: Float  # two standard errors
    rates: Float  # lost by 4 at a third of the learning rate, and at three times

    def prices(self) -> dict[float, Float]:
        """Median, 5 and 95 % of what was lost, by what was told now."""
        others = np.arange(len(SIZES)) != REFERENCE
        before, after = self.now[:, others].ravel(), self.lost[:, others].ravel()
        place = np.searchsorted(EDGES, before)
        return {
            edge: np.quantile(after[place == which], [0.5, 0.05, 0.95])
            for which, edge in enumerate([*EDGES, np.inf])
        }


def outcome_of(rows: Rows) -> Outcome:
    """The outcome of rows as they are written."""
    area, now, most = (
        np.array([[float(row[f"{name}_{size}"]) for size in SIZES] for row in rows])
        for name in ("area", "now", "most")
    )
    start, error, safe, slower, faster = (
        np.array([float(row[name]) for row in rows])
        for name in ("start", "error", "safe", "slower", "faster")
    )
    best = area.max(1)
    kept = best - start > 0.05
    learnt = (best - start)[:, None]
    regret = (best[:, None] - area) / learnt
    named = regret[np.arange(len(rows)), np.searchsorted(SIZES, safe)]
    off = (best[:, None] - np.stack([slower, faster], axis=1)) / learnt
    lost = (area[:, [REFERENCE]] - area) / learnt
    all_of = (regret, named, lost, now, most, 2 * error[:, None] / learnt, off)
    return Outcome(*(values[kept] for values in all_of))


def main() -> None:
    """Run the worlds, and print regrets, the bound's misses and the price by what was told."""
    given = arguments(__doc__, worlds=120, seed=1, tables=False)
    results = results_of(__file__)
    if not given.tables:
        kinds = (KINDS[i % 3] for i in range(given.worlds))
        rows = [row_of(kind, given.seed * 1000 + i) for i, kind in enumerate(kinds)]
        results.write("whole_runs", rows)
    outcome = outcome_of(results.read("whole_runs"))
    cells = [["safe", *summary(outcome.named)]]
    cells += [[f"always {size}", *summary(outcome.regret[:, i])] for i, size in enumerate(SIZES)]
    for title, off in zip(("a third", "three times"), outcome.rates.T, strict=True):
        cells.append([f"4 at {title} of the rate", *summary(off)])
    print_table(f"{len(outcome.named)} worlds", "rule | mean | 90 % | worst", cells)
    for times in (1, 2):
        held = (outcome.lost <= times * np.maximum(outcome.most, 0) + outcome.slack).mean(0)
        print(f"lost at most {times} x the upper end, by size: {np.round(held, 2)}")
    lines = [
        [f"{edge:g}", *(f"{end:.2f}" for end in ends)] for edge, ends in outcome.prices().items()
    ]
    print_table("Price told now against measured", "told, up to | median | 5 % | 95 %", lines)


def summary(regret: Float) -> list[str]:
    """Mean, the worst of nine in ten, and the worst."""
    return [
        f"{100 * share:.1f} %" for share in (regret.mean(), np.quantile(regret, 0.9), regret.max())
    ]


if __name__ == "__main__":
    main()
