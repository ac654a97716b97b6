"""Numerics: columns that are no longer numbers, a gradient that explodes or drifts, and updates of
exactly nothing.

The readers write NaN and a missing value alike, so a NaN shows as a column that stops while the
rows go on, or that never had a value. Why the numbers broke is not judged here.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from groupwise.arrays import Flags, Float, Places, Whole, median
from groupwise.diagnostics.facts import Fact
from groupwise.diagnostics.judgement import Finding, Sign, Status, exactly, no_sign, not_logged
from groupwise.diagnostics.signals import (
    CRITICAL,
    FEWEST_ROWS,
    WARNING,
    Evidence,
    Signal,
    counted,
    lasting,
    since_when,
)
from groupwise.diagnostics.signs import arrow, led_to
from groupwise.plain import frozen
from groupwise.wording import clean, short

FINITE, GRADIENT, UPDATES, CRASH = "numbers", "gradient", "updates", "crash"
LOG_NORM = "the norm of the gradient before clipping (TRL: grad_norm; verl: actor/grad_norm)"
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
    before: float | None  # the last finite value before


def beyond(signal: Signal, event_T: Flags) -> int | None:
    """Return the row since which rows of a rare kind are most of them, if they are so to the
    end.
    """
    return since_when(event_T, USUAL, rate=WARNING) if len(signal) >= FEWEST_ROWS else None


def rose_since(evidence: Evidence, step: int) -> bool:
    """Return whether the reward is clearly higher now than before a step, or than in the first
    quarter: training goes on.
    """
    return _reward_since(evidence, step) > RISES


def fell_since(evidence: Evidence, step: int) -> bool:
    """Return whether the reward is clearly lower now than before a step, or than in the first
    quarter.
    """
    return _reward_since(evidence, step) < -RISES


def _reward_since(evidence: Evidence, step: int, *, near: int = 20) -> float:
    """The change of the reward over its standard error from some rows before a step to the last
    rows.
    """
    reward = evidence.reward
    if reward is None or len(reward) < FEWEST_ROWS:
        return 0.0
    row = reward.at(step)
    row = row if row >= 3 else max(3, len(reward) // 4)
    return reward.score(slice(max(0, row - near), row), slice(max(row, len(reward) - 20), None))


def finite(evidence: Evidence) -> Finding:
    """Look for the first column that is not finite."""
    broken = sorted(
        _broken(evidence), key=lambda fault: (fault.row, _WATCHED.index(fault.quantity))
    )
    if not broken:
        if all(evidence.quantity(name) is None for name in _WATCHED):
            return not_logged(
                FINITE, "None of loss, gradient, reward, KL and entropy is in the log.", LOG_NORM
            )
        return _finite_but_for_a_few(evidence)
    first = broken[0]
    step, name = int(evidence.record.steps["step"][first.row]), clean(first.column, longest=60)
    of_updates = any(fault.quantity in _OF_UPDATE for fault in broken)
    # A metric that was never computed may be written as NaN in every row; what every update has is
    # no such metric.
    placeholder = first.row == 0 and not of_updates
    rows, was = counted(first.rows, "row"), "" if first.before is None else short(first.before)
    since = f"in any of {rows}" if first.row == 0 else f"since step {step:,} ({rows})"
    message = f"{name} has no finite value {since}{was and f', {was} before'}{_also(broken)}."
    whole = {"loss", "gradient_norm"} <= {fault.quantity for fault in broken}
    goes_on = _reward_since(evidence, step, near=_NEAR) > RISES
    if placeholder or (goes_on and not whole):
        return Finding(FINITE, Status.INFO, message, step)
    # A trainer that skips such updates holds its reward, and learns nothing more.
    lost = first.row > 0 and of_updates and not rose_since(evidence, step)
    # A few norms beyond all numbers, as a scaler of losses skips them, are waited for.
    waits = not evidence.ended and not whole and first.rows < _LAGGING
    status = Status.CRITICAL if lost and not waits else Status.WARNING
    sign = Sign(first.quantity, step, first.before, None, f"{name} {was and f'{was} → '}not finite")
    return Finding(
        FINITE, status, message, step, signs=(sign,), facts=(Fact.NOT_FINITE,), column=name
    )


def crash(evidence: Evidence) -> Finding:
    """Look for an exception that ended the program before its planned end."""
    error, steps = evidence.record.error, evidence.record.steps["step"]
    if not error or not len(steps):
        return no_sign(CRASH, "No sign of an error that ended the run.")
    step, planned = int(steps[-1]), evidence.setting("planned_steps")
    message = f"the log ends in an error at step {step:,}: {clean(error, longest=120)}"
    if error.startswith("KeyboardInterrupt") or (planned is not None and step >= planned):
        return Finding(CRASH, Status.INFO, message, step)
    return Finding(CRASH, Status.WARNING, message, step, facts=(Fact.CRASHED,))


def _also(broken: list[_Broken]) -> str:
    """Say which others went with the first column that is not finite."""
    others = [
        clean(fault.column, longest=60) for fault in broken[1:] if fault.row == broken[0].row
    ][:3]
    return f", nor {'has' if len(others) == 1 else 'have'} {', '.join(others)}" if others else ""


def _finite_but_for_a_few(evidence: Evidence) -> Finding:
    """Report rows without a finite number that are followed by finite ones."""
    rewards = _columns(evidence, "reward")
    updates = [name for quantity in _OF_UPDATE for name in _columns(evidence, quantity)]
    values = {name: evidence.record.values(name) for name in (*updates, *rewards)}
    # A reward is one of every update; whether it was NaN there or is missing no log tells.
    updated = np.any([np.isfinite(values[name]) for name in updates or rewards], axis=0)
    for name, value in values.items():
        infinite = np.isinf(value)
        gaps = updated & ~np.isfinite(value) if name in rewards else infinite
        odd = gaps if gaps.mean() <= _GAPS else infinite
        if odd.any():
            first = int(evidence.record.steps["step"][int(odd.argmax())])
            many = infinite.mean() > 0.05 and infinite.sum() >= _STOPPED
            number = "the reward" if name in rewards else clean(name, longest=60)
            what = "infinite" if infinite[odd].all() else "missing or no finite number"
            rows = f"{counted(int(odd.sum()), 'row')} of {odd.size:,}"
            message = f"{number} is {what} in {rows}, first at step {first:,}."
            facts = (Fact.REWARD_NOT_FINITE_AT_TIMES,) if name in rewards else ()
            status = Status.WARNING if many else Status.INFO
            return Finding(FINITE, status, message, first, facts=facts)
    return no_sign(FINITE, "Every watched column that held numbers still holds finite ones.")


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
    for quantity in _WATCHED:
        for column in _columns(evidence, quantity):
            value = evidence.record.values(column)
            finite_rows = np.flatnonzero(np.isfinite(value))
            if not finite_rows.size:
                yield _Broken(column, quantity, 0, value.size, None)
                continue
            last = int(finite_rows[-1])
            rest = value.size - last - 1
            if rest < _STOPPED:
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
                and rest >= (_STOPPED if no_lag else _LAGGING)
                and (there | empty).mean() >= _FULL
            ):
                yield _Broken(column, quantity, last + 1, rest, float(value[last]))


def _alive(evidence: Evidence) -> tuple[Flags, Flags]:
    """Rows that hold a finite value of anything but the clock and evaluations, and those that
    hold none at all.
    """
    every = evidence.record.metrics()
    trained = [name for name in every if not name.lower().startswith(("eval", "val"))]
    there, some = (
        np.any([np.isfinite(evidence.record.values(name)) for name in names], axis=0)
        for names in (trained or every, every)
    )
    return there, ~some


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
        said = evidence.unmeasured("gradient_norm") or "The gradient norm is not in the log"
        return not_logged(GRADIENT, f"{said}.", LOG_NORM)
    moving = np.flatnonzero(signal.value_T > _ROUNDING)
    if moving.size < 2 * _FIRST:
        return no_sign(
            GRADIENT, f"No sign of a drift in {counted(moving.size, 'row')} with a gradient."
        )
    norm_T, step_T = signal.value_T[moving], signal.step_T[moving]
    early = median(norm_T[:_FIRST])
    limit = max(DRIFT * early, CLIPPED)
    event_T = norm_T > limit
    event_T[:_FIRST] = False
    row, leaps = beyond(signal, event_T), _leaps(norm_T)
    if row is None:
        return _spikes(norm_T, step_T, leaps)
    # Leaps shortly before are how it began.
    began = int(step_T[min([row, *leaps[leaps >= row - norm_T.size // 6]])])
    step, late = int(step_T[row]), median(norm_T[-max(5, norm_T.size // 10) :])
    times = late / early
    huge = late > HUGE or times > SPIKE
    status = Status.CRITICAL if huge and fell_since(evidence, step) else Status.WARNING
    message = (
        f"The gradient norm grew from {short(early)} to {short(late)} (x {times:,.0f}), beyond x "
        f"{limit / early:,.0f} since step {step:,}."
    )
    advice = "clip the gradient norm; lower the learning rate"
    signs = (_grew(began, early, late),)
    return Finding(
        GRADIENT,
        status,
        message,
        step,
        exactly(times),
        DRIFT,
        advice=advice,
        signs=signs,
        facts=(Fact.GRADIENT_EXPLODED,) if huge else (),
    )


def _grew(step: int, before: float, after: float) -> Sign:
    """The sign of a gradient norm that grew."""
    return Sign("gradient_norm", step, before, after, f"gradient norm {arrow(before, after)}")


def _leaps(norm_T: Float) -> Places:
    """The rows, but for the first ones, far above the median of all rows before."""
    # Where no row is large none is far above the others, whatever was before it.
    usual_T = _medians(norm_T) if norm_T[_FIRST:].max() > 10 * CLIPPED else norm_T
    leapt_T = (norm_T > np.maximum(SPIKE * usual_T, 10 * CLIPPED)) | (
        norm_T > np.maximum(HUGE, DRIFT * usual_T)
    )
    leapt_T[:_FIRST] = False
    return np.flatnonzero(leapt_T)


def _spikes(norm_T: Float, step_T: Whole, leaps: Places) -> Finding:
    """Report single rows that leapt."""
    if not leaps.size:
        last = f"the gradient norm is {short(norm_T[-1])} in the last row"
        return no_sign(GRADIENT, f"No sign of a drift: {last}.")
    first = int(leaps[0])
    step, top, usual = int(step_T[first]), float(norm_T[first]), median(norm_T[:first])
    more = "" if leaps.size == 1 else f" and {counted(leaps.size - 1, 'time')} more"
    message = (
        f"The gradient norm leapt to {short(top)} at step {step:,}{more}, {short(usual)} before."
    )
    ratio = exactly(top / usual)
    many = leaps.size >= _STOPPED or float(norm_T[_FIRST:].max()) > HUGE
    signs, advice = (_grew(step, usual, top),) if many else (), "clip the gradient norm"
    status = Status.WARNING if many else Status.INFO
    return Finding(GRADIENT, status, message, step, ratio, SPIKE, advice=advice, signs=signs)


def _medians(value_T: Float) -> Float:
    """Return the median of all rows before each row; NaN of the first."""
    medians = pl.Series(value_T).rolling_median(value_T.size, min_samples=1)
    return medians.shift().to_numpy()


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
            f"The gradient is {norm.written(0.0)} in the last rows: all of their groups have, or "
            "may have, zero variance."
        )
        return Finding(UPDATES, Status.INFO, message)
    return _of_loss(loss, norm)


def _zero_since(zero_T: Flags, chance_T: Float) -> int | None:
    """The row since which the gradient is 0 more often than in health, by its chance in each
    row.
    """
    factor_T = np.where(
        zero_T,
        np.log(_MOST / np.minimum(chance_T, _MOST)),
        np.log((1 - _MOST) / (1 - np.minimum(chance_T, _MOST))),
    )
    return lasting(factor_T, rate=CRITICAL, event_T=zero_T)


def _nothing(evidence: Evidence, norm: Signal, row: int) -> Finding:
    """Report a gradient of exactly 0."""
    step, before = norm.step_at(row), median(norm.value_T[:row]) if row else None
    spread = _spread_at(evidence, norm)[row:]
    spread = spread[np.isfinite(spread)]
    loss = evidence.quantity("loss")
    also = (
        ", and so is the loss" if loss is not None and loss.is_zero[loss.at(step) :].all() else ""
    )
    sign = Sign("gradient_norm", step, before, 0.0, f"gradient norm {led_to(before, 0.0)}")
    zero = (
        f"The gradient is {norm.written(0.0)} since step {step:,} "
        f"({counted(len(norm) - row, 'row')}) although"
    )
    if not (_chance(evidence, norm)[row:] <= 0.5).mean() > 0.5:
        advice = "log the share of zero-variance groups; check advantages"
        message = f"{zero} rewards of the batch differ{also}."
        return Finding(
            UPDATES, Status.WARNING, message, step, advice=advice, log=LOG_DEAD, signs=(sign,)
        )
    differ = (
        f"rewards differ (spread {np.median(spread):.2g})"
        if spread.size and np.median(spread) > 1e-6
        else "groups differ in reward"
    )
    return Finding(
        UPDATES,
        Status.CRITICAL,
        f"{zero} {differ}{also}.",
        step,
        signs=(sign,),
        facts=(Fact.GRADIENT_LOST,),
    )


def _spread_at(evidence: Evidence, norm: Signal) -> Float:
    """The spread of rewards at the rows of the gradient, NaN where it is not known."""
    return _at_steps(evidence.groups.spread.step_T, evidence.groups.spread.value_T, norm)


def _at_steps(step_T: Float, value_T: Float, norm: Signal) -> Float:
    """A series at the steps of the gradient, NaN where it has none."""
    values = np.full(len(norm), np.nan)
    if step_T.size:
        place = np.minimum(np.searchsorted(step_T, norm.step_T), step_T.size - 1)
        same = step_T[place] == norm.step_T
        values[same] = value_T[place[same]]
    return values


def _chance(evidence: Evidence, norm: Signal) -> Float:
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


def _mixed(evidence: Evidence, norm: Signal) -> Flags:
    """Whether the rewards of the whole batch differ in each row: by their spread, or by a mean
    between right and wrong.
    """
    reward = evidence.reward
    mean = np.full(len(norm), np.nan)
    if reward is not None and reward.bounds == (0.0, 1.0):
        mean = _at_steps(reward.step_T.astype(float), reward.value_T, norm)
    return (_spread_at(evidence, norm) > 1e-6) | ((mean > 1e-6) & (mean < 1 - 1e-6))


def _of_loss(loss: Signal | None, norm: Signal | None) -> Finding:
    """Say of a loss of 0 that it is normal on policy."""
    if loss is None and norm is None:
        return not_logged(UPDATES, "Neither loss nor gradient norm is in the log.", LOG_NORM)
    nothing = (
        0.0
        if loss is None or len(loss) < 5
        else float((np.abs(loss.value_T) < max(1e-6, loss.resolution)).mean())
    )
    if nothing <= 0.5:
        return no_sign(UPDATES, "No sign of updates of exactly nothing.")
    message = f"The loss is 0 in {100 * nothing:.0f} % of the rows, as it is on policy."
    return Finding(UPDATES, Status.INFO, message, log=LOG_NORM if norm is None else "")
