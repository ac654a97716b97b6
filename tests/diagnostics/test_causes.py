"""From what moved to why: every rule by cases made by hand, and that a cause whose evidence is
missing is never named.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.cases import each_case
from tests.golden.sentences import says

from groupwise.diagnostics.causes import CAUSES, Incident, advice_for, contenders, verdict
from groupwise.diagnostics.judge import Look, _actions
from groupwise.diagnostics.judgement import (
    Cause,
    Certainty,
    Fact,
    Finding,
    Learning,
    Sign,
    Status,
    stated,
)
from groupwise.diagnostics.learning import progress_of
from groupwise.diagnostics.signals import Evidence
from groupwise.record.run import Meaning, RunRecord, steps_table

CAUSE = {key: row.label for key, row in CAUSES.items()}
LIKELY, POSSIBLE, OPEN = Certainty.LIKELY, Certainty.POSSIBLE, Certainty.CANNOT_TELL


def evidence(*columns: str) -> Evidence:
    """A run of twenty rows that logs these quantities."""
    given = {name: np.linspace(1.0, 2.0, 20) for name in ("reward", *columns)}
    return Evidence(
        RunRecord(
            "run",
            steps_table(range(1, 21), given),
            meanings=tuple(Meaning(name, name, "test") for name in given),
        )
    )


def cause_of_fall(of_fall: Incident) -> Cause:
    return verdict(replace(of_fall, question=Fact.FELL))


def cause_of_standing(standing: Incident) -> Cause:
    return verdict(replace(standing, question=Fact.STANDS))


def comes_first(incident: Incident) -> bool:
    return incident.sees(Fact.FIRST, CAUSES["sampler"])


def is_watched(incident: Incident) -> bool:
    return Fact.WATCHED in incident.seen


def cause_of(certainty: Certainty, *keys: str, log: tuple[str, ...] = ()) -> Cause:
    return Cause(certainty, tuple(CAUSE[key] for key in keys), log, keys)


def sign(signal: str, before: float | None, after: float | None, step: int = 15) -> Sign:
    return Sign(signal, step, before, after, signal)


def incident(
    facts: tuple[Fact, ...] = (),
    *signs: Sign,
    logged: tuple[str, ...] = ("entropy", "completion_length"),
    onset: int = 15,
    **more: Any,
) -> Incident:
    finding = Finding(Status.CRITICAL, "", facts=facts, column="loss", check="check")
    return Incident(
        evidence(*logged), {"check": finding}, {sign.signal: sign for sign in signs}, onset, **more
    )


LENGTH, ENTROPY, CUT = "completion_length", "entropy", "truncated_share"
LASTING = (Fact.FALL_AT_ONCE,)
LOST = Finding(Status.CRITICAL, "", check="check")


@each_case(
    ("facts", "signs", "certainty", "names"),
    [
        (
            (Fact.NOT_FINITE,),
            (),
            LIKELY,
            ("numerical failure, first in loss",),
        ),
        ((Fact.GRADIENT_EXPLODED,), (), LIKELY, ("numerical failure (the gradient exploded)",)),
        (
            (),
            (sign("gradient_norm", 1.0, 1e4),),
            LIKELY,
            ("numerical failure (the gradient exploded)",),
        ),
        ((), (sign("gradient_norm", 1.0, 9.9e3),), LIKELY, (CAUSE["instability"],)),
        ((Fact.RATE_ZERO,), (), LIKELY, (CAUSE["learning_rate_zero"],)),
        ((Fact.FAILURES_LOGGED,), (), LIKELY, (CAUSE["verifier"],)),
        ((Fact.NOTHING_EARNED,), (), OPEN, (CAUSE["too_hard"], CAUSE["verifier"])),
        ((Fact.NOTHING_EARNED, Fact.TRUNCATED_LIKELY), (), LIKELY, (CAUSE["truncation"],)),
        # What the policy did.
        ((), (sign(LENGTH, 100.0, 150.0),), LIKELY, (CAUSE["length"],)),
        ((), (sign(CUT, 0.1, 0.25),), LIKELY, (CAUSE["length"],)),
        # What grows after the fall follows from it.
        ((), (sign(LENGTH, 100.0, 150.0, 16),), LIKELY, (CAUSE["instability"],)),
        ((), (sign(LENGTH, 100.0, 150.0, 16), sign(CUT, 0.1, 0.2)), LIKELY, (CAUSE["length"],)),
        (LASTING, (sign(CUT, 0.1, 0.9, 16),), OPEN, (CAUSE["verifier"], CAUSE["harder_data"])),
        ((), (sign(LENGTH, 100.0, 60.0),), LIKELY, (CAUSE["shrinking"],)),
        ((), (sign(ENTROPY, 0.5, 0.7),), LIKELY, (CAUSE["instability"],)),
        ((Fact.REWARD_OSCILLATES,), (), LIKELY, (CAUSE["instability"],)),
        ((), (sign("gradient_norm", 1.0, 10.0),), LIKELY, (CAUSE["instability"],)),
        ((Fact.FEW_WEIGHTS_COUNT,), (), LIKELY, (CAUSE["instability"],)),
        ((), (sign(ENTROPY, 0.8, 0.4),), POSSIBLE, (CAUSE["concentration"],)),
        # The first that holds is told.
        ((), (sign(LENGTH, 100.0, 150.0), sign(ENTROPY, 0.5, 0.9)), LIKELY, (CAUSE["length"],)),
        # The entropy doubled before the length grew, and by more.
        (
            (),
            (sign(LENGTH, 100.0, 150.0), sign(ENTROPY, 0.4, 0.9, 5)),
            LIKELY,
            (CAUSE["instability"],),
        ),
        ((), (sign(LENGTH, 100.0, 250.0), sign(ENTROPY, 0.4, 0.9, 5)), LIKELY, (CAUSE["length"],)),
        ((), (sign(LENGTH, 100.0, 150.0), sign(ENTROPY, 0.5, 0.9, 5)), LIKELY, (CAUSE["length"],)),
        (
            (),
            (sign(LENGTH, 100.0, 149.0), sign(ENTROPY, 0.5, 0.7)),
            LIKELY,
            (CAUSE["instability"],),
        ),
        # Answers to harder prompts grow too.
        (
            LASTING,
            (sign(LENGTH, 100.0, 149.0), sign(ENTROPY, 0.5, 0.69)),
            OPEN,
            (CAUSE["verifier"], CAUSE["harder_data"]),
        ),
        # What is held out is answered as before: on other prompts a policy answers at other
        # lengths.
        (
            (Fact.TRAINING_FALLS_ALONE,),
            (sign(LENGTH, 100.0, 200.0), sign(ENTROPY, 0.5, 1.0)),
            OPEN,
            (CAUSE["verifier"], CAUSE["harder_data"]),
        ),
        (
            (Fact.TRAINING_DECLINES_ALONE,),
            (sign(LENGTH, 100.0, 200.0),),
            OPEN,
            (CAUSE["verifier"], CAUSE["harder_data"]),
        ),
        ((Fact.FUNCTION_FALLS_ALONE,), (sign(LENGTH, 100.0, 200.0),), LIKELY, (CAUSE["length"],)),
        (
            (Fact.REWARD_CONSTANT_AT_ONCE,),
            (sign(ENTROPY, 0.5, 0.9),),
            LIKELY,
            (CAUSE["instability"],),
        ),
        # Answers that went on as before.
        ((Fact.REWARD_CONSTANT_AT_ONCE,), (), LIKELY, (CAUSE["verifier"],)),
        ((Fact.REWARD_CONSTANT_AT_ONCE, Fact.DECLINE), (), LIKELY, (CAUSE["verifier"],)),
        ((*LASTING, Fact.PROMPTS_FAIL), (), LIKELY, (CAUSE["harder_data"],)),
        ((*LASTING, Fact.ANSWERS_FAIL), (), LIKELY, (CAUSE["verifier"],)),
        ((*LASTING, Fact.HELD_OUT_DROPPED), (), LIKELY, (CAUSE["verifier"],)),
        (LASTING, (), OPEN, (CAUSE["verifier"], CAUSE["harder_data"])),
        # Answers that are cut off as they were explain no fall; more of them do.
        ((*LASTING, Fact.TRUNCATED_LIKELY), (), OPEN, (CAUSE["verifier"], CAUSE["harder_data"])),
        ((*LASTING, Fact.TRUNCATED_LIKELY), (sign(CUT, 0.7, 0.8),), LIKELY, (CAUSE["truncation"],)),
        (
            (*LASTING, Fact.TRUNCATED_LIKELY, Fact.PROMPTS_FAIL),
            (),
            LIKELY,
            (CAUSE["harder_data"],),
        ),
        # Moves below what counts are none.
        (
            LASTING,
            (sign(LENGTH, 100.0, 129.0), sign(ENTROPY, 0.5, 0.69)),
            OPEN,
            (CAUSE["verifier"], CAUSE["harder_data"]),
        ),
        (
            LASTING,
            (sign(LENGTH, 100.0, 61.0), sign(CUT, 0.1, 0.24)),
            OPEN,
            (CAUSE["verifier"], CAUSE["harder_data"]),
        ),
        # Of a lower limit: at the old one 80 % of cut answers alone would make a longer mean.
        (
            (Fact.REWARD_CONSTANT_AT_ONCE,),
            (sign(LENGTH, 100.0, 50.0), sign(CUT, 0.0, 0.8)),
            LIKELY,
            (CAUSE["truncation"],),
        ),
        (
            (Fact.REWARD_CONSTANT_AT_ONCE,),
            (sign(LENGTH, 100.0, 50.0), sign(CUT, 0.1, 0.4)),
            LIKELY,
            (CAUSE["shrinking"],),
        ),
        (
            LASTING,
            (sign(ENTROPY, 0.8, 0.41), sign("gradient_norm", 1.0, 9.9)),
            OPEN,
            (CAUSE["verifier"], CAUSE["harder_data"]),
        ),
        # A slow decline, or that of one function, is no verifier's.
        ((Fact.DECLINE,), (), Certainty.NONE, ()),
        ((Fact.FUNCTION_FALL_AT_ONCE,), (), Certainty.NONE, ()),
        ((Fact.FUNCTION_FALL_AT_ONCE, Fact.COLUMNS_PART), (), POSSIBLE, (CAUSE["reward_hacking"],)),
        (
            (Fact.DECLINE, Fact.PART_LOST_AT_ONCE),
            (),
            OPEN,
            (CAUSE["verifier"], CAUSE["harder_data"]),
        ),
    ],
)
def test_why_a_reward_fell(
    facts: tuple[Fact, ...], signs: tuple[Sign, ...], certainty: Certainty, names: tuple[str, ...]
) -> None:
    cause = cause_of_fall(incident(facts, *signs))
    assert (cause.certainty, cause.names) == (certainty, names)


def test_what_never_earned_anything_has_no_cause_that_takes_a_reward_away() -> None:
    assert contenders(cause_of_fall(incident((Fact.NOTHING_EARNED,)))) == ("too_hard", "verifier")


@pytest.mark.parametrize(("last", "name"), [(6.0, CAUSE["shrinking"]), (6.1, CAUSE["instability"])])
def test_answers_that_end_short_shrank_however_long_they_were_at_the_fall(
    last: float, name: str
) -> None:
    """Of ten tokens at first, eight at the fall and fewer since."""
    length = np.array([10.0] * 4 + [8.0] * 3 + [last] * 3)
    run = RunRecord(
        "run",
        steps_table(range(1, 11), {LENGTH: length}),
        meanings=(Meaning(LENGTH, LENGTH, "test"),),
    )
    signs = {
        other.signal: other for other in (sign(LENGTH, 10.0, 8.0), sign("gradient_norm", 1.0, 10.0))
    }
    assert cause_of_fall(Incident(Evidence(run), {}, signs, 5)).names == (name,)


@each_case(
    ("facts", "certainty", "names", "log"),
    [
        (
            LASTING,
            OPEN,
            (CAUSE["harder_data"], CAUSE["instability"]),
            ("completions with prompts and rewards",),
        ),
        ((*LASTING, Fact.ANSWERS_FAIL), POSSIBLE, (CAUSE["verifier"],), ()),
        ((*LASTING, Fact.HELD_OUT_DROPPED), POSSIBLE, (CAUSE["verifier"],), ()),
        ((*LASTING, Fact.PROMPTS_FAIL), LIKELY, (CAUSE["harder_data"],), ()),
    ],
)
def test_a_fall_by_and_by_is_hardly_the_verifiers(
    facts: tuple[Fact, ...], certainty: Certainty, names: tuple[str, ...], log: tuple[str, ...]
) -> None:
    assert cause_of_fall(incident(facts, abrupt=False)) == Cause(certainty, names, log)
    assert (
        cause_of_fall(incident(facts, abrupt=False, slow=True)) == Cause()
    )  # over a good part of the log none is named
    assert cause_of_fall(incident((*facts, Fact.PART_LOST_AT_ONCE), slow=True)) == cause_of_fall(
        incident((*facts, Fact.PART_LOST_AT_ONCE))
    )


def test_what_is_not_logged_is_asked_for_and_no_cause_is_guessed() -> None:
    nothing = cause_of_fall(incident((*LASTING, Fact.REWARD_CONSTANT_AT_ONCE), logged=()))
    assert nothing == Cause(
        OPEN, (CAUSE["verifier"], CAUSE["instability"]), ("entropy and completion length",)
    )
    no_length = cause_of_fall(incident(LASTING, sign(ENTROPY, 0.5, 0.9), logged=(ENTROPY,)))
    assert no_length == Cause(OPEN, (CAUSE["instability"], CAUSE["length"]), ("completion length",))
    assert cause_of_fall(
        incident(LASTING, sign(ENTROPY, 0.5, 0.9), logged=(ENTROPY, CUT))
    ) == Cause(LIKELY, (CAUSE["instability"],))
    assert cause_of_fall(incident((Fact.NOTHING_EARNED,))).log == (
        "completions with prompts and rewards",
    )
    assert cause_of_fall(incident(LASTING)).log == ("completions with prompts and rewards",)
    assert not is_watched(incident(logged=()))
    assert is_watched(incident(logged=(LENGTH,)))
    assert is_watched(incident(logged=(ENTROPY,)))


def test_a_signal_without_a_level_before_has_no_ratio() -> None:
    failure = incident((), sign(LENGTH, None, 500.0), sign(ENTROPY, 0.0, 0.9), sign(CUT, 0.2, None))
    assert (
        failure.ratio(LENGTH),
        failure.ratio(ENTROPY),
        failure.ratio("kl"),
    ) == (
        1.0,
        1.0,
        1.0,
    )
    assert (
        failure.gained(LENGTH),
        failure.gained(CUT),
        failure.gained("kl"),
    ) == (
        0.0,
        0.0,
        0.0,
    )
    assert incident((), sign(CUT, 0.2, 0.5)).gained(CUT) == pytest.approx(0.3)
    assert incident((), sign(LENGTH, 200.0, 500.0)).ratio(LENGTH) == 2.5


def test_the_first_check_that_states_a_fact_is_found() -> None:
    answers = {
        name: Finding(Status.NONE, "", facts=facts, check=name)
        for name, facts in (("a", ()), ("b", (Fact.OUTAGES,)), ("c", (Fact.OUTAGES, Fact.DECLINE)))
    }
    both = Incident(evidence(), answers, {}, None)
    assert (both.finding(Fact.OUTAGES), both.finding(Fact.DECLINE)) == (answers["b"], answers["c"])
    assert both.finding(Fact.KL_HUGE) is None
    assert {Fact.OUTAGES, Fact.DECLINE} <= {*both.seen}


# The sampler: first, or after the policy broke.


def of_sampler(*signs: Sign, at_rate_zero: bool = False, own: tuple[Sign, ...] = ()) -> Incident:
    finding = Finding(
        Status.WARNING,
        "",
        facts=stated(Fact.SAMPLER_MISMATCH, Fact.MISMATCH_AT_RATE_ZERO if at_rate_zero else None),
        signs=own,
        check="sampler_mismatch",
    )
    return Incident(
        evidence(ENTROPY, LENGTH),
        {"sampler_mismatch": finding},
        {sign.signal: sign for sign in signs},
        15,
    )


def test_a_sampler_that_differs_first_is_the_cause_and_one_that_follows_is_none() -> None:
    mismatch = sign("sampler_mismatch", 0.01, 0.05, step=14)
    assert cause_of_fall(of_sampler(mismatch, sign(ENTROPY, 0.5, 0.9, step=15))) == Cause(
        LIKELY, (CAUSE["sampler"],)
    )
    assert cause_of_fall(of_sampler(mismatch, sign(ENTROPY, 0.5, 0.9, step=14))) == Cause(
        LIKELY, (CAUSE["instability"],)
    )
    assert cause_of_fall(of_sampler(mismatch, sign(ENTROPY, 0.5, 0.9, step=13))) == Cause(
        LIKELY, (CAUSE["instability"],)
    )
    assert comes_first(of_sampler(mismatch))
    # The reward moved where it was halfway down, at step 15: the first rows of a slow fall may be
    # noise.
    assert cause_of_fall(of_sampler(mismatch, sign("reward", 0.8, 0.3, step=13))) == Cause(
        LIKELY, (CAUSE["sampler"],)
    )
    late = sign("sampler_mismatch", 0.01, 0.05, step=15)
    assert not comes_first(of_sampler(late, sign("reward", 0.8, 0.3, step=13)))
    # Below five times its level it has not moved, whatever came before.
    assert not comes_first(of_sampler(sign("sampler_mismatch", 0.01, 0.049, step=14)))
    # A check's own sign counts as it is, and engines that differ at a learning rate of 0 always do.
    own = (sign("sampler_mismatch", 0.01, 0.02, step=14),)
    assert comes_first(of_sampler(sign(ENTROPY, 0.5, 0.9), own=own))
    at_zero = of_sampler(sign(ENTROPY, 0.5, 0.9, step=11), at_rate_zero=True)
    assert cause_of_fall(at_zero) == Cause(LIKELY, (CAUSE["sampler"],))
    assert not comes_first(of_sampler())


def test_a_reward_that_fell_at_a_restart_may_have_lost_its_state() -> None:
    failure = incident(LASTING)
    jump = Finding(
        Status.WARNING,
        "",
        5,
        signs=(sign("reward", 0.7, 0.3),),
        facts=(Fact.RESTART_JUMP,),
        check="restart",
    )
    restarted = replace(failure, answers={**failure.answers, "restart": jump})
    assert cause_of_fall(restarted) == Cause(POSSIBLE, (CAUSE["restart"],))
    # What jumped there besides is no cause of a fall elsewhere.
    other = replace(jump, signs=(sign("kl", 0.1, 0.9),))
    assert cause_of_fall(
        replace(restarted, answers={**failure.answers, "restart": other})
    ).names == (
        CAUSE["verifier"],
        CAUSE["harder_data"],
    )


# A reward that stands.


@each_case(
    ("fact", "cause", "certainty"),
    [
        (Fact.RATE_ZERO, CAUSE["learning_rate_zero"], LIKELY),
        (Fact.GRADIENT_LOST, CAUSE["no_gradient"], LIKELY),
        (Fact.TRUNCATED_LIKELY, CAUSE["truncation"], LIKELY),
        (Fact.TRUNCATED_POSSIBLE, CAUSE["truncation"], POSSIBLE),
        (Fact.CUT_AS_REWARD_FALLS, CAUSE["cut_as_falls"], POSSIBLE),
        (Fact.ENDS_LOST, CAUSE["stop_lost"], LIKELY),
        (Fact.FORMAT_ALONE_EARNS, CAUSE["format_alone"], LIKELY),
        (Fact.ENTROPY_GONE, CAUSE["concentration"], LIKELY),
        (Fact.ENTROPY_LOW, CAUSE["concentration"], POSSIBLE),
        (Fact.SMALL_GROUP_LIKELY, CAUSE["small_group"], LIKELY),
        (Fact.SMALL_GROUP_POSSIBLE, CAUSE["small_group"], POSSIBLE),
        (Fact.GROUPS_ALIKE, CAUSE["zero_variance"], LIKELY),
        (Fact.SAMPLER_MISMATCH, CAUSE["sampler"], POSSIBLE),
        (Fact.COLUMNS_PART, CAUSE["reward_hacking"], POSSIBLE),
        (Fact.TEXTS_REPEAT, CAUSE["repetition"], POSSIBLE),
        (Fact.TRUNCATED_PAID, CAUSE["truncated_paid"], POSSIBLE),
        (Fact.ROLLOUTS_STALE, CAUSE["stale"], POSSIBLE),
        (Fact.KL_HUGE, CAUSE["far"], POSSIBLE),
        (Fact.TOOLS_FAIL, CAUSE["tools"], LIKELY),
        (Fact.ROUTER_DRIFTS, CAUSE["router"], POSSIBLE),
        (Fact.RESTART_JUMP, CAUSE["restart"], POSSIBLE),
        (Fact.STALE_DISCARDED, CAUSE["discards"], POSSIBLE),
        (Fact.REWARD_OSCILLATES, CAUSE["instability"], LIKELY),
    ],
)
def test_why_a_reward_stands(fact: Fact, cause: str, certainty: Certainty) -> None:
    assert cause_of_standing(incident((fact,))) == Cause(certainty, (cause,))
    assert cause_of_standing(incident(())) == Cause()
    # What concentrates while the reward rises may yet learn.
    rises = POSSIBLE if cause in (CAUSE["concentration"], CAUSE["zero_variance"]) else certainty
    assert cause_of_standing(incident((fact,), learning=Learning.LEARNING)).certainty is rises


def test_of_several_facts_the_first_of_the_list_is_told() -> None:
    facts = (Fact.REWARD_OSCILLATES, Fact.TRUNCATED_LIKELY, Fact.GROUPS_ALIKE)
    assert cause_of_standing(incident(facts)).names == (CAUSE["truncation"],)
    # Answers that are cut off since they are paid better have learnt to be; from the start on they
    # were it for themselves.
    paid = (Fact.TRUNCATED_LIKELY, Fact.TRUNCATED_PAID)
    assert cause_of_standing(incident((*paid, Fact.CUT_OFF_IN_MID_RUN))) == Cause(
        POSSIBLE, (CAUSE["truncated_paid"],)
    )
    assert cause_of_standing(incident(paid)) == Cause(LIKELY, (CAUSE["truncation"],))
    assert cause_of_standing(incident((Fact.TRUNCATED_LIKELY, Fact.CUT_OFF_IN_MID_RUN))) == Cause(
        LIKELY, (CAUSE["truncation"],)
    )
    assert cause_of_standing(incident(())) == Cause()


# What to do.


@each_case(
    ("cause", "step", "onset", "line"),
    [
        (
            cause_of(LIKELY, "length"),
            1070,
            1080,
            "restart from step 1,070; mask truncated completions; lr ÷ 3",
        ),
        (cause_of(LIKELY, "length"), None, 1080, "mask truncated completions; lr ÷ 3"),
        (
            cause_of(LIKELY, "harder_data"),
            9,
            12,
            "check what changed in the prompts of step 12 before you stop the run; draw prompts that are sometimes right",
        ),
        (
            cause_of(LIKELY, "harder_data"),
            None,
            None,
            "check what changed in the prompts before you stop the run; draw prompts that are sometimes right",
        ),
        (
            cause_of(LIKELY, "verifier"),
            None,
            None,
            "run the reward function by hand on completions",
        ),
        (
            cause_of(LIKELY, "not_finite"),
            4,
            5,
            "restart from step 4; clip the gradient; lr ÷ 3; check for empty loss masks",
        ),
        (
            cause_of(OPEN, "instability", "length", log=("completion length", "another")),
            4,
            5,
            "log completion length; for the first cause: restart from step 4; lr ÷ 3; fewer updates per generation",
        ),
        (
            cause_of(OPEN, "too_hard", "verifier"),
            4,
            5,
            "for the first cause: grade some completions by hand; draw prompts that are sometimes right",
        ),
        (Cause(), 4, 5, "restart from step 4; lr ÷ 3, if the held-out reward fell too"),
    ],
)
def test_the_line_that_says_what_to_do(
    cause: Cause, step: int | None, onset: int | None, line: str
) -> None:
    finding = Finding(Status.WARNING, "", facts=(Fact.DECLINE,), check="check")
    assert advice_for(cause, finding, step=step, onset=onset, needless=["clip"]).do == line


@each_case(
    ("step", "facts", "logged", "expected"),
    [
        (4, (Fact.BEHAVIOUR_CHANGED,), (ENTROPY,), cause_of(LIKELY, "rate_rose")),
        (4, (Fact.BEHAVIOUR_STEPPED,), (ENTROPY,), cause_of(POSSIBLE, "rate_rose")),
        # behaviour that no sign shows: a verifier that fails as the rate rises is the rarer case
        (4, (Fact.BEHAVIOUR_UNCHANGED,), (ENTROPY,), cause_of(POSSIBLE, "rate_rose")),
        (4, (), (), cause_of(POSSIBLE, "rate_rose")),
        # a verifier that fails as a cycle starts anew
        (4, (Fact.REWARD_CONSTANT_AT_ONCE, Fact.BEHAVIOUR_UNCHANGED), (ENTROPY,), None),
        (4, (Fact.ANSWERS_FAIL, Fact.BEHAVIOUR_UNCHANGED), (ENTROPY,), None),
        (None, (Fact.BEHAVIOUR_CHANGED,), (ENTROPY,), None),  # far from the fall
    ],
)
def test_a_rate_that_rose_is_the_cause_of_a_fall_beside_it(
    step: int | None, facts: tuple[Fact, ...], logged: tuple[str, ...], expected: Cause | None
) -> None:
    rose = Finding(Status.INFO, "", step, facts=(Fact.RATE_ROSE,), check="learning_rate")
    given = incident((Fact.FALL_AT_ONCE, *facts), logged=logged)
    cause = cause_of_fall(replace(given, answers={**given.answers, "rate": rose}))
    assert (replace(cause, rivals=()) == expected) is (expected is not None)
    assert ("rate_rose" in cause.keys) is (expected is not None)


@each_case(
    ("signs", "facts"),
    [
        ((sign(ENTROPY, 0.8, 0.3),), (Fact.RATE_ROSE, Fact.ENTROPY_HALVED)),
        ((sign(ENTROPY, 0.8, 0.6),), (Fact.RATE_ROSE,)),  # which speaks for no clause of its own
    ],
)
def test_the_facts_of_a_cause_are_those_of_its_clauses_the_strongest_first(
    signs: tuple[Sign, ...], facts: tuple[Fact, ...]
) -> None:
    rose = Finding(Status.INFO, "", 4, facts=(Fact.RATE_ROSE,), check="learning_rate")
    given = incident((Fact.FALL_AT_ONCE, Fact.BEHAVIOUR_CHANGED), *signs, logged=(ENTROPY,))
    cause = cause_of_fall(replace(given, answers={**given.answers, "rate": rose}))
    assert (cause.keys, cause.facts) == (("rate_rose",), facts)


def test_what_follows_the_fall_is_no_reason_against_its_cause() -> None:
    late = sign(LENGTH, 100.0, 150.0, 16)
    slow = cause_of_fall(incident((), late, abrupt=False))
    assert slow.facts == (Fact.LENGTH_RAN_LATE, Fact.FELL_BY_AND_BY)
    says("diagnostics/causes/late", slow.because)
    assert cause_of_fall(incident((), late)).facts == (Fact.LENGTH_RAN_LATE,)


SPENT = sign(ENTROPY, 0.8, 0.3)


@each_case(
    ("onset", "facts", "signs", "keys"),
    [
        (5, (), (), ("rate_too_large",)),
        (15, (), (), ("verifier", "harder_data")),
        # entropy that goes with the first rewards is no variety that was learnt away
        (5, (), (SPENT,), ("rate_too_large",)),
        (15, (), (SPENT,), ("concentration",)),
        # what others explain: of equal answers, in training alone, some answers of every prompt
        (5, (Fact.BEHAVIOUR_UNCHANGED,), (), ("verifier", "harder_data")),
        (5, (Fact.TRAINING_FALLS_ALONE,), (), ("verifier", "harder_data")),
        (5, (Fact.ANSWERS_FAIL,), (), ("verifier",)),
    ],
)
def test_a_reward_that_falls_in_the_first_updates_may_have_too_large_a_rate(
    onset: int, facts: tuple[Fact, ...], signs: tuple[Sign, ...], keys: tuple[str, ...]
) -> None:
    given = incident((Fact.FALL_AT_ONCE, *facts), *signs, onset=onset)
    cause = cause_of_fall(given)
    assert cause.keys == keys
    if keys == ("rate_too_large",):
        assert cause.certainty is POSSIBLE
        steps = given.evidence.record.steps.with_columns(pl.col("step") * 50)
        record = replace(given.evidence.record, steps=steps)
        coarse = cause_of_fall(replace(given, evidence=Evidence(record), onset=50 * onset))
        assert "rate_too_large" not in coarse.keys  # the fifth row is no fifth update


def test_a_run_that_failed_behind_its_first_row_starts_anew() -> None:
    given = Look(evidence(), {}, progress_of(evidence()))
    advised = [given.advice(cause_of(LIKELY, "length"), LOST, step, step).do for step in (2, 3)]
    others = "mask truncated completions; lr ÷ 3"
    assert advised == [f"start the run again; {others}", f"restart from step 2; {others}"]


@pytest.mark.parametrize(("updates", "fewer"), [(1.0, False), (4.0, True), (None, True)])
def test_what_the_settings_have_already_is_not_advised(updates: float | None, fewer: bool) -> None:
    """One update of a generation cannot be fewer."""
    given = evidence()
    settings = {"refresh_interval": updates} if updates else {}
    record = replace(given.record, config=given.record.config.with_settings(settings, "--set"))
    look = Look(Evidence(record), {}, progress_of(given))
    advice = look.advice(cause_of(LIKELY, "instability"), LOST, 20, 20)
    more = "; fewer updates per generation" if fewer else ""
    assert advice.do == f"restart from step 19; lr ÷ 3{more}"
    kinds = [action.kind for action in _actions(look.evidence, advice)]
    assert kinds == ["restart", "rate", *["updates"] * fewer]


@pytest.mark.parametrize(("step", "named"), [(15, True), (None, True), (16, False)])
def test_what_a_check_saw_once_the_fall_was_over_did_not_cause_it(
    step: int | None, named: bool
) -> None:
    """What it gives no step for held from the first row on."""
    given = incident((Fact.DECLINE, Fact.ENTROPY_GONE), slow=True)
    given = replace(given, answers={"check": replace(given.answers["check"], step=step)})
    assert (cause_of_fall(given).keys == ("concentration",)) is named


def test_nothing_to_do_is_no_line() -> None:
    assert advice_for(Cause(), None, step=None, onset=None).do == ""


def test_every_cause_has_a_line_of_its_own_and_evidence() -> None:
    assert all(row.do and row.clauses and row.label for row in CAUSES.values())
    assert len({row.label for row in CAUSES.values()}) == len(CAUSES)
    assert not [row.label for row in CAUSES.values() if ":" in row.label]  # it follows a colon


def test_a_case_says_of_a_fact_whether_it_is_seen_and_whether_it_could_be() -> None:
    row = CAUSES["length"]
    longer = incident((), sign(LENGTH, 100.0, 200.0))
    assert longer.sees(Fact.LENGTH_RAN_AWAY, row)
    assert longer.sees(Fact.LENGTH_LOGGED, row)
    assert not incident().sees(Fact.LENGTH_RAN_AWAY, row)
    assert incident().sees(Fact.LENGTH_LOGGED, row)
    assert not incident(logged=(ENTROPY,)).sees(Fact.LENGTH_LOGGED, row)
    assert incident(logged=(CUT,)).sees(Fact.LENGTH_LOGGED, row)
    # More answers that are cut off ran away in length, unless answers are shorter: turns ran out.
    cut = sign(CUT, 0.1, 0.6)
    assert incident((), cut).sees(Fact.LENGTH_RAN_AWAY, row)
    assert not incident((), cut, sign(LENGTH, 200.0, 150.0)).sees(Fact.LENGTH_RAN_AWAY, row)


@each_case(
    ("cause", "words"),
    [
        (Cause(), ""),
        (Cause(Certainty.LIKELY, ("numerics",)), "likely: numerics"),
        (Cause(Certainty.POSSIBLE, ("a", "b"), ("texts",)), "possible: a and b; log texts"),
        (
            Cause(Certainty.CANNOT_TELL, ("a", "b"), ("texts", "length")),
            "cannot tell: a, or b",
        ),
        (Cause(Certainty.CANNOT_TELL, ("a", "b")), "cannot tell: a, or b"),
        (Cause(Certainty.CANNOT_TELL, ("a",), ("texts",)), "cannot tell: a"),
        (Cause(Certainty.NONE, (), ("texts",)), "log texts"),
    ],
)
def test_a_cause_in_words(cause: Cause, words: str) -> None:
    assert cause.words == words
