"""The command line: parse, call one function, print.

Only typer is imported before a command is chosen; errors are turned into one line and an exit code here and nowhere else.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from groupwise import __version__
from groupwise.errors import GroupwiseError, GroupwiseWarning

DONE, FOUND, REFUSED, INTERRUPTED, DEFECT = 0, 1, 2, 130, 70
_DEBUG = "GROUPWISE_DEBUG"

# The matrices here are small: BLAS threads only wait for each other. Must be said before NumPy is first imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

app = typer.Typer(
    name="groupwise",
    help="What a GRPO run's log says: is it still learning, where will it end, is it stable.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

_Run = Annotated[Path, typer.Argument(metavar="RUN", help="A log file, a run folder or a saved record.", show_default=False)]
_Runs = Annotated[list[Path], typer.Argument(metavar="RUN...", help="Log files, run folders or saved records.", show_default=False)]
_Metric = Annotated[str, typer.Option("--metric", "-m", metavar="NAME", help="The log's own key or a canonical quantity.")]
_Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="A setting that the log does not hold, as group_size=8. Repeatable.", show_default=False
    ),
]
_Config = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="A file with settings: JSON, YAML or a README.", show_default=False)
]
_Column = Annotated[
    list[str] | None,
    typer.Option("--column", metavar="NAME=COLUMN", help="What a column of a table is, as reward=score. Repeatable.", show_default=False),
]
_Until = Annotated[float | None, typer.Option("--until", metavar="STEP", help="Use nothing after this step.", show_default=False)]
_At = Annotated[
    str | None, typer.Option("--at", metavar="S1,S2", help="Steps to forecast; a few beyond the last where not given.", show_default=False)
]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON to standard output and nothing else.")]
_FitLevel = Annotated[float, typer.Option("--level", metavar="SHARE", help="Coverage of the intervals, between 0 and 1.")]
_BandLevel = Annotated[float, typer.Option("--level", metavar="SHARE", help="Coverage of the bands, between 0 and 1.")]

_Force = Annotated[bool, typer.Option("--force", help="Replace a file of components that is there already.")]
_Level = Annotated[
    float | None,
    typer.Option("--level", metavar="SHARE", help="Coverage of the intervals; that of saved components, else 0.95.", show_default=False),
]
_GroupSize = Annotated[
    int | None, typer.Option("--group-size", metavar="G", help="Size in use; the run's own where known.", show_default=False)
]
_Groups = Annotated[
    int | None, typer.Option("--groups", metavar="P", help="How many groups to take scores of; 64 where not given.", show_default=False)
]
_Steps = Annotated[
    str | None, typer.Option("--steps", metavar="A:B", help="First and last step whose completions are used.", show_default=False)
]
_Aggregation = Annotated[
    str | None,
    typer.Option(
        "--aggregation",
        metavar="NAME",
        help="Of the token losses: sum, sequence_mean or batch_token_mean; sum where not given.",
        show_default=False,
    ),
]
_Temperature = Annotated[
    float | None, typer.Option("--temperature", metavar="T", help="Of the sampling; the run's own where not given.", show_default=False)
]
_Layers = Annotated[
    list[str] | None,
    typer.Option(
        "--layers",
        metavar="PATTERN",
        help="Only parameters whose whole names match this glob, as '*q_proj*'. Repeatable.",
        show_default=False,
    ),
]
_SketchWidth = Annotated[
    int | None,
    typer.Option(
        "--sketch-width",
        metavar="K",
        help="Sketch the scores to K numbers; exact inner products where not given and memory allows.",
        show_default=False,
    ),
]
_MaxLength = Annotated[
    int | None,
    typer.Option(
        "--max-completion-length",
        metavar="L",
        help="Tokens at which completions were cut off; the run's own where known, else the longest of its log.",
        show_default=False,
    ),
]
_ZeroMean = Annotated[
    bool | None,
    typer.Option(
        "--zero-mean/--any-mean",
        help="Whether scores average to zero within a prompt: whole sums at the temperature of sampling do.",
        show_default=False,
    ),
]
_Source = Annotated[Path, typer.Argument(metavar="RUN|FILE", help="A run, an .npz with scores, or saved components.", show_default=False)]


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer passes it so
    """Print the version and stop."""
    if wanted:
        typer.echo(f"groupwise {__version__}")
        raise typer.Exit(DONE)


@app.callback()
def _options(
    *,
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")] = False,
) -> None:
    """What a GRPO run's log says: is it still learning, where will it end, is it stable."""


@app.command()
def report(
    runs: _Runs,
    *,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="The page; groupwise-report.html here where not given.", show_default=False),
    ] = None,
    metric: _Metric = "reward",
    until: _Until = None,
    at: _At = None,
    level: _BandLevel = 0.9,
    settings: _Set = None,
    config: _Config = None,
    column: _Column = None,
    as_json: _Json = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a page that is there already.")] = False,
) -> None:
    """Write one page on one or several runs, and its summary here."""
    from groupwise.commands import report as command
    from groupwise.commands.options import Opening

    opening = Opening.parse(column=column, settings=settings, config=config)
    command.run(runs, opening, output=output, metric=metric, until=until, at=at, level=level, as_json=as_json, force=force)


@app.command()
def fit(
    run: _Run,
    *,
    metric: _Metric = "reward",
    law: Annotated[
        str | None, typer.Option("--law", metavar="NAME", help="Fit this law alone; all compete where not given.", show_default=False)
    ] = None,
    until: _Until = None,
    level: _FitLevel = 0.95,
    settings: _Set = None,
    config: _Config = None,
    column: _Column = None,
    as_json: _Json = False,
) -> None:
    """Fit the laws to one metric: parameters with intervals, and what they mean."""
    from groupwise.commands import fit as command
    from groupwise.commands.options import Opening

    opening = Opening.parse(column=column, settings=settings, config=config)
    command.run(run, opening, metric=metric, law=law, until=until, level=level, as_json=as_json)


@app.command()
def forecast(
    run: _Run,
    *,
    metric: _Metric = "reward",
    until: _Until = None,
    at: _At = None,
    level: _BandLevel = 0.9,
    settings: _Set = None,
    config: _Config = None,
    column: _Column = None,
    as_json: _Json = False,
) -> None:
    """Forecast one metric, with a band for its mean and one for the next rows."""
    from groupwise.commands import forecast as command
    from groupwise.commands.options import Opening

    opening = Opening.parse(column=column, settings=settings, config=config)
    command.run(run, opening, metric=metric, until=until, at=at, level=level, as_json=as_json)


@app.command()
def backtest(
    runs: _Runs,
    *,
    metric: _Metric = "reward",
    from_share: Annotated[float, typer.Option("--from", metavar="SHARE", help="Share of each run that the forecast sees.")] = 0.4,
    level: _BandLevel = 0.9,
    min_rows: Annotated[int, typer.Option("--min-rows", metavar="ROWS", help="Leave out runs with fewer rows of the metric.")] = 20,
    settings: _Set = None,
    config: _Config = None,
    column: _Column = None,
    as_json: _Json = False,
) -> None:
    """Forecast each run from its beginning and score that on the rest, beside simple methods."""
    from groupwise.commands import backtest as command
    from groupwise.commands.options import Opening

    opening = Opening.parse(column=column, settings=settings, config=config)
    command.run(runs, opening, metric=metric, from_share=from_share, level=level, min_rows=min_rows, as_json=as_json)


@app.command()
def components(
    source: _Source,
    *,
    model: Annotated[
        Path | None,
        typer.Option("--model", metavar="CHECKPOINT", help="Folder of the model that takes scores of the run.", show_default=False),
    ] = None,
    adapter: Annotated[
        Path | None, typer.Option("--adapter", metavar="DIR", help="Folder of a LoRA adapter on the model.", show_default=False)
    ] = None,
    groups: _Groups = None,
    steps: _Steps = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Of the sample of groups, or of the bootstrap.")] = 0,
    aggregation: _Aggregation = None,
    temperature: _Temperature = None,
    layers: _Layers = None,
    sketch_width: _SketchWidth = None,
    max_completion_length: _MaxLength = None,
    method: Annotated[
        str | None, typer.Option("--method", metavar="NAME", help="Intervals for FILE: jackknife or bootstrap.", show_default=False)
    ] = None,
    zero_mean: _ZeroMean = None,
    group_size: Annotated[
        int | None,
        typer.Option("--group-size", metavar="G", help="For a FILE without prompt_N: groups follow one another.", show_default=False),
    ] = None,
    level: _Level = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where to save; beside the run where not given.", show_default=False),
    ] = None,
    settings: _Set = None,
    config: _Config = None,
    column: _Column = None,
    as_json: _Json = False,
    force: _Force = False,
) -> None:
    """Variance components of the gradient, from scores in a file or from a run and its model."""
    from groupwise.commands import components as command
    from groupwise.commands.options import Opening

    opening = Opening.parse(column=column, settings=settings, config=config)
    measurement = command.Measurement(
        model, adapter, groups, steps, aggregation, temperature, tuple(layers or ()), sketch_width, max_completion_length
    )
    estimation = command.Estimation(method, zero_mean, group_size)
    command.run(source, opening, measurement, estimation, seed=seed, level=level, output=output, force=force, as_json=as_json)


@app.command()
def plan(
    source: Annotated[
        Path | None,
        typer.Argument(metavar="RUN|FILE", help="A run with components, an .npz with scores, or saved components.", show_default=False),
    ] = None,
    *,
    vp: Annotated[float | None, typer.Option("--vp", metavar="VP", help="Variance between prompts.", show_default=False)] = None,
    t: Annotated[float | None, typer.Option("--t", metavar="T", help="First-order part within prompts.", show_default=False)] = None,
    r: Annotated[float | None, typer.Option("--r", metavar="R", help="Second-order part within prompts.", show_default=False)] = None,
    budget: Annotated[
        float | None,
        typer.Option("--budget", metavar="N", help="Of one optimiser step; a run's own rollouts where not given.", show_default=False),
    ] = None,
    budget_unit: Annotated[str, typer.Option("--budget-unit", metavar="UNIT", help="rollouts, tokens or seconds.")] = "rollouts",
    prompt_cost: Annotated[float, typer.Option("--prompt-cost", metavar="C", help="Of one prompt, in the unit of the budget.")] = 0.0,
    rollout_cost: Annotated[
        float | None,
        typer.Option(
            "--rollout-cost", metavar="C", help="Of one rollout; 1 for rollouts, else from the run where it tells.", show_default=False
        ),
    ] = None,
    prompt_pool: Annotated[
        int | None,
        typer.Option("--prompt-pool", metavar="P", help="Different prompts there are, where few.", show_default=False),
    ] = None,
    group_size: _GroupSize = None,
    level: _Level = None,
    settings: _Set = None,
    config: _Config = None,
    column: _Column = None,
    as_json: _Json = False,
) -> None:
    """Best group size and number of prompts for a budget, and what the size in use costs."""
    from groupwise.commands import plan as command
    from groupwise.commands.options import Opening

    opening = Opening.parse(column=column, settings=settings, config=config)
    spending = command.Spending(budget, budget_unit, prompt_cost, rollout_cost, prompt_pool)
    command.run(source, opening, spending, vp=vp, t=t, r=r, group_size=group_size, level=level, as_json=as_json)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    Args:
        arguments: without the program's name; those of the process where None.

    Returns:
        0 done, 1 a judging command found something, 2 the input or the arguments cannot be used, 70 a defect of ours.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with _own_warnings():
            code = app(args=given or ["--help"], prog_name="groupwise", standalone_mode=False)
            sys.stdout.flush()
        return code if isinstance(code, int) else DONE
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except (KeyboardInterrupt, typer.Abort):
        return _say("interrupted", INTERRUPTED)
    except Exception as error:  # noqa: BLE001 - the one edge
        return _explained(error)


def _explained(error: Exception) -> int:
    """Print an error as one line and return its exit code."""
    if os.environ.get(_DEBUG) == "1":
        import traceback

        traceback.print_exception(error)
    if isinstance(error, GroupwiseError):
        return _say(str(error), REFUSED)
    if callable(getattr(error, "format_message", None)):
        return _say(_usage(error), REFUSED)
    if isinstance(error, OSError) and error.filename is not None:
        return _say(f"{error.filename}: {error.strerror or error}", REFUSED)
    if isinstance(error, MemoryError):
        return _say("not enough memory for this input; try a part of it, or --until STEP", REFUSED)
    where = f"{type(error).__name__}: {error}"
    return _say(
        f"this is a defect of groupwise {__version__} ({where}); run again with {_DEBUG}=1 and report the traceback with the command",
        DEFECT,
    )


def _usage(error: Any) -> str:
    """Return typer's message for a wrong argument, with where to read on."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "groupwise"
    return f"{error.format_message()} See {path} --help."


def _say(message: str, code: int) -> int:
    """Print one line to standard error and return the code."""
    from groupwise.report.wording import clean

    typer.echo(f"groupwise: {clean(message, longest=2000)}", err=True)
    return code


@contextmanager
def _own_warnings() -> Iterator[None]:
    """Print our own warnings as one line; other libraries' are no business of the user's."""
    with warnings.catch_warnings():
        shown = warnings.showwarning

        def show(
            message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: str | None = None
        ) -> None:
            if issubclass(category, GroupwiseWarning):
                typer.echo(f"groupwise: warning: {message}", err=True)
            elif os.environ.get(_DEBUG) == "1":
                shown(message, category, filename, lineno, file, line)

        warnings.showwarning = show
        yield
