r"""What every group of rollouts says by itself: unbiased estimates of its own moments, and its
inner products with other groups.

A group enters through nine sums, three of which are of vectors; so the cost is linear in the
rollouts and no pair is ever visited. With $n_i = |s_i|^2$, centred rewards $c_i = z_i - \bar z$, $Q
= \sum c_i^2$ and $m$ rollouts, all sums over triples and quadruples of different rollouts reduce to
$\sum n$, $\sum n c$, $\sum n c^2$, $|\sum s|^2$, $|\sum c s|^2$, $\langle\sum s, \sum c^2 s\rangle$
(lab/docs/theory/gradient.md). It averages nothing over prompts and gives no intervals.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from groupwise.arrays import Float, Groups, Places, checked_shape, finite_array, floats, groups_of
from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.plain import frozen

SMALLEST_GROUP = 4
"""Below it there are no four different rollouts, and |g(x)|^2 is not estimable without assumptions
on the reward.
"""

MOMENTS = (
    "gradient_norm2",  # |g(x)|^2
    "oracle_variance",  # T_o(x) = E[|s|^2 e^2] - |g(x)|^2
    "remainder",  # R(x) = S2 sigma2 + |g(x)|^2
    "score_norm2",  # S2 = E|s|^2
    "kappa",  # E[|s|^2 e]
    "score_norm2_reward",  # E[|s|^2 z]
    "score_norm2_reward2",  # E[|s|^2 z^2]
    "reward_variance",  # sigma2
    "value",  # V
    "score_mean_norm2",  # |E s|^2, zero for the policy's own scores
)

_CHUNK_BYTES = 32 * 2**20
_PRECISE = (np.dtype(np.float32), np.dtype(np.float64))
_ASYMMETRY = 1e-3  # what rounding in single precision leaves is a hundredth of it
_LARGEST_REWARD = 1e30
TOO_SMALL = "expected numbers whose products are not rounded to zero"


@frozen
class GroupSums:
    """The nine sums of each group, with c the rewards centred in their group."""

    size_P: Float  # rollouts m
    mean_P: Float  # mean reward
    spread_P: Float  # sum of c^2
    norm_P: Float  # sum of |s|^2
    norm_reward_P: Float  # sum of |s|^2 c
    norm_reward2_P: Float  # sum of |s|^2 c^2
    total_P: Float  # |sum of s|^2
    weighted_P: Float  # |sum of c s|^2
    mixed_P: Float  # inner product of the sum of s with the sum of c^2 s


@frozen
class GroupMoments:
    """Unbiased moments of each group, and how its gradient stands to those of other groups.

    Two of them, made of scores at the same parameters, combine by `joined` into those of all
    rollouts at once, whatever the batches, ranks or machines they came from. A Gram matrix holds no
    inner product with another batch, so its moments do not combine.
    """

    moment_PC: Float  # one row a group, columns as in `MOMENTS`
    # sum of the inner products of its leave-one-out gradient with those of the other groups
    cross_P: Float
    gradient_PD: (
        NDArray[np.floating] | None
    )  # its leave-one-out gradient, or a sketch; None where only inner products were given
    size_P: Places  # rollouts of each group
    left_out: int  # rollouts that were in groups too small to be used
    zero_mean: bool  # whether the scores were taken to have mean zero, given the prompt

    @classmethod
    def joined(cls, parts: Sequence[GroupMoments]) -> GroupMoments:
        """Return the groups of one or more."""
        if len({part.zero_mean for part in parts}) != 1:
            raise InvalidArgumentError(
                "expected moments under one assumption on the scores' mean, got both: use one"
            )
        gradients = [part.gradient_PD for part in parts if part.gradient_PD is not None]
        if len(gradients) < len(parts):
            raise InvalidArgumentError(
                "expected moments of scores, got those of a Gram matrix, which holds no inner "
                "product with another batch: give the scores, or one Gram matrix of all rollouts"
            )
        if len({gradient_PD.shape[1] for gradient_PD in gradients}) != 1:
            raise InvalidArgumentError(
                "expected scores of one width, got two kinds: give both the same width"
            )
        gradient_PD = np.concatenate(gradients)
        return cls(
            np.concatenate([part.moment_PC for part in parts]),
            _cross(gradient_PD),
            gradient_PD,
            np.concatenate([part.size_P for part in parts]),
            sum(part.left_out for part in parts),
            parts[0].zero_mean,
        )


def gradient_weights(reward_N: Float) -> Float:
    """Return the weights with which the scores of a group add up to its leave-one-out gradient."""
    weight: Float = (reward_N - reward_N.mean()) / (len(reward_N) - 1)
    return weight


def moments_of_scores(
    score_ND: ArrayLike, reward_N: ArrayLike, prompt_N: ArrayLike, *, zero_mean: bool = True
) -> GroupMoments:
    r"""Moments of every group from the scores of its rollouts, or from sketches of them.

    `zero_mean` says that E[s|x] = 0, as it is for the policy's own scores; without it T and R vary
    more, and no shift of the scores moves them. Source: derived here (lab/docs/theory/gradient.md);
    |g(x)|^2, T and R as U-statistics over all splits of a group.
    """
    score, reward = (
        checked_shape("score_ND", score_ND, dimensions=2),
        finite_array("reward_N", reward_N, dimensions=1),
    )
    groups = usable_groups(prompt_N, reward, len(score), "score_ND")
    sums, gradient_PD = sums_of_scores(score, reward, groups)
    return GroupMoments(
        unbiased_moments(sums, zero_mean=zero_mean),
        _cross(gradient_PD),
        gradient_PD,
        groups.size_P,
        len(reward) - int(groups.size_P.sum()),
        zero_mean,
    )


def moments_of_gram(
    gram_NN: ArrayLike, reward_N: ArrayLike, prompt_N: ArrayLike, *, zero_mean: bool = True
) -> GroupMoments:
    r"""Moments of every group from the inner products of scores, with one pass through the matrix.

    Source: derived here (lab/docs/theory/gradient.md).
    """
    gram, reward = (
        checked_shape("gram_NN", gram_NN, dimensions=2),
        finite_array("reward_N", reward_N, dimensions=1),
    )
    if gram.shape[0] != gram.shape[1]:
        raise InvalidArgumentError(
            f"expected a square matrix in gram_NN, got shape {gram.shape}: give all inner products "
            "of N scores"
        )
    groups = usable_groups(prompt_N, reward, len(gram), "gram_NN")
    weight = np.zeros(len(reward))
    for rows, _ in _batches(groups, row_bytes=8):
        weight[rows] = (reward[rows] - reward[rows].mean(axis=1, keepdims=True)) / (
            rows.shape[1] - 1
        )
    sums, cross = _sums_of_gram(gram, reward, groups, weight * _checked_product(gram, weight))
    left_out = len(reward) - int(groups.size_P.sum())
    moment_PC = unbiased_moments(sums, zero_mean=zero_mean)
    return GroupMoments(moment_PC, cross, None, groups.size_P, left_out, zero_mean)


def _cross(gradient_PD: NDArray[np.floating]) -> Float:
    """The sum of the inner products of each gradient with the others."""
    gradient_PD = gradient_PD.astype(float, copy=False)
    return np.asarray(
        gradient_PD @ gradient_PD.sum(axis=0) - np.einsum("pd,pd->p", gradient_PD, gradient_PD)
    )


def sums_of_scores(score: NDArray[Any], reward: Float, groups: Groups) -> tuple[GroupSums, Float]:
    """Return the sums of each group, and its leave-one-out gradient."""
    table = np.empty((len(fields(GroupSums)), len(groups.size_P)))
    gradient = np.empty((len(groups.size_P), score.shape[1]))
    for rows, index in _batches(groups, row_bytes=score.shape[1] * 8):
        block = _take(score, rows)
        # Sums of a few rollouts lose nothing in single precision that the scores had; half
        # precision and integers are widened here.
        block = block if block.dtype in _PRECISE else block.astype(float)
        values = reward[rows]
        centred = values - values.mean(axis=1, keepdims=True)
        weights = np.stack([np.ones_like(centred), centred, centred**2], axis=1).astype(block.dtype)
        plain, linear, square = np.matmul(weights, block).astype(float).transpose(1, 0, 2)
        # A sum of a million squares in single precision would lose what every later difference
        # rests on.
        norm = np.einsum("pmd,pmd->pm", block, block, dtype=float)
        if not np.isfinite(norm).all():
            finite_array("score_ND", score, dimensions=2)
            raise InvalidArgumentError(
                "expected scores whose squares can be added up in score_ND, got an overflow: "
                "divide them by a constant"
            )
        if (norm == 0).any() and block[norm == 0].any():
            raise InvalidArgumentError(
                f"{TOO_SMALL} in score_ND, got an underflow: multiply them by a constant"
            )
        total, weighted, mixed = (
            np.einsum("pd,pd->p", *pair)
            for pair in ((plain, plain), (linear, linear), (plain, square))
        )
        table[:, index] = _table(values, centred, norm, total, weighted, mixed)
        gradient[index] = linear / (rows.shape[1] - 1)
    return GroupSums(*table), gradient


def _sums_of_gram(
    gram: NDArray[Any], reward: Float, groups: Groups, share: Float
) -> tuple[GroupSums, Float]:
    """Return the sums of each group, and the inner product of its gradient with those of the
    others.
    """
    table = np.empty((len(fields(GroupSums)), len(groups.size_P)))
    cross = np.empty(len(groups.size_P))
    for rows, index in _batches(groups, row_bytes=groups.size_P.max() * 8):
        block = gram[rows[:, :, None], rows[:, None, :]].astype(float)
        _refuse_asymmetry(
            np.abs(block - block.transpose(0, 2, 1)).max(axis=(1, 2)), np.abs(block), axis=(1, 2)
        )
        values = reward[rows]
        centred = values - values.mean(axis=1, keepdims=True)
        norm, row = np.einsum("pmm->pm", block), block.sum(axis=2)
        weighted = np.einsum("pa,pab,pb->p", centred, block, centred, optimize=True)
        table[:, index] = _table(
            values, centred, norm, row.sum(axis=1), weighted, (row * centred**2).sum(axis=1)
        )
        cross[index] = share[rows].sum(axis=1) - weighted / (rows.shape[1] - 1) ** 2
    return GroupSums(*table), cross


def _table(
    values: Float, centred: Float, norm: Float, total: Float, weighted: Float, mixed: Float
) -> Float:
    """The fields of `GroupSums` for groups of one size, as rows."""
    square = centred**2
    size = np.full(*centred.shape)
    of_lengths = [norm.sum(axis=1), (norm * centred).sum(axis=1), (norm * square).sum(axis=1)]
    return np.stack(
        [size, values.mean(axis=1), square.sum(axis=1), *of_lengths, total, weighted, mixed]
    )


def unbiased_moments(sums: GroupSums, *, zero_mean: bool) -> Float:
    r"""Unbiased moments of each group from its sums, columns as in `MOMENTS`.

    Source: derived here; every entry is a U-statistic over all tuples of different rollouts
    (lab/docs/theory/gradient.md).
    """
    m, spread = sums.size_P, sums.spread_P
    three, four = m * (m - 1) * (m - 2), m * (m - 1) * (m - 2) * (m - 3)
    norm, norm1, norm2 = sums.norm_P, sums.norm_reward_P, sums.norm_reward2_P
    pairs = (m - 1) * (m - 2) * sums.weighted_P + 2 * (m - 1) * sums.mixed_P - spread * sums.total_P
    diagonal = m * (m - 1) * norm2 - spread * norm
    gradient = (pairs - diagonal) / four
    if zero_mean:
        oracle = diagonal / three - gradient
        remainder = ((m - 1) * spread * norm - m * norm2) / three + gradient
    else:
        oracle, remainder = _shift_free(sums, gradient)
    first = (norm1 + sums.mean_P * norm) / m
    second = (norm2 + 2 * sums.mean_P * norm1 + sums.mean_P**2 * norm) / m
    score_mean = (sums.total_P - norm) / (m * (m - 1))
    columns = [
        gradient,
        oracle,
        remainder,
        norm / m,
        norm1 / (m - 1),
        first,
        second,
        spread / (m - 1),
        sums.mean_P,
        score_mean,
    ]
    return np.stack(columns, axis=1)


def _shift_free(sums: GroupSums, gradient: Float) -> tuple[Float, Float]:
    """T and R from the covariances of the pair kernel, whatever the scores' mean: T = 4 zeta_1
    and R = 2 zeta_2 - T.
    """
    m, spread, total = sums.size_P, sums.spread_P, sums.total_P
    norm2 = sums.norm_reward2_P - 2 / m * sums.mixed_P + spread * total / m**2
    norm0 = spread * (sums.norm_P - total / m)
    # Sums of h(1,2).h(1,2) over pairs and of h(1,2).h(1,3) over triples of different rollouts.
    two = (m * norm2 + norm0 + 2 * sums.weighted_P) / 2
    three = (m * (m - 2) * norm2 + (3 * m - 4) * sums.weighted_P - 2 * norm0) / 4
    zeta_1 = three / (m * (m - 1) * (m - 2)) - gradient
    zeta_2 = two / (m * (m - 1)) - gradient
    return 4 * zeta_1, 2 * zeta_2 - 4 * zeta_1


def usable_groups(prompt_N: ArrayLike, reward: Float, rows: int, name: str) -> Groups:
    """Return the groups that have at least four rollouts."""
    if len(reward) != rows:
        raise InvalidArgumentError(
            f"expected as many rewards as rows of {name}, got {len(reward)} and {rows}: give one "
            "reward and one row per rollout"
        )
    if np.abs(reward).max() > _LARGEST_REWARD:
        raise InvalidArgumentError(
            f"expected rewards up to {_LARGEST_REWARD:g}, got {np.abs(reward).max():.3g}, an "
            "overflow: divide them by a constant"
        )
    groups = groups_of(prompt_N)
    if groups.size_P.sum() != rows:
        raise InvalidArgumentError(
            f"expected a label per rollout, got {groups.size_P.sum()} labels for {rows} rollouts"
        )
    enough = groups.size_P >= SMALLEST_GROUP
    if not enough.any():
        raise InsufficientDataError(
            f"expected groups of at least {SMALLEST_GROUP} rollouts of one prompt, got "
            f"{groups.size_P.max()} at most: sample {SMALLEST_GROUP} or more of each prompt "
            "for the estimate (8 are better)"
        )
    return Groups(
        groups.order_N, groups.start_P[enough], groups.size_P[enough], groups.label_P[enough]
    )


def _checked_product(gram: NDArray[Any], weight_N: Float) -> Float:
    """Return K w, after K has been checked: finite, symmetric as far as K w rests on it, no squared
    length below zero.

    Once each half of the matrix is taken for the whole, so that every entry is read once: both give
    the same vector unless K is not symmetric, or only where no weight falls on it, as between two
    groups with equal rewards; the estimate is then that of either half.
    """
    from scipy.linalg import blas

    kind = gram.dtype if gram.dtype in _PRECISE else np.dtype(np.float64)
    half = blas.dsymv if kind == np.float64 else blas.ssymv
    gram = np.asarray(gram, dtype=kind)
    columns = gram if gram.flags.f_contiguous else np.ascontiguousarray(gram).T
    weight = weight_N.astype(kind)
    product, mirrored = (floats(half(1.0, columns, weight, lower=lower)) for lower in (1, 0))
    # A NaN or infinity anywhere in a row survives the product, even where the weight is zero.
    if not (np.isfinite(product).all() and np.isfinite(mirrored).all()):
        finite_array("gram_NN", gram, dimensions=2)
        raise InvalidArgumentError(
            "expected inner products that can be added up in gram_NN, got an overflow: divide the "
            "scores by a constant"
        )
    _refuse_asymmetry(np.abs(product - mirrored), np.abs(product))
    length = np.diagonal(gram).astype(float)
    shortest = length.argmin()
    if length[shortest] < -1e-6 * length.max():
        raise InvalidArgumentError(
            f"expected squared norms on the diagonal of gram_NN, got {length[shortest]:.3g} at "
            f"[{shortest}, {shortest}]: give the inner product of each score with itself"
        )
    return product


def _refuse_asymmetry(gap: Float, scale: Float, axis: tuple[int, ...] | None = None) -> None:
    """Refuse gaps between entries and mirror images that are no rounding on the scale of the
    matrix.
    """
    wrong = gap > _ASYMMETRY * scale.max(axis=axis)
    if wrong.any():
        raise InvalidArgumentError(
            f"expected a symmetric gram_NN, got entries that differ by {gap[wrong].max():.3g} "
            "from their mirror image: give all inner products, all for the same kind of score"
        )


def _batches(groups: Groups, *, row_bytes: int) -> Iterator[tuple[Places, Places]]:
    """Yield row numbers of groups of one size (P x m) with the groups' places, a bounded number
    at a time.
    """
    for size in np.unique(groups.size_P):
        members = np.flatnonzero(groups.size_P == size)
        count = max(1, _CHUNK_BYTES // (size * max(row_bytes, 1)))
        for first in range(0, len(members), count):
            index = members[first : first + count]
            rows = groups.start_P[index][:, None] + np.arange(size)
            yield (rows if groups.order_N is None else groups.order_N[rows]), index


def _take(values: NDArray[Any], rows: Places) -> NDArray[Any]:
    """Return values[rows]; a view where the rows follow one another."""
    first, last = int(rows[0, 0]), int(rows[-1, -1])
    if last - first + 1 == rows.size and (np.diff(rows.ravel()) == 1).all():
        return values[first : last + 1].reshape(*rows.shape, -1)
    return values[rows]
