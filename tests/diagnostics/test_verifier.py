"""The verifier: nothing but 0, one number at once, logged failures, a drop, and who fails: whole
prompts or answers here and there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.cases import each_case
from tests.golden.sentences import says

from groupwise.diagnostics.causes import advice_for
from groupwise.diagnostics.falls import Fall, _for_slope, decline_of, fall_of
from groupwise.diagnostics.judge import judged as judge
from groupwise.diagnostics.judgement import (
    Cause,
    Certainty,
    Fact,
    Finding,
    State,
    Status,
    exactly,
)
from groupwise.diagnostics.signals import Evidence, NoisyMetric
from groupwise.diagnostics.verifier import _explained, _fallen, broken_verifier, who_fails
from groupwise.intervals import Interval
from groupwise.record.run import Meaning, RunConfig, RunRecord, rollouts_table, steps_table

NAMES = {"reward": "reward", "entropy": "entropy", "held_out": "eval/reward"}
N = 100
ROW = np.arange(N)


def evidence(rows: Any = None, *, ended: bool = True, **columns: Any) -> Evidence:
    given = {key: np.asarray(value, dtype=float) for key, value in columns.items()}
    meanings = tuple(Meaning(key, NAMES[key], "test") for key in given if key in NAMES)
    table = steps_table(range(1, len(next(iter(given.values()))) + 1), given)
    return Evidence(
        RunRecord("run", table, rollouts_table(rows or []), meanings=meanings), ended=ended
    )


def finding_of(rows: Any = None, *, ended: bool = True, **columns: Any) -> Finding:
    return broken_verifier(evidence(rows, ended=ended, **columns))


def noise(by: float = 0.01, seed: int = 0, n: int = N) -> NDArray[np.float64]:
    return np.asarray(by * np.random.default_rng(seed).standard_normal(n))


# Whole batches that were not graded.


def test_single_rows_of_exactly_0_between_rows_that_earn_are_batches_that_were_not_graded() -> None:
    earned = np.where(np.isin(ROW, [20, 21, 47, 60]), 0.0, 0.5 + 0.002 * ROW + noise(0.02))
    finding = finding_of(reward=earned)
    assert (finding.status, finding.step, finding.facts) == (Status.WARNING, None, (Fact.OUTAGES,))
    says("diagnostics/verifier/1", finding.message)
    assert finding.value == exactly(0.04)
    cause = judge(evidence(reward=earned, entropy=1 + noise())).cause
    assert (cause.certainty, cause.names) == (Certainty.POSSIBLE, ("a broken verifier",))
    assert (
        "in 5 rows of 100" in finding_of(reward=np.where(ROW == 99, 0.0, earned)).message
    )  # the last row, too
    assert finding_of(reward=np.where(earned == 0, 0.0, earned + noise(0.08, 1))).facts == (
        Fact.OUTAGES,
    )


@each_case(
    "value",
    [
        np.where(np.isin(ROW, [20, 47]), 0.0, 0.5 + noise(0.02)),  # two are an accident
        np.where((ROW >= 20) & (ROW < 28), 0.0, 0.5 + noise(0.02)),  # eight rows on end are a dip
        np.where(
            ROW % 9 == 4, 0.0, np.where(ROW % 2, 0.5, 0.25)
        ),  # a batch of four knows five numbers
        np.where(
            ROW % 25 == 4, 0.0, np.where(ROW % 25 == 8, 0.2, 0.5) + noise(0.02)
        ),  # some earn little
        np.where(
            ROW % 25 == 4, 0.0, 0.5 + noise(0.12)
        ),  # the scatter of a row reaches down to there
        np.where(ROW % 25 == 4, 0.0, -0.5 + noise(0.02)),  # 0 is no floor of penalties
    ],
)
def test_zeros_that_are_no_outage(value: NDArray[np.float64]) -> None:
    assert Fact.OUTAGES not in finding_of(reward=value).facts


# Nothing is earned.


@pytest.mark.parametrize(("rows", "status"), [(19, Status.WARNING), (20, Status.CRITICAL)])
def test_twenty_rows_of_nothing_are_a_failure_while_a_run_goes_on(
    rows: int, status: Status
) -> None:
    finding = finding_of(reward=np.zeros(rows), ended=False)
    assert (finding.status, finding.step, finding.signs) == (status, None, ())
    says("diagnostics/verifier/13", finding.message, rows=rows)
    assert finding.facts == (Fact.NOTHING_EARNED,)


def test_a_reward_that_was_there_in_a_few_first_rows_alone_is_nothing_since() -> None:
    finding = finding_of(reward=np.where(ROW < 11, 0.1, 0.0))
    assert (finding.status, finding.step) == (Status.CRITICAL, 12)
    says("diagnostics/verifier/2", finding.message)
    assert [(sign.step, sign.after, sign.words) for sign in finding.signs] == [
        (12, 0.0, "reward 0.10 → 0.00")
    ]
    assert finding.signs[0].before == pytest.approx(0.1)
    # From the twelfth row of a hundred on it was earned.
    assert (
        Fact.NOTHING_EARNED not in finding_of(reward=np.where(ROW < 12, 0.1 + noise(), 0.0)).facts
    )
    assert (
        Fact.NOTHING_EARNED not in finding_of(reward=np.where(ROW < 5, -0.1, 0.0)).facts
    )  # 0 is no floor of penalties


def test_what_is_missing() -> None:
    assert finding_of(entropy=ROW).log.startswith("the mean reward of each step")
    few = finding_of(reward=np.ones(7))
    assert few.status == Status.NOT_LOGGED
    says("diagnostics/verifier/10", few.message)
    says("diagnostics/verifier/3", finding_of(reward=np.linspace(0.2, 0.8, N) + noise()).message)


# One number at once.


def test_one_number_at_once_is_critical_below_and_a_warning_above() -> None:
    down = finding_of(reward=np.where(ROW < 60, 0.6 + noise(), 0.125))
    assert (down.status, down.step) == (Status.CRITICAL, 61)
    says("diagnostics/verifier/4", down.message)
    assert Fact.REWARD_CONSTANT_AT_ONCE in down.facts
    up = finding_of(reward=np.where(ROW < 60, 0.6 + noise(), 1.0))
    assert up.status == Status.WARNING
    says("diagnostics/verifier/11", up.message)
    says("diagnostics/verifier/5", advice_for(Cause(), up, step=None, onset=None).do)
    zero = finding_of(reward=np.where(ROW < 60, 0.6 + noise(), 0.0))
    says("diagnostics/verifier/6", zero.message)


@pytest.mark.parametrize(
    ("first", "at_once"), [([0.2, 0.3, 0.25, 0.3], True), ([0.2, 0.3, 0.5, 0.7, 0.9], False)]
)
def test_a_top_that_is_reached_in_one_row_is_not_learnt(first: list[float], at_once: bool) -> None:
    """A single prompt is learnt in a few rows, by and by."""
    reward = np.concatenate([first, np.ones(N - len(first))])
    finding = finding_of(reward=reward, entropy=0.5 + noise())
    assert (Fact.REWARD_CONSTANT_AT_ONCE in finding.facts) is at_once


def test_one_number_with_other_answers_is_no_verifiers() -> None:
    reward = np.where(ROW < 60, 0.6 + noise(), 0.0)
    finding = finding_of(reward=reward, entropy=np.where(ROW < 60, 0.4, 1.2) + noise(seed=1))
    assert finding.status is Status.NONE
    same = finding_of(reward=reward, entropy=0.4 + noise(seed=1))
    assert same.facts == (Fact.REWARD_CONSTANT_AT_ONCE, Fact.BEHAVIOUR_UNCHANGED)
    # Nearly certain of each token before and after: .09 nats and .03 are both the same answers, .4
    # and .03 are not.
    for before, drop in ((0.09, Fact.REWARD_CONSTANT_AT_ONCE), (0.4, None)):
        certain = finding_of(
            reward=reward, entropy=np.where(ROW < 60, before, 0.03) * np.exp(noise(seed=1))
        )
        assert next(iter(certain.facts), None) is drop


def test_a_function_that_stops_is_critical_where_the_reward_feels_it() -> None:
    values, other = np.where(ROW < 60, 0.6 + noise(), 0.0), 0.5 + noise(seed=1)
    felt = finding_of(
        ended=True,
        **{"reward": values + other, "rewards/one/mean": values, "rewards/other/mean": other},
    )
    assert (felt.status, felt.step) == (Status.CRITICAL, 61)
    says("diagnostics/verifier/7", felt.message)
    assert Fact.FUNCTION_CONSTANT_AT_ONCE in felt.facts
    unfelt = finding_of(
        ended=True, **{"reward": other, "rewards/one/mean": values, "rewards/other/mean": other}
    )
    assert unfelt.status is Status.WARNING


# Logged failures.


@each_case(
    "column", ["reward/timeout_rate", "verifier_error_rate", "parsing/failed", "sandbox_exceptions"]
)
def test_a_logged_rate_of_failures_that_rose(column: str) -> None:
    reward = np.linspace(0.2, 0.8, N) + noise()
    some = finding_of(ended=True, **{"reward": reward, column: np.where(ROW < 50, 0.02, 0.3)})
    assert (some.status, some.step) == (Status.WARNING, 51)
    says("diagnostics/verifier/14", some.message, column=column)
    assert some.facts == (Fact.FAILURES_LOGGED,)
    most = finding_of(ended=True, **{"reward": reward, column: np.where(ROW < 50, 0.02, 0.8)})
    assert most.status is Status.CRITICAL


@each_case(
    ("column", "value"),
    [
        ("tool_error_rate", np.where(ROW < 50, 0.02, 0.8)),
        ("verifier_errors", np.where(ROW < 50, 2.0, 80.0)),  # a count is no rate
        ("verifier_error_rate", np.full(N, 0.3)),
        ("verifier_error_rate", np.where(ROW < 50, 0.02, 0.06)),
    ],
)
def test_what_is_no_logged_failure(column: str, value: Any) -> None:
    assert (
        finding_of(
            ended=True, **{"reward": np.linspace(0.2, 0.8, N) + noise(), column: value}
        ).status
        is Status.NONE
    )


# Ties.


def ties(*differences: float) -> list[dict[str, Any]]:
    """Two groups of 0 and 1, which make the range 1, and for each difference a step of four
    groups of two whose deviation it is.
    """
    rows = [(0, prompt, reward) for prompt in range(2) for reward in (0.0, 1.0)]
    rows += [
        (step, prompt, 0.5 + half)
        for step, difference in enumerate(differences, 1)
        for prompt in range(4)
        for half in (-difference / np.sqrt(2), difference / np.sqrt(2))
    ]
    return [{"step": step, "prompt_id": prompt, "reward": reward} for step, prompt, reward in rows]


@each_case(
    ("difference", "status"),
    [
        (0.9e-3, Status.CRITICAL),
        (1.1e-3, Status.NONE),
        (1.1e-7, Status.CRITICAL),
        (0.9e-7, Status.NONE),
    ],
)
def test_ties_that_are_broken_by_less_than_a_thousandth_and_more_than_rounding(
    difference: float, status: Status
) -> None:
    reward = np.linspace(0.2, 0.8, N) + noise()
    finding = finding_of(ties(*[difference] * 10), reward=reward)
    assert finding.status is status
    if status is Status.CRITICAL:
        says("diagnostics/verifier/8", finding.message)
        assert (finding.facts, finding.limit, finding.step) == ((Fact.TIES_BROKEN,), 0.05, None)
        assert finding.value is not None
        assert finding.value.value == pytest.approx(40 / 42)


def test_a_few_broken_ties_are_a_warning_and_of_few_groups_nothing_is_said() -> None:
    reward = np.linspace(0.2, 0.8, N) + noise()
    assert finding_of(ties(*[0.5] * 7, *[1e-4] * 3), reward=reward).status is Status.WARNING
    assert finding_of(ties(*[0.5] * 9, 1e-4), reward=reward).status is Status.NONE
    few = ties(*[1e-4] * 5)
    assert finding_of(few, reward=reward).status is Status.CRITICAL  # 22 groups
    assert finding_of(few[:-6], reward=reward).status is Status.NONE  # 19


# A drop.


def test_a_drop_with_the_held_out_reward_is_critical_and_alone_a_warning() -> None:
    drop = np.where(ROW < 60, 0.8, 0.4)
    both = finding_of(
        reward=drop + noise(), held_out=drop + noise(seed=1), entropy=0.4 + noise(seed=2)
    )
    assert (both.status, both.step) == (Status.CRITICAL, 61)
    says("diagnostics/verifier/12", both.message)
    assert both.facts == (Fact.PART_LOST_AT_ONCE, Fact.BEHAVIOUR_UNCHANGED, Fact.HELD_OUT_DROPPED)
    alone = finding_of(
        reward=drop + noise(), held_out=0.8 + noise(seed=1), entropy=0.4 + noise(seed=2)
    )
    assert alone.status is Status.WARNING
    assert Fact.HELD_OUT_STAYED in alone.facts
    # Where nothing says that the answers went on as before it is a warning, and of less than three
    # tenths of the height.
    assert finding_of(reward=drop + noise(), held_out=drop + noise(seed=1)).status is Status.WARNING
    small = np.where(ROW < 60, 0.8, 0.6)
    assert (
        finding_of(
            reward=small + noise(), held_out=small + noise(seed=1), entropy=0.4 + noise(seed=2)
        ).status
        is Status.WARNING
    )


def test_a_drop_of_a_run_that_goes_on_may_be_the_next_stage_of_a_curriculum() -> None:
    small, large = (np.where(ROW < 60, 0.8, level) + noise() for level in (0.45, 0.3))
    assert [finding_of(reward=reward, ended=False).status for reward in (small, large)] == [
        Status.INFO,
        Status.WARNING,
    ]
    assert finding_of(reward=small).status is Status.WARNING


def test_a_decline_in_noise_that_a_step_tells_better_than_a_slope_is_a_drop() -> None:
    """Of 100 rows with noise 0.08 no single row stands out: the likelihood of a step tells it,
    clearly (seed 3) or rather (seed 1).
    """
    drop, slope = (
        np.where(ROW < 60, 0.8, 0.5),
        np.interp(ROW, [0, 50, 70, 99], [0.8, 0.8, 0.5, 0.5]),
    )
    for level, seed, fact, twice in (
        (drop, 3, Fact.PART_LOST_AT_ONCE, -12.1),
        (drop, 1, Fact.PART_LOST_AT_ONCE, -2.3),
        (slope, 3, None, 10.8),
    ):
        given = evidence(reward=level + noise(0.08, seed), entropy=0.4 + noise(seed=2))
        reward, decline = given.reward, decline_of(given)
        assert reward is not None
        assert decline is not None
        assert fall_of(given) is None
        assert _for_slope(reward, decline.middle) == pytest.approx(twice, abs=0.1)
        assert next(iter(broken_verifier(given).facts), None) is fact
    told_of = judge(evidence(reward=drop + noise(0.08, 3), entropy=0.4 + noise(seed=2)))
    assert told_of.cause.names == ("a broken verifier", "harder data")


def test_a_slope_and_a_dip_are_no_drop() -> None:
    slope = np.concatenate([np.full(40, 0.8), np.linspace(0.8, 0.4, 20), np.full(40, 0.4)])
    assert finding_of(reward=slope + noise()).status is Status.NONE
    assert (
        finding_of(reward=np.where((ROW >= 60) & (ROW < 70), 0.4, 0.8) + noise()).status
        is Status.NONE
    )
    assert finding_of(reward=np.where(ROW < 60, 0.4, 0.8) + noise()).status is Status.NONE


def changed(*rows: tuple[int, float]) -> NDArray[np.float64]:
    """Twenty rows at 1 and twenty at .5, but for these."""
    value = np.where(np.arange(40) < 20, 1.0, 0.5)
    for row, level in rows:
        value[row] = level
    return value


def test_a_fall_that_came_at_once_has_its_row_and_its_size() -> None:
    given, level = (
        evidence(reward=changed()),
        NoisyMetric("reward", np.arange(40), changed(), 0.1, 0.1),
    )
    fall = Fall(20, 0.9, 0.4, Interval(0.5, 0.4, 0.6), lasts=True)
    given.memo["falls_of"] = {"reward": (level, fall)}
    fallen = _fallen(given, level)
    assert fallen is not None
    assert fallen == pytest.approx((20, -0.5))


# Who fails.


def test_both_explanations_by_hand() -> None:
    """100 groups of two right before; a half is lost: whole prompts leave half of the groups
    without a success, answers a quarter.
    """
    before = np.full(100, 2.0)
    assert _explained(before, 0.5, np.repeat([0.0, 2.0], 50)) is Fact.PROMPTS_FAIL
    assert _explained(before, 0.5, np.repeat([0.0, 1.0, 2.0], [25, 50, 25])) == Fact.ANSWERS_FAIL
    # The middle between 0.5 and 0.25 is 0.375.
    assert _explained(before, 0.5, np.repeat([0.0, 2.0], [38, 62])) is Fact.PROMPTS_FAIL
    assert _explained(before, 0.5, np.repeat([0.0, 2.0], [37, 63])) is Fact.ANSWERS_FAIL


def test_explanations_that_differ_by_less_than_three_errors_tell_nothing() -> None:
    """One success a group: half of the groups fail either way.

    Of few groups 0.5 and 0.25 are not told apart.
    """
    assert _explained(np.ones(100), 0.5, np.repeat([0.0, 1.0], 50)) is None
    assert _explained(np.full(10, 2.0), 0.5, np.repeat([0.0, 2.0], 5)) is None
    # Some groups had no success before: w + f(1 - w) = 0.2 + 0.5 · 0.8 against the mean of f^k =
    # 0.2 + 0.8 / 16.
    before = np.repeat([0.0, 4.0], [40, 160])
    assert _explained(before, 0.5, np.repeat([0.0, 4.0], [120, 80])) is Fact.PROMPTS_FAIL
    assert _explained(before, 0.5, np.repeat([0.0, 2.0], [50, 150])) is Fact.ANSWERS_FAIL


def rollouts(after: list[list[float]]) -> list[dict[str, Any]]:
    """Twenty steps of four groups, all right to step 10, and these groups since."""
    return [
        {"step": step, "prompt_id": prompt, "reward": reward}
        for step in range(1, 21)
        for prompt, group in enumerate([[1.0] * 4] * 4 if step <= 10 else after)
        for reward in group
    ]


def test_who_fails_by_the_rollouts() -> None:
    whole = rollouts([[0.0] * 4, [1.0] * 4, [0.0] * 4, [1.0] * 4])
    scattered = rollouts([[1.0, 0.0, 1.0, 0.0]] * 4)
    reward = np.where(np.arange(20) < 10, 1.0, 0.5)
    assert who_fails(evidence(whole, reward=reward), 11) is Fact.PROMPTS_FAIL
    assert who_fails(evidence(scattered, reward=reward), 11) is Fact.ANSWERS_FAIL
    # Fewer than twenty groups on a side, a rate that did not fall, or rewards that hardly any
    # shares tell nothing.
    assert who_fails(evidence(whole, reward=reward), 17) is None
    assert who_fails(evidence(whole, reward=reward), 5) is None
    assert who_fails(evidence(rollouts([[1.0] * 4] * 4), reward=reward), 11) is None
    graded = [
        {**row, "reward": row["reward"] + 0.01 * place / len(whole)}
        for place, row in enumerate(whole)
    ]
    assert who_fails(evidence(graded, reward=reward), 11) is None
    # Of a sum of several functions right is what earns all of them.
    formatted = [
        {**row, "reward": row["reward"] + 0.1 * (place % 3 > 0)} for place, row in enumerate(whole)
    ]
    assert who_fails(evidence(formatted, reward=reward), 11) is Fact.PROMPTS_FAIL
    assert who_fails(evidence(reward=reward), 11) is None


def test_one_number_amid_the_rows_before_is_frozen() -> None:
    value = np.where(ROW < 60, 0.6 + noise(0.05), 0.61)
    finding = finding_of(reward=value)
    assert (finding.status, finding.step, finding.facts) == (
        Status.WARNING,
        61,
        (Fact.REWARD_FROZEN,),
    )
    says("diagnostics/verifier/9", finding.message)
    assert judge(evidence(reward=value, entropy=1 + noise())).cause.names == ("a broken verifier",)
    assert finding_of(
        reward=np.where(ROW < 60, 0.6 + noise(0.05), 0.8)
    ).facts  # above all of them: a top
    highest = np.where(
        ROW < 60, 0.6 + noise(0.05), 0.72
    )  # of a share .72 is none, and two scatters are no jump
    assert Fact.REWARD_FROZEN in finding_of(reward=highest).facts
    assert Fact.REWARD_FROZEN not in finding_of(reward=2 * highest).facts
    slope = np.where(ROW < 40, 0.7 + noise(), np.clip(0.7 - 0.02 * (ROW - 40), 0.2, 1))
    assert Fact.REWARD_FROZEN not in finding_of(reward=slope).facts  # the foot of a slope
    assert (
        Fact.REWARD_FROZEN
        not in finding_of(reward=np.where(ROW < 81, 0.6 + noise(0.05), 0.61)).facts
    )  # nineteen rows
    answers = np.where(ROW < 60, 1.0, 0.01)
    assert (
        Fact.REWARD_FROZEN not in finding_of(reward=value, entropy=answers + 0.1 * noise()).facts
    )  # a policy of one answer


def test_a_slope_that_is_steepest_somewhere_is_no_drop() -> None:
    for seed in (37, 99, 104, 161):  # chance put a step of a fifth of the slope there
        value = (
            0.8
            - 0.1 * np.arange(400) / 400
            + 0.03 * np.random.default_rng(seed).standard_normal(400)
        )
        assert finding_of(reward=value).status is Status.NONE


def test_a_policy_that_comes_apart_is_no_harder_data() -> None:
    """Three in four groups fail as whole: prompts that were answered before, or the fourth lost
    most of its successes too.
    """
    reward = np.where(np.arange(20) < 10, 1.0, 0.25)
    for fourth, same, fact in (
        ([1.0] * 4, False, Fact.PROMPTS_FAIL),
        ([1.0] * 4, True, None),
        ([1.0, 0.0, 0.0, 0.0], False, None),
    ):
        rows = rollouts([*[[0.0] * 4] * 3, fourth])
        for row in rows:
            late = row["step"] > 10 and not same
            row["prompt"] = f"{'new' if late else 'old'} {row['prompt_id']}"
        assert who_fails(evidence(rows, reward=reward), 11) is fact


@each_case(
    ("first", "settings", "hard"),
    [
        ([0.04], {}, False),
        ([0.01], {}, True),  # two or three of some 256
        ([0.01], {"prompts_per_step": 64, "group_size": 16}, False),
        ([1 / 16], {"prompts_per_step": 4, "group_size": 4}, True),
        ([1 / 16, 1 / 16], {"prompts_per_step": 8, "group_size": 8}, False),
        ([0.0], {}, True),
    ],
)
def test_a_reward_that_was_there_and_is_gone_was_not_too_hard(
    first: list[float], settings: dict[str, int], hard: bool
) -> None:
    value = np.r_[first, np.zeros(30)]
    record = RunRecord(
        "run",
        steps_table(range(len(value)), {"reward": value}),
        config=RunConfig().with_settings(settings, "--set"),
        meanings=(Meaning("reward", "reward", "test"),),
    )
    judgement = judge(Evidence(record))
    assert judgement.state is State.FAILED
    assert ("the task is too hard" in judgement.cause.names) is hard
    assert "a broken verifier" in judgement.cause.names
