r"""How far runs of before ended above what was foreseen: the table that stretches the upper part of
the band of a forecast.

With centre and spread $S = (q_{95} - q_5)/3.29$ of the foresight, the quantile of level $p \ge .5$
of what comes is $\text{centre} + S \sinh z_p$, $z_p = a_p + b_p \ln(t/n) + c_p\, 3/\sqrt n$ for row
$t$ foreseen from $n$. The numbers are fitted by quantile regression of $\operatorname{arsinh}$ of
the error over $S$, every cluster of runs weighing the same, and pulled to the band without
calibration the more, the fewer clusters there are. Runs take off more often than they fall: the
upper end is never nearer with the distance, and the median moves with the distance alone. The lower
end has no table: no run is sure to hold what it has, and a mean that wanders says how far it may
fall. Derived by us.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Literal

import numpy as np
from scipy.special import ndtri

from groupwise.arrays import Float
from groupwise.errors import InvalidArgumentError
from groupwise.parsing import parse_json
from groupwise.plain import frozen

Kind = Literal["window", "row"]
KINDS: tuple[Kind, ...] = ("window", "row")
PROBABILITIES = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975, 0.99)
UPPER = PROBABILITIES[5:]  # those of the table
SPREAD = 2 * float(ndtri(0.95))  # the spread is a standard deviation where the foresight is normal
# A run seen to a tenth is as far as public runs tell.
FURTHEST = float(np.log(10))
# Terms that no runs make: the hyperbolic sine of more leaves the numbers there are.
_WILDEST = 50.0


@frozen
class Calibration:
    """How to stretch the foresight of a window's mean and of a row."""

    terms: Mapping[Kind, Float]  # a, b and c of each of UPPER, shape (P, 3)
    runs: int  # runs it was made from
    clusters: int  # and their clusters, 0 for none: the foresight as it is

    def stretch(self, kind: Kind, probability: float, seen: float, row_S: Float) -> Float:
        """How many spreads above the centre a quantile from the median on lies; between the
        probabilities of the table by their normal quantiles.
        """
        terms = np.sort(terms_of(seen, row_S) @ self.terms[kind].T, axis=1)
        node, wanted = ndtri(UPPER), float(ndtri(probability))
        # Beyond the table a tail is as long as a normal one.
        beyond = np.arcsinh(wanted) - np.arcsinh(min(wanted, node[-1]))
        inside = np.array([np.interp(wanted, node, row) for row in terms])
        return np.asarray(np.sinh(inside + beyond))


def terms_of(seen: float, row_S: Float) -> Float:
    """What the quantiles hang on: a constant, the distance, and how few rows were seen."""
    distance = np.clip(np.log((row_S + 1) / seen), 0, FURTHEST)
    return np.stack([np.ones_like(row_S), distance, np.full_like(row_S, 3 / np.sqrt(seen))], axis=1)


@lru_cache(maxsize=1)
def shipped() -> Calibration:
    """The table of this version, made from public runs."""
    return read_calibration(
        files("groupwise.forecasting").joinpath("calibration.json").read_text(encoding="utf-8")
    )


def read_calibration(text: str) -> Calibration:
    """Read a table that `groupwise-lab calibrate` wrote."""
    try:
        data = parse_json(text)
        terms: dict[Kind, Float] = {
            kind: np.asarray(data["terms"][kind], dtype=float) for kind in KINDS
        }
        table = Calibration(terms, int(data["runs"]), int(data["clusters"]))
        good = data["version"] == 2 and tuple(data["probabilities"]) == UPPER
    except (ValueError, TypeError, KeyError, OverflowError):
        good = False
    # Not a number is no less than anything.
    if not good or not all(
        term.shape == (len(UPPER), 3) and (np.abs(term) < _WILDEST).all() for term in terms.values()
    ):
        raise InvalidArgumentError(
            "expected a table as groupwise-lab calibrate writes it; got something else: make one "
            "with it"
        )
    return table
