"""Verdicts on shapes that people know: collapses, dips, ramps, short logs; and on public runs
whose end is known.
"""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.cases import each_case

from groupwise.forecasting.fit import _notes, fall_from_height, fit
from groupwise.forecasting.forecast import forecast
from groupwise.forecasting.observations import observe
from groupwise.forecasting.results import FitOutcome
from groupwise.readers import run_record
from groupwise.series.metric import metric_series
from groupwise_lab.worlds.runs import autoregressive_noise

N = 200
TIME = np.arange(float(N))


def noise(seed: int, deviation: float = 0.03) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, deviation, N)


@pytest.mark.thinned(1)
@pytest.mark.parametrize("seed", range(6))
def test_a_rise_that_falls_all_the_way_has_collapsed(seed: int) -> None:
    value = np.interp(TIME, [0, 90, 199], [0.2, 0.8, 0.1]) + noise(seed)
    result = fit(TIME, value, healthy="up")
    assert result.status == "non_stationary"
    assert result.outcome is FitOutcome.COLLAPSED


@each_case("seed", range(6))
def test_a_dip_that_recovers_has_not_collapsed(seed: int) -> None:
    value = np.full(N, 0.9) + noise(seed)
    value[60:70] -= 0.5
    assert fit(TIME, value, healthy="up").outcome is not FitOutcome.COLLAPSED


def test_a_metric_that_was_low_before_and_came_back_has_not_collapsed() -> None:
    """Down twice before without any rhythm, and down at the end: the last low is no different
    from the others.
    """
    low = ((TIME >= 20) & (TIME < 75)) | ((TIME >= 90) & (TIME < 130)) | (TIME >= 170)
    value = np.where(low, 0.1, 0.9) + noise(6)
    assert fit(TIME, np.maximum(value, 0.0), healthy="up").outcome is not FitOutcome.COLLAPSED


def test_a_drop_to_nothing_says_when() -> None:
    value = np.where(TIME < 150, 0.9, 0.0) + noise(1)
    result = fit(TIME, value, healthy="up")
    assert result.outcome is FitOutcome.COLLAPSED
    assert result.change_time == pytest.approx(150, abs=4)


def test_a_clean_ramp_is_not_unstable() -> None:
    result = fit(TIME[:50], TIME[:50] / 100, healthy="up")
    assert (result.status, result.outcome) == ("not_identifiable", FitOutcome.OPEN)
    assert "plateau" in result.message


def test_a_tiny_jump_beside_a_large_rise_is_nothing() -> None:
    value = 1 - 0.3 * np.exp(-TIME / 8) + noise(2, 0.001)
    value[100:] += 0.004
    assert fit(TIME, value, healthy="up").status != "non_stationary"


def test_a_jump_higher_than_all_rows_are_apart_is_none() -> None:
    """Steps that grow longer bend the curve in time: a law with a jump of .99 fits best, and all
    rows lie within .65.
    """
    row = np.arange(200)
    time = np.concatenate([row[:50], row[50:100] * 7, row[100:] * 40]) + 1.0
    value = 0.8 - 0.6 * np.exp(-row / 60) + noise(0, 0.03)[:200]
    fitted = fit(time, value, healthy="up")
    assert "jump" not in fitted.message
    assert "falls by" not in fitted.message


def test_ten_rows_that_rise_are_not_called_flat() -> None:
    value = np.array([0.75, 1.1, 1.0, 1.3, 1.2, 1.6, 1.4, 1.9, 1.7, 2.1])
    assert fit(np.arange(10.0), value, healthy="up").status == "not_identifiable"


def test_the_plateau_of_a_run_that_several_laws_describe_covers_them_all() -> None:
    """A nearly exponential oscillator: the law taken for true alone would be far too sure."""
    value = 0.8 - 0.6 * np.exp(-TIME / 50) + noise(3, 0.02)
    free, alone = fit(TIME, value), fit(TIME, value, law="exponential")
    assert free.parameters["plateau"].width > alone.parameters["plateau"].width


PART = np.arange(400) / 400
ARRIVING = 1 - np.exp(-((PART / 0.06) ** 1.5))


def slow_noise(seed: int) -> np.ndarray:
    """Noise whose neighbours correlate by .5."""
    return autoregressive_noise(np.random.default_rng(seed), PART.size, 0.02, 0.5)


@each_case(("way", "end"), [(1, "high"), (-1, "low")])
def test_a_plateau_that_the_last_rows_have_passed_has_no_end_there(way: int, end: str) -> None:
    """A steep way and then a slow one that goes on: what a law of the steep part leaves over looks
    like slow noise. The rows have passed the whole interval of the plateau in most such runs.
    """
    free = 0
    for seed in range(8):
        value = 0.5 + way * (0.6 * ARRIVING + 0.1 * PART) + slow_noise(seed)
        result = fit(PART, value)
        plateau = result.parameters["plateau"]
        free += math.isinf(getattr(plateau, end))
        assert plateau.low <= value[-40:].mean() <= plateau.high
        assert result.status == ("not_identifiable" if not plateau.bounded else "converged")
    assert free >= 5


def test_a_plateau_that_rows_scatter_about_keeps_both_ends() -> None:
    """Of eight runs that have arrived the last tenth of one lies above by chance."""
    ends = [fit(PART, 0.5 + 0.6 * ARRIVING + slow_noise(seed)).status for seed in range(8)]
    assert ends.count("converged") >= 7


@each_case("seed", range(3))
def test_a_swing_that_ends_beyond_its_plateau_comes_back(seed: int) -> None:
    result = fit(TIME, 0.8 - 0.6 * np.exp(-TIME / 200) * np.cos(TIME / 21) + noise(seed, 0.02))
    assert result.status == "converged"
    assert result.curve_T[-20:].mean() > result.parameters["plateau"].high


def test_a_forecast_after_a_collapse_starts_where_the_run_is() -> None:
    """Slow noise and curve are estimated together: the next row of a run that lies at 0 is near
    0.
    """
    value = np.where(TIME < 150, 0.9, 0.0) + noise(4)
    ahead = forecast(TIME, value, [201.0], bounds=(0.0, 1.0))
    assert ahead.mean_S[0] == pytest.approx(0.0, abs=0.08)
    assert ahead.high_S[0] < 0.3
    assert ahead.low_S[0] >= 0


def test_bounds_hold_every_number_of_a_forecast() -> None:
    value = np.clip(0.97 - 0.5 * np.exp(-TIME / 30) + noise(5, 0.05), 0, 1)
    ahead = forecast(TIME, value, [250.0, 400.0], bounds=(0.0, 1.0))
    for line in (ahead.mean_S, ahead.low_S, ahead.high_S, ahead.mean_low_S, ahead.mean_high_S):
        assert float(line.min()) >= 0
        assert float(line.max()) <= 1
    assert ahead.low_S[0] > 0.7


@each_case("seed", [1, 2])
def test_a_law_that_starts_beyond_the_range_of_the_metric_is_left_out(seed: int) -> None:
    """Without a range it stays, and so does one whose start lies within."""
    time, rows = np.arange(1, 41) * 5.0, np.r_[0.1, 0.62, 0.84, np.full(37, 0.88)]
    value = rows + np.random.default_rng(seed).normal(0, 0.03, 40)
    free = fit(time, value, window=5, healthy="up")
    assert (free.law, free.parameters["start"].high < -0.1) == ("exponential", True)
    held = fit(time, value, window=5, healthy="up", bounds=(0.0, 1.0))
    assert held.parameters["start"].covers(0.1)
    assert held.parameters["start"].low == held.low_T.min(initial=0.0) == 0.0
    assert free.law not in [candidate.law for candidate in held.candidates]
    wide = fit(time, value, window=5, healthy="up", bounds=(-2.0, 2.0))
    assert wide.parameters == free.parameters
    alone = fit(time, value, window=5, law="exponential", bounds=(0.0, 1.0))
    assert alone.parameters["start"].high < -0.1  # as it was asked for


def test_the_range_of_a_metric_ends_its_intervals_and_opens_no_plateau() -> None:
    """An interval that the range cuts to less than half of the change is an answer, a wider one is
    none. These are cut to a fifth, a third and nine tenths, far from where rounding decides.
    """
    for seed, held_status in ((13, "converged"), (1, "converged"), (12, "not_identifiable")):
        rise = 0.2 + 0.9 * (1 - np.exp(-TIME[:60] / 60)) + noise(seed)[:60]
        free, held = (fit(TIME[:60], rise, bounds=bounds) for bounds in (None, (0.0, 1.0)))
        assert (free.status, held.status) == ("not_identifiable", held_status)
        assert free.parameters["plateau"].high > 2
        assert held.parameters["plateau"].high == 1.0
        seen = float(np.ptp(held.curve_T))
        assert (held.parameters["plateau"].width < seen / 2) is (held_status == "converged")


def test_residuals_are_what_the_curve_leaves_within_the_range_of_the_metric() -> None:
    """The curve of an oscillator goes past rows that end their rise at 1."""
    rise = np.r_[np.linspace(0.3, 0.95, 10), np.ones(10)]
    free, held = (
        fit(TIME[:20], rise, law="oscillator", bounds=bounds) for bounds in (None, (0.0, 1.0))
    )
    assert float(free.curve_T.max()) > 1
    assert float(max(held.curve_T.max(), held.high_T.max())) == 1
    assert np.array_equal(held.residual_T, held.value_T - held.curve_T)


@each_case("bounds", [None, (0.0, 1.0)])
@each_case("seed", range(2))
def test_a_steady_rise_leaves_its_plateau_open(seed: int, bounds: tuple[float, float]) -> None:
    """No law is left out for its plateau, which no row can tell: a constant explains nothing."""
    time = TIME[:100]
    for value in (0.1 + 0.008 * time + noise(seed, 0.01)[:100], drawn_shares(seed)):
        result = fit(time, value, healthy="up", bounds=bounds)
        assert (result.status, result.law) != ("non_stationary", "constant")
        assert result.message.startswith("not identifiable yet: the rows do not settle the plateau")
        assert result.r_squared > 0.9
        assert len(result.candidates) == 6


def drawn_shares(seed: int) -> np.ndarray:
    """Shares of 256 right answers, whose chance rises by a straight line."""
    return np.random.default_rng(seed).binomial(256, np.linspace(0.1, 0.9, 100)) / 256


def test_a_plateau_wholly_beyond_the_range_of_the_metric_is_open() -> None:
    """Without a range the same rows settle it."""
    rise = 0.2 + 1 - np.exp(-TIME[:90] / 60) + noise(1, 0.002)[:90]
    free, held = (fit(TIME[:90], rise, bounds=bounds) for bounds in (None, (0.0, 1.0)))
    assert (free.status, held.status) == ("converged", "not_identifiable")
    assert held.parameters["plateau"].low > 1.1
    assert "do not settle the plateau" in held.message


PUBLIC = {
    "trl/qwen25_7b_exp2_adabalance_seed42.log": "collapsed",
    "trl/qwen35_9b_rho0.70_seed44.step_logs.json": "collapsed",
    "sweeps/qwen25_7b_rho_sweep/rho0.10_seed43.log": "collapsed",
    "sweeps/qwen25_7b_rho_sweep/rho0.30_seed42.log": "collapsed",
    "sweeps/qwen25_7b_rho_sweep/rho1.00_seed42.log": "collapsed",
    "trl/qwen25_7b_exp2_best_static_rho3.0_seed42.log": "",
    "trl/qwen25_7b_exp2_vanilla_rho1.0_seed42.log": "",
    "sweeps/qwen25_7b_rho_sweep/rho0.50_seed42.log": "",
    "sweeps/qwen25_7b_rho_sweep/rho0.50_seed44.log": "",
    "sweeps/qwen25_7b_rho_sweep/rho3.00_seed42.log": "",
    "sweeps/cs336_shibuki/grpo_baselines/reinforce_with_baseline.metrics.jsonl": "",
}


@pytest.mark.thinned(3)
@pytest.mark.parametrize(("path", "fate"), PUBLIC.items())
def test_public_runs_are_called_what_they_are(path: str, fate: str, shared_data: Path) -> None:
    """Those that collapsed say so; those that ended healthy do not."""
    series = metric_series(run_record(shared_data / path), "reward")
    result = fit(
        series.time_T,
        series.value_T,
        variance_T=series.variance_T,
        window=series.window,
        smoothing=1,
        healthy="up",
    )
    assert (result.outcome is FitOutcome.COLLAPSED) == (fate == "collapsed"), result.message


@pytest.mark.parametrize(("end", "since"), [(1.1, math.nan), (0.9, 20.0)])
def test_a_fall_by_half_of_the_height_is_one(end: float, since: float) -> None:
    """Twenty rows of 2 and ten below: 0.9 lost is less than half of 2, 1.1 is more; the
    first low row is 20.
    """
    fall = fall_from_height(observe(np.arange(30.0), np.r_[np.full(20, 2.0), np.full(10, end)]))
    assert fall == pytest.approx(since, nan_ok=True)


def law_with(name: str, aicc: float) -> SimpleNamespace:
    """A law's fit of which the sentence asks for its name, criterion and white noise."""
    noise = SimpleNamespace(best_shape=SimpleNamespace(neighbour=0.0))
    return SimpleNamespace(law=SimpleNamespace(name=name), aicc=aicc, noise=noise)


@each_case(
    ("others", "said"),
    [
        ([], ""),
        ([("logistic", 2.1)], ""),
        ([("logistic", 1.9)], "these laws fit about as well: logistic curve"),
        (
            [("logistic", 1.9), ("power_law", -1.0), ("oscillator", 5.0)],
            "these laws fit about as well: logistic curve, power law",
        ),
    ],
)
def test_the_laws_that_fit_as_well_are_those_within_two(
    others: list[tuple[str, float]], said: str
) -> None:
    fits = [law_with("exponential", 0.0), *(law_with(*other) for other in others)]
    raw: Any = SimpleNamespace(smoothing=1)
    assert list(_notes(raw, fits)) == ([said] if said else [])  # type: ignore[arg-type]
