"""Reward functions beside each other: form alone, one of them at 0 throughout, all of them
earning.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.cases import each_case
from tests.golden.sentences import says

from groupwise.diagnostics.judgement import Fact, Status
from groupwise.diagnostics.signals import Evidence
from groupwise.diagnostics.verifier import of_task, reward_functions
from groupwise.record.run import Meaning, RunRecord, steps_table

N = 120


def log(**functions: np.ndarray) -> Evidence:
    columns = {f"rewards/{name}/mean": value for name, value in functions.items()}
    length = len(next(iter(columns.values())))
    meanings = tuple(
        Meaning(f"rewards/{name}/mean", f"reward/{name}", "test") for name in functions
    )
    return Evidence(
        RunRecord("test", steps_table(range(1, length + 1), columns), meanings=meanings)
    )


def mixed(columns: dict[str, np.ndarray]) -> Evidence:
    """Functions beside their total."""
    names = {name: name if name == "reward" else f"reward/{name}" for name in columns}
    meanings = tuple(Meaning(name, quantity, "test") for name, quantity in names.items())
    return Evidence(RunRecord("test", steps_table(range(1, N + 1), columns), meanings=meanings))


def noise(seed: int, n: int = N) -> np.ndarray:
    return 0.02 * np.random.default_rng(seed).standard_normal(n)


def learnt(seed: int, rate: float = 15, n: int = N) -> np.ndarray:
    """Form that is learnt within a few tens of steps."""
    return np.asarray(
        np.clip(0.1 + 0.9 * (1 - np.exp(-np.arange(n) / rate)) + noise(seed, n), 0, 1)
    )


def test_form_that_alone_earns_has_its_step_and_numbers() -> None:
    finding = reward_functions(log(format_reward=learnt(0), accuracy_reward=np.zeros(N)))
    assert (finding.status, finding.step, finding.facts) == (
        Status.WARNING,
        32,
        (Fact.FORMAT_ALONE_EARNS,),
    )
    says("diagnostics/reward_functions/1", finding.message)
    assert finding.signs[0].words == "format_reward 0.32 → 0.99"
    assert finding.signs[0].signal == "reward/format_reward"


def test_form_alone_is_worth_knowing_in_a_short_run() -> None:
    finding = reward_functions(log(format_reward=learnt(0, n=40), accuracy_reward=np.zeros(40)))
    assert (finding.status, finding.signs, finding.facts) == (Status.INFO, (), ())


def test_a_function_that_is_0_throughout_is_worth_knowing_only() -> None:
    finding = reward_functions(
        log(strict_format=np.zeros(N), correctness=learnt(1, 60), xmlcount=learnt(2))
    )
    assert (finding.status, finding.facts) == (Status.INFO, ())
    says("diagnostics/reward_functions/2", finding.message)


def test_functions_whose_names_tell_nothing_are_worth_knowing() -> None:
    finding = reward_functions(log(f=np.zeros(N), g=learnt(3)))
    assert (finding.status, finding.facts) == (Status.INFO, ())


def test_a_function_at_its_lowest_earns_nothing_and_accuracy_that_rises_does() -> None:
    assert reward_functions(log(format=learnt(4), check=np.full(N, -2.0))).status is Status.WARNING
    assert (
        reward_functions(
            log(format=learnt(4), accuracy=np.clip(np.linspace(-0.2, 0.3, N), 0, 1))
        ).status
        is Status.NONE
    )


def test_what_is_earned_by_luck_is_nothing_where_it_does_not_grow() -> None:
    finding = reward_functions(log(format=learnt(6), accuracy=0.03 + 0.25 * noise(7)))
    assert finding.status == Status.WARNING
    says("diagnostics/reward_functions/4", finding.message[-41:])
    assert (
        reward_functions(
            log(format=learnt(6), accuracy=np.linspace(0.02, 0.04, N) + 0.1 * noise(7))
        ).status
        is Status.NONE
    )
    says(
        "diagnostics/reward_functions/3",
        reward_functions(log(f=0.03 + 0.25 * noise(7), g=learnt(3))).message,
    )


def test_names_are_cleaned() -> None:
    assert (
        "\x1b"
        not in reward_functions(
            log(**{"format\x1b[31m": learnt(5), "accuracy": np.zeros(N)})
        ).message
    )


@pytest.mark.parametrize(
    ("functions", "status"), [({}, Status.NOT_LOGGED), ({"accuracy": learnt(6)}, Status.NONE)]
)
def test_one_function_has_none_beside_it(functions: dict[str, np.ndarray], status: Status) -> None:
    columns = functions or {"other": np.ones(N)}
    evidence = (
        log(**columns) if functions else Evidence(RunRecord("test", steps_table(range(N), columns)))
    )
    assert reward_functions(evidence).status is status


@pytest.mark.slow
def test_runs_whose_accuracy_comes_a_little_late_stay_silent_after_every_second_row() -> None:
    for seed in range(40):
        rng = np.random.default_rng(seed)
        start = rng.integers(0, 40)
        accuracy = np.clip(0.01 * np.maximum(np.arange(N) - start, 0) + 0.02 * rng.random(N), 0, 1)
        form = learnt(seed, float(rng.uniform(5, 30)))
        for rows in range(10, N + 1, 2):
            status = reward_functions(log(format=form[:rows], accuracy=accuracy[:rows])).status
            assert status in (Status.NONE, Status.INFO), (seed, rows)


def test_a_function_at_the_edge() -> None:
    assert (
        reward_functions(log(format=learnt(8)[:10], accuracy=np.zeros(10))).status is Status.INFO
    )  # ten rows are enough to look
    assert (
        reward_functions(log(format=np.full(N, 0.85), accuracy=np.zeros(N))).status is Status.INFO
    )  # not nine tenths of 1
    assert (
        reward_functions(log(format=3 * learnt(9), accuracy=np.zeros(N))).status is Status.WARNING
    )  # its own top is 3


@each_case(
    ("form", "accuracy", "status"),
    [
        (learnt(8), 0.16 + noise(7), Status.WARNING),
        (learnt(8), np.full(N, 0.06), Status.WARNING),
        (learnt(8), 0.06 + 0.25 * noise(7), Status.WARNING),
        (learnt(8), 0.3 + noise(7), Status.INFO),  # it earns
        (learnt(8), 0.6 + noise(7), Status.INFO),
        (learnt(8), 0.8 + noise(7), Status.INFO),
        (10 * learnt(8), 0.45 + 0.5 * noise(7), Status.INFO),  # less than a twentieth of the format
        (learnt(8), 0.16 + 0.1 * np.arange(N) / N + noise(7), Status.NONE),  # it gains
        (learnt(8), 0.16 + 4 * noise(7), Status.NONE),  # it may gain
        (learnt(8), 0.93 + 0.2 * noise(7), Status.NONE),  # it has no room
        (0.97 + 0.2 * noise(8), 0.16 + noise(7), Status.NONE),  # form was there from the start
        (learnt(8)[:60], 0.16 + noise(7)[:60], Status.INFO),  # it may come yet
    ],
)
def test_form_that_is_learnt_while_the_task_stands_earns_alone(
    form: np.ndarray, accuracy: np.ndarray, status: Status
) -> None:
    """An accuracy of .06 that stands for 90 rows after the format was learnt has not been learnt:
    it was silent, as luck gives less. One of .3 or more may be all that the policy can, and "only
    the format earns" is wrong of it: that the format alone gains is worth knowing, and no cause.
    """
    finding = reward_functions(log(format=form, accuracy=accuracy))
    assert (finding.status, bool(finding.facts)) == (status, status is Status.WARNING)
    if accuracy[0] == accuracy[-1] or status is Status.INFO:
        assert finding.message.startswith("Only the format gains reward: format ")
    elif finding.facts and accuracy.mean() > 0.1:
        says("diagnostics/reward_functions/5", finding.message)


def test_of_two_functions_of_the_task_the_better_tells_whether_the_format_earns_alone() -> None:
    better = log(format=learnt(8), exact=0.05 + 0.1 * noise(7), accuracy=0.6 + noise(6))
    assert reward_functions(better).status is Status.INFO
    worse = log(format=learnt(8), exact=0.05 + 0.1 * noise(7), accuracy=0.2 + noise(6))
    assert reward_functions(worse).status is Status.WARNING
    assert "while accuracy is 0.19, as" in reward_functions(worse).message


def test_functions_that_pull_against_each_other() -> None:
    right, brief = np.linspace(0.2, 0.8, N) + noise(11), -np.linspace(0, 0.6, N) + noise(12)

    def status_and_message(right: np.ndarray, brief: np.ndarray) -> tuple[Status, str]:
        finding = reward_functions(mixed({"reward": right + brief, "right": right, "brief": brief}))
        return finding.status, finding.message

    assert status_and_message(right, brief) == (
        Status.WARNING,
        "right 0.25 → 0.75 while brief −0.044 → −0.55, and the reward stays at 0.20",
    )
    assert status_and_message(right, 0.2 * brief)[0] is Status.NONE  # the total rises
    assert status_and_message(right, 2 * brief)[0] is Status.NONE  # it falls, which others say
    assert status_and_message(0.3 + noise(11), brief)[0] is Status.NONE
    assert (
        status_and_message(0.3 + 0.05 * right, -0.05 * right)[0] is Status.NONE
    )  # little of what a function can earn
    unpaid = reward_functions(
        mixed({"reward": 0.4 + noise(3), "right": 0.4 + noise(3), "steps": right, "brief": brief})
    )
    assert unpaid.status is Status.NONE  # the total is the first alone


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("judge_score", True), ("correctness", True), ("format_score", False), ("judge", False)],
)
def test_a_task_is_known_by_one_table_of_names(name: str, *, wanted: bool) -> None:
    """The readers' score of a task is a reward function of the task, too."""
    assert of_task(name) is wanted
