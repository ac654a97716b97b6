"""What a live page says of a run beyond its raw lines: the verdict, the law, the forecast; computed in a process of its own.

Fits take seconds and would hold up the page. Nothing here knows of a server.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupwise.errors import GroupwiseError
from groupwise.record.run import RunRecord
from groupwise.wording import clean

if TYPE_CHECKING:
    from groupwise.analysis.charts import Chart

_NICE = 10
_OVERLAYS = {"law", "rival", "second_rival", "forecast", "plateau"}


def judge(record: RunRecord, metric: str, points: int, level: float, opened: Path | None) -> dict[str, Any]:
    """Return what the report of a run says, as plain data for the live page."""
    from groupwise.analysis.summary import summarise
    from groupwise.report.sections import facts_of

    started = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            summary = summarise(record, metric=metric, forecast_level=level, points=points, opened=opened)
        except GroupwiseError as error:
            return {"problem": clean(error, longest=600), "step": _last_step(record), "cost": time.process_time() - started}
    chart = summary.charts["metric"][0]
    said = [("Group size", sentence) for sentence in summary.group_size.said]
    if summary.stability.verdict != "unavailable":
        said.append(("Stability", summary.stability.said))
    return {
        "problem": "",
        "step": summary.last_step,
        "rows": summary.rows,
        "verdict": summary.verdict.as_dict(),
        "facts": facts_of(summary),
        "lines": [line.as_dict() for line in chart.lines if line.role in _OVERLAYS],
        "marks": [{"x": mark.x, "label": mark.label} for mark in chart.marks],
        "y_range": chart.y_range,
        "said": [(name, clean(sentence, longest=600)) for name, sentence in said],
        "groups": [one.as_dict() | {"y_range": one.y_range or _range(one)} for one in summary.charts["groups"] if not one.unavailable],
        "missing": list(summary.missing),
        "notes": list(summary.notes),
        "cost": time.process_time() - started,
    }


def _range(chart: Chart) -> tuple[float, float]:
    """Return ordinates that show all of a chart."""
    from groupwise.analysis.charts import useful_range

    return useful_range(shown=[value for line in chart.lines for value in (*line.y, *line.low, *line.high) if value is not None]) or (
        0.0,
        1.0,
    )


def _last_step(record: RunRecord) -> int:
    """Return the newest step of a record, 0 where there is none."""
    return int(record.steps["step"][-1]) if len(record.steps) else 0


def whole_page(record: RunRecord, metric: str, level: float, opened: Path | None, command: Sequence[str]) -> str:
    """Return the report of a run as `groupwise report` would write it."""
    from groupwise.analysis.summary import provenance, summarise
    from groupwise.report.html import render

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        summary = summarise(record, metric=metric, forecast_level=level, opened=opened)
        return render([summary], provenance=provenance(command))


def new_pool() -> ProcessPoolExecutor:
    """Return a pool of one process that leaves Ctrl-C to its parent, the processor to the training, and ends with its parent."""
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"), initializer=_settle)


def _settle() -> None:
    """Begin as a process that others come before."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(OSError, AttributeError):
        os.nice(_NICE)


def _end_with_parent() -> None:
    """Wait until the parent is gone, which a kill does not let it say, and end this process."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
