r"""Dead groups in numbers: how many chance predicts for any reward, the all-right and the all-wrong apart, and the effective group size.

Rewards of one pool dealt at random into a group of G are all equal with probability $\sum_v \binom{k_v}{G}/\binom{N}{G}$, $k_v$ of the
N rewards being v: the expectation over all resamplings without replacement, exactly. These are numbers beside `degeneracy`.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from groupwise.diagnostics.findings import Measure
from groupwise.diagnostics.signals import Evidence, Signal, ends_of, signal_of
from groupwise.intervals import Interval, wilson

FloatArray = NDArray[np.float64]
NAME = "advantage_degeneracy"
LOG = "the completions with their rewards (TRL: log_completions=True; verl: trainer.rollout_data_dir)"
LOG_SPLIT = f"{LOG}, or the shares of groups that are all right and all wrong"
# A value this near to the end of the range that was seen is that end.
_EDGE = 0.05
_LARGEST = 1e4
# Groups that a pool has at least: of one group alone its own rewards predict it, whatever it is.
_POOL = 4


def measures(evidence: Evidence) -> tuple[Measure, ...]:
    """Return the numbers beside `advantage_degeneracy`."""
    groups = graded_groups(evidence)
    return (_beyond_chance(groups), *_split(evidence, groups), _effective(evidence, groups))


def graded_groups(evidence: Evidence) -> pl.DataFrame | None:
    """Return the groups of two and more with their rewards and what chance predicts, or None without rewards of completions."""
    rollouts = evidence.record.rollouts
    if rollouts is None or "reward" not in rollouts.columns:
        return None
    known = rollouts.filter(pl.col("reward").is_finite()).with_columns(pl.col("reward").round(6).alias("outcome"))
    known = known.filter(pl.len().over("step", "prompt_id") > 1)
    if not len(known):
        return None
    known = known.with_columns((pl.col("step").rank("dense") - 1).floordiv(_steps_of_a_pool(known)).alias("pool"))
    prompt = ["prompt"] if "prompt" in known.columns and known["prompt"].count() else []
    groups = (
        known.group_by("step", "prompt_id")
        .agg(
            pl.col("pool").first(),
            pl.len().alias("size"),
            pl.col("outcome").min().alias("low"),
            pl.col("outcome").max().alias("high"),
            *(pl.col(name).first() for name in prompt),
        )
        .with_columns((pl.col("low") == pl.col("high")).alias("dead"))
        .sort("step", "prompt_id")
    )
    counts = known.group_by("pool", "outcome").agg(pl.len().alias("k"))
    first, last = float(known["outcome"].min()), float(known["outcome"].max())  # type: ignore[arg-type]
    margin = _EDGE * (last - first)
    ends = counts.with_columns(pl.col("k").sum().over("pool").alias("m")).filter(
        (pl.col("outcome") <= first + margin) | (pl.col("outcome") >= last - margin)
    )
    groups = groups.join(chance(groups, counts, ("pool",)).rename({"chance": "pooled"}), on=["pool", "size"], how="left")
    groups = groups.join(chance(groups, ends, ("pool",)).rename({"chance": "edges"}), on=["pool", "size"], how="left")
    return _with_own(groups, known) if prompt else groups.with_columns(pl.lit(None, dtype=pl.Float64).alias("own"))


def _steps_of_a_pool(known: pl.DataFrame) -> int:
    """How many neighbouring steps make a pool of as many groups as are dealt to each other: one where steps have enough of their own."""
    groups = known.select("step", "prompt_id").unique().group_by("step").len()["len"]
    return -(-_POOL // max(int(groups.median() or 1), 1))  # type: ignore[arg-type]


def chance(groups: pl.DataFrame, counts: pl.DataFrame, unit: tuple[str, ...]) -> pl.DataFrame:
    r"""Return the probability that all rewards of a group are equal, the rewards of a pool being dealt at random.

    $\sum_v \prod_{i<G} \frac{k_v - i}{N - i}$.
    """
    if "m" not in counts.columns:
        counts = counts.with_columns(pl.col("k").sum().over(unit).alias("m"))
    sizes = groups.select(*unit, "size").unique()
    table = sizes.join(counts, on=list(unit), how="left")
    share = np.ones(len(table))
    k, m, size = (table[name].fill_null(0).to_numpy().astype(float) for name in ("k", "m", "size"))
    for i in range(int(size.max()) if len(size) else 0):
        share = np.where(i < size, share * np.clip(k - i, 0, None) / np.maximum(m - i, 1), share)
    table = table.with_columns(pl.Series("chance", np.where((m >= size) | (m == 0), share, np.nan)))
    return table.group_by(*unit, "size").agg(pl.col("chance").sum().fill_nan(None))


def _with_own(groups: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
    """Add the chance by the rewards of the same prompt just before and after; null where there are too few."""
    visits = groups.with_columns(pl.int_range(pl.len()).over("prompt").alias("visit"))
    counts = known.group_by("step", "prompt_id", "outcome").agg(pl.len().alias("k"))
    counts = visits.select("step", "prompt_id", "prompt", "visit").join(counts, on=["step", "prompt_id"])
    near = pl.concat([counts.with_columns(pl.col("visit") + move) for move in (1, -1)])
    pool = near.group_by("prompt", "visit", "outcome").agg(pl.col("k").sum())
    told = visits.join(pool.select("prompt", "visit").unique(), on=["prompt", "visit"], how="semi")
    own = chance(told, pool, ("prompt", "visit")).rename({"chance": "own"})
    return visits.join(own, on=["prompt", "visit", "size"], how="left").drop("visit")


def _beyond_chance(groups: pl.DataFrame | None) -> Measure:
    """Measure dead groups less those that chance predicts, at the end of the log."""
    if groups is None:
        return Measure(NAME, "dead_beyond_chance", None, "the rewards of the completions are not in the log", LOG)
    by_prompt = 2 * groups["own"].count() >= len(groups)
    name = "own" if by_prompt else "pooled"
    steps = (
        groups.drop_nulls(name)
        .with_columns(pl.col("dead").cast(pl.Float64))
        .group_by("step")
        .agg((pl.col("dead") - pl.col(name)).mean().alias("excess"), pl.col("dead").mean(), pl.col(name).mean())
        .sort("step")
    )
    step, excess, dead, predicted = (steps[column].to_numpy().astype(float) for column in ("step", "excess", "dead", name))
    signal = signal_of("excess", step.astype(np.int64), excess, bounds=(-1.0, 1.0))
    late = ends_of(signal)[1]
    value, counted = signal.mean(late), _late(signal_of("dead", signal.step_T, dead, bounds=(0.0, 1.0)), groups)
    expected = float(predicted[late].mean())
    value = Interval(value.value, min(value.low, counted.low - expected), max(value.high, counted.high - expected))
    whose = (
        "the same prompts' rewards just before and after"
        if by_prompt
        else "the rewards of each step, or of the few around it, dealt at random into groups,"
    )
    least = "" if by_prompt else ": the least that can be expected of prompts that are not equally hard"
    said = f"{100 * float(dead[late].mean()):.0f} % of the last groups are alike in reward; {whose} predict {100 * expected:.0f} %{least}"
    return Measure(NAME, "dead_beyond_chance", value, said)


def _split(evidence: Evidence, groups: pl.DataFrame | None) -> tuple[Measure, ...]:
    """Measure groups that are all right and all wrong, at the end of the log."""
    right, wrong = evidence.quantity("all_right_share"), evidence.quantity("all_wrong_share")
    words, between = ("all right", "all wrong"), None
    if groups is not None:
        least, most = float(groups["low"].min()), float(groups["high"].max())  # type: ignore[arg-type]
        if least == most:
            return (Measure(NAME, "all_right", None, "all completions have the same reward, right or wrong"),)
        alike = pl.col("dead")
        steps = (
            groups.group_by("step")
            .agg(
                (alike & (pl.col("high") == most)).mean().alias("right"),
                (alike & (pl.col("low") == least)).mean().alias("wrong"),
                (alike & (pl.col("low") > least) & (pl.col("high") < most)).mean().alias("between"),
            )
            .sort("step")
        )
        step = steps["step"].to_numpy().astype(np.int64)
        right, wrong = (signal_of(name, step, steps[name].to_numpy().astype(float), bounds=(0.0, 1.0)) for name in ("right", "wrong"))
        between = signal_of("between", step, steps["between"].to_numpy().astype(float), bounds=(0.0, 1.0))
        words = (f"all at {most:.3g}, the highest reward", f"all at {least:.3g}, the lowest")
    if right is None and wrong is None:
        return (Measure(NAME, "all_right", None, "nothing in the log tells groups that are all right from those all wrong", LOG_SPLIT),)
    found = []
    if between is not None and not between.value_T.any():
        between = None  # of right and wrong answers there is nothing between
    parts = (("all_right", right, words[0]), ("all_wrong", wrong, words[1]), ("all_alike_between", between, "alike at a reward between"))
    for name, signal, word in parts:
        if signal is not None:
            value = _late(signal, groups)
            found.append(Measure(NAME, name, value, f"{100 * value.value:.0f} % of the last groups are {word}"))
    return tuple(found)


def _effective(evidence: Evidence, groups: pl.DataFrame | None) -> Measure:
    """Measure the size at which groups of independent completions, all prompts equally hard, would be dead as often."""
    log = f"{LOG}, or the share of dead groups beside a reward of 0 or 1"
    shares, dead = _of_groups(evidence, groups) if groups is not None else _of_columns(evidence)
    if dead is None or shares is None:
        return Measure(NAME, "effective_group_size", None, "dead groups and what their rewards are are not both in the log", log)
    if float(shares.max()) >= 1.0:
        return Measure(NAME, "effective_group_size", None, "the last completions all have the same reward: any size fits")
    value = _late(dead, groups)
    size = Interval(*(effective_size(shares, share) for share in (value.value, value.high, value.low)))
    of = "" if evidence.group_size is None else f" (they have {evidence.group_size})"
    independent = "independent completions of equally hard prompts"
    said = f"the last groups are dead as often as groups of {size.value:.3g}, of {independent}, would be{of}"
    if np.isinf(size.value):
        said = f"none of the last groups is dead, as of groups of at least {size.low:.3g} {independent}{of}"
    return Measure(NAME, "effective_group_size", size, said)


def effective_size(share_V: FloatArray, dead: float) -> float:
    r"""Return the size g at which $\sum_v p_v^g$ is a given share of dead groups."""
    from scipy.optimize import brentq

    if dead >= 1.0:
        return 1.0
    if dead <= float((share_V**_LARGEST).sum()):
        return float("inf")
    return float(brentq(lambda size: float((share_V**size).sum()) - dead, 1.0, _LARGEST))


def _of_groups(evidence: Evidence, groups: pl.DataFrame) -> tuple[FloatArray, Signal]:
    """Shares of the rewards of the last completions, and the dead share."""
    rollouts = evidence.record.rollouts
    assert rollouts is not None
    steps = groups.group_by("step").agg(pl.col("dead").mean()).sort("step")
    dead = signal_of("dead", steps["step"].to_numpy().astype(np.int64), steps["dead"].to_numpy().astype(float), bounds=(0.0, 1.0))
    last = rollouts.filter((pl.col("step") >= int(dead.step_T[ends_of(dead)[1]][0])) & pl.col("reward").is_finite())
    counts = last.group_by(pl.col("reward").round(6)).len().sort("reward")["len"].to_numpy().astype(float)
    return counts / counts.sum(), dead


def _of_columns(evidence: Evidence) -> tuple[FloatArray | None, Signal | None]:
    """The same from the mean of a reward of 0 and 1 and the dead share, as logged."""
    track, reward = evidence.groups.dead, evidence.reward
    if not track.known or reward is None or evidence.groups.expected.source.startswith("unavailable"):
        return None, None
    keep = np.isfinite(track.value_T)
    dead = signal_of("dead", track.step_T[keep].astype(np.int64), track.value_T[keep], bounds=(0.0, 1.0))
    first = reward.at(float(dead.step_T[ends_of(dead)[1]][0]))
    mean = float(reward.value_T[min(first, len(reward) - 1) :].mean())
    return np.array([mean, 1 - mean]), dead


def _late(share: Signal, groups: pl.DataFrame | None) -> Interval:
    """The mean share of the last rows, at least as unsure as that many groups are: rows that are all 0 have no scatter."""
    late = ends_of(share)[1]
    value = share.mean(late)
    low, high = max(value.low, 0.0), min(value.high, 1.0)
    if groups is not None:
        count = len(groups.filter(pl.col("step") >= int(share.step_T[late][0])))
        counted = wilson(round(value.value * count), count)
        low, high = min(low, counted.low, value.value), max(high, counted.high, value.value)
    return Interval(value.value, low, high)
