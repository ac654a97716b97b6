r"""Stationary variances of settled runs for any lag, and the test of swings against 1/G.

Gradient noise of variance $s^2$ a batch drives each mode; its stationary variance is temperature
over stiffness, exactly a discrete Lyapunov equation. Noise enters velocity and position at every
update; within a block of a lag the variance changes with the phase, and its mean is given.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from groupwise.edge.mode import Float, check_setting
from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.intervals import Interval
from groupwise.plain import Plain
from groupwise_lab.theory.mse import mse
from groupwise_lab.theory.partly_stale import spectral_radius, updates_of_period


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
    r"""Return the exact stationary variance of one mode's coordinate, mean over the phase of the
    refresh interval.

    $v_{t+1} = \mu v_t - a x_{t-d} + \eta\zeta_t$ with $Var(\zeta) = s^2$ independent from update to
    update.

    Source: derived here; on-policy it is $\eta^2 s^2 (1+\mu)/[(1-\mu) a (2(1+\mu) - a)]$.
    """
    _check(force, momentum, refresh_interval, noise_variance)
    if spectral_radius(force, momentum, refresh_interval, lag, stale_share) >= 1 - 1e-9:
        return math.inf
    scale = learning_rate**2 * noise_variance
    if lag == "none":
        return scale * (1 + momentum) / ((1 - momentum) * force * (2 * (1 + momentum) - force))
    updates = updates_of_period(force, momentum, refresh_interval, lag, stale_share)
    return scale * _stationary([np.asarray(matrix) for matrix in updates])


def _check(force: float, momentum: float, interval: int, noise: float) -> None:
    """Refuse arguments outside their domain."""
    check_setting(momentum, interval)
    if not (math.isfinite(force) and force > 0):
        raise InvalidArgumentError(f"expected a positive force per update, got {force}")
    if not (math.isfinite(noise) and noise >= 0):
        raise InvalidArgumentError(f"expected a noise variance of at least 0, got {noise}")


def _stationary(updates: list[Float]) -> float:
    """Mean over the phases of the variance of the position, with noise on velocity and position
    at every update.
    """
    from scipy.linalg import solve_discrete_lyapunov

    kicks = []
    for matrix in updates:
        # At the end of a block a slot copies the new position, and its noise with it.
        copies = [float(np.array_equal(row, matrix[0])) for row in matrix[2:]]
        kick = np.array([1.0, 1.0, *copies])
        kicks.append(np.outer(kick, kick))
    whole, added = np.eye(len(updates[0])), np.zeros(updates[0].shape)
    for matrix, kick in zip(updates, kicks, strict=True):
        whole, added = matrix @ whole, matrix @ added @ matrix.T + kick
    covariance, total = solve_discrete_lyapunov(whole, added), 0.0
    for matrix, kick in zip(updates, kicks, strict=True):
        covariance = matrix @ covariance @ matrix.T + kick
        total += float(covariance[0, 0])
    return total / len(updates)


def temperature_over_stiffness(
    force: float, damping: float, *, learning_rate: float, noise_variance: float
) -> float:
    r"""Return the leading-order variance, $\eta^2 s^2/(2 a\gamma) = \eta s^2/(2K\gamma)$.

    Source: arXiv 2606.30789 (fluctuation as a temperature that falls as 1/G); the constant is
    derived here.
    """
    return learning_rate**2 * noise_variance / (2 * force * damping) if damping > 0 else math.inf


@dataclass(frozen=True, slots=True)
class GroupSizeTest(Plain):
    """Fluctuations at several group sizes against 1/G and against the exact law."""

    KEYS = "exponent expected_exponent status"

    exponent: Interval  # b of variance ~ G^-b, with its interval
    status: str  # a sentence
    # what the gradient's components lead to over these group sizes; NaN where they were not given
    expected_exponent: float = math.nan


def group_size_test(
    group_size_M: ArrayLike,
    variance_M: ArrayLike,
    rows_M: ArrayLike,
    *,
    components: tuple[float, float, float] | None = None,
    level: float = 0.95,
) -> GroupSizeTest:
    r"""Return the exponent b of $Var \propto G^{-b}$ from settled runs, to be held against 1.

    A variance from n effective rows has a relative error of $\sqrt{2/n}$; the fit weighs by it.

    Source: derived here. Known deviations: R/T, the part between prompts, and with division by the
    deviation the step itself.
    """
    from scipy.special import ndtri

    size, variance, rows = (
        np.asarray(values, dtype=np.float64) for values in (group_size_M, variance_M, rows_M)
    )
    if not ((size > 1).all() and (variance > 0).all() and (rows > 0).all()):
        raise InvalidArgumentError(
            "expected group sizes above 1, variances and numbers of rows above 0"
        )
    if len(np.unique(size)) < 2:
        raise InsufficientDataError(
            f"expected runs at two or more group sizes, got {len(np.unique(size))}"
        )
    weight = rows / 2
    x, y = np.log(size), np.log(variance)
    x = x - weight @ x / weight.sum()
    precision = float(weight @ x**2)
    slope, half = (
        -float((weight * x) @ y) / precision,
        float(ndtri(0.5 + level / 2)) / math.sqrt(precision),
    )
    exponent = Interval(slope, slope - half, slope + half, level)
    verdict = (
        "agrees with 1/G"
        if exponent.covers(1.0)
        else "falls faster than 1/G"
        if exponent.low > 1
        else "falls slower than 1/G"
    )
    status = (
        f"The variance goes as G^-{slope:.2f} ({exponent.low:.2f} to {exponent.high:.2f}): it "
        f"{verdict}."
    )
    if components is None:
        return GroupSizeTest(exponent, status)
    vp, t, r = components
    law = mse(vp, t, r, size, 1)
    if not (np.isfinite(law) & (law > 0)).all():
        raise InvalidArgumentError(
            "expected components whose error of the gradient is positive at every group size"
        )
    expected = -float((weight * x) @ np.log(law)) / precision
    return GroupSizeTest(
        exponent,
        (
            f"{status} The components lead to G^-{expected:.2f}, which "
            f"{'agrees' if exponent.covers(expected) else 'differs'}."
        ),
        expected,
    )
