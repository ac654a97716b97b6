"""Which experiment tells the causes apart that remain: a row of `probes.tsv` an experiment.

Each outcome has a chance under each cause. The gain of an experiment is the mutual information of
its outcome and the cause, all that remain being equally likely; the largest gain a second is first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from groupwise.diagnostics.facts import Fact, stated
from groupwise.diagnostics.falls import fall_of
from groupwise.diagnostics.judgement import Cause, Certainty, Finding, Status, not_logged
from groupwise.diagnostics.signals import Evidence
from groupwise.diagnostics.signs import reach_of
from groupwise.files import table_rows
from groupwise.intervals import Interval
from groupwise.plain import Plain
from groupwise.record.probes import ProbeResult
from groupwise.record.run import RunRecord
from groupwise.wording import clean, count

NAME = "probes"
# The chance from which a cause is likely, and below which one is left out; bits worth one.
LIKELY, LEFT_OUT, LEAST_BITS = 0.9, 0.1, 0.1


@dataclass(frozen=True, slots=True)
class Outcome(Plain):
    """What an experiment may show."""

    fact: Fact
    meaning: str
    chances: Mapping[str, float]  # cause -> chance of this outcome


@dataclass(frozen=True, slots=True)
class ProbeKind:
    """One experiment, as `probes.tsv` has it."""

    key: str
    does: str
    command: str
    needs: str  # of the user
    logged: tuple[str, ...]  # columns of the rollouts
    log: str  # what to log where these are missing
    rollouts: int
    seconds: float  # a rollout, before any was measured
    family: tuple[str, ...]  # causes that stand for all those that it tells apart
    outcomes: tuple[Outcome, ...]

    @property
    def causes(self) -> tuple[str, ...]:
        """The causes that it tells apart."""
        return tuple(self.outcomes[0].chances)

    def line_of(self, run: str) -> str:
        """The command as it is typed for a run."""
        return self.command.replace("RUN", run, 1)

    def chances(self, cause: str) -> list[float]:
        """The chance of each outcome under a cause, that it cannot tell last; all alike where
        nothing is known.
        """
        if cause not in self.causes:
            return [1 / (len(self.outcomes) + 1)] * (len(self.outcomes) + 1)
        chances = [outcome.chances[cause] for outcome in self.outcomes]
        return [*chances, max(1 - sum(chances), 0.0)]

    def bits(self, causes: Sequence[str]) -> float:
        """The expected gain of certainty about causes that are equally likely."""
        if len(causes) < 2:
            return 0.0
        rows = [self.chances(cause) for cause in causes]
        mean = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
        return _entropy(mean) - sum(map(_entropy, rows)) / len(rows)

    def missing(self, record: RunRecord) -> str:
        """What to log so that it can be run, "" where it can."""
        rollouts = record.rollouts
        filled = (
            ()
            if rollouts is None
            else tuple(
                name for name in rollouts.columns if rollouts[name].null_count() < len(rollouts)
            )
        )
        return "" if {*self.logged} <= {*filled} else self.log


def _entropy(chances: Iterable[float]) -> float:
    """The entropy of a distribution, in bits."""
    return -sum(chance * math.log2(chance) for chance in chances if chance > 0)


def _kind(cells: Mapping[str, str]) -> ProbeKind:
    """Read a row of the table."""
    outcomes = []
    for entry in cells["outcomes"].split("; "):
        fact, meaning, chances = entry.split("|")
        pairs = (pair.split("=") for pair in chances.split())
        outcomes.append(Outcome(Fact[fact], meaning, {key: float(text) for key, text in pairs}))
    return ProbeKind(
        cells["key"],
        cells["does"],
        cells["command"],
        cells["needs"],
        tuple(cells["logged"].split()),
        cells["log"],
        int(cells["rollouts"]),
        float(cells["seconds"]),
        tuple(cells["family"].split()),
        tuple(outcomes),
    )


KINDS: Mapping[str, ProbeKind] = {
    kind.key: kind for kind in map(_kind, table_rows(Path(__file__).with_name("probes.tsv")))
}


@dataclass(frozen=True, slots=True)
class Choice(Plain):
    """An experiment for one run: what it would tell, and what it costs."""

    KEYS: ClassVar[tuple[str, ...]] = (
        *("probe=kind.key", "does=kind.does", "command=kind.command", "rollouts=kind.rollouts"),
        *("seconds", "bits", "missing", "outcomes=kind.outcomes"),
    )

    kind: ProbeKind
    bits: float
    seconds: float
    missing: str  # what to log so that it can be run

    @property
    def cost(self) -> str:
        """Answers and seconds, in words."""
        return f"{count(self.kind.rollouts, 'answer')}, some {self.seconds:.0f} s"


def contenders(cause: Cause) -> tuple[str, ...]:
    """The causes that remain: those that cannot be told apart, the rivals of one that is only
    possible, and what a cause that stands for several may be.
    """
    for kind in KINDS.values():
        if {*cause.keys} & {*kind.family}:
            return kind.causes
    if cause.certainty is not Certainty.POSSIBLE:
        return cause.keys
    rivals = (kind.causes for kind in KINDS.values() if {*cause.keys} & {*kind.causes})
    return tuple(dict.fromkeys([*cause.keys, *(key for keys in rivals for key in keys)]))


def choices(causes: Sequence[str], record: RunRecord) -> list[Choice]:
    """The experiments that would tell causes apart, the largest gain a second first; those that
    the log is too poor for come last.
    """
    ran = () if record.probes is None else [one.probe for one in record.probes.results]
    found = []
    for kind in KINDS.values():
        bits = kind.bits(causes)
        if bits >= LEAST_BITS and kind.key not in ran:
            seconds = kind.rollouts * kind.seconds
            found.append(Choice(kind, bits, seconds, kind.missing(record)))
    return sorted(found, key=lambda one: (bool(one.missing), -one.bits / one.seconds, one.seconds))


def weighed(cause: Cause, seen: Iterable[Fact]) -> dict[str, float]:
    """The chance of each cause that remains after the experiments of a run, all being equally
    likely before; empty where none was run.
    """
    seen = {*seen}
    shown = [
        (kind, place)
        for kind in KINDS.values()
        for place, outcome in enumerate(kind.outcomes)
        if outcome.fact in seen
    ]
    causes = contenders(cause) if shown else ()
    weight = {key: math.prod(kind.chances(key)[place] for kind, place in shown) for key in causes}
    total = sum(weight.values())
    return {key: value / total for key, value in weight.items()}


def check(evidence: Evidence) -> Finding:
    """Tell what the experiments on a run showed of the change that it is about."""
    probes, fall = evidence.record.probes, fall_of(evidence)
    reward = evidence.reward
    stands = [
        one
        for one in (() if probes is None else probes.results)
        if one.probe in KINDS
        and (
            one.step is None
            or fall is None
            or reward is None
            or abs(reward.at(one.step) - fall.row) <= reach_of(evidence)
        )
    ]
    if not stands:
        return not_logged(NAME, "no experiment was run", "a probe: groupwise probe RUN")
    facts = [
        outcome.fact
        for one in stands
        for outcome in KINDS[one.probe].outcomes
        if outcome.fact.name == one.outcome
    ]
    last = stands[-1]
    value = Interval(last.value, last.low, last.high)
    return Finding(
        NAME, Status.INFO, "; ".join(map(said, stands)), last.step, value, facts=stated(*facts)
    )


def told_by(record: RunRecord) -> str:
    """The last experiment that showed a fact, by how many answers of which seed; "" for none."""
    results = () if record.probes is None else record.probes.results
    return next((_way(one) for one in reversed(results) if one.outcome), "")


def said(result: ProbeResult) -> str:
    """What an experiment showed, and how."""
    return clean(f"{result.message} ({_way(result)})")


def _way(result: ProbeResult) -> str:
    """How an experiment was made."""
    return f"probe {result.probe}, seed {result.seed}, {count(result.rollouts, 'answer')}"
