"""How many runs begin slowly, and how much sampling would a forecast have saved?

    python lab/experiments/forecast/claims.py [DATA]

Public runs of DATA (default: ../shared/data) and runs of the embedded trainer. Writes the tables
`claims_public` and `claims_own`, a row a run: its cluster, by how much AICc prefers a logistic to a
single exponential, what a stop at the plateau foreseen saves, gains and loses, and held-out over
training gain where both are logged. Prints shares and means over clusters.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from backtest import DATA, RESULTS, cluster_of, usable
from common import Row, arguments, print_table
from stopping import Foretell, slow_start, stop_at_plateau

from groupwise.arrays import Float
from groupwise.diagnostics.hacking import coupling_of, pairs_of
from groupwise.diagnostics.signals import Evidence
from groupwise.forecasting.fit import fit
from groupwise.parsing import JsonView
from groupwise.readers import run_record
from groupwise_lab.forecasts.backtest import trial
from groupwise_lab.forecasts.rivals import last_mean
from groupwise_lab.forecasts.runs import trial_of

METHODS = {"last_mean": last_mean}
CLEARLY = 6.0
"""Difference of AICc beyond which a law is clearly better."""


def claim_row(
    cluster: str, time_T: Float, value_T: Float, foretell: Foretell, **fitted: Any
) -> Row:
    """What is claimed, of one run."""
    stop = stop_at_plateau(value_T, foretell)
    return {
        "cluster": cluster,
        "slow_start": slow_start(fit(time_T, value_T, **fitted)),
        "saved": stop.saved,
        "gain": stop.gain,
        "loss": stop.loss,
    }


def of_public_runs(data: Path) -> Iterator[Row]:
    """A row a public run, with its coupling."""
    for name, series in usable(data):
        pair = next(iter(pairs_of(Evidence(run_record(data / name)))), None)
        coupling = None if pair is None else coupling_of(pair, *pair.ends)
        yield claim_row(
            cluster_of(name),
            series.time_T,
            series.value_T,
            partial(trial_of, series, methods=METHODS),
            window=series.window,
            smoothing=series.smoothing,
        ) | {"coupling": np.nan if coupling is None else coupling.value, "run": name}


def of_trained_runs() -> Iterator[Row]:
    """A row a run of the embedded trainer."""
    for own in RESULTS.texts("trainer_runs"):
        value_T = np.array(own["rewards"].split(), dtype=float)
        time_T = np.arange(1.0, value_T.size + 1)
        foretell = partial(trial, time_T, value_T, bounds=(0.0, 1.0), methods=METHODS)
        yield claim_row(own["run"].rsplit("-", 1)[0], time_T, value_T, foretell) | {
            "run": own["run"]
        }


def of_clusters(rows: Sequence[JsonView]) -> tuple[str, list[str]]:
    """Return what runs come to as a table, each cluster of runs weighing the same: the shares that
    begin slowly and that do not, what is saved, and the share of the gain that is lost.
    """
    frame = pl.DataFrame(rows).with_columns(
        slow=pl.col("slow_start") > CLEARLY, fast=pl.col("slow_start") < -CLEARLY
    )
    names = ("slow", "fast", "saved", "gain", "loss")
    by_cluster = frame.group_by("cluster").agg(pl.col(names).mean())
    slow, fast, saved, gain, loss = by_cluster.select(pl.col(names).mean()).row(0)
    head = "runs | clusters | slow start | none | saved | lost of the gain"
    cells = f"{len(frame)} | {len(by_cluster)} | {slow:.2f} | {fast:.2f} | {saved:.2f}"
    return head, [f"{cells} | {loss / gain:.2f}"]


def main() -> None:
    """Run, write and print."""
    data = Path(arguments(__doc__, "data").data or DATA)
    for name, rows in (("own", of_trained_runs()), ("public", of_public_runs(data))):
        made = list(rows)
        RESULTS.write(f"claims_{name}", made, digits=4)
        print_table(f"{name} runs", *of_clusters(made))


if __name__ == "__main__":
    main()
