"""What the pictures of this folder share: colour, marker and dash of every series.

Colours are Okabe and Ito's; every series has its own marker and dash besides. It draws nothing by
itself.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # common.py

from common import (  # noqa: F401 - scripts take them from here
    BLACK,
    BLUE,
    GREEN,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    Results,
    Row,
    Rows,
    column,
    doublings,
    pyplot,
    save,
    where,
)

STYLE: dict[str, tuple[str, str, str]] = {
    "vanilla": (VERMILION, "v", ":"),
    "leave_one_out": (BLUE, "o", "-"),
    "shrinkage": (ORANGE, "^", "--"),
    "oracle": (GREEN, "s", "-"),
    "variance_optimal": (PURPLE, "D", "-."),
    "weighted_leave_one_out": (SKY, "P", ":"),
    "critic": (PURPLE, "D", "-."),
}
