"""A user's own reward function as a verifier: called in a process of its own, in TRL's form, and never believed to have said 0.

`function(prompts, completions, **columns)` returns a number or None for each rollout. Where it raises, hangs, ends its process or returns
too many, the rollouts are asked one by one, so that one of them costs itself; what has no finite number is missing (NaN).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groupwise.errors import GroupwiseWarning, InvalidArgumentError
from groupwise.trainer.math_judge import check_limit
from groupwise.trainer.rewards import Problem, Rewards
from groupwise.trainer.worker import Worker

_PROGRAM = Path(__file__).with_name("reward_worker.py")
_NAME = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_MOST_LOST = 3  # processes of one batch: each may have taken the whole time limit, and the next one has to start
Row = Mapping[str, Any]
_ENDED = "its process ended"


class RewardWarning(GroupwiseWarning):
    """A reward function gave no reward for some rollouts."""


class UserReward:
    """A verifier that asks a user's function."""

    def __init__(self, name: str, rows: Sequence[Row], *, limit: float = 60.0) -> None:
        check_limit(limit)
        if not _NAME.fullmatch(name):
            raise InvalidArgumentError(f"--reward expects MODULE:FUNCTION, exact, number or math_verify; got {name[:60]!r}")
        self.name, self._rows, self.limit = name, rows, limit
        module, function = name.split(":")
        self.weights: Mapping[str, float] = {function: 1.0}
        self.asked = self.missing = 0  # rollouts so far, and those without a reward
        self._worker = Worker(_PROGRAM, (module, function), heard=True)
        self._part = function

    def check(self) -> None:
        """Refuse a function that cannot be imported, before anything else is done."""
        self._started()

    def __call__(self, problems: Sequence[Problem], completions: Sequence[str], ended: Sequence[bool], *, step: int = 0) -> Rewards:
        """Judge completions."""
        del ended
        rollouts = list(zip(problems, completions, strict=True))
        found, reason = self._asked(rollouts)
        if found is None:
            found, reason = self._one_by_one(rollouts, reason)
        missing = int(np.isnan(found).sum())
        if missing and not self.missing:
            why = reason or "it returned None or no finite number"
            said = f"{self.name} gave no reward for {missing} of {len(found)} rollouts of step {step} ({why}): they count for nothing"
            warnings.warn(RewardWarning(said), stacklevel=2)
        self.asked, self.missing = self.asked + len(found), self.missing + missing
        return {self._part: found}

    def close(self) -> None:
        """End the process."""
        self._worker.close()

    def _one_by_one(self, rollouts: Sequence[tuple[Problem, str]], reason: str) -> tuple[NDArray[np.float64], str]:
        """Ask for each rollout alone; after a few that ended the process the others are missing too."""
        found = np.full(len(rollouts), np.nan)
        lost = 0
        for place, rollout in enumerate(rollouts if len(rollouts) > 1 else ()):
            one, why = self._asked([rollout])
            if one is not None:
                found[place] = one[0]
            lost += why in {self._too_long, _ENDED}
            if lost == _MOST_LOST:
                break
        return found, reason

    def _asked(self, rollouts: Sequence[tuple[Problem, str]]) -> tuple[NDArray[np.float64] | None, str]:
        """Return the rewards of rollouts, NaN where there is none, or None with the reason why there are none at all."""
        self._started()
        answer, late = self._worker.ask(self._question(rollouts), limit=self.limit)
        if answer is None:
            return None, self._too_long if late else _ENDED
        if "error" in answer:
            return None, f"it raised {answer['error']}"
        rewards = answer["rewards"]
        if len(rewards) != len(rollouts):
            return None, f"it returned {len(rewards)} rewards for {len(rollouts)}"
        return np.array([np.nan if reward is None else reward for reward in rewards], dtype=np.float64), ""

    @property
    def _too_long(self) -> str:
        """What is said of a call that took too long."""
        return f"it took more than {self.limit:g} s"

    def _question(self, rollouts: Sequence[tuple[Problem, str]]) -> dict[str, Any]:
        """Return prompts, completions and every column of the file, as lists; the completion of messages is a message."""
        rows = [self._rows[problem.row] if problem.row is not None else {} for problem, _ in rollouts]
        columns = {name: [row.get(name) for row in rows] for name in dict.fromkeys(name for row in rows for name in row)}
        completions = [text if isinstance(problem.prompt, str) else [{"role": "assistant", "content": text}] for problem, text in rollouts]
        return columns | {"prompts": [problem.prompt for problem, _ in rollouts], "completions": completions}

    def _started(self) -> None:
        """Start the process where there is none."""
        first = self._worker.start()
        if first is None or "error" in first:
            self._worker.close()
            said = "nothing from it in two minutes" if first is None else first["error"]
            raise InvalidArgumentError(f"expected to import the reward {self.name}, got {said}: name MODULE:FUNCTION, found from here")
