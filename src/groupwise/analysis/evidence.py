"""The evidence of a report: every chart of a run as plain data, or the sentence that says what to log to get it.

It arranges what the record, the fits and the plans hold; drawing is in `report.figures`, words of judgement in `headline`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from groupwise.analysis.charts import POINTS, Chart, Line, Mark, Role, averages, observed_line, rounded, smooth_line, useful_range
from groupwise.analysis.fitted import Fitted, Outlook
from groupwise.analysis.headline import ALL_LAWS, before_and_after, subject, verdict
from groupwise.estimators.best_group_size import GroupSizePlan, log_ratio
from groupwise.estimators.rewards_alone import RewardStatistics
from groupwise.estimators.zero_variance import ZeroVarianceShare
from groupwise.intervals import finite_or_none, percent
from groupwise.record.run import Meaning, RunRecord
from groupwise.series.groups import GroupEvidence, GroupSeries
from groupwise.wording import capital, clean, count, law_name, number, sentence, share

FloatArray = NDArray[np.float64]
FEW_ROWS = 60
MOST_LAGS = 40
STEP = "step"
_RIVAL_ROLES: tuple[Role, ...] = ("rival", "second_rival")


@dataclass(frozen=True, slots=True)
class Behaviour:
    """A quantity that is worth a small chart beside the reward."""

    quantity: str  # its canonical name
    title: str  # a few words
    unit: str  # for the axis
    advice: str  # how to get it logged


BEHAVIOURS = (
    Behaviour("completion_length", "Completion length", "tokens", "every trainer logs it under its own key"),
    Behaviour("truncated_share", "Truncated completions", "share of completions", "TRL 0.15 and later log completions/clipped_ratio"),
    Behaviour("entropy", "Entropy", "nats a token", "TRL 0.20 and later log entropy"),
    Behaviour("kl", "KL to the reference", "nats a token", "TRL logs kl where beta > 0"),
    Behaviour("gradient_norm", "Gradient norm", "before clipping", "TRL logs grad_norm where max_grad_norm is set"),
    Behaviour("learning_rate", "Learning rate", "per update", "TRL logs learning_rate"),
)


def reward_chart(fitted: Fitted, *, key: str = "metric", wide: bool = True, points: int = POINTS) -> Chart:
    """Chart a metric with its law, the laws that rival it and its forecast."""
    step, value = fitted.clock.step_T, fitted.series.value_T
    lines, caption = [observed_line("logged", step, value, points=points)], ""
    if len(step) > FEW_ROWS:
        line, size = _averaged(step, value)
        lines.append(line)
        caption = f"Dots are means of {size} rows that do not overlap."
    lines += _law_lines(fitted, wide=wide)
    if fitted.outlook is not None and fitted.law_holds:
        caption += " The forecast averages all laws, so it need not go on from the best one."
        lines += _forecast_lines(fitted, fitted.outlook)
    if fitted.held_out_step.size:
        lines.append(observed_line("held out", fitted.held_out_step, fitted.held_out_value, role="held_out", points=points))
    title = capital(subject(fitted.metric, fitted.quantity))
    if not wide:
        caption = verdict(fitted).headline
        title = clean(fitted.quantity.removeprefix("reward/") or fitted.metric, longest=60)
    return Chart(
        key,
        title,
        STEP,
        "reward" if fitted.quantity.startswith("reward") else "value",
        tuple(lines),
        _marks(fitted),
        caption,
        wide,
        subject=clean(fitted.metric, longest=80),
        y_range=useful_range(*(line.ordinates for line in lines), shown=np.concatenate([value, fitted.held_out_value])),
    )


def _marks(fitted: Fitted) -> tuple[Mark, ...]:
    """Mark the step from which no law holds, and the last row before the forecast."""
    fit, marks = fitted.fit, []
    if fit is not None and math.isfinite(fit.change_time) and fit.change_time > fit.time_T[0]:
        marks.append(Mark(fitted.clock.step(fit.change_time), "no law from here"))
    if fitted.outlook is not None and fitted.law_holds:
        marks.append(Mark(fitted.outlook.gain_from, "last row used" if fitted.held_out_step.size else "last row"))
    return tuple(marks)


def _law_lines(fitted: Fitted, *, wide: bool) -> list[Line]:
    """Return the fitted law with the band of its mean, its rivals behind it; or the levels where no law holds."""
    fit, points = fitted.fit, 200 if wide else 90
    if fit is None or not fitted.law_holds:
        return _levels(fitted)
    rivals = zip(fitted.rivals() if wide else (), _RIVAL_ROLES, strict=False)
    lines = [
        smooth_line(law_name(rival.law), role, fitted.clock.steps(rival.time_T), rival.curve_T, points=points) for rival, role in rivals
    ]
    band = next((percent(interval.level) for interval in fit.parameters.values()), "95 %") + " band"
    step = fitted.clock.steps(fit.time_T)
    return [*lines, smooth_line(law_name(fit.law), "law", step, fit.curve_T, low_T=fit.low_T, high_T=fit.high_T, band=band, points=points)]


def _levels(fitted: Fitted) -> list[Line]:
    """Return the means before and after the step from which no law holds, where there is one."""
    fit = fitted.fit
    if fit is None or before_and_after(fitted) is None:
        return []
    step, changed = fitted.clock.steps(fit.time_T), fit.time_T >= fit.change_time
    parts = [(step[part], fit.value_T[part].mean()) for part in (~changed, changed)]
    names = ("mean before", "mean after")
    return [smooth_line(name, "law", [x[0], x[-1]], [mean, mean]) for name, (x, mean) in zip(names, parts, strict=True)]


def _forecast_lines(fitted: Fitted, outlook: Outlook) -> list[Line]:
    """Return the forecast of the next rows and of the mean, widest first, and the plateau where it is settled."""
    step, mean, mean_low, mean_high, low, high = zip(*map(astuple, outlook.grid), strict=True)
    level, plateau = percent(outlook.result.level), outlook.result.plateau
    lines = [
        smooth_line("next rows", "forecast", step, [math.nan] * len(step), low_T=low, high_T=high, band=level),
        smooth_line("forecast", "forecast", step, mean, low_T=mean_low, high_T=mean_high, band=f"{level} band"),
    ]
    if fitted.fit is not None and fitted.fit.status == "converged" and math.isfinite(plateau.value):
        low, high = ((finite_or_none(end),) for end in (plateau.low, plateau.high))
        band = f"{percent(plateau.level)} interval"
        lines.append(Line(f"plateau, {ALL_LAWS}", "plateau", (step[-1],), (plateau.value,), low, high, band))
    return lines


def _averaged(x: FloatArray, y: FloatArray, *, name: str = "mean") -> tuple[Line, int]:
    """Return means of neighbouring rows as a line, and how many rows each averages."""
    usable = np.isfinite(y)
    means_x, means_y, size = averages(x[usable], y[usable])
    return Line(f"{name} of {size} rows", "averaged", _places(means_x), rounded(means_y)), size


def _places(x: FloatArray) -> tuple[float, ...]:
    """Return abscissae that are means of steps, to a tenth."""
    return tuple(round(float(value), 1) for value in x)


def evaluation_chart(record: RunRecord, fitted: Fitted, *, points: int = POINTS) -> Chart:
    """Chart the evaluation beside the training reward."""
    key, title = "evaluation", "Evaluation beside training"
    found = [m for m in record.meanings if m.quantity == "eval/reward" and record.steps[m.column].count() >= 2]
    if not found:
        why = (
            "No evaluation reward in this log, so a rise of the training reward cannot be told from an exploited one. "
            'Evaluate as you train (TRL: eval_strategy="steps" with an eval_dataset).'
        )
        return Chart(key, title, unavailable=why)
    rows = record.steps.select("step", found[0].column).drop_nulls()
    step, value = rows["step"].cast(pl.Float64).to_numpy(), rows[found[0].column].to_numpy()
    training = _with_means("training", fitted.clock.step_T, fitted.series.value_T, points, mean="training, mean")
    lines = (*training, observed_line("evaluation", step, value, role="evaluation", points=points))
    change, train = value[-1] - value[0], _at(fitted, step[-1]) - _at(fitted, step[0])
    caption = f"From step {step[0]:,.0f} to {step[-1]:,.0f} evaluation moved by {_signed(change)} and training by {_signed(train)}."
    return Chart(key, title, STEP, "reward", lines, (), caption, subject=clean(found[0].column))


def _at(fitted: Fitted, step: float) -> float:
    """Return the fitted mean at a step, or the nearest row without a fit."""
    curve = fitted.series.value_T if fitted.fit is None else fitted.fit.curve_T
    known = fitted.clock.step_T if fitted.fit is None else fitted.clock.steps(fitted.fit.time_T)
    return float(np.interp(step, known, curve))


def residual_charts(fitted: Fitted, *, points: int = POINTS) -> list[Chart]:
    """Chart what the law leaves over, and its correlation with itself."""
    fit = fitted.fit
    if fit is None or fit.n < 4:
        return []
    step = fitted.clock.steps(fit.time_T)
    residual = np.asarray(fit.residual_T, dtype=float)
    spread = f"Standard deviation {number(float(np.std(residual)))}."
    scatter = Chart("residuals", "Residuals", STEP, "logged − law", _with_means("residual", step, residual, points), (), spread)
    lag, correlation, limit = autocorrelation(residual)
    band = Line("independent rows", "limit", (0.5, float(lag[-1]) + 0.5), (None, None), (-limit, -limit), (limit, limit), "95 %")
    stems = Line("correlation", "stem", tuple(int(k) for k in lag), rounded(correlation))
    most = max(0.3, 1.1 * float(np.abs(correlation).max()))
    reach = (-most if correlation.min() < -limit else -0.3, most)
    smoothed = f" The series looks averaged over {fit.noise.smoothing} rows." if fit.noise.smoothing > 1 else ""
    inside = "inside" if abs(correlation[0]) <= limit else "outside"
    caption = f"Neighbouring rows correlate by {number(float(correlation[0]), digits=2)}, {inside} the band of independent rows.{smoothed}"
    title = "Correlation of residuals"
    return [scatter, Chart("autocorrelation", title, "lag, rows", "correlation", (band, stems), (), caption, y_range=reach)]


def autocorrelation(residual_T: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    r"""Sample autocorrelation and the half-width within which 95 % of those of independent rows lie.

    $\hat\rho_k = \sum_t e_t e_{t+k} / \sum_t e_t^2$, $\pm 1.96/\sqrt{T}$
    """
    e = residual_T - residual_T.mean()
    most = max(1, min(MOST_LAGS, e.size // 4))
    total = float(e @ e)
    values = [float(e[:-k] @ e[k:]) / total if total > 0 else 0.0 for k in range(1, most + 1)]
    return np.arange(1.0, most + 1), np.array(values), 1.96 / math.sqrt(e.size)


def group_charts(evidence: GroupEvidence, *, points: int = POINTS) -> list[Chart]:
    """Chart the spread within groups, and the share of zero-variance groups beside its expectation."""
    return [_spread_chart(evidence, points), _zero_variance_chart(evidence, points)]


def _spread_chart(evidence: GroupEvidence, points: int) -> Chart:
    """Chart the within-group standard deviation."""
    title, spread = "Spread within groups", evidence.spread
    if not spread.known:
        return Chart("spread", title, unavailable=sentence(spread.source))
    caption = sentence(spread.source)
    if evidence.spread_gap:
        title = "Spread over the batch"
        caption += f" The spread within groups is unavailable: {evidence.spread_gap}."
    lines = _with_means("standard deviation", spread.step_T, spread.value_T, points)
    return Chart("spread", title, STEP, "standard deviation, reward", lines, (), caption)


def _zero_variance_chart(evidence: GroupEvidence, points: int) -> Chart:
    """Chart the share of zero-variance groups and its expectation."""
    title, found, expected = "Zero-variance groups", evidence.zero_variance, evidence.expected
    if not found.known:
        return Chart("dead_groups", title, unavailable=sentence(found.source))
    lines = list(_with_means("zero-variance groups", found.step_T, found.value_T, points))
    recent = f"In the last quarter {share(_last_quarter(found))} of the groups had equal rewards and gave no gradient"
    if expected.known:
        usable = np.isfinite(expected.value_T)
        x, y, size = averages(expected.step_T[usable], expected.value_T[usable])
        name = "expected" if size == 1 else f"expected, mean of {size} rows"
        lines.append(Line(name, "expected", _places(x), rounded(y)))
        expectation = f"{share(_last_quarter(expected))} are expected of independent rollouts ({expected.source})"
        caption = f"{recent}; {expectation}. {sentence(found.source)}"
    else:
        caption = f"{recent}. {sentence(found.source)} Expectation {expected.source}."
    shown = useful_range(shown=[0.0, 0.1, *(value for line in lines for value in line.ordinates)])
    return Chart("dead_groups", title, STEP, "share of groups", tuple(lines), (), caption, y_range=shown)


def _last_quarter(track: GroupSeries) -> float:
    """Return the mean of the finite values of the last quarter of the rows."""
    values = track.value_T[-max(1, track.value_T.size // 4) :]
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if finite.size else math.nan


def _with_means(name: str, x: FloatArray, y: FloatArray, points: int, *, mean: str = "mean") -> tuple[Line, ...]:
    """Return raw rows and, where there are many, their means."""
    raw = observed_line(name, x, y, points=points)
    return (raw,) if np.isfinite(y).sum() <= FEW_ROWS else (raw, _averaged(x, y, name=mean)[0])


def beyond_spikes(y: FloatArray) -> tuple[tuple[float, float] | None, str]:
    """Choose an axis that a few spikes do not crush, or None where all fits, and say what lies beyond it."""
    known = y[np.isfinite(y)]
    low, high = np.quantile(known, [0.01, 0.99])
    reach = 3 * (high - low)
    beyond = known[(known > high + reach) | (known < low - reach)]
    if not beyond.size or reach == 0:
        return None, ""
    furthest = float(beyond[np.abs(beyond - (low + high) / 2).argmax()])
    inside = known[(known <= high + reach) & (known >= low - reach)]
    lie = "lies" if beyond.size == 1 else "lie"
    return useful_range(shown=inside), f" {count(beyond.size, 'row')} {lie} beyond the axis, the furthest at {number(furthest)}."


def behaviour_charts(record: RunRecord, *, points: int = POINTS) -> tuple[list[Chart], list[str]]:
    """Chart the quantities beside the reward that were logged."""
    step = record.steps["step"].cast(pl.Float64).to_numpy()
    charts, missing = [], []
    for behaviour in BEHAVIOURS:
        meaning = meaning_of(record, behaviour.quantity)
        if meaning is None:
            missing.append(f"{behaviour.title}: {behaviour.advice}.")
            continue
        value = record.steps[meaning.column].fill_null(float("nan")).to_numpy().astype(float)
        lines = _with_means(behaviour.title.lower(), step, value, points)
        y_range, beyond = beyond_spikes(value)
        key, caption = clean(meaning.column, longest=80), definition_of(meaning) + beyond
        chart = Chart(behaviour.quantity, behaviour.title, STEP, behaviour.unit, lines, (), caption, subject=key, y_range=y_range)
        charts.append(chart)
    return charts, missing


def definition_of(meaning: Meaning) -> str:
    """Return what a logged key means as a sentence, with the doubt where there is one."""
    doubt = " Ambiguous: the log cannot tell which definition holds." if meaning.ambiguous else ""
    return sentence(clean(meaning.definition, longest=300)) + doubt


def meaning_of(record: RunRecord, quantity: str) -> Meaning | None:
    """Return the fullest usable column of a quantity."""
    found = [m for m in record.meanings if m.quantity == quantity and not m.unavailable and record.steps[m.column].count() >= 2]
    return max(found, key=lambda m: (not m.ambiguous, record.steps[m.column].count()), default=None)


def _signed(value: float) -> str:
    """Write a change with its sign."""
    return ("+" if value >= 0 else "") + number(value)


SIZE = "group size"
_SPACING = 1.06
_HIGHEST = 100.0  # beyond it a size is out of the question, and would only crush the others


def error_chart(plan: GroupSizePlan) -> Chart:
    """Chart the error at each group size over that of the best, with the band that the components leave."""
    size = _drawn_sizes(plan)
    ratio, low, high = _relative(plan, size)
    drawn = ratio <= _HIGHEST
    size, ratio = size[drawn], ratio[drawn]
    low, high = (None if end is None else np.minimum(end[drawn], 10 * _HIGHEST) for end in (low, high))
    level = 0.95 if plan.components is None else plan.components.level
    band = f"{percent(level)} band"
    line = smooth_line("error over that of the best", "law", size, ratio, low_T=low, high_T=high, band=band, points=len(size))
    marks = [Mark(plan.group_size, f"best {plan.group_size}")]
    present = None if plan.present is None else plan.present.group_size
    if present == plan.group_size:
        marks = [Mark(plan.group_size, f"best and in use {plan.group_size}")]
    elif present is not None and present in size:
        marks = sorted([*marks, Mark(present, f"in use {present}")], key=lambda mark: mark.x)
    near = (size >= min(marks[0].x, plan.group_size / 4)) & (size <= max(marks[-1].x, 4 * plan.group_size))
    caption = f"Each size with as many prompts as {number(plan.budget.amount, digits=6)} {plan.budget.unit} pay for."
    if low is not None:
        caption += " The band is that of the ratio, so it closes at the best size."
    if present is not None and present not in size:
        caption += f" The size in use, {present:,}, is more than {_HIGHEST:.0f} times as bad as the best and not drawn."
    parts = () if low is None or high is None else (low, high)
    return Chart(
        "error_over_size",
        "Error of the gradient over group size",
        f"{SIZE}, rollouts of one prompt",
        "mean squared error, best = 1",
        (line,),
        tuple(marks),
        caption,
        wide=True,
        y_range=useful_range(*parts, ratio, shown=np.append(ratio[near], [1.0, 1.1]), reach=0.5),
        x_scale="log2",
    )


def _drawn_sizes(plan: GroupSizePlan) -> NDArray[np.int64]:
    """Sizes that leave nothing of the budget unused, thinned to equal steps of the logarithm, and those that the plan speaks of."""
    present = plan.group_size if plan.present is None else plan.present.group_size
    most = max(64, 8 * plan.group_size, 4 * present)
    size = np.array([point.group_size for point in plan.curve if point.group_size <= most], dtype=np.int64)
    thrifty = plan.budget.prompts_of(size + 1) < plan.budget.prompts_of(size)
    spoken = np.isin(size, [plan.group_size, present, size[0], size[-1]])
    kept: list[int] = []
    for value, wanted, must in zip(size.tolist(), thrifty, spoken, strict=True):
        if must or (wanted and (not kept or value >= kept[-1] * _SPACING)):
            kept.append(value)
    return np.array(kept, dtype=np.int64)


def _relative(plan: GroupSizePlan, size: NDArray[np.int64]) -> tuple[FloatArray, FloatArray | None, FloatArray | None]:
    """The error over that of the best, and its band by the delta method on the logarithm, as the plan's regret has it."""
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
    seen, beyond = [row for row in rows if not row.extrapolated], [row for row in rows if row.extrapolated]
    lines = [_share_line("zero-variance groups", "law", seen, f"{percent(rows[0].share.level)} band")] if seen else []
    if beyond:
        # The extrapolated part begins where the seen one ends, so that the line has no gap.
        lines.append(_share_line("extrapolated", "forecast", [*seen[-1:], *beyond], "whatever the law of difficulty"))
    marks = () if present is None or not rows[0].group_size <= present <= rows[-1].group_size else (Mark(present, f"in use {present}"),)
    tops = [row.share.value for row in rows if math.isfinite(row.share.value)]
    caption = (
        f"From the rewards of {count(statistics.prompts, 'group')}. This is not the gradient's variance: no group size follows from it."
    )
    return Chart(
        "dead_share_over_size",
        "Zero-variance groups over group size",
        f"{SIZE}, rollouts of one prompt",
        "share of groups",
        tuple(lines),
        marks,
        caption,
        y_range=useful_range(*(line.ordinates for line in lines), shown=[0.0, 0.1, *tops], reach=0.15),
        x_scale="log2",
    )


def _share_line(name: str, role: Role, rows: Sequence[ZeroVarianceShare], band: str) -> Line:
    """Return shares over the group size, with their band."""
    low, high = ([getattr(row.share, end) for row in rows] for end in ("low", "high"))
    size, value = [row.group_size for row in rows], [row.share.value for row in rows]
    return smooth_line(name, role, size, value, low_T=low, high_T=high, band=band, points=len(rows))
