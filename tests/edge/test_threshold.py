"""Thresholds against products of single updates, and the theory's own numbers."""

from __future__ import annotations

import numpy as np
import pytest
from tests.cases import each_case

from groupwise.arrays import Float
from groupwise.edge.force import ForceOfMotion
from groupwise.edge.mode import LAGS, check_lag, period_matrix, threshold, updates_of_period
from groupwise.errors import InvalidArgumentError
from groupwise_lab.theory.oscillator import recursion

MOMENTA = (0.0, 0.3, 0.5, 0.9, 0.95, 0.99)


def lags_of_one_period(kind: str, interval: int) -> list[int]:
    return {
        "none": [0],
        "fixed": [interval],
        "refresh": list(range(interval)),
        "async": list(range(interval, 2 * interval)),
    }[kind]


def product_of_updates(kind: str, force: float, momentum: float, interval: int) -> np.ndarray:
    """The map of one period as a product of single updates of (x, x before, ..., v): no closed
    form.
    """
    lags = lags_of_one_period(kind, interval)
    size = max(lags) + 2
    whole = np.eye(size + 1)
    for lag in lags:
        update = np.zeros((size + 1, size + 1))
        update[0, 0], update[0, -1], update[-1, -1] = 1.0, momentum, momentum
        update[0, lag] -= force
        update[-1, lag] -= force
        for row in range(1, size):
            update[row, row - 1] = 1.0
        whole = update @ whole
    return whole


def radius(kind: str, force: float, momentum: float, interval: int) -> float:
    return float(
        np.abs(np.linalg.eigvals(product_of_updates(kind, force, momentum, interval))).max()
    )


def threshold_by_halving(kind: str, momentum: float, interval: int, guess: float) -> float:
    """The force at which the product's spectral radius passes 1, from a bracket of one per cent
    around the guess.
    """
    low, high = 0.99 * guess, 1.01 * guess
    assert radius(kind, low, momentum, interval) < 1 < radius(kind, high, momentum, interval)
    for _ in range(45):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if radius(kind, middle, momentum, interval) < 1 else (low, middle)
        )
    return (low + high) / 2


@pytest.mark.thinned(24)
@pytest.mark.parametrize("kind", LAGS)
@pytest.mark.parametrize("momentum", MOMENTA)
@pytest.mark.parametrize("interval", [1, 2, 3, 8, 33])
def test_thresholds_are_those_of_the_products(kind: str, momentum: float, interval: int) -> None:
    closed = float(threshold(kind, momentum, interval))
    assert threshold_by_halving(kind, momentum, interval, closed) == pytest.approx(closed, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("momentum", MOMENTA)
@pytest.mark.parametrize(
    ("kind", "interval"),
    [("fixed", 64), ("fixed", 128), ("fixed", 256), ("refresh", 64), ("async", 64)],
)
def test_thresholds_of_long_intervals(kind: str, interval: int, momentum: float) -> None:
    closed = float(threshold(kind, momentum, interval))
    assert threshold_by_halving(kind, momentum, interval, closed) == pytest.approx(closed, rel=1e-9)


@pytest.mark.parametrize("kind", ["refresh", "async"])
def test_thresholds_of_every_interval_to_256(kind: str) -> None:
    """R single updates of (x, v, the stale position) one after the other: a billionth below the
    threshold settles, above it grows.
    """
    momentum, intervals = np.array(MOMENTA), range(1, 257)
    limits = threshold(kind, momentum, np.array(intervals)[:, None])
    for interval, limit in zip(intervals, limits, strict=True):
        for sign in (-1, 1):
            update = np.zeros((len(momentum), 3, 3))
            update[:, :2, 0] = [1.0, 0.0]
            update[:, :2, 1] = momentum[:, None]
            update[:, :2, 2] = -(limit * (1 + sign * 1e-9))[:, None]
            update[:, 2, 2] = 1.0
            whole = np.linalg.matrix_power(update, interval)
            if kind == "refresh":
                period = whole[:, :2, :2] + np.array([1.0, 0.0]) * whole[:, :2, 2:]
            else:
                period = np.concatenate(
                    [whole[:, :2], np.broadcast_to([1.0, 0.0, 0.0], (len(momentum), 1, 3))], axis=1
                )
            excess = np.abs(np.linalg.eigvals(period)).max(1) - 1
            assert (sign * excess > 0).all(), (interval, sign, excess)


@each_case("kind", LAGS)
@each_case("momentum", [0.0, 0.3, 0.9])
@each_case("interval", [1, 2, 5])
def test_the_slow_mode_turns_where_the_products_do(
    kind: str, momentum: float, interval: int
) -> None:
    """Just below the onset the leading eigenvalue of the product is real and positive, just
    above it is not.
    """
    onset = ForceOfMotion(kind, momentum, interval).onset
    for share, turns in ((0.5, False), (1 - 1e-4, False), (1 + 1e-4, True)):
        values = np.linalg.eigvals(product_of_updates(kind, share * onset, momentum, interval))
        leading = values[np.argmax(np.abs(values))]
        # Two eigenvalues that met at d differ afterwards by the root of a ten-thousandth.
        assert bool(abs(leading.imag) > 1e-4 * abs(leading) or leading.real < 0) is turns


@each_case("kind", LAGS)
def test_the_force_of_an_eigenvalue_gives_the_product_that_eigenvalue(kind: str) -> None:
    for momentum, interval, eigenvalue in ((0.0, 3, 0.7), (0.8, 1, 0.95), (0.8, 4, 0.97)):
        force = float(ForceOfMotion(kind, momentum, interval)._force(eigenvalue))
        assert (
            np.abs(
                np.linalg.eigvals(product_of_updates(kind, force, momentum, interval)) - eigenvalue
            ).min()
            < 1e-9
        )


@each_case("kind", LAGS)
def test_no_smaller_force_is_unstable(kind: str) -> None:
    """Below the threshold the products stay inside the unit circle all the way down."""
    for momentum in (0.0, 0.9):
        for interval in (1, 4):
            limit = float(threshold(kind, momentum, interval))
            for share in (0.999, 0.9, 0.5, 0.1, 0.01):
                assert radius(kind, share * limit, momentum, interval) < 1


@each_case("kind", LAGS)
def test_closed_maps_have_the_eigenvalues_of_the_products(kind: str) -> None:
    for momentum, interval in ((0.0, 2), (0.6, 3), (0.95, 7)):
        closed = np.linalg.eigvals(period_matrix(kind, 0.013, momentum, interval))
        product = np.linalg.eigvals(product_of_updates(kind, 0.013, momentum, interval))
        for value in closed[np.abs(closed) > 1e-6]:
            assert np.abs(product - value).min() < 1e-9


def test_the_numbers_of_the_note() -> None:
    """K_ref = 8, momentum .9: refresh .0339, fixed .01394, async .01023, on-policy 3.80; and the
    rule is unsafe for async.
    """
    limits = {lag: float(threshold(lag, 0.9, 8)) for lag in LAGS}
    assert {name: round(value, 5) for name, value in limits.items()} == {
        "none": 3.8,
        "fixed": 0.01394,
        "refresh": 0.03386,
        "async": 0.01023,
    }
    over_rule = {
        momentum: _async_over_rule(momentum, np.arange(1.0, 257.0)).min()
        for momentum in (0.5, 0.9, 0.95, 0.999)
    }
    assert over_rule[0.5] == pytest.approx(0.94, abs=0.005)
    assert over_rule[0.95] == pytest.approx(0.76, abs=0.005)
    assert over_rule[0.999] == pytest.approx(0.68, abs=0.005)
    assert _async_over_rule(0.9, np.arange(2.0, 17.0)).min() == pytest.approx(0.80, abs=0.005)
    assert float(threshold("refresh", 0.9, 1)) / 0.1 == pytest.approx(38)


def _async_over_rule(momentum: float, interval: Float) -> Float:
    limit: Float = np.asarray(threshold("async", momentum, interval))
    return limit * interval / (1 - momentum)


def test_a_fixed_lag_of_one_has_the_known_threshold() -> None:
    for momentum in MOMENTA:
        assert float(threshold("fixed", momentum, 1)) == pytest.approx(1 - momentum, rel=1e-12)


@each_case("kind", LAGS)
def test_the_recursion_is_the_power_of_the_map(kind: str) -> None:
    interval, momentum, force = 3, 0.7, 0.02
    matrix = period_matrix(kind, force, momentum, interval)
    state = np.full(len(matrix), -1.0)
    state[1] = 0.0
    curve = recursion(force, momentum, 30, refresh_interval=interval, lag=kind)
    for step in range(1, 30 // updates_of_period(kind, interval) + 1):
        state = matrix @ state
        assert curve[step * updates_of_period(kind, interval)] == pytest.approx(
            1 + state[0], abs=1e-12
        )


def test_what_is_no_lag_and_no_momentum_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="none, fixed, refresh, async"):
        check_lag("late")
    with pytest.raises(InvalidArgumentError, match="below 1, got 1"):
        threshold("fixed", 1.0, 1)
    with pytest.raises(InvalidArgumentError, match=r"whole updates as refresh interval, got 2\.5"):
        threshold("refresh", 0.5, [2.0, 2.5])
