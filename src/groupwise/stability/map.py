r"""A map of stability over learning rate and refresh interval, and the rules that bound the learning rate beside each other.

Every setting of the map is judged at once from the closed-form thresholds. Nothing is drawn here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from groupwise.errors import InvalidArgumentError
from groupwise.plain import Plain
from groupwise.stability.lags import Flags, Float
from groupwise.stability.mode import Stability
from groupwise.stability.threshold import rule_threshold, threshold


@dataclass(frozen=True, slots=True)
class StabilityMap:
    """Stability over learning rate and refresh interval; E learning rates, R intervals."""

    lag: str  # kind
    momentum: float  # mu
    force_per_rate: float  # force per update over learning rate: the stiffness, or what takes its place
    learning_rate_E: Float  # the learning rates
    interval_R: Float  # the intervals, in updates
    limit_R: Float  # largest stable learning rate at each interval
    rule_R: Float  # what the published rule allows at each interval
    margin_ER: Float  # threshold over force; above 1 is stable

    @property
    def stable(self) -> Flags:
        """Where the mode is stable, shape (E, R)."""
        return np.asarray(self.margin_ER > 1)


def stability_map(
    lag: str,
    momentum: float,
    force_per_rate: float,
    learning_rate_E: ArrayLike,
    interval_R: ArrayLike,
    *,
    stale_share: float = 1.0,
) -> StabilityMap:
    r"""Return where a mode is stable: $\eta K < a_c(\mu, R)$.

    Source: derived here (docs/theory/dynamics.md).

    Example:
        >>> stability_map("refresh", 0.9, 0.5, [0.05, 0.1], [1, 8]).stable.tolist()
        [[True, True], [True, False]]
    """
    rate, interval = np.asarray(learning_rate_E, dtype=np.float64), np.asarray(interval_R, dtype=np.float64)
    if not (math.isfinite(force_per_rate) and force_per_rate > 0):
        raise InvalidArgumentError(f"expected a positive stiffness, got {force_per_rate:g}: without a restoring force nothing settles")
    if rate.ndim != 1 or interval.ndim != 1 or not (np.isfinite(rate) & (rate > 0)).all():
        raise InvalidArgumentError("expected positive learning rates and intervals as two lists of numbers")
    limit = np.broadcast_to(threshold(lag, momentum, interval, stale_share=stale_share), interval.shape) / force_per_rate
    # Without a lag the published rule knows no interval: one update a generation.
    rule = np.broadcast_to(rule_threshold(momentum, np.ones_like(interval) if lag == "none" else interval), interval.shape) / force_per_rate
    with np.errstate(over="ignore"):
        margin = limit / rate[:, None]
    return StabilityMap(lag, momentum, force_per_rate, rate, interval, limit, rule, margin)


@dataclass(frozen=True, slots=True)
class StalenessRule(Plain):
    r"""The constants of the rival rule $\eta \ll \min\{R_{batch}/(S\,G),\ R_{crit}/(T\,G)\}$.

    Source: arXiv 2607.01083.
    """

    KEYS = ("batch_limit", "critical_limit", "binding_constraint=binds")

    staleness: float  # S, updates by which the oldest rollouts of a batch lag
    horizon: float  # T, updates of the run
    update_norm: float  # G, norm of one update over the learning rate
    batch_radius: float  # distance in parameters over which a batch stays useful
    critical_radius: float  # distance over which the run stays out of collapse

    def __post_init__(self) -> None:
        """Refuse constants that bound nothing."""
        for name in ("staleness", "horizon", "update_norm", "batch_radius", "critical_radius"):
            value = getattr(self, name)
            if not (math.isfinite(value) and (value > 0 or (value == 0 and name == "staleness"))):
                raise InvalidArgumentError(f"expected a positive --{name.replace('_', '-')}, got {value:g}")

    @property
    def batch_limit(self) -> float:
        """What staleness allows; infinite without any."""
        return math.inf if self.staleness == 0 else self.batch_radius / (self.staleness * self.update_norm)

    @property
    def critical_limit(self) -> float:
        """What the length of the run allows."""
        return self.critical_radius / (self.horizon * self.update_norm)

    @property
    def binds(self) -> str:
        """Which of the two constraints binds: staleness or horizon."""
        return "staleness" if self.batch_limit < self.critical_limit else "horizon"


@dataclass(frozen=True, slots=True)
class RateLimit(Plain):
    """What one rule allows."""

    KEYS = ("rule", "max_learning_rate=learning_rate", "allows", "binds", "note")

    rule: str  # exact, published or rival
    learning_rate: float  # its limit
    allows: bool  # whether the present learning rate is below it
    binds: bool  # whether it is the smallest limit of all
    note: str  # what to know


def rate_limits(found: Stability, learning_rate: float, rival: StalenessRule | None = None) -> tuple[RateLimit, ...]:
    """Return what each rule allows at most, the smallest one marked.

    Example:
        >>> from groupwise.stability.mode import stability
        >>> [
        ...     (limit.rule, round(limit.learning_rate, 3), limit.binds)
        ...     for limit in rate_limits(stability(0.02, 0.9, refresh_interval=8), 1.0)
        ... ]
        [('exact', 1.693, False), ('published', 0.625, True)]
    """
    limits = [
        ("exact", learning_rate * found.margin, "of the linear mode, without importance ratio"),
        ("published", learning_rate * found.rule_threshold / found.force, "learning rate × stiffness × interval < 1 − momentum"),
    ]
    if rival is not None:
        limits.append(("rival", min(rival.batch_limit, rival.critical_limit), f"an order of magnitude; its {rival.binds} constraint binds"))
    smallest = min(limit for _, limit, _ in limits)
    return tuple(RateLimit(rule, limit, learning_rate < limit, limit == smallest, note) for rule, limit, note in limits)


def adam_force(learning_rate: float, stiffness: float, beta1: float, second_moment: float) -> float:
    r"""Return the force per update that Adam amounts to, heuristically: $a = (1-\beta_1)\,\eta K/\sqrt v$ at momentum $\beta_1$.

    Source: derived here; a heuristic: v is taken as constant, and where noise makes it, the force depends on the batch size.

    Example:
        >>> round(adam_force(0.01, 2.0, 0.9, 4.0), 9)
        0.001
    """
    if not (math.isfinite(second_moment) and second_moment > 0):
        raise InvalidArgumentError(f"expected a positive second moment of the gradient, got {second_moment:g}: Adam divides by its root")
    if not 0 <= beta1 < 1:
        raise InvalidArgumentError(f"expected beta1 of at least 0 and below 1, got {beta1:g}")
    return (1 - beta1) * learning_rate * stiffness / math.sqrt(second_moment)
