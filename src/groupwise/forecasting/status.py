"""From competing fits to a status and a sentence, and where a law stops to hold.

The thresholds live here, each with its reason. A fall from the height once reached and aimless
wandering each name the time from which no single law describes the series; what to do about it is
for diagnosis.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from groupwise.arrays import Float, moving_mean
from groupwise.forecasting.law_fit import LawFit
from groupwise.forecasting.observations import Observations
from groupwise.forecasting.results import Outcome
from groupwise.intervals import Interval
from groupwise.parsing import JsonObject
from groupwise.plain import frozen

# AICc differences under 2 are no evidence (Burnham and Anderson 2002, section 2.6).
NO_EVIDENCE = 2.0
# A constant is given up only for a law this far ahead: five laws with free shapes are tried against
# it, and the best of them is ahead by 8 in 2-5 % of series that do not move at all
# (lab/docs/theory/fit.md has the table).
FLAT = 8.0
# Inertia is a finding: the oscillator is chosen only if it is this far ahead of every law that has
# none, and foretells rows better.
INERTIA = 6.0
SLOW_STARTS = ("logistic", "scalerl_sigmoid")  # laws that begin slowly without inertia
# With fewer observations than this no law can be told from any other.
FEW = 8


def ranked(fits: Sequence[LawFit], *, inertia: bool = True) -> list[LawFit]:
    """The law to report first, then the others by AICc: the simplest that the evidence does not
    rule out; inertia may be left aside.
    """
    ordered = sorted(fits, key=lambda fit: fit.aicc)
    best = ordered[0].aicc
    lead = ordered[0]
    constant = [fit for fit in ordered if not fit.law.shapes]
    inert = [fit for fit in ordered if fit.law.name != "oscillator"]
    if constant and constant[0].aicc - best < FLAT:
        lead = constant[0]
    elif inert and (inert[0].aicc - best < INERTIA or not inertia):
        close = [fit for fit in inert if fit.aicc - inert[0].aicc < NO_EVIDENCE]
        lead = min(close, key=lambda fit: len(fit.law.parameters))
    return [lead, *(fit for fit in ordered if fit is not lead)]


def close_laws(fits: Sequence[LawFit], within: float = NO_EVIDENCE) -> list[LawFit]:
    """The laws that move, beside the one reported first, and lie so close to the best in AICc.

    A slow start has two explanations: what inertia must be ahead by to be named, it must be behind
    by to be ruled out.
    """
    best, slow = min(fit.aicc for fit in fits), fits[0].law.name in SLOW_STARTS
    wide = max(within, INERTIA) if slow else within
    return [
        fit
        for fit in fits[1:]
        if fit.law.shapes and fit.aicc - best < (wide if fit.law.name == "oscillator" else within)
    ]


Told = tuple[Outcome, dict[str, Any]]
"""An outcome with the numbers of its sentence, and the time of a change as `change`."""


@frozen
class Verdict:
    """What the fits come to, its sentence, the time of a change (nan: none), and further
    findings.
    """

    outcome: Outcome
    message: str
    change_time: float
    notes: tuple[str, ...]


def judge(
    observations: Observations,
    fits: Sequence[LawFit],
    parameters: Mapping[str, Interval],
    *,
    healthy: Literal["up", "any"],
) -> Verdict:
    """Say what the fits support."""
    best = fits[0]
    notes = (_smoothing_note(observations), _noise_note(best), _rival_note(fits))
    explained = _explained(observations, best.curve_M)
    outcome, numbers = (
        _few(observations, parameters["plateau"])
        or _broken(observations, best, parameters, explained, rising=healthy == "up")
        or _hidden(observations, best)
        or _holding(observations, fits, parameters, explained)
    )
    change = numbers.pop("change", math.nan)
    return Verdict(outcome, outcome.sentence.format(**numbers), change, tuple(filter(None, notes)))


def _few(observations: Observations, plateau: Interval) -> Told | None:
    """What is said of fewer rows than allow a law."""
    few = {"rows": observations.time_M.size, "level": _range(plateau)}
    return (Outcome.TOO_FEW, few) if observations.time_M.size < FEW else None


def _hidden(observations: Observations, best: LawFit) -> Told | None:
    """What is said of rows that are perhaps averages of each other."""
    outcome = Outcome.MAYBE_SMOOTHED, {"rows": observations.rows}
    return outcome if doubtful(observations, best) else None


def _broken(
    observations: Observations,
    best: LawFit,
    parameters: Mapping[str, Interval],
    explained: float,
    *,
    rising: bool,
) -> Told | None:
    """What is said where no law holds to the end: a fall for good, or a curve that wanders."""
    if rising and (fall := _collapse(observations, best, parameters, explained)):
        return Outcome.COLLAPSED, fall
    settled = best.law.shapes and not unidentified(best, parameters)
    wandering = not settled and explained < 0.5 and wanders(best, observations)
    return (Outcome.WANDERS, {"change": 0.0}) if wandering else None


def _holding(
    observations: Observations,
    fits: Sequence[LawFit],
    parameters: Mapping[str, Interval],
    explained: float,
) -> Told:
    """What is said of a law that holds, or of the level where none does."""
    best, plateau = fits[0], parameters["plateau"]
    if not best.law.shapes:
        level = {"rows": observations.rows, "level": _range(plateau)}
        slow = plateau.width > float(np.ptp(observations.value_M))
        return (Outcome.SLOW_NOISE, level) if slow else (Outcome.FLAT, level)
    if explained < 0.02:
        return Outcome.EMPTY, {"law": best.law.name}
    if open_names := unidentified(best, parameters):
        names = ", ".join(f"{name} {_range(parameters[name])}" for name in open_names)
        return Outcome.OPEN, {"law": best.law.name, "names": names}
    close = close_laws(fits)
    laws = ", ".join(fit.law.name for fit in (best, *close))
    return (Outcome.SHARED if close else Outcome.CONVERGED), {
        "law": best.law.name,
        "laws": laws,
        **_converged(best, parameters),
    }


def _collapse(
    observations: Observations, best: LawFit, parameters: Mapping[str, Interval], explained: float
) -> JsonObject:
    """When a metric that should rise fell for good, and the levels before and after; empty where
    it did not.
    """
    # A rise and a fall are not yet an oscillation: that takes a period and a half.
    if (
        best.law.name == "oscillator"
        and parameters["damping_ratio"].high < 1
        and 1.5 * parameters["period"].value < observations.span
    ):
        return {}
    change = fall_from_height(observations)
    # Where 0 is no floor, slow noise can look like a fall: then a law has to describe it.
    if not np.isfinite(change) or not (observations.value_M.min() >= 0 or explained > 0.5):
        return {}
    before, after = _levels(observations, change)
    return {
        "change": change,
        "since": change + observations.origin,
        "before": before,
        "after": after,
    }


def _levels(observations: Observations, since: float) -> tuple[float, float]:
    """Mean of the last rows before a time, and of the last rows of all."""
    value = observations.value_M
    before, few = value[observations.time_M < since], max(3, value.size // 20)
    return float(before[-few:].mean()) if before.size else np.nan, float(value[-few:].mean())


def unidentified(best: LawFit, parameters: Mapping[str, Interval]) -> tuple[str, ...]:
    """Names of the parameters that the data do not limit in a way that matters.

    The plateau counts as open where its interval is wider than twice the change that was seen; a
    time scale or rate where it has no limit towards slowness. A damping ratio open above is the
    overdamped limit, which is an answer.
    """
    if not best.law.shapes:
        return ()
    seen = float(np.ptp(best.curve_M))
    loose = [
        name
        for name in ("plateau", "start")
        if not parameters[name].bounded or parameters[name].width > 2 * seen
    ]
    # A power law or ScaleRL sigmoid trades its time scale against its exponent; only the plateau
    # must hold.
    slow = {"oscillator": "tau1", "exponential": "time_constant", "logistic": "midpoint"}.get(
        best.law.name
    )
    if slow is not None and not np.isfinite(parameters[slow].high):
        loose.append(slow)
    return tuple(loose)


def doubtful(observations: Observations, best: LawFit) -> bool:
    """Whether a short series may be a smoothed one, and its noise is smooth enough for that to
    matter.
    """
    return observations.smoothing_doubt and best.noise.best_shape.neighbour >= 0.65


def _range(interval: Interval) -> str:
    """An interval as people write it."""
    low = f"{interval.low:.4g}" if np.isfinite(interval.low) else "no limit"
    high = f"{interval.high:.4g}" if np.isfinite(interval.high) else "no limit"
    return f"{interval.value:.4g} ({low} to {high})"


def _converged(best: LawFit, parameters: Mapping[str, Interval]) -> JsonObject:
    """What the sentence says of a law that holds."""
    start, plateau, now = best.values["start"], best.values["plateau"], float(best.curve_M[-1])
    done = (now - start) / (plateau - start) if plateau != start else 1.0
    where = f"{100 * min(done, 1.0):.0f} % of the way is done"
    if best.law.name == "oscillator" and parameters["overshoot"].value > 0.02:
        where += f"; overshoots by {100 * parameters['overshoot'].value:.0f} % of the way"
    way = "rises" if plateau > start else "falls"
    return {
        "way": way,
        "start": _range(parameters["start"]),
        "plateau": _range(parameters["plateau"]),
        "where": where,
    }


def _smoothing_note(observations: Observations) -> str:
    """That rows were left out because the series had been smoothed."""
    if observations.smoothing == 1:
        return ""
    return (
        f"the series had been smoothed over {observations.smoothing} rows before it was logged: "
        f"only every {observations.smoothing}th row is used, {observations.time_M.size} in all, "
        "since the rows between repeat them"
    )


def _noise_note(best: LawFit) -> str:
    """That neighbouring rows are correlated."""
    neighbour = best.noise.best_shape.neighbour
    if neighbour < 0.3:
        return ""
    hidden = "; an exponential smoother would look the same" if neighbour > 0.85 else ""
    return (
        f"neighbouring rows correlate by {neighbour:.2f} about the curve; the intervals are "
        f"widened accordingly{hidden}"
    )


def _rival_note(fits: Sequence[LawFit]) -> str:
    """Which other laws fit as well."""
    rivals = [fit.law.name for fit in fits[1:] if fit.aicc - fits[0].aicc < NO_EVIDENCE]
    verb = "fits" if len(rivals) == 1 else "fit"
    return f"{', '.join(rivals)} {verb} as well (AICc within {NO_EVIDENCE:g})" if rivals else ""


def _running_mean(observations: Observations) -> Float:
    """Mean of each block with its neighbours, a twentieth of the series wide."""
    value = observations.value_M
    half = max(1, value.size // 40)
    padded = np.pad(value, half, mode="edge")
    return moving_mean(padded, 2 * half + 1)


def fall_from_height(observations: Observations) -> float:
    """Time from which a metric that should rise has lost most of its height for good, or nan.

    Read from the running mean and not from a fitted curve, which bridges rise and fall. The last
    twentieth of the rows has to lie in the lower half of what was reached, and further from the
    height than their scatter explains.
    """
    value, smooth = observations.value_M, _running_mean(observations)
    if value.size < 12:
        return math.nan
    few = max(3, value.size // 20)
    # The height is the mean of the highest few, so that a short good time counts and a single lucky
    # mean does not.
    height = float(np.sort(smooth)[-few:].mean())
    end = float(value[-few:].mean())
    floor = min(float(smooth.min()), 0.0) if height > 0 else float(smooth.min())
    scatter = math.sqrt(np.mean(np.diff(value) ** 2) / 2)
    if height - end < 0.5 * (height - floor) or height - end < 5 * scatter / np.sqrt(few):
        return math.nan
    high = np.flatnonzero(smooth >= height - 0.2 * (height - end))
    first, last = int(high[0]), int(high[-1])
    # Slow noise about a level visits both ends again and again; what collapsed stood high for a
    # while and was seldom low meanwhile.
    was_low = float((smooth[first : last + 1] < end + 0.25 * (height - end)).mean())
    if was_low > 0.1 or last - first < few - 1 or last >= value.size - few:
        return math.nan
    # The running mean is out by half its width: two levels fit the rows about the fall best there.
    start = max(last - few, 0)
    near = value[start : last + 2 * few + 1]
    place = np.arange(1, near.size)
    gain = np.cumsum(near - near.mean())[:-1] ** 2 / (place * (near.size - place))
    return float(observations.time_M[start + 1 + int(gain.argmax())])


def r_squared(value_T: Float, curve_T: Float) -> float:
    r"""$R^2 = 1 - \sum (y - \hat y)^2 / \sum (y - \bar y)^2$; nan for a constant series."""
    total = float(((value_T - value_T.mean()) ** 2).sum())
    return 1 - float(((value_T - curve_T) ** 2).sum()) / total if total > 0 else math.nan


def _explained(observations: Observations, curve_M: Float) -> float:
    """Share of the variance of the running mean that a fitted curve explains."""
    share = r_squared(_running_mean(observations), curve_M)
    return 1.0 if math.isnan(share) else share


def wanders(fit: LawFit, observations: Observations) -> bool:
    """Whether the noise about a curve is nearly as slow as the log is long, so that the curve
    means little.
    """
    shape = fit.noise.best_shape
    if shape.share < 0.6 or observations.time_M.size < 20:
        return False
    correlation_time = -shape.gap / np.log(max(shape.correlation, 1e-12))
    return bool(correlation_time > max(observations.span / 8, 8 * shape.gap))
