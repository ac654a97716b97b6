"""What a plan is: a budget, a curve of error over group size, the size in use held against the best, and the words for it.

Frozen records and their sentences. It computes no error and searches for no optimum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groupwise.arrays import Float
from groupwise.errors import InvalidArgumentError
from groupwise.estimators.component_results import Components
from groupwise.intervals import Interval, finite_or_none, percent

_INDIFFERENT = 0.05
_NEVER_MIND = 0.1
_MANY_TIMES = 9.0  # beyond this an excess is told as "times", not in per cent


@dataclass(frozen=True, slots=True)
class Budget:
    """What one optimiser step may cost, and what prompts and rollouts cost.

    Args:
        amount: of one step, in `unit`.
        prompt_cost: of one prompt (prefill), in `unit`.
        rollout_cost: of one rollout (decoding and training), in `unit`.
        unit: rollouts, tokens or seconds.
        prompt_pool: number of different prompts there are, of which a step draws without replacement; None for no limit.

    Example:
        >>> Budget(1024).prompts(8)
        128
    """

    amount: float
    prompt_cost: float = 0.0
    rollout_cost: float = 1.0
    unit: str = "rollouts"
    prompt_pool: int | None = None

    def __post_init__(self) -> None:
        """Check the numbers."""
        for name, value, least in (("budget", self.amount, 0.0), ("rollout cost", self.rollout_cost, 0.0)):
            if not (math.isfinite(value) and value > least):
                raise InvalidArgumentError(f"the {name} has to be a positive number; got {value}")
        if not (math.isfinite(self.prompt_cost) and self.prompt_cost >= 0):
            raise InvalidArgumentError(f"the prompt cost has to be zero or a positive number; got {self.prompt_cost}")
        if self.unit not in {"rollouts", "tokens", "seconds"}:
            raise InvalidArgumentError(f"the unit of a budget is rollouts, tokens or seconds; got {self.unit!r}")
        if self.prompt_pool is not None and self.prompt_pool < 2:
            raise InvalidArgumentError(f"a pool of prompts has at least two; got {self.prompt_pool}")
        if self.largest_group < 2:
            least_cost = self.prompt_cost + 2 * self.rollout_cost
            raise InvalidArgumentError(
                f"the budget has to pay for one prompt with two rollouts, {least_cost:g} {self.unit}; got {self.amount:g}: raise it"
            )

    @property
    def largest_group(self) -> int:
        """The largest group that one prompt could have."""
        return int(_whole(np.array((self.amount - self.prompt_cost) / self.rollout_cost)))

    def prompts(self, group_size: int) -> int:
        """Prompts a step with groups of this size."""
        return int(self.prompts_of(np.array([group_size]))[0])

    def prompts_of(self, group_size: NDArray[np.integer]) -> Float:
        """Prompts a step with groups of each of these sizes, as whole numbers."""
        prompts = _whole(self.amount / (self.prompt_cost + self.rollout_cost * group_size))
        return prompts if self.prompt_pool is None else np.minimum(prompts, self.prompt_pool)


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One group size."""

    group_size: int  # G
    prompts: int  # B that the budget pays for
    mse: float  # mean squared error of the gradient
    low: float | None = None  # lower end of its band; None without an interval of the components
    high: float | None = None  # upper end
    # share of the components' draws in which no other size is better; None without them
    probability_best: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        known = {"group_size": self.group_size, "prompts": self.prompts, "mse": self.mse}
        extra = {"low": self.low, "high": self.high, "probability_best": self.probability_best}
        return known | {name: value for name, value in extra.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Present:
    """The group size in use, held against the best."""

    group_size: int  # G in use
    prompts: int  # what the same budget pays for with it
    mse: float  # with it
    regret: Interval  # its mean squared error over the best, minus 1, with interval
    prompts_saved: int  # prompts of the best plan that could go before its error is that of this size
    gain_lost: float | None  # share of the guaranteed gain of one step that it forgoes; None where |g|^2 is unknown

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "group_size": self.group_size,
            "prompts": self.prompts,
            "mse": self.mse,
            "regret": self.regret.as_dict(),
            "prompts_saved": self.prompts_saved,
            "gain_lost": self.gain_lost,
        }


@dataclass(frozen=True, slots=True)
class GroupSizePlan:
    """The best use of a budget.

    Args:
        group_size: the best G.
        prompts: the best B.
        mse: mean squared error of the gradient with them.
        budget: what was to be spent.
        curve: error over group size.
        within_2_percent: smallest and largest G that cost at most 2 % more than the best.
        within_10_percent: the same for 10 %.
        every_size_within_10_percent: whether all sizes between those two do; where the budget divides badly, some do not.
        group_size_interval: smallest and largest G that are best for components the data allow; None without data.
        signal_to_noise: |g|^2 over the error of the best plan; None where unknown.
        present: the size in use against the best, or None.
        components: what was estimated, or None where the three numbers were given.
        notes: sentences on what to know before the plan is followed.
    """

    group_size: int
    prompts: int
    mse: float
    budget: Budget
    curve: tuple[CurvePoint, ...]
    within_2_percent: tuple[int, int]
    within_10_percent: tuple[int, int]
    every_size_within_10_percent: bool
    group_size_interval: tuple[int, int] | None
    signal_to_noise: float | None
    present: Present | None
    components: Components | None
    notes: tuple[str, ...]

    @property
    def status(self) -> str:
        """What to do, in words."""
        return " ".join(_sentences(self))

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        plain: dict[str, Any] = {
            "group_size": self.group_size,
            "prompts": self.prompts,
            "mse": self.mse,
            "curve": [point.as_dict() for point in self.curve],
            "within_2_percent": list(self.within_2_percent),
            "within_10_percent": list(self.within_10_percent),
            "every_size_within_10_percent": self.every_size_within_10_percent,
            "budget": {
                "amount": self.budget.amount,
                "unit": self.budget.unit,
                "prompt_cost": self.budget.prompt_cost,
                "rollout_cost": self.budget.rollout_cost,
                "prompt_pool": self.budget.prompt_pool,
            },
            "status": self.status,
            "notes": list(self.notes),
        }
        if self.components is not None:
            plain |= {"components": self.components.as_dict(), "signal_to_noise": finite_or_none(self.signal_to_noise or 0.0)}
        if self.group_size_interval is not None:
            plain["group_size_interval"] = list(self.group_size_interval)
        if self.present is not None:
            plain["present"] = self.present.as_dict()
        return plain


def _sentences(plan: GroupSizePlan) -> list[str]:
    """The plan in words: what is best, how flat it is, what the size in use costs, whether it matters at all."""
    said = [_best_in_words(plan), _flatness_in_words(plan)]
    if plan.group_size_interval is not None and plan.components is not None:
        first, last = plan.group_size_interval
        said.append(f"The data leave the best size between {first} and {last} ({percent(plan.components.level)}).")
    if plan.present is not None:
        said.append(_present_in_words(plan, plan.present))
    if plan.signal_to_noise is not None:
        known = plan.components is None or plan.components.gradient_norm2.distinguishable
        said.append(_signal_in_words(plan.signal_to_noise if known else 0.0))
    return said


def _best_in_words(plan: GroupSizePlan) -> str:
    """What is best."""
    where = "of one prompt" if plan.prompts == 1 else f"of each of {plan.prompts:,} prompts"
    return f"Best for {plan.budget.amount:,.10g} {plan.budget.unit}: {plan.group_size} rollouts {where}."


def _flatness_in_words(plan: GroupSizePlan) -> str:
    """How flat the optimum is. Where floor(N/G) drops a prompt a size in the middle may cost more than those around it."""
    low, high = plan.within_10_percent
    if low == high:
        return "Every other group size costs over 10 % more variance."
    if plan.every_size_within_10_percent:
        return f"Any group size from {low} to {high} costs at most 10 % more variance."
    return (
        f"The group sizes that cost at most 10 % more variance lie between {low} and {high}, but not all between do: "
        "some divide the budget badly."
    )


def _excess(regret: float) -> str:
    """An excess over the best, in per cent or as a multiple."""
    return f"{1 + regret:,.3g} times the variance of" if regret > _MANY_TIMES else f"{percent(regret)} more variance than"


def _range(regret: Interval) -> str:
    """The interval of an excess, in the unit of its value."""
    if regret.value > _MANY_TIMES or regret.high > 10 * _MANY_TIMES:
        return f"{1 + regret.low:,.3g} to {1 + regret.high:,.3g} times"
    return f"{percent(regret.low)} to {percent(regret.high)}"


def _present_in_words(plan: GroupSizePlan, present: Present) -> str:
    """What the group size in use costs beside the best."""
    regret = present.regret
    if present.group_size == plan.group_size:
        return f"The present size, {present.group_size}, is the best one."
    if plan.mse == 0:
        best = f"the best, {plan.group_size}, takes all prompts and leaves none"
        return f"G = {present.group_size} leaves an error of {present.mse:.3g}; {best}."
    cost = f"G = {present.group_size} costs {_excess(regret.value)} the best, {plan.group_size}"
    if regret.bounded and regret.high > regret.low:
        cost += f" ({_range(regret)})"
    # A doubled batch halves the variance: that is what the regret is to be measured by.
    if regret.value <= _INDIFFERENT:
        return cost + "; doubling the batch would cut it by half: do not bother."
    saved = f"the best size reaches the same error with {plan.prompts - present.prompts_saved:,} of its {plan.prompts:,} prompts"
    return cost + f"; {saved}" + ("." if regret.value > _NEVER_MIND else ", little beside the half that doubling the batch would cut.")


def _signal_in_words(signal: float) -> str:
    """Whether the group size matters at this budget."""
    if signal <= 0:
        return "The squared gradient cannot be told from zero: more prompts would tell whether the batch is large enough."
    if math.isinf(signal):
        return "The batch has no error: it takes every prompt of the pool, and nothing is left to chance."
    if signal > 1 / _NEVER_MIND:
        return f"The squared gradient is {signal:.3g} times the batch's error: at this budget the group size no longer matters."
    return f"The batch's error is {1 / signal:.3g} times the squared gradient: the noise still limits each step."


def _whole(ratio: NDArray[np.floating]) -> Float:
    """Round down, but not for a rounding error: 0.3/0.1 is 2.9999999999999996, and a budget that divides evenly loses no prompt to that."""
    whole: Float = np.floor(ratio + np.minimum(ratio * 1e-12, 1e-6)).astype(np.float64)
    return whole
