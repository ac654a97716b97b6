"""Coverage of the 95 % intervals on simulated oscillators: three curves, two lengths, three kinds of noise.

    python experiments/intervals/coverage.py [--replicates 2000] [--processes 2] [--plug-in]

prints the table of docs/theory/fit.md and writes coverage.csv beside this file. `--plug-in` takes the likeliest noise as
known, as most programs do: a negative control, which writes nothing.
"""

from __future__ import annotations

import argparse
import csv
import math
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from scipy.special import stdtrit

from groupwise.dynamics.fit import fit
from groupwise.dynamics.law_fit import fit_law, intervals_of
from groupwise.dynamics.laws import law_by_name
from groupwise.dynamics.observations import observe
from groupwise.intervals import Interval
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


def one_cell(curve_name: str, noise_name: str, n: int, replicates: int, seed: int, plug_in: bool = False) -> dict[str, object]:  # noqa: FBT001, FBT002
    """Coverage of each parameter in one cell, and how often the fit says "not identifiable"."""
    curve, (correlation, smoothing) = CURVES[curve_name], NOISES[noise_name]
    rng = np.random.default_rng([seed, n, list(CURVES).index(curve_name), list(NOISES).index(noise_name)])
    truth = dict(zip(NAMES, (curve.plateau, curve.start, curve.turns / (n + smoothing - 2), curve.damping_ratio), strict=True))
    hits, clear_hits, open_status = dict.fromkeys(NAMES, 0), dict.fromkeys(NAMES, 0), 0
    for _ in range(replicates):
        value = simulated_curve(rng, curve, n, deviation=DEVIATION, correlation=correlation, smoothing=smoothing)
        time = np.arange(float(n)) + smoothing - 1
        if plug_in:
            parameters, unclear = plug_in_intervals(time, value), False
        else:
            result = fit(time, value, law="oscillator")
            parameters, unclear = dict(result.parameters), result.status != "converged"
        open_status += unclear
        for name in NAMES:
            hit = name in parameters and parameters[name].covers(truth[name])
            hits[name] += hit
            clear_hits[name] += hit and not unclear
    clear = replicates - open_status
    row: dict[str, object] = {"noise": noise_name, "n": n, "curve": curve_name, "replicates": replicates}
    row |= {name: hits[name] / replicates for name in NAMES}
    row |= {f"{name}_if_identified": clear_hits[name] / clear if clear else float("nan") for name in NAMES}
    return row | {"not_identifiable": open_status / replicates}


def plug_in_intervals(time_T: np.ndarray, value_T: np.ndarray) -> dict[str, Interval]:
    """Intervals with Student's quantile, as if the likeliest noise were the true one."""
    observations = observe(time_T, value_T)
    found = fit_law(observations, law_by_name("oscillator"))
    return intervals_of(found, observations, widening_P=np.full(4, stdtrit(found.noise.freedom, 0.975)))


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
    parser.add_argument("--plug-in", action="store_true")
    arguments = parser.parse_args()
    cells = [(curve, noise, n) for noise in NOISES for n in LENGTHS for curve in CURVES]
    with ProcessPoolExecutor(arguments.processes) as pool:
        futures = [pool.submit(one_cell, *cell, arguments.replicates, arguments.seed, arguments.plug_in) for cell in cells]
        rows = [future.result() for future in futures]
    show(rows)
    if arguments.plug_in:
        return
    with (Path(__file__).parent / "coverage.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
