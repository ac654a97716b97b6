"""The bar of the forecast: every usable public run by the table of the other clusters, and runs of
the embedded trainer by the shipped one.

    python lab/experiments/forecast/backtest.py [DATA]

DATA is a folder of public logs (default: ../shared/data); the logs are not part of this repository.
Each run is foretold from 10, 20, 40 and 60 % of it, beside what people do by hand, and ETS and
theta where statsmodels is installed. Runs of one source count as one cluster.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))  # common.py
from common import arguments, results_of
from rich.console import Console

from groupwise.errors import GroupwiseError
from groupwise.forecasting.forecast import shipped
from groupwise.readers import run_record
from groupwise.series.metric import MetricSeries, metric_series
from groupwise_lab.forecasts.backtest import SHARES, trial
from groupwise_lab.forecasts.calibrate import UNCALIBRATED
from groupwise_lab.forecasts.rivals import Method
from groupwise_lab.forecasts.runs import Calibrated, TriedRun, calibrated, trial_of
from groupwise_lab.forecasts.scoreboard import summarise_backtests
from groupwise_lab.forecasts.text import print_calibration

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"
RESULTS = results_of(__file__)
# Runs of one source: the same people, code and task, told apart by seeds and settings. Another file
# is a cluster of its own.
SWEEPS = {
    "qwen25_7b": r"qwen25_7b_(rho|exp2)|rho0\.[357]0_seed43\.log|rho3\.00_seed44",
    "qwen35_9b_g4": r"tasa_g4s|drgrpo_g4s",
    "qwen35_9b": r"qwen35_9b_[dr]",
    "cs336": r"cs336|no_std_norm|GRPO-(No-)?Clip|final_on_policy",
    "reward_hacking": r"rl-leetcode|tinker_reward",
    "wordle": r"wordle|lara_TUF",
    "tinkerlab": r"tinkerlab",
    "verl_gsm8k": r"verldata_Qwen2\.5",
    "juncylu": r"juncylu",
    "actionr1": r"actionr1",
    "leonopus": r"leonopus",
}
LEFT_OUT = "csd_logs"  # they write a constant where the reward should be
FEWEST = 40


def cluster_of(path: str) -> str:
    """The source that a file is from, or the file itself."""
    return next((name for name, pattern in SWEEPS.items() if re.search(pattern, path)), path)


def usable(root: Path) -> list[tuple[str, MetricSeries]]:
    """Every run with at least `FEWEST` rows whose reward moves; copies and shorter prefixes of
    one run count once.
    """
    series_of = {}
    for path in sorted(
        p
        for p in root.rglob("*")
        if p.is_file() and p.suffix != ".ipynb" and LEFT_OUT not in p.name
    ):
        try:
            series = metric_series(run_record(path))
        except GroupwiseError:
            continue
        if len(series.step_T) < FEWEST or np.ptp(series.value_T) == 0:
            continue
        key = np.round(series.value_T[:FEWEST], 6).tobytes()
        if key not in series_of or len(series_of[key][1].step_T) < len(series.step_T):
            series_of[key] = (str(path.relative_to(root)), series)
    return list(series_of.values())


def foretold(
    runs: Sequence[tuple[str, MetricSeries]], methods: Mapping[str, Method] | None = None
) -> list[TriedRun]:
    """Each run foretold from each share of it, but for those that do not move before it."""
    tried = []
    for name, series in runs:
        for share in SHARES:
            try:
                tried.append(TriedRun(name, cluster_of(name), trial_of(series, share, methods)))
            except GroupwiseError as error:
                print(f"left out: {name} at {share}: {error}")
    return tried


def of_public_runs(
    data: str | None, methods: Mapping[str, Method] | None = None
) -> Calibrated | None:
    """Make the table from the public runs, and score each cluster by the table of the others."""
    tried = foretold(usable(Path(data or DATA)), methods)
    if not tried:
        print(f"no usable run under {data or DATA}")
    return calibrated(tried) if tried else None


def of_trained_runs(methods: Mapping[str, Method] | None = None) -> Calibrated | None:
    """Score the runs of the embedded trainer by the shipped table and by none; each task is a
    cluster.
    """
    rows = RESULTS.texts("trainer_runs")
    if not rows:
        return None
    runs = {row["run"]: np.array(row["rewards"].split(), dtype=float) for row in rows}
    tried = [
        (
            name.rsplit("-", 1)[0],
            trial(
                np.arange(1.0, reward_T.size + 1),
                reward_T,
                share,
                bounds=(0.0, 1.0),
                methods=methods,
            ),
        )
        for name, reward_T in runs.items()
        for share in SHARES
    ]
    by_shipped, bare = (
        summarise_backtests([(task, result.score(table)) for task, result in tried])
        for table in (shipped(), UNCALIBRATED)
    )
    return Calibrated(shipped(), by_shipped, bare, {})


def main() -> None:
    """Read the arguments and print the tables."""
    for made in (of_public_runs(arguments(__doc__, "data").data), of_trained_runs()):
        if made is not None:
            print_calibration(made, (), Console(width=160))


if __name__ == "__main__":
    main()
