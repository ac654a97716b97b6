r"""The controller: whether a run should go on with the group size it has, from components that are
measured while it trains.

What prompts said is kept in sums that fade, $\hat\theta = \sum_m f^{a_m} P_m\theta_m / \sum_m
f^{a_m} P_m$ with $a_m$ the age of measurement m, so that old policies count less. The size changes
only where the present one's error exceeds another's by more than a threshold, even at the lower end
of the interval. It measures nothing, trains nothing, and changes no learning rate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from groupwise.arrays import Float
from groupwise.errors import InvalidArgumentError
from groupwise.estimators.best_group_size import Budget, error_of, weights_of
from groupwise.estimators.components import Components
from groupwise.intervals import Interval, percent, ratio_interval, student_quantile
from groupwise.plain import Plain


@dataclass(frozen=True, slots=True)
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
        """Return the group sizes within the bounds that divide a budget, so that its number of
        rollouts stays what it is.
        """
        highest = rollouts if self.highest is None else min(self.highest, rollouts)
        return tuple(size for size in range(self.lowest, highest + 1) if rollouts % size == 0)


@dataclass(frozen=True, slots=True)
class RunningComponents(Plain):
    r"""Sums over prompts from which Vp, T and R follow with their covariance, older policies
    counting less.

    `+` combines prompts measured at the same policy on any two machines; `faded` lets time pass.
    Source: derived here.
    """

    KEYS: ClassVar = ("weight", "weight2", "total=total_C", "spread=spread_CC")

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
    def estimate_C(self) -> Float:  # noqa: N802
        """Vp, T and R; a variance may come out negative."""
        return self.total_C / self.weight

    @property
    def covariance_CC(self) -> Float:  # noqa: N802
        """Of the estimate: chance alone, not how far the policy has moved since."""
        return self.spread_CC / self.weight**2

    @property
    def prompts(self) -> float:
        """How many equally new prompts would say as much (Kish's effective number)."""
        return self.weight**2 / self.weight2

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> RunningComponents:
        """Return what `as_dict` was taken of."""
        return cls(
            float(given["weight"]),
            float(given["weight2"]),
            np.asarray(given["total"], float),
            np.asarray(given["spread"], float),
        )


def running_components(found: Components) -> RunningComponents:
    """Return the sums of one measurement."""
    if found.prompts < 3:
        raise InvalidArgumentError(
            f"expected at least three prompts with four rollouts each, got {found.prompts}: "
            "measure more"
        )
    prompts = float(found.prompts)
    return RunningComponents(
        prompts, prompts, prompts * found.vtr, prompts**2 * found.vtr_covariance
    )


@dataclass(frozen=True, slots=True)
class Decision(Plain):
    """What a look at the running components led to."""

    KEYS: ClassVar = (
        "group_size",
        "prompts",
        "present",
        "best",
        "excess",
        "vp",
        "t",
        "r",
        "measured_prompts=measured",
        "reason",
    )

    group_size: int  # to go on with
    prompts: int  # a step, with it
    present: int  # group size before
    best: int  # group size of least predicted error among those allowed
    # error of the present size over that of the one to change to, or of the best, minus 1; the
    # interval is of chance alone
    excess: Interval
    vp: float  # as measured
    t: float  # as measured
    r: float  # as measured
    measured: float  # effective number of prompts behind them
    reason: str  # a sentence

    @property
    def changes(self) -> bool:
        """Whether the group size is to change."""
        return self.group_size != self.present


def decide(
    running: RunningComponents, present: int, rollouts: int, rule: ControllerRule | None = None
) -> Decision:
    r"""Hold the present group size against every other at the same number of rollouts.

    The error is $(V_p + T/G + R/(G(G-1)))/B$ with $BG = N$. A size may be taken where the lower end
    of the interval of the present size's error over its own lies above the threshold: that of least
    error where it is among them, otherwise that of the highest lower end. Where Vp cannot be told
    from zero that end is Fieller's, so that no huge group is taken because nothing spoke against
    it.

    Source: the error is derived in lab/docs/theory/gradient.md; the rule is ours.
    """
    rule = ControllerRule() if rule is None else rule
    sizes = rule.sizes(rollouts)
    if present not in sizes:
        raise InvalidArgumentError(
            f"expected a group size within {rule.lowest} and {rule.highest or rollouts} that "
            f"divides {rollouts}, got {present}: widen the bounds, or begin with another"
        )
    estimate, others = running.estimate_C, [size for size in sizes if size != present]
    vp, t, r = (float(value) for value in estimate)
    error = error_of(np.maximum(estimate, 0.0), np.array(sizes), Budget(rollouts))
    best = sizes[int(np.argmin(error))]
    excesses = {size: _excess(running, present, size, rollouts, rule.level) for size in others}
    sure = [size for size in others if excesses[size].low > rule.threshold]
    size = best if best in sure else max(sure, key=lambda size: excesses[size].low, default=present)
    held = size if size != present else best
    excess = excesses.get(held, Interval(0.0, 0.0, 0.0, rule.level))
    reason = (
        _reason(present, best, size, rollouts, excess, rule)
        if error.any()
        else f"No component is above zero: stay with {present}."
    )
    return Decision(
        size, rollouts // size, present, best, excess, vp, t, r, running.prompts, reason
    )


def _excess(
    running: RunningComponents, present: int, other: int, rollouts: int, level: float
) -> Interval:
    """Error of the present size over that of another, minus 1: components below zero count as
    zero in the value, not in the interval.
    """
    weight_CM = weights_of(np.array([present, other]), Budget(rollouts))
    own, theirs = (np.maximum(running.estimate_C, 0.0) @ weight_CM).tolist()
    value = own / theirs - 1 if theirs > 0 else 0.0 if own == 0 else math.inf
    raw_own, raw_theirs = (running.estimate_C @ weight_CM).tolist()
    quantile = student_quantile(level, max(running.prompts - 1, 1.0))
    found = ratio_interval(
        raw_own, raw_theirs, weight_CM.T @ running.covariance_CC @ weight_CM, quantile, level=level
    )
    return Interval(value, min(found.low - 1, value), max(found.high - 1, value), level)


def _reason(
    present: int, best: int, size: int, rollouts: int, excess: Interval, rule: ControllerRule
) -> str:
    """The decision in a sentence."""
    if size == best == present:
        return f"G = {present} has the least predicted error of the sizes allowed: stay."
    upper = f"{1 + excess.high:.3g} times" if excess.bounded else "no limit"
    span = f"{1 + excess.low:.3g} to {upper}, {percent(excess.level)}"
    held = (
        f"G = {present} has {1 + excess.value:.3g} times the error of G = "
        f"{best if size == present else size} ({span})"
    )
    if size == present:
        return (
            f"{held}: stay, for nothing beyond the threshold of {percent(rule.threshold)} is sure "
            "to be gained."
        )
    beside = "" if size == best else f"; the least error is predicted for {best}, less surely"
    return f"{held}: change to {size}, with {rollouts // size} prompts a step{beside}."
