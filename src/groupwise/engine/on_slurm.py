"""Workers that are jobs of SLURM, submitted by submitit; where there is no SLURM, processes that
submitit starts here.

Driver and jobs share a folder of mode 0700 in the home of the user, with one mailbox a worker:
files appear there whole or not at all.
"""

from __future__ import annotations

import os
import pickle
import shutil
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from groupwise.engine.worker import THREADS, Answer, Work
from groupwise.errors import GroupwiseError, first_line

_HOME = Path.home() / ".cache" / "groupwise" / "engine"
_WORKERS = 4  # where nobody says how many
_MINUTES = 24 * 60  # of a job; SBATCH_TIMELIMIT overrides it
_LOOK = 0.02  # seconds between looks at a mailbox
_BEAT = 10.0  # seconds between the driver's signs of life
_ORPHANED = 600.0  # seconds without one after which a worker ends
_REMOVALS = 50
_FUNCTION, _ALIVE, _END = "function", "alive", "end"


class SlurmWorker:
    """One job and its mailbox."""

    def __init__(self, box: Path, job: Any, *, cancels: bool) -> None:
        """Wait for its first answer, which has the number 0; a job in a queue does not read its
        mailbox and has to be cancelled.
        """
        self.box, self.job, self._number, self._cancels = box, job, 0, cancels

    def send(self, payload: bytes) -> None:
        """Hand over a shard."""
        self._number += 1
        _put(self.box / f"in-{self._number}", payload)

    def is_ready(self) -> bool:
        """Return whether there is an answer, or the job has ended."""
        return self._out.exists() or self.job.done()

    def answer(self) -> Answer | None:
        """Return what the worker says, or None where the job has ended."""
        if not self._out.exists():
            return None
        # from a worker that this process started, in a folder of ours
        answer: Answer = pickle.loads(self._out.read_bytes())  # noqa: S301
        self._out.unlink()
        return answer

    def ending(self) -> str:
        """Return how the job ended, in words."""
        return f"ended (job {self.job.job_id}: {str(self.job.state).lower()})"

    def end(self) -> None:
        """End the job."""
        with suppress(OSError):
            (self.box / _END).touch()
        if self._cancels:
            with suppress(Exception):  # a job that has ended already
                self.job.cancel(check=False)

    @property
    def _out(self) -> Path:
        """The file of the answer that is waited for."""
        return self.box / f"out-{self._number}"


class SlurmCrew:
    """Submits jobs."""

    def __init__(self, function: bytes, *, cpus: int, gpus: int, memory: int | None) -> None:
        """Make the folder that driver and jobs share."""
        if find_spec("submitit") is None:
            raise GroupwiseError(
                "expected submitit to be installed for --engine slurm, got none: pip install "
                "'groupwise[slurm]'"
            )
        import submitit

        try:
            _HOME.mkdir(parents=True, exist_ok=True)
            self._folder = Path(tempfile.mkdtemp(dir=_HOME))  # of mode 0700
            _put(self._folder / _FUNCTION, function)
            self._executor = submitit.AutoExecutor(folder=self._folder / "log")
        except OSError as error:
            raise GroupwiseError(
                f"expected a folder in {_HOME} that jobs see too, got {first_line(error)}: make "
                "room there"
            ) from None
        # Partition, account and the like are read by sbatch itself from SBATCH_PARTITION,
        # SBATCH_ACCOUNT ...
        self._executor.update_parameters(
            name="groupwise", timeout_min=_MINUTES, cpus_per_task=cpus, gpus_per_node=gpus
        )
        if gpus and self._executor.cluster == "local" and not Path("/dev/nvidia0").exists():
            self.close()
            raise GroupwiseError(
                f"expected GPUs for a worker ({gpus}), got none on this machine, and no SLURM: "
                "leave --gpus-per-task out"
            )
        self._needs, self._hired, self._beat = (cpus, memory), 0, 0.0

    def most(self, wanted: int | None) -> int:
        """Return how many jobs there can be at once."""
        return wanted or _WORKERS

    def hire(self) -> SlurmWorker:
        """Submit a job."""
        self._live()
        self._hired += 1
        box = self._folder / str(self._hired)
        box.mkdir(mode=0o700)
        try:
            job = self._executor.submit(serve, box, *self._needs)
        except Exception as error:  # noqa: BLE001
            # submitit raises what sbatch says in several classes
            raise GroupwiseError(
                f"expected SLURM to take a job, got {first_line(error)}: check SBATCH_PARTITION "
                "and its like"
            ) from None
        return SlurmWorker(box, job, cancels=self._executor.cluster != "local")

    def dismiss(self, worker: SlurmWorker) -> None:
        """End a job."""
        worker.end()

    def wait(self, workers: Sequence[SlurmWorker], seconds: float) -> list[SlurmWorker]:
        """Return the workers that say something or have ended, after a while none."""
        self._live()
        until = time.monotonic() + seconds
        while True:
            ready = [worker for worker in workers if worker.is_ready()]
            if ready or time.monotonic() > until:
                return ready
            time.sleep(_LOOK)

    def _live(self) -> None:
        """Give a sign of life now and then."""
        if time.monotonic() - self._beat > _BEAT or not self._beat:
            self._beat = time.monotonic()
            (self._folder / _ALIVE).touch()

    def close(self) -> None:
        """Take the folder away: a worker that still runs ends with it, and may write to it until
        then.
        """
        for _ in range(_REMOVALS):
            shutil.rmtree(self._folder, ignore_errors=True)
            if not self._folder.exists():
                return
            time.sleep(_LOOK)


def _put(path: Path, content: bytes) -> None:
    """Write a file so that it appears whole."""
    partial = path.with_name(f".{path.name}")
    partial.write_bytes(content)
    partial.replace(path)


def serve(box: Path, cpus: int, memory: int | None) -> None:
    """Answer the shards of one mailbox until there is an end."""
    if (box / _END).exists() or not box.exists():
        return
    os.environ.update(dict.fromkeys(THREADS, str(cpus)))
    threading.Thread(target=_end_with_driver, args=(box,), daemon=True).start()
    work = Work((box.parent / _FUNCTION).read_bytes(), memory)
    _put(box / "out-0", pickle.dumps(work.ready()))
    number = 1
    while True:
        request = box / f"in-{number}"
        if not request.exists():
            time.sleep(_LOOK)
            continue
        answer = work.answer(request.read_bytes())
        request.unlink()
        _put(box / f"out-{number}", pickle.dumps(answer))
        number += 1


def _end_with_driver(box: Path) -> None:
    """End this process once the driver says so, or is gone."""
    alive = box.parent / _ALIVE
    while True:
        time.sleep(_LOOK * 5)
        try:
            orphaned = time.time() - alive.stat().st_mtime > _ORPHANED
        except OSError:
            orphaned = True
        if orphaned or (box / _END).exists():
            os._exit(1)
