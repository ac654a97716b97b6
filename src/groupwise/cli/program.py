"""A program of commands, loaded when asked for; every error becomes a line and an exit code."""

from __future__ import annotations

import errno
import gc
import importlib
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from groupwise import __version__
from groupwise.errors import GroupwiseError, GroupwiseWarning

DONE, REFUSED, INTERRUPTED, DEFECT = 0, 2, 130, 70
_DEBUG = "GROUPWISE_DEBUG"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

# The matrices here are small: BLAS threads only wait for each other. Must be said before NumPy is
# first imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
gc.set_threshold(100_000)  # what is made of a log has no cycles, and is large


@cache
def _loaded(module: str, name: str, about: str) -> Any:
    from groupwise.cli.shared import opened

    alone = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
    alone.command(name=name, help=about)(opened(getattr(importlib.import_module(module), name)))
    return typer.main.get_command(alone)


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

        class Group(TyperGroup):
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

        context = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
        plain: dict[str, Any] = {
            "rich_markup_mode": None,
            "pretty_exceptions_enable": False,
            "context_settings": context,
        }
        app = typer.Typer(name=self.name, cls=Group, help=self.about, **plain)

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
        if isinstance(error, GroupwiseError):
            return self._say(str(error), REFUSED)
        if callable(getattr(error, "format_message", None)):
            return self._say(self._usage(error), REFUSED)
        if isinstance(error, OSError) and error.filename is not None:
            return self._say(f"{error.filename}: {error.strerror or error}", REFUSED)
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            _discard_output()  # what is left of it fails again where Python ends
            return self._say(f"expected to write the answer, got {error.strerror}", REFUSED)
        if isinstance(error, MemoryError):
            return self._say(
                "not enough memory for this input; try a part of it, or --until STEP", REFUSED
            )
        where = f"{type(error).__name__}: {error}"
        return self._say(
            f"this is a defect of groupwise {__version__} ({where}); run again with {_DEBUG}=1 and "
            "report the traceback with the command",
            DEFECT,
        )

    def _say(self, message: str, code: int) -> int:
        """Print one line to standard error and return the code."""
        from groupwise.wording import clean

        with suppress(OSError):
            typer.echo(f"{self.name}: {clean(message, longest=2000)}", err=True)
        return code

    def _usage(self, error: Any) -> str:
        """Return typer's message for a wrong argument, with where to read on."""
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else self.name
        return f"{error.format_message().rstrip('.')}. See {path} --help.".replace(
            "?. See", "? See"
        )


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

        def show(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: Any = None,
            line: str | None = None,
        ) -> None:
            if issubclass(category, GroupwiseWarning):
                typer.echo(f"{name}: warning: {message}", err=True)
            elif os.environ.get(_DEBUG) == "1":
                shown(message, category, filename, lineno, file, line)

        warnings.showwarning = show
        yield
