"""Collapse: a reward, or one of its functions, that lost most of its height for good.

A reward that fell in training alone, while the held-out one stayed, is no collapse of the policy.
Why it collapsed is the judgement's business.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from groupwise.arrays import Float, median, moving_mean
from groupwise.diagnostics.facts import Fact, stated
from groupwise.diagnostics.judgement import (
    Finding,
    Sign,
    Status,
    by_sign,
    no_sign,
    not_logged,
)
from groupwise.diagnostics.reward_functions import UNPAID, WANTED, weights_of
from groupwise.diagnostics.signals import (
    CRITICAL,
    FEWEST_ROWS,
    LOG_REWARD,
    MORE_ROWS,
    WARNING,
    Evidence,
    Signal,
    alarm,
    blocks,
    counted,
    floor_of,
    long_run_deviation,
    once,
    rare_event_factors,
    reward_floor,
    since_when,
)
from groupwise.diagnostics.signs import arrow
from groupwise.diagnostics.swings import level_of, reward_level
from groupwise.intervals import Interval
from groupwise.wording import clean

NAME, LOST, HELD_OUT = "collapse", "lost", "held-out reward"
OF_REWARD = (NAME, LOST)  # checks that tell of a reward that fell
# Rows that hold a tenth of the level or less, the rows before them that make it, the scatters of a
# row between both, and the chance of such rows by those that the log had before.
LOST_ROWS, LEFT, LEVEL_ROWS, CLEARLY, BY_CHANCE = 3, 0.1, 20, 5.0, 0.005
# Completions of a tenth of their length are no longer the same answers; healthy public runs
# shortened to a quarter at most.
_TENTH = 0.1
# Share of the height whose loss, beyond its noise, is a decline.
DECLINED = 0.12
# Share of the most that any function earned below which a height is next to nothing.
_LITTLE = 0.02
# Standard errors of a held-out reward that rises beyond doubt.
_RISES = 3.0
# Rows for which a fall of a run that goes on is watched before it alarms: dips of healthy runs last
# a few; a decline takes twice as many.
_PATIENCE = 12


def lost(evidence: Evidence) -> Finding:
    """Look for a running reward of which the last three rows hold a tenth of its level or less: too
    few for the test of a fall, and too many for a batch without luck.
    """
    reward = evidence.reward
    if evidence.ended or reward is None or len(reward) < FEWEST_ROWS + LOST_ROWS:
        return no_sign(LOST, "No sign of it.")
    height = reward.value_T - reward_floor(evidence)
    level = _usual(height[:-LOST_ROWS])
    above = np.flatnonzero(height > LEFT * level)
    begin = int(above[-1]) + 1 if above.size else 0
    if begin < FEWEST_ROWS or len(height) - begin < LOST_ROWS:
        return no_sign(LOST, "No sign of it.")
    level = _usual(height[:begin])
    low = (np.count_nonzero(height[:begin] <= LEFT * level) + 0.5) / (begin + 1)
    by_chance = len(height) * low**LOST_ROWS > BY_CHANCE
    if by_chance or level - float(height[begin:].max()) < CLEARLY * reward.scatter:
        return no_sign(LOST, "No sign of it.")
    step, after = int(reward.step_T[begin]), float(reward.value_T[begin:].mean())
    level = float(reward.value_T[max(0, begin - LEVEL_ROWS) : begin].mean())
    words = f"reward {arrow(level, after)}"
    sign = Sign("reward", step, level, after, words)
    message = f"{words}, lost since step {step:,}"
    return by_sign(LOST, Status.CRITICAL, message, sign, LEFT, Fact.FALL_AT_ONCE)


def _usual(height_T: Float) -> float:
    """The level of the last rows, as long as a quarter of them hold it."""
    return float(np.quantile(height_T[-LEVEL_ROWS:], 0.75))


def check(evidence: Evidence) -> Finding:
    """Look for a collapse of the reward, of a reward function, or of the answers themselves."""
    reward = evidence.reward
    if reward is None:
        return not_logged(NAME, evidence.no_reward, LOG_REWARD)
    found = [(name, signal, fall) for name, signal, fall in _falls(evidence) if fall is not None]
    last = sorted(
        (item for item in found if item[2].lasts),
        key=lambda item: (item[0] != "reward", item[2].row),
    )
    # Answers that shrank to nothing come before what one function paid for them.
    other = None if last and last[0][0] == "reward" else _shortened(evidence)
    if last and other is None:
        return _collapsed(evidence, *last[0])
    other = other or _decline(evidence)
    if other is not None:
        return other
    return _recovered(*found[0]) if found else _held(evidence, reward)


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
    return no_sign(NAME, "No sign of it: the reward holds its height.", Fact.NO_FALL)


def _falls(evidence: Evidence) -> Iterator[tuple[str, Signal, Fall | None]]:
    """Yield the falls of the reward, of the held-out reward, and of each reward function."""
    assert evidence.reward is not None
    yield "reward", reward_level(evidence)[0], fall_of(evidence)
    # A penalty that grows as the answers get longer is the price of them; it shows in the reward
    # where it is more.
    earned = {name: signal for name, signal in evidence.functions.items() if signal.low >= 0}
    weights = weights_of(evidence)
    others = {
        **({} if evidence.held_out is None else {HELD_OUT: evidence.held_out}),
        **earned,
    }
    # A function that earned next to nothing beside the others has no height to lose.
    least = _LITTLE * max((signal.high for signal in earned.values()), default=0.0)
    for name, signal in others.items():
        # What comes round with the order of the data is no fall.
        level = level_of(signal)[0]
        fall = find_fall(level, floor_of(level))
        if (
            fall is not None
            and name in earned
            and (fall.height < least or _shapes(name, earned, evidence.reward, level, fall))
        ):
            continue
        # Neither is what training gains from, and is not paid by.
        unpaid = name == HELD_OUT or abs(weights.get(name, 1.0)) < UNPAID
        if (
            fall is None
            or not unpaid
            or not _rose(evidence.reward, level.step_T[span_of_fall(level, fall.row)[0]])
        ):
            yield clean(name, longest=60), level, fall


def _shapes(
    name: str, earned: Mapping[str, Signal], reward: Signal, level: Signal, fall: Fall
) -> bool:
    """Whether a function shapes answers beside what is wanted, by their names, and the total did
    not fall with it: the price of a gain.
    """
    if WANTED.search(name) or not any(map(WANTED.search, earned)):
        return False
    row, few = reward.at(level.step_T[span_of_fall(level, fall.row)[0]]), max(3, len(reward) // 8)
    return (
        reward.score(slice(max(0, row - few), max(row, 3)), slice(len(reward) - few, None)) > -_LUCK
    )


def _rose(reward: Signal, step: float) -> bool:
    """Whether training has gained since a fall began: a held-out reward that falls meanwhile is
    no collapse, but a loophole's doing.
    """
    row, few = reward.at(step), max(3, len(reward) // 8)
    return reward.score(slice(max(0, row - few), row), slice(len(reward) - few, None)) > _LUCK


def _collapsed(evidence: Evidence, name: str, signal: Signal, fall: Fall) -> Finding:
    """Report a collapse that lasts."""
    step, ends = int(signal.step_T[fall.row]), ends_of(signal, fall)
    words = f"{name} {arrow(ends.before, ends.after)}"
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
    signs = (
        ()
        if name == "reward"
        else (
            Sign(
                "held_out" if name == HELD_OUT else name,
                step,
                ends.before,
                ends.after,
                words,
            ),
        )
    )
    advice = "restart from step {step}; lr ÷ 3"
    facts = stated(fact, behaviour_change(evidence, step))
    lost = ends.share_lost(
        reward_floor(evidence) if name == "reward" else floor_of(signal), fall.lost
    )
    return Finding(NAME, status, message, step, lost, HALF, advice=advice, signs=signs, facts=facts)


def settled(evidence: Evidence, signal: Signal, fall: Fall) -> bool:
    """Return whether a fall is there to stay as far as anybody can tell: of a run that goes on,
    once dips of healthy runs are over.
    """
    return fall.lasts and (evidence.ended or len(signal) - fall.row >= _PATIENCE)


def _recovered(name: str, signal: Signal, fall: Fall) -> Finding:
    """Report a fall that was made good."""
    step = int(signal.step_T[fall.row])
    message = f"{name} {arrow(fall.height, fall.end)} at step {step:,}, and came back"
    return Finding(NAME, Status.INFO, message, step, fall.lost, HALF, facts=(Fact.FALL_RECOVERED,))


@dataclass(frozen=True, slots=True)
class Decline:
    """A reward that ends significantly below its height."""

    best: slice  # the rows of its height
    begin: int  # its first row
    middle: int  # the row at which it is halfway
    end: int  # the row from which it stands
    height: float
    after: Interval  # the level of its last rows
    since: int  # the step of the first of them


def decline_of(evidence: Evidence) -> Decline | None:
    """Return the decline of the reward, or None where it stands, or goes on and may come back."""
    found = loss_of(evidence)
    waits = (
        found is not None
        and not evidence.ended
        and len(reward_level(evidence)[0]) - found.middle < 2 * _PATIENCE
    )
    return None if waits else found


@once
def loss_of(evidence: Evidence) -> Decline | None:
    """Return where the reward ends significantly below its height, for however few rows; None
    where it does not.
    """
    from scipy.special import ndtri

    if evidence.reward is None:
        return None
    reward, floor = reward_level(evidence)[0], reward_floor(evidence)
    n = len(reward)
    few = max(5, n // 8)
    if n < 4 * few:
        return None
    levels = moving_mean(reward.value_T, few)[: n - 2 * few + 1]
    best = int(levels.argmax())
    lost = reward.change(slice(best, best + few), slice(n - few, n))
    error = (lost.high - lost.low) / (2 * 1.96)
    height = float(levels[best])
    # The height is the largest of some n/few independent means: a Bonferroni correction for having
    # chosen it. Of a run that goes on the last rows are looked at as often.
    limit = -float(ndtri(WARNING / (n / few) ** (1 if evidence.ended else 2)))
    if (
        height <= floor
        or not lost.value < 0
        or -lost.value < limit * error
        or -lost.value < DECLINED * (height - floor)
    ):
        return None
    onset = best + int(np.argmax(np.cumsum(reward.value_T[best:] - (height + lost.value / 2)))) + 1
    onset = min(onset, n - 1)
    begin, end = span_of_fall(reward, onset)
    # What has regained three quarters of what it lost falls no more; where the held-out reward
    # rises the prompts of training get harder, unless the verifier broke at once.
    since = moving_mean(reward.value_T[best:], few)
    regained = float(since[-1] - since.min())
    climbs = float(since[int(since.argmin()) :].max() - since[-1]) < regained / 2
    back = climbs and regained > max(-3 * lost.value, limit * error)
    if back or (
        not at_once(reward, onset)
        and held_out_rose(evidence, int(reward.step_T[begin])) is not None
    ):
        return None
    late = slice(n - few, n)
    return Decline(
        slice(best, best + few),
        begin,
        onset,
        end,
        height,
        reward.mean(late),
        int(reward.step_T[late.start]),
    )


def held_out_rose(evidence: Evidence, step: int) -> tuple[float, float] | None:
    """Return the levels between which the held-out reward rose beyond doubt since a step, and
    went on to; None where it did not.
    """
    held = evidence.held_out
    row = 0 if held is None else held.at(step)
    few = 0 if held is None else (len(held) - row) // 4
    if held is None or few < 2:
        return None
    begin = row - few if row >= few else row
    middle = (begin + len(held) - few) // 2
    early, between, late = (slice(start, start + few) for start in (begin, middle, len(held) - few))
    if held.score(early, late) < _RISES or held.score(between, late) < 1:
        return None
    return held.level(early), held.level(late)


def _decline(evidence: Evidence) -> Finding | None:
    """Report a reward that ends significantly below its height: a failure where it has stood
    below half of it, beyond doubt, for long.
    """
    found, reward = decline_of(evidence), evidence.reward
    if found is None or reward is None:
        return None
    height, after, step = found.height, found.after, int(reward.step_T[found.begin])
    message = f"reward {arrow(height, after.value)}, falling since step {step:,}"
    advice, fact = (
        "restart from step {step}; lr ÷ 3, if held-out prompts say that it fell",
        Fact.DECLINE,
    )
    level, status = reward_level(evidence)[0], Status.WARNING
    if (
        at_once(level, found.middle)
        and held_out_at(evidence, step, after.value - height) is Fact.HELD_OUT_STAYED
    ):
        fact = Fact.TRAINING_DECLINES_ALONE
    elif len(level) - found.end >= _PATIENCE:
        most = -HALF * (height - reward_floor(evidence))
        status = (
            Status.CRITICAL
            if level.change(found.best, slice(found.end, None)).high < most
            else status
        )
    return Finding(NAME, status, message, step, after, height, advice=advice, facts=(fact,))


def _shortened(evidence: Evidence) -> Finding | None:
    """Report answers that shrank to a tenth of their length and stopped teaching."""
    length = evidence.quantity("completion_length")
    if length is None or len(length) < FEWEST_ROWS:
        return None
    value = length.value_T
    earlier = np.maximum.accumulate(value)
    onset = since_when(value < _TENTH * earlier)
    if onset is None:
        return None
    gradient, alike = evidence.quantity("gradient_norm"), evidence.quantity("dead_group_share")
    after = length.step_T[onset]
    silent = (
        [float(gradient.is_zero[gradient.at(after) :].mean()) > HALF]
        if gradient is not None
        else []
    )
    silent += [median(alike.value_T[alike.at(after) :]) > HALF] if alike is not None else []
    if not silent or not all(silent):
        return None
    step, before, end = int(after), float(earlier[-1]), median(value[onset:])
    ratio = value[onset:] / before
    interval = Interval(
        end / before, float(np.quantile(ratio, 0.025)), float(np.quantile(ratio, 0.975))
    )
    words = f"length {arrow(before, end)}"
    message = f"{words} tokens at step {step:,}, and most groups have taught nothing since"
    sign, advice = (
        Sign("completion_length", step, before, end, words),
        "read the completions: shrunk fixed answers that still earn a reward",
    )
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
        return f"the reward is {reward.value_T[0]:.3g} in all rows: no height to fall from"
    return f"a row scatters by {reward.scatter:.2g}, so much that half of the height could be noise"


HALF = 0.5
# Chance in health of a row below half of the height. Rows are averaged until half of the height is
# three standard deviations.
USUAL = 0.2
_CLEAR = 6.0
# A height is the lower 97.5 % limit of a mean of neighbouring blocks, so that a lucky row makes
# none.
_LUCK = 1.96
# Units of the last printed digit that a fall must have.
_UNITS = 2.5
# Rows of the held-out reward on each side of a drop.
_NEAR = 4
# Nats a token at which the likeliest token has some 98 %.
_CERTAIN = 0.1
# Rows of a fall that came by and by, and twice the log-likelihood by which it must be likelier than
# a step: chance is below 1 %.
_SLOPE, _BETTER = 4, 12.0
# Twice the log-likelihood by which a step must be likelier than a slope: somewhat, and by 95 % of a
# chi-square with one degree of freedom.
_RATHER, _OPEN = 1.0, 3.84
# Rows on either side of a fall that tell a slope from a step: all pairs of them are tried.
_WINDOW = 60


@dataclass(frozen=True, slots=True)
class Fall:
    """A fall from a height."""

    row: int  # of the signal, where it began
    height: float  # level before
    end: float  # level since, or of the lowest stretch where it recovered
    lost: Interval  # share of the height lost, with its interval
    lasts: bool  # whether it holds to the last row


@dataclass(frozen=True, slots=True)
class Ends:
    """From where to where a fall went, and when: the numbers with which everything that speaks
    of it does.
    """

    first: int  # step at which it began
    last: int  # step from which it stands
    before: float  # mean of the rows before
    after: float  # mean of the last rows since
    since: int  # the step of the first of these

    @property
    def where(self) -> str:
        """The steps of it, in words."""
        return (
            f"at step {self.first:,}"
            if self.first == self.last
            else f"at steps {self.first:,}-{self.last:,}"
        )

    def share_lost(self, floor: float, share: Interval) -> Interval:
        """The share of the height that was lost, as surely as it is known; below the level that
        counts as nothing no more than all is.
        """
        lost = (self.before - self.after) / (self.before - floor) if self.before > floor else 1.0
        value, *ends = (
            min(max(lost + end - share.value, 0.0), 1.0)
            for end in (share.value, share.low, share.high)
        )
        return Interval(value, *ends)


def ends_of(level: Signal, fall: Fall) -> Ends:
    """Return from where to where a fall that lasts went: a tenth of the rows on either side of
    the slope that describes it best.
    """
    value, few = level.value_T, max(8, len(level) // 10)
    begin, end = span_of_fall(level, fall.row)
    late = max(end, len(level) - few)
    before, after = (
        float(value[max(0, begin - few) : max(begin, 1)].mean()),
        float(value[late:].mean()),
    )
    return Ends(
        int(level.step_T[begin]), int(level.step_T[end]), before, after, int(level.step_T[late])
    )


def ends_of_reward(evidence: Evidence) -> Ends | None:
    """Return from where to where the reward fell for good; None where it did not."""
    fall = fall_of(evidence)
    return None if fall is None or not fall.lasts else ends_of(reward_level(evidence)[0], fall)


@dataclass(frozen=True, slots=True)
class Constant:
    """A stretch of rows that are all one number, to the end of the log."""

    row: int  # its first
    value: float  # the number
    before: float  # mean of the rows before
    abrupt: bool  # whether the rows just before it still stood where they used to


def constant_tail(signal: Signal) -> Constant | None:
    """Find the stretch of equal rows at the end of a log."""
    value = signal.value_T
    same = np.abs(value - value[-1]) <= 1e-9 * max(1.0, float(np.abs(value).max()))
    different = np.flatnonzero(~same)
    if not different.size:
        return None
    row = int(different[-1]) + 1
    earlier = same[:row]
    usual = max(0.1, 2 * float((earlier.sum() + 1) / (row + 2)))
    # A number that stood there in a quarter of the rows before is nothing new.
    if (
        usual > 0.5
        or row < 3
        or alarm(rare_event_factors(same, usual), rate=CRITICAL) is None
        or len(value) - row < 3
    ):
        return None
    few = max(2, min(5, row // 4))
    typical, just_before = float(value[:row].mean()), float(value[row - few : row].mean())
    level = float(np.mean(value[max(0, row - 4 * few) : row - few])) if row > 2 * few else typical
    # Rows that are window means mix both states once: the row just before the stretch is left out.
    last = float(value[max(0, row - 1 - few) : row - 1].mean()) if row > few else just_before
    fell = level - float(value[-1])
    if abs(fell) < _UNITS * 2 * signal.resolution:
        return None
    # What moved away from it, or within its noise, has not come by and by.
    noise = float(np.sqrt(np.mean(np.diff(value[:row]) ** 2) / few))
    abrupt = bool((level - last) * np.sign(fell) <= max(0.5 * abs(fell), noise))
    # From a level that was one: the last rows of a reward that is dying anyway, or has all but
    # arrived, are no failure of the verifier.
    smooth = moving_mean(value, few)
    farthest = float(np.max((smooth - value[-1]) * np.sign(fell)))
    abrupt &= abs(fell) > 0.3 * farthest
    return Constant(row, float(value[-1]), level, abrupt)


def _stopped(level: Signal, floor: float) -> Fall | None:
    """A reward that has been nothing in every row since a step: fewer rows show that than a fall
    to a level of noise.
    """
    found = constant_tail(level)
    if found is None or found.value > floor + 1e-9 or found.before <= found.value:
        return None
    return Fall(found.row, found.before, found.value, Interval(1.0, 1.0, 1.0), lasts=True)


@once
def fall_of(evidence: Evidence) -> Fall | None:
    """Return the fall of the training reward, without what comes round with the order of its
    data; searched for once.
    """
    if evidence.reward is None:
        return None
    level, floor = reward_level(evidence)[0], reward_floor(evidence)
    return find_fall(level, floor) or _stopped(level, floor)


def row_size(signal: Signal, floor: float) -> int | None:
    """Return how many rows to average so that noise hides no half of the height; None where even
    an eighth of the log does not do.
    """
    few = max(3, len(signal) // 15)
    if len(signal) < FEWEST_ROWS:
        return None
    smooth = moving_mean(signal.value_T, few)
    span = float(smooth.max()) - _LUCK * signal.scatter / np.sqrt(few) - floor
    if span <= 0:
        return None
    size = max(1, int(np.ceil((_CLEAR * signal.scatter / span) ** 2)))
    return size if len(signal) // size >= FEWEST_ROWS else None


def heights(value_T: Float, deviation: float) -> Float:
    """Return the height reached before each row: the largest lower limit of a mean of
    neighbouring rows.
    """
    few = max(3, len(value_T) // 15)
    out = np.full(len(value_T), -np.inf)
    if len(value_T) <= few:
        return out
    smooth = moving_mean(value_T, few) - _LUCK * deviation / np.sqrt(few)
    out[few:] = np.maximum.accumulate(smooth)[: len(value_T) - few]
    return out


def find_fall(signal: Signal, floor: float) -> Fall | None:
    """Find the last fall below half of the height."""
    size = row_size(signal, floor)
    if size is None:
        return None
    value, first = blocks(signal, size)
    deviation = signal.scatter / np.sqrt(size)
    height = heights(value, deviation)
    usable = height - floor >= _CLEAR * deviation
    usable &= height > floor
    below = value < floor + HALF * (np.where(usable, height, np.inf) - floor)
    factors = np.where(usable, rare_event_factors(below, USUAL), 0.0)
    found = alarm(factors, rate=CRITICAL)
    if found is None:
        return None
    start = found.onset
    after = value[start:]
    # Where the evidence has fallen below the threshold again, or the last rows stand high again, it
    # was made good.
    tail = below[-max(2, len(value) // 20) :]
    lasts = found.lasts and bool(tail.mean() >= HALF)
    top = float(np.max(height[start])) if np.isfinite(height[start]) else float(height.max())
    end = float(after.mean()) if lasts else float(after[below[start:]].mean())
    if signal.low < 0 and top - end < 2 * _CLEAR * deviation / np.sqrt(max(3, len(after))):
        return None  # where 0 is no floor slow noise reaches it too
    half = _LUCK * deviation / np.sqrt(max(len(after), 1))
    span = top - floor
    share, off = float((top - end) / span), float(half / span)
    # Below the level that counts as nothing no more than all is lost.
    lost = Interval(min(share, 1.0), min(max(0.0, share - off), 1.0), min(share + off, 1.0))
    return Fall(_closer(signal, int(first[start]), size, (top + end) / 2), top, end, lost, lasts)


def _closer(signal: Signal, row: int, size: int, middle: float) -> int:
    """Place an onset within its block, or before it: back over the rows that were below the
    middle already.
    """
    if size > 1:
        low, high = max(0, row - size), min(len(signal), row + size)
        gain = np.cumsum(signal.value_T[low:high] - middle)
        row = low + int(np.argmax(gain)) + 1 if float(gain.max()) > 0 else low
        return min(row, len(signal) - 1)
    while (
        row > 1
        and signal.value_T[row - 1] < middle
        and signal.value_T[row - 2 : row].mean() < middle
    ):
        row -= 1
    return row


def by_and_by(signal: Signal, row: int) -> bool:
    """Say whether a fall that has reached a row clearly took many: a slope describes it better
    than a step does, about its middle.
    """
    return _for_slope(signal, sum(span_of_fall(signal, row)) // 2) > _BETTER


def at_once(signal: Signal, row: int, *, clearly: bool = True) -> bool:
    """Say whether a fall came from one row to the next, clearly or rather: a step describes it
    better than a slope does.
    """
    return _for_slope(signal, row) < -(_OPEN if clearly else _RATHER)


def _for_slope(signal: Signal, row: int) -> float:
    """Twice the log-likelihood of a slope about a row less that of a step; 0 where nothing can
    be told.
    """
    reach = min(max(8, len(signal) // 4), _WINDOW)
    value = signal.value_T[max(0, row - reach) : row + reach]
    first_E, last_E, explained_E = _ramps(value)
    slope_E = last_E - first_E >= _SLOPE
    if not slope_E.any() or signal.scatter <= 0:
        return 0.0
    step = float(explained_E[first_E == last_E].max())
    return (float(explained_E[slope_E].max()) - step) / signal.scatter**2


def _ramps(value_T: Float) -> tuple[NDArray[np.int64], NDArray[np.int64], Float]:
    """Squares that a higher and a lower level explain, with a slope from one row to another;
    from a row to itself it is a step.
    """
    first_E, last_E = np.triu_indices(len(value_T))
    first_E, last_E = first_E[first_E > 0], last_E[first_E > 0]
    rows_E, after_E = last_E - first_E + 1, len(value_T) - 1 - last_E
    # A slope is the mean of the steps at its rows.
    step_T = np.cumsum((value_T - value_T.mean())[::-1])[::-1]
    sum_T = np.concatenate([[0.0], np.cumsum(step_T)])
    shape_E = (
        (rows_E + 1) * (2 * rows_E + 1) / (6 * rows_E)
        + after_E
        - ((rows_E + 1) / 2 + after_E) ** 2 / len(value_T)
    )
    return (
        first_E,
        last_E,
        np.minimum((sum_T[last_E + 1] - sum_T[first_E]) / rows_E, 0.0) ** 2 / shape_E,
    )


def span_of_fall(signal: Signal, row: int) -> tuple[int, int]:
    """Return the first and the last row of a fall that has reached a row: of the slope that
    describes the log since its height best.
    """
    few = max(5, len(signal) // 15)
    levels = moving_mean(signal.value_T[: max(row, few)], few)
    low, high = int(levels.argmax()), len(signal)
    if high - low < _SLOPE:
        return row, row
    while True:  # in blocks of rows, then closer
        size = int(np.ceil((high - low) / (2 * _WINDOW)))
        means = signal.value_T[low : high - (high - low) % size].reshape(-1, size).mean(axis=1)
        first_E, last_E, explained_E = _ramps(means)
        best = int(explained_E.argmax())
        begin, end = low + size * int(first_E[best]), low + size * int(last_E[best] + 1) - 1
        near = max(low, begin - _WINDOW // 6 * size), min(high, end + 1 + _WINDOW // 6 * size)
        if size == 1 or near[1] - near[0] > (high - low) / 2:
            return begin, end
        low, high = near


def behaviour_change(evidence: Evidence, step: float) -> Fact | None:
    """Say whether entropy and length went on as before over a step.

    The measure is how much the same means of neighbouring stretches moved at any earlier row, so
    that slow drift is no change. A policy that is nearly certain of each token is not another one
    for being more so: what entropy is left below a tenth of a nat does not count.
    """
    ratios = []
    for name in ("entropy", "completion_length", "truncated_share"):
        signal = evidence.quantity(name)
        if signal is None or len(signal) < FEWEST_ROWS:
            continue
        few, row = max(3, len(signal) // 12), signal.at(step)
        if row < few or len(signal) - row < 2:
            continue
        least = _CERTAIN if name == "entropy" else 1e-9
        value = (
            signal.value_T
            if name == "truncated_share"
            else np.log(np.maximum(signal.value_T, least))
        )
        change = abs(float(value[row : row + few].mean() - value[row - few : row].mean()))
        error = _LUCK * long_run_deviation(value) * np.sqrt(2 / few)
        means = moving_mean(value[:row], few)
        moved = np.abs(
            means[few:] - means[:-few]
        )  # between neighbouring stretches, at every row that has both
        ratios.append(change / max(0.2, float(error), float(moved.max(initial=0.0))))
    if not ratios:
        return None
    return Fact.BEHAVIOUR_CHANGED if max(ratios) > 1.3 else Fact.BEHAVIOUR_UNCHANGED


def held_out_at(
    evidence: Evidence, step: float, change: float, *, ever: bool = False
) -> Fact | None:
    """Say whether the held-out reward dropped at a step, half as much as the training reward or
    more.
    """
    held = evidence.held_out
    if held is None:
        return None
    row = held.at(step)
    before, after = (
        slice(max(0, row - _NEAR), row),
        slice(max(row, len(held) - _NEAR) if ever else row, None if ever else row + _NEAR),
    )
    if row < 2 or len(held) - row < 2:
        return None
    found = held.change(before, after)
    if found.low > change / 2:
        # What is down already can drop no further.
        stays = held.level(before) - floor_of(held) > -change / 2
        return Fact.HELD_OUT_STAYED if stays else None
    return Fact.HELD_OUT_DROPPED if found.high < 0 else None
