"""From the numbers of an experiment to the fact that it shows, or None where it cannot tell."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from groupwise.arrays import Float, Places
from groupwise.diagnostics.facts import Fact
from groupwise.diagnostics.judgement import exactly
from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.intervals import Interval, mean_interval, wilson
from groupwise.plain import frozen
from groupwise.wording import ranged, short

# Of what was lost the part that fresh grades must give back, and the correlation with the log by
# which a function is the one that graded.
_HALF, _AGREES, _FEWEST, _BY_CHANCE = 0.5, 0.5, 8, 0.01
# Tokens below minus half of the mean gap, by which a sampler dropped none; a gap that is one.
_BELOW, _GAP, _ROUNDING, _SMALL = 0.05, 0.005, 1e-5, 0.1
_KEPT = 0.3  # of the mass, at least, by a sampler that leaves out what is seldom
# Times the gap of the first turn that later ones have of another history; parts that are told.
_TIMES, _PARTS = 5.0, 8
# The way from the checkpoint to the reference: standard errors beyond doubt, all of it.
_CLEARLY, _ALL, _EXPLAINS = 3.0, 0.8, 0.02
# The chance that two answers are one; the share that is right of a prompt that is too hard.
_ALIKE, _VARIED, _RARELY = 0.5, 0.2, 0.1


@frozen
class Shown:
    """What an experiment shows."""

    fact: Fact | None
    message: str
    value: Interval


def regraded(before_2N: Float, after_2N: Float, *, rose: bool = False) -> Shown:
    """Hold grades of the log (first row) against fresh ones of the same answers, before and since
    a change: what of the loss is in the grades and not in the answers; or of a gain, where the
    reward rose.

    A function that changed grades the answers of one side otherwise than the log did; one that did
    not grades both sides alike, but for a constant.
    """
    if not before_2N.shape[1]:
        return _never_earned(after_2N)
    if min(before_2N.shape[1], after_2N.shape[1]) < _FEWEST:
        raise InsufficientDataError(
            f"expected {_FEWEST} logged answers before the change and since, got "
            f"{before_2N.shape[1]} and {after_2N.shape[1]}: log more completions, or raise -n"
        )
    (was, now_was), (then, now) = before_2N.mean(axis=1), after_2N.mean(axis=1)
    lost = was - then
    gap_of_before, gap_of_after = _gap(before_2N), _gap(after_2N)
    value = gap_of_after.value - gap_of_before.value
    half = math.hypot(gap_of_after.width, gap_of_before.width) / 2
    regained = Interval(value, value - half, value + half)
    message = (
        f"fresh grades {short(now_was)} → {short(now)}, of the same answers in the log "
        f"{short(was)} → {short(then)}"
    )
    fact, part = None, _HALF * lost
    if not np.ptp(np.concatenate([before_2N[1], after_2N[1]])):
        message += "; grades that are all equal tell nothing: is it the function that graded?"
    elif _agrees(before_2N) or _agrees(after_2N):
        if regained.low > max(part, 0.0):
            fact = Fact.GRADES_CHANGED
        elif lost > 0:
            fact = Fact.ANSWERS_CHANGED if regained.high < part else None
        elif rose:
            stands = Fact.GAIN_STANDS if regained.low > part else None
            fact = Fact.GAIN_GONE if regained.high < part else stands
    return Shown(fact, message, regained)


def _never_earned(after_2N: Float) -> Shown:
    """Tell of answers that never earned anything by the log."""
    logged, fresh = after_2N
    if logged.max() > logged.min():
        raise InsufficientDataError(
            "expected a reward that fell or that no answer earned, got one that comes and goes: "
            "there is no before and after to grade"
        )
    earned = wilson(int((fresh > logged).sum()), len(fresh))
    fact = Fact.GRADES_CHANGED if earned.low > _BY_CHANCE else None
    return Shown(
        fact if earned.value else Fact.GRADES_STAND,
        f"{100 * earned.value:.0f} % of these answers earn more by fresh grades than in the log",
        earned,
    )


def _gap(graded_2N: Float) -> Interval:
    """The mean of fresh grades less those of the log; of grades that are all equal as far as so
    many answers can show it.
    """
    gap_N = graded_2N[1] - graded_2N[0]
    interval = mean_interval(gap_N)
    if interval.width:
        return interval
    unseen = wilson(0, len(gap_N)).high * float(np.ptp(graded_2N))
    return Interval(interval.value, interval.value - unseen, interval.value + unseen)


def _agrees(graded_2N: Float) -> bool:
    """Whether fresh grades go with those of the log."""
    varies = graded_2N.std(axis=1).min() > 0
    alike = varies and np.corrcoef(*graded_2N)[0, 1] >= _AGREES
    return bool(alike or np.allclose(*graded_2N))


def rescored(
    gap: Sequence[Float],
    way: Sequence[Float] | None,
    turns: Sequence[Places] | None = None,
    entropy: Sequence[Float] | None = None,
) -> Shown:
    r"""Tell by which weights answers were sampled.

    Of each answer `gap` holds the sampler's log-probabilities less the checkpoint's, and `way`
    those of the reference less the checkpoint's, `entropy` that of the checkpoint. The slope of
    the one on the other is 0 for errors of rounding, 1 where the reference sampled, and between
    both for weights in between. A truncated distribution raises the log-probability of each token
    that it keeps, and lowers none. A history that is tokenised anew leaves the first of its `turns`
    without a gap.
    """
    gap_T = np.concatenate([*gap])
    size_T = np.abs(gap_T)
    mean, size = float(gap_T.mean()), float(size_T.mean())
    half_T = np.concatenate([2 * np.arange(len(answer_T)) // len(answer_T) for answer_T in gap])
    message, value = f"mean gap {mean:.2g} nats, mean size {size:.2g}", exactly(mean)
    message += f" ({_by(half_T, size_T)} by halves of the answers)"
    if entropy is not None:
        entropy_T = np.concatenate([*entropy])
        third_T = np.searchsorted(np.unique(np.quantile(entropy_T, (1 / 3, 2 / 3))), entropy_T)
        message += f" ({_by(third_T, size_T)} at entropies of {_by(third_T, entropy_T)} nats)"
    if turns is not None and (turn_T := np.concatenate([*turns])).any():
        message += f" ({_by(turn_T, size_T)} by turn)"
        later, first = (float(size_T[part].mean()) for part in (turn_T > 0, turn_T == 0))
        if later > max(_GAP, _TIMES * first):
            return Shown(Fact.GAP_AFTER_TURN, message, exactly(later))
    mass = math.exp(-mean)
    truncated = mean > _GAP and mass > _KEPT and (gap_T < -mean / 2).mean() < _BELOW
    kept = f"{message}, none below 0: {mass:.3g} of the mass is kept"
    of_a_part = Shown(Fact.SAMPLED_TRUNCATED, kept, value) if truncated else None
    if way is None:
        unknown = f"{message}; --reference FIRST tells which weights sampled"
        return of_a_part or Shown(None, unknown, value)
    squares = np.array([way_T @ way_T for way_T in way])
    products = np.array([gap_T @ other for gap_T, other in zip(gap, way, strict=True)])
    if squares.sum() < 1e-9 * gap_T.size:
        if of_a_part:
            return of_a_part
        raise InvalidArgumentError(
            "expected two checkpoints that differ, got the same log-probabilities from both: give "
            "the first policy as --reference"
        )
    slope = float(products.sum() / squares.sum())
    error = float(np.sqrt(((products - slope * squares) ** 2).sum()) / squares.sum())
    value = Interval(slope, slope - 1.96 * error, slope + 1.96 * error)
    explained = slope * float(products.sum()) / max(float((gap_T**2).sum()), 1e-300)
    fact = None
    if slope > _CLEARLY * error and explained > _EXPLAINS:
        fact = Fact.SAMPLED_BETWEEN if slope < _ALL else None
        fact = Fact.SAMPLED_BY_REFERENCE if _ALL <= slope <= 2 - _ALL else fact
    elif of_a_part:
        return of_a_part
    elif _ROUNDING < size < _SMALL and abs(slope) < max(_CLEARLY * error, _EXPLAINS):
        fact = Fact.SAMPLED_ALIKE
    return Shown(fact, f"{message}, {slope:.2g} (± {1.96 * error:.1g}) of the way there", value)


def _by(part_T: Places, size_T: Float) -> str:
    """Write the mean of a size in each part of the answers."""
    means = np.bincount(part_T, size_T) / np.maximum(np.bincount(part_T), 1)
    return ", ".join(map(short, means[:_PARTS].tolist()))


def resampled(
    answers: Sequence[Sequence[str]],
    right: int | None,
    change_P: Float | None = None,
    lost_P: Float | float = 0.0,
) -> Shown:
    """Tell whether a policy answers each prompt in one way, or in many that are wrong; of prompts
    of before a fall, by what they earn now less what they earned then, and by what each lost in
    the log, whether it still can.
    """
    count, each = sum(map(len, answers)), min(map(len, answers))
    same = float(np.mean([_collision(texts) for texts in answers]))
    message = f"two answers to a prompt are one in {100 * same:.0f} %"
    if right is None:
        return Shown(Fact.ANSWERS_ALIKE if same >= _ALIKE else None, message, exactly(same))
    share = wilson(right, count)
    passing = [1 - (1 - chance) ** each for chance in (share.low, share.high)]
    message += (
        f", {100 * share.value:.0f} % are right: pass@{each} {passing[0]:.2f} to {passing[1]:.2f}"
    )
    alike = Fact.ANSWERS_ALIKE if same >= _ALIKE and share.value < _HALF else None
    if change_P is not None:
        change, lost = mean_interval(change_P), float(np.mean(lost_P))
        message += f"; they earn {ranged(change)} more than then, of {short(lost)} lost"
        if lost <= 0:  # by these prompts nothing was
            return Shown(alike, message, change)
        kept = mean_interval(change_P + _HALF * lost_P)  # beyond half of the loss
        fell = alike or Fact.PROMPTS_LOST if kept.high < 0 else None
        return Shown(Fact.PROMPTS_STAND if kept.low > 0 else fell, message, change)
    varied = Fact.ANSWERS_VARIED if same <= _VARIED and share.high < _RARELY else None
    return Shown(alike or varied, message, share)


def _collision(texts: Sequence[str]) -> float:
    """The chance that two answers, drawn without replacement, are one."""
    pairs = sum(number * (number - 1) for number in Counter(texts).values())
    return pairs / max(len(texts) * (len(texts) - 1), 1)
