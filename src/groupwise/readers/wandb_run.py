"""W&B's own files: the `.wandb` file of an offline run, and the columns of a chart that was
exported as CSV.

The records are read by `wire.py`, checksums included. Nothing is sent anywhere, and the wandb
package is not needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from groupwise import limits
from groupwise.errors import UnreadableRunError
from groupwise.parsing import JsonObject
from groupwise.readers.assemble import Log, Request, assemble
from groupwise.readers.rows import RowStore
from groupwise.readers.source import Peek, json_in, noted, peek, shown
from groupwise.readers.steps import is_evaluation
from groupwise.readers.wire import BlockRecords, Message, text
from groupwise.record.run import RunRecord

MAGIC = b":W&B"
_RANGE = re.compile(r"(.+)__(MIN|MAX)")


def sniff_wandb(seen: Peek) -> float:
    """Return the confidence that the file is the record of a W&B run."""
    return 0.97 if seen.head.startswith(MAGIC) else 0.0


def read_wandb(path: Path, request: Request) -> RunRecord:
    """Read the history and the settings of a W&B run that was written on this disk."""
    seen = peek(path)
    records = block_records(seen, "W&B")
    rows: list[JsonObject] = []
    config: JsonObject = {}
    damaged = 0
    for record in records:
        try:
            _take(record, rows, config)
        except ValueError:
            damaged += 1
    notes = noted(
        damaged + records.damaged, "record is damaged and was", "records are damaged and were"
    )
    if not rows:
        raise UnreadableRunError(
            f"expected logged rows in {shown(path)}, got none: the run stopped before it logged "
            "anything"
        )
    stated = ({name: value for name, value in config.items() if name != "_wandb"}, "the W&B file")
    return assemble(
        Log(RowStore.of(rows), path, "wandb", seen.size, notes, stated=(stated,)), request
    )


def block_records(seen: Peek, tracker: str) -> BlockRecords:
    """Return the records of a tracker's file that is not too large."""
    if seen.size > limits.LARGEST_BLOCKS:
        most, size = limits.LARGEST_BLOCKS / 1e6, seen.size / 1e6
        raise UnreadableRunError(
            f"expected a {tracker} file of at most {most:.0f} MB, got {size:.0f} MB in "
            f"{shown(seen.path)}: export it as CSV"
        )
    return BlockRecords(seen.path.read_bytes())


def _take(record: bytes, rows: list[JsonObject], config: JsonObject) -> None:
    """Add what one record holds to the rows or to the settings."""
    message = Message(record)
    rows += [row for history in message.blobs(2) if (row := dict(_items(history)))]
    updates = message.blobs(5) + [
        given for run in message.blobs(17) for given in Message(run).blobs(4)
    ]
    for update in updates:
        config |= dict(_items(update))


def _items(message: bytes) -> Iterator[tuple[str, Any]]:
    """Yield key and value of each item of a history or of settings; media and tables are passed
    over.
    """
    for item in map(Message, Message(message).blobs(1)):
        names = [text(part) for part in item.blobs(1) + item.blobs(2)]
        value = json_in(text(item.blobs(16)[-1])) if item.blobs(16) else None
        if names and value is not None and not (isinstance(value, dict) and "_type" in value):
            yield "/".join(names), value


def exported_runs(names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the runs of a table that W&B or SwanLab exported from a chart: run -> {column: key};
    empty for any other table.

    W&B's columns are "Step", "<run> - <key>", "<run> - <key>__MIN" and "<run> - <key>__MAX"; of the
    last two, bounds of what was averaged, nothing is kept. SwanLab's are "step", "<run>-<key>" and
    "<run>-<key>_timestamp", of which the last is left out.
    """
    stamps = {name for name in names if name.endswith("_timestamp")}
    stamped = {
        name: name.rpartition("-")
        for name in names
        if "-" in name and f"{name}_timestamp" in stamps
    }
    split = stamped or _charted(names)
    aside = split.keys() | stamps if stamped else split.keys()
    shared = {name: name for name in names if name not in aside}
    runs: dict[str, dict[str, str]] = {}
    for name, (run, _, key) in split.items():
        if not _RANGE.fullmatch(name):
            runs.setdefault(run, dict(shared))[name] = key
    return runs


def _charted(names: Sequence[str]) -> dict[str, tuple[str, str, str]]:
    """Return the run and the key of each column of a chart that W&B exported, none for any other
    table: one that has the bounds, or the same key of several runs and not of training and tests.
    """
    split = {name: name.rpartition(" - ") for name in names if " - " in name}
    are_runs = any(map(_RANGE.fullmatch, names)) or (
        len({key for _, _, key in split.values()}) < len(split)
        and not any(is_evaluation(f"{run}/{key}") for run, _, key in split.values())
    )
    return split if len(split) > 1 and are_runs else {}
