"""Whether a run swings: a test of its last rows for a swing that lasts."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from groupwise.arrays import Float
from groupwise.plain import Plain, frozen

_LATE = 0.4
_FEWEST_LATE = 24
CHANCE = 1e-3
"""Chance at which a swing of settled rows is taken as one that is there."""


@frozen
class LastingSwing(Plain):
    """Whether the last rows of a log swing to and fro at one frequency."""

    MORE = ("lasts",)

    amplitude: float  # of the strongest frequency, reward units
    period: float  # of it, in rows
    p_value: float  # chance of as strong a line in rows that do not depend on each other
    rows: int  # how many were looked at; 0 where they are too few to tell

    @property
    def lasts(self) -> bool:
        """Whether it is beyond chance."""
        return self.rows > 0 and self.p_value < CHANCE


def lasting_swing(value_T: ArrayLike) -> LastingSwing:
    r"""Test whether the last two fifths of a log swing beyond sampling noise, as on a limit cycle
    or near the edge.

    The largest share g of one frequency in the periodogram of m frequencies, after the linear
    trend: $P(g > x) \le m(1-x)^{m-1}$ for independent rows. Slow noise raises the lowest
    frequencies and is seen as a swing too.

    Source: Fisher (1929), Proceedings of the Royal Society A 125, for g; the first term of its
    series bounds it.
    """
    value = np.asarray(value_T, dtype=float)
    value = value[np.isfinite(value)]
    late = value[-max(_FEWEST_LATE, math.ceil(_LATE * len(value))) :]
    n = len(late)
    if n < _FEWEST_LATE:
        return LastingSwing(0.0, math.nan, 1.0, 0)
    place = np.arange(n, dtype=float)
    left: Float = late - np.polyval(np.polyfit(place, late, 1), place)
    power = np.abs(np.fft.rfft(left)[1:]) ** 2
    if n % 2 == 0:
        power[-1] /= 2  # the highest frequency has one degree of freedom and not two
    total, top = float(power.sum()), int(power.argmax())
    if total <= 1e-24 * n * max(1.0, np.abs(late).max()) ** 2:
        return LastingSwing(0.0, math.nan, 1.0, n)
    share = float(power[top]) / total
    amplitude = 2 * math.sqrt(float(power[top])) / n
    return LastingSwing(
        amplitude, n / (top + 1), min(1.0, len(power) * (1 - share) ** (len(power) - 1)), n
    )
