"""What the commands share: options, runs opened, files written whole, progress shown."""

from __future__ import annotations

import inspect
import itertools
import math
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from groupwise.errors import InvalidArgumentError
from groupwise.parsing import JsonObject
from groupwise.plain import FORMER_STATES, frozen, to_json

if TYPE_CHECKING:
    from rich.console import Console

    from groupwise.diagnostics.judgement import Judgement, State
    from groupwise.engine.engine import Engine
    from groupwise.forecasting.calibration import Calibration
    from groupwise.record.run import RunRecord

_MOST_STEPS = 200
_WIDTH = 160
_EXAMPLES = {"--from": "for the first 40 % write 0.4", "--late": "for the last quarter write 0.25"}
ENGINES = ("local", "ray", "slurm")
OK, FOUND, CANNOT_TELL = (
    0,
    1,
    3,
)  # what a command that judges ends with; 2 is the edge's, for what cannot be used
Show = Callable[
    [str, int, int], None
]  # what is being done, how much of it is done, and of how much
Check = Callable[
    ..., Any
]  # of an option's value, which typer hands over with the option's names; None is not given


def option(metavar: str, text: str, *names: str, check: Check | None = None) -> Any:
    """An option that takes a value; its name is the parameter's where none is given."""
    return typer.Option(*names, metavar=metavar, help=text, callback=check)


def flag(name: str, text: str) -> Any:
    """An option without a value."""
    return typer.Option(name, help=text)


def argument(metavar: str, text: str) -> Any:
    """An argument."""
    return typer.Argument(metavar=metavar, help=text, show_default=False)


def share(param: typer.CallbackParam, value: float | None) -> float | None:
    """Refuse a number that is not strictly between 0 and 1."""
    if value is not None and not 0 < value < 1:
        example = _EXAMPLES.get(param.opts[0], "for 90 % write 0.9")
        raise InvalidArgumentError(
            f"{param.opts[0]} expects a number between 0 and 1, both excluded; got {value:g}: "
            f"{example}"
        )
    return value


def number(wanted: str, holds: Callable[[float], bool]) -> Check:
    """Refuse a number of which something does not hold."""

    def check(param: typer.CallbackParam, value: float | None) -> float | None:
        if value is not None and not holds(value):
            came = f"{value:g}" if isinstance(value, float) else value
            raise InvalidArgumentError(f"{param.opts[0]} expects {wanted}; got {came}")
        return value

    return check


finite = number("a step", math.isfinite)
positive = number("a positive number", lambda value: 0 < value < math.inf)


def whole(least: int, most: float = math.inf) -> Check:
    """Refuse a whole number outside a range."""
    wanted = f"of at least {least}" if most == math.inf else f"from {least} to {most:,}"
    return number(f"a whole number {wanted}", lambda value: least <= value <= most)


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


Run = Annotated[Path, argument("RUN", "A log file, a run folder or a saved record.")]
Runs = Annotated[list[Path], argument("RUN...", "Log files, run folders or saved records.")]
Metric = Annotated[
    str, option("NAME", "The log's own key or a canonical quantity.", "--metric", "-m")
]
Settings = Annotated[
    list[str] | None,
    option(
        "KEY=VALUE", "A setting that the log does not hold, as group_size=8. Repeatable.", "--set"
    ),
]
Config = Annotated[Path | None, option("FILE", "A file with settings: JSON, YAML or a README.")]
Column = Annotated[
    list[str] | None,
    option(
        "NAME=COLUMN",
        "What a column of a table is, as reward=score; or a file by step, as "
        "eval/reward=FILE#COLUMN. Repeatable.",
    ),
]
Gpus = Annotated[
    int | None,
    option("N", "GPUs that the run takes: its cost is told in GPU-hours too.", check=whole(1)),
]
Price = Annotated[
    float | None,
    option("P", "The price of one GPU for an hour: the cost is told in money too.", check=positive),
]
Until = Annotated[float | None, option("STEP", "Use nothing after this step.", check=finite)]
At = Annotated[
    str | None, option("S1,S2", "The steps to forecast; by default a few beyond the last one.")
]
FailOn = Annotated[
    str,
    option(
        "STATE",
        "The mildest state that ends with 1: warning, or failing (failed as well).",
        check=one_of("warning", "failing"),
    ),
]
Why = Annotated[
    bool,
    typer.Option(
        "--why",
        "-v",
        help="Also every check with its numbers, what to log for those that miss, and how the log "
        "was read.",
    ),
]
Json = Annotated[bool, flag("--json", "Print JSON to standard output and nothing else.")]
FitLevel = Annotated[
    float, option("SHARE", "Coverage of the intervals, between 0 and 1.", check=share)
]
BandLevel = Annotated[
    float, option("SHARE", "Coverage of the bands, between 0 and 1.", check=share)
]
CalibrationTable = Annotated[
    Path | None,
    option(
        "FILE",
        "Stretch the bands by this table, as groupwise-lab calibrate writes it.",
        "--calibration",
    ),
]
EngineName = Annotated[
    str | None,
    option(
        "NAME",
        "Where the workers run: local (processes of this machine), ray or slurm.",
        "--engine",
        check=one_of(*ENGINES),
    ),
]
Workers = Annotated[
    int | None,
    option(
        "N",
        "Workers at once; by default as many as there is room for.",
        "--workers",
        check=whole(1, 4096),
    ),
]
WebhookAddress = Annotated[
    str | None,
    option(
        "URL",
        "Send each change of a run's state there: Slack, Discord, or JSON; by default to "
        "$GROUPWISE_WEBHOOK.",
        "--webhook",
    ),
]
Level = Annotated[
    float | None,
    option(
        "SHARE",
        "Coverage of the intervals; by default that of saved components, else 0.95.",
        check=share,
    ),
]


@frozen
class Opening:
    """How runs are to be opened."""

    columns: Mapping[str, str]  # canonical quantity, or "step" -> the log's own column
    settings: Mapping[str, str]  # setting -> value, as the user typed it
    config: Path | None  # a file with settings

    def told(self, **given: float | None) -> Opening:
        """Add settings that have options of their own, where these are given."""
        return replace(
            self,
            settings={
                **self.settings,
                **{name: str(value) for name, value in given.items() if value is not None},
            },
        )

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
        """Open one run."""
        from groupwise.readers import open_run

        return open_run(path, **self.asked)

    def open_all(self, path: Path, *, by: str = "") -> list[RunRecord]:
        """Open every run of a path, told apart by a column too."""
        from groupwise.readers import open_runs

        return open_runs(path, **self.asked, by=by)

    def __bool__(self) -> bool:
        """Whether anything was given."""
        return bool(self.asked)


def opened(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command whose `opening` is made of --set, --config and --column."""
    signature = inspect.signature(command)
    if "opening" not in signature.parameters:
        return command

    @wraps(command)
    def with_options(
        *, settings: list[str] | None, config: Path | None, column: list[str] | None, **given: Any
    ) -> Any:
        columns = pairs("--column", "NAME=COLUMN", column or ())
        return command(
            **given, opening=Opening(columns, pairs("--set", "KEY=VALUE", settings or ()), config)
        )

    hints, made = get_type_hints(command, include_extras=True), []
    for name, parameter in signature.parameters.items():
        options = (
            {"settings": Settings, "config": Config, "column": Column} if name == "opening" else {}
        )
        made += [
            inspect.Parameter(option, parameter.kind, default=None, annotation=hint)
            for option, hint in options.items()
        ]
        made += [] if options else [parameter.replace(annotation=hints[name])]
    with_options.__signature__ = inspect.Signature(made, return_annotation=hints["return"])  # type: ignore[attr-defined]
    with_options.__annotations__ = {
        parameter_made.name: parameter_made.annotation for parameter_made in made
    } | {"return": hints["return"]}
    return with_options


def judgement_of(record: RunRecord, until: float | None = None) -> Judgement:
    """Judge a run as it stood at a step, or as it is."""
    from groupwise.analysis.fitted import cut
    from groupwise.diagnostics.judge import judge

    return judge(cut(record, until))


def stands(judged: Judgement) -> JsonObject:
    """Return how a run stands, for the JSON of commands that answer another question."""
    return {"state": judged.state, "headline": judged.headline}


def exit_code(states: Iterable[State], *, fail_on: str) -> int:
    """Return the exit code of judged runs.

    1 where one is at `fail_on` or worse, else 3 where one cannot be told, else 0.
    """
    values = {state.value for state in states}
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
            f"{name} expects finite numbers with commas between them, as {example}; got "
            f"{part.strip()[:60]!r} in {text[:60]!r}"
        )
    return values


def steps_of(text: str | None) -> list[float] | None:
    """Split the steps of --at."""
    steps = None if text is None else numbers("--at", text, "500,1000")
    if steps is not None and len(steps) > _MOST_STEPS:
        raise InvalidArgumentError(f"--at expects at most {_MOST_STEPS} steps; got {len(steps)}")
    return steps


def logs_of(record: RunRecord) -> list[Path]:
    """Return the files that a run was read from."""
    return [Path(source.path) for source in record.sources]


def typed_arguments(paths: Sequence[Path]) -> list[str]:
    """Return the arguments as a shell would take them, paths without their folders."""
    from groupwise.wording import shown_argument

    typed = {str(path) for path in paths}
    words = [re.sub(r"https?://.*", "URL", word) for word in sys.argv[1:]]
    return [shlex.quote(shown_argument(word, typed)) for word in words]


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
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    from groupwise.wording import clean

    if quiet or not sys.stderr.isatty():
        yield lambda _doing, _done, _total: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)

        def show(doing: str, done: int, total: int) -> None:
            bar.update(
                task, description=escape(clean(doing, longest=80)), completed=done, total=total
            )

        yield show


def calibration_of(path: Path | None) -> Calibration | None:
    """The table in a file, None for the one that is shipped."""
    from groupwise.files import first_bytes
    from groupwise.forecasting.calibration import read_calibration
    from groupwise.limits import LARGEST_SETTINGS

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
