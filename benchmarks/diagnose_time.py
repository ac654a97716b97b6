"""What `groupwise diagnose` of 160 rows costs from a cold start, beside the bare imports that it cannot do without, and what a judgement
costs once all is loaded, of logs of 150 and 10,000 rows.

    python benchmarks/diagnose_time.py [--turns 9]

Processor seconds, so that others on the machine count for less; cold starts take turns with the imports, and the ratio is that of a
turn. The logs are simulated, one of each of some healthy kinds. It asserts nothing.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS"):
    os.environ.setdefault(name, "1")
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # a program that is installed has its bytecode

from groupwise.diagnostics.judge import judge  # noqa: E402
from groupwise.record.run import RunRecord  # noqa: E402

sys.path.append(str(Path(__file__).resolve().parents[1] / "experiments"))
from worlds.logs import run_of  # noqa: E402

KINDS = ("steady", "to_the_top", "one_function_zero", "curriculum", "slow_learner", "isolated_spikes")
BARE = "import numpy, scipy.special, polars"


def processor_seconds(command: Sequence[str]) -> float:
    """What a process takes of the processor."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def of(values: Sequence[float], digits: int = 2) -> str:
    """Minimum, median and maximum."""
    return " ".join(f"{value:.{digits}f}" for value in (min(values), statistics.median(values), max(values)))


def cold(turns: int) -> None:
    """Measure cold starts in turn with the imports; the first turn, which writes bytecode, does not count."""
    with tempfile.TemporaryDirectory() as home:
        path = run_of("steady", 3, rows=160)[0].save(Path(home) / "run")
        commands = [sys.executable, "-m", "groupwise", "diagnose", str(path)], [sys.executable, "-c", BARE]
        measured = [tuple(processor_seconds(command) for command in commands) for _ in range(turns + 1)][1:]
    diagnose, bare = zip(*measured, strict=True)
    ratio = [ours / theirs for ours, theirs in measured]
    print("minimum, median, maximum")
    print(f"diagnose, cold, 160 rows: {of(diagnose)} s; {BARE}: {of(bare)} s; ratio {of(ratio)}")


def judgement_seconds(record: RunRecord) -> float:
    """The least of three judgements."""
    times = []
    for _ in range(3):
        begun = time.process_time()
        judge(record, ended=False)
        times.append(time.process_time() - begun)
    return min(times)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=9)
    cold(parser.parse_args().turns)
    for rows in (150, 10_000):
        found = [1e3 * judgement_seconds(run_of(kind, 9_000_000, rows=rows)[0]) for kind in KINDS]
        print(f"judgement of {rows:,} rows: {of(found, 1)} ms")


if __name__ == "__main__":
    main()
