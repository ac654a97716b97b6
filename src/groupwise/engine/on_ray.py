"""Workers that are actors of a Ray cluster: a running one, or one of this machine."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from groupwise.engine.worker import Work, WorkerMessage
from groupwise.errors import GroupwiseError, check_installed, first_line, one_sentence

if TYPE_CHECKING:
    from types import ModuleType

_ANSWERS_WITHIN = 5.0  # seconds that an address may take to answer
_STARTS_WITHIN = 90.0  # seconds that a node may take to start


class RayWorker:
    """One actor and what was last asked of it."""

    def __init__(self, ray: ModuleType, actor: Any) -> None:
        """Ask whether it is ready."""
        self._ray, self.actor = ray, actor
        self.reference = actor.ready.remote()
        self._ending = "ended"

    def send(self, payload: bytes) -> None:
        """Hand over a shard."""
        self.reference = self.actor.answer.remote(payload)

    def answer(self) -> WorkerMessage | None:
        """Return what the actor says, or None where it has ended."""
        try:
            answer: WorkerMessage = self._ray.get(self.reference)
        except self._ray.exceptions.RayError as error:
            self._ending = (
                f"ended (Ray: {type(error).__name__}): check the space and the logs in Ray's "
                "folder, /tmp/ray by default"
            )
            return None
        return answer

    def ending(self) -> str:
        """Return how it ended, in words."""
        return self._ending


class RayCrew:
    """Hires actors."""

    def __init__(self, function: bytes, *, cpus: int, gpus: int, memory: int | None) -> None:
        """Connect to the cluster and check what it has."""
        check_installed("ray", what="--engine ray")
        os.environ.setdefault(
            "RAY_DEDUP_LOGS_SKIP_REGEX", "."
        )  # else Ray says on stdout, amid our answers, that a worker has died
        import ray

        self._ray, self._ours = ray, not ray.is_initialized()
        if self._ours:
            _connect(ray, os.environ.get("RAY_ADDRESS") or "auto")
        self._needs = {"CPU": cpus, **({"GPU": gpus} if gpus else {})}
        self._remote = ray.remote(num_cpus=cpus, num_gpus=gpus, max_restarts=0)(Work)
        self._function, self._memory = ray.put(function), memory

    def most(self, wanted: int | None) -> int:
        """Return how many actors there can be at once."""
        for _ in _looks("a node with room for a worker"):
            has = self._ray.cluster_resources()
            room = min(int(has.get(kind, 0) // number) for kind, number in self._needs.items())
            if room:
                return room if wanted is None else min(wanted, room)
        lacking, came = (
            " and ".join(
                f"{held.get(kind, 0):g} {kind}{'s' * (held.get(kind, 0) != 1)}"
                for kind in self._needs
            )
            for held in (self._needs, has)
        )
        raise GroupwiseError(
            f"expected a Ray cluster with {lacking} for a worker, got {came} in all: ask for "
            "less, or add a node"
        )

    def hire(self) -> RayWorker:
        """Start an actor."""
        return RayWorker(self._ray, self._remote.remote(self._function, self._memory))

    def dismiss(self, worker: RayWorker) -> None:
        """End an actor."""
        self._ray.kill(worker.actor)

    def wait(self, workers: Sequence[RayWorker], seconds: float) -> list[RayWorker]:
        """Return the actors that say something or have ended, after a while none."""
        asked = [worker.reference for worker in workers]
        ready, _ = self._ray.wait(asked, timeout=seconds)
        return [worker for worker in workers if worker.reference in ready]

    def close(self) -> None:
        """Leave the cluster where this crew has joined it."""
        if self._ours:
            self._ray.shutdown()


@contextmanager
def _hushed() -> Iterator[None]:
    """Keep the lines that Ray's core writes while it joins a cluster off the terminal."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _looks(what: str) -> Iterator[bool]:
    """Yield whether a look is the last one, a second apart: a job may start before the head of its
    cluster, and that before the other nodes.
    """
    until, notice = time.monotonic() + _STARTS_WITHIN, f"groupwise: waiting for {what}\n"
    while time.monotonic() < until:
        yield False
        sys.stderr.write(notice)
        notice = ""
        time.sleep(1)
    yield True


def _await_head(host: str, port: int) -> None:
    """Wait until something answers at an address."""
    for is_last in _looks(f"{host}:{port}"):
        try:
            socket.create_connection((host, port), _ANSWERS_WITHIN).close()
        except (ConnectionRefusedError, TimeoutError):
            if is_last:
                raise
        else:
            return


def _connect(ray: ModuleType, address: str) -> None:
    """Join a cluster, or say in one sentence why not."""
    advice = (
        "start one with `ray start --head`, or set RAY_ADDRESS (and RAY_AUTH_TOKEN as its jobs do)"
    )
    host, _, port = address.removeprefix("ray://").rpartition(":")
    with one_sentence(f"a Ray cluster at {address}", advice):
        if host and port.isdigit():
            _await_head(host, int(port))
    try:
        with _hushed():
            ray.init(address=address, logging_level="ERROR", log_to_driver=False)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        came = "none" if isinstance(error, ConnectionError) else first_line(error)
        raise GroupwiseError(
            f"expected a Ray cluster that runs ({address}), got {came}: {advice}"
        ) from None
