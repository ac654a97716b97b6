r"""Baselines that are better than the group's own mean, and still independent of the rollout they are subtracted from.

A baseline may use everything but the rollout's own outcome: then $E[b_i s_i] = E[b_i]\,E[s_i] = 0$ given the prompts, and nothing is
biased. `variance_optimal` is told the values, `weighted_leave_one_out` estimates them from the others of the group, `shrinkage` from
the others of the batch. Baselines with a memory are in `dynamic_baselines`; nothing here normalises.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from groupwise.arrays import Float
from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.estimators.rollout_groups import Array, RolloutGroups, as_kind, module_of, rollout_groups, to_numpy


def variance_optimal(reward: Array, prompt: Any = None, *, value: Array, kappa: Array, score_norm2: Array) -> Array:
    r"""The reward above the baseline of least variance among those that depend on the prompt alone.

    $A_i = z_i - V(x) - \kappa(x)/S_2(x) = z_i - E[|s|^2 Z|x]/E[|s|^2|x]$

    Source: derived here (docs/theory/gradient.md); the variance falls by kappa^2/S2 below the oracle's.

    Example:
        >>> variance_optimal([[1.0, 0.0]], value=0.5, kappa=0.5, score_norm2=2.0).tolist()
        [[0.25, -0.75]]
    """
    groups = rollout_groups(reward, prompt)
    norm2 = groups.matched("score_norm2", score_norm2)
    if not bool((norm2 > 0).all()):
        raise InvalidArgumentError(f"expected a positive score_norm2, got {float(norm2.min())!r}: it is the mean squared length of a score")
    return groups.reward - groups.matched("value", value) - groups.matched("kappa", kappa) / norm2


def weighted_leave_one_out(reward: Array, prompt: Any = None, *, score_norm2: Array) -> Array:
    r"""The reward above the mean of the others of its group, each weighted by the squared length of its score.

    $A_i = z_i - \sum_{j\ne i} |s_j|^2 z_j \big/ \sum_{j\ne i} |s_j|^2$

    Source: derived here: the plug-in estimate of E[|s|^2 Z]/E[|s|^2] without rollout i. With the group's tokens for weights and the
    rollout's own reward left in, it is OPO (arXiv 2505.23585), which is biased.

    Example:
        >>> weighted_leave_one_out([[1.0, 0.0, 0.5]], score_norm2=[[1.0, 3.0, 1.0]]).tolist()
        [[0.875, -0.75, 0.25]]
    """
    groups = rollout_groups(reward, prompt)
    groups.at_least(2, "weighted_leave_one_out")
    norm2 = groups.matched("score_norm2", score_norm2)
    if not bool((norm2 >= 0).all()):
        raise InvalidArgumentError(f"expected score_norm2 of 0 or more, got {float(norm2.min())!r}: it is a squared length")
    module = groups.module

    def formula(block: Array, weight: Array) -> Array:
        shifted = block - block[:, :1]
        total = _sum_of_others(weight)
        plain = (shifted.sum(1, keepdims=True) - shifted) / (block.shape[1] - 1)
        weighted = _sum_of_others(weight * shifted) / module.where(total > 0, total, 1)
        return shifted - module.where(total > 0, weighted, plain)

    return groups.apply(formula, norm2)


def _sum_of_others(block: Array) -> Array:
    """Of each row the sums without one entry, from both sides: subtracting from the total would lose all where one entry is large."""
    module = module_of(block)
    zero = module.zeros_like(block[:, :1])
    before = module.concat((zero, module.cumsum(block, 1)[:, :-1]), 1)
    after = module.concat((module.flip(module.cumsum(module.flip(block, (1,)), 1), (1,))[:, 1:], zero), 1)
    return before + after


@dataclass(frozen=True, slots=True)
class _Batch:
    """Size, mean and sum of squares around it of every group; the means are counted from the mean of the batch."""

    size_P: Float
    mean_P: Float
    spread_P: Float
    centre: float


def shrinkage(reward: Array, prompt: Any = None) -> Array:
    r"""The reward above a James-Stein mixture of the other groups' mean and the mean of the others of its group.

    $A_i = z_i - \lambda_i M_{-p} - (1-\lambda_i) L_i,\quad \lambda_i = v_i/(v_i + w_i)$

    $L_i$ is the mean of the others of the group and $M_{-p}$ the mean of the other groups' means. $v_i$ estimates the variance of $L_i$
    by the pooled variance within groups, over G - 1; $w_i$ estimates the squared error of $M_{-p}$ by the variance between prompts,
    not below 0, plus the sampling error of $M_{-p}$. All four leave rollout i out, so the mixture is independent of it.

    Source: derived here; the idea is that of arXiv 2511.03710. Its variance for a fixed lambda is in docs/theory/gradient.md.

    Example:
        >>> shrinkage([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]).round(3).tolist()
        [[0.6, -0.6], [0.6, -0.6], [-0.6, 0.6]]
    """
    groups = rollout_groups(reward, prompt)
    if groups.group_count < 2:
        raise InsufficientDataError("shrinkage draws a prompt towards the others, got one prompt: use leave_one_out")
    if all(rows.shape[1] == 1 for rows in groups.rows):
        raise InsufficientDataError("shrinkage needs two rollouts of at least one prompt, got groups of one only: use batch_mean")
    advantage_N = np.empty(len(groups.label_N))
    reward_N = to_numpy(groups.flat).astype(np.float64)
    batch = _batch(reward_N, groups)
    first = 0
    for rows in groups.rows:
        own = slice(first, first := first + len(rows))
        advantage_N[rows] = reward_N[rows] - _mixture(reward_N[rows], batch, own)
    return as_kind(advantage_N, groups.reward).reshape(groups.reward.shape)


def _batch(reward_N: Float, groups: RolloutGroups) -> _Batch:
    """Size, mean and spread of every group."""
    centre = float(reward_N.mean())
    blocks = [reward_N[rows] - centre for rows in groups.rows]
    return _Batch(
        np.concatenate([np.full(len(block), float(block.shape[1])) for block in blocks]),
        np.concatenate([block.mean(1) for block in blocks]),
        np.concatenate([block.var(1) * block.shape[1] for block in blocks]),
        centre,
    )


def _mixture(block_PG: Float, batch: _Batch, own: slice) -> Float:
    """The baseline of every rollout of some groups; `own` says which of the batch's groups they are."""
    count, size = len(batch.size_P), block_PG.shape[1]
    mean, spread = batch.mean_P[own][:, None], batch.spread_P[own][:, None]
    others = (batch.mean_P.sum() - mean) / (count - 1)
    if size == 1:
        return np.asarray(others + batch.centre)
    above = block_PG - batch.centre - mean
    rest = mean - above / (size - 1)
    freedom = float((batch.size_P - 1).sum()) - 1
    spread_rest = np.maximum(spread - above**2 * (size / (size - 1)), 0)
    within = (batch.spread_P.sum() - spread + spread_rest) / freedom if freedom > 0 else 0 * rest
    inverse = float((1 / batch.size_P).sum()) - 1 / size
    total, squares = batch.mean_P.sum() - mean + rest, (batch.mean_P**2).sum() - mean**2 + rest**2
    between = (squares - total**2 / count) / (count - 1)
    value_variance = np.maximum(between - within * (inverse + 1 / (size - 1)) / count, 0)
    error_rest = within / (size - 1)
    error_others = value_variance * (count / (count - 1)) + within * inverse / (count - 1) ** 2
    both = error_rest + error_others
    weight = np.divide(error_rest, both, out=np.zeros_like(both), where=both > 0)
    return np.asarray(weight * others + (1 - weight) * rest + batch.centre)
