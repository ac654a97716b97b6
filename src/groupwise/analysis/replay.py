"""What a run's log says that it would have cost under other choices: `groupwise replay`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
import polars as pl

from groupwise.analysis.plan import RunPlan, plan_of_rewards
from groupwise.analysis.rollouts import named_outcomes
from groupwise.diagnostics.judgement import Cost, cost_since
from groupwise.errors import InsufficientDataError
from groupwise.estimators.replay import Choice, LoggedGroups, Replay, Replayed, replay_groups
from groupwise.plain import Said, Words, frozen
from groupwise.readers.rollouts import BY_GROUPS
from groupwise.record.run import RunRecord
from groupwise.series.metric import group_evidence, log_completions
from groupwise.wording import in_python, number, share_ranged

UNKNOWN = "A log does not show how the policy would have changed: the logged policy is replayed."
PROXY = (
    "The gradient variance is estimated from rewards alone and within prompts; the variance "
    "between prompts would favour smaller groups. A row of another G shows what a mixed group "
    "costs there; it recommends no size."
)
_TORN = 0.05  # of groups, from which so many parts are no chance
_MOST_GROUPS = 0.99  # of a size: a prompt may be drawn twice in a row of the log
IN_PART = (
    "A part of the rollouts is logged: what goes by the earlier groups of a prompt, such as "
    "skipping, may have saved more."
)
LOG_LENGTHS = "Log the length of each completion to see the effect of the loss's denominator."


@frozen
class RunReplay(Said):
    """A run replayed, or what rewards alone say of it."""

    MORE = "status"

    replay: Replay | None  # None without rollouts
    spent: Cost | None  # by the whole run
    rewards: RunPlan | None  # None with rollouts
    notes: Words  # what cannot be known, and what to log
    unavailable: str = ""  # why nothing can be said, or ""

    @property
    def cheapest(self) -> Replayed | None:
        """The choice of least rollouts a live group that adds no variance; None where none saves
        beyond its interval.
        """
        rows = [
            row
            for row in (self.replay.choices if self.replay else ())
            if row.choice not in (Choice.SIZE, Choice.CONFORMAL)
            and row.cost.high < 1
            and (row.variance is None or row.variance.low <= 1)
        ]
        return min(rows, key=lambda row: row.cost.value, default=None)

    @property
    def status(self) -> str:
        """The answer, in a sentence."""
        if self.replay is None:
            return self.rewards.said if self.rewards else self.unavailable
        made, best = self.replay, self.cheapest
        cheaper = "no rule at this group size clearly saves rollouts without more variance"
        if best:
            cheaper = f"{best.choice} would have given as many with {share_ranged(best.saved())} "
            cheaper += "fewer rollouts"
            if self.gpu_hours is not None:
                cheaper += f", {number(best.saved(self.gpu_hours).value)} GPU-hours"
        return (
            f"{made.live_groups:,} of {made.groups:,} groups had mixed rewards, "
            f"{share_ranged(made.live)}: {cheaper}."
        )

    @property
    def gpu_hours(self) -> float | None:
        """The GPU-hours of the run, None where they are not known."""
        return self.spent.gpu_hours if self.spent else None

    def __str__(self) -> str:
        """The answer."""
        return in_python(self.status)


def replay_run(record: RunRecord, *, seed: int = 0, opened: Path | None = None) -> RunReplay:
    """Replay a run from its logged rewards.

    Raises:
        InsufficientDataError: no group has two rollouts, groups are torn, none is live, or neither
            rollouts nor a share of zero-variance groups are logged.
    """
    groups, spent = logged_groups(record), cost_since(record, None)
    if groups is None:
        if record.rollouts is not None and "reward" in record.rollouts.columns:
            raise InsufficientDataError(
                "expected at least two rollouts of one prompt in a row of the log, got single "
                "ones: log whole groups with the text or number of the prompt"
            )
        rewards = plan_of_rewards(record, opened)
        if rewards.zero_variance is None:
            lacks = (
                "the group size beside the share of zero-variance groups, got none: give --set "
                "group_size=G"
            )
            if record.config.value("group_size") or not group_evidence(record).zero_variance.known:
                lacks = (
                    "rollouts with prompts and rewards, or the share of zero-variance groups, got "
                    f"neither: {log_completions(record)}"
                )
            raise InsufficientDataError(rewards.unavailable or f"expected {lacks}")
        return RunReplay(
            None, spent, rewards, (UNKNOWN, f"For more choices, {log_completions(record)}")
        )
    made = replay_groups(groups, seed=seed)
    dynamic = (
        "Saved rollouts are counted for the same number of mixed groups. Dynamic sampling saves "
        f"only updates: it needs {number(made.dynamic.drawn.value)} groups per mixed group, the "
        f"mean over all updates, and {number(made.dynamic.batches)} where it draws whole batches "
        "and drops the rest. `groupwise plan` says the first for the latest groups."
    )
    log = LOG_LENGTHS if groups.tokens_N is None else ""
    part = IN_PART if spent and 1.1 * made.rollouts < (spent.rollouts or 0) else ""
    notes = (record.in_part, part, UNKNOWN, PROXY, dynamic, *made.notes, log)
    return RunReplay(made, spent, None, tuple(filter(None, notes)))


def replay_of_rollouts(record: RunRecord) -> RunReplay | None:
    """Replay a run by its rollouts; None where it has none, or none that can be replayed."""
    if record.rollouts is not None:
        with suppress(InsufficientDataError):
            return replay_run(record)
    return None


def logged_groups(record: RunRecord) -> LoggedGroups | None:
    """The rewards of logged groups; None where there are none.

    Groups smaller than the setting says, or prompts in neighbouring rows alone, are refused.
    """
    outcomes = named_outcomes(record)
    if outcomes is None:
        return None
    group = outcomes.select("step", "prompt_id").to_struct().rank("dense")
    named = outcomes["prompt"].cast(pl.Categorical).to_physical()  # faster than a rank of texts
    lengths = "length" in outcomes.columns and not outcomes["length"].null_count()
    groups = LoggedGroups.of(
        outcomes["outcome"].to_numpy(),
        group.to_numpy(),
        outcomes["step"].to_numpy(),
        prompt_N=None if named.null_count() else named.to_numpy(),
        tokens_N=outcomes["length"].to_numpy() if lengths else None,
    )
    setting, usual = record.config.group_size, groups.counts.usual_size
    whole = setting.value == usual and setting.source != BY_GROUPS
    if (setting.value and usual < setting.value) or _are_torn(groups, whole=whole):
        sizes = [f"{size:.0f}" for size in np.unique(groups.size_P)]
        came = " and ".join(sizes) if len(sizes) < 3 else f"{sizes[0]} to {sizes[-1]}"
        raise InsufficientDataError(
            f"expected whole groups in one row of the log, got {came} rollouts per prompt: log "
            f"whole groups, or give --set group_size={usual} if these are whole"
        )
    return groups


def _are_torn(groups: LoggedGroups, *, whole: bool) -> bool:
    """Whether groups stand in neighbouring rows, a part in each: what a prompt has there is no
    more than the largest group but for one in a hundred, or no prompt comes in a row alone, unless
    groups are said to be whole; of the first and the last row a part may not be logged.
    """
    rows = int(groups.step_P.max()) + 1
    visit, place_P = np.unique(groups.prompt_P * (rows + 1) + groups.step_P, return_inverse=True)
    begins = np.diff(visit, prepend=-2) > 1
    run = begins.cumsum() - 1
    length, first = np.bincount(run), visit[begins] % (rows + 1)
    largest = np.quantile(groups.size_P, _MOST_GROUPS, method="lower")
    parts = (length > 1) & (np.bincount(run[place_P], groups.size_P) <= largest)
    inner = length[(first > 0) & (first + length < rows)]
    torn = inner.min(initial=rows) > 1 and 1 < length.max() < rows and not whole
    return bool(torn or parts.mean() > _TORN)
