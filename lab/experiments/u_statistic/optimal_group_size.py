"""Which group size learns best at a fixed number of rollouts a step, and was it known beforehand?

    python lab/experiments/u_statistic/optimal_group_size.py [--quick] [--tables] [--workers 2]
    [--minutes 60] [--only TEXT]

runs what is missing of: the prediction, from one sample of 64 groups of 16 rollouts at the common
start, before any training; a pilot that chooses SGD's learning rate; runs of G = 2 to 128 at 512,
256 and 128 rollouts a step, five seeds, with leave-one-out and SGD (the algorithm analysed) and
with TRL's normalised advantages and Adam (the one people run); components along a run; the paper's
epochs of 128/G. Pieces are in results.txt; the tables of
lab/docs/studies/optimal-group-size.md are printed. Addition modulo 100,
policy of 0.1 million parameters, accuracy exact on 2,000 held-out and 2,000 training problems.
"""

import numpy as np
from cells import RESULTS, Cell, Rows, column, options, run_and_show, run_missing
from group_size_results import SIZES, tables
from training import START, run, settings_of
from world import ExactMoments, exact_values, sampled_components, start, truth, world_task

from groupwise.estimators.best_group_size import Budget, error_of, plan_from_components
from groupwise.parsing import JsonObject
from groupwise_lab.trainer.policy import Policy

PIECES = RESULTS.within("optimal_group_size")
BUDGETS = (512, 128, 256)
STEPS = 300
SEEDS = 5
PILOT_RATES = (0.01, 0.02, 0.03, 0.04, 0.06)
LOWER_RATES = (
    0.0025,
    0.005,
)  # at 128 rollouts the best of the pilot was the lowest: is it the best of all?
# Of SGD: the best time-averaged accuracy of the pilot at G = 8 (`--tables` prints it). Of Adam: the
# default.
RATES = {
    ("sgd", 512): 0.03,
    ("sgd", 256): 0.02,
    ("sgd", 128): 0.01,
    ("adam", 512): 5e-4,
    ("adam", 256): 5e-4,
    ("adam", 128): 5e-4,
}
EXPOSURE = 128  # rollouts of each prompt in all, in the paper's design
FOLLOWED = (0, 150, 300)


def prediction(
    seed: int, budgets: tuple[int, ...] = BUDGETS, groups: int = 64, group_size: int = 16
) -> Rows:
    """Components at the start from one sample, and for every budget the plan."""
    estimate = sampled_components(
        start(START), world_task().train, groups=groups, group_size=group_size, seed=seed
    )
    rows = []
    for rollouts in budgets:
        plan = plan_from_components(estimate, Budget(rollouts))
        usable = np.array([size for size in SIZES if size <= rollouts])
        error = error_of(estimate.positive_vtr, usable, Budget(rollouts))
        row = {
            "sample": seed,
            "rollouts": rollouts,
            "vp": estimate.vp.value,
            "t": estimate.t.value,
            "r": estimate.r.value,
            "gradient_norm2": estimate.gradient_norm2.value,
            "real": estimate.group_size.value,
            "low": estimate.group_size.low,
            "high": estimate.group_size.high,
            "planned": min(plan.curve, key=lambda point: point.mse).group_size,
        }
        rows.append(
            row
            | {"of_grid": int(usable[error.argmin()])}
            | {f"mse_{size}": float(value) for size, value in zip(usable, error, strict=True)}
        )
    keys = {key for row in rows for key in row}
    order = [*rows[0], *sorted(keys - set(rows[0]))]
    return [{key: row.get(key, "") for key in order} for row in rows]


def pilot(rollouts: int, rates: tuple[float, ...] = PILOT_RATES, steps: int = 150) -> Rows:
    """Accuracy reached with each learning rate, SGD with leave-one-out at G = 8."""
    rows = []
    for rate in rates:
        curve = run(settings_of("sgd", rollouts, 8, 1000, steps, rate))
        held_out = column(curve, "held_out")
        rows.append(
            {"rollouts": rollouts, "rate": rate, "final": held_out[-1], "mean": np.mean(held_out)}
        )
    return rows


def curve(
    algorithm: str,
    rollouts: int,
    group_size: int,
    seed: int,
    steps: int = STEPS,
    pool: int | None = None,
) -> Rows:
    """One run; with a pool, in epochs over that many problems."""
    others = {} if pool is None else {"prompt_pool": pool, "prompt_order": "epochs"}
    return run(
        settings_of(
            algorithm, rollouts, group_size, seed, steps, RATES[algorithm, rollouts], **others
        )
    )


def along(
    algorithm: str,
    group_size: int,
    steps: int = STEPS,
    followed: tuple[int, ...] = FOLLOWED,
    problems: int = 2000,
) -> Rows:
    """Components along one run: the truth, and what samples of 64 groups of 16 say."""
    rows = []

    def watch(step: int, policy: Policy) -> None:
        if step in followed:
            some = world_task().train[:problems]
            exact = truth(policy, some, score_rollouts=2)
            rows.append(
                components_row(exact, policy, step)
                | {"algorithm": algorithm, "group_size": group_size}
            )

    run(settings_of(algorithm, 512, group_size, 0, steps, RATES[algorithm, 512]), watch=watch)
    return rows


def components_row(exact: ExactMoments, policy: Policy, step: int) -> JsonObject:
    """True components, and G* of the truth and of one sample."""
    estimate = sampled_components(policy, world_task().train, seed=100 + step)
    return {
        "step": step,
        "value": exact_values(policy, world_task().train).mean(),
        "vp": exact.vp,
        "t": exact.t,
        "r": exact.r,
        "gradient_norm2": exact.gradient_norm2,
        "best": exact.group_size,
        "estimated": estimate.group_size.value,
        "low": estimate.group_size.low,
        "high": estimate.group_size.high,
    }


def name_of(algorithm: str, rollouts: int, group_size: int, seed: int) -> str:
    """Of a run."""
    return f"{algorithm}-N{rollouts}-G{group_size:03d}-seed{seed}"


def run_cells(algorithm: str, rollouts: int, sizes: tuple[int, ...], seeds: range) -> list[Cell]:
    """The runs of one algorithm and budget."""
    return [
        Cell(
            name_of(algorithm, rollouts, size, seed),
            curve,
            {"algorithm": algorithm, "rollouts": rollouts, "group_size": size, "seed": seed},
        )
        for seed in seeds
        for size in sizes
    ]


def all_cells() -> list[Cell]:
    """Everything, what is needed most first."""
    small, large = SIZES[:5], SIZES[5:]
    cells = [Cell("prediction", prediction, {"seed": 0})]
    cells += [Cell(f"pilot-N{rollouts}", pilot, {"rollouts": rollouts}) for rollouts in BUDGETS]
    cells += [Cell("pilot-N128-lower", pilot, {"rollouts": 128, "rates": LOWER_RATES})]
    for algorithm in ("sgd", "adam"):
        cells += [
            cell
            for rollouts in (512, 128)
            for cell in run_cells(algorithm, rollouts, small, range(3))
        ]
    cells += [
        Cell(f"along-{algorithm}", along, {"algorithm": algorithm, "group_size": 4})
        for algorithm in ("sgd", "adam")
    ]
    cells += confound_cells(range(3))
    for algorithm in ("sgd", "adam"):
        for rollouts in (512, 128):
            cells += run_cells(algorithm, rollouts, large, range(3)) + run_cells(
                algorithm, rollouts, SIZES, range(3, SEEDS)
            )
    for algorithm in ("sgd", "adam"):
        cells += run_cells(algorithm, 256, SIZES, range(SEEDS))
    cells += [Cell(f"prediction-{seed}", prediction, {"seed": seed}) for seed in range(1, 11)]
    return cells + confound_cells(range(3, SEEDS))


def confound_cells(seeds: range) -> list[Cell]:
    """The paper's design: as many problems as get 128 rollouts each, in epochs; G = 4 sees each
    32 times, G = 128 once.
    """
    pool = STEPS * 512 // EXPOSURE
    given = {"algorithm": "adam", "rollouts": 512, "pool": pool}
    return [
        Cell(
            f"epochs-{name_of('adam', 512, size, seed)}",
            curve,
            {**given, "group_size": size, "seed": seed},
        )
        for seed in seeds
        for size in (4, 16, 64, 128)
    ]


def quick() -> None:
    """Everything once, as small as it gets."""
    print(prediction(0, (64,), 16, 8)[0]["real"] > 1)
    print(
        [
            len(curve(algorithm, 128, 4, 0, 10, pool))
            for algorithm, pool in (("sgd", None), ("adam", 64))
        ],
        len(pilot(64, (0.01,), 10)),
    )
    print(column(along("sgd", 4, 10, (0, 10), 256), "step"))


def show() -> None:
    """Print what is there."""
    tables(PIECES.tables())


def main() -> None:
    """Run what is missing; print what is there."""
    asked = options(__doc__)
    if asked.quick:
        quick()
        return
    if not asked.tables:
        cells = [cell for cell in all_cells() if asked.only in cell.name]
        run_missing(cells[:1], PIECES)  # before the first run, whatever else there is
    run_and_show(all_cells(), PIECES, asked, show, "optimal-group-size.md")


if __name__ == "__main__":
    main()
