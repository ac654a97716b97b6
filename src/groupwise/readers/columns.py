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

from groupwise import limits

_LEAST = 1 << 14  # bytes of a block for which a table is worth its making
_MOST = 1 << 23  # of one that holds no line of more than some megabytes
_HEAD = 1 << 16  # bytes that the kinds are learned from, where they tell those of all
_MOST_REFUSED = 3  # blocks in a row after which no further one is tried
_NO_TEXT = (
    r"^(?:-?\d[\d.]*$|true$|false$|\[|\{[\"}])"  # how another value reads under a key of texts
)
_KEY = re.compile(rb'"([^"\\]*+)"[ \t]*+:')
_MOST_BACKSLASHES = 64  # in a row, before a quotation mark


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
    texts = [column for column in table if column.dtype == pl.Utf8]
    left = _marks(block) - 2 * sum(column.count() for column in texts)
    plain = 2 * sum(column.count() for column in table)
    return (
        (left == plain or left == _marks_of_keys(block, table, empty))
        # A NUL may stand for half of a character.
        and not any(column.str.contains("\0", literal=True).any() for column in texts)
        and all(
            not column.str.contains(_NO_TEXT).any() or _holds_texts(block, column)
            for column in texts
        )
    )


def _marks(block: bytes) -> int:
    """Count the quotation marks around keys and texts: all but those behind an odd number of
    backslashes; -1 where there are too many in a row to tell.
    """
    data = np.frombuffer(block, dtype=np.uint8)
    mark, slash = data == ord('"'), data == ord("\\")
    marks, behind = np.count_nonzero(mark), np.flatnonzero(mark[1:] & slash[:-1])
    for backslashes in range(1, _MOST_BACKSLASHES):
        more = slash[behind - backslashes]
        marks -= backslashes % 2 * np.count_nonzero(~more)
        behind = behind[more]
    return -1 if len(behind) else int(marks)


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


def _holds_texts(block: bytes, column: pl.Series) -> bool:
    """Return whether a column was one of texts in the file."""
    key = json.dumps(column.name, ensure_ascii=False).encode()
    left = column.count() - block.count(key + b': "')
    return left == 0 or left == block.count(key + b':"')
