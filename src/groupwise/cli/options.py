"""What the commands share: options turned into values, runs opened, output written.

Every refusal is one line that says what was expected and what came. No command is here.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from groupwise.errors import GroupwiseError, InvalidArgumentError, OverwriteError

if TYPE_CHECKING:
    from rich.console import Console

    from groupwise.record.run import RunRecord

_MOST_STEPS = 200
_WIDTH = 160


@dataclass(frozen=True, slots=True)
class Opening:
    """How runs are to be opened."""

    columns: Mapping[str, str]  # canonical quantity, or "step" -> the log's own column
    settings: Mapping[str, str]  # setting -> value, as the user typed it
    config: Path | None  # a file with settings, or None

    @classmethod
    def parse(cls, *, column: Sequence[str] | None, settings: Sequence[str] | None, config: Path | None) -> Opening:
        """Split NAME=VALUE texts."""
        return cls(_pairs("--column", "NAME=COLUMN", column or ()), _pairs("--set", "KEY=VALUE", settings or ()), config)

    def open(self, path: Path) -> RunRecord:
        """Open one run."""
        from groupwise.readers import open_run

        return open_run(path, columns=self.columns or None, settings=self.settings or None, config=self.config)


def _pairs(option: str, form: str, texts: Sequence[str]) -> dict[str, str]:
    """Split NAME=VALUE texts of one option."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name, value = name.strip(), value.strip()
        if not (name and equals and value):
            raise InvalidArgumentError(
                f"{option} expects {form}; got {text!r}: write the name, an equals sign and the value without spaces"
            )
        if pairs.setdefault(name, value) != value:
            raise InvalidArgumentError(f"{option} gives {name} twice, as {pairs[name]!r} and {value!r}: give it once")
    return pairs


def steps_of(text: str | None) -> list[float] | None:
    """Split the steps of --at."""
    if text is None:
        return None
    steps = []
    for part in text.split(","):
        with suppress(ValueError):
            steps.append(float(part))
            if math.isfinite(steps[-1]):
                continue
        raise InvalidArgumentError(f"--at expects steps with commas between them, as 500,1000; got {part.strip()!r} in {text!r}")
    if len(steps) > _MOST_STEPS:
        raise InvalidArgumentError(f"--at expects at most {_MOST_STEPS} steps; got {len(steps)}")
    return steps


def checked_share(option: str, value: float, *, example: str = "for 90 % write 0.9") -> float:
    """Return a number strictly between 0 and 1."""
    if not 0 < value < 1:
        raise InvalidArgumentError(f"{option} expects a number between 0 and 1, both excluded; got {value:g}: {example}")
    return value


def checked_until(until: float | None) -> float | None:
    """Return the last step to use."""
    if until is not None and not math.isfinite(until):
        raise InvalidArgumentError(f"--until expects a step; got {until}")
    return until


def free_target(output: Path, inputs: Sequence[Path], *, force: bool) -> Path:
    """Check that a file may be written, before any work is done."""
    if output.is_dir():
        raise OverwriteError(f"expected a file to write, got the folder {output}: name a file in it")
    if any(path.exists() and output.exists() and output.samefile(path) for path in inputs):
        raise OverwriteError(f"{output} is one of the logs and is never written to: choose another file with -o")
    if output.exists() and not force:
        raise OverwriteError(f"{output} exists already: choose another file with -o, or replace it with --force")
    folder = output.absolute().parent
    if not folder.is_dir():
        raise GroupwiseError(f"the folder {folder} does not exist: make it, or choose another file with -o")
    if not os.access(folder, os.W_OK):
        raise GroupwiseError(f"the folder {folder} cannot be written to: choose another file with -o")
    return output


def write_whole(output: Path, content: str, *, force: bool) -> None:
    """Write a file so that it appears whole or not at all, and never over another one unless told to."""
    partial = ""
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=output.absolute().parent, prefix=f".{output.name}.", delete=False
        ) as file:
            partial = file.name
            file.write(content)
        Path(partial).chmod(0o666 & ~_umask())
        if force:
            Path(partial).replace(output)
        else:
            _link(partial, output)
    except FileExistsError:
        raise OverwriteError(f"{output} exists already: choose another file with -o, or replace it with --force") from None
    except OSError as error:
        raise GroupwiseError(f"expected to write {output}, got {error.strerror or error}: choose another file with -o") from None
    finally:
        if partial:
            Path(partial).unlink(missing_ok=True)


def _link(partial: str, output: Path) -> None:
    """Give the file its name, which fails where the name is taken; some file systems know no links."""
    try:
        os.link(partial, output)
    except FileExistsError:
        raise
    except OSError:
        if output.exists():
            raise FileExistsError from None
        Path(partial).replace(output)


def _umask() -> int:
    """Return the process's mask of permissions."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def typed_arguments(paths: Sequence[Path]) -> list[str]:
    """Return the arguments of this process as a shell would take them, paths without the folders that they lie in."""
    import shlex

    from groupwise.wording import shown_argument

    typed = {str(path) for path in paths}
    return [shlex.quote(shown_argument(argument, typed)) for argument in sys.argv[1:]]


def out_console() -> Console:
    """Return a console on standard output; a file or a pipe has no width, so tables keep theirs."""
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=_WIDTH)


def print_json(value: object) -> None:
    """Print strict JSON on standard output."""
    from groupwise.plain import to_json

    print(to_json(value, indent=1))


@contextmanager
def progress(*, quiet: bool, total: int) -> Iterator[Callable[[str], None]]:
    """Show what is being done on standard error, where a person looks."""
    if quiet or not sys.stderr.isatty():
        yield lambda _doing: None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TextColumn

    from groupwise.wording import clean

    bar = Progress(TextColumn("{task.description}"), BarColumn(), console=Console(stderr=True), transient=True)
    with bar:
        task = bar.add_task("", total=total)

        def step(doing: str) -> None:
            bar.update(task, advance=1, description=escape(clean(doing, longest=60)))

        yield step


@contextmanager
def counting(*, quiet: bool, doing: str) -> Iterator[Callable[[int, int], None]]:
    """Show on standard error how much of some work is done."""
    if quiet or not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(doing, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
