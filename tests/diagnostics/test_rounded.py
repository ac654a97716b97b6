"""What rounding hides and what nobody measured: each rule that reads a 0, an equal or a
constant, at exact values.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.cases import each_case
from tests.golden.sentences import says

from groupwise.diagnostics import (
    completions,
    instability,
    learning,
    numerics,
    signals,
    verifier,
    zero_variance,
)
from groupwise.diagnostics.causes import CAUSES, Incident, verdict
from groupwise.diagnostics.falls import constant_tail
from groupwise.diagnostics.judgement import Certainty, Fact, Sign, Status
from groupwise.diagnostics.signals import Evidence, NoisyMetric
from groupwise.record.run import Meaning, RunConfig, RunRecord, rollouts_table, steps_table
from groupwise.series.metric import _rollouts_of_a_step, is_binary_mean, zero_variance_outlook

N = 60
ROW = np.arange(N)
THREE = 5e-4  # of three decimals


def log(resolution: float = 0.0, config: dict[str, Any] | None = None, **columns: Any) -> Evidence:
    """A log whose columns are named after their quantities, all printed alike."""
    given = {
        key: np.full(N, 0.0) + np.asarray(value, dtype=float) for key, value in columns.items()
    }
    meanings = tuple(Meaning(key, key, "test", resolution=resolution) for key in given)
    settings = RunConfig().with_settings(config or {}, "the settings")
    return Evidence(
        RunRecord("run", steps_table(range(1, N + 1), given), config=settings, meanings=meanings)
    )


def signal(evidence: Evidence, name: str) -> NoisyMetric:
    signal = evidence.quantity(name)
    assert signal is not None
    return signal


def since(before: Any, after: Any, row: int = 30) -> np.ndarray:
    return np.asarray(np.where(row > ROW, before, after))


RISES = 0.2 + 0.6 * ROW / N + 0.01 * (-1.0) ** ROW
HIDDEN = "learning_rate is printed with 3 decimals and is below 0.0005 in all 60 rows"


# The learning rate.


def test_a_rate_that_three_decimals_hide_is_not_logged() -> None:
    finding = learning.zero_learning_rate(log(THREE, learning_rate=0.0))
    assert (finding.status, finding.message) == (Status.NOT_LOGGED, HIDDEN)
    assert learning.zero_learning_rate(log(learning_rate=0.0)).status is Status.CRITICAL


def test_the_settings_tell_a_rate_that_is_hidden() -> None:
    finding = learning.zero_learning_rate(log(THREE, {"learning_rate": 1e-6}, learning_rate=0.0))
    assert finding.status is Status.NONE
    says("diagnostics/rounded/9", finding.message, hidden=HIDDEN)
    finding = learning.zero_learning_rate(log(THREE, {"learning_rate": 0.0}, learning_rate=0.0))
    says("diagnostics/rounded/1", finding.message)


@pytest.mark.parametrize(("before", "status"), [(0.009, Status.NONE), (0.01, Status.CRITICAL)])
def test_a_rate_is_gone_where_it_was_twenty_times_what_rounding_hides(
    before: float, status: Status
) -> None:
    finding = learning.zero_learning_rate(log(THREE, learning_rate=since(before, 0.0)))
    assert finding.status is status
    if status is Status.NONE:
        says("diagnostics/rounded/2", finding.message)


def test_a_rate_starts_anew_only_where_it_fell_by_more_than_rounding() -> None:
    rate = np.where(ROW < 30, 0.004, 0.001 * np.minimum(ROW - 30, 4))
    assert instability.restart(log(learning_rate=rate)).status is Status.INFO
    assert instability.restart(log(THREE, learning_rate=rate)).status is Status.INFO
    assert instability.restart(log(THREE, learning_rate=rate / 4)).status is Status.NONE


# The gradient.


@pytest.mark.parametrize(("usual", "status"), [(0.009, Status.NONE), (0.01, Status.CRITICAL)])
def test_a_gradient_is_lost_where_it_was_twenty_times_what_rounding_hides(
    usual: float, status: Status
) -> None:
    columns: dict[str, Any] = {
        "gradient_norm": since(usual, 0.0, 20),
        "dead_group_share": 0.2,
        "reward_std_within_group": 0.3,
    }
    finding = numerics.updates(log(THREE, **columns))
    assert finding.status is status
    if status is Status.CRITICAL:
        assert finding.message.startswith(
            "The gradient norm is 0 (± 0.0005) from step 21 on (40 rows)"
        )
        assert numerics.updates(log(**columns)).message.startswith(
            "The gradient norm is exactly 0 from step 21 on (40 rows)"
        )
        both = columns | {"loss": since(0.002, 0.0, 20)}
        assert [
            numerics.updates(log(each, **both)).message.endswith("and the loss is 0 too.")
            for each in (0.0, THREE)
        ] == [True, False]


@each_case(
    ("columns", "status"),
    [
        ({}, Status.CRITICAL),  # nothing is learnt: so it may be
        ({"reward": RISES}, Status.NOT_LOGGED),
        ({"reward": RISES, "loss": 0.01}, Status.NONE),
        ({"reward": RISES, "loss": 0.0}, Status.CRITICAL),  # the loss is nothing too
    ],
)
def test_a_gradient_of_0_throughout_is_measured_unless_the_reward_moves(
    columns: dict[str, Any], status: Status
) -> None:
    given = {
        "gradient_norm": 0.0,
        "dead_group_share": 0.2,
        "reward_std_within_group": 0.3,
    } | columns
    assert numerics.updates(log(**given)).status is status
    hidden = numerics.gradient(log(**given))
    if status in (Status.NOT_LOGGED, Status.NONE):
        assert hidden.status == Status.NOT_LOGGED
        says("diagnostics/rounded/4", hidden.message)


@each_case(
    ("columns", "status"),
    [
        ({}, Status.CRITICAL),
        ({"reward": 0.5 + 0.01 * (-1.0) ** ROW}, Status.CRITICAL),
        ({"reward": RISES}, Status.NOT_LOGGED),
        ({"reward": RISES, "loss": 0.0, "gradient_norm": 0.0}, Status.NOT_LOGGED),
    ],
)
def test_a_rate_of_0_throughout_is_measured_unless_the_reward_moves(
    columns: dict[str, Any], status: Status
) -> None:
    assert learning.zero_learning_rate(log(learning_rate=0.0, **columns)).status is status


def test_a_rate_that_the_user_sets_goes_before_a_column_of_zeros() -> None:
    evidence = log(learning_rate=0.0, reward=0.5)
    given = replace(
        evidence.record, config=RunConfig().with_settings({"learning_rate": 1e-6}, "--set")
    )
    finding = learning.zero_learning_rate(Evidence(given))
    assert finding.status == Status.NONE
    says("diagnostics/rounded/5", finding.message)


def test_answers_that_shrank_need_a_gradient_that_is_gone() -> None:
    from groupwise.diagnostics import instability

    columns: dict[str, Any] = {
        "reward": 0.5 + 0.01 * (-1.0) ** ROW,
        "completion_length": since(200.0, 5.0),
        "gradient_norm": since(0.002, 0.0),
    }
    assert Fact.ANSWERS_SHRANK in instability.collapse(log(**columns)).facts
    assert Fact.ANSWERS_SHRANK not in instability.collapse(log(THREE, **columns)).facts


def test_a_rounded_loss_of_0_is_none_on_policy() -> None:
    columns: dict[str, Any] = {"loss": since(2e-4, 0.0), "gradient_norm": 0.3}
    assert numerics.updates(log(**columns)).status is Status.NONE
    assert numerics.updates(log(THREE, **columns)).status is Status.INFO


# KL, entropy, clipping, the sampler.


@pytest.mark.parametrize(
    ("quantity", "check"), [("kl", numerics.divergence), ("entropy", completions.concentration)]
)
def test_what_is_0_in_all_rows_was_not_measured(quantity: str, check: Any) -> None:
    zero: dict[str, Any] = {quantity: 0.0}
    finding = check(log(reward=RISES, **zero))
    assert finding.status is Status.NOT_LOGGED
    says("diagnostics/rounded/10", finding.message.rstrip("."), quantity=quantity)
    finding = check(log(THREE, reward=RISES, **zero))
    said = f"{quantity} is printed with 3 decimals and is below 0.0005 in all 60 rows"
    assert (finding.status, finding.message.rstrip(".")) == (Status.NOT_LOGGED, said)


@pytest.mark.parametrize("still", [{"loss": 0.0, "gradient_norm": 0.0}, {"dead_group_share": 1.0}])
def test_a_0_beside_updates_of_nothing_is_measured(still: dict[str, Any]) -> None:
    assert log(kl=0.0, clip_ratio=0.0, **still).quantity("kl") is not None
    assert log(kl=0.0, clip_ratio=0.0).quantity("clip_ratio") is None
    assert log(THREE, kl=0.0, **still).quantity("kl") is None
    almost: dict[str, Any] = {key: np.where(ROW == 7, 0.5, value) for key, value in still.items()}
    assert log(kl=0.0, **almost).quantity("kl") is None


def test_an_entropy_of_0_leaves_as_much_as_rounding_hides() -> None:
    entropy = since(0.02, 0.0)
    assert completions.share_left(signal(log(entropy=entropy), "entropy"))[-1] == 0.0
    left = completions.share_left(signal(log(THREE, entropy=entropy), "entropy"))[-1]
    assert left == np.expm1(5e-4) / np.expm1(0.02)


def test_groups_became_alike_where_a_gradient_fell_by_more_than_rounding() -> None:
    gradient = since(0.004, 0.0)
    alike = (
        completions._have_become_alike(log(each, gradient_norm=gradient), 31, None)
        for each in (0.0, THREE)
    )
    assert list(alike) == [True, False]


def test_an_entropy_rose_from_no_less_than_rounding_hides() -> None:
    columns: dict[str, Any] = {
        "reward": 0.5 + 0.01 * (-1.0) ** ROW,
        "entropy": since(0.0, 0.001, 20),
    }
    rounded = instability.unstable_training(log(THREE, **columns))
    assert instability.unstable_training(log(**columns)).signs[0].signal == "entropy"
    assert (rounded.status, rounded.signs) == (Status.NONE, ())


def test_a_mismatch_grew_from_no_less_than_rounding_hides() -> None:
    columns: dict[str, Any] = {"sampler_mismatch": since(0.0, 0.0225)}
    assert (numerics.ROUNDING, numerics.GROWN) == (0.02, 5.0)
    assert numerics.sampler(log(**columns)).status is Status.WARNING
    assert numerics.sampler(log(0.005, **columns)).status is Status.NONE


def test_a_sign_starts_from_no_less_than_rounding_hides() -> None:
    watched = next(quantity for quantity in signals.WATCHED if not quantity.share)
    value, before = np.array([0.001] * 5 + [0.0] * 5), slice(0, 5)
    exact, rounded = (
        signals._scaled(value, before, watched, resolution) for resolution in (0.0, THREE)
    )
    assert exact is not None
    assert rounded is not None
    assert (exact[-1], rounded[-1]) == (np.log(1e-4), np.log(5e-4))


def test_a_jump_at_a_restart_is_more_than_a_digit() -> None:
    rate = np.where(ROW < 30, 0.4, 0.1 * np.minimum(ROW - 30, 4))
    columns: dict[str, Any] = {"learning_rate": rate, "entropy": since(0.01, 0.011)}
    assert instability.restart(log(**columns)).status is Status.WARNING
    assert instability.restart(log(THREE, **columns)).status is Status.INFO


# Rewards, their spread and their grades.


def test_a_reward_of_0_throughout_is_one_to_within_its_digits() -> None:
    says("diagnostics/rounded/3", verifier.broken_verifier(log(reward=0.0)).message)
    finding = verifier.broken_verifier(log(THREE, reward=0.0))
    assert finding.status == Status.CRITICAL
    says("diagnostics/rounded/6", finding.message)


def test_a_reward_that_became_one_number_is_told_to_within_its_digits() -> None:
    reward = since(0.5 + 0.01 * (-1.0) ** ROW, 0.0)
    says("diagnostics/rounded/7", verifier.broken_verifier(log(reward=reward)).message)
    says("diagnostics/rounded/8", verifier.broken_verifier(log(THREE, reward=reward)).message)


@pytest.mark.parametrize(("before", "stuck"), [(0.002, False), (0.003, True)])
def test_a_reward_fell_to_one_number_by_more_than_two_units(before: float, stuck: bool) -> None:
    reward = since(before, 0.0)
    assert constant_tail(signal(log(reward=reward), "reward")) is not None
    assert (constant_tail(signal(log(THREE, reward=reward), "reward")) is not None) is stuck


def test_a_constant_reward_is_relative_where_rewards_differ_by_more_than_its_digits() -> None:
    columns: dict[str, Any] = {"reward": 0.0, "reward_std_within_group": 0.01}
    assert log(THREE, **columns).relative == ""
    assert log(4.9e-4, **columns).relative.startswith(
        "the mean reward is 0.00 in all rows although rewards differ"
    )


@each_case(
    ("low", "high", "relative"),
    [(-0.3, 0.6, True), (0.0, 0.0, False), (0.0, 1.0, False), (-0.3, None, False)],
)
def test_a_constant_reward_between_its_extremes_is_relative(
    low: float, high: float | None, relative: bool
) -> None:
    columns: dict[str, Any] = {"reward": 0.0, "reward_min": low, "reward_max": high}
    evidence = log(0.0, **{name: value for name, value in columns.items() if value is not None})
    assert bool(evidence.relative) is relative
    status = verifier.broken_verifier(evidence).status
    assert status is (Status.NOT_LOGGED if relative else Status.CRITICAL)


def test_a_spread_that_is_rounded_to_nothing_tells_no_zero_variance() -> None:
    several: dict[str, Any] = {"prompts_per_step": 20}
    assert (
        zero_variance.zero_variance_groups(log(0.0, several, reward_std_within_group=0.0)).status
        is not Status.NOT_LOGGED
    )
    assert (
        zero_variance.zero_variance_groups(log(THREE, several, reward_std_within_group=0.0)).status
        is Status.NOT_LOGGED
    )
    config: dict[str, Any] = {"group_size": 4, "prompts_per_step": 1}
    for usual, seen in ((0.009, False), (0.01, True)):
        record = log(THREE, config, reward_std_within_group=since(usual, 0.0)).record
        assert (zero_variance_outlook(record) is not None) is seen


def test_rounded_means_of_right_and_wrong_are_multiples_to_within_their_digits() -> None:
    exact = np.array([3, 11, 17, 30, 41]) / 64
    assert is_binary_mean(exact, 64)
    assert not is_binary_mean(np.round(exact, 3), 64)
    assert is_binary_mean(np.round(exact, 3), 64, THREE)
    assert not is_binary_mean(np.round(exact + 0.5 / 64, 3), 64, THREE)
    assert is_binary_mean(
        np.array([0.01, 0.5, 0.99]), 100, 0.005
    )  # hundredths of a hundred are exact, however they look
    assert not is_binary_mean(
        np.round(exact[:1], 3), 64, THREE
    )  # one of fifteen numbers is as near as that
    assert not is_binary_mean(np.round(np.array([3, 11]) / 1024, 3), 1024, THREE)


def test_rounded_means_are_those_of_the_rollouts_of_their_steps() -> None:
    graded: list[dict[str, Any]] = [
        {"step": step, "prompt_id": 0, "reward": float(n < 2)}
        for step in range(1, 9)
        for n in range(3)
    ]
    for resolution, count in ((0.0, None), (THREE, 3.0)):
        meanings = (Meaning("reward", "reward", "test", resolution=resolution),)
        record = RunRecord(
            "run",
            steps_table(range(1, 9), {"reward": np.full(8, 0.667)}),
            rollouts_table(graded),
            meanings=meanings,
        )
        assert _rollouts_of_a_step(record) == count


# Causes.


@pytest.mark.parametrize(
    ("entropy", "certainty"), [(0.99, Certainty.POSSIBLE), (1.0, Certainty.LIKELY)]
)
def test_answers_that_shrink_as_the_policy_concentrates_may_be_what_is_paid(
    entropy: float, certainty: Certainty
) -> None:
    moved = {
        "completion_length": Sign("completion_length", 5, 100.0, 60.0, ""),
        "entropy": Sign("entropy", 5, 1.0, entropy, ""),
    }
    cause = verdict(Incident(log(reward=RISES), {}, moved, 5))
    assert (cause.certainty, cause.names) == (certainty, (CAUSES["shrinking"].label,))
