"""Speed of the oscillator's fit with intervals, beside lmfit's fit and `conf_interval` on the
same data, and of a forecast.
"""

from __future__ import annotations

import math
from typing import Any

import lmfit
import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from groupwise.forecasting.fit import fit
from groupwise.forecasting.forecast import forecast
from groupwise.forecasting.laws import law_by_name
from groupwise_lab.worlds.runs import autoregressive_noise


def series(n: int) -> tuple[np.ndarray, np.ndarray]:
    """One curve with AR(1) .8 noise: the harder of the usual cases."""
    time, noise = np.arange(float(n)), autoregressive_noise(np.random.default_rng(n), n, 0.02, 0.8)
    shape = {"natural_frequency": 9 / n, "damping_ratio": 0.7}
    return time, law_by_name("oscillator").curve(time, plateau=0.75, start=0.2, **shape) + noise


def by_lmfit(time: np.ndarray, value: np.ndarray) -> Any:
    """Least squares from a good start, then the profile intervals of all four parameters."""
    law = law_by_name("oscillator")
    model = lmfit.Model(
        lambda t, plateau, start, omega, zeta: law.curve(
            t,
            plateau=plateau,
            start=start,
            natural_frequency=abs(omega) + 1e-12,
            damping_ratio=abs(zeta) + 1e-12,
        )
    )
    fitted = model.fit(value, t=time, plateau=0.7, start=0.25, omega=9.5 / len(time), zeta=0.8)
    return lmfit.conf_interval(fitted, fitted, sigmas=[2])


@pytest.mark.parametrize("n", [500, 10_000])
@pytest.mark.benchmark(group="oscillator with intervals")
def test_groupwise(benchmark: BenchmarkFixture, n: int) -> None:
    time, value = series(n)
    result = benchmark(lambda: fit(time, value, law="oscillator", smoothing=1))
    assert result.parameters["plateau"].covers(0.75)


@pytest.mark.parametrize("n", [500, 10_000])
@pytest.mark.benchmark(group="all six laws, ranked, with the verdict")
def test_groupwise_all_laws(benchmark: BenchmarkFixture, n: int) -> None:
    time, value = series(n)
    assert benchmark(lambda: fit(time, value)).candidates


@pytest.mark.parametrize("n", [500, 10_000])
@pytest.mark.benchmark(group="forecast of three windows")
def test_groupwise_forecast(benchmark: BenchmarkFixture, n: int) -> None:
    time, value = series(n)
    assert (
        benchmark(
            lambda: forecast(time, value, n * np.array([1.2, 1.5, 2.0]), bounds=(0.0, 1.0))
        ).status
        == "forecast"
    )


@pytest.mark.parametrize("n", [500, 10_000])
@pytest.mark.benchmark(group="oscillator with intervals")
def test_lmfit(benchmark: BenchmarkFixture, n: int) -> None:
    """The peer."""
    time, value = series(n)
    intervals = benchmark.pedantic(
        lambda: by_lmfit(time, value), rounds=5 if n == 500 else 2, iterations=1
    )  # type: ignore[no-untyped-call]
    assert math.isfinite(intervals["plateau"][0][1])
