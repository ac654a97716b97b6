"""A run as an object: judged once, shown in a notebook, fitted, forecast, drawn and reported, and
what it refuses, in one line.
"""

from __future__ import annotations

import builtins
import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.cases import each_case
from tests.golden.sentences import says

import groupwise as gw
from groupwise.analysis.fitted import fit_metric
from groupwise.api.run import run_of
from groupwise.cli.app import main
from groupwise.diagnostics import judge as judging
from groupwise.diagnostics.judgement import Cause, Certainty, State
from groupwise.errors import (
    GroupwiseError,
    InvalidArgumentError,
    MissingMetricError,
    OverwriteError,
)
from groupwise.estimators.best_group_size import Budget
from groupwise.examples import trl_run
from groupwise.forecasting import fit as of_fit
from groupwise.forecasting import forecast as of_forecast
from groupwise.forecasting.results import Forecast
from groupwise.intervals import Interval
from groupwise.plain import to_json
from groupwise.record.run import Meaning, RunRecord, steps_table
from groupwise.wording import in_python

HOSTILE = "</pre><script>alert(1)</script><svg onload=alert(2)> $\\frac$ \x1b[31m\u202e"
RISE = [round(0.8 - 0.6 * 0.95**t + 0.02 * (-1) ** t, 4) for t in range(100)]
COLLAPSE = [*RISE, *[0.1, 0.12] * 25]


def log(folder: Path, reward: list[float], *, every: int = 1) -> Path:
    """A CSV log of a reward."""
    path = folder / "math.csv"
    path.write_text(
        "step,reward\n" + "".join(f"{every * (t + 1)},{r}\n" for t, r in enumerate(reward))
    )
    return path


@pytest.fixture
def good(tmp_path: Path) -> gw.Run:
    return gw.open_run(log(tmp_path, RISE))


@pytest.fixture
def failed(tmp_path: Path) -> gw.Run:
    return gw.open_run(log(tmp_path, COLLAPSE))


def without(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    """Make a package as good as not installed."""
    real = builtins.__import__

    def absent(name: str, *given: Any, **more: Any) -> Any:
        if name.split(".", maxsplit=1)[0] == package:
            raise ImportError(name)
        return real(name, *given, **more)

    monkeypatch.setattr(builtins, "__import__", absent)


def test_a_run_is_a_record_and_says_little_of_itself(good: gw.Run) -> None:
    assert isinstance(good, RunRecord)
    says("api/run/1", repr(good))
    assert good.opened is not None
    assert good.opened.name == "math.csv"
    says("api/run/2", repr(gw.Run("none", steps_table([], {}))))


def test_the_judgement_is_made_once_and_anew_for_another_record(
    good: gw.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, real = [], judging.judge

    def counted(record: RunRecord, **asked: Any) -> Any:
        calls.append(record.name)
        return real(record, **asked)

    monkeypatch.setattr(judging, "judge", counted)
    assert good.judgement is good.judgement
    str(good)
    good._repr_html_()
    assert calls == ["math.csv"]
    other = dataclasses.replace(good, name="other")
    assert other.judgement.run == "other"
    assert calls == ["math.csv", "other"]


def test_a_run_prints_what_diagnose_prints(
    failed: gw.Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diagnose", str(failed.opened)]) == 1
    assert capsys.readouterr().out.rstrip("\n") == str(failed)
    assert str(failed).startswith("✗ FAILED  math.csv  reward 0.79 → 0.11, collapsed at step 101\n")


def test_where_the_terminal_is_not_utf_8_it_prints_ascii(
    failed: gw.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Latin:
        encoding = "latin-1"

    monkeypatch.setattr(sys, "stdout", Latin())
    shown = str(failed)
    monkeypatch.undo()
    assert shown.startswith("x FAILED  math.csv  reward 0.79 -> 0.11")
    assert shown.isascii()


def test_a_notebook_shows_the_judgement_with_the_curve_in_bars(failed: gw.Run) -> None:
    shown = failed._repr_html_()
    assert shown.startswith("<pre>✗ FAILED  math.csv  reward 0.79 → 0.11, collapsed at step 101\n")
    assert re.search(r"reward [▁-█]{40}</pre>$", shown)


def test_a_run_by_the_name_of_a_metric_is_its_column_with_nan_where_a_row_has_none() -> None:
    run = gw.Run("two", steps_table([1, 2], {"reward": [0.25, None], "kl": [1.0, 2.0]}))
    np.testing.assert_array_equal(run["reward"], [0.25, np.nan])
    assert run["kl"].tolist() == [1.0, 2.0]
    with pytest.raises(MissingMetricError, match="got 'nope'"):
        run["nope"]


def test_a_hostile_log_is_neither_markup_nor_control(tmp_path: Path) -> None:
    table = steps_table(range(1, 151), {HOSTILE: COLLAPSE})
    meaning = Meaning(HOSTILE, "reward", HOSTILE)
    run = gw.Run(HOSTILE, table, meanings=(meaning,))
    shown = run._repr_html_()
    assert "<script" not in shown
    assert "onload=alert(2)>" not in shown
    for text in (shown, repr(run), str(run), str(run.judgement)):
        assert "\x1b" not in text
        assert "\u202e" not in text
    page = run.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<script>alert" not in page


def test_a_report_holds_the_judgement_of_the_command(
    failed: gw.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = failed.report(tmp_path / "page.html")
    embedded = re.search(r'id="groupwise-results">(.*?)</script>', page.read_text(encoding="utf-8"))
    assert embedded is not None
    held = json.loads(embedded[1])["runs"][0]["judgement"]
    assert main(["report", str(failed.opened), "--json"]) == 1
    assert held == json.loads(capsys.readouterr().out)["runs"][0]["judgement"]
    assert held == json.loads(json.dumps(failed.judgement.as_dict()))
    with pytest.raises(OverwriteError, match="force=True"):
        failed.report(page)
    assert gw.report([failed, str(failed.opened)], page, force=True) == page
    assert "2 runs" in page.read_text(encoding="utf-8")
    with pytest.raises(
        InvalidArgumentError, match=r"^expected a run, got none: give one run or a list of runs$"
    ):
        gw.report([], tmp_path / "other.html")
    with pytest.raises(OverwriteError, match="is one of the logs, which are never overwritten"):
        failed.report(str(failed.opened), force=True)


@pytest.mark.slow
def test_the_function_report_outlives_the_room_of_its_name() -> None:
    script = (
        "import groupwise as gw, groupwise.pages.html; assert callable(gw.report), gw.report; "
        "import sys; print(gw.report.__name__)"
    )
    out = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert out == "report\n"


def test_steps_are_steps(tmp_path: Path) -> None:
    """A row every ten steps, two updates a step: everything is said in steps, and rows are forecast
    where they would be logged.
    """
    step = np.arange(10, 1010, 10)
    run = gw.Run(
        "slow",
        steps_table(
            step.tolist(), {"reward": RISE}, optimizer_updates=2 * step, window=np.full(100, 20.0)
        ),
    )
    assert repr(run).startswith("Run('slow', 100 rows, steps 10 to 1,000, ")
    ahead = run.forecast(to=1100)
    assert [row.step for row in ahead.rows] == [
        1010,
        1020,
        1030,
        1040,
        1050,
        1060,
        1070,
        1080,
        1090,
        1100,
    ]
    assert {type(row.step) for row in ahead.rows} == {int}
    assert [row.step for row in run.forecast(at=[1200, 1400.0]).rows] == [1200, 1400]
    half = run.forecast(to=1100, level=0.5)
    assert half.result.level == 0.5
    assert half.rows[-1].high - half.rows[-1].low < ahead.rows[-1].high - ahead.rows[-1].low
    assert len(run.forecast(to=9_000).rows) == 200
    assert run.forecast(to=9_000).rows[-1].step == 9000
    assert run.fit().time_T.tolist() == step.tolist()
    lost = np.array([*RISE[:60], *[0.1, 0.12] * 20])
    broken = dataclasses.replace(run, steps=run.steps.with_columns(reward=lost))
    assert broken.fit().change_time == 610.0
    assert str(broken.fit()) == "The law is fitted to all rows and does not explain the failure."
    assert broken.forecast(to=1100).rows == ()
    beside = fit_metric(broken, "reward").in_steps(run.judgement)
    assert str(beside).endswith(" from step 610 on.")


def test_the_mathematics_is_that_of_the_commands(
    good: gw.Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", str(good.opened), "--json"]) == 0
    assert good.fit().as_dict()["parameters"] == json.loads(capsys.readouterr().out)["parameters"]
    assert main(["forecast", str(good.opened), "--at", "150,200", "--json"]) == 0
    assert (
        json.loads(json.dumps(good.forecast(at=[150, 200]).as_dict()["forecast"]))
        == json.loads(capsys.readouterr().out)["forecast"]
    )


def test_a_run_a_path_a_record_and_arrays_get_one_answer(good: gw.Run) -> None:
    record = RunRecord("run", steps_table(range(1, 101), {"reward": RISE}))
    given: list[Any] = [
        good,
        str(good.opened),
        good.opened,
        record,
        RISE,
        np.array(RISE),
        [range(1, 101), RISE],
    ]
    assert {gw.judge(setting).headline for setting in given} == {good.judgement.headline}
    # A path is opened in one place, and a record is made of arrays in one: each kind once.
    path, arrays = str(good.opened), [range(1, 101), RISE]
    assert {str(gw.fit(source)) for source in (path, record, arrays)} == {str(good.fit())}
    assert {gw.forecast(source, to=200).rows[-1].step for source in (path, arrays)} == {200}
    assert gw.forecast(record, at_S=[150]).rows[-1].step == 150
    assert gw.judge(range(1, 101), RISE).headline == good.judgement.headline
    assert [gw.judge(COLLAPSE, ended=ended).state.value for ended in (True, False)] == [
        "failed",
        "failing",
    ]
    assert gw.forecast(list(range(1, 101)), RISE, to=200).rows[-1].step == 200


def test_arrays_go_to_the_mathematics_as_before() -> None:
    t, y = np.arange(100.0), np.array(RISE)
    given: dict[str, Any] = {"variance_T": np.full(100, 4e-4), "smoothing": 1, "window": 2.0}
    assert (
        gw.fit(t, y, law="exponential", **given).as_dict()
        == of_fit.fit(t, y, law="exponential", **given).as_dict()
    )
    asked: dict[str, Any] = {"bounds": (0.0, 1.0)}
    assert (
        gw.forecast(t, y, [120.0], **asked).as_dict()
        == of_forecast.forecast(t, y, [120.0], **asked).as_dict()
    )


def test_to_pandas_is_the_table_of_steps() -> None:
    pandas = pytest.importorskip("pandas")
    run = gw.Run("two", steps_table([1, 2], {"reward": [0.25, None]}))
    table = run.to_pandas()
    assert isinstance(table, pandas.DataFrame)
    assert list(table.columns) == [
        "step",
        "optimizer_updates",
        "window",
        "tokens",
        "seconds",
        "reward",
    ]
    assert table["step"].tolist() == [1, 2]
    assert table["reward"].isna().tolist() == [False, True]


def test_without_pandas_one_line_says_what_to_do(
    good: gw.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(
        GroupwiseError, match=r"^expected pandas to be .* run\.steps, .*: pip install pandas$"
    ):
        good.to_pandas()


def test_every_result_prints_a_sentence_and_its_repr_is_that_and_no_more() -> None:
    values = np.array([0.5])
    level = Interval(0.8, 0.7, 0.9)
    ahead = Forecast(
        "forecast",
        "",
        0.9,
        np.array([400.0]),
        values,
        values - 0.1,
        values + 0.1,
        values - 0.2,
        values + 0.2,
        level,
    )
    between = Cause(
        Certainty.CANNOT_TELL, ("harder data", "a broken verifier"), ("the completions",)
    )
    judged = gw.Judgement(
        "math",
        State.FAILED,
        "reward 0.79 → 0.00, collapsed at steps 75-100",
        cause=between,
        do="restart from step 70",
    )
    said = {
        (
            "The mean is forecast to be 0.50 (0.40 to 0.60) by update 400, and single rows "
            "there 0.30 to 0.70 (90 % bands)."
        ): ahead,
        (
            "FAILED: Reward 0.79 → 0.00, collapsed at steps 75-100. Cannot tell: harder data, "
            "or a broken verifier. Do: Restart from step 70."
        ): judged,
        ("Flat: every one of 30 rows is exactly 0.5; a live metric would vary."): gw.fit(
            [0.5] * 30
        ),
        (
            "There is no forecast: the reward is 0.50 in all 30 rows, which cannot show whether "
            "the run learns."
        ): gw.forecast([0.5] * 30, to=40),
    }
    for sentence, result in said.items():
        assert str(result) == sentence
        assert repr(result) == f"{type(result).__name__}({sentence!r})"


def test_a_run_without_rollouts_has_no_completions_to_read(good: gw.Run) -> None:
    rows: Any
    for rows, name in ((None, "NoneType"), ([0], "list")):
        with pytest.raises(InvalidArgumentError) as refused:
            good.with_completions(rows)
        says("api/run/3", str(refused.value), type=name)


@each_case("answer", ["fit", "forecast", "plan"])
@each_case("reward", [RISE, COLLAPSE, [0.5] * 40])
def test_an_object_says_what_its_command_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], answer: str, reward: list[float]
) -> None:
    path = log(tmp_path, reward)
    run = gw.open_run(path)
    assert main([answer, str(path)]) == 0
    shown = " ".join(in_python(capsys.readouterr().out).split())
    said = str(getattr(run, answer)()).removeprefix(f"{run.judgement.fact} ")
    if run.judgement.alarm and answer == "fit":
        return  # the judgement dates the failure, of which the command fits no law
    assert {line for line in said.splitlines() if " ".join(line.split()) not in shown} == set()


def test_of_a_run_that_failed_there_is_no_forecast(failed: gw.Run) -> None:
    fact = "FAILED: Reward 0.79 → 0.11, collapsed at step 101."
    none = "There is no forecast: rows after a failure say nothing about what comes next."
    assert str(failed.forecast(to=200)) == f"{fact} {none}"
    assert str(failed.judgement).startswith(fact)


def test_a_plan_finds_the_components_beside_an_opened_run(tmp_path: Path) -> None:
    from groupwise.analysis.components import path_beside, save_components
    from groupwise.estimators.components import components

    run = gw.open_run(log(tmp_path, RISE), settings={"group_size": "8", "prompts_per_step": "4"})
    assert gw.plan(run).plan is None
    rng = np.random.default_rng(0)
    score, reward = rng.normal(size=(320, 4)), rng.integers(2, size=320)
    estimate = components(reward, np.repeat(np.arange(40), 8), score_ND=score)
    assert run.opened is not None
    save_components(estimate, path_beside(run.opened), provenance={})
    plan = gw.plan(run)
    assert plan.plan is not None
    assert str(plan.plan) == plan.plan.status
    assert str(estimate) == estimate.status
    assert run.plan().as_dict() == plan.as_dict()
    smaller = run.plan(budget=Budget(16.0)).plan
    assert smaller is not None
    assert smaller.budget.amount == 16


def test_a_run_says_its_plan_and_its_stability_as_the_commands_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = gw.open_run(trl_run())
    for command, result in (
        ("plan", run.plan()),
        ("stability --metric reward --until 200", run.stability(metric="reward", until=200)),
    ):
        name, *options = command.split()
        assert main([name, str(trl_run()), *options, "--json"]) == 0
        said = json.loads(capsys.readouterr().out)
        of_the_run = json.loads(to_json(result))
        assert {key: said[key] for key in said if key not in {"state", "headline"}} == of_the_run
    assert str(result) == of_the_run["said"]
    with pytest.raises(MissingMetricError, match="expected a reward, got entropy: the force is"):
        run.stability(metric="entropy")


@each_case(
    ("asked", "message"),
    [
        (
            lambda run: run.forecast(to=100),
            "expected a whole step after 100 for to, got 100: give a later one",
        ),
        (
            lambda run: run.forecast(to=150.5),
            "expected a whole step after 100 for to, got 150.5: give a later one",
        ),
        (
            lambda run: run.forecast(to=float("nan")),
            "expected a whole step after 100 for to, got nan: give a later one",
        ),
        (
            lambda run: run.forecast(to=200, at=[150]),
            "expected one of to= and at=, got both: leave one out",
        ),
        (
            lambda run: gw.forecast([1, 2], [1, 2], [3], to=4),
            "expected to= or at_S, got both: leave one of them out",
        ),
        (
            lambda run: gw.fit(run, window=2.0),
            "expected window only with arrays, got a run: leave it out",
        ),
        (
            lambda run: gw.fit(run, [1.0]),
            "expected a run, or steps and values, got a run and values: leave one of them out",
        ),
        (
            lambda run: gw.judge(run, [1.0]),
            "expected a run, or steps and values, got a run and values: leave one of them out",
        ),
        (
            lambda run: gw.judge([1, 2], [1.0]),
            "expected as many steps as values, got 2 and 1: give one step per value",
        ),
        (
            lambda _: gw.judge(5),
            "expected a run, a path or numbers, got int: give one of them, or open_run(rows)",
        ),
        (
            lambda _: gw.report(5),
            "expected a run, a path or numbers, got int: give one of them, or open_run(rows)",
        ),
        (lambda _: gw.open_run(5), "expected the path of a log, got int: give it as text"),
        (lambda _: gw.open_run(b"a"), "expected the path of a log, got bytes: give it as text"),
        (
            lambda _: gw.plan(None),  # type: ignore[arg-type]
            "expected a run, a path or numbers, got NoneType: give one of them, or open_run(rows)",
        ),
        (lambda run: run.report(5), "expected the path of a page, got int: give it as text"),
        (
            lambda run: run.forecast(to="x"),
            "expected a whole step after 100 for to, got 'x': give a later one",
        ),
        (
            lambda _: gw.stability("a", 0.9),  # type: ignore[arg-type]
            "stability expects numbers, got a run: open_run(RUN).stability() measures a run",
        ),
        (lambda _: gw.stability(0.1, None), "expected a number, got None: convert it"),  # type: ignore[arg-type]
        (
            lambda run: gw.judge([2, 1], [0.1, 0.2]),
            (
                "expected strictly increasing steps, got one that is missing, repeated or smaller: "
                "sort the rows"
            ),
        ),
        (
            lambda run: gw.judge([1.5, 2.0], [0.1, 0.2]),
            (
                "expected whole-number steps, got other numbers: give the steps of the log, or "
                "use fit(times, values) for another clock"
            ),
        ),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(good: gw.Run, asked: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        asked(good)
    assert str(refused.value) == message


def test_a_metric_that_is_not_there_is_named() -> None:
    run = gw.open_run(trl_run())
    for ask in (run.fit, run.forecast):
        with pytest.raises(MissingMetricError, match=r"^expected a metric of trl_run, got 'nope'"):
            ask(metric="nope")


@each_case("rows", [[], [0.5], [0.1, 0.2], [float("nan")] * 30])
def test_a_run_that_cannot_answer_returns_a_result_that_says_why(rows: list[float]) -> None:
    """What was asked for wrongly is refused all the same."""
    assert gw.judge(rows).state is State.CANNOT_TELL
    fit, ahead, stability = gw.fit(rows), gw.forecast(rows, to=40), run_of(rows).stability()
    assert (fit.status, fit.parameters, ahead.rows) == ("unavailable", {}, ())
    assert str(fit).startswith("A fit needs at least 3 finite values; the series has ")
    assert str(ahead).startswith("There is no forecast: ")
    assert ahead.as_dict()["status"] == str(ahead.result.status) == "unavailable"
    assert stability.evidence.verdict == "unavailable"
    assert str(stability).startswith("Unavailable: a fit needs at least 3 finite values")
    assert gw.replay(rows).unavailable == str(gw.replay(rows)) != ""
    assert gw.plan(rows).missing.startswith("Zero-variance groups are not logged.")
    for result in (fit, ahead, stability, gw.replay(rows), gw.plan(rows)):
        assert json.loads(to_json(result))
    with pytest.raises(MissingMetricError):
        run_of(rows).fit(metric="nope")


def test_a_log_without_a_reward_has_no_fit_and_says_what_it_has() -> None:
    run = gw.open_run({"step": list(range(40)), "entropy": [1 / (1 + t) for t in range(40)]})
    for said in (run.fit().message, run.forecast(at=50).result.message):
        assert "xpected a metric of run, got 'reward'" in said
    assert run.fit(metric="entropy").status != "unavailable"


def test_an_error_names_arguments_where_the_command_names_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "other.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(GroupwiseError) as refused:
        gw.open_run(path)
    assert main(["diagnose", str(path)]) == 2
    said = capsys.readouterr().err.removeprefix("groupwise: ").rstrip("\n")
    assert "--" in said
    assert "--" not in str(refused.value)
    assert str(refused.value) == in_python(said)
    path.write_text("step,reward\n" + "".join(f"{t},{t / 40}\n" for t in range(40)))
    assert 'give settings={"prompts_per_step": "B", "group_size": "G"}.' in str(gw.plan(path))
    assert in_python("probe RUN regrade --function F") == "probe RUN regrade --function F"


def test_a_log_in_memory_is_read_as_its_file_is(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    columns = {"step": list(range(1, 101)), "reward": RISE, "kl": [None, *[0.01] * 99]}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    rows.append({"step": 100, "train_runtime": 5.0})  # as at the end of a trainer's log_history
    path = tmp_path / "run.json"
    path.write_text(json.dumps(rows))
    wanted = gw.open_run(path)
    for given in (rows, columns, pl.DataFrame(columns), pandas.DataFrame(columns)):
        run = gw.open_run(given, settings={"group_size": 8})  # type: ignore[dict-item]
        assert run.judgement.headline == gw.judge(given).headline == wanted.judgement.headline
        assert str(gw.fit(given)) == str(wanted.fit())
        assert run["kl"][1:].tolist() == wanted["kl"][1:].tolist()
        assert (run.sources, run.config.value("group_size")) == ((), 8)
        assert gw.report(given, tmp_path / "one.html", force=True).exists()
    # a list of such is a run each
    several = gw.report([columns, rows, pl.DataFrame(columns)], tmp_path / "three.html")
    page = re.sub("<wbr>|</?b>", "", several.read_text(encoding="utf-8"))
    assert "<h1>3 runs</h1>" in page
    assert "groupwise-rows" not in page
    # numbers are values as before, and what is neither is named
    assert gw.judge(RISE).headline == gw.judge(pl.Series(RISE)).headline
    with pytest.raises(InvalidArgumentError, match=r"got list: give one of them, or open_run"):
        gw.judge(["a", "b"])


@each_case(
    ("given", "said"),
    [
        (
            [{"a": 1, "b": 2}],
            (
                "expected a log, got the given table, which has neither steps nor a known metric: "
                'name them with columns={"step": "NAME"}'
            ),
        ),
        (
            [],
            (
                "expected rows with numbers, got none in the given table: give the log of a run, "
                "or wait for its first row"
            ),
        ),
        (
            {"step": [1, 2], "reward": ["x", "y"]},
            "expected numbers beside the step, got none in the given table: give the log of a run",
        ),
    ],
)
def test_an_error_of_a_log_in_memory_names_no_file_and_no_option(given: Any, said: str) -> None:
    with pytest.raises(GroupwiseError) as refused:
        gw.open_run(given)
    assert str(refused.value) == said


def test_a_data_frame_with_two_columns_of_one_name_is_refused() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame([[1, 0.5, 0.6], [2, 0.7, 0.8]], columns=["step", "reward", "reward"])
    with pytest.raises(InvalidArgumentError, match=r"got step, reward, reward: rename"):
        gw.open_run(frame)
    frame.columns = ["step", "reward", "other"]
    assert gw.open_run(frame)["reward"].tolist() == [0.5, 0.7]


def test_a_plan_says_first_that_a_run_needs_attention() -> None:
    """One that is well has its plan alone."""
    run = run_of(0.3 + np.random.default_rng(1).normal(0, 0.02, 150))
    assert run.judgement.state is State.WARNING
    assert str(run.plan()).startswith(f"Fix the run first. {run.judgement.fact} ")
    assert str(run_of(RISE).plan()).startswith("Zero-variance groups are not logged.")


@each_case("name", ["components", "plan_group_size", "reward_statistics", "stability"])
def test_a_function_of_numbers_says_in_one_line_what_a_run_needs(name: str) -> None:
    for given in (trl_run(), str(trl_run()), gw.open_run(trl_run())):
        with pytest.raises(gw.GroupwiseError, match=rf"^{name} expects numbers, got a run: .+RUN"):
            getattr(gw, name)(given)
    with pytest.raises(TypeError, match="missing"):  # numbers that lack some are no run
        getattr(gw, name)([0.5, 1.0])


def test_what_a_user_would_pass_is_taken_or_named() -> None:
    run = gw.open_run(trl_run())
    assert gw.replay(trl_run()) == run.replay()
    assert run.plan(budget=64) == run.plan(budget=gw.Budget(64)) == gw.plan(run, budget=64.0)
    assert [row.step for row in run.forecast(at=400).rows] == [400]
    with pytest.raises(gw.GroupwiseError, match="expected a metric of trl_run, got '0'"):
        run[0]  # type: ignore[index]
    for wrong in (run, None):
        with pytest.raises(gw.GroupwiseError, match="expected the path of a file of components"):
            gw.load_components(wrong)  # type: ignore[arg-type]
    with pytest.raises(gw.GroupwiseError, match="expected components to save, got Run: give"):
        gw.save_components(run, "components.json", provenance={})  # type: ignore[arg-type]
