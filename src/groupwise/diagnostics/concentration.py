r"""Policy concentration: the entropy is spent, the answers are one answer, and the reward stands
below its top; and diversity in numbers.

By the entropy law $R = -a\,e^{H} + b$ (2505.22617) what is left to gain is $a(e^H - 1)$, of
$a(e^{H_0} - 1)$ at the start: the share left needs no fit. Healthy runs lose entropy too, so a low
one alone is nothing. It does not say how to explore.

The numbers beside the check raise no alarm. The best of a group less its mean is pass@G less mean@G
of right and wrong answers. The ceiling is $b - a$ of the law, by least squares on rows with
contiguous blocks for its interval.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from groupwise.arrays import Float, median
from groupwise.diagnostics.facts import Fact
from groupwise.diagnostics.judgement import Finding, Measure, Sign, Status
from groupwise.diagnostics.signals import (
    FEWEST_ROWS,
    Evidence,
    Signal,
    as_sure_as,
    counted,
    ends_of,
    once,
    ranged,
    share_of,
    signal_of,
    since_when,
    stands_since,
)
from groupwise.diagnostics.signs import arrow
from groupwise.intervals import Interval, student_quantile

NAME = "concentration"
LOG_TEXTS = (
    "the texts of the completions (TRL: log_completions=True; verl: trainer.rollout_data_dir)"
)
LOG = f"the entropy of the policy (TRL: entropy, from 0.20 on; verl: actor/entropy), or {LOG_TEXTS}"
LOG_GAP = (
    "the completions with their rewards, the share of groups without a success, or validation at k "
    "attempts beside one"
)
LOG_ENTROPY = (
    "entropy and reward of every step (TRL: entropy, reward; verl: actor/entropy, "
    "critic/rewards/mean)"
)
# One twentieth of what the entropy at the start could buy.
SPENT = 0.05
# A share with which nothing is left to learn by: where the reward shows no gain the rows need not
# show that it stands.
GONE = 0.01
# A reward this near to the top of its range has arrived, whatever the entropy.
_ARRIVED = 0.9


def check(evidence: Evidence) -> Finding:
    """Look for a spent entropy below the top of the reward."""
    entropy = evidence.quantity("entropy")
    same = same_answers(evidence)
    if entropy is None or len(entropy) < FEWEST_ROWS:
        if same is not None and len(same) >= FEWEST_ROWS:
            return _by_answers(evidence, same)
        said, rows = (
            evidence.unmeasured("entropy"),
            max(len(one) for one in (entropy or (), same or ())),
        )
        if not said and (rows or completions_of(evidence) is not None):
            few = (
                f"{counted(rows, 'row')} of entropy or of groups of completions, where "
                f"{FEWEST_ROWS} are the fewest"
            )
            return Finding(NAME, Status.NOT_LOGGED, few, log="more steps")
        return Finding(
            NAME,
            Status.NOT_LOGGED,
            said or "neither entropy nor the texts of the completions are in the log",
            log=LOG,
        )
    left = share_left(entropy)
    onset = since_when(left < SPENT)
    if onset is None:
        late = float(entropy.value_T[-_few(entropy) :].mean())
        return Finding(
            NAME,
            Status.NONE,
            f"No sign of it: entropy {arrow(_start(entropy), late)} nats a token.",
        )
    step, rest = int(entropy.step_T[onset]), left[onset:]
    value = Interval(median(rest), float(np.quantile(rest, 0.025)), float(np.quantile(rest, 0.975)))
    first, now = _start(entropy), float(entropy.value_T[onset:].mean())
    words = f"entropy {arrow(first, now)}"
    if _at_the_top(evidence, step):
        message = f"{words} nats a token since step {step:,}, with the reward at its top"
        facts = (Fact.ENTROPY_SPENT_AT_TOP,)
        return Finding(NAME, Status.INFO, message, step, value, SPENT, facts=facts)
    flat = _is_flat(evidence, step)
    status = _gravity(
        evidence, step, value.value, flat=flat, alike=_have_become_alike(evidence, step, same)
    )
    stands = "and the reward stands" if flat else "while the reward still moves"
    message = f"{words} nats a token since step {step:,}, {stands}"
    facts = (Fact.ENTROPY_GONE if status is Status.CRITICAL else Fact.ENTROPY_LOW,)
    signs = (Sign("entropy", step, first, now, words, step),)
    return Finding(NAME, status, message, step, value, SPENT, signs=signs, facts=facts)


def _gravity(evidence: Evidence, step: int, left: float, *, flat: bool, alike: bool) -> Status:
    """How grave a spent entropy is, by what the reward and the groups do."""
    arrived = _may_have_arrived(evidence, step)
    if flat and alike:
        # Where the top is not known a reward that rose may stand at it.
        return Status.WARNING if arrived else Status.CRITICAL
    gone = flat and not arrived and left < GONE
    return Status.WARNING if alike or gone or stands_since(evidence, step) else Status.INFO


def share_left(entropy: Signal) -> Float:
    r"""Return $(e^{H_t} - 1)/(e^{H_0} - 1)$: by the entropy law the share of the gain that is
    still to come.
    """
    start = np.expm1(min(_start(entropy), 50.0))
    # A rounded 0 may be as much as the resolution.
    return np.asarray(
        np.expm1(np.clip(entropy.value_T, entropy.resolution, 50.0))
        / max(start, entropy.resolution, 1e-12)
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
def answers_of(evidence: Evidence) -> pl.DataFrame | None:
    r"""Return step and group of each completion, what tells its text from others, and its final
    answer; None without texts.

    The answer is the last of a box, an answer tag or the line after four hashes.
    """
    texts = completions_of(evidence)
    if texts is None:
        return None
    text = pl.col("completion")
    with_one = {
        mark: pl.when(text.str.contains(mark, literal=True)).then(text) for mark in _FINAL
    }  # looked for in a tenth of the time
    final = pl.coalesce(
        with_one[mark].str.extract(pattern, 1) for mark, pattern in _FINAL.items()
    ).str.strip_chars()
    return evidence.record.with_completions(
        texts.select("step", "prompt_id", "completion"), text.hash(), final.alias("answer")
    )


def same_answers(evidence: Evidence) -> Signal | None:
    """Return the share of pairs of completions within a group that are the same text, by step,
    or None without texts.
    """
    answers = answers_of(evidence)
    return None if answers is None else _same(answers, "completion")


def same_final(evidence: Evidence) -> Signal | None:
    """Return the share of those that have the same final answer; None where fewer than half of
    the completions have one.
    """
    answers = answers_of(evidence)
    return (
        None
        if answers is None or 2 * answers["answer"].count() < len(answers)
        else _same(answers.drop_nulls("answer"), "answer")
    )


def _same(answers: pl.DataFrame, by: str) -> Signal | None:
    """Return the share of pairs within a group that are equal, by step."""
    counts = answers.group_by("step", "prompt_id", by).agg(pl.len().alias("k"))
    groups = counts.group_by("step", "prompt_id").agg(
        (pl.col("k") * (pl.col("k") - 1)).sum().alias("same"), pl.col("k").sum().alias("n")
    )
    groups = groups.filter(pl.col("n") > 1).with_columns(
        (pl.col("same") / (pl.col("n") * (pl.col("n") - 1))).alias("share")
    )
    steps = groups.group_by("step").agg(pl.col("share").mean()).sort("step")
    if len(steps) < 2:
        return None
    return share_of(steps["step"], steps["share"])


def _few(signal: Signal) -> int:
    """Rows of a stretch at the end."""
    return max(3, len(signal) // 10)


def _start(entropy: Signal) -> float:
    """Entropy at the start: of the first rows alone, since it falls fastest there."""
    return float(entropy.value_T[: max(1, len(entropy) // 40)].mean())


def _at_the_top(evidence: Evidence, step: float) -> bool:
    """Whether the reward has arrived at the top of its range."""
    reward = evidence.reward
    if reward is None or reward.bounds is None or evidence.by_tenths:
        return False
    mean = float(reward.value_T[min(reward.at(step), len(reward) - 3) :].mean())
    return mean >= reward.bounds[0] + _ARRIVED * (reward.bounds[1] - reward.bounds[0])


def _may_have_arrived(evidence: Evidence, step: float) -> bool:
    """Whether a reward of unknown range has risen clearly over the run: at its top all prompts
    earn it, and rows scatter less.
    """
    reward = evidence.reward
    if reward is None or (reward.bounds is not None and not evidence.by_tenths):
        return False
    row = reward.at(step)
    before, since = (
        float(np.mean(np.diff(rows) ** 2)) if rows.size > 3 else 0.0
        for rows in (reward.value_T[:row], reward.value_T[row:])
    )
    if since > before > 0:
        return False
    few = max(3, len(reward) // 8)
    return reward.score(slice(0, few), slice(len(reward) - few, None)) > 3.0


def _is_flat(evidence: Evidence, step: float) -> bool:
    """Whether the reward gained nothing since a step that is more than noise."""
    reward = evidence.reward
    if reward is None:
        return False
    row = min(reward.at(step), len(reward) - 4)
    few = max(2, (len(reward) - row) // 3)
    return reward.score(slice(row, row + few), slice(len(reward) - few, None)) < 3.0


def _have_become_alike(evidence: Evidence, step: float, same: Signal | None) -> bool:
    """Whether groups or answers have become alike with the entropy."""
    if same is not None and same.at(step) < len(same):
        return float(same.value_T[same.at(step) :].mean()) > 0.5
    alike = evidence.groups.zero_variance
    if alike.known:
        after = alike.value_T[alike.step_T >= step]
        before = alike.value_T[alike.step_T < step]
        late = float(np.nanmean(after)) if after.size else 0.0
        return late > 0.5 and (not before.size or late > float(np.nanmean(before)))
    # Half of the groups teach no more where the spread within them is half of what it was.
    within = None if evidence.groups.spread_gap else evidence.groups.spread
    for track, most in ((within, 0.5), (evidence.quantity("gradient_norm"), 0.1)):
        since = None if track is None else track.step_T >= step
        if track is not None and since is not None and since.any() and not since.all():
            return float(np.nanmedian(track.value_T[since])) + track.resolution < most * float(
                np.nanmedian(track.value_T[~since])
            )
    return False


def _by_answers(evidence: Evidence, same: Signal) -> Finding:
    """Judge by the texts alone."""
    onset = since_when(same.value_T > 0.5, still=False)
    if onset is None:
        share = 100 * float(same.value_T[-_few(same) :].mean())
        return Finding(
            NAME,
            Status.NONE,
            f"Of the pairs of completions of one prompt {share:.0f} % are the same text.",
        )
    step, value = int(same.step_T[onset]), same.mean(slice(onset, None))
    status, fact = (
        (Status.INFO, Fact.ENTROPY_SPENT_AT_TOP)
        if _at_the_top(evidence, step)
        else (Status.CRITICAL, Fact.ENTROPY_GONE)
    )
    message = (
        f"{100 * value.value:.0f} % of the pairs of completions of one prompt are the same text "
        f"since step {step:,}"
    )
    return Finding(NAME, status, message, step, value, 0.5, facts=(fact,))


_BEST = re.compile(
    r"(?P<stem>.*?)(?P<word>best@|pass@|pass_at_|pass)(?P<k>\d+)(?P<end>/mean)?", re.IGNORECASE
)
_BLOCKS, _POINTS, _FEWEST, _FEWEST_GROUPS = 5, 20, 20, 8
# What a final answer begins with, and the last of a text: a box, a tag, the line after four hashes.
_FINAL = {
    "\\boxed{": r"(?s).*\\boxed\{([^{}]*)\}",
    "<answer>": r"(?s).*<answer>(.*?)</answer>",
    "####": r"(?s).*####\s*([^\n]+)",
}


@dataclass(frozen=True, slots=True)
class Gap:
    """What the best of several attempts is above their mean, along the run."""

    gap: Signal  # by step
    name: str  # of the two numbers
    # the gap that prompts equally hard and independent attempts would leave at the same mean, or
    # None where that is unknown
    rival: Signal | None = None


def measures(evidence: Evidence) -> tuple[Measure, ...]:
    """Return the numbers beside `concentration`."""
    return (*_gap(evidence), *_alike(evidence), *ceiling(evidence))


def gap_of(evidence: Evidence) -> Gap | None:
    """Return the best of G less the mean: of the rollouts, else of what is logged."""
    return _of_rollouts(evidence) or _of_shares(evidence) or _of_validation(evidence)


def _gap(evidence: Evidence) -> tuple[Measure, ...]:
    """Measure the gap at the end of the log and how it shrank."""
    found = gap_of(evidence)
    if found is None:
        return (
            Measure(
                NAME,
                "best_minus_mean",
                None,
                "nothing in the log tells what more attempts would buy",
                LOG_GAP,
            ),
        )
    early, late = ends_of(found.gap)
    now, before, change = found.gap.mean(late), found.gap.mean(early), found.gap.change(early, late)
    rival = (
        ""
        if found.rival is None
        else (
            "; prompts equally hard and independent attempts would leave "
            f"{found.rival.mean(late).value:.3g}"
        )
    )
    said = f"{found.name} is {ranged(now)} at the end{rival}"
    if early == late:
        return (Measure(NAME, "best_minus_mean", now, said),)
    shrank = f"{found.name} went from {before.value:.3g} to {now.value:.3g}, by {ranged(change)}"
    return (
        Measure(NAME, "best_minus_mean", now, said),
        Measure(NAME, "best_minus_mean_change", change, shrank),
    )


def _of_rollouts(evidence: Evidence) -> Gap | None:
    """The gap from the rewards of the completions."""
    known = evidence.graded
    if known is None:
        return None
    groups = known.group_by("step", "prompt_id").agg(
        pl.len().alias("size"),
        pl.col("reward").max().alias("best"),
        pl.col("reward").mean().alias("mean"),
    )
    groups = groups.filter(pl.col("size") > 1)
    steps = (
        groups.sort("step", "prompt_id")
        .group_by("step")
        .agg(
            (pl.col("best") - pl.col("mean")).mean().alias("gap"),
            pl.col("mean").mean(),
            pl.col("size").mean(),
            pl.len().alias("groups"),
        )
        .sort("step")
    )
    if len(groups) < _FEWEST_GROUPS:
        return None
    step, gap, mean, size = (
        steps[name].to_numpy().astype(float) for name in ("step", "gap", "mean", "size")
    )
    binary = set(known["reward"].unique().to_list()) <= {0.0, 1.0}
    of = str(int(size[0])) if float(np.ptp(size)) == 0 and float(size[0]) == int(size[0]) else "G"
    name = f"pass@{of} less mean@{of}" if binary else f"the best of {of} less their mean"
    rival = _signal(step, 1 - (1 - mean) ** size - mean) if binary else None
    # A row is never surer than its groups make it, which differ among each other.
    spread = (groups["best"] - groups["mean"]).to_numpy().std(ddof=1)
    sampling = float(spread) / float(np.sqrt(np.median(steps["groups"].to_numpy())))
    return Gap(_signal(step, gap, sampling=sampling), name, rival)


def _of_shares(evidence: Evidence) -> Gap | None:
    """The gap from the share of groups with a success and the mean of rewards of 0 and 1, both
    of training.
    """
    reward = evidence.reward
    if reward is None or reward.bounds != (0.0, 1.0):
        return None
    wrong = evidence.quantity("all_wrong_share")
    signal = wrong or evidence.quantity("pass_at_k")
    if signal is None:
        return None
    shared, mine, other = np.intersect1d(signal.step_T, reward.step_T, return_indices=True)
    passed = 1 - signal.value_T[mine] if wrong is not None else signal.value_T[mine]
    mean = reward.value_T[other]
    # Rewards of 0 and 1 have a mean no higher than the share of groups with a success; others mean
    # something else.
    if len(shared) < 2 or float((passed - mean).min()) < -1e-6:
        return None
    size = evidence.group_size
    of = "G" if size is None else str(size)
    rival = None if size is None else _signal(shared, 1 - (1 - mean) ** size - mean)
    return Gap(_signal(shared, passed - mean), f"pass@{of} less mean@{of}", rival)


def _of_validation(evidence: Evidence) -> Gap | None:
    """The gap from validation at k attempts and at one, of the same name but for the number."""
    columns = evidence.record.metrics()
    found: list[tuple[int, str, str]] = []
    for column in columns:
        match = _BEST.fullmatch(column)
        if match is None or int(match["k"]) < 2:
            continue
        stem, k = match["stem"], match["k"]
        words = (f"mean@{k}", f"mean@{k}/mean", f"avg@{k}", f"{match['word']}1", "mean@1", "avg@1")
        partner = next(
            (
                name
                for name in (*(stem + word for word in words), stem.rstrip("-_/"))
                if name in columns
            ),
            None,
        )
        if partner is not None:
            found.append((int(k), column, partner))
    for _, best, mean in sorted(found, key=lambda one: -one[0]):
        rows = evidence.record.steps.filter(pl.col(best).is_finite() & pl.col(mean).is_finite())
        if len(rows) >= 2:
            gap = rows[best].to_numpy().astype(float) - rows[mean].to_numpy().astype(float)
            return Gap(_signal(rows["step"].to_numpy().astype(float), gap), f"{best} less {mean}")
    return None


def _alike(evidence: Evidence) -> tuple[Measure, ...]:
    """Measure pairs of completions of one prompt that are the same text, and that end in the
    same answer.
    """
    texts = same_answers(evidence)
    if texts is None:
        return (
            Measure(
                NAME,
                "same_text",
                None,
                "the texts of the completions are not in the log",
                LOG_TEXTS,
            ),
        )
    told = (
        ("same_text", texts, "are the same text"),
        ("same_answer", same_final(evidence), "end in the same answer"),
    )
    found = []
    for name, signal, does in told:
        if signal is not None:
            value = as_sure_as(signal, evidence.record.rollouts)
            share = f"{100 * value.value:.0f} % ({100 * value.low:.0f} to {100 * value.high:.0f})"
            found.append(
                Measure(
                    NAME,
                    name,
                    value,
                    f"{share} of the pairs of completions of one prompt {does} at the end",
                )
            )
    return tuple(found)


def ceiling(evidence: Evidence) -> tuple[Measure, ...]:
    r"""Return the ceiling that the entropy law puts to the reward, and what it leaves.

    $R = c + a(1 - e^H)$ by least squares on means of neighbouring rows: c is the reward at an
    entropy of 0. The interval is that of a jackknife over five contiguous blocks, at Student's
    quantile. A reward that does not fall with $e^H$, or bends, has no such ceiling.

    Source: the entropy law of 2505.22617; the jackknife over blocks as in Künsch (1989), derived
    here for the ceiling.
    """
    reward, entropy = evidence.reward, evidence.quantity("entropy")
    if reward is None or entropy is None:
        return _no_ceiling("entropy and reward are not both in the log", LOG_ENTROPY)
    _, mine, other = np.intersect1d(reward.step_T, entropy.step_T, return_indices=True)
    if len(mine) < _FEWEST:
        return _no_ceiling(
            f"{len(mine)} rows are too few for a line in e^H", f"{_FEWEST} rows of both"
        )
    x, y = (
        _pooled(value)
        for value in (1 - np.exp(np.clip(entropy.value_T[other], 0.0, 50.0)), reward.value_T[mine])
    )
    fitted = _jackknifed(np.column_stack([np.ones_like(x), x]), y)
    if fitted is None or fitted[1].low <= 0:
        return _no_ceiling(
            "the reward does not fall with e^H beyond noise, so that the law tells no ceiling"
        )
    bent = _jackknifed(np.column_stack([np.ones_like(x), x, x**2]), y)
    if bent is not None and (bent[2].low > 0 or bent[2].high < 0):
        return _no_ceiling(
            "the reward bends against e^H, so that the law's straight line tells no ceiling"
        )
    top, slope = fitted[0], fitted[1]
    spent = -float(x[-max(3, len(x) // 5) :].mean())
    left = Interval(slope.value * spent, slope.low * spent, slope.high * spent)
    reach = ""
    if reward.bounds is not None and top.high > reward.bounds[1]:
        reach = (
            f"; its top of {reward.bounds[1]:.3g} is not ruled out"
            if top.low <= reward.bounds[1]
            else "; its top comes first"
        )
    line = (
        f"by the entropy law R = −a e^H + b the reward ends at {ranged(top)} when the entropy is "
        f"spent{reach}"
    )
    rest = f"by the same law what is left of the entropy buys {ranged(left)} more"
    return (Measure(NAME, "entropy_ceiling", top, line), Measure(NAME, "entropy_left", left, rest))


def _no_ceiling(why: str, log: str = "") -> tuple[Measure]:
    """No ceiling, and why."""
    return (Measure(NAME, "entropy_ceiling", None, why, log),)


def _pooled(value_T: Float) -> Float:
    """Means of neighbouring rows, twenty of them: noise in the entropy flattens a line through
    single rows.
    """
    return np.array(
        [float(part.mean()) for part in np.array_split(value_T, min(len(value_T), _POINTS))]
    )


def _jackknifed(design_TP: Float, value_T: Float) -> list[Interval] | None:
    """Least squares with intervals from leaving out each of five contiguous blocks; None where a
    column is told by the others.
    """
    if np.linalg.matrix_rank(design_TP) < design_TP.shape[1]:
        return None
    parts = np.array_split(np.arange(len(value_T)), _BLOCKS)
    whole, *_ = np.linalg.lstsq(design_TP, value_T, rcond=None)
    without = [
        np.linalg.lstsq(np.delete(design_TP, part, axis=0), np.delete(value_T, part), rcond=None)[0]
        for part in parts
    ]
    error = np.sqrt((_BLOCKS - 1) / _BLOCKS * ((np.array(without) - whole) ** 2).sum(axis=0))
    half = student_quantile(0.95, _BLOCKS - 1) * error
    return [
        Interval(float(v), float(v - h), float(v + h)) for v, h in zip(whole, half, strict=True)
    ]


def _signal(
    step: NDArray[np.float64] | NDArray[np.int64], value: Float, *, sampling: float = 0.0
) -> Signal:
    """A signal of a gap, which is not below 0."""
    return signal_of(
        "gap",
        step.astype(np.int64),
        value.astype(np.float64),
        sampling=sampling,
        bounds=(0.0, np.inf),
    )
