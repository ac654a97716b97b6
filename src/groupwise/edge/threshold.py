r"""The edge of stability: the lowest force per update $a = \eta K$ at which a mode grows, for every
kind of lag.

One mode of heavy-ball descent is $v_{t+1} = \mu v_t - a x_{t-d}$, $x_{t+1} = x_t + v_{t+1}$: the
force is as old as the rollouts, and kinds of lag differ in the age d. `period_matrix` builds what
one period does to a mode, `threshold` bisects for the force at which an eigenvalue of it leaves the
unit circle.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from groupwise.arrays import Flags, Float, Whole
from groupwise.errors import InvalidArgumentError

Complex = NDArray[np.complex128]


LAGS = ("none", "fixed", "refresh", "async")
"""Kinds of lag: every rollout comes from the policy it updates, or is R updates old; R updates use
one generation of rollouts, or those generated during the last R.
"""
_LONGEST = 1e9


def check_lag(lag: str) -> None:
    """Refuse what is no kind of lag."""
    if lag not in LAGS:
        raise InvalidArgumentError(
            f"expected a kind of lag, got {lag[:60]!r}: use one of {', '.join(LAGS)}"
        )


def updates_of_period(lag: str, interval: int) -> int:
    """Return the updates that one period covers."""
    return interval if lag in ("refresh", "async") else 1


def period_matrix(
    lag: str, force: ArrayLike, momentum: ArrayLike, interval: ArrayLike = 1
) -> Float:
    """Return the matrix of one period; arrays broadcast to a stack, but for a fixed lag's interval.

    The state of a fixed lag is (x, v, x one update ago, ..., x that many updates ago). Else it is
    (x, v, the position that the rollouts are from), and a period is R updates: refresh begins it
    with rollouts from x, async ends it with those from where it began.
    """
    fixed = lag == "fixed"
    a, mu, updates = np.broadcast_arrays(
        np.asarray(force, dtype=float), np.asarray(momentum, dtype=float), interval
    )
    size = int(np.max(interval)) + 2 if fixed else 3
    update = np.zeros((*a.shape, size, size))
    update[..., 0, 0] = 1.0
    update[..., :2, 1] = mu[..., None]
    update[..., :2, -1] = -a[..., None]
    if fixed:
        update[..., 2, 0] = 1.0
        update[..., range(3, size), range(2, size - 1)] = 1.0
        return update
    update[..., 2, 2] = 1.0
    period = update if lag == "none" else _power(update, updates)
    if lag == "async":
        period[..., 2, :] = [1.0, 0.0, 0.0]
        return period
    with np.errstate(invalid="ignore"):
        period[..., 0] += period[..., 2]
    period[..., 2] = 0.0
    return period


def _power(matrix: Float, exponent: Whole) -> Float:
    """Powers of a stack of matrices, each with its own exponent, by repeated squares."""
    product, left = np.broadcast_to(np.eye(3), matrix.shape), exponent.astype(np.int64)
    with np.errstate(over="ignore", invalid="ignore"):
        while left.any():
            product = np.where((left % 2 == 1)[..., None, None], product @ matrix, product)
            matrix, left = matrix @ matrix, left // 2
    return product


def threshold(lag: str, momentum: ArrayLike, refresh_interval: ArrayLike) -> Float:
    r"""Return the force per update $a = \eta K$ from which a mode grows; arrays broadcast.

    Source: derived here (lab/docs/theory/dynamics.md); the published rule, $(1-\mu)/R$, is arXiv
    2606.30789's.
    """
    check_lag(lag)
    mu, interval = np.broadcast_arrays(
        np.asarray(momentum, dtype=float), np.asarray(refresh_interval, dtype=float)
    )
    check_setting(mu, interval)
    if (broken := interval[interval != np.floor(interval)]).size:
        raise InvalidArgumentError(
            f"expected whole updates as refresh interval, got {broken.flat[0]:g}"
        )
    mu_N, updates_N = mu.ravel(), interval.ravel().astype(np.int64)
    if lag == "fixed":
        return _edge_of_delay(mu_N, updates_N).reshape(mu.shape)
    return _edge_of_block(lag, mu_N, updates_N).reshape(mu.shape)


def _edge_of_block(lag: str, mu_N: Float, interval_N: Whole) -> Float:
    """Bisect the force: the characteristic polynomial is linear in it, and no window of stability
    lies above the edge, which is at most that of on-policy training.
    """
    without = _characteristic(period_matrix(lag, 0.0, mu_N, interval_N))[..., None]
    each = _characteristic(period_matrix(lag, 1.0, mu_N, interval_N))[..., None] - without

    def grown(force_NF: Float) -> Flags:
        return _excess(without + force_NF * each) >= 0

    return first_place(grown, np.zeros(len(mu_N)), 2.1 * (1 + mu_N))


def _edge_of_delay(mu_N: Float, age_N: Whole) -> Float:
    r"""Bisect the angle w at which $e^{iw}$ is an eigenvalue under a real force: the matrix is as
    large as the lag, but its characteristic equation, $(\lambda - 1)(1 - \mu/\lambda) +
    a\lambda^{-d} = 0$, is linear in the force.
    """
    mu_N1, age_N1 = mu_N[:, None], age_N[:, None]

    def force(angle_NF: Float) -> Complex:
        turn = np.exp(1j * angle_NF)
        pulled = (1 - turn) * (1 - mu_N1 / turn) * np.exp(1j * angle_NF * age_N1)
        return np.asarray(pulled, dtype=np.complex128)

    low_N = np.full(len(mu_N), 1e-12)
    before_N1 = np.sign(force(low_N[:, None]).imag)
    crossing_N = first_place(
        lambda angle_NF: np.not_equal(np.sign(force(angle_NF).imag), before_N1),
        low_N,
        math.pi / (2 * age_N),
    )
    return force(crossing_N[:, None]).real[:, 0]


def first_place(held: Callable[[Float], Flags], low_N: Float, high_N: Float) -> Float:
    """Return the first place of each bracket at which a condition holds, by sections.

    It is taken not to hold at the lower end, and to hold at the upper one.
    """
    row, part = np.arange(len(low_N)), np.linspace(0, 1, 17)
    for _ in range(20):
        if (high_N <= np.nextafter(low_N, math.inf)).all():
            break
        points = low_N[:, None] + (high_N - low_N)[:, None] * part
        points[:, -1] = high_N
        seen = held(points)
        seen[:, 0], seen[:, -1] = False, True
        place = np.argmax(seen, axis=1)
        low_N, high_N = points[row, place - 1], points[row, place]
    return high_N


def _characteristic(matrix: Float) -> Float:
    r"""The coefficients t, m, c of $\lambda^3 - t\lambda^2 + m\lambda - c$ of matrices of three
    rows, on the first axis.
    """
    entry = np.moveaxis(matrix, (-2, -1), (0, 1))
    with np.errstate(over="ignore", invalid="ignore"):
        t = entry[0, 0] + entry[1, 1] + entry[2, 2]
        m = sum(
            entry[i, i] * entry[j, j] - entry[i, j] * entry[j, i]
            for i, j in ((0, 1), (0, 2), (1, 2))
        )
        c = sum(
            entry[2, i] * (entry[0, j] * entry[1, k] - entry[0, k] * entry[1, j])
            for i, j, k in ((0, 1, 2), (1, 2, 0), (2, 0, 1))
        )
    return np.stack([t, m, c])


def _excess(coefficients: Float) -> Float:
    """The largest of Jury's conditions: positive where an eigenvalue is outside the unit circle."""
    t, m, c = coefficients
    with np.errstate(over="ignore", invalid="ignore"):
        pair = np.abs(m - c * t) - (1 - c**2)
        excess = np.maximum(np.maximum(np.abs(t + c) - 1 - m, np.abs(c) - 1), pair)
    # What is no number has left the range of numbers.
    return np.where(np.isnan(excess), np.inf, excess)


def check_setting(momentum: ArrayLike, interval: ArrayLike) -> None:
    """Refuse a momentum or an interval outside its domain."""
    mu, updates = np.asarray(momentum, dtype=float), np.asarray(interval, dtype=float)
    usable = (mu >= 0) & (mu < 1)
    if not usable.all():
        raise InvalidArgumentError(
            f"expected a momentum of at least 0 and below 1, got {mu[~usable].flat[0]:g}"
        )
    usable = (updates >= 1) & (updates <= _LONGEST)
    if not usable.all():
        raise InvalidArgumentError(
            f"expected a refresh interval of 1 to {_LONGEST:,.0f} updates, got "
            f"{updates[~usable].flat[0]:g}"
        )
