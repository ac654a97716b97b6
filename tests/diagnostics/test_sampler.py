"""Sampler against trainer: mismatch from the start, growing, with length or at a learning rate
of 0; rollouts older than configured.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.golden.sentences import says

from groupwise.diagnostics.judge import judge
from groupwise.diagnostics.judgement import Fact, Status
from groupwise.diagnostics.numerics import sampler as check
from groupwise.diagnostics.numerics import staleness
from groupwise.diagnostics.signals import Evidence
from groupwise.record.run import Meaning, RunConfig, RunRecord, Setting, steps_table

N = 150


def log(config: RunConfig | None = None, **columns: np.ndarray) -> Evidence:
    meanings = tuple(Meaning(key, key, "test") for key in columns)
    length = len(next(iter(columns.values())))
    return Evidence(
        RunRecord(
            "test",
            steps_table(range(1, length + 1), columns),
            meanings=meanings,
            config=config or RunConfig(),
        )
    )


def rounding(seed: int, n: int = N) -> np.ndarray:
    return 0.008 * np.exp(0.5 * np.random.default_rng(seed).standard_normal(n))


def after(row: int, before: float, since: float, n: int = N) -> np.ndarray:
    return np.where(np.arange(n) < row, before, since)


def test_a_mismatch_that_grows_tenfold_has_its_step_and_numbers() -> None:
    finding = check(log(sampler_mismatch=rounding(0) * after(90, 1, 20)))
    assert (finding.status, finding.step, finding.facts) == (
        Status.WARNING,
        91,
        (Fact.SAMPLER_MISMATCH,),
    )
    says("diagnostics/sampler/1", finding.message)
    assert finding.signs[0].words == "sampler mismatch 0.0085 → 0.18"


def test_a_mismatch_at_a_learning_rate_of_0_lies_with_the_engines() -> None:
    finding = check(log(sampler_mismatch=rounding(0) * after(60, 1, 40), learning_rate=np.zeros(N)))
    assert Fact.MISMATCH_AT_RATE_ZERO in finding.facts
    assert "although the learning rate is 0" in finding.message


@pytest.mark.parametrize(("growth", "expected"), [(4.0, True), (1.2, False)])
def test_a_gap_that_grows_with_the_turns_is_the_historys(growth: float, expected: bool) -> None:
    """Of three turns, each with a column of its own and no mean over them."""
    columns: dict[str, Any] = {
        f"rollout_corr/kl/turn_{turn}": 0.01 * growth**turn * rounding(turn) / 0.008
        for turn in range(3)
    }
    finding = check(log(**columns))
    assert (Fact.GAP_FOLLOWS_TURNS in finding.facts) is expected
    assert (finding.status is Status.WARNING) is expected
    assert ("in turn 3" in finding.message) is expected


def test_two_columns_that_only_grow_together_do_not_drive_each_other() -> None:
    """What drives a gap moves it from row to row as well."""
    grown = np.geomspace(1, 40, N)
    for alike, seen in ((True, True), (False, False)):
        noise, other = (rounding(seed) / 0.008 for seed in (3, 3 if alike else 4))
        finding = check(log(sampler_mismatch=0.01 * grown * noise, gradient_norm=grown * other))
        assert finding.status is Status.WARNING
        assert (Fact.GAP_FOLLOWS_GRADIENT in finding.facts) is seen


def test_a_gap_that_goes_with_the_calls_of_tools_is_the_historys() -> None:
    calls = np.linspace(0.5, 6, N)
    finding = check(
        log(sampler_mismatch=0.03 * calls * np.sqrt(rounding(0) / 0.008), tool_calls=calls)
    )
    assert Fact.GAP_FOLLOWS_TURNS in finding.facts


def test_a_nat_of_mismatch_is_another_model() -> None:
    finding = check(log(sampler_mismatch=np.full(N, -2.0)))
    assert (finding.status, finding.step, finding.signs[0].before) == (Status.CRITICAL, 1, None)


def test_effective_samples_that_run_out_are_told() -> None:
    finding = check(log(effective_sample_size=after(100, 0.9, 0.04)))
    assert (finding.status, finding.step, finding.limit) == (Status.WARNING, 101, 0.1)
    says("diagnostics/sampler/5", finding.signs[0].words)


def test_a_mismatch_long_before_a_fall_is_its_first_sign() -> None:
    """Thirty rows before; signs that have no check of their own are looked for in the nine rows
    before alone.
    """
    reward = after(110, 0.8, 0.1) + 0.01 * np.random.default_rng(2).standard_normal(N)
    judgement = judge(log(reward=reward, sampler_mismatch=rounding(0) * after(80, 1, 20)).record)
    assert (judgement.state.value, judgement.since_step) == ("failed", 111)
    assert judgement.first_sign is not None
    assert (judgement.first_sign.signal, judgement.first_sign.step) == ("sampler_mismatch", 81)


@pytest.mark.parametrize("column", ["reward", "held_out"])
def test_a_mismatch_long_before_a_decline_or_a_fall_of_another_reward_is_its_first_sign(
    column: str,
) -> None:
    noise = 0.01 * np.random.default_rng(2).standard_normal(N)
    columns = {
        "reward": 0.8 + noise,
        "eval/reward": 0.8 - noise,
        "sampler_mismatch": rounding(0) * after(80, 1, 20),
    }
    columns |= (
        {"reward": after(110, 0.8, 0.5) + noise}
        if column == "reward"
        else {"eval/reward": after(110, 0.8, 0.1) - noise}
    )
    judgement = judge(log(**columns).record)
    assert judgement.since_step == 111
    assert judgement.first_sign is not None
    assert (judgement.first_sign.signal, judgement.first_sign.step) == ("sampler_mismatch", 81)
    assert [sign.signal for sign in judgement.then].count("held_out") == (column == "held_out")
    (note,) = judgement.cause.names
    says("diagnostics/sampler/8", note)


@pytest.mark.thinned(1)
@pytest.mark.parametrize(
    "column",
    ["sampler_mismatch", "sampler_probability_gap", "sampler_ratio", "effective_sample_size"],
)
def test_healthy_runs_that_are_looked_at_after_every_third_row_stay_silent(column: str) -> None:
    for seed in range(6):
        rng = np.random.default_rng(seed)
        value = {
            "sampler_ratio": 1 + 0.1 * rng.standard_normal(N),
            "effective_sample_size": rng.uniform(0.4, 1, N),
        }
        series = value.get(column, rounding(seed) * np.linspace(1, 2, N))
        for rows in range(8, N + 1, 3):
            assert check(log(None, **{column: series[:rows]})).status is Status.NONE, (seed, rows)


def of_kind(kind: str, interval: int) -> RunConfig:
    return RunConfig(lag_kind=Setting(kind, "test"), refresh_interval=Setting(interval, "test"))


def test_rollouts_older_than_configured_are_told() -> None:
    finding = staleness(log(of_kind("none", 1), staleness=after(50, 0.0, 3.0)))
    assert (finding.status, finding.step, finding.limit) == (Status.WARNING, 51, 0.0)
    says("diagnostics/sampler/2", finding.message)
    says("diagnostics/sampler/6", finding.signs[0].words)
    assert staleness(log(of_kind("fixed", 4), staleness=after(50, 0.0, 3.0))).status is Status.NONE


def test_an_age_without_settings_is_worth_knowing() -> None:
    finding = staleness(log(staleness=np.full(N, 2.0)))
    assert finding.status == Status.INFO
    says("diagnostics/sampler/7", finding.log)


def test_what_is_not_logged_is_asked_for() -> None:
    bare = log(other=np.ones(N))
    assert [look(bare).status for look in (check, staleness)] == [Status.NOT_LOGGED] * 2


def test_a_mismatch_beyond_rounding_from_the_start_is_told() -> None:
    finding = check(log(sampler_mismatch=np.full(N, 0.15), completion_length=np.full(N, 300.0)))
    assert (finding.status, finding.step, finding.limit, finding.facts) == (
        Status.WARNING,
        1,
        0.1,
        (Fact.SAMPLER_MISMATCH,),
    )


def test_what_was_looked_at_is_said() -> None:
    says("diagnostics/sampler/3", check(log(sampler_mismatch=after(75, 0.01, 0.02))).message)
    finding = check(
        log(
            sampler_mismatch=after(90, 0.01, 0.2),
            completion_length=300 + 5 * np.random.default_rng(2).standard_normal(N),
        )
    )
    assert finding.facts == (Fact.SAMPLER_MISMATCH,)
    lagging = staleness(log(of_kind("fixed", 4), staleness=after(140, 1.0, 3.0)))
    says("diagnostics/sampler/4", lagging.message)
