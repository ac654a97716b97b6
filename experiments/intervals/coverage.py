"""Coverage of the 95 % intervals on simulated oscillators: three curves, two lengths, three kinds of noise.

    python experiments/intervals/coverage.py [--replicates 2000] [--processes 2]

prints the table of docs/theory/fit.md and writes coverage.csv beside this file.
"""

from __future__ import annotations

import argparse
import csv
import math
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from groupwise.dynamics.fit import fit
from groupwise.simulate.runs import Curve, simulated_curve

CURVES = {
    "underdamped": Curve(0.75, 0.2, 2 * math.pi * 1.25, 0.4),
    "critical": Curve(0.75, 0.2, 9.0, 1.0),
    "overdamped": Curve(0.75, 0.2, 12.0, 2.0),
}
NOISES = {"white": (0.0, 1), "AR(1) .8": (0.8, 1), "smoothed 20": (0.0, 20)}
LENGTHS = (50, 500)
DEVIATION = 0.02
NAMES = ("plateau", "start", "natural_frequency", "damping_ratio")


def one_cell(curve_name: str, noise_name: str, n: int, replicates: int, seed: int) -> dict[str, object]:
    """Coverage of each parameter in one cell, and how often the fit says "not identifiable"."""
    curve, (correlation, smoothing) = CURVES[curve_name], NOISES[noise_name]
    rng = np.random.default_rng([seed, n, list(CURVES).index(curve_name), list(NOISES).index(noise_name)])
    truth = dict(zip(NAMES, (curve.plateau, curve.start, curve.turns / (n + smoothing - 2), curve.damping_ratio), strict=True))
    hits, clear_hits, open_status = dict.fromkeys(NAMES, 0), dict.fromkeys(NAMES, 0), 0
    for _ in range(replicates):
        value = simulated_curve(rng, curve, n, deviation=DEVIATION, correlation=correlation, smoothing=smoothing)
        result = fit(np.arange(float(n)) + smoothing - 1, value, law="oscillator")
        unclear = result.status != "converged"
        open_status += unclear
        for name in NAMES:
            hit = name in result.parameters and result.parameters[name].covers(truth[name])
            hits[name] += hit
            clear_hits[name] += hit and not unclear
    clear = replicates - open_status
    row: dict[str, object] = {"noise": noise_name, "n": n, "curve": curve_name, "replicates": replicates}
    row |= {name: hits[name] / replicates for name in NAMES}
    row |= {f"{name}_if_identified": clear_hits[name] / clear if clear else float("nan") for name in NAMES}
    return row | {"not_identifiable": open_status / replicates}


def show(rows: list[dict[str, object]]) -> None:
    """Print the table in Markdown."""
    print("| noise | n | curve | plateau | start | natural frequency | damping ratio | not identifiable |")
    print("|---|---|---|---|---|---|---|---|")
    for row in rows:
        cells = []
        for name in NAMES:
            share, count = float(str(row[name])), int(str(row["replicates"]))
            cells.append(f"{share:.3f} ± {math.sqrt(max(share * (1 - share), 1e-9) / count):.3f}")
        print(f"| {row['noise']} | {row['n']} | {row['curve']} | {' | '.join(cells)} | {float(str(row['not_identifiable'])):.3f} |")


def main() -> None:
    """Run all cells in two processes and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicates", type=int, default=2000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=2026)
    arguments = parser.parse_args()
    cells = [(curve, noise, n) for noise in NOISES for n in LENGTHS for curve in CURVES]
    with ProcessPoolExecutor(arguments.processes) as pool:
        futures = [pool.submit(one_cell, *cell, arguments.replicates, arguments.seed) for cell in cells]
        rows = [future.result() for future in futures]
    with (Path(__file__).parent / "coverage.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    show(rows)


if __name__ == "__main__":
    main()
