"""Steps without a signal: no two rollouts of a group differ in reward, so that there is nothing to learn from.

At the start that is a refusal, later a warning, and what it says depends on whether all is wrong, all is right, or nothing is judged. It
changes no training.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from groupwise.errors import GroupwiseWarning, InsufficientDataError

if TYPE_CHECKING:
    import polars as pl

    from groupwise.trainer.credit import Judged

PATIENCE = 10  # steps in a row


class IdleWarning(GroupwiseWarning):
    """A run goes on without a signal."""


def has_signal(judged: Judged) -> bool:
    """Return whether two rollouts of some group differ in reward; those without a reward count for nothing."""
    reward_PG = judged.reward_N.reshape(len(judged.problems), -1)
    finite_PG = np.isfinite(reward_PG)
    highest_P = np.where(finite_PG, reward_PG, -np.inf).max(1)
    return bool((highest_P > np.where(finite_PG, reward_PG, np.inf).min(1)).any())


def refusal(judged: Judged, task: str) -> InsufficientDataError:
    """Return what to say of a run that had no signal from its start."""
    reward_N = judged.reward_N[np.isfinite(judged.reward_N)]
    count = PATIENCE * len(judged.reward_N)
    where = f"all {count} of the first {PATIENCE} steps on {task}"
    if not len(reward_N):
        return InsufficientDataError(f"expected rewards, got none for {where}: the verifier is silent; mend it")
    # Rewards by rule lie in [0, 1] before their weight.
    if reward_N.max() == reward_N.min() < sum(weight for weight in judged.weights.values() if weight > 0):
        return InsufficientDataError(
            f"expected rollouts that differ in reward, got {reward_N[0]:g} for {where}: there is nothing to learn from; warm up further"
            " (--warm-up 0.2), or take an easier level"
        )
    if reward_N.max() == reward_N.min():
        return InsufficientDataError(
            f"expected rollouts that differ in reward, got {reward_N[0]:g} for {where}: nothing is left to learn; take a harder level"
        )
    return InsufficientDataError(
        f"expected rollouts of a group that differ in reward, got equal ones within every group for {where}: there is nothing to learn"
        " from; take larger groups (-G), or another level"
    )


def warning(step: int, row: Mapping[str, Any]) -> IdleWarning:
    """Return what to say of a run that has lost its signal."""
    reward = row.get("reward")
    if reward is None:
        return IdleWarning(f"since step {step} no group has two rewards: nothing is learned; the verifier is silent")
    said = f"since step {step} every rollout of a group has the same reward, {reward:.3g} on average: nothing is learned"
    if reward <= 0:
        return IdleWarning(
            f"{said}; the policy has collapsed or the verifier fails: go back to a checkpoint before, with a lower learning rate"
        )
    return IdleWarning(f"{said} any more")


def idle_since(steps: pl.DataFrame) -> int | None:
    """Return the step at which a run lost its signal for good."""
    known = "dead_share" in steps.columns  # else no group had all its rewards
    dead_T = steps["dead_share"].fill_null(1.0).to_numpy() == 1 if known else np.ones(len(steps), dtype=bool)
    alive = np.flatnonzero(~dead_T)
    first = int(alive[-1]) + 1 if len(alive) else 0
    return int(steps["step"][first]) if len(steps) - first >= PATIENCE else None
