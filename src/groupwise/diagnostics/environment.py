"""Environments, tools and infrastructure: whose failures are graded as answers, and which
environment loses while the mean rises.

What the policy did of itself is not judged here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from groupwise.arrays import moving_mean
from groupwise.diagnostics.beyond import since_the_first
from groupwise.diagnostics.facts import Fact
from groupwise.diagnostics.judgement import Finding, Sign, Status, by_sign, no_sign, not_logged
from groupwise.diagnostics.signals import FEWEST_ROWS, Evidence, Signal, counted
from groupwise.diagnostics.signs import arrow, short
from groupwise.intervals import percent
from groupwise.wording import clean

ENVIRONMENTS, INFRASTRUCTURE = "environments", "infrastructure"
TOOLS, TOOL_USE = "tool_failures", "tool_use"
# A share of failed episodes is a tenth above its first rows; an environment has lost half of its
# best, beyond so many standard errors; calls are a fifth of what they were.
MORE_FAILED, LOST, SURELY, FEWER = 0.1, 0.5, 5.0, 0.2
# Half of the calls fail, and three in ten more than at first.
HALF, MORE_CALLS = 0.5, 0.3
_TOOLS = r".*((tool|action).*(fail|error|invalid)|(fail|error|invalid).*(tool|action)).*"
_FIRST, _SMOOTH = 10, 5
_ALL = ("agg", "all", "total")  # of environments together
_FAILURES = (
    r".*(infra[\w/]*fail|sandbox[\w/]*(fail|error)|timed?_?out|has_error|exception_rate"
    r"|env\w*(fail|error)).*"
)


@dataclass(frozen=True, slots=True)
class _Loss:
    """One environment that lost most of what it had earned."""

    name: str
    signal: Signal
    row: int  # since which it is below the middle of both levels
    best: float
    now: float


def environments(evidence: Evidence) -> Finding:
    """Look for an environment that loses what it had while the others hide it."""
    prefix = "environment_reward/"
    signals = {
        meaning.quantity.removeprefix(prefix): evidence.quantity(meaning.quantity)
        for meaning in evidence.record.meanings
        if meaning.quantity.startswith(prefix) and not meaning.unavailable
        if meaning.quantity.removeprefix(prefix) not in _ALL
    }
    found = {
        name: signal
        for name, signal in signals.items()
        if signal is not None and len(signal) >= 2 * FEWEST_ROWS
    }
    if len(found) < 2:
        return not_logged(ENVIRONMENTS, "Rewards by environment or task are not in the log.")
    losses = [loss for name, signal in found.items() if (loss := _loss(name, signal)) is not None]
    if not losses:
        words = counted(len(found), "environment")
        return no_sign(ENVIRONMENTS, f"None of {words} loses what it had earned.")
    worst = min(losses, key=lambda loss: loss.now / loss.best)
    step, name = int(worst.signal.step_T[worst.row]), clean(worst.name, longest=40)
    words = f"reward of {name} {arrow(worst.best, worst.now)}"
    more = "" if len(losses) == 1 else f", and {counted(len(losses) - 1, 'more')}"
    message = f"{words} since step {step:,}, one of {len(found)} environments{more}."
    sign = Sign("environment_reward", step, worst.best, worst.now, words)
    return by_sign(ENVIRONMENTS, Status.WARNING, message, sign, LOST, Fact.ENVIRONMENT_FELL)


def _loss(name: str, signal: Signal) -> _Loss | None:
    """The loss of one environment, if there is one."""
    few = max(3, len(signal) // 10)
    smooth = moving_mean(signal.value_T, _SMOOTH)
    top = int(smooth[: len(smooth) - few].argmax())
    best, late = float(smooth[top]), slice(len(signal) - few, None)
    now = signal.level(late)
    peak = slice(top, top + _SMOOTH)
    if best <= 0 or now > (1 - LOST) * best or signal.score(peak, late) > -SURELY:
        return None
    below = smooth < (best + now) / 2
    row = len(below) - int(np.argmin(below[::-1])) if not below.all() else 0
    return _Loss(name, signal, min(row + _SMOOTH // 2, len(signal) - 1), best, now)


def infrastructure(evidence: Evidence) -> Finding:
    """Look for episodes that fail by their environment, and are graded as answers."""
    shares = _shares(evidence, "failure_share", _FAILURES)
    if not shares:
        return not_logged(INFRASTRUCTURE, "No share of failed episodes is in the log.")
    about = "Episodes fail by their environment"
    fact, more = Fact.INFRASTRUCTURE_FAILS, (0.0, MORE_FAILED)
    found = [_failing(INFRASTRUCTURE, signal, about, more, fact) for signal in shares]
    return next((answer for answer in found if answer.facts), found[0])


def tools(evidence: Evidence) -> Finding:
    """Look for tool calls or actions that have come to fail."""
    shares = _shares(evidence, "tool_failure_share", _TOOLS)
    if not shares:
        return not_logged(TOOLS, "No share of failing tool calls is in the log.")
    return _failing(TOOLS, shares[0], "Tool calls fail", (HALF, MORE_CALLS), Fact.TOOLS_FAIL)


def _shares(evidence: Evidence, quantity: str, pattern: str) -> list[Signal]:
    """The shares of one kind of failure, by its quantity or by their names."""
    share = evidence.quantity(quantity)
    named = (one for one in evidence.matching(pattern) if not one.column.startswith("reward"))
    signals = [share] if share is not None else named
    return [one for one in signals if len(one) >= FEWEST_ROWS and one.low >= 0 and one.high <= 1]


def _failing(
    check: str, signal: Signal, about: str, least: tuple[float, float], fact: Fact
) -> Finding:
    """Say since when a share of failures is above its first rows and above what is usual."""
    early, name = signal.level(slice(None, _FIRST)), clean(signal.column, longest=40)
    limit = max(least[0], early + least[1])
    row = since_the_first(signal, signal.value_T > limit)
    if row is None:
        late = signal.level(slice(-_FIRST, None))
        status = Status.INFO if late > HALF else Status.NONE
        return Finding(check, status, f"{name} is {percent(late)}, {percent(early)} at first.")
    step, late = int(signal.step_T[row]), signal.level(slice(row, None))
    words = f"{name} {percent(early)} → {percent(late)}"
    quantity = "tool_failure_share" if fact is Fact.TOOLS_FAIL else "failure_share"
    sign = Sign(quantity, step, early, late, words)
    return by_sign(
        check, Status.WARNING, f"{about} since step {step:,}: {words}.", sign, limit, fact
    )


def tool_use(evidence: Evidence) -> Finding:
    """Look for a policy that has stopped to call its tools."""
    calls = evidence.quantity("tool_calls")
    if calls is None or len(calls) < FEWEST_ROWS:
        return not_logged(TOOL_USE, "How often tools are called is not in the log.")
    early = calls.level(slice(None, _FIRST))
    row = since_the_first(calls, calls.value_T < FEWER * early) if early > 0 else None
    if row is None:
        late = calls.level(slice(-_FIRST, None))
        return no_sign(TOOL_USE, f"No sign of it: {short(late)} tool calls a rollout.")
    # It was on its way from where it passed the middle of both levels.
    late = calls.level(slice(row, None))
    step = int(calls.step_T[_passed(calls, row, (early + late) / 2)])
    words = f"tool calls {arrow(early, late)} a rollout"
    message = f"The policy stops calling tools since step {step:,}: {words}."
    sign = Sign("tool_calls", step, early, late, words)
    return by_sign(TOOL_USE, Status.WARNING, message, sign, FEWER * early, Fact.TOOLS_STOPPED)


def _passed(signal: Signal, row: int, level: float) -> int:
    """The row before which a signal was last above a level."""
    above = np.flatnonzero(signal.value_T[:row] > level)
    return int(above[-1]) + 1 if above.size else row
