"""No learning: a learning rate of nothing, or a reward and a policy that stand still although there is a signal.

That the reward does not rise significantly is no finding: it must be shown not to rise, by an upper limit. Why it stands still is told
by the other checks.
"""

from __future__ import annotations

import numpy as np

from groupwise.diagnostics.data_order import level_of
from groupwise.diagnostics.findings import Finding, Healthy, Outcome, Severity, Unavailable
from groupwise.diagnostics.signals import LOG_RELATIVE, LOG_REWARD, Evidence, Signal, counted
from groupwise.intervals import Interval

NAME = "no_learning"
_FEWEST = 20
# A run that cannot have gained a tenth of what was left to gain has not learnt.
NOTHING = 0.1
# With less than a quarter of the range left a reward that stands still is worth knowing, and no warning.
NEAR = 0.25


def check(evidence: Evidence) -> Outcome:
    """Look for a learning rate of 0 and for a policy that does not move.

    Args:
        evidence: of the run.

    Returns:
        Critical where the learning rate is 0 throughout, a warning where reward and policy are shown to stand still.
    """
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
    gain = gain_of(reward)
    room = _room(reward)
    trend = "up" if gain.low > 0 else "down" if gain.high < 0 else "flat"
    open_ = gain.high > NOTHING * room or gain.low < -NOTHING * room or float(np.ptp(_thirds(reward))) > NOTHING * room
    # Where the top is not known there is no share of the way to it: what rises beyond its noise has learnt.
    rises = reward.bounds is None and trend == "up"
    if room <= 0 or rises or (open_ and (trend != "flat" or gain.low > -NOTHING * room or _moved(evidence) or not _watches(evidence))):
        return Healthy(NAME, f"The reward moved by {gain.value:.2g} over the run ({gain.low:.2g} to {gain.high:.2g}).", {"trend": trend})
    if open_:
        message = f"Nothing in the log moves beyond its noise, which may hide a gain of {gain.high:.2g}, {_against(reward, room)}."
        advice = "Check that the learning rate is what you meant and that the optimiser steps; more prompts a step would show a small gain."
        return Finding(
            NAME, "info", None, Interval(gain.value, gain.low, gain.high), NOTHING * room, message, advice, {"trend": "flat"}, what="gain"
        )
    return _still(evidence, reward, gain, room)


def _still(evidence: Evidence, reward: Signal, gain: Interval, room: float) -> Finding:
    """Report a reward that is shown not to rise."""
    moved, stated = _moved(evidence), evidence.setting("learning_rate")
    # Movement is no learning: it says where to look. Near its top a reward may stand.
    near = reward.bounds is not None and room < NEAR * (reward.bounds[1] - reward.bounds[0])
    told = f"the policy moves ({', '.join(moved)})" if moved else "entropy and KL do not move either"
    if not moved and not _watches(evidence):
        told = "neither entropy nor KL is logged to see whether the policy moves"
    message = f"The reward gained at most {gain.high:.2g} in all, {_against(reward, room)}; {told}."
    advice = (
        f"Raise the learning rate{_stated(stated)} (three times, until the KL shows it), check that the optimiser steps at all, "
        "and that the reward differs within groups."
    )
    if moved:
        advice = "The policy moves and does not get better: grade completions by hand, and look at what the advantages reward."
    share = Interval(gain.value / room, gain.low / room, gain.high / room)
    severity: Severity = "info" if near else "warning"
    what = "gain over what it is held against"
    return Finding(NAME, severity, None, share, NOTHING, message, advice, {"trend": "flat"}, what=what)


def gain_of(reward: Signal) -> Interval:
    """Return the mean of the last quarter minus that of the first, with its interval.

    Args:
        reward: of every step.

    Returns:
        The gain.
    """
    few = len(reward) // 4
    return reward.change(slice(0, few), slice(len(reward) - few, None))


def _thirds(reward: Signal) -> list[float]:
    """Means of three thirds: what rose and fell again did move."""
    return [float(part.mean()) for part in np.array_split(reward.value_T, 3)]


def _room(reward: Signal) -> float:
    """What was left to gain at the start; the scatter of single rows where the top is unknown."""
    first = float(reward.value_T[: max(len(reward) // 4, 1)].mean())
    if reward.bounds is not None:
        room = reward.bounds[1] - first
        return room if room > NOTHING * (reward.bounds[1] - reward.bounds[0]) else 0.0
    return max(3 * reward.deviation, 0.1 * abs(first))


def _against(reward: Signal, room: float) -> str:
    """What a gain is held against, in words."""
    if reward.bounds is not None:
        return f"of {room:.2g} that were left"
    return f"against {room:.2g}, three times the scatter of a row or a tenth of the reward (its top is not known)"


def _moved(evidence: Evidence) -> list[str]:
    """Names of the quantities that moved beyond their noise."""
    moved = []
    for name in ("entropy", "kl", "completion_length"):
        signal = evidence.quantity(name)
        if signal is None or len(signal) < _FEWEST:
            continue
        few = len(signal) // 4
        if abs(signal.score(slice(0, few), slice(len(signal) - few, None))) > 3.0:
            moved.append(name.replace("_", " "))
    return moved


def _watches(evidence: Evidence) -> bool:
    """Whether the log has what would show that the policy moves."""
    return any(evidence.quantity(name) is not None for name in ("entropy", "kl"))


def _no_rate(rate: Signal | None, rows: int) -> Finding:
    """Report a learning rate of 0."""
    zero = Interval(0.0, 0.0, 0.0)
    where = f"in all {rows} rows" if rate is not None else "in the settings"
    message = f"The learning rate is 0 {where}: nothing can be learnt."
    advice = "Set a learning rate above 0 and check the schedule: a warm-up over more steps than the run has keeps it at 0."
    return Finding(
        NAME,
        "critical",
        None if rate is None else int(rate.step_T[0]),
        zero,
        0.0,
        message,
        advice,
        {"trend": "flat", "rate": "zero"},
        what="learning rate",
    )


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
    return Finding(
        NAME, "critical", step, Interval(0.0, 0.0, 0.0), 0.0, message, advice, {"trend": "flat", "rate": "zero"}, what="learning rate"
    )


def _stated(rate: object) -> str:
    """Name the learning rate where it is known."""
    return f" of {float(rate):.2g}" if isinstance(rate, int | float) else ""
