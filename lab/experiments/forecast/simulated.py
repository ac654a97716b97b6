"""The forecast band where a law holds exactly: it should cover, and be little wider than what is
unknown makes it.

    python lab/experiments/forecast/simulated.py [--runs 100]

An exponential, a logistic curve, a power law and a flat line with white noise, seen to 10, 20, 40
and 60 % of 400 rows; last, curves drawn from a covariance of the forecaster's own list, where its
assumptions hold. Prints, for the base without calibration and with the shipped table, how many
window means the 90 % band holds, and its width over two ideal ones: that of the law known but for
its parameters (linear about the truth; of a curve drawn, its covariance known but for the level),
and that of the noise alone.
"""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))  # common.py
from common import arguments, print_table

from groupwise.arrays import Float
from groupwise.forecasting.calibration import UNCALIBRATED, Calibration, shipped
from groupwise.forecasting.laws import law_by_name
from groupwise.forecasting.process import covariances
from groupwise_lab.forecasts.backtest import SHARES, Trial, rows_seen, trial

ROWS, DEVIATION, NORMAL = 400, 0.03, 1.6449
TIME = np.arange(float(ROWS))
LEVELS = {"start": 0.2, "plateau": 0.8}
WORLDS: dict[str, tuple[str, dict[str, float]]] = {
    "exponential": ("exponential", LEVELS | {"time_constant": 80.0}),
    "logistic": ("logistic", LEVELS | {"midpoint": 120.0, "width": 30.0}),
    "power law": ("power_law", LEVELS | {"time_scale": 40.0, "exponent": 1.0}),
    "flat": ("constant", {"plateau": 0.5}),
}
DRAWN = "drawn"
TABLES = {"base": UNCALIBRATED, "shipped": shipped()}


def windows(tried: Trial) -> Float:
    """What share of each row every window takes, shape (S, T)."""
    groups = np.array_split(np.arange(tried.n_train, ROWS), tried.truth_S.size)
    return np.array([np.isin(np.arange(ROWS), group) / group.size for group in groups])


def ideal(law_name: str, parameters: dict[str, float], tried: Trial) -> tuple[Float, Float]:
    """Widths of the band of window means where only the parameters are unknown, and where
    nothing is.
    """
    taken = windows(tried)
    slope = law_by_name(law_name).jacobian(TIME, **parameters)
    seen, ahead = slope[: tried.n_train], taken @ slope
    size = np.linalg.norm(seen, axis=0)
    inverse = np.linalg.pinv((seen / size).T @ (seen / size), rcond=1e-13, hermitian=True)
    doubt = np.einsum("sp,pq,sq->s", ahead / size, inverse, ahead / size)
    return widths(doubt, taken)


def ideal_of_drawn(covariance: Float, tried: Trial) -> tuple[Float, Float]:
    """The same where a curve of this covariance (in variances of the noise) was drawn and only
    its level is unknown.
    """
    taken, cut = windows(tried), tried.n_train
    # A level of a variance of a million is as good as unknown.
    prior = covariance + 1e6
    cross = prior[:cut] @ taken.T
    solved = np.linalg.solve(prior[:cut, :cut] + np.eye(cut), cross)
    return widths(np.einsum("st,tu,su->s", taken, prior, taken) - (cross * solved).sum(0), taken)


def widths(doubt_S: Float, taken_ST: Float) -> tuple[Float, Float]:
    """Of the 90 % band with doubt about the curve (in variances of the noise), and without."""
    noise = (taken_ST**2).sum(1)
    return 2 * NORMAL * DEVIATION * np.sqrt(
        noise + np.maximum(doubt_S, 0)
    ), 2 * NORMAL * DEVIATION * np.sqrt(noise)


def drawn(share: float, rng: np.random.Generator) -> tuple[Float, Float]:
    """A curve of one covariance of the list, each as likely, and that covariance over all rows."""
    kernels, signal_KJ = covariances(float(rows_seen(ROWS, share)))
    signal_J = signal_KJ[rng.integers(len(signal_KJ))]
    covariance = sum(
        signal * kernel(TIME[:, None], TIME)
        for signal, kernel in zip(signal_J, kernels, strict=True)
        if signal
    )
    values, vectors = np.linalg.eigh(covariance)
    return DEVIATION * vectors @ (
        np.sqrt(np.maximum(values, 0)) * rng.normal(size=ROWS)
    ), np.asarray(covariance)


def band(tried: Trial, table: Calibration) -> tuple[Float, Float]:
    """Both ends of the 90 % band of window means."""
    ours = replace(tried.windows, table=table)
    return ours.quantile(0.05), ours.quantile(0.95)


def one_world(
    name: str, share: float, runs: int, seed: int = 2026
) -> dict[str, tuple[float, float, float]]:
    """Coverage of each table's band, and its mean width over both ideal ones."""
    rng = np.random.default_rng(seed)
    found = {table: [] for table in TABLES}
    for _ in range(runs):
        if name == DRAWN:
            mean, covariance = drawn(share, rng)
        else:
            law_name, parameters = WORLDS[name]
            mean = law_by_name(law_name).curve(TIME, **parameters)
        bounds = None if name == DRAWN else (0.0, 1.0)
        tried = trial(
            TIME,
            mean + rng.normal(0, DEVIATION, ROWS),
            share,
            smoothing=1,
            bounds=bounds,
            methods={},
        )
        by_law, by_noise = (
            ideal_of_drawn(covariance, tried)
            if name == DRAWN
            else ideal(law_name, parameters, tried)
        )
        for table, stretched in TABLES.items():
            low, high = band(tried, stretched)
            held = np.mean((tried.truth_S >= low) & (tried.truth_S <= high))
            found[table].append(
                (
                    float(held),
                    np.mean((high - low) / by_law),
                    np.mean((high - low) / by_noise),
                )
            )
    return {
        table: tuple(float(one) for one in np.mean(rows, axis=0)) for table, rows in found.items()
    }  # type: ignore[misc]


def main() -> None:
    """Try every world and print the table."""
    runs = arguments(__doc__, runs=100).runs
    lines = [
        [
            f"{name} | {share:.0%}",
            *(f"{part:.2f}" for table in one_world(name, share, runs).values() for part in table),
        ]
        for name in (*WORLDS, DRAWN)
        for share in SHARES
    ]
    print_table(
        "The 90 % band where a law holds",
        "world | seen | base covers | width to law | to noise | shipped covers | width to law | "
        "to noise",
        lines,
    )


if __name__ == "__main__":
    main()
