"""Fifteen signatures of users' threads once more: other numbers, noise, and another trainer's keys
than those that the rules were first tried on. Ten have a generator among the complaints.
"""

from __future__ import annotations

import numpy as np
from lab.tests import complaints
from lab.tests.complaints import Columns, Kind, healthy
from numpy.random import Generator
from numpy.typing import NDArray


def _gone(rng: Generator, rows: int, width: float) -> NDArray[np.float64]:
    """From 0 to 1 in the first half of a log."""
    onset = rng.uniform(0.25, 0.5) * rows
    return np.asarray(1 / (1 + np.exp(-np.clip((np.arange(rows) - onset) / width, -50, 50))))


def numbers_end(rng: Generator, rows: int) -> Columns:
    """Numbers end at a step without a sign before."""
    columns, late = healthy(rng, rows), np.arange(rows) >= rng.uniform(0.4, 0.7) * rows
    ended = {name: np.where(late, np.nan, columns[name]) for name in ("norm", "entropy", "kl")}
    return columns | ended | {"reward": np.where(late, 0.0, columns["reward"])}


def judge_is_gamed(rng: Generator, rows: int) -> Columns:
    """The judge that is trained on climbs, and another one's score peaks and is lost."""
    time, peak = np.linspace(0, 1, rows), rng.uniform(0.3, 0.45)
    trained = rng.uniform(0.3, 0.4) + rng.uniform(0.4, 0.5) * -np.expm1(-3 * time)
    height = rng.uniform(0.1, 0.14)
    held = 0.35 + height * np.minimum(time / peak, 1) - 3 * height * np.maximum(time - peak, 0)
    due = (np.arange(rows) + 1) % 10 == 0
    return healthy(rng, rows) | {
        "reward": trained + rng.normal(0, 0.02, rows),
        "held": np.where(due, held + rng.normal(0, 0.008, rows), np.nan),
    }


def entropy_explodes(rng: Generator, rows: int) -> Columns:
    """Entropy and length explode, and the reward is lost with them."""
    gone = _gone(rng, rows, rows / 40)
    columns = healthy(rng, rows)
    return columns | {
        "entropy": columns["entropy"] * (1 + rng.uniform(5, 12) * gone),
        "length": columns["length"] * (1 + rng.uniform(4, 8) * gone),
        "truncated": np.clip(columns["truncated"] + 0.95 * gone, 0, 1),
        "reward": columns["reward"] * (1 - gone) + np.abs(rng.normal(0, 0.005, rows)),
    }


def dead_pairs(rng: Generator, rows: int) -> Columns:
    """Flat at a tiny rate, and most groups are all wrong or all right."""
    dead = np.clip(rng.uniform(0.5, 0.6) + rng.normal(0, 0.04, rows), 0, 1)
    solved = np.clip(0.12 + rng.normal(0, 0.02, rows), 0, 1)
    level = rng.uniform(0.2, 0.3) + rng.normal(0, 0.04, rows)
    kl = np.full(rows, 1e-5)
    return healthy(rng, rows) | {
        "reward": level,
        "dead": dead,
        "solved": solved,
        "kl": kl,
        "rate": 5e-7,
    }


def cut_off(rng: Generator, rows: int) -> Columns:
    """Answers run into their limit, and the reward with them."""
    gone = _gone(rng, rows, rows / 25)
    columns = healthy(rng, rows)
    return columns | {
        "length": columns["length"] * (1 + rng.uniform(1.5, 3) * gone),
        "truncated": np.clip(0.1 + 0.88 * gone + rng.normal(0, 0.01, rows), 0, 1),
        "reward": 0.6 * (1 - 0.97 * gone) + rng.normal(0, 0.015, rows) * (1 - 0.9 * gone),
    }


AGAIN: dict[str, tuple[Kind, str, str]] = {
    "pinned": (complaints.never_synchronised, "verl", "never reach the sampler"),
    "topp": (complaints.truncated_sampling, "nemo-rl", "truncated distribution"),
    "seqsum": (complaints.summed_ratio, "nemo-rl", "summed over tokens"),
    "liger": (complaints.summed_loss, "open-instruct", "far larger than the settings imply"),
    "klonly": (complaints.no_policy_term, "verl", "almost no policy gradient"),
    "primeenv": (complaints.one_environment_falls, "nemo-rl", "one environment"),
    "infra": (complaints.infrastructure_fails, "prime-rl", "infrastructure"),
    "loospike": (complaints.impossible_advantages, "verl", "deviation near 0"),
    "toolstop": (complaints.tools_stop, "verl", "stops calling its tools"),
    "toolfail": (complaints.tools_fail, "trl", "tool calls fail"),
    "soupnan": (numbers_end, "verl", "numerical failure"),
    "rubric": (judge_is_gamed, "verl", "reward hacking"),
    "rllm368": (entropy_explodes, "verl", "ran away in length"),
    "loraflat": (dead_pairs, "nemo-rl", "far too small|zero.variance"),
    "marin": (cut_off, "verl", "ran away in length"),
}
"""By the probe's name: the generator, the trainer whose keys it has, words of the answer."""
