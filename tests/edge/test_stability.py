"""What is said of a mode against simulation of it, and what is refused."""

from __future__ import annotations

import json
import math
import time
from typing import Any

import numpy as np
import pytest
from tests.cases import each_case
from tests.golden.sentences import says

from groupwise.edge.mode import DECIDING, stability, threshold
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
        margin = stability(share * limit, momentum, refresh_interval=interval, lag=lag)
        far = np.abs(
            recursion(share * limit, momentum, 3000, refresh_interval=interval, lag=lag) - 1
        )
        assert margin.stable is settles
        assert bool(far[-200:].max() < far[:200].max()) is settles
        assert margin.margin == pytest.approx(1 / share)


def test_what_would_be_safe_is_safe_and_one_more_is_not() -> None:
    for lag in ("fixed", "refresh", "async"):
        margin = stability(0.02, 0.9, refresh_interval=2, lag=lag, learning_rate=0.1)
        longest = int(margin.max_refresh_interval)
        assert float(threshold(lag, 0.9, longest)) > 0.02 >= float(threshold(lag, 0.9, longest + 1))
        assert margin.max_learning_rate == pytest.approx(0.1 * float(threshold(lag, 0.9, 2)) / 0.02)


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


def test_the_rule_is_called_unsafe_where_it_is() -> None:
    beyond = stability(0.005, 0.9, refresh_interval=8, lag="async")
    within = stability(0.005, 0.9, refresh_interval=8, lag="refresh")
    assert beyond.rule_threshold == within.rule_threshold == pytest.approx(0.0125)
    assert beyond.threshold < beyond.rule_threshold < within.threshold / 2


def test_importance_ratio_takes_the_lag_away_or_bounds_it() -> None:
    setting = {"refresh_interval": 8, "importance_ratio": "exact"}
    exact = stability(0.1, 0.9, **setting, kl_term="loss")  # type: ignore[arg-type]
    assert exact.bounds == pytest.approx((3.8, 3.8), rel=1e-14)
    assert (exact.stable, exact.lag) == (True, "none")
    says("edge/stability/1", exact.status)
    clipped = stability(0.02, 0.9, refresh_interval=8, importance_ratio="clipped")
    assert clipped.bounds[0] == pytest.approx(0.033859, abs=1e-6)
    assert clipped.bounds[1] == 3.8
    says("edge/stability/2", clipped.status)


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
        margin = stability(0.1, 0.9, refresh_interval=8, learning_rate=0.1, **arguments)
        assert (margin.stable, margin.open_settings) == (None, names)
        assert margin.status.startswith("Cannot tell: the force of 0.1 lies between 0.0339 and 3.8")
        assert all(DECIDING[name] in margin.status for name in margin.open_settings)
        assert margin.as_dict()["deciding"] == list(names)
    settings: tuple[dict[str, Any], ...] = (
        {},
        {"importance_ratio": "clipped", "kl_term": "reward"},
    )
    for arguments in settings:
        stale = stability(0.1, 0.9, refresh_interval=8, **arguments)
        assert (stale.stable, stale.open_settings) == (False, ())


def test_the_place_of_the_kl_term_decides_what_a_ratio_can_do() -> None:
    """In the reward it keeps the whole force stale: .0339 and not 3.80."""
    for ratio in ("exact", "clipped"):
        margin = stability(0.02, 0.9, refresh_interval=8, importance_ratio=ratio, kl_term="reward")
        assert margin.bounds == pytest.approx((0.033859, 0.033859), abs=1e-6)
        assert any("with any importance ratio" in note for note in margin.notes)
    loose = stability(0.02, 0.9, refresh_interval=8, importance_ratio="clipped", kl_term="loss")
    assert loose.bounds == pytest.approx((0.033859, 3.8), abs=1e-6)
    assert any("small oscillations have the upper limit" in note for note in loose.notes)


@pytest.mark.slow
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
        (0.1, {"momentum": 0.5, "refresh_interval": 0}, "1 to 1,000,000,000 updates, got 0"),
        (0.1, {"momentum": 0.5, "lag": "sometimes"}, "a policy lag, got 'sometimes'"),
        (
            0.1,
            {"momentum": 0.5, "refresh_interval": 2.5},
            "whole updates as refresh interval, got 2.5",
        ),
        (
            0.1,
            {"momentum": 0.5, "refresh_interval": 10**24},
            "of 1 to 1,000,000,000 updates, got 1e",
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
        "stable",
        "threshold",
        "rule_threshold",
        "margin",
        "max_learning_rate",
        "max_refresh_interval",
    }
    assert wanted <= set(plain)


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    ("lag", "force"), [("refresh", 5e-5), ("async", 1e-3), ("fixed", 1e-3), ("fixed", 5e-5)]
)
def test_the_longest_interval_is_found_wherever_it_is(lag: str, force: float) -> None:
    """Beyond 128 too, where it once was said that any would do: no shorter one is unstable, the
    next one is.
    """
    margin = stability(force, 0.9, refresh_interval=8, lag=lag)
    longest = margin.max_refresh_interval
    assert 60 < longest < 1e6
    assert margin.max_refresh_status == "exact"
    assert float(threshold(lag, 0.9, longest + 1)) <= force
    tried = np.unique(np.geomspace(1, longest, 12).astype(int))
    assert all(float(threshold(lag, 0.9, int(interval))) > force for interval in tried)
    beyond = stability(force, 0.9, refresh_interval=int(longest) + 1, lag=lag)
    assert not beyond.stable
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
    margin = stability(force, 0.9, refresh_interval=8, lag=lag)
    assert margin.stable


@pytest.mark.thinned(4)
@pytest.mark.parametrize(
    ("force", "interval"), [(100.0, 1000), (1e-3, 1_000_000), (1e300, 1000), (1e300, 7)]
)
@pytest.mark.parametrize("lag", ["refresh", "async"])
def test_what_leaves_the_range_of_numbers_is_unstable(
    lag: str, force: float, interval: int
) -> None:
    margin = stability(force, 0.9, refresh_interval=interval, lag=lag)
    assert not margin.stable
    json.dumps(margin.as_dict(), allow_nan=False)
