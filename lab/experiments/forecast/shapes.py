"""What the forecast's band of rows holds, by the shape of the curve.

    python lab/experiments/forecast/shapes.py [--runs 20] [--own FILE]

Nine shapes of 200 rows, each with white noise of .02, .05 and .1 (a flat one with noise of
correlation .9 instead), seen to 10, 20, 40 and 60 %. Prints the share of the rows to come
inside the 90 % band. A third of the rise of a logistic curve, or a fifth of the loss of a decline,
is what a band can be asked to have seen: these runs stand in rows of their own.
`--own` takes the SHAPES of a Python file of your own instead.
"""

import runpy
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))  # common.py
from common import arguments, print_table
from numpy.random import Generator

from groupwise.arrays import Float
from groupwise.forecasting.forecast import shipped
from groupwise_lab.forecasts.backtest import SHARES, rows_seen, trial

ROWS, DEVIATIONS = 200, (0.02, 0.05, 0.1)
TIME = np.linspace(0, 1, ROWS)


def saturating(rng: Generator) -> Float:
    """A rise that slows."""
    return np.asarray(0.8 - 0.6 * np.exp(-TIME / rng.uniform(0.1, 0.5)))


def logistic(rng: Generator, first: float = 0.25, last: float = 0.7, width: float = 0.1) -> Float:
    """A rise that begins slowly, about a moment of its own."""
    middle = rng.uniform(first, last)
    return np.asarray(0.2 + 0.6 / (1 + np.exp((middle - TIME) / rng.uniform(0.3 * width, width))))


def late_decline(rng: Generator) -> Float:
    """A rise, and from some moment on a smooth loss of .5."""
    way = np.clip((TIME - rng.uniform(0.05, 0.65)) / rng.uniform(0.2, 0.5), 0, 1)
    rise = 0.8 - 0.6 * np.exp(-TIME / rng.uniform(0.05, 0.2))
    return np.asarray(rise - 0.25 * (1 - np.cos(np.pi * way)))


def oscillating(rng: Generator) -> Float:
    """A swing that does not fade."""
    return np.asarray(
        0.5 + 0.2 * np.sin(2 * np.pi * TIME / rng.uniform(0.1, 0.6) + rng.uniform(0, 6.28))
    )


SHAPES: dict[str, Callable[[Generator], Float]] = {
    "saturating": saturating,
    "autoregressive": lambda _: np.full(ROWS, 0.5),
    "linear": lambda _: 0.2 + 0.6 * TIME,
    "logistic": logistic,
    "step": lambda rng: 0.3 + 0.4 * (rng.uniform(0.15, 0.85) < TIME),
    "oscillating": oscillating,
    "late decline": late_decline,
    "wandering": lambda rng: 0.5 + 0.3 * np.cumsum(rng.normal(size=ROWS)) / np.sqrt(ROWS),
    "delayed logistic": lambda rng: logistic(rng, 0.6, 0.9, 0.05),
}
FAR_ENOUGH = {"logistic": 1 / 3, "late decline": 1 / 5}


def noise(shape: str, rng: Generator) -> Float:
    """White noise of unit size, or slow noise where it is all that moves."""
    white = rng.normal(size=ROWS)
    if shape == "autoregressive":
        for row in range(1, ROWS):
            white[row] = 0.9 * white[row - 1] + np.sqrt(0.19) * white[row]
    return white


def passed(shape: str, mean_T: Float, seen: int) -> float:
    """Part of a rise, or of a loss, that the rows seen hold."""
    if shape != "late decline":
        return float(mean_T[seen - 1] - 0.2) / 0.6
    top = int(mean_T.argmax())
    return float((mean_T[top] - mean_T[max(top, seen - 1)]) / np.ptp(mean_T[top:]))


def held(shape: str, deviation: float, seed: int) -> list[tuple[str, float, float]]:
    """Kind of run, share seen, and share of the rows to come inside the band."""
    rng, out = np.random.default_rng([seed, [*SHAPES].index(shape), int(1000 * deviation)]), []
    mean = SHAPES[shape](rng)
    value = mean + deviation * noise(shape, rng)
    for share in SHARES:
        score = trial(np.arange(ROWS), value, share, smoothing=1, methods={}).score(shipped())
        inside = score.rows_covered / score.windows
        out.append((shape, share, inside))
        least = FAR_ENOUGH.get(shape, 2)
        if passed(shape, mean, rows_seen(ROWS, share)) >= least:
            out.append((f"{shape}, {least:.0%} seen", share, inside))
    return out


def main() -> None:
    """Read the arguments and print the table."""
    given, cells = arguments(__doc__, runs=20, own=""), defaultdict(list)
    own = runpy.run_path(given.own)["SHAPES"] if given.own else {}
    SHAPES.update(own)
    for shape in own or SHAPES:
        for deviation in DEVIATIONS:
            for seed in range(given.runs):
                for kind, share, inside in held(shape, deviation, seed):
                    cells[kind, share].append(inside)
    kinds = dict.fromkeys(kind for kind, _ in cells)
    lines = [
        [kind, *(f"{np.mean(cells[kind, share] or np.nan):.2f}" for share in SHARES)]
        for kind in kinds
    ]
    print_table(
        "Rows inside the 90 % band", ["shape", *(f"{share:.0%}" for share in SHARES)], lines
    )


if __name__ == "__main__":
    main()
