"""Limits of the curves that tell a margin."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from groupwise.analysis.stability import _over_at_once
from groupwise.edge.mode import stability


@pytest.mark.parametrize(("time_constant", "over"), [(2.0, True), (2.1, False)])
@pytest.mark.parametrize("row", [1.0, 10.0])
def test_a_decay_takes_two_rows_for_its_time_constant(
    time_constant: float, row: float, *, over: bool
) -> None:
    """Between rows that are 1 or 10 steps apart: 2.05 rows are the fewest."""
    curve: Any = SimpleNamespace(
        law="exponential",
        time_T=row * np.arange(40),
        parameters={"time_constant": SimpleNamespace(value=time_constant * row)},
    )
    assert _over_at_once(cast(Any, curve)) is over


@pytest.mark.parametrize(
    ("kind", "ratio", "kl_term", "bounds"),
    [
        # Of momentum 0.5 fresh rollouts are stable up to 3; of a refresh every 4 updates stale ones
        # up to 0.447.
        ("refresh", "exact", "unknown", (0.4473684, 3.0)),
        ("refresh", "exact", "loss", (3.0, 3.0)),
        ("refresh", "exact", "reward", (0.4473684, 0.4473684)),
        ("refresh", "clipped", "unknown", (0.4473684, 3.0)),
        ("refresh", "none", "unknown", (0.4473684, 0.4473684)),
        ("none", "exact", "unknown", (3.0, 3.0)),
    ],
)
def test_the_thresholds_that_an_exact_ratio_leaves_open(
    kind: Any, ratio: Any, kl_term: Any, bounds: tuple[float, float]
) -> None:
    """A KL term in the reward would keep the force stale: where nobody knows where it is both
    ends are possible.
    """
    margin = stability(
        0.01, 0.5, refresh_interval=4, lag=kind, importance_ratio=ratio, kl_term=kl_term
    )
    assert margin.bounds == pytest.approx(bounds, rel=1e-6)
