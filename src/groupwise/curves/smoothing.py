r"""Was the series smoothed before it was logged? A moving average leaves a mark in the differences.

If $y$ is the mean of the last $k$ values of $u$, then $y_t - y_{t-1} = (u_t - u_{t-k})/k$: for independent noise the
autocorrelation of the differences is $-1/2$ at lag $k$ and nothing else. Undoing it is in `observations`; an exponential
smoother leaves no mark that slow noise does not leave too.
"""

from __future__ import annotations

import numpy as np
from numpy.polynomial.chebyshev import chebvander
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve_triangular, toeplitz

FloatArray = NDArray[np.float64]

# Below this many rows the mark of smoothed white noise can hide (docs/theory/fit.md). Slow noise under a moving average
# leaves no mark at any length; its own correlation then widens the intervals.
SHORT = 120
_CORRELATIONS = (0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.97, 0.999)


def smoothing_window(value_T: ArrayLike) -> int:
    """Recognise a moving average by the lonely spike in the autocorrelation of its differences.

    Source: derived by us. At lag k the chance level is 1/sqrt(n), so short series can hide it: `may_be_smoothed`.

    Example:
        >>> noise = np.random.default_rng(0).normal(size=400)
        >>> smoothing_window(np.convolve(noise, np.ones(10) / 10, "valid")), smoothing_window(noise)
        (10, 1)
    """
    difference = np.diff(_without_trend(np.asarray(value_T, dtype=float)))
    n = difference.size
    if n < 12:
        return 1
    difference = difference - difference.mean()
    power = float(difference @ difference)
    if power <= 0:
        return 1
    longest = min(n - 8, max(n // 2, 3), 400)
    transform = np.fft.rfft(difference, 2 * n)
    correlation = np.fft.irfft(np.abs(transform) ** 2)[: longest + 1] / power
    k = int(correlation[1:].argmin()) + 1
    threshold = max(0.3, 3.2 / np.sqrt(n - k)) * (1 - k / n)
    between = correlation[1:k]
    lonely = k > 1 and float(np.abs(between).max()) < 0.5 * -correlation[k]
    return k if lonely and -correlation[k] > threshold else 1


def _without_trend(value_T: FloatArray) -> FloatArray:
    """What is left of a series when a smooth curve is taken off; short series get a stiffer one."""
    n = value_T.size
    columns = chebvander(2 * np.sqrt(np.arange(n) / max(n - 1, 1)) - 1, min(10, 2 + n // 15))
    basis, _ = np.linalg.qr(columns)
    return np.asarray(value_T - basis @ (basis.T @ value_T))


def may_be_smoothed(value_T: ArrayLike) -> bool:
    """Whether a short series is as likely under a moving average as under white or AR(1) noise.

    The restricted likelihoods of the differences are compared, a polynomial trend projected out of both.

    Source: derived by us.

    Example:
        >>> may_be_smoothed(np.random.default_rng(0).normal(size=60))
        False
    """
    value = np.asarray(value_T, dtype=float)
    n = value.size
    if not 16 <= n < SHORT or float(np.ptp(value)) == 0:
        return False
    difference = np.diff(value)
    trend = np.asarray(np.diff(chebvander(np.linspace(-1, 1, n), 5), axis=0)[:, 1:], dtype=np.float64)
    lag = np.arange(n, dtype=np.float64)
    rough = max(_likelihood(difference, trend, _differenced(np.asarray(phi**lag))) for phi in _CORRELATIONS)
    for k in range(3, min(n // 2, 30)):
        row = np.zeros(n - 1)
        row[0], row[k] = 2.0, -1.0
        if _likelihood(difference, trend, row) > rough:
            return True
    return False


def _differenced(correlation_T: FloatArray) -> FloatArray:
    """Autocovariance of the differences of a series with the given autocorrelation."""
    c = correlation_T
    return np.asarray(2 * c[:-1] - np.concatenate([c[1:2], c[:-2]]) - c[1:])


def _likelihood(difference: FloatArray, trend: FloatArray, row: FloatArray) -> float:
    """Restricted log likelihood of differences with a Toeplitz covariance, scale profiled out."""
    factor = np.linalg.cholesky(toeplitz(row) + 1e-6 * np.eye(row.size))
    white = solve_triangular(factor, np.column_stack([trend, difference]), lower=True)
    basis, triangle = np.linalg.qr(white[:, :-1])
    residual = white[:, -1] - basis @ (basis.T @ white[:, -1])
    freedom = row.size - trend.shape[1]
    power = max(float(residual @ residual), 1e-300)
    return float(-np.log(np.diag(factor)).sum() - np.log(np.abs(np.diag(triangle))).sum() - freedom / 2 * np.log(power))
