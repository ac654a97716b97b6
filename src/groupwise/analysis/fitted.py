"""One metric of a run with its fit and forecast, on the log's clock, in sentences and as charts."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import astuple, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from groupwise.analysis.charts import (
    Chart,
    Line,
    Mark,
    observed_line,
    smooth_line,
    useful_range,
)
from groupwise.arrays import Ends, Float, floats, no_rows
from groupwise.diagnostics.judgement import Judgement, Learning, State
from groupwise.errors import InsufficientDataError, InvalidArgumentError, MissingMetricError
from groupwise.files import table_rows
from groupwise.forecasting.results import FitResult, Forecast, no_fit, nothing_foreseen
from groupwise.intervals import Interval, finite_or_none, percent
from groupwise.parsing import JsonObject
from groupwise.plain import Plain, Said, Words, frozen
from groupwise.record.run import Meaning, RunRecord, cut, steps_table
from groupwise.wording import (
    alike,
    capital,
    clean,
    count,
    duration,
    law_name,
    number,
    sentence,
    short,
)

if TYPE_CHECKING:
    from groupwise.forecasting.forecast import Calibration
    from groupwise.series.metric import MetricSeries


@frozen
class LoggedClock:
    """Converts between the times of a log."""

    step_T: Float  # logged steps, strictly increasing
    time_T: Float  # optimiser updates, or whatever clock the fit used, increasing
    seconds_T: Float | None = None  # cumulative seconds, or None

    def step(self, time: float) -> float:
        """Return the step at a time, fractional between two rows."""
        return float(self.steps([time])[0])

    def steps(self, time_S: ArrayLike) -> Float:
        """Return the step at each time, shape (S,)."""
        return _carried(floats(time_S), self.time_T, self.step_T)

    def time(self, step: float) -> float:
        """Return the time at a step."""
        return float(_carried(np.array([float(step)]), self.step_T, self.time_T)[0])

    def hours(self, time: float) -> float:
        """Return the hours since the start of the clock of the log; nan where the log has none."""
        return (
            math.nan
            if self.seconds_T is None
            else float(_carried(np.array([time]), self.time_T, self.seconds_T)[0]) / 3600
        )


def _carried(at_S: Float, known_T: Float, wanted_T: Float) -> Float:
    """Interpolate `wanted` at `at`, linearly beyond both ends at the pace of the nearer half."""
    usable = np.isfinite(known_T) & np.isfinite(wanted_T)
    at_T, wanted = known_T[usable], wanted_T[usable]
    if at_T.size == 0:
        return np.full(at_S.shape, math.nan)
    if at_T.size == 1:
        return np.asarray(wanted[0] + (at_S - at_T[0]))
    middle = at_T.size // 2
    late, early = min(middle, at_T.size - 2), max(middle, 1)
    inside = np.interp(at_S, at_T, wanted)
    after = wanted[-1] + (at_S - at_T[-1]) * (wanted[-1] - wanted[late]) / (at_T[-1] - at_T[late])
    before = wanted[0] + (at_S - at_T[0]) * (wanted[early] - wanted[0]) / (at_T[early] - at_T[0])
    return np.where(at_S > at_T[-1], after, np.where(at_S < at_T[0], before, inside))


_GRID = 48
_UPDATE = re.compile(r"\bupdate [\d.e+-]+")
_LAST_STEP = 1e12
# A band of the mean that is wider, as a part of the metric's range, is no answer.
_TELLS_LITTLE = 0.5


@frozen
class ForecastRow(Plain):
    """The forecast at one step."""

    step: float  # of the log, as int where it is whole
    mean: float  # expected value, in the unit of the metric
    mean_low: float  # lower end of the band of the mean
    mean_high: float  # upper end
    low: float  # lower end of the band of the next row logged there
    high: float  # upper end


@frozen
class Outlook(Said):
    """A forecast on the clock of the log."""

    KEYS = (
        "status=result.status message=result.message level=result.level forecast=rows "
        "expected_gain=gain plateau"
    )

    result: Forecast  # with times in updates
    rows: tuple[ForecastRow, ...] = ()  # the steps asked for, or a few sensible ones
    # rows from the last logged step to the furthest, for drawing
    grid: tuple[ForecastRow, ...] = ()
    # where the law of the fit ends; None where the forecast goes past it
    plateau: Interval | None = None
    withheld: str = ""  # why no forecast is shown; "" where one is
    said: str = ""  # the answer in sentences, or that the run failed, where it was judged

    def as_dict(self) -> JsonObject:
        """Plain data for JSON, without numbers where no forecast is shown."""
        if self.withheld:
            return {"status": "unavailable", "message": self.withheld, "forecast": []}
        return Said.as_dict(self)

    def __str__(self) -> str:
        """The answer, or why none is shown."""
        return f"{self.said} {self.withheld}".strip()

    @property
    def gain_from(self) -> float:
        """Last logged step."""
        return self.grid[0].step

    @property
    def gain_to(self) -> float:
        """Step that the expected gain reaches to."""
        return self.grid[-1].step

    @property
    def gain(self) -> JsonObject:
        """What the steps ahead are expected to gain."""
        return self.result.expected_gain.as_dict() | {
            "from_step": self.gain_from,
            "to_step": self.gain_to,
        }


@frozen
class Fitted(Plain):
    """A metric with its fit, the laws that rival it and its outlook."""

    KEYS = "metric *fit change_step"

    metric: str  # the log's own key
    quantity: str  # its canonical name, or ""
    series: MetricSeries  # the arrays that were fitted
    clock: LoggedClock  # of the run
    fit: FitResult = no_fit("")  # the result; where there are too few rows one that says so
    outlook: Outlook | None = None  # the forecast, or None
    # steps after `until` that were not used
    held_out_step: Float = field(default_factory=no_rows)
    held_out_value: Float = field(default_factory=no_rows)  # the metric there
    level: float = 0.95  # of the intervals of a fit

    @property
    def problem(self) -> str:
        """Why there is no fit; "" where there is one."""
        return self.fit.message * (self.fit.status == "unavailable")

    def by_law(self, law: str) -> FitResult:
        """The fit of one law alone."""
        return _fit(self.series, level=self.level, law=law)

    @property
    def beside_the_law(self) -> str:
        """Say that the forecast goes past the law's plateau, where it does: the law's end is then
        not where the metric goes.
        """
        if self.outlook is None or self.outlook.plateau is not None:
            return ""
        return "The forecast uses no law and goes beyond this plateau, so the final level is open."

    def law_said(self, judged: Judgement) -> str:
        """Say what the law is, and that its plateau is not settled where the judgement sees the
        metric go on; of a metric that is not judged, where the forecast does. A failure has the
        judgement's date alone.
        """
        said, beside = sentence(self.fit.message), self.beside_the_law
        # What part of a change is done is no second answer beside what the judgement says.
        course = sentence(self.fit.course or self.fit.message)
        if judged.alarm:
            course *= self.fit.status != "non_stationary"
            said = "The law is fitted to all rows and does not explain the failure."
            return f"{said} {course}".strip()
        of_judgement = self.metric == judged.metric
        if no_forecast(judged) or (of_judgement and judged.learning is not Learning.LEARNING):
            return said
        if of_judgement and not beside and self.fit.status == "converged":
            beside = "The reward has not levelled off yet, so its plateau is not settled."
        return f"{course} {beside}" if beside else said

    def in_steps(self, judged: Judgement) -> FitResult:
        """The fit in steps of the log; rates and time constants stay in updates."""
        fit, message, change = self.fit, self.law_said(judged), self.change_step
        if math.isfinite(change):
            message = _UPDATE.sub(f"step {change:,.0f}", message)
        return replace(
            fit,
            time_T=self.clock.steps(fit.time_T),
            change_time=change,
            message=message,
            rate_T=self.series.rate_T,
        )

    def told_ahead(self, judged: Judgement) -> Outlook:
        """The forecast with its sentences, or without rows where none is shown, and why."""
        outlook = self.outlook or Outlook(nothing_foreseen(self.problem))
        if none := no_forecast(judged, sentence(self.problem)):
            return replace(outlook, rows=(), withheld=none, said=judged.fact * judged.alarm)
        return replace(outlook, said=f"{ahead(self, judged)}\n{gained(self)}".strip())

    @property
    def notes(self) -> Words:
        """What to know of the fit: its noise, what its clock counts, and its own findings."""
        noise = f"Sampling noise: {self.series.noise_source}."
        each = self.clock.time(1) - self.clock.time(0)
        several = f"Updates are counted, {number(each)} a step."
        return (noise, *[several] * (abs(each - 1) > 1e-9), *self.fit.notes)

    @property
    def change_step(self) -> float:
        """The step from which no law holds, or nan."""
        return self.clock.step(self.fit.change_time)

    @property
    def title(self) -> str:
        """What the metric is called above a chart."""
        return capital(subject(self.metric, self.quantity).removeprefix("the "))

    @property
    def rewarding(self) -> bool:
        """Whether more of it is better."""
        return self.series.healthy == "up"


@frozen
class ForecastRequest:
    """What is asked of a forecast."""

    at: Sequence[float] | None = None  # steps; a few beyond the last where None
    level: float = 0.9  # coverage of the bands
    calibration: Calibration | None = None  # a table of the user's own


def fit_metric(
    record: RunRecord,
    metric: str,
    *,
    until: float | None = None,
    level: float = 0.95,
    law: str | None = None,
    ahead: ForecastRequest | None = None,
) -> Fitted:
    """Fit one metric, and forecast it where that is asked for; of a log without a reward the fit
    says what to log.
    """
    try:
        bare = replace(unfitted(cut(record, until), metric), level=level)
    except MissingMetricError as error:
        if metric != "reward":
            raise
        bare = unfitted(RunRecord("", steps_table([], {metric: []})), metric)
        return replace(bare, fit=no_fit(str(error)))
    series = bare.series
    try:
        fit = _fit(series, level=level, law=law)
    except InsufficientDataError as error:
        return replace(bare, fit=no_fit(str(error)))
    after = pl.col("step") > (math.inf if until is None else until)
    later = record.steps.filter(after & pl.col(bare.metric).is_finite())
    outlook = None if ahead is None else _with_plateau(foretold(bare, ahead), fit)
    return replace(
        bare,
        fit=fit,
        outlook=outlook,
        held_out_step=later["step"].cast(pl.Float64).to_numpy(),
        held_out_value=later[bare.metric].to_numpy(),
    )


def unfitted(record: RunRecord, metric: str) -> Fitted:
    """Return a metric on the clock of the log, without a fit."""
    from groupwise.diagnostics.signals import judged_column
    from groupwise.series.metric import metric_series

    column = record.column(judged_column(record) if metric == "reward" else metric)
    series, meaning = metric_series(record, column), record.meaning(column)
    quantity = meaning.quantity if meaning else "reward" if column == "reward" else ""
    clock = LoggedClock(floats(series.step_T), series.time_T, series.seconds_T)
    return Fitted(column, quantity, series, clock)


def _fit(series: MetricSeries, *, level: float, law: str | None) -> FitResult:
    """Call the engine with everything that the series knows."""
    from groupwise.forecasting.fit import fit

    return fit(
        series.time_T,
        series.value_T,
        variance_T=series.variance_T,
        window=series.window,
        smoothing=series.smoothing,
        law=law,
        level=level,
        healthy=series.healthy,
        bounds=series.bounds,
    )


def foretold(bare: Fitted, ahead: ForecastRequest) -> Outlook:
    """Forecast at the steps asked for and on a grid for drawing; no law is fitted for it."""
    from groupwise.forecasting.forecast import forecast
    from groupwise.forecasting.observations import rate_clock

    series, clock = bare.series, bare.clock
    first, last = float(series.step_T[0]), float(series.step_T[-1])
    wanted = _wanted_steps(ahead.at, first, last)
    grid = np.linspace(last, max(last, *wanted), _GRID)
    step_S = np.concatenate([floats(wanted), grid])
    time_S = np.array([clock.time(step) for step in step_S])
    in_rates = partial(rate_clock, series.time_T, series.rate_T)
    result = forecast(
        in_rates(series.time_T),
        series.value_T,
        in_rates(time_S),
        window=series.window,
        smoothing=series.smoothing,
        level=ahead.level,
        bounds=series.likely_bounds,
        calibration=ahead.calibration,
    )
    result = replace(result, time_S=time_S)
    columns = (result.mean_S, result.mean_low_S, result.mean_high_S, result.low_S, result.high_S)
    shown = [int(step) if step == round(step) else step for step in step_S.tolist()]
    rows = tuple(
        ForecastRow(*row)
        for row in zip(shown, *(column.tolist() for column in columns), strict=True)
    )
    return Outlook(result, rows[: len(wanted)], rows[len(wanted) :])


def _with_plateau(outlook: Outlook, fit: FitResult) -> Outlook:
    """The forecast, with the plateau of a law unless it converged and the forecast goes past."""
    end, here, far = fit.parameters["plateau"], outlook.grid[0].mean, outlook.rows[-1].mean
    passes = not end.low <= far <= end.high and abs(far - end.value) > abs(here - end.value)
    settled = fit.status in ("converged", "flat")
    return outlook if settled and passes else replace(outlook, plateau=end)


def _wanted_steps(at: Sequence[float] | None, first: float, last: float) -> list[float]:
    """Return the steps asked for; else a tenth, quarter, half and whole run on, rounded."""
    if at:
        for step in at:
            if not first <= step <= _LAST_STEP:
                advice = "use a later one" if step < first else "use an earlier one"
                raise InvalidArgumentError(
                    f"expected steps to forecast from {first:g} to {_LAST_STEP:g}, got {step:g}: "
                    f"{advice}"
                )
        return [float(step) for step in at]
    span = max(last - first, 1.0)
    unit = 10.0 ** (math.floor(math.log10(span)) - 1)  # two digits of the distance
    rounded = [
        max(last + 1, round((last + part * span) / unit) * unit) for part in (0.1, 0.25, 0.5, 1.0)
    ]
    return sorted({float(round(step)) for step in rounded})


THIS_LAW = "if this law is right"


def subject(metric: str, quantity: str) -> str:
    """Return what a metric is called in a sentence.

    As the reward, 'the reward "format"', '"val/score"'.
    """
    if quantity == "reward":
        return "the reward"
    return (
        f'the reward "{clean(quantity.removeprefix("reward/"))}"'
        if quantity.startswith("reward/")
        else f'"{clean(metric)}"'
    )


def no_forecast(judged: Judgement, problem: str = "") -> str:
    """Say why no forecast of a run is shown, "" where one is."""
    if judged.alarm:
        return "There is no forecast: rows after a failure say nothing about what comes next."
    if judged.state is State.CANNOT_TELL:
        return f"There is no forecast: {judged.headline}."
    return problem


def ahead(fitted: Fitted, judged: Judgement) -> str:
    """Say where a metric stands, as the judgement has it, and where it is forecast to be."""
    if fitted.outlook is None:
        return ""
    result, rows, here = fitted.outlook.result, fitted.outlook.rows, fitted.outlook.grid[0]
    who, far, last = subject(fitted.metric, fitted.quantity), rows[-1], fitted.clock.step_T[-1]
    # What a forecast starts from is not shown where the level of the last rows is known: it would
    # be a second one.
    level, when = alike(here.mean_low, here.mean, here.mean_high)[1], f"at step {last:,.0f}"
    if fitted.metric == judged.metric and judged.now is not None and judged.now_from is not None:
        level, rows_of = short(judged.now), int((fitted.clock.step_T >= judged.now_from).sum())
        when = f"in the last {rows_of:,} rows" if rows_of > 1 else when
    now = capital(f"{who} is {level} {when}")
    if result.status == "still":
        return f"{now}; {result.message}."
    most = _TELLS_LITTLE * np.ptp(fitted.series.likely_bounds or fitted.series.value_T)
    # Of rows that only scatter the range is small: beside their band that of a mean says much.
    telling = [
        row
        for row in rows
        if row.step <= last or row.mean_high - row.mean_low <= max(most, (row.high - row.low) / 2)
    ]
    low, _, high = alike(far.mean_low, far.mean, far.mean_high)
    little = f"by step {far.step:,.0f} the mean may be anywhere from {low} to {high}"
    if not telling:
        return f"{now}. The forecast says little: {little}, over half of its range."
    row = telling[-1]
    more = "" if row is far else f" Beyond that the forecast says little: {little}."
    low, mean, high = alike(row.mean_low, row.mean, row.mean_high)
    verb, by = ("forecast to be", "by") if row.step > last else ("estimated at", "for")
    where = f"is {verb} {mean} ({low} to {high}) {by} step {row.step:,.0f}"
    return f"{now}. Its mean {where}.{more}"


def gained(fitted: Fitted) -> str:
    """Say what the steps ahead are expected to gain from where, and at what cost."""
    outlook = fitted.outlook
    if outlook is None or not fitted.rewarding or outlook.gain_to <= outlook.gain_from:
        return ""
    gain, clock, here = outlook.result.expected_gain, fitted.clock, outlook.grid[0]
    low, value, high = alike(gain.low, gain.value, gain.high)
    hours = clock.hours(clock.time(outlook.gain_to)) - clock.hours(clock.time(outlook.gain_from))
    cost = f" ({duration(hours, digits=2)})" if math.isfinite(hours) and hours > 0 else ""
    return (
        f"The forecast starts from the smoothed level, {short(here.mean)}; another "
        f"{outlook.gain_to - outlook.gain_from:,.0f} steps{cost} should change it by "
        f"{value} ({low} to {high})."
    )


STEP = "step"


@frozen
class Behaviour:
    """A quantity that is worth a small chart beside the reward."""

    quantity: str  # its canonical name
    title: str  # a few words
    unit: str  # for the axis


BEHAVIOURS = tuple(Behaviour(**row) for row in table_rows("analysis/behaviours.tsv"))


MOST_FUNCTIONS = 8


def behaviours_of(record: RunRecord) -> tuple[Behaviour, ...]:
    """The reward functions that a run logs, the first few, and what is worth a chart beside."""
    names = {m.quantity for m in record.meanings if m.quantity.startswith("reward/")}
    functions = (
        Behaviour(name, clean(name.removeprefix("reward/"), longest=60), "reward")
        for name in sorted(names)[:MOST_FUNCTIONS]
    )
    return *functions, *BEHAVIOURS


def forecast_chart(fitted: Fitted, *, points: int) -> Chart:
    """Draw a metric with its forecast and, where a law fits, that law and its rivals."""
    lines = [observed_line("logged", fitted.clock.step_T, fitted.series.value_T, points=points)]
    lines += _law_lines(fitted.fit, fitted) if fitted.fit.status == "converged" else []
    held_out, caption = fitted.held_out_step.size > 0, ""
    marks: tuple[Mark, ...] = ()
    if fitted.outlook:
        lines += _forecast_lines(fitted, fitted.outlook)
        label = "last row used" if held_out else "last row"
        marks = (Mark(fitted.outlook.gain_from, label),)
        caption = (
            "The forecast uses no law: its band covers errors on public runs and a drifting mean."
        )
    if held_out:
        later = fitted.held_out_step, fitted.held_out_value
        lines.append(observed_line("held out", *later, role="held_out", points=points))
    shown = np.concatenate([fitted.series.value_T, fitted.held_out_value])
    y_range = useful_range(*(line.ordinates for line in lines), shown=shown)
    title = f"{fitted.title} and forecast"
    return Chart(
        "forecast", title, STEP, "", tuple(lines), marks, caption, wide=True, y_range=y_range
    )


def _law_lines(fit: FitResult, fitted: Fitted) -> list[Line]:
    """Return the law of the fit with its band."""
    steps = fitted.clock.steps
    name, band = law_name(fit.law), f"{percent(fitted.level)} band"
    curve = steps(fit.time_T), fit.curve_T
    return [smooth_line(name, "law", *curve, low_T=fit.low_T, high_T=fit.high_T, band=band)]


def _forecast_lines(fitted: Fitted, outlook: Outlook) -> list[Line]:
    """Return the forecast of rows and mean, widest first, and a settled plateau."""
    step, mean, mean_low, mean_high, low, high = zip(*map(astuple, outlook.grid), strict=True)
    level, fit = percent(outlook.result.level), fitted.fit
    nothing, band = [math.nan] * len(step), f"{level} band"
    lines = [
        smooth_line("next rows", "forecast", step, nothing, low_T=low, high_T=high, band=level),
        smooth_line(
            "forecast", "forecast", step, mean, low_T=mean_low, high_T=mean_high, band=band
        ),
    ]
    plateau = outlook.plateau
    if fit.status == "converged" and plateau is not None:
        name = f"plateau of the {law_name(fit.law)} law"
        lower, upper = (finite_or_none(plateau.low),), (finite_or_none(plateau.high),)
        band = f"{percent(plateau.level)} interval"
        lines.append(Line(name, "plateau", (step[-1],), (plateau.value,), lower, upper, band))
    return lines


def beyond_spikes(y: Float) -> tuple[Ends | None, str]:
    """Choose an axis that a few spikes do not crush, and say what lies beyond it.

    None where all fits.
    """
    finite = y[np.isfinite(y)]
    low, high = np.quantile(finite, [0.01, 0.99])
    reach = 3 * (high - low)
    beyond = finite[(finite > high + reach) | (finite < low - reach)]
    if not beyond.size or reach == 0:
        return None, ""
    furthest = float(beyond[np.abs(beyond - (low + high) / 2).argmax()])
    inside = finite[(finite <= high + reach) & (finite >= low - reach)]
    lie = "lies" if beyond.size == 1 else "lie"
    return useful_range(
        shown=inside
    ), f" {count(beyond.size, 'row')} {lie} outside the axis; the furthest is {number(furthest)}."


def definition_of(meaning: Meaning) -> str:
    """Return what a logged key means as a sentence, with the doubt where there is one."""
    doubt = (
        " The definition is ambiguous: the log does not say which one applies."
        if meaning.ambiguous
        else ""
    )
    return sentence(clean(meaning.definition, longest=300)) + doubt


def meaning_of(record: RunRecord, quantity: str) -> Meaning | None:
    """Return the fullest usable column of a quantity."""
    usable = [
        m
        for m in record.meanings
        if m.quantity == quantity and not m.unavailable and record.steps[m.column].count() >= 2
    ]
    return max(
        usable, key=lambda m: (not m.ambiguous, record.steps[m.column].count()), default=None
    )
