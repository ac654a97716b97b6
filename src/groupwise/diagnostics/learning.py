"""Whether a reward rises, stands at its top, stands still below it, falls or came back: the one decision that fits and checks share.

First and last quarter are compared, with the noise of the rows between them. A reward that is not shown to rise is flat only where
enough rows looked; before that nothing is said.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from groupwise.diagnostics.collapse import Fall, decline_of, fall_of
from groupwise.diagnostics.judgement import Learning
from groupwise.diagnostics.signals import FEWEST_ROWS, Evidence, Signal
from groupwise.diagnostics.swings import level_of
from groupwise.intervals import Interval

# Rows after which a reward that shows no gain is called flat: before, noise may hide one.
ENOUGH = 60
# Standard errors that make a gain, and those that a second half without a gain stays below.
_GAIN, _NO_GAIN = 2.5, 2.0
# With less than a quarter of the range left a reward that stands still has arrived.
NEAR = 0.25
# A run that cannot have gained a tenth of what was left has not learnt, however few its rows.
_NOTHING, _FEW = 0.1, 20


@dataclass(frozen=True, slots=True)
class Progress:
    """What a reward does, with its raw numbers."""

    learning: Learning
    before: float  # mean of the first quarter, or of the rows before a fall
    after: float  # mean of the last quarter, or of the rows since a fall
    gain: Interval | None  # the later mean less the earlier, with its 95 % interval
    since: int | None  # the step from which it stands still or falls
    steps: int  # between the first row and the last


def progress_of(evidence: Evidence) -> Progress:
    """Say what the reward of a run does."""
    reward = evidence.reward
    if reward is None or len(reward) < FEWEST_ROWS:
        known = np.zeros(0) if reward is None else reward.value_T
        ends = (float(known[0]), float(known[-1])) if known.size else (float("nan"), float("nan"))
        return Progress(Learning.UNKNOWN, *ends, None, None, 0 if reward is None else int(reward.step_T[-1] - reward.step_T[0]))
    level = level_of(reward)[0]
    fall, steps = fall_of(evidence), int(reward.step_T[-1] - reward.step_T[0])
    if fall is not None:
        return _fallen(level, fall, steps)
    lost = decline_of(evidence)
    if lost is not None:
        row, before = lost
        return Progress(Learning.FALLING, before, float(level.value_T[row:].mean()), None, int(level.step_T[row]), steps)
    quarter = max(len(level) // 4, 2)
    early, late = slice(0, quarter), slice(len(level) - quarter, len(level))
    gain, before, after = level.change(early, late), float(level.value_T[early].mean()), float(level.value_T[late].mean())
    found, since = _course(level, gain, level.score(early, late), arrived=_held_out_arrived(evidence))
    return Progress(found, before, after, gain, since, steps)


def _fallen(level: Signal, fall: Fall, steps: int) -> Progress:
    """The progress of a reward that fell: for good, or for a while."""
    few = max(3, len(level) // 10)
    before = float(level.value_T[max(0, fall.row - few) : fall.row].mean()) if fall.row else fall.height
    if fall.lasts:
        return Progress(Learning.FALLING, before, float(level.value_T[fall.row :].mean()), None, int(level.step_T[fall.row]), steps)
    return Progress(Learning.RECOVERED, fall.end, float(level.value_T[-few:].mean()), None, int(level.step_T[fall.row]), steps)


def _course(level: Signal, gain: Interval, score: float, *, arrived: bool) -> tuple[Learning, int | None]:
    """Tell rising from standing still, at the top or below it; and the step since when it stands."""
    n = len(level)
    if score > _GAIN:
        half, third = n // 2, max((n - n // 2) // 3, 1)
        still = n - half >= ENOUGH // 2 and level.score(slice(half, half + third), slice(n - third, n)) < _NO_GAIN
        if not still:
            return Learning.LEARNING, None
        if arrived or near_top(level) is not False:
            return Learning.AT_TOP, int(level.step_T[half])
        return (Learning.FLAT, int(level.step_T[half])) if n - half >= ENOUGH else (Learning.LEARNING, None)
    if arrived or near_top(level):
        return Learning.AT_TOP, None
    shown = n >= _FEW and level.bounds is not None and gain.high < _NOTHING * (level.bounds[1] - level.bounds[0])
    return (Learning.FLAT if n >= ENOUGH or shown else Learning.UNKNOWN), None


def near_top(signal: Signal) -> bool | None:
    """Return whether the last quarter stands near the top of the range; None where the top is not known."""
    if signal.bounds is None:
        return None
    low, high = signal.bounds
    return bool(float(signal.value_T[-max(len(signal) // 4, 1) :].mean()) >= high - NEAR * (high - low))


def _held_out_arrived(evidence: Evidence) -> bool:
    """Whether a held-out share stands near its top."""
    held = evidence.held_out
    if held is None or float(held.value_T.min()) < 0 or float(held.value_T.max()) > 1:
        return False
    return bool(float(held.value_T[-max(len(held) // 4, 1) :].mean()) >= 1 - NEAR)
