r"""The decays of the laws: pure functions of time that fall from 1 towards 0, with their derivatives.

A law is $r(t) = r_\infty + (r_0 - r_\infty)\,g(t)$; here is every $g$ and its slopes by the shape values. Names, bounds and the
region of the search are in `laws`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]


def _underdamped(z: FloatArray, zeta: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return e^{-zeta z} cos(s z) and e^{-zeta z} sin(s z)/s, s = sqrt(1 - zeta^2)."""
    s = np.sqrt(1 - zeta * zeta)
    damped, angle = np.exp(-zeta * z), s * z
    return damped * np.cos(angle), damped * np.sin(angle) / s


def _overdamped(z: FloatArray, zeta: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The same pair for zeta >= 1 (hyperbolic), in decaying exponentials: no overflow, no cancellation near 1."""
    s = np.sqrt(np.maximum(zeta * zeta - 1, 1e-16))
    slow, fast = np.exp(z * (-1 / (zeta + s))), np.expm1(z * (-2 * s))
    return slow * (1 + 0.5 * fast), slow * fast * (-0.5 / s)


def _entire_pair(z: FloatArray, zeta: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The pair for any mixture of damping ratios, each regime computed only where it holds."""
    under = zeta < 1
    if under.all():
        return _underdamped(z, zeta)
    if not under.any():
        return _overdamped(z, zeta)
    if zeta.shape == (*z.shape[:1], *(1,) * (z.ndim - 1)):
        # One damping ratio a row, as on a grid: whole rows are in one regime.
        under = under.reshape(-1)
    else:
        zeta = np.broadcast_to(zeta, z.shape)
        under = zeta < 1
    cosine, sine = np.empty(z.shape), np.empty(z.shape)
    for regime, pair in ((under, _underdamped), (~under, _overdamped)):
        cosine[regime], sine[regime] = pair(z[regime], zeta[regime])
    return cosine, sine


def _together(z: FloatArray, zeta: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Phase in the shape of both arguments; the damping ratio keeps its own where it broadcasts."""
    shape = np.broadcast_shapes(z.shape, zeta.shape)
    return np.broadcast_to(z, shape), zeta


def _series(x: FloatArray) -> FloatArray:
    """Sum of 2k (-x)^(k-1) / (2k+1)! over k >= 1: (S - z C) / ((1 - zeta^2) z^3) near x = (1 - zeta^2) z^2 = 0."""
    total = np.full(x.shape, 0.0)
    for k in range(9, 0, -1):
        total = 2 * k / math.factorial(2 * k + 1) - x * total
    return total


def oscillator_decay(time_T: ArrayLike, natural_frequency: ArrayLike, damping_ratio: ArrayLike) -> FloatArray:
    r"""Step response of the damped oscillator, one law through under-, critical and overdamped.

    $g'' + 2\zeta\omega g' + \omega^2 g = 0,\; g(0) = 1,\; g'(0) = 0$, hence
    $g = e^{-\zeta z}[\cos s z + (\zeta/s)\sin s z]$, $z = \omega t$, $s = \sqrt{1 - \zeta^2}$ (hyperbolic for $\zeta > 1$).

    Source: 2606.30789 (m r'' + gamma r' + k (r - r*) = 0); the form without cancellation is derived by us.

    Example:
        >>> bool(np.allclose(oscillator_decay([0.0, 1.0], 1.0, 1.0), [1.0, 2 / np.e]))
        True
    """
    t, omega, zeta = (np.asarray(v, dtype=float) for v in (time_T, natural_frequency, damping_ratio))
    z, zeta = _together(omega * t, zeta)
    cosine, sine = _entire_pair(z, zeta)
    return np.asarray(cosine + zeta * sine)


def oscillator_slopes(time_T: ArrayLike, natural_frequency: ArrayLike, damping_ratio: ArrayLike) -> FloatArray:
    r"""Derivatives of `oscillator_decay` by frequency and damping ratio.

    $\partial g/\partial\omega = -t\,h$ with the impulse response $h = e^{-\zeta z}\sin(sz)/s$;
    $\partial g/\partial\zeta = 2\,h * h = e^{-\zeta z}[\sin(sz)/s - z\cos(sz)]/(1-\zeta^2)$, a power series near $\zeta = 1$.

    Source: derived by us.

    Example:
        >>> oscillator_slopes([0.0], 1.0, 1.0).ravel().tolist()
        [-0.0, 0.0]
    """
    t, omega, zeta = (np.asarray(v, dtype=float) for v in (time_T, natural_frequency, damping_ratio))
    z, zeta = _together(omega * t, zeta)
    t = np.broadcast_to(t, z.shape)
    cosine, sine = _entire_pair(z, zeta)
    x = (1 - zeta * zeta) * z * z
    near = np.abs(x) < 0.5
    direct = (sine - z * cosine) / np.where(near, 1.0, 1 - zeta * zeta)
    by_zeta = np.where(near, np.exp(-zeta * z) * z**3 * _series(np.where(near, x, 0.0)), direct)
    return np.stack([-t * sine, by_zeta])


def rise_axes(natural_frequency: ArrayLike, damping_ratio: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Rise time (1 + 2 zeta)/omega, which the data fix well in every regime, and the damping ratio."""
    omega, zeta = np.asarray(natural_frequency, dtype=float), np.asarray(damping_ratio, dtype=float)
    return np.asarray((1 + 2 * zeta) / omega), zeta


def rise_shapes(rise_time: ArrayLike, damping_ratio: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """The inverse of `rise_axes`."""
    return rise_axes(rise_time, damping_ratio)


def constant_decay(time_T: ArrayLike) -> FloatArray:
    """No decay at all."""
    return np.zeros(np.shape(time_T))


def constant_slopes(time_T: ArrayLike) -> FloatArray:
    """No shape parameter, hence no derivative."""
    return np.zeros((0, *np.shape(time_T)))


def exponential_decay(time_T: ArrayLike, time_constant: ArrayLike) -> FloatArray:
    r"""$g = e^{-t/\tau}$: the overdamped limit, force without inertia.

    Source: saturation law of 2507.18014.

    Example:
        >>> float(exponential_decay(10.0, 10.0))
        0.36787944117144233
    """
    return np.asarray(np.exp(-np.asarray(time_T, dtype=float) / np.asarray(time_constant, dtype=float)))


def exponential_slopes(time_T: ArrayLike, time_constant: ArrayLike) -> FloatArray:
    """Derivative by the time constant."""
    t, tau = np.asarray(time_T, dtype=float), np.asarray(time_constant, dtype=float)
    return np.asarray((np.exp(-t / tau) * t / tau**2)[None])


def logistic_decay(time_T: ArrayLike, midpoint: ArrayLike, width: ArrayLike) -> FloatArray:
    r"""$g = 1/(1 + e^{(t - t_0)/w})$: the predecessor's sigmoid in time; its start is the level long before $t_0$.

    Source: 2507.18014, R = alpha r_init + beta s + gamma / (1 + exp(-delta (t - t0))).

    Example:
        >>> float(logistic_decay(5.0, 5.0, 2.0))
        0.5
    """
    t, t0, w = (np.asarray(v, dtype=float) for v in (time_T, midpoint, width))
    return np.asarray(1 / (1 + np.exp(np.clip((t - t0) / w, -500, 500))))


def logistic_slopes(time_T: ArrayLike, midpoint: ArrayLike, width: ArrayLike) -> FloatArray:
    """Derivatives by midpoint and width, of the decay of the same name.

    Source: derived by us.

    Example:
        >>> logistic_slopes([1.0, 2.0], 5.0, 2.0).shape
        (2, 2)
    """
    t, t0, w = (np.asarray(v, dtype=float) for v in (time_T, midpoint, width))
    g = logistic_decay(t, t0, w)
    slope = g * (1 - g) / w
    return np.stack([slope, slope * (t - t0) / w])


def scalerl_decay(time_T: ArrayLike, midpoint: ArrayLike, exponent: ArrayLike) -> FloatArray:
    r"""$g = 1/(1 + (t/t_{mid})^B)$: ScaleRL's sigmoid in log time.

    Source: 2510.13786, R_C - R_0 = (A - R_0) / (1 + (C_mid / C)^B).

    Example:
        >>> float(scalerl_decay(7.0, 7.0, 1.5))
        0.5
    """
    t, mid, b = (np.asarray(v, dtype=float) for v in (time_T, midpoint, exponent))
    return np.asarray(1 / (1 + np.exp(np.clip(b * (np.log(np.maximum(t, 1e-300)) - np.log(mid)), -500, 500))))


def scalerl_slopes(time_T: ArrayLike, midpoint: ArrayLike, exponent: ArrayLike) -> FloatArray:
    """Derivatives by midpoint and exponent, of the decay of the same name.

    Source: derived by us.

    Example:
        >>> scalerl_slopes([1.0, 2.0], 5.0, 2.0).shape
        (2, 2)
    """
    t, mid, b = (np.asarray(v, dtype=float) for v in (time_T, midpoint, exponent))
    g = scalerl_decay(t, mid, b)
    slope = g * (1 - g)
    return np.stack([slope * b / mid, -slope * np.where(t > 0, np.log(np.maximum(t, 1e-300)) - np.log(mid), 0.0)])


def power_decay(time_T: ArrayLike, time_scale: ArrayLike, exponent: ArrayLike) -> FloatArray:
    r"""$g = (1 + t/t_s)^{-B}$: a power law that starts at a finite value.

    Source: the usual learning-curve power law; the shift that keeps t = 0 finite is ours.

    Example:
        >>> float(power_decay(3.0, 1.0, 0.5))
        0.5
    """
    t, ts, b = (np.asarray(v, dtype=float) for v in (time_T, time_scale, exponent))
    return np.asarray(np.exp(-b * np.log1p(t / ts)))


def power_slopes(time_T: ArrayLike, time_scale: ArrayLike, exponent: ArrayLike) -> FloatArray:
    """Derivatives by time scale and exponent, of the decay of the same name.

    Source: derived by us.

    Example:
        >>> power_slopes([1.0, 2.0], 5.0, 2.0).shape
        (2, 2)
    """
    t, ts, b = (np.asarray(v, dtype=float) for v in (time_T, time_scale, exponent))
    g = power_decay(t, ts, b)
    return np.stack([g * b * t / (ts * (ts + t)), -g * np.log1p(t / ts)])
