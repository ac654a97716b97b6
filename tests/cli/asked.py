"""How tests of commands ask one in this process: refused with one line, or printed as strict
JSON.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from groupwise.cli import app as instrument


def refused(capsys: pytest.CaptureFixture[str], *arguments: str, program: Any = instrument) -> str:
    """Run a command that must be refused and return its one line."""
    assert program.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(("groupwise: ", "groupwise-lab: "))
    assert err.count("\n") == 1
    return err


def printed(
    capsys: pytest.CaptureFixture[str], *arguments: str, program: Any = instrument
) -> dict[str, Any]:
    """Run a command with --json and return what it printed, which must be strict JSON and all
    there is.
    """
    assert program.main([*arguments, "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""

    def refuse(name: str) -> None:
        raise AssertionError(name)

    plain: dict[str, Any] = json.loads(out, parse_constant=refuse)
    return plain
