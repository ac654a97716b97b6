"""`groupwise` without arguments: the report of the run in this folder is offered, of many runs their list."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

_WORD, _ENDS, _MOST_SHOWN = b"reward", 1 << 16, 4


def runs_here(folder: Path) -> list[Path]:
    """Return what looks like a run, in a folder and right below it: of logs those that speak of a reward."""
    from groupwise.readers.find import runs_below

    return [path for path in runs_below(folder, deepest=1) if _speaks(path)]


def _speaks(path: Path) -> bool:
    """Return whether a folder is a run by what lies in it, or the start or the end of a log speaks of a reward."""
    from groupwise.readers import best_reader, logs_in

    if path.is_dir():
        return best_reader(path) is not None or any(map(_speaks, logs_in(path)))
    with path.open("rb") as opened:
        start = opened.read(_ENDS)
        opened.seek(max(0, path.stat().st_size - _ENDS))
        return _WORD in (start + opened.read()).lower()


def offer() -> list[str]:
    """Say what lies here and return what to run: the report where a person at the terminal wants it, the help where nothing lies here."""
    from groupwise.errors import GroupwiseError

    folder = Path()
    try:
        found = runs_here(folder)
    except (GroupwiseError, OSError):
        found = []
    if not found:
        return ["--help"]
    from groupwise.wording import clean

    names = ", ".join(clean(path.name, longest=60) for path in found[:_MOST_SHOWN])
    more = f" and {len(found) - _MOST_SHOWN:,} more" if len(found) > _MOST_SHOWN else ""
    held = "is a run" if found == [folder] else f"holds a run, {names}" if len(found) == 1 else f"holds {len(found)} runs: {names}{more}"
    arguments = ["fleet", "."] if more else ["report", *(str(path) for path in found)]
    print(f"This folder {held}.\n\n  groupwise {clean(shlex.join(arguments), longest=600)}\n\nAll commands: groupwise --help")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return []
    return arguments if input(f"{'Judge them' if more else 'Write the report'} now? [Y/n] ").strip().lower() in ("", "y", "yes") else []
