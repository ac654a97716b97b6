r"""Advantages of rollouts, one function for each baseline, and the registry of them all.

Every function takes `reward_PG`, a row a prompt, or `reward_N` with a prompt label a rollout (then
groups may differ in size), as a NumPy array or a torch tensor, and returns the same shape, kind,
precision and device. "Unbiased" in the registry means that $\frac1P\sum_p \frac1{G_p}\sum_i
A_{pi}\, s_{pi}$ has the policy gradient as its mean, given the prompts, whatever the rewards are.
What other trainers compute is in `groupwise_lab.trainer.presets`; variances are in
`groupwise_lab.theory.mse`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from groupwise.arrays import Float, check_at_least
from groupwise.errors import InvalidArgumentError, named
from groupwise.plain import frozen
from groupwise_lab.trainer.baselines import (
    history,
    matched,
    shrinkage,
    variance_optimal,
    weighted_leave_one_out,
)
from groupwise_lab.trainer.rollout_groups import (
    Array,
    rollout_groups,
)


def vanilla(reward: Array, prompt: Any = None) -> Array:
    r"""The reward itself.

    $A_i = z_i$

    Source: REINFORCE without a baseline.
    """
    groups = rollout_groups(reward, prompt)
    return groups.like_source(groups.reward_N.copy())


def constant(reward: Array, prompt: Any = None, *, value: float) -> Array:
    r"""The reward above a number that was fixed beforehand.

    $A_i = z_i - c$

    Source: REINFORCE with a constant baseline; its variance is in lab/docs/theory/gradient.md.
    """
    return oracle(reward, prompt, value=float(value))


def oracle(reward: Array, prompt: Any = None, *, value: Array) -> Array:
    r"""The reward above the value of its prompt, known from elsewhere.

    $A_i = z_i - V(x)$

    Source: paper A's oracle estimator.
    """
    groups = rollout_groups(reward, prompt)
    return groups.like_source(groups.reward_N - matched(groups, "value", value))


def batch_mean(reward: Array, prompt: Any = None) -> Array:
    r"""The reward above the mean of all rollouts of the batch, its own included.

    $A_i = z_i - \bar z$

    Source: derived here: the own reward in the mean shrinks the gradient by the factor (N - 1)/N.
    """
    groups = rollout_groups(reward, prompt)
    return groups.like_source(_centred(groups.reward_N[None])[0])


def full_group_mean(reward: Array, prompt: Any = None) -> Array:
    r"""The reward above the mean of its group, its own included: GRPO without division.

    $A_i = z_i - \bar z_g$

    Source: Lemma 1 of paper A: the gradient is (G - 1)/G times that of `leave_one_out`.
    """
    groups = rollout_groups(reward, prompt)
    groups.at_least(
        2, "full_group_mean", remedy="drop it, or use shrinkage, which borrows from other prompts"
    )
    return groups.like_source(groups.apply(_centred))


def leave_one_out(reward: Array, prompt: Any = None) -> Array:
    r"""The reward above the mean of the others of its group: RLOO.

    $A_i = z_i - \frac{1}{G-1}\sum_{j\ne i} z_j = \frac{G}{G-1}(z_i - \bar z_g)$

    Source: Lemma 1 of paper A: the gradient is an order-2 U-statistic.
    """
    groups = rollout_groups(reward, prompt)
    groups.at_least(
        2, "leave_one_out", remedy="drop it, or use shrinkage, which borrows from other prompts"
    )

    def formula(block: Float) -> Float:
        return np.asarray(_centred(block) * (block.shape[1] / (block.shape[1] - 1)))

    return groups.like_source(groups.apply(formula))


def std_normalised(
    reward: Array, prompt: Any = None, *, ddof: int = 1, epsilon: float = 0.0
) -> Array:
    r"""The reward above its group's mean, in standard deviations of its group: GRPO as published.

    $A_i = (z_i - \bar z_g)/(s_g + \epsilon)$

    Source: arXiv 2402.03300; what it optimises is in lab/docs/theory/gradient.md.
    """
    _check_scale(ddof, epsilon)
    groups = rollout_groups(reward, prompt)
    groups.at_least(2, "std_normalised")

    def formula(block: Float) -> Float:
        above = _centred(block)
        deviation = np.sqrt((above**2).sum(1, keepdims=True) / (block.shape[1] - ddof))
        return above / np.where(deviation > 0, deviation + epsilon, 1)

    return groups.like_source(groups.apply(formula))


def batch_std(reward: Array, prompt: Any = None, *, ddof: int = 1, epsilon: float = 0.0) -> Array:
    r"""The reward above its group's mean, in standard deviations of all rewards of the batch.

    $A_i = (z_i - \bar z_g)/(s + \epsilon)$

    Source: `scale_rewards="batch"` of TRL; arXiv 2508.08221.
    """
    _check_scale(ddof, epsilon)
    groups = rollout_groups(reward, prompt)
    groups.at_least(2, "batch_std")
    around_N = _centred(groups.reward_N[None])[0]
    deviation = float(np.sqrt((around_N**2).sum() / (len(around_N) - ddof)))
    above_N = groups.apply(_centred)
    return groups.like_source(above_N / (deviation + epsilon) if deviation > 0 else above_N)


def max_rl(reward: Array, prompt: Any = None) -> Array:
    r"""The reward above its group's mean, in means of its group.

    $A_i = (z_i - \bar z_g)/\bar z_g$, and 0 where the mean is 0

    Source: arXiv 2602.02710. Derived here: for rewards 0 and 1 it is unbiased for another aim,
    $-\sum_{k=1}^{G-1} (1-p)^k/k$, which tends to log p. Without "- mean" the sum runs to G;
    centring with nothing where no rollout succeeds takes the last term away.
    """
    groups = rollout_groups(reward, prompt)
    if (groups.reward_N < 0).any():
        raise InvalidArgumentError(
            f"expected rewards of at least 0, got {float(groups.reward_N.min())!r}: shift them "
            "first"
        )
    groups.at_least(2, "max_rl")

    def formula(block: Float) -> Float:
        mean = block.mean(1, keepdims=True)
        return _centred(block) / np.where(mean > 0, mean, 1)

    return groups.like_source(groups.apply(formula))


def _centred(block: Float) -> Float:
    """Rows minus their means; a row of equal numbers gives exactly 0."""
    shifted = block - block[:, :1]  # before anything is rounded
    return np.asarray(shifted - shifted.mean(1, keepdims=True))


def _check_scale(ddof: int, epsilon: float) -> None:
    """Refuse what is no scale."""
    if ddof not in {0, 1}:
        raise InvalidArgumentError(
            f"expected ddof 0 or 1, got {ddof!r}: 1 divides the sum of squares by G - 1"
        )
    check_at_least(0, epsilon=epsilon)


@frozen
class Advantage:
    """A named advantage and what holds for it."""

    name: str  # the name in reports and JSON
    function: Callable[..., Array]  # of (reward, prompt, *, what it needs)
    unbiased: bool  # whether its mean is the policy gradient exactly
    needs: tuple[str, ...] = ()  # keyword arguments that have no default
    # what a number added to all rewards does to it; "moves" where it depends on the level
    shift: Literal["stays", "moves"] = "stays"
    # what a positive factor on all rewards does: it scales along, it stays, or neither ("moves")
    scale: Literal["scales", "stays", "moves"] = "scales"
    smallest_group: int = 2  # rollouts that every group needs
    equal_is_zero: bool = True  # whether a group of equal rewards gets exactly 0
    smallest_reward: float = float("-inf")  # lowest reward that it takes

    @property
    def description(self) -> str:
        """One sentence."""
        return str(self.function.__doc__).partition("\n")[0]


def _fixed(
    name: str,
    function: Callable[..., Array],
    *needs: str,
    scale: Literal["scales", "moves"] = "moves",
) -> Advantage:
    """An advantage whose baseline was fixed before the group was drawn."""
    return Advantage(
        name,
        function,
        unbiased=True,
        needs=needs,
        shift="moves",
        scale=scale,
        smallest_group=1,
        equal_is_zero=False,
    )


ADVANTAGES: tuple[Advantage, ...] = (
    _fixed("vanilla", vanilla, scale="scales"),
    _fixed("constant", constant, "value"),
    Advantage("batch_mean", batch_mean, unbiased=False, smallest_group=1, equal_is_zero=False),
    Advantage("full_group_mean", full_group_mean, unbiased=False),
    Advantage("leave_one_out", leave_one_out, unbiased=True),
    Advantage("std_normalised", std_normalised, unbiased=False, scale="stays"),
    Advantage("batch_std", batch_std, unbiased=False, scale="stays"),
    _fixed("oracle", oracle, "value"),
    _fixed("variance_optimal", variance_optimal, "value", "kappa", "score_norm2"),
    Advantage(
        "weighted_leave_one_out", weighted_leave_one_out, unbiased=True, needs=("score_norm2",)
    ),
    Advantage("shrinkage", shrinkage, unbiased=True, smallest_group=1, equal_is_zero=False),
    _fixed("running", history, "baseline", "step"),
    _fixed("kernel_smoothed", history, "baseline", "step"),
    Advantage("max_rl", max_rl, unbiased=False, shift="moves", scale="stays", smallest_reward=0.0),
)


def advantage_by_name(name: str) -> Advantage:
    """Return an entry of `ADVANTAGES`."""
    return named(name, ADVANTAGES, "an advantage")
