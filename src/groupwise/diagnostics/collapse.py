"""Collapse: a reward, or one of its functions, that lost most of its height for good.

A reward that fell in training alone, while the held-out one stayed, is no collapse of the policy.
Why it collapsed is the judgement's business.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from groupwise.arrays import median
from groupwise.diagnostics.facts import Fact, stated
from groupwise.diagnostics.falls import (
    HALF,
    HELD_OUT,
    PATIENCE,
    Fall,
    at_once,
    behaviour_change,
    by_and_by,
    decline_of,
    falls_of,
    held_out_at,
    level_changes,
    lost_rows,
    row_size,
    settled,
    span_of_fall,
)
from groupwise.diagnostics.judgement import Finding, Sign, Status, by_sign, no_sign, not_logged
from groupwise.diagnostics.reward_functions import UNPAID, WANTED, weights_of
from groupwise.diagnostics.signals import (
    FEWEST_ROWS,
    LOG_REWARD,
    MORE_ROWS,
    Evidence,
    Signal,
    counted,
    floor_of,
    reward_floor,
    since_when,
)
from groupwise.diagnostics.signs import arrow, moved
from groupwise.diagnostics.swings import reward_level
from groupwise.intervals import Interval
from groupwise.wording import clean, short

NAME, LOST = "collapse", "lost"
OF_REWARD = (NAME, LOST)  # checks that tell of a reward that fell
# Completions of a tenth of their length are no longer the same answers; healthy public runs
# shortened to a quarter at most.
_TENTH = 0.1
# Share of the most that any function earned below which a height is next to nothing.
_LITTLE = 0.02
# Standard errors of a change of the reward beyond its noise.
_CLEARLY = 1.96


def lost(evidence: Evidence) -> Finding:
    """Look for a reward that its last three rows have lost, all of it or with other answers."""
    if lost_rows(evidence) is None:
        return no_sign(LOST, "No sign of it.")
    change, floor = level_changes(evidence)["reward"], reward_floor(evidence)
    (before, after), sign = change.ends, moved("reward", change.first, *change.ends)
    falling = after - floor > HALF * (before - floor)
    message = f"{sign.words}, {'falling' if falling else 'lost'} since step {sign.step:,}"
    return by_sign(LOST, Status.CRITICAL, message, sign, before, Fact.FALL_AT_ONCE)


def check(evidence: Evidence) -> Finding:
    """Look for a collapse of the reward, of a reward function, or of the answers themselves."""
    reward = evidence.reward
    if reward is None:
        return not_logged(NAME, evidence.no_reward, LOG_REWARD)
    falls = list(_falls(evidence))
    last = sorted(
        (item for item in falls if item[2].lasts),
        key=lambda item: (item[0] != "reward", item[2].row),
    )
    # Answers that shrank to nothing come before what one function paid for them.
    other = None if last and last[0][0] == "reward" else _shortened(evidence)
    if last and other is None:
        return _collapsed(evidence, *last[0])
    other = other or _decline(evidence)
    if other is not None:
        return other
    # The last rows have made good half of a fall.
    back = next(
        (
            (name, signal, fall)
            for name, signal, fall in falls
            if name == "reward"
            or signal.level_from(-3 - len(signal) // 10) > (fall.height + fall.end) / 2
        ),
        None,
    )
    return _held(evidence, reward) if back is None else _recovered(*back)


def _held(evidence: Evidence, reward: Signal) -> Finding:
    """Say that nothing fell, or that the rows are too noisy to say so."""
    if row_size(reward_level(evidence)[0], reward_floor(evidence)) is None:
        moves = reward.span > 0  # of one number more rows tell no more
        log = (
            MORE_ROWS
            if evidence.graded is not None
            else "more rows, or the rollouts with their rewards"
        )
        return not_logged(NAME, _too_noisy(reward), log if moves else "")
    return no_sign(NAME, "No sign of it: the reward holds its height.")


def _falls(evidence: Evidence) -> Iterator[tuple[str, Signal, Fall]]:
    """Yield the falls of the reward, of the held-out reward, and of each reward function."""
    reward = evidence.reward
    assert reward is not None
    earned = {name: signal for name, signal in evidence.functions.items() if signal.low >= 0}
    weights = weights_of(evidence)
    # A function that earned next to nothing beside the others has no height to lose.
    least = _LITTLE * max((signal.high for signal in earned.values()), default=0.0)
    for name, (level, fall) in falls_of(evidence).items():
        if fall is None:
            continue
        if name == "reward":
            yield name, level, fall
            continue
        gained = _gained(reward, level.step_T[span_of_fall(level, fall.row)[0]])
        # What shapes answers beside what is wanted, by their names, may be the price of a gain.
        shapes = not WANTED.search(name) and any(map(WANTED.search, earned))
        if name in earned and (fall.height < least or (shapes and gained > -_CLEARLY)):
            continue
        # Neither is what training gains from, and is not paid by: a loophole's doing.
        unpaid = name == HELD_OUT or abs(weights.get(name, 1.0)) < UNPAID
        if not unpaid or gained <= _CLEARLY:
            yield name, level, fall


def _gained(reward: Signal, step: float) -> float:
    """Standard errors that training has gained since a step."""
    row, few = reward.at(step), max(3, len(reward) // 8)
    return reward.score(slice(max(0, row - few), max(row, 3)), slice(len(reward) - few, None))


def _collapsed(evidence: Evidence, name: str, signal: Signal, fall: Fall) -> Finding:
    """Report a collapse that lasts."""
    step, ends = signal.step_at(fall.row), level_changes(evidence)[name]
    words = f"{clean(name, longest=60)} {arrow(*ends.ends)}"
    message = f"{words} {ends.where}{', for good' if evidence.ended else ''}"
    slow = by_and_by(signal, fall.row)
    if name == "reward":
        fact = Fact.FALL_BY_AND_BY if slow else Fact.FALL_AT_ONCE
    else:
        fact = Fact.FUNCTION_FALL_BY_AND_BY if slow else Fact.FUNCTION_FALL_AT_ONCE
    status = Status.CRITICAL if settled(evidence, signal, fall) else Status.WARNING
    if (
        name != HELD_OUT
        and held_out_at(evidence, step, fall.end - fall.height, ever=True) is Fact.HELD_OUT_STAYED
    ):
        status, message = Status.WARNING, f"{message}; the held-out reward did not fall with it"
        # The held-out total says that the policy goes on; of a function it says nothing where
        # another one pays.
        fact = Fact.TRAINING_FALLS_ALONE if name == "reward" else Fact.FUNCTION_FALLS_ALONE
    signal_name = "held_out" if name == HELD_OUT else clean(name, longest=60)
    signs = () if name == "reward" else (Sign(signal_name, step, *ends.ends, words),)
    advice = "restart from step {step}; lr ÷ 3"
    facts = stated(fact, behaviour_change(evidence, step))
    lost = ends.share_lost(
        reward_floor(evidence) if name == "reward" else floor_of(signal), fall.lost
    )
    return Finding(NAME, status, message, step, lost, HALF, advice=advice, signs=signs, facts=facts)


def _recovered(name: str, signal: Signal, fall: Fall) -> Finding:
    """Report a fall that was made good."""
    step, levels = signal.step_at(fall.row), arrow(fall.height, fall.end)
    message = f"{clean(name, longest=60)} {levels} at step {step:,}, and came back"
    return Finding(NAME, Status.INFO, message, step, fall.lost, HALF)


def _decline(evidence: Evidence) -> Finding | None:
    """Report a reward that ends significantly below its height: a failure where it has stood
    below half of it, beyond doubt, for long.
    """
    decline, reward = decline_of(evidence), evidence.reward
    if decline is None or reward is None:
        return None
    (height, now), after, step = decline.change.ends, decline.after, decline.change.first
    message = f"reward {arrow(height, now)}, falling since step {step:,}"
    advice = "restart from step {step}; lr ÷ 3, if held-out prompts say that it fell"
    level, status, fact = reward_level(evidence)[0], Status.WARNING, Fact.DECLINE
    if (
        at_once(level, decline.middle)
        and held_out_at(evidence, step, after.value - height) is Fact.HELD_OUT_STAYED
    ):
        fact = Fact.TRAINING_DECLINES_ALONE
    elif len(level) - decline.end >= PATIENCE:
        most = -HALF * (height - reward_floor(evidence))
        if level.change(decline.best, slice(decline.end, None)).high < most:
            status = Status.CRITICAL
    return Finding(NAME, status, message, step, after, height, advice=advice, facts=(fact,))


def _shortened(evidence: Evidence) -> Finding | None:
    """Report answers that shrank to a tenth of their length and stopped teaching."""
    length = evidence.quantity("completion_length")
    if length is None:
        return None
    value = length.value_T
    earlier = np.maximum.accumulate(value)
    onset = since_when(value < _TENTH * earlier)
    if onset is None:
        return None
    gradient, alike = evidence.quantity("gradient_norm"), evidence.quantity("dead_group_share")
    after = length.step_T[onset]
    silent = [] if gradient is None else [gradient.is_zero[gradient.at(after) :].mean()]
    silent += [] if alike is None else [median(alike.value_T[alike.at(after) :])]
    if min(silent, default=0.0) < HALF:
        return None
    step, before, end = int(after), float(earlier[-1]), median(value[onset:])
    interval = Interval(end / before, *np.quantile(value[onset:] / before, [0.025, 0.975]).tolist())
    words = f"length {arrow(before, end)}"
    message = f"{words} tokens at step {step:,}, and most groups have taught nothing since"
    sign = Sign("completion_length", step, before, end, words)
    advice = "read the completions: shrunk fixed answers that still earn a reward"
    return Finding(
        NAME,
        Status.CRITICAL,
        message,
        step,
        interval,
        _TENTH,
        advice=advice,
        signs=(sign,),
        facts=(Fact.ANSWERS_SHRANK,),
    )


def _too_noisy(reward: Signal) -> str:
    """Say why no height can be told."""
    if len(reward) < FEWEST_ROWS:
        return f"{counted(len(reward), 'row')}: a height and a fall need {FEWEST_ROWS}"
    if reward.span == 0:
        return f"the reward is {short(reward.value_T[0])} in all rows: no height to fall from"
    return f"a row scatters by {short(reward.scatter)}: half of the height could be noise"
