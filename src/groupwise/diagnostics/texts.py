"""What the completions themselves say: texts that repeat themselves, and answers that were cut off and paid all the same.

Texts are not understood: a text that a compressor makes ten times shorter repeats itself.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np
import polars as pl

from groupwise.diagnostics.concentration import completions_of
from groupwise.diagnostics.judgement import Finding, Sign, Status
from groupwise.diagnostics.numerics import beyond, rose_since
from groupwise.diagnostics.signals import FEWEST_ROWS, Evidence, counted, share_of
from groupwise.intervals import Interval, percent

REPETITION, TRUNCATED = "repetition", "truncated_rewards"
LOG_TEXTS = "the completions (TRL: log_completions=True; verl: trainer.rollout_data_dir)"
LOG_ENDS = "each completion's length and the limit, or whether it ended by itself"
# Prose of a thousand characters and more shrinks to a third or a half, code and tables to a fifth; a loop to a hundredth.
SHRINKS, _SHORTEST, _LONGEST = 0.1, 200, 4000
# Texts are read from at most so many steps and completions of a step.
_STEPS, _EACH = 80, 16
# A task may ask for a list or a table now and then; three completions in ten that loop are a habit.
LOOPS = 0.3
# Cut-off answers are seldom right: half of them paid, more than of the complete ones, is a grader that does not look for an end.
PAID, _MANY, _STANDARD_ERRORS = 0.5, 20, 3.0


def repetition(evidence: Evidence) -> Finding:
    """Look for completions that have come to repeat themselves."""
    share, texts = evidence.quantity("repetition_share"), completions_of(evidence)
    if share is None and texts is None:
        return Finding(REPETITION, Status.NOT_LOGGED, "The completions are not in the log.", log=LOG_TEXTS)
    if texts is not None:
        told = list(_loops(texts))
        if not told:
            return Finding(REPETITION, Status.NONE, "No completion is long enough to repeat itself.")
        share = share_of(*zip(*told, strict=True))
    assert share is not None
    whole = float(share.value_T.mean())
    row = beyond(share, share.value_T > LOOPS)
    if row is None:
        some = len(share) < FEWEST_ROWS and whole > LOOPS
        said = f"{percent(whole)} of the completions read, of {counted(len(share), 'step')}, repeat themselves."
        return Finding(REPETITION, Status.INFO if some else Status.NONE, said)
    step, late = int(share.step_T[row]), float(share.value_T[row:].mean())
    throughout = row == 0 and rose_since(evidence, step)
    before, was, words = None, "", f"{percent(late)} of completions repeat themselves"
    if row:
        before = float(share.value_T[:row].mean())
        was, words = f", {percent(before)} before", f"{words} (was {percent(before)})"
    return Finding(
        REPETITION,
        Status.INFO if throughout else Status.WARNING,
        f"{percent(late)} of the completions repeat themselves since step {step:,}{was}.",
        step,
        Interval(late, late, late),
        LOOPS,
        advice="read completions; penalise repetition or mask what is cut off",
        signs=() if throughout else (Sign("repetition", step, before, late, words),),
        evidence={} if throughout else {"texts": "repeat"},
        what="share of the completions that repeat themselves",
    )


def _loops(rollouts: pl.DataFrame) -> Iterator[tuple[int, float]]:
    """Yield the share of completions that repeat themselves, step by step."""
    steps = rollouts["step"].unique().sort()
    chosen = steps.gather(np.unique(np.linspace(0, len(steps) - 1, min(_STEPS, len(steps))).astype(int)).tolist())
    rows = rollouts.select("step", pl.col("completion").str.slice(-_LONGEST)).filter(pl.col("step").is_in(chosen.implode())).drop_nulls()
    for (step,), part in rows.group_by("step", maintain_order=True):
        texts = part["completion"].to_list()
        read = [text for text in texts[:: max(1, len(texts) // _EACH)][:_EACH] if len(text) >= _SHORTEST]
        if read:
            yield int(step), float(np.mean([repeats(text) for text in read]))


def repeats(text: str) -> bool:
    """Return whether a text repeats itself: whether it compresses to less than a tenth."""
    raw = text.encode("utf-8", "replace")
    return len(zlib.compress(raw, 6)) < SHRINKS * len(raw)


def truncated(evidence: Evidence) -> Finding:
    """Look for answers that were cut off and earned more than those that ended."""
    graded = evidence.graded
    cut = None if graded is None else _cut(evidence, graded)
    if graded is None or cut is None:
        return Finding(TRUNCATED, Status.NOT_LOGGED, "Which answers were cut off, and what each earned, is not in the log.", log=LOG_ENDS)
    paid = graded.select(pl.col("reward") > max(0.0, float(graded["reward"].min()))).to_series()  # type: ignore[arg-type]
    many, ended = int(cut.sum()), int((~cut).sum())
    if many < _MANY:
        return Finding(TRUNCATED, Status.NONE, f"No sign of it: {counted(many, 'answer')} of {len(cut):,} cut off.")
    got, whole = int((paid & cut).sum()), int((paid & ~cut).sum())
    share, other = got / many, whole / ended if ended else 0.0
    pooled = (got + whole) / len(cut)
    error = float(np.sqrt(max(pooled * (1 - pooled), 1e-12) * (1 / many + (1 / ended if ended else 0.0))))
    said = f"{got:,} of {many:,} truncated answers earned reward, {whole:,} of {ended:,} complete ones"
    if share < PAID or (ended and share - other < _STANDARD_ERRORS * error):
        return Finding(TRUNCATED, Status.NONE, f"No sign of it: {said}.")
    step = int(graded.filter(cut & paid)["step"].min())  # type: ignore[arg-type]
    return Finding(
        TRUNCATED,
        Status.WARNING,
        f"{said}.",
        step,
        Interval(share, share, share),
        PAID,
        advice="give truncated answers no reward, or mask them",
        signs=(Sign("truncated_reward", step, None, share, f"{percent(share)} of truncated answers earn reward"),),
        evidence={"truncated": "paid"},
        what="share of the truncated answers that earned reward",
    )


def _cut(evidence: Evidence, graded: pl.DataFrame) -> pl.Series | None:
    """Which answers were cut off: those that did not end, or that are as long as the limit; None where that is not known."""
    if "ended" in graded.columns and graded["ended"].count():
        return graded["ended"].fill_null(1.0) < 0.5
    limit = evidence.setting("max_completion_length")
    if limit is None or "length" not in graded.columns or not graded["length"].count():
        return None
    return graded["length"].fill_null(0.0) >= float(limit)
