"""How often the intervals of the numbers beside the checks hold what is true, on logs whose truth
is known exactly.

    python lab/experiments/diagnosis/measures.py --runs 400 [--seed 20261121]

Writes the table `measures`: one row a number and a world, with the share of intervals that hold
the truth and its Wilson interval. The margin is not among them:
lab/experiments/predictable_grpo/force_of_runs.py has it.
"""

import os
import sys

os.environ.setdefault(
    "POLARS_MAX_THREADS", "1"
)  # before polars is loaded: its threads only wait for each other on such small tables

from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
from numpy.random import Generator

from groupwise.diagnostics import concentration, hacking, zero_variance
from groupwise.diagnostics.judgement import Measure
from groupwise.diagnostics.signals import Evidence
from groupwise.intervals import Interval, wilson
from groupwise.record.run import Meaning, RunRecord, steps_table

sys.path.append(str(Path(__file__).resolve().parents[1]))  # common
from common import arguments, results_of

from groupwise_lab.worlds.runs import autoregressive_noise, simulated_run

SEED = 20261121
STEPS = 150
Measured = Callable[[Generator], tuple[Measure | None, float]]


def record_of(reward_PG: np.ndarray | None = None, **columns: np.ndarray) -> RunRecord:
    """A record of columns, and of rewards by step, prompt and completion."""
    names = {"reward": "reward", "entropy": "entropy", "held_out": "eval/reward"}
    meanings = tuple(Meaning(key, names[key], "simulated") for key in columns)
    rollouts = None
    if reward_PG is not None:
        steps, prompts, size = reward_PG.shape
        rollouts = pl.DataFrame(
            {
                "step": np.repeat(np.arange(1, steps + 1), prompts * size),
                "prompt_id": np.tile(np.repeat(np.arange(prompts), size), steps),
                "reward": reward_PG.ravel(),
            }
        )
    return RunRecord(
        "simulated", steps_table(range(1, STEPS + 1), columns), rollouts, meanings=meanings
    )


def named(found: tuple[Measure, ...], name: str) -> Measure | None:
    """The measure of a name."""
    return next((measure for measure in found if measure.name == name), None)


def ceiling(correlation: float) -> Measured:
    """The entropy law with noise in both, of the rewards autoregressive."""

    def world(rng: Generator) -> tuple[Measure | None, float]:
        entropy = rng.uniform(0.4, 1.0) * rng.uniform(0.1, 0.5) ** (np.arange(STEPS) / STEPS)
        slope, top = rng.uniform(0.3, 0.8), rng.uniform(0.6, 0.95)
        reward = (
            top
            - slope * (np.exp(entropy) - 1)
            + autoregressive_noise(rng, STEPS, deviation=0.03, correlation=correlation)
        )
        record = record_of(
            reward=reward, entropy=entropy * np.exp(0.05 * rng.standard_normal(STEPS))
        )
        return named(concentration.ceiling(Evidence(record)), "entropy_ceiling"), top

    return world


def groups(name: str) -> Measured:
    """Prompts equally hard and independent completions, right or wrong, or of three grades."""

    def world(rng: Generator) -> tuple[Measure | None, float]:
        size, chance = int(rng.choice([4, 8])), rng.uniform(0.2, 0.85)
        shape = (STEPS, 16, size)
        if name == "dead_beyond_chance":
            reward = rng.choice([0.0, 0.5, 1.0], p=[1 - chance, chance / 2, chance / 2], size=shape)
        else:
            reward = (rng.random(shape) < chance).astype(float)
        evidence = Evidence(record_of(reward, reward=reward.mean(axis=(1, 2))))
        found = (
            concentration.measures(evidence)
            if name == "best_minus_mean"
            else zero_variance.measures(evidence)
        )
        truth = {
            "dead_beyond_chance": 0.0,
            "effective_group_size": float(size),
            "all_right": chance**size,
        }
        return named(found, name), truth.get(name, 1 - (1 - chance) ** size - chance)

    return world


def progress(rng: Generator) -> tuple[Measure | None, float]:
    """A training and a held-out reward that gain at a constant pace."""
    place = np.arange(STEPS) / STEPS
    train, held = rng.uniform(0.1, 0.5), rng.uniform(-0.1, 0.4)
    noise = rng.uniform(0.01, 0.04)
    record = record_of(
        reward=0.2 + train * place + noise * rng.standard_normal(STEPS),
        held_out=0.2 + held * place + noise * rng.standard_normal(STEPS),
    )
    few = STEPS // 6
    return named(hacking.measures(Evidence(record)), "progress_gap"), (train - held) * (
        STEPS - few
    ) / STEPS


def onset(rng: Generator) -> tuple[Measure | None, float]:
    """A simulated run that is hacked from a step on, and the range that is told for this step."""
    record, step = simulated_run("reward_hacking", rng)
    pair = hacking.pair_of(Evidence(record))
    assert pair is not None
    assert step is not None
    parting = hacking.parting_of(pair)
    return Measure(
        "reward_hacking",
        "onset",
        Interval(float(parting.step), float(parting.first), float(parting.last)),
        "",
    ), float(step)


WORLDS: tuple[tuple[str, str, Measured], ...] = (
    ("entropy_ceiling", "independent rows", ceiling(0.0)),
    ("entropy_ceiling", "neighbours correlate by 0.8", ceiling(0.8)),
    ("best_minus_mean", "right or wrong", groups("best_minus_mean")),
    ("dead_beyond_chance", "three grades", groups("dead_beyond_chance")),
    ("all_right", "right or wrong", groups("all_right")),
    ("effective_group_size", "right or wrong", groups("effective_group_size")),
    ("progress_gap", "constant pace", progress),
    ("range of the onset of hacking", "simulated runs", onset),
)


def main() -> None:
    """Run every world and write the table."""
    given = arguments(__doc__, runs=400, seed=SEED)
    rows = []
    for place, (name, said, world) in enumerate(WORLDS):
        seen = [world(np.random.default_rng([given.seed, place, i])) for i in range(given.runs)]
        known = [
            (measure.value, truth)
            for measure, truth in seen
            if measure is not None and measure.value is not None
        ]
        share = wilson(sum(value.low <= truth <= value.high for value, truth in known), len(known))
        row = {"number": name, "world": said, "runs": given.runs, "told": len(known)}
        ends = {"inside": share.value, "low": share.low, "high": share.high}
        rows.append(row | {key: f"{end:.4f}" for key, end in ends.items()})
    results_of(__file__).write("measures", rows)


if __name__ == "__main__":
    main()
