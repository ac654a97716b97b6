r"""How far runs of before ended from what was foreseen: the table that stretches the band of a forecast, and the fit that makes it.

With centre and spread $S = (q_{95} - q_5)/3.29$ of the foresight, the quantile of level $p$ of what comes is
$\text{centre} + S \sinh z_p$, $z_p = a_p + b_p \ln(t/n) + c_p\, 3/\sqrt n$ for row $t$ foreseen from $n$. The numbers are fitted by
quantile regression of $\operatorname{arsinh}$ of the error over $S$, every cluster of runs weighing the same, and pulled to the band
without calibration the more, the fewer clusters there are. Runs take off more often than they fall, so both ends differ: the upper one
is never nearer with the distance, the lower one may near the centre but not pass it. The median moves with the distance alone. Derived
by us.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any, Literal

import numpy as np
from scipy.special import ndtri

from groupwise.arrays import Float
from groupwise.errors import InvalidArgumentError

Kind = Literal["window", "row"]
KINDS: tuple[Kind, ...] = ("window", "row")
PROBABILITIES = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975, 0.99)
SPREAD = 2 * float(ndtri(0.95))  # the spread is a standard deviation where the foresight is normal
# A run seen to a tenth is as far as public runs tell.
FURTHEST = float(np.log(10))
# Clusters that weigh as much as the band without calibration: its upper end is made by the few runs that took off.
_DOUBT = 25
# Clusters that are believed of the lower end, which no run leaves far behind.
_ENOUGH = 25
# Where nothing bounds a metric the upper tail of short runs has no end: the longest stretch believed, in spreads.
_LONGEST = 6.0
# Terms that no runs make: the hyperbolic sine of more leaves the numbers there are.
_WILDEST = 50.0


@dataclass(frozen=True, slots=True)
class Calibration:
    """How to stretch the foresight of a window's mean and of a row."""

    terms: Mapping[Kind, Float]  # a, b and c of each of PROBABILITIES, shape (P, 3)
    runs: int  # runs it was made from
    clusters: int  # and their clusters, 0 for none: the foresight as it is

    def stretch(self, kind: Kind, probability: float, seen: float, row_S: Float, *, bounded: bool) -> Float:
        """How many spreads above the centre each quantile lies; between the probabilities of the table by their normal quantiles."""
        known = _terms(seen, row_S) @ self.terms[kind].T
        half = PROBABILITIES.index(0.5)
        known[:, :half] = np.minimum(known[:, :half], 0.0)  # no run is sure to rise
        known.sort(axis=1)
        node, wanted = ndtri(PROBABILITIES), float(ndtri(probability))
        # Beyond the table a tail is as long as a normal one.
        inside = np.array([np.interp(wanted, node, row) for row in known])
        z = inside + np.arcsinh(wanted) - np.arcsinh(np.clip(wanted, node[0], node[-1]))
        stretch = np.sinh(z)
        return np.asarray(stretch if bounded else np.minimum(stretch, max(_LONGEST, wanted)))

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as `groupwise calibrate` writes it."""
        terms = {kind: [[float(f"{number:.9g}") for number in row] for row in self.terms[kind]] for kind in KINDS}
        return {"version": 1, "runs": self.runs, "clusters": self.clusters, "probabilities": PROBABILITIES, "terms": terms}


def _terms(seen: float, row_S: Float) -> Float:
    """What the quantiles hang on: a constant, the distance, and how few rows were seen."""
    distance = np.clip(np.log((row_S + 1) / seen), 0, FURTHEST)
    return np.stack([np.ones_like(row_S), distance, np.full_like(row_S, 3 / np.sqrt(seen))], axis=1)


def _plain_terms() -> Float:
    """Terms that leave the foresight as it is."""
    return np.outer(np.arcsinh(ndtri(PROBABILITIES)), [1.0, 0.0, 0.0])


UNCALIBRATED = Calibration({kind: _plain_terms() for kind in KINDS}, 0, 0)


@lru_cache(maxsize=1)
def shipped() -> Calibration:
    """The table of this version, made from public runs."""
    return read_calibration(files("groupwise.forecasting").joinpath("calibration.json").read_text(encoding="utf-8"))


def read_calibration(text: str) -> Calibration:
    """Read a table that `groupwise calibrate` wrote."""
    try:
        data = json.loads(text)
        terms: dict[Kind, Float] = {kind: np.asarray(data["terms"][kind], dtype=float) for kind in KINDS}
        found = Calibration(terms, int(data["runs"]), int(data["clusters"]))
        good = data["version"] == 1 and tuple(data["probabilities"]) == PROBABILITIES
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        good = False
    # Not a number is no less than anything.
    if not good or not all(one.shape == (len(PROBABILITIES), 3) and (np.abs(one) < _WILDEST).all() for one in terms.values()):
        raise InvalidArgumentError("expected a table as groupwise calibrate writes it; got something else: make one with it")
    return found


@dataclass(frozen=True, slots=True)
class Case:
    """How a run went on after a first part, in the units of what was foreseen."""

    cluster: str  # runs that depend on each other
    run: str
    share: float  # of the run that was seen
    seen: float  # rows seen
    row_S: Float  # places foreseen, in rows
    error_S: Mapping[Kind, Float]  # truth minus centre, in spreads


def calibrate(cases: Sequence[Case]) -> Calibration:
    """Fit the table to cases."""
    clusters = [case.cluster for case in cases]
    many, plain = len(set(clusters)), _plain_terms()
    above, below = many / (many + _DOUBT), min(many / _ENOUGH, 1.0)
    trust = np.where(np.array(PROBABILITIES) < 0.5, below, above)[:, None]
    design = np.concatenate([_terms(case.seen, case.row_S) for case in cases])
    weight = np.concatenate([np.full(case.row_S.size, 1 / (clusters.count(case.cluster) * case.row_S.size)) for case in cases])
    terms = {}
    for kind in KINDS:
        error = np.arcsinh(np.concatenate([case.error_S[kind] for case in cases]))
        fitted = np.array([_fitted(design, error, weight / weight.mean(), p) for p in PROBABILITIES])
        terms[kind] = plain + trust * (fitted - plain)
    return Calibration(terms, len({(case.cluster, case.run) for case in cases}), many)


def _fitted(design_N3: Float, value_N: Float, weight_N: Float, probability: float) -> Float:
    """The terms of one quantile."""
    _, distance, short = design_N3.T
    if probability == 0.5:
        return np.array([0.0, _quantile_regression(distance[:, None], value_N, weight_N, probability)[0], 0.0])
    if probability > 0.5:
        return _quantile_regression(design_N3, value_N, weight_N, probability, sided=1)
    # Where it starts, and where it has come to at the furthest distance: there below the centre.
    far = distance / FURTHEST
    ends = np.stack([1 - far, far, short], axis=1)
    start, end, last = _quantile_regression(ends, value_N, weight_N, probability, sided=1)
    return np.array([start, (end - start) / FURTHEST, last])


def _quantile_regression(design_NJ: Float, value_N: Float, weight_N: Float, probability: float, *, sided: int | None = None) -> Float:
    """Least weighted pinball loss; one coefficient may be kept from pointing towards the centre (Koenker and Bassett 1978).

    The linear programme is solved by its dual, which has a row a column of the design: its multiplier is the coefficient.
    """
    from scipy.optimize import linprog

    away = np.ones(design_NJ.shape[1])
    held = np.arange(away.size) == sided
    away[held] = 1.0 if probability > 0.5 else -1.0
    column = (design_NJ * away).T
    box = np.stack([(probability - 1) * weight_N, probability * weight_N], axis=1)
    none = np.zeros(away.size)
    found = linprog(-value_N, A_eq=column[~held], b_eq=none[~held], A_ub=column[held], b_ub=none[held], bounds=box, method="highs")
    coefficient = none.copy()
    coefficient[~held], coefficient[held] = -found.eqlin.marginals, np.abs(found.ineqlin.marginals)
    return np.asarray(coefficient * away + 0.0)  # no minus zero
