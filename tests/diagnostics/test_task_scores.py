"""The task's own score, held out or of training, is never passed over: it falls, or stays at
nothing, while the total rises.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from tests.cases import each_case
from tests.golden.sentences import says

from groupwise.diagnostics.judge import judge
from groupwise.diagnostics.judgement import Judgement, State
from groupwise.readers import run_record

N = 120
ROW = np.arange(N)
RISES = 0.2 + 0.6 * (1 - np.exp(-ROW / 30))
FALLS = np.where(ROW < 60, 0.3 + ROW / 300, 0.5 * np.exp(-(ROW - 60) / 5))
SLOWLY = 0.5 - 0.45 * ROW / N
NOTHING = np.zeros(N)
PEAKS = np.where(ROW < 60, 0.2 + 0.7 * ROW / 60, 0.9 - 0.4 * (1 - np.exp(-(ROW - 60) / 5)))
WITH_IT = np.where(ROW < 60, 0.3 + 0.3 * ROW / 60, 0.6 - 0.55 * (1 - np.exp(-(ROW - 60) / 5)))
SELDOM = 10
TOTAL = {"verl": "critic/score/mean", "trl": "reward", "own": "reward", "open-instruct": "scores"}
# What tells whose log it is.
MARK = {
    "verl": "actor/pg_clipfrac",
    "trl": "completions/mean_length",
    "own": "loss",
    "open-instruct": "unsolved_batch_size_ratio",
}


def judgement_of(
    folder: Path, trainer: str, columns: Mapping[str, np.ndarray], **other: np.ndarray | float
) -> Judgement:
    """The judgement of a log: columns of an evaluation stand in every tenth row."""
    rng = np.random.default_rng(4)
    total = other.get("total", RISES)
    logged = {TOTAL[trainer]: total, MARK[trainer]: np.full(N, 0.02), **columns}
    logged |= {"reward_std": np.full(N, 0.3)} if trainer == "trl" else {}
    noisy = {key: np.clip(value + rng.normal(0, 0.02, N), 0, 2) for key, value in logged.items()}
    seldom = ("val", "eval", "test")
    rows = [
        {"step": row + 1}
        | {
            key: float(value[row])
            for key, value in noisy.items()
            if not key.startswith(seldom) or row % SELDOM == SELDOM - 1
        }
        for row in range(N)
    ]
    path = folder / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return judge(run_record(path), ended=True)


OF_TRAINING = [
    ("verl", "critic/acc/mean"),
    ("verl", "critic/true_score/mean"),
    ("verl", "val-aux/gsm8k/acc/best@8/mean"),
    ("trl", "critic/is_correct/mean"),
    ("own", "reward/accuracy_mean"),
]
RATE = "objective/verifiable_correct_rate"


def test_the_rate_of_right_answers_is_the_reward_where_nothing_else_is(tmp_path: Path) -> None:
    beside = judgement_of(tmp_path, "open-instruct", {RATE: SLOWLY})
    assert (beside.state, beside.cause.words) == (State.FAILED, "possible: reward hacking")
    assert judgement_of(tmp_path, "open-instruct", {RATE: RISES}).state is State.OK
    log = (tmp_path / "log.jsonl").read_text().replace('"scores": ', '"other": ')
    (tmp_path / "log.jsonl").write_text(log)
    alone = judge(run_record(tmp_path / "log.jsonl"), ended=True)
    assert (alone.state, alone.metric) == (State.OK, RATE)


@each_case("key", ["turn_count", "num_turns", "turns_per_episode"])
def test_turns_that_fall_to_the_fewest_are_a_policy_that_calls_no_tools(
    key: str, tmp_path: Path
) -> None:
    falls = 1 + 3 / (1 + np.exp((ROW - 60) / 4))
    rows = [
        {"step": row + 1, "reward": 0.5 + 0.01 * (row % 5), "loss": 0.1, key: float(falls[row])}
        for row in range(N)
    ]
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    judgement = judge(run_record(path), ended=True)
    (use,) = (check for check in judgement.checks if check.check == "tool_use")
    says("diagnostics/task_scores/4", use.message, key=key)
    assert isinstance(use.limit, float)
    assert abs(use.limit - 1.6) < 0.01


@each_case("last", [1.0, 3.4])
def test_the_turns_of_a_step_tell_a_policy_that_calls_no_tools(last: float, tmp_path: Path) -> None:
    """agent-lightning counts one triplet a turn; from four turns to 3.4 some calls are left."""
    falls = last + (4 - last) / (1 + np.exp((ROW - 60) / 4))
    rows = [
        {
            "step": row + 1,
            "critic/score/mean": 0.5 + 0.01 * (row % 5),
            "training/n_triplets": round(64 * falls[row]),
        }
        for row in range(N)
    ]
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    judgement = judge(run_record(path), ended=True)
    assert ("the policy stops calling its tools" in judgement.cause.names) == (last == 1.0)


@each_case(("trainer", "key"), OF_TRAINING)
def test_a_score_of_the_task_that_is_lost_is_said_and_one_that_rises_is_not(
    trainer: str, key: str, tmp_path: Path
) -> None:
    for column in (FALLS, SLOWLY, NOTHING):
        judgement = judgement_of(tmp_path, trainer, {key: column})
        assert judgement.state is State.WARNING
        assert key.removeprefix("reward/") in judgement.headline
        assert judgement.cause.words == "possible: reward hacking"
    assert judgement_of(tmp_path, trainer, {key: RISES}).state is State.OK


@each_case(
    "key", ["critic/values/mean", "critic/acc/std", "critic/vf_accuracy_loss", "critic/grad_norm"]
)
def test_what_is_measured_of_the_critic_is_no_score_of_the_task(key: str, tmp_path: Path) -> None:
    assert judgement_of(tmp_path, "verl", {key: FALLS}).state is State.OK


SETS = [
    ("verl", "val-core/{}/acc/mean@8"),
    ("trl", "eval_{}_reward"),
    ("own", "val/{}/accuracy"),
]


@each_case(("trainer", "key"), SETS)
def test_the_worst_held_out_set_is_named_wherever_it_stands(
    trainer: str, key: str, tmp_path: Path
) -> None:
    first, second = key.format("math"), key.format("aime")
    for lost in (FALLS, SLOWLY):
        for columns in ({first: lost, second: RISES}, {second: RISES, first: lost}):
            judgement = judgement_of(tmp_path, trainer, columns)
            assert judgement.state is State.WARNING
            assert "held-out set math" in judgement.headline
            assert judgement.cause.keys == ("environment",)
    both = judgement_of(tmp_path, trainer, {first: FALLS, second: 0.5 + NOTHING})
    assert both.state is State.FAILED
    assert "held-out math" in both.headline
    # One that is too hard, or at its level from the start, says nothing beside one that learns.
    for level in (0.0, 0.5):
        assert (
            judgement_of(tmp_path, trainer, {first: level + NOTHING, second: RISES}).state
            is State.OK
        )


def test_the_best_of_several_samples_may_stand_as_their_mean_rises(tmp_path: Path) -> None:
    mean, best = "val-core/math/acc/mean@8", "val-core/math/acc/best@8/mean"
    assert judgement_of(tmp_path, "verl", {mean: RISES, best: 0.8 + NOTHING}).state is State.OK
    assert judgement_of(tmp_path, "verl", {best: 0.8 - 0.1 * ROW / N}).state is State.OK
    judgement = judgement_of(tmp_path, "verl", {mean: RISES, "val-aux/aime/acc/best@8/mean": FALLS})
    assert (judgement.state, judgement.cause.keys) == (State.WARNING, ("environment",))
    assert "held-out set aime/acc (best)" in judgement.headline


BOTH = [("trl", "accuracy"), ("trl", "eval_reward"), ("verl", "critic/acc/mean")]


@each_case(("trainer", "key"), BOTH)
def test_no_loophole_is_named_where_both_fall_together(
    trainer: str, key: str, tmp_path: Path
) -> None:
    judgement = judgement_of(tmp_path, trainer, {key: WITH_IT}, total=PEAKS)
    assert judgement.state in (State.WARNING, State.FAILED)
    assert "hacking" not in judgement.cause.words + judgement.headline
    assert "hacking" in judgement_of(tmp_path, trainer, {key: SLOWLY}, total=PEAKS).cause.words


@each_case(("trainer", "key"), [("trl", "rewards/env_{}/mean"), ("own", "reward/env_{}")])
def test_a_function_named_after_an_environment_is_one(
    trainer: str, key: str, tmp_path: Path
) -> None:
    columns = {key.format(name): RISES for name in ("code", "games")} | {key.format("math"): FALLS}
    mean = sum(columns.values()) / len(columns)
    for total in (mean, mean + 0.3 * ROW / N):
        judgement = judgement_of(tmp_path, trainer, columns, total=total)
        assert judgement.state is State.WARNING
        says("diagnostics/task_scores/1", judgement.cause.words)
        assert "environment math" in judgement.headline
    alone = judgement_of(tmp_path, trainer, {key.format("reward"): RISES}, total=RISES)
    assert alone.state is State.OK
    assert alone.environments is None


@each_case(
    ("columns", "state"),
    [
        (("accuracy",), State.CANNOT_TELL),
        (("train_acc", "val_acc", "epoch"), State.CANNOT_TELL),
        (("loss", "accuracy", "learning_rate"), State.CANNOT_TELL),
        (("loss", "accuracy", "completion_length"), State.OK),
        (("accuracy", "entropy"), State.OK),
        (("reward", "accuracy"), State.OK),
        (("success_rate", "my_own_column"), State.OK),
    ],
)
def test_an_accuracy_beside_nothing_of_reinforcement_learning_is_no_reward(
    columns: tuple[str, ...], state: State, tmp_path: Path
) -> None:
    rng = np.random.default_rng(5)
    values = {key: (RISES + rng.normal(0, 0.02, N)).tolist() for key in columns}
    rows = [{"step": row + 1} | {key: values[key][row] for key in columns} for row in range(N)]
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    judgement = judge(run_record(path), ended=True)
    assert judgement.state is state
    assert ("the log has no reward: it looks like" in judgement.headline) == (
        state is State.CANNOT_TELL
    )
    chosen = run_record(path, columns={"reward": columns[0]})
    assert judge(chosen, ended=True).state is not State.CANNOT_TELL


@each_case(
    "key", ["solve_rate", "win_rate", "returns", "mean_return", "rollout/solved", "mean success"]
)
def test_what_is_earned_beside_a_loss_is_named_and_called_no_supervised_training(
    key: str, tmp_path: Path
) -> None:
    rows = [
        {"step": row + 1, "loss": 0.1, "learning_rate": 1e-6, key: float(RISES[row])}
        for row in range(N)
    ]
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    headline = judge(run_record(path), ended=True).headline
    says("diagnostics/task_scores/3", headline, key=key, column=shlex.quote(f"reward={key}"))
    chosen = run_record(path, columns={"reward": key})
    assert judge(chosen, ended=True).state is not State.CANNOT_TELL


@each_case("layout", ["trl.jsonl", "verl.jsonl", "trl.csv", "trl.log", "verl.log"])
def test_rewards_that_are_no_finite_numbers_in_some_rows_are_counted(
    layout: str, tmp_path: Path
) -> None:
    trainer, form = layout.split(".")
    keys = ("reward", "loss") if trainer == "trl" else ("critic/score/mean", "actor/pg_loss")

    def headline(value: object, rows: range) -> str:
        values = [value if row in rows else float(RISES[row]) for row in range(N)]
        made = [
            {"step": row + 1, keys[0]: values[row], keys[1]: 0.01 * (row % 7) + 0.01}
            for row in range(N)
        ]
        lines = {
            "jsonl": [json.dumps(row) for row in made],
            "csv": [",".join(made[0]), *(",".join(map(str, row.values())) for row in made)],
            "log": [
                str(row)
                if trainer == "trl"
                else f"step:{row['step']} - " + " - ".join(f"{key}:{row[key]}" for key in keys)
                for row in made
            ],
        }
        path = tmp_path / f"run.{form}"
        path.write_text("\n".join(lines[form]))
        return judge(run_record(path), ended=True).headline

    counted = "the reward is missing, NaN or infinite in 3 rows of 120, first at step 31"
    assert counted in headline(float("nan"), range(30, 91, 30))
    assert "in 3 rows of 120, first at step 31" in headline(float("inf"), range(30, 91, 30))
    assert "finite" not in headline(0.5, range(30, 91, 30))
    # A reward that is logged at every second step is no gap.
    assert "finite" not in headline(float("nan"), range(0, N, 2))


@each_case("lengths", ["all", "with", "none"])
def test_a_step_that_measures_no_completion_misses_no_reward(lengths: str, tmp_path: Path) -> None:
    """As where each batch has two updates, or a line was cut; where completions are measured, or
    nothing tells, a reward is missing.
    """
    rows = []
    for at in range(N):
        row = {"step": at + 1, "loss": 0.01 * (at % 7) + 0.01}
        gap = at % 3 == 2
        rows.append(row | ({} if gap else {"reward": float(RISES[at])}))
        if lengths == "all" or (lengths == "with" and not gap):
            rows[-1]["completions/mean_length"] = 80.0 + at % 5
    path = tmp_path / "run.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    judged = judge(run_record(path), ended=True)
    said = [finding.message for finding in judged.checks if finding.check == "numbers"]
    assert ("is missing, NaN or infinite in 40 rows" in said[0]) is (lengths != "with")


@each_case(
    ("trainer", "key"),
    [("verl", "critic/advantages/mean"), ("own", "adv_mean"), ("own", "train/advantage/mean")],
)
def test_a_mean_advantage_far_from_zero_has_no_baseline(
    trainer: str, key: str, tmp_path: Path
) -> None:
    def cause(level: float, wave: float = 0.05) -> str:
        rows = [
            {"step": row + 1, TOTAL[trainer]: float(RISES[row]), MARK[trainer]: 0.02}
            | {key: level + wave * float(np.sin(2.9 * row))}
            for row in range(N)
        ]
        path = tmp_path / "log.jsonl"
        path.write_text("\n".join(map(json.dumps, rows)))
        return judge(run_record(path), ended=True).cause.words

    says("diagnostics/task_scores/2", cause(0.9))
    assert cause(-0.33) == cause(0.0, wave=1.5) == ""  # lengths that differ, and noise


@each_case(
    ("key", "named"),
    [
        ("terminal_reward", True),
        ("countdown_reward", True),
        ("discounted_return", True),
        ("reward_std", False),
        ("success_count", False),
        ("timing/reward_time", False),
    ],
)
def test_a_word_within_a_word_makes_no_reward_another_number(
    tmp_path: Path, key: str, named: bool
) -> None:
    path = tmp_path / f"{key.replace('/', '_')}.jsonl"
    rows = [{"step": row, "kl": 0.01, key: float(value)} for row, value in enumerate(RISES)]
    path.write_text("\n".join(map(json.dumps, rows)))
    assert (f"--column reward={key}" in judge(run_record(path)).headline) is named
