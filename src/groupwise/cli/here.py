"""`groupwise` without arguments: the report of the run in this folder, offered; what looks like a run is told by its marks alone.

Nothing is opened here but the heads of files: which reader it is, and whether it can be read, `report` says.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

MARKS = (  # of a run folder, which no other folder has
    *("record.json", "journal.jsonl", "trainer_state.json", "checkpoint-*/trainer_state.json"),
    *("events.out.tfevents*", "*.wandb", "monitors/file/metrics.jsonl"),
)
_LOGS = ("trainer_state.json", ".jsonl", ".csv", ".tsv", ".log", ".out", ".parquet", ".db")
_WORD, _HEAD, _MOST, _MOST_SHOWN = b"reward", 1 << 16, 200, 4


def runs_here(folder: Path) -> list[Path]:
    """Return what looks like a run: the folder itself, else the folders right inside it, else its logs that speak of a reward."""
    if _is_run(folder):
        return [folder]
    inside = sorted(islice(folder.iterdir(), _MOST))
    return [path for path in inside if path.is_dir() and not path.name.startswith(".") and _is_run(path)] or list(_logs(inside))


def _is_run(folder: Path) -> bool:
    """Return whether a folder has a mark of a run."""
    return any(True for mark in MARKS for _ in islice(folder.glob(mark), 1))


def _logs(files: list[Path]) -> Iterator[Path]:
    """Yield the logs among files whose heads speak of a reward."""
    for file in files:
        if file.name.lower().endswith(_LOGS) and file.is_file():
            with file.open("rb") as opened:
                if _WORD in opened.read(_HEAD).lower():
                    yield file


def offer() -> list[str]:
    """Say what lies here and return what to run: the report where a person at the terminal wants it, the help where nothing lies here."""
    folder = Path()
    try:
        found = runs_here(folder)
    except OSError:
        found = []
    if not found:
        return ["--help"]
    from groupwise.wording import clean

    names = ", ".join(clean(path.name, longest=60) for path in found[:_MOST_SHOWN])
    more = f" and {len(found) - _MOST_SHOWN:,} more" if len(found) > _MOST_SHOWN else ""
    held = "is a run" if found == [folder] else f"holds a run, {names}" if len(found) == 1 else f"holds {len(found)} runs: {names}{more}"
    arguments = ["report", *(str(path) for path in found[:_MOST_SHOWN])]
    print(f"This folder {held}.\n\n  groupwise {clean(shlex.join(arguments), longest=600)}\n\nAll commands: groupwise --help")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return []
    return arguments if input("Write the report now? [Y/n] ").strip().lower() in ("", "y", "yes") else []
