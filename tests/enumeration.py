"""Every group that a bandit's prompt can have: expectations over groups are finite sums, which judge
estimators and laws alike. Suffix `M`: enumerated groups.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from groupwise.arrays import Float
from groupwise_lab.worlds.bandit import BanditWorld, softmax_world


@dataclass(frozen=True)
class GroupEnumeration:
    """Every outcome that a group of one prompt can have, in order."""

    probability_M: Float  # of each group; they sum to 1
    score_MGD: Float  # scores of its rollouts
    reward_MG: Float  # rewards of its rollouts

    def mean(self, statistic_M: ArrayLike) -> Float:
        """Return the exact expectation of a statistic that has one entry, a number or an array,
        for each group.
        """
        return np.asarray(
            np.tensordot(self.probability_M, np.asarray(statistic_M, dtype=float), axes=1)
        )

    def variance(self, statistic_MD: ArrayLike) -> float:
        """Return the exact trace of the covariance of a vector statistic, one row a group."""
        centred_MD = np.asarray(statistic_MD, dtype=float) - self.mean(statistic_MD)
        return float(self.mean((centred_MD**2).sum(axis=1)))


def enumerate_groups(world: BanditWorld, group_size: int, *, prompt: int = 0) -> GroupEnumeration:
    """Return every group of a prompt with its probability: O to the power G of them."""
    outcomes = world.reward_PO.shape[1]
    assert outcomes**group_size <= 2_000_000
    outcome_MG = np.indices((outcomes,) * group_size).reshape(group_size, -1).T
    probability_M = world.probability_PO[prompt][outcome_MG].prod(axis=1)
    return GroupEnumeration(
        probability_M, world.score_POD[prompt][outcome_MG], world.reward_PO[prompt][outcome_MG]
    )


def tabular_world(
    logit_PA: ArrayLike, reward_PA: ArrayLike, *, weight_P: ArrayLike | None = None
) -> BanditWorld:
    """Return the world in which every arm of every prompt has a parameter of its own."""
    logit = np.asarray(logit_PA, dtype=float)
    feature_PAD = np.eye(logit.size).reshape(*logit.shape, logit.size)
    return softmax_world(feature_PAD, logit.ravel(), reward_PA, weight_P=weight_P)
