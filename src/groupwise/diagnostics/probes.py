"""Which experiment tells the causes apart that remain: a row of `probes.tsv` an experiment.

Each outcome has a chance under each cause. The gain of an experiment is the mutual information of
its outcome and the cause, all that remain being equally likely; the largest gain a second is first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace

import polars as pl

from groupwise.diagnostics.facts import Fact, stated
from groupwise.diagnostics.falls import fall_of
from groupwise.diagnostics.judgement import Cause, Certainty, Finding, Status, not_logged
from groupwise.diagnostics.signals import Evidence
from groupwise.diagnostics.signs import reach_of
from groupwise.files import table_rows
from groupwise.plain import Plain, frozen
from groupwise.record.probes import ProbeResult
from groupwise.record.run import RunRecord
from groupwise.wording import clean, count

NAME = "probes"
# The chance from which a cause is likely, and below which one is left out; bits worth one.
LIKELY, LEFT_OUT, LEAST_BITS = 0.9, 0.1, 0.1


@frozen
class Outcome(Plain):
    """What an experiment may show."""

    fact: Fact
    meaning: str
    chances: Mapping[str, float]  # cause -> chance of this outcome
    others: float  # the chance under any other cause: NaN where it says nothing of them

    def chance(self, cause: str) -> float:
        """The chance under a cause; NaN where it says nothing of it."""
        return self.chances.get(cause, self.others)


@frozen
class ProbeKind(Plain):
    """One experiment, as `probes.tsv` has it, and what it is worth to a run."""

    probe: str
    does: str
    command: str
    logged: tuple[str, ...]  # columns of the rollouts, or the trainer that makes it
    log: str  # what to log where these are missing; "" where nothing helps
    rollouts: int
    seconds: float  # before any were measured
    family: tuple[str, ...]  # causes that stand for all those that it tells apart
    outcomes: tuple[Outcome, ...]
    bits: float = 0.0  # its expected gain of certainty
    missing: str = ""  # what to log before it can be made
    timed: bool = False  # whether the seconds are those of a first batch

    @property
    def causes(self) -> tuple[str, ...]:
        """The causes that it tells apart, as long as no other is in question."""
        return tuple(self.outcomes[0].chances)

    def chances(self, cause: str) -> list[float]:
        """The chance of each outcome under a cause, that it cannot tell last."""
        chances = [outcome.chances.get(cause, 0.0) for outcome in self.outcomes]
        return [*chances, max(1 - sum(chances), 0.0)]

    def for_run(self, causes: Sequence[str], record: RunRecord) -> ProbeKind:
        """Add what it is worth where causes remain that are equally likely: it is silent on those
        that it does not tell.
        """
        rows = [
            self.chances(cause)
            for cause in causes
            if any(cause in outcome.chances for outcome in self.outcomes)
        ]
        mean = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
        bits = (len(rows) * _entropy(mean) - sum(map(_entropy, rows))) / (len(causes) or 1)
        if self.ready(record):
            return replace(self, bits=bits)
        return replace(self, bits=bits if self.log else 0.0, missing=self.log)

    def ready(self, record: RunRecord) -> bool:
        """Whether what it needs is logged, and by the trainer that can make it."""
        trainer = str(record.config.value("framework"))
        return {*self.logged} <= {*logged_columns(record), trainer}


def _entropy(chances: Iterable[float]) -> float:
    """The entropy of a distribution, in bits."""
    return -sum(chance * math.log2(chance) for chance in chances if chance > 0)


def _outcome(entry: str) -> Outcome:
    """Read FACT|meaning|CAUSE=CHANCE CAUSE=CHANCE others=CHANCE."""
    fact, meaning, pairs = entry.split("|")
    chances = {key: float(text) for key, text in (pair.split("=") for pair in pairs.split())}
    others = chances.pop("others", math.nan)
    return Outcome(Fact[fact], meaning, chances, others)


def _kind(cells: Mapping[str, str]) -> ProbeKind:
    """Read a row of the table."""
    probe, does, command, logged, log, rollouts, seconds, family, outcomes = cells.values()
    return ProbeKind(
        probe,
        does,
        command,
        tuple(logged.split()),
        log,
        int(rollouts),
        float(seconds),
        tuple(family.split()),
        tuple(map(_outcome, outcomes.split("; "))),
    )


KINDS: Mapping[str, ProbeKind] = {
    kind.probe: kind for kind in map(_kind, table_rows("diagnostics/probes.tsv"))
}
_OUTCOMES = [outcome for kind in KINDS.values() for outcome in kind.outcomes]


def logged_columns(record: RunRecord) -> set[str]:
    """The columns of the rollouts that hold anything."""
    rows = pl.DataFrame() if record.rollouts is None else record.rollouts
    return {column.name for column in rows if column.count()}


def contenders(cause: Cause) -> tuple[str, ...]:
    """The causes that remain where none is likely: those that the rules name, their rivals of which
    an experiment says something, and what one that stands for several may be.
    """
    for kind in KINDS.values():
        if {*cause.keys} & {*kind.family}:
            return kind.causes
    if cause.certainty is Certainty.LIKELY:
        return cause.keys
    return tuple(dict.fromkeys((*cause.keys, *_spoken_of(cause.rivals))))


def _spoken_of(keys: Iterable[str]) -> list[str]:
    """Those causes of which an experiment says something."""
    return [key for key in keys if any(key in outcome.chances for outcome in _OUTCOMES)]


def choices(causes: Sequence[str], evidence: Evidence) -> list[ProbeKind]:
    """The experiments that would tell causes apart and were not made of this change, the largest
    gain a second first; those that the log is too poor for last.
    """
    made = _latest(results_of(evidence))
    kinds = (kind.for_run(causes, evidence.record) for kind in KINDS.values())
    return sorted(
        (kind for kind in kinds if kind.bits >= LEAST_BITS and kind.probe not in made),
        key=lambda kind: (bool(kind.missing), -kind.bits / kind.seconds),
    )


def weighed(cause: Cause, seen: Set[Fact]) -> dict[str, float]:
    """The chance of each cause that remains after the experiments of a run, all being equally
    likely before; empty where none was made that tells some of them apart.

    Where they deny every cause that remains by the log, those that they speak for take its place:
    what was measured outweighs what goes with a cause.
    """
    weight = dict.fromkeys(contenders(cause), 1.0)
    shown = [outcome for outcome in _OUTCOMES if outcome.fact in seen]
    denied = {key for outcome in shown for key in weight if outcome.chance(key) < LEFT_OUT}
    if denied and denied == weight.keys():
        spoken = [
            key for outcome in shown for key, chance in outcome.chances.items() if chance > 1 / 2
        ]
        weight |= dict.fromkeys(_spoken_of(cause.rivals) or spoken, 1.0)
    is_weighed = False
    for outcome in shown:
        chances = {key: chance for key in weight if not math.isnan(chance := outcome.chance(key))}
        if len(chances) > 1:
            is_weighed, mean = True, sum(chances.values()) / len(chances)
            weight = {key: value * chances.get(key, mean) for key, value in weight.items()}
    total = sum(weight.values())
    return {key: value / total for key, value in weight.items()} if is_weighed else {}


def check(evidence: Evidence) -> Finding:
    """Tell what the experiments on a run showed of the change that it is about."""
    results = results_of(evidence)
    if not results:
        return not_logged(NAME, "no experiment was made of this change")
    latest = _latest(results).values()
    facts = stated(*(outcome.fact for outcome in map(outcome_of, latest) if outcome))
    message = "; ".join(map(said, latest))
    return Finding(NAME, Status.INFO, message, results[-1].step, facts=facts)


def _results(record: RunRecord) -> tuple[ProbeResult, ...]:
    """What the experiments on a run showed, the oldest first."""
    return () if record.probes is None else record.probes.results


def results_of(evidence: Evidence) -> list[ProbeResult]:
    """What they showed of the change that the judgement is about."""
    reward, fall = evidence.reward, fall_of(evidence)
    results = [result for result in _results(evidence.record) if result.probe in KINDS]
    if reward is None or fall is None:
        return results
    return [
        result
        for result in results
        if result.step is None or abs(reward.at(result.step) - fall.row) <= reach_of(evidence)
    ]


def _latest(results: Iterable[ProbeResult]) -> dict[str, ProbeResult]:
    """The last result of each experiment; what cannot tell replaces none that does."""
    latest = dict[str, ProbeResult]()
    for result in results:
        if result.outcome or result.probe not in latest:
            latest[result.probe] = result
    return latest


def told_by(record: RunRecord) -> str:
    """The last experiment that showed a fact, by how many answers of which seed; "" for none."""
    return next((_way(result) for result in reversed(_results(record)) if result.outcome), "")


def outcome_of(result: ProbeResult) -> Outcome | None:
    """The outcome of an experiment, None where it cannot tell."""
    return next((outcome for outcome in _OUTCOMES if outcome.fact.name == result.outcome), None)


def said(result: ProbeResult) -> str:
    """What an experiment showed, and how."""
    outcome = outcome_of(result)
    meaning = "it cannot tell" if outcome is None else outcome.meaning
    return clean(f"{meaning}: {result.message} ({_way(result)})", longest=1000)


def _way(result: ProbeResult) -> str:
    """How an experiment was made."""
    return f"probe {result.probe}, seed {result.seed}, {count(result.rollouts, 'answer')}"
