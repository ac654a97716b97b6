"""The command `groupwise-lab sweep`: many trainings that differ in a few settings, and which of
them is best.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from groupwise.cli import app as cli
from groupwise.errors import GroupwiseError, check_installed

if TYPE_CHECKING:
    from groupwise_lab.sweep import Sweep


def sweep(
    settings: Path,
    *,
    output: Path,
    engine: str | None = "local",
    workers: int | None = None,
    cpus_per_task: int = 1,
    gpus_per_task: int = 0,
    metric: str = "reward",
    as_json: bool = False,
) -> int:
    """Train with every combination of some settings, and say which is best: exit code 1 where a
    training failed, 2 where all did.
    """
    from groupwise_lab.cli.train import settings_in
    from groupwise_lab.sweep import answer_of, ended, run_sweep, sweep_of
    from groupwise_lab.sweep_text import print_sweep

    wanted = settings_in(settings)
    plan = sweep_of(wanted, output)
    if wanted.get("command") is None:
        _check(plan)
    try:
        with cli.progress(quiet=as_json) as show:
            results = run_sweep(
                plan,
                cli.engine_of(engine, workers),
                cpus=cpus_per_task,
                gpus=gpus_per_task,
                progress=show,
            )
    except KeyboardInterrupt:
        typer.echo("Stopped: what is done is kept; the same command goes on.", err=True)
        raise
    if not any(result.done for result in results):
        raise GroupwiseError(ended(results).rstrip("."))
    answer = answer_of(plan, results, metric)
    if as_json:
        cli.print_json(answer)
    else:
        print_sweep(answer, cli.out_console())
    return cli.OK if all(result.done for result in results) else cli.FOUND


def _check(plan: Sweep) -> None:
    """Refuse settings that the embedded trainer would refuse, before anything is trained."""
    from groupwise_lab.cli.train import settings_of, wanted_of

    check_installed("torch", "safetensors", what="training")
    for training in plan.trainings:
        overrides = [word for option, word in pairwise(training.words) if option == "--set"]
        settings_of(wanted_of(None, overrides, {}))
