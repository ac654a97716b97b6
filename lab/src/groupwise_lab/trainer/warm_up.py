"""Supervised warm-up: teach a policy the right answers until it is right with a chosen probability,
once, and keep the result on disk.

From random weights no completion is right and reinforcement has nothing to work on. The same task,
size, target and seed give the same checkpoint from the cache, so that runs differ in what they are
compared for. No reward is looked at.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from groupwise.errors import (
    GroupwiseError,
    GroupwiseWarning,
    InsufficientDataError,
    InvalidArgumentError,
)
from groupwise.plain import frozen

if TYPE_CHECKING:
    from torch import Tensor

    from groupwise_lab.trainer.policy import Policy
    from groupwise_lab.trainer.rewards import Problem
    from groupwise_lab.trainer.tasks import Task

_RECIPE = (
    1  # to be raised with every change of what warm_up does: older checkpoints are then made anew
)
_BATCH = 256
_CHECKED = 512
_LEARNING_RATE = 2e-3


@frozen
class WarmUp:
    """What a warm-up came to."""

    accuracy: float  # probability of the right completion, mean over problems to train on
    steps: int  # supervised updates; 0 where it came from the cache or was not needed
    folder: Path | None  # of the checkpoint, or None where none was kept


def warm_up(
    policy: Policy,
    task: Task,
    *,
    accuracy: float,
    seed: int = 0,
    cache: Path | None = None,
    most_steps: int = 5000,
    on_step: Callable[[int, float], None] | None = None,
) -> WarmUp:
    """Teach `policy` the answers of the training problems until it is right with the probability
    `accuracy`, and no further.

    Adam on the log-probability of the answer and END, 256 problems an update; the probability is
    measured on 512 problems, without sampling, after every update once it is near.
    """
    if not 0 < accuracy < 1:
        raise InvalidArgumentError(
            f"expected an accuracy between 0 and 1 to warm up to, got {accuracy:g}: 0.2 is a good "
            "start"
        )
    folder = (
        None
        if cache is None
        else cache / f"{task.name}-{_fingerprint(policy, task, accuracy, seed)}"
    )
    cached = None if folder is None else _from_cache(policy, folder)
    if cached is not None:
        return cached
    reached, steps = _taught(policy, task, accuracy, seed, most_steps, on_step)
    try:
        if folder is not None:
            _keep(policy, task, folder, reached, steps)
    except GroupwiseError as error:
        warnings.warn(
            GroupwiseWarning(
                f"the warm-up is not kept: {error}; its folder is set by --set cache=FOLDER"
            ),
            stacklevel=2,
        )
        folder = None
    return WarmUp(reached, steps, folder)


def default_cache() -> Path:
    """Return the folder of cached warm-ups: $GROUPWISE_CACHE, or the user's own cache."""
    given = os.environ.get("GROUPWISE_CACHE")
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return (Path(given) if given else Path(home) / "groupwise") / "warm-up"


def right_probability(policy: Policy, task: Task, problems: tuple[Problem, ...]) -> float:
    """Return the mean probability of the right completion: the exact accuracy of sampling."""
    import torch

    total = 0.0
    with torch.no_grad():
        for start in range(0, len(problems), 2048):
            log_NL, mask_NL = _answers(policy, task, problems[start : start + 2048])
            total += float((log_NL * mask_NL).sum(1).exp().double().sum())
    return total / len(problems)


def _answers(policy: Policy, task: Task, problems: tuple[Problem, ...]) -> tuple[Tensor, Tensor]:
    """Return the log-probability of every token of the right completions, and which of them
    count.
    """
    answer_NL, mask_NL = policy.answer_tokens(task, problems)
    return policy.log_probabilities(policy.prompt_tokens(task, problems), answer_NL), mask_NL


def _taught(
    policy: Policy,
    task: Task,
    accuracy: float,
    seed: int,
    most_steps: int,
    on_step: Callable[[int, float], None] | None,
) -> tuple[float, int]:
    """Train until the target is reached."""
    import torch

    draw = np.random.default_rng([seed, 77])
    checked = tuple(task.train[place] for place in draw.permutation(len(task.train))[:_CHECKED])
    optimizer = torch.optim.Adam(policy.parameters(), lr=_LEARNING_RATE)
    reached = right_probability(policy, task, checked)
    for step in range(1, most_steps + 1):
        if reached >= accuracy:
            return reached, step - 1
        problems = tuple(task.train[place] for place in draw.integers(len(task.train), size=_BATCH))
        log_NL, mask_NL = _answers(policy, task, problems)
        loss = -(log_NL * mask_NL).sum() / mask_NL.sum()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        # The rise is abrupt: near the target every update is measured.
        if step % 5 == 0 or reached > 0.25 * accuracy:
            reached = right_probability(policy, task, checked)
        if on_step is not None:
            on_step(step, reached)
    for parameter in policy.parameters():
        parameter.grad = None
    if reached < accuracy:
        raise InsufficientDataError(
            f"expected the warm-up on {task.name} to reach {accuracy:g}, got {reached:.3g} after "
            f"{most_steps} updates: take an easier level, a larger policy or a lower target"
        )
    return reached, most_steps


def _fingerprint(policy: Policy, task: Task, accuracy: float, seed: int) -> str:
    """Return what tells one warm-up from another: recipe, task, initial weights, target and
    seed.
    """
    facts = [
        _RECIPE,
        task.vocabulary.symbols,
        task.prompt_length,
        task.completion_length,
        accuracy,
        seed,
        policy.context,
    ]
    digest = hashlib.sha256(
        json.dumps([*facts, [[problem.text, problem.answer] for problem in task.train]]).encode()
    )
    for name, tensor in policy.state_dict().items():
        digest.update(name.encode() + np.ascontiguousarray(tensor.cpu().numpy()).tobytes())
    return digest.hexdigest()[:16]


def _from_cache(policy: Policy, folder: Path) -> WarmUp | None:
    """Put cached weights into the policy; a damaged entry counts as none."""
    from groupwise_lab.trainer.checkpoints import NOTE, load_policy, read_json

    try:
        about = read_json(folder / NOTE)
        kept = load_policy(folder, size=policy.size, vocabulary_size=policy.vocabulary_size)
        policy.load_state_dict(kept.state_dict())
        return WarmUp(float(about["accuracy"]), 0, folder)
    except (GroupwiseError, KeyError, TypeError, ValueError, RuntimeError):
        return None


def _keep(policy: Policy, task: Task, folder: Path, accuracy: float, steps: int) -> None:
    """Save the weights with what they reached."""
    from groupwise_lab.trainer.checkpoints import NOTE, whole_folder, write_json, write_policy

    with whole_folder(folder) as partial:
        write_policy(policy, partial, task.vocabulary)
        write_json(partial / NOTE, {"task": task.name, "accuracy": accuracy, "steps": steps})
