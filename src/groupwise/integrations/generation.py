"""One generation of rollouts, and what the record keeps of it."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import field
from itertools import chain
from statistics import median
from typing import Any

import numpy as np

from groupwise.arrays import Columns, Float, Whole, floats
from groupwise.files import table_rows
from groupwise.parsing import JsonObject, JsonView
from groupwise.plain import frozen
from groupwise.readers.keys import meanings_of
from groupwise.record.recorder import UNEVEN
from groupwise.record.run import Meaning, Meanings, RunConfig
from groupwise.record.table import BASE_COLUMNS

MEANINGS = tuple(
    Meaning(row["column"], row["quantity"], row["definition"])
    for row in table_rows("integrations/meanings.tsv")
)
RESERVED = frozenset((*BASE_COLUMNS, *(meaning.column for meaning in MEANINGS)))


def step_meanings(
    columns: Columns, config: RunConfig, *, framework: str, more: Sequence[Meaning] = ()
) -> Meanings:
    """Return what the columns of recorded steps mean, ours and the trainer's."""
    ours = {meaning.column: meaning for meaning in (*MEANINGS, *more) if meaning.column in columns}
    theirs = {name: values for name, values in columns.items() if name not in ours}
    return (
        *ours.values(),
        *meanings_of(theirs, config, framework=framework, complete=False, window=1.0),
    )


def apart(metrics: JsonView, *also: str) -> JsonObject:
    """Return a trainer's metrics; one that is named like a column of ours becomes `log/<name>`."""
    return {
        f"log/{name}" if name in RESERVED or name in also else str(name): value
        for name, value in metrics.items()
    }


@frozen
class Generation:
    """The rollouts of one generation, gathered over all processes."""

    reward_N: Float  # total reward of each; NaN where none was given
    prompt_N: Whole  # label of its group, whole numbers from 0 in the order of the rollouts
    # reward function -> its own values, before their weights; NaN where it gave none
    part_N: Columns = field(default_factory=dict)
    advantage_N: Float | None = None  # of each, or None
    length_N: Float | None = None  # tokens of each completion, or None
    prompt_length_N: Float | None = None  # tokens of each prompt as the model read it, or None
    prompts: Sequence[str] | None = None  # texts, or None
    completions: Sequence[str] | None = None  # texts, or None

    def row(self) -> dict[str, float | None]:
        """Return the columns of a step that its rollouts determine.

        Plain loops: between two steps the model has filled the processor's caches, and a dozen
        small array functions would take longer.
        """
        groups: dict[int, list[float]] = {}
        for prompt, reward in zip(self.prompt_N.tolist(), self.reward_N.tolist(), strict=True):
            groups.setdefault(prompt, []).append(reward)
        sizes = sorted(map(len, groups.values()))
        finite = [list(filter(math.isfinite, group)) for group in groups.values()]
        count = sum(map(len, finite))
        row: dict[str, float | None] = {
            "reward": _mean(self.reward_N),
            "group_size": float(median(sizes)) if sizes else None,
            "prompts": float(len(sizes)),
            **(
                {UNEVEN: 1 - max(Counter(sizes).values()) / len(sizes)}
                if sizes and sizes[0] != sizes[-1]
                else {}
            ),
            **{f"rewards/{name}/mean": _mean(value_N) for name, value_N in self.part_N.items()},
        }
        row |= _spread([group for group in finite if len(group) > 1])
        if count < len(self.reward_N):
            row["missing_share"] = 1 - count / len(self.reward_N)
        if self.length_N is not None:
            row["completions/mean_length"] = _mean(self.length_N)
        return row

    def rollouts(self) -> list[JsonObject]:
        """Return the completions, as `RecordWriter.append` takes them."""
        columns = {
            "prompt_id": self.prompt_N,
            "prompt": self.prompts,
            "completion": self.completions,
            "reward": self.reward_N,
            **{f"reward/{name}": value_N for name, value_N in self.part_N.items()},
            "advantage": self.advantage_N,
            "length": self.length_N,
            "prompt_length": self.prompt_length_N,
        }
        kept = {
            name: _plain(values) if isinstance(values, np.ndarray) else values
            for name, values in columns.items()
            if values is not None
        }
        return [dict(zip(kept, cells, strict=True)) for cells in zip(*kept.values(), strict=True)]


def joined(generations: Sequence[Generation]) -> Generation:
    """Return several generations of one step as one, their groups apart."""
    if len(generations) == 1:
        return generations[0]
    names = dict.fromkeys(name for generation in generations for name in generation.part_N)
    offset = 0
    prompts, parts = [], []
    for generation in generations:
        prompts.append(generation.prompt_N + offset)
        offset += generation.prompt_N.max(initial=-1) + 1
        missing_N = np.full(len(generation.reward_N), np.nan)
        parts.append([generation.part_N.get(name, missing_N) for name in names])

    def column(name: str, made: Callable[[Any], Any] = floats) -> Any:
        values = [getattr(generation, name) for generation in generations]
        return None if any(value is None for value in values) else made([*chain(*values)])

    return Generation(
        column("reward_N"),
        np.concatenate(prompts),
        {name: np.concatenate(own) for name, *own in zip(names, *parts, strict=True)},
        column("advantage_N"),
        column("length_N"),
        column("prompt_length_N"),
        column("prompts", list),
        column("completions", list),
    )


def array_of(value: Any) -> Float:
    """Return a tensor, or what is one already, as an array of doubles."""
    return np.asarray(
        value.detach().float().cpu().numpy() if hasattr(value, "detach") else value, dtype=float
    )


def _spread(groups: Sequence[Sequence[float]]) -> dict[str, float | None]:
    """Return the spread within groups of at least two, and the share of groups without any."""
    if not groups:
        return {}
    total = 0.0
    for group in groups:
        middle = sum(group) / len(group)
        total += math.sqrt(
            sum((reward - middle) * (reward - middle) for reward in group) / (len(group) - 1)
        )  # a power would raise
    dead = sum(max(group) == min(group) for group in groups)
    return {"reward_std_within_group": total / len(groups), "dead_group_share": dead / len(groups)}


def _mean(value_N: Float) -> float | None:
    """Return the mean of what is there."""
    finite = list(filter(math.isfinite, value_N.tolist()))
    return sum(finite) / len(finite) if finite else None


def _plain(value_N: Float | Whole) -> list[float | None]:
    """Return numbers, None for NaN."""
    return [None if math.isnan(value) else value for value in value_N.tolist()]
