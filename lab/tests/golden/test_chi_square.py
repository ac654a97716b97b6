"""The law of weighted sums of chi-squares against 40-digit arithmetic that shares no method with
it, and against printed tables.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cases import each_case

from groupwise_lab.theory.chi_square_mixture import ChiSquareMixture

CASES = json.loads(Path(__file__).with_name("chi_square.json").read_text())["cases"]

# Weights, degrees, then points with P(Q <= x). The first three have the laws and
# points of Davies (1980), Applied Statistics 29, 323-333, table 3, whose accuracy is 1e-4; the
# second those of Imhof (1961), Biometrika 48, 419-426, table 1.
TABLES = [
    ([6, 3, 1], [1, 1, 1], {1: 0.0542, 7: 0.4936, 20: 0.8760}),
    ([6, 3, 1], [2, 2, 2], {2: 0.0064, 20: 0.6002, 60: 0.9839}),
    ([6, 3, 1], [6, 4, 2], {10: 0.0027, 50: 0.5648, 120: 0.9912}),
    ([0.6, 0.3, 0.1], [1, 1, 1], {2: 1 - 0.1240}),
    ([0.6, 0.3, 0.1], [2, 2, 2], {6: 1 - 0.0161}),
]


def law_of(weight: Any, degrees: Any = 1) -> ChiSquareMixture:
    """A chi-square of d degrees is d of one degree with the same weight."""
    weight = np.asarray(weight, dtype=float)
    return ChiSquareMixture(np.repeat(weight, np.broadcast_to(degrees, weight.shape)))


CENTRAL = [
    case
    for case in CASES
    if "harmonic" not in case
    and min(case["weight"]) > 0
    and not np.any(case["noncentrality"])
    and np.all(np.mod(case["degrees"], 1) == 0)
    and np.sum(np.broadcast_to(case["degrees"], len(case["weight"]))) <= 200
]


@each_case("case", CENTRAL)
def test_both_tails_and_quantiles_are_right(case: dict[str, Any]) -> None:
    law, upper = (
        law_of(case["weight"], case["degrees"]),
        np.array(case["upper_tails"], dtype=float),
    )
    assert law.sf(case["points"]) == pytest.approx(upper, rel=1e-11, abs=1e-14)
    assert law.cdf(case["points"]) == pytest.approx(1 - upper, abs=1e-12)
    points, inside = np.array(case["points"], dtype=float), (upper > 1e-3) & (upper < 1 - 1e-3)
    assert law.ppf(1 - upper[inside]) == pytest.approx(points[inside], rel=1e-9)


@pytest.mark.parametrize("count", [10_000, 100_000])
def test_many_weights_are_right(count: int) -> None:
    case = next(case for case in CASES if case.get("harmonic") == count)
    law = law_of(1 / np.arange(1.0, count + 1))
    upper = np.array(case["upper_tails"], dtype=float)
    assert law.sf(case["points"]) == pytest.approx(upper, rel=1e-9)


@each_case(("weight", "degrees", "printed"), TABLES)
def test_printed_tables(
    weight: list[float], degrees: list[float], printed: dict[float, float]
) -> None:
    law = law_of(weight, degrees)
    assert law.cdf(list(printed)) == pytest.approx(list(printed.values()), abs=1.01e-4)
