"""What waits for ever when it is read: a pipe that nobody writes to, and the kernel's own files,
wherever a command takes a path.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from groupwise.cli.app import main
from groupwise.examples import trl_run

SECONDS = 20
RUN = str(trl_run())
WORDS = [
    "diagnose PIPE",
    "diagnose RUN --config PIPE",
    "report PIPE -o new.html",
    "report RUN --config PIPE -o new.html",
    "fit PIPE",
    "forecast RUN --calibration PIPE",
    "stability PIPE",
    "stability RUN --config PIPE",
    "compare PIPE RUN",
    "compare RUN PIPE",
    "watch PIPE",
    "watch RUN PIPE",
    "watch PIPE --once",
    "watch RUN PIPE --once",
    "plan PIPE",
    "plan RUN --config PIPE",
    "components PIPE",
    "components RUN --model PIPE",
]


@contextlib.contextmanager
def alarmed(words: str) -> Iterator[None]:
    """Fail where the block waits."""

    def late(*_: object) -> None:
        pytest.fail(f"groupwise {words} waits")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    os.mkfifo(tmp_path / "metrics.jsonl")
    return tmp_path / "metrics.jsonl"


def asked(words: str, path: str) -> tuple[int, str]:
    given = [{"PIPE": path, "RUN": RUN}.get(word, word) for word in words.split()]
    with alarmed(words):
        return main(given), words


@pytest.mark.thinned(4)
@pytest.mark.parametrize("words", WORDS)
def test_a_pipe_is_refused(words: str, pipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(words, str(pipe))[0] == 2
    said = capsys.readouterr().err.strip()
    assert said.startswith(("groupwise: ", "groupwise-lab: "))
    assert "\n" not in said
    assert "No such option" not in said
    assert not list(Path.cwd().glob("new*"))


# A page is served for a log that is empty: it may still be written.
@pytest.mark.thinned(4)
@pytest.mark.parametrize(
    "words", [words for words in WORDS if not words.startswith("watch") or "--" in words]
)
def test_a_file_of_the_kernel_is_refused(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    if not os.access("/proc/kmsg", os.R_OK):
        pytest.skip("the kernel's messages are not to be read here")
    assert asked(words, "/proc/kmsg")[0] == 2
    said = capsys.readouterr().err.strip()
    assert "\n" not in said
    assert not list(tmp_path.glob("new*"))


@pytest.mark.usefixtures("forked")
def test_a_fleet_goes_on_beside_a_pipe(pipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with alarmed("fleet"):
        assert main(["fleet", RUN, str(pipe), "--json"]) in (0, 1, 3)
    assert "which is neither" in capsys.readouterr().out
