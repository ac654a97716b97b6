"""A critic with a fair chance: tuned, taught before the run begins, five seeds, and a start at
which prompts differ much in value.

    python lab/experiments/u_statistic/fair_critic.py [--quick] [--tables] [--workers 2] [--minutes
    60] [--only TEXT]

SGD at 512 rollouts a step from the policy that is right in half of the problems, where V(x) spreads
from 0 to 1. First twelve critics watch one and the same run (seed 100, whose advantages take the
first one's values), each with its own learning rate, number of passes over the last batches, and
batches of the start policy to learn from beforehand; the one that explains most of V(x) on held-out
problems trains in the runs of five seeds, beside leave-one-out, the true V(x), and no baseline.
Pieces are in results.txt; prints the tables of lab/docs/studies/gradient-experiments.md.
"""

from itertools import product

import numpy as np
import torch
from cells import RESULTS, Cell, Rows, column, options, print_table, run_and_show, run_asked
from critic import Critic
from group_size_results import averaged, final, paired
from oracle import spread
from training import run, settings_of
from world import exact_values, roll, start, truth, world_task

from groupwise.parsing import JsonObject
from groupwise_lab.theory.mse import Reference, within_prompt_variance
from groupwise_lab.trainer.credit import GradedRollouts
from groupwise_lab.trainer.policy import Actor, Policy
from groupwise_lab.trainer.tasks import Task

PIECES = RESULTS.within("fair_critic")
ACCURACY, SIZE, ROLLOUTS, RATE = 0.5, 4, 512, 0.03
STEPS, SEEDS, TUNED_ON = 150, 5, 100
LOOKED_AT = (0, 50, 100, 150)
PROBLEMS = 256
TUNED_OVER = tuple(
    product((3e-4, 1e-3, 3e-3), (1, 8), (0, 200))
)  # learning rate, passes, batches beforehand
BASELINES = {
    "leave_one_out": "leave-one-out",
    "critic": "tuned critic",
    "oracle": "oracle V(x)",
    "vanilla": "no baseline",
}


def prepared(rate: float, passes: int, batches: int) -> Critic:
    """A critic that has seen some batches of the start policy."""
    policy, task, rng = start(ACCURACY), world_task(), np.random.default_rng(7)
    critic, draw = (
        Critic(policy, ACCURACY, rate=rate, passes=passes),
        torch.Generator().manual_seed(7),
    )
    for _ in range(batches):
        problems = [
            task.train[place] for place in rng.integers(len(task.train), size=ROLLOUTS // SIZE)
        ]
        rollouts = roll(policy, problems, SIZE, draw)
        critic.learn(rollouts.prompt_PL, rollouts.reward_PG.mean(1))
    return critic


def explained(critic: Critic, policy: Policy) -> float:
    """Share of the variance of V(x) over held-out problems that a critic explains; below 0 it is
    worse than the mean.
    """
    problems = world_task().held_out[:1000]
    value_P = exact_values(policy, problems)
    return 1 - float(
        np.mean((critic.values(policy.prompt_tokens(world_task(), problems)) - value_P) ** 2)
        / value_P.var()
    )


def tune(steps: int = STEPS, over: tuple[tuple[float, int, int], ...] = TUNED_OVER) -> Rows:
    """How much of V(x) each critic explains along one run."""
    critics, rows = [prepared(*values) for values in over], []

    def learned(actor: Actor, task: Task, judged: GradedRollouts) -> dict[str, np.ndarray]:
        first, *_ = [critic.learned(actor, task, judged) for critic in critics]
        return first

    def watch(step: int, policy: Policy) -> None:
        if step in LOOKED_AT:
            for (rate, passes, batches), critic in zip(over, critics, strict=True):
                row = {"rate": rate, "passes": passes, "batches": batches, "step": step}
                rows.append(row | {"explained": explained(critic, policy)})

    settings = settings_of("sgd", ROLLOUTS, SIZE, TUNED_ON, steps, RATE, advantage="oracle")
    run(settings, watch=watch, ingredients=learned, accuracy=ACCURACY)
    return rows


def best(rows: Rows) -> tuple[float, int, int]:
    """The critic that explains most on the average of all looks."""

    def score(values: tuple[float, int, int]) -> float:
        return np.mean(
            [
                row["explained"]
                for row in rows
                if (row["rate"], row["passes"], row["batches"]) == values
            ]
        )

    return max(TUNED_OVER, key=score)


def looked(critic: Critic | None, step: int, policy: Policy) -> JsonObject:
    """The critic's share of V(x), and the squared error of a group's gradient with each
    baseline; empty between the looks.
    """
    names = (
        "explained",
        "value_spread",
        "error_leave_one_out",
        "error_oracle",
        "error_constant",
        "error_critic",
    )
    row = dict.fromkeys(names, "")
    if critic is None or step not in LOOKED_AT:
        return row
    problems = world_task().held_out[:PROBLEMS]
    moments = truth(policy, problems, score_rollouts=2).moments
    own = critic.values(policy.prompt_tokens(world_task(), problems))
    references = {
        "leave_one_out": 0.0,
        "oracle": 0.0,
        "constant": moments.value_P.mean(),
        "critic": own,
    }
    for name, value in references.items():
        formula = name if name in {"leave_one_out", "oracle"} else "constant"
        row[f"error_{name}"] = float(
            within_prompt_variance(formula, moments, SIZE, reference=Reference(value)).mean()
        )
    return row | {
        "explained": explained(critic, policy),
        "value_spread": float(moments.value_P.std()),
    }


def curve(
    baseline: str, seed: int, steps: int = STEPS, chosen: tuple[float, int, int] | None = None
) -> Rows:
    """One run with one baseline."""
    if baseline == "critic" and chosen is None:
        chosen = best(PIECES.read("tune"))
    critic = prepared(*chosen) if chosen is not None else None
    advantage = "oracle" if critic is not None else baseline
    settings = settings_of("sgd", ROLLOUTS, SIZE, seed, steps, RATE, advantage=advantage)
    ingredients = None if critic is None else critic.learned
    return run(
        settings,
        watch=lambda step, policy: looked(critic, step, policy),
        ingredients=ingredients,
        accuracy=ACCURACY,
    )


def all_cells() -> list[Cell]:
    """The tuning, then every run, seed after seed."""
    runs = [
        Cell(f"{baseline}-seed{seed}", curve, {"baseline": baseline, "seed": seed})
        for seed in range(SEEDS)
        for baseline in ("critic", "leave_one_out", "oracle", "vanilla")
    ]
    return [Cell("tune", tune), *runs]


def tables(done: dict[str, Rows]) -> None:
    """The tables of the page."""
    lines = []
    for rate, passes, batches in TUNED_OVER:
        own = [
            row
            for row in done["tune"]
            if (row["rate"], row["passes"], row["batches"]) == (rate, passes, batches)
        ]
        if own:
            lines.append(
                [f"{rate:g} | {passes} | {batches}", *(f"{row['explained']:.2f}" for row in own)]
            )
    header = (
        "learning rate | passes | batches beforehand",
        *(f"step {step}" for step in LOOKED_AT),
    )
    print_table(
        "Tuning the critic: share of the variance of V(x) over held-out problems that it explains "
        "along one run",
        header,
        lines,
    )
    runs = {
        name: {
            seed: done[f"{name}-seed{seed}"]
            for seed in range(SEEDS)
            if f"{name}-seed{seed}" in done
        }
        for name in BASELINES
    }
    lines = []
    for name, label in BASELINES.items():
        both, cells = sorted(set(runs[name]) & set(runs["leave_one_out"])), []
        for score in (averaged, final):
            cells.append(
                spread([score(rows) for rows in runs[name].values()]) if runs[name] else ""
            )
            if name == "leave_one_out" or len(both) < 2:
                cells.append("")
                continue
            gap, half = paired(
                [score(runs[name][seed]) for seed in both],
                [score(runs["leave_one_out"][seed]) for seed in both],
            )
            cells.append(f"{gap:+.4f} ± {half:.4f}")
        lines.append([f"{label} | {len(runs[name])}", *cells])
    header = "baseline | runs | mean of the run | minus leave-one-out | final | minus leave-one-out"
    print_table(
        "Held-out accuracy from a start of .5, G = 4, SGD, 512 rollouts a step; differences within "
        "seeds, 95 %",
        header,
        lines,
    )
    lines = []
    for step in LOOKED_AT:
        some = [row for rows in runs["critic"].values() for row in rows if row["step"] == step]
        if some:
            names = (
                "value_spread",
                "explained",
                "error_leave_one_out",
                "error_oracle",
                "error_constant",
                "error_critic",
            )
            mean = {name: np.mean(column(some, name)) for name in names}
            lines.append(
                [
                    str(step),
                    *(f"{mean[name]:.2f}" for name in names[:2]),
                    *(f"{mean[name]:.1f}" for name in names[2:]),
                ]
            )
    header = (
        "step | sd of V(x) | explained by the critic | error, leave-one-out | "
        "oracle V(x) | mean of all V(x) | critic"
    )
    print_table(
        "The tuned critic along its own runs, and the squared error of a group's gradient with "
        "each baseline",
        header,
        lines,
    )


def main() -> None:
    """Run what is missing; print what is there."""
    asked = options(__doc__)
    if asked.quick:
        print(
            len(tune(10, TUNED_OVER[:2])),
            [
                len(curve(name, 0, 10, (1e-3, 1, 2) if name == "critic" else None))
                for name in BASELINES
            ],
        )
        return
    cells = all_cells()
    run_asked(cells[:1], PIECES, asked)  # the runs need what the tuning chose
    run_and_show(cells, PIECES, asked, lambda: tables(PIECES.tables()), "gradient-experiments.md")


if __name__ == "__main__":
    main()
