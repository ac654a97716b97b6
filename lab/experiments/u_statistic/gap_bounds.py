"""The bounds of the gap above the simulated truth: falling and constant steps, from the optimum and
from the reference policy.

    python lab/experiments/u_statistic/gap_bounds.py   (a minute or two on one core)

L, mu and M are the extremes over the box of all parameters that any run visited, on a fine grid, so
the bound holds where its conditions do; then how loose it is, and the stationary gap of a constant
step beside a quarter of the step times the error. It tests no law: `gap_law` does.
"""

import numpy as np
from bounds import Landscape, constant_step_bound, decaying_step_bound, lemma_constants
from falling_steps import falling_runs
from final_gap import limiting_gap, stationary_gap
from gap_world import BASELINE, RESULTS, Rows, Stage, options, parts_at, print_table, stage

PROMPTS, OFFSET = 8, 40
STEPS = (1, 3, 10, 30, 100, 300, 1000)
CASES = (
    *(
        ("falling", start, baseline, 4)
        for start in ("optimum", "reference")
        for baseline in ("leave_one_out", "oracle", "vanilla")
    ),
    ("falling", "reference", "leave_one_out", 16),
    ("literal", "optimum", "leave_one_out", 4),  # b/i from i = 1, as the theorem has it
    *(
        ("constant", start, "leave_one_out", size)
        for start in ("optimum", "reference")
        for size in (4, 16)
    ),
)
GRID = 17


def landscape(
    place: Stage,
    low_D: np.ndarray,
    high_D: np.ndarray,
    start_D: np.ndarray,
    baseline: str,
    size: int,
) -> Landscape:
    """Smoothness, PL constant and largest error over a box, by the exact gradient, Hessian and
    covariance on a grid.
    """
    axes = [np.linspace(low, high, GRID) for low, high in zip(low_D, high_D, strict=True)]
    grid_SD = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(low_D))
    gap_S = place.world.objective(place.best_D) - place.world.objectives(grid_SD)
    curve = max(np.abs(np.linalg.eigvalsh(place.world.hessian(theta))).max() for theta in grid_SD)
    clear = gap_S > 1e-6  # next to the optimum the ratio is the curvature, and rounding is not
    ratio = [
        float((place.world.gradient(theta) ** 2).sum() / (2 * gap))
        for theta, gap in zip(grid_SD[clear], gap_S[clear], strict=True)
    ]
    least = float(np.linalg.eigvalsh(-place.hessian_DD)[0])
    mse = max(
        np.trace(parts_at(place.world, theta).covariance(BASELINE[baseline], size, PROMPTS))
        for theta in grid_SD
    )
    first = place.world.objective(place.best_D) - place.world.objective(start_D)
    return Landscape(curve, min(*ratio, least), mse, max(first, 0.0))


def case(
    kind: str,
    start: str,
    baseline: str,
    size: int,
    runs: int,
    steps: tuple[int, ...],
    rng: np.random.Generator,
) -> Rows:
    """Rows of one case: the simulated mean gap beside its bounds."""
    place = stage("two answers")
    start_D = place.best_D if start == "optimum" else np.zeros(2)
    step = 0.5 if kind == "constant" else place.step_constant
    offset = OFFSET if kind == "falling" else 0
    falling = falling_runs(
        place.world,
        baseline,  # type: ignore[arg-type]
        rng,
        group_size=size,
        prompts=PROMPTS,
        step_constant=step,
        offset=offset,
        power=0.0 if kind == "constant" else 1.0,
        steps=steps,
        runs=runs,
        start_D=start_D,
        best_D=place.best_D,
    )
    world = landscape(place, falling.low_D, falling.high_D, start_D, baseline, size)
    covariance = place.parts.covariance(BASELINE[baseline], size, PROMPTS)
    if kind != "constant":
        bound = decaying_step_bound(world, step, steps[-1], offset=offset)
        limit = limiting_gap(place.hessian_DD, covariance, step).mean
        closed = max(lemma_constants(world, step)[:2]) if not bound.void else np.inf
        leading = bound.leading_constant
    else:
        bound = constant_step_bound(world, step, steps[-1])
        limit, closed, leading = (
            float(stationary_gap(place.hessian_DD, covariance, step).sum()),
            np.inf,
            bound.limit,
        )
    rows = []
    for n, gap_R in zip(falling.step_S, falling.gap_SR, strict=True):
        row = {
            "schedule": kind,
            "start": start,
            "baseline": baseline,
            "group_size": size,
            "step": step,
            "updates": int(n),
            "runs": runs,
            "gap": gap_R.mean(),
            "error": float(gap_R.std() / np.sqrt(runs)),
            "bound": float(bound.bound_T[n]),
            "smoothness": world.smoothness,
            "pl": world.pl,
            "mse": world.mse,
            "void": int(bound.void),
            "limit": limit,
            "leading": float(leading),
            "lemma_constant": float(closed),
            "quarter": step * np.trace(covariance) / 4,
        }
        rows.append(row)
    return rows


def show(rows: Rows) -> None:
    """The last row of every case, and whether any bound was broken."""
    last = [
        row
        for row, after in zip(rows, [*rows[1:], None], strict=True)
        if after is None or after["updates"] <= row["updates"]
    ]
    lines = [
        [
            (
                f"{row['schedule']} | {row['start']} | {row['baseline']} | "
                f"{row['group_size']} | {row['smoothness']:.3f} | {row['pl']:.3f} | "
                f"{row['mse']:.4f} | {row['gap']:.3e} ± {1.96 * row['error']:.0e} | "
                f"{row['bound']:.3e} | {row['bound'] / row['gap']:.1f}"
            )
        ]
        for row in last
    ]
    header = (
        "steps | start | baseline | G | L | mu | M | "
        f"gap after {last[0]['updates']}, 95 % | bound | bound / gap"
    )
    print_table("Bounds beside the truth", header, lines)
    valid = [row for row in rows if not row["void"]]
    broken = [row for row in valid if row["gap"] - 3 * row["error"] > row["bound"]]
    loose = [row["bound"] / row["gap"] for row in valid]
    print(
        f"\n{len(valid)} of {len(rows)} rows have a bound that holds by its conditions; "
        f"{len(broken)} of those lie above it; bound over truth {min(loose):.2f} to "
        f"{max(loose):.1f}."
    )
    for row in last:
        if row["schedule"] == "literal":
            print(
                f"b/i from i = 1: n x gap is {row['updates'] * row['gap']:.3g} after "
                f"{row['updates']} updates, {row['limit']:.3g} in the limit."
            )
        if row["schedule"] == "constant":
            print(
                f"constant step {row['step']:g}, G = {row['group_size']}, from the {row['start']}: "
                f"settled gap {row['gap']:.3e} ± {1.96 * row['error']:.0e}, law "
                f"{row['limit']:.3e}, a quarter of step times error {row['quarter']:.3e}."
            )


def main() -> None:
    """All cases."""
    chosen = options(__doc__, runs=2_000)
    if not chosen.tables:
        runs, steps = (200, STEPS[:4]) if chosen.quick else (chosen.runs, STEPS)
        rows = []
        for number, (kind, start, baseline, size) in enumerate(
            CASES[:2] if chosen.quick else CASES
        ):
            rows += case(
                kind,
                start,
                baseline,
                size,
                runs,
                steps,
                np.random.default_rng([chosen.seed, 100 + number]),
            )
        if chosen.quick:
            show(rows)
            return
        RESULTS.write("gap_bounds", rows)
    show(RESULTS.read("gap_bounds"))


if __name__ == "__main__":
    main()
