"""Where a reward begins to count: the level that stands for nothing.

A height is over a level. That is 0 for a reward that is never negative; of another it has to be found: the lowest grade where that is
known, what the run began with where it clearly gained, else two standard deviations of a group's rewards below the top. It judges no fall.
"""

from __future__ import annotations

import numpy as np

from groupwise.diagnostics.grades import lowest_grade
from groupwise.diagnostics.signals import Evidence, Signal

# Standard deviations of the rewards below the top at which a height of unknown origin begins; right and wrong at even odds are one apart.
_SPREADS = 2.0
# The spread where none is logged, in scatters of a row: a mean of some 400 rollouts scatters by a twentieth of their spread.
_ROOT_OF_BATCH = 20.0
# A gain of less than half a standard deviation of the rewards makes no height of its own.
_CLEAR_GAIN = 0.5
# Of a two-sided 95 % interval.
_LUCK = 1.96


def floor_of(signal: Signal, *, spread: float = 0.0, lowest: float | None = None) -> float:
    """Return the level of a reward that counts as nothing."""
    value = signal.value_T
    if float(value.min()) >= 0:
        return 0.0
    if lowest is None and signal.bounds is not None:
        lowest = signal.bounds[0]
    if lowest is not None:
        return lowest
    few = max(3, len(signal) // 15)
    smooth = np.convolve(value, np.ones(few) / few, "valid") if len(signal) >= few else value
    top = float(smooth.max()) - _LUCK * signal.scatter / float(np.sqrt(few))
    spread = spread if spread > 0 else _ROOT_OF_BATCH * signal.scatter
    gain = top - float(smooth[0])
    return float(smooth[0]) if gain >= max(_CLEAR_GAIN * spread, _SPREADS * signal.scatter) else top - _SPREADS * spread


def reward_floor(evidence: Evidence, signal: Signal) -> float:
    """Return the level of the training reward that counts as nothing, by all that the log says of its rewards."""
    track = evidence.groups.spread
    known = np.abs(track.value_T[np.isfinite(track.value_T)]) if track.known else np.zeros(0)
    early = known[: max(len(known) // 4, 1)]
    return floor_of(signal, spread=float(np.median(early)) if early.size else 0.0, lowest=lowest_grade(evidence.record))
