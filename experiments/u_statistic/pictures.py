"""What the pictures of this folder share: colours, markers and dashes of every series, and files that come out the same twice.

Colours are Okabe and Ito's; every series has its own marker and dash besides. It draws nothing by itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "img"
BLACK, ORANGE, SKY, GREEN, BLUE, VERMILION, PURPLE = "#000000", "#e69f00", "#56b4e9", "#009e73", "#0072b2", "#d55e00", "#cc79a7"
STYLE: dict[str, tuple[str, str, str]] = {
    "vanilla": (VERMILION, "v", ":"),
    "leave_one_out": (BLUE, "o", "-"),
    "shrinkage": (ORANGE, "^", "--"),
    "oracle": (GREEN, "s", "-"),
    "variance_optimal": (PURPLE, "D", "-."),
    "weighted_leave_one_out": (SKY, "P", ":"),
    "critic": (PURPLE, "D", "-."),
}


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
