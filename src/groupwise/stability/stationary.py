r"""The exact stationary variance of modes that a batch's noise drives, by a discrete Lyapunov equation for any lag.

Noise of covariance $s_{ij}$ along the modes enters velocity and position at every update; within a block of a lag the variance changes with
the phase, and its mean is given. It knows no reward: `fluctuations` does.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from groupwise.errors import InvalidArgumentError
from groupwise.stability.crossings import Float
from groupwise.stability.lags import check_setting
from groupwise.stability.staleness import partly_stale


def stationary_variance(
    force: float,
    momentum: float,
    *,
    learning_rate: float,
    noise_variance: float,
    refresh_interval: int = 1,
    lag: str = "none",
    stale_share: float = 1.0,
) -> float:
    r"""Return the exact stationary variance of one mode's coordinate, mean over the phase of the refresh interval.

    $v_{t+1} = \mu v_t - a x_{t-d} + \eta\zeta_t$ with $Var(\zeta) = s^2$ independent from update to update.

    Source: derived here; on-policy it is $\eta^2 s^2 (1+\mu)/[(1-\mu) a (2(1+\mu) - a)]$.

    Example:
        >>> round(stationary_variance(0.1, 0.0, learning_rate=1.0, noise_variance=1.0), 4)
        5.2632
    """
    _check(force, momentum, refresh_interval, noise_variance)
    kind = partly_stale(lag, stale_share)
    if force >= float(kind.threshold(np.asarray(momentum), np.asarray(refresh_interval))):
        return math.inf
    scale = learning_rate**2 * noise_variance
    if lag == "none":
        return scale * (1 + momentum) / ((1 - momentum) * force * (2 * (1 + momentum) - force))
    return scale * float(_stationary([_updates(force, momentum, refresh_interval, lag, stale_share)], np.ones((1, 1)))[0, 0])


def stationary_covariance(
    force_M: ArrayLike,
    momentum: float,
    *,
    learning_rate: float,
    noise_covariance_MM: ArrayLike,
    refresh_interval: int = 1,
    lag: str = "none",
) -> Float:
    r"""Return the exact stationary covariance of several modes that one batch's noise drives together, mean over the phase.

    Source: derived here; on-policy without momentum it is $\eta^2 s_{ij}/(a_i + a_j - a_i a_j)$.

    Example:
        >>> stationary_covariance([0.1, 0.2], 0.0, learning_rate=1.0, noise_covariance_MM=[[1, 1], [1, 1]]).round(2).tolist()
        [[5.26, 3.57], [3.57, 2.78]]
    """
    force, noise = np.asarray(force_M, dtype=np.float64), np.asarray(noise_covariance_MM, dtype=np.float64)
    if force.ndim != 1 or noise.shape != (len(force), len(force)) or not 1 <= len(force) <= 64:
        raise InvalidArgumentError(f"expected 1 to 64 modes and a square noise covariance of them, got {force.shape} and {noise.shape}")
    for one, variance in zip(force, np.diag(noise), strict=True):
        _check(float(one), momentum, refresh_interval, float(variance))
    if not np.allclose(noise, noise.T):
        raise InvalidArgumentError("expected a symmetric noise covariance")
    limit = float(partly_stale(lag).threshold(np.asarray(momentum), np.asarray(refresh_interval)))
    if (force >= limit).any():
        return np.full_like(noise, np.inf)
    updates = [_updates(float(one), momentum, refresh_interval, lag, 1.0) for one in force]
    return learning_rate**2 * _stationary(updates, noise)


def _check(force: float, momentum: float, interval: int, noise: float) -> None:
    """Refuse arguments outside their domain."""
    check_setting(momentum, interval)
    if not (math.isfinite(force) and force > 0):
        raise InvalidArgumentError(f"expected a positive force per update, got {force}")
    if not (math.isfinite(noise) and noise >= 0):
        raise InvalidArgumentError(f"expected a noise variance of at least 0, got {noise}")


def _updates(force: float, momentum: float, interval: int, lag: str, stale_share: float) -> list[Float]:
    """The updates of one period as matrices; the first two rows are position and velocity."""
    if lag in {"none", "fixed"}:
        return [partly_stale(lag, stale_share).map(force, momentum, interval)]
    slots = 1 if lag == "refresh" else 2
    inner = np.eye(2 + slots)
    inner[:2, 1] = momentum
    inner[:2, 0] -= (1 - stale_share) * force
    inner[:2, 2] = -stale_share * force
    last = inner.copy()
    # At the end of a block the newest position takes the last slot, and the slots before it move up.
    for slot in range(slots - 1):
        last[2 + slot] = inner[3 + slot]
    last[1 + slots] = inner[0]
    return [inner] * (interval - 1) + [last]


def _stationary(updates_M: list[list[Float]], noise_MM: Float) -> Float:
    """Mean over the phases of the covariance of the positions of modes, with noise on velocity and position at every update."""
    from scipy.linalg import block_diag, solve_discrete_lyapunov

    steps = [np.asarray(block_diag(*matrices)) for matrices in zip(*updates_M, strict=True)]
    size = len(updates_M[0][0])

    def noise(phase: int) -> Float:
        kick = np.zeros(size)
        kick[:2] = 1.0
        # At the end of a block a slot copies the new position, and its noise with it.
        matrix = updates_M[0][phase]
        kick[2:] = [float(np.array_equal(row, matrix[0])) for row in matrix[2:]]
        return np.asarray(np.kron(noise_MM, np.outer(kick, kick)))

    whole, added = np.eye(len(steps[0])), np.zeros(steps[0].shape)
    for phase, matrix in enumerate(steps):
        whole, added = matrix @ whole, matrix @ added @ matrix.T + noise(phase)
    covariance = solve_discrete_lyapunov(whole, added)
    total = np.zeros(noise_MM.shape)
    for phase, matrix in enumerate(steps):
        covariance = matrix @ covariance @ matrix.T + noise(phase)
        total += covariance[::size, ::size]
    return total / len(steps)
