"""Processes that are forked from one that has loaded the libraries: a new interpreter loads them
for longer than most tests run.

What starts a process anew (`spawn`) is tested in `tests/engine`; here a process is a means.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TextIO

import pytest

PRELOADED = [
    "scipy.optimize",
    "groupwise.analysis.fleet",
    "groupwise.analysis.summary",
    "groupwise.cli.app",
    "groupwise.pages.live",
    "groupwise.record.run",
    "rich.live",
    "rich.markup",
    "rich.table",
    "typer._adapters",
    "uvicorn",
]
# The command line, as `python -m groupwise` runs it.
PROGRAM = "import sys\nfrom groupwise.cli.app import main\nsys.exit(main())\n"
_CONTEXT = multiprocessing.get_context("forkserver")
_OF_NAME = multiprocessing.get_context


def _context(name: str | None = None) -> Any:
    return _OF_NAME("forkserver" if name == "spawn" else name)


@contextmanager
def workers_forked() -> Iterator[None]:
    """Let workers of engines and live pages be forked."""
    _CONTEXT.set_forkserver_preload(PRELOADED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multiprocessing, "get_context", _context)
        yield


def end_server() -> None:
    """End the process that forks; its seconds and those of its children are counted then."""
    forkserver._forkserver._stop()  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Ended:
    """What a process said, and its exit code, negative for a signal."""

    returncode: int
    stdout: str
    stderr: str


class Forked:
    """A process that runs a script as `python -c` does, with pipes of what it prints."""

    def __init__(
        self,
        script: str,
        arguments: Sequence[str] = (),
        *,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        prepare: Callable[..., None] | None = None,
        prepared: Sequence[int] = (),
        workers: bool = True,
    ) -> None:
        """Start it; `prepare` is a function of a module, called with `prepared` in the process."""
        _CONTEXT.set_forkserver_preload(PRELOADED)
        ends = [_CONTEXT.Pipe(duplex=False) for _ in range(2)]
        server = forkserver._forkserver
        server.ensure_running()
        request = (
            script,
            ["-c", *arguments],
            dict(environment or os.environ),
            folder,
            server._forkserver_address if workers else None,  # type: ignore[attr-defined]
        )
        self._process = _CONTEXT.Process(
            target=_run, args=(*request, prepare, prepared, *(writer for _, writer in ends))
        )
        self._process.start()
        for _, writer in ends:
            writer.close()
        self.stdout, self.stderr = (_text_of(reader) for reader, _ in ends)
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code of a process that has ended."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """Send a signal."""
        assert self.pid is not None
        os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it may end between the question and the signal
                self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float = 120.0) -> int:
        """Wait for its end and return its exit code."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            self.kill()
            pytest.fail(f"the process took longer than {timeout} s")
        return self._process.exitcode

    def communicate(self, timeout: float = 120.0) -> Ended:
        """Read what it prints to the end, and wait for it: little may stand in the second pipe."""
        printed, complaints = self.stdout.read(), self.stderr.read()
        return Ended(self.wait(timeout), printed, complaints)

    def __enter__(self) -> Forked:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()
        self._process.join()
        self._process.close()
        self.stdout.close()
        self.stderr.close()


def run_forked(script: str, arguments: Sequence[str] = (), **how: Any) -> Ended:
    """Run a script to its end."""
    with Forked(script, arguments, **how) as process:
        return process.communicate()


def _text_of(reader: Connection) -> TextIO:
    file = os.fdopen(os.dup(reader.fileno()), encoding="utf-8")
    reader.close()
    return file


def _run(
    script: str,
    arguments: list[str],
    environment: dict[str, str],
    folder: Path | None,
    address: str | None,
    prepare: Callable[..., None] | None,
    prepared: Sequence[int],
    out: Connection,
    err: Connection,
) -> None:
    """Become the process: its streams, its surroundings, its script."""
    for number, end in ((1, out), (2, err)):
        os.dup2(end.fileno(), number)
        end.close()
    sys.stdout, sys.stderr = (
        os.fdopen(number, "w", closefd=False, encoding="utf-8") for number in (1, 2)
    )
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = arguments
    if folder is not None:
        os.chdir(folder)
    if address is not None:  # of the one server, which counts the seconds of its workers too
        server = forkserver._forkserver
        server._forkserver_address = address  # type: ignore[attr-defined]
        server.ensure_running = resource_tracker.ensure_running  # type: ignore[method-assign]
        multiprocessing.get_context = _context  # type: ignore[assignment]
    if prepare is not None:
        prepare(*prepared)
    exec(compile(script, "<string>", "exec"), {"__name__": "__main__"})
