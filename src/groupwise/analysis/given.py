"""A record of numbers that a user gave instead of a log."""

from __future__ import annotations

from typing import Any

import numpy as np

from groupwise.errors import InvalidArgumentError
from groupwise.record.run import RunRecord, steps_table


def record_of_numbers(numbers: Any, metric: str, name: str) -> RunRecord:
    """Return a record of the values of a metric, at steps 1, 2, ..., or of two rows, steps and values."""
    try:
        value = np.asarray(numbers, dtype=float)
    except (TypeError, ValueError):
        raise InvalidArgumentError(f"expected a run, a path or numbers, got {type(numbers).__name__}: give one of them") from None
    if value.ndim == 1:
        value = np.stack([np.arange(1.0, value.size + 1), value])
    if value.ndim != 2 or len(value) != 2:
        raise InvalidArgumentError(f"expected values, or steps and values, got an array of shape {value.shape}: give one or two rows")
    step = value[0]
    if not (np.isfinite(step) & (np.abs(step) < 2**53) & (step == np.round(step))).all():
        raise InvalidArgumentError("expected whole steps, got others: give the steps of the log, and fit(times, values) for another clock")
    record = RunRecord(name, steps_table(step.astype(int).tolist(), {metric: value[1]}))
    record.validate()
    return record
