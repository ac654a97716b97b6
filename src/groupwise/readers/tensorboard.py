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

from groupwise import limits
from groupwise.errors import GroupwiseError, UnreadableRunError
from groupwise.readers.assemble import Log, Request, assemble
from groupwise.readers.configs import flatten, listed
from groupwise.readers.rows import RowStore
from groupwise.readers.source import Peek, inside, noted, peek, shown
from groupwise.readers.steps import rollout_numbers
from groupwise.readers.wire import Message, TfRecords, is_tfrecord, signed, text
from groupwise.record.run import RunRecord

_MOST_FILES = 10_000
_STAMP = re.compile(r"tfevents\.(\d{6,12})")
Scalar = tuple[float, int, str, float | str]


def sniff_events(seen: Peek) -> float:
    """Return the confidence that the file is one of TensorBoard's event files: its first record has the right checksum."""
    return 0.97 if is_tfrecord(seen.head) else 0.0


def sniff_events_folder(path: Path) -> float:
    """Return the confidence that the folder holds event files of one run."""
    return 0.7 if path.is_dir() and event_files(path) else 0.0


def event_files(folder: Path) -> list[Path]:
    """Return the event files right inside a folder, oldest first."""
    found = []
    for path in inside(folder, _MOST_FILES):
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
    size = 0
    notes: list[str] = []
    texts: dict[str, str] = {}
    written: list[list[dict[str, Any]]] = []
    for file in files:
        size += file.stat().st_size
        with file.open("rb") as opened:
            records = TfRecords(opened)
            rows = list(_rows(_scalars(records), texts))
        wrong = "record has a wrong checksum and was", "records have a wrong checksum and were"
        notes += noted(records.damaged, *wrong, f"left out of {shown(file)}")
        if not records.complete:
            notes.append(f"the file {shown(file)} is cut off or damaged: the whole records before are used")
        if len(files) > 1 and not rows:
            notes.append(f"the file {shown(file)} holds no scalar")
        written.append(rows)
    each = _on_rollouts([row for rows in written for row in rows], notes)
    store = RowStore.of(_in_order(written, notes))
    if not store.count:
        raise UnreadableRunError(f"expected scalars in {shown(path)}, got none: the run stopped before its first row, or logged elsewhere")
    stated = ((_settings(texts), "the text of the event file"), ({"updates_per_step": each}, "the steps of the log"))
    return assemble(Log(store, path, "tensorboard", size, tuple(notes), stated=stated), request)


def _on_rollouts(rows: list[dict[str, Any]], notes: list[str]) -> int | None:
    """Give slime's rows the number of their rollout as their step, and return the updates of one; None for another trainer."""
    each, step, note = rollout_numbers(RowStore.of(rows), tracked=True)
    if step is None:
        return None
    notes.append(note)
    for row, number in zip(rows, step.tolist(), strict=True):
        row["step"] = number
    return each


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
        except (ValueError, struct.error):
            records.damaged += 1


def _event(record: bytes) -> Iterator[Scalar]:
    """Yield the values of one event."""
    event = Message(record)
    wall = struct.unpack("<d", event.blobs(1)[-1])[0] if event.blobs(1) else math.nan
    step = signed(event.numbers(2)[-1]) if event.numbers(2) else 0
    for summary in event.blobs(5):
        for value in Message(summary).blobs(1):
            tag, found = _value(Message(value))
            if tag and found is not None:
                yield wall, step, tag, found


def _value(message: Message) -> tuple[str, float | str | None]:
    """Return the tag of one summary value and its number or text, None where it is neither."""
    tag = text(message.blobs(1)[-1]) if message.blobs(1) else ""
    if message.blobs(8):
        return tag, _tensor(Message(message.blobs(8)[-1]))
    return tag, struct.unpack("<f", message.blobs(2)[-1])[0] if message.blobs(2) else None


def _tensor(message: Message) -> float | str | None:
    """Return the one number or text of a tensor, None for any other."""
    kind = message.numbers(1)[-1] if message.numbers(1) else 0
    for field, form in ((4, {1: "<f", 2: "<d"}.get(kind, "")), (5, "<f"), (6, "<d")):
        for value in message.blobs(field):
            if form and len(value) == struct.calcsize(form):
                return float(struct.unpack(form, value)[0])
    written = message.blobs(8)
    return text(written[0]) if written and len(written[0]) < limits.LARGEST_EVENT_TEXT else None


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
