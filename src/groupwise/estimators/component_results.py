"""What an estimate of the variance components is: every quantity with its interval and its sentence, and what it was computed from.

Frozen records that turn into plain data. They estimate nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from groupwise.arrays import Float
from groupwise.estimators.group_moments import MOMENTS
from groupwise.intervals import Interval, finite_or_none, percent

QUANTITIES = ("vp", "t", "r", "gradient_norm2", "within_gradient_norm2", *MOMENTS[3:])
"""What is estimated, in the order of `Components.estimate_C`: the three components, |g|^2, E|g(X)|^2, then the other moments of groups."""

MEANING = {
    "vp": "variance of the gradient between prompts, E|g(X) - g|^2",
    "t": "variance within prompts that one rollout of the oracle would have, E T_o(X)",
    "r": "second-order part within prompts, E[S2 sigma2 + |g(X)|^2]",
    "gradient_norm2": "squared length of the gradient, |g|^2",
    "within_gradient_norm2": "mean squared length of a prompt's own gradient, E|g(X)|^2",
    "score_reward_variance": "E[S2 sigma2]",
    "score_norm2": "mean squared length of a score, E S2",
    "kappa": "E[|s|^2 e], how the length of a score goes with its reward",
    "reward_variance": "variance of the reward within a prompt, E sigma2",
    "value": "mean reward",
    "score_mean_norm2": "squared length of the scores' mean within a prompt, 0 for the policy's own scores",
}


@dataclass(frozen=True, slots=True)
class Estimate:
    """One estimated quantity.

    Example:
        >>> interval = Interval(1.3, 1.1, 1.5)
        >>> Estimate("T", "first order", interval, 0.1, 64, "T = 1.3").value
        1.3
    """

    symbol: str  # its short name
    meaning: str  # what it is, in words
    interval: Interval  # value with interval; a variance may come out negative, and is handed over as it came
    standard_error: float  # of the value, by the jackknife over prompts; not a number with fewer than three prompts
    n: int  # prompts
    status: str  # a sentence

    @property
    def value(self) -> float:
        """The estimate itself."""
        return self.interval.value

    @property
    def distinguishable(self) -> bool:
        """Whether the interval lies above zero: below it lies no variance, only chance."""
        return self.interval.low > 0

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        error = finite_or_none(self.standard_error)
        return {**self.interval.as_dict(), "standard_error": error, "n": self.n, "meaning": self.meaning, "status": self.status}


@dataclass(frozen=True, slots=True)
class Components:
    """The variance components of one policy, on one distribution of prompts.

    Args:
        vp: E|g(X) - g|^2.
        t: E T_o(X).
        r: E R(X).
        gradient_norm2: |g|^2.
        others: further quantities by name.
        group_size: the best group size with free prompts and exact division, 1 + sqrt(R/Vp), at least 1.
        prompts: groups used.
        rollouts: rollouts in them.
        left_out: rollouts in groups of fewer than four.
        method: how the intervals were made.
        zero_mean: whether the scores were taken to have mean zero, given the prompt.
        estimate_C: all quantities, in the order of `QUANTITIES`.
        covariance_CC: of those estimates.
        pseudo_PC: jackknife pseudo-values, one row a prompt; None where only sums were kept.
        notes: sentences on what to know before the numbers are used.
    """

    vp: Estimate
    t: Estimate
    r: Estimate
    gradient_norm2: Estimate
    others: dict[str, Estimate]
    group_size: Interval
    prompts: int
    rollouts: int
    left_out: int
    method: str
    zero_mean: bool
    estimate_C: Float
    covariance_CC: Float
    pseudo_PC: Float | None
    notes: tuple[str, ...]

    @property
    def level(self) -> float:
        """Coverage of the intervals."""
        return self.vp.interval.level

    @property
    def status(self) -> str:
        """What the numbers say, in one sentence."""
        interval = self.group_size
        if not math.isfinite(interval.value):
            return (
                f"The variance between prompts cannot be told from zero with {self.prompts} prompts, so no group size is too large; "
                f"at least {interval.low:.3g} pays."
            )
        upper = f"{interval.high:.3g}" if math.isfinite(interval.high) else "no upper limit"
        span = f"({interval.low:.3g} to {upper}, {percent(interval.level)})"
        return f"The best group size for a fixed number of rollouts is {interval.value:.3g} {span}."

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "vp": self.vp.as_dict(),
            "t": self.t.as_dict(),
            "r": self.r.as_dict(),
            "gradient_norm2": self.gradient_norm2.as_dict(),
            **{name: estimate.as_dict() for name, estimate in self.others.items()},
            "group_size": self.group_size.as_dict(),
            "prompts": self.prompts,
            "rollouts": self.rollouts,
            "left_out": self.left_out,
            "method": self.method,
            "zero_mean": self.zero_mean,
            "status": self.status,
            "notes": list(self.notes),
        }
