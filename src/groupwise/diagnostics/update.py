r"""Is the update what the settings say? Advantages that no group can have, and gradients far from
what trainers of language models log.

In a group of G the advantage of one rollout is at most $\sqrt{G-1}$ deviations (Samuelson). Which
rewards a batch should earn is not judged here.
"""

from __future__ import annotations

import numpy as np

from groupwise.arrays import median, row_after
from groupwise.diagnostics.facts import Fact
from groupwise.diagnostics.groups_of_one import WITHOUT_GROUPS
from groupwise.diagnostics.judgement import (
    Finding,
    Learning,
    Sign,
    Status,
    by_sign,
    no_sign,
    not_logged,
)
from groupwise.diagnostics.learning import progress_of
from groupwise.diagnostics.signals import FEWEST_ROWS, Evidence, Signal, counted, ends_of
from groupwise.diagnostics.signs import arrow, led_to
from groupwise.wording import short

NAME = "update"
# The square root of G - 1 for groups of 1,024, and so many times the largest reward where
# advantages are not divided by the deviation.
LARGEST_ADVANTAGE, OF_REWARD = 32.0, 10.0
# A mean advantage is 0 by construction; over tokens, where wrong answers are twice as long as right
# ones, it is a third of a deviation at most. That of 34 public runs stays below .08. One that was
# near to 0 in the first fifth and beyond a tenth in all rows of the last has left it; of one
# that was 0 but for its digits less tells that.
CENTRED, NEAR, LEFT, EXACTLY, LEFT_EXACTLY = 0.5, 0.05, 0.1, 1e-3, 0.02
# Medians of the gradient norm of 60 public healthy runs lie between .007 and 13 (most .1 to 2).
LARGE_NORM, SMALL_NORM = 30.0, 0.012
_FIRST = 10
# Standard errors by which a reward has moved.
_MOVED = 3.0


def check(evidence: Evidence) -> Finding:
    """Look for an update that cannot be right."""
    searches = (
        ("advantage_min", _of_advantage),
        ("advantage_max", _of_advantage),
        ("advantage", _off_centre),
        ("gradient_norm", _of_norm),
    )
    logged = [(signal, of) for name, of in searches if (signal := evidence.quantity(name))]
    if not logged:
        hidden = evidence.unmeasured("gradient_norm")
        said = hidden or "Neither advantages nor the gradient's norm are in the log"
        return not_logged(NAME, f"{said}.")
    findings = (of(evidence, signal) for signal, of in logged if len(signal) >= FEWEST_ROWS)
    return next(filter(None, findings), None) or no_sign(
        NAME, "No sign of an update that cannot be right."
    )


def _of_advantage(evidence: Evidence, advantage: Signal) -> Finding | None:
    """Advantages that no group of a thousand rollouts can have."""
    reward = evidence.reward
    if reward is None or str(evidence.setting("loss")).lower() in ("ppo", "gae"):
        return None
    limit = max(LARGEST_ADVANTAGE, OF_REWARD * float(np.abs(reward.value_T).max()))
    rows = np.flatnonzero(np.abs(advantage.value_T) > limit)
    if not rows.size:
        return None
    worst = float(advantage.value_T[rows][np.abs(advantage.value_T[rows]).argmax()])
    usual, step = median(advantage.value_T), advantage.step_at(rows[0])
    words = f"advantage {arrow(usual, worst)}"
    message = (
        f"{words} in {counted(rows.size, 'row')}, first at step {step:,}; no group has one above "
        f"{short(limit)}."
    )
    sign = Sign("advantage", step, usual, worst, words)
    return by_sign(NAME, Status.WARNING, message, sign, limit, Fact.ADVANTAGE_IMPOSSIBLE)


def _off_centre(evidence: Evidence, mean: Signal) -> Finding | None:
    """A mean advantage that is far from 0 in most rows, as without a baseline, or has left it."""
    early_T, late_T = (mean.value_T[rows] for rows in ends_of(mean))
    exactly = max(float(abs(early_T).max()), mean.resolution) < EXACTLY
    away_T = abs(mean.value_T) > (LEFT_EXACTLY if exactly else LEFT)
    left = abs(before := median(early_T)) < NEAR and bool(away_T[-len(late_T) :].all())
    usual = median(late_T if left else mean.value_T)
    if str(evidence.setting("loss")).lower() in WITHOUT_GROUPS or not (
        left or abs(usual) >= CENTRED
    ):
        return None
    row = row_after(~away_T) if left else 0
    step, words = mean.step_at(row), f"mean advantage {led_to(before if left else None, usual)}"
    where = f"since step {step:,}" if left else "in the median row"
    message = f"{words} {where}, where the mean of a group is taken off."
    sign, fact = Sign("advantage", step, None, usual, words), Fact.ADVANTAGE_OFF_CENTRE
    return by_sign(NAME, Status.WARNING, message, sign, CENTRED, fact)


def _of_norm(evidence: Evidence, norm: Signal) -> Finding | None:
    """A norm that is far from the usual from the first row on; one that grew or was lost later is
    another finding.
    """
    first, whole = median(norm.value_T[:_FIRST]), median(norm.value_T)
    below = progress_of(evidence).learning is not Learning.AT_TOP  # there nothing is to be learnt
    stands = below and evidence.reward is not None and evidence.gain_score < _MOVED
    if min(first, whole) > LARGE_NORM:
        limit, fact, more = LARGE_NORM, Fact.GRADIENT_ABOVE_USUAL, ""
    elif 0 < max(first, whole) < SMALL_NORM and stands and evidence.rewards_differ:
        limit, fact, more = SMALL_NORM, Fact.GRADIENT_BELOW_USUAL, " and rewards differ"
    else:
        return None
    words = f"gradient norm {short(whole)}"
    message = f"{words} from the first row on{more}; healthy runs have .01 to 13."
    sign = Sign("gradient_norm", norm.step_at(0), None, whole, words)
    return by_sign(NAME, Status.WARNING, message, sign, limit, fact)
