r"""The update and its numbers: columns that are no longer numbers, a gradient that explodes or
drifts, updates of exactly nothing or too large, and what must stay within a limit: the KL, the
sampler against the trainer, the age of rollouts, what is dropped, load of experts.

The readers write NaN and a missing value alike, so a NaN shows as a column that stops while the
rows go on, or that never had a value. In a group of G the advantage of one rollout is at most
$\sqrt{G-1}$ deviations (Samuelson).

Two engines that hold the same weights differ by rounding; what they do beyond that is a gradient of
another policy than the one that sampled, and each cause leaves another signature. With the mean gap
d of log-probability a token, and the mean importance ratio w: a truncated distribution (top-p,
top-k, min-p) keeps a share $e^{-d}$ of the mass, so that $w = e^{-d}$ from the first row on; a
ratio that is summed over tokens is far below $e^{-d}$; weights that never arrive let d grow as the
KL to the first policy does, while nothing is learnt.

Why the numbers broke is not judged here.
"""

import math
import re
from collections.abc import Iterator

import numpy as np
import polars as pl

from groupwise.arrays import (
    Ends,
    Flags,
    Float,
    Places,
    Whole,
    mean_of,
    median,
    row_after,
    rows_before,
)
from groupwise.diagnostics.falls import CERTAIN, end_levels
from groupwise.diagnostics.judgement import (
    Fact,
    Finding,
    Learning,
    Sign,
    Status,
    by_sign,
    exactly,
    no_sign,
    not_logged,
    trains,
)
from groupwise.diagnostics.learning import progress_of
from groupwise.diagnostics.signals import (
    FALSE_ALARM,
    FALSE_WARNING,
    FEWEST_ROWS,
    Evidence,
    NoisyMetric,
    arrow,
    ends_of,
    lasting,
    led_to,
    moved,
    once,
    rank_correlations,
    since_when,
)
from groupwise.diagnostics.zero_variance import grid_of
from groupwise.errors import GroupwiseError
from groupwise.files import table_rows
from groupwise.intervals import percent
from groupwise.plain import frozen
from groupwise.record.table import TELLING
from groupwise.series.staleness import lag_of
from groupwise.wording import clean, count, short

FINITE, CRASH = "numbers", "crash"
LOG_NORM = "the gradient norm before clipping (TRL: grad_norm; verl: actor/grad_norm)"
LOG_DEAD = (
    "the share of groups with zero variance (TRL: frac_reward_zero_std), or completions with their "
    "rewards"
)
# What an update is made of: without these numbers it is NaN, and so are the weights after it.
_OF_UPDATE = ("loss", "gradient_norm", "advantage", "advantage_min", "advantage_max")
_WATCHED = (*_OF_UPDATE, "reward", "kl", "entropy", "policy_change", "sampler_mismatch")
# What is logged by the trainer beside the loss: where it goes on, the row was written whole.
_BESIDE = (*_OF_UPDATE, "kl", "entropy", "learning_rate", "clip_ratio", "policy_change")
# A column is one of every row where nine rows of ten have it; a trainer whose rows come later than
# the rollouts' lags by fewer than ten.
_FULL, _STOPPED, _LAGGING = 0.9, 3, 10
# Rows without a reward from which it is one of some rows only.
_GAPS = 0.4
# A gradient norm is a product of many factors, so it scatters by factors: in health by e or so from
# row to row. 30 is 3.4 of them, 1,000 is 7; and below 1, where trainers clip by default, nothing
# needs clipping.
DRIFT, SPIKE, HUGE, CLIPPED = 30.0, 1e3, 1e6, 1.0
_FIRST = 10
# What rounding leaves of the gradient of groups with zero variance.
_ROUNDING = 1e-9
# The e-processes test against this: at most one row in ten of a healthy run is beyond a limit.
USUAL = 0.1
# Rows just before a step, and standard errors by which a reward has risen since.
_NEAR, RISES = 5, 3.0
# The chance of a gradient of 0 where one is lost, and in health where rewards of the batch differ
# and those of no group may: it takes very few groups, or prompts that are all solved always or
# never.
_MOST, _BATCH_DIFFERS = 0.95, 0.8


@frozen
class _Broken:
    """A column that is not finite."""

    column: str
    quantity: str
    row: int  # from which on; 0 throughout
    rows: int  # how many
    before: float | None  # the mean of the last few finite values before

    @property
    def never_computed(self) -> bool:
        """Whether no row has a number, and not every update has one."""
        return self.row == 0 and self.quantity not in _OF_UPDATE


def beyond(signal: NoisyMetric, event_T: Flags) -> int | None:
    """Return the row since which rows of a rare kind are most of them, if they are so to the
    end.
    """
    return since_when(event_T, USUAL, rate=FALSE_WARNING) if len(signal) >= FEWEST_ROWS else None


def rose_since(evidence: Evidence, step: int) -> bool:
    """Return whether the reward is clearly higher now than before a step, or than in the first
    quarter: training goes on.
    """
    return _reward_since(evidence, step) > RISES


def _reward_since(evidence: Evidence, step: int, *, near: int = 20) -> float:
    """The change of the reward over its standard error from some rows before a step to the last
    rows.
    """
    reward = evidence.reward
    if reward is None or len(reward) < FEWEST_ROWS:
        return 0.0
    row = reward.at(step)
    row = row if row >= 3 else max(3, len(reward) // 4)
    return reward.score(rows_before(row, near), slice(max(row, len(reward) - 20), None))


@once
def finite(evidence: Evidence) -> Finding:
    """Look for the first column that is not finite."""
    # A metric that was never computed may be written as NaN in every row; what every update has is
    # no such metric. It comes behind all others.
    broken = sorted(_broken(evidence), key=lambda fault: (fault.never_computed, fault.row))
    if not broken:
        if all(evidence.quantity(name) is None for name in _WATCHED):
            return not_logged(
                "The log contains none of loss, gradient norm, reward, KL and entropy.", LOG_NORM
            )
        return _finite_but_for_a_few(evidence)
    first = broken[0]
    step, name = int(evidence.record.steps["step"][first.row]), clean(first.column, longest=60)
    of_updates = any(fault.quantity in _OF_UPDATE for fault in broken)
    rows, was = count(first.rows, "row"), "" if first.before is None else short(first.before)
    before = was and f"; {was} in the {min(first.row, _NEAR)} rows before"
    since = f"in all {rows}" if first.row == 0 else f"from step {step:,} on ({rows}{before})"
    message = f"{name} is missing, NaN or infinite {since}{_also(broken)}."
    whole = {"loss", "gradient_norm"} <= {fault.quantity for fault in broken}
    goes_on = _reward_since(evidence, step, near=_NEAR) > RISES
    if first.never_computed or (goes_on and not whole):
        return Finding(Status.INFO, message, step)
    # A trainer that skips such updates holds its reward, and learns nothing more; where it rose as
    # they ended, the rows just before tell.
    rose = goes_on if whole else rose_since(evidence, step)
    lost = first.row > 0 and of_updates and not rose
    # A few norms beyond all numbers, as a scaler of losses skips them, are waited for.
    waits = not evidence.ended and not whole and first.rows < _LAGGING
    status = Status.CRITICAL if lost and not waits else Status.WARNING
    sign = Sign(first.quantity, step, first.before, None, f"{name} {was and f'{was} → '}not finite")
    return Finding(status, message, step, signs=(sign,), facts=(Fact.NOT_FINITE,), column=name)


def crash(evidence: Evidence) -> Finding:
    """Look for an exception that ended the program before its planned end."""
    error, steps = evidence.record.error, evidence.record.steps["step"]
    if not error or not len(steps):
        return no_sign("No sign of an error that ended the run.")
    step, planned = int(steps[-1]), evidence.setting("planned_steps")
    message = f"the log ends with an error at step {step:,}: {clean(error, longest=120)}"
    if error.startswith("KeyboardInterrupt") or (planned is not None and step >= planned):
        return Finding(Status.INFO, message, step)
    return Finding(Status.WARNING, message, step, facts=(Fact.CRASHED,))


def _also(broken: list[_Broken]) -> str:
    """Say which others went with the first column that is not finite."""
    others = [
        clean(fault.column, longest=60) for fault in broken[1:] if fault.row == broken[0].row
    ][:3]
    return f", and so {'is' if len(others) == 1 else 'are'} {', '.join(others)}" if others else ""


def _finite_but_for_a_few(evidence: Evidence) -> Finding:
    """Report rows without a finite number that are followed by finite ones."""
    rewards = _columns(evidence, "reward")
    updates = [name for quantity in _OF_UPDATE for name in _columns(evidence, quantity)]
    values = {name: evidence.record.values(name) for name in (*updates, *rewards)}
    # A reward is one of every update that measures completions; whether it was NaN there or is
    # missing no log tells.
    updated = np.any([np.isfinite(values[name]) for name in updates or rewards], axis=0)
    if length := evidence.quantity("completion_length"):
        updated &= np.isin(evidence.record.steps["step"], length.step_T)
    for name, value in values.items():
        infinite = np.isinf(value)
        gaps = updated & ~np.isfinite(value) if name in rewards else infinite
        odd = gaps if gaps.mean() <= _GAPS else infinite
        if odd.any():
            first = int(evidence.record.steps["step"][int(odd.argmax())])
            many = infinite.mean() > 0.05 and infinite.sum() >= _STOPPED
            number = "the reward" if name in rewards else clean(name, longest=60)
            what = "infinite" if infinite[odd].all() else "missing, NaN or infinite"
            rows = f"{count(int(odd.sum()), 'row')} of {odd.size:,}"
            message = f"{number} is {what} in {rows}, first at step {first:,}."
            facts = (Fact.REWARD_NOT_FINITE_AT_TIMES,) if name in rewards else ()
            status = Status.WARNING if many else Status.INFO
            return Finding(status, message, first, facts=facts)
    return no_sign("No sign of NaN or infinite values in the checked columns.")


def _columns(evidence: Evidence, quantity: str) -> list[str]:
    """The columns of a quantity; advantages by their name too, which most trainers have under a
    key of their own.
    """
    columns = [
        meaning.column
        for meaning in evidence.record.meanings
        if meaning.quantity == quantity and meaning.column in evidence.record.steps.columns
    ]
    if quantity == "advantage" and not columns:
        columns = [
            name
            for name in evidence.record.metrics()
            if "advantage" in name.lower() and evidence.record.meaning(name) is None
        ]
    return columns


def _broken(evidence: Evidence) -> Iterator[_Broken]:
    """Yield the columns that are not finite to the end."""
    if len(evidence.record.steps) < FEWEST_ROWS:
        return
    rewards = (
        np.flatnonzero(np.isfinite(evidence.record.values(column)))
        for column in _columns(evidence, "reward")
    )
    ends = {int(rows[-1]) for rows in rewards if rows.size}
    fewest = 1 if evidence.record.error else _STOPPED  # behind an error no more rows come
    for quantity in _WATCHED:
        for column in _columns(evidence, quantity):
            value = evidence.record.values(column)
            finite_rows = np.flatnonzero(np.isfinite(value))
            if not finite_rows.size:
                yield _Broken(column, quantity, 0, value.size, None)
                continue
            last = int(finite_rows[-1])
            rest = value.size - last - 1
            if rest < fewest:
                continue
            # Rows before it that have it, and rows since that the trainer wrote without it.
            # Few rows are enough where the reward ends with them: nothing else is left to judge by.
            enough = FEWEST_ROWS if last not in ends else _STOPPED
            whole = finite_rows.size >= _FULL * (last + 1) and last + 1 >= enough
            there, empty = (usable[last + 1 :] for usable in _alive(evidence))
            no_lag = (
                np.isinf(value[last + 1 :]).all() or empty.all() or _written(evidence, column, last)
            )
            if (
                whole
                and rest >= (fewest if no_lag else _LAGGING)
                and (there | empty).mean() >= _FULL
            ):
                near = value[max(0, last + 1 - _NEAR) : last + 1]
                yield _Broken(column, quantity, last + 1, rest, float(np.nanmean(near)))


def _alive(evidence: Evidence) -> tuple[Flags, Flags]:
    """Rows that hold a finite value of anything but the clock and evaluations, and those that
    hold none at all.
    """
    record = evidence.record
    some = np.any([np.isfinite(record.values(name)) for name in record.metrics()], axis=0)
    return trains(record), ~some


def _written(evidence: Evidence, column: str, last: int) -> bool:
    """Whether another number of the trainer's own rows goes on where a column has stopped."""
    for quantity in _BESIDE:
        for other in _columns(evidence, quantity):
            if other != column:
                there = np.isfinite(evidence.record.values(other))
                if there[: last + 1].mean() >= _FULL and there[last + 1 :].mean() >= _FULL:
                    return True
    return False


def gradient(evidence: Evidence) -> Finding:
    """Look for a gradient norm that drifts away or explodes; a single spike is worth knowing."""
    signal = evidence.quantity("gradient_norm")
    if signal is None:
        said = evidence.unmeasured("gradient_norm") or "The log does not contain the gradient norm"
        return not_logged(f"{said}.", LOG_NORM)
    moving = np.flatnonzero(signal.value_T > _ROUNDING)
    if moving.size < 2 * _FIRST:
        return no_sign(f"{count(moving.size, 'row')} with a gradient are too few to show a drift.")
    norm_T, step_T = signal.value_T[moving], signal.step_T[moving]
    early = median(norm_T[:_FIRST])
    limit = max(DRIFT * early, CLIPPED)
    event_T = norm_T > limit
    event_T[:_FIRST] = False
    row, leaps = beyond(signal, event_T), _leaps(norm_T)
    if row is None:
        said = f"{ends_in_words(signal)}, and does not stay above {short(limit)}"
        return (
            _spikes(norm_T, step_T, leaps)
            if leaps.size
            else no_sign(f"the gradient norm is {said}.")
        )
    # Leaps shortly before are how it began.
    began = min([row, *leaps[leaps >= row - min(norm_T.size // 6, 20)]])
    step, late_T = int(step_T[row]), norm_T[-max(5, norm_T.size // 10) :]
    late = median(late_T)
    times = late / early
    huge = late > HUGE or times > SPIKE
    status = Status.CRITICAL if huge and _reward_since(evidence, step) < -RISES else Status.WARNING
    message = (
        f"The gradient norm grew from {short(early)} to {short(late)} (medians of the first "
        f"{_FIRST} and the last {late_T.size} rows), and it has exceeded {limit / early:,.0f} "
        f"times its early level since step {step:,}."
    )
    return Finding(
        status,
        message,
        step,
        exactly(times),
        DRIFT,
        signs=(moved("gradient_norm", int(step_T[began]), early, float(norm_T[began]), late),),
        facts=(Fact.GRADIENT_EXPLODED,) if huge else (),
    )


def _leaps(norm_T: Float) -> Places:
    """The rows, but for the first ones, far above the median of all rows before."""
    # Where no row is large none is far above the others, whatever was before it.
    usual_T = norm_T
    if norm_T[_FIRST:].max() > 10 * CLIPPED:  # of all rows before
        medians = pl.Series(norm_T).rolling_median(norm_T.size, min_samples=1)
        usual_T = medians.shift().to_numpy()
    leapt_T = (norm_T > np.maximum(SPIKE * usual_T, 10 * CLIPPED)) | (
        norm_T > np.maximum(HUGE, DRIFT * usual_T)
    )
    leapt_T[:_FIRST] = False
    return np.flatnonzero(leapt_T)


def _spikes(norm_T: Float, step_T: Whole, leaps: Places) -> Finding:
    """Report single rows that leapt."""
    first = int(leaps[0])
    step, top, usual = int(step_T[first]), float(norm_T[first]), median(norm_T[:first])
    more = "" if leaps.size == 1 else f" and {count(leaps.size - 1, 'time')} more"
    message = (
        f"The gradient norm jumped from {short(usual)} to {short(top)} at step {step:,}{more}."
    )
    ratio = exactly(top / usual)
    many = leaps.size >= _STOPPED or float(norm_T[_FIRST:].max()) > HUGE
    signs = (moved("gradient_norm", step, usual, top),) if many else ()
    status = Status.WARNING if many else Status.INFO
    return Finding(status, message, step, ratio, SPIKE, signs=signs)


def updates(evidence: Evidence) -> Finding:
    """Look for updates of exactly nothing: a gradient of 0 although rewards differ.

    A learning rate of 0 is no learning's.
    """
    norm, loss = evidence.quantity("gradient_norm"), evidence.quantity("loss")
    if norm is None:
        return _of_loss(loss, None)
    zero_T = norm.is_zero
    row = _zero_since(zero_T, _chance(evidence, norm))
    if row is not None:
        return _nothing(evidence, norm, row)
    if zero_T[-max(5, zero_T.size // 10) :].all() and zero_T.size >= 5:
        message = (
            f"The gradient norm is {norm.written(0.0)} in the last rows, no more often than "
            "zero-variance groups may explain."
        )
        return Finding(Status.INFO, message)
    return _of_loss(loss, norm)


def _zero_since(zero_T: Flags, chance_T: Float) -> int | None:
    """The row since which the gradient is 0 more often than in health, by its chance in each
    row.
    """
    usual_T = np.minimum(chance_T, _MOST)
    factor_T = np.where(zero_T, np.log(_MOST / usual_T), np.log((1 - _MOST) / (1 - usual_T)))
    return lasting(factor_T, rate=FALSE_ALARM, event_T=zero_T)


def _nothing(evidence: Evidence, norm: NoisyMetric, row: int) -> Finding:
    """Report a gradient of exactly 0."""
    step, before = norm.step_at(row), median(norm.value_T[:row]) if row else None
    spread = _spread_at(evidence, norm)[row:]
    spread = spread[np.isfinite(spread)]
    loss = evidence.quantity("loss")
    also = ", and the loss is 0 too" if loss and loss.is_zero[loss.at(step) :].all() else ""
    sign = Sign("gradient_norm", step, before, 0.0, f"gradient norm {led_to(before, 0.0)}")
    zero = (
        f"The gradient norm is {norm.written(0.0)} from step {step:,} on "
        f"({count(len(norm) - row, 'row')}) although"
    )
    if not (_chance(evidence, norm)[row:] <= 0.5).mean() > 0.5:
        message = f"{zero} rewards of the batch differ{also}."
        return Finding(Status.WARNING, message, step, log=LOG_DEAD, signs=(sign,))
    differ = (
        f"rewards differ (standard deviation {np.median(spread):.2g})"
        if spread.size and np.median(spread) > 1e-6
        else "rewards differ within groups"
    )
    return Finding(
        Status.CRITICAL, f"{zero} {differ}{also}.", step, signs=(sign,), facts=(Fact.GRADIENT_LOST,)
    )


def _spread_at(evidence: Evidence, norm: NoisyMetric) -> Float:
    """The spread of rewards at the rows of the gradient, NaN where it is not known."""
    return _at_steps(evidence.groups.spread.step_T, evidence.groups.spread.value_T, norm)


def _at_steps(step_T: Float, value_T: Float, norm: NoisyMetric) -> Float:
    """A series at the steps of the gradient, NaN where it has none."""
    values = np.full(len(norm), np.nan)
    if step_T.size:
        place = np.minimum(np.searchsorted(step_T, norm.step_T), step_T.size - 1)
        same = step_T[place] == norm.step_T
        values[same] = value_T[place[same]]
    return values


def _chance(evidence: Evidence, norm: NoisyMetric) -> Float:
    """The chance of a gradient of exactly 0 in health: that all groups of the step have zero
    variance; 1 where that is not known.

    It is at most the share of groups with zero variance, however few groups a step has. Where a row
    averages several steps what it says of rewards is not of the last of them, whose gradient may be
    the one that is logged.
    """
    groups, record = evidence.groups, evidence.record
    dead = _at_steps(groups.zero_variance.step_T, groups.zero_variance.value_T, norm)
    unsure = record.rollouts is None and any(
        meaning.quantity == "dead_group_share" and meaning.ambiguous for meaning in record.meanings
    )
    window = record.steps["window"].median()
    single = isinstance(window, float) and window <= 1
    within = np.full(len(norm), single and not groups.spread_gap) & (
        _spread_at(evidence, norm) > 1e-6
    )
    chance = np.where(within, USUAL, np.where(single & _mixed(evidence, norm), _BATCH_DIFFERS, 1.0))
    return np.asarray(
        np.where(np.isfinite(dead), np.maximum(dead, _BATCH_DIFFERS if unsure else USUAL), chance),
        dtype=float,
    )


def _mixed(evidence: Evidence, norm: NoisyMetric) -> Flags:
    """Whether the rewards of the whole batch differ in each row: by their spread, or by a mean
    between right and wrong.
    """
    reward = evidence.reward
    mean = np.full(len(norm), np.nan)
    if reward and reward.bounds == (0.0, 1.0):
        mean = _at_steps(reward.step_T.astype(float), reward.value_T, norm)
    return (_spread_at(evidence, norm) > 1e-6) | ((mean > 1e-6) & (mean < 1 - 1e-6))


def _of_loss(loss: NoisyMetric | None, norm: NoisyMetric | None) -> Finding:
    """Say of a loss of 0 that it is normal on policy, where the loss is less the mean advantage
    and stays near 0 in the other rows too.
    """
    if loss is None and norm is None:
        return not_logged("The log contains neither loss nor gradient norm.", LOG_NORM)
    moves = no_sign("No sign of a problem: the updates are not zero throughout.")
    if loss is None or len(loss) < 5:
        return moves
    size = np.abs(loss.value_T)
    zero = size < max(1e-6, loss.resolution)
    if zero.mean() <= 0.5:
        return moves
    apart = norm is None and not zero.all() and median(size[~zero]) > LEFT
    why = (
        f"and up to {short(size.max())} in size in the others, as with rewards equal in all groups"
        if apart
        else "as usual for on-policy updates"
    )
    message = f"The loss is 0 in {percent(zero.mean())} of the rows, {why}."
    return Finding(Status.INFO, message, log=LOG_NORM if norm is None else "")


# The square root of G - 1 for groups of 1,024, and so many times the largest reward where
# advantages are not divided by the deviation.
LARGEST_ADVANTAGE, OF_REWARD = 32.0, 10.0
# A mean advantage is 0 by construction; over tokens, where wrong answers are twice as long as right
# ones, it is a third of a deviation at most. That of 34 public runs stays below .08. One that was
# near to 0 in the first fifth and beyond a tenth in all rows of the last has left it; of one
# that was 0 but for its digits less tells that.
CENTRED, NEAR, LEFT, EXACTLY, LEFT_EXACTLY = 0.5, 0.05, 0.1, 1e-3, 0.02
# Medians of the gradient norm of 60 public healthy runs lie between .007 and 13 (most .1 to 2).
LARGE_NORM, SMALL_NORM = 20.0, 0.012
# Beside a policy that does not move a norm below this is small as well: most are .1 to 2.
LITTLE_NORM = 0.03
# Standard errors by which a reward has moved.
_MOVED = 3.0


def update(evidence: Evidence) -> Finding:
    """Look for an update that cannot be right."""
    searches = (
        ("advantage_min", _of_advantage),
        ("advantage_max", _of_advantage),
        ("advantage", _off_centre),
        ("gradient_norm", _of_norm),
    )
    logged = [(signal, of) for name, of in searches if (signal := evidence.quantity(name))]
    findings = [of(evidence, signal) for signal, of in logged if len(signal) >= FEWEST_ROWS]
    if shown := next(filter(None, (*findings, _of_kl(evidence))), None):
        return shown
    if not logged:
        hidden = evidence.unmeasured("gradient_norm")
        said = hidden or "The log contains neither advantages nor the gradient norm"
        return not_logged(f"{said}.")
    return no_sign("No sign of a problem: what is logged of the updates is plausible.")


def _of_kl(evidence: Evidence) -> Finding | None:
    """A loss that is a multiple of the KL beside a reward that stands. On policy that is usual: the
    KL falls to half as well, or no gradient's norm is logged and the KL does not grow, as it does
    with what a policy term moves.
    """
    kl, loss, norm = map(evidence.quantity, ("kl", "loss", "gradient_norm"))
    flat = progress_of(evidence).learning is Learning.FLAT and evidence.rewards_differ
    if not flat or kl is None or loss is None or not np.array_equal(loss.step_T, kl.step_T):
        return None
    early, late = end_levels(kl)
    stays = late < HALF * early or (norm is None and kl.trend < _MOVED)
    if not stays or kl.level_from(0) <= 0 or loss.high <= TELLING * loss.resolution:
        return None
    times = loss.level_from(0) / kl.level_from(0)
    left = np.abs(loss.value_T - times * kl.value_T).max()
    if left > OF_KL * loss.high + 2 * loss.resolution:
        return None
    message = (
        f"the loss is {times:.2g} times the KL in all {count(len(kl), 'row')}: "
        f"KL {arrow(early, late)}"
    )
    return Finding(Status.WARNING, message, facts=(Fact.KL_ALONE,))


def _of_advantage(evidence: Evidence, advantage: NoisyMetric) -> Finding | None:
    """Advantages that no group of a thousand rollouts can have."""
    reward = evidence.reward
    if reward is None or evidence.record.config.without_groups:
        return None
    limit = max(LARGEST_ADVANTAGE, OF_REWARD * float(np.abs(reward.value_T).max()))
    value_T = advantage.value_T
    rows = np.flatnonzero(np.abs(value_T) > limit)
    if not rows.size:
        return None
    worst, step = float(value_T[np.abs(value_T).argmax()]), advantage.step_at(rows[0])
    sign = moved("advantage", step, median(value_T), worst)
    message = (
        f"{sign.words} in {count(rows.size, 'row')}, first at step {step:,}; groups of up to "
        f"1,024 stay below {short(limit)}."
    )
    return by_sign(message, sign, limit, Fact.ADVANTAGE_IMPOSSIBLE)


def _off_centre(evidence: Evidence, mean: NoisyMetric) -> Finding | None:
    """A mean advantage that is far from 0 in most rows, as without a baseline, or has left it."""
    early_T, late_T = (mean.value_T[rows] for rows in ends_of(mean))
    exactly = max(float(abs(early_T).max()), mean.resolution) < EXACTLY
    away_T = abs(mean.value_T) > (LEFT_EXACTLY if exactly else LEFT)
    left = abs(before := median(early_T)) < NEAR and bool(away_T[-len(late_T) :].all())
    usual = median(late_T if left else mean.value_T)
    if evidence.record.config.without_groups or not (left or abs(usual) >= CENTRED):
        return None
    row = row_after(~away_T) if left else 0
    step, words = mean.step_at(row), f"mean advantage {led_to(before if left else None, usual)}"
    where = f"from step {step:,} on" if left else "in the median row"
    message = f"{words} {where}, although subtracting the group mean makes it 0."
    sign, fact = Sign("advantage", step, None, usual, words), Fact.ADVANTAGE_OFF_CENTRE
    return by_sign(message, sign, CENTRED, fact)


def _of_norm(evidence: Evidence, norm: NoisyMetric) -> Finding | None:
    """A norm that is far from the usual from the first row on; one that grew or was lost later is
    another finding.
    """
    first, whole = median(norm.value_T[:_FIRST]), median(norm.value_T)
    entropy = evidence.quantity("entropy")
    # At the top nothing is to be learnt, and a policy that is certain has no gradient.
    stands = (
        evidence.reward
        and abs(evidence.trend) < _MOVED
        and progress_of(evidence).learning is not Learning.AT_TOP
        and (not entropy or median(entropy.value_T) >= CERTAIN)
    )
    if min(first, whole) > LARGE_NORM:
        limit, fact, more = LARGE_NORM, Fact.GRADIENT_ABOVE_USUAL, ""
    elif 0 < max(first, whole) < SMALL_NORM and stands and evidence.rewards_differ:
        limit, fact, more = SMALL_NORM, Fact.GRADIENT_BELOW_USUAL, " although rewards differ"
    else:
        return None
    words = f"gradient norm {short(whole)}"
    message = f"{words} from the first row on{more}; most healthy runs have 0.1 to 2."
    sign = Sign("gradient_norm", norm.step_at(0), None, whole, words)
    return by_sign(message, sign, limit, fact)


# A mean ratio below .97 is more than rounding. It counts as e^-gap where its logarithm is within
# 35 % of the gap.
KEPT, FAR_BELOW, ALIKE, SUMMED, TINY = 0.97, 0.9, 0.35, 5.0, 1e-6
# The share of rows whose largest ratio is one number from which that is a cap.
CAPPED = 0.8
# A gap that stands, grows, or goes with another column, by rank.
STEADY, GREW, TOGETHER, TOGETHER_IN_ROWS = 0.3, 3.0, 0.8, 0.3
# One that goes with the turns beyond doubt, and how many times that of few the gap of many is.
CLOSELY, DOUBLED = 0.9, 2.0
# How many times that of young rollouts the age of old ones is, where a gap can follow it.
AGED = 1.5
# Probabilities of one token by both engines: below it more than rounding parts them.
CORRELATED = 0.8
# The gap of one turn of a rollout, in a column of its own.
_GAP = re.compile(r"mismatch|log_?p(?:rob)?s?_?diff|rollout_corr|kl_sample", re.IGNORECASE)
_TURN = re.compile(r"turn[_/]?(\d{1,3})\b", re.IGNORECASE)


def gaps_by_turn(evidence: Evidence) -> list[NoisyMetric]:
    """Return the gap of each turn, where the log has a column a turn."""
    gaps = {
        int(turn[1]): signal
        for signal in evidence.matching(".*turn.*")
        if (gap := _GAP.search(signal.column))
        and (turn := _TURN.search(signal.column, gap.end()))
        and len(signal) >= 2 * _FIRST
    }
    return [gaps[turn] for turn in sorted(gaps)]


def signature(evidence: Evidence) -> tuple[Fact, str] | None:
    """Return the fact that the gap speaks for, with its numbers in words; None where none."""
    correlation = evidence.quantity("sampler_correlation")
    if correlation and len(correlation) >= 2 * _FIRST:
        first, last = _ends(correlation.value_T)
        if max(first, last) < CORRELATED:
            return Fact.CORRELATION_LOW, f"token probabilities have a correlation of {last:.2f}"
    ends = [_ends(np.abs(turn.value_T))[1] for turn in gaps_by_turn(evidence)]
    if len(ends) > 1 and ends == sorted(ends) and ends[-1] > GREW * ends[0]:
        return (
            Fact.GAP_FOLLOWS_TURNS,
            f"the gap is {ends[0]:.2g} in the first turn and {ends[-1]:.2g} in turn {len(ends)}",
        )
    gap, ratio = evidence.quantity("sampler_mismatch"), evidence.quantity("sampler_ratio")
    if gap is None or len(gap) < 2 * _FIRST:
        return None
    early, late = _ends(np.abs(gap.value_T))
    if ratio and len(ratio) >= 2 * _FIRST and early > 0:
        first, last = _ends(ratio.value_T)
        words = (
            f"the mean ratio is {first:.3g} and the gap {early:.2g} nats (e^-gap is "
            f"{math.exp(-early):.3g})"
        )
        logs = [math.log(max(end, TINY)) for end in (first, last)]
        far = max(-math.log(FAR_BELOW), SUMMED * early)
        least = evidence.quantity("sampler_ratio_min")
        if max(first, last) < KEPT and least and least.is_zero.mean() > CAPPED:
            return (
                Fact.RATIO_CAPPED,
                f"the mean ratio is {last:.3g} and the smallest is 0, so some ratios are masked",
            )
        if min(logs) > far or max(logs) < -far:
            return Fact.RATIO_SUMMED if logs[0] < 0 else Fact.RATIO_IMPOSSIBLE, words
        kept, capped = max(first, last) < KEPT, cap_of(evidence)
        steady = abs(last - first) <= STEADY * (1 - first)
        if kept and steady and abs(-logs[0] / early - 1) <= ALIKE:
            return Fact.SAMPLING_TRUNCATED, words
        if kept and capped:
            return Fact.RATIO_CAPPED, f"the mean ratio is {last:.3g}{capped}"
    return _companion(evidence, gap, grows=late > GREW * early > 0)


def cap_of(evidence: Evidence) -> str:
    """Say at which number the largest ratio stands; "" where it moves as the largest of many
    does.
    """
    most = evidence.quantity("sampler_ratio_max")
    if most is None or len(most) < 2 * _FIRST or (most.value_T == most.high).mean() <= CAPPED:
        return ""
    return f", with ratios capped at {most.high:g} before they are logged"


def _beyond_cap(evidence: Evidence) -> str:
    """Say that the smallest ratio is 0 or that the largest stands at a cap, which the largest gap
    does not make, or "".
    """
    most, least = map(evidence.quantity, ("sampler_ratio_max", "sampler_ratio_min"))
    gap = evidence.quantity("sampler_mismatch_max")
    largest = math.nan if gap is None else median(gap.value_T)
    said, capped = f"the largest gap is {short(largest)} nats", cap_of(evidence)
    # Of a gap that large a ratio is 0 by itself, as numbers are stored.
    if least and least.is_zero.mean() > CAPPED and np.exp(-np.float32(largest)) > 0:
        return f"{said}, and the smallest ratio is 0: some are masked"
    far = most and largest >= math.log(max(most.high, 1)) + WRONG
    return f"{said}{capped}" if capped and far else ""


def _by_turns(evidence: Evidence) -> tuple[Fact, str] | None:
    """A gap that goes with the turns of the rollouts from row to row, of many turns beyond
    rounding and five times that of few, or twice that and half of what is far.
    """
    gap = evidence.quantity("sampler_mismatch") or evidence.quantity("sampler_probability_gap")
    if gap is None or len(gap) < 2 * _FIRST:
        return None
    few, many = np.quantile(np.abs(gap.value_T), [USUAL, 1 - USUAL])
    least = min(GROWN * few, max(DOUBLED * few, FAR / 2))
    if many < max(least, ROUNDING):
        return None
    return _companion(evidence, gap, grows=False, closely=True)


def _companion(
    evidence: Evidence, gap: NoisyMetric, *, grows: bool, closely: bool = False
) -> tuple[Fact, str] | None:
    """Return the fact that another column which goes with the gap speaks for, in words."""
    stands = evidence.reward and abs(evidence.trend) < _MOVED
    for quantity, fact, words in _COMPANIONS:
        other = evidence.quantity(quantity)
        if other is None or (fact is Fact.GAP_FOLLOWS_KL and not (grows and stands)):
            continue
        together, apart = rank_correlations(gap, other)
        # Whatever grows goes with a gap that does; what drives it moves it from row to row.
        if (closely or fact is Fact.GAP_FOLLOWS_GRADIENT) and apart < TOGETHER_IN_ROWS:
            continue
        if closely and (fact is not Fact.GAP_FOLLOWS_TURNS or together < CLOSELY):
            continue
        if fact is Fact.GAP_FOLLOWS_AGE:
            young, old = np.quantile(other.value_T, [USUAL, 1 - USUAL])
            if old < AGED * young:
                continue
        if (-together if quantity == "entropy" else together) > TOGETHER:
            return fact, f"it goes with {words} (rank correlation {together:.2g})"
    return None


# What the gap may go with, the fact that it speaks for, and the column in words; the first counts.
_COMPANIONS = [
    (row["quantity"], Fact[row["fact"]], row["words"])
    for row in table_rows("diagnostics/companions.tsv")
]


def _ends(value_T: Float) -> Ends:
    """The median of the first rows and of the last."""
    few = min(_FIRST, max(3, len(value_T) // 4))
    return median(value_T[:few]), median(value_T[-few:])


# The reward of the starting policy is gone within ten updates: less than half of it is left then
# and at the end, beyond so many standard deviations of a row, and no later row comes back to three
# quarters.
SOON, HALF, SURELY, BACK = 10, 0.5, 5.0, 0.75
# What went with it: a factor of entropy or length, up or down; beyond the second it may come
# within the ten updates, and fewer standard deviations of the reward suffice; as many show that
# they moved.
CHANGED, OTHER, ENOUGH = 1.33, 1.67, 3.5
LEAST = 0.05  # of entropy, or a share: what is less counts as this
# A policy that is no farther than this from its reference, nats a token, after so many steps.
NO_FARTHER, _LONG = 3e-4, 100
# Groups of 32 and more on fewer prompts than this.
LARGE_GROUP, FEW_PROMPTS = 32, 8
HEAVY = 0.5  # weight of a KL beside the range of the reward
# What of a loss may be left beside the KL, as a part of the largest.
OF_KL = 0.01


def pace(evidence: Evidence) -> Finding:
    """Look for a step that destroys the policy, one that does not move it, and too few prompts."""
    reward = evidence.reward
    if reward is None or len(reward) < 2 * SOON:
        return no_sign("The rows of reward are too few to show the pace of the policy.")
    finding, progress = _destroyed(evidence, reward), progress_of(evidence)
    said = f"in {progress.steps:,} steps: reward {arrow(progress.before, progress.after)}"
    if finding is None and progress.learning is Learning.FLAT:
        nothing = f"nothing learnt {said}"
        finding = _unmoved(evidence, reward, nothing) or _few_prompts(evidence, nothing)
    if finding is None and progress.learning in (Learning.FLAT, Learning.ARRIVED):
        finding = _held_by_kl(evidence, reward, f"little learnt {said}")
    return finding or no_sign(
        "No sign of a problem: no update is seen to be too large or too small."
    )


def _destroyed(evidence: Evidence, reward: NoisyMetric) -> Finding | None:
    """A reward that was there in the first row and is gone within ten, with the behaviour."""
    value, few = reward.value_T, max(5, len(reward) // 10)
    start, low = float(value[0]), (reward.bounds or (0.0,))[0]
    soon, late = reward.level(slice(SOON, 2 * SOON)), reward.level_from(-few)
    if max(soon, late) - low >= HALF * (start - low):
        return None
    row = int(np.argmax(value < low + HALF * (start - low)))
    first, step = reward.step_at(0), reward.step_at(row)
    signals = map(evidence.quantity, ("entropy", "completion_length", "truncated_share"))
    changes = [_change(signal, step) for signal in filter(None, signals)]
    most = max(changes, default=1.0)
    needed = ENOUGH if most >= OTHER else SURELY
    if most <= CHANGED or start - soon < needed * max(reward.scatter, reward.resolution):
        return None
    if value[row:].max() - low > BACK * (start - low) or step - first > SOON:
        return None  # the first row was a lucky one, or it came later
    sign = moved("reward", first, start, progress_of(evidence).after)
    updates = count(step - first, "update")
    message = f"{sign.words}: half was lost within {updates} and never recovered"
    return by_sign(message, sign, HALF * start, Fact.DESTROYED_AT_ONCE, status=Status.CRITICAL)


def _change(signal: NoisyMetric, step: int) -> float:
    """The factor, up or down, beyond the scatter of rows, of the first row to the three from a step
    on, or to the three farthest from it within ten updates where that is large.
    """
    start, last = float(signal.value_T[0]), len(signal) - 1
    row = min(signal.at(step), last)
    until = min(max(row, SOON), last)
    levels = [median(signal.value_T[at : at + 3]) for at in range(row, until + 1)]
    factors = [
        max(now, LEAST) / max(start, LEAST) if abs(now - start) > ENOUGH * signal.scatter else 1.0
        for now in levels
    ]
    at_once, *_ = factors = [max(factor, 1 / factor) for factor in factors]
    return max(factors) if max(factors) >= OTHER else at_once


def _unmoved(evidence: Evidence, reward: NoisyMetric, said: str) -> Finding | None:
    """A policy that is where it began."""
    kl = next((signal for name, signal in evidence.named("kl") if not name), None)
    norm, rate = evidence.quantity("gradient_norm"), evidence.quantity("learning_rate")
    if kl is None or len(kl) < FEWEST_ROWS or reward.step_at(-1) < _LONG:
        return None
    farthest = float(np.quantile(kl.value_T, 0.95))
    usual = median(norm.value_T) if norm else 1.0
    small = usual < LITTLE_NORM
    if 0 < farthest < NO_FARTHER and not kl.resolution:
        more = f" at a gradient norm of {short(usual)}" if small else ""
        message = f"{said}, and the policy is within {short(farthest)} nats of its reference{more}"
        fact = Fact.GRADIENT_BELOW_USUAL if small else Fact.POLICY_UNMOVED
    elif reward.resolution > kl.resolution == kl.high == 0 and rate:
        # Of a log that rounds it is written to more digits than others.
        message, fact = f"{said}; {kl.name} is 0 in all {count(len(kl), 'row')}", Fact.KL_ZERO
    else:
        return None
    if fact is not Fact.POLICY_UNMOVED and not evidence.rewards_differ:
        return None
    return Finding(Status.WARNING, message, None, exactly(farthest), NO_FARTHER, facts=(fact,))


def _few_prompts(evidence: Evidence, said: str) -> Finding | None:
    """Large groups of few prompts."""
    size, prompts = evidence.group_size, evidence.setting("prompts_per_step")
    if size is None or prompts is None or size < LARGE_GROUP or float(prompts) >= FEW_PROMPTS:
        return None
    message = f"{said}, with {float(prompts):g} prompts a step in groups of {size}"
    return Finding(Status.WARNING, message, facts=(Fact.FEW_PROMPTS,))


def _held_by_kl(evidence: Evidence, reward: NoisyMetric, said: str) -> Finding | None:
    """The best policy under a KL of weight b multiplies the odds of a right answer by e^(1/b)."""
    weight = evidence.setting("kl_weight")
    if reward.bounds is None or not weight or weight < HEAVY * np.ptp(reward.bounds):
        return None
    message = (
        f"{said}; under a KL of weight {weight:g} the best policy multiplies the odds of a reward "
        f"by {short(math.exp(np.ptp(reward.bounds) / weight))}"
    )
    return Finding(Status.WARNING, message, facts=(Fact.KL_HOLDS,))


LOG_KL = (
    "the mean KL divergence to the reference policy, in nats per token (TRL: beta above 0; verl: "
    "actor.use_kl_loss=True)"
)
LOG_GAP = (
    "the log-probability difference between sampler and trainer (TRL: "
    "sampling/sampling_logp_difference/mean; verl: "
    "actor_rollout_ref.rollout.calculate_log_probs=True)"
)
LOG_AGE = (
    "the age of the rollouts in updates (TRL: sample/staleness_mean; verl: training/off_policy; "
    "prime-rl: off_policy/mean)"
)
# At 3 nats the mean token is e^3 = 20 times as likely as under the reference; trained policies stay
# below 1 or so. Beyond the logarithm of a vocabulary, 12.5 for 270,000 tokens, the reference would
# have fared better by drawing tokens at random.
FAR_KL, BEYOND_CHANCE = 3.0, 12.5
# Rounding to bfloat16 moves a token's log-probability by some 2^-8 = .004, mixtures of experts by
# some .03: .1 is beyond both, and over 300 tokens a ratio of e^3. Five times the first level, and
# five times what rounding can do, is growth.
FAR, GROWN, ROUNDING, WRONG = 0.1, 5.0, 0.02, 1.0
# The mean importance ratio is 1 by construction; fewer effective samples than one in ten are a
# batch ten times smaller.
LOW_RATIO, HIGH_RATIO, FEW = 0.5, 2.0, 0.1
# A fifth of the rollouts dropped is a selection by age, and so by length; experts' load is balanced
# to a few per cent.
DROPPED, UNBALANCED = 0.2, 3.0
# Groups a row that a grid of shares tells: shares of 0 and 1 alone lie on any.
FEWEST_GROUPS = 3
_FIRST_ROWS, _NEAR_ROWS = 10, 20
# Signatures of a mismatch however small the gap is.
_FROM_THE_START = (
    Fact.SAMPLING_TRUNCATED,
    Fact.RATIO_SUMMED,
    Fact.RATIO_IMPOSSIBLE,
    Fact.RATIO_CAPPED,
    Fact.CORRELATION_LOW,
)
_GAP_COLUMNS = [(row["quantity"], row["words"]) for row in table_rows("diagnostics/gaps.tsv")]
_LEAST = {"effective_sample_size": FEW, "sampler_correlation": CORRELATED}
_ROUTER = r".*(router|expert|(^|[/_])moe([/_]|$)|load_balanc|max_vio).*"


def left_at(value_T: Float, row: int) -> tuple[int, float | None, float]:
    """Say when what is beyond a limit from a row on left its own level: there, the level before
    (None without rows), that beyond.

    What grows by factors is on its way long before: back to halfway on the scale of logarithms,
    from a hundredth of the row's at least.
    """
    late = median(value_T[row:])
    if not row:
        return row, None, late
    usual = median(value_T[: row // 2 + 1])
    middle, begun = np.sqrt(max(usual, 0.01 * value_T[row]) * value_T[row]), row
    while begun > 1 and (value_T[begun - 1] > middle) == (value_T[row] > usual):
        begun -= 1
    return begun, median(value_T[rows_before(begun, _NEAR_ROWS)]), late


def ends_in_words(signal: NoisyMetric, unit: str = "") -> str:
    """Write the levels of a quantity at first and at the end, and its largest value."""
    early, late = end_levels(signal)
    most = short(signal.high)
    return f"{short(early)}{unit} at first and {short(late)} at the end (maximum {most})"


def divergence(evidence: Evidence) -> Finding:
    """Look for a KL to the reference that has come to be huge."""
    kl = evidence.quantity("kl")
    if kl is None:
        said = (
            evidence.unmeasured("kl") or "The log does not contain the KL to the reference policy"
        )
        return not_logged(f"{said}.", LOG_KL)
    if len(kl) < FEWEST_ROWS:
        return no_sign(f"{count(len(kl), 'row')} of KL are too few to judge it.")
    row = beyond(kl, kl.value_T > FAR_KL)
    if row is None:
        said = ends_in_words(kl, " nats a token")
        return no_sign(f"the KL is {said}, and does not stay above {FAR_KL:g}.")
    begun, before, late = left_at(kl.value_T, row)
    far, step = kl.step_at(row), kl.step_at(begun)
    # Some trainers sum the KL over an answer: where the reward rises it has done no harm.
    lost = _reward_since(evidence, far) < -RISES or (
        late > BEYOND_CHANCE and not rose_since(evidence, far)
    )
    grew = "is" if before is None else f"grew from {short(before)} to"
    message = (
        f"The KL to the reference {grew} {short(late)} nats from step {step:,} on, with "
        f"a maximum of {short(float(kl.value_T[row:].max()))}."
    )
    sign = Sign("kl", step, before, late, f"KL {led_to(before, late)}")
    return by_sign(
        message, sign, FAR_KL, Fact.KL_HUGE, status=Status.CRITICAL if lost else Status.WARNING
    )


@frozen
class _MismatchSignal:
    """How one quantity shows a mismatch."""

    quantity: str
    words: str  # what it is, in a few words
    signal: NoisyMetric
    value_T: Float
    event_T: Flags
    limit: float


def sampler(evidence: Evidence) -> Finding:
    """Look for a sampler that does not match the trainer."""
    columns = list(_mismatch_signals(evidence))
    if not columns:
        hidden = evidence.unmeasured("sampler_mismatch")
        said = hidden or "The log does not show how far sampler and trainer differ"
        return not_logged(f"{said}.", LOG_GAP)
    far = [
        (row, column)
        for column in columns
        if (row := beyond(column.signal, column.event_T)) is not None
    ]
    closely = _by_turns(evidence)
    shown = closely or signature(evidence)
    if not far and shown and (closely or shown[0] in _FROM_THE_START):
        far = [(0, columns[0])]
    if far:
        row, first = min(far, key=lambda each: int(each[1].signal.step_T[each[0]]))
        return _mismatch(evidence, row, first, shown)
    if hidden := _beyond_cap(evidence):
        return Finding(Status.INFO, hidden, facts=(Fact.RATIOS_CUT,))
    said = ends_in_words(columns[0].signal)
    return no_sign(f"{columns[0].words} is {said}, and does not stay beyond the limit.")


def _mismatch_signals(evidence: Evidence) -> Iterator[_MismatchSignal]:
    """Yield what the log says of the mismatch, quantity by quantity."""
    turns = gaps_by_turn(evidence)[-1:]
    signals: list[tuple[str, str, NoisyMetric | None]] = [
        ("sampler_mismatch", "sampler mismatch of the last turn", turn) for turn in turns
    ]
    signals += [(name, words, evidence.quantity(name)) for name, words in _GAP_COLUMNS]
    for quantity, words, signal in signals:
        if signal is None or len(signal) < FEWEST_ROWS:
            continue
        value = signal.value_T
        if quantity == "sampler_ratio":
            event, limit = (value < LOW_RATIO) | (value > HIGH_RATIO), LOW_RATIO
        elif quantity in _LEAST:
            limit = _LEAST[quantity]
            event = value < limit
        else:
            value = np.abs(value)
            first = max(median(value[:_FIRST_ROWS]), signal.resolution)
            grown = max(GROWN * first, ROUNDING)
            if cap_of(evidence):  # the ratio tells nothing more: half of what is far, and trebled
                grown = min(grown, max(GREW * first, FAR / 2))
            event = (value > FAR) | (value > grown) & (np.arange(value.size) >= _FIRST_ROWS)
            limit = min(FAR, grown)
        yield _MismatchSignal(quantity, words, signal, value, event, limit)


def _mismatch(
    evidence: Evidence, row: int, column: _MismatchSignal, shown: tuple[Fact, str] | None
) -> Finding:
    """Report a mismatch, with its signature and what else it goes with."""
    begun, before, late = left_at(column.value_T, row)
    step = column.signal.step_at(begun)
    words = f"{column.words} {led_to(before, late)}"
    more = cap_of(evidence) if shown is None else f"; {shown[1]}"
    facts = [Fact.SAMPLER_MISMATCH, *(shown or ())[:1]]
    message = f"{words[0].upper()}{words[1:]} since step {step:,}"
    if shown and shown[0] in _FROM_THE_START:
        words, more = shown[1], ""
        message = f"Sampler and trainer differ since step {step:,}: {words}"
    rate = evidence.quantity("learning_rate")
    if rate and not rate.value_T.any():
        facts.append(Fact.MISMATCH_AT_RATE_ZERO)
        more += " although the learning rate is 0, so the engines differ and not the policies"
    status = (
        Status.CRITICAL
        if column.quantity == "sampler_mismatch" and late > WRONG
        else Status.WARNING
    )
    return by_sign(
        f"{message}{more}.",
        Sign(column.quantity, step, before, late, words),
        column.limit,
        *facts,
        status=status,
    )


def staleness(evidence: Evidence) -> Finding:
    """Look for rollouts that are older than the settings allow."""
    age = evidence.quantity("staleness")
    if age is None or len(age) < FEWEST_ROWS:
        wanted = evidence.setting("lag_kind") not in (None, "none")
        return not_logged(
            "The log does not contain the age of the rollouts.", LOG_AGE if wanted else ""
        )
    late = median(age.value_T[-age.tenth :])
    try:
        longest = float(lag_of(evidence.record).longest)
    except GroupwiseError:
        said = f"The rollouts are {short(late)} updates old, and the settings state no limit."
        if late <= 0.5:
            return no_sign(said)
        return Finding(Status.INFO, said, log="the kind of policy lag (--set lag_kind)")
    # Half an update above the oldest that may be is no rounding.
    row = beyond(age, age.value_T > longest + 0.5)
    if row is None:
        return no_sign(
            f"No sign of a problem: rollouts are {short(late)} updates old; the limit is "
            f"{longest:g}."
        )
    step, since = age.step_at(row), median(age.value_T[row:])
    before = median(age.value_T[:row]) if row else None
    message = (
        f"The rollouts are {short(since)} updates old from step {step:,} on; {longest:g} are "
        "allowed."
    )
    sign = Sign(
        "staleness", step, before, since, f"age of rollouts {led_to(before, since)} updates"
    )
    return by_sign(message, sign, longest, Fact.ROLLOUTS_STALE)


def discards(evidence: Evidence) -> Finding:
    """Look for rollouts that are dropped because they came too late, which are the long ones of
    hard prompts.
    """
    names = ("stale_samples_total", "stale_samples", "stale_groups")
    total, samples, groups = map(evidence.quantity, names)
    dropped = total or samples or groups
    if dropped is None or len(dropped) < FEWEST_ROWS:
        return not_logged("The log does not say how many rollouts are discarded.")
    each = dropped.value_T if total is None else np.diff(total.value_T, prepend=0.0)
    size = 1 if dropped is groups else evidence.group_size
    prompts, grid = evidence.setting("prompts_per_step"), grid_of(evidence) or 0
    if size == 1 and grid >= FEWEST_GROUPS:
        prompts = prompts or grid
    generated, share = evidence.quantity("generated_samples_total"), None
    if generated and np.array_equal(generated.step_T, dropped.step_T):
        share = each / np.maximum(np.diff(generated.value_T, prepend=0.0), 1.0)
    elif size is not None and prompts is not None:
        share = each / (each + size * float(prompts))
    if share is None:
        what = "groups" if dropped is groups else "rollouts"
        said = (
            f"{mean_of(each):.3g} {what} per row are discarded as too old; how many were "
            "generated is unknown"
        )
        return not_logged(said, "the group size and the prompts per step (--set)")
    row = beyond(dropped, share > DROPPED)
    if row is None and share.mean() <= DROPPED:
        return no_sign(
            f"No sign of a problem: {percent(mean_of(share))} of rollouts are discarded as too old."
        )
    row = row or 0
    step, late = dropped.step_at(row), mean_of(share[row:])
    before = mean_of(share[:row]) if row else None
    words = f"{percent(late)} of rollouts are discarded as too old"
    words += "" if before is None else f" (was {percent(before)})"
    message = f"Since step {step:,}, {words}."
    sign = Sign("dropped_samples", step, before, late, words, column=dropped.column)
    return by_sign(
        message, sign, DROPPED, Fact.STALE_DISCARDED, log="the lengths of discarded rollouts"
    )


def router(evidence: Evidence) -> Finding:
    """Look for experts whose load drifts apart."""
    loss = evidence.quantity("router_loss")
    named = (signal for signal in evidence.matching(_ROUTER) if len(signal) >= FEWEST_ROWS)
    signals = [loss] if loss else [*named]
    if not signals:
        return not_logged("The log does not contain the expert load.")
    for signal in signals:
        early = median(np.abs(signal.value_T[:_FIRST_ROWS]))
        limit = UNBALANCED * early
        row = since_the_first(signal, np.abs(signal.value_T) > limit) if early > 0 else None
        if row is not None:
            step, late = signal.step_at(row), median(signal.value_T[row:])
            words = f"{signal.name} {arrow(early, late)}"
            message = f"The expert load has drifted since step {step:,}: {words}."
            sign = Sign("router_load", step, early, late, words, column=signal.column)
            return by_sign(message, sign, limit, Fact.ROUTER_DRIFTS)
    return no_sign("No sign of a problem: no expert load is seen to drift.")


def since_the_first(signal: NoisyMetric, event_T: Flags) -> int | None:
    """The row since which rows of a rare kind are most of them; the first rows are what it is
    held against.
    """
    return beyond(signal, event_T & (np.arange(len(signal)) >= _FIRST_ROWS))
