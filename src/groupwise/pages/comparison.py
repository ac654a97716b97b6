"""A comparison of runs in the terminal: the answer, a row for each group, judgements."""

import math
import textwrap
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape

from groupwise.analysis.compare import ComparedGroup, RunComparison, shared_key
from groupwise.analysis.fleet import listing
from groupwise.comparison.compare import Comparison, Contrast
from groupwise.diagnostics.judgement import WORST_FIRST, State
from groupwise.pages.tables import Grid
from groupwise.pages.text import Printer
from groupwise.wording import clean, count, number, ranged, sentence, short

_COLUMNS = 80
_MOST_GROUPS = 9


def print_comparison(comparison: RunComparison, console: Console, *, why: bool = False) -> None:
    """Print the answer, a row for each group, and how failed runs were judged.

    Asked why, also all judgements, the tests and the notes.
    """
    out = Printer(console)
    console.width = min(console.width, _COLUMNS)
    for place, line in enumerate(comparison.answer):
        _wrapped(out, line, style="" if place else "bold")
    out.grid(_grid(comparison, len(comparison.groups) if why else _MOST_GROUPS))
    if why:
        _print_why(comparison, out)
        return
    _print_rest(comparison, out)


def _print_rest(comparison: RunComparison, out: Printer) -> None:
    """Print what the table leaves out, how doubtful runs were judged, and settings that differ."""
    runs = [run for group in comparison.groups for run in group.runs]
    if len(comparison.groups) > _MOST_GROUPS:
        noun = "more run" if len(runs) == len(comparison.groups) else "more group"
        more = count(len(comparison.groups) - _MOST_GROUPS, noun)
        _wrapped(out, f"{more}: --why", style="dim")
    doubtful = [run for run in runs if run.judgement.alarm] or [
        run for run in runs if run.judgement.state is State.WARNING
    ][:1]
    for run in doubtful[:2] if len(comparison.groups) < 4 else ():
        _wrapped(out, f"{run.label}: {run.judgement.headline}")
    if comparison.differing:
        _wrapped(out, f"The runs differ in {listing(comparison.differing)}.", style="dim")


def _print_why(comparison: RunComparison, out: Printer) -> None:
    """Print every run's judgement, the tests of every pair of groups, and what to know."""
    for run in (run for group in comparison.groups for run in group.runs):
        _wrapped(out, f"{run.label}: {run.judgement.headline}")
    for pairing in comparison.comparison.pairings:
        out.heading(f"{comparison.name(pairing.second)} against {comparison.name(pairing.first)}")
        out.grid(_tests(pairing.contrasts))
    for note in dict.fromkeys(comparison.notes):
        _wrapped(out, f"· {sentence(note)}", style="dim")


def _tests(contrasts: Sequence[Contrast]) -> Grid:
    """Return what each test of two groups found."""
    rows = tuple(
        (
            {"level": "late mean", "speed": "time to the level"}[contrast.quantity],
            contrast.message or contrast.status.replace("_", " "),
            ranged(contrast.difference),
            number(contrast.adjusted_p, digits=2),
            number(contrast.minimum_detectable, digits=2),
            "–" if contrast.seeds_needed is None else f"{contrast.seeds_needed}",
        )
        for contrast in contrasts
    )
    return Grid(
        ("", "Found", "Difference", "Corrected p", "Detectable in 8 of 10", "Runs needed"),
        rows,
        (2, 3, 4, 5),
    )


def _wrapped(out: Printer, text: str, *, style: str = "") -> None:
    """Print a sentence in lines of 80 columns, into a pipe too."""
    for line in textwrap.wrap(clean(text, longest=1000), _COLUMNS, break_on_hyphens=False):
        out.console.print(escape(line), style=style, highlight=False, soft_wrap=True)


def _grid(comparison: RunComparison, most: int) -> Grid:
    """Return a row for each group: state, end, late mean, time.

    Of too many those that failed are shown, then those compared.
    """
    measured, every = comparison.comparison, comparison.groups
    first = sorted(
        range(len(every)), key=lambda g: (not every[g].failed, every[g].place is None, g)
    )[:most]
    groups = [every[g] for g in sorted(first)]
    columns = _columns(groups, measured)
    key, names = shared_key([group.name for group in groups])
    cells = zip(
        *(names, list(map(_state_of, groups)), *(column for _, column in columns)), strict=True
    )
    head = (key or clean(comparison.metric, longest=24), "state", *(name for name, _ in columns))
    return Grid(head, tuple(cells), tuple(range(2, len(head))))


def _columns(groups: Sequence[ComparedGroup], measured: Comparison) -> list[tuple[str, list[str]]]:
    """Return the columns of numbers, each with its head."""
    columns = [("last rows", [_written(group.ends_at) for group in groups])]
    if measured.pairings and any(group.level != group.ends_at for group in groups):
        columns.append(
            (
                f"steps {measured.late_from:.0f}–{measured.late_to:.0f}",
                [_written(group.level) for group in groups],
            )
        )
    if math.isfinite(measured.reach):
        columns.append(
            (
                f"past {number(measured.reach, digits=2)} from step",
                [_held(group, measured) for group in groups],
            )
        )
    return columns


def _written(value: float) -> str:
    """Write a level."""
    return short(value) if math.isfinite(value) else "–"


def _state_of(group: ComparedGroup) -> str:
    """Write how the runs of a group were judged, the worst first."""
    states = [run.judgement.state for run in group.runs]
    worst = min(states, key=WORST_FIRST.index)
    several, of = len(states), states.count(worst)
    many = "" if several == 1 else f"{several} " if of == several else f"{of}/{several} "
    return many + worst.value.replace("_", " ")


def _held(group: ComparedGroup, measured: Comparison) -> str:
    """Write from which step the runs of a group hold the level."""
    times = group.times
    held = [time for time in times if math.isfinite(time)]
    if not times:
        return "–"
    if not held:
        return f"not by {measured.late_to:.0f}"
    mean = f"{sum(held) / len(held):.0f}"
    return mean if len(held) == len(times) else f"{mean}, {len(held)}/{len(times)}"
