"""Grades by a reward function of the user, in a process of its own with a limit of time and memory.

What the function prints is dropped. As a program this module is that process: one line of JSON in,
one out.
"""

import asyncio
import importlib
import inspect
import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np

from groupwise.arrays import Float, floats
from groupwise.errors import InvalidArgumentError
from groupwise.wording import clean

_MEMORY = 16 << 30  # bytes that the function may ask for
_MOST = 1e15  # of a grade
_SIMPLER = "test it on one completion in Python, or give --data with the columns that it needs"


def grades(function: str, columns: Mapping[str, Sequence[Any]], *, seconds: float) -> Float:
    """Return what a reward function MODULE:NAME gives, called as TRL calls it.

    Raises:
        InvalidArgumentError: it does not return a finite number an answer within the time.
    """
    if not all(function.partition(":")):
        raise InvalidArgumentError(
            f"expected MODULE:NAME of a reward function, got {function!r}: join both by a colon"
        )
    job = json.dumps({"function": function, "columns": columns}, default=str)
    wanted = f"one number per completion from {function}"
    # Files and no pipes: what the function leaves behind may hold a pipe for ever.
    with TemporaryFile() as given, TemporaryFile() as written:
        given.write(job.encode())
        given.seek(0)
        process = subprocess.Popen(  # noqa: S603 - this interpreter, with a module of ours
            [sys.executable, "-P", "-m", __name__],
            stdin=given,
            stdout=written,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise InvalidArgumentError(
                f"expected {wanted} within {seconds:g} s, got none: raise --seconds, or {_SIMPLER}"
            ) from None
        finally:
            with suppress(OSError):  # what the function started goes with it
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        written.seek(0)
        came = {"error": f"none because its process ended with {process.returncode}"}
        with suppress(ValueError):  # the function may write there too
            came = dict(json.loads(written.read()))
    grade_N, count = floats(came.get("grades", [])), len(columns["completions"])
    bad_N = ~(np.abs(grade_N) < _MOST)  # NaN too
    if "error" in came or len(grade_N) != count or bad_N.any():
        wrong = f"{bad_N.sum()} of {count} that are not numbers below {_MOST:g}"
        wrong = wrong if len(grade_N) == count else f"{len(grade_N)} for {count} completions"
        error = clean(came.get("error", wrong))
        raise InvalidArgumentError(f"expected {wanted}, got {error}: {_SIMPLER}")
    return grade_N


def _grade_job() -> None:
    """Read a job, grade, and write the grades."""
    own, out = os.getpid(), os.dup(1)
    os.dup2(2, 1)
    with suppress(ImportError):  # no such limit there
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    job = json.loads(sys.stdin.buffer.read())
    answer: dict[str, Any] = {}
    try:
        sys.path.insert(0, str(Path.cwd()))
        module, _, name = job["function"].partition(":")
        values = getattr(importlib.import_module(module), name)(**job["columns"])
        values = asyncio.run(values) if inspect.iscoroutine(values) else values
        answer["grades"] = [math.nan if value is None else float(value) for value in values]
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a function of the user's
        answer["error"] = f"{type(error).__name__}: {error}"[:1000]
    if os.getpid() == own:  # not a copy of this process that the function made
        os.write(out, json.dumps(answer).encode())
    os._exit(0)  # and wait for none that it left


if __name__ == "__main__":
    _grade_job()
