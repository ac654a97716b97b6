"""Many trainings that differ in a few settings: run by the workers of an engine, gone on with,
read as records, and compared.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from groupwise.analysis.compare import (
    ComparedGroup,
    RunComparison,
    RunGroup,
    compare_runs,
    difference_sentence,
    grouped_by,
    setting_of,
)
from groupwise.analysis.fitted import fit_metric
from groupwise.analysis.plan import group_size_evidence
from groupwise.analysis.stability import stability_evidence
from groupwise.comparison.compare import Question
from groupwise.engine.engine import Engine, Limits, ShardOutcome
from groupwise.errors import GroupwiseError, InvalidArgumentError, NothingYetError, OverwriteError
from groupwise.parsing import JsonObject, JsonView
from groupwise.plain import Plain, frozen
from groupwise.readers import run_record
from groupwise.record.run import COMPANIONS, RULES, RunRecord
from groupwise.series.metric import metric_series
from groupwise.wording import clean, count, number, sentence

OWN = ".sweep"  # of the folder of a sweep: what was done, and what the commands printed
JOURNAL = "journal.jsonl"
SEED = "seed"
_MOST_RUNS, _LONGEST_NAME = 10_000, 120
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][\w.]*)\}")
_RESERVED = ("command", "resume", "sweep", "runs")
_END_OF_LOG = 4096  # bytes in which the last words of a command are looked for


@frozen
class SweepTraining:
    """One training of a sweep."""

    name: str  # of its folder
    values: JsonView  # of the settings in which the trainings differ
    settings: Mapping[str, str]  # settings that the log of a user's own command need not say
    words: tuple[str, ...]  # of its command
    resume: tuple[str, ...]  # words behind these once it has begun
    folder: Path  # of the run
    log: Path  # of what the command prints


@frozen
class Result(Plain):
    """What came of one training."""

    name: str
    values: JsonView
    done: bool
    sentence: str  # why it is not, "" where it is
    seconds: float | None  # of the try that ended it; None where it was done before


@frozen
class Sweep:
    """What is to be trained."""

    trainings: tuple[SweepTraining, ...]
    folder: Path
    keys: tuple[str, ...]  # the settings in which they differ, the seed last

    @property
    def settings(self) -> tuple[str, ...]:
        """The settings in which they differ besides the seed."""
        return tuple(key for key in self.keys if key != SEED)


def sweep_of(wanted: JsonView, folder: Path) -> Sweep:
    """Return the trainings that a file of settings asks for; nothing is written yet.

    It has `sweep`, lists of values whose every combination is trained, or `runs`, a list of
    settings; `command`, words with {setting} and {folder} in them, and `resume`, more of them for
    one that had begun; all else is the same in every training.
    """
    common = {name: value for name, value in wanted.items() if name not in _RESERVED}
    rows = _rows(wanted)
    keys = list(dict.fromkeys(key for row in rows for key in row))
    for key in keys:
        if key in common:
            raise InvalidArgumentError(
                f"expected {key} in one place, got it among the settings and swept: leave out one "
                "of them"
            )
    keys.sort(key=lambda key: key == SEED)
    names = [_name({key: row[key] for key in keys if key in row}) for row in rows]
    home = folder.absolute()
    made = []
    for row, name in zip(rows, _told_apart(names), strict=True):
        given, place = {**common, **row}, home / name
        words, resume = _command(wanted, dict(given), place, keys)
        own = (
            {} if wanted.get("command") is None else given
        )  # the embedded trainer writes down what it was told
        named = {
            key: _text(value) for key, value in own.items() if key in RULES and value is not None
        }
        made.append(
            SweepTraining(name, row, named, words, resume, place, home / OWN / f"{name}.log")
        )
    return Sweep(tuple(made), home, tuple(keys))


def _rows(wanted: JsonView) -> list[JsonObject]:
    """Return the settings of each training in which they differ."""
    grid, runs = wanted.get("sweep"), wanted.get("runs")
    if (grid is None) == (runs is None):
        raise InvalidArgumentError(
            f"expected sweep or runs in the settings, got {'neither' if grid is None else 'both'}: "
            "write one of them"
        )
    rows = _combined(grid) if runs is None else _listed(runs)
    _check_number(len(rows))
    for key, value in ((key, value) for row in rows for key, value in row.items()):
        if not isinstance(key, str) or isinstance(value, dict | list) or "\0" in str(value):
            raise InvalidArgumentError(
                f"expected a number, a text or true or false for {str(key)[:40]}; got "
                f"{str(value)[:60]!r}"
            )
    return rows


def _listed(runs: Any) -> list[JsonObject]:
    """Return the settings of trainings that are listed one by one."""
    if not (isinstance(runs, list) and runs and all(isinstance(row, dict) and row for row in runs)):
        raise InvalidArgumentError(
            "expected runs as a list of settings, got something else: write - {learning_rate: "
            "0.001} a line"
        )
    return [dict(row) for row in runs]


def _combined(grid: Any) -> list[JsonObject]:
    """Return every combination of the values of some settings."""
    if not (
        isinstance(grid, dict)
        and grid
        and all(isinstance(values, list) and values for values in grid.values())
    ):
        raise InvalidArgumentError(
            "expected lists of values under sweep, got something else: write learning_rate: "
            "[0.001, 0.003]"
        )
    _check_number(math.prod(map(len, grid.values())))
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def _check_number(number: int) -> None:
    """Refuse more trainings than anybody means."""
    if number > _MOST_RUNS:
        raise InvalidArgumentError(
            f"expected at most {_MOST_RUNS:,} trainings, got {number:,}: give fewer values"
        )


def _command(
    wanted: JsonView, given: JsonObject, place: Path, keys: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the words of a training's command, and those behind them once it has begun."""
    if wanted.get("command") is None:
        return _embedded(given, place), ()
    words, resume = (
        _words(wanted["command"], "command"),
        _words(wanted.get("resume") or [], "resume"),
    )
    used = {name for word in words for name in _PLACEHOLDER.findall(word)}
    for key in keys:
        if key not in used:
            raise InvalidArgumentError(
                f"expected {{{key}}} in the command, since it is swept; got none: write it where "
                "its value belongs"
            )
    values = {**{name: _text(value) for name, value in given.items()}, "folder": str(place)}

    def value(match: re.Match[str]) -> str:
        if match[1] not in values:
            raise InvalidArgumentError(
                f"expected a setting in the command, got {{{match[1]}}}: use one of "
                f"{', '.join(values)}"
            )
        return values[match[1]]

    return tuple(_PLACEHOLDER.sub(value, word) for word in words), tuple(
        _PLACEHOLDER.sub(value, word) for word in resume
    )


def _embedded(given: JsonObject, place: Path) -> tuple[str, ...]:
    """Return the command of the embedded trainer, which goes on with what is there."""
    task = given.pop("task", None)
    settings = [
        word for name, value in given.items() for word in ("--set", f"{name}={json.dumps(value)}")
    ]
    named = [] if task is None else [_text(task)]
    return (
        sys.executable,
        "-m",
        "groupwise_lab",
        "train",
        *named,
        "-o",
        str(place),
        "--resume",
        "--json",
        *settings,
    )


def _words(given: Any, name: str) -> list[str]:
    """Return the words of a command, one text of it split as a shell splits it."""
    try:
        words = shlex.split(given) if isinstance(given, str) else [_text(word) for word in given]
    except (TypeError, ValueError):
        words = []
    if not words and name == "command":
        raise InvalidArgumentError(
            f"expected {name} as a text or a list of words, got {str(given)[:60]!r}: write "
            "[python, train.py, ...]"
        )
    return words


def _text(value: Any) -> str:
    """Return a value as a command takes it."""
    return json.dumps(value) if isinstance(value, bool | None) else str(value)


def _name(values: JsonView) -> str:
    """Return what a training is called: its settings, in letters that no file system minds."""
    text = ",".join(f"{key}={_text(value)}" for key, value in values.items())
    return re.sub(r"[^\w.,=+-]", "-", text)[:_LONGEST_NAME].strip(".-") or "run"


def _told_apart(names: Sequence[str]) -> list[str]:
    """Return names with their number behind those that come twice."""
    seen: dict[str, int] = {}
    varying = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        varying.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return varying


class CommandRunner:
    """Runs the command of a training; it travels to the workers."""

    def __init__(self, home: Path) -> None:
        """Remember where the user stands."""
        self._home = home

    def __call__(self, training: SweepTraining) -> tuple[float, str]:
        """Return the seconds that the command took, and why it failed, "" where it did not."""
        begun = training.folder.is_dir() and any(training.folder.iterdir())
        words = [*training.words, *(training.resume if begun else ())]
        started = time.monotonic()
        try:
            training.folder.mkdir(parents=True, exist_ok=True)
            with training.log.open("ab") as log:
                code = subprocess.run(  # noqa: S603 - the user's own command, without a shell
                    words,
                    cwd=self._home,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    check=False,
                ).returncode
        except OSError as error:
            raise GroupwiseError(
                f"expected a command that starts, got {error.strerror or error} for {words[0]}"
            ) from None
        return (
            time.monotonic() - started,
            f"its command ended with code {code}: {_last_words(training.log)}" if code else "",
        )


def _last_words(log: Path) -> str:
    """Return the last line that a command printed."""
    with log.open("rb") as file:
        file.seek(0, 2)
        file.seek(max(0, file.tell() - _END_OF_LOG))
        lines = file.read().decode(errors="replace").split("\n")
    return clean(
        next((line.strip() for line in reversed(lines) if line.strip()), "it printed nothing"),
        longest=300,
    )


class _SweepJournal:
    """What was done of a sweep, a line a training that ended."""

    def __init__(self, folder: Path) -> None:
        """Make the folder, or read what was done in it."""
        self._file = folder / OWN / JOURNAL
        if folder.is_dir() and any(folder.iterdir()) and not self._file.parent.is_dir():
            raise OverwriteError(
                f"expected a new folder or one of a sweep, got {folder}, which holds something "
                "else: choose another with -o"
            )
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.touch()
        except OSError as error:
            raise GroupwiseError(
                f"expected a folder to write at {folder}, got {error.strerror}: choose another "
                "with -o"
            ) from None
        self._done: dict[str, list[str]] = {}
        for line in self._file.read_text(encoding="utf-8", errors="replace").splitlines():
            with suppress(ValueError, KeyError, TypeError):
                entry = json.loads(line)
                self._done[entry["name"]] = entry["words"]

    def has(self, training: SweepTraining) -> bool:
        """Return whether a training was done by the same command."""
        return self._done.get(training.name) == list(training.words)

    def add(self, training: SweepTraining, seconds: float) -> None:
        """Note that a training is done."""
        entry = {"name": training.name, "words": training.words, "seconds": round(seconds, 3)}
        try:
            with self._file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
        except OSError as error:
            raise GroupwiseError(
                f"expected to write {self._file}, got {error.strerror}: what is done is kept; run "
                "it again"
            ) from None


def run_sweep(
    sweep: Sweep,
    engine: Engine,
    *,
    cpus: int = 1,
    gpus: int = 0,
    progress: Callable[[str, int, int], None] = lambda _doing, _done, _total: None,
) -> list[Result]:
    """Run every training that is not done yet, and return what came of each."""
    journal = _SweepJournal(sweep.folder)
    wanted = {training.name: training for training in sweep.trainings if not journal.has(training)}
    outcomes: dict[str, ShardOutcome] = {}
    progress("training", 0, len(wanted))

    def keep(outcome: ShardOutcome) -> None:
        outcomes[outcome.name] = outcome
        if outcome.done and not outcome.value[1]:
            journal.add(wanted[outcome.name], outcome.value[0])
        progress(f"training ({outcome.name} ended)", len(outcomes), len(wanted))

    engine.map(
        CommandRunner(Path.cwd()), wanted, cpus=cpus, gpus=gpus, limits=Limits(tries=1), each=keep
    )
    return [_result(training, outcomes.get(training.name)) for training in sweep.trainings]


def _result(training: SweepTraining, outcome: ShardOutcome | None) -> Result:
    """Return what came of a training; without an outcome it was done before."""
    if outcome is None:
        return Result(training.name, training.values, done=True, sentence="", seconds=None)
    why = (
        outcome.value[1]
        if outcome.done
        else outcome.sentence.removeprefix(f"shard {training.name}: ")
    )
    return Result(
        training.name, training.values, done=not why, sentence=why, seconds=outcome.seconds
    )


def record_of(training: SweepTraining) -> RunRecord:
    """Open the run of a training: what its folder holds, else what its command printed.

    It says what it was trained with.
    """
    try:
        record = run_record(training.folder, settings=training.settings)
    except NothingYetError:
        record = run_record(training.log, settings=training.settings)
    labels = {key: _text(value) for key, value in training.values.items()}
    return dataclasses.replace(record, name=training.name, labels={**record.labels, **labels})


def ended(results: Sequence[Result]) -> str:
    """Say how many trainings are done, and why the first that is not failed."""
    lost = [result for result in results if not result.done]
    before = sum(result.done and result.seconds is None for result in results)
    sentence = f"{len(results) - len(lost)} of {count(len(results), 'training')} done" + (
        f", {before} of them before" if before else ""
    )
    return f"{sentence}." + (f" {lost[0].name}: {lost[0].sentence}." if lost else "")


_, _, DECISIONS, _PROBES = COMPANIONS
FORETOLD = {
    "group_size": "The safe group size by the components of the runs",
    "learning_rate": "The largest stable learning rate by the reward of the runs",
}


@frozen
class Best:
    """The settings whose runs end highest."""

    values: dict[str, str]  # of each setting
    level: float  # mean of the late means of their runs
    runs: int  # that were compared
    of: int  # settings of which they are the best
    against_next: str  # how they stand against the next best, in a sentence


@frozen
class Foretold(Plain):
    """What runs foretell of one setting, and which value of it turned out best."""

    setting: str
    values: tuple[float, ...]  # one a run that foretells it, in order
    low: float  # the least that one of their intervals allows
    high: float  # the most
    best: str  # the value that turned out best; "" where none did

    @property
    def said(self) -> str:
        """The same in a sentence."""
        middle = number(self.values[len(self.values) // 2])
        spread = "" if self.low == self.high else f" ({number(self.low)} to {number(self.high)})"
        best = f"; the best that was trained is {self.best}" if self.best else ""
        runs = count(len(self.values), "run")
        return f"{FORETOLD[self.setting]}: {middle}{spread}, {runs}{best}."


@frozen
class SweepAnswer(Plain):
    """What a sweep shows."""

    runs: tuple[Result, ...]  # what came of each training
    comparisons: dict[str, RunComparison]  # by setting
    best: Best | None
    foretold: tuple[Foretold, ...]
    notes: tuple[str, ...]  # what could not be read or compared, and why


def answer_of(sweep: Sweep, results: Sequence[Result], metric: str) -> SweepAnswer:
    """Open the runs of a sweep that are done, and say what they show."""
    read: dict[str, tuple[SweepTraining, RunRecord]] = {}
    notes: list[str] = []
    for training, result in zip(sweep.trainings, results, strict=True):
        if result.done:
            try:
                read[training.name] = training, record_of(training)
            except GroupwiseError as error:
                notes.append(
                    f"{training.name} cannot be read: {sentence(clean(error, longest=300))}"
                )
    records = [record for _, record in read.values()]
    comparisons = {}
    for key in sweep.settings:
        try:
            comparisons[key] = compare_runs(
                grouped_by(records, key), metric, Question(), sorted_by=key
            )  # as `compare --by` does
        except GroupwiseError as error:
            notes.append(f"{key}: {sentence(clean(error, longest=300))}")
    best = _best(sweep, records, metric)
    return SweepAnswer(
        tuple(results),
        comparisons,
        best,
        _foretold(list(read.values()), metric, best),
        tuple(notes),
    )


def _best(sweep: Sweep, records: Sequence[RunRecord], metric: str) -> Best | None:
    """Return the settings that end highest, of those of which no run failed; None where none can
    be told.
    """
    groups: dict[tuple[str, ...], list[RunRecord]] = {}
    for record in records:
        groups.setdefault(
            tuple(setting_of(record, key) or "" for key in sweep.settings), []
        ).append(record)
    typed = {
        ", ".join(
            f"{key} {value}" for key, value in zip(sweep.settings, values, strict=True)
        ): values
        for values in groups
    }
    made = [RunGroup(name, tuple(groups[values])) for name, values in typed.items()]
    try:
        if len(made) < 2 or metric_series(records[0], metric).healthy != "up":
            return None
        ranked = sorted(compare_runs(made, metric, Question()).groups, key=_rank)
        first = ranked[0]
        if not math.isfinite(_rank(first)):
            return None
        order = [ranked[1].name, first.name, *(result.name for result in ranked[2:])]
        made.sort(key=lambda group: order.index(group.name))
        if math.isfinite(
            _rank(ranked[1])
        ):  # with the noise of all seeds and an allowance for all settings
            whole = compare_runs(made, metric, Question())
            against = difference_sentence(whole.groups[0], whole.groups[1], whole.comparison)[0]
        else:
            against = compare_runs(made[:2], metric, Question()).answer[0]
    except GroupwiseError:
        return None
    return Best(
        dict(zip(sweep.settings, typed[first.name], strict=True)),
        first.level,
        sum(not run.left_out for run in first.runs),
        len(made),
        against,
    )


def _rank(group: ComparedGroup) -> float:
    """Return what orders groups, the best first; those that failed or were not measured come
    last.
    """
    return math.inf if group.failed or not math.isfinite(group.level) else -group.level


def _foretold(
    runs: Sequence[tuple[SweepTraining, RunRecord]], metric: str, best: Best | None
) -> tuple[Foretold, ...]:
    """Return what the runs foretell, by setting."""
    quantities = {"group_size": [_group_size(record, training.folder) for training, record in runs]}
    quantities["learning_rate"] = [_stable_rate(record, metric) for _, record in runs]
    forecasts = []
    for setting, all_ends in quantities.items():
        bounded = sorted(ends for ends in all_ends if ends is not None)
        if bounded:
            lows, highs = [low for _, low, _ in bounded], [high for _, _, high in bounded]
            turned_out = "" if best is None else best.values.get(setting, "")
            forecasts.append(
                Foretold(
                    setting,
                    tuple(value for value, _, _ in bounded),
                    min(lows),
                    max(highs),
                    turned_out,
                )
            )
    return tuple(forecasts)


def _group_size(record: RunRecord, folder: Path) -> tuple[float, float, float] | None:
    """Return the safe group size by the components beside a run, with the range of safe ones;
    else what the run last decided by its own.
    """
    plan = group_size_evidence(record, opened=folder).plan
    if plan is None:
        decided = _decided(folder / DECISIONS)
        return None if decided is None else (decided, decided, decided)
    low, high = plan.safe_sizes
    return float(plan.group_size), float(low), float(high)


def _decided(decisions: Path) -> float | None:
    """Return the group size that an adaptive run of the embedded trainer last found best, None
    where it decided nothing.
    """
    with suppress(OSError, ValueError, TypeError, LookupError):
        return float(json.loads(decisions.read_text(encoding="utf-8"))[-1]["best"])
    return None


def _stable_rate(record: RunRecord, metric: str) -> tuple[float, float, float] | None:
    """Return the largest stable learning rate by the reward of a run, with the interval of its
    margin.
    """
    try:
        evidence = stability_evidence(record, fit_metric(record, metric))
    except GroupwiseError:
        return None
    rate, margin = evidence.learning_rate, evidence.margin
    if rate is None or margin is None or not evidence.knows_rate:
        return None
    return (rate * margin.value, rate * margin.low, rate * margin.high) if margin.bounded else None
