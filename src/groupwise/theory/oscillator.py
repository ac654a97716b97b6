r"""The damped oscillator of a run: from hyper-parameters to its curve, beside the exact recursion that it stands for.

$m r'' + \gamma r' + k(r - r^*) = 0$ with mass and damping from momentum and lag. The way back, from a fitted curve to the force, is in
`force`. It fits no curve and judges no stability.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from groupwise.curves.laws import oscillator_decay, oscillator_quantities
from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.intervals import Interval, student_quantile
from groupwise.plain import Plain
from groupwise.stability.lags import Float, lag_by_name
from groupwise.stability.mode import readings

ReadingName = Literal["centred", "backward"]


@dataclass(frozen=True, slots=True)
class Oscillator(Plain):
    """One mode in continuous time; the unit of time is the update.

    Args:
        mass: m.
        damping: gamma.
        restoring: k, the force per update.
        reading: centred or backward.
        regime: overdamped, critical, underdamped or unstable.
        natural_frequency: sqrt(k/m), radians an update.
        damping_ratio: gamma/(2 sqrt(m k)).
        slow_time: the slower time constant, in updates; of the envelope where it oscillates.
        fast_time: the faster one; the same where it oscillates.
        period: of the oscillation, infinite where there is none.
        overshoot: share of the way by which it overshoots, 0 where it does not.
        inflection: update at which the curve is steepest.
    """

    KEYS = (
        *("reading", "regime", "mass", "damping", "restoring", "natural_frequency", "damping_ratio", "slow_time", "fast_time"),
        *("overshoot", "inflection", "period"),
    )

    mass: float
    damping: float
    restoring: float
    reading: str
    regime: str
    natural_frequency: float
    damping_ratio: float
    slow_time: float
    fast_time: float
    period: float
    overshoot: float
    inflection: float

    def trajectory(self, time_T: ArrayLike, *, start: float = 0.0, plateau: float = 1.0) -> Float:
        """Return the mean curve of a run that stands still at `start` until update 0.

        The discrete law at rest has equal positions at updates -1 and 0: its centred oscillator is at rest half an update before 0.

        Args:
            time_T: updates since the start.
            start: reward at time 0.
            plateau: reward that is approached.

        Returns:
            T rewards.

        Raises:
            InvalidArgumentError: the damping is not positive, so no plateau is approached.

        Example:
            >>> oscillator(0.01, 0.0, lag="none").trajectory([0.0, 1e6]).round(3).tolist()
            [0.002, 1.0]
        """
        if self.damping <= 0:
            raise InvalidArgumentError(f"expected a positive damping for a curve that settles, got {self.damping:.3g}: use recursion")
        rest = 0.5 if self.reading == "centred" else 0.0
        decay = oscillator_decay(np.asarray(time_T, dtype=np.float64) + rest, self.natural_frequency, self.damping_ratio)
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
    r"""Return the oscillator of one mode.

    Args:
        force: $a = \eta K$ per update, positive. For Adam, heuristically, $(1-\beta_1)\eta K/\sqrt v$ with momentum $\beta_1$.
        momentum: mu.
        refresh_interval: R.
        lag: none, fixed, refresh or async.
        reading: centred (the smaller error; the default of fits) or backward (the paper's).
        stale_share: share of the force that is as old as the rollouts.

    Returns:
        The oscillator.

    Raises:
        InvalidArgumentError: an argument outside its domain.

    Example:
        >>> oscillator(0.05, 0.9, lag="none").regime
        'underdamped'

    Source: arXiv 2606.30789 for the model; both readings as in docs/theory/dynamics.md.
    """
    if not (math.isfinite(force) and force > 0 and 0 <= momentum < 1):
        raise InvalidArgumentError(f"expected a positive force per update and a momentum in [0, 1), got {force} and {momentum}")
    if refresh_interval < 1 or reading not in {"centred", "backward"}:
        raise InvalidArgumentError(
            f"expected an interval of at least 1 and the reading centred or backward, got {refresh_interval} and {reading[:60]!r}"
        )
    both = readings(force, momentum, refresh_interval=refresh_interval, lag=lag, stale_share=stale_share)
    chosen = both[0] if reading == "centred" else both[1]
    # A mass of zero (backward, without momentum) is the first-order law: a mass that no curve can tell from zero stands for it.
    mass = max(chosen.mass, 1e-9 * chosen.damping**2 / force if chosen.damping > 0 else 1e-12)
    frequency, ratio = math.sqrt(force / mass), chosen.damping / (2 * math.sqrt(mass * force))
    regime, *quantities = _motion(frequency, ratio)
    return Oscillator(chosen.mass, chosen.damping, force, reading, regime, frequency, ratio, *quantities)


def _motion(frequency: float, ratio: float) -> tuple[str, float, float, float, float, float]:
    """Regime, slow and fast time, period, overshoot and inflection."""
    if ratio <= 0:
        period = 2 * math.pi / frequency if ratio > -1 else math.inf
        return "unstable", math.inf, math.inf, period, 1.0, math.nan
    found = oscillator_quantities(np.array([frequency]), np.array([ratio]))
    slow, fast, period, overshoot, inflection = (float(value[0]) for value in found.values())
    regime = "critical" if abs(ratio - 1) < 1e-9 else "underdamped" if ratio < 1 else "overdamped"
    return regime, slow, fast, period, overshoot, inflection


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
    r"""Return the exact mean curve of the linear law, update by update: $x_{t+1} = x_t + v_{t+1}$, $v_{t+1} = \mu v_t - a x_{t-d}$.

    Args:
        force: a.
        momentum: mu.
        updates: how many.
        refresh_interval: R.
        lag: none, fixed, refresh or async; before time 0 the run stood at its start.
        start: reward at time 0.
        plateau: reward of the fixed point.
        stale_share: share of the force that is as old as the rollouts.

    Returns:
        updates + 1 rewards; not finite once an unstable run has left the range of numbers.

    Raises:
        InvalidArgumentError: an interval below 1, a negative number of updates, or no such lag.

    Example:
        >>> recursion(0.5, 0.0, 2, lag="none").tolist()
        [0.0, 0.5, 0.75]

    Source: derived here (docs/theory/dynamics.md).
    """
    lag_by_name(lag)
    if refresh_interval < 1 or updates < 0:
        raise InvalidArgumentError(
            f"expected an interval of at least 1 and no negative number of updates, got {refresh_interval}, {updates}"
        )
    position, velocity = np.empty(updates + 1), 0.0
    position[0] = start - plateau
    with np.errstate(over="ignore", invalid="ignore"):  # an unstable run leaves the range of numbers
        for now in range(updates):
            block = now - now % refresh_interval
            seen = {"none": now, "fixed": now - refresh_interval, "refresh": block, "async": block - refresh_interval}[lag]
            velocity = momentum * velocity - force * (stale_share * position[max(seen, 0)] + (1 - stale_share) * position[now])
            position[now + 1] = position[now] + velocity
    return plateau + position


def reading_error(
    force: float, momentum: float, *, refresh_interval: int = 1, lag: str = "refresh", reading: ReadingName = "centred"
) -> float:
    r"""Return the largest distance between a reading's closed-form curve and the exact recursion, as a share of the way to the plateau.

    Args:
        force: a.
        momentum: mu.
        refresh_interval: R.
        lag: none, fixed, refresh or async.
        reading: centred or backward.

    Returns:
        The error over twelve of the slowest time constants; infinite where the reading says unstable and the recursion settles.

    Raises:
        InvalidArgumentError: an argument outside its domain, or a force at which the recursion itself does not settle.

    Example:
        >>> round(reading_error(0.002, 0.9, refresh_interval=8), 3)
        0.002

    Source: derived here.
    """
    kind = lag_by_name(lag)
    mode = oscillator(force, momentum, refresh_interval=refresh_interval, lag=lag, reading=reading)
    radius = float(np.abs(np.linalg.eigvals(kind.matrix(force, momentum, refresh_interval))).max())
    if radius >= 1:
        raise InvalidArgumentError(f"expected a force below the threshold, got {force:g}: the exact recursion does not settle")
    if mode.damping <= 0:
        return math.inf
    updates = min(200_000, math.ceil(-12 * kind.period(refresh_interval) / math.log(radius)) + 10 * refresh_interval)
    exact = recursion(force, momentum, updates, refresh_interval=refresh_interval, lag=lag)
    return float(np.abs(mode.trajectory(np.arange(updates + 1)) - exact).max())


def size_exponent(size_M: ArrayLike, time_constant_M: ArrayLike, *, level: float = 0.95) -> Interval:
    r"""Return the exponent b of $\tau \propto M^b$ over runs of several model sizes, by least squares on logarithms.

    Args:
        size_M: parameters of each run's model, at least three runs.
        time_constant_M: its time constant, in updates.
        level: coverage.

    Returns:
        The exponent with a t interval.

    Raises:
        InsufficientDataError: fewer than three runs, or one size only.
        InvalidArgumentError: a size or time that is not positive.

    Example:
        >>> round(size_exponent([1e9, 2e9, 4e9], [10.0, 12.3, 15.2]).value, 2)
        0.3

    Source: arXiv 2507.18014 reports an exponent of about 0.3.
    """
    size, time = np.asarray(size_M, dtype=np.float64), np.asarray(time_constant_M, dtype=np.float64)
    if size.ndim != 1 or size.shape != time.shape or not (np.isfinite(size) & np.isfinite(time) & (size > 0) & (time > 0)).all():
        raise InvalidArgumentError("expected one positive size and one positive time constant a run")
    if len(size) < 3 or np.ptp(size) == 0:
        raise InsufficientDataError(f"expected at least three runs of more than one size, got {len(size)}")
    x, y = np.log(size) - np.log(size).mean(), np.log(time) - np.log(time).mean()
    slope = float(x @ y / (x @ x))
    error = math.sqrt(float(((y - slope * x) ** 2).sum()) / (len(x) - 2) / float(x @ x))
    half = student_quantile(level, len(x) - 2) * error
    return Interval(slope, slope - half, slope + half, level)
