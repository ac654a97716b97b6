"""What the instrument says to do, done to the settings and the task of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from faults import Changed

from groupwise.diagnostics.judgement import Action
from groupwise_lab.trainer.rewards import Problem, Rewards, Verifier
from groupwise_lab.trainer.settings import TrainSettings
from groupwise_lab.trainer.tasks import LONGEST_SEQUENCE, Task


@dataclass(frozen=True)
class Course:
    """How a run goes on."""

    settings: TrainSettings
    task: Task
    mended: Verifier  # the verifier as it is meant to be
    informative: Sequence[Problem] = ()  # problems of which some completions earned more
    easier: Sequence[Problem] = ()  # of a level below
    step: int | None = None  # to go back to; None goes on from here
    stopped: bool = False
    longest: float = LONGEST_SEQUENCE  # tokens of prompt and completion that the policy reads


def masked(rewards: Rewards, _: Any, __: Any, ended: Sequence[bool]) -> Rewards:
    """A completion without an end gets no reward: it is left out of the loss."""
    ended_N = np.asarray(ended, dtype=bool)
    return {name: np.where(ended_N, part_N, np.nan) for name, part_N in rewards.items()}


def _set(course: Course, **settings: Any) -> Course:
    """Return the course with other settings."""
    return replace(course, settings=replace(course.settings, **settings))


def _grouped(course: Course, action: Action) -> Course:
    """Return the course with another group size, at most one that leaves two prompts."""
    settings, size = course.settings, action.value
    wanted = action.factor * settings.group_size if action.factor else size or 0
    rollouts = settings.rollouts_per_step
    sizes = [candidate for candidate in range(2, rollouts // 2 + 1) if rollouts % candidate == 0]
    return _set(course, group_size=min(sizes, key=lambda candidate: abs(candidate - wanted)))


def _limited(course: Course, action: Action) -> Course:
    """Return the course with another limit of a completion, within the policy's context."""
    length = round((action.factor or 1) * course.task.completion_length)
    length = min(length, course.longest - course.task.prompt_length)
    return replace(course, task=replace(course.task, completion_length=int(length)))


def _judged_by(course: Course, verifier: Verifier) -> Course:
    """Return the course with another verifier."""
    return replace(course, task=replace(course.task, verifier=verifier))


def _filtered(course: Course, _: Action) -> Course:
    """Return the course on the problems that teach, on easier ones where none does."""
    train = tuple(course.informative or course.easier) or course.task.train
    return replace(course, task=replace(course.task, train=train))


def _synchronous(course: Course, _: Action) -> Course:
    """Return the course without any lag."""
    return _set(course, lag_kind="none", refresh_interval=1)


def _mended(course: Course, _: Action) -> Course:
    """Return the course with the verifier as it is meant to be."""
    return _judged_by(course, course.mended)


# The trainer's own policy samples in one turn; neither its loss nor its world has a fault.
_IDLE = "look clip resume weights sampling tokens routing loss environment stop_token turns"
_APPLY: Mapping[str, Callable[[Course, Action], Course]] = {
    "restart": lambda course, action: replace(course, step=int(action.value or 0)),
    "anew": lambda course, _: replace(course, step=0),
    "rate": lambda course, action: _set(
        course, learning_rate=(action.factor or 1) * course.settings.learning_rate
    ),
    "warm_up": lambda course, action: _set(course, ramp_steps=int(action.value or 0)),
    "updates": _synchronous,
    "age": _synchronous,
    "synchronise": _synchronous,
    "limit": _limited,
    "mask": lambda course, _: _judged_by(course, Changed(course.task.verifier, masked)),
    "group_size": _grouped,
    "prompts": lambda course, action: _set(
        course, rollouts_per_step=round((action.factor or 1) * course.settings.rollouts_per_step)
    ),
    "filter": _filtered,
    "reward": _mended,
    "verifier": _mended,
    "precision": lambda course, _: _set(course, precision="float32"),
    "ratio": lambda course, _: _set(course, importance_ratio="token"),
    **dict.fromkeys(
        ("baseline", "deviation"), lambda course, _: _set(course, advantage="leave_one_out")
    ),
    "clip_gradient": lambda course, action: _set(course, gradient_clip=action.value),
    "clip_high": lambda course, action: (  # a loss without a clip has no edge to move
        course if course.settings.clip is None else _set(course, clip_high=action.value)
    ),
    "reference": lambda course, action: _set(course, kl_weight=action.value),
    "stop": lambda course, _: replace(course, stopped=True),
    **dict.fromkeys(_IDLE.split(), lambda course, _: course),
}


def followed(course: Course, actions: Sequence[Action]) -> Course:
    """Return the course of a run whose user does what is said, in its order; prompts are filtered
    where no verifier is to be mended.
    """
    for action in actions:
        if action.kind != "filter" or actions[0].kind != "verifier":
            course = _APPLY[action.kind](course, action)
    return course
