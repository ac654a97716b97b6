"""From facts to why, one row of `causes.tsv` a cause and one rule over all rows; and which
experiment tells the causes apart that remain, a row of `probes.tsv` each.

A cell of `likely` or `possible` holds clauses, FACT+!NOT_SEEN+THIS|THAT=weight; what is not
logged is not seen either. The weight of one is set against those of other causes: the
highest is named first, equal ones tie, and a new cause is placed between those that it must yield
to and those that it beats.

A cause is likely only where its own evidence is seen. Where the log leaves out what would tell
causes apart, all of them are named with what to log.

Each outcome of an experiment has a chance under each cause. Its gain is the mutual information of
outcome and cause, all that remain being equally likely; the largest gain a second is first. What
its numbers show is a fact, or None where they cannot tell.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, repeat

import numpy as np
import polars as pl

from groupwise.arrays import Ends, Float, Places, mean_of, rows_before
from groupwise.diagnostics.falls import fall_of, level_changes
from groupwise.diagnostics.judgement import (
    NEEDED,
    Cause,
    Certainty,
    Fact,
    Finding,
    Learning,
    Sign,
    Status,
    exactly,
    not_logged,
)
from groupwise.diagnostics.numerics import SOON
from groupwise.diagnostics.signals import Evidence, gained_since, reach_of, stands_since
from groupwise.diagnostics.verifier import who_fails
from groupwise.diagnostics.zero_variance import off_the_ends
from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.files import table_rows
from groupwise.intervals import Interval, mean_interval, wilson
from groupwise.plain import Plain, Words, frozen
from groupwise.record.run import ProbeResult, RunRecord
from groupwise.wording import clean, count, ranged, short

# The chance from which a cause is likely, and below which one is left out; bits worth one.
LIKELY, LEFT_OUT, LEAST_BITS = 0.9, 0.1, 0.1


@frozen
class ProbeOutcome(Plain):
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
    logged: Words  # columns of the rollouts, or the trainer that makes it
    log: str  # what to log where these are missing; "" where nothing helps
    rollouts: int
    seconds: float  # before any were measured
    steps: int  # of the run whose rollouts and time it takes, where it trains as the run did
    family: Words  # causes that stand for all those that it tells apart
    outcomes: tuple[ProbeOutcome, ...]
    bits: float = 0.0  # its expected gain of certainty
    missing: str = ""  # what to log before it can be made
    timed: bool = False  # whether the seconds are those of a first batch

    @property
    def causes(self) -> Words:
        """The causes that it tells apart, as long as no other is in question."""
        return tuple(self.outcomes[0].chances)

    def chances(self, cause: str) -> list[float]:
        """The chance of each outcome under a cause, that it cannot tell last."""
        chances = [outcome.chances.get(cause, 0.0) for outcome in self.outcomes]
        return [*chances, max(1 - sum(chances), 0.0)]

    def for_run(self, causes: Sequence[str], record: RunRecord) -> ProbeKind:
        """Add what it is worth where causes remain that are equally likely: it is silent on those
        that it does not tell, but for an outcome of which it says a chance under all others.
        """
        rows = [
            self.chances(cause)
            for cause in causes
            if any(cause in outcome.chances for outcome in self.outcomes)
        ]
        shared = (
            [(chance := outcome.chance(cause), 1 - chance) for cause in causes]
            for outcome in self.outcomes
        )
        spoken = (pairs for pairs in shared if not any(math.isnan(pair[0]) for pair in pairs))
        bits = max([_gain(rows) * len(rows) / (len(causes) or 1), *map(_gain, spoken)])
        if not self.ready(record):
            return replace(self, bits=bits if self.log else 0.0, missing=self.log)
        sizes = ("prompts_per_step", "group_size")
        taken = self.steps * math.prod(record.config.value(name) or 0 for name in sizes)
        pauses = record.steps["seconds"].diff().drop_nulls().to_list() or [0]
        seconds = self.steps * float(np.median(pauses))
        return replace(
            self, bits=bits, rollouts=taken or self.rollouts, seconds=seconds or self.seconds
        )

    def ready(self, record: RunRecord) -> bool:
        """Whether what it needs is logged, and by the trainer that can make it."""
        trainer = str(record.config.value("framework"))
        return {*self.logged} <= {*logged_columns(record), trainer}


def _gain(rows: Sequence[Sequence[float]]) -> float:
    """The mutual information of outcome and cause, a row of chances each, in bits."""
    mean = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
    return _entropy(mean) - sum(map(_entropy, rows)) / (len(rows) or 1)


def _entropy(chances: Iterable[float]) -> float:
    """The entropy of a distribution, in bits."""
    return -sum(chance * math.log2(chance) for chance in chances if chance > 0)


def _outcome(entry: str) -> ProbeOutcome:
    """Read FACT|meaning|CAUSE=CHANCE CAUSE=CHANCE others=CHANCE."""
    fact, meaning, pairs = entry.split("|")
    chances = {key: float(text) for key, text in (pair.split("=") for pair in pairs.split())}
    others = chances.pop("others", math.nan)
    return ProbeOutcome(Fact[fact], meaning, chances, others)


def _kind(cells: Mapping[str, str]) -> ProbeKind:
    """Read a row of the table."""
    probe, does, command, logged, log, rollouts, seconds, steps, family, outcomes = cells.values()
    return ProbeKind(
        probe,
        does,
        command,
        tuple(logged.split()),
        log,
        int(rollouts),
        float(seconds),
        int(steps or 0),
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


def contenders(cause: Cause) -> Words:
    """The causes that remain where none is likely: those that the rules name, their rivals of which
    an experiment says something, and what one that stands for several may be.
    """
    for kind in KINDS.values():
        if {*cause.keys} & {*kind.family}:
            return kind.causes
    if cause.certainty is Certainty.LIKELY:
        return cause.keys
    pages = {CAUSES[key].page for key in cause.keys}
    others = (key for key in cause.rivals if CAUSES[key].page not in pages)
    return (*cause.keys, *_spoken_of(others))


def in_question(cause: Cause) -> Words:
    """Those causes that tie, or else all that remain: of two or more where the log names none."""
    causes = contenders(cause)
    tied = tuple(key for key in cause.keys if key in causes)
    causes = tied if len(tied) > 1 else causes
    return causes if cause.keys or len(causes) > 1 else ()


def _spoken_of(keys: Iterable[str]) -> list[str]:
    """Those causes of which an experiment says something."""
    return [key for key in keys if any(key in outcome.chances for outcome in _OUTCOMES)]


def choices(cause: Cause, evidence: Evidence) -> list[ProbeKind]:
    """The experiments that would tell apart the causes in question and were not made of this
    change, the largest gain a second first; those that the log is too poor for last.
    """
    causes, made = in_question(cause), results_of(evidence)
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
        rivals = _spoken_of(cause.rivals)
        if all(any(outcome.chance(key) < LEFT_OUT for outcome in shown) for key in rivals):
            rivals = spoken  # those are denied too
        weight |= dict.fromkeys(rivals, 1.0)
    is_weighed = False
    for outcome in shown:
        chances = {key: chance for key in weight if not math.isnan(chance := outcome.chance(key))}
        if len(chances) > 1:
            is_weighed, mean = True, sum(chances.values()) / len(chances)
            weight = {key: value * chances.get(key, mean) for key, value in weight.items()}
    total = sum(weight.values())
    return {key: value / total for key, value in weight.items()} if is_weighed else {}


def probes(evidence: Evidence) -> Finding:
    """Tell what the experiments on a run showed of the change that it is about."""
    results = [*results_of(evidence).values()]
    if not results:
        return not_logged("no experiment was made of this change")
    facts = tuple(outcome.fact for outcome in map(outcome_of, results) if outcome)
    message = "; ".join(map(said, results))
    return Finding(Status.INFO, message, results[-1].step, facts=facts)


def results_of(evidence: Evidence) -> dict[str, ProbeResult]:
    """The last result of each experiment on the change that the judgement is about; what cannot
    tell replaces none that does.
    """
    reward, fall, latest = evidence.reward, fall_of(evidence), dict[str, ProbeResult]()
    probes = evidence.record.probes
    for result in probes.results if probes else ():
        if reward is None or fall is None or result.step is None:
            away = 0
        else:
            away = abs(reward.at(result.step) - fall.row)
        fits = result.probe in KINDS and away <= reach_of(evidence)
        if fits and (result.outcome or not latest.get(result.probe, result).outcome):
            latest[result.probe] = result
    return latest


def told_by(key: str, evidence: Evidence) -> str:
    """The experiments whose outcomes speak of a cause, by how many answers of which seed; "" for
    none.
    """
    return " and ".join(
        _way(result)
        for result in results_of(evidence).values()
        if (outcome := outcome_of(result)) and outcome.chances.get(key, 0.0) >= LEFT_OUT
    )


def outcome_of(result: ProbeResult) -> ProbeOutcome | None:
    """The outcome of an experiment, None where it cannot tell."""
    return next((outcome for outcome in _OUTCOMES if outcome.fact.name == result.outcome), None)


def said(result: ProbeResult) -> str:
    """What an experiment showed, and how."""
    outcome = outcome_of(result)
    meaning = outcome.meaning if outcome else "it cannot tell"
    return clean(f"{meaning}: {result.message} ({_way(result)})", longest=1000)


def _way(result: ProbeResult) -> str:
    """How an experiment was made."""
    return f"probe {result.probe}, seed {result.seed}, {count(result.rollouts, 'completion')}"


# Of what was lost the part that fresh grades must give back, and the correlation with the log by
# which a function is the one that graded.
_HALF, _AGREES, _FEWEST, _BY_CHANCE = 0.5, 0.5, 8, 0.01
# Tokens below minus half of the mean gap, by which a sampler dropped none; a gap that is one.
_BELOW, _GAP, _ROUNDING, _SMALL = 0.05, 0.005, 1e-5, 0.1
RENEWED = 4  # updates that the weights of the sampler skip
BY_HEART = 20  # groups of a prompt
# Of the mass, at least, by a sampler that leaves out what is seldom; where no reference denies it.
_KEPT, _KEPT_SURELY = 0.3, 0.6
# Times the gap of the first turn that later ones have of another history; parts that are told.
_TIMES, _PARTS = 5.0, 8
# The way from the checkpoint to the reference: standard errors beyond doubt, all of it.
# What may be left of the gap to the reference that sampled.
_CLEARLY, _ALL, _EXPLAINS, _LEFT = 3.0, 0.8, 0.02, 0.25
_UNITS = 2.5  # times the largest fresh grade from which the log has other units
_WARMTH = 0.75  # of the squared gaps, by which a temperature explains them
# The chance that two answers are one; the share that is right of a prompt that is too hard.
_ALIKE, _VARIED, _RARELY = 0.75, 0.2, 0.1


@frozen
class Shown:
    """What an experiment shows."""

    fact: Fact | None
    message: str
    value: Interval


def regraded(before_2N: Float, after_2N: Float, *, rose: bool = False) -> Shown:
    """Hold grades of the log (first row) against fresh ones of the same answers, before and since
    a change: what of the loss is in the grades and not in the answers; or of a gain, where the
    reward rose.

    A function that changed grades the answers of one side otherwise than the log did; one that did
    not grades both sides alike, but for a constant.
    """
    if not before_2N.shape[1]:
        return _never_earned(after_2N)
    if min(before_2N.shape[1], after_2N.shape[1]) < _FEWEST:
        raise InsufficientDataError(
            f"expected {_FEWEST} logged completions before the change and after it, got "
            f"{before_2N.shape[1]} and {after_2N.shape[1]}: log more completions, or raise -n"
        )
    (was, now_was), (then, now) = before_2N.mean(axis=1), after_2N.mean(axis=1)
    lost = was - then
    agreeing = [side for side in (before_2N, after_2N) if _agrees(side, rose=rose)]
    most = np.abs(np.concatenate([before_2N, after_2N], axis=1)).max(axis=1)
    varied = [side.std(axis=1) for side in agreeing if side.std(axis=1).all()]
    if varied and most.max() > _UNITS * most.min():  # graded in other units
        unit = np.array([[1.0], [varied[0][0] / varied[0][1]]])
        before_2N, after_2N = before_2N * unit, after_2N * unit
    gap_of_before, gap_of_after = _gap(before_2N), _gap(after_2N)
    value = gap_of_after.value - gap_of_before.value
    half = math.hypot(gap_of_after.width, gap_of_before.width) / 2
    regained = Interval(value, value - half, value + half)
    message = (
        f"fresh grades are {short(now_was)} before and {short(now)} after the change; in the log "
        f"the same completions have {short(was)} and {short(then)}"
    )
    fact, part = None, _HALF * lost
    if not np.ptp(np.concatenate([before_2N[1], after_2N[1]])):
        message += "; equal grades show nothing: check that this reward function graded the log"
    elif not agreeing:
        message += "; this function does not grade as the log does"
    else:
        if regained.low > max(part, 0.0) and (lost >= 0 or not rose):
            fact = Fact.GRADES_CHANGED
        elif lost > 0:
            fact = Fact.ANSWERS_CHANGED if regained.high < part else None
        elif rose:
            stands = Fact.GAIN_STANDS if regained.low > part else None
            fact = Fact.GAIN_GONE if regained.high < part else stands
    return Shown(fact, message, regained)


def _never_earned(after_2N: Float) -> Shown:
    """Tell of answers that never earned anything by the log."""
    logged, fresh = after_2N
    if logged.max() > logged.min():
        raise InsufficientDataError(
            "expected a reward that fell, or that no completion earned, got one that comes and "
            "goes: there is no before and after to grade"
        )
    earned = wilson(int((fresh > logged).sum()), len(fresh))
    fact = Fact.GRADES_CHANGED if earned.low > _BY_CHANCE else None
    return Shown(
        fact if earned.value else Fact.GRADES_STAND,
        f"fresh grades exceed logged ones for {100 * earned.value:.0f} % of these completions",
        earned,
    )


def _gap(graded_2N: Float) -> Interval:
    """The mean of fresh grades less those of the log; of grades that are all equal as far as so
    many answers can show it.
    """
    gap_N = graded_2N[1] - graded_2N[0]
    interval = mean_interval(gap_N)
    if interval.width:
        return interval
    unseen = wilson(0, len(gap_N)).high * float(np.ptp(graded_2N))
    return Interval(interval.value, interval.value - unseen, interval.value + unseen)


def _agrees(graded_2N: Float, *, rose: bool) -> bool:
    """Whether fresh grades go with those of the log; of another function, that a gain is held
    against, beyond chance.
    """
    varies = graded_2N.std(axis=1).min() > 0
    least = min(_CLEARLY / math.sqrt(graded_2N.shape[1]), _AGREES) if rose else _AGREES
    alike = varies and np.corrcoef(*graded_2N)[0, 1] >= least
    return bool(alike or np.allclose(*graded_2N))


def rescored(
    gap: Sequence[Float],
    way: Sequence[Float] | None,
    turns: Sequence[Places] | None = None,
    own: Sequence[Float] | None = None,
    *,
    first: bool = True,
    ignored: float = 0.0,
) -> Shown:
    r"""Tell by which weights answers were sampled.

    Of each answer `gap` holds the sampler's log-probabilities less the checkpoint's, and `way`
    those of the reference less the checkpoint's, `own` the latter and the entropy there. The slope
    of the one on the other is 0 for errors of rounding, 1 where the reference sampled, and between
    both for weights in between; where the reference is the first policy, a gap to it that is left
    is that of weights of another time. A truncated distribution raises the log-probability of each
    token that it keeps, and lowers none; another temperature raises it by a multiple of itself and
    the entropy. A history that is tokenised anew leaves the first of its `turns` without a gap.
    """
    gap_T = np.concatenate([*gap])
    size_T = np.abs(gap_T)
    mean, size = mean_of(gap_T), mean_of(size_T)
    half_T = np.concatenate([2 * np.arange(len(answer_T)) // len(answer_T) for answer_T in gap])
    message, value = (
        f"the mean log-probability gap is {mean:.2g} nats and its mean size {size:.2g} nats",
        exactly(mean),
    )
    message += f" ({_by(half_T, size_T)} by halves of the completions)"
    warmth = 0.0
    if own is not None:
        score_T, entropy_T = np.concatenate([*own], axis=1)
        warmth = _slope(gap_T, score_T + entropy_T)
        third_T = np.searchsorted(np.unique(np.quantile(entropy_T, (1 / 3, 2 / 3))), entropy_T)
        message += f" ({_by(third_T, size_T)} at entropies of {_by(third_T, entropy_T)} nats)"
    if turns is not None and (turn_T := np.concatenate([*turns])).any():
        message += f" ({_by(turn_T, size_T)} by turn)"
        later, begun = (mean_of(size_T[part]) for part in (turn_T > 0, turn_T == 0))
        if later > max(_GAP, _TIMES * begun):
            return Shown(Fact.GAP_AFTER_TURN, message, exactly(later))
    if size <= _ROUNDING:
        return Shown(None, f"{message}: the checkpoint sampled these tokens exactly", value)
    mass = math.exp(-mean)
    least = _KEPT if way else _KEPT_SURELY
    truncated = mean > _GAP and mass > least and (gap_T < -mean / 2).mean() < _BELOW
    kept = f"{message}, few tokens clearly below 0, and {mass:.3g} of the probability mass is kept"
    of_a_part = Shown(Fact.SAMPLED_TRUNCATED, kept, value) if truncated else None
    if warmth:
        times = 1 / max(1 + warmth, 0.01)
        warmer = f"a temperature of about {times:.2g} times the one assumed explains it"
        of_a_part = Shown(None, f"{message}; {warmer}: give --set temperature=T", value)
    if way is None:
        unknown = f"{message}; give --reference FIRST to see which weights sampled"
        return of_a_part or Shown(None, unknown, value)
    squares = np.array([way_T @ way_T for way_T in way])
    products = np.array([gap_T @ other for gap_T, other in zip(gap, way, strict=True)])
    if squares.sum() < 1e-9 * gap_T.size:
        if of_a_part:
            return of_a_part
        raise InvalidArgumentError(
            "expected two checkpoints that differ, got the same log-probabilities from both: "
            "give the initial policy as --reference"
        )
    slope = float(products.sum() / squares.sum())
    error = float(np.sqrt(((products - slope * squares) ** 2).sum()) / squares.sum())
    value = Interval(slope, slope - 1.96 * error, slope + 1.96 * error)
    explained = slope * float(products.sum()) / max(float((gap_T**2).sum()), 1e-300)
    message += f"; the sampler is {slope:.2g} (± {1.96 * error:.1g}) of the way to the reference"
    fact = None
    if slope > max(_CLEARLY * error, ignored) and explained > (_WARMTH if warmth else _EXPLAINS):
        left = mean_of(np.abs(gap_T - np.concatenate([*way])))
        fact, beyond = _by_weights(slope, left, size, first=first)
        message += beyond
    elif of_a_part:
        return of_a_part
    elif size < _SMALL and abs(slope) < max(_CLEARLY * error, _EXPLAINS, ignored):
        fact = Fact.SAMPLED_ALIKE
    return Shown(fact, message, value)


def _slope(gap_T: Float, tilt_T: Float) -> float:
    """The slope of gaps on what a temperature changes, 0 where that explains little of them."""
    product = float(gap_T @ tilt_T)
    slope = product / max(float(tilt_T @ tilt_T), 1e-300)
    return slope if slope * product > _WARMTH * float(gap_T @ gap_T) else 0.0


def _by_weights(slope: float, left: float, size: float, *, first: bool) -> tuple[Fact | None, str]:
    """Which weights sampled, by the way to the reference and the gap that is left to it."""
    if _ALL <= slope <= 2 - _ALL and left < max(_SMALL, _LEFT * size):
        return Fact.SAMPLED_BY_REFERENCE, ""
    beyond = f", and {left:.2g} nats away from it" if slope >= _ALL else ""
    if beyond and not first:
        return None, f"{beyond}: give the initial policy as --reference"
    return Fact.SAMPLED_BETWEEN, beyond


def _by(part_T: Places, size_T: Float) -> str:
    """Write the mean of a size in each part of the answers."""
    means = np.bincount(part_T, size_T) / np.maximum(np.bincount(part_T), 1)
    return ", ".join(map(short, means[:_PARTS].tolist()))


def resampled(
    answers: Sequence[Sequence[str]],
    right: int | None,
    change_P: Float | None = None,
    lost_P: Float | float = 0.0,
    *,
    alike: float = 0.0,
) -> Shown:
    """Tell whether a policy answers each prompt in one way, or in many that are wrong; of prompts
    of before a fall, by what they earn now less what they earned then, and by what each lost in
    the log, whether it still can.

    Of answers of the entropy H two are one with a chance of at least exp(-H), `alike` by the log.
    """
    count, each = sum(map(len, answers)), min(map(len, answers))
    same = float(np.mean([_collision(texts) for texts in answers]))
    message = f"two completions of a prompt are the same in {100 * same:.0f} % of cases"
    if same <= _VARIED and alike >= _ALIKE:
        message += f", by the logged entropy in at least {100 * alike:.0f} %: "
        return Shown(None, f"{message}check that the checkpoint is of this run", exactly(same))
    one_way = Fact.ANSWERS_ALIKE if same >= _ALIKE else None
    if right is None:
        return Shown(one_way, message, exactly(same))
    share = wilson(right, count)
    passing = [1 - (1 - chance) ** each for chance in (share.low, share.high)]
    message += (
        f", and {100 * share.value:.0f} % are right: pass@{each} is {passing[0]:.2f} to "
        f"{passing[1]:.2f}"
    )
    if share.value >= _HALF:
        one_way = None
    if change_P is not None:
        change, lost = mean_interval(change_P), float(np.mean(lost_P))
        message += (
            f"; their reward changed by {ranged(change)} since before a fall by {short(lost)}, of "
            "which half decides"
        )
        if lost <= 0:  # by these prompts nothing was
            return Shown(one_way, message, change)
        kept = mean_interval(change_P + _HALF * lost_P)  # beyond half of the loss
        fell = one_way or Fact.PROMPTS_LOST if kept.high < 0 else None
        return Shown(Fact.PROMPTS_STAND if kept.low > 0 else fell, message, change)
    varied = Fact.ANSWERS_VARIED if same <= _VARIED and share.high < _RARELY else None
    return Shown(one_way or varied, message, share)


def _collision(texts: Sequence[str]) -> float:
    """The chance that two answers, drawn without replacement, are one."""
    pairs = sum(number * (number - 1) for number in Counter(texts).values())
    return pairs / max(len(texts) * (len(texts) - 1), 1)


# Levels after a change over those before it that are moves, by what a fact says.
MUCH_LONGER, SHRANK, CUT_MORE = 1.5, 0.6, 0.15
ENTROPY_RISES, ENTROPY_HALVES = 1.4, 0.5
GRADIENT_GROWS, EXPLODED, SAMPLER_MOVES = 10.0, 1e4, 5.0


@frozen
class Clause:
    """Facts that speak for a cause together: of each entry one must be seen, or not be."""

    weight: float
    certainty: Certainty
    atoms: tuple[tuple[tuple[Fact, ...], bool], ...]

    @property
    def facts(self) -> list[Fact]:
        """Those that are to be seen."""
        return [fact for facts, wanted in self.atoms if wanted for fact in facts]


@frozen
class CauseRow:
    """One cause, as `causes.tsv` has it."""

    key: str
    label: str
    clauses: tuple[Clause, ...]  # the strongest first
    first: Words  # quantities that move first, if it is the cause
    lag: int  # rows that they may be away from the fall; -1: before anything else moved
    tells: Words  # what to log to tell it from others, the cheapest first
    do: str  # {back} goes back to before the first sign, {onset} says of which step
    actions: list[str]  # of the clauses of that, in their order
    page: str  # of the playbook

    @property
    def evidence(self) -> set[Fact]:
        """The facts that speak for it."""
        return {fact for clause in self.clauses for fact in clause.facts}


def _clauses(cell: str, certainty: Certainty) -> Iterator[Clause]:
    """Yield the clauses of a cell: FACT+!NOT_SEEN+ONE|OTHER=weight; ..."""
    for clause in filter(None, cell.split("; ")):
        facts, _, weight = clause.partition("=")
        atoms = tuple(
            (tuple(Fact[name] for name in atom.lstrip("!").split("|")), atom[0] != "!")
            for atom in facts.split("+")
        )
        yield Clause(float(weight), certainty, atoms)


def _row(cells: Mapping[str, str]) -> CauseRow:
    """Read a row of the table."""
    key, label, likely, possible, first, lag, tells, _, do, actions, page = cells.values()
    clauses = *_clauses(likely, Certainty.LIKELY), *_clauses(possible, Certainty.POSSIBLE)
    return CauseRow(
        key,
        label,
        tuple(sorted(clauses, key=lambda clause: -clause.weight)),
        tuple(first.split()),
        int(lag or 0),
        tuple(filter(None, tells.split("; "))),
        do,
        actions.split("; "),
        page,
    )


CAUSES: Mapping[str, CauseRow] = {
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
# What is to be explained, and of which kind it is, speaks for many causes.
_FRAME = {Fact.FELL, Fact.STANDS, Fact.PARTED, Fact.ROSE, Fact.POLICY_MAY_FAIL, Fact.WATCHED}
# The held-out reward did not fall with the training reward.
_OF_TRAINING = {Fact.TRAINING_FALLS_ALONE, Fact.TRAINING_DECLINES_ALONE}


@dataclass(frozen=True)
class Incident:
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

    def sees(self, fact: Fact, row: CauseRow) -> bool:
        """Say whether a fact is seen; FIRST is of the row's own."""
        return self._comes_first(row) if fact is Fact.FIRST else fact in self.seen

    def finding(self, fact: Fact) -> Finding | None:
        """Return the answer that states a fact, or None."""
        return next((answer for answer in self.answers.values() if fact in answer.facts), None)

    def came_late(self, clause: Clause) -> bool:
        """Say whether a check saw what makes a cause likely only once the fall was over."""
        likely = clause.certainty is Certainty.LIKELY and Fact.STANDS in clause.facts
        if not likely or self.question is not Fact.FELL:
            return False
        change = level_changes(self.evidence).get("reward")
        seen = (finding.step or 0 for finding in map(self.finding, clause.facts) if finding)
        return max(seen, default=0) > max(self.onset or 0, change.last if change else 0)

    def ratio(self, quantity: str) -> float:
        """Return the level after the change over the level before it; 1 where nothing moved."""
        first, last = self._ends(quantity)
        return last / first if first else 1.0

    def gained(self, quantity: str) -> float:
        """Return the level after less that before of a signal that moved; 0 where it did not."""
        first, last = self._ends(quantity)
        return last - first

    def _ends(self, quantity: str) -> Ends:
        """The level before and after the change of a signal that moved; 0 where it did not."""
        sign = self.signs.get(quantity)
        if sign is None or sign.before is None or sign.at_change is None:
            return 0.0, 0.0
        return sign.before if sign.usual is None else sign.usual, sign.at_change

    def _moved(self) -> Iterator[Fact]:
        """Yield what signals did about the change."""
        longer, entropy = self.ratio("completion_length"), self.ratio("entropy")
        gradient, cut = self.ratio("gradient_norm"), self.gained("truncated_share")
        ran, late = longer >= (1 if cut >= CUT_MORE else MUCH_LONGER), self._longer_late
        holds = {
            Fact.LENGTH_RAN_AWAY: ran and not (late or self._got_shorter or self._entropy_led),
            Fact.LENGTH_RAN_LATE: longer >= MUCH_LONGER and late,
            Fact.CUT_THOUGH_SHORTER: cut >= CUT_MORE and self._got_shorter,
            Fact.LENGTH_SHRANK: longer <= SHRANK and not self._limit_fell,
            Fact.LENGTH_ENDS_SHORT: self._ends_short,
            Fact.TRUNCATED_MORE: cut > 0,
            Fact.LIMIT_FELL: self._limit_fell,
            Fact.ENTROPY_ROSE: entropy >= ENTROPY_RISES,
            Fact.ENTROPY_FELL: entropy < 1,
            Fact.ENTROPY_HALVED: entropy <= ENTROPY_HALVES,
            Fact.GRADIENT_GREW: gradient >= GRADIENT_GROWS,
            Fact.GRADIENT_BROKE: gradient >= EXPLODED,
            Fact.REWARD_AMONG_SIGNS: "reward" in self.signs,
            Fact.SAMPLER_MOVED: any(
                self.ratio(name) >= SAMPLER_MOVES for name in CAUSES["sampler"].first
            ),
        }
        yield from (fact for fact, held in holds.items() if held)

    @property
    def _longer_late(self) -> bool:
        """Whether the length changed only after the reward had fallen: as its consequence. Of a
        slow fall, whose first row no log tells for sure, that is where it is halfway down, unless
        something else moved before the length.
        """
        if self.question is not Fact.FELL or self.onset is None:
            return False
        signs = map(self.signs.get, NEEDED[Fact.LENGTH_RAN_AWAY])
        first, onset = min((sign.step for sign in signs if sign), default=self.onset), self.onset
        if change := level_changes(self.evidence).get("reward"):
            halfway = (change.first + change.last) // 2
            moves = (sign.step for sign in self.signs.values() if sign.signal != "reward")
            onset = max(onset, min((halfway, *moves)))
        return first > onset

    @property
    def _entropy_led(self) -> bool:
        """Whether the entropy doubled, before the length and the truncated share moved, and grew
        by a larger factor than the length.
        """
        lengths = map(self.signs.get, NEEDED[Fact.LENGTH_RAN_AWAY])
        first = min((sign.step for sign in lengths if sign), default=math.inf)
        grew = self.ratio("entropy")
        longer = self.ratio("completion_length")
        return grew >= max(2, longer) and self.signs["entropy"].step < first

    @cached_property
    def _limit_fell(self) -> bool:
        """Whether answers are cut off that are shorter than answers were: those that are cut off
        alone would make a longer mean at the old limit, and the longest one as well.
        """
        cut = self.signs.get("truncated_share")
        if cut is None or self.gained(cut.signal) < CUT_MORE or not cut.at_change:
            return False
        if self._fell("completion_length_max", cut.step) is False:
            return False
        return self.ratio("completion_length") < cut.at_change

    @cached_property
    def _got_shorter(self) -> bool:
        """Whether completions got shorter as more were truncated, beyond noise."""
        cut = self.signs.get("truncated_share")
        return bool(cut and not self._limit_fell and self._fell("completion_length", cut.step))

    def _fell(self, quantity: str, step: int) -> bool | None:
        """Whether a quantity fell about a step, beyond noise; None where it is not logged."""
        signal = self.evidence.quantity(quantity)
        if signal is None:
            return None
        row, few = signal.at(step), 2 * signal.tenth
        return signal.score(rows_before(row, few), slice(row, row + few)) < -_CLEARLY

    @property
    def _ends_short(self) -> bool:
        """Whether answers got shorter, and the last ones are much shorter than before."""
        length = self.evidence.quantity("completion_length")
        first, last = self._ends("completion_length")
        if length is None or self._limit_fell:
            return False
        return last < first and length.late <= SHRANK * first

    def _of_the_fall(self, facts: set[Fact]) -> Iterator[Fact]:
        """Yield what is asked, and what kind of fall it is."""
        yield self.question
        fell, steps = self.question is Fact.FELL, self.evidence.record.steps["step"]
        alone = bool(facts & _OF_TRAINING)
        slowly = fell and not alone and not facts & _AT_ONCE and (self.slow or bool(facts & _SLOW))
        nothing = Fact.NOTHING_EARNED in facts
        holds = {
            Fact.FELL_BY_AND_BY: fell and not self.abrupt,
            Fact.FELL_SLOWLY: slowly,
            Fact.FELL_SOON: fell and (self.onset or 0) - steps[0] < SOON,
            Fact.POLICY_MAY_FAIL: fell and not alone and not nothing,
            Fact.STANDS: slowly or (fell and (nothing or Fact.ANSWERS_SHRANK in facts)),
            Fact.LENGTH_LOGGED: any(map(self.evidence.quantity, NEEDED[Fact.LENGTH_RAN_AWAY])),
            Fact.WATCHED: any(map(self.evidence.quantity, ("entropy", "completion_length"))),
            Fact.WEIGHTS_CAME: fell and self._ages[0] - self._ages[-1] >= RENEWED,
            Fact.OLD_ROLLOUTS: fell and max(self._ages) >= RENEWED,
            Fact.EARNS: off_the_ends(self.evidence.reward),
            Fact.PROMPTS_AGAIN: self.question is Fact.PARTED and self._prompts_again,
            Fact.REWARD_JUMPED_AT_RESTART: self._jumped_at_restart("reward"),
            Fact.GAP_JUMPED_AT_RESTART: self._jumped_at_restart("sampler_mismatch"),
        }
        yield from (fact for fact, held in holds.items() if held)
        if (
            fell
            and self.onset is not None
            and not facts & {Fact.PROMPTS_FAIL, Fact.ANSWERS_FAIL}
            and (failing := who_fails(self.evidence, self.onset))
        ):
            yield failing

    @property
    def _prompts_again(self) -> bool:
        """Whether prompts are seen so often that they can be learnt by heart."""
        rollouts = self.evidence.record.rollouts
        if rollouts is None or "prompt" not in rollouts.columns:
            return False
        step_S = rollouts["step"].unique().to_numpy()
        logged = len(step_S) / (np.ptp(step_S) + 1) if len(step_S) else 1.0
        groups = rollouts.select("step", "prompt_id").n_unique() / logged
        return bool(groups >= BY_HEART * rollouts["prompt"].n_unique())

    @cached_property
    def _ages(self) -> Float:
        """The age of the rollouts before the reward fell, and as it fell; 0 where unknown."""
        age = self.evidence.quantity("staleness")
        row = 0 if age is None or self.onset is None else age.at(self.onset)
        return np.zeros(1) if age is None or not row else age.value_T[row - 1 : row + 1]

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
            if finding and self._rises(finding):
                yield gains

    def _rises(self, finding: Finding) -> bool:
        """Whether the reward rises since a finding.

        Of groups that broke at once, or of which hardly any teaches a policy without entropy, only
        a reward that rises since says so.
        """
        if not self.learning.gained or stands_since(self.evidence, finding.step):
            return False
        spent = Fact.ENTROPY_GONE in finding.facts and self.finding(Fact.GROUPS_ALIKE)
        lost = spent or Fact.GROUPS_ALIKE_AT_ONCE in finding.facts
        return not lost or gained_since(self.evidence, finding.step)

    def _comes_first(self, row: CauseRow) -> bool:
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


def verdict(incident: Incident) -> Cause:
    """Say why, by the rules and then by the experiments that were run; of causes that cannot be
    told apart, by which experiment they could.
    """
    cause, evidence = _by_rules(incident), incident.evidence
    if chances := weighed(cause, incident.seen):
        surely = max(chances.values()) >= LIKELY
        keys = [key for key in chances if chances[key] >= (LIKELY if surely else LEFT_OUT)]
        names = tuple(_label(key, incident) for key in keys)
        certainty = Certainty.LIKELY if surely else Certainty.CANNOT_TELL
        cause = Cause(
            certainty, names, (), tuple(keys), by=told_by(keys[0], evidence) if surely else ""
        )
    if cause.certainty is Certainty.LIKELY or not cause.names:
        return cause
    trials = choices(cause, evidence)
    probe = next((trial.command for trial in trials if not trial.missing), "")
    if cause.certainty is Certainty.POSSIBLE:
        return replace(cause, probe=probe)
    logged = {kind.log for kind in KINDS.values() if kind.ready(evidence.record)}
    wanted = [entry for entry in cause.log if entry not in logged]
    wanted += [] if probe else filter(None, (trial.missing for trial in trials))
    return replace(cause, probe=probe, log=tuple(wanted[:1]))


def _by_rules(incident: Incident) -> Cause:
    """Say why by the scores of all causes: that of the strongest clause that holds. Causes of one
    score cannot be told apart.
    """
    held = {
        key: [clause for clause in row.clauses if _holds(clause, incident, row)]
        for key, row in CAUSES.items()
    }
    strongest = {key: clauses[0] for key, clauses in held.items() if clauses}
    best = max((clause.weight for clause in strongest.values()), default=0.0)
    keys = tuple(key for key, clause in strongest.items() if clause.weight == best > 0)
    # Those that nothing speaks for, and nothing against, are rivals; where no cause is named, all.
    rivals = tuple(
        key for key, clause in strongest.items() if 0 <= clause.weight < best or not keys
    )
    if not keys:
        return Cause(rivals=rivals)
    names = tuple(_label(key, incident) for key in keys)
    if len(keys) == 1:
        speak = (clause for clause in held[keys[0]] if clause.weight > 0)
        facts = dict.fromkeys(chain.from_iterable(clause.facts for clause in speak))
        return Cause(
            strongest[keys[0]].certainty,
            names,
            keys=keys,
            rivals=rivals,
            facts=tuple(fact for fact in facts if fact in incident.seen - _FRAME),
            outweighed=tuple(
                _label(key, incident)
                for key, clause in strongest.items()
                if clause.certainty is Certainty.LIKELY and clause.weight < best
            ),
        )
    first, *others = (CAUSES[key].tells for key in keys)
    log = [tell for tell in first if all(tell in tells for tells in others)]
    return Cause(Certainty.CANNOT_TELL, names, tuple(log[:1]), keys, rivals=rivals)


def _holds(clause: Clause, incident: Incident, row: CauseRow) -> bool:
    """Whether of each of a clause's entries one fact is seen in time, or is not; what is not logged
    is not seen either.
    """
    return not incident.came_late(clause) and all(
        any(incident.sees(fact, row) is wanted for fact in facts) for facts, wanted in clause.atoms
    )


def _label(key: str, incident: Incident) -> str:
    """The cause as printed."""
    broken = incident.finding(Fact.NOT_FINITE)
    return label_of(key, broken.column if broken else "")


def label_of(key: str, column: str = "") -> str:
    """A cause by its key, as printed; of numerics with the column that broke first."""
    return CAUSES[key].label.format(column=column)


RESTART = "restart"  # the action that goes back to a checkpoint
# Of facts and checks.
ADVICE = {
    row["key"]: (row["do"], row["actions"].split("; "))
    for row in table_rows("diagnostics/actions.tsv")
}


@frozen
class Advice:
    """What to do, a clause with its action each."""

    clauses: tuple[tuple[str, str], ...] = ()
    step: int | None = None  # of the checkpoint to go back to
    before: str = ""  # what is said first

    @property
    def do(self) -> str:
        """The line."""
        return self.before + "; ".join(words for words, _ in self.clauses)


def advised(
    line: str,
    entries: Iterable[str] = (),
    *,
    step: int | None = None,
    onset: int | None = None,
    needless: Iterable[str] = (),
    column: str = "",
) -> Advice:
    """Return advice by a line whose clauses have these actions in their order; those that are left
    over are looks.
    """
    back, entry = f"restart from step {step or 0:,}", f"{RESTART} ={step}"
    if step == 0:
        back, entry = "start the run again", "anew"
    when = "" if onset is None else f" of step {onset:,}"
    words = {"reward": column or "reward", "weight": " or lower its weight" * bool(column)}
    dropped = {*needless, *[RESTART] * (step is None)}
    clauses = tuple(
        (clause.format(back=back, onset=when, **words), entry if kind == RESTART else kind)
        for clause, kind in zip(line.split("; "), chain(entries, repeat("look")), strict=False)
        if clause and kind not in dropped
    )
    return Advice(clauses, step)


def advice_for(
    cause: Cause,
    finding: Finding | None,
    *,
    step: int | None,
    onset: int | None,
    needless: Iterable[str] = (),
) -> Advice:
    """Return what to do: of the cause, or else of the check, less needless actions."""
    line, entries = "", list[str]()
    if cause.keys:
        line, entries = CAUSES[cause.keys[0]].do, CAUSES[cause.keys[0]].actions
    elif finding:
        keys = *(fact.name for fact in finding.facts), finding.check
        line, entries = next(filter(None, map(ADVICE.get, keys)), (line, entries))
    column = finding.column if finding else ""
    advice = advised(line, entries, step=step, onset=onset, needless=needless, column=column)
    if cause.certainty is not Certainty.CANNOT_TELL:
        return advice
    log = f"log {cause.log[0]}; " if cause.log else ""
    return replace(advice, before=f"{log}for the first cause: ")


def is_serious(finding: Finding) -> bool:
    """Whether a finding asks for a look or more."""
    return finding.status in (Status.WARNING, Status.CRITICAL)
