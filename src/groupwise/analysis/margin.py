"""The margin of a run: the force of its fitted reward, and its threshold.

The interval covers every lag that the loss may leave, and is widened by what a curve is off by that
is not one linear mode. What speaks against a force is said and not weighed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from groupwise.arrays import median
from groupwise.edge.trainers import LagSetting
from groupwise.errors import InsufficientDataError
from groupwise.intervals import Interval, hull

if TYPE_CHECKING:
    from groupwise.edge.force import EffectiveForce
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
NO_APPROACH = ("flat", "non_stationary", "failed")
"""States of a fit of which no force can be read."""


def margin_of(
    fits: list[FitResult], momentum: float, lag: LagSetting
) -> tuple[FitResult, EffectiveForce, Interval]:
    """Return the fit that tells a force, the force and the margin over every lag allowed."""
    from groupwise.edge.force import force_of_fit
    from groupwise.edge.threshold import threshold

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
        limits = [
            float(threshold(remaining.kind, momentum, remaining.refresh_interval))
            for remaining in lag.remaining
        ]
        # A curve that is not one linear mode has a wider interval.
        widened = [
            replace(fitted.force, low=fitted.force.low / OFF, high=fitted.force.high * OFF)
            for fitted in forces
        ]
        margins = [_margin(limit, force) for limit, force in zip(limits, widened, strict=True)]
        too_fast = any(force.too_fast for force in forces)
        whole = replace(forces[0], force=hull(widened), too_fast=too_fast)
        return fit, whole, hull(margins)
    assert problem is not None
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
            "expected a reward that a single exponential or a damped oscillator describes, got "
            f"the {law}, which has no force: name one of the two with --law, or none"
        )
    return [refit(other) for other in others]


def _margin(limit: float, force: Interval) -> Interval:
    """Threshold over force."""
    low, high = (math.inf if end <= 0 else limit / end for end in (force.high, force.low))
    return Interval(limit / force.value, low, high, force.level)


def doubts_of(
    best: FitResult, fit: FitResult, force: EffectiveForce, *, law: str, swings: str = ""
) -> tuple[str, ...]:
    """Return why a force is not to be trusted."""
    doubts = [swings] if swings else []
    if fit is not best and _ahead(best, fit) > CLEARLY:
        doubts.append(
            f"the {law} describes the reward clearly better than any law that has a force"
        )
    if force.too_fast:
        doubts.append(
            "the curve is too fast for its momentum and lag, so that nothing bounds the force above"
        )
    if _at_rest(fit):
        doubts.append(
            "the last rows are mostly one and the same number: a reward at its bound shows no swing"
        )
    if _only_begun(fit):
        doubts.append(
            "the log ends within the time constant of its curve, whose beginning tells little of "
            "its end"
        )
    if _over_at_once(fit):
        doubts.append("the curve is over within a few rows, too few to tell how fast it was")
    share = fit.r_squared_explainable if math.isfinite(fit.r_squared_explainable) else fit.r_squared
    if not share >= FEWEST_EXPLAINED:
        doubts.append(
            f"the curve explains only {max(share, 0.0):.0%} of what can be explained of the reward"
        )
    return tuple(doubts)


def _only_begun(fit: FitResult) -> bool:
    """Whether a log ends before its curve comes near a plateau."""
    slow = fit.parameters["time_constant" if fit.law == "exponential" else "tau1"].value
    return not np.ptp(fit.time_T) >= FEWEST_TIMES * slow


def _ahead(best: FitResult, fit: FitResult) -> float:
    """By how much AICc the law of a fit is behind the best one."""
    aicc = {candidate.law: candidate.aicc for candidate in best.candidates}
    return aicc[fit.law] - min(aicc.values())


def _at_rest(fit: FitResult) -> bool:
    """Whether most of the last rows are exactly equal."""
    late = fit.value_T[-math.ceil(LATE * len(fit.value_T)) :]
    return float(np.unique(late, return_counts=True)[1].max()) > 0.5 * len(late)


def _over_at_once(fit: FitResult) -> bool:
    """Whether a curve is as fast as rows follow each other."""
    row = median(np.diff(fit.time_T))
    if fit.law == "oscillator":
        # It is at rest half a row before the first.
        return 1 / fit.parameters["natural_frequency"].value < (FEWEST_ROWS + 0.5) * row
    return fit.parameters["time_constant"].value < 2.05 * FEWEST_ROWS * row


def judged(
    force: float, momentum: float, lag: LagSetting, *, learning_rate: float | None = None
) -> Stability:
    """Judge one mode under a lag."""
    from groupwise.edge.mode import stability

    return stability(
        force,
        momentum,
        refresh_interval=lag.refresh_interval,
        lag=lag.kind,
        learning_rate=learning_rate,
        importance_ratio=lag.importance_ratio,
        kl_term=lag.kl_term,
        lag_is_bound=lag.is_bound,
    )
