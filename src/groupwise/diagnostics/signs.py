"""Which signals moved about a change, from which row, and by how much: raw numbers before, there
and after.

A signal is held against its own rows before the change and against how far it moved there; what it
did later is no yardstick.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from groupwise.arrays import Flags, Float, median
from groupwise.diagnostics.judgement import Sign
from groupwise.diagnostics.signals import Evidence, Signal
from groupwise.plain import frozen
from groupwise.wording import share, short

# Scatters of the rows before that a lasting move, and a spike, must exceed, and the part of the
# whole move that makes its first row.
_SCATTERS, _OF_SPIKES, _PART = 2.0, 4.0, 0.5
# The part of a move by which its first row stands apart from where it went.
_APART = 0.15
_FEWEST_BEFORE, _NEAR = 2, 4


@frozen
class Watched:
    """A signal that may move before, with or after a reward."""

    quantity: str  # canonical
    name: str  # as a reader calls it
    share: bool  # a share, compared by difference; else by ratio
    least: float  # the smallest difference, or ratio, that is a move
    spike: bool = False  # whether it leaps for a row and is told by its peak
    up: bool = False  # whether only a rise is a sign


WATCHED = (
    Watched("truncated_share", "truncated", share=True, least=0.1, up=True),
    Watched("completion_length", "length", share=False, least=1.3),
    Watched("entropy", "entropy", share=False, least=1.4),
    Watched("gradient_norm", "gradient norm", share=False, least=5.0, spike=True, up=True),
    Watched("kl", "KL", share=False, least=4.0, up=True),
    Watched("clip_ratio", "clipped tokens", share=False, least=4.0, up=True),
    Watched("sampler_mismatch", "sampler mismatch", share=False, least=4.0, up=True),
    Watched("dead_group_share", "zero-variance groups", share=True, least=0.3, up=True),
)


def moved(name: str, step: int, before: float, after: float) -> Sign:
    """Return the sign of a signal that goes by its own name."""
    return Sign(name, step, before, after, f"{name} {arrow(before, after)}")


def reach_of(evidence: Evidence) -> int:
    """Rows before a change in which its first sign is looked for."""
    return 6 if evidence.reward is None else max(6, len(evidence.reward) // 16)


def signs_about(
    evidence: Evidence, step: int, *, reach: int, end: int | None = None
) -> tuple[Sign, ...]:
    """Return the signals that moved from some rows before a step on, the earliest first.

    Args:
        evidence: the run.
        step: of the change.
        reach: rows of the reward before the step in which a first sign is looked for.
        end: the step at which a slow change ends, to which what only rises is looked at; length and
            entropy drift in health too.
    """
    reward = evidence.reward
    rows = evidence.record.steps["step"].to_numpy() if reward is None else reward.step_T
    place = int(np.searchsorted(rows, step))
    low = int(rows[max(0, place - reach)])
    signs = []
    for watched in WATCHED:
        signal = evidence.quantity(watched.quantity)
        over = end if watched.up and not watched.spike else None
        sign = None if signal is None else sign_of(signal, watched, low=low, step=step, end=over)
        if sign is not None:
            signs.append(_at_limit(evidence, sign))
    held = evidence.held_out
    if held is not None:
        sign = sign_of(
            held, Watched("held_out", "held-out reward", share=True, least=0.05), low=low, step=step
        )
        # A held-out reward that rises is no sign of a failure.
        signs += [] if sign is None or sign.rises else [sign]
    return tuple(sorted(signs, key=lambda sign: sign.step))


def sign_of(
    signal: Signal, watched: Watched, *, low: int, step: int, end: int | None = None
) -> Sign | None:
    """Return the move of a signal about a step, or None where it stayed within what it did
    before.
    """
    begin, onset = signal.at(low), signal.at(step)
    over = onset if end is None else max(onset, signal.at(end))
    few = max(3, len(signal) // 20)
    # The median and the scatter of these rows stand although the last of them may have begun to
    # move.
    before = slice(
        max(0, onset - max(24, len(signal) // 5)), max(onset - 4, min(onset, _FEWEST_BEFORE))
    )
    # A level leads to the change row by row; a spike counts just before it.
    start = max(begin, onset - _NEAR) if watched.spike else min(begin, before.stop)
    window = slice(start, min(len(signal), over + max(few, 4)))
    if (
        before.stop - before.start < _FEWEST_BEFORE
        or window.stop <= window.start
        or onset >= len(signal)
    ):
        return None
    y_T = _scaled(signal.value_T, before, watched, signal.resolution)
    if y_T is None:
        return None
    base, usual = median(y_T[before]), _usual(watched, y_T[before])
    moved = y_T[window] - base
    late = median(y_T[min(over, len(signal) - 1) : over + few]) - base
    # A spike just before the change counts as well as a level that lasts.
    farthest = window.start + int(np.argmax(moved if watched.up else np.abs(moved)))
    spiked = watched.spike or abs(late) <= usual
    peak = float(moved[farthest - window.start]) if spiked else late
    if abs(peak) <= (_usual(watched, y_T[before], spike=True) if spiked else usual) or (
        watched.up and peak < 0
    ):
        return None
    row = window.start + _first(
        np.sign(peak) * moved, max(usual, _PART * abs(peak)), max(onset - window.start, 0)
    )
    first, reached = _levels(signal, before, row, min(over, len(signal) - 1), few)
    there = float(signal.value_T[row])
    last = median(signal.value_T[row : row + max(5, len(signal) // 8)])
    if watched.spike:
        there = last = reached = float(signal.value_T[farthest])
    return Sign(
        watched.quantity,
        signal.step_at(row),
        first,
        last,
        _told(watched, first, there, last),
        reached=reached,
    )


def _usual(watched: Watched, before_T: Float, *, spike: bool = False) -> float:
    """How far a signal goes without moving: what matters, or its scatter before; single rows go
    farther.
    """
    least = watched.least if watched.share else float(np.log(watched.least))
    return max(least, (_OF_SPIKES if watched.spike or spike else _SCATTERS) * scatter(before_T))


def _scaled(value_T: Float, before: slice, watched: Watched, resolution: float) -> Float | None:
    """A share as it is; the logarithm of sizes, where next to nothing counts as a tenth of the
    usual and nothing before has no ratio.
    """
    if watched.share:
        return value_T
    if median(np.abs(value_T[before])) == 0:
        return None
    size = np.abs(value_T)
    usual = median(size[size > 0]) if (size > 0).any() else 1.0
    return np.log(np.maximum(size, max(0.1 * usual, resolution)))


def scatter(value_T: Float) -> float:
    """Return how far rows stand from their median, as a standard deviation of normal ones."""
    return 1.4826 * median(np.abs(value_T - median(value_T)))


def _first(moved_T: Float, usual: float, near: int) -> int:
    """The row from which a move lasts to the change: back from there over rows beyond the usual,
    one other row between them at most.
    """
    beyond: Flags = moved_T > usual
    later = np.flatnonzero(beyond[near:])
    row = near + int(later[0]) if later.size else int(np.argmax(moved_T))
    while row > 0 and (beyond[row - 1] or (row > 1 and beyond[row - 2])):
        row -= 1 if beyond[row - 1] else 2
    return row


def _levels(signal: Signal, before: slice, row: int, onset: int, few: int) -> tuple[float, float]:
    """The level before, and that since the change."""
    since = max(row, onset)
    return median(signal.value_T[before]), median(signal.value_T[since : since + few])


def _told(watched: Watched, first: float, there: float, last: float) -> str:
    """The move in words: before, at its first row where that stands apart from the level since,
    and that level.
    """
    apart = abs(last - there) > _APART * abs(there - first)
    if watched.quantity in ("truncated_share", "dead_group_share"):
        if apart:
            return f"{watched.name} {arrow_of_shares(first, there, last)}"
        return f"{share(last)} {watched.name} (was {share(first)})"
    return f"{watched.name} {arrow(first, *([there] if apart else []), last)}"


def _at_limit(evidence: Evidence, sign: Sign) -> Sign:
    """Say of a length that it stands at its limit."""
    limit = limit_of(evidence)
    if (
        sign.signal != "completion_length"
        or limit is None
        or sign.at_change is None
        or sign.at_change < 0.98 * limit
    ):
        return sign
    return replace(sign, words=f"{sign.words} = limit")


def limit_of(evidence: Evidence) -> float | None:
    """Return the limit of the completions where it is certain: where all are truncated it is
    their length, else what the settings say.
    """
    cut, length = evidence.quantity("truncated_share"), evidence.quantity("completion_length")
    if cut is not None and length is not None:
        _, cut_rows, its = np.intersect1d(cut.step_T, length.step_T, return_indices=True)
        full = length.value_T[its][cut.value_T[cut_rows] >= 0.999]
        if full.size >= 3 and np.ptp(full) <= 0.01 * full.max():
            return float(full.max())
    most = None if length is None else repeated_most(length)
    stated = evidence.setting("max_completion_length")
    # A limit that lengths go beyond is none of this run: a notebook's other cell, another unit.
    beyond = length is not None and stated is not None and length.high > 1.01 * float(stated)
    return most if stated is None or beyond else float(stated)


def repeated_most(length: Signal) -> float | None:
    """Return the largest mean length where many rows share it: only a limit makes them all
    alike.
    """
    most = length.high
    same = int((length.value_T >= 0.999 * most).sum())
    varies = length.low < 0.9 * most
    return most if varies and same >= max(5, len(length) // 10) else None


def led_to(before: float | None, now: float) -> str:
    """Write what a level is now, and what it was before where that is known: "0.012 → 0.31"."""
    return short(now) if before is None else arrow(before, now)


def arrow(*values: float) -> str:
    """Write levels that follow each other: "0.89 → 0.00", "314 → 512"."""
    return " → ".join(map(short, values))


def arrow_of_shares(*values: float) -> str:
    """Write shares that follow each other: "0.4 → 60 → 100 %"."""
    return f"{' → '.join(share(value).removesuffix(' %') for value in values)} %"
