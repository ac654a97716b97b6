"""Values with their intervals: the one form in which a number leaves the package.

`Interval` is the record; `wilson` gives the interval of a proportion. Estimation is elsewhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from groupwise.errors import InvalidArgumentError


def finite_or_none(value: float) -> float | None:
    """Return `value`, or None where it is not finite: JSON has no infinity."""
    return float(value) if math.isfinite(value) else None


@dataclass(frozen=True, slots=True)
class Interval:
    """A value with the interval that goes with it.

    Args:
        value: the estimate, in the unit of the quantity.
        low: lower end; minus infinity where the data set no lower limit.
        high: upper end; infinity where the data set no upper limit.
        level: nominal coverage, between 0 and 1.

    Example:
        >>> Interval(0.75, 0.72, 0.79).bounded
        True
    """

    value: float
    low: float
    high: float
    level: float = 0.95

    @property
    def bounded(self) -> bool:
        """Whether both ends are finite."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    @property
    def width(self) -> float:
        """The length of the interval."""
        return self.high - self.low

    def covers(self, truth: float) -> bool:
        """Whether `truth` lies in the closed interval."""
        return self.low <= truth <= self.high

    def as_dict(self) -> dict[str, float | None]:
        """Plain data for JSON; a missing end is None."""
        return {
            "value": finite_or_none(self.value),
            "low": finite_or_none(self.low),
            "high": finite_or_none(self.high),
            "level": self.level,
        }


def wilson(successes: float, trials: float, *, level: float = 0.95) -> Interval:
    r"""Wilson's score interval of a proportion.

    $(\hat p + z^2/2n \pm z\sqrt{\hat p(1-\hat p)/n + z^2/4n^2})/(1 + z^2/n)$

    Args:
        successes: number of successes; may be fractional where `trials` is an effective number.
        trials: number of trials, positive.
        level: nominal coverage.

    Returns:
        The proportion with its interval, inside [0, 1].

    Raises:
        InvalidArgumentError: no trials, more successes than trials, or a level outside (0, 1).

    Example:
        >>> wilson(9, 10).low > 0.55
        True

    Source: Wilson (1927), Journal of the American Statistical Association 22, 209-212.
    """
    from scipy.special import ndtri

    if not 0 < level < 1:
        raise InvalidArgumentError(f"the level of an interval lies between 0 and 1; got {level}")
    if not (trials > 0 and 0 <= successes <= trials):
        raise InvalidArgumentError(f"a proportion needs 0 <= successes <= trials and trials > 0; got {successes} of {trials}")
    z = float(ndtri(0.5 + level / 2))
    share = successes / trials
    denominator = 1 + z * z / trials
    centre = (share + z * z / (2 * trials)) / denominator
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials**2)) / denominator
    return Interval(share, max(0.0, centre - half), min(1.0, centre + half), level)
