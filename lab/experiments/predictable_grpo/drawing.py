"""What the scripts of this folder share: the bandit of the note, tables, CSV beside the script, and
pictures that come out the same twice.

Two arms with rewards 0 and 1, reference policy (.7, .3), KL weight .5: its fixed point is p* = .76
and its stiffness K = .182398. It runs nothing by itself.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))  # common.py

import common
import numpy as np
from common import BLACK, BLUE, GREEN, ORANGE, VERMILION, print_table, pyplot, save, written  # noqa: F401 - scripts take them from here

from groupwise_lab.simulate.softmax_bandit import Bandit, bandit

HERE = Path(__file__).resolve().parent
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
    return common.seeded_options(
        text, "print the tables of the CSV files beside the script; runs nothing", numbers
    )


def write_csv(name: str, rows: Sequence[dict[str, Any]]) -> None:
    """Write rows beside the scripts, with nine digits."""
    common.write_csv(HERE / name, rows)


def read_csv(name: str) -> common.Rows:
    """Read what `write_csv` wrote."""
    return common.read_csv(HERE / name)


def short(value: float) -> str:
    """Two digits, and whole numbers from ten on."""
    return f"{value:.0f}" if abs(value) >= 10 else f"{value:.2g}"
