r"""From a fitted curve back to the force per update $a = \eta K$, by the exact maps, with an
interval that says what a curve cannot tell.

A decay has one reading, an oscillation two: its frequency and its envelope. Where the law is linear
they agree; far from the plateau, and on a limit cycle, they do not, and the interval covers both.
It fits no curve and judges no stability.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.forecasting.results import FitResult
from groupwise.intervals import Interval
from groupwise.plain import Plain
from groupwise.stability.lags import Complex, Float, Lag, lag_by_name
from groupwise.stability.threshold import meeting, threshold

_POINTS = 800
_FADED = 3.0  # blocks within which a sign that flips cannot be told from one that does not
# factor by which an envelope may miss the one of its momentum before it is taken as something else
_OTHERS = 2.0


@dataclass(frozen=True, slots=True)
class EffectiveForce(Plain):
    """The force per update that a fitted curve tells."""

    KEYS = ("force", "stiffness", "told_by", "too_fast", "status")

    # a, with the interval that the curve's time constant, or its frequency and its envelope, give
    # it
    force: Interval
    stiffness: Interval | None  # a over the learning rate; None where that is unknown
    told_by: str  # the fitted quantity it comes from
    status: str  # a sentence
    # whether no force at all gives so fast a curve: the value is then the largest that does not, a
    # bound and no estimate
    too_fast: bool = False


def force_of_fit(
    result: FitResult,
    momentum: float,
    *,
    refresh_interval: int = 1,
    lag: str | Lag = "refresh",
    learning_rate: float | None = None,
) -> EffectiveForce:
    r"""Return the force per update at which the exact map decays, or swings, as a fitted curve
    does.

    A curve that does not oscillate tells the force by its slow time constant; the end of an
    interval that is too fast for any force without oscillation is infinite. One that oscillates
    tells it by its frequency and by its envelope; the interval covers both with theirs.

    Source: derived here (lab/docs/theory/dynamics.md).
    """
    if not 0 <= momentum < 1 or refresh_interval < 1:
        raise InvalidArgumentError(
            f"expected a momentum in [0, 1) and an interval of at least 1 update, got {momentum:g} "
            f"and {refresh_interval}"
        )
    mode = _Mode(lag, momentum, refresh_interval)
    parameters = result.parameters
    if result.law == "exponential":
        return _by_decay(mode, "time_constant", parameters["time_constant"], learning_rate)
    if result.law != "oscillator":
        raise InsufficientDataError(
            f"expected an exponential or oscillator law, got {result.law}: fit with "
            "law='oscillator'"
        )
    if parameters["damping_ratio"].value >= 1:
        return _by_decay(mode, "tau1", parameters["tau1"], learning_rate)
    return _by_oscillation(mode, parameters["natural_frequency"], parameters["tau1"], learning_rate)


class _Mode:
    """One mode of a lag at a momentum, with the force at which it has a given decay or
    frequency.
    """

    def __init__(self, lag: str | Lag, momentum: float, interval: int) -> None:
        self.kind = lag_by_name(lag) if isinstance(lag, str) else lag
        self.momentum, self.interval = momentum, interval
        self.period = self.kind.period(interval)
        self.limit = float(threshold(self.kind, momentum, interval))
        self.turn = meeting(self.kind, momentum, interval)
        self.onset = float(self.force(self.turn))

    def force(self, eigenvalue: Any) -> Any:
        """The force at which the matrix has an eigenvalue; of a complex one it is a force where
        it is real and positive.
        """
        return self.kind.force(eigenvalue, self.momentum, self.interval)

    def slow(self, time: float) -> float:
        """The force without oscillation that decays as exp(-1/time) an update; infinite where
        none decays so fast.
        """
        if math.isinf(time):
            return 0.0
        eigenvalue = math.exp(-self.period / time) if time > 0 else 0.0
        # The slow real eigenvalue lies between the turn, where it meets the next, and 1.
        return math.inf if eigenvalue <= self.turn else float(self.force(eigenvalue))

    def envelope(self, time: float) -> float:
        """The force beyond the onset whose oscillation decays as exp(-1/time) an update; the
        onset where none decays so fast.
        """
        if math.isinf(time):
            return self.limit
        if time <= 0 or math.exp(-self.period / time) <= self.turn:
            return self.onset
        decay = self.period / time
        oldest = (
            1.0 if self.kind.by_block else max(float(self.kind.delays(self.interval)[0].max()), 1.0)
        )
        return min(
            self._crossing(
                lambda angle: -decay + 1j * angle, math.pi / oldest, otherwise=self.limit
            ),
            self.limit,
        )

    def frequency(self, frequency: float) -> float:
        """The force at which the leading eigenvalue's logarithm has this length an update;
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
        found = self._crossing(
            lambda angle: length * (-np.cos(angle) + 1j * np.sin(angle)),
            math.pi / 2,
            otherwise=math.inf,
        )
        return found if found <= self.limit * (1 + 1e-9) else math.inf

    @property
    def flips(self) -> bool:
        """Whether one number a block is the whole state, so that it can only flip its sign."""
        return self.momentum == 0 and self.kind.name in {"none", "refresh"}

    @property
    def one_envelope(self) -> bool:
        """Whether every oscillation fades alike, whatever its force: on-policy."""
        return self.kind.name == "none" or (self.kind.name == "refresh" and self.interval == 1)

    def _crossing(
        self, logarithm: Callable[[Float], Any], furthest: float, *, otherwise: float
    ) -> float:
        """The force at the first angle at which it is real and positive; at the last angle,
        where the eigenvalue is negative, if none.
        """

        def force(angle: Float) -> Complex:
            return np.asarray(self.force(np.exp(logarithm(angle))), dtype=np.complex128)

        angle = np.linspace(0, furthest, _POINTS + 1)[1:]
        seen = force(angle)
        sign = np.sign(seen.imag)
        change = np.flatnonzero(
            (sign[1:] != sign[:-1]) & (seen.real[1:] > 0) & (seen.real[:-1] > 0)
        )
        if not len(change):
            end = complex(seen[-1])
            return (
                float(end.real) if abs(end.imag) <= 1e-6 * abs(end) and end.real > 0 else otherwise
            )
        low, high, below = angle[change[0]], angle[change[0] + 1], sign[change[0]]
        for _ in range(50):
            middle = (low + high) / 2
            same = np.sign(force(np.array([middle])).imag[0]) == below
            low, high = (middle, high) if same else (low, middle)
        return float(force(np.array([(low + high) / 2])).real[0])


def _by_decay(
    mode: _Mode, name: str, time: Interval, learning_rate: float | None
) -> EffectiveForce:
    """The force of a curve that does not oscillate."""
    _bounded(name, time)
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
    return _effective(
        Interval(value, low, high, time.level), learning_rate, name, status, too_fast=too_fast
    )


def _by_oscillation(
    mode: _Mode, frequency: Interval, envelope: Interval, learning_rate: float | None
) -> EffectiveForce:
    """The force of a curve that oscillates, by its frequency and by its envelope."""
    _bounded("natural_frequency", frequency)
    if mode.flips:
        return _by_flips(mode, frequency, envelope, learning_rate)
    swinging = [mode.frequency(end) for end in (frequency.value, frequency.low, frequency.high)]
    if mode.one_envelope:
        # On-policy every oscillation fades with the root of the momentum: the envelope tells no
        # force, only that it is another's.
        own = -2 / math.log(mode.momentum)
        fading = [math.inf] if envelope.low > _OTHERS * own else []
        slower = (
            f"; its envelope of {envelope.value:.3g} updates is slower than momentum allows, so "
            "nothing bounds it above"
        )
        faded = slower if fading else ""
    else:
        fading = [
            mode.envelope(end) for end in (envelope.value, envelope.high, max(envelope.low, 0.0))
        ]
        faded = (
            f", its envelope of {envelope.value:.3g} updates one of {fading[0]:.3g}; the interval "
            "covers both"
        )
    too_fast = math.isinf(swinging[0])
    value = mode.limit if too_fast else swinging[0]
    low, high = min(*swinging, *fading, value), max(*swinging, *fading, value)
    status = (
        f"The curve's natural frequency of {frequency.value:.3g} is a force of {value:.3g} per "
        "update"
    )
    status += (
        ", which is the threshold: nothing faster settles, and nothing bounds the force above."
        if too_fast
        else f"{faded}."
    )
    return _effective(
        Interval(value, low, high, frequency.level),
        learning_rate,
        "natural_frequency",
        status,
        too_fast=too_fast,
    )


def _by_flips(
    mode: _Mode, frequency: Interval, envelope: Interval, learning_rate: float | None
) -> EffectiveForce:
    """The force where a lag without momentum can only flip a sign from block to block: as slow a
    decay has two forces.
    """
    _bounded("tau1", envelope)
    slow, flipping = mode.slow(envelope.value), mode.envelope(envelope.value)
    ends = [
        *(mode.slow(end) for end in (envelope.low, envelope.high)),
        *(mode.envelope(end) for end in (envelope.low, envelope.high)),
    ]
    value = flipping if frequency.value * mode.period > math.pi / 2 or math.isinf(slow) else slow
    status = (
        "Without momentum this lag only flips a sign, so the oscillation of the curve is not its "
        f"own: its envelope of {envelope.value:.3g} updates is a force of {slow:.3g} without flips "
        f"and of {flipping:.3g} with them; the interval covers both."
    )
    return _effective(
        Interval(value, min(*ends, slow, value), max(*ends, value), envelope.level),
        learning_rate,
        "tau1",
        status,
    )


def _bounded(name: str, interval: Interval) -> None:
    """Refuse a quantity that the log does not bound."""
    if not (
        math.isfinite(interval.value)
        and interval.value > 0
        and (interval.low > 0 or name != "natural_frequency")
    ):
        raise InsufficientDataError(
            f"expected a bounded {name}, got {interval.low:.3g} to {interval.high:.3g}: the log is "
            "too short"
        )


def _effective(
    force: Interval, learning_rate: float | None, name: str, status: str, *, too_fast: bool = False
) -> EffectiveForce:
    """Put a force together, with the stiffness where the learning rate is known."""
    stiffness = None
    if learning_rate is not None and learning_rate > 0:
        stiffness = Interval(
            force.value / learning_rate,
            force.low / learning_rate,
            force.high / learning_rate,
            force.level,
        )
    return EffectiveForce(force, stiffness, name, status, too_fast)
