"""Rollouts as trainers dump them, one row of our own a completion: ms-swift, NeMo-RL, ART, prime-rl and slime.

Only the shape of a row is changed. Which files belong together is in `rollouts.py`; groups are made in `rollout_rows.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Row = Mapping[Any, Any]


def dump_of(rows: Sequence[Row]) -> str:
    """Return whose dump the first rows of a file are, "" for none that needs to be taken apart."""
    seen = [row for row in rows if row]
    return next((name for name, (fits, _) in DUMPS.items() if seen and all(fits(row) for row in seen)), "")


def rows_of_dump(name: str, row: Row, number: int, group_size: int | None) -> Iterator[dict[str, Any]]:
    """Yield the completions that one row of a dump holds."""
    yield from DUMPS[name][1](row, number, group_size)


def _is_swift(row: Row) -> bool:
    """Return whether a row is a table of completions by columns."""
    columns = [row.get(key) for key in ("prompt", "completion", "step")]
    return all(isinstance(column, list) and column and not isinstance(column[0], Mapping) for column in columns)


def _swift(row: Row, number: int, group_size: int | None) -> Iterator[dict[str, Any]]:  # noqa: ARG001
    """Yield the completions of one of ms-swift's tables."""
    columns = {str(key): values for key, values in row.items() if isinstance(values, list)}
    length = max(map(len, columns.values()), default=0)
    texts = ("prompt", "completion")
    for index in range(length):
        cells = {key: values[index] for key, values in columns.items() if index < len(values)}
        step = cells.pop("step", None)
        found: dict[str, Any] = {key: cells.pop(key) for key in texts if isinstance(cells.get(key), str)}
        found["step"] = _number(step)
        found["advantage"] = cells.pop("advantages", cells.pop("advantage", None))
        known = ("entropy", "reward", "solution", "finish_reason", *texts)
        found |= {f"rewards/{key}": value for key, value in cells.items() if isinstance(value, int | float) and key not in known}
        if isinstance(cells.get("reward"), int | float):
            found["reward"] = cells["reward"]
        yield found


def _number(value: Any) -> float | None:
    """Return a number that may be written as a text, None for anything else."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _is_nemo(row: Row) -> bool:
    """Return whether a row is one of NeMo-RL's."""
    return "content" in row and isinstance(row.get("rewards"), int | float) and isinstance(row["content"], str | list)


def _nemo(row: Row, number: int, group_size: int | None) -> Iterator[dict[str, Any]]:
    """Yield the one completion of a row of NeMo-RL's; groups are told by the prompt, or by position where only G is known."""
    prompt, completion = _parted(row["content"])
    found: dict[str, Any] = {"prompt": prompt, "completion": completion, "reward": row["rewards"]}
    if prompt is None:
        found["prompt"] = f"prompt {number // group_size}" if group_size else None
    advantage = row.get("advantages")
    if isinstance(advantage, list):
        advantage = next((value for value in reversed(advantage) if isinstance(value, float) and value != 0), None)
    lengths = row.get("input_lengths")
    yield found | {key: value for key, value in (("advantage", advantage), ("sequence_length", lengths)) if isinstance(value, int | float)}


def _parted(content: Any) -> tuple[str | None, str]:
    """Return prompt and completion of a conversation; a text that is not parted has no prompt of its own."""
    if isinstance(content, str):
        return None, content
    parts = [_text(part) for part in content]
    roles = [part.get("role") if isinstance(part, Mapping) else None for part in content]
    first = next((at for at, role in enumerate(roles) if role == "assistant"), 1 if len(parts) > 1 else 0)
    return ("\n".join(parts[:first]) or None), "\n".join(parts[first:])


def _text(part: Any) -> str:
    """Return the text of one message."""
    if isinstance(part, str):
        return part
    content = part.get("content") if isinstance(part, Mapping) else part
    try:
        return content if isinstance(content, str) else json.dumps(content, default=str)
    except (RecursionError, ValueError):
        return ""


def _is_art(row: Row) -> bool:
    """Return whether a row is one of ART's trajectories."""
    return "group_index" in row and "reward" in row and isinstance(row.get("messages"), list | tuple)


def _art(row: Row, number: int, group_size: int | None) -> Iterator[dict[str, Any]]:  # noqa: ARG001
    """Yield the one trajectory of a row of ART's."""
    prompt, completion = _parted(list(row["messages"]))
    yield {"prompt": prompt, "completion": completion, "reward": row["reward"], "group_index": row["group_index"]}


def _is_episode(row: Row) -> bool:
    """Return whether a row is one of prime-rl's episodes."""
    return isinstance(row.get("traces"), list) and isinstance(row.get("group"), Mapping)


def _episode(row: Row, number: int, group_size: int | None) -> Iterator[dict[str, Any]]:  # noqa: ARG001
    """Yield the traces of one of prime-rl's episodes; an episode that failed has no reward."""
    group = row["group"].get("id")
    for trace in row["traces"]:
        if not isinstance(trace, Mapping):
            continue
        rewards = trace.get("rewards")
        found: dict[str, Any] = {"group": str(group)}
        if isinstance(rewards, Mapping):
            found |= {f"rewards/{key}": value for key, value in rewards.items() if isinstance(value, int | float)}
            found["reward"] = trace.get("reward", sum(value for value in rewards.values() if isinstance(value, int | float)))
        else:
            found["reward"] = trace.get("reward", rewards)
        nodes = [node for node in trace.get("nodes") or [] if isinstance(node, Mapping)]
        values = [value for node in nodes for value in node.get("advantages") or [] if isinstance(value, int | float)]
        advantage = next((value for value in reversed(values) if value), values[-1] if values else None)
        yield found | ({"advantage": advantage} if advantage is not None else {})


def _is_sample(row: Row) -> bool:
    """Return whether a row is one of slime's samples."""
    return "group_index" in row and isinstance(row.get("response"), str) and "rollout_id" in row


def _sample(row: Row, number: int, group_size: int | None) -> Iterator[dict[str, Any]]:  # noqa: ARG001
    """Yield the one completion of a sample of slime's; several rewards are taken apart."""
    reward = row.get("reward")
    prompt = row.get("prompt")
    found: dict[str, Any] = {"prompt": prompt if isinstance(prompt, str) else _parted(prompt)[1] if isinstance(prompt, list) else None}
    found |= {"completion": row["response"], "group_index": row["group_index"], "step": row["rollout_id"]}
    if isinstance(reward, Mapping):
        found |= {f"rewards/{key}": value for key, value in reward.items() if isinstance(value, int | float)}
    else:
        found["reward"] = reward
    yield found | ({"response_length": row["response_length"]} if isinstance(row.get("response_length"), int) else {})


Fits = Callable[[Row], bool]
Takes = Callable[[Row, int, int | None], Iterator[dict[str, Any]]]

DUMPS: dict[str, tuple[Fits, Takes]] = {
    "ms-swift": (_is_swift, _swift),
    "slime": (_is_sample, _sample),
    "art": (_is_art, _art),
    "prime-rl": (_is_episode, _episode),
    "nemo-rl": (_is_nemo, _nemo),
}
