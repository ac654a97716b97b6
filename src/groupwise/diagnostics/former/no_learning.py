"""No learning: a learning rate of nothing, or a reward and a policy that stand still although there is a signal.

That the reward does not rise significantly is no finding: it must be shown not to rise, by an upper limit. Why it stands still is told
by the other checks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from groupwise.diagnostics.former.findings import Finding, Healthy, Outcome, Severity, Unavailable
from groupwise.diagnostics.signals import LOG_RELATIVE, LOG_REWARD, Evidence, Signal, counted, ranged
from groupwise.diagnostics.swings import level_of
from groupwise.intervals import Interval
from groupwise.series.metric import metric_series

NAME = "no_learning"
_FEWEST = 20
# A run that cannot have gained a tenth of what was left to gain has not learnt.
NOTHING = 0.1
# With less than a quarter of the range left a reward that stands still is worth knowing, and no warning.
NEAR = 0.25
# Without a top and a spread: what in a long log is no more than the scatter of a row is no gain; a short one cannot say.
_ROWS, _LONG, _SHORT_ROWS = 10, 100, 3
_TIE = 1e-6
_ZERO, _NO_RATE = Interval(0.0, 0.0, 0.0), {"trend": "flat", "rate": "zero"}


@dataclass(frozen=True, slots=True)
class Room:
    """What a gain is held against."""

    size: float  # in units of the reward; 0 where a gain cannot be asked for
    said: str  # the same in words
    known: bool  # whether it is what was left to a known top


def check(evidence: Evidence) -> Outcome:
    """Look for a learning rate of 0 and for a policy that does not move."""
    rate = evidence.quantity("learning_rate")
    if rate is not None and len(rate) >= 3 and float(np.abs(rate.value_T).max()) == 0.0:
        return _no_rate(rate, len(rate))
    stopped = None if rate is None else _stopped(rate)
    if stopped is not None:
        return stopped
    if rate is None and evidence.setting("learning_rate") == 0:
        return _no_rate(None, 0)
    reward = evidence.reward
    if reward is None:
        return Unavailable(NAME, evidence.no_reward, LOG_REWARD)
    if len(reward) < _FEWEST:
        return Unavailable(NAME, f"{counted(len(reward), 'row')} cannot show that nothing moves", f"{_FEWEST} rows or more")
    if evidence.relative:
        return Unavailable(NAME, evidence.relative, LOG_RELATIVE)
    if float(np.ptp(reward.value_T)) > 0:
        reward = level_of(reward)[0]
    return _judged(evidence, reward, gain_of(reward), _room(evidence, reward))


def _judged(evidence: Evidence, reward: Signal, gain: Interval, room: Room) -> Outcome:
    """Healthy where the reward gained beyond its noise, or where noise hides what it gained; else what stands still."""
    trend = "up" if gain.low > 0 else "down" if gain.high < 0 else "flat"
    least = NOTHING * room.size
    small = gain.high <= least and gain.low >= -least and _range_of_thirds(reward) <= least
    moved = _moved(evidence)
    still = not moved and _watches(evidence)
    healthy = Healthy(NAME, f"The reward moved by {gain.value:.2g} over the run ({gain.low:.2g} to {gain.high:.2g}).", {"trend": trend})
    # Of a known top a share may be shown to be small; beyond that a gain that noise does not explain is learning.
    if room.size <= 0 or (trend == "up" and not (small and room.known and still)):
        return healthy
    if small:
        return _still(evidence, reward, gain, room, moved)
    if trend != "flat" or gain.low > -least or not still:
        return healthy
    message = f"Nothing in the log moves beyond its noise, which may hide a gain of {gain.high:.2g}, {room.said}."
    advice = "Check that the learning rate is what you meant and that the optimiser steps; more prompts a step would show a small gain."
    return Finding(NAME, "info", None, gain, least, message, advice, {"trend": "flat"}, what="gain")


def _still(evidence: Evidence, reward: Signal, gain: Interval, room: Room, moved: Sequence[str]) -> Finding:
    """Report a reward that is shown not to rise, or hardly."""
    # Movement is no learning: it says where to look.
    if moved:
        told = f"the policy moves ({', '.join(moved)})"
    elif _watches(evidence):
        told = "entropy and KL do not move either"
    else:
        told = "neither entropy nor KL is logged to see whether the policy moves"
    gained = f"The reward gained at most {gain.high:.2g} in all"
    if gain.low > 0 or gain.high < 0:
        gained = f"The reward {'gained' if gain.low > 0 else 'changed by'} {ranged(gain, 2)} in all"
    # Near its top a reward may stand, and most groups have zero variance there.
    near = _mostly_zero_variance(evidence) and not room.known
    advice = "Its top is not known: see whether most completions are right already. " if near else ""
    if reward.bounds is not None:
        low, high = reward.bounds
        near = near or high - _first(reward) < NEAR * (high - low)
    if moved:
        worse = "gets worse" if gain.high < 0 else "does not get better"
        advice += f"The policy moves and {worse}: grade completions by hand, and look at what the advantages reward."
    else:
        advice += (
            f"Raise the learning rate{_stated(evidence.setting('learning_rate'))} (three times, until the KL shows it), check that the "
            "optimiser steps at all, and that the reward differs within groups."
        )
    share = Interval(gain.value / room.size, gain.low / room.size, gain.high / room.size)
    severity: Severity = "info" if near or gain.low > 0 else "warning"
    what = "gain over what it is held against"
    return Finding(NAME, severity, None, share, NOTHING, f"{gained}, {room.said}; {told}.", advice, {"trend": "flat"}, what=what)


def gain_of(reward: Signal) -> Interval:
    """Return the mean of the last quarter minus that of the first, with its interval."""
    few = len(reward) // 4
    return reward.change(slice(0, few), slice(len(reward) - few, None))


def _range_of_thirds(reward: Signal) -> float:
    """How far the means of three thirds are apart: what rose and fell again did move."""
    return float(np.ptp([part.mean() for part in np.array_split(reward.value_T, 3)]))


def _first(reward: Signal) -> float:
    """Where the reward stood over the first quarter."""
    return float(reward.value_T[: max(len(reward) // 4, 1)].mean())


def _room(evidence: Evidence, reward: Signal) -> Room:
    """What was left to gain at the start where the top is known; else the spread of rewards, or the scatter of rows."""
    first = _first(reward)
    if reward.bounds is not None:
        low, high = reward.bounds
        # A reward that may have stood at its top cannot be blamed for it, whether or not that is its top.
        room = high - first if high - first > NOTHING * (high - low) else 0.0
        if room == 0.0 or right_or_wrong(evidence, reward):
            return Room(room, f"of {room:.2g} that were left", known=True)
    unknown = "(its top is not known)"
    spread = evidence.groups.spread
    spreads = [*([spread.value_T] if spread.known else []), *evidence.batch_spreads]
    usual = max((float(np.sqrt(np.mean(values[np.isfinite(values)] ** 2))) for values in spreads), default=0.0)
    times = _ROWS if len(reward) >= _LONG and usual <= _TIE else _SHORT_ROWS
    size = times * reward.deviation
    if usual > max(_TIE, size):
        return Room(usual, f"against {usual:.2g}, the usual spread of rewards {unknown}", known=False)
    if reward.bounds is not None and size >= reward.bounds[1] - first:
        return Room(reward.bounds[1] - first, f"of {reward.bounds[1] - first:.2g} that may have been left {unknown}", known=False)
    if size > 0:
        return Room(size, f"against {size:.2g}, {times} times the scatter of a row {unknown}", known=False)
    size = max(abs(first), _TIE)
    return Room(size, f"against {size:.2g}, where it stands {unknown}", known=False)


def right_or_wrong(evidence: Evidence, reward: Signal) -> bool:
    """Return whether the log shows that every reward is one of two, so that the greater is its top.

    By the rollouts, by means that are multiples of one over their number, by a spread over the batch that two grades explain, or by a
    largest reward of 1 and a smallest of 0 in most rows.
    """
    if reward.bounds != (0.0, 1.0) or evidence.grades is not None or metric_series(evidence.record, reward.column).bounds is not None:
        return reward.bounds is not None
    steps = evidence.record.steps
    ends = [re.sub(r"mean$", end, reward.column) for end in ("min", "max")]
    if reward.column in ends or not set(ends) <= set(steps.columns):
        return False
    smallest, largest = (value[np.isfinite(value)] for value in (steps[end].cast(pl.Float64).to_numpy() for end in ends))
    if not smallest.size or not largest.size:
        return False
    return bool(smallest.min() >= 0 and largest.max() <= 1 and np.median(smallest) == 0 and np.median(largest) == 1)


def _mostly_zero_variance(evidence: Evidence) -> bool:
    """Whether most groups earn one reward, as they do at its top."""
    alike = evidence.groups.zero_variance
    return alike.known and float(np.nanmedian(alike.value_T)) > 0.5


def _moved(evidence: Evidence) -> list[str]:
    """Names of the quantities that moved beyond their noise."""
    moved = []
    for name in ("entropy", "kl", "completion_length"):
        signal = evidence.quantity(name)
        few = 0 if signal is None else len(signal) // 4
        if signal is not None and len(signal) >= _FEWEST and abs(signal.score(slice(0, few), slice(len(signal) - few, None))) > 3.0:
            moved.append(name.replace("_", " "))
    return moved


def _watches(evidence: Evidence) -> bool:
    """Whether the log has what would show that the policy moves."""
    return any(evidence.quantity(name) is not None for name in ("entropy", "kl"))


def _no_rate(rate: Signal | None, rows: int) -> Finding:
    """Report a learning rate of 0."""
    where = f"in all {rows} rows" if rate is not None else "in the settings"
    message = f"The learning rate is 0 {where}: nothing can be learnt."
    advice = "Set a learning rate above 0 and check the schedule: a warm-up over more steps than the run has keeps it at 0."
    return Finding(NAME, "critical", None if rate is None else int(rate.step_T[0]), _ZERO, 0.0, message, advice, _NO_RATE, "learning rate")


def _stopped(rate: Signal) -> Finding | None:
    """Report a learning rate that is 0 from a row on although no schedule had brought it down there."""
    live = np.flatnonzero(rate.value_T > 0)
    if not live.size:
        return None
    row, n = int(live[-1]) + 1, len(rate)
    before = float(np.median(rate.value_T[max(0, row - 3) : row]))
    if n - row < max(5, n // 20) or before < NOTHING * float(rate.value_T.max()):
        return None
    step = int(rate.step_T[row])
    message = (
        f"Since step {step:,} the learning rate is 0, from {before:.2g} just before: nothing has been learnt in the {n - row} rows since."
    )
    advice = "Check the schedule and its number of steps, and what a resumed run makes of them."
    return Finding(NAME, "critical", step, _ZERO, 0.0, message, advice, _NO_RATE, "learning rate")


def _stated(rate: object) -> str:
    """Name the learning rate where it is known."""
    return f" of {float(rate):.2g}" if isinstance(rate, int | float) else ""
