"""The same logs given to rlwatch, rldoctor and post-training-toolkit: their critical and any alarms
beside ours.

    python lab/experiments/diagnosis/peers.py --rlwatch VENV/bin/python --rldoctor VENV/bin/python
    --toolkit VENV/bin/python CHECKOUT

The environments have rlwatch 0.5.1, rldoctor 0.2.0 and, for the toolkit, pandas, scipy and pyyaml.
CHECKOUT is one of microsoft/post-training-toolkit, whose rules are in its repository alone: the
package on the index, 0.0.1, is empty. Measured: its rules for GRPO at commit 604ca4d (0.3.0 in the
package; pyproject.toml, at other commits, says 0.2.0). A tool that is not given is skipped.

The toolkit's rules look at the whole log once, as its report does after training. Its severity
"high", at which it calls a run unstable and can stop it, counts as critical, "high" and "medium" as
any; no rule of it for GRPO has another. Two namings of the same columns: "TRL's names", those of
the log through the toolkit's own table of names, and "its names", every column that a rule of it
can use under the name that the rule looks for. rlwatch is fed row by row under the names of its own
arguments. rldoctor is given the rows under TRL's names, which it reads first, then every other
column under the log's own name, and the settings. "Without entropy" leaves out the alarms of rules
on the entropy alone; none of them changes another.

Writes the table `peers`; judges no tool's advice. The labelled public runs: peers_real.py.
"""

import os
import sys

os.environ.setdefault(
    "POLARS_MAX_THREADS", "1"
)  # before polars is loaded: its threads only wait for each other on such small tables

import argparse
import json
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryFile

from groupwise.diagnostics.judge import judge
from groupwise.diagnostics.judgement import Judgement, State
from groupwise.errors import MissingMetricError
from groupwise.intervals import wilson
from groupwise.record.run import RunRecord

sys.path.append(str(Path(__file__).resolve().parents[1]))  # common
from common import arguments, results_of

from groupwise.parsing import JsonView
from groupwise_lab.worlds.logs import KINDS, run_of

# All run in other environments: one log a line in; for each naming a line out: what raised an alarm
# and how grave, seconds and words.
RLWATCH = """
import json, sys, tempfile, logging, os, time
logging.disable(logging.CRITICAL)
os.chdir(tempfile.mkdtemp())
from rlwatch.config import RLWatchConfig
from rlwatch.detectors import DetectorSuite
for line in sys.stdin:
    suite, worst, words, start = DetectorSuite(RLWatchConfig()), {}, 0, time.perf_counter()
    for row in json.loads(line)["rows"]:
        known = {name: row.get(name) for name in ("entropy", "reward_std", "loss", "grad_norm")}
        known |= {"kl_divergence": row.get("kl"), "reward_mean": row.get("reward")}
        for alert in suite.check_step(row["step"], **known):
            said = f"{alert.message} {alert.recommendation}".split()
            words += sum(any(map(str.isalpha, word)) for word in said)
            if worst.get(str(alert.detector)) != "critical":
                worst[str(alert.detector)] = str(alert.severity)
    print(json.dumps({"rlwatch": [worst, time.perf_counter() - start, words]}), flush=True)
"""
RLDOCTOR = """
import json, sys, time
from rl_doctor.diagnosis import diagnose
from rl_doctor.ingest.base import run_from_records
from rl_doctor.report.terminal import render
grave = {"CRITICAL": "critical", "WARNING": "warning", "INFO": "info"}
for line in sys.stdin:
    log, start = json.loads(line), time.perf_counter()
    rows = [{**row, **more} for row, more in zip(log["rows"], log["more"])]
    found = diagnose(run_from_records(rows, config=log["config"]))
    said = render(found, width=100, color=False).split()
    words = sum(any(map(str.isalpha, word)) for word in said)
    told = {one.detector: one.severity.name for one in found.findings}
    told = {name: grave[severity] for name, severity in told.items() if severity in grave}
    print(json.dumps({"rldoctor": [told, time.perf_counter() - start, words]}), flush=True)
"""
# The packages are entered by their folders, so that neither a trainer nor a plotting library is
# imported; the table of names is read off the source of the callback for the same reason.
TOOLKIT = """
import ast, json, os, sys, time, types, warnings
warnings.simplefilter("ignore")
home, its_names = sys.argv[1], json.loads(sys.argv[2])
for name in ("post_training_toolkit", "post_training_toolkit.models"):
    sys.modules[name] = module = types.ModuleType(name)
    module.__path__ = [os.path.join(home, *name.split("."))]
import pandas as pd
from post_training_toolkit.models.heuristics import run_heuristics
from post_training_toolkit.heuristics.executor import run_yaml_heuristics
# run_heuristics would pass over a failure here without a word
run_yaml_heuristics(pd.DataFrame({"step": [1]}), "grpo")
trl = os.path.join(home, "post_training_toolkit", "integrations", "trl.py")
assigned = [node for node in ast.walk(ast.parse(open(trl).read())) if isinstance(node, ast.Assign)]
first = [(node.targets[0], node.value) for node in assigned]
tables = {target.id: value for target, value in first if isinstance(target, ast.Name)}
callback = {}
for name in ("BASE_METRIC_MAPPINGS", "GRPO_METRIC_MAPPINGS"):
    callback.update(ast.literal_eval(tables[name]))
grave = {"high": "critical", "medium": "warning", "low": "info"}
for line in sys.stdin:
    log, told = pd.DataFrame(json.loads(line)["rows"]), {}
    for naming, names in (("toolkit, TRL's names", callback), ("toolkit, its names", its_names)):
        start = time.perf_counter()
        first = {name: [log[key] for key in keys if key in log][:1] for name, keys in names.items()}
        known = {theirs: column[0] for theirs, column in first.items() if column}
        known = {theirs: column for theirs, column in known.items() if column.notna().any()}
        found = run_heuristics(pd.DataFrame({"step": log["step"], **known}), "grpo")
        said = [word for insight in found for word in insight.message.split()]
        words = sum(any(map(str.isalpha, word)) for word in said)
        alarms = {insight.type: grave[insight.severity] for insight in found}
        told[naming] = [alarms, time.perf_counter() - start, words]
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
# What TRL calls a quantity -> the quantities and keys of a real log that go by it, the first that
# is there.
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
# between the policies of two updates, where the rules mean that to the reference policy
NO_KL = "approx_kl"
MetricRows = list[dict[str, float | None]]
RuleSeverities = Mapping[str, str]  # rule -> severity
FIRST_SEED = 500_000  # far from those of the other studies
HEADER = [
    "kind",
    "runs",
    "tool",
    "critical",
    "low",
    "high",
    "any",
    "any_low",
    "any_high",
    "detectors",
]
SETTINGS = {
    "group_size": "num_generations",
    "max_completion_length": "max_completion_length",
    "kl_weight": "beta",
}  # ours -> TRL's


@dataclass(frozen=True, slots=True)
class ToolInput:
    """A run as the other tools get it."""

    rows: MetricRows  # under TRL's names
    more: MetricRows = field(default_factory=list)  # every column under the log's own name
    config: JsonView = field(default_factory=dict)  # settings under TRL's names


@dataclass(frozen=True, slots=True)
class Answer:
    """What a tool says of a log."""

    severities: RuleSeverities
    seconds: float
    words: int


@dataclass(frozen=True, slots=True)
class Tools:
    """The commands of the other environments, those that were given."""

    rlwatch: str | None = None
    rldoctor: str | None = None
    toolkit: tuple[str, str] | None = None  # Python and checkout

    def commands(self) -> Iterator[tuple[str, ...]]:
        """Each command, ready for logs."""
        if self.rlwatch:
            yield (self.rlwatch, "-c", RLWATCH)
        if self.rldoctor:
            yield (self.rldoctor, "-c", RLDOCTOR)
        if self.toolkit:
            yield (
                self.toolkit[0],
                "-c",
                TOOLKIT,
                str(Path(self.toolkit[1]).resolve()),
                json.dumps(ITS_NAMES),
            )

    def asked(self, logs: Sequence[ToolInput]) -> dict[str, list[Answer]]:
        """What each says of each log, by naming."""
        return {
            naming: answers
            for command in self.commands()
            for naming, answers in told_by(command, logs).items()
        }


def log_of(record: RunRecord) -> ToolInput:
    """A run for the other tools."""
    columns = {}
    for name, quantities in TRL_NAMES.items():
        for quantity in quantities:
            try:
                own = record.column(quantity)
            except MissingMetricError:
                continue
            if own != NO_KL:
                columns[OLDER if own == OLDER else name] = (
                    record.steps[own].fill_nan(None).to_list()
                )
                break
    rows = [
        dict(zip(("step", *columns), row, strict=True))
        for row in zip(record.steps["step"].to_list(), *columns.values(), strict=True)
    ]
    settings = {theirs: getattr(record.config, own) for own, theirs in SETTINGS.items()}
    config = {theirs: setting.value for theirs, setting in settings.items() if setting.known}
    return ToolInput(rows, record.steps.drop("step").to_dicts(), config)


def told_by(command: Sequence[str], logs: Sequence[ToolInput]) -> dict[str, list[Answer]]:
    """What a tool in the other environment tells of each log, by naming."""
    with TemporaryFile("w+") as given:
        given.writelines(json.dumps(asdict(log)) + "\n" for log in logs)
        given.seek(0)
        done = subprocess.run(
            list(command), stdin=given, capture_output=True, text=True, check=False
        )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or len(lines) != len(logs):
        raise SystemExit(
            f"a tool answered for {len(lines)} of {len(logs)} logs: {done.stderr.strip()[-300:]}"
        )
    return {naming: [Answer(*line[naming]) for line in lines] for naming in lines[0]}


def ours(judgement: Judgement) -> RuleSeverities:
    """The same of our judgement, by its cause or, where it names none, its state; `warning` is
    any, an alarm critical.
    """
    if judgement.state in (State.OK, State.CANNOT_TELL):
        return {}
    return {
        " or ".join(judgement.cause.names) or judgement.state.value: "critical"
        if judgement.alarm
        else "warning"
    }


def line_of(kind: str, tool: str, answers: Sequence[RuleSeverities]) -> list[object]:
    """A row of the table: alarms that are notes alone do not count."""
    graver = [
        {name: severity for name, severity in severities.items() if severity != "info"}
        for severities in answers
    ]
    critical = wilson(sum("critical" in severities.values() for severities in graver), len(answers))
    anything = wilson(sum(map(bool, graver)), len(answers))
    cells = (
        critical.value,
        critical.low,
        critical.high,
        anything.value,
        anything.low,
        anything.high,
    )
    named = Counter(name for severities in graver for name in severities)
    return [
        kind,
        len(answers),
        tool,
        *(f"{x:.3f}" for x in cells),
        "; ".join(f"{name}: {count}" for name, count in named.most_common()),
    ]


def simulated(kind: str, *, runs: int, tools: Tools) -> list[list[object]]:
    """All tools on simulated runs of a kind."""
    records = [run_of(kind, FIRST_SEED + i)[0] for i in range(runs)]
    lines = [line_of(kind, "groupwise", [ours(judge(record)) for record in records])]
    for tool, answers in tools.asked([log_of(record) for record in records]).items():
        lines.append(line_of(kind, tool, [answer.severities for answer in answers]))
        blind = [
            {
                name: severity
                for name, severity in answer.severities.items()
                if "entropy" not in name
            }
            for answer in answers
        ]
        lines.append(line_of(kind, f"{tool}, without entropy", blind))
    return lines


def tools_of(text: str | None, *places: str, **defaults: int) -> tuple[argparse.Namespace, Tools]:
    """The options of a script with those of the tools, read; a tool that is not given is said to be
    skipped.
    """
    pythons = {"rlwatch": "", "rldoctor": "", "toolkit": ("", "")}  # and its checkout
    given = arguments(text, *places, **pythons, **defaults)
    for name in ("rlwatch", "rldoctor", "toolkit"):
        if not any(getattr(given, name)):
            print(f"{name} is skipped: give --{name}")
    toolkit = tuple(given.toolkit) if any(given.toolkit) else None
    return given, Tools(given.rlwatch or None, given.rldoctor or None, toolkit)


def main() -> None:
    """Run all on the same simulated logs."""
    given, tools = tools_of(__doc__, runs=20, workers=1)
    if tools == Tools():
        print("nothing was run")
        return
    call = partial(simulated, runs=given.runs, tools=tools)
    with ProcessPoolExecutor(given.workers, mp_context=get_context("spawn")) as pool:
        parts = pool.map(call, KINDS)
        rows = [dict(zip(HEADER, line, strict=True)) for part in parts for line in part]
    results_of(__file__).write("peers", rows)


if __name__ == "__main__":
    main()
