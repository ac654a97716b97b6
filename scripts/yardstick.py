"""Run the tests and say at their end what they took of a processor, beside a yardstick: the same
work everywhere, timed before and behind them.

    python scripts/yardstick.py [ARGUMENTS OF PYTEST]

Asserts are not rewritten, which takes seconds in a fresh clone. Tests that fail run once more, with
what they compared.

The budget of the suite is in seconds of a reference machine (two cores with AVX2 and without
AVX-512, on which the suite of version 0.1 took 944 s). A machine on which the yardstick runs in
half of the reference's time has half of the budget.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

BUDGET = 360.0  # seconds of the reference machine
# seconds of the yardstick there: 944 s, over 340 s of that suite on a machine whose yardstick takes
# .24 s
REFERENCE = 0.666
ROUNDS, LOOPS, SIZE, PRODUCTS = 5, 2_000_000, 400, 60


def yardstick() -> float:
    """Seconds of a processor for a loop of Python and for matrix products, the least of some
    rounds.
    """
    matrix = np.linspace(-1.0, 1.0, SIZE * SIZE).reshape(SIZE, SIZE)
    seconds = []
    for _ in range(ROUNDS):
        start, count = time.process_time(), {}
        for number in range(LOOPS):
            count[number & 1023] = count.get(number & 511, 0) + number
        for _ in range(PRODUCTS):
            matrix @ matrix
        seconds.append(time.process_time() - start)
    return min(seconds)


def spent() -> float:
    """Processor seconds of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


class Budget:
    """Prints the seconds above pytest's closing line."""

    def __init__(self) -> None:
        self.yardstick = yardstick()
        self.start = spent()

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print what the tests took, here and on the reference machine."""
        seconds = spent() - self.start
        usual = (self.yardstick + yardstick()) / 2  # what else runs slows both
        there = seconds * REFERENCE / usual
        terminalreporter.write_line(
            f"processor: {seconds:.0f} s here, {there:.0f} s on the reference machine, of "
            f"{BUDGET:.0f} s ({'within' if there <= BUDGET else 'OVER'} the budget); yardstick "
            f"{usual:.2f} s, reference {REFERENCE:.2f} s"
        )


if __name__ == "__main__":
    sys.path[0] = str(
        Path.cwd()
    )  # as `python -m pytest` has it: workers of the engine import the tests
    # Some machines forbid it: each process of the tests would compile the same libraries again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    code = pytest.main(["--assert=plain", *sys.argv[1:]], plugins=[Budget()])
    if code == pytest.ExitCode.TESTS_FAILED:
        again = [sys.executable, "-m", "pytest", "--last-failed", *sys.argv[1:]]
        subprocess.run(again, check=False)
    sys.exit(code)
