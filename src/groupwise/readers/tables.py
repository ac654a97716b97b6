"""Tables: cells between commas, semicolons or tabs, whole or line by line, JSON lines, Parquet."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, dropwhile
from pathlib import Path

import polars as pl

from groupwise import limits
from groupwise.errors import UnreadableRunError
from groupwise.parsing import JsonObject
from groupwise.readers.assemble import Feed, Log, Origin, Request, assemble, encoding_notes
from groupwise.readers.rows import RowStore, clean_key, parse_number, spelled
from groupwise.readers.source import (
    Peek,
    first_lines,
    json_in,
    lines_of,
    marks_in,
    noted,
    peek,
    shown,
)
from groupwise.readers.steps import STEP_KEYS, one_run
from groupwise.readers.wandb_run import exported_runs
from groupwise.record.run import RunRecord
from groupwise.record.table import UNREADABLE, read_parquet

_BATCH, _HELD = 4096, 1 << 24  # lines, and characters of them, that wait for the end of a record
_KINDS = {float: pl.Float64, bool: pl.Boolean, str: pl.String}
# marks as escapes, which are not counted, and half characters, which Polars takes for others
_MISREAD = re.compile(rb"\\u(?:00[0-7]|[dD])")
_BETWEEN = (",", ";", "\t", "|", " ")  # cells
_MARKDOWN = ("|", "#")  # how a text begins whose table has bars between its cells
_OF_ONE_TAG = {
    "wall_time",
    "step",
    "value",
}  # TensorBoard's export of one chart, whose file is named after the run and the tag


def sniff_csv(seen: Peek) -> float:
    """Return the confidence that the file is a table of comma-, semicolon- or tab-separated
    cells.
    """
    if seen.text[:1] in "[{":
        return 0.0
    lines = [
        line[: limits.LONGEST_CELL].rstrip("\n") for line in first_lines(seen, 20) if line.strip()
    ]
    if _is_markdown(lines[0], seen.text):
        return 0.65
    named = seen.path.suffix.lower() in (".csv", ".tsv")
    delimiter = _delimiter(lines[0])
    if named:
        return 0.8 if delimiter else 0.6 if len(lines) > 1 else 0.0
    if not delimiter:
        return 0.6 if _is_aligned([line.split() for line in lines]) else 0.0
    return 0.8 if _is_table([line.split(delimiter) for line in lines]) else 0.1


def _is_markdown(first: str, text: str) -> bool:
    """Return whether a text that begins as Markdown does holds one table, with a number for the
    step in every row.
    """
    table = (
        [_between_bars(line) for line in lines_of(text) if line.startswith("|")]
        if first.startswith(_MARKDOWN)
        else []
    )
    names, rows = (
        [spelled(name) for name in table[0]] if table else [],
        [row for row in table[1:] if row],
    )
    place = next((names.index(name) for name in names if name in STEP_KEYS), None)
    return (
        place is not None
        and len(rows) > 1
        and all(len(row) > place and parse_number(row[place]) is not None for row in rows[:-1])
    )


def _between_bars(line: str) -> list[str]:
    """Return the cells of a line of a Markdown table; none where it only parts the header from
    the rows.
    """
    cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
    return [] if all(set(cell) <= {"-", ":"} for cell in cells) else cells


def _is_aligned(lines: list[list[str]]) -> bool:
    """Return whether blanks part the columns: a line of names, and below it lines of as many
    numbers.
    """
    names, *rows = lines
    whole = rows[:-1] or rows  # the last one may be cut off
    named = (
        len(names) > 2
        and len(set(names)) == len(names)
        and all(parse_number(name) is None for name in names)
    )
    return (
        named
        and len(whole) > 1
        and all(len(row) == len(names) and None not in map(parse_number, row) for row in whole)
    )


def _is_table(lines: list[list[str]]) -> bool:
    """Return whether most lines are as wide as the first, which holds short names, and a quarter
    of their cells are numbers.
    """
    names, *rows = lines
    whole = rows[:-1] or rows  # the last one may be cut off
    wide = sum(len(row) >= len(names) for row in whole) * 2 >= len(whole)
    cells = [parse_number(cell.strip().strip('"')) for row in rows for cell in row[: len(names)]]
    return (
        wide
        and bool(cells)
        and sum(cell is not None for cell in cells) * 4 > len(cells)
        and max(map(len, names)) < 200
    )


def _delimiter(line: str) -> str:
    """Return the separator of a header line, "" for none."""
    counts = {mark: line.count(mark) for mark in (",", "\t", ";")}
    best = max(counts, key=lambda mark: counts[mark])
    return best if counts[best] else ""


def _without_comments(lines: Sequence[str]) -> Sequence[str]:
    """Return a table without the comments above it, of which the last names the columns where only
    numbers follow, as NumPy writes it.
    """
    rows = list(dropwhile(_is_comment, lines))
    if len(rows) in (0, len(lines)) or any(line.startswith("|") for line in rows):
        return rows and lines
    cells = rows[0].split(_delimiter(rows[0]) or None)
    named = lines[len(lines) - len(rows) - 1].lstrip("# ")
    return rows if None in map(parse_number, cells) else [named, *rows]


def _is_comment(line: str) -> bool:
    """Return whether a line holds no cells."""
    return line.startswith("#") or not line.strip()


class CsvFeed(Feed):
    """A table of cells, line by line; its first line names the columns, a row that breaks the
    format ends it.
    """

    joined = b'"'

    def __init__(self) -> None:
        self._held: list[str] = []  # lines that are not parsed yet
        self._characters = 0  # in them
        # in them: where their number is odd, the last record goes on in a line that has not come
        self._quotes = 0
        self._delimiter = ""
        self._names: list[str] | None = None
        self._notes: list[str] = []
        self.store, self._broken, self._over = RowStore(limits.MOST_LONG), 0, False

    def take(self, lines: Iterable[str]) -> None:
        """Read whole lines."""
        for line in () if self._over else lines:
            if (
                len(line) > limits.MOST_VALUES
                and max(map(line.count, _BETWEEN)) > limits.MOST_VALUES
            ):
                self._broken += 1
                continue
            self._held.append(line)
            self._characters += len(line)
            self._quotes += line.count('"')
            if (
                len(self._held) >= _BATCH and self._quotes % 2 == 0
            ) or self._characters > limits.LONGEST_CELL + _HELD:
                self.finish()
        if self._quotes % 2 == 0:
            self.finish()

    def finish(self) -> None:
        """Read what was held back, but for comments above a table that has not come."""
        if self._names is None and self._characters < _HELD and all(map(_is_comment, self._held)):
            return
        lines, self._held, self._quotes, self._characters = self._held, [], 0, 0
        batch: list[list[str]] = []
        try:
            for row in () if self._over else self._parsed(lines):
                if self._names is None or (
                    row[0].strip() == self._names[0] and {*map(parse_number, row)} == {None}
                ):
                    self._add(batch)
                    self._names, batch = self._named(row), []
                else:
                    self._broken += len(row) != len(self._names)
                    batch.append(_decimal_points(row) if self._delimiter == ";" else row)
        except csv.Error:
            self._over = True
        self._add(batch)

    def _add(self, batch: list[list[str]]) -> None:
        """Keep rows under the present names."""
        if batch and self._names is not None:
            self.store.add_cells(self._names, batch)

    def _parsed(self, lines: Sequence[str]) -> Iterator[list[str]]:
        """Yield the records of lines that are not empty; the first line that is not blank tells
        what separates cells.
        """
        csv.field_size_limit(limits.LONGEST_CELL)
        if not self._delimiter:
            lines = _without_comments(lines)
            first = next((line for line in lines if line.strip()), "")
            between = (
                "|"
                if first.startswith(_MARKDOWN)
                else _delimiter(first) or (" " if len(first.split()) > 2 else ",")
            )
            self._delimiter = between if first else ""
        if self._delimiter == "|":
            yield from filter(None, (_between_bars(line) for line in lines if line.startswith("|")))
        elif self._delimiter == " ":
            yield from filter(None, map(str.split, lines))
        elif self._delimiter:
            yield from filter(
                any, csv.reader(lines, delimiter=self._delimiter, skipinitialspace=True)
            )

    def _named(self, row: list[str]) -> list[str]:
        """Return the names of columns that a row gives: those of a program that was replaced amid
        a run may be others.
        """
        notes = self._notes if self._names is None else []
        names = _unique([name.strip().lstrip("\ufeff") for name in row], notes)
        if self._names not in (None, names):
            self._notes.append(f"the columns are others from row {self.store.count + 1} on")
        return names

    def record(self, origin: Origin, request: Request) -> RunRecord:
        """Return the record of what was taken so far."""
        store, name = self.store, ""
        notes = [*encoding_notes(origin.encoding), *self._notes]
        runs = exported_runs(self._names or [])
        if runs:
            name = one_run(origin.path, runs, request.chosen)
            store = store.renamed(runs[name])
            notes.append(
                "a table that W&B exported: the bounds of what its chart averaged (__MIN, __MAX) "
                "are left out"
                if any(name.endswith("__MIN") for name in self._names or [])
                else "a table of a chart that a tracker exported: each of its columns is of one run"
            )
        elif {spelled(key) for key in (self._names or [])[:9]} == _OF_ONE_TAG:
            store = store.renamed(
                {
                    key: key
                    if spelled(key) != "value"
                    else clean_key(origin.path.stem.rpartition("-tag-")[2])
                    for key in store.names()
                }
            )
        what = "more or fewer cells than the header: missing cells are empty, further ones left out"
        notes += noted(self._broken, "row has", "rows have", what)
        return assemble(
            Log(
                store,
                origin.path,
                "csv",
                origin.size,
                notes,
                name=name if request.chosen else "",
            ),
            request,
        )


def texts_and_numbers(lines: Iterable[str]) -> Iterator[JsonObject]:
    """Yield the rows of a table whose cells may be texts over several lines; the first that breaks
    the format ends it.
    """
    csv.field_size_limit(limits.LONGEST_CELL)
    whole = (line for line in lines if line.strip() and line.count(",") <= limits.MOST_VALUES)
    head = next(whole, "").lstrip("\ufeff")
    with suppress(csv.Error):
        for row in csv.DictReader(chain([head], whole), delimiter=_delimiter(head) or ","):
            cells = {key: cell for key, cell in row.items() if key and cell}
            numbers = {key: parse_number(cell) for key, cell in cells.items()}
            yield cells | {key: number for key, number in numbers.items() if number is not None}


def _unique(names: list[str], notes: list[str]) -> list[str]:
    """Return the header with a number behind a name that comes again."""
    unique: dict[str, None] = {}
    later: dict[str, int] = {}
    for name in names:
        base = final = clean_key(name)
        while final in unique:
            later[base] = later.get(base, 1) + 1
            final = f"{base} ({later[base]})"
        unique[final] = None
    again = [
        name
        for name, kept in zip(names, unique, strict=True)
        if name.strip() and clean_key(name) != kept
    ]
    notes += noted(
        len(again),
        "column",
        "columns",
        "of a name that comes more than once: the later ones carry a number",
    )
    return list(unique)


def _decimal_points(row: list[str]) -> list[str]:
    """Return cells whose decimal commas are points."""
    return [
        cell.replace(",", ".") if re.fullmatch(r"\s*-?\d+,\d+\s*", cell) else cell for cell in row
    ]


def json_table(block: bytes) -> pl.DataFrame | None:
    """Return the rows of lines that all hold numbers, flags or texts under the keys of the first,
    None of any other.

    Polars drops what it was not told of, and takes any value for a text: marks are counted.
    """
    if len(block) >= 2 * limits.MOST_VALUES:  # Polars makes 50 bytes of a byte of lists
        return None
    head = json_in(block[: block.find(b"\n") + 1].decode(errors="replace"))
    if not isinstance(head, dict) or not 0 < len(head) < limits.MOST_KEYS:
        return None
    # A quotation mark in a key would upset the count below: such rows go one by one.
    kinds = {
        clean_key(key).replace('"', ""): _KINDS.get(type(cell), pl.Null)
        for key, cell in head.items()
    }
    misread = (b"\\" in block and _MISREAD.search(block)) or b"\r" in block.replace(b"\r\n", b"\n")
    if misread or pl.Null in kinds.values() or kinds.keys() != head.keys():
        return None
    try:
        table = pl.read_ndjson(block, schema=kinds)
    except UNREADABLE:
        return None
    texts, rows = table.select(pl.col(pl.String)), marks_in(block, "\n") + (block[-1:] != b"\n")
    marks = (('"', 2 * (len(kinds) + texts.width)), (":", len(kinds)))  # of a row beside its texts
    if len(table.drop_nulls()) != rows:
        return None
    for mark, each in marks:
        inside = sum(text.str.count_matches(mark, literal=True).sum() for text in texts)
        if marks_in(block, mark) != each * rows + inside:
            return None
    return table


def sniff_parquet(seen: Peek) -> float:
    """Return the confidence that the file is a Parquet table."""
    return 0.9 if seen.head.startswith(b"PAR1") else 0.0


def read_parquet_table(path: Path, request: Request) -> RunRecord:
    """Read a Parquet table with one row a step."""
    seen = peek(path)
    table = read_parquet(path)
    if {"prompt", "completion"} <= set(table.columns):
        raise UnreadableRunError(
            f"expected a log of steps, got completions in {shown(path)}: give the run's folder, "
            "which holds both"
        )
    wanted = [
        name
        for name, kind in table.schema.items()
        if kind.is_numeric() or kind in (pl.Boolean, pl.Utf8)
    ]
    store = RowStore(limits.MOST_LONG)
    store.extend(table.select(wanted).iter_rows(named=True))
    return assemble(Log(store, path, "parquet", seen.size), request)
