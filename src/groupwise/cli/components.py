"""The command `groupwise components`: variance components of scores."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from groupwise.cli import app as cli
from groupwise.errors import InvalidArgumentError
from groupwise.files import free_target
from groupwise.parsing import JsonObject, JsonView

if TYPE_CHECKING:
    from groupwise.analysis.components import SavedComponents

_LEVEL = 0.95


def components(
    source: Path,
    *,
    model: Path | None = None,
    adapter: Path | None = None,
    groups: int | None = None,
    steps: str | None = None,
    seed: int = 0,
    aggregation: str | None = None,
    layers: list[str] | None = None,
    sketch_width: int | None = None,
    zero_mean: bool | None = None,
    precision: str | None = None,
    engine: str | None = None,
    workers: int | None = None,
    shards: int | None = None,
    gpus_per_task: int | None = None,
    level: float | None = None,
    output: Path | None = None,
    opening: cli.Opening,
    as_json: bool = False,
    force: bool = False,
) -> None:
    """Variance components of the gradient, from a run and its model."""
    from groupwise.analysis.components import (
        Measurement,
        Spread,
        check_free,
        is_components,
        load_components,
        measure_run,
        path_beside,
        save_components,
    )

    between = _steps(steps)
    given: JsonObject = {"adapter": adapter, "groups": groups, "aggregation": aggregation}
    given |= {"layers": tuple(layers or ()), "sketch_width": sketch_width, "precision": precision}
    _goes_with(
        "--engine",
        engine,
        "local, ray or slurm",
        {"workers": workers, "shards": shards, "gpus_per_task": gpus_per_task},
    )
    _goes_with(
        "--model CHECKPOINT", model, "the model", given | {"engine": engine, "any_mean": zero_mean}
    )
    if is_components(source):
        needless: dict[str, object] = {"--model": model, "--steps": steps, "--output": output}
        needless |= {"--set, --config or --column": opening or None}
        given_too = [name for name, value in needless.items() if value is not None]
        if given_too:
            raise InvalidArgumentError(
                f"expected no {given_too[0]} with {source}, which holds components already: leave "
                "it out"
            )
        _show(load_components(source, level=level), None, as_json=as_json)
        return
    level = level or _LEVEL
    if model is None:
        raise InvalidArgumentError(
            f"expected --model CHECKPOINT with {source}, got none: rewards alone give no "
            "variance components; groupwise plan shows what they do give"
        )
    options = {name: value for name, value in given.items() if value}
    how = Measurement(model, steps=between, seed=seed, zero_mean=zero_mean, level=level, **options)
    target = output or path_beside(source)
    free_target(target, [source], force=True)
    check_free(target, force=force)
    record = opening.open(source)
    free_target(target, cli.logs_of(record), force=True)
    spread = None
    if engine:
        spread = Spread(cli.engine_of(engine, workers), shards or 64, gpus_per_task or 0)
    with cli.progress(quiet=as_json) as show:
        saved = measure_run(record, how, partial(show, "taking scores"), spread)
    save_components(saved.components, target, provenance=saved.provenance, force=force)
    _show(saved, target, as_json=as_json)


def _goes_with(name: str, there: object, what: str, options: JsonView) -> None:
    """Refuse options whose other option is not given."""
    given = [option for option, value in options.items() if value not in (None, ())]
    if given and there is None:
        option = f"--{given[0].replace('_', '-')}"
        raise InvalidArgumentError(
            f"{option} needs {name}, which is not given: give {what}, or leave {option} out"
        )


def _show(saved: SavedComponents, target: Path | None, *, as_json: bool) -> None:
    """Print components, and in words what they were measured on."""
    from groupwise.analysis.plan import provenance_notes
    from groupwise.pages.text import print_components

    if as_json:
        cli.print_json(
            {
                **saved.components.as_dict(),
                "provenance": dict(saved.provenance),
                "file": None if target is None else str(target),
            }
        )
        return
    notes = list(provenance_notes(saved.provenance))
    if target:
        notes.append(
            f"The components are saved in {target}. Run `groupwise plan` on them for a group size"
        )
    print_components(saved.components, notes, cli.out_console())


def _steps(text: str | None) -> tuple[int, int] | None:
    """Return the first and the last step of A:B."""
    if text is None:
        return None
    match = re.fullmatch(r"\s*(\d{1,15})\s*:\s*(\d{1,15})\s*", text)
    if match is None or int(match[1]) > int(match[2]):
        raise InvalidArgumentError(
            f"--steps expects the first and the last step, for example 100:200; got {text!r}"
        )
    return int(match[1]), int(match[2])
