"""Exact variance of a batch's gradient along one mode of a bandit, by summing over its arms: what
the fluctuations are predicted from.

    python lab/experiments/predictable_grpo/moments.py

prints the components of the bandit of the note. It knows the leave-one-out gradient on-policy only,
with the KL term in the loss.
"""

from dataclasses import dataclass

import numpy as np
from note import note_bandit, options

from groupwise_lab.simulate.softmax_bandit import Bandit, Training, fixed_point


@dataclass(frozen=True, slots=True)
class ModeNoise:
    """Components along one direction.

    Args:
        vp: between prompts.
        t: first order.
        r: second order.
        gain: slope of the mean reward along the direction.
        reward_variance: of one rollout's reward.
    """

    vp: float
    t: float
    r: float
    gain: float
    reward_variance: float

    def variance(self, size: int, prompts: int) -> float:
        """Variance of the batch's gradient along the direction, (vp + t/G + r/(G(G-1)))/B."""
        return (self.vp + self.t / size + self.r / (size * (size - 1))) / prompts


def mode_noise(world: Bandit, policy_A: np.ndarray, direction_A: np.ndarray) -> ModeNoise:
    """Components by summing over arms: scores e_a - policy along the direction, rewards without
    the KL term.
    """
    score_A = direction_A - policy_A @ direction_A
    centred_A = world.reward_A - policy_A @ world.reward_A
    gradient = float(policy_A @ (score_A * centred_A))
    spread = float(policy_A @ centred_A**2)
    first = float(policy_A @ (score_A * centred_A) ** 2) - gradient**2
    second = float(policy_A @ score_A**2) * spread + gradient**2
    return ModeNoise(0.0, first, second, gradient, spread)


def main() -> None:
    """Print."""
    options(__doc__)
    world = note_bandit()
    rest = fixed_point(world, Training(1.0))
    noise = mode_noise(world, rest.policy_A, rest.direction_MA[0])
    print(
        f"T {noise.t:.5f}, R {noise.r:.5f}, R/T {noise.r / noise.t:.3f}, gain {noise.gain:.5f}, "
        f"reward variance {noise.reward_variance:.5f}"
    )


if __name__ == "__main__":
    main()
