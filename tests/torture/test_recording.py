"""Kills, stops, full disks, deleted folders, two writers and a clock that goes back while
recording: every finished step exactly once.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from tests.golden.sentences import says
from tests.torture.journals import step_of

from groupwise.record.journal import SecondWriterError
from groupwise.record.recorder import Recorder
from groupwise.record.run import RunRecord

ROOT = Path(__file__).resolve().parents[2]
WORKER = """
import resource, signal, sys, time
from pathlib import Path
from groupwise.record.recorder import Recorder
from tests.torture.journals import step_of
folder, after, last, limit = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
recorder = Recorder(folder, say=lambda said: print("said", said, flush=True))
recorder.open(after)
while after < last:
    after += 1
    recorder.append(*step_of(after))
    print(after, flush=True)
recorder.close()
"""
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and limits of POSIX")


def started(folder: Path, after: int, last: int, limit: int = 0) -> subprocess.Popen[str]:
    """Begin to record in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    command = [sys.executable, "-c", WORKER, str(folder), *map(str, (after, last, limit))]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def finished(process: subprocess.Popen[str]) -> list[int]:
    """The steps that a process said were done, to its end."""
    out = process.communicate(timeout=120)[0]
    return [
        int(line)
        for line in out.splitlines(keepends=True)
        if line.endswith("\n") and line.strip().isdigit()
    ]


def check(folder: Path, steps: int | Sequence[int]) -> None:
    """Each of the steps is there, once and whole, and nothing is damaged."""
    expected = list(range(1, steps + 1)) if isinstance(steps, int) else list(steps)
    record = RunRecord.load(folder)
    assert record.steps["step"].to_list() == expected
    assert record.steps["reward"].to_list() == [step / 7 for step in expected]
    assert record.rollouts is not None
    made = [(step, column["completion"]) for step in expected for column in step_of(step)[1]]
    assert record.rollouts.select("step", "completion").rows() == made
    assert not [note for note in record.notes if "damaged" in note]


def killed(folder: Path, kills: int, seed: int) -> int:
    """Kill a run and resume it, again and again; return how many steps it did."""
    draw, done = random.Random(seed), 0
    for _ in range(kills):
        process = started(folder, done, 10**9)
        assert process.stdout is not None
        assert process.stdout.readline()
        time.sleep(draw.uniform(0, 0.02))
        process.kill()
        said = finished(process)
        now = len(RunRecord.load(folder).steps)
        assert now >= max([done + 1, *said])
        done = now
        check(folder, done)
    return done


def stopped(folder: Path, stops: int, seed: int) -> int:
    """Stop a run and let it go on, again and again, reading it while it stands still; then kill
    it. Return its steps.
    """
    draw = random.Random(seed)
    process = started(folder, 0, 10**9)
    assert process.stdout is not None
    assert process.stdout.readline()
    for _ in range(stops):
        os.kill(process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        record = RunRecord.load(folder)
        assert record.steps["step"].to_list() == list(range(1, len(record.steps) + 1))
        with pytest.raises(SecondWriterError):
            Recorder(folder, say=lambda _: None).open(len(record.steps))
        os.kill(process.pid, signal.SIGCONT)
        for _ in range(draw.randint(1, 20)):
            process.stdout.readline()
    process.kill()
    said = finished(process)
    done = len(RunRecord.load(folder).steps)
    assert done >= max(said, default=1)
    check(folder, done)
    return done


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("groupwise.record.journal._PATIENCE_SECONDS", 0.05)


@pytest.mark.usefixtures("_impatient")
def test_a_few_stops(tmp_path: Path) -> None:
    assert stopped(tmp_path / "run", 3, seed=1) >= 4


@pytest.mark.torture
def test_two_hundred_kills(tmp_path: Path) -> None:
    steps = [killed(tmp_path / f"run-{number}", 10, seed=number) for number in range(20)]
    print(f"200 kills, {sum(steps)} steps: every finished one there once")


@pytest.mark.torture
@pytest.mark.usefixtures("_impatient")
def test_fifty_stops(tmp_path: Path) -> None:
    steps = [stopped(tmp_path / f"run-{number}", 10, seed=number) for number in range(5)]
    print(f"50 stops, {sum(steps)} steps: every finished one there once")


def full(folder: Path, limits: Sequence[int], last: int) -> None:
    """Record into files of limited size; with room again, the run goes on behind its last whole
    step.
    """
    for limit in limits:
        out = started(folder, 0, last, limit).communicate(timeout=120)[0]
        done = len(RunRecord.load(folder).steps)
        assert "File too large" in out
        assert f"{last - done} steps could not be written" in out
        check(folder, done)
        assert finished(started(folder, done, last)) == list(range(done + 1, last + 1))
        check(folder, last)
        shutil.rmtree(folder)


@pytest.mark.torture
def test_twenty_limits_on_the_size_of_a_file(tmp_path: Path) -> None:
    full(tmp_path / "run", range(4000, 8000, 200), 40)
    print("20 limits (RLIMIT_FSIZE): every step that fitted there once, and all after a resume")


def fill(ballast: Path) -> None:
    """Write until there is no room."""
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


@pytest.fixture
def small_disk(tmp_path: Path) -> Path:
    """A tmpfs of 64 kB, where this user may mount one."""
    home = tmp_path / "disk"
    home.mkdir()
    mount = shutil.which("mount")
    command = [str(mount), "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(home)]
    if mount is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("needs a system that lets this user mount a tmpfs")
    return home


def test_a_full_tmpfs(small_disk: Path) -> None:
    said: list[str] = []
    try:
        ballast = small_disk / "ballast"
        recorder = Recorder(small_disk / "run", say=said.append)
        recorder.open()
        for number in range(1, 31):
            if number == 10:
                fill(ballast)
            if number == 25:
                ballast.unlink()
            recorder.append(*step_of(number))
        recorder.close()
        check(small_disk / "run", 30)
        assert sum("No space left" in sentence for sentence in said) == 1
    finally:
        subprocess.run(["umount", str(small_disk)], check=True)


@pytest.mark.parametrize("how", ["deleted", "moved", "deleted and made anew"])
def test_a_folder_that_goes_is_said_within_a_step(how: str, tmp_path: Path) -> None:
    said: list[str] = []
    recorder = Recorder(tmp_path / "run", say=said.append)
    recorder.open()
    for number in range(1, 8):
        if number == 5:
            if how == "moved":
                (tmp_path / "run").rename(tmp_path / "elsewhere")
            else:
                shutil.rmtree(tmp_path / "run")
            if how == "deleted and made anew":
                (tmp_path / "run").mkdir()
            assert said == []
        recorder.append(*step_of(number))
        assert bool(said) == (number >= 5)
    recorder.close()
    check(tmp_path / "run", 7)  # the completions of the newest steps are in memory still
    assert "got none there, because it was deleted or moved" in said[0]
    assert "the record starts again with the steps so far" in said[0]
    (again,) = said[1:]
    says("torture/recording/1", again, folder=tmp_path)
    if how == "moved":
        check(tmp_path / "elsewhere", 4)


def test_a_journal_in_whose_place_another_is_put_is_said_within_a_step(tmp_path: Path) -> None:
    said: list[str] = []
    recorder = Recorder(tmp_path / "run", say=said.append)
    recorder.open()
    recorder.append(*step_of(1))
    (tmp_path / "run" / "journal.jsonl").unlink()
    (tmp_path / "run" / "journal.jsonl").write_bytes(b"")
    recorder.append(*step_of(2))
    recorder.close()
    assert "got another file in its place: leave the folder of a run where it is" in said[0]
    check(tmp_path / "run", 2)


def test_a_folder_that_cannot_come_back_keeps_the_steps_in_memory(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "home").mkdir()
    recorder = Recorder(tmp_path / "home" / "run", say=said.append)
    recorder.open()
    for number in range(1, 8):
        if number == 3:
            shutil.rmtree(tmp_path / "home")
            (tmp_path / "home").write_text("a file")
        if number == 6:
            (tmp_path / "home").unlink()
            recorder._next_try = 0.0
        recorder.append(*step_of(number))
    recorder.close()
    check(tmp_path / "home" / "run", 7)


def test_two_writers_where_the_system_has_no_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("groupwise.record.journal._locked", lambda _: True)
    recorder = Recorder(tmp_path / "run", say=lambda _: None)
    recorder.open()
    recorder.append(*step_of(1))
    other = Recorder(tmp_path / "run", say=lambda _: None)
    other.open(1)
    for number in range(2, 30):
        (other if number % 3 else recorder).append(*step_of(number))
    recorder.close()
    other.close()
    check(tmp_path / "run", 29)


def test_a_clock_that_goes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1e9]
    monkeypatch.setattr(time, "time", lambda: now[0])
    monkeypatch.setattr(
        time, "monotonic", lambda: now[0]
    )  # which cannot happen, and costs nothing either
    recorder = Recorder(tmp_path / "run", say=lambda _: None)
    recorder.open()
    for number in range(1, 20):
        now[0] -= 3600
        recorder.append(*step_of(number))
    recorder.close()
    check(tmp_path / "run", 19)
