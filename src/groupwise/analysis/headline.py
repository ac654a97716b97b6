"""A fit and its forecast in plain sentences: where a metric stands, where it goes, what more steps gain.

It puts results into words, computes nothing, and judges no run.
"""

from __future__ import annotations

import math

from groupwise.analysis.fitted import Fitted, Outlook
from groupwise.curves.results import FitResult
from groupwise.intervals import Interval, percent
from groupwise.wording import alike, capital, clean, duration, readable, tokens

THIS_LAW = "this law alone"


def subject(metric: str, quantity: str) -> str:
    """Return what a metric is called in a sentence: "the reward", 'the reward "format"', '"val/score"'."""
    if quantity == "reward":
        return "the reward"
    return f'the reward "{clean(quantity.removeprefix("reward/"))}"' if quantity.startswith("reward/") else f'"{clean(metric)}"'


def ahead(fitted: Fitted) -> str:
    """Say in a sentence where a metric stands and where it is forecast to be."""
    outlook = fitted.outlook
    if outlook is None:
        return ""
    who, here, far = subject(fitted.metric, fitted.quantity), outlook.grid[0], outlook.rows[-1]
    # What the forecast starts from: a law may not hold, and one row is noise.
    level = alike(here.mean_low, here.mean, here.mean_high)[1]
    now = capital(f"{who} is {level} at step {fitted.clock.step_T[-1]:,.0f}")
    if outlook.result.status == "still":
        return f"{now}; {readable(outlook.result.message)}."
    low, mean, high = alike(far.mean_low, far.mean, far.mean_high)
    to_come = far.step > fitted.clock.step_T[-1]
    where = f"is forecast at {mean} ({low} to {high}) by" if to_come else f"is put at {mean} ({low} to {high}) for"
    return f"{now}, and its mean {where} step {far.step:,.0f}."


def gained(fitted: Fitted) -> str:
    """Say what the steps ahead are expected to gain, and at what cost."""
    outlook = fitted.outlook
    if outlook is None or not fitted.rewarding or outlook.gain_to <= outlook.gain_from:
        return ""
    gain, clock = outlook.result.expected_gain, fitted.clock
    low, value, high = alike(gain.low, gain.value, gain.high)
    hours = clock.hours(clock.time(outlook.gain_to)) - clock.hours(clock.time(outlook.gain_from))
    cost = f" for {duration(hours, digits=2)}" if math.isfinite(hours) and hours > 0 else ""
    doubt = " A gain is not certain." if gain.low <= 0 else ""
    sign = "" if value.startswith("−") else "+"
    return f"{outlook.gain_to - outlook.gain_from:,.0f} more steps{cost}: {sign}{value} ({low} to {high}).{doubt}"


def aimed(outlook: Outlook) -> str:
    """Say how likely a target is reached, and by which step."""
    found = outlook.target
    if found is None:
        return ""
    if math.isnan(found.chance):
        return str(found)
    said = f"The mean ends above {found.target:g} at step {outlook.gain_to:,.0f} with a chance of {percent(found.chance)}"
    if not math.isfinite(found.reached.low):
        return f"{said}."
    return f"{said}; {_when(found.reached, outlook.gain_from)}."


def _when(reached: Interval, now: float) -> str:
    """Say by which step a target is reached, where it may be; the step now stands for all before it."""
    earliest, likely, latest = (f"step {end:,.0f}" for end in (reached.low, reached.value, reached.high))
    if reached.high <= now:
        return "it stands above that already"
    if math.isfinite(reached.high):
        return f"it is probably reached {_by(likely, reached.value, now)} ({percent(reached.level)}: {earliest} to {latest})"
    probably = f"probably reached {_by(likely, reached.value, now)}" if math.isfinite(reached.value) else "probably not reached by then"
    return f"it is {probably}, and hardly before {earliest}" if reached.low > now else f"it is {probably}"


def _by(step: str, reached: float, now: float) -> str:
    """Say by which step, or that it is so now."""
    return f"by {step}" if reached > now else "already"


def said_of(fit: FitResult) -> str:
    """Return the message of a fit with the laws called as a person calls them."""
    return readable(fit.message)


def spent_by_then(outlook: Outlook) -> list[str]:
    """Return the tokens and the hours that the way to 95 % costs, as far as they are known."""
    found = [tokens(outlook.done_tokens)] if math.isfinite(outlook.done_tokens) else []
    return found + ([duration(outlook.done_hours, digits=2)] if math.isfinite(outlook.done_hours) else [])
