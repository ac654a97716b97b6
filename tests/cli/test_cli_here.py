"""`groupwise` without arguments: the report of the run that lies here is offered, and made where a person says yes."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from groupwise.cli.app import main
from groupwise.cli.here import MARKS, offer, runs_here
from groupwise.examples import trl_run
from groupwise.record.run import RECORD_FILES


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
    assert runs_here(home) == [run]
    shutil.rmtree(run)
    assert runs_here(home) == [home / "log.csv"]
    (home / "a file.jsonl").write_text('{"step": 1, "reward": 0.5}\n')
    monkeypatch.chdir(home)
    assert runs_here(Path()) == [Path("a file.jsonl"), Path("log.csv")]


def test_the_command_that_is_offered_can_be_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a b.csv", "\x1b[31m.csv", "c.csv", "d.csv", "e.csv"):
        (tmp_path / name).write_text("step,reward\n1,0.5\n")
    monkeypatch.chdir(tmp_path)
    assert main([]) == 0
    out = capsys.readouterr().out
    assert "5 runs: " in out
    assert "and 1 more" in out
    assert "groupwise report " in out
    assert "'a b.csv'" in out
    assert "\x1b" not in out


def test_a_record_is_known_by_the_names_of_its_files() -> None:
    assert set(MARKS) & set(RECORD_FILES) == {RECORD_FILES[2], RECORD_FILES[3]}
