"""The stated bound of a mixture's tails against forty digits: hardly any degrees of freedom, a hundred million, extreme weights.

Every law here is one whose bound was once false or whose tail was once wrong; the last test draws laws that nobody chose.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.theory.reference_mixture import mpf, tails

from groupwise.theory.chi_square_mixture import ChiSquareMixture


def check(weight: list[float], degrees: list[float], noncentrality: list[float], points: list[float], *, relative: float = np.inf) -> None:
    """Hold both tails to their own bounds, and the smaller one to a relative precision."""
    law = ChiSquareMixture(weight, degrees, noncentrality)
    above, below = law.sf_with_error(points), law.cdf_with_error(points)
    for place, point in enumerate(points):
        for found, true in zip((above, below), tails(weight, degrees, noncentrality, point), strict=True):
            off = abs(mpf(float(found.value[place])) - true)
            assert off <= mpf(float(found.error[place])), (weight, degrees, noncentrality, point, float(off), float(found.error[place]))
            assert off <= relative * true, (weight, degrees, noncentrality, point, float(off / true))


@pytest.mark.parametrize("degrees", [0.2, 0.05, 0.01, 1e-3, 1e-6])
def test_hardly_any_degrees_of_freedom(degrees: float) -> None:
    """The saddle is wider than its distance to the branch point there, and a strip as wide would reach beyond it."""
    check([1.0, 0.5], [degrees] * 2, [0.0, 0.0], [0.1, 40.0])
    check([1.0, -0.5], [degrees] * 2, [0.0, 0.0], [-3.0, 0.1])
    check([1.0, 0.5], [degrees] * 2, [4.0, 0.0], [30.0])


@pytest.mark.parametrize("degrees", [9e3, 1e5, 1e6, 1e8])
def test_a_hundred_million_degrees_of_freedom(degrees: float) -> None:
    """SciPy's lower tail is wrong by 8e-9 at 1e6 degrees and by 6 % at 3e7, five deviations below the mean."""
    points = degrees + np.array([-6.0, -5.0, 0.5, 6.0]) * np.sqrt(2 * degrees)
    check([1.0], [degrees], [0.0], points.tolist())
    assert (
        ChiSquareMixture([1.0], degrees).cdf_with_error(points[:2]).error < 1e-8 * ChiSquareMixture([1.0], degrees).cdf(points[:2])
    ).all()


def test_weights_a_hundred_and_forty_orders_apart() -> None:
    """Next to zero the leading term of the series holds below the smallest weight only."""
    check([1.0, 1e-60], [1.0, 1.0], [0.0, 0.0], [1e-65, 1e-50], relative=1e-11)
    check([1.0, 1e-140], [1.0, 1.0], [0.0, 0.0], [1e-119], relative=1e-11)


@st.composite
def laws(draw: st.DrawFn) -> tuple[list[float], list[float], list[float], float]:
    """Weights of both signs, 1e-3 to 1e6 degrees, non-centralities up to 1e4, and a point four deviations around the mean."""
    count = draw(st.integers(1, 3))
    spread = st.floats(-3, 1).map(lambda power: 10**power)
    weight = [draw(spread) * draw(st.sampled_from([-1.0, 1.0])) for _ in range(count)]
    degrees = [10 ** draw(st.floats(-3, 6)) for _ in range(count)]
    noncentrality = [draw(st.just(0.0) | st.floats(-2, 4).map(lambda power: 10**power)) for _ in range(count)]
    mean = float(np.dot(weight, np.add(degrees, noncentrality)))
    deviation = float(np.sqrt(2 * np.dot(np.square(weight), np.add(degrees, 2 * np.array(noncentrality)))))
    point = mean + draw(st.floats(-4, 4)) * deviation
    if min(weight) > 0:
        point = abs(point)
    elif max(weight) < 0:
        point = -abs(point)
    return weight, degrees, noncentrality, point


@given(laws())
@settings(max_examples=8, deadline=None)
def test_the_bound_holds_for_laws_that_nobody_chose(law: tuple[list[float], list[float], list[float], float]) -> None:
    weight, degrees, noncentrality, point = law
    check(weight, degrees, noncentrality, [point])
