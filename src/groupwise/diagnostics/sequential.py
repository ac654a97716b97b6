r"""Tests that may look after every row: e-processes, and where a change began.

A factor $f_t \ge 0$ with $E[f_t \mid \text{past}] \le 1$ in health is a fair bet against it; the product from row $j$ on is a
supermartingale, and so is the mixture over all starts

$$E_t = \frac1n\sum_{j \le t}\prod_{s=j}^{t} f_s + \frac{n-t}{n}.$$

By Ville's inequality $P(\exists t: E_t \ge 1/\alpha) \le \alpha$ over the whole run, with rows that depend on each
other as long as the bound on the conditional mean holds. A null rate or a horizon taken from the same log is outside it.
It knows no metric.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from groupwise.curves.e_process import change_evidence

FloatArray = NDArray[np.float64]

# Of one e-process over the whole run, where its null holds: the usual rate and the horizon are read off the log as it stands.
CRITICAL = 0.005
WARNING = 0.02


@dataclass(frozen=True, slots=True)
class Alarm:
    """An e-process that crossed its threshold."""

    row: int  # the first row at which it stood above
    onset: int  # the row from which the evidence counted, by maximum likelihood
    evidence: float  # the largest value
    lasts: bool  # whether it still stood above at the last row


def alarm(log_factor_T: FloatArray, *, rate: float) -> Alarm | None:
    """Look for a change at an unknown row."""
    if not len(log_factor_T):
        return None
    log_evidence = change_evidence(log_factor_T)
    above = np.flatnonzero(log_evidence >= -np.log(rate))
    if not above.size:
        return None
    last = int(above[-1])
    return Alarm(
        int(above[0]), start_of(log_factor_T[: last + 1]), float(np.exp(min(log_evidence.max(), 700.0))), last == len(log_evidence) - 1
    )


def start_of(log_factor_T: FloatArray) -> int:
    """Return the row from which the evidence up to the last row is largest: the maximum-likelihood onset."""
    backwards = np.cumsum(log_factor_T[::-1])
    # Of several the last: rows on which nothing was bet are no part of it.
    return len(log_factor_T) - 1 - int(np.argmax(backwards))


def rare_event_factors(event_T: NDArray[np.bool_], usual: float, changed: float = 0.9) -> FloatArray:
    r"""Log factors against "the event has at most this chance at each row, whatever came before".

    $f = q'/q$ where it happens and $(1-q')/(1-q)$ where not: its mean is at most 1 for every chance up to $q$.
    """
    return np.asarray(np.where(event_T, np.log(changed / usual), np.log((1 - changed) / (1 - usual))), dtype=np.float64)


def shift_factors(score_T: FloatArray, *, drift: float) -> FloatArray:
    r"""Log factors against "the standardised rows have mean at most 0", for normal rows: $\delta z - \delta^2/2$."""
    return np.asarray(drift * score_T - drift**2 / 2)
