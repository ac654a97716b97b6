r"""How much runs of one setting differ by their seeds alone: a random-effects decomposition with known step noise.

Run i of group g measures $x_{gi} = \mu_g + b_{gi} + e_{gi}$, $b \sim N(0, \tau^2)$ the seed, $e \sim N(0, s_{gi}^2)$ the steps. With
weights $w = 1/(\tau^2 + s^2)$ the generalised $Q(\tau^2) = \sum w (x - \hat\mu_g)^2$ is chi-square with $\sum(n_g - 1)$ degrees of
freedom at the true $\tau^2$ and falls with it, which gives estimate and interval. It compares no groups.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from groupwise.comparison.results import Measured, SeedNoise
from groupwise.intervals import Interval


def seed_noise(groups: Sequence[Sequence[Measured]], *, level: float = 0.95) -> SeedNoise:
    r"""Estimate the spread of seeds, common to all groups.

    Point: $Q(\hat\tau^2) = \nu$ (Paule and Mandel); ends: Q at the quantiles of chi-square with $\nu$ degrees of freedom.

    Source: Viechtbauer (2007), Statistics in Medicine 26, 37-52, with a mean for each group.

    Example:
        >>> group = [Measured(Interval(x, x, x), 0.0) for x in (0.1, 0.3)]
        >>> found = seed_noise([group])
        >>> found.freedom, round(found.deviation.value, 3)
        (1, 0.141)
    """
    from scipy.special import chdtri

    finite = [[run for run in group if run.usable and math.isfinite(run.value)] for group in groups]
    values = [np.array([run.value for run in group]) for group in finite]
    variances = [np.array([run.step_error**2 for run in group]) for group in finite]
    freedom = sum(max(len(value) - 1, 0) for value in values)
    every = np.concatenate(variances) if variances else np.empty(0)
    step = float(every.mean()) if every.size else math.nan
    if freedom == 0:
        return SeedNoise(Interval(math.nan, 0.0, math.inf, level), 0, math.nan, step)
    squares = sum(float(((value - value.mean()) ** 2).sum()) for value in values if len(value))

    def spread(target: float) -> float:
        """The deviation at which Q equals a target."""
        high = math.sqrt(2 * squares / target) + 1e-300
        if _q(values, variances, 0.0) <= target:
            return 0.0
        low = 0.0
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if _q(values, variances, middle**2) > target else (low, middle)
        return (low + high) / 2

    tail = 0.5 - level / 2
    low, high = spread(float(chdtri(freedom, tail))), spread(float(chdtri(freedom, 1 - tail)))
    return SeedNoise(Interval(spread(float(freedom)), low, high, level), freedom, squares / freedom, step)


def _q(values: Sequence[np.ndarray], variances: Sequence[np.ndarray], tau2: float) -> float:
    """The generalised Q at a variance between runs."""
    total = 0.0
    for value, variance in zip(values, variances, strict=True):
        if len(value) < 2:
            continue
        weight = 1 / np.maximum(variance + tau2, 1e-300)
        total += float((weight * (value - (weight * value).sum() / weight.sum()) ** 2).sum())
    return total


POWER = 0.8
MOST_SEEDS = 10_000


def power(noncentrality: float, freedom: float, *, level: float = 0.95) -> float:
    """Return the chance that a two-sided t test finds a difference of so many standard errors.

    Example:
        >>> round(power(2.8, math.inf), 2), round(power(0.0, 4.0), 3)
        (0.8, 0.05)
    """
    from scipy.special import nctdtr, ndtr, ndtri, stdtrit

    if math.isinf(freedom):
        point = float(ndtri(0.5 + level / 2))
        return float(ndtr(noncentrality - point) + ndtr(-noncentrality - point))
    point = float(stdtrit(freedom, 0.5 + level / 2))
    if noncentrality > 35:  # the series of the noncentral t gives out far beyond any use
        return float(ndtr((noncentrality - point) / math.sqrt(1 + point**2 / (2 * freedom))))
    upper = 1 - float(nctdtr(freedom, noncentrality, point))
    lower = float(nctdtr(freedom, noncentrality, -point))
    return upper + (lower if math.isfinite(lower) else 0.0)


def minimum_detectable(error: float, freedom: float, *, level: float = 0.95, wanted: float = POWER) -> float:
    """Return the difference that would be found with a wanted chance.

    Example:
        >>> round(minimum_detectable(1.0, math.inf), 2)
        2.8
    """
    if not (math.isfinite(error) and freedom > 0):
        return math.nan
    low, high = 0.0, 4.0
    while power(high, freedom, level=level) < wanted and high < 1e4:
        high *= 2
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if power(middle, freedom, level=level) < wanted else (low, middle)
    return error * (low + high) / 2


def seeds_needed(difference: float, variance: float, *, paired: bool = False, level: float = 0.95, wanted: float = POWER) -> int | None:
    r"""Return how many runs a group would find a difference.

    $n$ runs a group have standard error $\sqrt{v/n}$ and $2(n-1)$ degrees of freedom ($n - 1$ in pairs).

    Example:
        >>> seeds_needed(1.0, 2.0)
        17
    """
    if not (math.isfinite(variance) and variance >= 0 and abs(difference) > 0):
        return None

    def enough(runs: int) -> bool:
        if variance == 0:
            return True
        freedom = (runs - 1) * (1 if paired else 2)
        return power(abs(difference) / math.sqrt(variance / runs), freedom, level=level) >= wanted

    low, high = 1, 2
    while not enough(high):
        low, high = high, 2 * high
        if low > MOST_SEEDS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
