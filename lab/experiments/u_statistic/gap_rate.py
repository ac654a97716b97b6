"""How the final gap of leave-one-out nears that of the oracle: the order in G by the law and in the
runs.

    python lab/experiments/u_statistic/gap_rate.py   (seconds; reads the CSV of gap_law for the
    runs' part)

At a fixed number of prompts the weights' differences against G(G-1) on logarithmic axes; slope -1
is the exact statement of which the paper has O(G^-2). It simulates nothing.
"""

import numpy as np
from final_gap import compare_final_gaps, components_at_cost, cost_of_noise
from gap_world import RESULTS, Rows, column, options, print_table, stage, where

SIZES = (2, 4, 8, 16, 64)
WORLDS = ("two answers", "three answers", "bandit")
PROMPTS = 8


def slope(size_S: np.ndarray, difference_S: np.ndarray) -> float:
    """Slope of log(difference) against log(G(G-1)) by least squares."""
    return float(np.polyfit(np.log(size_S * (size_S - 1)), np.log(difference_S), 1)[0])


def rows_of(name: str) -> Rows:
    """Every weight and their sum at every G."""
    place = stage(name)
    rows = []
    for size in SIZES:
        pair = compare_final_gaps(
            place.parts, place.hessian_DD, place.step_constant, group_size=size, prompts=PROMPTS
        )
        total = pair.leave_one_out.mean - pair.oracle.mean
        row = {
            "world": name,
            "group_size": size,
            "leave_one_out": pair.leave_one_out.mean,
            "oracle": pair.oracle.mean,
            "fixed": pair.fixed.mean,
            "difference": total,
            "times_g_g1": total * size * (size - 1),
        }
        rows.append(
            row
            | {
                f"weight_{k + 1}": float(value)
                for k, value in enumerate(np.resize(pair.weight_difference, 3))
            }
        )
        if len(pair.weight_difference) < 3:
            rows[-1]["weight_3"] = ""
    return rows


def gaps_of_runs() -> tuple[np.ndarray, ...]:
    """G(G-1), what the simulated mean of leave-one-out exceeds the oracle's by, and its error."""
    rows = {
        (row["baseline"], row["group_size"]): row
        for row in where(RESULTS.read("gap_law"), world="two answers")
    }
    sizes = [size for size in SIZES if ("oracle", size) in rows and ("leave_one_out", size) in rows]
    own, best = ([rows[name, size] for size in sizes] for name in ("leave_one_out", "oracle"))
    size = np.array(sizes, dtype=float)
    error = np.hypot(column(own, "mean_error"), column(best, "mean_error"))
    return size * (size - 1), column(own, "mean") - column(best, "mean"), error


def of_runs() -> tuple[float, float] | None:
    """Slope of the simulated differences and its standard error, weighted by their errors."""
    product, gap, error = gaps_of_runs()
    kept = gap > 5 * error  # a logarithm of noise is no point of a line
    if kept.sum() < 2:
        return None
    x, y, weight = np.log(product[kept]), np.log(gap[kept]), (gap / error)[kept]
    centred = x - np.average(x, weights=weight**2)
    precision = (weight**2 * centred) @ centred
    return (weight**2 * centred) @ y / precision, 1 / np.sqrt(precision)


def show(rows: Rows) -> None:
    """Tables and slopes."""
    lines = [
        [
            f"{row['world']} | {row['group_size']}",
            *(f"{row[key]:.5f}" for key in ("leave_one_out", "oracle", "fixed")),
            f"{row['times_g_g1']:.5f}",
        ]
        for row in rows
    ]
    header = "world | G | leave-one-out | oracle | no baseline | (leave-one-out - oracle) x G(G-1)"
    print_table("Expected n x gap by the law, 8 prompts an update", header, lines)
    print()
    for name in WORLDS:
        some = where(rows, world=name)
        size = np.array(column(some, "group_size"), dtype=float)
        count = len([1 for k in (1, 2, 3) if some[0][f"weight_{k}"] != ""])
        own = [
            slope(size, np.array([row[f"weight_{k + 1}"] for row in some])) for k in range(count)
        ]
        total = slope(size, column(some, "difference"))
        place = stage(name)
        vp, _, r = components_at_cost(
            place.parts, cost_of_noise(place.hessian_DD, place.step_constant)
        )
        later = [
            slope(size[1:], np.array([row[f"weight_{k + 1}"] for row in some[1:]]))
            for k in range(count)
        ]
        between, second = np.trace(place.parts.between_DD), np.trace(place.parts.second_DD)
        print(
            f"{name}: slope of the sum {total:.6f}, of the single weights {_listed(own)}, from G = "
            f"4 on {_listed(later)}; best G for the final gap {_best(vp, r)}, for the gradient "
            f"{_best(between, second)}."
        )
    measured = of_runs()
    if measured is not None:
        print(
            "In the runs (two answers, sizes whose difference exceeds five errors): "
            f"{measured[0]:.3f} +- {measured[1]:.3f}."
        )


def _listed(values: list[float]) -> str:
    """Slopes in a row."""
    return ", ".join(f"{value:.4f}" for value in values)


def _best(vp: float, r: float) -> str:
    """1 + sqrt(R/Vp); with one prompt there is nothing between prompts, and no size is too
    large.
    """
    return f"{1 + np.sqrt(r / vp):.2f}" if vp > 1e-12 * r else "without end"


def main() -> None:
    """All worlds."""
    chosen = options(__doc__)
    rows = [row for name in WORLDS for row in rows_of(name)]
    if not chosen.quick:
        RESULTS.write("gap_rate", rows)
    show(rows)


if __name__ == "__main__":
    main()
