"""Verifier failure: the reward becomes a constant at once, or part of it, while the answers go on as before.

It is looked for first, because it looks like dynamics. A constant at the top that a run grew into is success and no failure; a fall
spread over many rows, with answers that change, is a collapse. It grades no answer itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from groupwise.diagnostics.former.collapse import behaviour_change, by_and_by, find_fall, held_out_at
from groupwise.diagnostics.former.findings import Finding, Healthy, Outcome, Severity, Unavailable
from groupwise.diagnostics.signals import (
    CRITICAL,
    FEWEST_ROWS,
    LOG_RELATIVE,
    LOG_REWARD,
    WARNING,
    Evidence,
    Signal,
    alarm,
    counted,
    lasting,
    rare_event_factors,
    reward_floor,
)
from groupwise.diagnostics.swings import level_of
from groupwise.intervals import Interval, wilson

NAME = "verifier_failure"
# Of a two-sided 95 % interval.
_QUANTILE = 1.96
LOG = "the completions with their rewards, and a count of the reward function's exceptions, timeouts and failed parses"
ADVICE = (
    "Run the reward function by hand on completions of this step. Usual reasons: a timeout or an exception that returns 0, an answer "
    "format that the parser no longer finds, a worker or service that is down. Nothing learnt since is worth keeping."
)
HARDER = (
    "Look first at what changed in the data there, a curriculum, another source, a new epoch: harder prompts look the same, and are no "
    "failure."
)
PASSES = (
    "Give the reward function an answer that is wrong: a verifier that passes everything looks like this. If it grades it right, the "
    "prompts have all been solved, and there is nothing left to learn from them."
)
CONSTANT = "constant throughout"
# A constant this near to the top may be rounding of a run that is done.
_TOP = 0.95
# Scatters of a row that a reward leaps by where everything is passed at once.
_LEAP = 8.0
_FAILURES = r"(?=.*(reward|verif|pars(e|ing)|grade|grading|sandbox|judge)).*(timeout|timed_out|exception|fail|error).*"


@dataclass(frozen=True, slots=True)
class Constant:
    """A stretch of rows that are all one number, to the end of the log."""

    row: int  # its first
    value: float  # the number
    before: float  # mean of the rows before
    abrupt: bool  # whether the rows just before it still stood where they used to


def check(evidence: Evidence) -> Outcome:
    """Look for a reward that is one number, for a drop at once, for ties broken by nearly nothing, and for logged failures."""
    reward = evidence.reward
    if reward is None:
        return Unavailable(NAME, evidence.no_reward, LOG_REWARD)
    if len(reward) < FEWEST_ROWS:
        return Unavailable(NAME, f"{counted(len(reward), 'row')}, where {FEWEST_ROWS} are the fewest", LOG)
    if evidence.relative:
        return Unavailable(NAME, evidence.relative, LOG_RELATIVE)
    constant = _constant(evidence)
    if constant is not None:
        return constant
    for name, signal in [("reward", reward), *evidence.functions.items()]:
        found = _stuck(name, signal, evidence)
        if found is not None:
            return found
    for search in (_logged_failures, _broken_ties, _drop, _truncation):
        found = search(evidence)
        if found is not None:
            return found
    if float(np.ptp(reward.value_T)) == 0:
        return Healthy(NAME, f"The reward is {reward.value_T[0]:.3g} in all rows: it never told anything apart.", {"drop": CONSTANT})
    return Healthy(NAME, "The reward varies as rewards do, and did not jump.", {"drop": "none"})


def _constant(evidence: Evidence) -> Finding | None:
    """Report a reward that never told anything apart, unless it stands at its known top."""
    reward = evidence.reward
    assert reward is not None
    value = reward.value_T
    level = float(value[0])
    if float(np.ptp(value)) > 1e-9 * max(1.0, abs(level)):
        return None
    if reward.bounds is not None and level >= reward.bounds[0] + _TOP * (reward.bounds[1] - reward.bounds[0]):
        return None
    severity: Severity = "critical" if level <= 0 or reward.bounds is not None else "warning"
    told = "" if reward.bounds is not None or level <= 0 else "; its range is not known, so that it may be the top"
    spread = evidence.groups.spread
    none = bool(spread.known and np.nanmax(np.abs(spread.value_T)) == 0.0)
    within = ", and no group has a spread" if none else ""
    advice = (
        "Grade some completions by hand. If right ones get this reward the verifier is at fault; if all are wrong the task is too hard: "
        "take easier prompts or a larger group."
    )
    message = f"The reward is {level:.3g} in all {len(reward)} rows{within}: nothing can be learnt from it{told}."
    return Finding(NAME, severity, None, Interval(level, level, level), level, message, advice, {"drop": CONSTANT}, what="reward")


def constant_tail(signal: Signal) -> Constant | None:
    """Find the stretch of equal rows at the end of a log."""
    value = signal.value_T
    same = np.isclose(value, value[-1], rtol=0, atol=1e-9 * max(1.0, float(np.abs(value).max())))
    different = np.flatnonzero(~same)
    if not different.size:
        return None
    row = int(different[-1]) + 1
    earlier = same[:row]
    usual = min(0.5, max(0.1, 2 * float((earlier.sum() + 1) / (row + 2))))
    if row < 3 or alarm(rare_event_factors(same, usual), rate=CRITICAL) is None or len(value) - row < 3:
        return None
    few = max(2, min(5, row // 4))
    typical, just_before = float(value[:row].mean()), float(value[row - few : row].mean())
    level = float(np.mean(value[max(0, row - 4 * few) : row - few])) if row > 2 * few else typical
    # Rows that are window means mix both states once: the row just before the stretch is left out.
    last = float(value[max(0, row - 1 - few) : row - 1].mean()) if row > few else just_before
    abrupt = abs(last - level) <= 0.5 * abs(level - float(value[-1]))
    # From a level that was one: the last rows of a reward that is dying anyway, or has all but arrived, are no failure of the verifier.
    smooth = np.convolve(value, np.ones(few) / few, "valid")
    farthest = float(smooth[np.abs(smooth - value[-1]).argmax()])
    abrupt &= (level - float(value[-1])) / (farthest - float(value[-1])) > 0.3
    return Constant(row, float(value[-1]), level, abrupt)


def _stuck(name: str, signal: Signal, evidence: Evidence) -> Finding | None:
    """Report a reward or a function that became one number at once, below where it stood or far above."""
    found = constant_tail(signal)
    if found is None:
        return None
    fell = found.before - found.value
    step = int(signal.step_T[found.row])
    behaviour, _ = behaviour_change(evidence, step)
    if not found.abrupt or behaviour == "changed":
        return None  # what grew into the top has arrived; what changed its answers has collapsed
    if fell < 0 and (name != "reward" or found.row < 2 * FEWEST_ROWS or -fell < _LEAP * signal.scatter):
        return None  # a function is learnt in a few rows, and so is a single prompt
    count = len(signal) - found.row
    change = signal.change(slice(0, found.row), slice(found.row, len(signal)))
    lost = Interval(-fell, change.low - change.value - fell, change.high - change.value - fell)
    zero = "exactly 0" if found.value == 0 else f"the constant {found.value:.6g}"
    unchanged = "; entropy and length went on as before" if behaviour else ""
    message = f"Since step {step:,} the {name} is {zero} in all {count} rows, from {found.before:.3g} before, at once{unchanged}."
    known = {"drop": "constant at once", "behaviour": behaviour}
    reward = evidence.reward
    felt = name == "reward" or reward is None or reward.score(slice(0, reward.at(step)), slice(reward.at(step), None)) < -3
    severity: Severity = "critical" if felt and fell > 0 else "warning"
    advice = ADVICE if fell > 0 else PASSES
    return Finding(NAME, severity, step, lost, 0.0, message, advice, known, what="change at once")


def _logged_failures(evidence: Evidence) -> Finding | None:
    """Report a logged rate of exceptions, timeouts or failed parses that rose."""
    for signal in evidence.matching(_FAILURES):
        n = len(signal)
        if n < FEWEST_ROWS or signal.value_T.min() < 0 or signal.value_T.max() > 1:
            continue
        few = max(4, n // 5)
        base = float(np.median(signal.value_T[:few]))
        high = signal.value_T > base + 0.5 * max(float(signal.value_T.max()) - base, 0.1)
        onset = lasting(rare_event_factors(high, 0.2), rate=WARNING)
        if onset is None:
            continue
        step, value = int(signal.step_T[onset]), signal.mean(slice(onset, n))
        message = f"Since step {step:,} {signal.column} is {value.value:.2g}, from {base:.2g} at the beginning."
        severity: Severity = "critical" if value.low > 0.5 else "warning"
        return Finding(NAME, severity, step, value, base, message, ADVICE, {"drop": "failures logged"}, what=signal.column)
    return None


def _broken_ties(evidence: Evidence) -> Finding | None:
    """Report groups that differ by next to nothing: the standard deviation in the denominator makes full-size advantages of it."""
    known = evidence.graded
    if known is None:
        return None
    # Of a group of one the deviation is null.
    spread = known.group_by("step", "prompt_id").agg(pl.col("reward").std())["reward"].drop_nulls().to_numpy()
    span = float(known["reward"].quantile(0.99) or 0.0) - float(known["reward"].quantile(0.01) or 0.0)
    if spread.size < 20 or span <= 0:
        return None
    # A thousandth of the range is no difference that a verifier means; equal rewards leave rounding of 1e-9 of it.
    hair = (spread > 1e-7 * span) & (spread < 1e-3 * span)
    share = wilson(int(hair.sum()), int(spread.size))
    if share.low < 0.05:
        return None
    message = (
        f"In {100 * share.value:.0f} % of the groups the rewards differ by less than a thousandth of their range: ties broken by a hair."
    )
    advice = "Remove what breaks the ties (a length term, a rounding remainder): the division by the group's spread makes full steps of it."
    severity: Severity = "critical" if share.low > 0.5 else "warning"
    what = "share of groups that differ by a hair"
    return Finding(NAME, severity, None, share, 0.05, message, advice, {"drop": "ties broken"}, what)


def _drop(evidence: Evidence) -> Finding | None:
    """Report a reward that dropped from one row to the next and stayed down while the answers went on as before."""
    reward = evidence.reward
    assert reward is not None
    level, floor = level_of(reward)[0], reward_floor(evidence)
    clear = step_down(level)
    found = clear or _fallen(level, floor)
    if found is None:
        return None
    row, change, how = found
    step = int(reward.step_T[row])
    behaviour, _ = behaviour_change(evidence, step)
    if behaviour == "changed":
        return None
    told = "entropy and length went on as before" if behaviour else "no entropy or length is logged to see whether the answers changed"
    message = f"At step {step:,} the reward dropped by {-change.value:.3g} {how}, and {told}"
    held_out = held_out_at(evidence, step, change.value)
    if clear is None and held_out != "stayed":
        return None
    height = float(reward.value_T[max(0, row - 10) : row].mean()) - floor
    # Where the held-out reward is not graded down with it, or none is logged, harder prompts may be all there is.
    surely = behaviour == "unchanged" and held_out == "dropped"
    severity: Severity = "critical" if surely and -change.value > 0.3 * max(height, 1e-9) else "warning"
    stayed = "; the held-out reward did not drop with it" if held_out == "stayed" else ""
    known = {"drop": "part at once", "behaviour": behaviour}
    advice = ADVICE if surely else f"{HARDER} {ADVICE}"
    return Finding(NAME, severity, step, change, 0.0, f"{message}{stayed}.", advice, known, what="change at once")


def _fallen(signal: Signal, floor: float) -> tuple[int, Interval, str] | None:
    """Find a fall below half of the height that came at once as far as the noise shows."""
    fall = find_fall(signal, floor)
    if fall is None or not fall.lasts or by_and_by(signal, fall.row):
        return None
    few = max(5, len(signal) // 20)
    half = _QUANTILE * signal.scatter * np.sqrt(2 / few)
    change = fall.end - fall.height
    return fall.row, Interval(change, change - half, change + half), "within a few rows"


def step_down(signal: Signal) -> tuple[int, Interval, str] | None:
    """Find the row at which a metric dropped at once and stayed down."""
    n, value = len(signal), signal.value_T
    few = max(5, n // 20)
    if n < 4 * few or signal.deviation <= 0:
        return None
    total = np.concatenate([[0.0], np.cumsum(value)])
    rows = np.arange(few, n - few + 1)
    before, after = (total[rows] - total[rows - few]) / few, (total[rows + few] - total[rows]) / few
    from scipy.special import ndtri

    error = signal.deviation * np.sqrt(2 / few)
    row = int(rows[int((after - before).argmin())])
    change = signal.change(slice(row - few, row), slice(row, row + few))
    limit = -float(ndtri(CRITICAL / n))
    if change.value > -limit * error:
        return None
    # At once: the rows before still stand at the old level (a row that averages a window may mix both), and it stayed down.
    old, new = float(value[row - few : row].mean()), float(value[row : row + few].mean())
    middle, high = (old + new) / 2, new + 0.7 * (old - new)
    sharp = bool(value[row - 1] > high) and bool(value[row - 2] > middle) and bool((value[row + 1 : row + 3] < middle).all())
    stayed = float((value[row:] < middle).mean()) > 0.9
    # And it had not been falling: the rows just before stand near the height reached.
    levels = (total[few : row + 1] - total[: row + 1 - few]) / few
    flat_before = float(value[row - few : row].mean()) >= float(np.quantile(levels, 0.9)) + 0.35 * change.value
    how = f"from one row to the next ({-change.value / error:.0f} standard errors)"
    return (row, change, how) if sharp and stayed and flat_before else None


def _truncation(evidence: Evidence) -> Finding | None:
    """Note answers that are truncated and fail for it, in the rollouts."""
    rollouts, limit = evidence.record.rollouts, evidence.setting("max_completion_length")
    if rollouts is None or limit is None or not {"length", "reward"} <= set(rollouts.columns):
        return None
    known = rollouts.drop_nulls(["length", "reward"])
    cut = known.filter(pl.col("length") >= limit)
    if len(cut) < 50 or len(cut) < 0.2 * len(known):
        return None
    lowest = float(known["reward"].min() or 0.0)  # type: ignore[arg-type]
    failing = wilson(int((cut["reward"] == lowest).sum()), len(cut))
    if failing.low < 0.95:
        return None
    share = wilson(len(cut), len(known))
    message = (
        f"{100 * share.value:.0f} % of the completions are truncated at {limit} tokens, and nearly all of those earn the lowest reward."
    )
    advice = "Raise max_completion_length or leave truncated completions out of the loss: being truncated is graded as being wrong."
    return Finding(NAME, "info", None, share, 0.2, message, advice, {"drop": "none"}, what="share of the completions that are truncated")
