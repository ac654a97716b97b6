"""How often the diagnosis is right on simulated runs: false alarms in health, controls, and the confusion matrix of induced failures.

    python experiments/diagnosis/confusion.py --healthy 1000 --failures 200

Writes confusion.csv (one row a kind and verdict), alarms.csv (critical and any finding, with Wilson intervals) and delay.csv (onset found
minus true onset, and steps until the first alarm, as shares of the run), calibration.csv (stated against observed probability of the first
cause) and prefixes.csv (alarms on healthy runs that are looked at as they grow).
"""

from __future__ import annotations

import argparse
import csv
from collections import Counter
from pathlib import Path

import numpy as np

from groupwise.diagnostics import Diagnosis, diagnose
from groupwise.intervals import wilson
from groupwise.record import RunRecord
from groupwise.simulate.runs import control_run, simulated_run
from groupwise.simulate.training import CONTROLS, FAILURES, HEALTHY, MIXTURES, SYMPTOMS

HERE = Path(__file__).parent
SEED = 20261121


def runs(kind: str, count: int) -> list[tuple[RunRecord, int | None]]:
    """Simulate runs of one kind."""
    return [simulated_run(kind, np.random.default_rng([SEED, _number(kind), i])) for i in range(count)]


def _number(kind: str) -> int:
    """A number of a name, the same everywhere."""
    return sum(ord(letter) * 31**place for place, letter in enumerate(kind[:8]))


def alarm_row(kind: str, found: list[Diagnosis]) -> list[object]:
    """Count critical and serious findings."""
    critical = wilson(sum(d.worst == "critical" for d in found), len(found))
    serious = wilson(sum(d.verdict != "healthy" for d in found), len(found))
    cells = [critical.value, critical.low, critical.high, serious.value, serious.low, serious.high]
    return [kind, len(found), *(f"{cell:.4f}" for cell in cells)]


def delay(kind: str, record: RunRecord, onset: int, found: Diagnosis) -> list[object] | None:
    """Onset found minus true onset, and steps from onset to the first prefix of the log that is not healthy, as shares of the run."""
    from dataclasses import replace

    steps = record.steps["step"]
    last = int(steps[-1])
    # Of the check that the failure belongs to, its worst finding: no other finding may happen to stand nearer.
    named = [f.since_step for f in found.findings if f.severity != "info" and f.check == kind]
    if not named:
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


def calibration(stated: list[tuple[float, bool]]) -> list[list[object]]:
    """How often the most probable cause was the true one, by its stated probability."""
    lines: list[list[object]] = []
    for low, high in ((0.0, 0.5), (0.5, 0.8), (0.8, 0.95), (0.95, 1.01)):
        part = [(p, right) for p, right in stated if low <= p < high]
        if part:
            share = wilson(sum(right for _, right in part), len(part))
            mean = float(np.mean([p for p, _ in part]))
            lines.append([low, min(high, 1.0), len(part), *(f"{x:.4f}" for x in (mean, share.value, share.low, share.high))])
    return lines


def prefixes(kind: str, count: int) -> list[object]:
    """Of healthy runs how many are ever critical, or ever more than info, where each is looked at six times as it grows."""
    from dataclasses import replace

    critical = warned = 0
    for record, _ in runs(kind, count):
        steps = record.steps["step"]
        worst = {diagnose(replace(record, steps=record.steps.filter(steps <= int(steps[-1] * k / 6)))).worst for k in range(1, 7)}
        critical += "critical" in worst
        warned += bool(worst & {"critical", "warning"})
    return [kind, count, 6, critical, warned]


def main() -> None:
    """Run everything and write the tables as they come."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--healthy", type=int, default=1000)
    parser.add_argument("--failures", type=int, default=200)
    parser.add_argument("--delays", type=int, default=20)
    parser.add_argument("--prefixes", type=int, default=15)
    given = parser.parse_args()
    stated: list[tuple[float, bool]] = []
    with (HERE / "alarms.csv").open("w", newline="") as alarms, (HERE / "confusion.csv").open("w", newline="") as matrix:
        table, cells = csv.writer(alarms), csv.writer(matrix)
        table.writerow(["kind", "runs", "critical", "critical_low", "critical_high", "finding", "finding_low", "finding_high"])
        cells.writerow(["kind", "verdict", "runs", "of", "share", "low", "high"])
        groups = [*((kind, given.failures) for kind in (*FAILURES, *SYMPTOMS, *("+".join(pair) for pair in MIXTURES)))]
        for kind, count in [*groups, *((kind, given.healthy) for kind in HEALTHY)]:
            found = [diagnose(record) for record, _ in runs(kind, count)]
            if kind in FAILURES:
                stated += [(d.causes[0].probability, d.causes[0].cause == kind) for d in found if d.causes]
            table.writerow(alarm_row(kind, found))
            for verdict, times in Counter(d.verdict for d in found).most_common():
                share = wilson(times, count)
                cells.writerow([kind, verdict, times, count, *(f"{x:.4f}" for x in (share.value, share.low, share.high))])
            alarms.flush()
            matrix.flush()
        for control in CONTROLS:
            found = [diagnose(control_run(control, "trending", np.random.default_rng([SEED, 7, i]))) for i in range(given.failures)]
            table.writerow(alarm_row(f"control: {control}", found))
            alarms.flush()
    with (HERE / "calibration.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["from", "to", "runs", "stated", "right", "low", "high"])
        table.writerows(calibration(stated))
    with (HERE / "prefixes.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["kind", "runs", "looks", "ever_critical", "ever_warned"])
        for kind in ("trending", "noisy", "smoothed"):
            table.writerow(prefixes(kind, given.prefixes))
            file.flush()
    with (HERE / "delay.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["kind", "steps", "onset", "found", "error_share", "detected_after_share"])
        for kind in (*FAILURES, "collapse", "length_runaway"):
            for record, onset in runs(kind, given.delays):
                row = None if onset is None else delay(kind, record, onset, diagnose(record))
                if row is not None:
                    table.writerow(row)
            file.flush()


if __name__ == "__main__":
    main()
