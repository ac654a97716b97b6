"""From hyper-parameters to curves and back: the oscillator against the exact recursion, forces
recovered from fits.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tests.cases import each_case

from groupwise.edge.force import ForceOfMotion, force_of_fit, lasting_swing
from groupwise.edge.mode import period_matrix, threshold, updates_of_period
from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.forecasting.fit import fit
from groupwise_lab.theory.oscillator import oscillator, recursion, size_exponent


def reading_error(
    force: float,
    momentum: float,
    *,
    refresh_interval: int = 1,
    lag: str = "refresh",
    reading: Any = "centred",
) -> float:
    """The largest distance between a reading's closed-form curve and the exact recursion, as a
    share of the way to the plateau.
    """
    mode = oscillator(force, momentum, refresh_interval=refresh_interval, lag=lag, reading=reading)
    radius = float(
        np.abs(np.linalg.eigvals(period_matrix(lag, force, momentum, refresh_interval))).max()
    )
    if mode.damping <= 0:
        return math.inf
    updates = min(
        200_000,
        math.ceil(-12 * updates_of_period(lag, refresh_interval) / math.log(radius))
        + 10 * refresh_interval,
    )
    exact = recursion(force, momentum, updates, refresh_interval=refresh_interval, lag=lag)
    return float(np.abs(mode.trajectory(np.arange(updates + 1)) - exact).max())


@each_case(("lag", "interval"), [("none", 1), ("fixed", 4), ("refresh", 8), ("async", 4)])
@each_case(("force", "momentum"), [(0.0005, 0.9), (0.002, 0.9), (0.002, 0.5), (0.002, 0.0)])
def test_the_centred_curve_is_the_nearer_one(
    force: float, momentum: float, lag: str, interval: int
) -> None:
    exact = recursion(force, momentum, 3000, refresh_interval=interval, lag=lag)
    times = np.arange(3001.0)
    centred = oscillator(force, momentum, lag=lag, refresh_interval=interval).trajectory(times)
    backward = oscillator(
        force, momentum, lag=lag, refresh_interval=interval, reading="backward"
    ).trajectory(times)
    errors = [float(np.abs(curve - exact).max()) for curve in (centred, backward)]
    assert errors[0] < errors[1]
    assert errors[0] < 0.005


ERRORS = {
    # (lag, interval, momentum): the largest error of centred and backward at .01, .1 and .3 of the
    # threshold, shares of the way.
    ("none", 1, 0.0): ((0.0037, 0.0037), (0.0365, 0.0417), (0.1078, 0.1769)),
    ("none", 1, 0.9): ((0.0049, 0.1697), (0.0843, math.inf), (0.4749, math.inf)),
    ("fixed", 4, 0.0): ((0.0006, 0.0007), (0.0047, 0.0101), (0.0398, 0.1023)),
    ("fixed", 4, 0.9): ((0.0000, 0.0005), (0.0003, 0.0068), (0.0026, 0.0413)),
    ("refresh", 8, 0.0): ((0.0005, 0.0037), (0.0047, 0.0440), (0.0369, 0.2334)),
    ("refresh", 8, 0.9): ((0.0001, 0.0053), (0.0055, 0.0861), (0.0464, 0.4624)),
    ("async", 4, 0.0): ((0.0005, 0.0019), (0.0098, 0.0218), (0.1029, 0.1101)),
    ("async", 4, 0.9): ((0.0001, 0.0015), (0.0041, 0.0188), (0.0320, 0.0762)),
}


@each_case(("setting", "wanted"), ERRORS.items())
def test_the_error_table_of_both_readings(
    setting: tuple[str, int, float], wanted: tuple[tuple[float, float], ...]
) -> None:
    """The table of lab/docs/theory/dynamics.md; run with -s to print it."""
    lag, interval, momentum = setting
    for share, pair in zip((0.01, 0.1, 0.3), wanted, strict=True):
        force = share * float(threshold(lag, momentum, interval))
        errors = [
            reading_error(force, momentum, refresh_interval=interval, lag=lag, reading="centred"),
            reading_error(force, momentum, refresh_interval=interval, lag=lag, reading="backward"),
        ]
        print(
            f"{lag:8} {interval} {momentum:.1f} {share:.2f}  centred {errors[0]:.4f}  backward "
            f"{errors[1]:.4f}"
        )
        assert errors == pytest.approx(pair, abs=6e-5)
        assert errors[0] <= errors[1]


def test_near_the_threshold_neither_reading_holds() -> None:
    force = 0.6 * float(threshold("async", 0.0, 4))
    centred = reading_error(force, 0.0, refresh_interval=4, lag="async")
    assert (
        centred
        > reading_error(force, 0.0, refresh_interval=4, lag="async", reading="backward")
        > 0.4
    )
    assert reading_error(0.02, 0.9, refresh_interval=8, reading="backward") == math.inf


@pytest.mark.parametrize("momentum", [0.5, 0.9, 0.99])
def test_oscillation_needs_a_short_time_constant(momentum: float) -> None:
    """At the onset gamma/k, the sum of both time constants, is 4/(1 - mu): the centred reading
    within a twentieth at .9.
    """
    critical = ForceOfMotion("none", momentum, 1).onset
    both = -2 / math.log(math.sqrt(momentum))  # a double eigenvalue, the root of the momentum
    assert both == pytest.approx(4 / (1 - momentum), rel=(1 - momentum) / 1.5)
    mode = oscillator(critical, momentum, lag="none")
    assert mode.quantities["tau1"] + mode.quantities["tau2"] == pytest.approx(both, rel=0.06)


@each_case(
    ("lag", "interval", "share"),
    [("none", 1, 0.01), ("refresh", 8, 0.6), ("refresh", 8, 0.9), ("async", 4, 0.8)],
)
def test_strong_oscillations_tell_their_force(lag: str, interval: int, share: float) -> None:
    """Near the threshold the centred mass is far off; the exact map is not.

    Within 5 %, where the mass would miss by 15 to 21.
    """
    force = share * float(threshold(lag, 0.9, interval))
    curve = recursion(force, 0.9, 400, refresh_interval=interval, lag=lag, start=0.2, plateau=0.8)
    noisy = curve + 0.004 * np.random.default_rng(3).standard_normal(401)
    fitted_force = force_of_fit(
        fit(np.arange(401.0), noisy, law="oscillator"), 0.9, refresh_interval=interval, lag=lag
    )
    assert fitted_force.parameter == "natural_frequency"
    assert fitted_force.force.value == pytest.approx(force, rel=0.05)


def test_a_curve_too_fast_for_its_momentum_is_called_so() -> None:
    curve = (
        0.8
        - 0.6 * np.exp(-np.arange(300.0) / 6)
        + 0.002 * np.random.default_rng(1).standard_normal(300)
    )
    force = force_of_fit(fit(np.arange(300.0), curve, law="exponential"), 0.9, lag="none")
    assert force.force.value == pytest.approx(ForceOfMotion("none", 0.9, 1).onset)
    assert force.too_fast
    assert force.force.high == math.inf
    assert force.as_dict()["force"]["high"] is None


@each_case(
    ("lag", "interval", "momentum", "share"),
    [
        ("refresh", 8, 0.0, 0.45),
        ("refresh", 8, 0.0, 0.75),
        ("none", 1, 0.0, 0.75),
        ("fixed", 4, 0.0, 0.30),
        ("refresh", 16, 0.5, 0.42),
        ("none", 1, 0.9, 0.8),
        ("async", 4, 0.9, 0.5),
        ("refresh", 8, 0.9, 0.5),
    ],
)
def test_the_interval_covers_both_readings_of_an_oscillation(
    lag: str, interval: int, momentum: float, share: float
) -> None:
    """Exact recursion and little noise: the force lies in the interval, within 3 %, where one
    reading alone missed it by up to 2.35.
    """
    force = share * float(threshold(lag, momentum, interval))
    curve = recursion(
        force, momentum, 400, refresh_interval=interval, lag=lag, start=0.2, plateau=0.8
    )
    noisy = curve + 0.004 * np.random.default_rng(3).standard_normal(401)
    fitted_force = force_of_fit(
        fit(np.arange(401.0), noisy, law="oscillator"), momentum, refresh_interval=interval, lag=lag
    ).force
    assert fitted_force.low <= 1.03 * force
    assert fitted_force.high >= 0.97 * force
    assert fitted_force.low < fitted_force.high


@pytest.mark.thinned(8)
@pytest.mark.parametrize(
    ("lag", "interval"),
    [
        ("fixed", 1),
        ("fixed", 4),
        ("fixed", 60),
        ("refresh", 2),
        ("refresh", 8),
        ("async", 1),
        ("async", 32),
    ],
)
@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9, 0.99])
def test_readings_of_an_oscillation_are_those_of_the_map(
    lag: str, interval: int, momentum: float
) -> None:
    """Envelope and frequency of the leading eigenvalue, computed from the matrix, lead back to
    the force.
    """
    mode = ForceOfMotion(lag, momentum, interval)
    for part in (0.1, 0.5, 0.9):
        force = mode.onset + part * (mode.limit - mode.onset)
        values = np.linalg.eigvals(period_matrix(lag, force, momentum, interval))
        leading = values[np.argmax(np.abs(values))]
        assert mode.envelope(-mode.period / math.log(abs(leading))) == pytest.approx(
            force, rel=1e-4
        )
        if leading.imag:
            assert mode.frequency(abs(np.log(leading)) / mode.period) == pytest.approx(
                force, rel=1e-4
            )


def test_on_policy_every_oscillation_fades_alike() -> None:
    """The root of the momentum, whatever the force: an envelope that is far slower is another's,
    and nothing bounds the force above.
    """
    times = np.arange(400.0)
    noise = 0.004 * np.random.default_rng(3).standard_normal(400)
    own = recursion(0.02, 0.9, 399, lag="none", start=0.2, plateau=0.8) + noise
    force = force_of_fit(fit(times, own, law="oscillator"), 0.9, lag="none").force
    assert force.high < 0.03
    other = 0.8 - 0.6 * np.exp(-times / 100) * np.cos(0.15 * times) + noise
    assert force_of_fit(fit(times, other, law="oscillator"), 0.9, lag="none").force.high == math.inf


def test_a_limit_cycle_reads_no_small_force_alone() -> None:
    """A swing that does not fade is the threshold by its envelope, however slow it is."""
    times = np.arange(300.0)
    wave = (
        0.7
        - 0.4 * np.exp(-times / 400) * np.cos(0.1 * times)
        + 0.01 * np.random.default_rng(3).standard_normal(300)
    )
    force = force_of_fit(fit(times, wave, law="oscillator"), 0.9, refresh_interval=8).force
    assert force.value < 0.5 * float(threshold("refresh", 0.9, 8))
    assert force.high > 0.9 * float(threshold("refresh", 0.9, 8))


def test_swings_that_last_are_told_from_noise() -> None:
    """One in a thousand series of independent rows is an alarm: of 400 series at most four, but
    for one seed in six hundred.
    """
    rng = np.random.default_rng(5)
    assert sum(lasting_swing(rng.standard_normal(300)).lasts for _ in range(400)) <= 4
    rows = np.arange(300)
    for period in (2, 7, 40):
        swing = lasting_swing(
            0.3 * rng.standard_normal(300) + 0.3 * np.cos(2 * np.pi * rows / period)
        )
        assert swing.lasts
        assert swing.period == pytest.approx(period, rel=0.12)
        assert swing.amplitude == pytest.approx(0.3, rel=0.4) or period == 2
    assert lasting_swing(np.ones(100)).lasts is False
    assert lasting_swing(np.arange(10.0)).rows == 0


def test_a_high_r_squared_shows_no_inertia() -> None:
    """Policy gradient of two arms without momentum, started at p = .05: the oscillator explains
    it all the same, with a second time; the fit says that it is not to be identified.
    """
    theta, value = math.log(0.05 / 0.95), []
    for _ in range(400):
        p = 1 / (1 + math.exp(-theta))
        value.append(p)
        theta += 0.2 * p * (1 - p)
    noisy = np.array(value) + 0.005 * np.random.default_rng(1).standard_normal(400)
    fitted = fit(np.arange(400.0), noisy, law="oscillator")
    assert fitted.r_squared > 0.95
    assert fitted.status == "not_identifiable"
    assert (
        fitted.parameters["tau2"].value > 10
    )  # without momentum there is no second time constant beyond an update


def test_under_a_schedule_time_is_the_integral_of_the_learning_rate() -> None:
    """Slow force, momentum .5, the rate falling to a tenth: the curve over the summed rate is
    the one of a constant rate.
    """
    rate = np.linspace(1.0, 0.1, 2000)
    position, velocity, curve = -1.0, 0.0, []
    for eta in rate:
        velocity = 0.5 * velocity - 0.002 * eta * position
        position += velocity
        curve.append(1 + position)
    steady = recursion(0.002, 0.5, 1200, lag="none")
    assert np.abs(np.interp(np.cumsum(rate), np.arange(1201.0), steady) - curve).max() < 0.003


def test_closed_forms_of_an_oscillation() -> None:
    """Against ODE quantities read off a fine curve of it."""
    mode = oscillator(0.02, 0.9, lag="none")
    times = np.linspace(0, 400, 400_001)
    curve = mode.trajectory(times)
    assert mode.regime == "underdamped"
    quantities = mode.quantities
    assert curve.max() - 1 == pytest.approx(quantities["overshoot"], rel=1e-6)
    assert times[np.argmax(np.gradient(curve, times))] + 0.5 == pytest.approx(
        quantities["inflection"], abs=0.01
    )
    peaks = times[1:-1][(curve[1:-1] > curve[:-2]) & (curve[1:-1] > curve[2:])]
    assert peaks[1] - peaks[0] == pytest.approx(quantities["period"], rel=1e-4)


def test_overdamped_time_constants() -> None:
    mode = oscillator(0.001, 0.9, lag="none")
    slow, fast = mode.quantities["tau1"], mode.quantities["tau2"]
    assert slow + fast == pytest.approx(mode.damping / mode.restoring)
    assert slow * fast == pytest.approx(mode.mass / mode.restoring)
    assert mode.quantities["inflection"] == pytest.approx(
        math.log(slow / fast) / (1 / fast - 1 / slow)
    )


@each_case(
    ("force", "momentum", "lag", "interval"),
    [
        (0.004, 0.0, "none", 1),
        (0.0008, 0.9, "none", 1),
        (0.002, 0.5, "refresh", 4),
        (0.002, 0.5, "async", 4),
        (0.02, 0.9, "none", 1),
        (0.015, 0.9, "refresh", 4),
    ],
)
def test_forces_are_recovered_from_fitted_curves(
    force: float, momentum: float, lag: str, interval: int
) -> None:
    """Exact curve, little noise: within 5 %, and inside an interval widened by as much."""
    curve = recursion(
        force, momentum, 1500, refresh_interval=interval, lag=lag, start=0.2, plateau=0.8
    )
    noisy = curve + 0.004 * np.random.default_rng(3).standard_normal(1501)
    fitted_force = force_of_fit(
        fit(np.arange(1501.0), noisy, law="oscillator"),
        momentum,
        refresh_interval=interval,
        lag=lag,
    )
    assert fitted_force.force.value == pytest.approx(force, rel=0.05)
    assert fitted_force.force.low < 1.05 * force
    assert fitted_force.force.high > 0.95 * force


def test_other_laws_tell_no_force() -> None:
    curve = recursion(0.004, 0.0, 500, lag="none") + 0.01 * np.random.default_rng(
        1
    ).standard_normal(501)
    with pytest.raises(
        InsufficientDataError, match="an exponential or oscillator law, got logistic"
    ):
        force_of_fit(fit(np.arange(501.0), curve, law="logistic"), 0.0)


def test_size_exponent_from_several_runs() -> None:
    rng = np.random.default_rng(2)
    size = np.array([0.5, 1, 2, 4, 8, 16]) * 1e9
    interval = size_exponent(size, 30 * (size / 1e9) ** 0.3 * np.exp(0.02 * rng.standard_normal(6)))
    assert interval.covers(0.3)
    assert interval.width < 0.2
    with pytest.raises(InsufficientDataError, match="at least three runs"):
        size_exponent([1e9, 2e9], [1.0, 2.0])
    with pytest.raises(InvalidArgumentError, match="positive"):
        size_exponent([1e9, 2e9, -1], [1.0, 2.0, 3.0])


def test_bad_forces_are_refused() -> None:
    for force, momentum in ((0.0, 0.5), (math.inf, 0.5), (0.1, 1.0)):
        with pytest.raises(InvalidArgumentError, match="positive force"):
            oscillator(force, momentum)
    with pytest.raises(InvalidArgumentError, match="reading centred or backward"):
        oscillator(0.1, 0.5, reading="forward")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="interval of at least 1"):
        recursion(0.1, 0.5, 10, refresh_interval=0)
    with pytest.raises(InvalidArgumentError, match="momentum of at least 0"):
        force_of_fit(fit(np.arange(50.0), 1 - np.exp(-np.arange(50.0) / 9), law="exponential"), 1.0)
    with pytest.raises(InvalidArgumentError, match="use recursion"):
        oscillator(0.5, 0.9, refresh_interval=8).trajectory([1.0])
