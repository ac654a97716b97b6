r"""Modes of which a share $\sigma$ of the force is as old as the rollouts and the rest current, as
with a KL term in the loss: $v_{t+1} = \mu v_t - a[(1-\sigma)x_t + \sigma x_{t-d}]$.
"""

from __future__ import annotations

from functools import reduce

import numpy as np
from scipy.optimize import brentq

from groupwise.arrays import Float
from groupwise.edge.mode import period_matrix


def updates_of_period(
    force: float, momentum: float, interval: int, lag: str, stale_share: float
) -> list[Float]:
    """Return the updates of one period as matrices, of position, velocity and what came before."""
    if lag in {"none", "fixed"}:
        update = period_matrix(lag, force, momentum, interval)
        if lag == "fixed":
            update[:2, 0] -= (1 - stale_share) * force
            update[:2, -1] *= stale_share
        return [update]
    slots = 1 if lag == "refresh" else 2
    inner = np.eye(2 + slots)
    inner[:2, 1] = momentum
    inner[:2, 0] -= (1 - stale_share) * force
    inner[:2, 2] = -stale_share * force
    last = inner.copy()
    # At the end of a block the newest position takes the last slot, and the slots before it move
    # up.
    for slot in range(slots - 1):
        last[2 + slot] = inner[3 + slot]
    last[1 + slots] = inner[0]
    return [inner] * (interval - 1) + [last]


def spectral_radius(
    force: float, momentum: float, interval: int, lag: str, stale_share: float
) -> float:
    """Return the size of the largest eigenvalue of one period."""
    updates = updates_of_period(force, momentum, interval, lag, stale_share)
    period = reduce(lambda before, update: update @ before, updates)
    return float(np.abs(np.linalg.eigvals(period)).max())


def threshold_of_share(lag: str, momentum: float, interval: int, stale_share: float) -> float:
    """Return the force from which a mode grows: the first of 400 that grows, bisected. An unstable
    stretch between two of them is missed.

    Source: derived here (lab/docs/theory/dynamics.md).
    """

    def growth(force: float) -> float:
        return spectral_radius(force, momentum, interval, lag, stale_share) - 1

    least = 0.01 * (1 - momentum) / (interval * (abs(stale_share) + abs(1 - stale_share)))
    forces = np.geomspace(least, 25 * (1 + momentum), 400).tolist()
    first = next(place for place, force in enumerate(forces) if growth(force) > 1e-12)
    return float(brentq(growth, forces[first - 1], forces[first], xtol=1e-16, rtol=1e-13))
