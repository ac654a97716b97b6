r"""Advantages that are divided by something: a standard deviation of the group or of the batch, or the group's mean.

Dividing by what the rollouts themselves decide makes each of them a biased estimate of the policy gradient; what they optimise instead
is in docs/theory/gradient.md. The functions take and return what those of `advantages` do. They reproduce no trainer's rounding: that
is `advantage_specs`.
"""

from __future__ import annotations

from typing import Any

from groupwise.errors import InvalidArgumentError
from groupwise.estimators.rollout_groups import Array, as_floats, centred, refuse_not_finite, rollout_groups


def std_normalised(reward: Array, prompt: Any = None, *, ddof: int = 1, epsilon: float = 0.0) -> Array:
    r"""The reward above its group's mean, in standard deviations of its group: GRPO as it was published.

    $A_i = (z_i - \bar z_g)/(s_g + \epsilon)$

    Source: arXiv 2402.03300; what it optimises is in docs/theory/gradient.md.

    Example:
        >>> std_normalised([[1.0, 0.0]], ddof=0).tolist()
        [[1.0, -1.0]]
    """
    _check_scale(ddof, epsilon)
    groups = rollout_groups(reward, prompt)
    groups.at_least(2, "std_normalised")

    def formula(block: Array) -> Array:
        above = centred(block)
        deviation = ((above**2).sum(1, keepdims=True) / (block.shape[1] - ddof)) ** 0.5
        return above / groups.module.where(deviation > 0, deviation + epsilon, 1)

    return groups.apply(formula)


def batch_std(reward: Array, prompt: Any = None, *, ddof: int = 1, epsilon: float = 0.0) -> Array:
    r"""The reward above its group's mean, in standard deviations of all rewards of the batch.

    $A_i = (z_i - \bar z_g)/(s + \epsilon)$

    Source: `scale_rewards="batch"` of TRL; arXiv 2508.08221.

    Example:
        >>> batch_std([[1.0, -1.0], [1.0, -1.0]], ddof=0).tolist()
        [[1.0, -1.0], [1.0, -1.0]]
    """
    _check_scale(ddof, epsilon)
    groups = rollout_groups(reward, prompt)
    groups.at_least(2, "batch_std")
    around = centred(groups.flat.reshape(1, -1))
    deviation = ((around**2).sum() / (around.shape[1] - ddof)) ** 0.5
    above = groups.apply(centred)
    return above / (deviation + epsilon) if bool(deviation > 0) else above


def max_rl(reward: Array, prompt: Any = None) -> Array:
    r"""The reward above its group's mean, in means of its group.

    $A_i = (z_i - \bar z_g)/\bar z_g$, and 0 where the mean is 0

    Source: arXiv 2602.02710. Derived here: for rewards 0 and 1 it is unbiased for another aim, $-\sum_{k=1}^{G-1} (1-p)^k/k$, which
    tends to log p. Without "- mean" the sum runs to G; centring with nothing where no rollout succeeds takes the last term away.

    Example:
        >>> max_rl([[1.0, 0.0, 0.0, 0.0]]).tolist()
        [[3.0, -1.0, -1.0, -1.0]]
    """
    groups = rollout_groups(reward, prompt, smallest=0.0)
    groups.at_least(2, "max_rl")

    def formula(block: Array) -> Array:
        mean = block.mean(1, keepdims=True)
        return centred(block) / groups.module.where(mean > 0, mean, 1)

    return groups.apply(formula)


def reward_decoupled(reward_F: Array, prompt: Any = None, *, weight_F: Any = None, epsilon: float = 0.0) -> Array:
    r"""Several rewards, each standardised in its group before they are added, then all in standard deviations of the batch: GDPO.

    $B_i = \sum_f w_f (z_{fi} - \bar z_{fg})/(s_{fg} + \epsilon),\quad A_i = (B_i - \bar B)/(s_B + \epsilon)$

    Source: arXiv 2601.05242.

    Example:
        >>> reward_decoupled([[[1.0, 0.0]], [[0.0, 10.0]]], weight_F=[1.0, 0.5]).round(3).tolist()
        [[0.707, -0.707]]
    """
    _check_scale(1, epsilon)
    reward = as_floats(reward_F)
    weight = [1.0] * reward.shape[0] if weight_F is None else [float(weight) for weight in weight_F]
    if len(weight) != reward.shape[0]:
        raise InvalidArgumentError(f"expected {reward.shape[0]} weights, one a reward, got {len(weight)}: weight_F goes with reward_F")
    refuse_not_finite("weight_F", as_floats(weight))
    total = sum(w * std_normalised(part, prompt, epsilon=epsilon) for w, part in zip(weight, reward, strict=True))
    return std_normalised(total.reshape(1, -1), epsilon=epsilon).reshape(total.shape)


def _check_scale(ddof: int, epsilon: float) -> None:
    """Refuse what is no scale."""
    if ddof not in {0, 1}:
        raise InvalidArgumentError(f"expected ddof 0 or 1, got {ddof!r}: 1 divides the sum of squares by G - 1")
    if not 0 <= epsilon < float("inf"):
        raise InvalidArgumentError(f"expected epsilon of 0 or more, got {epsilon!r}: it is added to a standard deviation")
