"""Workers that are jobs of SLURM or, without it, processes that submitit starts here.

Driver and jobs share a folder of mode 0700 in the home of the user, with one mailbox a worker:
files appear there whole or not at all. Both sides give signs of life there, and SLURM's queue says
which jobs it has, since without accounting nobody says that one has ended.
"""

import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from groupwise.engine.worker import THREADS, Work, WorkerMessage
from groupwise.errors import GroupwiseError, check_installed, first_line, one_sentence

_HOME = Path.home() / ".cache" / "groupwise" / "engine"
_WORKERS = 4  # where nobody says how many
_MINUTES = 24 * 60  # of a job; SBATCH_TIMELIMIT overrides it
_LOOK = 0.02  # seconds between looks at a mailbox
_BEAT = 5.0  # seconds between signs of life
_SILENT = 3 * _BEAT  # seconds without one after which a worker is given up, or asked after
_ORPHANED = 600.0  # seconds without one of the driver's after which all that it left ends
_REMOVALS = 250
_FUNCTION, _ALIVE, _END = "function", "alive", "end"


class SlurmWorker:
    """One job and its mailbox."""

    def __init__(self, box: Path, job: Any, *, cancels: bool) -> None:
        """Wait for the worker's first answer, which has the number 0."""
        self.box, self.job, self._number, self._cancels = box, job, 0, cancels
        self._beat, self._heard = 0, time.monotonic()
        self.is_gone = False  # from SLURM's queue

    def send(self, payload: bytes) -> None:
        """Hand over a shard."""
        self._number += 1
        with one_sentence(f"to write to {_HOME}", "check space and mode"):
            _put(self.box / f"in-{self._number}", payload)

    def is_ready(self) -> bool:
        """Return whether there is an answer, or the job has ended."""
        return _touched(self._out) > 0 or self._has_ended() or self._is_silent()

    def _has_ended(self) -> bool:
        """Return whether the job has ended: SLURM's queue is asked for all jobs at once."""
        return self.is_gone or (not self._cancels and self.job.done())

    def _is_silent(self) -> bool:
        """Return whether a worker that has begun gives no sign of life any more."""
        now = time.monotonic()
        if now - self._heard > _BEAT:  # its clock may be another: a sign is a time that changed
            beat = _touched(self.box / _ALIVE)
            if beat != self._beat or not beat:
                self._beat, self._heard = beat, now
        return now - self._heard > _SILENT

    def answer(self) -> WorkerMessage | None:
        """Return what the worker says, or None where the job has ended."""
        if not _touched(self._out):
            return None
        # from a worker that this process started, in a folder of ours
        answer: WorkerMessage = pickle.loads(self._out.read_bytes())  # noqa: S301
        self._out.unlink()
        return answer

    def ending(self) -> str:
        """Return how the job ended, in words."""
        how = "ended" if self._has_ended() else "gave no sign of life"
        accounting = ("sacct", "--noheader", "--allocations", "--format=State")
        states = _answer(*accounting, f"--jobs={self.job.job_id}") if self._cancels else None
        state = f": {states[0].lower()}" if states else ""
        return f"{how} (job {self.job.job_id}{state})"

    def end(self) -> None:
        """End the job."""
        with suppress(OSError):
            (self.box / _END).touch()
        if self._cancels:
            _answer("scancel", self.job.job_id)

    @property
    def _out(self) -> Path:
        """The file of the answer that is waited for."""
        return self.box / f"out-{self._number}"


class SlurmCrew:
    """Submits jobs."""

    def __init__(self, function: bytes, *, cpus: int, gpus: int, memory: int | None) -> None:
        """Make the folder that driver and jobs share."""
        check_installed("submitit", what="--engine slurm")
        import submitit

        try:
            _HOME.mkdir(parents=True, exist_ok=True)
            self._folder = Path(tempfile.mkdtemp(dir=_HOME))  # of mode 0700
            self._ended = threading.Event()
            threading.Thread(target=_live, args=(self._folder, self._ended), daemon=True).start()
            self._term: Any = signal.getsignal(signal.SIGTERM)
            with suppress(ValueError):  # of a thread other than the main one
                signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
            _put(self._folder / _FUNCTION, function)
            self._executor = submitit.AutoExecutor(folder=self._folder / "log")
        except OSError as error:
            if hasattr(self, "_ended"):
                self.close()
            raise GroupwiseError(
                f"expected a folder in {_HOME} that jobs see too, got {first_line(error)}: check "
                "space and mode"
            ) from None
        # Partition, account and the like are read by sbatch itself from SBATCH_PARTITION,
        # SBATCH_ACCOUNT ...
        self._executor.update_parameters(
            name=_name(self._folder), timeout_min=_MINUTES, cpus_per_task=cpus, gpus_per_node=gpus
        )
        if gpus and self._executor.cluster == "local" and not Path("/dev/nvidia0").exists():
            self.close()
            raise GroupwiseError(
                f"expected GPUs for a worker ({gpus}), got none on this machine, and no SLURM: "
                "leave --gpus-per-task out"
            )
        self._needs, self._asked = (cpus, memory), time.monotonic()
        _remove_orphans(self._folder.stat().st_mtime_ns)

    def most(self, wanted: int | None) -> int:
        """Return how many jobs there can be at once."""
        return wanted or _WORKERS

    def hire(self) -> SlurmWorker:
        """Submit a job."""
        advice = f"check SBATCH_PARTITION and its like, and that {_HOME} has room"
        # submitit raises what sbatch says in several classes
        with one_sentence("SLURM to take a job", advice, raised=Exception):
            box = Path(tempfile.mkdtemp(dir=self._folder))
            job = self._executor.submit(serve_mailbox, box, *self._needs)
        return SlurmWorker(box, job, cancels=self._executor.cluster != "local")

    def dismiss(self, worker: SlurmWorker) -> None:
        """End a job."""
        worker.end()

    def wait(self, workers: Sequence[SlurmWorker], seconds: float) -> list[SlurmWorker]:
        """Return the workers that say something or have ended, after a while none."""
        until = time.monotonic() + seconds
        if until - self._asked > _SILENT and self._executor.cluster != "local":
            self._asked = until
            queue = _answer("squeue", "--noheader", "--format=%i", f"--name={_name(self._folder)}")
            if queue is not None:
                for worker in workers:
                    worker.is_gone = worker.job.job_id not in queue
        while True:
            ready = [worker for worker in workers if worker.is_ready()]
            if ready or time.monotonic() > until:
                return ready
            time.sleep(_LOOK)

    def close(self) -> None:
        """Cancel what is left and remove the folder: a worker that still runs ends with it."""
        self._ended.set()
        _remove(self._folder)
        with suppress(ValueError):
            signal.signal(signal.SIGTERM, self._term)


def _name(folder: Path) -> str:
    """Return what the jobs of a folder are called."""
    return f"groupwise-{folder.name}"


def _live(folder: Path, ended: threading.Event) -> None:
    """Give signs of life in a folder."""
    while True:
        with suppress(OSError):  # of a full disk: the time of a file takes no room there
            (folder / _ALIVE).touch()
        if ended.wait(_BEAT):
            return


def _touched(file: Path) -> int:
    """Return when a file was touched, 0 where there is none: a file that is opened is looked at
    anew on a shared disk too.
    """
    try:
        with file.open("rb") as opened:
            return os.fstat(opened.fileno()).st_mtime_ns
    except OSError:
        return 0


def _remove_orphans(now: int) -> None:
    """Remove what drivers left that were killed: their workers have given them up too."""
    for folder in _HOME.iterdir():
        alive = folder / _ALIVE
        with suppress(OSError):  # of a folder that goes just now, or a disk that is away
            last = (alive if alive in folder.iterdir() else folder).stat().st_mtime_ns
            if now - last > 1e9 * _ORPHANED:
                _remove(folder)


def _remove(folder: Path) -> None:
    """Cancel the jobs of a folder and remove it."""
    _answer("scancel", f"--name={_name(folder)}")
    for _ in range(_REMOVALS):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(_LOOK)


def _answer(*command: str) -> list[str] | None:
    """Return the words that a command of SLURM answers, None where it cannot."""
    try:
        done = subprocess.run(  # noqa: S603 - our own words
            command, capture_output=True, text=True, check=True, timeout=_ORPHANED
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.split()


def _put(path: Path, content: bytes) -> None:
    """Write a file so that it appears whole."""
    partial = path.with_name(f".{path.name}")
    partial.write_bytes(content)
    partial.replace(path)


def serve_mailbox(box: Path, cpus: int, memory: int | None) -> None:
    """Answer the shards of one mailbox until there is an end."""
    # of a job that SLURM has started again, the shards are elsewhere
    if not box.exists() or (box / _END).exists() or (box / _ALIVE).exists():
        return
    os.environ.update(dict.fromkeys(THREADS, str(cpus)))
    threading.Thread(target=_live, args=(box, threading.Event()), daemon=True).start()
    threading.Thread(target=_end_with_driver, args=(box,), daemon=True).start()
    work = Work((box.parent / _FUNCTION).read_bytes(), memory)
    _put(box / "out-0", pickle.dumps(work.ready()))
    number = 1
    while True:
        request = box / f"in-{number}"
        if not _touched(request):
            time.sleep(_LOOK)
            continue
        answer = work.answer(request.read_bytes())
        request.unlink()
        _put(box / f"out-{number}", pickle.dumps(answer))
        number += 1


def _end_with_driver(box: Path) -> None:
    """End this process once the driver says so, has removed its folder or was long not seen."""
    folder, seen = box.parent, time.time_ns()
    while True:
        time.sleep(_LOOK * 5)
        last = _touched(folder / _ALIVE)
        seen = last or seen
        with suppress(OSError):  # of a disk that is away, where nothing was removed
            if not last and folder not in folder.parent.iterdir():
                os._exit(1)
        if time.time_ns() - seen > 1e9 * _ORPHANED or _touched(box / _END):
            os._exit(1)
