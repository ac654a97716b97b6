"""What is said of a mode against simulation of it, and what is refused."""

from __future__ import annotations

import json
import math
import time
from typing import Any

import numpy as np
import pytest
from tests.cases import each_case

from groupwise.edge.mode import DECIDING, rate_limits, stability
from groupwise.edge.spectrum import oscillation_onset
from groupwise.edge.threshold import lag_by_name, period_matrix, rule_threshold, threshold
from groupwise.errors import InvalidArgumentError
from groupwise_lab.theory.oscillator import recursion


@pytest.mark.thinned(12)
@pytest.mark.parametrize("lag", ["none", "fixed", "refresh", "async"])
@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("interval", [1, 4, 8])
def test_runs_below_the_threshold_settle_and_above_it_do_not(
    lag: str, momentum: float, interval: int
) -> None:
    limit = float(threshold(lag, momentum, interval))
    for share, settles in ((0.95, True), (1.05, False)):
        found = stability(share * limit, momentum, refresh_interval=interval, lag=lag)
        far = np.abs(
            recursion(share * limit, momentum, 3000, refresh_interval=interval, lag=lag) - 1
        )
        assert found.stable is settles
        assert bool(far[-200:].max() < far[:200].max()) is settles
        assert found.margin == pytest.approx(1 / share)


def test_what_would_be_safe_is_safe_and_one_more_is_not() -> None:
    for lag in ("fixed", "refresh", "async"):
        found = stability(0.02, 0.9, refresh_interval=2, lag=lag, learning_rate=0.1)
        longest = int(found.max_refresh_interval)
        assert float(threshold(lag, 0.9, longest)) > 0.02 >= float(threshold(lag, 0.9, longest + 1))
        assert found.max_learning_rate == pytest.approx(0.1 * float(threshold(lag, 0.9, 2)) / 0.02)


def test_thresholds_fall_with_the_interval() -> None:
    """The search for the longest interval rests on it: every interval to 400, and neighbours and
    decades up to a million.
    """
    far = np.unique(
        np.concatenate([np.geomspace(400, 1e6, 400).astype(int) + step for step in (0, 1)])
    )
    for interval in (np.arange(1, 401), far):
        for lag in ("fixed", "refresh", "async"):
            for momentum in (0.0, 0.1, 0.3, 0.9, 0.99, 0.999, 0.9999, 0.99999):
                limit = threshold(lag, momentum, interval)
                assert (np.diff(limit) <= 1e-9 * limit[:-1]).all(), (lag, momentum)


def test_onset_is_where_the_slow_mode_begins_to_turn() -> None:
    assert oscillation_onset("none", 0.81) == pytest.approx(0.01)
    for lag in ("fixed", "refresh", "async"):
        onset = oscillation_onset(lag, 0.5, 4)
        below, above = (
            stability(share * onset, 0.5, refresh_interval=4, lag=lag) for share in (0.99, 1.01)
        )
        assert below.regime == "overdamped"
        assert above.regime == "underdamped"


def test_the_rule_is_called_unsafe_where_it_is() -> None:
    assert any(
        "unsafe" in note for note in stability(0.005, 0.9, refresh_interval=8, lag="async").notes
    )
    assert any(
        "stricter" in note
        for note in stability(0.005, 0.9, refresh_interval=8, lag="refresh").notes
    )
    assert float(rule_threshold(0.9, 8)) == pytest.approx(0.0125)


def test_time_constants_are_those_of_the_recursion() -> None:
    for lag in ("none", "refresh", "async"):
        found = stability(0.002, 0.5, refresh_interval=3, lag=lag)
        curve = recursion(0.002, 0.5, 3000, refresh_interval=3, lag=lag)
        left = 1 - curve[[900, 1800]]
        assert found.time_constants[0] == pytest.approx(900 / math.log(left[0] / left[1]), rel=1e-6)


def test_period_is_that_of_the_recursion() -> None:
    found = stability(0.02, 0.95, refresh_interval=4)
    curve = recursion(0.02, 0.95, 4000, refresh_interval=4) - 1
    crossings = np.flatnonzero(np.sign(curve[1:]) != np.sign(curve[:-1]))[:20]
    assert found.period == pytest.approx(2 * np.diff(crossings).mean(), rel=0.05)


def test_importance_ratio_takes_the_lag_away_or_bounds_it() -> None:
    setting = {"refresh_interval": 8, "importance_ratio": "exact"}
    exact = stability(0.1, 0.9, **setting, kl_term="loss")  # type: ignore[arg-type]
    assert exact.bounds == pytest.approx((3.8, 3.8), rel=1e-14)
    assert (exact.stable, exact.lag) == (True, "none")
    assert exact.status == "Stable: 0.1 of 3.8, a margin of 38; underdamped."
    clipped = stability(0.02, 0.9, refresh_interval=8, importance_ratio="clipped")
    assert clipped.bounds[0] == pytest.approx(0.033859, abs=1e-6)
    assert clipped.bounds[1] == 3.8


def test_what_the_settings_leave_open_cannot_be_told_and_names_the_setting() -> None:
    """Momentum .9, eight updates: .0339 with the whole lag, 3.8 with none."""
    assert stability(0.02, 0.9, refresh_interval=8, importance_ratio="clipped").stable is True
    assert stability(4.0, 0.9, refresh_interval=8, importance_ratio="clipped").stable is False
    cases: list[tuple[dict[str, Any], tuple[str, ...]]] = [
        ({"importance_ratio": "clipped", "kl_term": "loss"}, ("importance_ratio",)),
        ({"importance_ratio": "unknown", "kl_term": "loss"}, ("importance_ratio",)),
        ({"importance_ratio": "exact"}, ("kl_in",)),
        ({"importance_ratio": "clipped"}, ("importance_ratio", "kl_in")),
        ({"lag_is_bound": True}, ("lag",)),
    ]
    for arguments, names in cases:
        found = stability(0.1, 0.9, refresh_interval=8, learning_rate=0.1, **arguments)
        assert (found.stable, found.regime, found.open_settings) == (None, "open", names)
        assert found.status.startswith("Cannot tell: a force of 0.1 lies between 0.0339 and 3.8")
        assert all(DECIDING[name] in found.status for name in found.open_settings)
        assert found.as_dict()["deciding"] == list(names)
        assert [limit.allows for limit in rate_limits(found, 0.1)] == [None, False]
    known: tuple[dict[str, Any], ...] = ({}, {"importance_ratio": "clipped", "kl_term": "reward"})
    for arguments in known:
        stale = stability(0.1, 0.9, refresh_interval=8, **arguments)
        assert (stale.stable, stale.open_settings) == (False, ())


def test_the_place_of_the_kl_term_decides_what_a_ratio_can_do() -> None:
    """In the reward it keeps the whole force stale: .0339 and not 3.80."""
    for ratio in ("exact", "clipped"):
        found = stability(0.02, 0.9, refresh_interval=8, importance_ratio=ratio, kl_term="reward")
        assert found.bounds == pytest.approx((0.033859, 0.033859), abs=1e-6)
        assert found.tightness == 1
        assert any("whatever the ratio" in note for note in found.notes)
    loose = stability(0.02, 0.9, refresh_interval=8, importance_ratio="clipped", kl_term="loss")
    assert loose.tightness == pytest.approx(3.8 / 0.033859, rel=1e-4)
    assert any("small swings have the upper bound" in note for note in loose.notes)


def test_which_of_the_two_rules_binds() -> None:
    found = stability(0.01, 0.9, refresh_interval=8, learning_rate=0.1)
    assert {one.rule for one in rate_limits(found, 0.1) if one.binds} == {"published"}
    assert [one.learning_rate for one in rate_limits(found, 0.1)] == pytest.approx(
        [0.33859, 0.125], rel=1e-4
    )


def test_a_map_of_forty_thousand_settings_is_fast_enough_to_draw() -> None:
    """No time is asserted beyond a hang: one vectorised call gives all."""
    interval = np.arange(2, 202, 2)
    momentum = np.linspace(0, 0.99, 100)
    begun = time.process_time()
    for lag in ("none", "fixed", "refresh", "async"):
        assert threshold(lag, momentum[:, None], interval[None, :]).shape == (100, 100)
    assert time.process_time() - begun < 60


@each_case(
    ("force", "arguments", "message"),
    [
        (0.1, {"momentum": 1.0}, "momentum of at least 0 and below 1, got 1"),
        (0.1, {"momentum": -0.1}, "got -0.1"),
        (0.1, {"momentum": math.nan}, "got nan"),
        (0.0, {"momentum": 0.5}, "positive stiffness"),
        (-1.0, {"momentum": 0.5}, "without a restoring force"),
        (0.1, {"momentum": 0.5, "refresh_interval": 0}, "at least 1 update, got 0"),
        (0.1, {"momentum": 0.5, "lag": "sometimes"}, "a kind of lag, got 'sometimes'"),
        (
            0.1,
            {"momentum": 0.5, "refresh_interval": 2.5},
            "whole updates as refresh interval, got 2.5",
        ),
        (
            0.1,
            {"momentum": 0.5, "refresh_interval": 4000, "lag": "fixed"},
            "fixed lag of at most 256",
        ),
        (
            0.1,
            {"momentum": 0.5, "importance_ratio": "some"},
            "none, exact, clipped or unknown, got 'some'",
        ),
        (0.1, {"momentum": 0.5, "kl_term": "both"}, "reward, loss or unknown, got 'both'"),
    ],
)
def test_bad_input_is_a_sentence(force: float, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        stability(force, **arguments)  # type: ignore[arg-type]


def test_plain_data_has_the_keys_of_the_issue() -> None:
    plain = stability(0.02, 0.9, refresh_interval=8).as_dict()
    wanted = {
        "regime",
        "stable",
        "spectral_radius",
        "threshold",
        "rule_threshold",
        "margin",
        "max_learning_rate",
        "max_refresh_interval",
    }
    assert wanted | {"time_constants", "oscillation_onset"} <= set(plain)


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    ("lag", "force"), [("refresh", 5e-5), ("async", 1e-3), ("fixed", 1e-3), ("fixed", 5e-5)]
)
def test_the_longest_interval_is_found_wherever_it_is(lag: str, force: float) -> None:
    """Beyond 128 too, where it once was said that any would do: no shorter one is unstable, the
    next one is.
    """
    found = stability(force, 0.9, refresh_interval=8, lag=lag)
    longest = found.max_refresh_interval
    assert 60 < longest < 1e6
    assert found.max_refresh_status == "exact"
    assert float(threshold(lag, 0.9, longest + 1)) <= force
    tried = np.unique(np.geomspace(1, longest, 12).astype(int))
    assert all(float(threshold(lag, 0.9, int(interval))) > force for interval in tried)
    beyond = stability(force, 0.9, refresh_interval=min(int(longest) + 1, 256), lag=lag)
    assert beyond.stable is (longest >= 256)
    assert beyond.max_refresh_interval == longest


def test_the_longest_interval_that_is_looked_at_is_said() -> None:
    far = stability(1e-9, 0.9, refresh_interval=8, lag="refresh")
    assert (far.max_refresh_interval, far.max_refresh_status) == (1_000_000, "at least")
    assert any("1,000,000" in note for note in far.notes)
    plain = far.as_dict()
    assert (plain["max_refresh_interval"], plain["max_refresh_status"]) == (1_000_000, "at least")


@pytest.mark.thinned(4)
@pytest.mark.parametrize("lag", ["none", "fixed", "refresh", "async"])
@pytest.mark.parametrize("force", [1e-200, 1e-30, 1e-17, 1e-12])
def test_tiny_forces_are_stable(lag: str, force: float) -> None:
    found = stability(force, 0.9, refresh_interval=8, lag=lag)
    assert found.stable
    assert found.regime == "overdamped"
    assert found.spectral_radius < 1
    assert found.time_constants[0] == pytest.approx(0.1 / force, rel=1e-4)


@pytest.mark.thinned(4)
@pytest.mark.parametrize(
    ("force", "interval"), [(100.0, 1000), (1e-3, 1_000_000), (1e300, 1000), (1e300, 7)]
)
@pytest.mark.parametrize("lag", ["refresh", "async"])
def test_what_leaves_the_range_of_numbers_is_unstable(
    lag: str, force: float, interval: int
) -> None:
    found = stability(force, 0.9, refresh_interval=interval, lag=lag)
    assert not found.stable
    assert found.spectral_radius > 1
    json.dumps(found.as_dict(), allow_nan=False)


@pytest.mark.slow
def test_many_modes_of_a_long_fixed_lag_do_not_take_minutes() -> None:
    """A hang is asserted, not a speed: they once took eleven seconds and now take one."""
    begun = time.process_time()
    for force in 0.001 * np.geomspace(1e-3, 1, 10):
        stability(float(force), 0.9, refresh_interval=1000, lag="fixed")
    assert time.process_time() - begun < 8


@pytest.mark.thinned(2)
@pytest.mark.parametrize("interval", [70, 180])
@pytest.mark.parametrize(
    ("force", "momentum"),
    [(0.001, 0.9), (0.3, 0.5), (0.002, 0.0), (2.0, 0.9), (0.01, 0.99)],
)
def test_the_spectrum_of_a_long_fixed_lag_is_that_of_its_map(
    interval: int, force: float, momentum: float
) -> None:
    values = np.linalg.eigvals(period_matrix(lag_by_name("fixed"), force, momentum, interval))
    found = stability(force, momentum, refresh_interval=interval, lag="fixed")
    assert found.spectral_radius == pytest.approx(float(np.abs(values).max()), rel=1e-8)
