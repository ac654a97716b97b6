"""One generation of rollouts as a trainer hands it over, and what the record keeps of it: a row
of the step, and one a completion.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groupwise.arrays import Float
from groupwise.readers.keys import meanings_of
from groupwise.record.recorder import UNEVEN
from groupwise.record.run import Meaning, RunConfig
from groupwise.record.table import BASE_COLUMNS

MEANINGS: tuple[Meaning, ...] = (
    Meaning(
        "group_size", "", "rollouts of a prompt in this step (the median, where groups differ)"
    ),
    Meaning(
        UNEVEN,
        "",
        "share of groups whose size is not that of most; empty where all are of one size",
    ),
    Meaning("prompts", "", "prompts of this step"),
    Meaning(
        "reward_std_within_group",
        "reward_std_within_group",
        "standard deviation of rewards within a group, ddof 1, mean over groups",
    ),
    Meaning(
        "dead_group_share",
        "dead_group_share",
        "share of groups whose rewards are all equal: they teach nothing",
    ),
    Meaning("missing_share", "", "share of rollouts that no reward function gave a reward"),
    Meaning(
        "lag",
        "staleness",
        "optimiser updates between the sampling of the rollouts and their use in this step",
    ),
    Meaning(
        "gradient/vp",
        "",
        (
            "Vp: variance of the gradient between prompts, in squared reward units per squared "
            "parameter"
        ),
    ),
    Meaning("gradient/t", "", "T: first-order variance within a group; falls as 1/(B G)"),
    Meaning("gradient/r", "", "R: second-order variance within a group; falls as 1/(B G (G - 1))"),
    Meaning("gradient/norm2", "", "squared length of the gradient of the mean reward"),
    Meaning(
        "gradient/group_size", "", "best group size for a fixed number of rollouts, 1 + sqrt(R/Vp)"
    ),
    Meaning("gradient/group_size_low", "", "lower end of its 95 % interval"),
    Meaning(
        "gradient/group_size_high", "", "upper end of its 95 % interval, empty where there is none"
    ),
    Meaning(
        "gradient/noise",
        "",
        "variance of the batch's gradient at this B and G: Vp/B + T/(BG) + R/(BG(G-1))",
    ),
    Meaning(
        "gradient/noise_temperature",
        "",
        "learning rate times the variance of the batch's gradient, over 2: over stiffness and "
        "damping, the variance of the reward's swings",
    ),
    Meaning("gradient/prompts", "", "prompts that these estimates rest on"),
    Meaning(
        "planned_group_size",
        "",
        (
            "group size of least predicted error by the latest probes, at this number of rollouts "
            "a step"
        ),
    ),
    Meaning(
        "planned_excess",
        "",
        "error of the group size in use over that of the one advised or best, minus 1",
    ),
    Meaning("groupwise/record_seconds", "", "seconds that recording took in this step"),
    Meaning("groupwise/probe_seconds", "", "seconds that the score sketches took in this step"),
    Meaning(
        "groupwise/check_seconds", "", "seconds that checks took since the row before, at its end"
    ),
)
RESERVED = frozenset((*BASE_COLUMNS, *(meaning.column for meaning in MEANINGS)))


def step_meanings(
    columns: Mapping[str, Float], config: RunConfig, *, framework: str, more: Sequence[Meaning] = ()
) -> tuple[Meaning, ...]:
    """Return what the columns of recorded steps mean: ours, `more` of ours, and the trainer's
    own.
    """
    ours = [meaning for meaning in (*MEANINGS, *more) if meaning.column in columns]
    known = {meaning.column for meaning in ours}
    theirs = {name: values for name, values in columns.items() if name not in known}
    return (*ours, *meanings_of(theirs, config, framework=framework, complete=False, window=1.0))


def apart(metrics: Mapping[str, Any], *also: str) -> dict[str, Any]:
    """Return a trainer's metrics, of which one that is named like a column of ours (or is in
    `also`) becomes `log/<name>`.
    """
    return {
        f"log/{name}" if name in RESERVED or name in also else str(name): value
        for name, value in metrics.items()
    }


@dataclass(frozen=True, slots=True)
class Generation:
    """The rollouts of one generation, gathered over all processes."""

    reward_N: Float  # total reward of each; NaN where none was given
    prompt_N: NDArray[
        np.int64
    ]  # label of its group, whole numbers from 0 in the order of the rollouts
    # reward function -> its own values, before their weights; NaN where it gave none
    part_N: Mapping[str, Float] = field(default_factory=dict)
    advantage_N: Float | None = None  # of each, or None
    length_N: Float | None = None  # tokens of each completion, or None
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
        found = [[reward for reward in group if math.isfinite(reward)] for group in groups.values()]
        count = sum(map(len, found))
        row: dict[str, float | None] = {
            "reward": sum(map(sum, found)) / count if count else None,
            "group_size": (sizes[len(sizes) // 2] + sizes[(len(sizes) - 1) // 2]) / 2
            if sizes
            else None,
            "prompts": float(len(sizes)),
            **(
                {UNEVEN: 1 - max(Counter(sizes).values()) / len(sizes)}
                if sizes and sizes[0] != sizes[-1]
                else {}
            ),
            **{f"rewards/{name}/mean": _mean(value_N) for name, value_N in self.part_N.items()},
        }
        row |= _spread([group for group in found if len(group) > 1])
        if count < len(self.reward_N):
            row["missing_share"] = 1 - count / len(self.reward_N)
        if self.length_N is not None:
            row["completions/mean_length"] = _mean(self.length_N)
        return row

    def rollouts(self) -> list[dict[str, Any]]:
        """Return the completions, as `RecordWriter.append` takes them."""
        columns: dict[str, Sequence[Any]] = {"prompt_id": self.prompt_N.tolist()}
        if self.prompts is not None:
            columns["prompt"] = self.prompts
        if self.completions is not None:
            columns["completion"] = self.completions
        numbers = {
            "reward": self.reward_N,
            **{f"reward/{name}": value_N for name, value_N in self.part_N.items()},
        }
        if self.advantage_N is not None:
            numbers["advantage"] = self.advantage_N
        if self.length_N is not None:
            numbers["length"] = self.length_N
        columns |= {name: _plain(value_N) for name, value_N in numbers.items()}
        return [
            dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)
        ]


def joined(generations: Sequence[Generation]) -> Generation:
    """Return several generations of one step as one, their groups apart."""
    if len(generations) == 1:
        return generations[0]
    offsets = np.cumsum([0, *(int(one.prompt_N.max(initial=-1)) + 1 for one in generations[:-1])])
    names = dict.fromkeys(name for one in generations for name in one.part_N)

    def column(name: str) -> Float | None:
        values = [getattr(one, name) for one in generations]
        return None if any(value is None for value in values) else np.concatenate(values)

    def texts(name: str) -> list[str] | None:
        values = [getattr(one, name) for one in generations]
        return (
            None
            if any(value is None for value in values)
            else [text for some in values for text in some]
        )

    return Generation(
        np.concatenate([one.reward_N for one in generations]),
        np.concatenate(
            [one.prompt_N + offset for one, offset in zip(generations, offsets, strict=True)]
        ),
        {
            name: np.concatenate(
                [one.part_N.get(name, np.full(len(one.reward_N), np.nan)) for one in generations]
            )
            for name in names
        },
        column("advantage_N"),
        column("length_N"),
        texts("prompts"),
        texts("completions"),
    )


def text_of(value: Any) -> str:
    """Return a prompt or completion as one text: a conversation as the contents of its messages."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        return "\n".join(text_of(item) for item in value)
    if isinstance(value, Mapping):
        text = text_of(value.get("content", value.get("text")))
        return f"{value['role']}: {text}" if "role" in value else text
    return "" if value is None else str(value)


def array_of(value: Any) -> Float:
    """Return a tensor, or what is one already, as an array of doubles."""
    return np.asarray(
        value.detach().float().cpu().numpy() if hasattr(value, "detach") else value,
        dtype=np.float64,
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
    found = [value for value in value_N.tolist() if math.isfinite(value)]
    return sum(found) / len(found) if found else None


def _plain(value_N: Float) -> list[float | None]:
    """Return numbers, None for NaN."""
    values: list[float | None] = value_N.tolist()
    return (
        values
        if not np.isnan(value_N).any()
        else [None if value != value else value for value in values]
    )
