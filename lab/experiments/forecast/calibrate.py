"""The shipped table of calibration, made from the public logs: how far they ended from what was
foreseen.

    python lab/experiments/forecast/calibrate.py [DATA] [--write]

Prints what the table is worth, every cluster foretold by the table of the others, and how far it
lies from the one that is shipped; --write puts it in its place. DATA is a folder of public logs
(default: ../shared/data).
"""

from pathlib import Path

import numpy as np
from backtest import of_public_runs
from common import arguments
from rich.console import Console

import groupwise
from groupwise.forecasting.forecast import KINDS, Calibration, shipped
from groupwise.plain import to_json
from groupwise_lab.forecasts.calibrate import written
from groupwise_lab.forecasts.rivals import last_mean, smoothing
from groupwise_lab.forecasts.text import print_calibration

SHIPPED = Path(groupwise.__file__).parent / "forecasting" / "calibration.json"


def apart(calibration: Calibration, other: Calibration) -> float:
    """The largest difference between two tables."""
    return max(np.abs(calibration.terms[kind] - other.terms[kind]).max() for kind in KINDS)


def main() -> None:
    """Make the table, print what it is worth, and write it where that is asked for."""
    asked = arguments(__doc__, "data", write=False)
    calibration = of_public_runs(asked.data, {"last_mean": last_mean, "smoothing": smoothing})
    if calibration is None:
        return
    print_calibration(calibration, (), Console(width=120))
    if asked.write:
        SHIPPED.write_text(to_json(written(calibration.table)) + "\n", encoding="utf-8")
    else:
        print(
            f"largest difference from the shipped table: {apart(calibration.table, shipped()):.2g}"
        )


if __name__ == "__main__":
    main()
