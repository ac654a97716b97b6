"""The completions: cut off from the start or since a step, cut off and paid all the same, texts
that repeat themselves.

Longer answers with a rising reward are what reasoning looks like, and no finding as long as they
end. A limit counts only where it is certain: where truncation is logged, where the mean length of
many rows is one and the same largest number, or where the settings say it and no row goes beyond.
Texts are not understood: a text that a compressor makes ten times shorter repeats itself.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import polars as pl

from groupwise.arrays import median
from groupwise.diagnostics.concentration import LOG_TEXTS, read_completions
from groupwise.diagnostics.facts import Fact
from groupwise.diagnostics.falls import HALF, end_levels
from groupwise.diagnostics.judgement import (
    Finding,
    Sign,
    Status,
    by_sign,
    exactly,
    no_sign,
    not_logged,
)
from groupwise.diagnostics.learning import progress_of
from groupwise.diagnostics.numerics import beyond, rose_since
from groupwise.diagnostics.signals import (
    FEWEST_ROWS,
    Evidence,
    Signal,
    counted,
    share_of,
    since_when,
)
from groupwise.diagnostics.signs import arrow, limit_of, repeated_most
from groupwise.intervals import Interval, percent, wilson
from groupwise.wording import share, short

TRUNCATION, REPETITION, TRUNCATED = "truncation", "repetition", "truncated_rewards"
LOG_CUT = (
    "the share of truncated completions (TRL: completions/clipped_ratio; verl: "
    "response_length/clip_ratio)"
)
LOG_ENDS = "each completion's length and the limit, or whether it ended by itself"
# Rows in which all completions are cut off that make most of them so: a quarter, even in groups of
# two.
_ALL_CUT = 0.25
# Of its limit: a mean length from which most completions may be cut off.
_AT_LIMIT = 0.9
# Prose of a thousand characters and more shrinks to a third or a half, code and tables to a fifth;
# a loop to a hundredth.
SHRINKS, _SHORTEST = 0.1, 200
# A task may ask for a list or a table now and then; three completions in ten that loop are a habit.
LOOPS = 0.3
# Cut-off answers are seldom right: half of them paid, more than of the complete ones, is a grader
# that does not look for an end.
PAID, _MANY, _STANDARD_ERRORS = 0.5, 20, 3.0
# A share that rises by so much, and by so many standard errors.
_RISES, _CLEARLY = 0.2, 5.0
_LIKELY = (Fact.TRUNCATED_LIKELY,)


def truncation(evidence: Evidence) -> Finding:
    """Look for completions that are cut off."""
    cut, length = evidence.quantity("truncated_share"), evidence.quantity("completion_length")
    if cut is not None and len(cut) >= FEWEST_ROWS:
        return _with_paid(_by_rise(evidence, cut) or _by_share(cut), evidence.reward, cut)
    if length is None or len(length) < FEWEST_ROWS:
        said = "neither length nor the share of truncated completions is in the log"
        return not_logged(TRUNCATION, said, LOG_CUT)
    first, last = end_levels(length)
    said = f"the completions are {short(last)} tokens long, {short(first)} at the beginning."
    finding = _by_rows(length) or _by_limit(evidence, length)
    return finding or no_sign(TRUNCATION, f"No sign of it: {said}")


def _by_rise(evidence: Evidence, cut: Signal) -> Finding | None:
    """Judge by a share below a half that goes on rising as the reward falls: answers on their
    way into the limit.
    """
    reward, few = evidence.reward, max(4, len(cut) // 8)
    if reward is None or len(reward) != len(cut) or len(cut) < 3 * few:
        return None
    before, late = slice(max(0, len(cut) - 4 * few), len(cut) - few), slice(len(cut) - few, None)
    rose, fell = cut.change(before, late), -reward.score(before, late)
    first, mean = median(cut.value_T[before]), cut.level(late)
    on_its_way = float(cut.value_T[-1]) >= mean
    if (
        rose.value < _RISES
        or cut.score(before, late) < _CLEARLY
        or fell < _STANDARD_ERRORS
        or not on_its_way
        or mean > HALF
    ):
        return None
    step = int(cut.step_T[late][0])
    sign = Sign(
        "truncated_share", step, first, mean, f"{share(mean)} truncated (was {share(first)})"
    )
    ends = progress_of(evidence).change.ends
    message = f"{sign.words}, rising since step {step:,} as the reward fell: {arrow(*ends)}"
    return by_sign(TRUNCATION, Status.WARNING, message, sign, HALF, Fact.TRUNCATED_POSSIBLE)


def _by_share(cut: Signal) -> Finding:
    """Judge by the logged share: most of the completions, to the end."""
    late = cut.mean(slice(-max(5, len(cut) // 5), None))
    onset = since_when(cut.value_T > HALF)
    whole = cut.mean(slice(None))
    if (
        late.value > HALF and onset is None and whole.value > HALF
    ):  # of small batches single rows lie on both sides
        message = f"{100 * whole.value:.0f} % of the completions of the run are truncated"
        return _throughout(message, whole)
    if onset is None or late.value <= HALF:
        return no_sign(
            TRUNCATION,
            f"No sign of it: {share(end_levels(cut)[1])} of the last completions are truncated.",
        )
    now, step, first = 100 * late.value, cut.step_at(onset), cut.level_until(3)
    if first > HALF:
        message = (
            f"{now:.0f} % of the completions are truncated, and were from the start "
            f"({100 * first:.0f} %)"
        )
        return _throughout(message, late)
    before = median(cut.value_T[max(0, onset - 20) : max(onset, 1)])
    words = f"{share(late.value)} truncated (was {share(before)})"
    message = (
        f"{share(late.value)} of the completions are truncated since step {step:,}, "
        f"{share(before)} before"
    )
    sign = Sign("truncated_share", step, before, late.value, words)
    facts = *_LIKELY, Fact.CUT_OFF_IN_MID_RUN
    return by_sign(TRUNCATION, Status.WARNING, message, sign, HALF, *facts)


def _throughout(message: str, value: Interval) -> Finding:
    """Report truncation from the start."""
    return Finding(TRUNCATION, Status.WARNING, message, None, value, HALF, facts=_LIKELY)


def _with_paid(finding: Finding, reward: Signal | None, cut: Signal) -> Finding:
    """Add that truncated answers are paid, where the reward gained half of its range as they came
    and complete ones alone cannot earn it: a share r of the range, of which 1 - s are complete.
    """
    if reward is None or Fact.CUT_OFF_IN_MID_RUN not in finding.facts or finding.step is None:
        return finding
    row = reward.at(finding.step)
    before, late = reward.level(slice(max(0, row - _MANY), row)), reward.level(slice(row, None))
    complete = 1 - cut.level_from(cut.at(finding.step))
    low, span = min(reward.low, 0.0), reward.high - reward.low
    least = complete + PAID * (1 - complete)
    if late - before <= HALF * span or late - low < least * (reward.high - low):
        return finding
    shares = f"{share(cut.level_until(row))} → {share(1 - complete)}"
    message = (
        f"truncated answers are paid: the reward rose {arrow(before, late)} as truncation did, "
        f"{shares}, since step {finding.step:,}"
    )
    return replace(finding, message=message, facts=(*finding.facts, Fact.TRUNCATED_PAID))


def _by_rows(length: Signal) -> Finding | None:
    """Judge by rows whose mean length is the largest there is, over and over: all of their
    completions are cut off.
    """
    most = repeated_most(length)
    if most is None:
        return None
    late = length.value_T[-max(20, len(length) // 2) :]
    share = wilson(int((late >= 0.999 * most).sum()), late.size)
    if share.low < _ALL_CUT / 2 or share.value < _ALL_CUT:
        return None
    message = (
        f"all completions are cut off at {most:,.0f} tokens in {100 * share.value:.0f} % of the "
        f"last {late.size} rows"
    )
    return Finding(TRUNCATION, Status.WARNING, message, None, share, _ALL_CUT, facts=_LIKELY)


def _by_limit(evidence: Evidence, length: Signal) -> Finding | None:
    """Judge by a mean length that stands at a certain limit."""
    limit = limit_of(evidence)
    onset = None if limit is None else since_when(length.value_T > _AT_LIMIT * limit)
    if limit is None or onset is None:
        return None
    step, late = length.step_at(onset) if onset else None, length.mean(slice(onset, None))
    since = "" if step is None else f" since step {step:,}"
    message = (
        f"the completions average {short(late.value)} tokens{since}, of {short(limit)} at most"
    )
    return Finding(
        TRUNCATION,
        Status.WARNING,
        message,
        step,
        late,
        _AT_LIMIT * limit,
        facts=(Fact.TRUNCATED_POSSIBLE,),
    )


def repetition(evidence: Evidence) -> Finding:
    """Look for completions that have come to repeat themselves."""
    share, texts = evidence.quantity("repetition_share"), read_completions(evidence)
    if share is None and texts is None:
        return not_logged(REPETITION, "The texts of the completions are not in the log.", LOG_TEXTS)
    if texts is not None:
        loops = list(_loops(texts))
        if not loops:
            return no_sign(REPETITION, "No completion is long enough to repeat itself.")
        share = share_of(*zip(*loops, strict=True))
    assert share is not None
    row = beyond(share, share.value_T > LOOPS)
    if row is None:
        whole = share.level_from(0)
        some = len(share) < FEWEST_ROWS and whole > LOOPS
        said = (
            f"{percent(whole)} of the completions read, of {counted(len(share), 'step')}, repeat "
            "themselves."
        )
        return Finding(REPETITION, Status.INFO if some else Status.NONE, said)
    step, late = share.step_at(row), share.level_from(row)
    before = share.level_until(row) if row else None
    was, words = "", f"{percent(late)} of completions repeat themselves"
    if before is not None:
        was, words = f", {percent(before)} before", f"{words} (was {percent(before)})"
    message = f"{percent(late)} of the completions repeat themselves since step {step:,}{was}."
    if row == 0 and rose_since(evidence, step):
        return Finding(REPETITION, Status.INFO, message, step, exactly(late), LOOPS)
    return by_sign(
        REPETITION,
        Status.WARNING,
        message,
        Sign("repetition", step, before, late, words),
        LOOPS,
        Fact.TEXTS_REPEAT,
    )


def _loops(texts: pl.DataFrame) -> Iterator[tuple[int, float]]:
    """Yield the share of completions that repeat themselves, step by step."""
    long = texts.filter(pl.col("end").str.len_chars() >= _SHORTEST).sort("step")
    for (step,), part in long.group_by("step", maintain_order=True):
        yield int(step), float(np.mean(list(map(repeats, part["end"]))))


def repeats(text: str) -> bool:
    """Return whether a text repeats itself: whether it compresses to less than a tenth."""
    raw = text.encode("utf-8", "replace")
    return len(zlib.compress(raw, 6)) < SHRINKS * len(raw)


def truncated(evidence: Evidence) -> Finding:
    """Look for answers that were cut off and earned more than those that ended."""
    graded = evidence.graded
    cut = None if graded is None else _cut(evidence, graded)
    if graded is None or cut is None:
        return not_logged(
            TRUNCATED,
            "Which answers were cut off, and what each earned, is not in the log.",
            LOG_ENDS,
        )
    paid = graded.select(pl.col("reward") > max(0.0, float(graded["reward"].min()))).to_series()  # type: ignore[arg-type]
    many, ended = int(cut.sum()), int((~cut).sum())
    if many < _MANY:
        return no_sign(
            TRUNCATED, f"No sign of it: {counted(many, 'answer')} of {len(cut):,} cut off."
        )
    got, whole = int((paid & cut).sum()), int((paid & ~cut).sum())
    share, other = got / many, whole / ended if ended else 0.0
    pooled = (got + whole) / len(cut)
    error = float(
        np.sqrt(max(pooled * (1 - pooled), 1e-12) * (1 / many + (1 / ended if ended else 0.0)))
    )
    said = (
        f"{got:,} of {many:,} truncated answers earned reward, {whole:,} of {ended:,} complete ones"
    )
    if share < PAID or (ended and share - other < _STANDARD_ERRORS * error):
        return no_sign(TRUNCATED, f"No sign of it: {said}.")
    step = int(graded.filter(cut & paid)["step"].min())  # type: ignore[arg-type]
    sign = Sign(
        "truncated_reward", step, None, share, f"{percent(share)} of truncated answers earn reward"
    )
    return by_sign(TRUNCATED, Status.WARNING, f"{said}.", sign, PAID, Fact.TRUNCATED_PAID)


def _cut(evidence: Evidence, graded: pl.DataFrame) -> pl.Series | None:
    """Which answers were cut off: those that did not end, or that are as long as the limit; None
    where that is not known.
    """
    if "ended" in graded.columns and graded["ended"].count():
        return graded["ended"].fill_null(1.0) < 0.5
    limit = evidence.setting("max_completion_length")
    if limit is None or "length" not in graded.columns or not graded["length"].count():
        return None
    return graded["length"].fill_null(0.0) >= float(limit)
