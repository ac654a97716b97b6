"""The variance of a batch's gradient at G = 2 to 64: predicted from one batch at G = 8, and what
noise scales make of it.

    python lab/experiments/gradient/noise_scale.py [--replicates 400]

prints the second table of lab/docs/theory/gradient.md. World:
softmax bandits of unlike prompts with 0/1 rewards, B = 32 prompts a batch, where the variance is
known exactly. `ours` is the mean prediction from separate batches of 64 prompts with 8 rollouts;
`rollouts as i.i.d.` and `traintools` (its gradient noise scale, where installed) see the rollouts
of the batch at that very G, one rollout a micro-batch; `prompts as units` gives traintools one
group a micro-batch instead.
"""

import sys
from pathlib import Path

import numpy as np
from numpy import ndarray

from groupwise.estimators.best_group_size import Budget, error_of
from groupwise.estimators.components import components

sys.path.append(str(Path(__file__).resolve().parents[1]))  # common
from common import arguments, column, print_table, results_of

from groupwise_lab.worlds.bandit import BanditWorld, random_world

SIZES = (2, 4, 8, 16, 32, 64)
PROMPTS = 32


def per_rollout_gradients(score_ND: ndarray, reward_N: ndarray, size: int) -> ndarray:
    """Each rollout's contribution to the leave-one-out gradient of its batch."""
    grouped = reward_N.reshape(-1, size)
    advantage = (grouped - grouped.mean(axis=1, keepdims=True)) * size / (size - 1)
    return advantage.ravel()[:, None] * score_ND


def traintools_variance(micro_gradient: ndarray, micro_size: int) -> float:
    """tr(Sigma)/N as traintools' estimator reports it; NaN where it is not installed."""
    try:
        import torch
        from traintools.gradnoise import GNSEstimator
    except ImportError:
        return float("nan")
    full = micro_size * len(micro_gradient)
    noise_scale = GNSEstimator(decay=0.0).update(torch.from_numpy(micro_gradient), micro_size, full)
    return float(noise_scale.tr_sigma) / full


def one_size(
    world: BanditWorld, size: int, replicates: int, rng: np.random.Generator
) -> dict[str, float]:
    """What the peers say of batches at one group size, over the exact variance."""
    truth = (world.vp + world.t / size + world.r / (size * (size - 1))) / PROMPTS
    said = {"iid": [], "traintools": [], "traintools_prompts": []}
    for _ in range(replicates):
        score, reward, _ = world.sample(PROMPTS, size, rng)
        gradient = per_rollout_gradients(score, reward, size)
        said["iid"].append(float(gradient.var(axis=0, ddof=1).sum()) / len(gradient))
        said["traintools"].append(traintools_variance(gradient, 1))
        said["traintools_prompts"].append(
            traintools_variance(gradient.reshape(PROMPTS, size, -1).mean(axis=1), size)
        )
    return {"group_size": size, "truth": truth} | {
        name: np.mean(values) / truth for name, values in said.items()
    }


def our_predictions(world: BanditWorld, replicates: int, rng: np.random.Generator) -> ndarray:
    """Predicted variance at every size, one row a replicate, from batches of 64 prompts with 8
    rollouts.
    """
    rows = []
    for _ in range(replicates):
        score, reward, prompt = world.sample(64, 8, rng)
        estimate = components(reward, prompt, score_ND=score)
        # B = 32 at every size: the error law times B is what a budget of G rollouts with one prompt
        # would have.
        rows.append(
            [
                float(error_of(estimate.vtr, np.array([size]), Budget(size))[0]) / PROMPTS
                for size in SIZES
            ]
        )
    return np.array(rows)


def main() -> None:
    """Run, print and write."""
    replicates = arguments(__doc__, replicates=400).replicates
    rng = np.random.default_rng(2026)
    world = random_world(
        np.random.default_rng(20260101), prompts=4000, arms=6, dimensions=12, rewards="binary"
    )
    rows = [one_size(world, size, replicates, rng) for size in SIZES]
    predicted = our_predictions(world, replicates, rng) / column(rows, "truth")
    for row, ratios in zip(rows, predicted.T, strict=True):
        low, high = np.quantile(ratios, [0.05, 0.95])
        row |= {"ours": float(ratios.mean()), "ours_low": float(low), "ours_high": float(high)}
    print_table(
        "The variance of a batch's gradient",
        "G | true variance | ours, from G = 8 (90 % of batches) | rollouts as i.i.d. | "
        "traintools | traintools, by prompt",
        [
            f"{row['group_size']} | {row['truth']:.4g} | {row['ours']:.2f} "
            f"({row['ours_low']:.2f}-{row['ours_high']:.2f}) | {row['iid']:.2f} | "
            f"{row['traintools']:.2f} | {row['traintools_prompts']:.2f}"
            for row in rows
        ],
    )
    results_of(__file__).write("noise_scale", rows, digits=17)


if __name__ == "__main__":
    main()
