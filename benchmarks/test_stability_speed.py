"""Speed of the stability map: 200 learning rates by 200 intervals, beside the spectral radius of
every cell's own matrix.

    make bench    (or: python -m pytest benchmarks/test_stability_speed.py --benchmark-only -s -o
    addopts=)

The yardstick is what one would write without a bisection; it is timed on a twentieth of the cells.
"""

from __future__ import annotations

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from groupwise.edge.mode import period_matrix, threshold

SIDE, MOST_SECONDS = 200, 1.0
RATES, INTERVALS = np.geomspace(1e-4, 10, SIDE), np.arange(1, SIDE + 1)
LAGS = ["none", "fixed", "refresh", "async"]


@pytest.mark.benchmark(group="stability of 200 x 200 settings", min_rounds=5)
@pytest.mark.parametrize("lag", LAGS)
def test_map(benchmark: BenchmarkFixture, lag: str) -> None:
    margin_ER = benchmark(lambda: threshold(lag, 0.9, INTERVALS) / 0.2 / RATES[:, None])
    assert margin_ER.shape == (SIDE, SIDE)
    if benchmark.stats is not None:
        seconds = float(benchmark.stats.stats.median)
        print(f"\nstability map {SIDE} x {SIDE}, {lag}: {1e3 * seconds:.2f} ms")
        assert seconds <= MOST_SECONDS


@pytest.mark.benchmark(group="spectral radii of a twentieth of the settings", min_rounds=1)
@pytest.mark.parametrize("lag", ["refresh", "async"])
def test_one_matrix_a_cell(benchmark: BenchmarkFixture, lag: str) -> None:
    """The yardstick; it must agree with the map."""
    rates, intervals = RATES[::5], INTERVALS[::4]

    def radii() -> list[bool]:
        return [
            bool(np.abs(np.linalg.eigvals(period_matrix(lag, 0.2 * e, 0.9, int(r)))).max() < 1)
            for e in rates
            for r in intervals
        ]

    stable = benchmark.pedantic(radii, rounds=1, iterations=1)  # type: ignore[no-untyped-call]
    limit_R = threshold(lag, 0.9, intervals) / 0.2
    assert stable == (rates[:, None] < limit_R).ravel().tolist()
