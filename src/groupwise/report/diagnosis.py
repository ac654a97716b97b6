"""A diagnosis as terminal text: verdict, findings, what was healthy, what could not be looked at.

It arranges and judges nothing.
"""

from __future__ import annotations

import math

from rich.console import Console
from rich.markup import escape

from groupwise.diagnostics.findings import Diagnosis, Finding, Measure
from groupwise.report.wording import capital, clean, number, sentence

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
