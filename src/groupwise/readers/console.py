"""What a trainer printed: TRL's rows as Python dicts amid progress bars, with the step taken from the bars.

Only literals are read (`ast.literal_eval`); nothing is executed.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable
from dataclasses import replace
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np

from groupwise.errors import NothingYetError, UnreadableRunError
from groupwise.readers.assemble import Log, Origin, Request, assemble, read_fed
from groupwise.readers.console_rows import is_cut_row, is_trainers, stands_alone, strangers
from groupwise.readers.console_steps import Bars, Printed, by_turns, steps_of
from groupwise.readers.json_logs import keep_row
from groupwise.readers.rows import RowStore
from groupwise.readers.source import ESCAPE, counted, peek, shown
from groupwise.record.run import RunRecord

_ROW = re.compile(r"\{'[\w /.\-]{1,80}': [^{}]{1,20000}\}")
_BAR = re.compile(r"\|\s*(\d{1,9})/(\d{1,9}) \[")
_NAN = re.compile(r"(?<=: )(nan|inf|-inf)(?=[,}])")
_TOTAL = re.compile(r"Total (?:optimization )?steps = ([\d,]{1,15})")
_EPOCHS = re.compile(r"Num Epochs = ([\d,]{1,15})")
_BATCH = re.compile(r"Total train batch size \(w\. parallel, distributed & accumulation\) = ([\d,]{1,15})")
_VERSION = re.compile(r"\btrl(?:==|-| version:? )(\d+\.\d+[\w.]*)", re.IGNORECASE)
_SCALAR = re.compile(r"(?:np|numpy|torch)\.\w+\(([^()]*)\)|tensor\(([^(),]*)(?:,[^()]*)?\)")
_NUMBERED = re.compile(r"lobal[ _]step (\d{1,12})(?:|, eval_metrics): ?$")
_LONGEST_LINE = 1 << 22
_MOST_TITLES = 1000
_MOST_RUNS = 16
_MARKS = frozenset({"loss", "reward", "policy_loss"})
_MOST_BARS = 16
_TITLED = re.compile(r"([A-Za-z][^|\r\n%]{0,80}?):?\s+\d{1,3}%\|[^|\n]{0,200}\|\s*\d{1,9}/(\d{1,9}) \[")
_TRAINING = re.compile(r"(?i)train|episode|epoch|step|progress")


def sniff_console(path: Path) -> float:
    """Return the confidence that the file is a trainer's printed output."""
    seen = peek(path)
    if seen.binary or (seen.text[:1] in "[{" and "\n" not in seen.text):
        return 0.0
    if _ROW.search(seen.text) and ("loss'" in seen.text or "'reward'" in seen.text):
        return 0.7
    return 0.35 if path.suffix in (".log", ".out", ".txt", ".md") or _BAR.search(seen.text) else 0.05


def parse_row(text: str) -> dict[Any, Any] | None:
    """Return the row that a Python literal holds, or None."""
    plain = ESCAPE.sub("", text) if "\x1b" in text else text
    if "(" in plain:
        plain = _SCALAR.sub(lambda match: match[1] or match[2] or "None", plain)
    if '"' not in plain and "\\" not in plain:
        try:
            # Ten times as fast as literal_eval; what is a Python literal only, such as None, is left to that.
            return _plain_json(plain.replace("'", '"'))
        except ValueError:
            pass
    try:
        row = ast.literal_eval(_NAN.sub("None", plain))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    return row if isinstance(row, dict) else None


def _plain_json(text: str) -> dict[Any, Any] | None:
    """Return the row that a JSON text holds, or None where it holds something else."""
    row = json.loads(text)
    return row if isinstance(row, dict) else None


def _numbered(row: dict[Any, Any] | None, before: str) -> dict[Any, Any] | None:
    """Return the row with the step that is printed before it, as OpenRLHF does."""
    match = _NUMBERED.search(before) if row is not None and "lobal" in before else None
    return row | {"step": float(match[1])} if row is not None and match and "step" not in row else row


def read_console(path: Path, request: Request) -> RunRecord:
    """Read the rows that TRL printed; the step of a row is the position of the progress bar before it."""
    seen = peek(path)
    if seen.binary:
        raise UnreadableRunError(f"expected a text log, got {shown(path)}, {seen.binary}")
    return read_fed(ConsoleFeed(), path, seen, request)


class ConsoleFeed:
    """A trainer's printed output, line by line."""

    def __init__(self) -> None:
        """Start before the first line."""
        self._store = RowStore()
        self._bars: list[Bars] = []
        self._seen: Bars = {}
        self._reached: Bars = {}
        self._titled: set[int] = set()
        self._shapes: list[frozenset[str]] = []
        self._known: dict[tuple[Any, ...], frozenset[str]] = {}
        self._damaged = self._summaries = self._embedded = self._ended = 0
        self._stated: dict[str, Any] = {}

    @property
    def count(self) -> int:
        """Rows so far."""
        return self._store.count

    def take(self, lines: Iterable[str]) -> None:
        """Read whole lines; the remainder of one that is too long counts as the next."""
        for whole in lines:
            for start in range(0, len(whole), _LONGEST_LINE):
                self._line(whole[start : start + _LONGEST_LINE])

    def _line(self, line: str) -> None:
        """Read the rows and the bars of a line, or what the trainer says of itself."""
        position = 0
        matches = list(_ROW.finditer(line))
        for number, match in enumerate(matches):
            before = line[position : match.start()]
            self._look_at_bars(before)
            position = match.end()
            after = line[position : matches[number + 1].start() if number + 1 < len(matches) else len(line)]
            self._row(_numbered(parse_row(match[0]), line[: match.start()]), alone=stands_alone(before, after))
        self._look_at_bars(line[position:])
        if not position:
            self._damaged += "': " in line and is_cut_row(line)
            _read_statement(line, self._stated)

    def _look_at_bars(self, text: str) -> None:
        """Note how far each bar of a text has come: beside that of the training an evaluation or a data set has its own."""
        found = _BAR.findall(text)
        if not found:
            return
        if len(self._titled) < _MOST_TITLES and any(int(total) not in self._reached for _, total in found):
            self._titled |= {int(total) for title, total in _TITLED.findall(text) if not _TRAINING.search(title)}
        seen = dict(self._seen)  # rows keep the one that stood before them
        for done, total in found:
            seen.pop(int(total), None)
            seen[int(total)] = int(done)
            self._reached[int(total)] = max(int(done), self._reached.get(int(total), 0))
        self._seen = dict(list(seen.items())[-_MOST_BARS:])

    def _row(self, row: dict[Any, Any] | None, *, alone: bool) -> None:
        """Keep a row of the training with the bar before it; what stands within a text counts only with a trainer's keys."""
        if not alone and (row is None or not is_trainers(row)):
            self._embedded += row is not None and bool(_MARKS & set(row))
        elif row is None:
            self._damaged += 1
        elif not keep_row(row):
            self._summaries += 1
            self._ended = self._store.count
        elif _MARKS & set(row) or any(str(key).startswith("eval_") for key in row):
            self._store.add(row)
            self._bars.append(self._seen)
            keys = tuple(row)
            shape = self._known.get(keys)
            if shape is None:
                shape = self._known[keys] = frozenset(map(str, keys))
            self._shapes.append(shape)

    def finish(self) -> None:
        """Nothing is held back."""

    def record(self, origin: Origin, request: Request) -> RunRecord:
        """Return the record of what was taken so far."""
        store, path, stated = self._store, origin.path, self._stated
        if not store.count:
            raise NothingYetError(
                f"expected rows such as {{'loss': ...}} in a trainer's output, got none in {shown(path)}: "
                "give the log of the training itself"
            )
        damaged = counted(self._damaged, "printed row is damaged and was", "printed rows are damaged and were")
        notes = [f"{damaged} left out"] if self._damaged else []
        if self._summaries:
            notes.append("the summary row at the end is left out" if self._summaries == 1 else f"{self._summaries} summary rows left out")
        store, printed = self._trainers(notes)
        runs, again = by_turns(store, printed)
        if runs > 1:
            several = "several" if runs > _MOST_RUNS else f"{runs}"
            raise UnreadableRunError(
                f"expected one run, got {shown(path)}, into which {several} print by turns: epochs come again with other values, or rise "
                "and fall. Give the output of one"
            )
        if again.any():
            notes.append(f"{counted(int(again.sum()), 'row was', 'rows were')} printed again with the same values and left out")
            store, printed = store.kept(~again), replace(printed, bars=list(compress(printed.bars, ~again)))
        step, found = steps_of(store, printed)
        about = {"rollout_batch_size": stated.get("batch"), "framework_version": stated.get("framework_version")}
        log = Log(store, path, "trl_console", origin.size, (*notes, *found), stated=((about, "the printed output"),), step=step)
        return assemble(log, request)

    def _trainers(self, notes: list[str]) -> tuple[RowStore, Printed]:
        """Return the trainer's own rows and what was printed around them."""
        store, bars = self._store, self._bars
        odd = strangers(self._shapes)
        left_out = self._embedded + len(odd)
        if left_out:
            are = counted(
                left_out, "printed dictionary is no row of the trainer and was", "printed dictionaries are no rows of the trainer and were"
            )
            notes.append(f"{are} left out: within other text, or without the keys of its rows")
        if odd:
            stay = np.array([row not in odd for row in range(store.count)], dtype=bool)
            store, bars = store.kept(stay), list(compress(bars, stay))
        ended = self._summaries > 0 and self._ended >= self._store.count
        stated = self._stated
        return store, Printed(bars, dict(self._reached), frozenset(self._titled), stated.get("total"), stated.get("epochs"), ended)


def _read_statement(line: str, stated: dict[str, Any]) -> None:
    """Note what the trainer says of itself at its start."""
    for name, pattern in (("total", _TOTAL), ("batch", _BATCH), ("epochs", _EPOCHS)) if " = " in line else ():
        match = pattern.search(line)
        if match:
            stated[name] = int(match[1].replace(",", "") or 0)
    match = _VERSION.search(line) if "framework_version" not in stated and not line.isspace() else None
    if match:
        stated["framework_version"] = match[1]
