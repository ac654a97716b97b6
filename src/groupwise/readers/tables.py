"""Tables: cells between commas, semicolons or tabs, whole or line by line, and Parquet.

The columns' meaning is judged by their names elsewhere.
"""

from __future__ import annotations

import csv
import re
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

import polars as pl

from groupwise.errors import UnreadableRunError
from groupwise.readers.assemble import Log, Origin, Request, assemble, encoding_notes
from groupwise.readers.rows import RowStore, clean_key, parse_number
from groupwise.readers.source import counted, peek, shown
from groupwise.readers.steps import one_run
from groupwise.readers.wandb_run import exported_runs
from groupwise.record.run import RunRecord
from groupwise.record.table import read_parquet

_BATCH = 4096
_LONGEST_CELL = 1 << 20


def sniff_csv(path: Path) -> float:
    """Return the confidence that the file is a table of comma-, semicolon- or tab-separated cells."""
    seen = peek(path)
    if seen.binary or seen.text[:1] in "[{":
        return 0.0
    lines = [line for line in seen.text.splitlines()[:20] if line.strip()]
    named = path.suffix.lower() in (".csv", ".tsv")
    delimiter = _delimiter(lines[0])
    if named:
        return 0.8 if delimiter else 0.6 if len(lines) > 1 else 0.0
    return 0.0 if not delimiter else 0.8 if _is_table([line.split(delimiter) for line in lines]) else 0.1


def _is_table(lines: list[list[str]]) -> bool:
    """Return whether most lines are as wide as the first, which holds short names, and a quarter of their cells are numbers."""
    names, *rows = lines
    whole = rows[:-1] or rows  # the last one may be cut off
    wide = sum(len(row) >= len(names) for row in whole) * 2 >= len(whole)
    cells = [parse_number(cell.strip().strip('"')) for row in rows for cell in row[: len(names)]]
    return wide and bool(cells) and sum(cell is not None for cell in cells) * 4 > len(cells) and max(map(len, names)) < 200


def _delimiter(line: str) -> str:
    """Return the separator of a header line, "" for none."""
    counts = {mark: line.count(mark) for mark in (",", "\t", ";")}
    best = max(counts, key=lambda mark: counts[mark])
    return best if counts[best] else ""


class _WantedError(Exception):
    """A record of the table goes on in a line that has not come yet."""


class _Waiting:
    """Lines for `csv.reader`, which may pause between two records and, unlike a file, in the middle of one."""

    def __init__(self) -> None:
        self.lines: deque[str] = deque()
        self.taken: list[str] = []
        self.ended = False

    def __iter__(self) -> _Waiting:
        """Return itself."""
        return self

    def __next__(self) -> str:
        """Return the next line; between records there may be none, within one it is wanted."""
        if self.lines:
            self.taken.append(self.lines.popleft())
            return self.taken[-1]
        if self.taken and not self.ended:
            raise _WantedError
        raise StopIteration


class CsvFeed:
    """A table of cells, line by line; its first line names the columns, a row that breaks the format ends it."""

    def __init__(self) -> None:
        self.count = 0
        self._waiting, self._delimiter = _Waiting(), ","
        self._rows: Iterator[list[str]] | None = None
        self._names: list[str] | None = None
        self._notes: list[str] = []
        self._store, self._broken, self._over = RowStore(), 0, False

    def take(self, lines: Iterable[str]) -> None:
        """Read whole lines."""
        for line in lines:
            if self._rows is None and line.strip():
                self._start(line)
            if self._rows is not None and not self._over:
                self._waiting.lines.append(line)
                if len(self._waiting.lines) >= _BATCH:
                    self._read()
        self._read()

    def finish(self) -> None:
        """Take a record that goes on beyond the last line, as far as it is there."""
        self._waiting.ended = True
        self._read()

    def _start(self, line: str) -> None:
        """Choose the separator by the first line."""
        csv.field_size_limit(_LONGEST_CELL)
        self._delimiter = _delimiter(line) or ","
        self._rows = csv.reader(self._waiting, delimiter=self._delimiter, skipinitialspace=True)

    def _read(self) -> None:
        """Read the records that are whole."""
        batch: list[list[str]] = []
        while self._rows is not None and not self._over:
            self._waiting.taken.clear()
            try:
                row = next(self._rows)
            except StopIteration:
                break
            except _WantedError:
                self._waiting.lines.extend(self._waiting.taken)
                break
            except csv.Error:
                self._over = True
                break
            if row and self._names is None:
                self._names = _unique([name.lstrip("\ufeff") for name in row], self._notes)
            elif any(row):
                self._row(row, batch)
        if batch:
            assert self._names is not None
            self._store.add_cells(self._names, batch)
            self.count = self._store.count

    def _row(self, row: list[str], batch: list[list[str]]) -> None:
        """Keep one row unless it is the header again."""
        assert self._names is not None
        self._broken += len(row) != len(self._names)
        if not _repeats_header(row, self._names):
            batch.append(_decimal_points(row) if self._delimiter == ";" else row)

    def record(self, origin: Origin, request: Request) -> RunRecord:
        """Return the record of what was taken so far."""
        store, name = self._store, ""
        notes = [*encoding_notes(origin.encoding), *self._notes]
        runs = exported_runs(self._names or [])
        if runs:
            name = one_run(origin.path, runs, request.chosen)
            store = store.renamed(runs[name])
            notes.append("a table that W&B exported: the bounds of what its chart averaged (__MIN, __MAX) are left out")
        if self._broken:
            has = counted(self._broken, "row has", "rows have")
            notes.append(f"{has} more or fewer cells than the header: missing cells are empty, further ones left out")
        return assemble(Log(store, origin.path, "csv", origin.size, tuple(notes), name=name if request.chosen else ""), request)


def _unique(names: list[str], notes: list[str]) -> list[str]:
    """Return the header with a number behind a name that comes again."""
    unique: list[str] = []
    for name in names:
        base, number = clean_key(name), 2
        final = base
        while final in unique:
            final, number = f"{base} ({number})", number + 1
        unique.append(final)
    again = [name for name, kept in zip(names, unique, strict=True) if name.strip() and clean_key(name) != kept]
    if again:
        notes.append(f"{counted(len(again), 'column')} of a name that comes more than once: the later ones carry a number")
    return unique


def _repeats_header(row: list[str], names: list[str]) -> bool:
    """Return whether a row is the header again, as in files that were appended to."""
    return len(row) == len(names) and row[0].strip() == names[0] and [cell.strip() for cell in row] == names


def _decimal_points(row: list[str]) -> list[str]:
    """Return cells whose decimal commas are points."""
    return [cell.replace(",", ".") if re.fullmatch(r"\s*-?\d+,\d+\s*", cell) else cell for cell in row]


def sniff_parquet(path: Path) -> float:
    """Return the confidence that the file is a Parquet table."""
    return 0.9 if peek(path).head.startswith(b"PAR1") else 0.0


def read_parquet_table(path: Path, request: Request) -> RunRecord:
    """Read a Parquet table with one row a step."""
    seen = peek(path)
    table = read_parquet(path)
    if {"prompt", "completion"} <= set(table.columns):
        raise UnreadableRunError(f"expected a log of steps, got completions in {shown(path)}: give the run's folder, which holds both")
    store = RowStore()
    wanted = [name for name, kind in table.schema.items() if kind.is_numeric() or kind in (pl.Boolean, pl.Utf8)]
    for row in table.select(wanted).iter_rows(named=True):
        store.add(row)
    return assemble(Log(store, path, "parquet", seen.size), request)
