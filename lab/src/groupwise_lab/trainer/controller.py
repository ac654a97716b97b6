r"""The rule of an adaptive group size, and components that are measured while a run trains.

What prompts said is kept in sums that fade, $\hat\theta = \sum_m f^{a_m} P_m\theta_m / \sum_m
f^{a_m} P_m$ with $a_m$ the age of measurement m, so that old policies count less.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from groupwise.arrays import Float
from groupwise.errors import InvalidArgumentError
from groupwise.estimators.components import Components
from groupwise.parsing import JsonView
from groupwise.plain import Plain, frozen
from groupwise_lab.trainer.decision import Decision, VarianceEstimate, decide, divisors


@frozen
class ControllerRule:
    """When a group size is given up for another."""

    # share of the gradient's error that must be gained, beyond the interval of the gain; 0.05 is 5
    # %
    threshold: float = 0.05
    # what each measurement counts when the next one comes, in [0, 1]: 0 keeps the last one only, 1
    # all alike
    fading: float = 0.8
    lowest: int = 2  # smallest group size, at least 2
    highest: int | None = None  # largest one; the whole budget where None
    level: float = 0.95  # coverage of the interval of the gain

    def __post_init__(self) -> None:
        """Refuse what is outside its domain."""
        if not (math.isfinite(self.threshold) and self.threshold >= 0):
            raise InvalidArgumentError(
                f"expected a threshold of at least 0, as 0.05 for 5 %; got {self.threshold}"
            )
        if not 0 <= self.fading <= 1:
            raise InvalidArgumentError(f"expected fading between 0 and 1; got {self.fading}")
        if not 0 < self.level < 1:
            raise InvalidArgumentError(
                f"expected a level between 0 and 1, as 0.95; got {self.level}"
            )
        if self.lowest < 2 or (self.highest is not None and self.highest < self.lowest):
            raise InvalidArgumentError(
                f"expected bounds of at least 2, the lower first; got {self.lowest} and "
                f"{self.highest}"
            )

    def sizes(self, rollouts: int) -> tuple[int, ...]:
        """Return the group sizes within the bounds that divide a number of rollouts."""
        return divisors(rollouts, self.lowest, self.highest)

    def decide(self, running: RunningComponents, present: int, rollouts: int) -> Decision:
        """Hold the present group size against the others that the rule allows."""
        return decide(
            running.estimate,
            present,
            rollouts,
            lowest=self.lowest,
            highest=self.highest,
            threshold=self.threshold,
            level=self.level,
        )


@frozen
class RunningComponents(Plain):
    r"""Sums over prompts from which Vp, T and R follow; older policies count less.

    `+` combines prompts measured at the same policy on any two machines; `faded` lets time pass.
    Source: derived here.
    """

    KEYS: ClassVar = "weight weight2 total=total_C spread=spread_CC"

    weight: float  # $W = \sum_m w_m P_m$
    weight2: float  # $\sum_m w_m^2 P_m$
    total_C: Float  # $\sum_m w_m P_m \theta_m$, of Vp, T, R
    spread_CC: Float  # $\sum_m w_m^2 P_m^2 C_m$, with $C_m$ the covariance of measurement m

    def __add__(self, other: RunningComponents) -> RunningComponents:
        """Return the sums over the prompts of both."""
        return RunningComponents(
            self.weight + other.weight,
            self.weight2 + other.weight2,
            self.total_C + other.total_C,
            self.spread_CC + other.spread_CC,
        )

    def faded(self, factor: float) -> RunningComponents:
        """Return sums in which every prompt counts `factor` of what it did."""
        return RunningComponents(
            self.weight * factor,
            self.weight2 * factor**2,
            self.total_C * factor,
            self.spread_CC * factor**2,
        )

    @property
    def estimate(self) -> VarianceEstimate:
        """Vp, T and R, with their covariance by chance alone, not how far the policy has moved.

        The prompts are as many equally new ones as would say as much: Kish's effective number.
        """
        return VarianceEstimate(
            self.total_C / self.weight,
            self.spread_CC / self.weight**2,
            self.weight**2 / self.weight2,
        )

    @classmethod
    def from_dict(cls, state: JsonView) -> RunningComponents:
        """Return what `as_dict` was taken of."""
        return cls(
            float(state["weight"]),
            float(state["weight2"]),
            np.asarray(state["total"], float),
            np.asarray(state["spread"], float),
        )


def running_components(measured: Components) -> RunningComponents:
    """Return the sums of one measurement."""
    estimate = VarianceEstimate.of(measured)
    prompts = estimate.prompts
    return RunningComponents(
        prompts, prompts, prompts * estimate.vtr, prompts**2 * estimate.covariance_CC
    )
