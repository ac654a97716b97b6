"""Rows that hold one completion each, collected as they stream past: texts, numbers, and the keys that tell groups apart.

The keys that are understood are the lists at the top. It opens no file and makes no record: `rollouts.py` does.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from groupwise.readers.rows import RowStore, clean_key, counted, parse_number

PROMPT_KEYS = ("prompt", "input", "question", "problem", "query", "instruction", "messages")
COMPLETION_KEYS = ("completion", "output", "response", "generation", "text")
REWARD_KEYS = ("reward", "score", "total_reward", "rewards/total", "reward/total", "rewards", "acc", "accuracy", "correct")
GROUP_KEYS = (
    "group", "group_id", "group_index", "prompt_id", "prompt_index", "uid", "problem_id", "question_id", "question_index", "id",
)  # fmt: skip
STEP_KEYS = ("step", "global_step", "training_step", "train_step", "grpo_step", "iteration")
ADVANTAGE_KEYS = ("advantage", "advantages")
LENGTH_KEYS = ("length", "completion_length", "response_length", "completion_len", "response_token_length")
FUNCTION_PREFIXES = ("reward/", "rewards/")
STEP_LOG_KEYS = ("loss", "learning_rate", "lr", "grad_norm", "reward_std")

_TEXT_KEYS = frozenset(PROMPT_KEYS + COMPLETION_KEYS)
_VERL_UID = re.compile(r"(.+)_(\d{1,9})_(\d{1,9})", re.DOTALL)
_LARGEST_STEP = 2.0**53

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the rows of a file keep their texts."""

    prompt: str  # the key of the prompt
    completion: str  # the key of the completion
    verl: bool  # whether the rows are those of verl's rollout dump


def layout_of(rows: Iterable[Mapping[Any, Any]], *, rewarded: bool = True) -> Layout | None:
    """Return where rows keep their texts, or None where most of them are no rollouts."""
    seen = [row for row in rows if isinstance(row, Mapping)]
    good = [row for row in seen if (_rewards(row) or not rewarded) and not any(_is_number(row.get(key)) for key in STEP_LOG_KEYS)]
    prompt = _most_used(good, PROMPT_KEYS)
    completion = _most_used(good, COMPLETION_KEYS)
    both = sum(_is_text(row.get(prompt)) and _is_text(row.get(completion)) for row in good)
    if not both or 2 * both < len(seen):
        return Layout("", "", verl=False) if 2 * len(good) >= len(seen) and _share_groups(good) else None
    return Layout(prompt, completion, prompt == "input" and completion == "output" and all("score" in row for row in good))


def _share_groups(rows: list[Mapping[Any, Any]]) -> bool:
    """Return whether rows without texts are rollouts all the same: some of one step share what names a group."""
    for key in GROUP_KEYS:
        named = [(row.get(key), next((row[step] for step in STEP_KEYS if step in row), None)) for row in rows]
        whole = [name for name in named if isinstance(name[0], str | int | float) and isinstance(name[1], int | float)]
        if key != "id" and 2 * len(whole) >= len(rows) and len(set(whole)) < len(whole):
            return True
    return False


def _most_used(rows: list[Mapping[Any, Any]], keys: tuple[str, ...]) -> str:
    """Return the first key that holds a text in at least half of the rows, or the one that does so most often."""
    counts = {key: sum(_is_text(row.get(key)) for row in rows) for key in keys}
    return next((key for key in keys if counts[key] and 2 * counts[key] >= len(rows)), max(keys, key=lambda key: counts[key]))


def _rewards(row: Mapping[Any, Any]) -> bool:
    """Return whether a row holds a number under a key of rewards."""
    for key in row:
        value = row[key]
        named = key in REWARD_KEYS or (isinstance(key, str) and key.startswith(FUNCTION_PREFIXES))
        if named and _is_number(value):
            return True
        if key in ("reward", "rewards") and isinstance(value, Mapping) and any(_is_number(inner) for inner in value.values()):
            return True
    return False


def _is_number(value: Any) -> bool:
    """Return whether a cell holds a number, perhaps as a text."""
    return isinstance(value, bool | int | float) or (isinstance(value, str) and parse_number(value) is not None and value.strip() != "")


def _is_text(value: Any) -> bool:
    """Return whether a cell holds a text or a list of chat messages."""
    return isinstance(value, str) or (isinstance(value, list) and len(value) > 0 and all(isinstance(part, Mapping) for part in value))


class RolloutRows:
    """Rollouts by column, in the order in which they came.

    Attributes:
        store: the numbers.
        prompt: texts, None where missing.
        completion: texts, None where missing.
        file_step: the step that each row's file is named after, NaN where it is not.
        labels: key -> what tells the groups apart, None where missing.
        left_out: rows that are no rollouts.
        silent: rows without a completion.
        messages: texts that are lists of chat messages.
        later_outputs: rows that are a second output, or a later one, of one of verl's rollouts.
        split_uids: rows whose verl uid names its group.
        texts: whether they are kept.
    """

    def __init__(self, *, texts: bool = True) -> None:
        """Start with no rows."""
        self.store = RowStore()
        self.prompt: list[str | None] = []
        self.completion: list[str | None] = []
        self.file_step: list[float] = []
        self.labels: dict[str, list[str | None]] = {}
        self.left_out = self.silent = self.messages = self.later_outputs = self.split_uids = 0
        self.texts = texts
        self._known: dict[str, str] = {}

    def add(self, row: Mapping[Any, Any], layout: Layout, file_step: float = float("nan")) -> None:
        """Append one row, or count it as left out where it is no rollout."""
        prompt, completion = row.get(layout.prompt), row.get(layout.completion)
        labels = {key: row[key] for key in GROUP_KEYS if isinstance(row.get(key), str | int | float)}
        if not (_is_text(prompt) or labels) or not (_is_text(completion) or _rewards(row)):
            self.left_out += 1
            return
        self.silent += not _is_text(completion)
        self.prompt.append(self._kept(self._text(prompt), shared=True))
        self.completion.append(self._kept(self._text(completion), shared=False))
        self.file_step.append(file_step)
        for key, value in labels.items():
            column = self.labels.setdefault(key, [])
            column.extend([None] * (self.store.count - len(column)))
            column.append(self._label(key, value, layout))
        self.store.add({key: value for key, value in row.items() if key not in _TEXT_KEYS or not _is_text(value)})

    def add_table(self, table: pl.DataFrame, layout: Layout, file_step: float = float("nan")) -> None:
        """Append the rows of a table without gaps, as `add` would one by one."""
        count = len(table)
        self.prompt += self._prompts(table[layout.prompt])
        self.completion += table[layout.completion].to_list() if self.texts else [None] * count
        self.file_step += [file_step] * count
        for key in (key for key in GROUP_KEYS if key in table.columns):
            column = self.labels.setdefault(key, [])
            column.extend([None] * (self.store.count - len(column)))
            column.extend(self._labels(key, table[key], layout))
        numbers = [name for name, kind in table.schema.items() if kind != pl.Utf8]
        self.store.add_columns({name: table[name].cast(pl.Float64).to_numpy() for name in numbers}, count)

    def _prompts(self, prompts: pl.Series) -> list[str | None]:
        """Return prompts that can be stored, one object for equal ones."""
        names = {text: self._kept(text, shared=True) for text in prompts.unique().to_list()}
        return [names[text] for text in prompts.to_list()]

    def _labels(self, key: str, values: pl.Series, layout: Layout) -> list[str | None]:
        """Return the names of the groups of many rows."""
        if key == "uid" and layout.verl and values.dtype == pl.Utf8:
            parts = values.str.extract_groups(r"(?s)^(.+)_(\d{1,9})_(\d{1,9})$").struct.unnest()
            if not parts[parts.columns[0]].null_count():
                self.split_uids += len(values)
                self.later_outputs += int((parts[parts.columns[2]].cast(pl.Int64) > 0).sum())
                names: list[str | None] = parts[parts.columns[0]].to_list()
                return names
        return [self._label(key, value, layout) for value in values.to_list()]

    def label_column(self, key: str) -> list[str | None]:
        """Return what tells the groups apart by one key, as long as the rows are many."""
        column = self.labels[key]
        return column + [None] * (self.store.count - len(column))

    def _text(self, value: Any) -> str | None:
        """Return a cell as a text, chat messages as JSON; None where it is neither."""
        if isinstance(value, str):
            return value
        if not _is_text(value):
            return None
        try:
            text = json.dumps(value, ensure_ascii=False, default=str)
        except (RecursionError, ValueError):
            return None
        self.messages += 1
        return text

    def _kept(self, text: str | None, *, shared: bool) -> str | None:
        """Return a text that can be stored: one object for equal prompts, and their hash where texts are not kept."""
        if text is None:
            return None
        if not text.isascii():
            try:
                text.encode("utf-8")
            except UnicodeEncodeError:
                text = text.encode("utf-8", "replace").decode("utf-8")
        if not self.texts:
            text = hashlib.blake2b(text.encode(), digest_size=8).hexdigest() if shared else None
        return self._known.setdefault(text, text) if shared and text is not None else text

    def _label(self, key: str, value: str | float, layout: Layout) -> str | None:
        """Return the name of a group; verl appends the number of the rollout and of its output to its own."""
        text = f"{value:.17g}" if isinstance(value, float) else str(value)
        match = _VERL_UID.fullmatch(text) if key == "uid" and layout.verl else None
        if match:
            self.split_uids += 1
            self.later_outputs += int(match[3]) > 0
            text = match[1]
        text = text.encode("utf-8", "replace").decode("utf-8")
        return self._known.setdefault(text, text)


def steps_of(rows: RolloutRows, chosen: str | None, notes: list[str]) -> Array:
    """Return the step of every row, NaN where it is unknown."""
    key = chosen or next(
        (key for key in STEP_KEYS if key in rows.store.names() and 2 * _whole(rows.store.sparse(key)[1]).sum() >= rows.store.count), ""
    )
    file_step = np.array(rows.file_step)
    if key:
        own = rows.store.dense(key)
        step = np.where(_whole(own), own, file_step)
    else:
        step = file_step
        if not np.isfinite(step).any():
            notes.append("no column holds the step, so all rollouts count as step 1: name it with --column step=NAME")
            return np.ones(rows.store.count)
        notes.append("the steps are the numbers in the names of the files")
    known = step[np.isfinite(step)]
    blocks = known[np.append(True, np.diff(known) != 0)] if len(known) else known
    if len(blocks) > len(np.unique(blocks)):
        notes.append("the rows of a step do not follow one another: those of a step are taken together, also where a run was resumed")
    return step


def _whole(values: Array) -> NDArray[np.bool_]:
    """Return which values are whole numbers that can be a step."""
    whole: NDArray[np.bool_] = np.isfinite(values) & (values == np.floor(values)) & (np.abs(values) < _LARGEST_STEP)
    return whole


def grouped(table: pl.DataFrame, labels: Mapping[str, list[str | None]], notes: list[str], *, trusted: bool) -> pl.DataFrame:
    """Return a table with `prompt_id`, numbered by first appearance within the step, its rows sorted by step and group.

    A key counts as the group's only where it never mixes prompts and puts at least two rows of a step together.
    """
    found = ""
    for key in (["uid"] if trusted else []) + [key for key in GROUP_KEYS if key in labels]:
        names = pl.Series("key", labels[key], dtype=pl.Utf8)
        if names.null_count():
            continue
        groups = table.select("step", "prompt").with_columns(names).group_by("step", "key").agg(pl.col("prompt").drop_nulls().n_unique())
        mixed = bool((groups["prompt"] > 1).any())
        if (trusted and key == "uid") or (not mixed and len(groups) < len(table)):
            found = key
            break
        if mixed and len(groups) < len(table):
            notes.append(f"the column {key} puts different prompts together, so it does not tell the groups")
    if found:
        table = table.with_columns(pl.Series("key", labels[found], dtype=pl.Utf8))
        notes.append(f"groups of completions by the column {found}")
    else:
        table = table.with_columns(pl.col("prompt").alias("key")).drop_nulls("key")
        notes.append("groups of completions by equal prompts within a step: two groups of one prompt at one step count as one")
    first = pl.col("row").min().over("step", "key")
    numbered = table.with_row_index("row").with_columns((first.rank("dense").over("step").cast(pl.Int64) - 1).alias("prompt_id"))
    front = ["step", "prompt_id"]
    numbered = numbered.select(*front, pl.exclude(*front, "row", "key"))
    return numbered.sort("step", "prompt_id", maintain_order=True)


def row_notes(rows: RolloutRows) -> list[str]:
    """Return notes on rows and texts that are not as they should be."""
    notes = []
    if rows.left_out:
        why = "neither a prompt nor a group, or neither a completion nor a reward"
        notes.append(f"{counted(rows.left_out, 'row has', 'rows have')} {why}: left out")
    if rows.silent:
        notes.append(f"{counted(rows.silent, 'row has', 'rows have')} no completion: rewards only")
    if rows.messages:
        notes.append(f"{counted(rows.messages, 'text is a list of chat messages', 'texts are lists of chat messages')}: kept as JSON text")
    if rows.later_outputs:
        words = "row is a further output of its rollout", "rows are further outputs of their rollouts"
        notes.append(f"{counted(rows.later_outputs, *words)}, by the uid, and counts as a completion of its own")
    return notes


def function_names(names: Iterable[str], total: str) -> dict[str, str]:
    """Return the columns of reward functions, and what each function is called."""
    found: dict[str, str] = {}
    for name in names:
        prefix = next((prefix for prefix in FUNCTION_PREFIXES if name.startswith(prefix)), "")
        function = clean_key(name.removeprefix(prefix)) if prefix and name != prefix else ""
        if function and name != total and function != "total" and function not in found.values():
            found[name] = function
    return found
