"""The forecast scored on what came after, beside the simple methods that people use.

Each method sees the first part of a run and is compared with the window means of the rest. It judges one run at a time;
`summarise_backtests` puts runs together and counts dependent ones as one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import least_squares

from groupwise.arrays import Float
from groupwise.curves.fit import Direction
from groupwise.curves.forecast import forecast
from groupwise.curves.laws import Law, law_by_name
from groupwise.curves.results import Backtest
from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.intervals import Interval, wilson

SIMPLE = ("last_mean", "exponential", "scalerl_sigmoid", "power_law")
WINDOWS = 10


def backtest(
    time_T: ArrayLike,
    value_T: ArrayLike,
    *,
    variance_T: ArrayLike | None = None,
    window: float = 1.0,
    smoothing: int | None = None,
    from_share: float = 0.4,
    level: float = 0.9,
    healthy: Direction = "any",
    bounds: tuple[float, float] | None = None,
) -> Backtest:
    """Forecast the rest of a run from its first part, and score it.

    Args:
        time_T: increasing times in updates, shape (T,).
        value_T: the metric, shape (T,).
        variance_T: sampling variance of each value where known.
        window: updates that one row averages over.
        smoothing: as in `fit`.
        from_share: share of the rows that the forecast sees.
        level: nominal coverage of the band.
        healthy: as in `fit`.
        bounds: as in `forecast`.

    Returns:
        Mean absolute error of our forecast ("groupwise") and of each simple method over window means, and the coverage.

    Raises:
        InsufficientDataError: fewer than 20 finite rows.
        InvalidArgumentError: the share is not inside (0, 1), or lengths differ.

    Example:
        >>> t = np.arange(200.0)
        >>> y = 0.8 - 0.6 * np.exp(-t / 40) + np.random.default_rng(0).normal(0, 0.02, 200)
        >>> score = backtest(t, y)
        >>> score.errors["groupwise"] < score.errors["last_mean"]
        True

    Source: derived by us.
    """
    if not 0 < from_share < 1:
        raise InvalidArgumentError(f"a backtest sees a share of the run between 0 and 1; got {from_share}")
    time, value = np.asarray(time_T, dtype=float), np.asarray(value_T, dtype=float)
    variance = None if variance_T is None else np.asarray(variance_T, dtype=float)
    if time.ndim != 1 or time.shape != value.shape or (variance is not None and variance.shape != value.shape):
        raise InvalidArgumentError("times, values and variances need one and the same length")
    keep = np.isfinite(time) & np.isfinite(value)
    time, value = time[keep], value[keep]
    variance = None if variance is None else variance[keep]
    if time.size < 20:
        raise InsufficientDataError(f"a backtest needs at least 20 finite rows; the series has {time.size}")
    cut = max(8, int(from_share * time.size))
    groups = np.array_split(np.arange(cut, time.size), min(WINDOWS, time.size - cut))
    centre = np.array([time[g].mean() for g in groups])
    truth = np.array([value[g].mean() for g in groups])
    rows = round(float(np.mean([g.size for g in groups])))
    seen = None if variance is None else variance[:cut]
    asked = partial(forecast, window=window, smoothing=smoothing, level=level, healthy=healthy, rows=rows, bounds=bounds)
    ahead = asked(time[:cut], value[:cut], centre, variance_T=seen)
    forecasts = {name: simple_forecast(name, time[:cut], value[:cut], centre) for name in SIMPLE}
    errors = {name: float(np.abs(mean - truth).mean()) for name, mean in {"groupwise": ahead.mean_S, **forecasts}.items()}
    covered = int(((truth >= ahead.low_S) & (truth <= ahead.high_S)).sum())
    return Backtest(errors, covered, len(groups), level, cut, time.size - cut)


def simple_forecast(name: str, time_T: Float, value_T: Float, at_S: Float) -> Float:
    """What a person would do by hand: the mean of the last fifth, or an unweighted bounded least-squares fit."""
    if name == "last_mean":
        return np.full(at_S.size, value_T[-max(5, value_T.size // 5) :].mean())
    law = law_by_name(name)
    origin = time_T[0]
    return law.curve(at_S - origin, **_bounded_fit(law, time_T - origin, value_T))


def _bounded_fit(law: Law, time_T: Float, value_T: Float) -> dict[str, float]:
    """Least squares with the levels held within one observed range of the data, as curve fitters do in practice."""
    reach = max(float(np.ptp(value_T)), 1e-9 * float(np.abs(value_T).max()), 1e-100)
    guess = law.guess(time_T, value_T)
    span = float(time_T[-1])
    low = [value_T.min() - reach] * 2 + [axis.low * (span if axis.spans else 1) for axis in law.axes]
    high = [value_T.max() + reach] * 2 + [axis.high * (span if axis.spans else 1) for axis in law.axes]
    margin = 1e-6 * (np.array(high) - np.array(low))
    start = np.clip([guess[name] for name in law.parameters], np.array(low) + margin, np.array(high) - margin)
    found = least_squares(
        lambda p: law.curve(time_T, **dict(zip(law.parameters, p, strict=True))) - value_T,
        start,
        jac=lambda p: law.jacobian(time_T, **dict(zip(law.parameters, p, strict=True))),
        bounds=(low, high),
        x_scale=np.maximum(np.abs(start), margin),
    )
    return dict(zip(law.parameters, (float(v) for v in found.x), strict=True))


@dataclass(frozen=True, slots=True)
class BacktestSummary:
    """Backtests of many runs together."""

    ratios: Mapping[str, float]  # geometric mean over clusters of our error over each simple method's
    best_simple: str  # the simple method with the smallest geometric-mean error over all runs
    coverage: Interval  # share of windows inside the band, with a Wilson interval whose trials are the clusters
    runs: int  # number of runs
    clusters: int  # number of independent clusters


def summarise_backtests(scored: Sequence[tuple[str, Backtest]]) -> BacktestSummary:
    """Put backtests together; runs of one cluster (seeds of one sweep) count as one."""
    if not scored:
        raise InsufficientDataError("no run was long enough to be scored; a backtest needs at least 20 finite rows")
    names = [name for name in scored[0][1].errors if name != "groupwise"]
    clusters = sorted({cluster for cluster, _ in scored})
    logs = {name: [_cluster_mean_log(scored, cluster, name) for cluster in clusters] for name in ("groupwise", *names)}
    mean_log = {name: float(np.mean(values)) for name, values in logs.items()}
    share = [float(np.mean([test.covered / test.windows for own, test in scored if own == cluster])) for cluster in clusters]
    return BacktestSummary(
        ratios={name: float(np.exp(mean_log["groupwise"] - mean_log[name])) for name in names},
        best_simple=min(names, key=lambda name: mean_log[name]),
        coverage=wilson(float(np.sum(share)), len(clusters)),
        runs=len(scored),
        clusters=len(clusters),
    )


def _cluster_mean_log(scored: Sequence[tuple[str, Backtest]], cluster: str, name: str) -> float:
    """Mean log error of a method over the runs of a cluster; no error counts as less than a millionth of the run's largest."""
    tests = [test for own, test in scored if own == cluster]
    floors = [1e-6 * max(test.errors.values()) or 1.0 for test in tests]
    return float(np.mean([np.log(max(test.errors[name], floor)) for test, floor in zip(tests, floors, strict=True)]))
