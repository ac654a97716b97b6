"""Large files of JSON lines, parsed by Polars a block at a time wherever that gives exactly what the careful reader would give.

A block that is not plain (a key missing or given twice, a damaged line, another type) is handed on as lines. It makes no rollouts.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import polars as pl

SMALLEST = 1 << 22
_STEPS = ("step", "global_step", "training_step", "train_step", "index")
_BLOCK = 1 << 24


@dataclass(frozen=True, slots=True)
class Plan:
    """What every row of a file is expected to hold."""

    keys: frozenset[str]  # all keys of a row, as the first rows have them
    schema: Mapping[str, Any]  # the keys that are wanted -> text or number
    counted: tuple[str, ...]  # keys of numbers that each row may give only once


def plan_of(first: Sequence[Mapping[str, Any]], wanted: frozenset[str], unread: str, numbers: Container[str] = ()) -> Plan | None:
    """Return the plan for a file whose first rows are alike, None where they are not plain."""
    if len(first) < 2 or any(row.keys() != first[0].keys() for row in first):
        return None
    schema: dict[str, Any] = {}
    for key in first[0]:
        values = [row[key] for row in first]
        kinds = {type(value) for value in values}
        if kinds == {float} or kinds == {bool}:
            schema[key] = pl.Float64 if kinds == {float} else pl.Boolean
        elif kinds != {str} or (key not in wanted and key != unread and key in numbers):
            return None
        elif key in wanted and key != unread:
            schema[key] = pl.Utf8
    counted = tuple(key for key, kind in schema.items() if kind != pl.Utf8 and key not in _STEPS)
    plain = bool(counted) and all(key.isascii() and key.isprintable() and not set(key) & {'"', "\\"} for key in first[0])
    return Plan(frozenset(first[0]), schema, counted) if plain and schema and (not unread or unread in first[0]) else None


def blocks(path: Path, plan: Plan) -> Iterator[tuple[pl.DataFrame | None, list[str]]]:
    """Yield the rows of a file block by block, as a table where the plan holds, else as lines."""
    # Each block is read right up to the end of a line, so that it never has to be copied.
    with path.open("rb", buffering=0) as file:
        start, size = 0, path.stat().st_size
        while start < size:
            file.seek(start + _BLOCK)
            end = min(size, start + _BLOCK + _to_line_end(file)) if start + _BLOCK < size else size
            file.seek(start)
            block = file.read(end - start)
            if not block:
                return
            start += len(block)
            yield _parsed(block, plan)


def _to_line_end(file: BinaryIO) -> int:
    """Return how many bytes there are up to the end of the line at which a file stands."""
    count = 0
    while piece := file.read(1 << 15):
        found = piece.find(b"\n")
        if found >= 0:
            return count + found + 1
        count += len(piece)
    return count


def _parsed(block: bytes, plan: Plan) -> tuple[pl.DataFrame | None, list[str]]:
    """Return a block as a table, or as lines where anything in it is not as planned."""
    table = _table(block, plan)
    if table is not None:
        return table, []
    return None, [line.decode("utf-8", "replace") for line in block.split(b"\n")]


def _table(block: bytes, plan: Plan) -> pl.DataFrame | None:
    """Return a block as a table where every row has each key, and its numbers once, with a value of its type; else None."""
    try:
        table = pl.read_ndjson(block, schema=dict(plan.schema))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, ValueError, RuntimeError, OSError):
        return None
    # Polars takes the first value of a key given twice and Python the last: each number that counts has to be there once a row.
    once = all(block.count(b'"' + key.encode() + b'":') == len(table) for key in plan.counted)
    if not once or not len(table) or any(column.null_count() for column in table.iter_columns()):
        return None
    first = block.find(b"\n")
    ends = (block if first < 0 else block[:first], block[block.rfind(b"\n", 0, -1) + 1 :])
    alike = all(_agrees(line, row, plan) for line, row in zip(ends, (table.row(0, named=True), table.row(-1, named=True)), strict=True))
    return table if alike else None


def _agrees(line: bytes, row: Mapping[str, Any], plan: Plan) -> bool:
    """Return whether a row of the table is what Python's own parser reads from its line."""
    try:
        whole = json.loads(line, parse_int=float)
    except (ValueError, RecursionError):
        return False
    return isinstance(whole, dict) and whole.keys() == plan.keys and all(whole[key] == row[key] for key in plan.schema)
