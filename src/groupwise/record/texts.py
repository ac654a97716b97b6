"""Completions that stay in the files they were read from, read where somebody looks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from groupwise.arrays import Whole
from groupwise.errors import UnreadableRunError


@dataclass(frozen=True, slots=True)
class Texts:
    """The completions of a record by their places, from 0 in the order of its files."""

    ends: Whole  # the place behind each part of the files
    again: tuple[Callable[[], pl.Series], ...]  # read the completions of each part

    def made(self, places: pl.Series, made: Sequence[pl.Expr]) -> pl.DataFrame:
        """Return what expressions make of the completions at places, null for none.

        One part is in memory at a time.
        """
        wanted = places.drop_nulls().unique().sort().to_numpy()
        part = np.searchsorted(self.ends, wanted, side="right")
        tables = [pl.DataFrame(schema={"completion": pl.Utf8}).select(made)]
        for number in np.unique(part).tolist():
            start = self.ends[number - 1] if number else 0
            texts, size = self.again[number](), self.ends[number] - start
            if len(texts) < size:
                raise UnreadableRunError(
                    f"expected {size} completions where they stood, got {len(texts)}: open the run "
                    "again"
                )
            tables.append(
                texts.gather(wanted[part == number] - start).to_frame("completion").select(made)
            )
        row = np.searchsorted(wanted, places.fill_null(0).to_numpy())
        return pl.concat(tables).select(
            pl.all().gather(pl.Series(row, dtype=pl.Int64).zip_with(places.is_not_null(), places))
        )
