"""Runs of stochastic gradient ascent against the limiting law of their final gap: mean, 90 and 99 %
quantiles, Kolmogorov-Smirnov.

    python lab/experiments/u_statistic/gap_law.py            (half an hour on one core)
    python lab/experiments/u_statistic/gap_law.py --tables   (the tables and the figure from the CSV
    files)

Steps b/(i + 40) from the optimum, b twice the inverse of the smallest curvature, 8 prompts an
update; after n updates (n + 40) times the gap is held against the law, whose mean has no free
constant. A Kolmogorov-Smirnov test of a right law fails once in a thousand. It measures no rate:
`gap_rate` does.
"""

import time

import numpy as np
from falling_steps import falling_runs
from final_gap import limiting_gap
from gap_world import BASELINE, NAME, RESULTS, Row, Rows, Stage, options, print_table, stage
from scipy import stats

PROMPTS, OFFSET = 8, 40
SIZES = (2, 4, 8, 16, 64)
SETTINGS = (
    *(("two answers", "leave_one_out", size, 1.0) for size in SIZES),
    *(
        ("two answers", baseline, size, 0.1)
        for baseline in ("oracle", "vanilla")
        for size in SIZES[:4]
    ),
    *(
        (world, baseline, 8, 0.1)
        for world in ("bandit", "three answers")
        for baseline in ("leave_one_out", "oracle", "vanilla")
    ),
)
LEVELS = np.concatenate(
    [np.arange(0.01, 0.9, 0.02), np.arange(0.9, 0.99, 0.01), np.arange(0.99, 0.9995, 0.001)]
)
FALSE_ALARM = 1e-3


def setting(
    place: Stage, baseline: str, size: int, runs: int, steps: int, rng: np.random.Generator
) -> tuple[Row, np.ndarray]:
    """One row: the runs of one setting beside the law; and the scaled gaps."""
    begun = time.process_time()
    falling = falling_runs(
        place.world,
        baseline,  # type: ignore[arg-type]
        rng,
        group_size=size,
        prompts=PROMPTS,
        step_constant=place.step_constant,
        offset=OFFSET,
        steps=[steps],
        runs=runs,
        best_D=place.best_D,
    )
    scaled = (steps + OFFSET) * falling.gap_SR[0]
    covariance = place.parts.covariance(BASELINE[baseline], size, PROMPTS)
    gap = limiting_gap(place.hessian_DD, covariance, place.step_constant)
    printed = limiting_gap(place.hessian_DD, covariance, place.step_constant, factor="printed")
    row = {
        "world": place.name,
        "baseline": baseline,
        "group_size": size,
        "prompts": PROMPTS,
        "step_constant": place.step_constant,
        "steps": steps,
        "runs": runs,
        "mean": scaled.mean(),
        "mean_error": float(scaled.std() / np.sqrt(runs)),
        "law_mean": gap.mean,
    }
    for level in (0.9, 0.99):
        name, law = f"q{round(100 * level)}", float(gap.quantile(level))
        low, high = gap.law.cdf([0.999 * law, 1.001 * law])
        error = np.sqrt(level * (1 - level) / runs) * 0.002 * law / (high - low)
        row |= {name: np.quantile(scaled, level), f"{name}_error": float(error), f"law_{name}": law}
    test = stats.kstest(scaled, gap.law.cdf)
    row |= {
        "ks": float(test.statistic),
        "ks_p": float(test.pvalue),
        "printed_mean": printed.mean,
        "printed_ks": float(stats.kstest(scaled, printed.law.cdf).statistic),
        "seconds": time.process_time() - begun,
    }
    return row, scaled


def score(row: Row, name: str) -> float:
    """By how many standard errors a simulated number is off."""
    return float((row[name] - row[f"law_{name}"]) / row[f"{name}_error"])


def show(rows: Rows) -> None:
    """The table and what it comes to."""
    lines = []
    for row in rows:
        cells = [
            (f"{row['world']} | {NAME[row['baseline']]} | {row['group_size']} | {row['runs']:,}")
        ]
        cells += [
            f"{row[name]:.4f} / {row[f'law_{name}']:.4f} ({score(row, name):+.1f})"
            for name in ("mean", "q90", "q99")
        ]
        lines.append([*cells, f"{row['ks_p']:.2g} | {row['printed_mean']:.4f}"])
    header = (
        "world | baseline | G | runs | mean: runs / law (errors) | 90 % | 99 % | "
        "KS p | printed mean"
    )
    print_table("n times the gap, simulated and by the law", header, lines)
    scores = np.array([[score(row, name) for name in ("mean", "q90", "q99")] for row in rows])
    main = np.array(
        [row["baseline"] == "leave_one_out" and row["world"] == "two answers" for row in rows]
    )
    print(
        f"\nLargest of {scores.size} differences: {np.abs(scores).max():.2f} standard errors",
        end="",
    )
    if main.any():
        print(
            f"; of the {scores[main].size} of leave-one-out, two answers: "
            f"{np.abs(scores[main]).max():.2f}",
            end="",
        )
    failed = sum(row["ks_p"] < FALSE_ALARM for row in rows)
    print(
        f".\nKolmogorov-Smirnov at {FALSE_ALARM:g}: {failed} of {len(rows)} fail; "
        f"{sum(row['seconds'] for row in rows):.0f} processor seconds."
    )
    off = [row["law_mean"] / row["printed_mean"] for row in rows]
    print(
        f"The printed covariance gives a mean {min(off):.0f} to {max(off):.0f} times too small "
        f"(b^2); its KS distance is {min(row['printed_ks'] for row in rows):.2f} or more."
    )


def main() -> None:
    """Run the settings one after the other; the files grow as they are done."""
    chosen = options(__doc__, runs=200_000, steps=1600, first=0, last=len(SETTINGS))
    if not chosen.tables:
        rows = []
        quantiles = []
        if chosen.first:  # go on where an earlier call ended
            rows, quantiles = (
                RESULTS.read("gap_law")[: chosen.first],
                RESULTS.read("gap_law_quantiles")[: chosen.first * len(LEVELS)],
            )
        for number, (name, baseline, size, share) in enumerate(
            SETTINGS[: 2 if chosen.quick else chosen.last]
        ):
            if number < chosen.first:
                continue
            place = stage(name)
            runs, steps = (200, 50) if chosen.quick else (round(share * chosen.runs), chosen.steps)
            row, scaled = setting(
                place, baseline, size, runs, steps, np.random.default_rng([chosen.seed, number])
            )
            rows.append(row)
            law = limiting_gap(
                place.hessian_DD,
                place.parts.covariance(BASELINE[baseline], size, PROMPTS),
                place.step_constant,
            ).law.ppf(LEVELS)
            keys = {"world": name, "baseline": baseline, "group_size": size}
            quantiles += [
                {**keys, "level": float(level), "simulated": float(seen), "law": float(said)}
                for level, seen, said in zip(LEVELS, np.quantile(scaled, LEVELS), law, strict=True)
            ]
            if not chosen.quick:
                RESULTS.write("gap_law", rows)
                RESULTS.write("gap_law_quantiles", quantiles)
                print(
                    f"{name}, {baseline}, G = {size}: {score(row, 'mean'):+.2f} errors, "
                    f"{row['seconds']:.0f} s",
                    flush=True,
                )
        if chosen.quick:
            show(rows)
            return
    show(RESULTS.read("gap_law"))


if __name__ == "__main__":
    main()
