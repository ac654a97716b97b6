r"""The damped oscillator of a run: from hyper-parameters to its curve, beside the exact recursion
that it stands for.

$m r'' + \gamma r' + k(r - r^*) = 0$ with mass and damping from momentum and lag. The way back, from
a fitted curve to the force, is in `force`. It fits no curve and judges no stability.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from groupwise.arrays import Float
from groupwise.edge.mode import check_lag
from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.forecasting.laws import oscillator_decay, oscillator_quantities
from groupwise.intervals import Interval, student_quantile
from groupwise.plain import frozen

ReadingName = Literal["centred", "backward"]


def rule_threshold(momentum: ArrayLike, refresh_interval: ArrayLike) -> Float:
    r"""Return the published rule, $\eta K R < 1 - \mu$, as a threshold of $\eta K$.

    Source: arXiv 2606.30789.
    """
    return np.asarray((1 - np.asarray(momentum)) / np.asarray(refresh_interval))


@frozen
class Oscillator:
    """One mode in continuous time; the unit of time is the update."""

    mass: float  # m
    damping: float  # gamma
    restoring: float  # k, the force per update
    reading: str  # centred or backward
    natural_frequency: float  # sqrt(k/m), radians an update
    damping_ratio: float  # gamma/(2 sqrt(m k))

    @property
    def regime(self) -> str:
        """Overdamped, critical, underdamped or unstable."""
        if self.damping_ratio <= 0:
            return "unstable"
        return (
            "critical"
            if abs(self.damping_ratio - 1) < 1e-9
            else "underdamped"
            if self.damping_ratio < 1
            else "overdamped"
        )

    @property
    def quantities(self) -> dict[str, float]:
        """Time constants, period, overshoot and inflection of a mode that settles, as
        `forecasting.laws` has them.
        """
        values = oscillator_quantities(
            np.array([self.natural_frequency]), np.array([self.damping_ratio])
        )
        return {name: float(value[0]) for name, value in values.items()}

    def trajectory(self, time_T: ArrayLike, *, start: float = 0.0, plateau: float = 1.0) -> Float:
        """Return the mean curve of a run that stands still at `start` until update 0.

        The discrete law at rest has equal positions at updates -1 and 0: its centred oscillator is
        at rest half an update before 0.
        """
        if self.damping <= 0:
            raise InvalidArgumentError(
                f"expected a positive damping for a curve that settles, got {self.damping:.3g}: "
                "use recursion"
            )
        rest = 0.5 if self.reading == "centred" else 0.0
        decay = oscillator_decay(
            np.asarray(time_T, dtype=np.float64) + rest, self.natural_frequency, self.damping_ratio
        )
        return np.asarray(plateau + (start - plateau) * decay)


def oscillator(
    force: float,
    momentum: float,
    *,
    refresh_interval: int = 1,
    lag: str = "refresh",
    reading: ReadingName = "centred",
    stale_share: float = 1.0,
) -> Oscillator:
    r"""Return the oscillator of one mode, $m r'' + \gamma r' + k (r - r^*) = 0$ with $k = a$.

    Centred: $m = (1+\mu)/2$ ($+ad^2/2$ for a fixed lag), $\gamma = (1-\mu) - ad$ with the mean lag
    d. Backward: $m = \mu$, $\gamma = (1-\mu) - aR$, whose sign is the published rule; what is
    current has $R = 1$, and the oscillation sets in exactly where that of the map does. Where a
    share of the force is stale, d and R count that often, and the rest as current.

    Source: backward, arXiv 2606.30789 as far as its rule tells; centred, derived here
    (lab/docs/theory/dynamics.md).
    """
    if not (math.isfinite(force) and force > 0 and 0 <= momentum < 1):
        raise InvalidArgumentError(
            f"expected a positive force per update and a momentum in [0, 1), got {force} and "
            f"{momentum}"
        )
    if refresh_interval < 1 or reading not in {"centred", "backward"}:
        raise InvalidArgumentError(
            "expected an interval of at least 1 and the reading centred or backward, got "
            f"{refresh_interval} and {reading[:60]!r}"
        )
    mass, damping = _readings(lag, force, momentum, refresh_interval, stale_share)[reading]
    # A mass of zero (backward, without momentum) is the first-order law: a mass that no curve can
    # tell from zero stands for it.
    moved = max(mass, 1e-9 * damping**2 / force if damping > 0 else 1e-12)
    frequency, ratio = math.sqrt(force / moved), damping / (2 * math.sqrt(moved * force))
    return Oscillator(mass, damping, force, reading, frequency, ratio)


def _readings(
    lag: str, force: float, momentum: float, interval: int, stale_share: float
) -> dict[str, tuple[float, float]]:
    """Mass and damping of both readings."""
    mass = (1 + momentum) / 2
    share = 0.0 if lag == "none" else stale_share
    if lag == "fixed":
        mass += share * force * interval**2 / 2
    reach = 1 + share * (interval - 1)
    mean_lag = {"fixed": interval, "refresh": (interval - 1) / 2, "async": (3 * interval - 1) / 2}
    return {
        "centred": (mass, (1 - momentum) - force * share * mean_lag.get(lag, 0.0)),
        "backward": (momentum, (1 - momentum) - force * reach),
    }


def recursion(
    force: float,
    momentum: float,
    updates: int,
    *,
    refresh_interval: int = 1,
    lag: str = "refresh",
    start: float = 0.0,
    plateau: float = 1.0,
    stale_share: float = 1.0,
) -> Float:
    r"""Return the exact mean curve of the linear law, update by update: $x_{t+1} = x_t + v_{t+1}$,
    $v_{t+1} = \mu v_t - a x_{t-d}$.

    Source: derived here (lab/docs/theory/dynamics.md).
    """
    check_lag(lag)
    if refresh_interval < 1 or updates < 0:
        raise InvalidArgumentError(
            "expected an interval of at least 1 and no negative number of updates, got "
            f"{refresh_interval}, {updates}"
        )
    position, velocity = np.empty(updates + 1), 0.0
    position[0] = start - plateau
    with np.errstate(
        over="ignore", invalid="ignore"
    ):  # an unstable run leaves the range of numbers
        for now in range(updates):
            block = now - now % refresh_interval
            seen = {
                "none": now,
                "fixed": now - refresh_interval,
                "refresh": block,
                "async": block - refresh_interval,
            }[lag]
            velocity = momentum * velocity - force * (
                stale_share * position[max(seen, 0)] + (1 - stale_share) * position[now]
            )
            position[now + 1] = position[now] + velocity
    return plateau + position


def size_exponent(
    size_M: ArrayLike, time_constant_M: ArrayLike, *, level: float = 0.95
) -> Interval:
    r"""Return the exponent b of $\tau \propto M^b$ over runs of several model sizes, by least
    squares on logarithms.

    Source: arXiv 2507.18014 reports an exponent of about 0.3.
    """
    size, time = np.asarray(size_M, dtype=np.float64), np.asarray(time_constant_M, dtype=np.float64)
    if (
        size.ndim != 1
        or size.shape != time.shape
        or not (np.isfinite(size) & np.isfinite(time) & (size > 0) & (time > 0)).all()
    ):
        raise InvalidArgumentError(
            "expected one positive size and one positive time constant a run"
        )
    if len(size) < 3 or np.ptp(size) == 0:
        raise InsufficientDataError(
            f"expected at least three runs of more than one size, got {len(size)}"
        )
    x, y = np.log(size) - np.log(size).mean(), np.log(time) - np.log(time).mean()
    slope = float(x @ y / (x @ x))
    error = math.sqrt(float(((y - slope * x) ** 2).sum()) / (len(x) - 2) / float(x @ x))
    half = student_quantile(level, len(x) - 2) * error
    return Interval(slope, slope - half, slope + half, level)
