"""TensorBoard event files: every scalar, and the settings that Transformers and others write beside
them as text.

The records are read by `wire.py`, checksums included; graphs, images and histograms are passed
over.
"""

from __future__ import annotations

import heapq
import math
import re
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from groupwise import limits
from groupwise.errors import GroupwiseError, UnreadableRunError
from groupwise.files import open_regular
from groupwise.parsing import JsonObject, parse_json
from groupwise.readers.assemble import Log, Request, assemble
from groupwise.readers.configs import flatten, listed
from groupwise.readers.rows import RowStore
from groupwise.readers.source import Peek, inside, noted, peek, shown
from groupwise.readers.steps import rollout_numbers
from groupwise.readers.wire import Message, TfRecords, is_tfrecord, signed, text
from groupwise.record.run import RunRecord

_MOST_FILES = 10_000
_STAMP = re.compile(r"tfevents\.(\d{6,12})")
_STEP, _TIME = "step", "_timestamp"  # of a row beside its tags
_PLAIN = re.compile(
    rb"\x09(.{8})(?:\x10([\x80-\xff]{0,9}[\0-\x7f]))?\x2a(.)\x0a(.)\x0a(.)(.+)\x15(.{4})", re.DOTALL
)
_DOUBLE, _SINGLE = struct.Struct("<d").unpack, struct.Struct("<f").unpack
Scalar = tuple[float, int, str, float | str]  # time, step, tag, and number or text


def sniff_events(seen: Peek) -> float:
    """Return the confidence that the file is one of TensorBoard's event files: its first record
    has the right checksum.
    """
    return 0.97 if is_tfrecord(seen.head) else 0.0


def sniff_events_folder(path: Path) -> float:
    """Return the confidence that the folder holds event files of one run."""
    return 0.7 if event_files(path) else 0.0


def event_files(folder: Path) -> list[Path]:
    """Return the event files right inside a folder, oldest first."""
    files = []
    for path in inside(folder, _MOST_FILES):
        try:
            if "tfevents" in path.name and path.is_file() and is_tfrecord(peek(path).head):
                files.append(path)
        except GroupwiseError:
            continue
    return sorted(files, key=_started)


def _started(path: Path) -> tuple[float, str]:
    """Return the time at which an event file was begun, from its name."""
    match = _STAMP.search(path.name)
    return (float(match[1]) if match else math.inf), path.name


def read_events(path: Path, request: Request) -> RunRecord:
    """Read the scalars of one event file, or of those of a folder as one run that was begun as
    often as there are files.
    """
    files, size = event_files(path) if path.is_dir() else [path], 0
    notes: list[str] = []
    texts: dict[str, str] = {}
    store = RowStore(limits.MOST_LONG)
    written: list[tuple[set[str], range]] = []  # of each file, its tags and its rows
    for file in files:
        size += file.stat().st_size
        tags, first = set[str](), store.count
        with open_regular(file) as opened:
            records = TfRecords(opened)
            store.extend(_rows(records, texts, tags))
        written.append((tags, range(first, store.count)))
        wrong = "record has a wrong checksum and was", "records have a wrong checksum and were"
        notes += noted(records.damaged, *wrong, f"left out of {shown(file)}")
        if not records.complete:
            notes.append(
                f"the file {shown(file)} is cut off or damaged: the whole records before are used"
            )
        if len(files) > 1 and first == store.count:
            notes.append(f"the file {shown(file)} holds no scalar")
    if not store.count:
        raise UnreadableRunError(
            f"expected scalars in {shown(path)}, got none: the run stopped before its first row, "
            "or logged elsewhere"
        )
    each, step, note = rollout_numbers(store, tracked=True)
    if step is not None:
        notes.append(note)
        store.set_column(_STEP, step)
    stated = (
        (_settings(texts), "the text of the event file"),
        ({"updates_per_step": each if step is not None else None}, "the steps of the log"),
    )
    store = _in_order(store, written, notes)
    return assemble(Log(store, path, "tensorboard", size, notes, stated=stated), request)


def _in_order(
    store: RowStore, written: Iterable[tuple[set[str], range]], notes: list[str]
) -> RowStore:
    """Return the rows file by file where files share tags, else side by side by their steps, as
    processes of one run wrote them.
    """
    processes: list[tuple[set[str], list[int]]] = []
    for tags, rows in written:
        same = next((process for process in processes if process[0] & tags), None)
        if same is not None:
            same[0].update(tags)
            same[1].extend(rows)
        elif tags:
            processes.append((tags, list(rows)))
    if len(processes) < 2:
        return store
    notes.append(
        f"files without a common tag are read side by side, as {len(processes)} processes of one "
        "run"
    )
    step = store.dense(_STEP).tolist()
    order = list(heapq.merge(*(rows for _, rows in processes), key=step.__getitem__))
    return store.placed(np.argsort(order))


def _rows(records: TfRecords, texts: dict[str, str], tags: set[str]) -> Iterator[dict[str, float]]:
    """Yield the rows of a file; its texts are put aside, its tags collected, and a record that is
    no event counts as damaged.

    A row ends where the step changes or a tag comes again. Training may count its steps otherwise
    than the rollouts: equal numbers need not be one step.
    """
    row: dict[str, float] = {}
    place: tuple[int, bool] | None = None
    for record in records:
        try:
            scalars = _plain_event(record) or list(_event(record))
        except (ValueError, struct.error):
            records.damaged += 1
            continue
        for time, step, tag, value in scalars:
            if isinstance(value, str):
                texts[tag] = value
                continue
            here = step, tag.startswith("train/")
            if here != place or tag in row:
                if row:
                    yield row
                row, place = {_STEP: float(step), _TIME: time}, here
            row[tag] = value
            tags.add(tag)
    tags -= {_STEP, _TIME}
    if row:
        yield row


def _plain_event(record: bytes) -> list[Scalar]:
    """Return the scalar of an event as most programs write it, none where it is any other."""
    event = _PLAIN.fullmatch(record)
    if event is None:
        return []
    time, step, summary, value, length, tag, number = event.groups()
    if not len(tag) == length[0] == value[0] - 7 == summary[0] - 9:
        return []
    whole = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(step or b""))
    if whole >= 1 << 63:
        return []
    return [(_DOUBLE(time)[0], whole, text(tag), _SINGLE(number)[0])]


def _event(record: bytes) -> Iterator[Scalar]:
    """Yield wall time, step, tag and number or text of each value of one event."""
    event = Message(record)
    wall = _DOUBLE(event.blobs(1)[-1])[0] if event.blobs(1) else math.nan
    step = signed(event.numbers(2)[-1]) if event.numbers(2) else 0
    for summary in event.blobs(5):
        for value in Message(summary).blobs(1):
            tag, value_read = _value(Message(value))
            if tag and value_read is not None:
                yield wall, step, tag, value_read


def _value(message: Message) -> tuple[str, float | str | None]:
    """Return the tag of one summary value and its number or text, None where it is neither."""
    tag = text(message.blobs(1)[-1]) if message.blobs(1) else ""
    if message.blobs(8):
        return tag, _tensor(Message(message.blobs(8)[-1]))
    return tag, _SINGLE(message.blobs(2)[-1])[0] if message.blobs(2) else None


def _tensor(message: Message) -> float | str | None:
    """Return the one number or text of a tensor, None for any other."""
    kind = message.numbers(1)[-1] if message.numbers(1) else 0
    for field, form in ((4, {1: "<f", 2: "<d"}.get(kind, "")), (5, "<f"), (6, "<d")):
        for value in message.blobs(field):
            if form and len(value) == struct.calcsize(form):
                return float(struct.unpack(form, value)[0])
    written = message.blobs(8)
    return text(written[0]) if written and len(written[0]) < limits.LARGEST_EVENT_TEXT else None


def _settings(texts: dict[str, str]) -> JsonObject:
    """Return the settings that texts hold: JSON, or lines of names and values."""
    flat: JsonObject = {}
    for tag, value in texts.items():
        if tag.startswith("model_config"):
            continue
        try:
            settings = parse_json(value)
        except ValueError:
            settings = listed(re.sub(r"(?m)^\s*[|*\-]?\s*", "- ", value))
        flat |= dict(flatten(settings)) if isinstance(settings, dict) else {}
    return flat
