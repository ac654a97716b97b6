"""The command `groupwise-lab probe`: experiments on a run that train."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from groupwise.cli.app import print_json, print_lines, progress
from groupwise.errors import InvalidArgumentError, check_installed

if TYPE_CHECKING:
    from groupwise.diagnostics.causes import Shown
    from groupwise.intervals import Interval

SMALL_STEP = 0.05  # nats of a completion; of more no theory of small steps holds
EDGE = 2.0  # learning rate times curvature from which plain steps overshoot


def probe(
    name: Literal["kick"],
    run: Path,
    task: str | None = None,
    *,
    settings: Path | None = None,
    overrides: list[str] | None = None,
    kicks: int = 8,
    as_json: bool = False,
) -> None:
    """Measure how far the next step of a run overshoots, and keep it beside the run."""
    from groupwise.analysis.probing import result_of
    from groupwise.diagnostics.causes import said
    from groupwise.diagnostics.judge import judge
    from groupwise.readers import run_record
    from groupwise.wording import sentence
    from groupwise_lab.cli.train import prepared, settings_of, task_of, wanted_of
    from groupwise_lab.trainer.grpo import step_curvature

    check_installed("torch", "safetensors", what="training")
    begun, record = time.monotonic(), run_record(run)
    wanted, since = wanted_of(settings, overrides or (), {}), 0
    assert record.probes
    with progress(quiet=as_json) as show:
        if task or wanted:
            start, chosen = settings_of(wanted)
            made: Any = prepared(start, task_of(task, start), chosen, run, show)
        else:
            *made, since = _as_it_began(run, judge(record).since_step or 0)
        kick = step_curvature(*made, kicks=kicks, since=since)
    shown, rate, high = _kicked(kick.curvature), kick.learning_rate, kick.curvature.high
    safe = rate * EDGE / high if shown.fact and high > 0 else None
    small = rate * (SMALL_STEP / kick.nats) ** 0.5 if kick.nats else None
    chosen = made[2]
    result = result_of(name, shown, 2 * kicks * chosen.rollouts_per_step, begun, chosen.seed)
    judgement = judge(replace(record, probes=record.probes.add(result)))
    if as_json:
        rates = {"safe_learning_rate": safe, "small_step_learning_rate": small}
        step = {"learning_rate": rate, "nats": kick.nats, "gain": kick.gain}
        print_json({"result": result, "judgement": judgement, **step, **rates})
    else:
        print_lines(sentence(said(result)), f"The probe took {result.seconds:.1f} s.")
        if not shown.fact:
            print_lines(f"More pairs of batches may decide it: -n {4 * kicks}.")
        elif safe:
            print_lines(f"The safe learning rate is below {safe:.2g}; now it is {rate:.2g}.")
        if small:
            keeps = f"; lr {small:.2g} keeps it at {SMALL_STEP:g}"
            print_lines(
                f"The step moves completions of unseen prompts by {kick.nats:.2g} nats (expected "
                f"gain of reward {kick.gain:.2g}){'' if safe and safe < small else keeps}."
            )
            if small < rate and not chosen.ramp_steps:
                print_lines("No warm-up is set: begin at that rate, or --set ramp_steps=20.")
        print_lines(str(judgement))


def _as_it_began(run: Path, since: int) -> tuple[Any, ...]:
    """Return policy, task, settings and folder of a run as its last checkpoint has them; those of
    the first one, and the step of the change, where it came before any other.
    """
    from groupwise_lab.trainer.checkpoints import read_state
    from groupwise_lab.trainer.evaluate import open_model
    from groupwise_lab.trainer.file_task import read_task
    from groupwise_lab.trainer.folder import CHECKPOINTS, RunFolder
    from groupwise_lab.trainer.settings import TrainSettings

    folders = {
        int(path.name.partition("-")[2]): path for path in (run / CHECKPOINTS).glob("*-[0-9]*")
    }
    if not folders:
        raise InvalidArgumentError(f"expected a run with a checkpoint, got none in {run}: train")
    last = max(folders)
    if since > min(filter(None, folders), default=last):
        since = 0
    task, model = read_task(folders[last]), open_model(folders[0 if since else last])
    if task is None or model.vocabulary is None:
        raise InvalidArgumentError(
            f"expected the TASK and the settings with which {run} was trained, as after "
            "groupwise-lab train, got none: only the run of a policy of ours knows them itself"
        )
    settings = TrainSettings.from_mapping(read_state(folders[last])[1]["settings"])
    return model.actor, task, settings, RunFolder(run, settings, task, model.actor), since


def _kicked(value: Interval) -> Shown:
    """Hold the learning rate times the curvature along a step against the edge of 2."""
    from groupwise.diagnostics.causes import Shown
    from groupwise.diagnostics.judgement import Fact

    below = Fact.EDGE_FAR if value.high < EDGE else None
    return Shown(
        Fact.EDGE_CROSSED if value.low > EDGE else below,
        f"learning rate times curvature {value.value:.2g} ({value.low:.2g} to {value.high:.2g})",
        value,
    )
