r"""Where a curve is going: a predictive band averaged over laws, shapes and noise.

Each law contributes the grid of shapes that its data allow, weighted by likelihood; laws are weighted by AICc. A weak
prior holds the plateau near the recent level until the data say otherwise, so that an early forecast is not worse than
the last mean. It extrapolates one series and knows nothing of what else the run may do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.special import ndtr, ndtri

from groupwise.curves import profile, search
from groupwise.curves.fit import Direction, judged_fits
from groupwise.curves.law_fit import LawFit
from groupwise.curves.laws import Law
from groupwise.curves.observations import LARGEST, Observations, observe
from groupwise.curves.results import Forecast
from groupwise.errors import InvalidArgumentError
from groupwise.intervals import Interval

FloatArray = NDArray[np.float64]

# Prior odds of each law, on top of AICc. Sigmoids see the end of a rise in any pause of it and forecast badly, however
# well they describe; docs/log.md has the scores.
PRIOR_ODDS = {"constant": 1.0, "exponential": 1.0, "oscillator": 1.0, "logistic": 0.03, "scalerl_sigmoid": 0.03, "power_law": 0.3}
# Standard deviation of the plateau's prior about the recent level, in units of the range that the curve has covered.
PRIOR_WIDTH = 1.0
# How far the truth walks away from every law over one span of the log: this many ranges covered plus this many scatters of
# a row, times one of the factors; the residuals say which.
DRIFT_COVERED = 0.5
DRIFT_NOISE = 0.6
DRIFT_FACTORS = (0.05, 0.3, 1.0, 3.0)


@dataclass(frozen=True, slots=True)
class Components:
    """A mixture of curves: one law's share of the posterior.

    Args:
        law: the law.
        weight_Q: posterior weight of each curve; sums to the law's weight.
        plateau_Q: plateau of each.
        drop_Q: start minus plateau of each.
        plateau_variance_Q: variance of the plateau.
        drop_variance_Q: variance of the drop.
        covariance_Q: covariance of plateau and drop.
        shapes_Q: shape values.
    """

    law: Law
    weight_Q: FloatArray
    plateau_Q: FloatArray
    drop_Q: FloatArray
    plateau_variance_Q: FloatArray
    drop_variance_Q: FloatArray
    covariance_Q: FloatArray
    shapes_Q: tuple[FloatArray, ...]

    def decay(self, time_S: FloatArray) -> FloatArray:
        """Return g of every curve at every time, shape (Q, S)."""
        return np.asarray(self.law.decay(time_S[None, :], *(shape[:, None] for shape in self.shapes_Q))) * np.ones(
            (self.weight_Q.size, time_S.size)
        )


def forecast(
    time_T: ArrayLike,
    value_T: ArrayLike,
    at_S: ArrayLike,
    *,
    variance_T: ArrayLike | None = None,
    window: float = 1.0,
    smoothing: int | None = None,
    level: float = 0.9,
    healthy: Direction = "any",
    rows: int = 1,
    bounds: tuple[float, float] | None = None,
) -> Forecast:
    """Forecast a metric at given times, with a band of the mean and a band of the next observation.

    Args:
        time_T: increasing times in optimiser updates, shape (T,).
        value_T: the metric, shape (T,).
        at_S: times at which to forecast, in the same clock, shape (S,).
        variance_T: sampling variance of each value where known.
        window: updates that one row averages over.
        smoothing: as in `fit`.
        level: nominal coverage of both bands.
        healthy: as in `fit`.
        rows: the observation of the second band is the mean of this many neighbouring rows.
        bounds: the range that the metric cannot leave, (0, 1) for a share; None for none.

    Returns:
        Means and bands, the plateau, the time to 95 % of it, and the gain still expected.

    Raises:
        InvalidArgumentError: no time is asked for, or one lies before the log.
        InsufficientDataError: fewer than three finite values.

    Example:
        >>> t = np.arange(300.0)
        >>> y = 0.8 - 0.6 * np.exp(-t / 60) + np.random.default_rng(0).normal(0, 0.02, 300)
        >>> ahead = forecast(t[:200], y[:200], [299.0])
        >>> bool(ahead.low_S[0] < 0.796 < ahead.high_S[0])
        True

    Source: derived by us; Akaike weights as in Burnham and Anderson (2002).
    """
    ahead = _checked_times(at_S)
    if rows < 1:
        raise InvalidArgumentError(f"an observation is the mean of at least one row; got {rows}")
    if not 0 < level < 1:
        raise InvalidArgumentError(f"the level of a band lies between 0 and 1; got {level}")
    observations = observe(time_T, value_T, variance_T, window=window, smoothing=smoothing)
    local = ahead - observations.origin
    if float(local.min()) < 0:
        raise InvalidArgumentError(f"a forecast looks at times of the log or later; got {float(ahead.min()):g}")
    if observations.still:
        return _constant_forecast(observations, ahead, level)
    judged = judged_fits(observations, healthy=healthy)
    fits, verdict = judged.fits, judged.verdict
    mixture = components(fits, observations)
    regression, drift = _memory(fits[0], mixture, observations, local)
    moments = _moments(mixture, observations, local, regression)
    mean, mean_low, mean_high = _band(moments, drift, level)
    _, low, high = _band(moments, drift + _noise_variance(fits[0], observations, local, rows), level)
    return Forecast(
        status=verdict.status,
        message=verdict.message,
        level=level,
        time_S=ahead,
        mean_S=_within(mean, bounds),
        mean_low_S=_within(mean_low, bounds),
        mean_high_S=_within(mean_high, bounds),
        low_S=_within(low, bounds),
        high_S=_within(high, bounds),
        plateau=_within_interval(_plateau(mixture, level), bounds),
        time_to_95=_time_to_95(mixture, observations, level),
        expected_gain=_gain(mixture, observations.row_time_T[-1], float(local.max()), level),
        notes=verdict.notes,
    )


def _within(value_S: FloatArray, bounds: tuple[float, float] | None) -> FloatArray:
    """Values held inside the range that the metric cannot leave."""
    return value_S if bounds is None else np.clip(value_S, *bounds)


def _within_interval(interval: Interval, bounds: tuple[float, float] | None) -> Interval:
    """An interval held inside the range that the metric cannot leave."""
    if bounds is None:
        return interval
    value, low, high = (float(v) for v in np.clip([interval.value, interval.low, interval.high], *bounds))
    return Interval(value, low, high, interval.level)


def _checked_times(at_S: ArrayLike) -> FloatArray:
    """The times asked for, as a line of finite numbers."""
    try:
        ahead = np.atleast_1d(np.asarray(at_S, dtype=float))
    except (TypeError, ValueError):
        raise InvalidArgumentError("a forecast looks at numbers; got something else among the times") from None
    if ahead.ndim != 1 or not ahead.size or not np.isfinite(ahead).all() or float(np.abs(ahead).max()) > LARGEST:
        raise InvalidArgumentError("a forecast needs a line of finite times to look at, at least one")
    return ahead


def components(fits: list[LawFit], observations: Observations) -> list[Components]:
    """The posterior of every law as a list of weighted curves.

    Args:
        fits: the laws that were fitted.
        observations: their series.

    Returns:
        Components whose weights sum to 1 over all laws.
    """
    score = np.array([-found.aicc / 2 + np.log(PRIOR_ODDS[found.law.name]) for found in fits])
    score = np.where(np.isfinite(score), score, -np.inf)
    if not np.isfinite(score).any():
        score[0] = 0.0
    share = np.exp(score - score.max())
    share /= share.sum()
    recent, width = _recent_level(fits, observations)
    return [
        _law_components(found, observations, float(weight), recent, width)
        for found, weight in zip(fits, share, strict=True)
        if weight > 1e-3
    ]


def _recent_level(fits: list[LawFit], observations: Observations) -> tuple[float, float]:
    """Where the curve is now, and how far from there the plateau may lie."""
    value = observations.value_M
    recent = float(value[-max(3, value.size // 5) :].mean())
    covered = float(np.ptp(fits[0].curve_M)) if fits[0].law.shapes else 0.0
    return recent, PRIOR_WIDTH * max(covered, float(value.std()), 1e-12)


def _law_components(found: LawFit, observations: Observations, share: float, recent: float, width: float) -> Components:
    """One law's curves."""
    noise = found.noise
    variance = float(noise.variance_E[noise.best])
    inflation = float((noise.widening(0.9).max() / ndtri(0.95)) ** 2)
    if found.products is None:
        scale = float(noise.scale_EP[noise.best, 0]) ** 2 * inflation
        one, zero = np.ones(1), np.zeros(1)
        return Components(found.law, one * share, one * found.values["plateau"], zero, one * scale, zero, zero, ())
    products = found.products.with_prior(recent - found.centre, variance / width**2)
    whole = search.whole_box(found.law, observations.span)
    best = search.minimum(found.law, products, whole, found.point)
    least = search.surface(found.law, products, *whole.at(best)).error_Q[0]
    limit = least * (1 + 12.0 / noise.freedom)
    area = profile.region(found.law, products, observations.span, best, float(limit), float(np.sqrt(12.0 * variance)), counts=(14, 10))
    surface = area.surface
    log_weight = -0.5 * noise.freedom * (np.log(surface.error_Q) - np.log(least)) - 0.5 * np.log(np.maximum(surface.determinant_Q, 1e-300))
    weight = np.where(surface.determinant_Q > 0, np.exp(log_weight - log_weight.max()), 0.0)
    keep = weight > 3e-3 * weight.max()
    weight = weight[keep] / weight[keep].sum() * share
    unit = variance * inflation
    plateau_variance, start_variance = surface.plateau_variance_Q[keep], surface.start_variance_Q[keep]
    with_start = surface.covariance_Q[keep]
    return Components(
        found.law,
        weight,
        surface.plateau_Q[keep] + found.centre,
        surface.start_Q[keep] - surface.plateau_Q[keep],
        unit * plateau_variance,
        unit * (plateau_variance + start_variance - 2 * with_start),
        unit * (with_start - plateau_variance),
        tuple(shape[keep] for shape in area.shapes),
    )


def _curves(mixture: list[Components], time_S: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Weights (Q,) and means (Q, S) of all curves."""
    weight = np.concatenate([part.weight_Q for part in mixture])
    means = [part.plateau_Q[:, None] + part.drop_Q[:, None] * part.decay(time_S) for part in mixture]
    return weight / weight.sum(), np.concatenate(means)


def _moments(
    mixture: list[Components], observations: Observations, time_S: FloatArray, regression_SM: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Weights (Q,), means and variances (Q, S) of all curves, corrected by the rows seen (universal kriging).

    What the residuals say about a time ahead is said of plateau and drop too: both enter with what the regression leaves.
    """
    means, variances = [], []
    one = 1 - regression_SM.sum(1)
    for part in mixture:
        decay = part.decay(time_S) - part.decay(observations.time_M) @ regression_SM.T
        means.append(part.plateau_Q[:, None] * one + part.drop_Q[:, None] * decay + regression_SM @ observations.value_M)
        variances.append(
            part.plateau_variance_Q[:, None] * one**2
            + decay**2 * part.drop_variance_Q[:, None]
            + 2 * one * decay * part.covariance_Q[:, None]
        )
    weight = np.concatenate([part.weight_Q for part in mixture])
    return weight / weight.sum(), np.concatenate(means), np.maximum(np.concatenate(variances), 0.0)


def _band(
    moments: tuple[FloatArray, FloatArray, FloatArray], extra_S: FloatArray, level: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean and equal-tailed band of the mixture at each time, with extra variance added."""
    weight, mean, variance = moments
    deviation = np.sqrt(variance + extra_S)
    low, high = (mixture_quantile(weight, mean, deviation, tail) for tail in ((1 - level) / 2, (1 + level) / 2))
    return weight @ mean, low, high


def mixture_quantile(weight_Q: FloatArray, mean_QS: FloatArray, deviation_QS: FloatArray, probability: float) -> FloatArray:
    """Quantile of a mixture of normals, by bisection.

    Example:
        >>> float(mixture_quantile(np.ones(1), np.zeros((1, 1)), np.ones((1, 1)), 0.975)[0].round(3))
        1.96
    """
    deviation_QS = np.maximum(deviation_QS, 1e-13 * np.abs(mean_QS).max(0) + 1e-300)
    reach = 8 * deviation_QS
    low, high = (mean_QS - reach).min(0), (mean_QS + reach).max(0)
    for _ in range(30):
        middle = (low + high) / 2
        below = weight_Q @ ndtr((middle - mean_QS) / deviation_QS) < probability
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.asarray((low + high) / 2)


def _memory(lead: LawFit, mixture: list[Components], observations: Observations, time_S: FloatArray) -> tuple[FloatArray, FloatArray]:
    """How the rows seen bear on the level ahead beyond the laws, and the variance of what no law accounts for.

    The truth leaves every law in time: the difference is a random walk. Its deviation over one span of the log is
    `DRIFT_COVERED` times the range covered plus `DRIFT_NOISE` times the scatter of a row, times a factor from
    `DRIFT_FACTORS` that the residuals weigh. The slow part of the noise joins in. Returns the regression weights of the
    residuals at each time ahead, shape (S, M), and the variance of the walk that they leave.
    """
    time, span = observations.time_M, observations.span
    weight, curves = _curves(mixture, time)
    residual = observations.value_M - weight @ curves
    shape, variance = lead.noise.best_shape, float(lead.noise.variance_E[lead.noise.best])
    scatter = np.sqrt(variance * observations.row_time_T.size / time.size)
    step = DRIFT_COVERED * float(np.ptp(weight @ curves)) + DRIFT_NOISE * scatter
    slow, slow_ahead = (
        variance * shape.share * (shape.share > 0) * shape.after(np.abs(a[:, None] - time[None, :])) for a in (time, time_S)
    )
    white = np.diag(variance * ((1 - shape.share) * observations.relative_variance_M + 1e-9))
    score, weights, rests = [], [], []
    for factor in DRIFT_FACTORS:
        power = (factor * step) ** 2 / span
        walk, walk_ahead = (power * np.minimum(a[:, None], time[None, :]) for a in (time, time_S))
        cholesky = cho_factor(walk + slow + white, lower=True)
        regression = cho_solve(cholesky, (walk_ahead + slow_ahead).T).T
        score.append(-float(np.log(np.diag(cholesky[0])).sum()) - 0.5 * float(residual @ cho_solve(cholesky, residual)))
        weights.append(regression)
        rests.append(power * time_S - np.einsum("sm,ms->s", walk_ahead, cho_solve(cholesky, walk_ahead.T)))
    share = np.exp(np.array(score) - max(score))
    share /= share.sum()
    return np.einsum("f,fsm->sm", share, np.array(weights)), np.maximum(share @ np.array(rests), 0.0)


def _noise_variance(found: LawFit, observations: Observations, time_S: FloatArray, rows: int) -> FloatArray:
    """Variance about the mean of `rows` rows at each time: white noise, and slow noise as far as it is not yet known."""
    noise, shape = found.noise, found.noise.best_shape
    variance = float(noise.variance_E[noise.best])
    per_block = observations.row_time_T.size / observations.time_M.size
    gap = observations.gap / per_block
    distance = np.maximum(time_S - observations.time_M[-1], 0.0)
    fresh = 1 - shape.after(2 * distance) if shape.share > 0 else np.zeros(time_S.size)
    lag = np.arange(1.0, rows)
    together = (1 + 2 * float(((1 - lag / rows) * shape.after(lag * gap)).sum())) / rows if shape.share > 0 else 1.0
    slow = variance * shape.share * fresh * together
    white = max(variance * (1 - shape.share) * per_block, _floor(observations)) / rows
    return np.asarray(slow + white)


def _floor(observations: Observations) -> float:
    """Sampling variance of one row by the groups alone, 0 where unknown."""
    return observations.sampling_variance if np.isfinite(observations.sampling_variance) else 0.0


def _plateau(mixture: list[Components], level: float) -> Interval:
    """Plateau over all laws."""
    weight = np.concatenate([part.weight_Q for part in mixture])
    mean = np.concatenate([part.plateau_Q for part in mixture])[:, None]
    deviation = np.sqrt(np.concatenate([part.plateau_variance_Q for part in mixture]))[:, None]
    weight = weight / weight.sum()
    low, high = (float(mixture_quantile(weight, mean, deviation, tail)[0]) for tail in ((1 - level) / 2, (1 + level) / 2))
    return Interval(float(weight @ mean[:, 0]), low, high, level)


def _time_to_95(mixture: list[Components], observations: Observations, level: float) -> Interval:
    """Time until 95 % of the way from start to plateau is done, in the caller's clock; infinite where out of sight."""
    times = observations.span * np.geomspace(1e-3, 30.0, 240)
    arrivals, weights = [], []
    for part in mixture:
        if not part.law.shapes:
            continue
        arrivals.append(_arrival(part.decay(times), times))
        weights.append(part.weight_Q)
    if not weights:
        nan = float("nan")
        return Interval(nan, nan, nan, level)
    arrival, weight = np.concatenate(arrivals), np.concatenate(weights)
    order = np.argsort(arrival)
    cumulative = np.cumsum(weight[order]) / weight.sum()
    low, middle, high = (
        float(arrival[order][min(int(np.searchsorted(cumulative, p)), arrival.size - 1)]) for p in ((1 - level) / 2, 0.5, (1 + level) / 2)
    )
    return Interval(middle + observations.origin, low + observations.origin, high + observations.origin, level)


def _arrival(decay_QS: FloatArray, time_S: FloatArray) -> FloatArray:
    """First time at which each decay is down to 5 %, between grid points by interpolation; infinite if never."""
    done = decay_QS <= 0.05
    i = done.argmax(1)
    row, before = np.arange(i.size), np.maximum(i - 1, 0)
    # Interpolated in the logarithm, in which an exponential is straight.
    left, right = (np.log(np.maximum(decay_QS[row, j], 1e-12)) for j in (before, i))
    share = np.clip((left - np.log(0.05)) / np.where(left > right, left - right, 1.0), 0.0, 1.0)
    return np.where(done.any(1), time_S[before] + share * (time_S[i] - time_S[before]), np.inf)


def _gain(mixture: list[Components], now: float, then: float, level: float) -> Interval:
    """Gain of the mean between two times."""
    weights, gains, deviations = [], [], []
    for part in mixture:
        decay = part.decay(np.array([now, then]))
        step = decay[:, 1] - decay[:, 0]
        weights.append(part.weight_Q)
        gains.append(part.drop_Q * step)
        deviations.append(np.abs(step) * np.sqrt(np.maximum(part.drop_variance_Q, 0.0)))
    weight = np.concatenate(weights)
    weight, gain, deviation = weight / weight.sum(), np.concatenate(gains)[:, None], np.concatenate(deviations)[:, None]
    low, high = (float(mixture_quantile(weight, gain, deviation, tail)[0]) for tail in ((1 - level) / 2, (1 + level) / 2))
    return Interval(float(weight @ gain[:, 0]), low, high, level)


def _constant_forecast(observations: Observations, ahead: FloatArray, level: float) -> Forecast:
    """A metric that never moved is forecast not to move."""
    value, nan = float(observations.row_value_T[0]), float("nan")
    line = np.full(ahead.size, value)
    message = f"flat: every row is exactly {value:.6g}; the forecast repeats it and knows no uncertainty"
    same = Interval(value, value, value, level)
    never = Interval(nan, nan, nan, level)
    return Forecast("flat", message, level, ahead, line, line, line, line, line, same, never, Interval(0.0, 0.0, 0.0, level))
