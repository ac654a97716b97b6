"""Completions that stay in the files they were read from, read where somebody looks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl

from groupwise.arrays import Whole
from groupwise.errors import UnreadableRunError
from groupwise.plain import frozen


@frozen
class Texts:
    """The completions of a record by their places, from 0 in the order of its files."""

    ends: Whole  # the place behind each part of the files
    again: tuple[Callable[[], pl.Series], ...]  # read the completions of each part

    def read(self, rows: pl.DataFrame, made: Sequence[pl.Expr]) -> pl.DataFrame:
        """Return rows with what expressions make of their columns, completions as texts.

        One part is in memory at a time.
        """
        rows = rows.with_row_index("row")
        part = pl.Series(np.searchsorted(self.ends, rows["completion"].fill_null(0), side="right"))
        part = part.zip_with(rows["completion"].is_not_null(), pl.Series([-1]))
        tables = []
        for number in sorted({-1, *part}):
            some = rows.filter(part == number)
            texts, start, size = pl.Series(dtype=pl.Utf8), 0, 0
            if number >= 0:
                start = int(self.ends[number - 1]) if number else 0
                texts, size = self.again[number](), int(self.ends[number]) - start
            if len(texts) < size:
                raise UnreadableRunError(
                    f"expected {size} completions where they stood, got {len(texts)}: open the run "
                    "again"
                )
            read = some.with_columns(completion=texts.gather(some["completion"] - start))
            tables.append(some.with_columns(read.select(made)))
        return pl.concat(tables).sort("row").drop("row")
