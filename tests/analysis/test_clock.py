"""The clock of a run: inside the log it interpolates, beyond it keeps the pace of the nearer
half.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from groupwise.analysis.fitted import LoggedClock


def clock() -> LoggedClock:
    """Steps of four updates each, then of two; an hour every hundred updates."""
    step = np.array([10.0, 20.0, 30.0, 40.0, 50.0])
    time = np.array([0.0, 40.0, 80.0, 100.0, 120.0])
    return LoggedClock(step, time, 36 * time)


def test_times_and_steps_convert_back_and_forth() -> None:
    for step in (10.0, 14.0, 33.0, 50.0, 80.0):
        assert clock().step(clock().time(step)) == pytest.approx(step)


def test_beyond_the_log_the_pace_of_the_last_half_goes_on() -> None:
    assert clock().step(140.0) == pytest.approx(60.0)
    assert clock().hours(200.0) == pytest.approx(2.0)


def test_unknown_hours_are_not_a_number() -> None:
    for seconds in (np.array([np.nan, np.nan]), None):
        assert math.isnan(
            LoggedClock(np.array([1.0, 2.0]), np.array([0.0, 1.0]), seconds).hours(1.0)
        )


def test_hours_that_begin_late_are_carried_back() -> None:
    late = LoggedClock(np.arange(4.0), np.arange(4.0), np.array([np.nan, 3600.0, 7200.0, 10800.0]))
    assert late.hours(0.0) == pytest.approx(0.0)


def test_a_log_of_one_row_counts_updates_as_steps() -> None:
    assert LoggedClock(np.array([7.0]), np.array([0.0])).step(3.0) == 10.0
