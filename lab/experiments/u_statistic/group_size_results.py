"""Tables of optimal_group_size.py, from its pieces alone: means over seeds, the best
size with its bootstrap, regrets.

Runs of a seed share the seed across group sizes, so differences are taken within a seed and the
bootstrap draws whole seeds. It runs nothing.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from cells import Rows, column, print_table
from numpy import ndarray
from scipy import stats

from groupwise.parsing import JsonView

SIZES = (2, 4, 8, 16, 32, 64, 128)
NEAR = (2, 4, 8)  # the predicted size and its neighbours: compared over the seeds that they share
BUDGETS = (512, 256, 128)
ALGORITHMS = {"sgd": "leave-one-out, SGD", "adam": "divided by std, Adam"}
DRAWS = 4000
RunRows = Mapping[str, Rows]
ScoreOfRows = Callable[[Rows], float]


def final(rows: Rows) -> float:
    """Held-out accuracy at the end: the mean of the last three looks, for a single look is a
    single step.
    """
    return np.mean(column(rows[-3:], "held_out"))


def averaged(rows: Rows) -> float:
    """Held-out accuracy averaged over the run."""
    return np.mean(column(rows, "held_out"))


def until(step: int) -> ScoreOfRows:
    """Held-out accuracy averaged up to a step."""
    return lambda rows: averaged([row for row in rows if row["step"] <= step])


def scores(
    done: RunRows, algorithm: str, rollouts: int, score: ScoreOfRows, *, prefix: str = ""
) -> dict[int, dict[int, float]]:
    """Size -> seed -> score."""
    scores_of_size = {}
    for size in SIZES:
        for seed in range(100):
            rows = done.get(f"{prefix}{algorithm}-N{rollouts}-G{size:03d}-seed{seed}")
            if rows is not None:
                scores_of_size.setdefault(size, {})[seed] = score(rows)
    return scores_of_size


def shared(scores_of_size: dict[int, dict[int, float]]) -> tuple[list[int], ndarray]:
    """Sizes that have all the seeds that the sizes next to the predicted one share, and their
    scores, sizes x seeds.
    """
    seeds = sorted(set.intersection(*(set(scores_of_size.get(size, {})) for size in NEAR)))
    sizes = [size for size in scores_of_size if set(seeds) <= set(scores_of_size[size])]
    return sizes, np.array([[scores_of_size[size][seed] for seed in seeds] for size in sizes])


def paired(first: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    """Mean difference of two sizes over the same seeds, and the half-width of its 95 % t
    interval.
    """
    difference = np.subtract(first, other)
    return difference.mean(), half_width(difference.tolist()) if len(difference) > 1 else math.nan


def bootstrap(value_GS: ndarray) -> ndarray:
    """Share of draws of seeds in which each size is best."""
    rng = np.random.default_rng(0)
    seed_DS = rng.integers(value_GS.shape[1], size=(DRAWS, value_GS.shape[1]))
    best_D = value_GS[:, seed_DS].mean(axis=2).argmax(axis=0)
    return np.bincount(best_D, minlength=len(value_GS)) / DRAWS


def regret(value_GS: ndarray, place: int) -> tuple[float, float]:
    """What the size at `place` loses against the best, relative to the best; and the most that
    the 95 % t intervals allow for.
    """
    mean = value_GS[place].mean()
    above = [
        paired(row.tolist(), value_GS[place].tolist())
        for at, row in enumerate(value_GS)
        if at != place
    ]
    now = max(0.0, *(gap for gap, _ in above))
    most = max(0.0, *(gap + half for gap, half in above))
    return now / (mean + now), most / (mean + most)


def predicted_size(done: RunRows) -> int:
    """Of the grid, by the sample taken before the first run."""
    return int(done["prediction"][0]["of_grid"])


def prediction_table(done: RunRows) -> None:
    """What was known before any run."""
    row = done["prediction"][0]
    lines = [
        [f"{row[name]:.1f}" for name in ("vp", "t", "r")]
        + [
            (
                f"{row['real']:.2f} ({row['low']:.2f} to {row['high']:.2f}) | "
                f"{row['planned']} | {row['of_grid']}"
            )
        ]
    ]
    print_table(
        "Before training: one sample of 64 groups of 16",
        "Vp | T | R | G*, 95 % | planned | of the grid",
        lines,
    )
    relative = [row[f"mse_{size}"] / row[f"mse_{row['of_grid']}"] for size in SIZES]
    header = ("", *(f"G = {size}" for size in SIZES))
    print_table(
        "Squared error of the gradient, predicted",
        header,
        [[f"over that of G = {row['of_grid']}", *(f"{share:.2f}" for share in relative)]],
    )
    others = [done[name][0]["real"] for name in sorted(done) if name.startswith("prediction-")]
    if others:
        planned = sorted(
            {done[name][0]["planned"] for name in done if name.startswith("prediction-")}
        )
        print(
            f"\n{len(others)} further samples: G* from {min(others):.2f} to {max(others):.2f}; "
            f"planned {', '.join(map(str, planned))}."
        )


def pilot_table(done: RunRows) -> None:
    """SGD's learning rate."""
    lines = []
    for rollouts in BUDGETS:
        rows = [*done.get(f"pilot-N{rollouts}-lower", []), *done.get(f"pilot-N{rollouts}", [])]
        lines += [
            [f"{rollouts} | {row['rate']:g} | {row['mean']:.3f} | {row['final']:.3f}"]
            for row in rows
        ]
    print_table(
        "Pilot: SGD at G = 8, 150 steps", "N | learning rate | mean of the run | final", lines
    )


def regret_table(done: RunRows) -> None:
    """The best size and what the predicted one loses, of every algorithm and budget."""
    chosen, lines = predicted_size(done), []
    for algorithm, label in ALGORITHMS.items():
        for rollouts in BUDGETS:
            cells = []
            for score in (averaged, final):
                scores_of_size = scores(done, algorithm, rollouts, score)
                sizes, value_GS = shared(scores_of_size)
                if value_GS.ndim < 2 or value_GS.shape[1] < 2:
                    continue
                now, most = regret(value_GS, sizes.index(chosen))
                cells += [
                    shares(sizes, bootstrap(value_GS)),
                    f"{100 * now:.1f} % (0 to {100 * most:.1f} %)",
                ]
            if cells:
                lines.append([f"{label} | {rollouts} | {value_GS.shape[1]}", *cells])
    header = (
        f" | N | seeds | best, mean of the run | regret of G = {chosen} | best, final | "
        f"regret of G = {chosen}"
    )
    print_table(
        "Best size (share of draws of seeds) and regret of the prediction, 95 %", header, lines
    )


def shares(sizes: Sequence[int], share: ndarray) -> str:
    """Sizes that are best in some draws."""
    return ", ".join(
        f"{size} ({100 * part:.0f} %)"
        for size, part in zip(sizes, share, strict=True)
        if part >= 0.025
    )


def result_tables(done: RunRows) -> None:
    """Accuracy by group size and differences from the predicted one."""
    chosen = predicted_size(done)
    for algorithm, label in ALGORITHMS.items():
        for rollouts in BUDGETS:
            lines = []
            for what, score in (("mean of the run", averaged), ("final", final)):
                scores_of_size = scores(done, algorithm, rollouts, score)
                if chosen in scores_of_size:
                    lines += _result_lines(what, scores_of_size, chosen)
            if lines:
                print_table(
                    f"{label}, N = {rollouts}",
                    (f"{label}, N = {rollouts}", *(f"G = {size}" for size in SIZES)),
                    lines,
                )


def _result_lines(
    what: str, scores_of_size: dict[int, dict[int, float]], chosen: int
) -> list[list[str]]:
    """Means with their seeds, and differences over the seeds that a size shares with the
    predicted one.
    """
    means, gaps = [], []
    for size in SIZES:
        own = scores_of_size.get(size, {})
        seeds = sorted(set(own) & set(scores_of_size[chosen]))
        means.append(
            f"{np.mean([own[seed] for seed in seeds]):.4f} ({len(seeds)})" if seeds else ""
        )
        if not seeds or size == chosen:
            gaps.append("0" if seeds else "")
            continue
        gap, half = paired(
            [own[seed] for seed in seeds], [scores_of_size[chosen][seed] for seed in seeds]
        )
        gaps.append(f"{gap:+.4f}" if math.isnan(half) else f"{gap:+.4f} ± {half:.4f}")
    return [[f"{what} (seeds)", *means], [f"minus G = {chosen}, 95 %", *gaps]]


def iteration_table(done: RunRows) -> None:
    """The best size by the length of the run."""
    lines = []
    for algorithm, label in ALGORITHMS.items():
        for rollouts in BUDGETS:
            cells = []
            for step in (50, 100, 200, 300):
                sizes, value_GS = shared(scores(done, algorithm, rollouts, until(step)))
                if value_GS.ndim == 2 and value_GS.shape[1] >= 2:
                    cells.append(shares(sizes, bootstrap(value_GS)))
            if cells:
                lines.append([f"{label} | {rollouts}", *cells])
    print_table(
        "Best size by mean accuracy up to a step (share of draws of seeds)",
        " | N | 50 | 100 | 200 | 300",
        lines,
    )


def over_least(row: JsonView, size: int) -> float:
    """Squared error of the gradient at a group size over that at the real-valued best one."""
    least = row["vp"] + row["t"] + 2 * math.sqrt(row["r"] * row["vp"])
    return (row["vp"] * size + row["t"] + row["r"] / (size - 1)) / least


def drift_table(done: RunRows) -> None:
    """Components along a run."""
    lines = []
    for algorithm, label in ALGORITHMS.items():
        lines += [
            [
                f"{label} | {row['step']} | {row['value']:.3f}",
                *(f"{row[name]:.1f}" for name in ("vp", "t", "r")),
                (
                    f"{row['gradient_norm2']:.2f} | {row['best']:.2f} | "
                    f"{row['estimated']:.2f} ({row['low']:.2f} to {row['high']:.2f})"
                ),
                *(f"{over_least(row, size):.2f}" for size in NEAR),
            ]
            for row in done.get(f"along-{algorithm}", [])
        ]
    header = (
        "run | step | accuracy | Vp | T | R | squared gradient | G*, truth | G*, one sample, 95 %"
    )
    header = [header, *(f"error of G = {size} over the least" for size in NEAR)]
    print_table("Along one run, G = 4, N = 512", header, lines)


def epochs_table(done: RunRows) -> None:
    """The paper's epochs of 128/G beside independent draws."""
    lines = []
    for prefix, what in (
        ("epochs-", "1,200 problems, 128/G epochs"),
        ("", "8,000 problems, independent draws"),
    ):
        for name, key in (("held out", "held_out"), ("trained on", "train")):
            cells = []
            for size in (4, 16, 64, 128):
                scores_of_size = scores(
                    done,
                    "adam",
                    512,
                    lambda rows, key=key: np.mean(column(rows[-3:], key)),
                    prefix=prefix,
                )
                cells.append(spread(list(scores_of_size.get(size, {}).values())))
            lines.append([what, name, *cells])
    print_table(
        "Final accuracy, divided by std, Adam, N = 512 (standard error)",
        " |  | G = 4 | G = 16 | G = 64 | G = 128",
        lines,
    )


def spread(values: Sequence[float]) -> str:
    """Mean and standard error."""
    if not values:
        return ""
    error = f" ({np.std(values, ddof=1) / math.sqrt(len(values)):.3f})" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{error}"


def tables(done: RunRows) -> None:
    """All tables."""
    if "prediction" in done:
        prediction_table(done)
        pilot_table(done)
        regret_table(done)
        result_tables(done)
    iteration_table(done)
    drift_table(done)
    epochs_table(done)


def half_width(values: Sequence[float]) -> float:
    """Half of a 95 % t interval; none of a single value."""
    if len(values) < 2:
        return 0.0
    return float(
        stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values))
    )
