"""The table of a comparison: what a cell says of the runs of a group."""

from __future__ import annotations

import math
from dataclasses import replace

from tests.analysis.test_compare import comparison, group, level, run

from groupwise.pages.comparison import _held, _tests


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
