"""Files written whole and never over another unasked, and files read without waiting."""

import errno
import os
import re
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from groupwise.errors import GroupwiseError, InvalidArgumentError, OverwriteError

_OTHER = "choose another file"
_REPLACE = "replace it with --force, in Python force=True"


def table_rows(table: str | Path) -> Iterator[dict[str, str]]:
    """Yield the lines of a table by its place in the package, cell by column."""
    columns, *lines = (Path(__file__).parent / table).read_text(encoding="utf-8").splitlines()
    yield from (dict(zip(columns.split("\t"), line.split("\t"), strict=True)) for line in lines)


@cache
def table_column(table: str, key: str, value: str) -> Mapping[str, str]:
    """Return the cells of one column of a table by those of another."""
    return {row[key]: row[value] for row in table_rows(table)}


def forms(names: str, table: str = "readers/lines.tsv") -> Iterator[re.Pattern[str]]:
    """Return the patterns of these names in a table of forms of text."""
    return map(re.compile, map(table_column(table, "name", "pattern").__getitem__, names.split()))


def beside(log: Path, name: str) -> Path:
    """Return where a file of ours on a log belongs: inside its folder, or beside its file."""
    return log / name if log.is_dir() else log.with_name(f"{log.name}.{name}")


def open_regular(path: Path) -> BinaryIO:
    """Open a file to read; a pipe or a device, where a reader may wait for ever, is an error."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "no regular file", str(path))
    return path.open("rb")


def first_bytes(path: Path, most: int) -> bytes | None:
    """Return the first bytes of a file, None of what is none.

    Nothing is read of a file without a size: those of the kernel have none, and some of them let a
    reader wait for ever.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        return None
    if not status.st_size:
        return b""
    with path.open("rb") as file:
        return file.read(most)


def path_text(path: Any, what: str) -> str:
    """Return a path as text; refuse what is none."""
    if isinstance(path, str | os.PathLike):
        return os.fspath(path)
    raise InvalidArgumentError(
        f"expected the path of a {what}, got {type(path).__name__}: give it as text"
    )


def free_target(
    output: Path, inputs: Sequence[Path], *, force: bool, endings: Sequence[str] = ()
) -> Path:
    """Check that a file may be written, before any work is done."""
    if endings and output.suffix.lower() not in endings:
        raise InvalidArgumentError(
            f"-o expects a name that ends in {' or '.join(endings)}; got {output.name!r}"
        )
    if output.is_dir():
        raise OverwriteError(
            f"expected a file to write, got the folder {output}: name a file in it"
        )
    _check_kind(output)
    if any(path.exists() and output.exists() and output.samefile(path) for path in inputs):
        raise OverwriteError(f"{output} is one of the logs, which are never overwritten: {_OTHER}")
    if output.exists() and not force:
        raise OverwriteError(f"{output} exists already: {_OTHER}, or {_REPLACE}")
    folder = output.absolute().parent
    if not folder.is_dir():
        raise GroupwiseError(f"the folder {folder} does not exist: make it, or {_OTHER}")
    if not os.access(folder, os.W_OK):
        raise GroupwiseError(f"the folder {folder} cannot be written to: {_OTHER}")
    return output


def _check_kind(output: Path) -> None:
    """Refuse a device, a pipe or a link, which a file would replace."""
    if os.path.lexists(output) and (output.is_symlink() or not output.is_file()):
        kind = (
            f"a link to {os.path.realpath(output)}"
            if output.is_symlink()
            else "a device, a pipe or a socket"
        )
        raise OverwriteError(
            f"expected a regular file or a new name, got {output}, which is {kind}: {_OTHER}"
        )


def write_whole(output: Path, content: str | bytes, *, force: bool) -> None:
    """Write a file that appears whole or not at all, and never over another unasked."""
    _check_kind(output)
    partial = ""
    try:
        with tempfile.NamedTemporaryFile(
            dir=output.absolute().parent, prefix=f".{output.name}.", delete=False
        ) as file:
            partial = file.name
            file.write(content.encode() if isinstance(content, str) else content)
        Path(partial).chmod(0o666 & ~_umask())
        if force or not _linked(partial, output):
            Path(partial).replace(output)
    except FileExistsError:
        raise OverwriteError(f"{output} exists already: {_OTHER}, or {_REPLACE}") from None
    except OSError as error:
        raise GroupwiseError(
            f"expected to write {output}, got {error.strerror or error}: {_OTHER}"
        ) from None
    finally:
        if partial:
            Path(partial).unlink(missing_ok=True)


def _linked(partial: str, output: Path) -> bool:
    """Give a file its name where that is free; return False where links are unknown."""
    try:
        os.link(partial, output)
    except FileExistsError:
        raise
    except OSError:
        if output.exists():
            raise FileExistsError from None
        return False
    return True


def _umask() -> int:
    """Return the process's mask of permissions."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
