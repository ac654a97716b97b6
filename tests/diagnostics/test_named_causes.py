"""Complaints of users whose cause the judgement names, each beside a healthy run that looks alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from groupwise.diagnostics.causes import CAUSES
from groupwise.diagnostics.falls import loss_of
from groupwise.diagnostics.judge import judge
from groupwise.diagnostics.judgement import Judgement, State, Status
from groupwise.diagnostics.signals import Evidence
from groupwise.diagnostics.verifier import time_limit
from groupwise.pages.screen import judgement_lines
from groupwise.record.run import Meaning, RunConfig, RunRecord, steps_table

N = 150
ROW = np.arange(N)
LATE = 1 / (1 + np.exp((90 - ROW) / 3.0))  # 0, and 1 from row 100 on


def noise(seed: int, size: float = 1.0) -> Any:
    return size * np.random.default_rng(seed).standard_normal(N)


RISES = 0.3 + 0.3 * -np.expm1(-ROW / 50) + noise(0, 0.02)
STANDS = 0.3 + noise(0, 0.02)


def record(settings: dict[str, Any] | None = None, **columns: Any) -> RunRecord:
    """A log whose columns are named by their quantities, "__" for a slash."""
    named = {key.replace("__", "/"): np.broadcast_to(value, N) for key, value in columns.items()}
    meanings = tuple(Meaning(key, key, "test") for key in named if not key.startswith("log/"))
    steps = steps_table(range(1, N + 1), named)
    config = RunConfig().with_settings(settings or {}, "test")
    return RunRecord("test", steps, meanings=meanings, config=config)


def judged(settings: dict[str, Any] | None = None, **columns: Any) -> Judgement:
    return judge(record(settings, **columns), ended=True)


def names(judgement: Judgement) -> list[str]:
    return [key for key in CAUSES if CAUSES[key].label in judgement.cause.names]


@pytest.mark.parametrize(
    ("held_out", "left_out", "causes"),
    [
        (1.0, 1.0, ["selection"]),
        (0.5, 4.0, ["reward_hacking", "selection"]),
        (0.5, 1.0, ["reward_hacking"]),
    ],
)
def test_rewards_of_a_selection_are_no_hack(
    held_out: float, left_out: float, causes: list[str]
) -> None:
    """Trained answers get half as long; held-out ones of the same policy as well, or not; or four
    times as many groups are drawn until enough of them pass.
    """
    lengths = [1000 * (1 + (last - 1) * LATE) + noise(2, 10) for last in (0.5, held_out)]
    judgement = judged(
        reward=0.3 + 0.4 * LATE + noise(0, 0.02),
        eval__reward=0.3 - 0.05 * LATE + noise(1, 0.01),
        completion_length=lengths[0],
        eval__completion_length=lengths[1],
        log__num_gen_batches=1 + (left_out - 1) * LATE + noise(3, 0.1),
    )
    assert names(judgement) == causes
    assert judgement.alarm is (causes == ["reward_hacking"])


@pytest.mark.parametrize("jump", [1.0, 5.0])
def test_a_pause_of_the_log_is_a_restart_where_something_jumps(jump: float) -> None:
    gap = 0.008 * np.where(ROW < 90, 1, jump) * np.exp(noise(1, 0.05))
    seconds = 240.0 * ROW + np.where(ROW < 90, 0, 30_000)
    judgement = judged(reward=RISES, sampler_mismatch=gap, log___timestamp=seconds)
    assert names(judgement) == ([] if jump == 1 else ["restart"])
    assert judgement.since_step == (None if jump == 1 else 91)


@pytest.mark.parametrize("resets", [True, False])
def test_a_counter_that_starts_anew_is_a_restart_where_something_jumps(resets: bool) -> None:
    runtime = 240.0 * np.where((ROW < 90) | (not resets), ROW, ROW - 90)
    norm = np.where(ROW < 90, 0.2, 0.6) * np.exp(noise(1, 0.05))
    judgement = judged(reward=RISES, gradient_norm=norm, log___runtime=runtime)
    assert names(judgement) == (["restart"] if resets else [])


@pytest.mark.parametrize(("times", "state"), [(7.0, State.WARNING), (3.0, State.OK)])
def test_a_gap_that_grows_sevenfold_is_far_though_it_is_small(times: float, state: State) -> None:
    calls = 0.3 + 2 * LATE + noise(1, 0.02)
    gap = 0.008 * (1 + (times - 1) * (calls - 0.3) / 2)
    judgement = judged(reward=RISES, sampler_mismatch=gap, tool_calls=calls)
    assert judgement.state is state
    if state is State.WARNING:
        assert names(judgement) == ["tokenised_again"]
        assert "…" not in "".join(judgement_lines(judgement, (1.0,))[:2])


@pytest.mark.parametrize(("last", "state"), [(0.07, State.WARNING), (0.02, State.OK)])
def test_a_ratio_at_its_cap_hides_what_the_gap_tells(last: float, state: State) -> None:
    """The gap grows fourfold or not, and in nearly all rows the largest ratio is the cap."""
    judgement = judged(
        reward=RISES,
        sampler_mismatch=np.linspace(0.015, last, N) * np.exp(noise(1, 0.05)),
        sampler_ratio=1 + noise(2, 0.002),
        sampler_ratio_max=np.where(ROW % 20, 2.0, 1.9),
    )
    assert judgement.state is state
    assert ("ratios cut at 2" in judgement.headline) is (state is State.WARNING)


@pytest.mark.parametrize(
    ("ceiling", "length", "causes"),
    [
        (1800.0, 500 + noise(3, 20), ["time_limit"]),
        (1500.0, 500 + noise(3, 20), []),  # not far above what it was
        (1800.0, 500 + 200 * LATE + noise(3, 20) * (1 - LATE), []),  # all of one length
    ],
)
def test_times_that_stand_at_a_ceiling_are_a_time_limit(
    ceiling: float, length: Any, causes: list[str]
) -> None:
    time = np.where(LATE > 0.5, ceiling + np.abs(noise(1, 2)), 1450 + noise(2, 80))
    judgement = judged(
        reward=0.5 - 0.2 * LATE + noise(0, 0.02),
        completion_length=length,
        entropy=0.4 + noise(4, 0.01),
        log__timing_s__gen=time,
    )
    assert ("time_limit" in names(judgement)) is (causes != [])


@pytest.mark.parametrize(
    ("mean", "causes"),
    [
        (0.02 + 0.16 * ROW / N + noise(1, 0.006), ["off_centre"]),
        (0.06 * LATE + noise(1, 1e-9), ["off_centre"]),  # 0 but for its digits, at first
        (-0.02 - 0.05 * ROW / N + noise(1, 0.006), []),
    ],
)
def test_a_mean_advantage_that_leaves_0_is_off_centre(mean: Any, causes: list[str]) -> None:
    assert names(judged(reward=STANDS, advantage=mean)) == causes


@pytest.mark.parametrize(("size", "causes"), [(2, ["small_group"]), (8, [])])
def test_groups_of_two_are_too_small_though_no_share_is_logged(
    size: int, causes: list[str]
) -> None:
    """At a mean of .2 two answers are alike in 68 % of the groups and more."""
    assert names(judged({"group_size": size}, reward=0.2 + noise(0, 0.02))) == causes


def test_groups_of_unknown_size_may_be_small_where_most_are_alike() -> None:
    """At a mean reward of .17, as at a middling one."""
    share = np.clip(0.84 + noise(1, 0.03), 0, 1)
    columns = {"reward": 0.17 + noise(0, 0.02), "dead_group_share": share}
    assert names(judged(**columns)) == ["small_group"]
    assert names(judged(**columns | {"dead_group_share": share - 0.3})) == []


@pytest.mark.parametrize(("climbs", "state"), [(0.15, State.OK), (0.0, State.WARNING)])
def test_a_reward_that_drops_once_and_climbs_again_does_not_fall(
    climbs: float, state: State
) -> None:
    level = np.where(
        ROW < 80, 0.7 - 0.35 * np.exp(-ROW / 25), 0.5 - climbs * np.expm1(-(ROW - 80) / 25)
    )
    assert judged(reward=np.clip(level, 0, 1) + noise(0, 0.02)).state is state


@pytest.mark.parametrize(("scatter", "state"), [(0.005, State.OK), (0.04, State.WARNING)])
def test_a_reward_that_settles_as_the_entropy_is_spent_is_at_its_top(
    scatter: float, state: State
) -> None:
    """Where answers are alike its rows scatter more than before."""
    size = np.where(ROW < 60, 0.03, scatter)
    reward = 0.3 + 0.5 * -np.expm1(-ROW / 15) + size * noise(0)
    entropy = np.where(ROW < 60, 0.8, 0.02) + noise(1, 0.001)
    assert judged(reward=reward, entropy=entropy).state is state


@pytest.mark.parametrize(("level", "at_top"), [(0.098, True), (0.08, False)])
def test_rows_just_below_a_tenth_tell_that_it_is_the_top(level: float, at_top: bool) -> None:
    reward = np.minimum(level + noise(0, 0.001), 0.1)
    assert (judged(reward=reward).state is State.OK) is at_top


@pytest.mark.parametrize(
    ("ceiling", "more", "status"),
    [
        (1800.0, {}, Status.WARNING),
        (1480.0, {}, Status.NONE),  # less than a twentieth above what it was
        (1800.0, {"truncated_share": 0.9 * LATE}, Status.NONE),  # all at their token limit
    ],
)
def test_a_time_limit_is_far_above_and_not_that_of_tokens(
    ceiling: float, more: dict[str, Any], status: Status
) -> None:
    time = np.where(LATE > 0.5, ceiling, np.random.default_rng(2).uniform(1372, 1460, N))
    columns = {"reward": STANDS, "log/timing_s/gen": time, **more}
    assert time_limit(Evidence(record(**columns))).status is status


@pytest.mark.parametrize(("back", "lost"), [(0.25, False), (0.1, True)])
def test_a_sudden_drop_of_which_more_than_half_is_regained_is_no_loss(
    back: float, lost: bool
) -> None:
    level = np.where(ROW < 60, 0.8, 0.4 + back * np.clip((ROW - 60) / 60, 0, 1))
    assert (loss_of(Evidence(record(reward=level + noise(0, 0.02)))) is not None) is lost
