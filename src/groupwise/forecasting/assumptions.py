r"""What a fit assumes of the noise about its curve and of the learning rate, and whether the rows
bear it out.

The size of the noise: the logarithm of the ratio of its variances in two halves has the variance
$\sum (\kappa - 1)/n$, n the rows that correlated ones are worth. Its memory: AR(1) beside white
noise has no partial autocorrelation below 0 at lag 2, where an estimate varies by $1/n$.
"""

from __future__ import annotations

import math

import numpy as np

from groupwise.arrays import Float
from groupwise.forecasting.noise import correlations
from groupwise.plain import HOLDS, UNKNOWN, VIOLATED, Assumption

# Standard errors: of steady noise .5 to 4 % of checks are wrong from 50 rows on, with the tails of
# Student's t of 3 up to 6 % at 20 rows (lab/docs/theory/fit.md).
_ALARM = 3.0
_FEWEST_ROWS = 20
_STEADY = 1.1  # largest over least learning rate


def steady_noise(residual_T: Float, time_T: Float) -> Assumption:
    name, rows = "noise of one size", residual_T.size
    if rows < _FEWEST_ROWS or not residual_T.any():
        return _unknown(name, f"{_FEWEST_ROWS} rows could tell whether the noise stays as large.")
    middle = rows // 2
    halves = residual_T[:middle], residual_T[middle:]
    spreads = [math.sqrt(float((half**2).mean())) for half in halves]
    if min(spreads) == 0:
        return _unknown(name, "Half of the rows lie on the curve, as no noise does.")
    unit = np.concatenate([half / spread for half, spread in zip(halves, spreads, strict=True)])
    first = correlations(unit)[0]
    worth = middle * (1 - first**2) / (1 + first**2)
    error = math.sqrt(2 * max(float((unit**4).mean()) - 1, 1.0) / worth)
    ratio = 2 * math.log(spreads[1] / spreads[0])
    before, after = (f"{spread:.3g}" for spread in spreads)
    measured = (
        f"rows scatter by {before} about the curve before {time_T[middle]:.6g}, {after} after"
    )
    if abs(ratio) <= _ALARM * error:
        return Assumption(name, HOLDS, f"The noise stays as large: {measured}.")
    return Assumption(
        name,
        VIOLATED,
        f"The noise changes its size: {measured}. Give the variance of each value, fit(time_T, "
        "value_T, variance_T=...), or fit the rows of one size alone.",
    )


def noise_of_one_memory(residual_T: Float) -> Assumption:
    name, rows = "noise that forgets steadily", residual_T.size
    if rows < _FEWEST_ROWS or not residual_T.any():
        return _unknown(name, f"{_FEWEST_ROWS} rows could tell how the noise forgets.")
    first, second = correlations(residual_T)
    partial = (second - first**2) / (1 - first**2)
    measured = f"the partial autocorrelation of the residuals at lag 2 is {partial:.2g}"
    if partial >= -_ALARM / math.sqrt(rows):
        return Assumption(name, HOLDS, f"The noise does not swing: {measured}.")
    return Assumption(
        name,
        VIOLATED,
        f"The noise swings, as AR(2) noise does: {measured}. The intervals are too long rather "
        "than too short. Fit every second row: fit(time_T[::2], value_T[::2]).",
    )


def constant_rate(rate_T: Float | None) -> Assumption:
    name = "constant learning rate"
    if rate_T is None or not np.isfinite(rate_T).all() or not rate_T.size:
        sentence = "The learning rate of each row could tell: check_assumptions(rate_T)."
        return _unknown(name, sentence)
    least, most = float(rate_T.min()), float(rate_T.max())
    measured = f"it lies between {least:.3g} and {most:.3g}"
    if most <= _STEADY * least:
        sentence = f"The learning rate is constant: {measured}."
        return Assumption(name, HOLDS, sentence)
    return Assumption(
        name,
        VIOLATED,
        f"The learning rate changes: {measured}. Fit in the time that it sums to: "
        "fit(numpy.cumsum(rate_T) / rate_T.max(), value_T).",
    )


def _unknown(name: str, sentence: str) -> Assumption:
    return Assumption(name, UNKNOWN, sentence)
