"""What trackers leave on a disk: trackio's and MLflow's databases and folders, event files of
TensorBoard, W&B's own files, runs of ClearML, neptune and SwanLab that wait until they are sent.

Databases are opened read-only, and the statements are ours. A store of several runs is one log a
run: the user says which. Of Protocol Buffers, in which TensorBoard and W&B write their records,
only lengths, numbers and byte strings are taken apart, checksums included; no schema is loaded.
Graphs, images and histograms are passed over. Nothing in a file is executed, nothing is sent
anywhere.
"""

import heapq
import math
import re
import sqlite3
import struct
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from groupwise import parsing
from groupwise.arrays import Flags, Whole
from groupwise.errors import GroupwiseError, UnreadableRunError
from groupwise.files import open_regular
from groupwise.parsing import JsonObject
from groupwise.readers.assemble import Log, Request, assemble
from groupwise.readers.configs import flatten, listed, number_in, parse_yaml
from groupwise.readers.rows import RowStore, clean_key, is_evaluation, one_run, rollout_numbers
from groupwise.readers.source import (
    Blocks,
    Notes,
    Peek,
    folders_in,
    inside,
    is_number,
    json_in,
    noted,
    open_text,
    peek,
    shown,
    vocabulary,
)
from groupwise.readers.trl import typed_completions, with_completions
from groupwise.record.run import RunRecord, Source
from groupwise.record.table import rollouts_table

_MOST_RUNS = 1000
_TEXTS = {"prompt", "completion"}
Entry = tuple[float, float, str, float]


def sniff_database(seen: Peek) -> float:
    """Return the confidence that the file is a database of trackio or MLflow."""
    try:
        with _opened(seen.path) as database:
            return 0.97 if _kind(database) else 0.0
    except UnreadableRunError:
        return 0.35  # the reader says what is wrong with it


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a database for reading only; whatever SQLite finds wrong becomes one sentence."""
    # Without a journal beside it the file is taken as it is, so that nothing is written even where
    # the folder could be.
    mode = "mode=ro" if path.with_name(path.name + "-wal").exists() else "mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?{mode}", uri=True)) as database:
            database.execute("PRAGMA trusted_schema = OFF")
            database.execute("PRAGMA query_only = ON")
            database.text_factory = _text
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, parsing.LONGEST_LINE)
            deadline = time.process_time() + parsing.seconds_for(path.stat().st_size)
            database.set_progress_handler(lambda: time.process_time() > deadline, 100_000)
            yield database
    except (sqlite3.Error, OverflowError, ValueError) as error:
        if isinstance(error, UnreadableRunError):
            raise
        reason = "".join(letter if letter.isprintable() else " " for letter in str(error))[:80]
        raise UnreadableRunError(
            f"expected a sound SQLite database, got {shown(path)} ({reason}): copy it again, with "
            "its -wal"
        ) from None


def _text(content: bytes) -> str:
    """Return a text of a file; bytes that are none become U+FFFD."""
    return content.decode("utf-8", "replace")


def _columns(database: sqlite3.Connection, table: str) -> set[str]:
    """Return the columns of a table; none where it is not there, or is a view or a module's,
    whose rows are computed.
    """
    if not database.execute(
        "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ? AND rootpage > 0", (table,)
    ).fetchone():
        return set()
    return {str(row[1]) for row in database.execute(f"PRAGMA table_info({table})")}


def _stored(path: Path, rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Yield rows as long as the files can hold them: a damaged tree may lead to its pages again
    and again.
    """
    beside = path.with_name(path.name + "-wal")
    left = path.stat().st_size + (beside.stat().st_size if beside.exists() else 0)
    for row in rows:
        left -= len(row) + sum(len(cell) for cell in row if isinstance(cell, str | bytes))
        if left < 0:
            raise sqlite3.DatabaseError("its rows hold more bytes than the file")
        yield row


def _kind(database: sqlite3.Connection) -> str:
    """Return whose database it is, by the columns of its table of metrics."""
    columns = _columns(database, "metrics")
    if {"metrics", "step", "run_name"} <= columns:
        return "trackio"
    return "mlflow" if {*vocabulary("metric_of_mlflow")} <= columns else ""


def read_database(path: Path, request: Request) -> RunRecord:
    """Read one run of a database."""
    with _opened(path) as database:
        read = _read_trackio if _kind(database) == "trackio" else _read_mlflow
        return read(path, database, request)


def _read_trackio(path: Path, database: sqlite3.Connection, request: Request) -> RunRecord:
    """Read a run that trackio keeps: rows of metrics, completions in tables, the trainer's
    arguments.
    """
    query = "SELECT DISTINCT run_name FROM metrics ORDER BY run_name DESC LIMIT ?"
    names = {clean_key(name): name for (name,) in database.execute(query, (_MOST_RUNS,))}
    run = one_run(path, sorted(names), request.chosen)
    query = "SELECT step, metrics FROM metrics WHERE run_name = ? ORDER BY rowid"
    cells = database.execute(query, (names[run],))
    store, tables, damaged = RowStore(), list[Any](), 0
    count = "SELECT COUNT(*) FROM metrics WHERE run_name = ?"
    left = database.execute(count, (names[run],)).fetchone()[0]
    for step, content in _stored(path, cells):
        left -= 1
        if store.share < 1 and left // 16 % 8:  # of so many an eighth, in stretches
            store.read += 1
            continue
        row = _object(content)
        damaged += row is None
        nested = [value for value in (row or {}).values() if isinstance(value, dict)]
        tables += [value["_value"] for value in nested if value.get("_type") == "trackio.table"]
        numbers = {
            key: cell for key, cell in (row or {}).items() if not isinstance(cell, Mapping | list)
        }
        if not all(key.startswith("profiling/") for key in numbers):
            store.add({**numbers, "step": step})
    notes = noted(
        damaged,
        "row is not a complete JSON object and was",
        "rows are not complete JSON objects and were",
    )
    stated = ((_trackio_config(database, names[run]), "trackio's table of settings"),)
    record = assemble(
        Log(store, path, "database", path.stat().st_size, notes, stated=stated, name=run), request
    )
    return _with_tables(record, tables, path)


def _with_tables(record: RunRecord, tables: list[list[Any]], path: Path) -> RunRecord:
    """Return the record with the completions in trackio's tables, as they were logged."""
    rows = [
        {name: cell for name, cell in row.items() if name in _TEXTS or is_number(cell)}
        | {"step": int(row["step"]), "prompt_id": 0}
        for table in tables
        if isinstance(table, list)
        for row in table
        if isinstance(row, Mapping) and set(row) > _TEXTS
        if is_number(row.get("step")) and abs(row["step"]) < 2**53
    ]
    completions = rollouts_table(rows)
    typed = (
        None
        if completions is None
        else typed_completions(completions.drop("prompt_id"), texts=True)
    )
    if typed is None or not len(typed):
        return record
    return with_completions(
        record, typed, (), (Source(f"{path}#completions", "completions", 0, len(typed)),)
    )


def _object(content: Any) -> JsonObject | None:
    """Return the JSON object in a cell, or None."""
    text = _text(content) if isinstance(content, bytes) else content
    row = json_in(text) if isinstance(text, str) else None
    return row if isinstance(row, dict) else None


def _trackio_config(database: sqlite3.Connection, run: str) -> JsonObject:
    """Return the arguments that trackio kept of a run, flattened."""
    if not {"run_name", "config"} <= _columns(database, "configs"):
        return {}
    config: JsonObject = {}
    for (content,) in database.execute(
        "SELECT config FROM configs WHERE run_name = ? ORDER BY rowid", (run,)
    ):
        config |= dict(flatten(_object(content) or {}))
    return config


def _read_mlflow(path: Path, database: sqlite3.Connection, request: Request) -> RunRecord:
    """Read a run that MLflow keeps: one row a number."""
    titled = _columns(database, "runs") >= {"run_uuid", "name"}
    titles = dict(database.execute("SELECT run_uuid, name FROM runs")) if titled else {}
    query = "SELECT DISTINCT run_uuid FROM metrics ORDER BY run_uuid LIMIT ?"
    identities = database.execute(query, (_MOST_RUNS,))
    titles = {run: titles.get(run) or run for (run,) in identities}
    name, identity = _chosen_run(path, titles, request.chosen)
    query = (
        "SELECT timestamp, step, key, value FROM metrics WHERE run_uuid = ? ORDER BY timestamp, "
        "step"
    )
    entries = (
        (stamp, step, str(key), value)
        for stamp, step, key, value in _stored(path, database.execute(query, (identity,)))
    )
    store = RowStore.of(rows_of_entries(entries))
    query = "SELECT key, value FROM params WHERE run_uuid = ?"
    stated = _columns(database, "params") >= {"key", "value", "run_uuid"}
    parameters = dict(database.execute(query, (identity,))) if stated else {}
    return _with_parameters(
        Log(store, path, "database", path.stat().st_size, name=name), parameters, request
    )


def _with_parameters(log: Log, parameters: Mapping[Any, Any], request: Request) -> RunRecord:
    """Return the record of a run of MLflow's, whose parameters are texts; "a/b" and "a.b" are
    paths.
    """
    settings = {str(key).replace(".", "/"): number_in(value) for key, value in parameters.items()}
    log = replace(log, stated=((settings, "MLflow's parameters"),))
    return assemble(log, replace(request, chosen=log.name))


def _chosen_run(path: Path, titles: Mapping[str, str], chosen: str) -> tuple[str, str]:
    """Return name and identity of the run to read: identity -> title, of which the later of two
    alike goes by its identity.
    """
    named: dict[str, str] = {}
    for identity, title in titles.items():
        name = clean_key(title)
        named[name if name not in named else clean_key(identity)] = identity
    if chosen in titles and chosen not in named:
        chosen = next(name for name, identity in named.items() if identity == chosen)
    name = one_run(path, named, chosen)
    return name, named[name]


def rows_of_entries(entries: Iterable[Entry]) -> Iterator[JsonObject]:
    """Yield one row for the numbers of one step that follow one another."""
    row: JsonObject = {}
    for stamp, step, key, value in entries:
        if row and (step != row["step"] or key in row):
            yield row
            row = {}
        if not row:
            row = {
                "step": step,
                "_timestamp": stamp / 1000.0 if is_number(stamp) else None,
            }
        row[key] = value
    if row:
        yield row


_MOST = 10_000


def mlflow_runs(path: Path) -> list[Path]:
    """Return the folders of runs of MLflow's: the folder itself, or those one or two below it."""
    if is_mlflow_run(path):
        return [path]
    homes = [path, *(home for home in folders_in(path, _MOST) if (home / "meta.yaml").is_file())]
    return [run for home in homes for run in folders_in(home, _MOST) if is_mlflow_run(run)]


def is_mlflow_run(path: Path) -> bool:
    """Return whether a folder of MLflow's is that of one run."""
    return (path / "metrics").is_dir() and (
        (path / "meta.yaml").is_file() or (path / "params").is_dir()
    )


def read_mlflow(path: Path, request: Request) -> RunRecord:
    """Read one run of an MLflow folder."""
    runs = {run.name: run for run in mlflow_runs(path)}
    name, identity = _chosen_run(
        path, {run: _title(home) for run, home in runs.items()}, request.chosen
    )
    home = runs[identity]
    entries, size, damaged = _entries(home / "metrics")
    store = RowStore.of(rows_of_entries(sorted(entries, key=lambda entry: (entry[0], entry[1]))))
    parameters = {
        key: file.read_text(encoding="utf-8", errors="replace").strip()
        for key, file in _files(home / "params").items()
        if file.stat().st_size < 1 << 16
    }
    notes = noted(damaged, "line is damaged and was", "lines are damaged and were")
    return _with_parameters(Log(store, home, "mlflow", size, notes, name=name), parameters, request)


def _title(run: Path) -> str:
    """Return the name of a run as its meta.yaml gives it, else the folder's."""
    with suppress(GroupwiseError):
        return str(parse_yaml(peek(run / "meta.yaml").text).get("run_name") or run.name)
    return run.name


def _files(folder: Path) -> dict[str, Path]:
    """Return the files below a folder by name; folders are parts of the name."""
    return {
        file.relative_to(folder).as_posix(): file
        for file in sorted(folder.rglob("*"))[:_MOST]
        if file.is_file()
    }


def _entries(folder: Path) -> tuple[list[Entry], int, int]:
    """Return the numbers of all keys, the bytes read, and how many lines are not "time value" or
    "time value step".
    """
    entries: list[Entry] = []
    size = damaged = 0
    for key, file in _files(folder).items():
        size += file.stat().st_size
        with open_text(file, "utf-8") as lines:
            for cells in filter(None, map(str.split, lines)):
                try:
                    stamp, value, step = map(float, cells if len(cells) == 3 else (*cells, "0"))
                except ValueError:
                    damaged += 1
                else:
                    entries.append((stamp, step, key, value))
    return entries, size, damaged


_BLOCK = 1 << 15
_MASK_DELTA = 0xA282EAD8
_POLYNOMIAL = 0x82F63B78  # of Castagnoli, its bits reversed
_READ = 1 << 23
_LARGEST_CHECKED = 1 << 13  # a larger record is a graph or an image, not a number


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field of a message."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, kind = tag >> 3, tag & 7
        if number == 0:
            raise ValueError("a field has the number 0")
        if kind == 0:
            value, position = _varint(data, position)
            yield number, value
            continue
        if kind == 2:
            length, position = _varint(data, position)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise ValueError(f"a field has the wire type {kind}")
        if position + length > len(data):
            raise ValueError("a field ends after the message")
        yield number, data[position : position + length]
        position += length


class Message:
    """The fields of a message by number."""

    def __init__(self, data: bytes) -> None:
        self._values: dict[int, list[int | bytes]] = {}
        for number, value in fields(data):
            self._values.setdefault(number, []).append(value)

    def blobs(self, number: int) -> list[bytes]:
        """Return the values of a field that are bytes."""
        return [value for value in self._values.get(number, ()) if isinstance(value, bytes)]

    def blob(self, number: int) -> bytes:
        """Return the last value of a field that is bytes, none of them where it has none."""
        return [b"", *self.blobs(number)][-1]

    def number(self, number: int) -> int:
        """Return the last value of a field that is a variable-length integer, 0 for none."""
        values = self._values.get(number, ())
        return [0, *(value for value in values if isinstance(value, int))][-1]


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Return the variable-length integer at a position, and where it ends."""
    value = shift = 0
    while True:
        if position >= len(data) or shift > 63:
            raise ValueError("a number is cut off")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position
        shift += 7


def signed(value: int) -> int:
    """Return a 64-bit integer of the wire with its sign."""
    return value - (1 << 64) if value >= 1 << 63 else value


@cache
def _table() -> tuple[int, ...]:
    """Return the table of the Castagnoli checksum."""
    table = list(range(256))
    for _ in range(8):
        table = [value >> 1 ^ (_POLYNOMIAL if value & 1 else 0) for value in table]
    return tuple(table)


def masked_crcs(data: NDArray[np.uint8], start_N: Whole, length: int) -> NDArray[np.uint32]:
    """Return the masked CRC-32C of as many bytes from each place on, as TensorBoard's records
    have it: turned by 15 bits and shifted by a constant.
    """
    table = np.array(_table(), dtype=np.uint32)
    crc_N = np.full(len(start_N), 0xFFFFFFFF, dtype=np.uint32)
    for at in range(length):
        crc_N = table[(crc_N ^ data[start_N + at]) & 0xFF] ^ (crc_N >> 8)
    crc_N ^= np.uint32(0xFFFFFFFF)
    return np.asarray(((crc_N >> 15) | (crc_N << 17)) + np.uint32(_MASK_DELTA), dtype=np.uint32)


def _are_sound(data: bytes, start_N: Whole, length: int) -> Flags:
    """Return whether the masked CRC-32C of as many bytes from each place on is the number behind
    them.
    """
    seen = np.frombuffer(data, dtype=np.uint8)
    written = seen[start_N[:, None] + (length + np.arange(4))].view("<u4")[:, 0]
    return np.asarray(masked_crcs(seen, start_N, length) == written)


def is_tfrecord(head: bytes) -> bool:
    """Return whether bytes start with the length of a record and its checksum."""
    return (
        len(head) >= 12
        and int.from_bytes(head[:8], "little") <= parsing.LARGEST_RECORD
        and bool(_are_sound(head, np.zeros(1, dtype=np.int64), 8)[0])
    )


class TfRecords:
    """The records of an event file; those whose checksum is wrong are left out and counted."""

    damaged, complete = 0, True

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def __iter__(self) -> Iterator[bytes]:
        """Yield the payloads of the records."""
        rest = b""
        while self.complete and (more := self._file.read(_READ)):
            data = rest + more
            heads, end = self._framed(data)
            start_N, length_N = self._sound(data, heads)
            for start, length in zip(start_N.tolist(), length_N.tolist(), strict=True):
                yield data[start : start + length]
            rest = data[end:]
        self.complete &= not rest

    def _framed(self, data: bytes) -> tuple[list[int], int]:
        """Return where the records start that are all there, and where the last of them ends."""
        heads: list[int] = []
        position, size, length_at = 0, len(data), struct.Struct("<Q").unpack_from
        while position + 12 <= size:
            end = position + 16 + length_at(data, position)[0]
            if end > size:
                self.complete = is_tfrecord(data[position : position + 12])
                break
            heads.append(position)
            position = end
        return heads, position

    def _sound(self, data: bytes, heads: list[int]) -> tuple[Whole, Whole]:
        """Return places and lengths of the payloads with the right checksum, up to the first
        head that has a wrong one.
        """
        seen, head_N = np.frombuffer(data, dtype=np.uint8), np.array(heads, dtype=np.int64)
        right = _are_sound(data, head_N, 8)
        if not right.all():
            self.complete = False
            head_N = head_N[: right.argmin()]
        start_N = head_N + 12
        length_N = seen[head_N[:, None] + np.arange(8)].view("<i8")[:, 0]
        sound_N = length_N > _LARGEST_CHECKED
        for length in np.unique(length_N[~sound_N]).tolist():
            of_length = length_N == length
            sound_N[of_length] = _are_sound(data, start_N[of_length], length)
        self.damaged += (~sound_N).sum()
        return start_N[sound_N], length_N[sound_N]


class BlockRecords:
    """The records of a file in LevelDB's log format as W&B writes it; those whose checksum is
    wrong are left out and counted.
    """

    damaged = 0

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __iter__(self) -> Iterator[bytes]:
        """Yield whole records, joined from their pieces."""
        parts: list[bytes] = []
        for kind, piece in self._pieces():
            if kind < 3:  # a damaged piece, or the first of a record
                parts = [piece] if kind else []
            elif parts:
                parts.append(piece)
            if kind in (1, 4) and parts:
                yield b"".join(parts)
                parts = []

    def _pieces(self) -> Iterator[tuple[int, bytes]]:
        """Yield type and bytes of each piece; type 0 stands for a damaged one."""
        data, position = self._data, 7
        while position + 7 <= len(data):
            left = _BLOCK - position % _BLOCK
            if left < 7:
                position += left
                continue
            piece = self._piece(position)
            if piece:
                yield piece
                position += 7 + len(piece[1])
                continue
            if any(data[position : position + 7]):
                self.damaged += 1
                yield 0, b""
            # A wrong length would lead astray: it is believed only where a sound piece follows it,
            # else the next block starts anew.
            after = position + 7 + int.from_bytes(data[position + 4 : position + 6], "little")
            position = (
                after if after - position + 7 <= left and self._piece(after) else position + left
            )

    def _piece(self, position: int) -> tuple[int, bytes] | None:
        """Return type and bytes of the piece at a position, None where it is not sound."""
        if position + 7 > len(self._data):
            return None
        crc, length, kind = struct.unpack_from("<IHB", self._data, position)
        piece = self._data[position + 7 : position + 7 + length]
        fits = length + 7 <= _BLOCK - position % _BLOCK and len(piece) == length and 1 <= kind <= 4
        return (
            (kind, piece) if fits and zlib.crc32(piece, zlib.crc32(bytes([kind]))) == crc else None
        )


_RANGE = re.compile(r"(.+)__(MIN|MAX)")


def read_wandb(path: Path, request: Request) -> RunRecord:
    """Read the history and the settings of a W&B run that was written on this disk."""
    seen = peek(path)
    records = block_records(seen, "W&B")
    rows: list[JsonObject] = []
    config: JsonObject = {}
    for record in records:
        try:
            _take(record, rows, config)
        except ValueError:
            records.damaged += 1
    notes = noted(records.damaged, "record is damaged and was", "records are damaged and were")
    stated = ({name: value for name, value in config.items() if name != "_wandb"}, "the W&B file")
    return assemble(
        Log(RowStore.of(rows), path, "wandb", seen.size, notes, stated=(stated,)), request
    )


def block_records(seen: Peek, tracker: str) -> BlockRecords:
    """Return the records of a tracker's file that is not too large."""
    if seen.size > parsing.LARGEST_BLOCKS:
        most, size = parsing.LARGEST_BLOCKS / 1e6, seen.size / 1e6
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
        names = [_text(part) for part in item.blobs(1) + item.blobs(2)]
        value = json_in(_text(item.blob(16)))
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
    shared = {name: name for name in names if name not in split.keys() | stamps}
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


_STAMP = re.compile(r"tfevents\.(\d{6,12})")
_STEP, _TIME = "step", "_timestamp"  # of a row beside its tags
_DOUBLE, _SINGLE = struct.Struct("<d").unpack, struct.Struct("<f").unpack
Scalar = tuple[float, int, str, float | str]  # time, step, tag, and number or text


def sniff_events(seen: Peek) -> bool:
    """Return whether the file is one of TensorBoard's event files: its first record
    has the right checksum.
    """
    return is_tfrecord(seen.head)


def event_files(folder: Path) -> list[Path]:
    """Return the event files right inside a folder, oldest first."""
    files = []
    for path in inside(folder, _MOST):
        with suppress(GroupwiseError):
            if "tfevents" in path.name and path.is_file() and is_tfrecord(peek(path).head):
                files.append(path)
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
    notes: Notes = []
    texts: dict[str, str] = {}
    store = RowStore(parsing.MOST_LONG)
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
                f"the file {shown(file)} is cut off or damaged: only complete records are used"
            )
        if len(files) > 1 and first == store.count:
            notes.append(f"the file {shown(file)} has no scalar")
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


def _in_order(store: RowStore, written: Iterable[tuple[set[str], range]], notes: Notes) -> RowStore:
    """Return the rows file by file where files share tags, else side by side by their steps, as
    processes of one run wrote them.
    """
    processes: list[tuple[set[str], list[int]]] = []
    for tags, rows in written:
        same = next((process for process in processes if process[0] & tags), None)
        if same:
            same[0].update(tags)
            same[1].extend(rows)
        elif tags:
            processes.append((tags, list(rows)))
    if len(processes) < 2:
        return store
    notes.append(
        f"files without a common tag were combined, as {len(processes)} processes of one run"
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
            scalars = list(_event(record))
        except (ValueError, struct.error):
            records.damaged += 1
            continue
        for clock, step, tag, value in scalars:
            if isinstance(value, str):
                texts[tag] = value
                continue
            here = step, tag.startswith("train/")
            if here != place or tag in row:
                if row:
                    yield row
                row, place = {_STEP: float(step), _TIME: clock}, here
            row[tag] = value
            tags.add(tag)
    tags -= {_STEP, _TIME}
    if row:
        yield row


def _event(record: bytes) -> Iterator[Scalar]:
    """Yield wall time, step, tag and number or text of each value of one event."""
    event = Message(record)
    wall = _DOUBLE(clock)[0] if (clock := event.blob(1)) else math.nan
    step = signed(event.number(2))
    for summary in event.blobs(5):
        for value in Message(summary).blobs(1):
            tag, value_read = _value(Message(value))
            if tag and value_read is not None:
                yield wall, step, tag, value_read


def _value(message: Message) -> tuple[str, float | str | None]:
    """Return the tag of one summary value and its number or text, None where it is neither."""
    tag = _text(message.blob(1))
    if tensor := message.blob(8):
        return tag, _tensor(Message(tensor))
    return tag, _SINGLE(single)[0] if (single := message.blob(2)) else None


def _tensor(message: Message) -> float | str | None:
    """Return the one number or text of a tensor, None for any other."""
    form_of = {1: "<f", 2: "<d"}.get(message.number(1), "")
    for field, form in ((4, form_of), (5, "<f"), (6, "<d")):
        for value in message.blobs(field):
            if form and len(value) == struct.calcsize(form):
                return float(struct.unpack(form, value)[0])
    written = message.blobs(8)
    return _text(written[0]) if written and len(written[0]) < parsing.LARGEST_EVENT_TEXT else None


def _settings(texts: dict[str, str]) -> JsonObject:
    """Return the settings that texts hold: JSON, or lines of names and values."""
    flat: JsonObject = {}
    for tag, value in texts.items():
        if tag.startswith("model_config"):
            continue
        settings = json_in(value, floats=False) or listed(
            re.sub(r"(?m)^\s*[|*\-]?\s*", "- ", value)
        )
        flat |= dict(flatten(settings)) if isinstance(settings, dict) else {}
    return flat


_MOST_INSIDE = 200  # files of a folder
_SWANLAB_MAGIC = b":SWL"
_EVENTS = re.compile(r'\[\{"timestamp": ?\d{1,20}, ?"type": ?"(training_|plot)')
_OPERATION = '{"obj": {"type": "'


def sniff_offline(seen: Peek) -> bool:
    """Return whether the file holds the numbers of a run that waits to be sent."""
    ours = seen.head.startswith(_SWANLAB_MAGIC) or seen.text.startswith(_OPERATION)
    return ours or _EVENTS.match(seen.text) is not None


def offline_file(folder: Path) -> Path | None:
    """Return the file of a folder that holds the numbers of such a run."""
    for file in inside(folder, _MOST_INSIDE):
        with suppress(GroupwiseError):  # empty, or not to be read
            if file.is_file() and sniff_offline(peek(file)):
                return file
    return None


def read_offline(path: Path, request: Request) -> RunRecord:
    """Read one such run, with the settings that its tracker keeps beside it."""
    path = offline_file(path) or path if path.is_dir() else path
    seen, settings, notes, home = peek(path), dict[str, Any](), Notes(), path.parent
    if seen.head.startswith(_SWANLAB_MAGIC):
        entries, home = _of_swanlab(seen, notes), home / "files"
    else:
        entries = _of_lines(seen, settings, notes)
    store = RowStore.of(rows_of_entries(entries))
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


def _of_lines(seen: Peek, settings: JsonObject, notes: Notes) -> Iterator[Entry]:
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
    notes += noted(
        damaged, "line is not complete JSON and was", "lines are not complete JSON and were"
    )


def _of_swanlab(seen: Peek, notes: Notes) -> Iterator[Entry]:
    """Yield the numbers of records, in whose messages a 0 is left out."""
    records = block_records(seen, "SwanLab")
    for record in records:
        try:
            for scalar in map(Message, Message(record).blobs(13)):
                time, value = Message(scalar.blob(4)), Message(scalar.blob(5)).blob(1) or bytes(8)
                stamp = 1e3 * time.number(1) + 1e-6 * time.number(2)
                yield stamp, scalar.number(2), _text(scalar.blob(1)), _DOUBLE(value)[0]
        except (ValueError, struct.error):
            records.damaged += 1
    notes += noted(records.damaged, "record is damaged and was", "records are damaged and were")
