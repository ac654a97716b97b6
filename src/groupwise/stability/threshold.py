r"""The edge of stability: the lowest force per update $a = \eta K$ at which a mode grows, for every
kind of lag.

Where lab/docs/theory/dynamics.md derives a closed form it is used; else the edge is searched for.
Delays whose weights do not change leave the unit circle where $a(e^{iw})$ is first real and
positive; a block of which a part is current is scanned over the force with the matrix of `lags`,
and the first force at which an eigenvalue lies outside the unit circle is bisected. A window of
stability may lie above the edge.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from groupwise.errors import InvalidArgumentError
from groupwise.stability.lags import (
    Complex,
    Flags,
    Float,
    Lag,
    block_sums,
    check_setting,
    mixed_lag,
    partly_stale,
)

_SECTIONS = 33
_CHUNK = 192
_TURN = 48  # points a turn of the oldest delay
_PER_DECADE = 40  # forces that are looked at
_ANGLES = 8  # points a half turn of the current part, an update
_MOST_ANGLES = 20_000


def threshold(
    lag: str | Lag, momentum: ArrayLike, refresh_interval: ArrayLike, *, stale_share: float = 1.0
) -> Float:
    r"""Return the force per update $a = \eta K$ from which a mode grows; arrays broadcast.

    It is the smallest such force: what is stable above it counts as unstable.

    Source: derived here (lab/docs/theory/dynamics.md); the published rule, $(1-\mu)/R$, is arXiv
    2606.30789's.
    """
    mu, interval = (
        np.asarray(momentum, dtype=np.float64),
        np.asarray(refresh_interval, dtype=np.float64),
    )
    check_setting(mu, interval)
    kind = partly_stale(lag, stale_share)
    mu, interval = np.broadcast_arrays(mu, interval)
    if kind.name in CLOSED and kind.stale_share == 1:
        return CLOSED[kind.name](mu, interval)
    if (interval != np.floor(interval)).any():
        raise InvalidArgumentError(
            "expected whole updates as refresh interval, got "
            f"{interval[interval != np.floor(interval)].flat[0]:g}"
        )
    found = np.empty(mu.shape)
    for updates in np.unique(interval):
        found[interval == updates] = first_growth(kind, mu[interval == updates], int(updates))
    return found


def rule_threshold(momentum: ArrayLike, refresh_interval: ArrayLike) -> Float:
    r"""Return the published rule, $\eta K R < 1 - \mu$, as a threshold of $\eta K$.

    Source: arXiv 2606.30789.
    """
    check_setting(momentum, refresh_interval)
    rule: Float = (1 - np.asarray(momentum, dtype=np.float64)) / np.asarray(
        refresh_interval, dtype=np.float64
    )
    return rule


def mixed_threshold(momentum: float, weight_D: ArrayLike) -> float:
    """Return the threshold of a batch that mixes lags 0, 1, 2, ... with given shares."""
    return float(threshold(mixed_lag(weight_D), momentum, 1))


def first_growth(kind: Lag, momentum_N: Float, interval: int) -> Float:
    """Return the lowest force at which a mode grows, for each momentum."""
    if kind.stale_share == 0:
        return CLOSED["none"](momentum_N, momentum_N)
    if kind.stale_share == 1 and kind.name in CLOSED:
        return CLOSED[kind.name](momentum_N, np.full(len(momentum_N), float(interval)))
    if kind.by_block:
        low, high = _bracket(kind, momentum_N, interval)
        return _first_place(
            lambda force: grows(kind, force, momentum_N[:, None], interval),
            low,
            high,
            sections=_SECTIONS,
            rounds=16,
        )
    ages, weight = kind.delays(interval)
    return np.array([first_crossing(float(mu), ages, weight) for mu in momentum_N])


def crossed(kind: Lag, force: float, momentum_N: Float, interval: int) -> Flags:
    """Return whether the lowest force at which a mode grows is at most a given one, for each
    momentum.
    """
    if kind.by_block and kind.stale_share not in (0.0, 1.0):
        found = grows(kind, force, momentum_N, interval)
        rest = (
            ~found
        )  # stable at this force: only a scan tells whether an unstable stretch lies below it
        if rest.any():
            found[rest] = np.isfinite(_bracket(kind, momentum_N[rest], interval, most=force)[1])
        return found
    if kind.name == "mixed" or kind.stale_share not in (0.0, 1.0):
        ages, weight = kind.delays(interval)
        return np.array(
            [first_crossing(float(mu), ages, weight, most=force) <= force for mu in momentum_N]
        )
    return np.asarray(first_growth(kind, momentum_N, interval) <= force)


def _fixed_edge(mu: Float, lag: Float) -> Float:
    r"""$2\sin(w/2)\sqrt{(1-\mu)^2 + 4\mu\sin^2(w/2)}$ where $(1+\mu)\tan(wd) =
    (1-\mu)\cot(w/2)$, w in $(0, \pi/2d)$.
    """
    low, high = np.zeros(mu.shape), np.pi / (2 * lag)
    for _ in range(60):
        middle = (low + high) / 2
        above = np.sin(middle * lag) * np.sin(middle / 2) * (1 + mu) > np.cos(
            middle * lag
        ) * np.cos(middle / 2) * (1 - mu)
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    sine = np.sin((low + high) / 4)
    edge: Float = 2 * sine * np.sqrt((1 - mu) ** 2 + 4 * mu * sine**2)
    return edge


def _refresh_edge(mu: Float, interval: Float) -> Float:
    r"""$\min\{2(1+q)/(S(1+q) - \mu L^2),\ (1-q)/(\mu L^2 - qS)\}$; a bound whose denominator is
    not positive is none.
    """
    q, geometric, ramp = block_sums(mu, interval)
    square = mu * geometric**2
    flip, turn = ramp * (1 + q) - square, square - q * ramp
    small = 1e-12 * np.maximum(
        square, q * ramp
    )  # at R = 1 the second denominator is zero but for rounding
    with np.errstate(divide="ignore", invalid="ignore"):
        edge: Float = np.minimum(
            np.where(flip > 0, 2 * (1 + q) / flip, np.inf),
            np.where(turn > small, (1 - q) / turn, np.inf),
        )
    return edge


def _async_edge(mu: Float, interval: Float) -> Float:
    r"""Jury's conditions on $\lambda^3 - (1+q)\lambda^2 + (q + aS)\lambda + ac$, $c = \mu L^2 -
    qS$.

    A pair leaves the unit circle where $a^2c^2 + a(S + c(1+q)) = 1 - q$. No root leaves at -1,
    since $c < S$: $(1-\mu)(S - c) = (1+q)R - 2\sum_{j=1}^R \mu^j \ge 1 - q$, as powers lie below
    their chord.
    """
    q, geometric, ramp = block_sums(mu, interval)
    c = mu * geometric**2 - q * ramp
    linear = ramp + c * (1 + q)
    # The smaller root of the quadratic without cancellation, and without dividing by c, which may
    # be zero.
    edge: Float = 2 * (1 - q) / (linear + np.sqrt(linear**2 + 4 * c**2 * (1 - q)))
    return edge


CLOSED: dict[str, Callable[[Float, Float], Float]] = {
    "none": lambda mu, _: 2 * (1 + mu),  # whatever the interval
    "fixed": _fixed_edge,
    "refresh": _refresh_edge,
    "async": _async_edge,
}
"""Edges of a wholly stale force in closed form, of (momentum, interval)
(lab/docs/theory/dynamics.md, Thresholds).
"""


def grows(kind: Lag, force: ArrayLike, momentum: ArrayLike, interval: int) -> Flags:
    """Return whether a block has an eigenvalue outside the unit circle."""
    return np.asarray(_excess(kind, force, momentum, interval).max(axis=0) > 0)


def _excess(kind: Lag, force: ArrayLike, momentum: ArrayLike, interval: int) -> Float:
    """Jury's conditions on the characteristic polynomial of a block: one of them is positive where
    an eigenvalue is outside the circle.

    What a block grows by less than its rounding is neutral and counts as settling.
    """
    matrix = kind.matrix(force, momentum, interval)
    with np.errstate(over="ignore", invalid="ignore"):
        trace = matrix[..., 0, 0] + matrix[..., 1, 1]
        minor = matrix[..., 0, 0] * matrix[..., 1, 1] - matrix[..., 0, 1] * matrix[..., 1, 0]
        if kind.name == "refresh":  # lambda^2 - trace lambda + minor
            excess = np.stack([np.abs(trace) - 1 - minor, minor - 1])
        else:
            # lambda^3 - trace lambda^2 + middle lambda - constant: the last row of the matrix is
            # (1, 0, 0)
            middle = minor - matrix[..., 0, 2]
            constant = matrix[..., 0, 1] * matrix[..., 1, 2] - matrix[..., 0, 2] * matrix[..., 1, 1]
            pair = np.abs(middle - constant * trace) - (1 - constant**2)
            excess = np.stack([np.abs(trace + constant) - 1 - middle, np.abs(constant) - 1, pair])
    # What is no number has left the range of numbers.
    return np.where(np.isnan(excess), np.inf, excess - 1e-13 - 1e-15 * interval)


def _bracket(
    kind: Lag, momentum_N: Float, interval: int, most: float = math.inf
) -> tuple[Float, Float]:
    """Scan the force of blocks with a current part: the first that grows, infinite where none
    does up to a limit, and the one before.
    """
    force_NF = np.minimum(_scanned_forces(kind, momentum_N, interval), most)
    if math.isfinite(most):
        force_NF = np.append(
            force_NF[:, force_NF.min(axis=0) < most], np.full((len(momentum_N), 1), most), axis=1
        )
    excess_CNF = _excess(kind, force_NF, momentum_N[:, None], interval)
    grown = excess_CNF.max(axis=0) > 0
    first, row = np.argmax(grown, axis=1), np.arange(len(momentum_N))
    high = np.where(grown.any(axis=1), force_NF[row, first], math.inf)
    low = np.where(first > 0, force_NF[row, first - 1], 0.0)
    for n, before, peak in _peaks(kind, force_NF, excess_CNF, momentum_N, interval):
        if peak < high[n]:
            low[n], high[n] = before, peak
    return low, high


def _first_place(
    held: Callable[[Float], Flags], low: Float, high: Float, *, sections: int, rounds: int
) -> Float:
    """The first place of each bracket at which a condition holds, by sections of it; at the
    upper end it is taken to hold.
    """
    row, part = np.arange(len(low)), np.linspace(0, 1, sections)
    for _ in range(rounds if len(low) else 0):
        points = low[:, None] + (high - low)[:, None] * part
        points[:, -1] = high
        seen = held(points)
        seen[:, -1] = True
        place = np.maximum(np.argmax(seen, axis=1), 1)
        low, high = points[row, place - 1], points[row, place]
    return high


def _peaks(
    kind: Lag, force_NF: Float, excess_CNF: Float, momentum_N: Float, interval: int
) -> list[tuple[int, float, float]]:
    """Forces between two that were looked at where a condition has a peak that grows: momentum,
    the force before, the peak.
    """
    left, here, right = excess_CNF[..., :-2], excess_CNF[..., 1:-1], excess_CNF[..., 2:]
    # The vertex of a parabola lies at most an eighth of its neighbours' fall above the highest of
    # three points.
    with np.errstate(invalid="ignore"):
        near = (
            (here <= 0)
            & (here >= left)
            & (here >= right)
            & (-here < 0.35 * (here - np.minimum(left, right)))
        )
    condition, n, place = np.nonzero(near)
    before = force_NF[n, place]
    low, high, row = before, force_NF[n, place + 2], np.arange(len(n))
    for _ in range(4):
        points = np.linspace(low, high, _SECTIONS, axis=1)
        seen = _excess(kind, points, momentum_N[n, None], interval)[condition, row]
        top = np.argmax(seen, axis=1)
        low, high = (
            points[row, np.maximum(top - 1, 0)],
            points[row, np.minimum(top + 1, _SECTIONS - 1)],
        )
    grown = seen[row, top] > 0
    return list(
        zip(
            n[grown].tolist(), before[grown].tolist(), points[row, top][grown].tolist(), strict=True
        )
    )


def _scanned_forces(kind: Lag, momentum_N: Float, interval: int) -> Float:
    r"""Rising forces at which a block is looked at, for each momentum.

    On a logarithmic scale from a hundredth of the published rule; and at every angle of the current
    part's eigenvalues, where its force is $1 + \mu - 2\sqrt\mu\cos\theta$, since the block then
    turns R times as fast.
    """
    share = kind.stale_share
    gross = abs(share) + abs(1 - share)
    low, high = (
        0.01 * (1 - momentum_N) / (interval * gross),
        5 * (1 + momentum_N) / max(abs(1 - share), 0.2),
    )
    count = math.ceil(_PER_DECADE * math.log10(float((high / low).max())))
    spread = np.geomspace(low, high, count, axis=1)
    if share >= 1:
        return spread
    angle = np.linspace(0, np.pi, min(_ANGLES * interval, _MOST_ANGLES) + 1)
    root = np.sqrt(momentum_N)[:, None]
    turning = ((1 - root) ** 2 + 4 * root * np.sin(angle / 2) ** 2) / (1 - share)
    even = np.linspace(0, 1, min(4 * interval, _MOST_ANGLES) + 8)[1:] * high[:, None]
    return np.sort(np.concatenate([spread, turning, even], axis=1), axis=1)


def first_crossing(
    momentum: float, age_D: ArrayLike, weight_D: ArrayLike, *, most: float = math.inf
) -> float:
    r"""Return the smallest force at which a root of $(\lambda - 1)(1 - \mu/\lambda) + a\sum_d
    p_d\lambda^{-d}$ reaches the unit circle.

    The angle w is scanned for a change of sign of the imaginary part of $a(e^{iw})$. $|a|$ rises
    with w at least as $|e^{iw} - 1||1 - \mu e^{-iw}|/\sum|p_d|$, which ends the scan.
    """
    ages, weight = np.asarray(age_D, dtype=np.float64), np.asarray(weight_D, dtype=np.float64)
    reach = float(np.abs(weight).sum())

    def parts(angle: Float) -> tuple[Float, Float]:
        """The force times the square of its denominator, so that it has no poles, and that
        square.
        """
        turn = np.exp(1j * angle)
        delayed = np.exp(-1j * np.multiply.outer(angle, ages)) @ weight
        return -(turn - 1) * (1 - momentum / turn) * np.conj(delayed), np.abs(delayed) ** 2

    def imaginary(angle: Float) -> Float:
        return parts(angle)[0].imag

    def least(angle: Float) -> Float:
        """A bound of the force from below, which rises with the angle."""
        return np.asarray(
            np.abs(np.exp(1j * angle) - 1) * np.abs(1 - momentum * np.exp(-1j * angle)) / reach
        )

    def lowest(angle: Float) -> float:
        product, square = parts(angle)
        forward = (product.real > 0) & (square > 1e-18)
        return float((product.real[forward] / square[forward]).min(initial=math.inf))

    step = 2 * np.pi / (_TURN * (float(ages.max()) + 2))
    even = step * np.arange(1, math.ceil(np.pi / step - 0.5))
    grid = np.concatenate(
        [np.geomspace(1e-9, step, 60)[:-1], even, [np.pi]]
    )  # at a momentum near 1 the first crossing is near 0
    best = lowest(grid[-1:])
    for start in range(0, len(grid) - 1, _CHUNK):
        piece = grid[start : start + _CHUNK + 1]
        if least(piece[0]) > min(best, most):
            break
        piece = _finer_at_dips(piece, imaginary(piece))
        value = imaginary(piece)
        change = np.flatnonzero(
            (value[1:] * value[:-1] < 0) & (least(piece[:-1]) <= min(best, most))
        )
        best = min(
            best,
            lowest(piece[value == 0]),
            lowest(_roots(imaginary, piece[change], piece[change + 1])),
        )
    return best


def _finer_at_dips(grid: Float, value: Float) -> Float:
    """A grid with more points wherever its values come near zero without a change of sign: there
    may be two.
    """
    size = np.abs(value)
    left, here, right = size[:-2], size[1:-1], size[2:]
    near = (
        (here <= left)
        & (here <= right)
        & (value[:-2] * value[2:] > 0)
        & (here < 0.35 * (np.maximum(left, right) - here))
    )
    place = np.flatnonzero(near)
    if not len(place):
        return grid
    return np.union1d(grid, np.linspace(grid[place], grid[place + 2], 2 * _SECTIONS))


def _roots(values: Callable[[Float], Float], low: Float, high: Float) -> Float:
    """Roots from brackets."""
    below = np.sign(values(low))[:, None]
    return _first_place(
        lambda place: np.sign(values(place)) != below, low, high, sections=_SECTIONS // 2, rounds=13
    )


def oscillation_onset(
    lag: str | Lag, momentum: float, refresh_interval: int = 1, *, stale_share: float = 1.0
) -> float:
    r"""Return the smallest force from which the slowest mode oscillates; infinite where it grows
    before.

    It is where the slow real eigenvalue meets the next: on-policy $(1-\sqrt\mu)^2$. Where a part of
    the force is current it is the first force at which the leading eigenvalue is no positive
    number.
    """
    check_setting(momentum, refresh_interval)
    kind = partly_stale(lag, stale_share)
    if kind.stale_share == 0 or (kind.name == "refresh" and refresh_interval == 1):
        return (1 - math.sqrt(momentum)) ** 2
    if kind.stale_share == 1:
        return float(
            kind.force(meeting(kind, momentum, refresh_interval), momentum, refresh_interval)
        )
    return _first_turn(kind, momentum, refresh_interval)


def meeting(kind: Lag, momentum: float, interval: int) -> float:
    """Return the eigenvalue at which the slow mode meets the next: where its force is first
    largest below 1.
    """
    # On a logarithmic scale of the distance from 1, then ever finer between the neighbours of the
    # top.
    gap = np.append(np.geomspace(1e-9, 1, 4000)[:-1], 1 - 1e-12)
    for _ in range(8):
        force = kind.force(1 - gap, momentum, interval)
        top = int(np.argmax(np.diff(force, append=-np.inf) < 0))
        gap = np.linspace(gap[max(top - 1, 0)], gap[min(top + 1, len(gap) - 1)], 101)
    return 1 - float(gap[50])


def _first_turn(kind: Lag, momentum: float, interval: int) -> float:
    """The first force below the threshold at which the leading eigenvalue is no positive number,
    by a scan on both scales and sections.
    """
    limit = float(first_growth(kind, np.array([momentum]), interval)[0])
    low, count = 0.0, 400 if kind.by_block else 40
    forces = limit * np.union1d(
        np.geomspace(1e-6 if kind.by_block else 1e-4, 1, count),
        np.linspace(0, 1, count // 2 + 1)[1:],
    )
    for _ in range(9):
        turned = _turns(kind, forces, momentum, interval)
        if not turned.any():
            return math.inf
        first = int(np.argmax(turned))
        low, high = float(forces[first - 1]) if first else low, float(forces[first])
        forces = np.append(np.linspace(low, high, 18)[1:-1], high)
    return high


def _turns(kind: Lag, force_F: Float, momentum: float, interval: int) -> Flags:
    """Whether the largest eigenvalue at each force is anything but a positive number; one that
    ties with a positive number is not.
    """
    if kind.name == "fixed" and interval > _SMALL:
        spectra = [spectrum(kind, float(force), momentum, interval) for force in force_F]
    else:
        spectra = list(np.linalg.eigvals(kind.matrix(force_F, momentum, interval)))
    return np.array([not _positive_leads(value) for value in spectra])


def _positive_leads(value_E: Complex) -> bool:
    """Whether a positive number is the largest eigenvalue, or as large."""
    size = np.abs(value_E)
    positive = (np.abs(value_E.imag) <= 1e-7 * size) & (value_E.real > 0)
    return bool((positive & (size >= (1 - 1e-12) * size.max())).any())


def spectrum(kind: Lag, force: float, momentum: float, interval: int) -> Complex:
    """Return the eigenvalues of one period; of a long fixed lag those found by Newton's steps;
    infinity beyond the range of numbers.
    """
    if (
        kind.name == "fixed"
        and interval > _SMALL
        and (found := _values_of_long_lag(kind, force, momentum, interval)) is not None
    ):
        return found
    matrix = kind.matrix(force, momentum, interval)
    if not np.isfinite(matrix).all():
        return np.array([complex(math.inf)])
    return np.linalg.eigvals(matrix).astype(np.complex128)


_SMALL = 64
"""Longest fixed lag whose matrix is cheaper than Newton's steps."""


def _values_of_long_lag(kind: Lag, force: float, momentum: float, lag: int) -> Complex | None:
    r"""The eigenvalues of one update with a long fixed lag: Newton's steps on $h(\lambda) +
    a\sigma\lambda^{-d}$.
    """
    stale, current = force * kind.stale_share, force * (1 - kind.stale_share)
    if force * (abs(kind.stale_share) + abs(1 - kind.stale_share)) > 1e100:
        return None

    def held(value: Complex) -> Complex:
        return (value - 1) * (1 - momentum / value) + current

    # One start on the unit circle for each turn of the delay; the two roots of the current part
    # have their own, and so have real ones.
    turn = 2j * np.pi * np.arange(0, lag // 2 + 2)
    free = np.roots([1.0, -(1 + momentum - current), momentum]).astype(np.complex128)
    line = np.linspace(max(momentum, 0.01), 1 - 1e-9, 50).astype(np.complex128)
    with np.errstate(all="ignore"):
        value = np.concatenate([np.exp((turn + 1j) / lag), free[free != 0], line])
        moving = np.arange(len(value))
        for _ in range(60):
            place = value[moving]
            power = stale * np.exp(-lag * np.log(place))
            change = (held(place) + power) / (1 - momentum / place**2 - lag * power / place)
            # A step beyond a branch's width would land on another one.
            change *= np.minimum(1, 0.5 / lag / np.maximum(np.abs(change), 1e-300))
            goes_on = np.abs(change) > 1e-16
            moving = moving[goes_on]
            value[moving] -= change[goes_on]
        error = np.abs(held(value) + stale * np.exp(-lag * np.log(value)))
        good = (
            np.isfinite(value)
            & (error < 1e-9 * (np.abs(held(value)) + np.abs(value - 1) + abs(current)))
            & (value != 0)
        )
    found = np.sort(np.where(value[good].imag < 0, np.conj(value[good]), value[good]))
    return found[np.append(np.abs(np.diff(found)) > 1e-9, True)] if len(found) else None
