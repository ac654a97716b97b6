"""Worlds of whole runs: their components are within the ceiling, and a run of one size learns."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise.estimators import best_group_size
from groupwise.files import table_rows
from groupwise_lab.worlds.bandit import softmax_world

FOLDER = Path(__file__).resolve().parents[2] / "experiments" / "gradient"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FOLDER))
    sys.modules.pop("whole_runs", None)
    return importlib.import_module("whole_runs")


@pytest.mark.slow
def test_worlds_are_within_the_ceiling_learn_and_are_priced_beside_four(module: Any) -> None:
    for kind in module.KINDS:
        world = module.world_of(kind, np.random.default_rng(3))
        width = world.feature_PAD.shape[2]
        policy = world.policy(np.zeros((1, width)))[0]
        assert policy.sum(1) == pytest.approx(np.ones(module.PROMPTS))
        # The logits at the start as one more feature, which nothing trains: its score is left out.
        whole = softmax_world(
            np.concatenate([world.feature_PAD, world.logit_PA[..., None]], axis=2),
            np.append(np.zeros(width), 1.0),
            world.earns_PA,
            binary=True,
        ).projected(np.eye(width + 1)[:, :width])
        norm2 = float(np.sum(whole.moments().gradient_D ** 2))
        assert whole.vp <= module.ceiling(whole.r, norm2) * (1 + 1e-9)
        start = float(world.level(np.zeros((1, width)))[0])
        area = module.trained(world, 4, 0.3, 4, np.random.default_rng(1))
        assert area.shape == (4,)
        assert area.mean() > start
        price = module.measured_price(world, np.random.default_rng(2))
        assert price["now_4"] == price["most_4"] == 0
        assert price["safe"] in module.SIZES
        assert all(price[f"most_{size}"] <= 1 for size in module.SIZES)


def test_the_price_that_the_plan_prints_is_that_of_the_worlds(module: Any) -> None:
    outcome = module.outcome_of(module.results_of(module.__file__).read("whole_runs"))
    table = Path(best_group_size.__file__).with_name("price_of_group_size.tsv")
    printed = {
        float(row["up_to"]): [float(row[name]) for name in ("median", "low", "high")]
        for row in table_rows(table)
    }
    measured = outcome.prices()
    assert list(printed) == list(measured)
    for edge, ends in printed.items():
        assert measured[edge] == pytest.approx(ends, abs=0.0051), edge
    held = (outcome.lost <= np.maximum(outcome.most, 0) + outcome.slack).mean(0)
    assert held.min() > 0.9  # the upper end is missed by large groups alone
    # The safe size is 4 in nearly all of them.
    assert outcome.named.mean() == pytest.approx(
        outcome.regret[:, module.REFERENCE].mean(), abs=1e-4
    )
