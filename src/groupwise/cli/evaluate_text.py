"""What `groupwise evaluate` prints for a person: scores, a comparison, the table of transfer.

It computes nothing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from groupwise.intervals import percent
from groupwise.wording import clean

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from groupwise.cli.examined import Examination
    from groupwise.intervals import Interval
    from groupwise.trainer.accuracy import Score

_MOST_COLUMNS = 9


def print_examination(found: Examination, console: Console) -> None:
    """Print what came out."""
    if found.transfer:
        console.print(_transfer(found))
        console.print(_means(found))
    else:
        for model, label in enumerate(found.labels):
            _line(console, f"{label}:")
            console.print(_scores(found, model))
    if found.comparisons() and not found.transfer:
        _line(console, f"{found.labels[1]} minus {found.labels[0]}, problem by problem:")
        console.print(_comparisons(found))
    for note in found.notes:
        _line(console, f"· {note}.")


def _scores(found: Examination, model: int) -> Table:
    """Return the scores of one model."""
    samples = next(iter(found.answers[model].values())).samples
    head = ["Benchmark", "Problems", f"mean@{samples}", "s.e.", percent(found.level)]
    table = _table(*head, *([f"pass@{found.k}", percent(found.level)] if found.k > 1 else []))
    for name, answers in found.answers[model].items():
        mean, passed = found.scores(model, name)
        cells = [name, str(answers.problems), _share(mean.interval.value), _error(mean), _ends(mean.interval)]
        table.add_row(*cells, *([_share(passed.interval.value), _ends(passed.interval)] if found.k > 1 else []))
    return table


def _comparisons(found: Examination) -> Table:
    """Return the difference of two models."""
    table = _table("Benchmark", "Difference", "s.e.", percent(found.level), "Better", "Worse", "Same")
    for row in found.comparisons():
        counts = [str(count) for count in (row.better, row.worse, row.same)]
        table.add_row(row.benchmark, _signed(row.difference.value), _number(row.error), _ends(row.difference, signed=True), *counts)
    return table


def _transfer(found: Examination) -> Table:
    """Return the gains from first to last checkpoint."""
    named = found.trained_on is not None
    head = ["Benchmark", found.labels[0], found.labels[-1], "Gain", percent(found.level)]
    table = _table(*head, *(["Share of the gain trained for", percent(found.level), "Correlation"] if named else []))
    for row in found.transfer:
        first, last = row.scores[0].interval.value, row.scores[-1].interval.value
        gain = row.gain.difference
        cells = [row.benchmark, _share(first), _share(last), _signed(gain.value), _ends(gain, signed=True)]
        if named and row.ratio is None:
            cells += ["trained on", "", ""]
        elif row.ratio is not None:
            known = row.ratio.bounded
            share = _number(row.ratio.value if known else None, places=2)
            cells += [share, _ends(row.ratio, places=2) if known else "not known", _number(row.correlation, places=2)]
        table.add_row(*cells)
    return table


def _means(found: Examination) -> Table:
    """Return mean@n at every checkpoint, or at some of many."""
    last = len(found.labels) - 1
    shown = range(last + 1) if last < _MOST_COLUMNS else [round(place * last / (_MOST_COLUMNS - 1)) for place in range(_MOST_COLUMNS)]
    samples = next(iter(found.answers[0].values())).samples
    table = _table(f"mean@{samples}", *(found.labels[place] for place in shown))
    for row in found.transfer:
        table.add_row(row.benchmark, *(_share(row.scores[place].interval.value) for place in shown))
    return table


def _table(first: str, *others: str) -> Table:
    """Return a table with a column of names and columns of numbers."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim")
    table.add_column(escape(first))
    for head in others:
        table.add_column(escape(head), justify="right")
    return table


def _share(value: float) -> str:
    """Write a share."""
    return f"{value:.3f}"


def _signed(value: float) -> str:
    """Write a difference of shares."""
    return f"{value:+.3f}"


def _error(score: Score) -> str:
    """Write a standard error."""
    return _number(score.error)


def _number(value: float | None, *, places: int = 3) -> str:
    """Write a number that may be missing."""
    return "-" if value is None or not math.isfinite(value) else f"{value:.{places}f}"


def _ends(interval: Interval, *, signed: bool = False, places: int = 3) -> str:
    """Write the ends of an interval."""
    low, high = (f"{end:+.{places}f}" if signed else f"{end:.{places}f}" for end in (interval.low, interval.high))
    return f"{low} to {high}"


def _line(console: Console, text: str) -> None:
    """Print a sentence."""
    console.print(clean(text, longest=1000), highlight=False, markup=False, soft_wrap=not console.is_terminal)
