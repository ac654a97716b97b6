"""Show summaries, fits, forecasts and backtests in the terminal with Rich.

Every text of a log is cleaned and escaped, so that it can neither style nor move anything. It computes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from groupwise.analysis.backtest import METHOD_NAMES, Scores
from groupwise.analysis.compare import RunComparison
from groupwise.analysis.fitted import Fitted, Outlook
from groupwise.analysis.group_size import GroupSizeEvidence, RewardFacts, shown_sizes
from groupwise.analysis.headline import ALL_LAWS, THIS_LAW, Verdict, nothing_to_forecast, said_of, verdict
from groupwise.analysis.stability_results import StabilityEvidence
from groupwise.analysis.summary import Summary
from groupwise.curves.results import FitResult
from groupwise.diagnostics.findings import Diagnosis, Finding, Measure
from groupwise.estimators.baseline_errors import BaselineRow
from groupwise.estimators.components import Components
from groupwise.estimators.plan import GroupSizePlan
from groupwise.estimators.rewards_alone import LABEL
from groupwise.intervals import percent
from groupwise.report.tables import Grid, baseline_grid, component_grid, contrast_grid, dead_grid, plan_grid, reward_grid, word_of
from groupwise.stability.mode import Stability
from groupwise.wording import (
    alike,
    capital,
    clean,
    count,
    duration,
    law_name,
    number,
    ranged,
    readable,
    sentence,
    steps_of_interval,
    tokens,
)

_TONE_STYLES = {"learning": "blue", "done": "green", "worse": "red", "broken": "red", "flat": "yellow"}


def print_summary(summary: Summary, console: Console) -> None:
    """Print the verdict of a run, the forecast and the notes."""
    fitted = summary.fitted
    _heading(console, f"{summary.name}: {count(summary.rows, 'row')}, step {summary.first_step:,} to {summary.last_step:,}")
    _verdict(console, summary.verdict)
    print_findings(summary.diagnosis, console)
    nothing = nothing_to_forecast(fitted)
    if fitted.fit is not None and not nothing:
        console.print(_parameters(fitted.fit))
    if fitted.outlook is not None and not nothing:
        console.print(_forecast(fitted.outlook))
    _line(console, nothing)
    _group_size(summary.group_size, console)
    _stability(summary.stability, console)
    _notes(console, summary.notes)


def print_fit(fitted: Fitted, console: Console) -> None:
    """Print a fit alone: its status, parameters and candidate laws."""
    fit = fitted.fit
    assert fit is not None
    _heading(console, f"{clean(fitted.metric)}: {count(fit.n, 'row')}")
    _line(console, sentence(said_of(fit)))
    console.print(_parameters(fit))
    console.print(_candidates(fit))
    explained = f"R² {number(fit.r_squared)}"
    if math.isfinite(fit.r_squared_explainable):
        explained += f", of what sampling noise leaves to explain {number(fit.r_squared_explainable)}"
    _line(console, f"{explained}; neighbouring residuals correlate by {number(fit.noise.lag1, digits=2)}.")
    _notes(console, (f"Sampling noise: {fitted.series.noise_source}.", *map(readable, fit.notes)))


def print_forecast(fitted: Fitted, console: Console) -> None:
    """Print a forecast alone."""
    outlook = fitted.outlook
    assert outlook is not None
    _heading(console, f"{clean(fitted.metric)}: forecast from step {outlook.gain_from:,.0f}")
    _verdict(console, verdict(fitted), supported=False)
    _line(console, sentence(readable(outlook.result.message)))
    if nothing := nothing_to_forecast(fitted):
        _line(console, nothing)
    else:
        console.print(_forecast(outlook))
    if outlook.result.status == "converged":  # an open plateau is no place to date
        _line(console, f"Plateau, {ALL_LAWS}: {ranged(outlook.result.plateau)}.{_cost(outlook)}")
    _notes(console, [readable(note) for note in outlook.result.notes])


def print_scores(scores: Scores, console: Console) -> None:
    """Print how well forecasts did on what came after."""
    table = _table("Run", "Rows seen", "Rows left", *(METHOD_NAMES.get(method, method) for method in scores.methods), "In the band")
    for column in table.columns[1:]:
        column.justify = "right"
    for run in scores.runs:
        result = run.result
        best = min((error for error in result.errors.values() if math.isfinite(error)), default=math.nan)
        cells = [_error(result.errors.get(method, math.nan), best) for method in scores.methods]
        table.add_row(escape(run.name), f"{result.n_train:,}", f"{result.n_test:,}", *cells, f"{result.covered} of {result.windows}")
    _heading(console, "Mean absolute error of the rows left, each run forecast from its beginning")
    console.print(table)
    for said in scores.sentences():
        _line(console, said)
    _notes(console, [f"left out {name}: {reason}" for name, reason in scores.left_out])


def print_plan(plan: GroupSizePlan, baselines: Sequence[BaselineRow], notes: Sequence[str], console: Console, *, said: str = "") -> None:
    """Print a plan: words first, then sizes, components and baselines."""
    _heading(console, "Group size")
    _line(console, plan.status)
    if said:
        _line(console, said)
    console.print(_grid(plan_grid(plan, shown_sizes(plan))))
    if plan.components is not None:
        console.print(_grid(component_grid(plan.components)))
    if baselines:
        console.print(_grid(baseline_grid(baselines, plan)))
    _notes(console, list(dict.fromkeys((*plan.notes, *notes))))


def print_components(components: Components, notes: Sequence[str], console: Console) -> None:
    """Print variance components."""
    _heading(console, f"Variance components of the gradient: {components.rollouts:,} rollouts, {count(components.prompts, 'prompt')}")
    _line(console, components.status)
    console.print(_grid(component_grid(components)))
    estimates = (components.vp, components.t, components.r, components.gradient_norm2)
    doubtful = [estimate.status for estimate in estimates if not estimate.distinguishable]
    _notes(console, list(dict.fromkeys((*doubtful, *components.notes, *notes))))


def print_reward_facts(facts: RewardFacts, notes: Sequence[str], console: Console) -> None:
    """Print what rewards alone say, labelled as such."""
    _heading(console, LABEL)
    _line(console, facts.statistics.status)
    console.print(_grid(reward_grid(facts.statistics)))
    if facts.statistics.zero_variance_shares:
        console.print(_grid(dead_grid(facts.statistics)))
    _notes(console, (*facts.notes, *notes))


def print_stability(found: Stability | None, notes: Sequence[str], console: Console, *, grids: Sequence[Grid], said: str = "") -> None:
    """Print where a mode stands."""
    _heading(console, "Stability")
    _line(console, said or (found.status if found else ""))
    for grid in grids:
        console.print(_grid(grid))
    _notes(console, list(dict.fromkeys(notes)))


def print_comparison(comparison: RunComparison, console: Console) -> None:
    """Print what a comparison of runs comes to: for every group against the first a verdict, a table and the reasons."""
    for pairing in comparison.found.pairings:
        _heading(console, pairing.message)
        console.print(_grid(contrast_grid(comparison, pairing)))
        for found in pairing.contrasts if len(comparison.found.pairings) == 1 else ():
            _line(console, found.message)
        _line(console, sentence(pairing.divergence.message))
    _notes(console, comparison.notes)


def _stability(found: StabilityEvidence, console: Console) -> None:
    """Print what a run says of its stability, in short; what is missing for it is one line."""
    if found.found is None and found.verdict != "open":
        _notes(console, (f"Stability: {found.unavailable}",) if found.unavailable else ())
        return
    _heading(console, "Stability")
    _line(console, found.said)
    _notes(console, found.all_notes)


def _group_size(found: GroupSizeEvidence, console: Console) -> None:
    """Print what a run says of its group size, in short."""
    if not (found.said or found.notes):
        return
    _heading(console, "Group size")
    for said in found.said:
        _line(console, said)
    if found.components is not None:
        console.print(_grid(component_grid(found.components)))
    _notes(console, found.notes)


def _grid(grid: Grid) -> Table:
    """Return a table of texts."""
    table = _table(*grid.head)
    for column in grid.numbers:
        table.columns[column].justify = "right"
    for place, row in enumerate(grid.rows):
        table.add_row(*map(escape, row), style="bold" if place == grid.best else "")
    return table


def _error(value: float, best: float) -> str:
    """Write an error, the smallest of its run in bold."""
    return f"[bold]{number(value)}[/]" if value == best else number(value)


def _heading(console: Console, text: str) -> None:
    """Print a heading."""
    console.print(f"\n[bold]{escape(text)}[/]", highlight=False, soft_wrap=not console.is_terminal)


def _line(console: Console, text: str) -> None:
    """Print a sentence, if there is one."""
    if text:
        console.print(escape(clean(text, longest=1000)), highlight=False, soft_wrap=not console.is_terminal)


def _verdict(console: Console, said: Verdict, *, supported: bool = True) -> None:
    """Print the verdict."""
    style = _TONE_STYLES.get(said.tone, "bold")
    console.print(
        f"[{style}]{said.word}[/]  {escape(clean(said.headline, longest=1000))}", highlight=False, soft_wrap=not console.is_terminal
    )
    for support in said.sentences if supported else ():
        _line(console, support)


def _notes(console: Console, notes: Sequence[str]) -> None:
    """Print notes, dimmed."""
    for note in notes:
        console.print(f"[dim]· {escape(clean(sentence(note), longest=1000))}[/]", highlight=False, soft_wrap=not console.is_terminal)


def _table(*columns: str) -> Table:
    """Return a table with thin rules."""
    from rich import box

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim")
    for column in columns:
        table.add_column(escape(column))
    return table


def _parameters(fit: FitResult) -> Table:
    """Return the parameters with their intervals."""
    level = next((interval.level for interval in fit.parameters.values()), 0.95)
    table = _table(f"{capital(law_name(fit.law))}, {THIS_LAW}", "Value", f"{percent(level)} interval", "Unit")
    table.columns[1].justify = table.columns[2].justify = "right"
    for name, interval in fit.parameters.items():
        word = word_of(name)
        low, high = alike(interval.low, interval.high)
        unit = "" if word.unit == "metric" else word.unit
        table.add_row(escape(word.label), number(interval.value), f"{low} to {high}", unit)
    return table


def _candidates(fit: FitResult) -> Table:
    """Return the candidate laws."""
    table = _table("Law", "Weight", "AICc", "R²")
    for column in table.columns[1:]:
        column.justify = "right"
    for candidate in fit.candidates:
        style = "bold" if candidate.law == fit.law else ""
        weight = "< 0.01" if candidate.weight < 0.005 else f"{candidate.weight:.2f}"
        table.add_row(law_name(candidate.law), weight, number(candidate.aicc, digits=4), number(candidate.r_squared), style=style)
    return table


def _forecast(outlook: Outlook) -> Table:
    """Return the forecast."""
    level = percent(outlook.result.level)
    table = _table("Step", "Expected", f"Mean, {level}", f"A logged row, {level}")
    for column in table.columns:
        column.justify = "right"
    for cells in outlook.cells():
        table.add_row(*cells)
    return table


def _cost(outlook: Outlook) -> str:
    """Write what 95 % of the way costs."""
    if not math.isfinite(outlook.done_step.value):
        return ""
    done = outlook.done_step
    parts = [f"step {steps_of_interval(done.value, done.low, done.high)[0]}"]
    parts += [tokens(outlook.done_tokens)] if math.isfinite(outlook.done_tokens) else []
    parts += [duration(outlook.done_hours, digits=2)] if math.isfinite(outlook.done_hours) else []
    return f" 95 % of the way: {', '.join(parts)}."


STYLES = {"critical": "red", "warning": "yellow", "info": "blue"}


def title_of(check: str) -> str:
    """Return the name of a check or of a cause as words."""
    return capital(check.replace("_", " "))


def where(finding: Finding) -> str:
    """Return since when a finding holds, in two words."""
    return "throughout" if finding.since_step is None else f"step {finding.since_step:,}"


def measured(finding: Finding) -> str:
    """Return the number of a finding with its interval and what it is held against."""
    value = finding.value
    ends = f" ({number(value.low)} to {number(value.high)})" if math.isfinite(value.low) and math.isfinite(value.high) else ""
    what = f"{finding.what} " if finding.what else ""
    return f"{what}{number(value.value)}{ends}, against {number(finding.threshold)}"


def told(measure: Measure) -> str:
    """Return a number beside a check as a sentence, or why there is none and what to log."""
    said = sentence(f"{title_of(measure.check)}: {measure.message}")
    return f"{said} Log {measure.log_this}." if measure.value is None and measure.log_this else said


def print_diagnosis(found: Diagnosis, console: Console, *, evidence: bool = False) -> None:
    """Print a diagnosis."""
    soft = not console.is_terminal
    console.print(f"\n[bold]{escape(clean(found.run))}: {title_of(found.verdict).lower()}[/]", highlight=False, soft_wrap=soft)
    console.print(escape(clean(found.sentence, longest=500)), highlight=False, soft_wrap=soft)
    if found.causes:
        listed = ", ".join(
            f"{cause.cause.replace('_', ' ')} {cause.probability:.2f}" for cause in found.causes if cause.probability >= 0.005
        )
        console.print(f"Causes: {listed}.", highlight=False, soft_wrap=soft)
    for finding in found.findings:
        style = STYLES[finding.severity]
        console.print(
            f"\n[{style}]{finding.severity}[/]  [bold]{title_of(finding.check)}[/], {where(finding)}", highlight=False, soft_wrap=soft
        )
        for line in (finding.message, f"Measured: {measured(finding)}.", finding.advice):
            console.print(f"  {escape(clean(sentence(line), longest=1000))}", highlight=False, soft_wrap=soft)
    if found.healthy:
        console.print()
    for healthy in found.healthy:
        console.print(
            f"[green]healthy[/]  {title_of(healthy.check)}: {escape(clean(healthy.message, longest=500))}", highlight=False, soft_wrap=soft
        )
    for missing in found.unavailable:
        said = escape(clean(f"{missing.reason}. Log {missing.log_this}", longest=500))
        console.print(f"[dim]unavailable  {title_of(missing.check)}: {said}.[/]", highlight=False, soft_wrap=soft)
    _print_measures(found, console, evidence=evidence)


def _print_measures(found: Diagnosis, console: Console, *, evidence: bool) -> None:
    """Print the numbers beside the checks."""
    soft = not console.is_terminal
    missing = [measure for measure in found.measures if measure.value is None]
    if found.measures:
        console.print()
    for measure in found.measures:
        if measure.value is not None:
            console.print(f"[blue]measured[/]  {escape(clean(told(measure), longest=500))}", highlight=False, soft_wrap=soft)
        elif evidence:
            console.print(f"[dim]not measured  {escape(clean(told(measure), longest=500))}[/]", highlight=False, soft_wrap=soft)
    if missing and not evidence:
        names = ", ".join(measure.name.replace("_", " ") for measure in missing)
        console.print(f"[dim]Not measured: {names}; --evidence says why, and what to log.[/]", highlight=False, soft_wrap=soft)


def print_findings(found: Diagnosis, console: Console) -> None:
    """Print a diagnosis in short, within a summary."""
    soft = not console.is_terminal
    console.print(f"[dim]Diagnosis:[/] {escape(clean(found.sentence, longest=500))}", highlight=False, soft_wrap=soft)
    for finding in found.findings:
        said = escape(clean(sentence(finding.message), longest=600))
        console.print(
            f"[{STYLES[finding.severity]}]{finding.severity}[/]  {title_of(finding.check)}: {said}", highlight=False, soft_wrap=soft
        )
