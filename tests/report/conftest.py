"""Runs and results made by hand, so that a page can be tested without a fit.

Nothing is asserted here.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from groupwise.analysis.fitted import Clock, Fitted, ForecastRow, Outlook
from groupwise.curves.results import Candidate, FitResult, FitStatus, Forecast, Noise
from groupwise.intervals import Interval
from groupwise.record.run import Meaning, RunConfig, RunRecord, Source
from groupwise.record.table import rollouts_table, steps_table
from groupwise.series.metric import metric_series

KEYS = {
    "reward": "reward",
    "rewards/correct/mean": "reward/correct",
    "rewards/shape/mean": "reward/shape",
    "eval_reward": "eval/reward",
    "frac_reward_zero_std": "dead_group_share",
    "completions/mean_length": "completion_length",
    "entropy": "entropy",
    "kl": "kl",
    "grad_norm": "gradient_norm",
}


def make_record(size: int = 300, *, name: str = "made", rollouts: bool = True, seed: int = 0) -> RunRecord:
    """A run that learns from 0.2 to 0.75, four updates a step, with everything logged."""
    rng = np.random.default_rng(seed)
    t = np.arange(size)
    p = 0.75 - 0.55 * np.exp(-t / (0.2 * size))
    right, shape = rng.binomial(64, p) / 64, rng.binomial(64, 0.95, size) / 64
    columns = {
        "reward": right + shape,
        "rewards/correct/mean": right,
        "rewards/shape/mean": shape,
        "eval_reward": np.where(t % 25 == 0, p - 0.05, np.nan),
        "frac_reward_zero_std": rng.binomial(8, p**8 + (1 - p) ** 8) / 8,
        "completions/mean_length": 200 + rng.normal(0, 10, size),
        "entropy": 1 - 0.5 * t / size + rng.normal(0, 0.02, size),
        "kl": np.abs(rng.normal(0, 1e-3, size)),
        "grad_norm": np.where(t == size // 2, 50.0, np.abs(rng.normal(1, 0.2, size))),
    }
    rows = [
        {
            "step": int(step) + 1,
            "prompt_id": group,
            "prompt": f"p{group}",
            "reward": float(rng.random() < p[step]) + float(rng.random() < 0.95),
        }
        for step in range(0, size, 10)
        for group in range(4)
        for _ in range(8)
    ]
    return RunRecord(
        name,
        steps_table(t + 1, columns, optimizer_updates=4.0 * (t + 1), tokens=1e4 * (t + 1), seconds=30.0 * (t + 1)),
        rollouts_table(rows) if rollouts else None,
        RunConfig().with_settings({"group_size": 8, "learning_rate": 1e-6}, "README.md"),
        tuple(Meaning(key, quantity, f"what {key} is") for key, quantity in KEYS.items()),
        (Source("runs/made/trainer_state.json", "trl", 12_345, size, "newest of 3 checkpoints"),),
        ("2 rows of a restarted run were superseded",),
    )


@pytest.fixture(scope="session")
def made_record() -> Callable[..., RunRecord]:
    """`make_record`."""
    return make_record


def make_fitted(
    status: FitStatus = "converged",
    *,
    law: str = "exponential",
    message: str = "",
    plateau: tuple[float, float, float] = (0.8, 0.75, 0.85),
    start: float = 0.2,
    time_to_95: tuple[float, float, float] = (500.0, 450.0, 600.0),
    change_time: float = math.nan,
    rivals: dict[str, float] | None = None,
    overshoot: float = 0.0,
    metric: str = "reward",
    quantity: str = "reward",
) -> Fitted:
    """A fit of 100 steps of four updates, with the findings asked for."""
    size = 100
    value = np.linspace(start, 0.5, size)
    record = RunRecord(
        "made",
        steps_table(range(1, size + 1), {metric: value}, optimizer_updates=4.0 * np.arange(size)),
        meanings=(Meaning(metric, quantity, ""),),
    )
    series = metric_series(record, metric)
    weights = {law: 1 - sum((rivals or {}).values())} | (rivals or {})
    candidates = tuple(Candidate(name, -100.0, weight, 0.9) for name, weight in weights.items())
    parameters = {
        "plateau": Interval(*plateau),
        "start": Interval(start, start - 0.01, start + 0.01),
        "overshoot": Interval(overshoot, 0.0, 1.0),
    }
    noise = Noise(1e-3, 1e-4, 0.5, 0.1)
    time = series.time_T
    fit = FitResult(
        law,
        status,
        message,
        parameters,
        size,
        0.9,
        math.nan,
        candidates,
        noise,
        time,
        value,
        value,
        value - 0.01,
        value + 0.01,
        0 * value,
        change_time,
    )
    at = np.array([500.0])
    done = Interval(*time_to_95, 0.9)
    result = Forecast(
        status,
        "",
        0.9,
        at,
        at * 0 + 0.6,
        at * 0 + 0.55,
        at * 0 + 0.65,
        at * 0 + 0.4,
        at * 0 + 0.8,
        Interval(*plateau, 0.9),
        done,
        Interval(0.1, 0.05, 0.2, 0.9),
    )
    clock = Clock(series.step_T.astype(float), time)
    row = ForecastRow(150.0, 0.6, 0.55, 0.65, 0.4, 0.8)
    outlook = Outlook(result, (row,), (row, row), clock.in_steps(done), math.nan, math.nan, 100.0, 150.0)
    return Fitted(metric, quantity, series, clock, fit, (), outlook)


@pytest.fixture(scope="session")
def made_fitted() -> Callable[..., Fitted]:
    """`make_fitted`."""
    return make_fitted
