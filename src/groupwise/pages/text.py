"""Show summaries, fits and forecasts in the terminal with Rich."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from groupwise.diagnostics.judgement import Judgement
from groupwise.pages.screen import print_first_line
from groupwise.pages.tables import (
    Grid,
    candidate_grid,
    component_grid,
    evidence_grid,
    explained,
    forecast_grid,
    outlook_grid,
    parameter_grid,
    plan_grid,
    replay_grids,
)
from groupwise.plain import frozen
from groupwise.wording import capital, clean, count, law_name, number, sentence

if TYPE_CHECKING:
    from groupwise.analysis.fitted import Fitted
    from groupwise.analysis.plan import RunPlan
    from groupwise.analysis.replay import RunReplay
    from groupwise.analysis.stability import StabilityEvidence
    from groupwise.estimators.best_group_size import GroupSizePlan
    from groupwise.estimators.components import Components
    from groupwise.forecasting.results import FitResult


def _escaped_text(text: str) -> str:
    """Clean a text and escape what Rich would read as style."""
    return escape(clean(text, longest=1000))


@frozen
class Printer:
    """Prints headings, sentences, tables and notes on a console."""

    console: Console

    def print(self, styled: str) -> None:
        """Print text whose styles are ours; a pipe gets each sentence on one line."""
        self.console.print(
            styled, highlight=False, emoji=False, soft_wrap=not self.console.is_terminal
        )

    def heading(self, text: str) -> None:
        """Print a heading."""
        self.print(f"\n[bold]{_escaped_text(text)}[/]")

    def line(self, text: str) -> None:
        """Print each line of a text, if there is one."""
        for part in text.splitlines():
            self.print(_escaped_text(part))

    def notes(self, notes: Iterable[str]) -> None:
        """Print notes, dimmed, each once."""
        for note in dict.fromkeys(notes):
            self.print(f"[dim]· {_escaped_text(sentence(note))}[/]")

    def grid(self, grid: Grid) -> None:
        """Print a table of texts."""
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim")
        for place, name in enumerate(grid.head):
            table.add_column(escape(name), justify="right" if place in grid.numbers else "left")
        for place, row in enumerate(grid.rows):
            cells = (
                f"[bold]{escape(cell)}[/]" if (place, column) in grid.bold else escape(cell)
                for column, cell in enumerate(row)
            )
            table.add_row(*cells, style="bold" if place == grid.best else "")
        self.console.print(table)


def print_fit(fitted: Fitted, judged: Judgement, console: Console) -> None:
    """Print how the run stands, then a fit: its status, parameters and candidate laws."""
    out, fit = Printer(console), fitted.fit
    print_first_line(judged, console)
    out.heading(f"{clean(fitted.metric)}: {count(fit.n, 'row')}")
    out.line(fitted.law_said(judged))
    out.grid(_parameters(fit))
    out.grid(candidate_grid(fit))
    if math.isfinite(fit.r_squared):
        lag1 = number(fit.noise.lag1, digits=2)
        out.line(f"{explained(fit)}; neighbouring residuals have a correlation of {lag1}.")
    out.notes(fitted.notes)


def print_forecast(fitted: Fitted, judged: Judgement, console: Console) -> None:
    """Print how the run stands, then where the metric goes, or why no forecast is shown."""
    out, outlook = Printer(console), fitted.told_ahead(judged)
    print_first_line(judged, console)
    if outlook.withheld:
        out.line(outlook.withheld)
        return
    out.heading(f"{clean(fitted.metric)}: forecast from step {outlook.gain_from:,.0f}")
    out.line(outlook.said)
    out.grid(forecast_grid(outlook))
    if outlook.result.status != "still":
        out.notes((outlook.result.message,))


def print_plan(
    plan: GroupSizePlan, notes: Sequence[str], console: Console, judged: Judgement | None = None
) -> None:
    """Print a plan: what the run needs first, words, sizes, components."""
    out = Printer(console)
    _print_needed(judged, console)
    out.heading("Group size")
    out.line(plan.status)
    out.grid(plan_grid(plan, plan.shown_sizes))
    if plan.components:
        out.grid(component_grid(plan.components))
    out.notes((*plan.notes, *notes))


def _print_needed(judged: Judgement | None, console: Console) -> None:
    """Print that a run failed, or needs attention before its group size does."""
    from groupwise.analysis.plan import needed_first

    if judged and judged.alarm:
        print_first_line(judged, console)
    elif judged:
        Printer(console).line(needed_first(judged))


def print_run_plan(plan: RunPlan, judged: Judgement, console: Console) -> None:
    """Print what rewards alone say of a run's group size, and the command for the rest."""
    out = Printer(console)
    _print_needed(judged, console)
    out.line(plan.status)
    out.line(plan.batch.said)
    if plan.zero_variance:
        out.grid(outlook_grid(plan.zero_variance))
    out.line(plan.rest)


def print_replay(run: RunReplay, console: Console) -> None:
    """Print what a run would have cost under other choices."""
    out = Printer(console)
    out.line(run.status)
    for grid in replay_grids(run):
        out.grid(grid)
    out.notes(run.notes)


def print_components(components: Components, notes: Sequence[str], console: Console) -> None:
    """Print variance components."""
    out = Printer(console)
    out.heading(
        f"Variance components of the gradient: {components.rollouts:,} rollouts, "
        f"{count(components.prompts, 'prompt')}"
    )
    out.line(components.status)
    out.grid(component_grid(components))
    estimates = (components.vp, components.t, components.r, components.gradient_norm2)
    doubtful = [estimate.status for estimate in estimates if not estimate.distinguishable]
    out.notes((*doubtful, *components.notes, *notes))


def print_stability(evidence: StabilityEvidence, judged: Judgement, console: Console) -> None:
    """Print how the run stands, then where its mode does."""
    out = Printer(console)
    print_first_line(judged, console)
    out.heading("Stability")
    out.line(evidence.conclusion)
    if evidence.mode:
        out.grid(evidence_grid(evidence))
    notes = evidence.all_notes
    out.notes(notes[:3])
    if more := notes[3:]:
        out.notes((f"{count(len(more), 'more note')}: --json",))


def _parameters(fit: FitResult) -> Grid:
    """Return the parameters without what they mean, under the name of their law."""
    from groupwise.analysis.fitted import THIS_LAW

    grid = parameter_grid(fit)
    return replace(
        grid,
        head=(f"{capital(law_name(fit.law))}, {THIS_LAW}", *grid.head[1:4]),
        rows=[row[:4] for row in grid.rows],
    )
