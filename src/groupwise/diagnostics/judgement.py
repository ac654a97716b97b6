"""The judgement: what one run's log says of it, as one frozen result that every command, page and
callback shows, with the facts, the actions and the cost that it is made of.

`judge` makes it; whoever shows it decides nothing. Here are its parts and its plain form, schema 2.

A fact is what a check can state, as data: no module of this room reads the wording of another. It
holds from the step of its finding on; the signs of the finding are its levels before and after. An
action has a kind and a size, with the setting in the user's own trainer: `causes.tsv` has the
actions of each cause, `actions.tsv` those of facts and checks, `action_settings.tsv` the settings
of each kind. A cost is what a run spent, from its start or from a step on, or what is to come until
its planned end.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import field, replace
from enum import StrEnum
from typing import ClassVar

import numpy as np
import polars as pl

from groupwise.arrays import Flags, Float, Whole, median
from groupwise.files import table_rows
from groupwise.intervals import Interval, percent
from groupwise.plain import Plain, Said, Words, frozen
from groupwise.record.run import RunConfig, RunRecord
from groupwise.wording import clean, count, duration, number, sentence, tokens


class Fact(StrEnum):
    """One fact each; the value is how `--why` writes it."""

    # collapse: what the reward, one of its functions or the answers lost
    FALL_AT_ONCE = "the reward fell at once and did not recover"
    FALL_BY_AND_BY = "the reward fell over some rows and did not recover"
    FUNCTION_FALL_AT_ONCE = "a reward function fell at once and did not recover"
    FUNCTION_FALL_BY_AND_BY = "a reward function fell over some rows and did not recover"
    TRAINING_FALLS_ALONE = "the training reward fell, the held-out reward not half as much"
    FUNCTION_FALLS_ALONE = "a reward function fell, the held-out reward not half as much"
    DECLINE = "the reward lost a part of its level"
    TRAINING_DECLINES_ALONE = (
        "the training reward lost a part of its level, the held-out reward not half as much"
    )
    ANSWERS_SHRANK = "completions shrank to less than a tenth of their length"
    # what entropy, length and the held-out reward did as the reward fell, and who fails since
    BEHAVIOUR_CHANGED = "entropy or length changed with the reward"
    BEHAVIOUR_STEPPED = "entropy or length stepped a little with the reward"
    BEHAVIOUR_UNCHANGED = (
        "entropy and length, where logged, moved no more as the reward fell than before"
    )
    HELD_OUT_DROPPED = "the held-out reward dropped with the reward"
    HELD_OUT_STAYED = "the held-out reward did not drop half as much as the reward"
    PROMPTS_FAIL = "all completions of some prompts fail"
    ANSWERS_FAIL = "some completions of every prompt fail"
    # verifier: how the rewards themselves moved
    NOTHING_EARNED = "the reward is 0 in every row from some step on"
    REWARD_FROZEN = "the reward is constant from some step on"
    REWARD_CONSTANT_AT_ONCE = "the reward became constant at once"
    FUNCTION_CONSTANT_AT_ONCE = "a reward function became constant at once"
    EARNED_AT_ONCE = "everything earns one high reward at once"
    PART_LOST_AT_ONCE = "a part of the reward was lost at once"
    FAILURES_LOGGED = "more gradings fail than at first"
    OUTAGES = "the reward is 0 in a few rows at a time and then recovers"
    TIES_BROKEN = "in some groups rewards differ by less than a thousandth of their range"
    # reward_hacking: the held-out reward beside the training reward
    LOOPHOLE = "the other reward gained less than half as much, or fell"
    HELD_OUT_STANDS_AFTER_GAIN = "the held-out reward gained and is flat while training rises"
    HELD_OUT_FALLS_AS_TRAINING_RISES = "the held-out reward falls while the training reward rises"
    HELD_OUT_FALLS_ALONE = "the held-out reward falls while the training reward is flat"
    OVERFITTING = "the training reward rises while the held-out reward is flat"
    LEARNT_BY_HEART = (
        "the held-out reward falls slowly while the training reward rises no faster than before"
    )
    SELECTED_BY_LENGTH = "trained completions got shorter, relative to held-out ones"
    MORE_LEFT_OUT = "more and more rollouts are left out of the log or of training"
    LEFT_OUT_FIRST = "more rollouts were left out before the rise, and completions got shorter"
    COLUMNS_PART = "one reward column rises while another falls or stays at 0"
    GROUPS_OF_ONE = "each group has one completion"
    ADVANTAGES_ZERO = "advantages are 0 in all rows"
    # reward_functions
    FORMAT_ALONE_EARNS = "of the reward functions, only that for the format earns"
    FUNCTIONS_OPPOSED = "one reward function rose while another fell"
    # numbers, gradient and learning rate
    NOT_FINITE = "a logged number is missing, NaN or infinite from some row on"
    REWARD_NOT_FINITE_AT_TIMES = "the reward is missing, NaN or infinite in some rows"
    GRADIENT_EXPLODED = "the gradient norm exploded"
    GRADIENT_LOST = "the gradient norm is 0"
    RATE_ZERO = "the learning rate is 0"
    RATE_ROSE = "the learning rate trebled from one row to the next, during the run"
    CRASHED = "the log ends with an error"
    # sampler and trainer
    SAMPLER_MISMATCH = "sampler and trainer give different token probabilities"
    MISMATCH_AT_RATE_ZERO = "sampler and trainer differ although the learning rate is 0"
    ROLLOUTS_STALE = "rollouts are older than the settings allow"
    KL_HUGE = "the KL to the reference policy is very large"
    STALE_DISCARDED = "many rollouts are discarded as too old"
    # by which signature they differ
    SAMPLING_TRUNCATED = "the sampler gap looks like top-p, top-k or min-p sampling"
    RATIO_SUMMED = "the mean importance ratio is as far below 1 as a sum over tokens makes it"
    RATIO_IMPOSSIBLE = "the mean importance ratio is far above 1, which no mean over tokens can be"
    RATIO_CAPPED = "the mean ratio is below 1, and the largest is constant or the smallest is 0"
    RATIOS_CUT = "the smallest ratio is 0, or the largest is constant, which no gap explains"
    CORRELATION_LOW = "the token probabilities of sampler and trainer correlate by less than 0.8"
    GAP_FOLLOWS_KL = "the sampler gap grows with the KL to the reference"
    GAP_FOLLOWS_AGE = "the sampler gap grows with the age of the rollouts"
    GAP_FOLLOWS_TURNS = "the sampler gap grows with the number of turns"
    GAP_GROWS_AS_ENTROPY_FALLS = "the sampler gap grows as entropy falls"
    GAP_FOLLOWS_GRADIENT = "the sampler gap follows the gradient norm"
    # the update against its settings
    ADVANTAGE_IMPOSSIBLE = "an advantage is larger than any group of 1,024 can have"
    ADVANTAGE_OFF_CENTRE = "the mean advantage is far from 0, or has left 0"
    GRADIENT_ABOVE_USUAL = "the gradient norm is far above that of healthy runs"
    GRADIENT_BELOW_USUAL = "the gradient norm is far below that of healthy runs"
    # how fast the policy moves
    DESTROYED_AT_ONCE = "half of the reward was lost within the first ten updates"
    POLICY_UNMOVED = "the policy has hardly moved from its reference policy"
    KL_ZERO = "the logged KL to the reference is 0 in all digits although rewards differ"
    KL_ALONE = "the loss is a multiple of the KL, which falls or does not grow"
    KL_HOLDS = "the weight of the KL is at least half of the range of the reward"
    FEW_PROMPTS = "the reward is flat with large groups of few prompts"
    # environments, tools, infrastructure
    ENVIRONMENT_FELL = "the reward of one environment fell"
    INFRASTRUCTURE_FAILS = "episodes fail for reasons of the infrastructure"
    TIMED_OUT = "a logged time is at a ceiling, as with a time limit"
    TIMES_NEAR_LIMIT = "the mean time exceeds half of the longest time, which hardly varies"
    INFRASTRUCTURE_COSTS = "the reward is lower in rows where more episodes fail"
    MASKED_COUNTED = "the mean advantage is above 0 while episodes fail or are left out"
    FAILURES_MASKED = "fewer episodes are trained on as more fail"
    TOOLS_STOPPED = "the policy nearly stopped calling tools"
    ROUTER_DRIFTS = "the expert load drifts"
    TOOLS_FAIL = "tool calls fail"
    RESTART_JUMP = "a logged signal jumped at a restart, or what looks like one"
    # instability
    REWARD_OSCILLATES = "the reward oscillates"
    REWARD_COMES_ROUND = "the reward oscillates with one even period"
    FEW_WEIGHTS_COUNT = "importance weights leave few effective samples or many clipped tokens"
    # completions
    TRUNCATED_LIKELY = "more than half of the completions, or all in many rows, are truncated"
    HARDLY_ANY_ENDS = "hardly any completion ends by itself, and most did not from the start"
    ENDS_LOST = "completions ended by themselves, and from one row to the next hardly any does"
    TRUNCATED_POSSIBLE = "the mean length is near its limit"
    CUT_AS_REWARD_FALLS = "truncation rises as the reward falls"
    CUT_OFF_IN_MID_RUN = "completions came to hit the length limit during the run, perhaps again"
    TRUNCATED_PAID = "truncated completions earn reward"
    PARTS_CUT = "rows of training are cut far below the length of a rollout"
    TEXTS_REPEAT = "completions repeat themselves"
    # concentration
    ENTROPY_SPENT_AT_TOP = "entropy is nearly used up, or answers are alike, at the maximum reward"
    ENTROPY_GONE = "entropy is nearly used up and the reward is flat or fell, or answers are alike"
    ENTROPY_LOW = "the entropy is nearly used up, which may be harmless"
    # groups whose rewards are all equal
    GROUPS_ALIKE = "more groups have zero variance than chance explains"
    GROUPS_ALL_WRONG = "in most groups every rollout is wrong"
    ONE_ANSWER = "hardly any rollout earns anything but one and the same reward"
    GROUPS_ALIKE_AT_ONCE = "the share of zero-variance groups jumped"
    GROUPS_ALIKE_TREBLED = "three times as many groups have equal rewards as at first"
    UPDATE_DILUTED = (
        "at least half of the groups have zero variance throughout, or while the reward is flat"
    )
    SMALL_GROUP_LIKELY = "most groups have zero variance; larger ones would have it less often"
    SMALL_GROUP_POSSIBLE = "half the groups have zero variance; larger ones may have it less often"
    # what an experiment of ours showed
    GRADES_CHANGED = "fresh grades of these completions give back most of the missing reward"
    ANSWERS_CHANGED = "fresh grades of the probe fall as those in the log do"
    GRADES_STAND = "fresh grades of the probe give these completions no reward either"
    SAMPLED_BY_REFERENCE = "the probe found that the reference weights sampled the rollouts"
    SAMPLED_BETWEEN = "the probe found that older weights sampled the rollouts"
    SAMPLED_ALIKE = "the probe found that the checkpoint sampled the rollouts, with small errors"
    SAMPLED_TRUNCATED = "the probe found a truncated sampling distribution"
    ANSWERS_ALIKE = "the probe sampled the same completion again and again"
    ANSWERS_VARIED = "the probe sampled completions that vary and are nearly all wrong"
    GAP_AFTER_TURN = "the probe found most of the gap after the first turn"
    PROMPTS_STAND = "the probe's completions of earlier prompts lost less than half of the fall"
    PROMPTS_LOST = "the probe's completions of earlier prompts lost more than half of the fall"
    GAIN_STANDS = "fresh grades of the probe rise as those in the log do"
    GAIN_GONE = "fresh grades of the probe do not rise as those in the log do"
    EDGE_CROSSED = "the probe's update overshot"
    EDGE_FAR = "the probe's update did not overshoot"
    # what is to be explained
    FELL = "to explain: the reward fell, or its numbers ended"
    FELL_BY_AND_BY = "the fall took more than a few rows"
    FELL_SLOWLY = "the fall took a large part of the log, or was partial"
    FELL_SOON = "the reward fell within its first ten steps"
    POLICY_MAY_FAIL = "the policy itself may have caused the fall"
    STANDS = "to explain: the reward is flat, fell slowly, or nothing is earned"
    PARTED = "to explain: training and held-out reward diverged"
    EARNS = "the last rows earn more than a tenth and less than nine tenths of the maximum"
    ROSE = "to explain: the reward rose, is at its maximum, recovered, or fell only just now"
    # what signals did about a change
    LENGTH_RAN_AWAY = (
        "length grew by half or more, or at least 15 % more completions were truncated"
    )
    LENGTH_RAN_LATE = "length grew by half or more once the policy had lost the reward"
    CUT_THOUGH_SHORTER = "at least 15 % more completions were truncated although they got shorter"
    LENGTH_SHRANK = "length fell to 0.6 of its level or less"
    LENGTH_ENDS_SHORT = "the last completions have 0.6 of the earlier length or less"
    TRUNCATED_MORE = "more completions were truncated at the change"
    LIMIT_FELL = "completions end at a shorter length than before, as under a lower length limit"
    ENTROPY_ROSE = "entropy rose by 40 % or more at the change"
    ENTROPY_FELL = "entropy fell at the change"
    ENTROPY_HALVED = "entropy halved at the change"
    GRADIENT_GREW = "the gradient norm grew tenfold or more at the change"
    GRADIENT_BROKE = "the gradient norm grew 10,000-fold at the change"
    REWARD_AMONG_SIGNS = "the reward itself fell, or is missing, NaN or infinite"
    SAMPLER_MOVED = "the sampler gap grew fivefold at the change"
    PROMPTS_AGAIN = "each prompt is seen 20 times or more"
    OLD_ROLLOUTS = "rollouts were at least 4 updates old as the reward fell"
    WEIGHTS_CAME = "the reward fell as the sampler took weights that were at least 4 updates newer"
    REWARD_JUMPED_AT_RESTART = "the reward jumped at a restart"
    GAP_JUMPED_AT_RESTART = "the sampler gap jumped at a restart"
    WATCHED = "entropy or length is logged"
    LENGTH_LOGGED = "length or truncation is logged"
    GAINS_AS_ENTROPY_FALLS = "the reward rises while entropy falls"
    GAINS_AS_GROUPS_ALIKE = "the reward rises as groups get equal rewards"
    FIRST = "the cause's own signal moved before every other, or with the reward"


# The quantities that a fact is computed from.
NEEDED: Mapping[Fact, Words] = {
    Fact[row["fact"]]: tuple(row["quantities"].split())
    for row in table_rows("diagnostics/facts.tsv")
}


def stated(*facts: Fact | None) -> tuple[Fact, ...]:
    """Return the facts that hold, of some of which nothing may be known."""
    return tuple(fact for fact in facts if fact is not None)


@frozen
class Action(Plain):
    """One change.

    Args:
        kind: of the change, as `action_settings.tsv` names it.
        factor: by which the setting in use is multiplied; None where it is set.
        value: what it becomes, of a restart the step; None where the present one is not logged.
        settings: of the user's trainer, as "name=value", or the name alone; empty where the
            trainer is not known or has none.
        words: the same in a clause.
        missing: the setting of the log that would tell more, or "".
    """

    kind: str
    factor: float | None
    value: float | None
    settings: Words
    words: str
    missing: str


_SETTINGS = {row["kind"]: row for row in table_rows("diagnostics/action_settings.tsv")}
_POWERS = {"x": 1, "/": -1}


def action_of(words: str, entry: str, config: RunConfig) -> Action:
    """Return what a clause says as an action, by its entry in the tables: "restart =7", "mask" or
    "rate /3".
    """
    kind, _, size = entry.partition(" ")
    row, framework = _SETTINGS[kind], str(config.value("framework") or "").lower()
    factor: float | None = None
    value: float | None = None
    if size.startswith("="):
        value = float(size[1:])
    elif size:
        present = config.value(row["log"])
        factor = float(size[1:]) ** _POWERS[size[0]]
        value = None if present is None else factor * present
    templates = row.get(framework.replace("-", "_"), "").split()
    missing = "framework" if not framework and any([*row.values()][2:6]) else ""
    if value is None and any("{}" in template for template in templates):
        missing, templates = row["log"], [template.partition("=")[0] for template in templates]
    written = "" if value is None else f"{value:.0f}" if value >= 1 else f"{value:.3g}"
    note = f" ({row['note'].format(written)})" if row["note"] else ""
    settings = tuple(template.format(written) for template in templates)
    return Action(kind, factor, value, settings, words + note, missing)


_LONGEST = 1000  # of a judgement in sentences


class State(StrEnum):
    """How a run stands.

    Example:
        >>> from groupwise import State, judge
        >>> from groupwise.examples import trl_run
        >>> judge(trl_run()).state is State.OK
        True
    """

    OK = "ok"  # nothing speaks against it
    WARNING = "warning"  # something possible, or small
    FAILING = "failing"  # a likely failure that has not recovered, while the run goes on
    FAILED = "failed"  # the same of a run that has ended
    CANNOT_TELL = "cannot_tell"  # reward or rows are missing


UNREADABLE = "unreadable"
WORST_FIRST = (State.FAILING, State.FAILED, State.WARNING, UNREADABLE, State.CANNOT_TELL, State.OK)


class Status(StrEnum):
    """What a check answers, the worst first."""

    CRITICAL = "critical"  # training is wasted
    WARNING = "warning"  # asks for a look
    INFO = "info"  # worth knowing
    NONE = "none"  # no sign of a problem
    NOT_LOGGED = "not_logged"  # the log does not hold what the check needs


class Certainty(StrEnum):
    """How sure a cause is."""

    LIKELY = "likely"  # right in nine simulated cases of ten at least
    POSSIBLE = "possible"
    CANNOT_TELL = "cannot_tell"  # between the names; `log` says what would tell them apart
    NONE = "none"


class RewardCourse(StrEnum):
    """What the reward of one environment does, the worst first."""

    FELL = "fell"
    NOTHING = "nothing earned"
    STANDS = "stands"
    FEW_ROWS = "few rows"
    ROSE = "rose"


class Learning(StrEnum):
    """What the reward does."""

    LEARNING = "learning"  # its later rows gain for certain
    ROSE = "rose"  # it gained; of its later rows that is not certain
    AT_TOP = "at_top"
    ARRIVED = "arrived"  # it rose, and stands below its top
    FLAT = "flat"
    FALLING = "falling"
    RECOVERED = "recovered"
    UNKNOWN = "unknown"

    @property
    def gained(self) -> bool:
        """Whether it rose and may go on."""
        return self in (Learning.LEARNING, Learning.ROSE)


@frozen
class Sign(Plain):
    """A signal that moved: raw numbers before and after.

    Args:
        signal: the canonical quantity ("reward", "completion_length", "truncated_share",
            "entropy"), or the log's own key.
        step: from which it moved.
        before: its level just before, in its own unit; None where there is none.
        after: its level since.
        words: the same as a reader wants it: "entropy 0.13 → 0.31 → 0.54".
        now_from: the step of the first of the last rows whose mean `after` is; None where it is of
            other rows.
        reached: its level just after the change, by which causes are told; None where that is
            `after`.
        usual: the same over many rows before; None where that is `before`.
        column: the log's own key that the levels are of; "" where `signal` says it.
    """

    KEYS = "signal step before after"

    signal: str
    step: int
    before: float | None
    after: float | None
    words: str
    now_from: int | None = None
    reached: float | None = None
    usual: float | None = None
    column: str = ""

    @property
    def rises(self) -> bool:
        """Whether it moved up; a level that is not known counts as 0."""
        return (self.after or 0.0) > (self.before or 0.0)

    @property
    def at_change(self) -> float | None:
        """Its level just after the change."""
        return self.after if self.reached is None else self.reached


@frozen
class Cause(Plain):
    """Why it went wrong, in words.

    Args:
        certainty: likely, possible, cannot_tell or none.
        names: the cause; two of them where the log cannot tell between them.
        log: what would tell.
        keys: the rows of `causes.tsv` that the names are of.
        by: the experiment that told it, "" for none.
        probe: the command of an experiment that would tell.
        rivals: rows of `causes.tsv` that weaker facts speak for.
        facts: what speaks for it, the strongest first.
        outweighed: other causes that would be likely without these facts.
    """

    KEYS = "certainty names log"

    certainty: Certainty = Certainty.NONE
    names: Words = ()
    log: Words = ()
    keys: Words = field(default=(), compare=False)
    by: str = ""
    probe: str = ""
    rivals: Words = field(default=(), compare=False)
    facts: tuple[Fact, ...] = field(default=(), compare=False)
    outweighed: Words = field(default=(), compare=False)

    @property
    def moves(self) -> Set[str]:
        """Quantities whose move speaks for it."""
        return {name for fact in self.facts for name in NEEDED.get(fact, ())}

    @property
    def because(self) -> str:
        """The facts that speak for it, and what they outweigh; "" without any."""
        if not self.facts:
            return ""
        others = f"; otherwise likely: {', '.join(self.outweighed)}" if self.outweighed else ""
        facts = " and ".join(fact.value for fact in self.facts)
        return sentence(f"{self.sure}: {self.names[0]}, because {facts}{others}")

    @property
    def sure(self) -> str:
        """How sure it is, in words."""
        return self.certainty.value.replace("_", " ")

    @property
    def named(self) -> str:
        """The names, and what would tell, which the advice says where they cannot be told apart."""
        undecided = self.certainty is Certainty.CANNOT_TELL
        log = f"log {self.log[0]}" if self.log and not undecided else ""
        command = self.probe.partition(" --")[0]
        log = f"{command} may decide it" if command else log
        joint = ", or " if undecided else " and "
        by = f" (by {self.by})" if self.by else ""
        return "; ".join(part for part in (joint.join(self.names) + by, log) if part)

    @property
    def words(self) -> str:
        """Both in a clause: "cannot tell: harder data, or a broken verifier"."""
        return f"{self.sure}: {self.named}" if self.names else self.named


@frozen
class Cost(Plain):
    """What some steps of a run took; None where it is not logged, or GPUs or their price are not
    given.

    That of a judgement is from the first sign on, its own step included, or of a failure throughout
    that of the whole run.
    """

    steps: int
    rollouts: int | None = None
    seconds: float | None = None
    of_steps: int = 0  # steps of the whole run
    tokens: float | None = None
    gpu_hours: float | None = None  # of all GPUs together
    money: float | None = None  # in the currency of the price
    missing: str = ""  # why GPU-hours or money were asked for and are not known
    asked: bool = field(default=True, compare=False)  # for them, by who gave GPUs or their price

    KEYS = "steps rollouts seconds tokens gpu_hours money"

    @property
    def parts(self) -> Words:
        """The same in words, but for GPUs: "125 of 200 steps (62 %) since the first sign",
        "4,000 rollouts", "2 h".
        """
        steps = f"{count(self.steps, 'step')} since the first sign"
        if self.steps == self.of_steps:
            steps = f"all {count(self.steps, 'step')}"
        elif self.of_steps:
            part = percent(self.steps / self.of_steps)
            steps = (
                f"{self.steps:,} of {count(self.of_steps, 'step')} ({part}) since the first sign"
            )
        return (steps, *self.amounts.values())

    @property
    def amounts(self) -> dict[str, str]:
        """What is known beside steps and GPUs, in words."""
        shown = {
            "rollouts": None if self.rollouts is None else count(self.rollouts, "rollout"),
            "seconds": None if self.seconds is None else duration(self.seconds / 3600),
            "tokens": None if self.tokens is None else tokens(self.tokens),
        }
        return {name: words for name, words in shown.items() if words is not None}


@frozen
class Finding(Plain):
    """What one check answers.

    Args:
        status: none, info, warning, critical or not_logged.
        message: the answer, a sentence with its number.
        step: from which it holds; None where it holds throughout or has no place.
        value: the number it rests on, with its interval.
        limit: what the number is held against.
        log: what to log so that the check can look; "" where it could.
        signs: signals that moved.
        facts: what it states of the run from its step on, by which causes are told.
        column: the log's own key that it is about, where it is about one alone.
        check: its name.

    Example:
        >>> from groupwise import judge
        >>> from groupwise.examples import trl_run
        >>> finding = judge(trl_run()).checks[0]
        >>> finding.check, finding.status.value, finding.message
        ('groups_of_one', 'none', 'No sign of a problem in the settings and advantages.')
    """

    KEYS = "check status step value=value.value limit message"

    status: Status
    message: str
    step: int | None = None
    value: Interval | None = None
    limit: float | None = None
    log: str = ""
    signs: tuple[Sign, ...] = ()
    facts: tuple[Fact, ...] = ()
    column: str = ""
    check: str = ""


@frozen
class Environment(Plain):
    """How one environment, task or seat does on its own."""

    kind: str  # environment or seat
    name: str
    course: RewardCourse
    before: float  # its level before it fell, or in its first rows
    after: float  # its level since, or in its last rows
    step: int | None = None  # from which it fell

    @property
    def lost(self) -> float:
        """By how much it ends lower."""
        return self.before - self.after


@frozen
class Environments(Plain):
    """All environments of a run: how many there are, fell and rose, and the worst of them."""

    count: int
    fell: int
    rose: int
    worst: tuple[Environment, ...]
    few_rows: int = 0  # of how many nothing can be told

    @property
    def said(self) -> str:
        """What they do, in words."""
        few = f"{self.few_rows:,} with too few rows to tell"
        if self.few_rows == self.count:
            return few
        return f"{self.fell:,} fell, {self.rose:,} rose" + f", {few}" * (self.few_rows > 0)


def exactly(value: float) -> Interval:
    """A number that is not estimated."""
    return Interval(value, value, value)


def not_logged(message: str, log: str = "") -> Finding:
    """Answer that the log does not hold what a check needs."""
    return Finding(Status.NOT_LOGGED, message, log=log)


def no_sign(message: str) -> Finding:
    """Answer that there is no sign of what a check looks for."""
    return Finding(Status.NONE, message)


def by_sign(
    message: str,
    sign: Sign,
    limit: float,
    *facts: Fact,
    status: Status = Status.WARNING,
    log: str = "",
) -> Finding:
    """Report a quantity that went beyond a limit: since its sign, with its level since, to the
    end.
    """
    assert sign.after is not None
    value, sign = exactly(sign.after), replace(sign, now_from=sign.step)
    return Finding(status, message, sign.step, value, limit, log=log, signs=(sign,), facts=facts)


@frozen
class Judgement(Said):
    """What a log says of its run.

    Args:
        run: its name.
        state: ok, warning, failing, failed or cannot_tell.
        headline: the fact first, with raw numbers before and after.
        parts: of the headline, where it has several; the fact is the first.
        since_step: from which the failure holds, or None.
        first_sign: the earliest signal that moved, or None.
        then: what followed, in order.
        cause: likely, possible, or what the log cannot tell between.
        learning: what the reward does.
        do: one line.
        actions: the same as data, in the order to take them.
        cost: what was spent after the first sign, or None.
        spent: what the whole run took, or None.
        to_come: what is to come until the planned last step, or None.
        not_logged: what to log, one entry a missing signal.
        checks: the answer of every check, worst first.
        notes: what reading the log had to decide, and the exception behind its last row.
        last_step: the newest step of the log, or None.
        ended: whether it was judged as a run that is over.
        metric: the column that was judged as the reward.
        level: of the reward before what is told, or at first; None without one.
        now: of the reward in its last rows; None without one.
        now_from: the step of the first of these rows, or None.
        environments: the reward of each environment or seat on its own, or None.
        heights: of the reward's curve, from 0 to 1, None where a stretch has none.
        stated: the sign that the headline gives the numbers of, where it is that of one.

    Example:
        >>> from groupwise import judge
        >>> from groupwise.examples import trl_run
        >>> judgement = judge(trl_run())
        >>> judgement.state.value, judgement.since_step, judgement.last_step
        ('ok', None, 300)
    """

    KEYS = (
        "schema=SCHEMA state headline since_step first_sign then cause learning do actions cost "
        "spent to_come not_logged checks notes environments"
    )

    run: str
    state: State
    headline: str
    since_step: int | None = None
    first_sign: Sign | None = None
    then: tuple[Sign, ...] = ()
    cause: Cause = field(default_factory=Cause)
    learning: Learning = Learning.UNKNOWN
    do: str = ""
    actions: tuple[Action, ...] = ()
    cost: Cost | None = None
    not_logged: Words = ()
    checks: tuple[Finding, ...] = ()
    notes: Words = ()
    last_step: int | None = None
    spent: Cost | None = None
    to_come: Cost | None = None
    ended: bool = True
    metric: str = ""
    level: float | None = None
    now: float | None = None
    now_from: int | None = None
    environments: Environments | None = None
    heights: tuple[float | None, ...] = ()
    parts: Words = ()
    stated: tuple[Sign, ...] = ()

    SCHEMA: ClassVar[int] = 2

    def __str__(self) -> str:
        """The state and the fact, the cause where there is one, and what to do, in sentences."""
        said = [self.fact]
        said += [sentence(self.cause.words)] if self.cause.names else []
        said += [f"Do: {sentence(self.do)}"] if self.do else []
        return clean(" ".join(said), longest=_LONGEST)

    @property
    def fact(self) -> str:
        """The state and the headline, in a sentence."""
        return clean(
            f"{self.state.value.replace('_', ' ').upper()}: {sentence(self.headline)}",
            longest=_LONGEST,
        )

    @property
    def signs(self) -> tuple[Sign, ...]:
        """Every signal that moved, in the order in which they did."""
        return () if self.first_sign is None else (self.first_sign, *self.then)

    @property
    def gpu_hours(self) -> str:
        """GPU-hours since the first sign and of the whole run, and their price, in words; why
        they are not known; "" where nobody asked.
        """
        if self.spent is None or not self.spent.asked:
            return ""
        if self.spent.gpu_hours is None:
            return self.spent.missing
        costs = [self.spent] if self.cost is None else [self.cost, self.spent]
        hours = " of ".join(number(cost.gpu_hours) for cost in costs)
        money = " of ".join(f"{cost.money:,.2f}" for cost in costs if cost.money is not None)
        return f"{hours}, price {money}" if money else hours

    @property
    def alarm(self) -> bool:
        """Whether the run is failing or has failed."""
        return self.state in (State.FAILING, State.FAILED)


_FAR = 10.0  # usual rows that the first may take, which loads and compiles too
NO_CLOCK = "the duration is unknown: log step_time, or --column seconds=NAME"
NO_GPUS = "the number of GPUs is unknown: give --gpus N with --price"


def trains(record: RunRecord) -> Flags:
    """Return which rows hold a finite value of anything but the clock and evaluations."""
    names = record.metrics()
    trained = [name for name in names if not name.lower().startswith(("eval", "val"))]
    columns = [np.full(len(record.steps), np.nan), *map(record.values, trained or names)]
    return np.asarray(np.isfinite(columns).any(axis=0))


def cost_since(record: RunRecord, step: int | None) -> Cost | None:
    """Return what was spent from a step on, its own included, or by the whole run; None where
    no row trains.
    """
    record = replace(record, steps=record.steps.filter(trains(record)))
    if not len(record.steps):
        return None
    first, last, stride = _span(record.steps["step"])
    step = first if step is None else step
    if step > last:
        return None
    tokens, seconds = (_spent(record, name, step) for name in ("tokens", "seconds"))
    return _cost(record, last - step + stride, tokens, seconds, of_steps=last - first + stride)


def cost_to_come(record: RunRecord) -> Cost | None:
    """Return what is to come until the planned last step, at the pace of the newer half of the
    rows; None where none is known.
    """
    steps, planned = record.steps["step"], record.config.value("planned_steps")
    if planned is None or not len(steps) or int(steps[-1]) >= planned:
        return None
    left = planned - int(steps[-1])
    tokens, seconds = (_ahead(record, name, left) for name in ("tokens", "seconds"))
    return _cost(record, left, tokens, seconds)


def _span(steps: pl.Series) -> tuple[int, int, int]:
    """Return the first and the last step, and the steps between two rows."""
    stride = int(median(np.diff(steps.to_numpy()))) if len(steps) > 1 else 1
    return int(steps[0]), int(steps[-1]), stride


def _cost(
    record: RunRecord, steps: int, tokens: float | None, seconds: float | None, *, of_steps: int = 0
) -> Cost:
    """Return steps with what follows from the settings: rollouts, the hours of all GPUs, and
    their price.
    """
    size, prompts, gpus, price = (
        record.config.value(name)
        for name in ("group_size", "prompts_per_step", "gpus", "gpu_price")
    )
    rollouts = None if size is None or prompts is None else int(size) * int(prompts) * steps
    hours = None if gpus is None or seconds is None else seconds / 3600 * int(gpus)
    money = None if hours is None or price is None else hours * float(price)
    asked = record.config.gpus.given or record.config.gpu_price.given
    missing = NO_CLOCK if asked and seconds is None else ""
    missing = NO_GPUS if gpus is None and price is not None else missing
    return Cost(steps, rollouts, seconds, of_steps, tokens, hours, money, missing, asked)


def _spent(record: RunRecord, name: str, step: int) -> float | None:
    """Return by how much a clock went on from a step; it is read as its step ends: the time of a
    row began with the row before, and a row of nothing lacks its own.

    That of the first row is the clock's own value, the start of the run included; it is a usual
    row's where the clock is far ahead, as one that began before the log.
    """
    at_step, clock = _finite_rows(record, name)
    row = int(np.searchsorted(at_step, step))
    if len(clock) < 2 or row == len(clock) or not np.diff(clock[max(row - 1, 0) :]).all():
        return None
    if row:
        return float(clock[-1] - clock[row - 1])
    first, _, stride = _span(record.steps["step"])
    usual = median(np.diff(clock) / np.diff(at_step)) * (int(at_step[0]) - step + stride)
    own = float(clock[0])
    return float(clock[-1]) - own + (own if step <= first and own <= _FAR * usual else usual)


def _ahead(record: RunRecord, name: str, left: int) -> float | None:
    """Return what a clock gains in so many steps, as over the newer half of the rows."""
    at_step, clock = (column[-max(2, len(column) // 2) :] for column in _finite_rows(record, name))
    return None if len(clock) < 2 else left * float(np.ptp(clock) / np.ptp(at_step))


def _finite_rows(record: RunRecord, name: str) -> tuple[Whole, Float]:
    """Return the steps at which a clock was read, and what it showed."""
    clock = record.steps[name].to_numpy()
    usable = ~np.isnan(clock)
    return record.steps["step"].to_numpy()[usable], clock[usable]
