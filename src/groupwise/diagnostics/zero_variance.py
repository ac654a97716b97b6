"""Advantage degeneracy: groups whose rewards are all equal, against what their pass rates predict,
and groups of one.

A zero-variance group carries no gradient. Independent rollouts of a prompt with pass rate p have
equal rewards with probability $p^G + (1-p)^G$, so a run at 0.95 has many such groups and is well.
What is wrong is fewer groups that teach than the reward leaves room for: their share, over what it
would be if all prompts were equally hard, is what is left. It does not say which prompts to use.

In a group of one the advantage is the reward itself, so that nothing is compared. Where no groups
are wanted (PPO) nothing is said.
"""

from dataclasses import replace

import numpy as np
import polars as pl

from groupwise.arrays import Flags, Float, mean_of, median, moving_mean, row_after, rows_before
from groupwise.diagnostics.falls import constant_tail, reward_level
from groupwise.diagnostics.judgement import (
    Fact,
    Finding,
    Learning,
    Sign,
    Status,
    by_sign,
    exactly,
    no_sign,
    not_logged,
    stated,
)
from groupwise.diagnostics.learning import at_a_ceiling, near_top, piled_up, progress_of
from groupwise.diagnostics.signals import (
    FEWEST_ROWS,
    Evidence,
    NoisyMetric,
    blocks,
    lasting,
    rank_correlations,
    rare_event_factors,
    share_of,
    signal_of,
    since_when,
)
from groupwise.intervals import Interval, percent
from groupwise.series.metric import all_from, zero_variance_outlook
from groupwise.wording import count, short

NAME = "zero_variance"
LOG = (
    "the completions with prompts and rewards (TRL: log_completions=True; verl: "
    "trainer.rollout_data_dir), or the share of groups whose rewards are all equal (TRL: "
    "frac_reward_zero_std)"
)
# Of ten groups that could teach at most one does. An even spread of pass rates over (0, 1) leaves a
# third at G = 2 and 78 % at G = 8.
STARVED = 0.1
HALVED = 0.5
# Groups of so many at most, most of them with zero variance, and the share that four times the size
# would make teach: less is worth it to groups of two or three, of which few teach whatever the
# prompts.
_SMALL, _MOSTLY, _WORTH, _WORTH_SMALLEST = 4, 0.7, 0.2, 0.15
# By how much the share leaps at once where groups break, and no reward arrives.
_LEAP = 0.4
# From here on fewer than one group in five teaches.
_MOSTLY_DEAD = 0.8
# Standard errors that a reward rose by.
_CLEARLY = 3.0
GROUPS = 20
# Times the share of the first tenth of the rows that the last one's is.
_TIMES = 3.0
# The rank correlation of the gradient's norm with the groups that teach, from row to row.
_FOLLOWS = 0.5


def zero_variance_groups(evidence: Evidence) -> Finding:
    """Look for steps whose groups teach less than their pass rates allow."""
    share = _equal_share(evidence)
    batches = None if share else _of_batches(evidence)
    share = share or batches
    equal = None if share is None else _pooled(evidence, share)
    if equal is None or len(equal) < FEWEST_ROWS:
        said, log = "the log does not show how many groups have equal rewards", LOG
        if equal:
            said = (
                f"there are {count(len(equal), 'stretch', 'stretches')} of {GROUPS} groups; "
                f"{FEWEST_ROWS} are needed"
            )
            log = f"more groups, at least {GROUPS * FEWEST_ROWS} in all"
        elif evidence.graded is not None and len(evidence.graded):
            log = "at least two completions of each prompt"
        if silent := _silent_rows(evidence):
            return silent
        if evidence.record.config.without_groups:
            return _NO_GROUPS
        least = "" if equal else _at_the_least(evidence)
        facts = (Fact.SMALL_GROUP_POSSIBLE,) if least else ()
        return replace(not_logged(f"{said}{least}", log), facts=facts)
    room = _room(evidence, equal)
    taught = np.where(room > 0, (1 - equal.value_T) / np.maximum(room, 1e-9), 1.0)
    # Where the group size is not known the first rows tell how many groups teach at such a reward.
    usual_taught = (
        median(taught[: max(len(taught) // 4, 4)]) if evidence.group_size is None else 1.0
    )
    taught = taught / max(usual_taught, 1.0)
    starved = (taught < STARVED) & (room > 2 * STARVED)
    usual = min(0.5, max(0.2, 2 * _earlier_rate(starved)))
    onset = lasting(
        np.where(room > 2 * STARVED, rare_event_factors(starved, usual), 0.0), event_T=starved
    )
    if onset is None and batches:
        value = batches.mean(slice(None))
        message = (
            f"{percent(value.value)} of the batches have zero variance in every group "
            f"({batches.column}); the share of groups is not logged"
        )
        return Finding(Status.INFO, message, None, value)
    if onset is None:
        fewer, alike = _fewer(evidence, equal, taught, room), _many_alike(evidence, equal)
        if fewer and not fewer.facts:
            fewer = alike or fewer
        other = _all_wrong(evidence, equal, room) or fewer or _small_group(evidence, equal) or alike
        return other or _calm(evidence, equal)
    return _starved(evidence, equal, room, onset)


def _starved(evidence: Evidence, equal: NoisyMetric, room: Float, onset: int) -> Finding:
    """Report groups that hardly ever teach."""
    rows = slice(onset, len(equal))
    expected, value, step = float(1 - room[rows].mean()), equal.mean(rows), equal.step_at(onset)
    where = step if onset else None
    message = f"{_alike(equal, onset, onset)}: almost none gives a gradient"
    # A reward that arrives takes its groups along; a jump at a standing reward is another thing.
    begin = _halfway(equal.value_T, onset)
    near = equal.value_T[max(0, begin - 6) : max(begin - 1, 0)]
    leapt = near.size >= 3 and median(near) < min(HALVED, value.value - _LEAP)
    level = None if evidence.reward is None else reward_level(evidence)[0]
    # All earn the most there is: rows held together as one stretch rise within it.
    topped = at_a_ceiling(evidence, since=step)
    jumped = leapt and not topped and not _rises_at(evidence, equal.step_at(begin), near.size)
    arrived = _at_its_height(evidence, step, topped=topped) or (
        onset > 0 and level is not None and _rose_to(evidence, level, level.at(step))
    )
    if arrived and not jumped:
        message = f"{message}; the reward stays at its best level, which may be its maximum"
        return Finding(Status.INFO, message, where, value, expected)
    facts = stated(Fact.GROUPS_ALIKE, Fact.GROUPS_ALIKE_AT_ONCE if jumped else None)
    return Finding(Status.CRITICAL, message, where, value, expected, facts=facts)


def _halfway(equal_T: Float, onset: int) -> int:
    """The row from which the share has been beyond the middle of its levels before and since a
    row: groups may break before that.
    """
    if onset == 0:
        return 0
    middle = (median(equal_T[:onset]) + mean_of(equal_T[onset:])) / 2
    return row_after(equal_T[:onset] < middle) or onset


def _rises_at(evidence: Evidence, step: int, few: int) -> bool:
    """Whether the reward rises as its groups become alike, within as few rows: it arrives,
    however fast, and nothing broke.
    """
    reward = evidence.reward
    if reward is None:
        return False
    row = reward.at(step)
    return reward.score(rows_before(row, few), slice(row, row + few)) > _CLEARLY - 1


def _rose_to(evidence: Evidence, level: NoisyMetric, row: int) -> bool:
    """Whether the reward rose before a row and nearly all groups have earned one and the same
    since.
    """
    few = level.tenth
    rose = level.score(slice(0, few), slice(min(row, len(level) - few), len(level))) > _CLEARLY
    return rose and piled_up(evidence, level, since=row)


def _at_its_height(evidence: Evidence, step: int, *, topped: bool = False) -> bool:
    """Whether a reward of unknown range stands where it was highest: it may be done."""
    reward = evidence.reward
    if reward is None or reward.bounds or len(reward) < FEWEST_ROWS:
        return False
    few = reward.tenth
    levels = moving_mean(reward.value_T, few)
    late = reward.level_from(min(reward.at(step), len(reward) - few))
    least = levels.max() - 0.1 * np.ptp(levels) - 2 * reward.scatter / np.sqrt(few)
    return topped or bool(late > least)


def _equal_share(evidence: Evidence) -> NoisyMetric | None:
    """The share of zero-variance groups along the run: from rollouts, else as logged, else from
    a spread of exactly 0.
    """
    track = evidence.groups.zero_variance
    if track.known:
        return share_of(track.step_T, track.value_T)
    spread = evidence.groups.spread
    if spread.known and (spread.is_zero | ~np.isfinite(spread.value_T)).all():
        return share_of(spread.step_T, np.where(np.isfinite(spread.value_T), 1.0, np.nan))
    return None


def _of_batches(evidence: Evidence) -> NoisyMetric | None:
    """The share of batches with one reward: so many groups at the least have zero variance."""
    record = evidence.record
    for meaning in record.meanings:
        if meaning.quantity == "dead_batch_share":
            share = share_of(record.steps["step"], record.values(meaning.column))
            return replace(share, column=meaning.column)
    return None


def _pooled(evidence: Evidence, equal: NoisyMetric) -> NoisyMetric:
    """Average neighbouring rows until each stands for some 20 groups: of one group a row nothing
    can be told.
    """
    rollouts, prompts = evidence.record.rollouts, evidence.setting("prompts_per_step")
    if evidence.groups.of_completions and rollouts is not None:
        count = float(
            rollouts.group_by("step", "prompt_id").len().group_by("step").len()["len"].median() or 1  # type: ignore[arg-type]
        )
    elif prompts is not None:
        count = float(prompts) * float(evidence.record.steps["window"].median() or 1.0)  # type: ignore[arg-type]
    else:
        count = float(grid_of(evidence) or GROUPS)
    size = int(np.ceil(GROUPS / max(count, 1.0)))
    if size == 1:
        return equal
    mean, first = blocks(equal, size)
    return signal_of(equal.column, equal.step_T[first], mean, bounds=equal.bounds)


def grid_of(evidence: Evidence) -> int | None:
    """Return the groups of a row by the coarsest grid that all shares lie on; None where that is
    fine.
    """
    equal = _equal_share(evidence)
    value = np.empty(0) if equal is None else equal.value_T
    grids = (b for b in range(1, GROUPS) if np.allclose(value * b, np.round(value * b), atol=1e-3))
    return next(grids, None) if value.size else None


def _room(evidence: Evidence, equal: NoisyMetric) -> Float:
    """Share of groups that would teach if all prompts of the step were equally hard: the most that
    the mean reward leaves room for.

    Of a reward that is not a share of right answers nothing is known; then every group could teach,
    but for those that the rewards of the completions themselves, dealt at random, leave at one end
    of their range.
    """
    room = np.minimum(_room_of_mean(evidence, equal), 1 - _at_an_end(evidence, equal))
    reward = evidence.reward
    if reward and (stuck := constant_tail(reward)):
        # one number for every answer is the verifier's doing, not the groups'
        room[equal.step_T >= reward.step_T[stuck.row]] = 0.0
    return room


def _at_an_end(evidence: Evidence, equal: NoisyMetric) -> Float:
    """Share of groups that chance leaves all at the lowest or all at the highest reward, for
    rewards of more than right and wrong.
    """
    several = evidence.graded is not None and evidence.graded["reward"].n_unique() > 2
    groups = chance_at_an_end(evidence) if several else None
    if groups is None:
        return np.zeros(len(equal))
    steps = groups.group_by("step").agg(pl.col("chance").fill_null(0.0).mean()).sort("step")
    parts = np.split(
        steps["chance"].to_numpy().astype(float),
        np.searchsorted(steps["step"].to_numpy(), equal.step_T[1:]),
    )
    return np.array([mean_of(part) if part.size else 0.0 for part in parts])


def _room_of_mean(evidence: Evidence, equal: NoisyMetric) -> Float:
    """The room that the mean reward leaves where it is a share of right answers, else 1."""
    reward = evidence.reward
    if reward is None or reward.bounds is None:
        return np.ones(len(equal))
    size = evidence.group_size or 2  # the smallest group leaves the least room
    right = _share_right(reward)
    smooth = moving_mean(np.pad(right, 2, mode="edge"), 5) if right.size >= 5 else right
    if 2 * len(equal) > len(reward):
        mean = np.interp(equal.step_T, reward.step_T, smooth)
    else:
        parts = np.split(right, np.searchsorted(reward.step_T, equal.step_T[1:]))
        mean = np.array([part.mean() if part.size else smooth.mean() for part in parts])
    # Of a reward that may have a tenth as its top the end that leaves the least room.
    tops = (1.0, 10.0) if evidence.by_tenths else (1.0,)
    shares = [np.minimum(top * mean, 1.0) for top in tops]
    return np.asarray(np.min([1 - share**size - (1 - share) ** size for share in shares], axis=0))


def _share_right(reward: NoisyMetric) -> Float:
    """Where each row stands between the ends of its range: the share of right answers where
    there are but two grades.
    """
    assert reward.bounds
    low, high = reward.bounds
    return (reward.value_T - low) / (high - low)


def _late_share_right(reward: NoisyMetric) -> float:
    """The same in the last quarter of the rows."""
    return mean_of(_share_right(reward)[-max(len(reward) // 4, 5) :])


def off_the_ends(reward: NoisyMetric | None) -> bool:
    """Whether a reward of known range ends between its floor and its top."""
    if reward is None or reward.bounds is None:
        return False
    return STARVED < _late_share_right(reward) < 1 - STARVED


def _earlier_rate(event_T: Flags) -> float:
    """Rate of an event in the first quarter of the rows; 0 where it is in all of them."""
    return 0.0 if event_T.all() else mean_of(event_T[: max(len(event_T) // 4, 4)])


def _all_wrong(evidence: Evidence, equal: NoisyMetric, room: Float) -> Finding | None:
    """Report groups that have been all wrong from the first row: nothing was ever earned that
    could teach.
    """
    reward = evidence.reward
    if reward is None or reward.bounds is None:
        return None
    most = (
        10.0 if evidence.by_tenths else 1.0
    )  # times the share that is right, where a tenth may be the top
    if most * _share_right(reward).mean() > STARVED:
        return None
    silent = (equal.value_T > 1 - STARVED) & (room < 2 * STARVED)
    if since_when(silent, 0.5, still=False) is None or silent.mean() < 1 - STARVED:
        return None
    value = equal.mean(slice(None))
    mean, facts = short(reward.level_from(0)), (Fact.GROUPS_ALL_WRONG,)
    message = f"{_alike(equal, 0)}, mostly all wrong (mean reward {mean})"
    return Finding(Status.CRITICAL, message, None, value, 1 - STARVED, facts=facts)


def _silent_rows(evidence: Evidence) -> Finding | None:
    """Report rows whose groups all have zero variance: all wrong by a reward of 0, else by a spread
    of exactly 0 of rewards, or of advantages. Where they earn one number, which is no top, the
    policy has one answer.
    """
    reward, spread = evidence.reward, evidence.groups.spread
    if reward is None or len(reward) < FEWEST_ROWS:
        return None
    rows, zero = count(len(reward), "row"), int(reward.is_zero.sum())
    earns = evidence.rewards_differ or reward.low < 0 or progress_of(evidence).learning.gained
    if not earns and zero > _MOSTLY_DEAD * len(reward) and reward.level_from(0) <= STARVED:
        message = f"every rollout is wrong in {zero} of {rows}: there is no gradient"
        facts = (Fact.GROUPS_ALL_WRONG,)
        return Finding(Status.WARNING, message, None, exactly(zero / len(reward)), facts=facts)
    ends = map(evidence.quantity, ("advantage_max", "advantage_min"))
    tracks = [spread] if spread.known else [*filter(None, ends)]
    if {len(track.step_T) for track in tracks} != {len(reward)}:
        return None
    silent = np.all([track.is_zero for track in tracks], axis=0)
    share = mean_of(silent)
    if share <= STARVED:
        return None
    message = (
        f"no reward differs within its group in {silent.sum()} of {rows}: these give no gradient"
    )
    if share <= _MOSTLY_DEAD or np.ptp(reward.value_T[silent]) or at_a_ceiling(evidence):
        return Finding(Status.INFO, message)
    step = reward.step_at(int(silent.argmax()))
    sign = Sign("reward", step, None, share, "rewards are all equal")
    return by_sign(message, sign, _MOSTLY_DEAD, Fact.ONE_ANSWER)


def _fewer(evidence: Evidence, equal: NoisyMetric, taught: Float, room: Float) -> Finding | None:
    """Report that less than half as many groups teach as before although the reward stands where
    it stood.
    """
    few = max(len(taught) // 4, 4)
    before = median(taught[:few])
    fewer = (taught < HALVED * before) & (room > 2 * STARVED)
    onset, reward = since_when(fewer), evidence.reward
    if onset is None or onset < few or reward is None:
        return None
    step = equal.step_at(onset)
    row = reward.at(step)
    moved = reward.change(slice(max(row, 1)), slice(row, None))
    span = np.ptp(reward.bounds or (reward.low, reward.high))
    value, old = equal.mean(slice(onset, None)), equal.level_until(onset)
    if abs(moved.value) > 0.15 * span or value.low <= old:
        # another reward has other groups, and groups that are not more often alike are no fewer
        return None
    message = f"{_alike(equal, onset, onset)}, at a similar mean reward"
    # While a good part of the groups teaches there is nothing to mend.
    status = Status.WARNING if value.value > _MOSTLY_DEAD and evidence.ended else Status.INFO
    facts = (Fact.GROUPS_ALIKE,) if status is Status.WARNING else ()
    return Finding(status, message, step, value, old, facts=facts)


def _small_group(evidence: Evidence, equal: NoisyMetric) -> Finding | None:
    """Say that larger groups would make many more groups teach, where half of the last ones do not
    and the reward stands below its top.
    """
    reward, top = evidence.reward, progress_of(evidence).learning is Learning.AT_TOP
    if _of_the_last(equal).value < HALVED or reward is None or top or near_top(evidence, reward):
        return None
    outlook = zero_variance_outlook(evidence.record)
    if outlook is None:
        return _of_unknown_size(evidence, reward)
    now, last = outlook.now, outlook.shares[-1]
    gained = last.gained
    if (
        gained is None
        or now.value < HALVED
        or gained.value < (_WORTH if outlook.group_size >= _SMALL else _WORTH_SMALLEST)
    ):
        return None
    words = (
        f"{percent(now.value)} of all groups have zero variance at G = {outlook.group_size}; at "
        f"G = {last.group_size} about {percent(last.share.value)} would"
    )
    grave = now.value >= _MOSTLY and outlook.group_size <= _SMALL
    fact = Fact.SMALL_GROUP_LIKELY if grave else Fact.SMALL_GROUP_POSSIBLE
    least = _SMALL if grave else 2
    if outlook.group_size >= least and not _too_small(reward, outlook.group_size):
        if progress_of(evidence).learning.gained:
            return None
        fact = Fact.UPDATE_DILUTED
    status = Status.WARNING if grave and evidence.ended else Status.INFO
    return Finding(status, words, None, now, HALVED, facts=(fact,))


def _too_small(reward: NoisyMetric, size: int) -> bool:
    """Whether most groups of a size are all wrong, or all right, where all prompts are equally
    hard: of another pass rate what makes groups alike is the prompts.
    """
    right = _late_share_right(reward) if reward.bounds else 0.0
    return max(right, 1 - right) ** size > HALVED


def _at_the_least(evidence: Evidence) -> str:
    """Say how many groups of a small size have zero variance at the mean reward, though all prompts
    were equally hard; larger ones would have fewer.
    """
    reward, size = evidence.reward, evidence.group_size
    if reward is None or reward.bounds is None or size is None or not 1 < size <= _SMALL:
        return ""
    right = _late_share_right(reward)
    if right < STARVED or not _too_small(reward, size) or near_top(evidence, reward):
        return ""
    now = percent(right**size + (1 - right) ** size)
    where = f"at G = {size} and a share of {short(right)} right"
    return f"; {where}, at least {now} of groups of two grades have zero variance"


def _of_unknown_size(evidence: Evidence, reward: NoisyMetric) -> Finding | None:
    """Note that most groups have zero variance between the floor and the top, where the group size
    is not known.
    """
    equal = _equal_share(evidence)
    if equal is None or len(equal) < FEWEST_ROWS or not off_the_ends(reward):
        return None
    value = _of_the_last(equal)
    if value.value < _MOSTLY:
        return None
    words = _alike(equal, -_quarter(equal))
    return Finding(
        Status.INFO,
        f"{words}; the last mean reward is {short(float(reward.value_T[-1]))}",
        None,
        value,
        _MOSTLY,
        log="the group size (--set group_size=G)",
        facts=(Fact.SMALL_GROUP_POSSIBLE,),
    )


def _many_alike(evidence: Evidence, equal: NoisyMetric) -> Finding | None:
    """Note that half of the groups and more have zero variance between the floor and the top: three
    times as many as at first; throughout as the reward rises; or where it stands and the
    gradient's norm follows those that teach.
    """
    norm, learning = evidence.quantity("gradient_norm"), progress_of(evidence).learning
    few = max(len(equal) // 10, 4)
    first, last = equal.level_until(few), equal.mean(slice(-few, None))
    if not off_the_ends(evidence.reward) or last.value < HALVED:
        return None
    fact, words = Fact.UPDATE_DILUTED, _alike(equal, -few, few)
    if last.value >= _TIMES * first:
        fact = Fact.GROUPS_ALIKE_TREBLED
    elif learning.gained:
        if first < HALVED:
            return None
    elif norm is None or max(rank_correlations(equal, norm)) > -_FOLLOWS:
        return None
    # At its top a reward lacks nothing: it is a note, and no problem.
    facts = () if learning is Learning.AT_TOP else (fact,)
    return Finding(Status.INFO, words, None, last, HALVED, facts=facts)


def _quarter(equal: NoisyMetric) -> int:
    """A quarter of the rows."""
    return max(len(equal) // 4, 1)


def _of_the_last(equal: NoisyMetric) -> Interval:
    """The share in the last quarter of the rows."""
    return equal.mean(slice(-_quarter(equal), None))


def _alike(equal: NoisyMetric, row: int, until: int = 0) -> str:
    """The share from a row to the end, and that until another, in words: each with its steps."""
    since = f"from step {equal.step_at(row):,} on" if row else "in all rows"
    words = f"{percent(equal.level_from(row))} of groups have zero variance {since}"
    if not until:
        return words
    return f"{words}, {percent(equal.level_until(until))} before step {equal.step_at(until):,}"


def _calm(evidence: Evidence, equal: NoisyMetric) -> Finding:
    """Say what the last groups are like where nothing is wrong with them."""
    expected, late = evidence.groups.expected, _of_the_last(equal)
    row, excess = -_quarter(equal), ""
    chances = expected.value_T[expected.step_T >= equal.step_at(row)] if expected.known else ()
    if len(chances):
        excess = f"; {percent(float(np.nanmean(chances)))} are expected ({expected.source})"
    status = Status.INFO if late.value > _MOSTLY_DEAD else Status.NONE
    return Finding(status, f"{_alike(equal, row)}{excess}.", None, late, _MOSTLY_DEAD)


# A value this near to the end of the range that was seen is that end.
_EDGE = 0.05
# Groups that a pool has at least: of one group alone its own rewards predict it, whatever it is.
_POOL = 4


def chance_at_an_end(evidence: Evidence) -> pl.DataFrame | None:
    """Return the groups of two and more with the chance that the rewards of their pool, dealt at
    random, leave each all at one end; None without rewards of completions.
    """
    if evidence.graded is None:
        return None
    graded = evidence.graded.with_columns(pl.col("reward").round(6).alias("outcome")).filter(
        pl.len().over("step", "prompt_id") > 1
    )
    if not len(graded):
        return None
    graded = graded.with_columns(
        (pl.col("step").rank("dense") - 1).floordiv(_steps_of_a_pool(graded)).alias("pool")
    )
    groups = graded.group_by("step", "prompt_id").agg(
        pl.col("pool").first(), pl.len().alias("size")
    )
    counts = graded.group_by("pool", "outcome").agg(pl.len().alias("k"))
    first, last = float(graded["outcome"].min()), float(graded["outcome"].max())  # type: ignore[arg-type]
    margin = _EDGE * (last - first)
    ends = counts.with_columns(pl.col("k").sum().over("pool").alias("m")).filter(
        (pl.col("outcome") <= first + margin) | (pl.col("outcome") >= last - margin)
    )
    return groups.join(chance(groups, ends), on=["pool", "size"], how="left")


def _steps_of_a_pool(graded: pl.DataFrame) -> int:
    """How many neighbouring steps make a pool of as many groups as are dealt to each other: one
    where steps have enough of their own.
    """
    groups = graded.select("step", "prompt_id").unique().group_by("step").len()["len"]
    return -(-_POOL // max(int(groups.median() or 1), 1))  # type: ignore[arg-type]


def chance(groups: pl.DataFrame, counts: pl.DataFrame) -> pl.DataFrame:
    r"""Return the probability that all rewards of a group are equal, the rewards of a pool of m
    being dealt at random.

    $\sum_v \binom{k_v}{G} / \binom{m}{G}$.
    """
    table = groups.select("pool", "size").unique().join(counts, on="pool", how="left")
    table = table.with_columns(all_from(table["k"], table["m"], table["size"]))
    return table.group_by("pool", "size").agg(pl.col("chance").sum())


_NO_GROUPS = no_sign("No sign of a problem: this method needs no groups.")
# Mean advantages count tokens and mean rewards rollouts: where the means differ the ends tell.
_STATISTICS = (("",), ("_max", "_min"))


def groups_of_one(evidence: Evidence) -> Finding:
    """Look for advantages that are the rewards themselves, and for a group size of 1."""
    size = evidence.setting("group_size")
    if evidence.record.config.without_groups:
        return _NO_GROUPS
    if undefined := _undefined(evidence):
        why = f"{undefined} is NaN in every row, as one rollout has no standard deviation"
        message = f"the group size seems to be 1: {why}"
        return Finding(Status.WARNING, message, facts=(Fact.GROUPS_OF_ONE,))
    advantages = [evidence.quantity(f"advantage{part}") for part in ("", "_max", "_min")]
    logged = any(advantages)
    if not logged and size is None:
        return not_logged("The log contains neither the group size nor advantages.")
    fact, size_is_1 = Fact.GROUPS_OF_ONE, "the group size is 1, so there is no baseline:"
    if same := _same(evidence, "reward") or _same(evidence, "reward_after_kl"):
        message = f"{size_is_1} {same[0].column} equals {same[1].column} in all {len(same[0])} rows"
    elif size == 1 and not logged and not evidence.rewards_differ:
        message = f"{size_is_1} it is set to 1 ({evidence.record.config.group_size.source})"
    elif _all_zero(evidence, advantages[1:]):
        fact = Fact.ADVANTAGES_ZERO
        message = (
            "advantages are 0 in all rows: the group size is 1, or all rewards of each group are "
            "equal"
        )
    else:
        return no_sign("No sign of a problem in the settings and advantages.")
    return Finding(Status.WARNING, message, facts=(fact,))


def _undefined(evidence: Evidence) -> str:
    """The column of advantages that holds no number although rewards do; "" where none."""
    steps = evidence.record.steps
    undefined = (
        meaning.column
        for meaning in evidence.record.meanings
        if meaning.quantity.startswith("advantage")
        and meaning.column in steps.columns
        and not steps[meaning.column].count()
    )
    return next(undefined, "") if evidence.reward else ""


def _same(evidence: Evidence, kind: str) -> tuple[NoisyMetric, NoisyMetric] | None:
    """Advantages and the rewards that they are, row for row; None of a reward that never moves,
    which tells nothing.
    """
    for parts in _STATISTICS:
        logged_pairs = [
            (first, other)
            for part in parts
            if (first := evidence.quantity(f"advantage{part}"))
            and (other := evidence.quantity(f"{kind}{part}"))
        ]
        moves = any(len(reward) >= FEWEST_ROWS and reward.span > 0 for _, reward in logged_pairs)
        if (
            len(logged_pairs) == len(parts)
            and moves
            and all(equal_in_print(*pair) for pair in logged_pairs)
        ):
            return logged_pairs[0]
    return None


def equal_in_print(first: NoisyMetric, other: NoisyMetric) -> bool:
    """Whether two columns hold the same numbers in the same rows, as far as their digits tell."""
    unit = max(first.resolution, other.resolution)
    alike = np.array_equal(first.step_T, other.step_T)
    return alike and bool(np.allclose(first.value_T, other.value_T, rtol=1e-5, atol=1.01 * unit))


def _all_zero(evidence: Evidence, advantages: list[NoisyMetric | None]) -> bool:
    """Whether the largest and smallest advantages are 0 although rewards differ from row to row,
    and nothing says that those of each group are equal.
    """
    reward, logged = evidence.reward, [*filter(None, advantages)]
    if reward is None or not reward.span or evidence.groups.zero_variance.known:
        return False
    return bool(logged) and all(signal.is_zero.all() for signal in logged)
