"""The prompts of a run: how often each was right, and whether it teaches.

A prompt is known again by its text, or by a number that is its own. A visit teaches where its
rewards differ: else its advantages are zero.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from groupwise.analysis.rollouts import tail_of
from groupwise.intervals import Interval, wilson
from groupwise.parsing import JsonObject
from groupwise.plain import Plain, frozen
from groupwise.record.run import RunRecord
from groupwise.series.groups import outcomes_of
from groupwise.wording import count

SHOWN = 40  # prompts of a table
_RECENT = 8  # rollouts that "now" takes, in whole visits
_LONGEST = 160
_PLACES = 2  # batches beyond which a number is no place in one
# rewards of a prompt's newest visits differ, are all the highest, the lowest, equal
STANDINGS = ("teaches", "solved", "too hard", "flat")
LOG_PROMPTS = (
    "Log the texts of prompts, or numbers that stay theirs, with their rewards to see which of "
    "them teach."
)


@frozen
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


@frozen
class PromptTable(Plain):
    """The prompts of a run, or why there is no table of them."""

    said: str  # how many teach, in a sentence, or what to log
    binary: bool = False  # whether rewards take two values, so that the mean is a pass rate
    standings: tuple[tuple[str, int], ...] = ()  # how many prompts stand how
    rows: tuple[PromptRow, ...] = ()  # those that teach most, then those that teach least


def prompt_table(record: RunRecord, *, shown: int = SHOWN) -> PromptTable:
    """Return the prompts of a run, those that teach first."""
    outcomes = named_outcomes(record)
    named = None if outcomes is None else outcomes.drop_nulls("prompt")
    if named is None or named.is_empty():
        return PromptTable(LOG_PROMPTS)
    low, high = named["reward"].min(), named["reward"].max()
    binary, visits = named["reward"].n_unique() == 2, _visits(named)
    prompts = _prompts(visits, low, high)
    last = shown // 4
    ends = pl.concat([prompts.head(shown - last), prompts.tail(last)])
    rows = (prompts if len(prompts) <= shown else ends).iter_rows(named=True)
    number_of = dict(prompts["standing"].value_counts().iter_rows())
    standings = tuple((name, number_of[name]) for name in STANDINGS if name in number_of)
    return PromptTable(
        _said(standings, len(prompts), float(visits["teaches"].mean())),  # type: ignore[arg-type]
        binary,
        standings,
        tuple(_row(row, (low, high) if binary else None) for row in rows),
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


def _visits(named: pl.DataFrame) -> pl.DataFrame:
    """Return the groups whose prompt is known, a row each."""
    reward = pl.col("reward")
    visits = named.group_by("step", "prompt_id", maintain_order=True).agg(
        pl.col("prompt").first(),
        pl.len().alias("size"),
        reward.sum().alias("sum"),
        reward.min().alias("low"),
        reward.max().alias("high"),
        (pl.col("outcome").n_unique() > 1).alias("teaches"),
    )
    return visits.sort("step", maintain_order=True)


def _prompts(visits: pl.DataFrame, lowest: Any, highest: Any) -> pl.DataFrame:
    """Return a row a prompt, those that teach first: its visits, and its newest ones together."""
    later = pl.col("size").cum_sum(reverse=True).over("prompt") - pl.col("size")
    now, low, high = later < _RECENT, pl.col("low"), pl.col("high")
    size = pl.col("size").filter(now).sum()
    prompts = visits.group_by("prompt", maintain_order=True).agg(
        pl.len().alias("visits"),
        pl.col("teaches").sum().alias("teaching"),
        (pl.col("sum").filter(now).sum() / size).alias("mean"),
        size.alias("rollouts"),
        low.filter(now).min(),
        high.filter(now).max(),
    )
    several = pl.lit(lowest < highest)
    standing = (
        pl.when(low != high)
        .then(pl.lit("teaches"))
        .when(several, low == highest)
        .then(pl.lit("solved"))
        .when(several, low == lowest)
        .then(pl.lit("too hard"))
        .otherwise(pl.lit("flat"))
    )
    return prompts.with_columns(standing.cast(pl.Enum(STANDINGS)).alias("standing")).sort(
        "standing", "teaching", descending=[False, True], maintain_order=True
    )


def _row(row: JsonObject, values: tuple[Any, Any] | None) -> PromptRow:
    """Return one prompt as it is shown."""
    now: Interval | None = None
    if values is not None:
        low, high = values
        passed = round(row["rollouts"] * (row["mean"] - low) / (high - low))
        now = wilson(passed, row["rollouts"])
    return PromptRow(
        tail_of(row["prompt"], _LONGEST)[0].replace("\n", " "),
        row["standing"],
        row["visits"],
        row["teaching"],
        now,
        row["mean"],
        row["rollouts"],
    )


def _said(standings: tuple[tuple[str, int], ...], prompts: int, taught: float) -> str:
    """Say how the prompts stand."""
    verbs = {"teaches": ("teaches", "teach")}
    parts = ", ".join(
        f"{number:,} {verbs.get(name, (f'is {name}', f'are {name}'))[number != 1]}"
        for name, number in standings
    )
    return (
        f"Of {count(prompts, 'prompt')}, by the newest rollouts of each, {parts}; "
        f"{100 * taught:.0f} % of all visits taught."
    )
