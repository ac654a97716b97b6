"""The two examples of docs/tutorial-live.md, run as they stand: TRL with the callback and the page,
and our trainer with the controller.

python3 -m venv .venv-trl && .venv-trl/bin/pip install -c constraints.txt -e '.[trl,live]'
python -m pytest tests/optional/test_worked_examples.py -m slow -s
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from groupwise.readers import run_record

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs" / "tutorial-live.md").read_text(encoding="utf-8")
TRL = Path(os.environ.get("GROUPWISE_TRL_PYTHON", ROOT / ".venv-trl" / "bin" / "python"))


def python_with_trl() -> str:
    if find_spec("trl") is not None:
        return sys.executable
    if not TRL.exists():
        pytest.skip("needs TRL: GROUPWISE_TRL_PYTHON, or .venv-trl")
    return str(TRL)


def commands_of(section: str) -> list[list[str]]:
    """The lines of the shell blocks of a section."""
    text = PAGE.split(f"## {section}")[1].split("\n## ")[0]
    return [
        shlex.split(line)
        for block in re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        for line in block.splitlines()
    ]


@pytest.fixture
def environment() -> dict[str, str]:
    return os.environ | {
        "PYTHONPATH": str(ROOT / "src"),
        "HF_HUB_OFFLINE": "1",
        "NO_COLOR": "1",
        "COLUMNS": "120",
    }


@pytest.fixture
def watched(tmp_path: Path, environment: dict[str, str]) -> Iterator[str]:
    """The address of the page that follows the record of the first example, before there is one."""
    (tmp_path / "sums").mkdir()
    words = [sys.executable, "-m", "groupwise", "watch", "sums/groupwise", "--port", "0"]
    with subprocess.Popen(
        words, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    ) as watcher:
        assert watcher.stdout is not None
        match = re.search(r"http://127\.0\.0\.1:\d+/", watcher.stdout.readline())
        assert match is not None
        yield match[0]
        watcher.send_signal(signal.SIGINT)
        assert watcher.wait(timeout=20) == 0


def rows_on_the_page(address: str, wanted: int, seconds: float) -> list[str]:
    """The lines that the page draws of a run once it has so many rows; none where that many do
    not come.
    """
    until = time.monotonic() + seconds
    with urllib.request.urlopen(f"{address}events", timeout=seconds) as stream:
        while time.monotonic() < until:
            name, _, text = stream.readline().decode().partition(": ")
            run = json.loads(text) if name == "data" else {}
            if "tracks" in run and run["state"]["rows"] >= wanted:
                return [track["key"] for track in run["tracks"]]
    return []


def test_trl_with_the_callback_and_the_page(
    watched: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    python = python_with_trl()
    (script,) = re.findall(r"^```py\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "train.py").write_text(script)
    done = subprocess.run(
        [python, "train.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    record = run_record(tmp_path / "sums" / "groupwise")
    assert record.steps["step"].to_list() == list(range(1, 61))
    assert record.rollouts is not None
    assert len(record.rollouts) == 60 * 64
    assert {"metric", "entropy", "dead_group_share"} <= set(rows_on_the_page(watched, 60, 60))
    for words in commands_of("A run of TRL, with the callback and the page")[2:]:
        said = subprocess.run(
            [sys.executable, "-m", *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert said.returncode in (0, 1), said.stderr
        assert "sums" in said.stdout or words[1] == "diagnose"


def test_our_trainer_with_the_controller(tmp_path: Path, environment: dict[str, str]) -> None:
    train, report = commands_of("The embedded trainer, with the controller")
    for words in (train, report):
        said = subprocess.run(
            [sys.executable, "-m", *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert said.returncode == 0, said.stderr
    size = run_record(tmp_path / "sums_ours").steps["group_size"].to_list()
    looks = json.loads((tmp_path / "sums_ours" / "group-size-decisions.json").read_text())
    assert [look["step"] for look in looks] == [0, 20, 40]
    assert (
        looks[0]["present"] == 32
    )  # the first look comes before the first update, so no row of the record has 32
    assert looks[0]["group_size"] < 32
    assert size == [look["group_size"] for look in looks for _ in range(20)]
