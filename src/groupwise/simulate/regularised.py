r"""Softmax policies pulled towards a reference, with the optimum, the curvature and the gradient's moments known exactly.

P prompts, A answers each, features $\phi(x,a)$: $\pi_\theta(a|x) \propto \pi_{ref}(a|x)e^{\theta\cdot\phi(x,a)}$ climbs
$J = E_x[\sum_a\pi r - \beta KL(\pi\|\pi_{ref})]$. One prompt with one feature an answer is a bandit in its logits, whose Hessian
lacks a rank. Everything is a finite sum. A noisy reward is two answers of the same features.
It draws nothing, holds no estimator and imports none: runs are in `falling_steps`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from groupwise.arrays import finite_array
from groupwise.errors import InvalidArgumentError

Float = NDArray[np.float64]

_NEWTON_STEPS = 200


@dataclass(frozen=True, slots=True)
class PolicyMoments:
    r"""Moments of score and reward at one policy, prompt by prompt; $e = r - V$, $s$ the score."""

    value_P: Float  # V, reward units
    reward_variance_P: Float  # of the reward
    fisher_PDD: Float  # $E[ss^T]$
    weighted_fisher_PDD: Float  # $E[ss^Te]$
    second_moment_PDD: Float  # $E[ss^Te^2]$
    gradient_PD: Float  # $E[sr]$, of the reward alone
    pull_PD: Float  # gradient of minus the KL term, which is computed and not sampled


@dataclass(frozen=True, slots=True)
class RegularisedWorld:
    r"""Prompts, answers, features, rewards and the weight of the KL term."""

    feature_PAD: Float  # $\phi(x, a)$
    reward_PA: Float  # reward of each answer, reward units
    reference_PA: Float  # reference policy, rows adding up to 1
    kl_weight: float  # $\beta$, reward units a nat
    weight_P: Float  # how often each prompt is drawn, adding up to 1

    def __post_init__(self) -> None:
        """Check that this is a world."""
        feature = finite_array("feature_PAD", self.feature_PAD, dimensions=3)
        shape = feature.shape[:2]
        for name, array in (("reward_PA", self.reward_PA), ("reference_PA", self.reference_PA)):
            if finite_array(name, array, dimensions=2).shape != shape:
                raise InvalidArgumentError(f"expected {name} of shape {shape}, as the features, got {np.shape(array)}")
        weight = finite_array("weight_P", self.weight_P, dimensions=1)
        if shape[1] < 2 or len(weight) != shape[0]:
            raise InvalidArgumentError(f"expected two answers or more and a weight for each of {shape[0]} prompts, got {shape[1]} answers")
        for name, table in (("reference_PA", self.reference_PA), ("weight_P", self.weight_P[None])):
            if not ((table > 0).all() and np.allclose(table.sum(axis=-1), 1, rtol=0, atol=1e-12)):
                raise InvalidArgumentError(f"expected positive probabilities that add up to 1 in {name}, got {table.sum(axis=-1)}")
        if not (self.kl_weight > 0 and np.isfinite(self.kl_weight)):
            raise InvalidArgumentError(f"expected a KL weight above 0, got {self.kl_weight:g}: without a pull there is no optimum to reach")

    @property
    def dimensions(self) -> int:
        """Parameters."""
        return int(self.feature_PAD.shape[2])

    def policy(self, theta_RD: ArrayLike) -> Float:
        """Return the probabilities of the answers, shape (R, P, A), for R parameter vectors."""
        logit = np.einsum("rd,pad->rpa", np.atleast_2d(np.asarray(theta_RD, dtype=float)), self.feature_PAD) + np.log(self.reference_PA)
        weight = np.exp(logit - logit.max(axis=2, keepdims=True))
        return np.asarray(weight / weight.sum(axis=2, keepdims=True))

    def objectives(self, theta_RD: ArrayLike) -> Float:
        """Return J at R parameter vectors."""
        policy = self.policy(theta_RD)
        tilt = np.log(policy / self.reference_PA)
        return np.asarray((policy * (self.reward_PA - self.kl_weight * tilt)).sum(axis=2) @ self.weight_P)

    def objective(self, theta_D: ArrayLike) -> float:
        """Return J at one parameter vector."""
        return float(self.objectives(theta_D)[0])

    def moments(self, theta_D: ArrayLike) -> PolicyMoments:
        """Return the moments that the covariance of every gradient estimate is made of."""
        theta = np.asarray(theta_D, dtype=float)
        policy = self.policy(theta)[0]
        value = (policy * self.reward_PA).sum(axis=1)
        centred = self.reward_PA - value[:, None]
        score = self._score(policy)
        square = [np.einsum("pa,pai,paj->pij", policy * centred**power, score, score) for power in (0, 1, 2)]
        gradient = np.einsum("pa,pai->pi", policy * centred, score)
        return PolicyMoments(
            value, (policy * centred**2).sum(axis=1), square[0], square[1], square[2], gradient, -self.kl_weight * square[0] @ theta
        )

    def gradient(self, theta_D: ArrayLike) -> Float:
        r"""Return the gradient of J, $E[sr] - \beta F\theta$ over prompts."""
        found = self.moments(theta_D)
        return np.asarray(self.weight_P @ (found.gradient_PD + found.pull_PD))

    def hessian(self, theta_D: ArrayLike) -> Float:
        r"""Return the Hessian of J, $E[ss^Te] - \beta(F + E[ss^T\,s\cdot\theta])$ over prompts.

        Source: derived here: the score's derivative is minus the Fisher matrix, whose own is the third cumulant of the features.
        """
        theta = np.asarray(theta_D, dtype=float)
        policy = self.policy(theta)[0]
        score = self._score(policy)
        centred = self.reward_PA - (policy * self.reward_PA).sum(axis=1, keepdims=True)
        merit = centred - self.kl_weight * (1 + score @ theta)
        return np.asarray(np.einsum("p,pa,pai,paj->ij", self.weight_P, policy * merit, score, score))

    def optimum(self) -> Float:
        """Return the parameters of the optimum that is reached uphill from the reference policy; no part lies in flat directions."""
        theta = np.zeros(self.dimensions)
        for _ in range(_NEWTON_STEPS):
            gradient = self.gradient(theta)
            value, vector = np.linalg.eigh(self.hessian(theta))
            kept = np.abs(value) > 1e-10 * np.abs(value).max()
            along = vector[:, kept].T @ gradient
            step = vector[:, kept] @ (along / np.abs(value[kept]))
            here, length = self.objective(theta), 1.0
            while length > 1e-6 and self.objective(theta + length * step) < here:
                length /= 2
            theta = theta + length * step
            if np.linalg.norm(step) < 1e-13 * (1 + np.linalg.norm(theta)):
                break
        if np.linalg.norm(self.gradient(theta)) > 1e-10:
            raise InvalidArgumentError("expected an optimum within reach of the reference policy, got none: raise the KL weight")
        return theta

    def _score(self, policy_PA: Float) -> Float:
        """Scores of the answers, shape (P, A, D)."""
        return np.asarray(self.feature_PAD - np.einsum("pa,pad->pd", policy_PA, self.feature_PAD)[:, None])


def bandit_world(reward_A: ArrayLike, *, kl_weight: float, reference_A: ArrayLike | None = None) -> RegularisedWorld:
    """Return one prompt whose parameters are the logits of its answers: one more parameter than the policy feels."""
    reward = finite_array("reward_A", reward_A, dimensions=1)
    count = len(reward)
    reference = np.full(count, 1 / max(count, 1)) if reference_A is None else finite_array("reference_A", reference_A, dimensions=1)
    return RegularisedWorld(np.eye(count)[None], reward[None], reference[None], kl_weight, np.ones(1))


def linear_world(
    rng: np.random.Generator, *, prompts: int, answers: int, dimensions: int, kl_weight: float, spread: float = 1.0
) -> RegularisedWorld:
    """Return a linear softmax policy over prompts that share parameters, drawn at random; right answers have reward 1, others 0."""
    reward = (rng.random((prompts, answers)) < 0.5).astype(float)
    reward[:, 0], reward[:, 1] = 1.0, 0.0
    feature = spread * rng.standard_normal((prompts, answers, dimensions))
    reference = np.full((prompts, answers), 1 / answers)
    return RegularisedWorld(feature, reward, reference, kl_weight, np.full(prompts, 1 / prompts))
