"""Rows of a log, collected column by column as they stream past, numbers kept and texts counted;
then one row a step: restarts superseded, event types joined, several rows of one step averaged.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cache, lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from groupwise import parsing
from groupwise.arrays import Columns, Flags, Float, Whole, floats
from groupwise.errors import SeveralRunsError, UnreadableRunError
from groupwise.parsing import JsonObject, JsonView
from groupwise.plain import frozen
from groupwise.readers.source import (
    Notes,
    bare,
    is_number,
    noted,
    shown,
    some_of,
    vocabulary,
)
from groupwise.record.table import THINNED, printed_decimals, thinned
from groupwise.wording import count

_DEPTH = 6
_MISSING = frozenset(vocabulary("missing"))
KIND_KEYS = vocabulary("kind")
RUN_KEYS = vocabulary("run")
# Of a long table, as trackers export them: what names the metric of a row, and its value.
METRIC_KEYS = vocabulary("metric")
VALUE_KEYS = vocabulary("value")
LISTED = vocabulary("listed")
_LONGEST_LABEL, _MOST_LABELS, _LONGEST_SCALAR = 80, 64, 160
Marks = dict[str, dict[int, Any]]
RowNames = NDArray[np.object_]  # a text a row
_LABELLED = frozenset((*RUN_KEYS, *METRIC_KEYS))
_NUMERIC = re.compile(r"[+-]?[.,]*+\d[\d.,]*+\s*+[%\w]{0,3}$")
_LONGEST_NUMBER = 64


def parse_number(text: str) -> float | None:
    """Return the number that a cell holds, NaN for an empty one, None for a text."""
    cell = bare(text[:_LONGEST_SCALAR]).strip()
    if not cell or cell.lower() in _MISSING:
        return math.nan
    if len(text) > _LONGEST_SCALAR or len(cell) > _LONGEST_NUMBER or "_" in cell:
        return None
    try:
        return float(cell)
    except ValueError:
        return {"true": 1.0, "false": 0.0}.get(cell.lower())


@lru_cache(maxsize=parsing.MOST_NAMES, typed=True)
def clean_key(key: Any) -> str:
    r"""Return a key as a text without control characters, at most 200 long."""
    return "".join(filter(str.isprintable, str(key))).strip()[:200] or "unnamed"


@lru_cache(maxsize=parsing.MOST_NAMES)
def plain_key(key: str) -> str:
    """Return a key as the rules see it: lower case, without blanks around "/", without a
    tracker's prefix.
    """
    return "/".join(map(str.strip, key.lower().split("/")))


def snake(key: str) -> str:
    """Return a key with "_" where a word within it begins with a capital letter."""
    return re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", "_", key)


@cache
def spelled(key: str) -> str:
    """Return a key in lower case with "_" between its words."""
    return re.sub(r"[ .]", "_", snake(key.strip()).lower())


def first_of(row: Mapping[Any, Any], keys: Iterable[str]) -> Any:
    """Return the cell of the first key that a row has, None where it has none."""
    return next((row[key] for key in keys if key in row), None)


def is_summary(row: Mapping[Any, Any]) -> bool:
    """Return whether a row sums up a whole training and is none of its steps."""
    return "train_runtime" in row and "reward" not in row and "loss" not in row


def summary_notes(skipped: int) -> Notes:
    """Return the note on rows that sum up a whole training."""
    return noted(skipped, "summary row of the training was", "summary rows of the training were")


def unwrapped(row: JsonObject) -> JsonView:
    """Return a row without the one key that holds its numbers."""
    if set(row) == {"step", "data"} and isinstance(row["data"], dict):
        return row["data"] | {"step": row["step"]}
    inner = row.get("metrics")
    if not isinstance(inner, dict) or inner.keys() & row.keys():
        return row
    return {key: value for key, value in row.items() if key != "metrics"} | inner


class _SparseColumn:
    """Values of one key with the rows that hold it."""

    __slots__ = ("rows", "values")

    def __init__(self, rows: ArrayLike = (), values: ArrayLike = ()) -> None:
        self.rows = array("i", np.asarray(rows, dtype=np.int32).tobytes())
        self.values = array("d", floats(values).tobytes())


def _moved(marks: Marks, place: Whole) -> Marks:
    """Return what is noted of rows at other places, -1 for none."""
    return {
        key: {int(place[row]): mark for row, mark in cells.items() if place[row] >= 0}
        for key, cells in marks.items()
    }


class RowStore:
    """The numbers of a log, by key."""

    def __init__(self, most_rows: int | None = None) -> None:
        self.count = 0  # rows that are kept
        self.read = 0  # rows that came
        self.share = 1.0  # of the rows that are kept, where there is no room for all
        self._most_rows = most_rows or parsing.MOST_ROWS
        self.texts: dict[str, int] = {}  # cells that hold a text
        self.labels: dict[
            str, dict[int, str]
        ] = {}  # row -> text, of keys that tell rows apart or hold few, short texts
        self.unread: dict[
            str, str
        ] = {}  # the first cell that begins as a number does and is none, such as 12ms
        self.decimals: dict[
            str, int
        ] = {}  # of the cells of a key, where a print shows a fixed number of them
        self.marks: Marks = {}  # row -> what a reader notes beside its cells
        self.too_wide = 0  # cells left out for too many keys
        self._number = array("q")  # of each row that is kept, among those that came
        self._columns: dict[str, _SparseColumn] = {}
        self._kinds: dict[str, set[str]] = {}
        self._varied: set[str] = set()

    @classmethod
    def of(cls, rows: Iterable[Mapping[Any, Any]]) -> RowStore:
        """Return a store of rows."""
        store = cls()
        store.extend(rows)
        return store

    def extend(self, rows: Iterable[Mapping[Any, Any]]) -> None:
        """Append rows; nested mappings are flattened with "/"."""
        for row in rows:
            self.add(row)

    def add(self, row: Mapping[Any, Any]) -> None:
        """Append one row."""
        if self.count >= self.most():
            self._thin()
        start = self.count
        self.too_wide += max(0, len(row) - parsing.MOST_NAMES)
        for key, cell in islice(row.items(), parsing.MOST_NAMES):
            self._cell(clean_key(key), cell)
        self._came(start, 1)

    def mark(self, **marks: Any) -> None:
        """Note something of the row that was added last."""
        for key, mark in marks.items():
            self.marks.setdefault(key, {})[self.count - 1] = mark

    def marked(self, key: str) -> list[Any]:
        """Return what was noted of each row."""
        return [self.marks[key][row] for row in range(self.count)]

    def add_cells(self, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Append rows of texts, as a CSV file holds them; short rows lack their last cells."""
        width = min(len(names), parsing.MOST_NAMES)
        self.too_wide += (len(names) - width) * len(rows)
        names = names[:width]
        if any(len(row) != width for row in rows):
            rows = [[*row[:width], *[""] * (width - len(row))] for row in rows]
        self.add_columns(names, list(zip(*rows, strict=True)), len(rows))

    def add_table(self, table: Sequence[pl.Series], length: int) -> None:
        """Append rows of numbers, flags and texts without gaps."""
        columns = [
            column.cast(pl.String).to_list()
            if column.dtype in (pl.String, pl.Boolean)
            else column.cast(pl.Float64).to_numpy()
            for column in table
        ]
        self.add_columns([column.name for column in table], columns, length)

    def add_columns(self, names: Sequence[str], columns: Sequence[Any], length: int) -> None:
        """Append rows by column; where a table has no room for more, rows before them go."""
        most = self.most(min(len(names), parsing.MOST_KEYS))
        if self.count >= most:
            self._thin()
        start, room = self.count, min(length, most - self.count)
        for name, cells in zip(map(clean_key, names), columns, strict=True):
            self.count = start
            part = cells[:room]
            if isinstance(part, np.ndarray):
                self._numbers(name, part)
                continue
            for cell in (*part[:1], *part[-1:]):  # a fixed format is that of all cells
                self.see_print(name, cell)
            try:
                self._numbers(name, np.fromiter(map(float, part), np.float64))
            except ValueError:
                for self.count, cell in enumerate(part, start):
                    self._text(name, cell)
        self._came(start, room)
        if room < length:
            self.add_columns(names, [cells[room:] for cells in columns], length - room)

    def most(self, width: int = 1) -> int:
        """Return how many rows the table may have, given its columns, or how many it will have."""
        return min(self._most_rows, max(2, parsing.MOST_CELLS // (len(self._columns) or width)))

    def _thin(self) -> None:
        """Keep a part of the rows, evenly, and the newest."""
        vars(self).update(vars(self.kept(thinned(self.count))))
        self.share *= THINNED

    def _came(self, start: int, rows: int) -> None:
        """Count rows that are appended."""
        self.count = start + rows
        self._number.extend(range(self.read, self.read + rows))
        self.read += rows

    @property
    def number(self) -> Float:
        """The number of each row among those that came, from 1."""
        return np.array(self._number, dtype=float) + 1

    def _room(self, name: str, cells: int = 1) -> _SparseColumn | None:
        """The column of a key; None where there is no room for the cells of a new one."""
        column = self._columns.get(name)
        if column is None and len(self._columns) < parsing.most_keys(self.count + 1):
            column = self._columns[name] = _SparseColumn()
        self.too_wide += cells if column is None else 0
        return column

    def _cell(self, name: str, value: Any, depth: int = 0) -> None:
        """Append one cell of any kind to the present row."""
        if isinstance(value, (str, bool)):
            self._text(name, str(value))
        elif isinstance(value, (float, int, np.number)):
            try:
                number = float(value)
            except OverflowError:
                number = math.inf if value > 0 else -math.inf
            if column := self._room(name):
                column.rows.append(self.count)
                column.values.append(number)
        elif isinstance(value, Mapping) and depth < _DEPTH:
            for key, inner in value.items():
                self._cell(f"{name}/{clean_key(key)}", inner, depth + 1)
        elif isinstance(value, list) and plain_key(name).rpartition("/")[2] in LISTED:
            self._listed(name, value)

    def see_print(self, name: str, text: str) -> None:
        """Note how many decimals a number was printed with."""
        decimals = printed_decimals(text)
        if decimals > self.decimals.get(name, 0) and len(self.decimals) < parsing.MOST_NAMES:
            self.decimals[name] = decimals

    def _listed(self, name: str, value: list[Any]) -> None:
        """Append the mean of the numbers of a list, their deviation and number, or of a list of
        groups of one size how many of how many.
        """
        nested = all(isinstance(group, list) for group in value)
        numbers = list(chain.from_iterable(value)) if nested else value
        if not numbers or not all(map(is_number, numbers)):
            return
        self._cell(name, sum(numbers) / len(numbers))
        if not nested and len(numbers) > 1:
            with np.errstate(all="ignore"):
                self._cell(f"{name}/std", np.std(np.array(numbers, dtype=float), ddof=1))
            self._cell(f"{name}/count", len(numbers))
        if nested and len(set(map(len, value))) == 1:
            self._cell(f"{name}/group_size", len(value[0]))
            self._cell(f"{name}/n_groups", len(value))

    def _text(self, name: str, value: str) -> None:
        """Append a cell that holds a text: perhaps a number, perhaps a label."""
        is_flag = name in _EVALUATION_MARKS and value.lower() in ("true", "false")
        number = None if is_flag else parse_number(value)
        if number is None and value[-1:] == "%":
            number = parse_number(value[:-1])
            if number and "%" not in name:
                number /= 100.0  # a share; a column that is in % by its name becomes one later
        if number is not None:
            if number == number:
                self.see_print(name, value)
                self._cell(name, number)
            return
        if "step" in name and "/" in value:
            done = parse_number(value.partition("/")[0])
            if done is not None and done == done:
                self._cell(name, done)
                return
        if len(self.texts) < parsing.MOST_KEYS or name in self.texts:
            self.texts[name] = self.texts.get(name, 0) + 1
            if (
                name not in self.unread
                and len(value) <= _LONGEST_NUMBER
                and _NUMERIC.match(value.strip())
            ):
                self.unread[name] = clean_key(value)[:20]
        if name in KIND_KEYS or spelled(name) in _LABELLED or self._is_label(name, value):
            self.labels.setdefault(name, {})[self.count] = clean_key(value)[:_LONGEST_LABEL]

    def _is_label(self, name: str, value: str) -> bool:
        """Return whether a text may be one of few, short ones; a column that turns out to hold
        others is forgotten.
        """
        if name in self._varied or name not in self.texts:
            return False
        kinds = self._kinds.setdefault(name, set())
        kinds.add(value[:_LONGEST_LABEL])
        if len(value) <= _LONGEST_LABEL and len(kinds) <= _MOST_LABELS:
            return True
        self._varied.add(name)
        self.labels.pop(name, None)
        return False

    def set_column(self, name: str, values: Float) -> None:
        """Put numbers, one a row, in the place of a column."""
        self._columns[name] = _SparseColumn(range(self.count), values)

    def _numbers(self, name: str, numbers: Float) -> None:
        """Append one number a row, from the current row on."""
        if column := self._room(name, len(numbers)):
            rows = np.arange(self.count, self.count + len(numbers), dtype=np.int32)
            column.rows.frombytes(rows.tobytes())
            column.values.frombytes(numbers.tobytes())

    def left_out_notes(self) -> Notes:
        """Return notes on keys and rows that were too many."""
        return [parsing.left_out(self.too_wide)] if self.too_wide else []

    def kept(self, stays: Flags) -> RowStore:
        """Return the rows whose flag is set, in their order; what was counted of cells stays as
        it is.
        """
        return self.placed(np.where(stays, np.cumsum(stays) - 1, -1))

    def placed(self, place: Whole) -> RowStore:
        """Return the rows at other places, -1 for none."""
        store = copy(self)
        store.count, store._columns = int((place >= 0).sum()), {}
        number = np.zeros(store.count, dtype=np.int64)
        number[place[place >= 0]] = np.array(self._number)[place >= 0]
        store._number = array("q", number.tobytes())
        for key in self.names():
            rows, values = self.sparse(key)
            order = np.argsort(place[rows])[(place[rows] < 0).sum() :]
            if len(order):
                store._columns[key] = _SparseColumn(place[rows[order]], values[order])
        store.labels, store.marks = _moved(self.labels, place), _moved(self.marks, place)
        return store

    def by_metric(self, step: Float) -> RowStore | None:
        """Return a long table, each of whose rows names one metric with its value, with a column
        a metric, by step; None for another.
        """
        whole = {
            spelled(key): key for key, cells in self.labels.items() if len(cells) == self.count
        }
        metric = first_of(whole, METRIC_KEYS)
        value = next((key for key in self._columns if spelled(key) in VALUE_KEYS), "")
        if not metric or not value:
            return None
        # each metric may stand by itself: a step that falls is no restart
        store = self.placed(np.argsort(np.argsort(step, kind="stable")))
        rows, values = store.sparse(value)
        names = np.array([store.labels[metric][row] for row in rows.tolist()], dtype=object)
        del store.labels[metric], store._columns[value]
        for name in dict.fromkeys(names.tolist()):
            own = names == name
            store._columns[name] = _SparseColumn(rows[own], values[own])
        store.labels = {
            "run_name" if spelled(key) == "name" else key: cells
            for key, cells in store.labels.items()
        }
        return store

    def renamed(self, names: Mapping[str, str]) -> RowStore:
        """Return some of the columns under other names."""
        store = copy(self)
        store.labels, store.marks = {}, {}
        for part in ("texts", "unread", "decimals", "_columns"):
            cells = getattr(self, part)
            setattr(store, part, {new: cells[old] for old, new in names.items() if old in cells})
        return store

    def names(self) -> list[str]:
        """Return the keys that hold a number somewhere, in the order of their first appearance."""
        return list(self._columns)

    def sparse(self, key: str) -> tuple[Whole, Float]:
        """Return the rows that hold the key, and their values."""
        column = self._columns.get(key) or _SparseColumn()
        return np.array(column.rows, dtype=np.int64), np.array(column.values)

    def dense(self, key: str) -> Float:
        """Return the value of every row, NaN where the key is missing."""
        filled = np.full(self.count, np.nan)
        rows, values = self.sparse(key)
        filled[rows] = values
        return filled


_EVALUATION = frozenset((*vocabulary("evaluation"), "true"))
_EVALUATION_MARKS = vocabulary("evaluation_mark")
HELD_OUT = r"(eval|evaluation|val|valid|validation|test|dev|held_?-?out)s?"  # what it is called
_HELD_OUT = re.compile(rf"{HELD_OUT}[/_. -]", re.IGNORECASE)
_EITHER = vocabulary("of_either")
_MOST_KINDS = 12
_UNORDERED_SHARE = 0.2
_AVERAGED_SHARE = 0.5
_ALL_BUT = 0.9  # of the rows: where fewer are read, the headline says so
_LARGEST_STEP = 2.0**53
_FRACTIONAL_SHARE = 0.1
_NUMBERED_RUNS = vocabulary("numbered_run")
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
    hidden: Collection[str],
    cumulative: Collection[str],
) -> Merged:
    """Return one row a step, of the rows that are mine."""
    notes: Notes = []
    kinds = _kinds(store, run_rows)
    trains = _main_rows(store, kinds)
    given, (step_R, clock) = step_R, _numbered(step_R, run_rows, trains)
    usable = _usable(step_R, run_rows, notes)
    notes += noted((~run_rows).sum(), "row of other runs was", "rows of other runs were")
    usable &= run_rows
    main = usable & trains
    if not main.any():
        main = usable
    kept, runs = _standing(np.where(usable, step_R, 0).astype(np.int64), usable, main, notes)
    step, index = np.unique(step_R[kept].astype(np.int64), return_inverse=True)
    place = np.full(store.count, -1, dtype=np.int64)
    place[kept] = index
    columns = _reduced(_named(store, kinds, hidden, cumulative), (step, place), cumulative, notes)
    trained = np.zeros(len(step), dtype=bool)
    trained[index[main[kept]]] = True
    if given is not step_R:
        clock = None if clock is None else clock[step - 1]
        step = np.arange(1, len(step) + 1, dtype=np.int64)
        why = (
            ""
            if clock is not None
            else " in the order of the rows, because they decrease too often to be a clock"
        )
        notes.append(
            f"the steps of the log are fractional, so they are numbered 1 to {len(step)}{why}"
        )
    rows, of = int(kept.sum()), int(usable.sum())
    merged = Merged(step, columns, trained, rows, tuple(notes), clock)
    if runs == 1 or rows >= _ALL_BUT * of:
        return merged
    return replace(merged, of=of, in_part=f"last of {runs} runs: {rows:,} of {of:,} rows were read")


def whole_steps(values: Float) -> Flags:
    """Return which values are whole numbers that can be a step."""
    whole: Flags = (np.abs(values) < _LARGEST_STEP) & (values == np.floor(values))
    return whole


def _usable(step_R: Float, run_rows: Flags, notes: Notes) -> Flags:
    """Return which rows have a step that can be kept exactly; the others are named with what is
    wrong with theirs.
    """
    finite = np.isfinite(step_R)
    exact = np.abs(step_R) < _LARGEST_STEP
    whole = whole_steps(step_R)
    if not whole[run_rows].any():
        expected = (
            "steps below 2^53, got larger ones in every row: name another column"
            if (finite & ~exact)[run_rows].any()
            else "whole numbers as steps, got none in any row: name the column"
        )
        raise UnreadableRunError(f"expected {expected} with --column step=NAME")
    reasons = (
        (~finite, "without a step"),
        (finite & ~exact, "with a step of 2^53 or more (too large to be exact)"),
        (exact & ~whole, "with a fractional step"),
    )
    for bad, words in reasons:
        notes += noted((bad & run_rows).sum(), f"row {words} was", f"rows {words} were")
    return whole


def _numbered(step_R: Float, run_rows: Flags, main: Flags) -> tuple[Float, Float | None]:
    """Return whole steps for fractional ones, and the number behind each step where that is a
    clock; whole ones stay as they are.

    Equal numbers are one step, so restarts and evaluations keep their places; where the numbers
    fall too often to be a clock, the rows are counted.
    """
    usable = run_rows & (np.abs(step_R) < _LARGEST_STEP)
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
        f"no run {chosen[:60]!r} in {shown(path)}"
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


def rows_of_run(store: RowStore, step_R: Float, path: Path, chosen: str, by: str) -> Flags:
    """Return which rows are of the run chosen, all of them where the table holds one; raise with
    the list where it holds several.

    `by` is a column that tells runs apart beside those which do so by their name.
    """
    keys = [*dict.fromkeys(filter(None, (*RUN_KEYS, spelled(by))))]
    columns = sorted(_run_columns(store, keys), key=lambda column: keys.index(column[0]))
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
    """Yield the columns that may tell runs apart, as they are spelled, with the name that each row
    has there, "" for none.
    """
    for key, labels in store.labels.items():
        if spelled(key) in keys:
            yield spelled(key), [labels.get(row, "") for row in range(store.count)]
    for key in store.names():
        name = spelled(key)
        if (
            name in keys
            and (name in _NUMBERED_RUNS or name not in RUN_KEYS)
            and key not in store.labels
        ):
            values = store.dense(key)
            yield name, ["" if value != value else f"{value:g}" for value in values.tolist()]


def _are_several(key: str, names: Sequence[str], step_R: Float) -> bool:
    """Return whether a column tells several runs apart; a number may also count the restarts of
    one, whose steps go on.
    """
    labels = sorted(set(names) - {""})
    if not 1 < len(labels) <= _MOST_RUNS or 2 * len(labels) > len(names):
        return False
    if key == "seed" or not all(parse_number(name) is not None for name in labels):
        return True
    first, second = ({*step_R[np.array(names) == name].tolist()} for name in labels[:2])
    return 2 * len(first & second) > min(len(first), len(second))


def _kinds(store: RowStore, run_rows: Flags) -> RowNames | None:
    """Return the type of each row, "eval" for any evaluation, or None where all have one; a
    column that some rows lack, or that has other uses, only tells evaluations, the latter only
    where no key is named after one.
    """
    marks = () if any(map(is_evaluation, store.names())) else _EVALUATION_MARKS
    for key in (*KIND_KEYS, *marks):
        labels = store.labels.get(key, {})
        evaluations = {row: "eval" for row, name in labels.items() if name.lower() in _EVALUATION}
        # where some rows lack the column, or it has other uses, only these
        labels = (labels if key not in marks and len(labels) == store.count else {}) | evaluations
        kinds = np.full(store.count if labels else 0, "", dtype=object)
        kinds[list(labels)] = list(labels.values())
        if labels and 1 < len(set(kinds[run_rows])) <= _MOST_KINDS:
            return kinds if _differ(store, kinds, run_rows) else None
    return None


def _differ(store: RowStore, kinds: RowNames, run_rows: Flags) -> bool:
    """Return whether types of events are told apart by more than their name: phases of one run
    hold the same columns.
    """
    held: dict[str, set[str]] = {str(kind): set() for kind in set(kinds[run_rows])}
    if "eval" in held:
        return True
    for key in store.names():
        rows = store.sparse(key)[0]
        for kind in set(kinds[rows[run_rows[rows]]]):
            held[str(kind)].add(key)
    return len(set(map(frozenset, held.values()))) > 1


def _main_rows(store: RowStore, kinds: RowNames | None) -> Flags:
    """Return which rows are of training: an evaluation may be logged late without a restart."""
    if kinds is not None:
        return np.array(kinds != "eval", dtype=bool)
    names = (key for key in store.names() if not is_evaluation(key) and not is_counter(key))
    return holding(store, [key for key in names if key.lower() not in _EITHER])


def _standing(step: Whole, usable: Flags, main: Flags, notes: Notes) -> tuple[Flags, int]:
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
        notes.append("the rows were not in the order of their steps and were sorted")
        return usable, 1
    restarts = np.full(len(step) + 1, np.iinfo(np.int64).max)
    restarts[position[falls]] = step[position[falls]]
    kept = usable & (step < np.minimum.accumulate(restarts[::-1])[::-1][1:])
    restart = step[position[falls[-1]]]
    lost = (usable & ~kept).sum()
    if not (kept[: position[falls[-1]]] & main[: position[falls[-1]]]).any():
        notes.append(
            f"the step starts again at {restart} after {count(position[falls[-1]], 'row')}, "
            "which looks like a second run in the same log: the last run is read and "
            f"{count(lost, 'row before it is', 'rows before it are')} left out"
        )
        return kept, len(falls) + 1
    times = count(len(falls), "time")
    back = ", ".join(map(str, step[position[falls[:20]]]))
    notes.append(
        f"the run was restarted {times} (the step drops back to {back}): "
        f"{count(lost, 'row was', 'rows were')} replaced by later ones"
    )
    return kept, 1


def _reduced(
    columns: Iterable[tuple[str, Whole, Float]],
    placed: tuple[Whole, Whole],
    cumulative: Collection[str],
    notes: Notes,
) -> dict[str, Float]:
    """Return each key, one value a step, by the steps and the place of each row's step
    (-1 for none): the mean, the last or the largest of several.
    """
    step, place = placed
    length = place.max() + 1
    reduced: dict[str, Float] = {}
    averaged: dict[str, int] = {}
    repeated: set[int] = set()
    for name, rows, values in columns:
        here = place[rows] >= 0
        if not here.any():
            continue  # it is of rows that were left out alone
        good = here & ~np.isnan(values)
        where, value = place[rows][good], values[good]
        filled = reduced[name] = np.full(length, np.nan)
        filled[where] = value  # the last one stays
        if not len(where) or (np.diff(where) > 0).all():
            continue
        number = pl.col("number")
        groups = (
            pl.DataFrame({"place": where, "number": value})
            .sort("place", maintain_order=True)
            .group_by("place")
            .agg(pl.len(), low=number.min(), high=number.max(), mean=number.mean())
        )
        at, rows_of, low, high, mean = (column.to_numpy() for column in groups)
        differs, several = low < high, (rows_of > 1).sum()
        if name in cumulative:
            filled[at] = high
        elif differs.sum() >= _AVERAGED_SHARE * len(at) or several >= 0.9 * len(at):
            filled[at] = mean
            filled[place[rows][here & ~good]] = np.nan  # a written NaN is part of the mean
            if differs.any():
                averaged[name] = rows_of.max()
        else:
            repeated.update(at[differs].tolist())
    if averaged:
        most = max(averaged.values())
        notes.append(
            f"several rows of one step were averaged, at most {most} per step "
            f"({some_of(list(averaged))})"
        )
    first = f"logged more than once (at {step[min(repeated, default=0)]}): the last values are kept"
    notes += noted(len(repeated), "step was", "steps were", first)
    return reduced


def _named(
    store: RowStore,
    kinds: RowNames | None,
    hidden: Collection[str],
    cumulative: Collection[str],
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
        training = [kind for kind in types if kind != "eval"]
        for kind in types:
            chosen = here == kind
            if kind == "eval":
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
    r"|progress|misc|system)/_?(?:global_)?steps?|_step"
)


def is_counter(key: str) -> bool:
    """Return whether a key counts steps and measures nothing."""
    return _COUNTER.fullmatch(plain_key(key)) is not None


def step_column(store: RowStore) -> tuple[str, Float | None, str]:
    """Return the column that tells the step of each row."""
    named: dict[str, str] = {}
    for key in store.names():
        named.setdefault(plain_key(snake(key)).replace(".", "/").replace(" ", "_"), key)
    present = [named[name] for name in STEP_KEYS if name in named]
    if CALLS in named and len(present) > 1:
        return _beside_calls(store, [key for key in present if key != named[CALLS]], named[CALLS])
    for counted_in in (_whole_values, _increasing_values):
        best = max(present, key=lambda key: counted_in(store.sparse(key)[1]), default="")
        if best and counted_in(store.sparse(best)[1]) * 2 >= store.count:
            step = store.dense(best)
            for key in present:  # an upgrade amid the run may call it otherwise
                rows, values = store.sparse(key)
                if np.isnan(step[rows[0] : rows[-1] + 1]).all():
                    step[rows] = values
            return best, step, ""
    return "", None, ""


def _beside_calls(store: RowStore, keys: list[str], calls: str) -> tuple[str, Float, str]:
    """Return the trainer's own counter in a history of W&B, each row without it counted with the
    next that has it.
    """
    whole = {key: _whole_values(store.sparse(key)[1]) for key in keys}
    most = max(whole.values())
    best = next((key for key in keys if most and 2 * whole[key] >= most), "")
    own = store.dense(calls)
    if not best:
        return calls, own, ""
    step = store.dense(best)
    there = np.isfinite(step)
    both = there & np.isfinite(own)
    if (
        both.sum() > 1 and (step[both] == own[both]).all()
    ):  # as where the trainer gives W&B its own step
        return best, np.where(there, step, own), ""
    # What is timed within a step is logged before it: a missing step is that of the next row that
    # has one.
    carried = (
        pl.Series(np.where(there, step, np.nan))
        .fill_nan(None)
        .fill_null(strategy="backward")
        .to_numpy()
    )
    return best, carried, f"the step of a row is its {best}, or that of the next row with one"


def _whole_values(values: Float) -> int:
    """Return how many values are whole numbers."""
    return int(whole_steps(values).sum())


def _increasing_values(values: Float) -> int:
    """Return how many values there are where they increase but for a few restarts, as fractional
    steps do; else 0.
    """
    finite = values[np.isfinite(values)]
    return len(finite) if len(finite) > 1 and (np.diff(finite) <= 0).mean() <= 0.2 else 0


_ROLLOUT = vocabulary("of_a_rollout_of_slime")
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
    what = f"{count(each, 'optimiser update')} per rollout"
    return (
        each,
        step,
        f"slime numbers the training rows by updates, so each has its rollout's step ({what})",
    )


def _by_updates(rollouts: Flags, updates: Flags, own: Float, update: Float) -> tuple[int, Float]:
    """Return the updates of a rollout, 0 where that cannot be told, and the rollout of each row."""
    first, last = own[rollouts & np.isfinite(own)], update[updates & np.isfinite(update)]
    if not len(first) or not len(last):
        return 0, own
    # The last of both are of one rollout, or of neighbours where the log was cut off.
    each = max(1, round((last.max() + 1) / (first.max() + 1)))
    return each, np.where(updates, update // each, own)


def holding(store: RowStore, names: Sequence[str]) -> Flags:
    """Return which rows hold any of the keys."""
    holds = np.zeros(store.count, dtype=bool)
    for name in names:
        holds[store.sparse(name)[0]] = True
    return holds


def _first(store: RowStore, keys: Sequence[str], first: Float) -> Float:
    """Return the first of the keys that each row has, else the number that is given."""
    for key in reversed(keys):
        values = store.dense(key)
        first = np.where(np.isfinite(values), values, first)
    return first
