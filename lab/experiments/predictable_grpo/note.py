"""What the scripts of this folder share: the bandit of the note, its options, and results.

Two arms with rewards 0 and 1, reference policy (.7, .3), KL weight .5: its fixed point is p* = .76
and its stiffness K = .182398. It runs nothing by itself.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # common.py

import common
import numpy as np
from common import (  # noqa: F401
    Results,
    Row,
    Rows,
    column,
    options,
    print_table,
    where,
)

from groupwise_lab.simulate.softmax_bandit import Bandit, bandit

RESULTS = common.results_of(__file__)


def note_bandit() -> Bandit:
    """The bandit of the theory note."""
    return bandit([0, 1], reference_A=[0.7, 0.3], kl_weight=0.5)


def logits_at(probability: float) -> np.ndarray:
    """Logits of two arms with this probability of the better one."""
    return np.array([0.0, np.log(probability / (1 - probability))])


def short(value: float) -> str:
    """Two digits, and whole numbers from ten on."""
    return f"{value:.0f}" if abs(value) >= 10 else f"{value:.2g}"
