"""The picture and the tables of docs/studies/diagnosis-experiments.md, from the CSV files beside this script; runs no simulation.

python experiments/diagnosis/tables.py
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
PICTURE = HERE.parents[1] / "docs" / "img" / "diagnosis-confusion.svg"
CAUSES = ("verifier_failure", "reward_hacking", "advantage_degeneracy", "policy_concentration", "dynamical_instability")
VERDICTS = (*CAUSES, "several", "undetermined", "healthy")


def rows(name: str) -> list[dict[str, str]]:
    """Rows of a table; none where it was not made."""
    path = HERE / name
    return list(csv.DictReader(path.open())) if path.exists() else []


def matrix() -> tuple[list[str], np.ndarray]:
    """Share of each verdict by kind of run."""
    found = rows("confusion.csv")
    kinds = list(dict.fromkeys(row["kind"] for row in found))
    table = np.zeros((len(kinds), len(VERDICTS)))
    for row in found:
        table[kinds.index(row["kind"]), VERDICTS.index(row["verdict"])] = float(row["share"])
    return kinds, table


def draw() -> None:
    """Draw the confusion matrix."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "groupwise"
    import matplotlib.pyplot as plt

    kinds, table = matrix()
    figure, axes = plt.subplots(figsize=(8.5, 0.36 * len(kinds) + 2.2))
    axes.imshow(table, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for (i, j), share in np.ndenumerate(table):
        if share >= 0.005:
            axes.text(j, i, f"{100 * share:.0f}", ha="center", va="center", fontsize=9, color="white" if share > 0.5 else "black")
    axes.set_xticks(range(len(VERDICTS)), [verdict.replace("_", "\n") for verdict in VERDICTS], fontsize=7)
    axes.set_yticks(range(len(kinds)), [kind.replace("_", " ").replace("+", " + ") for kind in kinds], fontsize=9)
    axes.set_xlabel("verdict")
    axes.set_ylabel("what was simulated")
    axes.set_title("Runs by verdict, per cent of each row", fontsize=10)
    figure.tight_layout()
    figure.savefig(PICTURE, metadata={"Date": None})


def peers(found: list[dict[str, str]]) -> list[str]:
    """A table with a column a tool: critical and any alarms, per cent of the runs."""
    tools = list(dict.fromkeys(row["tool"] for row in found))
    lines = [f"| kind | runs | {' | '.join(tools)} |", "|---" * (2 + len(tools)) + "|"]
    for kind in dict.fromkeys(row["kind"] for row in found):
        cells = {row["tool"]: f"{100 * float(row['critical']):.3g} / {100 * float(row['any']):.3g}" for row in found if row["kind"] == kind}
        runs = next(row["runs"] for row in found if row["kind"] == kind)
        lines.append(f"| {kind.replace('_', ' ')} | {runs} | {' | '.join(cells[tool] for tool in tools)} |")
    return lines


def main() -> None:
    """Draw, and print the tables."""
    draw()
    print("| kind | runs | critical | 95 % | any finding | 95 % |\n|---|---|---|---|---|---|")
    for row in rows("alarms.csv"):
        cells = [
            f"{100 * float(row[key]):.1f}"
            for key in ("critical", "critical_low", "critical_high", "finding", "finding_low", "finding_high")
        ]
        name = row["kind"].replace("_", " ")
        print(f"| {name} | {row['runs']} | {cells[0]} % | {cells[1]} to {cells[2]} | {cells[3]} % | {cells[4]} to {cells[5]} |")
    print("\n| kind | runs | onset error, median | 90 % of errors within | found after, median |\n|---|---|---|---|---|")
    delays = rows("delay.csv")
    for kind in dict.fromkeys(row["kind"] for row in delays):
        error = np.abs([float(row["error_share"]) for row in delays if row["kind"] == kind])
        after = np.array([float(row["detected_after_share"]) for row in delays if row["kind"] == kind])
        late = f"{100 * np.nanmedian(after):.0f} %" if np.isfinite(after).any() else "–"
        print(
            f"| {kind.replace('_', ' ')} | {error.size} | {100 * np.median(error):.1f} % | {100 * np.quantile(error, 0.9):.0f} % | {late} |"
        )
    print("\n| stated | runs | mean stated | right | 95 % |\n|---|---|---|---|---|")
    for row in rows("calibration.csv"):
        ends = f"{100 * float(row['low']):.0f} to {100 * float(row['high']):.0f}"
        print(f"| {row['from']} to {row['to']} | {row['runs']} | {float(row['stated']):.2f} | {float(row['right']):.2f} | {ends} |")
    print("\n| kind | runs | looks | ever critical | ever warned |\n|---|---|---|---|---|")
    for row in rows("prefixes.csv"):
        print(f"| {row['kind']} | {row['runs']} | {row['looks']} | {row['ever_critical']} | {row['ever_warned']} |")
    for name in ("peers.csv", "peers_real.csv"):
        print("\n" + "\n".join(peers(rows(name))))


if __name__ == "__main__":
    main()
