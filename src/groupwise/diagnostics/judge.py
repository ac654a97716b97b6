"""The one function that decides: a record in, its judgement out, which every command, page and
callback shows; and what is told of the run: the fact with its raw numbers, the signs in order, the
cause, what to do.

The worst finding decides what is told, unless another one explains it; where nothing was found it
is what the reward does.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from itertools import chain

import numpy as np

from groupwise.arrays import mean_of, moving_mean
from groupwise.diagnostics import (
    causes,
    completions,
    hacking,
    instability,
    learning,
    numerics,
    verifier,
    zero_variance,
)
from groupwise.diagnostics.causes import (
    CAUSES,
    Advice,
    Incident,
    advice_for,
    advised,
    is_serious,
    verdict,
)
from groupwise.diagnostics.falls import (
    ANSWERS,
    by_and_by,
    fall_of,
    level_changes,
    reward_level,
    settled,
    signs_of_fall,
    span_of_fall,
)
from groupwise.diagnostics.judgement import (
    NEEDED,
    Action,
    Cause,
    Certainty,
    Fact,
    Finding,
    Judgement,
    Learning,
    Sign,
    State,
    Status,
    action_of,
    cost_since,
    cost_to_come,
)
from groupwise.diagnostics.learning import Progress, progress_of
from groupwise.diagnostics.signals import (
    FEWEST_ROWS,
    LOG_RELATIVE,
    LOG_REWARD,
    MORE_ROWS,
    Evidence,
    arrow,
    both_ends,
    levels_of,
    long_run_deviation,
    moved,
    reach_of,
    signs_about,
)
from groupwise.files import table_rows
from groupwise.intervals import Interval, percent
from groupwise.plain import Words, frozen
from groupwise.record.run import RunRecord, has_ended
from groupwise.wording import count, short

Signs = tuple[Sign, ...]
NO_CAUSE, NO_ADVICE = Cause(), Advice()
# What to do about a reward that stands where nothing says why.
STANDS = "check whether rewards differ within groups, and read the best completions"
# And about one that fell back, from the step on that is given.
FELL_LATE = "compare the last checkpoint before step {:,} with the newest on held-out prompts"
# From this share of zero-variance groups on a reward that stands is taken back to its best rows.
_MOST_ALIKE, _BEST = 0.5, 5
_CELLS = 40  # of the curve of the reward
# The share of the log that a slow fall takes: it names no cause, however deep it is.
_SLOW = 0.25
# Scatters of a row by which a reward that stands wanders for a reason, over so many late rows.
_WANDERS, _LATE = 3.0, 40
# The part of its range below the top in which a reward is at its maximum.
_OF_RANGE = 0.1
_DECLINES = {Fact.DECLINE, Fact.TRAINING_DECLINES_ALONE}
# One number for every answer.
_STUCK = {Fact.REWARD_CONSTANT_AT_ONCE, Fact.REWARD_FROZEN, Fact.ONE_ANSWER}
# Checks beside whose signs others are looked for.
_NOT_ALONE = (*instability.OF_REWARD, instability.NAME)
# Checks whose failure shows as a reward that fell.
_OF_FALLS = (*instability.OF_REWARD, verifier.NAME, instability.NAME, completions.TRUNCATION)


@frozen
class Look:
    """What was looked at: the run, the answers of the checks by name, and what the reward does."""

    evidence: Evidence
    answers: Mapping[str, Finding]
    progress: Progress
    worst: Finding | None = None  # the gravest answer, which another may explain

    def cause(
        self,
        question: Fact,
        signs: Signs = (),
        onset: int | None = None,
        *,
        abrupt: bool = True,
        slow: bool = False,
    ) -> Cause:
        """Return why what is asked came about."""
        return verdict(
            Incident(
                self.evidence,
                self.answers,
                {sign.signal: sign for sign in signs},
                onset,
                abrupt=abrupt,
                slow=slow,
                learning=self.progress.learning,
                question=question,
            )
        )

    def advice(
        self, cause: Cause, finding: Finding, since: int | None, onset: int | None
    ) -> Advice:
        """Return what to do, from the last checkpoint before a step on: the last logged step less
        the updates by which the trainer was ahead of the sampler, where no interval is known; from
        the first ones there is nothing to go on from: anew, from step 0.
        """
        reward, age, step = self.evidence.reward, self.evidence.quantity("staleness"), None
        if reward and since is not None:
            row = reward.at(since)
            step = reward.step_at(row - 1) if row > 1 else 0
            ahead = age.value_T[max(0, age.at(step + 1) - 1)] if age and step else 0.0
            step = _checkpoint(self.evidence, max(0, step - max(0, int(ahead))))
        return advice_for(cause, finding, step=step, onset=onset, needless=self.evidence.needless)


def _checkpoint(evidence: Evidence, step: int) -> int:
    """The last checkpoint until a step, where the interval is known; any step may have one."""
    return step - step % (evidence.setting("checkpoint_interval") or 1)


@frozen
class Story:
    """What is told of a run: the fact, the signs in order, the cause, what to do."""

    headline: str
    onset: int | None = None
    signs: Signs = ()
    cause: Cause = NO_CAUSE
    advice: Advice = NO_ADVICE
    stated: Signs = ()  # what the headline gives the numbers of, in words of its own


def story_of(look: Look, worst: Finding | None, *, can_tell: bool) -> Story:
    """Tell what happened, by the finding that is to be told, or by what the reward does."""
    if not can_tell:
        ended = look.answers[numerics.FINITE]
        return Story(
            ended.message
            if is_serious(ended) and look.evidence.reward
            else _open(look.evidence, look.progress)
        )
    fall = fall_of(look.evidence)
    if worst and fall and fall.lasts:
        if worst.check in _OF_FALLS:
            return _of_fall(look, worst)
        # Numbers that ended long after the reward had gone do not explain it.
        late = reward_level(look.evidence)[0].at(worst.step or 0) - fall.row
        if worst.check == numerics.FINITE and late > reach_of(look.evidence):
            answers = {**look.answers, worst.check: replace(worst, facts=())}
            return _of_fall(replace(look, answers=answers), answers[instability.COLLAPSE])
    worst = worst and _in_place_of(look, worst)
    if worst and worst.check == hacking.NAME:
        return _of_hack(look, worst)
    if worst:
        return _of_finding(look, worst)
    progress = look.progress
    learning, since = progress.learning, progress.since or 0
    cause = look.cause(Fact.STANDS if learning is Learning.FLAT else Fact.ROSE)
    advice, signs = advice_for(cause, None, step=None, onset=None), Signs()
    if learning is Learning.FALLING:
        fell = moved("reward", since, *progress.change.ends)
        about = signs_about(look.evidence, since)
        advice, signs = advised(FELL_LATE.format(since)), _earliest((*about, fell))
    elif learning is Learning.FLAT and not cause.names:
        advice = _stands(look.evidence, look.answers[zero_variance.NAME].value)
    return Story(_course(progress, look.evidence), None, signs, cause, advice)


def _in_place_of(look: Look, worst: Finding) -> Finding:
    """What is told in place of a held-out reward: a training reward that is one number, or what
    names a cause where the fall does not.
    """
    answers = look.answers.values()
    if Fact.HELD_OUT_FALLS_ALONE in worst.facts:
        return next(
            (finding for finding in answers if finding is not worst and is_serious(finding)), worst
        )
    stuck = worst.check in (hacking.NAME, instability.COLLAPSE)
    return next((finding for finding in answers if stuck and _STUCK & {*finding.facts}), worst)


def _stands(evidence: Evidence, alike: Interval | None) -> Advice:
    """What to do about a reward that stands where nothing says why, with the share of groups with
    zero variance that the check has.
    """
    reward = evidence.reward
    if (
        reward
        and len(late := reward.value_T[len(reward) // 2 :]) >= _LATE
        and long_run_deviation(late) > _WANDERS * reward.scatter > 0
    ):
        low, high = np.quantile(moving_mean(late, 5), [0.05, 0.95])
        return advised(
            f"find out why the reward varies by ±{short((high - low) / 2)}, beyond batch noise, "
            "before you raise the lr"
        )
    if reward and reward.span and alike is not None and alike.value >= _MOST_ALIKE:
        few = min(_BEST, len(reward))
        best = reward.step_at(few - 1 + int(moving_mean(reward.value_T, few).argmax()))
        return advised(
            "{back}, near the best reward; lr ÷ 3; draw prompts that are sometimes right, as most "
            "groups have zero variance",
            ("restart", "rate /3", "filter"),
            step=_checkpoint(evidence, best),
        )
    return advised(
        "the log does not show why: compare 20 updates at lr ÷ 3 and lr × 3 on copies of the run"
        if evidence.rewards_differ
        else STANDS
    )


def _of_fall(look: Look, worst: Finding) -> Story:
    """Tell of a reward that fell for good: from its first sign on."""
    evidence, fall = look.evidence, fall_of(look.evidence)
    assert fall
    level, own = reward_level(evidence)[0], level_changes(evidence)["reward"]
    onset, (before, after) = level.step_at(fall.row), own.ends
    there = float(level.value_T[level.at(own.first)])
    of_reward = moved("reward", own.first, *levels_of(before, there, after))
    others = (look.answers[check].signs for check in (instability.NAME, numerics.FINITE))
    signs = _earliest((*signs_of_fall(evidence), of_reward, *chain(*others)))
    slow = np.ptp(span_of_fall(level, fall.row)) >= _SLOW * len(level)
    cause = look.cause(Fact.FELL, signs, onset, abrupt=not by_and_by(level, fall.row), slow=slow)
    signs = _led(look, cause, signs)
    fell = "collapsed" if worst.status is Status.CRITICAL else "fell"
    headline = f"reward {arrow(before, after)}, {fell} {own.where}"
    return Story(headline, onset, signs, cause, look.advice(cause, worst, signs[0].step, onset))


def _earliest(signs: Iterable[Sign]) -> Signs:
    """The earliest sign of each signal, in their order; of one step the reward last."""
    first = dict[str, Sign]()
    for sign in sorted(signs, key=lambda sign: (sign.step, sign.signal == "reward")):
        first.setdefault(sign.signal, sign)
    return tuple(first.values())


def _led(look: Look, cause: Cause, signs: Signs) -> Signs:
    """The signs with those of the quantities that the cause moves first, and of what speaks for
    it.
    """
    rows = [CAUSES[key] for key in cause.keys]
    leads = {name for row in rows for name in row.first}
    evidence = {fact for row in rows for fact in row.evidence}
    own = (
        sign
        for answer in look.answers.values()
        for sign in answer.signs
        if sign.signal in leads or (sign.before is not None and evidence & {*answer.facts})
    )
    return _earliest((*signs, *own))


def _of_hack(look: Look, worst: Finding) -> Story:
    """Tell of a reward that rose without the held-out one."""
    cause = look.cause(Fact.PARTED, worst.signs, worst.step)
    words = ", ".join(sign.words for sign in worst.signs[-2:])
    if cause.certainty is not Certainty.CANNOT_TELL:
        headline = f"{words}: {cause.names[0]} {cause.sure}" if words else worst.message
    else:
        headline = f"{words}: the two diverge" if len(worst.signs) > 1 else worst.message
    advice = look.advice(cause, worst, worst.step, worst.step)
    return Story(headline, worst.step, worst.signs, cause, advice)


def _of_finding(look: Look, worst: Finding) -> Story:
    """Tell of what another check found."""
    signs, change = worst.signs, level_changes(look.evidence).get("reward")
    if worst.step is not None and (not signs or worst.check in _NOT_ALONE):
        about = signs_about(look.evidence, worst.step)
        if change and change.first == worst.step:
            about = signs_of_fall(look.evidence)
        own = {sign.signal for sign in signs}
        about = (*about, *look.answers[instability.NAME].signs)
        signs = (*signs, *(sign for sign in about if sign.signal not in own))
    if worst.check == numerics.FINITE:
        signs = (*signs, *_of_gradient(look, worst.step or 0))
    signs = _earliest(signs)
    broke = worst.check in (*instability.OF_REWARD, numerics.FINITE, verifier.NAME)
    cause = look.cause(Fact.FELL if broke else Fact.STANDS, signs, worst.step)
    signs = _led(look, cause, signs)
    if change and signs and {Fact.NOT_FINITE, *_DECLINES} & {*worst.facts}:
        signs = _earliest((*signs, moved("reward", change.first, *change.ends)))
    first = min(
        (step for step in (worst.step, *(sign.step for sign in signs)) if step is not None),
        default=None,
    )
    advice = look.advice(cause, worst, first, worst.step)
    headline = worst.message
    gravest = look.worst and _graded(look.worst, cause)
    if gravest and gravest.status is Status.CRITICAL is not worst.status:
        since = "" if gravest.step is None else f"since step {gravest.step:,} "
        words = gravest.signs[0].words if gravest.signs else gravest.message
        headline = f"{headline.rstrip('.')}; {since}{words}"
    elif Fact.TRUNCATED_LIKELY in worst.facts and look.progress.learning is not Learning.UNKNOWN:
        course = _course(look.progress, look.evidence).partition(" (")[0]  # less its interval
        headline = f"{headline.rstrip('.')}; {course}"
    return Story(headline, worst.step, signs, cause, advice, worst.signs[:1])


def _of_gradient(look: Look, step: int) -> Signs:
    """The signs of a gradient that had exploded when numbers ended, unless the reward has clearly
    risen since.
    """
    gradient = look.answers["gradient"]
    if gradient.step is None or gradient.step >= step:
        return ()
    return () if numerics.rose_since(look.evidence, gradient.step) else gradient.signs


def _course(progress: Progress, evidence: Evidence) -> str:
    """The fact first where nothing failed: what the reward did."""
    moved = f"reward {arrow(progress.before, progress.after)}"
    if progress.held_out:
        goes_on = ": still learning" if progress.learning is Learning.LEARNING else ""
        held_out = f"held-out {arrow(*progress.held_out)} in {progress.steps:,} steps"
        return f"{held_out}, {moved}{goes_on}"
    if progress.learning is Learning.LEARNING:
        return (
            f"{moved} since step {progress.since:,}, which may be a dip"
            if progress.since is not None
            else f"{moved} in {progress.steps:,} steps, still learning"
        )
    if progress.learning is Learning.ROSE:
        return f"{moved} in {progress.steps:,} steps; no clear gain since step {progress.since:,}"
    level = f"reward {short(progress.after)}"
    if progress.learning is Learning.AT_TOP:
        return f"{level if progress.since is None else moved}, {_top_of(evidence, progress.after)}"
    if progress.learning is Learning.RECOVERED:
        low = short(progress.before)
        return f"{level}, recovered from a mean of {low} about step {progress.since:,}"
    if progress.learning is Learning.FALLING:
        return f"{moved}, lower since step {progress.since:,}"
    if progress.learning in (Learning.FLAT, Learning.ARRIVED) and progress.since is not None:
        wasted = (evidence.record.steps["step"][-1] - progress.since) / progress.steps
        flat = progress.learning is Learning.FLAT
        means = f", {percent(wasted)} of the run" if flat else ": perhaps its ceiling"
        return f"{moved}, no gain since step {progress.since:,}{means}"
    gain = progress.gain
    if gain is None:
        return f"nothing learnt in {progress.steps:,} steps: {moved}"
    assert evidence.reward
    much = learning.useful_gain(evidence.reward, progress.before)
    unclear = gain.high > much or gain.value + gain.low > 0
    learnt = "little learnt" if gain.low > 0 else "no clear gain" if unclear else "nothing learnt"
    interval = f"gain {short(gain.low)} to {short(gain.high)}"
    return f"{learnt} in {progress.steps:,} steps: {moved} ({interval})"


def _top_of(evidence: Evidence, level: float) -> str:
    """Where a reward that has arrived stands, by the lower limit of its last quarter: a look later
    says the same, or that it is higher.
    """
    reward = evidence.reward
    if reward is None or reward.bounds is None:
        return "perhaps at its ceiling"
    low, high = reward.bounds
    late = reward.mean(slice(-max(len(reward) // 4, 1), None))
    left = (high - max(late.low, level if level >= high else low)) / (high - low)
    near = left <= learning.NEAR and not evidence.memo.get("guessed")
    top = f"near its maximum of {high:g}" if near else "near its likely maximum"
    return "at its maximum" if left <= _OF_RANGE else top


def _open(evidence: Evidence, progress: Progress) -> str:
    """Why nothing can be told."""
    reward = evidence.reward
    if reward is None:
        return evidence.no_reward
    if evidence.relative:
        return evidence.relative
    if len(reward) < FEWEST_ROWS:
        return f"the log has {count(len(reward), 'row')} of reward, too few to judge the run"
    if reward.span == 0:
        return (
            f"the reward is {short(float(reward.value_T[0]))} in all {len(reward)} rows, "
            "which cannot show whether the run learns"
        )
    moved = f"reward {arrow(progress.before, progress.after)} in {progress.steps:,} steps"
    return f"{moved}, but {count(len(reward), 'row')} cannot separate learning from noise"


# Standard errors below its first rows at which a reward has lost all.
_SURELY, _BEYOND_DOUBT = 3.0, 10.0
# Share of the first level that is most of it.
_MOST = 0.6
# The order in which a failure is told: what breaks numbers or the reward itself before what follows
# from it.
# Its columns: what a check looks at, which is more than "no sign of a problem" where its move, the
# advice or the cause tells it; facts of others that explain its finding; whether that may be what
# success looks like, and so no alarm where the cause is only possible.
_ROWS = {row["check"]: row for row in table_rows("diagnostics/checks.tsv")}
CHECKS: dict[str, Callable[[Evidence], Finding]] = {
    check: getattr(import_module(f"groupwise.diagnostics.{row['module']}"), row["function"])
    for check, row in _ROWS.items()
    if row["module"]
}
# What a headline says in any case.
_ALWAYS = {Fact.ENVIRONMENT_FELL, Fact.CRASHED, Fact.REWARD_NOT_FINITE_AT_TIMES}


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


def _answers(evidence: Evidence) -> dict[str, Finding]:
    """The answer of each check by its name."""
    probed = evidence.record.probes and evidence.record.probes.results
    checks = CHECKS | ({"probes": causes.probes} if probed else {})
    return {name: replace(check(evidence), check=name) for name, check in checks.items()}


def judged(evidence: Evidence) -> Judgement:
    """Judge evidence that is at hand."""
    answers = _answers(evidence)
    progress = progress_of(evidence)
    ranked = _worst_first(answers.values())
    worst = next(filter(_tells, ranked), None)
    state = _state(evidence, ranked, progress)
    look = Look(evidence, answers, progress, worst)
    worst = _explaining(ranked, worst)
    story = story_of(look, worst, can_tell=state is not State.CANNOT_TELL)
    fell = level_changes(evidence).get("reward")
    end = fell.last if fell else 0
    checks = _worst_first(_beside(answer, story, end) for answer in ranked)
    if state is not State.CANNOT_TELL:
        state = _state(evidence, checks, progress, story.cause)
    last = int(evidence.record.steps["step"][-1]) if len(evidence.record.steps) else None
    first = next(iter(story.signs), None)
    level, now, now_from = _levels(story, progress)
    stopped, reward = answers[numerics.FINITE], evidence.reward
    if is_serious(stopped) and reward and reward.step_at(-1) < (stopped.step or 0):
        now = now_from = None  # what was its last number is not where it stands
    since = first.step if first else story.onset
    parts = _headline(answers.values(), story, evidence.record.in_part, state)
    return Judgement(
        run=evidence.record.name,
        state=state,
        headline="; ".join(parts),
        parts=parts,
        stated=story.stated,
        since_step=story.onset,
        first_sign=first,
        then=story.signs[1:],
        cause=story.cause,
        learning=progress.learning,
        do=story.advice.do,
        actions=_actions(evidence, story.advice),
        cost=cost_since(evidence.record, since) if state in (State.FAILING, State.FAILED) else None,
        spent=cost_since(evidence.record, None),
        to_come=cost_to_come(evidence.record),
        not_logged=_not_logged(answers.values())
        if state is not State.CANNOT_TELL
        else _needed(evidence, answers),
        checks=tuple(checks),
        notes=evidence.record.notes,
        last_step=last,
        ended=evidence.ended,
        metric="" if reward is None else reward.column,
        level=level,
        now=now,
        now_from=now_from,
        environments=verifier.environments_of(evidence),
        heights=reward_heights(evidence),
    )


def reward_heights(evidence: Evidence, *, cells: int = _CELLS) -> tuple[float | None, ...]:
    """Return means of neighbouring rows of the reward, from 0 (lowest) to 1 (highest).

    The lowest is 0 where it is above, the highest 0 where it is below.

    The reward is the one that is judged. A run at one level keeps its height instead of its noise.
    None stands where no row of a cell has a finite reward; nothing is returned where the log has
    none at all.
    """
    reward = evidence.reward
    if reward is None or not len(reward):
        return ()
    value_T = reward.value_T
    step_T = evidence.record.steps["step"].to_numpy()
    if 2 * len(reward) >= step_T.size:  # of most rows: those without a finite one are a gap
        value_T = np.full(step_T.size, np.nan)
        value_T[np.searchsorted(step_T, reward.step_T)] = reward.value_T
    parts = [part[np.isfinite(part)] for part in np.array_split(value_T, min(cells, value_T.size))]
    means = [mean_of(part) if part.size else None for part in parts]
    finite = [mean for mean in means if mean is not None]
    low, high = min(0.0, *finite), max(0.0, *finite)
    span = high - low
    return tuple(
        None if mean is None else (mean - low) / span if span > 0 else 0.0 for mean in means
    )


def _actions(evidence: Evidence, advice: Advice) -> tuple[Action, ...]:
    """What to do as actions; a rate is a part of the highest from the checkpoint on."""
    config, rate = evidence.record.config, evidence.quantity("learning_rate")
    highest = rate.value_T[rate.at(advice.step) :].max(initial=0.0) if rate and advice.step else 0.0
    if highest > 0:
        config = config.with_settings({"learning_rate": float(highest)}, "the rate from there on")
    return tuple(action_of(words, entry, config) for words, entry in advice.clauses)


def _worst_first(answers: Iterable[Finding]) -> list[Finding]:
    """Answers by how grave they are."""
    return sorted(answers, key=lambda answer: [*Status].index(answer.status))


def _graded(answer: Finding, cause: Cause) -> Finding:
    """The answer of a check; what may be success is no failure where its cause is only possible."""
    harmless = _ROWS[answer.check]["may_be_success"] and cause.certainty is Certainty.POSSIBLE
    grave = answer.status is Status.CRITICAL
    return replace(answer, status=Status.WARNING) if grave and harmless else answer


def _beside(answer: Finding, story: Story, last: int) -> Finding:
    """The answer of a check beside what is told: what moved within its limit, and what the advice
    or the cause goes by, is worth knowing; what is among the signs until the last step of the fall
    did not go on as before.
    """
    answer = _graded(answer, story.cause)
    names = {*dict(story.advice.clauses).values(), *(sign.signal for sign in story.signs)}
    if len(story.cause.keys) == 1:
        evidence = CAUSES[story.cause.keys[0]].evidence
        names |= {name for fact in evidence for name in NEEDED.get(fact, ())}
    bare = answer.status is Status.NONE and bool(names & {*_ROWS[answer.check]["about"].split()})
    until = max(answer.step or 0, last)
    changed = any(sign.signal in ANSWERS and sign.step <= until for sign in story.signs)
    gone = Fact.BEHAVIOUR_UNCHANGED if changed else None
    facts = tuple(fact for fact in answer.facts if fact is not gone)
    return replace(answer, status=Status.INFO if bare else answer.status, facts=facts)


def _headline(answers: Iterable[Finding], story: Story, in_part: str, state: State) -> Words:
    """What is told, and what is said in any case: the environment that fell, the error in which
    the log ends, what a run without a warning may suffer from, and how much of the log was read.
    """
    names = story.cause.names if state is State.OK else ()
    look = f"possible problem: {' or '.join(names)}" if names else ""
    more = [answer.message for answer in answers if {*answer.facts} & _ALWAYS]
    more = [message for message in (look, *more, in_part) if message not in ("", story.headline)]
    return tuple(part.rstrip(".") if more else part for part in (story.headline, *more))


def _levels(story: Story, progress: Progress) -> tuple[float | None, float | None, int | None]:
    """The level of the reward that it is said to have come from, that of its last rows, and the
    step of the first of these.
    """
    reward_sign = next((sign for sign in story.signs if sign.signal == "reward"), None)
    ends = progress.before if reward_sign is None else reward_sign.before, progress.after
    level, now = (end if end is not None and np.isfinite(end) else None for end in ends)
    return level, now, None if now is None else progress.now_from


def _state(
    evidence: Evidence, answers: Sequence[Finding], progress: Progress, cause: Cause = NO_CAUSE
) -> State:
    """The state by the answers, worst first, by what the reward does, and by its cause."""
    failed = State.FAILED if evidence.ended else State.FAILING
    if answers[0].status is Status.CRITICAL:
        return failed
    if evidence.reward is None or len(evidence.reward) < FEWEST_ROWS or evidence.relative:
        return State.CANNOT_TELL
    if progress.learning in (Learning.FLAT, Learning.FALLING) or any(map(_tells, answers)):
        return failed if _lost_all(evidence, progress, cause) else State.WARNING
    if progress.learning is Learning.UNKNOWN:
        return State.CANNOT_TELL
    return State.WARNING if any(map(is_serious, answers)) else State.OK


def _tells(answer: Finding) -> bool:
    """Whether an answer tells of what the reward does: an error that ended the run is said beside
    it.
    """
    return is_serious(answer) and answer.check != numerics.CRASH


def _lost_all(evidence: Evidence, progress: Progress, cause: Cause) -> bool:
    """Whether a reward without a known floor has lost more than it ever gained: beyond doubt, or
    for a cause that is likely.
    """
    reward = evidence.reward
    if reward is None or progress.learning is not Learning.FALLING or reward.low >= 0:
        return False
    fall = fall_of(evidence)
    if fall and fall.lasts and not settled(evidence, reward, fall):
        return False
    early, late = both_ends(reward, reward.tenth)
    lost = -reward.score(early, late)
    most = -reward.change(early, late).value > _MOST * abs(reward.level(early))
    return (lost > _BEYOND_DOUBT and most) or (
        lost > _SURELY and cause.certainty is Certainty.LIKELY
    )


def _explaining(ranked: Sequence[Finding], worst: Finding | None) -> Finding | None:
    """The finding to tell of: the worst, but what another explains, that came no later, is told
    as that.
    """
    if worst is None:
        return None
    facts = {Fact[name] for name in _ROWS[worst.check]["explained_by"].split()}
    for finding in ranked:
        explains = is_serious(finding) and facts & {*finding.facts}
        later = worst.step is not None and (finding.step or 0) > worst.step
        if explains and not later:
            return finding
    return worst


def _needed(evidence: Evidence, answers: dict[str, Finding]) -> Words:
    """What to log so that the next look can tell: the reward or more rows first."""
    reward = evidence.reward
    if evidence.relative:
        first = LOG_RELATIVE
    elif reward and reward.span == 0 and len(reward) >= FEWEST_ROWS:
        first = (
            "completions with prompts and rewards, to check by hand whether right ones earn "
            "this reward"
        )
    else:
        few = reward and len(reward) < learning.ENOUGH_ENDED
        rows = f"at least {learning.ENOUGH_ENDED} rows of the reward" if few else MORE_ROWS
        first = LOG_REWARD if reward is None else rows
    others = (
        quantity
        for quantity in _not_logged(answers.values())
        if quantity != MORE_ROWS or "rows" not in first
    )
    return tuple(dict.fromkeys((first, *others)))


def _not_logged(answers: Iterable[Finding]) -> Words:
    """What the checks miss, each once."""
    return tuple(
        dict.fromkeys(
            answer.log for answer in answers if answer.status is Status.NOT_LOGGED and answer.log
        )
    )
