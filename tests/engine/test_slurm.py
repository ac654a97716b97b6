"""SLURM without accounting: jobs that end without a word, drivers that are ended, what they leave.

A cluster in this process stands for SLURM: a job is a forked process whose end nobody tells.
`make slurm` runs the same with a real slurmctld.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.engine import work

from groupwise.engine import on_slurm
from groupwise.engine.engine import Engine, EngineError, ShardOutcome, ShardStatus
from groupwise.errors import GroupwiseError

FORK = multiprocessing.get_context("fork")
NUMBERS = {f"number {number}": number for number in range(8)}


class Cluster:
    """Jobs by name and number, of which only the queue says that they have ended."""

    def __init__(self) -> None:
        self.jobs: list[Any] = []
        self.cancelled: list[str] = []
        self.has_queue = True
        self.broken: Any = None

    def executor(self, folder: Path) -> Any:
        return SimpleNamespace(
            cluster="slurm", folder=folder, submit=self.submit, update_parameters=self.named
        )

    def named(self, *, name: str, **_: int) -> None:
        self.name = name

    def submit(self, function: Any, *arguments: Any) -> Any:
        job = FORK.Process(target=self.broken or function, args=arguments)
        job.start()
        self.jobs.append(job)
        return SimpleNamespace(job_id=str(len(self.jobs)), done=None)

    def answer(self, command: str, *options: str) -> list[str] | None:
        if command == "squeue":
            alive = [str(n) for n, job in enumerate(self.jobs, start=1) if job.is_alive()]
            return alive if self.has_queue else None
        if command == "sacct":
            return ["FAILED"] if self.has_queue else None
        self.cancelled.append(options[0])
        for number, job in enumerate(self.jobs, start=1):
            if options[0] in (str(number), f"--name={self.name}"):
                job.kill()
                job.join()
        return []


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    made = Cluster()
    monkeypatch.setitem(sys.modules, "submitit", SimpleNamespace(AutoExecutor=made.executor))
    monkeypatch.setattr(on_slurm, "check_installed", lambda *_, **__: None)
    monkeypatch.setattr(on_slurm, "_answer", made.answer)
    monkeypatch.setattr(on_slurm, "_HOME", tmp_path / "home")
    monkeypatch.setattr(on_slurm, "_BEAT", 0.1)
    monkeypatch.setattr(on_slurm, "_SILENT", 0.3)
    yield made
    for job in made.jobs:
        job.kill()


def left(cluster: Cluster) -> tuple[list[Path], list[Any]]:
    """Mailboxes and jobs that are still there."""
    return list(on_slurm._HOME.iterdir()), [job for job in cluster.jobs if job.is_alive()]


@pytest.mark.thinned(1)
@pytest.mark.parametrize("has_queue", [True, False])
def test_a_job_that_ends_without_a_word_costs_its_shard_a_try(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_queue: bool
) -> None:
    cluster.has_queue = has_queue
    if has_queue:  # which alone tells the end then: on a busy machine silence may come before it
        monkeypatch.setattr(on_slurm.SlurmWorker, "_is_silent", lambda _: False)
    outcomes = Engine("slurm", 2).map(work.DieOnce(tmp_path, always=(5,)), NUMBERS)
    assert [outcome.value for outcome in outcomes] == [None if n == 5 else n**2 for n in range(8)]
    assert outcomes[5].status is ShardStatus.DIED
    how = "ended (job {}: failed)" if has_queue else "gave no sign of life (job {})"
    assert outcomes[5].sentence in [
        f"shard number 5: its worker {how.format(number)}" for number in range(1, 9)
    ]
    assert left(cluster) == ([], [])
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_job_that_never_begins_and_leaves_the_queue_is_no_worker(cluster: Cluster) -> None:
    cluster.broken = print
    with pytest.raises(
        EngineError, match=r"3 in a row that did not: a worker ended \(job 3: failed\)"
    ):
        Engine("slurm", 1).map(work.square, NUMBERS)
    assert left(cluster) == ([], [])


@pytest.mark.slow
def test_a_busy_worker_is_not_silent_and_one_that_is_stopped_is(cluster: Cluster) -> None:
    cluster.has_queue = False
    assert Engine("slurm", 1).map(work.spin, {"one": 1.0})[0].tries == 1

    def stop_first(_: ShardOutcome) -> None:
        os.kill(cluster.jobs[-1].pid, signal.SIGSTOP)

    outcomes = Engine("slurm", 1).map(work.square, {"one": 1, "two": 2}, each=stop_first)
    assert [(outcome.value, outcome.tries) for outcome in outcomes] == [(1, 1), (4, 2)]


def test_a_driver_that_is_ended_cancels_its_jobs_and_leaves_no_mailbox(cluster: Cluster) -> None:
    def drive() -> None:
        Engine("slurm", 2).map(work.slowly, {"one": 60.0, "two": 60.0})

    driver = FORK.Process(target=drive)
    driver.start()
    until = time.monotonic() + 20
    while len(list(on_slurm._HOME.glob("*/*/in-1"))) < 2 and time.monotonic() < until:
        time.sleep(0.02)
    os.kill(driver.pid or 0, signal.SIGTERM)
    driver.join(20)
    assert driver.exitcode == 128 + signal.SIGTERM
    assert list(on_slurm._HOME.iterdir()) == []


def test_what_a_killed_driver_left_goes_at_the_next_start_and_what_lives_stays(
    cluster: Cluster,
) -> None:
    hour = time.time() - 3600
    for name, age in (("dead", 3600), ("stopped", 500), ("alive", 0)):
        (on_slurm._HOME / name / "1").mkdir(parents=True)
        alive = on_slurm._HOME / name / "alive"
        alive.touch()
        os.utime(alive, (time.time() - age, time.time() - age))
    for name in ("unborn", "born"):  # killed before its first sign of life, and about to give it
        (on_slurm._HOME / name).mkdir()
        (on_slurm._HOME / name / "function").touch()
    os.utime(on_slurm._HOME / "unborn", (hour, hour))
    os.utime(on_slurm._HOME / "alive", (hour, hour))
    assert Engine("slurm", 1).map(work.square, {"two": 2})[0].value == 4
    assert {folder.name for folder in on_slurm._HOME.iterdir()} == {"alive", "stopped", "born"}
    names = {name for name in cluster.cancelled if name.startswith("--name=groupwise-")}
    assert {"--name=groupwise-dead", "--name=groupwise-unborn"} <= names
    assert names.isdisjoint({f"--name=groupwise-{name}" for name in ("alive", "stopped", "born")})


@pytest.mark.parametrize("file", ["function", "in-1"])
def test_a_full_disk_is_one_sentence_and_leaves_nothing(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    put = on_slurm._put

    def full(path: Path, content: bytes) -> None:
        if path.name == file:
            raise OSError(28, "No space left on device")
        put(path, content)

    monkeypatch.setattr(on_slurm, "_put", full)
    with pytest.raises(GroupwiseError, match=r"No space left on device.*check space and mode"):
        Engine("slurm", 1).map(work.square, {"two": 2})
    assert left(cluster) == ([], [])


def test_a_job_that_slurm_starts_again_does_nothing(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "alive").touch()
    on_slurm.serve_mailbox(tmp_path / "1", 1, None)
    assert [file.name for file in (tmp_path / "1").iterdir()] == ["alive"]


@pytest.mark.parametrize(
    ("away", "limit", "code"),
    [
        ("home/driver/alive", 60.0, None),  # a disk that does not show a file for a while
        ("home", 60.0, None),  # nor any
        ("home/driver/alive", 0.2, 1),
        ("home", 0.2, 1),
        ("home/driver", 60.0, 1),  # which the driver has removed
    ],
)
def test_a_worker_waits_its_limit_from_when_it_last_saw_its_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, away: str, limit: float, code: int | None
) -> None:
    monkeypatch.setattr(on_slurm, "_ORPHANED", limit)
    box = tmp_path / "home" / "driver" / "1"
    box.mkdir(parents=True)
    (box.parent / "function").write_bytes(pickle.dumps(work.square))
    (box.parent / "alive").touch()
    worker = FORK.Process(target=on_slurm.serve_mailbox, args=(box, 1, None))
    worker.start()
    until = time.monotonic() + 20
    while not (box / "out-0").exists() and time.monotonic() < until:
        os.utime(box.parent / "alive")
        time.sleep(0.02)
    (tmp_path / away).rename(tmp_path / "away")
    worker.join(1.0 if code is None else 20)
    assert worker.exitcode == code
    (tmp_path / "away").rename(tmp_path / away)
    if code is None:
        (box / "in-1").write_bytes(pickle.dumps(3))
        while not (box / "out-1").exists() and time.monotonic() < until:
            time.sleep(0.02)
        assert pickle.loads(pickle.loads((box / "out-1").read_bytes()).value) == 9
        worker.kill()
        worker.join()


@pytest.mark.skipif(shutil.which("pgrep") is None, reason="needs pgrep")
def test_make_slurm_kills_no_job_of_another_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[2] / "scripts"), *sys.path])
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    slurm = importlib.import_module("slurm")
    sleep = [sys.executable, "-c", "import time; time.sleep(60)", "submitit.core._submit"]
    ours, *strangers = [
        subprocess.Popen([*sleep, str(tmp_path / home / ".cache" / "log")])
        for home in ("home", "home2", "other/home")
    ]
    try:
        assert slurm.workers() == [ours.pid]
        slurm.kill_one()
        assert ours.wait(20) == -signal.SIGKILL
        slurm.kill_one()
        assert [stranger.poll() for stranger in strangers] == [None, None]
    finally:
        for process in (ours, *strangers):
            process.kill()
            process.wait()
