r"""Where a curve is going: a predictive band averaged over laws, shapes and noise.

Each law contributes the grid of shapes that its data allow, weighted by likelihood; laws are weighted by AICc. A weak
prior holds the plateau near the recent level until the data say otherwise, so that an early forecast is not worse than
the last mean. It extrapolates one series and knows nothing of what else the run may do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import cho_factor, cho_solve
from scipy.special import ndtr, ndtri

from groupwise.arrays import Float
from groupwise.curves import profile
from groupwise.curves.fit import Direction, judged_fits
from groupwise.curves.law_fit import LawFit
from groupwise.curves.laws import Law
from groupwise.curves.observations import LARGEST, Observations, observe
from groupwise.curves.results import Forecast
from groupwise.errors import InvalidArgumentError
from groupwise.intervals import Interval

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
    lead, verdict = judged.fits[0], judged.verdict
    mixture = _mixture(judged.fits, observations)
    regression, drift = _memory(lead, mixture, observations, local)
    mean_QS, variance_QS = _moments(mixture, observations, local, regression)
    mean_band = _band(mixture, mean_QS, variance_QS + drift, level)
    band = _band(mixture, mean_QS, variance_QS + drift + _noise_variance(lead, observations, local, rows), level)
    low, high = (-np.inf, np.inf) if bounds is None else bounds
    mean_S, mean_low_S, mean_high_S, low_S, high_S = np.clip([mixture.weight_Q @ mean_QS, *mean_band, *band], low, high)
    plateau = _interval(mixture, mixture.plateau_Q, mixture.plateau_variance_Q, level)
    value, plateau_low, plateau_high = (float(v) for v in np.clip([plateau.value, plateau.low, plateau.high], low, high))
    return Forecast(
        status=verdict.outcome.status,
        message=verdict.message,
        level=level,
        time_S=ahead,
        mean_S=mean_S,
        mean_low_S=mean_low_S,
        mean_high_S=mean_high_S,
        low_S=low_S,
        high_S=high_S,
        plateau=Interval(value, plateau_low, plateau_high, level),
        time_to_95=_time_to_95(mixture, observations, level),
        expected_gain=_gain(mixture, observations.row_time_T[-1], float(local.max()), level),
        notes=verdict.notes,
    )


def _checked_times(at_S: ArrayLike) -> Float:
    """The times asked for, as a line of finite numbers."""
    try:
        ahead = np.atleast_1d(np.asarray(at_S, dtype=float))
    except (TypeError, ValueError):
        raise InvalidArgumentError("a forecast looks at numbers; got something else among the times") from None
    if ahead.ndim != 1 or not ahead.size or not np.isfinite(ahead).all() or float(np.abs(ahead).max()) > LARGEST:
        raise InvalidArgumentError("a forecast needs a line of finite times to look at, at least one")
    return ahead


def _constant_forecast(observations: Observations, ahead: Float, level: float) -> Forecast:
    """A metric that never moved is forecast not to move."""
    value, nan = float(observations.row_value_T[0]), float("nan")
    line = np.full(ahead.size, value)
    message = f"flat: every row is exactly {value:.6g}; the forecast repeats it and knows no uncertainty"
    same, never = Interval(value, value, value, level), Interval(nan, nan, nan, level)
    return Forecast("flat", message, level, ahead, line, line, line, line, line, same, never, Interval(0.0, 0.0, 0.0, level))


@dataclass(frozen=True, slots=True)
class Mixture:
    """Weighted curves, plateau + drop g(t), of every law that the evidence leaves."""

    laws: tuple[tuple[Law, tuple[Float, ...]], ...]  # each law with the shape values of its curves
    weight_Q: Float  # posterior weight of each curve, sums to 1
    plateau_Q: Float
    drop_Q: Float  # start minus plateau
    plateau_variance_Q: Float
    drop_variance_Q: Float
    covariance_Q: Float  # of plateau and drop

    def decay(self, time_S: Float) -> Float:
        """Return g of every curve at every time, shape (Q, S)."""
        parts = [law.decay(time_S[None, :], *(shape[:, None] for shape in shapes)) for law, shapes in self.laws]
        return np.concatenate([np.atleast_2d(part) for part in parts])


def _mixture(fits: list[LawFit], observations: Observations) -> Mixture:
    """The posterior of every law as a list of weighted curves."""
    score = np.array([-found.aicc / 2 + np.log(PRIOR_ODDS[found.law.name]) for found in fits])
    score = np.where(np.isfinite(score), score, -np.inf)
    if not np.isfinite(score).any():
        score[0] = 0.0
    share = np.exp(score - score.max())
    share /= share.sum()
    # Where the curve is now, and how far from there the plateau may lie.
    value = observations.value_M
    recent = float(value[-max(3, value.size // 5) :].mean())
    covered = float(np.ptp(fits[0].curve_M)) if fits[0].law.shapes else 0.0
    width = PRIOR_WIDTH * max(covered, float(value.std()), 1e-12)
    kept = [(found, float(weight)) for found, weight in zip(fits, share, strict=True) if weight > 1e-3]
    parts = [_law_curves(found, recent, width) for found, _ in kept]
    weight = np.concatenate([own * columns[0] for (_, own), (_, columns) in zip(kept, parts, strict=True)])
    rest = (np.concatenate(rows) for rows in zip(*(columns[1:] for _, columns in parts), strict=True))
    laws = tuple((found.law, shapes) for (found, _), (shapes, _) in zip(kept, parts, strict=True))
    return Mixture(laws, weight / weight.sum(), *rest)


def _law_curves(found: LawFit, recent: float, width: float) -> tuple[tuple[Float, ...], tuple[Float, ...]]:
    """Shape values of one law's curves; and their weights (sum 1), plateaus, drops, and (co)variances of these two."""
    noise = found.noise
    inflation = float((noise.widening(0.9).max() / ndtri(0.95)) ** 2)
    if found.products is None:
        one, zero = np.ones(1), np.zeros(1)
        return (), (one, one * found.values["plateau"], zero, one * float(noise.errors[0]) ** 2 * inflation, zero, zero)
    products = found.products.with_prior(recent - found.centre, noise.variance / width**2)
    best = profile.minimum(products, found.whole, found.point)
    least = float(profile.surface(found.law, products, *found.whole.at(best)).error_Q[0])
    limit, reach = least * (1 + 12.0 / noise.freedom), float(np.sqrt(12.0 * noise.variance))
    area = profile.region(products, found.whole, best, limit, reach, counts=(14, 10))
    surface = area.surface
    log_weight = -0.5 * noise.freedom * (np.log(surface.error_Q) - np.log(least)) - 0.5 * np.log(np.maximum(surface.determinant_Q, 1e-300))
    weight = np.where(surface.determinant_Q > 0, np.exp(log_weight - log_weight.max()), 0.0)
    keep = weight > 3e-3 * weight.max()
    unit = noise.variance * inflation
    plateau, plateau_variance, with_start = surface.plateau_Q[keep], surface.plateau_variance_Q[keep], surface.covariance_Q[keep]
    return tuple(shape[keep] for shape in area.shapes), (
        weight[keep] / weight[keep].sum(),
        plateau + found.centre,
        surface.start_Q[keep] - plateau,
        unit * plateau_variance,
        unit * (plateau_variance + surface.start_variance_Q[keep] - 2 * with_start),
        unit * (with_start - plateau_variance),
    )


def _memory(lead: LawFit, mixture: Mixture, observations: Observations, time_S: Float) -> tuple[Float, Float]:
    """How the rows seen bear on the level ahead beyond the laws, and the variance of what no law accounts for.

    The truth leaves every law in time: the difference is a random walk. Its deviation over one span of the log is
    `DRIFT_COVERED` times the range covered plus `DRIFT_NOISE` times the scatter of a row, times a factor from
    `DRIFT_FACTORS` that the residuals weigh. The slow part of the noise joins in. Returns the regression weights of the
    residuals at each time ahead, shape (S, M), and the variance of the walk that they leave.
    """
    time, span = observations.time_M, observations.span
    curve = mixture.weight_Q @ (mixture.plateau_Q[:, None] + mixture.drop_Q[:, None] * mixture.decay(time))
    residual = observations.value_M - curve
    shape, variance = lead.noise.best_shape, lead.noise.variance
    scatter = np.sqrt(variance * observations.rows_per_block)
    step = DRIFT_COVERED * float(np.ptp(curve)) + DRIFT_NOISE * scatter
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


def _moments(mixture: Mixture, observations: Observations, time_S: Float, regression_SM: Float) -> tuple[Float, Float]:
    """Means and variances (Q, S) of all curves, corrected by the rows seen (universal kriging).

    What the residuals say about a time ahead is said of plateau and drop too: both enter with what the regression leaves.
    """
    one = 1 - regression_SM.sum(1)
    decay = mixture.decay(time_S) - mixture.decay(observations.time_M) @ regression_SM.T
    mean = mixture.plateau_Q[:, None] * one + mixture.drop_Q[:, None] * decay + regression_SM @ observations.value_M
    variance = (
        mixture.plateau_variance_Q[:, None] * one**2
        + decay**2 * mixture.drop_variance_Q[:, None]
        + 2 * one * decay * mixture.covariance_Q[:, None]
    )
    return mean, np.maximum(variance, 0.0)


def _noise_variance(found: LawFit, observations: Observations, time_S: Float, rows: int) -> Float:
    """Variance about the mean of `rows` rows at each time: white noise, and slow noise as far as it is not yet known."""
    shape, variance = found.noise.best_shape, found.noise.variance
    gap = observations.gap / observations.rows_per_block
    distance = np.maximum(time_S - observations.time_M[-1], 0.0)
    fresh = 1 - shape.after(2 * distance) if shape.share > 0 else np.zeros(time_S.size)
    lag = np.arange(1.0, rows)
    together = (1 + 2 * float(((1 - lag / rows) * shape.after(lag * gap)).sum())) / rows if shape.share > 0 else 1.0
    slow = variance * shape.share * fresh * together
    # The groups alone scatter one row by at least this much.
    floor = observations.sampling_variance if np.isfinite(observations.sampling_variance) else 0.0
    return np.asarray(slow + max(variance * (1 - shape.share) * observations.rows_per_block, floor) / rows)


def _band(mixture: Mixture, mean_QS: Float, variance_QS: Float, level: float) -> tuple[Float, Float]:
    """Equal-tailed band of the mixture at each time."""
    deviation = np.sqrt(variance_QS)
    low, high = (mixture_quantile(mixture.weight_Q, mean_QS, deviation, tail) for tail in ((1 - level) / 2, (1 + level) / 2))
    return low, high


def _interval(mixture: Mixture, value_Q: Float, variance_Q: Float, level: float) -> Interval:
    """Mean and equal-tailed interval of one number of each curve."""
    low, high = _band(mixture, value_Q[:, None], variance_Q[:, None], level)
    return Interval(float(mixture.weight_Q @ value_Q), float(low[0]), float(high[0]), level)


def mixture_quantile(weight_Q: Float, mean_QS: Float, deviation_QS: Float, probability: float) -> Float:
    """Quantile of a mixture of normals, by bisection."""
    deviation_QS = np.maximum(deviation_QS, 1e-13 * np.abs(mean_QS).max(0) + 1e-300)
    reach = 8 * deviation_QS
    low, high = (mean_QS - reach).min(0), (mean_QS + reach).max(0)
    for _ in range(30):
        middle = (low + high) / 2
        below = weight_Q @ ndtr((middle - mean_QS) / deviation_QS) < probability
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.asarray((low + high) / 2)


def _gain(mixture: Mixture, now: float, then: float, level: float) -> Interval:
    """Gain of the mean between two times."""
    decay = mixture.decay(np.array([now, then]))
    step = decay[:, 1] - decay[:, 0]
    return _interval(mixture, mixture.drop_Q * step, step**2 * np.maximum(mixture.drop_variance_Q, 0.0), level)


def _time_to_95(mixture: Mixture, observations: Observations, level: float) -> Interval:
    """Time until 95 % of the way from start to plateau is done, in the caller's clock; infinite where out of sight."""
    moving = mixture.decay(np.zeros(1))[:, 0] > 0  # a constant has no decay, every other law begins with one
    if not moving.any():
        return Interval(float("nan"), float("nan"), float("nan"), level)
    times = observations.span * np.geomspace(1e-3, 30.0, 240)
    arrival, weight = _arrival(mixture.decay(times)[moving], times), mixture.weight_Q[moving]
    order = np.argsort(arrival)
    reached = np.searchsorted(np.cumsum(weight[order]) / weight.sum(), ((1 - level) / 2, 0.5, (1 + level) / 2))
    low, middle, high = (float(v) + observations.origin for v in arrival[order][np.minimum(reached, arrival.size - 1)])
    return Interval(middle, low, high, level)


def _arrival(decay_QS: Float, time_S: Float) -> Float:
    """First time at which each decay is down to 5 %, between grid points by interpolation; infinite if never."""
    done = decay_QS <= 0.05
    i = done.argmax(1)
    row, before = np.arange(i.size), np.maximum(i - 1, 0)
    # Interpolated in the logarithm, in which an exponential is straight.
    left, right = (np.log(np.maximum(decay_QS[row, j], 1e-12)) for j in (before, i))
    share = np.clip((left - np.log(0.05)) / np.where(left > right, left - right, 1.0), 0.0, 1.0)
    return np.where(done.any(1), time_S[before] + share * (time_S[i] - time_S[before]), np.inf)
