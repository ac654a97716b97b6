"""The journal of a record that is being written, entry by entry: what `RunRecord.load` says of it, without reading it again.

Texts of completions are kept up to a size; beyond it those of earlier steps are let go. It writes nothing.
"""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from groupwise.errors import NothingYetError
from groupwise.readers.assemble import Feed, Origin, Request
from groupwise.readers.rows import RowStore
from groupwise.readers.source import shown
from groupwise.record.journal import decode_entry
from groupwise.record.run import JOURNAL, SAVED, RunRecord, Source, load_saved, with_description, with_steps
from groupwise.record.table import TEXT_COLUMNS, WHOLE_COLUMNS, rows_that_stand, steps_of_columns, steps_table

_TEXT_CHARACTERS = 1 << 28


class JournalFeed(Feed):
    """Takes the lines of a journal; a line that is damaged was never confirmed, and nothing after it is taken."""

    def __init__(self) -> None:
        self._rows, self._rollouts = RowStore(), RowStore()
        self._row_of = array("q")
        self._texts: dict[str, list[str | None]] = {name: [] for name in TEXT_COLUMNS}
        self._characters = 0
        self._about: Mapping[str, Any] = {}
        self._saved: RunRecord | None = None

    def open(self, home: Path) -> None:
        """Read what was saved beside the journal."""
        if (home / SAVED).is_file():
            self._saved = load_saved(home)

    def accept(self, line: bytes) -> bool:
        """Take one line, or return False where it is damaged."""
        entry = decode_entry(line)
        if entry is None:
            return False
        if isinstance(entry.get("about"), dict):
            self._about = entry["about"]
        row = entry.get("row")
        if isinstance(row, dict) and isinstance(row.get("step"), int):
            self._take_rollouts([one for one in entry.get("rollouts") or [] if isinstance(one, dict)], row["step"])
            self._rows.add(row)
        return True

    def take(self, lines: Iterable[str]) -> None:
        """Take lines as text."""
        for line in lines:
            if not self.accept(line.encode()):
                return

    def _take_rollouts(self, rollouts: list[dict[str, Any]], step: int) -> None:
        """Take the rollouts of a step."""
        for one in rollouts:
            self._rollouts.add({key: value for key, value in one.items() if key not in TEXT_COLUMNS} | {"step": step})
            self._row_of.append(self._rows.count)
        for name, kept in self._texts.items():
            texts = [None if one.get(name) is None else str(one[name]) for one in rollouts]
            self._characters += sum(len(text) for text in texts if text is not None)
            kept.extend(texts)
        if self._characters > _TEXT_CHARACTERS:
            for kept in self._texts.values():
                kept[: len(kept) - len(rollouts)] = [None] * (len(kept) - len(rollouts))
            self._characters = sum(len(text) for kept in self._texts.values() for text in kept if text is not None)

    def record(self, origin: Origin, request: Request) -> RunRecord:
        """Return the record of what was taken so far."""
        step_R = self._rows.dense("step").astype(np.int64)
        stands = rows_that_stand(step_R)
        columns = {name: self._rows.dense(name)[stands] for name in self._rows.names() if name != "step"}
        record = with_description(self._saved or RunRecord(origin.path.name, steps_table([], {})), self._about, origin.path)
        source = Source(str(origin.path / JOURNAL), "journal", origin.size, self._rows.count)
        record = with_steps(record, steps_of_columns(step_R[stands].tolist(), columns), self._rollout_table(stands), source)
        if not len(record.steps):
            raise NothingYetError(f"expected a record with steps, got none in {shown(origin.path)}: nothing has been appended yet")
        record = dataclasses.replace(record, config=dataclasses.replace(record.config, **request.config.known()))
        record.validate()
        return record

    def _rollout_table(self, stands: NDArray[np.bool_]) -> pl.DataFrame | None:
        """Return the rollouts whose rows stand."""
        kept = stands[np.frombuffer(self._row_of, dtype=np.int64)] if self._row_of else np.zeros(0, dtype=bool)
        if not kept.any():
            return None
        table = pl.DataFrame({name: self._rollouts.dense(name)[kept] for name in (*WHOLE_COLUMNS, *self._rollouts.names())})
        table = table.select(pl.col(WHOLE_COLUMNS).cast(pl.Int64, strict=False), pl.exclude(WHOLE_COLUMNS).fill_nan(None))
        texts = [pl.Series(name, texts, dtype=pl.Utf8).filter(pl.Series(kept)) for name, texts in self._texts.items()]
        return table.with_columns([text for text in texts if text.count()])
