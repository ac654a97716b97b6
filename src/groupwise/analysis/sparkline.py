"""The reward of a run in a few heights, for one line of text: means of neighbouring rows against the run's own top."""

from __future__ import annotations

import math

import numpy as np

from groupwise.diagnostics.signals import Evidence
from groupwise.record.run import RunRecord

CELLS = 40


def reward_heights(record: RunRecord, *, cells: int = CELLS) -> tuple[float | None, ...]:
    """Return means of neighbouring rows of the reward, from 0 (its lowest, or 0 where that is lower) to 1 (its highest, or 0).

    The reward is the one that is judged. A run at one level keeps its height instead of its noise. None stands where no row of a cell has
    a finite reward; nothing is returned where the log has none at all.
    """
    reward = Evidence(record).reward
    if reward is None or not len(reward):
        return ()
    value_T = reward.value_T
    step_T = record.steps["step"].to_numpy()
    if 2 * len(reward) >= step_T.size:  # a reward of most rows: those without one are a gap, as where numbers are no longer finite
        value_T = np.full(step_T.size, math.nan)
        value_T[np.searchsorted(step_T, reward.step_T)] = reward.value_T
    parts = [part[np.isfinite(part)] for part in np.array_split(value_T, min(cells, value_T.size))]
    means = [float(part.mean()) if part.size else None for part in parts]
    known = [mean for mean in means if mean is not None]
    low, high = min(0.0, *known), max(0.0, *known)
    span = high - low
    return tuple(None if mean is None else (mean - low) / span if span > 0 else 0.0 for mean in means)
