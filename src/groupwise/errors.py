"""Every error and warning of the package: one sentence each, for who typed the command."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import util
from typing import Protocol, TypeVar


class GroupwiseError(ValueError):
    """The input or the arguments cannot be used: the command ends with exit code 2.

    Example:
        >>> from groupwise import GroupwiseError, open_run
        >>> try:
        ...     open_run("missing.jsonl")
        ... except GroupwiseError as error:
        ...     print(error)
        expected a log file or a run folder, got missing.jsonl, which does not exist: check the path
    """


def check_installed(*modules: str, what: str = "language models") -> None:
    """Refuse to go on without libraries, named as pip knows them: that holds in a checkout too."""
    missing = [name for name in dict.fromkeys(modules) if util.find_spec(name) is None]
    if missing:
        raise GroupwiseError(
            f"expected {' and '.join(missing)} to be installed for {what}: pip install "
            f"{' '.join(missing)}"
        )


class UnreadableRunError(GroupwiseError):
    """No reader can make a run of this path."""


class SeveralRunsError(UnreadableRunError):
    """The path holds several runs and none was chosen."""

    def __init__(self, message: str, names: tuple[str, ...]) -> None:
        """Keep the names beside the message."""
        super().__init__(message)
        self.names = names


class NothingYetError(UnreadableRunError):
    """There is no run at this path yet; one that is about to be written may still come."""


class MissingMetricError(GroupwiseError):
    """The metric asked for is not in the log; the message lists those that are."""


class InvalidArgumentError(GroupwiseError):
    """An argument is outside its domain."""


class InsufficientDataError(GroupwiseError):
    """Too few usable observations for anything to be said."""


class OverwriteError(GroupwiseError):
    """The output exists already and `--force` was not given."""


class GroupwiseWarning(UserWarning):
    """The result stands, but something about the input deserves a look.

    Example:
        >>> import warnings
        >>> from groupwise import GroupwiseWarning
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("error", GroupwiseWarning)  # what deserves a look stops
    """


def first_line(error: Exception) -> str:
    """Return what an error says, in one line."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return (text.strip().splitlines() or [type(error).__name__])[0][:160]


@contextmanager
def one_sentence(
    expected: str,
    advice: str,
    *,
    raised: type[Exception] | tuple[type[Exception], ...] = OSError,
    kind: type[GroupwiseError] = GroupwiseError,
) -> Iterator[None]:
    """Turn what the block raises into one sentence: what was expected, what came, what to do."""
    try:
        yield
    except GroupwiseError:
        raise
    except raised as error:
        raise kind(f"expected {expected}, got {first_line(error)}: {advice}") from error


class _Named(Protocol):
    """An entry of a registry."""

    @property
    def name(self) -> str:
        """As people write it."""


E = TypeVar("E", bound=_Named)


def named(name: str, entries: Iterable[E], kind: str) -> E:
    """Return the entry of a name, or refuse a name that none of them has."""
    named = {entry.name: entry for entry in entries}
    if not isinstance(name, str) or name not in named:
        raise InvalidArgumentError(f"expected {kind} of {', '.join(named)}; got {name!r}")
    return named[name]
