"""One metric of a record as arrays: its values, its clock, and the sampling noise that its
groups account for.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import polars as pl

from groupwise.arrays import Float, Whole, mean_around
from groupwise.errors import InvalidArgumentError
from groupwise.limits import LARGEST_VALUE
from groupwise.plain import frozen
from groupwise.record.run import RunRecord

_CHANCE = 1e-3  # of rounded values that all lie near multiples by luck

Clock = Literal["updates", "steps"]


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
        bounds: the range that the metric cannot leave, or None where none is known.
        resolution: half a unit of the last printed digit, 0 where the values are exact.
        rate_T: the learning rate at each row, or None where it is not logged throughout.
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
    bounds: tuple[float, float] | None = None
    resolution: float = 0.0
    rate_T: Float | None = None

    @property
    def likely_bounds(self) -> tuple[float, float] | None:
        """The range where it is known; else 0 to 1 for a reward that never left it: a sum of
        several functions may yet.
        """
        if self.bounds is not None or self.healthy != "up" or not self.value_T.size:
            return self.bounds
        return (0.0, 1.0) if self.value_T.min() >= 0 and self.value_T.max() <= 1 else None


def metric_series(
    record: RunRecord, metric: str = "reward", *, clock: Clock = "updates"
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
        ([1, 3], 'unavailable: the group size and the prompts a step are unknown; give --set
        group_size=G --set prompts_per_step=B')
    """
    column = record.column(metric)
    finite = np.abs(record.values(column)) <= LARGEST_VALUE
    rows = record.steps if finite.all() else record.steps.filter(finite)
    value = rows[column].to_numpy().astype(float)
    step = rows["step"].to_numpy().astype(np.int64)
    window = float(rows["window"].median() or 1.0) if len(rows) else 1.0  # type: ignore[arg-type]
    meaning = record.meaning(column)
    quantity = meaning.quantity if meaning else ""
    rewarding = (
        quantity.startswith(("reward/", "eval/reward"))
        or quantity == "reward"
        or column in ("reward", "eval_reward")
    )
    resolution = meaning.resolution if meaning else 0.0
    variance, source = _sampling_variance(record, rows, column, quantity, value, window, resolution)
    share = rewarding and _is_share(record, column, quantity, value, window, resolution)
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
        bounds=(0.0, 1.0) if share else None,
        resolution=resolution,
        rate_T=_throughout(rows, "learning_rate"),
    )


def _time(rows: pl.DataFrame, step_T: Whole, clock: Clock) -> Float:
    """Return what the clock counts at each row: steps, or updates where they are known and rise."""
    if clock not in ("updates", "steps"):
        raise InvalidArgumentError(f"a clock counts updates or steps; got {clock!r}")
    steps = step_T.astype(float)
    updates = rows["optimizer_updates"].to_numpy()
    rising = bool(np.isfinite(updates).all()) and bool((np.diff(updates) > 0).all())
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


def _is_share(
    record: RunRecord, column: str, quantity: str, value_T: Float, window: float, resolution: float
) -> bool:
    """Return whether the metric is a mean of zeros and ones."""
    if not value_T.size or value_T.min() < 0 or value_T.max() > 1:
        return False
    name = "reward" if column == "reward" else quantity
    if record.rollouts is not None and name in record.rollouts.columns:
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
        if (value := record.config.value(name)) is not None or column in record.steps.columns
    ]
    if len(factors) == 2:
        product = record.steps.select((factors[0] * factors[1]).median()).item()
        return None if product is None else float(product)
    if record.rollouts is None or not (
        "reward" in record.rollouts.columns and "reward" in record.steps.columns
    ):
        return None
    counted = record.rollouts.group_by("step").agg(
        pl.col("reward").mean().alias("mean"), pl.len().alias("count")
    )
    both = counted.join(record.steps.select("step", "reward"), on="step")
    meaning = record.meaning("reward")
    rounding = meaning.resolution if meaning else 0.0
    apart = (both["mean"] - both["reward"]).abs() >= max(1e-6, 2 * rounding)
    if not len(both) or not (~apart).all():  # a few completions of each step, perhaps
        return None
    return float(both["count"].median())  # type: ignore[arg-type]


def _throughout(rows: pl.DataFrame, name: str) -> Float | None:
    """Return a column, or None where it is not known throughout."""
    if not len(rows) or name not in rows.columns or rows[name].null_count():
        return None
    return rows[name].to_numpy().astype(float)


def _sampling_variance(
    record: RunRecord,
    rows: pl.DataFrame,
    column: str,
    quantity: str,
    value_T: Float,
    window: float,
    resolution: float,
) -> tuple[Float | None, str]:
    """Return the variance of each value that the rollouts of its step alone explain, and how it
    is known.
    """
    name = "reward" if column == "reward" else quantity
    if name != "reward" and not name.startswith("reward/"):
        return None, "unavailable: known for training rewards only"
    from_rollouts = _from_rollouts(record, rows, name)
    if from_rollouts is not None:
        return from_rollouts / window, "variance of the group means of the logged rollouts over B"
    rollouts = _rollouts_of_a_step(record)
    if rollouts is None:
        missing = (
            "the group size and the prompts a step are unknown; give --set group_size=G --set "
            "prompts_per_step=B"
        )
        return None, f"unavailable: {missing}"
    count = rollouts * window
    if is_binary_mean(value_T, count, resolution):
        level = np.clip(_smooth(value_T), 0.5 / count, 1 - 0.5 / count)
        return level * (1 - level) / count, (
            f"binomial, p(1-p)/(B G) with B G = {count / window:g}; what prompts differ in comes "
            "on top and counts as noise of the run"
        )
    return _from_logged_std(record, rows, name, count)


def _from_rollouts(record: RunRecord, rows: pl.DataFrame, name: str) -> Float | None:
    """Return the variance of the group means over B at each step: prompts and completions are both
    drawn anew.

    It is never below sum s_g^2 / G over B^2, which the completions alone explain. Steps without
    rollouts take the mean of the others.
    """
    rollouts = record.rollouts
    if rollouts is None or name not in rollouts.columns:
        return None
    groups = (
        rollouts.filter(pl.col(name).is_not_null())
        .group_by("step", "prompt_id", maintain_order=True)
        .agg(
            pl.col(name).mean().alias("mean"),
            (pl.col(name).var(ddof=1) / pl.len()).alias("within"),
            pl.len().alias("size"),
        )
        .filter(pl.col("size") >= 2)
    )
    steps = groups.group_by("step", maintain_order=True).agg(
        (pl.col("mean").var(ddof=1) / pl.len()).alias("between"),
        (pl.col("within").sum() / pl.len() ** 2).alias("within"),
    )
    if len(steps) < max(3, len(rows) // 4):
        return None
    joined = rows.select("step").join(steps, on="step", how="left", maintain_order="left")
    both = [_filled(joined[column].to_numpy().astype(float)) for column in ("between", "within")]
    variance = np.maximum(*both)
    return variance if variance.max() > 0 else None


def _filled(variance_T: Float) -> Float:
    """Replace missing values by the mean of the others and average neighbours; zeros where
    nothing is known.
    """
    finite = np.isfinite(variance_T)
    if not finite.any():
        return np.zeros(variance_T.size)
    return _smooth(np.where(finite, variance_T, float(variance_T[finite].mean())))


def is_binary_mean(value_T: Float, count: float, resolution: float = 0.0) -> bool:
    """Return whether the values are multiples of one over the number of rollouts: the mark of a
    0/1 reward.
    """
    if not value_T.size or value_T.min() < 0 or value_T.max() > 1 or count > 20_000:
        return False
    scaled = value_T * count
    # Logs keep six digits or more: a multiple is hit to a millionth of the count, and by chance
    # hardly ever.
    off, near = float(np.abs(scaled - np.round(scaled)).max()), 1e-3 + max(1e-6, resolution) * count
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
    for quantity, words in (
        ("reward_std_within_group", "within-group"),
        ("reward_std_batch", "batch-wide"),
        ("reward_std_ambiguous", ""),
    ):
        meaning = next((m for m in record.meanings if m.quantity == quantity), None)
        if name == "reward" and meaning is not None and meaning.column in rows.columns:
            deviation = rows[meaning.column].to_numpy().astype(float)
            finite = np.isfinite(deviation)
            if finite.any():
                kind = words or "logged (within-group or batch-wide: the log cannot tell)"
                variance = np.where(finite, deviation, float(deviation[finite].mean())) ** 2 / count
                return _smooth(
                    variance
                ), f"{kind} standard deviation of the reward over B G = {count:g} rollouts a row"
    return None, "unavailable: the reward is not 0/1 and the log has no standard deviation of it"


def _smooth(value_T: Float) -> Float:
    """Average up to eleven neighbouring rows: a single step's variance is itself noisy."""
    return mean_around(value_T, min(5, max((value_T.size - 1) // 2, 0)))
