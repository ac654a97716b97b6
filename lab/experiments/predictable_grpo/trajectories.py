"""The closed form of the oscillator against the exact recursion and against simulated bandits, in
three regimes.

    python lab/experiments/predictable_grpo/trajectories.py [--quick]

prints the errors of both readings over a grid and of the three regimes, writes trajectories.csv
(curves) and trajectory_errors.csv (grid). Curves are
shares of the way, 0 at the start and 1 at the fixed point. Bandits start near the fixed point (p =
.75, top row: there the law is linear) and at the reference policy (p = .3, bottom row: there the
stiffness is up to 1.4 times that of the fixed point). It fits nothing: stiffness and plateau are
the exact ones.
"""

import math

import numpy as np
from note import RESULTS, Rows, column, logits_at, note_bandit, options, print_table, short, where
from numpy import ndarray

from groupwise.edge.mode import LAGS, threshold
from groupwise.forecasting.laws import oscillator_decay
from groupwise_lab.simulate.bandit_runs import expected_path, simulate_bandit
from groupwise_lab.simulate.softmax_bandit import Training, fixed_point
from groupwise_lab.theory.oscillator import Oscillator, oscillator, recursion

MOMENTUM, INTERVAL = 0.9, 4
REGIMES = {"overdamped": 0.001, "near critical": 0.0027, "underdamped": 0.02}
UPDATES = {"overdamped": 500, "near critical": 200, "underdamped": 120}
STARTS = {"near": 0.75, "reference": 0.3}
PROMPTS, GROUP_SIZE = 32, 8


def late_trajectory(curve: Oscillator, time_T: ndarray) -> ndarray:
    """The same oscillator at rest at update 0 instead of half an update before it."""
    return np.asarray(1 - oscillator_decay(time_T, curve.natural_frequency, curve.damping_ratio))


def error_grid(*, quick: bool) -> Rows:
    """Largest distance of each closed form to the exact recursion, as a share of the way."""
    rows = []
    momenta, shares = (
        ((0.9,), (0.05,)) if quick else ((0.0, 0.5, 0.9, 0.95), (0.02, 0.05, 0.1, 0.2, 0.4))
    )
    for lag in LAGS:
        for interval in (1,) if lag == "none" else (8,) if quick else (2, 8, 32):
            for momentum in momenta:
                for share in shares:
                    force = share * float(threshold(lag, momentum, interval))
                    rows.append(
                        {
                            "lag": lag,
                            "interval": interval,
                            "momentum": momentum,
                            "force_over_threshold": share,
                        }
                    )
                    rows[-1] |= {"force": force} | _errors(force, momentum, interval, lag)
    return rows


def _errors(force: float, momentum: float, interval: int, lag: str) -> dict[str, float]:
    """Errors of the readings; NaN where a reading has no positive damping."""
    updates = min(4000, int(20 + 8 * interval + 10 * (1 - momentum) / force + 20 / (1 - momentum)))
    exact, time_T = (
        recursion(force, momentum, updates, refresh_interval=interval, lag=lag),
        np.arange(updates + 1.0),
    )
    distance_of = {}
    for reading in ("centred", "backward"):
        curve = oscillator(force, momentum, refresh_interval=interval, lag=lag, reading=reading)  # type: ignore[arg-type]
        settles = curve.damping > 0
        distance_of[reading] = (
            np.abs(curve.trajectory(time_T) - exact).max() if settles else math.nan
        )
        if reading == "centred":
            distance_of["centred_from_0"] = (
                np.abs(late_trajectory(curve, time_T) - exact).max() if settles else math.nan
            )
    return distance_of


def one_regime(name: str, start: str, replicates: int, seed: int) -> dict[str, ndarray]:
    """Curves of one regime from one start, as shares of the way."""
    force, updates, world = REGIMES[name], UPDATES[name], note_bandit()
    training = Training(
        1.0,
        GROUP_SIZE,
        PROMPTS,
        momentum=MOMENTUM,
        lag="refresh",
        interval=INTERVAL,
        kl_place="reward",
    )
    rest = fixed_point(world, training)
    training = Training(
        force / rest.stiffness,
        GROUP_SIZE,
        PROMPTS,
        momentum=MOMENTUM,
        lag="refresh",
        interval=INTERVAL,
        kl_place="reward",
    )
    place = STARTS[start]
    way = rest.value - place
    runs = simulate_bandit(
        world, training, steps=updates, replicates=replicates, seed=seed, start_A=logits_at(place)
    )
    mean_path = expected_path(world, training, steps=updates, start_AS=logits_at(place)).value[:, 0]
    # A hundred points or so are what a picture shows.
    seen_T = runs.step_T[:: updates // 100]
    time_T = seen_T.astype(np.float64)
    curves = {
        "update": time_T,
        "mean": (runs.value.mean(axis=1)[seen_T] - place) / way,
        "standard_error": runs.value.std(axis=1, ddof=1)[seen_T] / math.sqrt(replicates) / way,
        "expected": (mean_path[seen_T] - place) / way,
        "recursion": recursion(force, MOMENTUM, updates, refresh_interval=INTERVAL, lag="refresh")[
            seen_T
        ],
    }
    for reading in ("centred", "backward"):
        closed = oscillator(
            force, MOMENTUM, refresh_interval=INTERVAL, lag="refresh", reading=reading
        )  # type: ignore[arg-type]
        curves[reading] = closed.trajectory(time_T)
    return curves


def regime_errors(curves: dict[str, ndarray]) -> dict[str, float]:
    """Largest distances between the curves, and how far the simulated mean lies from the
    expected path in its standard errors.
    """
    errors = {
        f"{name}_to_recursion": np.abs(curves[name] - curves["recursion"]).max()
        for name in ("centred", "backward")
    }
    errors["centred_to_mean"] = np.abs(curves["centred"] - curves["mean"]).max()
    errors["backward_to_mean"] = np.abs(curves["backward"] - curves["mean"]).max()
    errors["recursion_to_expected"] = np.abs(curves["recursion"] - curves["expected"]).max()
    errors["mean_to_expected"] = np.abs(curves["mean"] - curves["expected"]).max()
    errors["standard_error"] = curves["standard_error"].max()
    return errors


def show_grid(rows: Rows) -> None:
    """The grid as a table: largest errors over momenta and intervals, at each share of the
    threshold.
    """
    shares = sorted({row["force_over_threshold"] for row in rows})
    lines = []
    for lag in LAGS:
        for share in shares:
            some = where(rows, lag=lag, force_over_threshold=share)
            line = [f"{lag} | {share:g}"]
            for name in ("centred", "centred_from_0", "backward"):
                values = [100 * row[name] for row in some if not math.isnan(row[name])]
                missing = len(some) - len(values)
                shown = [f"{short(np.median(values))} ({short(max(values))})"] if values else []
                line.append("; ".join([*shown, f"none for {missing}"] if missing else shown))
            nearer = sum(
                row["centred"] < row["backward"] or math.isnan(row["backward"]) for row in some
            )
            lines.append([*line, f"{nearer} of {len(some)}"])
    header = "lag | a / threshold | centred | centred, at rest at 0 | backward | centred nearer"
    print_table(
        "Largest error of the closed form over a run, % of the way: median (worst) over momenta "
        "and intervals",
        header,
        lines,
    )


def show_regimes(rows: Rows) -> None:
    """Distances between the curves."""
    lines = []
    for name in REGIMES:
        for start in STARTS.values():
            some = where(rows, regime=name, start=start)
            curves = {key: column(some, key) for key in some[0] if key not in ("regime", "start")}
            errors = regime_errors(curves)
            lines.append(
                [f"{name} | {start:g}", *(f"{100 * value:.2g}" for value in errors.values())]
            )
    header = ("regime | from p", *(name.replace("_", " ") for name in errors))
    print_table(
        f"Largest distances, % of the way; momentum {MOMENTUM}, refresh interval {INTERVAL}",
        header,
        lines,
    )


def main() -> None:
    """Run, print and write."""
    asked = options(__doc__, replicates=2000)
    if asked.tables:
        show_grid(RESULTS.read("trajectory_errors"))
        show_regimes(RESULTS.read("trajectories"))
        return
    replicates = 50 if asked.quick else asked.replicates
    grid = error_grid(quick=asked.quick)
    show_grid(grid)
    curves = {
        (name, start): one_regime(name, start, replicates, asked.seed)
        for name in REGIMES
        for start in STARTS
    }
    rows = [
        {"regime": name, "start": STARTS[start]}
        | {key: float(values[place]) for key, values in some.items()}
        for (name, start), some in curves.items()
        for place in range(len(some["update"]))
    ]
    show_regimes(rows)
    if asked.quick:
        return
    RESULTS.write("trajectory_errors", grid)
    RESULTS.write("trajectories", rows)


if __name__ == "__main__":
    main()
