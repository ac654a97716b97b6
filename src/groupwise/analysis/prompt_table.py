r"""The prompts of a run: how often each was right, whether it teaches, what it deserves.

A prompt is known again by its text, or by a number that is its own. A visit teaches where its
rewards differ: else its advantages are zero. What a prompt deserves is the allocation of least
variance at as many rollouts as the run spends (`estimators.allocation`), by its newest rewards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from groupwise.analysis.rollouts import tail_of
from groupwise.estimators.allocation import allocation_by_spread, shrunk_variance
from groupwise.intervals import Interval, wilson
from groupwise.parsing import JsonObject
from groupwise.plain import Plain
from groupwise.record.run import RunRecord
from groupwise.series.groups import outcomes_of
from groupwise.wording import count

SHOWN = 40  # prompts of a table
_MOST_PROMPTS = 20_000  # that rollouts are allocated to, the newest
_RECENT = 8  # rollouts that "now" takes, in whole visits
_LONGEST = 160
_PLACES = 2  # batches beyond which a number is no place in one
STANDINGS = {
    "teaches": "rewards of its newest visits differ",
    "solved": "all of them are the highest",
    "too hard": "all of them are the lowest",
    "flat": "all of them are equal",
}
_METHOD = (
    "What a prompt deserves has the least variance of the gradient at as many rollouts as now: 2 "
    "at least, and beyond the first in proportion to the standard deviation of its newest rewards, "
    "as if scores of all prompts had one norm."
)
LOG_PROMPTS = (
    "Log the texts of prompts, or numbers that stay theirs, with their rewards to see which of "
    "them teach."
)


@dataclass(frozen=True, slots=True)
class PromptRow(Plain):
    """One prompt."""

    prompt: str  # its end
    standing: str  # one of STANDINGS
    visits: int
    teaching: int  # visits whose rewards differ
    now: (
        Interval | None
    )  # pass rate over the newest rollouts; None where rewards take more than two values
    mean: float  # reward over the newest rollouts
    rollouts: int  # that `now` and `mean` take
    deserves: int  # rollouts a visit


@dataclass(frozen=True, slots=True)
class PromptTable(Plain):
    """The prompts of a run, or why there is no table of them."""

    said: str  # how many teach, in sentences, or what to log
    method: str = ""  # what the allocation rests on
    binary: bool = False  # whether rewards take two values, so that the mean is a pass rate
    group_size: float = 0.0  # rollouts a visit as it is
    standings: tuple[tuple[str, int], ...] = ()  # how many prompts stand how
    rows: tuple[PromptRow, ...] = ()  # those that deserve most, then those that deserve least


def prompt_table(record: RunRecord, *, shown: int = SHOWN) -> PromptTable:
    """Return the prompts of a run, those that deserve most first."""
    visits = _visits(record)
    if visits is None:
        return PromptTable(LOG_PROMPTS)
    values = visits["low"].min(), visits["high"].max()
    binary = bool(visits["two"].all()) and values[0] != values[1]
    prompts = _prompts(visits).tail(_MOST_PROMPTS)
    size = float(visits["size"].mean())  # type: ignore[arg-type]
    squares, number = (
        prompts[name].cast(pl.Float64).to_numpy() for name in ("squares", "rollouts")
    )
    variance = shrunk_variance(squares, number)
    budget = max(round(size * len(prompts)), 2 * len(prompts))
    given = allocation_by_spread(variance, budget)
    order = np.argsort(-given, kind="stable")
    chosen = (
        order
        if len(order) <= shown
        else np.append(order[: shown - shown // 4], order[-(shown // 4) :])
    )
    standing = [_standing(row, values) for row in prompts.iter_rows(named=True)]
    rows = [
        _row(
            prompts.row(int(at), named=True),
            standing[at],
            int(given[at]),
            values if binary else None,
        )
        for at in chosen
    ]
    standings = tuple((name, standing.count(name)) for name in STANDINGS if name in standing)
    return PromptTable(
        _said(standings, len(prompts), visits, given, size),
        _METHOD,
        binary,
        size,
        standings,
        tuple(rows),
    )


def named_outcomes(record: RunRecord) -> pl.DataFrame | None:
    """Return rewarded completions of groups; `prompt` is null where a prompt is not known again.

    None where there are no such completions.
    """
    outcomes = outcomes_of(record)
    if outcomes is None or "reward" not in outcomes.columns or not outcomes["reward"].count():
        return None
    if "prompt" not in outcomes.columns or not outcomes["prompt"].count():
        widest = outcomes.group_by("step").agg(pl.col("prompt_id").n_unique())["prompt_id"].max()
        # Places in a batch end with it, and name another prompt at each step; numbers beyond are
        # the prompts' own.
        own = outcomes["prompt_id"].max() > _PLACES * widest  # type: ignore[operator]
        outcomes = outcomes.with_columns(
            pl.format("prompt {}", "prompt_id").alias("prompt")
            if own
            else pl.lit(None, pl.Utf8).alias("prompt")
        )
    return outcomes


def _visits(record: RunRecord) -> pl.DataFrame | None:
    """Return the groups whose prompt is known, a row each; None where there are none."""
    outcomes = named_outcomes(record)
    if outcomes is None:
        return None
    named = outcomes.drop_nulls("prompt")
    reward = pl.col("reward")
    extremes = named["reward"].min(), named["reward"].max()
    visits = named.group_by("step", "prompt_id", maintain_order=True).agg(
        pl.col("prompt").first(),
        pl.len().alias("size"),
        reward.mean().alias("mean"),
        ((reward - reward.mean()) ** 2).sum().alias("squares"),
        reward.min().alias("low"),
        reward.max().alias("high"),
        (pl.col("outcome").n_unique() > 1).alias("teaches"),
        reward.is_in(extremes).all().alias("two"),
    )
    return visits.sort("step", maintain_order=True) if len(visits) else None


def _prompts(visits: pl.DataFrame) -> pl.DataFrame:
    """Return a row a prompt, newest last: its visits, and its newest ones together."""
    later = pl.col("size").cum_sum(reverse=True).over("prompt") - pl.col("size")
    recent = visits.filter(later < _RECENT)
    own = pl.col("size").sum().alias("rollouts")
    mean = ((pl.col("mean") * pl.col("size")).sum() / pl.col("size").sum()).alias("mean")
    now = recent.group_by("prompt").agg(
        own, mean, pl.col("squares").sum(), pl.col("low").min(), pl.col("high").max()
    )
    course = visits.group_by("prompt", maintain_order=True).agg(
        pl.len().alias("visits"),
        pl.col("teaches").sum().alias("teaching"),
        pl.col("step").last().alias("last"),
    )
    return course.join(now, on="prompt", how="left", maintain_order="left").sort(
        "last", maintain_order=True
    )


def _standing(row: JsonObject, values: tuple[Any, Any]) -> str:
    """Return how a prompt stands by its newest rollouts."""
    if row["low"] != row["high"]:
        return "teaches"
    if values[0] == values[1]:
        return "flat"
    return (
        "solved" if row["high"] == values[1] else "too hard" if row["low"] == values[0] else "flat"
    )


def _row(row: JsonObject, standing: str, given: int, values: tuple[Any, Any] | None) -> PromptRow:
    """Return one prompt as it is shown."""
    now: Interval | None = None
    if values is not None:
        low, high = values
        passed = round(row["rollouts"] * (row["mean"] - low) / (high - low))
        now = wilson(passed, row["rollouts"])
    return PromptRow(
        tail_of(row["prompt"], _LONGEST)[0].replace("\n", " "),
        standing,
        row["visits"],
        row["teaching"],
        now,
        row["mean"],
        row["rollouts"],
        given,
    )


def _said(
    standings: tuple[tuple[str, int], ...],
    prompts: int,
    visits: pl.DataFrame,
    given: Any,
    size: float,
) -> str:
    """Say how the prompts stand and what the allocation does."""
    verbs = {"teaches": ("teaches", "teach")}
    parts = ", ".join(
        f"{number:,} {verbs.get(name, (f'is {name}', f'are {name}'))[number != 1]}"
        for name, number in standings
    )
    taught = float(visits["teaches"].mean())  # type: ignore[arg-type]
    first = (
        f"Of {count(prompts, 'prompt')}, by the newest rollouts of each, {parts}; "
        f"{100 * taught:.0f} % of all visits taught."
    )
    return (
        f"{first} At {size:,.3g} rollouts a visit on average, they deserve {int(given.min())} to "
        f"{int(given.max())}."
    )
