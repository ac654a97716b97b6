"""Does each interval of the project hold in worlds that it was not made on?

    python lab/experiments/intervals/strange.py [--replicates 500] [--processes 2]
    [--world FILE.py:NAME,...] [--curve FILE.py:NAME,...] [--drawn 40]

The worlds are those of `groupwise_lab.worlds.strange`. Prompts: the 95 % intervals of Vp, T and R,
of the best group size G*, of the speed that the size in use loses beside the safe one, and the
error of the one named, where one is, over the least, on average; a batch is a draw. Curves: rows to
come inside the 90 % band of a forecast from 10, 20, 40 and 60 % of 200 rows, with white noise of
.02, .05 and .1 (slow noise where nothing else moves); a third of the rise of a logistic, and a
fifth of the loss of a decline, stand by themselves. Heavy ball: the fitted oscillator, and the
plateau where all laws compete, of 200 rows. Groups of runs: the difference of their late means. The
half that a world is in is drawn from its name alone. Prints a row a world as soon as it is scored:
of each interval how often it holds the truth, over all draws and over those without a note, and its
median width over that of 95 % of the estimates (of rows: of the noise); writes the table `strange`.

`--world` and `--curve` take functions of your own instead, `--drawn` so many batches that the seed
draws; none writes. Both are functions of a NumPy generator. A world returns a batch: scores (N, D),
rewards (N,), the number of each rollout's prompt (N,), and its text, without which every batch has
a note; the truth is that of 2,000 batches, whose gradients are multiplied across batches alone. A
curve returns the values of a run's rows, noise and all.
"""

import runpy
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.random import Generator

from groupwise.arrays import Float, finite_array
from groupwise.errors import GroupwiseError, InsufficientDataError
from groupwise.estimators.best_group_size import Budget, plan_from_components, speed_lost
from groupwise.estimators.components import components
from groupwise.estimators.moments import moments_of_scores
from groupwise.forecasting.fit import fit
from groupwise.forecasting.forecast import shipped
from groupwise.intervals import Interval

sys.path += [str(Path(__file__).resolve().parents[1] / name) for name in ("", "comparison")]
import rates
from common import Row, Rows, arguments, print_table, results_of

from groupwise_lab.forecasts.backtest import SHARES, rows_seen, trial
from groupwise_lab.worlds.bandit import BanditWorld
from groupwise_lab.worlds.runs import autoregressive_noise
from groupwise_lab.worlds.strange import (
    BALLS,
    BATCHES,
    HALVES,
    SHAPES,
    BatchDesign,
    graded,
    half,
    part_passed,
    right_or_wrong,
)

BUDGET, LEVEL, BATCHES_OF_TRUTH = 512, 0.9, 2000
FAR_ENOUGH = {"logistic": 1 / 3, "early logistic": 1 / 3, "late decline": 1 / 5}
# an interval, the truth, and whether a note goes with it
IntervalTrial = tuple[Interval, float, bool]
Scoring = Callable[[str, int, int], Rows]
Drawing = Callable[[Generator], Any]  # scores, rewards, numbers and texts of prompts; or rows


def draw_batch(rng: Generator, number: int) -> str:
    """Enter rewards of right or wrong, or normal ones with a bonus where lengths differ."""
    share, bonus = rng.uniform(), rng.uniform(0, 8)

    def make(rng: Generator) -> BanditWorld:
        if number % 2:
            return graded(
                rng,
                share,
                lambda size: rng.standard_normal(size) + bonus * (rng.random(size) < 0.01),
            )
        return right_or_wrong(rng, 12 * share - 6)

    kind = f"bonus {bonus:.1f}, lengths" if number % 2 else "difficulty"
    name = f"{number}: {kind} {share:.2f}"
    prompts, rollouts = (int(rng.choice(some)) for some in ([16, 32, 64, 128], [4, 6, 8, 16]))
    BATCHES[name] = BatchDesign(make, prompts, rollouts)
    return name


def row_of(world: str, interval: str, held: list[IntervalTrial]) -> Row:
    """What draws come to; the ideal width is that of the estimates."""
    value, low, high = np.transpose([(part.value, part.low, part.high) for part, _, _ in held])
    covered = np.array([part.covers(truth) for part, truth, _ in held])
    noted = np.array([note for *_, note in held])
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


def own(place: str) -> Drawing:
    """The function of a stranger's file."""
    path, _, name = place.rpartition(":")
    return cast("Drawing", runpy.run_path(path)[name])


def world_of(name: str) -> tuple[tuple[float, ...], Drawing]:
    """Vp, T, R and the squared gradient of a world, and the function that draws its batches."""
    if name not in BATCHES:
        return pooled(own(name)), own(name)
    world = BATCHES[name].make(np.random.default_rng([20261124, list(BATCHES).index(name)]))
    truth, draw = world.moments(), partial(BATCHES[name].draw, world)
    return (truth.vp, truth.t, truth.r, float(truth.gradient_D @ truth.gradient_D)), draw


def pooled(draw: Drawing) -> tuple[float, ...]:
    """What many batches come to: no two gradients of one batch are multiplied, whatever its
    prompts share.
    """
    rng, total, square, moment = np.random.default_rng(20261130), 0.0, 0.0, 0.0
    for _ in range(BATCHES_OF_TRUTH):
        made = moments_of_scores(*draw(rng)[:3], zero_mean=False)
        mean_D = made.gradient_PD.mean(axis=0)
        total, square = total + mean_D, square + mean_D @ mean_D
        moment = moment + made.moment_PC.mean(axis=0)
    gradient = float((total @ total - square) / (BATCHES_OF_TRUTH * (BATCHES_OF_TRUTH - 1)))
    within, t, r = (moment / BATCHES_OF_TRUTH)[:3].tolist()
    return max(within - gradient, 1e-12), t, r, gradient


def of_prompts(name: str, draws: int, seed: int) -> Rows:
    """The intervals of the components, and of what is planned by them."""
    (vp, t, r, gradient), draw = world_of(name)
    rng, size = np.random.default_rng(seed), np.arange(2, BUDGET + 1)
    error = (vp + t / size + r / (size * (size - 1))) / (BUDGET // size)
    held: dict[str, list[IntervalTrial]] = defaultdict(list)
    excess = []
    for _ in range(draws):
        score_ND, reward_N, label_N, *texts = draw(rng)
        text_N = texts.pop() if texts else None
        made = components(reward_N, label_N, score_ND=score_ND, text_N=text_N)
        note = bool(made.notes)
        held["Vp"].append((made.vp.interval, vp, note))
        held["T"].append((made.t.interval, t, note))
        held["R"].append((made.r.interval, r, note))
        held["G*"].append((made.group_size, 1 + np.sqrt(r / vp), note))
        with suppress(InsufficientDataError):
            present = round(len(reward_N) / len(np.unique(label_N)))
            plan = plan_from_components(made, Budget(BUDGET), present=present)
            both = error[[present - 2, plan.group_size - 2]]
            assert plan.present is not None
            held["price"].append((plan.present.now, float(speed_lost(*both, gradient)), note))
            if plan.named:
                excess.append(both[1] / error.min())
    rows = [row_of(name, interval, of) for interval, of in held.items()]
    cost = float(np.mean(excess)) if excess else np.nan
    named: Row = {"interval": "named size", "draws": len(excess), "width": cost}
    return [*rows, rows[0] | dict.fromkeys(["covered", "silent"], np.nan) | named]


def runs_of(name: str, draws: int, seed: int) -> Iterator[tuple[Float, Float, float]]:
    """The means, the rows and the noise of runs; of 25 draws three are one."""
    for number in range(max(draws // 25, 1)):
        for deviation in (0.02, 0.05, 0.1):
            rng = np.random.default_rng([seed, number, int(1000 * deviation)])
            if name not in SHAPES:
                value_T = finite_array(f"the rows of {name}", own(name)(rng), dimensions=1)
                yield value_T, value_T, float(np.diff(value_T).std() / np.sqrt(2))
                continue
            mean_T = SHAPES[name](rng)
            slow = 0.9 if np.ptp(mean_T) == 0 else 0.0
            noise_T = autoregressive_noise(rng, len(mean_T), deviation, slow)
            yield mean_T, mean_T + noise_T, deviation


def of_curves(name: str, draws: int, seed: int) -> Rows:
    """The rows of forecasts."""
    inside: dict[tuple[str, float], list[tuple[float, float]]] = defaultdict(list)
    least = FAR_ENOUGH.get(name, 2)
    for mean_T, value_T, deviation in runs_of(name, draws, seed):
        rows = len(value_T)
        for share in SHARES:
            tried = trial(np.arange(rows), value_T, share, smoothing=1, methods={})
            score = tried.score(shipped(), level=LEVEL)
            coverage = score.rows_covered / score.windows, score.widths["rows"] / deviation
            inside[name, share].append(coverage)
            if least < 1 and part_passed(name, mean_T, rows_seen(rows, share)) >= least:
                inside[f"{name}, {least:.0%} seen", share].append(coverage)
    ideal, made = 2 * 1.645, []  # widths of noise alone, in deviations
    for (world, share), of in inside.items():
        if len(of) < draws // 50:  # too few runs show so much
            continue
        covered, width = np.mean(of, axis=0)
        row = {"world": world, "interval": f"from {share:.0%}", "draws": len(of), "noted": 0.0}
        made.append(row | {"covered": covered, "silent": covered, "width": width / ideal})
    return sorted(made, key=lambda row: (row["world"], row["interval"]))


def of_fits(name: str, draws: int, seed: int) -> Rows:
    """The fitted oscillator, and the plateau where laws compete; of five draws a run is one."""
    ball, held = BALLS[name], defaultdict(list)
    for number in range(max(draws // 5, 1)):
        time_T, value_T = ball.draw(np.random.default_rng([seed, number]), 200)
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


def jobs(worlds: str, curves: str, drawn: int, seed: int) -> Iterator[tuple[Scoring, str]]:
    """What is to be scored."""
    for score, places in ((of_prompts, worlds), (of_curves, curves)):
        yield from ((score, place) for place in dict.fromkeys(places.split(",")) if places)
    rng = np.random.default_rng([seed, 1])
    yield from ((of_prompts, draw_batch(rng, number)) for number in range(drawn))
    if not (worlds or curves or drawn):
        groups = [cell.name for cell in rates.GROUPS]
        kinds = ((of_fits, BALLS), (of_groups, groups), (of_prompts, BATCHES), (of_curves, SHAPES))
        yield from ((score, name) for score, names in kinds for name in names)


def main() -> None:
    """Score all of them."""
    given = arguments(__doc__, replicates=500, processes=2, seed=2026, world="", curve="", drawn=0)
    own_ones = given.world or given.curve or given.drawn
    work = list(jobs(given.world, given.curve, given.drawn, given.seed))
    half_of = {name: HALVES[1] if own_ones else half(name) for _, name in work}
    work.sort(key=lambda job: half_of[job[1]], reverse=True)
    failed, rows = 0, Rows()
    with ProcessPoolExecutor(given.processes) as pool:
        made = [pool.submit(score, name, given.replicates, given.seed) for score, name in work]
        for (_, name), job in zip(work, made, strict=True):
            try:
                scored = job.result()
            except (Exception, SystemExit) as error:  # of a stranger's code
                if not own_ones:
                    raise
                said = (
                    f"{name}: {error}"
                    if isinstance(error, GroupwiseError)
                    else f"expected FILE.py:NAME of a function of a generator, got {name!r} "
                    f"({' '.join(repr(error).split())}): name one as in my.py:draw"
                )
                print(said, file=sys.stderr)
                failed = 2
                continue
            part = half_of[name]
            if not rows or rows[-1]["half"] != part:
                header = "world | noted | interval: held/without a note/width"
                print_table(f"Worlds that rules are {part}", header, ())
            rows += [{"half": part} | row for row in scored]
            for world, (first, *more) in groupby(scored, key=lambda row: row["world"]):
                words = ", ".join(map(in_words, [first, *more]))
                print(f"| {world} | {first['noted']:.0%} | {words} |", flush=True)
    if failed:
        sys.exit(failed)
    if not own_ones:
        results_of(__file__).write("strange", rows, digits=4)


def in_words(row: Row) -> str:
    """An interval of a row, without the numbers that it has not."""
    held = [row["covered"], *([row["silent"]] if row["noted"] else [])]
    parts = [f"{number:.2f}" for number in held] + [f"{row['width']:.1f}"]
    return f"{row['interval']} " + "/".join(part for part in parts if part != "nan")


if __name__ == "__main__":
    main()
