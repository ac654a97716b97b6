"""The e-process keeps its false-alarm rate over the whole run, and places an onset."""

from __future__ import annotations

import numpy as np
import pytest

from groupwise.arrays import median
from groupwise.diagnostics.signals import alarm, rare_event_factors, start_of
from groupwise.forecasting.e_process import change_evidence


def test_the_factors_are_fair_at_the_edge_of_the_null() -> None:
    factors = np.exp(rare_event_factors(np.array([True, False]), 0.2))
    assert 0.2 * factors[0] + 0.8 * factors[1] == pytest.approx(1.0)


def test_the_process_starts_at_one_and_is_the_mixture_over_starts() -> None:
    factors = np.log(np.array([2.0, 0.5, 3.0]))
    # Starts at rows 1, 2 and 3, each with weight 1/3.
    expected = [(2 + 2) / 3, (2 * 0.5 + 0.5 + 1) / 3, (2 * 0.5 * 3 + 0.5 * 3 + 3) / 3]
    np.testing.assert_allclose(np.exp(change_evidence(factors)), expected, atol=1e-12)


def test_false_alarms_over_whole_runs_stay_below_the_rate() -> None:
    rng = np.random.default_rng(1)
    alarms = sum(alarm(rare_event_factors(rng.random(100) < 0.2, 0.2), rate=0.05) is not None for _ in range(2000))
    assert alarms / 2000 <= 0.05


def test_an_onset_is_the_first_row_that_counts() -> None:
    event = np.array([False] * 30 + [True] * 10)
    found = alarm(rare_event_factors(event, 0.2), rate=0.005)
    assert found is not None
    assert (found.onset, found.lasts) == (30, True)
    assert start_of(np.array([0.0, 0.0, 1.0])) == 2


def test_nothing_is_no_alarm() -> None:
    assert alarm(np.empty(0), rate=0.01) is None


def test_an_alarm_is_where_the_process_crosses_and_nowhere_else() -> None:
    """Also where the bets that were won only just suffice."""
    rng = np.random.default_rng(2)
    found = 0
    for share in rng.uniform(0.0, 0.5, size=300):
        factors = rare_event_factors(rng.random(30) < share, 0.2)
        crossed = bool((change_evidence(factors) >= -np.log(0.02)).any())
        assert (alarm(factors, rate=0.02) is not None) == crossed
        found += crossed
    assert 30 < found < 270
    assert alarm(np.array([np.log(50.1)]), rate=0.02) is not None
    assert alarm(np.array([np.log(49.9)]), rate=0.02) is None


def test_the_median_is_that_of_numpy() -> None:
    rng = np.random.default_rng(3)
    for value in (rng.standard_normal(size) for size in range(1, 40)):
        assert median(value) == np.median(value)
