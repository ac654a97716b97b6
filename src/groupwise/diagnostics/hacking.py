r"""Reward hacking: the training reward rises and the held-out or true reward does not.

The coupling $C = \Delta\text{held out}/\Delta\text{training}$ between two stretches, with an
interval, wherever the training reward moved beyond its noise. A reward function that is logged but
carries no weight in the total counts as held out. No text is judged. Source: 2210.10760; the
coupling ratio of 2606.30789.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from groupwise.arrays import Float, Whole, mean_of, moving_mean, row_after, rows_before
from groupwise.diagnostics import verifier
from groupwise.diagnostics.causes import MUCH_LONGER
from groupwise.diagnostics.falls import (
    DECLINED,
    HELD_OUT,
    LevelChange,
    column_change,
    end_levels,
    level_changes,
    sixths,
    span_of_fall,
)
from groupwise.diagnostics.judgement import (
    Fact,
    Finding,
    Learning,
    Sign,
    Status,
    no_sign,
    not_logged,
)
from groupwise.diagnostics.learning import progress_of
from groupwise.diagnostics.numerics import finite
from groupwise.diagnostics.signals import (
    FALSE_ALARM,
    FALSE_WARNING,
    FEWEST_ROWS,
    FORM,
    LOG_REWARD,
    Evidence,
    NoisyMetric,
    arrow,
    at_steps,
    long_run_deviation,
)
from groupwise.diagnostics.verifier import (
    LOST,
    UNPAID,
    WANTED,
    beside_selection,
    earns_nothing,
    gained_nothing,
    of_task,
    together,
    weights_of,
)
from groupwise.intervals import Interval
from groupwise.plain import frozen
from groupwise.record.run import cut
from groupwise.wording import clean, number, ranged, short

# Held-out gain over training gain below which a gain is called not transferred: a quarter. Where
# both are logged, the healthy runs of the log collection stand at 1.0 to 1.4 and the hacked at 0.02
# and less (lab/experiments/diagnosis/labels.csv): the place matters little.
TRANSFER = 0.25
# A held-out gain that is above 0 beyond doubt is overfitting or saturation, unless it is less than
# a twentieth.
NEGLIGIBLE = 0.05
# A warning where it is less than a half beyond doubt: the limit is taken at a quantile that allows
# for every stretch that was tried.
_HALF, _MANY = 0.5, 2.8
# Pairs from which a run that goes on is told that its gain is not shared.
_FEWEST_GOING = 10
# Standard errors by which the held-out reward gained at first, and the share of the log in which a
# loophole parts the two.
_GAINED, _ABRUPT = 1.64, 0.15
# Of a leap: the share of the log it takes at most, its standard errors beyond the pace of before,
# and how many times that pace it is.
_LEAPS, _FASTER, _PACE = 0.2, 2.0, 1.5
# The share of the log over which training that is learnt by heart parts at the least.
_SLOWLY = 0.3
# A level, and a gain, that are next to nothing of a function of 0 and 1.
_LITTLE = 0.02
# Rows that two columns must share to be looked at beside each other.
_FEWEST_IN_COMMON = 12
# Share of the gain below which a function has earned nothing of it.
NOTHING = 0.1
# The KL to the reference from which answers are of another kind.
_FAR = 0.1


def reward_hacking(evidence: Evidence) -> Finding:
    """Look for a training reward that rises without the held-out one, and for reward functions
    that part; what comes after the numbers of the update ended is none of the policy's.
    """
    stopped = finite(evidence)
    if stopped.step and stopped.status is Status.CRITICAL:
        evidence = replace(evidence, record=cut(evidence.record, stopped.step - 1))
    reward = together(evidence)[0]
    if reward is None:
        return not_logged(evidence.no_reward, LOG_REWARD)
    pairs = pairs_of(evidence)
    pair = pairs[0] if pairs else None
    held = None if pair is None or pair.same else pair
    findings = [_of_pair(judged_pair, evidence, held) for judged_pair in pairs]
    if all(finding is None or finding.status is Status.INFO for finding in findings):
        findings = [
            _one_earns_all(evidence),
            _parted(evidence, pair),
            *findings,
        ]
    worst = min(
        filter(None, findings),
        key=lambda finding: finding.status is Status.INFO,
        default=None,
    )
    if worst:
        sure = worst.status is Status.CRITICAL
        worst = replace(worst, facts=(*worst.facts, Fact.LOOPHOLE)) if sure else worst
        return worst if held is None else beside_selection(worst, evidence)
    if pair is None:
        held_out = evidence.held_out
        if held_out and _scales(reward.value_T, held_out.value_T) is None:
            return not_logged(OTHER_UNITS, LOG_UNITS)
        return not_logged(
            f"the log has fewer than {FEWEST_PAIRS} rows of a held-out or true reward, so a rise "
            "of the reward cannot be separated from reward hacking",
            f"at least {FEWEST_PAIRS} rows of {held_out.name} beside the reward; it has "
            f"{len(held_out)}"
            if held_out
            else LOG,
        )
    moved = "The training reward has not changed by more than four standard errors"
    if coupling := coupling_of(pair, *pair.ends):
        times = f"{number(coupling.value)} times as much"
        moved = f"The training reward moved, and {pair.grader} moved {times}"
    return no_sign(f"{moved}.")


def _of_pair(pair: Pair, evidence: Evidence, held_out: Pair | None) -> Finding | None:
    """Report what parts training from one reward; a function without weight beside a held-out
    reward must have fallen.
    """
    finding = (
        None
        if pair.same and (held_out is not None or not pair.judges)
        else _uncoupled(pair, evidence)
    )
    if pair.same and (finding is None or finding.status is Status.INFO):
        finding = _left_behind(pair, held_out) or finding
    elif finding and finding.status is not Status.INFO and not pair.same:
        finding = _of_other_prompts(pair, evidence, finding)
    warns = finding and finding.status is Status.WARNING
    fresh = finding and warns and _too_fresh(pair, evidence, finding)
    return None if fresh or _fell_with_training(pair, evidence) else finding


def _of_other_prompts(pair: Pair, evidence: Evidence, finding: Finding) -> Finding:
    """The finding of a held-out reward that gained first, or that stands low: training that parts
    from it by and by may be learnt by heart, and prompts may be too hard.
    """
    best, last, few = _best_of(pair), pair.ends[1], few_of(pair)
    gained, error = pair.gain_held_out(pair.ends[0], best)
    held, noise = pair.gain_held_out(best, last)
    fell = held < -_limit(pair) * noise
    harder = pair.held_M[:few].mean() < _HALF * pair.train_M[:few].mean()
    # From its floor nothing can be lost, to a loophole or else.
    height = mean_of(pair.held_M[best])
    low = pair.held_M.min() >= 0 and height < TRANSFER * pair.train_M[last].mean()
    floor = low and (not fell or held > -_HALF * height)
    slowly = gained > _limit(pair) * error and parting_of(pair).length > _LEAPS
    if slowly and fell and _by_heart(pair, evidence, best):
        return replace(finding, status=Status.WARNING, facts=(Fact.LEARNT_BY_HEART,))
    leapt = _leapt(pair, parting_of(pair)) and not floor
    if finding.status is Status.WARNING or leapt or not (slowly or harder or floor):
        return finding
    fact = Fact.HELD_OUT_FALLS_AS_TRAINING_RISES if fell else Fact.HELD_OUT_STANDS_AFTER_GAIN
    return replace(finding, status=Status.WARNING, facts=(fact,) if slowly else ())


def _by_heart(pair: Pair, evidence: Evidence, best: slice) -> bool:
    """Whether training goes on since the held-out reward was best, for long and no faster than
    before, on prompts that it has seen.
    """
    gain, noise = pair.gain_of_training(best, pair.ends[1])
    parting, passes = parting_of(pair), evidence.quantity("epoch")
    seen = passes is None or passes.high > 1
    goes_on = gain > _limit(pair) * noise and parting.shortest > _SLOWLY
    return seen and goes_on and _slow(pair, parting)


def _fell_with_training(pair: Pair, evidence: Evidence) -> bool:
    """Whether training, which falls, has lost since the other reward was last at its height: no
    loophole pays for that.
    """
    few, levels = _levels(pair)
    near = levels >= levels.max() - _FASTER * pair.held_deviation / np.sqrt(few)
    row = int(np.flatnonzero(near)[-1])
    since = slice(row, row + few), pair.ends[1]
    held, (gain, noise) = pair.gain_held_out(*since)[0], pair.gain_of_training(*since)
    falls = progress_of(evidence).learning is Learning.FALLING
    return falls and gain < min(-_GAINED * noise, TRANSFER * held)


def _left_behind(pair: Pair, held_out: Pair | None) -> Finding | None:
    """Report a reward function without weight that fell, or has not gained, since training parted
    from it: both grade the same answers.

    The stretches are all rows before the two part and all since, and the gap between them must open
    beyond every onset that was tried.
    """
    parting, n = parting_of(pair), len(pair.step_M)
    begin, end = parting.rows(pair)
    before, after = slice(0, begin), slice(end, n)
    if min(begin, n - end) < FEWEST_PAIRS:
        return None
    # Where something speaks for training only a fall beyond doubt asks for a look.
    coupling, doubtful = coupling_of(pair, before, after), _follows(held_out) or not pair.judges
    if coupling is None:
        return _falls_alone(pair, rows_before(begin, n - end), after, doubtful=doubtful)
    gain, opened = pair.gain_of_training(before, after)[0], _opened(pair, before, after)
    # The noise of the answers is in both: the gap may tell what is not shared where either scatters
    # too much.
    if gain <= 0 or opened < 0 or (coupling.high >= TRANSFER and opened < _HALF * gain):
        return None
    held, noise = pair.gain_held_out(before, after)
    fell = held < -_GAINED * noise
    if (doubtful and held > -_limit(pair) * noise) or (held_out is not None and not fell):
        return None
    status = Status.CRITICAL if fell and not doubtful else Status.WARNING
    return _finding(pair, coupling, status, f" since step {parting.step:,}")


def _falls_alone(pair: Pair, before: slice, after: slice, *, doubtful: bool) -> Finding | None:
    """Report a reward function without weight that fell beyond doubt while training stood."""
    held, noise = pair.gain_held_out(before, after)
    stands = pair.gain_of_training(before, after)[0] > TRANSFER * held
    if held > -_limit(pair) * noise or not stands or _opened(pair, before, after) < 0:
        return None
    return _finding(pair, None, Status.WARNING if doubtful else Status.CRITICAL)


def _limit(pair: Pair, *, looks: int = 1) -> float:
    """Standard errors of a change beyond doubt, though every row may be its onset; twice where
    it is looked for at every row, too.
    """
    from scipy.special import ndtri

    return -float(ndtri(FALSE_WARNING / len(pair.step_M) ** looks))


def _opened(pair: Pair, before: slice, after: slice) -> float:
    """By how much training gained on the other reward at the least; below 0 where it is in doubt
    whether it did.
    """
    gap = pair.train_M - pair.held_M
    gain, error = _gain(gap, long_run_deviation(gap), before, after)
    return gain - _limit(pair) * error


def _too_fresh(pair: Pair, evidence: Evidence, finding: Finding) -> bool:
    """Whether a run goes on and parted only a few held-out rewards ago: low ones in a row come
    back in health.
    """
    return not evidence.ended and int((pair.step_M >= (finding.step or 0)).sum()) < FEWEST_PAIRS


def _uncoupled(pair: Pair, evidence: Evidence) -> Finding | None:
    """Report a training gain that the held-out reward does not share: over the whole run, or
    since its best.
    """
    enough = evidence.ended or len(pair.step_M) >= _FEWEST_GOING
    rose = _of_rise(pair, *pair.ends) if enough else None
    finding, turned = _throughout(pair, rose, TRANSFER), _turned(pair)
    if finding and (finding.status is Status.INFO or not turned):
        return finding
    since = _since_its_best(pair, evidence)
    if since is None and finding is None and evidence.ended and len(pair.step_M) >= _FEWEST_GOING:
        finding = _throughout(pair, rose, _HALF)
    if not finding or finding.status is Status.INFO or (since and since.status is not Status.INFO):
        return since
    # Of what shares a little, or gained at first and was lost, a loophole is one cause of two.
    gained = turned or (rose is not None and rose.value > 0)
    facts = (Fact.HELD_OUT_STANDS_AFTER_GAIN,) if gained else finding.facts
    return replace(finding, status=Status.WARNING, facts=facts)


def _turned(pair: Pair) -> bool:
    """Whether the held-out reward gained to its best and lost since, both beyond doubt: of what it
    did the mean over the whole log tells nothing.
    """
    best, limit = _best_of(pair), _limit(pair)
    (gained, error), (lost, noise) = (
        pair.gain_held_out(*ends) for ends in ((pair.ends[0], best), (best, pair.ends[1]))
    )
    return not pair.same and gained > limit * error and lost < -limit * noise


def _throughout(pair: Pair, whole: Interval | None, least: float) -> Finding | None:
    """Report a gain of which less than a share is shared over the whole run, beyond doubt."""
    if whole is None or whole.high >= least:
        return None
    status = Status.CRITICAL if whole.low <= 0 or whole.value < NEGLIGIBLE else Status.WARNING
    if pair.scale != 1.0:
        # gains in units of their own say little of each other: the held-out one must be shown to
        # stand
        held, error = pair.gain_held_out(*pair.ends)
        if held + 1.96 * error > NEGLIGIBLE:
            return None
        status = Status.CRITICAL if held < -_GAINED * error else Status.WARNING
    late = _solved(pair, few_of(pair)) or _followed(pair)
    status = Status.INFO if late and whole.high >= 0 else status
    return _finding(pair, whole, status, " over the whole log")


def _levels(pair: Pair) -> tuple[int, Float]:
    """The rows of a stretch, and the held-out level of each before the last."""
    few = few_of(pair)
    return few, moving_mean(pair.held_M, few)[: len(pair.step_M) - 2 * few + 1]


def _best_of(pair: Pair) -> slice:
    """The stretch in which the held-out reward was best, of those before the last."""
    few, levels = _levels(pair)
    return slice(best := int(levels.argmax()), best + few)


def _since_its_best(pair: Pair, evidence: Evidence) -> Finding | None:
    """Report a held-out reward that fell from its best while training rose, or that stood, or
    that fell alone.
    """
    from scipy.special import ndtri

    early, late = _best_of(pair), pair.ends[1]
    held, error = pair.gain_held_out(early, late)
    coupling = _of_rise(pair, early, late)
    if coupling is None or held >= float(ndtri(FALSE_ALARM / len(pair.step_M))) * error:
        finding = _flat_since(pair)
    # What was gained before and is mostly kept was learnt: the training prompts are learnt by heart
    # beyond it.
    elif -held <= _HALF * pair.gain_held_out(pair.ends[0], early)[0]:
        finding = _behind(pair, early.start, coupling, gained=True)
    else:
        where = f" since its best, at step {pair.step_M[early.start]:,}"
        return _finding(pair, coupling, Status.CRITICAL, where)
    open_ = (
        not finding
        or finding.status is Status.INFO
        or Fact.HELD_OUT_STANDS_AFTER_GAIN in finding.facts
    )
    return (_fell(pair, evidence) if open_ else None) or finding


def _fell(pair: Pair, evidence: Evidence) -> Finding | None:
    """Report a held-out reward that lost an eighth of its best level beyond doubt, and training
    did not lose as much.
    """
    early, late = _best_of(pair), pair.ends[1]
    held, error = pair.gain_held_out(early, late)
    height = mean_of(pair.held_M[early])
    height = height if pair.held_M.min() >= 0 else float(np.ptp(pair.held_M))
    gain, noise = pair.gain_of_training(early, late)
    if (
        pair.same
        or gain < TRANSFER * held
        or -held < max(_limit(pair, looks=1 if evidence.ended else 2) * error, DECLINED * height)
    ):
        return None
    step = max(parting_of(pair).step, int(pair.step_M[early.start]))
    change = pair.fall or _held_out_change(pair, step, early, late)
    sign = _sign("held_out", pair.name, step, change)
    reward = arrow(*(mean_of(pair.train_M[part]) / pair.scale for part in (early, late)))
    message = f"{sign.words} since step {step:,}, training reward at the same steps {reward}"
    # A loophole pays: training that cannot have gained half as much found none.
    rose = gain + _GAINED * noise > -_HALF * held
    lost = Interval(held, held - 1.96 * error, held + 1.96 * error)
    fact = Fact.HELD_OUT_FALLS_AS_TRAINING_RISES if rose else Fact.HELD_OUT_FALLS_ALONE
    return Finding(
        Status.WARNING, message, step, lost, -DECLINED * height, signs=(sign,), facts=(fact,)
    )


def _solved(pair: Pair, few: int) -> bool:
    """Whether a held-out share could not follow: it was left too little room at the start, or
    training has only caught up with it.
    """
    if not _is_share(pair.held_M):
        return False
    held, train = (mean_of(value[-few:]) for value in (pair.held_M, pair.train_M))
    caught_up = pair.scale == 1.0 and not pair.same and held > (1 - NEGLIGIBLE) * train
    room = 1.0 - mean_of(pair.held_M[:few])
    return caught_up or room < _HALF * pair.gain_of_training(*pair.ends)[0]


def _followed(pair: Pair) -> bool:
    """Whether training has only come to where the held-out reward stands."""
    ends, (gain, _) = pair.ends[1], pair.gain_of_training(*pair.ends)
    ahead = mean_of((pair.train_M - pair.held_M)[ends])
    return pair.scale == 1.0 and not pair.same and ahead < TRANSFER * gain


def _flat_since(pair: Pair) -> Finding | None:
    """Report the stretch up to the end over which training gained most without the held-out reward.

    Training gains what lies above the best level it had reached: what comes back from a dip has
    only regained its height.
    """
    n, few = len(pair.step_M), few_of(pair)
    width, late = min(2 * few, (n + 1) // 3), slice(n - max(few, n // 4), n)
    rows = max(n - 2 * width + 1, 0)
    # Of every stretch that may be the first: its gains up to the end.
    train_K, held_K = (moving_mean(value, width)[:rows] for value in (pair.train_M, pair.held_M))
    train_K, held_K = (
        pair.train_M[late].mean() - np.maximum.accumulate(train_K),
        pair.held_M[late].mean() - held_K,
    )
    first = slice(0, width)
    error_train = pair.gain_of_training(first, late)[1]
    error_held = pair.gain_held_out(first, late)[1]
    risen_K = np.flatnonzero(
        (train_K > 4 * error_train) & (train_K > 0.2 * float(np.ptp(pair.train_M)))
    )
    if not risen_K.size or _solved(pair, few) or _followed(pair):
        return None
    ratio_K, centre_K, half_K = _ratio_of_gains(
        train_K[risen_K], error_train, held_K[risen_K], error_held
    )
    perhaps_K, limit_K = (
        ratio_K + (centre_K + half_K - ratio_K) * errors / 1.96 for errors in (_GAINED, _MANY)
    )
    if not perhaps_K.min() < _HALF:
        return None
    sure = limit_K.min() < _HALF
    row = int(risen_K[limit_K.argmin() if sure else perhaps_K.argmin()])
    early, start = slice(row, row + width), row + width // 2
    coupling = coupling_of(pair, early, late)
    assert coupling is not None
    gained, error = pair.gain_held_out(slice(0, few), early)
    if sure:
        return _behind(pair, start, coupling, gained=gained > _GAINED * error)
    stands = pair.gain_held_out(early, pair.ends[1])[0] <= 0
    return _overfitting(pair, start, coupling) if stands and gained > _GAINED * error else None


def _behind(pair: Pair, row: int, coupling: Interval, *, gained: bool) -> Finding:
    """Report a held-out reward that stays behind training since a row: by a loophole, by training
    learnt by heart, or by either.

    A leap, or a true reward of the same answers that had gained, is a loophole's. What is held out
    and has gained since the two part is learnt, if less than the training prompts; so is training
    that parts slowly and no faster than it rose. Else a loophole is open.
    """
    parting = parting_of(pair)
    if _leapt(pair, parting) or (pair.same and gained):
        return _finding(pair, coupling, Status.CRITICAL, f" since step {parting.step:,}")
    since, few = parting.rows(pair)[0], few_of(pair)
    still, error = pair.gain_held_out(slice(since, since + few), pair.ends[1])
    if still > _GAINED * error or (gained and _slow(pair, parting)):
        return _overfitting(pair, row, coupling)
    finding = _finding(pair, coupling, Status.WARNING, f" since step {parting.step:,}")
    return replace(finding, facts=(Fact.HELD_OUT_STANDS_AFTER_GAIN,)) if gained else finding


@frozen
class _Pace:
    """How far training rose as two rewards parted, beside what its pace of before makes of these
    rows.
    """

    # above the best level of before: what comes back from a dip has only regained its height
    gain: float
    usual: float
    error: float  # of the difference
    high: bool  # whether it came to a height of its own
    held: float  # gain of the held-out reward, by its upper limit


def _pace(pair: Pair, parting: Parting) -> _Pace | None:
    """Hold the stretch over which two rewards parted against one as long before; None where
    nothing was before.
    """
    n, (begin, end) = len(pair.step_M), parting.rows(pair)
    few = max(1, few_of(pair) // 2)
    before, after = max(begin - few, 0), min(end, n - 1)
    first = max(0, 2 * begin - after - few)
    if before <= first:
        return None
    parts = [slice(start, min(start + few, n)) for start in (first, before, after)]
    train, held = (
        [mean_of(value[part]) for part in parts] for value in (pair.train_M, pair.held_M)
    )
    pace = (after - before) / (before - first)
    best = float(moving_mean(pair.train_M[: before + few], few).max())
    noise = pair.train_deviation / math.sqrt(few)
    return _Pace(
        gain=train[2] - max(train[1], best),
        usual=pace * (train[1] - train[0]),
        error=noise * math.sqrt(1 + (1 + pace) ** 2 + pace**2),
        high=bool(train[2] > best + 2 * noise),
        held=held[2] - held[1] + 1.96 * pair.held_deviation * math.sqrt(2 / few),
    )


def _leapt(pair: Pair, parting: Parting) -> bool:
    """Whether training leapt as the two parted, to a height of its own and faster than before, and
    the held-out reward did not go along.

    Prompts that are learnt by heart go on at the pace of before; a loophole pays at once.
    """
    pace = _pace(pair, parting) if parting.length <= _LEAPS else None
    if pace is None or not pace.high or pace.held >= _HALF * pace.gain:
        return False
    return pace.gain - pace.usual > _FASTER * pace.error and pace.gain > _PACE * pace.usual


def _slow(pair: Pair, parting: Parting) -> bool:
    """Whether two rewards parted slowly, and training rose no faster than before: beyond doubt."""
    pace = _pace(pair, parting) if parting.shortest > _ABRUPT else None
    return pace is not None and pace.gain + _FASTER * pace.error < _PACE * pace.usual


def _overfitting(pair: Pair, row: int, coupling: Interval) -> Finding:
    """Note a training reward that goes on rising after the held-out one has stopped, which keeps
    most of what it gained: behind the last gain that noise does not explain.
    """
    (few, levels), last = _levels(pair), mean_of(pair.held_M[pair.ends[1]])
    gained = last - np.maximum.accumulate(levels) > _GAINED * pair.gain_held_out(*pair.ends)[1]
    row = max(row, row_after(gained))
    best, step = mean_of(pair.held_M[row : row + few]), int(pair.step_M[row])
    message = (
        f"Since step {step:,} the training reward rises while {pair.grader} is flat: "
        f"{arrow(best, last)}. This is what overfitting looks like."
    )
    return Finding(Status.INFO, message, step, coupling, TRANSFER, facts=(Fact.OVERFITTING,))


def _finding(pair: Pair, coupling: Interval | None, status: Status, where: str = "") -> Finding:
    """Put the finding into words; its onset is where training began to gain on the held-out
    reward, or where that was best.
    """
    step, when, before, of_held_out = (_of_turned if _turned(pair) else _of_parted)(pair)
    total = pair.total or _held_out_change(pair, of_held_out.step, before, pair.ends[1])
    total = replace(total, before=mean_of(pair.train_M[before]) / pair.scale)
    signs = _sign("reward", pair.trained, of_held_out.step, total), of_held_out
    shared = ""
    if coupling:
        shared = f"; {pair.grader} gained {ranged(coupling)} times as much as training"
        shared += f"{where}{IN_SHARES * pair.percent}"
    message = f"Since step {step:,}{when} {signs[0].words} while {signs[1].words}{shared}."
    return Finding(status, message, step, coupling, TRANSFER, signs=signs)


def _of_parted(pair: Pair) -> tuple[int, str, slice, Sign]:
    """The step at which two rewards part, its range in words, the rows just before, and the sign
    of the held-out one.
    """
    parting = parting_of(pair)
    since, when = parting.apart, f" ({parting.first:,} to {parting.last:,})"
    before = rows_before(max(int(np.searchsorted(pair.step_M, since)), 1), few_of(pair))
    change = pair.fall or _held_out_change(pair, since, before, pair.ends[1])
    return parting.step, when, before, _sign("held_out", _brief(pair), since, change)


def _of_turned(pair: Pair) -> tuple[int, str, slice, Sign]:
    """The same of a held-out reward that gained first: they part no earlier than at its best."""
    parting, before = parting_of(pair), _best_of(pair)
    best = int(pair.step_M[(before.start + before.stop) // 2])
    since = max(parting.apart, best)
    change = _held_out_change(pair, since, before, pair.ends[1])
    course = arrow(mean_of(pair.held_M[pair.ends[0]]), *change.ends)
    sign = _sign("held_out", _brief(pair), since, change)
    sign = replace(sign, words=f"{_brief(pair)} {course} (best at step {best:,})")
    return max(parting.step, best), "", before, sign


def _brief(pair: Pair) -> str:
    """Its name beside numbers."""
    return pair.name.removesuffix(" reward")


def _sign(signal: str, name: str, since: int, change: LevelChange) -> Sign:
    """The sign of a reward since a step, at its one pair of levels."""
    first, last = change.ends
    words = f"{name} {arrow(first, last) if first != last else f'stays {short(first)}'}"
    return Sign(signal, since, first, last, words, change.since)


def _held_out_change(pair: Pair, since: int, early: slice, late: slice) -> LevelChange:
    """The change of the held-out reward between two stretches."""
    before, after = (mean_of(pair.held_M[part]) for part in (early, late))
    return LevelChange(since, since, before, after, int(pair.step_M[late][0]))


def _follows(pair: Pair | None) -> bool:
    """Whether the held-out reward shared the gain of training beyond doubt."""
    coupling = None if pair is None else _of_rise(pair, *pair.ends)
    return coupling is not None and coupling.low > TRANSFER


def _parted(evidence: Evidence, pair: Pair | None) -> Finding | None:
    """Report a column that falls as what is trained on rises, or one of the task that stays at
    nothing.
    """
    from scipy.special import ndtri

    (reward, functions), weights = together(evidence), weights_of(evidence)
    paid = evidence.quantity("reward_after_kl")
    assert reward is not None
    task = {name: signal for name, signal in functions.items() if of_task(name)}
    task |= {score.column: score for _, score in evidence.named("task_score")}
    best = {score.column: score for score in evidence.best_of_sets.values()}
    # Under the penalties that it is paid with the reward itself is the task's.
    beside = [(paid, reward.column, reward)] if paid and paid.column != reward.column else []
    beside += [
        (reward, *item)
        for item in {**functions, **task, **best}.items()
        if weights.get(item[0], 1.0) >= 0
    ]
    # Of several columns that may fall each is tried; that the total rises is one question.
    rise, limit = -float(ndtri(FALSE_WARNING)), -float(ndtri(FALSE_WARNING / max(len(beside), 1)))
    absent = _at_nothing(evidence, {**task, **best})
    # What shapes the answers beside what is wanted, by their names, may fall for the better.
    shapes = any(map(WANTED.search, functions)) or _follows(pair)
    notes = []
    for total, name, other in beside:
        rows = _rows_of_both(total, other)
        # The only function of a reward is that reward.
        if rows is None or np.array_equal(rows[0].value_T, rows[1].value_T):
            continue
        if rows[0].score(*sixths(rows[0])) < (rise if name in absent else limit):
            continue
        own = name in task or other is reward
        # The best of several samples may lose some of its height as their mean rises.
        least = DECLINED if own else LOST if name in best else None
        falls = _fell_clearly(rows[1], 2 * limit, least)
        falls = falls and not _fell_with_training(_of_signals(*rows, name), evidence)
        if name not in absent and not falls:
            continue
        names = ("reward" if total is reward else total.column, name)
        finding = _apart(evidence, rows, names, nothing=name in absent)
        finding = replace(finding, column=_gains_most(functions, weights))
        if name in absent and not evidence.ended:  # form is learnt first
            finding = replace(finding, status=Status.INFO)
        if own or not shapes:
            return finding
        notes.append(replace(finding, status=Status.INFO, facts=()))
    return next(iter(notes), None)


def _at_nothing(evidence: Evidence, scores: Mapping[str, NoisyMetric]) -> set[str]:
    """The scores of the task that stay at nothing, where none of them earns: beside one that does
    another may be stricter. Form that earns alone is told by another check.
    """
    absent = {name for name, signal in scores.items() if earns_nothing(signal)}
    flat_reward = bool(verifier.reward_functions(evidence).facts)
    return absent if absent == set(scores) and not flat_reward else set()


def _rows_of_both(total: NoisyMetric, other: NoisyMetric) -> tuple[NoisyMetric, NoisyMetric] | None:
    """Two columns in the rows that hold both; None with fewer than twelve."""
    step_T = np.intersect1d(total.step_T, other.step_T)
    if len(step_T) < _FEWEST_IN_COMMON:
        return None
    return at_steps(total, step_T), at_steps(other, step_T)


def _fell_clearly(signal: NoisyMetric, limit: float, least: float | None) -> bool:
    """Whether a column fell beyond doubt: a quarter of where it has been, or a share of its
    height.
    """
    early, late = sixths(signal)
    lost, span = -signal.change(early, late).value, signal.span or 1.0
    height = signal.level(early) if signal.low >= 0 else span
    return signal.score(early, late) <= -limit and lost >= (
        0.25 * span if least is None else least * height
    )


def _apart(
    evidence: Evidence,
    rows: tuple[NoisyMetric, NoisyMetric],
    names: tuple[str, str],
    *,
    nothing: bool,
) -> Finding:
    """Report what is trained on beside a column that falls, or that stays at nothing, with the
    levels of both.
    """
    total, other = rows
    row = int(np.argmax(np.cumsum(other.value_T - other.value_T.mean())))
    fell = other.step_at(span_of_fall(other, row)[0])
    step = parting_of(_of_signals(total, other, names[1])).apart if nothing else fell
    signs = []
    for signal, column in zip((names[0], f"reward/{names[1]}"), rows, strict=True):
        name = signal.removeprefix("reward/")
        is_total = evidence.reward is not None and column.column == evidence.reward.column
        whole = progress_of(evidence).change if is_total else column_change(evidence, name, column)
        signs.append(_sign(signal, clean(name, longest=40), step, whole))
    why = "one gains while the other loses"
    if nothing:
        of_what = "the function for the task" if WANTED.search(names[1]) else "that function"
        why = f"{of_what} {'earns' if other.late < _LITTLE else 'gains'} nothing"
    message = f"{signs[0].words} while {signs[1].words}: {why}."
    change, facts = other.change(*sixths(other)), (Fact.COLUMNS_PART,)
    return Finding(Status.WARNING, message, step, change, 0.0, signs=tuple(signs), facts=facts)


def _one_earns_all(evidence: Evidence) -> Finding | None:
    """Report a reward function that earns more and more while another with weight stays at
    nothing, however its noise moves the total; or where answers stray while that of the task
    gains nothing.
    """
    (reward, functions), weights = together(evidence), weights_of(evidence)
    assert reward is not None
    early, late = sixths(reward)
    counted = {name: functions[name] for name in _paid(weights)}
    if len(reward) < _FEWEST_IN_COMMON or len(counted) < 2:
        return None
    # What is at nothing earns nothing, however large its weight makes its noise.
    earning = {name: each for name, each in counted.items() if each.level(late) >= _LITTLE}
    best = _gains_most(earning or counted, weights)
    gain, strays = counted[best].change(early, late).value, _strays(evidence)
    if gain < _LITTLE or counted[best].score(early, late) < 4 or FORM.search(best):
        return None
    for name, function in counted.items():
        change, never_less = function.change(early, late), function.low >= 0
        gains = name in earning and not (
            strays and of_task(name) and gained_nothing(function, gain)
        )
        if name != best and not gains and never_less and change.high <= NOTHING * gain:
            task = WANTED.search(name) and (name in earning or not any(map(of_task, earning)))
            rows, names = (counted[best], function), (f"reward/{best}", name)
            finding = replace(_apart(evidence, rows, names, nothing=True), column=best)
            return finding if task else replace(finding, status=Status.INFO, facts=())
    return None


def _gains_most(functions: Mapping[str, NoisyMetric], weights: Mapping[str, float]) -> str:
    """The function by which the total gained most."""

    def gain(name: str) -> float:
        signal = functions[name]
        return weights.get(name, 1.0) * signal.change(*sixths(signal)).value

    return max(functions, key=gain, default="")


def _strays(evidence: Evidence) -> bool:
    """Whether answers have become another kind: half as long again, or far from the reference."""
    length, kl = map(evidence.quantity, ("completion_length", "kl"))
    first, last = end_levels(length) if length else (0.0, 0.0)
    return last > MUCH_LONGER * first or (kl is not None and kl.late > _FAR)


NAME = "reward_hacking"
LOG = (
    'a reward on held-out prompts during training (TRL: eval_strategy="steps"; verl: '
    "trainer.test_freq), preferably graded by another verifier"
)
FEWEST_PAIRS = 5
# Onsets that are tried along the log, and lengths of the ramp as shares of it.
_ONSETS = 61
_LENGTHS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 1.0)
_MOST = 400
# Beyond this a reward beside a share is in per cent, or in units of its own; sums of a few reward
# functions stay below.
_TENS = 10.0
OTHER_UNITS = "training and held-out rewards have different units (only one is a share)"
IN_SHARES = ", with percentages read as shares"
LOG_UNITS = "both rewards in the same units"


@frozen
class Pair:
    """Training and held-out reward at the same steps."""

    step_M: Whole  # steps at which the held-out reward is known
    train_M: Float  # mean training reward about each
    held_M: Float  # held-out reward
    train_deviation: float  # noise of one value of `train_M`
    held_deviation: float  # noise of one value of `held_M`
    name: str  # of the held-out one
    percent: bool = False  # whether one of the two was in per cent, and was divided by 100
    same: bool = False  # whether both grade the same answers
    scale: float = 1.0  # what the training reward was multiplied by
    # whether one that stays behind tells as much as one that falls: it may say what is wanted
    judges: bool = True
    total: LevelChange | None = None  # of the training reward at all steps
    trained: str = "reward"  # what is set beside it: the reward, or the function that it is of
    fall: LevelChange | None = None  # that of the held-out one, if it fell for good

    @property
    def grader(self) -> str:
        """Its name in a sentence."""
        return self.name if self.same else f"the {self.name}"

    @property
    def ends(self) -> tuple[slice, slice]:
        """The first and the last stretch."""
        return slice(0, few_of(self)), slice(len(self.step_M) - few_of(self), len(self.step_M))

    def gain_of_training(self, early: slice, late: slice) -> tuple[float, float]:
        """Return the gain of the training reward between two stretches, and its standard error."""
        return _gain(self.train_M, self.train_deviation, early, late)

    def gain_held_out(self, early: slice, late: slice) -> tuple[float, float]:
        """Return the gain of the held-out reward between two stretches, and its standard error."""
        return _gain(self.held_M, self.held_deviation, early, late)


def _paid(weights: Mapping[str, float]) -> list[str]:
    """The functions that count in the total."""
    return [name for name, weight in weights.items() if weight >= UNPAID]


def pairs_of(evidence: Evidence) -> list[Pair]:
    """Return training beside the held-out reward, where there is one, and beside each reward
    function without weight.
    """
    reward, functions, weights = evidence.reward, evidence.functions, weights_of(evidence)
    if reward is None:
        return []
    pairs: list[Pair | None] = [_held_out_pair(evidence, reward)]
    # What grades the form of an answer does not say what is wanted; beside a trained function that
    # does, another may grade anything.
    wanted = any(map(WANTED.search, _paid(weights)))
    for name in sorted(weights, key=lambda name: not WANTED.search(name)):
        unrewarded = abs(weights[name]) < UNPAID and functions[name].span > 0
        if unrewarded and not FORM.search(name) and len(reward) >= FEWEST_ROWS:
            pair = _paired(reward, functions[name], clean(name, longest=40), same=True)
            judges = bool(WANTED.search(name)) or not wanted
            pairs.append(pair and replace(pair, judges=judges))
    falls = level_changes(evidence)
    return [
        replace(
            pair,
            total=column_change(evidence, pair.trained, functions[pair.trained])
            if pair.trained in functions
            else progress_of(evidence).change,
            fall=None if pair.percent else falls.get(pair.name),
        )
        for pair in pairs
        if pair is not None
    ]


def _held_out_pair(evidence: Evidence, reward: NoisyMetric) -> Pair | None:
    """Training beside the held-out reward: of several sets that which shares its gain, or else the
    worst. One that others leave behind is told as an environment is.
    """
    sets = {
        name: signal
        for name, signal in evidence.held_out_sets.items()
        if len(signal) >= FEWEST_PAIRS
    }
    several = len(sets) > 1
    pairs = []
    for name, signal in sets.items():
        of_set = f"held-out {clean(name, longest=40)}" if several else HELD_OUT
        trained = _function_of(evidence, signal)
        if pair := _paired(evidence.functions.get(trained, reward), signal, of_set):
            pairs.append(replace(pair, trained=trained))
    worst = min(pairs, key=lambda pair: pair.gain_held_out(*pair.ends)[0], default=None)
    return next(filter(_follows, pairs), worst)


def _function_of(evidence: Evidence, held: NoisyMetric) -> str:
    """The reward function that alone makes a held-out reward, or else the total."""
    alone = (
        name
        for name, signal in evidence.named("eval/reward/")
        if name in evidence.functions and np.array_equal(signal.value_T, held.value_T)
    )
    return next(alone, "reward") if len(evidence.functions) > 1 else "reward"


def _of_signals(total: NoisyMetric, other: NoisyMetric, name: str) -> Pair:
    """Two columns of the same rows."""
    noise = total.deviation, other.deviation
    return Pair(total.step_T, total.value_T, other.value_T, *noise, name)


def _paired(
    reward: NoisyMetric, held: NoisyMetric, name: str, *, same: bool = False
) -> Pair | None:
    """Training and another reward at the same steps, or None where they have too few in common
    or different units.
    """
    if held.column == reward.column:
        return None
    edges = np.concatenate([[-np.inf], (held.step_T[1:] + held.step_T[:-1]) / 2, [np.inf]])
    place = np.digitize(reward.step_T, edges) - 1
    counts = np.bincount(place, minlength=len(held))
    with np.errstate(invalid="ignore"):
        train = np.bincount(place, weights=reward.value_T, minlength=len(held)) / counts
    keep, scales = counts > 0, _scales(reward.value_T, held.value_T)
    if keep.sum() < FEWEST_PAIRS or scales is None:
        return None
    train, value = train / scales[0], held.value_T[keep] / scales[1]
    noise = max(_deviation(value), 1e-12)
    spread = reward.deviation / scales[0] / np.sqrt(float(np.median(counts[keep])))
    pair = Pair(
        held.step_T[keep],
        train[keep],
        value,
        max(spread, 1e-12),
        noise,
        name,
        scales != (1.0, 1.0),
        same,
    )
    return pair if same else _in_common(pair)


def _deviation(value_M: Float) -> float:
    r"""Noise of one held-out value; of few a fall itself is among the middle ones of their second
    differences.

    Of fewer than eight it is at most $\sqrt{\sum d^2/2(n-2)}$ of the differences d without the
    largest, and in Student's measure.
    """
    from scipy.special import stdtrit

    n, noise = len(value_M), long_run_deviation(value_M)
    if n >= FEWEST_ROWS:
        return noise
    least = np.sort(np.abs(np.diff(value_M)))[:-1]
    return (
        min(noise, math.sqrt(least @ least / (2 * (n - 2)))) * float(stdtrit(n - 3, 0.975)) / 1.96
    )


def _in_common(pair: Pair) -> Pair:
    """Bring a training reward that goes beyond 0 and 1 to the units of a held-out share: by
    their gains up to the share's best.
    """
    if not _is_share(pair.held_M) or _is_share(pair.train_M):
        return pair
    few = few_of(pair)
    best = int(moving_mean(pair.held_M, few).argmax())
    since = pair.ends[0], slice(best, best + few)
    held, error = pair.gain_held_out(*since)
    train, noise = pair.gain_of_training(*since)
    scale = (
        held / train
        if held > _GAINED * error and train > _GAINED * noise
        else 1 / max(float(np.ptp(pair.train_M)), 1e-12)
    )
    return replace(
        pair,
        train_M=pair.train_M * scale,
        train_deviation=pair.train_deviation * scale,
        scale=scale,
    )


def _is_share(value_T: Float) -> bool:
    """Whether all values are within 0 and 1."""
    return bool(value_T.min() >= 0.0 and value_T.max() <= 1.0)


def _scales(train_T: Float, held_T: Float) -> tuple[float, float] | None:
    """What to divide both by: 100 for the one in per cent beside a share; None where one is a
    share and the other nothing of the kind.
    """

    def percent(value_T: Float) -> bool:
        return bool(value_T.min() >= 0.0 and _TENS < value_T.max() <= 100.0)

    if _is_share(held_T) and np.abs(train_T).max() > _TENS:
        return (100.0, 1.0) if percent(train_T) else None
    if _is_share(train_T) and np.abs(held_T).max() > _TENS:
        return (1.0, 100.0) if percent(held_T) else None
    return 1.0, 1.0


def few_of(pair: Pair) -> int:
    """Return how many values make a stretch."""
    return max(2, len(pair.step_M) // 6) if len(pair.step_M) > FEWEST_PAIRS else 1


def coupling_of(pair: Pair, early: slice, late: slice) -> Interval | None:
    """Return the held-out gain over the training gain with its 95 % interval; None where
    training did not move beyond its noise.
    """
    gain_held, error_held = pair.gain_held_out(early, late)
    gain_train, error_train = pair.gain_of_training(early, late)
    if not abs(gain_train) > 4 * error_train:
        return None
    ratio, centre, half = _ratio_of_gains(gain_train, error_train, gain_held, error_held)
    return Interval(float(ratio), float(centre - half), float(centre + half))


def _of_rise(pair: Pair, early: slice, late: slice) -> Interval | None:
    """The coupling where training rose."""
    rose = pair.gain_of_training(early, late)[0] > 0
    return coupling_of(pair, early, late) if rose else None


def _ratio_of_gains(
    train: Any, error_train: float, held: Any, error_held: float
) -> tuple[Any, Any, Any]:
    """The held-out gain over the training gain, and the middle and half the length of its 95 %
    interval (Fieller's).
    """
    ratio, g = held / train, (1.96 * error_train / train) ** 2
    half = (
        1.96
        / abs(train)
        * np.sqrt(np.maximum((1 - g) * error_held**2 + ratio**2 * error_train**2, 0.0))
        / (1 - g)
    )
    return ratio, ratio / (1 - g), half


def _gain(value_M: Float, deviation: float, early: slice, late: slice) -> tuple[float, float]:
    """The later mean minus the earlier, and its standard error."""
    first, last = value_M[early], value_M[late]
    error = deviation * math.sqrt(1 / first.size + 1 / last.size)
    return mean_of(last) - mean_of(first), error


@frozen
class Parting:
    """Where training and held-out reward part."""

    step: int  # the last at which they have not, as far as the grid of onsets tells
    first: int  # of its range
    last: int  # of its range, in which the first lies at which they have
    length: float  # of the stretch over which they part, as a share of the log
    shortest: float  # of what the likelihood leaves open
    apart: int = 0  # the first step at which they have parted

    def rows(self, pair: Pair) -> tuple[int, int]:
        """Return the rows from which on they part, and have parted."""
        end = self.step + self.length * np.ptp(pair.step_M)
        begin, end = np.searchsorted(pair.step_M, [self.step, end])
        return int(begin), int(end)


def parting_of(pair: Pair) -> Parting:
    r"""Say from which step training gains on the held-out reward, with its range, by profile
    likelihood, and how long it takes.

    The range leaves $\frac n2\ln\bigl(1 + \frac{2F_{0.95}(2, n-4)}{n-4}\bigr)$ of log likelihood:
    the joint 95 % region of onset and length of the ramp for independent normal rows of unknown
    variance. Of simulated runs, which are no ramps, it holds fewer.
    """
    from scipy.special import fdtri

    size = int(np.ceil(len(pair.step_M) / _MOST))
    keep = len(pair.step_M) // size * size
    time, gap = (
        value[:keep].astype(float).reshape(-1, size).mean(axis=1)
        for value in (pair.step_M, pair.train_M - pair.held_M)
    )
    span = np.ptp(time)
    onset_K = np.linspace(time[0], time[-1] - 0.1 * span, _ONSETS)
    about = gap - gap.mean()
    total, length_L = about @ about, np.array(_LENGTHS)
    # All onsets with all lengths: what each ramp leaves of the squares.
    ramp_LKM = (time - onset_K[:, None]) / (length_L[:, None, None] * span)
    ramp_LKM = np.clip(ramp_LKM, 0.0, 1.0)
    ramp_LKM -= ramp_LKM.mean(axis=-1, keepdims=True)
    shared_LK, own_LK = ramp_LKM @ about, (ramp_LKM**2).sum(axis=-1)
    left_LK = total - np.maximum(shared_LK, 0.0) ** 2 / np.maximum(own_LK, 1e-300)
    rest_K, rest_L = left_LK.min(axis=0), left_LK.min(axis=1)
    if not rest_K.min() < total:
        step = int(pair.step_M[0])
        return Parting(step, step, step, 1.0, _LENGTHS[0], step)
    floor = max(1e-12 * total, 1e-300)
    drop_K, drop_L = (
        0.5 * len(time) * np.log(np.maximum(rest, floor) / max(rest_K.min(), floor))
        for rest in (rest_K, rest_L)
    )
    left = max(len(time) - 4, 1)  # mean, height, onset and length are fitted
    limit = 0.5 * len(time) * math.log1p(2 * fdtri(2, left, 0.95) / left)
    inside = onset_K[drop_K <= limit]
    likeliest = int(rest_K.argmin())
    ends = np.array([onset_K[likeliest], inside[0]])
    early = np.searchsorted(pair.step_M, ends - 0.5 * span / _ONSETS)
    # At the onset itself they have not parted yet.
    late = np.searchsorted(pair.step_M, [ends[0], inside[-1]], side="right")
    best, first, apart, last = (int(step) for step in pair.step_M[[*early, *late]])
    return Parting(
        best,
        first,
        last,
        _LENGTHS[int(left_LK[:, likeliest].argmin())],
        _LENGTHS[int(np.argmax(drop_L <= limit))],
        apart,
    )
