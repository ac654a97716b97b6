r"""The largest stable learning rate over refresh intervals, and the rules that bound the learning rate beside each other.

Nothing is drawn here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from groupwise.errors import InvalidArgumentError
from groupwise.plain import Plain
from groupwise.stability.lags import Float
from groupwise.stability.mode import Stability
from groupwise.stability.threshold import rule_threshold, threshold


def largest_rates(
    lag: str, momentum: float, force_per_rate: float, interval_R: ArrayLike, *, stale_share: float = 1.0
) -> tuple[Float, Float]:
    r"""Return the largest stable learning rate at each refresh interval, $\eta K < a_c(\mu, R)$, and what the published rule allows.

    The force per update over the learning rate is the stiffness, or what takes its place.

    Source: derived here (docs/theory/dynamics.md).
    """
    interval = np.asarray(interval_R, dtype=np.float64)
    if not (math.isfinite(force_per_rate) and force_per_rate > 0):
        raise InvalidArgumentError(f"expected a positive stiffness, got {force_per_rate:g}: without a restoring force nothing settles")
    limit = np.broadcast_to(threshold(lag, momentum, interval, stale_share=stale_share), interval.shape) / force_per_rate
    # Without a lag the published rule knows no interval: one update a generation.
    rule = np.broadcast_to(rule_threshold(momentum, np.ones_like(interval) if lag == "none" else interval), interval.shape) / force_per_rate
    return limit, rule


@dataclass(frozen=True, slots=True)
class RateLimit(Plain):
    """What one rule allows."""

    KEYS = ("rule", "max_learning_rate=learning_rate", "allows", "binds", "note")

    rule: str  # exact or published
    learning_rate: float  # its limit
    allows: bool  # whether the present learning rate is below it
    binds: bool  # whether it is the smallest limit of all
    note: str  # what to know


def rate_limits(found: Stability, learning_rate: float) -> tuple[RateLimit, ...]:
    """Return what each rule allows at most, the smallest one marked."""
    limits = [
        ("exact", learning_rate * found.margin, "of the linear mode, without importance ratio"),
        ("published", learning_rate * found.rule_threshold / found.force, "learning rate × stiffness × interval < 1 − momentum"),
    ]
    smallest = min(limit for _, limit, _ in limits)
    return tuple(RateLimit(rule, limit, learning_rate < limit, limit == smallest, note) for rule, limit, note in limits)


def adam_force(learning_rate: float, stiffness: float, beta1: float, second_moment: float) -> float:
    r"""Return the force per update that Adam amounts to, heuristically: $a = (1-\beta_1)\,\eta K/\sqrt v$ at momentum $\beta_1$.

    Source: derived here; a heuristic: v is taken as constant, and where noise makes it, the force depends on the batch size.
    """
    if not (math.isfinite(second_moment) and second_moment > 0):
        raise InvalidArgumentError(f"expected a positive second moment of the gradient, got {second_moment:g}: Adam divides by its root")
    if not 0 <= beta1 < 1:
        raise InvalidArgumentError(f"expected beta1 of at least 0 and below 1, got {beta1:g}")
    return (1 - beta1) * learning_rate * stiffness / math.sqrt(second_moment)
