"""The command line: its commands by name, loaded when asked for, and what they share: options,
runs opened, progress shown. Every error becomes a line and an exit code.
"""

from __future__ import annotations

import errno
import gc
import importlib
import inspect
import itertools
import math
import os
import re
import shlex
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from groupwise import __version__
from groupwise.errors import GroupwiseError, GroupwiseWarning, InvalidArgumentError
from groupwise.files import table_column, table_rows
from groupwise.parsing import JsonObject
from groupwise.plain import FORMER_STATES, frozen, to_json

if TYPE_CHECKING:
    from rich.console import Console

    from groupwise.diagnostics.judgement import Judgement, State
    from groupwise.engine.engine import Engine
    from groupwise.forecasting.forecast import Calibration
    from groupwise.record.run import RunRecord


_MOST_STEPS = 200
_WIDTH = 160
# What a command that judges ends with; 2 is the edge's, for what cannot be used.
OK, FOUND, CANNOT_TELL = 0, 1, 3
Show = Callable[
    [str, int, int], None
]  # what is being done, how much of it is done, and of how much
Check = Callable[
    ..., Any
]  # of an option's value, which typer hands over with the option's names; None is not given


def _number_check(wanted: str, holds: Callable[[float], bool]) -> Check:
    """Refuse a number of which something does not hold."""

    def check(param: typer.CallbackParam, value: float | None) -> float | None:
        if value is not None and not holds(value):
            came = f"{value:g}" if isinstance(value, float) else value
            raise InvalidArgumentError(f"{param.opts[0]} expects {wanted}; got {came}")
        return value

    return check


finite = _number_check("a step", math.isfinite)
positive = _number_check("a positive number", lambda value: 0 < value < math.inf)
proportion = _number_check(
    "a number between 0 and 1, both excluded (for 90 % write 0.9)", lambda value: 0 < value < 1
)


def whole(least: int, most: float = math.inf) -> Check:
    """Refuse a whole number outside a range."""
    wanted = f"of at least {least}" if most == math.inf else f"from {least} to {most:,}"
    return _number_check(f"a whole number {wanted}", lambda value: least <= value <= most)


def one_of(*words: str) -> Check:
    """Refuse a word that is none of a few; a former state stands for its new name."""

    def check(param: typer.CallbackParam, value: str | None) -> str | None:
        value = FORMER_STATES.get(value or "", value)
        if value is not None and value not in words:
            raise InvalidArgumentError(
                f"{param.opts[0]} expects {', '.join(words[:-1])} or {words[-1]}; got "
                f"{value[:60]!r}"
            )
        return value

    return check


@frozen
class Opening:
    """How runs are to be opened."""

    columns: Mapping[str, str]  # canonical quantity, or "step" -> the log's own column
    settings: Mapping[str, str]  # setting -> value, as the user typed it
    config: Path | None  # a file with settings

    def with_settings(self, **given: float | None) -> Opening:
        """Add settings that have options of their own, where these are given."""
        settings = {name: str(value) for name, value in given.items() if value is not None}
        return replace(self, settings={**self.settings, **settings})

    @property
    def asked(self) -> JsonObject:
        """What was given, as the readers take it."""
        given = {"columns": self.columns, "settings": self.settings, "config": self.config}
        return {name: value for name, value in given.items() if value}

    @property
    def words(self) -> list[str]:
        """The options of a command that opens runs so."""
        given = ("column", self.columns), ("set", self.settings)
        words = [f"--{name}={'='.join(pair)}" for name, pairs in given for pair in pairs.items()]
        return [*words, f"--config={self.config}"] if self.config else words

    def open(self, path: Path) -> RunRecord:
        """Open one run; "-" is what standard input hands over."""
        from groupwise.readers import run_record

        if str(path) != "-" or sys.stdin is None:
            return run_record(path, **self.asked)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "stdin")
            with path.open("wb") as file:
                shutil.copyfileobj(sys.stdin.buffer, file)
            return run_record(path, **self.asked)

    def __bool__(self) -> bool:
        """Whether anything was given."""
        return bool(self.asked)


_OPENS = {"settings": list[str] | None, "config": Path | None, "column": list[str] | None}


def _check(text: str) -> Check | None:
    """Return the check that a table spells: its name, and what it is given."""
    name, *given = text.split(" ")
    if name == "whole":
        return whole(*map(int, given))
    if name == "one_of":
        return one_of(*given)
    return {"": None, "finite": finite, "positive": positive, "proportion": proportion}[name]


@cache
def _options(module: str) -> dict[tuple[str, str], dict[str, str]]:
    """Return what is said of the parameters of each command, or of every command "*": in the
    table of this package, and in the one beside the module of a command.
    """
    beside = Path(str(sys.modules[module].__file__)).with_name("options.tsv")
    rows = itertools.chain(table_rows("cli/options.tsv"), table_rows(beside))
    return {(row["command"], row["parameter"]): row for row in rows}


def _described(
    command: Callable[..., Any], parameter: inspect.Parameter, hint: Any
) -> inspect.Parameter:
    """Return a parameter with what the tables say of it, unless it says that itself."""
    if get_origin(hint) is not Annotated:
        rows, name = _options(command.__module__), parameter.name
        row = rows.get((command.__name__, name)) or rows["*", name]
        said: JsonObject = {"metavar": row["metavar"] or None, "help": row["about"]}
        if parameter.kind is parameter.KEYWORD_ONLY:
            said |= {"callback": _check(row["check"])}
            about = typer.Option(*row["names"].split(), **said)
        else:
            about = typer.Argument(show_default=False, **said)
        hint = Annotated[hint, about]
    return parameter.replace(annotation=hint)


def _with_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command with its options, whose `opening` is made of --set, --config and
    --column.
    """

    @wraps(command)
    def called(**given: Any) -> Any:
        if "opening" in hints:
            settings, config, column = map(given.pop, _OPENS)
            columns = pairs("--column", "NAME=COLUMN", column or ())
            settings = pairs("--set", "KEY=VALUE", settings or ())
            given["opening"] = Opening(columns, settings, config)
        return command(**given)

    hints, made = get_type_hints(command, include_extras=True), []
    for name, parameter in inspect.signature(command).parameters.items():
        of = _OPENS if name == "opening" else {name: hints[name]}
        for own, hint in of.items():
            default = None if name == "opening" else parameter.default
            made.append(_described(command, parameter.replace(name=own, default=default), hint))
    called.__signature__ = inspect.Signature(made, return_annotation=hints["return"])  # type: ignore[attr-defined]
    called.__annotations__ = {each.name: each.annotation for each in made}
    return called


def judgement_of(record: RunRecord, until: float | None = None) -> Judgement:
    """Judge a run as it stood at a step, or as it is."""
    from groupwise.diagnostics.judge import judge
    from groupwise.record.run import cut

    return judge(cut(record, until))


def stands(judged: Judgement) -> JsonObject:
    """Return how a run stands, for the JSON of commands that answer another question."""
    return {"state": judged.state, "headline": judged.headline}


def exit_code(states: Iterable[State], *, fail_on: str) -> int:
    """Return the exit code of judged runs.

    1 where one is at `fail_on` or worse, else 3 where one cannot be told, else 0.
    """
    values = {*states}
    if values & {"failing", "failed", fail_on}:
        return FOUND
    return CANNOT_TELL if "cannot_tell" in values else OK


def engine_of(name: str | None, workers: int | None) -> Engine:
    """Return the engine that was asked for: processes of this machine where none was."""
    from groupwise.engine.engine import Engine

    return Engine(name or "local", workers)


def pairs(name: str, form: str, texts: Sequence[str]) -> dict[str, str]:
    """Split the NAME=VALUE texts of one option."""
    values: dict[str, str] = {}
    for text in texts:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not (key and equals and value):
            raise InvalidArgumentError(
                f"{name} expects {form}; got {text!r}: write the name, an equals sign and the "
                "value without spaces"
            )
        if values.setdefault(key, value) != value:
            raise InvalidArgumentError(
                f"{name} gives {key} twice, as {values[key]!r} and {value!r}: give it once"
            )
    return values


def numbers(name: str, text: str, example: str) -> list[float]:
    """Split the numbers of one option."""
    values = []
    for part in text.split(","):
        with suppress(ValueError):
            values.append(float(part))
            if math.isfinite(values[-1]):
                continue
        raise InvalidArgumentError(
            f"{name} expects finite numbers separated by commas, for example {example}; got "
            f"{part.strip()[:60]!r} in {text[:60]!r}"
        )
    return values


def steps_of(text: str | None) -> list[float] | None:
    """Split the steps of --at."""
    steps = None if text is None else numbers("--at", text, "500,1000")
    if steps and len(steps) > _MOST_STEPS:
        raise InvalidArgumentError(f"--at expects at most {_MOST_STEPS} steps; got {len(steps)}")
    return steps


def logs_of(record: RunRecord) -> list[Path]:
    """Return the files that a run was read from."""
    return [Path(source.path) for source in record.sources]


def typed_arguments() -> list[str]:
    """Return the arguments as a shell would take them, paths from elsewhere without their
    folders.
    """
    from groupwise.wording import shown_argument

    words = [re.sub(r"https?://.*", "URL", word) for word in sys.argv[1:]]
    return [shlex.quote(shown_argument(word)) for word in words]


def out_console() -> Console:
    """Return a console on standard output; a file or a pipe has no width, so tables keep theirs."""
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=_WIDTH)


def print_lines(*lines: str) -> None:
    """Print sentences on standard output, each on a line of its own."""
    for line in lines:
        out_console().print(line, highlight=False, markup=False, soft_wrap=True)


def print_json(value: object) -> None:
    """Print strict JSON on standard output."""
    print(to_json(value, indent=1))


@contextmanager
def progress(*, quiet: bool) -> Iterator[Show]:
    """Show on standard error what is being done and how much of it, where a person looks."""
    if quiet or not sys.stderr.isatty():
        yield lambda _doing, _done, _total: None
        return
    from rich import progress as rich
    from rich.console import Console
    from rich.markup import escape

    from groupwise.wording import clean

    with rich.Progress(
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
        rich.TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bar:
        task = bar.add_task("", total=None)

        def show(doing: str, done: int, total: int) -> None:
            bar.update(
                task, description=escape(clean(doing, longest=80)), completed=done, total=total
            )

        yield show


def calibration_of(path: Path | None) -> Calibration | None:
    """The table in a file, None for the one that is shipped."""
    from groupwise.files import first_bytes
    from groupwise.forecasting.forecast import read_calibration
    from groupwise.parsing import LARGEST_SETTINGS

    if path is None:
        return None
    try:
        content, reason = first_bytes(path, LARGEST_SETTINGS), f"{path} is no file"
    except OSError as error:
        content, reason = None, str(error.strerror)
    if content is None:
        raise InvalidArgumentError(
            f"--calibration expects a table; {path.name} cannot be read: {reason}"
        )
    return read_calibration(content.decode("utf-8", errors="replace"))


@contextmanager
def advancing(*, quiet: bool, total: int) -> Iterator[Callable[[str], None]]:
    """Show on standard error each of a known number of steps as it begins."""
    begun = itertools.count()
    with progress(quiet=quiet) as show:
        yield lambda doing: show(doing, next(begun), total)


DONE, REFUSED, INTERRUPTED, DEFECT = 0, 2, 130, 70
_DEBUG = "GROUPWISE_DEBUG"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

# The matrices here are small: BLAS threads only wait for each other. Must be said before NumPy is
# first imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
gc.set_threshold(100_000)  # what is made of a log has no cycles, and is large


@cache
def _loaded(module: str, name: str, about: str) -> Any:

    alone = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
    alone.command(name=name, help=about)(
        _with_options(getattr(importlib.import_module(module), name))
    )
    command: Any = typer.main.get_command(alone)
    for parameter in command.params:
        if parameter.param_type_name == "argument":  # "<list[Path]>" says nothing
            parameter.display_type_rich = lambda ctx: None  # noqa: ARG005
    return command


@dataclass(frozen=True)
class Program:
    """A program by its commands."""

    name: str
    about: str
    home: str  # the package whose modules hold the commands, a file each
    commands: Mapping[
        str, str
    ]  # each with the first sentence of its help, so that the list of commands loads none of them
    beside: Mapping[str, str]  # commands in the module of another
    elsewhere: Mapping[str, str]  # commands of another program -> its name

    def command(self, name: str) -> Any:
        """Load one command, with its options."""
        return _loaded(f"{self.home}.{self.beside.get(name, name)}", name, self.commands[name])

    def group(self) -> typer.Typer:
        """The commands as typer takes them."""
        program = self

        class CommandList(TyperGroup):
            """Lists the commands by their first sentences and loads the one that is asked for."""

            def __init__(self, **given: Any) -> None:
                super().__init__(**given)
                self.commands = {
                    name: TyperCommand(name, help=about) for name, about in program.commands.items()
                }

            def resolve_command(
                self, ctx: Any, args: list[str]
            ) -> tuple[str | None, Any, list[str]]:
                """Return the command that the first argument names, and the rest."""
                name, listed, rest = super().resolve_command(ctx, args)
                return name, None if name is None or listed is None else program.command(name), rest

        app = typer.Typer(
            name=self.name,
            cls=CommandList,
            help=self.about,
            rich_markup_mode=None,
            pretty_exceptions_enable=False,
            context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        )

        @app.callback(help=self.about)
        def options(
            *,
            version: Annotated[
                bool,
                typer.Option(
                    "--version",
                    callback=_print_version,
                    is_eager=True,
                    help="Print the version and exit.",
                ),
            ] = False,
        ) -> None:
            """Take the options of the program itself."""

        return app

    def run(self, arguments: Sequence[str]) -> int:
        """Run a command and return its exit code."""
        if sys.stderr is None:  # closed: the next file that is opened would be it
            sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
        if sys.stdout is None:
            return self._say(
                "expected an open standard output for the answer, got a closed one: send it to a "
                "file or to /dev/null",
                REFUSED,
            )
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="replace")
        try:
            with _own_warnings(self.name):
                if arguments and arguments[0] in self.elsewhere:
                    other = self.elsewhere[arguments[0]]
                    raise GroupwiseError(
                        f"{arguments[0]} is a command of {other}: pip install {other}, then "
                        f"{other} {arguments[0]}"
                    )
                code = self.group()(
                    args=list(arguments) or ["--help"], prog_name=self.name, standalone_mode=False
                )
                sys.stdout.flush()
            return code if isinstance(code, int) else DONE
        except BrokenPipeError:
            _discard_output()
            return DONE
        except (KeyboardInterrupt, typer.Abort):
            return self._say("interrupted", INTERRUPTED)
        except Exception as error:  # noqa: BLE001 - the one edge
            return self._explained(error)

    def _explained(self, error: Exception) -> int:
        """Print an error as one line and return its exit code."""
        if os.environ.get(_DEBUG) == "1":
            import traceback

            traceback.print_exception(error)
        code = REFUSED
        if isinstance(error, GroupwiseError):
            line = str(error)
        elif callable(getattr(error, "format_message", None)):
            line = self._usage(error)
        elif isinstance(error, OSError) and error.filename is not None:
            line = f"{error.filename}: {error.strerror or error}"
        elif isinstance(error, OSError) and error.errno in _NO_ROOM:
            _discard_output()  # what is left of it fails again where Python ends
            line = f"expected to write the answer, got {error.strerror}: write elsewhere"
        elif isinstance(error, MemoryError):
            line = "there is not enough memory for this input: give a part of it, or --until STEP"
        else:
            code = DEFECT
            line = (
                f"this is a defect of groupwise {__version__} ({type(error).__name__}: {error}): "
                f"run again with {_DEBUG}=1 and report the traceback with the command"
            )
        return self._say(line, code)

    def _say(self, message: str, code: int) -> int:
        """Print one line to standard error and return the code."""
        from groupwise.wording import clean

        with suppress(OSError):
            typer.echo(f"{self.name}: {clean(message, longest=2000)}", err=True)
        return code

    def _usage(self, error: Any) -> str:
        """Return typer's message for a wrong argument, with where to read on."""
        context = getattr(error, "ctx", None)
        path = context.command_path if context else self.name
        said = error.format_message().rstrip(".")
        # Of a leaf's own arguments only too many are no error of a kind of its own.
        of_one = context and any(p.name == "run" for p in context.command.params)
        if of_one and type(error).__name__ == "UsageError":
            said += f": {path} takes one run; give several to groupwise compare A B, or fleet"
        return f"{said}. See {path} --help.".replace("?. See", "? See")


def _discard_output() -> None:
    """Let what is still to be written to standard output go nowhere."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# typer passes it so
def _print_version(context: typer.Context, wanted: bool) -> None:  # noqa: FBT001
    """Print the version and stop."""
    if wanted:
        typer.echo(f"{context.info_name} {__version__}")
        raise typer.Exit(DONE)


@contextmanager
def _own_warnings(name: str) -> Iterator[None]:
    """Print our own warnings as one line; other libraries' are no business of the user's."""
    with warnings.catch_warnings():
        shown = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, GroupwiseWarning):
                typer.echo(f"{name}: warning: {message}", err=True)
            elif os.environ.get(_DEBUG) == "1":
                shown(message, category, *place, **more)

        warnings.showwarning = show
        yield


LABORATORY = "groupwise-lab"
PROGRAM = Program(
    name="groupwise",
    about="Reads the log of a GRPO run and says whether it failed, since when, why, and what to "
    "change.",
    home="groupwise.cli",
    commands=table_column("cli/commands.tsv", "command", "about"),
    beside={"forecast": "fit"},
    elsewhere=dict.fromkeys(
        ("backtest", "calibrate", "evaluate", "simulate", "sweep", "train"), LABORATORY
    ),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    return PROGRAM.run(sys.argv[1:] if arguments is None else arguments)
