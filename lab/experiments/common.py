"""What the scripts of all folders share: options, the file of results, tables, colours, and one
style of picture.

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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "img"
# Okabe and Ito: told apart by colour-blind eyes; the order of their greys differs too, and every
# series has its own dash or marker.
BLACK, ORANGE, SKY, GREEN, BLUE, VERMILION, PURPLE = (
    "#000000",
    "#e69f00",
    "#56b4e9",
    "#009e73",
    "#0072b2",
    "#d55e00",
    "#cc79a7",
)
_ALWAYS: dict[Any, Any] = {
    "svg.hashsalt": "groupwise",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "figure.constrained_layout.use": True,
    "path.simplify_threshold": 1.0,
}
_STYLE: dict[Any, Any] = {
    "font.size": 11,
    "axes.titlesize": 11,
    "legend.fontsize": 10,
    "font.family": "sans-serif",
}

# Metadata, comments, and the names that Matplotlib gives to groups.
_UNSEEN = re.compile(
    r"<metadata>.*?</metadata>|<!--.*?-->|<\?xml.*?\?>|<!DOCTYPE.*?>"
    r'|(?<=<g) id="\w+[._]\w*"(?=>)',
    re.DOTALL,
)
Row = dict[str, Any]
Rows = list[Row]


def parser(text: str | None, tables: str) -> argparse.ArgumentParser:
    """A parser with the first line of a docstring, --quick and --tables.

    Args:
        text: the docstring.
        tables: what --tables does.
    """
    made = argparse.ArgumentParser(description=(text or "").split("\n", maxsplit=1)[0])
    made.add_argument(
        "--quick",
        action="store_true",
        help="smallest run that exercises everything; writes no file",
    )
    made.add_argument("--tables", action="store_true", help=tables)
    return made


def arguments(text: str | None, **defaults: int) -> argparse.Namespace:
    """Whole numbers with defaults, and flags, whose default is False."""
    made = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in defaults.items():
        kind = {"action": "store_true"} if default is False else {"type": int, "default": default}
        made.add_argument(f"--{name.replace('_', '-')}", **kind)
    return made.parse_args()


def seeded_options(text: str | None, tables: str, numbers: Mapping[str, int]) -> argparse.Namespace:
    """--quick, --tables, --seed, and whole numbers with defaults."""
    made = parser(text, tables)
    made.add_argument("--seed", type=int, default=2026)
    for name, default in numbers.items():
        made.add_argument(f"--{name}", type=int, default=default)
    return made.parse_args()


class Results:
    """The tables of a folder of scripts in one text file: for each a line `## NAME`, then its CSV.

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

    def write(self, name: str, rows: Sequence[Mapping[str, Any]], digits: int = 9) -> None:
        """Write a table in place of the one of before; the file is whole at any time."""
        self._replace(name, lambda _: _csv(rows, digits))

    def add(self, name: str, row: Mapping[str, Any]) -> None:
        """Write one more row."""
        self._replace(name, lambda text: text + _csv([row], 9, header=not text))

    def _texts(self) -> dict[str, str]:
        """The CSV of every table of the file."""
        if self.path is None:
            return self._memory
        text = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
        _, *parts = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)
        return {
            name: f"{table.rstrip()}\n" for name, table in zip(parts[::2], parts[1::2], strict=True)
        }

    def _replace(self, name: str, change: Callable[[str], str]) -> None:
        """Change the text of a table."""
        name = self.prefix + name
        with self._alone():
            texts = self._texts()
            texts[name] = change(texts.get(name, ""))
            if self.path is not None:
                partial = self.path.with_suffix(f".{os.getpid()}")
                sections = (f"## {name}\n{text}" for name, text in sorted(texts.items()))
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


def _csv(rows: Sequence[Mapping[str, Any]], digits: int, *, header: bool = True) -> str:
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


def column(rows: Iterable[Mapping[str, Any]], name: str) -> Any:
    """One number of every row as an array."""
    return np.array([row[name] for row in rows])


def print_table(
    title: str, header: str | Sequence[str], rows: Iterable[str | Sequence[str]], rule: str = "---"
) -> None:
    """Print a Markdown table; a line is its cells, or a text in which " | " stands between them."""
    head, *lines = (line if isinstance(line, str) else " | ".join(line) for line in (header, *rows))
    print(f"\n{title}\n\n| {head} |\n{f'|{rule}' * len(head.split(' | '))}|")
    for line in lines:
        print(f"| {line} |")


def pyplot(style: dict[Any, Any] | None = None) -> Any:
    """Matplotlib's pyplot in this style or another, set up so that the same numbers give the
    same file.
    """
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams |= {**_ALWAYS, **(_STYLE if style is None else style)}
    import matplotlib.pyplot as plt

    return plt


def doublings(axis: Any, ticks: Sequence[int]) -> None:
    """An axis from left to right by doublings."""
    axis.set_xscale("log", base=2)
    axis.set_xticks(ticks, [str(tick) for tick in ticks])


def save(figure: Any, name: str) -> None:
    """Write a picture without its date."""
    import matplotlib.pyplot as plt

    drawn = io.StringIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None})
    plt.close(figure)
    (PICTURES / name).write_text(compact(drawn.getvalue()), encoding="utf-8")


def compact(svg: str) -> str:
    """The same picture with one digit behind the point, and without what no reader looks at."""
    svg = _UNSEEN.sub("", svg)
    svg = re.sub(r"-?\d+\.\d+", lambda digits: f"{float(digits[0]):.1f}".removesuffix(".0"), svg)
    svg = re.sub(r"\s+", " ", svg)
    svg = re.sub(r'(?<=[\d "]) ?L (?=[\d-])', " ", svg)
    svg = re.sub(r"font-family: '[^;\"]*", "font-family: sans-serif", svg)
    svg = re.sub(r"\b([mp][0-9a-f]{4})[0-9a-f]{6}\b", r"\1", svg).replace("xlink:href", "href")
    # A marker has its stroke of the shape that is used, and its fill of the use.
    svg = re.sub(r'(<use [^>]*) style="(?:fill: ([#\w]+))?[^"]*"/>', r'\1 fill="\2"/>', svg)
    bare = re.compile("<g> ?((?:(?!<g|</g>).)*?)</g>")
    while bare.search(svg):
        svg = bare.sub(r"\1", svg)
    svg = re.sub(
        r'(?:style|d)="[^"]*"', lambda part: re.sub(r"(?<=[;:Mz]) | (?=[z\"])", "", part[0]), svg
    )
    svg = re.sub(r"#(\w)\1(\w)\2(\w)\3\b", r"#\1\2\3", svg)
    svg = re.sub(r' fill=""|;stroke-linecap:square| transform="rotate\(-0 [^"]*"', "", svg)
    return re.sub(r"> *<", ">\n<", svg).strip() + "\n"
