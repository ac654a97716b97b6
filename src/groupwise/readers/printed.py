"""Rows that a loop of its own printed: `Step 3/30 | loss=0.1 | reward=0.5`, tables "key | value", and lists under a step's heading.

A line counts only where it names a step, or follows one that does. No format of one trainer is known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from groupwise.errors import UnreadableRunError
from groupwise.readers.assemble import Log, Request, assemble
from groupwise.readers.rows import RowStore
from groupwise.readers.source import ESCAPE, counted, open_text, peek, shown
from groupwise.readers.verl import number_of
from groupwise.record.run import RunRecord

_STEP = re.compile(
    r"(?i)(?:(?<![\w/])(?:train |training |global |grpo )?(?:step|iteration|iter|update)\b\s*[:=#]?\s*(\d{1,12})(?![\d.]*\.\d)"
    r"(?:\s*/\s*(\d{1,12}))?"
    r"|(?:^|\]|\s)(\d{1,12})/(\d{1,12})(?=\s*[|:,]))"
)
_TRAIN_STEP = re.compile(r"(?i)\b(?:train(?:ing)?|global) step\s*[:=]?\s*(\d{1,12})(?:\s*/\s*\d{1,12})?")
_NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+|nan|inf)"
_PAIR = re.compile(rf"(?:^|[|,;\s•*\-])([A-Za-z][\w/.@ ]{{0,80}}?)\s*[=:]\s*({_NUMBER})(%?)(?=\s*(?:$|[|,;\s]))")
_CELL = re.compile(r"\s*[|│┃║]\s*")
_BAR = re.compile(r"\d+%\|")
_KNOWN = re.compile(r"(?i)\b(mean |avg |average |total )?(reward|score|acc|accuracy|loss)\b|reward")
_SETTING = re.compile(r"\b(lr|LR|learning_rate|group|group_size|num_generations|temp|temperature|seed|model|G)=([^\s|,]{1,100})")
_RENAMED = {"group": "group_size", "G": "group_size", "temp": "temperature", "LR": "learning_rate"}
_SCAN_LINES = 4000
_LONGEST_LINE = 1 << 16


def sniff_printed(path: Path) -> float:
    """Return the confidence that the file holds printed rows with a step and a reward, a score or a loss."""
    seen = peek(path)
    if seen.binary or seen.text.startswith("{") or path.suffix.lower() in (".csv", ".tsv", ".json", ".jsonl", ".yaml", ".yml", ".md"):
        return 0.0
    found = 0
    for row in _rows(iter(seen.text.splitlines()[:_SCAN_LINES]), {}, []):
        found += any(_KNOWN.search(key) for key in row)
        if found > 1:
            return 0.55
    return 0.4 if found else 0.0


def read_printed(path: Path, request: Request) -> RunRecord:
    """Read the rows that a program printed."""
    seen = peek(path)
    store = RowStore()
    stated: dict[str, str] = {}
    shares: list[str] = []
    with open_text(path, seen.encoding) as file:
        for row in _rows(iter(lambda: file.readline(_LONGEST_LINE), ""), stated, shares):
            store.add(row)
    if not store.count:
        raise UnreadableRunError(
            f"expected printed rows such as Step 1/30 | reward=0.5 in {shown(path)}, got none: give the training's log"
        )
    notes = ["the rows are what the program printed, rounded as it printed them"]
    if shares:
        notes.append(f"{counted(len(shares), 'value in % is', 'values in % are')} read as shares ({', '.join(dict.fromkeys(shares))})")
    found = {_RENAMED.get(name, name): _value(value) for name, value in stated.items()}
    return assemble(Log(store, path, "printed", seen.size, tuple(notes), stated=((found, "the printed output"),)), request)


def _value(text: str) -> Any:
    """Return a stated setting as a number where it is one."""
    number = number_of(text)
    return text if number is None else int(number) if number == number and number == int(min(max(number, -1e15), 1e15)) else number


def _rows(lines: Iterator[str], stated: dict[str, str], shares: list[str]) -> Iterator[dict[str, float]]:
    """Yield the rows: those on one line, and those that are listed below the heading of a step."""
    block: dict[str, float] = {}
    for raw in lines:
        line = (ESCAPE.sub("", raw) if "\x1b" in raw else raw).rstrip()
        if not line or _BAR.search(line):
            continue
        step = _step(line)
        if step is None and not block:
            stated |= {name: value for name, value in _SETTING.findall(line) if name not in stated}
            continue
        pairs = _pairs(line, shares)
        if step is None:
            block |= {} if set(pairs) & set(block) else pairs
            continue
        if len(block) > 1:
            yield block
        block = {"step": step}
        if pairs:
            yield block | pairs
            block = {}
    if len(block) > 1:
        yield block


def _step(line: str) -> float | None:
    """Return the step that a line names, that of the whole training where it names several."""
    match = _TRAIN_STEP.search(line) or _STEP.search(line)
    return float(next(group for group in match.groups() if group)) if match else None


def _pairs(line: str, shares: list[str]) -> dict[str, float]:
    """Return the names and numbers of a line; a percentage becomes a share."""
    cells = [cell for cell in _CELL.split(line) if cell]
    found: dict[str, float] = {}
    if len(cells) > 1 and len(cells) % 2 == 0:
        values = [number_of(cell) for cell in cells[1::2]]
        if all(value is not None for value in values) and not any(number_of(cell) is not None for cell in cells[::2]):
            return {key[:200]: value for key, value in zip(cells[::2], values, strict=True) if value is not None}
    for key, text, percent in _PAIR.findall(line):
        name = key.strip()
        if name.lower() in ("step", "iteration", "iter", "update", "epoch") or name in found:
            continue
        found[name] = float(text) / 100.0 if percent else float(text)
        if percent:
            shares.append(name)
    return found
