"""The best group size over the errors of a verifier, exactly: softmax bandits whose prompts are
hard, even or easy.

    python lab/experiments/gradient/verifier_noise.py

prints the table of lab/docs/theory/gradient.md. Rewards are 0
and 1; every number is a sum over arms, nothing is sampled. "Rollouts" is what the least error costs
where it is to be the same share of the squared gradient as without errors.
"""

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))  # common

import common

from groupwise_lab.theory.mse import PromptMoments, noisy_moments, optimal_group_size
from groupwise_lab.theory.verifier_noise import VerifierErrors
from groupwise_lab.worlds.bandit import BanditWorld, softmax_world

VALUES = (0.1, 0.5, 0.9)
RATES = (0.0, 0.02, 0.05, 0.1, 0.2)


def world_of(value: float) -> BanditWorld:
    """Unlike prompts with shared features, whose mean reward is this: found by bisection of
    their difficulty.
    """
    rng = np.random.default_rng(20260101)
    feature_PAD = np.exp(0.3 * rng.standard_normal((400, 1, 1))) * rng.standard_normal((400, 6, 12))
    parameter_D, wanted_D = rng.standard_normal(12) / 12**0.5, 2 * rng.standard_normal(12) / 12**0.5
    merit_PA = feature_PAD @ wanted_D + rng.standard_normal((400, 6))
    low, high = -20.0, 20.0
    for _ in range(50):
        middle = (low + high) / 2
        world = softmax_world(
            feature_PAD, parameter_D, 1 / (1 + np.exp(middle - merit_PA)), binary=True
        )
        low, high = (middle, high) if world.moments().value_P.mean() > value else (low, middle)
    return world


def judged(world: BanditWorld, errors: VerifierErrors) -> tuple[float, float]:
    """The best group size, and rollouts for the same relative error over those without errors."""
    exact = world.moments()
    plain = PromptMoments(
        exact.value_P,
        exact.score_norm2_P,
        exact.reward_variance_P,
        exact.kappa_P,
        exact.oracle_variance_P,
        exact.gradient_norm2_P,
    )
    least = []
    for some in (VerifierErrors(), errors):
        moments, vp = noisy_moments(plain, some), some.slope**2 * world.vp
        t, r = moments.oracle_variance_P.mean(), moments.degenerate.mean()
        best = float(optimal_group_size(vp, r))
        least.append((vp + t + 2 * (r * vp) ** 0.5) / some.slope**2)
    return best, least[1] / least[0]


def main() -> None:
    """Print."""
    worlds = [world_of(value) for value in VALUES]
    lines = []
    for rates in (
        [(rate, 0.0) for rate in RATES] + [(0.0, rate) for rate in RATES[1:]] + [(0.1, 0.1)]
    ):
        pairs = [judged(world, VerifierErrors(*rates)) for world in worlds]
        cells = [f"{size:.2f} | x {cost:.2f}" for size, cost in pairs]
        lines.append([f"{rates[0]:g} | {rates[1]:g}", *cells])
    header = [f"G*, mean reward {value:g} | rollouts" for value in VALUES]
    common.print_table(
        "A verifier that errs", ["false positives | false negatives", *header], lines
    )


if __name__ == "__main__":
    main()
