"""Of a running run: a reward that holds a tenth of its level for three rows is lost."""

from __future__ import annotations

import numpy as np
import pytest
from tests.golden.sentences import says

from groupwise.diagnostics import instability
from groupwise.diagnostics.judge import judge
from groupwise.diagnostics.judgement import Fact, Judgement, State, Status
from groupwise.diagnostics.signals import Evidence
from groupwise.record.run import Meaning, RunRecord
from groupwise.record.table import steps_table


def log(reward: np.ndarray, interval: int = 1) -> RunRecord:
    steps = [interval * row for row in range(1, len(reward) + 1)]
    table = steps_table(steps, {"reward": reward})
    return RunRecord("run", table, meanings=(Meaning("reward", "reward", "test"),))


@pytest.mark.parametrize(("level", "left"), [(0.88, 0.0), (0.5, 0.03), (0.3, 0.01)])
@pytest.mark.parametrize(("rows", "interval"), [(8, 1), (60, 1), (60, 10)])
def test_a_running_run_fails_at_the_third_row_at_a_tenth(
    level: float, left: float, rows: int, interval: int
) -> None:
    rng = np.random.default_rng(1)
    before = level + 0.02 * rng.standard_normal(rows)
    states = []
    for lost in (2, 3, 4, 8, 20):
        after = left + 0.003 * np.abs(rng.standard_normal(lost))
        judgement = judge(log(np.concatenate([before, after]), interval), ended=False)
        states.append(judgement.state)
    assert states[0] is not State.FAILING
    assert set(states[1:]) == {State.FAILING}


@pytest.mark.slow
def test_runs_whose_dips_last_two_rows_are_left_alone() -> None:
    """Of 60 noisy runs of 150 rows, half with three such dips, none alarms at a row under half of
    the highest so far or the one after it, nor at every tenth of the others: by the rule of three
    at most 5 % would.
    """
    rng = np.random.default_rng(5)
    alarms = 0
    for run in range(60):
        reward = rng.uniform(0.1, 0.9) * np.linspace(0.6, 1.0, 150)
        reward = reward + rng.uniform(0.01, 0.08) * rng.standard_normal(150)
        for row in rng.permutation(np.arange(15, 140, 6))[: 3 * (run % 2)]:
            reward[row : row + 2] *= rng.uniform(0, 0.08)
        reward = np.clip(reward, 0, 1)
        low = reward < 0.5 * np.maximum.accumulate(reward)
        low[1:] |= low[:-1]
        asked = [rows for rows in range(12, 151) if low[rows - 1] or rows % 10 == 0]
        looks = (Evidence(log(reward[:rows]), ended=False) for rows in asked)
        alarms += any(instability.lost(look).status is Status.CRITICAL for look in looks)
    assert alarms == 0


def test_rows_of_nothing_that_a_run_is_used_to_are_no_loss() -> None:
    """A game that earns nothing in a fifth of the rows: three in a row come by chance."""
    rng = np.random.default_rng(6)
    reward = np.where(rng.random(200) < 0.2, 0.0, 10 + rng.standard_normal(200))
    reward[-3:] = 0.0
    assert instability.lost(Evidence(log(reward), ended=False)).status is Status.NONE
    reward[:-3] = np.maximum(reward[:-3], 8.0)
    assert instability.lost(Evidence(log(reward), ended=False)).status is Status.CRITICAL
    assert instability.lost(Evidence(log(reward), ended=True)).status is Status.NONE


def test_a_lucky_first_row_destroys_no_policy() -> None:
    """Rows as high as the first come again."""
    rng = np.random.default_rng(7)
    reward = -0.8 + 0.9 * (rng.random(120) < 0.2) + 0.05 * rng.standard_normal(120)
    reward[0] = 0.2
    entropy = np.where(np.arange(120) == 0, 1.0, 0.5)
    table = steps_table(range(1, 121), {"reward": reward, "entropy": entropy})
    meanings = tuple(Meaning(name, name, "test") for name in ("reward", "entropy"))
    assert judge(RunRecord("run", table, meanings=meanings)).state is not State.FAILED


@pytest.mark.parametrize("column", ["rewards/error_correction/mean", "rewards/no_timeout/mean"])
def test_a_reward_for_corrected_errors_is_no_failure(column: str) -> None:
    level = np.linspace(0.2, 0.8, 80) + 0.01 * np.random.default_rng(8).standard_normal(80)
    table = steps_table(range(1, 81), {"reward": level, column: level})
    function = column.split("/")[1]
    meanings = (
        Meaning("reward", "reward", "test"),
        Meaning(column, f"reward/{function}", "test"),
    )
    assert judge(RunRecord("run", table, meanings=meanings)).state is State.OK


def test_a_reward_that_is_lost_gets_the_cause_of_a_fall_and_something_to_do() -> None:
    rng = np.random.default_rng(9)
    reward = np.r_[0.8 + 0.02 * rng.standard_normal(60), 0.004 * rng.random(3)]
    length = np.r_[200 + 5 * rng.standard_normal(58), np.geomspace(300, 2000, 5)]
    table = steps_table(range(1, 64), {"reward": reward, "length": length})
    meanings = (
        Meaning("reward", "reward", "test"),
        Meaning("length", "completion_length", "test"),
    )
    judgement = judge(RunRecord("run", table, meanings=meanings), ended=False)
    assert judgement.state is State.FAILING
    (note,) = judgement.cause.names
    says("diagnostics/lost/2", note)
    says("diagnostics/lost/1", judgement.do)


def test_a_run_that_learnt_from_nothing_or_had_just_begun_is_lost_as_soon() -> None:
    """Rows before the level was reached are no dips from it, and five rows of nothing tell more
    than three high ones hide.
    """
    rng = np.random.default_rng(12)
    learnt = np.r_[np.zeros(20), np.linspace(0, 0.5, 20), 0.5 + 0.02 * rng.standard_normal(20)]
    gone = np.zeros(3)
    lost = instability.lost(Evidence(log(np.r_[learnt, gone]), ended=False))
    assert (lost.status, lost.step) == (Status.CRITICAL, 61)
    begun = np.r_[0.9, 0.8, 0.95, 0.01 * rng.random(5)]
    assert instability.lost(Evidence(log(begun), ended=False)).status is Status.CRITICAL
    assert instability.lost(Evidence(log(begun[:-1]), ended=False)).status is Status.NONE
    # What lasted as long before, and came back, is waited for.
    outage = np.r_[learnt, np.zeros(7), np.full(20, 0.5), np.zeros(6)]
    assert instability.lost(Evidence(log(outage), ended=False)).status is Status.NONE


def judgement_of(columns: dict[str, np.ndarray], *, ended: bool) -> Judgement:
    names = {
        "length": "completion_length",
        "cut": "truncated_share",
        "gradient": "gradient_norm",
        "dead": "dead_group_share",
    }
    meanings = tuple(Meaning(name, names.get(name, name), "test") for name in columns)
    table = steps_table(range(1, len(columns["reward"]) + 1), columns)
    return judge(RunRecord("run", table, meanings=meanings), ended=ended)


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize(
    ("name", "before", "after", "cause"),
    [
        ("length", 200.0, 80.0, "training became unstable (instability) and completions shrank"),
        ("cut", 0.1, 0.55, "the policy ran away in length"),
    ],
)
def test_three_rows_a_quarter_lower_with_other_answers_are_a_failure(
    name: str, before: float, after: float, cause: str, ended: bool
) -> None:
    rng = np.random.default_rng(3)
    reward = 0.6 + 0.01 * rng.standard_normal(20)
    answers = before * (1 + 0.05 * rng.standard_normal(20))
    failed = {State.FAILED, State.FAILING}
    for rows, alarm in ((2, False), (3, True), (6, True)):
        columns = {
            "reward": np.r_[reward, 0.43 + 0.01 * rng.standard_normal(rows)],
            name: np.r_[answers, after * (1 + 0.01 * rng.standard_normal(rows))],
        }
        answer = judgement_of(columns, ended=ended)
        assert (answer.state in failed) is alarm, rows
    assert answer.cause.names == (cause,)
    assert "falling since step 21" in answer.headline
    # The same answers, as low a reward before, or a loss that noise makes, are waited for.
    same = columns | {name: np.r_[answers, answers[:6]]}
    assert judgement_of(same, ended=ended).state not in failed
    dips = np.r_[reward[:8], np.full(3, 0.4), reward[11:], columns["reward"][20:]]
    assert judgement_of(columns | {"reward": dips}, ended=ended).state not in failed
    noisy = columns["reward"] + 0.1 * rng.standard_normal(26)
    assert judgement_of(columns | {"reward": noisy}, ended=ended).state not in failed


def test_answers_that_shrank_to_nothing_fail_at_the_sixth_row() -> None:
    """Half of the gradients are 0, and most groups are alike."""
    rows = 5 + np.arange(3)
    states = [
        judgement_of(
            {
                "reward": np.linspace(2.0, 2.2, count),
                "length": np.r_[50.0, np.full(count - 1, 2.5)],
                "gradient": np.r_[40.0, np.resize([0.0, 300.0], count - 1)],
                "dead": np.r_[0.3, np.full(count - 1, 0.8)],
            },
            ended=False,
        ).state
        for count in rows
    ]
    assert states == [State.CANNOT_TELL, State.FAILING, State.FAILING]


@pytest.mark.parametrize(("rows", "fact"), [(24, Fact.FALL_BY_AND_BY), (1, Fact.FALL_AT_ONCE)])
def test_a_fall_came_at_once_or_over_some_rows_and_not_both(rows: int, fact: Fact) -> None:
    """Of one fall two checks tell: the reward collapsed, and its last rows have lost it."""
    rng, row = np.random.default_rng(8), np.arange(100)
    gone = np.clip((row - 59) / rows, 0, 1)
    columns = {
        "reward": 0.8 - 0.75 * gone + 0.02 * rng.standard_normal(100),
        "completion_length": 300 - 200 * gone + 3 * rng.standard_normal(100),
    }
    meanings = tuple(Meaning(name, name, "test") for name in columns)
    looked = Evidence(RunRecord("run", steps_table(row, columns), meanings=meanings), ended=True)
    findings = instability.collapse(looked), instability.lost(looked)
    both = {Fact.FALL_AT_ONCE, Fact.FALL_BY_AND_BY}
    assert [both & {*finding.facts} for finding in findings] == [{fact}, {fact}]
