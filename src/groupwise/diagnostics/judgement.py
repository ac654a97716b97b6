"""The judgement: what one run's log says of it, as one frozen result that every command, page and
callback shows.

`judge` makes it; whoever shows it decides nothing. Here are its parts and its plain form, schema 1.
"""

from __future__ import annotations

from dataclasses import field, replace
from enum import StrEnum
from typing import ClassVar

from groupwise.diagnostics.actions import Action
from groupwise.diagnostics.facts import Fact
from groupwise.intervals import Interval
from groupwise.parsing import JsonObject
from groupwise.plain import Plain, Said, frozen, plain
from groupwise.wording import clean, count, duration, number, sentence, share, tokens

_LONGEST = 1000  # of a judgement in sentences


class State(StrEnum):
    """How a run stands."""

    OK = "ok"  # nothing speaks against it
    WARNING = "warning"  # something possible, or small
    FAILING = "failing"  # a likely failure that has not recovered, while the run goes on
    FAILED = "failed"  # the same of a run that has ended
    CANNOT_TELL = "cannot_tell"  # reward or rows are missing


class Status(StrEnum):
    """What a check answers."""

    NONE = "none"  # no sign of it
    INFO = "info"  # worth knowing
    WARNING = "warning"  # asks for a look
    CRITICAL = "critical"  # training is wasted
    NOT_LOGGED = "not_logged"  # the log does not hold what the check needs


class Certainty(StrEnum):
    """How sure a cause is."""

    LIKELY = "likely"  # right in nine simulated cases of ten at least
    POSSIBLE = "possible"
    CANNOT_TELL = "cannot_tell"  # between the names; `log` says what would tell them apart
    NONE = "none"


class Course(StrEnum):
    """What the reward of one environment does, the worst first."""

    FELL = "fell"
    NOTHING = "nothing earned"
    STANDS = "stands"
    FEW_ROWS = "few rows"
    ROSE = "rose"


class Learning(StrEnum):
    """What the reward does."""

    LEARNING = "learning"
    AT_TOP = "at_top"
    ARRIVED = "arrived"  # it rose, and stands below its top
    FLAT = "flat"
    FALLING = "falling"
    RECOVERED = "recovered"
    UNKNOWN = "unknown"


@frozen
class Sign(Plain):
    """A signal that moved: raw numbers before and after.

    Args:
        signal: the canonical quantity ("reward", "completion_length", "truncated_share",
            "entropy"), or the log's own key.
        step: from which it moved.
        before: its level before, in its own unit; None where there is none.
        after: its level since.
        words: the same as a reader wants it: "entropy 0.13 → 0.31 → 0.54".
        now_from: the step of the first of the last rows whose mean `after` is; None where it is of
            other rows.
        reached: its level just after the change, by which causes are told; None where that is
            `after`.
    """

    KEYS = ("signal", "step", "before", "after")

    signal: str
    step: int
    before: float | None
    after: float | None
    words: str
    now_from: int | None = None
    reached: float | None = None

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
    """

    KEYS = ("certainty", "names", "log")

    certainty: Certainty = Certainty.NONE
    names: tuple[str, ...] = ()
    log: tuple[str, ...] = ()
    keys: tuple[str, ...] = field(default=(), compare=False)
    by: str = ""
    probe: str = ""
    rivals: tuple[str, ...] = field(default=(), compare=False)

    @property
    def sure(self) -> str:
        """How sure it is, in words."""
        return self.certainty.value.replace("_", " ")

    @property
    def named(self) -> str:
        """The names, and what to log where that would tell."""
        log = f"log {self.log[0]}" if self.log else ""
        log = f"{self.probe} would tell" if self.probe else log
        if self.certainty is Certainty.CANNOT_TELL and self.names:
            between = (
                f"between {' and '.join(self.names)}" if len(self.names) > 1 else self.names[0]
            )
            return f"{between}: {log}" if log else between
        by = f" (by {self.by})" if self.by else ""
        return "; ".join(part for part in (" and ".join(self.names) + by, log) if part)

    @property
    def words(self) -> str:
        """Both in a clause: "likely: numerics", "cannot tell between harder data and a broken
        verifier: log completions".
        """
        joint = " " if self.certainty is Certainty.CANNOT_TELL else ": "
        return f"{self.sure}{joint}{self.named}" if self.names else self.named


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

    KEYS = ("steps", "rollouts", "seconds", "tokens", "gpu_hours", "money")

    @property
    def parts(self) -> tuple[str, ...]:
        """The same in words, but for GPUs: "125 of 200 steps (62 %) since the first sign",
        "4,000 rollouts", "2 h".
        """
        steps = f"{count(self.steps, 'step')} since the first sign"
        if self.steps == self.of_steps:
            steps = f"all {count(self.steps, 'step')}"
        elif self.of_steps:
            part = share(self.steps / self.of_steps)
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
        check: its name.
        status: none, info, warning, critical or not_logged.
        message: the answer, a sentence with its number.
        step: from which it holds; None where it holds throughout or has no place.
        value: the number it rests on, with its interval.
        limit: what the number is held against.
        advice: what to do where it has no cause that says so, a clause or two.
        log: what to log so that the check can look; "" where it could.
        signs: signals that moved.
        facts: what it states of the run from its step on, by which causes are told.
        column: the log's own key that it is about, where it is about one alone.
    """

    KEYS = ("check", "status", "step", "value", "limit", "message")

    check: str
    status: Status
    message: str
    step: int | None = None
    value: Interval | None = None
    limit: float | None = None
    advice: str = ""
    log: str = ""
    signs: tuple[Sign, ...] = ()
    facts: tuple[Fact, ...] = ()
    column: str = ""

    def as_dict(self) -> JsonObject:
        """Plain data for JSON: of the value the number alone."""
        shown = Plain.as_dict(self)
        return shown | {"value": None if self.value is None else plain(self.value.value)}


@frozen
class Environment(Plain):
    """How one environment, task or seat does on its own."""

    kind: str  # environment or seat
    name: str
    course: Course
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


def exactly(value: float) -> Interval:
    """A number that is not estimated."""
    return Interval(value, value, value)


def not_logged(check: str, message: str, log: str = "") -> Finding:
    """Answer that the log does not hold what a check needs."""
    return Finding(check, Status.NOT_LOGGED, message, log=log)


def no_sign(check: str, message: str) -> Finding:
    """Answer that there is no sign of what a check looks for."""
    return Finding(check, Status.NONE, message)


def by_sign(
    check: str, status: Status, message: str, sign: Sign, limit: float, *facts: Fact, log: str = ""
) -> Finding:
    """Report a quantity that went beyond a limit: since its sign, with its level since, to the
    end.
    """
    assert sign.after is not None
    value, sign = exactly(sign.after), replace(sign, now_from=sign.step)
    return Finding(
        check, status, message, sign.step, value, limit, log=log, signs=(sign,), facts=facts
    )


@frozen
class Judgement(Said):
    """What a log says of its run.

    Args:
        run: its name.
        state: ok, warning, failing, failed or cannot_tell.
        headline: the fact first, with raw numbers before and after.
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
    """

    KEYS = (
        "state",
        "headline",
        "since_step",
        "first_sign",
        "then",
        "cause",
        "learning",
        "do",
        "actions",
        "cost",
        "spent",
        "to_come",
        "not_logged",
        "checks",
        "notes",
        "environments",
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
    not_logged: tuple[str, ...] = ()
    checks: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    last_step: int | None = None
    spent: Cost | None = None
    to_come: Cost | None = None
    ended: bool = True
    metric: str = ""
    level: float | None = None
    now: float | None = None
    now_from: int | None = None
    environments: Environments | None = None

    SCHEMA: ClassVar[int] = 2

    def __str__(self) -> str:
        """The state and the fact, the cause where there is one, and what to do, in sentences."""
        said = [self.fact]
        said += [sentence(self.cause.words)] if self.cause.names else []
        said += [f"Do: {sentence(self.do)}"] if self.do else []
        return clean(" ".join(said), longest=_LONGEST)

    def as_dict(self) -> JsonObject:
        """Plain data for JSON, schema 2."""
        return {"schema": self.SCHEMA, **Said.as_dict(self)}

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
        they are not known; "" where no GPUs are.
        """
        if self.spent is None or self.spent.gpu_hours is None:
            return "" if self.spent is None else self.spent.missing
        costs = [self.spent] if self.cost is None else [self.cost, self.spent]
        hours = " of ".join(number(cost.gpu_hours) for cost in costs)
        money = " of ".join(f"{cost.money:,.2f}" for cost in costs if cost.money is not None)
        return f"{hours}, price {money}" if money else hours

    @property
    def alarm(self) -> bool:
        """Whether the run is failing or has failed."""
        return self.state in (State.FAILING, State.FAILED)
