"""The command `groupwise components`: the variance components of scores in a file, or of a run under a model.

Without a model a run has rewards alone to tell of, and they are labelled so. It computes nothing by itself.
"""

from __future__ import annotations

import math
import re
import shlex
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from groupwise.cli.shared import (
    Column,
    Config,
    Json,
    Level,
    Opening,
    Settings,
    argument,
    check_share,
    flag,
    free_target,
    option,
    out_console,
    print_json,
    progress,
)
from groupwise.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from groupwise.estimators.components import Components, Method

METHODS = ("jackknife", "bootstrap")
AGGREGATIONS = ("sum", "sequence_mean", "batch_token_mean")
_LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Measurement:
    """How scores are to be taken from a model."""

    model: Path | None  # folder of the checkpoint, or None
    adapter: Path | None  # folder of a LoRA adapter, or None
    groups: int | None  # how many to take
    steps: str | None  # first and last, as typed, or None
    aggregation: str | None  # of the token losses
    temperature: float | None  # of sampling; that of the run where None
    layers: tuple[str, ...]  # patterns of parameter names; all where empty
    sketch_width: int | None  # of a sketch; where None inner products are exact as far as memory goes
    max_completion_length: int | None  # tokens at which completions were cut off; that of the run where None

    def __post_init__(self) -> None:
        """Check what needs no model."""
        if self.aggregation is not None and self.aggregation not in AGGREGATIONS:
            raise InvalidArgumentError(f"--aggregation expects {', '.join(AGGREGATIONS)}; got {self.aggregation!r}")
        for name, value, least in (
            ("--groups", self.groups, 2),
            ("--sketch-width", self.sketch_width, 1),
            ("--max-completion-length", self.max_completion_length, 1),
        ):
            if value is not None and value < least:
                raise InvalidArgumentError(f"{name} expects a whole number of at least {least}; got {value}")
        if self.temperature is not None and not 0 < self.temperature < math.inf:
            raise InvalidArgumentError(f"--temperature expects a positive number; got {self.temperature:g}")
        if self.model is None and self.given:
            raise InvalidArgumentError(f"{self.given[0]} goes with --model CHECKPOINT, which is not given: name the model, or leave it out")

    @property
    def given(self) -> list[str]:
        """The options that only a model gives a meaning."""
        options = {
            "--adapter": self.adapter,
            "--groups": self.groups,
            "--aggregation": self.aggregation,
            "--temperature": self.temperature,
            "--layers": self.layers or None,
            "--sketch-width": self.sketch_width,
            "--max-completion-length": self.max_completion_length,
        }
        return [name for name, value in options.items() if value is not None]


@dataclass(frozen=True, slots=True)
class Estimation:
    """How components are to be estimated from scores; None is not given."""

    method: str | None  # of the intervals
    zero_mean: bool | None  # whether scores average to zero within a prompt; of those that a model takes, too
    group_size: int | None  # of groups that follow one another

    def __post_init__(self) -> None:
        """Check the method."""
        if self.method is not None and self.method not in METHODS:
            raise InvalidArgumentError(f"--method expects {' or '.join(METHODS)}; got {self.method!r}")

    @property
    def given(self) -> list[str]:
        """The options that are given."""
        options = {"--method": self.method, "--group-size": self.group_size, "--zero-mean/--any-mean": self.zero_mean}
        return [name for name, value in options.items() if value is not None]

    @property
    def of_file(self) -> list[str]:
        """Those that only a file of scores gives a meaning."""
        return self.given if self.zero_mean is None else self.given[:-1]


def run(
    path: Path,
    opening: Opening,
    measurement: Measurement,
    estimation: Estimation,
    *,
    seed: int,
    level: float | None,
    output: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Estimate or measure, save, print."""
    check_share("--level", level)
    if seed < 0:
        raise InvalidArgumentError(f"--seed expects a whole number of at least 0; got {seed}")
    from groupwise.analysis.component_file import is_components
    from groupwise.cli.score_file import is_score_file

    is_saved = path.is_file() and is_components(path)
    if is_saved or (not path.is_dir() and is_score_file(path)):
        _refuse(path, "which is no run", [*(["--model"] if measurement.model else []), *(["--steps"] if measurement.steps else [])])
        _refuse(path, "which is no run", ["--set, --config or --column"] if opening.settings or opening.columns or opening.config else [])
        _refuse(path, "which holds components already", [*estimation.given, *(["--output"] if output else [])] if is_saved else [])
        _of_file(path, estimation, is_saved=is_saved, seed=seed, level=level, output=output, force=force, as_json=as_json)
        return
    _refuse(path, "which is no file of scores", estimation.of_file)
    if measurement.model is None:
        _refuse(path, "which has no scores without --model CHECKPOINT", estimation.given)
        if output is not None:
            raise InvalidArgumentError(
                "--output goes with --model CHECKPOINT or a file of scores: rewards alone hold no components to save"
            )
        _rewards_alone(path, opening, measurement, level=level, as_json=as_json)
        return
    _measure(
        path, opening, measurement, zero_mean=estimation.zero_mean, seed=seed, level=level, output=output, force=force, as_json=as_json
    )


def _refuse(path: Path, reason: str, options: Sequence[str]) -> None:
    """Refuse options that have no meaning for what was given."""
    if options:
        raise InvalidArgumentError(f"expected no {options[0]} with {path}, {reason}: leave it out")


def _of_file(
    path: Path,
    estimation: Estimation,
    *,
    is_saved: bool,
    seed: int,
    level: float | None,
    output: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Print the components of a file, and save them where asked to."""
    from groupwise.cli.saved import estimated, saved_components

    if output is not None:
        _check_target(output, [path], force=force)
    provenance: Mapping[str, Any] = {}
    if is_saved:
        found, provenance = saved_components(path, level=level)
    else:
        found = estimated(
            path,
            level=level,
            method=cast("Method", estimation.method or "jackknife"),
            seed=seed,
            zero_mean=estimation.zero_mean is not False,
            group_size=estimation.group_size,
        )
        provenance = {"file": path.name, "seed": seed} if estimation.method == "bootstrap" else {"file": path.name}
    _show(found, provenance, output, force=force, as_json=as_json, saved=not is_saved)


def _show(found: Components, provenance: Mapping[str, Any], target: Path | None, *, force: bool, as_json: bool, saved: bool = True) -> None:
    """Save components where there is a target, and print them."""
    from groupwise.analysis.group_size import provenance_notes

    notes = list(provenance_notes(provenance)) if not saved or target is not None else []
    if target is not None:
        from groupwise.analysis.component_file import save_components

        save_components(found, target, provenance=provenance, force=force)
        notes.append(f"Saved in {target}; `groupwise plan` says what to do with it")
    if as_json:
        print_json({**found.as_dict(), "provenance": dict(provenance), "file": None if target is None else str(target)})
        return
    from groupwise.report.text import print_components

    print_components(found, notes, out_console())


def _check_target(target: Path, inputs: Sequence[Path], *, force: bool) -> None:
    """Refuse a target that may not be written, before any work is done."""
    from groupwise.analysis.component_file import check_free

    free_target(target, inputs, force=True)
    check_free(target, force=force)


def _rewards_alone(path: Path, opening: Opening, measurement: Measurement, *, level: float | None, as_json: bool) -> None:
    """Print what rewards alone say of a run, and the command that gets the rest."""
    from groupwise.analysis.component_file import path_beside
    from groupwise.analysis.group_size import reward_facts
    from groupwise.series.rollout_sample import recurrence_notes

    record = opening.open(path)
    facts = reward_facts(record, steps=_steps(measurement.steps), level=_LEVEL if level is None else level)
    recurring = recurrence_notes(record, facts.first_step, facts.last_step)
    command = f"groupwise components {shlex.quote(str(path))} --model CHECKPOINT"
    beside = path_beside(path)
    if beside.is_file():
        command = f"groupwise components {shlex.quote(str(beside))}"
    if as_json:
        print_json({**facts.as_dict(), "notes": [*facts.notes, *recurring], "command": command})
        return
    from groupwise.report.text import print_reward_facts

    print_reward_facts(facts, (*recurring, f"The gradient's own numbers: `{command}`"), out_console())


def _measure(
    path: Path,
    opening: Opening,
    measurement: Measurement,
    *,
    zero_mean: bool | None,
    seed: int,
    level: float | None,
    output: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Measure the components of a run under a model, save them beside it, print them."""
    assert measurement.model is not None
    from groupwise.analysis.component_file import path_beside

    target = path_beside(path) if output is None else output
    steps = _steps(measurement.steps)
    _check_target(target, [path] if path.is_file() else [], force=force)
    record = opening.open(path)
    _check_target(target, [Path(source.path) for source in record.sources], force=force)
    from groupwise.analysis.components import measure_run

    with progress(quiet=as_json) as show:
        saved = measure_run(
            record,
            measurement.model,
            adapter=measurement.adapter,
            groups=64 if measurement.groups is None else measurement.groups,
            steps=steps,
            seed=seed,
            aggregation=measurement.aggregation or "sum",
            temperature=measurement.temperature,
            layers=measurement.layers,
            sketch_width=measurement.sketch_width,
            max_completion_length=measurement.max_completion_length,
            zero_mean=zero_mean,
            level=_LEVEL if level is None else level,
            progress=partial(show, "taking scores"),
        )
    _show(saved.components, saved.provenance, target, force=force, as_json=as_json)


def _steps(text: str | None) -> tuple[int, int] | None:
    """Return the first and the last step of A:B."""
    if text is None:
        return None
    found = re.fullmatch(r"\s*(\d{1,15})\s*:\s*(\d{1,15})\s*", text)
    if found is None or int(found[1]) > int(found[2]):
        raise InvalidArgumentError(f"--steps expects the first and the last step as 100:200; got {text!r}")
    return int(found[1]), int(found[2])


def components(
    source: Annotated[Path, argument("RUN|FILE", "A run, an .npz with scores, or saved components.")],
    *,
    model: Annotated[Path | None, option("CHECKPOINT", "Folder of the model that takes scores of the run.")] = None,
    adapter: Annotated[Path | None, option("DIR", "Folder of a LoRA adapter on the model.")] = None,
    groups: Annotated[int | None, option("P", "How many groups to take scores of; by default 64.")] = None,
    steps: Annotated[str | None, option("A:B", "First and last step whose completions are used.")] = None,
    seed: Annotated[int, option("N", "Seed of the sample of groups, or of the bootstrap.")] = 0,
    aggregation: Annotated[
        str | None, option("NAME", "How token losses are put together: sum (the default), sequence_mean or batch_token_mean.")
    ] = None,
    temperature: Annotated[float | None, option("T", "Temperature of the sampling; by default the run's own.")] = None,
    layers: Annotated[
        list[str] | None, option("PATTERN", "Only parameters whose whole names match this glob, as '*q_proj*'. Repeatable.")
    ] = None,
    sketch_width: Annotated[
        int | None, option("K", "Sketch the scores to K numbers; by default inner products are exact where memory allows.")
    ] = None,
    max_completion_length: Annotated[
        int | None, option("L", "Tokens at which completions were truncated; by default the run's own, else the longest of its log.")
    ] = None,
    method: Annotated[str | None, option("NAME", "Intervals for FILE: jackknife or bootstrap.")] = None,
    zero_mean: Annotated[
        bool | None,
        typer.Option(
            "--zero-mean/--any-mean",
            help="Whether scores average to zero within a prompt: whole sums at the temperature of sampling do.",
            show_default=False,
        ),
    ] = None,
    group_size: Annotated[int | None, option("G", "For a FILE without prompt_N: groups of this size follow one another.")] = None,
    level: Level = None,
    output: Annotated[Path | None, option("FILE", "Where to save; by default beside the run.", "--output", "-o")] = None,
    settings: Settings = None,
    config: Config = None,
    column: Column = None,
    as_json: Json = False,
    force: Annotated[bool, flag("--force", "Replace a file of components that is there already.")] = False,
) -> None:
    """Variance components of the gradient, from scores in a file or from a run and its model."""
    opening = Opening.parse(column=column, settings=settings, config=config)
    measurement = Measurement(
        model, adapter, groups, steps, aggregation, temperature, tuple(layers or ()), sketch_width, max_completion_length
    )
    estimation = Estimation(method, zero_mean, group_size)
    run(source, opening, measurement, estimation, seed=seed, level=level, output=output, force=force, as_json=as_json)
