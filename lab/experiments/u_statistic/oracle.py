"""What is lost for want of V(x), and what does a critic win back? Training with leave-one-out, the
oracle's value, a critic, and others.

    python lab/experiments/u_statistic/oracle.py [--quick] [--tables] [--workers 2] [--minutes 60]
    [--only TEXT]

runs what is missing: SGD runs at 512 rollouts a step with the true value of every prompt, with a
learned value network, with the mean of leave-one-out drawn towards the other prompts, and without
any baseline, G = 2 to 16, by the settings of the leave-one-out runs of optimal_group_size.py, which
it reads; the critic's error and what it does to the gradient's along each run; time and memory of a
step. Pieces are in results.txt; prints the tables of lab/docs/studies/gradient-experiments.md.
"""

import time

import numpy as np
from cells import RESULTS, Cell, Rows, column, options, print_table, run_and_show, where
from critic import Critic, critic_values
from group_size_results import averaged, final, paired
from optimal_group_size import PIECES as LEAVE_ONE_OUT
from optimal_group_size import RATES, STEPS, name_of
from training import START, Observer, run, settings_of
from world import start, truth, world_task

from groupwise.parsing import JsonObject
from groupwise_lab.theory.mse import Reference, within_prompt_variance
from groupwise_lab.trainer.policy import Policy

PIECES = RESULTS.within("oracle")
ROLLOUTS = 512
SIZES = (4, 2, 8, 16)
SEEDS = 3
LOOKED_AT = (10, 50, 100, 300)
PROBLEMS = 256
BASELINES = {
    "leave_one_out": "leave-one-out",
    "shrinkage": "shrinkage",
    "critic": "critic",
    "oracle": "oracle V(x)",
    "vanilla": "no baseline",
}
ADVANTAGES = {"critic": "oracle"}  # the trainer's oracle takes the critic's values
COMPARED = ("leave_one_out", "oracle", "critic")


def looked(size: int, critic: Critic, steps: tuple[int, ...]) -> Observer:
    """What to note along a run: the error of the critic, and the squared error of a group's
    gradient with each baseline.
    """

    def watch(step: int, policy: Policy) -> JsonObject:
        names = (
            "critic_rmse",
            "critic_bias",
            "value_spread",
            "error_leave_one_out",
            "error_oracle",
            "error_critic",
        )
        row = dict.fromkeys(names, "")
        if step not in steps:
            return row
        moments = truth(policy, world_task().train[:PROBLEMS], score_rollouts=2).moments
        row["error_leave_one_out"] = within_prompt_variance("leave_one_out", moments, size).mean()
        row["error_oracle"] = within_prompt_variance("oracle", moments, size).mean()
        row["value_spread"] = moments.value_P.std()
        value_P = critic_values(critic, policy, PROBLEMS)
        row["critic_rmse"] = float(np.sqrt(np.mean((value_P - moments.value_P) ** 2)))
        row["critic_bias"] = np.mean(value_P - moments.value_P)
        row["error_critic"] = within_prompt_variance(
            "constant", moments, size, reference=Reference(value_P)
        ).mean()
        return row

    return watch


def curve(
    baseline: str,
    group_size: int,
    seed: int,
    steps: int = STEPS,
    looked_at: tuple[int, ...] = LOOKED_AT,
) -> Rows:
    """One run with a baseline other than leave-one-out."""
    critic = Critic(start(START), START) if baseline == "critic" else None
    settings = settings_of(
        "sgd",
        ROLLOUTS,
        group_size,
        seed,
        steps,
        RATES["sgd", ROLLOUTS],
        advantage=ADVANTAGES.get(baseline, baseline),
    )
    watch = None if critic is None else looked(group_size, critic, looked_at)
    return run(settings, watch=watch, ingredients=None if critic is None else critic.learned)


def cost(steps: int = 30, rounds: int = 3, sizes: tuple[int, ...] = (4,)) -> Rows:
    """Processor seconds of a step with each baseline, in turn, and the numbers that have to be
    kept.
    """
    rows = []
    weights = sum(value.numel() for value in start(START).parameters())
    critic_weights = sum(value.numel() for value in Critic(start(START), START).parameters())
    kept = {
        "leave_one_out": 2 * weights,
        "oracle": 2 * weights,
        "critic": 2 * weights + 4 * critic_weights,
    }
    for size in sizes:
        for turn in range(rounds):
            for baseline in COMPARED:
                advantage = ADVANTAGES.get(baseline, baseline)
                settings = settings_of(
                    "sgd", ROLLOUTS, size, turn, steps, RATES["sgd", ROLLOUTS], advantage=advantage
                )
                critic = Critic(start(START), START) if baseline == "critic" else None
                began = time.perf_counter()
                spent = (
                    run(settings, ingredients=None if critic is None else critic.learned)[-1][
                        "seconds"
                    ]
                    / steps
                )
                wall = (time.perf_counter() - began) / steps
                rows.append(
                    {
                        "baseline": baseline,
                        "group_size": size,
                        "round": turn,
                        "cpu": spent,
                        "wall": wall,
                        "numbers": kept[baseline],
                    }
                )
    return rows


def all_cells() -> list[Cell]:
    """Everything, what is needed most first."""
    cells = []
    for sizes in (SIZES[:2], SIZES[2:]):
        cells += [
            Cell(
                f"{baseline}-G{size:03d}-seed{seed}",
                curve,
                {"baseline": baseline, "group_size": size, "seed": seed},
            )
            for seed in range(SEEDS)
            for size in sizes
            for baseline in ("oracle", "critic", "vanilla", "shrinkage")
        ]
    return [*cells[:8], Cell("cost", cost), *cells[8:]]


def runs_of(done: dict[str, Rows], baseline: str, size: int) -> dict[int, Rows]:
    """Seed -> run of one baseline and group size, those of leave-one-out from the other
    experiment.
    """
    given = LEAVE_ONE_OUT.tables() if baseline == "leave_one_out" else done
    names = [
        name_of("sgd", ROLLOUTS, size, seed)
        if given is not done
        else f"{baseline}-G{size:03d}-seed{seed}"
        for seed in range(SEEDS)
    ]
    return {seed: given[name] for seed, name in enumerate(names) if name in given}


def accuracy_table(done: dict[str, Rows]) -> None:
    """Accuracy with each baseline, and its difference from leave-one-out over the seeds that
    both have.
    """
    lines = []
    for size in sorted(SIZES):
        reference = runs_of(done, "leave_one_out", size)
        for baseline, label in BASELINES.items():
            some = runs_of(done, baseline, size)
            if not some or len(reference) == 0:
                continue
            both, cells = sorted(set(some) & set(reference)), []
            for score in (averaged, final):
                gap, half = paired(
                    [score(some[seed]) for seed in both], [score(reference[seed]) for seed in both]
                )
                own = (
                    ""
                    if baseline == "leave_one_out"
                    else f"{gap:+.4f}" + ("" if np.isnan(half) else f" ± {half:.4f}")
                )
                cells += [spread([score(rows) for rows in some.values()]), own]
            lines.append([f"{size} | {label} | {len(some)}", *cells])
    print_table(
        "Held-out accuracy, SGD, 512 rollouts a step: mean (standard error over seeds); difference "
        "from leave-one-out within seeds, 95 %",
        (
            "G | baseline | runs | mean of the run | minus leave-one-out | final | "
            "minus leave-one-out"
        ),
        lines,
    )


def tables(done: dict[str, Rows]) -> None:
    """The tables of the page."""
    accuracy_table(done)
    lines = []
    for size in sorted(SIZES):
        for step in LOOKED_AT:
            some = [
                row
                for rows in runs_of(done, "critic", size).values()
                for row in rows
                if row["step"] == step
            ]
            if some:
                value = {
                    name: np.mean(column(some, name))
                    for name in some[0]
                    if name.startswith(("critic", "error", "value"))
                }
                gap = value["error_leave_one_out"] - value["error_oracle"]
                won = (value["error_leave_one_out"] - value["error_critic"]) / gap
                lines.append(
                    [
                        (
                            f"{size} | {step} | {value['value_spread']:.3f} | "
                            f"{value['critic_rmse']:.3f} | {value['critic_bias']:+.3f}"
                        )
                    ]
                    + [f"{value[f'error_{name}']:.1f}" for name in COMPARED]
                    + [f"{100 * won:.0f} %"]
                )
    header = (
        "G | step | sd of V(x) | critic's rms error | its bias",
        *(f"error, {BASELINES[name]}" for name in COMPARED),
        "won of the gap",
    )
    print_table(
        "The critic along its own runs, and the squared error of a group's gradient with each "
        "baseline (formulas, true moments)",
        header,
        lines,
    )
    if "cost" in done:
        cost_table(done["cost"])


def cost_table(rows: Rows) -> None:
    """Time and memory."""
    lines = []
    for size in sorted({row["group_size"] for row in rows}):
        base = 0.0
        for baseline in COMPARED:
            some = where(rows, group_size=size, baseline=baseline)
            cpu = np.median(column(some, "cpu"))
            base = base or cpu
            lines.append(
                [
                    (
                        f"{size} | {BASELINES[baseline]} | {1000 * cpu:.1f} | {cpu / base:.2f} | "
                        f"{some[0]['numbers'] / 1000:.0f}"
                    )
                ]
            )
    print_table(
        "One step at 512 rollouts, median of 3 rounds",
        "G | baseline | processor ms | over leave-one-out | thousand numbers kept",
        lines,
    )


def spread(values: list[float]) -> str:
    """Mean and standard error."""
    error = f" ({np.std(values, ddof=1) / np.sqrt(len(values)):.4f})" if len(values) > 1 else ""
    return f"{np.mean(values):.4f}{error}"


def show() -> None:
    """Print what is there."""
    done = PIECES.tables()
    tables(done)


def main() -> None:
    """Run what is missing; print what is there."""
    asked = options(__doc__)
    if asked.quick:
        print([len(curve(baseline, 4, 0, 10, (10,))) for baseline in BASELINES], len(cost(10, 1)))
        return
    run_and_show(all_cells(), PIECES, asked, show, "gradient-experiments.md")


if __name__ == "__main__":
    main()
