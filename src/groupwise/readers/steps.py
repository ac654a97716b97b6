"""Rows of a log to one row a step: restarts superseded, event types joined, several rows of one
step averaged.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from groupwise.arrays import Columns, Flags, Float, Whole
from groupwise.errors import SeveralRunsError, UnreadableRunError
from groupwise.plain import frozen
from groupwise.readers.rows import (
    KIND_KEYS,
    RUN_KEYS,
    RowStore,
    clean_key,
    parse_number,
    plain,
    snake,
    spelled,
)
from groupwise.readers.source import counted, noted, shown, some_of, vocabulary

_EVALUATION = frozenset(vocabulary("evaluation"))
_HELD_OUT = re.compile(
    r"(eval|evaluation|val|valid|validation|test|dev|held_?-?out)[/_. -]", re.IGNORECASE
)
_EITHER = frozenset(vocabulary("of_either"))
_MOST_KINDS = 12
_UNORDERED_SHARE = 0.2
_AVERAGED_SHARE = 0.5
_ALL_BUT = 0.9  # of the rows: where fewer are read, the headline says so
_LARGEST_STEP = 2.0**53
_FRACTIONAL_SHARE = 0.1
_NUMBERED_RUNS = frozenset({"run", "run_id", "trial", "seed"})
_MOST_RUNS = 1000
_MOST_LISTED = 12


@frozen
class Merged:
    """One row a step."""

    step: Whole  # T steps, strictly increasing
    columns: Columns  # key -> T values, NaN where missing
    trained: Flags  # T flags, whether the step has a row that is not an evaluation alone
    rows: int  # rows that went in
    notes: tuple[str, ...]  # what was decided
    # T increasing numbers that the log gave as fractional steps, or None where its steps are whole
    clock: Float | None = None
    of: int = 0  # rows of the log, where many are of runs before; 0 of any other
    in_part: str = ""  # what is then said


def is_evaluation(key: str) -> bool:
    """Return whether a key belongs to an evaluation rather than to training."""
    return _HELD_OUT.match(key) is not None


def merge_rows(
    store: RowStore,
    step_R: Float,
    run_rows: Flags,
    *,
    hidden: Iterable[str] = (),
    cumulative: Iterable[str] = (),
) -> Merged:
    """Return one row a step, of the rows that are mine."""
    notes: list[str] = []
    kinds = _kinds(store, run_rows)
    trains = _main_rows(store, kinds)
    given, (step_R, clock) = step_R, _numbered(step_R, run_rows, trains)
    usable = _usable(step_R, run_rows, notes)
    notes += noted(int((~run_rows).sum()), "row", "rows", "of other runs left out")
    usable &= run_rows
    main = usable & trains
    if not main.any():
        main = usable
    kept, runs = _standing(np.where(usable, step_R, 0).astype(np.int64), usable, main, notes)
    step, index = np.unique(step_R[kept].astype(np.int64), return_inverse=True)
    place = np.full(store.count, -1, dtype=np.int64)
    place[kept] = index
    columns = _reduced(
        _named(store, kinds, set(hidden), set(cumulative)), (step, place), set(cumulative), notes
    )
    trained = np.zeros(len(step), dtype=bool)
    trained[index[main[kept]]] = True
    if given is not step_R:
        clock = None if clock is None else clock[step - 1]
        step = np.arange(1, len(step) + 1, dtype=np.int64)
        why = (
            ""
            if clock is not None
            else " in the order of the rows, for they fall too often to be a clock"
        )
        notes.append(
            f"the steps of the log are fractional, so they are numbered 1 to {len(step)}{why}"
        )
    rows, of = int(kept.sum()), int(usable.sum())
    merged = Merged(step, columns, trained, rows, tuple(notes), clock)
    if runs == 1 or rows >= _ALL_BUT * of:
        return merged
    in_part = f"last of {runs} runs: {rows:,} of {of:,} rows read"
    return replace(merged, of=of, in_part=in_part)


def _usable(step_R: Float, run_rows: Flags, notes: list[str]) -> Flags:
    """Return which rows have a step that can be kept exactly; the others are named with what is
    wrong with theirs.
    """
    finite = np.isfinite(step_R)
    exact = finite & (np.abs(step_R) < _LARGEST_STEP)
    whole: Flags = exact & (np.where(exact, step_R, 0) == np.floor(np.where(exact, step_R, 0)))
    if not whole[run_rows].any() and (finite & ~exact)[run_rows].any():
        raise UnreadableRunError(
            "expected steps below 2^53, got larger ones in every row: name another column with "
            "--column step=NAME"
        )
    if not whole[run_rows].any():
        raise UnreadableRunError(
            "expected whole numbers as steps, got none in any row: name the column with --column "
            "step=NAME"
        )
    reasons = (
        (~finite, "without a step"),
        (
            finite & ~exact,
            "with a step of 2^53 or more, where doubles no longer tell neighbours apart,",
        ),
        (exact & ~whole, "with a fractional step"),
    )
    for bad, words in reasons:
        notes += noted(int((bad & run_rows).sum()), "row", "rows", f"{words} left out")
    return whole


def _numbered(step_R: Float, run_rows: Flags, main: Flags) -> tuple[Float, Float | None]:
    """Return whole steps for fractional ones, and the number behind each step where that is a
    clock; whole ones stay as they are.

    Equal numbers are one step, so restarts and evaluations keep their places; where the numbers
    fall too often to be a clock, the rows are counted.
    """
    usable = run_rows & np.isfinite(step_R) & (np.abs(step_R) < _LARGEST_STEP)
    values = step_R[usable]
    if not len(values) or (values != np.floor(values)).mean() < _FRACTIONAL_SHARE:
        return step_R, None
    ordered = step_R[usable & main] if (usable & main).any() else values
    numbered = step_R.copy()
    if (np.diff(ordered) < 0).sum() > max(2, _UNORDERED_SHARE * len(ordered)):
        numbered[usable] = np.arange(1, len(values) + 1)
        return numbered, None
    clock, rank = np.unique(values, return_inverse=True)
    numbered[usable] = rank + 1
    return numbered, clock


def one_run(path: Path, names: Collection[str], chosen: str) -> str:
    """Return the name of the run to read: the one chosen, or the only one; raise with the list
    of runs where that is open.
    """
    if chosen in names or (not chosen and len(names) == 1):
        return chosen or next(iter(names))
    got = (
        f"no {chosen[:60]!r} among the {len(names)} runs of {shown(path)}"
        if chosen
        else f"{shown(path)}, which holds {len(names)} runs"
    )
    if not names:
        raise UnreadableRunError(
            f"expected a run in {shown(path)}, got none: nothing has been logged to it yet"
        )
    some = [f"#{clean_key(name)}" for name in islice(names, _MOST_LISTED)]
    more = f" and {len(names) - len(some)} more" if len(names) > len(some) else ""
    message = f"expected one run, got {got}: add one of {', '.join(some)}{more} to the path"
    raise UnreadableRunError(message) if chosen else SeveralRunsError(message, tuple(names))


def rows_of_run(store: RowStore, step_R: Float, path: Path, chosen: str, by: str = "") -> Flags:
    """Return which rows are of the run chosen, all of them where the table holds one; raise with
    the list where it holds several.

    `by` is a column that tells runs apart beside those which do so by their name.
    """
    keys = (*RUN_KEYS, *({spelled(by)} - set(RUN_KEYS) - {""}))
    columns = [
        (key, names)
        for key in keys
        for name, names in _run_columns(store, keys)
        if spelled(name) == key
    ]
    several = [names for key, names in columns if _are_several(key, names, step_R)]
    if several:
        name_of = _joined(several)
        name = one_run(path, dict.fromkeys(name for name in name_of if name), chosen)
        return np.array([row == name for row in name_of], dtype=bool)
    if not chosen:
        return np.ones(store.count, dtype=bool)
    run_rows = np.array(
        [chosen in names for names in zip(*(names for _, names in columns), strict=True)],
        dtype=bool,
    )
    if not run_rows.any():
        raise no_part(path, chosen)
    return run_rows


def no_part(path: Path, chosen: str) -> UnreadableRunError:
    """Return the refusal of a name behind "#" where there is one run."""
    return UnreadableRunError(
        f"expected a run {chosen[:60]!r}, got the log of one run in {shown(path)}: leave out "
        f"#{chosen[:60]}"
    )


def _joined(columns: Sequence[list[str]]) -> list[str]:
    """Return the name of each row's run by the first column, and by any further one that tells
    more runs apart.
    """
    name_of = columns[0]
    for names in columns[1:]:
        if len(set(zip(name_of, names, strict=True))) > len(set(name_of)):
            name_of = [f"{first}/{other}" for first, other in zip(name_of, names, strict=True)]
    return name_of


def labels_of(store: RowStore, run_rows: Flags) -> dict[str, str]:
    """Return the texts that the rows of a run share, by column; a text that most rows lack is
    none of the run's.
    """
    own = {
        key: [text for row, text in cells.items() if run_rows[row]]
        for key, cells in store.labels.items()
    }
    return {
        key: texts[0]
        for key, texts in own.items()
        if 2 * len(texts) >= run_rows.sum() and len(set(texts)) == 1
    }


def _run_columns(store: RowStore, keys: Collection[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the columns that may tell runs apart, with the name that each row has there, "" for
    none.
    """
    for key, labels in store.labels.items():
        if spelled(key) in keys:
            yield key, [labels.get(row, "") for row in range(store.count)]
    for key in store.names():
        if (
            spelled(key) in keys
            and (spelled(key) in _NUMBERED_RUNS or spelled(key) not in RUN_KEYS)
            and key not in store.labels
        ):
            yield (
                key,
                ["" if value != value else f"{value:g}" for value in store.dense(key).tolist()],
            )


def _are_several(key: str, names: Sequence[str], step_R: Float) -> bool:
    """Return whether a column tells several runs apart; a number may also count the restarts of
    one, whose steps go on.
    """
    labels = sorted(set(names) - {""})
    if not 1 < len(labels) <= _MOST_RUNS or 2 * len(labels) > len(names):
        return False
    if key == "seed" or not all(parse_number(name) is not None for name in labels):
        return True
    at = np.array(names)
    first, second = (set(step_R[at == name].tolist()) for name in labels[:2])
    return 2 * len(first & second) > min(len(first), len(second))


def _kinds(store: RowStore, run_rows: Flags) -> NDArray[np.object_] | None:
    """Return the event type of each row, or None where the rows that are mine have one type
    only.
    """
    for key in KIND_KEYS:
        names = {name for row, name in store.labels.get(key, {}).items() if run_rows[row]}
        if 1 < len(names) <= _MOST_KINDS and len(store.labels[key]) == store.count:
            kinds = np.empty(store.count, dtype=object)
            for row, name in store.labels[key].items():
                kinds[row] = name
            return kinds if _differ(store, kinds, run_rows) else None
    return None


def _differ(store: RowStore, kinds: NDArray[np.object_], run_rows: Flags) -> bool:
    """Return whether types of events are told apart by more than their name: phases of one run
    hold the same columns.
    """
    if any(str(kind).lower() in _EVALUATION for kind in set(kinds[run_rows])):
        return True
    held: dict[str, set[str]] = {str(kind): set() for kind in set(kinds[run_rows])}
    for key in store.names():
        rows = store.sparse(key)[0]
        for kind in set(kinds[rows[run_rows[rows]]]):
            held[str(kind)].add(key)
    return len(set(map(frozenset, held.values()))) > 1


def _main_rows(store: RowStore, kinds: NDArray[np.object_] | None) -> Flags:
    """Return which rows are of training: an evaluation may be logged late without a restart."""
    if kinds is not None:
        return np.array([str(kind).lower() not in _EVALUATION for kind in kinds], dtype=bool)
    names = (key for key in store.names() if not is_evaluation(key) and not is_counter(key))
    return holding(store, [key for key in names if key.lower() not in _EITHER])


def _standing(step: Whole, usable: Flags, main: Flags, notes: list[str]) -> tuple[Flags, int]:
    """Return which rows count, those that a restart did not write again, and of how many runs
    they are the last.
    """
    position = np.flatnonzero(main)
    falls = np.flatnonzero(np.diff(step[position]) < 0) + 1
    if not len(falls):
        return usable, 1
    if (
        len(falls) > max(2, _UNORDERED_SHARE * len(position))
        and (step[position[falls]] > step[position].min()).any()
    ):
        notes.append("the rows were not in the order of their steps and have been sorted")
        return usable, 1
    restarts = np.full(len(step) + 1, np.iinfo(np.int64).max)
    restarts[position[falls]] = step[position[falls]]
    kept = usable & (step < np.minimum.accumulate(restarts[::-1])[::-1][1:])
    restart = int(step[position[falls[-1]]])
    lost = int((usable & ~kept).sum())
    if not (kept[: position[falls[-1]]] & main[: position[falls[-1]]]).any():
        notes.append(
            f"the step starts again at {restart} after {counted(int(position[falls[-1]]), 'row')}: "
            "that looks like a second run in the same log, so the last run is read and "
            f"{counted(lost, 'row')} before it set aside"
        )
        return kept, len(falls) + 1
    times, back = (
        counted(len(falls), "time"),
        ", ".join(str(int(step[place])) for place in position[falls[:20]]),
    )
    notes.append(
        f"the run was restarted {times} (the step drops back to {back}): "
        f"{counted(lost, 'row')} superseded by what came after"
    )
    return kept, 1


def _reduced(
    columns: Iterable[tuple[str, Whole, Float]],
    placed: tuple[Whole, Whole],
    cumulative: set[str],
    notes: list[str],
) -> dict[str, Float]:
    """Return each key, one value a step, by the steps and the place of each row's step
    (-1 for none): the mean, the last or the largest of several.
    """
    step, place = placed
    length = int(place.max()) + 1
    reduced: dict[str, Float] = {}
    averaged: dict[str, int] = {}
    repeated: set[int] = set()
    for name, rows, values in columns:
        good = (place[rows] >= 0) & ~np.isnan(values)
        where, value = place[rows][good], values[good]
        filled = reduced[name] = np.full(length, np.nan)
        filled[where] = value  # the last one stays
        if not len(where) or (np.diff(where) > 0).all():
            continue
        number = pl.col("number")
        groups = (
            pl.DataFrame({"place": where, "number": value})
            .group_by("place")
            .agg(pl.len(), low=number.min(), high=number.max(), mean=number.mean())
        )
        at, rows_of, low, high, mean = (column.to_numpy() for column in groups)
        differs, several = low < high, (rows_of > 1).sum()
        if name in cumulative:
            filled[at] = high
        elif differs.sum() >= _AVERAGED_SHARE * len(at) or several >= 0.9 * len(at):
            filled[at] = mean
            if differs.any():
                averaged[name] = int(rows_of.max())
        else:
            repeated.update(at[differs].tolist())
    if averaged:
        most = max(averaged.values())
        notes.append(
            f"several rows of one step were averaged, up to {most} rows a step "
            f"({some_of(list(averaged))})"
        )
    first = f"logged more than once (at {step[min(repeated, default=0)]}): the last values are kept"
    notes += noted(len(repeated), "step", "steps", first)
    return reduced


def _named(
    store: RowStore, kinds: NDArray[np.object_] | None, hidden: set[str], cumulative: set[str]
) -> Iterable[tuple[str, Whole, Float]]:
    """Yield each key with its rows and values; a key of several event types becomes one key a
    type.
    """
    for key in store.names():
        if key in hidden:
            continue
        rows, values = store.sparse(key)
        if kinds is None:
            yield key, rows, values
            continue
        here = kinds[rows]
        types = list(dict.fromkeys(here.tolist()))
        training = [kind for kind in types if str(kind).lower() not in _EVALUATION]
        for kind in types:
            chosen = here == kind
            if str(kind).lower() in _EVALUATION:
                yield (key if is_evaluation(key) else f"eval/{key}"), rows[chosen], values[chosen]
            elif len(training) == 1:
                yield key, rows[chosen], values[chosen]
            elif key not in cumulative:
                yield f"{kind}/{key}", rows[chosen], values[chosen]
        if key in cumulative and len(training) > 1:
            chosen = np.isin(here, training)
            yield key, rows[chosen], values[chosen]


CALLS = "_step"  # W&B's count of calls
STEP_KEYS = vocabulary("step")
_COUNTER = re.compile(
    r"(?:train|training|trainer|rollouts?|eval|evaluation|val|valid|validation|test"
    r"|progress|misc)/_?(?:global_)?steps?|_step"
)


def is_counter(key: str) -> bool:
    """Return whether a key counts steps and measures nothing."""
    return _COUNTER.fullmatch(plain(key)) is not None


def step_column(store: RowStore) -> tuple[str, Float | None, str]:
    """Return the column that tells the step of each row."""
    named: dict[str, str] = {}
    for key in store.names():
        named.setdefault(plain(snake(key)).replace(".", "/").replace(" ", "_"), key)
    present = [named[name] for name in STEP_KEYS if name in named]
    if CALLS in named and len(present) > 1:
        return _beside_calls(store, [key for key in present if key != named[CALLS]], named[CALLS])
    for counted_in in (_whole_values, _increasing_values):
        best = max(present, key=lambda key: counted_in(store.sparse(key)[1]), default="")
        if best and counted_in(store.sparse(best)[1]) * 2 >= store.count:
            return best, store.dense(best), ""
    return "", None, ""


def _beside_calls(store: RowStore, keys: list[str], calls: str) -> tuple[str, Float, str]:
    """Return the trainer's own counter in a history of W&B, each row without it counted with the
    next that has it.
    """
    most = max(_whole_values(store.sparse(key)[1]) for key in keys)
    best = next(
        (key for key in keys if most and 2 * _whole_values(store.sparse(key)[1]) >= most), ""
    )
    own = store.dense(calls)
    if not best:
        return calls, own, ""
    step = store.dense(best)
    both = np.isfinite(step) & np.isfinite(own)
    if (
        both.sum() > 1 and (step[both] == own[both]).all()
    ):  # as where the trainer gives W&B its own step
        return best, np.where(np.isfinite(step), step, own), ""
    # What is timed within a step is logged before it: a missing step is that of the next row that
    # has one.
    carried = (
        pl.Series(np.where(np.isfinite(step), step, np.nan))
        .fill_nan(None)
        .fill_null(strategy="backward")
        .to_numpy()
    )
    return best, carried, f"the step of a row is its {best}, or that of the row after it"


def _whole_values(values: Float) -> int:
    """Return how many values are whole numbers."""
    return int((np.isfinite(values) & (values == np.floor(values))).sum())


def _increasing_values(values: Float) -> int:
    """Return how many values there are where they increase but for a few restarts, as fractional
    steps do; else 0.
    """
    finite = values[np.isfinite(values)]
    return len(finite) if len(finite) > 1 and (np.diff(finite) <= 0).mean() <= 0.2 else 0


_ROLLOUT = ("rollout/raw_reward", "rollout/rewards", "rollout/response_len/mean")
_NUMBERED = ("rollout/step", "eval/step")
_NO_UPDATE = ("rollout/", "eval/")


def rollout_numbers(store: RowStore, *, tracked: bool = False) -> tuple[int, Float | None, str]:
    """Return the optimiser updates of one of slime's rollouts, the rollout of each row, and a note.

    `tracked`: whether a tracker numbers each row by the counter that slime has for it, and does so
    under "step".
    """
    names = store.names()
    if not tracked and not {"rollout/step", "train/step"} & set(names):
        return 0, None, ""
    rollouts = holding(store, _ROLLOUT)
    updates = holding(store, [name for name in names if name.startswith("train/")])
    updates &= ~holding(store, [name for name in names if name.startswith(_NO_UPDATE)])
    stated, counter = store.dense("step"), store.dense("rollout/step")
    both = np.isfinite(stated) & np.isfinite(counter)
    if not tracked and np.isfinite(stated).all() and (stated[both] == counter[both]).all():
        return 0, None, ""
    own, update = (_first(store, keys, stated) for keys in (_NUMBERED, ("train/step",)))
    each, step = _by_updates(rollouts, updates, own, update)
    if not each:
        return 0, step if not tracked and np.isfinite(own[rollouts]).any() else None, ""
    what = f"{counted(each, 'optimiser update')} of each rollout"
    return (
        each,
        step,
        f"slime numbers the rows of training by updates: they are put with their rollout, {what}",
    )


def _by_updates(rollouts: Flags, updates: Flags, own: Float, update: Float) -> tuple[int, Float]:
    """Return the updates of a rollout, 0 where that cannot be told, and the rollout of each row."""
    first, last = own[rollouts & np.isfinite(own)], update[updates & np.isfinite(update)]
    if not len(first) or not len(last):
        return 0, own
    # The last of both are of one rollout, or of neighbours where the log was cut off.
    each = max(1, round((float(last.max()) + 1) / (float(first.max()) + 1)))
    return each, np.where(updates, update // each, own)


def holding(store: RowStore, names: Sequence[str]) -> Flags:
    """Return which rows hold any of the keys."""
    holds = np.zeros(store.count, dtype=bool)
    for name in names:
        holds[store.sparse(name)[0]] = True
    return holds


def _first(store: RowStore, keys: Sequence[str], otherwise: Float) -> Float:
    """Return the first of the keys that each row has, else another number."""
    first = otherwise
    for key in reversed(keys):
        values = store.dense(key)
        first = np.where(np.isfinite(values), values, first)
    return first
