"""Every check: healthy runs stay healthy, its own failure is found with its onset, and missing columns are said to be missing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds.runs import CONTROLS, FAILURES, HEALTHY, control_run, simulated_run

from groupwise.diagnostics.former import CHECKS, Evidence, Finding, Healthy, Unavailable, diagnose, verdict
from groupwise.diagnostics.former.findings import Cause
from groupwise.record.run import Meaning, RunRecord, rollouts_table, steps_table

VERDICTS = {"healthy", *FAILURES, "several", "undetermined"}


def run(kind: str, seed: int = 0, steps: int = 200) -> tuple[RunRecord, int | None]:
    return simulated_run(kind, np.random.default_rng(seed), steps=steps)


def log(**columns: np.ndarray) -> RunRecord:
    names = {"reward": "reward", "held_out": "eval/reward", "entropy": "entropy", "length": "completion_length", "rate": "learning_rate"}
    length = len(next(iter(columns.values())))
    meanings = tuple(Meaning(key, names[key], "test") for key in columns if key in names)
    return RunRecord("test", steps_table(range(1, length + 1), columns), meanings=meanings)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_a_check_answers_in_one_of_three_ways_and_under_its_name(check: object) -> None:
    for kind in ("trending", "collapse"):
        outcome = check.run(Evidence(run(kind)[0]))  # type: ignore[attr-defined]
        assert isinstance(outcome, Healthy | Finding | Unavailable)
        assert outcome.check == check.name  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", HEALTHY)
def test_healthy_runs_are_not_critical(kind: str) -> None:
    # 12 runs a kind at a measured rate below 0.5 %: a false alarm of this test once in 17 changes of the seeds, at most.
    assert [seed for seed in range(12) if diagnose(run(kind, seed)[0]).worst == "critical"] == []


@pytest.mark.parametrize("kind", FAILURES)
def test_each_failure_is_named(kind: str) -> None:
    verdicts = [diagnose(run(kind, seed)[0]).verdict for seed in range(10)]
    # At 90 % on the diagonal fewer than 6 of 10 come about once in 600.
    assert verdicts.count(kind) >= 6


@pytest.mark.parametrize("kind", ["verifier_failure", "advantage_degeneracy", "policy_concentration", "collapse"])
def test_the_onset_is_placed_within_a_tenth_of_the_run(kind: str) -> None:
    for seed in range(5):
        record, onset = run(kind, seed)
        steps = [finding.since_step for finding in diagnose(record).findings if finding.since_step is not None]
        assert onset is not None
        assert min(abs(step - onset) for step in steps) <= 25


@pytest.mark.parametrize("control", CONTROLS)
def test_controls_are_not_critical(control: str) -> None:
    found = [diagnose(control_run(control, "trending", np.random.default_rng(seed))).worst for seed in range(8)]
    assert found.count("critical") <= 1


def test_a_constant_at_the_top_is_success_and_at_zero_a_failure() -> None:
    rise = np.concatenate([np.linspace(0.5, 1.0, 60), np.ones(60)])
    assert diagnose(log(reward=rise)).verdict == "healthy"
    rng = np.random.default_rng(2)
    stuck = np.concatenate([0.7 + 0.03 * rng.standard_normal(60), np.zeros(30)])
    found = diagnose(log(reward=stuck))
    assert (found.verdict, found.findings[0].since_step) == ("verifier_failure", 61)


def test_a_gradual_fall_without_more_is_undetermined_and_says_what_to_log() -> None:
    rng = np.random.default_rng(3)
    reward = np.clip(0.6 * (1 - np.clip((np.arange(150) - 90) / 30, 0, 1)) + 0.03 * rng.standard_normal(150), 0, 1)
    found = diagnose(log(reward=reward))
    assert found.verdict == "undetermined"
    assert "Cannot tell between" in found.sentence
    assert "log " in found.findings[0].advice


@pytest.mark.parametrize(
    ("chances", "said"),
    [((0.5, 0.3), "collapse (50 %) and length (30 %)"), ((0.68, 0.06), "collapse (68 %) and none of the five causes (26 %)")],
)
def test_what_cannot_be_told_apart_are_the_two_likeliest(chances: tuple[float, float], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdict, "telling", lambda *_: None)
    causes = [Cause("collapse", chances[0]), Cause("length", chances[1])]
    told = verdict._cannot_tell(causes, (), pointed=True)
    assert told == f"Cannot tell between {said}: read the completions from before and after."


def test_hacking_needs_the_held_out_reward_to_lag() -> None:
    rng = np.random.default_rng(4)
    train = np.linspace(0.3, 0.8, 120) + 0.02 * rng.standard_normal(120)
    coupled = log(reward=train, held_out=train - 0.05 + 0.02 * rng.standard_normal(120))
    parted = log(reward=train, held_out=0.3 + 0.02 * rng.standard_normal(120))
    assert diagnose(coupled).verdict == "healthy"
    assert diagnose(parted).verdict == "reward_hacking"
    assert [missing.check for missing in diagnose(log(reward=train)).unavailable if missing.check == "reward_hacking"]


def test_a_swing_is_told_from_slow_noise() -> None:
    rng = np.random.default_rng(5)
    step = np.arange(200)
    grows = np.maximum(step - 120, 0) / 80
    swing = 0.55 + 0.03 * rng.standard_normal(200) + 0.3 * grows * np.sin(step / 2)
    assert diagnose(log(reward=swing)).verdict == "dynamical_instability"


def test_a_learning_rate_of_zero_is_critical() -> None:
    found = diagnose(log(reward=0.4 + 0.02 * np.random.default_rng(6).standard_normal(40), rate=np.zeros(40)))
    assert [(finding.check, finding.severity) for finding in found.findings] == [("no_learning", "critical")]


def test_ties_broken_by_a_hair_are_found_in_the_rollouts() -> None:
    rng = np.random.default_rng(7)
    rows = [
        {"step": step, "prompt_id": prompt, "reward": float(prompt % 2) + 1e-5 * float(rng.random())}
        for step in range(1, 31)
        for prompt in range(4)
        for _ in range(4)
    ]
    table = rollouts_table(rows)
    assert table is not None
    steps = table.group_by("step").agg(pl.col("reward").mean()).sort("step")
    record = replace(log(reward=steps["reward"].to_numpy() + 0.01 * rng.standard_normal(30)), rollouts=table)
    assert "verifier_failure" in [finding.check for finding in diagnose(record).findings]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=0, max_size=40), st.lists(st.floats(0, 1e6), min_size=40, max_size=40))
def test_any_numbers_give_a_diagnosis(reward: list[float], entropy: list[float]) -> None:
    if not reward:
        return
    found = diagnose(log(reward=np.array(reward), entropy=np.array(entropy[: len(reward)])))
    assert found.verdict in VERDICTS
    data = found.as_dict()
    names = [finding["check"] for finding in data["findings"]] + data["healthy"] + [missing["check"] for missing in data["unavailable"]]
    assert sorted(names) == sorted(check.name for check in CHECKS)
    assert sum(cause["probability"] for cause in data["causes"]) <= 1.001
