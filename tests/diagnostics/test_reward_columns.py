"""Columns of one reward that part: the task's own falls, or stays at nothing, while what is
trained on rises.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from tests.cases import each_case
from tests.golden.sentences import says

from groupwise.diagnostics.judge import judge
from groupwise.diagnostics.judgement import Judgement, State
from groupwise.readers.keys import meanings_of, with_reward
from groupwise.record.run import Meaning, RunConfig, RunRecord, steps_table

N = 60
ROW = np.arange(N)
RISES = 0.2 + 0.6 * (1 - np.exp(-ROW / 12))
WAVE = 0.02 * np.sin(2.9 * ROW)
NOTHING = 0.004 * (ROW % 20 == 19)


def quantities(*keys: str, framework: str = "") -> dict[str, str]:
    columns = dict.fromkeys(keys, RISES)
    evidence = with_reward(
        columns, meanings_of(columns, RunConfig(), framework=framework, complete=True, window=1.0)
    )
    assert len({meaning.column for meaning in evidence}) == len(evidence)
    return {meaning.column: meaning.quantity for meaning in evidence}


def judgement_of(
    columns: dict[str, Any], *, ended: bool = True, rows: int = N, framework: str = ""
) -> Judgement:
    meant = tuple(
        Meaning(key, quantity, "test")
        for key, quantity in quantities(*columns, framework=framework).items()
    )
    record = RunRecord("run", steps_table(range(1, N + 1), columns), meanings=meant)
    return judge(RunRecord("run", record.steps.head(rows), meanings=meant), ended=ended)


def paid(**functions: Any) -> dict[str, Any]:
    return {
        "reward": sum(functions.values()),
        **{f"rewards/{name}/mean": value for name, value in functions.items()},
    }


@each_case("task", ["env_reward", "task_success", "accuracy", "ndcg@10"])
def test_a_task_that_earns_nothing_while_format_and_bonus_rise_is_never_ok(task: str) -> None:
    judgement = judgement_of(paid(format_reward=RISES, bonus=0.8 * RISES + WAVE, **{task: NOTHING}))
    assert (judgement.state, judgement.cause.words) == (State.WARNING, "possible: reward hacking")
    says("diagnostics/reward_columns/2", judgement.headline, task=task)


@each_case(
    ("functions", "why"),
    [
        ({"tidy": NOTHING}, "by its name it is not the task"),
        ({"strict_format": NOTHING}, "nor is form"),
        (
            {"env_reward": NOTHING, "accuracy": 0.5 * RISES + WAVE},
            "another score of the task earns: a stricter one may not",
        ),
        ({"env_reward": np.clip(ROW / 300 - 0.05, 0, 1)}, "it comes late"),
    ],
)
def test_what_may_earn_nothing_in_health(functions: dict[str, Any], why: str) -> None:
    assert judgement_of(paid(bonus=RISES + WAVE, **functions)).state is State.OK, why


def test_a_total_that_does_not_rise_is_not_parted_from() -> None:
    judgement = judgement_of(paid(bonus=0.5 + WAVE, env_reward=NOTHING))
    assert all(answer.status not in ("warning", "critical") for answer in judgement.checks)


def test_while_a_run_goes_on_the_task_may_come_yet() -> None:
    """Four of 240 beginnings of healthy public runs had no success in fifty rows and more, while
    none of 14 hacks was told by this before its end.
    """
    columns = paid(format_reward=RISES + WAVE, env_reward=NOTHING)
    states = [
        judgement_of(columns, ended=ended, rows=rows).state
        for ended, rows in ((False, 49), (False, 90), (True, 12))
    ]
    assert states == [State.OK, State.OK, State.WARNING]


def test_a_quality_that_falls_as_the_reward_grows_has_the_numbers_of_both() -> None:
    grows = 0.2 + 0.3 * ROW / N + 0.2 * WAVE
    judgement = judgement_of(
        {"reward": grows, "eval_steps": ROW, "ndcg": 0.55 - 0.15 * ROW / N + 0.2 * WAVE}
    )
    assert judgement.state == State.WARNING
    says("diagnostics/reward_columns/1", judgement.headline)
    assert (
        judgement_of({"reward": grows, "ndcg": 0.55 - 0.05 * ROW / N + 0.2 * WAVE}).state
        is State.OK
    )  # a twelfth
    assert (
        judgement_of({"reward": grows, "ndcg": 0.55 - 0.15 * ROW / N + 8 * WAVE}).state is State.OK
    )  # within its noise
    assert judgement_of({"reward": grows, "diversity": 0.55 - 0.15 * ROW / N}).state is State.OK


def test_a_score_that_falls_beneath_a_penalised_reward_that_rises() -> None:
    rewards, score = -19 + 17 * ROW / N + WAVE, 0.5 - 0.12 * ROW / N + 0.2 * WAVE
    judgement = judgement_of(
        {"critic/score/mean": score, "critic/rewards/mean": rewards}, framework="verl"
    )
    message = (
        "critic/rewards/mean −17.7 → −3.56 while critic/score/mean 0.49 → 0.39: one "
        "gains while the other loses."
    )
    assert message in [
        answer.message for answer in judgement.checks if answer.check == "reward_hacking"
    ]
    assert judgement.state is not State.OK
    assert (
        judgement_of(
            {"critic/score/mean": RISES + WAVE, "critic/rewards/mean": rewards}, framework="verl"
        ).state
        is State.OK
    )


def test_a_fall_has_one_pair_of_numbers_wherever_it_is_told() -> None:
    wave, row = np.tile(WAVE, 3), np.arange(3 * N)
    score = np.interp(row, [0, 6, 60, 120], [0.43, 0.43, 0.2, 0.19]) + 0.1 * wave
    columns = {"critic/score/mean": score, "critic/rewards/mean": -10 + 8 * row / 180 + wave}
    meant = tuple(
        Meaning(key, quantity, "test")
        for key, quantity in quantities(*columns, framework="verl").items()
    )
    judgement = judge(RunRecord("run", steps_table(row + 1, columns), meanings=meant))
    pair = re.search(r"reward (\S+ → \S+),", judgement.headline)
    assert pair is not None, judgement.headline
    hack = next(finding for finding in judgement.checks if finding.check == "reward_hacking")
    assert f"critic/score/mean {pair[1]}:" in hack.message
    assert hack.signs[1].words == f"critic/score/mean {pair[1]}"


TASK = (
    "accuracy",
    "train/answer_accuracy",
    "nq_success_rate",
    "NDCG@10",
    "env/all/correct",
    "metrics/rouge_l",
    "quality",
    "pass@8",
    "train/f1_score",
    "judge_score",
    "score/answer",
    "hit@1",
    "verifier_pass",
    "map",
    "reward_components/task",
    "num_correct",
    "solved_count",
    "judge_rating",
    "metrics/task_completed",
    "unit_tests_passed",
)
OTHER = (
    "format_accuracy",
    "token_accuracy",
    "best_accuracy",
    "accuracy_std",
    "eval/accuracy",
    "timing/accuracy",
    "entropy",
    "tool_success_rate",
    "format_score",
    "length_score",
    "cache_hit_rate",
    "score_loss",
    "diversity_score",
    "bitmap",
    "scored",
    "num_samples",
    "steps_completed",
    "difficulty_rating",
    "format_passed",
)


def test_scores_of_the_task_are_known_by_name_beside_the_reward() -> None:
    columns = quantities("reward", *TASK, *OTHER)
    assert {key for key, quantity in columns.items() if quantity == "task_score"} == set(TASK)
    for framework in ("trl", "verl"):
        assert quantities("reward", "accuracy", framework=framework)["accuracy"] == "task_score"


def test_the_reward_of_the_environment_is_the_reward_where_nothing_else_is() -> None:
    assert quantities("env_reward") == {"env_reward": "reward"}
    assert quantities("env_reward", "reward") == {"env_reward": "task_score", "reward": "reward"}
    assert quantities("accuracy")["accuracy"] == "reward"


def test_length_that_is_paid_is_a_loophole_and_no_accident() -> None:
    """The task's own falls to nothing as the answers run to their limit: where the total rises
    meanwhile, they are paid for it.
    """
    grown = 1 / (1 + np.exp(-(ROW - 40) / 2))
    exact, beside = (0.2 + 0.3 * ROW / N + WAVE) * (1 - grown), 0.25 + 0.01 * WAVE
    run = {"completions/mean_length": 40 + 400 * grown, "completions/clipped_ratio": 0.98 * grown}
    for length, cause in ((0.25 + 0.75 * grown + 0.1 * WAVE, "reward_hacking"), (beside, "length")):
        judgement = judgement_of(
            paid(exact=exact, length=length) | run | {"entropy": 0.4 + 0.3 * grown}
        )
        assert judgement.cause.keys == (cause,)


@each_case(
    ("length", "named"),
    [(300 + 10 * WAVE, True), (np.where(ROW < 30, 300, 60) + 10 * WAVE, False)],
)
def test_a_function_that_becomes_one_number_at_once_while_answers_go_on_is_the_verifiers(
    length: Any, named: bool
) -> None:
    judge_reward = np.where(ROW < 30, 0.6 + WAVE, 0.0)
    columns = paid(accuracy=RISES + WAVE, judge=judge_reward)
    judgement = judgement_of({**columns, "completions/mean_length": length})
    assert (judgement.cause.words == "likely: a broken verifier") is named
    assert ("lr ÷ 3" in judgement.do) is not named
