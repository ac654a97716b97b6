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
    assert all(row["equal"].startswith("rows, reward") for row in results)
