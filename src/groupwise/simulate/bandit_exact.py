r"""What is known of a softmax bandit without simulating it: value, gradient, Fisher spectrum, fixed point and stiffness.

Everything is a finite sum, a closed form or the root of one; where the dynamics have no fixed point it says so. It steps nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from groupwise.arrays import finite_array
from groupwise.errors import InvalidArgumentError
from groupwise.simulate.bandit_settings import Bandit, Training

Vector = NDArray[np.float64]

_LARGEST_G = 1_000_000
_GRID = 20_001


class NoFixedPointError(InvalidArgumentError):
    """The dynamics have no fixed point, so there is no stiffness and no threshold."""


@dataclass(frozen=True, slots=True)
class FixedPoint:
    r"""Where the expected dynamics rest, and how stiff they are there.

    Near it every mode obeys $\dot x = -K x$ per unit of learning rate.
    """

    logit_A: Vector  # parameters, up to a constant that no policy feels; zero mean
    policy_A: Vector  # probabilities
    value: float  # expected reward, reward units
    stiffness_M: Vector  # K of each of the A - 1 modes, largest first, reward units
    direction_MA: Vector  # unit vectors of the modes in logits, a row each
    # share of the reward's gradient along each mode, its squared cosine; a mode with 0 cannot be seen in the
    # reward
    visible_M: Vector

    @property
    def stiffness(self) -> float:
        """Stiffness of the reward: the mean over modes weighted by what the reward shows of each; with two arms, K."""
        return float(self.stiffness_M @ self.visible_M)


def policy_of(logit_A: ArrayLike) -> Vector:
    """Return the probabilities of logits, which may be shifted by any constant."""
    logit = finite_array("logit_A", logit_A, dimensions=1)
    weight = np.exp(logit - logit.max())
    return np.asarray(weight / weight.sum())


def exact_value(bandit: Bandit, logit_A: ArrayLike) -> float:
    r"""Return the expected reward $\sum_a\pi_a r_a$, without the KL term."""
    return float(policy_of(logit_A) @ bandit.reward_A)


def exact_objective(bandit: Bandit, logit_A: ArrayLike) -> float:
    r"""Return $\sum_a\pi_a r_a - \beta\,KL(\pi\|\pi_{ref})$."""
    policy = policy_of(logit_A)
    seen = policy > 0
    divergence = policy[seen] @ np.log(policy[seen] / bandit.reference_A[seen])
    return float(policy @ bandit.reward_A - bandit.kl_weight * divergence)


def exact_gradient(bandit: Bandit, logit_A: ArrayLike) -> Vector:
    r"""Return the gradient of the objective in the logits, $\pi_a(h_a - \sum_b\pi_b h_b)$, $h_a = r_a - \beta\ln(\pi_a/\pi_{ref,a})$."""
    policy = policy_of(logit_A)
    logit = np.asarray(logit_A, dtype=np.float64)
    log_policy = logit - logit.max() - math.log(np.exp(logit - logit.max()).sum())
    merit = bandit.reward_A - bandit.kl_weight * (log_policy - np.log(bandit.reference_A))
    return np.asarray(policy * (merit - policy @ merit))


def fisher_modes(logit_A: ArrayLike) -> tuple[Vector, Vector]:
    r"""Return the A - 1 eigenvalues of $diag(\pi) - \pi\pi^T$, less the zero of a common shift, largest first, and vectors as rows."""
    policy = policy_of(logit_A)
    eigenvalue, vector = np.linalg.eigh(np.diag(policy) - np.outer(policy, policy))
    # The smallest is the zero of a shift of all logits.
    return np.maximum(eigenvalue[:0:-1], 0.0), vector[:, :0:-1].T


def fixed_point(bandit: Bandit, training: Training) -> FixedPoint:
    r"""Return the fixed point that the expected dynamics reach from the reference policy, and its stiffness.

    $l^* = \ln\pi_{ref} + r/\beta$ and $K = \beta\,eig(diag(\pi^*) - \pi^*\pi^{*T})$ for advantages linear in the rewards; the full group
    mean weakens the reward by $(G-1)/G$, and the KL term too where that is in the reward. Two arms with std-normalised advantages:
    the root of $D(p) = \beta p q(\theta - \theta_0)$ next to $\theta_0$, $K = 2[\beta p q + (1-2p)D - pq\,D'(p)]$.

    Source: derived here.
    """
    if bandit.kl_weight == 0:
        raise NoFixedPointError(
            "there is no fixed point without a KL term: the policy goes on to the best arm for ever; give a KL weight above 0"
        )
    share = (training.group_size - 1) / training.group_size
    if share == 0 and training.advantage != "vanilla":
        raise NoFixedPointError("there is no signal from groups of one rollout: its advantage is zero; use a group size of at least 2")
    if training.advantage in ("std_normalised", "batch_std"):
        return _std_fixed_point(bandit, training)
    shrunk = training.advantage == "full_group_mean"
    pull = share if shrunk and training.kl_place == "loss" else 1.0
    logit = np.log(bandit.reference_A) + pull * bandit.reward_A / bandit.kl_weight
    eigenvalue, vector = fisher_modes(logit)
    stiffness = bandit.kl_weight * eigenvalue * (share if shrunk and training.kl_place == "reward" else 1.0)
    return _rest(bandit, logit, stiffness, vector)


def _rest(bandit: Bandit, logit: Vector, stiffness: Vector, direction: Vector) -> FixedPoint:
    """Put a fixed point together; one where a single arm is left, to within rounding, is none."""
    policy = policy_of(logit)
    if np.delete(policy, np.argmax(policy)).sum() < np.finfo(np.float64).eps:
        raise NoFixedPointError(
            f"there is no fixed point short of a certain policy at a KL weight of {bandit.kl_weight:g}: "
            "there the drift is less than rounding; a larger KL weight gives one"
        )
    slope = policy * (bandit.reward_A - policy @ bandit.reward_A)
    seen = (direction @ slope) ** 2
    return FixedPoint(logit - logit.mean(), policy, float(policy @ bandit.reward_A), stiffness, direction, seen / seen.sum())


def std_drift(p: ArrayLike, group_size: int | None, *, gap: float = 1.0, deviation_floor: float = 1e-4) -> Vector:
    r"""Return $D(p)$, what std-normalised advantages make of $p(1-p)$ in the drift of two arms whose rewards differ by `gap`.

    $D = E\Big[\frac{\Delta\,k(G-k)/G^2}{\Delta\,s_k + \epsilon}\Big]$, $k\sim Bin(G, p)$, $s_k^2 = \frac{k(G-k)}{G(G-1)}$; with
    $\epsilon = 0$ this is $\frac{G-1}{G}E[s]$. In the limit of large groups $\sqrt{p(1-p)}$.

    Source: derived here.
    """
    p_X = np.asarray(p, dtype=np.float64)
    return _drift_over_pq(np.log(p_X) - np.log1p(-p_X), group_size, gap, deviation_floor) * p_X * (1 - p_X)


def _drift_over_pq(theta_X: Vector, group_size: int | None, gap: float, floor: float) -> Vector:
    """D/(pq) as a function of the log odds, which keeps its digits where p is nearly 1."""
    log_p, log_q = -np.logaddexp(0, -theta_X), -np.logaddexp(0, theta_X)
    if group_size is None:
        deviation = np.exp((log_p + log_q) / 2)
        return np.asarray(gap / (gap * deviation + floor))
    if not 2 <= group_size <= _LARGEST_G:
        raise InvalidArgumentError(f"expected a group size from 2 to {_LARGEST_G}, got {group_size}: None stands for the limit")
    from scipy.special import gammaln

    k = np.arange(1, group_size)
    deviation_M = np.sqrt(k * (group_size - k) / (group_size * (group_size - 1)))
    weight_M = gap * k * (group_size - k) / group_size**2 / (gap * deviation_M + floor)
    ways_M = gammaln(group_size + 1) - gammaln(k + 1) - gammaln(group_size - k + 1)
    total = np.zeros(np.shape(theta_X))
    for ways, weight, right in zip(ways_M, weight_M, k, strict=True):
        total += weight * np.exp(ways + (right - 1) * log_p + (group_size - right - 1) * log_q)
    return total


def std_fixed_points(bandit: Bandit, group_size: int | None, *, deviation_floor: float = 1e-4) -> list[tuple[float, float]]:
    r"""Return every fixed point of two arms with std-normalised advantages and the KL term in the loss, as (theta, K).

    Roots of $D(p)/(pq) = \beta(\theta - \theta_0)$ for the log odds theta of the better arm; K is negative at one that repels.

    Source: derived here.
    """
    from scipy.optimize import brentq

    if bandit.arms != 2:
        raise InvalidArgumentError(
            f"expected two arms for the fixed point of std-normalised advantages, got {bandit.arms}: there is no closed form"
        )
    best = int(np.argmax(bandit.reward_A))
    gap, beta = float(np.ptp(bandit.reward_A)), bandit.kl_weight
    start = math.log(bandit.reference_A[best] / bandit.reference_A[1 - best])

    def excess(theta: float | Vector) -> Vector:
        odds = np.asarray(theta, dtype=np.float64)
        return _drift_over_pq(odds, group_size, gap, deviation_floor) - beta * (odds - start)

    # D/(pq) is largest where p or q is nearly 0, and beyond that the line wins; with an infinite group it wins only below exp(theta/2).
    most = (group_size - 1) / math.sqrt(group_size) if group_size else min(2 / math.sqrt(beta), 1e3) + 60
    end = (most / beta if group_size else most) * 1.01 + 1
    grid = start + np.unique(np.concatenate([np.linspace(0, min(end, 60.0), _GRID), np.geomspace(min(end, 60.0), end, _GRID)]))
    value = excess(grid)
    roots = [
        float(brentq(lambda theta: float(excess(theta)), grid[place], grid[place + 1], xtol=1e-14, rtol=1e-14))
        for place in np.flatnonzero((value[:-1] > 0) != (value[1:] > 0))
    ]
    return [(theta, _std_stiffness(theta, beta, group_size, gap, deviation_floor)) for theta in roots]


def _std_stiffness(theta: float, beta: float, group_size: int | None, gap: float, floor: float) -> float:
    r"""$K = 2[\beta pq + (1-2p)D - pq D'(p)]$: with $H = D/(pq)$ of theta that is $2pq[\beta - dH/d\theta]$."""
    h = 1e-4
    places = np.array([theta - 2 * h, theta - h, theta + h, theta + 2 * h])
    slope = float(_drift_over_pq(places, group_size, gap, floor) @ np.array([1.0, -8.0, 8.0, -1.0])) / (12 * h)
    return 2 * math.exp(-float(np.logaddexp(0, theta)) - float(np.logaddexp(0, -theta))) * (beta - slope)


def _std_fixed_point(bandit: Bandit, training: Training) -> FixedPoint:
    """The stable fixed point next to the reference policy."""
    if training.kl_place == "reward":
        raise InvalidArgumentError(
            "expected the KL term in the loss for the fixed point of std-normalised advantages: "
            "in the reward it is divided by the deviation too, and the drift has a kink where the two arms tie"
        )
    if training.advantage == "batch_std" and training.prompts > 1:
        raise InvalidArgumentError(
            "expected one group an update for the fixed point of batch_std: there is no closed form; run expected_path"
        )
    found = std_fixed_points(bandit, training.group_size, deviation_floor=training.deviation_floor)
    stable = [(theta, stiffness) for theta, stiffness in found if stiffness > 0]
    if not stable:
        raise NoFixedPointError(
            f"there is no fixed point with std-normalised advantages at a KL weight of {bandit.kl_weight:g}: "
            "the division by the deviation outruns the KL term; a larger KL weight gives one"
        )
    theta, stiffness = stable[0]
    best = int(np.argmax(bandit.reward_A))
    logit = np.zeros(2)
    logit[best] = theta
    return _rest(bandit, logit, np.array([stiffness]), np.array([[-1.0, 1.0]]) / math.sqrt(2))


def least_kl_weight(bandit: Bandit) -> float:
    r"""Return the KL weight below which std-normalised advantages of very large groups have no fixed point.

    The saddle-node $\min_\theta 1/[\sqrt{pq}\,(\theta - \theta_0)]$; the rewards' scale drops out.

    Source: derived here.
    """
    from scipy.optimize import minimize_scalar

    if bandit.arms != 2:
        raise InvalidArgumentError(f"expected two arms, got {bandit.arms}")
    best = int(np.argmax(bandit.reward_A))
    start = math.log(bandit.reference_A[best] / bandit.reference_A[1 - best])
    found = minimize_scalar(
        lambda gap: -math.log(gap) + (np.logaddexp(0, start + gap) + np.logaddexp(0, -start - gap)) / 2,
        bounds=(1e-9, abs(start) + 60),
        method="bounded",
        options={"xatol": 1e-12},
    )
    return math.exp(float(found.fun))
