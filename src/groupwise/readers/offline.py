"""Runs that wait on this disk until they are sent: ClearML's, neptune's and SwanLab's."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from groupwise.errors import GroupwiseError, UnreadableRunError
from groupwise.parsing import JsonObject
from groupwise.readers.assemble import Log, Request, assemble
from groupwise.readers.rows import RowStore
from groupwise.readers.source import Blocks, Peek, inside, json_in, noted, peek, shown
from groupwise.readers.trackers import Entry, rows_of_entries
from groupwise.readers.wandb_run import block_records
from groupwise.readers.wire import Message, text
from groupwise.record.run import RunRecord

_FILE = re.compile(r"metrics\.jsonl|data-\d{1,9}\.log|.{1,80}\.swanlab")
_MOST = 200  # files of a folder
_MAGIC = b":SWL"
_EVENTS = re.compile(r'\[\{"timestamp": ?\d{1,20}, ?"type": ?"(training_|plot)')
_OPERATION = '{"obj": {"type": "'


def sniff_offline(seen: Peek) -> float:
    """Return the confidence that the file holds the numbers of a run that waits to be sent."""
    ours = seen.head.startswith(_MAGIC) or seen.text.startswith(_OPERATION)
    return 0.97 if ours or _EVENTS.match(seen.text) else 0.0


def sniff_offline_folder(path: Path) -> float:
    """Return the confidence that the folder is that of one such run."""
    return 0.97 if _numbers_in(path) else 0.0


def _numbers_in(folder: Path) -> Path | None:
    """Return the file of a folder that holds the numbers of such a run."""
    for file in inside(folder, _MOST):
        with suppress(GroupwiseError):  # empty, or not to be read
            if _FILE.fullmatch(file.name) and file.is_file() and sniff_offline(peek(file)):
                return file
    return None


def read_offline(path: Path, request: Request) -> RunRecord:
    """Read one such run, with the settings that its tracker keeps beside it."""
    path = _numbers_in(path) or path if path.is_dir() else path
    seen, settings, notes, home = peek(path), dict[str, Any](), list[str](), path.parent
    if seen.head.startswith(_MAGIC):
        entries, home = _of_swanlab(seen, notes), home / "files"
    else:
        entries = _of_lines(seen, settings, notes)
    store = RowStore.of(rows_of_entries(entries))
    if not store.count:
        raise UnreadableRunError(
            f"expected numbers in {shown(path)}, got none: nothing has been logged yet"
        )
    stated = ((settings, "neptune's parameters"),)
    return assemble(
        Log(
            store,
            path,
            "offline",
            seen.size,
            notes,
            stated=stated,
            home=home,
            name=path.parent.name,
        ),
        request,
    )


def _of_lines(seen: Peek, settings: JsonObject, notes: list[str]) -> Iterator[Entry]:
    """Yield the numbers of lines: ClearML's are lists of events, neptune's an operation each, and
    what is assigned once is a setting.
    """
    damaged = 0
    for line in Blocks(seen).lines():
        whole = json_in(line)
        damaged += not isinstance(whole, dict | list)
        for event in whole if isinstance(whole, list) else ():
            if isinstance(event, dict) and event.get("type") == "training_stats_scalar":
                key = f"{event.get('metric')}/{event.get('variant')}"
                yield event.get("timestamp", 0), event.get("iter", 0), key, event.get("value", 0)
        operation = whole.get("obj") if isinstance(whole, dict) else None
        if not isinstance(operation, dict):
            continue
        key = "/".join(map(str, operation.get("path") or ()))
        if "value" in operation:
            settings[key] = operation["value"]
        elif operation.get("type") == "LogFloats" and not key.startswith("monitoring/"):
            for point in operation.get("values") or ():
                yield 1000 * point.get("ts", 0), point.get("step"), key, point.get("value")
    notes += noted(damaged, "line is no whole JSON and was", "lines are not whole JSON and were")


def _of_swanlab(seen: Peek, notes: list[str]) -> Iterator[Entry]:
    """Yield the numbers of records, in whose messages a 0 is left out."""
    records, damaged = block_records(seen, "SwanLab"), 0
    for record in records:
        try:
            for scalar in map(Message, Message(record).blobs(13)):
                key, time, value = (
                    b"".join(scalar.blobs(1)),
                    Message(b"".join(scalar.blobs(4))),
                    b"".join(Message(b"".join(scalar.blobs(5))).blobs(1)) or bytes(8),
                )
                stamp = 1e3 * sum(time.numbers(1)) + 1e-6 * sum(time.numbers(2))
                yield stamp, sum(scalar.numbers(2)), text(key), struct.unpack("<d", value)[0]
        except (ValueError, struct.error):
            damaged += 1
    damaged += records.damaged
    notes += noted(damaged, "record is damaged and was", "records are damaged and were")
