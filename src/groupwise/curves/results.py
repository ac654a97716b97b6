"""What a fit, a forecast and a backtest hand back: frozen records whose status reads as a sentence.

Plain data and nothing else; the numbers are made in `fit`, `forecast` and `backtest`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from groupwise.intervals import Interval, finite_or_none

FloatArray = NDArray[np.float64]
FitStatus = Literal["converged", "not_identifiable", "flat", "non_stationary"]


@dataclass(frozen=True, slots=True)
class Noise:
    """The noise around a curve: a white part and an autocorrelated part."""

    white_variance: float  # variance of the white part of one observation, reward units squared
    state_variance: float  # stationary variance of the AR(1) part, reward units squared
    correlation: float  # correlation of the AR(1) part over one update
    lag1: float  # correlation of neighbouring raw residuals
    sampling_variance: float = float("nan")  # mean variance that the groups alone explain, or nan where unknown
    smoothing: int = 1  # rows over which the series had been averaged before we saw it (1: not smoothed)
    window: float = 1.0  # updates that one row averages over


@dataclass(frozen=True, slots=True)
class Candidate:
    """One law's claim on the data."""

    law: str  # its name in `LAWS`
    aicc: float  # corrected Akaike information criterion; smaller is better
    weight: float  # Akaike weight among the candidates, sums to 1
    r_squared: float  # share of the raw variance that its curve explains

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "law": self.law,
            "aicc": finite_or_none(self.aicc),
            "weight": finite_or_none(self.weight),
            "r_squared": finite_or_none(self.r_squared),
        }


@dataclass(frozen=True, slots=True)
class FitResult:
    """A law fitted to one metric of one run.

    Args:
        law: name of the law that the parameters belong to.
        status: what can be said.
        message: the status as a sentence.
        parameters: each named parameter with its profile-likelihood interval.
        n: usable rows.
        r_squared: share of the raw variance explained.
        r_squared_explainable: share explained of what sampling noise leaves to explain; nan where unknown.
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
    """

    law: str
    status: FitStatus
    message: str
    parameters: Mapping[str, Interval]
    n: int
    r_squared: float
    r_squared_explainable: float
    candidates: tuple[Candidate, ...]
    noise: Noise
    time_T: FloatArray = field(repr=False)
    value_T: FloatArray = field(repr=False)
    curve_T: FloatArray = field(repr=False)
    low_T: FloatArray = field(repr=False)
    high_T: FloatArray = field(repr=False)
    residual_T: FloatArray = field(repr=False)
    change_time: float = float("nan")
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The keys of `groupwise fit --json`, without the metric's name."""
        return {
            "n": self.n,
            "law": self.law,
            "status": self.status,
            "message": self.message,
            "parameters": {name: interval.as_dict() for name, interval in self.parameters.items()},
            "r_squared": finite_or_none(self.r_squared),
            "r_squared_explainable": finite_or_none(self.r_squared_explainable),
            "candidates": [candidate.as_dict() for candidate in self.candidates],
            "noise": {
                "white_variance": finite_or_none(self.noise.white_variance),
                "state_variance": finite_or_none(self.noise.state_variance),
                "correlation": finite_or_none(self.noise.correlation),
                "lag1": finite_or_none(self.noise.lag1),
                "sampling_variance": finite_or_none(self.noise.sampling_variance),
                "smoothing": self.noise.smoothing,
                "window": self.noise.window,
            },
            "change_time": finite_or_none(self.change_time),
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True)
class Forecast:
    """Where the metric is going.

    Args:
        status: the status of the fit behind it.
        message: one sentence.
        level: nominal coverage of both bands.
        time_S: updates, in the clock of the log, that are forecast.
        mean_S: expected value, reward units.
        mean_low_S: lower end of the band of the mean.
        mean_high_S: upper end.
        low_S: lower end of the band of the next observation at that time.
        high_S: upper end.
        plateau: the level that is approached.
        time_to_95: update, in the clock of the log, at which 95 % of the way from start to plateau is done.
        expected_gain: gain of the mean from the last row to the last time forecast.
        notes: further findings.
    """

    status: FitStatus
    message: str
    level: float
    time_S: FloatArray
    mean_S: FloatArray
    mean_low_S: FloatArray
    mean_high_S: FloatArray
    low_S: FloatArray
    high_S: FloatArray
    plateau: Interval
    time_to_95: Interval
    expected_gain: Interval
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Backtest:
    """One run's forecast scored on what came after.

    Args:
        errors: mean absolute error of each method over the windows held out, reward units.
        covered: windows whose mean lay inside the predictive band.
        windows: windows held out.
        level: nominal coverage of the band.
        n_train: rows the forecast saw.
        n_test: rows held out.
    """

    errors: Mapping[str, float]
    covered: int
    windows: int
    level: float
    n_train: int
    n_test: int
