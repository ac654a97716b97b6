"""The law of weighted sums of chi-squares against 40-digit arithmetic that shares no method with
it, and against printed tables.
"""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds.chi_square_mixture import ChiSquareMixture

from groupwise.theory import chi_square_mixture

CASES = json.loads(Path(__file__).with_name("chi_square.json").read_text())["cases"]

# Weights, degrees, non-centralities, then points with P(Q <= x). The first block has the laws and
# points of Davies (1980), Applied Statistics 29, 323-333, table 3, whose accuracy is 1e-4; the
# second those of Imhof (1961), Biometrika 48, 419-426, table 1.
TABLES = [
    ([6, 3, 1], [1, 1, 1], [0, 0, 0], {1: 0.0542, 7: 0.4936, 20: 0.8760}),
    ([6, 3, 1], [2, 2, 2], [0, 0, 0], {2: 0.0064, 20: 0.6002, 60: 0.9839}),
    ([6, 3, 1], [6, 4, 2], [0, 0, 0], {10: 0.0027, 50: 0.5648, 120: 0.9912}),
    ([7, 3], [6, 2], [6, 2], {20: 0.0061, 100: 0.5913, 200: 0.9779}),
    ([7, 3], [1, 1], [6, 2], {10: 0.0451, 60: 0.5924, 150: 0.9777}),
    ([7, 3, 7, 3], [6, 2, 1, 1], [6, 2, 6, 2], {70: 0.0437, 160: 0.5848, 260: 0.9538}),
    ([7, 3, -7, -3], [6, 2, 1, 1], [6, 2, 6, 2], {-40: 0.0782, 40: 0.5221, 140: 0.9604}),
    ([0.6, 0.3, 0.1], [1, 1, 1], [0, 0, 0], {2: 1 - 0.1240}),
    ([0.6, 0.3, 0.1], [2, 2, 2], [0, 0, 0], {6: 1 - 0.0161}),
    ([0.7, 0.3], [1, 1], [6, 2], {15: 1 - 0.0223}),
]


def law_of(case: dict[str, Any]) -> ChiSquareMixture:
    if "harmonic" in case:
        return ChiSquareMixture(1 / np.arange(1.0, case["harmonic"] + 1))
    return ChiSquareMixture(case["weight"], case["degrees"], case["noncentrality"])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_both_tails_are_right_and_their_bound_holds(case: dict[str, Any]) -> None:
    law, upper = law_of(case), np.array(case["upper_tails"], dtype=float)
    # What the sums of the script leave out: it says why.
    floor = (
        0.0
        if case["method"] != "Davies"
        else 2e-14
        if sum(case.get("degrees", [100])) < 20
        else 1e-24
    )
    assert all(
        0 < Decimal(tail) <= 1 for tail in case["upper_tails"]
    )  # 1.0 is what lacks less than 25 digits show
    found = law.sf_with_error(case["points"])
    assert np.abs(found.value - upper).max() < 1e-12
    assert found.value == pytest.approx(upper, rel=1e-11, abs=floor)
    assert (np.abs(found.value - upper) <= found.error + floor).all()
    assert (found.error <= 1e-8).all()
    assert law.cdf(case["points"]) == pytest.approx(1 - upper, abs=1e-12)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_each_point_alone_is_what_it_is_among_others(case: dict[str, Any]) -> None:
    """Points share paths; alone each has one of its own."""
    law = law_of(case)
    alone = [float(law.sf(x)) for x in case["points"]]
    assert law.sf(case["points"]) == pytest.approx(alone, rel=2e-11)


@pytest.mark.parametrize(("weight", "degrees", "noncentrality", "printed"), TABLES, ids=str)
def test_printed_tables(
    weight: list[float],
    degrees: list[float],
    noncentrality: list[float],
    printed: dict[float, float],
) -> None:
    law = ChiSquareMixture(weight, degrees, noncentrality)
    assert law.cdf(list(printed)) == pytest.approx(list(printed.values()), abs=1.01e-4)


PLAIN = [
    case
    for case in CASES
    if "harmonic" not in case
    and min(case["weight"]) > 0
    and set(np.ravel(case["degrees"]).tolist()) == {1}
    and not np.any(case["noncentrality"])
]


@pytest.mark.parametrize("case", PLAIN, ids=lambda case: case["name"])
def test_the_law_of_the_final_gap_is_right(case: dict[str, Any]) -> None:
    law, upper = (
        chi_square_mixture.ChiSquareMixture(np.array(case["weight"], dtype=float)),
        np.array(case["upper_tails"], dtype=float),
    )
    assert law.sf(case["points"]) == pytest.approx(upper, rel=1e-11, abs=1e-14)
    assert law.cdf(case["points"]) == pytest.approx(1 - upper, abs=1e-12)


@pytest.mark.parametrize(
    "weight",
    [[1.0], [2.0, 2.0], [0.6, 0.3, 0.1], [1e20, 1.0], list(1 / np.arange(1.0, 301))],
    ids=len,
)
def test_the_law_of_the_final_gap_is_that_of_the_judge(weight: list[float]) -> None:
    """Which bounds each of its errors."""
    law, judge = chi_square_mixture.ChiSquareMixture(np.array(weight)), ChiSquareMixture(weight)
    shares = [1e-3, 0.1, 0.5, 0.9, 0.99, 1 - 1e-6]
    assert law.ppf(shares) == pytest.approx(judge.ppf(shares), rel=1e-11)
    assert law.ppf([0.0, 1.0]).tolist() == [0.0, np.inf]
    assert (law.mean(), law.var()) == pytest.approx((judge.mean(), judge.var()))
    assert float(law.sf(-1.0)) == 1.0
