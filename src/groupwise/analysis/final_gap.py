"""What a plan leaves of the final gap: what noise of the gradient costs in the end, under a schedule and a curvature.

The mathematics is in `theory`; a planner that gets components in the unit of the gap needs to know nothing of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from groupwise.arrays import Float
from groupwise.estimators.best_group_size import GroupSizePlan
from groupwise.estimators.components import Components, components
from groupwise.intervals import percent
from groupwise.theory.chi_square_mixture import ChiSquareMixture
from groupwise.theory.final_gap import (
    RANK_TOLERANCE,
    CovarianceParts,
    cost_of_constant_step,
    cost_of_noise,
    limiting_gap,
    stationary_gap,
)

_MANY = 10  # times b times the largest curvature: updates after which early steps are forgotten


@dataclass(frozen=True, slots=True)
class Cost:
    """What noise of the gradient costs in the final gap, direction by direction."""

    hessian_DD: Float  # at the optimum; one by one where the curvature is one number
    matrix_DD: Float  # C of tr(C Omega), as large
    step: float  # b of steps b/i, or eta of constant ones
    constant: bool  # whether the steps are constant
    after: float | None  # the number of updates after which the gap is wanted
    parts: CovarianceParts | None  # of the covariance, where they are known

    @classmethod
    def of_constant_steps(cls, hessian_DD: Float, learning_rate: float, parts: CovarianceParts | None = None) -> Cost:
        """Return the cost of noise at a constant learning rate."""
        return cls(hessian_DD, cost_of_constant_step(hessian_DD, learning_rate), learning_rate, constant=True, after=None, parts=parts)

    @classmethod
    def of_falling_steps(
        cls, hessian_DD: Float, step_constant: float | None, after: float | None, parts: CovarianceParts | None = None
    ) -> Cost:
        """Return the cost of noise with steps b/i; without b, with that of one over the smallest curvature."""
        step = step_constant
        if step is None:
            square = hessian_DD.ndim == 2 and hessian_DD.shape[0] == hessian_DD.shape[1]
            value_D = _curvatures(hessian_DD) if square else []
            step = 1 / value_D[0] if value_D else 1.0
        return cls(hessian_DD, cost_of_noise(hessian_DD, step), step, constant=False, after=after, parts=parts)

    @property
    def isotropic(self) -> bool:
        """Whether the curvature is one number for all directions."""
        return self.hessian_DD.shape == (1, 1) and self.parts is None

    @property
    def schedule(self) -> str:
        """The steps in words."""
        return f"steps of {self.step:g}" if self.constant else f"steps of {self.step:.4g}/i"

    @property
    def unit_note(self) -> str:
        """In what unit the errors of a plan are."""
        over = "" if self.constant else " over the number of updates"
        if self.isotropic:
            return f"Errors are the gradient's; the gap is {float(self.matrix_DD[0, 0]):.4g} times them{over}, in every direction alike."
        return f"Errors are in the unit of the gap: each direction's noise counts by what it costs in the end{over}."

    def projected(self, reward_N: Float, prompt_N: Any, score_ND: Float, *, level: float) -> Components:
        """Return components in the unit of the gap: scores are turned by the root of the cost, and estimated from as ever."""
        value_D, vector_DD = np.linalg.eigh(self.matrix_DD)
        root = vector_DD * np.sqrt(np.maximum(value_D, 0.0))
        return components(reward_N, prompt_N, score_ND=score_ND @ root, level=level)


def _curvatures(hessian_DD: Float) -> list[float]:
    """Eigenvalues of minus the Hessian that are not zero, rising."""
    value_D = np.linalg.eigvalsh(-(hessian_DD + hessian_DD.T) / 2)
    return [float(value) for value in value_D if value > RANK_TOLERANCE * np.abs(value_D).max(initial=0.0)]


def final_gap(cost: Cost, plan: GroupSizePlan) -> dict[str, Any]:
    """Return what is known of the final gap under a plan, as data with its sentence."""
    held = plan if plan.present is None else plan.present
    unit = (float(cost.matrix_DD[0, 0]) if cost.isotropic else 1.0) / (cost.after or 1.0)
    prompts = plan.budget.prompts(held.group_size)
    expected = held.mse * unit
    said = f"With {held.group_size} rollouts of each of {prompts:,} prompts and {cost.schedule} the expected gap"
    if cost.constant:
        said += f" stays at {expected:.3g}"
    elif cost.after is not None:
        said += f" after {cost.after:,.10g} updates is, to leading order, {expected:.3g}"
    else:
        said += f" tends to {expected:.3g}/n after n updates"
    law: dict[str, Any] = {}
    if cost.parts is not None and plan.budget.prompt_pool is None:
        law = _law(cost, cost.parts, held.group_size, prompts)
        said += f" (90 % of runs stay below {law['quantile_90']:.3g})"
        if law["excess_over_oracle"] is not None:
            share = percent(law["excess_over_oracle"])
            said += f"; an oracle baseline would leave {law['oracle']:.3g}, so this group size costs {share}"
    notes = [*_early_steps(cost), *_flat_directions(cost, held.group_size, prompts)]
    return {
        "objective": "final-gap",
        "schedule": cost.schedule,
        "updates": cost.after,
        "group_size": held.group_size,
        "prompts": prompts,
        "expected": expected,
        "best": plan.mse * unit,
        **law,
        "sentence": " ".join((f"{said}.", *notes)),
        "notes": notes,
    }


def _law(cost: Cost, parts: CovarianceParts, group_size: int, prompts: int) -> dict[str, Any]:
    """Means and quantiles of the limiting law, and the means with an oracle and with no baseline on the same batch."""
    weights = {}
    for name in ("leave_one_out", "oracle", "fixed") if parts.offset_DD is not None else ("leave_one_out", "oracle"):
        covariance = parts.covariance(name, group_size, prompts)
        if cost.constant:
            weight = stationary_gap(cost.hessian_DD, covariance, cost.step)
        else:
            weight = limiting_gap(cost.hessian_DD, covariance, cost.step).weight_K / (cost.after or 1.0)
        weights[name] = weight[weight > 1e-14 * max(float(weight.max(initial=0.0)), 0.0)]
    found: dict[str, Any] = {name: float(weight.sum()) for name, weight in weights.items()}
    law = ChiSquareMixture(weights["leave_one_out"])
    excess = found["leave_one_out"] / found["oracle"] - 1 if found["oracle"] > 0 else None
    return found | {"quantile_90": float(law.ppf(0.9)), "quantile_99": float(law.ppf(0.99)), "excess_over_oracle": excess}


def _early_steps(cost: Cost) -> tuple[str, ...]:
    """Warn of steps b/i whose first ones undo what the law takes for granted; runs with such steps have been 36 times above it."""
    if cost.constant:
        return ()
    largest = _curvatures(cost.hessian_DD)[-1]
    reach = cost.step * largest
    early = cost.step > 2 / largest * (1 + 1e-12)
    if not early and (cost.after is None or cost.after > _MANY * reach):
        return ()
    why = f"the first step, {cost.step:.4g}, is above 2 over the largest curvature" if early else "these are few updates for such steps"
    mend = f"take steps of {cost.step:.4g}/(i + i0) with i0 of {math.ceil(2 * reach)} or more, and many more updates than i0"
    return (f"Not to be relied on as it stands: {why}, and early ones can throw a run far from where this holds; {mend}.",)


def _flat_directions(cost: Cost, group_size: int, prompts: int) -> tuple[str, ...]:
    """Say what is assumed of directions without curvature, where there are any."""
    flat = len(cost.hessian_DD) - len(_curvatures(cost.hessian_DD))
    if not flat:
        return ()
    share = ""
    if cost.parts is not None:
        _, vector_DD = np.linalg.eigh(-(cost.hessian_DD + cost.hessian_DD.T) / 2)
        noise_D = np.diag(vector_DD.T @ cost.parts.covariance("leave_one_out", group_size, prompts) @ vector_DD)
        share = f", with {percent(float(noise_D[:flat].sum() / noise_D.sum()))} of the noise," if noise_D.sum() > 0 else ""
    are = f"{flat} of {len(cost.hessian_DD)} directions have no curvature"
    return (f"{are}; noise there{share} is left out, which is right only if the curvature elsewhere does not change along them.",)
