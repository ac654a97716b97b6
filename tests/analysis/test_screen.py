"""The first screen as data: tiles of what was logged, the failure shaded, numbers for readers
without scripts.
"""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.cases import each_case
from tests.golden.sentences import says

from groupwise.analysis.fitted import fit_metric
from groupwise.analysis.summary import TILES, Screen, ShownSignal, screen_of, summarise
from groupwise.diagnostics.judgement import Judgement, Sign, State
from groupwise.record.run import Meaning, RunRecord
from groupwise.record.table import steps_table
from groupwise.series.metric import group_evidence

STEPS = np.arange(1, 201)


def record(**columns: Any) -> RunRecord:
    """A run whose every column is the quantity of its name."""
    meanings = tuple(
        Meaning(name, name.replace("eval_reward", "eval/reward"), "as said") for name in columns
    )
    return RunRecord("made", steps_table(STEPS, columns), meanings=meanings)


def collapse() -> dict[str, Any]:
    return {
        "reward": np.where(STEPS < 101, 0.9, 0.0),
        "completion_length": np.where(STEPS < 81, 300.0, 512.0),
        "truncated_share": np.where(STEPS < 81, 0.0, 1.0),
        "entropy": np.full(200, 0.25),
        "dead_group_share": np.where(STEPS < 101, 0.2, 0.99),
        "kl": np.full(200, 0.01),
    }


FAILED = Judgement(
    "made",
    State.FAILED,
    "collapsed",
    since_step=101,
    first_sign=Sign("completion_length", 81, 300.0, 512.0, "length"),
)


def screen(run: RunRecord, judged: Judgement) -> Screen:
    return screen_of(run, fit_metric(run, "reward"), group_evidence(run), judged)


def tiles(screen: Screen) -> list[tuple[str, str, str]]:
    return [(tile.name, tile.value, tile.more) for tile in screen.tiles]


def test_the_tiles_of_a_collapse_say_what_was_before_the_first_sign() -> None:
    shown = screen(record(**collapse()), FAILED)
    assert tiles(shown) == [
        ("Now", "0.00", "mean of the last 10 rows"),
        ("Peak", "0.90", "mean of 10 rows to step 10"),
        ("Truncated", "100 %", "0 % before step 81"),
        ("Zero-variance groups", "99 %", "20 % before step 81"),
    ]


@each_case(("rise", "after"), [(101, ", after the first sign"), (31, ""), (76, "")])
def test_a_peak_that_lies_in_the_failure_is_said_to(rise: int, after: str) -> None:
    """The highest ten rows lie behind step 81, before it, or on both sides of it."""
    high = (rise <= STEPS) & (rise + 10 > STEPS)
    shown = screen(record(reward=np.where(high, 0.9, 0.3)), FAILED)
    assert tiles(shown)[1] == ("Peak", "0.90", f"mean of 10 rows to step {rise + 9}{after}")


def test_tiles_and_numbers_have_the_levels_that_the_judgement_tells() -> None:
    """Means of the rows before would be .80, 300 and 2 %; where the judgement says otherwise of
    the same change that stands.
    """
    signs = (
        Sign("truncated_share", 81, 0.02, 1.0, "100 % truncated (was 2 %)"),
        Sign("held_out", 91, 0.7, 0.1, "held-out reward 0.70 → 0.10"),
    )
    fell = dataclasses.replace(
        FAILED,
        metric="reward",
        level=0.95,
        first_sign=Sign("reward", 81, 0.95, 0.0, "reward 0.95 → 0.00"),
        then=signs,
    )
    shown = screen(record(**collapse(), eval_reward=np.where(STEPS < 91, 0.6, 0.1)), fell)
    assert tiles(shown) == [
        ("Now", "0.00", "mean of the last 10 rows"),
        ("Peak", "0.95", "before step 81"),
        ("Truncated", "100 %", "2 % before step 81"),
        ("Zero-variance groups", "99 %", "20 % before step 81"),
    ]
    before = {row.name: row.before for row in shown.rows}
    assert (before["Reward"], before["Truncated"], before["Held-out reward"], before["Length"]) == (
        "0.95",
        "2 %",
        "0.70",
        "300",
    )
    flat = Judgement(
        "made", State.WARNING, "nothing learnt: reward 0.42 → 0.43", metric="reward", level=0.42
    )
    assert tiles(screen(record(reward=np.full(200, 0.45)), flat))[2] == (
        "Start",
        "0.42",
        "level the judgement starts from",
    )


def test_a_tile_says_of_each_of_its_numbers_when_it_held() -> None:
    """The level just after a change is no second value of now; the start is that of some rows."""
    length = np.select([STEPS < 81, STEPS < 181], [300.0, 512.0], 400.0)
    run = record(reward=np.where(STEPS < 101, 0.9, 0.0), completion_length=length)
    shown = tiles(screen(run, FAILED))
    assert shown[2] == ("Length", "400", "now; 300 before step 81, then 512")
    assert shown[3] == ("Start", "0.90", "mean of the first 10 rows")
    level = dataclasses.replace(FAILED, metric="reward", level=0.9)
    assert tiles(screen(run, level))[3] == shown[3]


def test_the_page_draws_the_column_that_is_judged() -> None:
    """A column that carries nothing is no reward, although it is called so."""
    columns = {"reward": np.zeros(200), "p": np.linspace(0.2, 0.8, 200)}
    run = RunRecord(
        "made",
        steps_table(STEPS, columns),
        meanings=(
            Meaning("reward", "reward", "", unavailable=True),
            Meaning("p", "positive_share", ""),
        ),
    )
    summary = summarise(run)
    assert (summary.fitted.metric, summary.judgement.metric) == ("p", "p")
    says("analysis/screen/1", summary.judgement.headline)
    assert (summary.screen.tiles[0].value, summary.screen.tiles[2].value) == ("0.79", "0.21")


@pytest.mark.parametrize(
    ("left_out", "named"),
    [
        (("truncated_share",), ["Zero-variance groups", "Entropy"]),
        (("truncated_share", "dead_group_share"), ["Entropy", "Length"]),
        (
            ("truncated_share", "dead_group_share", "entropy", "completion_length"),
            ["KL to the reference", "Start"],
        ),
    ],
)
def test_a_tile_without_data_is_taken_by_the_next_useful_number(
    left_out: tuple[str, ...], named: list[str]
) -> None:
    columns = {name: value for name, value in collapse().items() if name not in left_out}
    shown = screen(record(**columns), FAILED)
    assert [tile.name for tile in shown.tiles] == ["Now", "Peak", *named]
    assert len(shown.tiles) == TILES


def test_the_failure_is_shaded_from_its_first_sign_on_and_nothing_is_without_one() -> None:
    shown = screen(record(**collapse()), FAILED)
    assert {chart.shade for chart in (shown.chart, *shown.sparks, *shown.others)} == {(81, None)}
    assert [(mark.x, mark.label) for mark in shown.chart.marks] == [(81, "first sign")]
    without_sign = screen(record(**collapse()), dataclasses.replace(FAILED, first_sign=None))
    assert without_sign.chart.shade == (101.0, None)
    throughout = screen(
        record(**collapse()), dataclasses.replace(FAILED, first_sign=None, since_step=None)
    )
    assert (throughout.chart.shade, throughout.chart.marks) == ((1, None), ())
    watched = screen(record(**collapse()), dataclasses.replace(FAILED, state=State.WARNING))
    assert watched.chart.shade is None
    assert watched.chart.marks == shown.chart.marks


def test_the_mean_never_averages_across_the_first_sign() -> None:
    shown = screen(record(**collapse()), FAILED)
    mean = next(line for line in shown.sparks[0].lines if line.role == "smooth")
    assert {(x < 81, y) for x, y in zip(mean.x, mean.y, strict=True)} == {(True, 300), (False, 512)}
    plain = screen(record(**collapse()), dataclasses.replace(FAILED, state=State.OK))
    assert set(next(line for line in plain.sparks[0].lines if line.role == "smooth").y) - {300, 512}


def test_signals_that_moved_come_first_and_the_rest_below() -> None:
    run = record(**collapse())
    assert [chart.key for chart in screen(run, FAILED).sparks] == [
        "completion_length",
        "truncated_share",
        "entropy",
        "dead_group_share",
    ]
    moved = dataclasses.replace(FAILED, first_sign=Sign("kl", 81, 0.01, 1.0, "kl"))
    shown = screen(run, moved)
    assert [chart.key for chart in shown.sparks] == [
        "completion_length",
        "truncated_share",
        "entropy",
        "kl",
    ]
    assert [chart.key for chart in shown.others] == ["dead_group_share"]
    named = dataclasses.replace(
        FAILED, first_sign=Sign("sampler_mismatch", 81, 0.0, 1.0, "sampler mismatch 0 → 1")
    )
    other = record(**collapse(), sampler_mismatch=np.where(STEPS < 81, 0.0, 1.0))
    assert "Sampler mismatch" in [chart.title for chart in screen(other, named).sparks]
    assert not any(
        line.role in ("law", "forecast")
        for chart in (shown.chart, *shown.sparks, *shown.others)
        for line in chart.lines
    )


def test_numbers_stand_in_a_table_of_every_signal() -> None:
    shown = screen(record(**collapse()), FAILED)
    length = next(row for row in shown.rows if row.name == "Length")
    assert (length.first, length.before, length.now, length.low, length.high, length.rows) == (
        "300",
        "300",
        "512",
        "300",
        "512",
        200,
    )


def test_a_level_now_is_that_of_the_last_rows() -> None:
    rise = ShownSignal("entropy", "Entropy", "", STEPS.astype(float), STEPS / 200)
    assert rise.rows == 10
    assert rise.now == pytest.approx((STEPS[-10:] / 200).mean())
    level, where = rise.before(None)
    assert level == pytest.approx((STEPS[:10] / 200).mean())
    assert where == "at the start"
    level, where = rise.before(101)
    assert level == pytest.approx((STEPS[90:100] / 200).mean())
    assert where == "before step 101"
    says("analysis/screen/2", replace(rise, judged=(0.5, 191)).since)


def test_gaps_and_few_rows_have_a_screen() -> None:
    sparse = np.where(STEPS % 50 == 0, 0.5, np.nan)
    shown = screen(
        record(reward=np.full(200, 0.5), eval_reward=sparse, entropy=np.full(200, np.nan)), FAILED
    )
    assert tiles(shown)[-2:] == [
        ("Held-out reward", "0.50", "0.50 before step 81"),
        ("Start", "0.50", "mean of the first 10 rows"),
    ]
    assert [line.role for line in shown.chart.lines][-1] == "evaluation"
    hacked = dataclasses.replace(FAILED, then=(Sign("held_out", 81, 0.5, 0.5, "true 0.5 → 0.5"),))
    columns = {"reward": np.full(200, 0.5), "true": np.full(200, 0.5), "format": np.full(200, 1.0)}
    meanings = tuple(
        Meaning(name, quantity, "")
        for name, quantity in (
            ("reward", "reward"),
            ("true", "reward/true"),
            ("format", "reward/format"),
        )
    )
    run = RunRecord("hacked", steps_table(STEPS, columns), meanings=meanings)
    assert [
        (line.name, line.role) for line in screen(run, hacked).chart.lines if line.role == "beside"
    ] == [("true, mean of 7 rows", "beside")]
    assert [name for name, _, _ in tiles(screen(run, hacked))] == [
        "Now",
        "Peak",
        "true",
        "format",
    ]  # what is named first
    short = RunRecord("short", steps_table([1, 2], {"reward": [0.1, 0.2]}))
    assert tiles(
        screen(
            short,
            dataclasses.replace(FAILED, state=State.CANNOT_TELL, first_sign=None, since_step=None),
        )
    ) == [
        ("Now", "0.20", "step 2"),
        ("Peak", "0.20", "at step 2"),
        ("Start", "0.10", "step 1"),
        ("Rows", "2", "step 1 to 2"),
    ]


def test_an_alarm_has_no_forecast_and_a_run_that_learns_has_one() -> None:
    failed = summarise(record(**collapse()))
    assert failed.judgement.state is State.FAILED
    assert failed.charts["forecast"] == ()
    assert "rows after a failure say nothing" in failed.no_forecast
    rng = np.random.default_rng(0)
    learning = summarise(record(reward=0.8 - 0.6 * 0.985**STEPS + 0.02 * rng.standard_normal(200)))
    assert not learning.judgement.alarm
    assert learning.no_forecast == ""
    assert {line.role for line in learning.charts["forecast"][0].lines} >= {
        "observed",
        "law",
        "forecast",
    }
