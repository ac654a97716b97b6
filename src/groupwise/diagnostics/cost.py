"""What a run spent, from its start or from a step on, and what is to come until its planned end:
steps, rollouts, tokens, hours, money.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from groupwise.arrays import Float, Whole, median
from groupwise.diagnostics.judgement import Cost
from groupwise.record.run import RunRecord

_FAR = 10.0  # usual rows that the first may take, which loads and compiles too
NO_CLOCK = "unknown, no seconds: log step_time, or --column seconds=NAME"
NO_GPUS = "unknown without the number of GPUs: give --gpus N beside --price"


def cost_since(record: RunRecord, step: int | None) -> Cost | None:
    """Return what was spent from a step on, its own included, or by the whole run; None where
    there are no rows.
    """
    steps = record.steps["step"]
    if not len(steps):
        return None
    first, last, stride = _span(steps)
    step = first if step is None else step
    tokens, seconds = (_spent(record, name, step) for name in ("tokens", "seconds"))
    return _cost(record, last - step + stride, tokens, seconds, of_steps=last - first + stride)


def cost_to_come(record: RunRecord) -> Cost | None:
    """Return what is to come until the planned last step, at the pace of the newer half of the
    rows; None where none is known.
    """
    steps, planned = record.steps["step"], record.config.value("planned_steps")
    if planned is None or not len(steps) or int(steps[-1]) >= planned:
        return None
    left = planned - int(steps[-1])
    tokens, seconds = (_pace(record, name) for name in ("tokens", "seconds"))
    return _cost(
        record,
        left,
        None if tokens is None else tokens * left,
        None if seconds is None else seconds * left,
    )


def _span(steps: pl.Series) -> tuple[int, int, int]:
    """Return the first and the last step, and the steps between two rows."""
    stride = int(median(np.diff(steps.to_numpy()))) if len(steps) > 1 else 1
    return int(steps[0]), int(steps[-1]), stride


def _cost(
    record: RunRecord, steps: int, tokens: float | None, seconds: float | None, *, of_steps: int = 0
) -> Cost:
    """Return steps with what follows from the settings: rollouts, the hours of all GPUs, and
    their price.
    """
    size, prompts, gpus, price = (
        record.config.value(name)
        for name in ("group_size", "prompts_per_step", "gpus", "gpu_price")
    )
    rollouts = None if size is None or prompts is None else int(size) * int(prompts) * steps
    hours = None if gpus is None or seconds is None else seconds / 3600 * int(gpus)
    money = None if hours is None or price is None else hours * float(price)
    missing = NO_CLOCK if gpus is not None and seconds is None else ""
    missing = NO_GPUS if gpus is None and price is not None else missing
    return Cost(steps, rollouts, seconds, of_steps, tokens, hours, money, missing)


def _spent(record: RunRecord, name: str, step: int) -> float | None:
    """Return by how much a clock went on from a step; it is read as its step ends: the time of a
    row began with the row before.

    That of the first row is the clock's own value, the start of the run included; it is a usual
    row's where the clock is far ahead, as one that began before the log.
    """
    at_step, clock = _known(record, name)
    row = int(np.searchsorted(at_step, step))
    if len(clock) < 2 or row == len(clock):
        return None
    if row:
        return float(clock[-1] - clock[row - 1])
    first, _, stride = _span(record.steps["step"])
    usual = median(np.diff(clock) / np.diff(at_step)) * (int(at_step[0]) - step + stride)
    own = float(clock[0])
    return float(clock[-1]) - own + (own if step <= first and own <= _FAR * usual else usual)


def _pace(record: RunRecord, name: str) -> float | None:
    """Return what a clock gained a step over the newer half of the rows."""
    at_step, clock = (column[-max(2, len(column) // 2) :] for column in _known(record, name))
    return None if len(clock) < 2 else float(clock[-1] - clock[0]) / float(at_step[-1] - at_step[0])


def _known(record: RunRecord, name: str) -> tuple[Whole, Float]:
    """Return the steps at which a clock was read, and what it showed."""
    clock = record.steps[name].to_numpy()
    usable = ~np.isnan(clock)
    return record.steps["step"].to_numpy()[usable], clock[usable]
