"""The command `groupwise probe`: which experiment tells tied causes apart, and that experiment."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from groupwise.cli import app as cli
from groupwise.errors import GroupwiseError, InvalidArgumentError
from groupwise.files import free_target
from groupwise.intervals import percent

if TYPE_CHECKING:
    from groupwise.analysis.probing import ProbeOptions
    from groupwise.diagnostics.judgement import Judgement
    from groupwise.record.run import RunRecord


def probe(
    run: Path,
    name: str | None = None,
    *,
    function: str = "",
    model: Path | None = None,
    reference: Path | None = None,
    data: Path | None = None,
    rollouts: int | None = None,
    seconds: float = 60.0,
    seed: int = 1,
    opening: cli.Opening,
    as_json: bool = False,
) -> None:
    """Which experiment of minutes tells tied causes apart; with its name, make it."""
    from groupwise.analysis.probing import RUNNABLE, ProbeOptions, run_probe
    from groupwise.diagnostics.causes import KINDS, said
    from groupwise.diagnostics.judge import judge
    from groupwise.wording import sentence

    record = opening.open(run)
    judgement = judge(record)
    how = ProbeOptions(rollouts or 0, seed, function, seconds, model, reference, data)
    if name is None:
        _list([str(run), *opening.words], record, judgement, how, as_json=as_json)
        return
    if name not in RUNNABLE:
        raise InvalidArgumentError(f"expected {', '.join(RUNNABLE)}; got {name[:40]!r}: name one")
    option, value = ("--function", function) if name == "regrade" else ("--model", model)
    if not value:
        raise InvalidArgumentError(f"expected {option} with {name}, got none: add it")
    assert record.probes
    free_target(record.probes.path, cli.logs_of(record), force=True)
    how = replace(how, rollouts=rollouts or KINDS[name].rollouts)
    result = run_probe(record, judgement, name, how)
    record = replace(record, probes=record.probes.add(result))
    assert record.rollouts is not None
    judgement = judge(record)
    if as_json:
        cli.print_json({"result": result, "judgement": judgement})
    else:
        took = f"The probe took {result.seconds:.1f} s; {KINDS[name].seconds:.0f} s were expected."
        left = name == "resample" or how.rollouts <= result.rollouts < len(record.rollouts)
        if left and not result.outcome and result.low < result.high:
            took += f" More completions may decide it: -n {4 * how.rollouts}."
        cli.print_lines(sentence(said(result)), took, str(judgement))


def _list(
    opened: list[str], record: RunRecord, judgement: Judgement, how: ProbeOptions, *, as_json: bool
) -> None:
    """Say which experiments would tell the causes apart that remain."""
    from groupwise.analysis.probing import measured
    from groupwise.analysis.replay import logged_groups
    from groupwise.diagnostics import causes
    from groupwise.diagnostics.judgement import State
    from groupwise.diagnostics.signals import Evidence
    from groupwise.wording import count, sentence

    cause, evidence = judgement.cause, Evidence(record)
    named = {key: causes.label_of(key) for key in causes.in_question(cause)}
    trials = [measured(record, judgement, kind, how) for kind in causes.choices(cause, evidence)]
    remain = "The log names no cause; probes can separate"
    remain = remain if named and not cause.keys else "The causes that remain"
    lines = [judgement.fact, f"{remain}: {', '.join(named.values()) or 'none'}."]
    lines += [sentence(causes.said(result)) for result in causes.results_of(evidence).values()]
    lines += [sentence(record.unread)] if record.unread else []
    try:
        if not {"regrade", "rescore"} & {trial.probe for trial in trials if not trial.missing}:
            logged_groups(record)
    except GroupwiseError as error:
        lines.append(sentence(str(error)))
    every = {key: causes.label_of(key) for key in causes.contenders(cause)}
    given = {"MODULE:NAME": how.function, "CHECKPOINT": how.model, "FIRST": how.reference}
    for trial in trials:
        by = "at most, estimated from a first batch" if trial.timed else "by the default estimate"
        by = f"by {trial.steps} steps of this run" if trial.steps else by
        cost = (
            f"{count(trial.rollouts, 'completion')}, {trial.seconds:.1f} s {by}; "
            f"it leaves {percent(2**-trial.bits)} of these causes on average"
        )
        # what trains knows its settings itself
        words = shlex.join(opened[:1] if trial.steps else opened)
        command = trial.command
        for place, value in given.items():
            command = command.replace(place, shlex.quote(str(value or place)))
        way = f"log {trial.missing}" if trial.missing else command.replace("RUN", words, 1)
        lines += ["", f"{trial.probe} {trial.does}: {cost}.", f"  {way}"]
        for outcome in trial.outcomes:
            told_of = [every[key] for key in every if outcome.chances.get(key, 0.0) > 0.5]
            lines += [f"  {' or '.join(told_of)}, if {outcome.meaning}"] if told_of else []
    asked = (*cause.log, *judgement.not_logged, "more rows")
    if judgement.state is State.CANNOT_TELL:
        lines.append(f"Nothing can be decided yet: log {asked[0]}.")
    elif len(named) < 2:
        do = f" Do: {judgement.do}." if judgement.do else ""
        lines.append(f"There are no causes to separate.{do}")
    elif not trials:
        lines.append(
            f"No remaining probe separates these causes. Log {asked[0]}, or run a probe by name "
            "on more completions: -n N."
        )
    if as_json:
        cli.print_json({"causes": named, "probes": trials, "judgement": judgement})
    else:
        cli.print_lines(*lines)
