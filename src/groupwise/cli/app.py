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
from groupwise.cli import arguments as given
from groupwise.cli.lazily import Commands
from groupwise.errors import GroupwiseError, GroupwiseWarning

DONE, FOUND, REFUSED, INTERRUPTED, DEFECT = 0, 1, 2, 130, 70
_DEBUG = "GROUPWISE_DEBUG"

# The matrices here are small: BLAS threads only wait for each other. Must be said before NumPy is first imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
commands = Commands()
app = typer.Typer(
    name="groupwise",
    cls=commands.group(),
    help="What a GRPO run's log says: is it still learning, where will it end, is it stable.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


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


@commands.command
def report(
    runs: given.Runs,
    *,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="The page; groupwise-report.html here where not given.", show_default=False),
    ] = None,
    metric: given.Metric = "reward",
    until: given.Until = None,
    at: given.At = None,
    level: given.BandLevel = 0.9,
    settings: given.Set = None,
    config: given.Config = None,
    column: given.Column = None,
    as_json: given.Json = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a page that is there already.")] = False,
) -> None:
    """Write one page on one or several runs, and its summary here."""
    from groupwise.cli import report as command
    from groupwise.cli.options import Opening

    opening = Opening.parse(column=column, settings=settings, config=config)
    command.run(runs, opening, output=output, metric=metric, until=until, at=at, level=level, as_json=as_json, force=force)


@commands.command
def watch(
    runs: given.Runs,
    *,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", metavar="N", help="To serve at; 0 for any that is free, 8750 or the next where not given.", show_default=False
        ),
    ] = None,
    metric: given.Metric = "reward",
    level: given.BandLevel = 0.9,
    settings: given.Set = None,
    config: given.Config = None,
    column: given.Column = None,
) -> None:
    """Follow runs that are being written, on a page that this machine serves to itself."""
    from groupwise.cli import watch as command
    from groupwise.cli.options import Opening

    opening = Opening.parse(column=column, settings=settings, config=config)
    command.run(runs, opening, port=port, metric=metric, level=level)


@commands.command
def diagnose(
    run: given.Run,
    *,
    until: given.Until = None,
    settings: given.Set = None,
    config: given.Config = None,
    column: given.Column = None,
    evidence: given.Evidence = False,
    as_json: given.Json = False,
) -> int:
    """What is wrong with a run and why: exit code 0 healthy, 1 findings, 2 unusable."""
    from groupwise.cli import diagnose as command
    from groupwise.cli.options import Opening

    opening = Opening.parse(column=column, settings=settings, config=config)
    return FOUND if command.run(run, opening, until=until, evidence=evidence, as_json=as_json) else DONE


@commands.command
def fit(
    run: given.Run,
    *,
    metric: given.Metric = "reward",
    law: Annotated[
        str | None, typer.Option("--law", metavar="NAME", help="Fit this law alone; all compete where not given.", show_default=False)
    ] = None,
    until: given.Until = None,
    level: given.FitLevel = 0.95,
    settings: given.Set = None,
    config: given.Config = None,
    column: given.Column = None,
    as_json: given.Json = False,
) -> None:
    """Fit the laws to one metric: parameters with intervals, and what they mean."""
    from groupwise.cli import fit as command
    from groupwise.cli.options import Opening

    opening = Opening.parse(column=column, settings=settings, config=config)
    command.run(run, opening, metric=metric, law=law, until=until, level=level, as_json=as_json)


@commands.command
def forecast(
    run: given.Run,
    *,
    metric: given.Metric = "reward",
    until: given.Until = None,
    at: given.At = None,
    level: given.BandLevel = 0.9,
    settings: given.Set = None,
    config: given.Config = None,
    column: given.Column = None,
    as_json: given.Json = False,
) -> None:
    """Forecast one metric, with a band for its mean and one for the next rows."""
    from groupwise.cli import forecast as command
    from groupwise.cli.options import Opening

    opening = Opening.parse(column=column, settings=settings, config=config)
    command.run(run, opening, metric=metric, until=until, at=at, level=level, as_json=as_json)


@commands.command
def backtest(
    runs: given.Runs,
    *,
    metric: given.Metric = "reward",
    from_share: Annotated[float, typer.Option("--from", metavar="SHARE", help="Share of each run that the forecast sees.")] = 0.4,
    level: given.BandLevel = 0.9,
    min_rows: Annotated[int, typer.Option("--min-rows", metavar="ROWS", help="Leave out runs with fewer rows of the metric.")] = 20,
    settings: given.Set = None,
    config: given.Config = None,
    column: given.Column = None,
    as_json: given.Json = False,
) -> None:
    """Forecast each run from its beginning and score that on the rest, beside simple methods."""
    from groupwise.cli import backtest as command
    from groupwise.cli.options import Opening

    opening = Opening.parse(column=column, settings=settings, config=config)
    command.run(runs, opening, metric=metric, from_share=from_share, level=level, min_rows=min_rows, as_json=as_json)


@commands.command
def compare(
    runs: given.ComparedRuns,
    *,
    by: given.By = None,
    baseline: given.Baseline = None,
    pair_by: given.PairBy = None,
    metric: given.Metric = "reward",
    until: given.Until = None,
    late: given.Late = 0.25,
    reach: given.Reach = None,
    effect: given.Effect = None,
    seed_deviation: given.SeedDeviation = None,
    level: given.FitLevel = 0.95,
    output: given.Figure = None,
    settings: given.Set = None,
    config: given.Config = None,
    column: given.Column = None,
    as_json: given.Json = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a figure that is there already.")] = False,
) -> None:
    """Is the difference of runs real: level, speed and plateau, with step noise and seed noise apart."""
    from groupwise.cli import compare as command
    from groupwise.cli.options import Opening

    opening = Opening.parse(column=column, settings=settings, config=config)
    asked = command.Asked(metric, until, late, reach, effect, seed_deviation, level)
    command.run(runs, opening, command.Grouping(by, baseline, pair_by), asked, output=output, force=force, as_json=as_json)


@commands.command
def components(
    source: given.Source,
    *,
    model: Annotated[
        Path | None,
        typer.Option("--model", metavar="CHECKPOINT", help="Folder of the model that takes scores of the run.", show_default=False),
    ] = None,
    adapter: Annotated[
        Path | None, typer.Option("--adapter", metavar="DIR", help="Folder of a LoRA adapter on the model.", show_default=False)
    ] = None,
    groups: given.Groups = None,
    steps: given.Steps = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Of the sample of groups, or of the bootstrap.")] = 0,
    aggregation: given.Aggregation = None,
    temperature: given.Temperature = None,
    layers: given.Layers = None,
    sketch_width: given.SketchWidth = None,
    max_completion_length: given.MaxLength = None,
    method: Annotated[
        str | None, typer.Option("--method", metavar="NAME", help="Intervals for FILE: jackknife or bootstrap.", show_default=False)
    ] = None,
    zero_mean: given.ZeroMean = None,
    group_size: Annotated[
        int | None,
        typer.Option("--group-size", metavar="G", help="For a FILE without prompt_N: groups follow one another.", show_default=False),
    ] = None,
    level: given.Level = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where to save; beside the run where not given.", show_default=False),
    ] = None,
    settings: given.Set = None,
    config: given.Config = None,
    column: given.Column = None,
    as_json: given.Json = False,
    force: given.Force = False,
) -> None:
    """Variance components of the gradient, from scores in a file or from a run and its model."""
    from groupwise.cli import components as command
    from groupwise.cli.options import Opening

    opening = Opening.parse(column=column, settings=settings, config=config)
    measurement = command.Measurement(
        model, adapter, groups, steps, aggregation, temperature, tuple(layers or ()), sketch_width, max_completion_length
    )
    estimation = command.Estimation(method, zero_mean, group_size)
    command.run(source, opening, measurement, estimation, seed=seed, level=level, output=output, force=force, as_json=as_json)


@commands.command
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
    rollout_cost: given.RolloutCost = None,
    prompt_pool: given.PromptPool = None,
    group_size: given.GroupSize = None,
    objective: Annotated[str, typer.Option("--objective", metavar="NAME", help="gradient or final-gap.")] = "gradient",
    curvature: given.Curvature = None,
    step_constant: given.StepConstant = None,
    learning_rate: given.ConstantStep = None,
    updates: given.UpdatesOfGap = None,
    level: given.Level = None,
    settings: given.Set = None,
    config: given.Config = None,
    column: given.Column = None,
    as_json: given.Json = False,
) -> None:
    """Best group size and number of prompts for a budget, and what the size in use costs."""
    from groupwise.cli import plan as command
    from groupwise.cli.final_gap import Goal
    from groupwise.cli.options import Opening

    opening = Opening.parse(column=column, settings=settings, config=config)
    spending = command.Spending(budget, budget_unit, prompt_cost, rollout_cost, prompt_pool)
    goal = Goal(objective, curvature, step_constant, learning_rate, updates)
    command.run(source, opening, spending, vp=vp, t=t, r=r, group_size=group_size, level=level, as_json=as_json, goal=goal)


@commands.command
def simulate(
    world: Annotated[str, typer.Argument(metavar="WORLD", help="bandit: one prompt and a softmax policy.", show_default=False)],
    *,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="Of the record that is written.", show_default=False)],
    arms: Annotated[
        int | None, typer.Option("--arms", metavar="K", help="How many; as many as rewards, else 2.", show_default=False)
    ] = None,
    rewards: Annotated[
        str | None, typer.Option("--rewards", metavar="R1,R2", help="One an arm; 1 for the last, else 0.", show_default=False)
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option("--reference", metavar="P1,P2", help="Policy at the start and of the KL term; equal.", show_default=False),
    ] = None,
    group_size: Annotated[int, typer.Option("--group-size", metavar="G", help="Rollouts of a group.")] = 8,
    prompts_per_step: Annotated[int, typer.Option("--prompts-per-step", metavar="B", help="Groups of an update.")] = 16,
    learning_rate: Annotated[float, typer.Option("--learning-rate", metavar="E", help="Per update.")] = 0.1,
    momentum: Annotated[float, typer.Option("--momentum", metavar="M", help="Of SGD; beta1 of Adam.")] = 0.0,
    optimizer: Annotated[str, typer.Option("--optimizer", metavar="NAME", help="sgd or adam.")] = "sgd",
    refresh_interval: Annotated[int, typer.Option("--refresh-interval", metavar="R", help="Updates of one block, or of a fixed lag.")] = 1,
    lag_kind: Annotated[
        str | None,
        typer.Option("--lag-kind", metavar="KIND", help="none, fixed, refresh or async; refresh where R > 1.", show_default=False),
    ] = None,
    importance_ratio: Annotated[str, typer.Option("--importance-ratio", metavar="KIND", help="none, exact or clipped.")] = "none",
    clip: Annotated[float, typer.Option("--clip", metavar="EPS", help="Of the clipped ratio.")] = 0.2,
    kl_weight: Annotated[float, typer.Option("--kl-weight", metavar="BETA", help="Of the KL term.")] = 0.0,
    kl_in: Annotated[str, typer.Option("--kl-in", metavar="PLACE", help="loss (current) or reward (as stale as that).")] = "loss",
    advantage: Annotated[
        str,
        typer.Option("--advantage", metavar="NAME", help="vanilla, full_group_mean, leave_one_out, std_normalised or batch_std."),
    ] = "leave_one_out",
    steps: Annotated[int, typer.Option("--steps", metavar="N", help="Updates.")] = 500,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Of the random numbers.")] = 0,
    expected: Annotated[bool, typer.Option("--expected", help="Step the exact expectation: no sampling noise.")] = False,
    rollouts: Annotated[int, typer.Option("--rollouts", metavar="N", help="Keep the rollouts of the first N steps.")] = 0,
    as_json: given.Json = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a record that is there already.")] = False,
) -> None:
    """Simulate a training run whose truth is known, and write it as a record."""
    from groupwise.cli import simulate as command

    settings = {
        "learning_rate": learning_rate, "group_size": group_size, "prompts": prompts_per_step, "momentum": momentum, "optimizer": optimizer,
        "ratio": importance_ratio, "clip": clip, "kl_place": kl_in, "advantage": advantage,
    }  # fmt: skip
    wish = command.Wish(arms, rewards, reference, kl_weight, lag_kind, refresh_interval, settings)
    command.run(world, wish, steps=steps, seed=seed, expected=expected, rollouts=rollouts, output=output, force=force, as_json=as_json)


@commands.command
def stability(
    run: given.PerhapsRun = None,
    *,
    learning_rate: given.LearningRate = None,
    momentum: given.Momentum = None,
    stiffness: given.Stiffness = None,
    refresh_interval: given.RefreshInterval = None,
    lag_kind: given.LagKind = None,
    lag_shares: given.LagShares = None,
    trainer: given.Trainer = None,
    optimizer: given.Optimizer = None,
    second_moment: given.SecondMoment = None,
    importance_ratio: given.ImportanceRatio = None,
    kl_in: given.KlIn = None,
    stale_share: given.StaleShare = None,
    horizon: given.Horizon = None,
    update_norm: given.UpdateNorm = None,
    batch_radius: given.BatchRadius = None,
    critical_radius: given.CriticalRadius = None,
    output: given.MapOutput = None,
    metric: given.Metric = "reward",
    law: given.ForceLaw = None,
    until: given.Until = None,
    level: given.FitLevel = 0.95,
    settings: given.Set = None,
    config: given.Config = None,
    column: given.Column = None,
    as_json: given.Json = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a map that is there already.")] = False,
) -> None:
    """How far a setting, or a run, is from instability, and what learning rate and interval would be safe."""
    from groupwise.cli import stability as command
    from groupwise.cli.stability_options import Rival, Typed

    typed = Typed(
        learning_rate,
        momentum,
        stiffness,
        refresh_interval,
        lag_kind,
        optimizer,
        second_moment,
        importance_ratio,
        kl_in,
        trainer,
        stale_share,
        lag_shares,
    )
    rival = Rival(horizon, update_norm, batch_radius, critical_radius)
    others = command.Given(tuple(settings or ()), tuple(column or ()), config)
    reading = command.Reading(metric, law, until, level)
    command.run(run, typed, rival, others, reading, output=output, force=force, as_json=as_json)


commands.of("groupwise.cli.evaluate:evaluate", "Score models on benchmarks, compare two, or show what a run's training transferred to.")
commands.of("groupwise.cli.train:train", "Train a small policy by GRPO on a task whose truth is known, and write the run as a record.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
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
    return f"{error.format_message().rstrip('.')}. See {path} --help.".replace("?. See", "? See")


def _say(message: str, code: int) -> int:
    """Print one line to standard error and return the code."""
    from groupwise.wording import clean

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
