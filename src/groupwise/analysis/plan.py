"""What a run says of its group size in one result: its batch in words, zero-variance groups at larger sizes, a plan from components.

The best size needs the variance components of the gradient; without them the result is what rewards say, and the command for the rest.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from groupwise.analysis.component_file import components_beside
from groupwise.analysis.group_size import LOG_COMPLETIONS, batch_of
from groupwise.errors import InsufficientDataError
from groupwise.estimators.best_group_size import Budget, GroupSizePlan, plan_from_components
from groupwise.estimators.zero_variance import ZeroVarianceOutlook
from groupwise.intervals import percent
from groupwise.plain import Plain, Said
from groupwise.readers import open_run
from groupwise.record.run import RunRecord
from groupwise.series.groups import group_evidence, zero_variance_outlook
from groupwise.wording import count

NOT_LOGGED = (
    "Zero-variance groups: not logged. Log frac_reward_zero_std, or the completions with their rewards (TRL: log_completions=True)."
)
_NEEDS_SIZE = "{} of groups have zero variance; what twice the group size would change needs the size: give --set group_size=G."


@dataclass(frozen=True, slots=True)
class Batch(Plain):
    """What one logged step is made of; None is unknown."""

    KEYS: ClassVar = ("prompts", "group_size", "completions", "updates", "said")

    prompts: int | None  # of a step
    group_size: int | None  # rollouts of a prompt
    updates: float | None  # of the optimiser, a step

    @property
    def completions(self) -> int | None:
        """Prompts times rollouts."""
        return None if self.prompts is None or self.group_size is None else self.prompts * self.group_size

    @property
    def said(self) -> str:
        """The batch in one line, with the settings that would complete it."""
        prompts = "? prompts" if self.prompts is None else count(self.prompts, "prompt")
        rollouts = "? rollouts" if self.group_size is None else count(self.group_size, "rollout")
        whole = "" if self.completions is None else f" = {count(self.completions, 'completion')}"
        updates = "? updates" if self.updates is None else f"{self.updates:,.4g} {'update' if self.updates == 1 else 'updates'}"
        known = {"prompts_per_step=B": self.prompts, "group_size=G": self.group_size, "updates_per_step=U": self.updates}
        missing = [f"--set {name}" for name, value in known.items() if value is None]
        return f"A step is {prompts} x {rollouts}{whole} in {updates}{'; give ' + ' '.join(missing) if missing else ''}."


@dataclass(frozen=True, slots=True, repr=False)
class RunPlan(Said):
    """What a run says of its group size."""

    KEYS: ClassVar = ("status", "batch", "zero_variance", "effective_group_size", "plan", "missing", "command")

    batch: Batch  # of one step
    zero_variance: ZeroVarianceOutlook | None  # share of zero-variance groups at G, 2G and 4G; None where it is not logged
    plan: GroupSizePlan | None  # from components beside the run; None without them
    missing: str  # what to log or to give where the share of zero-variance groups is not known at any size; else ""
    command: str  # what to log, where completions are missing, and the command that measures components; "" where they are there

    @property
    def effective_group_size(self) -> float | None:
        """Rollouts of a group that carry a gradient, on average; None where zero-variance groups are not logged."""
        found = self.zero_variance
        return None if found is None else found.group_size * (1 - found.now.value)

    @property
    def status(self) -> str:
        """The answer in one sentence or two."""
        if self.plan is not None:
            return self.plan.status
        found = self.zero_variance
        if found is None:
            return self.missing
        now, double, fourfold = found.shares
        assert double.gained is not None
        assert fourfold.gained is not None
        gained = f"{100 * double.gained.value:.0f} ({100 * double.gained.low:.0f} to {100 * double.gained.high:.0f})"
        return (
            f"{percent(now.share.value)} of groups have zero variance at G = {found.group_size}; of 100 groups G = {double.group_size} "
            f"would make {gained} more informative, G = {fourfold.group_size} {100 * fourfold.gained.value:.0f}."
        )

    def __str__(self) -> str:
        """The answer."""
        return f"{self.status} {self.batch.said}"


def plan(run: RunRecord | str | Path, *, budget: Budget | None = None) -> RunPlan:
    """Return what a run says of its group size.

    From components that lie beside the run (`groupwise components RUN --model CHECKPOINT`) the best size for the budget; without them
    the share of zero-variance groups at the size in use, at twice and at four times of it, which recommends no size.

    Args:
        run: a record, or the path of a run.
        budget: of one step; by default the run's own rollouts.

    Returns:
        The plan.

    Raises:
        GroupwiseError: a path that is no run, damaged components, or components without a budget where the batch is not known.

    Example:
        >>> from groupwise.examples import trl_run
        >>> found = plan(trl_run())
        >>> found.zero_variance.group_size, [row.group_size for row in found.zero_variance.shares]
        (8, [8, 16, 32])
    """
    opened = getattr(run, "opened", None) if isinstance(run, RunRecord) else Path(run)
    record = run if isinstance(run, RunRecord) else open_run(run)
    held = components_beside(opened)
    if held is None:
        return plan_of_rewards(record, opened)
    size, _ = batch_of(record)
    budget = budget or _budget_in_use(record)
    present = size if size is not None and 2 <= size <= budget.largest_group else None
    found = plan_from_components(held, budget, present=present)
    return replace(plan_of_rewards(record, opened), plan=found, command="")


def _budget_in_use(record: RunRecord) -> Budget:
    """Return the run's own rollouts of one step as a budget."""
    size, prompts = batch_of(record)
    if size is None or prompts is None or size < 2:
        raise InsufficientDataError("expected the batch in use, got none: give budget, or the settings group_size and prompts_per_step")
    return Budget(float(size * prompts))


def plan_of_rewards(record: RunRecord, opened: Path | None) -> RunPlan:
    """Return what rewards alone say, and the command for the rest."""
    name = "RUN" if opened is None else shlex.quote(str(opened))
    first = "" if record.rollouts is not None and len(record.rollouts) else f"{LOG_COMPLETIONS}, then "
    found = zero_variance_outlook(record)
    missing = "" if found is not None else NOT_LOGGED
    share = group_evidence(record).zero_variance if missing else None
    if share is not None and share.known and record.config.value("group_size") is None:
        late = share.value_T[np.isfinite(share.value_T)]
        missing = _NEEDS_SIZE.format(percent(float(late[-max(1, len(late) // 4) :].mean())))
    return RunPlan(batch_in_use(record), found, None, missing, f"{first}groupwise components {name} --model CHECKPOINT")


def batch_in_use(record: RunRecord) -> Batch:
    """Return prompts, rollouts and updates of one step, by the settings, or as the completions have them."""
    size, prompts = batch_of(record)
    return Batch(prompts, size, record.config.value("updates_per_step"))
