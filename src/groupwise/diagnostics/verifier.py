"""What makes the reward: a verifier that fails, reward functions beside each other, environments
and tools whose failures are graded as answers.

Verifier failure is looked for first, because it looks like dynamics: the reward becomes a constant
at once, or part of it, while the answers go on as before. A constant at the top that a run grew
into is success and no failure; a fall spread over many rows, with answers that change, is a
collapse. It grades no answer itself.

Of reward functions those are told that format alone earns while what it is for earns nothing; what
a function grades is known by its name alone. Of environments it is told which one loses while the
mean rises. What the policy did of itself is not judged here.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import reduce
from itertools import chain

import numpy as np
import polars as pl

from groupwise.arrays import Ends, Float, mean_of, median, moving_mean, row_after, rows_before
from groupwise.diagnostics.falls import (
    DEGREE,
    TELLING_ROWS,
    Constant,
    at_once,
    behaviour_change,
    by_and_by,
    column_change,
    constant_tail,
    decline_of,
    end_levels,
    fall_of,
    held_out_at,
    level_changes,
    reward_level,
    sixths,
    slow_noise,
)
from groupwise.diagnostics.judgement import (
    Environment,
    Environments,
    Fact,
    Finding,
    Learning,
    RewardCourse,
    Sign,
    Status,
    by_sign,
    exactly,
    no_sign,
    not_logged,
    stated,
)
from groupwise.diagnostics.learning import progress_of
from groupwise.diagnostics.numerics import LEFT, NEAR, since_the_first
from groupwise.diagnostics.signals import (
    FEWEST_ROWS,
    FORM,
    LOG_RELATIVE,
    LOG_REWARD,
    MORE_ROWS,
    Evidence,
    NoisyMetric,
    arrow,
    at_steps,
    both_ends,
    ends_of,
    floor_of,
    led_to,
    moved,
    once,
    rank_correlations,
    reward_floor,
    signal_of,
)
from groupwise.files import table_rows
from groupwise.intervals import percent, wilson
from groupwise.wording import clean, count, short

# A share of failed episodes is a tenth above its first rows; an environment has lost a third of its
# best, beyond so many standard errors; calls are a fifth of what they were.
MORE_FAILED, LOST, SURELY, FEWER = 0.1, 1 / 3, 5.0, 0.2
# A share of failed episodes that costs, where the reward shows it.
COSTS = 0.05
# Standard errors by which an environment has risen; seats whose gains and losses cancel to a tenth.
CLEARLY, MIRRORED = 3.0, 0.1
# A time stands within a hundredth of its level; before that it was a twentieth below.
PINNED, BELOW = 0.01, 0.05
# One that stands there from the first row on does in nine rows of ten.
NEARLY_ALL = 0.9
_TIMES = (
    r"(?!.*[/_](n|num|number)_[^/]*$|.*(?<!per_)(length|len|token|count)s?(/(mean|max|min))?$)"
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
_BREAKDOWNS = (
    r".*(infra[\w/]*fail|sandbox[\w/]*(fail|error)|timed?_?out|has_error|exception_rate"
    r"|env\w*(fail|error)|aborted_(ratio|rate|share|frac)).*"
)


def environments(evidence: Evidence) -> Finding:
    """Look for an environment that loses what it had while the others hide it."""
    each = environments_of(evidence)
    if each is None:
        return not_logged("The log does not contain rewards of two environments, tasks or seats.")
    worst = each.worst[0]
    if each.few_rows == each.count:
        return not_logged(f"{count(each.count, worst.kind)}: {each.said}.")
    if worst.step is None:
        return no_sign(f"No sign of a loss of a third beyond noise: {each.said}.")
    words = f"{worst.kind} {clean(worst.name, longest=40)} {arrow(worst.before, worst.after)}"
    more = "" if each.fell == 1 else f", {count(each.fell - 1, 'more')} fell"
    rose = f"of {count(each.count - 1, 'other')}, {each.rose:,} rose"
    message = f"{words} from step {worst.step:,} on{more}; {rose}."
    rises = worst.kind == _HELD_OUT and abs(evidence.trend) > CLEARLY
    # What one seat lost others may have won, as in a game of one against the other.
    lost = [environment.lost for environment in each.worst if environment.kind == "seat"]
    mirrored = len(lost) == each.count and abs(sum(lost)) < MIRRORED * max(lost)
    if mirrored or (2 * each.fell > each.count and not rises):
        return Finding(Status.INFO, message, worst.step)
    sign = Sign("environment_reward", worst.step, worst.before, worst.after, words)
    return by_sign(message, sign, LOST, Fact.ENVIRONMENT_FELL)


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
    agents = Counter(name.rpartition("/")[0] for kind, name, _ in columns if kind == "seat")
    columns = [
        ("environment", place, signal)
        if kind == "seat" and (place := name.rpartition("/")[0]) and agents[place] == 1
        else (kind, name, signal)
        for kind, name, signal in columns
    ]
    twice = Counter(name for _, name, _ in columns)
    each = [
        _course(kind, name if twice[name] == 1 else f"{name} ({signal.column})", signal)
        for kind, name, signal in columns
    ]
    courses, order = Counter(environment.course for environment in each), list(RewardCourse)
    each.sort(key=lambda environment: (order.index(environment.course), -environment.lost))
    if len(each) < 2:
        return None
    fell, rose, few = RewardCourse.FELL, RewardCourse.ROSE, RewardCourse.FEW_ROWS
    shown = tuple(each[:MOST_SHOWN])
    return Environments(len(each), courses[fell], courses[rose], shown, courses[few])


def _course(kind: str, name: str, signal: NoisyMetric) -> Environment:
    """What the reward of one environment does."""
    first, last = ends_of(signal)
    before, after = signal.level(first), signal.level(last)
    if len(signal) < (1 if kind == _HELD_OUT else 2) * FEWEST_ROWS:
        return Environment(kind, name, RewardCourse.FEW_ROWS, before, after)
    few = signal.tenth
    smooth = moving_mean(signal.value_T, _SMOOTH)
    top = int(smooth[: len(smooth) - few].argmax())
    best, now = float(smooth[top]), signal.level_from(-few)
    if best - now > LOST * (best - floor_of(signal)):
        row = min(row_after(smooth >= (best + now) / 2) + _SMOOTH // 2, len(signal) - few)
        near = rows_before(row, max(len(signal) - row, _FIRST))
        scores = [_score(signal, near, slice(row, None)), signal.trend]
        if len(signal) >= TELLING_ROWS:  # a trend hides in the scatter of few prompts a row
            noise, _ = slow_noise(signal.value_T, np.sqrt(np.arange(len(signal))), DEGREE)
            scores.append(_score(replace(signal, deviation=noise), first, last))
        if row and min(scores) < -SURELY:
            row = top + int(np.argmax(np.cumsum(signal.value_T[top:] - (best + now) / 2))) + 1
            return Environment(kind, name, RewardCourse.FELL, best, now, signal.step_at(row))
    course = RewardCourse.ROSE if signal.trend > CLEARLY else RewardCourse.STANDS
    return Environment(
        kind, name, course if signal.high > 0 else RewardCourse.NOTHING, before, after
    )


def _score(signal: NoisyMetric, early: slice, late: slice) -> float:
    """The change over its standard error, which is that of either stretch too where the log is
    mostly one number.
    """
    noise = max(signal.deviation, *(signal.value_T[rows].std() for rows in (early, late)))
    return replace(signal, deviation=noise).score(early, late)


def infrastructure(evidence: Evidence) -> Finding:
    """Look for episodes that fail by their environment, and are graded as answers or masked."""
    shares, fact = shares_of(evidence, "failure_share", _BREAKDOWNS), Fact.INFRASTRUCTURE_FAILS
    kept = evidence.quantity("trained_samples") or evidence.quantity("admitted_share")
    about = "Episodes fail"
    if not shares and kept:  # what is masked may have failed
        about, fact = f"{kept.name} falls", Fact.FAILURES_MASKED
        shares = [replace(kept, column="left out", value_T=1 - kept.value_T / kept.high)]
    pairs = [(failing(share, about, (0.0, MORE_FAILED), fact), share) for share in shares]
    worst, share = next((pair for pair in pairs if pair[0].facts), (None, None))
    shown, words = (None, "") if share is None else _of_masked(evidence, share, kept)
    if not pairs or (fact is Fact.FAILURES_MASKED and shown is not Fact.MASKED_COUNTED):
        return not_logged("The log does not contain the share of failed episodes.")
    if worst and shown:
        said = f"{worst.message.rstrip('.')}; {words}"
        return replace(worst, message=said, facts=(*worst.facts, shown))
    return worst or next(filter(None, (_costs(evidence, share) for share in shares)), pairs[0][0])


def _of_masked(
    evidence: Evidence, share: NoisyMetric, kept: NoisyMetric | None
) -> tuple[Fact | None, str]:
    """What of masked episodes shows beside their share: a mean advantage that rose with it, or is
    there from the first row on, or that fewer are trained on.
    """
    mean = evidence.quantity("advantage")
    if mean and mean.late > NEAR:
        together = mean.trend > SURELY and rank_correlations(mean, share)[0] > HALF
        if together or min(mean.late, end_levels(mean)[0]) >= LEFT:
            return Fact.MASKED_COUNTED, f"the mean advantage is {short(mean.late)}"
    if kept is None or kept.trend > -SURELY or rank_correlations(kept, share)[0] > -HALF:
        return None, ""
    return Fact.FAILURES_MASKED, f"{kept.name} {arrow(*end_levels(kept))}: failed ones seem masked"


def _costs(evidence: Evidence, share: NoisyMetric) -> Finding | None:
    """Note a share of failed episodes that stands, and with which the reward goes down from row to
    row beyond doubt.
    """
    usual, reward = share.level_from(0), evidence.reward
    together, apart = (0.0, 0.0) if reward is None else rank_correlations(share, reward)
    if usual < COSTS or apart * np.sqrt(len(share)) > -CLEARLY:
        return None
    message = (
        f"{share.name} is {percent(usual)}, and the reward is lower in rows where it is higher "
        f"(rank correlation {together:.2g})"
    )
    facts = (Fact.INFRASTRUCTURE_COSTS,)
    return Finding(Status.INFO, message, None, exactly(usual), COSTS, facts=facts)


def time_limit(evidence: Evidence) -> Finding:
    """Look for times that have come to stand at their ceiling, as where rollouts or rewards run
    into a time limit; answers that all run to their token limit take one time as well.
    """
    length, cut = map(evidence.quantity, ("completion_length", "truncated_share"))
    at_limit = cut is not None and cut.late > HALF
    times = ((_pinned(signal), signal) for signal in evidence.matching(_TIMES))
    row, signal = next((time for time in times if time[0]), (None, None))
    rises, alike = evidence.trend > CLEARLY, at_limit or (length is not None and _pinned(length))
    flat, falls = progress_of(evidence).learning is Learning.FLAT, evidence.trend < -CLEARLY
    limits = (sign for sign in _near_limits(evidence) if (falls if sign.before else flat))
    if row is None and not alike and (near := next(limits, None)):
        words = f"{near.words}, and the longest time hardly varies, as with a time limit."
        return by_sign(words, near, PINNED, Fact.TIMES_NEAR_LIMIT)
    if row is None or signal is None or rises or alike:
        return no_sign(
            "No sign of a problem: no time is at a ceiling that length and reward leave open."
        )
    early, late = median(signal.value_T[:row]), median(signal.value_T[row:])
    step = signal.step_at(row)
    words = f"{signal.name} {arrow(early, late)}"
    message = f"{words} since step {step:,}, a ceiling that at most 1 % of the rows exceed."
    sign = Sign("time", step, early, late, words, column=signal.column)
    return by_sign(message, sign, late, Fact.TIMED_OUT)


def _near_limits(evidence: Evidence) -> Iterator[Sign]:
    """Yield mean times below a longest one that is one number in nearly all rows, with their first
    level where they rise towards it.
    """
    for most in evidence.matching(_TIMES):
        level, (path, is_most, rest) = median(most.value_T), most.column.rpartition("max")
        pinned = mean_of(abs(most.value_T - level) <= PINNED * level)
        for mean in evidence.matching(re.escape(f"{path}mean{rest}")) if is_most else ():
            early, late = end_levels(mean)
            if pinned >= NEARLY_ALL and HALF * level < late < (1 - BELOW) * level:
                rises = late > (1 + MORE_FAILED) * early and mean.trend > SURELY
                row = row_after(mean.value_T < (early + late) / 2) if rises else 0
                before, step = early if rises else None, mean.step_at(min(row, len(mean) - 1))
                words = f"{mean.name} {led_to(before, late)}, with a maximum of {short(level)}"
                yield Sign("time", step, before, late, words, column=mean.column)


def _pinned(signal: NoisyMetric) -> int | None:
    """The row since which a column stands at a ceiling that it had been far below."""
    value = signal.value_T
    level = median(value[-len(value) // 4 :])
    row = since_the_first(signal, abs(value - level) <= PINNED * level)
    if row is None or signal.resolution > PINNED * level:
        return None
    usual = median(value[:row])
    varied = median(abs(value[:row] - usual)) > PINNED * level
    above = mean_of(value > (1 + PINNED) * level)
    return row if varied and above <= PINNED and usual < (1 - BELOW) * level else None


def tools(evidence: Evidence) -> Finding:
    """Look for tool calls or actions that have come to fail."""
    shares = shares_of(evidence, "tool_failure_share", _TOOLS)
    if not shares:
        return not_logged("The log does not contain the share of failing tool calls.")
    return failing(shares[0], "Tool calls fail", (HALF, MORE_CALLS), Fact.TOOLS_FAIL)


def shares_of(evidence: Evidence, quantity: str, pattern: str) -> list[NoisyMetric]:
    """The shares of one kind of failure, by its quantity or by their names."""
    share = evidence.quantity(quantity)
    functions = {signal.column for _, signal in evidence.named("reward/")}
    named = (signal for signal in evidence.matching(pattern) if signal.column not in functions)
    return [
        signal
        for signal in ([share] if share else named)
        if len(signal) >= FEWEST_ROWS and signal.low >= 0 and signal.high <= 1
    ]


def failing(signal: NoisyMetric, about: str, least: Ends, fact: Fact) -> Finding:
    """Say since when a share of failures is above its first rows and above what is usual."""
    early, name = signal.level_until(_FIRST), signal.name
    limit = max(least[0], early + least[1])
    row = since_the_first(signal, signal.value_T > limit)
    if row is None:
        whole = median(signal.value_T)
        words = f"{name} {percent(whole)}"
        if fact is Fact.INFRASTRUCTURE_FAILS and min(whole, early) > MORE_FAILED:
            sign = Sign(
                "failure_share", signal.step_at(0), None, whole, words, column=signal.column
            )
            message = f"{about} from the first row on: {words}."
            return by_sign(message, sign, MORE_FAILED, fact)
        status = Status.INFO if whole > HALF else Status.NONE
        return Finding(status, f"{words} in the median row; it was {percent(early)} at first.")
    step, late = signal.step_at(row), signal.level_from(row)
    words = f"{name} {percent(early)} → {percent(late)}"
    quantity = "tool_failure_share" if fact is Fact.TOOLS_FAIL else "failure_share"
    sign = Sign(quantity, step, early, late, words, column=signal.column)
    return by_sign(f"{about} from step {step:,} on: {words}.", sign, limit, fact)


def tool_use(evidence: Evidence) -> Finding:
    """Look for a policy that has stopped to call its tools."""
    calls, total = evidence.quantity("tool_calls"), evidence.quantity("turns_total")
    turns = evidence.quantity("turns") or total
    each = "step" if calls is None and turns is total else "rollout"
    least, name = 0.0, "tool calls"
    if calls is None and turns and turns.low <= HALF * turns.level_until(_FIRST):
        calls, least = turns, turns.low
        name = f"{turns.name} ({short(least)} at the lowest)"
    if calls is None or len(calls) < FEWEST_ROWS:
        return not_logged("The log does not contain the number of tool calls.")
    early = calls.level_until(_FIRST)
    limit = least + FEWER * (early - least)
    row = since_the_first(calls, calls.value_T < limit) if early > least else None
    if row is None:
        late = end_levels(calls)[1]
        return no_sign(f"No sign of a problem: {name} end at {short(late)} per {each}.")
    late, step = calls.level_from(row), calls.step_at(row)
    # It was on its way from where it passed the middle of both levels.
    first = calls.step_at(row_after(calls.value_T[:row] >= (early + late) / 2))
    words = f"{name} {arrow(early, late)} per {each}"
    message = f"The policy has nearly stopped calling tools since step {step:,}: {words}."
    if evidence.trend > CLEARLY:
        return Finding(Status.INFO, message, step)  # it needs them no more
    sign = Sign("tool_calls", first, early, late, words, column=calls.column)
    return replace(by_sign(message, sign, limit, Fact.TOOLS_STOPPED), step=step)


LOG = "the mean of each reward function (TRL: rewards/NAME/mean)"
# Names of reward functions that say what is wanted; others (format, length, style) may stay at 0 in
# health. What the readers take for a score of the task is one as a function, too.
_SCORES = "|".join(
    row["pattern"] for row in table_rows("readers/patterns.tsv") if row["quantity"] == "task_score"
)
WANTED = re.compile(
    r"correct|accura|answer|solv|truth|success|exact|quality|outcome"
    r"|(^|_)(acc|f|f1|em|env|task|gold|win|(ndcg|mrr|recall|precision|pass)(_?at)?[_@]?\d*)($|_)"
    rf"|^({_SCORES})$",
    re.IGNORECASE,
)
# A weight below which a function is not paid.
UNPAID = 0.01
# Share of the rows of the total that must hold every function, for them to be looked at together.
_MOST_ROWS = 0.5
# What earns has nine tenths of the most that it ever earned, or of 1 where it stays within 0 and 1;
# nothing is a fiftieth of that, and what a model without a clue gets by luck is twice as much,
# where it does not grow.
EARNS, NOTHING, _LUCK = 0.9, 0.02, 0.05
# Form is learnt in tens of steps and what it is for comes later: only then is its absence told.
LONG, _FEW = 50, 10
# A task of which less than this share of the top is earned has not been learnt; above it may stand
# where the policy can.
_UNLEARNT = 0.25
# Standard errors of a change beyond doubt, and the least gain, of its top, that is one of a
# function.
_CLEAR, _GAIN = 5.0, 0.1


def reward_functions(evidence: Evidence) -> Finding:
    """Look for rewards that form alone earns."""
    functions = {name: signal for name, signal in evidence.functions.items() if len(signal) >= _FEW}
    if not evidence.functions:
        return not_logged("The log does not contain the individual reward functions.", LOG)
    if len(functions) < 2:
        return no_sign("Fewer than two reward functions have ten rows or more.")
    unpaid = [name for name, weight in weights_of(evidence).items() if abs(weight) < UNPAID]
    paid = {name: signal for name, signal in functions.items() if name not in unpaid}
    return _against_each_other(evidence, paid) or _earning(functions)


def _earning(functions: dict[str, NoisyMetric]) -> Finding:
    """Say which functions earn, and whether form alone does."""
    scale = max(abs(_late(signal)) for signal in functions.values())
    nothing = [name for name, signal in functions.items() if earns_nothing(signal, scale)]
    purpose = [name for name in functions if not FORM.search(name)]
    form = next(
        (
            name
            for name, signal in functions.items()
            if FORM.search(name) and _late(signal) >= EARNS * _top(signal) > 0
        ),
        None,
    )
    if form and purpose:
        gain = functions[form].change(*sixths(functions[form])).value
        idle = (name in nothing or gained_nothing(functions[name], gain) for name in purpose)
        if all(idle):
            best = max(purpose, key=lambda name: _late(functions[name]))
            return _form_alone(functions, form, best)
    if not nothing:
        said = ", ".join(
            f"{clean(name, longest=40)} {short(_late(signal))}"
            for name, signal in list(functions.items())[:4]
        )
        return no_sign(f"No sign of a problem: every reward function gives reward ({said}).")
    signal, name = functions[nothing[0]], clean(nothing[0], longest=40)
    earned, most = _late(signal), f" (maximum {short(signal.high)})" * bool(signal.high)
    message = (
        f"the reward function {name} gives {short(earned) if earned else 'nothing'} at the end of "
        f"{count(len(signal), 'row')}{most}; the log has "
        f"{count(len(functions) - 1, 'other reward function')}."
    )
    return Finding(Status.INFO, message)


def _against_each_other(evidence: Evidence, functions: dict[str, NoisyMetric]) -> Finding | None:
    """Report a total that stands while one function gains and another loses: no step of training
    is missing, the reward is.
    """
    reward = evidence.reward
    if reward is None or (few := len(reward) // 4) < _FEW:
        return None
    early, late = both_ends(reward, few)
    change = {
        name: signal.change(early, late)
        for name, signal in functions.items()
        if len(signal) == len(reward)
    }
    if not change:
        return None
    best = max(change, key=lambda name: change[name].value)
    worst = min(change, key=lambda name: change[name].value)
    gain, lost, stands = change[best].value, change[worst], reward.change(early, late)
    clear = min(functions[best].score(early, late), -functions[worst].score(early, late)) > _CLEAR
    if (
        not clear
        or gain < _GAIN * _top(functions[best])
        or -lost.value < gain / 2
        or stands.high > gain / 4
        or stands.low < -gain / 4
    ):
        return None
    rose, fell = (
        f"{clean(name, longest=40)} {arrow(*column_change(evidence, name, functions[name]).ends)}"
        for name in (best, worst)
    )
    message = f"{rose} while {fell}, and the reward stays at {short(progress_of(evidence).after)}"
    return Finding(Status.WARNING, message, None, stands, facts=(Fact.FUNCTIONS_OPPOSED,))


def _form_alone(functions: dict[str, NoisyMetric], form: str, purpose: str) -> Finding:
    """Report that form alone earns."""
    signal, other = functions[form], functions[purpose]
    early, late, name = signal.level_until(_FEW), _late(signal), clean(form, longest=40)
    reached = int((moving_mean(signal.value_T, 5) >= EARNS * _top(signal)).argmax())
    sign = Sign(
        f"reward/{form}", signal.step_at(reached), early, late, f"{name} {arrow(early, late)}"
    )
    rest = f"{clean(purpose, longest=40)} is {short(_late(other))}"
    verb, rows = "earns", len(other)
    if not earns_nothing(other):  # what has begun may come yet
        verb, rows = "gains", len(other) - reached
        rest += f", as at first ({short(other.level(sixths(other)[0]))}),"
    message = (
        f"Only the format {verb} reward: {sign.words}, while {rest} at the end of "
        f"{count(len(other), 'row')}."
    )
    if rows < LONG or _late(other) >= _UNLEARNT * _top(other):
        return Finding(Status.INFO, message, sign.step, exactly(late), EARNS)
    return by_sign(message, sign, EARNS, Fact.FORMAT_ALONE_EARNS)


def _late(signal: NoisyMetric) -> float:
    """What a function earns in the last fifth of its rows, ten rows at least."""
    return signal.level_from(-max(_FEW, len(signal) // 5))


def _top(signal: NoisyMetric) -> float:
    """The most that a function can have earned: 1 where it stays within 0 and 1."""
    return 1.0 if 0 <= signal.low <= signal.high <= 1 else signal.high


def earns_nothing(signal: NoisyMetric, scale: float | None = None) -> bool:
    """Return whether a function stays at 0, or at the lowest that it ever was, but for luck;
    without a scale by its own top.
    """
    floor, few = min(0.0, signal.low), max(_FEW // 2, len(signal) // 4)
    earned = max(_late(signal), signal.level_from(0)) - floor
    luck = floor == 0 and signal.score(*both_ends(signal, few)) <= 2
    return earned <= (_LUCK if luck else NOTHING) * max(
        _top(signal) if scale is None else scale, abs(floor)
    )


def gained_nothing(signal: NoisyMetric, gain: float) -> bool:
    """Return whether a function below its top has not gained: less than a tenth of what another
    one did, beyond doubt.
    """
    early, late = sixths(signal)
    change = signal.change(early, late)
    below = signal.level(late) < EARNS * _top(signal)
    return below and change.low <= 0 <= change.high < _GAIN * gain


def of_task(name: str) -> bool:
    """Return whether a function, by its name, says what is wanted and not what it looks like."""
    return bool(WANTED.search(name)) and not FORM.search(name)


@once
def together(evidence: Evidence) -> tuple[NoisyMetric | None, Mapping[str, NoisyMetric]]:
    """The total and its functions in the rows that hold all of them, where these are most: a
    cell that is missing leaves its row out.
    """
    reward, functions = evidence.reward, evidence.functions
    if reward is None or all(len(signal) == len(reward) for signal in functions.values()):
        return reward, functions
    common = reduce(np.intersect1d, (signal.step_T for signal in (reward, *functions.values())))
    if len(common) < _MOST_ROWS * len(reward):
        return reward, functions
    whole = {name: at_steps(signal, common) for name, signal in functions.items()}
    return at_steps(reward, common), whole


def weights_of(evidence: Evidence) -> Mapping[str, float]:
    """Return the weight of each reward function in the total, where the total is a weighted sum
    of them; else nothing.
    """
    reward, functions = together(evidence)
    if (
        reward is None
        or len(functions) < 2
        or any(len(f) != len(reward) for f in functions.values())
        or len(reward) < len(functions) + 2
    ):
        return {}
    design = np.column_stack([f.value_T for f in functions.values()])
    moving = np.ptp(design, axis=0) > 0
    weight = np.zeros(len(functions))
    weight[moving] = np.linalg.lstsq(design[:, moving], reward.value_T, rcond=None)[0]
    left = reward.value_T - design @ weight
    scale = np.abs(reward.value_T).max() or 1.0
    if np.abs(left).max() > 5e-3 * scale:
        return {}
    # Where the log is rounded a function that hardly varies has no weight that can be told.
    spread = design.std(axis=0)
    unsure = moving & (left.std() > 0.003 * np.sqrt(len(reward)) * spread)
    return {
        name: round(w, 9)  # what rounding leaves has no sign
        for name, w, open_ in zip(functions, weight.tolist(), unsure, strict=True)
        if not open_
    }


# Lengths of trained over held-out answers, last over first; what is left out, or was kept, over
# what it was; standard errors of that.
SHORTER, MORE, SURELY_LEFT = 0.75, 1.5, 5.0
_LEFT_OUT = (
    r"(?!.*total).*(filtered_?out|num_filtered|discard|drop(s|ped)?([/_]|$)|reject|requeue"
    r"|num_gen_batches).*"
)


def beside_selection(finding: Finding, evidence: Evidence) -> Finding:
    """Add what is known of a selection to a finding of a reward that rose alone."""
    selection = next(_selections(evidence), None)
    if selection is None or finding.status is Status.INFO:
        return finding
    fact, words = selection
    return replace(
        finding,
        status=Status.WARNING,
        message=f"{finding.message.removesuffix('.')}; {words}.",
        signs=(Sign("selection", finding.step or 0, None, None, words), *finding.signs),
        facts=(*finding.facts, fact),
    )


def _selections(evidence: Evidence) -> Iterator[tuple[Fact, str]]:
    """Yield what speaks for a selection: trained answers that got shorter than the held-out ones of
    the same policy, or ever more that is left out of the only reward.
    """
    length = evidence.quantity("completion_length")
    for _, held in evidence.named("eval/completion_length"):
        (first, last), others = end_levels(length or held), end_levels(held)
        if last * others[0] < SHORTER * first * others[1]:
            words = f"trained length {arrow(first, last)}, held-out {arrow(*others)}"
            yield Fact.SELECTED_BY_LENGTH, words
    if evidence.quantity("reward_admitted"):
        return
    kept = list(map(evidence.quantity, ("admitted_share", "trained_samples")))
    left_out = map(evidence.quantity, ("dropped_samples", "stale_samples", "stale_groups"))
    for signal in filter(None, (*kept, *left_out, *evidence.matching(_LEFT_OUT))):
        ends = end_levels(signal)
        rises = signal.trend * (-1 if signal in kept else 1)
        if rises > SURELY_LEFT and max(ends) > MORE * min(ends):
            shorter = length is not None and length.trend < -SURELY_LEFT
            reward = evidence.reward
            first = reward is not None and (
                reward.at(_halfway(signal)) + len(reward) // 32 < reward.at(_halfway(reward))
            )
            fact = Fact.LEFT_OUT_FIRST if shorter and first else Fact.MORE_LEFT_OUT
            yield fact, f"{signal.name} {arrow(*ends)}"


def _halfway(signal: NoisyMetric) -> int:
    """The step from which a column is nearer to its last level than to its first."""
    first, last = end_levels(signal)
    smooth = moving_mean(signal.value_T, min(_FIRST, len(signal)))
    return signal.step_at(row_after(abs(smooth - first) < abs(smooth - last)))


NAME = "verifier"
# Rows of nothing but 0 that are a failure of a run that goes on, and no slow start.
_MANY_ZEROS = 20
# Rewards of 1 that are no luck, and prompts as well as rollouts of a prompt where they are unknown.
_BY_LUCK, _USUAL_SIZE = 5, 16
# Scatters of a row that a reward leaps by where everything is passed at once.
_LEAP = 8.0
# Rows of exactly 0 that are no accident, the rows on which the level around them rests, and the
# numbers that batches must show.
_OUTAGES, _AROUND, _NUMBERS = 3, 5, 10
# Scatters of a row that those around earn: by chance none of a million rows is so far off.
_FAR = 5.0
# Groups on either side of a drop that tell who fails, and standard errors between the two
# explanations.
_GROUPS, _CLEARLY = 20, 3.0
# Rows before a drop that are its height.
_HEIGHT = 10
# The part of a fall that came at once from which all of it is said to have.
_ALL_OF_IT = 0.8
# Share of completions at the highest reward from which that is what right ones earn, and no lucky
# number.
_MANY_RIGHT = 0.05
_FAILURES = (
    r"(?=.*(reward|verif|pars(e|ing)|grade|grading|sandbox|judge))"
    r".*(timeout|timed_out|exception|fail|error).*"
)


def broken_verifier(evidence: Evidence) -> Finding:
    """Look for a reward of nothing but 0, one number at once, a drop, and logged failures."""
    reward = evidence.reward
    if reward is None:
        return not_logged(evidence.no_reward, LOG_REWARD)
    if len(reward) < FEWEST_ROWS:
        return not_logged(
            f"there are {count(len(reward), 'row')}, and the check needs {FEWEST_ROWS}", MORE_ROWS
        )
    if evidence.relative:
        return not_logged(evidence.relative, LOG_RELATIVE)
    signals = [("reward", reward), *evidence.functions.items()]
    stuck = (_stuck(name, signal, evidence) for name, signal in signals)
    others = (search(evidence) for search in (_logged_failures, _broken_ties, _drop, _outages))
    shown = _nothing(evidence, reward) or next(filter(None, stuck), None)
    calm = "No sign of a problem: no jump of the reward points to a verifier."
    return shown or next(filter(None, others), no_sign(calm))


def _nothing(evidence: Evidence, reward: NoisyMetric) -> Finding | None:
    """Report a reward that was never above 0, or only in a few of its first rows; where so many
    earned there that luck does not explain it, what they solved is not too hard.
    """
    value = reward.value_T
    zero = value == 0
    row = row_after(~zero)
    if row > len(value) // 10 + 1 or not zero[row:].all() or value.min() < 0:
        return None
    where = (
        f"in all {len(value)} rows"
        if row == 0
        else f"in all {len(value) - row} rows from step {reward.step_at(row):,} on"
    )
    late = evidence.ended or len(value) - row >= _MANY_ZEROS
    status = Status.CRITICAL if late else Status.WARNING
    bound = f" (± {reward.resolution:g})" if reward.resolution else ""
    message = f"the reward is 0{bound} {where}, so no completion earns reward"
    facts = (Fact.NOTHING_EARNED,)
    if row == 0:
        return Finding(status, message, None, exactly(0.0), 0.0, facts=facts)
    before = mean_of(value[:row])
    sign = moved("reward", reward.step_at(row), before, 0.0)
    sizes = map(evidence.setting, ("prompts_per_step", "group_size"))
    earned = row * before * math.prod(size or _USUAL_SIZE for size in sizes)
    return by_sign(message, sign, 0.0, *facts * (earned < _BY_LUCK), status=status)


def _stuck(name: str, signal: NoisyMetric, evidence: Evidence) -> Finding | None:
    """Report a reward or a function that became one number at once, below where it stood or far
    above.
    """
    tail = constant_tail(signal)
    if tail is None:
        return None
    fell = tail.before - tail.value
    step = signal.step_at(tail.row)
    behaviour = behaviour_change(evidence, step)
    if name == "reward" and behaviour is not Fact.BEHAVIOUR_CHANGED and _frozen(signal, tail):
        message = (
            f"the reward is {signal.written(tail.value)} in all "
            f"{count(len(signal) - tail.row, 'row')} from step {step:,} on"
        )
        return Finding(Status.WARNING, message, step, facts=(Fact.REWARD_FROZEN,))
    if not tail.abrupt or behaviour is Fact.BEHAVIOUR_CHANGED:
        return None  # what grew into the top has arrived; what changed its answers has collapsed
    # A function is learnt in a few rows, and so is a single prompt, but not within one row.
    leap = tail.value - signal.value_T[tail.row - 1]
    early = tail.row < 2 * FEWEST_ROWS and leap < HALF * tail.value
    if fell < 0 and (name != "reward" or early or -fell < _LEAP * signal.scatter):
        return None
    return _at_once(name, signal, evidence, tail, behaviour)


def _at_once(
    name: str, signal: NoisyMetric, evidence: Evidence, tail: Constant, behaviour: Fact | None
) -> Finding:
    """Report one number that came at once."""
    fell, step = tail.before - tail.value, signal.step_at(tail.row)
    now, rows = signal.written(tail.value), count(len(signal) - tail.row, "row")
    levels = level_changes(evidence).get(name)
    before = tail.before if levels is None else levels.before
    message = f"{clean(name, longest=60)} {short(before)} → {now} from step {step:,} on ({rows})"
    lost, reward = exactly(tail.value - before), evidence.reward
    felt = name == "reward" or reward is None
    if reward and not felt:
        row = reward.at(step)
        felt = reward.score(slice(0, row), slice(row, None)) < -3
    status = Status.CRITICAL if felt and fell > 0 else Status.WARNING
    drop = Fact.REWARD_CONSTANT_AT_ONCE if name == "reward" else Fact.FUNCTION_CONSTANT_AT_ONCE
    facts = stated(None if fell > 0 else Fact.EARNED_AT_ONCE, drop, behaviour)
    return Finding(status, message, step, lost, 0.0, facts=facts)


def _frozen(signal: NoisyMetric, tail: Constant) -> bool:
    """Whether one number follows rows that scattered about it: no jump, and no top or floor,
    known or by the rows.
    """
    before = signal.value_T[rows_before(tail.row, _MANY_ZEROS)]
    among = bool(min((before > tail.value).sum(), (before < tail.value).sum()) >= 2)
    if signal.bounds:
        low, high = signal.bounds
        near = abs(tail.value - before.mean()) < 3 * np.diff(before).std() / 2**0.5
        among |= 0.02 < (tail.value - low) / (high - low) < 0.98 and bool(near)
    return among and len(signal) - tail.row >= _MANY_ZEROS


def _logged_failures(evidence: Evidence) -> Finding | None:
    """Report a logged rate of exceptions, timeouts or failed parses that rose."""
    fact, more = Fact.FAILURES_LOGGED, (0.0, MORE_FAILED)
    shares = shares_of(evidence, "grading_failure_share", _FAILURES)
    findings = (failing(signal, "Grading fails", more, fact) for signal in shares)
    worst = next((answer for answer in findings if answer.facts), None)
    if worst and worst.value and worst.value.value > HALF:
        return replace(worst, status=Status.CRITICAL)
    return worst


def _outages(evidence: Evidence) -> Finding | None:
    """Report single rows of exactly 0 between rows that earn: whole batches that were not
    graded.
    """
    reward = evidence.reward
    assert reward is not None
    earns = np.flatnonzero(reward.value_T != 0)
    rest = signal_of("reward", reward.step_T[earns], reward.value_T[earns], bounds=reward.bounds)
    if len(rest) < FEWEST_ROWS or rest.low < 0:
        return None
    # Where many rows pass before one earns again the reward had fallen.
    bounds = np.append(earns, len(reward))
    brief = np.flatnonzero((np.diff(bounds) > 1) & (np.diff(bounds) <= _AROUND))
    level = np.interp(
        reward.step_T,
        rest.step_T[_AROUND // 2 : -(_AROUND // 2)],
        moving_mean(rest.value_T, _AROUND),
    )
    rows_between = (range(bounds[place] + 1, bounds[place + 1]) for place in brief)
    rows = np.array([*chain.from_iterable(rows_between)], dtype=int)
    far = level[rows] > _FAR * rest.scatter
    # Batches that earn 0 by chance have others near them, and those of a few rollouts know few
    # numbers.
    near = (rest.value_T < 0.5 * level[earns]).sum()
    if (
        far.sum() < max(_OUTAGES, len(reward) // 50, 10 * near)
        or len(np.unique(rest.value_T)) < _NUMBERS
    ):
        return None
    first, around = reward.step_at(rows[0]), short(mean_of(level[rows]))
    some = f"{count(len(rows), 'row')} of {len(reward)}"
    message = (
        f"the reward is {reward.written(0.0)} in {some}, first at step {first:,}, while "
        f"neighbouring rows earn {around}"
    )
    return Finding(
        Status.WARNING, message, None, exactly(len(rows) / len(reward)), 0.0, facts=(Fact.OUTAGES,)
    )


def _broken_ties(evidence: Evidence) -> Finding | None:
    """Report groups that differ by next to nothing: the standard deviation in the denominator
    makes full-size advantages of it.
    """
    graded = evidence.graded
    if graded is None:
        return None
    # Of a group of one the deviation is null.
    spread = (
        graded.group_by("step", "prompt_id")
        .agg(pl.col("reward").std())["reward"]
        .drop_nulls()
        .to_numpy()
    )
    if spread.size < 20:
        return None
    span = np.ptp(np.quantile(graded["reward"], (0.01, 0.99), method="nearest"))
    # A thousandth of the range is no difference that a verifier means; equal rewards leave rounding
    # of 1e-9 of it.
    hair = (spread > 1e-7 * span) & (spread < 1e-3 * span)
    share = wilson(int(hair.sum()), int(spread.size))
    if share.low < 0.05:
        return None
    message = (
        f"in {percent(share.value)} of the groups the rewards differ, but by less than "
        "a thousandth of the range of all rewards"
    )
    status = Status.CRITICAL if share.low > 0.5 else Status.WARNING
    return Finding(status, message, None, share, 0.05, facts=(Fact.TIES_BROKEN,))


def _drop(evidence: Evidence) -> Finding | None:
    """Report a reward that dropped from one row to the next and stayed down while the answers
    went on as before.
    """
    reward = evidence.reward
    assert reward is not None
    level, floor = reward_level(evidence)[0], reward_floor(evidence)
    clear = _declined(evidence, level)
    fall = clear or _fallen(evidence, level)
    if fall is None:
        return None
    row, change = fall
    step = reward.step_at(row)
    behaviour = behaviour_change(evidence, step)
    if behaviour is Fact.BEHAVIOUR_CHANGED:
        return None
    held_out = held_out_at(evidence, step, change)
    if clear is None and held_out is not Fact.HELD_OUT_STAYED:
        return None
    # A policy that declines takes it along as a verifier does.
    held_out = held_out if clear is None or at_once(level, row) else None
    height = reward.level(rows_before(row, _HEIGHT)) - floor
    surely = (behaviour, held_out) == (Fact.BEHAVIOUR_UNCHANGED, Fact.HELD_OUT_DROPPED)
    status = _of_drop(-change / max(height, 1e-9), surely=surely, ended=evidence.ended)
    message, lost = _of_what(evidence, step, change)
    facts = stated(Fact.PART_LOST_AT_ONCE, behaviour, held_out, who_fails(evidence, step))
    return Finding(status, message, step, exactly(lost), 0.0, facts=facts)


def _of_what(evidence: Evidence, step: int, change: float) -> tuple[str, float]:
    """Tell of a drop with the numbers of the fall or the decline that it is the most of, where
    there is one; and what was lost.
    """
    levels = level_changes(evidence).get("reward")
    if levels is None:
        return f"the reward dropped by {short(-change)} at once at step {step:,}", change
    when = "" if decline_of(evidence) is not None else f" {levels.where}"
    lost = levels.after - levels.before
    at_one_step = when in ("", f" at step {step:,}") and change / lost > _ALL_OF_IT
    said = (
        f" at step {step:,}, at once"
        if at_one_step
        else f"{when}, and most of it came at once at step {step:,}"
    )
    return f"reward {arrow(*levels.ends)}{said}", lost


def _of_drop(share: float, *, surely: bool, ended: bool) -> Status:
    """Return how grave a drop by a share of the height is: unless the held-out reward fell too,
    harder prompts may be all there is.
    """
    if surely and share > 0.3:
        return Status.CRITICAL
    if not ended and not surely and share < 0.5:
        return Status.INFO  # as at the next stage of a curriculum
    return Status.WARNING


def _fallen(evidence: Evidence, level: NoisyMetric) -> tuple[int, float] | None:
    """Find a fall below half of the height that came at once as far as the noise shows."""
    fall = fall_of(evidence)
    if fall is None or not fall.lasts or by_and_by(level, fall.row):
        return None
    return fall.row, fall.end - fall.height


def _declined(evidence: Evidence, level: NoisyMetric) -> tuple[int, float] | None:
    """Find a decline to above half of the height that clearly came at once, or the most of it."""
    decline = decline_of(evidence)
    if decline is None or not at_once(level, decline.middle, clearly=False):
        return None
    row, few = decline.middle, max(5, len(level) // 20)
    change = level.change(rows_before(row, few), slice(row, row + few)).value
    most = -change >= HALF * (decline.change.before - decline.change.after)
    return (row, change) if most else None


def who_fails(evidence: Evidence, step: int) -> Fact | None:
    r"""Say whether whole prompts fail since a step, or answers here and there; None where
    the rollouts do not tell.

    Let a share f of the reward be lost. If whole prompts fail, the share of groups without a
    success goes from w to $w + f(1 - w)$; if answers fail one by one it goes to the mean of $f^k$
    over the groups before, k their successes. Nor do rollouts tell where the groups that still
    succeed lost half of their successes, or half of those that fail are of prompts that were
    answered before: then the policy may have come apart, unless the held-out reward stayed.
    """
    graded = evidence.graded
    if graded is None:
        return None
    # Right is what earns the most, where many do: of a sum of several functions, all of them.
    right = graded["reward"] >= float(graded["reward"].max() or 0.0) - 1e-9  # type: ignore[arg-type]
    if float(right.mean() or 0.0) < _MANY_RIGHT:
        return None
    prompt = graded.get_column("prompt", default=pl.lit(None, pl.Utf8))
    groups = (
        graded.with_columns(right.cast(pl.Float64).alias("right"), prompt=prompt)
        .group_by("step", "prompt_id")
        .agg(pl.sum("right"), pl.len(), pl.first("prompt"))
    )
    sides = [groups.filter(side) for side in (pl.col("step") < step, pl.col("step") >= step)]
    if min(map(len, sides)) < _GROUPS:
        return None
    was_P, is_P = (side["right"].to_numpy() for side in sides)
    then, now = (
        float(side["right"].to_numpy().sum() / side["len"].to_numpy().sum()) for side in sides
    )
    fact = _explained(was_P, 1 - now / then, is_P) if now < then else None
    solved, failing = sides[0].filter(was_P > 0), sides[1].filter(is_P == 0)
    again = failing.join(solved, on="prompt", how="semi")
    if (
        fact is not Fact.PROMPTS_FAIL
        or held_out_at(evidence, step, now - then) is Fact.HELD_OUT_STAYED
    ):
        return fact
    fewer = 2 * is_P[is_P > 0].mean() < was_P[was_P > 0].mean()
    return None if fewer or 2 * len(again) > len(failing) else fact


def _explained(before: Float, lost: float, after: Float) -> Fact | None:
    """Hold both explanations against the share of groups without a success."""
    wrong, none = (mean_of(grade_N == 0) for grade_N in (before, after))
    whole, scattered = wrong + lost * (1 - wrong), mean_of(lost**before)
    error = math.sqrt(
        max(none * (1 - none), 0.01) / after.size + max(wrong * (1 - wrong), 0.01) / before.size
    )
    if abs(whole - scattered) < _CLEARLY * error:
        return None
    return Fact.ANSWERS_FAIL if none <= (whole + scattered) / 2 else Fact.PROMPTS_FAIL
