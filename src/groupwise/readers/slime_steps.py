"""slime's two counters: rows of a rollout are numbered by rollouts, those of training by optimiser updates, several a rollout.

It puts both on the rollouts' numbers. It opens no file; slime's dumps are read in `pickles.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

from groupwise.readers.rows import counted

_ROLLOUT = ("rollout/raw_reward", "rollout/rewards", "rollout/response_len/mean")
_NUMBERED = ("rollout/step", "eval/step")


def by_rollouts(rows: Sequence[MutableMapping[str, Any]], key: str) -> tuple[int, str]:
    """Give the rows of slime the number of their rollout as their step.

    Args:
        rows: as they were logged; `key` is set, or taken away where a row belongs to no rollout.
        key: of the step.

    Returns:
        Updates of a rollout and a note; 0 and "" where the rows are not slime's or hold rollout and update together.

    Example:
        >>> rows = [{"rollout/step": 0.0, "rollout/raw_reward": 0.5}, {"train/step": 0.0, "train/loss": 0.1}, {"train/step": 1.0}]
        >>> by_rollouts(rows, "step")[0], [row["step"] for row in rows]
        (2, [0.0, 0.0, 0.0])
    """
    rollouts = [row for row in rows if any(name in row for name in _ROLLOUT)]
    trained = [row for row in rows if _is_update(row)]
    if not rollouts or not trained:
        return 0, ""
    first = {number for row in rollouts if (number := _own(row, key)) is not None}
    updates = {number for row in trained if (number := _update(row, key)) is not None}
    if not first or not updates:
        return 0, ""
    each = _updates_of_a_rollout(first, updates)
    for row in rows:
        number = _update(row, key) if _is_update(row) else _own(row, key)
        if number is None:
            row.pop(key, None)
        else:
            row[key] = number // each if _is_update(row) else number
    what = f"{counted(each, 'optimiser update')} of each rollout"
    return each, f"slime numbers the rows of training by updates: they are put with their rollout, {what}"


def _updates_of_a_rollout(rollouts: set[float], updates: set[float]) -> int:
    """Return how many updates a rollout has: the last of both are of one rollout, or of neighbours where the log was cut off."""
    return max(1, round((max(updates) + 1) / (max(rollouts) + 1)))


def _is_update(row: Mapping[str, Any]) -> bool:
    """Return whether a row is of training alone."""
    return any(name.startswith("train/") for name in row) and not any(name.startswith(("rollout/", "eval/")) for name in row)


def _own(row: Mapping[str, Any], key: str) -> float | None:
    """Return the number of a row of a rollout or an evaluation."""
    return next((row[name] for name in (*_NUMBERED, key) if isinstance(row.get(name), float)), None)


def _update(row: Mapping[str, Any], key: str) -> float | None:
    """Return the number of a row of training."""
    return next((row[name] for name in ("train/step", key) if isinstance(row.get(name), float)), None)
