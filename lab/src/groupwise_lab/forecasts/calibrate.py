"""The fit of the table that stretches the band of a forecast: quantile regression over runs that
have ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from groupwise.arrays import Float
from groupwise.forecasting.calibration import (
    FURTHEST,
    KINDS,
    PROBABILITIES,
    Calibration,
    Kind,
    plain_terms,
    terms_of,
)

# Clusters that weigh as much as the band without calibration: its upper end is made by the few runs
# that took off.
_DOUBT = 25
# Clusters that are believed of the lower end, which no run leaves far behind.
_ENOUGH = 25


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
    many, plain = len(set(clusters)), plain_terms()
    above, below = many / (many + _DOUBT), min(many / _ENOUGH, 1.0)
    trust = np.where(np.array(PROBABILITIES) < 0.5, below, above)[:, None]
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
        fitted = np.array(
            [_fitted(design, error, weight / weight.mean(), p) for p in PROBABILITIES]
        )
        terms[kind] = plain + trust * (fitted - plain)
    return Calibration(terms, len({(case.cluster, case.run) for case in cases}), many)


def _fitted(design_N3: Float, value_N: Float, weight_N: Float, probability: float) -> Float:
    """The terms of one quantile."""
    _, distance, short = design_N3.T
    if probability == 0.5:
        return np.array(
            [0.0, _quantile_regression(distance[:, None], value_N, weight_N, probability)[0], 0.0]
        )
    if probability > 0.5:
        return _quantile_regression(design_N3, value_N, weight_N, probability, sided=1)
    # Where it starts, and where it has come to at the furthest distance: there below the centre.
    far = distance / FURTHEST
    ends = np.stack([1 - far, far, short], axis=1)
    start, end, last = _quantile_regression(ends, value_N, weight_N, probability, sided=1)
    return np.array([start, (end - start) / FURTHEST, last])


def _quantile_regression(
    design_NJ: Float,
    value_N: Float,
    weight_N: Float,
    probability: float,
    *,
    sided: int | None = None,
) -> Float:
    """Least weighted pinball loss; one coefficient may be kept from pointing towards the centre
    (Koenker and Bassett 1978).

    The linear programme is solved by its dual, which has a row a column of the design: its
    multiplier is the coefficient.
    """
    from scipy.optimize import linprog

    away = np.ones(design_NJ.shape[1])
    held = np.arange(away.size) == sided
    away[held] = 1.0 if probability > 0.5 else -1.0
    column = (design_NJ * away).T
    box = np.stack([(probability - 1) * weight_N, probability * weight_N], axis=1)
    none = np.zeros(away.size)
    solution = linprog(
        -value_N,
        A_eq=column[~held],
        b_eq=none[~held],
        A_ub=column[held],
        b_ub=none[held],
        bounds=box,
        method="highs",
    )
    coefficient = none.copy()
    coefficient[~held], coefficient[held] = (
        -solution.eqlin.marginals,
        np.abs(solution.ineqlin.marginals),
    )
    return np.asarray(coefficient * away + 0.0)  # no minus zero
