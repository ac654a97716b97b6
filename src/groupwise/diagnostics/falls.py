"""Falls of a reward below half of its height: whether there is one, since when, and whether it came at once.

The null is that a row falls below half of the height reached so far in at most one of five cases, whatever came before: a rise, a plateau
and slow noise about one respect it, and so do rows that depend on each other. Why it fell is the business of others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from groupwise.diagnostics.sequential import CRITICAL, alarm, rare_event_factors
from groupwise.diagnostics.signals import FEWEST_ROWS, Signal, blocks
from groupwise.intervals import Interval

FloatArray = NDArray[np.float64]
HALF = 0.5
# Chance in health of a row below half of the height. Rows are averaged until half of the height is three standard deviations.
USUAL = 0.2
_CLEAR = 6.0
# A height is the lower 97.5 % limit of a mean of neighbouring blocks, so that a lucky row makes none.
_LUCK = 1.96
# Rows of a fall that came by and by, and twice the log-likelihood by which it must be likelier than a step: chance is below 1 %.
_SLOPE, _BETTER = 4, 12.0


@dataclass(frozen=True, slots=True)
class Fall:
    """A fall from a height."""

    row: int  # of the signal, where it began
    height: float  # level before
    end: float  # level since, or of the lowest stretch where it recovered
    lost: Interval  # share of the height lost, with its interval
    lasts: bool  # whether it holds to the last row


def row_size(signal: Signal, floor: float) -> int | None:
    """Return how many rows to average so that noise hides no half of the height; None where even an eighth of the log does not do."""
    few = max(3, len(signal) // 15)
    if len(signal) < FEWEST_ROWS:
        return None
    smooth = np.convolve(signal.value_T, np.ones(few) / few, "valid")
    span = float(smooth.max()) - _LUCK * signal.scatter / np.sqrt(few) - floor
    if span <= 0:
        return None
    size = max(1, int(np.ceil((_CLEAR * signal.scatter / span) ** 2)))
    return size if len(signal) // size >= FEWEST_ROWS else None


def heights(value_T: FloatArray, deviation: float) -> FloatArray:
    """Return the height reached before each row: the largest lower limit of a mean of neighbouring rows."""
    few = max(3, len(value_T) // 15)
    out = np.full(len(value_T), -np.inf)
    if len(value_T) <= few:
        return out
    smooth = np.convolve(value_T, np.ones(few) / few, "valid") - _LUCK * deviation / np.sqrt(few)
    out[few:] = np.maximum.accumulate(smooth)[: len(value_T) - few]
    return out


def find_fall(signal: Signal, floor: float, *, rate: float = CRITICAL) -> Fall | None:
    """Find the last fall below half of the height."""
    size = row_size(signal, floor)
    if size is None:
        return None
    value, first = blocks(signal, size)
    deviation = signal.scatter / np.sqrt(size)
    height = heights(value, deviation)
    usable = height - floor >= _CLEAR * deviation
    usable &= height > floor
    below = value < floor + HALF * (np.where(usable, height, np.inf) - floor)
    factors = np.where(usable, rare_event_factors(below, USUAL), 0.0)
    found = alarm(factors, rate=rate)
    if found is None:
        return None
    start = found.onset
    after = value[start:]
    # Where the evidence has fallen below the threshold again, or the last rows stand high again, it was made good.
    tail = below[-max(2, len(value) // 20) :]
    lasts = found.lasts and bool(tail.mean() >= HALF)
    top = float(np.max(height[start])) if np.isfinite(height[start]) else float(height.max())
    end = float(after.mean()) if lasts else float(after[below[start:]].mean())
    if signal.value_T.min() < 0 and top - end < 2 * _CLEAR * deviation / np.sqrt(max(3, len(after))):
        return None  # where 0 is no floor slow noise reaches it too
    half = _LUCK * deviation / np.sqrt(max(len(after), 1))
    span = top - floor
    share, off = float((top - end) / span), float(half / span)
    # Below the level that counts as nothing no more than all is lost.
    lost = Interval(min(share, 1.0), min(max(0.0, share - off), 1.0), min(share + off, 1.0))
    return Fall(_closer(signal, int(first[start]), size, (top + end) / 2), top, end, lost, lasts)


def _closer(signal: Signal, row: int, size: int, middle: float) -> int:
    """Place an onset within its block, or before it: back over the rows that were below the middle already."""
    if size > 1:
        low, high = max(0, row - size), min(len(signal), row + size)
        gain = np.cumsum(signal.value_T[low:high] - middle)
        row = low + int(np.argmax(gain)) + 1 if float(gain.max()) > 0 else low
        return min(row, len(signal) - 1)
    while row > 1 and signal.value_T[row - 1] < middle and signal.value_T[row - 2 : row].mean() < middle:
        row -= 1
    return row


def by_and_by(signal: Signal, row: int) -> bool:
    """Say whether a fall clearly took many rows: a slope between two levels describes it better than a step does."""
    reach = max(8, len(signal) // 6)
    value = signal.value_T[max(0, row - reach) : row + reach]
    first_E, last_E = np.triu_indices(len(value))
    first_E, last_E = first_E[first_E > 0], last_E[first_E > 0]
    slope_E = last_E - first_E >= _SLOPE
    if not slope_E.any() or signal.scatter <= 0:
        return False
    # Squares that two levels explain, with a slope between them from one row to another; from a row to itself it is a step.
    shape_ET = np.clip((np.arange(len(value)) - first_E[:, None] + 1) / (last_E - first_E + 1)[:, None], 0, 1)
    shape_ET -= shape_ET.mean(axis=1, keepdims=True)
    explained_E = (shape_ET @ (value - value.mean())) ** 2 / (shape_ET**2).sum(axis=1)
    step = float(explained_E[first_E == last_E].max())
    return float(explained_E[slope_E].max()) - step > _BETTER * signal.scatter**2
