"""The charts below a report's first screen, as plain data: law and forecast."""

from __future__ import annotations

import math
from dataclasses import astuple

import numpy as np

from groupwise.analysis.charts import (
    POINTS,
    Chart,
    Line,
    Mark,
    observed_line,
    smooth_line,
    useful_range,
)
from groupwise.analysis.fitted import Fitted, Outlook
from groupwise.arrays import Float
from groupwise.forecasting.results import FitResult
from groupwise.intervals import finite_or_none, percent
from groupwise.plain import frozen
from groupwise.record.run import Meaning, RunRecord
from groupwise.wording import clean, count, law_name, number, sentence

STEP = "step"


@frozen
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


MOST_FUNCTIONS = 8


def behaviours_of(record: RunRecord) -> tuple[Behaviour, ...]:
    """The reward functions that a run logs, the first few, and what is worth a chart beside."""
    names = {m.quantity for m in record.meanings if m.quantity.startswith("reward/")}
    functions = (
        Behaviour(name, clean(name.removeprefix("reward/"), longest=60), "reward")
        for name in sorted(names)[:MOST_FUNCTIONS]
    )
    return *functions, *BEHAVIOURS


def forecast_chart(fitted: Fitted, *, points: int = POINTS) -> Chart | None:
    """Chart a metric with its forecast, and with its law and rivals where one holds."""
    if fitted.fit is None:
        return None
    lines = [observed_line("logged", fitted.clock.step_T, fitted.series.value_T, points=points)]
    lines += _law_lines(fitted.fit, fitted) if fitted.fit.status == "converged" else []
    held_out, caption = fitted.held_out_step.size > 0, ""
    marks: tuple[Mark, ...] = ()
    if fitted.outlook is not None:
        lines += _forecast_lines(fitted, fitted.outlook)
        label = "last row used" if held_out else "last row"
        marks = (Mark(fitted.outlook.gain_from, label),)
        caption = (
            "The forecast follows no law: its band is as wide as public runs and a wandering mean "
            "need."
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
    level = next((interval.level for interval in fit.parameters.values()), 0.95)
    name, band = law_name(fit.law), f"{percent(level)} band"
    curve = steps(fit.time_T), fit.curve_T
    law = smooth_line(name, "law", *curve, low_T=fit.low_T, high_T=fit.high_T, band=band)
    return [law]


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
    if fit is not None and fit.status == "converged" and plateau is not None:
        name = f"plateau of the {law_name(fit.law)} law"
        lower, upper = (finite_or_none(plateau.low),), (finite_or_none(plateau.high),)
        band = f"{percent(plateau.level)} interval"
        lines.append(Line(name, "plateau", (step[-1],), (plateau.value,), lower, upper, band))
    return lines


def beyond_spikes(y: Float) -> tuple[tuple[float, float] | None, str]:
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
    ), f" {count(beyond.size, 'row')} {lie} beyond the axis, the furthest at {number(furthest)}."


def definition_of(meaning: Meaning) -> str:
    """Return what a logged key means as a sentence, with the doubt where there is one."""
    doubt = " Ambiguous: the log cannot tell which definition holds." if meaning.ambiguous else ""
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
