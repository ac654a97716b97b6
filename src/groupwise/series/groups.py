r"""What the groups of a run say: their spread, and the share of zero-variance groups beside the
share to be expected.

A group has zero variance where all its rewards are equal: it carries no gradient. For rewards of
few values that is expected of $\sum_v p_v^G$ of the groups, which is $p^G + (1-p)^G$ for right and
wrong.
"""

from __future__ import annotations

from dataclasses import field, replace

import numpy as np
import polars as pl

from groupwise.arrays import Flags, Float
from groupwise.estimators.zero_variance import (
    ZeroVarianceOutlook,
    zero_variance_of_columns,
    zero_variance_of_groups,
)
from groupwise.plain import frozen
from groupwise.record.resolution import zero_rows
from groupwise.record.run import RunRecord
from groupwise.series.metric import is_binary_mean

MOST_VALUES = 32
_NO_SPREAD = 1e-6  # a standard deviation that is zero as float32 rounds it
_FEWEST_ROWS, _FEWEST_GROUPS = 20, 64
LOG_COMPLETIONS = "log the completions with their rewards (TRL: log_completions=True)"
_LOGGED_BY = {
    "verl": "trainer.rollout_data_dir=FOLDER",
    "groupwise": "groupwise-lab train --set rollouts_every=1",
}


def log_completions(record: RunRecord) -> str:
    """What to do for completions in the log, by the run's own trainer where it is known."""
    setting = _LOGGED_BY.get(str(record.config.value("framework")))
    return (
        LOG_COMPLETIONS
        if setting is None
        else f"log the completions with their rewards ({setting})"
    )


@frozen
class GroupSeries:
    """One quantity of the groups along the run."""

    source: str  # where it comes from, or why there is none
    step_T: Float = field(
        default_factory=lambda: np.empty(0)
    )  # empty where the quantity is unknown
    value_T: Float = field(default_factory=lambda: np.empty(0))  # nan where missing
    resolution: float = 0.0  # half a unit of the last printed digit, 0 where the values are exact

    @property
    def known(self) -> bool:
        """Whether there is a value anywhere."""
        return bool(np.isfinite(self.value_T).any())

    @property
    def median(self) -> float:
        """Its value in the median row that has one."""
        return float(np.nanmedian(self.value_T))

    @property
    def is_zero(self) -> Flags:
        """The rows that hold 0 and nothing that rounding hides."""
        return zero_rows(
            np.where(np.abs(self.value_T) < _NO_SPREAD, 0.0, self.value_T), self.resolution
        )


@frozen
class GroupEvidence:
    """Spread, share of zero-variance groups, and the share that is to be expected."""

    # within-group standard deviation of the reward, mean over the groups of a step, reward units
    spread: GroupSeries
    zero_variance: GroupSeries  # share of zero-variance groups
    expected: GroupSeries  # that share, expected of independent rollouts
    # why `spread` is the standard deviation over the whole batch; "" where it is within groups
    spread_gap: str = ""
    of_completions: bool = False  # whether the completions themselves were counted


def group_evidence(record: RunRecord) -> GroupEvidence:
    """Collect what completions, or else logged columns, say of the groups."""
    logged = _from_columns(record)
    outcomes = outcomes_of(record)
    if outcomes is None:
        return logged
    completed = _from_outcomes(outcomes)
    if completed.spread.known:
        return completed
    gap = (
        logged.spread_gap
        and "the completions hold what each reward function gave, but not the total"
    )
    return replace(completed, spread=logged.spread, spread_gap=gap)


def zero_variance_outlook(record: RunRecord) -> ZeroVarianceOutlook | None:
    """Return the share of zero-variance groups at G, 2G and 4G from the last quarter of the steps.

    From the rewards of the completions where there are groups of them; else from the share that was
    logged, or from the standard deviation of the reward where a row is one group, with the mean
    reward where that is a share of right answers. None where neither is there, or where the group
    size is not known.
    """
    outcomes = outcomes_of(record)
    if outcomes is not None:
        chosen = outcomes.filter(pl.col("step") >= recent_steps(outcomes)[0])
        label = chosen.select(pl.struct("step", "prompt_id").rank("dense")).to_series().to_numpy()
        return zero_variance_of_groups(
            chosen["outcome"].rank("dense").cast(pl.Float64).to_numpy(), label
        )
    size = record.config.value("group_size")
    if size is None or size < 2:
        return None
    return _outlook_of_columns(record, int(size))


def recent_steps(rollouts: pl.DataFrame) -> tuple[int, int]:
    """Return the last quarter of the steps, or as many more as hold enough groups: the policy
    moves, and the present one counts.
    """
    groups = rollouts.select("step", "prompt_id").unique().group_by("step").len().sort("step")
    step, count = groups["step"].to_numpy(), groups["len"].to_numpy()
    enough = int(np.searchsorted(np.cumsum(count[::-1]), _FEWEST_GROUPS)) + 1
    used = min(len(step), max(enough, -(-len(step) // 4)))
    return int(step[-used]), int(step[-1])


def _outlook_of_columns(record: RunRecord, size: int) -> ZeroVarianceOutlook | None:
    """The outlook from logged columns."""
    prompts = record.config.value("prompts_per_step")
    window = np.maximum(_array(record.steps["window"]), 1)
    groups = (
        None
        if prompts is None or not window.size
        else int(prompts) * round(float(np.median(window)))
    )
    equal = _equal_shares(record, groups)
    if equal is None:
        return None
    rows = np.flatnonzero(np.isfinite(equal) & (equal >= 0) & (equal <= 1))
    rows = rows[-max(_FEWEST_ROWS, -(-len(rows) // 4)) :]
    if not rows.size:
        return None
    rewards = [
        meaning
        for meaning in record.meanings
        if meaning.quantity == "reward" and not meaning.unavailable
    ]
    mean = _array(record.steps[rewards[0].column])[rows] if rewards else None
    counted = mean is not None and groups is not None and bool(np.isfinite(mean).all())
    right = counted and is_binary_mean(
        np.asarray(mean), float(size * (groups or 0)), rewards[0].resolution
    )
    return zero_variance_of_columns(
        equal[rows], size, mean_T=mean if right else None, groups=groups
    )


def _equal_shares(record: RunRecord, groups: int | None) -> Float | None:
    """The share of groups with equal rewards at each step as logged, or by the deviation of its
    one group; None where neither says it.
    """
    track = _logged(record, ("dead_group_share",))
    if track.known:
        return track.value_T
    spread = _logged(record, ("reward_std_within_group", "reward_std_ambiguous"))
    if (
        groups != 1
        or not spread.known
        or (spread.resolution and not spread.is_zero.any() and not spread.value_T.all())
    ):
        # the mean of several deviations does not say how many of them are zero, nor does one that
        # is rounded to nothing
        return None
    return np.where(np.isfinite(spread.value_T), spread.is_zero, np.nan)


def outcomes_of(record: RunRecord) -> pl.DataFrame | None:
    """Return the completions of groups of two and more, each with what it earned; None where that
    is not known.

    Without the total, what every reward function gave stands for it: a group in which none of them
    differs has zero variance whatever their weights.
    """
    rollouts = record.rollouts
    if rollouts is None or not {"step", "prompt_id"} <= set(rollouts.columns):
        return None
    functions = [
        name for name in rollouts.columns if name.startswith("reward/") and rollouts[name].count()
    ]
    if "reward" in rollouts.columns and rollouts["reward"].count():
        rewarded = rollouts.filter(pl.col("reward").is_finite()).with_columns(
            pl.col("reward").round(6).alias("outcome")
        )
    elif functions:
        rewarded = rollouts.filter(
            pl.all_horizontal(pl.col(name).is_finite() for name in functions)
        )
        rewarded = rewarded.with_columns(
            pl.concat_str([pl.col(name).round(6) for name in functions], separator="|").alias(
                "outcome"
            )
        )
    else:
        return None
    rewarded = rewarded.filter(pl.len().over("step", "prompt_id") > 1)
    return rewarded if len(rewarded) else None


def _from_outcomes(outcomes: pl.DataFrame) -> GroupEvidence:
    """Compute spread and shares from the completions themselves."""
    text = [pl.col("prompt").first()] if "prompt" in outcomes.columns else []
    spread = (
        pl.col("reward").std(ddof=1)
        if "reward" in outcomes.columns
        else pl.lit(None, dtype=pl.Float64)
    )
    groups = outcomes.group_by("step", "prompt_id", maintain_order=True).agg(
        pl.len().alias("size"),
        spread.alias("spread"),
        (pl.col("outcome").n_unique() == 1).alias("zero_variance"),
        *text,
    )
    groups, how = _with_expectation(groups, outcomes)
    steps = (
        groups.sort("step", "prompt_id")
        .group_by("step")
        .agg(pl.col("spread", "zero_variance", "expected").mean())
        .sort("step")
    )
    source = f"from {len(outcomes):,} completions in {len(groups):,} groups"
    step = _array(steps["step"])
    return GroupEvidence(
        GroupSeries(source, step, _array(steps["spread"])),
        GroupSeries(source, step, _array(steps["zero_variance"])),
        GroupSeries(how, step, _array(steps["expected"])),
        of_completions=True,
    )


def _with_expectation(groups: pl.DataFrame, outcomes: pl.DataFrame) -> tuple[pl.DataFrame, str]:
    """Add the probability that a group has zero variance, estimated without bias, from other
    completions than its own where possible.
    """
    values = outcomes["outcome"].n_unique()
    if values > MOST_VALUES:
        how = (
            f"unavailable: the reward takes {values:,} values, and the expectation needs one of "
            f"few values (at most {MOST_VALUES})"
        )
        return groups.with_columns(pl.lit(None, dtype=pl.Float64).alias("expected")), how
    if "prompt" in groups.columns and groups["prompt"].null_count() < len(groups):
        by_prompt = _prompt_expectation(groups, outcomes)
        if 2 * by_prompt["expected"].count() >= len(by_prompt):
            return (
                by_prompt,
                (
                    "each prompt's success rate taken from its visits just before and after, then "
                    "the mean over prompts"
                ),
            )
    expected = _step_expectation(groups, outcomes)
    return (
        expected,
        (
            "as if all prompts of a step were equally hard, which gives the smallest share that "
            "can be expected"
        ),
    )


def _step_expectation(groups: pl.DataFrame, outcomes: pl.DataFrame) -> pl.DataFrame:
    """Add the probability of zero variance as if all rollouts of a step were exchangeable."""
    counts = (
        outcomes.group_by("step", "outcome")
        .agg(pl.len().alias("k"))
        .with_columns(pl.col("k").sum().over("step").alias("m"))
    )
    sizes = groups.select("step", "size").unique().join(counts, on="step")
    return _expected(groups, sizes, sizes.columns, ["step", "size"])


def _prompt_expectation(groups: pl.DataFrame, outcomes: pl.DataFrame) -> pl.DataFrame:
    """Add the probability of zero variance by the same prompt's visits just before and after; null
    where there is neither.

    Neighbouring visits and no others, because the policy moves: a rate pooled over the whole run
    fits no step of it.
    """
    visits = groups.sort("step", "prompt_id").with_columns(
        pl.int_range(pl.len()).over("prompt").alias("visit")
    )
    counts = outcomes.group_by("step", "prompt_id", "outcome").agg(pl.len().alias("k"))
    counts = (
        visits.select("step", "prompt_id", "prompt", "visit")
        .join(counts, on=["step", "prompt_id"])
        .select("prompt", "visit", "outcome", "k")
    )
    neighbours = pl.concat(
        [counts.with_columns(pl.col("visit") + 1), counts.with_columns(pl.col("visit") - 1)]
    )
    pool = (
        neighbours.group_by("prompt", "visit", "outcome")
        .agg(pl.col("k").sum())
        .with_columns(pl.col("k").sum().over("prompt", "visit").alias("m"))
    )
    table = visits.join(pool, on=["prompt", "visit"]).filter(pl.col("m") >= pl.col("size"))
    return _expected(groups, table, ["k", "m"], ["step", "prompt_id"])


def _expected(
    groups: pl.DataFrame, counts: pl.DataFrame, order: list[str], keys: list[str]
) -> pl.DataFrame:
    """Add the sums of the chances that counts of outcomes have, added up in their order."""
    chance = counts.with_columns(all_from(counts["k"], counts["m"], counts["size"]))
    expected = chance.sort(order).group_by(keys).agg(pl.col("chance").sum().alias("expected"))
    return groups.join(expected, on=keys, how="left")


def all_from(k: pl.Series, m: pl.Series, size: pl.Series) -> pl.Series:
    r"""Return the unbiased estimate of $p^G$ from k successes in m draws, $\binom{k}{G} /
    \binom{m}{G}$.
    """
    from scipy.special import gammaln

    successes, draws, group = _array(k), _array(m), _array(size)
    enough = (successes >= group) & (draws >= group)

    def logarithm(count: Float) -> Float:
        return np.asarray(gammaln(count + 1) - gammaln(np.maximum(count - group, 0) + 1))

    chance = np.exp(logarithm(np.where(enough, successes, draws)) - logarithm(draws))
    return pl.Series("chance", np.where(enough, chance, 0.0))


def _from_columns(record: RunRecord) -> GroupEvidence:
    """Return spread and shares as the trainer logged them."""
    spread = _logged(record, ("reward_std_within_group", "reward_std_ambiguous"))
    zero_variance = _logged(record, ("dead_group_share",))
    return GroupEvidence(
        spread if spread.known else _logged(record, ("reward_std_batch",)),
        zero_variance,
        _expected_from_mean(record)
        if zero_variance.known
        else GroupSeries(f"unavailable: {LOG_COMPLETIONS}"),
        spread_gap="" if spread.known else LOG_COMPLETIONS,
    )


def _logged(record: RunRecord, quantities: tuple[str, ...]) -> GroupSeries:
    """Return the first of the quantities that was logged, with its definition."""
    for quantity in quantities:
        for meaning in record.meanings:
            if (
                meaning.quantity == quantity
                and not meaning.unavailable
                and record.steps[meaning.column].count()
            ):
                doubt = "; ambiguous" if meaning.ambiguous else ""
                source = f"logged as {meaning.column}: {meaning.definition}{doubt}"
                step, value = _array(record.steps["step"]), _array(record.steps[meaning.column])
                return GroupSeries(source, step, value, meaning.resolution)
    return GroupSeries(f"unavailable: not in the log; {LOG_COMPLETIONS}")


def _expected_from_mean(record: RunRecord) -> GroupSeries:
    """Return the expectation by the mean reward alone, where that can only be a share of right
    answers.
    """
    size, prompts = record.config.value("group_size"), record.config.value("prompts_per_step")
    rewards = [meaning for meaning in record.meanings if meaning.quantity == "reward"]
    if size is None or prompts is None or not rewards:
        return GroupSeries(
            "unavailable: give --set group_size=G and --set prompts_per_step=B, or "
            f"{LOG_COMPLETIONS}"
        )
    mean = _array(record.steps[rewards[0].column])
    finite = np.isfinite(mean)
    window = np.maximum(_array(record.steps["window"])[finite], 1)
    rollouts = float(size) * float(prompts) * (float(np.median(window)) if window.size else 1.0)
    if not is_binary_mean(mean[finite], rollouts, rewards[0].resolution):
        return GroupSeries(
            f"unavailable: the mean reward is no count of right answers; {LOG_COMPLETIONS}"
        )
    how = (
        "from the step's mean reward as if all prompts were equally hard, which gives the smallest "
        "share that can be expected"
    )
    return GroupSeries(how, _array(record.steps["step"]), mean**size + (1 - mean) ** size)


def _array(series: pl.Series) -> Float:
    """Return a column as float64, nulls as nan."""
    return series.cast(pl.Float64).to_numpy()
