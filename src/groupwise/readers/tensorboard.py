"""TensorBoard event files: every scalar, and the settings that Transformers and others write beside them as text.

The records are read by `wire.py`, checksums included; graphs, images and histograms are passed over.
"""

from __future__ import annotations

import heapq
import json
import math
import re
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from groupwise.errors import GroupwiseError, UnreadableRunError
from groupwise.readers.assemble import Log, Request, assemble
from groupwise.readers.configs import flatten, listed
from groupwise.readers.rows import RowStore
from groupwise.readers.source import counted, peek, shown
from groupwise.readers.steps import by_rollouts
from groupwise.readers.wire import TfRecords, fields, is_tfrecord, signed, text
from groupwise.record.run import RunRecord

_MOST_FILES = 10_000
_STAMP = re.compile(r"tfevents\.(\d{6,12})")
_LONGEST_TEXT = 1 << 22
Scalar = tuple[float, int, str, float | str]


def sniff_events(path: Path) -> float:
    """Return the confidence that the file is one of TensorBoard's event files: its first record has the right checksum."""
    return 0.97 if is_tfrecord(peek(path).head) else 0.0


def sniff_events_folder(path: Path) -> float:
    """Return the confidence that the folder holds event files of one run."""
    return 0.7 if path.is_dir() and event_files(path) else 0.0


def event_files(folder: Path) -> list[Path]:
    """Return the event files right inside a folder, oldest first."""
    found = []
    for path, _ in zip(folder.iterdir(), range(_MOST_FILES), strict=False):
        try:
            if "tfevents" in path.name and path.is_file() and is_tfrecord(peek(path).head):
                found.append(path)
        except GroupwiseError:
            continue
    return sorted(found, key=_started)


def _started(path: Path) -> tuple[float, str]:
    """Return the time at which an event file was begun, from its name."""
    match = _STAMP.search(path.name)
    return (float(match[1]) if match else math.inf), path.name


def read_events(path: Path, request: Request) -> RunRecord:
    """Read the scalars of one event file."""
    return _read([path], path, request)


def read_events_folder(path: Path, request: Request) -> RunRecord:
    """Read the event files of one folder as one run that was begun as often as there are files."""
    return _read(event_files(path), path, request)


def _read(files: Sequence[Path], path: Path, request: Request) -> RunRecord:
    """Read event files, one after the other."""
    store, size = RowStore(), 0
    notes: list[str] = []
    texts: dict[str, str] = {}
    written: list[list[dict[str, Any]]] = []
    for file in files:
        size += file.stat().st_size
        with file.open("rb") as opened:
            records = TfRecords(opened)
            rows = list(_rows(_scalars(records), texts))
        if records.damaged:
            are = counted(records.damaged, "record has a wrong checksum and was", "records have a wrong checksum and were")
            notes.append(f"{are} left out of {shown(file)}")
        if not records.complete:
            notes.append(f"the file {shown(file)} is cut off or damaged: the whole records before are used")
        if len(files) > 1 and not rows:
            notes.append(f"the file {shown(file)} holds no scalar")
        written.append(rows)
    each, said = by_rollouts([row for rows in written for row in rows], "step")
    for row in _in_order(written, notes):
        store.add(row)
    if not store.count:
        raise UnreadableRunError(f"expected scalars in {shown(path)}, got none: the run stopped before its first row, or logged elsewhere")
    stated = [(_settings(texts), "the text of the event file")]
    if each:
        notes.append(said)
        stated.append(({"updates_per_step": each}, "the steps of the log"))
    return assemble(Log(store, path, "tensorboard", size, tuple(notes), stated=stated), request)


def _in_order(written: Sequence[list[dict[str, Any]]], notes: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the rows of several files: one after the other where they share tags, else side by side, as processes of one run wrote them."""
    beside: list[tuple[set[str], list[dict[str, Any]]]] = []
    for rows in written:
        tags = {tag for row in rows for tag in row} - {"step", "_timestamp"}
        same = next((entry for entry in beside if entry[0] & tags), None)
        if same is None and tags:
            beside.append((tags, list(rows)))
        elif same is not None:
            same[0].update(tags)
            same[1].extend(rows)
    if len(beside) > 1:
        notes.append(f"files without a common tag are read side by side, as {len(beside)} processes of one run")
    yield from heapq.merge(*(rows for _, rows in beside), key=lambda row: float(row["step"]))


def _scalars(records: TfRecords) -> Iterator[Scalar]:
    """Yield wall time, step, tag and number or text of each value; a record that is no event counts as damaged."""
    for record in records:
        try:
            yield from list(_event(record))
        except ValueError:
            records.damaged += 1


def _event(record: bytes) -> Iterator[Scalar]:
    """Yield the values of one event."""
    wall, step, summaries = math.nan, 0, []
    for number, kind, value in fields(record):
        if number == 1 and kind == 1 and isinstance(value, bytes):
            wall = struct.unpack("<d", value)[0]
        elif number == 2 and isinstance(value, int):
            step = signed(value)
        elif number == 5 and isinstance(value, bytes):
            summaries.append(value)
    for summary in summaries:
        for number, kind, value in fields(summary):
            if number == 1 and kind == 2 and isinstance(value, bytes):
                tag, found = _value(value)
                if tag and found is not None:
                    yield wall, step, tag, found


def _value(message: bytes) -> tuple[str, float | str | None]:
    """Return the tag of one summary value and its number or text, None where it is neither."""
    tag, found = "", None
    for number, kind, value in fields(message):
        if number == 1 and isinstance(value, bytes):
            tag = text(value)
        elif number == 2 and kind == 5 and isinstance(value, bytes):
            found = struct.unpack("<f", value)[0]
        elif number == 8 and isinstance(value, bytes):
            found = _tensor(value)
    return tag, found


def _tensor(message: bytes) -> float | str | None:
    """Return the one number or text of a tensor, None for any other."""
    kind_of_value = 0
    for number, kind, value in fields(message):
        if number == 1 and isinstance(value, int):
            kind_of_value = value
        elif number == 4 and isinstance(value, bytes):
            size = {1: ("<f", 4), 2: ("<d", 8)}.get(kind_of_value)
            return float(struct.unpack(size[0], value)[0]) if size and len(value) == size[1] else None
        elif number in (5, 6) and isinstance(value, bytes):
            width = 4 if number == 5 else 8
            if len(value) == width:
                return float(struct.unpack("<f" if number == 5 else "<d", value)[0])
        elif number == 8 and kind == 2 and isinstance(value, bytes):
            return text(value) if len(value) < _LONGEST_TEXT else None
    return None


def _rows(scalars: Iterator[Scalar], texts: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Yield one row for the scalars of one step that follow one another; texts are put aside."""
    row: dict[str, Any] = {}
    at, trains = 0, False
    for wall, step, tag, value in scalars:
        if isinstance(value, str):
            texts[tag] = value
            continue
        # Training may count its steps otherwise than the rollouts: equal numbers need not be one step.
        if row and (step != at or tag in row or trains != tag.startswith("train/")):
            yield row
            row = {}
        if not row:
            at, trains, row = step, tag.startswith("train/"), {"step": float(step), "_timestamp": wall}
        row[tag] = value
    if row:
        yield row


def _settings(texts: dict[str, str]) -> dict[str, Any]:
    """Return the settings that texts hold: JSON, or lines of names and values."""
    flat: dict[str, Any] = {}
    for tag, value in texts.items():
        if tag.startswith("model_config"):
            continue
        try:
            found = json.loads(value)
        except (ValueError, RecursionError):
            found = listed(re.sub(r"(?m)^\s*[|*\-]?\s*", "- ", value))
        flat |= dict(flatten(found)) if isinstance(found, dict) else {}
    return flat
