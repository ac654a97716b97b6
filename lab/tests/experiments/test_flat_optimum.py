"""The task with a flat optimum: its constants and its minibatches against an enumeration of
every group of two.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

FOLDER = Path(__file__).resolve().parents[2] / "experiments" / "gradient"


@pytest.fixture(name="flat")
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("flat_optimum")


def test_the_best_size_lies_in_the_range_of_the_paper_and_kappa_near_zero(flat: ModuleType) -> None:
    world = flat.Task().world(np.zeros(flat.WIDTH))
    exact = world.moments()
    assert 16 < 1 + np.sqrt(world.r / world.vp) < 64
    assert (
        abs(exact.kappa_P.mean())
        < 0.01 * (exact.score_norm2_P * exact.reward_variance_P**0.5).mean()
    )


def test_the_error_of_a_minibatch_is_that_of_every_prompt_and_every_group(
    flat: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Groups of two of every fourth prompt, enumerated; and the minibatches that are trained on
    have the enumerated mean and error.
    """
    task = flat.Task()
    task.feature_PAD, task.chance_PA = task.feature_PAD[::40], task.chance_PA[::40]
    monkeypatch.setattr(flat, "PROMPTS", len(task.feature_PAD))
    world = task.world(np.zeros(flat.WIDTH))
    mean_PD, square = [], 0.0
    for prompt in range(len(task.feature_PAD)):
        groups = world.enumerate_groups(2, prompt=prompt)
        advantage_MG = groups.reward_MG - groups.reward_MG[:, ::-1]
        gradient_MD = np.einsum("mgd,mg->md", groups.score_MGD, advantage_MG) / 2
        mean_PD.append(groups.mean(gradient_MD))
        square += float(
            groups.mean(((gradient_MD - world.moments().gradient_D) ** 2).sum(axis=1))
        ) / len(task.feature_PAD)
    assert square == pytest.approx(world.vp + world.t / 2 + world.r / 2, rel=1e-10)
    drawn = flat.gradients(task, np.zeros((4000, flat.WIDTH)), 2, np.random.default_rng(0))
    error = drawn - np.mean(mean_PD, axis=0)
    assert (error**2).sum(axis=1).mean() == pytest.approx(square / (flat.ROLLOUTS // 2), rel=0.08)
    assert np.abs(error.mean(axis=0)).max() < 5 * drawn.std(axis=0).max() / 4000**0.5
