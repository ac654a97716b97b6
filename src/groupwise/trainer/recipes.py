"""Tasks by name and by recipe: of the embedded policy's, and of language models'."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from groupwise.errors import GroupwiseError, InvalidArgumentError
from groupwise.trainer.file_task import RULES, make_file_task
from groupwise.trainer.tasks import RECIPE, TASKS, Task, UnreadableTaskError, make_task
from groupwise.trainer.text_tasks import TEXT_TASKS, make_text_task


def is_text_task(name: str) -> bool:
    """Return whether a task is asked in words, so that it takes a language model; refuse a name that is no task's."""
    words, symbols = [entry.name for entry in TEXT_TASKS], [family.name for family in TASKS]
    if name not in {*words, *symbols}:
        raise InvalidArgumentError(f"expected a task of {', '.join([*symbols, *words])}; got {name!r}")
    return name in words


def task_of_recipe(recipe: Mapping[str, Any]) -> Task | None:
    """Build a task again; None of a user's own reward, which no file that lies beside weights may name: its code would be run."""
    if "data" in recipe:
        given = {name: value for name, value in recipe.items() if name != "sha256"}
        if recipe.get("reward") not in RULES:
            return None
        found = make_file_task(**given)
        if found.recipe["sha256"] != recipe.get("sha256"):
            raise InvalidArgumentError(f"expected {recipe['data']} as it was, got another content")
        return found
    return make_text_task(**recipe) if is_text_task(str(recipe.get("name"))) else make_task(**recipe)


def readable_by(actor: Any, task: Task) -> Task:
    """Return a task in words as a policy can read it: a language model without a chat template is asked in a text and answers in a line."""
    if not task.recipe.get("chat") or actor.tokenizer.chat_template is not None:
        return task
    found = make_text_task(**{**task.recipe, "chat": False})
    actor.end_at_lines()
    return replace(found, completion_length=task.completion_length)


def read_task(folder: Path) -> Task | None:
    """Return the task of a checkpoint, built again from its recipe; None where none was written."""
    path = folder / RECIPE
    if not path.is_file():
        return None
    try:
        recipe = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(recipe, dict):
            raise TypeError
        return task_of_recipe(recipe)
    except (OSError, ValueError, TypeError, RecursionError, OverflowError) as error:
        said = str(error) if isinstance(error, GroupwiseError) else type(error).__name__
        raise UnreadableTaskError(f"expected the recipe of a task in {path}, got one that builds none ({said}): remove the file") from None
