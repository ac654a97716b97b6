r"""Kinds of lag between the policy that sampled a rollout and the one it updates: the matrix of one
mode's updates under each.

One mode of heavy-ball descent is $x_{t+1} = x_t + v_{t+1}$, $v_{t+1} = \mu v_t - a[(1-\sigma)x_t +
\sigma x_{t-d}]$ with the force $a = \eta K$, of which the share $\sigma$ is as old as the rollouts.
Kinds of lag differ in the age d. From the matrix follow the edge of stability (`threshold`) and
where a mode stands (`mode`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from groupwise.errors import InvalidArgumentError

Float = NDArray[np.float64]
Complex = NDArray[np.complex128]
Flags = NDArray[np.bool_]

LONGEST_FIXED_LAG = 1024
"""Longest fixed lag, in updates, of which eigenvalues are computed."""


@dataclass(frozen=True, slots=True)
class Lag:
    """One kind of lag, with the share of the force that is as old as the rollouts."""

    name: str  # none, fixed, refresh, async or mixed
    description: str  # in words
    where: str  # in which trainers it occurs
    # sigma; it may exceed 1 or be negative, where the two parts of the force pull against each
    # other
    stale_share: float = 1.0
    weight_D: tuple[float, ...] = ()  # of a mixture: the shares of the lags 0, 1, 2, ...

    @property
    def by_block(self) -> bool:
        """Whether the rollouts are replaced once in R updates, so that their age changes from
        update to update.
        """
        return self.name in {"refresh", "async"}

    def period(self, interval: int) -> int:
        """Updates that one application of the matrix covers."""
        return interval if self.by_block else 1

    def mean_lag(self, interval: float) -> float:
        """Mean age of what the force is computed from, in updates; what is current counts as 0."""
        ages = {
            "none": 0.0,
            "fixed": float(interval),
            "refresh": (interval - 1) / 2,
            "async": (3 * interval - 1) / 2,
        }
        return self.stale_share * ages[self.name]

    def delays(self, interval: int) -> tuple[Float, Float]:
        """Ages and their weights where every update has the same: none, fixed and mixed."""
        if self.name == "mixed":
            ages = np.flatnonzero(self.weight_D)
            return ages.astype(np.float64), np.array(self.weight_D)[ages]
        if self.name == "fixed":
            ages, weight = (
                np.array([0.0, interval]),
                np.array([1 - self.stale_share, self.stale_share]),
            )
            return ages[weight != 0], weight[weight != 0]
        return np.zeros(1), np.ones(1)

    def matrix(self, force: ArrayLike, momentum: ArrayLike, interval: int) -> Float:
        """Return the matrix of one period; forces and momenta that are arrays give a stack of
        matrices.

        The state is (x, v, older positions). A block is R single updates of (x, v, the position
        that the rollouts are from), after which refresh takes the newest position and async the one
        at the start of the block.
        """
        a, mu = np.broadcast_arrays(
            np.asarray(force, dtype=np.float64), np.asarray(momentum, dtype=np.float64)
        )
        if not self.by_block:
            return self._delayed(a, mu, interval)
        update = np.zeros((*a.shape, 3, 3))
        update[..., :2, 0] = -((1 - self.stale_share) * a)[..., None]
        update[..., :2, 1] = mu[..., None]
        update[..., :2, 2] = -(self.stale_share * a)[..., None]
        update[..., [0, 2], [0, 2]] += 1.0
        with np.errstate(over="ignore", invalid="ignore"):
            block = np.linalg.matrix_power(update, interval)
            if self.name == "refresh":
                block[..., :2, 0] += block[..., :2, 2]
                return np.asarray(block[..., :2, :2])
        block[..., 2, :] = [1.0, 0.0, 0.0]
        return block

    def _delayed(self, a: Float, mu: Float, interval: int) -> Float:
        """One update of (x, v, x one update ago, ..., x D updates ago)."""
        ages, weight = self.delays(interval)
        size = int(ages.max()) + 2
        matrix = np.zeros((*a.shape, size, size))
        matrix[..., :2, 1] = mu[..., None]
        for age, share in zip(ages.astype(int), weight, strict=True):
            matrix[..., :2, 0 if age == 0 else age + 1] = -(share * a)[..., None]
        matrix[..., 0, 0] += 1.0
        for row in range(2, size):
            matrix[..., row, 0 if row == 2 else row - 1] = 1.0
        return matrix

    def force(self, eigenvalue: Any, momentum: float, interval: int) -> Any:
        r"""Return the force at which the matrix has an eigenvalue: its characteristic equation is
        linear in a, and solved for it.

        $(1-\lambda)(1-\mu/\lambda)/\sum_d p_d\lambda^{-d}$ for delays;
        $(1-\lambda)(\lambda-q)\lambda^k/(S\lambda + \mu L^2 - qS)$ for refresh (k = 0) and async (k
        = 1). A block of which a part is current is not linear in a and has none.
        """
        value = np.asarray(eigenvalue)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            if not self.by_block:
                ages, weight = self.delays(interval)
                return (
                    (1 - value) * (1 - momentum / value) / (np.power.outer(value, -ages) @ weight)
                )
            assert self.stale_share == 1
            q, geometric, ramp = (float(part) for part in block_sums(momentum, interval))
            held = value if momentum == 0 else value - q
            pull = ramp * value + momentum * geometric**2 - q * ramp
            return (1 - value) * held * (value if self.name == "async" else 1.0) / pull


def block_sums(momentum: ArrayLike, interval: ArrayLike) -> tuple[Float, Float, Float]:
    r"""What R updates under one constant force do: $q = \mu^R$, $L = \sum_{j<R}\mu^j$, $S =
    \sum_{j<R}(R-j)\mu^j$.
    """
    mu, updates = np.broadcast_arrays(
        np.asarray(momentum, dtype=np.float64), np.asarray(interval, dtype=np.float64)
    )
    # 1 - mu^R would lose every digit for a momentum near 1 and a short interval.
    with np.errstate(divide="ignore"):
        geometric = np.where(mu > 0, -np.expm1(updates * np.log(mu)) / (1 - mu), 1.0)
    return np.power(mu, updates), geometric, (updates - mu * geometric) / (1 - mu)


LAGS: tuple[Lag, ...] = (
    Lag("none", "every rollout comes from the policy it updates", "on-policy training"),
    Lag("fixed", "every rollout is R updates old", "pipelines and queues of constant length"),
    Lag(
        "refresh",
        "R updates on one generation of rollouts: lags 0 to R - 1",
        "several mini-batches or epochs a generation",
    ),
    Lag(
        "async",
        "the next R updates use rollouts generated during the last R: lags R to 2R - 1",
        "double-buffered asynchronous generation",
    ),
)


def lag_by_name(name: str) -> Lag:
    """Return a kind of lag."""
    for lag in LAGS:
        if lag.name == name:
            return lag
    raise InvalidArgumentError(
        f"expected a kind of lag, got {name[:60]!r}: use one of "
        f"{', '.join(lag.name for lag in LAGS)}"
    )


def mixed_lag(weight_D: ArrayLike) -> Lag:
    """Return the lag of batches that mix rollouts of several ages, from the shares of the lags
    0, 1, 2, ..., which sum to 1.
    """
    weight = np.asarray(weight_D, dtype=np.float64)
    if (
        weight.ndim != 1
        or not len(weight)
        or not (weight >= 0).all()
        or abs(weight.sum() - 1) > 1e-9
    ):
        raise InvalidArgumentError(
            "expected shares of the lags that are not negative and sum to 1: divide them by their "
            "sum"
        )
    return Lag(
        "mixed",
        "a batch mixes rollouts of several ages",
        "replay and queues of changing length",
        1.0,
        tuple(weight.tolist()),
    )


def partly_stale(lag: str | Lag, stale_share: float = 1.0) -> Lag:
    """Return a lag of which only a share of the force is stale, the rest being computed with the
    current policy.
    """
    kind = lag_by_name(lag) if isinstance(lag, str) else lag
    if not np.isfinite(stale_share):
        raise InvalidArgumentError(
            f"expected a finite stale share of the force, got {stale_share:g}"
        )
    if stale_share == kind.stale_share or kind.name == "none":
        return kind
    if kind.name == "mixed":
        raise InvalidArgumentError(
            f"expected a stale share of 1 with a mixture of lags, got {stale_share:g}: raise its "
            "share of lag 0"
        )
    return replace(kind, stale_share=stale_share)


def check_setting(momentum: ArrayLike, interval: ArrayLike) -> None:
    """Refuse a momentum or an interval outside its domain."""
    mu, updates = np.asarray(momentum, dtype=np.float64), np.asarray(interval, dtype=np.float64)
    usable = (mu >= 0) & (mu < 1)
    if not usable.all():
        raise InvalidArgumentError(
            f"expected a momentum of at least 0 and below 1, got {mu[~usable].flat[0]:g}"
        )
    usable = (updates >= 1) & np.isfinite(updates)
    if not usable.all():
        raise InvalidArgumentError(
            f"expected a refresh interval of at least 1 update, got {updates[~usable].flat[0]:g}"
        )
