"""Paths on a page: the run and what is in it, and nothing of where it lies."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cases import each_case

from groupwise.wording import shown_argument, shown_path


@each_case(
    ("path", "opened", "shown"),
    [
        ("/home/me/runs/a/x/log.csv", "/home/me/runs/a", "a/x/log.csv"),
        ("/home/me/runs/a/log.csv", "/home/me/runs/a/log.csv", "log.csv"),
        ("/home/me/elsewhere/log.csv", "/home/me/runs/a", "log.csv"),
        ("/home/me/log.csv", None, "log.csv"),
        ("runs/a/log.csv", "runs/a", "a/log.csv"),
    ],
)
def test_a_file_is_named_from_the_run_on(path: str, opened: str | None, shown: str) -> None:
    assert shown_path(path, None if opened is None else Path(opened)) == shown


def test_the_folder_one_is_in_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run" / "x").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "run")
    assert shown_path("x/log.csv", Path()) == "run/x/log.csv"
    monkeypatch.chdir(tmp_path / "run" / "x")
    assert shown_path("../x/log.csv", Path("..")) == "run/x/log.csv"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert shown_path(str(tmp_path / "log.csv"), tmp_path) == "log.csv"


@each_case(
    ("argument", "shown"),
    [
        ("/home/me/runs/a", "a"),
        ("../../runs/a/", "a"),
        ("~/runs/a", "a"),
        ("-o/home/me/page.html", "-opage.html"),
        ("--output=/home/me/page.html", "--output=page.html"),
        ("model=/home/me/models/qwen", "model=qwen"),
        ("runs/b", "runs/b"),
        ("-oout/page.html", "-oout/page.html"),
        ("./runs/b/", "./runs/b/"),
        ("--metric", "--metric"),
        ("rewards/correct/mean", "rewards/correct/mean"),
        ("reward=rewards/correct", "reward=rewards/correct"),
        ("C:\\Users\\me\\run", "run"),
        (".", "."),
        ("", ""),
    ],
)
def test_arguments_lose_the_folders_that_lie_elsewhere(argument: str, shown: str) -> None:
    assert shown_argument(argument) == shown
