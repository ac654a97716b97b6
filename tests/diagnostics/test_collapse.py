"""The level that counts as nothing: penalties, rewards of any label, falls of training alone,
and how fast a fall was.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.cases import each_case
from tests.golden.sentences import says

from groupwise.diagnostics.causes import advice_for
from groupwise.diagnostics.falls import (
    Decline,
    _closer,
    _stopped,
    behaviour_change,
    by_and_by,
    constant_tail,
    decline_of,
    fall_of,
    find_fall,
    heights,
    held_out_at,
    level_changes,
    row_size,
    span_of_fall,
)
from groupwise.diagnostics.instability import _decline, _shortened
from groupwise.diagnostics.judge import judge
from groupwise.diagnostics.judgement import (
    Cause,
    Certainty,
    Fact,
    Finding,
    Judgement,
    State,
    Status,
)
from groupwise.diagnostics.signals import (
    Evidence,
    NoisyMetric,
    floor_of,
    lowest_grade,
    signal_of,
    two_values,
)
from groupwise.record.run import Meaning, RunRecord, rollouts_table, steps_table
from groupwise.wording import short

Floats = NDArray[np.float64]
ROWS = 200
MEANS = {
    "reward": "reward",
    "held_out": "eval/reward",
    "entropy": "entropy",
    "length": "completion_length",
    "spread": "reward_std_batch",
    "dead": "dead_group_share",
    "gradient": "gradient_norm",
    "truncated": "truncated_share",
}


def log(rows: Any = None, **columns: Floats) -> RunRecord:
    length = len(next(iter(columns.values())))
    meanings = tuple(Meaning(key, MEANS[key], "test") for key in columns if key in MEANS)
    return RunRecord(
        "test",
        steps_table(range(1, length + 1), columns),
        rollouts_table(rows or []),
        meanings=meanings,
    )


def statuses_of(judgement: Judgement) -> dict[str, Status]:
    return {
        finding.check: finding.status
        for finding in judgement.checks
        if finding.status in (Status.INFO, Status.WARNING, Status.CRITICAL)
    }


def answer(judgement: Judgement, check: str) -> Finding:
    return next(finding for finding in judgement.checks if finding.check == check)


def rise(rng: np.random.Generator, noise: float = 0.03) -> Floats:
    return 0.2 + 0.5 * (1 - np.exp(-np.arange(ROWS) / 60)) + noise * rng.standard_normal(ROWS)


def steady(rng: np.random.Generator) -> dict[str, Floats]:
    return {
        "entropy": 0.4 + 0.02 * rng.standard_normal(ROWS),
        "length": 300 + 10 * rng.standard_normal(ROWS),
    }


def graded(
    right: Floats, low: float, high: float, rng: np.random.Generator, count: int = 256
) -> tuple[Floats, Floats]:
    """Mean and standard deviation of batches of right and wrong, with two grades."""
    share = rng.binomial(count, np.clip(right, 0, 1)) / count
    return low + (high - low) * share, (high - low) * np.sqrt(
        share * (1 - share) * count / (count - 1)
    )


# Penalties and small slopes.


@each_case("seed", range(5))
@each_case(
    ("start", "end", "noise"), [(-0.10, -0.12, 0.005), (-0.30, -0.60, 0.02), (0.9, 0.75, 0.02)]
)
def test_a_penalty_of_longer_answers_beside_a_rising_accuracy_is_health(
    seed: int, start: float, end: float, noise: float
) -> None:
    rng = np.random.default_rng(seed)
    accuracy, penalty = rise(rng), np.linspace(start, end, ROWS) + noise * rng.standard_normal(ROWS)
    weight = 0.2
    columns = {
        "reward": accuracy + weight * penalty,
        "rewards/acc/mean": accuracy,
        "rewards/brevity/mean": penalty,
    }
    judgement = judge(log(**columns))
    assert (judgement.state, statuses_of(judgement)) == (State.OK, {"reward_hacking": Status.INFO})
    assert re.fullmatch(
        r"reward \S+ → \S+ while brevity \S+ → \S+: one gains while the other loses\.",
        answer(judgement, "reward_hacking").message,
    )


def test_what_is_wanted_and_falls_while_the_total_rises_is_told() -> None:
    rng = np.random.default_rng(0)
    accuracy, form = (
        0.5 - 0.3 * np.arange(ROWS) / ROWS + 0.02 * rng.standard_normal(ROWS),
        rise(rng) * 2,
    )
    judgement = judge(
        log(**{"reward": accuracy + form, "rewards/acc/mean": accuracy, "rewards/style/mean": form})
    )
    assert statuses_of(judgement) == {"collapse": Status.CRITICAL, "reward_hacking": Status.WARNING}
    assert (judgement.cause.certainty, judgement.cause.names) == (
        Certainty.POSSIBLE,
        ("reward hacking",),
    )


@each_case("seed", range(5))
@each_case(
    ("level", "lost", "noise", "said"),
    [
        (-3.0, 0.12, 0.03, {}),
        (-0.04, 0.02, 0.003, {"collapse": Status.WARNING}),
        (3.0, 0.12, 0.03, {}),
    ],
)
def test_a_small_slope_of_a_reward_without_a_zero_is_no_collapse(
    seed: int, level: float, lost: float, noise: float, said: dict[str, Status]
) -> None:
    """Half of the first level is a decline, a twenty-fifth is none."""
    rng = np.random.default_rng(seed)
    judgement = judge(
        log(reward=level - lost * np.arange(ROWS) / ROWS + noise * rng.standard_normal(ROWS))
    )
    assert (judgement.state, statuses_of(judgement)) == (State.WARNING, said)


@pytest.mark.parametrize(
    ("begin", "height", "end", "noise"),
    [(-2.0, 2.0, -4.0, 0.1), (0.4, 0.5, -0.95, 0.05), (-1.0, -0.2, -1.0, 0.02)],
)
def test_a_reward_below_zero_that_loses_what_it_had_collapsed(
    begin: float, height: float, end: float, noise: float
) -> None:
    rng = np.random.default_rng(1)
    level = np.concatenate(
        [
            np.linspace(begin, height, 100),
            np.full(20, height),
            np.linspace(height, end, 10),
            np.full(70, end),
        ]
    )
    judgement = judge(log(reward=level + noise * rng.standard_normal(ROWS)))
    assert (judgement.state, statuses_of(judgement)) == (
        State.FAILED,
        {"collapse": Status.CRITICAL},
    )
    collapse = answer(judgement, "collapse")
    assert 121 <= (collapse.step or 0) <= 130
    assert collapse.value is not None
    assert 0.0 <= collapse.value.low <= collapse.value.value <= collapse.value.high <= 1.0


# Grades.


@each_case(
    ("low", "high"), [(0.0, 1.0), (-1.0, 1.0), (-1.0, 0.0), (0.0, 0.1), (0.0, 100.0), (3.0, 8.0)]
)
def test_two_grades_are_read_off_mean_and_spread(low: float, high: float) -> None:
    rng = np.random.default_rng(2)
    mean, spread = graded(rise(rng, 0.0), low, high, rng)
    assert two_values(log(reward=mean), mean, spread) == pytest.approx((low, high))


@pytest.mark.parametrize(("rows", "levels"), [(5, (-1.0, 1.0)), (4, None)])
def test_five_rows_tell_two_grades(rows: int, levels: tuple[float, float] | None) -> None:
    mean = np.linspace(-0.5, 0.5, rows)
    assert two_values(log(reward=mean), mean, np.sqrt(1 - mean**2)) == levels


def test_other_rewards_have_no_two_grades() -> None:
    rng = np.random.default_rng(3)
    mean = rise(rng)
    assert two_values(log(reward=mean), mean, np.full(ROWS, 0.3)) is None
    assert two_values(log(reward=mean), mean, 0.5 * np.sqrt(mean * (1 - mean))) is None
    assert two_values(log(reward=mean), mean, None) is None


def test_grades_of_rollouts_come_before_all_else() -> None:
    rows: list[dict[str, object]] = [
        {"step": step, "prompt_id": 0, "reward": float(2 * (step % 2) - 1)}
        for step in range(1, 101)
    ]
    record = log(rows, reward=np.zeros(100))
    assert two_values(record, np.zeros(100), None) == (-1.0, 1.0)
    assert lowest_grade(record) == -1.0
    assert Evidence(record).reward is not None
    assert Evidence(record).reward.bounds == (-1.0, 1.0)  # type: ignore[union-attr]


@each_case(("low", "high"), [(0.0, 1.0), (-1.0, 1.0), (0.0, 0.1), (5.0, 10.0)])
def test_the_cause_does_not_depend_on_the_labels_of_right_and_wrong(
    low: float, high: float
) -> None:
    rng = np.random.default_rng(4)
    right = rise(rng, 0.0)
    right[120:] = 0.0
    mean, spread = graded(right, low, high, rng)
    dead = np.where(np.arange(ROWS) < 120, 0.2, 1.0)
    judgement = judge(log(reward=mean, spread=spread, dead=dead, **steady(rng)))
    assert (judgement.state, judgement.since_step) == (State.FAILED, 121)
    assert (judgement.cause.certainty, judgement.cause.names) == (
        Certainty.LIKELY,
        ("a broken verifier",),
    )
    assert set(statuses_of(judgement)) == {"collapse", "verifier", "zero_variance"}
    assert statuses_of(judgement)["zero_variance"] is Status.INFO  # it follows the reward


def test_what_counts_as_nothing() -> None:
    steps = np.arange(ROWS)
    noise = 0.01 * np.random.default_rng(5).standard_normal(ROWS)
    positive = signal_of("a", steps, 0.5 + noise)
    gained = signal_of("b", steps, np.linspace(-2.0, 2.0, ROWS) + noise)
    level = signal_of("c", steps, -3.0 + noise)
    assert floor_of(positive) == 0.0
    assert floor_of(gained) == pytest.approx(-1.9, abs=0.2)
    assert floor_of(level, spread=0.5) == pytest.approx(-4.0, abs=0.05)
    assert floor_of(level, lowest=-10.0) == -10.0


# Training alone, and how fast.


def dropped(rng: np.random.Generator, held_drops: bool) -> Judgement:
    right = rise(rng, 0.02)
    held = right + 0.02 * rng.standard_normal(ROWS)
    after = np.arange(ROWS) >= 120
    held = np.where(after & held_drops, 0.35 * held, held)
    held[np.arange(ROWS) % 5 != 0] = np.nan
    return judge(log(reward=np.where(after, 0.35 * right, right), held_out=held, **steady(rng)))


@pytest.mark.parametrize("held_drops", [False, True])
def test_longer_answers_explain_a_smaller_fall_unless_what_is_held_out_stands(
    held_drops: bool,
) -> None:
    """To six tenths at once, at answers nearly twice as long: harder prompts may ask for them."""
    rng, after = np.random.default_rng(0), np.arange(ROWS) >= 120
    right = rise(rng, 0.02)
    held = np.where(after & held_drops, 0.6 * right, right)
    held[np.arange(ROWS) % 5 != 0] = np.nan
    given = {**steady(rng), "length": np.where(after, 180.0, 100.0) + rng.standard_normal(ROWS)}
    judgement = judge(log(reward=np.where(after, 0.6 * right, right), held_out=held, **given))
    assert answer(judgement, "collapse").facts[0] is (
        Fact.DECLINE if held_drops else Fact.TRAINING_DECLINES_ALONE
    )
    if held_drops:
        assert (judgement.cause.certainty, judgement.cause.names) == (
            Certainty.LIKELY,
            ("the policy ran away in length",),
        )
    else:
        assert (judgement.cause.certainty, judgement.cause.names) == (
            Certainty.CANNOT_TELL,
            ("a broken verifier", "harder data"),
        )


@pytest.mark.parametrize("later", [0, 8])
def test_a_run_is_to_go_back_to_before_its_fall_though_a_signal_moved_later(later: int) -> None:
    rng, row = np.random.default_rng(0), np.arange(ROWS)
    given = {
        **steady(rng),
        "length": np.where(row >= 120 + later, 220.0, 100.0) + rng.standard_normal(ROWS),
    }
    judgement = judge(log(reward=np.where(row >= 120, 0.6, 1.0) * rise(rng, 0.02), **given))
    assert "restart from step 120;" in judgement.do


@pytest.mark.parametrize("seed", range(3))
def test_a_drop_of_training_alone_may_be_harder_prompts_and_is_no_alarm(seed: int) -> None:
    judgement = dropped(np.random.default_rng(seed), held_drops=False)
    assert judgement.state == State.WARNING
    level = short(judgement.level or 0.0)
    says("diagnostics/collapse/6", judgement.headline, level=level)
    assert judgement.level == pytest.approx(0.63, abs=0.01)  # of the last rows before row 120
    assert (judgement.cause.certainty, judgement.cause.names) == (
        Certainty.CANNOT_TELL,
        ("a broken verifier", "harder data"),
    )
    assert judgement.cause.log == ("completions with prompts and rewards",)
    assert Fact.HELD_OUT_STAYED in answer(judgement, "verifier").facts
    says("diagnostics/collapse/1", answer(judgement, "collapse").message, level=level)
    assert judgement.do.startswith("log completions with prompts and rewards")


@pytest.mark.parametrize("seed", range(3))
def test_a_drop_of_both_at_once_is_the_verifiers(seed: int) -> None:
    judgement = dropped(np.random.default_rng(seed), held_drops=True)
    assert judgement.state == State.FAILED
    says("diagnostics/collapse/7", judgement.headline, level=short(judgement.level or 0.0))
    assert judgement.level == pytest.approx(0.63, abs=0.01)  # of the last rows before row 120
    assert (judgement.cause.certainty, judgement.cause.names) == (
        Certainty.LIKELY,
        ("a broken verifier",),
    )
    assert statuses_of(judgement) == {"collapse": Status.CRITICAL, "verifier": Status.CRITICAL}


def test_a_held_out_reward_that_is_down_already_does_not_clear_the_policy() -> None:
    rng = np.random.default_rng(6)
    right = rise(rng, 0.02)
    held = np.where(np.arange(ROWS) < 60, right, 0.02) + 0.005 * rng.standard_normal(ROWS)
    reward = np.where(np.arange(ROWS) < 120, right, 0.05 * right)
    judgement = judge(log(reward=reward, held_out=held, **steady(rng)))
    assert statuses_of(judgement)["collapse"] is Status.CRITICAL
    assert not {Fact.HELD_OUT_STAYED, Fact.HELD_OUT_DROPPED} & {
        *answer(judgement, "verifier").facts
    }


@each_case("seed", range(10))
def test_how_fast_a_fall_was(seed: int) -> None:
    rng = np.random.default_rng(seed)
    noise = 0.03 * rng.standard_normal(ROWS)
    at_once = np.where(np.arange(ROWS) < 100, 0.7, 0.1)
    slowly = 0.7 - 0.6 * np.clip((np.arange(ROWS) - 90) / 20, 0, 1)
    for level, slow in ((at_once, False), (slowly, True)):
        signal = signal_of("reward", np.arange(ROWS), level + noise)
        fall = find_fall(signal, 0.0)
        assert fall is not None
        assert by_and_by(signal, fall.row) is slow


def test_a_fall_by_and_by_with_unchanged_answers_is_not_named_a_failure_of_the_verifier() -> None:
    rng = np.random.default_rng(7)
    level = np.where(
        np.arange(ROWS) < 100,
        rise(rng, 0.0),
        np.maximum(0.05, 0.62 - 0.02 * (np.arange(ROWS) - 100)),
    )
    judgement = judge(
        log(reward=level + 0.03 * rng.standard_normal(ROWS), held_out=level, **steady(rng))
    )
    assert statuses_of(judgement) == {"collapse": Status.CRITICAL}
    assert Fact.FALL_BY_AND_BY in answer(judgement, "collapse").facts
    assert (judgement.cause.certainty, judgement.cause.names[0]) == (
        Certainty.CANNOT_TELL,
        "harder data",
    )


@pytest.mark.parametrize(("rows", "certainty"), [(30, Certainty.CANNOT_TELL), (80, Certainty.NONE)])
def test_a_fall_that_takes_a_good_part_of_the_log_names_no_cause_however_deep_it_is(
    rows: int, certainty: Certainty
) -> None:
    rng, place = np.random.default_rng(7), np.arange(ROWS)
    level = np.where(
        place < 100, rise(rng, 0.0), 0.62 - 0.52 * np.minimum((place - 100) / rows, 1.0)
    )
    judgement = judge(log(reward=level + 0.03 * rng.standard_normal(ROWS), **steady(rng)))
    assert (judgement.state, judgement.cause.certainty) == (State.FAILED, certainty)


def test_a_slope_is_looked_for_about_its_middle_though_its_end_was_found() -> None:
    """It falls from row 20 to 75; about its last rows alone a step would do as well."""
    rng, place = np.random.default_rng(0), np.arange(100)
    slowly = signal_of(
        "reward", place, np.interp(place, [20, 75], [0.8, 0.3]) + 0.06 * rng.standard_normal(100)
    )
    assert by_and_by(slowly, 78)
    assert not by_and_by(
        signal_of(
            "reward", place, np.where(place < 50, 0.8, 0.3) + 0.06 * rng.standard_normal(100)
        ),
        53,
    )


@pytest.mark.parametrize("seed", range(3))
def test_a_verifier_that_passes_everything_at_once_is_told_from_success(seed: int) -> None:
    rng = np.random.default_rng(seed)
    leap, grown = (
        rise(rng),
        np.minimum(0.2 + 0.01 * np.arange(ROWS) + 0.01 * rng.standard_normal(ROWS), 1.0),
    )
    leap[120:] = 1.0
    grown[90:] = 1.0
    judgement = judge(log(reward=leap, **steady(rng)))
    assert (judgement.state, statuses_of(judgement)) == (
        State.WARNING,
        {"verifier": Status.WARNING},
    )
    assert judgement.headline.endswith(" → exactly 1 from step 121 on (80 rows)")
    passes = advice_for(Cause(), answer(judgement, "verifier"), step=None, onset=None)
    says("diagnostics/collapse/2", passes.do)
    assert judge(log(reward=grown, **steady(rng))).state is State.OK


def test_groups_that_are_not_more_often_alike_are_no_fewer() -> None:
    rng = np.random.default_rng(8)
    reward = np.where(np.arange(ROWS) < 60, 0.05, 0.19) + 0.01 * rng.standard_normal(ROWS)
    dead = np.where(np.arange(ROWS) < 60, 0.84, 0.82) + 0.02 * rng.standard_normal(ROWS)
    assert statuses_of(judge(log(reward=reward, dead=dead))) == {"zero_variance": Status.INFO}


def test_a_log_without_a_usable_reward_has_no_grades() -> None:
    empty = np.zeros(0)
    assert two_values(log(reward=np.zeros(5)), empty, empty) is None
    assert Evidence(log(entropy=np.ones(20))).grades is None
    assert Evidence(log(reward=np.full(20, 1e200), spread=np.ones(20))).grades is None


def lowered(
    by: float, deviation: float, *, few: int = 10, ended: bool = True, high: int = 60
) -> Evidence:
    """Eight stretches of rows, at 1 and then lower, whose noise is given."""
    value = np.where(np.arange(8 * few) < high * few // 10, 1.0, 1.0 - by)
    evidence = Evidence(log(reward=value), ended=ended)
    evidence.memo["reward_level"] = (
        NoisyMetric("reward", np.arange(1, 8 * few + 1), value, deviation, deviation),
        None,
    )
    return evidence


def declined(by: float, deviation: float, *, few: int = 10, ended: bool = True) -> Decline | None:
    """What is found in six stretches of rows at 1 and two stretches lower, whose noise is given."""
    return decline_of(lowered(by, deviation, few=few, ended=ended))


@each_case(
    ("by", "errors", "high", "status"),
    [
        # Of ten rows at the height and the twenty since: .6 was lost, and half of it by 1.96
        # standard errors or more.
        (0.6, 1.97, 60, Status.CRITICAL),
        (0.6, 1.95, 60, Status.WARNING),
        (0.49, 50.0, 60, Status.WARNING),  # less than half is a decline
        (0.6, 50.0, 68, Status.CRITICAL),  # twelve rows
        (0.6, 50.0, 69, Status.WARNING),  # and eleven, after which dips come back
    ],
)
def test_a_decline_that_stands_below_half_of_the_height_beyond_doubt_is_a_failure(
    by: float, errors: float, high: int, status: Status
) -> None:
    rows = 80 - high
    finding = _decline(lowered(by, abs(by - 0.5) / errors / np.sqrt(1 / 10 + 1 / rows), high=high))
    assert finding is not None
    assert finding.status is status


def test_a_decline_is_held_against_the_largest_of_eight_means() -> None:
    """Of 8 stretches the highest was chosen: 1 in 50 becomes 1 in 400, and 2.054 standard errors
    become 2.807.
    """
    for errors, expected in ((2.1, False), (2.80, False), (2.81, True)):
        assert (declined(0.3, 0.3 / errors / np.sqrt(2 / 10)) is not None) is expected


def test_a_decline_of_a_run_that_goes_on_is_held_against_every_look_at_it_too() -> None:
    """Eight stretches, looked at eight times: 1 in 50 becomes 1 in 3,200, and 3.421 standard
    errors; and it must be 24 rows old.
    """
    for errors, expected in ((2.81, False), (3.41, False), (3.43, True)):
        assert (
            declined(0.3, 0.3 / errors / np.sqrt(2 / 12), few=12, ended=False) is not None
        ) is expected
    assert declined(0.3, 0.001, few=11, ended=False) is None


def test_a_decline_of_less_than_an_eighth_of_the_height_is_none() -> None:
    assert declined(0.119, 0.001) is None
    assert declined(0.03, 0.001) is None
    decline = declined(0.121, 0.001)
    assert decline is not None
    assert (decline.begin, decline.middle, decline.end, decline.change.before) == pytest.approx(
        (60, 60, 60, 1.0), abs=1e-12
    )


@pytest.mark.parametrize("rows", [200, 1_000])
def test_a_fall_has_its_first_and_its_last_row_however_slow_it_is(rows: int) -> None:
    """From 0.8 to 0.2, a rise before and a rise since: at once at row 100, in ten rows, in
    eighty; the closest look is at single rows.
    """
    for length in (1, 10, 80):
        level = np.interp(
            np.arange(rows), [0, 50, 99, 99 + length, rows], [0.4, 0.8, 0.8, 0.2, 0.21]
        )
        signal = signal_of("reward", np.arange(1, rows + 1), level)
        assert span_of_fall(signal, 100 + length // 2) == pytest.approx(
            (100, 99 + length), abs=0 if length == 1 else 2
        )
    assert span_of_fall(signal_of("reward", np.arange(3), np.array([0.5, 0.6, 0.4])), 2) == (2, 2)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("dip", [0.9, 0.3])
def test_the_level_before_a_fall_is_that_of_the_rows_since_an_earlier_dip(
    dip: float, seed: int
) -> None:
    """Rows 20 to 23 are low and come back, or are none; at row 28 the reward is lost."""
    noise = 0.03 * np.random.default_rng(seed).standard_normal(50)
    reward = np.full(50, 0.9) + noise
    reward[20:24] += dip - 0.9
    judgement = judge(log(reward=np.where(np.arange(50) < 28, reward, 0.02 + 0.1 * noise)))
    assert judgement.level == pytest.approx(reward[24 if dip < 0.9 else 20 : 28].mean(), abs=1e-9)
    assert judgement.since_step == 29


@pytest.mark.parametrize(("seed", "slope", "first"), [(1, 38, 40), (3, 37, 39), (4, 39, 42)])
def test_a_fall_begins_behind_the_last_row_that_is_as_high_as_before(
    seed: int, slope: int, first: int
) -> None:
    """Up to row 40 the reward loses no more than its scatter; where it loses much more from its
    first row on, that is the first.
    """
    row, noise = np.arange(80), 0.05 * np.random.default_rng(seed).standard_normal(80)
    reward = np.interp(row, [0, 24, 39, 48, 80], [0.8, 0.8, 0.74, 0.25, 0.25]) + noise
    given = Evidence(log(reward=reward))
    fall, change = fall_of(given), level_changes(given)["reward"]
    assert fall is not None
    assert given.reward is not None
    assert span_of_fall(given.reward, fall.row)[0] + 1 == slope
    assert change.first == first
    assert reward[first - 2] > change.before - given.reward.scatter
    slow = np.interp(row, [0, 29, 69, 80], [0.8, 0.8, 0.1, 0.1]) + 0.2 * noise
    assert level_changes(Evidence(log(reward=slow)))["reward"].first == 31


def test_the_level_before_a_fall_counts_its_ordinary_low_rows_and_no_earlier_dip() -> None:
    """One row in ten is .5 and the others 1; a dip of five rows is no part of the level."""
    row = np.arange(120)
    low = np.where(row % 10 == 4, 0.5, 1.0) + 0.002 * np.sin(row)
    change = level_changes(Evidence(log(reward=np.where(row < 72, low, 0.05))))["reward"]
    assert change.before == pytest.approx(0.95, abs=0.04)
    dip = np.where((row >= 55) & (row < 60), 0.4, 0.9) + 0.01 * np.sin(17 * row)
    change = level_changes(Evidence(log(reward=np.where(row < 72, dip, 0.05))))["reward"]
    assert change.before == pytest.approx(0.9, abs=0.01)


def test_an_onset_is_placed_within_its_block_or_before_it() -> None:
    """In blocks of five the sum above .5 is largest after row 49; row by row two rows together
    must be below.
    """
    high = signal_of("reward", np.arange(100), np.where(np.arange(100) < 50, 1.0, 0.0))
    assert _closer(high, 52, 5, 0.5) == 50
    for last_two, row in (([0.7, 0.2], 51), ([0.7, 0.7], 52), ([0.1, 0.1], 51)):
        value = np.array([1.0] * 50 + last_two + [0.0] * 10)
        assert _closer(signal_of("reward", np.arange(62), value), 52, 1, 0.5) == row


def test_a_decline_is_dated_by_its_first_row_and_not_by_its_middle() -> None:
    level = np.interp(np.arange(ROWS), [0, 40, 100, 200], [0.3, 0.8, 0.8, 0.5])
    judgement = judge(log(reward=level + 0.01 * np.random.default_rng(0).standard_normal(ROWS)))
    assert judgement.learning.value == "falling"
    says("diagnostics/collapse/5", judgement.headline)


def test_a_decline_is_told_with_its_height_and_its_end() -> None:
    judgement = judge(
        log(
            reward=np.where(np.arange(80) < 60, 1.0, 0.7)
            + 0.001 * np.random.default_rng(0).standard_normal(80)
        )
    )
    collapse = answer(judgement, "collapse")
    assert (collapse.status, collapse.step) == (Status.WARNING, 61)
    says("diagnostics/collapse/8", collapse.message)
    assert collapse.value is not None
    assert collapse.value.value == pytest.approx(0.7, abs=0.002)
    assert collapse.limit == pytest.approx(1.0, abs=0.002)


@each_case(
    ("gradient", "alike", "collapsed"),
    [
        (0.0, 0.9, True),
        (0.0, 0.1, False),
        (0.5, 0.9, False),
        (0.0, None, True),
        (None, 0.9, True),
        (0.5, None, False),
        (None, None, False),
    ],
)
def test_answers_collapse_where_everything_that_is_logged_says_that_nothing_is_taught(
    gradient: float | None, alike: float | None, collapsed: bool
) -> None:
    """The completions shrink from 100 tokens to 4 at row 60 of 120; the gradient and the
    zero-variance groups have to agree.
    """
    late = np.arange(120) >= 60
    columns = {"length": np.where(late, 4.0, 100.0)}
    if gradient is not None:
        columns["gradient"] = np.where(late, gradient, 1.0)
    if alike is not None:
        columns["dead"] = np.where(late, alike, 0.2)
    finding = _shortened(Evidence(log(**columns)))
    assert (finding is not None) is collapsed
    if finding is not None:
        assert (finding.step, finding.status, finding.limit) == (61, Status.CRITICAL, 0.1)
        assert finding.value is not None
        assert finding.value.value == 0.04
        assert [sign.words for sign in finding.signs] == ["length 100 → 4"]


def test_answers_that_shrank_to_nothing_come_before_what_one_function_paid_for_them() -> None:
    """The format earns nothing from row 60 on; the answers are four tokens long, their groups
    alike, and the total goes on.
    """
    late = np.arange(120) >= 60
    columns = {
        "length": np.where(late, 4.0, 100.0),
        "gradient": np.where(late, 0.0, 1.0),
        "dead": np.where(late, 0.95, 0.2),
    }
    form, right = (
        np.where(late, 0.0, 0.9),
        0.6 + 0.02 * np.random.default_rng(0).standard_normal(120),
    )
    entropy = np.where(late, 0.004, 0.9)
    given = {
        "reward": 2 * right + 0.1 * form,
        "rewards/format/mean": form,
        "rewards/right/mean": right,
        "entropy": entropy,
    }
    judgement = judge(log(**given, **columns))
    says("diagnostics/collapse/3", answer(judgement, "collapse").message)
    assert (judgement.state, judgement.cause.names) == (
        State.FAILED,
        ("completions shrank in length, and the reward allows it",),
    )


@pytest.mark.parametrize(("height", "status"), [(0.2, Status.CRITICAL), (0.01, Status.NONE)])
def test_a_function_that_earned_next_to_nothing_has_no_height_to_lose(
    height: float, status: Status
) -> None:
    """Beside one that earns 0.6 a fiftieth of that counts, 0.012: a function that passed one
    answer in a hundred has not collapsed.
    """
    rows = np.arange(120)
    strict, right = np.where(rows < 60, height, 0.0), 0.6 - 0.0001 * (rows % 2)
    judgement = judge(
        log(
            **{"reward": strict + right, "rewards/strict/mean": strict, "rewards/right/mean": right}
        )
    )
    assert answer(judgement, "collapse").status is status


def test_a_held_out_reward_that_falls_while_training_rises_is_no_collapse() -> None:
    rng, rows = np.random.default_rng(0), np.arange(120)
    held = np.where(rows < 60, 0.6, 0.1) + 0.02 * rng.standard_normal(120)
    up = np.where(rows < 60, 0.5, 0.9) + 0.02 * rng.standard_normal(120)
    assert answer(judge(log(reward=up, held_out=held)), "collapse").status is Status.NONE
    says(
        "diagnostics/collapse/4",
        answer(judge(log(reward=0.5 + 0 * up, held_out=held)), "collapse").message,
    )
    # One that falls by and by had training leap as it began, and stand since it lost its half.
    slowly, leapt = (
        np.interp(rows, *ends)
        for ends in (([0, 50, 80], [0.2, 0.6, 0.1]), ([0, 50, 51], [0.2, 0.6, 0.9]))
    )
    assert answer(judge(log(reward=leapt, held_out=slowly)), "collapse").status is Status.NONE


def test_a_slope_is_told_from_a_step_by_few_rows_of_a_long_log() -> None:
    """All pairs of rows about the fall are tried: of ten thousand rows that would be sixty
    terabytes.
    """
    rows = np.arange(10_000)
    value = np.where(rows < 5_000, 0.8, 0.5) + 0.02 * np.random.default_rng(0).standard_normal(
        rows.size
    )
    assert not by_and_by(signal_of("reward", rows, value), 5_000)


# By hand, at the boundaries.


def tail(rows: int = 5, *, first: float = 0.9, before: float = 0.5, step: int = 0) -> Floats:
    """Forty rows, fifteen at .5, four, one more, and rows of nothing but 0; `known` of the first
    are 0 too.
    """
    value = np.r_[np.full(40, first), np.full(15, 0.5), np.full(4, before), 0.3, np.zeros(rows)]
    value[:step] = 0.0
    return np.asarray(value)


@each_case(
    ("value", "expected", "abrupt"),
    [
        (tail(5), True, True),
        (
            tail(4),
            False,
            True,
        ),
        # of 64 rows four of which nine in ten are bets won at 9 to 1 give 128 of the 200 asked for
        (tail(before=0.19), True, True),  # five rows, without the last, stand at .252
        (tail(before=0.18), True, False),  # and at .244, closer to 0 than to the level before
        (tail(first=1.6), True, True),  # from .5, nearly a third of the height that was reached
        (tail(first=1.7), True, False),
        (tail(30, step=14), True, True),
        (tail(30, step=15), False, True),  # it stood there in a quarter of the rows before
    ],
)
def test_a_reward_of_one_number_to_the_end(value: Floats, expected: bool, abrupt: bool) -> None:
    tail_of = constant_tail(signal_of("reward", np.arange(1, value.size + 1), value))
    assert (tail_of is not None) is expected
    if tail_of is not None:
        assert (tail_of.row, tail_of.value, tail_of.abrupt) == (60, 0.0, abrupt)
        assert tail_of.before == pytest.approx(0.5)


@pytest.mark.parametrize(("floor", "stopped"), [(0.2, True), (0.1, True), (0.09, False)])
def test_a_reward_that_stands_at_nothing_or_below_has_stopped(floor: float, stopped: bool) -> None:
    value = np.r_[0.8 + 0.01 * (-1.0) ** np.arange(60), np.full(6, 0.1)]
    fall = _stopped(signal_of("reward", np.arange(66), value), floor)
    assert (fall is not None) is stopped
    if fall is not None:
        assert (fall.row, fall.lasts, fall.lost.low) == (60, True, 1.0)
        assert (fall.height, fall.end) == pytest.approx((0.8, 0.1), abs=1e-3)


def test_a_height_is_the_lower_limit_of_the_best_mean_of_three_rows_before() -> None:
    value = np.array([0.0, 1.0, 2.0, 3.0, 1.0, 0.0])
    assert heights(value, 0.0).tolist() == [-np.inf] * 3 + [1.0, 2.0, 2.0]
    assert heights(value, 0.3)[3] == pytest.approx(1 - 1.96 * 0.3 / np.sqrt(3))
    assert heights(value[:3], 0.0).tolist() == [-np.inf] * 3


@each_case(
    ("rows", "scatter", "floor", "size"),
    [(24, 0.2, 0.0, 3), (23, 0.2, 0.0, None), (24, 0.12, 0.0, 1), (24, 0.2, 0.8, None)],
)
def test_rows_are_averaged_until_half_of_the_height_is_three_deviations(
    rows: int, scatter: float, floor: float, size: int | None
) -> None:
    """Of a level of 1 the height is 1 - 1.96·.2/sqrt(3) = .774: (6·.2/.774)² is 2.4 rows, and
    eight such stretches are the fewest.
    """
    assert (
        row_size(NoisyMetric("reward", np.arange(rows), np.ones(rows), scatter, scatter), floor)
        == size
    )


@pytest.mark.parametrize(("end", "fell"), [(0.56, True), (0.58, False)])
def test_a_fall_by_half_of_the_height_has_its_row_and_what_it_lost(end: float, fell: bool) -> None:
    """Above a floor of .2 the height is 1 - 1.96·.05/sqrt(3) = .943, and half of it .572; the
    error of twenty rows is .05/sqrt(20).
    """
    value = np.where(np.arange(50) < 30, 1.0, end)
    fall = find_fall(NoisyMetric("reward", np.arange(1, 51), value, 0.05, 0.05), 0.2)
    assert (fall is not None) is fell
    if fall is not None:
        height = 1 - 1.96 * 0.05 / np.sqrt(3)
        lost, off = (height - end) / (height - 0.2), 1.96 * 0.05 / np.sqrt(20) / (height - 0.2)
        assert (fall.row, fall.lasts) == (30, True)
        assert (fall.height, fall.end) == pytest.approx((height, end))
        assert (fall.lost.value, fall.lost.low, fall.lost.high) == pytest.approx(
            (lost, lost - off, lost + off)
        )


@pytest.mark.parametrize(
    ("least", "rows", "fell"), [(-0.01, 12, True), (-0.01, 11, False), (0.0, 11, True)]
)
def test_where_nothing_is_no_floor_a_fall_is_twice_as_clear(
    least: float, rows: int, fell: bool
) -> None:
    """From 1 - 1.96·.13/sqrt(3) to .4 are .453: twelve errors of eleven rows are .470, of twelve
    .450.
    """
    value = np.r_[least, np.full(29, 1.0), np.full(rows, 0.4)]
    assert (
        find_fall(NoisyMetric("reward", np.arange(value.size), value, 0.13, 0.13), 0.0) is not None
    ) is fell


def test_a_fall_that_was_made_good_ends_at_its_lowest_stretch() -> None:
    value = np.repeat([1.0, 0.2, 1.0], [20, 10, 20])
    fall = find_fall(NoisyMetric("reward", np.arange(50), value, 0.05, 0.05), 0.0)
    assert fall is not None
    assert (fall.row, fall.lasts) == (20, False)
    assert fall.end == pytest.approx(0.2)


@each_case(
    ("columns", "said"),
    [
        ({"entropy": (0.5, 0.5 * 1.1)}, Fact.BEHAVIOUR_UNCHANGED),  # .095, of twice .05
        ({"entropy": (0.5, 0.5 * 1.11)}, Fact.BEHAVIOUR_STEPPED),
        ({"entropy": (0.5, 0.5 * 1.29)}, Fact.BEHAVIOUR_STEPPED),
        (
            {"entropy": (0.5, 0.5 * 1.31)},
            Fact.BEHAVIOUR_CHANGED,
        ),  # 1.3 times .2 in logarithms is a factor of 1.297
        ({"entropy": (0.5, 0.5 / 1.31)}, Fact.BEHAVIOUR_CHANGED),
        (
            {"entropy": (0.09, 0.001)},
            Fact.BEHAVIOUR_UNCHANGED,
        ),  # nearly certain of every token before and after
        ({"length": (300.0, 300 * 1.31), "entropy": (0.5, 0.5)}, Fact.BEHAVIOUR_CHANGED),
        ({"truncated": (0.2, 0.45)}, Fact.BEHAVIOUR_STEPPED),
        ({"truncated": (0.2, 0.47)}, Fact.BEHAVIOUR_CHANGED),
        ({"dead": (0.0, 1.0)}, None),
    ],
)
def test_answers_changed_where_one_of_their_numbers_did(
    columns: dict[str, tuple[float, float]], said: Fact | None
) -> None:
    rows = {key: np.where(np.arange(120) < 60, *level) for key, level in columns.items()}
    assert behaviour_change(Evidence(log(**rows)), 61) == said


def test_answers_that_moved_as_much_before_have_not_changed() -> None:
    """A quarter up at row 30, and again at row 60: twice .223 in logarithms is no more than 1.3
    times what it did before.
    """
    twice = 0.5 * 1.25 ** (np.arange(120) // 30).clip(max=2)
    assert behaviour_change(Evidence(log(entropy=twice)), 61) == Fact.BEHAVIOUR_UNCHANGED
    assert behaviour_change(Evidence(log(entropy=twice**2)), 61) == Fact.BEHAVIOUR_UNCHANGED
    assert (
        behaviour_change(Evidence(log(entropy=np.where(np.arange(120) < 70, 0.5, 1.0))), 61)
        == Fact.BEHAVIOUR_UNCHANGED
    )  # ten rows later
    assert (
        behaviour_change(Evidence(log(entropy=np.where(np.arange(120) < 118, 0.5, 1.0))), 119)
        == Fact.BEHAVIOUR_CHANGED
    )
    assert (
        behaviour_change(Evidence(log(entropy=np.where(np.arange(120) < 119, 0.5, 1.0))), 120)
        is None
    )  # one row since
    assert (
        behaviour_change(Evidence(log(entropy=np.where(np.arange(120) < 9, 0.5, 1.0))), 10) is None
    )  # ten rows before are the fewest


@pytest.mark.parametrize(
    ("before", "said"), [(0.02, Fact.BEHAVIOUR_CHANGED), (0.6, Fact.BEHAVIOUR_UNCHANGED)]
)
def test_noise_since_a_change_does_not_hide_it(before: float, said: Fact) -> None:
    """Entropy rises to 1.8 times and scatters by as much; where it did before, that is no move."""
    row = np.arange(120)
    noise = np.where(row < 30, before, 0.6) * np.random.default_rng(3).standard_normal(120)
    entropy = np.where(row < 30, 0.5, 0.9) * np.exp(noise)
    assert behaviour_change(Evidence(log(entropy=entropy)), 31) == said


@pytest.mark.parametrize(
    ("factor", "late", "step", "kept"),
    [(1.56, 0, 61, False), (1.56, 4, 65, True), (1.1, 0, 0, True)],
)
def test_what_is_among_the_signs_is_not_said_to_have_gone_on(
    factor: float, late: int, step: int, kept: bool
) -> None:
    """Entropy rises by half at row 30 and again as the reward falls: no more than before, and a
    sign of the fall. Four rows later it is a consequence.
    """
    row, rng = np.arange(120), np.random.default_rng(4)
    reward = np.where(row < 60, 0.8, 0.02) + 0.01 * rng.standard_normal(120)
    entropy = np.where(row < 30, 0.5, 0.5 * factor) * np.where(row < 60 + late, 1.0, factor)
    judgement = judge(log(reward=reward, entropy=entropy))
    steps = [sign.step for sign in judgement.signs if sign.signal == "entropy"]
    assert steps == ([step] if step else [])
    facts = {fact for finding in judgement.checks for fact in finding.facts}
    assert (Fact.BEHAVIOUR_UNCHANGED in facts) is kept


@pytest.mark.parametrize(
    ("after", "said"), [(0.56, Fact.HELD_OUT_STAYED), (0.55, None), (0.54, Fact.HELD_OUT_DROPPED)]
)
def test_a_held_out_reward_stays_where_it_lost_less_than_half_of_what_training_did(
    after: float, said: Fact | None
) -> None:
    """Four rows before at .6 and four since: an error of .04·sqrt(2/4), 1.96 of them .055;
    training lost .2.
    """
    evidence = Evidence(log(reward=np.ones(40)))
    value = np.where(np.arange(40) < 20, 0.6, after)
    vars(evidence)["held_out"] = NoisyMetric("eval", np.arange(1, 41), value, 0.04, 0.04)
    assert held_out_at(evidence, 21, -0.2) is said
    assert held_out_at(evidence, 2, -0.2) is held_out_at(evidence, 40, -0.2) is None
    # What is down already can drop no further.
    vars(evidence)["held_out"] = NoisyMetric(
        "eval", np.arange(1, 41), np.full(40, 0.09), 0.001, 0.001
    )
    assert (held_out_at(evidence, 21, -0.2), held_out_at(evidence, 21, -0.16)) == (
        None,
        Fact.HELD_OUT_STAYED,
    )


def test_what_to_go_back_to_has_its_step() -> None:
    rng, row = np.random.default_rng(3), np.arange(ROWS)
    columns = {
        "reward": np.interp(row, [0, 60, 99, 150], [0.2, 0.7, 0.7, 0.1]),
        "length": np.interp(row, [0, 120, 180], [200, 200, 320]),
        "entropy": np.interp(row, [0, 199], [0.6, 0.4]),
    }
    judgement = judge(
        log(**{key: v * (1 + 0.01 * rng.standard_normal(ROWS)) for key, v in columns.items()})
    )
    assert judgement.first_sign is not None
    assert not judgement.cause.names
    before = judgement.first_sign.step - 1
    says("diagnostics/collapse/9", judgement.do, step=before)


@pytest.mark.parametrize("dead", [30, 90, 200])
def test_the_dead_end_of_a_long_log_has_not_recovered(dead: int) -> None:
    """Five thousand rows, of which the last few are at a thirtieth: less than a twentieth."""
    rng = np.random.default_rng(dead)
    reward = 0.72 - 0.3 * np.exp(-np.arange(5000) / 800) + rng.normal(0, 0.03, 5000)
    reward[-dead:] = 0.02 + rng.uniform(0, 0.01, dead)
    judgement = judge(RunRecord("run", steps_table(range(5000), {"reward": reward})))
    assert judgement.state is State.FAILED
    assert f"collapsed at step {5000 - dead:,}" in judgement.headline
