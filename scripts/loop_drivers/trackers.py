"""Trackers, driven as Transformers' callbacks drive them, with numbers of ours.

    python trackers.py FOLDER SYSTEM

Runs in an environment of its own that has the package (`make loops`).
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from loggers import GROUP, OF_TRL, Truth, rows_of


def mlflow(folder: Path) -> Truth:
    """MLflow's files and its SQLite store."""
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    import mlflow as package

    rows, truth = rows_of(OF_TRL)
    for store in ((folder / "mlruns").as_uri(), f"sqlite:///{folder / 'mlflow.db'}"):
        package.set_tracking_uri(store)
        with package.start_run():
            package.log_params({"num_generations": GROUP})
            for step, row in enumerate(rows, start=1):
                package.log_metrics(row, step=step)
    logs = {"files": "mlruns", "SQLite": "mlflow.db"}
    return truth | {"logs": logs, "settings": {"group_size": GROUP}}


def tensorboard(folder: Path) -> Truth:
    """TensorBoard's event file, by PyTorch's writer."""
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(folder / "runs")
    writer.add_text("args", json.dumps({"num_generations": GROUP}))
    rows, truth = rows_of({name: f"train/{key}" for name, key in OF_TRL.items()})
    for step, row in enumerate(rows, start=1):
        for key, value in row.items():
            writer.add_scalar(key, value, step)
    writer.close()
    return truth | {"logs": {"event file": "runs"}, "settings": {"group_size": GROUP}}


SYSTEMS: dict[str, tuple[str, Callable[[Path], Truth]]] = {
    "mlflow": ("mlflow-skinny", mlflow),
    "tensorboard": ("tensorboard", tensorboard),
}


if __name__ == "__main__":
    place = Path(sys.argv[1]).resolve()
    distribution, drive = SYSTEMS[sys.argv[2]]
    made = drive(place) | {"version": importlib.metadata.version(distribution)}
    (place / "truth.json").write_text(json.dumps(made), encoding="utf-8")
