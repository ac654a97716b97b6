"""Long runs of a real language model at two group sizes: which law, how much of the reward it
explains, and does noise fall as 1/G?

    python lab/experiments/language_models/long_runs.py [--tables] [--workers 1] [--minutes 60]
    [--only TEXT]

trains SmolLM2 on the seven days of `dynamics.py`, on policy, from the pretrained start: 400 updates
with groups of 4 or 16 of every prompt, by AdamW at 1e-4 and by SGD with momentum at a tenth of the
largest stable rate, four seeds each. Logged are the sampled reward, its sampling variance, and the
exact value beneath. Pieces are in results.txt; the tables are put into the page.
"""

import numpy as np
import torch
from numpy import ndarray
from small_model import PAGE, RESULTS, Cell, Rows, column, options, print_table, run_and_show

# isort: split
from deep_world import sampled_step
from dynamics import UpdateSettings, days, predicted_edge, stiffest

from groupwise.forecasting.fit import fit
from groupwise.intervals import student_quantile
from groupwise.parsing import JsonObject

PIECES = RESULTS.within("long_runs")
SIZES, SEEDS, UPDATES, MOMENTUM = (4, 16), 4, 400, 0.9
ADAM_RATE, SGD_SHARE = 1e-4, 0.1
LAST = 100  # updates that a run's end is told from
LEVELS = (0.2, 0.3)  # values that every run passes, where the noise of its updates is compared
REACHED = 0.57  # .01 below the value of the fixed point


def optimizer_of(name: str, parameter_D: torch.Tensor) -> torch.optim.Optimizer:
    """AdamW or heavy-ball SGD."""
    if name == "adamw":
        return torch.optim.AdamW(
            [parameter_D], lr=ADAM_RATE, betas=(MOMENTUM, 0.999), weight_decay=0.0
        )
    edge = predicted_edge(UpdateSettings("none", MOMENTUM, 1), float(stiffest(days())[1][0]))
    return torch.optim.SGD([parameter_D], lr=SGD_SHARE * edge, momentum=MOMENTUM)


def run(optimizer: str, group_size: int, seed: int) -> Rows:
    """One run: before each update the sampled reward, its sampling variance, and the exact
    value.
    """
    world, rng, rows = days(), np.random.default_rng([seed, group_size]), []
    parameter_D = world.start_D.clone().requires_grad_()
    chosen = optimizer_of(optimizer, parameter_D)
    for step in range(UPDATES):
        step_D, log_PO, count_PO = sampled_step(world, parameter_D.detach(), None, rng, group_size)
        value_P = (log_PO.exp() * world.reward_PO).sum(1)
        row = {
            "step": step,
            "reward": float((count_PO * world.reward_PO).sum(1).mean() / group_size),
            "value": float(value_P.mean()),
        }
        rows.append(
            row | {"variance": float((value_P * (1 - value_P)).mean() / group_size / len(value_P))}
        )
        parameter_D.grad = -step_D
        chosen.step()
    return rows


def cells() -> list[Cell]:
    """Whole seeds first."""
    return [
        Cell(
            f"long-{optimizer}-G{size}-seed{seed}",
            run,
            {"optimizer": optimizer, "group_size": size, "seed": seed},
        )
        for seed in range(SEEDS)
        for optimizer in ("adamw", "sgd")
        for size in SIZES
    ]


def curve_of(rows: Rows) -> JsonObject:
    """What the logged reward of a run says: the law of the oscillator, the best of all laws, and
    the exact value beneath.
    """
    step_T, reward_T, value_T = (column(rows, name) for name in ("step", "reward", "value"))
    given = {"variance_T": column(rows, "variance"), "smoothing": 1, "healthy": "up"}
    best, oscillator = (
        fit(step_T, reward_T, **given),
        fit(step_T, reward_T, law="oscillator", **given),
    )
    return {
        "law": best.law,
        "raw": oscillator.r_squared,
        "explainable": oscillator.r_squared_explainable,
        "late": value_T[-LAST:].mean(),
        "fluctuation": fresh_noise(value_T),
        "updates": updates_to(value_T, REACHED),
    }


def updates_to(value_T: ndarray, level: float) -> int | None:
    """Updates after which the exact value is at a level for the first time; None where it never
    is.
    """
    there = np.flatnonzero(value_T >= level)
    return int(there[0]) if len(there) else None


def fresh_noise(value_T: ndarray) -> float:
    """Variance of what an update's gradient brings anew, less what momentum carries over, where
    the value passes the levels.
    """
    change_T = np.diff(value_T)
    fresh_T, at_T = change_T[1:] - MOMENTUM * change_T[:-1], value_T[1:-1]
    return np.var(fresh_T[(at_T >= LEVELS[0]) & (at_T < LEVELS[1])])


def show() -> None:
    """Print what each run says, and what the sizes say of each other."""
    done = {name: curve_of(rows) for name, rows in PIECES.tables().items()}
    rows = []
    for cell in cells():
        if cell.name in done:
            seen, given = done[cell.name], cell.arguments
            shares = (
                f"{seen['raw']:.2f}",
                f"{seen['explainable']:.2f}",
                f"{seen['late']:.3f}",
                f"{seen['fluctuation'] ** 0.5:.2e}",
            )
            updates = "not reached" if seen["updates"] is None else str(seen["updates"])
            rows.append(
                [
                    f"{given['optimizer']} | {given['group_size']} | {given['seed']}",
                    seen["law"],
                    *shares,
                    updates,
                ]
            )
    head = (
        (
            "optimiser | G | seed | best law | oscillator: R2, raw | "
            "of what noise leaves | value, last 100 | noise of an update"
        ),
    )
    print_table(
        "Seven days: 400 updates from the pretrained start",
        (*head, f"updates to {REACHED:g}"),
        sorted(rows),
    )
    rows = []
    for optimizer in ("adamw", "sgd"):
        seeds = [
            seed
            for seed in range(SEEDS)
            if all(f"long-{optimizer}-G{size}-seed{seed}" in done for size in SIZES)
        ]
        runs_of_size = {
            size: [done[f"long-{optimizer}-G{size}-seed{seed}"] for seed in seeds] for size in SIZES
        }
        if len(seeds) > 2:
            rows.append(
                [
                    f"{optimizer} | {len(seeds)}",
                    ratio(runs_of_size, "fluctuation"),
                    difference(runs_of_size),
                    ratio(runs_of_size, "updates"),
                ]
            )
    if rows:
        noise, end = (
            "variance of an update's noise, G = 4 over 16 (1/G: 4)",
            "value at the end, G = 16 less 4",
        )
        head = ("optimiser | seeds", noise, end, f"updates to {REACHED:g}, G = 4 over 16")
        print_table("Seven days: what the group size changes", head, rows)


def paired(runs_of_size: dict[int, Rows], name: str) -> tuple[ndarray, ...]:
    """A number of every run, by group size."""
    return tuple(column(runs_of_size[size], name) for size in SIZES)


def over_seeds(value_S: ndarray) -> tuple[float, float, float]:
    """The mean over seeds and Student's 95 % interval: four seeds tell no skewness."""
    half = student_quantile(0.95, len(value_S) - 1) * value_S.std(ddof=1) / len(value_S) ** 0.5
    return value_S.mean(), value_S.mean() - half, value_S.mean() + half


def ratio(runs_of_size: dict[int, Rows], name: str) -> str:
    """How many times the smaller group's number is the larger one's, over seeds; where a run has
    none, that is said.
    """
    if any(run[name] is None for size in SIZES for run in runs_of_size[size]):
        return "not reached"
    small, large = paired(runs_of_size, name)
    value, low, high = np.exp(over_seeds(np.log(small / large)))
    return f"{value:.2f} ({low:.2f} to {high:.2f})"


def difference(runs_of_size: dict[int, Rows]) -> str:
    """What the larger group earns more in the end, over seeds."""
    small, large = paired(runs_of_size, "late")
    value, low, high = over_seeds(large - small)
    return f"{value:.3f} ({low:.3f} to {high:.3f})"


def main() -> None:
    """Run what is missing and print the tables."""
    run_and_show(cells(), PIECES, options(__doc__), show, PAGE)


if __name__ == "__main__":
    main()
