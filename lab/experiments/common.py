"""What the scripts of all folders share: options, tables, CSV files that are read as they were
written, colours, and one style of picture.

A module of a folder that needs it puts this folder on the path first. It knows no experiment and
runs nothing.
"""

from __future__ import annotations

import argparse
import csv
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

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
_ALWAYS = {
    "svg.hashsalt": "groupwise",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}
_STYLE = {
    "svg.fonttype": "none",
    "font.size": 11,
    "axes.titlesize": 11,
    "legend.fontsize": 10,
    "font.family": "sans-serif",
}

Rows = list[dict[str, Any]]


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


def seeded_options(text: str | None, tables: str, numbers: Mapping[str, int]) -> argparse.Namespace:
    """--quick, --tables, --seed, and whole numbers with defaults."""
    made = parser(text, tables)
    made.add_argument("--seed", type=int, default=2026)
    for name, default in numbers.items():
        made.add_argument(f"--{name}", type=int, default=default)
    return made.parse_args()


def written(row: Mapping[str, Any], digits: int = 9) -> dict[str, Any]:
    """A row as a CSV file has it."""
    return {
        key: f"{value:.{digits}g}" if isinstance(value, float) else value
        for key, value in row.items()
    }


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]], digits: int = 9) -> None:
    """Write rows; the folder is made where there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(written(row, digits) for row in rows)


def read_csv(path: Path) -> Rows:
    """Read what `write_csv` wrote; numbers are numbers again."""
    with path.open(newline="", encoding="utf-8") as file:
        return [{key: _value(text) for key, text in row.items()} for row in csv.DictReader(file)]


def _value(text: str) -> Any:
    """A whole number, a number, or the text itself."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def print_table(
    title: str, header: Sequence[str], rows: Sequence[Sequence[str]], *, rule: str = "---"
) -> None:
    """Print a Markdown table; the rule stands under each heading."""
    print(f"\n{title}\n\n| {' | '.join(header)} |\n{f'|{rule}' * len(header)}|")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def pyplot(style: Mapping[str, Any] | None = None) -> Any:
    """Matplotlib's pyplot in this style or another, set up so that the same numbers give the
    same file.
    """
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams |= {**_ALWAYS, **(_STYLE if style is None else style)}
    import matplotlib.pyplot as plt

    return plt


def save(figure: Any, name: str) -> None:
    """Write a picture without its date."""
    import matplotlib.pyplot as plt

    figure.savefig(PICTURES / name, metadata={"Date": None})
    plt.close(figure)
