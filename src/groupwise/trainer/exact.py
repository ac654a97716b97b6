r"""Policy-gradient training without sampling noise: expected updates, values and curvature by enumeration of every completion.

The objective is $J - \beta\,\mathrm{KL}(\pi \| \pi_{ref})$, the mean over all prompts. With stale samples the expected update is
$\sum_y w(y)\,\nabla\log\pi_\theta(y)$, the weights being made of the policy that sampled. It draws nothing and runs no optimiser.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from groupwise.trainer.enumeration import Branches, OutcomeTree, outcome_log_probabilities, outcome_rewards
from groupwise.trainer.policy import Policy
from groupwise.trainer.tasks import Problem, Task

Ratio = Literal["none", "exact", "clipped"]
Float = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ExactLoss:
    """What the loss does with the lag."""

    kl_weight: float  # beta of the KL term to the reference
    kl_in: Literal["loss", "reward"] = "loss"  # loss (of the current policy) or reward (of the policy that sampled)
    ratio: Ratio = "none"  # none, exact or clipped importance ratio of the whole completion
    clip: float = 0.2  # of the clipped ratio
    # advantages are divided by the deviation of their prompt's reward plus this, in the limit of large groups;
    # None: not at all
    std_eps: float | None = None


class ExactWorld:
    """A policy on a small task, as a function of its flat parameters.

    It follows the protocol of `groupwise.theory.stiffness`: `mean_reward` and `expected_step`.
    """

    def __init__(self, policy: nn.Module, task: Task, problems: tuple[Problem, ...], loss: ExactLoss) -> None:
        self.policy, self.loss = policy, loss
        self.tree = OutcomeTree.of(tokens=len(task.vocabulary), completion_length=task.completion_length)
        self.outcomes = _Outcomes(policy, self.tree)
        self.shapes = {name: value.shape for name, value in self.outcomes.named_parameters()}
        self.start_D = torch.cat([value.detach().flatten() for value in policy.parameters()])
        self.prompt_PL = torch.as_tensor(task.prompt_tokens(problems))
        self.reward_PO = torch.as_tensor(outcome_rewards(task, problems, self.tree), dtype=self.start_D.dtype)
        with torch.no_grad():
            self.reference_PO = self.log_probabilities(self.start_D)

    def log_probabilities(self, parameter_D: Tensor) -> Tensor:
        """Return the log-probability of every outcome of every prompt, differentiable."""
        sizes = [shape.numel() for shape in self.shapes.values()]
        parts = torch.split(parameter_D, sizes)
        values = {name: part.view(shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)}
        found: Tensor = functional_call(self.outcomes, values, (self.prompt_PL,))
        return found

    def value(self, log_probability_PO: Tensor) -> Tensor:
        """Return the mean reward."""
        return (log_probability_PO.exp() * self.reward_PO).sum(1).mean()

    def divergence(self, log_probability_PO: Tensor) -> Tensor:
        """Return the KL divergence from the reference."""
        return (log_probability_PO.exp() * (log_probability_PO - self.reference_PO)).sum(1).mean()

    def objective(self, parameter_D: Tensor) -> Tensor:
        """Return the mean reward minus the weighted KL: what the expected update on policy ascends, but for division by a deviation."""
        found = self.log_probabilities(parameter_D)
        return self.value(found) - self.loss.kl_weight * self.divergence(found)

    def surrogate(self, now_PO: Tensor, sampled_PO: Tensor) -> Tensor:
        r"""The loss whose gradient in the present policy is the expected update, with outcomes drawn by another one."""
        advantage = self._advantage(sampled_PO)
        share = sampled_PO.exp()
        if self.loss.ratio == "none":
            gain = share * advantage * now_PO
        else:
            ratio = (now_PO - sampled_PO).exp()
            gain = share * advantage * ratio
            if self.loss.ratio == "clipped":
                gain = torch.minimum(gain, share * advantage * ratio.clamp(1 - self.loss.clip, 1 + self.loss.clip))
        current = self.loss.kl_weight * self.divergence(now_PO) if self.loss.kl_in == "loss" else 0.0
        return gain.sum(1).mean() - current

    def _advantage(self, sampled_PO: Tensor) -> Tensor:
        """Reward minus its mean under the policy that sampled: leave-one-out in expectation."""
        reward = self.reward_PO
        if self.loss.kl_in == "reward":
            reward = reward - self.loss.kl_weight * (sampled_PO - self.reference_PO)
        share = sampled_PO.exp()
        centred = reward - (share * reward).sum(1, keepdim=True)
        if self.loss.std_eps is None:
            return centred
        return centred / ((share * centred**2).sum(1, keepdim=True).sqrt() + self.loss.std_eps)

    def update(self, now_D: Tensor, sampled_PO: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The expected update, divided by the learning rate."""
        parameter = now_D.detach().requires_grad_()
        now_PO = self.log_probabilities(parameter)
        (gradient,) = torch.autograd.grad(self.surrogate(now_PO, now_PO.detach() if sampled_PO is None else sampled_PO), parameter)
        return gradient, now_PO.detach()

    def mean_reward(self, parameter_D: Float) -> float:
        """The mean reward, exact."""
        with torch.no_grad():
            return float(self.value(self.log_probabilities(torch.as_tensor(parameter_D, dtype=self.start_D.dtype))))

    def expected_step(self, parameter_D: Float) -> Float:
        """The expected update on policy, divided by the learning rate."""
        return np.asarray(self.update(torch.as_tensor(parameter_D, dtype=self.start_D.dtype))[0].double().numpy())

    def change_of_update(self, now_D: Tensor, direction_D: Tensor, *, stale: bool) -> Tensor:
        """How the expected update changes as the present policy moves, or as the sampling one does; an exact Jacobian product."""
        now = now_D.detach().requires_grad_()
        sampled = now_D.detach().requires_grad_()
        with twice_differentiable():
            now_PO, sampled_PO = self.log_probabilities(now), self.log_probabilities(sampled)
            (gradient,) = torch.autograd.grad(self.surrogate(now_PO, sampled_PO), now, create_graph=True)
            # The Jacobian times a vector by the trick of two transposed products.
            dummy = torch.zeros_like(gradient, requires_grad=True)
            (pulled,) = torch.autograd.grad(gradient, sampled if stale else now, dummy, create_graph=True)
            (pushed,) = torch.autograd.grad(pulled, dummy, direction_D)
        return pushed.detach()


class _Outcomes(nn.Module):
    """The log-probabilities of all outcomes as the output of a module, as `functional_call` wants it."""

    def __init__(self, policy: nn.Module, tree: OutcomeTree) -> None:
        super().__init__()
        self.policy, self.tree = Branches(policy) if isinstance(policy, Policy) else policy, tree

    def forward(self, prompt_PL: Tensor) -> Tensor:
        """P x O."""
        return outcome_log_probabilities(self.policy, prompt_PL, self.tree)


@contextmanager
def twice_differentiable() -> Iterator[None]:
    """Attention that has second derivatives."""
    with sdpa_kernel(SDPBackend.MATH):
        yield
