"""What components do other language models have: Gemma 3 270M, a base model that knows no chat, and
Qwen2.5-Coder-1.5B?

    python lab/experiments/language_models/other_models.py [--tables] [--workers 1] [--minutes 60]
    [--only TEXT]

measures them at the start on three tasks, from one sample of 8 prompts of 8 rollouts, with a LoRA
adapter of rank 16. Gemma is asked behind three examples, in texts ("Question: ...", "Answer:")
whose answer ends with its line; Qwen plainly, in chats. Pieces are in results.txt.
"""

import time

from small_model import (
    PAGE,
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
    task,
)

from groupwise_lab.trainer.file_task import readable_by

PIECES = RESULTS.within("other_models")
# The folder, how it is asked, and what: what is easy for 270 million parameters teaches 1.5 billion
# nothing.
MODELS = {
    "gemma": (
        "gemma3_270m",
        "three_examples",
        ("larger_of_two", "one_digit_sum", "day_of_the_week"),
    ),
    "qwen": ("qwen2_5_coder_1_5b", "zero_shot", ("larger_of_two", "letters", "expressions")),
}


def components_of(model: str, form: str, name: str) -> Rows:
    """Components on one task before any training."""
    began, actor = time.process_time(), policy(model)
    row = components_row(
        *measured(actor, readable_by(actor, task(form, name=name)), prompts=8, group_size=8, seed=0)
    )
    return [row | {"seconds": time.process_time() - began}]


def cells() -> list[Cell]:
    """One a model and a task."""
    return [
        Cell(f"{model}-{name}", components_of, {"model": folder, "form": form, "name": name})
        for model, (folder, form, tasks) in MODELS.items()
        for name in tasks
    ]


def show() -> None:
    """Print the table of what is there."""
    done, rows = PIECES.tables(), []
    for cell in cells():
        for row in done.get(cell.name, []):
            said = (f"{float(row['reward']):.2f}", f"{float(row['informative']):.0%}")
            rows.append(
                [
                    *cell.name.split("-"),
                    *said,
                    *(ranged(row, key) for key in ("vp", "t", "r", "group_size")),
                ]
            )
    head = "model | task | reward | informative groups | Vp | T | R | G*, 95 %"
    print_table("Other models: 8 prompts of 8 rollouts", head, rows)


def main() -> None:
    """Run what is missing and print the table."""
    run_and_show(cells(), PIECES, options(__doc__), show, PAGE)


if __name__ == "__main__":
    main()
