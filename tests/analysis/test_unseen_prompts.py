"""Prompts of the log that a sample of groups misses: told where they would carry T away."""

from __future__ import annotations

import numpy as np
import pytest

from groupwise.analysis.components import _unseen_notes, sample_groups
from groupwise.estimators.components import components
from groupwise.record.run import RunRecord, rollouts_table, steps_table

SIZE, SAMPLED, LOGGED, WIDTH = 8, 64, 640, 6


def logged(reward_PG: np.ndarray) -> RunRecord:
    rows = [
        {
            "step": 1 + place // 64,
            "prompt_id": place % 64,
            "prompt": f"{'ab'[place % 2] * (place + 2)} is a prompt of its own",
            "completion": "x",
            "reward": float(reward),
        }
        for place, reward_G in enumerate(reward_PG)
        for reward in reward_G
    ]
    steps = list(range(1, len(reward_PG) // 64 + 1))
    return RunRecord(
        "logged", steps_table(steps, {"reward": [0.0] * len(steps)}), rollouts_table(rows)
    )


def note_and_coverage(reward_PG: np.ndarray, seed: int) -> tuple[bool, bool]:
    """Whether the note is there, and whether T's interval holds the truth of all prompts."""
    rng = np.random.default_rng([7, seed])
    sample = sample_groups(logged(reward_PG), None, groups=SAMPLED, steps=None, seed=seed)
    reward, label = sample.rows["reward"].to_numpy(), sample.rows["group"].to_numpy()
    score = rng.normal(size=(len(reward), WIDTH))
    estimates = components(reward, label, score_ND=score, text_N=sample.rows["prompt"].to_list())
    truth = WIDTH * float(reward_PG.var(axis=1, ddof=1).mean())
    return bool(_unseen_notes(sample.unseen, estimates)), estimates.t.interval.covers(truth)


def rewards(seed: int, paid: float) -> np.ndarray:
    """One prompt in fifty pays so many times as much."""
    rng = np.random.default_rng([5, seed])
    return rng.normal(size=(LOGGED, SIZE)) * np.where(rng.random((LOGGED, 1)) < 0.02, paid, 1.0)


def test_a_sample_without_the_prompts_that_pay_most_is_told() -> None:
    """27 % of samples of 64 hold none of them, and just these miss the truth."""
    outcomes = [note_and_coverage(rewards(seed, 8.0), seed) for seed in range(40)]
    silent = [holds for noted, holds in outcomes if not noted]
    assert 4 <= len(outcomes) - len(silent) <= 18
    assert not any(holds for noted, holds in outcomes if noted)
    assert np.mean(silent) >= 0.9


@pytest.mark.parametrize("kind", ["normal", "right or wrong", "skewed"])
def test_ordinary_rewards_are_no_alarm(kind: str) -> None:
    noted = 0
    for seed in range(30):
        rng = np.random.default_rng([6, seed])
        shape = (LOGGED, SIZE)
        reward_PG = {
            "normal": rng.normal(size=shape),
            "right or wrong": (rng.random(shape) < rng.beta(1, 3, (LOGGED, 1))).astype(float),
            "skewed": rng.exponential(size=shape),
        }[kind]
        noted += note_and_coverage(reward_PG, seed)[0]
    assert noted <= 3
