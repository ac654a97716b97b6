r"""The completions: cut off from the start or since a step, cut off and paid all the same, texts
that repeat themselves, a policy that gives one answer.

Longer answers with a rising reward are what reasoning looks like, and no finding as long as they
end. A limit counts only where it is certain: where truncation is logged, where the mean length of
many rows is one and the same largest number, or where the settings say it and no row goes beyond.
Texts are not understood: a text that a compressor makes ten times shorter repeats itself.

Policy concentration: by the entropy law $R = -a\,e^{H} + b$ (2505.22617) what is left to gain is
$a(e^H - 1)$, of $a(e^{H_0} - 1)$ at the start: the share left needs no fit. Healthy runs lose
entropy too, so a low one alone is nothing.
"""

import zlib
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import polars as pl

from groupwise.arrays import Float, mean_of, median, rows_before
from groupwise.diagnostics.falls import HALF, end_levels, level_changes
from groupwise.diagnostics.judgement import (
    Fact,
    Finding,
    Sign,
    Status,
    by_sign,
    exactly,
    no_sign,
    not_logged,
)
from groupwise.diagnostics.learning import progress_of
from groupwise.diagnostics.numerics import beyond, ends_in_words, rose_since
from groupwise.diagnostics.signals import (
    FEWEST_ROWS,
    Evidence,
    NoisyMetric,
    arrow,
    both_ends,
    gained_since,
    left_band,
    limit_of,
    once,
    repeated_most,
    share_of,
    since_when,
    stands_since,
)
from groupwise.intervals import percent, wilson
from groupwise.wording import count, short

NAME = "concentration"
LOG_TEXTS = (
    "the texts of the completions (TRL: log_completions=True; verl: trainer.rollout_data_dir)"
)
LOG = f"the entropy of the policy (TRL: entropy, from 0.20 on; verl: actor/entropy), or {LOG_TEXTS}"
# One twentieth of what the entropy at the start could buy.
SPENT = 0.05
# A share with which nothing is left to learn by: where the reward shows no gain the rows need not
# show that it stands.
GONE = 0.01
# Ends of texts are kept from at most so many steps and completions of a step.
_STEPS, _EACH, _LONGEST = 80, 16, 4000
# The variance of a row at the top of the reward over that before, at the most.
SETTLED = 0.5
# A reward this near to the top of its range has arrived, whatever the entropy.
_ARRIVED = 0.9


def concentration(evidence: Evidence) -> Finding:
    """Look for a spent entropy below the top of the reward."""
    entropy = evidence.quantity("entropy")
    if entropy is None or len(entropy) < FEWEST_ROWS:
        same = same_answers(evidence)
        if same and len(same) >= FEWEST_ROWS:
            return _by_answers(evidence, same)
        said = evidence.unmeasured("entropy")
        rows = max(len(signal) for signal in (entropy or (), same or ()))
        if not said and (rows or completions_of(evidence) is not None):
            few = (
                f"there are {count(rows, 'row')} of entropy or of groups of completions; "
                f"{FEWEST_ROWS} are needed"
            )
            return not_logged(few, "more training steps")
        return not_logged(
            said or "the log contains neither entropy nor the texts of the completions", LOG
        )
    left = share_left(entropy)
    onset = since_when(left < SPENT)
    if onset is None:
        return no_sign(
            f"No sign of a problem: the entropy is {short(end_levels(entropy)[1])} nats a token.",
        )
    step, value = entropy.step_at(onset), exactly(median(left[onset:]))
    first, now = _start(entropy), entropy.level_from(onset)
    words = f"entropy {short(now)} (was {short(first)} at the start)"
    said = (
        f"the entropy was {short(first)} at the start and is {short(now)} nats a token from step "
        f"{step:,} on"
    )
    if _at_the_top(evidence, step):
        message = f"{said}, with the reward at its maximum"
        facts = (Fact.ENTROPY_SPENT_AT_TOP,)
        return Finding(Status.INFO, message, step, value, SPENT, facts=facts)
    flat = evidence.reward is not None and not gained_since(evidence, step)
    alike = _have_become_alike(evidence, step, same_answers(evidence))
    status = _gravity(evidence, step, value.value, flat=flat, alike=alike)
    stands = "and the reward is flat" if flat else "and the reward is not seen to be flat"
    stands = "and the reward has fallen" if "reward" in level_changes(evidence) else stands
    message = f"{said}, {stands}"
    facts = (Fact.ENTROPY_GONE if status is Status.CRITICAL else Fact.ENTROPY_LOW,)
    signs = (Sign("entropy", step, first, now, words, step),)
    return Finding(status, message, step, value, SPENT, signs=signs, facts=facts)


def _gravity(evidence: Evidence, step: int, left: float, *, flat: bool, alike: bool) -> Status:
    """How grave a spent entropy is, by what the reward and the groups do."""
    settles, reward = _settles(evidence, step), evidence.reward
    if settles < SETTLED:
        return Status.INFO
    unknown = evidence.by_tenths or reward is None or reward.bounds is None
    arrived = settles <= 1 and unknown
    if flat and alike:
        # Where the top is not known a reward that rose may stand at it.
        return Status.WARNING if arrived else Status.CRITICAL
    stands = stands_since(evidence, step) or (flat and left < GONE)
    return Status.WARNING if alike or (stands and not arrived) else Status.INFO


def share_left(entropy: NoisyMetric) -> Float:
    r"""Return $(e^{H_t} - 1)/(e^{H_0} - 1)$: by the entropy law the share of the gain that is
    still to come.
    """
    # A rounded 0 may be as much as the resolution.
    return np.asarray(
        np.expm1(np.clip(entropy.value_T, entropy.resolution, 50.0))
        / max(np.expm1(min(_start(entropy), 50.0)), entropy.resolution, 1e-12)
    )


def completions_of(evidence: Evidence) -> pl.DataFrame | None:
    """Return the rollouts whose texts were recorded, or None where none was."""
    rollouts = evidence.record.rollouts
    if (
        rollouts is None
        or "completion" not in rollouts.columns
        or not rollouts["completion"].count()
    ):
        return None
    return rollouts.drop_nulls("completion")


@once
def read_completions(evidence: Evidence) -> pl.DataFrame | None:
    """Return the completions by step and prompt: a hash of each, and the ends of some that are
    spread over the run; None without texts.
    """
    texts = completions_of(evidence)
    if texts is None:
        return None
    steps = texts["step"].unique().sort()
    chosen = steps[np.linspace(0, len(steps) - 1, _STEPS).astype(int)]
    number, of = pl.int_range(pl.len()).over("step"), pl.len().over("step")
    apart = (of // _EACH).clip(1)
    rows = texts.select(
        "step",
        "prompt_id",
        "completion",
        read=pl.col("step").is_in(chosen.implode())
        & (number % apart == 0)
        & (number // apart < _EACH),
    )
    text = pl.col("completion")
    end = pl.when("read").then(text.str.slice(-_LONGEST)).alias("end")
    return evidence.record.with_completions(rows, text.hash(), end)


def same_answers(evidence: Evidence) -> NoisyMetric | None:
    """Return the share of pairs of completions within a group that are the same text, by step,
    or None without texts.
    """
    answers = read_completions(evidence)
    if answers is None:
        return None
    counts = answers.group_by("step", "prompt_id", "completion").agg(pl.len().alias("k"))
    groups = counts.group_by("step", "prompt_id").agg(
        (pl.col("k") * (pl.col("k") - 1)).sum().alias("same"), pl.col("k").sum().alias("n")
    )
    groups = groups.filter(pl.col("n") > 1).with_columns(
        (pl.col("same") / (pl.col("n") * (pl.col("n") - 1))).alias("share")
    )
    steps = groups.group_by("step").agg(pl.col("share").mean()).sort("step")
    return share_of(steps["step"], steps["share"]) if len(steps) > 1 else None


def _start(entropy: NoisyMetric) -> float:
    """Entropy at the start: of the first rows alone, since it falls fastest there."""
    return entropy.level_until(max(1, len(entropy) // 40))


def _at_the_top(evidence: Evidence, step: float) -> bool:
    """Whether the reward has arrived at the top of its range."""
    reward = evidence.reward
    if reward is None or reward.bounds is None or evidence.by_tenths:
        return False
    mean = reward.level_from(min(reward.at(step), len(reward) - 3))
    low, high = reward.bounds
    return mean >= low + _ARRIVED * (high - low)


def _settles(evidence: Evidence, step: float) -> float:
    """The variance of a row since a step over that before, where the reward has risen clearly
    over the run, else infinite: at its top all prompts earn it and rows scatter less, and where
    answers are alike they scatter more.
    """
    reward = evidence.reward
    if reward is None:
        return np.inf
    row = reward.at(step)
    before, since = (
        mean_of(np.diff(rows, 2) ** 2) if rows.size > 3 else 0.0
        for rows in (reward.value_T[:row], reward.value_T[row:])
    )
    if reward.score(*both_ends(reward, max(3, len(reward) // 8))) <= 3.0:
        return np.inf
    return since / before if before > 0 else 1.0


def _have_become_alike(evidence: Evidence, step: float, same: NoisyMetric | None) -> bool:
    """Whether groups or answers have become alike with the entropy."""
    if same and same.at(step) < len(same):
        return same.level_from(same.at(step)) > 0.5
    alike = evidence.groups.zero_variance
    if alike.known:
        after = alike.value_T[alike.step_T >= step]
        before = alike.value_T[alike.step_T < step]
        late = float(np.nanmean(after)) if after.size else 0.0
        return late > 0.5 and (not before.size or late > float(np.nanmean(before)))
    # Half of the groups teach no more where the spread within them is half of what it was.
    within = None if evidence.groups.spread_gap else evidence.groups.spread
    for track, most in ((within, 0.5), (evidence.quantity("gradient_norm"), 0.1)):
        if track is None:
            continue
        since = track.step_T >= step
        if since.any() and not since.all():
            late, early = (float(np.nanmedian(track.value_T[rows])) for rows in (since, ~since))
            return late + track.resolution < most * early
    return False


def _by_answers(evidence: Evidence, same: NoisyMetric) -> Finding:
    """Judge by the texts alone."""
    onset = since_when(same.value_T > 0.5, still=False)
    if onset is None:
        share = 100 * same.late
        return no_sign(
            f"{share:.0f} % of the pairs of completions of one prompt are the same text."
        )
    step, value = same.step_at(onset), same.mean(slice(onset, None))
    status, fact = Status.CRITICAL, Fact.ENTROPY_GONE
    if _at_the_top(evidence, step):
        status, fact = Status.INFO, Fact.ENTROPY_SPENT_AT_TOP
    message = (
        f"{percent(value.value)} of the pairs of completions of a prompt are the same text "
        f"from step {step:,} on"
    )
    return Finding(status, message, step, value, 0.5, facts=(fact,))


TRUNCATION = "truncation"
LOG_CUT = (
    "the share of truncated completions (TRL: completions/clipped_ratio; verl: "
    "response_length/clip_ratio)"
)
LOG_ENDS = "each completion's length and the limit, or whether it ended by itself"
# Rows in which all completions are cut off that make most of them so: a quarter, even in groups of
# two.
_ALL_CUT = 0.25
# A truncated share above its band by this that has grown.
_BAND = 0.15
# And of the completions: hardly any ends by itself.
_NEARLY_ALL = 0.9
# Of its limit: a mean length from which most completions may be cut off.
_AT_LIMIT = 0.9
# Prose of a thousand characters and more shrinks to a third or a half, code and tables to a fifth;
# a loop to a hundredth.
SHRINKS, _SHORTEST = 0.1, 200
# A task may ask for a list or a table now and then; three completions in ten that loop are a habit.
LOOPS = 0.3
# Cut-off answers are seldom right: half of them paid, more than of the complete ones, is a grader
# that does not look for an end.
PAID, _MANY, _STANDARD_ERRORS = 0.5, 20, 3.0
# A share that rises by so much, and by so many standard errors.
_RISES, _CLEARLY = 0.2, 5.0
_LIKELY: tuple[Fact, ...] = (Fact.TRUNCATED_LIKELY,)
# The mean length of whole rollouts, beside that of the rows they are trained in, and how many times
# as long they are where it is the row that is cut.
_WHOLE = r".*(traj|trajectory|episode|rollout)\w*[/_](\w*_)?tokens([/_](mean|avg))?"
_FAR_LONGER = 3.0


def truncation(evidence: Evidence) -> Finding:
    """Look for completions that are cut off."""
    cut, length = map(evidence.quantity, ("truncated_share", "completion_length"))
    if cut and len(cut) >= FEWEST_ROWS:
        paid = _with_paid(_by_share(evidence, cut), evidence.reward, cut)
        return _of_rows(evidence, paid) if Fact.TRUNCATED_LIKELY in paid.facts else paid
    if length is None or len(length) < FEWEST_ROWS:
        said = "the log contains neither length nor the share of truncated completions"
        return not_logged(said, LOG_CUT)
    finding = _by_rows(length) or _by_limit(evidence, length)
    return finding or no_sign(f"the length is {ends_in_words(length, ' tokens')}.")


def _rises(reward: NoisyMetric | None, cut: NoisyMetric) -> int | None:
    """The row from which a share below a half goes on rising as the reward falls: answers on
    their way into the limit.
    """
    few = max(4, len(cut) // 8)
    row = len(cut) - few
    if reward is None or len(reward) != len(cut) or len(cut) < 3 * few:
        return None
    before, late = rows_before(row, 3 * few), slice(row, None)
    rose, mean = cut.change(before, late).value, cut.level(late)
    if (
        rose < _RISES
        or cut.score(before, late) < _CLEARLY
        or reward.score(before, late) > -_STANDARD_ERRORS
        or mean > min(HALF, cut.value_T[-1])
    ):
        return None
    return row


def _by_share(evidence: Evidence, cut: NoisyMetric) -> Finding:
    """Judge by the logged share: most of the completions, to the end, or more and more."""
    late, whole = cut.mean(slice(-max(5, len(cut) // 5), None)), cut.level_from(0)
    onset, first = since_when(cut.value_T > HALF), cut.level_until(3)
    rises, length = _rises(evidence.reward, cut), evidence.quantity("completion_length")
    # Of small batches single rows lie on both sides.
    if not rises and (late.value <= HALF or (onset is None and whole <= HALF)):
        return no_sign(f"{percent(end_levels(cut)[1])} of the last completions are truncated.")
    row = rises or onset or 0
    begun = left_band(cut.value_T[: row + 1], _BAND) or row
    step, near = cut.step_at(begun), cut.value_T[max(0, begun - max(5, len(cut) // 20)) : begun]
    # What was cut off at first may have learnt to end, and have lost that again.
    if not row or (not rises and min(first, near.mean()) > HALF):
        message = (
            f"{percent(whole)} of all completions are truncated, {percent(first)} in the first "
            "3 rows"
        )
        # Where hardly any ends by itself the end may be missing.
        facts = (*_LIKELY, Fact.HARDLY_ANY_ENDS) if late.value >= _NEARLY_ALL else _LIKELY
        return Finding(Status.WARNING, message, None, late, HALF, facts=facts)
    before, since = mean_of(near), cut.level_from(row)
    ahead = "" if begun == row else f" step {step:,}"
    message = (
        f"{percent(since)} of completions are truncated from step {cut.step_at(row):,} on, "
        f"{percent(before)} in the {count(len(near), 'row')} before{ahead}"
    )
    words = f"{percent(since)} truncated (was {percent(before)})"
    sign = Sign("truncated_share", step, before, since, words)
    if rises:
        ends = arrow(*progress_of(evidence).change.ends)
        message = f"{message}; the reward falls at the end ({ends} in all)"
        return by_sign(message, sign, HALF, Fact.CUT_AS_REWARD_FALLS)
    facts = (*_LIKELY, Fact.CUT_OFF_IN_MID_RUN)
    # All at once, and longer: a lower limit cuts shorter ones, a need of length grows by and by.
    sudden = before < 0.25 and min(since, cut.level(slice(row, row + len(near)))) >= _NEARLY_ALL
    at = 0 if length is None else length.at(step)
    if sudden and length and length.score(slice(at), slice(at, None)) > _STANDARD_ERRORS:
        facts += (Fact.ENDS_LOST,)
    return by_sign(message, sign, HALF, *facts)


def _with_paid(finding: Finding, reward: NoisyMetric | None, cut: NoisyMetric) -> Finding:
    """Add that truncated answers are paid, where the reward gained half of its range as they came
    and complete ones alone cannot earn it: a share r of the range, of which 1 - s are complete.
    """
    if reward is None or Fact.CUT_OFF_IN_MID_RUN not in finding.facts or finding.step is None:
        return finding
    row = reward.at(finding.step)
    before, late = reward.level(rows_before(row, _MANY)), reward.level_from(row)
    complete = 1 - cut.level_from(cut.at(finding.step))
    low, least = min(reward.low, 0.0), complete + PAID * (1 - complete)
    if late - before <= HALF * reward.span or late - low < least * (reward.high - low):
        return finding
    shares = f"{percent(cut.level_until(row))} → {percent(1 - complete)}"
    message = (
        f"truncated completions earn reward: the reward rose {arrow(before, late)} with "
        f"truncation, {shares}, since step {finding.step:,}"
    )
    return replace(finding, message=message, facts=(*finding.facts, Fact.TRUNCATED_PAID))


def _of_rows(evidence: Evidence, finding: Finding) -> Finding:
    """Add that rows are cut, where rollouts are far longer than the longest of them."""
    row = evidence.quantity("completion_length_max") or evidence.quantity("completion_length")
    if row is None:
        return finding
    for whole in evidence.matching(_WHOLE):
        tokens = median(whole.value_T)
        if tokens > _FAR_LONGER * row.high:
            message = (
                f"{finding.message}; rollouts have {short(tokens)} tokens, a training row at most "
                f"{short(row.high)}"
            )
            return replace(finding, message=message, facts=(*finding.facts, Fact.PARTS_CUT))
    return finding


def _by_rows(length: NoisyMetric) -> Finding | None:
    """Judge by rows whose mean length is the largest there is, over and over: all of their
    completions are cut off.
    """
    most = repeated_most(length)
    if most is None:
        return None
    late = length.value_T[-max(20, len(length) // 2) :]
    share = wilson(int((late >= 0.999 * most).sum()), late.size)
    if share.low < _ALL_CUT / 2 or share.value < _ALL_CUT:
        return None
    message = (
        f"the mean length is its maximum of {most:,.0f} tokens in {percent(share.value)} "
        f"of the last {late.size} rows, so completions are truncated"
    )
    return Finding(Status.WARNING, message, None, share, _ALL_CUT, facts=_LIKELY)


def _by_limit(evidence: Evidence, length: NoisyMetric) -> Finding | None:
    """Judge by a mean length that stands at a certain limit."""
    limit = limit_of(evidence)
    if limit is None or (onset := since_when(length.value_T > _AT_LIMIT * limit)) is None:
        return None
    step, late = length.step_at(onset) if onset else None, length.mean(slice(onset, None))
    since = "" if step is None else f" from step {step:,} on"
    message = (
        f"the completions average {short(late.value)} tokens{since}; the limit is {short(limit)}"
    )
    return Finding(
        Status.WARNING,
        message,
        step,
        late,
        _AT_LIMIT * limit,
        facts=(Fact.TRUNCATED_POSSIBLE,),
    )


def repetition(evidence: Evidence) -> Finding:
    """Look for completions that have come to repeat themselves."""
    share, texts = evidence.quantity("repetition_share"), read_completions(evidence)
    if share is None and texts is None:
        return not_logged("The texts of the completions are not in the log.", LOG_TEXTS)
    if texts is not None:
        loops = list(_loops(texts))
        if not loops:
            return no_sign("No completion is long enough to check for repetition.")
        share = share_of(*zip(*loops, strict=True))
    assert share is not None
    row = beyond(share, share.value_T > LOOPS)
    if row is None:
        whole = share.level_from(0)
        some = len(share) < FEWEST_ROWS and whole > LOOPS
        said = (
            f"{percent(whole)} of the checked completions repeat themselves, in "
            f"{count(len(share), 'step')}."
        )
        return Finding(Status.INFO if some else Status.NONE, said)
    step, late = share.step_at(row), share.level_from(row)
    before = share.level_until(row) if row else None
    words = f"{percent(late)} of completions repeat themselves"
    was = "" if before is None else f" (was {percent(before)})"
    message = f"{words} from step {step:,} on{was}."
    if row == 0 and rose_since(evidence, step):
        return Finding(Status.INFO, message, step, exactly(late), LOOPS)
    return by_sign(
        message, Sign("repetition", step, before, late, f"{words}{was}"), LOOPS, Fact.TEXTS_REPEAT
    )


def _loops(texts: pl.DataFrame) -> Iterator[tuple[int, float]]:
    """Yield the share of completions that repeat themselves, step by step."""
    long = texts.filter(pl.col("end").str.len_chars() >= _SHORTEST).sort("step")
    for (step,), part in long.group_by("step", maintain_order=True):
        yield int(step), float(np.mean(list(map(repeats, part["end"]))))


def repeats(text: str) -> bool:
    """Return whether a text repeats itself: whether it compresses to less than a tenth."""
    raw = text.encode("utf-8", "replace")
    return len(zlib.compress(raw, 6)) < SHRINKS * len(raw)


def truncated(evidence: Evidence) -> Finding:
    """Look for answers that were cut off and earned more than those that ended."""
    graded = evidence.graded
    if graded is None or (cut := _cut(evidence, graded)) is None:
        return not_logged(
            "The log does not say which completions were truncated and what each of them earned.",
            LOG_ENDS,
        )
    paid = graded.select(pl.col("reward") > max(0.0, float(graded["reward"].min()))).to_series()  # type: ignore[arg-type]
    many, ended = int(cut.sum()), int((~cut).sum())
    if many < _MANY:
        return no_sign(
            f"No sign of a problem: {count(many, 'completion')} of {len(cut):,} were truncated.",
        )
    got, whole = int((paid & cut).sum()), int((paid & ~cut).sum())
    share, other = got / many, whole / max(ended, 1)
    pooled = (got + whole) / len(cut)
    error = float(np.sqrt(max(pooled * (1 - pooled), 1e-12) * (1 / many + 1 / max(ended, 1))))
    said = (
        f"{got:,} of {many:,} truncated completions earn reward, and {whole:,} of {ended:,} others"
    )
    if share < PAID or (ended and share - other < _STANDARD_ERRORS * error):
        return no_sign(f"No sign of a problem: {said}.")
    step = int(graded.filter(cut & paid)["step"].min())  # type: ignore[arg-type]
    sign = Sign(
        "truncated_reward",
        step,
        None,
        share,
        f"{percent(share)} of truncated completions earn reward",
    )
    return by_sign(f"{said}.", sign, PAID, Fact.TRUNCATED_PAID)


def _cut(evidence: Evidence, graded: pl.DataFrame) -> pl.Series | None:
    """Which answers were cut off: those that did not end, or that are as long as the limit; None
    where that is not known.
    """
    if "ended" in graded.columns and graded["ended"].count():
        return graded["ended"].fill_null(1.0) < 0.5
    limit = evidence.setting("max_completion_length")
    if limit is None or "length" not in graded.columns or not graded["length"].count():
        return None
    return graded["length"].fill_null(0.0) >= float(limit)
