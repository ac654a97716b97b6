"""Whether a run swings: tests of its last rows for a swing that lasts, and of the whole log for
swings that grow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from groupwise.edge.threshold import Float
from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.plain import Plain

_LATE = 0.4
_FEWEST_LATE = 24
CHANCE = 1e-3
"""Chance at which a swing of settled rows is taken as one that is there."""


@dataclass(frozen=True, slots=True)
class LastingSwing(Plain):
    """Whether the last rows of a log swing to and fro at one frequency."""

    KEYS = ("amplitude", "period", "p_value", "rows", "lasts")

    amplitude: float  # of the strongest frequency, reward units
    period: float  # of it, in rows
    p_value: float  # chance of as strong a line in rows that do not depend on each other
    rows: int  # how many were looked at; 0 where they are too few to tell

    @property
    def lasts(self) -> bool:
        """Whether it is beyond chance."""
        return self.rows > 0 and self.p_value < CHANCE


def lasting_swing(value_T: ArrayLike) -> LastingSwing:
    r"""Test whether the last two fifths of a log swing beyond sampling noise, as on a limit cycle
    or near the edge.

    The largest share g of one frequency in the periodogram of m frequencies, after the linear
    trend: $P(g > x) \le m(1-x)^{m-1}$ for independent rows. Slow noise raises the lowest
    frequencies and is seen as a swing too.

    Source: Fisher (1929), Proceedings of the Royal Society A 125, for g; the first term of its
    series bounds it.
    """
    value = np.asarray(value_T, dtype=np.float64)
    value = value[np.isfinite(value)]
    late = value[-max(_FEWEST_LATE, math.ceil(_LATE * len(value))) :]
    n = len(late)
    if n < _FEWEST_LATE:
        return LastingSwing(0.0, math.nan, 1.0, 0)
    place = np.arange(n, dtype=np.float64)
    left: Float = late - np.polyval(np.polyfit(place, late, 1), place)
    power = np.abs(np.fft.rfft(left)[1:]) ** 2
    if n % 2 == 0:
        power[-1] /= 2  # the highest frequency has one degree of freedom and not two
    total, top = float(power.sum()), int(power.argmax())
    if total <= 1e-24 * n * max(1.0, float(np.abs(late).max())) ** 2:
        return LastingSwing(0.0, math.nan, 1.0, n)
    share = float(power[top]) / total
    amplitude = 2 * math.sqrt(float(power[top])) / n
    return LastingSwing(
        amplitude, n / (top + 1), min(1.0, len(power) * (1 - share) ** (len(power) - 1)), n
    )


@dataclass(frozen=True, slots=True)
class EarlyWarning(Plain):
    """Whether swings grow larger and slower along a run, as they do on the way to instability."""

    KEYS = ("variance_trend", "correlation_trend", "p_value", "windows", "status")

    variance_trend: float  # Kendall's tau of the variance over windows
    correlation_trend: float  # Kendall's tau of the lag-1 correlation over windows
    # chance of trends as strong, or stronger, in a run that does not change (Bonferroni over both,
    # one-sided)
    p_value: float
    windows: int  # how many
    status: str  # a sentence


def early_warning(residual_T: ArrayLike, *, windows: int = 10, level: float = 0.05) -> EarlyWarning:
    """Test whether the residuals of a fitted mean swing wider or slower as the run goes on.

    Windows do not overlap, so that their ranks are exchangeable where nothing changes.

    Source: critical slowing down as in Scheffer et al. (2009), Nature 461; the test is ours.
    """
    from scipy.stats import kendalltau

    residual = np.asarray(residual_T, dtype=np.float64)
    residual = residual[np.isfinite(residual)]
    if windows < 5:
        raise InvalidArgumentError(f"expected at least 5 windows, got {windows}")
    if len(residual) < 20 * windows:
        raise InsufficientDataError(
            f"expected at least {20 * windows} rows for {windows} windows, got {len(residual)}"
        )
    parts = np.array_split(residual, windows)
    spread = [float(part.var()) for part in parts]
    memory = [
        float(np.corrcoef(part[1:], part[:-1])[0, 1]) if part.std() > 0 else 0.0 for part in parts
    ]
    tests = [
        kendalltau(np.arange(windows), values, alternative="greater") for values in (spread, memory)
    ]
    trends = [float(test.statistic) if math.isfinite(test.statistic) else 0.0 for test in tests]
    chance = min(
        1.0, 2 * min(float(test.pvalue) if math.isfinite(test.pvalue) else 1.0 for test in tests)
    )
    grows = [name for name, trend in zip(("wider", "slower"), trends, strict=True) if trend > 0]
    if chance < level:
        status = (
            f"The reward swings {' and '.join(grows)} as the run goes on (p = {chance:.2g}): it "
            "may be moving towards instability."
        )
    else:
        status = f"No growth of the swings can be told from chance (p = {chance:.2g})."
    return EarlyWarning(trends[0], trends[1], chance, windows, status)
