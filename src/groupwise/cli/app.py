"""The command line: one group of commands, and the one edge where an error becomes a line and an exit code."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from groupwise import __version__
from groupwise.cli.here import offer
from groupwise.errors import GroupwiseError, GroupwiseWarning

DONE, REFUSED, INTERRUPTED, DEFECT = 0, 2, 130, 70
_DEBUG = "GROUPWISE_DEBUG"
_ABOUT = "What a GRPO run's log says: is it still learning, where will it end, is it stable."

# Each command with the first sentence of its help, so that the list of commands loads none of them.
COMMANDS = {
    "report": "Write one page on one or several runs, and how each stands here: exit codes as of diagnose, the worst of several.",
    "watch": "Follow runs that are being written, on a page that this machine serves to itself.",
    "fleet": "Judge every run below some folders, worst first: exit code 2 where none can be read, else as of diagnose, of the worst.",
    "diagnose": "How a run stands and why: exit code 0 ok, 1 watch or worse, 2 unusable, 3 cannot tell.",
    "fit": "Fit the laws to one metric: parameters with intervals, and what they mean.",
    "forecast": "Forecast one metric, with a band for its mean and one for the next rows.",
    "backtest": "Forecast each run from its beginning and score that on the rest, beside simple methods.",
    "calibrate": "Make a table of how runs went on after a forecast, which stretches the bands of forecasts to come.",
    "compare": "Did a run fail, and is the difference of the others real: level and speed, with step noise and seed noise apart.",
    "check": "Whether a record is sound, and a repaired copy of one that is not: exit code 0 sound, 1 damaged, 2 unusable.",
    "components": "Variance components of the gradient, from scores in a file or from a run and its model.",
    "plan": "Best group size and number of prompts for a budget, and what the size in use costs; without components, what rewards say.",
    "simulate": "Simulate a training run whose truth is known, and write it as a record.",
    "stability": "How far a setting, or a run, is from instability, and what learning rate and interval would be safe.",
    "sweep": "Train with every combination of some settings, and say which is best: exit code 1 where a training failed, 2 where all did.",
    "evaluate": "Score models on benchmarks, compare two, or show what a run's training transferred to.",
    "train": "Train a small policy on a task whose truth is known, or a language model on your prompts, by GRPO; the run is a record.",
}

_BESIDE = {"forecast": "fit", "calibrate": "backtest", "check": "diagnose"}  # commands in the module of another

# The matrices here are small: BLAS threads only wait for each other. Must be said before NumPy is first imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


@cache
def command(name: str) -> Any:
    """Load one command, with its options."""
    from groupwise.cli.shared import opened

    function = getattr(importlib.import_module(f"groupwise.cli.{_BESIDE.get(name, name)}"), name)
    alone = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
    alone.command(name=name)(opened(function))
    return typer.main.get_command(alone)


class _Group(TyperGroup):
    """Lists the commands by their first sentences and loads the one that is asked for."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = {name: TyperCommand(name, help=about) for name, about in COMMANDS.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the command that the first argument names, and the rest of the arguments."""
        name, listed, rest = super().resolve_command(ctx, args)
        return name, None if name is None or listed is None else command(name), rest


app = typer.Typer(
    name="groupwise",
    cls=_Group,
    help=_ABOUT,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer passes it so
    """Print the version and stop."""
    if wanted:
        typer.echo(f"groupwise {__version__}")
        raise typer.Exit(DONE)


@app.callback(help=_ABOUT)
def _options(
    *,
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")] = False,
) -> None:
    """Take the options of the program itself."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with _own_warnings():
            asked = given or offer()
            code = app(args=asked, prog_name="groupwise", standalone_mode=False) if asked else DONE
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
