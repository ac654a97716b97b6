"""The step of each printed row: from the progress bars before them, else counted, and only as far
as the log proves it.

Two runs that print by turns are told from one whose epochs are rounded, and refused. No line of
text is read here.
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from itertools import compress

import numpy as np

from groupwise.arrays import Flags, Float, Whole, floats
from groupwise.plain import frozen
from groupwise.readers.rows import STEP_KEYS, RowStore, holding
from groupwise.record.table import MOST_DECIMALS, fewest_decimals
from groupwise.wording import count

Bars = dict[int, int]  # length of a progress bar -> how far it has come, the latest last

_MOST_FALLS = 0.1
_MOST_LOST = 0.2
_LEAST_ROWS = 8
_APART = 0.1  # of rows of another counter that are not between the steps around them, at most
COUNTED = (
    "the log has no steps, so rows are counted: if a row covers several, give --set logging_steps=N"
)


@frozen
class Printed:
    """What was printed around the rows."""

    bars: Sequence[Bars]  # of each row, the progress bars before it
    reached: Mapping[int, int] = field(
        default_factory=dict
    )  # length of a bar -> how far it came at all
    # lengths of bars that carry another title than that of a training, such as Map
    titled: frozenset[int] = frozenset()
    total: int | None = None  # optimiser steps that the trainer states at its start, or None
    epochs: int | None = None  # passes over the prompts that it states, or None
    ended: bool = False  # whether a summary of the whole training follows the last row


def training_rows(store: RowStore) -> Flags:
    """Return which rows are of the training: those with a loss or a reward, or all where none
    has either.
    """
    main = holding(store, ("loss", "reward"))
    return main if main.any() else np.ones(store.count, dtype=bool)


def printed_steps(store: RowStore, printed: Printed) -> tuple[Float | None, list[str]]:
    """Return the step of each row where the log has no step key, and notes on where it comes from.

    A bar may stand behind by the rows that were printed to another stream and so collected later;
    then the even spacing of the rows up to the last step is taken, if the log proves which that
    was.
    """
    if any(key in STEP_KEYS for key in store.names()):
        return None, []
    main = training_rows(store)
    done = _positions(printed, main)
    by_bars, lost = _by_bars(done, main)
    if by_bars is not None:
        note = "the step of a row is the position of the preceding progress bar"
        if lost:
            rows = count(
                lost, "row has no bar of its own and is", "rows have no bar of their own and are"
            )
            note += f"; {rows} placed between their neighbours"
        return by_bars, [note]
    if store.share < 1:
        return store.number, [COUNTED]
    order, falls = _counted_rows(store, main)
    number = order.max()
    notes = (
        [f"the epoch goes back {count(falls, 'time')}; rows count on from the last earlier epoch"]
        if falls
        else []
    )
    total, words = _last_step(store, main, printed, number)
    spacing = round(total / number) if total else 0
    fits = spacing >= 1 and spacing * number <= total < spacing * (number + 1)
    # else the bars may have stopped before the rows did
    whole = printed.ended or printed.reached.get(total) == total
    if fits and (whole or _agrees(order[main] * spacing, done[main])):
        rows = count(number, "row")
        return order * spacing, [
            *notes,
            f"the steps are counted: {rows} over the {total} steps {words}, one every {spacing}",
        ]
    return order, [*notes, COUNTED]


def _positions(printed: Printed, main: Flags) -> Float:
    """Return how far the training's bar stood before each row; the bar of an evaluation, which
    rows of training do not follow, is none.
    """
    follows, total = _latest(printed, main), printed.total
    lengths = {
        length
        for length, rows in follows.items()
        if rows > max(1, _MOST_FALLS * max(follows.values()))
    } or set(follows)
    if total is not None and total in follows:
        lengths.add(total)
    latest = (
        next((seen[length] for length in reversed(seen) if length in lengths), -1)
        for seen in printed.bars
    )
    return floats(list(latest))


def _latest(printed: Printed, main: Flags) -> Counter[int]:
    """Return before how many rows of the training each bar is the latest."""
    return Counter(next(reversed(seen)) for seen in compress(printed.bars, main) if seen)


def _by_bars(done: Float, main: Flags) -> tuple[Float | None, int]:
    """Return the step of each row by the bars, and how many rows had to be put between others;
    None where the bars are no clock.
    """
    at = done[main]
    gaps = np.diff(at)
    own = at > 0
    own[1:] &= gaps != 0
    lost = (~own).sum()
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


def _agrees(step: Float, at: Float) -> bool:
    """Return whether the bars that moved between rows stood at these steps, as far as any did."""
    moved = np.append(at[0] > 0, np.diff(at) > 0)
    return moved.sum() < 2 or float((step[moved] == at[moved]).mean()) >= 1 - _MOST_LOST


def _between(at: Float, own: Flags) -> Float | None:
    """Return positions with the lost ones put between their neighbours; None where there is no room
    for them.

    Beside a restart, or at an end where no spacing is known, a lost one stays unknown.
    """
    numbered, lost = np.flatnonzero(own), np.flatnonzero(~own)
    rows, steps = np.diff(numbered), np.diff(at[numbered])
    if ((steps >= 0) & (steps < rows) & (rows > 1)).any():
        return None
    usual = steps[(rows == 1) & (steps > 0)]
    spacing = np.median(usual) if len(usual) else math.nan
    placed = at.copy()
    placed[lost] = np.round(np.interp(lost, numbered, at[numbered]))
    for restart in np.flatnonzero(steps < 0):
        placed[numbered[restart] + 1 : numbered[restart + 1]] = math.nan
    early, late = lost[lost < numbered[0]], lost[lost > numbered[-1]]
    guess = at[numbered[0]] - spacing * (numbered[0] - early)
    # a bar at 0 is a position, too
    placed[early] = np.where(guess >= (at[early] < 0), guess, math.nan)
    placed[late] = at[numbered[-1]] + spacing * (late - numbered[-1])
    return placed


def _last_step(store: RowStore, main: Flags, printed: Printed, count: int) -> tuple[int, str]:
    """Return the step of the last row as far as the log proves it, else 0, and the words for
    where it is from.
    """
    length = printed.total
    if length not in printed.reached:
        last = _latest(printed, main)
        usual = max(last, key=last.__getitem__, default=0)
        length = usual if usual not in printed.titled else 0
    if length:
        return printed.reached.get(length, 0), "that the progress bar reached"
    if printed.total and _reached_its_end(store, main, printed, count):
        return printed.total, "that the log states"
    return 0, ""


def _reached_its_end(store: RowStore, main: Flags, printed: Printed, count: int) -> bool:
    """Return whether the log proves that the rows go up to the stated total: by their epochs,
    else by the summary at the end.
    """
    total = printed.total or 0
    epoch = store.dense("epoch")[main]
    epoch = epoch[np.isfinite(epoch)]
    if not printed.epochs or not len(epoch):
        return printed.ended
    at_end = printed.epochs * round(total / count) * count / max(total, 1)
    if abs(epoch[-1] - at_end) <= max(0.5 * printed.epochs / count, 0.006):
        return True
    # A number of steps that is no whole number of epochs ends within the last one that is stated.
    return printed.ended and printed.epochs - 1 < float(epoch[-1]) < printed.epochs


def _counted_rows(store: RowStore, main: Flags) -> tuple[Float, int]:
    """Return the number of each row among those of training, and how often it drops back because
    the epoch does: after a restart.
    """
    epoch = store.dense("epoch")
    order, falls, now = np.ones(store.count), 0, 0
    stood: list[float] = []
    for row, trains in enumerate(main.tolist()):
        if trains:
            at = epoch[row]
            if stood and at < stood[-1]:
                falls, stood = falls + 1, stood[: bisect_left(stood, at)]
            stood.append(at if at == at else (stood[-1] if stood else -math.inf))
            now = len(stood)
        order[row] = max(now, 1)
    return order, falls


def by_turns(store: RowStore, printed: Printed) -> tuple[int, Flags]:
    """Return how many runs print by turns, and which rows were printed before with the same values.

    Rows of one run have epochs that rise, or are equal where the rounding makes them so. Where each
    epoch comes several times and the next is more than the rounding away, or where epochs rise and
    fall all the time, rows with other values are of another run; with the same values they are of
    another process of one run.
    """
    again = np.zeros(store.count, dtype=bool)
    trains = training_rows(store)
    main, epoch = np.flatnonzero(trains), store.dense("epoch")[trains]
    if (
        len(main) < _LEAST_ROWS
        or not np.isfinite(epoch).all()
        or any(key in STEP_KEYS for key in store.names())
    ):
        return 1, again
    done = _positions(printed, trains)
    if _by_bars(done, trains)[0] is not None:
        return 1, again
    gaps = np.diff(epoch)
    if (gaps < 0).sum() > max(3, _MOST_FALLS * len(epoch)):
        return 2, again
    values, times = np.unique(epoch, return_counts=True)
    several = int(times.min(initial=len(epoch))) if len(values) < 2 else int(times[:-1].min())
    places = fewest_decimals(values)
    unit = 10.0 ** -(MOST_DECIMALS if places is None else places)
    rounded = len(values) < 3 or float(np.diff(values).min()) < 1.5 * unit
    if several < 2 or rounded or (gaps == 0).sum() * 2 < len(epoch) - len(values):
        return 1, again
    same, other = _compared(store, main)
    tied = np.flatnonzero(gaps == 0) + 1
    if other[tied].mean() > 0.5:
        return several, again
    again[main[tied[same[tied]]]] = True
    return 1, again


def _compared(store: RowStore, rows: Whole) -> tuple[Flags, Flags]:
    """Return which rows have the same values as the one before, and which another value at a key
    that both have.
    """
    same, other = np.ones(len(rows), dtype=bool), np.zeros(len(rows), dtype=bool)
    same[0] = False
    for key in store.names():
        values = store.dense(key)[rows]
        differs = values[1:] != values[:-1]
        missing = np.isnan(values)
        same[1:] &= ~differs | (missing[1:] & missing[:-1])
        other[1:] |= differs & ~missing[1:] & ~missing[:-1]
    return same, other


def within_steps(store: RowStore, results: Sequence[str], notes: list[str]) -> RowStore:
    """Return rows of which those that share no metric with one of a result, as another program
    prints them, stay between the steps around them.
    """
    step = store.dense("step")
    main = holding(store, results)
    shared = [
        name for name in store.names() if name != "step" and holding(store, [name])[main].any()
    ]
    main = holding(store, shared)
    low, high = _around(main, np.r_[-np.inf, step[main], np.inf])
    within = np.where(main, step, np.clip(step, low, high))
    if np.array_equal(within, step, equal_nan=True):
        return store
    notes.append("lines that share no metric with the other rows do not count steps")
    return _with_steps(store, within)


def on_one_clock(store: RowStore, rewards: Sequence[str], notes: list[str]) -> RowStore:
    """Return rows with one count of steps: those without a step, and those of another counter than
    the rewards' where it keeps another time, have that of the row before them, or behind where
    they come first.
    """
    marks, step = store.marks.get("counter", {}), store.dense("step")
    counter = np.array([marks.get(row, "") for row in range(store.count)])
    late = np.isnan(step)
    rewarded = holding(store, rewards) & ~late
    main = ~late & (np.isin(counter, counter[rewarded]) | ~rewarded.any())
    if not main.any():
        return store
    other = (counter != "") & ~main & ~late
    low, high = _around(main, np.pad(step[main], 1, "edge"))
    apart = other & ((low - 1 > step) | (step > high + 1))
    if apart.sum() > _APART * other.sum():
        late |= other
        notes.append(
            "rows that count by another name have the step of the row with a reward by them"
        )
    if not late.any():
        return store
    leads = (late & (other | holding(store, rewards)))[: main.argmax()].any()
    return _with_steps(store, np.where(late, high if leads else low, step))


def _around(main: Flags, padded: Float) -> tuple[Float, Float]:
    """Return the steps before and behind each row: those of some rows, and one at either end."""
    place = np.searchsorted(np.flatnonzero(main), np.arange(len(main)))
    return padded[place], padded[place + 1]


def _with_steps(store: RowStore, step: Float) -> RowStore:
    """Return the same rows with other steps."""
    store = store.placed(np.arange(store.count))
    store.set_column("step", step)
    return store


def of_whole_steps(store: RowStore, names: Sequence[str], part: str) -> RowStore:
    """Return a store of some of the names, in which what is said of parts of a step, by names that
    begin with `part`, counts only where nothing says it of the whole.
    """
    kept = {name: name.removeprefix(part) for name in names}
    return store.renamed(
        {name: whole for name, whole in kept.items() if name == whole or whole not in kept}
    )
