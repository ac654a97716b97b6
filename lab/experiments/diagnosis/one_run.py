"""What rlwatch, rldoctor and post-training-toolkit say of one failed run, beside ours: the picture
of the README.

    python lab/experiments/diagnosis/one_run.py [--rlwatch PYTHON] [--rldoctor PYTHON] [--toolkit
    PYTHON CHECKOUT]

The run is the first of the gallery, in which a policy runs away in length at step 82; the tools are
fed as in peers.py. Those that are given are asked anew and their findings written to one_run.csv;
the others' are taken from there. The alarms on healthy public runs are those of peers_real.csv.
Draws docs/img/verdicts.svg.

In one_run.csv the toolkit's line is its rule `detect_grpo_completion_length_drift` at commit
604ca4d, the one of its rules that these columns set off, under its own names; under TRL's names it
says nothing.
"""

import html
import json
import subprocess
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from peers import ITS_NAMES, log_of, results_of, run_of, tools_of

from groupwise.diagnostics.judge import judge
from groupwise.diagnostics.judgement import Judgement
from groupwise.record.run import RunRecord
from groupwise.wording import sentence

RESULTS, ROOT = results_of(__file__), Path(__file__).resolve().parents[3]
PICTURE = ROOT / "docs" / "img" / "verdicts.svg"
KIND, SEED, ROWS = "length_runaway", 2, 150  # as in scripts/gallery.py
# One log in; a list of severity, step or "", rule and message out, as peers.py asks them.
RLWATCH = """
import json, sys, tempfile, logging, os
logging.disable(logging.CRITICAL)
os.chdir(tempfile.mkdtemp())
from rlwatch.config import RLWatchConfig
from rlwatch.detectors import DetectorSuite
suite, said = DetectorSuite(RLWatchConfig()), []
for row in json.load(sys.stdin)["rows"]:
    known = {name: row.get(name) for name in ("entropy", "reward_std", "loss", "grad_norm")}
    known |= {"kl_divergence": row.get("kl"), "reward_mean": row.get("reward")}
    for alert in suite.check_step(row["step"], **known):
        said.append([str(alert.severity), row["step"], str(alert.detector), alert.message])
print(json.dumps(said))
"""
RLDOCTOR = """
import json, sys
from rl_doctor.diagnosis import diagnose
from rl_doctor.ingest.base import run_from_records
log = json.load(sys.stdin)
rows = [{**row, **more} for row, more in zip(log["rows"], log["more"])]
found = diagnose(run_from_records(rows, config=log["config"]))
said = [
    [one.severity.name.lower(), "", one.detector, f"{one.title}: {one.summary}"]
    for one in found.problems
]
print(json.dumps(said))
"""
TOOLKIT = """
import json, os, sys, types, warnings
warnings.simplefilter("ignore")
home, names = sys.argv[1], json.loads(sys.argv[2])
for name in ("post_training_toolkit", "post_training_toolkit.models"):
    sys.modules[name] = module = types.ModuleType(name)
    module.__path__ = [os.path.join(home, *name.split("."))]
import pandas as pd
from post_training_toolkit.models.heuristics import run_heuristics
log = pd.DataFrame(json.load(sys.stdin)["rows"])
first = {theirs: [log[key] for key in keys if key in log][:1] for theirs, keys in names.items()}
known = {theirs: column[0] for theirs, column in first.items() if column}
known = {theirs: column for theirs, column in known.items() if column.notna().any()}
found = run_heuristics(pd.DataFrame({"step": log["step"], **known}), "grpo")
print(json.dumps([[one.severity, "", one.type, one.message] for one in found]))
"""
# What the picture calls a tool -> its name in one_run and in peers_real.
TOOLS = {
    "rlwatch 0.5.1": "rlwatch",
    "rldoctor 0.2.0": "rldoctor",
    "post-training-toolkit*": "toolkit, its names",
}
NOTES = (
    (
        "The run is simulated, so the cause is known. Our checks were built with the public runs "
        "at hand, the others' were not."
    ),
    (
        "* by its rule's text, not run. rldoctor is given every log under TRL's names; as files it "
        "opens 24 of the 57, with 3 critical alarms."
    ),
)
GRAVE = {"critical": 0, "high": 0, "warning": 1, "medium": 1}
MOST_LETTERS = 92  # of a line of the picture
INK, MUTED, RULE, PAPER, BAD, GOOD = (
    "#22262b",
    "#5d636c",
    "#e2e4e8",
    "#ffffff",
    "#b3261e",
    "#00795a",
)


@dataclass(frozen=True, slots=True)
class ToolFinding:
    """One finding of a tool."""

    tool: str
    severity: str
    step: str
    rule: str
    message: str


def asked(tool: str, command: Sequence[str], log: str) -> list[ToolFinding]:
    """What a tool in another environment says of the log."""
    done = subprocess.run(
        command, input=log, capture_output=True, text=True, check=True, cwd=tempfile.gettempdir()
    )
    return [
        ToolFinding(tool, severity, str(step), rule, message)
        for severity, step, rule, message in json.loads(done.stdout.splitlines()[-1])
    ]


def kept() -> list[ToolFinding]:
    """What they said when they were last asked."""
    return [ToolFinding(**row) for row in RESULTS.texts("one_run")]


def false_alarms() -> dict[str, tuple[int, int]]:
    """Of each tool the critical alarms on healthy public runs, and how many those are."""
    return {row["tool"]: (row["critical"], row["healthy"]) for row in RESULTS.read("peers_real")}


def the_run() -> RunRecord:
    """The run that failed."""
    return run_of(KIND, SEED, rows=ROWS)[0]


def verdict(judgement: Judgement) -> list[str]:
    """Ours in two lines."""
    assert judgement.first_sign is not None
    return [
        f"{judgement.fact} {sentence(judgement.cause.words)}",
        f"First sign: step {judgement.first_sign.step}. Do: {judgement.do}.",
    ]


def words(said: Sequence[ToolFinding]) -> list[str]:
    """A tool's gravest findings, one a rule: a line each, or one in two lines."""
    gravest = {
        finding.rule: finding
        for finding in sorted(said, key=lambda finding: -GRAVE.get(finding.severity, 2))
    }
    findings = sorted(gravest.values(), key=lambda finding: GRAVE.get(finding.severity, 2))
    lines = [
        f"{finding.severity.upper()}{f' at step {finding.step}' if finding.step else ''}: "
        f"{finding.message}"
        for finding in findings
    ]
    if len(lines) < 2:
        return textwrap.wrap(
            lines[0] if lines else "Nothing.", MOST_LETTERS, max_lines=2, placeholder=" …"
        )
    return [textwrap.shorten(line, MOST_LETTERS, placeholder=" …") for line in lines[:2]]


def drawn(record: RunRecord, said: Sequence[ToolFinding]) -> str:
    """The picture."""
    judgement, alarms = judge(record), false_alarms()
    rows = [("groupwise", verdict(judgement), alarms["groupwise"])]
    rows += [
        (title, words([finding for finding in said if finding.tool == tool]), alarms[tool])
        for title, tool in TOOLS.items()
    ]
    body = [*curve(record, judgement), *table(rows)]
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1200 545" font-family="system-ui, '
        f'sans-serif" font-size="17" fill="{INK}">\n'
        f'<rect width="1200" height="545" rx="8" fill="{PAPER}"/>\n'
        + "\n".join(body)
        + "\n</svg>\n"
    )


def curve(record: RunRecord, judgement: Judgement) -> Iterator[str]:
    """The reward, with the failure shaded."""
    left, top, width, height = 30.0, 52.0, 1140.0, 90.0
    reward = record.steps["reward"].to_list()
    x = [left + width * place / (len(reward) - 1) for place in range(len(reward))]
    assert judgement.first_sign is not None
    since = x[judgement.first_sign.step - 1]
    yield text(left, 32, "A run that failed: its reward over 150 steps", weight=600)
    yield (
        f'<rect x="{since:.1f}" y="{top}" width="{left + width - since:.1f}" height="{height}" '
        f'fill="{BAD}" opacity=".09"/>'
    )
    points = " ".join(
        f"{at:.1f},{top + height * (1 - value):.1f}" for at, value in zip(x, reward, strict=True)
    )
    yield f'<polyline points="{points}" fill="none" stroke="#0064a4" stroke-width="2.2"/>'


def table(rows: Sequence[tuple[str, Sequence[str], tuple[int, int]]]) -> Iterator[str]:
    """Who says what, and how often each is wrong."""
    yield text(30, 182, "What each tool says of it", weight=600)
    yield text(
        1170,
        182,
        f"critical alarms on {rows[0][2][1]} healthy public runs",
        weight=600,
        anchor="end",
    )
    for place, (title, lines, (wrong, healthy)) in enumerate(rows):
        y = 200 + 72 * place
        yield f'<line x1="30" x2="1170" y1="{y}" y2="{y}" stroke="{RULE}"/>'
        yield text(30, y + 30, title, weight=700 if not place else 400)
        for number, line in enumerate(lines):
            yield text(
                215,
                y + 30 + 24 * number,
                line,
                weight=600 if not place and not number else 400,
                size=15,
            )
        colour = GOOD if not wrong else BAD
        yield (
            f'<rect x="1000" y="{y + 14}" width="{max(2.0, 120 * wrong / healthy):.1f}" '
            f'height="22" fill="{colour}" opacity=".75"/>'
        )
        yield text(1170, y + 31, str(wrong), weight=700, anchor="end", colour=colour)
    for number, note in enumerate(NOTES):
        yield text(30, 508 + 20 * number, note, colour=MUTED, size=14)


def text(
    x: float,
    y: float,
    words_: str,
    *,
    weight: int = 400,
    anchor: str = "start",
    colour: str = INK,
    size: int = 17,
) -> str:
    """A line of text."""
    return (
        f'<text x="{x:g}" y="{y:g}" font-weight="{weight}" font-size="{size}" '
        f'text-anchor="{anchor}" fill="{colour}">'
        f"{html.escape(words_)}</text>"
    )


def main() -> None:
    """Ask the tools that are given, and draw."""
    _, tools = tools_of(__doc__)
    record = the_run()
    log = json.dumps(asdict(log_of(record)))
    commands = {
        "rlwatch": [tools.rlwatch, "-c", RLWATCH],
        "rldoctor": [tools.rldoctor, "-c", RLDOCTOR],
    }
    if tools.toolkit:
        commands["toolkit, its names"] = [
            tools.toolkit[0],
            "-c",
            TOOLKIT,
            str(Path(tools.toolkit[1]).resolve()),
            json.dumps(ITS_NAMES),
        ]
    fresh = {
        tool: asked(tool, [str(word) for word in command], log)
        for tool, command in commands.items()
        if command[0]
    }
    said = [finding for finding in kept() if finding.tool not in fresh] + [
        finding for findings in fresh.values() for finding in findings
    ]
    said.sort(key=lambda finding: list(TOOLS.values()).index(finding.tool))
    RESULTS.write("one_run", [asdict(finding) for finding in said])
    PICTURE.write_text(drawn(record, kept()), encoding="utf-8")
    print(f"{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
