"""What a live page shows of a run: its lines, its newest completions, the judgement with its
words.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests.cases import each_case

from groupwise.analysis import watched
from groupwise.analysis.watched import judged_run, tracks_of, usual_pace
from groupwise.diagnostics.judgement import Judgement, Learning, Sign, State
from groupwise.record.run import Meaning, RunRecord
from groupwise.record.table import steps_table


def record(rows: int, *, spike: bool = False) -> RunRecord:
    t = np.arange(rows)
    reward = 0.5 + 0.001 * (t * 37 % 101)
    if spike:
        reward[-1] = 9.0
    return RunRecord("made", steps_table(t + 1, {"reward": reward, "other": t * 1.0}))


def test_a_long_line_is_thinned_and_keeps_its_spike() -> None:
    (track,) = (
        track
        for track in tracks_of(record(5000, spike=True), "reward", points=200)
        if track.key == "metric"
    )
    assert len(track.x) <= 200
    assert (track.x[-1], track.y[-1]) == (5000, 9.0)


def test_a_run_has_its_metric_first_and_what_is_known_beside_it(
    made_record: Callable[..., RunRecord],
) -> None:
    tracks = tracks_of(made_record(120), "reward", points=200)
    assert [track.key for track in tracks][:3] == ["metric", "reward/correct", "reward/shape"]
    assert {"eval/reward", "dead_group_share", "entropy", "kl", "gradient_norm"} <= {
        track.key for track in tracks
    }
    norm = next(track for track in tracks if track.key == "gradient_norm")
    assert norm.y_range[1] < 50  # the spike does not crush the axis, and is told
    assert "outside the axis" in norm.about


def test_a_reward_function_that_is_all_of_the_reward_is_not_shown_again() -> None:
    values = [0.1, 0.3, 0.2]
    meanings = (
        Meaning("reward", "reward", "total"),
        Meaning("rewards/a", "reward/a", "one function"),
    )
    alone = RunRecord(
        "made", steps_table([1, 2, 3], {"reward": values, "rewards/a": values}), meanings=meanings
    )
    assert [track.key for track in tracks_of(alone, "reward", points=200)] == ["metric"]


def test_a_metric_that_is_not_in_the_log_leaves_the_others(
    made_record: Callable[..., RunRecord],
) -> None:
    assert "metric" not in {
        track.key for track in tracks_of(made_record(30), "nothing", points=200)
    }


def test_missing_values_and_nothing_but_missing_values() -> None:
    gaps = RunRecord("made", steps_table([1, 2, 3], {"reward": [0.1, float("nan"), float("inf")]}))
    assert tracks_of(gaps, "reward", points=200)[0].x == (1,)
    empty = RunRecord("made", steps_table([1, 2], {"reward": [float("nan")] * 2}))
    assert tracks_of(empty, "reward", points=200) == []


def test_what_never_changes_has_no_line() -> None:
    columns = {"reward": [0.1, 0.2, 0.3], "flat": [7.0] * 3, "moves": [1.0, 2.0, 4.0]}
    run = RunRecord("made", steps_table([1, 2, 3], columns))
    assert [track.column for track in tracks_of(run, "reward", points=20)] == ["reward", "moves"]


def test_the_usual_pace_is_a_median() -> None:
    assert usual_pace([0.0, 1.0, 2.0, 50.0]) == 1.0
    assert usual_pace([0.0, 1.0, 3.0, 6.0, 50.0]) == 3.0
    assert usual_pace([]) == 0.0


@each_case(
    ("state", "learning", "forecast"),
    [
        (State.OK, Learning.LEARNING, True),
        (State.WARNING, Learning.FLAT, True),
        (State.CANNOT_TELL, Learning.UNKNOWN, False),
        (State.FAILING, Learning.LEARNING, False),
        (State.FAILED, Learning.LEARNING, False),
    ],
)
def test_there_is_a_forecast_unless_the_run_fails_or_cannot_be_told(
    state: State,
    learning: Learning,
    *,
    forecast: bool,
    monkeypatch: pytest.MonkeyPatch,
    made_record: Callable[..., RunRecord],
) -> None:
    monkeypatch.setattr(
        watched, "judge", lambda *_, **__: Judgement("made", state, "", learning=learning)
    )
    said = judged_run(made_record(60), "reward", 0.9, ended=False).forecast
    assert (" Its mean is forecast to be " in said) is forecast
    assert bool(said) is forecast


def test_a_metric_that_is_not_in_the_log_has_no_forecast(
    monkeypatch: pytest.MonkeyPatch, made_record: Callable[..., RunRecord]
) -> None:
    monkeypatch.setattr(
        watched,
        "judge",
        lambda *_, **__: Judgement("made", State.OK, "", learning=Learning.LEARNING),
    )
    assert judged_run(made_record(60), "nothing", 0.9, ended=False).forecast == ""


def test_lines_that_the_judgement_speaks_of_are_named_by_key_and_by_title(
    monkeypatch: pytest.MonkeyPatch, made_record: Callable[..., RunRecord]
) -> None:
    first, then = (
        Sign("reward", 3, 0.2, 0.7, "reward 0.2 → 0.7"),
        Sign("held_out", 3, 0.0, 0.0, "f 0.001 → 0.002"),
    )
    monkeypatch.setattr(
        watched,
        "judge",
        lambda *_, **__: Judgement("made", State.FAILED, "", first_sign=first, then=(then,)),
    )
    assert judged_run(made_record(60), "reward", 0.9, ended=True).moved == (
        "reward",
        "reward",
        "held_out",
        "f",
    )


def test_a_run_that_nobody_may_write_any_more_has_no_forecast_where_its_report_has_none() -> None:
    """A reward that is lost in the last nine rows: a dip as long as the run goes on, a collapse
    once it is over.
    """
    reward = np.where(np.arange(80) < 71, 0.8, 0.05) + 0.02 * np.random.default_rng(
        0
    ).standard_normal(80)
    record = RunRecord("dead", steps_table(range(80), {"reward": reward}))
    going_on, over = (judged_run(record, "reward", 0.9, ended=ended) for ended in (False, True))
    assert (going_on.judgement.alarm, over.judgement.alarm) == (False, True)
    assert (going_on.forecast, over.forecast) == ("", "")
