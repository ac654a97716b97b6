"""What only a large GPU can run of the experiments on language models, by priority: `make gpu`
stops at a given time and goes on later.

    GROUPWISE_DEVICE=cuda python lab/experiments/language_models/gpu.py [--minutes 25] [--only TEXT]
    [--tables]

(i) `best_group_size.py` with 512 rollouts of 64 tokens at G = 2 to 64, components before them, and
with 128 of 14 tokens in six seeds, each format at the learning rate of its pilot; (ii) the sampled
runs of `dynamics.py` with groups of 64, which leave a card nothing to do. The first seed of all
comes before the second of any. A piece that fails is told, and none begins when less time is left
than the last of its kind took. Pieces are in results.txt; the tables of what is there are put into
the page.
"""

import torch
from best_group_size import PIECES as STUDY
from best_group_size import (
    SIZES,
    SizeStudy,
    prediction,
    rate_of,
    run_cells,
    show_predictions,
    show_runs,
)
from dynamics import sampled_cells, show_sampled
from small_model import (
    DEVICE,
    FORMATS,
    PAGE,
    RESULTS,
    Cell,
    options,
    printed,
    refresh,
    run_asked,
    say_missing,
)

from groupwise.gradients.language_models import models_home

PIECES = RESULTS.within("gpu")
PROBLEMS = "GROUPWISE_GSM8K"
TOKENS, ROLLOUTS, PASS = 64, 512, 128
MANY = SizeStudy(
    name="N512",
    said=f", {ROLLOUTS} rollouts of {TOKENS} tokens",
    sizes=(*SIZES, 64),
    given={"completion_length": TOKENS, "rollouts_per_step": ROLLOUTS, "micro_batch": PASS},
)
MORE = SizeStudy(name="N128", said=", 128 rollouts", seeds=6, given={"rollouts_per_step": 128})
GROUP = 64  # completions of each of the seven days


def cells() -> list[Cell]:
    """All pieces, by priority."""
    pilot = STUDY.tables()
    rates = {form: rate_of("adamw", form, pilot) for form in FORMATS}
    before = [
        Cell(
            f"prediction-{form}", prediction, {"form": form, "seed": 0, "completion_length": TOKENS}
        )
        for form in FORMATS
    ]
    runs = [
        cell
        for grid in (MANY, MORE)
        for form, rate in rates.items()
        if rate is not None
        for cell in run_cells("adamw", form, rate, grid)
    ]
    runs += sampled_cells(GROUP)
    first = [cell for cell in runs if cell.arguments["seed"] == 0]
    later = sorted(
        (cell for cell in runs if cell.arguments["seed"]),
        key=lambda cell: int(cell.arguments["seed"]),
    )
    return [*before, *first, *later]


def lacking(cell: Cell) -> str:
    """What a piece needs and this machine does not have; nothing where it has all."""
    sampled = cell.name.startswith("sampled")
    if not sampled and DEVICE.startswith("cuda") and not torch.cuda.is_available():
        return f"GROUPWISE_DEVICE is {DEVICE}, and there is no such GPU"
    if not (models_home() / "smollm2").is_dir():
        fetch = "`python scripts/fetch_model.py smollm2` fetches"
        return f"{models_home()} has no smollm2, which {fetch}"
    return ""


def show() -> None:
    """Print the tables of what is there."""
    done = PIECES.tables()
    kinds = {name.split("-")[0] for name in done}
    if "prediction" in kinds:
        show_predictions(done, f" of {TOKENS} tokens")
    if MANY.name in kinds:
        show_runs(done, MANY)
    if MORE.name in kinds:
        show_runs(
            done
            | {
                name: rows for name, rows in STUDY.tables().items() if name.startswith("prediction")
            },
            MORE,
        )
    if "sampled" in kinds:
        show_sampled(done, GROUP)


def main() -> None:
    """Run what is missing until the time is over, and print the tables."""
    asked, every = options(__doc__), cells()
    for reason in dict.fromkeys(filter(None, map(lacking, every))):
        kinds = dict.fromkeys(cell.name.split("-")[0] for cell in every if lacking(cell) == reason)
        print(f"{reason}: left out are the pieces {', '.join(kinds)}.")
    run_asked([cell for cell in every if not lacking(cell)], PIECES, asked)
    refresh(PAGE, printed(show))
    say_missing(every, PIECES)


if __name__ == "__main__":
    main()
