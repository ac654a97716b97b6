r"""Simulated reward curves with a known mean and a known noise, and simulated training runs as records.

The mean is stepped by the exact propagator of the oscillator's differential equation, not by any closed form of
`dynamics.laws`: judge and judged share no code. What a run logs is drawn in `training`; nothing is fitted or judged here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.linalg import expm
from scipy.signal import lfilter

from groupwise.errors import InvalidArgumentError
from groupwise.record.run import Meaning, RunConfig, RunRecord, steps_table
from groupwise.simulate.training import CONTROLS, SimulatedLog, simulated_log

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Curve:
    """A damped oscillator in units of the log's length, so that one set serves every length."""

    plateau: float  # level approached, reward units
    start: float  # level at the first update
    turns: float  # natural frequency times the length of the log, radians
    damping_ratio: float  # zeta


def oscillator_mean(curve: Curve, n: int) -> FloatArray:
    r"""Exact mean of the oscillator at n evenly spaced times over its whole length.

    $(x, v)' = A (x, v)$, $A = [[0, 1], [-\omega^2, -2\zeta\omega]]$, stepped by $e^{A\,dt}$.

    Source: the differential equation of 2606.30789.
    """
    if n < 2:
        raise InvalidArgumentError(f"a simulated run needs at least 2 times; got {n}")
    dt = 1 / (n - 1)
    step = expm(dt * np.array([[0.0, 1.0], [-(curve.turns**2), -2 * curve.damping_ratio * curve.turns]]))
    state = np.array([curve.start - curve.plateau, 0.0])
    offsets = np.empty(n)
    for i in range(n):
        offsets[i] = state[0]
        state = step @ state
    return np.asarray(curve.plateau + offsets)


def autoregressive_noise(rng: np.random.Generator, n: int, *, deviation: float, correlation: float = 0.0) -> FloatArray:
    """Stationary AR(1) noise."""
    if not 0 <= correlation < 1:
        raise InvalidArgumentError(f"a correlation lies in [0, 1); got {correlation}")
    shocks = rng.normal(size=n) * deviation
    shocks[1:] *= np.sqrt(1 - correlation**2)
    return np.asarray(lfilter([1.0], [1.0, -correlation], shocks))


def simulated_curve(
    rng: np.random.Generator, curve: Curve, n: int, *, deviation: float, correlation: float = 0.0, smoothing: int = 1
) -> FloatArray:
    """One observed curve: mean plus noise, both averaged over the last `smoothing` updates where asked."""
    raw = n + smoothing - 1
    series = oscillator_mean(curve, raw) + autoregressive_noise(rng, raw, deviation=deviation, correlation=correlation)
    return np.convolve(series, np.full(smoothing, 1 / smoothing), "valid") if smoothing > 1 else series


_MEANINGS = {
    "reward": "reward",
    "reward_std": "reward_std_within_group",
    "frac_reward_zero_std": "dead_group_share",
    "entropy": "entropy",
    "grad_norm": "gradient_norm",
    "completions/mean_length": "completion_length",
    "completions/clipped_ratio": "truncated_share",
    "learning_rate": "learning_rate",
    "eval_reward": "eval/reward",
}


def simulated_run(kind: str, rng: np.random.Generator, *, steps: int | None = None, rollouts: bool = False) -> tuple[RunRecord, int | None]:
    """Simulate one training run, healthy or with a failure, as a record."""
    log = simulated_log(kind, rng, steps=steps)
    record = record_of(log, log.columns)
    return (replace(record, rollouts=rollouts_of(log)) if rollouts else record), log.onset


def rollouts_of(log: SimulatedLog) -> pl.DataFrame:
    """Return the completions of a simulated log with their rewards: of each group the right ones first."""
    steps, prompts = log.right_TB.shape
    reward = np.arange(log.group_size) < log.right_TB[:, :, None]
    return pl.DataFrame(
        {
            "step": np.repeat(np.arange(1, steps + 1, dtype=np.int64), prompts * log.group_size),
            "prompt_id": np.tile(np.repeat(np.arange(prompts, dtype=np.int64), log.group_size), steps),
            "reward": reward.astype(np.float64).ravel(),
        }
    )


def record_of(log: SimulatedLog, columns: Mapping[str, FloatArray]) -> RunRecord:
    """Put columns of a simulated log into a record."""
    config = RunConfig().with_settings(
        {"group_size": log.group_size, "prompts_per_step": log.prompts, "smoothing": log.smoothed}, "simulated"
    )
    table = steps_table(log.step_R.tolist(), columns, window=np.full(len(log.step_R), float(log.window)))
    meanings = tuple(Meaning(key, quantity, f"simulated {quantity}") for key, quantity in _MEANINGS.items() if key in columns)
    return RunRecord(log.kind, table, config=config, meanings=meanings)


def control_run(control: str, kind: str, rng: np.random.Generator) -> RunRecord:
    """Simulate a negative control: a run whose order, or whose values, carry no failure any more."""
    if control not in CONTROLS:
        raise InvalidArgumentError(f"expected a control, got {control[:60]!r}: use one of {', '.join(CONTROLS)}")
    log = simulated_log(kind, rng)
    n = len(log.step_R)
    order, signs = rng.permutation(n), rng.choice([-1.0, 1.0], n)
    columns = {}
    for key, value in log.columns.items():
        if control == "time_shuffled":
            columns[key] = value[order]
        elif control == "sign_randomised":
            centre = np.nanmean(value)
            columns[key] = np.clip(centre + signs * np.abs(value - centre), np.nanmin(value), np.nanmax(value))
        else:
            columns[key] = np.nanmean(value) * (1 + 0.1 * np.tanh(2 * np.arange(n) / n))
    return record_of(log, columns)
