"""Logs that are not what a check expects: dead signals, missing numbers, data in a fixed order,
single groups, several reward functions.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.golden.sentences import says

from groupwise.diagnostics.judge import judge
from groupwise.diagnostics.judgement import (
    Certainty,
    Fact,
    Finding,
    Judgement,
    Learning,
    State,
    Status,
)
from groupwise.record.run import Meaning, RunRecord, steps_table
from groupwise_lab.worlds.runs import simulated_run

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
    "brevity": "reward/brevity",
}
N = 200
STEP = np.arange(N)


def log(**columns: np.ndarray) -> RunRecord:
    meanings = tuple(Meaning(key, NAMES[key], "test") for key in columns if key in NAMES)
    return RunRecord(
        "test",
        steps_table(range(1, len(next(iter(columns.values()))) + 1), columns),
        meanings=meanings,
    )


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_groups_that_are_all_wrong_under_a_reward_of_nothing_may_be_the_verifiers() -> None:
    record = log(reward=np.zeros(N), dead=np.ones(N))
    config = record.config.with_settings({"group_size": 8, "prompts_per_step": 32}, "--set")
    judgement = judge(replace(record, config=config))
    assert Fact.GROUPS_ALL_WRONG in answer(judgement, "zero_variance").facts
    assert judgement.cause.keys == ("too_hard", "verifier")


def learning(seed: int = 0, n: int = N) -> np.ndarray:
    return np.asarray(
        0.2 + 0.5 * (1 - np.exp(-np.arange(n) / 60)) + 0.03 * rng(seed).standard_normal(n)
    )


def statuses_of(judgement: Judgement) -> dict[str, Status]:
    return {
        finding.check: finding.status
        for finding in judgement.checks
        if finding.status in (Status.INFO, Status.WARNING, Status.CRITICAL)
    }


def answer(judgement: Judgement, check: str) -> Finding:
    return next(finding for finding in judgement.checks if finding.check == check)


@pytest.mark.parametrize("moving", [False, True])
def test_a_reward_of_nothing_is_a_failure_and_one_of_another_number_tells_nothing(
    moving: bool,
) -> None:
    more = {"kl": 1e-3 * STEP, "entropy": np.linspace(0.5, 0.3, N)} if moving else {}
    nothing = judge(log(reward=np.zeros(N), **more))
    assert nothing.state == State.FAILED
    says("diagnostics/odd_logs/5", nothing.headline)
    assert nothing.cause.certainty is Certainty.CANNOT_TELL
    assert nothing.cause.names == ("the task is too hard", "a broken verifier")
    assert nothing.cause.log == ("completions with prompts and rewards",)
    assert "more rows" not in " ".join(nothing.not_logged)  # 200 of them say all that rows can
    for level, said in ((0.5, "0.50"), (-0.25, "−0.25"), (1.0, "1.00")):
        judgement = judge(log(reward=np.full(N, level), **more))
        assert judgement.state is State.CANNOT_TELL
        says("diagnostics/odd_logs/9", judgement.headline, level=said)
        assert judgement.not_logged[0].startswith("completions with prompts and rewards")


def test_a_constant_reward_of_equal_groups_is_a_failure_below_the_top_and_none_at_it() -> None:
    below, top = (judge(log(reward=np.full(N, level), spread=np.zeros(N))) for level in (0.5, 1.0))
    assert below.state == State.FAILED
    says("diagnostics/odd_logs/6", below.headline)
    assert (top.state, statuses_of(top)) == (State.CANNOT_TELL, {"zero_variance": Status.INFO})


def test_a_spread_of_zero_throughout_is_critical_although_the_reward_varies() -> None:
    judgement = judge(log(reward=0.4 + 0.05 * rng().standard_normal(N), spread=np.zeros(N)))
    assert statuses_of(judgement) == {"zero_variance": Status.CRITICAL}


def test_a_flat_reward_is_worth_a_look_although_the_policy_moves() -> None:
    judgement = judge(
        log(
            reward=0.3 + 0.02 * rng().standard_normal(N),
            kl=1e-3 * STEP + 1e-4 * rng(1).standard_normal(N),
        )
    )
    assert (judgement.state, judgement.learning, statuses_of(judgement)) == (
        State.WARNING,
        Learning.FLAT,
        {},
    )
    says("diagnostics/odd_logs/1", judgement.headline)


@pytest.mark.parametrize(("goes_on", "state"), [(0.0, State.FAILED), (0.2, State.WARNING)])
def test_a_reward_that_rose_until_its_updates_ended_has_learnt_no_more_since(
    goes_on: float, state: State
) -> None:
    """The rows long before they ended stood lower than those just before."""
    reward = 0.2 + 0.4 * np.minimum(STEP / 120, 1) + goes_on * np.clip((STEP - 120) / 80, 0, 1)
    reward += 0.02 * rng(5).standard_normal(N)
    updates = np.where(STEP >= 120, np.nan, 0.1)
    assert judge(log(reward=reward, loss=updates, gradient=updates)).state is state


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_that_are_not_finite_to_the_end_are_told_with_their_first_column_and_step(
    bad: float,
) -> None:
    gone = np.where(STEP >= 120, bad, 1.0)
    judgement = judge(
        log(
            reward=learning() * gone,
            loss=0.01 * gone,
            gradient=0.3 * gone,
            length=200 + rng(2).standard_normal(N),
        )
    )
    assert (judgement.state, judgement.since_step, judgement.cause.names) == (
        State.FAILED,
        121,
        ("numerical failure, first in loss",),
    )
    says("diagnostics/odd_logs/2", judgement.headline)


def test_a_gradient_norm_that_alone_is_gone_is_a_note() -> None:
    judgement = judge(log(reward=learning(), gradient=np.where(STEP > 100, np.nan, 0.3)))
    assert (judgement.state, statuses_of(judgement)) == (State.OK, {"numbers": Status.INFO})
    assert answer(judgement, "numbers").step == 102


def test_a_missing_last_row_is_no_divergence() -> None:
    reward = learning()
    reward[-1] = np.nan
    judgement = judge(log(reward=reward, length=200 + rng(2).standard_normal(N)))
    assert (judgement.state, statuses_of(judgement)) == (State.OK, {})


def test_too_little_to_look_at_cannot_be_told() -> None:
    bare, few = judge(log(entropy=np.linspace(0.5, 0.3, N))), judge(log(reward=learning(n=5)))
    headline = f"the log has no reward in {N} rows of 1 column, such as entropy"
    assert (bare.state, bare.headline) == (State.CANNOT_TELL, headline)
    assert bare.not_logged[0].startswith("the mean reward of each step")
    assert few.state == State.CANNOT_TELL
    says("diagnostics/odd_logs/7", few.headline)
    says("diagnostics/odd_logs/3", few.not_logged[0])


@pytest.mark.parametrize(
    "column", ["correctness", "val/success", "training/off_policy/trajectory_staleness/mean"]
)
def test_words_that_end_in_ess_are_no_effective_sample_size(column: str) -> None:
    low = np.where(STEP == 3, 1.0, 0.05)
    assert judge(log(reward=learning(), **{column: low})).state is State.OK
    assert (
        statuses_of(judge(log(reward=learning(), **{"rollout/ess": low})))["instability"]
        is Status.WARNING
    )


def test_two_data_sources_in_turn_are_no_instability() -> None:
    for gap in (0.2, 0.35):
        reward = np.clip(
            0.45
            + 0.15 * STEP / N
            + np.where(STEP % 2, gap, -gap)
            + 0.03 * rng(3).standard_normal(N),
            0,
            1,
        )
        judgement = judge(log(reward=reward))
        assert (judgement.state, statuses_of(judgement)) == (State.OK, {})
        said = (
            "the reward does not oscillate except with the order of the data, "
            "with a period of 2 rows."
        )
        assert answer(judgement, "instability").message == said


def test_prompts_in_the_same_order_every_epoch_are_no_instability() -> None:
    for seed in range(10):
        noise = rng(seed)
        profile = np.tile(0.15 * noise.standard_normal(20), N // 20)
        assert (
            judge(
                log(
                    reward=np.clip(
                        0.4 + 0.3 * STEP / N + profile + 0.03 * noise.standard_normal(N), 0, 1
                    )
                )
            ).state
            is State.OK
        )


def test_a_swing_that_grows_is_critical() -> None:
    judgement = judge(
        log(
            reward=0.55
            + 0.03 * rng(5).standard_normal(N)
            + 0.3 * np.maximum(STEP - 100, 0) / 100 * np.sin(STEP / 2)
        )
    )
    assert (judgement.state, statuses_of(judgement)) == (
        State.FAILED,
        {"instability": Status.CRITICAL},
    )
    assert judgement.cause.names == ("training became unstable (instability)",)


def test_single_small_groups_of_unlike_prompts_are_not_degenerate() -> None:
    # 20 runs of one group of two a row: before rows were pooled 29 % were critical.
    for seed in range(20):
        noise = rng(seed)
        chance = noise.beta(0.6, 0.6, N)
        right = noise.binomial(2, chance)
        judgement = judge(log(reward=right / 2, dead=(right != 1).astype(float)))
        assert statuses_of(judgement).get("zero_variance") is not Status.CRITICAL


def test_a_function_that_earns_nothing_beside_one_that_earns_is_a_note_unless_it_is_the_task() -> (
    None
):
    style = 0.2 + 0.7 * STEP / N + 0.03 * rng(6).standard_normal(N)
    little = np.clip(0.01 + 0.005 * rng(7).standard_normal(N), 0, 1)
    judgement = judge(log(reward=style + little, brevity=little, format=style))
    assert (judgement.state, statuses_of(judgement)) == (
        State.OK,
        {"reward_functions": Status.INFO},
    )
    judgement = judge(log(reward=style + little, correct=little, format=style))
    assert (judgement.state, statuses_of(judgement)) == (
        State.WARNING,
        {"reward_functions": Status.INFO, "reward_hacking": Status.WARNING},
    )
    both = judge(
        log(reward=2 * style, correct=style, format=style + 0.01 * rng(8).standard_normal(N))
    )
    assert (both.state, statuses_of(both)) == (State.OK, {})


def test_the_top_is_not_guessed_where_several_reward_functions_are_logged() -> None:
    truth, style = (
        0.02 + 0.005 * rng(9).standard_normal(N),
        0.93 + 0.01 * rng(10).standard_normal(N),
    )
    entropy = np.where(STEP < 60, 0.6 * np.exp(-STEP / 15), 0.005)
    judgement = judge(
        log(
            reward=truth + style,
            correct=truth,
            format=style,
            entropy=entropy,
            dead=np.where(STEP < 60, 0.2, 0.95),
        )
    )
    assert judgement.state is State.FAILED
    assert "top" not in " ".join(finding.message for finding in judgement.checks)


def test_a_held_out_gain_that_is_small_but_real_is_a_warning() -> None:
    train = np.linspace(0.3, 0.9, N) + 0.02 * rng(11).standard_normal(N)
    judgement = judge(
        log(reward=train, held_out=0.3 + 0.1 * STEP / N + 0.005 * rng(12).standard_normal(N))
    )
    assert (judgement.state, statuses_of(judgement)) == (
        State.WARNING,
        {"reward_hacking": Status.WARNING},
    )
    assert (judgement.cause.certainty, judgement.cause.names) == (
        Certainty.POSSIBLE,
        ("reward hacking",),
    )
    says("diagnostics/odd_logs/4", judgement.headline)


def test_a_learning_rate_that_is_zero_from_a_row_on_is_found_and_a_schedule_is_not() -> None:
    judgement = judge(log(reward=learning(), rate=np.where(STEP < 50, 1e-6, 0.0)))
    assert (judgement.state, statuses_of(judgement)["learning_rate"], judgement.since_step) == (
        State.FAILED,
        Status.CRITICAL,
        51,
    )
    assert judge(log(reward=learning(), rate=1e-6 * (1 - STEP / (N - 1)))).state is State.OK


def test_errors_of_tools_are_no_failure_of_the_verifier() -> None:
    high = np.where(STEP < 100, 0.02, 0.6)
    tools, verifier = (
        judge(log(reward=learning(), tool_error_rate=high)),
        judge(log(reward=learning(), verifier_error_rate=high)),
    )
    assert (tools.state, tools.cause.names) == (State.WARNING, ("tool calls fail",))
    assert (verifier.state, verifier.cause.names) == (State.FAILED, ("a broken verifier",))
    words = "Grading fails from step 101 on: verifier_error_rate 2 % → 60 %."
    assert verifier.headline == words


@pytest.mark.thinned(6)
@pytest.mark.parametrize("kind", ["data_order", "alternating_sources", "single_groups"])
def test_odd_healthy_kinds_raise_no_alarm(kind: str) -> None:
    assert [seed for seed in range(12) if judge(simulated_run(kind, rng(seed))[0]).alarm] == []


@pytest.mark.parametrize("rows", [60, 90, 150])
def test_two_sources_of_data_in_turn_that_part_are_no_swing(rows: int) -> None:
    """The policy learns from every second row and not from the others: from .2 to .8, or not at
    all.
    """
    row = np.arange(rows)
    reward = (
        0.2
        + 0.6 * (row % 2 == 0) * (1 - np.exp(-row / 40))
        + 0.02 * np.random.default_rng(0).standard_normal(rows)
    )
    for ended in (True, False):
        judgement = judge(
            RunRecord("run", steps_table(range(1, rows + 1), {"reward": reward})), ended=ended
        )
        assert not judgement.alarm
        assert {finding.check: finding.status.value for finding in judgement.checks}[
            "instability"
        ] in (
            "none",
            "info",
        )


@pytest.mark.parametrize(("rows", "logged"), [(20, True), (40, True), (12, False)])
def test_numbers_that_end_after_five_rows_are_told_and_no_level_stands_for_them(
    rows: int, logged: bool
) -> None:
    """Reward and loss are NaN from row 6 on, beside a length that goes on or beside nothing."""
    few = np.where(np.arange(rows) < 5, 0.3, np.nan)
    judgement = judge(
        log(reward=few, loss=few / 3, **({"length": 100.0 + np.arange(rows)} if logged else {}))
    )
    said = f"loss is missing, NaN or infinite from step 6 on ({rows - 5} rows; 0.10 in the 5 rows before), and so is reward."
    assert (judgement.state, judgement.headline, judgement.now) == (State.FAILED, said, None)
    assert judgement.cause.names == ("numerical failure, first in loss",)


def test_a_reward_alone_that_ends_after_five_rows_cannot_be_told_and_says_why() -> None:
    judgement = judge(
        log(reward=np.where(STEP < 5, 0.3 + 0.01 * STEP, np.nan), loss=np.full(N, 0.1))
    )
    assert judgement.state == State.CANNOT_TELL
    says("diagnostics/odd_logs/8", judgement.headline)


@pytest.mark.parametrize(
    ("row", "watched", "certainty"),
    [(100, True, Certainty.LIKELY), (100, False, Certainty.POSSIBLE), (20, True, None)],
)
def test_tools_that_fail_as_the_reward_falls_are_the_cause(
    row: int, watched: bool, certainty: Certainty | None
) -> None:
    """The reward falls at row 100; entropy and length go on as before; tools that fail since
    long before explain nothing.
    """
    reward = np.where(STEP < 100, 0.7, 0.3) + 0.03 * rng().standard_normal(N)
    others = {
        name: level * (1 + 0.02 * rng(7).standard_normal(N))
        for name, level in (("entropy", 0.4), ("length", 200.0))
    }
    failures = np.where(row > STEP, 0.04, 0.61)
    judgement = judge(log(reward=reward, tool_error_rate=failures, **(others if watched else {})))
    assert "Tool calls fail from step " in answer(judgement, "tool_failures").message
    if certainty is None:
        assert judgement.cause.certainty is Certainty.CANNOT_TELL
    else:
        assert (judgement.cause.certainty, judgement.cause.names) == (
            certainty,
            ("tool calls fail",),
        )
