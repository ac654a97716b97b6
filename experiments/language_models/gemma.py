"""What components does Gemma 3 270M have, a base model that knows no chat?

    python experiments/language_models/gemma.py [--tables] [--workers 1] [--minutes 60] [--only TEXT]

measures them at the start on three tasks behind three examples, from one sample of 8 prompts of 8 rollouts, with a LoRA adapter of rank
16. Prompts are texts ("Question: ...", "Answer:"), and an answer ends with its line. Pieces are in results/gemma.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "u_statistic"))  # the runner of cells

from cells import Cell, Rows, options, pieces, print_table, run_and_show  # noqa: E402
from small_model import PAGE, measured, policy, ranged, task, told  # noqa: E402

from groupwise.trainer.file_task import readable_by  # noqa: E402

FOLDER = HERE / "results" / "gemma"
SCRIPT = "experiments/language_models/gemma.py"
TASKS = ("larger_of_two", "one_digit_sum", "day_of_the_week")


def components_of(name: str) -> Rows:
    """Components on one task before any training."""
    began, actor = time.process_time(), policy("gemma3_270m")
    found = told(*measured(actor, readable_by(actor, task("three_examples", name=name)), prompts=8, group_size=8, seed=0))
    return [found | {"seconds": time.process_time() - began}]


def cells() -> list[Cell]:
    """One a task."""
    return [Cell(f"gemma-{name}", components_of, {"name": name}) for name in TASKS]


def show() -> None:
    """Print the table of what is there."""
    done, rows = pieces(FOLDER), []
    for name in TASKS:
        for row in done.get(f"gemma-{name}", []):
            share = f"{float(row['informative']):.0%}"
            rows.append([name, f"{float(row['reward']):.2f}", share, *(ranged(row, key) for key in ("vp", "t", "r", "group_size"))])
    head = ("task", "reward", "informative groups", "Vp", "T", "R", "G*, 95 %")
    print_table("Gemma 3 270M behind three examples: 8 prompts of 8 rollouts", head, rows)


def main() -> None:
    """Run what is missing and print the table."""
    run_and_show(cells(), FOLDER, SCRIPT, options(__doc__), show, PAGE)


if __name__ == "__main__":
    main()
