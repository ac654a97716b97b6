"""The complaints of users once more, by a hand that did not know the rules."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from lab.tests.complaints_unseen import complaints, write

from groupwise.cli.app import main
from groupwise.diagnostics.judge import judge
from groupwise.readers import run_record

ASKED = 27  # of 31; the other four are not told, or by a missing setting


def test_the_first_five_lines_name_the_cause_and_no_wrong_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named, wrong = [], {}
    for name, complaint in complaints().items():
        path = write(tmp_path, name)
        main(["diagnose", str(path)])
        lines = capsys.readouterr().out.splitlines()[:5]
        if re.search(complaint.asked, "\n".join(lines), re.IGNORECASE):
            named.append(name)
        elif judge(run_record(path), ended=True).cause.names:
            wrong[name] = lines
    assert len(complaints()) == 31
    assert not wrong
    assert len(named) >= ASKED, sorted({*complaints()} - {*named})
