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

LONGEST_FIXED_LAG = 1024
"""Longest fixed lag, in updates, of which eigenvalues are computed."""
_SMALL = 64  # longest fixed lag whose matrix is cheaper than Newton's steps


def spectrum(kind: Lag, force: float, momentum: float, interval: int) -> Complex:
    """Return the eigenvalues of one period; infinity beyond the range of numbers."""
    if kind.name == "fixed" and interval > _SMALL:
        values = _values_of_long_lag(force, momentum, interval)
        if len(values):
            return values
    matrix = period_matrix(kind, force, momentum, interval)
    if not np.isfinite(matrix).all():
        return np.array([complex(math.inf)])
    return np.linalg.eigvals(matrix).astype(np.complex128)


def _values_of_long_lag(force: float, momentum: float, lag: int) -> Complex:
    r"""The eigenvalues of a long fixed lag in the upper half plane, by Newton's steps on $(\lambda
    - 1)(1 - \mu/\lambda) + a\lambda^{-d}$.
    """
    if force > 1e100:
        return np.empty(0, dtype=np.complex128)

    # One start on the unit circle for each turn of the delay; the roots without a force have their
    # own, and so have real ones.
    turn = 2j * np.pi * np.arange(0, lag // 2 + 2)
    free = np.array([1.0, momentum], dtype=np.complex128)
    line = np.linspace(max(momentum, 0.01), 1 - 1e-9, 50).astype(np.complex128)
    value = np.concatenate([np.exp((turn + 1j) / lag), free[free != 0], line])
    with np.errstate(all="ignore"):
        for _ in range(60):
            held = (value - 1) * (1 - momentum / value)
            power = force * np.exp(-lag * np.log(value))
            change = (held + power) / (1 - momentum / value**2 - lag * power / value)
            # A step beyond a branch's width would land on another one.
            change *= np.minimum(1, 0.5 / lag / np.maximum(np.abs(change), 1e-300))
            value = value - change
        held = (value - 1) * (1 - momentum / value)
        error = np.abs(held + force * np.exp(-lag * np.log(value)))
        good = error < 1e-9 * (np.abs(held) + np.abs(value - 1))
    upper = np.sort(np.where(value.imag < 0, np.conj(value), value)[good & np.isfinite(value)])
    return upper[np.append(np.abs(np.diff(upper)) > 1e-9, True)] if len(upper) else upper


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
