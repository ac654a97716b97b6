"""Logs as users complained of them, under the keys of two trainers: each with the cause that was
found in the end, and healthy logs that look alike.

Every column is drawn anew for each seed: levels, noise, onset, severity, number of rows. It shares
no code with what judges it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.random import Generator

Columns = dict[str, Any]
"""A number or one value a row, by quantity."""

KEYS: dict[str, dict[str, str]] = {
    "trl": {
        "reward": "reward",
        "spread": "reward_std",
        "norm": "grad_norm",
        "rate": "learning_rate",
        "kl": "kl",
        "entropy": "entropy",
        "length": "completions/mean_length",
        "truncated": "completions/clipped_ratio",
        "gap": "sampling/sampling_logp_difference/mean",
        "ratio": "sampling/importance_sampling_ratio/mean",
        "age": "sample/staleness_mean",
        "calls": "tools/call_frequency",
        "failures": "tools/failure_frequency",
        "dead": "frac_reward_zero_std",
    },
    "verl": {
        "reward": "critic/score/mean",
        "advantage": "critic/advantages/min",
        "norm": "actor/grad_norm",
        "rate": "actor/lr",
        "kl": "actor/kl_loss",
        "entropy": "actor/entropy",
        "length": "response_length/mean",
        "truncated": "response_length/clip_ratio",
        "gap": "rollout_corr/kl",
        "ratio": "rollout_corr/rollout_is_mean",
        "turns": "num_turns/mean",
        "age": "training/off_policy/trajectory_staleness/mean",
    },
    "prime-rl": {
        "reward": "train/agg/all/agent/reward/mean",
        "first": "train/math/all/reward/mean",
        "second": "train/code/all/reward/mean",
        "norm": "optim/grad_norm",
        "rate": "optim/lr",
        "entropy": "entropy/all/mean",
        "gap": "mismatch_kl/all/mean",
    },
    "open-instruct": {
        "reward": "scores",
        "norm": "optim/grad_norm",
        "rate": "lr",
        "kl": "objective/kl1_avg",
        "entropy": "policy/entropy_avg",
        "length": "val/sequence_lengths",
        "infra": "val/infra_failed_rate",
    },
}


def healthy(rng: Generator, rows: int) -> Columns:
    """A run that learns: its reward rises and saturates, the rest stays near where it began."""
    time, start = np.arange(rows), rng.uniform(0.2, 0.4)
    gain, pace = rng.uniform(0.2, 0.4), rng.uniform(0.15, 0.35) * rows
    return {
        "reward": start + gain * -np.expm1(-time / pace) + rng.normal(0, 0.025, rows),
        "spread": 0.38 + rng.normal(0, 0.02, rows),
        "advantage": -2.2 + rng.normal(0, 0.05, rows),
        "norm": rng.uniform(0.1, 0.8) * np.exp(rng.normal(0, 0.15, rows)),
        "rate": 1e-6,
        "kl": np.linspace(1e-4, rng.uniform(0.005, 0.05), rows) * np.exp(rng.normal(0, 0.1, rows)),
        "entropy": 0.5 + rng.normal(0, 0.02, rows),
        "length": rng.uniform(150, 600) * (1 + rng.normal(0, 0.03, rows)),
        "truncated": np.clip(0.02 + rng.normal(0, 0.005, rows), 0, 1),
        "dead": np.clip(0.2 + rng.normal(0, 0.05, rows), 0, 1),
        "gap": rng.uniform(0.001, 0.004) * np.exp(rng.normal(0, 0.1, rows)),
        "ratio": 1 + rng.normal(0, 0.002, rows),
        "infra": np.clip(0.01 + rng.normal(0, 0.005, rows), 0, 1),
        "calls": rng.uniform(1.2, 2.5) * (1 + rng.normal(0, 0.04, rows)),
        "failures": np.clip(0.04 + rng.normal(0, 0.01, rows), 0, 1),
        "age": 0.0,
    }


def _flat(rng: Generator, rows: int, columns: Columns) -> Columns:
    """The same, whose reward stands."""
    level = rng.uniform(0.2, 0.4)
    return columns | {"reward": level + rng.normal(0, 0.025, rows)}


def _since(rng: Generator, rows: int, width: float = 1.0) -> Any:
    """A step from 0 to 1 somewhere in the middle of a log."""
    onset = rng.uniform(0.35, 0.65) * rows
    return 1 / (1 + np.exp(-np.clip((np.arange(rows) - onset) / width, -50, 50)))


def truncated_sampling(rng: Generator, rows: int) -> Columns:
    """Of the mass a nucleus is kept: w = e^-d from the first row on."""
    gap = rng.uniform(0.05, 0.2) * (1 + rng.normal(0, 0.03, rows))
    return healthy(rng, rows) | {"gap": gap, "ratio": np.exp(-gap)}


def summed_ratio(rng: Generator, rows: int) -> Columns:
    """The logarithm of a ratio is summed over an answer."""
    ratio = rng.uniform(0.4, 0.8) + rng.normal(0, 0.02, rows)
    return healthy(rng, rows) | {"gap": rng.uniform(0.003, 0.01), "ratio": ratio}


def never_synchronised(rng: Generator, rows: int) -> Columns:
    """The policy moves and its rollouts come from the first one."""
    kl = np.linspace(0.001, rng.uniform(0.1, 0.3), rows) * np.exp(rng.normal(0, 0.02, rows))
    gap = 0.003 + rng.uniform(0.6, 1.0) * kl
    return _flat(rng, rows, healthy(rng, rows)) | {"kl": kl, "gap": gap, "ratio": np.exp(-gap / 50)}


def stale_queue(rng: Generator, rows: int) -> Columns:
    """The gap goes with the age of the rollouts."""
    age = np.clip(rng.uniform(2, 5) * _since(rng, rows, 8) + rng.exponential(0.6, rows), 0, None)
    gap = 0.004 + rng.uniform(0.02, 0.05) * age * np.exp(rng.normal(0, 0.1, rows))
    return healthy(rng, rows) | {"age": age, "gap": gap}


def tokenised_again(rng: Generator, rows: int) -> Columns:
    """The gap goes with the number of turns."""
    turns = 1 + rng.uniform(3, 6) * _since(rng, rows, 15) + np.abs(rng.normal(0, 0.15, rows))
    gap = 0.002 + rng.uniform(0.02, 0.05) * (turns - 1) * np.exp(rng.normal(0, 0.05, rows))
    return healthy(rng, rows) | {"turns": turns, "gap": gap}


def impossible_advantages(rng: Generator, rows: int) -> Columns:
    """A deviation of near ties divides some groups."""
    columns = healthy(rng, rows)
    spikes = rng.choice(rows, int(rng.integers(1, 6)), replace=False)
    columns["advantage"][spikes] = -np.exp(rng.uniform(np.log(200), np.log(5000), len(spikes)))
    columns["norm"][spikes] *= 50
    return columns


def summed_loss(rng: Generator, rows: int) -> Columns:
    """A gradient a hundred times the usual from the first row on."""
    columns = healthy(rng, rows)
    return columns | {"norm": rng.uniform(45, 300) * np.exp(rng.normal(0, 0.15, rows))}


def no_policy_term(rng: Generator, rows: int) -> Columns:
    """The KL alone moves the weights."""
    norm = rng.uniform(0.0005, 0.003) * np.exp(rng.normal(0, 0.1, rows))
    return _flat(rng, rows, healthy(rng, rows)) | {"norm": norm}


def one_environment_falls(rng: Generator, rows: int) -> Columns:
    """One of two environments is lost while their mean rises."""
    first = rng.uniform(0.25, 0.4) - rng.uniform(0.4, 0.55) * np.expm1(-np.arange(rows) / 50)
    second = rng.uniform(0.3, 0.6) * (1 - rng.uniform(0.8, 1.0) * _since(rng, rows, 6))
    first, second = (level + rng.normal(0, 0.015, rows) for level in (first, second))
    return healthy(rng, rows) | {
        "first": first,
        "second": np.clip(second, 0, 1),
        "reward": 0.8 * first + 0.2 * second,
    }


def infrastructure_fails(rng: Generator, rows: int) -> Columns:
    """Episodes that fail by their sandboxes are graded 0."""
    columns = healthy(rng, rows)
    share = columns["infra"] + rng.uniform(0.25, 0.5) * _since(rng, rows)
    return columns | {"infra": share, "reward": columns["reward"] * (1 - share)}


def tools_stop(rng: Generator, rows: int) -> Columns:
    """The policy calls no tools any more and earns less."""
    columns, gone = healthy(rng, rows), _since(rng, rows, 5)
    columns["reward"] = _flat(rng, rows, columns)["reward"] * (1 - rng.uniform(0.3, 0.6) * gone)
    return columns | {"calls": columns["calls"] * (1 - gone)}


def tools_fail(rng: Generator, rows: int) -> Columns:
    """Calls fail and the reward with them."""
    columns, gone = healthy(rng, rows), _since(rng, rows)
    columns["reward"] = _flat(rng, rows, columns)["reward"] * (1 - rng.uniform(0.4, 0.6) * gone)
    return columns | {"failures": columns["failures"] + rng.uniform(0.5, 0.8) * gone}


def too_fast(rng: Generator, rows: int) -> Columns:
    """The first updates destroy the policy."""
    left = np.exp(-np.arange(rows) / rng.uniform(0.5, 3))
    noise = np.abs(rng.normal(0, 0.005, rows))
    return healthy(rng, rows) | {
        "reward": rng.uniform(0.2, 0.5) * left + noise,
        "entropy": 0.5 * left + 0.01 + noise,
        "rate": 1e-4,
    }


def too_slow(rng: Generator, rows: int) -> Columns:
    """A rate at which nothing moves."""
    kl = np.linspace(1e-7, rng.uniform(1e-6, 5e-5), rows)
    return _flat(rng, rows, healthy(rng, rows)) | {"kl": kl, "rate": 5e-8}


Kind = Callable[[Generator, int], Columns]
CAUSES: dict[str, tuple[Kind, tuple[str, str], str]] = {
    "truncated sampling": (truncated_sampling, ("trl", "verl"), "truncated distribution"),
    "summed ratio": (summed_ratio, ("trl", "verl"), "summed over tokens"),
    "never synchronised": (never_synchronised, ("trl", "verl"), "never reach the sampler"),
    "stale queue": (stale_queue, ("trl", "verl"), "stale queue"),
    "tokenised again": (tokenised_again, ("verl", "verl"), "tokenised again"),
    "impossible advantages": (impossible_advantages, ("verl", "verl"), "deviation near 0"),
    "summed loss": (summed_loss, ("trl", "prime-rl"), "far longer than the settings say"),
    "no policy term": (no_policy_term, ("trl", "trl"), "hardly any of the policy's gradient"),
    "one environment falls": (one_environment_falls, ("prime-rl", "prime-rl"), "one environment"),
    "infrastructure fails": (infrastructure_fails, ("open-instruct", "open-instruct"), "infra"),
    "tools stop": (tools_stop, ("trl", "trl"), "stops calling its tools"),
    "tools fail": (tools_fail, ("trl", "trl"), "tool calls fail"),
    "too fast": (too_fast, ("trl", "verl"), "too large from the start"),
    "too slow": (too_slow, ("trl", "verl"), "far too small"),
}
"""By name: the generator, the two trainers whose keys it has, words of the cause."""


def gap_that_stands(rng: Generator, rows: int) -> Columns:
    """A gap of rounding, with a ratio of 1."""
    gap = rng.uniform(0.01, 0.03) * (1 + rng.normal(0, 0.05, rows))
    return healthy(rng, rows) | {"gap": gap, "ratio": 1 + rng.normal(0, 0.005, rows)}


def gap_beside_kl(rng: Generator, rows: int) -> Columns:
    """A policy that moves and learns, with a gap that grows a little as its entropy falls."""
    columns = healthy(rng, rows)
    entropy = np.linspace(0.5, 0.3, rows) + rng.normal(0, 0.02, rows)
    return columns | {"entropy": entropy, "gap": 0.002 + 0.2 * columns["kl"]}


def environments_that_dip(rng: Generator, rows: int) -> Columns:
    """One of two environments dips and comes back."""
    columns = one_environment_falls(rng, rows)
    middle = np.exp(-(((np.arange(rows) - rows / 2) / (rows / 25)) ** 2))
    second = 0.45 * (1 - 0.5 * middle) + rng.normal(0, 0.015, rows)
    return columns | {"second": second, "reward": 0.8 * columns["first"] + 0.2 * second}


def fewer_calls(rng: Generator, rows: int) -> Columns:
    """A policy that needs fewer calls and earns more."""
    columns = healthy(rng, rows)
    return columns | {"calls": columns["calls"] * np.linspace(1, 0.5, rows)}


def first_row_lucky(rng: Generator, rows: int) -> Columns:
    """A run that learns, whose first row was a lucky one."""
    columns = healthy(rng, rows)
    columns["reward"][0] += 0.1
    return columns


ALIKE: dict[str, tuple[Kind, tuple[str, str]]] = {
    "healthy": (healthy, ("trl", "verl")),
    "a gap that stands": (gap_that_stands, ("trl", "verl")),
    "a gap beside the KL": (gap_beside_kl, ("trl", "verl")),
    "environments that dip": (environments_that_dip, ("prime-rl", "prime-rl")),
    "fewer calls": (fewer_calls, ("trl", "trl")),
    "a lucky first row": (first_row_lucky, ("trl", "verl")),
}
"""Healthy logs by name: the generator and the two trainers whose keys it has."""


def log_of(kind: Kind, trainer: str, seed: int) -> list[dict[str, float]]:
    """Return the rows of one log under the keys of a trainer."""
    rng = np.random.default_rng([20261124, seed])
    rows = int(rng.choice([120, 200, 300]))
    columns, keys = kind(rng, rows), KEYS[trainer]
    table = {
        keys[name]: np.broadcast_to(np.asarray(value, dtype=float), rows)
        for name, value in columns.items()
        if name in keys
    }
    step = {"trl": "step", "open-instruct": "training_step"}.get(trainer, "step")
    return [
        {step: row + 1, **{key: float(value[row]) for key, value in table.items()}}
        for row in range(rows)
    ]
