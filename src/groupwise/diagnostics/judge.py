"""The one function that decides: a record in, its judgement out. Every command, page and callback shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from groupwise.diagnostics import (
    collapse,
    concentration,
    divergence,
    diversity,
    functions,
    hacking,
    instability,
    learning,
    length,
    margin,
    numerics,
    restart,
    sampler,
    texts,
    verifier,
    zero_variance,
)
from groupwise.diagnostics.causes import HACKING, OVERFITTING, Case, advice_for, cause_of_fall, cause_of_standing, is_serious
from groupwise.diagnostics.collapse import by_and_by, fall_of
from groupwise.diagnostics.judgement import Cause, Certainty, Cost, Finding, Judgement, Learning, Measure, Sign, State, Status
from groupwise.diagnostics.learning import Progress, progress_of
from groupwise.diagnostics.signals import FEWEST_ROWS, LOG_REWARD, Evidence, Signal, counted
from groupwise.diagnostics.signs import arrow, short, signs_about
from groupwise.diagnostics.swings import reward_level
from groupwise.record.run import RunRecord

# Standard errors below its first rows at which a reward has lost all.
_SURELY = 3.0
# The order in which a failure is told: what breaks numbers or the reward itself before what follows from it.
CHECKS: tuple[Callable[[Evidence], Finding], ...] = (
    numerics.finite,
    collapse.check,
    verifier.check,
    hacking.check,
    learning.rate,
    numerics.updates,
    instability.check,
    concentration.check,
    zero_variance.check,
    sampler.check,
    divergence.check,
    numerics.gradient,
    length.check,
    functions.check,
    texts.repetition,
    texts.truncated,
    sampler.staleness,
    restart.check,
    restart.discards,
    restart.router,
    restart.tools,
)
MEASURES: tuple[Callable[[Evidence], tuple[Measure, ...]], ...] = (
    hacking.measures,
    zero_variance.measures,
    diversity.measures,
    margin.measures,
    instability.measures,
)
# Checks whose failure shows as a reward that fell.
_OF_FALLS = (collapse.NAME, verifier.NAME, instability.NAME, length.NAME)
# A check, and the facts of others that explain what it finds.
_EXPLAINED = {
    concentration.NAME: {("truncation", "likely")},
    zero_variance.NAME: {("truncation", "likely")},
    hacking.NAME: {("truncation", "likely"), ("reward", "format alone")},
}
_RANK = {Status.CRITICAL: 0, Status.WARNING: 1, Status.INFO: 2, Status.NONE: 3, Status.NOT_LOGGED: 4}


def judge(record: RunRecord, *, ended: bool = True) -> Judgement:
    """Judge a run by its log.

    Args:
        record: the run.
        ended: whether the run is over; a failure of one that goes on is "failing" and not "failed".

    Returns:
        State, headline, first sign, cause, what to do, what it cost, and the answer of every check.

    Example:
        >>> from groupwise.record.table import steps_table
        >>> reward = [0.8 + 0.01 * (-1) ** t for t in range(40)] + [0.0] * 20
        >>> judge(RunRecord("demo", steps_table(range(60), {"reward": reward}))).headline
        'reward 0.80 → 0.00, collapsed at step 40'
    """
    return judged(Evidence(record, ended=ended))


def measures_of(evidence: Evidence) -> tuple[Measure, ...]:
    """Return the numbers beside the checks, which change no state; some take a fit of the reward."""
    return tuple(one for measure in MEASURES for one in measure(evidence))


def judged(evidence: Evidence) -> Judgement:
    """Judge evidence that is at hand."""
    answers = {answer.check: answer for answer in (check(evidence) for check in CHECKS)}
    progress = progress_of(evidence)
    ranked = sorted(answers.values(), key=lambda answer: _RANK[answer.status])
    found = ranked[0] if is_serious(ranked[0]) else None
    state = _state(evidence, found, progress)
    found = _told(ranked, found)
    story = _story(evidence, answers, found, progress, state)
    if state is State.WATCH and _lost_all(evidence, progress, story.cause):
        state = State.FAILED if evidence.ended else State.FAILING
    last = int(evidence.record.steps["step"][-1]) if len(evidence.record.steps) else None
    first = story.signs[0] if story.signs else None
    alarm = state in (State.FAILING, State.FAILED)
    return Judgement(
        run=evidence.record.name,
        state=state,
        headline=story.headline,
        since_step=story.onset,
        first_sign=first,
        then=story.signs[1:],
        cause=story.cause,
        learning=progress.learning,
        do=story.do,
        cost=_cost(evidence.record, first.step if first is not None else story.onset) if alarm else None,
        not_logged=_not_logged(answers.values()) if state is not State.CANNOT_TELL else _needed(evidence, answers),
        checks=tuple(ranked),
        last_step=last,
    )


def _state(evidence: Evidence, found: Finding | None, progress: Progress) -> State:
    """The state by the worst answer and by what the reward does."""
    if found is not None and found.status is Status.CRITICAL:
        return State.FAILED if evidence.ended else State.FAILING
    if evidence.reward is None or len(evidence.reward) < FEWEST_ROWS or evidence.relative:
        return State.CANNOT_TELL
    if found is not None or progress.learning in (Learning.FLAT, Learning.FALLING):
        return State.WATCH
    return State.CANNOT_TELL if progress.learning is Learning.UNKNOWN else State.OK


NO_CAUSE = Cause()


def _lost_all(evidence: Evidence, progress: Progress, cause: Cause) -> bool:
    """Whether a reward without a known floor has lost more than it ever gained, for a cause that is likely."""
    reward = evidence.reward
    if reward is None or progress.learning is not Learning.FALLING or cause.certainty is not Certainty.LIKELY:
        return False
    few = max(3, len(reward) // 10)
    return reward.score(slice(0, few), slice(len(reward) - few, None)) < -_SURELY


def _told(ranked: Sequence[Finding], found: Finding | None) -> Finding | None:
    """The finding to tell of: the worst, but what another explains, that came no later, is told as that."""
    if found is None or found.check not in _EXPLAINED:
        return found
    better = next((one for one in ranked if is_serious(one) and one.evidence.items() & _EXPLAINED[found.check]), None)
    return found if better is None else better


@dataclass(frozen=True, slots=True)
class _Story:
    """What is told of a run: the fact, the signs in order, the cause, what to do."""

    headline: str
    onset: int | None = None
    signs: tuple[Sign, ...] = ()
    cause: Cause = NO_CAUSE
    do: str = ""


def _story(evidence: Evidence, answers: dict[str, Finding], found: Finding | None, progress: Progress, state: State) -> _Story:
    """Tell what happened, by the worst that was found."""
    fall = fall_of(evidence)
    if state is State.CANNOT_TELL:
        return _Story(_open(evidence, progress))
    if (
        found is not None
        and fall is not None
        and fall.lasts
        and found.check in (collapse.NAME, verifier.NAME, instability.NAME, length.NAME)
    ):
        return _of_fall(evidence, answers, found)
    if found is not None and found.check == hacking.NAME:
        return _of_hack(evidence, found)
    if found is not None:
        return _of_finding(evidence, answers, found, progress)
    cause = (
        cause_of_standing(Case(evidence, answers, {}, None, learning=progress.learning))
        if progress.learning is Learning.FLAT
        else _mention(answers)
    )
    return _Story(_course(progress), None, (), cause, advice_for(cause, None, step=None, onset=None))


def _of_fall(evidence: Evidence, answers: dict[str, Finding], found: Finding) -> _Story:
    """Tell of a reward that fell for good: from its first sign on."""
    fall, reward = fall_of(evidence), evidence.reward
    assert fall is not None
    assert reward is not None
    level = reward_level(evidence)[0]
    begin, end = _span_of_fall(level, fall.row)
    onset, few = int(level.step_T[fall.row]), max(8, len(level) // 10)
    before = float(np.mean(level.value_T[max(0, begin - few) : max(begin, 1)]))
    after = float(np.mean(level.value_T[max(end, len(level) - few) :]))
    there = float(level.value_T[begin])
    course = arrow(before, there, after) if abs(after - before) > 1.15 * abs(there - before) else arrow(before, after)
    own = Sign("reward", int(level.step_T[begin]), before, after, f"reward {course}")
    others = signs_about(evidence, int(level.step_T[begin]), reach=_reach(evidence))
    late = signs_about(evidence, onset, reach=_reach(evidence))
    signs = tuple(sorted({sign.signal: sign for sign in (*late, *others, own)}.values(), key=lambda sign: sign.step))
    case = Case(evidence, answers, {sign.signal: sign for sign in signs}, onset, abrupt=not by_and_by(level, fall.row))
    cause = cause_of_fall(case)
    first_step, last_step = int(level.step_T[begin]), int(level.step_T[end])
    where = f"at step {first_step:,}" if first_step == last_step else f"at steps {first_step:,}-{last_step:,}"
    fell = "collapsed" if found.status is Status.CRITICAL else "fell"
    headline = f"reward {arrow(before, after)}, {fell} {where}"
    return _Story(headline, onset, signs, cause, advice_for(cause, found, step=_before(level, signs[0].step), onset=onset))


def _span_of_fall(level: Signal, row: int) -> tuple[int, int]:
    """The rows between which a reward fell: from the last that stood near its height to the first that stood near its end."""
    reach = max(8, len(level) // 6)
    start = max(0, row - reach)
    before = float(np.median(level.value_T[max(0, start - reach) : max(start, 3)]))
    after = float(np.median(level.value_T[row : row + reach]))
    high = np.flatnonzero(level.value_T[start : row + 1] >= before - 0.25 * (before - after))
    begin = min(start + int(high[-1]) + 1, row) if high.size else row
    low = np.flatnonzero(level.value_T[begin : begin + 2 * reach] <= after + 0.25 * (before - after))
    return begin, min(begin + int(low[0]), len(level) - 1) if low.size else row


def _before(level: Signal, step: int) -> int | None:
    """The last logged step before a step, or None at the beginning."""
    row = level.at(step)
    return int(level.step_T[row - 1]) if row > 0 else None


def _of_hack(evidence: Evidence, found: Finding) -> _Story:
    """Tell of a reward that rose without the held-out one."""
    onset = found.step
    signs = found.signs
    likely = found.status is Status.CRITICAL
    cause = Cause(Certainty.LIKELY if likely else Certainty.POSSIBLE, (HACKING,))
    step = None if evidence.reward is None or onset is None else _before(evidence.reward, onset)
    words = ", ".join(sign.words for sign in signs)
    headline = f"{words}: reward hacking {'likely' if likely else 'possible'}" if words else found.message
    return _Story(headline, onset, signs, cause, advice_for(cause, found, step=step, onset=onset))


def _of_finding(evidence: Evidence, answers: dict[str, Finding], found: Finding, progress: Progress) -> _Story:
    """Tell of what another check found."""
    signs = found.signs
    if found.step is not None and (not signs or found.check == collapse.NAME):
        signs = (*signs, *signs_about(evidence, found.step, reach=_reach(evidence)))
    signs = tuple(sorted(signs, key=lambda sign: sign.step))
    case = Case(evidence, answers, {sign.signal: sign for sign in signs}, found.step, learning=progress.learning)
    broke = found.check in (collapse.NAME, numerics.FINITE) or found.evidence.get("drop", "") not in ("", "none")
    cause = cause_of_fall(case) if broke else cause_of_standing(case)
    first = signs[0].step if signs else found.step
    step = None if evidence.reward is None or first is None else _before(evidence.reward, first)
    return _Story(found.message, found.step, signs, cause, advice_for(cause, found, step=step, onset=found.step))


def _reach(evidence: Evidence) -> int:
    """Rows before a change in which its first sign is looked for."""
    return 6 if evidence.reward is None else max(6, len(evidence.reward) // 16)


def _mention(answers: dict[str, Finding]) -> Cause:
    """A cause worth a word although the run is well: overfitting."""
    over = any(answer.evidence.get("held_out") == "overfitting" for answer in answers.values())
    return Cause(Certainty.POSSIBLE, (OVERFITTING,)) if over else Cause()


def _course(progress: Progress) -> str:
    """The fact first where nothing failed: what the reward did."""
    moved = f"reward {arrow(progress.before, progress.after)}"
    if progress.learning is Learning.LEARNING:
        return f"{moved} in {progress.steps:,} steps, still learning"
    if progress.learning is Learning.AT_TOP:
        return f"{moved}, at its top" if progress.since is not None else f"reward {short(progress.after)}, at its top"
    if progress.learning is Learning.RECOVERED:
        return f"reward {short(progress.after)}, recovered from {short(progress.before)} at step {progress.since:,}"
    if progress.learning is Learning.FALLING:
        return f"{moved}, falling since step {progress.since:,}"
    if progress.since is not None:
        return f"nothing learnt since step {progress.since:,}: {moved} in all"
    gain = "" if progress.gain is None else f" (gain {short(progress.gain.low)} to {short(progress.gain.high)})"
    return f"nothing learnt in {progress.steps:,} steps: {moved}{gain}"


def _open(evidence: Evidence, progress: Progress) -> str:
    """Why nothing can be told."""
    reward = evidence.reward
    if reward is None:
        return evidence.no_reward
    if evidence.relative:
        return evidence.relative
    if len(reward) < FEWEST_ROWS:
        return f"{counted(len(reward), 'row')} of reward: too few to tell anything"
    if float(np.ptp(reward.value_T)) == 0:
        return f"the reward is {short(float(reward.value_T[0]))} in all {len(reward)} rows: it tells nothing apart"
    moved = f"reward {arrow(progress.before, progress.after)} in {progress.steps:,} steps"
    return f"{moved}: too few rows to tell learning from noise"


def _needed(evidence: Evidence, answers: dict[str, Finding]) -> tuple[str, ...]:
    """What to log so that the next look can tell: the reward or more rows first."""
    reward = evidence.reward
    first = LOG_REWARD if reward is None else "more rows of the reward"
    return tuple(dict.fromkeys((first, *_not_logged(answers.values()))))


def _not_logged(answers: Iterable[Finding]) -> tuple[str, ...]:
    """What the checks miss, each once."""
    return tuple(dict.fromkeys(answer.log for answer in answers if answer.status is Status.NOT_LOGGED and answer.log))


def _cost(record: RunRecord, step: int | None) -> Cost | None:
    """What was spent from a step on: steps, rollouts and seconds, as far as they are logged."""
    steps = record.steps["step"]
    if step is None or not len(steps):
        return None
    stride = int(np.median(np.diff(steps.to_numpy()))) if len(steps) > 1 else 1
    after = record.steps.filter(pl.col("step") >= step)
    size, prompts = record.config.value("group_size"), record.config.value("prompts_per_step")
    spent = int(steps[-1]) - step
    rollouts = int(size) * int(prompts) * spent if size is not None and prompts is not None else None
    clock = after["seconds"].drop_nulls()
    seconds = float(clock[-1] - clock[0]) if len(clock) > 1 else None
    return Cost(spent, rollouts, seconds, int(steps[-1]) - int(steps[0]) + stride)
