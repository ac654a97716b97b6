"""Restarts with a jump, which is held against the largest move of the same kind just before.

Why the run differs is not judged here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from groupwise.arrays import Float, median
from groupwise.diagnostics.facts import Fact
from groupwise.diagnostics.judgement import Finding, Sign, Status, no_sign
from groupwise.diagnostics.signals import Evidence
from groupwise.diagnostics.signs import arrow

RESTART = "restart"
# The readers' notes on a log whose steps drop back, and the recorder's on a run that goes on from a
# checkpoint.
_NOTES = (
    (re.compile(r"the step drops back to ([\d, ]{1,200})\)"), 0, "The run was restarted", False),
    (re.compile(r"resumed after step (\d{1,15})"), 1, "The run was resumed", False),
    # it may be printed by what goes on
    (re.compile(r"an error stands behind step (\d{1,15})"), 1, "The run was resumed", True),
    (
        re.compile(r"1 step logged more than once \(at (\d{1,15})\)"),
        0,
        "A row is repeated, as by a restart,",
        True,
    ),
)
_WATCHED = {
    "reward": "reward",
    "sampler_mismatch": "sampler mismatch",
    "kl": "KL",
    "entropy": "entropy",
    "gradient_norm": "gradient norm",
    "completion_length": "length",
    "loss": "loss",
}
# Medians of five rows before and after; three times the largest such move among the fifty rows
# before is none of the run's own.
_ROWS, _PAST, _FEWEST_BEFORE, _TIMES = 5, 50, 15, 3.0
# A schedule that starts anew falls to a fifth and rises again.
_FALLS, _RISES = 5.0, 3
# A pause takes so many times the usual row. What counts on from row to row, by its name.
_PAUSE = 20.0
_COUNTERS = (
    r"(.*[/_])?((run_?time|timestamp|elapsed(_s|_seconds)?|wall_?time)"
    r"|total_(tokens|samples)|num_tokens|optim[a-z]*[/_]step)"
)
# Gaps of the steps, in a log that is else evenly spaced, each of which may be a restart.
_GAPS = 3


class _Restart(NamedTuple):
    """Where a run may have gone on from a checkpoint."""

    unsure: bool  # whether an error in passing alone says so, and not the log
    step: int
    said: str  # what tells it, as the beginning of a sentence


def check(evidence: Evidence) -> Finding:
    """Look for a restart, and for what jumped at it."""
    restarts = sorted(_restarts(evidence))
    for restart in restarts:
        jumps = tuple(_jumps(evidence, restart.step))
        if jumps:
            words = ", ".join(sign.words for sign in jumps[:3])
            message = f"{restart.said} at step {restart.step:,}, and there {words}."
            facts = (Fact.RESTART_JUMP,)
            return Finding(RESTART, Status.WARNING, message, restart.step, signs=jumps, facts=facts)
    if not restarts or restarts[0].unsure:
        return no_sign(RESTART, "No sign of a restart in mid-run.")
    step = restarts[0].step
    message = f"{restarts[0].said} at step {step:,}, and nothing jumped there."
    return Finding(RESTART, Status.INFO, message, step)


def _restarts(evidence: Evidence) -> Iterator[_Restart]:
    """Yield where the log says that the run was restarted, and where its learning rate
    looks like it.
    """
    for pattern, behind, said, unsure in _NOTES:
        for steps_noted in pattern.findall("\n".join(evidence.record.notes)):
            for step in re.findall(r"\d{1,15}", steps_noted):
                yield _Restart(unsure, int(step) + behind, said)
    steps = evidence.record.steps["step"].to_numpy()
    gaps = np.diff(steps)
    uneven = np.flatnonzero(gaps != median(gaps)) if gaps.size else gaps
    if uneven.size <= _GAPS:
        missing = "Rows are missing, as by a restart,"
        for row in uneven.tolist():
            yield _Restart(unsure=True, step=int(steps[row + 1]), said=missing)
    yield from _by_clocks(evidence)
    rate = evidence.quantity("learning_rate")
    if rate is not None and len(rate) > 2 * _ROWS:
        value = rate.value_T
        fell = np.flatnonzero((value[1:] + rate.resolution) * _FALLS < value[:-1]) + 1
        for row in fell.tolist():
            steps_up = np.diff(value[row : row + 1 + _RISES])
            if len(steps_up) == _RISES and steps_up.min() > 0:
                yield _Restart(
                    unsure=False, step=rate.step_at(row), said="The learning rate starts anew"
                )


def _by_clocks(evidence: Evidence) -> Iterator[_Restart]:
    """Yield where a clock stood still for long, or a counter fell back, if that is rare."""
    for signal in evidence.matching(_COUNTERS):
        took = np.diff(signal.value_T)
        usual = median(took)
        rows = np.flatnonzero((took < 0) | (took > _PAUSE * usual)).tolist()
        if usual > 0 and len(rows) <= _GAPS < took.size:
            for row in rows:
                said = "The log pauses, or a counter resets,"
                yield _Restart(unsure=True, step=signal.step_at(row + 1), said=said)


def _jumps(evidence: Evidence, step: int) -> Iterator[Sign]:
    """Yield the signals that moved at a step by more than they ever did shortly before."""
    for quantity, word in _WATCHED.items():
        signal = evidence.reward if quantity == "reward" else evidence.quantity(quantity)
        if signal is None:
            continue
        row = signal.at(step)
        near = signal.value_T[max(0, row - _PAST) : row + _ROWS]
        if row - max(0, row - _PAST) < _FEWEST_BEFORE or len(signal) - row < _ROWS:
            continue
        # What is positive scatters by factors.
        scaled = np.log(near) if near.min() > 0 else near
        move = median(scaled[-_ROWS:]) - median(scaled[-2 * _ROWS : -_ROWS])
        unit = 2 * signal.resolution / (median(near) if near.min() > 0 else 1.0)
        if abs(move) > max(_TIMES * _largest_move(scaled[:-_ROWS]), unit, 1e-9):
            before = median(near[-2 * _ROWS : -_ROWS])
            since = median(near[-_ROWS:])
            yield Sign(quantity, step, before, since, f"{word} {arrow(before, since)}")


def _largest_move(past_T: Float) -> float:
    """The largest difference of medians of neighbouring five rows."""
    medians = np.median(np.lib.stride_tricks.sliding_window_view(past_T, _ROWS), axis=1)
    return float(np.abs(medians[_ROWS:] - medians[:-_ROWS]).max())
