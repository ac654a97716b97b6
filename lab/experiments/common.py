"""What the scripts of all folders share: options, the file of results, and tables.

A module of a folder that needs it puts this folder on the path first. It knows no experiment and
runs nothing.
"""

from __future__ import annotations

import argparse
import csv
import fcntl
import io
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from groupwise.parsing import JsonView

Row = dict[str, Any]
Rows = list[Row]


HELP = {
    "quick": "smallest run that exercises everything; writes no file",
    "tables": "print the tables of what is there; runs nothing",
    "workers": "single-threaded processes",
    "minutes": "begin nothing that would end after so many minutes, as far as is known",
    "only": "only cells whose name has this text",
}


def arguments(
    text: str | None, *places: str, **defaults: float | str | tuple[str, ...]
) -> argparse.Namespace:
    """Places that may be left out, numbers and texts with defaults, several texts with as many, and
    flags, whose default is False.
    """
    made = argparse.ArgumentParser(
        description=text,
        usage=argparse.SUPPRESS,  # it stands in the text, and an error is one line
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for name in places:
        made.add_argument(name, nargs="?")
    for name, default in defaults.items():
        kind: Row = {"action": "store_true"}
        if isinstance(default, tuple):
            kind = {"nargs": len(default), "default": default}
        elif default is not False:
            kind = {"type": type(default), "default": default}
        made.add_argument(f"--{name.replace('_', '-')}", help=HELP.get(name), **kind)
    given = made.parse_args()
    for name, value in vars(given).items():
        least = 0 if name == "seed" or not defaults.get(name) else 1
        if isinstance(value, int) and value < least:
            made.error(f"expected a whole number of at least {least} for --{name}, got {value}")
    return given


def options(text: str | None, **numbers: int) -> argparse.Namespace:
    """--quick, --tables, --seed, and whole numbers with defaults."""
    return arguments(text, quick=False, tables=False, seed=2026, **numbers)


def code_version() -> str:
    """The commit of this checkout, with `-dirty` where files differ from it."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    here = Path(__file__).parent
    made = subprocess.run(command, check=False, capture_output=True, text=True, cwd=here)
    return made.stdout.strip()


class Results:
    """The tables of a folder of scripts in one text file: for each a line `## NAME @ VERSION`, then
    its CSV. The version is that of the code that made the table, several where it was added to by
    several. Of tables of before it is the commit in which they first stood.

    Args:
        path: of the file; without one the tables are kept in memory.
        prefix: that the names of all tables begin with in the file.
    """

    def __init__(self, path: Path | None = None, prefix: str = "") -> None:
        self.path, self.prefix = path, prefix
        self._memory: dict[str, str] = {}

    def within(self, part: str) -> Results:
        """Return the tables whose names begin with a part and a slash, named without them."""
        return Results(self.path, f"{self.prefix}{part}/")

    def tables(self) -> dict[str, Rows]:
        """Return the rows of every table by its name; numbers are numbers again."""
        size = len(self.prefix)
        return {
            name[size:]: [{key: _value(cell) for key, cell in row.items()} for row in _rows(text)]
            for name, text in self._texts().items()
            if name.startswith(self.prefix) and "/" not in name[size:]
        }

    def __contains__(self, name: str) -> bool:
        """Whether a table is there."""
        return self.prefix + name in self._texts()

    def texts(self, name: str) -> list[dict[str, str]]:
        """Return the rows of a table as they are written; none where it is not there."""
        return _rows(self._texts().get(self.prefix + name, ""))

    def read(self, name: str) -> Rows:
        """Return the rows of a table; numbers are numbers again."""
        return [{key: _value(cell) for key, cell in row.items()} for row in self.texts(name)]

    def write(self, name: str, rows: Sequence[JsonView], digits: int = 9) -> None:
        """Write a table in place of the one of before; the file is whole at any time."""
        self._replace(name, lambda _: _csv(rows, digits))

    def add(self, name: str, row: JsonView) -> None:
        """Write one more row."""
        self._replace(name, lambda text: text + _csv([row], 9, header=not text))

    def versions(self) -> dict[str, str]:
        """Return the version of the code that made each table."""
        heads = (head.partition(" @ ") for head, _ in self._sections())
        size = len(self.prefix)
        return {name[size:]: version for name, _, version in heads if name.startswith(self.prefix)}

    def _texts(self) -> dict[str, str]:
        """The CSV of every table of the file."""
        if self.path is None:
            return self._memory
        return {head.partition(" @ ")[0]: f"{table.rstrip()}\n" for head, table in self._sections()}

    def _sections(self) -> Iterator[tuple[str, str]]:
        """The heading and the text of each table of the file."""
        if self.path is None or not self.path.exists():
            return iter(())
        text = self.path.read_text(encoding="utf-8")
        _, *parts = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)
        return zip(parts[::2], parts[1::2], strict=True)

    def _replace(self, name: str, change: Callable[[str], str]) -> None:
        """Change the text of a table."""
        name = self.prefix + name
        with self._alone():
            texts, before = self._texts(), self._texts().get(name, "")
            texts[name] = change(before)
            if self.path is not None:
                made = Results(self.path).versions()
                own = (
                    made.get(name, "").split() if before and texts[name].startswith(before) else []
                )
                made[name] = " ".join(dict.fromkeys([*own, code_version()]))
                heads = {
                    table: f"{table} @ {version}" for table, version in made.items() if version
                }
                partial = self.path.with_suffix(f".{os.getpid()}")
                sections = (
                    f"## {heads.get(table, table)}\n{text}" for table, text in sorted(texts.items())
                )
                partial.write_text("\n".join(sections), encoding="utf-8")
                partial.replace(self.path)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One process at a time changes the file."""
        if self.path is None:
            yield
            return
        folder = os.open(self.path.parent, os.O_RDONLY)
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
        os.close(folder)


def results_of(script: str) -> Results:
    """The results of a script's folder."""
    return Results(Path(script).resolve().parent / "results.txt")


def _rows(text: str) -> list[dict[str, str]]:
    """The rows of a CSV."""
    return list(csv.DictReader(io.StringIO(text)))


def _csv(rows: Sequence[JsonView], digits: int, *, header: bool = True) -> str:
    """Rows as a CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    if header:
        writer.writeheader()
    for row in rows:
        writer.writerow(
            {
                key: f"{value:.{digits}g}" if isinstance(value, float) else value
                for key, value in row.items()
            }
        )
    return text.getvalue()


def _value(text: str) -> Any:
    """A whole number, a number, or the text itself."""
    try:
        return int(text) if text.lstrip("-").isdecimal() else float(text)
    except ValueError:
        return text


def where(rows: Iterable[Row], **values: Any) -> Rows:
    """The rows that have these values."""
    return [row for row in rows if all(row[key] == value for key, value in values.items())]


def column(rows: Iterable[JsonView], name: str) -> Any:
    """One number of every row as an array."""
    return np.array([row[name] for row in rows])


def print_table(
    title: str, header: str | Sequence[str], rows: Iterable[str | Sequence[str]]
) -> None:
    """Print a Markdown table; a line is its cells, or a text in which " | " stands between them."""
    head, *lines = (line if isinstance(line, str) else " | ".join(line) for line in (header, *rows))
    print(f"\n{title}\n\n| {head} |\n{'|---' * len(head.split(' | '))}|")
    for line in lines:
        print(f"| {line} |")
