"""From facts to why: one row of `causes.tsv` a cause, one rule over all rows.

A cause is likely only where its own evidence is seen. Where the log leaves out what would tell
causes apart, all of them are named with what to log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from groupwise.diagnostics.facts import NEEDED, Fact, Seen
from groupwise.diagnostics.judgement import Cause, Certainty, Finding, Learning, Sign, Status
from groupwise.diagnostics.pace import SOON
from groupwise.diagnostics.probes import (
    KINDS,
    LEFT_OUT,
    LIKELY,
    choices,
    contenders,
    told_by,
    weighed,
)
from groupwise.diagnostics.signals import Evidence, gained_since, stands_since
from groupwise.diagnostics.verifier import who_fails
from groupwise.files import table_rows
from groupwise.plain import frozen

# Levels after a change over those before it that are moves, by what a fact says.
MUCH_LONGER, SHRANK, CUT_MORE = 1.5, 0.6, 0.15
ENTROPY_RISES, ENTROPY_HALVES = 1.4, 0.5
GRADIENT_GROWS, EXPLODED, SAMPLER_MOVES = 10.0, 1e4, 5.0


@frozen
class Clause:
    """Facts that speak for a cause together: of each entry one must be as it says."""

    weight: float
    certainty: Certainty
    atoms: tuple[tuple[tuple[Fact, ...], Seen], ...]


@frozen
class Row:
    """One cause, as `causes.tsv` has it."""

    key: str
    label: str
    clauses: tuple[Clause, ...]
    against: tuple[tuple[Fact, float], ...]
    first: tuple[str, ...]  # quantities that move first, if it is the cause
    lag: int  # rows that they may be away from the fall; -1: before anything else moved
    tells: tuple[str, ...]  # what to log to tell it from others, the cheapest first
    do: str  # {step} is the last step before the first sign, {onset} that of the failure
    page: str  # of the playbook

    @property
    def evidence(self) -> set[Fact]:
        """The facts that speak for it."""
        atoms = (atom for clause in self.clauses for atom in clause.atoms)
        return {fact for facts, wanted in atoms if wanted is Seen.SEEN for fact in facts}


_MARKS = {"!": Seen.ABSENT, "?": Seen.NOT_LOGGED}


def _clauses(cell: str, certainty: Certainty) -> Iterator[Clause]:
    """Yield the clauses of a cell: FACT+!ABSENT+?NOT_LOGGED+ONE|OTHER=weight; ..."""
    for clause in filter(None, cell.split("; ")):
        facts, _, weight = clause.partition("=")
        atoms = tuple(
            (
                tuple(Fact[name] for name in atom.lstrip("!?").split("|")),
                _MARKS.get(atom[0], Seen.SEEN),
            )
            for atom in facts.split("+")
        )
        yield Clause(float(weight), certainty, atoms)


def _row(cells: Mapping[str, str]) -> Row:
    """Read a row of the table."""
    against = (entry.partition("=") for entry in filter(None, cells["against"].split("; ")))
    return Row(
        cells["key"],
        cells["label"],
        (
            *_clauses(cells["likely"], Certainty.LIKELY),
            *_clauses(cells["possible"], Certainty.POSSIBLE),
        ),
        tuple((Fact[name], float(weight)) for name, _, weight in against),
        tuple(cells["first"].split()),
        int(cells["lag"] or 0),
        tuple(filter(None, cells["tells"].split("; "))),
        cells["do"],
        cells["page"],
    )


CAUSES: Mapping[str, Row] = {
    row.key: row for row in map(_row, table_rows("diagnostics/causes.tsv"))
}

# A slow decline, or that of one function, unless it came at once.
_SLOW = {
    Fact.DECLINE,
    Fact.TRAINING_DECLINES_ALONE,
    Fact.FUNCTION_FALL_AT_ONCE,
    Fact.FUNCTION_FALL_BY_AND_BY,
}
_AT_ONCE = {Fact.PART_LOST_AT_ONCE, Fact.REWARD_CONSTANT_AT_ONCE}
# The held-out reward did not fall with the training reward.
_OF_TRAINING = {Fact.TRAINING_FALLS_ALONE, Fact.TRAINING_DECLINES_ALONE}


@dataclass(frozen=True)
class Case:
    """What is to be explained, and what is known of it."""

    evidence: Evidence
    answers: Mapping[str, Finding]  # of the checks, by name
    signs: Mapping[str, Sign]  # signals that moved about it, by quantity
    onset: int | None  # step of the failure
    abrupt: bool = True  # whether the reward fell within a few rows
    slow: bool = False  # whether it took a good part of the log
    learning: Learning = Learning.UNKNOWN
    question: Fact = Fact.FELL

    @cached_property
    def seen(self) -> set[Fact]:
        """The facts that hold: of the checks, of the signs about the change, and of both."""
        stated = {fact for answer in self.answers.values() for fact in answer.facts}
        stated |= {*self._moved()}
        return stated | {*self._of_the_fall(stated), *self._of_the_gain()}

    def state(self, fact: Fact, row: Row) -> Seen:
        """Say whether a fact is seen, shown absent, or not logged; FIRST is of the row's own."""
        if self._comes_first(row) if fact is Fact.FIRST else fact in self.seen:
            return Seen.SEEN
        needed = NEEDED.get(fact)
        logged = needed is None or any(map(self.evidence.quantity, needed))
        return Seen.ABSENT if logged else Seen.NOT_LOGGED

    def finding(self, fact: Fact) -> Finding | None:
        """Return the answer that states a fact, or None."""
        return next((answer for answer in self.answers.values() if fact in answer.facts), None)

    def ratio(self, quantity: str) -> float:
        """Return the level after over that before of a signal that moved; 1 where it did not."""
        sign = self.signs.get(quantity)
        if sign is None or not sign.before or sign.at_change is None:
            return 1.0
        return sign.at_change / sign.before

    def gained(self, quantity: str) -> float:
        """Return the level after less that before of a signal that moved; 0 where it did not."""
        sign = self.signs.get(quantity)
        if sign is None or sign.before is None or sign.at_change is None:
            return 0.0
        return sign.at_change - sign.before

    def _moved(self) -> Iterator[Fact]:
        """Yield what signals did about the change."""
        longer, entropy = self.ratio("completion_length"), self.ratio("entropy")
        gradient, cut = self.ratio("gradient_norm"), self.gained("truncated_share")
        holds = {
            Fact.LENGTH_RAN_AWAY: longer >= (1 if cut >= CUT_MORE else MUCH_LONGER),
            Fact.LENGTH_SHRANK: longer <= SHRANK and not self._limit_fell,
            Fact.LENGTH_ENDS_SHORT: self._ends_short,
            Fact.TRUNCATED_MORE: cut > 0,
            Fact.LIMIT_FELL: self._limit_fell,
            Fact.ENTROPY_ROSE: entropy >= ENTROPY_RISES,
            Fact.ENTROPY_FELL: entropy < 1,
            Fact.ENTROPY_HALVED: entropy <= ENTROPY_HALVES,
            Fact.GRADIENT_GREW: gradient >= GRADIENT_GROWS,
            Fact.GRADIENT_BROKE: gradient >= EXPLODED,
            Fact.REWARD_NOT_FINITE: "reward" in self.signs,
            Fact.SAMPLER_MOVED: any(
                self.ratio(name) >= SAMPLER_MOVES for name in CAUSES["sampler"].first
            ),
        }
        yield from (fact for fact, held in holds.items() if held)

    @cached_property
    def _limit_fell(self) -> bool:
        """Whether answers are cut off that are shorter than answers were: those that are cut off
        alone would make a longer mean at the old limit.
        """
        cut = self.signs.get("truncated_share")
        if cut is None or self.gained(cut.signal) < CUT_MORE or not cut.at_change:
            return False
        return self.ratio("completion_length") < cut.at_change

    @property
    def _ends_short(self) -> bool:
        """Whether answers got shorter, and the last ones are much shorter than before."""
        length = self.evidence.quantity("completion_length")
        sign = self.signs.get("completion_length")
        if length is None or sign is None or not sign.before or self._limit_fell:
            return False
        late = length.level_from(-length.tenth)
        return self.ratio(sign.signal) < 1 and late <= SHRANK * sign.before

    def _of_the_fall(self, facts: set[Fact]) -> Iterator[Fact]:
        """Yield what is asked, and what kind of fall it is."""
        yield self.question
        fell, reward = self.question is Fact.FELL, self.evidence.reward
        alone = bool(facts & _OF_TRAINING)
        slowly = fell and not alone and not facts & _AT_ONCE and (self.slow or bool(facts & _SLOW))
        nothing = Fact.NOTHING_EARNED in facts
        holds = {
            Fact.FELL_BY_AND_BY: fell and not self.abrupt,
            Fact.FELL_SLOWLY: slowly,
            Fact.FELL_SOON: fell and reward is not None and reward.at(self.onset or 0) < SOON,
            Fact.POLICY_MAY_FAIL: fell and not alone and not nothing,
            Fact.STANDS: slowly or (fell and (nothing or Fact.ANSWERS_SHRANK in facts)),
            Fact.WATCHED: any(map(self.evidence.quantity, ("entropy", "completion_length"))),
            Fact.REWARD_JUMPED_AT_RESTART: self._jumped_at_restart("reward"),
            Fact.GAP_JUMPED_AT_RESTART: self._jumped_at_restart("sampler_mismatch"),
        }
        yield from (fact for fact, held in holds.items() if held)
        if fell and self.onset is not None and not facts & {Fact.PROMPTS_FAIL, Fact.ANSWERS_FAIL}:
            failing = who_fails(self.evidence, self.onset)
            yield from () if failing is None else (failing,)

    def _jumped_at_restart(self, quantity: str) -> bool:
        """Whether a quantity is among what jumped as the run was restarted."""
        jump = self.finding(Fact.RESTART_JUMP)
        return jump is not None and any(sign.signal == quantity for sign in jump.signs)

    def _of_the_gain(self) -> Iterator[Fact]:
        """Yield whether a policy that concentrates may still be learning what pays: its reward
        rose, and goes on, or is not shown to stand.
        """
        for fact, gains in (
            (Fact.ENTROPY_GONE, Fact.GAINS_AS_ENTROPY_FALLS),
            (Fact.GROUPS_ALIKE, Fact.GAINS_AS_GROUPS_ALIKE),
        ):
            finding = self.finding(fact)
            if finding is not None and self._rises(finding):
                yield gains

    def _rises(self, finding: Finding) -> bool:
        """Whether the reward rises since a finding.

        Of groups that broke at once, or of which hardly any teaches a policy without entropy, only
        a reward that rises since says so.
        """
        if self.learning is not Learning.LEARNING or stands_since(self.evidence, finding.step):
            return False
        spent = Fact.ENTROPY_GONE in finding.facts and self.finding(Fact.GROUPS_ALIKE) is not None
        lost = spent or Fact.GROUPS_ALIKE_AT_ONCE in finding.facts
        return not lost or gained_since(self.evidence, finding.step)

    def _comes_first(self, row: Row) -> bool:
        """Whether a cause's own quantity moved before anything else, or with the reward: a policy
        that breaks takes others along.
        """
        reward = self.evidence.reward
        findings = [answer for answer in self.answers.values() if row.evidence & {*answer.facts}]
        own = [answer.step for answer in findings if answer.step is not None]
        if row.lag >= 0:
            if reward is None or self.onset is None or not own:
                return False
            near = max(row.lag, len(reward) // 16)
            return abs(reward.at(min(own)) - reward.at(self.onset)) <= near
        # What stood from the first row on explains no fall long after.
        own = [sign.step for answer in findings for sign in answer.signs if sign.before is not None]
        own += [
            sign.step
            for name, sign in self.signs.items()
            if name in row.first and self.ratio(name) >= SAMPLER_MOVES
        ]
        others = [
            sign.step for name, sign in self.signs.items() if name not in (*row.first, "reward")
        ]
        # Of a slow fall the first rows are hard to tell from noise: the reward moved where it was
        # halfway down.
        others += [self.onset] if "reward" in self.signs and self.onset is not None else []
        return bool(own) and min(own) < min(others, default=min(own) + 1)


def verdict(case: Case) -> Cause:
    """Say why, by the rules and then by the experiments that were run; of causes that cannot be
    told apart, by which experiment they could.
    """
    cause, record = _by_rules(case), case.evidence.record
    if chances := weighed(cause, case.seen):
        surely = max(chances.values()) >= LIKELY
        keys = [key for key in chances if chances[key] >= (LIKELY if surely else LEFT_OUT)]
        names = tuple(_label(CAUSES[key], case) for key in keys)
        certainty = Certainty.LIKELY if surely else Certainty.CANNOT_TELL
        cause = Cause(certainty, names, (), tuple(keys), by=told_by(record) if surely else "")
    if cause.certainty is not Certainty.CANNOT_TELL:
        return cause
    trials = choices(contenders(cause), case.evidence)
    probe = next((trial.command for trial in trials if not trial.missing), "")
    logged = {kind.log for kind in KINDS.values() if kind.ready(record)}
    wanted = [entry for entry in cause.log if entry not in logged]
    wanted += [] if probe else filter(None, (trial.missing for trial in trials))
    return replace(cause, probe=probe, log=tuple(wanted[:1]))


def _by_rules(case: Case) -> Cause:
    """Say why by the scores of all causes: that of the strongest clause that holds, less what
    speaks against it. Causes of one score cannot be told apart.
    """
    scores = list[tuple[float, Row, Certainty]]()
    for row in CAUSES.values():
        clause = max(
            (clause for clause in row.clauses if _holds(clause, case, row)),
            key=lambda clause: (clause.weight, clause.certainty is Certainty.LIKELY),
            default=None,
        )
        if clause is not None:
            against = sum(weight for fact, weight in row.against if fact in case.seen)
            scores.append((clause.weight - against, row, clause.certainty))
    best = max((score for score, _, _ in scores), default=0.0)
    top = [(row, certainty) for score, row, certainty in scores if score == best > 0]
    # Those that nothing speaks for, and nothing against, are rivals; where no cause is named, all.
    rivals = tuple(row.key for score, row, _ in scores if 0 <= score < best or not top)
    if not top:
        return Cause(rivals=rivals)
    rows = [row for row, _ in top]
    names = tuple(_label(row, case) for row in rows)
    keys = tuple(row.key for row in rows)
    if len(top) == 1:
        return Cause(top[0][1], names, keys=keys, rivals=rivals)
    log = [tell for tell in rows[0].tells if all(tell in row.tells for row in rows)]
    return Cause(Certainty.CANNOT_TELL, names, tuple(log[:1]), keys, rivals=rivals)


def _holds(clause: Clause, case: Case, row: Row) -> bool:
    """Whether of each of a clause's entries one fact is as it says; what is not logged is not
    seen either.
    """
    absent = {Seen.ABSENT, Seen.NOT_LOGGED}
    return all(
        any(
            case.state(fact, row) in (absent if wanted is Seen.ABSENT else {wanted})
            for fact in facts
        )
        for facts, wanted in clause.atoms
    )


def _label(row: Row, case: Case) -> str:
    """The cause as printed."""
    broken = case.finding(Fact.NOT_FINITE)
    return label_of(row.key, "" if broken is None else broken.column)


def label_of(key: str, column: str = "") -> str:
    """A cause by its key, as printed; of numerics with the column that broke first."""
    return CAUSES[key].label.format(column=column)


@frozen
class Advice:
    """What to do: the line, and the actions that it comes to."""

    do: str = ""
    keys: tuple[str, ...] = ()  # of the actions: the first that has some
    step: int | None = None  # of the checkpoint to go back to


def advice_for(
    cause: Cause, finding: Finding | None, *, step: int | None, onset: int | None
) -> Advice:
    """Return what to do: of the cause, or else of the check."""
    keys, line = cause.keys[:1], "" if finding is None else finding.advice
    if cause.keys:
        line = CAUSES[cause.keys[0]].do
    elif finding is not None:
        keys = (*(fact.name for fact in finding.facts), finding.check)
    if cause.certainty is Certainty.CANNOT_TELL and cause.log:
        line = f"log {cause.log[0]}; {line}"
    if step is None:
        line = "; ".join(part for part in line.split("; ") if "{step}" not in part)
    if onset is None:
        line = line.replace(" at step {onset}", "").replace(" of step {onset}", "")
    line = line.format(
        step=f"{step:,}" if step is not None else "",
        onset=f"{onset:,}" if onset is not None else "",
    )
    return Advice(line, keys, step)


def is_serious(finding: Finding) -> bool:
    """Whether a finding asks for a look or more."""
    return finding.status in (Status.WARNING, Status.CRITICAL)
