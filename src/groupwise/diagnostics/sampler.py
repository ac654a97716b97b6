r"""By which signature sampler and trainer differ: each cause of the gap leaves another one.

With the mean gap d of log-probability a token, and the mean importance ratio w: a truncated
distribution (top-p, top-k, min-p) keeps a share $e^{-d}$ of the mass, so that $w = e^{-d}$ from the
first row on; a ratio that is summed over tokens is far below $e^{-d}$; weights that never arrive
let d grow as the KL to the first policy does, while nothing is learnt. Whether they differ too much
is judged in `beyond`.
"""

from __future__ import annotations

import math
import re

import numpy as np

from groupwise.arrays import Float, mean_ranks, median
from groupwise.diagnostics.facts import Fact
from groupwise.diagnostics.signals import FEWEST_ROWS, Evidence, Signal

# A mean ratio below .97 is more than rounding. It counts as e^-gap where its logarithm is within
# 35 % of the gap.
KEPT, FAR_BELOW, ALIKE, SUMMED, TINY = 0.97, 0.9, 0.35, 5.0, 1e-6
# The share of rows whose largest ratio is one number from which that is a cap.
CAPPED = 0.8
# A gap that stands, grows, or goes with another column, by rank.
STEADY, GREW, TOGETHER, TOGETHER_IN_ROWS = 0.3, 3.0, 0.8, 0.3
# Probabilities of one token by both engines: below it more than rounding parts them.
CORRELATED = 0.8
_FIRST = 10
_MOVED = 3.0  # standard errors by which a reward has moved
# The gap of one turn of a rollout, in a column of its own.
_GAP = re.compile(r"mismatch|log_?p(?:rob)?s?_?diff|rollout_corr|kl_sample", re.IGNORECASE)
_TURN = re.compile(r"turn[_/]?(\d{1,3})\b", re.IGNORECASE)


def gaps_by_turn(evidence: Evidence) -> list[Signal]:
    """Return the gap of each turn, where the log has a column a turn."""
    gaps = {
        int(turn[1]): signal
        for signal in evidence.matching(".*turn.*")
        if (gap := _GAP.search(signal.column))
        and (turn := _TURN.search(signal.column, gap.end()))
        and len(signal) >= 2 * _FIRST
    }
    return [gaps[turn] for turn in sorted(gaps)]


def signature(evidence: Evidence) -> tuple[Fact, str] | None:
    """Return the fact that the gap speaks for, with its numbers in words; None where none."""
    correlation = evidence.quantity("sampler_correlation")
    if correlation is not None and len(correlation) >= 2 * _FIRST:
        _, last = _ends(correlation.value_T)
        if last < CORRELATED:
            return Fact.CORRELATION_LOW, f"token probabilities correlate by {last:.2f}"
    ends = [_ends(np.abs(turn.value_T))[1] for turn in gaps_by_turn(evidence)]
    if len(ends) > 1 and ends == sorted(ends) and ends[-1] > GREW * ends[0]:
        return (
            Fact.GAP_FOLLOWS_TURNS,
            f"the gap is {ends[0]:.2g} at first, {ends[-1]:.2g} at turn {len(ends)}",
        )
    gap, ratio = evidence.quantity("sampler_mismatch"), evidence.quantity("sampler_ratio")
    if gap is None or len(gap) < 2 * _FIRST:
        return None
    early, late = _ends(np.abs(gap.value_T))
    if ratio is not None and len(ratio) >= 2 * _FIRST and early > 0:
        first, last = _ends(ratio.value_T)
        words = f"mean ratio {first:.3g}, gap {early:.2g} nats (e^-gap is {math.exp(-early):.3g})"
        logs = [math.log(max(end, TINY)) for end in (first, last)]
        far = max(-math.log(FAR_BELOW), SUMMED * early)
        if min(logs) > far or max(logs) < -far:
            return Fact.RATIO_SUMMED, words
        kept, capped = max(first, last) < KEPT, cap_of(evidence)
        steady = abs(last - first) <= STEADY * (1 - first)
        if kept and steady and abs(-logs[0] / early - 1) <= ALIKE:
            return Fact.SAMPLING_TRUNCATED, words
        if kept and capped:
            return Fact.RATIO_CAPPED, f"mean ratio {last:.3g}{capped}"
    return _companion(evidence, gap, grows=late > GREW * early > 0)


def cap_of(evidence: Evidence) -> str:
    """Say at which number the largest ratio stands; "" where it moves as the largest of many
    does.
    """
    most = evidence.quantity("sampler_ratio_max")
    if most is None or len(most) < 2 * _FIRST or (most.value_T == most.high).mean() <= CAPPED:
        return ""
    return f", ratios cut at {most.high:g} before they are logged"


def _companion(evidence: Evidence, gap: Signal, *, grows: bool) -> tuple[Fact, str] | None:
    """Return the fact that another column which goes with the gap speaks for, in words."""
    stands = evidence.reward is not None and evidence.gain_score < _MOVED
    for quantity, fact, words in _COMPANIONS:
        other = evidence.quantity(quantity)
        together, apart = (0.0, 0.0) if other is None else _rank_correlations(gap, other)
        if fact is Fact.GAP_FOLLOWS_KL and not (grows and stands):
            continue
        # Whatever grows goes with a gap that does; what drives it moves it from row to row.
        if fact is Fact.GAP_FOLLOWS_GRADIENT and apart < TOGETHER_IN_ROWS:
            continue
        if (-together if quantity == "entropy" else together) > TOGETHER:
            return fact, f"with {words} (rank correlation {together:.2g})"
    return None


# What the gap may go with, the fact that it speaks for, and the column in words; the first counts.
_COMPANIONS = (
    ("kl", Fact.GAP_FOLLOWS_KL, "the KL while the reward stands"),
    ("staleness", Fact.GAP_FOLLOWS_AGE, "the age of the rollouts"),
    ("turns", Fact.GAP_FOLLOWS_TURNS, "the number of turns"),
    ("tool_calls", Fact.GAP_FOLLOWS_TURNS, "the calls of tools"),
    ("entropy", Fact.GAP_GROWS_AS_ENTROPY_FALLS, "an entropy that falls"),
    ("gradient_norm", Fact.GAP_FOLLOWS_GRADIENT, "the gradient's norm"),
)


def _ends(value_T: Float) -> tuple[float, float]:
    """The median of the first rows and of the last."""
    few = min(_FIRST, max(3, len(value_T) // 4))
    return median(value_T[:few]), median(value_T[-few:])


def _rank_correlations(first: Signal, other: Signal) -> tuple[float, float]:
    """Spearman's correlation over the steps that both have, and that of their changes from row to
    row; 0 with few of them.
    """
    _, left, right = np.intersect1d(first.step_T, other.step_T, return_indices=True)
    if len(left) < 2 * FEWEST_ROWS:
        return 0.0, 0.0
    value_2T = np.stack([np.abs(first.value_T[left]), other.value_T[right]])
    pair = []
    for row_2T in (value_2T, np.diff(value_2T)):
        rank_2T = np.stack([mean_ranks(row_T) for row_T in row_2T])
        flat = rank_2T.std(axis=1).min() == 0
        pair.append(0.0 if flat else float(np.atleast_2d(np.corrcoef(rank_2T))[0, 1]))
    return pair[0], pair[1]
