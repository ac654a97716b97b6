"""The command `groupwise-lab probe`: experiments on a run that train."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from groupwise.cli.shared import Json, argument, option, print_json, print_lines, progress, whole

if TYPE_CHECKING:
    from groupwise.diagnostics.probe_outcomes import Shown
    from groupwise.intervals import Interval

EDGE = 2.0  # learning rate times curvature from which plain steps overshoot


def probe(
    name: Annotated[Literal["kick"], argument("NAME", "kick: the stiffness by one step and back.")],
    run: Annotated[Path, argument("RUN", "Folder of a run with a checkpoint.")],
    task: Annotated[str | None, argument("[TASK]", "As the run began; none with data.")] = None,
    *,
    settings: Annotated[
        Path | None, option("FILE", "Settings of the run and of the task, as the run began.")
    ] = None,
    overrides: Annotated[
        list[str] | None, option("KEY=VALUE", "One setting, as the run began. Repeatable.", "--set")
    ] = None,
    kicks: Annotated[int, option("N", "Pairs of batches.", "-n", check=whole(3))] = 8,
    as_json: Json = False,
) -> None:
    """Measure how far the next step of a run overshoots, and keep it beside the run."""
    from groupwise.analysis.probing import result_of
    from groupwise.diagnostics.probes import said
    from groupwise.readers import open_run
    from groupwise_lab.cli.train import check_installed, prepared, settings_of, task_of, wanted_of
    from groupwise_lab.trainer.grpo import step_curvature

    check_installed()
    start, chosen = settings_of(wanted_of(settings, overrides or (), {}))
    begun, probes = time.monotonic(), open_run(run).probes
    assert probes is not None
    with progress(quiet=as_json) as show:
        made = prepared(start, task_of(task, start), chosen, run, show)
        curvature, rate = step_curvature(*made, kicks=kicks)
    shown, safe = _kicked(curvature), None
    if curvature.high > 0:
        safe = rate * EDGE / curvature.high
    rollouts = 2 * kicks * made[2].rollouts_per_step
    result = result_of(name, shown, rollouts, begun, made[2].seed)
    probes.add(result)
    if as_json:
        print_json({"result": result, "learning_rate": rate, "safe_learning_rate": safe})
    else:
        print_lines(said(result))
        if safe is not None:
            print_lines(f"safe learning rate along this step: below {safe:.2g}, now {rate:.2g}")


def _kicked(value: Interval) -> Shown:
    """Hold the learning rate times the curvature along a step against the edge of 2."""
    from groupwise.diagnostics.facts import Fact
    from groupwise.diagnostics.probe_outcomes import Shown

    below = Fact.EDGE_FAR if value.high < EDGE else None
    told = f"learning rate times curvature {value.value:.2g} ({value.low:.2g} to {value.high:.2g})"
    return Shown(Fact.EDGE_CROSSED if value.low > EDGE else below, told, value)
