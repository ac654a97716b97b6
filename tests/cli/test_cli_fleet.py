"""`groupwise fleet`: every run below some folders judged, worst first."""

from __future__ import annotations

import csv
import io
import json
import math
import pickle
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from rich.console import Console
from tests.cases import each_case
from tests.cli.deadly import Deadly
from tests.golden.sentences import says

from groupwise.analysis import fleet as fleets
from groupwise.analysis.fleet import FleetRow, judge_fleet, write_table
from groupwise.cli.app import main
from groupwise.diagnostics.judge import judge
from groupwise.diagnostics.judgement import WORST_FIRST
from groupwise.engine.engine import Engine, Limits, ShardOutcome, ShardStatus
from groupwise.errors import GroupwiseError
from groupwise.pages.fleet import fleet_page, print_fleet
from groupwise.pages.html import made_by
from groupwise.readers import run_record
from groupwise.record.run import RecordWriter

BY_WORKERS = Engine.map
COLLAPSED = [0.8 + 0.01 * (-1) ** step for step in range(40)] + [0.0] * 20
LEARNING = [0.8 - 0.6 * 0.95**step + 0.01 * (-1) ** step for step in range(60)]
HOSTILE = '<img src=x onerror="alert(1)">'


def log(path: Path, rewards: list[float], **more: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "".join(
            json.dumps({"step": step, "reward": reward} | more) + "\n"
            for step, reward in enumerate(rewards)
        )
    )
    return path


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judge in this process, where a test is not about workers: each of them takes seconds to
    start.
    """

    def applied(
        _: Engine, function: Any, shards: dict[str, str], *, limits: Limits, each: Any
    ) -> list[ShardOutcome]:
        outcomes = []
        for name, value in shards.items():
            rows = pickle.loads(pickle.dumps(function))(value)
            outcomes.append(ShardOutcome(name, ShardStatus.DONE, value=rows))
            each(outcomes[-1])
        return outcomes

    monkeypatch.setattr(Engine, "map", applied)


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Real workers."""
    monkeypatch.setattr(Engine, "map", BY_WORKERS)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Five runs: two that learn, one that collapsed, one that is empty and one of three rows."""
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "runs"
    log(home / "a" / "good.jsonl", LEARNING)
    log(home / "b" / "bad.jsonl", COLLAPSED)
    log(home / "c" / "deep" / "good.jsonl", LEARNING)
    log(home / "d" / "short.jsonl", [0.1, 0.2, 0.3])
    (home / "e").mkdir()
    (home / "e" / "empty.jsonl").touch()
    return Path("runs")


def code_and_answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    code = main(["fleet", *arguments, "--json"])
    out = capsys.readouterr()
    return code, json.loads(out.out) if out.out else out.err


def test_every_run_is_one_line_worst_first_with_the_words_of_its_own_diagnosis(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fleet", "runs"]) == 1
    first, *lines = capsys.readouterr().out.splitlines()
    says("cli/cli_fleet/1", first)
    shown = [re.split(r"  +", line)[1] for line in lines]
    assert shown == ["runs/b", "runs/e/empty.jsonl", "runs/d", "runs/a", "runs/c/deep"]
    assert [main(["diagnose", path]) for path in shown] == [1, 2, 3, 0, 0]  # as they are printed
    assert " ".join(lines[0].split()) == f"✗ FAILED runs/b {judge(run_record('runs/b')).headline}"
    assert "which is empty" in lines[1]


def test_the_setting_that_separates_the_runs_is_a_sentence_of_list_page_and_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, rewards, rate in (
        ("a", COLLAPSED, 1e-4),
        ("b", COLLAPSED, 1e-4),
        ("c", LEARNING, 1e-6),
        ("d", LEARNING, 1e-6),
        ("e", LEARNING, 2e-6),
    ):
        log(tmp_path / name / "log.jsonl", rewards)
        (tmp_path / name / "config.json").write_text(json.dumps({"learning_rate": rate}))
    page = tmp_path / "page.html"
    assert main(["fleet", str(tmp_path), "--page", str(page)]) == 1
    said = capsys.readouterr().out.splitlines()[1]
    assert said.startswith(
        "The 3 runs with learning_rate 1e-06, 2e-06 learnt, and the 2 with 0.0001 failed or did not"
    )
    assert said.replace(" %", "\u00a0%") in page.read_text(encoding="utf-8")
    assert code_and_answer(capsys, str(tmp_path))[1]["separates"]["sentence"] == said


def test_the_table_holds_what_the_list_says(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, listed = code_and_answer(capsys, "runs", "-o", "fleet.csv")
    assert code == 1
    table = pl.read_csv("fleet.csv")
    assert table["path"].to_list() == [row["path"] for row in listed["runs"]]
    assert table["state"].to_list() == [row["state"] for row in listed["runs"]]
    assert table["since_step"].to_list() == [40, None, None, None, None]
    log(runs / "a" / "good.jsonl", COLLAPSED)
    assert code_and_answer(capsys, "runs", "-o", "fleet.csv")[1]["counts"]["failed"] == 2
    assert pl.read_csv("fleet.csv")["state"].to_list()[:2] == ["failed", "failed"]


def test_the_list_may_lie_among_the_runs(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert (
            code_and_answer(capsys, "runs", "-o", "runs/table.csv")[1]["counts"]["unreadable"] == 1
        )
    assert code_and_answer(capsys, "runs")[1]["counts"]["unreadable"] == 1


def test_a_run_that_goes_on_is_judged_each_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "fleet.csv"
    writer = RecordWriter(tmp_path / "runs" / "live")
    for step, reward in enumerate(COLLAPSED):
        writer.append({"step": step, "reward": reward})
    assert code_and_answer(capsys, str(tmp_path / "runs"), "-o", str(table))[1]["counts"] == {
        "failing": 1
    }
    writer.close()
    assert code_and_answer(capsys, str(tmp_path / "runs"), "-o", str(table))[1]["counts"] == {
        "failed": 1
    }


def test_every_run_of_a_file_of_several_is_a_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        f"{run},{step},{reward}"
        for run, rewards in (("x", LEARNING), ("y", COLLAPSED))
        for step, reward in enumerate(rewards)
    ]
    (tmp_path / "both.csv").write_text("\n".join(["run,step,reward", *rows]))
    code, document = code_and_answer(capsys, str(tmp_path / "both.csv"))
    assert (code, [(row["part"], row["state"]) for row in document["runs"]]) == (
        1,
        [("y", "failed"), ("x", "ok")],
    )


@each_case(
    ("states", "fail_on", "code"),
    [
        ("ok", "warning", 0),
        ("ok cannot_tell", "warning", 3),
        ("ok unreadable", "warning", 3),
        ("warning", "warning", 1),
        ("warning", "failing", 0),
    ],
)
def test_the_exit_code_is_that_of_the_worst(states: str, fail_on: str, code: int) -> None:
    from groupwise.cli.app import exit_code

    rows = tuple(replace(FleetRow.unreadable(name, "why"), state=name) for name in states.split())
    assert exit_code(fleets.Fleet(rows).states, fail_on=fail_on) == code


@pytest.mark.usefixtures("workers", "forked")
def test_a_run_that_kills_its_worker_is_one_row(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleets, "Judge", Deadly)
    monkeypatch.setattr(fleets, "MEMORY", 1 << 29)
    names = ("deadly", "slow", "huge")
    for name in names:
        log(runs / name / "log.jsonl", LEARNING)
    fleet = judge_fleet([runs], {}, Engine("local", 2), seconds=8.0)
    said = {row.run: row.headline for row in fleet.runs if row.run in names}
    assert fleet.counts == {"failed": 1, "unreadable": 4, "cannot_tell": 1, "ok": 2}
    assert re.search("its worker ended with code 1", said["deadly"])
    assert re.search("took longer than 8 s", said["slow"])
    assert re.search("limit of memory", said["huge"])


def test_a_list_that_cannot_be_written_is_one_sentence_and_the_one_before_stays(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["fleet", "runs", "-o", "fleet.csv"]) == 1
    before = Path("fleet.csv").read_bytes()

    def full(path: Path, content: bytes, **_: Any) -> None:
        raise GroupwiseError(
            f"expected to write {path}, got No space left on device: choose another file with -o"
        )

    monkeypatch.setattr(fleets, "write_whole", full)
    log(runs / "a" / "good.jsonl", COLLAPSED)
    assert main(["fleet", "runs", "-o", "fleet.csv"]) == 2
    assert Path("fleet.csv").read_bytes() == before


@each_case(
    ("arguments", "said"),
    [
        ("nowhere", "does not exist: check the path"),
        ("https://wandb.ai/me/p/runs/a", "does not exist: export the run: only files are read"),
        ("runs/e runs/e/empty.jsonl nowhere", "none of the 2 runs can be read; "),
        (
            "runs -o list.txt",
            "-o expects a name that ends in .csv; got 'list.txt'",
        ),
        (
            "runs -o runs/b/bad.csv",
            "expected a table written by groupwise fleet in runs/b/bad.csv, got another file",
        ),
        ("runs -o runs/b/bad.csv --force", "got another file, which is never overwritten"),
        (
            "runs -o settings.csv",
            "expected a table written by groupwise fleet in settings.csv, got another file",
        ),
        ("runs -o missing/list.csv", "does not exist: make it"),
        ("runs --page runs/b/bad.jsonl", "-o expects a name that ends in .html"),
        ("runs --page mine.html", "mine.html exists already"),
        ("runs --engine spark", "--engine expects local, ray or slurm; got 'spark'"),
        ("runs --workers 0", "--workers expects a whole number from 1 to 4,096; got 0"),
        ("runs --limit 0", "--limit expects a positive number; got 0"),
        ("runs --fail-on ok", "--fail-on expects warning or failing"),
    ],
)
def test_bad_input_is_one_sentence(
    runs: Path, arguments: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mine.html").write_text("<p>mine</p>")
    Path("settings.csv").write_text("name,value\nlr,1\n")
    Path("runs/b/bad.csv").write_text("step,reward\n1,0.5\n")
    before = {file: file.read_bytes() for file in Path().rglob("*") if file.is_file()}
    assert main(["fleet", *arguments.split()]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
    assert {file: file.read_bytes() for file in Path().rglob("*") if file.is_file()} == before


def test_the_page_says_what_the_list_says_and_every_string_stays_text(runs: Path) -> None:
    log(runs / HOSTILE.replace("/", "_") / "log.jsonl", COLLAPSED)
    for _ in range(2):  # its own page is written over
        assert main(["fleet", "runs", "--page", "fleet.html"]) == 1
    page = Path("fleet.html").read_text()
    assert "<img" not in page
    assert (
        "http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'sha256-"
        in page
    )
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
    embedded = json.loads(page.split('id="groupwise-results">')[1].split("</script>")[0])
    assert embedded["counts"] == {"failed": 2, "unreadable": 1, "cannot_tell": 1, "ok": 2}
    assert [run["run"] for run in embedded["runs"]][:2] == [HOSTILE, "b"]
    assert embedded["runs"][1]["reward"][-1] == 0
    assert all(
        height is None or 0 <= height <= 1 for run in embedded["runs"] for height in run["reward"]
    )


@each_case(("logs", "more"), [(3, ""), (4, "1 more run cannot"), (9, "6 more runs cannot")])
def test_runs_that_cannot_be_read_are_counted_beyond_three(logs: int, more: str) -> None:
    """Of a hundred runs that have not begun the list would be theirs; all others have their line."""
    rows = [FleetRow.unreadable(f"run{number}", "it is empty") for number in range(logs)]
    rows += [replace(rows[0], path=f"well{number}", state="ok") for number in range(5)]
    console = Console(file=io.StringIO(), width=200)
    print_fleet(fleets.fleet_of(rows), console)
    assert isinstance(console.file, io.StringIO)
    _, *lines = console.file.getvalue().splitlines()
    assert sum("UNREADABLE" in line for line in lines) == 3
    assert sum("OK" in line for line in lines) == 5
    assert [line for line in lines if "cannot" in line] == [
        f"{more} be read; -o FILE.csv lists all."
    ] * bool(more)


def test_the_page_names_the_cause_of_a_run_once() -> None:
    row = replace(FleetRow.unreadable("a", "reward 0.2 → 0.8"), cause="possible: overfitting")
    rows = tuple(replace(row, state=state) for state in ("failed", "warning", "ok"))
    page = fleet_page(fleets.Fleet(rows), provenance=made_by(()))
    embedded = json.loads(page.split('id="groupwise-results">')[1].split("</script>")[0])
    assert [run["cause"] for run in embedded["runs"]] == [row.cause, row.cause, ""]


def test_a_page_of_thousands_stays_small() -> None:
    row = replace(
        FleetRow.unreadable(
            "runs/experiment/seed", "a headline of sixty characters or so, as they usually are"
        ),
        reward="50 " * 40,
    )
    rows = tuple(
        replace(row, path=f"{row.path}{number}", state=WORST_FIRST[number % 6])
        for number in range(5000)
    )
    page = fleet_page(fleets.Fleet(rows), provenance=made_by(()))
    assert len(page) < 3_000_000


def test_heights_come_back_as_they_were() -> None:
    row = replace(FleetRow.unreadable("a", "b"), reward="0 100 - 37")
    assert row.heights == (0.0, 1.0, None, 0.37)
    assert math.isclose(row.heights[3] or 0, 0.37)


def test_no_cell_of_a_table_is_a_formula_or_steers_a_terminal(tmp_path: Path) -> None:
    path = str(tmp_path / "=HYPERLINK(1)")
    row = FleetRow(path, "", "=1+1", "ok", "@x \x1b[2J\x85", None, "-1", "", "", "+do", 3, 3, "- 5")
    write_table(tmp_path / "fleet.csv", [row])
    cells = next(iter(csv.DictReader((tmp_path / "fleet.csv").read_text().splitlines())))
    shown = [cells[name] for name in ("run", "headline", "first_sign", "do", "path")]
    assert shown == ["'=1+1", "'@x  [2J ", "'-1", "'+do", path]
