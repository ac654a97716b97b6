"""The grades of a reward: the lowest one, and both of a reward of right and wrong, whatever they are called.

Labels are no evidence: a verifier that says -1 and 1 is judged as one that says 0 and 1. It reads rollouts and standard deviations, and
judges nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from groupwise.record.run import RunRecord

FloatArray = NDArray[np.float64]
# Rollouts that tell the grades, and by how much the spread of a batch may miss that of two grades.
_MANY, _OFF = 50, 0.06


def lowest_grade(record: RunRecord) -> float | None:
    """Return the lowest reward of a rollout where many share it, so that it is a grade and no outlier."""
    value = _rewards(record)
    if value.size < _MANY:
        return None
    lowest = float(value.min())
    return lowest if float(np.isclose(value, lowest).mean()) > 0.01 else None


def two_values(record: RunRecord, value_T: FloatArray, spread_T: FloatArray | None) -> tuple[float, float] | None:
    r"""Return the two grades of a reward of right and wrong, where the log shows them.

    Of grades a and b every batch of mean m has the variance $(m - a)(b - m)$: variance plus $m^2$ is a straight line in m.
    """
    reward = _rewards(record)
    if reward.size >= _MANY:
        seen = np.unique(reward)
        if seen.size != 2 or not ((value_T >= seen[0]) & (value_T <= seen[1])).all():
            return None
        return float(seen[0]), float(seen[1])
    if spread_T is None or not value_T.size:
        return None
    for grades in ((-1.0, 1.0), _grades_of(value_T, spread_T)):
        if grades is not None and _explains(grades, value_T, spread_T):
            return grades
    return None


def _grades_of(value_T: FloatArray, spread_T: FloatArray) -> tuple[float, float] | None:
    """The grades that a straight line through variance plus squared mean tells."""
    known = np.isfinite(spread_T) & (spread_T > 0)
    if known.sum() < 5 or float(np.ptp(value_T[known])) == 0:
        return None
    slope, level = np.polyfit(value_T[known], spread_T[known] ** 2 + value_T[known] ** 2, 1)
    inside = float(slope**2 + 4 * level)
    if not inside > 0:
        return None
    span = float(np.sqrt(inside))
    digits = 1 - int(np.floor(np.log10(span)))
    low, high = (round(float(slope + sign * span) / 2, digits) + 0.0 for sign in (-1, 1))
    return (low, high) if low < high else None


def _explains(grades: tuple[float, float], value_T: FloatArray, spread_T: FloatArray) -> bool:
    """Whether two grades give the spread of nearly all rows, and no row is outside of them."""
    low, high = grades
    if value_T.min() < low or value_T.max() > high:
        return False
    expected = np.sqrt((value_T - low) * (high - value_T))
    telling = np.isfinite(spread_T) & (expected > 0.1 * (high - low))
    if telling.sum() < 5:
        return False
    return float((np.abs(spread_T[telling] / expected[telling] - 1) < _OFF).mean()) > 0.9


def _rewards(record: RunRecord) -> FloatArray:
    """The finite rewards of the rollouts."""
    if record.rollouts is None or "reward" not in record.rollouts.columns:
        return np.zeros(0)
    value = record.rollouts["reward"].drop_nulls().to_numpy().astype(float)
    return np.asarray(value[np.isfinite(value)])
