"""Python in a process of its own that may take a given CPU time and memory: what it prints, or
how it died.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence
from dataclasses import dataclass

from tests.processes import run_forked

CPU_SECONDS, MEMORY = 20, 2 << 30

OPEN = """
import sys
from groupwise.errors import GroupwiseError
from groupwise.readers import run_record
for path in sys.argv[1:]:
    try:
        record = run_record(path)
        print(len(record.steps), *record.notes, sep="\\n")
    except GroupwiseError as error:
        print("refused:", error)
    print("---")
"""


@dataclass(frozen=True)
class Ran:
    """How a process ended."""

    code: int  # of its exit, negative for a signal
    printed: str  # both streams
    memory: int  # the most it held, bytes


def run_bounded(
    script: str, arguments: Sequence[str] = (), *, seconds: int = CPU_SECONDS, memory: int = MEMORY
) -> Ran:
    """Run a script under limits that the kernel keeps; one that goes beyond is killed."""
    program = (
        f"{script}\nimport resource as _r; print('memory', _r.getrusage(_r.RUSAGE_SELF).ru_maxrss "
        "* 1024)"
    )
    ended = run_forked(
        program,
        arguments,
        prepare=limit,
        prepared=(seconds, memory),
        environment={
            **os.environ,
            "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            "POLARS_MAX_THREADS": "2",
        },
    )
    printed, _, held = ended.stdout.rpartition("memory ")
    printed = ended.stderr + (printed or held)
    return Ran(ended.returncode, printed, int(held) if ended.returncode == 0 else memory)


def limit(seconds: int, memory: int) -> None:
    """Let the kernel end this process beyond so much."""
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))


def opened_bounded(*paths: object) -> list[str]:
    """Open logs in one such process: of each the number of steps and the notes, or what it was
    refused for.
    """
    ran = run_bounded(OPEN, list(map(str, paths)))
    assert ran.code == 0, ran
    assert "Traceback" not in ran.printed
    *printed, _ = ran.printed.split("---\n")
    assert len(printed) == len(paths)
    return printed
