"""The journal of a record that is being written, entry by entry: what `RunRecord.load` says of it, without reading it again.

Texts of completions are kept up to a size; beyond it those of earlier steps are let go. It writes nothing.
"""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from groupwise import limits
from groupwise.errors import NothingYetError
from groupwise.readers.assemble import Feed, Origin, Request
from groupwise.readers.rows import RowStore
from groupwise.readers.source import shown
from groupwise.record.journal import Damage, LineReader, notes_on
from groupwise.record.run import (
    JOURNAL,
    SAVED,
    RunRecord,
    Source,
    load_saved,
    rollouts_in,
    step_in,
    with_description,
    with_notes,
    with_steps,
)
from groupwise.record.table import (
    TEXT_COLUMNS,
    WHOLE_COLUMNS,
    Odd,
    rows_that_stand,
    sound_text,
    steps_of_columns,
    whole_number,
)

_APART = frozenset((*TEXT_COLUMNS, *WHOLE_COLUMNS))  # kept in columns of their own


class JournalFeed(Feed):
    """Takes the lines of a journal; one that is damaged is counted, and those behind it are taken."""

    def __init__(self) -> None:
        self._reader, self._odd = LineReader(), Odd()
        self._step, self._prompt = array("q"), array("q")
        self._rows, self._rollouts = RowStore(), RowStore()
        self._row_of = array("q")
        self._texts: dict[str, list[str | None]] = {name: [] for name in TEXT_COLUMNS}
        self._characters = 0
        self._about: Mapping[str, Any] = {}
        self._saved: RunRecord | None = None

    def open(self, home: Path) -> None:
        """Read what was saved beside the journal."""
        if (home / SAVED).is_file():
            self._saved, _ = load_saved(home)

    @property
    def damage(self) -> Sequence[Damage]:
        """What is damaged in the lines so far."""
        return self._reader.damage

    def accept(self, line: bytes) -> None:
        """Take one line."""
        for entry in self._reader.take(line):
            if isinstance(entry.get("about"), dict):
                self._about = entry["about"]
            step = step_in(entry)
            if step is not None:
                self._take_rollouts(rollouts_in(entry))
                self._step.append(step)
                self._rows.add({key: value for key, value in entry["row"].items() if key != "step"})

    def take(self, lines: Iterable[str]) -> None:
        """Take lines as text."""
        for line in lines:
            self.accept(line.encode())

    def _take_rollouts(self, given: list[dict[str, Any]]) -> None:
        """Take the rollouts of a step."""
        rollouts = [one for one in given if isinstance(one.get("prompt_id"), int)]
        if len(rollouts) < len(given):
            self._odd["no id", "prompt_id"] += len(given) - len(rollouts)
        for one in rollouts:
            self._rollouts.add({key: value for key, value in one.items() if key not in _APART})
            self._prompt.append(whole_number(one["prompt_id"], self._odd))
            self._row_of.append(self._rows.count)
        self._take_texts(rollouts)

    def _take_texts(self, rollouts: list[dict[str, Any]]) -> None:
        """Take the texts of rollouts; where all are too many, those of earlier steps go."""
        for name, kept in self._texts.items():
            texts = [self._text(name, one.get(name)) for one in rollouts]
            self._characters += sum(len(text) for text in texts if text is not None)
            kept.extend(texts)
        if self._characters > limits.MOST_TEXT:
            for kept in self._texts.values():
                kept[: len(kept) - len(rollouts)] = [None] * (len(kept) - len(rollouts))
            self._characters = sum(len(text) for kept in self._texts.values() for text in kept if text is not None)

    def _text(self, name: str, value: Any) -> str | None:
        """Return a cell as a text."""
        text = None if value is None else sound_text(str(value))
        if text != value and isinstance(value, str):
            self._odd["text", name] += 1
        return text

    def record(self, origin: Origin, request: Request) -> RunRecord:
        """Return the record of what was taken so far."""
        step_R = np.array(self._step, dtype=np.int64)
        stands = rows_that_stand(step_R)
        odd = self._odd + Odd(self._not_numbers(stands))
        columns = {name: values[stands] for name, values in _columns(self._rows, {"step"}, odd).items()}
        record = with_description(self._saved or RunRecord.empty(origin.path.name), self._about, origin.path)
        source = Source(str(origin.path / JOURNAL), "journal", origin.size, self._rows.count)
        record = with_steps(record, steps_of_columns(step_R[stands].tolist(), columns), self._rollout_table(stands, odd), source)
        record = with_notes(record, notes_on(self.damage), odd)
        if not len(record.steps):
            raise NothingYetError(f"expected a record with steps, got none in {shown(origin.path)}: nothing has been appended yet")
        record = dataclasses.replace(record, config=dataclasses.replace(record.config, **request.config.known()))
        record.validate()
        return record

    def _not_numbers(self, stands: NDArray[np.bool_]) -> dict[tuple[str, str], int]:
        """Return how many cells of each column are NaN in the rows that stand."""
        columns = {name: self._rows.sparse(name) for name in self._rows.names()}
        return {("nan", name): int(stands[rows[np.isnan(values)]].sum()) for name, (rows, values) in columns.items()}

    def _rollout_table(self, stands: NDArray[np.bool_], odd: Odd) -> pl.DataFrame | None:
        """Return the rollouts whose rows stand."""
        kept = stands[np.frombuffer(self._row_of, dtype=np.int64)] if self._row_of else np.zeros(0, dtype=bool)
        if not kept.any():
            return None
        whole = {"step": np.array(self._step)[np.array(self._row_of)], "prompt_id": np.array(self._prompt)}
        floats = {sound_text(name): values for name, values in _columns(self._rollouts, _APART, odd).items()}
        table = pl.DataFrame({name: values[kept] for name, values in (*whole.items(), *floats.items())})
        table = table.with_columns(pl.exclude(WHOLE_COLUMNS).fill_nan(None)) if floats else table
        texts = [pl.Series(name, texts, dtype=pl.Utf8).filter(pl.Series(kept)) for name, texts in self._texts.items()]
        return table.with_columns([text for text in texts if text.count()])


def _columns(store: RowStore, apart: Set[str], odd: Odd) -> dict[str, NDArray[np.float64]]:
    """Return the columns of rows but some, as many as a table may have."""
    names = [name for name in store.names() if name not in apart]
    kept = names[: limits.most_keys(store.count)]
    odd["wide", ""] += store.too_wide + sum(len(store.sparse(name)[0]) for name in names[len(kept) :])
    return {name: store.dense(name) for name in kept}
