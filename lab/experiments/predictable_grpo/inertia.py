"""Does a good fit of the oscillator show inertia? Runs without any momentum or lag, fitted with it
and with the rival laws.

    python lab/experiments/predictable_grpo/inertia.py [--quick]

prints the share explained by the oscillator, the exponential and the best law, and the fast time
constant, for runs at momentum 0 that are gradient flow but for their noise, and for the same run
with momentum .9; writes inertia.csv. Rows are the measured means of single runs, as a log has them.
It draws nothing.
"""

import math

import numpy as np
from note import RESULTS, Rows, note_bandit, options, print_table, short

from groupwise.forecasting.fit import fit
from groupwise.parsing import JsonObject
from groupwise_lab.simulate.bandit_runs import Records, simulate_bandit
from groupwise_lab.simulate.softmax_bandit import Bandit, Training, bandit

UPDATES, GROUP_SIZE = 300, 8


def cases() -> list[tuple[str, Bandit, Training, float | None]]:
    """Name, world, training, and the probability of the better arm at the start where that is
    not the reference's.
    """
    note, free = note_bandit(), bandit([0, 1])
    arms = bandit([0, 0.1, 0.2, 0.3, 0.5, 1], kl_weight=0.1)
    worlds = (
        ("KL weight .5, from .3", note, 0.1, 0.3),
        ("KL weight .5, from .05", note, 0.1, 0.05),
        ("no KL term, from .3", free, 0.1, 0.3),
        ("no KL term, from .05", free, 0.1, 0.05),
        ("six arms, KL weight .1", arms, 0.2, None),
    )
    # The same force an update at either momentum: what a run does in the end does not differ.
    return [
        (name, world, Training(rate * (1 - momentum), GROUP_SIZE, 64, momentum=momentum), start)
        for momentum in (0.0, 0.9)
        for name, world, rate, start in worlds
    ]


def one_row(
    name: str, world: Bandit, training: Training, start: float | None, runs: int, seed: int
) -> JsonObject:
    """Medians over runs of the shares explained; how often each law is the best by AICc."""
    place = None if start is None else [0.0, math.log(start / (1 - start))]
    bandit_runs = simulate_bandit(
        world,
        training,
        steps=UPDATES,
        replicates=runs,
        seed=seed,
        start_A=place,
        records=Records(("value", "reward")),
    )
    time_T = np.arange(float(UPDATES))
    share = {"oscillator": [], "exponential": [], "best": []}
    best, tau2 = [], []
    for run in range(runs):
        reward_T = bandit_runs.series["reward"][:UPDATES, run].astype(np.float64)
        alone = fit(time_T, reward_T, law="oscillator")
        all_laws = fit(time_T, reward_T)
        said = {candidate.law: candidate.r_squared for candidate in all_laws.candidates}
        share["oscillator"].append(alone.r_squared)
        share["exponential"].append(said["exponential"])
        share["best"].append(max(said.values()))
        best.append(all_laws.candidates[0].law)
        tau2.append(alone.parameters["tau2"].value)
    row = {"run": name, "momentum": training.momentum}
    row |= {f"r_squared_{law}": np.median(values) for law, values in share.items()}
    row |= {"r_squared_oscillator_least": min(share["oscillator"]), "tau2": np.median(tau2)}
    row["oscillator_best"] = best.count("oscillator") / runs
    return row | {"best": max(sorted(set(best)), key=best.count)}


def show(rows: Rows) -> None:
    """The table."""
    lines = [
        [
            (
                f"{row['run']} | {row['momentum']:g} | "
                f"{row['r_squared_oscillator']:.3f} ({row['r_squared_oscillator_least']:.3f}) | "
                f"{row['r_squared_exponential']:.3f} | {row['r_squared_best']:.3f} | "
                f"{row['best']} | {row['oscillator_best']:.0%}"
            ),
            short(row["tau2"]),
            f"{1 / (1 - row['momentum']):.0f}",
        ]
        for row in rows
    ]
    header = (
        (
            "run | momentum | R² of the oscillator, median (least) | exponential | best | "
            "mostly best by AICc"
        ),
    )
    print_table(
        "Shares explained", (*header, "oscillator best | fitted tau2 | 1/(1 - momentum)"), lines
    )


def main() -> None:
    """Run, print and write."""
    asked = options(__doc__, replicates=20)
    if asked.tables:
        show(RESULTS.read("inertia"))
        return
    chosen = cases()[:1] if asked.quick else cases()
    rows = [one_row(*case, 2 if asked.quick else asked.replicates, asked.seed) for case in chosen]
    show(rows)
    if not asked.quick:
        RESULTS.write("inertia", rows)


if __name__ == "__main__":
    main()
