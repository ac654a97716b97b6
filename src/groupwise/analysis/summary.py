"""The summary of one run as plain data: the one source of the page, the terminal text and
`--json`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from groupwise.analysis.charts import POINTS, Chart
from groupwise.analysis.evidence import forecast_chart
from groupwise.analysis.fitted import Ahead, Fitted, cut, fit_metric, no_forecast, nothing_fitted
from groupwise.analysis.plan import GroupSizeEvidence, group_size_evidence
from groupwise.analysis.prompt_table import PromptTable, prompt_table
from groupwise.analysis.replay import RunReplay, replay_of_rollouts
from groupwise.analysis.rollouts import HELD, Held, held_rollouts
from groupwise.analysis.screen import Screen, screen_of
from groupwise.analysis.stability import StabilityEvidence, stability_evidence
from groupwise.diagnostics.judge import judge
from groupwise.diagnostics.judgement import Judgement
from groupwise.errors import MissingMetricError
from groupwise.parsing import JsonObject
from groupwise.plain import Plain, frozen
from groupwise.record.run import RunRecord
from groupwise.series.groups import group_evidence
from groupwise.threads import on_one_thread
from groupwise.wording import clean, readable, shown_path

_FEWEST_POINTS, _FEWEST_HELD = 120, 12


@frozen
class Summary(Plain):
    """Everything that a report says of one run."""

    KEYS = (
        "run=name",
        "metric=fitted.metric",
        "quantity=fitted.quantity",
        "judgement",
        "screen",
        "steps",
        "fit=fitted",
        "forecast=fitted.outlook",
        "charts",
        "group_size",
        "stability",
        "rollouts",
        "prompts",
        "settings",
        "unknown_settings",
        "columns=meanings",
        "notes",
        "sources",
    )

    name: str  # of the run, cleaned
    judgement: Judgement  # how it stands, and why
    screen: Screen  # what the first screen shows
    fitted: Fitted  # the metric with its fit and outlook
    first_step: int  # of the rows used
    last_step: int  # of the rows used
    rows: int  # rows used
    until: float | None  # last step that was to be used, or None
    charts: dict[str, tuple[Chart, ...]]  # by section: "forecast"
    no_forecast: str  # why there is none, "" where there is one
    group_size: GroupSizeEvidence  # what the run says of it
    stability: StabilityEvidence  # what the run says of it
    rollouts: Held | None  # the completions that the page holds, or None
    replay: RunReplay | None  # None without rollouts, or where none is live
    prompts: PromptTable  # which of them teach
    settings: dict[str, dict[str, str]]  # value and source of each that is known
    unknown_settings: tuple[str, ...]  # names of the others
    meanings: tuple[dict[str, str], ...]  # column, quantity, definition, doubt of each logged key
    notes: tuple[str, ...]  # of the reader and of the fit
    sources: tuple[JsonObject, ...]  # path, reader, bytes, rows and note of each file

    @property
    def law_answers(self) -> bool:
        """Whether a law holds whose plateau is known, of a run that did not fail."""
        fit = self.fitted.fit
        return fit is not None and fit.status == "converged" and not self.judgement.alarm

    @property
    def steps(self) -> dict[str, float | None]:
        """The rows used."""
        return {
            "first": self.first_step,
            "last": self.last_step,
            "rows": self.rows,
            "until": self.until,
        }


def page_room(runs: int, completions: int = HELD) -> tuple[int, int]:
    """Return the points of a line and the completions of each of so many runs on a page: with
    many, each has fewer of both.
    """
    return max(_FEWEST_POINTS, POINTS // runs), min(completions, max(_FEWEST_HELD, HELD // runs))


@on_one_thread
def summarise(
    record: RunRecord,
    *,
    metric: str | None = None,
    until: float | None = None,
    at: Sequence[float] | None = None,
    forecast_level: float = 0.9,
    room: tuple[int, int] = (POINTS, HELD),
    opened: Path | None = None,
    ended: bool | None = None,
) -> Summary:
    """Summarise a run.

    Args:
        record: the run.
        metric: what to judge by; the reward where None.
        until: last step to use, or None for all.
        at: steps to forecast at, or None for a few beyond the last.
        forecast_level: nominal coverage of the forecast's bands.
        room: the largest number of points of a drawn line, and of completions that the page holds;
            with 0 no text of a prompt either.
        opened: what the run was read from; its files are shown from there on, and components are
            looked for beside it.
        ended: whether the run is over, as `judge` takes it.

    Returns:
        The summary; what cannot be said is said to be unavailable.

    Raises:
        MissingMetricError: the metric is not in the log.
        InvalidArgumentError: an argument is out of its range.

    Example:
        >>> from groupwise.record.table import steps_table
        >>> reward = [0.8 - 0.6 * 0.9**t + 0.01 * (-1) ** t for t in range(60)]
        >>> summarise(RunRecord("demo", steps_table(range(60), {"reward": reward}))).judgement.alarm
        False
    """
    fitted = _fitted(record, metric or "reward", until=until, ahead=Ahead(at, forecast_level))
    used = cut(record, until)
    judgement = judge(used, ended=ended)
    none_shown = no_forecast(judgement, fitted.problem)
    if none_shown:
        fitted = replace(fitted, outlook=None)
    groups = group_evidence(used)
    points, completions = room
    group_size = group_size_evidence(used, opened=opened, until=until)
    stability = stability_evidence(used, fitted)
    forecast = None if none_shown else forecast_chart(fitted, points=points)
    charts: dict[str, tuple[Chart, ...]] = {"forecast": () if forecast is None else (forecast,)}
    return Summary(
        name=clean(record.name) or "unnamed run",
        judgement=judgement,
        screen=screen_of(used, fitted, groups, judgement, points=points),
        fitted=fitted,
        first_step=int(used.steps["step"][0]),
        last_step=int(used.steps["step"][-1]),
        rows=len(used.steps),
        until=until,
        charts=charts,
        no_forecast=none_shown,
        group_size=group_size,
        stability=stability,
        rollouts=held_rollouts(used, most=completions) if completions else None,
        replay=replay_of_rollouts(used),
        prompts=prompt_table(used) if completions else PromptTable(""),
        settings={
            name: {"value": clean(setting.value), "source": clean(setting.source)}
            for name, setting in record.config.known().items()
        },
        unknown_settings=record.config.unknown(),
        meanings=_meanings(record),
        notes=_notes(record, fitted),
        sources=_sources(record, opened),
    )


def _fitted(record: RunRecord, metric: str, **choices: Any) -> Fitted:
    """Fit the metric; a log without a reward has nothing to fit and still has a page that says
    what to log.
    """
    try:
        return fit_metric(record, metric, **choices)
    except MissingMetricError as error:
        if metric != "reward":
            raise
        return nothing_fitted(metric, str(error))


def _meanings(record: RunRecord) -> tuple[dict[str, str], ...]:
    """Return what each logged key means, with the doubts."""
    return tuple(
        {
            "column": clean(meaning.column),
            "quantity": clean(meaning.quantity),
            "definition": clean(meaning.definition, longest=400),
            "doubt": "carries nothing here"
            if meaning.unavailable
            else "ambiguous"
            if meaning.ambiguous
            else "",
        }
        for meaning in record.meanings
    )


def _sources(record: RunRecord, opened: Path | None) -> tuple[JsonObject, ...]:
    """Return the files, named from the run's own name on: a page is for others, who have no
    business with our folders.
    """
    return tuple(
        {
            "path": clean(shown_path(source.path, opened), longest=400),
            "reader": clean(source.reader),
            "bytes": source.bytes,
            "rows": source.rows,
            "note": clean(source.note, longest=400),
        }
        for source in record.sources
    )


def _notes(record: RunRecord, fitted: Fitted) -> tuple[str, ...]:
    """Return the notes of reader, series and fit, each once."""
    notes = [*record.notes, f"Sampling noise: {fitted.series.noise_source}."]
    if fitted.fit is not None:
        notes += map(readable, fitted.fit.notes)
    return tuple(dict.fromkeys(clean(note, longest=500) for note in notes))
