"""Write tests/golden/chi_square_bounds.json: tails of laws that are hard for the stated bounds, in
forty digits.

    python scripts/make_chi_square_bounds.py        (needs mpmath; about a minute)

The integral of exp(K(s) - sq)/s along a bent path through the saddle point, by bisection and a
trapezoidal rule of 1/50 of a width or less; its own error is below 1e-25. It knows no double and
shares nothing with `groupwise.theory`. The laws: hardly any degrees of freedom, a hundred million,
weights a hundred and forty orders apart, and sixty that nobody chose.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mpmath import mp, mpf

mp.dps = 40
TARGET = Path(__file__).resolve().parent.parent / "tests" / "golden" / "chi_square_bounds.json"
Law = tuple[
    list[float], list[float], list[float], list[float]
]  # weights, degrees, non-centralities, points


def laws() -> Iterator[tuple[str, Law]]:
    """Yield the laws with the points to look at."""
    for degrees in (0.2, 0.05, 0.01, 1e-3, 1e-6):
        yield f"{degrees:g} degrees", ([1.0, 0.5], [degrees] * 2, [0.0, 0.0], [0.1, 40.0])
        yield (
            f"{degrees:g} degrees, both signs",
            ([1.0, -0.5], [degrees] * 2, [0.0, 0.0], [-3.0, 0.1]),
        )
        yield f"{degrees:g} degrees, not central", ([1.0, 0.5], [degrees] * 2, [4.0, 0.0], [30.0])
    for degrees in (9e3, 1e5, 1e6, 1e8):
        points = degrees + np.array([-6.0, -5.0, 0.5, 6.0]) * np.sqrt(2 * degrees)
        yield f"{degrees:g} degrees", ([1.0], [degrees], [0.0], points.tolist())
    yield "sixty orders apart", ([1.0, 1e-60], [1.0, 1.0], [0.0, 0.0], [1e-65, 1e-50])
    yield "a hundred and forty orders apart", ([1.0, 1e-140], [1.0, 1.0], [0.0, 0.0], [1e-119])
    rng = np.random.default_rng(20261122)
    for number in range(60):
        yield f"drawn {number}", drawn_law(rng)


def drawn_law(rng: np.random.Generator) -> Law:
    """Draw weights of both signs, 1e-3 to 1e6 degrees, non-centralities up to 1e4, and a point
    within four deviations of the mean.
    """
    count = int(rng.integers(1, 4))
    weight = 10 ** rng.uniform(-3, 1, count) * rng.choice([-1.0, 1.0], count)
    degrees = 10 ** rng.uniform(-3, 6, count)
    noncentrality = rng.integers(2, size=count) * 10 ** rng.uniform(-2, 4, count)
    mean, variance = (
        weight @ (degrees + noncentrality),
        2 * weight**2 @ (degrees + 2 * noncentrality),
    )
    point = float(mean + rng.uniform(-4, 4) * np.sqrt(variance))
    point = abs(point) if weight.min() > 0 else -abs(point) if weight.max() < 0 else point
    return weight.tolist(), degrees.tolist(), noncentrality.tolist(), [point]


def tails(
    weight: Sequence[float], degrees: Sequence[float], noncentrality: Sequence[float], point: float
) -> tuple[Any, Any]:
    """Return P(Q > point) and P(Q <= point)."""
    terms = [
        (mpf(float(w)), mpf(float(d)), mpf(float(l)))
        for w, d, l in zip(weight, degrees, noncentrality, strict=True)
    ]
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
        return (
            sum(w * d / (1 - 2 * s * w) + l * w / (1 - 2 * s * w) ** 2 for w, d, l in terms)
            - q
            - 1 / s
        )

    def log_mgf(s: Any) -> Any:
        return sum(
            -d / 2 * mp.log(1 - 2 * s * w) + (l * w * s / (1 - 2 * s * w) if l else 0)
            for w, d, l in terms
        )

    low, high = mpf(10) ** -400, edge * (1 - mpf(10) ** -35) if edge is not None else mpf(10) ** 400
    while high / low - 1 > mpf(10) ** -15:
        middle = mp.sqrt(low * high) if high / low > 4 else (low + high) / 2
        low, high = (low, middle) if slope(middle) > 0 else (middle, high)
    place = low
    curvature = (
        sum(
            2 * w**2 * d / (1 - 2 * place * w) ** 2 + 4 * l * w**2 / (1 - 2 * place * w) ** 3
            for w, d, l in terms
        )
        + 1 / place**2
    )
    width = 1 / mp.sqrt(curvature) if edge is None else min(1 / mp.sqrt(curvature), edge - place)
    height, sign = log_mgf(place) - place * q, 1 if q > 0 else -1
    # Bent, the path falls fast however few the degrees of freedom, but where they are many it may
    # run up a branch point of the other sign; there the integrand falls fast enough on a straight
    # one, which turns more and asks for finer steps.
    many = sum(d for _, d, _ in terms) > 50
    angle, step = (mpf(0), mpf("0.002")) if many else (sign * mpf("0.25"), mpf("0.02"))
    found = _along(lambda s: log_mgf(s) - s * q - height, place, width, angle, step) * mp.exp(
        height
    )
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


def main() -> None:
    """Write the file."""
    cases = []
    for name, (weight, degrees, noncentrality, points) in laws():
        found = [tails(weight, degrees, noncentrality, point) for point in points]
        upper, lower = ([mp.nstr(pair[side], 30) for pair in found] for side in (0, 1))
        law = {
            "name": name,
            "weight": weight,
            "degrees": degrees,
            "noncentrality": noncentrality,
            "points": points,
        }
        cases.append(law | {"upper": upper, "lower": lower})
    TARGET.write_text(json.dumps({"cases": cases}, indent=1) + "\n")


if __name__ == "__main__":
    main()
