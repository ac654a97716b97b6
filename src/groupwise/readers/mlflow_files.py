"""MLflow's file store: `mlruns/<experiment>/<run>/metrics/<key>`, one line "time value step" a number.

Nothing but these texts is read; an MLflow database is in `databases.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from groupwise.errors import GroupwiseError, UnreadableRunError
from groupwise.readers.assemble import Log, Request, assemble
from groupwise.readers.configs import parse_yaml, with_missing
from groupwise.readers.databases import Entry, mlflow_settings, rows_of
from groupwise.readers.rows import RowStore, clean_key, counted
from groupwise.readers.source import open_text, peek, shown
from groupwise.record.run import RunRecord

_MOST = 10_000


def sniff_mlflow(path: Path) -> float:
    """Return the confidence that the folder is one of MLflow's, of one run or above several."""
    return 0.9 if path.is_dir() and any(True for _ in _runs(path)) else 0.0


def _runs(path: Path) -> Iterator[Path]:
    """Yield the folders of runs: the folder itself, or those one or two below it."""
    if _is_run(path):
        yield path
        return
    for inner in _folders(path):
        if _is_run(inner):
            yield inner
        elif (inner / "meta.yaml").is_file():
            yield from (run for run in _folders(inner) if _is_run(run))


def _folders(path: Path) -> list[Path]:
    """Return the folders inside one that are not hidden."""
    try:
        return sorted(inner for inner, _ in zip(path.iterdir(), range(_MOST), strict=False) if inner.is_dir() and inner.name[0] != ".")
    except OSError:
        return []


def _is_run(path: Path) -> bool:
    """Return whether a folder is that of one run."""
    return (path / "metrics").is_dir() and ((path / "meta.yaml").is_file() or (path / "params").is_dir())


def read_mlflow(path: Path, request: Request) -> RunRecord:
    """Read one run of an MLflow folder."""
    named: dict[str, Path] = {}
    for run in _runs(path):
        title = _title(run)
        named[title if title not in named else run.name] = run
    if request.chosen and request.chosen not in named:
        named |= {run.name: run for run in named.values() if run.name == request.chosen}
    name = request.chosen or (next(iter(named)) if len(named) == 1 else "")
    if name not in named:
        listed = ", ".join(list(named)[:6]) + (f" and {len(named) - 6} more" if len(named) > 6 else "")
        raise UnreadableRunError(f"expected one run, got {shown(path)}, which holds {len(named)}: add one of #{listed} to the path")
    home = named[name]
    entries, size, damaged = _entries(home / "metrics")
    store = RowStore()
    for row in rows_of(iter(sorted(entries, key=lambda entry: (entry[0], entry[1])))):
        store.add(row)
    if not store.count:
        raise UnreadableRunError(f"expected numbers in {shown(home / 'metrics')}, got none: nothing has been logged yet")
    parameters = {key: text.strip() for key, text in _texts(home / "params")}
    config = with_missing(request.config, mlflow_settings(parameters), "MLflow's parameters")
    notes = (f"{counted(damaged, 'line is damaged and was', 'lines are damaged and were')} left out",) if damaged else ()
    return assemble(Log(store, home, "mlflow", size, config, notes, name=clean_key(name)), request)


def _title(run: Path) -> str:
    """Return the name of a run as its meta.yaml gives it, else the folder's."""
    try:
        found = parse_yaml(peek(run / "meta.yaml").text).get("run_name")
    except GroupwiseError:
        found = None
    return clean_key(found or run.name)


def _texts(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield name and text of each small file below a folder; folders are parts of the name."""
    for file, _ in zip(sorted(folder.rglob("*")), range(_MOST), strict=False):
        if file.is_file() and file.stat().st_size < 1 << 16:
            yield file.relative_to(folder).as_posix(), file.read_text(encoding="utf-8", errors="replace")


def _entries(folder: Path) -> tuple[list[Entry], int, int]:
    """Return the numbers of all keys, the bytes read, and how many lines were damaged."""
    entries: list[Entry] = []
    size = damaged = 0
    for file, _ in zip(sorted(folder.rglob("*")), range(_MOST), strict=False):
        if not file.is_file():
            continue
        size += file.stat().st_size
        key = file.relative_to(folder).as_posix()
        with open_text(file, "utf-8") as lines:
            for line in lines:
                entry = _entry(key, line.split())
                if entry is not None:
                    entries.append(entry)
                elif line.strip():
                    damaged += 1
    return entries, size, damaged


def _entry(key: str, cells: list[Any]) -> Entry | None:
    """Return one number of a key, or None where the line is not "time value step"."""
    if len(cells) not in (2, 3):
        return None
    try:
        return float(cells[0]), float(cells[2]) if len(cells) == 3 else 0.0, key, float(cells[1])
    except ValueError:
        return None
