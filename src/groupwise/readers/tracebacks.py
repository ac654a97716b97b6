"""Tracebacks in what a program printed: the exception, its file and its line, of each that ended
a stretch of rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from groupwise.readers.source import ESCAPE, inside, lines_of

HEAD = "Traceback (most recent call last)"
ENDINGS = (".log", ".txt", ".err", ".out")
_PLACE = re.compile(r'\s*File "([^"\n]{1,400})", line (\d{1,9})')
_RAISED = re.compile(
    r"(?:[a-z_][\w.]{0,200}\.)?([A-Z]\w{1,80})(?:\([\w.]{1,200}\))?(?:: ?(.{0,400})|$)"
)
_ASIDE = re.compile(r"Exception (?:in thread|ignored)")  # the program goes on
_RANK = re.compile(r"\[\w{0,20}rank\d{1,6}\]: ?")
_LONGEST, _TAIL, _MOST_FILES = 120, 1 << 18, 200


class Tracebacks:
    """Takes printed lines and keeps the last traceback behind each number of rows."""

    def __init__(self) -> None:
        self.behind: dict[int, str] = {}  # rows before it -> exception, file and line
        self._is_open = self._is_aside = self._was_aside = False
        self._place = ""

    def add(self, line: str, rows: int) -> None:
        """Take one line without colours and without the process that printed it."""
        text = _RANK.sub("", line, count=1) if line[:1] == "[" else line
        if HEAD in text:
            self._is_open, self._is_aside, self._place = True, self._was_aside, ""
        elif place := _PLACE.match(text) if self._is_open else None:
            self._place = f"{'/'.join(Path(place[1]).parts[-2:])}, line {place[2]}"
        elif self._is_open and text[:1].strip():
            raised = _RAISED.match(text)
            self._is_open = (
                raised is not None
            )  # behind an exception of Ray's the places of its cause follow
            if raised and not self._is_aside:
                self.behind[rows] = self._quoted(raised)
        self._was_aside = text.startswith("Exception ") and _ASIDE.match(text) is not None

    def _quoted(self, raised: re.Match[str]) -> str:
        """Return an exception with its message, file and line."""
        words = (
            "".join(letter for letter in raised[2] or "" if letter.isprintable())
            .partition(". ")[0]
            .strip()
        )
        message = f": {words[:_LONGEST].rstrip(' .')}" if words else ""
        return f"{raised[1]}{message}" + (f" ({self._place})" if self._place else "")


def last_in(lines: Iterable[str]) -> str:
    """Return the last traceback of some lines, "" for none."""
    tracebacks = Tracebacks()
    for line in lines:
        tracebacks.add(ESCAPE.sub("", line).rstrip(), 0)
    return tracebacks.behind.get(0, "")


def last_beside(log: Path | None, folder: Path) -> str:
    """Return the last traceback of the printed outputs in a folder that are not its log, with
    the name of the file; "" for none.
    """
    for path in inside(folder, _MOST_FILES):
        if path != log and path.suffix.lower() in ENDINGS and path.is_file():
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - _TAIL))
                quoted = last_in(lines_of(file.read(_TAIL).decode(errors="replace")))
            if quoted:
                return f"{quoted} in {path.name}"
    return ""
