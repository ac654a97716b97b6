"""What trainers do that are told nothing, and what a bound on the lag means."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.cases import each_case

from groupwise.edge.mode import LAGS, TRAINERS, defaults_of, threshold
from groupwise.record.run import RunConfig

PAGE = Path(__file__).parents[2] / "docs" / "lags.md"


@each_case(
    ("framework", "defaults"),
    [
        ("trl", {"beta1": "0.9", "lag_kind": "none"}),
        ("unsloth", {"beta1": "0.9", "lag_kind": "none"}),
        ("verl", {"beta1": "0.9", "lag_kind": "refresh", "refresh_interval": "4"}),
        ("prime_rl", {"beta1": "0.9", "lag_kind": "fixed", "refresh_interval": "8"}),
        ("openrlhf", {"beta1": "0.9"}),
        ("megatron", {}),
    ],
)
def test_a_trainer_that_is_told_nothing(framework: str, defaults: dict[str, str]) -> None:
    assert defaults_of(framework) == defaults


def test_every_default_is_a_setting_of_a_run() -> None:
    for row in TRAINERS:
        RunConfig().with_settings(defaults_of(row["framework"]), "test")


def test_the_page_explains_every_kind_of_lag() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for lag in LAGS:
        assert f"| `{lag}` | " in text


@each_case(
    ("momentum", "pattern", "share"),
    [
        (0.0, [0, 1, 2, 2], 0.948),
        (0.0, [*range(9), *[8] * 6], 0.961),
        (0.5, [*range(9), *[8] * 6], 0.990),
        (0.9, [0, 1, 2, 2], 1.665),
    ],
)
def test_a_bound_is_nearly_the_worst_lag(momentum: float, pattern: list[int], share: float) -> None:
    """Lags that change in turn, by the product of single updates, over a fixed lag at their
    largest: about 5 % lower at worst here.
    """

    def radius(force: float) -> float:
        size = max(pattern) + 2
        whole = np.eye(size)
        for lag in pattern:
            update = np.diag(np.ones(size - 2), -1) if size > 2 else np.zeros((size - 1, size - 1))
            matrix = np.zeros((size, size))
            matrix[:-1, :-1] = update
            matrix[0, 0], matrix[0, -1], matrix[-1, -1] = 1.0, momentum, momentum
            matrix[0, lag] -= force
            matrix[-1, lag] -= force
            whole = matrix @ whole
        return float(np.abs(np.linalg.eigvals(whole)).max())

    bound = float(threshold("fixed", momentum, max(pattern)))
    forces = bound * np.linspace(0.5, 2, 1501)
    first = next(force for force in forces if radius(float(force)) > 1 + 1e-9)
    assert first / bound == pytest.approx(share, abs=2e-3)
