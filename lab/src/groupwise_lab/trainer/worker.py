"""A process of its own behind a time limit that holds: it answers a line of JSON with a line of
JSON, in time or not at all.

A limit by signal works in a main thread alone and does not interrupt a long power of integers. The
process starts with the first question, and anew with the next one where it took too long or ended.
math-verify runs in one, and a user's own reward function in TRL's form: `function(prompts,
completions, **columns)` returns a number or None for each rollout. Where it raises, hangs, ends its
process or returns too many, the rollouts are asked one by one, so that one of them costs itself;
what has no finite number is missing (NaN), never 0.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import warnings
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from groupwise.arrays import Float
from groupwise.errors import (
    GroupwiseError,
    GroupwiseWarning,
    InvalidArgumentError,
    check_installed,
)
from groupwise.parsing import JsonView
from groupwise_lab.trainer.rewards import Problem, Rewards

_PROGRAM = Path(__file__).with_name("worker_program.py")
_START_LIMIT = 120.0
Reply = dict[str, Any]


class Worker:
    """A program that answers questions; its first answer says that it is ready."""

    def __init__(self, *arguments: str, heard: bool = False) -> None:
        # -P: the program's folder is not searched for modules, so that none of ours can be taken
        # for one of its libraries.
        self._command = [sys.executable, "-P", str(_PROGRAM), *arguments]
        self._heard = heard  # whether what the process says on its error stream is shown
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str] = queue.Queue()
        self._ending: Any = None

    def start(self) -> Reply | None:
        """Start the process where there is none and return its first answer; None where none
        came, and an empty one where it runs.
        """
        if self._process is not None:
            return {}
        self._lines = queue.Queue()
        # A session of its own: Ctrl-C ends the run after its step, in which the process is still
        # asked. What it starts ends with it.
        self._process = subprocess.Popen(  # noqa: S603 - our own file
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if self._heard else subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            start_new_session=True,
        )
        self._ending = weakref.finalize(self, _end, self._process)
        assert self._process.stdout is not None
        threading.Thread(
            target=_read, args=(self._process.stdout, self._lines), daemon=True
        ).start()
        answer, _ = self._answer(_START_LIMIT)
        if answer is None:
            self.close()
        return answer

    def ask(self, question: JsonView, *, limit: float) -> tuple[Reply | None, bool]:
        """Return the answer to a question, or None and whether it took too long; the process has
        ended then.
        """
        assert self._process is not None
        assert self._process.stdin is not None
        late = False
        answer: Reply | None = None
        with contextlib.suppress(OSError):
            self._process.stdin.write(json.dumps(question, default=str) + "\n")
            self._process.stdin.flush()
            answer, late = self._answer(limit)
        if answer is None:
            self.close()
        return answer, late

    def close(self) -> None:
        """End the process, if there is one."""
        self._process = None
        if self._ending is not None:
            self._ending()

    def _answer(self, limit: float) -> tuple[Reply | None, bool]:
        """Return the next line of the process, or None where it ends, or takes too long."""
        try:
            line = self._lines.get(timeout=limit)
        except queue.Empty:
            return None, True
        return (dict(json.loads(line)), False) if line else (None, False)


def _end(process: subprocess.Popen[str]) -> None:
    """End a process with whatever it has started."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()


def _read(stream: IO[str], lines: queue.Queue[str]) -> None:
    """Hand on lines; an empty one at the end."""
    with contextlib.suppress(ValueError, OSError):
        for line in stream:
            lines.put(line)
    lines.put("")


def check_limit(limit: float) -> None:
    """Refuse a time limit that is none."""
    if not (limit > 0 and math.isfinite(limit)):
        raise InvalidArgumentError(f"expected a time limit in seconds above 0, got {limit}")


class MathVerify:
    """Whether two answers mean the same, by math-verify; it decides nothing by itself."""

    def __init__(self, *, limit: float = 5.0) -> None:
        check_limit(limit)
        check_installed("math_verify", what="its verdict on answers")
        self.limit, self.timeouts = limit, 0
        self._worker = Worker()
        self.close = self._worker.close
        self._verdicts: dict[tuple[str, str], bool | None] = {}

    def __call__(self, gold: str, text: str) -> bool | None:
        """Return whether two answers mean the same; None where that cannot be decided in time."""
        if (gold, text) in self._verdicts:
            return self._verdicts[gold, text]
        first = self._worker.start()
        if first is None or "error" in first:
            raise GroupwiseError(
                "expected math-verify to start, got nothing from it: reinstall it: pip install "
                "--force-reinstall math-verify"
            )
        answer, _ = self._worker.ask({"gold": gold, "found": text}, limit=self.limit)
        self.timeouts += answer is None
        same = None if answer is None else answer.get("same")
        self._verdicts[gold, text] = same if isinstance(same, bool) else None
        return self._verdicts[gold, text]


_NAME = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*(?:\.[^\W\d]\w*)*")
# processes of one batch: each may have taken the whole time limit, and the next one has to start
_MOST_LOST = 3
_MOST_HUNG = 3  # batches in a row of which no call came to its end: by then it never does
_ENDED = "its process ended"


class RewardWarning(GroupwiseWarning):
    """A reward function gave no reward for some rollouts."""


class UserReward:
    """A verifier that asks a user's function."""

    def __init__(self, name: str, rows: Sequence[JsonView], *, limit: float = 60.0) -> None:
        check_limit(limit)
        if not _NAME.fullmatch(name):
            raise InvalidArgumentError(
                f"--reward expects MODULE:FUNCTION, exact, number or math_verify; got {name[:60]!r}"
            )
        self.name, self._rows, self.limit = name, rows, limit
        module, function = name.split(":")
        self.weights: Mapping[str, float] = {function: 1.0}
        self.asked = self.missing = 0  # rollouts so far, and those without a reward
        self._warned = False  # of a batch that had to be asked one by one
        self._hung = 0  # batches in a row of which every call took too long
        self._worker = Worker(module, function, heard=True)
        self._part = function
        self.close = self._worker.close

    def check(self) -> None:
        """Refuse a function that cannot be imported, before anything else is done."""
        self._started()

    @property
    def stuck(self) -> str:
        """What is said of a function that hangs for good, or nothing."""
        if self._hung < _MOST_HUNG:
            return ""
        why = f"{self._hung} batches in a row without an answer within {self.limit:g} s"
        return (
            f"expected rewards of {self.name}, got {why}: mend it, or set a longer reward_limit, "
            "and go on by --resume"
        )

    def __call__(
        self,
        problems: Sequence[Problem],
        completions: Sequence[str],
        ended: Sequence[bool],
        *,
        step: int = 0,
        completion_ids: Sequence[Sequence[int]] | None = None,
    ) -> Rewards:
        """Judge completions; the function gets their tokens too, where they are given."""
        del ended
        request = self._question(list(zip(problems, completions, strict=True)))
        request |= {} if completion_ids is None else {"completion_ids": list(completion_ids)}
        state = {"global_step": max(0, step - 1)}  # updates that are done, as in TRL
        values, reason = self._rewards_of(request, state)
        if values is None:
            values = self._one_by_one(request, state)
        missing = int(np.isnan(values).sum())
        self._hung = self._hung + 1 if reason == self._too_long and missing == len(values) else 0
        if missing and not self.missing:
            why = reason or "it returned None or no finite number"
            sentence = (
                f"{self.name} gave no reward for {missing} of {len(values)} rollouts of "
                f"step {step} ({why}): they count for nothing"
            )
            warnings.warn(RewardWarning(sentence), stacklevel=2)
        elif reason and not self._warned:
            sentence = (
                f"{self.name} failed for the {len(values)} rollouts of step {step} ({reason}): it "
                "was asked for each alone, which is slow"
            )
            warnings.warn(RewardWarning(sentence), stacklevel=2)
        self._warned = self._warned or bool(reason)
        self.asked, self.missing = self.asked + len(values), self.missing + missing
        return {self._part: values}

    def _one_by_one(self, request: Mapping[str, Sequence[Any]], state: Mapping[str, int]) -> Float:
        """Ask for each rollout alone, as far as that may help: not after a few that ended the
        process, or a batch that hung wholly.
        """
        count = len(request["completions"])
        values = np.full(count, np.nan)
        lost = 0
        for place in range(count) if count > 1 and not self._hung else ():
            rollout, why = self._rewards_of(
                {name: values[place : place + 1] for name, values in request.items()}, state
            )
            if rollout is not None:
                values[place] = rollout[0]
            lost += why in {self._too_long, _ENDED}
            if lost == _MOST_LOST:
                break
        return values

    def _rewards_of(
        self, request: Mapping[str, Sequence[Any]], state: Mapping[str, int]
    ) -> tuple[Float | None, str]:
        """Return the rewards of rollouts, NaN where there is none, with the reason; None where
        asking for each alone may help.
        """
        self._started()
        answer, late = self._worker.ask({**request, "trainer_state": state}, limit=self.limit)
        if answer is None:
            return None, self._too_long if late else _ENDED
        if "error" in answer:
            return None, f"it raised {answer['error']}"
        count = len(request["completions"])
        if "returned" in answer:
            return np.full(
                count, np.nan
            ), f"it returned {answer['returned']}, not a list of {count}"
        return np.array(
            [np.nan if reward is None else reward for reward in answer["rewards"]], dtype=np.float64
        ), ""

    @property
    def _too_long(self) -> str:
        """What is said of a call that took too long."""
        return f"it took more than {self.limit:g} s"

    def _question(self, rollouts: Sequence[tuple[Problem, str]]) -> dict[str, list[Any]]:
        """Return prompts, completions and every column of the file, as lists; the completion of
        messages is a message.
        """
        rows = [
            self._rows[problem.row] if problem.row is not None else {} for problem, _ in rollouts
        ]
        columns = {
            name: [row.get(name) for row in rows]
            for name in dict.fromkeys(name for row in rows for name in row)
        }
        completions = [
            text if isinstance(problem.prompt, str) else [{"role": "assistant", "content": text}]
            for problem, text in rollouts
        ]
        return columns | {
            "prompts": [problem.prompt for problem, _ in rollouts],
            "completions": completions,
        }

    def _started(self) -> None:
        """Start the process where there is none."""
        first = self._worker.start()
        if first is None or "error" in first:
            self._worker.close()
            reason = "nothing from it in two minutes" if first is None else first["error"]
            raise InvalidArgumentError(
                f"expected to import the reward {self.name}, got {reason}: name MODULE:FUNCTION, "
                "found from here"
            )
