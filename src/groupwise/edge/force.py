r"""From a fitted curve back to the force per update $a = \eta K$: the force whose matrix has the
eigenvalue that the curve shows, with an interval that says what a curve cannot show; and whether
its last rows swing.

A decay has one reading, an oscillation two: its frequency and its envelope. Where the law is linear
they agree; far from the plateau, and on a limit cycle, they do not, and the interval covers both.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from groupwise.arrays import Float, floats
from groupwise.edge.mode import Complex, first_place, period_matrix, threshold, updates_of_period
from groupwise.errors import InsufficientDataError
from groupwise.forecasting.results import FitResult
from groupwise.intervals import Interval
from groupwise.plain import Plain, frozen

_POINTS = 800
_FADED = 3.0  # blocks within which a sign that flips cannot be told from one that does not
# Factor by which an envelope may miss that of its momentum before it is taken as something else.
_FOREIGN = 2.0


@frozen
class EffectiveForce(Plain):
    """The force per update that a fitted curve has."""

    KEYS = "force told_by=parameter too_fast"

    force: Interval  # a
    parameter: str  # the fitted quantity it comes from
    # whether no force gives so fast a curve: the value is then a bound from below
    too_fast: bool = False


def force_of_fit(
    result: FitResult, momentum: float, *, refresh_interval: int = 1, lag: str = "refresh"
) -> EffectiveForce:
    r"""Return the force per update at which the matrix decays, or swings, as a fitted curve does.

    A curve that does not oscillate has it by its slow time constant; the end of an interval that is
    too fast for any force without oscillation is infinite. One that oscillates has it by its
    frequency and by its envelope; the interval covers both with theirs. Where a lag without
    momentum can only flip a sign, as slow a decay has two forces, and the interval covers them.

    Source: derived here (lab/docs/theory/dynamics.md).
    """
    if result.law not in ("exponential", "oscillator"):
        raise InsufficientDataError(
            f"expected an exponential or oscillator law, got {result.law}: fit with "
            "law='oscillator'"
        )
    motion = ForceOfMotion(lag, momentum, refresh_interval)
    parameters = result.parameters
    oscillates = result.law == "oscillator" and parameters["damping_ratio"].value < 1
    if oscillates:
        frequency = _bounded("natural_frequency", parameters)
    if oscillates and not motion.flips:
        name, value = "natural_frequency", motion.frequency(frequency.value)
        others = [motion.frequency(end) for end in (frequency.low, frequency.high)]
        others += motion.envelopes(parameters["tau1"])
        bound = motion.limit
    else:
        name = "time_constant" if result.law == "exponential" else "tau1"
        time = _bounded(name, parameters)
        value, *others = [motion.slow(end) for end in (time.value, time.low, time.high)]
        if motion.flips and (oscillates or time.low < _FADED * motion.period):
            flipping = [motion.envelope(end) for end in (time.value, time.low, time.high)]
            others += [value, *flipping]
            if oscillates and frequency.value * motion.period > math.pi / 2:
                value = flipping[0]
        bound = motion.onset
    too_fast = math.isinf(value)
    others.append(value)
    value = bound if too_fast else value
    force = Interval(value, min(value, *others), max(others), parameters[name].level)
    return EffectiveForce(force, name, too_fast)


class ForceOfMotion:
    """The forces at which one mode decays or swings at a given speed."""

    def __init__(self, lag: str, momentum: float, interval: int) -> None:
        self.lag, self.momentum, self.interval = lag, momentum, interval
        self.period = updates_of_period(lag, interval)
        self.limit = float(threshold(lag, momentum, interval))
        self.turn = self._meeting()
        self.onset = float(self._force(self.turn))  # from which the slowest mode oscillates

    def _force(self, eigenvalue: Any) -> Any:
        """The force at which one period has an eigenvalue: the characteristic equation is linear
        in it, so two determinants solve it. Of a complex one it is a force where real and positive.
        """
        value = np.asarray(eigenvalue)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            if self.lag == "fixed":
                moved = (1 - value) * (1 - self.momentum / value)
                return moved / np.power(value, -float(self.interval))
            shift = value[..., None, None] * np.eye(3)
            without, each = (
                np.linalg.det(period_matrix(self.lag, force, self.momentum, self.interval) - shift)
                for force in (0.0, 1.0)
            )
            return without / (without - each)

    def _meeting(self) -> float:
        """The eigenvalue at which the slow mode meets the next: where its force is first largest
        below 1, on a logarithmic scale of the distance from 1, then ever finer about the top.
        """
        gap = np.append(np.geomspace(1e-9, 1, 4000)[:-1], 1 - 1e-12)
        for _ in range(8):
            top = int(np.argmax(np.diff(self._force(1 - gap), append=-np.inf) < 0))
            gap = np.linspace(gap[max(top - 1, 0)], gap[min(top + 1, len(gap) - 1)], 101)
        return 1 - float(gap[50])

    def slow(self, time: float) -> float:
        """Return the force without oscillation that decays as exp(-1/time) an update; infinite
        where none decays so fast.
        """
        if math.isinf(time):
            return 0.0
        eigenvalue = math.exp(-self.period / time) if time > 0 else 0.0
        # The slow real eigenvalue lies between the turn, where it meets the next, and 1.
        return math.inf if eigenvalue <= self.turn else float(self._force(eigenvalue))

    def envelope(self, time: float) -> float:
        """Return the force beyond the onset whose oscillation decays as exp(-1/time) an update;
        the onset where none decays so fast.
        """
        if math.isinf(time):
            return self.limit
        if time <= 0 or math.exp(-self.period / time) <= self.turn:
            return self.onset
        oldest = self.interval if self.lag == "fixed" else 1
        decay = self.period / time
        force = self._crossing(lambda angle: -decay + 1j * angle, math.pi / oldest)
        return min(force, self.limit)

    def envelopes(self, time: Interval) -> list[float]:
        """Return what an envelope with its interval says of the force. On-policy every oscillation
        fades with the root of the momentum: nothing, or, of a far slower one, that nothing bounds
        it above.
        """
        if self.lag != "none" and (self.lag, self.interval) != ("refresh", 1):
            return [self.envelope(end) for end in (time.value, time.high, time.low)]
        return [math.inf] if time.low > _FOREIGN * -2 / math.log(self.momentum) else []

    def frequency(self, frequency: float) -> float:
        """Return the force at which the leading eigenvalue's logarithm has this length an update;
        infinite beyond the threshold's.
        """
        length = self.period * frequency
        if math.isinf(length):
            return math.inf
        if length <= -math.log(self.turn):
            # Before the onset it is the geometric mean of two rates: at small forces the root of
            # force over mass.
            return min((1 + self.momentum) / 2 * frequency**2, self.onset)
        # From real, where the angle is zero, to undamped, where it is a right angle.
        force = self._crossing(
            lambda angle: length * (-np.cos(angle) + 1j * np.sin(angle)), math.pi / 2
        )
        return force if force <= self.limit * (1 + 1e-9) else math.inf

    @property
    def flips(self) -> bool:
        """Whether one number a block is the whole state, so that it can only flip its sign."""
        return self.momentum == 0 and self.lag in {"none", "refresh"}

    def _crossing(self, logarithm: Callable[[Float], Any], furthest: float) -> float:
        """The force at the first angle at which it is real and positive; at the last angle,
        where the eigenvalue is negative, if none; infinite where that is not real either.
        """

        def force(angle: Float) -> Complex:
            return np.asarray(self._force(np.exp(logarithm(angle))), dtype=np.complex128)

        angle = np.linspace(0, furthest, _POINTS + 1)[1:]
        forces = force(angle)
        sign, positive = np.sign(forces.imag), forces.real > 0
        change = np.flatnonzero((sign[1:] != sign[:-1]) & positive[1:] & positive[:-1])
        if not len(change):
            end = complex(forces[-1])
            return end.real if abs(end.imag) <= 1e-6 * abs(end) and end.real > 0 else math.inf
        low, high = angle[change[:1]], angle[change[:1] + 1]
        below = sign[change[0]]
        place = first_place(lambda points: np.sign(force(points).imag) != below, low, high)
        return float(force(place).real[0])


def _bounded(name: str, parameters: Mapping[str, Interval]) -> Interval:
    """Return a fitted quantity; refuse one that the log does not bound."""
    interval = parameters[name]
    positive = math.isfinite(interval.value) and interval.value > 0
    if not positive or (interval.low <= 0 and name == "natural_frequency"):
        raise InsufficientDataError(
            f"expected a bounded {name}, got {interval.low:.3g} to {interval.high:.3g}: the log "
            "may be too short"
        )
    return interval


_LATE = 0.4
_FEWEST_LATE = 24
CHANCE = 1e-3
"""Chance at which a swing of settled rows is taken as one that is there."""


@frozen
class LastingSwing(Plain):
    """Whether the last rows of a log swing to and fro at one frequency."""

    MORE = "lasts"

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
    value = floats(value_T)
    value = value[np.isfinite(value)]
    late = value[-max(_FEWEST_LATE, math.ceil(_LATE * len(value))) :]
    n = len(late)
    if n < _FEWEST_LATE:
        return LastingSwing(0.0, math.nan, 1.0, 0)
    place = np.arange(n, dtype=float)
    left: Float = late - np.polyval(np.polyfit(place, late, 1), place)
    power = np.abs(np.fft.rfft(left)[1:]) ** 2
    if n % 2 == 0:
        power[-1] /= 2  # the highest frequency has one degree of freedom and not two
    total, top = float(power.sum()), int(power.argmax())
    if total <= 1e-24 * n * max(1.0, np.abs(late).max()) ** 2:
        return LastingSwing(0.0, math.nan, 1.0, n)
    share = float(power[top]) / total
    amplitude = 2 * math.sqrt(float(power[top])) / n
    return LastingSwing(
        amplitude, n / (top + 1), min(1.0, len(power) * (1 - share) ** (len(power) - 1)), n
    )
