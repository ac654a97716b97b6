"""A process of its own that calls a user's reward function: JSON lines in, JSON lines out; `user_reward` starts it by `worker`.

The function is found by import, from the current folder too. What it prints goes to the error stream. It imports nothing of this package.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import math
import os
import sys
from collections.abc import Callable
from typing import Any


def function_of(module: str, name: str) -> Callable[..., Any]:
    """Return the function of a module."""
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 - a text is wanted
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    if not callable(found):
        raise TypeError(f"{name} is no function")
    return found  # type: ignore[no-any-return]


def called(function: Callable[..., Any], given: dict[str, Any]) -> list[float | None]:
    """Return what a function gives for rollouts, None where it gives no finite number."""
    parameters = inspect.signature(function).parameters.values()
    if not any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        given = {name: value for name, value in given.items() if name in {parameter.name for parameter in parameters}}
    found = function(**given)
    if inspect.iscoroutine(found):
        found = asyncio.run(found)
    return [number_of(value) for value in found]


def number_of(value: Any) -> float | None:
    """Return a finite number, or None."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def said(error: BaseException) -> str:
    """Return what an exception says, in one line."""
    first = (str(error).strip().splitlines() or [""])[0][:160]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def main() -> None:
    """Answer one question a line until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    questions = os.fdopen(os.dup(0), encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)

    def answer(content: dict[str, Any]) -> None:
        answers.write(json.dumps(content) + "\n")
        answers.flush()

    try:
        function = function_of(sys.argv[1], sys.argv[2])
    except BaseException as error:  # noqa: BLE001 - whatever a module does when it is imported
        answer({"error": said(error)})
        return
    answer({"ready": True})
    for line in questions:
        try:
            answer({"rewards": called(function, json.loads(line))})
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the function raises, the rollouts have no reward
            answer({"error": said(error)})


if __name__ == "__main__":
    main()
