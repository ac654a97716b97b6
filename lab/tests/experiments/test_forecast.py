"""The studies of the forecast: clusters, tables, and that the shipped table is the one that the
code makes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from rich.console import Console

from groupwise.forecasting.forecast import KINDS, forecast, shipped
from groupwise_lab.forecasts.backtest import SHARES, trial
from groupwise_lab.forecasts.calibrate import calibrate
from groupwise_lab.forecasts.text import print_calibration

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "experiments" / "forecast"
DATA = ROOT.parent / "shared" / "data"
Load = Callable[[str], ModuleType]
needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason="the public runs are not on this machine: ../shared/data is absent"
)


def logs(folder: Path) -> Path:
    """Four runs: two of one source, one constant, one other."""
    for name, seed in (
        ("wordle_a.csv", 0),
        ("x/lara_TUF.csv", 1),
        ("other.csv", 2),
        ("more.csv", 3),
        ("still.csv", None),
    ):
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        step = np.arange(60)
        noise = 0 if seed is None else np.random.default_rng(seed).normal(0, 0.03, 60)
        reward = (
            0.5 + 0 * step if seed is None else 0.7 - 0.5 * np.exp(-step / (10 + 9 * seed)) + noise
        )
        path.write_text(
            "step,reward\n"
            + "".join(f"{s + 1},{r:.5f}\n" for s, r in zip(step, reward, strict=True))
        )
    return folder


# Terms of the upper 95 % of windows and of the upper quarter of rows.
OF_THREE = {
    "window": [1.30077243, 0.00764442375, -0.0733235322],
    "row": [0.681154421, 0.00936749892, -0.0443280821],
}


def test_runs_of_one_source_are_one_cluster(load: Load) -> None:
    of = load("backtest").cluster_of
    assert {of(f"hard/{name}") for name in ("rho0.30_seed43.log", "rho3.00_seed44.log")} == {
        of("trl/qwen25_7b_exp2_vanilla_rho1.0_seed42.log")
    }
    assert (
        of("hard/tasa_g4s_seed44.step_stats.json")
        == of("sweeps/qwen35_9b_g4/drgrpo_g4s_seed42.step_stats.json")
        == "qwen35_9b_g4"
    )
    assert of("trl/qwen35_9b_rho0.10_seed42.step_logs.json") == "qwen35_9b"
    assert of("hard/no_std_normalization.metrics.jsonl") == "cs336"
    assert of("trl/imjonezz.json") == "trl/imjonezz.json"


@pytest.mark.slow
def test_the_table_is_made_from_runs_that_move(
    load: Load, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = load("backtest")
    calibrated = module.of_public_runs(logs(tmp_path), {})
    assert (calibrated.table.runs, calibrated.table.clusters) == (4, 3)
    print_calibration(calibrated, (), Console(width=160))
    out = capsys.readouterr().out
    assert "4 runs in 3 clusters, each foretold by the table of the others" in out
    assert "In the worst cluster" not in out  # no other method was tried
    rows = re.findall(r"^ *(?:10|20|40|60) % +(.*)$", out, re.MULTILINE)
    assert len(rows) == 4
    assert all(re.search(r"\d %( +\d+\.\d\d){5}$", row.strip()) for row in rows)
    assert "nan" not in out


@pytest.mark.slow
def test_trained_runs_are_scored_by_task(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = load("backtest")
    results = load("common").Results()
    monkeypatch.setattr(module, "RESULTS", results)
    assert module.of_trained_runs() is None
    for name in ("sorting-0", "sorting-1", "brackets-0"):
        rewards = np.random.default_rng(len(name)).uniform(0.2, 0.4, 50).round(4)
        results.add("trainer_runs", {"run": name, "rewards": " ".join(map(str, rewards))})
    made = module.of_trained_runs({})
    scored, bare = made.by_others, made.uncalibrated
    assert (scored.runs, scored.clusters, bare.clusters) == (3, 2, 2)
    assert scored.whole.interval_scores != bare.whole.interval_scores


def test_the_code_that_the_shipped_table_was_made_with_is_that_of_today() -> None:
    """Three runs, by all that a table goes through; where this fails, make it again:
    lab/experiments/forecast/calibrate.py --write.
    """
    time = np.arange(1.0, 81.0)
    runs = [
        0.7 - 0.5 * np.exp(-time / scale) + 0.04 * np.sin(17 * time**1.5)
        for scale in (9.0, 30.0, 90.0)
    ]
    cases = [
        trial(time, run, share, bounds=(0.0, 1.0), methods={}).case(str(i), "run")
        for i, run in enumerate(runs)
        for share in SHARES
    ]
    terms = calibrate(cases).terms
    assert terms["window"][3] == pytest.approx(OF_THREE["window"], abs=1e-6)
    assert terms["row"][1] == pytest.approx(OF_THREE["row"], abs=1e-6)


@pytest.mark.slow
def test_the_demo_shows_a_forecast_that_holds(load: Load) -> None:
    """What `make demo` forecasts at 40 % of 400 steps, four means of 20 steps, over twenty seeds of
    its run.
    """
    runs = [
        np.array(row["rewards"].split(), dtype=float)
        for row in load("backtest").RESULTS.texts("trainer_runs")
        if row["run"].startswith("modular_addition")
    ]
    inside, width = 0, 0.0
    for reward in runs:
        ends = np.array([220, 280, 340, 400])
        ahead = forecast(
            np.arange(1.0, 161.0), reward[:160], ends - 10.0, bounds=(0.0, 1.0), rows=20
        )
        came = np.array([reward[end - 20 : end].mean() for end in ends])
        inside += int(((ahead.low_S <= came) & (came <= ahead.high_S)).sum())
        width += float((ahead.high_S - ahead.low_S).mean()) / len(runs)
    asked = 4 * len(runs)
    print(
        f"\nthe demo over {len(runs)} seeds: {inside} of {asked} windows in the 90 % band, "
        f"{width:.2f} wide on average"
    )
    assert len(runs) == 20
    assert inside >= 0.8 * asked


@needs_data
@pytest.mark.slow
def test_the_shipped_table_is_what_the_public_runs_make(load: Load) -> None:
    module = load("backtest")
    tried = module.foretold(module.usable(DATA), {})
    made = calibrate([result.trial.case(result.cluster, result.name) for result in tried])
    assert (made.runs, made.clusters) == (shipped().runs, shipped().clusters)
    for kind in KINDS:
        assert made.terms[kind] == pytest.approx(shipped().terms[kind], abs=1e-6)
