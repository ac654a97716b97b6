"""Every log, real or of our own: commands, pages and the Python object say the same, and eight
lines are enough.
"""

from __future__ import annotations

import gzip
import json
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

import groupwise as gw
from groupwise.cli.app import main
from groupwise.pages.screen import MOST_LINES, MOST_WORDS, WIDTH, words_in

pytestmark = pytest.mark.slow
TESTS = Path(__file__).parents[1]


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    """The exit code of a command and its JSON; None where it gave none."""
    code = main([*words, "--json"])
    out = capsys.readouterr().out
    return code, json.loads(out) if out else None


def judged(path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any] | None:
    """The judgement of a log, the same by every way to it; None of what is no log."""
    code, alone = told(capsys, "diagnose", str(path))
    again, page = told(capsys, "report", str(path))
    once, watched = told(capsys, "watch", str(path), "--once")
    assert (code, code) == (again, once), path
    if code == 2:
        assert (alone, page, watched) == (None, None, None), path
        with pytest.raises(gw.GroupwiseError):
            gw.open_run(path)
        return None
    assert page["runs"][0]["judgement"] == watched == alone, path
    assert gw.open_run(path).judgement.as_dict() == json.loads(json.dumps(alone)), path
    found: dict[str, Any] = alone
    return found


def logs_in(*folders: Path) -> Iterator[Path]:
    """The files of folders that may be logs."""
    for folder in folders:
        yield from (
            path
            for path in sorted(folder.rglob("*"))
            if path.is_file() and path.suffix not in (".md", ".py", ".tsv")
        )


def test_our_own_logs_are_told_alike_by_every_command_page_and_object(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for packed in (TESTS / "fixtures").rglob("*.jsonl.gz"):
        (tmp_path / packed.stem).mkdir()
        (tmp_path / packed.stem / "journal.jsonl").write_bytes(gzip.decompress(packed.read_bytes()))
    told_of = [
        judged(path, capsys) for path in logs_in(tmp_path, TESTS / "data", TESTS / "fixtures")
    ]
    states = [found["state"] for found in told_of if found is not None]
    assert len(states) > 30
    assert {"ok", "watch", "failed", "cannot_tell"} == set(states)


def test_real_logs_are_told_alike_and_in_eight_lines(
    shared_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = []
    for path in logs_in(shared_data):
        alone = judged(path, capsys)
        if alone is None:
            continue
        main(["diagnose", str(path)])
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) <= MOST_LINES, path
        assert max(map(cell_len, lines)) <= WIDTH, path
        assert alone["state"].upper().replace("_", " ") in lines[0][:20], path
        words.append(words_in(lines))
    assert len(words) > 100
    assert max(words) <= MOST_WORDS
    print(
        f"{len(words)} logs, {statistics.median(words):.0f} words at the median, {max(words)} at "
        "most",
        file=sys.stderr,
    )
