r"""What rewards say without any score: the share of zero-variance groups at the group size in use,
at twice and at four times of it, from rewards or from logged columns, and how rewards vary within
and between prompts.

Prompts differ in difficulty, so one pass rate foresees far too few zero-variance groups: here a
group of G is equal throughout with probability $S(G) = E \sum_v p_v^G$ over prompts, p_v the
probability of reward v. Up to the size sampled that needs no law (every subset of a group is a
smaller group); a larger one is an extrapolation and is labelled so: its value is a beta law's, its
interval that of all laws of difficulty whatever. It recommends no group size.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from groupwise.arrays import (
    Float,
    Groups,
    Places,
    bisected,
    finite_array,
    floats,
    groups_of,
    of_numbers,
)
from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.intervals import Interval, hull, mean_interval, wilson
from groupwise.plain import Plain, Words, frozen
from groupwise.wording import share_ranged

_LEVEL = 0.95  # of intervals
_POWERS = (2, 4, 8, 16, 32, 64)
_STRENGTH = (-10.0, 15.0)  # least and largest logarithm of the a + b of a beta law


@frozen
class ZeroVarianceShare(Plain):
    """The share of groups with equal rewards throughout, at one group size."""

    KEYS = "group_size *share extrapolated gained"

    group_size: int  # G
    share: Interval  # with its interval
    # whether G exceeds the rollouts seen, so that a law of pass rates had to be assumed
    extrapolated: bool
    # how many groups in one more have variance than at the size in use, as a share of all groups;
    # None where G is no larger
    gained: Interval | None = None


@frozen
class ZeroVarianceOutlook(Plain):
    """The share of zero-variance groups at the size in use and at larger ones."""

    MORE = "status"

    group_size: int  # in use
    groups: int  # that were seen; rows where the number of groups a row is not known
    # rewards: of each rollout or each group; shares: of rows, with or without the mean reward
    basis: str
    shares: tuple[ZeroVarianceShare, ...]  # at G, 2G and 4G
    # at 2, 4, ..., 64; without rewards at those beyond G alone, of smaller groups no column tells
    powers: tuple[ZeroVarianceShare, ...] = ()

    @property
    def now(self) -> Interval:
        """The share at the size in use."""
        return self.shares[0].share

    @property
    def status(self) -> str:
        """What the groups say, in one sentence."""
        here, double, fourfold = (share_ranged(row.share) for row in self.shares)
        return (
            f"{here} of the groups of {self.group_size} have zero variance; extrapolation gives "
            f"{double} at G = {2 * self.group_size} and {fourfold} at G = {4 * self.group_size}."
        )


def zero_variance_of_groups(reward_N: ArrayLike, prompt_N: ArrayLike) -> ZeroVarianceOutlook:
    """Return the share of zero-variance groups at G, 2G and 4G from the rewards of rollouts.

    Value and interval beyond G are those of `zero_variance_of_columns`, with the mean of two
    rewards.
    """
    return RewardCounts.of(reward_N, prompt_N).outlook()


def zero_variance_of_columns(
    equal_T: ArrayLike,
    group_size: int,
    *,
    mean_T: ArrayLike | None = None,
    groups: int | None = None,
) -> ZeroVarianceOutlook:
    r"""Return the share of zero-variance groups at G, 2G and 4G from a log's rows.

    With one group a row and a share of right answers each row is a group with its count, and
    `zero_variance_of_groups` says the rest. Else the value is that of the beta law of pass rates
    with the logged mean and the logged share (without a mean, the widest one: mean 1/2), and the
    interval is what no law of pass rates escapes: at most the share at G, since a larger group is
    seldomer equal, and at least that of equally hard prompts, $p^{G'}+(1-p)^{G'}$ with
    $p^G+(1-p)^G$ the share at G (without a mean $s^{(G'-1)/(G-1)}$).

    Source: derived here: both limits are Jensen's inequality, reached by one difficulty and by
    prompts always right or always wrong.
    """
    share = floats(equal_T)
    mean = None if mean_T is None else floats(mean_T)
    usable = np.isfinite(share if mean is None else share + mean)
    share, mean = share[usable], None if mean is None else mean[usable]
    if group_size < 2:
        raise InvalidArgumentError(
            f"expected a group size of at least 2, got {group_size}: a group of one has no variance"
        )
    if not share.size:
        raise InsufficientDataError(
            "expected the share of zero-variance groups in some row, got none: log it, or the "
            "completions"
        )
    for name, values in (("equal_T", share), ("mean_T", mean)):
        if values is not None and not (values.min() >= 0 and values.max() <= 1):
            raise InvalidArgumentError(
                f"expected {name} between 0 and 1, got {values.min():g} to {values.max():g}"
            )
    if groups == 1 and mean is not None:
        right = np.round(mean * group_size)
        if ((right % group_size == 0) == (share == 1)).all():
            places, size = np.arange(len(right)), np.full(len(right), float(group_size))
            count = np.append(size - right, right)
            return RewardCounts(count, np.tile(places, 2), size, right / size).outlook()
    return _of_shares(share, mean, group_size, groups)


@frozen
class RewardCounts:
    """How often each reward occurs in each group of two and more."""

    count_K: Float  # of one reward in one group, where it comes twice there
    group_K: Places  # that group
    size_P: Float  # rollouts
    rate_P: (
        Float | None
    )  # share of the larger of two rewards in each group; None where there are other than two

    @classmethod
    def of(cls, reward_N: ArrayLike, prompt_N: ArrayLike) -> RewardCounts:
        """Count the rewards of rollouts."""
        reward, groups = finite_array("reward_N", reward_N, dimensions=1), groups_of(prompt_N)
        labels = groups.size_P.sum()
        if labels != len(reward):
            raise InvalidArgumentError(
                f"expected a label per rollout, got {labels} labels for {len(reward)} rewards"
            )
        kept = groups.size_P >= 2
        if not kept.any():
            raise InsufficientDataError(
                "expected groups of at least two rollouts of one prompt, got single rollouts: "
                "sample each prompt more than once"
            )
        values, code = np.unique(groups.sorted(reward), return_inverse=True)
        right_P = np.add.reduceat((code == code.max()).astype(float), groups.start_P)
        pair, times = np.unique(groups.group_of_row * len(values) + code, return_counts=True)
        tied = times > 1
        return cls(
            times[tied].astype(float),
            (np.cumsum(kept) - 1)[pair[tied] // len(values)],
            groups.size_P[kept].astype(float),
            (right_P / groups.size_P)[kept] if len(values) == 2 else None,
        )

    @property
    def usual_size(self) -> int:
        """The most frequent size of a group, the larger of two that are equally frequent."""
        size, times = np.unique(self.size_P, return_counts=True)
        return int(size[times == times.max()][-1])

    def outlook(self) -> ZeroVarianceOutlook:
        """Return the shares at the usual size and beyond."""
        size = self.usual_size
        rows = (
            tuple(self.share_at(other, _LEVEL) for other in sizes)
            for sizes in ((size, 2 * size, 4 * size), _POWERS)
        )
        return ZeroVarianceOutlook(size, len(self.size_P), "rewards", *rows)

    def share_at(self, group_size: int, level: float) -> ZeroVarianceShare:
        """Return the share at a size: over all subsets of groups that are as large, without
        bias, or else extrapolated.
        """
        enough = self.size_P >= group_size
        if enough.sum() >= max(2, len(enough) / 2) or group_size <= self.usual_size:
            return ZeroVarianceShare(
                group_size,
                share_interval(self.equal_subsets(group_size)[enough], level),
                extrapolated=False,
            )
        size = self.usual_size
        mean = None if self.rate_P is None else self.rate_P[self.size_P >= size].mean()
        return _extrapolated(self.share_at(size, level).share, mean, size, group_size)

    def equal_subsets(self, group_size: ArrayLike) -> Float:
        """Return the share of each group's subsets of a size that are equal throughout.

        The size is one for all or each group's own, and no larger than the group.
        """
        taken_P = np.minimum(group_size, self.size_P)
        size_K, taken_K = self.size_P[self.group_K], taken_P[self.group_K]
        chance_K = np.ones(len(size_K))
        # A product of G ratios is exact where binomial coefficients of large groups would overflow.
        for drawn in range(int(taken_K.max(initial=0))):
            ratio_K = np.clip(self.count_K - drawn, 0, None) / np.maximum(size_K - drawn, 1)
            chance_K = np.where(drawn < taken_K, chance_K * ratio_K, chance_K)
        equal_P = np.bincount(self.group_K, chance_K, len(self.size_P))
        return np.where(taken_P == 1, 1.0, equal_P)


def beta_share(mean: ArrayLike, strength: ArrayLike, group_size: ArrayLike) -> Float:
    """Return E[p^G + (1-p)^G] of pass rates with this mean that follow a beta law with a + b =
    strength.
    """
    from scipy.special import gammaln

    mean, strength = np.asarray(mean, dtype=float), np.asarray(strength, dtype=float)
    whole = gammaln(strength + group_size) - gammaln(strength)
    ends = [part * strength for part in (mean, 1 - mean)]
    return np.asarray(sum(np.exp(gammaln(end + group_size) - gammaln(end) - whole) for end in ends))


def share_interval(share_P: Float, level: float) -> Interval:
    """Return the interval of a share from one number a group: of equal or not, Wilson's; of
    parts of groups, their mean's.
    """
    count = len(share_P)
    if ((share_P == 0) | (share_P == 1)).all():
        return wilson(float(share_P.sum()), count, level=level)
    interval = mean_interval(share_P, level=level)
    return Interval(interval.value, max(interval.low, 0.0), min(interval.high, 1.0), level)


def _of_shares(
    share_T: Float, mean_T: Float | None, size: int, groups: int | None
) -> ZeroVarianceOutlook:
    """The outlook by the mean share and the mean reward alone."""
    count = len(share_T) * (groups or 1)
    now = share_interval(share_T, _LEVEL)
    if groups is not None or (share_T == share_T[0]).all():
        by_groups = wilson(min(float(share_T.mean()) * count, count), count, level=_LEVEL)
        now = hull([now, by_groups])
    mean = None if mean_T is None else mean_T.mean()
    larger, powers = (
        tuple(_extrapolated(now, mean, size, other) for other in sizes if other > size)
        for sizes in ((2 * size, 4 * size), _POWERS)
    )
    shares = (ZeroVarianceShare(size, now, extrapolated=False), *larger)
    return ZeroVarianceOutlook(size, count, "shares", shares, powers)


def _extrapolated(now: Interval, mean: float | None, size: int, other: int) -> ZeroVarianceShare:
    """The share at a larger size by the beta law of two rewards with this mean, with the interval
    of all laws of difficulty; without a mean by the widest law.
    """
    two = mean is not None
    # the least share, and the most that it may fall, both with all prompts equally hard
    shares = np.linspace(now.low, now.high, 33).tolist()
    falls = [share - _equally_hard(share, size, other, two=two) for share in shares]
    low, most = shares[0] - falls[0], max(falls)
    least = _equally_hard(now.value, size, other, two=two)
    by_law, middle = now.value, 0.5 if mean is None else mean
    if 0 < middle < 1:
        by_law = float(beta_share(middle, _beta_strength(by_law, middle, size), other))
    value = min(max(by_law, least), now.value)
    gained = Interval(now.value - value, 0.0, max(most, now.value - value), now.level)
    share = Interval(value, min(low, value), now.high, now.level)
    return ZeroVarianceShare(other, share, extrapolated=True, gained=gained)


@lru_cache(maxsize=8)  # of a log it is asked for 2G and for 4G
def _beta_strength(share: float, mean: float, size: int) -> float:
    """The strength a + b of the beta law with this mean and this share of zero-variance groups."""
    return math.exp(
        bisected(lambda x: -beta_share(mean, np.exp(x), size), -share, _STRENGTH, halvings=50)
    )


def _equally_hard(share: float, size: int, other: int, *, two: bool) -> float:
    """The share at another size where all prompts are equally hard, which is the least; of
    rewards with any number of values, a limit.
    """
    least = float(share ** ((other - 1) / (size - 1)))
    if not two:
        return least
    right = _equal_rate(share, size)
    return max(right**other + (1 - right) ** other, least) if share > 0 else 0.0


@lru_cache(maxsize=128)  # of a log some 40 shares are asked for 2G and for 4G
def _equal_rate(share: float, size: int) -> float:
    """The pass rate of equally hard prompts with this share of zero-variance groups."""
    return float(bisected(lambda p: p**size + (1 - p) ** size, share, (0.5, 1.0), halvings=60))


@frozen
class RewardStatistics(Plain):
    """Rewards of groups, without scores: not the gradient's variance, and no group size follows."""

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
    notes: Words  # sentences


@of_numbers("plan(RUN) says what a run's rewards hold")
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
        >>> reward_N, group_N = [0, 1, 0, 1, 1, 1, 1, 1], [0, 0, 0, 0, 1, 1, 1, 1]
        >>> measured = reward_statistics(reward_N, group_N, group_sizes=(2,))
        >>> round(measured.zero_variance_shares[0].share.value, 3)
        0.667

    Source: derived here; the variances are those of a one-way analysis of variance with prompts of
    equal weight.
    """
    if group_sizes and any(size < 2 for size in group_sizes):
        raise InvalidArgumentError(f"expected group sizes of at least 2, got {min(group_sizes)}")
    table = RewardCounts.of(reward_N, prompt_N)
    if group_sizes is None:
        usual = table.usual_size
        sizes = {part * 2**power for part in (2, 3) for power in range(7)}
        sizes = {size for size in sizes if size <= 4 * usual} | {usual, 2 * usual, 4 * usual}
        group_sizes = tuple(sorted(sizes))
    reward, groups = finite_array("reward_N", reward_N, dimensions=1), groups_of(prompt_N)
    kept = groups.size_P >= 2
    size = groups.size_P[kept].astype(float)
    mean_P, variance_P, equal_P = (
        column[kept] for column in group_columns(groups.sorted(reward), groups)
    )
    within, between = (
        mean_interval(part_P, level=level)
        for part_P in (variance_P, _between_pseudo(mean_P, variance_P / size))
    )
    notes = [f"{(~kept).sum()} groups of one rollout were left out."] if not kept.all() else []
    return RewardStatistics(
        prompts=len(size),
        rollouts=int(size.sum()),
        group_size=int(size[0]) if (size == size[0]).all() else None,
        mean=mean_interval(mean_P, level=level),
        within_variance=replace(within, low=max(0.0, within.low)),
        between_variance=between,
        zero_variance_share=share_interval(equal_P, level),
        effective_group_size=float((size * (1 - equal_P)).mean()),
        zero_variance_shares=tuple(table.share_at(other, level) for other in group_sizes),
        notes=tuple(notes),
    )


def group_columns(reward: Float, groups: Groups) -> tuple[Float, Float, Float]:
    """Return the mean and the unbiased variance of each group, and whether the variance is zero,
    as it is in a group of one.
    """
    size = groups.size_P
    mean = np.add.reduceat(reward, groups.start_P) / size
    centred = reward - mean[groups.group_of_row]
    variance = np.add.reduceat(centred**2, groups.start_P) / np.maximum(size - 1, 1)
    ends = (end.reduceat(reward, groups.start_P) for end in (np.minimum, np.maximum))
    return mean, variance, np.equal(*ends).astype(float)


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
