"""Is the group size that components predict the one that learns best, in a real language model?

    python lab/experiments/language_models/best_group_size.py [--tables] [--workers 1] [--minutes
    60] [--only TEXT]

runs what is missing of: components at the start, in both formats, from one sample of 32 prompts of
16 rollouts; a pilot at G = 8 that chooses one learning rate for each format and optimiser; runs of
25 updates of 64 rollouts at G = 2 to 32, three seeds: AdamW in both formats, SGD behind three
examples. The yardstick is the area under the curve of the reward on held-out problems. Pieces, each
of five to ten minutes of a core, are in results/best_group_size; the tables of
lab/docs/studies/language-models.md are printed.
"""

import math
import re
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
from scipy.stats import friedmanchisquare, ttest_rel
from small_model import (
    FORMATS,
    HELD_OUT,
    PAGE,
    RESULTS,
    Cell,
    Rows,
    components_row,
    held_out_reward,
    measured,
    options,
    policy,
    print_table,
    printed,
    ranged,
    refresh,
    run_asked,
    say_missing,
    settings,
    task,
)

from groupwise.comparison.compare import holm
from groupwise.intervals import student_quantile
from groupwise.parsing import JsonObject, JsonView
from groupwise_lab.trainer.grpo import train

PIECES = RESULTS.within("best_group_size")
SIZES = (2, 4, 8, 16, 32)
SEEDS = 3
STEPS, EVERY = 25, 5
PILOT_STEPS, PILOT_SEED = 15, 1000
PILOT_RATES = {"adamw": (1e-4, 3e-4, 1e-3), "sgd": (0.003, 0.01, 0.03)}
LEAST_GAIN = 0.1  # twice the standard error of the difference of two looks at 192 completions
STUDIES = (("adamw", "three_examples"), ("adamw", "zero_shot"), ("sgd", "three_examples"))


@dataclass(frozen=True)
class SizeStudy:
    """Runs that are compared, and what of them is not as in the study of 64 rollouts."""

    name: str = "run"  # before the names of their pieces
    said: str = ""  # behind the titles of their tables
    sizes: tuple[int, ...] = SIZES
    seeds: int = SEEDS
    given: JsonView = field(default_factory=dict)  # to `curve`


OWN = SizeStudy()


def prediction(
    form: str,
    seed: int,
    prompts: int = 32,
    group_size: int = 16,
    completion_length: int | None = None,
) -> Rows:
    """Components before any training, and the group size that they call best."""
    began, world = time.process_time(), task(form, completion_length=completion_length)
    measurement, rolled = measured(
        policy(), world, prompts=prompts, group_size=group_size, seed=seed
    )
    row = components_row(measurement, rolled)
    return [row | {"seconds": time.process_time() - began}]


def curve(
    optimizer: str,
    form: str,
    rate: float,
    group_size: int,
    seed: int,
    steps: int = STEPS,
    completion_length: int | None = None,
    **others,
) -> Rows:
    """One run: the reward on held-out problems every five updates, and what each update saw."""
    actor, world = policy(), task(form, completion_length=completion_length)
    rows = []
    spent, began = 0.0, time.process_time()

    def measure(step: int, logged: JsonObject) -> None:
        nonlocal spent, began
        spent += time.process_time() - began
        held_out = held_out_reward(actor, world) if step % EVERY == 0 else ""
        kept = {
            name: logged.get(name, "")
            for name in ("reward", "entropy", "gradient_norm", "dead_share", "completion_length")
        }
        rows.append({"step": step, "held_out": held_out, **kept, "seconds": spent})
        began = time.process_time()

    measure(0, {})
    with tempfile.TemporaryDirectory() as home:
        chosen = settings(optimizer, rate, group_size, seed, steps, **others)
        train(
            actor,
            world,
            chosen,
            output=Path(home) / "run",
            on_step=lambda step, row: measure(step, dict(row)),
        )
    return rows


def pilot_cells(optimizer: str, form: str) -> list[Cell]:
    """The runs that choose a learning rate."""
    return [
        Cell(
            f"pilot-{optimizer}-{form}-{rate:g}",
            curve,
            {
                "optimizer": optimizer,
                "form": form,
                "rate": rate,
                "group_size": 8,
                "seed": PILOT_SEED,
                "steps": PILOT_STEPS,
            },
        )
        for rate in PILOT_RATES[optimizer]
    ]


def area(rows: Rows) -> float:
    """Mean of the held-out reward over the updates, by trapezoids."""
    points = [(float(row["step"]), float(row["held_out"])) for row in rows if row["held_out"] != ""]
    total = sum(
        (later[0] - first[0]) * (first[1] + later[1]) / 2 for first, later in pairwise(points)
    )
    return total / points[-1][0]


def rate_of(optimizer: str, form: str, done: dict[str, Rows]) -> float | None:
    """The learning rate of the largest area in the pilot; None while the pilot is not done."""
    pilots = {cell.arguments["rate"]: done.get(cell.name) for cell in pilot_cells(optimizer, form)}
    return None if None in pilots.values() else max(pilots, key=lambda rate: area(pilots[rate]))


def run_cells(optimizer: str, form: str, rate: float, grid: SizeStudy = OWN) -> list[Cell]:
    """The runs of a study, whole seeds first."""
    return [
        Cell(
            f"{grid.name}-{optimizer}-{form}-G{size}-seed{seed}",
            curve,
            {
                "optimizer": optimizer,
                "form": form,
                "rate": rate,
                "group_size": size,
                "seed": seed,
                **grid.given,
            },
        )
        for seed in range(grid.seeds)
        for size in grid.sizes
    ]


@cache
def always_the_first() -> float:
    """The held-out reward of naming the first number, whatever the numbers are."""
    asked = task("zero_shot").held_out[:HELD_OUT]
    return sum(
        re.findall(r"\d+", str(problem.prompt[-1]))[0] == problem.answer for problem in asked
    ) / len(asked)


def caught(reward: float) -> bool:
    """Whether a held-out reward is that of naming the first number always, or the second."""
    first = always_the_first()
    return min(abs(reward - share) for share in (first, 1 - first)) < 0.02


def ending(rows: Rows) -> str:
    """The last held-out reward, in brackets where the run is caught."""
    last = float(rows[-1]["held_out"])
    return f"({last:.2f})" if caught(last) else f"{last:.2f}"


def expected_excess(row: JsonView, sizes: Sequence[int]) -> np.ndarray:
    """By how much the law expects the error of each size to exceed that of the best of the grid."""
    vp, t, r = (max(float(row[name]), 0.0) for name in ("vp", "t", "r"))
    size = np.array(sizes)
    error = vp * size + t + r / (size - 1)
    return error / error.min() - 1


def learnt(runs: Iterable[Rows]) -> bool:
    """Whether any run ends above where it began by more than two looks at one policy differ: if
    none does, no size was tested.
    """
    return any(
        float(rows[-1]["held_out"]) - float(rows[0]["held_out"]) > LEAST_GAIN for rows in runs
    )


def paired(areas_SG: np.ndarray, place: int) -> list[tuple[float, float, float]]:
    """Each size's area less that of one, over the same seeds: mean, half a 95 % interval, p."""
    less = areas_SG - areas_SG[:, [place]]
    half = student_quantile(0.95, len(less) - 1.0) * less.std(axis=0, ddof=1) / len(less) ** 0.5
    p_value = ttest_rel(areas_SG, areas_SG[:, [place]]).pvalue
    return list(zip(less.mean(axis=0).tolist(), half.tolist(), p_value.tolist(), strict=True))


def runs_of(
    done: dict[str, Rows], optimizer: str, form: str, grid: SizeStudy = OWN
) -> dict[int, dict[int, Rows]]:
    """The runs that are there, by seed and group size."""
    name = f"{grid.name}-{optimizer}-{form}-G{{}}-seed{{}}".format
    there = {
        seed: {size: done[name(size, seed)] for size in grid.sizes if name(size, seed) in done}
        for seed in range(grid.seeds)
    }
    return {seed: runs for seed, runs in there.items() if runs}


def show_runs(done: dict[str, Rows], grid: SizeStudy = OWN) -> None:
    """Print what the runs came to."""
    areas, ends, lines, p_values = [], [], [], []
    for optimizer, form in STUDIES:
        runs_of_size = runs_of(done, optimizer, form, grid)
        if not learnt(rows for runs in runs_of_size.values() for rows in runs.values()):
            continue
        for seed, runs in runs_of_size.items():
            areas.append(
                [
                    f"{optimizer} | {form} | {seed}",
                    *(f"{area(runs[size]):.3f}" if size in runs else "" for size in grid.sizes),
                ]
            )
            ends.append(
                [
                    f"{optimizer} | {form} | {seed}",
                    *(ending(runs[size]) if size in runs else "" for size in grid.sizes),
                ]
            )
        whole = np.array(
            [
                [area(runs[size]) for size in grid.sizes]
                for runs in runs_of_size.values()
                if len(runs) == len(grid.sizes)
            ]
        )
        if len(whole) < 2 or f"prediction-{form}" not in done:
            continue
        excess = expected_excess(done[f"prediction-{form}"][0], grid.sizes)
        best = int(excess.argmin())
        friedman = friedmanchisquare(*whole.T).pvalue if len(whole) > 2 else math.nan
        for place, (less, half, p_value) in enumerate(paired(whole, best)):
            size, mean = grid.sizes[place], whole[:, place].mean()
            line = (
                f"{optimizer} | {form} | {len(whole)} | {size} | {excess[place]:.0%} | {mean:.3f}"
            )
            if place == best:
                lines.append(f"{line} | its best | | | {friedman:.2f}")
                continue
            p_values.append(p_value)
            lines.append(f"{line} | {less:+.2f} ± {half:.2f} | {p_value:.2f} | {{}} |")
    adjusted = iter(f"{p_value:.2f}" for p_value in holm(p_values))
    lines = [line.format(next(adjusted)) if "{}" in line else line for line in lines]
    sizes = tuple(f"G = {size}" for size in grid.sizes)
    print_table(
        f"Area under the held-out reward, 25 updates{grid.said}",
        ("optimiser | format | seed", *sizes),
        areas,
    )
    print_table(
        f"Held-out reward after 25 updates{grid.said}", ("optimiser | format | seed", *sizes), ends
    )
    head = (
        "optimiser | format | seeds | G | error over the law's best | area | less that of its best"
    )
    print_table(
        f"What the law expects, and areas paired by seed{grid.said}",
        f"{head} | p | p of {len(p_values)} looks | Friedman's p",
        lines,
    )


def show_predictions(done: dict[str, Rows], said: str = "") -> None:
    """Print what the components say before any training."""
    first = [
        (form, done[f"prediction-{form}"][0]) for form in FORMATS if f"prediction-{form}" in done
    ]
    keys = ("vp", "t", "r", "group_size")
    rows = [
        [
            f"{form} | {float(row['reward']):.2f} | {float(row['informative']):.0%}",
            *(ranged(row, key) for key in keys),
        ]
        for form, row in first
    ]
    print_table(
        f"Before training: 32 prompts of 16 rollouts{said}",
        "format | reward | informative groups | Vp | T | R | G*, 95 %",
        rows,
    )


def show() -> None:
    """Print the tables of what is there."""
    done = PIECES.tables()
    show_predictions(done)
    rows = [
        [(f"{optimizer} | {form} | {cell.arguments['rate']:g} | {area(done[cell.name]):.3f}")]
        for optimizer, form in STUDIES
        for cell in pilot_cells(optimizer, form)
        if cell.name in done
    ]
    print_table("Pilot: G = 8, 15 updates", "optimiser | format | learning rate | area", rows)
    show_runs(done)


def main() -> None:
    """Run what is missing and print the tables."""
    asked, began = options(__doc__), time.perf_counter()
    minutes = asked.minutes
    cells = []
    for optimizer, form in STUDIES:
        before = [*pilot_cells(optimizer, form)]
        if optimizer == "adamw":
            before.append(Cell(f"prediction-{form}", prediction, {"form": form, "seed": 0}))
        cells += before
        run_asked(before, PIECES, asked)
    whole = [(study, rate_of(*study, PIECES.tables())) for study in STUDIES]
    runs = [cell for study, rate in whole if rate is not None for cell in run_cells(*study, rate)]
    runs.sort(key=lambda cell: cell.arguments["seed"])  # every study's first seed before the second
    asked.minutes = minutes - (time.perf_counter() - began) / 60
    run_asked(runs, PIECES, asked)
    refresh(PAGE, printed(show))
    say_missing([*cells, *runs], PIECES)


if __name__ == "__main__":
    main()
