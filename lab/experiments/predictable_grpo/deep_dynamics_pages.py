"""Tables of deep_dynamics.py, from its pieces: what is missing is left out. It runs nothing."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from note import column, print_table
from numpy import ndarray

from groupwise.intervals import student_quantile
from groupwise.parsing import JsonView

SIZES, GROUPS, CHECKS_ON = ("tiny", "small", "medium"), (4, 16), "tiny"
EFFECTIVE_RATE, MOMENTUM, PROMPTS = 0.005, 0.9, 32  # eta/(1 - mu) of every run
LAWS = ("oscillator", "exponential", "logistic", "scalerl_sigmoid", "power_law")
METHODS = ("groupwise", "last_mean", "exponential", "scalerl_sigmoid", "power_law")
NOT_FAMILIES = {"step", "reward", "value", "within", "between", "held_out"}
PieceTables = Mapping[str, Sequence[Mapping[str, Any]]]


def show(runs: PieceTables, fits: PieceTables) -> None:
    """Print every table of what is there."""
    fit_table(fits)
    forecast_table(fits)
    mean_table(runs)
    rate_table(runs)
    momentum_table(runs, fits)
    spread_table(runs)
    size_table(runs)


def seeds(
    runs: PieceTables, size: str, group_size: int, kind: str = "run"
) -> list[Sequence[JsonView]]:
    """The runs of one cell of the plan."""
    return [
        rows for name, rows in runs.items() if name.startswith(f"{kind}-{size}-G{group_size:02d}-")
    ]


def rewards(rows: Sequence[JsonView]) -> ndarray:
    """The mean reward of every update's batch."""
    return np.array(column(rows[1:], "reward"), dtype=float)


def exact_values(rows: Sequence[JsonView], name: str) -> tuple[ndarray, ndarray]:
    """Updates at which something was computed exactly, and what."""
    there = [row for row in rows if row[name] != ""]
    return np.array(column(there, "step"), dtype=float), np.array(column(there, name), dtype=float)


def spoken(value_S: Sequence[float], digits: int = 3) -> str:
    """Mean over seeds with the standard error; "-" where a seed has no value, as where noise
    leaves nothing to explain.
    """
    values = np.asarray(value_S, dtype=float)
    if not len(values) or np.isnan(values).any():
        return "-"
    if len(values) < 2:
        return f"{values.mean():.{digits}f}"
    return f"{values.mean():.{digits}f} ± {values.std(ddof=1) / math.sqrt(len(values)):.{digits}f}"


def fit_table(fits: PieceTables) -> None:
    """R2 of the closed form, and how much better or worse its rivals are."""
    rows = []
    for size in SIZES:
        for group in GROUPS:
            firsts = [
                part[0]
                for name, part in fits.items()
                if name.startswith(f"run-{size}-G{group:02d}-")
            ]
            if not firsts:
                continue
            raw, adjusted = column(firsts, "r2"), column(firsts, "r2_adjusted")
            ahead = [
                spoken([part[f"aicc_{law}"] - part["aicc_oscillator"] for part in firsts], 1)
                for law in LAWS[1:]
            ]
            limited = sum(part["status"] == "converged" for part in firsts)
            rows.append(
                [
                    f"{size} | {group} | {len(firsts)}",
                    spoken(raw),
                    spoken(adjusted),
                    *ahead,
                    f"{limited} of {len(firsts)}",
                ]
            )
    header = [
        "size | G | seeds | R², raw | R², noise-adjusted",
        *(f"AICc of {law} - oscillator" for law in LAWS[1:]),
        "identifiable",
    ]
    print_table("The closed form on every run (the paper: R² at least .91)", header, rows)


def forecast_table(fits: PieceTables) -> None:
    """Errors of the forecast from 40 %."""
    firsts = [part[0] for name, part in fits.items() if name.startswith("run-")]
    if not firsts:
        return
    rows = []
    for method in METHODS:
        error = np.array([part[f"error_{method}"] for part in firsts])
        ratio = np.exp(np.mean(np.log(column(firsts, "error_groupwise") / error)))
        rows.append([f"{method} | {error.mean():.4f} | {ratio:.2f}"])
    print_table(
        f"Forecast of the last 60 % from the first 40 %, {len(firsts)} runs",
        "method | mean absolute error | ours over it",
        rows,
    )
    held = []
    for size in SIZES:
        some = [part[0] for name, part in fits.items() if name.startswith(f"run-{size}-")]
        held.append(
            f"{sum(part['covered'] for part in some)} of {sum(part['windows'] for part in some)} "
            f"windows ({size})"
        )
    print(f"\nThe 90 % band held {', '.join(held)}.")


def mean_table(runs: PieceTables) -> None:
    """Mean accuracies at the end by group size, for the trained task and for every other family."""
    rows = []
    for size in SIZES:
        small, large = seeds(runs, size, 4), seeds(runs, size, 16)
        if len(small) < 2 or len(large) < 2:
            continue
        names = ["value", "held_out", *(name for name in small[0][0] if name not in NOT_FAMILIES)]
        for name in names:
            first = float(small[0][0][name])
            ends = [
                np.array([exact_values(part, name)[1][-1] for part in group])
                for group in (small, large)
            ]
            low, high, difference = apart(*ends)
            said = {"value": "trained on", "held_out": "held out"}.get(name, name)
            rows.append(
                [
                    f"{size} | {said} | {first:.4f}",
                    spoken(ends[0], 4),
                    spoken(ends[1], 4),
                    f"{difference:+.4f} ({low:+.4f} to {high:+.4f})",
                ]
            )
    print_table(
        "Exact accuracy at update 400, by group size",
        "size | family | start | G = 4 | G = 16 | difference (95 %)",
        rows,
    )


def rate_table(runs: PieceTables) -> None:
    """What G does to the mean at two learning rates, at the same integral of the learning rate."""
    rows = []
    for size in SIZES:
        if not seeds(runs, size, 4, "fast"):
            continue
        for name, kind, every in ((".0005", "run", 4), (".002", "fast", 1)):
            runs_of_groups = [seeds(runs, size, group, kind) for group in GROUPS]
            for updates in (40 * every, 100 * every):
                if min(map(len, runs_of_groups)) < 2:
                    continue
                ends = [
                    np.array([np.interp(updates, *exact_values(part, "value")) for part in group])
                    for group in runs_of_groups
                ]
                low, high, difference = apart(*ends)
                said = f"{difference:+.3f} ({low:+.3f} to {high:+.3f})"
                rows.append(
                    [f"{size} | {name} | {updates}", spoken(ends[0]), spoken(ends[1]), said]
                )
    print_table(
        "G at two learning rates", "size | eta | updates | G = 4 | G = 16 | difference (95 %)", rows
    )


def apart(one_S: ndarray, other_S: ndarray) -> tuple[float, float, float]:
    """Interval of the difference of two means, and the difference."""
    difference = float(other_S.mean() - one_S.mean())
    error = math.sqrt(one_S.var(ddof=1) / len(one_S) + other_S.var(ddof=1) / len(other_S))
    reach = student_quantile(0.95, len(one_S) + len(other_S) - 2) * error
    return difference - reach, difference + reach, difference


def momentum_runs(runs: PieceTables, kind: str) -> dict[float, list[Sequence[JsonView]]]:
    """Runs of one start at G = 16 by momentum."""
    by_momentum = {}
    for name, rows in runs.items():
        if name.startswith(f"momentum-{kind}-mu"):
            by_momentum.setdefault(float(name.split("-mu")[1].split("-")[0]), []).append(rows)
    if kind == "warm" and seeds(runs, CHECKS_ON, 16):
        by_momentum[MOMENTUM] = seeds(runs, CHECKS_ON, 16)
    return dict(sorted(by_momentum.items()))


def delay(reward_T: ndarray, reference_T: ndarray) -> float:
    """Updates by which one curve lags another: the shift with the smallest squared distance; nan
    where that is an end of the range.
    """
    time_T = np.arange(1.0, len(reference_T) + 1)
    coefficients = np.polynomial.Polynomial.fit(time_T, reference_T, 5)
    shifts = np.arange(-60.0, 200.5, 0.5)
    inside = time_T > 0

    def distance(shift: float) -> float:
        moved = np.maximum(time_T - shift, 0.0)  # before its beginning the reference stands still
        return np.mean((reward_T - coefficients(np.minimum(moved, len(time_T))))[inside] ** 2)

    best = int(np.argmin([distance(shift) for shift in shifts]))
    return (
        float(shifts[best]) if 0 < best < len(shifts) - 1 else math.nan
    )  # at an end of the range no shift fits


def momentum_table(runs: PieceTables, fits: PieceTables) -> None:
    """How far momentum delays a curve, and the fast time constant that the closed form finds."""
    rows = []
    for kind in ("warm", "low"):
        by_momentum = momentum_runs(runs, kind)
        if 0.0 not in by_momentum:
            continue
        reference = np.mean([rewards(part) for part in by_momentum[0.0]], axis=0)
        for momentum, pieces in by_momentum.items():
            inertia = momentum / (1 - momentum)
            late = [delay(rewards(part), reference) for part in pieces] if momentum else []
            rate = [
                float(rewards(part)[:100].mean() - rewards(part)[:20].mean()) for part in pieces
            ]
            fast = fast_constants(fits, kind, momentum)
            ends = spoken([exact_values(part, "value")[1][-1] for part in pieces])
            rows.append(
                [
                    f"{kind} | {momentum:g} | {len(pieces)} | {inertia:.1f}",
                    ("none fits" if np.isnan(late).any() else spoken(late, 1))
                    if late
                    else "reference",
                    spoken(rate),
                    f"{fast} | {ends}",
                ]
            )
    header = [
        (
            "start | momentum | seeds | mu/(1 - mu), updates | "
            "delay against momentum 0, updates | rise over 100 updates"
        )
    ]
    print_table(
        "Momentum at a fixed eta/(1 - mu) of .005",
        [*header, "tau2 of the closed form, updates | accuracy at 400"],
        rows,
    )


def fast_constants(fits: PieceTables, kind: str, momentum: float) -> str:
    """tau2 of the fitted closed form, of each seed."""
    prefix = (
        f"run-{CHECKS_ON}-G16-"
        if (kind, momentum) == ("warm", MOMENTUM)
        else f"momentum-{kind}-mu{momentum:g}-"
    )
    tau2 = [part[0]["oscillator_tau2"] for name, part in fits.items() if name.startswith(prefix)]
    return ", ".join(f"{value:.0f}" for value in tau2) or "-"


def spread_table(runs: PieceTables) -> None:
    """Variance of short runs from one start by G, beside that of the components along the
    gradient.
    """
    by_group = {
        group: runs[f"spread-G{group:02d}"] for group in GROUPS if f"spread-G{group:02d}" in runs
    }
    if len(by_group) < 2:
        return
    rows, measured, predicted = [], {}, {}
    for group, part in by_group.items():
        first = part[0]
        along = column(part, "along")
        value = column(part, "value")
        noise = (first["vp"] + first["t"] / group + first["r"] / (group * (group - 1))) / PROMPTS
        predicted[group] = first["steps"] * first["rate"] ** 2 * noise
        measured[group] = along.var(ddof=1)
        rows.append(
            [
                (
                    f"{group} | {len(part)} | {along.mean():.4f} | {measured[group]:.3e} | "
                    f"{predicted[group]:.3e} | {value.var(ddof=1):.3e}"
                )
            ]
        )
    header = (
        "G | runs | mean displacement | its variance, measured | "
        "predicted, nothing fitted | variance of the value"
    )
    print_table("Ten updates of SGD from one start, along the gradient", header, rows)
    ratio = measured[4] / measured[16]
    low, high = ratio_interval(ratio, len(by_group[4]), len(by_group[16]))
    rho = by_group[4][0]["r"] / by_group[4][0]["t"]
    print(
        f"\nG = 4 over G = 16: {ratio:.2f} ({low:.2f} to {high:.2f}), predicted "
        f"{predicted[4] / predicted[16]:.2f}; 1/G alone: 4."
    )
    parts = by_group[4][0]
    print(
        f"Components along the gradient: Vp {parts['vp']:.4g}, T {parts['t']:.4g}, R "
        f"{parts['r']:.4g}; R/T {rho:.2f}."
    )


def ratio_interval(ratio: float, first: int, other: int) -> tuple[float, float]:
    """95 % interval of a ratio of variances of normal numbers."""
    from scipy.stats import f

    return ratio / float(f.ppf(0.975, first - 1, other - 1)), ratio / float(
        f.ppf(0.025, first - 1, other - 1)
    )


def stiffness(rows: Sequence[JsonView]) -> float:
    """The mean K of a run towards reward 1: the fall of log(1 - V) by the integral of the
    effective learning rate.
    """
    step, value = exact_values(rows, "value")
    return float(
        math.log((1 - value[0]) / (1 - value[-1])) / (EFFECTIVE_RATE * (step[-1] - step[0]))
    )


def size_table(runs: PieceTables) -> None:
    """Stiffness by size, and its exponent."""
    rows = []
    points = []
    for size in SIZES:
        if f"start-{size}" not in runs:
            continue
        first = runs[f"start-{size}"][0]
        steep = first["gradient_norm2"] / (1 - first["value"])
        by_group = {
            group: [stiffness(part) for part in seeds(runs, size, group)] for group in GROUPS
        }
        points += [
            (math.log(first["parameters"]), math.log(value)) for value in by_group[16] if value > 0
        ]
        rows.append(
            [
                f"{size} | {first['parameters']:,} | {first['value']:.3f} | {steep:.2f}",
                *(spoken(by_group[group]) for group in GROUPS),
            ]
        )
    header = (
        "size | parameters | accuracy at the start | K at the start, |g|²/(1 - V) | "
        "K of the run, G = 4 | K of the run, G = 16"
    )
    print_table("Stiffness towards reward 1, per unit of learning rate", header, rows)
    if len({place for place, _ in points}) > 1:
        slope, low, high = exponent(points)
        print(
            f"\nExponent of K in the parameters, G = 16: {slope:+.2f} ({low:+.2f} to {high:+.2f}); "
            "tau ~ M^.3 would be -.3."
        )


def exponent(points: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """Slope of a line through points, with its 95 % interval over runs."""
    place, value = np.array(points).T
    centred = place - place.mean()
    slope = float((centred * value).sum() / (centred**2).sum())
    rest = value - value.mean() - slope * centred
    error = math.sqrt(float((rest**2).sum()) / max(1, len(value) - 2) / float((centred**2).sum()))
    reach = student_quantile(0.95, max(1, len(value) - 2)) * error
    return slope, slope - reach, slope + reach
