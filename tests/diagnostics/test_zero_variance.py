"""Zero-variance groups: starved, fewer than before, all wrong, and groups that are too small for
their prompts.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.cases import each_case
from tests.golden.sentences import says

from groupwise.diagnostics.judge import judge
from groupwise.diagnostics.judgement import Certainty, Fact, Finding, Status
from groupwise.diagnostics.signals import Evidence, NoisyMetric
from groupwise.diagnostics.zero_variance import (
    _at_an_end,
    _at_its_height,
    _earlier_rate,
    _equal_share,
    _fewer,
    _pooled,
    _rises_at,
    _room_of_mean,
    _rose_to,
    chance,
    zero_variance_groups,
)
from groupwise.intervals import Interval
from groupwise.record.run import Meaning, RunConfig, RunRecord, rollouts_table, steps_table

NAMES = {
    "reward": "reward",
    "dead": "dead_group_share",
    "spread": "reward_std_within_group",
    "gradient": "gradient_norm",
    "most": "advantage_max",
    "least": "advantage_min",
}
N = 100
ROW = np.arange(N)
NOISE = 0.01 * np.random.default_rng(0).standard_normal(N)


def evidence(size: int | None = None, prompts: int | None = 32, **columns: Any) -> Evidence:
    given = {key: np.asarray(value, dtype=float) for key, value in columns.items()}
    meanings = tuple(Meaning(key, NAMES[key], "test") for key in given)
    config = {
        key: value
        for key, value in (("group_size", size), ("prompts_per_step", prompts))
        if value is not None
    }
    table = steps_table(range(1, len(next(iter(given.values()))) + 1), given)
    return Evidence(
        RunRecord(
            "run", table, config=RunConfig().with_settings(config, "--set"), meanings=meanings
        )
    )


def finding_of(size: int | None = None, prompts: int | None = 32, **columns: Any) -> Finding:
    return zero_variance_groups(evidence(size, prompts, **columns))


@each_case(
    ("size", "dead", "status", "message", "fact"),
    [
        (2, 0.45, Status.NONE, "45 % of groups have zero variance from step 76 on.", None),
        (
            2,
            0.55,
            Status.INFO,
            "55 % of all groups have zero variance at G = 2; at G = 8 about 5 % would",
            Fact.UPDATE_DILUTED,
        ),
        (
            2,
            0.75,
            Status.WARNING,
            "75 % of all groups have zero variance at G = 2; at G = 8 about 39 % would",
            Fact.SMALL_GROUP_LIKELY,
        ),
        (
            4,
            0.55,
            Status.INFO,
            "55 % of all groups have zero variance at G = 4; at G = 16 about 28 % would",
            Fact.UPDATE_DILUTED,
        ),
        (8, 0.55, Status.NONE, "55 % of groups have zero variance from step 76 on.", None),
    ],
)
def test_a_group_that_is_too_small(
    size: int, dead: float, status: Status, message: str, fact: Fact | None
) -> None:
    finding = finding_of(size, reward=0.4 + NOISE, dead=np.full(N, dead))
    assert (finding.status, finding.message) == (status, message)
    if fact:
        assert finding.facts == (fact,)
        assert finding.limit == 0.5


@each_case(
    ("size", "right", "cause"),
    [
        # most groups of 4 are all wrong below a pass rate of .16, or all right above .84
        (4, 0.12, "small_group"),
        (4, 0.2, "diluted"),
        (4, 0.4, "diluted"),
        (4, 0.7, "diluted"),
        (2, 0.25, "small_group"),
        (2, 0.35, "diluted"),
    ],
)
def test_a_group_is_too_small_where_its_pass_rate_needs_a_larger_one(
    size: int, right: float, cause: str
) -> None:
    """Else prompts that are always right or wrong make groups alike: others are to be drawn."""
    judgement = judge(
        evidence(size, reward=right + NOISE, dead=np.full(N, 0.62)).record, ended=True
    )
    assert (judgement.cause.certainty, judgement.cause.keys) == (Certainty.POSSIBLE, (cause,))
    assert ("group_size" in [action.kind for action in judgement.actions]) is (
        cause == "small_group"
    )


@pytest.mark.parametrize(
    ("size", "status"), [(2, Status.WARNING), (3, Status.WARNING), (4, Status.NONE)]
)
def test_groups_of_two_or_three_are_too_small_where_a_little_fewer_gain(
    size: int, status: Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of groups of four a fifth more must teach at four times the size, of smaller ones 15 %."""
    share = SimpleNamespace(
        gained=Interval(0.19, 0.1, 0.3), group_size=4 * size, share=Interval(0.5, 0.4, 0.6)
    )
    outlook = SimpleNamespace(now=Interval(0.75, 0.7, 0.8), shares=[share], group_size=size)
    monkeypatch.setattr(
        "groupwise.diagnostics.zero_variance.zero_variance_outlook", lambda _: outlook
    )
    assert finding_of(size, reward=0.4 + NOISE, dead=np.full(N, 0.75)).status is status


def test_near_the_top_no_group_is_too_small() -> None:
    finding = finding_of(2, reward=0.9 + NOISE, dead=np.full(N, 0.75))
    assert (finding.status, finding.facts) == (
        Status.NONE,
        (),
    )


def test_a_group_of_unknown_size_is_asked_for() -> None:
    finding = finding_of(None, None, reward=0.4 + NOISE, dead=np.full(N, 0.75))
    assert (finding.status, finding.log) == (Status.INFO, "the group size (--set group_size=G)")
    says("diagnostics/zero_variance/1", finding.message)
    assert finding_of(None, None, reward=0.4 + NOISE, dead=np.full(N, 0.69)).status is Status.NONE
    assert finding_of(None, None, reward=0.2 + NOISE, dead=np.full(N, 0.75)).status is Status.INFO
    assert finding_of(None, None, reward=0.93 + NOISE, dead=np.full(N, 0.75)).status is Status.NONE
    assert (
        finding_of(None, None, reward=5 + NOISE, dead=np.full(N, 0.75)).status is Status.NONE
    )  # of which nobody knows whether it is middling


@pytest.mark.parametrize(("dead", "status"), [(0.75, Status.INFO), (0.85, Status.WARNING)])
def test_fewer_groups_teach_at_the_same_mean(dead: float, status: Status) -> None:
    finding = finding_of(4, reward=0.5 + NOISE, dead=np.where(ROW < 60, 0.3, dead))
    assert (finding.status, finding.step) == (status, 61)
    says("diagnostics/zero_variance/8", finding.message, dead=f"{100 * dead:.0f}")
    assert finding.limit == pytest.approx(0.3)
    assert finding.facts == (*([Fact.GROUPS_ALIKE] if status is Status.WARNING else []),)


@pytest.mark.parametrize(("before", "expected"), [(4, True), (3, False)])
def test_four_rows_tell_how_many_groups_taught_before(before: int, expected: bool) -> None:
    message = finding_of(
        4, reward=0.5 + NOISE[:16], dead=np.where(ROW[:16] < before, 0.3, 0.75)
    ).message
    assert ("at a similar mean" in message) is expected


@pytest.mark.parametrize(("dead", "status"), [(0.75, Status.NONE), (0.85, Status.INFO)])
def test_another_reward_has_other_groups(dead: float, status: Status) -> None:
    """Of which it is worth knowing that fewer than one in five teaches."""
    other = finding_of(
        4, reward=np.where(ROW < 60, 0.5, 0.7) + NOISE, dead=np.where(ROW < 60, 0.3, dead)
    )
    assert (other.status, other.limit, other.facts) == (status, 0.8, ())
    assert "at a similar mean" not in other.message
    still = finding_of(
        4, reward=0.5 + NOISE, dead=np.where(ROW < 60, 0.3, 0.6)
    )  # more than half of them still do
    assert "at a similar mean" not in still.message


def test_hardly_any_group_teaches() -> None:
    finding = finding_of(
        4,
        reward=0.5 + NOISE,
        dead=np.where(ROW < 60, 0.3, 0.97),
        gradient=np.where(ROW < 60, 1.0, 0.05),
    )
    assert (finding.status, finding.step) == (Status.CRITICAL, 61)
    says("diagnostics/zero_variance/2", finding.message)
    assert finding.facts == (Fact.GROUPS_ALIKE, Fact.GROUPS_ALIKE_AT_ONCE)
    # At an even chance 1 - 2/2^4 of the groups of four would teach.
    assert finding.limit == pytest.approx(1 - 0.875, abs=1e-3)
    start = finding_of(4, reward=0.5 + NOISE, dead=np.full(N, 0.97), gradient=np.full(N, 1.0))
    assert start.step is None
    says("diagnostics/zero_variance/6", start.message)
    climbs = finding_of(
        4, reward=0.5 + NOISE, dead=np.clip(0.3 + 0.67 * ROW / 60, 0, 0.97) + 0.1 * NOISE
    )
    assert (climbs.status, climbs.facts) == (
        Status.CRITICAL,
        (Fact.GROUPS_ALIKE,),
    )


def test_groups_that_become_alike_at_once_as_the_reward_rises_have_not_broken() -> None:
    """A reward of unknown range leaps to its height at row 60, and its groups with it."""
    finding = finding_of(
        4, reward=np.where(ROW < 60, 4.0, 5.0) + NOISE, dead=np.where(ROW < 60, 0.3, 0.97)
    )
    assert (finding.status, finding.facts) == (
        Status.INFO,
        (),
    )


def test_groups_of_a_reward_that_came_to_its_largest_value_fast_have_not_broken() -> None:
    """Four groups a row, so that five rows count as one: the reward has gained all there is a
    few rows before its groups are alike.
    """
    dead, reward = (
        np.repeat([0.05, 0.45, 0.45, 0.7, 0.8, 0.97], [5, 5, 5, 5, 5, 75]),
        np.minimum(0.5 + 0.05 * ROW, 1.1),
    )
    finding = finding_of(8, 4, reward=reward - 0.03 * (NOISE < 0), dead=dead)
    assert (finding.status, finding.facts) == (
        Status.INFO,
        (),
    )
    assert finding_of(8, 4, reward=reward + NOISE, dead=dead).facts == (
        Fact.GROUPS_ALIKE,
        Fact.GROUPS_ALIKE_AT_ONCE,
    )


def test_a_reward_of_unknown_range_that_arrives_takes_its_groups_along() -> None:
    arrives, dead = np.minimum(3 + ROW / 30, 5.0), np.clip(0.3 + 0.67 * ROW / 60, 0, 0.97)
    finding = finding_of(4, reward=arrives + NOISE, dead=dead)
    assert (finding.status, finding.facts) == (
        Status.INFO,
        (),
    )
    assert finding.message.endswith(
        "; the reward stays at its best level, which may be its maximum"
    )
    # A jump at a standing reward is another thing.
    assert (
        finding_of(4, reward=5 + NOISE, dead=np.where(ROW < 60, 0.3, 0.97)).status
        is Status.CRITICAL
    )


def test_groups_that_break_at_once_while_a_reward_goes_on_at_its_pace_have_broken() -> None:
    """Within as few rows as the groups took the reward hardly moved."""
    finding = finding_of(4, reward=3 + ROW / 60 + 5 * NOISE, dead=np.where(ROW < 60, 0.3, 0.97))
    assert finding.status is Status.CRITICAL
    assert Fact.GROUPS_ALIKE_AT_ONCE in finding.facts


def test_a_reward_of_tenths_near_a_tenth_leaves_its_groups_no_room() -> None:
    """It goes from 0.04 to 0.098, which may be its top, and its groups with it; at 0.075 more of
    them could teach.
    """
    dead = np.where(ROW < 60, 0.5, 0.95)
    for last, status in ((0.098, Status.INFO), (0.075, Status.WARNING)):
        assert (
            finding_of(
                4, reward=last - (last - 0.04) * np.exp(-ROW / 20) + 0.01 * NOISE, dead=dead
            ).status
            is status
        )


def test_groups_that_broke_before_they_were_found_starved_are_held_against_the_rows_before() -> (
    None
):
    """From row 60 on three in four are alike, from row 66 on nearly all; the rows just before
    that are not what was usual.
    """
    finding = finding_of(4, reward=4.0 + 5 * NOISE, dead=np.repeat([0.3, 0.85, 0.97], [60, 6, 34]))
    assert (finding.status, finding.facts) == (
        Status.CRITICAL,
        (Fact.GROUPS_ALIKE, Fact.GROUPS_ALIKE_AT_ONCE),
    )


SILENT = ROW % 8 != 3


@pytest.mark.parametrize("spread", [True, False], ids=["rewards", "advantages"])
def test_rows_without_a_difference_give_no_gradient(spread: bool) -> None:
    """They are a lower bound of the groups with zero variance, and a fault where all have one
    reward that is no top; each row is a stretch of its own, however few groups it has.
    """
    given = np.where(SILENT, 0.0, 0.1)
    columns = {"spread": given} if spread else {"most": given, "least": -given}
    stuck = finding_of(2, 1, reward=np.where(SILENT, 0.0, -0.1), **columns)
    assert (stuck.status, stuck.facts) == (Status.WARNING, (Fact.ONE_ANSWER,))
    assert stuck.value == Interval(0.87, 0.87, 0.87)
    says("diagnostics/zero_variance/9", stuck.message)
    for reward in (np.where(SILENT, 1.0, 0.9), np.where(SILENT, NOISE - 1, -0.1)):
        other = finding_of(2, 1, reward=reward, **columns)
        assert (other.status, other.message, other.facts) == (Status.INFO, stuck.message, ())


@pytest.mark.parametrize(
    ("least", "rounding", "silent"),
    [(-0.1, 0.0, SILENT), (0.0, 0.05, SILENT), (0.0, 0.0, ROW < 10)],
    ids=["one differs", "rounded", "few"],
)
def test_rows_whose_rewards_may_differ_are_not_counted_nor_a_few(
    least: float, rounding: float, silent: Any
) -> None:
    given = {"most": np.where(silent, 0.0, 0.1), "least": np.full(N, least)}
    some = evidence(2, 1, reward=np.where(SILENT, 0.0, -0.1), **given)
    meanings = tuple(replace(meaning, resolution=rounding) for meaning in some.record.meanings)
    rounded = Evidence(replace(some.record, meanings=meanings))
    assert zero_variance_groups(rounded).status is Status.NOT_LOGGED


def test_one_answer_explains_a_total_that_leaves_the_task_behind() -> None:
    """Rewards that differ do not."""
    reward = np.where(ROW < 3, -0.1, np.where(SILENT, 0.0, -0.02))
    columns = {"reward": reward, "reward/form": reward + 1, "reward/task": np.zeros(N)}
    states = []
    for spread in (np.where(reward == 0, 0.0, 0.02), np.full(N, 0.02)):
        table = steps_table(range(1, N + 1), columns | {"spread": spread})
        meanings = [Meaning(name, name, "test") for name in columns]
        meanings.append(Meaning("spread", NAMES["spread"], "test"))
        judged = judge(RunRecord("run", table, meanings=tuple(meanings)))
        (groups,) = (finding for finding in judged.checks if finding.check == "zero_variance")
        states.append((judged.cause.words.partition(" (")[0], groups.status))
    assert states[0] == ("likely: zero-variance groups", Status.WARNING)
    assert states[1][1] is Status.NOT_LOGGED
    assert states[1][0].endswith("reward hacking")


def test_groups_that_are_all_wrong_from_the_first_row() -> None:
    finding = finding_of(4, reward=0.005 + 0.1 * np.abs(NOISE), dead=np.full(N, 0.98))
    assert (finding.status, finding.step) == (Status.CRITICAL, None)
    says("diagnostics/zero_variance/3", finding.message)
    assert finding.facts == (Fact.GROUPS_ALL_WRONG,)


def test_a_reward_that_stands_at_a_tenth_from_the_first_row_may_be_all_right() -> None:
    """Nothing was ever above a tenth, which may be the top."""
    finding = finding_of(4, reward=0.0985 + 0.001 * NOISE, dead=np.full(N, 0.97))
    assert finding.status in (Status.NONE, Status.INFO)


def test_a_spread_of_exactly_zero_says_it_of_every_group() -> None:
    says(
        "diagnostics/zero_variance/4", finding_of(4, reward=0.5 + NOISE, spread=np.zeros(N)).message
    )
    missing = finding_of(4, reward=0.5 + NOISE, spread=np.full(N, 0.1))
    assert missing.status is Status.NOT_LOGGED
    assert "frac_reward_zero_std" in missing.log


def test_rows_of_few_groups_are_pooled_until_twenty_stand_for_one() -> None:
    """Of one group a row forty rows are two stretches, where eight are the fewest."""
    alike = (np.arange(40) % 4 > 0).astype(float)
    few = finding_of(4, 1, reward=0.5 + NOISE[:40], dead=alike)
    assert few.status == Status.NOT_LOGGED
    says("diagnostics/zero_variance/7", few.message)
    assert finding_of(4, 20, reward=0.5 + NOISE[:40], dead=alike).status is not Status.NOT_LOGGED
    guessed = finding_of(
        4, None, reward=0.5 + NOISE[:40], dead=alike
    )  # shares of 0 and 1 alone: rows of one group
    assert guessed.message == few.message


# By hand, at the boundaries.


def with_reward(
    value: Any, deviation: float = 0.1, bounds: tuple[float, float] | None = None, **columns: Any
) -> Evidence:
    """A run whose reward has a noise and a range that are given."""
    values = np.asarray(value, dtype=float)
    log_evidence = evidence(reward=values, **columns)
    vars(log_evidence)["reward"] = NoisyMetric(
        "reward", np.arange(1, values.size + 1), values, deviation, deviation, bounds
    )
    return log_evidence


@pytest.mark.parametrize(("errors", "rises"), [(2.01, True), (1.99, False)])
def test_a_reward_rises_as_its_groups_become_alike_by_two_errors(
    errors: float, rises: bool
) -> None:
    """From the six rows before step 21 to the six since; what was earlier or came later stands
    elsewhere.
    """
    value = np.repeat([5.0, 0.0, errors * 0.1 * np.sqrt(2 / 6), -5.0], [14, 6, 6, 14])
    assert _rises_at(with_reward(value), 21, 6) is rises


@pytest.mark.parametrize(("errors", "rose"), [(3.01, True), (2.99, False)])
def test_a_reward_rose_to_one_that_nearly_all_earn_by_three_errors(
    errors: float, rose: bool
) -> None:
    """From the first four rows of forty to the twenty since row 20; the groups are alike."""
    gain = errors * 0.1 * np.sqrt(1 / 4 + 1 / 20)
    given = with_reward(np.repeat([1.0, 9.0, 1.0 + gain], [4, 16, 20]), dead=np.full(40, 0.9))
    assert given.reward is not None
    assert _rose_to(given, given.reward, 20) is rose
    other = with_reward(np.repeat([1.0, 9.0, 1.0 + gain], [4, 16, 20]), dead=np.full(40, 0.7))
    assert not _rose_to(other, given.reward, 20)


@pytest.mark.parametrize(("late", "at_height"), [(2.71, True), (2.69, False)])
def test_a_reward_of_unknown_range_stands_at_its_height_within_a_tenth_and_two_errors(
    late: float, at_height: bool
) -> None:
    """From 1 to 3 in means of four rows of forty: a tenth of that, and two errors of .1/sqrt(4),
    are .3 below.
    """
    value = np.repeat([1.0, 3.0, late], [10, 10, 20])
    assert _at_its_height(with_reward(value), 21) is at_height
    assert not _at_its_height(with_reward(value, bounds=(0.0, 4.0)), 21)
    assert not _at_its_height(with_reward(value[16:23]), 1)  # seven rows


def test_the_earlier_rate_is_that_of_the_first_quarter() -> None:
    assert _earlier_rate(np.repeat([True, False], [2, 38])) == 0.2
    assert _earlier_rate(np.repeat([True, False], [2, 10])) == 0.5  # four rows at least
    assert _earlier_rate(np.ones(40, bool)) == 0.0


@each_case(
    ("prompts", "share", "rows"),
    [
        (20, 0.5, 40),
        (19, 0.5, 20),
        (10, 0.5, 20),
        (1, 0.5, 2),
        (None, 0.5, 4),
        (None, 0.25, 8),
        (None, 0.3, 20),
        (None, 0.123, 40),
    ],
)
def test_rows_are_pooled_until_twenty_groups_stand_for_one(
    prompts: int | None, share: float, rows: int
) -> None:
    """Where the prompts of a step are not known shares of halves are those of two groups, of
    quarters of four, of tenths of ten.
    """
    given = evidence(
        4,
        prompts,
        reward=np.full(40, 0.5) + NOISE[:40],
        dead=np.where(np.arange(40) % 2, share, 0.0),
    )
    equal = _equal_share(given)
    assert equal is not None
    assert len(_pooled(given, equal)) == rows


def test_the_room_that_a_mean_leaves_is_that_of_five_rows_about_it() -> None:
    """Of groups of four and a mean m it is 1 - m^4 - (1 - m)^4; of unknown size they may be of
    two, and of unknown range there is room.
    """
    value = np.r_[np.full(10, 0.5), 1.0, np.full(9, 0.5)]
    for size, size_read in ((4, 4), (None, 2)):
        given = evidence(size, reward=value, dead=np.full(20, 0.3))
        equal = _equal_share(given)
        assert equal is not None
        mean = np.r_[np.full(8, 0.5), np.full(5, 0.6), np.full(7, 0.5)]
        assert _room_of_mean(given, equal) == pytest.approx(
            1 - mean**size_read - (1 - mean) ** size_read
        )
        assert _room_of_mean(with_reward(value), equal).tolist() == [1.0] * 20
        # Of grades of -1 and 1 the share of right answers is asked.
        graded = with_reward(2 * value - 1, bounds=(-1.0, 1.0), size=size)
        assert _room_of_mean(graded, equal) == pytest.approx(
            1 - mean**size_read - (1 - mean) ** size_read
        )


@pytest.mark.parametrize(
    ("level", "dead", "wrong"), [(0.009, 0.91, True), (0.009, 0.89, False), (0.101, 0.91, False)]
)
def test_groups_are_all_wrong_where_nine_in_ten_are_and_hardly_anything_is_earned(
    level: float, dead: float, wrong: bool
) -> None:
    finding = finding_of(2, reward=np.full(N, level) + 1e-5 * (-1.0) ** ROW, dead=np.full(N, dead))
    assert (Fact.GROUPS_ALL_WRONG in finding.facts) is wrong


@pytest.mark.parametrize(
    ("groups", "share"),
    [(((1, 1), (0, 0), (0.5, 0.5), (0, 1)), 12 / 56), (((1, 1), (0, 0), (1, 1), (0, 1)), 0.0)],
)
def test_chance_leaves_groups_at_an_end_of_graded_rewards(groups: Any, share: float) -> None:
    """Of 1 1 1 0 0 0 .5 .5 twelve of 56 ordered pairs are alike at an end; of right and wrong
    the mean says it.
    """
    rows = [
        {"step": step, "prompt_id": prompt, "reward": float(reward)}
        for step in range(1, 9)
        for prompt, group in enumerate(groups)
        for reward in group
    ]
    given = Evidence(
        RunRecord("run", steps_table(range(1, 9), {"reward": [0.5] * 8}), rollouts_table(rows))
    )
    equal = _equal_share(given)
    assert equal is not None
    assert _at_an_end(given, equal).tolist() == pytest.approx([share] * 8)


# Rewards of completions, dealt at random.


@pytest.mark.parametrize(
    "pool", [[0.0, 0.5, 0.5, 1.0, 1.0, 1.0], [0.1, 0.1, 0.1, 0.2], [1.0] * 5, [0.1, 0.2, 0.3]]
)
@pytest.mark.parametrize("size", [2, 3])
def test_chance_of_a_dead_group_is_that_of_all_ways_to_deal(pool: list[float], size: int) -> None:
    ways = list(combinations(pool, size))
    expected = sum(len(set(way)) == 1 for way in ways) / len(ways)
    value, k = np.unique(pool, return_counts=True)
    counts = pl.DataFrame({"pool": [1] * len(value), "outcome": value, "k": k})
    counts = counts.with_columns(m=pl.lit(len(pool)))
    values = chance(pl.DataFrame({"pool": [1], "size": [size]}), counts)["chance"].to_list()
    assert values == pytest.approx([expected], abs=1e-12)


def of_rollouts(rows: list[dict[str, Any]], mean: Any) -> tuple[Status, int | None]:
    run = RunRecord(
        "run",
        steps_table(range(1, 61), {"reward": mean}),
        rollouts_table(rows),
        meanings=(Meaning("reward", "reward", "test"),),
    )
    finding = zero_variance_groups(Evidence(run))
    return finding.status, finding.step


@pytest.mark.slow
def test_graded_rewards_at_the_top_leave_no_room_and_in_the_middle_they_do() -> None:
    rng = np.random.default_rng(0)
    top = [
        [2.0 if rng.random() < 0.997 else 0.3 * float(rng.random()) for _ in range(8)]
        for _ in range(16 * 60)
    ]
    rows = [
        {"step": 1 + i // 16, "prompt_id": i % 16, "reward": reward}
        for i, group in enumerate(top)
        for reward in group
    ]
    mean = np.array(top).reshape(60, -1).mean(axis=1)
    assert of_rollouts(rows, mean) == (Status.INFO, None)
    # All completions of a step have one reward from step 31 on, at no end of the range: chance
    # leaves them alike, and nothing is learnt.
    rows = []
    for step in range(1, 61):
        own = 0.2 + 1.6 * float(rng.random())
        for prompt in range(16):
            rows += [
                {
                    "step": step,
                    "prompt_id": prompt,
                    "reward": own if step > 30 else 2 * float(rng.random()),
                }
                for _ in range(8)
            ]
    table = rollouts_table(rows)
    assert table is not None
    means = table.group_by("step").agg(pl.col("reward").mean()).sort("step")["reward"].to_numpy()
    assert of_rollouts(rows, means) == (Status.CRITICAL, 31)


@each_case(
    ("late", "mean", "facts"),
    [
        (0.66, 0.6, (Fact.GROUPS_ALIKE_TREBLED,)),
        (0.48, 0.6, ()),  # below a half
        (0.66, 0.95, ()),  # near the top groups are alike
    ],
)
def test_three_times_as_many_groups_without_variance_are_noted(
    late: float, mean: float, facts: tuple[Fact, ...]
) -> None:
    """Beside a reward that rises, over which the share goes from .16 to three or four times."""
    share = np.interp(np.arange(100), [0, 9, 90, 99], [0.16, 0.16, late, late])
    reward = np.linspace(mean - 0.2, mean, 100) + 0.01 * (-1.0) ** np.arange(100)
    columns = {"reward": reward, "dead": share}
    meanings = tuple(Meaning(key, NAMES[key], "test") for key in columns)
    record = RunRecord("run", steps_table(range(1, 101), columns), meanings=meanings)
    finding = zero_variance_groups(Evidence(record))
    assert (finding.facts, finding.status is Status.INFO) == (facts, bool(facts))
    if facts:
        says("diagnostics/zero_variance/5", finding.message)


@each_case(
    ("equal", "status"),
    [(np.where(ROW % 5, 0.0, 1.0), Status.INFO), (np.ones(N), Status.CRITICAL)],
)
def test_whole_batches_with_one_reward_are_the_fewest_groups(equal: Any, status: Status) -> None:
    """TRL's column counts batches where rewards are scaled by the batch: it is read as the least
    that groups can have.
    """
    column = "frac_reward_zero_std"
    meaning = Meaning(column, "dead_batch_share", "of the batch", unavailable=True)
    table = steps_table(range(N), {"reward": 0.4 + NOISE, column: equal})
    meanings = (Meaning("reward", "reward", "test"), meaning)
    config = RunConfig().with_settings({"prompts_per_step": 32}, "--set")
    finding = zero_variance_groups(
        Evidence(RunRecord("run", table, config=config, meanings=meanings))
    )
    assert finding.status is status
    assert finding.value is not None
    assert np.isclose(finding.value.value, equal.mean())
    if status is Status.INFO:
        assert finding.message.startswith("20 % of the batches have zero variance in every group ")


def test_fewer_groups_teach_than_in_the_first_quarter_and_not_its_first_rows() -> None:
    """The first rows, as those of a warm-up, teach less than the rest of the quarter."""
    dead = np.where(N // 2 > ROW, 0.2, 0.8)
    dead[: N // 16] = 0.8
    run = evidence(8, reward=0.5 + NOISE, dead=dead)
    equal = run.quantity("dead_group_share")
    assert equal is not None
    finding = _fewer(run, equal, 1 - dead, np.ones(N))
    assert finding is not None
    assert finding.step == N // 2 + 1
