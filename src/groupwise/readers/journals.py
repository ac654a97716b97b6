"""The journal of a record that is being written, entry by entry: what `RunRecord.load` says of it, without reading it again.

Texts of completions are kept for the newest step alone. It writes nothing.
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
from groupwise.readers.assemble import Origin, Request
from groupwise.readers.rows import RowStore
from groupwise.readers.source import shown
from groupwise.record.journal import decode_entry
from groupwise.record.run import JOURNAL, SAVED, RunRecord, Source, load_saved, parse_about
from groupwise.record.table import BASE_COLUMNS, TEXT_COLUMNS, WHOLE_COLUMNS, rows_that_stand, steps_table


class JournalFeed:
    """Takes the lines of a journal; a line that is damaged was never confirmed, and nothing after it is taken."""

    def __init__(self) -> None:
        self._rows, self._rollouts = RowStore(), RowStore()
        self._row_of = array("q")
        self._texts: list[Mapping[str, Any]] = []
        self._about: Mapping[str, Any] | None = None
        self._home: Path | None = None
        self._saved: RunRecord | None = None

    def open(self, home: Path) -> None:
        """Read what was saved beside the journal."""
        self._home = home
        if (home / SAVED).is_file():
            self._saved = load_saved(home)

    def accept(self, line: bytes) -> bool:
        """Take one line, or return False where it is damaged."""
        entry = decode_entry(line)
        if entry is None:
            return False
        if "about" in entry:
            self._about = entry["about"]
        row = entry.get("row")
        if isinstance(row, dict) and isinstance(row.get("step"), int):
            rollouts = [one for one in entry.get("rollouts") or [] if isinstance(one, dict)]
            for one in rollouts:
                self._rollouts.add({key: value for key, value in one.items() if key not in TEXT_COLUMNS} | {"step": row["step"]})
                self._row_of.append(self._rows.count)
            if rollouts:
                self._texts = [{"step": row["step"], **one} for one in rollouts]
            self._rows.add(row)
        return True

    def take(self, lines: Iterable[str]) -> None:
        """Take lines as text."""
        for line in lines:
            if not self.accept(line.encode()):
                return

    def finish(self) -> None:
        """Nothing is held back."""

    def newest_texts(self) -> list[dict[str, Any]]:
        """Return the completions of the newest step that has any, with their rewards."""
        return [dict(one) for one in self._texts]

    def record(self, origin: Origin, request: Request) -> RunRecord:
        """Return the record of what was taken so far."""
        record = self._saved or RunRecord(origin.path.name, steps_table([], {}))
        if self._about is not None:
            name, config, meanings, _, notes = parse_about(self._about, origin.path)
            meanings, notes = meanings or record.meanings, tuple(dict.fromkeys((*record.notes, *notes)))
            record = dataclasses.replace(record, name=name, config=config, meanings=meanings, notes=notes)
        if self._rows.count:
            record = self._with_rows(record)
        if not len(record.steps):
            raise NothingYetError(f"expected a record with steps, got none in {shown(origin.path)}: nothing has been appended yet")
        meanings = tuple(meaning for meaning in record.meanings if meaning.column in record.steps.columns)
        sources = (*record.sources, Source(str(origin.path / JOURNAL), "journal", origin.size, self._rows.count))
        config = dataclasses.replace(record.config, **request.config.known())
        record = dataclasses.replace(record, config=config, meanings=meanings, sources=sources)
        record.validate()
        return record

    def _with_rows(self, record: RunRecord) -> RunRecord:
        """Return the record with the rows of the journal after its own; steps that come again replace those that were there."""
        step_R = self._rows.dense("step").astype(np.int64)
        stands = rows_that_stand(step_R)
        step = step_R[stands]
        columns = {name: self._rows.dense(name)[stands] for name in self._rows.names() if name != "step"}
        base = {name: columns.pop(name, None) for name in BASE_COLUMNS[1:]}
        table = steps_table(
            step.tolist(),
            columns,
            optimizer_updates=_filled(base["optimizer_updates"], step.astype(np.float64)),
            window=_filled(base["window"], np.ones(len(step))),
            tokens=base["tokens"],
            seconds=base["seconds"],
        )
        first = int(step[0])
        steps = pl.concat([record.steps.filter(pl.col("step") < first), table], how="diagonal") if len(record.steps) else table
        kept = record.rollouts.filter(pl.col("step") < first) if record.rollouts is not None else None
        tables = [part for part in (kept, self._rollout_table(stands)) if part is not None]
        return dataclasses.replace(record, steps=steps, rollouts=pl.concat(tables, how="diagonal") if tables else None)

    def _rollout_table(self, stands: NDArray[np.bool_]) -> pl.DataFrame | None:
        """Return the numbers of the rollouts whose rows stand."""
        if not self._rollouts.count:
            return None
        kept = stands[np.frombuffer(self._row_of, dtype=np.int64)]
        if not kept.any():
            return None
        names = [*WHOLE_COLUMNS, *(name for name in self._rollouts.names() if name not in WHOLE_COLUMNS)]
        values = {name: self._rollouts.dense(name)[kept] for name in names}
        return pl.DataFrame(
            [
                pl.Series(name, column.astype(np.int64), dtype=pl.Int64)
                if name in WHOLE_COLUMNS
                else pl.Series(name, column, dtype=pl.Float64).fill_nan(None)
                for name, column in values.items()
            ]
        )


def _filled(values: NDArray[np.float64] | None, defaults: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Return the values with the default where one is missing; None where there is no column."""
    return None if values is None else np.where(np.isnan(values), defaults, values)
