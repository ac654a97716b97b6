"""Coverage of the 95 % intervals on simulated oscillators: three curves, two lengths, three kinds
of noise.

    python lab/experiments/intervals/coverage.py [--replicates 2000] [--processes 2]
    [--competing]

prints the table of lab/docs/theory/fit.md and writes the table `coverage`.
`--competing` lets all laws compete, as a user does, and measures the plateau only, since the other
parameters belong to the law that was chosen.
"""

import math
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from numpy import ndarray

from groupwise.forecasting.fit import fit
from groupwise.intervals import Interval

sys.path.append(str(Path(__file__).resolve().parents[1]))  # common
from common import Rows, arguments, print_table, results_of

from groupwise.parsing import JsonObject
from groupwise_lab.worlds.runs import Curve, simulated_curve

CURVES = {
    "underdamped": Curve(0.75, 0.2, 2 * math.pi * 1.25, 0.4),
    "critical": Curve(0.75, 0.2, 9.0, 1.0),
    "overdamped": Curve(0.75, 0.2, 12.0, 2.0),
}
NOISES = {"white": (0.0, 1), "AR(1) .8": (0.8, 1), "smoothed 20": (0.0, 20)}
LENGTHS = (50, 500)
DEVIATION = 0.02
NAMES = ("plateau", "start", "natural_frequency", "damping_ratio")


def one_cell(
    curve_name: str, noise_name: str, n: int, replicates: int, seed: int, mode: str = "law"
) -> JsonObject:
    """Coverage of each parameter in one cell, and how often the fit says "not identifiable"."""
    curve, (correlation, smoothing) = CURVES[curve_name], NOISES[noise_name]
    rng = np.random.default_rng(
        [seed, n, list(CURVES).index(curve_name), list(NOISES).index(noise_name)]
    )
    truth = dict(
        zip(
            NAMES,
            (curve.plateau, curve.start, curve.turns / (n + smoothing - 2), curve.damping_ratio),
            strict=True,
        )
    )
    names = NAMES[:1] if mode == "competing" else NAMES
    hits, clear_hits, open_status = dict.fromkeys(names, 0), dict.fromkeys(names, 0), 0
    for _ in range(replicates):
        value = simulated_curve(
            rng, curve, n, deviation=DEVIATION, correlation=correlation, smoothing=smoothing
        )
        parameters, unclear = intervals_in_mode(np.arange(float(n)) + smoothing - 1, value, mode)
        open_status += unclear
        for name in names:
            hit = name in parameters and parameters[name].covers(truth[name])
            hits[name] += hit
            clear_hits[name] += hit and not unclear
    clear = replicates - open_status
    row = {
        "noise": noise_name,
        "n": n,
        "curve": curve_name,
        "replicates": replicates,
    }
    row |= {name: hits[name] / replicates for name in names}
    row |= {
        f"{name}_if_identified": clear_hits[name] / clear if clear else float("nan")
        for name in names
    }
    return row | {"not_identifiable": open_status / replicates}


def intervals_in_mode(
    time_T: ndarray, value_T: ndarray, mode: str
) -> tuple[dict[str, Interval], bool]:
    """The intervals under study, and whether the fit warns of them."""
    result = fit(time_T, value_T, law=None if mode == "competing" else "oscillator")
    return dict(result.parameters), result.status != "converged"


def show(rows: Rows) -> None:
    """Print the table in Markdown."""
    names = [name for name in NAMES if name in rows[0]]
    lines = []
    for row in rows:
        cells = []
        for name in names:
            share, count = row[name], row["replicates"]
            cells.append(f"{share:.3f} ± {math.sqrt(max(share * (1 - share), 1e-9) / count):.3f}")
        kind = f"{row['noise']} | {row['n']} | {row['curve']}"
        lines.append([kind, *cells, f"{row['not_identifiable']:.3f}"])
    spelled = [name.replace("_", " ") for name in names]
    print_table("Coverage", ["noise | n | curve", *spelled, "not identifiable"], lines)


def main() -> None:
    """Run all cells in two processes and write the table."""
    given = arguments(__doc__, replicates=2000, processes=2, seed=2026, competing=False)
    mode = "competing" if given.competing else "law"
    cells = [(curve, noise, n) for noise in NOISES for n in LENGTHS for curve in CURVES]
    with ProcessPoolExecutor(given.processes) as pool:
        futures = [
            pool.submit(one_cell, *cell, given.replicates, given.seed, mode) for cell in cells
        ]
        rows = [future.result() for future in futures]
    show(rows)
    if mode != "law":
        return
    results_of(__file__).write("coverage", rows, digits=17)


if __name__ == "__main__":
    main()
