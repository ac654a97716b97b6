"""Where a run begins to oscillate: momentum raised at a fixed force per update, overshoot and the
eigenvalues of the map.

    python lab/experiments/predictable_grpo/onset.py [--quick]

prints where the measured eigenvalues of the expected bandit become complex beside the exact onset,
mu = (1 - sqrt(a))^2, and those of the oscillators, writes onset.csv (located onsets) and
overshoot.csv (the curves). On-policy, the bandit of the note.
The onset is located on the bandit's own curve by regressing each reward on the two before it; its
stiffness is measured by kicks. It looks at no threshold of instability: that is boundary.py.
"""

import math

import numpy as np
from kicks import measured_stiffness
from note import RESULTS, Row, Rows, logits_at, note_bandit, options, print_table

from groupwise_lab.simulate.bandit_runs import Records, expected_path, simulate_bandit
from groupwise_lab.simulate.softmax_bandit import Training, fixed_point
from groupwise_lab.theory.oscillator import oscillator, recursion

FORCES = (0.0025, 0.01, 0.04, 0.1, 0.25)
DRAWN = 0.01
START = 0.75


def eigenvalues(force: float, momentum: float, stiffness: float) -> np.ndarray:
    """Eigenvalues of the bandit's own expected dynamics, from a regression of each distance on
    the two before it.
    """
    world = note_bandit()
    rest = fixed_point(world, Training(1.0))
    training = Training(force / stiffness, momentum=momentum)
    # A thousandth of a thousandth of the way: the law is linear there to as many digits.
    start = logits_at(rest.value - 1e-6)
    path = expected_path(world, training, steps=60, start_AS=start).value[:, 0] - rest.value
    scale = np.abs(path).max()
    coefficient, *_ = np.linalg.lstsq(
        np.stack([path[1:-1], path[:-2]], axis=1) / scale, path[2:] / scale, rcond=None
    )
    return np.asarray(np.roots([1.0, -coefficient[0], -coefficient[1]]))


def located_onset(force: float, stiffness: float) -> float:
    """The momentum from which the measured eigenvalues are complex, by halving."""
    low, high = 0.0, 0.999
    for _ in range(30):
        middle = (low + high) / 2
        complex_pair = bool(np.abs(eigenvalues(force, middle, stiffness).imag).max() > 0)
        low, high = (low, middle) if complex_pair else (middle, high)
    return (low + high) / 2


def oscillator_onset(force: float, reading: str, lag: str) -> float:
    """The momentum from which an oscillator overshoots, by halving."""
    low, high = 0.0, 0.9999
    for _ in range(40):
        middle = (low + high) / 2
        under = (
            oscillator(force, middle, lag=lag, refresh_interval=1, reading=reading).damping_ratio
            < 1
        )  # type: ignore[arg-type]
        low, high = (low, middle) if under else (middle, high)
    return (low + high) / 2


def onset_row(force: float, stiffness: float) -> Row:
    """One force."""
    exact = (1 - math.sqrt(force)) ** 2
    measured = located_onset(force, stiffness)
    return {
        "force": force,
        "exact": exact,
        "bandit": measured,
        "gap": measured - exact,
        "backward": oscillator_onset(force, "backward", "none"),
        "centred": oscillator_onset(force, "centred", "none"),
    }


def turn_of(force: float, momentum: float) -> float:
    """Angle of the eigenvalues of the exact map, radians an update."""
    inner = (1 + momentum - force) / (2 * math.sqrt(momentum))
    return math.acos(inner) if inner < 1 else 0.0


def overshoot_row(momentum: float, stiffness: float, replicates: int, seed: int) -> Row:
    """Overshoot at one momentum, as a share of the way; at the update at which the exact
    recursion is highest.
    """
    world, force = note_bandit(), DRAWN
    rest = fixed_point(world, Training(1.0))
    curve = recursion(force, momentum, 400, lag="none")
    peak = int(curve.argmax())
    row = {
        "momentum": momentum,
        "recursion": float(curve.max() - 1) if curve.max() > 1 else 0.0,
        "peak": peak,
    }
    row["turn"] = turn_of(force, momentum)
    row["turn_bandit"] = np.abs(np.angle(eigenvalues(force, momentum, stiffness))).max()
    for reading in ("centred", "backward"):
        mode = oscillator(force, momentum, lag="none", reading=reading)  # type: ignore[arg-type]
        row[reading] = mode.quantities["overshoot"] if mode.damping > 0 else 1.0
    training = Training(
        force / stiffness, group_size=8, prompts=32, momentum=momentum, kl_place="reward"
    )
    runs = simulate_bandit(
        world,
        training,
        steps=peak,
        replicates=replicates,
        seed=seed,
        start_A=logits_at(START),
        records=Records(every=peak),
    )
    above = (runs.value[-1] - rest.value) / (rest.value - START)
    row["mean"] = above.mean()
    row["standard_error"] = float(above.std(ddof=1) / math.sqrt(replicates))
    return row


def show(onsets: Rows, rows: Rows) -> None:
    """Both tables."""
    header = (
        "force a | exact $(1-\\sqrt a)^2$ | located on the bandit | difference | backward | centred"
    )
    lines = [
        [(f"{row['force']:g} | {row['exact']:.4f} | {row['bandit']:.4f} | {row['gap']:+.1e}")]
        + [f"{row[name]:.4f}" for name in ("backward", "centred")]
        for row in onsets
    ]
    print_table("Momentum from which a mode oscillates, on-policy", header, lines)
    some = [row for row in rows if row["momentum"] in (0.8, 0.82, 0.84, 0.86, 0.9, 0.95)]
    lines = [
        [
            (
                f"{row['momentum']:g} | {row['turn']:.4f} | {row['turn_bandit']:.4f} | "
                f"{100 * row['recursion']:.3g} | "
                f"{100 * row['mean']:.3g} ± {196 * row['standard_error']:.1g} | "
                f"{100 * row['centred']:.3g} | {100 * row['backward']:.3g}"
            )
        ]
        for row in some
    ]
    header = (
        "momentum | angle, exact | angle, bandit | overshoot, exact | "
        "simulated, 95 % | centred | backward"
    )
    print_table(
        f"Overshoot, % of the way, and angle of the eigenvalues, radians an update, at a = {DRAWN}",
        header,
        lines,
    )


def main() -> None:
    """Run, print and write."""
    asked = options(__doc__, replicates=4000)
    if asked.tables:
        show(RESULTS.read("onset"), RESULTS.read("overshoot"))
        return
    stiffness = measured_stiffness()
    onsets = [onset_row(force, stiffness) for force in (FORCES[1:2] if asked.quick else FORCES)]
    momenta = (
        np.array([0.7, 0.9])
        if asked.quick
        else np.round(np.concatenate([np.arange(0.7, 0.79, 0.02), np.arange(0.8, 0.961, 0.01)]), 3)
    )
    rows = [
        overshoot_row(
            float(momentum), stiffness, 100 if asked.quick else asked.replicates, asked.seed
        )
        for momentum in momenta
    ]
    show(onsets, rows)
    if asked.quick:
        return
    RESULTS.write("onset", onsets)
    RESULTS.write("overshoot", rows)


if __name__ == "__main__":
    main()
