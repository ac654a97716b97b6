"""Signals that carry nothing: a reward that is one number in all rows, and numbers that are not finite to the end of the log.

Two findings that the checks of the verifier and of the dynamics report first. Why the reward is one number is not told here: a verifier
that grades everything alike and a task that nobody solves look the same in a log.
"""

from __future__ import annotations

import numpy as np

from groupwise.diagnostics.findings import Finding, Severity
from groupwise.diagnostics.signals import Evidence
from groupwise.intervals import Interval, wilson

# Rows without a number at the end of a log that make a divergence: three, and 3 % of the log.
_FEWEST, _SHARE = 3, 0.03
# A constant this near to the top may be rounding of a run that is done.
_TOP = 0.95
CONSTANT = "constant throughout"


def constant_reward(evidence: Evidence, check: str) -> Finding | None:
    """Report a reward that never told anything apart, unless it stands at its known top."""
    reward = evidence.reward
    assert reward is not None
    value = reward.value_T
    level = float(value[0])
    if float(np.ptp(value)) > 1e-9 * max(1.0, abs(level)):
        return None
    if reward.bounds is not None and level >= reward.bounds[0] + _TOP * (reward.bounds[1] - reward.bounds[0]):
        return None
    severity: Severity = "critical" if level <= 0 or reward.bounds is not None else "warning"
    told = "" if reward.bounds is not None or level <= 0 else "; its range is not known, so that it may be the top"
    spread = evidence.groups.spread
    none = bool(spread.known and np.nanmax(np.abs(spread.value_T)) == 0.0)
    within = ", and no group has a spread" if none else ""
    advice = (
        "Grade some completions by hand. If right ones get this reward the verifier is at fault; if all are wrong the task is too hard: "
        "take easier prompts or a larger group."
    )
    message = f"The reward is {level:.3g} in all {len(reward)} rows{within}: nothing can be learnt from it{told}."
    return Finding(check, severity, None, Interval(level, level, level), level, message, advice, {"drop": CONSTANT}, what="reward")


def not_finite(evidence: Evidence, check: str) -> Finding | None:
    """Report a reward, loss or gradient norm that is missing, NaN or infinite from a row on while the log goes on."""
    table, record = evidence.record.steps, evidence.record
    n = len(table)
    columns = {name: [m.column for m in record.meanings if m.quantity == name] for name in ("reward", "loss", "gradient_norm")}
    columns["reward"] = columns["reward"] or [column for column in ("reward",) if column in table.columns]
    goes_on = [m.column for m in record.meanings if m.quantity in _GOING]
    lost: dict[str, int] = {}
    for name, keys in columns.items():
        if not keys:
            continue
        finite = np.any([np.isfinite(table[key].to_numpy().astype(float)) for key in keys], axis=0)
        rows = np.flatnonzero(finite)
        first = int(rows[-1]) + 1 if rows.size else n
        tail = n - first
        if tail < max(_FEWEST, _SHARE * n) or finite[:first].mean() < 0.9:
            continue
        # A table cannot tell NaN from missing: other metrics of training must still be there.
        infinite = any(bool(np.isinf(table[key].to_numpy().astype(float)[first:]).any()) for key in keys)
        if infinite or any(
            float(np.isfinite(table[key].to_numpy().astype(float)[first:]).mean()) > 0.5
            for key in [*goes_on, *(other for others in columns.values() for other in others if others is not keys)]
        ):
            lost[name] = first
    if not lost:
        return None
    first = min(lost.values())
    step = int(table["step"][first])
    named = " and ".join(name.replace("_", " ") for name in lost)
    message = f"Since step {step:,} the log has no finite {named}, in all {n - first} rows to its end: the numbers diverged."
    advice = (
        "Go back to a checkpoint before this step. Lower the learning rate, clip the gradient norm, and look for a division by nothing in "
        "the loss: an empty mask, or a group without a spread."
    )
    severity: Severity = "critical" if "reward" in lost or len(lost) > 1 else "warning"
    return Finding(
        check,
        severity,
        step,
        wilson(n - first, n - first),
        0.0,
        message,
        advice,
        {"numbers": "not finite"},
        what="share of the rows since that are not finite",
    )


_GOING = ("learning_rate", "completion_length", "truncated_share", "entropy", "kl")
