"""What a run says of its stability: the force from its fitted reward, the lag and the momentum from its settings, and the margin.

It asks the dynamics and arranges their answers for the mode that the reward shows. It draws nothing.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from groupwise.errors import GroupwiseError, InsufficientDataError
from groupwise.intervals import Interval
from groupwise.record import RunRecord
from groupwise.report.fitted import Fitted, refit
from groupwise.report.stability_charts import map_chart
from groupwise.report.stability_results import StabilityEvidence
from groupwise.report.stability_settings import LagSetting, UnknownSettingError, kl_notes, lag_of, momentum_of
from groupwise.report.wording import law_name, number, readable, sentence

if TYPE_CHECKING:
    from groupwise.dynamics.fluctuations import EarlyWarning
    from groupwise.dynamics.force import EffectiveForce, LastingSwing
    from groupwise.dynamics.lags import Lag
    from groupwise.dynamics.results import FitResult
    from groupwise.dynamics.stability import ImportanceRatio, Stability
    from groupwise.dynamics.stability_map import StalenessRule

NO_GUARANTEE = (
    "This speaks of the mode that the reward shows. A faster one may be invisible in it and unstable all the same: "
    "it is no guarantee of safety."
)
OFF = 3.0
"""Factor that widens the interval of a force to either side, after what `experiments/predictable_grpo/force_of_runs.py` finds."""
WHOLE_CURVE = (
    "The force comes from the whole curve, which far from its plateau is not one linear mode: the interval of the fit, which also covers "
    "frequency and envelope where they disagree, is widened by a factor of 3 to either side, after what simulated runs were off by."
)
ADAM = (
    "Adam is mapped heuristically: momentum = beta1, force = (1 − beta1) × learning rate × stiffness / root of the second moment, "
    "which is taken as constant."
)
ADAM_RATE = (
    "With Adam a log tells no largest learning rate: only, as a heuristic, how many times the present one it may be, which is the margin."
)
HALF_FORCE = (
    "Where the reward is at a maximum of its own, without a KL term that holds it off, it relaxes twice as fast as the parameters: "
    "the force is then half of this and the margin twice."
)
NO_LAG_LEFT = "The exact importance ratio leaves no lag, so force and threshold are those of on-policy training."
PERHAPS_NO_LAG = "What the ratio leaves of the lag is not known, so intervals cover both ends: the whole lag, and none."
FEWEST_EXPLAINED = 0.3
"""Share of what can be explained below which a curve tells no force."""
CLEARLY = 6.0
"""Difference of AICc beyond which another law is clearly better; the same by which an oscillation is found (`dynamics.verdict`)."""
FEWEST_TIMES = 1.0
"""Time constants that a log must span."""
LATE = 0.4
"""Share of the rows, at the end, that should vary."""
FEWEST_ROWS = 1.0
"""Rows that an oscillation must take for a radian; a decay must take twice as many for its time constant."""
_LAWS = ("exponential", "oscillator")
_NO_APPROACH = ("flat", "non_stationary", "failed")


def with_ratio(found: Stability, ratio: ImportanceRatio = "clipped") -> tuple[str, ...]:
    """Say what the importance ratio makes of an instability, which is judged without it.

    Args:
        found: as judged.
        ratio: none, exact or clipped.

    Returns:
        One sentence, or none where the mode is stable anyhow or no ratio counts.

    Example:
        >>> with_ratio(judged(0.1, 0.9, LagSetting("refresh", 8, "exact", "loss"), learning_rate=1.0), "exact")
        ('With the exact importance ratio it is stable up to 3.8.',)
    """
    low, high = found.bounds
    if found.stable or high <= found.threshold:
        return ()
    if found.force < low:
        return (f"With the exact importance ratio it is stable up to {number(low)}.",)
    if found.force >= high:
        return ("No importance ratio would hold it.",)
    if ratio == "exact":
        return (f"With the exact importance ratio it is stable up to {number(high)}, unless a KL term is in the reward.",)
    return (f"A clipped importance ratio may hold it: unclipped it would be stable up to {number(high)}.",)


def stability_evidence(record: RunRecord, fitted: Fitted) -> StabilityEvidence:
    """Say what the run's own settings and its fitted reward tell, or why they do not.

    Args:
        record: the run.
        fitted: its reward with its fit.

    Returns:
        The evidence; empty where no curve approaches anything, so that nothing is asked.

    Example:
        >>> from groupwise.report.fitted import fit_metric
        >>> from groupwise.tables import steps_table
        >>> reward = [0.8 - 0.6 * 0.9**t + 0.01 * (-1) ** t for t in range(60)]
        >>> run = RunRecord("demo", steps_table(range(60), {"reward": reward}))
        >>> stability_evidence(run, fit_metric(run, "reward")).asked
        ('momentum',)
    """
    from groupwise.dynamics.force import lasting_swing

    if fitted.fit is None or not fitted.rewarding:
        return StabilityEvidence()
    if fitted.fit.status in _NO_APPROACH and not lasting_swing(fitted.fit.value_T).lasts:
        return StabilityEvidence()
    try:
        momentum, adam = momentum_of(record)
        return measured_stability(record, fitted, momentum, lag_of(record), adam=adam)
    except UnknownSettingError as error:
        return StabilityEvidence(unavailable=str(error), asked=(error.name,))
    except GroupwiseError as error:
        return StabilityEvidence(unavailable=sentence(str(error)))


def measured_stability(
    record: RunRecord,
    fitted: Fitted,
    momentum: float,
    lag: LagSetting,
    *,
    adam: bool = False,
    learning_rate: float | None = None,
    rule: StalenessRule | None = None,
    warn: bool = False,
) -> StabilityEvidence:
    """Judge the mode that a fitted reward shows.

    Args:
        record: the run.
        fitted: its reward, fitted on the clock of updates.
        momentum: mu, or beta1 of Adam.
        lag: of its rollouts.
        adam: whether the momentum is beta1.
        learning_rate: eta; that of the run's settings where None.
        rule: the rival rule with its constants, or None.
        warn: whether to test for swings that grow along the run.

    Returns:
        The evidence.

    Raises:
        InsufficientDataError: the curve has no force, or the log does not bound it.
        InvalidArgumentError: a setting outside its domain.
    """
    from groupwise.dynamics.force import lasting_swing
    from groupwise.dynamics.stability_map import rate_limits

    if fitted.fit is None:
        raise InsufficientDataError(fitted.problem)
    swing = lasting_swing(fitted.fit.value_T)
    if fitted.fit.status in _NO_APPROACH:
        if swing.lasts:
            return StabilityEvidence(doubts=(_swings(swing),), swing=swing, adam=adam)
        raise InsufficientDataError(
            f"expected a reward that approaches a plateau, got one that does not ({readable(fitted.fit.message).rstrip('.')}): "
            "no force can be read off it; give --stiffness instead of a run"
        )
    rate = record.config.value("learning_rate") if learning_rate is None else learning_rate
    rate = rate if rate is not None and rate > 0 else None
    told, force, margin = _told(fitted, momentum, lag, rate=None if adam else rate)
    doubts = _doubts(fitted.fit, told, force, swing)
    left = lag.left[0]
    found = judged(force.force.value, momentum, left, learning_rate=1.0 if rate is None else rate)
    warning = _warning(told) if warn else None
    evidence = StabilityEvidence(
        found,
        force,
        None if doubts else margin,
        () if rate is None or adam or doubts else rate_limits(found, rate, rule),
        rate,
        tuple(_notes(record, fitted, found, lag, force, told=told, adam=adam)),
        asked=lag.asked,
        doubts=doubts,
        swing=swing,
        warning=warning,
        adam=adam,
    )
    if warning is not None and warning.p_value < ALARM:
        evidence = replace(evidence, notes=(*evidence.notes, warning.status))
    if doubts or left.kind == "mixed":
        return evidence
    return replace(evidence, charts=(map_chart(found, None if adam else rate, force=force.force),))


ALARM = 0.05
"""False-alarm rate of the sentence on growing swings."""


def _swings(swing: LastingSwing) -> str:
    """A swing of the last rows, in words."""
    return f"the reward keeps swinging at the end of the log, by {number(swing.amplitude)} to either side every {number(swing.period)} rows"


def _doubts(best: FitResult, told: FitResult, force: EffectiveForce, swing: LastingSwing) -> tuple[str, ...]:
    """Why a force is not to be trusted."""
    doubts = [_swings(swing)] if swing.lasts else []
    if told is not best and _ahead(best, told) > CLEARLY:
        doubts.append(f"the {law_name(best.law)} describes the reward clearly better than any law that has a force")
    if force.too_fast:
        doubts.append("the curve is too fast for its momentum and lag, so that nothing bounds the force above")
    if _at_rest(told):
        doubts.append("the last rows are mostly one and the same number: a reward at its bound shows no swing")
    if _only_begun(told):
        doubts.append("the log ends within the time constant of its curve, whose beginning tells little of its end")
    if _over_at_once(told):
        doubts.append("the curve is over within a few rows, too few to tell how fast it was")
    share = told.r_squared_explainable if math.isfinite(told.r_squared_explainable) else told.r_squared
    if not share >= FEWEST_EXPLAINED:
        doubts.append(f"the curve explains only {max(share, 0.0):.0%} of what can be explained of the reward")
    return tuple(doubts)


def _only_begun(told: FitResult) -> bool:
    """Whether a log ends before its curve comes near a plateau."""
    slow = told.parameters["time_constant" if told.law == "exponential" else "tau1"].value
    return not float(np.ptp(told.time_T)) >= FEWEST_TIMES * slow


def _ahead(best: FitResult, told: FitResult) -> float:
    """By how much AICc the law of a fit is behind the best one."""
    aicc = {candidate.law: candidate.aicc for candidate in best.candidates}
    return aicc[told.law] - min(aicc.values())


def _at_rest(told: FitResult) -> bool:
    """Whether most of the last rows are exactly equal."""
    late = told.value_T[-math.ceil(LATE * len(told.value_T)) :]
    return float(np.unique(late, return_counts=True)[1].max()) > 0.5 * len(late)


def _over_at_once(told: FitResult) -> bool:
    """Whether a curve is as fast as rows follow each other."""
    row = float(np.median(np.diff(told.time_T)))
    if told.law == "oscillator":
        return told.parameters["natural_frequency"].value * row > 1 / FEWEST_ROWS
    return told.parameters["time_constant"].value < 2.05 * FEWEST_ROWS * row


def _warning(told: FitResult) -> EarlyWarning | None:
    """Whether swings grow along the run; None where the log is too short for five windows."""
    from groupwise.dynamics.fluctuations import early_warning

    windows = min(10, len(told.residual_T) // 20)
    return early_warning(told.residual_T, windows=windows, level=ALARM) if windows >= 5 else None


def _told(fitted: Fitted, momentum: float, lag: LagSetting, *, rate: float | None) -> tuple[FitResult, EffectiveForce, Interval]:
    """The fit that tells a force, the force and the margin: over every lag that the loss may leave."""
    from groupwise.dynamics.force import force_of_fit
    from groupwise.dynamics.staleness import partly_stale

    problem: InsufficientDataError | None = None
    for fit in _readable_fits(fitted):
        try:
            forces = [
                force_of_fit(fit, momentum, refresh_interval=one.refresh_interval, lag=lag_of_setting(one), learning_rate=rate)
                for one in lag.left
            ]
        except InsufficientDataError as error:
            problem = problem or error
            continue
        kinds = [partly_stale(lag_of_setting(one), one.stale_share) for one in lag.left]
        limits = [
            float(kind.threshold(np.asarray(momentum), np.asarray(one.refresh_interval))) for kind, one in zip(kinds, lag.left, strict=True)
        ]
        forces = [_widened(force) for force in forces]
        margins = [_margin(limit, force.force) for limit, force in zip(limits, forces, strict=True)]
        return fit, _hull_of_forces(forces), _hull(margins)
    assert problem is not None
    raise problem


def _readable_fits(fitted: Fitted) -> list[FitResult]:
    """The fits that have a force: the best law's where it is one of the two, else those of the two, the better first."""
    fit = fitted.fit
    assert fit is not None
    if fit.law in _LAWS:
        return [fit]
    others = [candidate.law for candidate in fit.candidates if candidate.law in _LAWS]
    if not others:
        raise InsufficientDataError(
            f"expected a reward that a single exponential or a damped oscillator describes, got the {law_name(fit.law)}, "
            "which has no force: name one of the two with --law, or none"
        )
    return [refit(fitted, law) for law in others]


def _widened(force: EffectiveForce) -> EffectiveForce:
    """A force with the interval of a curve that is not one linear mode."""

    def wider(interval: Interval) -> Interval:
        return Interval(interval.value, interval.low / OFF, interval.high * OFF, interval.level)

    return replace(force, force=wider(force.force), stiffness=None if force.stiffness is None else wider(force.stiffness))


def _margin(limit: float, force: Interval) -> Interval:
    """Threshold over force."""
    low, high = (math.inf if end <= 0 else limit / end for end in (force.high, force.low))
    return Interval(limit / force.value, low, high, force.level)


def _hull(intervals: list[Interval]) -> Interval:
    """The first value with an interval that covers all."""
    first = intervals[0]
    return Interval(first.value, min(one.low for one in intervals), max(one.high for one in intervals), first.level)


def _hull_of_forces(forces: list[EffectiveForce]) -> EffectiveForce:
    """The first force with an interval that covers all; too fast where any is."""
    first = forces[0]
    stiffness = [one.stiffness for one in forces if one.stiffness is not None]
    too_fast = any(one.too_fast for one in forces)
    return replace(first, force=_hull([one.force for one in forces]), stiffness=_hull(stiffness) if stiffness else None, too_fast=too_fast)


def lag_of_setting(lag: LagSetting) -> str | Lag:
    """Return the lag of a setting as the dynamics take it.

    Args:
        lag: as set.

    Returns:
        Its kind, or the mixture.

    Example:
        >>> lag_of_setting(LagSetting("refresh", 8))
        'refresh'
    """
    from groupwise.dynamics.lags import mixed_lag

    return mixed_lag(lag.weight_D) if lag.kind == "mixed" else lag.kind


def judged(force: float, momentum: float, lag: LagSetting, *, learning_rate: float) -> Stability:
    """Judge one mode under a lag.

    Args:
        force: per update.
        momentum: mu.
        lag: of the rollouts, with what the loss does about it.
        learning_rate: eta.

    Returns:
        Where the mode stands.

    Raises:
        InvalidArgumentError: an argument outside its domain.

    Example:
        >>> judged(0.02, 0.9, LagSetting("refresh", 8, "exact", "reward"), learning_rate=1.0).bounds[1] < 0.1
        True
    """
    from groupwise.dynamics.stability import stability

    found = stability(
        force,
        momentum,
        refresh_interval=lag.refresh_interval,
        lag=lag_of_setting(lag),
        learning_rate=learning_rate,
        importance_ratio=lag.importance_ratio,
        stale_share=lag.stale_share,
        kl_term=lag.kl_term,
    )
    if lag.importance_ratio == "exact" and lag.kl_term == "unknown" and found.lag != "none":
        # A KL term in the reward would keep the whole force stale.
        ends = (found.threshold, found.bounds[1])
        return replace(found, bounds=(min(ends), max(ends)))
    return found


def mixture_notes(found: Stability, lag: LagSetting) -> list[str]:
    """What the mixture of lags behind a bound would allow."""
    if not lag.weight_D or lag.kind == "mixed":
        return []
    from groupwise.dynamics.lags import mixed_threshold

    limit = mixed_threshold(found.momentum, lag.weight_D)
    return [f"The threshold of the mixture of lags is {number(limit)}, that of the fixed lag at the bound {number(found.threshold)}."]


def _notes(
    record: RunRecord, fitted: Fitted, found: Stability, lag: LagSetting, force: EffectiveForce, *, told: FitResult, adam: bool
) -> list[str]:
    """What to know of a judgement from a run."""
    fit = fitted.fit
    assert fit is not None
    notes = [NO_GUARANTEE, WHOLE_CURVE, force.status]
    if told is not fit:
        notes.append(f"The law of the reward is the {law_name(fit.law)}, which has no force: it is read off the {law_name(told.law)}.")
    if adam:
        notes += [ADAM, ADAM_RATE]
    if told.status == "not_identifiable":
        notes.append(f"The log does not single out this law: {readable(told.message).rstrip('.')}; the interval is for this law alone.")
    schedule = str(record.config.value("learning_rate_schedule") or "constant")
    if not schedule.startswith("constant"):
        notes.append(f"The learning rate follows a schedule ({schedule}): the force is a mean over the log, and was larger at the peak.")
    notes.append(HALF_FORCE)
    if len(lag.left) > 1:
        notes.append(PERHAPS_NO_LAG)
    elif lag.left[0] is not lag:
        return [*notes, NO_LAG_LEFT, *lag.notes]
    return [*notes, *lag.notes, *kl_notes(lag), *mixture_notes(found, lag)]
