"""The bandit of the note as something whose stiffness can be measured, knowing nothing of its
closed form.

    python lab/experiments/predictable_grpo/kicks.py

prints the measured stiffness beside the exact one. Its step is the expected update of the simulator
at a vanishing learning rate.
"""

import numpy as np
from note import note_bandit, options
from numpy import ndarray

from groupwise_lab.simulate.bandit_runs import Records, expected_path
from groupwise_lab.simulate.softmax_bandit import Bandit, Training, fixed_point, policy_of
from groupwise_lab.theory.stiffness import MeasuredStiffness, kicked_stiffness


class Kicked:
    """A bandit by the protocol of `groupwise_lab.theory.stiffness`."""

    def __init__(self, world: Bandit, training: Training) -> None:
        self.world, self.training = world, training

    def mean_reward(self, parameter_D: ndarray) -> float:
        """Value of the policy."""
        return float(policy_of(parameter_D) @ self.world.reward_A)

    def expected_step(self, parameter_D: ndarray) -> ndarray:
        """One expected update over its learning rate."""
        rate = self.training.learning_rate
        path = expected_path(self.world, self.training, steps=1, start_AS=parameter_D)
        return np.asarray((path.logit_AS[:, 0] - parameter_D) / rate)


def settled(world: Bandit, training: Training) -> ndarray:
    """The point where the expected dynamics come to rest, found by running them."""
    return np.asarray(
        expected_path(world, training, steps=4000, records=Records(every=4000)).logit_AS[:, 0]
    )


def kicked(world: Bandit, training: Training, seed: int = 1) -> MeasuredStiffness:
    """Stiffness by kicks of a hundredth of a unit of the logits."""
    return kicked_stiffness(
        Kicked(world, training), settled(world, training), np.random.default_rng(seed), size=0.01
    )


def measured_stiffness() -> float:
    """Of the bandit of the note."""
    return kicked(note_bandit(), Training(0.5)).stiffness.value


def main() -> None:
    """Print."""
    asked = options(__doc__)
    measurement, exact = (
        kicked(note_bandit(), Training(0.5), asked.seed),
        fixed_point(note_bandit(), Training(0.5)).stiffness,
    )
    print(
        f"kicks: {measurement.status} Exact: {exact:.6f}; relative difference "
        f"{measurement.stiffness.value / exact - 1:+.1e}."
    )


if __name__ == "__main__":
    main()
