"""Rows of a log, collected column by column as they stream past: numbers are kept, texts are
counted.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from functools import cache, lru_cache
from itertools import chain, islice
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from groupwise import limits
from groupwise.arrays import Flags, Float, Whole
from groupwise.parsing import JsonObject, JsonView
from groupwise.readers.source import bare, vocabulary
from groupwise.record.resolution import printed_decimals
from groupwise.record.table import THINNED, thinned

_DEPTH = 6
_MISSING = frozenset(vocabulary("missing"))
KIND_KEYS = vocabulary("kind")
RUN_KEYS = vocabulary("run")
# Of a long table, as trackers export them: what names the metric of a row, and its value.
METRIC_KEYS = vocabulary("metric")
VALUE_KEYS = vocabulary("value")
LISTED = frozenset(
    {"reward", "rewards", "group_rewards", "scores"}
)  # of each completion of the step: the mean counts
_LONGEST_LABEL, _MOST_LABELS, _LONGEST_SCALAR = 80, 64, 160
Marks = dict[str, dict[int, Any]]
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


@lru_cache(maxsize=limits.MOST_NAMES, typed=True)
def clean_key(key: Any) -> str:
    r"""Return a key as a text without control characters, at most 200 long."""
    text = str(key)
    if not text.isprintable():
        text = "".join(character for character in text if character.isprintable())
    return text.strip()[:200] or "unnamed"


@lru_cache(maxsize=limits.MOST_NAMES)
def plain(key: str) -> str:
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


def is_summary(row: Mapping[Any, Any]) -> bool:
    """Return whether a row sums up a whole training and is none of its steps."""
    return "train_runtime" in row and "reward" not in row and "loss" not in row


def summary_notes(skipped: int) -> list[str]:
    """Return the note on rows that sum up a whole training."""
    sentence = "the summary row at the end is left out"
    return [sentence if skipped == 1 else f"{skipped} summary rows left out"] if skipped else []


def unwrapped(row: JsonObject) -> JsonView:
    """Return a row without the one key that holds its numbers."""
    if set(row) == {"step", "data"} and isinstance(row["data"], dict):
        return row["data"] | {"step": row["step"]}
    inner = row.get("metrics")
    if not isinstance(inner, dict) or inner.keys() & row.keys():
        return row
    return {key: value for key, value in row.items() if key != "metrics"} | inner


class _Column:
    """Values of one key with the rows that hold it."""

    __slots__ = ("rows", "values")

    def __init__(self, rows: ArrayLike = (), values: ArrayLike = ()) -> None:
        self.rows = array("i", np.asarray(rows, dtype=np.int32).tobytes())
        self.values = array("d", np.asarray(values, dtype=float).tobytes())


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
        self._most_rows = most_rows or limits.MOST_ROWS
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
        self._columns: dict[str, _Column] = {}
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
        self.too_wide += max(0, len(row) - limits.MOST_NAMES)
        for key, cell in islice(row.items(), limits.MOST_NAMES):
            name = clean_key(key)
            if isinstance(cell, str):
                self.see_print(name, cell)
            self._cell(name, cell)
        self._came(start, 1)

    def mark(self, **marks: Any) -> None:
        """Note something of the row that was added last."""
        for key, mark in marks.items():
            self.marks.setdefault(key, {})[self.count - 1] = mark

    def marked(self, key: str) -> list[Any]:
        """Return what was noted of each row."""
        marks = self.marks.get(key, {})
        return [marks[row] for row in range(self.count)]

    def add_cells(self, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Append rows of texts, as a CSV file holds them; short rows lack their last cells."""
        width = min(len(names), limits.MOST_NAMES)
        self.too_wide += (len(names) - width) * len(rows)
        names = names[:width]
        if any(len(row) != width for row in rows):
            rows = [[*row[:width], *[""] * (width - len(row))] for row in rows]
        columns: list[Any] = list(zip(*rows, strict=True))
        for at, (name, cells) in enumerate(zip(map(clean_key, names), columns, strict=True)):
            for cell in (*cells[:1], *cells[-1:]):  # a fixed format is that of all cells
                self.see_print(name, cell)
            with suppress(ValueError):
                columns[at] = np.fromiter(map(float, cells), np.float64)
        self.add_columns(names, columns, len(rows))

    def add_table(self, table: pl.DataFrame) -> None:
        """Append rows of numbers, flags and texts without gaps."""
        columns: list[Any] = []
        for column in table:
            if column.dtype == pl.String:
                columns.append(column.to_list())
                for cell in columns[-1]:
                    self.see_print(column.name, cell)
            else:
                columns.append(column.cast(pl.Float64).to_numpy())
        self.add_columns(table.columns, columns, len(table))

    def add_columns(self, names: Sequence[str], columns: Sequence[Any], length: int) -> None:
        """Append rows by column; where a table has no room for more, rows before them go."""
        most = self.most(min(len(names), limits.MOST_KEYS))
        if self.count >= most:
            self._thin()
        start, room = self.count, min(length, most - self.count)
        for name, cells in zip(map(clean_key, names), columns, strict=True):
            self.count = start
            part = cells[:room]
            if isinstance(part, np.ndarray):
                self._numbers(name, part)
            else:
                self._cells(name, part, start)
        self._came(start, room)
        if room < length:
            rest = [cells[room:] for cells in columns]
            self.add_columns(names, rest, length - room)

    def most(self, width: int = 1) -> int:
        """Return how many rows the table may have, given its columns, or how many it will have."""
        return min(self._most_rows, max(2, limits.MOST_CELLS // (len(self._columns) or width)))

    def _thin(self) -> None:
        """Keep a part of the rows, evenly, and the newest."""
        vars(self).update(vars(self.kept(thinned(self.count))))
        self.share *= THINNED

    def _cells(self, name: str, cells: Iterable[Any], start: int) -> None:
        """Append one cell a row, from a row on."""
        for self.count, cell in enumerate(cells, start=start):
            self._cell(name, cell)

    def _came(self, start: int, rows: int) -> None:
        """Count rows that are appended."""
        self.count = start + rows
        self._number.extend(range(self.read, self.read + rows))
        self.read += rows

    @property
    def number(self) -> Float:
        """The number of each row among those that came, from 1."""
        return np.array(self._number, dtype=float) + 1

    def _new(self, name: str) -> _Column | None:
        """The column of a new key; None where there is no room."""
        if len(self._columns) >= limits.most_keys(self.count + 1):
            return None
        return self._columns.setdefault(name, _Column())

    def _cell(self, name: str, value: Any, depth: int = 0) -> None:
        """Append one cell of any kind to the present row."""
        if isinstance(value, (float, int, np.number)):
            try:
                number = float(value)
            except OverflowError:
                number = math.inf if value > 0 else -math.inf
            column = self._columns.get(name) or self._new(name)
            if column is None:
                self.too_wide += 1
                return
            column.rows.append(self.count)
            column.values.append(number)
        elif isinstance(value, str):
            self._text(name, value)
        elif isinstance(value, Mapping) and depth < _DEPTH:
            for key, inner in value.items():
                self._cell(f"{name}/{clean_key(key)}", inner, depth + 1)
        elif isinstance(value, list) and plain(name).rpartition("/")[2] in LISTED:
            self._listed(name, value)

    def see_print(self, name: str, text: str) -> None:
        """Note how many decimals a number was printed with."""
        decimals = printed_decimals(text)
        if decimals > self.decimals.get(name, 0) and len(self.decimals) < limits.MOST_NAMES:
            self.decimals[name] = decimals

    def _listed(self, name: str, value: list[Any]) -> None:
        """Append the mean of the numbers of a list, their deviation and number, or of a list of
        groups of one size how many of how many.
        """
        nested = all(isinstance(group, list) for group in value)
        numbers = list(chain.from_iterable(value)) if nested else value
        if not numbers or not all(isinstance(entry, int | float) for entry in numbers):
            return
        self._cell(name, sum(numbers) / len(numbers))
        if not nested and len(numbers) > 1:
            with np.errstate(all="ignore"):
                self._cell(f"{name}/std", float(np.std(np.array(numbers, dtype=float), ddof=1)))
            self._cell(f"{name}/count", len(numbers))
        if nested and len(set(map(len, value))) == 1:
            self._cell(f"{name}/group_size", len(value[0]))
            self._cell(f"{name}/n_groups", len(value))

    def _text(self, name: str, value: str) -> None:
        """Append a cell that holds a text: perhaps a number, perhaps a label."""
        number = parse_number(value)
        if number is None and value[-1:] == "%":
            number = parse_number(value[:-1])
            if number and "%" not in name:
                number /= 100.0  # a share; a column that is in % by its name becomes one later
        if number is not None:
            if number == number:
                self._cell(name, number)
            return
        if "step" in name and "/" in value:
            done = parse_number(value.partition("/")[0])
            if done is not None and done == done:
                self._cell(name, done)
                return
        if len(self.texts) < limits.MOST_KEYS or name in self.texts:
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
        self._columns[name] = _Column(range(self.count), values)

    def _numbers(self, name: str, numbers: Float) -> None:
        """Append one number a row, from the current row on."""
        column = self._columns.get(name) or self._new(name)
        if column is None:
            self.too_wide += len(numbers)
            return
        rows = np.arange(self.count, self.count + len(numbers), dtype=np.int32)
        column.rows.frombytes(rows.tobytes())
        column.values.frombytes(numbers.tobytes())

    def left_out_notes(self) -> list[str]:
        """Return notes on keys and rows that were too many."""
        return [limits.left_out(self.too_wide)] if self.too_wide else []

    def kept(self, stays: Flags) -> RowStore:
        """Return the rows whose flag is set, in their order; what was counted of cells stays as
        it is.
        """
        return self.placed(np.where(stays, np.cumsum(stays) - 1, -1))

    def placed(
        self, place: Whole, parts: Mapping[str, NDArray[np.object_]] | None = None
    ) -> RowStore:
        """Return the rows at other places, -1 for none; of `parts`, key -> name of each row,
        there is one column for each name.
        """
        store = copy(self)
        store.count, store._columns = int((place >= 0).sum()), {}
        number = np.zeros(store.count, dtype=np.int64)
        number[place[place >= 0]] = np.array(self._number)[place >= 0]
        store._number = array("q", number.tobytes())
        for key in self.names():
            rows, values = self.sparse(key)
            names = (
                parts[key][rows] if parts and key in parts else np.zeros(len(rows), dtype=object)
            )
            for name in dict.fromkeys(names.tolist()):
                own_rows = np.flatnonzero((place[rows] >= 0) & (names == name))
                own_rows = own_rows[np.argsort(place[rows[own_rows]])]
                if len(own_rows):
                    store._columns[name or key] = _Column(place[rows[own_rows]], values[own_rows])
        store.labels, store.marks = _moved(self.labels, place), _moved(self.marks, place)
        return store

    def by_metric(self, step: Float) -> RowStore | None:
        """Return a long table, each of whose rows names one metric with its value, with a column
        a metric, by step; None for another.
        """
        whole = {
            spelled(key): key for key, cells in self.labels.items() if len(cells) == self.count
        }
        metric = next((whole[key] for key in METRIC_KEYS if key in whole), "")
        value = next((key for key in self._columns if spelled(key) in VALUE_KEYS), "")
        if not metric or not value:
            return None
        names = np.array([self.labels[metric][row] for row in range(self.count)], dtype=object)
        place = np.argsort(
            np.argsort(step, kind="stable")
        )  # each metric may stand by itself: a step that falls is no restart
        store = self.placed(place, {value: names})
        del store.labels[metric]
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
        column = self._columns.get(key) or _Column()
        return np.array(column.rows, dtype=np.int64), np.array(column.values)

    def dense(self, key: str) -> Float:
        """Return the value of every row, NaN where the key is missing."""
        filled = np.full(self.count, np.nan)
        rows, values = self.sparse(key)
        filled[rows] = values
        return filled
