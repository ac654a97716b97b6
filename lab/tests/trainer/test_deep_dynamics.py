"""The pieces of lab/experiments/predictable_grpo/deep_dynamics.py on what is known, and a run of
four updates.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

FOLDER = Path(__file__).resolve().parents[2] / "experiments" / "predictable_grpo"


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The script as a module, with a cache of warm-ups of its own and starts that need no
    teaching.
    """
    monkeypatch.setattr(os, "environ", os.environ.copy())  # it sets the number of threads
    monkeypatch.setenv("GROUPWISE_CACHE", str(tmp_path))
    monkeypatch.syspath_prepend(str(FOLDER))
    module = importlib.import_module("deep_dynamics")
    monkeypatch.setitem(module.STARTS, "warm", 0.0005)
    return module


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The tables as a module."""
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("deep_dynamics_pages")


@pytest.mark.slow
def test_a_run_of_four_updates_and_its_names(study: Any) -> None:
    rows = study.curve("tiny", 4, 0, steps=4, families=False)
    assert [row["step"] for row in rows] == [0, 1, 2, 3, 4]
    assert all(0 <= row["reward"] <= 1 for row in rows[1:])
    assert len([name for name in rows[0] if "/" in name]) == 10
    names = [cell.name for cell in study.training_cells()]
    assert len(set(names)) == len(names)
    assert {
        f"run-{size}-G{group:02d}-seed{seed}"
        for size in study.SIZES
        for group in (4, 16)
        for seed in range(3)
    } < set(names)


def test_nothing_that_is_asked_is_taught(study: Any) -> None:
    task, others, mixture = study.world()
    asked = {problem.prompt for other in (*others, task) for problem in other.held_out}
    assert not asked & {problem.prompt for problem in (*mixture.train, *task.train)}


def test_scores_along_a_direction_are_those_of_autograd(study: Any) -> None:
    task = study.world()[0]
    policy = study.start("tiny")
    prompt_PL = policy.prompt_tokens(task, task.train[:2])
    sampled = policy.sample(prompt_PL, 3, torch.Generator().manual_seed(0), task.completion_length)
    direction = study.gradient(policy, task, task.train[:50])
    direction /= direction.norm()
    expected = []
    for row in range(6):
        total = (policy.log_probabilities(prompt_PL, sampled.completion_NL) * sampled.mask_NL)[
            row
        ].sum()
        parts = torch.autograd.grad(total, list(policy.parameters()))
        expected.append(float(torch.cat([part.reshape(-1) for part in parts]).double() @ direction))
    # Single precision over a step of .01 leaves errors of about 1e-4; the curvature along the step
    # adds 1e-3 of the score.
    assert study.directional(policy, direction, prompt_PL, sampled) == pytest.approx(
        np.array(expected), rel=1e-2, abs=5e-3
    )


def test_delays_and_stiffness_of_known_curves(pages: Any) -> None:
    time_T = np.arange(1.0, 401.0)
    curve = 0.8 - 0.5 * np.exp(-time_T / 150)
    late = 0.8 - 0.5 * np.exp(-np.maximum(time_T - 33, 0) / 150)
    assert pages.delay(late, curve) == pytest.approx(33, abs=1.5)
    rows = [
        {"step": step, "value": 1 - 0.7 * np.exp(-3.0 * pages.EFFECTIVE_RATE * step)}
        for step in (0, 20, 40)
    ]
    assert pages.stiffness(rows) == pytest.approx(3.0)
    slope, low, high = pages.exponent([(x, -0.3 * x + 1) for x in (1.0, 2.0, 3.0)])
    assert (low, slope, high) == pytest.approx((-0.3, -0.3, -0.3))
    low, high = pages.ratio_interval(4.0, 48, 48)
    assert low == pytest.approx(4 / (high / 4), rel=1e-6)
    assert 2.2 < low < 2.3  # F(47, 47) at .975 is 1.785


def test_an_interval_of_a_difference(pages: Any) -> None:
    low, high, difference = pages.apart(np.array([1.0, 2.0, 3.0]), np.array([2.0, 3.0, 4.0]))
    assert difference == pytest.approx(1.0)
    assert high - difference == pytest.approx(
        2.776 * (2 / 3) ** 0.5, rel=1e-3
    )  # t of 4 degrees of freedom
    assert low < 0 < high
