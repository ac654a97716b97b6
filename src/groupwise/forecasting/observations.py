r"""From a logged series to what a law is held against: windows, smoothing, blocks, and a basis for
smooth curves.

A row that averages a window of updates is compared with the law's average over that window. A
series that had been smoothed by a moving average is thinned to rows whose windows do not overlap,
which loses nothing and frees the noise of the smoother. Very long series are averaged in blocks.
Laws are fitted in `law_fit`.

How a moving average is recognised: if $y$ is the mean of the last $k$ values of $u$, then $y_t -
y_{t-1} = (u_t - u_{t-k})/k$, so that for independent noise the autocorrelation of the differences
is $-1/2$ at lag $k$ and nothing else. An exponential smoother leaves no mark that slow noise does
not leave too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.polynomial.chebyshev import chebvander
from numpy.polynomial.legendre import leggauss
from numpy.typing import ArrayLike

from groupwise.arrays import Flags, Float, Places, median
from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.forecasting.noise import rounding
from groupwise.limits import LARGEST_VALUE
from groupwise.plain import frozen

MAX_BLOCKS = 600
# Ranges below it are no movement.
SMALLEST = 1e-100
_ROWS_AT_ONCE = 8192
# Rows of a series in which the mark of smoothed white noise can hide (lab/docs/theory/fit.md). Slow
# noise under a moving average leaves no mark at any length; its own correlation then widens the
# intervals.
_MAY_HIDE = range(16, 120)
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
    smoothing_doubt: bool  # whether the series may have been smoothed and is too short to tell
    origin: float  # time of the caller that is time 0 here
    rows: int  # usable rows the caller gave

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
        starts = self.block_starts_M[first:last]
        end = (
            int(self.block_starts_M[last])
            if last < self.block_starts_M.size
            else self.row_time_T.size
        )
        time = self.row_time_T[starts[0] : end]
        rows = self.averaged(lambda t: self._polynomials(t, order), time)
        if starts.size == time.size:
            return rows
        counts = np.diff(np.append(starts, end))
        return np.add.reduceat(rows, starts - starts[0], axis=0) / counts[:, None]

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
    return np.asarray(unit, dtype=float), np.asarray(
        np.linalg.inv(chebvander(2 * unit - 1, order - 1)), dtype=float
    )


def observe(
    time_T: ArrayLike,
    value_T: ArrayLike,
    variance_T: ArrayLike | None = None,
    *,
    window: float = 1.0,
    smoothing: int | None = None,
) -> Observations:
    """Clean a series and bring it into the form that a law is fitted to."""
    if not 1 <= window < np.inf:
        raise InvalidArgumentError(
            f"a row averages a finite number of updates, at least one; got a window of {window}"
        )
    if smoothing is not None and smoothing < 1:
        raise InvalidArgumentError(
            f"a series is averaged over at least one row; got a smoothing of {smoothing}"
        )
    time, value, variance = _usable_rows(time_T, value_T, variance_T)
    origin = float(time[0]) - (window - 1)
    rows, spacing, gaps = time.size, 1.0, np.diff(time)
    raw = smoothing is not None or window != 1 or np.ptp(gaps) > 1e-9 * gaps[0]
    width = (smoothing or 1) if raw else smoothing_window(value)
    left = _without_trend(value)  # a clean curve has no noise that could have been averaged
    noisy = float(left @ left) > rounding(value, condition=POLYNOMIALS)
    doubt = noisy and not raw and width == 1 and rows in _MAY_HIDE
    if width > 1:
        spacing = median(gaps)
        keep_rows = np.arange(time.size - 1, -1, -width)[::-1]
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
        sampling_variance=math.nan if variance is None else float(variance.mean()),
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


def _usable_rows(
    time_T: ArrayLike, value_T: ArrayLike, variance_T: ArrayLike | None
) -> tuple[Float, Float, Float | None]:
    """The rows whose time and value are known, and their sampling variances."""
    time, value = np.asarray(time_T, dtype=float), np.asarray(value_T, dtype=float)
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
    variance = np.asarray(variance_T, dtype=float)
    if variance.shape != keep_T.shape:
        raise InvalidArgumentError(
            f"variances need one entry a value; got {variance.shape} for {keep_T.shape}"
        )
    variance = variance[keep_T]
    usable = np.isfinite(variance) & (variance >= 0)
    if not usable.any() or not (variance[usable] > 0).any():
        return None
    typical = float(variance[usable].mean())
    return np.where(usable, np.maximum(variance, 0.1 * typical), typical)


def smoothing_window(value_T: ArrayLike) -> int:
    """Recognise a moving average by the lonely spike in the autocorrelation of its differences; 1
    where there is none.

    Derived by us. At lag k the chance level is 1/sqrt(n), so short series can hide it.
    """
    value = np.asarray(value_T, dtype=float)
    difference = np.diff(_without_trend(value))
    n = difference.size
    if n < 12:
        return 1
    difference = difference - difference.mean()
    power = float(difference @ difference)
    if power <= rounding(value, condition=POLYNOMIALS):
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


def _without_trend(value_T: Float) -> Float:
    """What is left of a series when a smooth curve is taken off; short series get a stiffer one."""
    n = value_T.size
    columns = chebvander(2 * np.sqrt(np.arange(n) / max(n - 1, 1)) - 1, min(10, 2 + n // 15))
    basis, _ = np.linalg.qr(columns)
    return value_T - basis @ (basis.T @ value_T)
