r"""Unlike prompts that share one parameter: the smallest world in which batches differ by the
prompts that they drew.

    python lab/experiments/predictable_grpo/prompts.py

prints its components. Prompt x has two arms with rewards 0 and 1 and log odds o_x + s_x theta; s_x
is negative for a fifth of them, which a larger theta makes worse. An update draws B prompts with
replacement, G rollouts of each, takes the leave-one-out gradient and the exact KL term of those
prompts. `simulate.bandit_runs` has one prompt only, hence these lines. It has no lag.
"""

from dataclasses import dataclass

import numpy as np
from note import options
from numpy import ndarray

POPULATION, KL_WEIGHT = 64, 0.5


@dataclass(frozen=True, slots=True)
class SharedWorld:
    """A population of prompts.

    Args:
        offset_X: log odds of each prompt's better arm at theta = 0, where the reference policy is.
        slope_X: how they move with theta.
        kl_weight: beta, reward units a nat.
    """

    offset_X: ndarray
    slope_X: ndarray
    kl_weight: float

    def probability(self, theta: ndarray, prompt: ndarray | slice = slice(None)) -> ndarray:
        """Of the better arm."""
        return np.asarray(1 / (1 + np.exp(-self.offset_X[prompt] - self.slope_X[prompt] * theta)))

    def value(self, theta_S: ndarray) -> ndarray:
        """Mean reward over the population, for each theta."""
        return np.asarray(self.probability(theta_S[:, None]).mean(axis=1))

    def drift(self, theta: float) -> ndarray:
        """Expected gradient of each prompt, its KL term included."""
        p = self.probability(np.asarray(theta))
        return np.asarray(self.slope_X * p * (1 - p) * (1 - self.kl_weight * self.slope_X * theta))


@dataclass(frozen=True, slots=True)
class Rest:
    """Where the expected dynamics rest, and what drives the swings there.

    Args:
        theta: the fixed point.
        stiffness: K.
        gain: slope of the mean reward.
        vp: variance between prompts of the expected gradient, KL term included.
        t: first-order part within prompts.
        r: second-order part within prompts.
        reward_variance: of one rollout within its prompt.
        value_variance: between prompts.
    """

    theta: float
    stiffness: float
    gain: float
    vp: float
    t: float
    r: float
    reward_variance: float
    value_variance: float


def shared_world(seed: int = 11) -> SharedWorld:
    """Slopes and difficulties from a normal distribution."""
    rng = np.random.default_rng(seed)
    return SharedWorld(
        rng.normal(-0.5, 1.2, POPULATION), rng.normal(0.7, 1.0, POPULATION), KL_WEIGHT
    )


def rest_of(world: SharedWorld) -> Rest:
    """The fixed point by root finding; its components by sums over arms and prompts."""
    from scipy.optimize import brentq

    theta = float(brentq(lambda place: world.drift(place).mean(), 0.0, 20.0, xtol=1e-13))
    p, s = world.probability(np.asarray(theta)), world.slope_X
    pq = p * (1 - p)
    gradient_X, between = s * pq, world.drift(theta).var()
    # Of the product of score and centred reward: E[(score (r - p))^2] = s^2 pq (q^3 + p^3).
    first = s**2 * pq * ((1 - p) ** 3 + p**3) - gradient_X**2
    second = (s * pq) ** 2 + gradient_X**2
    stiffness = (
        world.kl_weight * s**2 * pq - s**2 * pq * (1 - 2 * p) * (1 - world.kl_weight * s * theta)
    ).mean()
    return Rest(
        theta,
        stiffness,
        gradient_X.mean(),
        between,
        first.mean(),
        second.mean(),
        pq.mean(),
        p.var(),
    )


def simulate_prompts(
    world: SharedWorld,
    rate: float,
    momentum: float,
    prompts: int,
    size: int,
    *,
    start: float,
    steps: int,
    every: int,
    runs: int,
    seed: int,
) -> tuple[ndarray, ndarray]:
    """True mean reward and measured batch mean at every record, (T, S)."""
    rng = np.random.default_rng([seed, size])
    theta_S, velocity_S = np.full(runs, start), np.zeros(runs)
    value, measured = [], []
    for step in range(steps):
        prompt_SB = rng.integers(len(world.slope_X), size=(runs, prompts))
        p_SB, s_SB = world.probability(theta_S[:, None], prompt_SB), world.slope_X[prompt_SB]
        right_SB = rng.binomial(size, p_SB)
        if step % every == 0:
            value.append(world.value(theta_S))
            measured.append(right_SB.mean(axis=1) / size)
        # Leave-one-out over two arms is the pairs that differ: k (G - k)/(G (G - 1)).
        pairs_SB = right_SB * (size - right_SB) / (size * (size - 1))
        pull_SB = world.kl_weight * s_SB * theta_S[:, None] * p_SB * (1 - p_SB)
        velocity_S = momentum * velocity_S + rate * (s_SB * (pairs_SB - pull_SB)).mean(axis=1)
        theta_S = theta_S + velocity_S
    return np.array(value), np.array(measured)


def main() -> None:
    """Print."""
    options(__doc__)
    world = shared_world()
    rest = rest_of(world)
    print(
        f"theta* {rest.theta:.4f}, K {rest.stiffness:.5f}, gain {rest.gain:.5f}, Vp {rest.vp:.5f}, "
        f"T {rest.t:.5f}, R {rest.r:.5f}"
    )
    print(
        f"mean reward {world.value(np.array([rest.theta]))[0]:.4f}; variance of a reward within a "
        f"prompt {rest.reward_variance:.4f}"
    )
    print(
        f"variance of values between prompts {rest.value_variance:.4f}; "
        f"{np.mean(world.slope_X < 0):.0%} of slopes are negative"
    )


if __name__ == "__main__":
    main()
