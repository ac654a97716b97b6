"""Error and time of the law of the final gap, case by case, beside momentchi2 and Imhof's integral
by quadrature.

    python lab/experiments/u_statistic/mixture_accuracy.py   (seconds)

The truth is lab/tests/golden/chi_square.json: 40-digit arithmetic by methods that share nothing
with the library's. Times are the median of several calls. The peer is shown where it is
installed (`pip install momentchi2`). It measures no quantile: the golden tests do.
"""

import importlib.util
import json
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from gap_world import RESULTS, Row, options, print_table

from groupwise_lab.theory.chi_square_mixture import ChiSquareMixture

GOLDEN = Path(__file__).resolve().parents[3] / "lab" / "tests" / "golden" / "chi_square.json"
SMALLEST_TAIL = 1e-7  # the claim goes down to 1e-6


def laws() -> Iterator[tuple[ChiSquareMixture, Row]]:
    """The golden cases with positive weights and whole degrees, each degree a weight of its own; up
    to two hundred of those.
    """
    for case in json.loads(GOLDEN.read_text())["cases"]:
        weight = np.array(case.get("weight", 1 / np.arange(1.0, 1 + case.get("harmonic", 0))))
        degrees = np.broadcast_to(case.get("degrees", 1), weight.shape)
        whole = (np.mod(degrees, 1) == 0).all() and not np.any(case.get("noncentrality", 0))
        if whole and (weight > 0).all() and (case.get("harmonic") or degrees.sum() <= 200):
            yield ChiSquareMixture(np.repeat(weight, degrees.astype(int))), case


def milliseconds(call: Callable[[], Any], repeats: int) -> float:
    """Median time of a call."""
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return 1e3 * np.median(times)


def row_of(law: ChiSquareMixture, case: Row, repeats: int) -> Row:
    """Errors of both tails, and the time of 100 points."""
    points, upper = (
        np.array(case["points"], dtype=float),
        np.array(case["upper_tails"], dtype=float),
    )
    claimed = (np.minimum(upper, 1 - upper) > SMALLEST_TAIL) | (upper > 0.5)
    error = np.abs(np.stack([law.sf(points) - upper, law.cdf(points) - (1 - upper)]))
    span = np.linspace(*law.ppf([1e-6, 1 - 1e-6]), 100)
    return {
        "case": case["name"],
        "weights": len(law.weight_K),
        "smallest_tail": upper.min(),
        "error": error[:, claimed].max(),
        "error_all": error.max(),
        "milliseconds": milliseconds(lambda: law.sf(span), repeats) / 100,
    }


def imhof(weight: np.ndarray, point: float) -> float:
    """Imhof (1961), equation 3.2, by scipy's adaptive quadrature."""
    from scipy.integrate import quad

    def integrand(u: float) -> float:
        angle = 0.5 * np.arctan(weight * u).sum() - 0.5 * point * u
        return float(np.sin(angle) / (u * np.exp(0.25 * np.log1p((weight * u) ** 2).sum())))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return 0.5 + float(quad(integrand, 0, np.inf, limit=1000, epsabs=1e-10)[0]) / np.pi


def peers(repeats: int) -> list[str]:
    """One point of 100 geometric weights, far out: relative error and time of each way."""
    point, law, case = 33.0, *next(pair for pair in laws() if pair[1]["name"] == "geometric")
    truth = float(case["upper_tails"][case["points"].index(33)])
    ways = {
        "groupwise": lambda: float(law.sf(point)),
        "Imhof by quadrature": lambda: imhof(law.weight_K, point),
    }
    if importlib.util.find_spec("momentchi2"):
        import momentchi2

        for name in ("sw", "hbe", "wf"):
            call = getattr(momentchi2, name)
            ways[f"momentchi2 {name}"] = lambda call=call: (
                1 - float(call(coeff=law.weight_K, x=point))
            )
    return [
        f"{name} | {abs(way() / truth - 1):.1e} | {milliseconds(way, repeats):.4f}"
        for name, way in ways.items()
    ]


def main() -> None:
    """Both tables."""
    chosen = options(__doc__)
    repeats = 1 if chosen.quick else 7
    rows = [row_of(*pair, repeats) for pair in laws()]
    print_table(
        "Absolute errors against 40-digit arithmetic",
        "case | weights | smallest tail | error, tails from 1e-7 | at all points | ms a point",
        [
            f"{row['case']} | {row['weights']:,} | {row['smallest_tail']:.1e} | "
            f"{row['error']:.1e} | {row['error_all']:.1e} | {row['milliseconds']:.4f}"
            for row in rows
        ],
    )
    print(f"\nLargest error {max(row['error_all'] for row in rows):.1e}.")
    print_table(
        "100 geometric weights, P = 1.26e-5", "way | relative error | ms a point", peers(repeats)
    )
    if not chosen.quick:
        RESULTS.write("mixture_accuracy", rows)


if __name__ == "__main__":
    main()
