"""Dynamical instability: a reward that swings or breaks down as the policy comes apart.

Signs: a swing at one frequency that slow noise does not explain, an entropy that rises as the
reward falls, importance weights that degenerate. A sign alone is a warning; with harm to the reward
it is critical. Which setting is to blame is the business of `groupwise stability`. Source: the
oscillator of 2606.30789.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from groupwise.arrays import Flags, Float, median
from groupwise.diagnostics.facts import Fact
from groupwise.diagnostics.falls import Fall, fall_of, settled, signs_of_fall
from groupwise.diagnostics.judgement import Finding, Status, no_sign, not_logged
from groupwise.diagnostics.signals import (
    LOG_REWARD,
    WARNING,
    Evidence,
    Signal,
    counted,
    lasting,
    rare_event_factors,
    signal_of,
    since_when,
)
from groupwise.diagnostics.signs import arrow, moved
from groupwise.diagnostics.swings import FEWEST, DataOrder, onset_of, reward_level, swing_of
from groupwise.intervals import Interval
from groupwise.wording import short

NAME = "instability"
ADVICE = "lr ÷ 3, or fewer updates a generation; `groupwise stability RUN` says how far the edge is"
_DOUBLED = 2.0
# A swing is harm where its amplitude grew so many times, within the late rows or since the early
# ones.
GROWS = 1.5
# Chance of a line in white rows at which it is believed; rows that were smoothed before they were
# logged are not white.
LINE = 1e-6
# Rows below which a period is no swing of a policy: its updates would have to undo each other from
# row to row.
_ALTERNATES = 3.0


def check(evidence: Evidence) -> Finding:
    """Look for swings, a policy that comes apart, and degenerate importance weights."""
    reward = evidence.reward
    if reward is None:
        return not_logged(NAME, evidence.no_reward, LOG_REWARD)
    if len(reward) < FEWEST:
        said = f"{counted(len(reward), 'row')} of reward cannot tell a swing from noise"
        return not_logged(NAME, said, f"the reward of {FEWEST} steps or more")
    reward, order = reward_level(evidence)
    fall = fall_of(evidence)
    step = None if fall is None else reward.step_at(fall.row)
    looked = _swinging(reward, order), _apart(evidence, step), _weights(evidence, reward, fall)
    signs = [sign for sign in looked if sign is not None]
    if not signs:
        round_ = "" if order is None else f" but by the order of the data, {order.period} rows long"
        return no_sign(NAME, f"No sign of it: the reward does not swing{round_}.")
    # A growing swing, or a fall that is there to stay, makes it critical.
    harmed = fall is not None and settled(evidence, reward, fall)
    return replace(
        signs[0],
        status=Status.CRITICAL if harmed else signs[0].status,
        step=min(sign.step for sign in signs if sign.step is not None),
        advice=ADVICE,
        facts=tuple(fact for sign in signs for fact in sign.facts),
    )


def _swinging(reward: Signal, order: DataOrder | None) -> Finding | None:
    """A swing at one frequency."""
    swing = swing_of(reward.value_T, LINE)
    if swing is None:
        return None
    # A profile that grows or fades a little leaves lines at its own period and at whole parts of
    # it.
    turns = 0.0 if order is None else order.period / swing.period
    if turns > 0.5 and abs(turns - round(turns)) < 0.1:
        return None
    if swing.period < _ALTERNATES:
        # two sources of data in turn, which may part as the policy learns from one of them
        return None
    height = (
        float(np.abs(reward.value_T).max())
        if reward.bounds is None
        else reward.bounds[1] - reward.bounds[0]
    )
    harm = (
        swing.p_value < LINE / 10
        and swing.amplitude > 0.1 * height
        and (swing.growth > GROWS or swing.radius.low >= 1.0)
    )
    said = f"the reward keeps swinging by ±{short(swing.amplitude)} every {swing.period:.3g} rows"
    return Finding(
        NAME,
        Status.CRITICAL if harm else Status.WARNING,
        said,
        reward.step_at(onset_of(reward.value_T, swing.period)),
        swing.radius,
        1.0,
        facts=(Fact.REWARD_OSCILLATES,),
    )


def _apart(evidence: Evidence, fell: int | None) -> Finding | None:
    """An entropy that rose to twice what it was, at the time of a fall or to the end."""
    entropy = evidence.quantity("entropy")
    if entropy is None or len(entropy) < FEWEST:
        return None
    n, few = len(entropy), max(4, len(entropy) // 8)
    row = 0 if fell is None else entropy.at(fell)
    usual = median(entropy.value_T[: max(n // 3 if fell is None else row, few)])
    # Healthy public runs wander too, one by a factor of five for a while: without a fall a rise is
    # a warning at most, and has to last.
    times = 2.0 if fell is not None else 4.0
    scale = max(usual, entropy.resolution, 1e-9)
    high = entropy.value_T > times * scale
    near = slice(max(0, row - 2), row + max(few, 6))
    onset = lasting(
        np.where(np.arange(n) >= near.start, rare_event_factors(high, 0.2), 0.0), rate=WARNING
    )
    if fell is not None and high[near].sum() >= 3:
        row = near.start + int(np.argmax(high[near]))
    elif fell is None and onset is not None:
        row = onset
    else:
        return None
    peak = median(entropy.value_T[row : row + few])
    signs_told = () if fell is None else signs_of_fall(evidence)
    sign = next((sign for sign in signs_told if sign.signal == "entropy"), None)
    # The sign of the fall: one change has one level before and after.
    if sign is not None and sign.before and sign.after is not None:
        usual, peak = sign.before, sign.after
        scale = max(usual, entropy.resolution, 1e-9)
    rows = entropy.value_T[row : row + few] / scale
    value = Interval(peak / scale, float(rows.min()), float(rows.max()))
    meanwhile = " as the reward fell" if fell is not None else ""
    said = f"entropy {arrow(usual, peak)} nats a token{meanwhile}"
    step = entropy.step_at(row)
    signs = (moved("entropy", step, usual, peak),)
    return Finding(NAME, Status.WARNING, said, step, value, times, signs=signs)


def _weights(evidence: Evidence, reward: Signal, fall: Fall | None) -> Finding | None:
    """Importance weights that leave few effective samples, many clipped tokens, or a second moment
    that doubled: of weights that were so long before a fall no fact is stated.
    """
    for signal, value_T, event_T, limit, words, of in _degenerate(evidence):
        onset = since_when(event_T, still=False)
        if onset is not None:
            step, rows = signal.step_at(onset), value_T[onset:]
            value = Interval(float(rows.mean()), float(rows.min()), float(rows.max()))
            much = f"{100 * value.value:.2g} %" if limit < 1 else f"{value.value:.3g}"
            near = fall is not None and fall.row - reward.at(step) <= max(8, len(reward) // 6)
            facts = (Fact.FEW_WEIGHTS_COUNT,) if near else ()
            said = f"the {words}, {signal.column}, is {much}{of}"
            return Finding(NAME, Status.WARNING, said, step, value, limit, facts=facts)
    return None


def _degenerate(evidence: Evidence) -> Iterator[tuple[Signal, Float, Flags, float, str, str]]:
    """Yield columns of importance weights: values, where they are beyond a limit, and its words."""
    for signal in evidence.matching(ESS):
        # Of all samples where it is a share, of what it was at first where it is a count.
        count = signal.high > 1.0 + 1e-9
        usual = median(signal.value_T[: max(len(signal) // 4, 4)]) if count else 1.0
        share = signal.value_T / usual if usual > 0 else np.ones(len(signal))
        of = f" of {'what it was at first' if count else 'all'}"
        yield signal, share, share < 0.5, 0.5, "effective sample size of the importance weights", of
    clipped = evidence.quantity("clip_ratio")
    if clipped is not None and len(clipped) >= FEWEST:
        most = max(3 * median(clipped.value_T[: len(clipped) // 2]), 0.2)
        yield clipped, clipped.value_T, clipped.value_T > most, most, "share of clipped tokens", ""
    moments = moments_of(evidence)
    if moments is not None:
        mean, second, signal = moments
        moment = second / np.maximum(mean**2, 1e-300)
        words = "second moment of the importance weights"
        yield signal, moment, moment > _DOUBLED, _DOUBLED, words, ""


ESS = r"(.*[/_.-])?(eff(ective)?_sample_size|ess)(_ratio|[/_]mean)?"
# Names of importance weights; a second moment of something else, such as the optimiser's, is none
# of theirs.
_RATIO = "importance_sampling_ratio|rollout_is|probs_ratio|is_ratio|importance_ratio"
_WEIGHT = rf"({_RATIO}|importance_weights?|is_weights?|weights?)"
_MEAN = rf".*({_RATIO})[/_]mean"
_MOMENT = rf"(.*[/_.-])?{_WEIGHT}[/_]second_moment"


def moments_of(evidence: Evidence) -> tuple[Float, Float, Signal] | None:
    r"""Return mean and second moment of the importance weights by row, and the column they come
    from.

    Of a $\chi^2$, a variance or a second moment alone the mean is 1; of a standard deviation it is
    the one logged beside it.
    """
    for signal in evidence.matching(r"(.*[/_])?(chi2_token|chi2_seq|ratio_var(iance)?)([/_]mean)?"):
        return np.ones(len(signal)), 1 + np.maximum(signal.value_T, 0.0), signal
    for signal in evidence.matching(_MOMENT):
        return np.ones(len(signal)), signal.value_T, signal
    for mean in evidence.matching(_MEAN):
        for spread in evidence.matching(re.escape(mean.column.removesuffix("mean")) + "std")[:1]:
            step, rows, its = np.intersect1d(mean.step_T, spread.step_T, return_indices=True)
            if rows.size >= 2:
                mean_T = mean.value_T[rows]
                signal = signal_of(mean.column, step, mean_T)
                return mean_T, mean_T**2 + spread.value_T[its] ** 2, signal
    return None
