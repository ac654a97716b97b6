"""The sampler against the trainer: log-probabilities that differ between the two engines, and rollouts older than configured.

Two engines that hold the same weights differ by rounding. What they do beyond that is a gradient of another policy than the one that
sampled. Which of the two is wrong is not judged here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from groupwise.arrays import Float
from groupwise.diagnostics.judgement import Finding, Sign, Status
from groupwise.diagnostics.numerics import beyond
from groupwise.diagnostics.signals import FEWEST_ROWS, Evidence, Signal
from groupwise.errors import GroupwiseError
from groupwise.intervals import Interval
from groupwise.series.staleness import lag_of

MISMATCH, STALENESS = "sampler_mismatch", "staleness"
LOG = (
    "the difference of log-probability between sampler and trainer (TRL: sampling/sampling_logp_difference/mean; verl: "
    "actor_rollout_ref.rollout.calculate_log_probs=True)"
)
LOG_AGE = "the age of the rollouts in updates (TRL: sample/staleness_mean; verl: training/off_policy; prime-rl: off_policy/mean)"
# Rounding to bfloat16 moves a token's log-probability by some 2^-8 = .004, mixtures of experts by some .03: .1 is beyond both, and over
# 300 tokens a ratio of e^3. Ten times the first level, once that is above what rounding can do, is growth.
FAR, GROWN, ROUNDING, WRONG = 0.1, 10.0, 0.03, 1.0
# The mean importance ratio is 1 by construction; fewer effective samples than one in ten are a batch ten times smaller.
LOW_RATIO, HIGH_RATIO, FEW = 0.5, 2.0, 0.1
_FIRST = 10


@dataclass(frozen=True, slots=True)
class _Told:
    """How one quantity shows a mismatch."""

    quantity: str
    words: str  # what it is, in a few words
    value_T: Float
    event_T: NDArray[np.bool_]
    limit: float


def check(evidence: Evidence) -> Finding:
    """Look for a sampler that does not match the trainer."""
    told = [(signal, one) for signal, one in _told(evidence)]
    if not told:
        return Finding(MISMATCH, Status.NOT_LOGGED, "How far sampler and trainer differ is not in the log.", log=LOG)
    found = [(row, signal, one) for signal, one in told if (row := beyond(signal, one.event_T)) is not None]
    if not found:
        signal, one = told[0]
        few = max(3, len(signal) // 10)
        early, late = float(np.median(one.value_T[:few])), float(np.median(one.value_T[-few:]))
        return Finding(MISMATCH, Status.NONE, f"No sign of it: {one.words} {early:.2g} → {late:.2g}.")
    return _mismatch(evidence, *min(found, key=lambda each: int(each[1].step_T[each[0]])))


def _told(evidence: Evidence) -> list[tuple[Signal, _Told]]:
    """What the log says of the mismatch, quantity by quantity."""
    found = []
    for quantity, words, far in (
        ("sampler_mismatch", "sampler mismatch", FAR),
        ("sampler_probability_gap", "sampler probability gap", FAR),
        ("sampler_ratio", "sampler ratio", 0.0),
        ("effective_sample_size", "effective samples", 0.0),
    ):
        signal = evidence.quantity(quantity)
        if signal is None or len(signal) < FEWEST_ROWS:
            continue
        value = signal.value_T if quantity in ("sampler_ratio", "effective_sample_size") else np.abs(signal.value_T)
        if far:
            early = float(np.median(value[:_FIRST]))
            event = (value > far) | (value > max(GROWN * early, ROUNDING)) & (np.arange(value.size) >= _FIRST)
            limit = min(far, max(GROWN * early, ROUNDING))
        elif quantity == "sampler_ratio":
            event, limit = (value < LOW_RATIO) | (value > HIGH_RATIO), LOW_RATIO
        else:
            event, limit = value < FEW, FEW
        found.append((signal, _Told(quantity, words, value, event, limit)))
    return found


def _mismatch(evidence: Evidence, row: int, signal: Signal, one: _Told) -> Finding:
    """Report a mismatch, with what else it goes with."""
    step, late = int(signal.step_T[row]), float(np.median(one.value_T[row:]))
    before = float(np.median(one.value_T[max(0, row - 20) : row])) if row else None
    words = f"{one.words} {'' if before is None else f'{before:.2g} → '}{late:.2g}"
    facts, more = {"sampler": "mismatch"}, ""
    rate, length = evidence.quantity("learning_rate"), evidence.quantity("completion_length")
    if rate is not None and not rate.value_T.any():
        facts["rate"] = "zero"
        more = " although the learning rate is 0, so the engines differ and not the policy"
    elif length is not None and row > 0 and (grown := _grown(length, step)) is not None:
        more = f" while the completions grew from {grown[0]:,.0f} to {grown[1]:,.0f} tokens"
    wrong = one.quantity == "sampler_mismatch" and late > WRONG
    return Finding(
        MISMATCH,
        Status.CRITICAL if wrong else Status.WARNING,
        f"Sampler and trainer differ since step {step:,}: {words}{more}.",
        step,
        Interval(late, late, late),
        one.limit,
        advice="sync weights and precision of the engines; truncate importance ratios",
        signs=(Sign(one.quantity, step, before, late, words),),
        evidence=facts,
        what=f"{one.words} since",
    )


def _grown(length: Signal, step: int) -> tuple[float, float] | None:
    """The length before a step and now, where it grew by half and beyond its noise."""
    row = length.at(step)
    few = max(3, len(length) // 10)
    before, after = slice(0, max(few, min(row, 2 * few))), slice(len(length) - few, None)
    first, last = float(length.value_T[before].mean()), float(length.value_T[after].mean())
    return (first, last) if last > 1.5 * first and length.score(before, after) > 3 else None


def staleness(evidence: Evidence) -> Finding:
    """Look for rollouts that are older than the settings allow."""
    age = evidence.quantity("staleness")
    if age is None or len(age) < FEWEST_ROWS:
        wanted = evidence.setting("lag_kind") not in (None, "none")
        return Finding(STALENESS, Status.NOT_LOGGED, "The age of the rollouts is not in the log.", log=LOG_AGE if wanted else "")
    late = float(np.median(age.value_T[-max(3, len(age) // 10) :]))
    try:
        longest = float(lag_of(evidence.record).longest)
    except GroupwiseError:
        said = f"The rollouts are {late:.2g} updates old; how old they may be is not in the settings."
        return Finding(
            STALENESS, Status.INFO if late > 0.5 else Status.NONE, said, log="" if late <= 0.5 else "the kind of lag (--set lag_kind)"
        )
    # Half an update above the oldest that may be is no rounding.
    row = beyond(age, age.value_T > longest + 0.5)
    if row is None:
        return Finding(STALENESS, Status.NONE, f"No sign of it: rollouts are {late:.2g} updates old, at most {longest:g} as configured.")
    step, since = int(age.step_T[row]), float(np.median(age.value_T[row:]))
    before = float(np.median(age.value_T[:row])) if row else None
    words = f"age of rollouts {'' if before is None else f'{before:.2g} → '}{since:.2g} updates"
    return Finding(
        STALENESS,
        Status.WARNING,
        f"The rollouts are {since:.2g} updates old since step {step:,}, configured are {longest:g} at most.",
        step,
        Interval(since, since, since),
        longest,
        advice="sync weights more often; bound the staleness",
        signs=(Sign("staleness", step, before, since, words),),
        evidence={"staleness": "beyond the settings"},
        what="median age of the rollouts since, updates",
    )
