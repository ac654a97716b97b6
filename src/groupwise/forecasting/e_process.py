r"""The e-process of a change at an unknown row: evidence that may be looked at after every row.

A factor $f_t \ge 0$ with $E[f_t \mid \text{past}] \le 1$ as long as nothing changed is a fair bet
against that. The product of the factors from row $j$ on is a supermartingale, and so is the mixture
over all starts and over several bets. What a factor bets on is the caller's; this module knows no
metric.
"""

from __future__ import annotations

import numpy as np

from groupwise.arrays import Float


def change_evidence(log_factor_TK: Float) -> Float:
    r"""Logarithm of the e-process of a change at an unknown row, by one bet or the mean of several.

    $M_{tk} = (M_{t-1,k} + 1/n) f_{tk}$, $E_t = \frac1K \sum_k M_{tk} + (n-t)/n$.

    Source: Ville (1939); the mixture over starts as in Shin, Ramdas and Rinaldo (2024),
    e-detectors; the horizon n is ours.
    """
    n = len(log_factor_TK)
    if not n:
        return np.empty(0)
    factors = np.asarray(log_factor_TK, dtype=float).reshape(n, -1)
    if np.isneginf(factors).any():
        running = _row_by_row(factors)
    else:
        # M_t = (1/n) sum_j exp(S_t - S_{j-1}) with S the sums of the log factors: one pass for all
        # rows.
        total = np.cumsum(factors, axis=0)
        before = np.vstack([np.zeros(factors.shape[1]), total[:-1]])
        running = total + np.logaddexp.accumulate(-before, axis=0) - np.log(n)
    mixed = np.logaddexp.reduce(running, axis=1) - np.log(factors.shape[1])
    with np.errstate(divide="ignore"):
        waiting = np.log(np.arange(n - 1, -1, -1) / n)
    return np.asarray(np.logaddexp(mixed, waiting))


def _row_by_row(factors: Float) -> Float:
    """The logarithm of M after each row, where a factor of 0 ends what was won before it."""
    running, out = np.full(factors.shape[1], -np.inf), np.empty_like(factors)
    for t, log_factor in enumerate(factors):
        running = np.logaddexp(running, -np.log(len(factors))) + log_factor
        out[t] = running
    return out
