"""Evaluations among the rows of training: each is told apart by the word or the flag that marks it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from groupwise.readers import run_record

TRAINED = [0.2, 0.3, 0.4, 0.5]
EVALUATED = [0.0, None, 0.1, None]


def rewards(path: Path) -> tuple[list[float | None], list[float | None]]:
    """The rewards of training and of the evaluations that a log holds."""
    steps = run_record(path).steps
    evaluated = steps["eval/reward"].to_list() if "eval/reward" in steps.columns else []
    return steps["reward"].to_list(), evaluated


def printed(tmp_path: Path, evaluation: str) -> Path:
    """A console whose even steps are evaluated, too; "{}" stands for the step."""
    lines = []
    for step, reward in enumerate(TRAINED):
        lines.append(f"Step {step}/4 | reward={reward} | kl=0.01")
        if step % 2 == 0:
            lines.append(f"{evaluation.format(step)}reward={step / 20}")
    (tmp_path / "run.log").write_text("\n".join(lines))
    return tmp_path / "run.log"


@pytest.mark.parametrize(
    "evaluation",
    [
        "Test | Step {}/4 | ",
        "[test] step {}: ",
        "Dev step {}: ",
        "Held-out step {}: ",
        "Step {}/4 | eval | ",
        "Step {}/4 [eval] ",
        "Step {}/4 (eval): ",
        "Step {}/4 - Validation - ",
        "Step {}/4 | split=val | ",
    ],
)
def test_a_printed_evaluation_replaces_no_reward(evaluation: str, tmp_path: Path) -> None:
    assert rewards(printed(tmp_path, evaluation)) == (TRAINED, EVALUATED)


@pytest.mark.parametrize(
    "row",
    [
        "INFO:test:Step {}/4 | ",
        "dev-2 | Step {}/4 | ",
        "Step {}/4 | test=0.9 | ",
        "Step {}/4 | eval: 0.9 | ",
        "Step {}/4 | split=train | ",
    ],
)
def test_a_name_that_sounds_like_an_evaluation_marks_none(row: str, tmp_path: Path) -> None:
    lines = [f"{row.format(step)}reward={reward}" for step, reward in enumerate(TRAINED)]
    (tmp_path / "run.log").write_text("\n".join(lines))
    assert rewards(tmp_path / "run.log") == (TRAINED, [])


def logged(tmp_path: Path, training: dict[str, object], evaluation: dict[str, object]) -> Path:
    """JSON lines whose even steps are evaluated, too."""
    rows = []
    for step, reward in enumerate(TRAINED):
        rows.append({"step": step, "reward": reward, **training})
        if step % 2 == 0:
            rows.append({"step": step, "reward": step / 20, **evaluation})
    (tmp_path / "run.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return tmp_path / "run.jsonl"


@pytest.mark.parametrize("key", ["stage", "set", "dataset", "event", "split"])
@pytest.mark.parametrize("word", ["eval", "test", "validation"])
def test_a_word_marks_the_rows_of_an_evaluation(key: str, word: str, tmp_path: Path) -> None:
    for training in ({key: "train"}, {}):
        path = logged(tmp_path, dict(training), {key: word})
        assert rewards(path) == (TRAINED, EVALUATED)


@pytest.mark.parametrize("key", ["eval", "is_eval"])
def test_a_flag_marks_the_rows_of_an_evaluation(key: str, tmp_path: Path) -> None:
    for training in ({key: False}, {}):
        path = logged(tmp_path, dict(training), {key: True})
        assert rewards(path) == (TRAINED, EVALUATED)
    table = f"step,reward,{key}\n0,0.2,False\n0,0.9,True\n1,0.3,False\n"
    (tmp_path / "run.csv").write_text(table)
    assert rewards(tmp_path / "run.csv") == ([0.2, 0.3], [0.9, None])


@pytest.mark.parametrize(
    "marks",
    [
        [{"dataset": "test"}] * 4,
        [{"stage": "warmup", "lr": 0.1}, {"stage": "warmup"}, {"stage": "rl"}, {"stage": "rl"}],
        [{"eval": 1.0}, {}, {"eval": 1.0}, {}],
        [{"eval": True, "eval_accuracy": 0.5}, {"eval": False}] * 2,
    ],
)
def test_other_uses_of_the_words_mark_none(marks: list[dict[str, object]], tmp_path: Path) -> None:
    rows = [
        {"step": step, "reward": reward, **mark}
        for step, (reward, mark) in enumerate(zip(TRAINED, marks, strict=True))
    ]
    (tmp_path / "run.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert rewards(tmp_path / "run.jsonl") == (TRAINED, [])
