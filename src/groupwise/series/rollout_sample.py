"""Which groups of a run are scored: whole groups near a step, each prompt once, none that the
model cannot read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import polars as pl

from groupwise.errors import InsufficientDataError
from groupwise.estimators.moments import SMALLEST_GROUP
from groupwise.plain import frozen
from groupwise.record.run import RunRecord
from groupwise.wording import count

_LONGEST_TEXTS = 4096


@frozen
class Sample:
    """Rollouts of a sample of groups."""

    rows: (
        pl.DataFrame
    )  # step, prompt_id, prompt, completion, reward and group, a row a rollout, group after group
    # groups of the run that were other visits of prompts that have their group already
    repeated: int
    notes: tuple[str, ...]  # sentences on what was left aside
    longest: tuple[str, ...] = ()
    # where no setting says at how many tokens completions were truncated, the longest of the whole
    # log


def sample_groups(
    record: RunRecord, centre: int | None, *, groups: int, steps: tuple[int, int] | None, seed: int
) -> Sample:
    """Draw whole groups, those nearest to a step first; of a prompt that was visited at several
    steps only the nearest visit.

    Visits of one prompt have one gradient g(x): taken for different prompts they would shrink the
    variance between prompts.
    """
    rows = _scorable(record)
    if steps is not None:
        rows = rows.filter(pl.col("step").is_between(*steps))
    sizes = rows.group_by("step", "prompt_id").agg(pl.len().alias("size"), pl.col("prompt").first())
    sizes = sizes.filter(pl.col("size") >= SMALLEST_GROUP).sort("step", "prompt_id")
    different = sizes["prompt"].n_unique()
    if different < 2:
        where = "" if steps is None else f" in steps {steps[0]} to {steps[1]}"
        raise InsufficientDataError(
            f"expected at least two different prompts with groups of {SMALLEST_GROUP} rollouts "
            f"with texts and rewards, got {different}{where}: log more"
        )
    middle = int(cast("int", rows["step"].max())) if centre is None else centre
    order = np.random.default_rng(seed).permutation(len(sizes))
    # A stable sort by distance from the checkpoint keeps the shuffled order within a step: a random
    # part of the last step taken.
    chosen = (
        sizes.with_columns(
            pl.Series("order", order), (pl.col("step") - middle).abs().alias("distance")
        )
        .sort("distance", "order")
        .unique("prompt", keep="first", maintain_order=True)
        .head(groups)
        .with_row_index("group")
        .select("step", "prompt_id", "group")
    )
    rows = rows.join(chosen, on=["step", "prompt_id"], how="inner", maintain_order="left").sort(
        "group", maintain_order=True
    )
    rows = record.with_completions(rows)
    longest: tuple[str, ...] = ()
    if record.config.value("max_completion_length") is None and record.rollouts is not None:
        sized = record.with_completions(
            record.rollouts.select("completion").drop_nulls(),
            pl.col("completion").str.len_bytes().alias("size"),
        )
        largest = record.with_completions(sized.top_k(_LONGEST_TEXTS, by="size"))
        longest = tuple(largest["completion"])
    repeated = len(sizes) - different
    if not repeated:
        return Sample(rows, 0, (), longest)
    note = (
        f"The {len(sizes):,} groups are visits of {count(different, 'different prompt')}: each "
        f"prompt counts once, at its visit nearest to step {middle:,}, for prompts and not visits "
        "are the independent units."
    )
    return Sample(rows, repeated, (note,), longest)


def without_groups(
    rows: pl.DataFrame, wrong: Sequence[int], limit: int
) -> tuple[pl.DataFrame, int, tuple[str, ...]]:
    """Leave out the groups of rollouts that are longer than a model can read: a group without
    its longest answers is no sample.
    """
    if not wrong:
        return rows, 0, ()
    whole = rows["group"].n_unique()
    bad = rows[list(wrong)]["group"].unique()
    kept = rows.filter(~pl.col("group").is_in(bad.implode()))
    if whole - len(bad) < 2:
        raise InsufficientDataError(
            f"expected at least two groups whose rollouts fit the model's context of {limit} "
            f"tokens, got {whole - len(bad)} of {whole}: give the checkpoint that sampled them"
        )
    note = (
        f"{len(bad):,} of {whole:,} groups were left out: {len(wrong):,} of their rollouts are "
        f"longer than the model's context of {limit} tokens. Prompts with long answers are "
        "underrepresented."
    )
    return kept, len(bad), (note,)


def _scorable(record: RunRecord) -> pl.DataFrame:
    """Return the rollouts that have what a score and an advantage need."""
    if record.rollouts is None or not {"prompt", "completion", "reward"} <= set(
        record.rollouts.columns
    ):
        raise InsufficientDataError(
            f"expected rollouts with prompt, completion and reward in {record.name}, got none: log "
            "them (TRL: log_completions=True)"
        )
    wanted = ("step", "prompt_id", "prompt", "completion", "reward")
    rows = record.rollouts.select(
        *wanted, *({"ended", "end_token"} & set(record.rollouts.columns))
    ).drop_nulls(wanted)
    rows = rows.filter(pl.col("reward").is_finite())
    if not len(rows):
        raise InsufficientDataError(
            f"expected texts and total rewards in the rollouts of {record.name}, got none: name "
            "the reward with --column"
        )
    return rows
