r"""Sums from which the components follow, so that batches, ranks and machines combine exactly while
memory stays flat.

Each group leaves the row $u = (\text{moments}, |\hat g|^2, \hat g)$; the count, $\sum u$ and $\sum
u u^\top$ are all that the estimates and their jackknife covariance need, inner products across
batches included. It keeps no rollout and no group.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from groupwise.arrays import Float, checked_shape, finite_array
from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.estimators.components import (
    QUANTITIES,
    Components,
    Sample,
    components_of_sums,
    refuse_extremes,
)
from groupwise.estimators.moments import MOMENTS, sums_of_scores, unbiased_moments, usable_groups

WIDEST = 4096
"""The widest score or sketch: the sums hold its square."""


@dataclass(frozen=True, slots=True)
class ScoreSums:
    """Sums over groups; `+` combines those of any two batches taken at the same parameters."""

    prompts: int  # groups
    rollouts: int  # in them
    left_out: int  # rollouts in groups of fewer than four
    zero_mean: bool  # whether the scores were taken to have mean zero, given the prompt
    sum_U: Float  # sum of the rows
    outer_UU: Float  # sum of their outer products

    def __add__(self, other: ScoreSums) -> ScoreSums:
        """Return the sums over the groups of both."""
        if self.sum_U.shape != other.sum_U.shape or self.zero_mean != other.zero_mean:
            raise InvalidArgumentError(
                "expected sums of scores of one width and under one assumption, got two kinds: "
                "make both alike"
            )
        return ScoreSums(
            self.prompts + other.prompts,
            self.rollouts + other.rollouts,
            self.left_out + other.left_out,
            self.zero_mean,
            self.sum_U + other.sum_U,
            self.outer_UU + other.outer_UU,
        )

    def components(self, *, level: float = 0.95) -> Components:
        """Return the components; the intervals are Student's, with the jackknife's variance."""
        count = len(MOMENTS)
        prompts = self.prompts
        if prompts < 2:
            raise InsufficientDataError(
                f"expected at least two prompts with four rollouts each, got {prompts}: add batches"
            )
        total_K = self.sum_U[count + 1 :]
        pairs_sum = float(total_K @ total_K - self.sum_U[count])
        theta = pairs_sum / (prompts * (prompts - 1))
        means = self.sum_U[:count] / prompts
        estimate = np.concatenate(
            [[means[0] - theta, means[1], means[2], theta, means[0]], means[3:]]
        )
        refuse_extremes(estimate)
        covariance = (
            self._covariance(total_K) if prompts > 2 else np.full((len(estimate),) * 2, np.nan)
        )
        sample = Sample(prompts, self.rollouts, self.left_out, self.zero_mean)
        return components_of_sums(estimate, covariance, sample, level=level)

    def _covariance(self, total_K: Float) -> Float:
        """Covariance of the estimates: that of the pseudo-values, each of which is linear in a
        group's row.
        """
        count, prompts = len(MOMENTS), self.prompts
        # The pseudo-value of |g|^2 is 2 (S.g_p - |g_p|^2)/(P-2) and a constant.
        gradient = np.concatenate([np.zeros(count), [-1.0], total_K]) * 2 / (prompts - 2)
        rows = np.zeros((len(QUANTITIES), len(gradient)))
        rows[0, 0], rows[1, 1], rows[2, 2], rows[4, 0] = 1.0, 1.0, 1.0, 1.0
        rows[0] -= gradient
        rows[3] = gradient
        rows[np.arange(5, len(QUANTITIES)), np.arange(3, count)] = 1.0
        second = rows @ self.outer_UU @ rows.T
        mean = rows @ self.sum_U / prompts
        covariance: Float = (second - prompts * np.outer(mean, mean)) / (prompts - 1) / prompts
        return covariance


def score_sums(
    score_NK: ArrayLike, reward_N: ArrayLike, prompt_N: ArrayLike, *, zero_mean: bool = True
) -> ScoreSums:
    """Sums of one batch.

    Args:
        score_NK: one score or sketch a rollout, at most 4,096 wide.
        reward_N: one reward a rollout.
        prompt_N: the label of its prompt; a prompt's group must lie in one batch.
        zero_mean: whether E[s|x] = 0; see `moments_of_scores`.

    Returns:
        The sums, to be added to those of other batches.

    Raises:
        InvalidArgumentError: too wide, shapes that do not fit, or a NaN or infinity.
        InsufficientDataError: no group has four rollouts.

    Example:
        >>> rng = np.random.default_rng(1)
        >>> score_sums(
        ...     rng.normal(size=(64, 3)), rng.normal(size=64), np.repeat(np.arange(8), 8)
        ... ).prompts
        8
    """
    score: NDArray[np.floating] = checked_shape("score_NK", score_NK, dimensions=2)
    reward = finite_array("reward_N", reward_N, dimensions=1)
    if score.shape[1] > WIDEST:
        raise InvalidArgumentError(
            f"expected scores of at most {WIDEST:,} numbers, got {score.shape[1]:,}: sketch them "
            "first"
        )
    groups = usable_groups(prompt_N, reward, len(score), "score_NK")
    sums, gradient_PK = sums_of_scores(score, reward, groups)
    row_PU = np.column_stack(
        [
            unbiased_moments(sums, zero_mean=zero_mean),
            sums.weighted_P / (sums.size_P - 1) ** 2,
            gradient_PK,
        ]
    )
    rollouts = int(groups.size_P.sum())
    return ScoreSums(
        len(row_PU),
        rollouts,
        len(reward) - rollouts,
        zero_mean,
        row_PU.sum(axis=0),
        row_PU.T @ row_PU,
    )
