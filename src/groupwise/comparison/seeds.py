r"""How much runs of one setting differ by seeds, and how many seeds show a difference.

Run i of group g measures $x_{gi} = \mu_g + b_{gi} + e_{gi}$, $b \sim N(0, \tau^2)$ the seed, $e
\sim N(0, s_{gi}^2)$ the steps. With weights $w = 1/(\tau^2 + s^2)$ the generalised $Q(\tau^2) =
\sum w (x - \hat\mu_g)^2$ is chi-square with $\sum(n_g - 1)$ degrees of freedom at the true $\tau^2$
and falls with it, which gives estimate and interval. Power is that of the two-sided t test, from
the noncentral t, the variance taken as known; that it is estimated is said beside.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.optimize import brentq
from scipy.special import chdtri, nctdtr, ndtr, ndtri, stdtrit

from groupwise.arrays import Float
from groupwise.comparison.results import Measured, SeedNoise
from groupwise.intervals import Interval

POWER = 0.8
MOST_SEEDS = 10_000


def seed_noise(groups: Sequence[Sequence[Measured]], *, level: float = 0.95) -> SeedNoise:
    r"""Estimate the spread of seeds, common to all groups.

    Point: $Q(\hat\tau^2) = \nu$ (Paule and Mandel); ends: Q at the quantiles of chi-square with
    $\nu$ degrees of freedom.

    Source: Viechtbauer (2007), Statistics in Medicine 26, 37-52, with a mean for each group.
    """
    finite = [_finite(group) for group in groups]
    every = np.concatenate([variance for _, variance in finite]) if finite else np.empty(0)
    step = float(every.mean()) if every.size else math.nan
    several = [group for group in finite if len(group[0]) > 1]
    values, variances = [value for value, _ in several], [variance for _, variance in several]
    freedom = sum(len(value) - 1 for value in values)
    if freedom == 0:
        return SeedNoise(Interval(math.nan, 0.0, math.inf, level), 0, math.nan, step)
    squares = sum(float(((value - value.mean()) ** 2).sum()) for value in values)
    tail = 0.5 - level / 2
    targets = (float(freedom), float(chdtri(freedom, tail)), float(chdtri(freedom, 1 - tail)))
    point, low, high = (_spread(target, values, variances, squares) for target in targets)
    return SeedNoise(Interval(point, low, high, level), freedom, squares / freedom, step)


def _finite(group: Sequence[Measured]) -> tuple[Float, Float]:
    """Values and step variances of the runs that have a finite value."""
    runs = [run for run in group if run.usable and math.isfinite(run.value)]
    return np.array([run.value for run in runs]), np.array([run.step_error**2 for run in runs])


def _spread(
    target: float, values: Sequence[Float], variances: Sequence[Float], squares: float
) -> float:
    """The deviation at which Q equals a target, between those of least and most step noise."""
    least, most = min(float(v.min()) for v in variances), max(float(v.max()) for v in variances)
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
        total += float((weight * (value - (weight * value).sum() / weight.sum()) ** 2).sum())
    return total


def power(noncentrality: float, freedom: float, *, level: float = 0.95) -> float:
    """Return the chance that a two-sided t test finds a difference of so many standard errors."""
    if math.isinf(freedom):
        point = float(ndtri(0.5 + level / 2))
        return float(ndtr(noncentrality - point) + ndtr(-noncentrality - point))
    point = float(stdtrit(freedom, 0.5 + level / 2))
    if noncentrality > 35:  # the series of the noncentral t gives out far beyond any use
        return float(ndtr((noncentrality - point) / math.sqrt(1 + point**2 / (2 * freedom))))
    upper = 1 - float(nctdtr(freedom, noncentrality, point))
    lower = float(nctdtr(freedom, noncentrality, -point))
    return upper + (lower if math.isfinite(lower) else 0.0)


def minimum_detectable(error: float, freedom: float, *, level: float = 0.95) -> float:
    """Return the difference that would be found 8 times in 10."""
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

    low, high = 1, 2
    while not enough(high):
        low, high = high, 2 * high
        if low > MOST_SEEDS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
