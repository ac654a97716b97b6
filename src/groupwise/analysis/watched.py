"""What a live page shows of a run: its metrics, thinned, and what is to be said of it."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

import polars as pl

from groupwise.analysis.charts import observed_line, useful_range
from groupwise.analysis.fitted import (
    ForecastRequest,
    ahead,
    behaviours_of,
    beyond_spikes,
    definition_of,
    foretold,
    meaning_of,
    no_forecast,
    unfitted,
)
from groupwise.arrays import Ends, Float
from groupwise.diagnostics.judge import judge
from groupwise.diagnostics.judgement import Judgement
from groupwise.diagnostics.signals import judged_column
from groupwise.errors import GroupwiseError, MissingMetricError
from groupwise.plain import Plain, Words, frozen
from groupwise.readers.source import vocabulary
from groupwise.record.run import RunRecord
from groupwise.wording import capital, clean

_MOST_OTHERS = 12
_CLOCKS = vocabulary("clock_of_a_log")


@frozen
class Track(Plain):
    """One metric of a run, thinned."""

    key: str  # unique in its run, the same in every run
    title: str  # a few words
    unit: str  # for the axis
    column: str  # the log's own key
    about: str  # what the key means
    x: tuple[float, ...]  # steps that are shown
    y: tuple[float | None, ...]  # their values
    y_range: Ends  # ordinates that the data need


def tracks_of(record: RunRecord, metric: str, *, points: int) -> list[Track]:
    """Return the lines of a run: its metric, reward functions, what is known beside them."""
    wanted: dict[str, tuple[str, str, str]] = {}
    for column, key, title, unit in _worth_a_look(record, metric):
        wanted.setdefault(column, (key, title, unit))
    others = [
        name
        for name in record.metrics()
        if name not in wanted and not _nothing_to_see(record, name)
    ]
    wanted |= {
        name: (f"log/{clean(name)}", clean(name, longest=60), "value")
        for name in others[:_MOST_OTHERS]
    }
    step = record.values("step")
    tracks = [
        _track(record, (*names, column), step, points if names[0] == "metric" else points // 2)
        for column, names in wanted.items()
        if names[0]
    ]
    return [track for track in tracks if track]


def _worth_a_look(record: RunRecord, metric: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield column, key ("" where not shown), title and unit of what is worth a look."""
    seen: pl.Series | None = None
    with suppress(MissingMetricError):
        column = record.column(judged_column(record) if metric == "reward" else metric)
        judged, seen = record.meaning(column), record.steps[column]
        rewarding = column == "reward" or (
            judged is not None and judged.quantity.startswith("reward")
        )
        yield (
            column,
            "metric",
            capital(clean(metric, longest=60)),
            "reward" if rewarding else "value",
        )
    for behaviour in behaviours_of(record):
        meaning = meaning_of(record, behaviour.quantity)
        if meaning:
            alone = (
                behaviour.unit == "reward"
                and seen is not None
                and record.steps[meaning.column].equals(seen, null_equal=True)
            )  # it is all of the metric
            key = "" if alone else behaviour.quantity
            yield meaning.column, key, behaviour.title, behaviour.unit


def _nothing_to_see(record: RunRecord, column: str) -> bool:
    """Return whether a key is a clock, or never changes."""
    meaning = record.meaning(column)
    if meaning and (meaning.unavailable or meaning.quantity in _CLOCKS):
        return True
    values = record.steps[column]
    return column in _CLOCKS or values.count() < 2 or values.min() == values.max()


def _track(
    record: RunRecord, names: tuple[str, str, str, str], step_T: Float, points: int
) -> Track | None:
    """Return one metric thinned, or None where it has no value."""
    key, title, unit, column = names
    value = record.steps[column].to_numpy()
    line = observed_line("logged", step_T, value, points=points)
    if not line.x:
        return None
    y_range, beyond = beyond_spikes(value)
    meaning = record.meaning(column)
    about = (definition_of(meaning) if meaning else "") + beyond
    low, high = y_range or useful_range(shown=value) or (0.0, 1.0)
    return Track(
        key, title, unit, clean(column, longest=80), about.strip(), line.x, line.y, (low, high)
    )


def usual_pace(times: Sequence[float]) -> float:
    """Return the median seconds between changes, or 0 where too few are known."""
    gaps = sorted(later - earlier for earlier, later in pairwise(times))
    return gaps[len(gaps) // 2] if len(gaps) > 1 else 0.0


@frozen
class Judged(Plain):
    """What is said of a run."""

    judgement: Judgement
    moved: Words  # keys and titles of the lines that the judgement speaks of
    last_step: int | None  # the newest step that it saw
    rows: int  # that it saw
    forecast: str  # a sentence, "" where something is wrong


def judged_run(record: RunRecord, metric: str, level: float, *, ended: bool) -> Judged:
    """Judge a run; forecast its metric where it can be told how it stands and nothing is wrong."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        judgement = judge(record, ended=ended)
        # Nobody may be left to write: what would be none of a run that is over is none.
        none = no_forecast(judgement) or (not ended and no_forecast(judge(record, ended=True)))
        forecast = ""
        with suppress(GroupwiseError):
            if not none:
                bare = unfitted(record, metric)
                outlook = foretold(bare, ForecastRequest(level=level))
                forecast = ahead(replace(bare, outlook=outlook), judgement)
    # What was held out goes by its own name in the words.
    moved = tuple(
        name
        for sign in judgement.signs
        for name in (sign.signal, clean(sign.words.split(" ")[0], longest=60))
    )
    return Judged(judgement, moved, judgement.last_step, len(record.steps), forecast)
