"""Feeds: a format that can be read line by line, so that a log that grows is read on and never again.

A feed takes lines and gives the record of those that came so far, any number of times. It opens no file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from groupwise.readers.assemble import Request
from groupwise.readers.source import Peek, open_text
from groupwise.record.run import RunRecord


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the lines of a feed come from."""

    path: Path  # of the file
    size: int  # bytes of it that were read
    encoding: str = "utf-8"  # of its text
    binary: str = ""  # what it is if it is no text, else ""

    @classmethod
    def of(cls, path: Path, seen: Peek) -> Origin:
        """Return the origin of a file at which somebody looked."""
        return cls(path, seen.size, seen.encoding, seen.binary)


class Feed(Protocol):
    """Takes the lines of a log in order, each with its line feed where it has one."""

    def take(self, lines: Iterable[str]) -> None:
        """Read whole lines."""

    def finish(self) -> None:
        """Take what was held back: no line follows."""

    def record(self, origin: Origin, request: Request) -> RunRecord:
        """Return the record of what was taken so far."""


def read_fed(feed: Feed, path: Path, seen: Peek, request: Request) -> RunRecord:
    """Read a whole file through a feed."""
    with open_text(path, seen.encoding) as file:
        feed.take(file)
    feed.finish()
    return feed.record(Origin.of(path, seen), request)


def encoding_notes(encoding: str) -> Iterator[str]:
    """Yield the note on an encoding that was guessed."""
    if encoding == "latin-1":
        yield "the file is not UTF-8 and was read as Latin-1"
