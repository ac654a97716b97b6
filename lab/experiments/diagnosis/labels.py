"""The judgement of real public runs against their labels: one line a run, and what part 9 asks of
them all.

    python lab/experiments/diagnosis/labels.py [FOLDER] [--looks 40]

FOLDER holds the logs (else $GROUPWISE_DATA, else ../shared/data beside the repository), which state
no licence and are not part of the project. Labels: FOLDER/hard/LABELS.tsv for the files beside it,
labels.tsv here for the rest: "manifest" where FOLDER/MANIFEST.md states the outcome, "eye" where
the numbers of the log were looked at; both were written before the judgement was asked. --looks
judges beginnings of the runs too, as if they went on, and says what a stop at an alarm would save.
Writes the table `labels`, which holds no number of a log but steps.
"""

import csv
import math
import os
import re
import statistics
import sys
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # common.py
from common import arguments, results_of

from groupwise.diagnostics.judge import judge
from groupwise.diagnostics.judgement import Certainty, Judgement, State
from groupwise.errors import GroupwiseError
from groupwise.pages.screen import judgement_lines
from groupwise.readers import run_record
from groupwise.record.run import RunRecord, cut, has_ended

HERE = Path(__file__).resolve().parent
HEALTHY = ("healthy", "recovered")
FAILED = ("collapse", "hacking", "cutoff")
NOT_OK = (*FAILED, "flat", "zero reward", "declining", "degenerate")
UNJUDGEABLE = (
    "short",
    "no reward",
)  # the two things whose lack excuses "cannot tell"; "unlabelled" is held to this rule alone
NEAR = 5  # rows
# Settings that lie beside the logs under names that no reader can guess.
CONFIGS = {
    "trl/wordle_qwen05b_4090": "trl/output_4090_wordle.training_metadata.json",
    "tensorboard/wordle4070": "trl/4070_wordle.training_metadata.json",
    "hard/events.out.tfevents": "trl/4070_wordle.training_metadata.json",
    "sweeps/qwen35_9b_g4": "sweeps/qwen35_9b_config_aser_g4_safe.yaml",
    "hard/drgrpo": "sweeps/qwen35_9b_config_aser_g4_safe.yaml",
    "hard/tasa": "sweeps/qwen35_9b_config_aser_g4_safe.yaml",
}
# What causes are about, read off the words of a label and of a judgement alike.
FAMILIES = {
    "length": r"length",
    "shrinking": r"shrank",
    "instability": r"instab|unstable|dynamic|diverge",
    "numerics": r"numeric|not finite|overflow",
    "hacking": r"hack|loophole",
    "verifier": r"verifier|grader",
    "concentration": r"concentrat|entropy collapse",
    "truncation": r"truncat|cut off",
    "repetition": r"repe(at|tit)",
    "groups": (
        r"groups of one|size is 1|zero.variance|degenera|identical|too small a group|group is too "
        r"small|groups? (is|are) too small"
    ),
    "format": r"format",
    "data": r"harder|data",
    "overfitting": r"overfit",
    "sampler": r"sampler|mismatch|stale",
}
HARMS = frozenset(FAMILIES) - {
    "overfitting",
    "groups",
    "format",
}  # what a likely cause may not say of a healthy run
RISES = frozenset({"hacking", "overfitting"})  # what it may not say of one whose reward never moved


@dataclass(frozen=True, slots=True)
class Label:
    """What is known of a run."""

    file: str
    label: str
    first_sign: tuple[int, int] | None  # from and to
    onset: int | None
    causes: frozenset[str]  # families, any of which is right


@dataclass(frozen=True, slots=True)
class JudgedRun:
    """A labelled run and its judgement."""

    label: Label
    judgement: Judgement
    steps: Sequence[int]
    seconds: float

    @property
    def families(self) -> frozenset[str]:
        """What its likely cause is about; nothing where none is likely."""
        cause = self.judgement.cause
        return (
            families(" ".join(cause.names)) if cause.certainty is Certainty.LIKELY else frozenset()
        )

    @property
    def rows_off(self) -> float | None:
        """Rows from the first sign to the label's, 0 within its range; None where the label has
        none, infinite where the judgement has.
        """
        target = self.label.first_sign or (
            None if self.label.onset is None else (self.label.onset, self.label.onset)
        )
        if target is None:
            return None
        if self.judgement.first_sign is None:
            return math.inf
        at, low, high = (
            bisect_left(self.steps, step) for step in (self.judgement.first_sign.step, *target)
        )
        return max(low - at, at - high, 0)

    @property
    def lines(self) -> list[str]:
        """The answer in the terminal."""
        return judgement_lines(self.judgement)

    @property
    def words(self) -> int:
        """Words of that answer: tokens with a letter."""
        return sum(
            any(letter.isalpha() for letter in token)
            for line in self.lines
            for token in line.split()
        )

    def broken(self) -> list[str]:
        """The rules for single runs that it breaks."""
        label, state, off = self.label.label, self.judgement.state, self.rows_off
        rules = {
            "alarm on a healthy run": label in HEALTHY and self.judgement.alarm,
            "ok on a run that is not": label in NOT_OK and state is State.OK,
            "no alarm on a reward of 0": label == "zero reward" and not self.judgement.alarm,
            "likely cause that the label denies": self.denied,
            "first sign more than five rows off": off is not None and off > NEAR,
            "cannot tell with reward and rows": label not in UNJUDGEABLE
            and state is State.CANNOT_TELL,
            "more than eight lines of 80 columns": len(self.lines) > 8
            or max(map(len, self.lines)) > 80,
            "more than 60 words": self.words > 60,
            "no state at the beginning": self.judgement.state.value.replace("_", " ")
            not in self.lines[0][:20].lower(),
        }
        return [rule for rule, kept in rules.items() if kept]

    @property
    def denied(self) -> bool:
        """Whether a likely cause is none that the label allows."""
        if not self.families or self.label.label in (*UNJUDGEABLE, "unlabelled"):
            return False
        if self.label.label in HEALTHY:
            return bool(self.families & HARMS)
        if self.label.causes:
            return not self.families & self.label.causes
        return self.label.label == "flat" and bool(self.families & RISES)


def families(words: str) -> frozenset[str]:
    """What the words of a cause are about."""
    return frozenset(
        name for name, pattern in FAMILIES.items() if re.search(pattern, words.lower())
    )


def data_folder(given: str | None = None) -> Path:
    """The folder of logs, whether it is there or not."""
    return Path(given or os.environ.get("GROUPWISE_DATA") or HERE.parents[3] / "shared" / "data")


def labels_in(home: Path) -> list[Label]:
    """All labels, those of the hard files first."""
    hard = [
        row | {"file": f"hard/{row['file']}"}
        for row in _table(home / "hard" / "LABELS.tsv")
        if row["label"]
    ]
    return [_label(row) for row in (*hard, *_table(HERE / "labels.tsv"))]


def opened(home: Path, file: str) -> RunRecord:
    """Open a run with its settings; a journal is opened by its folder."""
    config = next((home / name for start, name in CONFIGS.items() if file.startswith(start)), None)
    return run_record(home / file.removesuffix("/journal.jsonl"), config=config)


def judged(home: Path, label: Label) -> JudgedRun:
    """Open a run and judge it."""
    start = time.perf_counter()
    record = opened(home, label.file)
    return JudgedRun(
        label,
        judge(record, ended=has_ended(record)),
        record.steps["step"].to_list(),
        time.perf_counter() - start,
    )


def summary(runs: Sequence[JudgedRun]) -> list[tuple[str, str, str, bool]]:
    """Each demand on all runs: what, how much, how much is asked, whether it is met."""
    demands = []
    for rule in (
        "alarm on a healthy run",
        "ok on a run that is not",
        "no alarm on a reward of 0",
        "likely cause that the label denies",
        "cannot tell with reward and rows",
        "more than eight lines of 80 columns",
        "more than 60 words",
        "no state at the beginning",
    ):
        count = sum(rule in run.broken() for run in runs)
        demands.append((rule, f"{count}", "0", not count))
    placed = [run for run in runs if run.rows_off is not None]
    near = sum(run.rows_off is not None and run.rows_off <= NEAR for run in placed)
    demands.append(
        ("first sign within five rows", f"{near} of {len(placed)}", "all", near == len(placed))
    )
    healthy = [run for run in runs if run.label.label in HEALTHY]
    fine = sum(run.judgement.state is State.OK for run in healthy)
    demands.append(
        (
            "ok of the healthy and recovered",
            f"{fine} of {len(healthy)}",
            "85 %",
            fine >= 0.85 * len(healthy),
        )
    )
    caused = [run for run in runs if run.label.label in FAILED and run.label.causes]
    named = sum(bool(run.families & run.label.causes) for run in caused)
    demands.append(
        (
            "likely names the labelled cause",
            f"{named} of {len(caused)}",
            "70 %",
            named >= 0.7 * len(caused),
        )
    )
    words = statistics.median(run.words for run in runs)
    demands.append(("words of the answer, median", f"{words:g}", "60", words <= 60))
    alarms = sum(run.judgement.alarm for run in caused)
    return [
        *demands,
        ("alarms on collapses, hacks, cut-offs", f"{alarms} of {len(caused)}", "", True),
    ]


def line_of(run: JudgedRun) -> dict[str, str]:
    """A row of the table."""
    sign, off, cause = run.judgement.first_sign, run.rows_off, run.judgement.cause
    return {
        "file": run.label.file,
        "label": run.label.label,
        "state": run.judgement.state.value,
        "certainty": cause.certainty.value,
        "cause": " / ".join(cause.names),
        "sign": "" if sign is None else f"{sign.signal} at {sign.step}",
        "rows_off": "" if off is None else f"{off:g}",
        "learning": run.judgement.learning.value,
        "words": f"{run.words}",
        "broken": "; ".join(run.broken()),
    }


def _table(path: Path) -> list[dict[str, str]]:
    """Rows of a tab-separated file."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def _label(row: dict[str, str]) -> Label:
    """A label from its row: a first sign is a step or a range."""
    ends = [int(step) for step in row["first_sign"].split("-") if step]
    onset = int(row["onset"]) if row["onset"] else None
    return Label(
        row["file"],
        row["label"],
        (ends[0], ends[-1]) if ends else None,
        onset,
        families(row["cause"]),
    )


def alarms_of(record: RunRecord, looks: int) -> list[tuple[int, bool]]:
    """Whether beginnings of a run, judged as what goes on, alarm, the shortest of four rows."""
    step_T = record.steps["step"]
    more = (len(step_T) - 4) / (looks - 1)
    counts = sorted({round(4 + more * look) for look in range(looks)})
    return [(count, judge(cut(record, step_T[count - 1]), ended=False).alarm) for count in counts]


def stopped(alarms: Sequence[tuple[int, bool]], lasting: int) -> float:
    """The share of a run behind the first alarm that stood at so many looks in a row."""
    ends = (alarms[last:][:lasting] for last in range(len(alarms) - lasting + 1))
    first = next((some[-1][0] for some in ends if all(alarm for _, alarm in some)), alarms[-1][0])
    return 1 - first / alarms[-1][0]


def print_looks(home: Path, looks: int) -> None:
    """Print false alarms along the runs that ended well, how late those that failed were found,
    and what a stop at an alarm that lasts saves of the one and costs of the other.
    """
    sound: list[list[tuple[int, bool]]] = []
    failed: list[list[tuple[int, bool]]] = []
    near: list[bool] = []
    for label in labels_in(home):
        record = opened(home, label.file) if label.label in (*HEALTHY, *NOT_OK) else None
        if record is None or len(record.steps) <= 8:
            continue
        alarms = alarms_of(record, looks)
        (sound if label.label in HEALTHY else failed).append(alarms)
        if label.label == "collapse":
            last = bisect_left(record.steps["step"].to_list(), label.onset or 0) + NEAR + 1
            near.append(any(alarm and count <= last for count, alarm in alarms))
    falsely = sum(any(alarm for _, alarm in alarms) for alarms in sound)
    print(f"alarm at any of {looks} looks: {falsely} of {len(sound)} healthy and recovered runs")
    print(f"within five rows of the onset: {sum(near)} of {len(near)} collapses")
    for lasting in (1, 2, 4):
        saved, lost = (
            statistics.fmean(stopped(alarms, lasting) for alarms in runs)
            for runs in (failed, sound)
        )
        print(
            f"a stop at {lasting} looks of alarm in a row saves {saved:.1%} of {len(failed)} runs "
            f"that did not end well, and loses {lost:.1%} of the others"
        )


def judged_runs(home: Path) -> Iterator[JudgedRun]:
    """Yield the labelled runs with their judgements; one that cannot be read is said and left
    out.
    """
    for label in labels_in(home):
        try:
            yield judged(home, label)
        except GroupwiseError as error:
            print(f"NOT READ {label.file}: {error}")


def main() -> None:
    """Judge all runs, print the table and what is asked of it."""
    given = arguments(__doc__, "folder", looks=0)
    home = data_folder(given.folder)
    if not home.is_dir():
        print(f"no logs at {home}; nothing was run")
        return
    runs, start = [], time.perf_counter()
    for run in judged_runs(home):
        runs.append(run)
        line = line_of(run)
        print(
            f"{line['file'][-58:]:58} {line['label']:11} {line['state']:11} "
            f"{run.judgement.headline[:60]}"
        )
        cells = f"{line['certainty']} {line['cause']}".strip(), line["sign"], line["rows_off"]
        broken = line["broken"] and f"BREAKS: {line['broken']}"
        print("      ", " | ".join(filter(None, (*cells, line["learning"], broken))))
    results_of(__file__).write("labels", [line_of(run) for run in runs])
    print(
        f"\n{len(runs)} runs in {time.perf_counter() - start:.0f} s:",
        Counter(run.label.label for run in runs),
    )
    for what, value, asked, met in summary(runs):
        print(
            f"{'kept  ' if met else 'BROKEN'} {what:38} {value:>12}  {asked and f'asked: {asked}'}"
        )
    if given.looks > 1:
        print_looks(home, given.looks)


if __name__ == "__main__":
    main()
