r"""The law of a sum of chi-squares of one degree of freedom with positive weights, which the final
gap tends to.

$P(Q > q) = \frac{1}{2\pi i}\int e^{K(s) - sq}\,ds/s$ with $K(s) = -\frac12\sum_k \log(1-2sw_k)$.
Above the mean the path passes the saddle point between 0 and $1/(2\max w)$, below the mean the one
left of 0, where the same integral is $-P(Q \le q)$: so the smaller tail is computed, with all its
digits. The path is a hyperbola that bends towards where $e^{-sq}$ decays; there the trapezoidal
rule converges geometrically (lab/docs/theory/final-gap.md). 40-digit arithmetic judges it
(`lab/tests/golden/test_chi_square.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from groupwise.arrays import Float, finite_array
from groupwise.edge.mode import Complex
from groupwise.errors import InvalidArgumentError

_ANGLE = 0.39  # of the hyperbola
_STEP = 0.08  # between two nodes
_REACH = (2.8, 3.5, 4.5, 6.0, 8.0, 11.0, 15.0, 20.0, 28.0, 40.0, 60.0)  # ends that are tried
_NEGLIGIBLE = 42.0  # minus the natural logarithm of what no longer counts
_SMALL = 0.3  # products of a slope and a shift whose logarithm is a series
_TERMS = 30  # of that series: the next is below 1e-17 of the first
_TOGETHER = 8  # factors of one logarithm


@dataclass(frozen=True, slots=True, eq=False)
class ChiSquareMixture:
    r"""$Q = \sum_k w_k\chi^2_1$, independent, in the manner of a frozen `scipy.stats` distribution.

    Source: Imhof (1961), Biometrika 48, 419-426, for the problem; the path is derived here
    (lab/docs/theory/final-gap.md).
    """

    weight_K: Float  # w, positive

    def __post_init__(self) -> None:
        """Refuse what is no weight; sort the others, the largest first."""
        weight = finite_array("weight_K", self.weight_K, dimensions=1).astype(np.float64)
        if not (weight.size and weight.min() > 0):
            raise InvalidArgumentError(
                "expected at least one weight, and weights above 0: leave the others out"
            )
        object.__setattr__(self, "weight_K", np.sort(weight)[::-1])

    def mean(self) -> float:
        """Return E[Q]."""
        return float(self.weight_K.sum())

    def var(self) -> float:
        """Return the variance of Q."""
        return float(2 * (self.weight_K**2).sum())

    def sf(self, x: ArrayLike) -> Float:
        """Return P(Q > x) at every point."""
        return _each(lambda point: self._tails(point)[1], x)

    def cdf(self, x: ArrayLike) -> Float:
        """Return P(Q <= x) at every point."""
        return _each(lambda point: self._tails(point)[0], x)

    def ppf(self, q: ArrayLike) -> Float:
        """Return the points below which the probabilities q lie."""
        return _each(lambda share: self._quantile(share, tail=0), q)

    def isf(self, q: ArrayLike) -> Float:
        """Return the points above which the probabilities q lie."""
        return _each(lambda share: self._quantile(share, tail=1), q)

    def _quantile(self, share: float, *, tail: int) -> float:
        """The point with this probability below it (tail 0) or above it (tail 1), by Brent's
        method on the logarithms of point and probability.
        """
        if not 0 <= share <= 1:
            raise InvalidArgumentError(
                "expected probabilities from 0 to 1: a quantile exists only for those"
            )
        if share in (0.0, 1.0):
            return 0.0 if (share == 0) == (tail == 0) else math.inf
        if share > 0.5:
            share, tail = 1 - share, 1 - tail

        def distance(place: float) -> float:
            probability = self._tails(math.exp(place))[tail]
            return math.log(max(probability, 1e-320) / share) * (1 if tail == 0 else -1)

        low = high = math.log(self.mean())
        while distance(low) > 0:
            low -= 0.7
        while distance(high) < 0:
            high += 0.7
        return math.exp(brentq(distance, low, high, xtol=1e-14)) if low < high else math.exp(low)

    def _tails(self, point: float) -> tuple[float, float]:
        """The probabilities below and above one point; the smaller one has all its digits."""
        if not point > 0:
            return (math.nan, math.nan) if math.isnan(point) else (0.0, 1.0)
        if math.isinf(point):
            return 1.0, 0.0
        largest = float(self.weight_K[0])
        weight, point = self.weight_K / largest, point / largest
        above = point > float(weight.sum())
        place = (_place_above if above else _place_below)(weight, point)
        slope = 2 * weight / (1 - 2 * place * weight)
        width = 1.4 / math.sqrt(float(slope @ slope) / 2 + place**-2)
        if above:
            width = min(width, 2 * (0.5 - place))
        factor = -0.5 * float(np.log1p(-2 * place * weight).sum()) - place * point
        integral = _integral(slope, point, place, width)
        tail = min(1.0, max(0.0, math.exp(factor) * integral / abs(place)))
        return (1 - tail, tail) if above else (tail, 1 - tail)


def _each(function: Callable[[float], float], points: ArrayLike) -> Float:
    """The values of a function of one number at every point."""
    values = np.asarray(points, dtype=np.float64)
    return np.array([function(float(value)) for value in values.flat]).reshape(values.shape)[()]


def _integral(slope: Float, point: float, place: float, width: float) -> float:
    """The integral over the path, in units of the integrand at the saddle point times the place."""
    for last in _REACH:
        shift, _ = _path(width, np.array([last]))
        square = 1 - 2 * slope * shift.real + (slope * abs(shift)) ** 2  # of a factor's modulus
        if -float(shift[0].real) * point - float(np.log(square).sum()) / 4 < -_NEGLIGIBLE:
            break
    shift, speed = _path(width, np.arange(0.0, last + _STEP, _STEP))
    exponent = -shift * point - 0.5 * _log_product(shift, slope)
    value = (np.exp(exponent) * speed / (1 + shift / place)).imag
    return (float(value.sum()) - float(value[0]) / 2) * _STEP / math.pi


def _path(width: float, angle: Float) -> tuple[Complex, Complex]:
    """The hyperbola from the saddle point on: shifts from it, and their derivatives."""
    sine, cosine = width * math.sin(_ANGLE), 1j * width * math.cos(_ANGLE)
    growth, swing = np.cosh(angle), np.sinh(angle)
    return sine * (growth - 1) + cosine * swing, sine * swing + cosine * growth


def _log_product(shift: Complex, slope: Float) -> Complex:
    """The sum of the logarithms of 1 - shift slope over the slopes, which fall, along a path that
    begins at shift 0 and ends at its longest.

    Where the product is small the logarithm is a series in power sums. Elsewhere eight factors
    share one logarithm: from node to node no factor turns by more than .16, so the angle of eight
    is continued without doubt.
    """
    longest = abs(shift[-1])
    shift, slope = shift / longest, slope * longest  # powers of long shifts overflow
    large = int(np.searchsorted(-slope, -_SMALL))
    small, power, total = slope[large:], slope[large:], np.zeros(len(shift), dtype=np.complex128)
    if len(small):
        shifted = shift
        for term in range(1, _TERMS + 1):
            total -= shifted * (float(power.sum()) / term)
            power, shifted = power * small, shifted * shift
    if large:
        padded = np.zeros(-(-large // _TOGETHER) * _TOGETHER)
        padded[:large] = slope[:large]
        product = np.ones((len(padded) // _TOGETHER, len(shift)), dtype=np.complex128)
        for row in padded.reshape(_TOGETHER, -1):
            product *= 1 - np.multiply.outer(row, shift)
        angle = np.unwrap(np.angle(product), axis=1)
        total += np.log(np.abs(product)).sum(axis=0) + 1j * angle.sum(axis=0)
    return total


def _place_above(weight: Float, point: float) -> float:
    """Where $K(s) - sq - log s$ is least between 0 and 1/2, the largest weight being 1.

    By Newton's steps in the log odds of the place between 0 and the branch point, none longer than
    2 upwards, and halved into the bracket where they leave it; any place near the least is as good.
    """
    odds, low, high, step = 0.0, -700.0, 34.0, math.inf
    while abs(step) > 1e-2:
        place = 0.5 / (1 + math.exp(-odds))
        share = place * weight / (1 - 2 * place * weight)
        total = float(share.sum()) - point * place
        low, high = (low, odds) if total > 1 else (odds, high)
        growth = (total + 2 * float(share @ share)) * (1 - 2 * place)
        step = min((1 - total) / growth, 2.0) if growth > 0 else 2.0
        step = step if low < odds + step < high else (low + high) / 2 - odds
        odds += step
    return 0.5 / (1 + math.exp(-odds))


def _place_below(weight: Float, point: float) -> float:
    """Where $K(s) - sq - log(-s)$ is least left of 0, by Newton's steps in the logarithm of -s,
    from the place that is right where all weights are large beside the point.
    """
    depth, step = math.log((len(weight) / 2 + 1) / point), math.inf
    while abs(step) > 1e-2:
        place = -math.exp(depth)
        share = place * weight / (1 - 2 * place * weight)
        total = float(share.sum()) - point * place
        growth = total + 2 * float(share @ share)
        step = max(-2.0, min(2.0, (1 - total) / growth)) if growth > 0 else -2.0
        depth += step
    return -math.exp(depth)
