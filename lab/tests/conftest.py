"""Fixtures of the laboratory's tests: those of the instrument, a small task and a warmed-up
policy.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import (
    _fitted_once,
    _server_ended,
    forked,
    impatient,
    made_fitted,
    made_record,
    make_row,
    shared_data,
    trl_run,
    write_state,
)

from groupwise_lab.trainer.tasks import Task, make_task

__all__ = [
    "_fitted_once",
    "_server_ended",
    "forked",
    "impatient",
    "made_fitted",
    "made_record",
    "make_row",
    "shared_data",
    "trl_run",
    "write_state",
]

LABORATORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def small_task() -> Task:
    """Addition modulo 10: prompts of four tokens, completions of two."""
    return make_task("modular_addition", level=1)


@pytest.fixture(scope="session", autouse=True)
def warm_ups(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The cache of warm-ups of all these tests, in whichever worker: none of the user's."""
    base = tmp_path_factory.getbasetemp()
    home = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "warm-ups"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GROUPWISE_CACHE", str(home))
        yield home / "warm-up"


@pytest.fixture(scope="session")
def _warm_policy(small_task: Task, warm_ups: Path) -> Any:
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    from groupwise_lab.trainer.policy import Policy, policy_size
    from groupwise_lab.trainer.warm_up import warm_up

    policy = Policy(policy_size("tiny"), vocabulary_size=len(small_task.vocabulary), seed=0)
    warm_up(policy, small_task, accuracy=0.2, cache=warm_ups)
    return policy


@pytest.fixture
def few_rivals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave statsmodels' slow rivals out where a test is not about them."""
    monkeypatch.setattr("groupwise_lab.forecasts.rivals.MODELS", {})


@pytest.fixture
def make_policy(_warm_policy: Any) -> Callable[[], Any]:
    """The maker of copies of the warmed-up policy."""
    return lambda: copy.deepcopy(_warm_policy)
