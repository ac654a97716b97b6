"""How often the diagnosis is right on simulated runs: false alarms in health, controls, and the confusion matrix of induced failures.

    python experiments/diagnosis/confusion.py --healthy 1000 --failures 200 --workers 2 --state build/confusion.jsonl

Writes confusion.csv (one row a kind and verdict), alarms.csv (critical and any finding, with Wilson intervals) and delay.csv (onset found
minus true onset, and steps until the first alarm, as shares of the run), calibration.csv (stated against observed probability of the first
cause) and prefixes.csv (alarms on healthy runs that are looked at as they grow), or the same in --output FOLDER. With --state a run that
was cut short goes on where it stopped: each kind is kept there as it is done. Each run has its own seed, so that neither the workers nor
the order change a number.
"""

from __future__ import annotations

import os
import sys

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # before polars is loaded: its threads only wait for each other on such small tables

import argparse
import csv
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from groupwise.diagnostics.former import Diagnosis, diagnose
from groupwise.intervals import wilson
from groupwise.record.run import RunRecord

sys.path.append(str(Path(__file__).resolve().parents[1]))  # worlds
from worlds.runs import CONTROLS, FAILURES, HEALTHY, MIXTURES, SYMPTOMS, control_run, simulated_run

HERE = Path(__file__).parent
SEED = 20261121
# What is kept of a diagnosis: its worst severity, its verdict, its first cause and the probability of that.
Told = tuple[str | None, str, str | None, float]


def run_of(kind: str, i: int) -> tuple[RunRecord, int | None]:
    """Simulate one run of a kind."""
    return simulated_run(kind, np.random.default_rng([SEED, _number(kind), i]))


def _number(kind: str) -> int:
    """A number of a name, the same everywhere."""
    return sum(ord(letter) * 31**place for place, letter in enumerate(kind[:8]))


def told(found: Diagnosis) -> Told:
    """What is kept of a diagnosis."""
    first = found.causes[0] if found.causes else None
    return found.worst, found.verdict, None if first is None else first.cause, 0.0 if first is None else first.probability


def told_of_run(kind: str, i: int) -> Told:
    """Diagnose one run."""
    return told(diagnose(run_of(kind, i)[0]))


def told_of_control(control: str, i: int) -> Told:
    """Diagnose one control."""
    return told(diagnose(control_run(control, "trending", np.random.default_rng([SEED, 7, i]))))


def alarm_row(kind: str, found: Sequence[Told]) -> list[object]:
    """Count critical and serious findings."""
    critical = wilson(sum(worst == "critical" for worst, *_ in found), len(found))
    serious = wilson(sum(verdict != "healthy" for _, verdict, *_ in found), len(found))
    cells = [critical.value, critical.low, critical.high, serious.value, serious.low, serious.high]
    return [kind, len(found), *(f"{cell:.4f}" for cell in cells)]


def delay(kind: str, i: int) -> list[object] | None:
    """Onset found minus true onset, and steps from onset to the first prefix of the log that is not healthy, as shares of the run."""
    record, onset = run_of(kind, i)
    found = diagnose(record)
    steps = record.steps["step"]
    last = int(steps[-1])
    # Of the check that the failure belongs to, its worst finding: no other finding may happen to stand nearer.
    named = [f.since_step for f in found.findings if f.severity != "info" and f.check == kind]
    if not named or onset is None:
        return None
    since = named[0] if named[0] is not None else int(steps[0])
    detected = float("nan")
    for share in (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7):
        until = onset + share * last
        if until >= last:
            break
        if diagnose(replace(record, steps=record.steps.filter(steps <= until))).verdict != "healthy":
            detected = share
            break
    return [kind, last, onset, since, f"{(since - onset) / last:.4f}", f"{detected:.2f}"]


def calibration(stated: Sequence[tuple[float, bool]]) -> list[list[object]]:
    """How often the most probable cause was the true one, by its stated probability."""
    lines: list[list[object]] = []
    for low, high in ((0.0, 0.5), (0.5, 0.8), (0.8, 0.95), (0.95, 1.01)):
        part = [(p, right) for p, right in stated if low <= p < high]
        if part:
            share = wilson(sum(right for _, right in part), len(part))
            mean = float(np.mean([p for p, _ in part]))
            lines.append([low, min(high, 1.0), len(part), *(f"{x:.4f}" for x in (mean, share.value, share.low, share.high))])
    return lines


def worst_of_prefixes(kind: str, i: int) -> list[str | None]:
    """The severities that a run is ever given where it is looked at six times as it grows."""
    record, _ = run_of(kind, i)
    steps = record.steps["step"]
    return list({diagnose(replace(record, steps=record.steps.filter(steps <= int(steps[-1] * k / 6)))).worst for k in range(1, 7)})


class Study:
    """Calls of functions of a number, on some processes, each batch kept in a file as it is done.

    Args:
        workers: processes.
        state: the file, or None.
    """

    def __init__(self, workers: int, state: Path | None) -> None:
        self.pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn")) if workers > 1 else None
        self.state = state
        self.known: dict[str, list[Any]] = {}
        if state is not None and state.exists():
            self.known = {batch["key"]: batch["found"] for batch in _whole_lines(state)}

    def each(self, name: str, call: Callable[[int], Any], count: int) -> list[Any]:
        """Return what a function gives for 0 to count - 1, from the file where it is known."""
        key = f"{name} {count} {SEED}"
        if key not in self.known:
            # Through JSON either way, so that a result is the same whether it was kept or not.
            self.known[key] = json.loads(json.dumps(list(map(call, range(count)) if self.pool is None else self._mapped(call, count))))
            if self.state is not None:
                self.state.parent.mkdir(parents=True, exist_ok=True)
                with self.state.open("a") as file:
                    file.write(json.dumps({"key": key, "found": self.known[key]}) + "\n")
            print(name, count, flush=True)
        return self.known[key]

    def _mapped(self, call: Callable[[int], Any], count: int) -> Iterator[Any]:
        """The same on all processes."""
        assert self.pool is not None
        return self.pool.map(call, range(count), chunksize=max(1, min(20, count // 8)))


def _whole_lines(state: Path) -> Iterator[dict[str, Any]]:
    """The lines of a file but for a last one that was cut short."""
    for line in state.read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            yield json.loads(line)


@contextmanager
def table(path: Path, header: Sequence[str]) -> Iterator[Callable[[Sequence[object]], None]]:
    """A CSV that is written row by row."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)

        def add(row: Sequence[object]) -> None:
            writer.writerow(row)
            file.flush()

        yield add


def rates(study: Study, healthy: int, failures: int, home: Path) -> None:
    """Write alarms.csv, confusion.csv and calibration.csv."""
    stated: list[tuple[float, bool]] = []
    header = ["kind", "runs", "critical", "critical_low", "critical_high", "finding", "finding_low", "finding_high"]
    cells = ["kind", "verdict", "runs", "of", "share", "low", "high"]
    kinds = [*((kind, failures) for kind in (*FAILURES, *SYMPTOMS, *("+".join(pair) for pair in MIXTURES)))]
    with table(home / "alarms.csv", header) as alarms, table(home / "confusion.csv", cells) as matrix:
        for kind, count in [*kinds, *((kind, healthy) for kind in HEALTHY)]:
            found = study.each(kind, partial(told_of_run, kind), count)
            if kind in FAILURES:
                stated += [(probability, cause == kind) for _, _, cause, probability in found if cause is not None]
            alarms(alarm_row(kind, found))
            for verdict, times in Counter(verdict for _, verdict, *_ in found).most_common():
                share = wilson(times, count)
                matrix([kind, verdict, times, count, *(f"{x:.4f}" for x in (share.value, share.low, share.high))])
        for control in CONTROLS:
            alarms(alarm_row(f"control: {control}", study.each(f"control: {control}", partial(told_of_control, control), failures)))
    with table(home / "calibration.csv", ["from", "to", "runs", "stated", "right", "low", "high"]) as lines:
        for line in calibration(stated):
            lines(line)


def main() -> None:
    """Run everything and write the tables as they come."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--healthy", type=int, default=1000)
    parser.add_argument("--failures", type=int, default=200)
    parser.add_argument("--delays", type=int, default=20)
    parser.add_argument("--prefixes", type=int, default=15)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--state", type=Path)
    parser.add_argument("--output", type=Path, default=HERE)
    given = parser.parse_args()
    study = Study(given.workers, given.state)
    given.output.mkdir(parents=True, exist_ok=True)
    rates(study, given.healthy, given.failures, given.output)
    with table(given.output / "prefixes.csv", ["kind", "runs", "looks", "ever_critical", "ever_warned"]) as looks:
        for kind in ("trending", "noisy", "smoothed"):
            worst = study.each(f"prefixes of {kind}", partial(worst_of_prefixes, kind), given.prefixes)
            looks(
                [kind, given.prefixes, 6, sum("critical" in w for w in worst), sum(bool({"critical", "warning"} & set(w)) for w in worst)]
            )
    with table(given.output / "delay.csv", ["kind", "steps", "onset", "found", "error_share", "detected_after_share"]) as delays:
        for kind in (*FAILURES, "collapse", "length_runaway"):
            for row in study.each(f"delay of {kind}", partial(delay, kind), given.delays):
                if row is not None:
                    delays(row)


if __name__ == "__main__":
    main()
