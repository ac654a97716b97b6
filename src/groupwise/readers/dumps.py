"""Rollouts as trainers dump them, as one row of our own a completion: ms-swift, NeMo-RL, ART,
prime-rl, and groups on one line.

Only the shape of a row is changed; `rollouts.py` makes groups and steps of them.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from groupwise.parsing import JsonObject
from groupwise.readers.source import is_number, is_scalar, vocabulary

DumpedRow = Mapping[Any, Any]


# What was logged of a completion beside its reward: the name in the record, and how logs spell it;
# a group lists it in the plural.
SPELLINGS = {name: vocabulary(name) for name in vocabulary("of_a_completion")}
SPELLED = frozenset(key for keys in SPELLINGS.values() for key in keys)


def dump_of(rows: Sequence[DumpedRow]) -> str:
    """Return whose dump the first rows of a file are, "" for none that needs to be taken apart."""
    seen = [row for row in rows if row]
    dump = next(
        (
            name
            for name, (fits, _) in DUMPS.items()
            if seen and name != GROUPS and all(map(fits, seen))
        ),
        "",
    )
    # Groups that were skipped may stand on lines of their own.
    groups = (
        len(seen) > 1
        and any(map(_is_group, seen))
        and all(_is_group(row) or _is_skipped(row) for row in seen)
    )
    return dump or (GROUPS if groups else "")


def _is_swift(row: DumpedRow) -> bool:
    """Return whether a row is a table of completions by columns."""
    columns = [row.get(key) for key in ("prompt", "completion", "step")]
    return all(
        isinstance(column, list) and column and not isinstance(column[0], Mapping)
        for column in columns
    )


def _swift(row: DumpedRow) -> Iterator[JsonObject]:
    """Yield the completions of one of ms-swift's tables."""
    columns = {str(key): values for key, values in row.items() if isinstance(values, list)}
    named = SPELLED | {"prompt", "completion", "step", "reward"}
    for index in range(max(map(len, columns.values()), default=0)):
        cells = {key: values[index] for key, values in columns.items() if index < len(values)}
        yield {
            key if key in named else f"rewards/{key}": value
            for key, value in cells.items()
            if key in named or (is_number(value) and key != "solution")
        }


def _is_wandb_table(row: DumpedRow) -> bool:
    """Return whether a row is one of W&B's tables, with prompts and completions in it."""
    names, data = row.get("columns"), row.get("data")
    return (
        isinstance(names, list)
        and isinstance(data, list)
        and all(
            any(name in names for name in vocabulary(kind)) for kind in ("prompt", "completion")
        )
    )


def _wandb_table(row: DumpedRow) -> Iterator[JsonObject]:
    """Yield the completions of one of W&B's tables."""
    columns = dict(zip(row["columns"], map(list, zip(*row["data"], strict=False)), strict=False))
    for kind in ("prompt", "completion", "reward"):
        name = next((name for name in vocabulary(kind) if name in columns), kind)
        columns[kind] = columns.pop(name, [])
    yield from _swift(columns)


def _of_conversation(row: DumpedRow, texts: str, reward: str) -> Iterator[JsonObject]:
    """Yield the one completion of a row of NeMo-RL's or ART's; its prompt is None where the
    conversation is not parted.
    """
    prompt, completion = _parted(row[texts])
    group = {"group_index": row["group_index"]} if "group_index" in row else {}
    rollout = {"prompt": prompt, "completion": completion, "reward": row[reward]}
    yield rollout | group | _advantage(row.get("advantages"))


def _parted(content: Any) -> tuple[str | None, str]:
    """Return prompt and completion of a conversation; a text that is not parted has no prompt of
    its own.
    """
    if isinstance(content, str):
        return None, content
    parts = [_text(part) for part in content]
    roles = [part.get("role") if isinstance(part, Mapping) else None for part in content]
    first = roles.index("assistant") if "assistant" in roles else int(len(parts) > 1)
    return ("\n".join(parts[:first]) or None), "\n".join(parts[first:])


def _text(part: Any) -> str:
    """Return the text of one message."""
    if isinstance(part, str):
        return part
    content = part.get("content") if isinstance(part, Mapping) else part
    return content if isinstance(content, str) else json.dumps(content, default=str)


def _episode(row: DumpedRow) -> Iterator[JsonObject]:
    """Yield the traces of one of prime-rl's episodes; an episode that failed has no reward."""
    for trace in row["traces"]:
        if not isinstance(trace, Mapping):
            continue
        episode: JsonObject = {"group": str(row["group"].get("id"))}
        if is_number(row.get("step")):
            episode["step"] = row["step"]
        total = rewards = trace.get("rewards")
        if isinstance(rewards, Mapping):
            parts = {key: part for key, value in rewards.items() if (part := _scored(value))}
            episode |= {f"rewards/{key}": score for key, (score, _) in parts.items()}
            total = sum(score * weight for score, weight in parts.values()) if parts else None
        episode["reward"] = trace.get("reward", total)
        nodes = [node for node in trace.get("nodes") or () if isinstance(node, Mapping)]
        yield episode | _advantage(
            [value for node in nodes for value in node.get("advantages") or ()]
        )


def _scored(reward: Any) -> tuple[float, float] | None:
    """Return the score of a reward and its weight, which newer versions write with it."""
    whole = reward if isinstance(reward, Mapping) else {"score": reward}
    score, weight = whole.get("score"), whole.get("weight")
    if not is_number(score):
        return None
    return score, weight if is_number(weight) else 1.0


def _advantage(tokens: Any) -> dict[str, float]:
    """Return the advantage of a completion: the last of its tokens that is not 0."""
    values = [*filter(is_number, tokens)] if isinstance(tokens, list) else []
    return {"advantage": next(filter(None, reversed(values)), values[-1])} if values else {}


GROUPS = "groups"
_REWARDS = vocabulary("rewards_of_a_group")
_COMPLETIONS = vocabulary("completions_of_a_group")
_OF_A_STEP = vocabulary("only_of_a_step")


def _values(row: DumpedRow, keys: Sequence[str]) -> list[Any]:
    """Return what a row has of each completion of its group, or of each group, none where it
    does not.
    """
    return next((row[key] for key in keys if isinstance(row.get(key), list) and row[key]), [])


def _is_group(row: DumpedRow) -> bool:
    """Return whether a row lists the rewards of a group, or of several, and nothing of a step of
    training.
    """
    rewards = _values(row, _REWARDS)
    numbers = [
        value for entry in rewards for value in (entry if isinstance(entry, list) else [entry])
    ]
    return (
        len(numbers) > 1
        and all(map(is_number, numbers))
        and not any(key in row for key in _OF_A_STEP)
    )


def _is_skipped(row: DumpedRow) -> bool:
    """Return whether a row tells of a group that was not trained on."""
    return any(
        "skip" in f"{key} {value if isinstance(value, str) else ''}".lower()
        for key, value in row.items()
    )


def _group(row: DumpedRow) -> Iterator[JsonObject]:
    """Yield the completions of a group, or of several, that stand on one line; a skipped group
    may have no rewards.
    """
    rewards = _values(row, _REWARDS)
    shared = {key: value for key, value in row.items() if is_scalar(value) and key not in _REWARDS}
    if rewards and isinstance(rewards[0], list):
        for number, group in enumerate(rewards):
            named = {"group": f"{shared.get('group', '')}/{number}"}
            yield from (shared | {"reward": reward} | named for reward in group)
        return
    own = _of_each(row, len(rewards))
    for index, reward in enumerate(rewards):
        yield shared | {key: values[index] for key, values in own.items()} | {"reward": reward}


def _of_each(row: DumpedRow, count: int) -> dict[str, list[Any]]:
    """Return what a row lists of each of as many completions beside its reward."""
    listed = {"completion": _values(row, _COMPLETIONS)} | {
        key: values for key, values in row.items() if key in SPELLED
    }
    return {
        key: values
        for key, values in listed.items()
        if isinstance(values, list) and len(values) == count
    }


DUMPS: dict[
    str, tuple[Callable[[DumpedRow], bool], Callable[[DumpedRow], Iterator[JsonObject]]]
] = {
    "ms-swift": (_is_swift, _swift),
    "wandb": (_is_wandb_table, _wandb_table),
    "art": (
        lambda row: {"group_index", "reward"} <= set(row) and isinstance(row.get("messages"), list),
        lambda row: _of_conversation(row, "messages", "reward"),
    ),
    "prime-rl": (
        lambda row: isinstance(row.get("traces"), list) and isinstance(row.get("group"), Mapping),
        _episode,
    ),
    "nemo-rl": (
        lambda row: is_number(row.get("rewards")) and isinstance(row.get("content"), str | list),
        lambda row: _of_conversation(row, "content", "rewards"),
    ),
    GROUPS: (_is_group, _group),
}
