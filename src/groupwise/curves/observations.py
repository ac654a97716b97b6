r"""From a logged series to what a law is held against: windows, smoothing, blocks, and a basis for smooth curves.

A row that averages a window of updates is compared with the law's average over that window. A series that had been
smoothed by a moving average is thinned to rows whose windows do not overlap, which loses nothing and frees the noise of
the smoother. Very long series are averaged in blocks. Fitting is in `profile`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.polynomial.chebyshev import chebvander
from numpy.polynomial.legendre import leggauss
from numpy.typing import ArrayLike, NDArray

from groupwise.curves.smoothing import may_be_smoothed, smoothing_window
from groupwise.errors import InsufficientDataError, InvalidArgumentError

FloatArray = NDArray[np.float64]
MAX_BLOCKS = 600
# Squares of larger values do not fit into a float, and ranges below the smallest are no movement.
LARGEST, SMALLEST = 1e100, 1e-100
_ROWS_AT_ONCE = 8192
_NO_BLOCKS = np.zeros(0, dtype=np.intp)


@dataclass(frozen=True, slots=True)
class Observations:
    """A cleaned series, ready for a law."""

    row_time_T: FloatArray  # times of the usable rows, from 0
    row_value_T: FloatArray  # their values
    block_starts_M: NDArray[np.intp]  # first row of each block
    time_M: FloatArray  # mean time of each block
    value_M: FloatArray  # mean value of each block
    relative_variance_M: FloatArray  # sampling variance of each block, mean 1
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
        return float(np.median(np.diff(self.time_M)))

    def _polynomials(self, time_T: FloatArray, order: int) -> FloatArray:
        """Chebyshev polynomials in the square root of time."""
        return np.asarray(chebvander(2 * np.sqrt(np.clip(time_T / self.span, 0, 1)) - 1, order - 1))

    def _block_means(self, first: int, last: int, order: int) -> FloatArray:
        """Mean polynomials of some neighbouring blocks."""
        starts = self.block_starts_M[first:last]
        end = int(self.block_starts_M[last]) if last < self.block_starts_M.size else self.row_time_T.size
        time = self.row_time_T[starts[0] : end]
        rows = averaged(lambda t: self._polynomials(t, order), time, self.window, self.spacing)
        if starts.size == time.size:
            return rows
        counts = np.diff(np.append(starts, end))
        return np.asarray(np.add.reduceat(rows, starts - starts[0], axis=0) / counts[:, None])

    def interpolation_error(self, curve: Callable[[FloatArray], FloatArray], order: int) -> float:
        """Largest error of the basis on a curve, over up to a hundred rows."""
        rows = self.row_time_T[:: max(1, self.row_time_T.size // 100)]
        unit, to_coefficients = _chebyshev(order)
        coefficients = to_coefficients @ curve(self.span * unit**2)
        guess = averaged(lambda t: self._polynomials(t, order), rows, self.window, self.spacing) @ coefficients
        return float(np.abs(guess - averaged(curve, rows, self.window, self.spacing)).max())

    def basis(self, order: int) -> tuple[FloatArray, FloatArray]:
        """Nodes of a law, and the matrix from its values there to the observed means.

        Chebyshev interpolation in the square root of time: dense near the start, where curves bend.
        """
        unit, to_coefficients = _chebyshev(order)
        count = self.block_starts_M.size
        # A few blocks at a time, so that a long log needs no more memory than a short one.
        some = max(1, count * _ROWS_AT_ONCE // self.row_time_T.size)
        rows = np.concatenate([self._block_means(first, min(first + some, count), order) for first in range(0, count, some)])
        nodes: FloatArray = self.span * unit * unit
        matrix: FloatArray = rows @ to_coefficients
        return nodes, matrix


def unit_nodes(order: int) -> FloatArray:
    """Nodes of the basis for a log of length 1.

    Example:
        >>> unit_nodes(3).round(3).tolist()
        [0.0, 0.25, 1.0]
    """
    return np.asarray(_chebyshev(order)[0] ** 2)


@lru_cache(maxsize=8)
def _chebyshev(order: int) -> tuple[FloatArray, FloatArray]:
    """Chebyshev-Lobatto nodes on [0, 1], and the matrix from values there to coefficients."""
    unit = (1 - np.cos(np.pi * np.arange(order) / (order - 1))) / 2
    return np.asarray(unit, dtype=np.float64), np.asarray(np.linalg.inv(chebvander(2 * unit - 1, order - 1)), dtype=np.float64)


def averaged(function: Callable[[FloatArray], FloatArray], time_T: FloatArray, window: float, spacing: float = 1.0) -> FloatArray:
    """A function of time averaged over the window of updates that ends at each time.

    Example:
        >>> averaged(lambda t: t, np.array([9.0]), 10.0).round(6).tolist()
        [4.5]
    """
    if window <= spacing:
        return function(np.maximum(time_T, 0.0))
    node, weight = leggauss(4)
    centre = time_T - (window - spacing) / 2
    return np.asarray(sum(w / 2 * function(np.maximum(centre + window / 2 * x, 0.0)) for x, w in zip(node, weight, strict=True)))


def observe(
    time_T: ArrayLike, value_T: ArrayLike, variance_T: ArrayLike | None = None, *, window: float = 1.0, smoothing: int | None = None
) -> Observations:
    """Clean a series and bring it into the form that a law is fitted to.

    Example:
        >>> observe([0, 1, 2, 3], [0.1, 0.2, float("nan"), 0.4]).rows
        3
    """
    time, value = np.asarray(time_T, dtype=float), np.asarray(value_T, dtype=float)
    if time.shape != value.shape or time.ndim != 1:
        raise InvalidArgumentError(f"times and values need one and the same length; got {time.shape} and {value.shape}")
    if not 1 <= window < np.inf:
        raise InvalidArgumentError(f"a row averages a finite number of updates, at least one; got a window of {window}")
    keep = np.isfinite(time) & np.isfinite(value)
    variance = _clean_variance(variance_T, keep)
    time, value = time[keep], value[keep]
    if smoothing is not None and smoothing < 1:
        raise InvalidArgumentError(f"a series is averaged over at least one row; got a smoothing of {smoothing}")
    if time.size and float(np.abs(value).max()) > LARGEST:
        raise InvalidArgumentError(f"a metric stays below {LARGEST:g} in size; got {float(np.abs(value).max()):g}: rescale it")
    if time.size < 3:
        raise InsufficientDataError(f"a fit needs at least 3 finite values; the series has {time.size}")
    if not bool(np.all(np.diff(time) > 0)):
        raise InvalidArgumentError("times must increase; sort the log or drop its repeated steps")
    origin = float(time[0]) - (window - 1)
    rows, spacing, known = time.size, 1.0, smoothing is not None or window != 1 or not _even(time)
    width = (smoothing or 1) if known else smoothing_window(value)
    doubt = not known and width == 1 and may_be_smoothed(value)
    if width > 1:
        spacing = float(np.median(np.diff(time)))
        keep_rows = np.arange(time.size - 1, -1, -width)[::-1]
        origin = float(time[0]) - (width - 1) * spacing
        time, value, variance, window = time[keep_rows], value[keep_rows], None, width * spacing
    return _blocked(
        Observations(time - origin, value, _NO_BLOCKS, time, value, value, 0.0, window, spacing, width, doubt, origin, rows), variance
    )


def _even(time_T: FloatArray) -> bool:
    """Whether the rows are evenly spaced."""
    gaps = np.diff(time_T)
    return bool(np.ptp(gaps) <= 1e-9 * gaps[0])


def _clean_variance(variance_T: ArrayLike | None, keep_T: NDArray[np.bool_]) -> FloatArray | None:
    """Sampling variances of the rows kept, with a floor where a row claims to be exact."""
    if variance_T is None:
        return None
    variance = np.asarray(variance_T, dtype=float)
    if variance.shape != keep_T.shape:
        raise InvalidArgumentError(f"variances need one entry a value; got {variance.shape} for {keep_T.shape}")
    variance = variance[keep_T]
    known = np.isfinite(variance) & (variance >= 0)
    if not known.any() or not (variance[known] > 0).any():
        return None
    typical = float(variance[known].mean())
    return np.where(known, np.maximum(variance, 0.1 * typical), typical)


def _blocked(series: Observations, variance: FloatArray | None) -> Observations:
    """Average neighbouring rows until at most `MAX_BLOCKS` are left."""
    time, value = series.row_time_T, series.row_value_T
    size = -(-time.size // MAX_BLOCKS)
    starts = np.arange(0, time.size, size)
    counts = np.diff(np.append(starts, time.size))
    relative = np.ones(time.size) if variance is None else variance
    block = np.add.reduceat(relative, starts) / counts**2
    return replace(
        series,
        block_starts_M=starts,
        time_M=np.add.reduceat(time, starts) / counts,
        value_M=np.add.reduceat(value, starts) / counts,
        relative_variance_M=block / block.mean(),
        sampling_variance=float("nan") if variance is None else float(variance.mean()),
    )
