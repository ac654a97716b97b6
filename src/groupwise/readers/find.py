"""Find the runs below a folder by what lies in each folder and by the first bytes of its files, for
which no log is read; and read all of a path.
"""

import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from groupwise.errors import GroupwiseError, SeveralRunsError, UnreadableRunError
from groupwise.readers import (
    Asked,
    Reader,
    are_rollouts,
    best_reader,
    is_attempt,
    is_beside,
    is_log,
    locate,
    named_as_log,
    own_logs,
    reading_errors,
    request_of,
)
from groupwise.readers.source import peek, vocabulary
from groupwise.readers.trackers import is_mlflow_run
from groupwise.record.run import RunRecord

_DEEPEST = 32  # folders between the one that was given and a run
_OPEN = {"rollout_folder", "tensorboard_folder"}  # readers beside whose files other runs may lie
_TABLES = vocabulary("any_table")  # which may hold anything else


def runs_below(place: Path, without: Collection[Path] = ()) -> list[Path]:
    """Return the runs at or below a path, by name; the path itself where none
    is, so that whoever opens it says why.
    """
    left_out = {path.resolve() for path in without}
    return sorted(_below([place], left_out, -1)[0] if place.is_dir() else ()) or [place]


def run_records(path: str | Path, *, by: str = "", **asked: Unpack[Asked]) -> list[RunRecord]:
    """Read every run of a path: the one, or all those of a file or folder that holds several."""
    place, request = request_of(path, **asked)
    request = replace(request, by=by)
    with reading_errors(place):
        try:
            located = locate(place, request)
        except UnreadableRunError:
            below = runs_below(place)
            if place in below:
                raise
            return [record for run in below for record in run_records(run, by=by, **asked)]
        try:
            return [located.read()]
        except SeveralRunsError as several:
            return [
                replace(located, request=replace(located.request, chosen=name)).read()
                for name in several.names
            ]


def _runs_below(
    folder: Path, without: Collection[Path], depth: int, reader: Reader | None
) -> list[Path]:
    """Return the runs of a folder that no reader knows, or only one of rollouts or event files,
    with what lies there beside these.
    """
    folders, files = _inside(folder, without)
    beside_rollouts = are_rollouts(reader)
    if beside_rollouts:
        folders = [
            inner
            for inner in folders
            if inner.name != "rollouts" and not inner.name.startswith("step_")
        ]
        files = [file for file in files if not are_rollouts(_reader_of(file))]
    runs, beside = _below(folders if depth < _DEEPEST else [], without, depth)
    logs = [file for file in files if is_log(file)]
    others = {*files} - {*logs}
    logs = [folder] if reader and not beside_rollouts else own_logs(logs)
    if len(logs) == 1 and (len(runs) < 2 or logs == [folder]):
        beside = []
        runs = [run for run in runs if not is_beside(run, folder) and is_attempt(run, logs[0])]
        if not runs:
            return logs if beside_rollouts else [folder]
    if logs or not runs or not depth:  # in the folder that was asked for nothing is passed over
        beside += filter(_is_broken, others)
    runs += logs
    return runs if len(runs) == 1 else runs + beside


def _below(
    folders: Sequence[Path], without: Collection[Path], depth: int
) -> tuple[list[Path], list[Path]]:
    """Return the runs in folders, and the folders of rollouts that belong to what lies beside
    them.
    """
    runs: list[Path] = []
    beside: list[Path] = []
    for inner in folders:
        reader = _reader_of(inner)
        if reader and reader.name not in _OPEN:
            runs.append(inner)
        elif inside := _runs_below(inner, without, depth + 1, reader):
            runs += inside
        elif reader:  # a run that kept nothing else, or what lies beside one
            (runs if (inner / "rollouts").is_dir() else beside).append(inner)
    return runs, beside


def _reader_of(folder: Path) -> Reader | None:
    """Return the reader that takes a folder for one run: none of a folder that cannot be looked
    into, or that is a store of several.
    """
    with suppress(GroupwiseError, OSError):
        reader = best_reader(folder)
        if reader is None or reader.name != "mlflow" or is_mlflow_run(folder):
            return reader
    return None


def _inside(folder: Path, without: Collection[Path]) -> tuple[list[Path], list[Path]]:
    """Return folders, and files named as logs, of a folder by name; of names for one file the
    first that is no link.
    """
    folders, files = [], dict[int, Path]()
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: (entry.is_symlink(), entry.name)):
            if entry.is_dir(follow_symlinks=False):
                folders += [] if entry.name.startswith(".") else [Path(entry.path)]
            elif named_as_log(entry.name) and entry.is_file():
                files.setdefault(entry.stat().st_ino, Path(entry.path))
    return folders, sorted(file for file in files.values() if file.resolve() not in without)


def _is_broken(file: Path) -> bool:
    """Return whether a file is empty, cannot be looked into, or is called a text and is none."""
    try:
        return bool(peek(file).binary) and file.suffix not in _TABLES
    except GroupwiseError:
        return True
