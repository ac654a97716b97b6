"""The lines of a live page: no spike is lost, a new row changes only their ends, and a page that applies the changes has the new lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.analysis.watched import changes, means, shown_rows, tracks_of, usual_pace
from groupwise.plain import plain
from groupwise.record.run import RunRecord
from groupwise.record.table import steps_table


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=2000), st.integers(2, 200))
def test_shown_rows_keep_every_extreme_and_are_few(values: list[float], points: int) -> None:
    y = np.array(values)
    kept = shown_rows(y, points=points)
    assert (np.diff(kept) > 0).all()
    assert kept[-1] == y.size - 1
    assert y[kept].min() == y.min()
    assert y[kept].max() == y.max()
    assert kept.size <= max(points, 2) + 3


def test_no_spike_is_lost_wherever_it_is() -> None:
    for place in range(0, 1000, 7):
        for spike in (9.0, -9.0):
            y = np.zeros(1000)
            y[place] = spike
            assert place in shown_rows(y, points=20)


def test_a_new_row_changes_only_the_end() -> None:
    """Over 5,000 rows the points before the last run of rows stay, but when the runs double."""
    rng = np.random.default_rng(0)
    y = rng.normal(size=5000)
    changed = 0
    for rows in range(4000, 5000):
        before, after = shown_rows(y[:rows], points=100), shown_rows(y[: rows + 1], points=100)
        common = min(before.size, after.size)
        first = int(np.argmin(before[:common] == after[:common])) if (before[:common] != after[:common]).any() else common
        changed += first < before.size - 4
    assert changed <= 1  # at 4,096 rows of 64 the runs double at most once


def test_means_are_of_whole_runs_of_rows() -> None:
    x, y, size = means(np.arange(100.0), np.arange(100.0))
    assert size == 4
    assert x.tolist() == y.tolist() == [1.5 + 4 * k for k in range(25)]


def record(rows: int, *, spike: bool = False) -> RunRecord:
    t = np.arange(rows)
    reward = 0.5 + 0.001 * (t * 37 % 101)
    if spike:
        reward[-1] = 9.0
    return RunRecord("made", steps_table(t + 1, {"reward": reward, "other": t * 1.0}))


def patched(track: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """What the page's script does with a change."""
    new = track | {name: value for name, value in change.items() if name in track}
    for name, start in (("x", "from"), ("y", "from"), ("mean_x", "mean_from"), ("mean_y", "mean_from")):
        new[name] = [*track[name][: change[start]], *change[name]]
    return new


@pytest.mark.parametrize("rows", [2, 3, 60, 61, 599, 600, 601, 1023, 1024, 1025])
@pytest.mark.parametrize("more", [0, 1, 7, 700])
def test_a_page_that_applies_the_changes_has_the_new_lines(rows: int, more: int) -> None:
    before, after = tracks_of(record(rows), "reward", points=200), tracks_of(record(rows + more, spike=True), "reward", points=200)
    found = changes(before, after)
    assert found is not None
    by_key = {change["key"]: plain(change) for change in found}
    page = [patched(track.as_dict(), by_key[track.key]) if track.key in by_key else track.as_dict() for track in before]
    assert page == [track.as_dict() for track in after]


def test_a_change_is_small() -> None:
    before, after = tracks_of(record(10_000), "reward", points=600), tracks_of(record(10_001), "reward", points=600)
    found = changes(before, after)
    assert found is not None
    assert all(len(change["x"]) <= 4 for change in found)


def test_lines_that_come_or_go_are_sent_whole() -> None:
    before = tracks_of(record(5), "reward", points=200)
    assert changes(before, []) is None
    assert changes([], before) is None
    assert changes(before, before) == []


def test_a_run_has_its_metric_first_and_what_is_known_beside_it(made_record: Callable[..., RunRecord]) -> None:
    tracks = tracks_of(made_record(120), "reward", points=200)
    assert [track.key for track in tracks][:3] == ["metric", "reward/correct", "reward/shape"]
    assert {"eval/reward", "dead_group_share", "entropy", "kl", "gradient_norm"} <= {track.key for track in tracks}
    norm = next(track for track in tracks if track.key == "gradient_norm")
    assert norm.y_range[1] < 50  # the spike does not crush the axis, and is told
    assert "beyond the axis" in norm.about


def test_a_metric_that_is_not_in_the_log_leaves_the_others(made_record: Callable[..., RunRecord]) -> None:
    assert "metric" not in {track.key for track in tracks_of(made_record(30), "nothing", points=200)}


def test_missing_values_and_nothing_but_missing_values() -> None:
    gaps = RunRecord("made", steps_table([1, 2, 3], {"reward": [0.1, float("nan"), float("inf")]}))
    assert tracks_of(gaps, "reward", points=200)[0].x == (1,)
    empty = RunRecord("made", steps_table([1, 2], {"reward": [float("nan")] * 2}))
    assert tracks_of(empty, "reward", points=200) == []


def test_the_usual_pace_is_a_median() -> None:
    assert usual_pace([0.0, 1.0, 2.0, 50.0]) == 1.0
    assert usual_pace([]) == 0.0
