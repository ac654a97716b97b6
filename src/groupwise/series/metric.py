r"""One metric of a record as arrays, its values, its clock and the sampling noise that its groups
account for; and what groups say: their spread, and the share of zero-variance groups beside the
share to be expected.

A group has zero variance where all its rewards are equal: it carries no gradient. For rewards of
few values that is expected of $\sum_v p_v^G$ of the groups, which is $p^G + (1-p)^G$ for right and
wrong.
"""

from dataclasses import field, replace
from typing import Literal

import numpy as np
import polars as pl

from groupwise.arrays import Ends, Flags, Float, Whole, mean_around, no_rows
from groupwise.errors import InvalidArgumentError
from groupwise.estimators.zero_variance import (
    ZeroVarianceOutlook,
    zero_variance_of_columns,
    zero_variance_of_groups,
)
from groupwise.parsing import LARGEST_VALUE
from groupwise.plain import Words, frozen
from groupwise.record.run import RunRecord
from groupwise.record.table import zero_rows

_CHANCE = 1e-3  # of rounded values that all lie near multiples by luck

ClockName = Literal["updates", "steps"]


@frozen
class MetricSeries:
    """One metric of a run.

    Args:
        metric: the log's own key.
        step_T: logged steps at which the metric has a value.
        time_T: optimiser updates done by then.
        value_T: the values.
        variance_T: sampling variance of each value by the groups alone, or None where it is
            unavailable.
        window: updates that one row averages over.
        smoothing: 1 where a known trainer wrote the log itself or the user says so, else None: a
            smoothed export is possible.
        seconds_T: cumulative seconds, or None.
        noise_source: where the variance comes from, or why there is none.
        healthy: "up" for a reward, "any" for what may fall in health.
        bounds: the range that the metric cannot leave: of a share, or where the smallest and the
            largest reward of completions are the same in all rows and hold every mean; None where
            none is known.
        resolution: half a unit of the last printed digit, 0 where the values are exact.
        rate_T: the learning rate at each row, or None where it is not logged throughout.
        ends: 0 and 1, or what logged rewards of completions reach beyond them.
    """

    metric: str
    step_T: Whole
    time_T: Float
    value_T: Float
    variance_T: Float | None
    window: float
    smoothing: int | None
    seconds_T: Float | None
    noise_source: str
    healthy: Literal["up", "any"]
    bounds: Ends | None = None
    resolution: float = 0.0
    rate_T: Float | None = None
    ends: Ends = (0.0, 1.0)

    @property
    def likely_bounds(self) -> Ends | None:
        """The range where it is known; else that of completions, 0 to 1 at least, for a reward that
        never left 0 to 1: a sum of several functions may yet.
        """
        inside = self.healthy == "up" and _inside(self.value_T)
        return self.ends if inside and self.bounds is None else self.bounds


def metric_series(
    record: RunRecord, metric: str = "reward", *, clock: ClockName = "updates"
) -> MetricSeries:
    """Take one metric out of a record.

    Args:
        record: the run.
        metric: a key of the log, or a canonical quantity.
        clock: what `time_T` counts.

    Returns:
        The rows where the metric has a finite value, of at most 1e100 in size: the square of a
            larger one is no number any more.

    Raises:
        MissingMetricError: the log has no such metric.
        InvalidArgumentError: the clock is unknown.

    Example:
        >>> from groupwise.record.run import steps_table
        >>> series = metric_series(
        ...     RunRecord("demo", steps_table([1, 2, 3], {"reward": [0.1, float("nan"), 0.3]}))
        ... )
        >>> series.step_T.tolist(), series.noise_source
        ([1, 3], 'unavailable, because the group size or the number of prompts per step is unknown;
        give --set group_size=G --set prompts_per_step=B')
    """
    column = record.column(metric)
    finite = np.abs(record.values(column)) <= LARGEST_VALUE
    rows = record.steps if finite.all() else record.steps.filter(finite)
    value = _array(rows[column])
    step = rows["step"].to_numpy().astype(np.int64)
    window = float(rows["window"].median() or 1.0) if len(rows) else 1.0  # type: ignore[arg-type]
    meaning = record.meaning(column)
    quantity, resolution = (meaning.quantity, meaning.resolution) if meaning else ("", 0.0)
    name = "reward" if column == "reward" else quantity
    rewards = "reward/", "eval/reward"
    rewarding = name == "reward" or column == "eval_reward" or name.startswith(rewards)
    variance, source = _sampling_variance(record, rows, name, value, window, resolution)
    share = rewarding and _is_share(record, name, value, window, resolution)
    ends, steady = _ends(record, rows, value) if quantity == "reward" else ((0.0, 1.0), False)
    return MetricSeries(
        metric=column,
        step_T=step,
        time_T=_time(rows, step, clock),
        value_T=value,
        variance_T=variance,
        window=max(window, 1.0),
        smoothing=_smoothing(record),
        seconds_T=_throughout(rows, "seconds"),
        noise_source=source,
        healthy="up" if rewarding else "any",
        bounds=(0.0, 1.0) if share else ends if steady else None,
        resolution=resolution,
        rate_T=_throughout(rows, "learning_rate", gaps=1),
        ends=ends,
    )


def rollout_rewards(record: RunRecord) -> Float:
    """Return the finite rewards of the rollouts."""
    if record.rollouts is None or "reward" not in record.rollouts:
        return np.zeros(0)
    value = _array(record.rollouts["reward"].drop_nulls())
    return np.asarray(value[np.isfinite(value)])


def _ends(record: RunRecord, rows: pl.DataFrame, value_T: Float) -> tuple[Ends, bool]:
    """Return 0 and 1, or what logged rewards of completions reach beyond them, and whether no mean
    can leave that: the smallest and the largest are logged in half of its rows or more, each the
    same in all of them, and no mean lies outside.
    """
    sides = [
        np.array([_array(rows[m.column]) for m in record.meanings if m.quantity == side])
        for side in ("reward_min", "reward_max")
    ]
    every = np.concatenate([[0.0, 1.0], rollout_rewards(record), *map(np.ravel, sides)])
    every = every[np.abs(every) <= LARGEST_VALUE]
    ends = float(every.min()), float(every.max())
    steady = _inside(value_T, ends) and all(
        side.size <= 2 * np.isfinite(side).sum() and np.unique(side[np.isfinite(side)]).size == 1
        for side in sides
    )
    return ends, steady


def _time(rows: pl.DataFrame, step_T: Whole, clock: ClockName) -> Float:
    """Return what the clock counts at each row: steps, or updates where they are known and rise."""
    if clock not in ("updates", "steps"):
        raise InvalidArgumentError(f"a clock has to count updates or steps; got {clock!r}")
    steps = step_T.astype(float)
    updates = rows["optimizer_updates"].to_numpy()
    rising = np.isfinite(updates).all() and (np.diff(updates) > 0).all()
    return updates if clock == "updates" and rising else steps


def _smoothing(record: RunRecord) -> int | None:
    """Return the rows over which the series was averaged before it was logged, where that is
    known.
    """
    stated = record.config.value("smoothing")
    if stated is not None:
        return int(stated)
    readers = {source.reader for source in record.sources}
    own = record.config.value("framework") or any("trl" in name for name in readers)
    return 1 if own and "csv" not in readers else None


def _inside(value_T: Float, ends: Ends = (0.0, 1.0)) -> bool:
    """Return whether there are values, all of them in a range."""
    return bool(value_T.size and value_T.min() >= ends[0] and value_T.max() <= ends[1])


def _is_share(
    record: RunRecord, name: str, value_T: Float, window: float, resolution: float
) -> bool:
    """Return whether the metric is a mean of zeros and ones."""
    if not _inside(value_T):
        return False
    if record.rollouts is not None and name in record.rollouts:
        return bool(record.rollouts[name].drop_nulls().is_in([0.0, 1.0]).all())
    rollouts = _rollouts_of_a_step(record)
    return rollouts is not None and is_binary_mean(value_T, rollouts * window, resolution)


def _rollouts_of_a_step(record: RunRecord) -> float | None:
    """Return B G: by the settings, else by the columns of the steps (the group size may change),
    else by the completions of whole steps.
    """
    if not len(record.steps):
        return None
    factors = [
        pl.lit(float(value)) if value is not None else pl.col(column)
        for name, column in (("group_size", "group_size"), ("prompts_per_step", "prompts"))
        if (value := record.config.value(name)) is not None or column in record.steps
    ]
    if len(factors) == 2:
        product = record.steps.select((factors[0] * factors[1]).median()).item()
        return None if product is None else float(product)
    if record.rollouts is None or not ("reward" in record.rollouts and "reward" in record.steps):
        return None
    counted = record.rollouts.group_by("step").agg(mean=pl.col("reward").mean(), count=pl.len())
    both = counted.join(record.steps.select("step", "reward"), on="step")
    meaning = record.meaning("reward")
    rounding = meaning.resolution if meaning else 0.0
    apart = (both["mean"] - both["reward"]).abs() >= max(1e-6, 2 * rounding)
    if not len(both) or not (~apart).all():  # a few completions of each step, perhaps
        return None
    return float(both["count"].median())  # type: ignore[arg-type]


def _throughout(rows: pl.DataFrame, name: str, *, gaps: int = 0) -> Float | None:
    """Return a column, or None where it is not known throughout, but for so many rows between
    others, as of what is logged by turns.
    """
    if not len(rows) or name not in rows:
        return None
    values = rows[name]
    if gaps:
        every = values.forward_fill(gaps).backward_fill(gaps)
        values = values.interpolate().fill_null(every) if not every.null_count() else values
    return None if values.null_count() else _array(values)


def _sampling_variance(
    record: RunRecord,
    rows: pl.DataFrame,
    name: str,
    value_T: Float,
    window: float,
    resolution: float,
) -> tuple[Float | None, str]:
    """Return the variance of each value that the rollouts of its step alone explain, and how it
    is known.
    """
    if name != "reward" and not name.startswith("reward/"):
        return None, "unavailable, because it is known for training rewards only"
    from_rollouts = _from_rollouts(record, rows, name)
    if from_rollouts is not None:
        return (
            from_rollouts / window,
            "variance of the group means of the logged rollouts, over the number of prompts B",
        )
    rollouts = _rollouts_of_a_step(record)
    if rollouts is None:
        return None, (
            "unavailable, because the group size or the number of prompts per step is unknown; "
            "give --set group_size=G --set prompts_per_step=B"
        )
    count = rollouts * window
    if is_binary_mean(value_T, count, resolution):
        level = np.clip(_smooth(value_T), 0.5 / count, 1 - 0.5 / count)
        return level * (1 - level) / count, (
            f"binomial variance p(1-p)/(B G) with B G = {count / window:g}; differences between "
            "prompts add to it and count as noise of the run"
        )
    return _from_logged_std(record, rows, name, count)


def _from_rollouts(record: RunRecord, rows: pl.DataFrame, name: str) -> Float | None:
    """Return the variance of the group means over B at each step: prompts and completions are both
    drawn anew.

    It is never below sum s_g^2 / G over B^2, which the completions alone explain. Steps without
    rollouts take the mean of the others.
    """
    rollouts = record.rollouts
    if rollouts is None or name not in rollouts:
        return None
    groups = (
        rollouts.filter(pl.col(name).is_not_null())
        .group_by("step", "prompt_id", maintain_order=True)
        .agg(mean=pl.col(name).mean(), within=pl.col(name).var(ddof=1) / pl.len(), size=pl.len())
        .filter(pl.col("size") >= 2)
    )
    steps = groups.group_by("step", maintain_order=True).agg(
        between=pl.col("mean").var(ddof=1) / pl.len(), within=pl.col("within").sum() / pl.len() ** 2
    )
    if len(steps) < max(3, len(rows) // 4):
        return None
    joined = rows.select("step").join(steps, on="step", how="left", maintain_order="left")
    both = [_filled(_array(joined[column])) for column in ("between", "within")]
    variance = np.maximum(*both)
    return variance if variance.max() > 0 else None


def _filled(variance_T: Float) -> Float:
    """Replace missing values by the mean of the others and average neighbours; zeros where
    nothing is known.
    """
    finite = np.isfinite(variance_T)
    if not finite.any():
        return np.zeros(variance_T.size)
    return _smooth(np.where(finite, variance_T, variance_T[finite].mean()))


def is_binary_mean(value_T: Float, count: float, resolution: float = 0.0) -> bool:
    """Return whether the values are multiples of one over the number of rollouts: the mark of a
    0/1 reward.
    """
    if not _inside(value_T) or count > 20_000:
        return False
    scaled = value_T * count
    # Logs keep six digits or more: a multiple is hit to a millionth of the count, and by chance
    # hardly ever.
    off, near = np.abs(scaled - np.round(scaled)).max(), 1e-3 + max(1e-6, resolution) * count
    by_luck = (2 * near) ** np.unique(
        value_T
    ).size > _CHANCE  # rounded so far that any number is near a multiple
    return off < 1e-3 + 1e-6 * count or (off < near and not by_luck)


def _from_logged_std(
    record: RunRecord, rows: pl.DataFrame, name: str, count: float
) -> tuple[Float | None, str]:
    """Return the variance by the reward's standard deviation, where the log says which one it
    is.
    """
    for quantity, kind in (
        ("reward_std_within_group", "within-group"),
        ("reward_std_batch", "batch-wide"),
        (
            "reward_std_ambiguous",
            "logged (within-group or batch-wide: the log cannot tell)",
        ),
    ):
        meaning = next((m for m in record.meanings if m.quantity == quantity), None)
        if name == "reward" and meaning and meaning.column in rows:
            variance = _array(rows[meaning.column]) ** 2 / count
            if np.isfinite(variance).any():
                return _filled(variance), (
                    f"{kind} standard deviation of the reward over the square root of B G = "
                    f"{count:g} rollouts per row"
                )
    return None, "unavailable, because the reward is not 0/1 and its deviation is not logged"


def _smooth(value_T: Float) -> Float:
    """Average up to eleven neighbouring rows: a single step's variance is itself noisy."""
    return mean_around(value_T, min(5, max((value_T.size - 1) // 2, 0)))


MOST_VALUES = 32
_NO_SPREAD = 1e-6  # a standard deviation that is zero as float32 rounds it
_FEWEST_ROWS, _FEWEST_GROUPS = 20, 64
_OF_TRL = "TRL: log_completions=True"
LOG_COMPLETIONS = f"log the completions with prompts and rewards ({_OF_TRL})"
_LOGGED_BY = {
    "verl": "trainer.rollout_data_dir=FOLDER",
    "groupwise": "groupwise-lab train --set rollouts_every=1",
}


def log_completions(record: RunRecord) -> str:
    """What to do for completions: give those beside the log that were left out, else log them, by
    the run's own trainer where it is known.
    """
    setting = _LOGGED_BY.get(str(record.config.value("framework")), _OF_TRL)
    return record.unread or LOG_COMPLETIONS.replace(_OF_TRL, setting)


@frozen
class GroupSeries:
    """One quantity of the groups along the run."""

    source: str  # where it comes from, or why there is none
    step_T: Float = field(default_factory=no_rows)  # empty where the quantity is unknown
    value_T: Float = field(default_factory=no_rows)  # nan where missing
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
        and "the completions have the value of each reward function, but not the total"
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
    window = np.maximum(record.values("window"), 1)
    groups = (
        None
        if prompts is None or not window.size
        else int(prompts) * round(float(np.median(window)))
    )
    equal = _equal_shares(record, groups)
    if equal is None:
        return None
    rows = np.flatnonzero((equal >= 0) & (equal <= 1))
    rows = rows[-max(_FEWEST_ROWS, -(-len(rows) // 4)) :]
    if not rows.size:
        return None
    rewards = [
        meaning
        for meaning in record.meanings
        if meaning.quantity == "reward" and not meaning.unavailable
    ]
    right = None
    if rewards and groups:
        mean = record.values(rewards[0].column)[rows]
        if is_binary_mean(mean, size * groups, rewards[0].resolution):
            right = mean
    return zero_variance_of_columns(equal[rows], size, mean_T=right, groups=groups)


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

    Where the total is missing, the rewards of all functions stand in for it: a group in which none
    of them differs has zero variance, whatever their weights.
    """
    rollouts = record.rollouts
    if rollouts is None or not {"step", "prompt_id"} <= set(rollouts.columns):
        return None
    functions = [
        name for name in rollouts.columns if name.startswith("reward/") and rollouts[name].count()
    ]
    if "reward" in rollouts and rollouts["reward"].count():
        earned = pl.col("reward")
        outcome = earned.round(6)
    elif functions:
        earned = pl.col(functions)
        outcome = pl.concat_str(earned.round(6), separator="|")
    else:
        return None
    rewarded = rollouts.filter(pl.all_horizontal(earned.is_finite())).with_columns(outcome=outcome)
    rewarded = rewarded.filter(pl.len().over("step", "prompt_id") > 1)
    return rewarded if len(rewarded) else None


def _from_outcomes(outcomes: pl.DataFrame) -> GroupEvidence:
    """Compute spread and shares from the completions themselves."""
    text = [pl.col("prompt").first()] if "prompt" in outcomes else []
    spread = (
        pl.col("reward").std(ddof=1) if "reward" in outcomes else pl.lit(None, dtype=pl.Float64)
    )
    groups = outcomes.group_by("step", "prompt_id", maintain_order=True).agg(
        *text, size=pl.len(), spread=spread, zero_variance=pl.col("outcome").n_unique() == 1
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
        how = f"unavailable: the reward takes {values:,} values, more than {MOST_VALUES}"
        return groups.with_columns(expected=pl.lit(None, dtype=pl.Float64)), how
    again = groups.get_column("prompt", default=groups["size"].clear()).drop_nulls().is_duplicated()
    if 2 * again.sum() >= len(groups):  # of a prompt that never comes back no other visit tells
        by_prompt = _prompt_expectation(groups, outcomes)
        if 2 * by_prompt["expected"].count() >= len(by_prompt):
            return (
                by_prompt,
                "from the success rate of each prompt just before and after, averaged over prompts",
            )
    return (
        _step_expectation(groups, outcomes),
        "computed as if all prompts of a step were equally hard, which gives a lower bound",
    )


def _step_expectation(groups: pl.DataFrame, outcomes: pl.DataFrame) -> pl.DataFrame:
    """Add the probability of zero variance as if all rollouts of a step were exchangeable."""
    counts = (
        outcomes.group_by("step", "outcome")
        .agg(k=pl.len())
        .with_columns(m=pl.col("k").sum().over("step"))
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
        visit=pl.int_range(pl.len()).over("prompt")
    )
    counts = outcomes.group_by("step", "prompt_id", "outcome").agg(k=pl.len())
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
        .with_columns(m=pl.col("k").sum().over("prompt", "visit"))
    )
    table = visits.join(pool, on=["prompt", "visit"]).filter(pl.col("m") >= pl.col("size"))
    return _expected(groups, table, ["k", "m"], ["step", "prompt_id"])


def _expected(
    groups: pl.DataFrame, counts: pl.DataFrame, order: list[str], keys: list[str]
) -> pl.DataFrame:
    """Add the sums of the chances that counts of outcomes have, added up in their order."""
    chance = counts.with_columns(all_from(counts["k"], counts["m"], counts["size"]))
    return groups.join(
        chance.sort(order).group_by(keys).agg(expected=pl.col("chance").sum()), on=keys, how="left"
    )


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


def _logged(record: RunRecord, quantities: Words) -> GroupSeries:
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
                step, value = record.values("step"), record.values(meaning.column)
                return GroupSeries(source, step, value, meaning.resolution)
    return GroupSeries(f"unavailable: it is not in the log; {LOG_COMPLETIONS}")


def _expected_from_mean(record: RunRecord) -> GroupSeries:
    """Return the expectation by the mean reward alone, where that can only be a share of right
    answers.
    """
    size, prompts = record.config.value("group_size"), record.config.value("prompts_per_step")
    rewards = [meaning for meaning in record.meanings if meaning.quantity == "reward"]
    if size is None or prompts is None or not rewards:
        return GroupSeries(
            f"unavailable: give --set group_size=G --set prompts_per_step=B, or {LOG_COMPLETIONS}"
        )
    mean = record.values(rewards[0].column)
    finite = np.isfinite(mean)
    window = np.maximum(record.values("window")[finite], 1)
    rollouts = size * prompts * (np.median(window) if window.size else 1.0)
    if not is_binary_mean(mean[finite], rollouts, rewards[0].resolution):
        return GroupSeries(
            f"unavailable: the mean reward is not a count of right completions; {LOG_COMPLETIONS}"
        )
    how = "from the mean reward as if all prompts were equally hard, which gives a lower bound"
    return GroupSeries(how, record.values("step"), mean**size + (1 - mean) ** size)


def _array(series: pl.Series) -> Float:
    """Return a column as float64, nulls as nan."""
    return series.cast(pl.Float64).to_numpy()
