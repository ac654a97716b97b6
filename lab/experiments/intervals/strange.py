"""Does each interval of the project hold in worlds that it was not made on?

    python lab/experiments/intervals/strange.py [--replicates 500] [--processes 2]
    [--own FILE] [--drawn 40]

The worlds are those of `strange_worlds`. Prompts: the 95 % intervals of Vp, T and R,
of the best group size G*, of the speed that the size in use loses beside the one named, and the
error of the one named over the least, on average; a batch is a draw. Curves: rows to come inside
the 90 % band of a forecast from 10, 20, 40 and 60 % of 200 rows, with white noise of .02, .05 and
.1 (slow noise where nothing else moves); a third of the rise of a logistic, and a fifth of the loss
of a decline, stand by themselves. Heavy ball: the fitted oscillator, and the plateau where all laws
compete, of 200 rows. Groups of runs: the difference of their late means. Prints a row a world: of
each interval how often it holds the truth, over all draws and over those without a note, and its
median width over that of 95 % of the estimates (of rows: of the noise); writes the table `strange`.
`--own` takes BATCHES and SHAPES of a Python file of your own instead, and `--drawn` so many batches
that the seed draws; neither writes.
"""

import runpy
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.random import Generator

from groupwise.errors import InsufficientDataError
from groupwise.estimators.best_group_size import Budget, plan_from_components, speed_lost
from groupwise.estimators.components import components
from groupwise.forecasting.fit import fit
from groupwise.forecasting.forecast import shipped
from groupwise.intervals import Interval

sys.path += [str(Path(__file__).resolve().parents[1] / name) for name in ("", "comparison")]
import rates
from common import Row, Rows, arguments, print_table, results_of
from strange_worlds import (
    BALLS,
    BATCHES,
    ROWS,
    SHAPES,
    BatchDesign,
    graded,
    part_passed,
    right_or_wrong,
)

from groupwise_lab.forecasts.backtest import SHARES, rows_seen, trial
from groupwise_lab.worlds.bandit import BanditWorld
from groupwise_lab.worlds.runs import autoregressive_noise

BUDGET, LEVEL = 512, 0.9
FAR_ENOUGH = {"logistic": 1 / 3, "early logistic": 1 / 3, "late decline": 1 / 5}
IntervalTrial = tuple[
    Interval, float, bool
]  # an interval, the truth, and whether a note goes with it


def draw_batch(rng: Generator, number: int) -> None:
    """Rewards of right or wrong, or normal ones with a bonus where lengths differ, in turn."""
    share, bonus = rng.uniform(), rng.uniform(0, 8)

    def make(rng: Generator) -> BanditWorld:
        if number % 2:
            return graded(
                rng,
                share,
                lambda size: rng.standard_normal(size) + bonus * (rng.random(size) < 0.01),
            )
        return right_or_wrong(rng, 12 * share - 6)

    name = (
        f"bonus {bonus:.1f}, lengths {share:.2f}"
        if number % 2
        else f"difficulty {12 * share - 6:.1f}"
    )
    prompts, rollouts = (int(rng.choice(some)) for some in ([16, 32, 64, 128], [4, 6, 8, 16]))
    BATCHES[f"{number}: {name}"] = BatchDesign(make, prompts, rollouts)


def row_of(world: str, interval: str, held: list[IntervalTrial], ideal: float = 0.0) -> Row:
    """What draws come to; the ideal width is that of the estimates where it is not told."""
    value, low, high = np.transpose([(part.value, part.low, part.high) for part, _, _ in held])
    covered = np.array([part.covers(truth) for part, truth, _ in held])
    noted = np.array([note for *_, note in held])
    if not ideal:
        ideal = float(np.diff(np.quantile(value[np.isfinite(value)], [0.025, 0.975]))[0])
    return {
        "world": world,
        "interval": interval,
        "draws": len(held),
        "noted": float(noted.mean()),
        "covered": float(covered.mean()),
        "silent": float(covered[~noted].mean()) if not noted.all() else np.nan,
        "width": float(np.median(high - low)) / ideal if ideal else np.nan,
    }


def of_prompts(name: str, draws: int, seed: int) -> Rows:
    """The intervals of the components, and of what is planned by them."""
    batch, place = BATCHES[name], list(BATCHES).index(name)
    world = batch.make(np.random.default_rng([20261124, place]))
    rng, truth = np.random.default_rng([seed, place]), world.moments()
    size = np.arange(2, BUDGET + 1)
    error = (truth.vp + truth.t / size + truth.r / (size * (size - 1))) / (BUDGET // size)
    held: dict[str, list[IntervalTrial]] = defaultdict(list)
    excess = []
    for _ in range(draws):
        score_ND, reward_N, label_N, text_N = batch.draw(world, rng)
        made = components(reward_N, label_N, score_ND=score_ND, text_N=text_N)
        note = bool(made.notes)
        held["Vp"].append((made.vp.interval, truth.vp, note))
        held["T"].append((made.t.interval, truth.t, note))
        held["R"].append((made.r.interval, truth.r, note))
        held["G*"].append((made.group_size, 1 + np.sqrt(truth.r / truth.vp), note))
        with suppress(InsufficientDataError):
            budget, present = Budget(BUDGET), batch.rollouts
            plan = plan_from_components(made, budget, present=present)
            both = error[[present - 2, plan.group_size - 2]]
            lost = float(speed_lost(*both, float(truth.gradient_D @ truth.gradient_D)))
            assert plan.present is not None
            held["price"].append((plan.present.now, lost, note))
            excess.append(both[1] / error.min())
    rows = [row_of(name, interval, of) for interval, of in held.items()]
    named = {"draws": len(excess), "width": float(np.mean(excess))}
    return [
        *rows,
        rows[0] | {"interval": "named size"} | named | {"covered": np.nan, "silent": np.nan},
    ]


def of_curves(name: str, draws: int, seed: int) -> Rows:
    """The rows of forecasts; of 25 draws a run is one."""
    inside: dict[tuple[str, float], list[tuple[float, float]]] = defaultdict(list)
    for number in range(max(draws // 25, 1)):
        for deviation in (0.02, 0.05, 0.1):
            place = [seed, list(SHAPES).index(name), number, int(1000 * deviation)]
            rng = np.random.default_rng(place)
            mean_T = SHAPES[name](rng)
            slow = 0.9 if np.ptp(mean_T) == 0 else 0.0
            value_T = mean_T + autoregressive_noise(rng, ROWS, deviation, slow)
            for share in SHARES:
                score = trial(np.arange(ROWS), value_T, share, smoothing=1, methods={}).score(
                    shipped(), level=LEVEL
                )
                coverage = score.rows_covered / score.windows, score.widths["rows"] / deviation
                inside[name, share].append(coverage)
                least = FAR_ENOUGH.get(name, 2)
                if part_passed(name, mean_T, rows_seen(ROWS, share)) >= least:
                    inside[f"{name}, {least:.0%} seen", share].append(coverage)
    ideal, rows = 2 * 1.645, []  # widths of noise alone, in deviations
    for (world, share), of in inside.items():
        if len(of) < draws // 50:  # too few runs show so much
            continue
        covered, width = np.mean(of, axis=0)
        row = {"world": world, "interval": f"from {share:.0%}", "draws": len(of), "noted": 0.0}
        rows.append(row | {"covered": covered, "silent": covered, "width": width / ideal})
    return sorted(rows, key=lambda row: (row["world"], row["interval"]))


def of_fits(name: str, draws: int, seed: int) -> Rows:
    """The fitted oscillator, and the plateau where laws compete; of five draws a run is one."""
    ball, held = BALLS[name], defaultdict(list)
    for number in range(max(draws // 5, 1)):
        time_T, value_T = ball.draw(np.random.default_rng([seed, number]), ROWS)
        made, free = fit(time_T, value_T, law="oscillator"), fit(time_T, value_T)
        for part, truth in ball.truth.items():
            held[part.replace("_", " ")].append((made, part, truth))
        held["plateau, any law"].append((free, "plateau", 0.8))
    return [
        row_of(
            f"heavy ball, {name}",
            interval,
            [(of.parameters[part], truth, of.status != "converged") for of, part, truth in cases],
        )
        for interval, cases in held.items()
    ]


def of_groups(name: str, draws: int, seed: int) -> Rows:
    """The difference of late means, by the study of comparisons; no draw has a note."""
    cell = next(cell for cell in rates.GROUPS if cell.name == name)
    covered = rates.group_cell(cell, draws, seed)["covered"]
    row = {"world": name, "interval": "difference", "draws": draws, "noted": 0.0}
    return [row | {"covered": covered, "silent": covered, "width": np.nan}]


def jobs(own: str, drawn: int, seed: int) -> Iterator[tuple[Callable[..., Rows], str]]:
    """What is to be scored."""
    named, shapes = len(BATCHES), len(SHAPES)
    made = runpy.run_path(own) if own else {}
    BATCHES.update(made.get("BATCHES", {}))
    SHAPES.update(made.get("SHAPES", {}))
    rng = np.random.default_rng([seed, 1])
    for number in range(drawn):
        draw_batch(rng, number)
    if not (own or drawn):
        named = shapes = 0
        yield from ((of_fits, name) for name in BALLS)
        yield from ((of_groups, cell.name) for cell in rates.GROUPS)
    yield from ((of_prompts, name) for name in list(BATCHES)[named:])
    yield from ((of_curves, name) for name in list(SHAPES)[shapes:])


def main() -> None:
    """Score all of them."""
    given = arguments(__doc__, replicates=500, processes=2, seed=2026, own="", drawn=0)
    work = list(jobs(given.own, given.drawn, given.seed))
    with ProcessPoolExecutor(given.processes) as pool:
        made = [pool.submit(score, name, given.replicates, given.seed) for score, name in work]
        rows = [row for job in made for row in job.result()]
    of_world: dict[str, Rows] = defaultdict(list)
    for row in rows:
        of_world[row["world"]].append(row)
    lines = [
        [name, f"{part[0]['noted']:.0%}", ", ".join(map(in_words, part))]
        for name, part in of_world.items()
    ]
    header = "world | noted | interval: held/without a note/width"
    print_table("In strange worlds", header, lines)
    if not (given.own or given.drawn):
        results_of(__file__).write("strange", rows, digits=4)


def in_words(row: Row) -> str:
    """An interval of a row, without the numbers that it has not."""
    held = [row["covered"], *([row["silent"]] if row["noted"] else [])]
    parts = [f"{number:.2f}" for number in held] + [f"{row['width']:.1f}"]
    return f"{row['interval']} " + "/".join(part for part in parts if part != "nan")


if __name__ == "__main__":
    main()
