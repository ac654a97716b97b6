"""What a run says of its stability: the force from its fitted reward, lag and momentum from its
settings, and the margin.

The interval covers every lag that the loss may leave, and is widened by what a curve is off by that
is not one linear mode. What speaks against a force is said and not weighed. The verdict is never
"unstable": a curve alone does not tell that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from groupwise.analysis.fitted import Fitted, fit_metric
from groupwise.arrays import median
from groupwise.edge.mode import LagSetting
from groupwise.errors import GroupwiseError, InsufficientDataError, MissingMetricError
from groupwise.intervals import Interval, hull
from groupwise.plain import Plain, Said, Words, frozen, plain
from groupwise.record.run import RunRecord
from groupwise.series.staleness import (
    StabilitySetting,
    UnknownSettingError,
    kl_notes,
    stability_setting,
)
from groupwise.wording import in_python, law_name, number, ranged, sentence

if TYPE_CHECKING:
    from groupwise.edge.force import EffectiveForce, LastingSwing
    from groupwise.edge.mode import Stability
    from groupwise.forecasting.results import FitResult


OFF = 3.0
"""Factor that widens the interval of a force to either side, after what
`lab/experiments/predictable_grpo/force_of_runs.py` finds.
"""
FEWEST_EXPLAINED = 0.3
"""Share of what can be explained below which a curve tells no force."""
CLEARLY = 6.0
"""Difference of AICc beyond which another law is clearly better; the same by which an oscillation
is found.
"""
FEWEST_TIMES = 1.0
"""Time constants that a log must span."""
LARGE = 1000.0
"""Margin beyond which its size says nothing more."""
LATE = 0.4
"""Share of the rows, at the end, that should vary."""
FEWEST_ROWS = 1.0
"""Rows that an oscillation must take for a radian; a decay must take twice as many for its time
constant.
"""
LAWS = ("exponential", "oscillator")
NO_APPROACH = ("flat", "non_stationary")
"""States of a fit of which no force can be read."""


def margin_of(
    fits: list[FitResult], momentum: float, lag: LagSetting
) -> tuple[FitResult, EffectiveForce, Interval]:
    """Return the fit that tells a force, the force at the lag of the settings, and the margin over
    every lag that the loss may leave.
    """
    from groupwise.edge.force import force_of_fit
    from groupwise.edge.mode import threshold

    problem: InsufficientDataError | None = None
    for fit in fits:
        try:
            forces = [
                force_of_fit(
                    fit, momentum, refresh_interval=remaining.refresh_interval, lag=remaining.kind
                )
                for remaining in lag.remaining
            ]
        except InsufficientDataError as error:
            problem = problem or error
            continue
        # A curve that is not one linear mode has a wider interval.
        widened = [
            replace(fitted.force, low=fitted.force.low / OFF, high=fitted.force.high * OFF)
            for fitted in forces
        ]
        margins = []
        for left, force in zip(lag.remaining, widened, strict=True):
            limit = float(threshold(left.kind, momentum, left.refresh_interval))
            low, high = (math.inf if end <= 0 else limit / end for end in (force.high, force.low))
            margins.append(Interval(limit / force.value, low, high, force.level))
        too_fast = any(force.too_fast for force in forces)
        return fit, replace(forces[0], force=widened[0], too_fast=too_fast), hull(margins)
    assert problem
    raise problem


def fits_with_a_force(
    fit: FitResult, refit: Callable[[str], FitResult], *, law: str
) -> list[FitResult]:
    """Return the fits that have a force: the best law's, else both, the better first."""
    if fit.law in LAWS:
        return [fit]
    others = [candidate.law for candidate in fit.candidates if candidate.law in LAWS]
    if not others:
        raise InsufficientDataError(
            "expected a reward that a single exponential or a damped oscillator describes, got the "
            f"{law}, which has no restoring force: choose another last step or metric"
        )
    return [refit(other) for other in others]


def doubts_of(
    best: FitResult, fit: FitResult, force: EffectiveForce, *, law: str, swings: str
) -> Words:
    """Return why a force is not to be trusted."""
    share = fit.r_squared_explainable if math.isfinite(fit.r_squared_explainable) else fit.r_squared
    late = fit.value_T[-math.ceil(LATE * len(fit.value_T)) :]
    aicc = {candidate.law: candidate.aicc for candidate in best.candidates}
    slow = fit.parameters["time_constant" if fit.law == "exponential" else "tau1"]
    has_begun = np.ptp(fit.time_T) >= FEWEST_TIMES * slow.value
    doubts = {
        swings: bool(swings),
        f"the {law} describes the reward clearly better than an exponential or a damped "
        "oscillation, from which learning rate × curvature (the force) can be read": fit is not best
        and aicc[fit.law] - min(aicc.values()) > CLEARLY,
        "the curve is too fast for its momentum and lag, so learning rate × curvature has "
        "no upper bound": force.too_fast,
        "the last rows are mostly one constant: a reward at its bound shows no "
        "oscillation": np.unique(late, return_counts=True)[1].max() > 0.5 * len(late),
        "the log ends within a time constant of its curve: the plateau is uncertain": not has_begun,
        "the curve is over within a few rows, which are too few to estimate its "
        "speed": _over_at_once(fit),
        f"the curve explains only {max(share, 0.0):.0%} of the explainable variation": not share
        >= FEWEST_EXPLAINED,
    }
    return tuple(doubt for doubt, holds in doubts.items() if holds)


def _over_at_once(fit: FitResult) -> bool:
    """Whether a curve is as fast as rows follow each other."""
    row = median(np.diff(fit.time_T))
    if fit.law == "oscillator":
        # It is at rest half a row before the first.
        return 1 / fit.parameters["natural_frequency"].value < (FEWEST_ROWS + 0.5) * row
    return fit.parameters["time_constant"].value < 2.05 * FEWEST_ROWS * row


_OF_A_FORCE = (
    "stable",
    "margin",
    "max_learning_rate",
    "max_refresh_interval",
    "max_refresh_status",
    "margin_interval",
)


@frozen
class StabilityEvidence(Plain):
    """The section on stability."""

    KEYS = (
        "verdict said=conclusion doubts asked=unknown_settings swing learning_rate notes=all_notes"
    )

    mode: Stability | None = None  # where the mode that the reward shows stands, or None
    force: EffectiveForce | None = None  # per update, with its interval, or None
    margin: Interval | None = None  # threshold over force; None where none can be promised
    learning_rate: float | None = None  # the present one, or None
    notes: Words = ()  # sentences on what to know
    unavailable: str = ""  # why nothing can be said, or ""
    unknown_settings: Words = ()  # those that would be needed
    doubts: Words = ()  # why no margin can be promised
    swing: LastingSwing | None = None  # of the last rows, where it was looked for
    setting: StabilitySetting | None = None  # what the run's own settings say, or None

    @property
    def verdict(self) -> str:
        """Stable (as far as the log shows), open, or unavailable: stable where the whole
        interval of the margin is above 1.
        """
        if self.doubts:
            return "open"
        if self.margin is None:
            return "unavailable"
        return "stable" if self.margin.low > 1 else "open"

    @property
    def answers(self) -> bool:
        """Whether anything is told: a margin, or a reward that keeps swinging."""
        return self.margin is not None or (self.swing is not None and self.swing.lasts)

    @property
    def knows_rate(self) -> bool:
        """Whether a largest learning rate follows: it is known, and not Adam's."""
        sgd = self.setting is not None and not self.setting.adam
        return self.learning_rate is not None and sgd and self.margin is not None

    @property
    def conclusion(self) -> str:
        """What it comes to, in one sentence."""
        if self.doubts:
            return f"Undecided, because {'; '.join(self.doubts)}. No margin can be given."
        if not (self.mode and self.margin and self.force):
            return sentence(f"Unavailable: {self.unavailable}")
        force, limit = ranged_force(self.force.force), number(self.mode.threshold)
        numbers = (
            f"learning rate × curvature (the force) is {force} per update, and its limit at this "
            f"momentum and lag is {limit}, a margin of {ranged_margin(self.margin)}"
        )
        if self.verdict == "stable":
            return f"As far as the log shows, the reward is stable: {numbers}."
        return (
            f"Undecided: {numbers}. The margin may be below 1, so the log does not show whether "
            f"the run is stable.{self.mode.decision}"
        )

    @property
    def all_notes(self) -> Words:
        """What to know of the numbers, what concerns this run first."""
        return (*self.notes, *(self.mode.notes if self.mode else ()))

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; what no margin can be promised for is null."""
        plain_data = Plain.as_dict(self)
        if self.verdict == "unavailable":
            return plain_data
        of_mode = (
            self.mode.as_dict() | {"status": self.conclusion}
            if self.mode
            else dict.fromkeys(("threshold", "rule_threshold"))
        )
        plain_data = {**of_mode, **plain_data, "effective_force": plain(self.force)}
        # Without a learning rate the limits are factors of the present one.
        if not self.knows_rate:
            plain_data["max_learning_rate"] = None
        if self.mode and self.mode.lag == "none":
            plain_data |= NO_INTERVAL
        if self.margin is None:
            return plain_data | dict.fromkeys(_OF_A_FORCE)
        stable = True if self.verdict == "stable" else None
        return {**plain_data, "stable": stable, "margin_interval": self.margin.as_dict()}


NO_INTERVAL = {"max_refresh_interval": None, "max_refresh_status": "not applicable"}
"""What is said of the longest interval where there is no lag."""


def ranged_force(interval: Interval) -> str:
    """Write a value with its interval; a lower end of no use is not bounded."""
    if math.isinf(interval.high):
        low = f"at least {number(interval.low)}" if interval.low > 0 else "not bounded"
        return f"{number(interval.value)} ({low})"
    return ranged(interval)


def ranged_margin(interval: Interval) -> str:
    """Write a margin with its interval; beyond a thousand its size says nothing more."""
    bounded = math.isfinite(interval.high)
    if interval.value < LARGE and not (bounded and interval.high >= LARGE):
        return ranged_force(interval)
    value = margin_alone(interval.value)
    if interval.low >= LARGE or interval.low == interval.high:
        return value
    if bounded:
        return f"{value} ({number(interval.low)} to over {LARGE:,.0f})"
    return ranged_force(interval).replace(number(interval.value), value, 1)


def margin_alone(margin: float) -> str:
    """Write a margin without an interval: "1.69", "over 1,000 times"."""
    return f"over {LARGE:,.0f} times" if margin >= LARGE else number(margin)


NO_GUARANTEE = (
    "This covers only what the reward shows. Weights may still diverge in a direction of larger "
    "curvature that the reward does not show, so this is no guarantee."
)
WHOLE_CURVE = (
    "Learning rate × curvature is read off the whole curve, though the curvature changes on the "
    "way to the plateau. Therefore the ends of its interval are a factor of 3 farther out than the "
    "fit says, as simulated runs required."
)
ADAM = (
    "Adam is approximated: momentum = beta1, and the product is (1 − beta1) × learning rate × "
    "curvature / root of the second moment, which is treated as constant."
)
ADAM_RATE = (
    "With Adam a log does not show the largest stable learning rate, and the margin gives no room "
    "to raise it: the second moment changes with the rate."
)
HALF_FORCE = (
    "If the reward is at its own maximum and no KL term holds it back, it relaxes twice as fast "
    "as the weights: learning rate × curvature is half of this, and the margin twice as large."
)
NO_LAG_LEFT = "The exact importance ratio removes the lag: the limit is the on-policy one."
PERHAPS_NO_LAG = (
    "Learning rate × curvature and its limit are those of the whole lag. The loss may leave less "
    "of it: the interval of the margin covers that too."
)


def stability_evidence(record: RunRecord, fitted: Fitted) -> StabilityEvidence:
    """Say what the run's own settings and its fitted reward tell, or why they do not."""
    if fitted.problem or not fitted.rewarding or no_approach(fitted.fit):
        return StabilityEvidence()
    try:
        return measured_stability(record, fitted, stability_setting(record))
    except GroupwiseError as error:
        names = error.names if isinstance(error, UnknownSettingError) else ()
        return StabilityEvidence(unavailable=str(error), unknown_settings=names)


@frozen
class RunStability(Said):
    """How far a run is from instability, and how it was found out."""

    KEYS = (
        "*evidence run metric=fitted.metric law=fitted.fit.law "
        "optimizer=evidence.setting.optimizer "
        "importance_ratio=evidence.setting.lag.importance_ratio "
        "kl_term=evidence.setting.lag.kl_term"
    )

    evidence: StabilityEvidence
    run: str  # its name
    fitted: Fitted  # the reward

    def __str__(self) -> str:
        """What it comes to."""
        return in_python(self.evidence.conclusion)


def run_stability(
    record: RunRecord, *, metric: str, until: float | None, level: float
) -> RunStability:
    """Judge the mode that a run's reward shows, or say why it shows none."""
    fitted = fit_metric(record, metric, until=until, level=level)
    if not fitted.rewarding:
        raise MissingMetricError(
            f"expected a reward, got {fitted.metric}: the force is estimated from how a reward "
            "approaches its plateau"
        )
    evidence = StabilityEvidence(unavailable=fitted.problem or no_approach(fitted.fit))
    if not evidence.unavailable:
        evidence = stability_evidence(record, fitted)
    return RunStability(evidence, record.name, fitted)


def no_approach(fit: FitResult) -> str:
    """Return why a reward that neither nears a plateau nor swings tells no force, or ""."""
    from groupwise.edge.force import lasting_swing

    if fit.status not in NO_APPROACH or lasting_swing(fit.value_T).lasts:
        return ""
    return (
        "expected a reward that approaches a plateau, got one that does not "
        f"({fit.message.partition(':')[0]}): choose another last step or metric"
    )


def measured_stability(
    record: RunRecord, fitted: Fitted, setting: StabilitySetting
) -> StabilityEvidence:
    """Judge the mode that a fitted reward shows."""
    from groupwise.edge.force import lasting_swing
    from groupwise.edge.mode import stability

    fit = fitted.fit
    swing, lag = lasting_swing(fit.value_T), setting.lag
    assumed = (setting.assumption,) if setting.assumption else ()
    swings = ""
    if swing.lasts:
        reach, period = number(swing.amplitude), number(swing.period)
        swings = (
            f"the reward still oscillates at the end of the log, by ±{reach} every {period} rows"
        )
    if fit.status in NO_APPROACH:
        return StabilityEvidence(notes=assumed, doubts=(swings,), swing=swing, setting=setting)
    rate = record.config.value("learning_rate")
    rate = rate if rate and rate > 0 else None
    law = law_name(fit.law)
    with_force, force, margin = margin_of(
        fits_with_a_force(fit, fitted.by_law, law=law), setting.momentum, lag
    )
    doubts = doubts_of(fit, with_force, force, law=law, swings=swings)
    left = lag.remaining[0]
    mode = stability(
        force.force.value,
        setting.momentum,
        refresh_interval=left.refresh_interval,
        lag=left.kind,
        learning_rate=rate,
        importance_ratio=left.importance_ratio,
        kl_term=left.kl_term,
        lag_is_bound=left.is_bound,
    )
    return StabilityEvidence(
        mode,
        force,
        None if doubts else margin,
        rate,
        (NO_GUARANTEE, *assumed, *_notes(record, fit, with_force, setting)),
        doubts=doubts,
        swing=swing,
        setting=setting,
    )


def _notes(
    record: RunRecord, fit: FitResult, with_force: FitResult, setting: StabilitySetting
) -> list[str]:
    """What to know of a judgement from a run: what may change its answer first."""
    notes, lag = [], setting.lag
    if with_force is not fit:
        notes.append(
            f"The law of the reward is the {law_name(fit.law)}, which has no curvature to read "
            f"off. Instead it is read off the {law_name(with_force.law)}."
        )
    if with_force.status == "not_identifiable":
        notes.append(
            f"The log does not single out one law ({with_force.message.rstrip('.')}). "
            "The interval holds only if this law is right."
        )
    schedule = str(record.config.value("learning_rate_schedule") or "constant")
    if not schedule.startswith("constant"):
        notes.append(
            f"The learning rate follows a schedule ({schedule}): learning rate × curvature is a "
            "mean over the log, and it was larger at the peak."
        )
    notes += [*[ADAM_RATE, ADAM] * setting.adam, WHOLE_CURVE, HALF_FORCE]
    if len(lag.remaining) > 1:
        notes.append(PERHAPS_NO_LAG)
    elif lag.remaining[0] is not lag:
        return [*notes, NO_LAG_LEFT]
    return [*notes, *kl_notes(lag)]
