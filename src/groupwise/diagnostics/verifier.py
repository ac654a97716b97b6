"""Verifier failure: the reward becomes a constant at once, or part of it, while the answers go on
as before.

It is looked for first, because it looks like dynamics. A constant at the top that a run grew into
is success and no failure; a fall spread over many rows, with answers that change, is a collapse. It
grades no answer itself.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from groupwise.arrays import Float, moving_mean, row_after
from groupwise.diagnostics.environment import HALF, MORE_FAILED, failing, shares_of
from groupwise.diagnostics.facts import Fact, stated
from groupwise.diagnostics.falls import (
    Constant,
    at_once,
    behaviour_change,
    by_and_by,
    constant_tail,
    decline_of,
    fall_of,
    held_out_at,
    level_changes,
)
from groupwise.diagnostics.judgement import (
    Finding,
    Status,
    by_sign,
    exactly,
    no_sign,
    not_logged,
)
from groupwise.diagnostics.signals import (
    FEWEST_ROWS,
    LOG_RELATIVE,
    LOG_REWARD,
    MORE_ROWS,
    Evidence,
    Signal,
    counted,
    reward_floor,
    signal_of,
)
from groupwise.diagnostics.signs import arrow, moved
from groupwise.diagnostics.swings import reward_level
from groupwise.intervals import Interval, wilson
from groupwise.wording import clean, short

NAME = "verifier"
ADVICE = "run the reward function by hand on completions of this step"
PASSES = "give the reward function a wrong answer: it may pass everything"
# Rows of nothing but 0 that are a failure of a run that goes on, and no slow start.
_MANY_ZEROS = 20
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


def check(evidence: Evidence) -> Finding:
    """Look for a reward of nothing but 0, one number at once, a drop, and logged failures."""
    reward = evidence.reward
    if reward is None:
        return not_logged(NAME, evidence.no_reward, LOG_REWARD)
    if len(reward) < FEWEST_ROWS:
        return not_logged(
            NAME, f"{counted(len(reward), 'row')}, where {FEWEST_ROWS} are the fewest", MORE_ROWS
        )
    if evidence.relative:
        return not_logged(NAME, evidence.relative, LOG_RELATIVE)
    nothing = _nothing(reward, ended=evidence.ended)
    if nothing is not None:
        return nothing
    for name, signal in [("reward", reward), *evidence.functions.items()]:
        finding = _stuck(name, signal, evidence)
        if finding is not None:
            return finding
    for search in (_logged_failures, _broken_ties, _drop, _outages):
        finding = search(evidence)
        if finding is not None:
            return finding
    return no_sign(NAME, "No sign of it: the reward did not jump.")


def _nothing(reward: Signal, *, ended: bool) -> Finding | None:
    """Report a reward that was never above 0, or only in a few of its first rows."""
    value = reward.value_T
    zero = value == 0
    row = row_after(~zero)
    if row > len(value) // 10 + 1 or not zero[row:].all() or value.min() < 0:
        return None
    where = (
        f"in all {len(value)} rows"
        if row == 0
        else f"in all {len(value) - row} rows since step {reward.step_at(row):,}"
    )
    status = Status.CRITICAL if ended or len(value) - row >= _MANY_ZEROS else Status.WARNING
    bound = f" (± {reward.resolution:g})" if reward.resolution else ""
    message, fact = f"the reward is 0{bound} {where}: nothing is earned", Fact.NOTHING_EARNED
    if row == 0:
        return Finding(NAME, status, message, None, exactly(0.0), 0.0, facts=(fact,))
    before = float(value[:row].mean())
    sign = moved("reward", reward.step_at(row), before, 0.0)
    return by_sign(NAME, status, message, sign, 0.0, fact)


def _stuck(name: str, signal: Signal, evidence: Evidence) -> Finding | None:
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
            f"{counted(len(signal) - tail.row, 'row')} since step {step:,}"
        )
        return Finding(
            NAME, Status.WARNING, message, step, advice=ADVICE, facts=(Fact.REWARD_FROZEN,)
        )
    if not tail.abrupt or behaviour is Fact.BEHAVIOUR_CHANGED:
        return None  # what grew into the top has arrived; what changed its answers has collapsed
    # A function is learnt in a few rows, and so is a single prompt, but not within one row.
    leap = tail.value - signal.value_T[tail.row - 1]
    early = tail.row < 2 * FEWEST_ROWS and leap < HALF * tail.value
    if fell < 0 and (name != "reward" or early or -fell < _LEAP * signal.scatter):
        return None
    return _at_once(name, signal, evidence, tail, behaviour)


def _at_once(
    name: str, signal: Signal, evidence: Evidence, tail: Constant, behaviour: Fact | None
) -> Finding:
    """Report one number that came at once."""
    fell, step = tail.before - tail.value, signal.step_at(tail.row)
    count = len(signal) - tail.row
    change = signal.change(slice(0, tail.row), slice(tail.row, len(signal)))
    now, rows = signal.written(tail.value), counted(count, "row")
    levels = level_changes(evidence).get(name)
    before = tail.before if levels is None else levels.before
    message = (
        f"{clean(name, longest=60)} {short(before)} → {now} at step {step:,}, in all {rows} since"
    )
    gone = tail.value - before
    off = gone - change.value
    lost = Interval(gone, change.low + off, change.high + off)
    reward = evidence.reward
    felt = name == "reward" or reward is None
    if reward is not None and not felt:
        row = reward.at(step)
        felt = reward.score(slice(0, row), slice(row, None)) < -3
    status = Status.CRITICAL if felt and fell > 0 else Status.WARNING
    drop = Fact.REWARD_CONSTANT_AT_ONCE if name == "reward" else Fact.FUNCTION_CONSTANT_AT_ONCE
    facts = stated(drop, behaviour)
    advice = ADVICE if fell > 0 else PASSES
    return Finding(NAME, status, message, step, lost, 0.0, advice=advice, facts=facts)


def _frozen(signal: Signal, tail: Constant) -> bool:
    """Whether one number follows rows that scattered about it: no jump, and no top or floor,
    known or by the rows.
    """
    before = signal.value_T[max(0, tail.row - _MANY_ZEROS) : tail.row]
    among = min(int((before > tail.value).sum()), int((before < tail.value).sum())) >= 2
    if signal.bounds is not None:
        low, high = signal.bounds
        near = abs(tail.value - before.mean()) < 3 * np.diff(before).std() / 2**0.5
        among |= 0.02 < (tail.value - low) / (high - low) < 0.98 and bool(near)
    return among and len(signal) - tail.row >= _MANY_ZEROS


def _logged_failures(evidence: Evidence) -> Finding | None:
    """Report a logged rate of exceptions, timeouts or failed parses that rose."""
    fact, more = Fact.FAILURES_LOGGED, (0.0, MORE_FAILED)
    shares = shares_of(evidence, "grading_failure_share", _FAILURES)
    findings = (failing(NAME, signal, "Grading fails", more, fact) for signal in shares)
    worst = next((answer for answer in findings if answer.facts), None)
    if worst is not None and worst.value is not None and worst.value.value > HALF:
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
    rows = (
        np.concatenate([np.arange(bounds[place] + 1, bounds[place + 1]) for place in brief])
        if brief.size
        else brief
    )
    far = level[rows] > _FAR * rest.scatter
    # Batches that earn 0 by chance have others near them, and those of a few rollouts know few
    # numbers.
    near = int((rest.value_T < 0.5 * level[earns]).sum())
    if (
        far.sum() < max(_OUTAGES, len(reward) // 50, 10 * near)
        or len(np.unique(rest.value_T)) < _NUMBERS
    ):
        return None
    first, around = reward.step_at(rows[0]), short(float(level[rows].mean()))
    some = f"{counted(len(rows), 'row')} of {len(reward)}"
    message = (
        f"the reward is {reward.written(0.0)} in {some}, first at step {first:,}, where those "
        f"around earn {around}"
    )
    return Finding(
        NAME,
        Status.WARNING,
        message,
        None,
        exactly(len(rows) / len(reward)),
        0.0,
        advice=ADVICE,
        facts=(Fact.OUTAGES,),
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
    span = float(graded["reward"].quantile(0.99) or 0.0) - float(
        graded["reward"].quantile(0.01) or 0.0
    )
    if spread.size < 20 or span <= 0:
        return None
    # A thousandth of the range is no difference that a verifier means; equal rewards leave rounding
    # of 1e-9 of it.
    hair = (spread > 1e-7 * span) & (spread < 1e-3 * span)
    share = wilson(int(hair.sum()), int(spread.size))
    if share.low < 0.05:
        return None
    message = (
        f"in {100 * share.value:.0f} % of the groups the rewards differ by less than a thousandth "
        "of their range"
    )
    status = Status.CRITICAL if share.low > 0.5 else Status.WARNING
    return Finding(NAME, status, message, None, share, 0.05, facts=(Fact.TIES_BROKEN,))


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
    held_out = held_out_at(evidence, step, change.value)
    if clear is None and held_out is not Fact.HELD_OUT_STAYED:
        return None
    # A policy that declines takes it along as a verifier does.
    held_out = held_out if clear is None or at_once(level, row) else None
    height = reward.level(slice(max(0, row - _HEIGHT), row)) - floor
    surely = (behaviour, held_out) == (Fact.BEHAVIOUR_UNCHANGED, Fact.HELD_OUT_DROPPED)
    status = _of_drop(-change.value / max(height, 1e-9), surely=surely, ended=evidence.ended)
    message, whole = _of_what(evidence, step, change)
    facts = stated(Fact.PART_LOST_AT_ONCE, behaviour, held_out, who_fails(evidence, step))
    return Finding(NAME, status, message, step, whole, 0.0, advice=ADVICE, facts=facts)


def _of_what(evidence: Evidence, step: int, change: Interval) -> tuple[str, Interval]:
    """Tell of a drop with the numbers of the fall or the decline that it is the most of, where
    there is one; and what was lost.
    """
    levels = level_changes(evidence).get("reward")
    if levels is None:
        return f"reward lower by {short(-change.value)} since step {step:,}, at once", change
    when = "" if decline_of(evidence) is not None else f" {levels.where}"
    lost = levels.after - levels.before
    at_one_step = when in ("", f" at step {step:,}") and change.value / lost > _ALL_OF_IT
    said = (
        f" at step {step:,}, at once"
        if at_one_step
        else f"{when}, most of it at once at step {step:,}"
    )
    off = lost - change.value
    return f"reward {arrow(*levels.ends)}{said}", Interval(
        lost, change.low + off, change.high + off
    )


def _of_drop(share: float, *, surely: bool, ended: bool) -> Status:
    """Return how grave a drop by a share of the height is: unless the held-out reward fell too,
    harder prompts may be all there is.
    """
    if surely and share > 0.3:
        return Status.CRITICAL
    if not ended and not surely and share < 0.5:
        return Status.INFO  # as at the next stage of a curriculum
    return Status.WARNING


def _fallen(evidence: Evidence, level: Signal) -> tuple[int, Interval] | None:
    """Find a fall below half of the height that came at once as far as the noise shows."""
    fall = fall_of(evidence)
    if fall is None or not fall.lasts or by_and_by(level, fall.row):
        return None
    half = 1.96 * level.scatter * np.sqrt(2 / max(5, len(level) // 20))
    change = fall.end - fall.height
    return fall.row, Interval(change, change - half, change + half)


def _declined(evidence: Evidence, level: Signal) -> tuple[int, Interval] | None:
    """Find a decline to above half of the height that clearly came at once, or the most of it."""
    decline = decline_of(evidence)
    if decline is None or not at_once(level, decline.middle, clearly=False):
        return None
    row, few = decline.middle, max(5, len(level) // 20)
    change = level.change(slice(max(0, row - few), row), slice(row, row + few))
    return (
        (row, change)
        if -change.value >= 0.5 * (decline.change.before - decline.change.after)
        else None
    )


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
    wrong, none = (float((grade_N == 0).mean()) for grade_N in (before, after))
    whole, scattered = wrong + lost * (1 - wrong), float((lost**before).mean())
    error = float(
        np.sqrt(
            max(none * (1 - none), 0.01) / after.size + max(wrong * (1 - wrong), 0.01) / before.size
        )
    )
    if abs(whole - scattered) < _CLEARLY * error:
        return None
    return Fact.ANSWERS_FAIL if none <= (whole + scattered) / 2 else Fact.PROMPTS_FAIL
