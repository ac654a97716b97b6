"""The table of a comparison: what a cell says of the runs of a group."""

from __future__ import annotations

import io
import math
from dataclasses import replace

import pytest
from rich.console import Console
from tests.analysis.test_compare import comparison, group, level, run

from groupwise.analysis.compare import compare
from groupwise.pages.comparison import _held, _tests, print_comparison


def test_a_cell_says_how_many_runs_of_a_group_hold_the_level_and_from_which_step() -> None:
    measured = comparison(level("different"))
    late, never = run(0.5, time=60.0), run(0.5, time=math.inf)
    assert _held(group("A", 0, run(0.5, time=40.0), late, never), measured) == "50, 2/3"
    assert _held(group("A", 0, run(0.5, time=40.0), late), measured) == "50"
    assert _held(group("A", 0, never), measured) == "not by 200"
    assert _held(group("A", 0, run(0.5)), measured) == "–"


def test_what_a_test_could_find_is_written_in_two_digits() -> None:
    contrast = replace(level("different"), adjusted_p=0.01234, minimum_detectable=0.12345)
    assert _tests([contrast]).rows[0][3:] == ("0.012", "0.12", "–")


@pytest.mark.parametrize(("runs", "headed"), [(3, True), (4, False)])
def test_the_headline_of_a_failed_run_stands_below_a_table_of_a_few(
    runs: int, headed: bool
) -> None:
    """Three curves, of which the last collapses; of more the table alone has room."""
    rise = [0.5 - 0.4 * 0.9**t + 0.01 * (-1) ** t for t in range(60)]
    others = [[value + 0.001 * place for value in rise] for place in range(runs - 1)]
    out = io.StringIO()
    print_comparison(compare(*others, rise[:40] + [0.0] * 20), Console(file=out, width=80))
    assert (f"run {runs}: reward 0.49 → 0.00, collapsed at step 41" in out.getvalue()) is headed
