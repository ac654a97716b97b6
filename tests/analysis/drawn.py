"""A stand-in for scores that needs no model: what a shard leaves is drawn from its tokens.

Workers of the tests import it by name.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from groupwise.analysis.components import (
    ScoreShard,
    ShardScores,
    TokenGroup,
)
from groupwise.estimators.moments import GroupMoments, moments_of_scores
from groupwise.gradients.scores import ScoreSource
from groupwise.record.run import RunRecord, rollouts_table, steps_table

GROUPS, ROLLOUTS = 6, 5
POISON = "GROUPWISE_TEST_POISON"  # the reward of a rollout whose group ends its worker


@dataclass
class DrawnShard(ScoreShard):
    """Draws scores in place of taking them."""

    def __call__(self, groups: Sequence[TokenGroup]) -> ShardScores:
        if any(repr(group.reward[0]) == os.environ.get(POISON) for group in groups):
            os.kill(os.getpid(), signal.SIGKILL)
        source = ScoreSource("sum", 1.0, ("weight",), self.width, (), "drawn", 1, 1)
        return ShardScores(GroupMoments.joined([self.draw(group) for group in groups]), source)

    def draw(self, group: TokenGroup) -> GroupMoments:
        reward = np.array(group.reward)
        score = np.random.default_rng(sum(map(sum, [*group.before, *group.after]))).normal(
            size=(len(reward), self.width)
        )
        return moments_of_scores(score, reward, np.zeros(len(reward)))


def random_run() -> RunRecord:
    """Random completions of different lengths, with a reward that depends on them."""
    rng = np.random.default_rng(4)
    rows: list[dict[str, Any]] = []
    for group in range(GROUPS):
        for _ in range(ROLLOUTS):
            text = "".join(rng.choice(list("0123456789"), size=rng.integers(1, 5)))
            reward = text.count("1") + len(text) / 9
            rows.append(
                {
                    "step": 1,
                    "prompt_id": group,
                    "prompt": f"{group}+{group}=",
                    "completion": text,
                    "reward": reward,
                }
            )
    return RunRecord("random", steps_table([1], {"reward": [0.1]}), rollouts_table(rows))
