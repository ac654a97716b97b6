r"""From a fitted curve back to the force per update $a = \eta K$: the force whose matrix has the
eigenvalue that the curve shows, with an interval that says what a curve cannot show.

A decay has one reading, an oscillation two: its frequency and its envelope. Where the law is linear
they agree; far from the plateau, and on a limit cycle, they do not, and the interval covers both.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from groupwise.edge.spectrum import force_of_eigenvalue, meeting
from groupwise.edge.threshold import Complex, Float, Lag, first_place, lag_by_name, threshold
from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.forecasting.results import FitResult
from groupwise.intervals import Interval
from groupwise.plain import Plain

_POINTS = 800
_FADED = 3.0  # blocks within which a sign that flips cannot be told from one that does not
# Factor by which an envelope may miss that of its momentum before it is taken as something else.
_FOREIGN = 2.0


@dataclass(frozen=True, slots=True)
class EffectiveForce(Plain):
    """The force per update that a fitted curve has."""

    KEYS = ("force", "stiffness", "told_by=parameter", "too_fast", "status")

    force: Interval  # a
    stiffness: Interval | None  # a over the learning rate; None where that is unknown
    parameter: str  # the fitted quantity it comes from
    status: str  # a sentence
    # whether no force gives so fast a curve: the value is then a bound from below
    too_fast: bool = False


def force_of_fit(
    result: FitResult,
    momentum: float,
    *,
    refresh_interval: int = 1,
    lag: str | Lag = "refresh",
    learning_rate: float | None = None,
) -> EffectiveForce:
    r"""Return the force per update at which the matrix decays, or swings, as a fitted curve does.

    A curve that does not oscillate has it by its slow time constant; the end of an interval that is
    too fast for any force without oscillation is infinite. One that oscillates has it by its
    frequency and by its envelope; the interval covers both with theirs.

    Source: derived here (lab/docs/theory/dynamics.md).
    """
    if not 0 <= momentum < 1 or refresh_interval < 1:
        raise InvalidArgumentError(
            f"expected a momentum in [0, 1) and an interval of at least 1 update, got {momentum:g} "
            f"and {refresh_interval}"
        )
    mode = ForceOfMotion(lag, momentum, refresh_interval)
    parameters = result.parameters
    if result.law == "exponential":
        force = _of_decay(mode, "time_constant", parameters["time_constant"])
    elif result.law != "oscillator":
        raise InsufficientDataError(
            f"expected an exponential or oscillator law, got {result.law}: fit with "
            "law='oscillator'"
        )
    elif parameters["damping_ratio"].value >= 1:
        force = _of_decay(mode, "tau1", parameters["tau1"])
    elif mode.flips:
        force = _of_flips(mode, parameters["natural_frequency"], parameters["tau1"])
    else:
        force = _of_oscillation(mode, parameters["natural_frequency"], parameters["tau1"])
    if learning_rate is None or learning_rate <= 0:
        return force
    value, low, high = (
        end / learning_rate for end in (force.force.value, force.force.low, force.force.high)
    )
    return replace(force, stiffness=Interval(value, low, high, force.force.level))


class ForceOfMotion:
    """The forces at which one mode decays or swings at a given speed."""

    def __init__(self, lag: str | Lag, momentum: float, interval: int) -> None:
        self.kind = lag_by_name(lag) if isinstance(lag, str) else lag
        self.momentum, self.interval = momentum, interval
        self.period = self.kind.period(interval)
        self.limit = float(threshold(self.kind, momentum, interval))
        self.turn = meeting(self.kind, momentum, interval)
        self.onset = self._force(self.turn)

    def _force(self, eigenvalue: float) -> float:
        return float(force_of_eigenvalue(self.kind, eigenvalue, self.momentum, self.interval))

    def slow(self, time: float) -> float:
        """Return the force without oscillation that decays as exp(-1/time) an update; infinite
        where none decays so fast.
        """
        if math.isinf(time):
            return 0.0
        eigenvalue = math.exp(-self.period / time) if time > 0 else 0.0
        # The slow real eigenvalue lies between the turn, where it meets the next, and 1.
        return math.inf if eigenvalue <= self.turn else self._force(eigenvalue)

    def envelope(self, time: float) -> float:
        """Return the force beyond the onset whose oscillation decays as exp(-1/time) an update;
        the onset where none decays so fast.
        """
        if math.isinf(time):
            return self.limit
        if time <= 0 or math.exp(-self.period / time) <= self.turn:
            return self.onset
        oldest = self.interval if self.kind.name == "fixed" else 1
        decay = self.period / time
        force = self._crossing(lambda angle: -decay + 1j * angle, math.pi / oldest)
        return min(force, self.limit)

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
        return self.momentum == 0 and self.kind.name in {"none", "refresh"}

    @property
    def same_envelope(self) -> bool:
        """Whether every oscillation fades alike, whatever its force: on-policy."""
        return self.kind.name == "none" or (self.kind.name == "refresh" and self.interval == 1)

    def _crossing(self, logarithm: Callable[[Float], Any], furthest: float) -> float:
        """The force at the first angle at which it is real and positive; at the last angle,
        where the eigenvalue is negative, if none; infinite where that is not real either.
        """

        def force(angle: Float) -> Complex:
            values = np.exp(logarithm(angle))
            return np.asarray(
                force_of_eigenvalue(self.kind, values, self.momentum, self.interval),
                dtype=np.complex128,
            )

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


def _of_decay(mode: ForceOfMotion, name: str, time: Interval) -> EffectiveForce:
    """The force of a curve that does not oscillate."""
    _check_bounded(name, time)
    value, low, high = mode.slow(time.value), mode.slow(time.high), mode.slow(time.low)
    too_fast = math.isinf(value)
    value, low = (mode.onset, min(low, mode.onset)) if too_fast else (value, min(low, value))
    slowest = 4 / (1 - mode.momentum)
    more = ""
    if mode.flips and time.low < _FADED * mode.period:
        # Over within a few blocks: it may as well have flipped its sign from block to block, with a
        # force twice as large or more.
        high = max(high, *(mode.envelope(end) for end in (time.value, time.high)))
        more = (
            " Over within a few blocks it may have flipped its sign, which is a larger force: the "
            "interval covers both."
        )
    elif too_fast:
        more = (
            " No curve of this momentum falls so fast without oscillating: it is the largest force "
            "that does not, and no bound above."
        )
    elif math.isinf(high):
        more = (
            " Nothing bounds it above: the interval of the time constant reaches below what decays "
            "without oscillating."
        )
    elif time.low > slowest:
        more = (
            f" It is far from oscillating: that needs a time constant below about {slowest:.3g} "
            "updates."
        )
    status = (
        f"The curve's {name.replace('_', ' ')} of {time.value:.3g} is a force of {value:.3g} per "
        f"update.{more}"
    )
    return EffectiveForce(Interval(value, low, high, time.level), None, name, status, too_fast)


def _of_oscillation(mode: ForceOfMotion, frequency: Interval, envelope: Interval) -> EffectiveForce:
    """The force of a curve that oscillates, by its frequency and by its envelope."""
    _check_bounded("natural_frequency", frequency)
    swinging = [mode.frequency(end) for end in (frequency.value, frequency.low, frequency.high)]
    fading: list[float] = []
    faded = ""
    if not mode.same_envelope:
        ends = (envelope.value, envelope.high, max(envelope.low, 0.0))
        fading = [mode.envelope(end) for end in ends]
        faded = (
            f", its envelope of {envelope.value:.3g} updates one of {fading[0]:.3g}; the interval "
            "covers both"
        )
    elif envelope.low > _FOREIGN * -2 / math.log(mode.momentum):
        # On-policy every oscillation fades with the root of the momentum: the envelope has no
        # force, only that it is another's.
        fading = [math.inf]
        faded = (
            f"; its envelope of {envelope.value:.3g} updates is slower than momentum allows, so "
            "nothing bounds it above"
        )
    too_fast = math.isinf(swinging[0])
    if too_fast:
        faded = (
            ", which is the threshold: nothing faster settles, and nothing bounds the force above"
        )
    value = mode.limit if too_fast else swinging[0]
    status = (
        f"The curve's natural frequency of {frequency.value:.3g} is a force of {value:.3g} per "
        f"update{faded}."
    )
    low, high = min(*swinging, *fading, value), max(*swinging, *fading, value)
    force = Interval(value, low, high, frequency.level)
    return EffectiveForce(force, None, "natural_frequency", status, too_fast)


def _of_flips(mode: ForceOfMotion, frequency: Interval, envelope: Interval) -> EffectiveForce:
    """The force where a lag without momentum can only flip a sign from block to block: as slow a
    decay has two forces.
    """
    _check_bounded("natural_frequency", frequency)
    _check_bounded("tau1", envelope)
    times = (envelope.value, envelope.low, envelope.high)
    slow, flipping = [mode.slow(time) for time in times], [mode.envelope(time) for time in times]
    flipped = frequency.value * mode.period > math.pi / 2 or math.isinf(slow[0])
    value = flipping[0] if flipped else slow[0]
    status = (
        "Without momentum this lag only flips a sign, so the oscillation of the curve is not its "
        f"own: its envelope of {envelope.value:.3g} updates is a force of {slow[0]:.3g} without "
        f"flips and of {flipping[0]:.3g} with them; the interval covers both."
    )
    low, high = min(*slow, *flipping[1:], value), max(*slow[1:], *flipping[1:], value)
    return EffectiveForce(Interval(value, low, high, envelope.level), None, "tau1", status)


def _check_bounded(name: str, interval: Interval) -> None:
    """Refuse a quantity that the log does not bound."""
    positive = math.isfinite(interval.value) and interval.value > 0
    if not positive or (interval.low <= 0 and name == "natural_frequency"):
        raise InsufficientDataError(
            f"expected a bounded {name}, got {interval.low:.3g} to {interval.high:.3g}: the log is "
            "too short"
        )
