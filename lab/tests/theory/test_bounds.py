"""Bounds of the gap: above the truth where it is exact, equal to it where the lemma is tight,
void where a condition fails.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from lab.tests.experiments.conftest import scripts_of
from tests.cases import each_case

from groupwise.errors import InvalidArgumentError

with scripts_of(Path(__file__).resolve().parents[2] / "experiments" / "u_statistic") as load_script:
    _script = load_script("bounds")
Landscape = _script.Landscape
constant_step_bound = _script.constant_step_bound
decaying_step_bound = _script.decaying_step_bound
lemma_constants = _script.lemma_constants
one_step = _script.one_step

CURVATURE, NOISE, FIRST = (
    np.array([2.0, 0.7, 0.5]),
    np.array([0.3, 0.1, 0.6]),
    np.array([1.0, -0.4, 2.0]),
)
QUADRATIC = Landscape(2.0, 0.5, float(NOISE.sum()), float(CURVATURE @ FIRST**2 / 2))


def exact_gaps(step_T: np.ndarray) -> np.ndarray:
    """The expected gap of a quadratic objective with constant gradient noise: E x^2 of every
    direction obeys a recursion.
    """
    square, gaps = FIRST**2, [CURVATURE @ FIRST**2 / 2]
    for step in step_T:
        square = (1 - step * CURVATURE) ** 2 * square + step**2 * NOISE
        gaps.append(CURVATURE @ square / 2)
    return np.array(gaps)


@pytest.mark.parametrize("step", [0.01, 0.1, 0.24])
def test_a_constant_step_stays_below_its_bound(step: float) -> None:
    bound = constant_step_bound(QUADRATIC, step, 500)
    truth = exact_gaps(np.full(500, step))
    assert not bound.void
    assert (truth <= bound.bound_T * (1 + 1e-12)).all()
    assert constant_step_bound(QUADRATIC, step, 5000).bound_T[-1] == pytest.approx(
        bound.limit, rel=1e-6
    )
    curve, pl, mse = QUADRATIC.smoothness, QUADRATIC.pl, QUADRATIC.mse
    assert bound.limit == pytest.approx(
        curve * step**2 * mse / (4 * pl * step - 2 * curve * pl * step**2)
    )


@pytest.mark.parametrize("scale", [1.1, 2.0, 5.0])
def test_falling_steps_stay_below_recursion_and_closed_form(scale: float) -> None:
    steps = 4000
    bound = decaying_step_bound(QUADRATIC, scale, steps)
    truth = exact_gaps(scale / np.arange(1.0, steps + 1))
    assert (truth <= bound.bound_T * (1 + 1e-12)).all()
    v, c, first = lemma_constants(QUADRATIC, scale, slack=0.25)
    count = np.arange(first, steps + 1)
    assert first < steps / 2
    assert (
        bound.bound_T[count - 1] <= max(v, c) / count * (1 + 1e-12)
    ).all()  # before update i it is at most max(v, c)/i
    assert bound.leading_constant == pytest.approx(
        QUADRATIC.smoothness * scale**2 * QUADRATIC.mse / (4 * QUADRATIC.pl * scale - 2)
    )


def test_in_one_dimension_recursion_and_limit_are_exact() -> None:
    """There L = mu, nothing is given away, and n times the gap tends to the leading constant."""
    lam, noise = 0.8, 0.3
    landscape = Landscape(lam, lam, noise, lam / 2)
    scale, steps = 2.0, 3000
    square, gaps = 1.0, [lam / 2]
    for i in range(1, steps + 1):
        square = (1 - scale / i * lam) ** 2 * square + (scale / i) ** 2 * noise
        gaps.append(lam * square / 2)
    bound = decaying_step_bound(landscape, scale, steps)
    assert bound.bound_T == pytest.approx(gaps, rel=1e-9)
    assert steps * bound.bound_T[-1] == pytest.approx(landscape.leading_constant(scale), rel=1e-3)


def test_the_best_scale_has_the_least_leading_constant() -> None:
    best = 1 / QUADRATIC.pl
    assert QUADRATIC.leading_constant(best) == pytest.approx(
        QUADRATIC.smoothness * QUADRATIC.mse / (2 * QUADRATIC.pl**2)
    )
    assert QUADRATIC.leading_constant(best) < min(
        QUADRATIC.leading_constant(best * f) for f in (0.9, 0.99, 1.01, 1.1)
    )
    assert QUADRATIC.leading_constant(1 / (2 * QUADRATIC.pl)) == math.inf


def test_one_step_beyond_two_over_l_still_bounds() -> None:
    """A gap grows by (1 - L eta)^2 at most; a quadratic's does along its steepest direction."""
    landscape = Landscape(2.0, 0.5, 0.0, 1.0)
    assert float(one_step(landscape, 1.0, 1.7)) == pytest.approx((1 - 2 * 1.7) ** 2)
    assert float(one_step(Landscape(2.0, 0.5, 0.0, 1.0, largest_gap=1.5), 1.0, 1.7)) == 1.5
    assert one_step(QUADRATIC, [0.0, 1.0], 0.1) == pytest.approx([0.01, 1 - 0.1 + 0.01 + 0.01])


def test_conditions_that_fail_void_the_bound_and_say_so() -> None:
    bound = decaying_step_bound(QUADRATIC, 1.0, 10)
    assert bound.void
    assert bound.status == "b = 1 > 1/(2 mu) = 1 does not hold: the bound is void."
    assert constant_step_bound(QUADRATIC, 0.3, 10).void
    assert constant_step_bound(QUADRATIC, 3.0, 10).bound_T[-1] == math.inf
    fine = decaying_step_bound(QUADRATIC, 2.0, 400)
    assert "at most" in fine.status
    assert (fine.void, fine.condition) == (False, "b = 2 > 1/(2 mu) = 1")


def test_a_bound_that_says_nothing_says_so() -> None:
    """The theorem's b/i begins with a step of b, which may multiply the gap by (1 - L b)^2 and
    more: 4e+18 bounds nothing.
    """
    wild = decaying_step_bound(Landscape(20.0, 0.5, 1.0, 1.0), 2.0, 10)
    assert wild.bound_T[-1] > 1e17
    assert wild.status.startswith(
        "The bound says nothing: after all steps it is 4.15e+17 and the first gap was 1"
    )
    assert "2/L = 0.1: give `largest_gap`, or an `offset`" in wild.status
    held = decaying_step_bound(Landscape(20.0, 0.5, 1.0, 0.5, largest_gap=1.0), 2.0, 10)
    assert (
        held.status
        == "The bound says nothing: after all steps it is the largest gap that there is, 1."
    )
    assert (
        "at most"
        in decaying_step_bound(Landscape(20.0, 0.5, 0.01, 1.0), 2.0, 4000, offset=40).status
    )
    assert (
        "at most"
        in decaying_step_bound(Landscape(20.0, 0.5, 0.01, 1.0, largest_gap=2.0), 2.0, 4000).status
    )


@pytest.mark.parametrize("ratio", [1.0, 3.0, 10.0])
def test_how_loose_the_bound_is_on_a_quadratic(ratio: float) -> None:
    r"""At b = 1/mu the limit of n times the gap is $b^2\lambda\Omega/(4b\lambda - 2)$ a
    direction: L/mu to 2 L/mu - 1 below the bound.
    """
    mu, noise = 0.5, 0.3
    bound = Landscape(ratio * mu, mu, noise, 1.0).leading_constant(1 / mu)
    truth = [noise * curvature / mu**2 / (4 * curvature / mu - 2) for curvature in (mu, ratio * mu)]
    assert [bound / value for value in truth] == pytest.approx([ratio, 2 * ratio - 1])


def test_each_assumption_says_whether_it_was_checked() -> None:
    """Bounded rewards, L, the PL region, no bias and M: numbers alone cannot tell, so none is
    passed off as checked.
    """
    for bound in (
        constant_step_bound(QUADRATIC, 0.1, 10),
        decaying_step_bound(QUADRATIC, 2.0, 10),
        constant_step_bound(QUADRATIC, 3.0, 10),
    ):
        assert len(bound.assumed) == 5
        for word in ("bounded rewards", "L = 2", "mu = 0.5", "without bias", "M = 1"):
            assert sum(word in said for said in bound.assumed) == 1


@each_case(
    ("call", "sentence"),
    [
        (lambda: Landscape(1.0, 2.0, 0.1, 1.0), "mu at most L"),
        (lambda: Landscape(math.nan, 2.0, 0.1, 1.0), "smoothness"),
        (lambda: Landscape(1.0, 0.5, -0.1, 1.0), "mse"),
        (lambda: one_step(QUADRATIC, -1.0, 0.1), "at least 0"),
        (lambda: constant_step_bound(QUADRATIC, 0.0, 1), "positive step"),
        (lambda: decaying_step_bound(QUADRATIC, 2.0, 0), "at least 1 step"),
        (lambda: decaying_step_bound(QUADRATIC, 2.0, 1, offset=-1), "offset"),
        (lambda: lemma_constants(QUADRATIC, 1.0), "above 1/"),
        (lambda: lemma_constants(QUADRATIC, 2.0, slack=0.0), "slack"),
    ],
)
def test_bad_input_gets_a_sentence(call, sentence: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InvalidArgumentError, match=sentence) as caught:
        call()
    assert "\n" not in str(caught.value)
