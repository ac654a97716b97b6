"""Complaints of users whose cause the judgement names, each beside a healthy run that looks alike."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cases import each_case
from tests.golden.sentences import says

from groupwise.diagnostics.causes import CAUSES
from groupwise.diagnostics.falls import loss_of
from groupwise.diagnostics.judge import judge
from groupwise.diagnostics.judgement import Judgement, State, Status
from groupwise.diagnostics.signals import Evidence
from groupwise.diagnostics.verifier import time_limit
from groupwise.pages.screen import judgement_lines
from groupwise.readers import run_record
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


@pytest.mark.parametrize(("spread", "causes"), [(0.0, ["tools_given_up"]), (2.0, ["shrinking"])])
def test_a_policy_that_stops_calling_tools_is_no_instability(
    spread: float, causes: list[str]
) -> None:
    """Its answers get shorter with each call that it leaves out; where its entropy rises as well
    it came apart.
    """
    fewer = 1 / (1 + np.exp((ROW - 80) / 6.0))
    judgement = judged(
        reward=0.1 + 0.5 * (1 - LATE) + noise(0, 0.02),
        completion_length=100 + 800 * fewer + noise(1, 10),
        tool_calls=4 * fewer + 0.05,
        entropy=0.3 * np.exp(spread * LATE) + noise(2, 0.005),
    )
    assert names(judgement) == causes
    quantities = [sign.signal for sign in judgement.signs]
    assert ("tool_calls" in quantities) is (not spread)


def test_the_checkpoint_is_before_the_first_sign_of_the_cause() -> None:
    """The entropy doubles in the row before the reward falls and is far away two rows later."""
    grown = np.interp(ROW, [0, 98, 99, 101, 102, 103, N], [0.2, 0.2, 0.5, 0.9, 2.0, 5.0, 5.0])
    judgement = judged(
        reward=np.where(ROW < 100, 0.8, 0.02) + noise(0, 0.02),
        entropy=grown * np.exp(noise(1, 0.05)),
        completion_length=300 + noise(2, 5),
    )
    assert names(judgement) == ["instability"]
    assert [(sign.signal, sign.step) for sign in judgement.signs] == [
        ("entropy", 100),
        ("reward", 101),
    ]
    assert judgement.do.startswith("restart from step 99;")
    assert judgement.signs[0].before == pytest.approx(0.2, abs=0.02)


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
        assert "…" not in "".join(judgement_lines(judgement)[:2])


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
    assert ("ratios capped at 2" in judgement.headline) is (state is State.WARNING)


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


@pytest.mark.parametrize(("held_out", "causes"), [(0.9, []), (0.5, ["small_group"])])
def test_small_groups_are_no_warning_at_the_top(held_out: float, causes: list[str]) -> None:
    columns = {"reward": STANDS, "eval__reward": held_out + noise(2, 0.01)}
    alike = np.clip(0.75 + noise(1, 0.03), 0, 1)
    assert names(judged({"group_size": 2}, dead_group_share=alike, **columns)) == causes


def test_a_kl_that_is_0_on_average_is_no_multiple_of_the_loss() -> None:
    """An estimator of KL that may be negative, beside a flat reward and no gradient norm."""
    kl = np.where(ROW % 2, 0.01, -0.01)
    judgement = judged(reward=STANDS, reward_std_within_group=0.4, kl=kl, loss=0.04 * kl)
    assert judgement.state is State.WARNING
    assert names(judgement) == []


@pytest.mark.parametrize(("right", "state"), [(0.97, State.OK), (0.85, State.WARNING)])
def test_a_sum_is_at_its_top_where_each_function_is(right: float, state: State) -> None:
    right, form = right + noise(0, 0.01), 0.98 + noise(1, 0.004)
    parts = {"reward__accuracy": right, "reward__format": form}
    assert judged(reward=right + 0.2 * form, **parts).state is state


def test_a_function_that_is_the_reward_does_not_part_from_it() -> None:
    reward = np.abs(np.where(ROW < 25, 0.02, 0.035) + noise(13, 0.012))
    assert names(judged(reward=reward, reward__accuracy=reward)) == []


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


@each_case("key", ["gen", "tool_calls/max", "generate_time_per_token", "step", "seconds"])
def test_a_time_is_one_by_its_last_name(key: str) -> None:
    """And a length, a number of tokens or a count under the same prefix is none."""
    pinned = np.where(LATE > 0.5, 1800.0, np.random.default_rng(2).uniform(1372, 1460, N))
    for name in ("slowest/response_length", "tokens", "length/max", "num_preempted", "retry_count"):
        counted = record(**{"reward": STANDS, f"log/timing_s/{name}": pinned})
        assert time_limit(Evidence(counted)).status is Status.NONE
    timed = record(**{"reward": STANDS, f"log/timing_s/slowest/{key}": pinned})
    assert time_limit(Evidence(timed)).status is Status.WARNING


@pytest.mark.parametrize(("back", "lost"), [(0.25, False), (0.1, True)])
def test_a_sudden_drop_of_which_more_than_half_is_regained_is_no_loss(
    back: float, lost: bool
) -> None:
    level = np.where(ROW < 60, 0.8, 0.4 + back * np.clip((ROW - 60) / 60, 0, 1))
    assert (loss_of(Evidence(record(reward=level + noise(0, 0.02)))) is not None) is lost


FALLS = 0.6 - 0.5 * LATE + noise(0, 0.02)
TURNS = np.clip(6 + 3 * np.sin(ROW / 5) + noise(5, 1.0), 1, None)


@pytest.mark.parametrize(
    ("last", "gap", "causes"),
    [
        (0.6, 0.02 * np.exp(noise(2, 0.05)), ["other_limit"]),
        (0.5, 0.2 * (1 + LATE), ["other_limit", "tokenised_again"]),
        (1.6, 0.02 * np.exp(noise(2, 0.05)), ["length"]),
    ],
)
def test_truncation_of_shorter_answers_is_no_length_that_ran_away(
    last: float, gap: Any, causes: list[str]
) -> None:
    """The longest answer is as long as before; or a length that ran away."""
    slow = np.clip((ROW - 60) / 60, 0, 1)
    judgement = judged(
        reward=0.5 - 0.4 * slow + noise(0, 0.02),
        completion_length=1200 * (1 + (last - 1) * slow) + noise(1, 30),
        completion_length_max=3900 + noise(3, 80),
        truncated_share=0.1 + 0.6 * slow + noise(4, 0.01),
        sampler_mismatch=gap,
        turns=6 + 4 * LATE + noise(5, 0.05),
    )
    assert names(judgement) == causes


@pytest.mark.parametrize(("mean", "causes"), [(1.7, "ratio_summed"), (1.0, "instability")])
def test_a_mean_ratio_far_above_1_comes_before_the_gradient(mean: float, causes: str) -> None:
    judgement = judged(
        reward=FALLS,
        sampler_mismatch=0.02 * np.exp(noise(1, 0.05)),
        sampler_ratio=mean * (1 + 0.3 * LATE * (mean > 1)) + noise(2, 0.02),
        gradient_norm=0.3 * np.exp(np.log(60) * LATE + noise(3, 0.1)),
        completion_length=400 + noise(4, 10),
        entropy=0.4 * (1 + LATE) + noise(5, 0.01),
    )
    assert names(judgement) == [causes]


@pytest.mark.parametrize(
    ("level", "alarms"),
    [(0.4, True), (0.03, False), (None, True)],
    ids=["alive", "certain", "none"],
)
def test_a_policy_that_is_certain_has_no_gradient(level: float | None, alarms: bool) -> None:
    """It answers alike from the first row on; what rewards differ by is the verifier's noise."""
    columns = {} if level is None else {"entropy": level * np.exp(noise(4, 0.1))}
    judgement = judged(
        reward=STANDS,
        gradient_norm=0.004 * np.exp(noise(2, 0.2)),
        reward_std_within_group=0.3 * np.exp(noise(3, 0.05)),
        **columns,
    )
    assert ("no_policy_term" in names(judgement)) is alarms


@pytest.mark.parametrize(
    ("norm", "differ", "causes"),
    [
        (0.016, 0.4, ["no_policy_term"]),
        (0.011, 0.3, ["no_policy_term"]),
        (0.2, 0.4, ["rate_too_small"]),
        (0.016, 0.0, []),  # as of groups that are all alike
    ],
)
def test_a_small_gradient_of_a_policy_that_stands_is_no_small_rate(
    norm: float, differ: float, causes: list[str]
) -> None:
    judgement = judged(
        reward=STANDS,
        kl=2e-5 * np.exp(noise(1, 0.3)),
        gradient_norm=norm * np.exp(noise(2, 0.2)),
        reward_std_within_group=differ * np.exp(noise(3, 0.05)),
    )
    assert [name for name in names(judgement) if name != "zero_variance"] == causes


@pytest.mark.parametrize(
    ("largest", "cap", "causes"), [(5.0, 3.0, ["ratio_capped"]), (0.9, 3.0, []), (5.0, 0.0, [])]
)
def test_ratios_below_what_the_gap_makes_were_cut(
    largest: float, cap: float, causes: list[str]
) -> None:
    """The largest gap is 5 nats, or that of the cap; or the largest ratio moves with it."""
    gap = largest * np.exp(noise(2, 0.1))
    judgement = judged(
        reward=RISES,
        sampler_mismatch=0.03 * np.exp(noise(1, 0.05)),
        sampler_mismatch_max=gap,
        sampler_ratio=0.99 + noise(3, 0.002),
        sampler_ratio_max=cap or np.exp(gap),
    )
    assert names(judgement) == causes
    assert judgement.state is State.OK


@pytest.mark.parametrize(
    ("few", "many", "loose", "correlation", "causes"),
    [
        (0.003, 0.05, 0.05, 0.97, ["tokenised_again"]),
        (0.01, 0.4, 0.05, 0.6, ["tokenised_again"]),  # and not its routing
        (0.01, 0.03, 0.05, 0.97, []),  # three times as much
        (0.002, 0.012, 0.05, 0.97, []),  # rounding
        (0.003, 0.05, 1.0, 0.97, []),  # of its own accord
    ],
)
def test_a_small_gap_that_goes_with_the_turns_is_told(
    few: float, many: float, loose: float, correlation: float, causes: list[str]
) -> None:
    place = (TURNS - TURNS.min()) / (TURNS.max() - TURNS.min())
    judgement = judged(
        reward=RISES,
        sampler_mismatch=few * (many / few) ** place * np.exp(noise(1, loose)),
        sampler_correlation=correlation + noise(2, 0.01),
        turns=TURNS,
    )
    assert names(judgement) == causes


@pytest.mark.parametrize(
    ("columns", "last", "cap", "falls", "named"),
    [
        ("episode/duration/{}", 700, 900, 1, True),
        ("rollout/{}_seconds", 45, 60, 1, True),
        ("episode/duration/{}", 700, 900, 0, False),
        ("episode/duration/{}", 700, 0, 1, False),  # the longest varies
        ("episode/duration/{}", 700, 9000, 1, False),  # few come near it
        ("episode/duration/{}", 350, 900, 1, False),
    ],
)
def test_mean_times_that_rise_towards_one_longest_time_are_a_time_limit(
    columns: str, last: float, cap: float, falls: float, named: bool
) -> None:
    mean = last * (0.5 + 0.5 * np.clip((ROW - 30) / 80, 0, 1)) if last != 350 else 350.0
    longest = cap * (1 + noise(2, 0.002)) if cap else 900 * np.exp(noise(2, 0.1))
    judgement = judged(
        reward=0.6 - 0.3 * falls * np.clip((ROW - 30) / 80, 0, 1) + noise(0, 0.02),
        **{f"log/{columns.format('mean')}": mean * np.exp(noise(1, 0.03))},
        **{f"log/{columns.format('max')}": longest},
    )
    assert ("time_limit" in names(judgement)) is named


LOADS = (
    "(Actor pid=7) [2026-01-02 10:00:00] checkpointing.py:12 -  loading checkpoint from /c at "
    "iteration {}"
)


@pytest.mark.parametrize(
    ("at", "jump", "causes"),
    [(70, 3.5, ["restart"]), (70, 12.0, ["restart"]), (70, 1.0, []), (0, 3.5, [])],
)
def test_a_checkpoint_that_a_console_loads_in_mid_run_is_a_restart(
    at: int, jump: float, causes: list[str], tmp_path: Path
) -> None:
    """A gap twelve times as large is beyond its limit as well; the first lines load one anyway."""
    gap = 0.009 * np.where(ROW < 70, 1, jump) * np.exp(noise(1, 0.05))
    lines = []
    for row in range(N):
        lines += [LOADS.format(row)] if row == at else []
        values = {"rollout/raw_reward": float(RISES[row]), "rollout/step": row}
        lines.append(f"(Manager pid=5) [2026-01-02] data.py:3 - rollout {row}: {values}")
        values = {"train/train_rollout_logprob_abs_diff": float(gap[row]), "train/step": row}
        lines.append(f"(Actor pid=7) [2026-01-02] model.py:6 - step {row}: {values}")
    path = tmp_path / "slime.log"
    path.write_text("\n".join(lines))
    judgement = judge(run_record(path), ended=True)
    assert ("restart" in names(judgement)) is (causes != [])
    if causes:
        assert judgement.since_step == 70


@pytest.mark.parametrize(
    ("equal", "follows", "last", "named"),
    [
        (0.65, 1.0, 0.7, True),
        (0.55, 1.0, 0.6, True),
        (0.65, 0.0, 0.7, False),
        (0.3, 1.0, 0.7, False),
        (0.75, 1.0, 0.95, False),  # at its top nothing is left to teach
        (0.65, 1.0, 0.85, False),  # nor near it
    ],
)
def test_groups_of_zero_variance_dilute_an_update_that_follows_the_others(
    equal: float, follows: float, last: float, named: bool
) -> None:
    share = np.clip(equal + noise(1, 0.08), 0.02, 0.98)
    norm = 0.4 * (1 - share) ** follows * np.exp(noise(2, 0.05))
    level = last - 0.2 * np.exp(-ROW / 10)
    judgement = judged(reward=level + noise(0, 0.01), dead_group_share=share, gradient_norm=norm)
    assert ("diluted" in names(judgement)) is named


@pytest.mark.parametrize(
    ("earlier", "last", "causes"),
    [
        (25, 0.6, ["selection"]),
        (40, 0.7, ["selection"]),
        (0, 0.6, ["reward_hacking", "selection"]),
        (25, 1.0, ["reward_hacking", "selection"]),  # answers as long as before
    ],
)
def test_what_is_left_out_before_the_reward_rises_is_a_selection(
    earlier: int, last: float, causes: list[str]
) -> None:
    left_out = np.append(LATE[earlier:], np.ones(earlier))
    judgement = judged(
        reward=0.35 + 0.3 * LATE + noise(0, 0.02),
        eval__reward=0.35 + noise(1, 0.01),
        completion_length=900 * (1 + (last - 1) * LATE) + noise(2, 10),
        log__queue__dropped=3 + 12 * left_out + noise(3, 0.8),
    )
    assert names(judgement) == causes


@each_case(
    ("column", "to", "cause"),
    [
        ("response/aborted_ratio", 0.5, True),
        ("response/aborted_ratio", 0.05, False),
        ("response/repeated_ratio", 0.5, False),
    ],
)
def test_responses_that_are_aborted_are_failed_episodes(
    column: str, to: float, cause: bool
) -> None:
    judgement = judged(
        reward=0.8 - 0.4 * LATE + noise(0, 0.02),
        **{f"log/{column}": np.clip(0.01 + to * LATE + noise(2, 0.005), 0, 1)},
    )
    assert ("infrastructure" in names(judgement)) is cause


@pytest.mark.parametrize(
    ("column", "to", "cause"),
    [("env/timeout_rate", 0.3, True), ("sandbox_error_rate", 0.2, True), ("has_error", 0, False)],
)
def test_a_mean_advantage_that_goes_with_failed_episodes_counts_them(
    column: str, to: float, cause: bool
) -> None:
    failed = np.clip(0.03 + 0.25 * LATE + noise(2, 0.01), 0, 1)
    judgement = judged(
        reward=0.5 - 0.2 * LATE + noise(0, 0.02),
        advantage=0.02 + to * LATE + noise(1, 0.01),
        **{f"log/{column}": failed},
    )
    assert names(judgement)[0] == ("masked_counted" if cause else "infrastructure")


@pytest.mark.parametrize(
    ("column", "tokens", "cause"),
    [
        ("episode/total_tokens/mean", 40_000, "rows_cut"),
        ("trajectory/response_tokens_avg", 9_000, "rows_cut"),
        ("episode/total_tokens/mean", 2_500, "truncation"),
        ("perf/total_num_tokens", 400_000, "truncation"),  # of a whole step
    ],
)
def test_rows_far_shorter_than_rollouts_are_what_is_cut(
    column: str, tokens: float, cause: str
) -> None:
    judgement = judged(
        reward=STANDS,
        truncated_share=0.9 + noise(1, 0.01),
        completion_length=1990 + noise(2, 10),
        completion_length_max=2048.0,
        **{f"log/{column}": tokens * np.exp(noise(3, 0.03))},
    )
    assert names(judgement) == [cause]


@pytest.mark.parametrize(
    ("kl", "differ", "rises", "cause"),
    [
        ("0.000000000000", 0.31, 0.0, ["no_gradient"]),
        ("0.00000000", 0.12, 0.0, ["no_gradient"]),
        ("0.000", 0.31, 0.0, []),  # rounded like all else
        ("0.000000000000", 0.0, 0.0, []),
        ("0.000000000000", 0.31, 0.4, []),
    ],
)
def test_a_kl_of_0_to_its_last_digit_tells_that_no_gradient_arrives(
    kl: str, differ: float, rises: float, cause: list[str], tmp_path: Path
) -> None:
    reward = 0.5 + rises * ROW / N + noise(0, 0.03)
    lines = []
    for row in range(N):
        lines += [f"Iter {5 * row + 5}:", "-" * 20, "Loss: 0.000"]
        lines += [f"Total Rewards:  μ={reward[row]:.3f}, σ=0.{401 + row % 60}"]
        spread = differ and differ + 0.001 * (row % 30)
        lines += [f"Group Rewards:  μ={reward[row]:.3f}, σ={spread:.3f}"]
        lines += [f"KL Divergence: {kl}", "-" * 20, "Learning Rate: 2.0000e-05", ""]
    path = tmp_path / "mlx.log"
    path.write_text("\n".join(lines))
    named = names(judge(run_record(path), ended=True))
    assert [name for name in named if name == "no_gradient"] == cause


@pytest.mark.parametrize(("rows", "error", "fails"), [(2, "RuntimeError", True), (2, "", False)])
def test_numbers_that_end_before_an_error_are_what_broke(
    rows: int, error: str, fails: bool
) -> None:
    norm = np.append(0.3 + noise(1, 0.02)[rows:], np.full(rows, np.nan))
    run = record(reward=RISES, gradient_norm=norm, loss=noise(2, 0.01), kl=0.01 + noise(3, 1e-4))
    judgement = judge(replace(run, error=error), ended=True)
    assert (judgement.state is State.FAILED) == fails
    assert ("numerical failure, first in gradient_norm" in judgement.cause.names) == fails


@pytest.mark.parametrize("rows", [3, 9])
def test_a_few_right_answers_amid_rows_of_nothing_are_no_height(rows: int) -> None:
    reward = np.zeros(N)
    reward[np.random.default_rng(rows).choice(N // 2, rows, replace=False)] = 1 / 128
    judgement = judged(reward=reward, gradient_norm=np.where(reward > 0, 0.1, 0.0))
    assert loss_of(Evidence(record(reward=reward))) is None
    assert names(judgement) == ["too_hard"]
    (part,) = [part for part in judgement.parts if "every rollout" in part]
    says("diagnostics/named_causes/1", part, wrong=N - rows, rows=N)


@pytest.mark.parametrize(("first", "cause"), [(0.985, "precision"), (0.62, "routing")])
def test_a_correlation_that_decays_is_no_routing(first: float, cause: str) -> None:
    time = ROW / N
    entropy = 0.45 - 0.2 * time + noise(1, 0.002)
    alike = first - (first - 0.6) * time**2 + noise(2, 0.004)
    gap = 0.012 * np.exp(1.2 * time) + noise(3, 1e-4)
    columns = {"sampler_correlation": alike, "entropy": entropy, "sampler_mismatch": gap}
    judgement = judged(reward=RISES, **columns)
    assert names(judgement) == [cause]
    assert (judgement.first_sign is not None and judgement.first_sign.step > 1) == (first > 0.9)


def test_a_few_rows_of_nothing_tell_nothing_of_groups() -> None:
    steps = steps_table(range(6), {"reward": np.eye(6)[3] / 128})
    judgement = judge(RunRecord("test", steps, meanings=(Meaning("reward", "reward", "test"),)))
    assert judgement.state is State.CANNOT_TELL
    assert not [check for check in judgement.checks if check.status is Status.WARNING]
