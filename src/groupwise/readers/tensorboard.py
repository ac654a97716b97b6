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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groupwise import limits
from groupwise.errors import GroupwiseError, UnreadableRunError
from groupwise.parsing import parse_json
from groupwise.readers.assemble import Log, Request, assemble
from groupwise.readers.configs import flatten, listed
from groupwise.readers.rows import RowStore
from groupwise.readers.source import Peek, inside, noted, peek, shown
from groupwise.readers.steps import rollout_numbers
from groupwise.readers.wire import Message, Places, TfRecords, is_tfrecord, signed, spans, text
from groupwise.record.run import RunRecord

_MOST_FILES = 10_000
_STAMP = re.compile(r"tfevents\.(\d{6,12})")
_STEP, _TIME = "step", "_timestamp"  # of a row beside its tags
_TIME_FIELD, _STEP_FIELD = 0x09, 0x10  # first bytes of an event's time and step
_FEWEST_ALIKE, _MOST_ALIKE = (
    4,
    256,
)  # records for which a layout is worth finding, and layouts of one length
Array = NDArray[np.float64]
Scalar = tuple[float, int, str, float | str]
Part = tuple[
    int | None, int, int
]  # of a record: the value of one that is an integer, and the place of its bytes


def sniff_events(seen: Peek) -> float:
    """Return the confidence that the file is one of TensorBoard's event files: its first record
    has the right checksum.
    """
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


@dataclass(frozen=True, slots=True)
class Scalars:
    """The scalars of a file in the order in which they were written, and the rows that they
    make.
    """

    names: tuple[str, ...]  # of the tags
    tag_N: NDArray[np.int64]  # the place of each scalar's tag in them
    value_N: Array
    row_N: NDArray[np.int64]
    step_R: Array
    time_R: Array  # of the first scalar of each row

    def columns(self, place_R: NDArray[np.int64]) -> dict[str, tuple[NDArray[np.int64], Array]]:
        """Return the columns of a store, with the rows at other places; the tags as they come
        first.
        """
        order = np.argsort(self.tag_N, kind="stable")
        parts = np.split(order, np.cumsum(np.bincount(self.tag_N, minlength=len(self.names))))[:-1]
        of_tags = (
            (name, (place_R[self.row_N[part]], self.value_N[part]))
            for name, part in zip(self.names, parts, strict=True)
        )
        return {_STEP: (place_R, self.step_R), _TIME: (place_R, self.time_R)} | dict(of_tags)


def _read(files: Sequence[Path], path: Path, request: Request) -> RunRecord:
    """Read event files, one after the other."""
    size = 0
    notes: list[str] = []
    texts: dict[str, str] = {}
    written: list[Scalars] = []
    for file in files:
        size += file.stat().st_size
        with file.open("rb") as opened:
            records = TfRecords(opened)
            written.append(_scalars(records, texts))
        wrong = "record has a wrong checksum and was", "records have a wrong checksum and were"
        notes += noted(records.damaged, *wrong, f"left out of {shown(file)}")
        if not records.complete:
            notes.append(
                f"the file {shown(file)} is cut off or damaged: the whole records before are used"
            )
        if len(files) > 1 and not len(written[-1].step_R):
            notes.append(f"the file {shown(file)} holds no scalar")
    each, written = _on_rollouts(written, notes)
    store = _store(written, _in_order(written, notes))
    if not store.count:
        raise UnreadableRunError(
            f"expected scalars in {shown(path)}, got none: the run stopped before its first row, "
            "or logged elsewhere"
        )
    stated = (
        (_settings(texts), "the text of the event file"),
        ({"updates_per_step": each}, "the steps of the log"),
    )
    return assemble(Log(store, path, "tensorboard", size, tuple(notes), stated=stated), request)


def _store(written: Sequence[Scalars], order: NDArray[np.int64]) -> RowStore:
    """Return the rows of files, numbered one file after the other, in an order."""
    store, first = RowStore(), 0
    place = np.argsort(order)
    merged: dict[str, list[tuple[NDArray[np.int64], Array]]] = {}
    for one in written:
        for name, column in one.columns(place[first : first + len(one.step_R)]).items():
            merged.setdefault(name, []).append(column)
        first += len(one.step_R)
    columns = {}
    for name, parts in merged.items():
        rows, values = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        by_row = np.argsort(rows, kind="stable")
        columns[name] = rows[by_row], values[by_row]
    in_order = sorted(
        columns, key=lambda name: -1 if name in (_STEP, _TIME) else columns[name][0][0]
    )
    store.add_columns({name: columns[name] for name in in_order if len(columns[name][0])}, first)
    return store


def _on_rollouts(written: list[Scalars], notes: list[str]) -> tuple[int | None, list[Scalars]]:
    """Return the updates of a rollout of slime, None for another trainer, and the rows, slime's
    with their rollout as the step.
    """
    first_of = np.cumsum([0, *(len(one.step_R) for one in written)])
    each, step, note = rollout_numbers(_store(written, np.arange(first_of[-1])), tracked=True)
    if step is None:
        return None, written
    notes.append(note)
    return each, [
        replace(one, step_R=step[at : at + len(one.step_R)])
        for one, at in zip(written, first_of, strict=False)
    ]


def _in_order(written: Sequence[Scalars], notes: list[str]) -> NDArray[np.int64]:
    """Return the rows in order: file by file where files share tags, else side by side, as
    processes of one run wrote them.
    """
    beside: list[tuple[set[str], list[tuple[float, int]]]] = []
    first = 0
    for one in written:
        tags, rows = (
            set(one.names),
            list(zip(one.step_R.tolist(), range(first, first + len(one.step_R)), strict=True)),
        )
        first += len(rows)
        same = next((entry for entry in beside if entry[0] & tags), None)
        if same is None and tags:
            beside.append((tags, rows))
        elif same is not None:
            same[0].update(tags)
            same[1].extend(rows)
    if len(beside) > 1:
        notes.append(
            f"files without a common tag are read side by side, as {len(beside)} processes of one "
            "run"
        )
    merged = heapq.merge(*(rows for _, rows in beside), key=lambda row: row[0])
    return np.fromiter((number for _, number in merged), dtype=np.int64)


class _Taken:
    """The scalars of one file as they come, and the tags that they belong to."""

    def __init__(self, texts: dict[str, str]) -> None:
        self.tags: dict[str, int] = {}
        self.texts = texts
        self._parts: list[
            tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], Array, Array]
        ] = []
        self._before = 0

    def take(self, records: TfRecords, data: bytes, start_N: Places, length_N: Places) -> None:
        """Take the records of a block: those alike but for time, step and value at once, the
        others one by one.
        """
        seen, alone = np.frombuffer(data, dtype=np.uint8), []
        kind_N = _kinds(seen, start_N, length_N)
        for kind in np.unique(kind_N).tolist():
            mine = np.flatnonzero(kind_N == kind)
            for _ in range(_MOST_ALIKE if kind else 0):
                if len(mine) < _FEWEST_ALIKE:
                    break
                first, length = start_N[mine[0]], kind // 16
                found = _layout(data[first : first + length])
                if found is None:
                    break
                fixed = np.setdiff1d(
                    np.arange(9, length),
                    [*range(10, 10 + kind % 16), *range(found[1], found[1] + 4)],
                )
                cells = seen[start_N[mine][:, None] + fixed]
                alike = (cells == cells[0]).all(axis=1)
                self._bulk(seen, mine[alike], start_N[mine[alike]], kind % 16, found)
                mine = mine[~alike]
            alone.append(mine)
        for number in np.sort(np.concatenate(alone)).tolist() if alone else ():
            try:
                scalars = list(_event(data[start_N[number] : start_N[number] + length_N[number]]))
            except (ValueError, struct.error):
                records.damaged += 1
                continue
            self._single(number, scalars)
        self._before += len(start_N)

    def _bulk(
        self,
        seen: NDArray[np.uint8],
        number_N: Places,
        start_N: Places,
        stepped: int,
        found: tuple[str, int],
    ) -> None:
        """Take records of one tag, the step in so many bytes."""
        tag, at = found
        step_N = np.zeros(len(start_N), dtype=np.uint64)
        for byte in range(stepped):
            step_N |= (seen[start_N + 10 + byte] & np.uint8(0x7F)).astype(np.uint64) << np.uint64(
                7 * byte
            )
        time_N = seen[start_N[:, None] + np.arange(1, 9)].view("<f8")[:, 0]
        value_N = (
            seen[start_N[:, None] + np.arange(at, at + 4)].view("<f4")[:, 0].astype(np.float64)
        )
        tag_N = np.full(len(start_N), self.tags.setdefault(tag, len(self.tags)))
        self._parts.append((number_N + self._before, step_N.view(np.int64), tag_N, time_N, value_N))

    def _single(self, number: int, scalars: Iterable[Scalar]) -> None:
        """Take the scalars of one record, and put its texts aside."""
        for time, step, tag, value in scalars:
            if isinstance(value, str):
                self.texts[tag] = value
                continue
            cells = (number + self._before, step, self.tags.setdefault(tag, len(self.tags)))
            whole = [np.array([cell], dtype=np.int64) for cell in cells]
            self._parts.append((whole[0], whole[1], whole[2], np.array([time]), np.array([value])))

    def scalars(self) -> Scalars:
        """Return what was taken in order."""
        if not self._parts:
            none, whole = np.zeros(0), np.zeros(0, dtype=np.int64)
            return Scalars((), whole, none, whole, none, none)
        number_N, step_N, tag_N, time_N, value_N = (
            np.concatenate(arrays) for arrays in zip(*self._parts, strict=True)
        )
        order = np.argsort(number_N, kind="stable")
        step_N, tag_N, time_N, value_N = step_N[order], tag_N[order], time_N[order], value_N[order]
        names = list(self.tags)
        begins = _begins(step_N, tag_N, names)
        row_N, first_R = np.cumsum(begins) - 1, np.flatnonzero(begins)
        step_R, time_R = step_N[first_R].astype(np.float64), time_N[first_R]
        for name, own_R in ((_STEP, step_R), (_TIME, time_R)):
            own = tag_N == self.tags.get(name, -1)
            own_R[row_N[own]] = value_N[own]
        tags, first = np.unique(tag_N, return_index=True)
        tags = np.array(
            [tag for tag in tags[np.argsort(first)].tolist() if names[tag] not in (_STEP, _TIME)],
            dtype=np.int64,
        )
        place = np.full(len(names), -1)
        place[tags] = np.arange(len(tags))
        kept = place[tag_N] >= 0
        return Scalars(
            tuple(names[tag] for tag in tags),
            place[tag_N[kept]],
            value_N[kept],
            row_N[kept],
            step_R,
            time_R,
        )


def _begins(
    step_N: NDArray[np.int64], tag_N: NDArray[np.int64], names: Sequence[str]
) -> NDArray[np.bool_]:
    """Return which scalars begin a row: one of another step, and a tag that the row has already.

    Training may count its steps otherwise than the rollouts: equal numbers need not be one step.
    """
    trains, own = (
        np.array([test(name) for name in names])[tag_N]
        for test in (_of_training, (_STEP, _TIME).__contains__)
    )
    begins: NDArray[np.bool_] = (
        np.append(True, (np.diff(step_N) != 0) | (trains[1:] != trains[:-1])) | own
    )
    run_N = np.cumsum(begins) - 1
    twice = run_N * len(names) + tag_N
    twice.sort()
    for run in np.unique(twice[1:][twice[1:] == twice[:-1]] // len(names)).tolist():
        first, end = np.searchsorted(run_N, [run, run + 1]).tolist()
        in_row: set[int] = set()
        for place, tag in enumerate(tag_N[first:end].tolist(), start=first):
            if tag in in_row:
                begins[place] = True
                in_row = set()
            in_row.add(tag)
    return begins


def _of_training(name: str) -> bool:
    """Return whether a tag is one of training."""
    return name.startswith("train/")


def _scalars(records: TfRecords, texts: dict[str, str]) -> Scalars:
    """Return the scalars of a file, texts put aside; a record that is no event counts as
    damaged.
    """
    taken = _Taken(texts)
    for data, start_N, length_N in records:
        taken.take(records, data, start_N, length_N)
    return taken.scalars()


def _kinds(seen: NDArray[np.uint8], start_N: Places, length_N: Places) -> NDArray[np.int64]:
    """Return 16 times the length of each record and the bytes of its step where it begins with a
    time, and perhaps a step; else 0.
    """
    last = len(seen) - 1
    timed = (length_N > 11) & (seen[np.minimum(start_N, last)] == _TIME_FIELD)
    stepped_N = np.zeros(len(start_N), dtype=np.int64)
    goes_on = timed & (seen[np.minimum(start_N + 9, last)] == _STEP_FIELD)
    for byte in range(11):
        stepped_N += goes_on
        goes_on = goes_on & (seen[np.minimum(start_N + 10 + byte, last)] >= 0x80)
    return np.where(timed & (stepped_N < 11), 16 * length_N + stepped_N, 0)


def _layout(record: bytes) -> tuple[str, int] | None:
    """Return the tag of a record with one plain number of four bytes, and where that number
    stands; None for any other record.
    """
    try:
        event = _parts(record, (None, 0, len(record)))
        summary = _parts(record, event[5])
        value = _parts(record, summary[1])
        (number,) = (value[field] for field in (2, 8) if field in value)
        if 8 in value:
            tensor = _parts(record, number)
            (number,) = (tensor[field] for field in (4, 5) if field in tensor and tensor[1][0] == 1)
        named, start, end = value[1]
    except (ValueError, KeyError):
        return None
    tag = text(record[start:end]) if named is None else ""
    numeral, start, end = number
    plain = (
        list(event) in ([1, 5], [1, 2, 5])
        and list(summary) == [1]
        and numeral is None
        and end - start == 4
    )
    return (tag, start) if tag and plain else None


def _parts(record: bytes, part: Part) -> dict[int, Part]:
    """Return the parts of a message within a record by their numbers; raise ValueError where it
    is none, or a number comes twice.
    """
    numeral, start, end = part
    found = [
        (number, (value, first, last)) for number, value, first, last in spans(record, start, end)
    ]
    parts = dict(found)
    if numeral is not None or len(parts) < len(found):
        raise ValueError("no message whose parts come once")
    return parts


def _event(record: bytes) -> Iterator[Scalar]:
    """Yield wall time, step, tag and number or text of each value of one event."""
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


def _settings(texts: dict[str, str]) -> dict[str, Any]:
    """Return the settings that texts hold: JSON, or lines of names and values."""
    flat: dict[str, Any] = {}
    for tag, value in texts.items():
        if tag.startswith("model_config"):
            continue
        try:
            found = parse_json(value)
        except ValueError:
            found = listed(re.sub(r"(?m)^\s*[|*\-]?\s*", "- ", value))
        flat |= dict(flatten(found)) if isinstance(found, dict) else {}
    return flat
