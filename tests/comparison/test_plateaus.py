"""Plateaus that the rows do not identify are no numbers to compare, and no difference is named that the metric cannot have."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest

from groupwise.cli import app as cli
from groupwise.comparison.contrasts import Setup, contrast
from groupwise.comparison.curves import curve
from groupwise.comparison.results import UNTOLD, Measured
from groupwise.comparison.seeds import seed_noise
from groupwise.comparison.verdicts import judged
from groupwise.curves.fit import fit
from groupwise.intervals import Interval

RNG = np.random.default_rng(0)
STEP = np.arange(1.0, 201.0)


def told(*values: float) -> list[Measured]:
    return [Measured(Interval(value, value, value), 0.0) for value in values]


def untold(*values: float) -> list[Measured]:
    return [Measured(Interval(value, value - 0.05, value + 2), math.nan, UNTOLD) for value in values]


def rising(seed: int, pace: float) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.asarray(rng.binomial(128, 0.7 - 0.45 * np.exp(-STEP / pace)) / 128)


def test_a_plateau_that_is_not_identified_keeps_its_value_and_is_not_compared() -> None:
    statuses = set()
    for seed in range(6):
        reward = rising(seed, 120.0)
        found, law = curve(STEP, reward, smoothing=1), fit(STEP, reward, smoothing=1)
        statuses.add(law.status)
        assert found.plateau.usable == (law.status != "not_identifiable")
        assert found.plateau.value == law.parameters["plateau"].value
        if not found.plateau.usable:
            assert found.plateau.problem == UNTOLD
            assert math.isnan(found.plateau.step_error)
    assert "not_identifiable" in statuses


def test_those_that_are_identified_are_compared_and_the_others_are_counted() -> None:
    first, second = [*told(0.6, 0.62), *untold(0.9, 0.4)], told(0.7, 0.72, 0.71)
    setup = Setup(0.95, False, seed_noise([first, second]))
    found = contrast("plateau", first, second, setup, RNG)
    alone = contrast("plateau", first[:2], second, setup, RNG)
    assert found.runs == (2, 3)
    assert (found.p_value, found.difference) == (alone.p_value, alone.difference)
    assert found.left_out == "the plateau of 2 of 7 runs cannot be told: compare the level"
    assert judged(found, found.p_value, level=0.95, effect=None, tests=1).message.endswith(
        " The plateau of 2 of 7 runs cannot be told: compare the level."
    )
    assert alone.left_out == ""


def test_a_group_without_a_plateau_cannot_be_compared_by_it() -> None:
    found = contrast("plateau", untold(0.6, 0.7), told(0.7, 0.72), Setup(0.95, False, seed_noise([])), RNG)
    assert found.status == "unavailable"
    assert found.message == "the plateau of 2 of 4 runs cannot be told: compare the level"


def test_no_difference_is_named_that_the_metric_cannot_have() -> None:
    first, second = told(0.1, 0.8), told(0.3, 0.9)
    setup = Setup(0.95, False, seed_noise([first, second]))
    wide = contrast("level", first, second, setup, RNG)
    assert wide.minimum_detectable > 1
    found = contrast("level", first, second, dataclasses.replace(setup, span=1.0), RNG)
    assert math.isnan(found.minimum_detectable)
    assert found.seeds_needed == wide.seeds_needed
    said = judged(found, found.p_value, level=0.95, effect=None, tests=1).message
    assert "2 and 2 runs would find no difference that is possible" in said


def test_the_command_says_that_plateaus_cannot_be_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names = []
    for seed in range(6):
        rows = "\n".join(f"{step:.0f},{value:.6f}" for step, value in zip(STEP, rising(seed, 120.0 if seed < 3 else 20.0), strict=True))
        names.append(f"run{seed}.csv")
        Path(names[-1]).write_text(f"step,reward\n{rows}\n", encoding="utf-8")
    assert cli.main(["compare", *names[:3], "vs", *names[3:], "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    plateau = found["comparisons"][0]["contrasts"][2]
    runs = [run["plateau"] for group in found["groups"] for run in group["runs"]]
    lost = [run for run in runs if run["problem"]]
    assert lost
    assert all(run["value"] is not None for run in lost)
    assert plateau["left_out"] == f"the plateau of {len(lost)} of 6 runs cannot be told: compare the level"
    assert plateau["left_out"][1:] in plateau["message"]
    for one in found["comparisons"][0]["contrasts"]:
        assert one["quantity"] == "speed" or one["minimum_detectable"] is None or one["minimum_detectable"] <= 1
