"""The command `groupwise plan`: what a budget of rollouts is best spent on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from groupwise.cli import app as cli
from groupwise.errors import InsufficientDataError, InvalidArgumentError

if TYPE_CHECKING:
    from groupwise.diagnostics.judgement import Judgement
    from groupwise.record.run import RunRecord


def plan(
    source: Path,
    *,
    budget: float | None = None,
    group_size: int | None = None,
    level: float | None = None,
    opening: cli.Opening,
    as_json: bool = False,
) -> None:
    """Safe group size and number of prompts for a budget, and the price of the size in use.

    Without components, what rewards say.
    """
    from groupwise.analysis.components import components_beside, components_of_file
    from groupwise.analysis.plan import batch_in_use, logged_batch, scaling_notes
    from groupwise.estimators.best_group_size import Budget, plan_from_components
    from groupwise.pages.text import print_plan

    notes, own = list[str](), 0
    judged: Judgement | None = None
    held = components_of_file(source, level=level)
    if held is None:
        record = opening.open(source)
        if group_size and logged_batch(record)[0] is None:
            record = opening.with_settings(group_size=group_size).open(source)
        judged = cli.judgement_of(record)
        held = components_beside(source, level=level)
        if held is None:
            _show_rewards(record, source, judged, budget, as_json=as_json)
            return
        batch = batch_in_use(record)
        notes, own = [batch.said, *scaling_notes(record)], batch.group_size or 0
        budget = batch.completions if budget is None else budget
    elif opening:
        raise InvalidArgumentError(
            f"expected no --set, --config or --column with {source}, which is no run: leave "
            "them out"
        )
    if budget is None:
        raise InvalidArgumentError(
            "--budget is missing: give the rollouts that one optimiser step may cost, for example "
            "--budget 1024"
        )
    if group_size is None and own > budget:
        notes.append(f"The group size of the run, {own}, exceeds this budget.")
    elif group_size is None:
        group_size = own if own > 1 else None
    try:
        group_plan = plan_from_components(held, Budget(budget), present=group_size)
    except InsufficientDataError as error:
        if judged is None:
            raise
        typer.echo(f"groupwise: {error}. From rewards alone:", err=True)
        _show_rewards(record, source, judged, budget, as_json=as_json)
        return
    if not as_json:
        print_plan(group_plan, notes, cli.out_console(), judged)
        return
    cli.print_json(
        (cli.stands(judged) if judged else {})
        | group_plan.as_dict()
        | {"notes": list(dict.fromkeys((*group_plan.notes, *notes)))}
    )


def _show_rewards(
    record: RunRecord, source: Path, judged: Judgement, budget: float | None, *, as_json: bool
) -> None:
    """Print what rewards alone say, and the command for the rest."""
    from groupwise.analysis.plan import plan_of_rewards
    from groupwise.pages.text import print_run_plan

    plan = plan_of_rewards(record, source, judged, budget)
    if plan.unavailable:
        raise InsufficientDataError(plan.unavailable)
    if as_json:
        cli.print_json(cli.stands(judged) | plan.as_dict())
    else:
        print_run_plan(plan, judged, cli.out_console())
