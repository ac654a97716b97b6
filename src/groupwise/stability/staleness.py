r"""A force of which only a part is stale: its exact maps and thresholds, and what loss and KL term leave stale in the two-armed bandit.

With a share $\sigma$ of the force stale, $v_{t+1} = \mu v_t - a[\sigma x_{t-d} + (1-\sigma)x_t]$. The share may exceed 1 or be negative:
then the two parts pull against each other. It knows no trainer and judges no run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.stability.blocks import first_growth, first_turn, leading_turns, scaled_block
from groupwise.stability.crossings import Complex, Float, first_crossing, fixed_values
from groupwise.stability.lags import Lag, lag_by_name, mixed_map

ImportanceRatio = Literal["none", "exact", "clipped"]
KLTerm = Literal["none", "reward", "loss", "unknown"]
TwoArmAdvantage = Literal["leave_one_out", "full_mean", "std"]


def period_map(lag: str, force: float, momentum: float, interval: int, *, stale_share: float = 1.0) -> Float:
    r"""Return the map of one period of a lag with a share of the force stale.

    Source: derived here (docs/theory/dynamics.md).

    Example:
        >>> period_map("refresh", 0.1, 0.0, 2, stale_share=1.0).round(3).tolist()
        [[0.8, 0.0], [-0.1, 0.0]]
        >>> period_map("refresh", 0.1, 0.0, 2, stale_share=0.0).round(3).tolist()
        [[0.81, 0.0], [-0.09, 0.0]]
    """
    kind = lag_by_name(lag)
    if stale_share == 1 or lag == "none":
        return kind.map(force, momentum, interval)
    if lag == "fixed":
        weight = np.zeros(interval + 1)
        weight[0], weight[-1] = 1 - stale_share, stale_share
        return mixed_map(force, momentum, weight)
    matrix, size = scaled_block(lag, force, momentum, interval, stale_share)
    if lag == "async":
        matrix[2, 0] = math.exp(size) * matrix[2, 0]  # a row that is not scaled
    with np.errstate(over="ignore"):
        matrix[:2] *= np.exp(size)
    return matrix


def stale_threshold(lag: str, momentum: ArrayLike, interval: ArrayLike, *, stale_share: float = 1.0) -> Float:
    r"""Return the force per update from which a mode grows where only a share of the force is stale, exactly.

    Closed forms at $\sigma = 1$ (`Lag.threshold`) and $\sigma = 0$, $2(1+\mu)$; a fixed lag has the frequency equation of a mixture,
    refresh and async Jury's conditions on their map. It is the *smallest* such force: a window of stability may lie above it.

    Source: derived here (docs/theory/dynamics.md).

    Example:
        >>> stale_threshold("refresh", 0.9, 8, stale_share=1.04).round(4).tolist()
        0.0323
    """
    kind = lag_by_name(lag)
    if not math.isfinite(stale_share):
        raise InvalidArgumentError(f"expected a finite stale share of the force, got {stale_share:g}")
    mu, updates = np.asarray(momentum, dtype=np.float64), np.asarray(interval, dtype=np.float64)
    if stale_share == 1 or lag == "none":
        return kind.threshold(mu, updates)
    mu, updates = np.broadcast_arrays(mu, updates)
    if (updates != np.floor(updates)).any():
        raise InvalidArgumentError(f"expected whole updates as refresh interval, got {updates[updates != np.floor(updates)].flat[0]:g}")
    if stale_share == 0:
        return 2 * (1 + mu)
    found = [_one_threshold(lag, float(one), int(other), stale_share) for one, other in zip(mu.flat, updates.flat, strict=True)]
    return np.array(found).reshape(mu.shape)


def _one_threshold(lag: str, momentum: float, interval: int, share: float) -> float:
    """One threshold with a part of the force stale."""
    if lag == "fixed":
        return first_crossing(momentum, [0, interval], [1 - share, share])
    return first_growth(lag, momentum, interval, share)


def crossed_below(kind: Lag, force: float, momentum: float, interval: int) -> bool:
    """Return whether a mode is at its threshold or beyond; where that takes a search, it ends at the force.

    Example:
        >>> crossed_below(partly_stale("refresh", 1.04), 0.0323, 0.9, 8)
        False
    """
    share = kind.stale_share
    if share in (0.0, 1.0):
        return force >= float(kind.threshold(np.asarray(momentum), np.asarray(interval)))
    if kind.name == "fixed":
        return force >= first_crossing(momentum, [0, interval], [1 - share, share], below=force)
    return math.isfinite(first_growth(kind.name, momentum, interval, share, below=force, refined=False))


def spectrum(kind: Lag, force: float, momentum: float, interval: int) -> tuple[Complex, float]:
    """Return the eigenvalues of one period that matter, divided by a size, and the logarithm of that size: nothing overflows.

    Example:
        >>> values, size = spectrum(partly_stale("refresh", 0.5), 100.0, 0.9, 1000)
        >>> bool(np.isfinite(values).all()), round(size + float(np.log(np.abs(values).max())))
        (True, 3874)
    """
    if kind.name in {"refresh", "async"} and (kind.stale_share != 1 or force * interval > 1e6):
        matrix, size = scaled_block(kind.name, force, momentum, interval, kind.stale_share)
        return np.linalg.eigvals(matrix).astype(np.complex128), size
    if kind.name == "fixed":
        found = fixed_values(force, momentum, interval, kind.stale_share)
        if found is not None:
            return found, 0.0
    return np.linalg.eigvals(kind.map(force, momentum, interval)).astype(np.complex128), 0.0


def _partial_onset(kind: Lag, momentum: float, interval: int) -> float:
    """The force from which the slowest mode oscillates where a part of it is stale; infinite where it grows before it oscillates."""
    share = kind.stale_share
    if share == 0 or (kind.name == "refresh" and interval == 1):
        return (1 - math.sqrt(momentum)) ** 2
    limit = float(kind.threshold(np.asarray(momentum), np.asarray(interval)))
    if kind.name != "fixed":
        return first_turn(kind.name, momentum, interval, share, limit)

    def turns(force: float) -> bool:
        return bool(leading_turns(spectrum(kind, force, momentum, interval)[0][None])[0])

    # Forces on both scales, since the turn may be at a small part of the threshold.
    grid = limit * np.union1d(np.geomspace(1e-4, 1, 40), np.linspace(0, 1, 21)[1:])
    place = next((place for place, force in enumerate(grid) if turns(float(force))), None)
    if place is None:
        return math.inf
    low, high = float(grid[place - 1]) if place else 0.0, float(grid[place])
    for _ in range(32):
        middle = (low + high) / 2
        low, high = (low, middle) if turns(middle) else (middle, high)
    return high


def partly_stale(lag: str | Lag, stale_share: float = 1.0) -> Lag:
    r"""Return a lag of which only a share of the force is stale, for whatever takes a lag.

    Source: derived here (docs/theory/dynamics.md).

    Example:
        >>> round(float(partly_stale("async", 1.04).threshold(np.array(0.9), np.array(8))), 5)
        0.00976
    """
    kind = lag_by_name(lag) if isinstance(lag, str) else lag
    if not math.isfinite(stale_share):
        raise InvalidArgumentError(f"expected a finite stale share of the force, got {stale_share:g}")
    if stale_share == 1 or kind.name == "none":
        return kind
    if kind.name not in {"fixed", "refresh", "async"}:
        raise InvalidArgumentError(f"expected a stale share of 1 with a mixture of lags, got {stale_share:g}: raise its share of lag 0")
    name = kind.name
    return Lag(
        name,
        f"{kind.description}, for {stale_share:.3g} of the force",
        kind.where,
        lambda interval: stale_share * kind.mean_lag(interval),
        kind.period,
        lambda force, momentum, interval: period_map(name, force, momentum, interval, stale_share=stale_share),
        lambda momentum, interval: stale_threshold(name, momentum, interval, stale_share=stale_share),
        stale_share=stale_share,
        onset=lambda momentum, interval: _partial_onset(partly_stale(name, stale_share), momentum, interval),
    )


@dataclass(frozen=True, slots=True)
class TwoArmMode:
    """The one mode of a two-armed softmax bandit, rewards 1 and 0, with a KL term."""

    value: float  # probability of the better arm at the fixed point, the mean reward there
    stiffness: float  # K, per unit of learning rate
    stale_share: float  # share of the restoring force that is as old as the rollouts

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"value": self.value, "stiffness": self.stiffness, "stale_share": self.stale_share}


def two_arm_mode(
    reference: float,
    kl_weight: float,
    *,
    advantage: TwoArmAdvantage = "leave_one_out",
    group_size: int | None = None,
    importance_ratio: Literal["none", "exact"] = "none",
    kl_term: Literal["reward", "loss"] = "reward",
) -> TwoArmMode:
    r"""Return fixed point, stiffness and stale share of the two-armed softmax bandit that training approaches from its reference policy.

    $\theta' = 2\eta[D(p) - \beta pq(\theta - \theta_0)]$ with $D = pq$ (leave-one-out), $\frac{G-1}{G}pq$ (full mean) or
    $\frac{G-1}{G}E[s_G]$ (standard deviation); $K = 2[\beta pq + (1-2p)D - pqD']$. Stale: all of it with the KL term in the reward,
    whatever the ratio, since at the fixed point the merit of both arms is equal; with the KL term in the loss $-2pqD'$ without a ratio, and
    $K - 2\beta pq$ with the exact one, which is 0 but for the old deviation.

    Source: derived here (docs/theory/dynamics.md).

    Example:
        >>> mode = two_arm_mode(0.3, 0.5, kl_term="loss")
        >>> [round(number, 4) for number in (mode.value, mode.stiffness, mode.stale_share)]
        [0.76, 0.1824, 1.04]
    """
    _check_two_arms(reference, kl_weight, advantage, group_size, kl_term)
    drive, slope = _drive(advantage, group_size)
    origin = math.log(reference / (1 - reference))
    whole = kl_term == "reward" and advantage == "full_mean"
    shrink = drive(0.5) / 0.25 if whole else 1.0
    weight = kl_weight * shrink  # the group mean shrinks the KL term with the reward where it is in the reward

    def pull(theta: float) -> float:
        p = 1 / (1 + math.exp(-theta))
        return drive(p) / (p * (1 - p)) - weight * (theta - origin)

    p = _fixed_point(pull, origin, kl_weight)
    spread = p * (1 - p)
    stiffness = 2 * (weight * spread + (1 - 2 * p) * drive(p) - spread * slope(p))
    stale = stiffness if kl_term == "reward" else -2 * spread * slope(p) if importance_ratio == "none" else stiffness - 2 * weight * spread
    share = stale / stiffness
    return TwoArmMode(p, stiffness, 0.0 if abs(share) < 1e-9 else share)


def _drive(advantage: TwoArmAdvantage, group_size: int | None) -> tuple[Callable[[float], float], Callable[[float], float]]:
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
        lambda p: float(weight @ (p ** (right - 1) * (1 - p) ** (wrong - 1) * (right - group_size * p))),
    )


def _fixed_point(pull: Callable[[float], float], start: float, kl_weight: float) -> float:
    """The probability at the first log odds, from the reference policy on, at which the pull changes its sign; it starts positive."""
    from scipy.optimize import brentq

    grid = np.linspace(start, start + 30.0, 3001)
    negative = np.flatnonzero([pull(float(theta)) <= 0 for theta in grid])
    if not len(negative):
        raise InsufficientDataError(
            f"expected a fixed point, got none with a KL weight of {kl_weight:g}: the advantage outgrows the KL term everywhere, "
            "so there is neither a stiffness nor a threshold; raise the KL weight"
        )
    return 1 / (1 + math.exp(-float(brentq(pull, grid[negative[0] - 1], grid[negative[0]], xtol=1e-14))))


def _check_two_arms(reference: float, kl_weight: float, advantage: str, group_size: int | None, kl_term: str) -> None:
    """Refuse what is no two-armed bandit."""
    if not 0 < reference < 1:
        raise InvalidArgumentError(f"expected a reference probability between 0 and 1, got {reference:g}")
    if not (math.isfinite(kl_weight) and kl_weight > 0):
        raise InvalidArgumentError(f"expected a positive KL weight, got {kl_weight:g}: without one the policy has no fixed point")
    if advantage not in {"leave_one_out", "full_mean", "std"}:
        raise InvalidArgumentError(f"expected an advantage, got {advantage[:60]!r}: use one of leave_one_out, full_mean, std")
    if group_size is not None and not 2 <= group_size <= 512:
        raise InvalidArgumentError(f"expected a group size of 2 to 512, or none for large groups, got {group_size}")
    if advantage == "std" and kl_term == "reward":
        raise InvalidArgumentError("expected the KL term in the loss with std-normalised advantages: in the reward it would be divided too")
