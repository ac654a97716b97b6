"""The command line: its commands by name."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from groupwise.cli.program import Program

LABORATORY = "groupwise-lab"
PROGRAM = Program(
    name="groupwise",
    about="What a GRPO run's log says: is it still learning, where will it end, is it stable.",
    home="groupwise.cli",
    commands={
        "example": (
            "Copy an example run into this folder, to try a command on: healthy, failing and "
            "others."
        ),
        "report": (
            "Write one page on one or several runs, and how each stands here: exit codes as of "
            "diagnose, the worst of several."
        ),
        "watch": (
            "Follow runs that are being written, on a page that this machine serves to itself."
        ),
        "fleet": (
            "Judge every run below some folders, worst first: exit code 2 where none can be read, "
            "else as of diagnose, of the worst."
        ),
        "diagnose": (
            "How a run stands and why: exit code 0 ok, 1 warning or worse, 2 unusable, "
            "3 cannot tell."
        ),
        "probe": ("Which experiment of minutes tells tied causes apart; with its name, make it."),
        "fit": "Fit the laws to one metric: parameters with intervals, and what they mean.",
        "forecast": "Forecast one metric, with a band for its mean and one for the next rows.",
        "compare": (
            "Did a run fail, and is the difference of the others real: level and speed, with step "
            "noise and seed noise apart."
        ),
        "components": ("Variance components of the gradient, from a run and its model."),
        "plan": (
            "Safe group size and number of prompts for a budget, and the price of the size in use; "
            "without components, what rewards say."
        ),
        "mcp": "Serve these answers to an agent over standard input and output, reading alone.",
        "replay": "What the run would have cost under other choices, by its logged rewards.",
        "stability": (
            "How far a setting, or a run, is from instability, and what learning rate and interval "
            "would be safe."
        ),
    },
    beside={"forecast": "fit"},
    elsewhere=dict.fromkeys(
        ("backtest", "calibrate", "evaluate", "simulate", "sweep", "train"), LABORATORY
    ),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    return PROGRAM.run(sys.argv[1:] if arguments is None else arguments)
