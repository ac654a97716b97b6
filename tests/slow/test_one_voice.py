"""Every real log: diagnose and report say the same, one look of watch finds the same failures, and eight lines are enough."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from groupwise.cli.app import main
from groupwise.report.screen import MOST_LINES, MOST_WORDS, WIDTH, words_in

pytestmark = pytest.mark.slow


def test_diagnose_report_and_watch_never_differ(shared_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def asked(*words: str) -> tuple[int, str]:
        code = main(words)
        return code, capsys.readouterr().out

    def judged(*words: str) -> tuple[int, Any]:
        code, out = asked(*words, "--json")
        return code, json.loads(out) if out else None

    words = []
    for path in sorted(shared_data.rglob("*")):
        if not path.is_file() or path.suffix == ".md" or path.name == "LABELS.tsv":
            continue
        code, alone = judged("diagnose", str(path))
        again, page = judged("report", str(path))
        assert again == code, path
        if code == 2:
            assert (alone, page) == (None, None), path
            continue
        assert page["runs"][0]["judgement"] == alone, path
        _, once = judged("watch", str(path), "--once")  # of a run that goes on, so with more patience, but with the same failures
        assert (once["state"] == "failing") == (alone["state"] == "failed"), path
        lines = asked("diagnose", str(path))[1].splitlines()
        assert len(lines) <= MOST_LINES, path
        assert max(map(cell_len, lines)) <= WIDTH, path
        assert alone["state"].upper().replace("_", " ") in lines[0][:20], path
        words.append(words_in(lines))
    assert len(words) > 100
    assert max(words) <= MOST_WORDS
    print(f"{len(words)} logs, {statistics.median(words):.0f} words at the median, {max(words)} at most", file=sys.stderr)
