"""How good is a force read off one log? Runs whose force is known, stable and not, judged as
`groupwise stability RUN` judges them.

    python lab/experiments/predictable_grpo/force_of_runs.py [--quick]

prints, by distance from the threshold and by momentum, how many runs are refused, left open and
called stable, how many of those are not, and how far the force is off; writes force_of_runs.csv, a
row a run. Two worlds: the bandit of the note, KL term in the loss, so that 1.04 of its force is
stale, which the judgement is not told; and one whose better arm is rare at the start, .05, with the
KL term in the reward. It draws nothing.
"""

import math
from itertools import product

import numpy as np
from note import RESULTS, Rows, column, note_bandit, options, print_table, where

from groupwise.analysis.fitted import fit_metric
from groupwise.analysis.stability import measured_stability
from groupwise.edge.mode import LagSetting
from groupwise.errors import InsufficientDataError
from groupwise.parsing import JsonObject
from groupwise.record.run import Meaning, RunConfig, RunRecord, steps_table
from groupwise.series.staleness import StabilitySetting
from groupwise_lab.fields import KlPlace, LagName
from groupwise_lab.simulate.bandit_runs import Records, simulate_bandit
from groupwise_lab.simulate.softmax_bandit import Bandit, Training, bandit, fixed_point
from groupwise_lab.theory.partly_stale import threshold_of_share

UPDATES, GROUP_SIZE = 400, 8
LAGS: tuple[tuple[LagName, int], ...] = (
    ("none", 1),
    ("refresh", 4),
    ("refresh", 8),
    ("async", 4),
    ("fixed", 4),
)
MOMENTA = (0.0, 0.5, 0.9, 0.95)
SHARES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.05, 1.2, 1.5, 3.0)
PROMPTS = (8, 64)


def worlds() -> list[tuple[str, Bandit, KlPlace, float]]:
    """Name, bandit, place of the KL term, and the share of the force that is stale with a lag."""
    return [
        ("note", note_bandit(), "loss", 1.04),
        ("rare", bandit([0, 1], reference_A=[0.95, 0.05], kl_weight=0.3), "reward", 1.0),
    ]


def record_of(reward_T: np.ndarray, deviation_T: np.ndarray, prompts: int) -> RunRecord:
    """A run's log, as the command would find it."""
    steps = steps_table(
        range(1, len(reward_T) + 1),
        {"reward": reward_T.astype(float), "reward_std": deviation_T.astype(float)},
    )
    settings = {"group_size": GROUP_SIZE, "prompts_per_step": prompts, "smoothing": 1}
    meanings = (
        Meaning("reward", "reward", "mean"),
        Meaning("reward_std", "reward_std_within_group", "mean over groups"),
    )
    return RunRecord(
        "run", steps, None, RunConfig().with_settings(settings, "the simulation"), meanings
    )


def judged_row(record: RunRecord, momentum: float, lag: LagSetting, force: float) -> JsonObject:
    """What is said of one run."""
    row = {"verdict": "refused", "law": "", "found": math.nan, "low": math.nan, "high": math.nan}
    fitted = fit_metric(record, "reward")
    row["law"] = fitted.fit.law
    try:
        stability = measured_stability(
            record, fitted, StabilitySetting(momentum, adam=False, lag=lag)
        )
    except InsufficientDataError:
        return row
    row["verdict"] = stability.verdict
    row["doubted"] = int(bool(stability.doubts))
    if stability.force is not None:
        ends = stability.force.force
        row |= {"found": ends.value / force, "low": ends.low / force, "high": ends.high / force}
    # Three digits are what a table needs, and a CSV of a thousand rows.
    return {
        key: float(f"{value:.3g}") if isinstance(value, float) else value
        for key, value in row.items()
    }


def all_rows(
    momenta: tuple[float, ...], shares: tuple[float, ...], prompts_P: tuple[int, ...], seed: int
) -> Rows:
    """Every setting, a run each."""
    rows = []
    for (name, world, place, stale), momentum, (lag, interval), share, prompts in product(
        worlds(), momenta, LAGS, shares, prompts_P
    ):
        limit = threshold_of_share(lag, momentum, interval, stale)
        rate = share * limit / fixed_point(world, Training(1.0, kl_place=place)).stiffness
        training = Training(
            rate, GROUP_SIZE, prompts, momentum=momentum, lag=lag, interval=interval, kl_place=place
        )
        made = simulate_bandit(
            world,
            training,
            steps=UPDATES,
            replicates=1,
            seed=seed + len(rows),
            records=Records(("reward", "reward_std")),
        )
        record = record_of(
            made.series["reward"][:UPDATES, 0], made.series["reward_std"][:UPDATES, 0], prompts
        )
        row = {
            "world": name,
            "momentum": momentum,
            "lag": lag,
            "interval": interval,
            "prompts": prompts,
            "share": share,
            "doubted": 0,
        }
        rows.append(
            {
                **row,
                **judged_row(
                    record, momentum, LagSetting(lag, interval, "none", place), share * limit
                ),
            }
        )
    return rows


def summary(rows: Rows, name: str) -> list[str]:
    """One line of a table: shares of verdicts, wrong ones, and how far the force is off where a
    margin is promised.
    """
    total = len(rows)
    stable = where(rows, verdict="stable")
    wrong = sum(row["share"] > 1 for row in stable)
    trusted = [row for row in rows if row["verdict"] in {"stable", "open"} and not row["doubted"]]
    ratio = column(trusted, "found")
    inside = [row["low"] <= 1 <= row["high"] for row in trusted]
    quantiles = (
        "–"
        if len(ratio) < 5
        else " / ".join(f"{value:.2f}" for value in np.quantile(ratio, (0.05, 0.5, 0.95)))
    )
    line = [
        name,
        str(total),
        *(
            f"{sum(row['verdict'] == verdict for row in rows) / total:.0%}"
            for verdict in ("refused", "open", "stable")
        ),
    ]
    said = f"{wrong} of {len(stable)}" if stable else "–"
    return [*line, said, quantiles, f"{np.mean(inside):.0%} of {len(inside)}" if inside else "–"]


def show(rows: Rows) -> None:
    """The tables."""
    header = (
        (
            "runs | refused | open | stable | stable, yet not | "
            "force found / true, 5 / 50 / 95 % | interval has the true one"
        ),
    )
    groups = (
        ("world", lambda row: row["world"]),
        ("force / threshold", lambda row: row["share"]),
        ("momentum", lambda row: row["momentum"]),
        ("lag", lambda row: f"{row['lag']} {row['interval']:g}"),
        ("groups an update", lambda row: row["prompts"]),
    )
    for title, key in groups:
        names = list(dict.fromkeys(key(row) for row in rows))
        lines = [
            summary(
                [row for row in rows if key(row) == name],
                f"{name:g}" if isinstance(name, float) else str(name),
            )
            for name in names
        ]
        print_table(f"By {title}", (title, *header), lines)
    truly = [row for row in rows if row["share"] < 1]
    lines = [
        summary(rows, "all"),
        summary(truly, "truly stable"),
        summary([row for row in rows if row["share"] > 1], "truly unstable"),
    ]
    print_table("All", ("", *header), lines)


def main() -> None:
    """Run, print and write."""
    asked = options(__doc__)
    if asked.tables:
        show(RESULTS.read("force_of_runs"))
        return
    rows = (
        all_rows((0.9,), (0.1, 1.2), PROMPTS[:1], asked.seed)
        if asked.quick
        else all_rows(MOMENTA, SHARES, PROMPTS, asked.seed)
    )
    show(rows)
    if not asked.quick:
        RESULTS.write("force_of_runs", rows)


if __name__ == "__main__":
    main()
