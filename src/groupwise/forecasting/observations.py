r"""From a logged series to what a law is held against: windows, smoothing, blocks, a basis for
smooth curves, and the noise around a curve: white plus first-order autoregressive, on any grid of
times, in O(n).

A row that averages a window of updates is compared with the law's average over that window. A
series that had been smoothed by a moving average is thinned to rows whose windows do not overlap,
which loses nothing and frees the noise of the smoother. Very long series are averaged in blocks.
Laws are fitted in `profile`.

How a moving average is recognised: if $y$ is the mean of the last $k$ values of $u$, then $y_t -
y_{t-1} = (u_t - u_{t-k})/k$, so that for independent noise the autocorrelation of the differences
is $-1/2$ at lag $k$ and nothing else. An exponential smoother leaves no mark that slow noise does
not leave too.

The covariance of one series is $\sigma^2\Sigma_\eta$, $\Sigma_\eta = \rho\,K_\phi + (1-\rho)\,D$:
$K_\phi$ the AR(1) correlation $\phi^{|t_i-t_j|}$, whose inverse is tridiagonal, $D$ the relative
sampling variances, $\eta = (\rho, \phi)$. By Woodbury's identity every product with $\Sigma^{-1}$
is one tridiagonal solve. How much an interval must widen because $\eta$ is itself estimated follows
from averaging over a grid of shapes. It knows no law and no curve.
"""

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.polynomial.chebyshev import chebvander
from numpy.polynomial.legendre import leggauss
from numpy.typing import ArrayLike
from scipy.linalg.lapack import dpttrf, dpttrs
from scipy.special import stdtr

from groupwise.arrays import (
    Flags,
    Float,
    Places,
    bisected,
    check_at_least,
    floats,
    mean_of,
    median,
)
from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.parsing import LARGEST_VALUE
from groupwise.plain import frozen

# Normal equations lose half of the digits.
NORMAL_EQUATIONS = 1 / np.sqrt(np.finfo(float).eps)


def rounding(value_T: Float, *, condition: float) -> float:
    """Sum of squares that rounding alone leaves of values when a smooth curve is taken off: a
    residual no larger is no noise.

    Each value is known to eps of its size, and the curve to eps of its range times the condition of
    the equations solved for it.
    """
    unit = (
        4
        * np.finfo(float).eps
        * (float(np.abs(value_T).max()) + condition * float(np.ptp(value_T)))
    )
    return float(value_T.size * unit**2)


# Correlation over one typical gap between rows, and the share of the variance that is correlated.
CORRELATIONS = (0.15, 0.35, 0.55, 0.7, 0.8, 0.88, 0.94, 0.98)
SHARES = (0.4, 0.75, 1.0)


@frozen
class NoiseShape:
    """The shape of a noise."""

    correlation: float  # of the AR(1) part over one gap
    share: float  # of the AR(1) part in the variance
    gap: float = 1.0  # the typical time between rows
    prior: float = 1.0  # prior weight
    # covariance of the slow part where it is not AR(1)
    slow_MM: Float | None = None

    @property
    def neighbour(self) -> float:
        """Correlation of the whole noise of one row with the next."""
        return self.share * self.correlation

    @property
    def free(self) -> int:
        """How many numbers this shape took to describe."""
        return 0 if self.share == 0 else 1 if self.share == 1 else 2


# Prior masses of white noise, of AR(1) plus white, and of AR(1) alone, and how the prior leans to
# long correlation: density (1 - phi)^-1/2. Chosen by simulation so that intervals at n = 50 hold
# their level for white noise and for AR(1) .8 alike (lab/docs/theory/fit.md): short series cannot
# tell the two apart, so the prior decides who is served.
PRIOR = (0.6, 0.1, 0.3)
LEAN = 0.5


@lru_cache(maxsize=64)
def noise_shapes(gap: float) -> tuple[NoiseShape, ...]:
    """The grid of shapes over which the noise is averaged; `gap` is the median time between
    rows.
    """
    edges = np.concatenate(
        [[0.0], (np.array(CORRELATIONS[1:]) + np.array(CORRELATIONS[:-1])) / 2, [1.0]]
    )
    mass = np.diff(edges) / (1 - np.array(CORRELATIONS)) ** LEAN
    mass /= mass.sum()
    shapes = [NoiseShape(0.0, 0.0, gap, PRIOR[0])]
    for phi, weight in zip(CORRELATIONS, mass, strict=True):
        for share in SHARES:
            prior = weight * (PRIOR[2] if share == 1 else PRIOR[1] / (len(SHARES) - 1))
            shapes.append(NoiseShape(phi, share, gap, prior))
    return tuple(shapes)


class Whitener:
    """Products with the inverse covariance of one noise shape, up to the scale."""

    __slots__ = ("_diagonal", "_inverse", "_off", "_share", "_white", "log_determinant")

    def __init__(self, time_M: Float, relative_variance_M: Float, shape: NoiseShape) -> None:
        """Factor the covariance; times strictly increase, variances are positive with mean 1."""
        self._share, self._inverse = shape.share, None
        if shape.slow_MM is not None:
            covariance = np.diag((1 - shape.share) * relative_variance_M)
            covariance += shape.share * shape.slow_MM
            self._inverse = np.linalg.inv(covariance)
            self.log_determinant = float(np.linalg.slogdet(covariance)[1])
            return
        self._white = 1 / ((1 - shape.share) * relative_variance_M) if shape.share < 1 else None
        self.log_determinant = -float(np.log(self._white).sum()) if self._white is not None else 0.0
        if shape.share == 0:
            return
        diagonal, off, log_state = _slow_precision(
            np.log(shape.correlation) * (np.diff(time_M) / shape.gap)
        )
        self._diagonal, self._off = diagonal / shape.share, off / shape.share
        self.log_determinant += float(log_state) + time_M.size * np.log(shape.share)
        if self._white is not None:
            self._diagonal, self._off, _ = dpttrf(self._diagonal + self._white, self._off)
            self.log_determinant += float(np.log(self._diagonal).sum())

    def apply(self, columns_MK: Float) -> Float:
        """Return Sigma^-1 times the columns."""
        if self._inverse is not None:
            return np.asarray(self._inverse @ columns_MK)
        if self._white is None:
            out = self._diagonal[:, None] * columns_MK
            out[1:] += self._off[:, None] * columns_MK[:-1]
            out[:-1] += self._off[:, None] * columns_MK[1:]
            return out
        weighted = self._white[:, None] * columns_MK
        if self._share == 0:
            return weighted
        solved, _ = dpttrs(self._diagonal, self._off, weighted)
        return np.asarray(weighted - self._white[:, None] * solved)

    def gram(self, columns_MK: Float) -> Float:
        """Return columns' Sigma^-1 columns."""
        return columns_MK.T @ self.apply(columns_MK)


def _slow_precision(log_phi: Float) -> tuple[Float, Float, Float]:
    """Diagonal and off-diagonal of the inverse AR(1) correlation and the log determinant of the
    correlation, from log phi of each gap.
    """
    innovation = -np.expm1(2 * log_phi)
    excess = 1 / innovation - 1
    diagonal = np.ones((*log_phi.shape[:-1], log_phi.shape[-1] + 1))
    diagonal[..., 1:] += excess
    diagonal[..., :-1] += excess
    return diagonal, -np.exp(log_phi) / innovation, np.log(innovation).sum(-1)


@frozen
class NoisePosterior:
    """What the residuals of a linearised model say about the noise."""

    shapes: tuple[NoiseShape, ...]  # the grid
    weight_E: Float  # posterior weight of each shape, sums to 1
    log_likelihood_E: Float  # maximised log likelihood of each shape, scale profiled out
    scale_EP: Float  # standard error of each parameter under each shape
    shift_EP: Float  # by how much each estimate moves under each shape
    variance_E: Float  # variance of one observation under each shape
    best: int  # index of the heaviest shape
    rows: int  # rows seen
    freedom: int  # rows minus parameters

    @property
    def best_shape(self) -> NoiseShape:
        """The heaviest shape."""
        return self.shapes[self.best]

    @property
    def variance(self) -> float:
        """Variance of one observation under the heaviest shape."""
        return float(self.variance_E[self.best])

    @property
    def errors(self) -> Float:
        """Standard error of each parameter under the heaviest shape."""
        return np.asarray(self.scale_EP[self.best])

    def aicc(self, mean_parameters: int) -> float:
        """Smallest corrected Akaike criterion over the noise shapes, every estimated number
        counted.
        """
        count = mean_parameters + 1 + np.array([shape.free for shape in self.shapes])
        spare = self.rows - count - 1
        correction = np.where(spare > 0, 2 * count * (count + 1) / np.maximum(spare, 1), np.inf)
        return float((-2 * self.log_likelihood_E + 2 * count + correction).min())

    def widening(self, level: float) -> Float:
        """Half-width of the interval of each parameter in standard errors of the heaviest shape.

        The interval of the mixture of t distributions over the shapes; it exceeds Student's
        quantile by what not knowing the noise costs. Derived by us.
        """
        keep = self.weight_E > 1e-4 * self.weight_E.max()
        weight = self.weight_E[keep, None] / (2 * self.weight_E[keep].sum())
        scale, shift = self.scale_EP[keep], self.shift_EP[keep] - self.shift_EP[self.best]
        own = self.errors

        def within(half: Float) -> Float:
            """Chance that a parameter is no further from its estimate."""
            sides = [stdtr(self.freedom, (half + side * shift) / scale) for side in (-1, 1)]
            return np.asarray((weight * sum(sides)).sum(0))

        ends = np.zeros_like(own), 3 * (scale * 4 + np.abs(shift)).max(0)
        return bisected(within, 0.5 + level / 2, ends, halvings=15) / own


def noise_posterior(
    time_M: Float,
    relative_variance_M: Float,
    columns_MP: Float,
    residual_M: Float,
    *,
    gap: float,
    floor: float = 0.0,
    echoes: tuple[NoiseShape, ...] = (),
) -> NoisePosterior:
    r"""Weigh every noise shape by the restricted likelihood of the residuals; at or below `floor`
    they are rounding and have no shape.

    $\ell_R(\eta) = -\frac12\log|\Sigma_\eta| - \frac12\log|J'\Sigma_\eta^{-1}J| - \frac{n-p}{2}\log
    S^2_\eta$.
    """
    shapes = (*noise_shapes(gap), *echoes)
    p, n = columns_MP.shape[1], time_M.size
    columns = np.column_stack([columns_MP, residual_M])
    whiteners = [Whitener(time_M, relative_variance_M, shape) for shape in shapes]
    grams = np.stack([whitener.gram(columns) for whitener in whiteners])
    log_determinant = np.array([whitener.log_determinant for whitener in whiteners])
    inner, right = grams[:, :p, :p], grams[:, :p, p]
    inverse = np.linalg.inv(inner)
    shift = (inverse @ right[:, :, None])[:, :, 0]
    left = grams[:, p, p] - (right * shift).sum(1)
    rest = np.maximum(left, floor + 1e-300)
    freedom = max(n - p, 1)
    log_weight = np.log([shape.prior for shape in shapes])
    if left[0] > floor:
        log_weight -= 0.5 * (log_determinant + np.linalg.slogdet(inner)[1] + freedom * np.log(rest))
    else:
        log_weight[1:] = -np.inf
    weight = np.exp(log_weight - log_weight.max())
    scale = np.sqrt(np.diagonal(inverse, axis1=1, axis2=2) * rest[:, None] / freedom)
    likelihood = -0.5 * (log_determinant + n * np.log(rest / n) + n * (1 + np.log(2 * np.pi)))
    return NoisePosterior(
        shapes,
        weight / weight.sum(),
        likelihood,
        scale,
        shift,
        rest / freedom,
        int(weight.argmax()),
        n,
        freedom,
    )


def correlations(value_T: Float) -> tuple[float, float]:
    """Return the autocorrelation at the first two lags."""
    power = float(value_T @ value_T)
    first, second = (float(value_T[lag:] @ value_T[:-lag]) / power for lag in (1, 2))
    return first, second


def moment_shape(residual_M: Float, *, gap: float) -> NoiseShape:
    """The shape on the grid that fits the first two residual autocorrelations: a place to start."""
    shapes = noise_shapes(gap)
    if residual_M @ residual_M <= 0 or residual_M.size < 6:
        return shapes[0]
    first, second = correlations(residual_M)
    if first < 2 / np.sqrt(residual_M.size):
        return shapes[0]
    distance = [
        (shape.neighbour - first) ** 2 + (shape.neighbour * shape.correlation - second) ** 2
        for shape in shapes
    ]
    return shapes[int(np.argmin(distance))]


MAX_BLOCKS = 600
# Ranges below it are no movement.
SMALLEST = 1e-100
_ROWS_AT_ONCE = 8192
# Rows of a series in which the mark of smoothed white noise can hide (lab/docs/theory/fit.md). Slow
# noise under a moving average leaves no mark at any length; its own correlation then widens the
# intervals.
MAY_HIDE = range(16, 120)
POLYNOMIALS = 100.0  # condition of the trends that are taken off before noise is looked at


@frozen
class Observations:
    """A cleaned series, ready for a law."""

    row_time_T: Float  # times of the usable rows, from 0
    row_value_T: Float  # their values
    block_starts_M: Places  # first row of each block
    time_M: Float  # mean time of each block
    value_M: Float  # mean value of each block
    relative_variance_M: Float  # sampling variance of each block, mean 1
    sampling_variance: float  # mean sampling variance of one row by the groups alone, or nan
    window: float  # length of time that one row averages
    spacing: float  # time between the values that it averages
    smoothing: int  # rows over which the series had been averaged; 1 is none
    smoothing_doubt: bool  # whether the series may have been smoothed without a mark
    origin: float  # time of the caller that is time 0 here
    rows: int  # usable rows the caller gave
    echoes: tuple[NoiseShape, ...] = ()  # that its noise may have besides `noise_shapes`

    @property
    def span(self) -> float:
        """Length of the log in the unit of time."""
        return float(self.row_time_T[-1])

    @property
    def still(self) -> bool:
        """Whether the metric never moves."""
        return float(np.ptp(self.row_value_T)) < SMALLEST

    @property
    def gap(self) -> float:
        """Median time between blocks."""
        return median(np.diff(self.time_M))

    def averaged(self, curve: Callable[[Float], Float], time_T: Float) -> Float:
        """A curve as rows at these times would show it: averaged over the window of updates that
        ends at each.
        """
        if self.window <= self.spacing:
            return curve(np.maximum(time_T, 0.0))
        centre, (node, weight) = time_T - (self.window - self.spacing) / 2, leggauss(4)
        points = zip(node, weight, strict=True)
        return np.asarray(
            sum(w / 2 * curve(np.maximum(centre + self.window / 2 * x, 0.0)) for x, w in points)
        )

    def _polynomials(self, time_T: Float, order: int) -> Float:
        """Chebyshev polynomials in the square root of time."""
        return chebvander(2 * np.sqrt(np.clip(time_T / self.span, 0, 1)) - 1, order - 1)

    def _block_means(self, first: int, last: int, order: int) -> Float:
        """Mean polynomials of some neighbouring blocks."""
        edges = np.append(self.block_starts_M, self.row_time_T.size)[first : last + 1]
        time, counts = self.row_time_T[edges[0] : edges[-1]], np.diff(edges)
        rows = self.averaged(lambda t: self._polynomials(t, order), time)
        if counts.size == time.size:
            return rows
        return np.add.reduceat(rows, edges[:-1] - edges[0], axis=0) / counts[:, None]

    def interpolation_error(self, curve: Callable[[Float], Float], order: int) -> float:
        """Largest error of the basis on a curve, over fewer than two hundred rows."""
        rows = self.row_time_T[:: max(1, self.row_time_T.size // 100)]
        unit, to_coefficients = _chebyshev(order)
        coefficients = to_coefficients @ curve(self.span * unit**2)
        guess = self.averaged(lambda t: self._polynomials(t, order), rows) @ coefficients
        return float(np.abs(guess - self.averaged(curve, rows)).max())

    def basis(self, order: int) -> tuple[Float, Float]:
        """Nodes of a law, and the matrix from its values there to the observed means.

        Chebyshev interpolation in the square root of time: dense near the start, where curves bend.
        """
        unit, to_coefficients = _chebyshev(order)
        count = self.block_starts_M.size
        # A few blocks at a time, so that a long log needs no more memory than a short one.
        some = max(1, count * _ROWS_AT_ONCE // self.row_time_T.size)
        rows = np.concatenate(
            [
                self._block_means(first, min(first + some, count), order)
                for first in range(0, count, some)
            ]
        )
        nodes: Float = self.span * unit * unit
        matrix: Float = rows @ to_coefficients
        return nodes, matrix


def unit_nodes(order: int) -> Float:
    """Nodes of the basis for a log of length 1, dense near the start."""
    return _chebyshev(order)[0] ** 2


@lru_cache(maxsize=8)
def _chebyshev(order: int) -> tuple[Float, Float]:
    """Chebyshev-Lobatto nodes on [0, 1], and the matrix from values there to coefficients."""
    unit = (1 - np.cos(np.pi * np.arange(order) / (order - 1))) / 2
    return floats(unit), floats(np.linalg.inv(chebvander(2 * unit - 1, order - 1)))


def observe(
    time_T: ArrayLike,
    value_T: ArrayLike,
    variance_T: ArrayLike | None = None,
    *,
    window: float = 1.0,
    smoothing: int | None = None,
) -> Observations:
    """Clean a series and bring it into the form that a law is fitted to."""
    check_at_least(1, window=window)
    check_at_least(1, whole=True, smoothing=1 if smoothing is None else smoothing)
    time, value, variance = usable_rows(time_T, value_T, variance_T)
    origin = float(time[0]) - (window - 1)
    rows, spacing, gaps = time.size, 1.0, np.diff(time)
    raw = smoothing is not None or window != 1 or np.ptp(gaps) > 1e-9 * gaps[0]
    width = (smoothing or 1) if raw else smoothing_window(value)
    left = _without_trend(value, 10)  # a clean curve has no noise that could have been averaged
    noisy = float(left @ left) > rounding(value, condition=POLYNOMIALS)
    doubt = noisy and not raw and width == 1 and rows >= MAY_HIDE.start
    if width > 1:
        spacing = median(gaps)
        keep_rows = np.arange(time.size - 1, -1, -width)[::-1]
        if keep_rows.size < 3:
            raise InsufficientDataError(
                f"expected at least 3 rows that share no data, got {rows} rows that average {width}"
                " each: log more, or give smoothing=1 if they do not"
            )
        origin = float(time[0]) - (width - 1) * spacing
        time, value, variance, window = time[keep_rows], value[keep_rows], None, width * spacing
    starts = np.arange(0, time.size, -(-time.size // MAX_BLOCKS))
    counts = np.diff(np.append(starts, time.size))
    block = (
        np.add.reduceat(np.ones(time.size) if variance is None else variance, starts) / counts**2
    )
    local = time - origin
    return Observations(
        row_time_T=local,
        row_value_T=value,
        block_starts_M=starts,
        time_M=np.add.reduceat(local, starts) / counts,
        value_M=np.add.reduceat(value, starts) / counts,
        relative_variance_M=block / block.mean(),
        sampling_variance=math.nan if variance is None else mean_of(variance),
        window=window,
        spacing=spacing,
        smoothing=width,
        smoothing_doubt=doubt,
        origin=origin,
        rows=rows,
    )


def rate_clock(time_T: Float, rate_T: Float | None, at_S: Float) -> Float:
    r"""The integral of the learning rate at some times, in the unit of time of the rows.

    Beyond the rows the rate goes on along the line of their last tenth, between nothing and its
    largest. Nothing is a thousandth of that: a clock never stands still. Without a rate that moves
    it is time itself.
    """
    if rate_T is None or time_T.size < 3 or not 0 <= rate_T.min() < rate_T.max() < np.inf:
        return at_S
    largest, late = float(rate_T.max()), slice(-max(3, rate_T.size // 10), None)
    slope = float(np.polyfit(time_T[late] - time_T[-1], rate_T[late], 1)[0])
    beyond = np.linspace(time_T[-1], max(float(at_S.max()), time_T[-1] + 1), MAX_BLOCKS)[1:]
    time = np.concatenate([time_T, beyond])
    rate = np.append(rate_T, rate_T[-1] + slope * (beyond - time_T[-1]))
    steps = np.clip(rate, largest / 1000, largest)[:-1] * np.diff(time)
    clock = np.append(0.0, np.cumsum(steps))
    unit = (time_T[-1] - time_T[0]) / clock[time_T.size - 1]
    return np.asarray(time_T[0] + unit * np.interp(at_S, time, clock))


def usable_rows(
    time_T: ArrayLike, value_T: ArrayLike, variance_T: ArrayLike | None = None
) -> tuple[Float, Float, Float | None]:
    """The rows whose time and value are known, and their sampling variances."""
    time, value = floats(time_T), floats(value_T)
    if time.shape != value.shape or time.ndim != 1:
        raise InvalidArgumentError(
            f"times and values need one and the same length; got {time.shape} and {value.shape}"
        )
    keep = np.isfinite(time) & np.isfinite(value)
    variance = _clean_variance(variance_T, keep)
    time, value = time[keep], value[keep]
    if time.size < 3:
        raise InsufficientDataError(
            f"a fit needs at least 3 finite values; the series has {time.size}"
        )
    if np.abs(value).max() > LARGEST_VALUE:
        raise InvalidArgumentError(
            f"a metric stays below {LARGEST_VALUE:g} in size; got {float(np.abs(value).max()):g}: "
            "rescale it"
        )
    if not np.all(np.diff(time) > 0):
        raise InvalidArgumentError("times must increase; sort the log or drop its repeated steps")
    return time, value, variance


def _clean_variance(variance_T: ArrayLike | None, keep_T: Flags) -> Float | None:
    """Sampling variances of the rows kept, with a floor where a row claims to be exact."""
    if variance_T is None:
        return None
    variance = floats(variance_T)
    if variance.shape != keep_T.shape:
        raise InvalidArgumentError(
            f"variances need one entry per value; got {variance.shape} for {keep_T.shape}"
        )
    variance = variance[keep_T]
    if (variance < 0).any():
        raise InvalidArgumentError(
            f"expected variances of at least 0 in variance_T, got {variance.min():g}: give nan "
            "where one is unknown"
        )
    usable = np.isfinite(variance)
    if not usable.any() or not (variance[usable] > 0).any():
        return None
    typical = mean_of(variance[usable])
    return np.where(usable, np.maximum(variance, 0.1 * typical), typical)


def smoothing_window(value_T: Float) -> int:
    """Recognise a moving average by the lonely spike in the autocorrelation of its differences; 1
    where there is none.

    Derived by us. At lag k the chance level is 1/sqrt(n), so short series can hide it. A curve that
    swings hides it until a bendier one is taken off.
    """
    return next((k for terms in (10, 20) if (k := _lonely_spike(value_T, terms)) > 1), 1)


def _lonely_spike(value_T: Float, terms: int) -> int:
    """Lag of the spike about a curve of so many terms; 1 where there is none."""
    difference = np.diff(_without_trend(value_T, terms))
    n = difference.size
    if n < 12:
        return 1
    difference = difference - difference.mean()
    power = float(difference @ difference)
    if power <= rounding(value_T, condition=POLYNOMIALS):
        return 1
    longest = min(n // 2, 400)
    transform = np.fft.rfft(difference, 2 * n)
    correlation = np.fft.irfft(np.abs(transform) ** 2)[: longest + 1] / power
    k = int(correlation[1:].argmin()) + 1
    threshold = max(0.3, 3.2 / np.sqrt(n - k)) * (1 - k / n)
    between = correlation[1:k]
    lonely = k > 1 and float(np.abs(between).max()) < 0.5 * -correlation[k]
    if not lonely or -correlation[k] <= threshold:
        return 1
    # A level that is left and comes back once, k rows later, makes the same spike by one product;
    # an average makes it by all.
    product = difference[:-k] * difference[k:]
    return k if product.min() > 0.5 * product.sum() else 1


def _without_trend(value_T: Float, terms: int) -> Float:
    """What is left of a series when a smooth curve is taken off; short series get a stiffer one."""
    n = value_T.size
    degree = min(terms, 2 + n * terms // 150)
    columns = chebvander(2 * np.sqrt(np.arange(n) / max(n - 1, 1)) - 1, degree)
    basis, _ = np.linalg.qr(columns)
    return value_T - basis @ (basis.T @ value_T)
