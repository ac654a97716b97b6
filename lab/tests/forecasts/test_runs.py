"""A backtest knows of a run what its first rows say."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from groupwise.record.run import RunRecord, steps_table
from groupwise.series.metric import metric_series
from groupwise_lab.forecasts.backtest import trial
from groupwise_lab.forecasts.calibrate import calibrate
from groupwise_lab.forecasts.rivals import last_mean
from groupwise_lab.forecasts.runs import TOO_FAR, TriedRun, calibrated, trial_of


def test_the_range_that_is_likely_is_that_of_the_rows_seen() -> None:
    """The reward leaves 0 to 1 in its second half, which a forecast from the first cannot know."""
    reward = 0.5 + 0.01 * np.sin(np.arange(60.0)) + np.where(np.arange(60) < 40, 0.0, 3.0)
    series = metric_series(RunRecord("run", steps_table(range(1, 61), {"reward": reward})))
    assert series.likely_bounds is None
    early, late = (trial_of(series, share, {}).windows for share in (0.4, 0.8))
    assert [set(np.ravel(end)) for end in early.ends] == [{0.0}, {1.0}]
    assert np.ravel(late.ends[1])[0] > 3.0


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


def test_the_worst_cluster_is_named_with_its_error_over_the_last_mean() -> None:
    """Two rises that go on, and two that end where they were last seen; each by the table of the
    other clusters.
    """
    step, tried = np.arange(80.0), []
    for cluster, end in (("up", 80.0), ("up", 90.0), ("early", 30.0), ("late", 32.0)):
        noise = np.random.default_rng(int(end)).normal(0, 0.01, 80)
        rise = 0.2 + 0.6 * np.minimum(step, end) / 80 + noise
        seen = trial(step, rise, 0.4, methods={"last_mean": last_mean})
        tried.append(TriedRun(f"{end}", cluster, seen))
    made = calibrated(tried)
    cases = [run.trial.case(run.cluster, run.name) for run in tried]
    error = {}
    for cluster in ("up", "early", "late"):
        table = calibrate([case for case in cases if case.cluster != cluster])
        scores = [run.trial.score(table).errors for run in tried if run.cluster == cluster]
        logs = [np.log(score["groupwise"] / score["last_mean"]) for score in scores]
        error[cluster] = float(np.exp(np.mean(logs)))
    worst, many = max(error, key=error.__getitem__), sum(far > TOO_FAR for far in error.values())
    assert made.worst() == (
        f"In the worst cluster, {worst}, the error is {error[worst]:.2f} of the last mean's; it is "
        f"over 1.3 in {many} of 3."
    )
    assert many == 2
    assert dataclasses.replace(made, alone={}).worst() == ""
