"""The command `groupwise plan`: what a budget of rollouts, tokens or seconds is best spent on.

The mathematics is in `groupwise.estimators`; here the three numbers, a file or a run become its arguments.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupwise.cli.final_gap import Cost, Goal, cost_of, final_gap, projected
from groupwise.cli.options import Opening, checked_share, out_console, print_json
from groupwise.errors import GroupwiseError, InsufficientDataError, InvalidArgumentError

if TYPE_CHECKING:
    from groupwise.estimators.components import Components
    from groupwise.estimators.plan import Budget, GroupSizePlan
    from groupwise.record.run import RunRecord

UNITS = ("rollouts", "tokens", "seconds")
_MOST_ROLLOUTS = 1e12


@dataclass(frozen=True, slots=True)
class Spending:
    """A budget as typed; None is not given."""

    amount: float | None  # of one step
    unit: str  # rollouts, tokens or seconds
    prompt_cost: float  # of one prompt
    rollout_cost: float | None  # of one rollout
    prompt_pool: int | None  # number of different prompts

    def __post_init__(self) -> None:
        """Check what needs no run."""
        if self.unit not in UNITS:
            raise InvalidArgumentError(f"--budget-unit expects {', '.join(UNITS[:-1])} or {UNITS[-1]}; got {self.unit!r}")

    def budget(self, *, amount: float | None, rollout_cost: float | None) -> Budget:
        """Return the budget, with what was found out for what was not given."""
        from groupwise.estimators.plan import Budget

        whole = amount if self.amount is None else self.amount
        if whole is None:
            raise InvalidArgumentError(f"--budget is missing: say how many {self.unit} one optimiser step may cost, as --budget 1024")
        cost = self.rollout_cost if self.rollout_cost is not None else 1.0 if self.unit == "rollouts" else rollout_cost
        if cost is None:
            raise InvalidArgumentError(f"--rollout-cost is missing: say how many {self.unit} one rollout costs, as --rollout-cost 500")
        if cost > 0 and math.isfinite(whole) and whole / cost > _MOST_ROLLOUTS:
            raise InvalidArgumentError(
                f"--budget expects at most the cost of {_MOST_ROLLOUTS:g} rollouts; got {whole:g}: use a smaller one"
            )
        return Budget(whole, self.prompt_cost, cost, self.unit, self.prompt_pool)


def run(
    path: Path | None,
    opening: Opening,
    spending: Spending,
    *,
    vp: float | None,
    t: float | None,
    r: float | None,
    group_size: int | None,
    level: float | None,
    as_json: bool,
    goal: Goal | None = None,
) -> None:
    """Plan and print."""
    cost = cost_of(goal) if goal is not None and goal.objective == "final-gap" else None
    if level is not None:
        checked_share("--level", level)
    numbers = {"--vp": vp, "--t": t, "--r": r}
    given = [name for name, value in numbers.items() if value is not None]
    if path is not None and given:
        raise InvalidArgumentError(f"expected either a run or {', '.join(numbers)}, got both: leave out {path} or {' and '.join(given)}")
    if path is None and cost is not None and cost.parts is not None and not given:
        _check_needless(opening, level)
        _from_numbers(components_at_cost(cost), spending, cost, group_size=group_size, as_json=as_json)
        return
    if cost is not None and path is not None:
        cost = replace(cost, parts=None)  # what the file says of its own covariance is not that of these scores
    if cost is not None and not cost.isotropic:
        if path is None or (path.is_file() and not is_plain_scores(path)) or path.is_dir():
            raise InvalidArgumentError(
                f"expected scores in an .npz beside the Hessian of {cost.goal.curvature}, or between_DD, first_DD and second_DD in it "
                "too: Vp, T and R as traces do not tell how much noise lies along which curvature; give one --curvature for all directions"
            )
        _from_data(path, opening, spending, cost, group_size=group_size, level=level, as_json=as_json)
        return
    if path is None:
        if vp is None or t is None or r is None:
            missing = [name for name in numbers if name not in given]
            absent = f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
            raise InvalidArgumentError(f"expected a run, a file, or all of --vp, --t and --r; {absent}")
        _check_needless(opening, level)
        _from_numbers((vp, t, r), spending, cost, group_size=group_size, as_json=as_json)
        return
    _from_data(path, opening, spending, cost, group_size=group_size, level=level, as_json=as_json)


def _check_needless(opening: Opening, level: float | None) -> None:
    """Refuse options that speak of a run or of its uncertainty where three numbers are given: they would change nothing."""
    asked = {"--level": level is not None, "--set": opening.settings, "--config": opening.config, "--column": opening.columns}
    needless = [name for name, given in asked.items() if given]
    if needless:
        raise InvalidArgumentError(f"expected no {' or '.join(needless)} with --vp, --t and --r, which are exact: leave it out")


def is_plain_scores(path: Path) -> bool:
    """Return whether a file is meant as scores and not as saved components."""
    from groupwise.analysis.component_file import is_components
    from groupwise.cli.score_file import is_score_file

    return is_score_file(path) and not is_components(path)


def components_at_cost(cost: Cost) -> tuple[float, float, float]:
    """Return Vp, T and R in the unit of the gap, where the file holds all matrices."""
    from groupwise.theory import final_gap as law

    assert cost.parts is not None
    return law.components_at_cost(cost.parts, cost.matrix_DD)


def _from_numbers(
    values: tuple[float, float, float], spending: Spending, cost: Cost | None, *, group_size: int | None, as_json: bool
) -> None:
    """Plan for three numbers."""
    from groupwise.estimators.plan import plan_group_size

    plan = plan_group_size(*values, spending.budget(amount=None, rollout_cost=None), present=group_size)
    end = _end(cost, plan)
    if as_json:
        print_json(plan.as_dict() | _as_key(end))
        return
    from groupwise.report.text import print_plan

    print_plan(plan, (), _unit_note(cost), out_console(), said=_said(end))


def _from_data(
    path: Path,
    opening: Opening,
    spending: Spending,
    cost: Cost | None,
    *,
    group_size: int | None,
    level: float | None,
    as_json: bool,
) -> None:
    """Plan for components of a file, or of those that lie beside a run."""
    from groupwise.cli.saved import components_of_file
    from groupwise.estimators.baseline_errors import compare_baselines
    from groupwise.estimators.plan import plan_from_components

    notes: list[str] = list(_unit_note(cost))
    turned = cost is not None and not cost.isotropic
    found = projected(cost, path, level=level) if turned and cost is not None else components_of_file(path, level=level)
    if found is None:
        record = opening.open(path)
        found = _beside(path, record, level=level)
        budget, present = _of_run(record, spending, group_size, notes)
    else:
        if opening.settings or opening.columns or opening.config:
            raise InvalidArgumentError(f"expected no --set, --config or --column with {path}, which is no run: leave them out")
        budget, present = spending.budget(amount=None, rollout_cost=None), group_size
    plan = plan_from_components(found, budget, present=present)
    batch = plan if plan.present is None else plan.present
    baselines = compare_baselines(found, batch.group_size, batch.prompts)
    end = _end(cost, plan)
    if as_json:
        _print_json(plan, [row.as_dict() for row in baselines], notes, end)
        return
    from groupwise.report.text import print_plan

    print_plan(plan, baselines, notes, out_console(), said=_said(end))


def _end(cost: Cost | None, plan: GroupSizePlan) -> dict[str, Any] | None:
    """What is known of the final gap, or nothing where it was not asked for."""
    return None if cost is None else final_gap(cost, plan, unit=float(cost.matrix_DD[0, 0]) if cost.isotropic else 1.0)


def _as_key(end: dict[str, Any] | None) -> dict[str, Any]:
    """The key of the JSON."""
    return {} if end is None else {"final_gap": end}


def _said(end: dict[str, Any] | None) -> str:
    """The sentence."""
    return "" if end is None else str(end["sentence"])


def _unit_note(cost: Cost | None) -> tuple[str, ...]:
    """In what unit the errors of the plan are."""
    if cost is None:
        return ()
    if cost.isotropic:
        return (
            f"Errors are the gradient's; the gap is {float(cost.matrix_DD[0, 0]):.4g} times them{_over(cost)}, in every direction alike.",
        )
    return (f"Errors are in the unit of the gap: each direction's noise counts by what it costs in the end{_over(cost)}.",)


def _over(cost: Cost) -> str:
    """What the errors are divided by."""
    return "" if cost.goal.learning_rate is not None else " over the number of updates"


def _print_json(plan: GroupSizePlan, baselines: Sequence[object], notes: Sequence[str], end: dict[str, Any] | None) -> None:
    """Print the plan with what was compared and said beside it."""
    print_json({**plan.as_dict(), "notes": list(dict.fromkeys((*plan.notes, *notes))), "baselines": baselines, **_as_key(end)})


def _beside(path: Path, record: RunRecord, *, level: float | None) -> Components:
    """Return the components that lie beside a run."""
    from groupwise.analysis.component_file import path_beside
    from groupwise.cli.saved import components_of_file

    place = path_beside(path)
    if place.is_file():
        found = components_of_file(place, level=level)
        if found is not None:
            return found
    name = shlex.quote(str(path))
    make = f"make them with `groupwise components {name} --model CHECKPOINT`"
    if record.rollouts is None or not len(record.rollouts):
        from groupwise.analysis.group_size import LOG_COMPLETIONS

        raise InsufficientDataError(f"expected variance components beside {path}, got none: {LOG_COMPLETIONS}, then {make}")
    raise InsufficientDataError(
        f"expected variance components beside {path}, got none: {make}; `groupwise components {name}` shows what rewards alone say"
    )


def _of_run(record: RunRecord, spending: Spending, group_size: int | None, notes: list[str]) -> tuple[Budget, int | None]:
    """Return the budget and the size in use, with what the run tells of both; add to the notes what it told."""
    from groupwise.analysis.group_size import batch_of, scaling_notes

    size, prompts = batch_of(record)
    rollouts = None if size is None or prompts is None else size * prompts
    cost = None
    if spending.rollout_cost is None and spending.unit != "rollouts":
        cost, how = _cost(record, spending.unit, rollouts)
        notes.append(how)
    amount = None
    if spending.amount is None and spending.unit == "rollouts" and spending.rollout_cost is None and not spending.prompt_cost and rollouts:
        amount = float(rollouts)
        notes.append(f"The budget is the run's own: {prompts:,} {'prompt' if prompts == 1 else 'prompts'} with {size} rollouts each.")
    budget = spending.budget(amount=amount, rollout_cost=cost)
    notes += scaling_notes(record)
    if group_size is not None or size is None or size < 2:
        return budget, group_size
    if size > budget.largest_group:
        notes.append(f"The run's own group size, {size}, is beyond this budget and is not compared.")
        return budget, None
    return budget, size


def _cost(record: RunRecord, unit: str, rollouts: int | None) -> tuple[float | None, str]:
    """Return what one rollout costs, by the last quarter of the log, with how it was found out."""
    quantity = {"tokens": "completion_length", "seconds": "step_time"}[unit]
    try:
        value = record.steps[record.column(quantity)].drop_nulls().drop_nans().to_numpy()
    except GroupwiseError:
        return None, ""
    value = value[-max(1, len(value) // 4) :]
    if not len(value) or not float(value.mean()) > 0:
        return None, ""
    mean = float(value.mean())
    if unit == "tokens":
        return mean, f"One rollout costs {mean:.4g} tokens, the mean length of a completion in the last quarter of the log."
    if rollouts is None:
        return None, ""
    return mean / rollouts, f"One rollout costs {mean / rollouts:.3g} seconds: {mean:.3g} a step of {rollouts:,} in the last quarter."
