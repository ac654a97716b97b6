"""Numbers computed by hand: matrices of small blocks, the motion of one number, a window above
the edge, tests of swings.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.cases import each_case
from tests.golden.sentences import says

from groupwise.edge.force import ForceOfMotion, force_of_fit, lasting_swing
from groupwise.edge.mode import period_matrix, stability, threshold, updates_of_period
from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.intervals import Interval


def test_matrices_of_two_updates_by_hand() -> None:
    """Momentum .5, force .1: two updates on one stale x move v to .25 v - .15 x and x to x + .75
    v - .25 x.
    """
    assert np.allclose(
        period_matrix("none", 0.1, 0.5, 2),
        [[0.9, 0.5, 0.0], [-0.1, 0.5, 0.0], [1.0, 0.0, 0.0]],
        rtol=0,
        atol=1e-15,
    )
    assert np.allclose(
        period_matrix("refresh", 0.1, 0.5, 2),
        [[0.75, 0.75, 0.0], [-0.15, 0.25, 0.0], [1.0, 0.0, 0.0]],
        rtol=0,
        atol=1e-15,
    )
    assert np.allclose(
        period_matrix("async", 0.1, 0.5, 2),
        [[1.0, 0.75, -0.25], [0.0, 0.25, -0.15], [1.0, 0.0, 0.0]],
        rtol=0,
        atol=1e-15,
    )
    fixed: list[list[float]] = [[1, 0.5, 0, -0.1], [0, 0.5, 0, -0.1], [1, 0, 0, 0], [0, 0, 1, 0]]
    assert period_matrix("fixed", 0.1, 0.5, 2).tolist() == fixed


@each_case("kind", ["refresh", "async"])
def test_a_block_is_what_single_updates_do(kind: str) -> None:
    """Five updates of numbers, one after the other, from any state."""
    force, momentum, interval = 0.13, 0.6, 5
    x, v, before = 0.7, -0.2, 0.4
    stale = x if kind == "refresh" else before
    here, speed = x, v
    for _ in range(interval):
        speed = momentum * speed - force * stale
        here += speed
    state = [x, v, before]
    state_after = period_matrix(kind, force, momentum, interval) @ state
    assert state_after[:2].tolist() == pytest.approx([here, speed], rel=1e-13)
    assert state_after[2] == x


def test_a_stack_of_matrices_is_the_matrices() -> None:
    for lag in ("refresh", "async", "fixed", "none"):
        stack = period_matrix(lag, [[0.1, 0.2]], [[0.3], [0.9]], 3)
        for row, momentum in enumerate((0.3, 0.9)):
            for column, force in enumerate((0.1, 0.2)):
                assert np.allclose(
                    stack[row, column], period_matrix(lag, force, momentum, 3), rtol=1e-15, atol=0
                )


def test_edges_by_hand() -> None:
    assert float(threshold("none", 0.9, 5)) == pytest.approx(3.8, rel=1e-15)
    assert float(threshold("refresh", 0.0, 4)) == pytest.approx(0.5, rel=1e-15)  # x' = (1 - 4a) x
    assert float(threshold("fixed", 0.0, 2)) == pytest.approx(
        (math.sqrt(5) - 1) / 2, rel=1e-14
    )  # 2 sin(pi/10)
    assert float(threshold("async", 0.0, 4)) == pytest.approx(
        0.25, rel=1e-14
    )  # lambda^2 - lambda + 4a, product 1
    assert threshold("refresh", [0.0, 0.9], [[1], [4]]).shape == (2, 2)


def oscillation_onset(lag: str, momentum: float, interval: int = 1) -> float:
    """The force from which the slowest mode oscillates."""
    return ForceOfMotion(lag, momentum, interval).onset


def test_the_updates_of_a_period() -> None:
    assert [updates_of_period(lag, 4) for lag in ("none", "fixed", "refresh", "async")] == [
        1,
        1,
        4,
        4,
    ]


def test_onsets_by_hand() -> None:
    """Where two eigenvalues meet; without momentum one lag oscillates from a quarter on, and one
    number flips once it passes zero.
    """
    assert oscillation_onset("none", 0.25) == pytest.approx(0.25, rel=1e-11)  # (1 - 1/2)^2
    assert oscillation_onset("fixed", 0.0, 1) == pytest.approx(0.25, rel=1e-11)
    assert oscillation_onset("fixed", 0.0, 2) == pytest.approx(4 / 27, rel=1e-11)
    assert oscillation_onset("refresh", 0.0, 4) == pytest.approx(0.25, rel=1e-11)
    assert oscillation_onset("async", 0.0, 4) == pytest.approx(1 / 16, rel=1e-11)


def test_the_margin_of_one_number() -> None:
    """Refresh of four updates without momentum: x' = (1 - 4a) x."""
    slow = stability(0.05, 0.0, refresh_interval=4, learning_rate=0.1)
    assert slow.margin == pytest.approx(10.0)
    assert slow.max_learning_rate == pytest.approx(1.0)
    assert (slow.max_refresh_interval, slow.max_refresh_status) == (
        39.0,
        "exact",
    )  # 40 times .05 is 2
    assert slow.rule_threshold == 0.25
    flip = stability(0.4, 0.0, refresh_interval=4)
    assert flip.max_learning_rate is None
    assert flip.as_dict()["max_learning_rate"] is None
    edge = stability(0.5, 0.0, refresh_interval=4)
    assert (edge.stable, edge.margin) == (False, 1.0)
    says("edge/exact/1", edge.status)
    assert stability(0.5, 0.0, refresh_interval=4, learning_rate=0.1).status.endswith(
        "; the largest stable learning rate is 0.1."
    )
    with pytest.raises(InvalidArgumentError, match="positive learning rate, got 0"):
        stability(0.5, 0.0, learning_rate=0.0)


def test_forces_back_from_a_decay_by_hand() -> None:
    """One number: refresh of four updates at a time constant of 20 is 1 - e^-.2 over 4, or,
    flipping its sign, 1 + e^-.2 over 4.
    """
    mode = ForceOfMotion("refresh", 0.0, 4)
    assert mode.slow(20.0) == pytest.approx((1 - math.exp(-0.2)) / 4, rel=1e-12)
    assert mode.envelope(20.0) == pytest.approx((1 + math.exp(-0.2)) / 4, rel=1e-9)
    assert (mode.slow(math.inf), mode.slow(0.0), mode.flips) == (0.0, math.inf, True)
    swing = ForceOfMotion("none", 0.81, 1)
    force = 0.2
    turn = math.acos((1.81 - force) / 2 / 0.9)
    assert swing.frequency(math.hypot(math.log(0.9), turn)) == pytest.approx(force, rel=1e-9)
    assert swing.frequency(1e-3) == pytest.approx(
        0.905e-6, rel=1e-12
    )  # (1 + mu)/2 times its square
    assert swing.frequency(100.0) == math.inf
    assert not swing.flips
    assert swing.envelopes(Interval(9.0, 8.0, 10.0)) == []


def test_a_lasting_swing_is_fishers_share() -> None:
    """The periodogram of the last 80 of 200 rows, summed here term by term."""
    value = np.random.default_rng(4).standard_normal(200) + 0.8 * np.cos(0.7 * np.arange(200))
    late = value[-80:]
    place = np.arange(80) - 39.5
    late = late - late.mean() - place * (place @ late) / (place @ place)
    power = [
        abs(sum(late[t] * np.exp(-2j * np.pi * k * t / 80) for t in range(80))) ** 2
        / (1 + (k == 40))
        for k in range(1, 41)
    ]
    top = int(np.argmax(power))
    share = power[top] / sum(power)
    swing = lasting_swing(value)
    assert swing.rows == 80
    assert swing.period == pytest.approx(80 / (top + 1))
    assert swing.p_value == pytest.approx(40 * (1 - share) ** 39, rel=1e-9)
    assert swing.amplitude == pytest.approx(2 * math.sqrt(power[top]) / 80, rel=1e-9)
    assert swing.lasts is (swing.p_value < 1e-3)


def test_a_margin_from_a_thousand_on_is_said_to_be_over_it() -> None:
    """On-policy without momentum the threshold is 2."""
    assert "a margin of 999." in stability(2 / 999.4, 0.0, lag="none").status
    assert "a margin of over 1,000 times." in stability(2 / 1000.5, 0.0, lag="none").status


def test_how_many_times_the_published_rule_is_too_strict() -> None:
    """A refresh every 8 updates at momentum .9: .0339 where the rule has .1/8."""
    mode = stability(0.01, 0.9, refresh_interval=8)
    assert mode.threshold / mode.rule_threshold == pytest.approx(2.7, abs=0.05)
    assert mode.notes == ()


def test_an_odd_number_of_rows_has_no_highest_frequency_of_one_degree() -> None:
    """The last 79 of 197 rows: a cosine at the highest frequency, 39 turns, whose power counts
    in full.
    """
    place = np.arange(197.0)
    late, n = np.arange(118, 197), 79
    value = np.cos(2 * np.pi * 39 * (place - 118) / n) + 0.5 * np.cos(
        2 * np.pi * 7 * (place - 118) / n
    )
    swing = lasting_swing(value)
    left = value[late] - np.polyval(np.polyfit(np.arange(79.0), value[late], 1), np.arange(79.0))
    power = [abs(sum(left * np.exp(-2j * np.pi * k * np.arange(n) / n))) ** 2 for k in range(1, 40)]
    assert swing.rows == n
    assert swing.period == pytest.approx(n / 39)
    assert swing.amplitude == pytest.approx(2 * math.sqrt(power[38]) / n, rel=1e-9)


def test_a_small_swing_high_above_zero_is_one() -> None:
    """What counts as no swing goes with the number of rows, not with a power of it."""
    value = 30 + np.cos(2 * np.pi * np.arange(200) / 8)
    swing = lasting_swing(value)
    assert (swing.period, swing.rows, swing.lasts) == (8.0, 80, True)
    assert swing.amplitude == pytest.approx(1.0, rel=1e-3)


def fitted(law: str, **parameters: float) -> Any:
    """A fit of which the force asks for its law and its parameters alone."""
    exact = {name: Interval(value, value, value) for name, value in parameters.items()}
    return SimpleNamespace(law=law, parameters=exact)


def test_flips_without_momentum_have_two_forces() -> None:
    """Blocks of 4 without momentum keep 1 - 4a of a gap: in 8 updates it falls by exp(-1) with a
    = (1 - e)/4 or, with flips, (1 + e)/4.
    """
    kept = math.exp(-4 / 8)
    for frequency, force in ((0.1, (1 - kept) / 4), (0.7, (1 + kept) / 4)):
        swing = fitted("oscillator", damping_ratio=0.5, natural_frequency=frequency, tau1=8.0)
        fitted_force = force_of_fit(swing, 0.0, refresh_interval=4)
        assert fitted_force.parameter == "tau1"
        assert fitted_force.force.value == pytest.approx(force, rel=1e-9)
        assert [fitted_force.force.low, fitted_force.force.high] == pytest.approx(
            [(1 - kept) / 4, (1 + kept) / 4], rel=1e-9
        )


@pytest.mark.parametrize("time", [0.0, -0.5, math.inf])
def test_a_time_constant_that_is_none_tells_no_force(time: float) -> None:
    with pytest.raises(InsufficientDataError, match="expected a bounded time_constant"):
        force_of_fit(fitted("exponential", time_constant=time), 0.9, lag="none")
