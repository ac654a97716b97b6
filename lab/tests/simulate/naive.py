"""The bandit's training in the plainest form, one replicate and one rollout at a time; shares no
line with `groupwise_lab.simulate`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray


def softmax(logit: Array) -> Array:
    weight = np.exp(logit - logit.max())
    return np.asarray(weight / weight.sum())


def advantages(reward_PG: Array, name: str, floor: float) -> Array:
    """The five advantages, from their definitions."""
    size = reward_PG.shape[1]
    mean = reward_PG.mean(axis=1, keepdims=True)
    if name == "vanilla":
        return reward_PG
    if name == "full_group_mean":
        return np.asarray(reward_PG - mean)
    if name == "leave_one_out":
        others = np.array(
            [[np.delete(group, place).mean() for place in range(size)] for group in reward_PG]
        )
        return np.asarray(reward_PG - others)
    spread = (
        reward_PG.std(axis=1, ddof=1, keepdims=True)
        if name == "std_normalised"
        else reward_PG.std(ddof=1)
    )
    return np.asarray((reward_PG - mean) / (spread + floor))


def gradient(arm_PG: Array, now: Array, then: Array, task: Any, training: Any) -> Array:
    """The gradient of the loss that a trainer differentiates, at logits `now`, for rollouts of
    the policy at `then`.
    """
    policy, sampler = softmax(now), softmax(then)
    beta, reference = task.kl_weight, task.reference_A
    reward_PG = task.reward_A[arm_PG]
    if training.kl_place == "reward":
        reward_PG = reward_PG - beta * np.log(sampler / reference)[arm_PG]
    advantage_PG = advantages(reward_PG, training.advantage, training.deviation_floor)
    total = np.zeros(len(now))
    for arm, advantage in zip(arm_PG.ravel(), advantage_PG.ravel(), strict=True):
        score = np.eye(len(now))[arm] - policy
        ratio = policy[arm] / sampler[arm]
        if training.ratio == "none":
            weight = 1.0
        elif training.ratio == "exact":
            weight = ratio
        else:  # d/dw min(w A, clip(w) A) = A where the unclipped one is the smaller, else 0
            clipped = min(max(ratio, 1 - training.clip), 1 + training.clip)
            weight = ratio if ratio * advantage <= clipped * advantage else 0.0
        total += weight * advantage * score
    total /= arm_PG.size
    if training.kl_place == "loss":
        ratio_A = np.log(policy / reference)
        total -= beta * policy * (ratio_A - policy @ ratio_A)
    return total


def train(task: Any, training: Any, uniform_TGP: Array) -> tuple[Array, Array]:
    """Logits before every update and after the last, and the mean reward of each update's
    rollouts.
    """
    logit = np.log(task.reference_A)
    history, rewards = [logit], []
    velocity, square = np.zeros_like(logit), np.zeros_like(logit)
    for step, uniform_GP in enumerate(uniform_TGP):
        block = step - step % training.interval
        sampled_at = {
            "none": step,
            "fixed": step - training.interval,
            "refresh": block,
            "async": block - training.interval,
        }[training.lag]
        then = history[max(sampled_at, 0)]
        arm_PG = np.minimum(
            np.searchsorted(np.cumsum(softmax(then)), uniform_GP.T, side="right"), len(logit) - 1
        )
        rewards.append(task.reward_A[arm_PG].mean())
        slope = gradient(arm_PG, logit, then, task, training)
        if training.optimizer == "sgd":
            velocity = training.momentum * velocity + training.learning_rate * slope
            logit = logit + velocity
        else:
            velocity = training.momentum * velocity + (1 - training.momentum) * slope
            square = training.beta2 * square + (1 - training.beta2) * slope**2
            first, second = (
                velocity / (1 - training.momentum ** (step + 1)),
                square / (1 - training.beta2 ** (step + 1)),
            )
            logit = logit + training.learning_rate * first / (np.sqrt(second) + training.epsilon)
        history.append(logit)
    return np.array(history), np.array(rewards)
