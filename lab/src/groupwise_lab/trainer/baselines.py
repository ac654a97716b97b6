r"""Baselines that are better than the group's own mean, and still independent of their rollout.

A baseline may use everything but the rollout's own outcome: then $E[b_i s_i] = E[b_i]\,E[s_i] = 0$
given the prompts, and nothing is biased. `variance_optimal` is told the values,
`weighted_leave_one_out` estimates them from the others of the group, `shrinkage` from the others of
the batch. A baseline with a memory carries a prompt's value over from the steps in which it was
seen before: no rollout of the present group enters, so it is fixed given the past, and a group of
one is enough. Nothing here normalises.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import Any

import numpy as np

from groupwise.arrays import Float
from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.plain import frozen
from groupwise_lab.trainer.rollout_groups import (
    Array,
    RolloutGroups,
    refuse_not_finite,
    rollout_groups,
    to_numpy,
)

_FORGOTTEN = 1e-17  # weight below which a visit changes no digit


def matched(groups: RolloutGroups, name: str, values: Any) -> Float:
    """Return an argument with an entry for every rollout."""
    array, shape = to_numpy(values).astype(np.float64), groups.shape
    if len(shape) == 2 and array.shape == shape[:1]:
        array = array[:, None]
    if array.shape not in {(), shape, (shape[0], 1)[: len(shape)]}:
        raise InvalidArgumentError(
            f"expected {name} as one number, one a rollout or one a row of reward_PG, got shape "
            f"{array.shape} for rewards of shape {shape}: give one value a rollout"
        )
    refuse_not_finite(name, array)
    return np.broadcast_to(array, shape).reshape(-1)


def variance_optimal(
    reward: Array, prompt: Any = None, *, value: Array, kappa: Array, score_norm2: Array
) -> Array:
    r"""The reward above the baseline of least variance among those that see the prompt alone.

    $A_i = z_i - V(x) - \kappa(x)/S_2(x) = z_i - E[|s|^2 Z|x]/E[|s|^2|x]$

    Source: derived here (lab/docs/theory/gradient.md); the variance falls by kappa^2/S2 below the
    oracle's.
    """
    groups = rollout_groups(reward, prompt)
    norm2_N = matched(groups, "score_norm2", score_norm2)
    if not (norm2_N > 0).all():
        raise InvalidArgumentError(
            f"expected a positive score_norm2, got {float(norm2_N.min())!r}: it is the mean "
            "squared length of a score"
        )
    baseline_N = matched(groups, "value", value) + matched(groups, "kappa", kappa) / norm2_N
    return groups.like_source(groups.reward_N - baseline_N)


def weighted_leave_one_out(reward: Array, prompt: Any = None, *, score_norm2: Array) -> Array:
    r"""The reward above the mean of the others, weighted by the squared lengths of their scores.

    $A_i = z_i - \sum_{j\ne i} |s_j|^2 z_j \big/ \sum_{j\ne i} |s_j|^2$

    Source: derived here: the plug-in estimate of E[|s|^2 Z]/E[|s|^2] without rollout i. With the
    group's tokens for weights and the rollout's own reward left in, it is OPO (arXiv 2505.23585),
    which is biased.
    """
    groups = rollout_groups(reward, prompt)
    groups.at_least(2, "weighted_leave_one_out")
    norm2_N = matched(groups, "score_norm2", score_norm2)
    if not (norm2_N >= 0).all():
        raise InvalidArgumentError(
            f"expected score_norm2 of 0 or more, got {float(norm2_N.min())!r}: it is a squared "
            "length"
        )

    def formula(block: Float, weight: Float) -> Float:
        shifted = block - block[:, :1]
        total = _sum_of_others(weight)
        plain = (shifted.sum(1, keepdims=True) - shifted) / (block.shape[1] - 1)
        weighted = _sum_of_others(weight * shifted) / np.where(total > 0, total, 1)
        return shifted - np.where(total > 0, weighted, plain)

    return groups.like_source(groups.apply(formula, norm2_N))


def _sum_of_others(block: Float) -> Float:
    """Of each row the sums without one entry.

    They are added from both sides: a large entry taken off the total would leave nothing of the
    others.
    """
    before, after = np.zeros_like(block), np.zeros_like(block)
    before[:, 1:] = np.cumsum(block, 1)[:, :-1]
    after[:, :-1] = np.cumsum(block[:, ::-1], 1)[:, -2::-1]
    return before + after


@frozen
class _GroupSpread:
    """Size, mean from the batch's mean, and sum of squares around it of every group."""

    size_P: Float
    mean_P: Float
    spread_P: Float
    centre: float


def shrinkage(reward: Array, prompt: Any = None) -> Array:
    r"""The reward above a James-Stein mixture of the other groups' mean and its own group's.

    $A_i = z_i - \lambda_i M_{-p} - (1-\lambda_i) L_i,\quad \lambda_i = v_i/(v_i + w_i)$

    $L_i$ is the mean of the others of the group and $M_{-p}$ the mean of the other groups' means.
    $v_i$ estimates the variance of $L_i$ by the pooled variance within groups, over G - 1; $w_i$
    estimates the squared error of $M_{-p}$ by the variance between prompts, not below 0, plus the
    sampling error of $M_{-p}$. All four leave rollout i out, so the mixture is independent of it.

    Source: derived here; the idea is that of arXiv 2511.03710. Its variance for a fixed lambda is
    in lab/docs/theory/gradient.md.
    """
    groups = rollout_groups(reward, prompt)
    if sum(map(len, groups.rows)) < 2:
        raise InsufficientDataError(
            "shrinkage draws a prompt towards the others, got one prompt: use leave_one_out"
        )
    if all(rows.shape[1] == 1 for rows in groups.rows):
        raise InsufficientDataError(
            "shrinkage needs two rollouts of at least one prompt, got groups of one only: use "
            "batch_mean"
        )
    reward_N = groups.reward_N
    advantage_N, batch = np.empty_like(reward_N), _batch(groups)
    first = 0
    for rows in groups.rows:
        own = slice(first, first := first + len(rows))
        advantage_N[rows] = reward_N[rows] - _mixture(reward_N[rows], batch, own)
    return groups.like_source(advantage_N)


def _batch(groups: RolloutGroups) -> _GroupSpread:
    """Size, mean and spread of every group."""
    centre = float(groups.reward_N.mean())
    blocks = [groups.reward_N[rows] - centre for rows in groups.rows]
    return _GroupSpread(
        np.concatenate([np.full(len(block), float(block.shape[1])) for block in blocks]),
        np.concatenate([block.mean(1) for block in blocks]),
        np.concatenate([block.var(1) * block.shape[1] for block in blocks]),
        centre,
    )


def _mixture(block_PG: Float, batch: _GroupSpread, own: slice) -> Float:
    """The baseline of every rollout of some groups, which are the batch's groups `own`."""
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


class DynamicBaseline(ABC):
    """A weighted mean of each prompt's earlier rewards; an unseen prompt takes that of all."""

    def __init__(self, *, prior_rollouts: float = 4.0, initial: float = 0.0) -> None:
        if not 0 <= prior_rollouts < np.inf or not np.isfinite(initial):
            raise InvalidArgumentError(
                "expected prior_rollouts of 0 or more and a finite initial value, got "
                f"{prior_rollouts} and {initial}: 4 and 0 will do"
            )
        self.prior_rollouts = float(prior_rollouts)
        self.initial = float(initial)
        self._last_step = -np.inf
        self._visits: dict[
            Hashable, Float
        ] = {}  # of each prompt the step, the count and the sum of each visit that still weighs
        self._all = np.empty((0, 3))

    def values(self, prompt: Any, *, step: float) -> Float:
        """Return the value of every prompt as the earlier steps have it, float64, reward units."""
        labels, place = np.unique(to_numpy(prompt), return_inverse=True)
        count, total = self._seen(self._all, step)
        everyone = total / count if count > 0 else self.initial
        value_P = np.full(len(labels), everyone)
        for i, label in enumerate(labels.tolist()):
            count, total = self._seen(self._visits.get(label, self._all[:0]), step)
            if count > 0:
                value_P[i] = (total + self.prior_rollouts * everyone) / (
                    count + self.prior_rollouts
                )
        return value_P[place]

    def advantages(self, reward: Array, prompt: Any, *, step: float) -> Array:
        """Return the rewards above their prompts' values."""
        groups = self._groups(reward, prompt)
        if step <= self._last_step:
            raise InvalidArgumentError(
                f"expected a step after {self._last_step:g}, the last that this baseline was "
                f"updated with, got {step:g}: ask for the advantages first and update after, or "
                "they are biased"
            )
        return groups.like_source(groups.reward_N - self.values(groups.label_N, step=step))

    def update(self, reward: Array, prompt: Any, *, step: float) -> None:
        """Take in the rewards of a step."""
        groups = self._groups(reward, prompt)
        if step < self._last_step:
            raise InvalidArgumentError(
                f"expected steps in order, got {step:g} after {self._last_step:g}: sort them first"
            )
        labels, place = np.unique(groups.label_N, return_inverse=True)
        count_P = np.bincount(place).astype(np.float64)
        total_P = np.bincount(place, weights=groups.reward_N)
        for label, count, total in zip(labels.tolist(), count_P, total_P, strict=True):
            self._visits[label] = self._kept(
                self._visits.get(label, self._all[:0]), step, count, total
            )
        self._all = self._kept(self._all, step, count_P.sum(), total_P.sum())
        self._last_step = step

    def _groups(self, reward: Array, prompt: Any) -> RolloutGroups:
        """The rewards with their labels, which a rectangle needs here too."""
        if prompt is None:
            raise InvalidArgumentError(
                "expected prompt labels, got none: a value is carried over by the label of its "
                "prompt"
            )
        return rollout_groups(reward, prompt)

    def _seen(self, visit_V3: Float, step: float) -> tuple[float, float]:
        """The weighted count and sum of some visits."""
        count, total = self._weights(step - visit_V3[:, 0]) @ visit_V3[:, 1:]
        return float(count), float(total)

    def _kept(self, visit_V3: Float, step: float, count: float, total: float) -> Float:
        """Some visits and one more, without those that no later step can see."""
        visit_V3 = np.vstack([visit_V3, (step, count, total)])
        return visit_V3[self._weights(step - visit_V3[:, 0]) > _FORGOTTEN]

    @abstractmethod
    def _weights(self, age_V: Float) -> Float:
        """What each visit counts, by its age in steps; the last is the newest."""


class RunningBaseline(DynamicBaseline):
    r"""A mean of the prompt's earlier rewards whose weight decays with every visit.

    $V = (S + k \bar V)/(W + k)$ with $S \leftarrow \rho S + \sum_i z_i$, $W \leftarrow \rho W + G$
    at every visit, and $\bar V$ the same mean over all prompts, which decays with every step.
    """

    def __init__(
        self, *, decay: float = 0.9, prior_rollouts: float = 4.0, initial: float = 0.0
    ) -> None:
        super().__init__(prior_rollouts=prior_rollouts, initial=initial)
        if not 0 <= decay <= 1:
            raise InvalidArgumentError(
                f"expected a decay between 0 and 1, got {decay}: 0.9 remembers about ten visits"
            )
        self.decay = float(decay)

    def _weights(self, age_V: Float) -> Float:
        return np.asarray(self.decay ** np.arange(len(age_V))[::-1], dtype=np.float64)


class KernelBaseline(DynamicBaseline):
    r"""A mean of the prompt's earlier rewards, weighted by how few steps ago they were.

    $V(t) = \frac{\sum_{u<t} K(\frac{t-u}{h}) \sum_i z_{ui} + k\bar V(t)}{\sum_{u<t}
    K(\frac{t-u}{h})\, G_u + k}$ with Epanechnikov's $K(x) = 1 - x^2$ below 1 and 0 above; of each
    prompt no more than h steps are kept.

    Source: derived here: the kernel mean of Nadaraya and Watson, of the past only.
    """

    def __init__(
        self, *, bandwidth: float = 100.0, prior_rollouts: float = 4.0, initial: float = 0.0
    ) -> None:
        super().__init__(prior_rollouts=prior_rollouts, initial=initial)
        if not 0 < bandwidth < np.inf:
            raise InvalidArgumentError(
                f"expected a positive bandwidth in steps, got {bandwidth}: 100 looks back a "
                "hundred steps"
            )
        self.bandwidth = float(bandwidth)

    def _weights(self, age_V: Float) -> Float:
        return np.asarray(np.maximum(1 - (age_V / self.bandwidth) ** 2, 0.0))


def history(reward: Array, prompt: Any = None, *, baseline: DynamicBaseline, step: float) -> Array:
    r"""The reward above what earlier steps say about its prompt.

    $A_i = z_i - \hat V(x; \text{steps before } t)$
    """
    return baseline.advantages(reward, prompt, step=step)
