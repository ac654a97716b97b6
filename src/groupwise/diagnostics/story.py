"""What is told of a run: the fact with its raw numbers, the signs in order, the cause, and what to
do.

The worst finding decides what is told; where nothing was found it is what the reward does. What the
state is, `judge` decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from groupwise.arrays import moving_mean
from groupwise.diagnostics import collapse, completions, hacking, instability, numerics, verifier
from groupwise.diagnostics.causes import CAUSES, Advice, Case, advice_for, is_serious, verdict
from groupwise.diagnostics.facts import Fact
from groupwise.diagnostics.falls import by_and_by, fall_of, level_changes, signs_of_fall
from groupwise.diagnostics.judgement import Cause, Certainty, Finding, Learning, Sign, Status
from groupwise.diagnostics.learning import Progress
from groupwise.diagnostics.signals import FEWEST_ROWS, Evidence, counted
from groupwise.diagnostics.signs import arrow, moved, reach_of, signs_about
from groupwise.diagnostics.swings import reward_level
from groupwise.plain import frozen
from groupwise.wording import short

NO_CAUSE, NO_ADVICE = Cause(), Advice()
# What to do about a reward that stands where nothing says why.
STANDS = "see whether rewards differ within groups, and read what the best answers do"
# And about one whose last few rows fell.
FELL_LATE = "see whether it comes back; compare the last two checkpoints on held-out prompts"
# From this share of zero-variance groups on the prompts are to be chosen before the learning rate.
_MOST = 0.5
# The part of a fall that its first row must have gone, and left, to be told beside its ends.
_LEAST = 0.15
# The share of the log that a slow fall takes: it names no cause, however deep it is.
_SLOW = 0.25
_DECLINES = {Fact.DECLINE, Fact.TRAINING_DECLINES_ALONE}
# One number for every answer.
_STUCK = {Fact.REWARD_CONSTANT_AT_ONCE, Fact.REWARD_FROZEN}
# Checks beside whose signs others are looked for.
_NOT_ALONE = (*collapse.OF_REWARD, instability.NAME)
# Checks whose failure shows as a reward that fell.
_OF_FALLS = (collapse.NAME, verifier.NAME, instability.NAME, completions.TRUNCATION)


@frozen
class Look:
    """What was looked at: the run, the answers of the checks by name, and what the reward does."""

    evidence: Evidence
    answers: Mapping[str, Finding]
    progress: Progress

    def cause(
        self,
        question: Fact,
        signs: tuple[Sign, ...] = (),
        onset: int | None = None,
        *,
        abrupt: bool = True,
        slow: bool = False,
    ) -> Cause:
        """Return why what is asked came about."""
        case = Case(
            self.evidence,
            self.answers,
            {sign.signal: sign for sign in signs},
            onset,
            abrupt=abrupt,
            slow=slow,
            learning=self.progress.learning,
            question=question,
        )
        return verdict(case)

    def before(self, step: int | None) -> int | None:
        """Return the last logged step before a step, or None at the beginning."""
        reward = self.evidence.reward
        row = 0 if reward is None or step is None else reward.at(step)
        return reward.step_at(row - 1) if reward is not None and row > 0 else None


@frozen
class Story:
    """What is told of a run: the fact, the signs in order, the cause, what to do."""

    headline: str
    onset: int | None = None
    signs: tuple[Sign, ...] = ()
    cause: Cause = NO_CAUSE
    advice: Advice = NO_ADVICE


def story_of(look: Look, worst: Finding | None, *, can_tell: bool) -> Story:
    """Tell what happened, each signal at the levels that a serious check tells of it."""
    story = _story(look, worst, can_tell=can_tell)
    serious = [finding for finding in look.answers.values() if is_serious(finding)]
    told_signs = {
        sign.signal: sign
        for finding in serious
        for sign in finding.signs
        if sign.signal != "reward"
    }
    signs = tuple(_at_levels(sign, told_signs.get(sign.signal)) for sign in story.signs)
    return replace(story, signs=signs)


def _at_levels(sign: Sign, levels: Sign | None) -> Sign:
    """A sign with the levels of another of the same signal, where it moved the same way."""
    if levels is None or levels.rises != sign.rises or levels.after == sign.after:
        return sign
    return replace(levels, step=sign.step)


def _story(look: Look, worst: Finding | None, *, can_tell: bool) -> Story:
    """Tell what happened, by the finding that is to be told, or by what the reward does."""
    if not can_tell:
        ended = look.answers[numerics.FINITE]
        return Story(
            ended.message
            if is_serious(ended) and look.evidence.reward is not None
            else _open(look.evidence, look.progress)
        )
    fall = fall_of(look.evidence)
    if worst is not None and worst.check in _OF_FALLS and fall is not None and fall.lasts:
        return _of_fall(look, worst)
    worst = None if worst is None else _explained(look, worst)
    if worst is not None and worst.check == hacking.NAME:
        return _of_hack(look, worst)
    if worst is not None:
        return _of_finding(look, worst)
    learning = look.progress.learning
    cause = look.cause(Fact.STANDS if learning is Learning.FLAT else Fact.ROSE)
    advice = advice_for(cause, None, step=None, onset=None)
    if learning is Learning.FALLING or (learning is Learning.FLAT and not cause.names):
        advice = Advice(FELL_LATE if learning is Learning.FALLING else _stands(look.evidence))
    return Story(_course(look.progress), None, (), cause, advice)


def _explained(look: Look, worst: Finding) -> Finding:
    """What is told in place of a held-out reward: a training reward that is one number, or what
    names a cause where the fall does not.
    """
    answers = look.answers.values()
    if Fact.HELD_OUT_FALLS_ALONE in worst.facts:
        return next(
            (finding for finding in answers if finding is not worst and is_serious(finding)), worst
        )
    stuck = worst.check in (hacking.NAME, collapse.NAME)
    return next((finding for finding in answers if stuck and _STUCK & {*finding.facts}), worst)


def _stands(evidence: Evidence) -> str:
    """What to do about a reward that stands where nothing says why."""
    equal = evidence.groups.zero_variance
    if equal.known:
        alike = float(np.nanmean(equal.value_T[-max(len(equal.value_T) // 4, FEWEST_ROWS) :]))
        if alike >= _MOST:
            return (
                f"{100 * alike:.0f} % of the groups have zero variance: draw prompts that are "
                "sometimes right"
            )
    return (
        "the log does not say why: compare 20 updates at lr ÷ 3 and × 3 on copies"
        if evidence.rewards_differ
        else STANDS
    )


def _of_fall(look: Look, worst: Finding) -> Story:
    """Tell of a reward that fell for good: from its first sign on."""
    evidence, fall = look.evidence, fall_of(look.evidence)
    assert fall is not None
    level, own = reward_level(evidence)[0], level_changes(evidence)["reward"]
    onset, (before, after) = level.step_at(fall.row), own.ends
    there = float(level.value_T[level.at(own.first)])
    part = (there - before) / (after - before) if after != before else 1.0
    course = arrow(before, there, after) if _LEAST < part < 1 - _LEAST else arrow(before, after)
    of_reward = Sign("reward", own.first, before, after, f"reward {course}")
    signs = _with_causes(look, (*signs_of_fall(evidence), of_reward), onset)
    slow = level.at(own.last) - level.at(own.first) >= _SLOW * len(level)
    abrupt = not by_and_by(level, fall.row)
    cause = look.cause(Fact.FELL, signs, onset, abrupt=abrupt, slow=slow)
    signs = _led(look, cause, signs)
    fell = "collapsed" if worst.status is Status.CRITICAL else "fell"
    headline = f"reward {arrow(before, after)}, {fell} {own.where}"
    return Story(
        headline,
        onset,
        signs,
        cause,
        advice_for(cause, worst, step=look.before(signs[0].step), onset=onset),
    )


def _with_causes(look: Look, signs: Iterable[Sign], onset: int | None) -> tuple[Sign, ...]:
    """The earliest sign of each signal; a sampler's check and that of restarts look farther back
    than a fall.
    """
    causing: list[Sign] = []
    for finding in look.answers.values():
        jumped = Fact.RESTART_JUMP in finding.facts and any(
            sign.signal == "reward" for sign in finding.signs
        )
        if Fact.SAMPLER_MISMATCH in finding.facts or (
            jumped and onset is not None and (finding.step or 0) <= onset
        ):
            causing += finding.signs
    earliest = {
        sign.signal: sign for sign in sorted([*causing, *signs], key=lambda sign: -sign.step)
    }
    own = {sign.signal: sign for sign in signs if sign.signal == "reward"}
    levelled = (_at_levels(sign, own.get(sign.signal)) for sign in earliest.values())
    return tuple(sorted(levelled, key=lambda sign: sign.step))


def _led(look: Look, cause: Cause, signs: tuple[Sign, ...]) -> tuple[Sign, ...]:
    """The signs with those of the quantities that the cause moves first."""
    first = {name for key in cause.keys for name in CAUSES[key].first}
    first -= {sign.signal for sign in signs}
    own = (sign for answer in look.answers.values() for sign in answer.signs)
    more = [sign for sign in own if sign.signal in first]
    return tuple(sorted((*more, *signs), key=lambda sign: sign.step))


def _of_hack(look: Look, worst: Finding) -> Story:
    """Tell of a reward that rose without the held-out one."""
    cause = look.cause(Fact.PARTED, worst.signs, worst.step)
    words = ", ".join(sign.words for sign in worst.signs[-2:])
    if cause.certainty is not Certainty.CANNOT_TELL:
        headline = f"{words}: {cause.names[0]} {cause.sure}" if words else worst.message
    else:
        headline = f"{words}: they part" if len(worst.signs) > 1 else worst.message
    advice = advice_for(cause, worst, step=look.before(worst.step), onset=worst.step)
    return Story(headline, worst.step, worst.signs, cause, advice)


def _of_finding(look: Look, worst: Finding) -> Story:
    """Tell of what another check found."""
    signs, change = worst.signs, level_changes(look.evidence).get("reward")
    if worst.step is not None and (not signs or worst.check in _NOT_ALONE):
        about = signs_about(look.evidence, worst.step, reach=reach_of(look.evidence))
        if change is not None and change.first == worst.step:
            about = signs_of_fall(look.evidence)
        own = {sign.signal for sign in signs}
        signs = (*signs, *(sign for sign in about if sign.signal not in own))
    if worst.check == numerics.FINITE:
        signs = (*signs, *_of_gradient(look, worst.step or 0))
    signs = (
        _with_causes(look, signs, worst.step)
        if worst.check == collapse.NAME
        else tuple(sorted(signs, key=lambda sign: sign.step))
    )
    if _DECLINES & {*worst.facts} and signs and worst.step is not None:
        signs = _not_before(look, worst.step, signs)
    broke = worst.check in (*collapse.OF_REWARD, numerics.FINITE, verifier.NAME)
    cause = look.cause(Fact.FELL if broke else Fact.STANDS, signs, worst.step)
    signs = _led(look, cause, signs)
    first = min(
        (step for step in (worst.step, *(sign.step for sign in signs)) if step is not None),
        default=None,
    )
    advice = advice_for(cause, worst, step=look.before(first), onset=worst.step)
    return Story(worst.message, worst.step, signs, cause, advice)


def _not_before(look: Look, step: int, signs: tuple[Sign, ...]) -> tuple[Sign, ...]:
    """The signs of a decline behind its own, where they all came long after it began."""
    reward = look.evidence.reward
    if reward is None or reward.at(signs[0].step) - reward.at(step) <= reach_of(look.evidence):
        return signs
    ends = level_changes(look.evidence)["reward"].ends
    return moved("reward", step, *ends), *signs


def _of_gradient(look: Look, step: int) -> tuple[Sign, ...]:
    """The signs of a gradient that had exploded when numbers ended, unless the best ten rows of the
    reward came after it.
    """
    gradient, reward = look.answers[numerics.GRADIENT], look.evidence.reward
    if gradient.step is None or gradient.step >= step or reward is None:
        return ()
    means, row = moving_mean(reward.value_T, 10), reward.at(gradient.step)
    learnt_on = 10 <= row < len(means) and means[row:].max() > means[: row - 9].max()
    return () if learnt_on else gradient.signs


def _course(progress: Progress) -> str:
    """The fact first where nothing failed: what the reward did."""
    moved = f"reward {arrow(progress.before, progress.after)}"
    if progress.held_out is not None:
        goes_on = ": still learning" if progress.learning is Learning.LEARNING else ""
        held_out = f"held-out {arrow(*progress.held_out)} in {progress.steps:,} steps"
        return f"{held_out}, {moved}{goes_on}"
    if progress.learning is Learning.LEARNING:
        dips = progress.since is not None
        return (
            f"{moved} since step {progress.since:,}, a dip so far"
            if dips
            else f"{moved} in {progress.steps:,} steps, still learning"
        )
    if progress.learning is Learning.AT_TOP:
        return (
            f"{moved}, at its top"
            if progress.since is not None
            else f"reward {short(progress.after)}, at its top"
        )
    if progress.learning is Learning.RECOVERED:
        return (
            f"reward {short(progress.after)}, recovered from {short(progress.before)} at step "
            f"{progress.since:,}"
        )
    if progress.learning is Learning.FALLING:
        return f"{moved}, falling since step {progress.since:,}"
    if progress.learning is Learning.FLAT and progress.since is not None:
        return f"nothing learnt since step {progress.since:,}: {moved} in all"
    if progress.learning is Learning.ARRIVED:
        return f"{moved}, where it stands since step {progress.since:,}"
    gain = (
        ""
        if progress.gain is None
        else f" (gain {short(progress.gain.low)} to {short(progress.gain.high)})"
    )
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
    if reward.span == 0:
        return (
            f"the reward is {short(float(reward.value_T[0]))} in all {len(reward)} rows: it tells "
            "nothing apart"
        )
    moved = f"reward {arrow(progress.before, progress.after)} in {progress.steps:,} steps"
    return f"{moved}: {counted(len(reward), 'row')} cannot tell learning from noise"
