"""Does a run that chooses its group size while it trains do as well as one that was given the best?

    python lab/experiments/u_statistic/adaptive_group_size.py [--quick] [--tables] [--workers 2]
    [--minutes 60] [--only TEXT]

runs what is missing of: leave-one-out and SGD at 512 rollouts a step for 300 steps, `adaptive.mode`
act from G = 32 and from G = 4, five seeds, with the task, start, learning rate and seeds of the
runs of fixed size in results.txt; many probes of three sizes at the start, for what
chance decides; and runs divided by std with Adam, which the law is not of. The pieces are in
results.txt; the tables of lab/docs/studies/adaptive-group-size.md are printed and
put there. It runs no group size that is fixed: `optimal_group_size.py`
does.
"""

import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from cells import RESULTS, Cell, Rows, column, options, print_table, run_and_show
from group_size_results import RunRows, ScoreOfRows, averaged, final, half_width, paired
from optimal_group_size import RATES, STEPS, name_of
from training import START, run, settings_of
from world import start, world_task

from groupwise.estimators.components import Components
from groupwise.parsing import JsonView
from groupwise_lab.trainer import adaptive as trainer
from groupwise_lab.trainer.controller import ControllerRule, RunningComponents, running_components
from groupwise_lab.trainer.settings import AdaptiveSettings

PIECES = RESULTS.within("adaptive_group_size")
FIXED = RESULTS.within("optimal_group_size")
N = 512
SIZES = (2, 4, 8, 16, 32, 64, 128)
KEPT = ("group_size", "planned_group_size", "running_vp", "running_t", "running_r")
HOW = AdaptiveSettings("act")  # 16 prompts of 8 rollouts every 25 steps, threshold 5 %, fading 0.8


@dataclass(frozen=True)
class Arm:
    """One way to choose.

    Args:
        label: in the tables.
        start: group size at the start.
        how: probes and rule.
        seeds: how many.
        algorithm: sgd or adam.
    """

    label: str
    start: int
    how: AdaptiveSettings = HOW
    seeds: int = 5
    algorithm: str = "sgd"


PROBES = ((16, 8, 60), (8, 4, 120), (4, 4, 240))  # prompts, rollouts of each, how many
LOOKS = 12  # of a run
RULES = {"5 % beyond the interval": HOW.rule, "none": ControllerRule(threshold=0.0, level=1e-6)}
ARMS = {
    "from032": Arm("from G = 32", 32),
    "from004": Arm("from G = 4", 4),
    "adam": Arm("from G = 32, divided by std, Adam", 32, seeds=3, algorithm="adam"),
}


def adaptive(arm: str, seed: int, rollouts: int = N, steps: int = STEPS) -> Rows:
    """One run; of `seconds`, which are the processor's, `probe_seconds` went into measuring."""
    chosen = ARMS[arm]
    settings = settings_of(
        chosen.algorithm,
        rollouts,
        chosen.start,
        seed,
        steps,
        RATES[chosen.algorithm, N],
        adaptive=chosen.how,
    )
    with probes_timed() as spent:
        return run(settings, watch=lambda _step, _policy: {"probe_seconds": sum(spent)}, kept=KEPT)


@contextmanager
def probes_timed() -> Iterator[list[float]]:
    """Processor seconds of every probe: the record's are the clock's, which on a busy machine
    tell of others.
    """
    spent = []
    probe = trainer.probe

    def timed(*given, **named) -> Components:
        began = time.process_time()
        try:
            return probe(*given, **named)
        finally:
            spent.append(time.process_time() - began)

    trainer.probe = timed
    try:
        yield spent
    finally:
        trainer.probe = probe


def looks(prompts: int, rollouts: int, probes: int) -> Rows:
    """Probes of the policy at the start, each by itself."""
    policy, task, rows = start(START), world_task(), []
    for number in range(probes):
        drawn = np.random.default_rng([number, 7]).integers(len(task.train), size=prompts)
        problems, generator = (
            [task.train[place] for place in drawn],
            torch.Generator().manual_seed(number),
        )
        estimate = running_components(trainer.probe(policy, task, problems, rollouts, generator))
        spread = {
            f"c{a}{b}": float(estimate.estimate.covariance_CC[a, b])
            for a in range(3)
            for b in range(3)
        }
        rows.append(
            {"probe": number, "prompts": prompts}
            | dict(zip(("vp", "t", "r"), estimate.estimate.vtr.tolist(), strict=True))
            | spread
        )
    return rows


def measured(row: JsonView) -> RunningComponents:
    """The sums of a probe."""
    count, covariance = (
        float(row["prompts"]),
        np.array([[row[f"c{a}{b}"] for b in range(3)] for a in range(3)]),
    )
    return RunningComponents(
        count, count, count * np.array([row["vp"], row["t"], row["r"]]), count**2 * covariance
    )


def followed(probes: Sequence[RunningComponents], size: int, rule: ControllerRule) -> list[int]:
    """The sizes after each of some looks at one and the same policy."""
    sizes, running = [], None
    for new in probes:
        running = new if running is None else running.faded(rule.fading) + new
        size = rule.decide(running, size, N).group_size
        sizes.append(size)
    return sizes


def cell_name(arm: str, seed: int) -> str:
    """Of a run."""
    return f"adaptive-N{N}-{arm}-seed{seed}"


def all_cells() -> list[Cell]:
    """Every arm and seed, the two that the question is about first."""
    wanted = [(arm, seed) for seed in range(5) for arm in ("from032", "from004")]
    wanted += [("adam", seed) for seed in range(ARMS["adam"].seeds)]
    runs = [
        Cell(cell_name(arm, seed), adaptive, {"arm": arm, "seed": seed}) for arm, seed in wanted
    ]
    seen = [
        Cell(f"looks-{p}x{g}", looks, {"prompts": p, "rollouts": g, "probes": count})
        for p, g, count in PROBES
    ]
    return runs[:10] + seen + runs[10:]


def runs_of(done: RunRows, arm: str) -> dict[int, Rows]:
    """Seed -> rows of an arm."""
    return {
        seed: done[cell_name(arm, seed)]
        for seed in range(ARMS[arm].seeds)
        if cell_name(arm, seed) in done
    }


def fixed_scores(fixed: RunRows, algorithm: str, score: ScoreOfRows) -> dict[int, dict[int, float]]:
    """Size -> seed -> score of the runs of fixed size that are there."""
    names = {size: {seed: name_of(algorithm, N, size, seed) for seed in range(5)} for size in SIZES}
    scores_of_size = {
        size: {seed: score(fixed[name]) for seed, name in own.items() if name in fixed}
        for size, own in names.items()
    }
    return {size: own for size, own in scores_of_size.items() if own}


def best_fixed(score_of_seed: Mapping[int, Mapping[int, float]], seeds: Sequence[int]) -> int:
    """The size of highest mean among those that have all these seeds."""
    whole = {
        size: np.mean([own[seed] for seed in seeds])
        for size, own in score_of_seed.items()
        if set(seeds) <= set(own)
    }
    return max(whole, key=lambda size: whole[size])


def regret_table(done: RunRows, fixed: RunRows) -> None:
    """What each arm loses against the best fixed size and gains over the size it began with."""
    lines = []
    for arm, chosen in ARMS.items():
        runs = runs_of(done, arm)
        for what, score in (("mean of the run", averaged), ("final", final)):
            scores_of_size = fixed_scores(fixed, chosen.algorithm, score)
            seeds = [seed for seed in runs if seed in scores_of_size[4]]
            if len(seeds) < 2:
                continue
            best, own = (
                best_fixed(scores_of_size, seeds),
                {seed: score(runs[seed]) for seed in runs},
            )
            lost, half = paired(
                [scores_of_size[best][seed] for seed in seeds], [own[seed] for seed in seeds]
            )
            level = np.mean([scores_of_size[best][seed] for seed in seeds])
            regret = f"{100 * lost / level:.2f} % ± {100 * half / level:.2f}"
            lines.append(
                [
                    (
                        f"{chosen.label} | {what} | {len(seeds)} | "
                        f"{np.mean(list(own.values())):.4f} | {best} ({level:.4f}) | {regret}"
                    )
                ]
            )
            lines[-1].append(against(own, scores_of_size.get(chosen.start, {})))
    header = (
        " |  | seeds | adaptive | best fixed G | regret, 95 % | "
        "gained over the size at the start, 95 % (seeds)"
    )
    print_table("Regret against the best fixed size", header, lines)


def against(own: Mapping[int, float], other: Mapping[int, float]) -> str:
    """Difference over the seeds that both have."""
    seeds = sorted(set(own) & set(other))
    if len(seeds) < 2:
        return ""
    gap, half = paired([own[seed] for seed in seeds], [other[seed] for seed in seeds])
    return f"{gap:+.4f} ± {half:.4f} ({len(seeds)})"


def same_runs(done: RunRows, fixed: RunRows, arm: str) -> list[str]:
    """Seeds of an arm whose looks are, digit for digit, those of a run of fixed size."""
    seeds = []
    for seed, rows in runs_of(done, arm).items():
        for size in SIZES:
            other = fixed.get(name_of(ARMS[arm].algorithm, N, size, seed), [])
            if np.array_equal(column(other, "held_out"), column(rows, "held_out")):
                seeds.append(f"{seed} (G = {size})")
    return seeds


def sizes_table(done: RunRows, fixed: RunRows) -> None:
    """What the arms did: sizes in use, changes, and runs that are those of a fixed size."""
    lines = []
    for arm, chosen in ARMS.items():
        runs = runs_of(done, arm)
        if not runs:
            continue
        used = [
            [int(row["group_size"]) for row in rows if row["group_size"] != ""]
            for rows in runs.values()
        ]
        share = {size: np.mean([np.mean(np.array(row) == size) for row in used]) for size in SIZES}
        changes = [sum(a != b for a, b in pairwise([chosen.start, *size])) for size in used]
        first = ", ".join(str(size[0]) for size in used)
        steps = ", ".join(
            f"{size} ({100 * part:.0f} %)" for size, part in share.items() if part > 0
        )
        lines.append(
            [
                chosen.label,
                first,
                steps,
                ", ".join(map(str, changes)),
                ", ".join(same_runs(done, fixed, arm)) or "none",
            ]
        )
    header = (
        " | G after the first look | G in use (share of looks) | changes seen | "
        "seeds that are a run of fixed G"
    )
    print_table("What was chosen, seed by seed", header, lines)


def looks_table(done: RunRows) -> None:
    """What chance decides: one look from G = 32, and twelve from G = 4, with hysteresis and
    without.
    """
    lines = []
    for prompts, rollouts, _ in PROBES:
        probes = [measured(row) for row in done.get(f"looks-{prompts}x{rollouts}", [])]
        if not probes:
            continue
        for label, rule in RULES.items():
            first = Counter(followed([probe], 32, rule)[0] for probe in probes)
            chains = [
                followed(probes[at : at + LOOKS], 4, rule)
                for at in range(0, len(probes) - LOOKS + 1, LOOKS)
            ]
            changes = np.mean([sum(a != b for a, b in pairwise([4, *chain])) for chain in chains])
            away = np.mean([size != 4 for chain in chains for size in chain])
            shares = ", ".join(
                f"{size} ({100 * count / len(probes):.0f} %)"
                for size, count in sorted(first.items())
            )
            lines.append(
                [
                    (
                        f"{prompts} x {rollouts} | {label} | {len(probes)} | {shares} | "
                        f"{len(chains)} | {changes:.1f} | {100 * away:.0f} %"
                    )
                ]
            )
    header = (
        (
            "prompts x rollouts | hysteresis | probes | one look from G = 32 leads to | "
            "chains of 12 looks from G = 4"
        ),
    )
    print_table(
        "What chance decides, at the policy of the start",
        (*header, "changes a chain | looks after which G is not 4"),
        lines,
    )


def cost_table(done: RunRows) -> None:
    """Processor time and rollouts of the probes, and what is left at equal time."""
    lines = []
    for arm, chosen in ARMS.items():
        runs = runs_of(done, arm)
        if not runs:
            continue
        share = [rows[-1]["probe_seconds"] / rows[-1]["seconds"] for rows in runs.values()]
        probes = math.ceil(STEPS / chosen.how.every)
        drawn = probes * chosen.how.prompts * chosen.how.rollouts
        each = np.mean([rows[-1]["probe_seconds"] for rows in runs.values()]) / probes
        shorter = [(1 - part) * STEPS for part in share]
        lost = [
            final(rows) - final_at(rows, stop)
            for stop, rows in zip(shorter, runs.values(), strict=True)
        ]
        span = f"{100 * np.mean(share):.1f} % ± {100 * half_width(share):.1f}"
        rollouts = f"{drawn:,} ({100 * drawn / (N * STEPS):.1f} %)"
        lines.append(
            [
                (
                    f"{chosen.label} | {probes} | {1000 * each:.0f} | {span} | {rollouts} | "
                    f"{np.mean(lost):.4f} ± {half_width(lost):.4f}"
                )
            ]
        )
    header = (
        (
            " | probes a run | processor ms each | share of processor time, 95 % | "
            "rollouts beside the 153,600 of training"
        ),
    )
    print_table("What measuring costs", (*header, "final accuracy lost at equal time, 95 %"), lines)


def final_at(rows: Rows, step: float) -> float:
    """The final accuracy of a run that ends at a step, between looks on a straight line."""
    ends = range(3, len(rows) + 1)
    return np.interp(
        step, [rows[end - 1]["step"] for end in ends], [final(rows[:end]) for end in ends]
    )


def show() -> None:
    """Print what is there."""
    done, fixed = PIECES.tables(), FIXED.tables()
    regret_table(done, fixed)
    sizes_table(done, fixed)
    looks_table(done)
    cost_table(done)


def main() -> None:
    """Run what is missing; print what is there."""
    asked = options(__doc__)
    if asked.quick:
        print(
            [column(adaptive(arm, 0, 128, 10), "group_size")[1:] for arm in ARMS],
            len(looks(4, 4, 2)),
        )
        return
    run_and_show(all_cells(), PIECES, asked, show, "adaptive-group-size.md")


if __name__ == "__main__":
    main()
