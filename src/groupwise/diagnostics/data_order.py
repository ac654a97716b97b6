"""The order of the data in a reward: prompts that come in the same order every epoch, or data sources in turn.

An exact period with any profile, there in all four quarters of the log with the same phase, is no swing of the dynamics, which begins
somewhere and grows or dies. It is found by folding the rows, and taken out before the rows are judged. It explains no other change.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from groupwise.diagnostics.signals import Signal, signal_of

FloatArray = NDArray[np.float64]
_FEWEST_ROWS, _LONGEST = 24, 300
# Chance of as large a profile in white rows, over all periods that are tried.
_CHANCE = 1e-6


@dataclass(frozen=True, slots=True)
class DataOrder:
    """A profile that comes round."""

    period: int  # in rows
    profile_P: FloatArray  # deviation of each row of a period from the level
    share: float  # of the scatter about the trend that it explains


def order_of(value_T: FloatArray) -> DataOrder | None:
    r"""Find a period of whole rows whose profile is the same in all quarters.

    $F = \frac{B/(P-1)}{W/(n-P-4)}$ with the scatter B between and W within the phases, after a cubic trend; then the coefficient of each
    quarter of the log on the profile must lie between a half and two.
    """
    n = len(value_T)
    if n < _FEWEST_ROWS:
        return None
    place = np.linspace(-1, 1, n)
    left = value_T - np.polyval(np.polyfit(place, value_T, 3), place)
    total = float(left @ left)
    if total <= 1e-18 * n:
        return None
    best: tuple[float, int] = (0.0, 0)
    periods = range(2, min(n // 5, _LONGEST) + 1)
    for period in periods:
        between = total - _within(left, period)
        ratio = (between / (period - 1)) / max((total - between) / (n - period - 4), 1e-12 * total)
        best = max(best, (float(ratio), period))
    from scipy.stats import f as variance_ratio

    ratio, period = best
    if float(variance_ratio.sf(ratio, period - 1, n - period - 4)) * len(periods) > _CHANCE:
        return None
    phase = np.arange(n) % period
    profile = np.bincount(phase, weights=left) / np.bincount(phase)
    fitted = profile[phase]
    quarters = np.array_split(np.arange(n), 4)
    parts = [float(left[q] @ fitted[q] / max(float(fitted[q] @ fitted[q]), 1e-300)) for q in quarters]
    if min(parts) < 0.5 or max(parts) > 2.0:
        return None
    return DataOrder(period, profile, 1 - _within(left, period) / total)


def level_of(signal: Signal) -> tuple[Signal, DataOrder | None]:
    """Return a metric without the order of its data, and the order."""
    order = order_of(signal.value_T)
    if order is None:
        return signal, None
    value = signal.value_T - order.profile_P[np.arange(len(signal)) % order.period]
    if signal.bounds is not None:
        value = np.clip(value, *signal.bounds)
    return signal_of(signal.column, signal.step_T, value, bounds=signal.bounds), order


def _within(left: FloatArray, period: int) -> float:
    """Sum of squares about the means of the phases."""
    phase = np.arange(len(left)) % period
    mean = np.bincount(phase, weights=left) / np.bincount(phase)
    return float(left @ left - np.bincount(phase) @ mean**2)
