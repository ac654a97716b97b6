"""A file of checksummed lines that survives a kill at any byte: only whole entries are ever read back.

One entry is one line, `CRC32 LENGTH JSON`. It knows nothing of steps or runs: `record.py` says what an entry holds.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from groupwise.errors import GroupwiseError, UnreadableRunError


def encode_entry(entry: Mapping[str, Any]) -> bytes:
    r"""Return the line of one entry.

    Args:
        entry: plain data for JSON.

    Returns:
        Checksum (8 hexadecimal digits), length of the JSON in bytes, the JSON, and a line feed.

    Example:
        >>> encode_entry({"step": 1})
        b'1119ad91 10 {"step":1}\n'
    """
    body = json.dumps(entry, separators=(",", ":")).encode()
    return b"%08x %d %s\n" % (zlib.crc32(body), len(body), body)


def decode_entry(line: bytes) -> dict[str, Any] | None:
    """Return the entry of one line, or None where the line is torn or damaged.

    Args:
        line: the bytes up to and with the line feed.

    Returns:
        The entry, or None.

    Example:
        >>> decode_entry(encode_entry({"step": 1})[:-1]) is None
        True
    """
    checksum, _, rest = line.partition(b" ")
    length, _, body = rest.partition(b" ")
    if not body.endswith(b"\n") or not length.isdigit() or len(length) > 15 or int(length) != len(body) - 1:
        return None
    if checksum != b"%08x" % zlib.crc32(body[:-1]):
        return None
    try:
        entry = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


def read_journal(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Return the whole entries from the start of a journal, and the bytes that they take.

    Reading stops at the first line that is torn or damaged: what follows it was never confirmed.

    Args:
        path: the journal; a missing file has no entries.

    Returns:
        Entries in order, and the length of the sound part in bytes.

    Raises:
        UnreadableRunError: the file cannot be read.

    Example:
        >>> read_journal(Path("/nowhere/journal.jsonl"))
        ([], 0)
    """
    entries: list[dict[str, Any]] = []
    sound = 0
    try:
        with path.open("rb") as file:
            for line in file:
                entry = decode_entry(line)
                if entry is None:
                    break
                entries.append(entry)
                sound += len(line)
    except FileNotFoundError:
        return [], 0
    except OSError as error:
        raise UnreadableRunError(f"expected a journal that can be read at {path}, got {error.strerror}: check its permissions") from None
    return entries, sound


def _sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk, where the system can do so (Windows opens no folder)."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)


class Journal:
    """An open journal; opening cuts off a torn tail, and every append is on the disk when it returns.

    Args:
        path: the file; made where missing, its folder must exist.

    `entries` are those that were there when it was opened.

    Raises:
        GroupwiseError: the file cannot be written.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, Journal(Path(folder) / "journal.jsonl") as journal:
        ...     journal.append({"step": 1})
        ...     len(journal.path.read_bytes())
        23
    """

    def __init__(self, path: Path) -> None:
        """Open `path`, read what is whole, and cut off the rest."""
        self.path = path
        self.entries, sound = read_journal(path)
        try:
            new = not path.exists()
            self._file = path.open("x+b" if new else "r+b", buffering=0)
            self._file.truncate(sound)
            self._file.seek(sound)
        except OSError as error:
            raise GroupwiseError(f"expected to write {path}, got {error.strerror}: choose a folder that you can write") from None
        if new:
            # A file's own fsync does not keep its name: that is in the folder, and a new folder's name in the one above.
            for folder in (path.parent, path.parent.parent):
                _sync_folder(folder)

    def append(self, entry: Mapping[str, Any]) -> None:
        """Write one entry and wait until it is on the disk."""
        line = encode_entry(entry)
        view = memoryview(line)
        while view:
            view = view[self._file.write(view) or 0 :]
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file; what was appended stays."""
        self._file.close()

    def __enter__(self) -> Journal:
        """Return the journal itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close the file."""
        self.close()
