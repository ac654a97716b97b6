"""Error and time of the law of weighted sums of chi-squares, case by case, beside momentchi2 and
Imhof's integral by quadrature.

    python lab/experiments/u_statistic/mixture_accuracy.py   (seconds)

The truth is tests/golden/chi_square.json: 40-digit arithmetic by methods that share nothing with
the library's. Times are the median of several calls. The peer is shown where it is installed (`pip
install momentchi2`). It measures no quantile: the golden tests do.
"""

from __future__ import annotations

import importlib.util
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from gap_world import options, print_table, write_csv
from worlds.chi_square_mixture import ChiSquareMixture

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden" / "chi_square.json"
SMALLEST_TAIL = 1e-7  # the claim goes down to 1e-6


def law_of(case: dict[str, Any]) -> ChiSquareMixture:
    """The law of a golden case."""
    if "harmonic" in case:
        return ChiSquareMixture(1 / np.arange(1.0, case["harmonic"] + 1))
    return ChiSquareMixture(case["weight"], case["degrees"], case["noncentrality"])


def milliseconds(call: Callable[[], Any], repeats: int) -> float:
    """Median time of a call."""
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return 1e3 * float(np.median(times))


def row_of(case: dict[str, Any], repeats: int) -> dict[str, Any]:
    """Errors of both tails, the stated bound, and the time of 1,000 points."""
    law = law_of(case)
    points, upper = (
        np.array(case["points"], dtype=float),
        np.array(case["upper_tails"], dtype=float),
    )
    told = (np.minimum(upper, 1 - upper) > SMALLEST_TAIL) | (upper > 0.5)
    found = law.sf_with_error(points)
    error = np.abs(np.stack([found.value - upper, law.cdf(points) - (1 - upper)]))
    span = np.linspace(float(law.ppf(1e-6)), float(law.isf(1e-6)), 1000)
    row: dict[str, Any] = {
        "case": case["name"],
        "weights": len(law.weight_K),
        "smallest_tail": float(upper.min()),
    }
    row |= {
        "error": float(error[:, told].max()),
        "error_all": float(error.max()),
        "bound": float(found.error.max()),
    }
    return row | {"milliseconds": milliseconds(lambda: law.sf(span), repeats) / 1000}


def imhof(weight: np.ndarray, point: float) -> float:
    """Imhof (1961), equation 3.2, by scipy's adaptive quadrature."""
    from scipy.integrate import quad

    def integrand(u: float) -> float:
        angle = 0.5 * np.arctan(weight * u).sum() - 0.5 * point * u
        return float(np.sin(angle) / (u * np.exp(0.25 * np.log1p((weight * u) ** 2).sum())))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return 0.5 + float(quad(integrand, 0, np.inf, limit=1000, epsabs=1e-10)[0]) / np.pi


def peers(repeats: int) -> list[list[str]]:
    """One point of 100 geometric weights, far out: value, relative error and time of each."""
    weight, point = 0.9 ** np.arange(100), 33.0
    case = next(
        case for case in json.loads(GOLDEN.read_text())["cases"] if case["name"] == "geometric"
    )
    truth = float(case["upper_tails"][case["points"].index(33)])
    law = ChiSquareMixture(weight)
    points = np.linspace(9, 39, 1000)
    ways: dict[str, tuple[Callable[[], float], float]] = {
        "groupwise, one point": (
            lambda: float(law.sf(point)),
            milliseconds(lambda: law.sf(point), repeats),
        ),
        "groupwise, of 1,000 points": (
            lambda: float(law.sf(point)),
            milliseconds(lambda: law.sf(points), repeats) / 1000,
        ),
        "Imhof by quadrature": (
            lambda: imhof(weight, point),
            milliseconds(lambda: imhof(weight, point), 3),
        ),
    }
    if importlib.util.find_spec("momentchi2"):
        import momentchi2

        for name in ("sw", "hbe", "wf"):
            call = getattr(momentchi2, name)
            ways[f"momentchi2 {name}"] = (
                lambda call=call: 1 - float(call(coeff=weight, x=point)),
                milliseconds(lambda call=call: call(coeff=weight, x=point), repeats),
            )
    return [
        [name, f"{abs(value() / truth - 1):.1e}", f"{cost:.4f}"]
        for name, (value, cost) in ways.items()
    ]


def main() -> None:
    """Both tables."""
    chosen = options(__doc__)
    repeats = 1 if chosen.quick else 7
    rows = [row_of(case, repeats) for case in json.loads(GOLDEN.read_text())["cases"]]
    lines = [
        [
            r["case"],
            f"{r['weights']:,}",
            f"{r['smallest_tail']:.1e}",
            f"{r['error']:.1e}",
            f"{r['error_all']:.1e}",
            f"{r['bound']:.1e}",
            f"{r['milliseconds']:.4f}",
        ]
        for r in rows
    ]
    header = (
        "case",
        "distinct weights",
        "smallest tail",
        "error, tails from 1e-7",
        "at all points",
        "stated bound",
        "ms a point of 1,000",
    )
    print_table("Absolute errors against 40-digit arithmetic", header, lines)
    print(
        f"\nLargest error {max(r['error_all'] for r in rows):.1e}; largest stated bound "
        f"{max(r['bound'] for r in rows):.1e}."
    )
    print_table(
        "100 geometric weights, P = 1.26e-5",
        ("way", "relative error", "ms a point"),
        peers(repeats),
    )
    if not chosen.quick:
        write_csv("mixture_accuracy.csv", rows)


if __name__ == "__main__":
    main()
