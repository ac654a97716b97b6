"""The map and the rules beside each other: every cell against brute-force products of updates,
every limit by hand.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from groupwise.edge.mode import threshold
from groupwise.errors import InvalidArgumentError

RATES, INTERVALS = np.geomspace(1e-3, 10, 9), np.array([1, 2, 5, 12])


def grows(lag: str, momentum: float, force: float, interval: int) -> bool:
    """Whether 4,000 updates, one by one, leave the mode larger than it began."""
    position, velocity = [1.0], 0.0
    for now in range(4000):
        block = now - now % interval
        seen = {"none": now, "fixed": now - interval, "refresh": block, "async": block - interval}[
            lag
        ]
        velocity = momentum * velocity - force * position[max(seen, 0)]
        position.append(position[-1] + velocity)
        if abs(position[-1]) > 1e6:
            return True
    return max(map(abs, position[-200:])) > 1


@pytest.mark.thinned(3)
@pytest.mark.parametrize("lag", ["none", "fixed", "refresh", "async"])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_every_cell_is_what_updates_one_by_one_do(lag: str, momentum: float) -> None:
    limit_R = threshold(lag, momentum, INTERVALS) / 0.4
    for rate in RATES:
        for limit, interval in zip(limit_R, INTERVALS, strict=True):
            if abs(limit / rate - 1) > 0.02:  # at the threshold itself 4,000 updates decide nothing
                assert (rate < limit) != grows(lag, momentum, 0.4 * rate, int(interval)), (
                    rate,
                    interval,
                )


def test_the_rule_is_unsafe_only_for_double_buffering() -> None:
    """The published rule lies above the exact limit for async alone."""
    for lag in ("none", "fixed", "refresh", "async"):
        interval_R = np.array([2, 4, 8, 16])
        limit_R = threshold(lag, 0.9, interval_R)
        # Without a lag the published rule has one update a generation, whatever the interval.
        rule_R = 0.1 / (np.ones(4) if lag == "none" else interval_R)
        assert bool((rule_R > limit_R * (1 + 1e-12)).any()) is (lag == "async")


def test_an_interval_of_no_update_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="interval of 1 to"):
        threshold("refresh", 0.9, [0])


def test_adam_is_heavy_ball_with_a_divided_force() -> None:
    """Adam's own recursion on a quadratic whose second moment stands still: the same positions
    as heavy ball of this force.
    """
    rate, stiffness, beta, second = 0.03, 2.0, 0.9, 4.0
    force = rate * (1 - beta) * stiffness / math.sqrt(second)
    x, m = 1.0, 0.0
    y, v = 1.0, 0.0
    for _ in range(50):
        m = beta * m + (1 - beta) * stiffness * x
        x -= rate * m / math.sqrt(second)
        v = beta * v - force * y
        y += v
        assert x == pytest.approx(y, abs=1e-12)
