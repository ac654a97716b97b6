"""A backtest knows of a run what its first rows say."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from groupwise.record.run import RunRecord, steps_table
from groupwise.series.metric import metric_series
from groupwise_lab.forecasts.runs import trial_of


def test_the_range_that_is_likely_is_that_of_the_rows_seen() -> None:
    """The reward leaves 0 to 1 in its second half, which a forecast from the first cannot know."""
    reward = 0.5 + 0.01 * np.sin(np.arange(60.0)) + np.where(np.arange(60) < 40, 0.0, 3.0)
    series = metric_series(RunRecord("run", steps_table(range(1, 61), {"reward": reward})))
    assert series.likely_bounds is None
    early, late = (trial_of(series, share, {}).windows for share in (0.4, 0.8))
    assert (set(early.low_S), set(early.high_S)) == ({0.0}, {1.0})
    assert late.high_S[0] > 3.0


def test_the_rate_to_come_goes_on_along_the_line_of_the_rows_seen() -> None:
    """A linear schedule that ends with the log: of 60 rows seen to 36 the rest has a sixth of the
    integral of the rate, 16 % of it.
    """
    reward = 0.5 + 0.01 * np.sin(np.arange(60.0))
    logged = {"reward": reward, "learning_rate": 1e-6 * (1 - np.arange(60.0) / 60)}
    series = metric_series(RunRecord("run", steps_table(range(1, 61), logged)))
    scheduled, plain = (
        trial_of(log_series, 0.6, {}).windows
        for log_series in (series, dataclasses.replace(series, rate_T=None))
    )
    assert plain.place_S[-1] == pytest.approx(58.0, abs=1.0)
    assert scheduled.place_S[-1] == pytest.approx(35 * 1800 / (1800 - 25 * 26 / 2 + 12), rel=0.03)
