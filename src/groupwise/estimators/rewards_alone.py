r"""What rewards say without any score: how many groups have zero variance at each size, and how
rewards vary within and between prompts.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from groupwise.arrays import Float, Groups, finite_array, groups_of
from groupwise.errors import InvalidArgumentError
from groupwise.estimators.zero_variance import RewardCounts, ZeroVarianceShare, share_interval
from groupwise.intervals import Interval, mean_interval, percent
from groupwise.plain import Said, frozen

SIZES = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
LABEL = (
    "From rewards alone: this is not the gradient's variance, and no group size follows from it."
)


def even_pass_rate(group_size: int) -> float:
    """Return the pass rate below which most groups of a size have no success: 1 - 2^(-1/G)."""
    return 1 - 2 ** (-1 / group_size)


def smallest_group(pass_rate: float) -> int:
    """Return the smallest group of which most have a success: ln 2 / -ln(1 - p)."""
    return max(2, math.ceil(math.log(2) / -math.log1p(-pass_rate)))


@frozen
class RewardStatistics(Said):
    """Rewards of groups, without scores."""

    KEYS = (
        "label",
        "prompts",
        "rollouts",
        "group_size",
        "mean",
        "within_variance",
        "between_variance",
        "dead_share=zero_variance_share",
        "effective_group_size",
        "dead_shares=zero_variance_shares",
        "status",
        "notes",
    )

    prompts: int  # groups of at least two rollouts
    rollouts: int  # in them
    group_size: int | None  # rollouts of every group, or None where groups differ
    mean: Interval  # mean reward over prompts
    within_variance: Interval  # mean variance of the reward within a prompt
    between_variance: Interval  # variance of the prompts' values; may come out negative
    zero_variance_share: Interval  # at the sizes the groups have
    # mean number of rollouts a group that are in groups with a gradient
    effective_group_size: float
    zero_variance_shares: tuple[ZeroVarianceShare, ...]  # at other group sizes
    notes: tuple[str, ...]  # sentences

    @property
    def status(self) -> str:
        """What the rewards say, in one sentence."""
        share, within, between = (
            self.zero_variance_share,
            self.within_variance,
            self.between_variance,
        )
        total = within.value + max(between.value, 0.0)
        part = (
            (
                f"; {percent(max(between.value, 0.0) / total)} of the rewards' variance lies "
                "between prompts"
            )
            if total > 0
            else ""
        )
        return (
            f"{percent(share.value)} of the groups have zero variance ({percent(share.low)} to "
            f"{percent(share.high)}){part}."
        )

    def __str__(self) -> str:
        """What the rewards say, in a sentence."""
        return self.status

    @property
    def label(self) -> str:
        """What these numbers are not."""
        return LABEL


def reward_statistics(
    reward_N: ArrayLike,
    prompt_N: ArrayLike,
    *,
    group_sizes: tuple[int, ...] | None = None,
    level: float = 0.95,
) -> RewardStatistics:
    r"""Return what rewards alone say of groups.

    A prompt with $n_v$ rollouts of reward v among m gives groups of size G without variance with
    probability $\sum_v \binom{n_v}{G}/\binom{m}{G}$, without bias for $G \le m$. Beyond it is an
    extrapolation: see `zero_variance_of_groups`.

    Args:
        reward_N: one reward a rollout.
        prompt_N: the label of its prompt.
        group_sizes: sizes G to tell the share of zero-variance groups for; by default up to four
            times the size of the groups.
        level: coverage of the intervals, over prompts.

    Returns:
        The statistics.

    Raises:
        InvalidArgumentError: shapes that do not fit, NaN or infinity, a group size below 2.
        InsufficientDataError: no group has two rollouts.

    Example:
        >>> found = reward_statistics(
        ...     [0, 1, 0, 1, 1, 1, 1, 1], [0, 0, 0, 0, 1, 1, 1, 1], group_sizes=(2,)
        ... )
        >>> round(found.zero_variance_shares[0].share.value, 3)
        0.667

    Source: derived here; the variances are those of a one-way analysis of variance with prompts of
    equal weight.
    """
    if group_sizes is not None and any(size < 2 for size in group_sizes):
        raise InvalidArgumentError(f"expected group sizes of at least 2, got {min(group_sizes)}")
    table = RewardCounts.of(reward_N, prompt_N)
    if group_sizes is None:
        usual = table.usual_size
        group_sizes = tuple(
            sorted({size for size in SIZES if size <= 4 * usual} | {usual, 2 * usual, 4 * usual})
        )
    reward, groups = finite_array("reward_N", reward_N, dimensions=1), groups_of(prompt_N)
    kept = groups.size_P >= 2
    size = groups.size_P[kept].astype(float)
    mean_P, variance_P, equal_P = (
        column[kept] for column in group_columns(groups.sorted(reward), groups)
    )
    within, between = (
        mean_interval(variance_P, level=level),
        mean_interval(_between_pseudo(mean_P, variance_P / size), level=level),
    )
    common = int(size[0]) if (size == size[0]).all() else None
    notes = [f"{int((~kept).sum())} groups of one rollout were left out."] if not kept.all() else []
    return RewardStatistics(
        prompts=int(kept.sum()),
        rollouts=int(size.sum()),
        group_size=common,
        mean=mean_interval(mean_P, level=level),
        within_variance=replace(within, low=max(0.0, within.low)),
        between_variance=between,
        zero_variance_share=share_interval(equal_P, level),
        effective_group_size=float((size * (1 - equal_P)).mean()),
        zero_variance_shares=tuple(table.share_at(other, level) for other in group_sizes),
        notes=tuple(notes),
    )


def group_columns(reward: Float, groups: Groups) -> tuple[Float, Float, Float]:
    """Mean, unbiased variance and whether it is zero, of each group; a group of one has variance
    zero.
    """
    size = groups.size_P
    mean = np.add.reduceat(reward, groups.start_P) / size
    centred = reward - mean[groups.group_of_row]
    variance = np.add.reduceat(centred**2, groups.start_P) / np.maximum(size - 1, 1)
    low, high = (
        np.minimum.reduceat(reward, groups.start_P),
        np.maximum.reduceat(reward, groups.start_P),
    )
    return mean, variance, (low == high).astype(float)


def _between_pseudo(mean_P: Float, error_P: Float) -> Float:
    """Jackknife pseudo-values of the variance of the prompts' values: that of the means less
    what rollouts add to it.
    """
    prompts = len(mean_P)
    if prompts < 3:
        return np.full(
            prompts, float(np.var(mean_P, ddof=1) - error_P.mean()) if prompts == 2 else math.nan
        )
    squared = (mean_P - mean_P.mean()) ** 2
    total = squared.sum()
    without = (total - squared * prompts / (prompts - 1)) / (prompts - 2)
    pseudo: Float = prompts * total / (prompts - 1) - (prompts - 1) * without - error_P
    return pseudo
