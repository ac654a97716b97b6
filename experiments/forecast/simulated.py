"""The forecast band where a law holds exactly: it should be little wider than the noise makes it.

    python experiments/forecast/simulated.py [--runs 200]

Exponential rises with white noise, 140 of 200 rows seen; prints coverage and width of both 90 % bands.
"""

from __future__ import annotations

import argparse

import numpy as np

from groupwise.curves.forecast import forecast

ROWS, SEEN, DEVIATION = 200, 140, 0.03
AT = np.array([150, 175, 199])
TIME_CONSTANTS = (20.0, 40.0, 60.0, 90.0)
IDEAL = 2 * 1.6449 * DEVIATION


def main() -> None:
    """Forecast every run and print what the bands held."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    runs = parser.parse_args().runs
    rng, time = np.random.default_rng(2026), np.arange(float(ROWS))
    held, held_mean, width = [], [], []
    for run in range(runs):
        mean = 0.8 - 0.6 * np.exp(-time / TIME_CONSTANTS[run % len(TIME_CONSTANTS)])
        value = mean + rng.normal(0, DEVIATION, ROWS)
        ahead = forecast(time[:SEEN], value[:SEEN], AT.astype(float), smoothing=1, healthy="up")
        held.append((value[AT] >= ahead.low_S) & (value[AT] <= ahead.high_S))
        held_mean.append((mean[AT] >= ahead.mean_low_S) & (mean[AT] <= ahead.mean_high_S))
        width.append(ahead.high_S - ahead.low_S)
    error = np.sqrt(0.09 / runs)
    print(f"{runs} runs, 90 % bands (standard error {error:.3f})")
    print(f"next row inside: {np.mean(held):.3f}; mean inside: {np.mean(held_mean):.3f}; width over ideal: {np.mean(width) / IDEAL:.2f}")


if __name__ == "__main__":
    main()
