"""The three clocks of a run beside each other: logged steps, optimiser updates, tokens and seconds.

Inside the log it interpolates, beyond it goes on at the pace of the last half. It fits nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from groupwise.intervals import Interval

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Clock:
    """Converts between the times of a log."""

    step_T: FloatArray  # logged steps, strictly increasing
    time_T: FloatArray  # optimiser updates, or whatever clock the fit used, increasing
    tokens_T: FloatArray | None = None  # cumulative tokens, or None
    seconds_T: FloatArray | None = None  # cumulative seconds, or None

    def step(self, time: float) -> float:
        """Return the step at a time, fractional between two rows."""
        return float(self.steps([time])[0])

    def steps(self, time_S: ArrayLike) -> FloatArray:
        """Return the step at each time, shape (S,)."""
        return _carried(np.asarray(time_S, dtype=float), self.time_T, self.step_T)

    def time(self, step: float) -> float:
        """Return the time at a step."""
        return float(_carried(np.array([float(step)]), self.step_T, self.time_T)[0])

    def tokens(self, time: float) -> float:
        """Return the tokens spent by a time; nan where the log has none."""
        return math.nan if self.tokens_T is None else float(_carried(np.array([time]), self.time_T, self.tokens_T)[0])

    def hours(self, time: float) -> float:
        """Return the hours since the start of the clock of the log; nan where the log has none."""
        return math.nan if self.seconds_T is None else float(_carried(np.array([time]), self.time_T, self.seconds_T)[0]) / 3600

    def in_steps(self, interval: Interval) -> Interval:
        """Return an interval of times as one of steps."""
        return Interval(self.step(interval.value), self.step(interval.low), self.step(interval.high), interval.level)


def _carried(at_S: FloatArray, known_T: FloatArray, wanted_T: FloatArray) -> FloatArray:
    """Interpolate `wanted` at `at`, linearly beyond both ends at the pace of the nearer half."""
    usable = np.isfinite(known_T) & np.isfinite(wanted_T)
    known, wanted = known_T[usable], wanted_T[usable]
    if known.size == 0:
        return np.full(at_S.shape, math.nan)
    if known.size == 1:
        return np.asarray(wanted[0] + (at_S - known[0]))
    middle = known.size // 2
    inside = np.interp(at_S, known, wanted)
    after = wanted[-1] + (at_S - known[-1]) * _pace(known, wanted, min(middle, known.size - 2), known.size - 1)
    before = wanted[0] + (at_S - known[0]) * _pace(known, wanted, 0, max(middle, 1))
    return np.where(at_S > known[-1], after, np.where(at_S < known[0], before, inside))


def _pace(known: FloatArray, wanted: FloatArray, first: int, last: int) -> float:
    """Return the mean pace between two rows."""
    return float((wanted[last] - wanted[first]) / (known[last] - known[first]))
