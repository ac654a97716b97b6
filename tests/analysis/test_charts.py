"""Charts as data: what decimation keeps, what rounding may cost, which ordinates an axis shows."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from groupwise.analysis.charts import (
    abscissae,
    axes_of,
    kept_rows,
    logged_rows,
    observed_line,
    rounded,
    running_mean,
    smooth_line,
    useful_range,
    with_mean,
)
from groupwise.diagnostics.judge import judge
from groupwise.diagnostics.judgement import Sign
from groupwise.record.run import Meaning, RunRecord
from groupwise.record.table import steps_table

finite = st.floats(-1e9, 1e9)


@given(arrays(float, st.integers(1, 3000), elements=finite), st.integers(4, 700))
def test_decimation_keeps_ends_and_extremes_and_its_promise_of_size(
    y: np.ndarray, points: int
) -> None:
    kept = kept_rows(y, points=points)
    assert len(kept) <= max(points, 4) or len(kept) == len(y) <= points
    assert kept[0] == 0
    assert kept[-1] == len(y) - 1
    assert np.all(np.diff(kept) > 0)
    assert y[kept].max() == y.max()
    assert y[kept].min() == y.min()


def test_decimation_keeps_a_spike_of_one_row_in_a_hundred_thousand() -> None:
    y = np.zeros(100_000)
    y[77_777] = 1.0
    line = observed_line("reward", np.arange(100_000), y)
    assert len(line.x) <= 600
    assert line.y[line.x.index(77_777)] == 1


@pytest.mark.parametrize("size", [1_000, 10_000, 100_000])
def test_lines_are_as_small_for_long_runs_as_for_short_ones(size: int) -> None:
    step = np.arange(size)
    assert len(observed_line("r", step, np.sin(step)).x) <= 600
    band = smooth_line(
        "law",
        "law",
        step,
        np.sin(step / size),
        low_T=np.zeros(size),
        high_T=np.ones(size),
        band="95 %",
    )
    assert len(band.x) == len(band.low) == len(band.high) <= 200


@given(arrays(float, st.integers(1, 50), elements=finite | st.just(math.nan)))
def test_rounding_moves_no_value_by_more_than_a_ten_thousandth_of_the_largest(
    values: np.ndarray,
) -> None:
    largest = np.nanmax(np.abs(values)) if np.isfinite(values).any() else 0.0
    for before, after in zip(values, rounded(values), strict=True):
        if math.isnan(before):
            assert after is None
        else:
            assert after is not None
            assert abs(after - before) <= 1e-4 * largest + 1e-12


def test_abscissae_of_whole_steps_stay_whole_and_others_stay_apart() -> None:
    assert abscissae([1.0, 2.0, 30_000.0]) == (1, 2, 30_000)
    assert abscissae([0.5]) == (0.5,)
    assert rounded([1234.5678, 1000.0]) == (1234.6, 1000)  # five digits of the largest
    assert abscissae([0.0, 1.53]) == (0, 1.5)  # a tenth of their spacing
    apart = abscissae(np.linspace(0, 1e-3, 50) + 5)
    assert len(set(apart)) == 50


def test_missing_rows_are_left_out_of_a_line() -> None:
    line = observed_line("r", [1, 2, 3], [0.5, math.nan, math.inf])
    assert line.x == (1,)


def test_an_axis_shows_all_data_and_stretches_only_so_far_for_a_band() -> None:
    low, high = useful_range([-1e6, 1e6], shown=[0.0, 1.0], reach=0.5) or (0.0, 0.0)
    assert low < 0
    assert high > 1
    assert high - low < 2.2
    assert useful_range(shown=[math.nan]) is None
    flat = useful_range(shown=[0.5, 0.5])
    assert flat is not None
    assert flat[0] < 0.5 < flat[1]
    # A learning rate that is one number is not drawn at 0.
    alike = useful_range(shown=[1e-6, 1e-6])
    assert alike is not None
    assert 0 < alike[0] < 1e-6 < alike[1] < 2e-6


@given(arrays(float, st.integers(1, 200), elements=st.floats(-1e3, 1e3)), st.integers(1, 15))
def test_a_running_mean_averages_the_rows_around_each(y: np.ndarray, half: int) -> None:
    means = running_mean(y, 2 * half + 1)
    slow = [y[max(0, i - half) : i + half + 1].mean() for i in range(len(y))]
    assert means == pytest.approx(slow, abs=1e-9)


def test_few_rows_have_no_mean_beside_them() -> None:
    step = np.arange(31)
    assert [line.role for line in with_mean("logged", step[:30], step[:30])] == ["observed"]
    raw, mean = with_mean("logged", step, np.where(step < 20, 0.0, 1.0), split=20)
    assert (raw.role, mean.role, mean.name) == ("observed", "smooth", "mean of 3 rows")
    assert set(mean.y) == {0, 1}


def test_clocks_by_hand_and_none_that_stands_still() -> None:
    """Two hours a step from the first row on; tokens known at two rows; a clock of one row is
    none.
    """
    steps = steps_table(
        [10, 20, 30], {}, tokens=[np.nan, 500.0, 900.0], seconds=[100.0, 7300.0, 14500.0]
    )
    tokens, hours = axes_of(steps)
    assert (tokens.name, tokens.x, tokens.y) == ("tokens", (20, 30), (500, 900))
    assert (hours.name, hours.x, hours.y) == ("hours", (10, 20, 30), (0, 2, 4))
    assert axes_of(steps_table([1, 2], {}, tokens=[5.0, 5.0], seconds=[np.nan, 3.0])) == ()
    (long,) = axes_of(steps_table(range(10_000), {}, tokens=np.arange(10_000) * 7.0))
    assert (len(long.x), long.x[-1], long.y[-1]) == (200, 9999, 69993)


@pytest.mark.parametrize("end", [np.nan, np.inf])
def test_rows_beside_a_change_without_a_number_say_so(end: float) -> None:
    row = np.arange(60)
    loss = np.where(row < 50, 0.1 + 0.01 * (row % 3), end)
    record = RunRecord(
        "test",
        steps_table(row + 1, {"loss": loss, "reward": np.where(row < 50, 0.8, 0.0)}),
        meanings=(Meaning("loss", "loss", "test"), Meaning("reward", "reward", "test")),
    )
    said = dict(line.split(" before ") for line in logged_rows(record, judge(record)))
    assert said["loss"].endswith("0.11, 0.12, 0.1, 0.11; since then: no number"), said
    assert said["reward"] == "step 51: 0.8, 0.8, 0.8, 0.8, 0.8; since then: 0, 0, 0, 0, 0"


def test_rows_beside_a_change_are_those_that_there_are() -> None:
    """At the first row none is before it, and where numbers ended none is since."""
    record = RunRecord("run", steps_table(range(5, 25), {"reward": np.arange(20) / 32}))
    judged = judge(record)
    rows: list[str] = []
    for step in (5, 8, 25):
        sign = Sign("reward", step, None, None, "reward moved")
        rows += logged_rows(record, replace(judged, first_sign=sign))
    assert rows == [
        "reward at first: 0, 0.0312, 0.0625, 0.0938, 0.125",
        "reward before step 8: 0, 0.0312, 0.0625; since then: 0.0938, 0.125, 0.156, 0.188, 0.219",
        "reward before step 25: 0.469, 0.5, 0.531, 0.562, 0.594; since then: no number",
    ]
