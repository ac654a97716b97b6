r"""Kinds of lag between the policy that sampled a rollout and the one it updates: the exact map, threshold and onset of one mode.

One mode of heavy-ball descent, $x_{t+1} = x_t + v_{t+1}$, $v_{t+1} = \mu v_t - a\,x_{t-d}$ with $a = \eta K$; lags differ in d. Every map
is the product of R single updates in closed form. It judges no run: `stability` does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from groupwise.errors import InvalidArgumentError
from groupwise.stability.crossings import first_crossing

Float = NDArray[np.float64]

LONGEST_FIXED_LAG = 1024
"""Longest fixed lag of which a spectrum is worth its time, in updates."""


@dataclass(frozen=True, slots=True)
class Lag:
    """One kind of lag."""

    name: str  # as on the command line
    description: str  # in words
    where: str  # in which trainers it occurs
    mean_lag: Callable[[Float], Float]  # mean lag in updates, of the interval R
    period: Callable[[int], int]  # updates that one application of the map covers, of the interval R
    map: Callable[[float, float, int], Float]  # (force a, momentum, interval) -> matrix of one period
    # (momentum, interval) -> the force per update from which the mode grows; arrays broadcast
    threshold: Callable[[Float, Float], Float]
    # (eigenvalue, momentum, interval) -> the force at which the map has this eigenvalue; None without a closed
    # form
    force: Callable[[float, float, int], float] | None = None
    # (momentum, interval) -> the eigenvalue at which the slow mode meets the next and begins to oscillate, or
    # None
    turn: Callable[[float, int], float] | None = None
    stale_share: float = 1.0  # share of the force that is that old; the rest is current
    # (momentum, interval) -> the force from which the slow mode oscillates, where no eigenvalue tells it; or
    # None
    onset: Callable[[float, int], float] | None = None


def check_setting(momentum: ArrayLike, interval: ArrayLike) -> None:
    """Refuse a momentum or an interval outside its domain.

    Example:
        >>> check_setting([0.0, 0.9], 8)
    """
    mu, updates = np.asarray(momentum, dtype=np.float64), np.asarray(interval, dtype=np.float64)
    usable = (mu >= 0) & (mu < 1)
    if not usable.all():
        raise InvalidArgumentError(f"expected a momentum of at least 0 and below 1, got {mu[~usable].flat[0]:g}")
    usable = (updates >= 1) & np.isfinite(updates)
    if not usable.all():
        raise InvalidArgumentError(f"expected a refresh interval of at least 1 update, got {updates[~usable].flat[0]:g}")


def block_sums(momentum: ArrayLike, interval: ArrayLike) -> tuple[Float, Float, Float]:
    r"""What R updates under one constant force do: $q = \mu^R$, $L = \sum_{j<R}\mu^j$, $S = \sum_{j<R}(R-j)\mu^j$.

    Example:
        >>> [float(part) for part in block_sums(0.5, 2)]
        [0.25, 1.5, 2.5]
    """
    mu, updates = np.broadcast_arrays(np.asarray(momentum, dtype=np.float64), np.asarray(interval, dtype=np.float64))
    # 1 - mu^R would lose every digit for a momentum near 1 and a short interval.
    with np.errstate(divide="ignore"):
        q = np.where(updates == 0, 1.0, np.power(mu, updates))
        geometric = np.where(mu > 0, -np.expm1(updates * np.log(mu)) / (1 - mu), 1.0)
    return q, geometric, (updates - mu * geometric) / (1 - mu)


def _on_policy_map(force: float, momentum: float, interval: int) -> Float:
    """One update without lag, of (x, v)."""
    del interval
    return np.array([[1 - force, momentum], [-force, momentum]])


def _fixed_map(force: float, momentum: float, interval: int) -> Float:
    """One update with a constant lag of R, of (x, v, x one update ago, ..., x R updates ago)."""
    size = interval + 2
    matrix = np.zeros((size, size))
    matrix[0, 0], matrix[0, 1], matrix[1, 1] = 1.0, momentum, momentum
    matrix[0, -1] -= force
    matrix[1, -1] -= force
    matrix[2, 0] = 1.0
    for row in range(3, size):
        matrix[row, row - 1] = 1.0
    return matrix


def _refresh_map(force: float, momentum: float, interval: int) -> Float:
    """R updates on rollouts of the policy at their start, of (x, v)."""
    q, geometric, ramp = (float(part) for part in block_sums(momentum, interval))
    return np.array([[1 - force * ramp, momentum * geometric], [-force * geometric, q]])


def _async_map(force: float, momentum: float, interval: int) -> Float:
    """R updates on rollouts of the policy R updates before their start, of (x, v, x at the start of the block before)."""
    q, geometric, ramp = (float(part) for part in block_sums(momentum, interval))
    return np.array([[1.0, momentum * geometric, -force * ramp], [0.0, q, -force * geometric], [1.0, 0.0, 0.0]])


def mixed_map(force: float, momentum: float, weight_D: ArrayLike) -> Float:
    """One update whose batch mixes lags 0, 1, ..., D - 1 with given weights, of (x, v, x one update ago, ...).

    Example:
        >>> mixed_map(0.1, 0.5, [1.0]).tolist()
        [[0.9, 0.5], [-0.1, 0.5]]
    """
    weight = np.asarray(weight_D, dtype=np.float64)
    size = len(weight) + 1
    matrix = np.zeros((size, size))
    matrix[0, 0], matrix[0, 1], matrix[1, 1] = 1.0, momentum, momentum
    for lag, share in enumerate(weight):
        column = 0 if lag == 0 else lag + 1
        matrix[:2, column] -= force * share
    for row in range(2, size):
        matrix[row, 0 if row == 2 else row - 1] = 1.0
    return matrix


def on_policy_threshold(momentum: Float, interval: Float) -> Float:
    r"""$2(1+\mu)$, whatever the interval."""
    mu, _ = np.broadcast_arrays(momentum, interval)
    return 2 * (1 + np.asarray(mu, dtype=np.float64))


def fixed_threshold(momentum: Float, interval: Float) -> Float:
    r"""$2\sin(w/2)\sqrt{(1-\mu)^2 + 4\mu\sin^2(w/2)}$ where $(1+\mu)\tan(wd) = (1-\mu)\cot(w/2)$, w in $(0, \pi/2d)$."""
    mu, lag = np.broadcast_arrays(np.asarray(momentum, dtype=np.float64), np.asarray(interval, dtype=np.float64))
    low, high = np.zeros(mu.shape), np.pi / (2 * lag)
    # sin(wd) sin(w/2)(1+mu) - cos(wd) cos(w/2)(1-mu) rises from below zero to above it: sixty halvings give every digit.
    for _ in range(60):
        middle = (low + high) / 2
        above = np.sin(middle * lag) * np.sin(middle / 2) * (1 + mu) > np.cos(middle * lag) * np.cos(middle / 2) * (1 - mu)
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    sine = np.sin((low + high) / 4)
    threshold: Float = 2 * sine * np.sqrt((1 - mu) ** 2 + 4 * mu * sine**2)
    return threshold


def refresh_threshold(momentum: Float, interval: Float) -> Float:
    r"""$\min\{2(1+q)/(S(1+q) - \mu L^2),\ (1-q)/(\mu L^2 - qS)\}$; a bound whose denominator is not positive is none."""
    q, geometric, ramp = block_sums(momentum, interval)
    mu = np.broadcast_to(np.asarray(momentum, dtype=np.float64), q.shape)
    square = mu * geometric**2
    flip, turn = ramp * (1 + q) - square, square - q * ramp
    # At R = 1 the second denominator is zero but for rounding.
    small = 1e-12 * np.maximum(square, q * ramp)
    with np.errstate(divide="ignore", invalid="ignore"):
        first = np.where(flip > 0, 2 * (1 + q) / flip, np.inf)
        second = np.where(turn > small, (1 - q) / turn, np.inf)
    threshold: Float = np.minimum(first, second)
    return threshold


def async_threshold(momentum: Float, interval: Float) -> Float:
    r"""Jury's conditions on $\lambda^3 - (1+q)\lambda^2 + (q + aS)\lambda + a c$, $c = \mu L^2 - qS$.

    A pair leaves the unit circle where $a^2c^2 + a(S + c(1+q)) = 1 - q$; a root leaves at -1 where $2(1+q) + a(S - c) = 0$.
    """
    q, geometric, ramp = block_sums(momentum, interval)
    mu = np.broadcast_to(np.asarray(momentum, dtype=np.float64), q.shape)
    c = mu * geometric**2 - q * ramp
    linear = ramp + c * (1 + q)
    # The smaller root of the quadratic without cancellation, and without dividing by c, which may be zero.
    pair = 2 * (1 - q) / (linear + np.sqrt(linear**2 + 4 * c**2 * (1 - q)))
    with np.errstate(divide="ignore", invalid="ignore"):
        flip = np.where(c > ramp, 2 * (1 + q) / (c - ramp), np.inf)
    threshold: Float = np.minimum(pair, flip)
    return threshold


def _on_policy_force(eigenvalue: float, momentum: float, interval: int) -> float:
    """The force at which one update has an eigenvalue."""
    del interval
    return (1 - eigenvalue) * (1 - momentum / eigenvalue if momentum > 0 else 1.0)


def _fixed_force(eigenvalue: float, momentum: float, interval: int) -> float:
    """The force at which one update with a constant lag has an eigenvalue."""
    return _on_policy_force(eigenvalue, momentum, 1) * eigenvalue**interval


def _refresh_force(eigenvalue: float, momentum: float, interval: int) -> float:
    r"""The force at which a block has an eigenvalue, from $\lambda^2 - (1 + q - aS)\lambda + q + ac = 0$."""
    q, geometric, ramp = (float(part) for part in block_sums(momentum, interval))
    if momentum == 0:
        return (1 - eigenvalue) / ramp
    return (1 - eigenvalue) * (eigenvalue - q) / (ramp * eigenvalue + momentum * geometric**2 - q * ramp)


def _async_force(eigenvalue: float, momentum: float, interval: int) -> float:
    """The same of a block on the rollouts of the block before: one more power of the eigenvalue."""
    return eigenvalue * _refresh_force(eigenvalue, momentum, interval)


def _on_policy_turn(momentum: float, interval: int) -> float:
    """Root of the momentum."""
    del interval
    return math.sqrt(momentum)


def _fixed_turn(momentum: float, interval: int) -> float:
    r"""Larger root of $(d+1)\lambda^2 - d(1+\mu)\lambda + (d-1)\mu = 0$, where the force of an eigenvalue is largest."""
    half = interval * (1 + momentum) / 2
    return (half + math.sqrt(half**2 - (interval**2 - 1) * momentum)) / (interval + 1)


def _refresh_turn(momentum: float, interval: int) -> float:
    """Half the trace at the force at which both eigenvalues of a block meet."""
    q, geometric, ramp = (float(part) for part in block_sums(momentum, interval))
    c = momentum * geometric**2 - q * ramp
    force = (1 - q) ** 2 / ((1 + q) * ramp + 2 * c + 2 * geometric * math.sqrt(momentum * (ramp + c)))
    return (1 + q - force * ramp) / 2


def _async_turn(momentum: float, interval: int) -> float:
    r"""Largest root below 1 of the slope of the force, $2S\lambda^3 - ((1+q)S - 3c)\lambda^2 - 2(1+q)c\lambda + qc = 0$."""
    q, geometric, ramp = (float(part) for part in block_sums(momentum, interval))
    c = momentum * geometric**2 - q * ramp
    roots = np.roots([2 * ramp, 3 * c - (1 + q) * ramp, -2 * (1 + q) * c, q * c])
    return float(max(root.real for root in roots if abs(root.imag) < 1e-9 and root.real < 1))


def _one(interval: int) -> int:
    """The period of a map that does not depend on the time."""
    del interval
    return 1


LAGS: tuple[Lag, ...] = (
    Lag(
        "none",
        "every rollout comes from the policy it updates",
        "on-policy training",
        lambda interval: np.zeros_like(np.asarray(interval, dtype=np.float64)),
        _one,
        _on_policy_map,
        on_policy_threshold,
        _on_policy_force,
        _on_policy_turn,
    ),
    Lag(
        "fixed",
        "every rollout is R updates old",
        "pipelines and queues of constant length",
        lambda interval: np.asarray(interval, dtype=np.float64),
        _one,
        _fixed_map,
        fixed_threshold,
        _fixed_force,
        _fixed_turn,
    ),
    Lag(
        "refresh",
        "R updates on one generation of rollouts: lags 0 to R - 1",
        "several mini-batches or epochs a generation",
        lambda interval: (np.asarray(interval, dtype=np.float64) - 1) / 2,
        lambda interval: interval,
        _refresh_map,
        refresh_threshold,
        _refresh_force,
        _refresh_turn,
    ),
    Lag(
        "async",
        "the next R updates use rollouts generated during the last R: lags R to 2R - 1",
        "double-buffered asynchronous generation",
        lambda interval: (3 * np.asarray(interval, dtype=np.float64) - 1) / 2,
        lambda interval: interval,
        _async_map,
        async_threshold,
        _async_force,
        _async_turn,
    ),
)


def lag_by_name(name: str) -> Lag:
    """Return a kind of lag.

    Example:
        >>> lag_by_name("refresh").name
        'refresh'
    """
    for lag in LAGS:
        if lag.name == name:
            return lag
    raise InvalidArgumentError(f"expected a kind of lag, got {name[:60]!r}: use one of {', '.join(lag.name for lag in LAGS)}")


def mixed_lag(weight_D: ArrayLike) -> Lag:
    r"""Return the lag of batches that mix rollouts of several ages, for whatever takes a lag.

    Source: derived here.

    Example:
        >>> float(mixed_lag([0.5, 0.5]).mean_lag(np.array(1)))
        0.5
    """
    weight = shares(weight_D)
    ages = np.flatnonzero(weight)
    share = weight[ages]
    mean = float(share @ ages)

    def matrix(force: float, momentum: float, interval: int) -> Float:
        del interval
        return mixed_map(force, momentum, weight)

    def strength(eigenvalue: Float, momentum: float) -> Float:
        with np.errstate(over="ignore"):
            delayed = np.power.outer(eigenvalue, -ages.astype(np.float64)) @ share
        return np.asarray((1 - eigenvalue) * (1 - momentum / eigenvalue) / delayed)

    def force(eigenvalue: float, momentum: float, interval: int) -> float:
        del interval
        return float(strength(np.asarray(eigenvalue), momentum))

    def turn(momentum: float, interval: int) -> float:
        del interval
        # The force of an eigenvalue rises from 0 at 1 to its first maximum; logarithmic steps find it, finer ones refine it.
        gap = np.geomspace(1e-9, 1 - max(momentum, 1e-6), 4000)
        for _ in range(8):
            top = int(np.argmax(np.diff(strength(1 - gap, momentum), append=-np.inf) < 0))
            gap = np.linspace(gap[max(top - 1, 0)], gap[min(top + 1, len(gap) - 1)], 101)
        return float(1 - gap[50])

    def threshold(momentum: Float, interval: Float) -> Float:
        mu, _ = np.broadcast_arrays(momentum, interval)
        return np.array([first_crossing(float(one), ages, share) for one in mu.flat]).reshape(mu.shape)

    return Lag(
        "mixed",
        "a batch mixes rollouts of several ages",
        "replay and queues of changing length",
        lambda interval: np.full_like(np.asarray(interval, dtype=np.float64), mean),
        _one,
        matrix,
        threshold,
        force,
        turn,
    )


def shares(weight_D: ArrayLike) -> Float:
    """Return shares of lags as an array.

    Example:
        >>> shares([0.25, 0.75]).tolist()
        [0.25, 0.75]
    """
    weight = np.asarray(weight_D, dtype=np.float64)
    if weight.ndim != 1 or not len(weight) or not (weight >= 0).all() or abs(weight.sum() - 1) > 1e-9:
        raise InvalidArgumentError("expected shares of the lags that are not negative and sum to 1: divide them by their sum")
    return weight


def mixed_threshold(momentum: float, weight_D: Sequence[float]) -> float:
    r"""Smallest force at which a mode with mixed lags grows: where $-(e^{iw}-1)(1-\mu e^{-iw})/\sum_d p_d e^{-iwd}$ is real and positive.

    Source: derived here.

    Example:
        >>> round(mixed_threshold(0.9, [1.0]), 9)
        3.8
    """
    check_setting(momentum, 1)
    weight = shares(weight_D)
    return first_crossing(momentum, np.flatnonzero(weight), weight[weight > 0])
