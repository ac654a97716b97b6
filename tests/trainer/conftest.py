"""What the trainer's tests share: a task of a hundred problems, a policy of 26,000 parameters, and one warmed up on it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from groupwise.trainer.tasks import Task, make_task


@pytest.fixture(scope="session")
def small_task() -> Task:
    """Addition modulo 10: prompts of four tokens, completions of two."""
    return make_task("modular_addition", level=1)


@pytest.fixture(scope="session")
def _warm_policy(small_task: Task) -> Any:
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    from groupwise.trainer.policy import Policy, policy_size
    from groupwise.trainer.warm_up import warm_up

    policy = Policy(policy_size("tiny"), vocabulary_size=len(small_task.vocabulary), seed=0)
    warm_up(policy, small_task, accuracy=0.2)
    return policy


@pytest.fixture
def make_policy(_warm_policy: Any) -> Callable[[], Any]:
    """The maker of copies of the warmed-up policy."""
    return lambda: copy.deepcopy(_warm_policy)
