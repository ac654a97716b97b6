"""A task whose best group size is 28: predicted from one sample, then trained with every size; the
optimum is flat, and kappa is near 0.

    python lab/experiments/gradient/flat_optimum.py [--seeds 1500] [--updates 40]

prints the tables of lab/docs/studies/optimal-group-size.md ("A flat optimum"). World: 200 prompts
of 8 answers with features in common, much alike, rewards 0 and 1; every moment, and the mean reward
of every trained policy, is a sum over prompts and answers. Leave-one-out, SGD, 64 rollouts an
update. The size is planned from 64 groups of 16 before anything is trained; the learning rate is a
round number, not tuned.
"""

import sys
from pathlib import Path

import numpy as np
from numpy import ndarray

sys.path.append(str(Path(__file__).resolve().parents[1]))  # common

import common

from groupwise.estimators.best_group_size import Budget, error_of, plan_from_components
from groupwise.estimators.components import components
from groupwise_lab.theory.mse import optimal_group_size
from groupwise_lab.worlds.bandit import BanditWorld, softmax_world

ROLLOUTS, RATE = 64, 6.0
SIZES = (2, 4, 8, 16, 32, 64)
PROMPTS, ARMS, WIDTH, UNLIKE = 200, 8, 6, 0.22


class Task:
    """Features, chances of a reward, and the world at any parameters."""

    def __init__(self, seed: int = 20260301) -> None:
        rng = np.random.default_rng(seed)
        base_AD = rng.choice([-1.0, 1.0], size=(ARMS // 2, WIDTH))
        base_AD = np.concatenate(
            [base_AD, -base_AD]
        )  # scores of one length, whatever the answer: kappa is near 0
        self.feature_PAD = base_AD + UNLIKE * rng.standard_normal((PROMPTS, ARMS, WIDTH))
        wanted_D = rng.standard_normal(WIDTH) / WIDTH**0.5
        merit_PA = self.feature_PAD @ wanted_D
        self.chance_PA = 1 / (1 + np.exp(-merit_PA))

    def world(self, parameter_D: ndarray) -> BanditWorld:
        """Every outcome of every prompt."""
        return softmax_world(self.feature_PAD, parameter_D, self.chance_PA, binary=True)

    def policy(self, parameter_SD: ndarray) -> ndarray:
        """Probabilities of the answers, seed by seed and prompt by prompt."""
        logit_SPA = np.einsum("pad,sd->spa", self.feature_PAD, parameter_SD)
        weight_SPA = np.exp(logit_SPA - logit_SPA.max(axis=2, keepdims=True))
        return np.asarray(weight_SPA / weight_SPA.sum(axis=2, keepdims=True))

    def value(self, parameter_SD: ndarray) -> ndarray:
        """The exact mean reward."""
        return np.asarray((self.policy(parameter_SD) * self.chance_PA).sum(axis=2).mean(axis=1))


def gradients(task: Task, parameter_SD: ndarray, size: int, rng: np.random.Generator) -> ndarray:
    """One minibatch for every seed: its leave-one-out gradient."""
    seeds, prompts = len(parameter_SD), ROLLOUTS // size
    policy_SPA = task.policy(parameter_SD)
    prompt_SB = rng.integers(PROMPTS, size=(seeds, prompts))
    chosen_SBA = np.take_along_axis(policy_SPA, prompt_SB[:, :, None], axis=1)
    uniform_SBG = rng.random((seeds, prompts, size))
    answer_SBG = (uniform_SBG[..., None] > np.cumsum(chosen_SBA, axis=2)[:, :, None, :-1]).sum(
        axis=3
    )
    reward_SBG = rng.random(answer_SBG.shape) < task.chance_PA[prompt_SB[:, :, None], answer_SBG]
    advantage_SBG = (reward_SBG - reward_SBG.mean(axis=2, keepdims=True)) / (size - 1)
    # The mean score drops out, because advantages sum to zero: features stand for scores.
    feature_SBGD = task.feature_PAD[prompt_SB[:, :, None], answer_SBG]
    return np.asarray(np.einsum("sbg,sbgd->sd", advantage_SBG, feature_SBGD) / prompts)


def trained(task: Task, size: int, seeds: int, updates: int) -> tuple[ndarray, ndarray]:
    """Mean over the run and final exact mean reward of every seed."""
    rng = np.random.default_rng([size, 1])
    parameter_SD = np.zeros((seeds, WIDTH))
    values = []
    for _ in range(updates):
        parameter_SD = parameter_SD + RATE * gradients(task, parameter_SD, size, rng)
        values.append(task.value(parameter_SD))
    return np.mean(values, axis=0), values[-1]


def main() -> None:
    """Predict, train, print."""
    asked = common.arguments(__doc__, seeds=1500, updates=40)
    task = Task()
    world = task.world(np.zeros(WIDTH))
    exact = world.moments()
    share = float(
        np.mean(exact.kappa_P) / np.mean(exact.score_norm2_P * exact.reward_variance_P**0.5)
    )
    best = float(optimal_group_size(world.vp, world.r))
    print(
        f"exact: Vp {world.vp:.4g}, T {world.t:.4g}, R {world.r:.4g}, G* {best:.3g}, kappa/(S2 "
        f"sigma) {share:+.3f}"
    )
    score, reward, prompt = world.sample(64, 16, np.random.default_rng(7))
    plan = plan_from_components(components(reward, prompt, score_ND=score), Budget(ROLLOUTS))
    print(f"planned from 64 groups of 16: {plan.status}\n")
    error = error_of(np.array([world.vp, world.t, world.r]), np.array(SIZES), Budget(ROLLOUTS))
    rows = []
    results = {size: trained(task, size, asked.seeds, asked.updates) for size in SIZES}
    for size, one in zip(SIZES, error, strict=True):
        rng = np.random.default_rng([size, 2])
        drawn = np.concatenate(
            [gradients(task, np.zeros((4000, WIDTH)), size, rng) for _ in range(6)]
        )
        measured = ((drawn - exact.gradient_D) ** 2).sum(axis=1).mean()
        mean, final = results[size]
        shown = [
            f"{some.mean():.4f} ± {1.96 * some.std() / len(some) ** 0.5:.4f}"
            for some in (mean, final)
        ]
        rows.append([f"{size} | {one / error.min():.3f} | {measured / one:.3f}", *shown])
    common.print_table(
        "A flat optimum",
        (
            "G | error, predicted, over the least | measured over predicted | "
            "mean of the run | final"
        ),
        rows,
    )


if __name__ == "__main__":
    main()
