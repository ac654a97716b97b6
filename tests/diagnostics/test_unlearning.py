"""No learning: a gain that noise does not explain is none, at any scale; a reward that stands is found at any scale.

Sampling tests run on fixed random numbers.
"""

from __future__ import annotations

import numpy as np
import pytest
from worlds.runs import simulated_run

from groupwise.diagnostics.former import Evidence, Finding, Healthy, Outcome
from groupwise.diagnostics.former.no_learning import check, right_or_wrong
from groupwise.record.run import Meaning, RunRecord, rollouts_table, steps_table

N = 200
STEP = np.arange(N)
NAMES = {
    "reward": "reward",
    "spread": "reward_std_within_group",
    "batch": "reward_std_batch",
    "entropy": "entropy",
    "kl": "kl",
    "dead": "dead_group_share",
}


def log(**columns: np.ndarray) -> RunRecord:
    meanings = tuple(Meaning(key, NAMES[key], "test") for key in columns if key in NAMES)
    return RunRecord("test", steps_table(range(1, len(next(iter(columns.values()))) + 1), columns), meanings=meanings)


def graded(chance: np.ndarray, seed: int, scale: float, shift: float) -> dict[str, np.ndarray]:
    """Rewards of 128 rollouts a step with two grades, in groups of eight."""
    right = np.random.default_rng(seed).binomial(8, chance[:, None], (len(chance), 16))
    mean = right.mean(axis=1) / 8
    return {
        "reward": shift + scale * mean,
        "spread": scale * np.sqrt(right * (8 - right) / 56).mean(axis=1),
        "batch": scale * np.sqrt(mean * (1 - mean) * 128 / 127),
    }


def moving(seed: int = 1) -> np.ndarray:
    return np.asarray(0.6 * np.exp(-STEP / N) * np.exp(0.08 * np.random.default_rng(seed).standard_normal(N)))


def steady(seed: int = 1) -> np.ndarray:
    return np.asarray(0.6 * np.exp(0.08 * np.random.default_rng(seed).standard_normal(N)))


def judged(record: RunRecord) -> Outcome:
    return check(Evidence(record))


@pytest.mark.parametrize(("scale", "shift"), [(1, 0), (0.1, 0), (0.2, 0), (0.25, 0), (0.1, 0.5), (10, 0), (2, -1), (1, -1)])
@pytest.mark.parametrize("spreads", [True, False])
def test_a_reward_that_rises_has_learnt_at_any_scale(scale: float, shift: float, spreads: bool) -> None:
    rise = 1 / (1 + np.exp(1 - 2 * (1 - np.exp(-STEP / 80))))
    for seed in range(4):
        columns = graded(rise, seed, scale, shift)
        columns = columns if spreads else {"reward": columns["reward"]}
        assert isinstance(judged(log(**columns, entropy=moving())), Healthy)


@pytest.mark.parametrize("scale", [1.0, 0.1])
def test_a_hard_task_of_which_a_tenth_is_learnt_is_no_finding(scale: float) -> None:
    chance = 1 / (1 + np.exp(5 - 2.5 * (1 - np.exp(-STEP / 100))))
    for seed in range(5):
        assert isinstance(judged(log(**graded(chance, seed, scale, 0.0), entropy=moving())), Healthy)


@pytest.mark.parametrize(("scale", "shift"), [(1, 0), (0.1, 0), (0.1, 0.5), (1, -1), (100, 0)])
@pytest.mark.parametrize("told", [True, False])
def test_a_reward_that_stands_is_found_at_any_scale(scale: float, shift: float, told: bool) -> None:
    columns = graded(np.full(N, 0.43), 3, scale, shift)
    if not told:
        del columns["batch"]
    found = judged(log(**columns, entropy=steady()))
    assert isinstance(found, Finding)
    assert found.severity == "warning"
    assert ("top is not known" in found.message) != told
    assert found.value.covers(0.0)


def test_no_finding_of_standing_still_has_a_gain_beyond_noise() -> None:
    said = 0
    for seed in range(60):
        found = judged(simulated_run("no_learning", np.random.default_rng(1000 + seed))[0])
        if isinstance(found, Finding) and found.what != "learning rate":
            said += 1
            assert found.value.low <= 0 or (found.severity == "info" and "at most" not in found.message)
            assert found.value.low <= 0 or "does not get better" not in found.advice
    assert said > 10


def test_a_reward_that_sinks_a_little_gets_worse() -> None:
    sinking = 0.5 - 0.03 * STEP / N + 0.005 * np.random.default_rng(4).standard_normal(N)
    found = judged(log(reward=sinking, batch=np.sqrt(sinking * (1 - sinking)), kl=1e-3 * STEP))
    assert isinstance(found, Finding)
    assert "changed by -0.02" in found.message
    assert "gets worse" in found.advice


def test_a_short_log_without_a_spread_cannot_say() -> None:
    reward = 0.3 + 0.02 * np.random.default_rng(5).standard_normal(40)
    assert isinstance(judged(log(reward=reward)), Healthy)


def test_a_reward_where_most_groups_are_dead_may_stand_at_its_top() -> None:
    reward = 9.8 + 0.02 * np.random.default_rng(6).standard_normal(N)
    found = judged(log(reward=reward, spread=np.full(N, 0.5), dead=np.full(N, 0.9), entropy=moving()))
    assert isinstance(found, Finding)
    assert found.severity == "info"
    assert found.advice.startswith("Its top is not known")


def test_what_shows_that_rewards_are_right_or_wrong() -> None:
    chance = np.linspace(0.2, 0.6, N)
    columns = graded(chance, 7, 1.0, 0.0)
    mean = columns["reward"]
    ends = {"r/mean": mean, "r/min": np.zeros(N), "r/max": np.ones(N)}

    def shown(record: RunRecord) -> bool:
        evidence = Evidence(record)
        assert evidence.reward is not None
        return right_or_wrong(evidence, evidence.reward)

    assert shown(log(reward=mean, batch=columns["batch"]))
    assert not shown(log(reward=mean))
    assert not shown(log(reward=mean, batch=0.5 * columns["batch"]))
    meaning = (Meaning("r/mean", "reward", "test"),)
    assert shown(RunRecord("test", steps_table(range(1, N + 1), ends), meanings=meaning))
    assert not shown(RunRecord("test", steps_table(range(1, N + 1), {**ends, "r/max": np.full(N, 0.8)}), meanings=meaning))
    rows = [{"step": step, "prompt_id": 0, "reward": float(step % 3 > i)} for step in range(1, N + 1) for i in range(2)]
    table = rollouts_table(rows)
    reward = np.array([np.mean([step % 3 > i for i in range(2)]) for step in range(1, N + 1)])
    assert shown(
        RunRecord("test", steps_table(range(1, N + 1), {"reward": reward}), table, meanings=(Meaning("reward", "reward", "test"),))
    )
