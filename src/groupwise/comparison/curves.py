"""One run's curve and what runs are compared by: late mean, time to a held level.

Each has its step noise.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.polynomial.legendre import legvander
from numpy.typing import ArrayLike

from groupwise.arrays import Flags, Float, mean_around
from groupwise.comparison.results import Measured, missing
from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.forecasting.fit import fit
from groupwise.forecasting.noise import NoisePosterior, noise_posterior
from groupwise.intervals import Interval
from groupwise.plain import frozen

FEWEST_LATE = 6
FEWEST_ROWS = 12
# of the rows, at the end, over which a level that counts as held is exceeded on average
HELD_SHARE = 0.1
TAKEN = 3  # degree of the polynomials that a smooth curve is about as free as
_DRAWS = 200
_SIGMA = 0.6826894921370859  # coverage of one standard error


@frozen
class Curve:
    """One metric of one run, smoothed."""

    step_T: Float  # steps, strictly increasing
    value_T: Float  # the metric
    smooth_T: Float  # what it moves around: the fitted law, or a running line where no law holds

    @property
    def residual(self) -> Float:
        """What is left of the values, shape (T,)."""
        return self.value_T - self.smooth_T


def curve(
    step_T: ArrayLike,
    value_T: ArrayLike,
    *,
    variance_T: ArrayLike | None = None,
    window: float = 1.0,
    smoothing: int | None = None,
) -> Curve:
    """Fit a run."""
    step, value = np.asarray(step_T, dtype=float), np.asarray(value_T, dtype=float)
    if step.size < FEWEST_ROWS:
        raise InsufficientDataError(
            f"a comparison needs at least {FEWEST_ROWS} rows of the metric in each run; got "
            f"{step.size}"
        )
    if not (np.isfinite(value).all() and np.all(np.diff(step) > 0)):
        raise InvalidArgumentError("a comparison needs finite values at steps that increase")
    variances = None if variance_T is None else np.asarray(variance_T, dtype=float).tobytes()
    return Curve(
        step, value, _smoothed(step.tobytes(), value.tobytes(), variances, window, smoothing)
    )


@lru_cache(maxsize=256)  # a sweep compares the same runs by each of its settings
def _smoothed(
    steps: bytes, values: bytes, variances: bytes | None, window: float, smoothing: int | None
) -> Float:
    """Return what a run moves around; arrays are told apart by their bytes."""
    step, value = np.frombuffer(steps), np.frombuffer(values)
    fitted = fit(
        step,
        value,
        variance_T=None if variances is None else np.frombuffer(variances),
        window=window,
        smoothing=smoothing,
    )
    whole = fitted.status != "non_stationary" and fitted.curve_T.size == step.size
    return fitted.curve_T if whole else running_line(step, value)


def running_line(step_T: Float, value_T: Float) -> Float:
    """Return straight lines fitted to a tenth of the rows on either side, at least four."""
    half = max(4, step_T.size // 10)
    smooth = np.empty(step_T.size)
    for t in range(step_T.size):
        near = slice(max(0, t - half), t + half + 1)
        x = step_T[near] - step_T[t]
        centred = x - x.mean()
        slope = float(centred @ value_T[near]) / float(centred @ centred)
        smooth[t] = value_T[near].mean() - slope * x.mean()
    return smooth


def local_spread(residual_T: Float) -> Float:
    """Return the root mean square of residuals over a third of the rows around each.

    Never below a fifth of the whole.
    """
    local = np.sqrt(mean_around(residual_T**2, max(8, residual_T.size // 6)))
    return np.maximum(local, 0.2 * math.sqrt(float((residual_T**2).mean())))


def within(interval: Interval, bounds: tuple[float, float]) -> Interval:
    """Cut an interval to the range that its quantity cannot leave.

    A truth that lies in the range is covered by the cut interval exactly where the whole one covers
    it, so neither the coverage nor what is inside or outside changes; an interval that says less
    than the range itself becomes the range.
    """
    low, high = bounds
    return replace(
        interval, low=min(max(interval.low, low), high), high=max(min(interval.high, high), low)
    )


def late_level(run: Curve, first: float, last: float, *, level: float = 0.95) -> Measured:
    """Measure the mean over a window of steps.

    The autocorrelation of the noise is that of the whole run's residuals, averaged over as
    `curves.noise` does; its size is that of the rows in and around the window.
    """
    inside = (run.step_T >= first) & (run.step_T <= last)
    step, value = run.step_T[inside], run.value_T[inside]
    if step.size < FEWEST_LATE:
        return missing(f"fewer than {FEWEST_LATE} rows lie in the late window", level=level)
    mean = float(value.mean())
    spread = local_spread(run.residual)
    if spread.max() <= 1e-12 * max(1.0, abs(mean)):
        return Measured(Interval(mean, mean, mean, level), 0.0)
    noise = _noise(run.step_T, run.residual / spread, _window_columns(run.step_T, inside))
    scale = float(noise.errors[0]) * math.sqrt(float((spread[inside] ** 2).mean()))
    half = scale * float(noise.widening(level)[0])
    return Measured(
        Interval(mean, mean - half, mean + half, level), scale * float(noise.widening(_SIGMA)[0])
    )


def _window_columns(step_T: Float, inside_T: Flags) -> Float:
    """Mean and slope in the window; outside it polynomials about as free as the curve."""
    centred = np.where(inside_T, step_T - step_T[inside_T].mean(), 0.0) / np.ptp(step_T[inside_T])
    outside = ~inside_T
    columns = [inside_T.astype(float), centred]
    if outside.sum() > 2 * (TAKEN + 1):
        place = np.sqrt((step_T - step_T[0]) / np.ptp(step_T))
        columns.extend((legvander(2 * place - 1, TAKEN) * outside[:, None]).T)
    elif outside.any():
        columns.append(outside.astype(float))
    return np.column_stack(columns)


def _noise(step_T: Float, residual_T: Float, columns_TP: Float) -> NoisePosterior:
    """Weigh the shapes of the noise of some residuals."""
    gap = float(np.median(np.diff(step_T)))
    return noise_posterior(step_T, np.ones(step_T.size), columns_TP, residual_T, gap=gap)


def held_rows(rows: int) -> int:
    """Return how many rows at the end a level has to be held over."""
    return min(rows, max(FEWEST_LATE, math.ceil(HELD_SHARE * rows)))


def passing(step_T: Float, value_NT: Float, reach: float) -> Float:
    r"""Return the step from which values hold a level to the end, by least squares.

    That is $\arg\min_t \sum_{s \le t} (y_s - L)$.

    Where the isotonic regression of the values crosses the level; halfway between two rows.
    Infinite where the level is not held: fewer than `held_rows` come after the crossing, or the
    mean of the last so many is below the level. One last row above it is no crossing.

    Source: Robertson, Wright and Dykstra (1988), Order Restricted Statistical Inference, chapter 1,
    for isotonic regression.
    """
    sums = np.cumsum(value_NT - reach, axis=1)
    sums = np.concatenate([np.zeros((len(sums), 1)), sums], axis=1)
    below = sums.argmin(axis=1)
    between = np.concatenate([step_T[:1], (step_T[1:] + step_T[:-1]) / 2, [math.inf]])
    last = held_rows(step_T.size)
    held = (below <= step_T.size - last) & (value_NT[:, -last:].mean(axis=1) >= reach)
    return np.where(held, between[below], math.inf)


def time_to(
    run: Curve,
    reach: float,
    rng: np.random.Generator,
    *,
    last: float = math.inf,
    level: float = 0.95,
) -> Measured:
    """Measure the step from which the metric holds a level.

    Its step noise is that of curves simulated around the smooth one.
    """
    inside = run.step_T <= last
    step, value, smooth = run.step_T[inside], run.value_T[inside], run.smooth_T[inside]
    passed = float(passing(step, value[None], reach)[0])
    residual = value - smooth
    if np.ptp(residual) < 1e-12 * max(1.0, np.abs(value).max()):
        return Measured(Interval(passed, passed, passed, level), 0.0)
    noise = _noise(step, residual, np.ones((step.size, 1)))
    drawn = smooth + math.sqrt(noise.variance) * _simulated(noise, step, rng)
    steps = passing(step, drawn, reach)
    low, high = (
        float(end)
        for end in np.quantile(
            steps, [0.5 - level / 2, 0.5 + level / 2], method="closest_observation"
        )
    )
    finite = steps[np.isfinite(steps)]
    error = float(finite.std(ddof=1)) if finite.size > 1 else math.nan
    if not math.isfinite(error):
        error = float(np.median(np.diff(step)))
    return Measured(Interval(passed, min(low, passed), max(high, passed), level), error)


def _simulated(noise: NoisePosterior, step_T: Float, rng: np.random.Generator) -> Float:
    """Noise of the heaviest shape, variance 1, rows a gap apart."""
    shape = noise.best_shape
    white = rng.standard_normal((_DRAWS, step_T.size)) * math.sqrt(1 - shape.share)
    if shape.share == 0:
        return np.asarray(white)
    shocks = rng.standard_normal((_DRAWS, step_T.size)) * math.sqrt(1 - shape.correlation**2)
    shocks[:, 0] = rng.standard_normal(_DRAWS)
    for row in range(1, step_T.size):  # scipy.signal, which has it too, takes a second to load
        shocks[:, row] += shape.correlation * shocks[:, row - 1]
    return white + math.sqrt(shape.share) * shocks
