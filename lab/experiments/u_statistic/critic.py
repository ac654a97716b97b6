"""A learned value network: the policy's own architecture with one number at the end of the prompt,
taught by the rewards as they come.

A batch gets its values before the critic learns from that batch, so that they do not depend on it
and the gradient stays unbiased; what it learns from may be that batch alone or some that came
before it too. It weighs no advantage: the trainer's `oracle` takes its values in place of the true
ones.
"""

import copy
import math
import random
from collections import deque

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor
from world import world_task

from groupwise_lab.trainer.credit import GradedRollouts
from groupwise_lab.trainer.policy import Actor, Policy
from groupwise_lab.trainer.tasks import Task

RATE = 1e-3  # of its Adam
MEMORY = 32  # batches that it may learn from again


class Critic(torch.nn.Module):
    """V(x) as the logistic of a linear function of the last logits of a copy of the policy.

    Args:
        policy: copied; at first every value is `value`.
        value: mean reward at the start.
        rate: of its Adam.
        passes: steps of Adam a batch: the first on the batch itself, the others on batches drawn
            from the last `MEMORY`.
    """

    def __init__(
        self, policy: Policy, value: float, *, rate: float = RATE, passes: int = 1
    ) -> None:
        super().__init__()
        self.trunk = copy.deepcopy(policy)
        self.end = torch.nn.Linear(policy.vocabulary_size, 1)
        with torch.no_grad():
            self.end.weight.zero_()
            self.end.bias.fill_(math.log(value / (1 - value)))
        self.optimizer = torch.optim.Adam(self.parameters(), lr=rate)
        self.passes, self.seen, self.draw = (
            passes,
            deque[tuple[Tensor, Tensor]](maxlen=MEMORY),
            random.Random(0),
        )

    def forward(self, prompt_PL: Tensor) -> Tensor:
        """Logits of V(x)."""
        return self.end(self.trunk(prompt_PL)[:, -1])[:, 0]

    def values(self, prompt_PL: Tensor) -> ndarray:
        """V(x) of every prompt."""
        with torch.no_grad():
            return np.asarray(self(prompt_PL).sigmoid().double().numpy())

    def learned(self, actor: Actor, task: Task, judged: GradedRollouts) -> dict[str, ndarray]:
        """Values of a batch, then what it teaches."""
        prompt_PL = actor.prompt_tokens(task, judged.problems)
        value_P = self.values(prompt_PL)
        self.learn(prompt_PL, judged.reward_N.reshape(len(value_P), -1).mean(1))
        return {"value": value_P}

    def learn(self, prompt_PL: Tensor, mean_P: ndarray) -> None:
        """Steps of Adam on the cross-entropy of mean rewards."""
        self.seen.append((prompt_PL, torch.from_numpy(mean_P).float()))
        for place in range(self.passes):
            prompts, means = self.draw.choice(self.seen) if place else self.seen[-1]
            self.optimizer.zero_grad()
            torch.nn.functional.binary_cross_entropy_with_logits(self(prompts), means).backward()
            self.optimizer.step()


def critic_values(critic: Critic, policy: Policy, first: int) -> ndarray:
    """Its values of the first training problems."""
    task = world_task()
    return critic.values(policy.prompt_tokens(task, task.train[:first]))
