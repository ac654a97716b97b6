"""A point of the law of weighted chi-squares: one logarithm for eight factors beside one for each, in turns in one process.

    python benchmarks/mixture_time.py

prints processor milliseconds a point, least, median and largest of 21 rounds, and the ratio of the medians.
"""

from __future__ import annotations

import time
from unittest import mock

import numpy as np

from groupwise.theory import chi_square_mixture
from groupwise.theory.chi_square_mixture import ChiSquareMixture

ROUNDS, POINTS = 21, 20


def each(shift: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """One logarithm for each factor, as it was."""
    return np.asarray(np.log(1 - np.multiply.outer(shift, slope)).sum(axis=1))


def milliseconds(law: ChiSquareMixture, point: float) -> float:
    """Of processor time a point."""
    began = time.process_time()
    for _ in range(POINTS):
        law.cdf(point)
    return 1e3 * (time.process_time() - began) / POINTS


def main() -> None:
    """Measure and print."""
    print("| weights | each factor: least, median, largest (ms) | eight at once (ms) | ratio of medians |")
    print("|---|---|---|---|")
    for count in (5, 30, 100, 300):
        law = ChiSquareMixture(np.power(0.9, np.arange(count, dtype=np.float64)))
        point = 1.5 * law.mean()
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(ROUNDS):
            with mock.patch.object(chi_square_mixture, "_log_product", each):
                times[0].append(milliseconds(law, point))
            times[1].append(milliseconds(law, point))
        shown = [f"{min(one):.3f}, {np.median(one):.3f}, {max(one):.3f}" for one in times]
        print(f"| {count} | {shown[0]} | {shown[1]} | {np.median(times[0]) / np.median(times[1]):.2f} |")


if __name__ == "__main__":
    main()
