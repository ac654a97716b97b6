r"""Policy concentration: the entropy is spent, the answers are one answer, and the reward stands
below its top.

By the entropy law $R = -a\,e^{H} + b$ (2505.22617) what is left to gain is $a(e^H - 1)$, of
$a(e^{H_0} - 1)$ at the start: the share left needs no fit. Healthy runs lose entropy too, so a low
one alone is nothing. It does not say how to explore.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from groupwise.arrays import Float, median
from groupwise.diagnostics.facts import Fact
from groupwise.diagnostics.falls import end_levels, level_changes
from groupwise.diagnostics.judgement import Finding, Sign, Status, no_sign, not_logged
from groupwise.diagnostics.signals import (
    FEWEST_ROWS,
    Evidence,
    Signal,
    both_ends,
    counted,
    gained_since,
    once,
    share_of,
    since_when,
    stands_since,
)
from groupwise.diagnostics.signs import arrow
from groupwise.intervals import Interval
from groupwise.wording import short

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
HALF = 0.5
# A reward this near to the top of its range has arrived, whatever the entropy.
_ARRIVED = 0.9


def check(evidence: Evidence) -> Finding:
    """Look for a spent entropy below the top of the reward."""
    entropy = evidence.quantity("entropy")
    same = same_answers(evidence)
    if entropy is None or len(entropy) < FEWEST_ROWS:
        if same is not None and len(same) >= FEWEST_ROWS:
            return _by_answers(evidence, same)
        said = evidence.unmeasured("entropy")
        rows = max(len(signal) for signal in (entropy or (), same or ()))
        if not said and (rows or completions_of(evidence) is not None):
            few = (
                f"{counted(rows, 'row')} of entropy or of groups of completions, where "
                f"{FEWEST_ROWS} are the fewest"
            )
            return not_logged(NAME, few, "more steps")
        return not_logged(
            NAME, said or "neither entropy nor the texts of the completions are in the log", LOG
        )
    left = share_left(entropy)
    onset = since_when(left < SPENT)
    if onset is None:
        return no_sign(
            NAME, f"No sign of it: entropy is {short(end_levels(entropy)[1])} nats a token."
        )
    step, rest = entropy.step_at(onset), left[onset:]
    value = Interval(median(rest), float(np.quantile(rest, 0.025)), float(np.quantile(rest, 0.975)))
    first, now = _start(entropy), entropy.level_from(onset)
    words = f"entropy {arrow(first, now)}"
    said = f"entropy {short(first)} at the start and {short(now)} nats a token since step {step:,}"
    if _at_the_top(evidence, step):
        message = f"{said}, with the reward at its top"
        facts = (Fact.ENTROPY_SPENT_AT_TOP,)
        return Finding(NAME, Status.INFO, message, step, value, SPENT, facts=facts)
    flat = evidence.reward is not None and not gained_since(evidence, step)
    status = _gravity(
        evidence, step, value.value, flat=flat, alike=_have_become_alike(evidence, step, same)
    )
    stands = "and the reward stands" if flat else "while the reward still moves"
    stands = "and the reward has fallen" if "reward" in level_changes(evidence) else stands
    message = f"{said}, {stands}"
    facts = (Fact.ENTROPY_GONE if status is Status.CRITICAL else Fact.ENTROPY_LOW,)
    signs = (Sign("entropy", step, first, now, words, step),)
    return Finding(NAME, status, message, step, value, SPENT, signs=signs, facts=facts)


def _gravity(evidence: Evidence, step: int, left: float, *, flat: bool, alike: bool) -> Status:
    """How grave a spent entropy is, by what the reward and the groups do."""
    settles, reward = _settles(evidence, step), evidence.reward
    if settles < HALF:
        return Status.INFO
    unknown = evidence.by_tenths or reward is None or reward.bounds is None
    arrived = settles <= 1 and unknown
    if flat and alike:
        # Where the top is not known a reward that rose may stand at it.
        return Status.WARNING if arrived else Status.CRITICAL
    stands = stands_since(evidence, step) or (flat and left < GONE)
    return Status.WARNING if alike or (stands and not arrived) else Status.INFO


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


def same_answers(evidence: Evidence) -> Signal | None:
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


def _start(entropy: Signal) -> float:
    """Entropy at the start: of the first rows alone, since it falls fastest there."""
    return entropy.level_until(max(1, len(entropy) // 40))


def _at_the_top(evidence: Evidence, step: float) -> bool:
    """Whether the reward has arrived at the top of its range."""
    reward = evidence.reward
    if reward is None or reward.bounds is None or evidence.by_tenths:
        return False
    mean = reward.level_from(min(reward.at(step), len(reward) - 3))
    return mean >= reward.bounds[0] + _ARRIVED * (reward.bounds[1] - reward.bounds[0])


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
        float(np.mean(np.diff(rows, 2) ** 2)) if rows.size > 3 else 0.0
        for rows in (reward.value_T[:row], reward.value_T[row:])
    )
    if reward.score(*both_ends(reward, max(3, len(reward) // 8))) <= 3.0:
        return np.inf
    return since / before if before > 0 else 1.0


def _have_become_alike(evidence: Evidence, step: float, same: Signal | None) -> bool:
    """Whether groups or answers have become alike with the entropy."""
    if same is not None and same.at(step) < len(same):
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


def _by_answers(evidence: Evidence, same: Signal) -> Finding:
    """Judge by the texts alone."""
    onset = since_when(same.value_T > 0.5, still=False)
    if onset is None:
        share = 100 * same.level_from(-same.tenth)
        return no_sign(
            NAME, f"Of the pairs of completions of one prompt {share:.0f} % are the same text."
        )
    step, value = same.step_at(onset), same.mean(slice(onset, None))
    status, fact = Status.CRITICAL, Fact.ENTROPY_GONE
    if _at_the_top(evidence, step):
        status, fact = Status.INFO, Fact.ENTROPY_SPENT_AT_TOP
    message = (
        f"{100 * value.value:.0f} % of the pairs of completions of one prompt are the same text "
        f"since step {step:,}"
    )
    return Finding(NAME, status, message, step, value, 0.5, facts=(fact,))
