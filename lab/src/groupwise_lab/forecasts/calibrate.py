"""The fit of the table that stretches the band of a forecast: quantile regression over runs that
have ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.special import ndtri

from groupwise.arrays import Float
from groupwise.forecasting.forecast import KINDS, UPPER, BandKind, Calibration, terms_of
from groupwise.parsing import JsonObject
from groupwise.plain import frozen

# Clusters that weigh as much as the band without calibration: its upper end is made by the few runs
# that took off.
_DOUBT = 25


_PLAIN = np.outer(np.arcsinh(ndtri(UPPER)), [1.0, 0.0, 0.0])
UNCALIBRATED = Calibration(dict.fromkeys(KINDS, _PLAIN), 0, 0)
"""The table that leaves the foresight as it is."""


def written(table: Calibration) -> JsonObject:
    """A table as plain data, as `groupwise-lab calibrate` writes it."""
    terms = {
        kind: [[float(f"{number:.9g}") for number in row] for row in table.terms[kind]]
        for kind in KINDS
    }
    return {
        "version": 2,
        "runs": table.runs,
        "clusters": table.clusters,
        "probabilities": UPPER,
        "terms": terms,
    }


@frozen
class Continuation:
    """How a run went on after a first part, in the units of what was foreseen."""

    cluster: str  # runs that depend on each other
    run: str
    share: float  # of the run that was seen
    seen: float  # rows seen
    row_S: Float  # places foreseen, in rows
    error_S: Mapping[BandKind, Float]  # truth minus centre, in spreads


def calibrate(cases: Sequence[Continuation]) -> Calibration:
    """Fit the table to cases."""
    clusters = [case.cluster for case in cases]
    many, plain = len(set(clusters)), _PLAIN
    trust = many / (many + _DOUBT)
    design = np.concatenate([terms_of(case.seen, case.row_S) for case in cases])
    weight = np.concatenate(
        [
            np.full(case.row_S.size, 1 / (clusters.count(case.cluster) * case.row_S.size))
            for case in cases
        ]
    )
    terms = {}
    for kind in KINDS:
        error = np.arcsinh(np.concatenate([case.error_S[kind] for case in cases]))
        fitted = np.array([_fitted(design, error, weight / weight.mean(), p) for p in UPPER])
        terms[kind] = plain + trust * (fitted - plain)
    return Calibration(terms, len({(case.cluster, case.run) for case in cases}), many)


def _fitted(design_N3: Float, value_N: Float, weight_N: Float, probability: float) -> Float:
    """The terms of one quantile; the median has one of the distance alone."""
    free = design_N3[:, 1:2] if probability == 0.5 else design_N3
    terms = _quantile_regression(free, value_N, weight_N, probability)
    return np.array([0.0, terms[0], 0.0]) if probability == 0.5 else terms


def _quantile_regression(
    design_NJ: Float, value_N: Float, weight_N: Float, probability: float
) -> Float:
    """Least weighted pinball loss; of three coefficients the second is not negative (Koenker and
    Bassett 1978).

    The linear programme is solved by its dual, which has a row a column of the design: its
    multiplier is the coefficient.
    """
    from scipy.optimize import linprog

    column = design_NJ.T
    held = np.arange(len(column)) == (1 if len(column) > 1 else -1)
    box = np.stack([(probability - 1) * weight_N, probability * weight_N], axis=1)
    solution = linprog(
        -value_N,
        A_eq=column[~held],
        b_eq=np.zeros((~held).sum()),
        A_ub=column[held],
        b_ub=np.zeros(held.sum()),
        bounds=box,
        method="highs",
    )
    coefficient = np.zeros(len(column))
    coefficient[~held], coefficient[held] = (
        -solution.eqlin.marginals,
        np.abs(solution.ineqlin.marginals),
    )
    return np.asarray(coefficient + 0.0)  # no minus zero
