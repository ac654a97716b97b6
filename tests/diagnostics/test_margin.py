"""Limits of the curves that tell a margin."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from tests.cases import each_case

from groupwise.diagnostics.margin import _over_at_once


@each_case(("time_constant", "over"), [(2.0, True), (2.1, False)])
@each_case("row", [1.0, 10.0])
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
