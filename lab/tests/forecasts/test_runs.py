"""A backtest knows of a run what its first rows say."""

from __future__ import annotations

import numpy as np

from groupwise.record.run import RunRecord, steps_table
from groupwise.series.metric import metric_series
from groupwise_lab.forecasts.runs import trial_of


def test_the_range_that_is_likely_is_that_of_the_rows_seen() -> None:
    """The reward leaves 0 to 1 in its second half, which a forecast from the first cannot know."""
    reward = 0.5 + 0.01 * np.sin(np.arange(60.0)) + np.where(np.arange(60) < 40, 0.0, 3.0)
    series = metric_series(RunRecord("run", steps_table(range(1, 61), {"reward": reward})))
    assert series.likely_bounds is None
    assert trial_of(series, 0.4, {}).windows.bounds == (0.0, 1.0)
    assert trial_of(series, 0.8, {}).windows.bounds is None
