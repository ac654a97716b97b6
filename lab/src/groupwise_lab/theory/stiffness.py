r"""Stiffness measured on its own: kick the parameters and regress, or let a kick relax; no fitted
training curve is needed.

Anything with parameters, a mean reward and an expected step can be measured: a bandit whose
expectation is exact, or a trainer that averages many batches. It trains nothing and decides nothing
about stability.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Protocol

import numpy as np

from groupwise.arrays import Float
from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.intervals import Interval, student_quantile
from groupwise.plain import frozen


class Trainable(Protocol):
    """What can be measured: a policy at whatever parameters one asks for."""

    def mean_reward(self, parameter_D: Float) -> float:
        """The mean reward, reward units; exact or an average."""

    def expected_step(self, parameter_D: Float) -> Float:
        """The direction of the update, the step divided by the learning rate; exact or an
        average.
        """


@frozen
class MeasuredStiffness:
    """The stiffness of the reward mode at one point."""

    stiffness: Interval  # K, per unit of learning rate and update, with interval
    n: int  # kicks, or points of the relaxation
    status: str  # a sentence


def kicked_stiffness(
    world: Trainable,
    parameter_D: Float,
    rng: np.random.Generator,
    *,
    kicks: int = 16,
    size: float = 0.05,
    directions: Float | None = None,
    level: float = 0.95,
) -> MeasuredStiffness:
    r"""Kick the parameters, regress the reward's drift on the reward: $E[dr/dt] = -\eta K (r -
    r^*)$.

    Kicks come in opposite pairs, so that curvature of the reward cancels to first order; the drift
    is the change of the reward along a short piece of the expected step. Each reward is asked for
    twice, one as instrument for the other: noise in an averaged reward would otherwise pull the
    slope towards zero.

    Source: derived here (lab/docs/theory/dynamics.md).
    """
    if kicks < 4 or not size > 0:
        raise InvalidArgumentError(
            f"expected at least 4 kicks of a positive size, got {kicks} of {size}"
        )
    point = np.asarray(parameter_D, dtype=np.float64)
    if directions is not None and (
        np.ndim(directions) != 2 or np.shape(directions)[1] != len(point)
    ):
        raise InvalidArgumentError(
            f"expected directions as rows of {len(point)} numbers, got shape {np.shape(directions)}"
        )
    unit = (
        rng.standard_normal((kicks // 2, len(point)))
        if directions is None
        else np.asarray(directions, dtype=np.float64)
    )
    unit = unit / np.linalg.norm(unit, axis=1, keepdims=True)
    reward, again, drift = np.array(
        [
            _kicked(world, point + size * direction, size)
            for direction in np.concatenate([unit, -unit])
        ]
    ).T
    return _from_regression(reward, drift, again, level)


def _kicked(world: Trainable, place: Float, size: float) -> tuple[float, float, float]:
    """The reward at a kicked place, asked for twice, and its drift along a short piece of the
    expected step.
    """
    step = world.expected_step(place)
    # A tenth of a kick is short enough for the reward to be straight along it, and long enough to
    # be seen.
    scale = 0.1 * size / max(float(np.linalg.norm(step)), 1e-300)
    reward, again = world.mean_reward(place), world.mean_reward(place)
    return (
        reward,
        again,
        (world.mean_reward(place + scale * step) - world.mean_reward(place - scale * step))
        / (2 * scale),
    )


def _from_regression(
    reward: Float, drift: Float, instrument: Float, level: float
) -> MeasuredStiffness:
    """Minus the slope of drift against reward, with a second measurement of the reward as
    instrument.
    """
    if not (np.isfinite(reward).all() and np.isfinite(drift).all()):
        raise InvalidArgumentError(
            "expected finite rewards and steps: what was measured is not a number"
        )
    x, y, z = reward - reward.mean(), drift - drift.mean(), instrument - instrument.mean()
    spread = float(z @ x)
    if spread <= 1e-24 * len(x) * (1 + float(np.abs(reward).max())) ** 2:
        raise InsufficientDataError(
            "expected a reward that changes with the kicks, got a flat one: at an unconstrained "
            "maximum it is quadratic"
        )
    slope = float(z @ y) / spread
    residual = y - slope * x
    error = math.sqrt(float(residual @ residual) / max(len(x) - 2, 1) * float(z @ z)) / spread
    half = student_quantile(level, max(len(x) - 2, 1)) * error
    measured = _measured(-slope, half, level, f"{len(x)} kicks", len(x))
    if slope < 0:
        return measured
    return replace(
        measured,
        status=(
            f"{measured.status} It is not positive: nothing restores the reward here, so no "
            "threshold follows."
        ),
    )


def _measured(value: float, half: float, level: float, source: str, n: int) -> MeasuredStiffness:
    """A stiffness with its interval and its sentence."""
    status = f"K = {value:.4g} ({value - half:.4g} to {value + half:.4g}) from {source}."
    return MeasuredStiffness(Interval(value, value - half, value + half, level), n, status)


def relaxed_stiffness(
    world: Trainable,
    parameter_D: Float,
    *,
    learning_rate: float,
    plateau: float,
    updates: int = 200,
    level: float = 0.95,
) -> MeasuredStiffness:
    r"""Let a displaced policy relax by plain expected steps and read the slope of its logarithm,
    $-\eta K$ at first order.

    Without momentum and lag $x_{t+1} = (1 - \eta K)x_t$, which is used exactly, and continued to a
    gap of zero. The interval holds what the bend of the landscape leaves in doubt; start near the
    plateau, or leave time to reach it, and it is narrow.

    Source: derived here (lab/docs/theory/dynamics.md).
    """
    if not learning_rate > 0 or updates < 10:
        raise InvalidArgumentError(
            f"expected a positive learning rate and at least 10 updates, got {learning_rate} and "
            f"{updates}"
        )
    point = np.array(parameter_D, dtype=np.float64)
    gaps = [world.mean_reward(point) - plateau]
    for _ in range(updates):
        point = point + learning_rate * world.expected_step(point)
        gaps.append(world.mean_reward(point) - plateau)
    gap = np.array(gaps)
    # What has relaxed to a hundred-thousandth of the start is rounding and other modes.
    seen = np.abs(gap) > 1e-5 * abs(gap[0])
    last = int(np.argmin(seen)) if not seen.all() else len(gap)
    if abs(gap[0]) < 1e-12 or last < 10:
        raise InsufficientDataError(
            "expected a reward away from its plateau for some updates, got one that is there at "
            "once: displace it more"
        )
    # The late half belongs to the slowest mode. There the rate is eta K and a term that goes with
    # the gap, because the landscape bends: a line and a parabola through the rates say what is left
    # at no gap, and how far that is in doubt.
    late = gap[last // 2 : last]
    if (gap * gap[0] < -1e-3 * gap[0] ** 2).any():
        raise InsufficientDataError(
            "expected a reward that nears its plateau from one side, got one that crosses it: kick "
            "along one mode, or average more"
        )
    rate, size = (1 - late[1:] / late[:-1]) / learning_rate, late[:-1] / np.abs(late).max()
    (line, _), (value, error) = (_at_no_gap(size, rate, degree) for degree in (1, 2))
    half = student_quantile(level, max(len(rate) - 3, 1)) * error + abs(value - line)
    return _measured(value, half, level, f"{len(rate)} updates of relaxation", len(rate))


def _at_no_gap(size: Float, rate: Float, degree: int) -> tuple[float, float]:
    """The value at zero of a polynomial through the rates, and its standard error."""
    columns = np.vander(size, degree + 1, increasing=True)
    inverse = np.linalg.pinv(columns)
    coefficient = inverse @ rate
    residual = rate - columns @ coefficient
    spread = math.sqrt(float(residual @ residual) / max(len(rate) - degree - 1, 1))
    return float(coefficient[0]), spread * float(np.linalg.norm(inverse[0]))
