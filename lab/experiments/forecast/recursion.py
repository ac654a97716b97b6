"""Do the intervals of the fitted oscillator hold what heavy ball does?

    python lab/experiments/forecast/recursion.py [--runs 300] [--rows 200]

Runs of the recursion $x_{t+1} = x_t + v_{t+1}$, $v_{t+1} = .9 v_t - a x_t$, a row an update, seen
with white noise of three deviations, and once with noise in the update itself. Prints the share of
the 95 % intervals that hold the frequency and the damping ratio of the recursion's own eigenvalues,
and the level of update 0.
"""

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))  # common.py
from common import arguments, print_table

from groupwise.arrays import Float
from groupwise.forecasting.fit import fit

MOMENTUM, START, PLATEAU = 0.9, 0.2, 0.8
# Force an update, deviation of the noise of a row, and of the noise of an update.
WORLDS = (
    (0.02, 0.005, 0.0),
    (0.02, 0.02, 0.0),
    (0.02, 0.05, 0.0),
    (0.001, 0.02, 0.0),
    (0.02, 0.02, 0.002),
)


def heavy_ball(force: float, shock_T: Float) -> Float:
    """The level of each update, from one that has stood still."""
    level, velocity, out = START, 0.0, []
    for shock in shock_T:
        out.append(level)
        velocity = MOMENTUM * velocity + force * (PLATEAU - level) + shock
        level += velocity
    return np.array(out)


def truth(force: float) -> dict[str, float]:
    """What the intervals should hold."""
    root = np.log(np.roots([1, force - 1 - MOMENTUM, MOMENTUM]).astype(complex))
    frequency = float(np.sqrt((root[0] * root[1]).real))
    return {
        "natural_frequency": frequency,
        "damping_ratio": float(-root.sum().real / 2 / frequency),
        "start": START,
    }


def main() -> None:
    """Read the arguments and print the table."""
    options, rows = arguments(__doc__, runs=300, rows=200), []
    for force, noise, shock in WORLDS:
        right, held = truth(force), np.zeros(3)
        for seed in range(options.runs):
            noise_T, shock_T = np.random.default_rng(seed).normal(size=(2, options.rows))
            value = heavy_ball(force, shock * shock_T) + noise * noise_T
            fitted = fit(np.arange(options.rows), value, law="oscillator", smoothing=1)
            held += [fitted.parameters[name].covers(level) for name, level in right.items()]
        shares = (f"{share:.3f}" for share in held / options.runs)
        rows.append([f"{force:g}", f"{noise:g}", f"{shock:g}", *shares])
    print_table("Coverage of 95 % intervals", ["force", "noise", "shock", *right], rows)


if __name__ == "__main__":
    main()
