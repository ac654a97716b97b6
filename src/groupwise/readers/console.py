"""What a trainer printed: TRL's rows as Python dicts amid progress bars, with the step taken from the bars.

Only literals are read (`ast.literal_eval`); nothing is executed.
"""

from __future__ import annotations

import ast
import json
import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groupwise.errors import NothingYetError, UnreadableRunError
from groupwise.readers.assemble import Array, Log, Request, assemble
from groupwise.readers.configs import with_found
from groupwise.readers.feeds import Origin, read_fed
from groupwise.readers.rows import RowStore, counted
from groupwise.readers.source import peek, shown
from groupwise.readers.tables import keep_row
from groupwise.record import RunRecord
from groupwise.run_config import RunConfig

_ROW = re.compile(r"\{'[\w /.\-]{1,80}': [^{}]{1,20000}\}")
_BAR = re.compile(r"\|\s*(\d{1,9})/(\d{1,9}) \[")
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_NAN = re.compile(r"(?<=: )(nan|inf|-inf)(?=[,}])")
_TOTAL = re.compile(r"Total optimization steps = ([\d,]{1,15})")
_BATCH = re.compile(r"Total train batch size \(w\. parallel, distributed & accumulation\) = ([\d,]{1,15})")
_VERSION = re.compile(r"\btrl(?:==|-| version:? )(\d+\.\d+[\w.]*)", re.IGNORECASE)
_SCALAR = re.compile(r"(?:np|numpy|torch)\.\w+\(([^()]*)\)|tensor\(([^(),]*)(?:,[^()]*)?\)")
_BROKEN = re.compile(r"'(?:reward|loss)': ?'?-?\d")
_NUMBERED = re.compile(r"lobal step (\d{1,12}): ?$")
_LONGEST_LINE = 1 << 22
_STEP_NAMES = ("step", "global_step", "global_step/max_steps")
_MOST_BARS = 16
_MOST_FALLS = 0.1
Bars = dict[int, int]  # length of a progress bar -> how far it has come, the latest last


def sniff_console(path: Path) -> float:
    """Return the confidence that the file is a trainer's printed output."""
    seen = peek(path)
    if seen.binary or (seen.text[:1] in "[{" and "\n" not in seen.text):
        return 0.0
    if _ROW.search(seen.text) and ("loss'" in seen.text or "'reward'" in seen.text):
        return 0.7
    return 0.35 if path.suffix in (".log", ".out", ".txt", ".md") or _BAR.search(seen.text) else 0.05


def _parse(text: str) -> dict[Any, Any] | None:
    """Return the row that a Python literal holds, or None."""
    plain = _ESCAPE.sub("", text) if "\x1b" in text else text
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
    match = _NUMBERED.search(before) if row is not None else None
    return row | {"step": float(match[1])} if row is not None and match and "step" not in row else row


def read_console(path: Path, request: Request) -> RunRecord:
    """Read the rows that TRL printed; the step of a row is the position of the progress bar before it.

    Args:
        path: of the file.
        request: what the user asked for.

    Returns:
        The record.

    Raises:
        UnreadableRunError: no row was printed.
    """
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
        self._damaged = self._summaries = 0
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
        for match in _ROW.finditer(line):
            self._look_at_bars(line[position : match.start()])
            position = match.end()
            self._row(_numbered(_parse(match[0]), line[: match.start()]))
        self._look_at_bars(line[position:])
        if not position:
            self._damaged += _BROKEN.search(line) is not None
            _read_statement(line, self._stated)

    def _look_at_bars(self, text: str) -> None:
        """Note how far each bar of a text has come: beside that of the training an evaluation or a data set has its own."""
        found = _BAR.findall(text)
        if not found:
            return
        seen = dict(self._seen)  # rows keep the one that stood before them
        for done, total in found:
            seen.pop(int(total), None)
            seen[int(total)] = int(done)
        self._seen = dict(list(seen.items())[-_MOST_BARS:])

    def _row(self, row: dict[Any, Any] | None) -> None:
        """Keep a row of the training with the bar before it."""
        if row is None:
            self._damaged += 1
        elif not keep_row(row):
            self._summaries += 1
        elif {"loss", "reward", "policy_loss"} & set(row) or any(str(key).startswith("eval_") for key in row):
            self._store.add(row)
            self._bars.append(self._seen)

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
        step, found = _steps_of(store, self._bars, stated)
        config = _config(request.config, stated)
        return assemble(Log(store, path, "trl_console", origin.size, config, (*notes, *found), step=step), request)


def _read_statement(line: str, stated: dict[str, Any]) -> None:
    """Note what the trainer says of itself at its start."""
    for name, pattern in (("total", _TOTAL), ("batch", _BATCH)):
        match = pattern.search(line)
        if match:
            stated[name] = int(match[1].replace(",", "") or 0)
    match = _VERSION.search(line) if "framework_version" not in stated else None
    if match:
        stated["framework_version"] = match[1]


def _config(config: RunConfig, stated: dict[str, Any]) -> RunConfig:
    """Return the settings with those that the output states."""
    found = {}
    group = config.value("group_size")
    if group and stated.get("batch") and stated["batch"] % group == 0 and not config.prompts_per_step.known:
        found["prompts_per_step"] = stated["batch"] // group
    if "framework_version" in stated and not config.framework_version.known:
        found["framework_version"] = stated["framework_version"]
    return with_found(config, found, "the printed output")


def _steps_of(store: RowStore, bars: list[Bars], stated: dict[str, Any]) -> tuple[Array | None, list[str]]:
    """Return the step of each row where the log has no step key, and a note on where it comes from.

    A bar may stand behind by the rows that were printed to another stream and so collected later; then the even spacing
    of the rows up to the last step is taken.
    """
    if any(key in _STEP_NAMES for key in store.names()):
        return None, []
    main = np.zeros(store.count, dtype=bool)
    for key in ("loss", "reward"):
        if key in store.names():
            main[store.sparse(key)[0]] = True
    if not main.any():
        main[:] = True
    done = _positions(bars, main, stated.get("total"))
    if _is_clock(done[main]):
        return done, ["the step of a row is the position of the progress bar printed before it"]
    total = stated.get("total") or max((length for seen in bars for length in seen), default=0)
    order, falls = _counted_rows(store, main)
    count = int(order.max())
    spacing = round(total / count) if total else 0
    notes = [f"the epoch drops back {counted(falls, 'time')}: the rows are counted on from the row before that epoch"] if falls else []
    if spacing >= 1 and spacing * count <= total < spacing * (count + 1):
        rows = counted(count, "row")
        return order * spacing, [*notes, f"the steps are counted: {rows} over the {total} steps that the log states, one every {spacing}"]
    return order, [*notes, "the log states no step, so the rows are counted: a row may be several steps (set logging_steps with --set)"]


def _positions(bars: list[Bars], main: NDArray[np.bool_], total: int | None) -> Array:
    """Return how far the training's bar stood before each row; the bar of an evaluation, which rows of training do not follow, is none."""
    follows = Counter(next(reversed(seen)) for seen, trains in zip(bars, main.tolist(), strict=True) if trains and seen)
    lengths = {length for length, rows in follows.items() if rows > max(1, _MOST_FALLS * max(follows.values()))} or set(follows)
    if total is not None and total in follows:
        lengths.add(total)
    latest = (next((seen[length] for length in reversed(seen) if length in lengths), 0) for seen in bars)
    return np.array(list(latest), dtype=np.float64)


def _is_clock(done: Array) -> bool:
    """Return whether positions are those of a training that goes on, perhaps from an earlier step after a restart."""
    gaps = np.diff(done)
    falls = int((gaps < 0).sum())
    return len(done) > 0 and bool((done > 0).all()) and bool((gaps != 0).all()) and falls <= max(1, _MOST_FALLS * len(done))


def _counted_rows(store: RowStore, main: NDArray[np.bool_]) -> tuple[Array, int]:
    """Return the number of each row among those of training, and how often it drops back because the epoch does: after a restart."""
    epoch = store.dense("epoch") if "epoch" in store.names() else np.full(store.count, np.nan)
    order, falls, now = np.ones(store.count), 0, 0
    stood: list[float] = []
    for row, trains in enumerate(main.tolist()):
        if trains:
            at = float(epoch[row])
            if stood and at < stood[-1]:
                falls, stood = falls + 1, stood[: bisect_left(stood, at)]
            stood.append(at if at == at else (stood[-1] if stood else -math.inf))
            now = len(stood)
        order[row] = max(now, 1)
    return order, falls
