"""The forecast band where a law holds exactly: it should cover, and be little wider than what is unknown makes it.

    python experiments/forecast/simulated.py [--runs 100]

An exponential, a logistic curve, a power law and a flat line with white noise, seen to 10, 20, 40 and 60 % of 400 rows. Prints, for the
base without calibration and with the shipped table, how many window means the 90 % band holds, and its width over two ideal ones: that of
the law known but for its parameters (linear about the truth), and that of the noise alone.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np

from groupwise.arrays import Float
from groupwise.curves.backtest import SHARES, Trial, trial
from groupwise.curves.calibration import UNCALIBRATED, Calibration, shipped
from groupwise.curves.laws import law_by_name

ROWS, DEVIATION, NORMAL = 400, 0.03, 1.6449
TIME = np.arange(float(ROWS))
LEVELS = {"start": 0.2, "plateau": 0.8}
WORLDS: dict[str, tuple[str, dict[str, float]]] = {
    "exponential": ("exponential", LEVELS | {"time_constant": 80.0}),
    "logistic": ("logistic", LEVELS | {"midpoint": 120.0, "width": 30.0}),
    "power law": ("power_law", LEVELS | {"time_scale": 40.0, "exponent": 1.0}),
    "flat": ("constant", {"plateau": 0.5}),
}
TABLES = {"base": UNCALIBRATED, "shipped": shipped()}


def ideal(law_name: str, parameters: dict[str, float], tried: Trial) -> tuple[Float, Float]:
    """Widths of the band of window means where only the parameters are unknown, and where nothing is."""
    law, groups = law_by_name(law_name), np.array_split(np.arange(tried.n_train, ROWS), tried.truth_S.size)
    slope = law.jacobian(TIME, **parameters)
    seen, ahead = slope[: tried.n_train], np.array([slope[group].mean(0) for group in groups])
    noise = np.array([1 / group.size for group in groups])
    size = np.linalg.norm(seen, axis=0)
    inverse = np.linalg.pinv((seen / size).T @ (seen / size), rcond=1e-13, hermitian=True)
    doubt = np.einsum("sp,pq,sq->s", ahead / size, inverse, ahead / size)
    return 2 * NORMAL * DEVIATION * np.sqrt(noise + doubt), 2 * NORMAL * DEVIATION * np.sqrt(noise)


def band(tried: Trial, table: Calibration) -> tuple[Float, Float]:
    """Both ends of the 90 % band of window means."""
    ours = replace(tried.windows, table=table)
    return ours.quantile(0.05), ours.quantile(0.95)


def one_world(name: str, share: float, runs: int, seed: int = 2026) -> dict[str, tuple[float, float, float]]:
    """Coverage of each table's band, and its mean width over both ideal ones."""
    law_name, parameters = WORLDS[name]
    mean, rng = law_by_name(law_name).curve(TIME, **parameters), np.random.default_rng(seed)
    found: dict[str, list[tuple[float, float, float]]] = {table: [] for table in TABLES}
    for _ in range(runs):
        tried = trial(TIME, mean + rng.normal(0, DEVIATION, ROWS), share, smoothing=1, bounds=(0.0, 1.0), methods={})
        by_law, by_noise = ideal(law_name, parameters, tried)
        for table, stretched in TABLES.items():
            low, high = band(tried, stretched)
            held = np.mean((tried.truth_S >= low) & (tried.truth_S <= high))
            found[table].append((float(held), float(np.mean((high - low) / by_law)), float(np.mean((high - low) / by_noise))))
    return {table: tuple(float(one) for one in np.mean(rows, axis=0)) for table, rows in found.items()}  # type: ignore[misc]


def main() -> None:
    """Try every world and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    runs = parser.parse_args().runs
    print("| world | seen | base covers | width to law | to noise | shipped covers | width to law | to noise |\n|" + "---|" * 8)
    for name in WORLDS:
        for share in SHARES:
            cells = [f"{one:.2f}" for table in one_world(name, share, runs).values() for one in table]
            print(f"| {name} | {share:.0%} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
