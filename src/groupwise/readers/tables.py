"""Tables: cells between commas, semicolons or tabs, whole or line by line, Parquet, and JSON: one
object a line, events of several types, a list of rows, columns, or an object that holds the rows of
one or several runs; and tables of a metric each.
"""

import csv
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import chain, dropwhile, islice, pairwise
from pathlib import Path
from typing import Any

import polars as pl
from polars.selectors import boolean, numeric, string

from groupwise import parsing
from groupwise.errors import GroupwiseError, UnreadableRunError
from groupwise.parsing import JsonObject, JsonView, NestingError, parse_json
from groupwise.readers import logs_in
from groupwise.readers.assemble import Feed, Log, Origin, Request, assemble, encoding_notes
from groupwise.readers.configs import flatten, settings_in
from groupwise.readers.keys import quantity_named
from groupwise.readers.rows import (
    STEP_KEYS,
    VALUE_KEYS,
    RowStore,
    clean_key,
    first_of,
    is_evaluation,
    is_summary,
    one_run,
    parse_number,
    spelled,
    summary_notes,
    unwrapped,
)
from groupwise.readers.source import (
    DAMAGED_LINES,
    ENDINGS,
    Blocks,
    JsonArray,
    Notes,
    Peek,
    first_lines,
    folders_in,
    is_number,
    is_scalar,
    json_in,
    json_lines,
    lines_of,
    marks_in,
    noted,
    peek,
    read_whole,
    shown,
    vocabulary,
)
from groupwise.readers.trackers import exported_runs
from groupwise.record.run import RunRecord, annotated
from groupwise.record.table import UNREADABLE, read_parquet
from groupwise.wording import count

Cells = list[str]  # of a row of a table
_BATCH, _HELD = 4096, 1 << 24  # lines, and characters of them, that wait for the end of a record
_KINDS = {float: pl.Float64, bool: pl.Boolean, str: pl.String}
# marks as escapes, which are not counted, and half characters, which Polars takes for others
_MISREAD = re.compile(rb"\\u(?:00[0-7]|[dD])")
_BETWEEN = (",", ";", "\t", "|", " ")  # cells
_MOST_RAGGED = 2  # rows at the end with too many cells that are odd ones, and no other table
_MARKDOWN = ("|", "#")  # how a text begins whose table has bars between its cells


def sniff_csv(seen: Peek) -> float:
    """Return the confidence that the file is a table of comma-, semicolon- or tab-separated
    cells.
    """
    named = seen.path.suffix.lower() in (".csv", ".tsv")
    if seen.text[:1] in "[{" and not (named and _title(lines_of(seen.text))):
        return 0.0
    lines = [
        line[: parsing.LONGEST_CELL].rstrip("\n") for line in first_lines(seen, 20) if line.strip()
    ]
    if _is_markdown(lines[0], seen.text):
        return 0.65
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
    names, *rows = table or [[]]
    rows = [*filter(None, rows)]
    place = next((at for at, name in enumerate(names) if spelled(name) in STEP_KEYS), None)
    return (
        place is not None
        and len(rows) > 1
        and all(len(row) > place and parse_number(row[place]) is not None for row in rows[:-1])
    )


def _between_bars(line: str) -> Cells:
    """Return the cells of a line of a Markdown table; none where it only parts the header from
    the rows.
    """
    cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
    return [] if all(set(cell) <= {"-", ":"} for cell in cells) else cells


def _is_aligned(lines: list[Cells]) -> bool:
    """Return whether blanks part the columns: a line of names, and below it lines of as many
    numbers.
    """
    names, *rows = lines
    whole = rows[:-1] or rows  # the last one may be cut off
    return (
        len(names) > 2
        and len(set(names)) == len(names)
        and _are_texts(names)
        and len(whole) > 1
        and all(len(row) == len(names) and None not in map(parse_number, row) for row in whole)
    )


def _is_table(lines: list[Cells]) -> bool:
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
    best = max(",\t;", key=line.count)
    return best if best in line else ""


def _title(lines: Sequence[str]) -> int:
    """Return which line names the columns: that of names alone above a number, where the one
    before it is not as wide; else 0.
    """
    for at, (line, below) in enumerate(pairwise(lines)):
        mark = _delimiter(line) or "\n"
        wide = line.count(mark)
        if (
            _are_texts(line.split(mark))
            and below.count(mark) == wide
            and re.search(rf"(?:^|{mark})\s*-?\d", below)
        ):
            return at if lines[at - 1].count(mark) != wide else 0
    return 0


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


def _are_texts(cells: Cells) -> bool:
    """Return whether cells hold no number, and none of them is empty, as names do."""
    return {*map(parse_number, cells)} == {None}


def _is_comment(line: str) -> bool:
    """Return whether a line holds no cells."""
    return line.startswith("#") or not line.strip()


def _is_row(line: str) -> bool:
    """Return whether a line holds a number between commas, or before another number."""
    cells = re.split(r"[,;\t|]|(?<=\d) +(?=-?\d)", line)
    return not _is_comment(line) and not _are_texts(cells)


class CsvFeed(Feed):
    """A table of cells, line by line; its first line names the columns, a row that breaks the
    format is left out, and one that does not end, with what follows.
    """

    joined = b'"'

    _characters = 0  # in the lines that are held back
    # in those lines: where it is odd, the last record goes on in a line that has not come
    _quotes = 0
    _delimiter = ""
    _names: Cells | None = None
    _aligned = 0  # rows up to the last that has no more cells than there are names

    def __init__(self) -> None:
        self._held: list[str] = []  # lines that are not parsed yet
        self._notes: Notes = []
        self.store, self._broken, self._over = RowStore(parsing.MOST_LONG), 0, False

    def take(self, lines: Iterable[str]) -> None:
        """Read whole lines."""
        for line in () if self._over else lines:
            if (
                len(line) > parsing.MOST_VALUES
                and max(map(line.count, _BETWEEN)) > parsing.MOST_VALUES
            ):
                self._broken += 1
                continue
            self._held.append(line)
            self._characters += len(line)
            self._quotes += line.count('"')
            if (
                len(self._held) >= _BATCH and self._quotes % 2 == 0
            ) or self._characters > parsing.LONGEST_CELL + _HELD:
                self.finish()
        if self._quotes % 2 == 0 and (self._names is not None or any(map(_is_row, self._held))):
            self.finish()

    def finish(self) -> None:
        """Read what was held back, as what stands above a table that has not come."""
        lines, self._held, self._quotes, self._characters = self._held, [], 0, 0
        batch: list[Cells] = []
        for row in self._parsed(lines):
            if self._names is None or (row[0].strip() == self._names[0] and _are_texts(row)):
                self._add(batch)
                self._names, batch = self._named(row), []
            else:
                self._broken += len(row) != len(self._names)
                batch.append(_decimal_points(row) if self._delimiter == ";" else row)
                if not any(row[len(self._names) :]):
                    self._aligned = self.store.read + len(batch)
        self._add(batch)

    def _add(self, batch: list[Cells]) -> None:
        """Keep rows under the present names."""
        if batch and self._names is not None:
            self.store.add_cells(self._names, batch)

    def _parsed(self, lines: Sequence[str]) -> Iterator[Cells]:
        """Yield the records of lines that are not empty; the first line that is not blank tells
        what separates cells.
        """
        csv.field_size_limit(parsing.LONGEST_CELL)
        if not self._delimiter:
            lines = _without_comments(lines)
            start = _title(lines)
            self._notes += noted(
                start,
                "line above the table is no row and was",
                "lines above the table are no rows and were",
            )
            lines = lines[start:]
            first = next((line for line in lines if line.strip()), "")
            if first:
                self._delimiter = (
                    "|"
                    if first.startswith(_MARKDOWN)
                    else _delimiter(first) or (" " if len(first.split()) > 2 else ",")
                )
        if self._delimiter == "|":
            yield from filter(None, (_between_bars(line) for line in lines if line.startswith("|")))
        elif self._delimiter == " ":
            yield from filter(None, map(str.split, lines))
        elif self._delimiter:
            yield from filter(any, self._cells(lines))

    def _cells(self, lines: Sequence[str]) -> Iterator[Cells]:
        """Yield the cells of lines, up to a record that breaks the format within a quotation."""
        rows = csv.reader(lines, delimiter=self._delimiter, skipinitialspace=True)
        while not self._over:
            try:
                yield from rows
            except csv.Error:  # the reader goes on with the next line
                self._broken += 1
                self._over = sum(line.count('"') for line in lines[: rows.line_num]) % 2 == 1
            else:
                return

    def _named(self, row: Cells) -> Cells:
        """Return the names of columns that a row gives: those of a program that was replaced amid
        a run may be others.
        """
        notes = self._notes if self._names is None else []
        names = _unique([name.strip().lstrip("\ufeff") for name in row], notes)
        if self._names not in (None, names):
            self._notes.append(f"the columns change at row {self.store.count + 1}")
        return names

    def record(self, origin: Origin, request: Request) -> RunRecord:
        """Return the record of what was taken so far."""
        store, name = self.store, ""
        notes = encoding_notes(origin.encoding) + self._notes
        broken, wider = self._broken, store.read - self._aligned
        if self._aligned and wider > _MOST_RAGGED:
            store, broken = store.kept(store.number <= self._aligned), broken - wider
            notes.append(
                f"the last {wider:,} rows have more cells than the header has names, so nothing "
                "tells which cell is which: left out"
            )
        names = self._names or []
        runs = exported_runs(names)
        if runs:
            name = one_run(origin.path, runs, request.chosen)
            store = store.renamed(runs[name])
            notes.append(
                "this is a table exported from W&B: the bounds of averages (__MIN, __MAX) are "
                "ignored"
                if any(column.endswith("__MIN") for column in names)
                else "this is a chart table exported from a tracker, with one run per column"
            )
        # TensorBoard's export of one chart, whose file is named after the run and the tag
        elif {*map(spelled, names[:9])} == {"wall_time", "step", "value"}:
            store = store.renamed(
                {
                    key: key
                    if spelled(key) != "value"
                    else clean_key(origin.path.stem.rpartition("-tag-")[2])
                    for key in store.names()
                }
            )
        what = (
            "more or fewer cells than the header, or a cell of over a million characters: "
            "missing cells are empty and extra ones left out"
        )
        notes += noted(broken, "row has", "rows have", what)
        log = Log(store, origin.path, "csv", origin.size, notes, name=request.chosen and name)
        record = assemble(log, request)
        if not self._over:
            return record
        rows = len(record.steps)
        note = f"after {rows:,} steps a cell does not end, so the rest is not read"
        return replace(record, sources=(replace(record.sources[0], note=note, of=rows + 1),))


def texts_and_numbers(lines: Iterable[str]) -> Iterator[JsonObject]:
    """Yield the rows of a table whose cells may be texts over several lines; the first that breaks
    the format ends it.
    """
    csv.field_size_limit(parsing.LONGEST_CELL)
    whole = (line for line in lines if line.strip() and line.count(",") <= parsing.MOST_VALUES)
    head = next(whole, "").lstrip("\ufeff")
    with suppress(csv.Error):
        for row in csv.DictReader(chain([head], whole), delimiter=_delimiter(head) or ","):
            yield {
                key: cell if (number := parse_number(cell)) is None else number
                for key, cell in row.items()
                if key and cell
            }


def _unique(names: Cells, notes: Notes) -> Cells:
    """Return the header with a number behind a name that comes again."""
    unique, later, again = dict[str, None](), dict[str, int](), 0
    for name in names:
        base = final = clean_key(name)
        while final in unique:
            later[base] = later.get(base, 1) + 1
            final = f"{base} ({later[base]})"
        unique[final] = None
        again += bool(name.strip()) and base != final
    notes += noted(again, "column repeats", "columns repeat", "an earlier name and got a number")
    return list(unique)


def _decimal_points(row: Cells) -> Cells:
    """Return cells whose decimal commas are points."""
    return [re.sub(r"^(\s*-?\d+),(\d+\s*)$", r"\1.\2", cell) for cell in row]


def json_table(block: bytes) -> pl.DataFrame | None:
    """Return the rows of lines that all hold numbers, flags or texts under the keys of the first,
    None of any other.

    Polars drops what it was not told of, and takes any value for a text: marks are counted.
    """
    if len(block) >= 2 * parsing.MOST_VALUES:  # Polars makes 50 bytes of a byte of lists
        return None
    head = json_in(block[: block.find(b"\n") + 1].decode(errors="replace"))
    if not isinstance(head, dict) or not 0 < len(head) < parsing.MOST_KEYS:
        return None
    # A quotation mark in a key would upset the count below: such rows go one by one.
    kinds = {
        clean_key(key).replace('"', ""): _KINDS.get(type(cell), pl.Null)
        for key, cell in head.items()
    }
    misread = marks_in(block, b"\\u") and _MISREAD.search(block)
    alone = marks_in(block, b"\r") > marks_in(block, b"\r\n")  # and ends no line for Polars
    if misread or alone or pl.Null in kinds.values() or kinds.keys() != head.keys():
        return None
    try:
        table = pl.read_ndjson(block, schema=kinds)
    except UNREADABLE:
        return None
    texts = [column for column in table if column.dtype == pl.String]
    rows = marks_in(block, b"\n") + (block[-1:] != b"\n")
    if len(table) != rows or any(table.null_count().row(0)):
        return None
    text = pl.concat([pl.Series(dtype=pl.String), *texts]).str
    # Quotation marks within texts, and the one behind a last backslash, are behind a backslash, but
    # not those of a list or an object that was taken for a text.
    quotes = (
        text.count_matches('"', literal=True).sum()
        if text.contains(r'(?s)^(\[|\{\s*").*[\]}]$').any()
        else marks_in(block, b'\\"') - text.ends_with("\\").sum()
    )
    are_whole = (
        marks_in(block, b'"') == 2 * (len(kinds) + len(texts)) * rows + quotes
        and marks_in(block, b":") == len(kinds) * rows + text.count_matches(":", literal=True).sum()
    )
    return table if are_whole else None


def read_parquet_table(path: Path, request: Request) -> RunRecord:
    """Read a Parquet table with one row a step."""
    seen = peek(path)
    table = read_parquet(path, nested=False)
    if {"prompt", "completion"} <= set(table.columns):
        raise UnreadableRunError(
            f"expected a log of steps, got completions in {shown(path)}: give the run's folder, "
            "which should hold both"
        )
    wanted = table.select(numeric() | boolean() | string()).cast({pl.Decimal: pl.Float64})
    store = RowStore(parsing.MOST_LONG)
    store.extend(wanted.iter_rows(named=True))
    return assemble(Log(store, path, "parquet", seen.size), request)


_NAMES = vocabulary("name_of_a_run")
_HEADERS = vocabulary("header")
_BODIES = vocabulary("body")
_DEPTH, _MOST_OF_POINT, _LONGEST_NUMBER = 3, 4, 16
_NUMBERED = re.compile(r"(?:^|[^\w.]|_|-|[a-z])(\d{1,15})$")


def sniff_jsonl(seen: Peek) -> float:
    """Return the confidence that the file holds one JSON object a line."""
    named = seen.path.suffix.lower() in (".jsonl", ".ndjson")
    if not seen.text.startswith("{"):
        return 0.6 if named and any(json_lines(lines_of(seen.text))) else 0.0
    lines = first_lines(seen, 5)
    if len(lines) == 1:
        rows = [row for row in json_lines(lines) if row]
        return 0.6 if named and rows and not _rows_of_columns(rows[0]) else 0.0
    return 0.85 if any(row is not None for row in json_lines(lines)) else 0.0


class JsonlFeed(Feed):
    """One JSON object a line."""

    _damaged = _skipped = _ahead = 0

    def __init__(self) -> None:
        self.store = RowStore()

    def take_whole(self, block: bytes) -> int:
        """Read whole lines in UTF-8, by column where all rows hold the same keys; return their
        number.
        """
        table = json_table(block)
        if table is None or is_summary(table.schema):
            return super().take_whole(block)
        self.store.add_table(table.get_columns(), len(table))
        return len(table)

    def take(self, lines: Iterable[str]) -> None:
        """Read whole lines."""
        self.store.extend(map(unwrapped, self._rows(lines)))

    def _rows(self, lines: Iterable[str]) -> Iterator[JsonObject]:
        """Yield the rows of the run, and count the other lines."""
        for row in json_lines(lines):
            if row is None:
                self._damaged += 1
                self._ahead += not self.store.read
            elif is_summary(row):
                self._skipped += 1
            else:
                yield row

    def record(self, origin: Origin, request: Request) -> RunRecord:
        """Return the record of what was taken so far."""
        notes = encoding_notes(origin.encoding) + summary_notes(self._skipped)
        notes += noted(self._damaged, *DAMAGED_LINES)
        if self._damaged - self._ahead > self.store.count:
            raise UnreadableRunError(
                f"expected one JSON object a line, got {count(self._damaged, 'damaged line')} in "
                f"{shown(origin.path)}: repair it"
            )
        return assemble(Log(self.store, origin.path, "jsonl", origin.size, notes), request)


def is_state(seen: Peek) -> bool:
    """Return whether a file is an object without rows, as a state or a summary beside a log is."""
    whole = json_in(seen.text) if len(seen.head) == seen.size else None
    return isinstance(whole, dict) and not (_runs_in(whole) or _rows_in(whole))


def read_json(path: Path, request: Request) -> RunRecord:
    """Read a JSON list of rows, an object of columns, an object that holds a list of rows, or
    one run of several.
    """
    seen = peek(path)
    if seen.text.startswith("["):
        return _read_list(seen, request)
    text = read_whole(seen)
    try:
        whole = parse_json(text, floats=True)
    except NestingError:
        raise RecursionError from None  # told of every log alike where it is opened
    except ValueError:
        raise UnreadableRunError(
            f"expected whole JSON, got {shown(path)}, which is damaged or cut off: copy it again"
        ) from None
    return _read_object(seen, request, whole)


def _read_list(seen: Peek, request: Request) -> RunRecord:
    """Read a JSON list of rows, as far as it is whole."""
    store, skipped, strange = RowStore(), 0, 0
    runs: list[JsonObject] = []
    text = read_whole(seen)
    array = JsonArray(text, text.index("[") + 1)
    names: list[Any] = []  # in a first list of texts
    for row in array:
        cells = _rows_of_cells([names, row]) if isinstance(row, list) else []
        if cells:
            store.add(cells[0])
        elif isinstance(row, list) and not names:
            names = row
        elif not isinstance(row, dict):
            strange += 1
        elif _inner_logs(row) and not _has_step(row):
            runs.append(row)
        elif is_summary(row):
            skipped += 1
        else:
            store.add(unwrapped(row))
    if runs:
        return _read_run(seen, request, _named_runs(runs, {}), store.count)
    notes = encoding_notes(seen.encoding) + summary_notes(skipped)
    if not array.end:
        if not store.count:
            raise UnreadableRunError(
                f"expected whole JSON, got {shown(seen.path)}, cut off or damaged before its first "
                "row: copy it again"
            )
        notes.append(
            f"the JSON is cut off or damaged after row {store.count}: only complete rows are used"
        )
    notes += noted(
        strange,
        "element of the list is no row and was",
        "elements of the list are not rows and were",
    )
    return assemble(Log(store, seen.path, "json", seen.size, notes), request)


def _read_object(seen: Peek, request: Request, whole: JsonView) -> RunRecord:
    """Read the log that a JSON object holds."""
    if entries := _runs_in(whole):
        silent = sum(not _inner_logs(run) for run in entries)
        return _read_run(seen, request, _named_runs(entries, whole), silent)
    rows = _rows_in(whole)
    if rows is None:
        settings = settings_in(dict(flatten(whole)))
        what = (
            f"settings ({', '.join(list(settings)[:4])})"
            if settings
            else "a summary or something else"
        )
        hint = "give the log, and this file with --config" if settings else "give the log"
        raise UnreadableRunError(
            f"expected a log, got {shown(seen.path)}, which holds {what} and no rows of steps: "
            f"{hint}"
        )
    return _record_of(seen, request, rows, whole)


def _runs_in(whole: JsonView) -> list[JsonObject]:
    """Return the runs that an object lists or names."""
    listed = [
        run
        for value in whole.values()
        if _is_rows(value) and any(map(_inner_logs, value)) and not any(map(_has_step, value))
        for run in value
    ]
    return listed or _runs_by_name(whole)


def _record_of(
    seen: Peek, request: Request, rows: list[JsonObject], about: JsonView, name: str = ""
) -> RunRecord:
    """Return the record of rows and the settings beside them."""
    kept = [row for row in rows if not is_summary(row)]
    beside = {key: value for key, value in about.items() if not isinstance(value, list)}
    notes = encoding_notes(seen.encoding) + summary_notes(len(rows) - len(kept))
    stated = ((beside, f"{seen.path.name}, beside the rows"),)
    store = RowStore.of(map(unwrapped, kept))
    return assemble(
        Log(store, seen.path, "json", seen.size, notes, stated=stated, name=name), request
    )


def _is_rows(value: Any) -> bool:
    """Return whether a value is a list of rows."""
    return isinstance(value, list) and value != [] and all(isinstance(row, dict) for row in value)


def _rows_in(whole: JsonView, depth: int = 0) -> list[JsonObject] | None:
    """Return the rows of an object: those of one table, its longest list of rows, its columns,
    its entries by step, or of one inside.
    """
    inner = (
        {key: value for key, value in whole.items() if isinstance(value, dict)}
        if depth < _DEPTH
        else {}
    )
    metrics = _metrics_in(whole)
    named: dict[str, list[JsonObject]] = {
        key: value for key, value in whole.items() if _is_rows(value) and key not in metrics
    }
    named |= {
        key: rows
        for key, value in inner.items()
        if _is_split(key) and (rows := _rows_in(value, depth + 1))
    }
    if len(named) > 1 and any(map(_is_split, named)):
        return [{**row, "split": _kind(key)} for key, value in named.items() for row in value]
    columns, longest = _rows_of_columns(whole), max(named.values(), key=len, default=[])
    if longest and len(longest) >= len(columns):
        return longest
    below = [rows for value in inner.values() if (rows := _rows_in(value, depth + 1))]
    if (
        columns
        and len(below) == 1
        and len(below[0]) == len(columns)
        and not any(map(_has_step, below[0][:1]))
    ):
        return [row | beside for row, beside in zip(below[0], columns, strict=True)]
    return (
        _table_in(whole)
        or columns
        or _numbered_rows(whole)
        or (below[0] if len(below) == 1 else None)
    )


def _table_in(whole: JsonView) -> list[JsonObject]:
    """Return the rows of an object of the names of columns beside lists of their cells, as
    pandas splits a table.
    """
    rows = first_of(whole, _BODIES)
    return _rows_of_cells([first_of(whole, _HEADERS), *rows]) if isinstance(rows, list) else []


def _rows_of_cells(lists: list[Any]) -> list[JsonObject]:
    """Return the rows of lists of cells below a list of names; none where the first holds
    anything but texts.
    """
    names, *rows = lists
    titled = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return [
        dict(zip(names, row, strict=True))
        for row in rows
        if titled and isinstance(row, list) and len(row) == len(names) > 0
    ]


def _rows_of_columns(whole: JsonView) -> list[JsonObject]:
    """Return the rows of an object of columns, those of the longest, or of one of points, a
    metric each; none where it holds neither.
    """
    metrics = _metrics_in(whole)
    if metrics:
        return [
            {"step": step}
            | {key: points[step] for key, points in metrics.items() if step in points}
            for step in sorted({*chain(*metrics.values())})
        ]
    columns = {key: cells for key, value in whole.items() if (cells := _column(value))}
    length = max(map(len, columns.values()), default=0)
    full = {key: value for key, value in columns.items() if len(value) == length}
    return [dict(zip(full, cells, strict=True)) for cells in zip(*full.values(), strict=True)]


def _column(value: Any) -> list[Any]:
    """Return the cells of a column: a list of numbers, or an object of numbers by the row, as
    pandas writes it; none of anything else.
    """
    if (
        isinstance(value, dict)
        and len(value) > 1
        and all(key.isdecimal() and len(key) < _LONGEST_NUMBER for key in value)
    ):
        value = [value[key] for key in sorted(value, key=int)]
    return value if isinstance(value, list) and len(value) > 1 and _numbers(value) else []


def _metrics_in(whole: JsonView) -> dict[str, dict[float, float]]:
    """Return the metrics of an object by step, where it holds each as a list of points; objects
    in one list alone are rows.
    """
    metrics = {key: points for key, value in whole.items() if (points := _points(value))}
    return {} if len(metrics) == 1 and any(_is_rows(whole[key]) for key in metrics) else metrics


def _points(value: Any) -> dict[float, float]:
    """Return the numbers of a metric by step, where a list holds both in each element, or an
    object a list of each, as trackers export one; none of anything else.
    """
    if isinstance(value, dict):
        columns = {key: cells for key, inner in value.items() if (cells := _column(inner))}
        steps = next((columns.pop(key) for key in (*STEP_KEYS, "x") if key in columns), [])
        value = [
            list(pair)
            for key, cells in columns.items()
            if len(columns) == 1 and key in _BODIES and len(cells) == len(steps)
            for pair in zip(steps, cells, strict=True)
        ]
    if not isinstance(value, list) or len(value) < 2 or not isinstance(value[0], dict | list):
        return {}
    pairs = [_point(element) for element in value]
    return {} if None in pairs else dict(pair for pair in pairs if pair)


def _point(element: Any) -> tuple[float, float] | None:
    """Return step and number of an element: [step, number], [time, step, number], or an object
    that holds both and perhaps a time.
    """
    if isinstance(element, dict):
        short = len(element) <= _MOST_OF_POINT
        cells = [first_of(element, keys) for keys in (STEP_KEYS, VALUE_KEYS) if short]
    else:
        cells = element[-2:] if isinstance(element, list) and len(element) in (2, 3) else []
    sound = len(cells) == 2 and all(type(cell) in (int, float) for cell in cells)
    return (float(cells[0]), float(cells[1])) if sound else None


def _numbered_rows(whole: JsonView) -> list[JsonObject]:
    """Return the entries of an object whose keys are steps, or end in them as names of
    checkpoints do; none where most do not.
    """
    rows = {key: _NUMBERED.search(key) for key, value in whole.items() if isinstance(value, dict)}
    numbered = {int(match[1]): whole[key] for key, match in rows.items() if match}
    start = next((whole[key] for key in rows if key.lower() in vocabulary("before_training")), None)
    if len(numbered) < 2 or len(numbered) * 2 <= len(whole):
        return []
    numbered = numbered if start is None else {0: start} | numbered
    return [{"step": float(step), **value} for step, value in sorted(numbered.items())]


def _numbers(values: list[Any]) -> bool:
    """Return whether a list holds numbers, perhaps with gaps, or texts of numbers."""
    plain = all(value is None or type(value) in (int, float) for value in values)
    return plain or all(
        isinstance(value, str) and parse_number(value) is not None for value in values
    )


def _inner_logs(run: JsonView) -> bool:
    """Return whether an object holds the log of a run of its own."""
    return any(
        _is_rows(value) or (len(value) > 2 and _numbers(value))
        for value in run.values()
        if isinstance(value, list) and len(value) > 1 and not _points(value)
    )


def _runs_by_name(whole: JsonView) -> list[JsonObject]:
    """Return the runs of an object, or of one inside it, that holds each under its name: its
    rows, or an object with its log.
    """
    inside = [whole, *(value for value in whole.values() if isinstance(value, dict))]
    of_metrics = any(quantity_named(key) for inner in inside for key in inner)
    for inner in inside:
        named = {
            key: {"rows": value} if _is_rows(value) and not _points(value) else value
            for key, value in inner.items()
        }
        runs = [
            {"name": key, **value}
            for key, value in named.items()
            if isinstance(value, dict) and _inner_logs(value)
            if not (of_metrics and _points(value))
        ]
        heads = [set(run["rows"][0] if "rows" in run else run) - {"name"} for run in runs]
        if (
            len(runs) > 1
            and set.intersection(*heads)
            and not any(_is_split(run["name"]) for run in runs)
        ):
            return runs
    return []


def _kind(name: str) -> str:
    """Return a name as that of a kind of rows: evals are those of an evaluation."""
    return name.lower().removesuffix("s")


def _is_split(name: str) -> bool:
    """Return whether a name is that of a part of one run: its training, or an evaluation."""
    return _kind(name) in vocabulary("training") or is_evaluation(f"{_kind(name)}/")


def _has_step(row: JsonView) -> bool:
    """Return whether an object is a step of a run rather than a run."""
    return any(is_number(row.get(key)) for key in STEP_KEYS if key != "steps")


def _named_runs(runs: list[JsonObject], about: JsonView) -> dict[str, JsonObject]:
    """Return runs by name; a run listed twice counts once."""
    named: dict[str, JsonObject] = {}
    shared = {key: value for key, value in about.items() if is_scalar(value)}
    for number, run in enumerate(filter(_inner_logs, runs), start=1):
        name = next(
            (str(run[key]) for key in _NAMES if is_scalar(run.get(key))),
            str(number),
        )
        named.setdefault(clean_key(name)[:80], shared | run)
    return named


def _read_run(
    seen: Peek, request: Request, runs: Mapping[str, JsonObject], silent: int
) -> RunRecord:
    """Read the chosen run of several; entries without a log, as of runs that failed, are
    counted.
    """
    name = one_run(seen.path, runs, request.chosen)
    run = runs[name]
    rows = _rows_in(run)
    if rows is None:
        raise UnreadableRunError(
            f"expected rows of steps in run {name!r} of {shown(seen.path)}, got none: choose "
            "another run"
        )
    without = noted(
        silent,
        "entry of the file has",
        "entries of the file have",
        "no log, for example failed runs: left out",
    )
    return annotated(_record_of(seen, request, rows, run, name), *without)


LAST_NUMBER = re.compile(r"(?:^|\D)(\d{1,12})$")
_PLACES = vocabulary("place_of_an_event")
_KEPT = vocabulary("time_of_an_event")


def sniff_event_stream(seen: Peek) -> bool:
    """Return whether the file is a stream of events with their numbers inside
    "metrics".
    """
    rows = [*filter(None, json_lines(first_lines(seen, 20)))]
    events = sum(map(_is_event, rows))
    return events > 1 and events * 4 > len(rows) * 3


def _is_event(row: JsonView) -> bool:
    """Return whether a row is an event that tells its step by the name of what it belongs to, if
    at all.
    """
    named = isinstance(row.get("event"), str) and isinstance(row.get("metrics"), Mapping)
    return named and not any(key in row for key in STEP_KEYS)


def read_event_stream(path: Path, request: Request) -> RunRecord:
    """Read a stream of events; the step is the number at the end of `partition_id`, else the
    policy's version.
    """
    seen = peek(path)
    rows: list[JsonObject] = []
    damaged = unplaced = 0
    blocks = Blocks(seen)
    for event in json_lines(blocks.lines()):
        if event is None or not _is_event(event):
            damaged += 1
        elif (step := _step_of_event(event)) is None:
            unplaced += 1
        else:
            rows.append(_row_of_event(event, step))
    if not rows:
        raise UnreadableRunError(
            f"expected events that belong to a step in {shown(path)}, got none: name their step "
            "partition_id"
        )
    store = RowStore.of(sorted(rows, key=lambda row: float(row["step"])))
    notes = [
        *blocks.notes(),
        "the events were sorted by step, the number in their partition_id or policy version",
    ]
    notes += noted(unplaced, "event has no step and was", "events have no step and were")
    notes += noted(damaged, "line is not an event and was", "lines are not events and were")
    return assemble(Log(store, path, "events", seen.size, notes), request)


def _step_of_event(event: JsonView) -> float | None:
    """Return the step that an event belongs to."""
    for place in map(event.get, _PLACES):
        if isinstance(place, float):
            return place
        if isinstance(place, str) and (match := LAST_NUMBER.search(place)):
            return float(match[1])
    return None


def _row_of_event(event: JsonView, step: float) -> JsonObject:
    """Return the numbers of an event by name, with the phase in front of those that are not of
    training.
    """
    phase = str(event.get("phase") or event["event"])[:60]
    event_name = str(event["event"])[:60]
    front = (
        ""
        if phase.startswith("train")
        else f"{event_name if event_name.startswith(phase) else phase}/"
    )
    times = {key: event[key] for key in _KEPT if not front and isinstance(event.get(key), float)}
    return (
        {"step": step} | times | {f"{front}{key}": value for key, value in event["metrics"].items()}
    )


_MOST_FILES, _TIMES = 2000, vocabulary("time_of_a_value")
_NUMBERS = re.compile(r"-?\d+([,;\t])\s*(?:-?[\d.]+(?:e[+-]?\d+)?|nan)\s*")


def read_metric_files(folder: Path, request: Request) -> RunRecord:
    """Read a folder with a table of step and value for each metric as one run."""
    files, runs = metric_files(folder), dict[str, dict[float, JsonObject]]()
    for metric, file in files.items():
        for run, _, step, value in _values_of(file, Blocks(peek(file)).lines()):
            runs.setdefault(run, {}).setdefault(step, {"step": step})[metric] = value
    name = one_run(folder, runs, request.chosen)
    store = RowStore.of(runs[name][step] for step in sorted(runs[name]))
    size = sum(file.stat().st_size for file in files.values())
    notes = [f"{len(files)} tables of a metric each were read as one run"]
    return assemble(
        Log(store, folder, "metric_files", size, notes, home=folder, name=name), request
    )


def metric_files(folder: Path) -> dict[str, Path]:
    """Return the tables of a folder, or of its folders of metrics, that hold a metric each, by its
    name; none where not a single one is the reward.
    """
    files = [log for log in logs_in(folder) if log.suffix not in ENDINGS] or [
        file
        for home in folders_in(folder, _MOST_FILES)
        if home.name in vocabulary("folder_of_metrics")
        for file in islice(home.rglob("*.[ct]sv"), _MOST_FILES)
    ]
    homes, names = [file.parent for file in files], dict[str, Path]()
    home = os.path.commonpath(homes or [folder])
    for file in sorted(files):
        with suppress(GroupwiseError):  # empty so far
            values = _values_of(file, first_lines(peek(file), 3))
            if not values:
                return {}
            names[values[0][1] or file.relative_to(home).with_suffix("").as_posix()] = file
    metrics = {name.rpartition("-tag-")[2]: file for name, file in names.items()}
    rewards = [*map(quantity_named, metrics)].count("reward")
    return metrics if len(metrics) == len(names) > rewards == 1 else {}


def _values_of(file: Path, lines: Iterable[str]) -> list[tuple[str, str, float, float]]:
    """Return run, metric, step and number of each value of a chart's table, or, without run and
    metric, of a table of a step, a value that the file is named after and perhaps a time; none of
    another.
    """
    bare = _NUMBERS.fullmatch(first_lines(peek(file), 1)[0])
    head, values = [f"step{bare[1]}value\n"] if bare else [], list[tuple[str, str, float, float]]()
    charted = cache(exported_runs)  # by the columns of a row, which are those of the row before
    for row in texts_and_numbers(chain(head, lines)):
        runs = charted((*row,))
        for run, names in (runs or {"": dict.fromkeys(row, "")}).items():
            cells = {key: row[key] for key in names if spelled(key) not in _TIMES}
            step = next((cells.pop(key) for key in row if spelled(key) in STEP_KEYS), None)
            own = {*map(spelled, cells)} <= {spelled(file.stem), *VALUE_KEYS}
            if not (len(cells) == 1 if runs else own):
                return []
            values += [
                (run, names[key], step, value)
                for key, value in cells.items()
                if isinstance(step, float) and isinstance(value, float)
            ]
    return values
