"""What judging many runs takes: every run of a synthetic fleet judged.

    python benchmarks/fleet_time.py [--runs 5000] [--rows 1000] [--workers 2] [--folder FOLDER]

Runs are simulated as TRL and verl log them, one of each of some kinds and two seeds, and copied as
JSON lines, a folder a run. Wall and processor seconds of driver and workers, and the most memory
that any of these processes held. It asserts nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "lab" / "experiments"))
from groupwise_lab.worlds.logs import run_of

KINDS = (
    "steady",
    "to_the_top",
    "one_function_zero",
    "curriculum",
    "slow_learner",
    "isolated_spikes",
    "length_runaway",
)


def make_fleet(home: Path, runs: int, rows: int) -> list[Path]:
    """Write the logs of a fleet."""
    first, made = [], []
    for number in range(runs):
        kind, seed = KINDS[number % len(KINDS)], 1 + number // len(KINDS) % 2
        log = home / f"team{number % 20}" / f"{kind}_{number:05d}" / "log.jsonl"
        log.parent.mkdir(parents=True)
        if number < 2 * len(KINDS):
            log.write_text(
                "".join(
                    json.dumps(row) + "\n"
                    for row in run_of(kind, seed, rows=rows)[0].steps.to_dicts()
                )
            )
            first.append(log)
        else:
            shutil.copyfile(first[number % len(first)], log)
        made.append(log)
    return made


def judge_fleet(home: Path, table: Path, workers: int) -> None:
    """Judge a fleet by the command, and print what that took."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [
        sys.executable,
        "-m",
        "groupwise",
        "fleet",
        str(home),
        "-o",
        str(table),
        "--page",
        str(table.with_suffix(".html")),
    ]
    out = subprocess.run(
        [*command, "--workers", str(workers), "--json"], check=False, capture_output=True, text=True
    )
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    document = json.loads(out.stdout)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(
        f"{len(document['runs']):,} runs: {wall:.1f} s, processor {used:.1f} s, "
        f"{1e3 * used / len(document['runs']):.1f} ms each; {document['counts']}"
    )
    print(
        f"  the most that a process held: {after.ru_maxrss / 1024:.0f} MB; page "
        f"{table.with_suffix('.html').stat().st_size / 1e6:.2f} MB"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("--runs", 5000), ("--rows", 1000), ("--workers", 2)):
        parser.add_argument(name, type=int, default=default)
    parser.add_argument("--folder", type=Path, default=None, help="where the fleet is written")
    given = parser.parse_args()
    os.environ["POLARS_MAX_THREADS"] = "1"
    with tempfile.TemporaryDirectory(dir=given.folder) as place:
        home, table = Path(place) / "runs", Path(place) / "fleet.csv"
        logs = make_fleet(home, given.runs, given.rows)
        print(
            f"{given.runs:,} runs of {given.rows:,} rows, "
            f"{sum(log.stat().st_size for log in logs) / 1e6:,.0f} MB"
        )
        judge_fleet(home, table, given.workers)


if __name__ == "__main__":
    main()
