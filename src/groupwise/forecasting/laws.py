r"""Laws of mean reward against time, as pure functions with analytic derivatives.

Every law has the one form $r(t) = r_\infty + (r_0 - r_\infty)\, g(t; a, b)$: a decay $g$ that falls
from 1 towards 0 carries the shape, and start and plateau are linear. Time is any clock that starts
at 0: steps, optimiser updates, or the integral of the learning rate; the half update of the
oscillator counts on updates. First every $g$ with its
slopes by the shape values, then the laws with the region in which their shapes are sought. Nothing
here is fitted to data; that is `fit`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from groupwise.arrays import Ends, Float, floats
from groupwise.errors import InvalidArgumentError, named
from groupwise.files import table_rows
from groupwise.plain import Words, frozen

Values = Any
"""A number, or an array of them."""


def exponential_decay(t: Values, tau: Values) -> Float:
    r"""$g = e^{-t/\tau}$: the overdamped limit, force without inertia.

    Source: saturation law of 2507.18014.
    """
    return np.asarray(np.exp(-t / tau))


def exponential_slopes(t: Values, tau: Values) -> Float:
    """Derivative by the time constant."""
    return np.asarray((np.exp(-t / tau) * t / tau**2)[None])


def logistic_decay(t: Values, t0: Values, w: Values) -> Float:
    r"""$g = 1/(1 + e^{(t - t_0)/w})$: the predecessor's sigmoid in time; its start is the level
    long before $t_0$.

    Source: 2507.18014, R = alpha r_init + beta s + gamma / (1 + exp(-delta (t - t0))).
    """
    return np.asarray(1 / (1 + np.exp(np.clip((t - t0) / w, -500, 500))))


def logistic_slopes(t: Values, t0: Values, w: Values) -> Float:
    """Derivatives by midpoint and width."""
    g = logistic_decay(t, t0, w)
    slope = g * (1 - g) / w
    return np.stack([slope, slope * (t - t0) / w])


def scalerl_decay(t: Values, mid: Values, b: Values) -> Float:
    r"""$g = 1/(1 + (t/t_{mid})^B)$: ScaleRL's sigmoid in log time.

    Source: 2510.13786, R_C - R_0 = (A - R_0) / (1 + (C_mid / C)^B).
    """
    return logistic_decay(np.log(np.maximum(t, 1e-300)), np.log(mid), 1 / b)


def scalerl_slopes(t: Values, mid: Values, b: Values) -> Float:
    """Derivatives by midpoint and exponent."""
    by_log, by_width = logistic_slopes(np.log(np.maximum(t, 1e-300)), np.log(mid), 1 / b)
    return np.stack([by_log / mid, -by_width / b**2])


def power_decay(t: Values, ts: Values, b: Values) -> Float:
    r"""$g = (1 + t/t_s)^{-B}$: the usual learning-curve power law, shifted so that it starts at
    a finite value.
    """
    return np.asarray(np.exp(-b * np.log1p(t / ts)))


def power_slopes(t: Values, ts: Values, b: Values) -> Float:
    """Derivatives by time scale and exponent."""
    g = power_decay(t, ts, b)
    return np.stack([g * b * t / (ts * (ts + t)), -g * np.log1p(t / ts)])


def oscillator_decay(t: Values, omega: Values, zeta: Values, update: float = 0.0) -> Float:
    r"""Step response of the damped oscillator, one law through under-, critical and overdamped.

    $h'' + 2\zeta\omega h' + \omega^2 h = 0,\; h(0) = 1,\; h'(0) = 0$, hence
    $h = e^{-\zeta z}[\cos s z + (\zeta/s)\sin s z]$, $z = \omega t$, $s = \sqrt{1 - \zeta^2}$
    (hyperbolic for $\zeta > 1$). A recursion whose level is the same at updates -1 and 0 is at rest
    half an update before 0: $g(t) = h(t + u/2)/h(u/2)$ with updates of length u, at most
    $1/\omega$.

    Source: 2606.30789 (m r'' + gamma r' + k (r - r*) = 0); the form without cancellation and the
    half update are derived by us.
    """
    rest = np.minimum(omega * update, 1.0) / 2
    (cosine, sine), (first, second) = (
        _entire_pair(z, zeta) for z in (omega * t + rest, np.asarray(rest))
    )
    return np.asarray((cosine + zeta * sine) / (first + zeta * second))


def oscillator_slopes(t: Values, omega: Values, zeta: Values, update: float = 0.0) -> Float:
    r"""Derivatives of `oscillator_decay` by frequency and damping ratio.

    $\partial h/\partial z = -e^{-\zeta z}\sin(sz)/s$;
    $\partial h/\partial\zeta = e^{-\zeta z}[\sin(sz)/s - z\cos(sz)]/(1-\zeta^2)$, a power series
    near $\zeta = 1$. Derived by us.
    """
    rest, moved = np.minimum(omega * update, 1.0) / 2, np.where(omega * update < 1, update / 2, 0)
    decay = oscillator_decay(t, omega, zeta, update)
    late, first = (_slopes(z, zeta) for z in (omega * t + rest, np.asarray(rest)))
    by_omega = late[0] * (t + moved) - decay * first[0] * moved
    by_zeta = late[1] - decay * first[1]
    return np.stack([by_omega, by_zeta]) / oscillator_decay(rest, 1.0, zeta)


def _slopes(z: Values, zeta: Values) -> tuple[Float, Float]:
    """Derivatives of the step response by z and by the damping ratio."""
    cosine, sine = _entire_pair(z, zeta)
    x = (1 - zeta * zeta) * z * z
    near = np.abs(x) < 0.5
    direct = (sine - z * cosine) / np.where(near, 1.0, 1 - zeta * zeta)
    return -sine, np.where(near, np.exp(-zeta * z) * z**3 * _series(np.where(near, x, 0.0)), direct)


def _entire_pair(z: Values, zeta: Values) -> tuple[Float, Float]:
    """Return e^{-zeta z} cos(s z) and e^{-zeta z} sin(s z)/s for any damping ratios.

    Both are written in the decaying exponentials of the two (complex) rates: nothing overflows, and
    nothing cancels near critical damping.
    """
    root = np.sqrt(np.asarray(zeta * zeta - 1, dtype=complex))
    root = np.where(np.abs(root) < 1e-8, 1e-8, root)
    slow, fast = np.exp(-z / (zeta + root)), np.expm1(-2 * z * root)
    return (slow * (1 + 0.5 * fast)).real, (slow * fast * (-0.5 / root)).real


def _series(x: Float) -> Float:
    """Sum of 2k (-x)^(k-1) / (2k+1)! over k >= 1: (S - z C) / ((1 - zeta^2) z^3) near x = (1 -
    zeta^2) z^2 = 0.
    """
    total = np.full(x.shape, 0.0)
    for k in range(9, 0, -1):
        total = 2 * k / math.factorial(2 * k + 1) - x * total
    return total


def echo(time_M: Float, omega: float, zeta: float) -> Float:
    r"""Covariance of what white shocks of the velocity have done to an oscillator since it was at
    rest at time 0, as a share of the variance that this comes to.

    It is $h(|t-t'|) - h(t)h(t') - h'(t)h'(t')/\omega^2$: of a swing that has always been shocked,
    whose correlation is its own step response, less what comes from before. Derived by us.
    """
    always = oscillator_decay(np.abs(time_M[:, None] - time_M), omega, zeta)
    before = oscillator_decay(time_M, omega, zeta), _slopes(omega * time_M, zeta)[0]
    return always - sum(np.outer(part, part) for part in before)


def oscillator_shapes(rise: Values, zeta: Values) -> tuple[Float, ...]:
    """Frequency and damping ratio from the rise time (1 + 2 zeta)/omega, which the data fix well
    in every regime; its own inverse.
    """
    return (1 + 2 * zeta) / rise, zeta


def oscillator_quantities(natural_frequency: Float, damping_ratio: Float) -> dict[str, Float]:
    r"""Time constants, period, overshoot and inflection of the oscillator.

    $\tau_{1,2} = 1/(\omega(\zeta \mp \sqrt{\zeta^2-1}))$, both $1/(\zeta\omega)$ when underdamped;
    period $2\pi/(\omega\sqrt{1-\zeta^2})$ and overshoot $e^{-\pi\zeta/\sqrt{1-\zeta^2}}$, infinite
    and 0 when overdamped. The slope is steepest at $\ln(\tau_1/\tau_2)/(1/\tau_2-1/\tau_1)$, at
    $\arccos(\zeta)/(\omega\sqrt{1-\zeta^2})$ when underdamped.

    Source: 2606.30789's closed forms; tau of the underdamped envelope is our continuation.
    """
    omega, zeta = natural_frequency, damping_ratio
    root = np.sqrt(np.maximum(zeta**2 - 1, 0.0))
    under = zeta < 1
    swing = np.sqrt(np.where(under, 1 - zeta**2, 1.0))
    # Both branches tend to 1/omega at critical damping, where each is 0/0.
    gap = np.maximum(2 * root, 1e-8)
    late = np.where(root > 1e-6, 2 * np.arcsinh(root) / gap, 1.0)
    early = np.where(swing > 1e-6, np.arccos(np.minimum(zeta, 1.0)) / np.maximum(swing, 1e-8), 1.0)
    return {
        "tau1": (zeta + root) / omega / np.where(under, zeta**2, 1.0),
        "tau2": 1 / (omega * (zeta + root)),
        "period": np.where(under, 2 * np.pi / (omega * swing), np.inf),
        "overshoot": np.where(under, np.exp(-np.pi * zeta / swing), 0.0),
        "inflection": np.where(under, early, late) / omega,
    }


@frozen
class ShapeAxis:
    """One axis of the region in which a law's shape is sought."""

    low: float
    high: float
    spans: bool  # whether the values count in spans of the log rather than in nothing
    # How the search spaces them. "damping" is log zeta below 1 and 1 - 1/zeta above: the overdamped
    # limit lies at a finite distance.
    scale: str

    def to_search(self, value: Float) -> Float:
        """From values to the scale of the search."""
        if self.scale == "linear":
            return value
        if self.scale == "log":
            return np.log(value)
        return np.where(value < 1, np.log(np.minimum(value, 1.0)), 1 - 1 / np.maximum(value, 1.0))

    def from_search(self, point: Float) -> Float:
        """From the scale of the search to values."""
        if self.scale == "linear":
            return point
        if self.scale == "log":
            return np.exp(point)
        return np.where(
            point < 0, np.exp(np.minimum(point, 0.0)), 1 / (1 - np.clip(point, 0.0, 0.999))
        )

    def ends(self, span: float) -> Ends:
        """Both ends in the scale of the search, for a log of this length."""
        unit = span if self.spans else 1.0
        low, high = self.to_search(np.array([self.low * unit, self.high * unit]))
        return float(low), float(high)


@cache
def _region(law: str) -> dict[str, ShapeAxis]:
    """Return the shapes of a law with the region in which each is sought (`shapes.tsv`)."""
    return {
        row["shape"]: ShapeAxis(
            float(row["low"]), float(row["high"]), bool(row["spans"]), row["scale"]
        )
        for row in table_rows("forecasting/shapes.tsv")
        if row["law"] == law
    }


@frozen
class Law:
    """A named law: its decay; the table has its shape parameters and where they are sought.

    Args:
        name: the name in reports, in JSON and in `shapes.tsv`.
        decay: function of (t, *shape values) that returns g.
        slopes: function of (t, *shape values) that returns the derivatives of g by the shape
            values, stacked first.
        nodes: interpolation nodes that its sharpest shapes need.
        shapes_of: function of the axis values that returns the shape values; the axes are chosen
            nearly orthogonal.
    """

    name: str
    decay: Callable[..., Float]
    slopes: Callable[..., Float]
    nodes: int = 48
    shapes_of: Callable[..., tuple[Float, ...]] = lambda *axes: axes

    @property
    def shapes(self) -> Words:
        """Names of the non-linear parameters, none to two."""
        return tuple(_region(self.name))

    @property
    def axes(self) -> tuple[ShapeAxis, ...]:
        """The region of the search, one axis a shape; time scales are in spans of the log."""
        return tuple(_region(self.name).values())

    @property
    def parameters(self) -> Words:
        """Names of all parameters, linear ones first."""
        linear = ("plateau",) if not self.shapes else ("plateau", "start")
        return linear + self.shapes

    def curve(self, time_T: ArrayLike, **parameters: float) -> Float:
        """Return the mean reward at each time, from one value for each name in `parameters`.

        Example:
            >>> law = law_by_name("exponential")
            >>> law.curve([0.0, 1e9], plateau=0.8, start=0.2, time_constant=50.0).tolist()
            [0.2, 0.8]
        """
        time, shape = floats(time_T), self._shape(parameters)
        if not self.shapes:
            return np.full(time.shape, parameters["plateau"])
        decay = self.decay(time, *shape)
        return parameters["plateau"] * (1 - decay) + parameters["start"] * decay

    def jacobian(self, time_T: ArrayLike, **parameters: float) -> Float:
        """Return the derivatives of the curve by its parameters, a row a time and a column for
        each name in `parameters`.
        """
        time, shape = floats(time_T), self._shape(parameters)
        if not self.shapes:
            return np.ones((time.size, 1))
        decay, derivatives = self.decay(time, *shape), self.slopes(time, *shape)
        amplitude = parameters["start"] - parameters["plateau"]
        return np.column_stack([1 - decay, decay, *(amplitude * row for row in derivatives)])

    def by_rows(self, gap: float) -> Law:
        """The law on a clock that is none of updates, whose rows lie closer than they do: each is
        an update.
        """
        if self.name != "oscillator" or gap >= 1:
            return self
        slopes = partial(oscillator_slopes, update=gap)
        return replace(self, decay=partial(oscillator_decay, update=gap), slopes=slopes)

    def _shape(self, parameters: dict[str, float]) -> list[float]:
        """The values of the shape; raises where a parameter is missing or unknown."""
        if set(parameters) != set(self.parameters):
            raise InvalidArgumentError(
                f"the law {self.name} takes {', '.join(self.parameters)}; got "
                f"{', '.join(parameters) or 'nothing'}"
            )
        return [parameters[name] for name in self.shapes]


LAWS: tuple[Law, ...] = (
    # The reward does not move: the null hypothesis.
    Law(
        "constant",
        lambda time: np.zeros(np.shape(time)),
        lambda time: np.zeros((0, *np.shape(time))),
    ),
    # Force without inertia (2507.18014):
    # plateau + (start - plateau) exp(-t / time_constant)
    Law("exponential", exponential_decay, exponential_slopes),
    # Inertia, damping and a restoring force (2606.30789), t in updates:
    # plateau + (start - plateau) h(t + 1/2) / h(1/2),
    # h(t) = exp(-zeta w t) [cos(s w t) + (zeta / s) sin(s w t)], s = sqrt(1 - zeta^2)
    Law(
        "oscillator",
        partial(oscillator_decay, update=1.0),
        partial(oscillator_slopes, update=1.0),
        shapes_of=oscillator_shapes,
    ),
    # Sigmoid in time, the predecessor of the oscillator (2507.18014):
    # start + (plateau - start) / (1 + exp(-(t - midpoint) / width))
    Law("logistic", logistic_decay, logistic_slopes, nodes=112),
    # Sigmoid in log time, as ScaleRL fits it (2510.13786):
    # start + (plateau - start) / (1 + (midpoint / t)^exponent)
    Law("scalerl_sigmoid", scalerl_decay, scalerl_slopes, nodes=112),
    # Power-law approach to the plateau, of learning curves:
    # plateau + (start - plateau) (1 + t / time_scale)^-exponent
    Law("power_law", power_decay, power_slopes),
)


def law_by_name(name: str) -> Law:
    """Find a law in `LAWS`.

    Args:
        name: its name.

    Returns:
        The law.

    Raises:
        InvalidArgumentError: no law has this name.

    Example:
        >>> law_by_name("oscillator").parameters
        ('plateau', 'start', 'natural_frequency', 'damping_ratio')
    """
    return named(name, LAWS, "a law")
