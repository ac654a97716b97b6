"""The two-armed softmax bandit with a KL term: its fixed point, stiffness and stale share, which
everything on a lag can be tried on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.plain import Plain

TwoArmAdvantage = Literal["leave_one_out", "full_mean", "std"]


@dataclass(frozen=True, slots=True)
class TwoArmMode(Plain):
    """The one mode of a two-armed softmax bandit, rewards 1 and 0, with a KL term."""

    value: float  # probability of the better arm at the fixed point, the mean reward there
    stiffness: float  # K, per unit of learning rate
    stale_share: float  # share of the restoring force that is as old as the rollouts


def two_arm_mode(
    reference: float,
    kl_weight: float,
    *,
    advantage: TwoArmAdvantage = "leave_one_out",
    group_size: int | None = None,
    importance_ratio: Literal["none", "exact"] = "none",
    kl_term: Literal["reward", "loss"] = "reward",
) -> TwoArmMode:
    r"""Return fixed point, stiffness and stale share of the two-armed softmax bandit that training
    approaches from its reference policy.

    $\theta' = 2\eta[D(p) - \beta pq(\theta - \theta_0)]$ with $D = pq$ (leave-one-out),
    $\frac{G-1}{G}pq$ (full mean) or $\frac{G-1}{G}E[s_G]$ (standard deviation); $K = 2[\beta pq +
    (1-2p)D - pqD']$. Stale: all of it with the KL term in the reward, whatever the ratio, since at
    the fixed point the merit of both arms is equal; with the KL term in the loss $-2pqD'$ without a
    ratio, and $K - 2\beta pq$ with the exact one, which is 0 but for the old deviation.

    Source: derived here (lab/docs/theory/dynamics.md).
    """
    _check_two_arms(reference, kl_weight, advantage, group_size, kl_term)
    drive, slope = _drive(advantage, group_size)
    origin = math.log(reference / (1 - reference))
    whole = kl_term == "reward" and advantage == "full_mean"
    shrink = drive(0.5) / 0.25 if whole else 1.0
    weight = (
        kl_weight * shrink
    )  # the group mean shrinks the KL term with the reward where it is in the reward

    def pull(theta: float) -> float:
        p = 1 / (1 + math.exp(-theta))
        return drive(p) / (p * (1 - p)) - weight * (theta - origin)

    p = _fixed_point(pull, origin, kl_weight)
    spread = p * (1 - p)
    stiffness = 2 * (weight * spread + (1 - 2 * p) * drive(p) - spread * slope(p))
    stale = (
        stiffness
        if kl_term == "reward"
        else -2 * spread * slope(p)
        if importance_ratio == "none"
        else stiffness - 2 * weight * spread
    )
    share = stale / stiffness
    return TwoArmMode(p, stiffness, 0.0 if abs(share) < 1e-9 else share)


def _drive(
    advantage: TwoArmAdvantage, group_size: int | None
) -> tuple[Callable[[float], float], Callable[[float], float]]:
    """D(p), the expected step that the advantage drives, over 2 eta; and its slope D'(p)."""
    shrink = 1.0 if group_size is None else (group_size - 1) / group_size
    if advantage == "std" and group_size is None:
        return lambda p: math.sqrt(p * (1 - p)), lambda p: (0.5 - p) / math.sqrt(p * (1 - p))
    if advantage != "std" or group_size is None:
        whole = 1.0 if advantage == "leave_one_out" else shrink
        return lambda p: whole * p * (1 - p), lambda p: whole * (1 - 2 * p)
    # Groups that agree have no deviation: both powers below are of at least zero.
    right = np.arange(1, group_size)
    wrong = group_size - right
    ways = np.array([math.comb(group_size, int(k)) for k in right], dtype=np.float64)
    weight = shrink * ways * np.sqrt(right * wrong / (group_size * (group_size - 1)))
    return (
        lambda p: float(weight @ (p**right * (1 - p) ** wrong)),
        lambda p: float(
            weight @ (p ** (right - 1) * (1 - p) ** (wrong - 1) * (right - group_size * p))
        ),
    )


def _fixed_point(pull: Callable[[float], float], start: float, kl_weight: float) -> float:
    """The probability at the first log odds, from the reference policy on, at which the pull
    changes its sign; it starts positive.
    """
    from scipy.optimize import brentq

    grid = np.linspace(start, start + 30.0, 3001)
    negative = np.flatnonzero([pull(float(theta)) <= 0 for theta in grid])
    if not len(negative):
        raise InsufficientDataError(
            f"expected a fixed point, got none with a KL weight of {kl_weight:g}: the advantage "
            "outgrows the KL term everywhere, so there is neither a stiffness nor a threshold; "
            "raise the KL weight"
        )
    return 1 / (
        1 + math.exp(-float(brentq(pull, grid[negative[0] - 1], grid[negative[0]], xtol=1e-14)))
    )


def _check_two_arms(
    reference: float, kl_weight: float, advantage: str, group_size: int | None, kl_term: str
) -> None:
    """Refuse what is no two-armed bandit."""
    if not 0 < reference < 1:
        raise InvalidArgumentError(
            f"expected a reference probability between 0 and 1, got {reference:g}"
        )
    if not (math.isfinite(kl_weight) and kl_weight > 0):
        raise InvalidArgumentError(
            f"expected a positive KL weight, got {kl_weight:g}: without one the policy has no "
            "fixed point"
        )
    if advantage not in {"leave_one_out", "full_mean", "std"}:
        raise InvalidArgumentError(
            f"expected an advantage, got {advantage[:60]!r}: use one of leave_one_out, full_mean, "
            "std"
        )
    if group_size is not None and not 2 <= group_size <= 512:
        raise InvalidArgumentError(
            f"expected a group size of 2 to 512, or none for large groups, got {group_size}"
        )
    if advantage == "std" and kl_term == "reward":
        raise InvalidArgumentError(
            "expected the KL term in the loss with std-normalised advantages: in the reward it "
            "would be divided too"
        )
