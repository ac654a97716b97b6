r"""The law of a weighted sum of chi-squares, in the manner of a frozen `scipy.stats` distribution,
with a bound of every error.

$Q = \sum_k w_k\chi^2_{d_k}(\lambda_k)$, independent: weights of any sign, from one to 100,000 of
them, any degrees of freedom, central or not. Equal weights are one chi-square, taken from SciPy up
to 1e4 degrees; otherwise the characteristic function is inverted along a path through the saddle
point (`contour`), far tails included. It says nothing of where the weights come from: that is
`final_gap`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray
from worlds.contour import Tails, Terms, compressed, upper_tails

from groupwise.arrays import Float, finite_array
from groupwise.errors import InvalidArgumentError

NEWTON_STEPS = 80
LAST_PLACE = 700.0  # of -log of a point: nearer to zero a float holds no number with all its digits
EXACT_DOWN_TO = 1e-100  # further out SciPy's gamma functions lose digits
EXACT_UP_TO = 1e4  # degrees of freedom; at 3e7 SciPy's lower tail is wrong by 6 %
EXACT_ERROR = 1e-13  # relative, of those functions
# of the smallest weight: nearer to zero the leading term of the series is the whole of it
SMALLEST_POINT = 1e-20
FAR_POINT = 1e100  # of the largest weight
LOWEST_LOG = -1e300
SMALLEST_WEIGHT = 1e-150  # of the largest; next to it a smaller one is nothing
LARGEST_WEIGHT = 1e150  # so that squares and ratios fit a float; its inverse is the smallest
LARGEST_ORDER = 150
PRECISION = float(np.finfo(float).eps)
SMALLEST_FLOAT = 5e-324


@dataclass(frozen=True, slots=True)
class BoundedValue:
    """Numbers with the bound of their numerical error."""

    value: Float  # the numbers
    error: Float  # bound of the absolute error of each


@dataclass(frozen=True, slots=True)
class _Sides:
    """Logarithms of both tails and of the density at some points, and bounds of the absolute
    errors.
    """

    log_lower: Float
    log_upper: Float
    log_density: Float
    tail_error: Float
    density_error: Float


@dataclass(frozen=True, slots=True, eq=False)
class ChiSquareMixture:
    r"""A weighted sum of independent chi-squares, frozen.

    $Q = \sum_k w_k\chi^2_{d_k}(\lambda_k)$, with $\chi^2_d(\lambda) = \sum_{i\le d}(Z_i +
    \mu_i)^2$, $\lambda = \sum\mu_i^2$.

    Source: Imhof (1961), Biometrika 48, 419-426, and Davies (1980), Applied Statistics 29, 323-333,
    for the problem; the path and its bound are derived here (lab/docs/theory/final-gap.md).
    """

    weight_K: Float  # w, finite and not zero; of any sign
    degrees_K: Float  # d, positive, need not be whole; one number stands for all
    noncentrality_K: Float  # lambda, at least 0; one number stands for all
    _terms: Terms = field(repr=False)

    def __init__(
        self, weight_K: ArrayLike, degrees_K: ArrayLike = 1.0, noncentrality_K: ArrayLike = 0.0
    ) -> None:
        weight = _numbers("weight_K", weight_K)
        if (weight == 0).any():
            count = int((weight == 0).sum())
            raise InvalidArgumentError(
                f"expected weights that are not zero, got {count} of {len(weight)} zero: leave "
                "those out"
            )
        size = np.abs(weight)
        if not (size.max() <= LARGEST_WEIGHT and size.max() >= 1 / LARGEST_WEIGHT):
            raise InvalidArgumentError(
                f"expected a largest weight from 1e-150 to 1e150, got {size.max():.3g}: change the "
                "unit of Q"
            )
        if size.min() < SMALLEST_WEIGHT * size.max():
            raise InvalidArgumentError(
                f"expected weights of at least 1e-150 times the largest, got {size.min():.3g} "
                f"beside {size.max():.3g}: leave those out"
            )
        degrees = _one_each("degrees_K", degrees_K, len(weight))
        noncentrality = _one_each("noncentrality_K", noncentrality_K, len(weight))
        if not (degrees > 0).all():
            raise InvalidArgumentError(
                f"expected positive degrees of freedom, got {degrees.min():g}: leave that weight "
                "out"
            )
        if not (noncentrality >= 0).all():
            raise InvalidArgumentError(
                f"expected non-centralities of at least 0, got {noncentrality.min():g}: give "
                "squared means"
            )
        # Chi-squares of one weight add up to one chi-square.
        distinct, place = np.unique(weight, return_inverse=True)
        object.__setattr__(self, "weight_K", distinct)
        object.__setattr__(self, "degrees_K", np.bincount(place, degrees, len(distinct)))
        object.__setattr__(
            self, "noncentrality_K", np.bincount(place, noncentrality, len(distinct))
        )
        # Thousands of weights are replaced by hundreds that give the same integrand.
        object.__setattr__(
            self,
            "_terms",
            compressed(Terms(distinct / self._scale, self.degrees_K, self.noncentrality_K)),
        )

    def cdf(self, x: ArrayLike) -> Float:
        """Return P(Q <= x) at every point; the smaller tail is the one computed, so both keep
        their relative precision.
        """
        return self._at(x, lambda sides: np.exp(sides.log_lower))

    def sf(self, x: ArrayLike) -> Float:
        """Return P(Q > x) at every point, with its relative precision however small it is."""
        return self._at(x, lambda sides: np.exp(sides.log_upper))

    def logcdf(self, x: ArrayLike) -> Float:
        """Return the natural logarithm of P(Q <= x), also where the probability itself is below
        what a float holds.
        """
        return self._at(x, lambda sides: sides.log_lower)

    def logsf(self, x: ArrayLike) -> Float:
        """Return the natural logarithm of P(Q > x), also where the probability itself is below
        what a float holds.
        """
        return self._at(x, lambda sides: sides.log_upper)

    def pdf(self, x: ArrayLike) -> Float:
        """Return the density at every point; infinite at 0 where it has a pole there."""
        return self._at(x, lambda sides: np.exp(sides.log_density))

    def cdf_with_error(self, x: ArrayLike) -> BoundedValue:
        """Return P(Q <= x) with the bound of its numerical error.

        The bound adds up what the trapezoidal rule can be wrong by, what lies beyond its last node,
        and rounding.
        """
        return self._bounded(x, lambda sides: np.stack([np.exp(sides.log_lower), sides.tail_error]))

    def sf_with_error(self, x: ArrayLike) -> BoundedValue:
        """Return P(Q > x) with the bound of its numerical error, as `cdf_with_error`."""
        return self._bounded(x, lambda sides: np.stack([np.exp(sides.log_upper), sides.tail_error]))

    def pdf_with_error(self, x: ArrayLike) -> BoundedValue:
        """Return the density with the bound of its numerical error, as `cdf_with_error`."""
        return self._bounded(
            x, lambda sides: np.stack([np.exp(sides.log_density), sides.density_error])
        )

    def ppf(self, q: ArrayLike) -> Float:
        """Return the points below which the probabilities q lie; InvalidArgumentError outside 0
        to 1.
        """
        return self._quantile(_probabilities(q), upper=False)

    def isf(self, q: ArrayLike) -> Float:
        """Return the points above which the probabilities q lie, with full precision in the
        upper tail.
        """
        return self._quantile(_probabilities(q), upper=True)

    def support(self) -> tuple[float, float]:
        """Return the lowest and the highest value that Q can have."""
        return (-math.inf if self.weight_K[0] < 0 else 0.0), (
            math.inf if self.weight_K[-1] > 0 else 0.0
        )

    def cumulant(self, order: int) -> float:
        r"""Return a cumulant: $2^{r-1}(r-1)!\sum_k w_k^r(d_k + r\lambda_k)$; infinite where a
        float cannot hold it.
        """
        if not 1 <= order <= LARGEST_ORDER:
            raise InvalidArgumentError(
                f"expected an order of 1 to {LARGEST_ORDER}, got {order}: cumulants begin with the "
                "mean"
            )
        with np.errstate(over="ignore", under="ignore"):
            return float(self._scaled_cumulant(order) * np.float64(self._scale) ** order)

    def _scaled_cumulant(self, order: int) -> float:
        """A cumulant in units of the largest weight, whose powers neither overflow nor vanish."""
        total = (self.weight_K / self._scale) ** order @ (
            self.degrees_K + order * self.noncentrality_K
        )
        return float(2.0 ** (order - 1) * math.factorial(order - 1) * total)

    def mean(self) -> float:
        """Return E[Q]."""
        return self.cumulant(1)

    def var(self) -> float:
        """Return the variance of Q."""
        return self.cumulant(2)

    def std(self) -> float:
        """Return the standard deviation of Q."""
        return self._scale * math.sqrt(self._scaled_cumulant(2))

    @property
    def _scale(self) -> float:
        """The largest weight in size, the unit of all integrals."""
        return float(max(abs(self.weight_K[0]), abs(self.weight_K[-1])))

    def _at(self, x: ArrayLike, take: Callable[[_Sides], Float]) -> Float:
        """Evaluate one quantity at points of any shape; NaN stays NaN."""
        return np.asarray(self._rows(x, lambda sides: take(sides)[None])[0])[()]

    def _bounded(self, x: ArrayLike, take: Callable[[_Sides], Float]) -> BoundedValue:
        """Evaluate a quantity and its bound together."""
        value, error = self._rows(x, take)
        # The last logarithm and exponential, and what a float near 1 or near nothing can hold at
        # all.
        with np.errstate(invalid="ignore"):
            whole = error + PRECISION * value + SMALLEST_FLOAT
        return BoundedValue(value[()], whole[()])

    def _rows(self, x: ArrayLike, take: Callable[[_Sides], Float]) -> Float:
        """Evaluate several quantities, a row each, at points of any shape."""
        point = _points("x", x)
        with np.errstate(over="ignore", under="ignore"):
            flat = point.ravel() / self._scale
        known = ~np.isnan(flat)
        found = take(_sides(self._terms, flat[known], self._scale))
        out = np.full((len(found), len(flat)), np.nan)
        out[:, known] = found
        return out.reshape(len(found), *point.shape)

    def _quantile(self, probability: Float, *, upper: bool) -> Float:
        """Solve for points, from the side on which the tail is the smaller one."""
        flat = probability.ravel()
        terms, out = self._terms, np.full(flat.shape, np.nan)
        low, high = self.support()
        above = float(np.exp(_sides(terms, np.array([terms.mean]), self._scale).log_upper[0]))
        out[flat == 0], out[flat == 1] = (high, low) if upper else (low, high)
        inside = (flat > 0) & (flat < 1)
        right = (flat <= above) if upper else (flat >= 1 - above)
        log_same, log_other = np.log(flat[inside]), np.log1p(-flat[inside])
        log_right, log_left = (log_same, log_other) if upper else (log_other, log_same)
        solved = np.empty(len(log_same))
        chosen = right[inside]
        solved[chosen] = _upper_points(terms, log_right[chosen])
        solved[~chosen] = -_upper_points(terms.mirrored, log_left[~chosen])
        out[inside] = solved * self._scale
        return np.asarray(out.reshape(probability.shape))[()]


def _one_each(name: str, values: ArrayLike, count: int) -> Float:
    """One number a weight; a single number stands for all."""
    array = _points(name, values)
    array = _numbers(name, np.full(count, float(array)) if array.ndim == 0 else array)
    if len(array) != count:
        raise InvalidArgumentError(
            f"expected {count} entries in {name}, one a weight, got {len(array)}: give one for all "
            "or one for each"
        )
    return array


def _numbers(name: str, values: ArrayLike) -> Float:
    """At least one finite number in a row, or a sentence."""
    array = _points(name, values)
    if not array.size:
        raise InvalidArgumentError(
            f"expected at least one number in {name}, got none: a sum of nothing has no law"
        )
    return finite_array(name, array, dimensions=1)


def _points(name: str, values: ArrayLike) -> Float:
    """Real numbers of any shape, or a sentence."""
    try:
        array = np.asarray(values)
        if array.dtype.kind in "fiub" or not array.size:
            return array.astype(float)
    except (TypeError, ValueError):
        pass
    raise InvalidArgumentError(
        f"expected numbers in {name}, got {str(values)[:40]!r}: convert them first"
    )


def _probabilities(values: ArrayLike) -> Float:
    """Probabilities from 0 to 1, or a sentence."""
    array = _points("q", values)
    bad = ~((array >= 0) & (array <= 1))
    if bad.any():
        raise InvalidArgumentError(
            f"expected probabilities from 0 to 1, got {array[bad].ravel()[0]:g}: a quantile exists "
            "only for those"
        )
    return array


def _sides(terms: Terms, point_Q: Float, unit: float) -> _Sides:
    """Both tails and the density at points in units of the largest weight; the density comes
    back per `unit`.
    """
    out = np.empty((5, len(point_Q)))
    right = point_Q > terms.mean
    for side, chosen in ((1, right), (-1, ~right)):
        if not chosen.any():
            continue
        log_tail, tail_error, log_density, density_error = _one_side(
            terms if side > 0 else terms.mirrored, side * point_Q[chosen]
        )
        with np.errstate(divide="ignore"):
            rest = np.log1p(-np.minimum(np.exp(log_tail), 1.0))
        lower, upper = (rest, log_tail) if side > 0 else (log_tail, rest)
        out[:, chosen] = (
            lower,
            upper,
            log_density - math.log(unit),
            tail_error,
            density_error / unit,
        )
    return _Sides(*out)


def _one_side(terms: Terms, point_Q: Float) -> tuple[Float, Float, Float, Float]:
    """Logarithms of the upper tail and the density with bounds of their errors, at points above
    the mean.
    """
    out = np.zeros((4, len(point_Q)))
    out[0], out[2] = -np.inf, -np.inf
    bounded = bool((terms.weight_K < 0).all())
    inside = np.isfinite(point_Q) & (
        (point_Q < 0) if bounded else np.ones(len(point_Q), dtype=bool)
    )
    near_zero = inside & bounded & (point_Q > -_smallest_point(terms))
    largest = float(terms.weight_K.max())
    far = inside & (largest > 0) & (point_Q > FAR_POINT * largest)
    inside &= ~(near_zero | far)
    if far.any():  # only exp(-x / (2 max w)) counts, and the tail itself is below every float
        with np.errstate(over="ignore"):
            out[0, far] = np.maximum(-point_Q[far] / (2 * largest), LOWEST_LOG)
        out[2, far] = out[0, far] - math.log(2 * largest)
    if near_zero.any():
        out[:, near_zero] = _leading_term(terms, -point_Q[near_zero])
    if inside.any():
        found = upper_tails(terms, point_Q[inside])
        out[:, inside] = _from_tails(found)
        _put_exact(terms, point_Q, inside, out)
    with np.errstate(over="ignore", invalid="ignore"):
        rounding = (
            PRECISION * np.abs(point_Q[inside]) * np.exp(out[2, inside])
        )  # of the point itself
    out[1, inside] += np.where(np.isfinite(rounding), rounding, 0.0)
    zero = point_Q == 0
    if zero.any():
        out[2, zero] = _log_density_at_zero(terms, float(out[2, zero][0]))
    return out[0], out[1], out[2], out[3]


def _from_tails(found: Tails) -> Float:
    """Logarithms and absolute errors; a value that rounding made negative is nothing, and its
    bound says so.
    """
    with np.errstate(divide="ignore", under="ignore"):
        factor = np.exp(found.log_factor_Q)
        log_tail = found.log_factor_Q + np.log(np.maximum(found.tail_Q, 0))
        log_density = found.log_factor_Q + np.log(np.maximum(found.density_Q, 0))
        return np.stack(
            [log_tail, factor * found.tail_error_Q, log_density, factor * found.density_error_Q]
        )


def _put_exact(terms: Terms, point_Q: Float, inside: NDArray[np.bool_], out: Float) -> None:
    """Where all weights are equal and the law is central, take the tail from the incomplete
    gamma function.
    """
    if len(terms.weight_K) > 1 or terms.noncentrality_K[0] or terms.degrees_K[0] > EXACT_UP_TO:
        return
    from scipy.special import gammainc, gammaincc

    half, weight = terms.degrees_K[0] / 2, terms.weight_K[0]
    tail = (gammaincc if weight > 0 else gammainc)(half, np.abs(point_Q[inside] / (2 * weight)))
    good = tail > EXACT_DOWN_TO
    where = np.flatnonzero(inside)[good]
    out[0, where], out[1, where] = np.log(tail[good]), EXACT_ERROR * tail[good]


def _smallest_point(terms: Terms) -> float:
    """Where the next term of the series at 0, at most x (D + lambda) / min w of the leading one,
    is below rounding.
    """
    total = 1 + float(terms.degrees_K.sum() + terms.noncentrality_K.sum())
    return SMALLEST_POINT * float(np.abs(terms.weight_K).min()) / total


def _leading_term(terms: Terms, point_Q: Float) -> Float:
    """Tail and density next to 0 of a law of one sign: F(x) = exp(-lambda/2) prod w^(-d/2)
    (x/2)^(D/2) / Gamma(D/2 + 1).
    """
    half = float(terms.degrees_K.sum()) / 2
    with np.errstate(divide="ignore"):
        log_point = np.log(point_Q)
    constant = -0.5 * float(
        terms.degrees_K @ np.log(np.abs(terms.weight_K)) + terms.noncentrality_K.sum()
    ) - math.lgamma(half + 1)
    log_tail = constant + half * (log_point - math.log(2))
    log_density = (
        constant
        + math.log(half)
        - half * math.log(2)
        + (half - 1) * np.where(half == 1, 0.0, log_point)
    )
    error = 1e-12 * np.exp(log_tail)
    return np.stack([log_tail, error, log_density, 1e-12 * np.exp(np.minimum(log_density, 700))])


def _log_density_at_zero(terms: Terms, found: float) -> float:
    """The density at 0: of a law of one sign its limit from inside; of both signs infinite up to
    two degrees of freedom in all.
    """
    degrees = float(terms.degrees_K.sum())
    if (terms.weight_K > 0).any() and (terms.weight_K < 0).any():
        return math.inf if degrees <= 2 else found
    if degrees == 2:
        return float(_leading_term(terms, np.zeros(1))[2, 0])
    return math.inf if degrees < 2 else -math.inf


def _upper_points(terms: Terms, log_tail_Q: Float) -> Float:
    """Solve log P(Q > x) = given, for x above the mean, by Newton's method within a bracket.

    Where Q is below zero for sure, -log(-x) is solved for: there the tail is a power of the
    distance to zero.
    """
    count = len(log_tail_Q)
    bounded = bool((terms.weight_K < 0).all())
    deviation, mean = math.sqrt(terms.variance), terms.mean
    first = -math.log(-mean) if bounded else mean
    low_Q, high_Q = np.full(count, first), np.full(count, np.inf)
    spread = deviation / -mean if bounded else deviation
    place_Q = first + spread * np.sqrt(-2 * log_tail_Q) * 0.5
    open_Q = np.ones(count, dtype=bool)
    for _ in range(NEWTON_STEPS):
        place = place_Q[open_Q]
        point = -np.exp(-place) if bounded else place
        log_tail, _, log_density, _ = _one_side(terms, point)
        excess = log_tail - log_tail_Q[open_Q]
        below = excess > 0
        low, high = np.where(below, place, low_Q[open_Q]), np.where(below, high_Q[open_Q], place)
        step = excess * np.exp(log_tail - log_density) / (-point if bounded else 1.0)
        new = place + step
        outside = ~((new >= low) & (new <= high))
        halved = np.where(np.isfinite(high), (low + high) / 2, place + 2 * (place - first) + spread)
        new = np.where(outside, halved, new)
        size = np.ones_like(point) if bounded else np.maximum(np.abs(point), 1e-3 * deviation)
        if bounded:
            new = np.minimum(new, LAST_PLACE)
        done = (np.abs(new - place) <= 2e-15 * size) | (
            ~outside & (np.abs(step) <= 1e-9 * size) & (np.abs(excess) < 1e-7)
        )
        low_Q[open_Q], high_Q[open_Q], place_Q[open_Q] = low, high, new
        open_Q[np.flatnonzero(open_Q)[done]] = False
        if not open_Q.any():
            break
    return np.asarray(-np.exp(-place_Q) if bounded else place_Q)
