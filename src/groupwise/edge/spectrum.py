"""How a mode moves below the edge: the eigenvalues of one period, the force that gives one of them,
and the force from which the slowest mode oscillates.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from groupwise.edge.threshold import (
    Complex,
    Lag,
    check_setting,
    lag_by_name,
    period_matrix,
)

LONGEST_FIXED_LAG = 256
"""Longest fixed lag, in updates, of which eigenvalues are computed."""


def spectrum(kind: Lag, force: float, momentum: float, interval: int) -> Complex:
    """Return the eigenvalues of one period; infinity beyond the range of numbers."""
    matrix = period_matrix(kind, force, momentum, interval)
    if not np.isfinite(matrix).all():
        return np.array([complex(math.inf)])
    return np.linalg.eigvals(matrix).astype(np.complex128)


def force_of_eigenvalue(kind: Lag, eigenvalue: Any, momentum: float, interval: int) -> Any:
    r"""Return the force at which one period has an eigenvalue.

    The characteristic equation is linear in the force, so two determinants solve it. Of a complex
    eigenvalue the result is a force where it is real and positive.
    """
    value = np.asarray(eigenvalue)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        if kind.name == "fixed":
            return (1 - value) * (1 - momentum / value) / np.power(value, -float(interval))
        shift = value[..., None, None] * np.eye(3)
        without, each = (
            np.linalg.det(period_matrix(kind, force, momentum, interval) - shift)
            for force in (0.0, 1.0)
        )
        return without / (without - each)


def meeting(kind: Lag, momentum: float, interval: int) -> float:
    """Return the eigenvalue at which the slow mode meets the next: where its force is first
    largest below 1.
    """
    # On a logarithmic scale of the distance from 1, then ever finer between the neighbours of the
    # top.
    gap = np.append(np.geomspace(1e-9, 1, 4000)[:-1], 1 - 1e-12)
    for _ in range(8):
        force = force_of_eigenvalue(kind, 1 - gap, momentum, interval)
        top = int(np.argmax(np.diff(force, append=-np.inf) < 0))
        gap = np.linspace(gap[max(top - 1, 0)], gap[min(top + 1, len(gap) - 1)], 101)
    return 1 - float(gap[50])


def oscillation_onset(lag: str | Lag, momentum: float, refresh_interval: int = 1) -> float:
    r"""Return the smallest force from which the slowest mode oscillates: where the slow real
    eigenvalue meets the next, on-policy $(1-\sqrt\mu)^2$.
    """
    check_setting(momentum, refresh_interval)
    kind = lag_by_name(lag) if isinstance(lag, str) else lag
    if kind.name == "refresh" and refresh_interval == 1:
        kind = lag_by_name("none")
    top = meeting(kind, momentum, refresh_interval)
    return float(force_of_eigenvalue(kind, top, momentum, refresh_interval))
