r"""A softmax bandit and how it is trained, and what is known of both without simulating: value,
gradient, fixed point, stiffness.

One prompt with A arms, a softmax policy with a logit for each, a fixed reward for each, and a
reference policy that a KL term pulls to. Suffixes: `A` arms, `S` replicates (independent runs), `T`
records, `P` groups of one update, `M` count vectors. Everything is a finite sum, a closed form or
the root of one; where the dynamics have no fixed point it says so. It steps nothing: `bandit_runs`
does.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from groupwise.arrays import finite_array
from groupwise.errors import InvalidArgumentError
from groupwise.plain import frozen
from groupwise_lab.fields import KlPlace, LagName, check_fields, check_whole

Real = NDArray[np.floating[Any]]

AdvantageName = Literal[
    "vanilla", "full_group_mean", "leave_one_out", "std_normalised", "batch_std"
]
RatioCorrection = Literal["none", "exact", "clipped"]
BanditOptimizer = Literal["sgd", "adam"]

_LARGEST_REWARD = 1e100
_MOST_LAG = 100_000
_MOST_ROLLOUTS = 65_536
_WHOLES = {"group_size": 1, "prompts": 1, "interval": 1}
# Of each number: what it lies below, and whether it is above 0 or may be 0.
_NUMBERS = {
    **dict.fromkeys(("momentum", "beta2"), (1.0, False)),
    **dict.fromkeys(("epsilon", "deviation_floor"), (math.inf, False)),
    "learning_rate": (math.inf, True),
    "clip": (1.0, True),
}


@frozen
class Bandit:
    r"""One prompt with A arms, $\pi_a \propto e^{l_a}$; the objective is $\sum_a\pi_a r_a -
    \beta\,KL(\pi\|\pi_{ref})$.

    Two arms with $\theta = l_1 - l_0$ are the one-parameter bandit, $p = \sigma(\theta)$: there
    $\dot\theta = 2p(1-p)[r_1 - r_0 - \beta(\theta - \theta_0)]$. Make one with `bandit`, which
    checks.
    """

    reward_A: Real  # reward of each arm, reward units
    reference_A: Real  # the reference policy, probabilities
    kl_weight: float = 0.0  # beta, reward units a nat

    @property
    def arms(self) -> int:
        """How many arms there are."""
        return len(self.reward_A)


def bandit(
    reward_A: ArrayLike, *, reference_A: ArrayLike | None = None, kl_weight: float = 0.0
) -> Bandit:
    """Return a bandit whose arms and weights have been checked."""
    reward = finite_array("reward_A", reward_A, dimensions=1)
    arms = len(reward)
    if arms < 2:
        raise InvalidArgumentError(
            f"expected at least 2 arms, got {arms}: give one reward for each"
        )
    if np.abs(reward).max() > _LARGEST_REWARD:
        raise InvalidArgumentError(
            f"expected rewards of at most {_LARGEST_REWARD:g} in size, got {_shown(reward)}: use a "
            "larger unit"
        )
    if np.ptp(reward) == 0:
        raise InvalidArgumentError(
            f"expected rewards that differ, got {reward[0]:g} for every arm: with equal rewards "
            "nothing is learned"
        )
    reference = (
        np.full(arms, 1 / arms)
        if reference_A is None
        else finite_array("reference_A", reference_A, dimensions=1)
    )
    if reference.shape != reward.shape or (reference <= 0).any() or abs(reference.sum() - 1) > 1e-9:
        raise InvalidArgumentError(
            f"expected {arms} positive probabilities that sum to 1 as the reference policy, got "
            f"{_shown(reference)}: give one an arm"
        )
    if not (np.isfinite(kl_weight) and kl_weight >= 0):
        raise InvalidArgumentError(
            f"expected a KL weight of at least 0, got {kl_weight}: 0 leaves the term out"
        )
    return Bandit(reward, reference, float(kl_weight))


def _shown(values: Real) -> str:
    """The first few numbers of a vector."""
    return ", ".join(f"{value:g}" for value in values[:6]) + (", ..." if len(values) > 6 else "")


@frozen
class Training:
    r"""How the policy is trained; every update takes P groups of G rollouts from the sampling
    policy.

    SGD is heavy ball, $v \leftarrow \mu v + \eta\hat g$, $l \leftarrow l + v$. Adam has $\beta_1 =
    \mu$ and corrects both moments for their start at zero.
    """

    learning_rate: float  # eta, positive
    group_size: int = 8  # G, rollouts of a group
    prompts: int = 1  # P, groups of an update, all on the one prompt
    momentum: float = 0.0  # mu of heavy ball, or beta1 of Adam, in [0, 1)
    optimizer: BanditOptimizer = "sgd"  # "sgd" or "adam"
    beta2: float = 0.999  # of Adam, in [0, 1)
    epsilon: float = 1e-8  # of Adam, added to the root
    # which parameters sample. "none": the present ones; "fixed": those `interval` updates ago;
    # "refresh": those at the start of the block of `interval` updates; "async": those at the start
    # of the block before it. Before the first update, the first
    lag: LagName = "none"
    interval: int = 1  # updates, at least 1
    # importance weight of present over sampling policy: "none" (weight 1), "exact", or "clipped" as
    # PPO's surrogate
    ratio: RatioCorrection = "none"
    clip: float = 0.2  # epsilon of PPO
    # "loss": the exact gradient of the KL of the present policy; "reward":
    # $-\beta\ln(\pi_a/\pi_{ref,a})$ of the sampling policy is added to the reward of every rollout,
    # and is as stale as that
    kl_place: KlPlace = "loss"
    # what a rollout's score is multiplied by. The deviation of "std_normalised" is that of the
    # group, of "batch_std" that of all rewards of the update, both with ddof 1; `deviation_floor`
    # is added to it
    advantage: AdvantageName = "leave_one_out"
    deviation_floor: float = 1e-4  # added to the deviation, reward units

    def __post_init__(self) -> None:
        """Refuse what is outside its domain, in a sentence."""
        check_fields(self, wholes=_WHOLES, numbers=_NUMBERS)
        if self.advantage not in ("vanilla", "full_group_mean"):
            check_whole("group_size", self.group_size, 2)
        if self.prompts * self.group_size > _MOST_ROLLOUTS:
            raise InvalidArgumentError(
                f"expected at most {_MOST_ROLLOUTS} rollouts an update, got {self.prompts} x "
                f"{self.group_size}: take fewer prompts"
            )
        if self.interval > _MOST_LAG:
            raise InvalidArgumentError(
                f"expected an interval of at most {_MOST_LAG}, got {self.interval}: older "
                "parameters are not kept"
            )

    @property
    def centred(self) -> bool:
        """Whether the advantages of a group sum to zero, so that the score's mean does not
        matter.
        """
        return self.advantage != "vanilla"


Vector = NDArray[np.float64]

_GRID = 20_001


class NoFixedPointError(InvalidArgumentError):
    """The dynamics have no fixed point, so there is no stiffness and no threshold."""


@frozen
class FixedPoint:
    r"""Where the expected dynamics rest, and how stiff they are there.

    Near it every mode obeys $\dot x = -K x$ per unit of learning rate.
    """

    logit_A: Vector  # parameters, up to a constant that no policy feels; zero mean
    policy_A: Vector  # probabilities
    value: float  # expected reward, reward units
    stiffness_M: Vector  # K of each of the A - 1 modes, largest first, reward units
    direction_MA: Vector  # unit vectors of the modes in logits, a row each
    # share of the reward's gradient along each mode, its squared cosine; a mode with 0 cannot be
    # seen in the reward
    visible_M: Vector

    @property
    def stiffness(self) -> float:
        """Stiffness of the reward: the mean over modes weighted by what the reward shows of
        each; with two arms, K.
        """
        return float(self.stiffness_M @ self.visible_M)


def policy_of(logit_A: ArrayLike) -> Vector:
    """Return the probabilities of logits, which may be shifted by any constant."""
    logit = finite_array("logit_A", logit_A, dimensions=1)
    weight = np.exp(logit - logit.max())
    return np.asarray(weight / weight.sum())


def exact_value(bandit: Bandit, logit_A: ArrayLike) -> float:
    r"""Return the expected reward $\sum_a\pi_a r_a$, without the KL term."""
    return float(policy_of(logit_A) @ bandit.reward_A)


def exact_gradient(bandit: Bandit, logit_A: ArrayLike) -> Vector:
    r"""Return the gradient of the objective in the logits, $\pi_a(h_a - \sum_b\pi_b h_b)$, $h_a
    = r_a - \beta\ln(\pi_a/\pi_{ref,a})$.
    """
    policy = policy_of(logit_A)
    logit = np.asarray(logit_A, dtype=np.float64)
    log_policy = logit - logit.max() - math.log(np.exp(logit - logit.max()).sum())
    merit = bandit.reward_A - bandit.kl_weight * (log_policy - np.log(bandit.reference_A))
    return np.asarray(policy * (merit - policy @ merit))


def fisher_modes(logit_A: ArrayLike) -> tuple[Vector, Vector]:
    r"""Return the A - 1 eigenvalues of $diag(\pi) - \pi\pi^T$, less the zero of a common shift,
    largest first, and vectors as rows.
    """
    policy = policy_of(logit_A)
    eigenvalue, vector = np.linalg.eigh(np.diag(policy) - np.outer(policy, policy))
    # The smallest is the zero of a shift of all logits.
    return np.maximum(eigenvalue[:0:-1], 0.0), vector[:, :0:-1].T


def fixed_point(bandit: Bandit, training: Training) -> FixedPoint:
    r"""Return the fixed point that the expected dynamics reach from the reference policy, and its
    stiffness.

    $l^* = \ln\pi_{ref} + r/\beta$ and $K = \beta\,eig(diag(\pi^*) - \pi^*\pi^{*T})$ for advantages
    linear in the rewards; the full group mean weakens the reward by $(G-1)/G$, and the KL term too
    where that is in the reward. Two arms with std-normalised advantages: the root of $D(p) = \beta
    p q(\theta - \theta_0)$ next to $\theta_0$, $K = 2[\beta p q + (1-2p)D - pq\,D'(p)]$.
    """
    if bandit.kl_weight == 0:
        raise NoFixedPointError(
            "there is no fixed point without a KL term: the policy goes on to the best arm for "
            "ever; give a KL weight above 0"
        )
    share = (training.group_size - 1) / training.group_size
    if share == 0 and training.advantage != "vanilla":
        raise NoFixedPointError(
            "there is no signal from groups of one rollout: its advantage is zero; use a group "
            "size of at least 2"
        )
    if training.advantage in ("std_normalised", "batch_std"):
        return _std_fixed_point(bandit, training)
    shrunk = training.advantage == "full_group_mean"
    pull = share if shrunk and training.kl_place == "loss" else 1.0
    logit = np.log(bandit.reference_A) + pull * bandit.reward_A / bandit.kl_weight
    eigenvalue, vector = fisher_modes(logit)
    stiffness = (
        bandit.kl_weight * eigenvalue * (share if shrunk and training.kl_place == "reward" else 1.0)
    )
    return _rest(bandit, logit, stiffness, vector)


def _rest(bandit: Bandit, logit: Vector, stiffness: Vector, direction: Vector) -> FixedPoint:
    """Put a fixed point together; one where a single arm is left, to within rounding, is none."""
    policy = policy_of(logit)
    if np.delete(policy, np.argmax(policy)).sum() < np.finfo(np.float64).eps:
        raise NoFixedPointError(
            "there is no fixed point short of a certain policy at a KL weight of "
            f"{bandit.kl_weight:g}: there the drift is less than rounding; a larger KL weight "
            "gives one"
        )
    slope = policy * (bandit.reward_A - policy @ bandit.reward_A)
    seen = (direction @ slope) ** 2
    return FixedPoint(
        logit - logit.mean(),
        policy,
        float(policy @ bandit.reward_A),
        stiffness,
        direction,
        seen / seen.sum(),
    )


def _drift_over_pq(theta_X: Vector, group_size: int, gap: float, floor: float) -> Vector:
    r"""Return $D/(pq)$ as a function of the log odds, which keeps its digits where p is nearly 1.

    $D = E\Big[\frac{\Delta\,k(G-k)/G^2}{\Delta\,s_k + \epsilon}\Big]$, $k\sim Bin(G, p)$, $s_k^2 =
    \frac{k(G-k)}{G(G-1)}$, is what std-normalised advantages make of $pq$ in the drift of two arms
    whose rewards differ by $\Delta$.
    """
    from scipy.special import gammaln

    log_p, log_q = -np.logaddexp(0, -theta_X), -np.logaddexp(0, theta_X)
    k = np.arange(1, group_size)
    deviation_M = np.sqrt(k * (group_size - k) / (group_size * (group_size - 1)))
    weight_M = gap * k * (group_size - k) / group_size**2 / (gap * deviation_M + floor)
    ways_M = gammaln(group_size + 1) - gammaln(k + 1) - gammaln(group_size - k + 1)
    total = np.zeros(np.shape(theta_X))
    for ways, weight, right in zip(ways_M, weight_M, k, strict=True):
        total += weight * np.exp(ways + (right - 1) * log_p + (group_size - right - 1) * log_q)
    return total


def std_fixed_points(
    bandit: Bandit, group_size: int, *, deviation_floor: float = 1e-4
) -> list[tuple[float, float]]:
    r"""Return every fixed point of two arms with std-normalised advantages and the KL term in the
    loss, as (theta, K).

    Roots of $D(p)/(pq) = \beta(\theta - \theta_0)$ for the log odds theta of the better arm; K is
    negative at one that repels.
    """
    from scipy.optimize import brentq

    if bandit.arms != 2:
        raise InvalidArgumentError(
            "expected two arms for the fixed point of std-normalised advantages, got "
            f"{bandit.arms}: there is no closed form"
        )
    best = int(np.argmax(bandit.reward_A))
    gap, beta = float(np.ptp(bandit.reward_A)), bandit.kl_weight
    start = math.log(bandit.reference_A[best] / bandit.reference_A[1 - best])

    def excess(theta: float | Vector) -> Vector:
        odds = np.asarray(theta, dtype=np.float64)
        return _drift_over_pq(odds, group_size, gap, deviation_floor) - beta * (odds - start)

    # D/(pq) is largest where p or q is nearly 0, and beyond that the line wins.
    end = (group_size - 1) / math.sqrt(group_size) / beta * 1.01 + 1
    grid = start + np.unique(
        np.concatenate(
            [np.linspace(0, min(end, 60.0), _GRID), np.geomspace(min(end, 60.0), end, _GRID)]
        )
    )
    value = excess(grid)
    roots = [
        float(
            brentq(
                lambda theta: float(excess(theta)),
                grid[place],
                grid[place + 1],
                xtol=1e-14,
                rtol=1e-14,
            )
        )
        for place in np.flatnonzero((value[:-1] > 0) != (value[1:] > 0))
    ]
    return [
        (theta, _std_stiffness(theta, beta, group_size, gap, deviation_floor)) for theta in roots
    ]


def _std_stiffness(theta: float, beta: float, group_size: int, gap: float, floor: float) -> float:
    r"""$K = 2[\beta pq + (1-2p)D - pq D'(p)]$: with $H = D/(pq)$ of theta that is $2pq[\beta -
    dH/d\theta]$.
    """
    h = 1e-4
    places = np.array([theta - 2 * h, theta - h, theta + h, theta + 2 * h])
    slope = float(
        _drift_over_pq(places, group_size, gap, floor) @ np.array([1.0, -8.0, 8.0, -1.0])
    ) / (12 * h)
    return (
        2
        * math.exp(-float(np.logaddexp(0, theta)) - float(np.logaddexp(0, -theta)))
        * (beta - slope)
    )


def _std_fixed_point(bandit: Bandit, training: Training) -> FixedPoint:
    """The stable fixed point next to the reference policy."""
    if training.kl_place == "reward":
        raise InvalidArgumentError(
            "expected the KL term in the loss for the fixed point of std-normalised advantages: "
            "in the reward it is divided by the deviation too, and the drift has a kink where the "
            "two arms tie"
        )
    if training.advantage == "batch_std" and training.prompts > 1:
        raise InvalidArgumentError(
            "expected one group an update for the fixed point of batch_std: there is no closed "
            "form; run expected_path"
        )
    points = std_fixed_points(bandit, training.group_size, deviation_floor=training.deviation_floor)
    stable = [(theta, stiffness) for theta, stiffness in points if stiffness > 0]
    if not stable:
        raise NoFixedPointError(
            "there is no fixed point with std-normalised advantages at a KL weight of "
            f"{bandit.kl_weight:g}: the division by the deviation outruns the KL term; a larger KL "
            "weight gives one"
        )
    theta, stiffness = stable[0]
    best = int(np.argmax(bandit.reward_A))
    logit = np.zeros(2)
    logit[best] = theta
    return _rest(bandit, logit, np.array([stiffness]), np.array([[-1.0, 1.0]]) / math.sqrt(2))
