"""The one function that decides: a record in, its judgement out.

Every command, page and callback shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from groupwise.diagnostics import (
    beyond,
    collapse,
    completions,
    concentration,
    environment,
    groups_of_one,
    hacking,
    instability,
    learning,
    numerics,
    pace,
    probes,
    restart,
    reward_functions,
    update,
    verifier,
    zero_variance,
)
from groupwise.diagnostics.actions import actions_of
from groupwise.diagnostics.causes import is_serious
from groupwise.diagnostics.cost import cost_since, cost_to_come
from groupwise.diagnostics.facts import Fact
from groupwise.diagnostics.falls import fall_of, settled
from groupwise.diagnostics.judgement import (
    Cause,
    Certainty,
    Finding,
    Judgement,
    Learning,
    Sign,
    State,
    Status,
)
from groupwise.diagnostics.learning import Progress, progress_of
from groupwise.diagnostics.signals import (
    FEWEST_ROWS,
    LOG_RELATIVE,
    LOG_REWARD,
    MORE_ROWS,
    Evidence,
    both_ends,
)
from groupwise.diagnostics.story import Look, Story, story_of
from groupwise.record.run import RunRecord, has_ended

# Standard errors below its first rows at which a reward has lost all.
_SURELY, _BEYOND_DOUBT = 3.0, 10.0
# Share of the first level that is most of it.
_MOST = 0.6
# The order in which a failure is told: what breaks numbers or the reward itself before what follows
# from it.
CHECKS: tuple[Callable[[Evidence], Finding], ...] = (
    groups_of_one.check,
    numerics.finite,
    pace.check,
    collapse.check,
    collapse.lost,
    verifier.check,
    hacking.check,
    learning.rate,
    numerics.updates,
    instability.check,
    concentration.check,
    zero_variance.check,
    beyond.sampler,
    beyond.divergence,
    numerics.gradient,
    completions.truncation,
    reward_functions.check,
    completions.repetition,
    completions.truncated,
    beyond.staleness,
    restart.check,
    beyond.discards,
    beyond.router,
    environment.tools,
    environment.environments,
    environment.infrastructure,
    environment.time_limit,
    environment.tool_use,
    update.check,
    numerics.crash,
)
# Checks whose finding may be what success looks like: no alarm where the cause is only possible.
_HARMLESS = (concentration.NAME, zero_variance.NAME)
# A check, and the facts of others that explain what it finds.
_EXPLAINED = {
    concentration.NAME: {Fact.TRUNCATED_LIKELY},
    zero_variance.NAME: {Fact.TRUNCATED_LIKELY},
    hacking.NAME: {Fact.TRUNCATED_LIKELY, Fact.FORMAT_ALONE_EARNS},
}
# What a headline says in any case.
_ALWAYS = {Fact.ENVIRONMENT_FELL, Fact.CRASHED, Fact.REWARD_NOT_FINITE_AT_TIMES}
# Checks of one quantity, which are no bare "no sign of it" where its move is told.
_QUANTITIES = {beyond.DIVERGENCE: "kl", beyond.MISMATCH: "sampler_mismatch"}
_RANK = [Status.CRITICAL, Status.WARNING, Status.INFO, Status.NONE, Status.NOT_LOGGED]


def judge(record: RunRecord, *, ended: bool | None = None) -> Judgement:
    """Judge a run by its log.

    Args:
        record: the run.
        ended: whether the run is over; None: unless a process holds its journal to write it. Of a
            run that goes on a failure is "failing" and not "failed", and what noise may hide or
            healthy runs make good is waited for.

    Returns:
        State, headline, first sign, cause, what to do, what it cost, and the answer of every check.

    Example:
        >>> from groupwise.record.table import steps_table
        >>> reward = [0.8 + 0.01 * (-1) ** t for t in range(40)] + [0.0] * 20
        >>> judge(RunRecord("demo", steps_table(range(60), {"reward": reward}))).headline
        'reward 0.80 → 0.00, collapsed at step 40'
    """
    return judged(Evidence(record, ended=has_ended(record) if ended is None else ended))


def judged(evidence: Evidence) -> Judgement:
    """Judge evidence that is at hand."""
    probed = [probes.check] if evidence.record.probes and evidence.record.probes.results else []
    answers = {answer.check: answer for answer in (check(evidence) for check in (*CHECKS, *probed))}
    progress = progress_of(evidence)
    ranked = sorted(answers.values(), key=lambda answer: _RANK.index(answer.status))
    # An error that ended the run is said beside what the reward does, and tells nothing of it.
    serious = (
        finding for finding in ranked if is_serious(finding) and finding.check != numerics.CRASH
    )
    worst = next(serious, None)
    state = _state(evidence, worst, progress)
    if state is State.OK and is_serious(answers[numerics.CRASH]):
        state = State.WARNING
    worst = _told(ranked, worst)
    story = story_of(
        Look(evidence, answers, progress), worst, can_tell=state is not State.CANNOT_TELL
    )
    if state is not State.CANNOT_TELL:
        state = _by_cause(evidence, state, worst, progress, story.cause)
    last = int(evidence.record.steps["step"][-1]) if len(evidence.record.steps) else None
    first = story.signs[0] if story.signs else None
    level, now, now_from = _levels(story, progress)
    stopped = answers[numerics.FINITE]
    if (
        is_serious(stopped)
        and stopped.step is not None
        and evidence.reward is not None
        and evidence.reward.step_T[-1] < stopped.step
    ):
        now = now_from = None  # what was its last number is not where it stands
    alarm = state in (State.FAILING, State.FAILED)
    return Judgement(
        run=evidence.record.name,
        state=state,
        headline=_headline(answers.values(), story, evidence.record.in_part),
        since_step=story.onset,
        first_sign=first,
        then=story.signs[1:],
        cause=story.cause,
        learning=progress.learning,
        do=story.advice.do,
        actions=actions_of(story.advice.keys, evidence.record.config, story.advice.step),
        cost=cost_since(evidence.record, first.step if first is not None else story.onset)
        if alarm
        else None,
        spent=cost_since(evidence.record, None),
        to_come=cost_to_come(evidence.record),
        not_logged=_not_logged(answers.values())
        if state is not State.CANNOT_TELL
        else _needed(evidence, answers),
        checks=tuple(_beside(answer, story.signs) for answer in ranked),
        notes=evidence.record.notes,
        last_step=last,
        ended=evidence.ended,
        metric="" if evidence.reward is None else evidence.reward.column,
        level=level,
        now=now,
        now_from=now_from,
        environments=environment.environments_of(evidence),
    )


def _beside(answer: Finding, signs: Iterable[Sign]) -> Finding:
    """The answer of a check beside the signs that are told: what moved within its limit is worth
    knowing.
    """
    moved = _QUANTITIES.get(answer.check) in {sign.signal for sign in signs}
    bare = moved and answer.status is Status.NONE
    return replace(answer, status=Status.INFO) if bare else answer


def _headline(answers: Iterable[Finding], story: Story, in_part: str) -> str:
    """What is told, and what is said in any case: the environment that fell, the error in which
    the log ends, and how much of the log was read.
    """
    more = [answer.message for answer in answers if {*answer.facts} & _ALWAYS]
    more = [message for message in (*more, in_part) if message not in ("", story.headline)]
    said = (part.rstrip(".") for part in (story.headline, *more))
    return "; ".join(said) if more else story.headline


def _levels(story: Story, progress: Progress) -> tuple[float | None, float | None, int | None]:
    """The level of the reward that it is said to have come from, that of its last rows, and the
    step of the first of these.
    """
    reward_sign = next((sign for sign in story.signs if sign.signal == "reward"), None)
    ends = progress.before if reward_sign is None else reward_sign.before, progress.after
    level, now = (end if end is not None and np.isfinite(end) else None for end in ends)
    return level, now, None if now is None else progress.now_from


def _state(evidence: Evidence, worst: Finding | None, progress: Progress) -> State:
    """The state by the worst answer and by what the reward does."""
    if worst is not None and worst.status is Status.CRITICAL:
        return State.FAILED if evidence.ended else State.FAILING
    if evidence.reward is None or len(evidence.reward) < FEWEST_ROWS or evidence.relative:
        return State.CANNOT_TELL
    if worst is not None or progress.learning in (Learning.FLAT, Learning.FALLING):
        return State.WARNING
    return State.CANNOT_TELL if progress.learning is Learning.UNKNOWN else State.OK


def _by_cause(
    evidence: Evidence, state: State, worst: Finding | None, progress: Progress, cause: Cause
) -> State:
    """The state once the cause is known: milder for what may be success, graver for a reward
    that is lost.
    """
    if worst is not None and worst.check in _HARMLESS and cause.certainty is Certainty.POSSIBLE:
        state = State.WARNING
    if state is State.WARNING and _lost_all(evidence, progress, cause):
        return State.FAILED if evidence.ended else State.FAILING
    return state


def _lost_all(evidence: Evidence, progress: Progress, cause: Cause) -> bool:
    """Whether a reward without a known floor has lost more than it ever gained: beyond doubt, or
    for a cause that is likely.
    """
    reward = evidence.reward
    if reward is None or progress.learning is not Learning.FALLING or reward.low >= 0:
        return False
    fall = fall_of(evidence)
    if fall is not None and fall.lasts and not settled(evidence, reward, fall):
        return False
    early, late = both_ends(reward, reward.tenth)
    lost = -reward.score(early, late)
    most = -reward.change(early, late).value > _MOST * abs(reward.level(early))
    return (lost > _BEYOND_DOUBT and most) or (
        lost > _SURELY and cause.certainty is Certainty.LIKELY
    )


def _told(ranked: Sequence[Finding], worst: Finding | None) -> Finding | None:
    """The finding to tell of: the worst, but what another explains, that came no later, is told
    as that.
    """
    if worst is None or worst.check not in _EXPLAINED:
        return worst
    for finding in ranked:
        explains = is_serious(finding) and _EXPLAINED[worst.check] & {*finding.facts}
        later = worst.step is not None and (finding.step or 0) > worst.step
        if explains and not later:
            return finding
    return worst


def _needed(evidence: Evidence, answers: dict[str, Finding]) -> tuple[str, ...]:
    """What to log so that the next look can tell: the reward or more rows first."""
    reward = evidence.reward
    if evidence.relative:
        first = LOG_RELATIVE
    elif reward is not None and reward.span == 0 and len(reward) >= FEWEST_ROWS:
        first = (
            "completions with their rewards: graded by hand they say whether right ones get this "
            "reward"
        )
    else:
        few = reward is not None and len(reward) < learning.ENOUGH_ENDED
        rows = f"{learning.ENOUGH_ENDED} rows of the reward or more" if few else MORE_ROWS
        first = LOG_REWARD if reward is None else rows
    others = (
        quantity
        for quantity in _not_logged(answers.values())
        if quantity != MORE_ROWS or "rows" not in first
    )
    return tuple(dict.fromkeys((first, *others)))


def _not_logged(answers: Iterable[Finding]) -> tuple[str, ...]:
    """What the checks miss, each once."""
    return tuple(
        dict.fromkeys(
            answer.log for answer in answers if answer.status is Status.NOT_LOGGED and answer.log
        )
    )
