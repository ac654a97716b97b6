"""What the scripts of this folder share: the bandit of the note, tables, CSV beside the script, and pictures that come out the same twice.

Two arms with rewards 0 and 1, reference policy (.7, .3), KL weight .5: its fixed point is p* = .76 and its stiffness K = .182398.
It runs nothing by itself.
"""

from __future__ import annotations

import argparse
import csv
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from groupwise.simulate.bandit_settings import Bandit, bandit

HERE = Path(__file__).resolve().parent
PICTURES = HERE.parents[1] / "docs" / "img"
WORKERS = 1
# Okabe and Ito: told apart by colour-blind eyes; the order of their greys differs too, and every series has its own dash or marker.
BLACK, ORANGE, SKY, GREEN, BLUE, VERMILION, PURPLE = "#000000", "#e69f00", "#56b4e9", "#009e73", "#0072b2", "#d55e00", "#cc79a7"
LAG_STYLE: dict[str, tuple[str, str, str]] = {
    "none": (GREEN, "s", "-"),
    "refresh": (BLUE, "o", "-"),
    "fixed": (ORANGE, "^", "-"),
    "async": (VERMILION, "v", "-"),
}


def note_bandit() -> Bandit:
    """The bandit of the theory note."""
    return bandit([0, 1], reference_A=[0.7, 0.3], kl_weight=0.5)


def logits_at(probability: float) -> np.ndarray:
    """Logits of two arms with this probability of the better one."""
    return np.array([0.0, np.log(probability / (1 - probability))])


def options(text: str | None, **numbers: int) -> argparse.Namespace:
    """--quick, --tables, --seed, and whole numbers with defaults."""
    parser = argparse.ArgumentParser(description=(text or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="smallest run that exercises everything; writes no file")
    parser.add_argument("--tables", action="store_true", help="print the tables of the CSV files beside the script; runs nothing")
    parser.add_argument("--seed", type=int, default=2026)
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    return parser.parse_args()


def write_csv(name: str, rows: Sequence[dict[str, Any]]) -> None:
    """Write rows beside the scripts, with nine digits."""
    with (HERE / name).open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({key: f"{value:.9g}" if isinstance(value, float) else value for key, value in row.items()})


def read_csv(name: str) -> list[dict[str, Any]]:
    """Read what `write_csv` wrote."""
    with (HERE / name).open(newline="", encoding="utf-8") as file:
        return [{key: _number(text) for key, text in row.items()} for row in csv.DictReader(file)]


def _number(text: str) -> Any:
    """A whole number, a number, or the text itself."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def short(value: float) -> str:
    """Two digits, and whole numbers from ten on."""
    return f"{value:.0f}" if abs(value) >= 10 else f"{value:.2g}"


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a Markdown table."""
    print(f"\n{title}\n\n| {' | '.join(header)} |\n{'|---' * len(header)}|")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def pyplot() -> Any:
    """Matplotlib's pyplot, set up so that the same numbers give the same file."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams |= {"svg.hashsalt": "groupwise", "svg.fonttype": "none", "font.size": 11, "axes.titlesize": 11, "legend.fontsize": 10}
    mpl.rcParams |= {"axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False, "font.family": "sans-serif"}
    import matplotlib.pyplot as plt

    return plt


def save(figure: Any, name: str) -> None:
    """Write a picture without its date."""
    figure.savefig(PICTURES / name, metadata={"Date": None})
    pyplot().close(figure)
