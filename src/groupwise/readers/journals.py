"""The journal of a record that is being written, entry by entry: what `RunRecord.load` says of
it, without reading it again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from groupwise import limits
from groupwise.errors import NothingYetError
from groupwise.readers.assemble import Feed, Origin, Request
from groupwise.readers.source import shown
from groupwise.record.journal import Damage, LineReader, notes_on
from groupwise.record.run import (
    JOURNAL,
    SAVED,
    RunRecord,
    Source,
    description_in,
    load_saved,
    told,
    with_entries,
)
from groupwise.record.table import TEXT_COLUMNS, Odd

_HELD = 1 << 24  # bytes of entries that wait to become rows of the tables


class JournalFeed(Feed):
    """Takes the lines of a journal; one that is damaged is counted, and those behind it are
    taken.
    """

    def __init__(self) -> None:
        self._reader, self._odd = LineReader(), Odd()
        self._entries: list[dict[str, Any]] = []
        self._held = self._taken = 0
        self._about: dict[str, Any] = {}
        self._record = RunRecord.empty("")

    def open(self, home: Path) -> None:
        """Read what was saved beside the journal."""
        self._record = (
            load_saved(home)[0] if (home / SAVED).is_file() else RunRecord.empty(home.name)
        )

    @property
    def damage(self) -> Sequence[Damage]:
        """What is damaged in the lines so far."""
        return self._reader.damage

    def accept(self, line: bytes) -> None:
        """Take one line."""
        if self._taken >= limits.MOST_ROWS:
            return
        self._entries += self._reader.take(line)
        self._held += len(line)
        if self._held > _HELD:
            self._settle()

    def take(self, lines: Iterable[str]) -> None:
        """Take lines as text."""
        for line in lines:
            self.accept(line.encode())

    def _settle(self) -> None:
        """Make rows of the entries that wait."""
        record = with_entries(self._record, self._entries, self._odd)
        self._taken += sum("row" in entry for entry in self._entries)
        self._about = description_in(self._entries) or self._about
        self._entries, self._held = [], 0
        if record.rollouts is not None and (
            texts := [name for name in TEXT_COLUMNS if name in record.rollouts.columns]
        ):
            characters = record.rollouts.select(
                pl.sum_horizontal(pl.col(texts).str.len_chars()).cum_sum(reverse=True)
            ).to_series()
            last = record.rollouts["step"].filter(characters > limits.MOST_TEXT).max()
            if last is not None:
                kept = record.rollouts.with_columns(
                    pl.when(pl.col("step") > last).then(pl.col(texts))
                )
                record = dataclasses.replace(record, rollouts=kept)
        self._record = record

    def record(self, origin: Origin, request: Request) -> RunRecord:
        """Return the record of what was taken so far."""
        self._settle()
        source = Source(str(origin.path / JOURNAL), "journal", origin.size, self._taken)
        later = [limits.later_rows(self._taken)] if self._taken >= limits.MOST_ROWS else []
        record = told(
            self._record, self._about, source, (*notes_on(self.damage), *later), Odd(self._odd)
        )
        if not len(record.steps):
            raise NothingYetError(
                f"expected a record with steps, got none in {shown(origin.path)}: nothing has been "
                "appended yet"
            )
        record = dataclasses.replace(
            record, config=dataclasses.replace(record.config, **request.config.known())
        )
        record.validate()
        return record
