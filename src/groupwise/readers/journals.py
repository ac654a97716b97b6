"""The journal of a record that is being written, entry by entry: what `RunRecord.load` says of
it, without reading it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from groupwise.errors import NothingYetError
from groupwise.readers.assemble import Feed, Origin, Request
from groupwise.readers.source import shown
from groupwise.readers.steps import no_part
from groupwise.record.journal import Damage
from groupwise.record.run import JournalRows, RunRecord, is_record


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
        source = replace(record.sources[-1], rows=self._rows.taken)
        return replace(record, sources=(*record.sources[:-1], source))


def sniff_saved(path: Path) -> float:
    """Return the confidence that a folder holds a saved record."""
    return float(is_record(path))


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
