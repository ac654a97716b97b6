r"""The e-process of a change at an unknown row: evidence that may be looked at after every row.

A factor $f_t \ge 0$ with $E[f_t \mid \text{past}] \le 1$ as long as nothing changed is a fair bet against that. The product of the
factors from row $j$ on is a supermartingale, and so is the mixture over all starts and over several bets. What a factor
bets on is the caller's; this module knows no metric.
"""

from __future__ import annotations

import numpy as np

from groupwise.arrays import Float


def change_evidence(log_factor_TK: Float) -> Float:
    r"""Logarithm of the e-process of a change at an unknown row, by one bet or the mean of several.

    $M_{tk} = (M_{t-1,k} + 1/n) f_{tk}$, $E_t = \frac1K \sum_k M_{tk} + (n-t)/n$.

    Source: Ville (1939); the mixture over starts as in Shin, Ramdas and Rinaldo (2024), e-detectors; the horizon n is ours.
    """
    n = len(log_factor_TK)
    factors = np.asarray(log_factor_TK, dtype=np.float64).reshape(n, -1) if n else np.empty((0, 1))
    running, out = np.full(factors.shape[1], -np.inf), np.empty(n)
    for t, log_factor in enumerate(factors):
        running = np.logaddexp(running, -np.log(n)) + log_factor
        waiting = np.log((n - t - 1) / n) if t < n - 1 else -np.inf
        out[t] = np.logaddexp(np.logaddexp.reduce(running) - np.log(running.size), waiting)
    return out
