"""A pipe that nobody writes to, wherever a command of the laboratory takes a path."""

from __future__ import annotations

from pathlib import Path

import pytest
from lab.tests.commands import main
from tests.cli.test_pipes import RUN, alarmed, pipe

__all__ = ["pipe"]

WORDS = [
    "backtest PIPE",
    "backtest RUN --calibration PIPE",
    "train --data PIPE --reward exact --model . -o new",
    "train addition --settings PIPE -o new",
    "sweep PIPE -o new",
    "evaluate PIPE",
]


@pytest.mark.parametrize("words", WORDS)
def test_a_pipe_is_refused(words: str, pipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = [{"PIPE": str(pipe), "RUN": RUN}.get(word, word) for word in words.split()]
    with alarmed(words):
        assert main(given) == 2
    said = capsys.readouterr().err.strip()
    assert said.startswith("groupwise-lab: ")
    assert "\n" not in said
    assert "No such option" not in said
    assert not list(Path.cwd().glob("new*"))
