r"""Laws of mean reward against time, as pure functions with analytic Jacobians.

Every law has the one form $r(t) = r_\infty + (r_0 - r_\infty)\, g(t; a, b)$: a decay $g$ that falls from 1 towards 0
carries the shape, and start and plateau are linear. Time is any clock that starts at 0: steps, optimiser updates, or the
integral of the learning rate. Nothing here is fitted to data; that is `fit`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from groupwise.curves.decays import (
    constant_decay,
    constant_slopes,
    exponential_decay,
    exponential_slopes,
    logistic_decay,
    logistic_slopes,
    oscillator_decay,
    oscillator_slopes,
    power_decay,
    power_slopes,
    rise_axes,
    rise_shapes,
    scalerl_decay,
    scalerl_slopes,
)
from groupwise.errors import InvalidArgumentError

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of the region in which a law's shape is sought."""

    low: float  # lowest value
    high: float  # highest value
    spans: bool = True  # whether the values count in spans of the log rather than in nothing
    # how the search spaces them. "damping" is log zeta below 1 and 1 - 1/zeta above, so that the overdamped
    # limit lies at a finite distance
    scale: Literal["log", "linear", "damping"] = "log"

    def to_search(self, value: FloatArray) -> FloatArray:
        """From values to the scale of the search."""
        if self.scale == "linear":
            return value
        if self.scale == "log":
            return np.log(value)
        return np.where(value < 1, np.log(np.minimum(value, 1.0)), 1 - 1 / np.maximum(value, 1.0))

    def from_search(self, point: FloatArray) -> FloatArray:
        """From the scale of the search to values."""
        if self.scale == "linear":
            return point
        if self.scale == "log":
            return np.exp(point)
        return np.where(point < 0, np.exp(np.minimum(point, 0.0)), 1 / (1 - np.clip(point, 0.0, 0.999)))

    def ends(self, span: float) -> tuple[float, float]:
        """Both ends in the scale of the search, for a log of this length."""
        unit = span if self.spans else 1.0
        low, high = self.to_search(np.array([self.low * unit, self.high * unit]))
        return float(low), float(high)


@dataclass(frozen=True, slots=True)
class Law:
    """A named law: its decay, its shape parameters and the region in which they are sought.

    Args:
        name: the name in reports and JSON.
        formula: the law as a person would write it.
        description: one sentence.
        shapes: names of the non-linear parameters, none to two.
        axes: the region of the search, one axis a shape; time scales are in spans of the log.
        decay: function of (t, *shape values) that returns g.
        slopes: function of (t, *shape values) that returns the derivatives of g by the shape values, stacked first.
        nodes: interpolation nodes that its sharpest shapes need.
        shapes_of: function of the axis values that returns the shape values; the axes are chosen nearly orthogonal.
        axes_of: its inverse.
        source: where the law comes from.
    """

    name: str
    formula: str
    description: str
    shapes: tuple[str, ...]
    axes: tuple[Axis, ...]
    decay: Callable[..., FloatArray]
    slopes: Callable[..., FloatArray]
    source: str
    nodes: int = 48
    shapes_of: Callable[..., tuple[FloatArray, ...]] = lambda *axes: axes
    axes_of: Callable[..., tuple[FloatArray, ...]] = lambda *shapes: shapes

    def guess(self, time_T: ArrayLike, value_T: ArrayLike) -> dict[str, float]:
        """Starting values from the data alone: the best cell of a coarse search with white noise, time 0 at the first row.

        Args:
            time_T: times, shape (T,).
            value_T: values, reward units, shape (T,).

        Returns:
            One value for each name in `parameters`.

        Example:
            >>> t = np.arange(200.0)
            >>> guess = law_by_name("exponential").guess(t, 0.8 - 0.6 * np.exp(-t / 40))
            >>> 25 < guess["time_constant"] < 60
            True
        """
        time, value = np.asarray(time_T, dtype=float), np.asarray(value_T, dtype=float)
        if not self.shapes:
            return {"plateau": float(value.mean())}
        span = float(np.ptp(time)) or 1.0
        lines = (axis.from_search(np.linspace(*axis.ends(span), 24)) for axis in self.axes)
        grids = np.meshgrid(*lines, indexing="ij")
        best: tuple[float, dict[str, float]] = (np.inf, {})
        for axes in zip(*(grid.ravel() for grid in grids), strict=True):
            shape = [float(v) for v in self.shapes_of(*axes)]
            decay = self.decay(time - time[0], *shape)
            columns = np.column_stack([1 - decay, decay])
            linear = np.linalg.lstsq(columns, value, rcond=None)[0]
            error = float(((value - columns @ linear) ** 2).sum())
            if error < best[0]:
                best = error, dict(zip(self.parameters, [*linear.tolist(), *shape], strict=True))
        return best[1]

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of all parameters, linear ones first."""
        linear = ("plateau",) if not self.shapes else ("plateau", "start")
        return linear + self.shapes

    def curve(self, time_T: ArrayLike, **parameters: float) -> FloatArray:
        """Evaluate the law.

        Args:
            time_T: times, in the unit of the shape parameters, non-negative.
            **parameters: one value for each name in `parameters`.

        Returns:
            The mean reward at each time, shape (T,).

        Raises:
            InvalidArgumentError: a parameter is missing or unknown.

        Example:
            >>> law = law_by_name("exponential")
            >>> law.curve([0.0, 1e9], plateau=0.8, start=0.2, time_constant=50.0).tolist()
            [0.2, 0.8]
        """
        time = np.asarray(time_T, dtype=float)
        self._check_names(parameters)
        if not self.shapes:
            return np.full(time.shape, parameters["plateau"])
        decay = self.decay(time, *(parameters[name] for name in self.shapes))
        return np.asarray(parameters["plateau"] * (1 - decay) + parameters["start"] * decay)

    def jacobian(self, time_T: ArrayLike, **parameters: float) -> FloatArray:
        """Derivatives of the curve by its parameters, in the order of `parameters`.

        Args:
            time_T: times, shape (T,).
            **parameters: one value for each name in `parameters`.

        Returns:
            Shape (T, number of parameters).

        Raises:
            InvalidArgumentError: a parameter is missing or unknown.

        Example:
            >>> law_by_name("constant").jacobian([0.0, 1.0], plateau=0.5).tolist()
            [[1.0], [1.0]]
        """
        time = np.asarray(time_T, dtype=float)
        self._check_names(parameters)
        if not self.shapes:
            return np.ones((time.size, 1))
        shape = tuple(parameters[name] for name in self.shapes)
        decay, derivatives = self.decay(time, *shape), self.slopes(time, *shape)
        amplitude = parameters["start"] - parameters["plateau"]
        return np.column_stack([1 - decay, decay, *(amplitude * row for row in derivatives)])

    def _check_names(self, parameters: dict[str, float]) -> None:
        if set(parameters) != set(self.parameters):
            raise InvalidArgumentError(f"the law {self.name} takes {', '.join(self.parameters)}; got {', '.join(parameters) or 'nothing'}")


LAWS: tuple[Law, ...] = (
    Law("constant", "plateau", "the reward does not move", (), (), constant_decay, constant_slopes, "the null hypothesis"),
    Law(
        "exponential",
        "plateau + (start - plateau) exp(-t / time_constant)",
        "single-exponential saturation: force without inertia",
        ("time_constant",),
        (Axis(0.005, 10.0),),
        exponential_decay,
        exponential_slopes,
        "2507.18014",
    ),
    Law(
        "oscillator",
        "plateau + (start - plateau) exp(-zeta w t) [cos(s w t) + (zeta / s) sin(s w t)], s = sqrt(1 - zeta^2)",
        "damped oscillator: inertia, damping and a restoring force",
        ("natural_frequency", "damping_ratio"),
        (Axis(0.005, 10.0), Axis(0.03, 30.0, spans=False, scale="damping")),
        oscillator_decay,
        oscillator_slopes,
        "2606.30789",
        shapes_of=rise_shapes,
        axes_of=rise_axes,
    ),
    Law(
        "logistic",
        "start + (plateau - start) / (1 + exp(-(t - midpoint) / width))",
        "sigmoid in time, the predecessor of the oscillator",
        ("midpoint", "width"),
        (Axis(-0.5, 2.0, scale="linear"), Axis(0.02, 2.0)),
        logistic_decay,
        logistic_slopes,
        "2507.18014",
        nodes=112,
    ),
    Law(
        "scalerl_sigmoid",
        "start + (plateau - start) / (1 + (midpoint / t)^exponent)",
        "sigmoid in log time, as ScaleRL fits it",
        ("midpoint", "exponent"),
        (Axis(0.005, 10.0), Axis(0.3, 10.0, spans=False)),
        scalerl_decay,
        scalerl_slopes,
        "2510.13786",
        nodes=112,
    ),
    Law(
        "power_law",
        "plateau + (start - plateau) (1 + t / time_scale)^-exponent",
        "power-law approach to the plateau",
        ("time_scale", "exponent"),
        (Axis(0.005, 10.0), Axis(0.1, 5.0, spans=False)),
        power_decay,
        power_slopes,
        "learning-curve practice",
    ),
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
    for law in LAWS:
        if law.name == name:
            return law
    raise InvalidArgumentError(f"unknown law {name!r}; the laws are {', '.join(law.name for law in LAWS)}")
