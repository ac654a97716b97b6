"""The commands of the command line, each made when it is asked for: a list of them needs their names and first sentences alone.

Typer reads every option of every command before it runs one, which takes longer than all else that `groupwise --help` does. What a command
does stands in a module of its own; here is none of it.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

Function = TypeVar("Function", bound=Callable[..., Any])


class Commands(MutableMapping[str, Any]):
    """Name -> command, made at the first look at it."""

    def __init__(self) -> None:
        """Know no command yet."""
        self._sources: dict[str, tuple[Callable[..., Any] | str, str]] = {}
        self._made: dict[str, Any] = {}

    def command(self, function: Function) -> Function:
        """Take a function as the command of its name."""
        self._sources[function.__name__] = (function, inspect.getdoc(function) or "")
        return function

    def of(self, place: str, about: str) -> None:
        """Take a function of a module that is not loaded before it is needed; the command has its name."""
        self._sources[place.partition(":")[2]] = (place, about)

    def help_of(self, name: str) -> str:
        """Return what a command says of itself, without making it."""
        return self._sources[name][1]

    def __getitem__(self, name: str) -> Any:
        """Make a command, or return the one made before."""
        if name not in self._made:
            source, _ = self._sources[name]
            if isinstance(source, str):
                module, _, function = source.partition(":")
                source = getattr(importlib.import_module(module), function)
            alone = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
            alone.command(name=name)(source)
            self._made[name] = typer.main.get_command(alone)
        return self._made[name]

    def __setitem__(self, name: str, command: Any) -> None:
        """Take a command that is made already."""
        self._sources[name], self._made[name] = ("", command.get_short_help_str()), command

    def __delitem__(self, name: str) -> None:
        """Forget a command."""
        del self._sources[name]
        self._made.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        """Go through the names, in the order in which they came."""
        return iter(self._sources)

    def __len__(self) -> int:
        """Count the commands."""
        return len(self._sources)

    def group(self) -> type[TyperGroup]:
        """Return the class of a group that has these commands, for Typer's `cls`."""
        commands = self

        class Group(TyperGroup):
            """Lists commands without making them."""

            def __init__(self, **given: Any) -> None:
                super().__init__(**given)
                self.commands = commands

            def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - as Typer calls it
                """Return the names."""
                return list(commands)

            def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - as Typer calls it
                """Write the list."""
                limit = formatter.width - 6 - max(map(len, commands))
                rows = [(name, TyperCommand(name, help=commands.help_of(name)).get_short_help_str(limit)) for name in commands]
                with formatter.section("Commands"):
                    formatter.write_dl(rows)

        return Group
