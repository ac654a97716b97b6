"""Does the error of one gradient of a real language model follow the theory's law in G?

    python lab/experiments/language_models/gradient_error.py [--tables] [--workers 1] [--minutes 60]
    [--only TEXT]

scores 64 rollouts of each of 24 prompts once, in both formats, by sketches. Disjoint groups of G =
2 to 32 of them are samples of the gradient that a prompt gives, whose variance is measured for four
baselines: V(x) (the mean of 512 more rollouts stands for it), leave-one-out, none, and division by
the group's deviation. The law: leave-one-out exceeds V(x) by R/(G(G-1)) a prompt. Pieces are in
results/gradient_error; the tables of lab/docs/studies/language-models.md are printed.
"""

import time

import numpy as np
from numpy import ndarray
from small_model import (
    FORMATS,
    MEMORY,
    PAGE,
    RESULTS,
    Cell,
    Rows,
    options,
    policy,
    print_table,
    roll,
    run_and_show,
    task,
)

from groupwise.estimators.moments import MOMENTS, moments_of_scores
from groupwise.gradients.scores import score_sketch
from groupwise.intervals import mean_interval, ratio_interval, student_quantile
from groupwise_lab.trainer.credit import score_batch

PIECES = RESULTS.within("gradient_error")
SIZES, ROLLOUTS, PROMPTS, PIECE, SHUFFLES = (2, 4, 8, 16, 32), 64, 24, 6, 200
WIDTH = 16384  # of the sketches: inner products within 1 % of a trace
VALUE_ROLLOUTS = 512  # more of a prompt, not scored, whose mean reward stands for V(x)
BASELINES = ("value", "leave_one_out", "none", "std")
MEASURED = ("remainder", "score_norm2", "kappa", "mean")


def advantages(reward_JG: ndarray, value: float) -> dict[str, ndarray]:
    """What each baseline multiplies the scores of every group with; the division by the
    deviation is TRL's, with 1e-4.
    """
    mean, size = reward_JG.mean(1, keepdims=True), reward_JG.shape[1]
    centred = reward_JG - mean
    deviation = reward_JG.std(1, ddof=1, keepdims=True)
    return {
        "value": reward_JG - value,
        "leave_one_out": centred * size / (size - 1),
        "none": reward_JG,
        "std": centred / (deviation + 1e-4),
    }


def variances(
    gram_MM: ndarray, reward_M: ndarray, value: float, size: int, rng: np.random.Generator
) -> dict[str, float]:
    """Variance of a group's gradient under each baseline: that between disjoint groups, over
    many ways to make them.
    """
    groups, sums = len(reward_M) // size, dict.fromkeys(BASELINES, 0.0)
    for _ in range(SHUFFLES):
        order = rng.permutation(len(reward_M))[: groups * size].reshape(groups, size)
        gram = gram_MM[np.ix_(order.ravel(), order.ravel())].reshape(groups, size, groups, size)
        for name, weight in advantages(reward_M[order], value).items():
            products = np.einsum("ag,agbh,bh->ab", weight, gram, weight) / size**2
            spread = np.trace(products) - products.sum() / groups
            sums[name] += spread / (groups - 1) / SHUFFLES
    return sums


def piece(form: str, number: int) -> Rows:
    """Some prompts: what one gradient varies by, and the components that predict it."""
    began = time.process_time()
    actor, world = policy(), task(form)
    chosen = np.random.default_rng([7, number]).choice(len(world.train), size=PIECE, replace=False)
    problems = [world.train[place] for place in chosen]
    scored = roll(actor, world, problems, ROLLOUTS, seed=100 + number)
    value_P = (
        roll(actor, world, problems, VALUE_ROLLOUTS, seed=200 + number)
        .reward_N.reshape(PIECE, -1)
        .mean(1)
    )
    batch = score_batch(
        actor, scored.prompt_PL, scored.sampled.completion_NL, scored.sampled.mask_NL
    )
    sketch = score_sketch(actor.model, batch, width=WIDTH, memory_limit=MEMORY).sketch_NK.astype(
        np.float64
    )
    label_N = np.repeat(np.arange(PIECE), ROLLOUTS)
    moment_PC = moments_of_scores(sketch, scored.reward_N, label_N).moment_PC
    rng, rows = np.random.default_rng([8, number]), []
    for prompt, value in enumerate(value_P):
        own = slice(prompt * ROLLOUTS, (prompt + 1) * ROLLOUTS)
        moments = dict(zip(MOMENTS, moment_PC[prompt], strict=True))
        for size in SIZES:
            row = {
                "prompt": int(chosen[prompt]),
                "group_size": size,
                "value": value,
                "mean": scored.reward_N[own].mean(),
            }
            row |= {
                name: moments[name]
                for name in (
                    "oracle_variance",
                    "remainder",
                    "score_norm2",
                    "kappa",
                    "reward_variance",
                )
            }
            rows.append(
                row
                | variances(
                    sketch[own] @ sketch[own].T, scored.reward_N[own], float(value), size, rng
                )
            )
    rows[0]["seconds"] = time.process_time() - began
    return [{**row, "seconds": row.get("seconds", "")} for row in rows]


def cells() -> list[Cell]:
    """Both formats in turn, so that neither waits for the other."""
    return [
        Cell(f"{form}-{number}", piece, {"form": form, "number": number})
        for number in range(PROMPTS // PIECE)
        for form in reversed(FORMATS)
    ]


def show() -> None:
    """Print the laws beside what was measured: means over prompts, with intervals over them."""
    done = PIECES.tables()
    rows, plain = [], []
    for form in FORMATS:
        every = [
            row for name, rows in done.items() if name.rsplit("-", 1)[0] == form for row in rows
        ]
        for size in SIZES:
            own = [row for row in every if int(row["group_size"]) == size]
            if len(own) > 1:
                column = {
                    name: np.array([float(row[name]) for row in own])
                    for name in (*BASELINES, *MEASURED)
                }
                excess, law = (
                    column["leave_one_out"] - column["value"],
                    column["remainder"] / (size * (size - 1)),
                )
                cells = [column[name].mean() for name in BASELINES] + [excess.mean(), law.mean()]
                shown = [f"{cell:.3g}" for cell in cells] + [
                    interval(excess - law),
                    ratio(excess, law),
                ]
                rows.append([f"{form} | {len(own)} | {size}", *shown])
        if every:
            plain.append([f"{form} | {len(column['none'])}", *without_baseline(column, SIZES[-1])])
    head = (
        "format | prompts | G | V(x) | leave-one-out | none | std | excess | "
        "R/(G(G-1)) | difference, 95 % | ratio, 95 %"
    )
    print_table("Variance of one prompt's gradient", head, rows)
    head = (
        "format | prompts | kappa, 95 % | V^2 S + 2 V kappa | "
        "G times the excess, 95 % | difference, 95 %"
    )
    print_table("No baseline against V(x)", head, plain)


def interval(value_P: ndarray) -> str:
    """A mean over prompts with its interval."""
    interval = mean_interval(value_P, level=0.95)
    return f"{interval.value:.2g} ({interval.low:.2g} to {interval.high:.2g})"


def ratio(excess_P: ndarray, law_P: ndarray) -> str:
    """The mean excess over what the law says, with an interval over prompts that knows how the
    two move together.
    """
    freedom = len(excess_P) - 1
    covariance = np.cov(excess_P, law_P) / len(excess_P)
    ratio = ratio_interval(
        excess_P.mean(), law_P.mean(), covariance, student_quantile(0.95, freedom)
    )
    high = "no limit" if np.isinf(ratio.high) else f"{ratio.high:.2f}"
    return f"{ratio.value:.2f} ({ratio.low:.2f} to {high})"


def without_baseline(column: dict[str, ndarray], size: int) -> list[str]:
    """What the theory says that a gradient without a baseline varies by more than one with V(x),
    and what it does.
    """
    law = column["mean"] ** 2 * column["score_norm2"] + 2 * column["mean"] * column["kappa"]
    excess = size * (column["none"] - column["value"])
    return [
        interval(column["kappa"]),
        f"{law.mean():.3g}",
        interval(excess),
        interval(excess - law),
    ]


def main() -> None:
    """Run what is missing and print the table."""
    run_and_show(cells(), PIECES, options(__doc__), show, PAGE)


if __name__ == "__main__":
    main()
