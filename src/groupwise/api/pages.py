"""The page of `groupwise report`, written from Python."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from groupwise.errors import InvalidArgumentError
from groupwise.files import PYTHON, free_target, write_whole
from groupwise.record.run import RunRecord, has_ended


def write_page(runs: Sequence[tuple[RunRecord, Path | None]], path: str | Path, *, metric: str, force: bool) -> Path:
    """Write one page on runs, each with what it was opened from; return its path."""
    from groupwise.analysis.summary import page_room, summarise
    from groupwise.report.html import render

    if not runs:
        raise InvalidArgumentError("expected a run, got none: give one or a list of them")
    target = Path(path)
    logs = [Path(source.path) for record, _ in runs for source in record.sources]
    free_target(target, logs, force=force, way=PYTHON)
    room = page_room(len(runs))
    summaries = [summarise(record, metric=metric, room=room, opened=opened, ended=has_ended(record)) for record, opened in runs]
    write_whole(target, render(summaries), force=force, way=PYTHON)
    return target
