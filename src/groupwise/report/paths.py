"""Paths as a page for others shows them: from the run's own name on, without the folders that it lies in.

It opens nothing and reads nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path, PurePosixPath, PureWindowsPath

_OPTION = re.compile(r"(--?[A-Za-z][\w-]*=|[\w-]+=|-[A-Za-z](?=[/~]))?(.*)", re.DOTALL)


def shown_path(path: str, opened: Path | None) -> str:
    """Return a file's path relative to the folder that holds what was opened."""
    if opened is not None:
        file, root = Path(path).absolute(), Path(opened.absolute())
        if root.name in ("", ".."):
            file, root = file.resolve(), root.resolve()
        if file.is_relative_to(root):
            home = root == Path.home()  # its name is a person's
            return file.relative_to(root if home else root.parent).as_posix()
    return _own_name(path)


def shown_argument(argument: str, runs: Collection[str]) -> str:
    """Return an argument of the command with every path from elsewhere cut to its own name."""
    if argument in runs:
        return _own_name(argument)
    found = _OPTION.fullmatch(argument)
    assert found is not None  # the pattern takes any text
    option, value = found[1] or "", found[2]
    outside = PurePosixPath(value).is_absolute() or PureWindowsPath(value).is_absolute() or value.startswith(("~", "../")) or value in runs
    return option + (_own_name(value) if outside else value)


def _own_name(path: str) -> str:
    """Return the last part of a path; "." stays."""
    windows = PureWindowsPath(path)
    return (windows.name if windows.is_absolute() and windows.drive else Path(path).name) or path
