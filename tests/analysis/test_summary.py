"""The summary: everything on the page as plain data, and a reason for everything that is not."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from groupwise.analysis.fitted import ForecastRequest, fit_metric
from groupwise.analysis.summary import Summary, page_room, summarise
from groupwise.diagnostics.judgement import State
from groupwise.errors import InvalidArgumentError, MissingMetricError
from groupwise.pages.html import made_by, render
from groupwise.plain import to_json
from groupwise.readers import run_record
from groupwise.record.run import Meaning, RunRecord, cut
from groupwise.record.table import steps_table

Make = Callable[..., RunRecord]


@pytest.fixture(scope="module")
def summary(made_record: Make) -> Summary:
    return summarise(made_record())


def test_a_learning_run_is_seen_to_have_learned(summary: Summary) -> None:
    assert summary.judgement.state is State.OK
    assert summary.fitted.beside_the_law == ""
    assert summary.fitted.fit.parameters["plateau"].covers(0.75 + 0.95)


def test_every_kind_of_evidence_is_there(summary: Summary) -> None:
    keys = {chart.key for charts in summary.charts.values() for chart in charts}
    assert keys == {"forecast"}
    screen = {chart.key for chart in (*summary.screen.sparks, *summary.screen.others)}
    assert {
        "completion_length",
        "entropy",
        "kl",
        "gradient_norm",
        "dead_group_share",
        "reward_std_within_group",
    } <= screen
    assert "evaluation" in {line.role for line in summary.screen.chart.lines}
    assert {key for key in screen if key.startswith("reward/")} == {
        "reward/correct",
        "reward/shape",
    }


def test_everything_is_json_and_nothing_is_long(summary: Summary) -> None:
    plain = json.loads(to_json(summary.as_dict()))
    assert plain["fit"]["metric"] == "reward"
    assert {"value", "low", "high", "level"} == set(plain["fit"]["parameters"]["plateau"])
    assert {"step", "mean", "mean_low", "mean_high", "low", "high"} == set(
        plain["forecast"]["forecast"][0]
    )
    for charts in plain["charts"].values():
        for chart in charts:
            for line in chart["lines"]:
                assert len(line["x"]) == len(line["y"]) <= 600
                assert len(line.get("low", line["x"])) == len(line["x"])


def test_steps_are_those_of_the_log_though_the_clock_is_in_updates(summary: Summary) -> None:
    law = next(line for line in summary.charts["forecast"][0].lines if line.role == "law")
    assert (law.x[0], law.x[-1]) == (1, 300)
    assert summary.fitted.outlook is not None
    assert [row.step for row in summary.fitted.outlook.rows] == [330, 370, 450, 600]


def test_until_uses_nothing_later_and_shows_it_apart(made_record: Make) -> None:
    whole = made_record()
    early = summarise(whole, until=100)
    assert (early.steps["rows"], early.steps["last"]) == (100, 100)
    assert early.fitted.fit.n == 100
    held_out = next(line for line in early.charts["forecast"][0].lines if line.role == "held_out")
    assert held_out.x[0] == 101
    drawn = (early.screen.chart, *early.screen.sparks, *early.screen.others)
    assert max(x for chart in drawn for line in chart.lines for x in line.x) <= 100
    assert whole.rollouts is not None
    seen = pl.col("step") <= 100
    again = summarise(
        dataclasses.replace(
            whole, steps=whole.steps.filter(seen), rollouts=whole.rollouts.filter(seen)
        )
    )
    assert again.fitted.fit.as_dict() == early.fitted.fit.as_dict()


def test_a_fit_whose_steps_are_several_updates_says_how_many() -> None:
    """Of one update a step there is nothing to say."""
    rise = [0.8 - 0.6 * 0.95**t for t in range(60)]
    for each, said in ((1, False), (4, True)):
        steps = steps_table(
            range(1, 61), {"reward": rise}, optimizer_updates=each * np.arange(1.0, 61)
        )
        fitted = fit_metric(RunRecord("made", steps), "reward")
        assert (f"Updates are counted, {each} a step." in fitted.notes) is said


def test_at_asks_for_steps_in_their_order(made_record: Make) -> None:
    fitted = fit_metric(made_record(), "reward", ahead=ForecastRequest([900, 310]))
    assert fitted.outlook is not None
    assert [row.step for row in fitted.outlook.rows] == [900, 310]
    assert fitted.outlook.gain_to == 900


@pytest.mark.parametrize(("name", "value"), [("until", 0.0), ("at", [0.0]), ("at", [float("nan")])])
def test_steps_out_of_the_log_are_refused(made_record: Make, name: str, value: object) -> None:
    with pytest.raises(InvalidArgumentError, match=r"^expected (a step of|steps to forecast)"):
        summarise(made_record(), **{name: value})  # type: ignore[arg-type]


def test_a_metric_that_is_not_there_is_refused_with_those_that_are(made_record: Make) -> None:
    with pytest.raises(MissingMetricError, match="entropy"):
        summarise(made_record(), metric="nope")


def test_too_few_rows_give_a_page_that_says_so() -> None:
    short = summarise(RunRecord("short", steps_table([1, 2], {"reward": [0.1, 0.2]})))
    assert short.judgement.state is State.CANNOT_TELL
    assert short.fitted.fit.status == "unavailable"
    assert to_json(short.as_dict())


def test_a_log_without_a_reward_has_a_page_that_says_what_to_log() -> None:
    bare = summarise(
        RunRecord("bare", steps_table(range(40), {"entropy": np.linspace(1, 0.5, 40)}))
    )
    assert bare.judgement.state is State.CANNOT_TELL
    assert bare.fitted.problem.startswith("expected a metric of bare, got 'reward'")
    assert bare.judgement.headline in render([bare])


def test_a_run_that_goes_on_is_failing_and_one_that_ended_failed() -> None:
    dead = RunRecord(
        "dead",
        steps_table(
            range(100), {"reward": [0.8 + 0.01 * (-1) ** t for t in range(60)] + [0.0] * 40}
        ),
    )
    assert summarise(dead).judgement.state is State.FAILED
    assert summarise(dead, ended=False).judgement.state is State.FAILING
    assert summarise(dead).as_dict()["judgement"]["state"] == "failed"


def test_a_log_of_the_reward_alone_has_its_reward_and_its_law_alone() -> None:
    rng = np.random.default_rng(0)
    bare = summarise(
        RunRecord("bare", steps_table(range(80), {"reward": 0.5 + rng.normal(0, 0.1, 80)}))
    )
    assert (bare.screen.sparks, bare.screen.others) == ((), ())
    assert [tile.name for tile in bare.screen.tiles] == ["Now", "Peak", "Start", "Rows"]
    assert "group_size" not in bare.charts


@pytest.mark.parametrize("stops", [True, False])
def test_what_a_verdict_rests_on_has_its_chart(*, stops: bool, tmp_path: Path) -> None:
    """Under the log's own key, where no quantity has the name of the sign; turns that stand have
    none. Keys without a known meaning are named.
    """
    rows = [
        {
            "step": t,
            "critic/score/mean": (0.6 if t < 60 else 0.1) + 0.01 * (-1) ** t,
            "num_turns/mean": (2.0 if stops and t >= 58 else 6.0) + 0.05 * (-1) ** t,
            "response_length/mean": 500.0 - 440.0 * (t >= 60) + t % 5,
            "style_share": 0.5,
        }
        for t in range(1, 101)
    ]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    run = summarise(run_record(tmp_path / "log.jsonl"))
    charts = {chart.subject: chart for chart in (*run.screen.sparks, *run.screen.others)}
    assert run.judgement.alarm
    assert [sign.signal for sign in run.judgement.signs if sign.signal == "tool_calls"] == (
        ["tool_calls"] * stops
    )
    assert ("num_turns/mean" in charts) is stops
    assert ("num_turns/mean" in [tile.name for tile in run.screen.tiles]) is stops
    assert run.unknown_columns == ("style_share",)
    assert "1 key without a known meaning: style_share." in render([run])


def test_many_functions_are_cut_at_a_page() -> None:
    rng = np.random.default_rng(0)
    names = [f"f{i}" for i in range(30)]
    table = steps_table(
        range(40), {"reward": rng.normal(size=40)} | {name: rng.normal(size=40) for name in names}
    )
    meanings = tuple(Meaning(name, f"reward/{name}", "") for name in names)
    assert len(summarise(RunRecord("many", table, meanings=meanings)).screen.sparks) == 4
    assert len(summarise(RunRecord("many", table, meanings=meanings)).screen.others) == 4


def test_spikes_do_not_crush_an_axis_and_are_told(summary: Summary) -> None:
    norm = next(
        chart
        for chart in (*summary.screen.sparks, *summary.screen.others)
        if chart.key == "gradient_norm"
    )
    assert norm.y_range is not None
    assert norm.y_range[1] < 5
    assert "1 row lies outside the axis; the furthest is 50." in norm.caption


def test_cut_keeps_rollouts_in_step(made_record: Make) -> None:
    early = cut(made_record(), 50)
    assert early.rollouts is not None
    assert int(early.rollouts["step"].max()) <= 50  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="1 to 300"):
        cut(made_record(), -3)


def test_provenance_can_be_made_twice_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    made = made_by(["report", "x\x1b"])
    assert made["date"] == "1970-01-01 00:00 UTC"
    assert "\x1b" not in made["command"]
    assert set(made["packages"]) == {"groupwise", "numpy", "scipy", "polars"}


def test_pages_of_several_runs_have_a_part_of_the_points_and_completions() -> None:
    assert page_room(1) == (600, 100)
    assert page_room(3) == (200, 33)
    assert page_room(50) == (120, 12)  # the fewest
