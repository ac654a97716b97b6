"""The command `groupwise components`: the variance components of scores in a file, or of a run under a model.

Without a model a run has rewards alone to tell of, and they are labelled so.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from groupwise.cli.shared import (
    Column,
    Config,
    Json,
    Level,
    Opening,
    Settings,
    argument,
    flag,
    free_target,
    option,
    out_console,
    print_json,
    progress,
)
from groupwise.errors import InvalidArgumentError

if TYPE_CHECKING:
    from groupwise.analysis.component_file import SavedComponents
    from groupwise.analysis.components import Measurement
    from groupwise.estimators.components import Method
    from groupwise.scores.scores import Aggregation

METHODS = ("jackknife", "bootstrap")
AGGREGATIONS = ("sum", "sequence_mean", "batch_token_mean")
_LEVEL = 0.95


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
    from groupwise.analysis.component_file import SavedComponents, components_of_scores, is_components, is_score_file, load_components

    _check_words({"--method": (method, METHODS), "--aggregation": (aggregation, AGGREGATIONS)})
    whole = {"--groups": (groups, 2), "--sketch-width": (sketch_width, 1), "--max-completion-length": (max_completion_length, 1)}
    _check_numbers({**whole, "--seed": (seed, 0)}, temperature)
    opening = Opening.parse(column=column, settings=settings, config=config)
    of_model = _given({"--adapter": adapter, "--groups": groups, "--aggregation": aggregation, "--temperature": temperature})
    of_model += _given({"--layers": layers, "--sketch-width": sketch_width, "--max-completion-length": max_completion_length})
    if model is None and of_model:
        raise InvalidArgumentError(f"{of_model[0]} goes with --model CHECKPOINT, which is not given: name the model, or leave it out")
    of_scores, mean = _given({"--method": method, "--group-size": group_size}), _given({"--zero-mean/--any-mean": zero_mean})
    refuse = partial(_refuse, source)
    saved = source.is_file() and is_components(source)
    if saved or (not source.is_dir() and is_score_file(source)):
        refuse("which is no run", _given({"--model": model, "--steps": steps, "--set, --config or --column": opening or None}))
        if saved:
            refuse("which holds components already", [*of_scores, *mean, *_given({"--output": output})])
            _show(load_components(source, level=level), None, as_json=as_json, told=True)
            return
        if output is not None:
            _check_target(output, [source], force=force)
        estimate = partial(components_of_scores, source, level=level, seed=seed, zero_mean=zero_mean is not False, group_size=group_size)
        about = {"file": source.name, "seed": seed} if method == "bootstrap" else {"file": source.name}
        found = SavedComponents(estimate(method=cast("Method", method or "jackknife")), about)
        _keep(found, output, force=force, as_json=as_json)
        return
    refuse("which is no file of scores", of_scores)
    if model is None:
        refuse("which has no scores without --model CHECKPOINT", mean)
        if output is not None:
            raise InvalidArgumentError("--output goes with --model CHECKPOINT or a file of scores: rewards alone hold no components")
        _show_rewards(source, opening, _steps(steps), _LEVEL if level is None else level, as_json=as_json)
        return
    from groupwise.analysis.components import Measurement

    how = Measurement(
        model,
        adapter,
        groups=64 if groups is None else groups,
        steps=_steps(steps),
        seed=seed,
        aggregation=cast("Aggregation", aggregation or "sum"),
        temperature=temperature,
        layers=tuple(layers or ()),
        sketch_width=sketch_width,
        max_completion_length=max_completion_length,
        zero_mean=zero_mean,
        level=_LEVEL if level is None else level,
    )
    _measure(source, opening, how, output, force=force, as_json=as_json)


def _check_words(words: Mapping[str, tuple[str | None, Sequence[str]]]) -> None:
    """Refuse words that are none of a few."""
    for name, (value, choices) in words.items():
        if value is not None and value not in choices:
            raise InvalidArgumentError(f"{name} expects {', '.join(choices[:-1])} or {choices[-1]}; got {value!r}")


def _check_numbers(whole: Mapping[str, tuple[int | None, int]], temperature: float | None) -> None:
    """Refuse whole numbers below the least that makes sense, and a temperature that is not positive."""
    for name, (value, least) in whole.items():
        if value is not None and value < least:
            raise InvalidArgumentError(f"{name} expects a whole number of at least {least}; got {value}")
    if temperature is not None and not 0 < temperature < math.inf:
        raise InvalidArgumentError(f"--temperature expects a positive number; got {temperature:g}")


def _given(options: Mapping[str, Any]) -> list[str]:
    """Return the names of the options that were given."""
    return [name for name, value in options.items() if value not in (None, [])]


def _refuse(source: Path, reason: str, options: Sequence[str]) -> None:
    """Refuse options that have no meaning for what was given."""
    if options:
        raise InvalidArgumentError(f"expected no {options[0]} with {source}, {reason}: leave it out")


def _check_target(target: Path, inputs: Sequence[Path], *, force: bool) -> None:
    """Refuse a target that may not be written, before any work is done."""
    from groupwise.analysis.component_file import check_free

    free_target(target, inputs, force=True)
    check_free(target, force=force)


def _keep(found: SavedComponents, target: Path | None, *, force: bool, as_json: bool) -> None:
    """Save components where there is a target, and print them."""
    if target is not None:
        from groupwise.analysis.component_file import save_components

        save_components(found.components, target, provenance=found.provenance, force=force)
    _show(found, target, as_json=as_json, told=target is not None)


def _show(found: SavedComponents, target: Path | None, *, as_json: bool, told: bool) -> None:
    """Print components, and in words what they were measured on where that is to be told."""
    if as_json:
        print_json({**found.components.as_dict(), "provenance": dict(found.provenance), "file": None if target is None else str(target)})
        return
    from groupwise.analysis.group_size import provenance_notes
    from groupwise.report.text import print_components

    notes = list(provenance_notes(found.provenance)) if told else []
    if target is not None:
        notes.append(f"Saved in {target}; `groupwise plan` says what to do with it")
    print_components(found.components, notes, out_console())


def _show_rewards(source: Path, opening: Opening, steps: tuple[int, int] | None, level: float, *, as_json: bool) -> None:
    """Print what rewards alone say of a run, and the command that gets the rest."""
    from groupwise.analysis.component_file import path_beside
    from groupwise.analysis.group_size import reward_facts
    from groupwise.series.rollout_sample import recurrence_notes

    record = opening.open(source)
    facts = reward_facts(record, steps=steps, level=level)
    recurring = recurrence_notes(record, facts.first_step, facts.last_step)
    command = f"groupwise components {shlex.quote(str(source))} --model CHECKPOINT"
    beside = path_beside(source)
    if beside.is_file():
        command = f"groupwise components {shlex.quote(str(beside))}"
    if as_json:
        print_json({**facts.as_dict(), "notes": [*facts.notes, *recurring], "command": command})
        return
    from groupwise.report.text import print_reward_facts

    print_reward_facts(facts, (*recurring, f"The gradient's own numbers: `{command}`"), out_console())


def _measure(source: Path, opening: Opening, how: Measurement, output: Path | None, *, force: bool, as_json: bool) -> None:
    """Measure the components of a run under a model, save them beside it, print them."""
    from groupwise.analysis.component_file import path_beside
    from groupwise.analysis.components import measure_run

    target = path_beside(source) if output is None else output
    _check_target(target, [source] if source.is_file() else [], force=force)
    record = opening.open(source)
    free_target(target, [Path(each.path) for each in record.sources], force=True)
    with progress(quiet=as_json) as show:
        found = measure_run(record, how, partial(show, "taking scores"))
    _keep(found, target, force=force, as_json=as_json)


def _steps(text: str | None) -> tuple[int, int] | None:
    """Return the first and the last step of A:B."""
    if text is None:
        return None
    found = re.fullmatch(r"\s*(\d{1,15})\s*:\s*(\d{1,15})\s*", text)
    if found is None or int(found[1]) > int(found[2]):
        raise InvalidArgumentError(f"--steps expects the first and the last step as 100:200; got {text!r}")
    return int(found[1]), int(found[2])
