"""A file of checksummed lines that survives a kill at any byte: only whole entries are ever read back.

One entry is one line, `CRC32 LENGTH JSON`; one process writes a journal at a time. What an entry holds is said in `run.py`; which journal a
killed recording goes on with, in `integrations/resume.py`.
"""

from __future__ import annotations

import json
import os
import sys
import time
import zlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any
from weakref import WeakSet

from groupwise.errors import GroupwiseError, UnreadableRunError


class SecondWriterError(GroupwiseError):
    """Another process is writing this file or folder."""


def encode_entry(entry: Mapping[str, Any] | bytes) -> bytes:
    r"""Return the line of one entry."""
    body = entry if isinstance(entry, bytes) else json.dumps(entry, separators=(",", ":")).encode()
    return b"%08x %d %s\n" % (zlib.crc32(body), len(body), body)


def decode_entry(line: bytes) -> dict[str, Any] | None:
    """Return the entry of one line, or None where the line is torn or damaged."""
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


def read_journal(path: Path, *, keep: Callable[[dict[str, Any]], Any] | None = None) -> tuple[list[Any], int]:
    """Return the whole entries from the start of a journal, and the bytes that they take.

    Reading stops at the first line that is torn or damaged: what follows it was never confirmed.
    """
    entries: list[Any] = []
    sound = 0
    try:
        with path.open("rb") as file:
            for line in file:
                entry = decode_entry(line)
                if entry is None:
                    break
                kept = entry if keep is None else keep(entry)
                if kept is not None:
                    entries.append(kept)
                sound += len(line)
    except FileNotFoundError:
        return [], 0
    except OSError as error:
        raise UnreadableRunError(f"expected a journal that can be read at {path}, got {error.strerror}: check its permissions") from None
    return entries, sound


def _sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk, where the system can do so (Windows opens no folder)."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


class Journal(AbstractContextManager["Journal"]):
    """An open journal; opening cuts off a torn tail, and every append is on the disk when it returns, or has left no trace.

    `entries` are those that were there when it was opened.
    """

    def __init__(self, path: Path, *, keep: Callable[[dict[str, Any]], Any] | None = None) -> None:
        """Open `path`, hold it against other writers, read what is whole, and cut off the rest."""
        self.path = path
        try:
            new = not path.exists()
            self._file = path.open("x+b" if new else "r+b", buffering=0)
        except OSError as error:
            raise _unwritable(path, error) from None
        _OPEN.add(self)
        try:
            hold(
                self._file.fileno(),
                f"expected to be the only writer of {path}, got one that is writing it now: "
                "give this run a folder of its own, or end the other",
            )
            self.entries, self._end = read_journal(path, keep=keep)
            self._file.truncate(self._end)
            self._file.seek(self._end)
        except OSError as error:
            self._file.close()
            raise _unwritable(path, error) from None
        except BaseException:
            self._file.close()
            raise
        if new:
            # A file's own fsync does not keep its name: that is in the folder, and a new folder's name in the one above.
            for folder in (path.parent, path.parent.parent):
                _sync_folder(folder)

    def append(self, entry: Mapping[str, Any] | bytes, *, sync: bool = True) -> None:
        """Write one entry and wait until it is on the disk."""
        line = encode_entry(entry)
        view = memoryview(line)
        try:
            while view:
                view = view[self._file.write(view) or 0 :]
            if sync:
                self.sync()
        except BaseException as error:
            # Half a line would hide all that comes after it from the reader.
            with suppress(OSError, ValueError):
                self._file.truncate(self._end)
                self._file.seek(self._end)
            if isinstance(error, OSError):
                raise GroupwiseError(
                    f"expected to write {self.path}, got {error.strerror}: make room or repair the disk; what was there before stays"
                ) from None
            raise
        self._end += len(line)

    def sync(self) -> None:
        """Wait until all that was appended is on the disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file; what was appended stays."""
        self._file.close()

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self.close()


_OPEN: WeakSet[Journal] = WeakSet()


def _close_in_child() -> None:
    """Close the parent's journals in a forked worker: one that outlives its parent would keep the resumed run from writing."""
    for journal in list(_OPEN):
        journal.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)


# A killed run lets go within milliseconds of its death, unless a worker was being forked just then: one that the system has not run
# yet holds the file until it does, and a run that is started again at once would be sent beside its own record.
_PATIENCE_SECONDS = 2.0


def hold(handle: int, problem: str) -> None:
    """Keep others out of an open file or folder until it is closed or the process ends; where another process holds it, say `problem`."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not _locked(handle):
        if time.monotonic() >= deadline:
            raise SecondWriterError(problem)
        time.sleep(0.02)


def _locked(handle: int) -> bool:
    """Take a file or folder, and return whether no other process holds it; where the system has no locks, nobody does."""
    if sys.platform == "win32":
        return True
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without locks
    return True


def being_written(path: Path) -> bool:
    """Return whether a process holds a journal to write it; False where there is none, and where the system has no locks."""
    if sys.platform == "win32":
        return False
    import fcntl

    try:
        # Shared and for an instant only: a writer that begins meanwhile has more patience than that.
        with path.open("rb") as file:
            fcntl.flock(file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _unwritable(path: Path, error: OSError) -> GroupwiseError:
    """Return the error of a file that cannot be written."""
    return GroupwiseError(f"expected to write {path}, got {error.strerror}: choose a folder that you can write")
