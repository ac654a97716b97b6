"""Workers that are processes of this machine, started fresh and ended together."""

import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait

from groupwise.engine.worker import OUT_OF_MEMORY, THREADS, Work, WorkerMessage
from groupwise.errors import GroupwiseError
from groupwise.processes import end_with_parent

_GOODBYE = 2.0  # seconds that a killed process may take to be gone


class LocalWorker:
    """One process and the pipe to it."""

    def __init__(self, function: bytes, memory: int | None, environment: dict[str, str]) -> None:
        """Start it."""
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(theirs, function, memory), daemon=False
        )
        with _environment(environment):
            self._process.start()
        theirs.close()

    def send(self, payload: bytes) -> None:
        """Hand over a shard; a worker that is gone is noticed when it is waited for."""
        with suppress(OSError):
            self.pipe.send_bytes(payload)

    def answer(self) -> WorkerMessage | None:
        """Return what the worker says, or None where it has ended."""
        try:
            answer: WorkerMessage = self.pipe.recv()
        except (EOFError, OSError):
            return None
        return answer

    def ending(self) -> str:
        """Return how the worker ended, in words."""
        self._process.join(_GOODBYE)
        code = self._process.exitcode
        if code == OUT_OF_MEMORY:
            return "went over its limit of memory"
        if code is not None and code < 0:
            return f"was ended by signal {-code}" + (
                " (often for want of memory)" if code == -signal.SIGKILL else ""
            )
        return f"ended with code {code}"

    def end(self) -> None:
        """End the process and what it started."""
        if self._process.pid is not None and self._process.is_alive():
            with suppress(OSError, AttributeError):
                os.killpg(
                    self._process.pid, signal.SIGKILL
                )  # fails where it has no group of its own yet
            self._process.kill()
        self._process.join(_GOODBYE)
        self.pipe.close()


class LocalCrew:
    """Starts worker processes on this machine."""

    def __init__(self, function: bytes, *, cpus: int, gpus: int, memory: int | None) -> None:
        """Check that the machine has the GPUs that a worker needs."""
        self._function, self._memory = function, memory
        self._cpus, self._gpus, self._free = cpus, gpus, _devices() if gpus else []
        if gpus and len(self._free) < gpus:
            raise GroupwiseError(
                f"expected GPUs for a worker ({gpus}), got {len(self._free)} on this machine: "
                "leave --gpus-per-task out"
            )
        self._environment = dict.fromkeys(THREADS, str(cpus))
        self._taken: dict[int, list[str]] = {}

    def most(self, wanted: int | None) -> int:
        """Return how many workers there can be at once: one a core by default."""
        room = len(self._free) // self._gpus if self._gpus else max(1, _cores() // self._cpus)
        return room if wanted is None else min(wanted, room) if self._gpus else wanted

    def hire(self) -> LocalWorker:
        """Start a worker."""
        devices = [self._free.pop(0) for _ in range(self._gpus)]
        own = {"CUDA_VISIBLE_DEVICES": ",".join(devices)} if devices else {}
        worker = LocalWorker(self._function, self._memory, self._environment | own)
        self._taken[id(worker)] = devices
        return worker

    def dismiss(self, worker: LocalWorker) -> None:
        """End a worker."""
        worker.end()
        self._free += self._taken.pop(id(worker), [])

    def wait(self, workers: Sequence[LocalWorker], seconds: float) -> list[LocalWorker]:
        """Return the workers that say something or have ended, after a while none."""
        ready = wait([worker.pipe for worker in workers], seconds)
        return [worker for worker in workers if worker.pipe in ready]

    def close(self) -> None:
        """Nothing but the workers needs an end."""


def _cores() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _devices() -> list[str]:
    """Return the GPUs of this machine that this process may use."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return [name for name in given.split(",") if name.strip()]
    from importlib.util import find_spec

    if find_spec("torch") is None:
        return []
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]


@contextmanager
def _environment(own: dict[str, str]) -> Iterator[None]:
    """Set variables of a process before it starts: libraries read them when they load."""
    before = {name: os.environ[name] for name in own if name in os.environ}
    os.environ.update(own)
    try:
        yield
    finally:
        for name in own:
            del os.environ[name]
        os.environ.update(before)


def _serve(pipe: Connection, function: bytes, memory: int | None) -> None:
    """Answer shards until the driver is gone."""
    with suppress(OSError, AttributeError):
        os.setsid()  # Ctrl-C is the driver's
    end_with_parent()
    work = Work(function, memory)
    with suppress(EOFError, OSError):
        pipe.send(work.ready())
        while True:
            pipe.send(work.answer(pipe.recv_bytes()))
