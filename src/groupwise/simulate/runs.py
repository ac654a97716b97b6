r"""Simulated reward curves with a known mean and a known noise.

The mean is stepped by the exact propagator of the oscillator's differential equation, not by any closed form of
`dynamics.laws`: judge and judged share no code. No log is written here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import expm
from scipy.signal import lfilter

from groupwise.errors import InvalidArgumentError

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Curve:
    """A damped oscillator in units of the log's length, so that one set serves every length.

    Args:
        plateau: level approached, reward units.
        start: level at the first update.
        turns: natural frequency times the length of the log, radians.
        damping_ratio: zeta.
    """

    plateau: float
    start: float
    turns: float
    damping_ratio: float


def oscillator_mean(curve: Curve, n: int) -> FloatArray:
    r"""Exact mean of the oscillator at n evenly spaced times over its whole length.

    $(x, v)' = A (x, v)$, $A = [[0, 1], [-\omega^2, -2\zeta\omega]]$, stepped by $e^{A\,dt}$.

    Args:
        curve: the oscillator.
        n: number of times, at least 2.

    Returns:
        Mean reward, shape (n,).

    Raises:
        InvalidArgumentError: fewer than two times.

    Example:
        >>> mean = oscillator_mean(Curve(0.75, 0.2, 9.0, 1.0), 5)
        >>> float(mean[0].round(12)), bool(mean[-1] > 0.74)
        (0.2, True)

    Source: the differential equation of 2606.30789.
    """
    if n < 2:
        raise InvalidArgumentError(f"a simulated run needs at least 2 times; got {n}")
    dt = 1 / (n - 1)
    step = expm(dt * np.array([[0.0, 1.0], [-(curve.turns**2), -2 * curve.damping_ratio * curve.turns]]))
    state = np.array([curve.start - curve.plateau, 0.0])
    offsets = np.empty(n)
    for i in range(n):
        offsets[i] = state[0]
        state = step @ state
    return np.asarray(curve.plateau + offsets)


def autoregressive_noise(rng: np.random.Generator, n: int, *, deviation: float, correlation: float = 0.0) -> FloatArray:
    """Stationary AR(1) noise.

    Args:
        rng: the source of randomness.
        n: length.
        deviation: stationary standard deviation, reward units.
        correlation: of neighbours, in [0, 1).

    Returns:
        Shape (n,).

    Raises:
        InvalidArgumentError: the correlation is outside [0, 1).

    Example:
        >>> autoregressive_noise(np.random.default_rng(0), 3, deviation=0.0).tolist()
        [0.0, 0.0, 0.0]
    """
    if not 0 <= correlation < 1:
        raise InvalidArgumentError(f"a correlation lies in [0, 1); got {correlation}")
    shocks = rng.normal(size=n) * deviation
    shocks[1:] *= np.sqrt(1 - correlation**2)
    return np.asarray(lfilter([1.0], [1.0, -correlation], shocks))


def simulated_curve(
    rng: np.random.Generator, curve: Curve, n: int, *, deviation: float, correlation: float = 0.0, smoothing: int = 1
) -> FloatArray:
    """One observed curve: mean plus noise, both averaged over the last `smoothing` updates where asked.

    Args:
        rng: the source of randomness.
        curve: the oscillator; its length is that of the unsmoothed series.
        n: rows that come out.
        deviation: standard deviation of the unsmoothed noise.
        correlation: of neighbouring updates.
        smoothing: width of a trailing moving average; 1 is none.

    Returns:
        Shape (n,).

    Example:
        >>> simulated_curve(np.random.default_rng(0), Curve(0.75, 0.2, 9.0, 1.0), 50, deviation=0.02, smoothing=20).shape
        (50,)
    """
    raw = n + smoothing - 1
    series = oscillator_mean(curve, raw) + autoregressive_noise(rng, raw, deviation=deviation, correlation=correlation)
    return np.convolve(series, np.full(smoothing, 1 / smoothing), "valid") if smoothing > 1 else series
