"""A process of its own: JSON lines in, JSON lines out, by a user's reward function, or by
math-verify where none is named.

The function is found by import, from the current folder too. What it prints goes to the error
stream. Of math-verify only LaTeX is parsed: its other parser evaluates text as Python. It imports
nothing of this package; `worker` starts it.
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
from types import SimpleNamespace
from typing import Any

from groupwise.parsing import JsonObject

Answering = Callable[[dict[str, Any]], dict[str, Any]]
_MEMORY = 4 << 30  # of math-verify: a hostile answer must not fill the machine


def rewards_of(module: str, name: str) -> Answering:
    """Return what asks the function of a module."""
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 - a text is wanted
    target: Any = importlib.import_module(module)
    for part in name.split("."):
        target = getattr(target, part)
    if not callable(target):
        raise TypeError(f"{name} is no function")
    return lambda question: called(target, question)


def mathematics() -> Answering:
    """Return what says whether two LaTeX answers mean the same, or None where either cannot be
    read.
    """
    from math_verify import LatexExtractionConfig, parse, verify

    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    except (ImportError, ValueError, OSError):
        pass  # some systems know no such limit

    def same(question: JsonObject) -> JsonObject:
        texts, limits = (
            (f"${question['gold']}$", f"${question['found']}$"),
            {"fallback_mode": "no_fallback", "parsing_timeout": None},
        )
        gold, answer = (parse(text, [LatexExtractionConfig()], **limits) for text in texts)
        return {
            "same": bool(answer) and bool(verify(gold, answer, timeout_seconds=None))
            if gold
            else None
        }

    same({"gold": "1", "found": "1"})  # what it loads with the first question takes time
    return same


def called(function: Callable[..., Any], given: JsonObject) -> JsonObject:
    """Return the rewards of rollouts, None where there is no finite number, or what came in the
    place of a list of that length.
    """
    rollouts, given = (
        len(given["completions"]),
        {**given, "trainer_state": SimpleNamespace(**given["trainer_state"])},
    )
    parameters = inspect.signature(function).parameters.values()
    if not any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        given = {
            name: value
            for name, value in given.items()
            if name in {parameter.name for parameter in parameters}
        }
    result = function(**given)
    if inspect.iscoroutine(result):
        result = asyncio.run(result)
    kind = type(result).__name__
    result = result.tolist() if hasattr(result, "tolist") else result  # an array of NumPy or torch
    if not isinstance(result, list | tuple):
        return {"returned": kind}
    if len(result) != rollouts:
        return {"returned": f"a list of {len(result)}"}
    return {"rewards": [number_of(value) for value in result]}


def number_of(value: Any) -> float | None:
    """Return a finite number, or None; a text is none."""
    try:
        number = math.nan if isinstance(value, str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def sentence_of(error: BaseException) -> str:
    """Return what an exception says, in one line."""
    first = (str(error).strip().splitlines() or [""])[0][:160]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def main() -> None:
    """Answer one question a line until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    questions = os.fdopen(os.dup(0), encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)

    def answer(content: JsonObject) -> None:
        answers.write(json.dumps(content) + "\n")
        answers.flush()

    try:
        answering = rewards_of(*sys.argv[1:]) if sys.argv[1:] else mathematics()
    except BaseException as error:  # noqa: BLE001 - whatever a module does when it is imported
        answer({"error": sentence_of(error)})
        return
    answer({"ready": True})
    for line in questions:
        try:
            answer(answering(json.loads(line)))
        except BaseException as error:  # noqa: BLE001
            # whatever is raised: then there is no reward, and nothing is decided
            answer({"error": sentence_of(error)})


if __name__ == "__main__":
    main()
