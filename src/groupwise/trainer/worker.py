"""A process of its own behind a time limit that holds: it answers a line of JSON with a line of JSON, in time or not at all.

A limit by signal works in a main thread alone and does not interrupt a long power of integers. The process starts with the first question,
and anew with the next one where it took too long or ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

_START_LIMIT = 120.0
Answer = dict[str, Any]


class Worker:
    """A program that answers questions; its first answer says that it is ready."""

    def __init__(self, program: Path, arguments: Sequence[str] = (), *, heard: bool = False) -> None:
        # -P: the program's folder is not searched for modules, so that none of ours can be taken for one of its libraries.
        self._command = [sys.executable, "-P", str(program), *arguments]
        self._heard = heard  # whether what the process says on its error stream is shown
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str] = queue.Queue()
        self._ending: Any = None

    def start(self) -> Answer | None:
        """Start the process where there is none and return its first answer; None where none came, and an empty one where it runs."""
        if self._process is not None:
            return {}
        self._lines = queue.Queue()
        # A session of its own: Ctrl-C ends the run after its step, in which the process is still asked. What it starts ends with it.
        self._process = subprocess.Popen(  # noqa: S603 - our own file
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if self._heard else subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            start_new_session=True,
        )
        self._ending = weakref.finalize(self, _end, self._process)
        assert self._process.stdout is not None
        threading.Thread(target=_read, args=(self._process.stdout, self._lines), daemon=True).start()
        answer, _ = self._answer(_START_LIMIT)
        if answer is None:
            self.close()
        return answer

    def ask(self, question: Mapping[str, Any], *, limit: float) -> tuple[Answer | None, bool]:
        """Return the answer to a question, or None and whether it took too long; the process has ended then."""
        assert self._process is not None
        assert self._process.stdin is not None
        late = False
        answer: Answer | None = None
        with contextlib.suppress(OSError):
            self._process.stdin.write(json.dumps(question, default=str) + "\n")
            self._process.stdin.flush()
            answer, late = self._answer(limit)
        if answer is None:
            self.close()
        return answer, late

    def close(self) -> None:
        """End the process, if there is one."""
        self._process = None
        if self._ending is not None:
            self._ending()

    def _answer(self, limit: float) -> tuple[Answer | None, bool]:
        """Return the next line of the process, or None where it ends, or takes too long."""
        try:
            line = self._lines.get(timeout=limit)
        except queue.Empty:
            return None, True
        return (dict(json.loads(line)), False) if line else (None, False)


def _end(process: subprocess.Popen[str]) -> None:
    """End a process with whatever it has started."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()


def _read(stream: IO[str], lines: queue.Queue[str]) -> None:
    """Hand on lines; an empty one at the end."""
    with contextlib.suppress(ValueError, OSError):
        for line in stream:
            lines.put(line)
    lines.put("")
