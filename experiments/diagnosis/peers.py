"""The same simulated logs given to rlwatch: its critical and any alarms beside ours.

    python experiments/diagnosis/peers.py --python VENV/bin/python --runs 100

VENV has rlwatch 0.5.1 (`pip install rlwatch`). post-training-toolkit 0.0.1, the version on the index, is empty: its rules are in its
repository alone, so it is not run. Writes peers.csv.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np

from groupwise.diagnostics import diagnose
from groupwise.intervals import wilson
from groupwise.simulate.runs import simulated_run
from groupwise.simulate.training import FAILURES, HEALTHY

HERE = Path(__file__).parent
# Runs in the other environment: reads one log a line, writes its worst alarm and detectors a line.
RIVAL = """
import json, sys, tempfile, logging, os
logging.disable(logging.CRITICAL)
os.chdir(tempfile.mkdtemp())
from rlwatch.config import RLWatchConfig
from rlwatch.detectors import DetectorSuite
for line in sys.stdin:
    suite, worst, names = DetectorSuite(RLWatchConfig()), "", set()
    for row in json.loads(line):
        for alert in suite.check_step(row["step"], entropy=row.get("entropy"), kl_divergence=row.get("kl"), reward_mean=row["reward"],
                                      reward_std=row["reward_std"], grad_norm=row["grad_norm"]):
            names.add(str(alert.detector))
            if worst != "critical":
                worst = str(alert.severity)
    print(json.dumps([worst, sorted(names)]), flush=True)
"""


def alarms(python: str, lines: list[str]) -> tuple[int, int, str]:
    """Critical alarms, any alarms, and the detectors behind them with their counts."""
    done = subprocess.run([python, "-c", RIVAL], input="\n".join(lines), capture_output=True, text=True, check=True)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    named = Counter(name for _, names in found for name in names)
    listed = " ".join(f"{name}:{count}" for name, count in named.most_common())
    return sum(worst == "critical" for worst, _ in found), sum(bool(worst) for worst, _ in found), listed


def main() -> None:
    """Run both on the same logs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python")
    parser.add_argument("--runs", type=int, default=100)
    given = parser.parse_args()
    if given.python is None:
        print("give --python of an environment with rlwatch; nothing was run")
        return
    with (HERE / "peers.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["kind", "runs", "tool", "critical", "low", "high", "any", "any_low", "any_high", "detectors"])
        for kind in (*HEALTHY, *FAILURES):
            records = [
                simulated_run(kind, np.random.default_rng([1, HEALTHY.index(kind) if kind in HEALTHY else 100, i]))[0]
                for i in range(given.runs)
            ]
            ours = [diagnose(record) for record in records]
            lines = [
                json.dumps(record.steps.select("step", "entropy", "reward", "reward_std", "grad_norm").to_dicts()) for record in records
            ]
            counts = {
                "groupwise": (sum(d.worst == "critical" for d in ours), sum(d.verdict != "healthy" for d in ours), ""),
                "rlwatch": alarms(given.python, lines),
                "rlwatch without entropy": alarms(given.python, [line.replace('"entropy":', '"unused":') for line in lines]),
            }
            for tool, (critical, found, detectors) in counts.items():
                a, b = wilson(critical, given.runs), wilson(found, given.runs)
                table.writerow([kind, given.runs, tool, *(f"{x:.3f}" for x in (a.value, a.low, a.high, b.value, b.low, b.high)), detectors])
            file.flush()


if __name__ == "__main__":
    main()
