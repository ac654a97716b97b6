"""The step of each printed row: from the progress bars before them, else counted, and only as far
as the log proves it.

Two runs that print by turns are told from one whose epochs are rounded, and refused. No line of
text is read here.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from groupwise.readers.rows import RowStore
from groupwise.readers.source import counted
from groupwise.record.resolution import MOST_DECIMALS, fewest_decimals

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
Bars = dict[int, int]  # length of a progress bar -> how far it has come, the latest last

_STEP_NAMES = ("step", "global_step", "global_step/max_steps")
_MOST_FALLS = 0.1
_MOST_LOST = 0.2
_MOST_TIES = 0.25
_LEAST_ROWS = 8
_COUNTED = (
    "the log states no step, so the rows are counted: a row may be several steps (set "
    "logging_steps with --set)"
)


@dataclass(frozen=True, slots=True)
class Printed:
    """What was printed around the rows."""

    bars: Sequence[Bars]  # of each row, the progress bars before it
    reached: Mapping[int, int]  # length of a bar -> how far it came at all
    total: int | None = None  # optimiser steps that the trainer states at its start, or None
    epochs: int | None = None  # passes over the prompts that it states, or None
    ended: bool = False  # whether a summary of the whole training follows the last row


def training_rows(store: RowStore) -> Flags:
    """Return which rows are of the training: those with a loss or a reward, or all where none
    has either.
    """
    main = np.zeros(store.count, dtype=bool)
    for key in ("loss", "reward"):
        if key in store.names():
            main[store.sparse(key)[0]] = True
    return main if main.any() else np.ones(store.count, dtype=bool)


def steps_of(store: RowStore, printed: Printed) -> tuple[Array | None, list[str]]:
    """Return the step of each row where the log has no step key, and notes on where it comes from.

    A bar may stand behind by the rows that were printed to another stream and so collected later;
    then the even spacing of the rows up to the last step is taken, if the log proves which that
    was.
    """
    if any(key in _STEP_NAMES for key in store.names()):
        return None, []
    main = training_rows(store)
    follows = _bars_before(printed, main)
    by_bars, lost = _by_bars(_positions(printed, follows), main)
    if by_bars is not None:
        note = "the step of a row is the position of the progress bar printed before it"
        if lost:
            rows = counted(
                lost, "row has no bar of its own and is", "rows have no bar of their own and are"
            )
            note += f"; {rows} put between the neighbours"
        return by_bars, [note]
    order, falls = _counted_rows(store, main)
    count = int(order.max())
    notes = (
        [
            (
                f"the epoch drops back {counted(falls, 'time')}: the rows are counted on from the "
                "row before that epoch"
            )
        ]
        if falls
        else []
    )
    total, words = _last_step(store, printed, follows)
    spacing = round(total / count)
    if spacing >= 1 and spacing * count <= total < spacing * (count + 1):
        rows = counted(count, "row")
        return order * spacing, [
            *notes,
            f"the steps are counted: {rows} over the {total} steps {words}, one every {spacing}",
        ]
    return order, [*notes, _COUNTED]


def _bars_before(printed: Printed, main: Flags) -> Counter[int]:
    """Return how many rows of the training follow the bar of each length."""
    rows = zip(printed.bars, main.tolist(), strict=True)
    return Counter(next(reversed(seen)) for seen, trains in rows if trains and seen)


def _positions(printed: Printed, follows: Counter[int]) -> Array:
    """Return how far the training's bar stood before each row; the bar of an evaluation, which
    rows of training do not follow, is none.
    """
    least = max(1, _MOST_FALLS * max(follows.values(), default=0))
    lengths = {length for length, rows in follows.items() if rows > least} or set(follows)
    lengths |= {printed.total} & set(follows)
    latest = (
        next((seen[length] for length in reversed(seen) if length in lengths), 0)
        for seen in printed.bars
    )
    return np.array(list(latest), dtype=np.float64)


def _by_bars(done: Array, main: Flags) -> tuple[Array | None, int]:
    """Return the step of each row by the bars, and how many rows had to be put between others;
    None where the bars are no clock.
    """
    at = done[main]
    if not len(at):
        return None, 0
    gaps = np.diff(at)
    own = at > 0
    own[1:] &= gaps != 0
    lost = int((~own).sum())
    if (
        (gaps < 0).sum() > max(1, _MOST_FALLS * len(at))
        or lost > max(1, _MOST_LOST * len(at))
        or own.sum() < min(2, len(at))
    ):
        return None, 0
    placed = _between(at, own) if lost else at
    if placed is None:
        return None, 0
    step = done.copy()
    step[main] = placed
    # An evaluation follows the row of training at whose bar it stands.
    before = np.cumsum(main) - 1
    aside = ~main & (before >= 0)
    same = aside & (done == at[np.maximum(before, 0)])
    step[same] = placed[before[same]]
    return step, lost


def _between(at: Array, own: Flags) -> Array | None:
    """Return positions with the lost ones put between their neighbours; None where there is no room
    for them.

    Beside a restart a lost one stays unknown.
    """
    known, rows = np.flatnonzero(own), np.arange(len(at))
    steps, apart = np.diff(at[known]), np.diff(known)
    if ((steps >= 0) & (steps < apart)).any():
        return None
    beyond = rows - np.clip(rows, known[0], known[-1])
    placed = np.round(np.interp(rows, known, at[known]) + beyond * np.median(steps / apart))
    before = np.clip(np.searchsorted(known, rows) - 1, 0, len(steps) - 1)
    placed[~own & ((steps[before] < 0) | (placed <= 0))] = math.nan
    return placed


def _last_step(store: RowStore, printed: Printed, follows: Counter[int]) -> tuple[int, str]:
    """Return the step of the last row as far as the log proves it, else 0, and the words for
    where it is from.
    """
    usual = max(follows, key=lambda length: follows[length], default=0)
    length = printed.total if printed.total in printed.reached else usual
    reached = printed.reached.get(length or 0, 0)
    if length and (printed.ended or reached == length):
        return reached, "that the progress bar has come to"
    epoch = store.sparse("epoch")[1][-1:]
    if printed.ended and not length and not (printed.epochs and epoch <= printed.epochs - 1):
        return printed.total or 0, "that the log states"
    return 0, ""


def _counted_rows(store: RowStore, main: Flags) -> tuple[Array, int]:
    """Return the number of each row among those of training, and how often it drops back because
    the epoch does: after a restart.
    """
    epoch = store.dense("epoch") if "epoch" in store.names() else np.full(store.count, np.nan)
    order, falls, now = np.ones(store.count), 0, 0
    stood: list[float] = []
    for row, trains in enumerate(main.tolist()):
        if trains:
            at = float(epoch[row])
            if stood and at < stood[-1]:
                falls, stood = falls + 1, stood[: bisect_left(stood, at)]
            stood.append(at if at == at else (stood[-1] if stood else -math.inf))
            now = len(stood)
        order[row] = max(now, 1)
    return order, falls


def by_turns(store: RowStore, printed: Printed) -> tuple[bool, Flags]:
    """Return whether several runs print by turns, and which rows were printed before with the same
    values, as by another process of one run.

    The epochs of one run rise, or are equal where the rounding makes them so.
    """
    again, trains = np.zeros(store.count, dtype=bool), training_rows(store)
    main, names = np.flatnonzero(trains), store.names()
    if "epoch" not in names or len(main) < _LEAST_ROWS or any(key in _STEP_NAMES for key in names):
        return False, again
    epoch = store.dense("epoch")[main]
    done = _positions(printed, _bars_before(printed, trains))
    if not np.isfinite(epoch).all() or _by_bars(done, trains)[0] is not None:
        return False, again
    gaps = np.diff(epoch)
    if (gaps < 0).sum() > max(3, _MOST_FALLS * len(epoch)):
        return True, again
    places = fewest_decimals(epoch)
    resolution = 10.0 ** -(MOST_DECIMALS if places is None else places)
    if gaps.max() < 1.5 * resolution:
        return False, again
    values = np.column_stack([store.dense(key)[main] for key in names])
    same = np.append(
        False, ((values[1:] == values[:-1]) | np.isnan(values[1:] + values[:-1])).all(axis=1)
    )
    again[main[same]] = True
    return bool(((gaps == 0) & ~same[1:]).mean() > _MOST_TIES), again
