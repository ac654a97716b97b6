r"""Which refresh intervals and momenta would be stable at a force: searched for, since thresholds need not fall with either.

Stable is what is below the first threshold of its setting. Nothing is judged here: `stability` does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from groupwise.stability.blocks import grows
from groupwise.stability.crossings import Float, any_delay
from groupwise.stability.lags import Lag
from groupwise.stability.staleness import crossed_below

LONGEST_INTERVAL = 1_000_000
"""Longest interval that is looked at, in updates."""
LONGEST_PART_FIXED = 16_384
"""The same of a fixed lag with a part of the force current, where each takes a search."""
LARGEST_MOMENTUM = 0.9999
_ONE_BY_ONE = 64
_PER_OCTAVE = 10
_MOMENTA = {"fixed": 400, "mixed": 120}


def longest_interval(kind: Lag, force: float, momentum: float) -> tuple[float, str]:
    """Return the longest interval up to which all are stable, and what is known of it.

    Example:
        >>> from groupwise.stability.staleness import partly_stale
        >>> longest_interval(partly_stale("refresh", 1.04), 0.001, 0.9), longest_interval(partly_stale("async", 0.3), 0.001, 0.9)
        ((211.0, 'exact'), (inf, 'any'))
    """
    if kind.name == "mixed" or kind.stale_share == 0 or kind.name == "none":
        return (0.0, "none") if crossed_below(kind, force, momentum, 1) else (math.inf, "any")
    if _calm(kind, force, momentum):
        return math.inf, "any"
    if kind.stale_share == 1:
        first, top = _first_unstable(lambda interval: _closed(kind, force, momentum, interval), LONGEST_INTERVAL), LONGEST_INTERVAL
    elif kind.name == "fixed":
        first, top = _sampled(kind, force, momentum, LONGEST_PART_FIXED), LONGEST_PART_FIXED
    else:
        return _longest_block(kind, force, momentum)
    if first is None:
        return float(top), "at least"
    return float(first - 1), "exact" if first > 1 else "none"


def _closed(kind: Lag, force: float, momentum: float, interval: Float) -> Float:
    """Whether a mode is unstable at each interval, where the threshold has a closed form."""
    return np.asarray(force >= kind.threshold(np.asarray(momentum), interval))


def _calm(kind: Lag, force: float, momentum: float) -> bool:
    r"""Whether no interval whatever can make a mode grow.

    Below $(1-\sqrt\mu)^2$ the current part's response is positive and sums to 1/b: a stale part that is smaller than it, however old and
    whichever way its age changes, returns less than it is given. For fixed lags the frequency equation says more.
    """
    share = kind.stale_share
    if share <= 0.5 and (1 - share) * force <= (1 - math.sqrt(momentum)) ** 2:
        return True
    return kind.name == "fixed" and force < any_delay(momentum, share)


def _first_unstable(unstable: Callable[[Float], Float], top: int) -> int | None:
    """The first unstable interval where thresholds fall with the interval, or None up to a top."""
    low, high = 0, top
    if not unstable(np.array([float(top)]))[0]:
        return None
    while high - low > 1:
        points = np.unique(np.geomspace(low + 1, high, 34).astype(np.int64))
        held = np.append(unstable(points[:-1].astype(np.float64)), True)
        place = int(np.argmax(held))
        low, high = int(points[place - 1]) if place else low, int(points[place])
    return high


def _longest_block(kind: Lag, force: float, momentum: float) -> tuple[float, str]:
    """The same of refresh and async with a part of the force current: at the force itself every interval, at smaller ones a sample."""
    share, start, size = kind.stale_share, 1, 1024
    end = min(_decayed(force, momentum, share), LONGEST_INTERVAL)
    first = None
    while start <= end and first is None:
        interval = np.arange(start, min(start + size, end + 1), dtype=np.float64)
        found = grows(kind.name, force, momentum, interval, share)
        first = int(interval[np.argmax(found)]) if found.any() else None
        start, size = start + size, min(2 * size, 1 << 18)
    earlier = _sampled(kind, force, momentum, end if first is None else first - 1)
    first = first if earlier is None else earlier
    if first is not None:
        return float(first - 1), "exact" if first > 1 else "none"
    return (math.inf, "any") if end < LONGEST_INTERVAL else (float(LONGEST_INTERVAL), "at least")


def _decayed(force: float, momentum: float, share: float) -> float:
    """The interval from which the current part has decayed so far that its block changes no condition; infinite where it never has."""
    current = (1 - share) * force
    value = 1 + momentum - current
    root = math.sqrt(max(value * value - 4 * momentum, 0.0))
    # Slow real eigenvalues cannot grow (`_calm`); only complex and negative ones are to decay.
    size = max(math.sqrt(momentum), (root - value) / 2)
    if share >= 0.5 or size >= 1:
        return math.inf
    room = math.log(40 * (1 + abs(share)) ** 2) - math.log(min(abs(1 - 2 * share), abs(1 - share)))
    interval = 2.0
    while math.log(interval) + room + (interval - 1) * math.log(max(size, 1e-300)) > 0 or interval * -math.log(max(size, 1e-300)) < 1:
        interval *= 2
    return interval


def _sampled(kind: Lag, force: float, momentum: float, top: float) -> int | None:
    """The first interval at which the force is not below the threshold: short ones one by one, long ones by a sample and halving."""
    last = int(top)
    ladder = np.geomspace(_ONE_BY_ONE, max(last, _ONE_BY_ONE), max(2, math.ceil(_PER_OCTAVE * math.log2(max(last, 128) / 64)))).astype(
        np.int64
    )
    # Even and odd blocks differ where the current part flips its sign.
    tried = np.unique(np.concatenate([np.arange(1, _ONE_BY_ONE + 1), ladder, ladder - 1]))
    before = 0
    for interval in tried[tried <= last].tolist():
        if crossed_below(kind, force, momentum, interval):
            low, high = before, interval
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if crossed_below(kind, force, momentum, middle) else (middle, high)
            return int(high)
        before = interval
    return None


def stable_momenta(kind: Lag, force: float, interval: int) -> tuple[tuple[float, float], ...]:
    """Return the momenta at which a mode is stable, as windows up to `LARGEST_MOMENTUM`.

    Example:
        >>> from groupwise.stability.lags import lag_by_name
        >>> [tuple(round(end, 4) for end in window) for window in stable_momenta(lag_by_name("refresh"), 1.207, 2)]
        [(0.455, 0.5645)]
    """
    closed = kind.name == "none" or (kind.stale_share in (0.0, 1.0) and kind.name != "mixed")

    def stable(momentum: Sequence[float]) -> list[bool]:
        if closed:
            return [bool(force < limit) for limit in kind.threshold(np.asarray(momentum), np.asarray(interval))]
        return [not crossed_below(kind, force, one, interval) for one in momentum]

    count = _MOMENTA.get(kind.name, 2000) if closed else 120
    near_one = 1 - np.geomspace(0.02, 1 - LARGEST_MOMENTUM, 40)
    grid = np.unique(np.concatenate([np.linspace(0, 0.99, count), near_one]))
    inside = stable(grid.tolist())
    windows, low = [], 0.0 if inside[0] else None
    for place in range(1, len(grid)):
        if inside[place] == inside[place - 1]:
            continue
        edge = _edge(stable, float(grid[place - 1]), float(grid[place]), inside=inside[place - 1])
        if low is None:
            low = edge
        else:
            windows.append((low, edge))
            low = None
    if low is not None:
        windows.append((low, LARGEST_MOMENTUM))
    return tuple(windows)


def _edge(stable: Callable[[Sequence[float]], list[bool]], low: float, high: float, *, inside: bool) -> float:
    """The last stable momentum between two of which one is stable."""
    while high - low > 1e-8:
        middle = (low + high) / 2
        low, high = (middle, high) if stable([middle])[0] == inside else (low, middle)
    return low if inside else high


def nearest_end(windows: Sequence[tuple[float, float]], momentum: float) -> float:
    """Return the upper end of the window that holds a momentum, or else of the nearest one; NaN where there is none.

    Example:
        >>> nearest_end([(0.0, 0.2), (0.5, 0.7)], 0.4)
        0.7
    """
    if not windows:
        return math.nan
    return min(windows, key=lambda window: max(window[0] - momentum, momentum - window[1], 0.0))[1]
