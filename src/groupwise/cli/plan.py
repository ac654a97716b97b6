"""The command `groupwise plan`: what a budget of rollouts, tokens or seconds is best spent on."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from groupwise.cli import app as cli
from groupwise.errors import GroupwiseError, InsufficientDataError, InvalidArgumentError
from groupwise.plain import frozen

if TYPE_CHECKING:
    from groupwise.diagnostics.judgement import Judgement
    from groupwise.estimators.best_group_size import Budget
    from groupwise.record.run import RunRecord

_MOST_ROLLOUTS = 1e12


@frozen
class Spending:
    """A budget as typed; None is not given."""

    amount: float | None  # of one step
    unit: str  # rollouts, tokens or seconds
    prompt_cost: float  # of one prompt
    rollout_cost: float | None  # of one rollout
    prompt_pool: int | None  # number of different prompts

    def budget(self) -> Budget:
        """Return the budget, or ask for what it lacks."""
        from groupwise.estimators.best_group_size import Budget

        amount, cost = self.amount, self.rollout_cost
        if amount is None:
            raise InvalidArgumentError(
                f"--budget is missing: give the {self.unit} that one optimiser step may cost, "
                "for example --budget 1024"
            )
        if cost is None and self.unit != "rollouts":
            raise InvalidArgumentError(
                f"--rollout-cost is missing: give the {self.unit} that one rollout costs, for "
                "example --rollout-cost 500"
            )
        cost = 1.0 if cost is None else cost
        if cost > 0 and math.isfinite(amount) and amount / cost > _MOST_ROLLOUTS:
            raise InvalidArgumentError(
                f"--budget expects at most the cost of {_MOST_ROLLOUTS:g} rollouts; got "
                f"{amount:g}: use a smaller budget"
            )
        return Budget(amount, self.prompt_cost, cost, self.unit, self.prompt_pool)


def plan(
    source: Annotated[Path, cli.argument("RUN|FILE", "The run, or a file of saved components.")],
    *,
    budget: Annotated[
        float | None,
        cli.option("N", "Budget of one optimiser step; the default is the rollouts of the run."),
    ] = None,
    budget_unit: Annotated[
        str,
        cli.option(
            "UNIT",
            "Unit of the budget: rollouts, tokens or seconds.",
            check=cli.one_of("rollouts", "tokens", "seconds"),
        ),
    ] = "rollouts",
    prompt_cost: Annotated[
        float, cli.option("C", "Cost of one prompt, in the unit of the budget.")
    ] = 0.0,
    rollout_cost: Annotated[
        float | None,
        cli.option(
            "C",
            "Cost of one rollout: 1 if the budget counts rollouts; else the log gives the default.",
        ),
    ] = None,
    prompt_pool: Annotated[
        int | None, cli.option("P", "Number of different prompts, if there are few.")
    ] = None,
    group_size: Annotated[
        int | None, cli.option("G", "Group size to compare with; the default is that of the run.")
    ] = None,
    level: cli.Level = None,
    opening: cli.Opening,
    as_json: cli.Json = False,
) -> None:
    """Safe group size and number of prompts for a budget, and the price of the size in use.

    Without components, what rewards say.
    """
    from groupwise.analysis.components import components_beside, components_of_file
    from groupwise.estimators.best_group_size import plan_from_components
    from groupwise.pages.text import print_plan

    spending = Spending(budget, budget_unit, prompt_cost, rollout_cost, prompt_pool)
    notes: list[str] = []
    judged: Judgement | None = None
    held = components_of_file(source, level=level)
    if held is None:
        record = opening.with_settings(group_size=group_size).open(source)
        judged = cli.judgement_of(record)
        held = components_beside(source, level=level)
        if held is None:
            _show_rewards(record, source, judged, as_json=as_json)
            return
        from groupwise.analysis.plan import batch_in_use

        notes.append(batch_in_use(record).said)
        spending, group_size = _of_run(record, spending, group_size, notes)
    elif opening:
        raise InvalidArgumentError(
            f"expected no --set, --config or --column with {source}, which is no run: leave "
            "them out"
        )
    try:
        group_plan = plan_from_components(held, spending.budget(), present=group_size)
    except InsufficientDataError as error:
        if judged is None:
            raise
        typer.echo(f"groupwise: {error}. From rewards alone:", err=True)
        _show_rewards(record, source, judged, as_json=as_json)
        return
    if not as_json:
        print_plan(group_plan, notes, cli.out_console(), judged)
        return
    cli.print_json(
        ({} if judged is None else cli.stands(judged))
        | group_plan.as_dict()
        | {"notes": list(dict.fromkeys((*group_plan.notes, *notes)))}
    )


def _show_rewards(record: RunRecord, source: Path, judged: Judgement, *, as_json: bool) -> None:
    """Print what rewards alone say, and the command for the rest."""
    from groupwise.analysis.plan import plan_of_rewards
    from groupwise.pages.text import print_run_plan

    plan = plan_of_rewards(record, source)
    if as_json:
        cli.print_json(cli.stands(judged) | plan.as_dict())
    else:
        print_run_plan(plan, judged, cli.out_console())


def _of_run(
    record: RunRecord, spending: Spending, group_size: int | None, notes: list[str]
) -> tuple[Spending, int | None]:
    """Return what a step costs and the size in use, from the run; notes say what it told."""
    from groupwise.analysis.plan import batch_of, scaling_notes
    from groupwise.wording import count

    size, prompts = batch_of(record)
    rollouts = None if size is None or prompts is None else size * prompts
    if spending.rollout_cost is None and spending.unit != "rollouts":
        cost, how = _rollout_cost(record, spending.unit, rollouts)
        spending = replace(spending, rollout_cost=cost)
        notes.append(how)
    elif (
        spending.amount is None
        and spending.rollout_cost is None
        and not spending.prompt_cost
        and rollouts
    ):
        spending = replace(spending, amount=float(rollouts))
        notes.append(
            f"The budget is that of the run: {count(prompts or 0, 'prompt')} with {size} rollouts."
        )
    largest = spending.budget().largest_group
    notes += scaling_notes(record)
    if group_size is not None or size is None or size < 2:
        return spending, group_size
    if size > largest:
        notes.append(f"The group size of the run, {size}, exceeds this budget and is not compared.")
        return spending, None
    return spending, size


def _rollout_cost(record: RunRecord, unit: str, rollouts: int | None) -> tuple[float | None, str]:
    """Return what one rollout costs, by the last quarter of the log, with how it was found out."""
    quantity = {"tokens": "completion_length", "seconds": "step_time"}[unit]
    try:
        value = record.steps[record.column(quantity)].drop_nulls().drop_nans().to_numpy()
    except GroupwiseError:
        return None, ""
    value = value[-max(1, len(value) // 4) :]
    if not len(value) or not value.mean() > 0:
        return None, ""
    mean = float(value.mean())
    if unit == "tokens":
        return (
            mean,
            (
                f"One rollout costs {mean:.4g} tokens, the mean length of a completion in the last "
                "quarter of the log."
            ),
        )
    if rollouts is None:
        return None, ""
    return (
        mean / rollouts,
        (
            f"One rollout costs {mean / rollouts:.3g} seconds: in the last quarter a step takes "
            f"{mean:.3g} for {rollouts:,} rollouts."
        ),
    )
