r"""What a fit and a forecast hand back: frozen records whose status has its sentence beside it, and
what a fit assumes of the noise about its curve and of the learning rate.

The size of the noise: the logarithm of the ratio of its variances in two halves has the variance
$\sum (\kappa - 1)/n$, n the rows that correlated ones are worth. Its memory: AR(1) beside white
noise has no partial autocorrelation below 0 at lag 2, where an estimate varies by $1/n$.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import Literal, cast

import numpy as np

from groupwise.arrays import Float, no_rows
from groupwise.files import table_rows
from groupwise.forecasting.observations import correlations
from groupwise.intervals import Interval, percent
from groupwise.plain import (
    HOLDS,
    UNKNOWN,
    VIOLATED,
    Assumption,
    Said,
    Tested,
    Words,
    assumptions,
    frozen,
)
from groupwise.wording import alike, in_python, number, sentence

# Standard errors: of steady noise .5 to 4 % of checks are wrong from 50 rows on, with the tails of
# Student's t of 3 up to 6 % at 20 rows (lab/docs/theory/fit.md).
_ALARM = 3.0
_FEWEST_ROWS = 20
_TOO_FEW = UNKNOWN, f"At least {_FEWEST_ROWS} rows are needed to test the noise about the curve."
_STEADY = 1.1  # largest over least learning rate


def steady_noise(residual_T: Float) -> Tested:
    if residual_T.size < _FEWEST_ROWS or not residual_T.any():
        return _TOO_FEW
    middle = residual_T.size // 2
    halves = residual_T[:middle], residual_T[middle:]
    spreads = [math.sqrt(float((half**2).mean())) for half in halves]
    if min(spreads) == 0:
        exact = "One half of the log lies exactly on the curve, which real noise does not do."
        return UNKNOWN, exact
    unit = np.concatenate([half / spread for half, spread in zip(halves, spreads, strict=True)])
    first = correlations(unit)[0]
    worth = middle * (1 - first**2) / (1 + first**2)
    error = math.sqrt(2 * max(float((unit**4).mean()) - 1, 1.0) / worth)
    ratio = 2 * math.log(spreads[1] / spreads[0])
    before, after = (f"{spread:.3g}" for spread in spreads)
    measured = f"rows scatter about the curve by {before} in the first half, {after} in the second"
    if abs(ratio) <= _ALARM * error:
        return HOLDS, f"The noise stays the same size: {measured}."
    return VIOLATED, (
        f"The noise changes its size: {measured}. Give the variance of each value with "
        "fit(time_T, value_T, variance_T=...), or fit only rows with one noise level."
    )


def noise_of_one_memory(residual_T: Float) -> Tested:
    rows = residual_T.size
    if rows < _FEWEST_ROWS or not residual_T.any():
        return _TOO_FEW
    first, second = correlations(residual_T)
    partial = (second - first**2) / (1 - first**2)
    measured = f"the partial autocorrelation of the residuals at lag 2 is {partial:.2g}"
    if partial >= -_ALARM / math.sqrt(rows):
        return HOLDS, f"No sign that the noise oscillates: {measured}."
    return VIOLATED, (
        f"The noise oscillates, like AR(2) noise: {measured}. The intervals are probably too "
        "wide. Fit every second row: fit(time_T[::2], value_T[::2])."
    )


def constant_rate(rate_T: Float | None) -> Tested:
    if rate_T is None or not np.isfinite(rate_T).all() or not rate_T.size:
        return (
            UNKNOWN,
            "The learning rate of each row is needed for this: check_assumptions(rate_T).",
        )
    least, most = float(rate_T.min()), float(rate_T.max())
    measured = f"it lies between {least:.3g} and {most:.3g}"
    if most <= _STEADY * least:
        return HOLDS, f"The learning rate is constant: {measured}."
    return VIOLATED, (
        f"The learning rate changes: {measured}. Fit against the cumulative learning rate: "
        "fit(numpy.cumsum(rate_T) / rate_T.max(), value_T)."
    )


FitStatus = Literal["converged", "not_identifiable", "flat", "non_stationary", "unavailable"]


_OUTCOMES = {row["outcome"]: row for row in table_rows("forecasting/outcomes.tsv")}


class FitOutcome(Enum):
    """What fits come to: the status that is reported, and the sentence that takes its numbers
    (`outcomes.tsv`).
    """

    CONVERGED = "converged"
    SHARED = "shared"
    FLAT = "flat"
    STILL = "still"
    COLLAPSED = "collapsed"
    WANDERS = "wanders"
    TOO_FEW = "too_few"
    MAYBE_SMOOTHED = "maybe_smoothed"
    EMPTY = "empty"
    SLOW_NOISE = "slow_noise"
    OPEN = "open"
    UNAVAILABLE = "unavailable"

    def __init__(self, outcome: str) -> None:
        """Take both from the table."""
        row = _OUTCOMES[outcome]
        self.status = cast("FitStatus", row["status"])
        self.sentence = row["sentence"]


@frozen
class Noise:
    """The noise around a curve."""

    lag1: float  # correlation of neighbouring residuals
    # rows over which the series had been averaged before we saw it (1: not smoothed)
    smoothing: int = 1


@frozen
class Candidate:
    """One law's claim on the data."""

    law: str  # its name in `LAWS`
    aicc: float  # corrected Akaike information criterion; smaller is better
    weight: float  # Akaike weight among the candidates, sums to 1
    r_squared: float  # share of the raw variance that its curve explains


@frozen
class FitResult(Said):
    """A law fitted to one metric of one run.

    Args:
        law: name of the law that the parameters belong to.
        outcome: what can be said; its `status` is one of converged, not_identifiable, flat,
            non_stationary and, where there are too few rows for a law, unavailable.
        message: the outcome as a sentence.
        parameters: each named parameter with its profile-likelihood interval.
        n: usable rows.
        r_squared: share of the raw variance explained.
        r_squared_explainable: share explained of what sampling noise leaves to explain; nan where
            unknown.
        candidates: all laws tried, best first.
        noise: the noise around the curve.
        time_T: updates, in the clock of the log, one per usable row.
        value_T: the metric, reward units.
        curve_T: the fitted mean at each row.
        low_T: lower end of the band of the mean at each row.
        high_T: upper end.
        residual_T: value minus curve.
        change_time: update from which no law holds, or nan.
        notes: further findings, one sentence each.
        rate_T: the learning rate at each row; None where it is not logged throughout.
        course: of the message, what is said without the part of the change that is done.
    """

    KEYS = (
        "n law status message parameters r_squared r_squared_explainable candidates noise "
        "change_time notes"
    )
    law: str
    outcome: FitOutcome
    message: str
    parameters: Mapping[str, Interval] = field(default_factory=dict)
    n: int = 0
    r_squared: float = math.nan
    r_squared_explainable: float = math.nan
    candidates: tuple[Candidate, ...] = ()
    noise: Noise = Noise(math.nan)
    time_T: Float = field(default_factory=no_rows)
    value_T: Float = field(default_factory=no_rows)
    curve_T: Float = field(default_factory=no_rows)
    low_T: Float = field(default_factory=no_rows)
    high_T: Float = field(default_factory=no_rows)
    residual_T: Float = field(default_factory=no_rows)
    change_time: float = math.nan
    notes: Words = ()
    rate_T: Float | None = None
    course: str = ""

    @property
    def status(self) -> FitStatus:
        """What can be said, in one of four words."""
        return self.outcome.status

    def __str__(self) -> str:
        """What can be said, in a sentence."""
        return in_python(sentence(self.message))

    def check_assumptions(self, rate_T: Float | None = None) -> tuple[Assumption, ...]:
        """Check what the fit assumes of the noise and of the learning rate.

        Args:
            rate_T: the learning rate of each usable row, shape (T,); None takes that of the log.

        Returns:
            One `Assumption` each; its sentence has the numbers, and of a violation the line that
            mends it.

        Example:
            >>> from groupwise.forecasting.fit import fit
            >>> import numpy as np
            >>> noise = np.random.default_rng(1).normal(size=80)
            >>> result = fit(np.arange(80), 1 - np.exp(-np.arange(80) / 20) + 0.02 * noise)
            >>> for assumption in result.check_assumptions(np.full(80, 1e-6)):
            ...     print(assumption.name, assumption.status.value)
            noise of constant size holds
            noise without oscillation holds
            constant learning rate holds
        """
        # Rows that were averaged before they were logged repeat each other.
        residual_T = self.residual_T[:: -self.noise.smoothing][::-1]
        return assumptions(
            {
                "noise of constant size": steady_noise(residual_T),
                "noise without oscillation": noise_of_one_memory(residual_T),
                "constant learning rate": constant_rate(self.rate_T if rate_T is None else rate_T),
            }
        )


def no_fit(problem: str) -> FitResult:
    """Return the fit of rows that are too few, which says so."""
    return FitResult("", FitOutcome.UNAVAILABLE, problem)


ForecastStatus = Literal["forecast", "short", "still", "unavailable"]


@frozen
class Forecast(Said):
    """Where the metric is going.

    Args:
        status: forecast; short (fewer rows than any run was forecast from before); still (a
            metric that never moved) or unavailable (too few rows for any).
        message: one sentence.
        level: nominal coverage of both bands.
        time_S: updates, in the clock of the log, that are forecast.
        mean_S: median of the mean, reward units.
        mean_low_S: lower end of the band of the mean.
        mean_high_S: upper end.
        low_S: lower end of the band of the next observation at that time.
        high_S: upper end.
        expected_gain: gain of the mean from the last row to the last time forecast.
    """

    status: ForecastStatus
    message: str
    level: float
    time_S: Float
    mean_S: Float
    mean_low_S: Float
    mean_high_S: Float
    low_S: Float
    high_S: Float
    expected_gain: Interval

    def __str__(self) -> str:
        """The last of the times forecast, in a sentence; of a metric that never moved, that; or
        why none is forecast.
        """
        if self.status in ("still", "unavailable"):
            return sentence(self.message)
        value, low, high = alike(self.mean_S[-1], self.mean_low_S[-1], self.mean_high_S[-1])
        least, most = alike(self.low_S[-1], self.high_S[-1])
        return (
            f"The mean is forecast to be {value} ({low} to {high}) by update "
            f"{number(self.time_S[-1])}, and single rows there {least} to {most} "
            f"({percent(self.level)} bands)."
        )


def nothing_foreseen(problem: str) -> Forecast:
    """Return the forecast of rows that are too few, which says so."""
    none, nan = no_rows(), math.nan
    gain = Interval(nan, nan, nan, nan)
    return Forecast("unavailable", problem, nan, none, none, none, none, none, none, gain)
