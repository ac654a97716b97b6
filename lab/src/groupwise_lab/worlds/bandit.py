r"""Softmax bandits in which every moment of the policy gradient is a finite sum: the judge of the
estimators.

A world has P prompts; at each the policy picks one of O outcomes, and an outcome has a probability,
a score and a reward. An arm with a random reward is several outcomes of the same score. Suffixes
here: `O` outcomes, `A` arms. A group whose prompt was drawn twice is two
groups, as in the theory, so labels number groups and not prompts. It holds no estimator and imports
none: it only sums over outcomes, or draws them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from groupwise.arrays import Float, finite_array
from groupwise.errors import InvalidArgumentError

Index = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class WorldMoments:
    r"""Exact moments of a world: given each prompt, and averaged over prompts.

    With $e = Z - V(x)$, the reward's distance from the prompt's value, and $s$ the score.
    """

    value_P: Float  # $V(x) = E[Z|x]$, reward units
    reward_variance_P: Float  # $\sigma^2(x) = Var(Z|x)$
    score_norm2_P: Float  # $S_2(x) = E[|s|^2|x]$, the trace of the Fisher matrix
    fisher_PDD: Float  # $F(x) = E[s s^T|x]$
    kappa_P: Float  # $\kappa(x) = E[|s|^2 e|x]$, which ties the size of the score to the reward
    gradient_PD: Float  # $g(x) = E[s Z|x]$
    gradient_norm2_P: Float  # $|g(x)|^2$
    # $T_o(x) = E[|s|^2 e^2|x] - |g(x)|^2$, the variance of one rollout of the oracle estimator
    oracle_variance_P: Float
    degenerate_P: Float  # $R(x) = S_2\sigma^2 + |g(x)|^2$
    gradient_D: Float  # $g = E\,g(X)$
    vp: float  # $V_p = E|g(X) - g|^2$, the variance between prompts
    t: float  # $T = E\,T_o(X)$
    r: float  # $R = E\,R(X)$


@dataclass(frozen=True, slots=True)
class BanditWorld:
    r"""Prompts, each with a finite policy, whose gradient statistics are exact sums."""

    probability_PO: Float  # of each outcome at each prompt; rows sum to 1
    # gradient of the outcome's log probability; the mean over outcomes is zero at each prompt
    score_POD: Float
    reward_PO: Float  # reward of each outcome
    weight_P: Float  # probability of each prompt, $f(x)$

    def __post_init__(self) -> None:
        """Refuse probabilities that are none and scores whose mean is not zero."""
        shape_PO = self.probability_PO.shape
        assert self.reward_PO.shape == shape_PO
        assert self.score_POD.shape[:2] == shape_PO
        assert self.weight_P.shape == shape_PO[:1]
        for rows in (self.probability_PO, self.weight_P[None]):
            if (rows < 0).any() or not np.allclose(rows.sum(axis=1), 1, rtol=0, atol=1e-12):
                raise InvalidArgumentError(
                    "expected probabilities that are not negative and sum to 1: divide by their sum"
                )
        if not np.allclose(
            _mean(self.probability_PO, self.score_POD),
            0,
            rtol=0,
            atol=1e-10 * (1 + np.abs(self.score_POD).max()),
        ):
            raise InvalidArgumentError(
                "expected scores with mean zero at every prompt: subtract the policy's mean of the "
                "features"
            )

    def moments(self) -> WorldMoments:
        """Return every moment that the laws of the gradient's error need, summed over outcomes."""
        probability_PO, score_POD = self.probability_PO, self.score_POD
        value_P = _mean(probability_PO, self.reward_PO)
        centred_PO = self.reward_PO - value_P[:, None]
        norm2_PO = (score_POD**2).sum(axis=2)
        gradient_PD = _mean(probability_PO, score_POD * self.reward_PO[:, :, None])
        gradient_D = self.weight_P @ gradient_PD
        gradient_norm2_P = (gradient_PD**2).sum(axis=1)
        score_norm2_P, reward_variance_P = (
            _mean(probability_PO, norm2_PO),
            _mean(probability_PO, centred_PO**2),
        )
        oracle_variance_P = _mean(probability_PO, norm2_PO * centred_PO**2) - gradient_norm2_P
        degenerate_P = score_norm2_P * reward_variance_P + gradient_norm2_P
        return WorldMoments(
            value_P=value_P,
            reward_variance_P=reward_variance_P,
            score_norm2_P=score_norm2_P,
            fisher_PDD=_mean(probability_PO, score_POD[..., :, None] * score_POD[..., None, :]),
            kappa_P=_mean(probability_PO, norm2_PO * centred_PO),
            gradient_PD=gradient_PD,
            gradient_norm2_P=gradient_norm2_P,
            oracle_variance_P=oracle_variance_P,
            degenerate_P=degenerate_P,
            gradient_D=gradient_D,
            vp=float(self.weight_P @ ((gradient_PD - gradient_D) ** 2).sum(axis=1)),
            t=float(self.weight_P @ oracle_variance_P),
            r=float(self.weight_P @ degenerate_P),
        )

    @property
    def vp(self) -> float:
        """Return the exact $V_p$; see `WorldMoments`."""
        return self.moments().vp

    @property
    def t(self) -> float:
        """Return the exact $T$; see `WorldMoments`."""
        return self.moments().t

    @property
    def r(self) -> float:
        """Return the exact $R$; see `WorldMoments`."""
        return self.moments().r

    def projected(self, matrix_DR: ArrayLike) -> BanditWorld:
        """Return the world whose scores are projected on directions, or stretched by a metric."""
        score_POR = self.score_POD @ finite_array("matrix_DR", matrix_DR, dimensions=2)
        return BanditWorld(self.probability_PO, score_POR, self.reward_PO, self.weight_P)

    def sample(
        self, prompts: int, group_size: int | Sequence[int] | Index, rng: Generator
    ) -> tuple[Float, Float, Index]:
        """Draw a minibatch: a prompt for each group, then its rollouts."""
        return self.sample_at(self.draw_prompts(prompts, rng), group_size, rng)

    def sample_at(
        self, prompt_B: ArrayLike, group_size: int | Sequence[int] | Index, rng: Generator
    ) -> tuple[Float, Float, Index]:
        """Draw one group for each of the prompts given."""
        prompt_B = np.asarray(prompt_B, dtype=np.intp)
        group_N = np.repeat(np.arange(len(prompt_B)), group_size)
        prompt_N = prompt_B[group_N]
        uniform_N = rng.random(len(group_N))
        cumulated_OP = np.cumsum(self.probability_PO, axis=1).T
        outcome_N = np.zeros(len(group_N), dtype=np.intp)
        for cumulated_P in cumulated_OP[:-1]:
            outcome_N += uniform_N >= cumulated_P[prompt_N]
        prompts, outcomes, dimensions = self.score_POD.shape
        row_N = prompt_N * outcomes + outcome_N
        score_ND = self.score_POD.reshape(prompts * outcomes, dimensions).take(row_N, axis=0)
        return score_ND, self.reward_PO.ravel().take(row_N), group_N

    def draw_prompts(self, prompts: int, rng: Generator) -> Index:
        """Draw the prompts of a minibatch."""
        place_B = np.searchsorted(np.cumsum(self.weight_P), rng.random(prompts), side="right")
        return np.minimum(place_B, len(self.weight_P) - 1)


def _mean(probability_PO: Float, values: Float) -> Float:
    """Mean over the outcomes of each prompt, of numbers or of arrays."""
    return np.asarray(np.einsum("po,po...->p...", probability_PO, values))


def softmax_world(
    feature_PAD: ArrayLike,
    parameter_D: ArrayLike,
    reward_PA: ArrayLike,
    *,
    noise_PA: ArrayLike | None = None,
    binary: bool = False,
    weight_P: ArrayLike | None = None,
) -> BanditWorld:
    r"""Return the world of a softmax policy with features shared by all prompts.

    $\pi(a|x) \propto \exp(\phi(x,a)\cdot\theta)$, $s(a|x) = \phi(x,a) - \sum_b \pi(b|x)\phi(x,b)$.
    """
    feature = finite_array("feature_PAD", feature_PAD, dimensions=3)
    parameter = finite_array("parameter_D", parameter_D, dimensions=1)
    reward = finite_array("reward_PA", reward_PA, dimensions=2)
    prompts, arms, dimensions = feature.shape
    if reward.shape != (prompts, arms) or parameter.shape != (dimensions,):
        raise InvalidArgumentError(
            f"expected {prompts} x {arms} rewards and {dimensions} parameters, got {reward.shape} "
            f"and {parameter.shape}: give one reward an arm and one parameter a feature"
        )
    logit_PA = feature @ parameter
    policy_PA = np.exp(logit_PA - logit_PA.max(axis=1, keepdims=True))
    policy_PA /= policy_PA.sum(axis=1, keepdims=True)
    score_PAD = feature - _mean(policy_PA, feature)[:, None]
    probability_PO, reward_PO = policy_PA, reward
    if binary:
        if reward.min() < 0 or reward.max() > 1:
            raise InvalidArgumentError(
                f"expected mean rewards from 0 to 1, got {reward.min():g} to {reward.max():g}: "
                "leave out `binary`"
            )
        probability_PO = np.concatenate([policy_PA * reward, policy_PA * (1 - reward)], axis=1)
        reward_PO = np.concatenate([np.ones_like(reward), np.zeros_like(reward)], axis=1)
    elif noise_PA is not None:
        noise = np.asarray(noise_PA)
        probability_PO = np.concatenate([policy_PA, policy_PA], axis=1) / 2
        reward_PO = np.concatenate([reward + noise, reward - noise], axis=1)
    score_POD = np.concatenate([score_PAD] * (probability_PO.shape[1] // arms), axis=1)
    weight_P = np.full(prompts, 1 / prompts) if weight_P is None else np.asarray(weight_P)
    return BanditWorld(probability_PO, score_POD, reward_PO, weight_P)


def random_world(
    rng: Generator,
    *,
    prompts: int = 32,
    arms: int = 5,
    dimensions: int = 8,
    rewards: Literal["binary", "continuous", "noisy"] = "continuous",
    spread: float = 1.0,
) -> BanditWorld:
    r"""Return a world of unlike prompts: values, score sizes, $\kappa$ and gradients differ from
    prompt to prompt.
    """
    scale_P = np.exp(0.3 * spread * rng.standard_normal(prompts))
    feature_PAD = scale_P[:, None, None] * rng.standard_normal((prompts, arms, dimensions))
    parameter_D = rng.standard_normal(dimensions) / np.sqrt(dimensions)
    # What is rewarded is shared in part, so that the gradients of different prompts point the same
    # way on average.
    wanted_D = 2 * rng.standard_normal(dimensions) / np.sqrt(dimensions)
    difficulty_P = spread * rng.standard_normal(prompts)
    merit_PA = feature_PAD @ wanted_D + rng.standard_normal((prompts, arms)) - difficulty_P[:, None]
    reward_PA = 1 / (1 + np.exp(-merit_PA))
    weight_P = rng.dirichlet(np.full(prompts, 4.0))
    noise_PA = rng.uniform(0, 0.5, (prompts, arms)) if rewards == "noisy" else None
    return softmax_world(
        feature_PAD,
        parameter_D,
        reward_PA,
        noise_PA=noise_PA,
        binary=rewards == "binary",
        weight_P=weight_P,
    )
