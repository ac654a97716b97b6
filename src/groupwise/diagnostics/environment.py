"""Environments, tools and infrastructure: whose failures are graded as answers, and which
environment loses while the mean rises.

What the policy did of itself is not judged here.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from groupwise.arrays import median, moving_mean, row_after
from groupwise.diagnostics.beyond import since_the_first
from groupwise.diagnostics.facts import Fact
from groupwise.diagnostics.falls import end_levels
from groupwise.diagnostics.judgement import (
    Course,
    Environment,
    Environments,
    Finding,
    Sign,
    Status,
    by_sign,
    no_sign,
    not_logged,
)
from groupwise.diagnostics.signals import (
    FEWEST_ROWS,
    Evidence,
    Signal,
    counted,
    ends_of,
    floor_of,
    once,
)
from groupwise.diagnostics.signs import arrow
from groupwise.intervals import percent
from groupwise.wording import clean, short

ENVIRONMENTS, INFRASTRUCTURE = "environments", "infrastructure"
TOOLS, TOOL_USE, TIME_LIMIT = "tool_failures", "tool_use", "time_limit"
# A share of failed episodes is a tenth above its first rows; an environment has lost a third of its
# best, beyond so many standard errors; calls are a fifth of what they were.
MORE_FAILED, LOST, SURELY, FEWER = 0.1, 1 / 3, 5.0, 0.2
# Standard errors by which an environment has risen; seats whose gains and losses cancel to a tenth.
CLEARLY, MIRRORED = 3.0, 0.1
# A time stands within a hundredth of its level; before that it was a twentieth below.
PINNED, BELOW = 0.01, 0.05
_TIMES = (
    r"(.*[/_])?(time|timings?|duration|latency|seconds)(_s)?[/_](?!stamp).*"
    r"|.*[/_](time|duration|latency|s|secs?|seconds)(/(mean|max))?"
)
# Environments that are told of one by one.
MOST_SHOWN = 20
# Half of the calls fail, and three in ten more than at first.
HALF, MORE_CALLS = 0.5, 0.3
_TOOLS = r".*((tool|action).*(fail|error|invalid)|(fail|error|invalid).*(tool|action)).*"
_FIRST, _SMOOTH = 10, 5
_ALL = ("agg", "all", "total", "verifiable")  # of environments together
_KINDS = {"environment_reward/": "environment", "seat_reward/": "seat"}
_HELD_OUT = "held-out set"
_FAILURES = (
    r".*(infra[\w/]*fail|sandbox[\w/]*(fail|error)|timed?_?out|has_error|exception_rate"
    r"|env\w*(fail|error)).*"
)


def environments(evidence: Evidence) -> Finding:
    """Look for an environment that loses what it had while the others hide it."""
    each = environments_of(evidence)
    if each is None:
        return not_logged(ENVIRONMENTS, "Rewards by environment or task are not in the log.")
    worst = each.worst[0]
    if worst.step is None:
        return no_sign(ENVIRONMENTS, f"None of {each.count} loses what it had, {each.rose} rise.")
    words = f"{worst.kind} {clean(worst.name, longest=40)} {arrow(worst.before, worst.after)}"
    more = "" if each.fell == 1 else f", {counted(each.fell - 1, 'more')} fell"
    rose = f"{each.rose:,} of {each.count - 1:,} others rise"
    message = f"{words} since step {worst.step:,}{more}; {rose}."
    rises = worst.kind == _HELD_OUT and evidence.gain_score > CLEARLY
    if (2 * each.fell > each.count and not rises) or _mirrored(each):
        return Finding(ENVIRONMENTS, Status.INFO, message, worst.step)
    sign = Sign("environment_reward", worst.step, worst.before, worst.after, words)
    return by_sign(ENVIRONMENTS, Status.WARNING, message, sign, LOST, Fact.ENVIRONMENT_FELL)


@once
def environments_of(evidence: Evidence) -> Environments | None:
    """Return what the reward of each environment, task or seat does, the worst first; None where
    the log has fewer than two.
    """
    columns = [
        (kind, name, signal)
        for prefix, kind in _KINDS.items()
        for name, signal in evidence.named(prefix)
        if name not in _ALL
    ]
    best = {f"{name} (best)": signal for name, signal in evidence.best_of_sets.items()}
    sets = {**evidence.held_out_sets, **best}
    columns += [(_HELD_OUT, name or signal.column, signal) for name, signal in sets.items()]
    # The only agent of an environment is logged under both.
    own = {signal.value_T.tobytes() for kind, _, signal in columns if kind == "environment"}
    columns = [
        column
        for column in columns
        if column[0] != "seat" or column[2].value_T.tobytes() not in own
    ]
    twice = Counter(name for _, name, _ in columns)
    each = [
        _course(kind, name if twice[name] == 1 else f"{name} ({signal.column})", signal)
        for kind, name, signal in columns
    ]
    courses, order = Counter(environment.course for environment in each), list(Course)
    each.sort(key=lambda environment: (order.index(environment.course), -environment.lost))
    fell, rose = courses[Course.FELL], courses[Course.ROSE]
    return Environments(len(each), fell, rose, tuple(each[:MOST_SHOWN])) if each[1:] else None


def _course(kind: str, name: str, signal: Signal) -> Environment:
    """What the reward of one environment does."""
    first, last = ends_of(signal)
    before, after = signal.level(first), signal.level(last)
    if len(signal) < (1 if kind == _HELD_OUT else 2) * FEWEST_ROWS:
        return Environment(kind, name, Course.FEW_ROWS, before, after)
    few = signal.tenth
    smooth = moving_mean(signal.value_T, _SMOOTH)
    best, now = float(smooth[: len(smooth) - few].max()), signal.level_from(-few)
    if best - now > LOST * (best - floor_of(signal)):
        row = min(row_after(smooth >= (best + now) / 2) + _SMOOTH // 2, len(signal) - few)
        near = slice(max(0, row - max(len(signal) - row, _FIRST)), row)
        scores = _score(signal, near, slice(row, None)), signal.score(first, last)
        if row and min(scores) < -SURELY:
            return Environment(kind, name, Course.FELL, best, now, signal.step_at(row))
    moved = signal.score(first, last)
    course = Course.ROSE if moved > CLEARLY else Course.STANDS
    return Environment(kind, name, course if signal.high > 0 else Course.NOTHING, before, after)


def _score(signal: Signal, early: slice, late: slice) -> float:
    """The change over its standard error, which is that of either stretch too where the log is
    mostly one number.
    """
    noise = max(signal.deviation, *(float(signal.value_T[rows].std()) for rows in (early, late)))
    return replace(signal, deviation=noise).score(early, late)


def _mirrored(each: Environments) -> bool:
    """Whether what one seat lost others won, as in a game of one against the other."""
    lost = [environment.lost for environment in each.worst if environment.kind == "seat"]
    return len(lost) == each.count and abs(sum(lost)) < MIRRORED * max(lost)


def infrastructure(evidence: Evidence) -> Finding:
    """Look for episodes that fail by their environment, and are graded as answers."""
    shares = shares_of(evidence, "failure_share", _FAILURES)
    if not shares:
        return not_logged(INFRASTRUCTURE, "No share of failed episodes is in the log.")
    about = "Episodes fail by their environment"
    fact, more = Fact.INFRASTRUCTURE_FAILS, (0.0, MORE_FAILED)
    findings = [failing(INFRASTRUCTURE, signal, about, more, fact) for signal in shares]
    return next((answer for answer in findings if answer.facts), findings[0])


def time_limit(evidence: Evidence) -> Finding:
    """Look for times that have come to stand at their ceiling, as where rollouts or rewards run
    into a time limit; answers that all run to their token limit take one time as well.
    """
    length, cut = map(evidence.quantity, ("completion_length", "truncated_share"))
    at_limit = cut is not None and cut.level_from(-cut.tenth) > HALF
    pinned = [(row, signal) for signal in evidence.matching(_TIMES) if (row := _pinned(signal))]
    reward = evidence.reward
    rises = reward is not None and reward.score(*ends_of(reward)) > CLEARLY
    if not pinned or rises or at_limit or (length is not None and _pinned(length)):
        return no_sign(TIME_LIMIT, "No sign of it: no time stands at a ceiling of its own.")
    row, signal = pinned[0]
    early, late, step = (
        median(signal.value_T[:row]),
        median(signal.value_T[row:]),
        signal.step_at(row),
    )
    words = f"{clean(signal.column, longest=40)} {arrow(early, late)}"
    message = f"{words} since step {step:,}, and none above: a time limit."
    sign = Sign("time", step, early, late, words)
    return by_sign(TIME_LIMIT, Status.WARNING, message, sign, late, Fact.TIMED_OUT)


def _pinned(signal: Signal) -> int | None:
    """The row since which a column stands at a ceiling that it had been far below."""
    value = signal.value_T
    level = median(value[-len(value) // 4 :])
    near = abs(value - level) <= PINNED * level
    row = since_the_first(signal, near)
    if row is None or signal.resolution > PINNED * level:
        return None
    usual = median(value[:row])
    varied = median(abs(value[:row] - usual)) > PINNED * level
    above = float((value > (1 + PINNED) * level).mean())
    return row if varied and above <= PINNED and usual < (1 - BELOW) * level else None


def tools(evidence: Evidence) -> Finding:
    """Look for tool calls or actions that have come to fail."""
    shares = shares_of(evidence, "tool_failure_share", _TOOLS)
    if not shares:
        return not_logged(TOOLS, "No share of failing tool calls is in the log.")
    return failing(TOOLS, shares[0], "Tool calls fail", (HALF, MORE_CALLS), Fact.TOOLS_FAIL)


def shares_of(evidence: Evidence, quantity: str, pattern: str) -> list[Signal]:
    """The shares of one kind of failure, by its quantity or by their names."""
    share = evidence.quantity(quantity)
    functions = {signal.column for _, signal in evidence.named("reward/")}
    named = (signal for signal in evidence.matching(pattern) if signal.column not in functions)
    signals = [share] if share is not None else named
    return [
        signal
        for signal in signals
        if len(signal) >= FEWEST_ROWS and signal.low >= 0 and signal.high <= 1
    ]


def failing(
    check: str, signal: Signal, about: str, least: tuple[float, float], fact: Fact
) -> Finding:
    """Say since when a share of failures is above its first rows and above what is usual."""
    early, name = signal.level_until(_FIRST), clean(signal.column, longest=40)
    limit = max(least[0], early + least[1])
    row = since_the_first(signal, signal.value_T > limit)
    if row is None:
        whole = median(signal.value_T)
        words = f"{name} {percent(whole)}"
        if fact is Fact.INFRASTRUCTURE_FAILS and min(whole, early) > MORE_FAILED:
            sign = Sign("failure_share", signal.step_at(0), None, whole, words)
            message = f"{about} from the first row on: {words}."
            return by_sign(check, Status.WARNING, message, sign, MORE_FAILED, fact)
        status = Status.INFO if whole > HALF else Status.NONE
        return Finding(check, status, f"{words} in the median row, {percent(early)} at first.")
    step, late = signal.step_at(row), signal.level_from(row)
    words = f"{name} {percent(early)} → {percent(late)}"
    quantity = "tool_failure_share" if fact is Fact.TOOLS_FAIL else "failure_share"
    sign = Sign(quantity, step, early, late, words)
    return by_sign(
        check, Status.WARNING, f"{about} since step {step:,}: {words}.", sign, limit, fact
    )


def tool_use(evidence: Evidence) -> Finding:
    """Look for a policy that has stopped to call its tools."""
    calls, total = evidence.quantity("tool_calls"), evidence.quantity("turns_total")
    turns = evidence.quantity("turns") or total
    each = "step" if calls is None and turns is total else "rollout"
    # A rollout of the fewest turns, half of those at first, calls none.
    if calls is None and turns is not None and turns.low <= HALF * turns.level_until(_FIRST):
        calls = replace(turns, value_T=turns.value_T - turns.low)
    if calls is None or len(calls) < FEWEST_ROWS:
        return not_logged(TOOL_USE, "How often tools are called is not in the log.")
    early = calls.level_until(_FIRST)
    row = since_the_first(calls, calls.value_T < FEWER * early) if early > 0 else None
    if row is None:
        late = end_levels(calls)[1]
        return no_sign(TOOL_USE, f"No sign of it: {short(late)} tool calls a {each}.")
    # It was on its way from where it passed the middle of both levels.
    late = calls.level_from(row)
    step = calls.step_at(row_after(calls.value_T[:row] >= (early + late) / 2))
    words = f"tool calls {arrow(early, late)} a {each}"
    message = f"The policy stops calling tools since step {step:,}: {words}."
    reward = evidence.reward
    if reward is not None and reward.score(*ends_of(reward)) > CLEARLY:
        return Finding(TOOL_USE, Status.INFO, message, step)  # it needs them no more
    sign = Sign("tool_calls", step, early, late, words)
    return by_sign(TOOL_USE, Status.WARNING, message, sign, FEWER * early, Fact.TOOLS_STOPPED)
