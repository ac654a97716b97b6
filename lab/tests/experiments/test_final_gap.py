"""The experiments on the final gap: scripts run, their worlds have an optimum, and the page
shows the tables of the results.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "experiments" / "u_statistic"
PAGE = ROOT / "docs" / "studies" / "final-gap.md"
SCRIPTS = ("gap_law", "gap_rate", "gap_bounds")
Loader = Callable[[str], ModuleType]


@pytest.mark.thinned(1)
@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_runs_in_seconds(printed: Callable[..., str], name: str) -> None:
    assert "|---|" in printed(name, "--quick")


def test_every_world_has_an_optimum_with_curvature(load: Loader) -> None:
    for name, flat in (("two answers", 0), ("three answers", 0), ("bandit", 1)):
        place = load("gap_world").stage(name)
        curvature = np.linalg.eigvalsh(-place.hessian_DD)
        assert (np.abs(curvature) < 1e-12).sum() == flat
        assert np.abs(place.world.gradient(place.best_D)).max() < 1e-10


def test_the_law_holds_within_three_standard_errors(load: Loader) -> None:
    """Leave-one-out at five group sizes: mean, 90 and 99 % quantile of the table, fifteen numbers."""
    main = [
        row
        for row in load("gap_world").RESULTS.texts("gap_law")
        if row["world"] == "two answers" and row["baseline"] == "leave_one_out"
    ]
    assert [int(row["group_size"]) for row in main] == [2, 4, 8, 16, 64]
    for row in main:
        for what in ("mean", "q90", "q99"):
            assert abs(float(row[what]) - float(row[f"law_{what}"])) < 3 * float(
                row[f"{what}_error"]
            ), (row["group_size"], what)


def test_no_bound_whose_conditions_hold_lies_below_the_truth(load: Loader) -> None:
    valid = [row for row in load("gap_world").RESULTS.texts("gap_bounds") if row["void"] == "0"]
    assert len(valid) > 50
    assert all(float(row["bound"]) > float(row["gap"]) - 3 * float(row["error"]) for row in valid)


@pytest.mark.parametrize("name", ["gap_law", "gap_rate", "gap_bounds"])
def test_the_tables_are_those_of_the_page(
    printed: Callable[..., str], name: str, monkeypatch: pytest.MonkeyPatch, load: Loader
) -> None:
    """Every row that the script prints stands in the page, digit for digit."""
    monkeypatch.setattr(load("common").Results, "write", lambda *_: None)
    shown = set(PAGE.read_text(encoding="utf-8").splitlines())
    table = [line for line in printed(name, "--tables").splitlines() if line.startswith("| ")]
    assert len(table) > 5
    assert [line for line in table if line not in shown] == []
