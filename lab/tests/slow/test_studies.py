"""The studies behind lab/docs/theory/fit.md and lab/docs/log.md, run whole; they print their
tables.
"""

from __future__ import annotations

import importlib.util
import math
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from rich.console import Console

from groupwise.forecasting.fit import fit
from groupwise_lab.forecasts.text import print_calibration
from groupwise_lab.worlds.runs import autoregressive_noise

ROOT = Path(__file__).resolve().parents[2]
REPLICATES = int(os.environ.get("GROUPWISE_REPLICATES", "2000"))


def study(path: str) -> ModuleType:
    """One experiment, imported from its file."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["", ", little noise", ", much noise"])
def test_intervals_hold_their_level(noise: str) -> None:
    """Every 95 % interval of 200 rows of heavy ball covers between .93 and .97; three standard
    errors are allowed on either side.
    """
    strange = study("lab/experiments/intervals/strange.py")
    for row in strange.of_fits(f"swinging{noise}", 5 * REPLICATES, 2026):
        error = math.sqrt(row["covered"] * (1 - row["covered"]) / REPLICATES)
        assert 0.93 - 3 * error < row["covered"] < 0.97 + 3 * error, row


def _alarm(case: tuple[int, float, int]) -> bool:
    """Whether a series that does not move is said to move: a law, a jump, a collapse."""
    n, correlation, seed = case
    noise = autoregressive_noise(
        np.random.default_rng(seed), n, deviation=0.02, correlation=correlation
    )
    return fit(np.arange(float(n)), 0.5 + noise, healthy="up").status in (
        "converged",
        "non_stationary",
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "correlation", "most"),
    [(50, 0.0, 0.03), (500, 0.0, 0.045), (500, 0.8, 0.056), (50, 0.8, 0.09)],
)
def test_still_series_are_not_said_to_move(
    n: int, correlation: float, most: float, capsys: pytest.CaptureFixture[str]
) -> None:
    """The false-alarm rates of lab/docs/theory/fit.md; `most` is the rate there plus three
    standard errors of 400 series.
    """
    with ProcessPoolExecutor(2) as pool:
        share = float(
            np.mean(
                list(
                    pool.map(_alarm, [(n, correlation, seed) for seed in range(400)], chunksize=20)
                )
            )
        )
    with capsys.disabled():
        print(f"n={n} correlation={correlation}: {share:.3f} of still series are said to move")
    assert share <= most


@pytest.mark.slow
def test_backtest_of_the_public_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """By tables of other clusters the forecast beats the last mean and smoothing over all
    shares, and its band covers at each.
    """
    data = ROOT.parent / "shared" / "data"
    if not data.is_dir():
        pytest.skip("the public runs are not on this machine: ../shared/data is absent")
    backtest = study("lab/experiments/forecast/backtest.py")
    calibrated = backtest.of_public_runs(data)
    with capsys.disabled():
        print_calibration(calibrated, (), Console(width=160))
    whole = calibrated.by_others.whole
    assert whole.ratios["last_mean"].value <= 0.90
    assert whole.ratios["last_mean"].high < 1
    assert whole.ratios["smoothing"].value <= 0.97
    for share in calibrated.by_others.shares:
        assert share.whole.coverage.low <= 0.95
        assert share.whole.coverage.high >= 0.85
