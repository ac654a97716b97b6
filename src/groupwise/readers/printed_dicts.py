"""The dictionaries that SkyRL and slime print of each step: SkyRL's over many lines below `Step 3:`, slime's behind `rollout 3:`.

Only literals are read; nothing is executed. Rows of TRL's kind, without a step of their own, are read in `console.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from groupwise.errors import NothingYetError
from groupwise.readers.assemble import Log, Origin, Request, assemble, encoding_notes, read_fed
from groupwise.readers.console import parse_row
from groupwise.readers.rows import RowStore
from groupwise.readers.source import ESCAPE, counted, peek, shown, start_of
from groupwise.readers.verl import PREFIX
from groupwise.record.run import RunRecord

_SLIME = re.compile(r"(?:^|[\s\]-])(rollout|perf|eval|step) (\d{1,12}): (\{'(?:rollout|perf|eval|train|passrate)/.*\})\s*$")
_COUNTER = {"rollout": "rollout/step", "perf": "rollout/step", "eval": "eval/step", "step": "train/step"}
_SKYRL = re.compile(r"(?:^|[\s|-])Step (\d{1,12}): ?$")
_ENTRY = re.compile(r"[{ ]\s*'[\w /.@+-]{1,200}': ")
_KEY = r"\{'(?:reward|policy|generate|trainer|timing|eval|loss|critic|async|environment|rollout)[\w-]*/"
_OWN = re.compile(_KEY)
_SOME = re.compile(
    rb"(?:^|[\s\]-])(?:rollout|perf|eval|step) \d{1,12}: \{'(?:rollout|perf|eval|train|passrate)/"
    rb"|[\s|-]Step \d{1,12}: ?(?:\x1b\[0m)?\r?\n(?:[^\n{]{0,400}\n){0,5}[^\n{]{0,400}" + _KEY.encode()
)
_ANY = re.compile(rb"\{'(?:rollout|perf|eval|train|passrate|reward|policy|generate|trainer|timing|loss|critic|async|environment)[\w-]*/")
_SCAN = 1 << 25
_LONGEST_LINE = 1 << 22
_MOST_ENTRIES = 2000
_MOST_WRITERS = 64


def sniff_printed_dicts(path: Path) -> float:
    """Return the confidence that the file is printed output of SkyRL or slime: a row of either within the first 32 MB."""
    seen = peek(path)
    if seen.binary or seen.text[:1] == "{" or path.suffix.lower() in (".csv", ".tsv", ".json", ".jsonl", ".yaml", ".yml", ".md"):
        return 0.0
    start = b"\n" + start_of(path, seen, _SCAN)
    return 0.8 if _ANY.search(start) and _SOME.search(start) else 0.0  # the first looks for fixed letters only, and is fast


def read_printed_dicts(path: Path, request: Request) -> RunRecord:
    """Read the dictionaries that SkyRL or slime printed."""
    return read_fed(DictFeed(), path, peek(path), request)


class DictFeed:
    """The printed output of SkyRL or slime, line by line."""

    def __init__(self) -> None:
        """Start before the first line."""
        self._store = RowStore()
        self._open: dict[str, tuple[float, list[str]]] = {}  # by the process that prints
        self._damaged = 0
        self._rounded = False

    @property
    def count(self) -> int:
        """Rows so far."""
        return self._store.count

    def take(self, lines: Iterable[str]) -> None:
        """Read whole lines."""
        for line in lines:
            if len(line) <= _LONGEST_LINE:
                self._line((ESCAPE.sub("", line) if "\x1b" in line else line).rstrip())

    def _line(self, line: str) -> None:
        """Read one line: slime's row, the head of one of SkyRL's, or an entry of it."""
        prefix = PREFIX.match(line)
        who, body = (prefix[1], line[prefix.end() :]) if prefix else ("", line)
        slime = _SLIME.search(body) if ": {'" in body else None
        head = None if slime else _SKYRL.search(body) if body.endswith((":", ": ")) else None
        if slime:
            self._add({_COUNTER[slime[1]]: float(slime[2])}, slime[3])
        elif head:
            self._damaged += bool(self._open.get(who, (0.0, []))[1])
            if len(self._open) < _MOST_WRITERS:
                self._open[who] = (float(head[1]), [])
        elif who in self._open:
            self._entry(who, body)

    def _entry(self, who: str, body: str) -> None:
        """Take an entry of a dictionary that is printed over several lines; another line between them is passed over."""
        step, entries = self._open[who]
        if not _ENTRY.match(body) or (body[:1] == "{") == bool(entries):
            return
        if not entries and not _OWN.match(body):
            del self._open[who]
            return
        entries.append(body)
        if body.endswith("}") or len(entries) > _MOST_ENTRIES:
            del self._open[who]
            self._rounded = True
            self._add({"step": step}, "".join(entries))

    def _add(self, step: dict[str, float], text: str) -> None:
        """Keep the row that a printed dictionary holds."""
        row: dict[Any, Any] | None = parse_row(text)
        if row is None:
            self._damaged += 1
        else:
            self._store.add(row | step)

    def finish(self) -> None:
        """Nothing is held back: a dictionary that is not closed is no row."""

    def record(self, origin: Origin, request: Request) -> RunRecord:
        """Return the record of what was taken so far."""
        if not self._store.count:
            raise NothingYetError(
                f"expected dictionaries of steps in {shown(origin.path)}, got none that is whole: give the log of the training itself"
            )
        damaged = counted(self._damaged, "printed row is damaged and was", "printed rows are damaged and were")
        notes = [*encoding_notes(origin.encoding), *([f"{damaged} left out"] if self._damaged else [])]
        if self._rounded:
            notes.append("the rows are what the trainer printed, rounded to four places")
        return assemble(Log(self._store, origin.path, "printed_dicts", origin.size, tuple(notes)), request)
