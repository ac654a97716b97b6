"""What a live page shows of a run: its metrics, thinned so that a new row changes only their ends, and what is to be said of it.

Lines are made by the process that serves; `judge` fits and takes seconds, so a process of its own calls it. Nothing is drawn here.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from groupwise.analysis.charts import Chart, abscissae, useful_range
from groupwise.analysis.evidence import BEHAVIOURS, FEW_ROWS, beyond_spikes, definition_of, meaning_of
from groupwise.analysis.headline import facts_of
from groupwise.errors import GroupwiseError, MissingMetricError
from groupwise.plain import Plain
from groupwise.record.run import RunRecord
from groupwise.wording import capital, clean

FloatArray = NDArray[np.float64]
_MOST_FUNCTIONS = 8
_MEANS = 32
_OVERLAYS = {"law", "rival", "second_rival", "forecast", "plateau"}
_DIGITS = 5
_MOST_OTHERS = 12
_CLOCKS = ("epoch", "num_tokens", "tokens", "seconds", "optimizer_updates", "_step", "_runtime", "_timestamp", "timestamp", "global_step")
# Beside those of a report: what is cheap to show while the run goes on.
_FURTHER = (
    ("dead_group_share", "Zero-variance groups", "share of groups"),
    ("reward_std_within_group", "Spread within groups", "standard deviation"),
    ("reward_std_batch", "Spread over the batch", "standard deviation"),
    ("eval/reward", "Evaluation", "reward"),
)


@dataclass(frozen=True, slots=True)
class Track(Plain):
    """One metric of a run, thinned."""

    key: str  # unique in its run, the same in every run
    title: str  # a few words
    unit: str  # for the axis
    column: str  # the log's own key
    about: str  # what the key means
    rows: int  # values there are
    x: tuple[float, ...]  # steps that are shown
    y: tuple[float, ...]  # their values
    mean_x: tuple[float, ...]  # mean steps of neighbouring rows
    mean_y: tuple[float, ...]  # mean values of neighbouring rows; empty where the rows are few
    mean_size: int  # rows that each averages
    y_range: tuple[float, float]  # ordinates that the data need


def power_above(rows: int, most: int) -> int:
    """Return the smallest power of two that puts `rows` into at most `most` runs of so many."""
    size = 1
    while -(-rows // size) > most:
        size *= 2
    return size


def shown_rows(y_T: FloatArray, *, points: int) -> NDArray[np.int64]:
    """Choose the smallest and the largest value of runs of 2^k rows, and the last row: a row more changes only the end."""
    rows = y_T.size
    if rows <= points:
        return np.arange(rows)
    size = power_above(rows, max(1, points // 2))
    whole = rows // size
    blocks = y_T[: whole * size].reshape(whole, size)
    starts = np.arange(whole) * size
    kept = [starts + blocks.argmin(axis=1), starts + blocks.argmax(axis=1), np.array([rows - 1])]
    if whole * size < rows:
        rest = y_T[whole * size :]
        kept.append(whole * size + np.array([rest.argmin(), rest.argmax()]))
    return np.unique(np.concatenate(kept))


def means(x_T: FloatArray, y_T: FloatArray) -> tuple[FloatArray, FloatArray, int]:
    """Means of neighbouring 2^k rows that do not overlap; rows left over at the end wait until they are enough."""
    size = power_above(y_T.size, _MEANS)
    whole = y_T.size // size * size
    return x_T[:whole].reshape(-1, size).mean(axis=1), y_T[:whole].reshape(-1, size).mean(axis=1), size


def tracks_of(record: RunRecord, metric: str, *, points: int) -> list[Track]:
    """Return the lines of a run: the metric it is judged by, reward functions, what is worth a look beside them, a few other keys."""
    wanted: dict[str, tuple[str, str, str]] = {}
    for column, key, title, unit in _worth_a_look(record, metric):
        wanted.setdefault(column, (key, title, unit))
    others = [name for name in record.metrics() if name not in wanted and not _nothing_to_see(record, name)]
    wanted |= {name: (f"log/{name}", clean(name, longest=60), "value") for name in others[:_MOST_OTHERS]}
    step = record.steps["step"].cast(pl.Float64).to_numpy()
    tracks = [_track(record, (*names, column), step, points if names[0] == "metric" else points // 2) for column, names in wanted.items()]
    return [track for track in tracks if track is not None]


def _worth_a_look(record: RunRecord, metric: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield column, key, title and unit of the metric, of the reward functions and of the known quantities beside them."""
    with suppress(MissingMetricError):
        column = record.column(metric)
        known = record.meaning(column)
        rewarding = column == "reward" or (known is not None and known.quantity.startswith("reward"))
        yield column, "metric", capital(clean(metric, longest=60)), "reward" if rewarding else "value"
    functions = [m for m in record.meanings if m.quantity.startswith("reward/") and not m.unavailable]
    for function in functions[:_MOST_FUNCTIONS]:
        yield function.column, function.quantity, clean(function.quantity.removeprefix("reward/"), longest=60), "reward"
    for quantity, title, unit in (*_FURTHER, *((b.quantity, b.title, b.unit) for b in BEHAVIOURS)):
        meaning = meaning_of(record, quantity)
        if meaning is not None:
            yield meaning.column, quantity, title, unit


def _nothing_to_see(record: RunRecord, column: str) -> bool:
    """Return whether a key is a clock, or never changes."""
    meaning = record.meaning(column)
    if meaning is not None and (meaning.unavailable or meaning.quantity in _CLOCKS):
        return True
    values = record.steps[column]
    return column in _CLOCKS or values.count() < 2 or values.min() == values.max()


def _track(record: RunRecord, names: tuple[str, str, str, str], step_T: FloatArray, points: int) -> Track | None:
    """Return one metric thinned, or None where it has no value."""
    key, title, unit, column = names
    value = record.steps[column].fill_null(float("nan")).to_numpy()
    usable = np.isfinite(value)
    x, y = step_T[usable], value[usable]
    if not y.size:
        return None
    shown = shown_rows(y, points=points)
    mean_x, mean_y, size = means(x, y) if y.size > FEW_ROWS else (np.zeros(0), np.zeros(0), 1)
    y_range, beyond = beyond_spikes(y)
    meaning = record.meaning(column)
    about = (definition_of(meaning) if meaning is not None else "") + beyond
    low, high = y_range or useful_range(shown=y) or (0.0, 1.0)
    return Track(
        key,
        title,
        unit,
        clean(column, longest=80),
        about.strip(),
        int(y.size),
        abscissae(x[shown]),
        _short(y[shown]),
        tuple(round(float(one), 1) for one in mean_x),
        _short(mean_y),
        size,
        (_digits(low), _digits(high)),
    )


def _short(values: FloatArray) -> tuple[float, ...]:
    """Round each value to five significant digits of its own, so that a larger one later changes nothing before it."""
    size = np.abs(values)
    exponent = np.floor(np.log10(np.where(size > 0, size, 1.0)))
    scale = 10.0 ** np.clip(_DIGITS - 1 - exponent, -300, 300)
    return tuple((np.round(values * scale) / scale).tolist())


def _digits(value: float) -> float:
    """Round one value to five significant digits."""
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else 0.0


def changes(before: Sequence[Track], after: Sequence[Track]) -> list[dict[str, Any]] | None:
    """Return what has to be sent of new tracks to a page that has the old ones."""
    if [track.key for track in before] != [track.key for track in after]:
        return None
    found = []
    for old, new in zip(before, after, strict=True):
        if old == new:
            continue
        change: dict[str, Any] = {"key": new.key}
        for x, y, start in (("x", "y", "from"), ("mean_x", "mean_y", "mean_from")):
            first = _first_difference(old, new, x, y)
            change |= {start: first, x: getattr(new, x)[first:], y: getattr(new, y)[first:]}
        for name in ("title", "unit", "column", "about", "rows", "mean_size", "y_range"):
            if getattr(old, name) != getattr(new, name):
                change[name] = getattr(new, name)
        found.append(change)
    return found


def _first_difference(old: Track, new: Track, x: str, y: str) -> int:
    """Return the first place at which two lines differ."""
    before, after = (list(zip(getattr(track, x), getattr(track, y), strict=True)) for track in (old, new))
    shared = min(len(before), len(after))
    return next((place for place in range(shared) if before[place] != after[place]), shared)


def usual_pace(times: Sequence[float]) -> float:
    """Return the median seconds between changes, or 0 where too few are known."""
    gaps = sorted(later - earlier for earlier, later in pairwise(times))
    return gaps[len(gaps) // 2] if len(gaps) > 1 else 0.0


def judge(record: RunRecord, metric: str, points: int, level: float, opened: Path | None) -> dict[str, Any]:
    """Return what the report of a run says, as plain data for the live page."""
    from groupwise.analysis.summary import summarise  # by the process that fits, and not by the one that serves

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
        "facts": facts_of(summary.fitted, summary.last_step),
        "lines": [line.as_dict() for line in chart.lines if line.role in _OVERLAYS],
        "marks": [mark.as_dict() for mark in chart.marks],
        "y_range": chart.y_range,
        "said": [(name, clean(sentence, longest=600)) for name, sentence in said],
        "groups": [one.as_dict() | {"y_range": one.y_range or _range(one)} for one in summary.charts["groups"] if not one.unavailable],
        "missing": list(summary.missing),
        "notes": list(summary.notes),
        "cost": time.process_time() - started,
    }


def _range(chart: Chart) -> tuple[float, float]:
    """Return ordinates that show all of a chart."""
    return useful_range(shown=[value for line in chart.lines for value in line.ordinates]) or (0.0, 1.0)


def _last_step(record: RunRecord) -> int:
    """Return the newest step of a record, 0 where there is none."""
    return int(record.steps["step"][-1]) if len(record.steps) else 0
