"""The charts below a report's first screen, as plain data: law and forecast, group sizes."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass

import numpy as np
from numpy.typing import NDArray

from groupwise.analysis.charts import (
    POINTS,
    Chart,
    FloatArray,
    Line,
    Mark,
    Role,
    observed_line,
    smooth_line,
    useful_range,
)
from groupwise.analysis.fitted import Fitted, Outlook
from groupwise.estimators.best_group_size import GroupSizePlan, log_ratio
from groupwise.forecasting.results import FitResult
from groupwise.intervals import finite_or_none, percent
from groupwise.record.run import Meaning, RunRecord
from groupwise.wording import clean, count, law_name, number, sentence

STEP = "step"
_RIVAL_ROLES: tuple[Role, ...] = ("rival", "second_rival")


@dataclass(frozen=True, slots=True)
class Behaviour:
    """A quantity that is worth a small chart beside the reward."""

    quantity: str  # its canonical name
    title: str  # a few words
    unit: str  # for the axis


BEHAVIOURS = (
    Behaviour("completion_length", "Length", "tokens"),
    Behaviour("truncated_share", "Truncated", "share of completions"),
    Behaviour("entropy", "Entropy", "nats a token"),
    Behaviour("dead_group_share", "Zero-variance groups", "share of groups"),
    Behaviour("eval/reward", "Held-out reward", ""),
    Behaviour("kl", "KL to the reference", "nats a token"),
    Behaviour("gradient_norm", "Gradient norm", "before clipping"),
    Behaviour("reward_std_within_group", "Spread within groups", "standard deviation"),
    Behaviour("learning_rate", "Learning rate", "per update"),
)


def forecast_chart(fitted: Fitted, *, points: int = POINTS) -> Chart | None:
    """Chart a metric with its forecast, and with its law and the laws that rival it where one
    holds.
    """
    if fitted.fit is None:
        return None
    lines = [observed_line("logged", fitted.clock.step_T, fitted.series.value_T, points=points)]
    lines += _law_lines(fitted.fit, fitted) if fitted.law_holds else []
    held_out, caption = fitted.held_out_step.size > 0, ""
    marks: tuple[Mark, ...] = ()
    if fitted.outlook is not None:
        lines += _forecast_lines(fitted.outlook)
        label = "last row used" if held_out else "last row"
        marks = (Mark(fitted.outlook.gain_from, label),)
        caption = "The forecast follows no law: its band is as wide as runs of before went astray."
    if held_out:
        later = fitted.held_out_step, fitted.held_out_value
        lines.append(observed_line("held out", *later, role="held_out", points=points))
    shown = np.concatenate([fitted.series.value_T, fitted.held_out_value])
    y_range = useful_range(*(line.ordinates for line in lines), shown=shown)
    title = f"{fitted.title}, law and forecast"
    return Chart(
        "forecast", title, STEP, "", tuple(lines), marks, caption, wide=True, y_range=y_range
    )


def _law_lines(fit: FitResult, fitted: Fitted) -> list[Line]:
    """Return the laws that rival that of the fit, and the law itself with its band."""
    steps = fitted.clock.steps
    lines = [
        smooth_line(law_name(rival.law), role, steps(rival.time_T), rival.curve_T, points=90)
        for rival, role in zip(fitted.rivals(), _RIVAL_ROLES, strict=False)
    ]
    level = next((interval.level for interval in fit.parameters.values()), 0.95)
    name, band = law_name(fit.law), f"{percent(level)} band"
    curve = steps(fit.time_T), fit.curve_T
    law = smooth_line(name, "law", *curve, low_T=fit.low_T, high_T=fit.high_T, band=band)
    return [*lines, law]


def _forecast_lines(outlook: Outlook) -> list[Line]:
    """Return the forecast of the next rows and of the mean, widest first, and the plateau where
    it is settled.
    """
    step, mean, mean_low, mean_high, low, high = zip(*map(astuple, outlook.grid), strict=True)
    level, plateau = percent(outlook.result.level), outlook.plateau
    nothing, band = [math.nan] * len(step), f"{level} band"
    lines = [
        smooth_line("next rows", "forecast", step, nothing, low_T=low, high_T=high, band=level),
        smooth_line(
            "forecast", "forecast", step, mean, low_T=mean_low, high_T=mean_high, band=band
        ),
    ]
    if plateau is not None and outlook.law.status == "converged":
        name = f"plateau of the {law_name(outlook.law.law)} law"
        lower, upper = (finite_or_none(plateau.low),), (finite_or_none(plateau.high),)
        band = f"{percent(plateau.level)} interval"
        lines.append(Line(name, "plateau", (step[-1],), (plateau.value,), lower, upper, band))
    return lines


def beyond_spikes(y: FloatArray) -> tuple[tuple[float, float] | None, str]:
    """Choose an axis that a few spikes do not crush, or None where all fits, and say what lies
    beyond it.
    """
    known = y[np.isfinite(y)]
    low, high = np.quantile(known, [0.01, 0.99])
    reach = 3 * (high - low)
    beyond = known[(known > high + reach) | (known < low - reach)]
    if not beyond.size or reach == 0:
        return None, ""
    furthest = float(beyond[np.abs(beyond - (low + high) / 2).argmax()])
    inside = known[(known <= high + reach) & (known >= low - reach)]
    lie = "lies" if beyond.size == 1 else "lie"
    return useful_range(
        shown=inside
    ), f" {count(beyond.size, 'row')} {lie} beyond the axis, the furthest at {number(furthest)}."


def definition_of(meaning: Meaning) -> str:
    """Return what a logged key means as a sentence, with the doubt where there is one."""
    doubt = " Ambiguous: the log cannot tell which definition holds." if meaning.ambiguous else ""
    return sentence(clean(meaning.definition, longest=300)) + doubt


def meaning_of(record: RunRecord, quantity: str) -> Meaning | None:
    """Return the fullest usable column of a quantity."""
    found = [
        m
        for m in record.meanings
        if m.quantity == quantity and not m.unavailable and record.steps[m.column].count() >= 2
    ]
    return max(found, key=lambda m: (not m.ambiguous, record.steps[m.column].count()), default=None)


_SPACING = 1.06
_HIGHEST = 100.0  # beyond it a size is out of the question, and would only crush the others


def error_chart(plan: GroupSizePlan) -> Chart:
    """Chart the error at each group size over that of the best, with the band that the
    components leave.
    """
    size = _drawn_sizes(plan)
    ratio, low, high = _relative(plan, size)
    drawn = ratio <= _HIGHEST
    size, ratio = size[drawn], ratio[drawn]
    low, high = (
        None if end is None else np.minimum(end[drawn], 10 * _HIGHEST) for end in (low, high)
    )
    level = 0.95 if plan.components is None else plan.components.level
    # no size is the best where Vp may be zero
    chosen = "best" if plan.expected_regret is None else "least regret"
    name, band, most = f"error over that of the {chosen}", f"{percent(level)} band", len(size)
    line = smooth_line(name, "law", size, ratio, low_T=low, high_T=high, band=band, points=most)
    marks = [Mark(plan.group_size, f"{chosen} {plan.group_size}")]
    present = None if plan.present is None else plan.present.group_size
    if present == plan.group_size:
        marks = [Mark(plan.group_size, f"{chosen} and in use {plan.group_size}")]
    elif present is not None and present in size:
        marks = sorted([*marks, Mark(present, f"in use {present}")], key=lambda mark: mark.x)
    near = (size >= min(marks[0].x, plan.group_size / 4)) & (
        size <= max(marks[-1].x, 4 * plan.group_size)
    )
    caption = (
        f"Each size with as many prompts as {number(plan.budget.amount, digits=6)} "
        f"{plan.budget.unit} pay for."
    )
    if low is not None:
        caption += f" The band is that of the ratio, so it closes at G = {plan.group_size:,}."
    if present is not None and present not in size:
        caption += (
            f" The size in use, {present:,}, is more than {_HIGHEST:.0f} times as bad as the best "
            "and not drawn."
        )
    parts = () if low is None or high is None else (low, high)
    shown = np.append(ratio[near], [1.0, 1.1])
    return Chart(
        "error_over_size",
        "Error of the gradient over group size",
        "group size, rollouts of one prompt",
        f"mean squared error, {chosen} = 1",
        (line,),
        tuple(marks),
        caption,
        wide=True,
        y_range=useful_range(*parts, ratio, shown=shown, reach=0.5),
        x_scale="log2",
    )


def _drawn_sizes(plan: GroupSizePlan) -> NDArray[np.int64]:
    """Sizes that leave nothing of the budget unused, thinned to equal steps of the logarithm,
    and those that the plan speaks of.
    """
    present = plan.group_size if plan.present is None else plan.present.group_size
    most = max(64, 8 * plan.group_size, 4 * present)
    size = np.array(
        [point.group_size for point in plan.curve if point.group_size <= most], dtype=np.int64
    )
    thrifty = plan.budget.prompts_of(size + 1) < plan.budget.prompts_of(size)
    spoken = np.isin(size, [plan.group_size, present, size[0], size[-1]])
    kept: list[int] = []
    for value, wanted, must in zip(size.tolist(), thrifty, spoken, strict=True):
        if must or (wanted and (not kept or value >= kept[-1] * _SPACING)):
            kept.append(value)
    return np.array(kept, dtype=np.int64)


def _relative(
    plan: GroupSizePlan, size: NDArray[np.int64]
) -> tuple[FloatArray, FloatArray | None, FloatArray | None]:
    """The error over that of the best, and its band by the delta method on the logarithm, as the
    plan's regret has it.
    """
    mse = {point.group_size: point.mse for point in plan.curve}
    error = np.array([mse[value] for value in size.tolist()])
    ratio = np.divide(error, plan.mse, out=np.where(error > 0, np.inf, 1.0), where=plan.mse > 0)
    components = plan.components
    if components is None or components.prompts < 3 or plan.mse == 0:
        return ratio, None, None
    _, contrast, deviation = log_ratio(components, size, np.array([plan.group_size]), plan.budget)
    quantile = np.array([components.quantile(column) for column in contrast.T])
    factor = np.exp(np.minimum(np.where(deviation > 0, quantile * deviation, 0.0), 50.0))
    return ratio, ratio / factor, ratio * factor
