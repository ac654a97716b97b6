"""slime's two counters: rows of a rollout are numbered by rollouts, those of training by optimiser updates, several a rollout.

It puts both on the rollouts' numbers. It opens no file; slime's dumps are read in `pickles.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groupwise.readers.rows import RowStore, counted

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

_ROLLOUT = ("rollout/raw_reward", "rollout/rewards", "rollout/response_len/mean")
_NUMBERED = ("rollout/step", "eval/step")
_NO_UPDATE = ("rollout/", "eval/")


def rollout_numbers(store: RowStore) -> tuple[int, Array | None, str]:
    """Return the rollout of each row of a log of slime that tells it by slime's own counters."""
    names = store.names()
    if not {"rollout/step", "train/step"} & set(names):
        return 0, None, ""
    rollouts = _holding(store, [name for name in names if name in _ROLLOUT])
    others = _holding(store, [name for name in names if name.startswith(_NO_UPDATE)])
    updates = _holding(store, [name for name in names if name.startswith("train/")]) & ~others
    stated = store.dense("step") if "step" in names else np.full(store.count, np.nan)
    counter = store.dense("rollout/step") if "rollout/step" in names else np.full(store.count, np.nan)
    both = np.isfinite(stated) & np.isfinite(counter)
    if np.isfinite(stated).all() and (stated[both] == counter[both]).all():
        return 0, None, ""
    own, update = (_first(store, keys, stated) for keys in (_NUMBERED, ("train/step",)))
    each, step = _numbered(rollouts, updates, own, update)
    return each, step if each or np.isfinite(own[rollouts]).any() else None, _said(each)


def by_rollouts(rows: Sequence[MutableMapping[str, Any]], key: str) -> tuple[int, str]:
    """Give the rows of slime the number of their rollout as their step."""
    rollouts = np.array([any(name in row for name in _ROLLOUT) for row in rows], dtype=bool)
    updates = np.array([any(name.startswith("train/") for name in row) and not _has(row, _NO_UPDATE) for row in rows], dtype=bool)
    own, update = (np.array([_number(row, (*keys, key)) for row in rows], dtype=np.float64) for keys in (_NUMBERED, ("train/step",)))
    each, step = _numbered(rollouts, updates, own, update)
    for row, number in zip(rows, step.tolist() if each else (), strict=each > 0):
        if number == number:
            row[key] = number
        else:
            row.pop(key, None)
    return each, _said(each)


def _numbered(rollouts: Flags, updates: Flags, own: Array, update: Array) -> tuple[int, Array]:
    """Return the updates of a rollout, 0 where that cannot be told, and the rollout of each row."""
    first, last = own[rollouts & np.isfinite(own)], update[updates & np.isfinite(update)]
    if not len(first) or not len(last):
        return 0, own
    # The last of both are of one rollout, or of neighbours where the log was cut off.
    each = max(1, round((float(last.max()) + 1) / (float(first.max()) + 1)))
    return each, np.where(updates, update // each, own)


def _said(each: int) -> str:
    """Return the note on how rows of training are numbered."""
    what = f"{counted(each, 'optimiser update')} of each rollout"
    return f"slime numbers the rows of training by updates: they are put with their rollout, {what}" if each else ""


def _holding(store: RowStore, names: Sequence[str]) -> Flags:
    """Return which rows hold any of the keys."""
    found = np.zeros(store.count, dtype=bool)
    for name in names:
        found[store.sparse(name)[0]] = True
    return found


def _first(store: RowStore, keys: Sequence[str], otherwise: Array) -> Array:
    """Return the first of the keys that each row has, else another number."""
    found = otherwise
    for key in reversed([key for key in keys if key in store.names()]):
        values = store.dense(key)
        found = np.where(np.isfinite(values), values, found)
    return found


def _has(row: Mapping[str, Any], starts: tuple[str, ...]) -> bool:
    """Return whether a key of the row starts with one of the texts."""
    return any(name.startswith(starts) for name in row)


def _number(row: Mapping[str, Any], keys: Sequence[str]) -> float:
    """Return the first of the keys that a row has as a number, NaN where it has none."""
    return next((row[name] for name in keys if isinstance(row.get(name), float)), float("nan"))
