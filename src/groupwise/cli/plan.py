"""The command `groupwise plan`: what a budget of rollouts, tokens or seconds is best spent on."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from groupwise.cli import app as cli
from groupwise.errors import InsufficientDataError, InvalidArgumentError

if TYPE_CHECKING:
    from groupwise.diagnostics.judgement import Judgement
    from groupwise.record.run import RunRecord

_MOST_ROLLOUTS = 1e12


def plan(
    source: Annotated[Path, cli.argument("RUN|FILE", "A run, or saved components.")],
    *,
    budget: Annotated[
        float | None,
        cli.option("N", "Rollouts of one optimiser step; by default a run's own."),
    ] = None,
    group_size: Annotated[
        int | None, cli.option("G", "The group size in use; by default the run's own.")
    ] = None,
    level: cli.Level = None,
    opening: cli.Opening,
    as_json: cli.Json = False,
) -> None:
    """Safe group size and number of prompts for a budget, and the price of the size in use.

    Without components, what rewards say.
    """
    from groupwise.analysis.components import components_beside, components_of_file
    from groupwise.estimators.best_group_size import Budget, plan_from_components
    from groupwise.pages.text import print_plan

    notes: list[str] = []
    judged: Judgement | None = None
    held = components_of_file(source, level=level)
    if held is None:
        record = opening.told(group_size=group_size).open(source)
        judged = cli.judgement_of(record)
        held = components_beside(source, level=level)
        if held is None:
            _show_rewards(record, source, judged, as_json=as_json)
            return
        from groupwise.analysis.plan import batch_in_use, scaling_notes

        batch = batch_in_use(record)
        notes = [batch.said, *scaling_notes(record)]
        notes += ["The budget is the run's own."] if budget is None else []
        budget, own = budget or batch.completions, batch.group_size
        if group_size is None and own is not None and own > 1:
            if budget is None or own <= budget:
                group_size = own
            else:
                said = f"The run's own group size, {own}, is beyond this budget"
                notes.append(f"{said} and is not compared.")
    elif opening:
        raise InvalidArgumentError(
            f"expected no --set, --config or --column with {source}, which is no run: leave "
            "them out"
        )
    if budget is None:
        raise InvalidArgumentError(
            "--budget is missing: say how many rollouts one optimiser step may cost, as "
            "--budget 1024"
        )
    if _MOST_ROLLOUTS < budget < math.inf:
        raise InvalidArgumentError(
            f"--budget expects at most {_MOST_ROLLOUTS:g} rollouts; got {budget:g}: use a smaller "
            "one"
        )
    try:
        group_plan = plan_from_components(held, Budget(budget), present=group_size)
    except InsufficientDataError as error:
        if judged is None:
            raise
        typer.echo(f"groupwise: {error}. Rewards alone say:", err=True)
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
