"""math-verify behind a time limit that holds: it runs in a process of its own, which is ended and started anew where it takes too long.

A limit by signal works in a main thread alone and does not interrupt a long power of integers. It decides nothing by itself.
"""

from __future__ import annotations

import contextlib
import json
import math
import queue
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from groupwise.errors import GroupwiseError, InvalidArgumentError

_WORKER = Path(__file__).with_name("math_worker.py")
_START_LIMIT = 120.0


def check_limit(limit: float) -> None:
    """Refuse a time limit that is none."""
    if not (limit > 0 and math.isfinite(limit)):
        raise InvalidArgumentError(f"expected a time limit in seconds above 0, got {limit}")


class MathVerify:
    """Whether two answers mean the same, by math-verify; a context manager that holds its process."""

    def __init__(self, *, limit: float = 5.0) -> None:
        check_limit(limit)
        if find_spec("math_verify") is None:
            raise GroupwiseError("expected math-verify to be installed: pip install 'groupwise[math]'")
        self.limit = limit
        self.timeouts = 0
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str] = queue.Queue()
        self._known: dict[tuple[str, str], bool | None] = {}

    def __enter__(self) -> MathVerify:
        """Return itself; the process starts with the first question."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """End the process."""
        self.close()

    def __call__(self, gold: str, found: str) -> bool | None:
        """Return whether two answers mean the same; None where that cannot be decided in time."""
        if (gold, found) not in self._known:
            self._known[gold, found] = self._asked(gold, found)
        return self._known[gold, found]

    def close(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def _asked(self, gold: str, found: str) -> bool | None:
        """Ask the process."""
        process = self._running()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps({"gold": gold, "found": found}) + "\n")
            process.stdin.flush()
        except OSError:
            self.close()
            return None
        answer = self._answer(self.limit)
        if answer is None:
            self.timeouts += 1
            self.close()
            return None
        same = answer.get("same")
        return same if isinstance(same, bool) else None

    def _running(self) -> subprocess.Popen[str]:
        """Return the process, started where there is none."""
        if self._process is None:
            self._lines = queue.Queue()
            # -P: the worker's folder is not searched for modules, so that none of ours can be taken for one of its libraries.
            self._process = subprocess.Popen(  # noqa: S603 - our own file
                [sys.executable, "-P", str(_WORKER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
            assert self._process.stdout is not None
            threading.Thread(target=_read, args=(self._process.stdout, self._lines), daemon=True).start()
            if self._answer(_START_LIMIT) is None:
                self.close()
                raise GroupwiseError("expected math-verify to start, got nothing from it: reinstall it with pip install 'groupwise[math]'")
        return self._process

    def _answer(self, limit: float) -> dict[str, Any] | None:
        """Return the next line of the process, or None where it takes too long or ends."""
        try:
            line = self._lines.get(timeout=limit)
        except queue.Empty:
            return None
        return dict(json.loads(line)) if line else None


def _read(stream: IO[str], lines: queue.Queue[str]) -> None:
    """Hand on lines; an empty one at the end."""
    with contextlib.suppress(ValueError, OSError):
        for line in stream:
            lines.put(line)
    lines.put("")
