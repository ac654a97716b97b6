"""Rows of a CSV beside the scripts that are written as they come, so that a run that was cut off
goes on where it was.

Rows are told apart by some of their columns. It computes nothing.
"""

from __future__ import annotations

import csv
from typing import Any

from drawing import HERE, read_csv, written


class Pieces:
    """The rows of one file.

    Args:
        name: of the file.
        keys: columns that tell rows apart.
    """

    def __init__(self, name: str, keys: tuple[str, ...]) -> None:
        self.path, self.keys = HERE / name, keys
        self._memory: list[dict[str, Any]] | None = None

    def keep_in_memory(self) -> None:
        """Read and write no file from now on."""
        self._memory = []

    def rows(self) -> list[dict[str, Any]]:
        """What is there."""
        if self._memory is not None:
            return list(self._memory)
        return read_csv(self.path.name) if self.path.exists() else []

    def has(self, *values: object) -> bool:
        """Whether a row with these keys is there."""
        return any(
            all(row[key] == value for key, value in zip(self.keys, values, strict=True))
            for row in self.rows()
        )

    def add(self, row: dict[str, Any]) -> None:
        """Write one more."""
        if self._memory is not None:
            self._memory.append(row)
            return
        fresh = not self.path.exists()
        with self.path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(row), lineterminator="\n")
            if fresh:
                writer.writeheader()
            writer.writerow(written(row))
