"""Backtest on every usable public run: forecast the last 60 % from the first 40 %, beside what people do by hand.

    python experiments/forecast/backtest.py [DATA] [--share 0.4]

DATA is a folder of public logs (default: ../shared/data); the logs are not part of this repository. Prints the table of
docs/log.md and writes backtest.csv beside this file. Runs of one sweep count as one cluster.
"""

from __future__ import annotations

import argparse
import csv
import re
from pathlib import Path

import numpy as np

from groupwise.curves.backtest import BacktestSummary, backtest, summarise_backtests
from groupwise.curves.results import Backtest
from groupwise.errors import GroupwiseError
from groupwise.readers import open_run
from groupwise.series.metric import MetricSeries, metric_series

# Sweeps: runs of the same code on the same task, told apart by a seed or one setting.
SWEEPS = (
    "qwen25_7b_exp2",
    "qwen25_7b_rho_sweep",
    "qwen35_9b_g4",
    "qwen35_9b_gates_g2",
    "qwen35_9b",
    "wordle",
    "cs336",
    "tinker_reward_hacking",
    "tinkerlab",
    "leonopus",
)
# These logs write a constant 0 where the mean reward should be; the share of right answers is under `p`.
METRICS = {r"csd_logs": "p"}
FEWEST = 60


def cluster_of(path: str) -> str:
    """The sweep a file belongs to, or the file itself."""
    return next((name for name in SWEEPS if name in path), path)


def usable(root: Path) -> list[tuple[str, MetricSeries]]:
    """Every run with at least `FEWEST` rows whose metric moves; copies and shorter prefixes of one run count once."""
    found: dict[bytes, tuple[str, MetricSeries]] = {}
    for path in sorted(p for p in root.rglob("*") if p.is_file() and p.suffix != ".ipynb"):
        metric = next((m for pattern, m in METRICS.items() if re.search(pattern, path.name)), "reward")
        try:
            series = metric_series(open_run(path), metric)
        except GroupwiseError:
            continue
        if len(series.step_T) < FEWEST or np.ptp(series.value_T) == 0:
            continue
        key = np.round(series.value_T[:FEWEST], 6).tobytes()
        if key not in found or len(found[key][1].step_T) < len(series.step_T):
            found[key] = (str(path.relative_to(root)), series)
    return list(found.values())


def report(data: Path, share: float) -> BacktestSummary | None:
    """Score every run from its first share, print the table, and return what they say together."""
    scored: list[tuple[str, str, Backtest]] = []
    for name, series in usable(data):
        score = backtest(
            series.time_T,
            series.value_T,
            variance_T=series.variance_T,
            window=series.window,
            smoothing=series.smoothing,
            from_share=share,
            healthy=series.healthy,
            bounds=series.bounds,
        )
        scored.append((cluster_of(name), name, score))
    if not scored:
        print(f"no usable run under {data}")
        return None
    show(scored)
    summary = summarise_backtests([(cluster, score) for cluster, _, score in scored])
    print(f"\n{summary.runs} runs in {summary.clusters} clusters; the best simple method over all is {summary.best_simple}")
    for method, ratio in summary.ratios.items():
        print(f"geometric-mean error ratio to {method}: {ratio:.3f}")
    c = summary.coverage
    print(f"90 % band covers {c.value:.3f} of the window means (95 % Wilson interval over clusters {c.low:.3f} to {c.high:.3f})")
    return summary


def show(scored: list[tuple[str, str, Backtest]]) -> None:
    """Print one row a run, and write the same as a CSV."""
    methods = list(scored[0][2].errors)
    print(f"| run | rows | {' | '.join(methods)} | covered |\n|{'---|' * (len(methods) + 3)}")
    with (Path(__file__).parent / "backtest.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["cluster", "run", "rows_seen", "rows_held_out", *methods, "covered", "windows"])
        for cluster, name, score in scored:
            cells = [f"{score.errors[m]:.4g}" for m in methods]
            print(f"| {name} | {score.n_train}+{score.n_test} | {' | '.join(cells)} | {score.covered}/{score.windows} |")
            writer.writerow([cluster, name, score.n_train, score.n_test, *cells, score.covered, score.windows])


def main() -> None:
    """Read the arguments and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", type=Path, default=Path(__file__).resolve().parents[3] / "shared" / "data")
    parser.add_argument("--share", type=float, default=0.4)
    arguments = parser.parse_args()
    report(arguments.data, arguments.share)


if __name__ == "__main__":
    main()
