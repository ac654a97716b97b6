"""A task of a user's own: prompts and answers from a file, judged by a rule or by the user's
function; and any task from its recipe.

A prompt is a text or the messages of a chat. Rows without one, or without an answer where the
reward or any row has one, are counted and left out.
"""

from __future__ import annotations

import hashlib
import json
import math
import operator
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from groupwise.errors import (
    GroupwiseError,
    GroupwiseWarning,
    InsufficientDataError,
    InvalidArgumentError,
    named,
    one_sentence,
)
from groupwise.parsing import JsonObject, JsonView
from groupwise.prompts import is_chat, prompt_of
from groupwise_lab.trainer.benchmarks import (
    cell_text,
    extract_answer,
    is_right,
    number_of,
    read_rows,
)
from groupwise_lab.trainer.rewards import Problem, TaskVerifier, Verifier
from groupwise_lab.trainer.tasks import (
    RECIPE,
    TASKS,
    Task,
    TaskFamily,
    UnreadableTaskError,
    check_split,
    make_task,
)
from groupwise_lab.trainer.text_tasks import (
    TEXT_TASKS,
    TextTask,
    in_texts,
    make_text_task,
    split,
    task_of_problems,
)
from groupwise_lab.trainer.worker import MathVerify, UserReward

if TYPE_CHECKING:
    from groupwise_lab.trainer.language_policy import LanguagePolicy

RULES = ("exact", "number", "math_verify")
COMPLETION_LENGTH = 256
_MARKS = ("####", "\\boxed", "\\fbox")


class LeftOutWarning(GroupwiseWarning):
    """Rows of a file are left out."""


# the form of every reward function
def same_text(problem: Problem, completion: str, ended: bool) -> float:  # noqa: FBT001
    """Return 1 for the answer and its end, spaces around it apart, else 0."""
    return float(ended and completion.strip() == problem.answer.strip())


def same_number(problem: Problem, completion: str, ended: bool) -> float:  # noqa: FBT001
    """Return 1 where the final answer of the completion is the number that the row has."""
    del ended
    return float(is_right(problem.answer, extract_answer(completion), kind="number") is True)


@dataclass(frozen=True)
class SameMathematics:
    """Reward of 1 where math-verify takes the final answer for the right one; none where it
    cannot say.
    """

    judge: MathVerify

    def __call__(self, problem: Problem, completion: str, ended: bool) -> float:  # noqa: FBT001
        """Return 1, 0, or NaN."""
        del ended
        right = is_right(problem.answer, extract_answer(completion), kind="math", same=self.judge)
        return float("nan") if right is None else float(right)


def make_file_task(
    data: str | Path,
    *,
    reward: str,
    prompt_column: str = "prompt",
    answer_column: str = "answer",
    seed: int = 0,
    problems: int = 10_000,
    held_out_share: float = 0.2,
    reward_limit: float = 60.0,
) -> Task:
    """Build a task of a file of JSONL, JSON, Parquet or CSV; `reward` is exact, number,
    math_verify or MODULE:FUNCTION.
    """
    path = Path(data)
    check_split(seed, problems, held_out_share)
    rows = read_rows(path)
    with one_sentence(f"to read {path}", "check the file"), path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    columns = [prompt_column]
    if reward in RULES or any(row.get(answer_column) is not None for row in rows):
        columns.append(answer_column)
    for column, option in zip(columns, ("--prompt-column", "--answer-column"), strict=False):
        _check_column(rows, column, path, option)
    usable = [
        problem
        for number, row in enumerate(rows)
        if (problem := _problem(row, number, columns, reward, path.stem)) is not None
    ]
    _tell(len(rows), len(usable), path, reward, columns)
    sides = split(
        [problem.text for problem in usable], np.random.default_rng(seed), problems, held_out_share
    )
    train, held_out = ([usable[place] for place in side] for side in sides)
    recipe: JsonObject = {"data": str(path), "sha256": digest, "reward": reward}
    recipe |= {"prompt_column": prompt_column, "answer_column": answer_column, "seed": seed}
    recipe |= {"problems": problems, "held_out_share": held_out_share}
    return task_of_problems(
        path.stem, train, held_out, COMPLETION_LENGTH, _verifier(reward, rows, reward_limit), recipe
    )


def _verifier(reward: str, rows: Sequence[JsonView], limit: float) -> Verifier:
    """Return what judges completions."""
    if reward in RULES:
        judge = (
            SameMathematics(MathVerify())
            if reward == "math_verify"
            else same_text
            if reward == "exact"
            else same_number
        )
        return TaskVerifier({reward: judge}, {reward: 1.0})
    own = UserReward(reward, rows, limit=limit)
    own.check()
    return own


def _problem(
    row: JsonView, number: int, columns: Sequence[str], reward: str, family: str
) -> Problem | None:
    """Return the problem of a row, or None where it has no prompt, or no answer that the reward
    can use.
    """
    prompt = _prompt(row.get(columns[0]))
    answer = _answer(row.get(columns[1]), reward) if len(columns) > 1 else ""
    return None if prompt is None or answer is None else Problem(prompt, answer, family, 0, number)


def _answer(value: Any, reward: str) -> str | None:
    """Return the answer of a row as a text, or None where the reward can use none: a function
    takes every value but null and NaN.
    """
    if reward not in RULES:
        missing = value is None or value != value  # NaN alone differs from itself
        return (
            None if missing else value if isinstance(value, str) else json.dumps(value, default=str)
        )
    answer = cell_text(value)
    if reward == "number" or (reward == "math_verify" and any(mark in answer for mark in _MARKS)):
        answer = extract_answer(answer) or ""
    return answer if answer and (reward != "number" or number_of(answer) is not None) else None


def _prompt(value: Any) -> str | tuple[Mapping[str, str], ...] | None:
    """Return a prompt as a text or as messages, or None where there is none."""
    value = prompt_of(value) if isinstance(value, str) else value
    if isinstance(value, str):
        return value if value.strip() else None
    if not is_chat(value) or not all(
        isinstance(message[key], str) for message in value for key in ("role", "content")
    ):
        return None
    return tuple({"role": message["role"], "content": message["content"]} for message in value)


def _check_column(rows: Sequence[JsonView], column: str, path: Path, option: str) -> None:
    """Refuse a file without rows, or without a column."""
    if not rows:
        raise InsufficientDataError(f"expected rows in {path}, got none: give another file")
    if not any(column in row for row in rows):
        there = ", ".join(dict.fromkeys(str(name)[:40] for row in rows[:100] for name in row))
        raise InvalidArgumentError(
            f"expected a column {column!r} in {path}, got {there[:200]}: name it with {option}"
        )


def _tell(rows: int, usable: int, path: Path, reward: str, columns: Sequence[str]) -> None:
    """Say how many rows are left out; refuse a file of which none is left."""
    needed = " and ".join(columns) + (" (a number)" if reward == "number" else "")
    if not usable:
        raise InsufficientDataError(
            f"expected rows with {needed} in {path}, got none of {rows}: give another file, or "
            "name its columns"
        )
    if usable < rows:
        text = (
            f"{rows - usable} of {rows} rows of {path.name} have no "
            f"{needed.replace(' and ', ', or no ')}: they are left out"
        )
        warnings.warn(LeftOutWarning(text), stacklevel=3)


def is_text_task(name: str) -> bool:
    """Return whether a task is asked in words, so that it takes a language model; refuse a name
    that is no task's.
    """
    families: list[TaskFamily | TextTask] = [*TASKS, *TEXT_TASKS]
    return isinstance(named(name, families, "a task"), TextTask)


def task_of_recipe(recipe: JsonView) -> Task | None:
    """Build a task again; None of a user's own reward, which no file that lies beside weights
    may name: its code would be run.
    """
    if "data" in recipe:
        given = {name: value for name, value in recipe.items() if name != "sha256"}
        if recipe.get("reward") not in RULES:
            return None
        task = make_file_task(**given)
        if task.recipe["sha256"] != recipe.get("sha256"):
            raise InvalidArgumentError(f"expected {recipe['data']} as it was, got another content")
        return task
    if not is_text_task(str(recipe.get("name"))):
        return make_task(**recipe)
    task = make_text_task(**{name: value for name, value in recipe.items() if name != "chat"})
    return task if recipe.get("chat", True) else in_texts(task)


def readable_by(actor: Any, task: Task) -> Task:
    """Return a task in words as a policy can read it: a language model without a chat template
    is asked in a text and answers in a line.
    """
    if not task.recipe.get("chat") or actor.tokenizer.chat_template is not None:
        return task
    texts = in_texts(task)
    actor.end_at_lines()
    return texts


def within_context(actor: LanguagePolicy, task: Task) -> tuple[Task, int, str]:
    """Return a task without prompts that leave no room for a completion in the context, the most
    tokens to train on, and whose.
    """
    sized = [
        [(len(actor.encoded(problem.prompt)), problem) for problem in side]
        for side in (task.train, task.held_out)
    ]
    context, length, every = (
        actor.context or math.inf,
        task.completion_length,
        [*sized[0], *sized[1]],
    )
    train, held_out = (
        [(size, problem) for size, problem in side if size + length - 1 <= context]
        for side in sized
    )
    left = [(size, problem) for size, problem in every if size + length - 1 > context]
    if left:
        size, first = min(left, key=lambda pair: pair[1].row or 0)
        got, limits = (
            f"{_which(first)} has {size:,}",
            f"the model's context of {context:,} tokens with {length:,} of completion",
        )
        if not train:
            raise InvalidArgumentError(
                f"expected prompts of {task.name} that fit {limits}, got none to train on ({got}): "
                "lower --max-completion-length, or take a model of a longer context"
            )
        text = (
            f"{len(left)} of {len(every)} prompts of {task.name} do not fit {limits} ({got}): they "
            "are left out"
        )
        warnings.warn(LeftOutWarning(text), stacklevel=3)
        task = replace(
            task,
            train=tuple(problem for _, problem in train),
            held_out=tuple(problem for _, problem in held_out),
        )
    most, longest = max(train, key=operator.itemgetter(0))
    return task, most, _which(longest)


def _which(problem: Problem) -> str:
    """Name a problem by its row, or by what it asks."""
    return repr(problem.question[:40]) if problem.row is None else f"row {problem.row + 1}"


def read_task(folder: Path) -> Task | None:
    """Return the task of a checkpoint, built again from its recipe; None where none was written."""
    path = folder / RECIPE
    if not path.is_file():
        return None
    try:
        return task_of_recipe(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        reason = str(error) if isinstance(error, GroupwiseError) else type(error).__name__
        raise UnreadableTaskError(
            f"expected the recipe of a task in {path}, got one that builds none ({reason}): remove "
            "the file"
        ) from None
