r"""The edge of stability: the lowest force per update $a = \eta K$ at which a mode grows, for every
kind of lag.

One mode of heavy-ball descent is $v_{t+1} = \mu v_t - a[(1-\sigma)x_t + \sigma x_{t-d}]$, $x_{t+1}
= x_t + v_{t+1}$: the share $\sigma$ of the force is as old as the rollouts, and kinds of lag differ
in the age d. `period_matrix` builds what one period does to a mode, `threshold` bisects for the
force at which an eigenvalue of it leaves the unit circle. A window of stability may lie above the
edge.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from groupwise.errors import InvalidArgumentError

Float = NDArray[np.float64]
Complex = NDArray[np.complex128]
Flags = NDArray[np.bool_]
Whole = NDArray[np.int64]

_TURN = 96  # angles a half turn of the delay


@dataclass(frozen=True, slots=True)
class Lag:
    """One kind of lag, with the share of the force that is as old as the rollouts."""

    name: str  # none, fixed, refresh or async
    description: str
    where: str  # in which trainers it occurs
    # sigma; above 1 or below 0 where the two parts of the force pull against each other
    stale_share: float = 1.0

    @property
    def constant_force(self) -> bool:
        """Whether all of the force of a period comes from one position."""
        return self.name in {"none", "refresh", "async"} and self.stale_share == 1

    def period(self, interval: int) -> int:
        """Updates that one period covers."""
        return interval if self.name in {"refresh", "async"} else 1

    def mean_lag(self, interval: float) -> float:
        """Mean age of what the force is computed from, in updates; what is current counts as 0."""
        ages = {"fixed": interval, "refresh": (interval - 1) / 2, "async": (3 * interval - 1) / 2}
        return self.stale_share * ages.get(self.name, 0.0)


LAGS: tuple[Lag, ...] = (
    Lag("none", "every rollout comes from the policy it updates", "on-policy training"),
    Lag("fixed", "every rollout is R updates old", "pipelines and queues of constant length"),
    Lag(
        "refresh",
        "R updates on one generation of rollouts: lags 0 to R - 1",
        "several mini-batches or epochs a generation",
    ),
    Lag(
        "async",
        "the next R updates use rollouts generated during the last R: lags R to 2R - 1",
        "double-buffered asynchronous generation",
    ),
)


def lag_by_name(name: str) -> Lag:
    """Return a kind of lag."""
    for lag in LAGS:
        if lag.name == name:
            return lag
    names = ", ".join(lag.name for lag in LAGS)
    raise InvalidArgumentError(f"expected a kind of lag, got {name[:60]!r}: use one of {names}")


def partly_stale(lag: str | Lag, stale_share: float = 1.0) -> Lag:
    """Return a lag of which a share of the force is stale, the rest being current."""
    kind = lag_by_name(lag) if isinstance(lag, str) else lag
    if not np.isfinite(stale_share):
        raise InvalidArgumentError(
            f"expected a finite stale share of the force, got {stale_share:g}"
        )
    return kind if kind.name == "none" else replace(kind, stale_share=stale_share)


def period_matrix(
    lag: Lag, force: ArrayLike, momentum: ArrayLike, interval: ArrayLike = 1
) -> Float:
    """Return the matrix of one period; arrays broadcast to a stack, but for a fixed lag's interval.

    The state of a fixed lag is (x, v, x one update ago, ..., x that many updates ago). Else it is
    (x, v, the position that the rollouts are from), and a period is R updates: refresh begins it
    with rollouts from x, async ends it with those from where it began.
    """
    fixed = lag.name == "fixed"
    a, mu, updates = np.broadcast_arrays(
        np.asarray(force, dtype=np.float64), np.asarray(momentum, dtype=np.float64), interval
    )
    size = int(np.max(interval)) + 2 if fixed else 3
    update = np.zeros((*a.shape, size, size))
    update[..., :2, 0] = -((1 - lag.stale_share) * a)[..., None]
    update[..., :2, 1] = mu[..., None]
    update[..., :2, -1] = -(lag.stale_share * a)[..., None]
    update[..., 0, 0] += 1.0
    if fixed:
        update[..., 2, 0] = 1.0
        update[..., range(3, size), range(2, size - 1)] = 1.0
        return update
    update[..., 2, 2] = 1.0
    period = update if lag.name == "none" else _power(update, updates)
    if lag.name == "async":
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


def threshold(
    lag: str | Lag, momentum: ArrayLike, refresh_interval: ArrayLike, *, stale_share: float = 1.0
) -> Float:
    r"""Return the force per update $a = \eta K$ from which a mode grows; arrays broadcast.

    It is the smallest such force: what is stable above it counts as unstable.

    Source: derived here (lab/docs/theory/dynamics.md); the published rule, $(1-\mu)/R$, is arXiv
    2606.30789's.
    """
    mu, interval = np.broadcast_arrays(
        np.asarray(momentum, dtype=np.float64), np.asarray(refresh_interval, dtype=np.float64)
    )
    check_setting(mu, interval)
    if (broken := interval[interval != np.floor(interval)]).size:
        raise InvalidArgumentError(
            f"expected whole updates as refresh interval, got {broken.flat[0]:g}"
        )
    return lowest_edge(partly_stale(lag, stale_share), mu, interval)


def lowest_edge(
    kind: Lag, momentum: ArrayLike, interval: ArrayLike, *, most: float = math.inf
) -> Float:
    """Return the threshold of a lag; where only a part of the force is stale, what lies above a
    given force is not looked for, and infinite.
    """
    mu, updates = np.broadcast_arrays(np.asarray(momentum, dtype=np.float64), interval)
    if kind.stale_share == 0:
        kind = lag_by_name("none")
    mu_N, updates_N = mu.ravel(), updates.ravel().astype(np.int64)
    if kind.constant_force:
        edge_N = _edge_of_constant_force(kind, mu_N, updates_N)
    elif kind.name == "fixed":
        edge_N = _edge_of_delay(kind, mu_N, updates_N, most)
    else:
        edge_N = _edge_of_blocks(kind, mu_N, updates_N, most)
    return edge_N.reshape(mu.shape)


def rule_threshold(momentum: ArrayLike, refresh_interval: ArrayLike) -> Float:
    r"""Return the published rule, $\eta K R < 1 - \mu$, as a threshold of $\eta K$.

    Source: arXiv 2606.30789.
    """
    check_setting(momentum, refresh_interval)
    return np.asarray((1 - np.asarray(momentum)) / np.asarray(refresh_interval, dtype=np.float64))


def _edge_of_constant_force(kind: Lag, mu_N: Float, interval_N: Whole) -> Float:
    """Bisect the force: the characteristic polynomial is linear in it, and no window of stability
    lies above the edge, which is at most that of on-policy training.
    """
    without = _characteristic(period_matrix(kind, 0.0, mu_N, interval_N))[..., None]
    each = _characteristic(period_matrix(kind, 1.0, mu_N, interval_N))[..., None] - without

    def grown(force_NF: Float) -> Flags:
        return _excess(without + force_NF * each) >= 0

    return first_place(grown, np.zeros(len(mu_N)), 2.1 * (1 + mu_N))


def _edge_of_blocks(kind: Lag, mu_N: Float, interval_N: Whole, most: float) -> Float:
    """Bisect the force between the first that grows, of those that are scanned, and the one
    before.
    """
    edge_N = np.full(len(mu_N), math.inf)
    for n, (mu, interval) in enumerate(zip(mu_N.tolist(), interval_N.tolist(), strict=True)):
        grown = partial(grows, kind, momentum=mu, interval=interval)
        force = _scanned_forces(kind, mu, interval)
        force = np.append(force[force < most], most) if most < force[-1] else force
        growing = grown(force)
        if growing.any():
            first = int(np.argmax(growing))
            before = force[first - 1 : first] if first else np.zeros(1)
            edge_N[n] = first_place(grown, before, force[first : first + 1])[0]
    return edge_N


def _edge_of_delay(kind: Lag, mu_N: Float, age_N: Whole, most: float) -> Float:
    r"""Bisect the angle w at which $e^{iw}$ is an eigenvalue under a real force.

    The matrix is as large as the lag, but its characteristic equation, $(\lambda - 1)(1 -
    \mu/\lambda) + a(1 - \sigma + \sigma\lambda^{-d}) = 0$, is linear in the force.
    """

    def side(angle: Float, mu: ArrayLike, age: ArrayLike) -> Float:
        return np.sign(_force_on_circle(kind, angle, mu, age)[0].imag)

    edge_N = np.full(len(mu_N), math.inf)
    row_B, low_B, high_B = np.arange(len(mu_N)), np.full(len(mu_N), 1e-12), math.pi / (2 * age_N)
    if kind.stale_share != 1:
        edge_N = _positive_force(kind, np.array([math.pi]), mu_N, age_N)
        brackets = []
        for n, (mu, age) in enumerate(zip(mu_N.tolist(), age_N.tolist(), strict=True)):
            angle = _scanned_angles(kind, mu, age, most)
            sign = side(angle, mu, age)
            place = np.flatnonzero(sign[1:] != sign[:-1])
            brackets.append((np.full(len(place), n), angle[place], angle[place + 1]))
        row_B, low_B, high_B = (np.concatenate(parts) for parts in zip(*brackets, strict=True))
    mu_B, age_B = mu_N[row_B], age_N[row_B]
    below_B1 = side(low_B, mu_B, age_B)[:, None]
    crossing_B = first_place(
        lambda angle: np.not_equal(side(angle, mu_B[:, None], age_B[:, None]), below_B1),
        low_B,
        high_B,
    )
    np.minimum.at(edge_N, row_B, _positive_force(kind, crossing_B, mu_B, age_B))
    return edge_N


def _force_on_circle(
    kind: Lag, angle: Float, mu: ArrayLike, age: ArrayLike
) -> tuple[Complex, Float]:
    """The force of an eigenvalue on the unit circle times the square of its denominator, which has
    no poles, and that square.
    """
    turn = np.exp(1j * angle)
    pull = 1 - kind.stale_share + kind.stale_share * np.exp(-1j * angle * np.asarray(age))
    return (1 - turn) * (1 - np.asarray(mu) / turn) * np.conj(pull), np.abs(pull) ** 2


def _positive_force(kind: Lag, angle: Float, mu: Float, age: Whole) -> Float:
    product, square = _force_on_circle(kind, angle, mu, age)
    positive = (product.real > 0) & (square > 1e-18)
    return np.where(positive, product.real / np.where(positive, square, 1.0), math.inf)


def _scanned_angles(kind: Lag, mu: float, age: int, most: float) -> Float:
    """Rising angles at which a delay is looked at, up to where no force below a given one can
    reach the unit circle.
    """
    turns = _TURN * (age + 2)
    step, coarse = math.pi / turns, np.linspace(0, math.pi, 1000)
    way = np.abs(np.exp(1j * coarse) - 1) * np.abs(1 - mu * np.exp(-1j * coarse))
    least = way / (abs(kind.stale_share) + abs(1 - kind.stale_share))
    last = (int(np.searchsorted(least, most)) + 1) * turns // len(coarse)
    # At a momentum near 1 the first crossing is near 0.
    return np.append(np.geomspace(1e-9, step, 60)[:-1], step * np.arange(1, min(last, turns)))


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


def _scanned_forces(kind: Lag, mu: float, interval: int) -> Float:
    r"""Rising forces at which a block is looked at: on a logarithmic scale from a hundredth of the
    published rule; and at every angle of the current part's eigenvalues, where its force is $1 +
    \mu - 2\sqrt\mu\cos\theta$, since the block then turns R times as fast.
    """
    share = kind.stale_share
    low = 0.01 * (1 - mu) / (interval * (abs(share) + abs(1 - share)))
    high = 5 * (1 + mu) / min(max(abs(1 - share), 0.2), 1.0)
    spread = np.geomspace(low, high, 40 * math.ceil(math.log10(high / low)))
    if share >= 1:
        return spread
    angle = np.linspace(0, np.pi, min(24 * interval, 20_000) + 1)
    turning = (1 + mu - 2 * math.sqrt(mu) * np.cos(angle)) / (1 - share)
    even = np.linspace(0, high, min(4 * interval, 20_000) + 8)[1:]
    return np.sort(np.concatenate([spread, turning, even]))


def scan_of_edge(kind: Lag, momentum: float, interval: int) -> str:
    """Return the range and the grid that the search for the edge of a partly stale lag covers."""
    if kind.name == "fixed":
        angles = _scanned_angles(kind, momentum, interval, math.inf)
        return f"{len(angles):,} angles of an eigenvalue on the unit circle, 0 to π"
    force = _scanned_forces(kind, momentum, interval)
    return f"{len(force):,} forces, {force[0]:.3g} to {force[-1]:.3g}"


def grows(kind: Lag, force: ArrayLike, momentum: ArrayLike, interval: int) -> Flags:
    """Return whether a block has an eigenvalue outside the unit circle."""
    # What a block grows by less than its rounding is neutral and counts as settling.
    matrix = period_matrix(kind, force, momentum, interval)
    return _excess(_characteristic(matrix)) > 1e-13 + 1e-15 * interval


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
    mu, updates = np.asarray(momentum, dtype=np.float64), np.asarray(interval, dtype=np.float64)
    usable = (mu >= 0) & (mu < 1)
    if not usable.all():
        raise InvalidArgumentError(
            f"expected a momentum of at least 0 and below 1, got {mu[~usable].flat[0]:g}"
        )
    usable = (updates >= 1) & np.isfinite(updates)
    if not usable.all():
        raise InvalidArgumentError(
            f"expected a refresh interval of at least 1 update, got {updates[~usable].flat[0]:g}"
        )
