"""The summary of one run as plain data: the one source of the page, the terminal text and `--json`.

`summarise` asks the other parts, each once, and gathers their answers. Nothing is drawn or written here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupwise.analysis.charts import POINTS, Chart
from groupwise.analysis.evidence import (
    behaviour_charts,
    error_chart,
    evaluation_chart,
    group_charts,
    residual_charts,
    reward_chart,
    zero_variance_chart,
)
from groupwise.analysis.fitted import Fitted, cut, fit_metric, nothing_fitted
from groupwise.analysis.group_size import GroupSizeEvidence, group_size_evidence
from groupwise.analysis.headline import Verdict, verdict
from groupwise.analysis.stability import StabilityEvidence, stability_evidence
from groupwise.diagnostics.former import Evidence
from groupwise.diagnostics.former.checks import diagnosis_of
from groupwise.diagnostics.former.findings import Diagnosis
from groupwise.diagnostics.judge import judge
from groupwise.diagnostics.judgement import Judgement
from groupwise.errors import MissingMetricError
from groupwise.plain import Plain, plain
from groupwise.record.run import RunRecord
from groupwise.wording import clean, readable, shown_path

MOST_FUNCTIONS = 8


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One known setting: its name, value and where it was found."""

    name: str
    value: str
    source: str


@dataclass(frozen=True, slots=True)
class MeaningRow(Plain):
    """One logged key and what it means."""

    column: str
    quantity: str
    definition: str
    doubt: str


@dataclass(frozen=True, slots=True)
class SourceRow(Plain):
    """One file that was read."""

    path: str
    reader: str
    bytes: int
    rows: int
    note: str


@dataclass(frozen=True, slots=True)
class Summary(Plain):
    """Everything that a report says of one run."""

    name: str  # of the run, cleaned
    judgement: Judgement  # how it stands, and why
    verdict: Verdict  # what to hear first
    diagnosis: Diagnosis  # what is wrong, and why
    fitted: Fitted  # the metric with its fit and outlook
    functions: tuple[Fitted, ...]  # the same of each reward function
    first_step: int  # of the rows used
    last_step: int  # of the rows used
    rows: int  # rows used
    until: float | None  # last step that was to be used, or None
    # the evidence, by section: "metric", "rewards", "residuals", "groups", "group_size", "stability", "behaviour"
    charts: dict[str, tuple[Chart, ...]]
    group_size: GroupSizeEvidence  # what the run says of it
    stability: StabilityEvidence  # what the run says of it
    missing: tuple[str, ...]  # sentences on what the log does not hold
    settings: tuple[SettingRow, ...]  # the known ones
    unknown_settings: tuple[str, ...]  # names of the others
    meanings: tuple[MeaningRow, ...]  # of the logged keys
    notes: tuple[str, ...]  # of the reader and of the fit
    sources: tuple[SourceRow, ...]  # the files

    def as_dict(self) -> dict[str, Any]:
        """Everything on the page as plain data for JSON."""
        shown: dict[str, Any] = plain(
            {
                "run": self.name,
                "metric": self.fitted.metric,
                "quantity": self.fitted.quantity,
                "judgement": self.judgement,
                "steps": {"first": self.first_step, "last": self.last_step, "rows": self.rows, "until": self.until},
                "fit": self.fitted,
                "forecast": self.fitted.outlook,
                "functions": self.functions,
                "charts": self.charts,
                "group_size": self.group_size,
                "stability": self.stability,
                "missing": self.missing,
                "settings": {row.name: {"value": row.value, "source": row.source} for row in self.settings},
                "unknown_settings": self.unknown_settings,
                "columns": self.meanings,
                "notes": self.notes,
                "sources": self.sources,
            }
        )
        return shown


def summarise(
    record: RunRecord,
    *,
    metric: str | None = None,
    until: float | None = None,
    at: Sequence[float] | None = None,
    level: float = 0.95,
    forecast_level: float = 0.9,
    points: int = POINTS,
    opened: Path | None = None,
    ended: bool = True,
) -> Summary:
    """Summarise a run.

    Args:
        record: the run.
        metric: what to judge by; the reward where None.
        until: last step to use, or None for all.
        at: steps to forecast at, or None for a few beyond the last.
        level: nominal coverage of the parameters' intervals.
        forecast_level: nominal coverage of the forecast's bands.
        points: largest number of points of a drawn line.
        opened: what the run was read from; its files are shown from there on, and components are looked for beside it.
        ended: whether the run is over, as `judge` takes it.

    Returns:
        The summary; what cannot be said is said to be unavailable.

    Raises:
        MissingMetricError: the metric is not in the log.
        InvalidArgumentError: an argument is out of its range.

    Example:
        >>> from groupwise.record.table import steps_table
        >>> reward = [0.8 - 0.6 * 0.9**t + 0.01 * (-1) ** t for t in range(60)]
        >>> summarise(RunRecord("demo", steps_table(range(60), {"reward": reward}))).judgement.state.value
        'ok'
    """
    fitted = _fitted(record, metric or "reward", until=until, at=at, level=level, forecast_level=forecast_level)
    functions = _functions(record, fitted, until=until, level=level, forecast_level=forecast_level)
    used = cut(record, until)
    evidence = Evidence(used, fitted.by_law if metric in (None, "reward") else None)
    small = points // 2  # half the width needs no more
    behaviour, missing = behaviour_charts(used, points=small)
    group_size = group_size_evidence(used, opened=opened, until=until)
    stability = stability_evidence(used, fitted)
    charts = {
        "metric": (reward_chart(fitted, points=points),),
        "rewards": (
            *(reward_chart(f, key=f"function-{i}", wide=False, points=small) for i, f in enumerate(functions)),
            evaluation_chart(used, fitted, points=small),
        ),
        "residuals": tuple(residual_charts(fitted, points=small)),
        "groups": tuple(group_charts(evidence.groups, points=small)),
        "group_size": _group_size_charts(group_size, used),
        "stability": stability.charts,
        "behaviour": tuple(behaviour),
    }
    settings, unknown = _settings(record)
    return Summary(
        name=clean(record.name) or "unnamed run",
        judgement=judge(used, ended=ended),
        verdict=verdict(fitted),
        diagnosis=diagnosis_of(evidence, measured=True),
        fitted=fitted,
        functions=functions,
        first_step=int(used.steps["step"][0]),
        last_step=int(used.steps["step"][-1]),
        rows=len(used.steps),
        until=until,
        charts=charts,
        group_size=group_size,
        stability=stability,
        missing=(*missing, *([group_size.missing] if group_size.missing else [])),
        settings=settings,
        unknown_settings=unknown,
        meanings=_meanings(record),
        notes=_notes(record, fitted),
        sources=_sources(record, opened),
    )


def _fitted(record: RunRecord, metric: str, **asked: Any) -> Fitted:
    """Fit the metric; a log without a reward has nothing to fit and still has a page that says what to log."""
    try:
        return fit_metric(record, metric, **asked)
    except MissingMetricError as error:
        if metric != "reward":
            raise
        return nothing_fitted(metric, str(error))


def _functions(record: RunRecord, fitted: Fitted, *, until: float | None, level: float, forecast_level: float) -> tuple[Fitted, ...]:
    """Fit each reward function that is not the total itself."""
    if fitted.metric not in record.steps.columns:
        return ()
    columns = [m.column for m in record.meanings if m.quantity.startswith("reward/") and m.column != fitted.metric and not m.unavailable]
    total = record.steps[fitted.metric]
    logged = [c for c in dict.fromkeys(columns) if record.steps[c].count() and not record.steps[c].equals(total, null_equal=True)]
    return tuple(fit_metric(record, column, until=until, level=level, forecast_level=forecast_level) for column in logged[:MOST_FUNCTIONS])


def _group_size_charts(found: GroupSizeEvidence, record: RunRecord) -> tuple[Chart, ...]:
    """Chart the error over the group size, or else the share of zero-variance groups, where either is known."""
    if found.plan is not None:
        return (error_chart(found.plan),)
    if found.rewards is None:
        return ()
    statistics = found.rewards.statistics
    chart = zero_variance_chart(statistics, record.config.value("group_size") or statistics.group_size)
    return () if chart is None else (chart,)


def _settings(record: RunRecord) -> tuple[tuple[SettingRow, ...], tuple[str, ...]]:
    """Return the known settings and the names of the unknown ones."""
    known = record.config.known()
    rows = tuple(SettingRow(name, clean(setting.value), clean(setting.source)) for name, setting in known.items())
    return rows, tuple(name for name in type(record.config).__dataclass_fields__ if name not in known)


def _meanings(record: RunRecord) -> tuple[MeaningRow, ...]:
    """Return what each logged key means, with the doubts."""
    rows = []
    for meaning in record.meanings:
        doubt = "carries nothing here" if meaning.unavailable else "ambiguous" if meaning.ambiguous else ""
        rows.append(MeaningRow(clean(meaning.column), clean(meaning.quantity), clean(meaning.definition, longest=400), doubt))
    return tuple(rows)


def _sources(record: RunRecord, opened: Path | None) -> tuple[SourceRow, ...]:
    """Return the files, named from the run's own name on: a page is for others, who have no business with our folders."""
    return tuple(
        SourceRow(clean(shown_path(s.path, opened), longest=400), clean(s.reader), s.bytes, s.rows, clean(s.note, longest=400))
        for s in record.sources
    )


def _notes(record: RunRecord, fitted: Fitted) -> tuple[str, ...]:
    """Return the notes of reader, series, fit and forecast, each once."""
    notes = [*record.notes, f"Sampling noise: {fitted.series.noise_source}."]
    if fitted.fit is not None:
        notes += map(readable, fitted.fit.notes)
    if fitted.outlook is not None:
        notes += map(readable, fitted.outlook.result.notes)
    return tuple(dict.fromkeys(clean(note, longest=500) for note in notes))
