"""The charts below a report's first screen, as plain data: law and forecast, residuals,
zero-variance groups, group sizes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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
    mean_size,
    observed_line,
    running_mean,
    smooth_line,
    useful_range,
    with_mean,
)
from groupwise.analysis.fitted import Fitted, Outlook, subject
from groupwise.estimators.best_group_size import GroupSizePlan, log_ratio
from groupwise.estimators.rewards_alone import RewardStatistics
from groupwise.estimators.zero_variance import ZeroVarianceShare
from groupwise.intervals import finite_or_none, percent
from groupwise.record.run import Meaning, RunRecord
from groupwise.series.groups import GroupEvidence, GroupSeries
from groupwise.wording import capital, clean, count, law_name, number, sentence, share

STEP = "step"
MOST_LAGS = 40
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
    if fitted.law_holds:
        fit, steps = fitted.fit, fitted.clock.steps
        band = (
            next((percent(interval.level) for interval in fit.parameters.values()), "95 %")
            + " band"
        )
        for rival, role in zip(fitted.rivals(), _RIVAL_ROLES, strict=False):
            lines.append(
                smooth_line(
                    law_name(rival.law), role, steps(rival.time_T), rival.curve_T, points=90
                )
            )
        lines.append(
            smooth_line(
                law_name(fit.law),
                "law",
                steps(fit.time_T),
                fit.curve_T,
                low_T=fit.low_T,
                high_T=fit.high_T,
                band=band,
            )
        )
    marks: tuple[Mark, ...] = ()
    caption = ""
    if fitted.outlook is not None:
        lines += _forecast_lines(fitted.outlook)
        marks = (
            Mark(
                fitted.outlook.gain_from,
                "last row used" if fitted.held_out_step.size else "last row",
            ),
        )
        caption = "The forecast follows no law: its band is as wide as runs of before went astray."
    if fitted.held_out_step.size:
        lines.append(
            observed_line(
                "held out",
                fitted.held_out_step,
                fitted.held_out_value,
                role="held_out",
                points=points,
            )
        )
    y_range = useful_range(
        *(line.ordinates for line in lines),
        shown=np.concatenate([fitted.series.value_T, fitted.held_out_value]),
    )
    title = capital(subject(fitted.metric, fitted.quantity).removeprefix("the "))
    return Chart(
        "forecast",
        f"{title}, law and forecast",
        STEP,
        "",
        tuple(lines),
        marks,
        caption,
        wide=True,
        y_range=y_range,
    )


def _forecast_lines(outlook: Outlook) -> list[Line]:
    """Return the forecast of the next rows and of the mean, widest first, and the plateau where
    it is settled.
    """
    step, mean, mean_low, mean_high, low, high = zip(*map(astuple, outlook.grid), strict=True)
    level, plateau = percent(outlook.result.level), outlook.plateau
    lines = [
        smooth_line(
            "next rows",
            "forecast",
            step,
            [math.nan] * len(step),
            low_T=low,
            high_T=high,
            band=level,
        ),
        smooth_line(
            "forecast",
            "forecast",
            step,
            mean,
            low_T=mean_low,
            high_T=mean_high,
            band=f"{level} band",
        ),
    ]
    if plateau is not None and outlook.law.status == "converged":
        low, high = ((finite_or_none(end),) for end in (plateau.low, plateau.high))
        band = f"{percent(plateau.level)} interval"
        lines.append(
            Line(
                f"plateau of the {law_name(outlook.law.law)} law",
                "plateau",
                (step[-1],),
                (plateau.value,),
                low,
                high,
                band,
            )
        )
    return lines


def residual_charts(fitted: Fitted, *, points: int = POINTS) -> list[Chart]:
    """Chart what the law leaves over."""
    fit = fitted.fit
    if fit is None or fit.n < 4:
        return []
    residual = np.asarray(fit.residual_T, dtype=float)
    smoothed = (
        f" The series looks averaged over {fit.noise.smoothing} rows."
        if fit.noise.smoothing > 1
        else ""
    )
    correlation = f"neighbouring rows correlate by {number(fit.noise.lag1, digits=2)}"
    caption = f"Standard deviation {number(float(np.std(residual)))}; {correlation}.{smoothed}"
    lines = with_mean("residual", fitted.clock.steps(fit.time_T), residual, points=points)
    return [Chart("residuals", "Residuals", STEP, "logged − law", lines, (), caption)]


def group_chart(evidence: GroupEvidence, *, points: int = POINTS) -> Chart | None:
    """Chart the share of zero-variance groups beside its expectation; None where either is
    unknown.
    """
    found, expected = evidence.zero_variance, evidence.expected
    if not (found.known and expected.known):
        return None
    usable = np.isfinite(expected.value_T)
    size = mean_size(int(usable.sum()))
    mean = running_mean(expected.value_T[usable], size)
    lines = (
        *with_mean("zero-variance groups", found.step_T, found.value_T, points=points),
        smooth_line(
            f"expected, mean of {size} rows",
            "expected",
            expected.step_T[usable],
            mean,
            points=points // 3,
        ),
    )
    caption = (
        f"In the last quarter {share(_last_quarter(found))} of the groups had equal rewards and "
        f"gave no gradient; {share(_last_quarter(expected))} are expected of independent rollouts "
        f"({expected.source}). {sentence(found.source)}"
    )
    shown = useful_range(shown=[0.0, 0.1, *(value for line in lines for value in line.ordinates)])
    return Chart(
        "zero_variance_groups",
        "Zero-variance groups",
        STEP,
        "share of groups",
        lines,
        (),
        caption,
        y_range=shown,
    )


def _last_quarter(track: GroupSeries) -> float:
    """Return the mean of the finite values of the last quarter of the rows."""
    values = track.value_T[-max(1, track.value_T.size // 4) :]
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if finite.size else math.nan


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


SIZE = "group size"
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
    band = f"{percent(level)} band"
    told = (
        "best" if plan.expected_regret is None else "least regret"
    )  # no size is the best where Vp may be zero
    line = smooth_line(
        f"error over that of the {told}",
        "law",
        size,
        ratio,
        low_T=low,
        high_T=high,
        band=band,
        points=len(size),
    )
    marks = [Mark(plan.group_size, f"{told} {plan.group_size}")]
    present = None if plan.present is None else plan.present.group_size
    if present == plan.group_size:
        marks = [Mark(plan.group_size, f"{told} and in use {plan.group_size}")]
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
    return Chart(
        "error_over_size",
        "Error of the gradient over group size",
        f"{SIZE}, rollouts of one prompt",
        f"mean squared error, {told} = 1",
        (line,),
        tuple(marks),
        caption,
        wide=True,
        y_range=useful_range(*parts, ratio, shown=np.append(ratio[near], [1.0, 1.1]), reach=0.5),
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


def zero_variance_chart(statistics: RewardStatistics, present: int | None) -> Chart | None:
    """Chart the share of zero-variance groups at other group sizes."""
    rows = statistics.zero_variance_shares
    if len(rows) < 2:
        return None
    seen, beyond = (
        [row for row in rows if not row.extrapolated],
        [row for row in rows if row.extrapolated],
    )
    lines = (
        [_share_line("zero-variance groups", "law", seen, f"{percent(rows[0].share.level)} band")]
        if seen
        else []
    )
    if beyond:
        # The extrapolated part begins where the seen one ends, so that the line has no gap.
        lines.append(
            _share_line(
                "extrapolated", "forecast", [*seen[-1:], *beyond], "whatever the law of difficulty"
            )
        )
    marks = (
        ()
        if present is None or not rows[0].group_size <= present <= rows[-1].group_size
        else (Mark(present, f"in use {present}"),)
    )
    tops = [row.share.value for row in rows if math.isfinite(row.share.value)]
    caption = (
        f"From the rewards of {count(statistics.prompts, 'group')}. This is not the gradient's "
        "variance: no group size follows from it."
    )
    return Chart(
        "dead_share_over_size",
        "Zero-variance groups over group size",
        f"{SIZE}, rollouts of one prompt",
        "share of groups",
        tuple(lines),
        marks,
        caption,
        y_range=useful_range(
            *(line.ordinates for line in lines), shown=[0.0, 0.1, *tops], reach=0.15
        ),
        x_scale="log2",
    )


def _share_line(name: str, role: Role, rows: Sequence[ZeroVarianceShare], band: str) -> Line:
    """Return shares over the group size, with their band."""
    low, high, value = (
        [getattr(row.share, end) for row in rows] for end in ("low", "high", "value")
    )
    return smooth_line(
        name,
        role,
        [row.group_size for row in rows],
        value,
        low_T=low,
        high_T=high,
        band=band,
        points=len(rows),
    )
