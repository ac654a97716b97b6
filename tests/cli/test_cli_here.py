"""`groupwise` without arguments: the report of the run that lies here is offered, and made where a person says yes."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import polars as pl
import pytest

from groupwise.cli.app import main
from groupwise.cli.here import offer, runs_here
from groupwise.examples import trl_run


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is a run, and the working directory."""
    shutil.copytree(trl_run(), tmp_path / "run")
    monkeypatch.chdir(tmp_path / "run")
    return tmp_path / "run"


def at_a_terminal(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda _: answer)


@pytest.mark.usefixtures("run")
def test_in_a_run_the_report_is_offered_and_nothing_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert capsys.readouterr().out == "This folder is a run.\n\n  groupwise report .\n\nAll commands: groupwise --help\n"
    assert not Path("groupwise-report.html").exists()


@pytest.mark.usefixtures("run")
def test_who_says_yes_gets_the_page(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    at_a_terminal(monkeypatch, "")
    assert main([]) == 0
    assert "The page: groupwise-report.html" in capsys.readouterr().out
    assert Path("groupwise-report.html").stat().st_size > 10_000


@pytest.mark.usefixtures("run")
def test_who_says_no_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    at_a_terminal(monkeypatch, "n")
    assert offer() == []


def test_runs_inside_a_folder_are_found_by_their_marks_and_logs_by_the_word(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = run.parent
    (home / "prices.csv").write_text("day,price\n1,2\n")
    (home / "log.csv").write_text("step,Reward\n1,0.5\n")
    assert runs_here(home) == [home / "log.csv", run]
    shutil.rmtree(run)
    assert runs_here(home) == [home / "log.csv"]
    (home / "a file.jsonl").write_text('{"step": 1, "reward": 0.5}\n')
    monkeypatch.chdir(home)
    assert runs_here(Path()) == [Path("a file.jsonl"), Path("log.csv")]


@pytest.mark.parametrize("ending", ["md", "txt", "json", "ndjson.jsonl", "out", "tsv", "parquet"])
def test_every_ending_that_a_reader_takes_is_found(ending: str, tmp_path: Path) -> None:
    """One list of endings: that of the readers."""
    log = tmp_path / f"mine.{ending}"
    rows = [{"step": step, "reward": step / 10} for step in range(1, 30)]
    if ending == "parquet":
        pl.DataFrame(rows).write_parquet(log)
    elif "json" in ending:
        log.write_text("\n".join(map(json.dumps, rows)) if "jsonl" in ending else json.dumps(rows))
    else:
        log.write_text("\n".join(f"{{'loss': 0.1, 'reward': {row['reward']}, 'step': {row['step']}}}" for row in rows))
    (tmp_path / "beside.csv").write_text("step,reward\n1,0.5\n")
    assert runs_here(tmp_path) == sorted([tmp_path / "beside.csv", log])


def test_the_command_that_is_offered_can_be_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a b.csv", "\x1b[31m.csv", "c.csv", "d.csv"):
        (tmp_path / name).write_text("step,reward\n1,0.5\n")
    monkeypatch.chdir(tmp_path)
    assert main([]) == 0
    out = capsys.readouterr().out
    assert "4 runs: " in out
    assert "groupwise report " in out
    assert "'a b.csv'" in out
    assert "\x1b" not in out
    (tmp_path / "e.csv").write_text("step,reward\n1,0.5\n")
    assert main([]) == 0
    out = capsys.readouterr().out
    assert "5 runs: " in out
    assert "and 1 more" in out
    assert "\n  groupwise fleet .\n" in out
