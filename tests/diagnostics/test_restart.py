"""Restarts with and without a jump, rollouts dropped as too old, a router's load, tool calls
that fail; and what stays silent.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.cases import each_case
from tests.golden.sentences import says

from groupwise.diagnostics.instability import restart
from groupwise.diagnostics.judge import judge
from groupwise.diagnostics.judgement import Fact, Status
from groupwise.diagnostics.numerics import discards, router
from groupwise.diagnostics.signals import Evidence
from groupwise.diagnostics.verifier import tool_use, tools
from groupwise.readers import run_record
from groupwise.record.run import Meaning, RunConfig, RunRecord, Setting, steps_table

N = 150
BACK = "the run was restarted 1 time (the step drops back to 80): 5 rows were replaced"


def log(
    notes: tuple[str, ...] = (),
    seconds: np.ndarray | None = None,
    config: RunConfig | None = None,
    **columns: np.ndarray,
) -> Evidence:
    length = len(next(iter(columns.values())))
    names = [key for key in columns if not key.startswith("env_")]
    meanings = tuple(
        Meaning(key, key, "samples dropped so far because they were too old") for key in names
    )
    steps = steps_table(range(1, length + 1), columns, seconds=seconds)
    return Evidence(
        RunRecord("test", steps, meanings=meanings, notes=notes, config=config or RunConfig())
    )


def noisy(seed: int, level: float = 0.01, spread: float = 0.2, n: int = N) -> np.ndarray:
    """A signal that wanders as entropy does, and scatters from row to row."""
    rng = np.random.default_rng(seed)
    wander = np.zeros(n)
    for row in range(1, n):
        wander[row] = 0.95 * wander[row - 1] + 0.3 * spread * rng.standard_normal()
    return np.asarray(level * np.exp(wander + spread * rng.standard_normal(n)))


def since(row: int, before: float, after: float, n: int = N) -> np.ndarray:
    return np.where(np.arange(n) < row, before, after)


def test_a_jump_at_a_restart_has_its_step_and_numbers() -> None:
    gap = noisy(0) * since(79, 1, 12)
    finding = restart(log((BACK,), sampler_mismatch=gap, entropy=noisy(1, 0.4)))
    assert (finding.status, finding.step, finding.facts) == (
        Status.WARNING,
        80,
        (Fact.RESTART_JUMP,),
    )
    before, after = np.median(gap[74:79]), np.median(gap[79:84])
    says("diagnostics/restart/5", finding.message, before=f"{before:.2g}", after=f"{after:.2g}")
    assert [sign.signal for sign in finding.signs] == ["sampler_mismatch"]


@each_case(
    ("again", "words"),
    [
        (78, "The run was restarted at step 78"),
        (80, "A row is repeated, as after a restart, at step 80"),
        (84, "Rows are missing, as after a restart, at step 84"),
    ],
)
def test_a_small_gap_of_steps_is_a_restart_where_something_jumps(
    again: int, words: str, tmp_path: Path
) -> None:
    """Eighty rows, and eighty more from step 78, 80 or 84 on, with a gap ten times as large and a
    reward that lost a fifth.
    """
    rng = np.random.default_rng(4)
    path = tmp_path / "log.jsonl"
    for jumps in (True, False):
        rows = [
            {
                "step": step,
                "reward": (0.5 - 0.1 * (late and jumps)) + 0.01 * rng.standard_normal(),
                "mismatch_kl": 0.006 * 10.0 ** (late and jumps) * np.exp(0.1 * rng.normal()),
                "entropy": 0.5,
            }
            for late, steps in enumerate((range(1, 81), range(again, again + 80)))
            for step in steps
        ]
        path.write_text("\n".join(map(json.dumps, rows)))
        record = run_record(path)
        assert restart(Evidence(record)).message.startswith(words) is (jumps or again == 78)
        if jumps:
            assert judge(record).cause.names == ("a restart lost training state",)


def test_a_reward_that_fell_at_a_restart_and_went_on_to_has_its_first_sign_there() -> None:
    reward = np.interp(
        np.arange(N), [0, 78, 79, 99, 130], [0.8, 0.8, 0.74, 0.74, 0.5]
    ) + 0.005 * np.random.default_rng(2).standard_normal(N)
    judgement = judge(
        log(
            (BACK,), reward=reward, entropy=noisy(1, 0.4), completion_length=noisy(2, 200.0, 0.01)
        ).record
    )
    assert judgement.headline.startswith("reward 0.80 → 0.50, lower since step ")
    assert judgement.first_sign is not None
    assert (judgement.first_sign.signal, judgement.first_sign.step) == ("reward", 80)


@each_case(("row", "status"), [(15, "warning"), (14, "info"), (145, "warning"), (146, "info")])
def test_a_jump_is_told_by_fifteen_rows_before_and_five_since(row: int, status: str) -> None:
    assert (
        restart(log((f"resumed after step {row}: ",), entropy=since(row, 0.4, 0.9))).status.value
        == status
    )


def test_a_resumed_run_without_a_jump_is_worth_knowing() -> None:
    finding = restart(
        log(
            ("resumed after step 79: steps 80 to 84 will be replaced",),
            sampler_mismatch=noisy(0),
        )
    )
    assert (finding.status, finding.step) == (Status.INFO, 80)
    says("diagnostics/restart/3", finding.message)


@pytest.mark.parametrize("first", [1.0, 0.0])  # many schedules begin at 0
def test_a_schedule_that_starts_anew_is_a_restart(first: float) -> None:
    rate = (
        np.concatenate([[first], np.linspace(1, 0.6, 59), np.linspace(0.05, 1, 20), np.ones(70)])
        * 1e-6
    )
    finding = restart(log(learning_rate=rate, reward=since(60, 0.6, 0.2) + noisy(2, 0.02)))
    assert (finding.status, finding.step) == (Status.WARNING, 61)
    assert finding.message.startswith(
        "The learning-rate schedule starts again at step 61, and these signals jumped: reward 0.6"
    )


@pytest.mark.parametrize(
    ("rows", "after", "status"), [(11, 0.199, "info"), (10, 0.199, "none"), (11, 0.201, "none")]
)
def test_eleven_rows_show_that_a_schedule_fell_to_a_fifth_and_rises_three_times(
    rows: int, after: float, status: str
) -> None:
    rate = np.r_[np.ones(rows - 4), after + 0.1 * np.arange(4)]
    finding = restart(log(learning_rate=rate))
    assert finding.status.value == status
    if status == "info":
        assert finding.step == 8
        says("diagnostics/restart/4", finding.message)
        assert (
            restart(log(learning_rate=np.r_[rate[:-1], rate[-2]])).status is Status.NONE
        )  # it rises twice


def test_an_error_in_mid_run_is_told_only_with_a_jump() -> None:
    note = "an error follows step 100, and the run goes on"
    calm, jumps = log(kl=noisy(3)), log(kl=noisy(3) * since(100, 1, 30))
    answers = [restart(Evidence(replace(column.record, notes=(note,)))) for column in (calm, jumps)]
    assert answers[0].status is Status.NONE
    assert (answers[1].status, answers[1].step) == (Status.WARNING, 101)
    assert answers[1].message.startswith(
        "The run was resumed at step 101, and these signals jumped: KL"
    )


def test_a_log_whose_steps_drop_back_tells_where(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    rows = [*range(1, 41), *range(36, 61)]
    lines = [
        {"step": step, "reward": (0.6 if place < 40 else 0.1) + 0.02 * rng.standard_normal()}
        for place, step in enumerate(rows)
    ]
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    finding = restart(Evidence(run_record(path)))
    assert (finding.status, finding.step) == (Status.WARNING, 36)
    assert finding.message.startswith(
        "The run was restarted at step 36, and these signals jumped: reward 0.6"
    )


@pytest.mark.slow
def test_healthy_restarted_runs_that_are_looked_at_after_every_row_stay_silent() -> None:
    """Of 1,000 such runs (wandering, trending, heavy-tailed) none was told (at most .3 % with 95
    % confidence).
    """
    for seed in range(30):
        rng = np.random.default_rng(seed)
        trend = 0.3 + 0.5 * np.arange(N) / N + 0.04 * rng.standard_normal(N)
        signals = {
            "entropy": noisy(seed, 0.4),
            "gradient_norm": np.exp(rng.standard_normal(N)),
            "reward": trend,
        }
        for rows in range(78, 92):
            status = restart(
                log((BACK,), None, None, **{name: value[:rows] for name, value in signals.items()})
            ).status
            assert status is Status.INFO, (seed, rows)


def sized() -> RunConfig:
    return RunConfig(group_size=Setting(8, "test"), prompts_per_step=Setting(16, "test"))


def test_rollouts_dropped_as_too_old_are_counted_against_all() -> None:
    dropped = np.cumsum(since(70, 4, 64))
    finding = discards(log(config=sized(), stale_samples_total=dropped))
    assert (finding.status, finding.step, finding.facts) == (
        Status.WARNING,
        71,
        (Fact.STALE_DISCARDED,),
    )
    words = "33 % of rollouts are discarded as too old (was 3 %)"
    assert finding.message == f"Since step 71, {words}."
    assert finding.signs[0].words == words
    assert (
        discards(log(config=sized(), stale_samples_total=np.cumsum(np.full(N, 4.0)))).status
        is Status.NONE
    )
    assert discards(log(stale_samples_total=dropped)).status is Status.NOT_LOGGED
    # Samples of dead groups are none of these.
    assert discards(log(config=sized(), dropped_samples=dropped)).status is Status.NOT_LOGGED


@pytest.mark.parametrize(
    ("each", "status", "share"), [(32.0, "none", "20"), (64.0, "warning", "33")]
)
def test_the_share_that_is_dropped_is_of_all_that_were_sampled(
    each: float, status: str, share: str
) -> None:
    """Beside 8 times 16 rollouts that are kept: 32 of 160 and 64 of 192."""
    finding = discards(log(config=sized(), stale_samples=np.full(N, each)))
    assert finding.status.value == status
    assert f"{share} % of" in finding.message


def test_experts_whose_load_drifts() -> None:
    finding = router(log(router_loss=noisy(6, 1.0, 0.05) * since(90, 1, 5)))
    assert (finding.status, finding.step, finding.facts) == (
        Status.WARNING,
        91,
        (Fact.ROUTER_DRIFTS,),
    )
    assert router(log(env_x=np.ones(N), router_loss=noisy(6, 1.0, 0.05))).status is Status.NONE


def test_tool_calls_that_come_to_fail() -> None:
    share = np.clip(since(60, 0.1, 0.8) + 0.03 * np.random.default_rng(7).standard_normal(N), 0, 1)
    finding = tools(log(env_invalid_action_ratio=share, turns=since(60, 3.0, 9.0)))
    assert (finding.status, finding.step, finding.facts) == (
        Status.WARNING,
        61,
        (Fact.TOOLS_FAIL,),
    )
    says("diagnostics/restart/2", finding.message)
    assert tools(log(tool_failure_share=np.full(N, 0.8))).status is Status.INFO


def test_tools_are_given_up_from_the_limit_on_and_on_their_way_from_the_middle() -> None:
    calls = np.interp(np.arange(N), [0, 40, 80, N], [4.0, 4.0, 0.2, 0.2])
    finding = tool_use(log(tool_calls=calls))
    assert calls[73] > 0.2 * 4.0 > calls[74]  # of which row 74 is step 75
    assert (finding.status, finding.step) == (Status.WARNING, 75)
    assert finding.signs[0].step == 61
    assert "since step 75: tool calls 4 → 0.2" in finding.message
    at_once = tool_use(log(tool_calls=np.where(np.arange(N) < 60, 4.0, 0.2)))
    assert (at_once.step, at_once.signs[0].step) == (61, 61)
    logged = tool_use(log(tool_calls=np.full(N, 9.0), turns=calls + 1))  # which go before turns
    assert logged.message == "No sign of a problem: tool calls end at 9 per rollout."


@pytest.mark.parametrize("look", [discards, router, tools])
def test_what_few_runs_have_is_not_asked_for(look: object) -> None:
    finding = look(log(env_x=np.ones(N)))  # type: ignore[operator]
    assert (finding.status, finding.log) == (Status.NOT_LOGGED, "")
