"""What a run says of its group size: a plan from components that lie beside it, or else what its
rewards alone say.
"""

from __future__ import annotations

import math
import shlex
from dataclasses import field, replace
from pathlib import Path

import numpy as np

from groupwise.analysis.components import components_beside, load_components, path_beside
from groupwise.diagnostics.judgement import Judgement, State
from groupwise.errors import GroupwiseError, InsufficientDataError
from groupwise.estimators.best_group_size import Budget, GroupSizePlan, plan_from_components
from groupwise.estimators.components import Components
from groupwise.estimators.zero_variance import ZeroVarianceOutlook
from groupwise.intervals import Interval, percent
from groupwise.parsing import JsonObject, JsonView
from groupwise.plain import Plain, Said, Words, frozen
from groupwise.record.run import RunRecord
from groupwise.series.metric import LOG_COMPLETIONS, group_evidence, zero_variance_outlook
from groupwise.wording import clean, count, in_python, ranged, sentence, shown_argument

_MOST_FACTS, _LONGEST_FACT = 24, 80
# Rollouts a prompt that no run is shown to lose much by (docs/how-to/choose-the-group-size.md).
_SAFE = 4


@frozen
class GroupSizeEvidence(Plain):
    """The section on the group size."""

    KEYS = "components plan rewards_alone=rewards provenance notes"

    components: Components | None = None  # measured beside the run, or None
    plan: GroupSizePlan | None = None  # at the run's own budget, or None
    rewards: RunPlan | None = None  # what rewards alone say, where there are no components
    notes: Words = ()  # sentences on what to know, and what would get the rest
    provenance: JsonView = field(default_factory=dict)  # what the components were computed from
    missing: str = ""  # what to log, where nothing can be said; else ""

    @property
    def said(self) -> Words:
        """What it comes to, in sentences."""
        if measured := self.plan or self.components:
            return (measured.status,)
        return (self.rewards.status, self.rewards.batch.said) if self.rewards else ()

    def as_dict(self) -> JsonObject:
        """Plain data for JSON."""
        shown = Plain.as_dict(self) | {"provenance": shown_provenance(self.provenance)}
        if self.plan:  # its components stand beside it; of its curve what a table shows
            sizes = set(self.plan.shown_sizes)
            shown["plan"].pop("components", None)
            shown["plan"]["curve"] = [
                point.as_dict() for point in self.plan.curve if point.group_size in sizes
            ]
        return shown


def group_size_evidence(
    record: RunRecord, *, opened: Path | None = None, until: float | None = None
) -> GroupSizeEvidence:
    """Collect what a run says of its group size."""
    notes: Words = ()
    place = opened and path_beside(opened)
    if place and place.is_file():
        try:
            if until is None:
                saved = load_components(place)
                return _planned(record, saved.components, saved.provenance)
            notes = ("The variance components beside the run may use later steps and are ignored.",)
        except GroupwiseError as error:
            notes = (sentence(clean(error, longest=300).replace(str(place), place.name)),)
    rewards = plan_of_rewards(record, opened and Path(opened.name or str(opened)))
    if rewards.zero_variance is None:
        return GroupSizeEvidence(notes=notes, missing=rewards.status)
    return GroupSizeEvidence(
        rewards=rewards,
        notes=(*notes, rewards.rest),
    )


def _planned(record: RunRecord, components: Components, provenance: JsonView) -> GroupSizeEvidence:
    """Plan at the run's own budget."""
    notes, plan = list(provenance_notes(provenance)), None
    try:
        plan = _by_components(record, components)
    except GroupwiseError as error:
        notes.append(sentence(clean(error)))
    notes += (*plan.notes, *scaling_notes(record)) if plan else components.notes
    return GroupSizeEvidence(components, plan, None, tuple(notes), provenance)


def provenance_notes(provenance: JsonView) -> Words:
    """Return what components were computed from as one sentence, however odd the file is."""
    facts = []
    for name, value in shown_provenance(provenance).items():
        shown = f"{value[0]} to {value[-1]}" if isinstance(value, list) else value
        facts += [] if value is None else [f"{name.replace('_', ' ')} {shown}"]
    return (f"These components were measured with {', '.join(facts)}.",) if facts else ()


def shown_provenance(provenance: JsonView) -> JsonObject:
    """Return the facts that a page may show: short cleaned texts and numbers, paths from
    elsewhere cut to their own names.
    """
    shown: JsonObject = {}
    for name, value in list(provenance.items())[:_MOST_FACTS]:
        pair = (
            isinstance(value, list)
            and len(value) == 2
            and all(isinstance(end, int | float) for end in value)
        )
        key = clean(name, longest=40)
        if isinstance(value, str):
            shown[key] = clean(shown_argument(value), longest=_LONGEST_FACT)
        elif pair or isinstance(value, int | float | None):
            shown[key] = value
    return shown


def scaling_notes(record: RunRecord) -> Words:
    """Say that dividing advantages by a deviation changes what is estimated, where the run does
    so.
    """
    scaling = record.config.value("scale_rewards")
    if scaling not in {"group", "batch"}:
        return ()
    return (
        (
            f"The run divides its advantages by the standard deviation of the {scaling}; these "
            "numbers are for advantages without that division."
        ),
    )


def logged_batch(record: RunRecord) -> tuple[int | None, int | None]:
    """Return rollouts of a group and prompts of a step: from the settings, else the median of
    the completions.
    """
    size, prompts = record.config.value("group_size"), record.config.value("prompts_per_step")
    if record.rollouts is not None and len(record.rollouts) and not (size and prompts):
        groups = record.rollouts.group_by("step", "prompt_id").len()
        size = size or int(np.median(groups["len"].to_numpy()))
        prompts = prompts or int(np.median(groups.group_by("step").len()["len"].to_numpy()))
    return size, prompts


NOT_LOGGED = (
    "Zero-variance groups are not logged. Log frac_reward_zero_std, or the completions with "
    "prompts and rewards (TRL: log_completions=True)."
)


def size_named(judged: Judgement) -> str:
    """Return the group size that the judgement names, with what it costs; "" where it names none.

    It is the only one that rewards name: a plan says how many groups teach, a replay, which names
    none, what a live group costs.
    """
    for action in judged.actions:
        if action.kind == "group_size":
            times = f", for {action.factor:g} times the rollouts" if action.factor else ""
            return f"The diagnosis recommends one change of the group size: {action.words}{times}."
    return ""


def needed_first(judged: Judgement) -> str:
    """Say that a run failed, or needs attention before its group size does; "" of others."""
    if judged.state is State.WARNING:
        return f"Fix the run first. {judged.fact} {size_named(judged)}".rstrip()
    return judged.fact * judged.alarm


@frozen
class StepBatch(Plain):
    """What one logged step is made of; None is unknown."""

    MORE = "completions said"

    prompts: int | None  # of a step
    group_size: int | None  # rollouts of a prompt
    updates: float | None  # of the optimiser, a step

    @property
    def completions(self) -> int | None:
        """Prompts times rollouts."""
        return self.prompts * self.group_size if self.prompts and self.group_size else None

    @property
    def said(self) -> str:
        """The batch in one line, with the settings that a plan needs of it."""
        factors, missing = list[str](), ""
        if self.prompts is None:
            missing += " --set prompts_per_step=B"
        else:
            factors.append(count(self.prompts, "prompt"))
        if self.group_size is None:
            missing += " --set group_size=G"
        else:
            factors.append(count(self.group_size, "rollout") + " a prompt" * (not factors))
        if self.completions:
            factors = [f"{' x '.join(factors)} = {count(self.completions, 'completion')}"]
        if self.updates is not None:
            factors.append(f"{self.updates:,.4g} {'update' if self.updates == 1 else 'updates'}")
        said = (
            f"One step is {' in '.join(factors)}"
            if factors
            else "The log does not say how many completions a step has"
        )
        return f"{said}{missing and '; give' + missing}."


@frozen
class RunPlan(Said):
    """What a run says of its group size."""

    MORE = "status dynamic_sampling bought"

    batch: StepBatch  # of one step
    zero_variance: (
        ZeroVarianceOutlook | None
    )  # share of zero-variance groups at G, 2G and 4G; None where it is not logged
    plan: GroupSizePlan | None  # from components beside the run; None without them
    # what to log or to give where the share of zero-variance groups is not known at any size; else
    # ""
    missing: str
    # what to log, where completions are missing, and the command that measures components; "" where
    # they are there
    command: str
    failure: str = ""  # why the run is to be mended before its group size, or ""; printed first
    budget: Budget | None = None  # of a step, where one was given
    unavailable: str = ""  # why there is no group size to plan, or ""

    @property
    def bought(self) -> str:
        """What the budget pays for in whole groups of four; "" without one."""
        if self.budget is None:
            return ""
        groups = count(self.budget.prompts(_SAFE), "group")
        return (
            f" {self.budget.amount:,.10g} {self.budget.unit} buy {groups} of {_SAFE}, the size to "
            f"take without components{self.budget.left(_SAFE)}."
        )

    @property
    def rest(self) -> str:
        """What gets the rest."""
        return f"For a safe group size: {self.command}"

    @property
    def dynamic_sampling(self) -> Interval | None:
        """Groups to draw for one that teaches; None where none does, or it is not logged."""
        share = self.zero_variance and self.zero_variance.now
        if not share or share.value >= 1:
            return None
        high = 1 / (1 - share.high) if share.high < 1 else math.inf
        return Interval(1 / (1 - share.value), 1 / (1 - share.low), high, share.level)

    @property
    def status(self) -> str:
        """The answer in one sentence or two."""
        if self.plan:
            return self.plan.status
        outlook = self.zero_variance
        if outlook is None:
            return sentence(self.unavailable) or self.missing + self.bought
        now, larger = outlook.now, outlook.shares[1]
        drawn = self.dynamic_sampling
        needs = f"needs {ranged(drawn)} groups per mixed group" if drawn else "finds no mixed group"
        return (
            "Rewards alone do not give the best group size. Of the latest groups of "
            f"{outlook.group_size}, {percent(1 - now.value)} ({percent(1 - now.high)} to "
            f"{percent(1 - now.low)}) are mixed, of {larger.group_size} about "
            f"{percent(1 - larger.share.value)} would be, and dynamic sampling "
            f"{needs}.{self.bought}"
        )

    @property
    def said(self) -> str:
        """What the run needs first, the answer, and the command for the rest."""
        said = f"{self.failure} {self.status}".lstrip()
        if self.unavailable:
            return said
        said += f" {self.batch.said}"
        return f"{said}\n{self.rest}" if self.command else said

    def __str__(self) -> str:
        """The same, with arguments for options."""
        return in_python(self.said)


def run_plan(
    record: RunRecord,
    opened: Path | None,
    judged: Judgement,
    budget: Budget | float | None = None,
) -> RunPlan:
    """Return what a run says of its group size: from components that lie beside it, else what
    rewards alone say.
    """
    held, rewards = components_beside(opened), plan_of_rewards(record, opened, judged, budget)
    if held is None:
        return rewards
    return replace(rewards, plan=_by_components(record, held, rewards.budget), command="")


def _by_components(
    record: RunRecord, components: Components, budget: Budget | None = None
) -> GroupSizePlan:
    """Plan for a budget, or else for the run's own."""
    size, prompts = logged_batch(record)
    if budget is None:
        if size is None or prompts is None or size < 2:
            raise InsufficientDataError(
                f"expected a group size of at least 2 and the prompts of a step, got {size} and "
                f"{prompts}: give a budget, or the settings group_size and prompts_per_step"
            )
        budget = Budget(float(size * prompts))
    present = size if size and 2 <= size <= budget.largest_group else None
    return plan_from_components(components, budget, present=present)


def plan_of_rewards(
    record: RunRecord,
    opened: Path | None,
    judged: Judgement | None = None,
    budget: Budget | float | None = None,
) -> RunPlan:
    """Return what rewards alone say, and the command for the rest."""
    name = shlex.quote(str(opened or "RUN"))
    first = (
        "" if record.rollouts is not None and len(record.rollouts) else f"{LOG_COMPLETIONS}, then "
    )
    outlook, unavailable = zero_variance_outlook(record), ""
    missing = "" if outlook else NOT_LOGGED
    if not (outlook or record.config.value("group_size")):
        share, loss = group_evidence(record).zero_variance, record.config.loss
        if share.known:
            share_T = share.value_T[np.isfinite(share.value_T)]
            late = share_T[-max(1, len(share_T) // 4) :].mean()
            missing = (
                f"{percent(late)} of groups have zero variance; for the effect of larger groups "
                "give --set group_size=G."
            )
        elif record.config.without_groups:
            unavailable = (
                f"expected a run that compares rollouts of one prompt, got {clean(loss.value)}, "
                f"which has no groups ({loss.source}): plan a GRPO run"
            )
    return RunPlan(
        batch_in_use(record),
        outlook,
        None,
        missing,
        f"{first}groupwise components {name} --model CHECKPOINT",
        needed_first(judged) if judged else "",
        Budget(budget) if isinstance(budget, int | float) else budget,
        unavailable,
    )


def batch_in_use(record: RunRecord) -> StepBatch:
    """Return prompts, rollouts and updates of one step, by the settings, or as the completions
    have them.
    """
    size, prompts = logged_batch(record)
    return StepBatch(prompts, size, record.config.value("updates_per_step"))
