"""Columns that count steps: one table for every reader, and which of them tells the step of a row.

W&B's own `_step` counts calls of its `log`, several a step of training: it is taken only where no other column counts, or
where it never differs from one that does. It opens no file and merges no rows.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from groupwise.readers.rows import RowStore, plain

Array = NDArray[np.float64]

CALLS = "_step"  # W&B's count of calls
# In the order in which they are preferred; the trainers' own before what only a loop of one's own would write.
STEP_KEYS = (
    "step", "train/global_step", "training/global_step", "trainer/global_step", "global_step", "rollout/step", "train/step",
    "training_step", "train_step", "grpo_step", "progress/step", "global_step/max_steps", "steps", "iteration", "iter", "update",
    "optimizer_step", CALLS,
)  # fmt: skip
_COUNTER = re.compile(r"(?:train|training|trainer|rollouts?|eval|evaluation|val|valid|validation|test|progress)/_?(?:global_)?steps?|_step")


def is_counter(key: str) -> bool:
    """Return whether a key counts steps and measures nothing."""
    return _COUNTER.fullmatch(plain(key)) is not None


def step_column(store: RowStore) -> tuple[str, Array | None, str]:
    """Return the column that tells the step of each row."""
    named: dict[str, str] = {}
    for key in store.names():
        named.setdefault(plain(key), key)
    present = [named[name] for name in STEP_KEYS if name in named]
    if CALLS in named and len(present) > 1:
        return _beside_calls(store, [key for key in present if key != named[CALLS]], named[CALLS])
    for counted_in in (_whole_values, _increasing_values):
        best = max(present, key=lambda key: counted_in(store.sparse(key)[1]), default="")
        if best and counted_in(store.sparse(best)[1]) * 2 >= store.count:
            return best, store.dense(best), ""
    return "", None, ""


def _beside_calls(store: RowStore, keys: list[str], calls: str) -> tuple[str, Array, str]:
    """Return the trainer's own counter in a history of W&B, each row without it counted with the next that has it."""
    most = max(_whole_values(store.sparse(key)[1]) for key in keys)
    best = next((key for key in keys if most and 2 * _whole_values(store.sparse(key)[1]) >= most), "")
    own = store.dense(calls)
    if not best:
        return calls, own, ""
    step = store.dense(best)
    both = np.isfinite(step) & np.isfinite(own)
    if both.sum() > 1 and (step[both] == own[both]).all():  # as where the trainer gives W&B its own step
        return best, np.where(np.isfinite(step), step, own), ""
    carried = _carried_back(step)
    return best, carried, f"the step of a row is its {best}, or that of the row after it"


def _carried_back(step: Array) -> Array:
    """Return the steps, each missing one that of the next row that has it: what is timed within a step is logged before it."""
    place = np.where(np.isfinite(step), np.arange(len(step)), len(step))
    following = np.minimum.accumulate(place[::-1])[::-1]
    return np.append(step, np.nan)[following]


def _whole_values(values: Array) -> int:
    """Return how many values are whole numbers."""
    return int((np.isfinite(values) & (values == np.floor(values))).sum())


def _increasing_values(values: Array) -> int:
    """Return how many values there are where they increase but for a few restarts, as fractional steps do; else 0."""
    finite = values[np.isfinite(values)]
    return len(finite) if len(finite) > 1 and (np.diff(finite) <= 0).mean() <= 0.2 else 0
