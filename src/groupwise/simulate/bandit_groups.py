r"""From how often each arm came in a group to the coefficient of its score: drawn, or its expectation.

A group is a count vector $c$; the update's gradient is $\sum_a b_a (e_a - \pi)$ with $b_a$ the mean over groups of $c_a w_a A_a / G$.
The advantages are these lines' own: the judge imports no estimator. It holds no parameters and steps nothing.
"""

from __future__ import annotations

from functools import lru_cache
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groupwise.simulate.bandit_settings import Float, Training

Index = NDArray[np.uint32]

MOST_COUNT_VECTORS = 50_000
SAMPLED_BATCHES = 4096
_MOST_NUMBERS = 4_000_000
_SLAB_BYTES = 1_000_000


def thresholds(policy_AS: Float) -> Index:
    """Return, for all arms but the last, the 32-bit number below which a uniform one means this arm or one before it.

    A probability is thus met to 3e-10 in float64 and to 6e-8 in float32; that is also how often the last arm is drawn where the policy
    leaves it out.
    """
    cumulated_AS = np.empty_like(policy_AS[:-1])
    cumulated_AS[0] = policy_AS[0]
    # np.cumsum along the first axis takes twenty times as long.
    for before, probability, after in zip(cumulated_AS[:-1], policy_AS[1:-1], cumulated_AS[1:], strict=True):
        np.add(before, probability, out=after)
    cumulated_AS *= 2.0**32
    # The sum may have been rounded up to 1, and 2^32 is no 32-bit number: the largest below it that the precision holds.
    np.minimum(cumulated_AS, 4294967295.0 if cumulated_AS.dtype == np.float64 else 4294967040.0, out=cumulated_AS)
    return cumulated_AS.astype(np.uint32)


class ArmCounter:
    """Counts how often each arm is drawn, in arrays that are used again."""

    def __init__(self, arms: int, group_size: int, shape: tuple[int, int], number: np.dtype[Any]) -> None:
        """Set the arrays up."""
        whole = np.uint8 if group_size < 256 else np.uint32
        self.count_APS: Float = np.empty((arms, *shape), number)
        self._size = group_size
        self._below_APS = np.empty((arms - 1, *shape), whole)
        # As many rollouts at once as fit into the cache: few long operations let two threads run side by side.
        slab = max(1, min(group_size, _SLAB_BYTES // self._below_APS.size))
        self._less_XAPS = np.empty((slab, arms - 1, *shape), bool)
        self._whole_APS = np.empty((arms, *shape), whole)

    def count(self, uniform_GPS: Index, threshold_AS: Index) -> Float:
        """Return count_APS, which the next call overwrites."""
        below, whole, threshold = self._below_APS, self._whole_APS, threshold_AS[:, None]
        slab = len(self._less_XAPS)
        for first in range(0, self._size, slab):
            part = uniform_GPS[first : first + slab, None]
            less = np.less(part, threshold, out=self._less_XAPS[: len(part)]).view(np.uint8)
            if first:
                below += np.add.reduce(less, axis=0, dtype=below.dtype)
            else:
                np.add.reduce(less, axis=0, dtype=below.dtype, out=below)
        whole[0] = below[0]
        np.subtract(below[1:], below[:-1], out=whole[1:-1])
        np.subtract(self._size, below[-1], out=whole[-1])
        self.count_APS[...] = whole
        return self.count_APS


def drawn_arms(uniform_GPS: Index, threshold_AS: Index) -> NDArray[np.int64]:
    """Return the arm of every rollout, in the order of drawing, as arm_PGS."""
    arm_GPS: NDArray[np.int64] = (uniform_GPS >= threshold_AS[:, None, None]).sum(axis=0)
    return arm_GPS.swapaxes(0, 1)


def group_means(count_APS: Float, reward_APS: Float, group_size: int) -> Float:
    """Return the mean reward of each group."""
    return arm_sum(count_APS, reward_APS) / count_APS.dtype.type(group_size)


def arm_sum(first_APS: Float, second_APS: Float) -> Float:
    """Sum products over arms; replicates are the innermost axis, so no column's sum depends on how many columns there are."""
    total: Float = np.add.reduce(first_APS * second_APS, axis=0)
    return total


def advantages(count_APS: Float, reward_APS: Float, training: Training) -> Float:
    r"""Return the advantage that a rollout of each arm has in each group.

    vanilla $r_a$; full_group_mean $r_a - \bar r$; leave_one_out $(r_a - \bar r)G/(G-1)$; std_normalised
    $(r_a - \bar r)/(s + \epsilon)$ with s of the group, ddof 1; batch_std the same with s of all groups of the update.
    """
    kind, size, groups = training.advantage, training.group_size, count_APS.shape[1]
    number = count_APS.dtype.type
    if kind == "vanilla":
        return np.broadcast_to(reward_APS, count_APS.shape)
    mean_PS = group_means(count_APS, reward_APS, size)
    centred_APS: Float = reward_APS - mean_PS
    if kind == "leave_one_out":
        centred_APS *= number(size / (size - 1))
    elif kind == "std_normalised":
        square_PS = arm_sum(count_APS, centred_APS * centred_APS)
        centred_APS /= np.sqrt(square_PS / number(size - 1)) + number(training.deviation_floor)
    elif kind == "batch_std":
        rollouts = size * groups
        distance_APS = reward_APS - mean_PS.mean(axis=0)
        square_S = arm_sum(count_APS, distance_APS * distance_APS).sum(axis=0)
        centred_APS /= np.sqrt(square_S / number(rollouts - 1)) + number(training.deviation_floor)
    return centred_APS


def surrogate_weight(ratio_AS: Float, advantage_APS: Float, clip: float) -> Float:
    """Return the weight that PPO's clipped surrogate gives a rollout: its ratio, or 0 where clipping has flattened the surrogate."""
    ratio = ratio_AS[:, None]
    flat = np.where(advantage_APS > 0, ratio > 1 + clip, ratio < 1 - clip)
    return np.where(flat, ratio.dtype.type(0), ratio)


def coefficients(count_APS: Float, reward_AS: Float, ratio_AS: Float | None, training: Training) -> Float:
    r"""Return $b_a$, the mean over groups of $c_a w_a A_a/G$."""
    groups = count_APS.shape[1]
    advantage_APS = advantages(count_APS, reward_AS[:, None], training)
    weighted_APS = np.multiply(count_APS, advantage_APS, out=advantage_APS if training.centred and training.ratio != "clipped" else None)
    if ratio_AS is not None:
        weighted_APS *= surrogate_weight(ratio_AS, advantage_APS, training.clip) if training.ratio == "clipped" else ratio_AS[:, None]
    total_AS: Float = weighted_APS[:, 0] if groups == 1 else np.add.reduce(weighted_APS, axis=1)
    total_AS *= 1 / (training.group_size * groups)
    return total_AS


def expectation_method(arms: int, training: Training) -> str:
    """Say how the expectation of the coefficients is computed for this many arms."""
    if training.ratio != "clipped" and training.advantage in ("vanilla", "full_group_mean", "leave_one_out"):
        return "closed form"
    enumerable = training.ratio != "clipped" or training.advantage != "batch_std" or training.prompts == 1
    vectors = comb(_enumerated_size(training) + arms - 1, arms - 1)
    if enumerable and vectors <= MOST_COUNT_VECTORS:
        return f"enumeration of {vectors} count vectors"
    return f"mean over {SAMPLED_BATCHES} sampled batches, the same at every update"


def _enumerated_size(training: Training) -> int:
    """How many rollouts share one deviation."""
    return training.group_size * (training.prompts if training.advantage == "batch_std" else 1)


def expected_coefficients(policy_AS: Float, reward_AS: Float, ratio_AS: Float | None, training: Training) -> Float:
    r"""Return the expectation of $b_a$ over groups drawn from the sampling policy.

    Closed form where the advantage is linear in the rewards: $\pi_a w_a r_a$ (vanilla), $\pi_a w_a (r_a - V)$ (leave-one-out),
    $(G-1)/G$ times that (full group mean). Else the sum over all count vectors, or, where those are too many, the mean over sampled
    batches that are the same at every update: `expectation_method` says which.
    """
    method = expectation_method(len(policy_AS), training)
    if method == "closed form":
        value_S = 0.0 if training.advantage == "vanilla" else (policy_AS * reward_AS).sum(axis=0)
        shrunk = (training.group_size - 1) / training.group_size if training.advantage == "full_group_mean" else 1.0
        linear_AS: Float = shrunk * policy_AS * (reward_AS - value_S)
        return linear_AS if ratio_AS is None else linear_AS * ratio_AS
    whole_AS = np.broadcast_to(reward_AS, policy_AS.shape)
    one = _enumerated if method.startswith("enumeration") else _averaged
    width = max(1, _MOST_NUMBERS // (len(policy_AS) * _vectors_of(method)))
    parts = []
    for first in range(0, policy_AS.shape[1], width):
        columns = slice(first, first + width)
        parts.append(one(policy_AS[:, columns], whole_AS[:, columns], None if ratio_AS is None else ratio_AS[:, columns], training))
    return np.concatenate(parts, axis=1)


def _vectors_of(method: str) -> int:
    """How many count vectors or batches a method sums over."""
    return int(next(word for word in method.split() if word.isdigit()))


def _enumerated(policy_AS: Float, reward_AS: Float, ratio_AS: Float | None, training: Training) -> Float:
    """Sum over every count vector; for `batch_std` over those of the whole batch, whose groups are hypergeometric given the total."""
    size = _enumerated_size(training)
    count_AM, weight_M = count_vectors(policy_AS.shape[0], size)
    alone = Training(1.0, size, advantage="std_normalised", deviation_floor=training.deviation_floor)
    one_group = alone if training.advantage == "batch_std" else training
    advantage_AMS = advantages(np.repeat(count_AM[:, :, None], policy_AS.shape[1], axis=2), reward_AS[:, None], one_group)
    with np.errstate(divide="ignore"):
        log_policy_AS = np.maximum(np.log(policy_AS), -1e300 / size)
    probability_MS = np.exp(weight_M[:, None] + count_AM.T @ log_policy_AS)
    weighted_AMS = count_AM[:, :, None] * advantage_AMS * probability_MS
    if ratio_AS is not None:
        weighted_AMS = weighted_AMS * (
            surrogate_weight(ratio_AS, advantage_AMS, training.clip) if training.ratio == "clipped" else ratio_AS[:, None]
        )
    # E[c_pa (r_a - mean_p) | n] = (G-1)/(N-1) n_a (r_a - mean), for a group of G of the N rollouts.
    share = size * (training.group_size - 1) / (training.group_size * (size - 1)) if training.advantage == "batch_std" else 1.0
    total_AS: Float = weighted_AMS.sum(axis=1) * (share / size)
    return total_AS


@lru_cache(maxsize=8)
def count_vectors(arms: int, size: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return every vector of counts that sums to the group size, as columns, and the logarithm of its multinomial coefficient."""
    from itertools import combinations

    from scipy.special import gammaln

    bars = np.array(list(combinations(range(size + arms - 1), arms - 1)), dtype=np.int64).reshape(-1, arms - 1)
    edges = np.concatenate([np.full((len(bars), 1), -1), bars, np.full((len(bars), 1), size + arms - 1)], axis=1)
    count_MA = np.diff(edges, axis=1) - 1.0
    return np.ascontiguousarray(count_MA.T), gammaln(size + 1) - gammaln(count_MA + 1).sum(axis=1)


def _averaged(policy_AS: Float, reward_AS: Float, ratio_AS: Float | None, training: Training) -> Float:
    """Mean over batches drawn with the same uniform numbers at every call, one replicate after another."""
    arms = policy_AS.shape[0]
    uniform_GPM = _fixed_uniforms(training.group_size, training.prompts)
    columns = []
    counter = ArmCounter(arms, training.group_size, uniform_GPM.shape[1:], policy_AS.dtype)
    for place in range(policy_AS.shape[1]):
        count = counter.count(uniform_GPM, thresholds(policy_AS[:, place : place + 1]))
        ratio = None if ratio_AS is None else np.repeat(ratio_AS[:, place : place + 1], count.shape[2], axis=1)
        columns.append(coefficients(count, reward_AS[:, place : place + 1], ratio, training).mean(axis=1))
    return np.stack(columns, axis=1)


@lru_cache(maxsize=2)
def _fixed_uniforms(group_size: int, prompts: int) -> Index:
    """The uniform numbers of the sampled expectation, (G, P, M)."""
    return np.random.default_rng(20_260_701).integers(2**32, size=(group_size, prompts, SAMPLED_BATCHES), dtype=np.uint32)
