"""Rows that are written as they come, so that a run that was cut off goes on where it was.

Rows are told apart by some of their columns. It computes nothing.
"""

from note import RESULTS, Results, Rows


class Pieces:
    """The rows of one table.

    Args:
        name: of the table.
        keys: columns that tell rows apart.
    """

    def __init__(self, name: str, keys: tuple[str, ...]) -> None:
        self.name, self.keys, self.results = name, keys, RESULTS

    def keep_in_memory(self) -> None:
        """Read and write no file from now on."""
        self.results = Results()

    def rows(self) -> Rows:
        """What is there."""
        return self.results.read(self.name)

    def has(self, *values: object) -> bool:
        """Whether a row with these keys is there."""
        return any(tuple(row[key] for key in self.keys) == values for row in self.rows())

    def add(self, row: dict[str, object]) -> None:
        """Write one more."""
        self.results.add(self.name, row)
