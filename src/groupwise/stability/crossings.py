r"""Where a mode whose batches mix lags leaves the unit circle, and the leading eigenvalues of a long fixed lag without its matrix.

Both speak of $(\lambda - 1)(1 - \mu/\lambda) + a\sum_d p_d\lambda^{-d} = 0$. No kind of lag is named here and no run is judged.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

Float = NDArray[np.float64]
Complex = NDArray[np.complex128]
_CHUNK = 2048
_TURN = 32
"""Points a turn of the fastest term."""
_SECTIONS = 33
_SMALL = 64
"""Longest fixed lag whose matrix is cheaper than Newton's steps."""


def first_crossing(momentum: float, age_D: ArrayLike, weight_D: ArrayLike, *, below: float = math.inf) -> float:
    r"""Return the smallest force at which a root of $(\lambda - 1)(1 - \mu/\lambda) + a\sum_d p_d\lambda^{-d}$ reaches the unit circle.

    Source: derived here.

    Example:
        >>> round(first_crossing(0.5, [0, 1], [0.5, 0.5]), 9)
        1.0
    """
    ages, weight = np.asarray(age_D, dtype=np.float64), np.asarray(weight_D, dtype=np.float64)
    reach = float(np.abs(weight).sum())

    def parts(angle: Float) -> tuple[Float, Float, Float]:
        turn = np.exp(1j * angle)
        delayed = np.exp(-1j * np.multiply.outer(angle, ages)) @ weight
        # Multiplied by the conjugate of the sum rather than divided by it: no poles.
        product = -(turn - 1) * (1 - momentum / turn) * np.conj(delayed)
        return product.real, product.imag, np.abs(delayed) ** 2

    def forces(angle: Float) -> float:
        real, _, size = parts(angle)
        forward = (real > 0) & (size > 1e-18)
        return float((real[forward] / size[forward]).min(initial=math.inf))

    # The fastest term turns once in 2 pi/D; at a momentum near 1 the first crossing is near 0.
    step, end = 2 * np.pi / (_TURN * (float(ages.max()) + 2)), _last_angle(momentum, below * reach)
    grid = np.concatenate([np.geomspace(1e-9, step, 60)[:-1], np.arange(step, min(end + step, np.pi - step / 2), step), [np.pi]])
    best = math.inf
    for start in range(0, len(grid) - 1, _CHUNK):
        if grid[start] >= min(_last_angle(momentum, best * reach), end):
            return best
        piece = grid[start : start + _CHUNK + 1]
        piece, seen = _with_dips(lambda angle: parts(angle)[1], piece)
        sign = np.sign(seen)
        # A zero on the grid itself is a crossing as it is.
        best = min(best, forces(piece[sign == 0]), forces(piece[-1:]) if piece[-1] == np.pi else math.inf)
        change = np.flatnonzero(sign[1:] * sign[:-1] < 0)
        for low, high in zip(piece[change].tolist(), piece[change + 1].tolist(), strict=True):
            if low > min(_last_angle(momentum, best * reach), end):
                break
            best = min(best, forces(np.array([_root(lambda angle: parts(angle)[1], low, high)])))
    return best


def _last_angle(momentum: float, force: float) -> float:
    """The angle from which |e^{iw} - 1||1 - mu e^{-iw}|, which rises with it, exceeds a force: no smaller one crosses there."""
    if force >= 2 * (1 + momentum):
        return math.pi
    # t = 1 - cos w solves 4 mu t^2 + 2 (1 - mu)^2 t = force^2; the root without cancellation.
    half = (1 - momentum) ** 2
    t = force**2 / (half + math.sqrt(half**2 + 4 * momentum * force**2))
    return 2 * math.asin(min(1.0, math.sqrt(t / 2)))


def _with_dips(values: Callable[[Float], Float], grid: Float) -> tuple[Float, Float]:
    """A grid with its values, and with the vertex of the parabola wherever they come near zero between two points."""
    seen = values(grid)
    size = np.abs(seen)
    left, here, right = size[:-2], size[1:-1], size[2:]
    near = (here <= left) & (here <= right) & (seen[:-2] * seen[2:] > 0) & (here < 0.35 * (np.maximum(left, right) - here))
    place = np.flatnonzero(near) + 1
    if not len(place):
        return grid, seen
    before, after = grid[place] - grid[place - 1], grid[place + 1] - grid[place]
    rise, fall = (seen[place + 1] - seen[place]) / after, (seen[place] - seen[place - 1]) / before
    with np.errstate(divide="ignore", invalid="ignore"):
        vertex = grid[place] - (fall * after + rise * before) / (2 * (rise - fall))
    vertex = vertex[np.isfinite(vertex) & (vertex > grid[place - 1]) & (vertex < grid[place + 1])]
    order = np.argsort(np.append(grid, vertex), kind="stable")
    return np.append(grid, vertex)[order], np.append(seen, values(vertex))[order]


def _root(values: Callable[[Float], Float], low: float, high: float) -> float:
    """A root from a bracket, by sections of it."""
    below = np.sign(values(np.array([low]))[0])
    while high - low > 4e-16 * high:
        points = np.linspace(low, high, _SECTIONS + 1)[1:]
        other = np.sign(values(points)) != below
        other[-1] = True
        place = int(np.argmax(other))
        tighter = (float(points[place - 1]) if place else low, float(points[place]))
        if tighter == (low, high):
            break
        low, high = tighter
    return high


def any_delay(momentum: float, stale_share: float) -> float:
    r"""Return the force below which no fixed lag whatever makes a mode grow that is partly stale; 0 from a half stale on.

    On the unit circle $-(e^{iw} - 1)(1 - \mu e^{-iw}) = a[(1-\sigma) + \sigma e^{-iwd}]$ needs
    $|g/a - (1-\sigma)| = |\sigma|$, which knows no lag.

    Source: derived here.

    Example:
        >>> round(any_delay(0.0, 0.25), 6)
        2.0
    """
    if stale_share >= 0.5:
        return 0.0
    cosine = np.cos(np.concatenate([np.geomspace(1e-6, 1e-2, 2000), np.linspace(1e-2, np.pi, 20_000)]))
    real = (1 + momentum) * (1 - cosine)
    size = (1 - cosine) * ((1 + momentum) ** 2 * (1 - cosine) + (1 - momentum) ** 2 * (1 + cosine))
    root = ((1 - stale_share) * real) ** 2 - (1 - 2 * stale_share) * size
    inverse = ((1 - stale_share) * real[root >= 0] + np.sqrt(root[root >= 0])) / size[root >= 0]
    return float(1 / inverse.max()) if len(inverse) else math.inf


def fixed_values(force: float, momentum: float, lag: int, stale_share: float) -> Complex | None:
    r"""Return the leading eigenvalues of one update with a long fixed lag, by Newton's steps from each branch of the logarithm.

    Source: derived here.

    Example:
        >>> round(float(abs(fixed_values(0.001, 0.9, 100, 1.0)).max()), 6)
        0.997642
    """
    if lag <= _SMALL or force * (abs(stale_share) + abs(1 - stale_share)) > 1e100:
        return None
    stale, current = force * stale_share, force * (1 - stale_share)

    def held(value: Complex) -> Complex:
        return (value - 1) * (1 - momentum / value) + current

    # A branch of the logarithm for each turn of the delay; the two roots of the current part start on their own, and so do real ones.
    turn = 2j * np.pi * np.arange(0, lag // 2 + 2)
    free = np.roots([1.0, -(1 + momentum - current), momentum]).astype(np.complex128)
    line = np.linspace(max(momentum, 0.01), 1 - 1e-9, 50).astype(np.complex128)
    with np.errstate(all="ignore"):
        branch = np.exp((np.log(-stale / held(np.exp((turn + 1j) / lag))) + turn) / lag)
        value = np.concatenate([branch, np.exp((turn + 1j) / lag), free[free != 0], line])
        active = np.arange(len(value))
        for _ in range(60):
            one = value[active]
            power = stale * np.exp(-lag * np.log(one))
            change = (held(one) + power) / (1 - momentum / one**2 - lag * power / one)
            # A step beyond a branch's width would land on another one.
            change *= np.minimum(1, 0.5 / lag / np.maximum(np.abs(change), 1e-300))
            value[active] = one - change
            active = active[np.abs(change) > 1e-14]
            if not len(active):
                break
        error = np.abs(held(value) + stale * np.exp(-lag * np.log(value)))
        good = np.isfinite(value) & (error < 1e-9 * (np.abs(held(value)) + np.abs(value - 1) + abs(current))) & (value != 0)
    found: Complex = value[good]
    found = np.sort(np.where(found.imag < 0, np.conj(found), found))
    found = found[np.append(np.abs(np.diff(found)) > 1e-9, True)] if len(found) else found
    if not len(found):
        return None
    return found if _none_outside(found, stale, current, momentum, lag) else None


def _none_outside(found: Complex, stale: float, current: float, momentum: float, lag: int) -> bool:
    """Whether no eigenvalue lies outside a circle around the found ones: the function has then as many zeros in it as poles."""
    radius = float(np.abs(found).max()) * (1 + 0.05 / lag)
    # Half of the circle, thirty-two points a turn of the delay, and more beside the found ones, which are close to the circle.
    close = np.angle(found[np.abs(found) > radius * (1 - 2 / lag)])[:, None] + np.linspace(-0.5, 0.5, 81) / lag
    angle = np.unique(np.concatenate([np.linspace(0, np.pi, 16 * (lag + 2) + 1), close[(close > 0) & (close < np.pi)]]))
    around = radius * np.exp(1j * angle)
    delayed = stale * np.exp(-lag * (math.log(radius) + 1j * angle))
    image = (around - 1) * (1 - momentum / around) + current + delayed
    steps = np.angle(image[1:] / image[:-1])
    # It grows as lambda itself, half around on half a circle, if every zero is inside; steps beyond a right angle cannot be counted.
    return bool(abs(steps.sum() - np.pi) < 0.1 and np.abs(steps).max() < np.pi / 2)
