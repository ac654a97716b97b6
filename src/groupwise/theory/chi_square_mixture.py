r"""The law of a sum of chi-squares of one degree of freedom with positive weights, which the final
gap tends to.

$P(Q > q) = \frac{1}{2\pi i}\int e^{K(s) - sq}\,ds/s$ with $K(s) = -\frac12\sum_k \log(1-2sw_k)$,
along a hyperbola through the saddle point between 0 and $1/(2\max w)$ that bends towards where
$e^{-sq}$ decays: there the trapezoidal rule converges geometrically (lab/docs/theory/final-gap.md).
40-digit arithmetic judges it (`tests/golden/test_chi_square.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from groupwise.arrays import Float, finite_array
from groupwise.errors import InvalidArgumentError

Complex = NDArray[np.complex128]

_TOGETHER = 8  # factors of one logarithm
_ANGLE = 0.39  # of the hyperbola
_STEP = 0.07
_NEGLIGIBLE = 45.0  # minus the natural logarithm of what no longer counts


@dataclass(frozen=True, slots=True, eq=False)
class ChiSquareMixture:
    r"""$Q = \sum_k w_k\chi^2_1$, independent, in the manner of a frozen `scipy.stats` distribution.

    Source: Imhof (1961), Biometrika 48, 419-426, for the problem; the path is derived here
    (lab/docs/theory/final-gap.md).
    """

    weight_K: Float  # w, positive

    def __post_init__(self) -> None:
        """Refuse what is no weight."""
        weight = finite_array("weight_K", self.weight_K, dimensions=1).astype(np.float64)
        if not (weight.size and weight.min() > 0):
            raise InvalidArgumentError(
                "expected at least one weight, and weights above 0: leave the others out"
            )
        object.__setattr__(self, "weight_K", weight)

    def mean(self) -> float:
        """Return E[Q]."""
        return float(self.weight_K.sum())

    def var(self) -> float:
        """Return the variance of Q."""
        return float(2 * (self.weight_K**2).sum())

    def sf(self, x: ArrayLike) -> Float:
        """Return P(Q > x) at every point."""
        points = np.asarray(x, dtype=np.float64)
        return np.array([self._tail(float(point)) for point in points.flat]).reshape(points.shape)[
            ()
        ]

    def cdf(self, x: ArrayLike) -> Float:
        """Return P(Q <= x) at every point."""
        return np.asarray(1 - self.sf(x))[()]

    def ppf(self, q: ArrayLike) -> Float:
        """Return the points below which the probabilities q lie."""
        shares = np.asarray(q, dtype=np.float64)
        if not ((shares >= 0) & (shares <= 1)).all():
            raise InvalidArgumentError(
                "expected probabilities from 0 to 1: a quantile exists only for those"
            )
        return np.array([self._point(float(share)) for share in shares.flat]).reshape(shares.shape)[
            ()
        ]

    def _point(self, share: float) -> float:
        """The quantile of one probability, by bracketing and Brent's method on the logarithm of
        the point.
        """
        from scipy.optimize import brentq

        if share in (0.0, 1.0):
            return 0.0 if share == 0 else math.inf
        low, high = self.mean() / 2, 2 * self.mean()
        while self._tail(high) > 1 - share:
            high *= 2
        while self._tail(low) < 1 - share:
            low /= 2
        return math.exp(
            brentq(
                lambda place: self._tail(math.exp(place)) - (1 - share),
                math.log(low),
                math.log(high),
                xtol=1e-14,
            )
        )

    def _tail(self, point: float) -> float:
        """The probability above one point."""
        if not point > 0:
            return math.nan if math.isnan(point) else 1.0
        largest = float(self.weight_K.max())
        weight, point = self.weight_K / largest, point / largest
        place, width = _saddle(weight, point)
        # There exp(-sq) alone is negligible; K(s) falls along the path.
        last = math.acosh(1 + _NEGLIGIBLE / (width * math.sin(_ANGLE) * point))
        angle = _STEP * np.arange(1 + math.ceil(last / _STEP))
        shift = width * (
            math.sin(_ANGLE) * (np.cosh(angle) - 1) + 1j * math.cos(_ANGLE) * np.sinh(angle)
        )
        speed = width * (math.sin(_ANGLE) * np.sinh(angle) + 1j * math.cos(_ANGLE) * np.cosh(angle))
        slope = 2 * weight / (1 - 2 * place * weight)
        exponent = -shift * point - 0.5 * _log_product(shift, slope)
        value = (np.exp(exponent) * speed / (place + shift)).imag
        value[0] /= 2
        factor = -0.5 * float(np.log1p(-2 * place * weight).sum()) - place * point
        return min(1.0, max(0.0, math.exp(factor) * float(value.sum()) * _STEP / math.pi))


def _log_product(shift: Complex, slope: Float) -> Complex:
    """The sum of the logarithms of 1 - shift slope over the slopes, along a path that begins at
    shift 0.

    One logarithm for eight factors: from node to node no factor turns by more than .14, so the
    angle of eight is continued without doubt.
    """
    padded = np.zeros(-(-len(slope) // _TOGETHER) * _TOGETHER)
    padded[: len(slope)] = slope
    product = np.ones((len(padded) // _TOGETHER, len(shift)), dtype=np.complex128)
    for row in padded.reshape(_TOGETHER, -1):
        product *= 1 - np.multiply.outer(row, shift)
    angle = np.angle(product)
    turns = np.rint(np.diff(angle, axis=1) / (2 * np.pi)).sum(axis=0).cumsum()
    return np.asarray(
        np.log(np.abs(product)).sum(axis=0)
        + 1j * (angle.sum(axis=0) - 2 * np.pi * np.append(0.0, turns))
    )


def _saddle(weight: Float, point: float) -> tuple[float, float]:
    """Return where $K(s) - sq - log s$ is least between 0 and 1/2, the largest weight being 1, and
    the width of the path through it.

    By Newton's steps in the log odds of the place between 0 and the branch point, none longer than
    2 upwards, and halved into the bracket where they leave it; any place near the least is as good.
    """
    odds, low, high, step = 0.0, -700.0, 30.0, math.inf
    while abs(step) > 1e-3:
        place = 0.5 / (1 + math.exp(-odds))
        share = place * weight / (1 - 2 * place * weight)
        rise = float(share.sum()) - point * place - 1  # the derivative in units of the place
        low, high = (low, odds) if rise > 0 else (odds, high)
        growth = (float((share + 2 * share**2).sum()) - point * place) * (1 - 2 * place)
        step = min(-rise / growth, 2.0) if growth > 0 else 2.0
        step = step if low < odds + step < high else (low + high) / 2 - odds
        odds += step
    place = 0.5 / (1 + math.exp(-odds))
    ratio = place * weight / (1 - 2 * place * weight)
    return place, min(place / math.sqrt(2 * float(ratio @ ratio) + 1), 2 * (0.5 - place))
