"""Follow a log that is being written, or the journal of a record: what was added since the last
look, read once; cut, replaced and missing files told apart.
"""

import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Unpack

from groupwise import parsing
from groupwise.errors import GroupwiseError, NothingYetError, UnreadableRunError
from groupwise.plain import frozen
from groupwise.readers import Asked, Located, locate, reading_errors, request_of
from groupwise.readers.assemble import Feed, Origin, Request
from groupwise.readers.rows import no_part
from groupwise.readers.source import in_utf8, is_wide, peek, shown, vocabulary
from groupwise.record.journal import Damage
from groupwise.record.run import JOURNAL, JournalRows, RunRecord


class JournalFeed(Feed):
    """Takes the lines of a journal; one that is damaged is counted, and those behind it are
    taken.
    """

    def open(self, home: Path) -> None:
        """Read what was saved beside the journal."""
        self._rows = JournalRows(home)

    @property
    def damage(self) -> Sequence[Damage]:
        """What is damaged in the lines so far."""
        return self._rows.lines.damage

    def accept(self, line: bytes) -> None:
        """Take one line."""
        self._rows.take(line)

    def take(self, lines: Iterable[str]) -> None:
        """Take lines as text."""
        for line in lines:
            self.accept(line.encode())

    def record(self, origin: Origin, request: Request) -> RunRecord:
        """Return the record of what was taken so far."""
        record = given_settings(self._rows.record(), origin.path, request)
        record.validate()
        # a step that comes again is a row too: the journal grew
        return replace(
            record,
            sources=(*record.sources[:-1], replace(record.sources[-1], rows=self._rows.taken)),
        )


def read_saved(path: Path, request: Request) -> RunRecord:
    """Read a saved record; the user's settings win over the saved ones."""
    if request.chosen:
        raise no_part(path, request.chosen)
    return given_settings(RunRecord.load(path), path, request)


def given_settings(record: RunRecord, path: Path, request: Request) -> RunRecord:
    """Return a record whose saved settings yield to the user's; raise where it has no steps."""
    if not len(record.steps):
        raise NothingYetError(
            f"expected a record with steps, got none in {shown(path)}: nothing has been appended "
            "yet"
        )
    return replace(record, config=replace(record.config, **request.config.known()))


_CHUNK = 1 << 23
_FIRST_LOOK = 1 << 23
_CHECKED = 256  # bytes before the place reached that must still be what they were
_SETTLED = 2.0  # seconds after which a last line without a line feed counts as whole
_MOST_ENTRIES = 2000
_BY_LINE = vocabulary("by_line")

Signature = tuple[tuple[str, int, int, int], ...]


@frozen
class Event:
    """Something that happened to a log, for the person who watches."""

    at: float  # seconds since the epoch
    said: str  # one sentence


class Follower:
    """One log that may grow."""

    record: RunRecord | None = None  # what was read so far
    # why nothing newer is read, and whether that may change
    problem, waiting = "", False
    grew = 0.0  # when the file last changed and had a new row, seconds since the epoch
    follows = True  # whether only what is added is read, and not the whole file again
    bytes_read, _gone = 0, ""
    _most: int | None = None

    def __init__(self, path: str | Path, **asked: Unpack[Asked]) -> None:
        """Check the request; nothing is read yet."""
        self.place, self._request = request_of(path, **asked)
        self.path = Path(path)
        self.events: list[Event] = []  # what happened to the file, oldest first
        self._forget()

    def _forget(self) -> None:
        """Start anew: nothing is known of the file."""
        self._located: Located | None = None
        self._feed: Feed | None = None
        self._offset, self._before, self._tail, self._encoding = 0, b"", b"", "utf-8"
        self._open_line = False
        self._damages_said = 0
        self._signature: Signature | None = None
        self._identity: tuple[int, int] | None = None
        self._last: tuple[int, int] | None = None
        self._newest: tuple[int, int, int] | None = None
        self._broken: GroupwiseError | None = None

    def start(self) -> None:
        """Look for the first time."""
        self.poll(most=_FIRST_LOOK)
        if self.problem and not self.waiting:
            raise UnreadableRunError(self.problem)
        if not self.place.exists() and not self.place.absolute().parent.is_dir():
            raise UnreadableRunError(
                f"expected a log that may appear, got {shown(self.place)}, whose folder does not "
                "exist: check the path"
            )

    def poll(self, *, most: int | None = None) -> bool:
        """Read what is new."""
        before = (self.problem, len(self.events))
        changed = False
        self._most = most
        try:
            with reading_errors(self.place):
                changed = self._look()
            error = self._broken
        except GroupwiseError as raised:
            error = raised
        self.problem = "" if error is None else str(error)
        self.waiting = isinstance(error, NothingYetError)
        return changed or before != (self.problem, len(self.events))

    def _look(self) -> bool:
        """Read what is new; return whether there was anything."""
        if self._located is None:
            signature = signature_of(self.place)
            if self._broken and signature == self._signature:
                return False
            self._signature, self._broken = signature, None
            try:
                self._open()
            except GroupwiseError as error:
                self._broken = error
                return True
            if self._gone:
                self._event(f"The file {self._gone} is back, and was read again from its start.")
                self._gone = ""
        assert self._located
        if self._feed is None:
            return self._read_whole()
        return self._read_on(
            self._located.path / JOURNAL
            if isinstance(self._feed, JournalFeed)
            else self._located.path
        )

    def _open(self) -> None:
        """Find the log and choose how to follow it."""
        by_line = self.place.suffix.lower() in _BY_LINE and not self.place.is_dir()
        if by_line and not (seen := peek(self.place)).binary and "\n" not in seen.text:
            raise NothingYetError(
                f"expected a log, got {shown(self.place)}, whose first line is incomplete: wait"
            )
        located = locate(self.place, self._request)
        feed = located.reader.feed() if located.reader.feed else None
        if isinstance(feed, JournalFeed):
            if (located.path / JOURNAL).is_file():
                feed.open(located.path)
            else:  # saved and finished
                feed = None
        elif feed:
            seen = peek(located.path)
            self._encoding = seen.encoding
            if is_wide(seen.encoding):  # a line feed cannot be found in its bytes
                feed = None
        self._located, self._feed = located, feed
        self._signature, self.follows = None, feed is not None

    def _read_whole(self) -> bool:
        """Read a format without a feed whole where it changed."""
        assert self._located
        signature = signature_of(self.place)
        if signature == self._signature:
            return False
        again, self._signature = self._signature is not None, signature
        self._broken = None
        try:
            located = locate(self.place, self._request)
            if (
                again
                and located.reader.feed
                and not is_wide(self._encoding)
                and (not located.reader.folder or (located.path / JOURNAL).is_file())
            ):
                self._forget()
                return self._look()
            self.record = located.read()
        except GroupwiseError as error:
            self._broken = error
        self._note_growth(
            max((modified / 1e9 for _, _, modified, _ in signature), default=self.grew)
        )
        return True

    def _read_on(self, file: Path) -> bool:
        """Read the whole lines that were added to a file."""
        try:
            status = file.stat()
        except FileNotFoundError:
            self._gone = shown(file)
            self._event(f"The file {self._gone} is gone. Its rows stay here until it is back.")
            self._forget()
            raise NothingYetError(
                f"the file {shown(file)} is gone: wait until it is back"
            ) from None
        identity, now = (status.st_dev, status.st_ino), (status.st_size, status.st_mtime_ns)
        if self._identity not in (None, identity):
            return self._begin_again(file, "was replaced by another file")
        if status.st_size < self._offset:
            return self._begin_again(file, "was cut short")
        if now == self._last and not self._tail:
            return False
        with file.open("rb") as stream:
            if what := self._rewritten(stream):
                return self._begin_again(file, what)
            took = self._take(stream, settled=time.time() - status.st_mtime > _SETTLED)
            whole = stream.tell() >= status.st_size
        first, self._identity, self._last = self._identity is None, identity, now if whole else None
        for damage in (
            self._feed.damage[self._damages_said :] if isinstance(self._feed, JournalFeed) else ()
        ):
            self._damages_said += 1
            self._event(f"The journal {shown(file)} is damaged: {damage.said()}.")
        if took or first:
            self._assemble()
            self._note_growth(status.st_mtime)
        return took or first

    def _note_growth(self, changed: float) -> None:
        """Note when the file changed if it has rows that it had not: lines that are no rows make
        nothing newer.
        """
        record = self.record
        if self._broken is None and record and len(record.steps):
            newest = (
                len(record.steps),
                int(record.steps["step"][-1]),
                sum(source.rows for source in record.sources),
            )
            if newest != self._newest:
                self._newest, self.grew = newest, changed

    def _assemble(self) -> None:
        """Make the record of what was taken so far."""
        assert self._feed
        assert self._located
        self._broken = None
        try:
            self._feed.take_newest()
            self.record = self._feed.record(
                Origin(self._located.path, self._offset, self._encoding), self._located.request
            )
        except GroupwiseError as error:
            self._broken = error

    def _rewritten(self, stream: BinaryIO) -> str:
        """Return what became of the bytes before the place reached, "" where they are what they
        were; stand at that place.
        """
        stream.seek(self._offset - len(self._before))
        if stream.read(len(self._before)) != self._before:
            return "was rewritten"
        if self._open_line:
            following = stream.read(1)
            stream.seek(self._offset)
            if following not in (b"", b"\n", b"\r"):
                return "continued within its last line"
        return ""

    def _take(self, stream: BinaryIO, *, settled: bool) -> bool:
        """Take whole lines from where the stream stands; the last one without a line feed once
        the file has settled.
        """
        took, rest, read = False, b"", 0
        while len(rest) < parsing.LONGEST_LINE and (
            chunk := stream.read(min(_CHUNK, self._most or _CHUNK))
        ):
            read += len(chunk)
            self.bytes_read += len(chunk)
            rest += chunk
            end = rest.rfind(b"\n") + 1
            if end:
                took |= self._accept(rest[:end])
                rest = rest[end:]
            if self._most is not None and read >= self._most and took:
                self._tail = b""
                return took
        self._tail = rest
        if self._tail and settled and not isinstance(self._feed, JournalFeed):
            took, self._tail = self._accept(rest) or took, b""
        return took

    def _accept(self, whole: bytes) -> bool:
        """Hand bytes of whole lines to the feed and step over them."""
        assert self._feed
        if isinstance(self._feed, JournalFeed):
            for line in whole.split(b"\n")[:-1]:
                self._feed.accept(line + b"\n")
        else:
            self._feed.take_block(in_utf8(whole, self._encoding))
        self._offset += len(whole)
        self._before = (self._before + whole[-_CHECKED:])[-_CHECKED:]
        self._open_line = bool(self._before) and not self._before.endswith(b"\n")
        return bool(whole)

    def _begin_again(self, file: Path, what: str) -> bool:
        """Forget what was read of a file that is no longer the same, and read what it is now."""
        self._event(f"The file {shown(file)} {what}; it was read again from its start.")
        self._forget()
        return self._look()

    def _event(self, words: str) -> None:
        """Note what happened."""
        self.events = [*self.events, Event(time.time(), words)][-20:]


def signature_of(place: Path) -> Signature:
    """Return name, size, time of change and inode of a file, or of the files of a folder down to
    its grandchildren.
    """
    signatures: list[tuple[str, int, int, int]] = []
    waiting = [(place, 0)]
    while waiting and len(signatures) < _MOST_ENTRIES:
        path, depth = waiting.pop()
        with suppress(OSError):
            status = path.stat()
            if not path.is_dir():
                signatures.append((str(path), status.st_size, status.st_mtime_ns, status.st_ino))
            elif depth < 3:
                with os.scandir(path) as entries:
                    waiting += [(Path(entry.path), depth + 1) for entry in entries]
    return tuple(sorted(signatures))
