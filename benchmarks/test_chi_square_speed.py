"""Speed and error of the law of weighted sums of chi-squares: beside momentchi2's approximations
and Imhof's integral by quadrature.

    make bench    (or: python -m pytest benchmarks/test_chi_square_speed.py --benchmark-only -o
    addopts=)

Every entry does one job: 100 geometric weights, the upper tail at the points named in its group.
The error against the golden value at the far point (1.26e-5) stands in each entry's extra
information. The peer `momentchi2` is measured where it is installed (`pip install momentchi2`),
else skipped visibly; it knows positive weights only.
"""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from groupwise_lab.theory.chi_square_mixture import ChiSquareMixture

WEIGHT = np.asarray(0.9 ** np.arange(100), dtype=np.float64)
FAR = 33.0
GOLDEN = Path(__file__).resolve().parent.parent / "lab" / "tests" / "golden" / "chi_square.json"


def truth() -> float:
    """The golden value at the far point."""
    case = next(
        case for case in json.loads(GOLDEN.read_text())["cases"] if case["name"] == "geometric"
    )
    return float(case["upper_tails"][case["points"].index(33)])


def imhof(weight: np.ndarray, point: float) -> float:
    """Imhof (1961), equation 3.2, by scipy's adaptive quadrature."""
    from scipy.integrate import quad

    def integrand(u: float) -> float:
        angle = 0.5 * np.arctan(weight * u).sum() - 0.5 * point * u
        return float(math.sin(angle) / (u * np.exp(0.25 * np.log1p((weight * u) ** 2).sum())))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of slow convergence, and goes on
        return 0.5 + float(quad(integrand, 0, np.inf, limit=1000, epsabs=1e-10)[0]) / math.pi


def note(benchmark: BenchmarkFixture, points: int, value: float) -> None:
    """Put time a point and relative error beside the entry."""
    benchmark.extra_info["relative error at 1.26e-5"] = abs(value / truth() - 1)
    stats = getattr(benchmark, "stats", None)
    if stats is not None:
        benchmark.extra_info["milliseconds a point"] = 1e3 * float(stats.stats.median) / points


@pytest.mark.benchmark(group="100 weights, 1,000 points from the median to 1e-6")
def test_a_thousand_points(benchmark: BenchmarkFixture) -> None:
    law, points = ChiSquareMixture(WEIGHT), np.linspace(9, 39, 1000)
    benchmark(lambda: law.sf(points))
    note(benchmark, 1000, float(law.sf(FAR)))


@pytest.mark.benchmark(group="100 weights, 1,000 quantiles")
def test_a_thousand_quantiles(benchmark: BenchmarkFixture) -> None:
    law, shares = ChiSquareMixture(WEIGHT), np.linspace(0.001, 0.999, 1000)
    benchmark(lambda: law.ppf(shares))
    note(benchmark, 1000, float(law.sf(FAR)))


@pytest.mark.benchmark(group="100 weights, one point")
def test_one_point(benchmark: BenchmarkFixture) -> None:
    law = ChiSquareMixture(WEIGHT)
    probability = benchmark(lambda: law.sf(FAR))
    note(benchmark, 1, float(probability))


@pytest.mark.benchmark(group="100 weights, one point")
def test_one_point_by_imhofs_integral(benchmark: BenchmarkFixture) -> None:
    probability = benchmark.pedantic(lambda: imhof(WEIGHT, FAR), rounds=3, iterations=1)  # type: ignore[no-untyped-call]
    note(benchmark, 1, probability)


@pytest.mark.benchmark(group="100 weights, one point")
@pytest.mark.parametrize("method", ["sw", "hbe", "wf"])
def test_one_point_by_momentchi2(benchmark: BenchmarkFixture, method: str) -> None:
    peer = pytest.importorskip("momentchi2", reason="momentchi2 is not installed")
    probability = benchmark(lambda: 1 - float(getattr(peer, method)(coeff=WEIGHT, x=FAR)))
    note(benchmark, 1, probability)


@pytest.mark.benchmark(group="many weights, 10 points")
@pytest.mark.parametrize("count", [10_000, 100_000])
def test_many_weights(benchmark: BenchmarkFixture, count: int) -> None:
    law = ChiSquareMixture(np.asarray(1 / np.arange(1.0, count + 1), dtype=np.float64))
    points = law.mean() + np.linspace(0, 8, 10) * law.var() ** 0.5
    assert benchmark(lambda: law.sf(points)).shape == (10,)
