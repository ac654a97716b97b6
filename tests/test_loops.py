"""`make loops` says of what it could not run, or not install, that it could not, and fails."""

from __future__ import annotations

import csv
import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"
ROW = {"name": "trainer", "system": "Trainer", "how": "source", "environment": "source"}
RUNS = """import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
rows = [json.dumps({"step": n, "reward": n / 8}) for n in range(1, 7)]
(folder / "log.jsonl").write_text("\\n".join(rows))
truth = {"version": "2.0", "rows": 6, "quantities": {"reward": [n / 8 for n in range(1, 7)]}}
(folder / "truth.json").write_text(json.dumps(truth | {"logs": {"console": "log.jsonl"}}))
"""


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """`loops.py` and `make_reference.py` in a folder of one trainer, `program.py`, that ran once
    with something equal.
    """
    monkeypatch.setattr(sys, "path", [str(SCRIPTS), *sys.path])
    loops, reference = map(importlib.import_module, ("loops", "make_reference"))
    (tmp_path / "scripts").mkdir()
    for name, place in (
        ("HOME", "build"),
        ("DRIVERS", "scripts"),
        ("TABLE", "scripts/loops.tsv"),
        ("RESULTS", "scripts/loops_results.tsv"),
    ):
        monkeypatch.setattr(loops, name, tmp_path / place)
    monkeypatch.setattr(reference, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["loops.py"])
    table(loops.TABLE, ROW | {"packages": "", "driver": "program.py"})
    last = dict.fromkeys(loops.COLUMNS, "") | {
        name: ROW[name] for name in ("name", "system", "how")
    }
    last |= {"version": "1.0", "log": "console", "equal": "rows, reward", "date": "2026-01-31"}
    table(loops.RESULTS, last)
    return loops, reference


def table(place: Path, row: dict[str, str]) -> None:
    """Write a table of one row."""
    with place.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(row), delimiter="\t", lineterminator="\n")
        writer.writeheader()
        writer.writerow(row)


def code(loops: Any, program: str) -> int:
    """The exit code with a program."""
    (loops.DRIVERS / "program.py").write_text(program)
    with pytest.raises(SystemExit) as ended:
        loops.main()
    return int(ended.value.code or 0)


@pytest.mark.parametrize(
    ("packages", "program", "trouble"),
    [
        ("", "raise SystemExit", "could not be run (it left no truth.json)"),
        ("", "raise SystemExit(3)", "could not be run (exit code 3)"),
        ("--no-index nothing-of-this-name", RUNS, "could not be installed"),
    ],
)
def test_what_does_not_run_says_so_beside_its_last_run_until_it_runs(
    packages: str,
    program: str,
    trouble: str,
    scripts: tuple[Any, Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    loops, reference = scripts
    table(loops.TABLE, ROW | {"packages": packages, "driver": "program.py"})
    assert code(loops, program) == 1
    said = capsys.readouterr().out
    assert f"trainer: {trouble}\n" in said
    assert "1 logs, 0 with something different; of 1 programs" in said
    line = reference.runs_of_trainers()[-1]
    assert line.startswith("| Trainer | 1.0 | made after its source | console | rows, reward |")
    assert f"| 2026-01-31; {trouble}, 20" in line
    table(loops.TABLE, ROW | {"packages": "", "driver": "program.py"})
    assert code(loops, RUNS) == 0
    line = reference.runs_of_trainers()[-1]
    assert line.startswith("| Trainer | 2.0 | made after its source | console | rows, reward |")
    assert "could not be" not in line


def test_what_never_ran_has_a_row_and_what_is_not_tried_keeps_its_own(
    scripts: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    loops, reference = scripts
    loops.RESULTS.write_text("\t".join(loops.COLUMNS) + "\n")
    assert code(loops, "raise SystemExit(1)") == 1
    row = reference.runs_of_trainers()[-1]
    assert row.startswith("| Trainer | – | made after its source | – | – | – | – | never; could")
    with loops.TABLE.open("a") as file:
        file.write("other\tOther\tsource\tsource\t\tprogram.py\n")
    monkeypatch.setattr(sys, "argv", ["loops.py", "--only", "other"])
    assert code(loops, RUNS) == 1
    assert [line[:10] for line in reference.runs_of_trainers()[-2:]] == ["| Trainer ", "| Other | "]
    assert reference.runs_of_trainers()[-2] == row


def test_a_name_that_is_no_program_is_refused(
    scripts: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["loops.py", "--only", "trainers"])
    assert code(scripts[0], RUNS) == 2


def test_a_run_of_elsewhere_that_is_newer_is_not_replaced_by_an_old_folder(
    scripts: tuple[Any, Any],
) -> None:
    loops, reference = scripts
    assert code(loops, RUNS) == 0
    (last,) = loops.table_rows(loops.RESULTS)
    newer = last | {"version": "3.0", "date": "2999-01-31"}
    table(loops.RESULTS, newer)
    assert code(loops, RUNS) == 0  # the folder stands, and nothing has changed
    assert reference.runs_of_trainers()[-1].startswith("| Trainer | 3.0 |")
