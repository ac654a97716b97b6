"""Is the slow start of a learning curve inertia or force? Momentum varied at a fixed eta/(1 - mu),
in a network, without sampling noise.

Addition mod 10 from the warm start, expected updates, on policy, KL weight .5 in the reward:
whatever delays a curve here is momentum. Beside it the laws that a fit would choose. `python
deep_inertia.py` runs what is missing (a few minutes of one core), `--tables` prints.
"""

import numpy as np
from deep_pieces import Pieces
from deep_world import Deep, UpdateSettings, deep_world, trained
from note import options, print_table
from numpy import ndarray

from groupwise.parsing import JsonObject

CURVES = Pieces("deep_inertia", ("momentum",))
EFFECTIVE, UPDATES, EVERY = 0.01, 400, 8
MOMENTA = (0.0, 0.97, 0.9, 0.99)
LAWS = ("oscillator", "exponential", "logistic")


def delay(reward_T: ndarray, reference_T: ndarray, time_T: ndarray) -> float:
    """Updates by which a curve lags a reference, where both rise: at the levels that both reach,
    the mean shift.
    """
    low, high = max(reward_T[0], reference_T[0]), min(reward_T.max(), reference_T.max())
    level = np.linspace(low + 0.1 * (high - low), high - 0.1 * (high - low), 30)
    return np.mean(
        np.interp(level, np.maximum.accumulate(reward_T), time_T)
        - np.interp(level, reference_T, time_T)
    )


def curve_row(deep: Deep, momentum: float, updates: int) -> JsonObject:
    """The mean reward of one run, every few updates."""
    path = trained(
        deep.world,
        deep.point_D,
        UpdateSettings("none", momentum, 1),
        start_D=deep.world.start_D,
        learning_rate=EFFECTIVE * (1 - momentum),
        updates=updates,
        watch_DK=np.eye(len(deep.point_D), 1),
        held=False,
    )
    return {"momentum": momentum} | {
        f"t{at}": float(path.value_T[at]) for at in range(0, updates, EVERY)
    }


def curves() -> dict[float, tuple[ndarray, ndarray]]:
    """Updates and rewards by momentum."""
    by_momentum = {}
    for row in sorted(CURVES.rows(), key=lambda row: float(row["momentum"])):
        names = [name for name in row if name.startswith("t")]
        by_momentum[float(row["momentum"])] = (
            np.array([float(name[1:]) for name in names]),
            np.array([row[name] for name in names]),
        )
    return by_momentum


def show() -> None:
    """The table."""
    import groupwise as gw

    by_momentum, lines = curves(), []
    for momentum, (time_T, reward_T) in by_momentum.items():
        slope = np.diff(reward_T) / EVERY
        late = (
            delay(reward_T, by_momentum[0.0][1], time_T) if momentum and 0.0 in by_momentum else 0.0
        )
        fits = {law: gw.fit(time_T, reward_T, law=law, smoothing=1) for law in LAWS}
        lines.append(
            [
                (
                    f"{momentum:g} | {momentum / (1 - momentum):.1f} | {late:.1f} | "
                    f"{slope[0] / slope.max():.2f}"
                )
            ]
        )
        lines[-1] += [
            f"{time_T[np.argmax(slope)]:.0f}",
            *(f"{fits[law].r_squared:.5f}" for law in LAWS),
            f"{reward_T[-1]:.3f}",
        ]
    header = (
        (
            "momentum | mu/(1 - mu) | delay against momentum 0 | "
            "first slope over the steepest | steepest at update"
        ),
    )
    print_table(
        "Noise-free curves, eta/(1 - mu) = .01",
        (*header, *(f"R2 of the {law}" for law in LAWS), "reward at the end"),
        lines,
    )


def main() -> None:
    """Run what is missing and print."""
    asked = options(__doc__)
    if not asked.tables:
        if asked.quick:
            CURVES.keep_in_memory()
        deep = deep_world(quick=asked.quick)
        for momentum in MOMENTA[:2] if asked.quick else MOMENTA:
            if not CURVES.has(momentum):
                CURVES.add(curve_row(deep, momentum, 24 if asked.quick else UPDATES))
    show()


if __name__ == "__main__":
    main()
