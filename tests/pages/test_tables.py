"""Tables that page and terminal share: each number in its cell, under its name, in its unit."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.cases import each_case

from groupwise.analysis.fitted import Fitted, ForecastRow
from groupwise.analysis.rollouts import PromptRow, PromptTable
from groupwise.diagnostics.judgement import Cost
from groupwise.estimators.best_group_size import CurvePoint
from groupwise.estimators.zero_variance import ZeroVarianceOutlook, ZeroVarianceShare
from groupwise.forecasting.laws import LAWS, oscillator_quantities
from groupwise.intervals import Interval
from groupwise.pages import tables

UNITS = {name: words[1] for name, words in tables._PARAMETERS.items()}
SLOWER = {"updates": 10.0, "rad per update": 0.1}  # what a time ten times as long does to a unit


def test_parameters_of_laws_have_the_units_that_time_gives_them() -> None:
    time = np.linspace(0, 5, 11)
    for law in (law.by_rows(0.0) for law in LAWS):
        values = dict(zip(law.parameters, (0.8, 0.2, 1.5, 0.7), strict=False))
        slower = {name: value * SLOWER.get(UNITS[name], 1.0) for name, value in values.items()}
        assert law.curve(10 * time, **slower) == pytest.approx(law.curve(time, **values))
    for damping in (0.5, 2.0):
        fast, slow = (
            oscillator_quantities(np.array(omega), np.array(damping)) for omega in (1.0, 0.1)
        )
        for name, value in fast.items():
            assert slow[name] == pytest.approx(value * SLOWER.get(UNITS[name], 1.0)), name
            assert (UNITS[name] == "of the way") is (name == "overshoot")
        assert slow["tau1"] >= slow["tau2"]


def test_every_parameter_goes_by_its_name() -> None:
    names = {"tau1": "slow time τ₁", "tau2": "fast time τ₂"}
    for name, (label, _, meaning) in tables._PARAMETERS.items():
        assert label.lower().startswith(names.get(name, name.replace("_", " ")))
        assert meaning


def test_a_fit_has_its_parameters_and_the_laws_it_was_weighed_against(
    made_fitted: Callable[..., Fitted],
) -> None:
    fit = made_fitted(
        law="logistic",
        overshoot=0.125,
        rivals={"oscillator": 0.25, "exponential": 0.02, "constant": 0.0},
    )
    grid = tables.parameter_grid(fit.fit)
    assert grid.head == ("Parameter", "Value", "95 % interval", "Unit", "")
    assert grid.rows == [
        ("Plateau", "0.8", "0.75 to 0.85", "", "the level that the curve approaches"),
        ("Start", "0.2", "0.190 to 0.210", "", "the level at the first row of the log"),
        (
            "Overshoot",
            "0.125",
            "0.00 to 1.00",
            "of the way",
            "how far the curve exceeds the plateau, as a share of plateau minus start",
        ),
    ]
    bare = dataclasses.replace(fit.fit, r_squared=-6.41e-5, r_squared_explainable=0.0666)
    assert tables.explained(bare) == "R² is 0 (0.067 of the variation beyond sampling noise)"
    grid = tables.candidate_grid(fit.fit)
    assert (grid.head, grid.best) == (("Law", "Weight", "AICc", "R²"), 0)
    assert grid.rows == [
        ("logistic curve", "0.73", "−100", "0.9"),
        ("damped oscillator", "0.25", "−100", "0.9"),
        ("single exponential", "0.02", "−100", "0.9"),
        ("constant level", "< 0.01", "−100", "0.9"),
    ]


def test_a_forecast_has_the_mean_and_a_row_of_every_step(
    made_fitted: Callable[..., Fitted],
) -> None:
    outlook: Any = SimpleNamespace(
        result=SimpleNamespace(level=0.9),
        rows=(
            ForecastRow(1150.0, 0.61, 0.55, 0.67, 0.42, 0.83),
            ForecastRow(2300.0, 0.7, 0.6, 0.8, 0.5, 0.9),
        ),
    )
    grid = tables.forecast_grid(outlook)
    assert grid.head == ("Step", "Expected", "Mean, 90 %", "Single row, 90 %")
    assert grid.rows == [
        ("1,150", "0.61", "0.55 to 0.67", "0.42 to 0.83"),
        ("2,300", "0.70", "0.60 to 0.80", "0.50 to 0.90"),
    ]


def test_components_have_their_values_intervals_and_meanings() -> None:
    named = {"vp": "Vp", "t": "T", "r": "R", "gradient_norm2": "|g|^2"}
    parts = {
        key: SimpleNamespace(
            symbol=symbol,
            value=float(number),
            interval=Interval(number, number - 0.5, number + 2.0),
            meaning=f"{key} of sigma2",
        )
        for number, (key, symbol) in enumerate(named.items(), 1)
    }
    made: Any = SimpleNamespace(**parts, group_size=Interval(7.0, 7.0, 7.0), level=0.9)
    grid = tables.component_grid(made)
    assert grid.head == ("", "Value", "90 % interval", "Meaning")
    assert grid.rows == [
        ("Vp", "1", "0.5 to 3", "vp of σ²"),
        ("T", "2", "1.5 to 4", "t of σ²"),
        ("R", "3", "2.5 to 5", "r of σ²"),
        ("|g|²", "4", "3.50 to 6.00", "gradient_norm2 of σ²"),
        ("G*", "7", "–", "group size with the smallest error of the next update, 1 + √(R/Vp)"),
    ]
    assert tables.between(Interval(3.0, 2.5, 4.0)) == "2.50 to 4.00"


def test_a_plan_has_the_price_of_every_size() -> None:
    plan: Any = SimpleNamespace(
        curve=(
            CurvePoint(2, 2048, 2.0, float("inf")),
            CurvePoint(4, 1024, 1.0, 0.5),
            CurvePoint(8, 512, 1.25, 0.25),
            CurvePoint(16, 256, 1.5, 0.75),
        ),
        group_size=8,
        named=True,
        safe_sizes=(4, 8),
        present=SimpleNamespace(group_size=8),
    )
    grid = tables.plan_grid(plan, [2, 4, 8])
    assert grid.head == ("Group size", "Prompts", "Extra error now", "Extra error at most", "")
    assert grid.rows == [
        ("2", "2,048", "100 %", "∞", ""),
        ("4", "1,024", "0 %", "50 %", ""),
        ("8", "512", "25 %", "25 %", "safe, in use"),
    ]
    assert grid.best == 2
    plan.named = False
    words = [row[4] for row in tables.plan_grid(plan, [2, 4, 8]).rows]
    assert words == ["", "safest", "safest, in use"]


def test_shares_of_zero_variance_groups_stand_at_their_sizes() -> None:
    shares = (
        ZeroVarianceShare(8, Interval(0.5, 0.4, 0.6, 0.9), extrapolated=False),
        ZeroVarianceShare(
            16, Interval(0.3, 0.2, 0.45, 0.9), extrapolated=True, gained=Interval(0.2, 0.1, 0.3)
        ),
    )
    powers = (ZeroVarianceShare(2, Interval(0.8, 0.7, 0.9, 0.9), extrapolated=False), *shares)
    grid = tables.outlook_grid(ZeroVarianceOutlook(8, 100, "rewards", shares, powers))
    head = ("Group size", "Zero-variance", "90 % interval", "More mixed groups", "")
    assert grid.head == head
    assert grid.rows == [
        ("2", "80 %", "70 % to 90 %", "", ""),
        ("8", "50 %", "40 % to 60 %", "", "in use"),
        ("16", "30 %", "20 % to 45 %", "20 % (10 % to 30 %)", "extrapolated"),
    ]


@each_case(
    ("cost", "cells"),
    [
        (
            Cost(1200, 4000, 7200.0, 2400, 2.5e6, 16.0, 1234.5),
            ("1,200", "4,000", "2.5 M", "2 h", "16", "1,234.50"),
        ),
        (Cost(7, None, 90.0, tokens=1500.0), ("7", "–", "1.5 k", "90 s", "–", "–")),
    ],
)
def test_what_was_spent_is_in_its_units(cost: Cost, cells: tuple[str, ...]) -> None:
    other = Cost(1, 2, 180.0, tokens=4.0, gpu_hours=5.0, money=6.0)
    last = ("1", "2", "4", "3 min", "5", "6.00")
    named = {
        "Used so far": "spent",
        "Since the first sign": "cost",
        "Remaining, as planned": "to_come",
    }
    for name, key in named.items():
        costs: Any = dict.fromkeys(named.values(), other) | {key: cost}
        grid = tables.cost_grid(SimpleNamespace(**costs))  # type: ignore[arg-type]
        head = ("", "Steps", "Rollouts", "Tokens", "Time", "GPU-hours", "Money")
        assert grid.head == head
        assert grid.rows == [(row, *(cells if row == name else last)) for row in named]


def test_prompts_have_their_visits_and_what_they_earn_now() -> None:
    now = Interval(0.5, 0.25, 0.75)
    rows = (
        PromptRow("2+3?", "teaches", 12, 9, now, 0.5, 16),
        PromptRow("1+1?", "solved", 3, 0, None, 0.875, 8),
    )
    grid = tables.prompt_grid(PromptTable("", True, (), rows))
    last = ("1+1?", "solved", "0 of 3", "0.875", "8")
    assert grid.head == (
        "Prompt",
        "Stands",
        "Visits with a gradient",
        "Pass rate now",
        "Rollouts",
    )
    assert grid.rows == [("2+3?", "teaches", "9 of 12", "50 % (25 % to 75 %)", "16"), last]
    assert tables.prompt_grid(PromptTable("", False, (), rows)).head[3] == "Mean reward now"
