"""How does stiffness grow with the size of a language model? SmolLM2, Gemma and Qwen from matched
places.

    python lab/experiments/language_models/stiffness_of_models.py [--tables] [--workers 1]
    [--minutes 60] [--only TEXT]

takes the seven days of `dynamics.py` to three models of 135 million to 1.5 billion parameters, each
with an adapter of rank 4 on its last six layers, drawn three times. The reward is chosen for each
so that the best of all policies is the same: .58 for the right day, .07 for each other. There the
stiffness is known from scores, and measured by Lanczos and by a kick. Pieces are in
results/stiffness; the tables are put into the page.
"""

import time

import numpy as np
from dynamics import ListedWorld, days, kick_along, modes_of_scores, settled
from small_model import PAGE, RESULTS, Cell, Rows, options, print_table, run_and_show
from truth import curvature, leading_modes

from groupwise.intervals import student_quantile

PIECES = RESULTS.within("stiffness")
MODELS = ("smollm2", "gemma3_270m", "qwen2_5_coder_1_5b")
SEEDS, EARNED = 3, 0.58  # what the best policy gives to the right day: SmolLM2's of `dynamics.py`


def matched(world: ListedWorld) -> ListedWorld:
    """The same world with the reward whose best policy is the same in every model: .58 for the
    right day, .07 for each other.
    """
    other = (1 - EARNED) / (world.reward_PO.shape[1] - 1)
    wanted_PO = other + (EARNED - other) * world.reward_PO
    world.reward_PO = world.loss.kl_weight * (wanted_PO.log() - world.reference_PO)
    return world


def stiffness(name: str, seed: int) -> Rows:
    """The stiffest mode at the matched place, three ways, and all modes by scores."""
    began, world = time.process_time(), days(name, seed)
    start = float(world.value(world.reference_PO))
    matched(world)
    rest = settled(world)
    point_D, score_MD = rest[0], rest[1:]
    value_K, direction_KD = modes_of_scores(world, score_MD)
    lanczos = leading_modes(curvature(world, point_D), len(point_D), 1, tolerance=1e-3)
    kick_D = kick_along(direction_KD[0], float(value_K[0]), world.loss.kl_weight)
    apart_D = world.update(point_D - kick_D)[0] - world.update(point_D + kick_D)[0]
    row = {
        "model": name,
        "parameters": world.size,
        "adapter": len(point_D),
        "listed": world.listed_P.mean(),
        "start": start,
        "scores": value_K[0],
        "lanczos": lanczos.value_K[0],
        "kick": float(apart_D @ kick_D / (2 * kick_D @ kick_D)),
        "trace": float(value_K.sum()),
    }
    return [row | {"softest": value_K[-1], "seconds": time.process_time() - began}]


def cells() -> list[Cell]:
    """One a model and a draw of its adapter."""
    return [
        Cell(f"stiffness-{name}-seed{seed}", stiffness, {"name": name, "seed": seed})
        for seed in range(SEEDS)
        for name in MODELS
    ]


def exponent(rows: Rows, key: str) -> str:
    """The power of the model's size with which a number grows; its 95 % interval is the wider one
    of two.

    One is over models, about their line. Three points may lie on a line by luck, so it is no
    narrower than the one that the draws of the adapters leave, whose scatter about their model is
    taken for the same in all.
    """
    models = sorted({float(row["parameters"]) for row in rows})
    draws = [
        np.array([np.log(float(row[key])) for row in rows if float(row["parameters"]) == model])
        for model in models
    ]
    log_M = np.array([draw.mean() for draw in draws])
    count_M = np.array(list(map(len, draws)))
    centred = np.log(models) - np.log(models).mean()
    slope, more = float(centred @ log_M / (centred @ centred)), int((count_M - 1).sum())
    if len(models) < 3 or not more:
        return f"{slope:.2f}, from {len(models)} models"
    left = log_M - log_M.mean() - slope * centred
    of_models = student_quantile(0.95, len(models) - 2) * np.sqrt(
        left @ left / (len(models) - 2) / (centred @ centred)
    )
    scatter = sum(float(((draw - draw.mean()) ** 2).sum()) for draw in draws) / more
    of_draws = (
        student_quantile(0.95, more)
        * np.sqrt(scatter * (centred**2 / count_M).sum())
        / (centred @ centred)
    )
    spread = float(max(of_models, of_draws))
    return f"{slope:.2f} ({slope - spread:.2f} to {slope + spread:.2f})"


def show() -> None:
    """Print the tables of what is there."""
    done = PIECES.tables()
    rows = [row for cell in cells() for row in done.get(cell.name, [])]
    keys = ("listed", "start", "scores", "lanczos", "kick", "trace", "softest")
    lines = [
        [
            (f"{row['model']} | {float(row['parameters']) / 1e6:,.0f} M | {int(row['adapter']):,}"),
            *(f"{float(row[key]):.4g}" for key in keys),
        ]
        for row in sorted(rows, key=lambda row: float(row["parameters"]))
    ]
    head = (
        "model | size | free | listed | right at the start | K by scores | "
        "by Lanczos | by a kick | all modes | softest"
    )
    print_table("Stiffness of three models where they give the right day .58", head, lines)
    if len({row["model"] for row in rows}) > 1:
        said = [
            ["stiffest mode, K", exponent(rows, "scores")],
            ["all modes", exponent(rows, "trace")],
        ]
        print_table(
            "Power of the model's size",
            "of | exponent, 95 % over models or draws, the wider one",
            said,
        )


def main() -> None:
    """Run what is missing and print the tables."""
    run_and_show(cells(), PIECES, options(__doc__), show, PAGE)


if __name__ == "__main__":
    main()
