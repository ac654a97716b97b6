"""Logs made after the format lines of trainers' sources, as `make loops` makes them, are read as
they were written.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest
from tests.cases import each_case

from groupwise.readers import run_record
from groupwise.readers.source import HEAD_BYTES

SCRIPTS = Path(__file__).resolve().parent.parent.parent / "scripts"
SYSTEMS = [
    line.split("\t")
    for line in (SCRIPTS / "loops.tsv").read_text(encoding="utf-8").splitlines()
    if "\tsource\t" in line
]


@each_case("system", SYSTEMS)
def test_a_trainers_log_is_read_as_it_was_written(
    system: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(SCRIPTS), str(SCRIPTS / "loop_drivers"), *sys.path])
    loops, sources = map(importlib.import_module, ("loops", "sources"))
    truth = sources.SYSTEMS[system[-1].removeprefix("sources.py ")](tmp_path)
    (tmp_path / "truth.json").write_text(json.dumps(truth), encoding="utf-8")
    results = list(
        loops.compared({"name": system[0], "system": system[1], "how": "source"}, tmp_path)
    )
    assert len(results) == len(truth["logs"])
    assert [row["different"] for row in results] == [""] * len(results)
    assert all({"rows", "reward"} <= set(row["equal"].split(", ")) for row in results)


@each_case(
    ("program", "other", "words"),
    [
        ("verl-agent/console.log", "slime/updates_1.log", "rows in slime's or SkyRL's form"),
        ("trl-tools/console.log", "verl-agent/console.log", "rows in verl's form"),
        ("slime/updates_1.log", "trl-tools/console.log", "rows in TRL's form"),
        ("roll/rlvr.log", "verl-agent/console.log", "rows in another trainer's form"),
        ("nemo-rl/history.jsonl", "prime-rl/metrics.jsonl", "rows of nemo-rl and of prime-rl"),
    ],
)
def test_two_programs_in_one_file_are_said(
    program: str, other: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(SCRIPTS / "loop_drivers"), *sys.path])
    sources = importlib.import_module("sources")
    for place in (program, other):
        (tmp_path / place).parent.mkdir()
        sources.SYSTEMS[place.partition("/")[0]]((tmp_path / place).parent)
    both = tmp_path / f"both{Path(program).suffix}"
    both.write_text((tmp_path / program).read_text() + (tmp_path / other).read_text())
    notes = run_record(both).notes
    assert any(words in note and "two programs" in note for note in notes)
    assert not any("two programs" in note for note in run_record(tmp_path / program).notes)


def test_a_rate_below_what_is_printed_is_no_rate_of_zero(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(SCRIPTS / "loop_drivers"), *sys.path])
    importlib.import_module("sources").skyrl(tmp_path)
    record = run_record(tmp_path / "console.log")
    assert set(record.steps[record.column("learning_rate")]) == {0.0}  # four places are printed
    assert record.config.value("learning_rate") is None


def test_a_log_beside_rollouts_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(SCRIPTS / "loop_drivers"), *sys.path])
    sources = importlib.import_module("sources")
    sources.traces(tmp_path / "rollouts")
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "reward": 0.5}\n' * 3)
    note = "logs beside the rollouts were not read: metrics.jsonl (give the path of one)"
    assert note in run_record(tmp_path).notes
    assert note not in run_record(tmp_path / "rollouts").notes


def test_a_log_behind_many_blank_bytes_is_read(tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    path.write_bytes(b" \n" * HEAD_BYTES + b"step,reward\n1,0.5\n2,0.6\n3,0.7\n")
    assert run_record(path).steps["reward"].to_list() == [0.5, 0.6, 0.7]
