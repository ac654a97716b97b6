"""How many runs stand, as lines of the terminal and as a page with a filter for each state.

It computes nothing.
"""

from rich.console import Console
from rich.text import Text

from groupwise.analysis.fleet import Fleet
from groupwise.diagnostics.judgement import UNREADABLE, WORST_FIRST, State
from groupwise.pages.html import document
from groupwise.pages.markup import filled, tag
from groupwise.pages.screen import head_of, style_of
from groupwise.parsing import JsonView
from groupwise.wording import clean, count

MARK = " – groupwise fleet</title>"
_WIDE = 15  # columns of a state
_LONGEST = 4096
_MOST_UNREADABLE = 3  # lines; the others are counted


def heads_of(*, plain: bool = False) -> dict[str, str]:
    """Return mark and words of every state of a run in a fleet, worst first."""
    return {state: head_of(state, plain=plain) for state in WORST_FIRST}


def summary_of(fleet: Fleet) -> str:
    """Return how many runs are in which state, worst first."""
    states = ", ".join(
        f"{number:,} {state.replace('_', ' ')}" for state, number in fleet.counts.items()
    )
    return f"{count(len(fleet.runs), 'run')}: {states}"


def print_fleet(fleet: Fleet, console: Console) -> None:
    """Print how many runs are in which state, then a line a run, worst first."""
    heads = heads_of(plain=not console.encoding.startswith("utf"))
    console.print(Text(f"{summary_of(fleet)}."), soft_wrap=True)
    if fleet.separates:
        console.print(Text(clean(fleet.separates.sentence, longest=_LONGEST)), soft_wrap=True)
    unreadable = [row for row in fleet.runs if row.state == UNREADABLE]
    counted = {*unreadable[_MOST_UNREADABLE:]}
    for row in fleet.runs:
        if row in counted:
            continue
        line = Text(f"{heads[row.state]:<{_WIDE}}", style=style_of(row.state))
        line.append(
            f"{clean(row.opened, longest=_LONGEST)}  {clean(row.headline)}",
            style="not bold default",
        )
        console.print(line, highlight=False, soft_wrap=True)
    if counted:
        console.print(f"{count(len(counted), 'more run')} cannot be read; -o FILE.csv lists all.")


def fleet_page(fleet: Fleet, *, provenance: JsonView) -> str:
    """Return the page of a fleet."""
    runs = [
        {
            **{name: getattr(row, name) for name in ("run", "state", "headline", "do")},
            # The headline of a run without a warning names its cause.
            "cause": row.cause if row.state != State.OK else "",
            "step": row.last_step,
            "reward": row.heights,
        }
        for row in fleet.runs
    ]
    results = {"heads": heads_of(), "counts": fleet.counts, "runs": runs}
    separates = tag("p", fleet.separates.sentence) if fleet.separates else ""
    return document(
        f"{count(len(runs), 'run')} – groupwise fleet",
        filled("fleet.html", heading=f"{summary_of(fleet)}.", separates=separates),
        results,
        provenance=provenance,
        kind="fleet",
    )
