"""Whether a reward rises, stands at its top, stands still below it, falls or came back: the one
decision that fits and checks share.

First and last quarter are compared, with the noise of the rows between them, and the trend of all
rows with theirs. A reward that is not shown to rise is flat only where enough rows looked; before
that nothing is said.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np

from groupwise.arrays import Ends, Float, mean_of, median, moving_mean, row_after, rows_before
from groupwise.diagnostics.falls import (
    Fall,
    LevelChange,
    change_between,
    fall_of,
    held_out_rose,
    late_drop,
    level_changes,
    loss_of,
    reward_level,
    slow_noise,
)
from groupwise.diagnostics.judgement import (
    Fact,
    Finding,
    Learning,
    Status,
    by_sign,
    no_sign,
    not_logged,
)
from groupwise.diagnostics.signals import (
    FEWEST_ROWS,
    OFTEN,
    Evidence,
    NoisyMetric,
    both_ends,
    moved,
    once,
    reward_floor,
    scatter,
    signs_about,
    thirds_since,
)
from groupwise.intervals import Interval
from groupwise.plain import frozen
from groupwise.wording import short

# Rows after which a reward that shows no gain is called flat, as long as the run goes on: before,
# noise may hide one.
ENOUGH = 60
# Rows of a plateau below the top that make one worth a look.
_LONG = 90
# Standard errors that make a gain, and those below which the second half shows none at all.
_GAIN, _LITTLE = 2.0, 0.5
# The part of what it gained in all that a reward which stands cannot have gained since, by the
# upper limit: noise alone hides as much.
_PART = 0.5
# The share of the rows that brought nothing from which a reward that rose is worth a look, and
# standard errors by which it fell back from the best of its stretches, 4 % and 0.5 % by chance.
_WASTED, _FELL, _FELL_SURELY = 0.85, 2.6, 3.4
# Those that a reward once gained, which has begun to rise however low it stands at the moment.
_BEGUN = 3.0
# Rows before and after a fall from one row to the next, and its standard errors.
_ROWS_OF_A_STEP, _CLEARLY = 5, 5.0
# And those of a dip, of a late drop and of a gain beyond doubt, looked for at every row.
_SURELY = 5.0
# Rows that alone make no plateau, and a fall only where they lost a third.
_LAST = 3
# With less than a quarter of the range left a reward that stands still has arrived.
NEAR = 0.25
# Rows from which a run that has ended is told to have learnt nothing: a gain of twice the scatter
# of a row is then three standard errors of its quarters, 2 / sqrt(2 / 5); of fewer rows noise hides
# as much.
ENOUGH_ENDED = 20
# The chances below the quantiles of the interval of a gain, and of two tests of a rise.
_UPPER, _RISES = 0.975, 0.995
_NEARLY_ALL, _TENTH, _JUST_BELOW = 0.8, 0.1, 0.95


@frozen
class Progress:
    """What a reward does, with its raw numbers."""

    learning: Learning
    before: float  # mean of the first twentieth of the rows, or of those before a fall
    after: float  # mean of the last twentieth, or of the rows since a fall
    gain: (
        Interval | None
    )  # the mean of the last quarter less that of the first, with its 95 % interval
    since: int | None
    # the step from which it stands still, falls, or learns no more for too few rows to call it a
    # fall
    steps: int  # between the first row and the last
    now_from: int | None = None  # step of the first of the last rows of which `after` is the mean
    held_out: Ends | None = (
        None  # levels between which the held-out reward rose, where the reward itself shows no gain
    )

    @property
    def change(self) -> LevelChange:
        """The same levels, as a change between the first rows and the last."""
        since = self.now_from or 0
        return LevelChange(since, since, self.before, self.after, since)


@once
def progress_of(evidence: Evidence) -> Progress:
    """Say what the reward of a run does; of one that has ended what it has not learnt in twenty
    rows it never will.
    """
    reward = evidence.reward
    if reward is None:
        return Progress(Learning.UNKNOWN, math.nan, math.nan, None, None, 0)
    steps = int(np.ptp(reward.step_T))
    if len(reward) < FEWEST_ROWS or reward.span == 0:
        ends = float(reward.value_T[0]), float(reward.value_T[-1])
        return Progress(Learning.UNKNOWN, *ends, None, None, steps, reward.step_at(-1))
    level, fall = reward_level(evidence)[0], fall_of(evidence)
    if change := level_changes(evidence).get("reward"):
        return Progress(Learning.FALLING, *change.ends, None, change.first, steps, change.since)
    return _not_fallen(evidence, level) if fall is None else _recovered(level, fall)


def _not_fallen(evidence: Evidence, level: NoisyMetric) -> Progress:
    """The progress of a reward that did not fall, or came back from a dip."""
    early, late = both_ends(level, max(len(level) // 4, 2))
    gain, rises = _gain(level, early, late)
    few = max(3, len(level) // 20)
    ends = both_ends(level, few)
    standing, since = _height(evidence, level, gain, rises=rises)
    drop = _drop_of(evidence, level, since if standing is Learning.FALLING else None)
    if drop is not None and (evidence.ended or standing.gained or standing is Learning.AT_TOP):
        beside = rows_before(drop, few), slice(drop, None)
        learning = Learning.FALLING if evidence.ended else Learning.LEARNING
        return _between(level, beside, learning, gain, level.step_at(drop))
    dip = _dip(evidence, level) if standing is Learning.AT_TOP else None
    if dip is not None:
        return replace(
            _between(level, ends, Learning.RECOVERED, gain, level.step_at(dip[0])), before=dip[1]
        )
    # The gain is of quarters, and its sentence names their levels; noisy ends may say the opposite.
    before, after = (level.level(part) for part in ends)
    flat = standing is Learning.FLAT and since is None
    if flat or (standing.gained and after <= before):
        ends = early, late
    progress = _or_held_out(evidence, level, _between(level, ends, standing, gain, since))
    # A gain that noise makes in less than one of ten, and that may be of use, is not denied.
    hidden = gain.high > useful_gain(level, progress.before) and gain.value + 2 * gain.low > 0
    shows = not flat or not hidden or progress.held_out
    return progress if shows else replace(progress, learning=Learning.UNKNOWN)


def _drop_of(evidence: Evidence, level: NoisyMetric, since: int | None) -> int | None:
    """The row from which the last are lower, since a step if that is known: too few for a fall, or
    of a run that goes on those that fell back, or declined but for the wait.
    """
    just, row = late_drop(level, reward_floor(evidence)), None if since is None else level.at(since)
    if just and (row is None or just[0] - row < level.tenth):  # tenths tell since when less well
        row = just[0]
    if row is not None or evidence.ended:
        return row
    fell, lost = _fell_back(evidence, level, 0), loss_of(evidence)
    return lost.begin if fell is None and lost else fell


def _between(
    level: NoisyMetric,
    ends: tuple[slice, slice],
    standing: Learning,
    gain: Interval | None,
    since: int | None,
) -> Progress:
    """The progress between two stretches of rows, of which the second is the last."""
    change = change_between(level, *ends, (0, -1))
    return Progress(standing, *change.ends, gain, since, change.last - change.first, change.since)


def _height(
    evidence: Evidence, level: NoisyMetric, gain: Interval, *, rises: bool
) -> tuple[Learning, int | None]:
    """Whether a reward gains, stands or has arrived, and since when it stands."""
    near = _held_out_arrived(evidence) or near_top(evidence, level)
    standing, since = _course(evidence, level, gain, rises=rises, near=near)
    if (
        standing is Learning.FLAT
        and since is None
        and near is None
        and (piled_up(evidence, level) or at_a_ceiling(evidence))
    ):
        standing = Learning.AT_TOP
    if standing in (Learning.FLAT, Learning.ARRIVED) and _climbs(level, reward_floor(evidence)):
        standing, since = Learning.LEARNING, None
    return standing, since


def _or_held_out(evidence: Evidence, level: NoisyMetric, progress: Progress) -> Progress:
    """The progress of a reward that stands where prompts chosen by their pass rate, or harder
    ones, or noise keep it: what the held-out one does.
    """
    if progress.learning not in (Learning.FLAT, Learning.ARRIVED):
        return progress
    since, learning = progress.since, Learning.LEARNING
    first = level.step_at(0) if since is None else since
    rose = held_out_rose(evidence, first)
    if rose is None and since is None and progress.gain and progress.gain.high > 0:
        rose, learning = held_out_rose(evidence, first, late_gain=-_GAIN), Learning.ARRIVED
    by_held_out = replace(progress, learning=learning, since=None, held_out=rose)
    return progress if rose is None else by_held_out


def _dip(evidence: Evidence, level: NoisyMetric) -> tuple[int, float] | None:
    """The row and the level of the lowest three rows, where they lost a third of the height that
    was reached before, and is again.
    """
    few, floor = 3, reward_floor(evidence)
    means = moving_mean(level.value_T, few) - floor
    late = level.late - floor
    height = np.minimum(np.maximum.accumulate(means)[:-few], late)
    lost = height - means[few:]
    row = int(lost.argmax())
    if lost[row] < max(height[row] / 3, _SURELY * level.scatter * np.sqrt(2 / few)):
        return None
    return row + few, float(means[row + few]) + floor


def _recovered(level: NoisyMetric, fall: Fall) -> Progress:
    """The progress of a reward that fell for a while."""
    step = level.step_at(fall.row)
    _, late = both_ends(level, level.tenth)
    return replace(_between(level, (late, late), Learning.RECOVERED, None, step), before=fall.end)


def _course(
    evidence: Evidence, level: NoisyMetric, gain: Interval, *, rises: bool, near: bool | None
) -> tuple[Learning, int | None]:
    """Tell rising from standing still, at the top or below it; and the step since when it
    stands.
    """
    n = len(level)
    if rises:
        return _since_its_gain(evidence, level, near=near)
    if near:
        return Learning.AT_TOP, None
    if evidence.ended:
        # Rows that cannot tell it from one that has learnt all there was do not show it.
        left = (
            math.inf
            if level.bounds is None
            else level.bounds[1] - level.level_until(max(n // 4, 2))
        )
        stands = n >= ENOUGH_ENDED and gain.high < left
    else:  # noise may yet hide a gain: for long only what has not even begun to rise stands
        stands = (n >= ENOUGH and gain.value < 0 and not _begun(level)) or n >= 3 * ENOUGH
    return (Learning.FLAT if stands else Learning.UNKNOWN), None


def useful_gain(level: NoisyMetric, before: float) -> float:
    """Return the least gain that is of use: a tenth of the range, else half of a level before, or
    of the scatter of a row where that is larger: a level of about 0 is no measure.
    """
    if level.bounds:
        return _TENTH * float(np.ptp(level.bounds))
    return _PART * max(abs(before), level.scatter)


def _gain(level: NoisyMetric, early: slice, late: slice) -> tuple[Interval, bool]:
    """Return the gain between two stretches with its 95 % interval, and whether they, or the trend
    of all rows, show that there is one.

    The noise is as slow as the rows show, and Student's quantile is that of the independent rows
    which it was estimated from. A rise of many rows is no parabola, and counts as slow noise: five
    errors by the scatter of blocks show it as well.
    """
    from scipy.special import stdtrit

    noise, rows = _noise_of(level)
    quantile, surely = (float(stdtrit(rows, chance)) for chance in (_UPPER, _RISES))
    change = level.change(early, late)
    error = max(noise, level.deviation) * math.sqrt(2 / (late.stop - late.start))
    half = quantile * error
    rises = (
        change.value > surely * error
        or _trend(level.value_T, noise) > surely
        or level.score(early, late) > _SURELY
    )
    widest = float(np.ptp(level.bounds)) if level.bounds else math.inf
    return Interval(
        change.value, max(change.value - half, -widest), min(change.value + half, widest)
    ), rises


def _noise_of(level: NoisyMetric) -> tuple[float, float]:
    """Return the noise of a row and the number of independent rows about a parabola in the square
    root of time; no less than the scatter of a row.
    """
    n = len(level)
    noise = slow_noise(level.value_T, np.sqrt(np.linspace(0, 1, n)), 2)
    return max(noise, (max(level.scatter, 1e-12), n - 3.0))


def _trend(value_T: Float, noise: float) -> float:
    """The trend of a reward in the square root of time, in which early rows change fastest, over
    its standard error.
    """
    time = np.sqrt(np.arange(len(value_T)))
    time -= time.mean()
    return float(time @ value_T) / math.sqrt(time @ time) / noise


def _begun(level: NoisyMetric) -> bool:
    """Whether a reward stood clearly above its first quarter in the second or the third: it
    learnt, and dips.
    """
    quarter = len(level) // 4
    return any(
        level.score(slice(0, quarter), slice(row, row + quarter)) > _BEGUN
        for row in (quarter, 2 * quarter)
    )


def _since_its_gain(
    evidence: Evidence, level: NoisyMetric, *, near: bool | None
) -> tuple[Learning, int | None]:
    """Tell a reward that gained and goes on from one that stands, and since when."""
    n, half = len(level), len(level) // 2
    gained = level.change(slice(max(n // 10, 1)), slice(n - n // 4, n)).value
    # A plateau is not made by its last three rows.
    both = (level, replace(level, step_T=level.step_T[:-_LAST], value_T=level.value_T[:-_LAST]))

    def stood(row: int, below: float, part: float = _PART) -> bool:
        return all(
            _still(stretch, row, below=below)
            and stretch.change(*thirds_since(stretch, row)).high < part * gained
            for stretch in both
        )

    still, span = _still(level, half), np.ptp(level.bounds or (0.0,))
    # Near its top a gain that is certain is none to speak of where its upper limit is small.
    small = near and level.change(*thirds_since(level, half)).high < _TENTH * span
    if n >= ENOUGH and near is not False and (still or small):
        return Learning.AT_TOP, level.step_at(half)
    # Below its top a reward that has stood for most of a long log is worth a look; before that it
    # is learning, if little, or has risen.
    looks = (
        ((n // 4, _LONG, _GAIN), (half, ENOUGH, _LITTLE)) if evidence.ended and n >= ENOUGH else ()
    )
    since = next(
        (row for row, fewest, below in looks if n - row >= fewest and stood(row, below)), None
    )
    if not still or since is None:
        if not evidence.ended:
            return Learning.LEARNING, None
        gains = _trend(level.value_T[half:], _noise_of(level)[0]) > _GAIN
        if not gains and stood(half, _GAIN, math.inf):
            return Learning.ROSE, level.step_at(half)
        # A last third may rise by less than its error and by a tenth of the whole gain at most.
        last = thirds_since(level, 0)[1].start
        rose = n >= ENOUGH and stood(last, 1, _TENTH)
        return (Learning.ROSE, level.step_at(last)) if rose else (Learning.LEARNING, None)
    row = _arrived(level, since)
    fell = _fell_back(evidence, level, row)
    if fell is not None:
        return Learning.FALLING, level.step_at(fell)
    begun = _arrived(level, 0)  # by the noise of a few rows: it must be shown to stand since
    if n - begun >= _WASTED * n and stood(begun, _GAIN):
        return Learning.FLAT, level.step_at(begun)
    return Learning.ARRIVED, level.step_at(row)


def _fell_back(evidence: Evidence, level: NoisyMetric, row: int) -> int | None:
    """The row from which the last are clearly below the best ones since a row: of a run that ended
    beyond doubt or with another sign, of one that goes on it may be a dip.
    """
    few, value_T, ended = max(_ROWS_OF_A_STEP, len(level) // 10), level.value_T, evidence.ended
    means = moving_mean(value_T[row:], few)
    until = row + int(means.argmax()) + few  # a fall is no noise of the rows before it
    time = np.sqrt(np.arange(until))
    noise = level.deviation if ended else slow_noise(value_T[:until], time, 2)[0]
    far, error = means.max() - means[-1], noise * math.sqrt(2 / few)
    little = 0.0 if ended else _TENTH * (means.max() - reward_floor(evidence))
    if not far > max(_FELL * error, little):
        return None
    begin = row + few // 2 + row_after(means > means[-1] + far / 2)
    surely = not ended or far > _FELL_SURELY * error
    return begin if surely or signs_about(evidence, level.step_at(begin)) else None


def _arrived(level: NoisyMetric, row: int) -> int:
    """The first row from one on at which a reward is where it stands to the end: of the first
    few that are, by their noise, the middle.
    """
    few = max(_ROWS_OF_A_STEP, len(level) // 20)
    stands = level.level(thirds_since(level, row)[1])
    near = moving_mean(level.value_T[row:], few) >= stands - level.deviation / math.sqrt(few)
    first = int(near.argmax())
    return row + first + (few // 2 if first else 0)


def _still(level: NoisyMetric, row: int, *, below: float = _GAIN) -> bool:
    """Whether a reward shows no gain from a row to the end: between the first and the last third
    of those rows.
    """
    return level.score(*thirds_since(level, row)) < below


def _climbs(level: NoisyMetric, floor: float) -> bool:
    """Whether a reward falls at once, by less than half of its height, once or more, and climbs
    again each time, as prompts get harder.
    """
    few, n, value = _ROWS_OF_A_STEP, len(level), level.value_T
    if n < ENOUGH:
        return False
    means = moving_mean(value, few) - floor
    before, after = means[:-few], means[few:]
    drop, cuts = before - after, [0, n]
    # What such means differ by at the usual row, beside the climb, is noise, however slow it is.
    error = max(level.scatter * math.sqrt(2 / few), scatter(drop))
    while drop[row := int(drop.argmax())] > _CLEARLY * error:
        if after[row] < 0.5 * before[row]:
            return False
        cuts.append(row + few)
        drop[max(0, row - 2 * few) : row + 2 * few] = 0.0
    gains = [
        means[end - few] - means[begin]
        for begin, end in itertools.pairwise(sorted(cuts))
        if end - begin >= 3 * few
    ]
    return len(gains) > 1 and bool(min(gains) > _BEGUN * error)


def near_top(evidence: Evidence, level: NoisyMetric) -> bool | None:
    """Return whether the last quarter of the reward stands near the top of its range; None where
    the top is not known. One that is 0, its lowest, in most of these rows is at no top.
    """
    late = -max(len(level) // 4, 1)
    if level.high > level.low == median(level.value_T[late:]) == 0:
        return False
    now = level.level_from(late)
    if evidence.by_tenths:  # rows just below a tenth, none of which is above it, tell it
        return True if now > _JUST_BELOW * _TENTH else None
    if level.bounds is None:  # of a sum each function may stand near 1
        if 2 * now < level.high == np.sort(level.value_T)[-_LAST]:
            return False  # what several batches earned is no lucky number
        parts = [part.high <= 1 and part.level_from(late) for part in evidence.functions.values()]
        return min(parts, default=0.0) > 1 - _TENTH or None
    low, high = level.bounds
    left = (high - now) / (high - low)
    # Between the ends of a sum there may be easy parts: the last tenth of its range is its top.
    if evidence.memo.get("ends") and _TENTH < left <= NEAR:
        return None
    return left <= NEAR


def piled_up(evidence: Evidence, level: NoisyMetric, *, since: int = 0) -> bool:
    """Whether nearly all rollouts earn one and the same reward above 0, row for row since a row:
    a top that is not known.
    """
    equal, spread = evidence.groups.zero_variance, evidence.groups.spread
    rows = level.value_T[min(since, len(level) - 1) :]
    low, high = float(rows.min()), float(rows.max())
    alike = equal.known and equal.median > _NEARLY_ALL
    alike = alike or (spread.known and spread.median < _TENTH * high)
    return alike and low > 0 and low > _NEARLY_ALL * high


def at_a_ceiling(evidence: Evidence, *, since: int | None = None) -> bool:
    """Whether a reward stands exactly at its largest value again and again, and close to it in
    all rows (since a step) together.
    """
    reward = evidence.reward
    if reward is None:
        return False
    top = reward.high
    rows = reward.value_T[0 if since is None else min(reward.at(since), len(reward) - 1) :]
    return mean_of(rows) > (1 - _TENTH) * top > 0 and mean_of(rows == top) >= OFTEN


def _held_out_arrived(evidence: Evidence) -> bool:
    """Whether a held-out share stands near its top."""
    held = evidence.held_out
    if held is None or held.low < 0 or held.high > 1:
        return False
    return bool(held.level_from(-max(len(held) // 4, 1)) >= 1 - NEAR)


_FEWEST_RATES = 3
# A rate is so many times that of the row before: a warm-up does that in its first rows.
_TREBLED = 3.0


def zero_learning_rate(evidence: Evidence) -> Finding:
    """Look for a learning rate of 0, throughout, since a step to which no schedule had brought
    it down, or long after a schedule's end.
    """
    signal, nothing = evidence.quantity("learning_rate"), "the policy cannot learn"
    if signal is None or len(signal) < _FEWEST_RATES:
        stated, hidden = evidence.setting("learning_rate"), evidence.unmeasured("learning_rate")
        if stated == 0:
            return _no_rate(f"the learning rate is 0 in the settings: {nothing}", None)
        if stated is not None and hidden:
            return no_sign(
                f"No sign of a problem: the learning rate is {short(stated)} in the settings; "
                f"{hidden}."
            )
        return not_logged(hidden or "the learning rate is not in the log")
    row, n = row_after(~signal.is_zero), len(signal)
    if not row:
        return _no_rate(f"the learning rate is 0 in all {n} rows: {nothing}", signal.step_at(0))
    before = median(signal.value_T[rows_before(row, 3)])
    by_schedule = before < _TENTH * signal.high
    if n - row < (max(10, n // 4) + 1 if by_schedule else max(5, n // 20)):
        last = (
            short(signal.value_T[-1])
            if signal.value_T[-1] or not signal.resolution
            else f"below {signal.resolution:g}"
        )
        return _rise(evidence, signal) or no_sign(
            f"No sign of a problem: the learning rate is {last}."
        )
    step = signal.step_at(row)
    message = (
        f"the learning rate went {short(before)} → 0 at step {step:,}, so the policy could not "
        f"learn in the last {n - row} rows"
    )
    return _no_rate(message, step, Status.WARNING if by_schedule else Status.CRITICAL)


def _rise(evidence: Evidence, rate: NoisyMetric) -> Finding | None:
    """Report a rate that rose at once behind the first rows, in which it warms up; of several rises
    the last before the reward had lost half of what it lost.
    """
    value, fall = rate.value_T, level_changes(evidence).get("reward")
    last = rate.step_T[-1] if fall is None else (fall.first + fall.last) / 2
    rose = value[1:] > _TREBLED * (value[:-1] + rate.resolution)
    rose &= (value[:-1] > 0) & (rate.step_T[1:] <= last)
    row = 1 + int(np.flatnonzero(rose).max(initial=0))
    if row < FEWEST_ROWS:
        return None
    before, after = float(value[row - 1]), float(value[row])
    sign = moved("learning_rate", rate.step_at(row), before, after)
    message = f"{sign.words} from step {sign.step:,}."
    return by_sign(message, sign, _TREBLED * before, Fact.RATE_ROSE, status=Status.INFO)


def _no_rate(message: str, step: int | None, status: Status = Status.CRITICAL) -> Finding:
    """Report a learning rate of 0."""
    return Finding(status, message, step, facts=(Fact.RATE_ZERO,))
