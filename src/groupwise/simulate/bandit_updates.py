r"""The life of some replicates: present parameters, the policy that samples, and one update after another.

Every operation is elementwise over replicates, so a replicate does not feel how many others are beside it. It draws no random number
and computes no advantage.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from groupwise.simulate.bandit_groups import Index, coefficients, expected_coefficients, thresholds
from groupwise.simulate.bandit_settings import Bandit, Float, Training


@dataclass(frozen=True, slots=True)
class SamplingPolicy:
    """A policy as rollouts see it."""

    probability_AS: Float  # of each arm
    threshold_AS: Index  # what uniform numbers are compared with, for all arms but the last
    reward_AS: Float  # rewards, less the KL penalty of this policy where that is in the reward


class Update:
    """Replicates in training."""

    def __init__(self, bandit: Bandit, training: Training, logit_AS: Float, *, learning_rate_S: Float | None = None) -> None:
        """Start before the first update."""
        self.bandit, self.training = bandit, training
        self.logit_AS = logit_AS
        self.number: np.dtype[Any] = logit_AS.dtype
        self.columns = logit_AS.shape[1]
        self._rate = training.learning_rate if learning_rate_S is None else learning_rate_S
        self._velocity_AS = np.zeros_like(logit_AS)
        self._square_AS = np.zeros_like(logit_AS) if training.optimizer == "adam" else None
        self._reward_A1: Float = bandit.reward_A.astype(self.number)[:, None]
        self._log_reference_A1: Float = np.log(bandit.reference_A).astype(self.number)[:, None]
        self._done = 0
        self._kept: dict[int, SamplingPolicy] = {}
        self.policy_AS = np.empty_like(logit_AS)
        self._log_normaliser_S = np.empty_like(logit_AS[0])
        self._look()
        self.sampling = self._present()

    def _look(self) -> None:
        """Compute the present policy from the logits."""
        top_S = self.logit_AS.max(axis=0)
        np.exp(np.subtract(self.logit_AS, top_S, out=self.policy_AS), out=self.policy_AS)
        total_S = np.add.reduce(self.policy_AS, axis=0)
        self.policy_AS /= total_S
        self._log_normaliser_S = np.log(total_S, out=total_S)
        self._log_normaliser_S += top_S

    def _log_ratio(self) -> Float:
        """Logarithm of the present over the reference policy."""
        log_AS: Float = self.logit_AS - self._log_reference_A1
        log_AS -= self._log_normaliser_S
        return log_AS

    def _present(self) -> SamplingPolicy:
        """Return the present policy as rollouts would see it; a copy where it will be needed after the next update."""
        policy_AS = self.policy_AS if self.training.lag == "none" else self.policy_AS.copy()
        reward_AS = self._reward_A1
        if self.training.kl_place == "reward" and self.bandit.kl_weight:
            reward_AS = reward_AS - self.bandit.kl_weight * self._log_ratio()
        return SamplingPolicy(policy_AS, thresholds(policy_AS), reward_AS)

    def choose_sampling_policy(self) -> None:
        """Decide which parameters sample the rollouts of the next update."""
        lag, interval, done = self.training.lag, self.training.interval, self._done
        if lag == "none":
            self.sampling = self._present()
        elif lag == "fixed":
            self._kept[done] = self._present()
            self.sampling = self._kept[max(done - interval, 0)]
            self._kept.pop(done - interval, None)
        elif lag == "refresh":
            if done % interval == 0:
                self.sampling = self._present()
        elif lag == "async":
            if done % interval == 0:
                fresh = self._present()
                self.sampling = self._kept.get(0, fresh)
                self._kept[0] = fresh
        else:
            assert_never(lag)

    def apply(self, count_APS: Float | None) -> None:
        """Make one update."""
        ratio_AS = self._ratio()
        if count_APS is None:
            gradient_AS = expected_coefficients(self.sampling.probability_AS, self.sampling.reward_AS, ratio_AS, self.training)
        else:
            gradient_AS = coefficients(count_APS, self.sampling.reward_AS, ratio_AS, self.training)
        if ratio_AS is not None or not self.training.centred:
            gradient_AS -= np.add.reduce(gradient_AS, axis=0) * self.policy_AS
        if self.bandit.kl_weight and self.training.kl_place == "loss":
            pull_AS = self._log_ratio()
            pull_AS -= np.add.reduce(pull_AS * self.policy_AS, axis=0)
            pull_AS *= self.policy_AS
            pull_AS *= self.bandit.kl_weight
            gradient_AS -= pull_AS
        self._done += 1
        self._move(gradient_AS)
        self._look()

    def _ratio(self) -> Float | None:
        """Present over sampling probability, or None where all weights are 1; an arm that was never drawn has 1."""
        if self.training.ratio == "none" or self.training.lag == "none":
            return None
        sampled_AS = self.sampling.probability_AS
        return np.divide(self.policy_AS, sampled_AS, out=np.ones_like(sampled_AS), where=sampled_AS > 0)

    def _move(self, gradient_AS: Float) -> None:
        """Change the logits along the gradient; the array handed over is used up."""
        momentum = self.training.momentum
        if self._square_AS is None:
            gradient_AS *= self._rate
            self._velocity_AS *= momentum
            self._velocity_AS += gradient_AS
            self.logit_AS += self._velocity_AS
            return
        beta2 = self.training.beta2
        self._velocity_AS += (1 - momentum) * (gradient_AS - self._velocity_AS)
        self._square_AS += (1 - beta2) * (gradient_AS * gradient_AS - self._square_AS)
        root_AS = np.sqrt(self._square_AS / (1 - beta2**self._done)) + self.training.epsilon
        self.logit_AS += self._rate * (self._velocity_AS / (1 - momentum**self._done)) / root_AS

    def exact(self, name: str) -> NDArray[Any]:
        """Return the value, the KL divergence from the reference or the entropy of the present policy, one number a replicate."""
        if name == "value":
            per_arm_AS = self.policy_AS * self._reward_A1
        elif name == "kl":
            per_arm_AS = self.policy_AS * self._log_ratio()
        else:
            per_arm_AS = self.policy_AS * (self._log_normaliser_S - self.logit_AS)
        total_S: Float = np.add.reduce(per_arm_AS, axis=0)
        return total_S
