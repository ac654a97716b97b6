"""Tails of weighted sums of chi-squares in forty digits, to hold stated bounds against: slow, plain, and with no line of the package.

The integral of exp(K(s) - sq)/s along a bent path through the saddle point, by bisection and a trapezoidal rule of 1/50 of a width or
less; its own error is below 1e-25. It knows no double and shares nothing with `groupwise.theory`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

mpmath = pytest.importorskip("mpmath")
mp, mpf = mpmath.mp, mpmath.mpf


def tails(weight: Sequence[float], degrees: Sequence[float], noncentrality: Sequence[float], point: float) -> tuple[Any, Any]:
    """Return P(Q > point) and P(Q <= point)."""
    with mp.workdps(40):
        terms = [(mpf(float(w)), mpf(float(d)), mpf(float(l))) for w, d, l in zip(weight, degrees, noncentrality, strict=True)]
        q = mpf(float(point))
        if q >= sum(w * (d + l) for w, d, l in terms):
            upper = _upper(terms, q)
            return upper, 1 - upper
        lower = _upper([(-w, d, l) for w, d, l in terms], -q)
        return 1 - lower, lower


def _upper(terms: list[tuple[Any, Any, Any]], q: Any) -> Any:
    """P(Q > q) for q above the mean."""
    largest = max(w for w, _, _ in terms)
    edge = 1 / (2 * largest) if largest > 0 else None

    def slope(s: Any) -> Any:
        return sum(w * d / (1 - 2 * s * w) + l * w / (1 - 2 * s * w) ** 2 for w, d, l in terms) - q - 1 / s

    def log_mgf(s: Any) -> Any:
        return sum(-d / 2 * mp.log(1 - 2 * s * w) + (l * w * s / (1 - 2 * s * w) if l else 0) for w, d, l in terms)

    low, high = mpf(10) ** -400, edge * (1 - mpf(10) ** -35) if edge is not None else mpf(10) ** 400
    while high / low - 1 > mpf(10) ** -15:
        middle = mp.sqrt(low * high) if high / low > 4 else (low + high) / 2
        low, high = (low, middle) if slope(middle) > 0 else (middle, high)
    place = low
    curvature = sum(2 * w**2 * d / (1 - 2 * place * w) ** 2 + 4 * l * w**2 / (1 - 2 * place * w) ** 3 for w, d, l in terms) + 1 / place**2
    width = 1 / mp.sqrt(curvature) if edge is None else min(1 / mp.sqrt(curvature), edge - place)
    height, sign = log_mgf(place) - place * q, 1 if q > 0 else -1
    # Bent, the path falls fast however few the degrees of freedom, but where they are many it may run up a branch point of the other
    # sign; there the integrand falls fast enough on a straight one, which turns more and asks for finer steps.
    many = sum(d for _, d, _ in terms) > 50
    angle, step = (mpf(0), mpf("0.002")) if many else (sign * mpf("0.25"), mpf("0.02"))
    found = _along(lambda s: log_mgf(s) - s * q - height, place, width, angle, step) * mp.exp(height)
    assert 0 < found < 1, (terms, q, found)
    return found


def _along(exponent: Any, place: Any, width: Any, angle: Any, step: Any) -> Any:
    """The integral along one path through the saddle."""
    sine, cosine = mp.sin(angle), mp.cos(angle)
    total, first, node = mpf(0), mpf(0), 0
    while True:
        u = step * node
        shift = width * (sine * (mp.cosh(u) - 1) + 1j * cosine * mp.sinh(u))
        speed = width * (cosine * mp.cosh(u) - 1j * sine * mp.sinh(u))
        value = mp.exp(exponent(place + shift)) / (place + shift) * speed
        total += value.real / (2 if node == 0 else 1)
        first = first or abs(value)
        if abs(value) < first * mpf(10) ** -32:
            return total * step / mp.pi
        node += 1
