"""What a sweep shows: its settings compared, which of them is best, and what components and stability had foretold of that."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from groupwise.analysis.compare import RunComparison, compare_runs
from groupwise.analysis.compare_facts import ComparedGroup
from groupwise.analysis.fitted import fit_metric
from groupwise.analysis.group_size import group_size_evidence
from groupwise.analysis.run_groups import RunGroup, grouped_by, setting_of
from groupwise.analysis.stability import stability_evidence
from groupwise.analysis.sweep import SEED, Result, Sweep, Training, record_of
from groupwise.comparison.compare import Question
from groupwise.errors import GroupwiseError
from groupwise.plain import Plain, plain
from groupwise.record.run import COMPANIONS, RunRecord
from groupwise.series.metric import metric_series
from groupwise.wording import clean, count, number, sentence

_, _, DECISIONS = COMPANIONS
FORETOLD = {
    "group_size": "The best group size by the components of the runs",
    "learning_rate": "The largest stable learning rate by the reward of the runs",
}


@dataclass(frozen=True, slots=True)
class Best:
    """The settings whose runs end highest."""

    values: dict[str, str]  # of each setting
    level: float  # mean of the late means of their runs
    runs: int  # that were compared
    of: int  # settings of which they are the best
    against_next: str  # how they stand against the next best, in a sentence


@dataclass(frozen=True, slots=True)
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
        found = f"; the best that was trained is {self.best}" if self.best else ""
        return f"{FORETOLD[self.setting]}: {middle}{spread}, {count(len(self.values), 'run')}{found}."


@dataclass(frozen=True, slots=True)
class SweepAnswer:
    """What a sweep shows."""

    KEYS: ClassVar[tuple[str, ...]] = ("runs", "comparisons", "best", "foretold", "notes")

    runs: tuple[Result, ...]  # what came of each training
    comparisons: dict[str, RunComparison]  # by setting
    best: Best | None
    foretold: tuple[Foretold, ...]
    notes: tuple[str, ...]  # what could not be read or compared, and why

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {name: plain(getattr(self, name)) for name in self.KEYS}


def answer_of(sweep: Sweep, results: Sequence[Result], metric: str) -> SweepAnswer:
    """Open the runs of a sweep that are done, and say what they show."""
    read: dict[str, tuple[Training, RunRecord]] = {}
    notes: list[str] = []
    for training, result in zip(sweep.trainings, results, strict=True):
        if result.done:
            try:
                read[training.name] = training, record_of(training)
            except GroupwiseError as error:
                notes.append(f"{training.name} cannot be read: {sentence(clean(error, longest=300))}")
    records = [record for _, record in read.values()]
    comparisons = {}
    for key in sweep.settings:
        try:
            paired = SEED if set(sweep.keys) == {key, SEED} else None
            comparisons[key] = compare_runs(grouped_by(records, key), metric, Question(), sorted_by=key, pair_by=paired)
        except GroupwiseError as error:
            notes.append(f"{key}: {sentence(clean(error, longest=300))}")
    best = _best(sweep, records, metric)
    return SweepAnswer(tuple(results), comparisons, best, _foretold(list(read.values()), metric, best), tuple(notes))


def _best(sweep: Sweep, records: Sequence[RunRecord], metric: str) -> Best | None:
    """Return the settings that end highest, of those of which no run failed; None where none can be told."""
    groups: dict[tuple[str, ...], list[RunRecord]] = {}
    for record in records:
        groups.setdefault(tuple(setting_of(record, key) or "" for key in sweep.settings), []).append(record)
    typed = {", ".join(f"{key} {value}" for key, value in zip(sweep.settings, values, strict=True)): values for values in groups}
    made = [RunGroup(name, tuple(groups[values])) for name, values in typed.items()]
    try:
        if len(made) < 2 or metric_series(records[0], metric).healthy != "up":
            return None
        paired = SEED if SEED in sweep.keys else None
        ranked = sorted(compare_runs(made, metric, Question()).groups, key=_rank)
        first = ranked[0]
        if not math.isfinite(_rank(first)):
            return None
        two = [next(group for group in made if group.name == one.name) for one in (ranked[1], first)]
        against = compare_runs(two, metric, Question(), pair_by=paired).answer[0]
    except GroupwiseError:
        return None
    return Best(dict(zip(sweep.settings, typed[first.name], strict=True)), first.level, len(first.compared), len(made), against)


def _rank(group: ComparedGroup) -> float:
    """Return what orders groups, the best first; those that failed or were not measured come last."""
    return math.inf if group.failed or not math.isfinite(group.level) else -group.level


def _foretold(runs: Sequence[tuple[Training, RunRecord]], metric: str, best: Best | None) -> tuple[Foretold, ...]:
    """Return what the runs foretell, by setting."""
    told = {"group_size": [_group_size(record, training.folder) for training, record in runs]}
    told["learning_rate"] = [_learning_rate(record, metric) for _, record in runs]
    found = []
    for setting, all_ends in told.items():
        known = sorted(ends for ends in all_ends if ends is not None)
        if known:
            lows, highs = [low for _, low, _ in known], [high for _, _, high in known]
            turned_out = "" if best is None else best.values.get(setting, "")
            found.append(Foretold(setting, tuple(value for value, _, _ in known), min(lows), max(highs), turned_out))
    return tuple(found)


def _group_size(record: RunRecord, folder: Path) -> tuple[float, float, float] | None:
    """Return the best group size by the components beside a run, with its interval; else what the run last decided by its own."""
    plan = group_size_evidence(record, opened=folder).plan
    if plan is None:
        decided = _decided(folder / DECISIONS)
        return None if decided is None else (decided, decided, decided)
    if plan.expected_regret is not None:
        return None
    low, high = plan.group_size_interval or (plan.group_size, plan.group_size)
    return float(plan.group_size), float(low), float(high)


def _decided(decisions: Path) -> float | None:
    """Return the group size that an adaptive run of the embedded trainer last found best, None where it decided nothing."""
    with suppress(OSError, ValueError, TypeError, LookupError):
        return float(json.loads(decisions.read_text(encoding="utf-8"))[-1]["best"])
    return None


def _learning_rate(record: RunRecord, metric: str) -> tuple[float, float, float] | None:
    """Return the largest stable learning rate by the reward of a run, with the interval of its margin."""
    try:
        found = stability_evidence(record, fit_metric(record, metric))
    except GroupwiseError:
        return None
    rate, margin = found.learning_rate, found.margin
    if rate is None or margin is None or not found.knows_rate:
        return None
    return (rate * margin.value, rate * margin.low, rate * margin.high) if margin.bounded else None
