"""The command line of the laboratory: its commands by name."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from groupwise.cli.app import Program

PROGRAM = Program(
    name="groupwise-lab",
    about=(
        "The laboratory of groupwise: train, simulate and evaluate where the truth is known, and "
        "score what the instrument says."
    ),
    home="groupwise_lab.cli",
    commands={
        "train": "Train a small policy or a language model by GRPO. The run is a record.",
        "evaluate": (
            "Score models on benchmarks, or compare two. For a run, show what its training "
            "transferred to."
        ),
        "simulate": "Simulate a training run whose truth is known. It is written as a record.",
        "sweep": (
            "Train with every combination of some settings. It says which is best; exit code 1 "
            "where some failed, 2 where all did."
        ),
        "probe": (
            "Measure how far the next step of a run overshoots. The result is kept beside the run."
        ),
        "backtest": (
            "Forecast each run from its beginning and score that. Simple methods are scored on "
            "the same rest."
        ),
        "calibrate": (
            "Make a table of how runs went on after a forecast. It stretches the bands of "
            "forecasts to come."
        ),
    },
    beside={"calibrate": "backtest"},
    elsewhere={},
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    return PROGRAM.run(sys.argv[1:] if arguments is None else arguments)
