"""Show a sweep in the terminal: the best settings first, then what was trained and how the
settings compare.
"""

from __future__ import annotations

from rich.console import Console

from groupwise.pages.comparison import print_comparison
from groupwise.wording import clean, count, number, sentence
from groupwise_lab.sweep import SweepAnswer, ended


def print_sweep(answer: SweepAnswer, console: Console) -> None:
    """Print the best settings first, then what was trained and how the settings compare."""
    best = answer.best
    if best is not None:
        settings = ", ".join(f"{key} {value}" for key, value in best.values.items())
        _print(
            console,
            (
                f"Best of {best.of}: {settings}, at {number(best.level)} in "
                f"{count(best.runs, 'run')}. {sentence(best.against_next)}"
            ),
        )
    for foretold in answer.foretold:
        _print(console, foretold.said)
    _print(console, ended(answer.runs))
    for note in answer.notes:
        _print(console, note)
    for key, comparison in answer.comparisons.items():
        _print(console, f"\nBy {key}:")
        print_comparison(comparison, console)


def _print(console: Console, words: str) -> None:
    """Print a line as it is."""
    start = "\n" if words.startswith("\n") else ""
    console.print(
        start + clean(words.strip(), longest=2000), highlight=False, markup=False, soft_wrap=True
    )
