"""Lines of JSON whose rows are plain, parsed by column: numbers, truth values and texts under keys
that have one kind each.

Polars parses them, and drops what it was not told of. So a block counts only where each of its
quotation marks belongs to a key or a text that was found; any other block, and any that holds what
only Python's parser takes, is left to be read row by row.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from groupwise import limits

_LEAST = 1 << 14  # bytes of a block for which a table is worth its making
_MOST = 1 << 23  # of one that holds no line of more than some megabytes
_HEAD = 1 << 16  # bytes that the kinds are learned from, where they tell those of all
_MOST_REFUSED = 3  # blocks in a row after which no further one is tried
_NO_TEXT = (
    r"^(?:-?\d[\d.]*$|true$|false$|\[|\{[\"}])"  # how another value reads under a key of texts
)
_KEY = re.compile(rb'"([^"\\]*+)"[ \t]*+:')
_MANY = 16  # backslashes in a row
_WINDOW = 1 << 18  # bytes that stay in a processor's cache, with what is made of them


class PlainRows:
    """The kinds of a log's keys, as far as they are known, and what reads its lines by them."""

    def __init__(self) -> None:
        self._kinds: dict[str, pl.DataType] = {}
        self._empty: set[str] = set()  # keys under which nothing but null has been seen
        self._refused = 0

    def table(self, block: bytes, without: Sequence[str] = ()) -> pl.DataFrame | None:
        """Return the rows of whole lines, None where they are not plain, too few, or have one of
        the keys that are asked to be absent.
        """
        if not _LEAST <= len(block) <= _MOST or self._refused >= _MOST_REFUSED:
            return None
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n")
        found = self._parsed(block)
        for part in (block[: block.find(b"\n", _HEAD) + 1], block):
            if found is None and part and self._learned(part):
                found = self._parsed(block)
        if found is None or any(found[name].count() for name in without if name in found.columns):
            self._refused += 1
            return None
        self._refused = 0
        return found

    def _learned(self, block: bytes) -> bool:
        """Learn the kinds of the keys of a block; return whether all are plain."""
        if not _fits(block, len(set(_KEY.findall(block)))):
            return False
        try:
            schema = pl.scan_ndjson(io.BytesIO(block), infer_schema_length=None).collect_schema()
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
            return False
        kinds = {
            name: pl.Float64() if kind.is_numeric() else kind
            for name, kind in schema.items()
            if kind != pl.Null
        }
        places = {
            name: block.find(json.dumps(name, ensure_ascii=False).encode() + b":") for name in kinds
        }
        self._kinds |= {
            name: kinds[name] for name in sorted(kinds, key=lambda name: places[name])
        }  # as they come row by row
        self._empty = (self._empty | set(schema)) - set(self._kinds)
        return all(kind in (pl.Float64, pl.Boolean, pl.Utf8) for kind in kinds.values())

    def _parsed(self, block: bytes) -> pl.DataFrame | None:
        """Return the rows of a block, None where the kinds that are known do not tell all that
        it holds.
        """
        if not self._kinds or b"\r" in block or not _fits(block, len(self._kinds)):
            return None
        try:
            table = pl.read_ndjson(block, schema=self._kinds)
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
            return None
        return table if _is_whole(block, table, self._empty) else None


def _fits(block: bytes, keys: int) -> bool:
    """Return whether the table of a block is small: keys that differ from row to row make one of
    rows times rows.
    """
    return keys <= limits.MOST_KEYS and keys * block.count(b"\n") <= limits.MOST_CELLS


def _is_whole(block: bytes, table: pl.DataFrame, empty: Iterable[str]) -> bool:
    """Return whether a table holds all that its lines do: no key is unknown or doubled, nothing
    is nested, no text was a number.
    """
    texts = [column.name for column in table if column.dtype == pl.Utf8]
    halves, no_texts = _asked(table, texts)
    left = _marks(block) - 2 * sum(table[name].count() for name in texts)
    if halves or (
        left != 2 * sum(column.count() for column in table)
        and left != _marks_of_keys(block, table, empty)
    ):
        return False
    return all(_holds_texts(block, table[name]) for name in no_texts)


def _marks(block: bytes) -> int:
    """Count the quotation marks around keys and texts: all but those that a backslash makes a
    letter.
    """
    data, count = np.frombuffer(block, dtype=np.uint8), 0
    for start in range(1, len(data), _WINDOW):
        mark, slash = (
            data[start : start + _WINDOW] == ord('"'),
            data[start - 1 : start - 1 + _WINDOW] == ord("\\"),
        )
        count += int(np.count_nonzero(mark))
        mark &= slash[: len(mark)]
        count -= int(np.count_nonzero(mark))
        mark[1:] &= slash[: len(mark) - 1]
        if mark.any():
            count += _ended_by(data, start + np.flatnonzero(mark))
    return count


def _ended_by(data: NDArray[np.uint8], behind: NDArray[np.int64]) -> int:
    """Count the quotation marks, of some behind backslashes, before which they are even in
    number: letters themselves.
    """
    even, known = 0, 1
    while len(behind) and known < _MANY:
        more = data[np.maximum(behind - known - 1, 0)] == ord("\\")
        even += int((~more).sum()) if known % 2 == 0 else 0
        behind, known = behind[more], known + 1
    for place in behind.tolist():  # runs that long are disjoint, and each is gone through once
        start = place
        while start and data[start - 1] == ord("\\"):
            start -= 1
        even += (place - start) % 2 == 0
    return even


def _marks_of_keys(block: bytes, table: pl.DataFrame, empty: Iterable[str]) -> int | None:
    """Return the quotation marks of keys where some hold null; None where one is doubled, or may
    be.

    A key stands once in every row, with a value or with null: where it is missing from some rows
    too, nobody can tell.
    """
    keys = {
        name: json.dumps(name, ensure_ascii=False).encode() + b":"
        for name in (*table.columns, *empty)
    }
    found = 0
    for name, key in keys.items():
        values, times = table[name].count() if name in table.columns else 0, block.count(key)
        nulls = block.count(key + b" null") + block.count(key + b"null")
        if times != values + nulls or (nulls and times != len(table)):
            return None
        found += 2 * times
    return found


def _asked(table: pl.DataFrame, texts: Sequence[str]) -> tuple[bool, list[str]]:
    """Return whether a NUL is in a text, which may stand for half of a character, and which
    columns may have held no texts.
    """
    if not texts:
        return False, []
    of_each = [pl.col(name).str for name in texts]
    halves = pl.any_horizontal(one.contains("\0", literal=True).any() for one in of_each)
    found = table.select(
        halves.alias("halves"),
        no_texts=pl.concat_list(one.contains(_NO_TEXT).any() for one in of_each),
    )
    nul, others = found.row(0)
    return nul, [name for name, other in zip(texts, others, strict=True) if other]


def _holds_texts(block: bytes, column: pl.Series) -> bool:
    """Return whether a column was one of texts in the file."""
    key = json.dumps(column.name, ensure_ascii=False).encode()
    left = column.count() - block.count(key + b': "')
    return left == 0 or left == block.count(key + b':"')
