"""The same logs given to rlwatch and to post-training-toolkit: their critical and any alarms beside ours.

    python experiments/diagnosis/peers.py --python VENV/bin/python --toolkit CHECKOUT --runs 200 [--real FOLDER]

VENV has rlwatch 0.5.1 (`pip install rlwatch`) and, for the toolkit, pandas, scipy and pyyaml. CHECKOUT is one of
microsoft/post-training-toolkit, whose rules are in its repository alone: the package on the index, 0.0.1, is empty. Measured: its rules
for GRPO at commit 604ca4d (0.3.0 in the package; pyproject.toml, at other commits, says 0.2.0). Without --toolkit it is skipped.

The toolkit's rules look at the whole log once, as its report does after training. Its severity "high", at which it calls a run unstable
and can stop it, counts as critical, "high" and "medium" as any; no rule of it for GRPO has another. Two namings of the same columns:
"TRL's names", those of the log through the toolkit's own table of names, and "its names", every column that a rule of it can use under
the name that the rule looks for. rlwatch is fed row by row under the names of its own arguments. "Without entropy" leaves out the alarms
of rules on the entropy alone; none of them changes another.

With --real FOLDER, the logs of labels.py, all are run on those too. Writes peers.csv, and peers_real.csv; judges no tool's advice.
"""

from __future__ import annotations

import os
import sys

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # before polars is loaded: its threads only wait for each other on such small tables

import argparse
import csv
import json
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np
from labels import labels_in, opened

from groupwise.diagnostics.former import diagnose
from groupwise.errors import MissingMetricError
from groupwise.intervals import wilson
from groupwise.record.run import RunRecord

sys.path.append(str(Path(__file__).resolve().parents[1]))  # worlds
from worlds.runs import FAILURES, HEALTHY, simulated_run

HERE = Path(__file__).parent
# Both run in the other environment: one log a line in; for each naming, what raised an alarm and how grave, a line out.
RLWATCH = """
import json, sys, tempfile, logging, os
logging.disable(logging.CRITICAL)
os.chdir(tempfile.mkdtemp())
from rlwatch.config import RLWatchConfig
from rlwatch.detectors import DetectorSuite
for line in sys.stdin:
    suite, worst = DetectorSuite(RLWatchConfig()), {}
    for row in json.loads(line):
        for alert in suite.check_step(row["step"], entropy=row.get("entropy"), kl_divergence=row.get("kl"), reward_mean=row.get("reward"),
                                      reward_std=row.get("reward_std"), grad_norm=row.get("grad_norm")):
            if worst.get(str(alert.detector)) != "critical":
                worst[str(alert.detector)] = str(alert.severity)
    print(json.dumps({"rlwatch": worst}), flush=True)
"""
# The packages are entered by their folders, so that neither a trainer nor a plotting library is imported; the table of names is read off
# the source of the callback for the same reason.
TOOLKIT = """
import ast, json, os, sys, types, warnings
warnings.simplefilter("ignore")
home, its_names = sys.argv[1], json.loads(sys.argv[2])
for name in ("post_training_toolkit", "post_training_toolkit.models"):
    sys.modules[name] = module = types.ModuleType(name)
    module.__path__ = [os.path.join(home, *name.split("."))]
import pandas as pd
from post_training_toolkit.models.heuristics import run_heuristics
from post_training_toolkit.heuristics.executor import run_yaml_heuristics
run_yaml_heuristics(pd.DataFrame({"step": [1]}), "grpo")  # run_heuristics would pass over a failure here without a word
tree = ast.parse(open(os.path.join(home, "post_training_toolkit", "integrations", "trl.py")).read())
tables = {n.targets[0].id: n.value for n in ast.walk(tree) if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name)}
callback = {**ast.literal_eval(tables["BASE_METRIC_MAPPINGS"]), **ast.literal_eval(tables["GRPO_METRIC_MAPPINGS"])}
grave = {"high": "critical", "medium": "warning", "low": "info"}
for line in sys.stdin:
    log, told = pd.DataFrame(json.loads(line)), {}
    for naming, names in (("toolkit, TRL's names", callback), ("toolkit, its names", its_names)):
        columns = {theirs: next((log[key] for key in keys if key in log), None) for theirs, keys in names.items()}
        known = {theirs: column for theirs, column in columns.items() if column is not None and column.notna().any()}
        found = run_heuristics(pd.DataFrame({"step": log["step"], **known}), "grpo")
        told[naming] = {insight.type: grave[insight.severity] for insight in found}
    print(json.dumps(told), flush=True)
"""
# What a rule of the toolkit looks for -> what TRL calls it.
ITS_NAMES = {
    "reward_mean": ["reward"],
    "group_reward_mean": ["reward"],
    "reward_std": ["reward_std"],
    "group_reward_std": ["reward_std"],
    "entropy": ["entropy"],
    "grad_norm": ["grad_norm"],
    "completion_length": ["completions/mean_length", "completion_length"],
    "output_length_mean": ["completions/mean_length", "completion_length"],
    "truncation_rate": ["completions/clipped_ratio"],
    "kl": ["kl"],
    "loss": ["loss"],
}
# What TRL calls a quantity -> the quantities and keys of a real log that go by it, the first that is there.
TRL_NAMES = {
    "reward": ("reward",),
    "reward_std": ("reward_std_within_group", "reward_std_batch", "reward_std_ambiguous"),
    "entropy": ("entropy", "policy/entropy"),
    "grad_norm": ("gradient_norm",),
    "completions/mean_length": ("completion_length",),
    "completions/clipped_ratio": ("truncated_share",),
    "kl": ("kl",),
    "loss": ("loss",),
}
OLDER = "completion_length"  # what early versions of TRL called the length; the toolkit knows it
NO_KL = "approx_kl"  # between the policies of two updates, where the rules mean that to the reference policy
Log = list[dict[str, float | None]]
Told = Mapping[str, str]  # rule -> severity
HEADER = ["kind", "runs", "tool", "critical", "low", "high", "any", "any_low", "any_high", "detectors"]


def log_of(record: RunRecord) -> Log:
    """The rows of a run under TRL's names."""
    columns = {}
    for name, quantities in TRL_NAMES.items():
        for quantity in quantities:
            try:
                own = record.column(quantity)
            except MissingMetricError:
                continue
            if own != NO_KL:
                columns[OLDER if own == OLDER else name] = record.steps[own].fill_nan(None).to_list()
                break
    return [dict(zip(("step", *columns), row, strict=True)) for row in zip(record.steps["step"].to_list(), *columns.values(), strict=True)]


def last_entropies(records: Iterable[RunRecord]) -> list[float]:
    """The mean entropy of the last 30 rows of each run that logs one, in ascending order: what the floors are held against."""
    columns = ([row["entropy"] for row in log_of(record) if row.get("entropy") is not None] for record in records)
    return sorted(float(np.mean(column[-30:])) for column in columns if column)


def told_by(command: Sequence[str], logs: Sequence[Log]) -> dict[str, list[Told]]:
    """What a tool in the other environment tells of each log, by naming."""
    with TemporaryFile("w+") as given:
        given.writelines(json.dumps(log) + "\n" for log in logs)
        given.seek(0)
        done = subprocess.run(list(command), stdin=given, capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or len(lines) != len(logs):
        raise SystemExit(f"a tool answered for {len(lines)} of {len(logs)} logs: {done.stderr.strip()[-300:]}")
    return {naming: [line[naming] for line in lines] for naming in lines[0]}


def ours(record: RunRecord) -> Told:
    """The same of our diagnosis; any is a verdict that is not healthy."""
    found = diagnose(record)
    return {
        f.check: f.severity for f in found.findings if f.severity == "critical" or (f.severity == "warning" and found.verdict != "healthy")
    }


def line_of(kind: str, tool: str, found: Sequence[Told]) -> list[object]:
    """A row of the table: alarms that are notes alone do not count."""
    graver = [{name: severity for name, severity in told.items() if severity != "info"} for told in found]
    critical = wilson(sum("critical" in told.values() for told in graver), len(found))
    anything = wilson(sum(bool(told) for told in graver), len(found))
    cells = (critical.value, critical.low, critical.high, anything.value, anything.low, anything.high)
    named = Counter(name for told in graver for name in told)
    return [kind, len(found), tool, *(f"{x:.3f}" for x in cells), " ".join(f"{name}:{count}" for name, count in named.most_common())]


def lines_of(kind: str, records: Sequence[RunRecord], python: str, toolkit: Path | None) -> list[list[object]]:
    """All tools on the same runs."""
    logs = [log_of(record) for record in records]
    found = {"groupwise": [ours(record) for record in records], **told_by((python, "-c", RLWATCH), logs)}
    if toolkit is not None:
        found |= told_by((python, "-c", TOOLKIT, str(toolkit), json.dumps(ITS_NAMES)), logs)
    lines = []
    for tool, told in found.items():
        lines.append(line_of(kind, tool, told))
        if tool != "groupwise":
            blind = [{name: severity for name, severity in one.items() if "entropy" not in name} for one in told]
            lines.append(line_of(kind, f"{tool}, without entropy", blind))
    return lines


def simulated(kind: str, *, runs: int, python: str, toolkit: Path | None) -> list[list[object]]:
    """All tools on simulated runs of a kind."""
    number = HEALTHY.index(kind) if kind in HEALTHY else 100
    records = [simulated_run(kind, np.random.default_rng([1, number, i]))[0] for i in range(runs)]
    return lines_of(kind, records, python, toolkit)


def write(path: Path, parts: Iterable[list[list[object]]]) -> None:
    """Write a table as its parts come, beside the old one until it is whole."""
    partial_path = path.with_suffix(".partial")
    with partial_path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(HEADER)
        for part in parts:
            table.writerows(part)
            file.flush()
            print(part[0][0], flush=True)
    partial_path.replace(path)


def main() -> None:
    """Run all on the same logs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", help="of an environment with rlwatch")
    parser.add_argument("--toolkit", type=Path, help="a checkout of microsoft/post-training-toolkit")
    parser.add_argument("--real", type=Path, help="the folder with the logs of labels.py")
    parser.add_argument("--runs", type=int, default=200, help="of each simulated kind; 0 leaves peers.csv as it is")
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    if given.python is None:
        print("give --python of an environment with rlwatch; nothing was run")
        return
    if given.toolkit is None:
        print("post-training-toolkit is skipped: give --toolkit, a checkout of microsoft/post-training-toolkit")
    toolkit = None if given.toolkit is None else given.toolkit.resolve()
    if given.runs:
        call = partial(simulated, runs=given.runs, python=given.python, toolkit=toolkit)
        with ProcessPoolExecutor(given.workers, mp_context=get_context("spawn")) as pool:
            write(HERE / "peers.csv", pool.map(call, (*HEALTHY, *FAILURES)))
    if given.real is not None:
        labels = labels_in(given.real)
        groups = {
            kind: [opened(given.real, label.file) for label in labels if label.label == kind]
            for kind in dict.fromkeys(label.label for label in labels)
        }
        for label, records in groups.items():
            print(label, len(records), "runs; entropy at the end of those that log it:", *(f"{x:.2f}" for x in last_entropies(records)))
        write(HERE / "peers_real.csv", (lines_of(label, records, given.python, toolkit) for label, records in groups.items()))


if __name__ == "__main__":
    main()
