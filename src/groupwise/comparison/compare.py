r"""Groups of runs against the first of them: the late level, the speed of their curves, each
contrast by the test that the seeds allow, with one false-alarm rate for all.

Every contrast with a p-value shares the rate by Holm's method: whatever is called different when
nothing differs is called so in at most 1 - level of all comparisons. Intervals are computed on the
whole line and cut to the range of the metric at the end, which leaves their coverage as it is
(`within`). It opens no run and forms no groups.

Two runs a group: Welch's t. One run in a group: the spread of seeds is taken from the groups that
have more. One run everywhere: step noise alone, and what the seeds would have to be for the
difference to be real. Where a level is not held, none. The variance of a group is never taken below
what its runs' step noise says. What runs are and where a group comes from is not known here.

Run i of group g measures $x_{gi} = \mu_g + b_{gi} + e_{gi}$, $b \sim N(0, \tau^2)$ the seed, $e
\sim N(0, s_{gi}^2)$ the steps. With weights $w = 1/(\tau^2 + s^2)$ the generalised $Q(\tau^2) =
\sum w (x - \hat\mu_g)^2$ is chi-square with $\sum(n_g - 1)$ degrees of freedom at the true $\tau^2$
and falls with it, which gives estimate and interval. Power is that of the two-sided t test, from
the noncentral t, the variance taken as known; that it is estimated is said beside.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.polynomial.legendre import legvander
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import chdtri, nctdtr, ndtr, stdtr

from groupwise.arrays import Ends, Flags, Float, floats, mean_around, mean_of, median
from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.forecasting.fit import fit
from groupwise.forecasting.observations import NoisePosterior, noise_posterior
from groupwise.intervals import Interval, student_quantile, within
from groupwise.plain import Plain, frozen

Quantity = Literal["level", "speed"]
ContrastStatus = Literal[
    "different", "not_separable", "seed_noise_unknown", "within_step_noise", "unavailable"
]
ContrastTest = Literal["welch", "pooled_t", "step_noise_alone", "none"]


def nothing(level: float = 0.95) -> Interval:
    """The interval of what is not known at all."""
    return Interval(math.nan, -math.inf, math.inf, level)


@frozen
class Measured(Plain):
    """One quantity of one run."""

    KEYS = "*interval step_error problem"
    # the value, with what the noise of its steps leaves open; a time is infinite where the level is
    # not held by the end
    interval: Interval
    step_error: float  # standard error by the noise of the steps alone
    problem: str = ""  # why there is no value, or none to be compared; "" where there is

    @property
    def value(self) -> float:
        """The estimate."""
        return self.interval.value

    @property
    def usable(self) -> bool:
        """Whether there is a value to be compared, be it infinite."""
        return not self.problem and not math.isnan(self.value)


MeasuredRuns = Sequence[Measured]


def missing(problem: str, *, level: float = 0.95) -> Measured:
    """Return a quantity that could not be measured, and why."""
    return Measured(nothing(level), math.nan, problem)


@frozen
class SeedNoise(Plain):
    """How much runs of one setting differ by their seeds, beyond the noise of their steps."""

    KEYS = "deviation freedom step_deviation"
    deviation: Interval  # standard deviation of the runs' true values, with its interval
    freedom: int  # degrees of freedom that it rests on; 0 where every group has one run
    # variance of the measured values within the groups, seeds and steps together; nan without
    # freedom
    between: float
    step: float  # mean variance of a run's value by its steps alone

    @property
    def step_deviation(self) -> float:
        """Standard deviation of a run's value by its steps alone."""
        return math.sqrt(self.step)


@frozen
class Contrast(Plain):
    """One quantity of one group of runs against that of another."""

    quantity: Quantity  # level, or speed (a time: less is faster)
    status: ContrastStatus  # what can be said
    message: str  # why it is unavailable, or how many runs hold the level; else ""
    # second minus first, with its interval; over step noise alone where seeds are unknown
    difference: Interval
    method: ContrastTest = "none"  # how the interval was made
    runs: tuple[int, int] = (0, 0)  # how many of each group took part
    # runs a group that would find this difference 8 times in 10; None: unknown
    seeds_needed: int | None = None
    p_value: float = math.nan  # two-sided, of no difference; nan where seed noise is unknown
    adjusted_p: float = math.nan  # after Holm, over all contrasts of the comparison
    freedom: float = math.nan  # degrees of freedom; nan without
    step_error: float = math.nan  # standard error of the difference by step noise alone
    # difference that so many runs would find 8 times in 10, beside the other contrasts; nan where
    # the metric cannot differ by so much
    minimum_detectable: float = math.nan
    largest_seed_deviation: float = (
        math.nan
    )  # with unknown seed noise, the spread of seeds up to which the difference would be real


@frozen
class Pairing:
    """One group held against the first."""

    first: int  # index of the group compared with
    second: int  # index of the group
    contrasts: tuple[Contrast, ...]  # level and speed, in this order


@frozen
class Comparison:
    """Groups of runs compared, each with the first."""

    pairings: tuple[Pairing, ...]  # one a group but the first
    measured: Mapping[Quantity, Sequence[MeasuredRuns]]  # for each group one value a run
    seed_noise: Mapping[Quantity, SeedNoise]  # quantity -> spread of the seeds, from all groups
    late_from: float  # first step of the late window
    late_to: float  # last step that all runs have, up to which a level has to be held
    reach: float  # the level that speed is the time to; nan where there is none
    # coverage of the intervals; 1 minus it is the false-alarm rate of all contrasts together
    level: float
    bounds: tuple[
        float, float
    ]  # the range of the metric, which no interval leaves; infinite where it is not known


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
    step, value = floats(step_T), floats(value_T)
    if step.size < FEWEST_ROWS:
        raise InsufficientDataError(
            f"a comparison needs at least {FEWEST_ROWS} rows of the metric in each run; got "
            f"{step.size}"
        )
    if not (np.isfinite(value).all() and np.all(np.diff(step) > 0)):
        raise InvalidArgumentError("a comparison needs finite values at increasing steps")
    variances = None if variance_T is None else floats(variance_T).tobytes()
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
        slope = (centred @ value_T[near]) / (centred @ centred)
        smooth[t] = value_T[near].mean() - slope * x.mean()
    return smooth


def local_spread(residual_T: Float) -> Float:
    """Return the root mean square of residuals over a third of the rows around each.

    Never below a fifth of the whole.
    """
    local = np.sqrt(mean_around(residual_T**2, max(8, residual_T.size // 6)))
    return np.maximum(local, 0.2 * math.sqrt((residual_T**2).mean()))


def late_level(run: Curve, first: float, last: float, *, level: float = 0.95) -> Measured:
    """Measure the mean over a window of steps.

    The autocorrelation of the noise is that of the whole run's residuals, averaged over as
    `noise` does; its size is that of the rows in and around the window.
    """
    inside = (run.step_T >= first) & (run.step_T <= last)
    step, value = run.step_T[inside], run.value_T[inside]
    if step.size < FEWEST_LATE:
        return missing(f"fewer than {FEWEST_LATE} rows lie in the late window", level=level)
    mean = mean_of(value)
    spread = local_spread(run.residual)
    if spread.max() <= 1e-12 * max(1.0, abs(mean)):
        return Measured(Interval(mean, mean, mean, level), 0.0)
    noise = _noise(run.step_T, run.residual / spread, _window_columns(run.step_T, inside))
    scale = float(noise.errors[0]) * math.sqrt((spread[inside] ** 2).mean())
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
    flat, gap = np.ones(step_T.size), median(np.diff(step_T))
    return noise_posterior(step_T, flat, columns_TP, residual_T, gap=gap)


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
    ends = [0.5 - level / 2, 0.5 + level / 2]
    low, high = np.quantile(steps, ends, method="closest_observation").tolist()
    finite = steps[np.isfinite(steps)]
    error = float(finite.std(ddof=1)) if finite.size > 1 else median(np.diff(step))
    return Measured(Interval(passed, min(low, passed), max(high, passed), level), error)


def _simulated(noise: NoisePosterior, step_T: Float, rng: np.random.Generator) -> Float:
    """Noise of the heaviest shape, variance 1, rows a gap apart."""
    shape = noise.best_shape
    white = rng.standard_normal((_DRAWS, step_T.size)) * math.sqrt(1 - shape.share)
    if shape.share == 0:
        return white
    shocks = rng.standard_normal((_DRAWS, step_T.size)) * math.sqrt(1 - shape.correlation**2)
    shocks[:, 0] = rng.standard_normal(_DRAWS)
    for row in range(1, step_T.size):  # scipy.signal, which has it too, takes a second to load
        shocks[:, row] += shape.correlation * shocks[:, row - 1]
    return white + math.sqrt(shape.share) * shocks


POWER = 0.8
MOST_SEEDS = 2**14


def seed_noise(groups: Sequence[MeasuredRuns], *, level: float = 0.95) -> SeedNoise:
    r"""Estimate the spread of seeds, common to all groups.

    Point: $Q(\hat\tau^2) = \nu$ (Paule and Mandel); ends: Q at the quantiles of chi-square with
    $\nu$ degrees of freedom.

    Source: Viechtbauer (2007), Statistics in Medicine 26, 37-52, with a mean for each group.
    """
    finite = [_finite(group) for group in groups]
    every = np.concatenate([variance for _, variance in finite]) if finite else np.empty(0)
    step = mean_of(every) if every.size else math.nan
    several = [group for group in finite if len(group[0]) > 1]
    values, variances = [value for value, _ in several], [variance for _, variance in several]
    freedom = sum(len(value) - 1 for value in values)
    if freedom == 0:
        return SeedNoise(Interval(math.nan, 0.0, math.inf, level), 0, math.nan, step)
    squares = sum(float(((value - value.mean()) ** 2).sum()) for value in values)
    tail = 0.5 - level / 2
    targets = (freedom, chdtri(freedom, tail), chdtri(freedom, 1 - tail))
    point, low, high = (_spread(target, values, variances, squares) for target in targets)
    return SeedNoise(Interval(point, low, high, level), freedom, squares / freedom, step)


def _finite(group: MeasuredRuns) -> tuple[Float, Float]:
    """Values and step variances of the runs that have a finite value."""
    runs = [run for run in _usable(group) if math.isfinite(run.value)]
    return _values(runs), np.array([run.step_error**2 for run in runs])


def _spread(
    target: float, values: Sequence[Float], variances: Sequence[Float], squares: float
) -> float:
    """The deviation at which Q equals a target, between those of least and most step noise."""
    least, most = min(v.min() for v in variances), max(v.max() for v in variances)
    low, high = (
        max(squares / target - most, 0.0) * (1 - 1e-9),
        (squares / target - least) * (1 + 1e-9),
    )
    if high <= 0 or _q(0.0, values, variances) <= target:
        return 0.0
    return math.sqrt(
        brentq(
            lambda tau2: _q(tau2, values, variances) - target,
            low,
            high,
            xtol=1e-14 * high,
            rtol=1e-14,
        )
    )


def _q(tau2: float, values: Sequence[Float], variances: Sequence[Float]) -> float:
    """The generalised Q at a variance between runs."""
    total = 0.0
    for value, variance in zip(values, variances, strict=True):
        weight = 1 / np.maximum(variance + tau2, 1e-300)
        total += (weight * (value - (weight * value).sum() / weight.sum()) ** 2).sum()
    return total


def power(noncentrality: float, freedom: float, *, level: float = 0.95) -> float:
    """Return the chance that a two-sided t test finds a difference of so many standard errors."""
    point = student_quantile(level, freedom)
    if math.isinf(freedom):
        return float(ndtr(noncentrality - point) + ndtr(-noncentrality - point))
    if noncentrality > 35:  # the series of the noncentral t gives out far beyond any use
        return float(ndtr((noncentrality - point) / math.sqrt(1 + point**2 / (2 * freedom))))
    upper = 1 - float(nctdtr(freedom, noncentrality, point))
    lower = float(nctdtr(freedom, noncentrality, -point))
    return upper + (lower if math.isfinite(lower) else 0.0)


def minimum_detectable(error: float, freedom: float, *, level: float = 0.95) -> float:
    """Return the difference that would be found 8 times in 10; nan without an error."""
    if not error > 0:
        return math.nan
    high = 4.0
    while power(high, freedom, level=level) < POWER:
        high *= 2
    return error * float(
        brentq(lambda size: power(size, freedom, level=level) - POWER, 0.0, high, xtol=1e-13)
    )


def seeds_needed(difference: float, variance: float, *, level: float = 0.95) -> int | None:
    r"""Return how many runs a group would find a difference 8 times in 10.

    None where no number up to `MOST_SEEDS` would.

    $n$ runs a group have standard error $\sqrt{v/n}$ and $2(n-1)$ degrees of freedom.
    """
    if difference == 0:
        return None

    def enough(runs: int) -> bool:
        """Whether so many runs a group suffice."""
        if variance == 0:
            return True
        score = abs(difference) / math.sqrt(variance / runs)
        return power(score, 2 * (runs - 1), level=level) >= POWER

    runs = bisect_left(range(MOST_SEEDS + 1), x=True, lo=2, key=enough)
    return runs if runs <= MOST_SEEDS else None


@frozen
class Setup:
    """What a contrast is judged by."""

    level: float  # coverage of the interval
    seeds: SeedNoise  # spread of the seeds from all groups
    # contrasts that share the false-alarm rate: what would be found has to pass the strictest of
    # Holm's thresholds
    tests: int = 1
    # the most that the quantity can differ by, which no interval exceeds; infinite where that is
    # not known
    span: float = math.inf

    @property
    def strict_level(self) -> float:
        """The level that a p-value has to pass before any other contrast did."""
        return 1 - (1 - self.level) / max(self.tests, 1)


@frozen
class Difference:
    """A difference of two groups before it is judged."""

    method: ContrastTest
    value: float
    error: float
    freedom: float
    variance: float  # of which 1/n remains with n runs a group

    @property
    def p_value(self) -> float:
        """The two-sided p-value, 1 where the runs are equal to the last digit.

        It does not say how far other runs would scatter.
        """
        if not self.error > 0:
            return 1.0
        return 2 * float(stdtr(self.freedom, -abs(self.value) / self.error))

    def interval(self, level: float) -> Interval:
        """The interval of the t test; without limit where runs are equal to the last digit."""
        half = math.inf
        if self.error > 0:
            half = student_quantile(level, self.freedom) * self.error
        return Interval(self.value, self.value - half, self.value + half, level)


def difference(a: MeasuredRuns, b: MeasuredRuns, setup: Setup) -> Difference | None:
    """The difference by the first method that applies; None where nothing tells its error."""
    x, y = _values(a), _values(b)
    value = float(y.mean() - x.mean())
    if len(x) > 1 and len(y) > 1:
        parts = [(max(float(v.var(ddof=1)), _step(runs)), len(v)) for v, runs in ((x, a), (y, b))]
        shares = [variance / count for variance, count in parts]
        below = sum(share**2 / (count - 1) for share, (_, count) in zip(shares, parts, strict=True))
        freedom = sum(shares) ** 2 / below if below > 0 else len(x) + len(y) - 2.0
        return Difference(
            "welch", value, math.sqrt(sum(shares)), freedom, parts[0][0] + parts[1][0]
        )
    if setup.seeds.freedom > 0:
        variance = max(setup.seeds.between, _step([*a, *b]))
        error = math.sqrt(variance * (1 / len(x) + 1 / len(y)))
        return Difference("pooled_t", value, error, float(setup.seeds.freedom), 2 * variance)
    return None


def _values(runs: MeasuredRuns) -> Float:
    """The value of each run."""
    return np.array([run.value for run in runs])


def _step(runs: MeasuredRuns) -> float:
    """Mean variance of a run's value by step noise."""
    return float(np.mean([run.step_error**2 for run in runs]))


def contrast(
    quantity: Quantity, first: MeasuredRuns, second: MeasuredRuns, setup: Setup
) -> Contrast:
    """Compare a quantity of two groups: second minus first."""
    a, b = _usable(first), _usable(second)
    held, problem = [np.isfinite(_values(runs)).sum() for runs in (a, b)], ""
    if not a or not b:
        problem = next(
            (run.problem for run in (*first, *second) if run.problem), "a group has no values"
        )
    elif sum(held) < len(a) + len(b):
        problem = f"{held[0]} of {len(a)} and {held[1]} of {len(b)} runs reach and keep the level"
    if problem:
        return Contrast(
            quantity, "unavailable", problem, nothing(setup.level), runs=(len(a), len(b))
        )
    estimate, level = difference(a, b, setup), setup.strict_level
    if estimate:
        tested = Contrast(
            quantity,
            "not_separable",
            "",
            estimate.interval(setup.level),
            p_value=estimate.p_value,
            adjusted_p=estimate.p_value,
            method=estimate.method,
            freedom=estimate.freedom,
            runs=(len(a), len(b)),
            minimum_detectable=minimum_detectable(estimate.error, estimate.freedom, level=level),
            seeds_needed=seeds_needed(estimate.value, estimate.variance, level=level),
        )
    else:
        tested = _step_noise_alone(quantity, a[0], b[0], setup)
    possible = not tested.minimum_detectable > setup.span
    return replace(
        tested,
        difference=within(tested.difference, (-setup.span, setup.span)),
        step_error=math.sqrt(_step(a) / len(a) + _step(b) / len(b)),
        minimum_detectable=tested.minimum_detectable if possible else math.nan,
    )


def _usable(runs: MeasuredRuns) -> list[Measured]:
    """The runs that have the quantity."""
    return [run for run in runs if run.usable]


def _step_noise_alone(quantity: Quantity, a: Measured, b: Measured, setup: Setup) -> Contrast:
    r"""One run against one: what the noise of their steps leaves open.

    Ends as those of two intervals combined: $L = d - \sqrt{(\hat b - b_L)^2 + (a_U - \hat a)^2}$,
    and so above. The difference is real where seeds differ by less than $\tau = \sqrt{(d^2/z^2 -
    s^2)/2}$.

    Source: Donner and Zou (2012), Statistical Methods in Medical Research 21, 347-359, for the
    ends; the spread is derived here.
    """
    first, second, step = a.interval, b.interval, math.hypot(a.step_error, b.step_error)
    value = second.value - first.value
    low = value - math.hypot(second.value - second.low, first.high - first.value)
    high = value + math.hypot(second.high - second.value, first.value - first.low)
    half = value - low if value > 0 else high - value
    beyond = not low <= 0 <= high
    # The half-width stands for quantile times step error, its widening for unknown noise included.
    quantile = half / step if step > 0 else math.inf
    largest = (
        math.sqrt(max((value / quantile) ** 2 - step**2, 0.0) / 2)
        if beyond and 0 < quantile < math.inf
        else math.nan
    )
    return Contrast(
        quantity,
        "seed_noise_unknown" if beyond else "within_step_noise",
        "",
        Interval(value, low, high, setup.level),
        method="step_noise_alone",
        runs=(1, 1),
        minimum_detectable=minimum_detectable(step, math.inf, level=setup.level),
        largest_seed_deviation=largest,
    )


Curves = Sequence[Sequence[Curve]]
_EARLY = 0.1
_MOVES = 5.0  # standard errors that a metric has to move by for a time to mean something


@frozen
class Question:
    """What is asked of the groups."""

    late: float = 0.25  # share of the common steps, at their end, whose mean is the level
    reach: float | None = None  # level that speed is the time to; None: half of the way
    level: float = 0.95  # coverage of the intervals
    # whether the metric is to rise, as a reward is; then there is no time to a level that it falls
    # to
    rises: bool = False
    bounds: Ends = (
        -math.inf,
        math.inf,
    )  # the range of the metric; infinite where it is not known

    def __post_init__(self) -> None:
        """Check the domains."""
        for name in ("late", "level"):
            if not 0 < getattr(self, name) < 1:
                raise InvalidArgumentError(
                    f"{name} is a share between 0 and 1; got {getattr(self, name):g}"
                )
        if self.reach is not None and not math.isfinite(self.reach):
            raise InvalidArgumentError(f"reach has to be a level of the metric; got {self.reach:g}")


def group_comparison(groups: Curves, question: Question, rng: np.random.Generator) -> Comparison:
    """Compare every group with the first."""
    start, stop = _common_steps(groups)
    late_from = stop - question.late * (stop - start)
    level = [
        [late_level(run, late_from, stop, level=question.level) for run in group]
        for group in groups
    ]
    reach, speed = _speed(groups, level, start, stop, question, rng)
    measured: dict[Quantity, list[list[Measured]]] = {"level": level, "speed": speed}
    seeds = {
        quantity: seed_noise(values, level=question.level) for quantity, values in measured.items()
    }
    spans = question.bounds[1] - question.bounds[0], stop - start  # of level and speed
    setups = {
        quantity: Setup(question.level, noise, span=span)
        for (quantity, noise), span in zip(seeds.items(), spans, strict=True)
    }
    pairings = _pairings(groups, measured, setups, question)
    measured["level"] = [
        [
            replace(run, interval=within(run.interval, question.bounds)) if run.usable else run
            for run in group
        ]
        for group in level
    ]
    return Comparison(
        pairings,
        measured,
        seeds,
        float(late_from),
        float(stop),
        reach,
        question.level,
        question.bounds,
    )


def _common_steps(groups: Curves) -> Ends:
    """The first and the last step that all runs have."""
    if len(groups) < 2 or not all(groups):
        raise InvalidArgumentError(
            "a comparison needs at least two groups of at least one run each"
        )
    start = max(run.step_T[0] for group in groups for run in group)
    stop = min(run.step_T[-1] for group in groups for run in group)
    if not stop > start:
        raise InvalidArgumentError(
            f"the runs share no steps: one begins at step {start:g}, another ends at {stop:g}"
        )
    return start, stop


def not_compared(question: Question) -> Comparison:
    """The comparison of groups of which fewer than two have rows enough: no contrast, no window."""
    return Comparison(
        (),
        {"level": (), "speed": ()},
        {},
        math.nan,
        math.nan,
        math.nan,
        question.level,
        question.bounds,
    )


def _speed(
    groups: Curves,
    level: Sequence[MeasuredRuns],
    start: float,
    stop: float,
    question: Question,
    rng: np.random.Generator,
) -> tuple[float, list[list[Measured]]]:
    """The level to be reached, and the time of each run."""
    reach, falls = _target(groups, level, start, stop, question)
    if math.isnan(reach):
        moves = "rise" if question.rises else "move"
        none = missing(
            f"the metric does not {moves} by more than its noise, so speed cannot be measured",
            level=question.level,
        )
        return math.nan, [[none for _ in group] for group in groups]
    sign = -1.0 if falls else 1.0
    turned = [
        [Curve(run.step_T, sign * run.value_T, sign * run.smooth_T) for run in group]
        for group in groups
    ]
    return reach, [
        [time_to(run, sign * reach, rng, last=stop, level=question.level) for run in group]
        for group in turned
    ]


def _target(
    groups: Curves,
    level: Sequence[MeasuredRuns],
    start: float,
    stop: float,
    question: Question,
) -> tuple[float, bool]:
    """Half of the way to the nearest late mean that has moved beyond noise and rounding; and
    whether it falls.
    """
    usable = list(map(_usable, level))
    late = [float(_values(row).mean()) for row in usable if row]
    if not late:
        return math.nan, False
    until = start + _EARLY * (stop - start)
    rows = [(run.value_T, (run.step_T <= until).sum()) for group in groups for run in group]
    early = float(np.mean([value_T[: max(3, few)].mean() for value_T, few in rows]))
    goal = float(np.mean(late)) if question.reach is None else question.reach
    falls = not question.rises and goal < early
    if question.reach is not None:
        return question.reach, falls
    error = np.median([run.step_error for row in usable for run in row])
    sign, least = -1 if falls else 1, max(_MOVES * error, 1e-12 * abs(early))
    moves = (sign * (end - early) for end in late)
    move = min((move for move in moves if move > least), default=math.nan)
    return early + sign * move / 2, falls


def _pairings(
    groups: Curves,
    measured: dict[Quantity, list[list[Measured]]],
    setups: dict[Quantity, Setup],
    question: Question,
) -> tuple[Pairing, ...]:
    """Every group against the first, judged together."""
    requests = [
        (quantity, values[0], values[g])
        for g in range(1, len(groups))
        for quantity, values in measured.items()
    ]

    def contrasts(tests: int) -> list[Contrast]:
        return [
            contrast(quantity, first, second, replace(setups[quantity], tests=tests))
            for quantity, first, second in requests
        ]

    raw = contrasts(sum(math.isfinite(made.p_value) for made in contrasts(1)))
    adjusted = holm([contrast_made.p_value for contrast_made in raw])
    done = [with_status(*each, level=question.level) for each in zip(raw, adjusted, strict=True)]
    pairs = zip(done[::2], done[1::2], strict=True)  # of level and speed
    return tuple(Pairing(0, g, pair) for g, pair in enumerate(pairs, start=1))


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values by Holm's method; those that are not numbers stay and do not count.

    Source: Holm (1979), Scandinavian Journal of Statistics 6, 65-70.
    """
    finite = sorted((p, i) for i, p in enumerate(p_values) if math.isfinite(p))
    out, running = list(p_values), 0.0
    for rank, (p, i) in enumerate(finite):
        running = max(running, min(1.0, (len(finite) - rank) * p))
        out[i] = running
    return out


def with_status(contrast: Contrast, adjusted_p: float, *, level: float) -> Contrast:
    """Say of a contrast whether it is beyond noise, by the p-value that counts all of them."""
    differs = contrast.status == "not_separable" and adjusted_p < 1 - level
    status = "different" if differs else contrast.status
    return replace(contrast, status=status, adjusted_p=adjusted_p)
