r"""What a comparison could have found: the smallest difference that it would see, and how many seeds a difference needs.

Power of the two-sided t test, from the noncentral t. The variance is taken as known here; that it is estimated is said beside.
"""

from __future__ import annotations

import math

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
