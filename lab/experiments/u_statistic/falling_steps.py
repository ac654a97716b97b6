r"""The worlds of the final gap, and hundreds of thousands of runs of stochastic gradient ascent in
them.

A world is a softmax policy pulled towards a reference, with optimum, curvature and the gradient's
moments known exactly: P prompts, A answers each, features $\phi(x,a)$: $\pi_\theta(a|x) \propto
\pi_{ref}(a|x)e^{\theta\cdot\phi(x,a)}$ climbs $J = E_x[\sum_a\pi r - \beta KL(\pi\|\pi_{ref})]$.
One prompt with one feature an answer is a bandit in its logits, whose Hessian lacks a rank. A noisy
reward is two answers of the same features.

Every update of a run, with step $b/(i + i_0)$, draws B prompts and G answers to each, answer by
answer in law: counts of the answers are binomial given those before. The gradient of the reward is
estimated with the mean of the other answers, the true value or a constant as baseline; that of the
KL term is exact for the prompts drawn. It knows no limiting law, and holds none of the library's
estimators.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from groupwise.arrays import Float, Whole, finite_array
from groupwise.errors import InvalidArgumentError

Single = NDArray[np.float32]
EstimatorName = Literal["leave_one_out", "oracle", "vanilla"]

BASELINES: tuple[EstimatorName, ...] = ("leave_one_out", "oracle", "vanilla")
CHUNK = 1024  # runs at a time, so that the arrays of an update stay in the cache
BY_INVERSION = 20  # trials up to which counts come from the distribution function


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
                raise InvalidArgumentError(
                    f"expected {name} of shape {shape}, as the features, got {np.shape(array)}"
                )
        weight = finite_array("weight_P", self.weight_P, dimensions=1)
        if shape[1] < 2 or len(weight) != shape[0]:
            raise InvalidArgumentError(
                f"expected two answers or more and a weight for each of {shape[0]} prompts, got "
                f"{shape[1]} answers"
            )
        for name, table in (("reference_PA", self.reference_PA), ("weight_P", self.weight_P[None])):
            if not ((table > 0).all() and np.allclose(table.sum(axis=-1), 1, rtol=0, atol=1e-12)):
                raise InvalidArgumentError(
                    f"expected positive probabilities that add up to 1 in {name}, got "
                    f"{table.sum(axis=-1)}"
                )
        if not (self.kl_weight > 0 and np.isfinite(self.kl_weight)):
            raise InvalidArgumentError(
                f"expected a KL weight above 0, got {self.kl_weight:g}: without a pull there is no "
                "optimum to reach"
            )

    @property
    def dimensions(self) -> int:
        """Parameters."""
        return int(self.feature_PAD.shape[2])

    def policy(self, theta_RD: ArrayLike) -> Float:
        """Return the probabilities of the answers, shape (R, P, A), for R parameter vectors."""
        logit = np.einsum(
            "rd,pad->rpa", np.atleast_2d(np.asarray(theta_RD, dtype=float)), self.feature_PAD
        ) + np.log(self.reference_PA)
        weight = np.exp(logit - logit.max(axis=2, keepdims=True))
        return np.asarray(weight / weight.sum(axis=2, keepdims=True))

    def objectives(self, theta_RD: ArrayLike) -> Float:
        """Return J at R parameter vectors."""
        policy = self.policy(theta_RD)
        tilt = np.log(policy / self.reference_PA)
        return np.asarray(
            (policy * (self.reward_PA - self.kl_weight * tilt)).sum(axis=2) @ self.weight_P
        )

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
        square = [
            np.einsum("pa,pai,paj->pij", policy * centred**power, score, score)
            for power in (0, 1, 2)
        ]
        gradient = np.einsum("pa,pai->pi", policy * centred, score)
        return PolicyMoments(
            value,
            (policy * centred**2).sum(axis=1),
            square[0],
            square[1],
            square[2],
            gradient,
            -self.kl_weight * square[0] @ theta,
        )

    def gradient(self, theta_D: ArrayLike) -> Float:
        r"""Return the gradient of J, $E[sr] - \beta F\theta$ over prompts."""
        moments = self.moments(theta_D)
        return np.asarray(self.weight_P @ (moments.gradient_PD + moments.pull_PD))

    def hessian(self, theta_D: ArrayLike) -> Float:
        r"""Return the Hessian of J, $E[ss^Te] - \beta(F + E[ss^T\,s\cdot\theta])$ over prompts.

        Source: derived here: the score's derivative is minus the Fisher matrix, whose own is the
        third cumulant of the features.
        """
        theta = np.asarray(theta_D, dtype=float)
        policy = self.policy(theta)[0]
        score = self._score(policy)
        centred = self.reward_PA - (policy * self.reward_PA).sum(axis=1, keepdims=True)
        merit = centred - self.kl_weight * (1 + score @ theta)
        return np.asarray(
            np.einsum("p,pa,pai,paj->ij", self.weight_P, policy * merit, score, score)
        )

    def optimum(self) -> Float:
        """Return the parameters of the optimum that is reached uphill from the reference policy;
        no part lies in flat directions.
        """
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
            raise InvalidArgumentError(
                "expected an optimum within reach of the reference policy, got none: raise the KL "
                "weight"
            )
        return theta

    def _score(self, policy_PA: Float) -> Float:
        """Scores of the answers, shape (P, A, D)."""
        return np.asarray(
            self.feature_PAD - np.einsum("pa,pad->pd", policy_PA, self.feature_PAD)[:, None]
        )


def bandit_world(
    reward_A: ArrayLike, *, kl_weight: float, reference_A: ArrayLike | None = None
) -> RegularisedWorld:
    """Return one prompt whose parameters are the logits of its answers: one more parameter than
    the policy feels.
    """
    reward = finite_array("reward_A", reward_A, dimensions=1)
    count = len(reward)
    reference = (
        np.full(count, 1 / max(count, 1))
        if reference_A is None
        else finite_array("reference_A", reference_A, dimensions=1)
    )
    return RegularisedWorld(
        np.eye(count)[None], reward[None], reference[None], kl_weight, np.ones(1)
    )


def linear_world(
    rng: Generator,
    *,
    prompts: int,
    answers: int,
    dimensions: int,
    kl_weight: float,
    spread: float = 1.0,
) -> RegularisedWorld:
    """Return a linear softmax policy over prompts that share parameters, drawn at random; right
    answers have reward 1, others 0.
    """
    reward = (rng.random((prompts, answers)) < 0.5).astype(float)
    reward[:, 0], reward[:, 1] = 1.0, 0.0
    feature = spread * rng.standard_normal((prompts, answers, dimensions))
    reference = np.full((prompts, answers), 1 / answers)
    return RegularisedWorld(feature, reward, reference, kl_weight, np.full(prompts, 1 / prompts))


@dataclass(frozen=True, slots=True)
class FallingRuns:
    """What became of the runs."""

    step_S: Whole  # updates after which the gap was taken
    gap_SR: Float  # J* - J then, of every run, reward units
    low_D: Float  # smallest value that each parameter ever had in any run
    high_D: Float  # largest


@dataclass(frozen=True, slots=True)
class _UpdateInputs:
    """What one update needs, the same for all."""

    world: RegularisedWorld
    baseline: EstimatorName
    group_size: int
    prompts: int
    feature_DJ: Single  # one column an answer of a prompt, answers slowest
    log_reference_AP: Single
    reward_AP: Single
    cumulative_P: Float
    even: bool


def falling_runs(
    world: RegularisedWorld,
    baseline: EstimatorName,
    rng: Generator,
    *,
    group_size: int,
    prompts: int,
    step_constant: float,
    steps: Sequence[int],
    runs: int,
    offset: float = 0.0,
    power: float = 1.0,
    start_D: ArrayLike | None = None,
    best_D: ArrayLike | None = None,
    progress: Callable[[int], None] | None = None,
) -> FallingRuns:
    r"""Run stochastic gradient ascent with steps $b/(i + i_0)^p$, i = 1, 2, ..."""
    _check(baseline, group_size, prompts, step_constant, steps, runs, offset)
    best = world.optimum() if best_D is None else np.asarray(best_D, dtype=float)
    start = best if start_D is None else np.asarray(start_D, dtype=float)
    update = _update(world, baseline, group_size, prompts)
    top = world.objective(best)
    gap_SR = np.empty((len(steps), runs))
    low, high = start.copy(), start.copy()
    for first in range(0, runs, CHUNK):
        theta_DR = np.tile(start[:, None], (1, min(CHUNK, runs - first)))
        last = first + theta_DR.shape[1]
        row = 0
        for i in range(1, int(steps[-1]) + 1):
            theta_DR += step_constant / (i + offset) ** power * _gradient(update, theta_DR, rng)
            np.minimum(low, theta_DR.min(axis=1), out=low)
            np.maximum(high, theta_DR.max(axis=1), out=high)
            if i == steps[row]:
                gap_SR[row, first:last] = top - world.objectives(theta_DR.T)
                row += 1
        if progress is not None:
            progress(last)
    # Rounding of J can put a run that stands on the optimum a hair above it.
    return FallingRuns(np.asarray(steps, dtype=np.int64), np.maximum(gap_SR, 0.0), low, high)


def _update(
    world: RegularisedWorld, baseline: EstimatorName, group_size: int, prompts: int
) -> _UpdateInputs:
    """The world's arrays as an update takes them."""
    feature_DAP = world.feature_PAD.transpose(2, 1, 0)
    return _UpdateInputs(
        world,
        baseline,
        group_size,
        prompts,
        np.ascontiguousarray(feature_DAP.reshape(len(feature_DAP), -1), dtype=np.float32),
        np.log(world.reference_PA.T).astype(np.float32),
        np.ascontiguousarray(world.reward_PA.T, dtype=np.float32),
        np.cumsum(world.weight_P),
        bool(np.allclose(world.weight_P, 1 / len(world.weight_P), rtol=0, atol=1e-15)),
    )


def _gradient(update: _UpdateInputs, theta_DR: Float, rng: Generator) -> Float:
    """One minibatch gradient of J for every run, shape (D, R); answers come first in all arrays,
    so that sums over them are fast.
    """
    runs = theta_DR.shape[1]
    answers, count = update.reward_AP.shape
    tilt_APR = (update.feature_DJ.T @ theta_DR.astype(np.float32)).reshape(answers, count, runs)
    policy_APR = np.exp(tilt_APR + update.log_reference_AP[:, :, None])
    policy_APR /= policy_APR.sum(axis=0)
    prompt_BR = _prompts(update, rng, runs)
    place_M = (prompt_BR * runs + np.arange(runs)).ravel()
    chance_AM = policy_APR.reshape(answers, -1).take(place_M, axis=1)
    coefficient_AM = _coefficients(
        update, chance_AM, update.reward_AP.take(prompt_BR.ravel(), axis=1), rng
    )
    size = runs * count
    total_APR = np.stack([np.bincount(place_M, row, size) for row in coefficient_AM]).reshape(
        answers, count, runs
    )
    drawn_PR = np.bincount(place_M, minlength=size).reshape(count, runs)
    # Scores are features less their mean, so what is taken off goes to all answers by their
    # probabilities.
    if update.baseline != "leave_one_out":
        total_APR -= total_APR.sum(axis=0) * policy_APR
    mean_PR = (policy_APR * tilt_APR).sum(axis=0)
    total_APR -= update.world.kl_weight * drawn_PR * (policy_APR * (tilt_APR - mean_PR))
    return np.asarray(
        update.feature_DJ.astype(np.float64)
        @ total_APR.reshape(answers * count, runs)
        / update.prompts
    )


def _prompts(update: _UpdateInputs, rng: Generator, runs: int) -> Whole:
    """Prompts of the minibatches, shape (B, R)."""
    shape = (update.prompts, runs)
    count = len(update.cumulative_P)
    if update.even:
        return rng.integers(count, size=shape, dtype=np.uint16).astype(np.int64)
    return np.minimum(
        np.searchsorted(update.cumulative_P, rng.random(shape), side="right"), count - 1
    )


def _coefficients(
    update: _UpdateInputs, chance_AM: Single, reward_AM: Single, rng: Generator
) -> Single:
    """What every answer's score is multiplied with in its group's gradient: its count times
    reward less baseline, over G.
    """
    size = np.float32(update.group_size)
    count_AM = _counts(update.group_size, chance_AM, rng)
    if update.baseline == "leave_one_out":
        return np.asarray(
            count_AM * (reward_AM - (count_AM * reward_AM).sum(axis=0) / size) / (size - 1)
        )
    if update.baseline == "oracle":
        return np.asarray(count_AM * (reward_AM - (chance_AM * reward_AM).sum(axis=0)) / size)
    return np.asarray(count_AM * reward_AM / size)


def _counts(size: int, chance_AM: Single, rng: Generator) -> Single:
    """Multinomial counts, one binomial after the other."""
    answers, groups = chance_AM.shape
    count_AM = np.empty((answers, groups), np.float32)
    left_M, rest_M = np.full(groups, size, np.float32), np.ones(groups, np.float32)
    for a in range(answers - 1):
        share_M = chance_AM[a] if a == 0 else np.clip(chance_AM[a] / rest_M, 0, 1)
        count_AM[a] = _binomial(size, left_M, share_M, rng)
        left_M = left_M - count_AM[a]
        rest_M = np.maximum(rest_M - chance_AM[a], np.finfo(np.float32).tiny)
    count_AM[-1] = left_M
    return count_AM


def _binomial(most: int, trials_M: Single, chance_M: Single, rng: Generator) -> Single:
    """Binomial counts with trials and chance of each entry; `most` bounds the trials."""
    if most > BY_INVERSION:
        return rng.binomial(trials_M.astype(np.int64), chance_M).astype(np.float32)
    turned_M = chance_M > 0.5
    p_M = np.minimum(chance_M, 1 - chance_M)
    odds_M = p_M / (1 - p_M)
    point_M = (1 - p_M) ** trials_M
    left_M = rng.random(len(chance_M), dtype=np.float32)
    left_M -= point_M
    found_M = np.zeros_like(p_M)
    for k in range(most):
        beyond_M = left_M > 0
        if not beyond_M.any():
            break
        found_M += beyond_M
        point_M *= odds_M
        point_M *= (trials_M - np.float32(k)) * np.float32(1 / (k + 1))
        left_M -= point_M
    # Rounding of the sum may leave a hair beyond the last count.
    np.minimum(found_M, trials_M, out=found_M)
    return np.where(turned_M, trials_M - found_M, found_M)


def _check(
    baseline: str,
    group_size: int,
    prompts: int,
    step_constant: float,
    steps: Sequence[int],
    runs: int,
    offset: float,
) -> None:
    """Refuse what makes no run."""
    if baseline not in BASELINES:
        raise InvalidArgumentError(
            f"expected a baseline of {', '.join(BASELINES)}, got {baseline!r}"
        )
    least = 2 if baseline == "leave_one_out" else 1
    if group_size < least or prompts < 1 or runs < 1:
        raise InvalidArgumentError(
            f"expected at least {least} answers a group, 1 prompt and 1 run, got {group_size}, "
            f"{prompts}, {runs}: leave-one-out needs two"
        )
    if not (step_constant > 0 and np.isfinite(step_constant)) or offset < 0:
        raise InvalidArgumentError(
            "expected steps b/(i + offset) with b above 0 and an offset of at least 0, got "
            f"{step_constant:g}, {offset:g}"
        )
    if not len(steps) or list(steps) != sorted(set(steps)) or steps[0] < 1:
        raise InvalidArgumentError(
            f"expected rising numbers of updates from 1 on, got {list(steps)}"
        )
