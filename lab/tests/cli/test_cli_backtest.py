"""The commands `backtest` and `calibrate`: shares, runs and clusters, and a table that forecasts
take.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from lab.tests import commands as cli
from lab.tests.commands import printed, refused
from tests.conftest import once

from groupwise.files import table_rows
from groupwise.forecasting.forecast import read_calibration
from groupwise.plain import to_json
from groupwise_lab.forecasts import calibrate
from groupwise_lab.forecasts import runs as runs_module


def written(path: Path, seed: int, rows: int = 60) -> Path:
    """A CSV log that learns from .2 to .8."""
    step = np.arange(1, rows + 1)
    reward = (
        0.8
        - 0.6 * np.exp(-step / (10 + 7 * seed))
        + np.random.default_rng(seed).normal(0, 0.03, rows)
    )
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        "step,reward\n" + "".join(f"{s},{r:.5f}\n" for s, r in zip(step, reward, strict=True))
    )
    return path


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("log") / "run.csv", 0, 200)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Four runs of three clusters."""
    folder = tmp_path_factory.mktemp("runs")
    return [
        str(written(folder / name, seed))
        for seed, name in enumerate(("alpha_1.csv", "alpha_2.csv", "beta.csv", "gamma.csv"))
    ]


@pytest.fixture(scope="module", autouse=True)
def _foretold_once() -> Iterator[None]:
    """Foretell a run from a share once: what is tested is what the commands make of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs_module, "trial_of", once(runs_module.trial_of))
        yield


@pytest.mark.usefixtures("few_rivals")
def test_backtest_takes_the_shares_that_are_asked_for(
    capsys: pytest.CaptureFixture[str], log: Path
) -> None:
    answer = printed(capsys, "backtest", str(log), "--from", "0.4")
    assert [run["n_train"] for run in answer["runs"]] == [80]
    two = printed(capsys, "backtest", str(log), "--from", ".3", "--from", ".5")
    assert [run["n_train"] for run in two["runs"]] == [60, 100]


@pytest.mark.usefixtures("few_rivals")
def test_a_share_whose_rows_do_not_move_is_left_out_alone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "late.csv"
    path.write_text(
        "step,reward\n"
        + "".join(f"{i},{max(0, i - 15) / 40 + 0.01 * (i > 15) * (i % 2)}\n" for i in range(1, 61))
    )
    answer = printed(capsys, "backtest", str(path))
    assert [run["share"] for run in answer["runs"]] == [0.4, 0.6]
    assert "6 rows seen" not in str(answer["left_out"])
    assert [entry["reason"] for entry in answer["left_out"]] == [
        "every one of the 8 rows seen is exactly 0: there is no band to score",
        "every one of the 12 rows seen is exactly 0: there is no band to score",
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("few_rivals")
def test_backtest_shows_runs_where_that_is_asked_for(
    capsys: pytest.CaptureFixture[str], log: Path
) -> None:
    for flags, shown in (([], 0), (["-v"], 4)):
        assert cli.main(["backtest", str(log), *flags]) == 0
        assert capsys.readouterr().out.count("run.csv") == shown


@pytest.mark.usefixtures("few_rivals")
def test_backtest_stretches_by_the_table_that_is_given(
    capsys: pytest.CaptureFixture[str], log: Path, tmp_path: Path
) -> None:
    table = tmp_path / "table.json"
    table.write_text(to_json(calibrate.written(calibrate.UNCALIBRATED)))
    shipped, bare = (
        printed(capsys, "backtest", str(log), *given)
        for given in ((), ("--calibration", str(table)))
    )
    others = [
        {name: error for name, error in score["runs"][0]["errors"].items() if name != "groupwise"}
        for score in (shipped, bare)
    ]
    assert others[0] == others[1]
    assert (
        shipped["runs"][0]["interval_scores"]["groupwise"]
        != bare["runs"][0]["interval_scores"]["groupwise"]
    )
    table.write_text("{}")
    assert "expected a table as groupwise-lab calibrate writes it" in refused(
        capsys, "backtest", str(log), "--calibration", str(table)
    )
    assert "cannot be read" in refused(capsys, "backtest", str(log), "--calibration", str(tmp_path))
    os.mkfifo(tmp_path / "fifo")
    assert "fifo is no file" in refused(
        capsys, "backtest", str(log), "--calibration", str(tmp_path / "fifo")
    )


@pytest.mark.slow
@pytest.mark.usefixtures("few_rivals")
def test_calibrate_writes_a_table_that_forecasts_take(
    capsys: pytest.CaptureFixture[str], runs: list[str], tmp_path: Path
) -> None:
    table = tmp_path / "table.json"
    answer = printed(capsys, "calibrate", *runs, "-o", str(table))
    assert (answer["table"]["runs"], answer["table"]["clusters"]) == (4, 3)
    assert set(answer) == {"table", "by_others", "uncalibrated", "left_out"}
    for scores in (answer["by_others"], answer["uncalibrated"]):
        assert [
            (share["share"], share["runs"], share["clusters"]) for share in scores["shares"]
        ] == [(share, 4, 3) for share in (0.1, 0.2, 0.4, 0.6)]
        assert set(scores["ratios"]) == {"last_mean", "smoothing"}
    assert (
        answer["by_others"]["ratios"] != answer["uncalibrated"]["ratios"]
    )  # a table moves the median, too
    assert answer["by_others"]["interval_scores"] != answer["uncalibrated"]["interval_scores"]
    assert json.loads(table.read_text()) == answer["table"]
    assert read_calibration(table.read_text()).clusters == 3
    taken = printed(capsys, "backtest", runs[0], "--calibration", str(table))
    assert (
        taken["runs"][0]["interval_scores"]
        != printed(capsys, "backtest", runs[0])["runs"][0]["interval_scores"]
    )


@pytest.mark.slow
@pytest.mark.usefixtures("few_rivals")
def test_calibrate_prints_what_the_table_is_worth(
    capsys: pytest.CaptureFixture[str], runs: list[str], tmp_path: Path
) -> None:
    table, short = tmp_path / "table.json", written(tmp_path / "short.csv", 9, 39)
    assert cli.main(["calibrate", *runs, str(short), "-o", str(table)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "4 runs in 3 clusters, each foretold by the table of the others" in out
    assert [
        line.split()[0] for line in out.splitlines() if " % " in line and line.strip()[0].isdigit()
    ] == ["10", "20", "40", "60"]
    assert "without a table it held" in out
    assert "Left out short.csv: expected at least 40 rows with reward, got 39" in out
    assert f"The table: {table}" in " ".join(out.split())


@pytest.mark.usefixtures("few_rivals")
def test_two_clusters_make_no_table(
    capsys: pytest.CaptureFixture[str], runs: list[str], tmp_path: Path
) -> None:
    said = refused(capsys, "calibrate", *runs[:3], "-o", str(tmp_path / "table.json"))
    assert "expected runs of at least 3 clusters, got 2 clusters" in said
    assert "add runs of other work" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.usefixtures("few_rivals")
def test_a_table_is_never_overwritten_without_force(
    capsys: pytest.CaptureFixture[str], runs: list[str], tmp_path: Path
) -> None:
    table = tmp_path / "table.json"
    table.write_text("mine")
    assert "--force" in refused(capsys, "calibrate", *runs, "-o", str(table))
    assert table.read_text() == "mine"
    assert cli.main(["calibrate", *runs, "-o", str(table), "--force", "--json"]) == 0
    assert read_calibration(table.read_text()).runs == 4
    capsys.readouterr()
    assert "ends in .json" in refused(capsys, "calibrate", *runs, "-o", str(tmp_path / "table.txt"))


@pytest.mark.slow
@pytest.mark.usefixtures("few_rivals")
def test_a_log_is_never_taken_for_the_table(
    capsys: pytest.CaptureFixture[str], runs: list[str], tmp_path: Path
) -> None:
    log = tmp_path / "run" / "log.json"
    log.parent.mkdir()
    log.write_text(json.dumps([{"step": i, "reward": (i % 7) / 10} for i in range(1, 61)]))
    before = log.read_bytes()
    for given in (log, log.parent):
        assert "one of the logs" in refused(
            capsys, "calibrate", *runs, str(given), "-o", str(log), "--force"
        )
    assert log.read_bytes() == before


@pytest.mark.usefixtures("few_rivals")
def test_calibrate_of_nothing_says_why(
    capsys: pytest.CaptureFixture[str], runs: list[str], tmp_path: Path
) -> None:
    said = refused(capsys, "calibrate", runs[0], "--metric", "nope", "-o", str(tmp_path / "t.json"))
    assert "nope" in said


def test_backtest_prints_scores(
    capsys: pytest.CaptureFixture[str], log: Path, tmp_path: Path
) -> None:
    short = tmp_path / "short.csv"
    short.write_text("step,reward\n1,0.5\n2,0.6\n")
    answer = printed(capsys, "backtest", str(log), str(short))
    assert [(run["run"], run["share"]) for run in answer["runs"]] == [
        ("run.csv", share) for share in (0.1, 0.2, 0.4, 0.6)
    ]
    assert {"groupwise", "last_mean", "smoothing", "power_law", "scalerl_sigmoid"} <= set(
        answer["runs"][0]["errors"]
    )
    assert {
        "ratios",
        "best_simple",
        "coverage",
        "above",
        "below",
        "clusters",
        "runs",
        "crps",
        "shares",
    } <= set(answer["summary"])
    assert [share["share"] for share in answer["summary"]["shares"]] == [0.1, 0.2, 0.4, 0.6]
    assert [len(share["thirds"]) for share in answer["summary"]["shares"]] == [3] * 4
    assert [entry["run"] for entry in answer["left_out"]] == ["short.csv"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--from", "0"], "both excluded (for 90 % write 0.9); got 0"),
        (["--from", "1"], "between 0 and 1"),
        (["--min-rows", "0"], "--min-rows"),
        (["--min-rows", "201"], "201 rows"),
    ],
)
@pytest.mark.usefixtures("few_rivals")
def test_a_share_or_a_number_of_rows_out_of_range_is_one_line(
    capsys: pytest.CaptureFixture[str], log: Path, arguments: list[str], said: str
) -> None:
    assert said in refused(capsys, "backtest", str(log), *arguments)


@pytest.mark.usefixtures("few_rivals")
def test_the_programs_name_each_others_commands(capsys: pytest.CaptureFixture[str]) -> None:
    from groupwise.cli.app import PROGRAM as INSTRUMENT
    from groupwise_lab.cli.app import PROGRAM as LABORATORY

    # Both have probes: the laboratory makes the one that trains.
    assert set(INSTRUMENT.elsewhere) == set(LABORATORY.commands) - set(INSTRUMENT.commands)
    assert LABORATORY.run([]) == 0
    assert "..." not in capsys.readouterr().out.partition("Commands:")[2]  # whole sentences
    for name in INSTRUMENT.elsewhere:
        assert INSTRUMENT.run([name]) == 2
        assert capsys.readouterr().err.endswith(f"then groupwise-lab {name}\n")
        assert LABORATORY.run([name, "--help"]) == 0
        assert f"Usage: groupwise-lab {name}" in capsys.readouterr().out


def test_each_option_of_the_table_is_one_of_its_command() -> None:
    from groupwise_lab.cli import app

    table = Path(app.__file__).with_name("options.tsv")
    for row in table_rows(table):
        taken = {part.name for part in app.PROGRAM.command(row["command"]).params}
        assert row["parameter"] in taken, row
