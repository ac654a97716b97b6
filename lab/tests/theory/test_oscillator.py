"""The oscillator against its own differential equation, through all regimes, and what is derived
from it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.linalg import expm
from tests.cases import each_case

from groupwise.forecasting.laws import (
    exponential_decay,
    oscillator_decay,
    oscillator_quantities,
    oscillator_slopes,
)
from groupwise_lab.theory.oscillator import oscillator, rule_threshold

RATIOS = (0.03, 0.1, 0.5, 0.9, 1 - 1e-6, 1 - 1e-12, 1.0, 1 + 1e-12, 1 + 1e-6, 1.1, 2.0, 8.0, 30.0)


def solved(time: np.ndarray, omega: float, zeta: float) -> np.ndarray:
    """g'' + 2 zeta omega g' + omega^2 g = 0 from g = 1, g' = 0: the exponential of its matrix, which
    knows no regimes.
    """
    matrix = np.array([[0.0, 1.0], [-(omega**2), -2 * zeta * omega]])
    return np.asarray(expm(time[:, None, None] * matrix)[:, 0, 0])


@each_case("zeta", RATIOS)
def test_the_closed_form_solves_the_equation(zeta: float) -> None:
    omega = 0.7
    time = np.linspace(0, 20 * max(1.0, 0.3 * zeta), 40)
    np.testing.assert_allclose(
        oscillator_decay(time, omega, zeta), solved(time, omega, zeta), rtol=0, atol=1e-9
    )


@each_case(
    "zeta",
    [1 - 1e-3, 1 - 1e-7, 1 - 1e-12, 1 - 1e-16, 1.0, 1 + 1e-15, 1 + 1e-12, 1 + 1e-7, 1 + 1e-3],
)
def test_decay_and_slopes_are_continuous_across_critical_damping(zeta: float) -> None:
    z = np.linspace(0, 30, 200)
    critical = np.exp(-z) * (1 + z)
    # d g / d zeta at 1 is z^3 e^-z / 3, and d g / d omega is -t z e^-z.
    assert np.abs(oscillator_decay(z, 1.0, zeta) - critical).max() < 0.5 * abs(zeta - 1) + 1e-14
    slopes = oscillator_slopes(z, 1.0, zeta)
    assert np.abs(slopes[0] + z * z * np.exp(-z)).max() < 2 * abs(zeta - 1) + 1e-13
    assert np.abs(slopes[1] - z**3 * np.exp(-z) / 3).max() < 2 * abs(zeta - 1) + 1e-13


def test_the_power_series_and_the_closed_slope_meet() -> None:
    """Both sides of |1 - zeta^2| z^2 = 1/2, where the formula changes."""
    for zeta in (0.6, 0.95, 1.05, 2.0):
        edge = np.sqrt(0.5 / abs(1 - zeta**2))
        below, above = oscillator_slopes(
            np.array([edge * (1 - 1e-9), edge * (1 + 1e-9)]), 1.0, zeta
        )[1]
        assert below == pytest.approx(above, rel=2e-8)


@each_case("zeta", [0.03, 0.999, 1.0, 1.001, 30.0])
def test_huge_times_neither_overflow_nor_leave_anything(zeta: float) -> None:
    time = np.array([1e6, 1e12, 1e100, 1e300])
    assert np.abs(oscillator_decay(time, 1.0, zeta)).max() < 1e-12
    assert np.isfinite(oscillator_slopes(time[:2], 1.0, zeta)).all()


def test_very_strong_damping_is_the_exponential() -> None:
    """Zeta to infinity at fixed tau1 = 2 zeta / omega: the error is of the order 1 / (4 zeta^2)."""
    time = np.linspace(0, 200, 300)
    for zeta in (30.0, 300.0, 3000.0):
        error = np.abs(
            oscillator_decay(time, 2 * zeta / 40.0, zeta) - exponential_decay(time, 40.0)
        ).max()
        assert error < 0.5 / zeta**2


def test_overdamped_time_constants_are_those_of_the_two_exponentials() -> None:
    omega, zeta, time = 0.2, 1.7, np.linspace(0, 100, 50)
    got = {
        name: float(v[0])
        for name, v in oscillator_quantities(np.array([omega]), np.array([zeta])).items()
    }
    tau1, tau2 = got["tau1"], got["tau2"]
    two = (tau1 * np.exp(-time / tau1) - tau2 * np.exp(-time / tau2)) / (tau1 - tau2)
    np.testing.assert_allclose(two, oscillator_decay(time, omega, zeta), atol=1e-13)
    assert tau1 > tau2
    assert got["period"] == np.inf
    assert got["overshoot"] == 0


def test_overshoot_and_period_are_those_of_the_curve() -> None:
    omega, zeta = 0.3, 0.35
    got = {
        name: float(v[0])
        for name, v in oscillator_quantities(np.array([omega]), np.array([zeta])).items()
    }
    time = np.linspace(0, 2 * got["period"], 400_001)
    decay = oscillator_decay(time, omega, zeta)
    lowest = int(decay.argmin())
    assert -decay[lowest] == pytest.approx(got["overshoot"], rel=1e-8)
    assert time[lowest] == pytest.approx(got["period"] / 2, rel=1e-5)
    # One period apart the curve repeats, smaller by e^{-period / tau}.
    shift = oscillator_decay(time + got["period"], omega, zeta)
    np.testing.assert_allclose(shift, decay * np.exp(-got["period"] / got["tau1"]), atol=1e-12)
    assert got["tau1"] == pytest.approx(got["tau2"], rel=1e-14)


def test_time_constants_meet_at_critical_damping() -> None:
    near = oscillator_quantities(np.full(3, 0.1), np.array([1 - 1e-12, 1.0, 1 + 1e-12]))
    np.testing.assert_allclose(near["tau1"], 10.0, rtol=1e-5)
    np.testing.assert_allclose(near["tau2"], 10.0, rtol=1e-5)
    assert near["overshoot"].max() < 1e-300


@each_case("zeta", [0.1, 0.7, 1 - 1e-9, 1.0, 1 + 1e-9, 1.6, 12.0])
def test_the_inflection_is_where_the_curve_is_steepest(zeta: float) -> None:
    """g'' = 0 at the first steepest fall: the impulse response h = -g'/omega^2 has its first
    maximum there.
    """
    omega = 0.3
    inflection = float(oscillator_quantities(np.array([omega]), np.array([zeta]))["inflection"][0])
    time = np.linspace(0.0, 3 * inflection, 30_001)
    steepest = time[int(np.gradient(oscillator_decay(time, omega, zeta), time).argmin())]
    assert inflection == pytest.approx(steepest, rel=1e-3)


def test_readings_are_the_theorys() -> None:
    centred = oscillator(0.01, 0.9, refresh_interval=8)
    backward = oscillator(0.01, 0.9, refresh_interval=8, reading="backward")
    assert centred.mass == pytest.approx(0.95)
    assert centred.damping == pytest.approx(0.1 - 0.01 * 3.5)
    assert backward.mass == pytest.approx(0.9)
    assert backward.damping == pytest.approx(0.1 - 0.08)
    fixed = oscillator(0.01, 0.9, refresh_interval=4, lag="fixed")
    assert fixed.mass == pytest.approx(0.95 + 0.01 * 16 / 2)
    assert centred.restoring == backward.restoring == 0.01


@pytest.mark.parametrize(("momentum", "onset"), [(0.9, 0.00263340), (0.5, 0.08578644)])
def test_the_backward_reading_oscillates_where_the_map_does(momentum: float, onset: float) -> None:
    """On policy at (1 - sqrt(mu))^2, whatever the kind of lag is called that has none."""
    assert onset == pytest.approx((1 - momentum**0.5) ** 2, abs=1e-8)
    current: list[dict[str, Any]] = [
        {"lag": "none"},
        {"lag": "none", "refresh_interval": 8},
        {"lag": "refresh"},
        {"lag": "fixed", "refresh_interval": 8, "stale_share": 0.0},
    ]
    for setting in current:
        for force, regime in ((0.999 * onset, "overdamped"), (1.001 * onset, "underdamped")):
            assert oscillator(force, momentum, reading="backward", **setting).regime == regime
    part = oscillator(
        0.01, momentum, lag="fixed", refresh_interval=8, stale_share=0.25, reading="backward"
    )
    assert part.damping == pytest.approx((1 - momentum) - 0.01 * (0.75 * 1 + 0.25 * 8))


def test_backward_damping_changes_sign_at_the_rule() -> None:
    rule = float(rule_threshold(0.9, 8))
    below, above = (
        oscillator(share * rule, 0.9, refresh_interval=8, reading="backward")
        for share in (0.999, 1.001)
    )
    assert below.regime != "unstable"
    assert above.regime == "unstable"
