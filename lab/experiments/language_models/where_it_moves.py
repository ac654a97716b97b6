"""What moves the best group size of a real language model: the updates behind it, the task, the
adapter's rank, the layers?

    python lab/experiments/language_models/where_it_moves.py [--tables] [--workers 1] [--minutes 60]
    [--only TEXT]

Components of SmolLM2 from 16 prompts of 16 rollouts each: every five updates of a run at G = 8 in
both formats; at the start on six tasks in both formats; after five updates with adapters of rank 4
and 64, and of the adapter on a third of the layers alone (before any, B is 0 and the gradient of
every adapter a random projection of that of the weights: rank and layers could not show anything).
Pieces are in results.txt; the table of lab/docs/studies/language-models.md is printed.
"""

import tempfile
from pathlib import Path

from small_model import (
    FORMATS,
    PAGE,
    RANK,
    RESULTS,
    Cell,
    Rows,
    components_row,
    measured,
    options,
    policy,
    print_table,
    ranged,
    run_and_show,
    settings,
    task,
)

from groupwise_lab.trainer.grpo import train

PIECES = RESULTS.within("where_it_moves")
TASKS = ("larger_of_two", "one_digit_sum", "day_of_the_week", "sort_three", "letters", "format")
# Of the adapter alone, on thirty layers counted from 0.
LAYERS = {
    "first": "*layers.?.*lora_*",
    "middle": "*layers.1?.*lora_*",
    "last": "*layers.2?.*lora_*",
}
PROMPTS, GROUP_SIZE, STEPS, EVERY, RATE = 16, 16, 15, 5, 3e-4


def start(form: str, name: str) -> Rows:
    """Components before any training."""
    estimate = measured(
        policy(), task(form, name=name), prompts=PROMPTS, group_size=GROUP_SIZE, seed=1
    )
    return [{"step": 0} | components_row(*estimate)]


def trained(rank: int = RANK, parameters: str | None = None) -> Rows:
    """Components after five updates behind examples, of an adapter of some rank, or of a part of
    one.
    """
    actor, world = policy(rank=rank), task("three_examples")
    with tempfile.TemporaryDirectory() as home:
        train(actor, world, settings("adamw", RATE, 8, 0, EVERY), output=Path(home) / "run")
    estimate = measured(
        actor, world, prompts=PROMPTS, group_size=GROUP_SIZE, seed=1, parameters=parameters
    )
    return [{"step": EVERY} | components_row(*estimate)]


def along(form: str) -> Rows:
    """Components of a run at the start and every five updates."""
    actor, world = policy(), task(form)
    rows = []

    def look(step: int, _logged=None) -> None:
        if step % EVERY == 0:
            estimate = measured(actor, world, prompts=PROMPTS, group_size=GROUP_SIZE, seed=1)
            rows.append({"step": step} | components_row(*estimate))

    look(0)
    with tempfile.TemporaryDirectory() as home:
        train(
            actor,
            world,
            settings("adamw", RATE, 8, 0, STEPS),
            output=Path(home) / "run",
            on_step=look,
        )
    return rows


def cells() -> list[Cell]:
    """What moves most comes first."""
    runs = [Cell(f"along-{form}", along, {"form": form}) for form in reversed(FORMATS)]
    tasks = [
        Cell(f"task-{name}-{form}", start, {"form": form, "name": name})
        for form in reversed(FORMATS)
        for name in TASKS
    ]
    ranks = [Cell(f"rank-{rank}", trained, {"rank": rank}) for rank in (4, 64)]
    layers = [
        Cell(f"layers-{name}", trained, {"parameters": parameters})
        for name, parameters in LAYERS.items()
    ]
    return [*runs, *tasks, *ranks, *layers]


def show() -> None:
    """Print what is there, a table a version of the code."""
    done, versions = PIECES.tables(), PIECES.versions()
    head = "what | updates | reward | informative groups | Vp | T | R | G*, 95 %"
    for version in dict.fromkeys(versions[cell.name] for cell in cells() if cell.name in done):
        rows = [
            [
                f"{cell.name} | {row['step']} | {float(row['reward']):.2f}",
                f"{float(row['informative']):.0%}",
                *(ranged(row, key) for key in ("vp", "t", "r", "group_size")),
            ]
            for cell in cells()
            if versions.get(cell.name) == version
            for row in done[cell.name]
        ]
        title = "What moves the best group size: 16 prompts of 16 rollouts"
        print_table(f"{title}, code of {version}", head, rows)


def main() -> None:
    """Run what is missing and print the table."""
    run_and_show(cells(), PIECES, options(__doc__), show, PAGE)


if __name__ == "__main__":
    main()
