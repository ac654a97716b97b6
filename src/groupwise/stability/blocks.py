r"""A block of R updates under a current and a stale force in closed form: its conditions of stability, first growth and first turn.

With $b = (1-\sigma)a$ the current part has $M = \begin{pmatrix}1-b & \mu\\ -b & \mu\end{pmatrix}$ with $M^R$ from its two eigenvalues, and
a block of refresh (k = 0) or async (k = 1) has $\lambda^2 - (A+E)\lambda + q + \sigma a(S\lambda + H)\lambda^{-k}$ where A, E are the
diagonal of $M^R$, $bS = 1 - A$, $bH = q - E$. Jury's conditions judge that without an eigenvalue. It knows no trainer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Float = NDArray[np.float64]
Flags = NDArray[np.bool_]
_LOST = 300.0
"""Logarithm of a growth within one block beyond which nothing is stable."""
_GONE = 700.0
_SECTIONS = 33
_CHUNK = 4096


@dataclass(frozen=True, slots=True)
class Block:
    """What R updates of the current part do, as arrays of one shape."""

    first: Float  # A, what a start at 1 becomes
    last: Float  # E, what a velocity of 1 becomes
    lost: Float  # 1 - A without cancellation
    turned: Float  # q - E, likewise
    q: Float  # mu^R
    spent: Float  # 1 - q
    unit: Float  # the characteristic polynomial of M^R at 1
    far: Flags  # where the block grows beyond the range of numbers


def block(current: ArrayLike, momentum: float, interval: ArrayLike) -> Block:
    r"""Return $M^R$ of a current force.

    Example:
        >>> made = block([0.5], 0.5, 2)
        >>> made.first.round(6).tolist(), made.last.round(6).tolist()
        ([0.0], [0.0])
    """
    b, updates = np.broadcast_arrays(np.clip(np.asarray(current, dtype=np.float64), -1e100, 1e100), np.asarray(interval, dtype=np.float64))
    log_mu = math.log(momentum) if momentum > 0 else -math.inf
    slow, fast = (1 - math.sqrt(momentum)) ** 2, (1 + math.sqrt(momentum)) ** 2
    with np.errstate(all="ignore"):
        both = 1 - momentum + b
        root = np.sqrt(((b - slow) * (b - fast)).astype(np.complex128))
        # Where both eigenvalues meet the divided difference is that of two neighbours.
        root = np.where(np.abs(root) < 1e-7, 1e-7, root)
        small = np.where(both > 0, 2 * b / (both + root), (both - root) / 2)
        gap = np.where(b > 1 + momentum, (both + root) / 2, small)
        value = 1 - gap
        value = np.where(value == 0, 1e-300, value)
        other = momentum / value
        delta = value - other
        near = np.log1p(np.maximum(-2 * gap.real + np.abs(gap) ** 2, -0.999)) / 2
        size = np.where(np.abs(value) > 0.1, near, np.log(np.abs(value)))
        angle = np.angle(value)
        # What decays beyond the range of numbers keeps its sign, which is all that is asked of it where it stands alone.
        reach = np.clip(updates * size, -_GONE, _LOST)
        p, gone_p = _power(reach, updates * angle)
        m, gone_m = _power(np.maximum(updates * log_mu - reach, -_GONE) if momentum > 0 else np.full_like(reach, -np.inf), -updates * angle)
        a, k = value - momentum, momentum * gap / value
        q = np.where(momentum > 0, np.exp(updates * log_mu), 0.0)
        spent = np.where(momentum > 0, -np.expm1(updates * log_mu), 1.0)
        return Block(
            first=((p * a - m * k) / delta).real,
            last=((m * a - p * k) / delta).real,
            lost=((gone_p * a - gone_m * k) / delta).real,
            turned=((p * gone_m * k - m * gone_p * a) / delta).real,
            q=q,
            spent=spent,
            unit=(gone_p * gone_m).real,
            far=np.asarray(updates * size > _LOST),
        )


def _power(size: Float, angle: Float) -> tuple[NDArray[np.complex128], NDArray[np.complex128]]:
    """A power from its logarithm, and 1 minus it without cancellation."""
    half = np.sin(angle / 2)
    real = np.expm1(size) * np.cos(angle) - 2 * half**2
    imaginary = np.exp(size) * np.sin(angle)
    return np.exp(size) * np.cos(angle) + 1j * imaginary, -(real + 1j * imaginary)


def grows(lag: str, force: ArrayLike, momentum: float, interval: ArrayLike, stale_share: float) -> Flags:
    r"""Return whether a block makes the mode grow, by Jury's conditions.

    Example:
        >>> grows("refresh", [0.032, 0.033], 0.9, 8, 1.04).tolist()
        [False, True]
    """
    return np.asarray((_conditions(lag, force, momentum, interval, stale_share) < 0).any(0))


def _conditions(lag: str, force: ArrayLike, momentum: float, interval: ArrayLike, share: float) -> Float:
    """Jury's conditions times |1 - sigma|, all positive where the block settles, written so that none of them cancels."""
    rest = 1 - share
    made = block(rest * np.asarray(force, dtype=np.float64), momentum, interval)
    x, y, sign = made.lost, made.turned, math.copysign(1.0, rest)
    # About half stale two of them are flat: 1 - 2 sigma is exact and A decays, where 2(1 + q)(1 - sigma) - X would round both away.
    flat = abs(share - 0.5) < 0.25
    if lag == "refresh":
        edge = (1 - 2 * share) * (1 + made.last) + made.first + made.q if flat else 2 * (1 + made.q) * rest - x - (1 - 2 * share) * y
        turn, size = rest * made.spent - share * y, np.ones_like(x)
    else:
        edge = rest * (2 * (1 + made.q) - x - y) + share * (x - y)
        start = (1 - 2 * share) + share * made.first - rest * made.q if flat else rest * made.spent - share * x
        turn = start - share * y * (1 + made.q - x - y) - (share * y) ** 2 / rest
        size = abs(rest) - np.abs(share * y)
    whole = np.stack([sign * edge, sign * turn, size, sign * made.unit])
    return np.where(made.far, -1.0, whole)


def first_growth(lag: str, momentum: float, interval: int, stale_share: float, *, below: float = math.inf, refined: bool = True) -> float:
    r"""Return the smallest force at which a block makes the mode grow.

    Every regime of the current part is scanned: real eigenvalues by the power that a block makes of them, complex ones by their angle.

    Source: derived here.

    Example:
        >>> round(first_growth("refresh", 0.9, 8, 1.04), 4)
        0.0323
    """
    if interval == 1:
        found = _one_update(lag, momentum, stale_share)
    elif lag == "refresh" and momentum == 0:
        found = _no_momentum(interval, stale_share)
    else:
        return first_negative(
            lambda force: _conditions(lag, force, momentum, interval, stale_share), momentum, interval, stale_share, below, refined=refined
        )
    return found if found < below else math.inf


def first_negative(
    values: Callable[[Float], Float], momentum: float, interval: int, stale_share: float, below: float, *, refined: bool = True
) -> float:
    """Return the smallest force below a limit at which one of several functions is negative.

    They are looked at on the points of every regime; where one dips between two points the dip is followed down.

    Example:
        >>> round(first_negative(lambda force: 0.5 - force[None], 0.5, 4, 0.5, 1.0), 12)
        0.5
    """
    kept, seen = np.zeros(0), np.zeros((0, 0))
    for points in _points(momentum, interval, stale_share):
        force = points / abs(1 - stale_share)
        ended = bool(force[-1] >= below)
        if ended:
            force = np.append(force[force < below], below)
        made = values(force)
        force, made = np.append(kept, force), np.concatenate([seen, made], axis=1) if len(kept) else made
        negative = (made < 0).any(0)
        last = int(np.argmax(negative)) if negative.any() else len(force) - 1
        if not refined and negative.any():
            return float(force[last])
        dip = _dip(values, force[: last + 1], made[:, : last + 1])
        high = float(force[last]) if dip is None else dip
        if dip is not None and not refined:
            return dip
        if dip is not None or negative.any():
            low = float(force[force < high].max(initial=0.0))
            return _by_sections(values, low, high)
        if ended:
            return math.inf
        kept, seen = force[-2:], made[:, -2:]
    return math.inf


def _dip(values: Callable[[Float], Float], force: Float, made: Float) -> float | None:
    """The first force between two points at which a function is negative that has a minimum there, or None."""
    if len(force) < 3:
        return None
    left, here, right = made[:, :-2], made[:, 1:-1], made[:, 2:]
    # The vertex of a parabola lies at most an eighth of its neighbours' rise below the lowest of three points.
    deep = (here > 0) & (here <= left) & (here <= right) & (here < 0.35 * (np.maximum(left, right) - here))
    for place in np.flatnonzero(deep.any(0)):
        for row in np.flatnonzero(deep[:, place]):
            low, high = float(force[place]), float(force[place + 2])
            for _ in range(6):
                points = np.linspace(low, high, _SECTIONS)
                found = values(points)[row]
                lowest = int(np.argmin(found))
                if found[lowest] < 0:
                    return float(points[int(np.argmax(found < 0))])
                low, high = float(points[max(lowest - 1, 0)]), float(points[min(lowest + 1, _SECTIONS - 1)])
    return None


def _by_sections(values: Callable[[Float], Float], low: float, high: float) -> float:
    """The first force at which a function is negative, from a bracket."""
    while high - low > 4e-16 * high:
        points = np.linspace(low, high, _SECTIONS + 1)[1:]
        held = (values(points) < 0).any(0)
        place = int(np.argmax(held)) if held.any() else _SECTIONS - 1
        tighter = (float(points[place - 1]) if place else low, float(points[place]))
        if tighter == (low, high):
            break
        low, high = tighter
    return (low + high) / 2


def _points(momentum: float, interval: int, share: float) -> Iterator[Float]:
    """Rising |b| at which a block is looked at: every eigenvalue of the current part in turn."""
    gap = abs(1 - share)
    small = min(1e-3 * gap, 1e-3) / interval**2
    far = 60.0 + math.log1p(abs(share))
    reach = np.unique(np.concatenate([np.geomspace(small, 60, 200), np.arange(0.5, far, 0.5), [2 * far, _LOST + 1]]))
    if share > 1:
        value = np.exp(reach / interval)
        yield np.expm1(reach / interval) * (value - momentum) / value
        return
    half = -interval * math.log(momentum) / 2 if momentum > 0 else math.inf
    inner = np.unique(np.append(reach[reach < min(half, far)], np.geomspace(far, half, 60)[1:-1] if far < half < math.inf else []))
    value = np.exp(-inner / interval)
    slow = -np.expm1(-inner / interval) * (value - momentum) / value
    if momentum > 0:
        slow = np.append(slow, (1 - math.sqrt(momentum)) ** 2)
    yield slow
    if momentum > 0:
        yield from _angles(momentum, interval, share)
    value = np.exp(np.concatenate([-inner[::-1], [0.0], reach[reach < math.inf]]) / interval)
    yield (1 + value) * (value + momentum) / value


def _angles(momentum: float, interval: int, share: float) -> Iterator[Float]:
    """|b| of complex eigenvalues, sixteen angles a turn of their power, unless that has decayed beyond notice."""
    root = math.sqrt(momentum)
    bound = math.log(40 * (1 + abs(share)) ** 2 * interval) + (interval - 1) * math.log(root)
    if share != 0.5 and bound < math.log(min(abs(1 - 2 * share), abs(1 - share))):
        return
    step = math.pi / (8 * interval)
    start = np.geomspace(1e-3 * min(1 - momentum, step), step, 40)[:-1]
    count = 8 * interval
    for first in range(1, count, _CHUNK):
        angle = step * np.arange(first, min(first + _CHUNK, count))
        angle = np.concatenate([start, angle]) if first == 1 else angle
        # 1 + mu - 2 sqrt(mu) cos without cancellation.
        yield (1 - root) ** 2 + 4 * root * np.sin(angle / 2) ** 2


def _one_update(lag: str, momentum: float, share: float) -> float:
    """A block of one update: on-policy for refresh, a fixed lag of one for async."""
    if lag == "refresh":
        return 2 * (1 + momentum)
    limits = [(1 - momentum) / share] if share > 0 else []
    return min([*limits, 2 * (1 + momentum) / (1 - 2 * share)] if share < 0.5 else limits)


def _no_momentum(interval: int, share: float) -> float:
    r"""Refresh without momentum: $|c^R - \sigma| < |1 - \sigma|$ with $c = 1 - (1-\sigma)a$, flat where c is 0."""
    if share > 0.5:
        return -math.expm1(math.log(2 * share - 1) / interval) / (1 - share)
    return (2.0 if interval % 2 == 0 else 1 + (1 - 2 * share) ** (1 / interval)) / (1 - share)


def first_turn(lag: str, momentum: float, interval: int, stale_share: float, limit: float) -> float:
    """Return the smallest force below the threshold at which the leading eigenvalue of a block is no positive number.

    Source: derived here.

    Example:
        >>> round(first_turn("refresh", 0.0, 3, 0.2, 2.0), 4)
        0.519
    """

    def calm(force: Float) -> Float:
        rest = 1 - stale_share
        made = block(rest * force, momentum, interval)
        push, hold = stale_share * made.lost / rest, stale_share * made.turned / rest
        moved = made.lost + made.turned  # 1 + q - (A + E)
        if lag == "refresh":
            drop = moved + push
            # (T^2 - 4 D) with T = 1 + q - drop and D = q + hold, at a vanishing force (1 - q)^2.
            square = made.spent**2 - 2 * (1 + made.q) * drop + drop**2 - 4 * hold
            return np.stack([square, 1 + made.q - drop])
        companion = np.zeros((len(force), 3, 3))
        companion[:, 1, 0] = companion[:, 2, 1] = 1
        companion[:, 0] = np.stack([1 + made.q - moved, -(made.q + push), -hold], axis=1)
        return np.where(leading_turns(np.linalg.eigvals(companion).astype(np.complex128)), -1.0, 1.0)[None]

    return first_negative(calm, momentum, interval, stale_share, limit)


def leading_turns(values_NS: NDArray[np.complex128]) -> Flags:
    """Return whether the largest eigenvalue of each row is anything but a positive number.

    Example:
        >>> leading_turns(np.array([[0.5, -0.4], [0.5, -0.6]], dtype=complex)).tolist()
        [False, True]
    """
    leading = np.take_along_axis(values_NS, np.abs(values_NS).argmax(1)[:, None], 1)[:, 0]
    return np.asarray((np.abs(leading.imag) > 1e-7 * np.abs(leading)) | (leading.real <= 0))


def scaled_block(lag: str, force: float, momentum: float, interval: int, stale_share: float) -> tuple[Float, float]:
    """Return the map of a block divided by its size, and the logarithm of that: nothing overflows, however far it grows.

    Example:
        >>> matrix, size = scaled_block("refresh", 0.1, 0.0, 2, 1.0)
        >>> (matrix * np.exp(size)).round(3).tolist()
        [[0.8, 0.0], [-0.1, 0.0]]
    """
    # The stale position counts in units of 1/a, so that no force mixes sizes.
    row = np.array([1 - (1 - stale_share) * force, momentum, -stale_share])
    base, base_size = _shrunk(np.array([row, [-(1 - stale_share) * force, *row[1:]], [0.0, 0.0, 1.0]]), 0.0)
    whole, size, left = np.eye(3), 0.0, interval
    while left:
        if left % 2:
            whole, size = _shrunk(base @ whole, size + base_size)
        left //= 2
        base, base_size = _shrunk(base @ base, 2 * base_size) if left else (base, base_size)
    unit = max(force, 1.0)
    whole[:2, :2] /= unit
    whole[:2, 2] *= force / unit
    size += math.log(unit)
    if lag == "refresh":
        matrix = whole[:2, :2].copy()
        matrix[:, 0] += whole[:2, 2]
        return matrix, size
    whole[2] = [math.exp(-size), 0.0, 0.0]
    return whole, size


def _shrunk(matrix: Float, size: float) -> tuple[Float, float]:
    """A matrix whose largest entry, if it is large, is 1, and the logarithm of what it was divided by."""
    largest = float(np.abs(matrix).max())
    return (matrix / largest, size + math.log(largest)) if largest > 1e50 else (matrix, size)
