"""The stated bound of a mixture's tails against forty digits: hardly any degrees of freedom, a
hundred million, extreme weights.

Every law that has a name is one whose bound was once false or whose tail was once wrong; the others
nobody chose. The digits are those of `scripts/make_chi_square_bounds.py`.
"""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from worlds.chi_square_mixture import ChiSquareMixture

CASES = json.loads((Path(__file__).parents[1] / "golden" / "chi_square_bounds.json").read_text())[
    "cases"
]
CHOSEN = [case for case in CASES if not case["name"].startswith("drawn")]
DRAWN = [case for case in CASES if case["name"].startswith("drawn")]


def check(case: dict[str, Any]) -> None:
    """Hold both tails to their own bounds, and those of weights far apart to a relative
    precision.
    """
    law = ChiSquareMixture(case["weight"], case["degrees"], case["noncentrality"])
    for found, digits in (
        (law.sf_with_error(case["points"]), case["upper"]),
        (law.cdf_with_error(case["points"]), case["lower"]),
    ):
        for value, error, true in zip(
            found.value.tolist(), found.error.tolist(), map(Decimal, digits), strict=True
        ):
            off = abs(Decimal(value) - true)
            assert off <= Decimal(error), (case["name"], value, true)
            assert "apart" not in case["name"] or off <= Decimal("1e-11") * true


@pytest.mark.parametrize("case", CHOSEN, ids=lambda case: case["name"])
def test_the_bound_holds_for_laws_that_were_once_wrong(case: dict[str, Any]) -> None:
    check(case)


def test_the_bound_holds_for_laws_that_nobody_chose() -> None:
    assert len(DRAWN) == 60
    for case in DRAWN:
        check(case)


def test_the_bound_of_many_degrees_is_small() -> None:
    """SciPy's lower tail is wrong by 8e-9 at 1e6 degrees and by 6 % at 3e7, five deviations
    below the mean.
    """
    for case in CHOSEN:
        if case["degrees"][0] >= 9e3:
            found = ChiSquareMixture(case["weight"], case["degrees"]).cdf_with_error(
                case["points"][:2]
            )
            assert (found.error < 1e-8 * found.value).all()
