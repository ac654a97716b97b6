"""From competing fits to a status and a sentence.

The thresholds live here, each with its reason; no number is estimated in this module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from groupwise.curves import breaks
from groupwise.curves.law_fit import LawFit
from groupwise.curves.observations import Observations
from groupwise.curves.results import FitStatus
from groupwise.intervals import Interval

# AICc differences under 2 are no evidence (Burnham and Anderson 2002, section 2.6).
NO_EVIDENCE = 2.0
# A constant is given up only for a law this far ahead: five laws with free shapes are tried against it, and the best of
# them is ahead by 8 in 2-5 % of series that do not move at all (docs/theory/fit.md has the table).
FLAT = 8.0
# Inertia is a finding: the oscillator is chosen only if it is this far ahead of every law that has none.
INERTIA = 6.0
# With fewer observations than this no law can be told from any other.
FEW = 8


def ranked(fits: Sequence[LawFit]) -> list[LawFit]:
    """The law to report first, then the others by AICc: the simplest that the evidence does not rule out."""
    ordered = sorted(fits, key=lambda found: found.aicc)
    best = ordered[0].aicc
    constant = [found for found in ordered if not found.law.shapes]
    if constant and constant[0].aicc - best < FLAT:
        return [constant[0], *(found for found in ordered if found is not constant[0])]
    inert = [found for found in ordered if found.law.name != "oscillator"]
    if inert and inert[0].aicc - best < INERTIA:
        close = [found for found in inert if found.aicc - inert[0].aicc < NO_EVIDENCE]
        lead = min(close, key=lambda found: len(found.law.parameters))
        return [lead, *(found for found in ordered if found is not lead)]
    return ordered


@dataclass(frozen=True, slots=True)
class Verdict:
    """Status, its sentence, the time of a change (nan: none), and further findings."""

    status: FitStatus
    message: str
    change_time: float
    notes: tuple[str, ...]


def judge(
    observations: Observations,
    fits: Sequence[LawFit],
    parameters: Mapping[str, Interval],
    jump: breaks.Break | None,
    *,
    momentum: float | None,
    healthy: Literal["up", "any"],
) -> Verdict:
    """Say what the fits support."""
    notes = _notes(observations, fits, parameters, momentum)
    nan, best = float("nan"), fits[0]
    if observations.time_M.size < FEW:
        return Verdict("not_identifiable", _few_sentence(observations, parameters["plateau"]), nan, notes)
    if doubtful(observations, best):
        return Verdict("not_identifiable", _doubt_sentence(observations), nan, notes)
    loose = unidentified(best, parameters) if best.law.shapes else ()
    explained = breaks.explained(observations, best.curve_M)
    change, sentence = _non_stationary(observations, fits, parameters, jump, healthy, explained)
    if not sentence and (loose or not best.law.shapes) and explained < 0.5 and breaks.wanders(best, observations):
        change, sentence = 0.0, "non-stationary: the mean wanders as slowly as the log is long; no law describes it"
    if sentence:
        return Verdict("non_stationary", sentence, change, notes)
    if best.law.shapes and explained < 0.02:
        return Verdict("not_identifiable", _empty_sentence(best), nan, notes)
    if not best.law.shapes and parameters["plateau"].width > float(np.ptp(observations.value_M)):
        return Verdict("not_identifiable", _slow_sentence(observations, parameters["plateau"]), nan, notes)
    if not best.law.shapes:
        return Verdict("flat", _flat_sentence(parameters["plateau"], observations, fits), nan, notes)
    if loose:
        return Verdict("not_identifiable", _loose_sentence(best, parameters, loose), nan, notes)
    return Verdict("converged", _converged_sentence(best, parameters), nan, notes)


def _non_stationary(
    observations: Observations,
    fits: Sequence[LawFit],
    parameters: Mapping[str, Interval],
    jump: breaks.Break | None,
    healthy: Literal["up", "any"],
    explained: float,
) -> tuple[float, str]:
    """A sentence, and since when, if no law holds."""
    best = fits[0]
    # A rise and a fall are not yet an oscillation: that takes a period and a half.
    swings = best.law.name == "oscillator" and parameters["damping_ratio"].high < 1 and 1.5 * parameters["period"].value < observations.span
    beaten = jump is not None and jump.aicc + breaks.MARGIN < best.aicc
    if healthy == "up" and not swings:
        fall = breaks.fall_from_height(observations)
        sharper = jump is not None and jump.jump < 0 and jump.aicc < best.aicc
        # Where 0 is no floor, slow noise can look like a fall: then a law or a jump has to describe it.
        floored = float(observations.value_M.min()) >= 0
        described = sharper or explained > 0.5
        if np.isfinite(fall) and (floored or described):
            since = jump.time if jump is not None and sharper else fall
            before, after = _levels(observations, since)
            return since, f"collapsed: the mean falls from {before:.4g} to {after:.4g}, from {_at(since, observations)} on"
    if jump is not None and beaten and breaks.matters(jump, observations):
        before, after = _levels(observations, jump.time)
        recovered = abs(after - before) < 0.5 * abs(jump.jump)
        way = "falls" if jump.jump < 0 else "jumps up"
        size, when = f"{abs(jump.jump):.4g}", _at(jump.time, observations)
        end = "and has come back since" if recovered else "no single law holds across it"
        return jump.time, f"non-stationary: the level {way} by {size} at {when}; {end}"
    return float("nan"), ""


def _levels(observations: Observations, since: float) -> tuple[float, float]:
    """Mean of the last rows before a time, and of the last rows of all."""
    few = max(3, observations.value_M.size // 20)
    before = observations.value_M[observations.time_M < since]
    return float(before[-few:].mean()) if before.size else float("nan"), float(observations.value_M[-few:].mean())


def _at(time: float, observations: Observations) -> str:
    """A time in the caller's clock."""
    return f"update {time + observations.origin:.6g}"


def unidentified(best: LawFit, parameters: Mapping[str, Interval]) -> tuple[str, ...]:
    """Names of the parameters that the data do not limit in a way that matters.

    The plateau counts as open where its interval is wider than twice the change that was seen; a time scale or rate
    where it has no limit towards slowness. A damping ratio open above is the overdamped limit, which is an answer.
    """
    seen = float(np.ptp(best.curve_M))
    loose = [name for name in ("plateau", "start") if not parameters[name].bounded or parameters[name].width > 2 * seen]
    if best.law.name == "oscillator":
        return tuple(loose + [name for name in ("tau1",) if not np.isfinite(parameters[name].high)])
    slow = [name for name in best.law.shapes if name in ("time_constant", "midpoint", "time_scale")]
    # A power law or ScaleRL sigmoid trades its time scale against its exponent; only the plateau must hold.
    checked = slow if best.law.name in ("exponential", "logistic") else []
    return tuple(loose + [name for name in checked if not np.isfinite(parameters[name].high)])


def _range(interval: Interval, digits: str = ".4g") -> str:
    """An interval as people write it."""
    low = f"{interval.low:{digits}}" if np.isfinite(interval.low) else "no limit"
    high = f"{interval.high:{digits}}" if np.isfinite(interval.high) else "no limit"
    return f"{interval.value:{digits}} ({low} to {high})"


def doubtful(observations: Observations, best: LawFit) -> bool:
    """Whether a short series may be a smoothed one, and its noise is smooth enough for that to matter."""
    return observations.smoothing_doubt and best.noise.best_shape.neighbour >= 0.65


def unlimited(interval: Interval) -> Interval:
    """The same value without limits: what is left of an interval when its premise is in doubt."""
    return Interval(interval.value, -np.inf, np.inf, interval.level)


def _doubt_sentence(observations: Observations) -> str:
    return (
        f"not identifiable yet: {observations.rows} rows cannot tell slow noise from a curve smoothed before it was logged, "
        "which would hide its start; if the log is raw, say --set smoothing=1"
    )


def _empty_sentence(best: LawFit) -> str:
    return f"not identifiable yet: the {best.law.name} law is preferred, but it explains nothing of what the rows do"


def _slow_sentence(observations: Observations, plateau: Interval) -> str:
    return (
        f"not identifiable yet: over {observations.rows} rows slow changes cannot be told from slow noise; "
        f"a constant would lie at {_range(plateau)}"
    )


def _few_sentence(observations: Observations, plateau: Interval) -> str:
    rows = observations.time_M.size
    return f"not identifiable yet: {rows} independent observations are too few for a law; the level is {_range(plateau)}"


def _flat_sentence(plateau: Interval, observations: Observations, fits: Sequence[LawFit]) -> str:
    ahead = fits[0].aicc - min(found.aicc for found in fits)
    hint = f"; the best other law is {ahead:.1f} ahead in AICc, which chance does too" if ahead > NO_EVIDENCE else ""
    return f"flat: no law beats a constant over {observations.rows} rows; the level is {_range(plateau)}{hint}"


def _loose_sentence(best: LawFit, parameters: Mapping[str, Interval], loose: tuple[str, ...]) -> str:
    names = ", ".join(f"{name} {_range(parameters[name])}" for name in loose)
    return f"not identifiable yet: the {best.law.name} law fits best, but the data do not limit {names}"


def _converged_sentence(best: LawFit, parameters: Mapping[str, Interval]) -> str:
    start, plateau, now = best.values["start"], best.values["plateau"], float(best.curve_M[-1])
    done = (now - start) / (plateau - start) if plateau != start else 1.0
    where = "the plateau is reached" if done > 0.95 else f"{100 * done:.0f} % of the way is done"
    way = "rises" if plateau > start else "falls"
    ends = f"from {_range(parameters['start'])} to a plateau of {_range(parameters['plateau'])}"
    text = f"the {best.law.name} law holds: {way} {ends}; {where}"
    if best.law.name == "oscillator" and parameters["overshoot"].value > 0.02:
        text += f"; overshoots by {100 * parameters['overshoot'].value:.0f} % of the way"
    return text


def _notes(
    observations: Observations, fits: Sequence[LawFit], parameters: Mapping[str, Interval], momentum: float | None
) -> tuple[str, ...]:
    """Findings beside the status."""
    notes = (
        _smoothing_note(observations),
        _noise_note(fits[0]),
        _rival_note(fits),
        _inertia_note(fits, parameters, momentum),
    )
    return tuple(note for note in notes if note)


def _smoothing_note(observations: Observations) -> str:
    if observations.smoothing == 1:
        return ""
    return (
        f"the series had been smoothed over {observations.smoothing} rows before it was logged: only every "
        f"{observations.smoothing}th row is used, {observations.time_M.size} in all, since the rows between repeat them"
    )


def _noise_note(best: LawFit) -> str:
    neighbour = best.noise.best_shape.neighbour
    if neighbour < 0.3:
        return ""
    hidden = "; an exponential smoother would look the same" if neighbour > 0.85 else ""
    return f"neighbouring rows correlate by {neighbour:.2f} about the curve; the intervals are widened accordingly{hidden}"


def _rival_note(fits: Sequence[LawFit]) -> str:
    rivals = [found.law.name for found in fits[1:] if found.aicc - fits[0].aicc < NO_EVIDENCE]
    verb = "fits" if len(rivals) == 1 else "fit"
    return f"{', '.join(rivals)} {verb} as well (AICc within {NO_EVIDENCE:g})" if rivals else ""


def _inertia_note(fits: Sequence[LawFit], parameters: Mapping[str, Interval], momentum: float | None) -> str:
    """Inertia is a finding: it needs the oscillator to beat the laws that have none, and tau2 to match the momentum."""
    by_name = {found.law.name: found.aicc for found in fits}
    if fits[0].law.name != "oscillator" or "tau2" not in parameters:
        return ""
    inert = [name for name in ("logistic", "scalerl_sigmoid") if name in by_name and by_name[name] - fits[0].aicc < NO_EVIDENCE]
    text = f"slow start: tau2 = {_range(parameters['tau2'], '.3g')} updates"
    if momentum is not None and 0 <= momentum < 1:
        expected = 1 / (1 - momentum)
        agrees = parameters["tau2"].covers(expected)
        text += f", {'in agreement with' if agrees else 'not'} the 1/(1-momentum) = {expected:.3g} of the optimiser"
        if not agrees:
            text += ": the slow start is not the optimiser's inertia"
    if inert:
        text += f"; {' and '.join(inert)} {'fits' if len(inert) == 1 else 'fit'} as well without inertia"
    return text
