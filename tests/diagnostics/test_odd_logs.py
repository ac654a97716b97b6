"""Logs that are not what a check expects: dead signals, missing numbers, data in a fixed order, single groups, several reward functions."""

from __future__ import annotations

import numpy as np
import pytest
from worlds.runs import simulated_run

from groupwise.diagnostics.former import Diagnosis, diagnose
from groupwise.diagnostics.former.findings import Finding
from groupwise.diagnostics.former.verdict import conclude
from groupwise.record.run import Meaning, RunRecord, steps_table

NAMES = {
    "reward": "reward",
    "spread": "reward_std_within_group",
    "entropy": "entropy",
    "kl": "kl",
    "rate": "learning_rate",
    "dead": "dead_group_share",
    "gradient": "gradient_norm",
    "loss": "loss",
    "length": "completion_length",
    "cut": "truncated_share",
    "held_out": "eval/reward",
    "correct": "reward/correct",
    "format": "reward/format",
}
N = 200
STEP = np.arange(N)


def log(**columns: np.ndarray) -> RunRecord:
    meanings = tuple(Meaning(key, NAMES[key], "test") for key in columns if key in NAMES)
    return RunRecord("test", steps_table(range(1, len(next(iter(columns.values()))) + 1), columns), meanings=meanings)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def learning(seed: int = 0, n: int = N) -> np.ndarray:
    return np.asarray(0.2 + 0.5 * (1 - np.exp(-np.arange(n) / 60)) + 0.03 * rng(seed).standard_normal(n))


def severities(found: Diagnosis) -> dict[str, str]:
    return {finding.check: finding.severity for finding in found.findings}


@pytest.mark.parametrize("level", [0.0, 0.5, -0.25])
@pytest.mark.parametrize("moving", [False, True])
def test_a_constant_reward_below_its_top_is_critical_and_no_cause_is_chosen(level: float, moving: bool) -> None:
    more = {"kl": 1e-3 * STEP, "dead": np.ones(N), "entropy": np.linspace(0.5, 0.3, N)} if moving else {}
    found = diagnose(log(reward=np.full(N, level), spread=np.zeros(N), **more))
    assert severities(found)["verifier_failure"] == "critical"
    assert found.verdict == "undetermined"
    assert "verifier failure and advantage degeneracy (the task is too hard" in found.sentence


def test_a_constant_reward_at_its_top_is_healthy() -> None:
    assert diagnose(log(reward=np.ones(N), spread=np.zeros(N), dead=np.ones(N))).verdict == "healthy"


def test_a_spread_of_zero_throughout_is_critical_although_the_reward_varies() -> None:
    found = diagnose(log(reward=0.4 + 0.05 * rng().standard_normal(N), spread=np.zeros(N)))
    assert found.worst == "critical"


def test_a_flat_reward_is_a_warning_although_the_policy_moves() -> None:
    found = diagnose(log(reward=0.3 + 0.02 * rng().standard_normal(N), kl=1e-3 * STEP + 1e-4 * rng(1).standard_normal(N)))
    assert severities(found)["no_learning"] == "warning"
    assert "policy moves" in found.findings[0].message


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_that_are_not_finite_to_the_end_are_instability_with_their_onset(bad: float) -> None:
    gone = np.where(STEP >= 120, bad, 1.0)
    found = diagnose(log(reward=learning() * gone, loss=0.01 * gone, gradient=0.3 * gone, length=200 + rng(2).standard_normal(N)))
    assert (found.verdict, found.worst) == ("dynamical_instability", "critical")
    assert found.findings[0].since_step == 121


def test_a_gradient_norm_that_alone_is_gone_is_a_warning() -> None:
    found = diagnose(log(reward=learning(), gradient=np.where(STEP > 100, np.nan, 0.3)))
    assert severities(found)["dynamical_instability"] == "warning"


def test_a_missing_last_row_is_no_divergence() -> None:
    reward = learning()
    reward[-1] = np.nan
    assert diagnose(log(reward=reward, length=200 + rng(2).standard_normal(N))).verdict == "healthy"


def test_too_little_to_look_at_is_undetermined() -> None:
    assert diagnose(log(entropy=np.linspace(0.5, 0.3, N))).verdict == "undetermined"
    assert diagnose(log(reward=learning(n=5))).verdict == "undetermined"


@pytest.mark.parametrize("column", ["correctness", "val/success", "training/off_policy/trajectory_staleness/mean"])
def test_words_that_end_in_ess_are_no_effective_sample_size(column: str) -> None:
    low = np.where(STEP == 3, 1.0, 0.05)
    assert diagnose(log(reward=learning(), **{column: low})).verdict == "healthy"
    assert "dynamical_instability" in severities(diagnose(log(reward=learning(), **{"rollout/ess": low})))


def test_two_data_sources_in_turn_are_no_instability() -> None:
    for gap in (0.2, 0.35):
        reward = np.clip(0.45 + 0.15 * STEP / N + np.where(STEP % 2, gap, -gap) + 0.03 * rng(3).standard_normal(N), 0, 1)
        found = diagnose(log(reward=reward))
        assert found.worst != "critical"
        assert any("order of the data" in finding.message for finding in found.findings)


def test_prompts_in_the_same_order_every_epoch_are_no_instability() -> None:
    for seed in range(15):
        noise = rng(seed)
        profile = np.tile(0.15 * noise.standard_normal(20), N // 20)
        found = diagnose(log(reward=np.clip(0.4 + 0.3 * STEP / N + profile + 0.03 * noise.standard_normal(N), 0, 1)))
        assert found.worst != "critical"
        assert found.verdict == "healthy"


def test_a_swing_that_grows_is_critical() -> None:
    swing = 0.55 + 0.03 * rng(5).standard_normal(N) + 0.3 * np.maximum(STEP - 100, 0) / 100 * np.sin(STEP / 2)
    assert severities(diagnose(log(reward=swing)))["dynamical_instability"] == "critical"


def test_single_small_groups_of_unlike_prompts_are_not_degenerate() -> None:
    # 20 runs of one group of two a row: before rows were pooled 29 % were critical.
    for seed in range(20):
        noise = rng(seed)
        chance = noise.beta(0.6, 0.6, N)
        right = noise.binomial(2, chance)
        found = diagnose(log(reward=right / 2, dead=(right != 1).astype(float)))
        assert "advantage_degeneracy" not in severities(found)


def test_one_reward_function_that_earns_the_whole_gain_is_said() -> None:
    style = 0.2 + 0.7 * STEP / N + 0.03 * rng(6).standard_normal(N)
    truth = np.clip(0.01 + 0.005 * rng(7).standard_normal(N), 0, 1)
    found = diagnose(log(reward=style + truth, correct=truth, format=style))
    assert severities(found)["reward_hacking"] == "warning"
    both = diagnose(log(reward=2 * style, correct=style, format=style + 0.01 * rng(8).standard_normal(N)))
    assert "reward_hacking" not in severities(both)


def test_the_top_is_not_guessed_where_several_reward_functions_are_logged() -> None:
    truth, style = 0.02 + 0.005 * rng(9).standard_normal(N), 0.93 + 0.01 * rng(10).standard_normal(N)
    entropy = np.where(STEP < 60, 0.6 * np.exp(-STEP / 15), 0.005)
    found = diagnose(log(reward=truth + style, correct=truth, format=style, entropy=entropy, dead=np.where(STEP < 60, 0.2, 0.95)))
    assert "done" not in " ".join(finding.message for finding in found.findings)
    assert found.verdict != "healthy"


def test_a_held_out_gain_that_is_small_but_real_is_a_warning() -> None:
    train = np.linspace(0.3, 0.9, N) + 0.02 * rng(11).standard_normal(N)
    held = 0.3 + 0.1 * STEP / N + 0.005 * rng(12).standard_normal(N)
    found = diagnose(log(reward=train, held_out=held))
    assert severities(found)["reward_hacking"] == "warning"
    assert "overfit" in next(finding.advice for finding in found.findings if finding.check == "reward_hacking")


def test_a_learning_rate_that_is_zero_from_a_row_on_is_found_and_a_schedule_is_not() -> None:
    rate = np.where(STEP < 50, 1e-6, 0.0)
    worst = next(finding for finding in diagnose(log(reward=learning(), rate=rate)).findings if finding.check == "no_learning")
    assert (worst.severity, worst.since_step) == ("critical", 51)
    assert diagnose(log(reward=learning(), rate=1e-6 * (1 - STEP / (N - 1)))).verdict == "healthy"


def test_errors_of_tools_are_no_failure_of_the_verifier() -> None:
    high = np.where(STEP < 100, 0.02, 0.6)
    assert diagnose(log(reward=learning(), tool_error_rate=high)).verdict == "healthy"
    assert diagnose(log(reward=learning(), verifier_error_rate=high)).verdict == "verifier_failure"


def test_a_later_cause_hides_no_earlier_finding() -> None:
    from groupwise.intervals import Interval

    one = Interval(1.0, 1.0, 1.0)
    early = Finding("policy_concentration", "critical", 40, one, 0.0, "a", "b")
    late = Finding("dynamical_instability", "critical", 170, one, 0.0, "a", "b")
    assert conclude("test", [early, late]).verdict == "several"


def test_a_length_runaway_without_harm_is_a_warning() -> None:
    record, onset = simulated_run("length_runaway", rng(13), steps=200)
    found = diagnose(record)
    worst = next(finding for finding in found.findings if finding.check == "length_runaway")
    assert worst.severity == "warning"
    assert worst.since_step is not None
    assert onset is not None
    assert abs(worst.since_step - onset) <= 30


@pytest.mark.parametrize("kind", ["data_order", "alternating_sources", "single_groups"])
def test_new_healthy_kinds_are_healthy(kind: str) -> None:
    found = [diagnose(simulated_run(kind, rng(seed))[0]) for seed in range(12)]
    assert [diagnosis.worst for diagnosis in found].count("critical") == 0
    assert [diagnosis.verdict for diagnosis in found].count("healthy") >= 11
