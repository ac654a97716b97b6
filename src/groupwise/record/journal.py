"""A file of checksummed lines: a damaged line costs itself and none behind it.

One entry is one line, `CRC32 LENGTH JSON`; one process writes a journal at a time. What an entry
holds is said in `run.py`; which journal a killed recording goes on with, in `recorder.py`; the
bytes, in `docs/reference/journal.md`. What experiments on a run showed stands in a journal of ours
beside it, never in the log.
"""

import errno
import json
import os
import re
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import Any, BinaryIO
from weakref import WeakSet

from groupwise import parsing
from groupwise.errors import GroupwiseError, UnreadableRunError, one_sentence
from groupwise.files import open_regular
from groupwise.parsing import JsonObject, JsonView, parse_json
from groupwise.plain import Words, frozen
from groupwise.wording import count

_HEAD = re.compile(rb"([0-9a-f]{8}) ([0-9]{1,15}) ")
_HALF_A_HEAD = re.compile(rb"[0-9a-f]{0,8}|[0-9a-f]{8} [0-9]{0,15}")
_SALVAGE = 16  # bytes that are checked in search of sound entries, for each byte of a damaged line
_MOST_TOLD = 5
_BLOCK = 1 << 20  # bytes that are read at once
_HOLE = bytes(_BLOCK)


class SecondWriterError(GroupwiseError):
    """Another process is writing this file or folder."""


class JournalGoneError(GroupwiseError):
    """The journal that is being written was deleted or moved."""


@frozen
class Damage:
    """A stretch of a journal that holds no sound entry, and the steps on both sides of it."""

    lines: int
    bytes: int
    after: int | None  # the last sound step before it; None where it stands before all
    before: int | None  # the first sound step behind it; None where it is the end

    def said(self) -> str:
        """Return it in words, as "1 damaged line between steps 33 and 35, 212 bytes"."""
        if self.after is None:
            where = "without a valid step" if self.before is None else f"before step {self.before}"
        else:
            where = (
                f"after step {self.after}"
                if self.before is None
                else f"between steps {self.after} and {self.before}"
            )
        return f"{count(self.lines, 'damaged line')} {where}, {count(self.bytes, 'byte')}"


def notes_on(damage: Sequence[Damage]) -> Words:
    """Return what is damaged as notes: the first few stretches, and how much more there is."""
    named, rest = damage[:_MOST_TOLD], damage[_MOST_TOLD:]
    more = (
        f"and {count(sum(stretch.lines for stretch in rest), 'more damaged line')}, "
        f"{count(sum(stretch.bytes for stretch in rest), 'byte')}"
    )
    return (*(stretch.said() for stretch in named), *([more] if rest else []))


def encode_entry(entry: JsonView | bytes) -> bytes:
    r"""Return the line of one entry."""
    body = entry if isinstance(entry, bytes) else json.dumps(entry, separators=(",", ":")).encode()
    return b"%08x %d %s\n" % (zlib.crc32(body), len(body), body)


def decode_entry(line: bytes) -> JsonObject | None:
    """Return the entry of one line, or None where the line is torn or damaged."""
    head = _HEAD.match(line)
    if head is None or not line.endswith(b"\n") or int(head[2]) != len(line) - head.end() - 1:
        return None
    return _entry(head[1], line[head.end() : -1])


def _entry(checksum: bytes, body: bytes) -> JsonObject | None:
    """Return the entry of a text whose checksum is right."""
    if int(checksum, 16) != zlib.crc32(body):
        return None
    try:
        entry = parse_json(body)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None


def _salvaged(line: bytes) -> Iterator[tuple[JsonObject, int, int]]:
    """Yield the sound entries of a damaged line, with where each begins and ends.

    A damaged line feed makes one line of two.

    An entry cannot hide in the texts of another: there its quotes are escaped, and it is no JSON.
    """
    if b"{" not in line:  # as in a block that was lost, which may be gigabytes
        return
    at, budget = (
        0,
        _SALVAGE * len(line),
    )  # made to be slow, a line could ask for the checksum of its rest at every byte
    while budget > 0 and (head := _HEAD.search(line, at)):
        at, end = head.start() + 1, head.end() + int(head[2])
        if end >= len(line):
            continue
        budget -= int(head[2])
        entry = _entry(head[1], line[head.end() : end])
        if entry is not None:
            at = end  # where the line feed should be, or where it is lost the next entry
            yield entry, head.start(), end


def _is_torn(tail: bytes) -> bool:
    """Return whether a kill may have left this: a line's beginning, shorter than it says."""
    if head := _HEAD.match(tail):
        return len(tail) - head.end() <= int(head[2])
    return _HALF_A_HEAD.fullmatch(tail) is not None


def step_in(entry: JsonView) -> int | None:
    """Return the step that an entry of a journal holds, None where it holds none."""
    row = entry.get("row")
    step = row.get("step") if isinstance(row, dict) else None
    return step if type(step) is int and -(2**63) <= step < 2**63 else None


class LineReader:
    """Takes the lines of a journal: gives sound entries, counts what is damaged between."""

    # bytes of a last line that was not finished when the writer ended, which is no damage
    torn = 0
    _size = 0
    _step: int | None = None
    # whether the present line has no end, and whether it goes on with the one before
    _is_open = _goes_on = False
    _owed = 0  # what the head of a damaged line says is still to come of it

    def __init__(self) -> None:
        self.damage: list[Damage] = []  # the damaged stretches so far

    @property
    def end(self) -> int:
        """The bytes so far, without a last line that is torn."""
        return self._size - self.torn

    def take(self, line: bytes) -> list[JsonObject]:
        """Return the sound entries of a line; the last of a file may lack its line feed."""
        self._size += len(line)
        self.torn, self._goes_on, self._is_open = 0, self._is_open, not line.endswith(b"\n")
        entry = decode_entry(line)
        if entry is None:
            return self._partly(line)
        self._sound(entry)
        return [entry]

    def _partly(self, line: bytes) -> list[JsonObject]:
        """Return what is sound in a line that as a whole is not."""
        entries, reached = [], 0
        for entry, start, end in _salvaged(line):
            self._lost(line[reached:start])
            self._sound(entry)
            entries.append(entry)
            reached = end
        rest = line[reached:]
        feed = int(bool(entries) and not _is_torn(rest))  # of the last entry, where it is damaged
        if not line.endswith(b"\n") and _is_torn(rest[feed:]):
            self._lost(rest[:feed])
            self.torn = len(rest) - feed
        else:
            self._lost(rest)
        return entries

    def _sound(self, entry: JsonView) -> None:
        """Note where the journal is sound again."""
        self._owed = 0
        if (step := step_in(entry)) is not None:
            self._step = step
            if self.damage and self.damage[-1].before is None:
                self.damage[-1] = replace(self.damage[-1], before=step)

    def _lost(self, piece: bytes) -> None:
        """Count bytes that belong to no sound entry, without the line feed behind them."""
        piece = piece.removesuffix(b"\n")
        if not piece:
            return
        goes_on = (
            self._goes_on or len(piece) <= self._owed
        )  # a byte that became a line feed makes two lines of one
        head = _HEAD.match(piece)
        self._owed = (
            self._owed - len(piece) - 1
            if goes_on
            else int(head[2]) - (len(piece) - head.end()) - 1
            if head
            else 0
        )
        lost = Damage(0 if goes_on else 1, len(piece), self._step, None)
        if self.damage and self.damage[-1].before is None:
            before = self.damage.pop()
            lost = replace(before, lines=before.lines + lost.lines, bytes=before.bytes + lost.bytes)
        self.damage.append(lost)


@frozen
class Content:
    """What a journal holds."""

    entries: list[Any]
    end: int = 0  # bytes of it, without a line that is torn at its end
    torn: int = 0  # bytes of that line
    damage: tuple[Damage, ...] = ()


def journal_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a journal, those that are too long in pieces; none where there is none."""
    sentence = one_sentence(
        f"a journal that can be read at {path}",
        "check the file and its permissions",
        kind=UnreadableRunError,
    )
    with sentence, suppress(FileNotFoundError), open_regular(path) as file:
        yield from _lines(file)


def read_journal(path: Path, *, keep: Callable[[JsonObject], Any] = dict) -> Content:
    """Return the sound entries of a journal, or what `keep` makes of each, and what is damaged."""
    reader = LineReader()
    entries = [
        kept
        for line in journal_lines(path)
        for entry in reader.take(line)
        if (kept := keep(entry)) is not None
    ]
    return Content(entries, reader.end, reader.torn, tuple(reader.damage))


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield lines with their ends; one that is too long, or a hole, comes in pieces."""
    parts: list[bytes] = []
    while block := file.read(_BLOCK):
        *whole, last = block.split(b"\n")
        for line in whole:
            yield b"".join([*parts, line, b"\n"])
            parts.clear()
        parts.append(last)
        if len(parts) * _BLOCK >= parsing.LONGEST_LINE or last == _HOLE:
            yield b"".join(parts)
            parts.clear()
            yield from repeat(_HOLE, _skipped(file) if last == _HOLE else 0)
    if rest := b"".join(parts):
        yield rest


def _skipped(file: BinaryIO) -> int:
    """Go over the whole blocks of a hole; return how many, 0 where the system tells of none."""
    start, end = file.tell(), os.fstat(file.fileno()).st_size
    try:
        end = file.seek(start, getattr(os, "SEEK_DATA", 0))
    except OSError as error:
        end = end if error.errno == errno.ENXIO else start  # that no data follow
    blocks = (end - start) // _BLOCK
    file.seek(start + blocks * _BLOCK)
    return blocks


def _sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk, where the system can do so.

    Windows opens no folder.
    """
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


class Journal(AbstractContextManager["Journal"]):
    """An open journal; every append is on the disk when it returns, or has left no trace.

    Opening it moves a last line that is torn into a file beside it, and cuts nothing else off: what
    is damaged stays where it is, and writing goes on behind it. `entries` are those that were there
    when it was opened, `damage` what was damaged.
    """

    def __init__(self, path: Path, *, keep: Callable[[JsonObject], Any] = dict) -> None:
        """Open `path`, hold it against other writers, and read what is sound."""
        self.path = path
        try:
            new = not path.exists()
            # What is appended never overwrites, not even where the system has no locks and another
            # writes too.
            self._file = path.open("a+b", buffering=0)
        except OSError as error:
            raise _unwritable(path, error) from None
        _OPEN.add(self)
        try:
            hold(
                self._file.fileno(),
                f"expected to be the only writer of {path}, got another writer: give this run "
                "its own folder, or stop the other one",
            )
            content = read_journal(path, keep=keep)
            self.entries, self.damage = content.entries, content.damage
            if content.torn:
                self._keep_apart(content)
                self._file.truncate(content.end)
            if content.end:
                self._file.seek(content.end - 1)
            self._open_line = content.end > 0 and self._file.read(1) != b"\n"
        except BaseException as error:
            self._file.close()
            if isinstance(error, OSError):
                raise _unwritable(path, error) from None
            raise
        if new:
            # A file's own fsync does not keep its name: that is in the folder, and a new folder's
            # name in the one above.
            for folder in (path.parent, path.parent.parent):
                _sync_folder(folder)

    def _keep_apart(self, content: Content) -> None:
        """Write what is about to be cut off into a file beside the journal.

        Behind what was cut off before.
        """
        with (
            self.path.open("rb") as whole,
            self.path.with_name(f"{self.path.name}.torn").open("ab") as copy,
        ):
            whole.seek(content.end)
            copy.write(whole.read() + b"\n")
            copy.flush()
            os.fsync(copy.fileno())

    def append(self, entry: JsonView | bytes, *, sync: bool = True) -> None:
        """Write one entry and wait until it is on the disk."""
        view = memoryview((b"\n" if self._open_line else b"") + encode_entry(entry))
        self._check_that_it_is_there()
        end = os.fstat(self._file.fileno()).st_size
        try:
            while view:
                view = view[self._file.write(view) or 0 :]
            self._open_line = False
            if sync:
                self.sync()
        except BaseException as error:
            try:
                self._file.truncate(end)
            except (OSError, ValueError):
                self._open_line = True  # half a line stays: the next one begins behind a line feed
            if isinstance(error, OSError):
                raise GroupwiseError(
                    f"expected to write {self.path}, got {error.strerror}: make room or repair "
                    "the disk; the earlier contents stay"
                ) from None
            raise

    def _check_that_it_is_there(self) -> None:
        """Raise where the file was deleted or moved: nobody could read what is written."""
        opened = os.fstat(self._file.fileno())
        try:
            there = self.path.stat()
            if opened.st_nlink or os.path.samestat(opened, there):
                return
            came = "another file in its place"
        except (FileNotFoundError, NotADirectoryError):
            came = "none there, because it was deleted or moved"
        except OSError:
            return  # what is wrong, the writing itself will say
        raise JournalGoneError(
            f"expected to write {self.path}, got {came}: leave the folder of a run where it is"
        )

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
    """Close the parent's journals in a forked worker.

    One that outlives its parent would keep the resumed run from writing.
    """
    for journal in list(_OPEN):
        journal.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)


# A killed run lets go within milliseconds of its death, unless a worker was being forked just then:
# one that the system has not run yet holds the file until it does, and a run that is started again
# at once would be sent beside its own record.
_PATIENCE_SECONDS = 2.0


def hold(handle: int, problem: str) -> None:
    """Keep others out of an open file or folder until it is closed or the process ends.

    Where another process holds it, say `problem`.
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not _locked(handle):
        if time.monotonic() >= deadline:
            raise SecondWriterError(problem)
        time.sleep(0.02)


def _locked(handle: int, *, shared: bool = False) -> bool:
    """Take a file or folder, and return whether no other process holds it.

    Where the system has no locks, nobody does.
    """
    if sys.platform == "win32":
        return True
    import fcntl

    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without locks
    return True


def being_written(path: Path) -> bool:
    """Return whether a process holds a journal to write it.

    False where there is none, and where the system has no locks.
    """
    with suppress(OSError), open_regular(path) as file:
        # For an instant only: a writer that begins meanwhile has more patience than that.
        return not _locked(file.fileno(), shared=True)
    return False


def _unwritable(path: Path, error: OSError) -> GroupwiseError:
    """Return the error of a file that cannot be written."""
    return GroupwiseError(
        f"expected to write {path}, got {error.strerror}: choose a folder that you can write"
    )
