"""The summary of one run as plain data: the one source of the page, the terminal text and `--json`.

`summarise` asks the other modules and arranges their answers. It draws nothing and writes nothing.
"""

from __future__ import annotations

import datetime as dt
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupwise.analysis.charts import POINTS, Chart
from groupwise.analysis.evidence import behaviour_charts, evaluation_chart, group_charts, residual_charts, reward_chart
from groupwise.analysis.fitted import Fitted, cut, fit_metric
from groupwise.analysis.group_size import GroupSizeEvidence, group_size_evidence
from groupwise.analysis.headline import Verdict, verdict
from groupwise.analysis.stability import stability_evidence
from groupwise.analysis.stability_results import StabilityEvidence
from groupwise.diagnostics import diagnose
from groupwise.diagnostics.findings import Diagnosis
from groupwise.intervals import finite_or_none
from groupwise.record.run import RunRecord
from groupwise.series.groups import group_evidence
from groupwise.wording import clean, readable, shown_path

MOST_FUNCTIONS = 8
_PACKAGES = ("groupwise", "numpy", "scipy", "polars", "matplotlib")


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One known setting: its name, value and where it was found."""

    name: str
    value: str
    source: str


@dataclass(frozen=True, slots=True)
class MeaningRow:
    """One logged key and what it means."""

    column: str
    quantity: str
    definition: str
    doubt: str


@dataclass(frozen=True, slots=True)
class SourceRow:
    """One file that was read."""

    path: str
    reader: str
    bytes: int
    rows: int
    note: str


@dataclass(frozen=True, slots=True)
class Summary:
    """Everything that a report says of one run.

    Args:
        name: of the run, cleaned.
        verdict: what to hear first.
        diagnosis: what is wrong, and why.
        fitted: the metric with its fit and outlook.
        functions: the same of each reward function.
        first_step: of the rows used.
        last_step: of the rows used.
        rows: rows used.
        until: last step that was to be used, or None.
        charts: the evidence, by section: "metric", "rewards", "residuals", "groups", "group_size", "stability", "behaviour".
        group_size: what the run says of it.
        stability: what the run says of it.
        missing: sentences on what the log does not hold.
        settings: the known ones.
        unknown_settings: names of the others.
        meanings: of the logged keys.
        notes: of the reader and of the fit.
        sources: the files.
    """

    name: str
    verdict: Verdict
    diagnosis: Diagnosis
    fitted: Fitted
    functions: tuple[Fitted, ...]
    first_step: int
    last_step: int
    rows: int
    until: float | None
    charts: dict[str, tuple[Chart, ...]]
    group_size: GroupSizeEvidence
    stability: StabilityEvidence
    missing: tuple[str, ...]
    settings: tuple[SettingRow, ...]
    unknown_settings: tuple[str, ...]
    meanings: tuple[MeaningRow, ...]
    notes: tuple[str, ...]
    sources: tuple[SourceRow, ...]

    def as_dict(self) -> dict[str, Any]:
        """Everything on the page as plain data for JSON."""
        fitted = self.fitted
        return {
            "run": self.name,
            "metric": fitted.metric,
            "quantity": fitted.quantity,
            "verdict": self.verdict.as_dict(),
            "diagnosis": self.diagnosis.as_dict(),
            "steps": {"first": self.first_step, "last": self.last_step, "rows": self.rows, "until": self.until},
            "fit": fit_dict(fitted),
            "forecast": None if fitted.outlook is None else fitted.outlook.as_dict(),
            "functions": [fit_dict(function) for function in self.functions],
            "charts": {section: [chart.as_dict() for chart in charts] for section, charts in self.charts.items()},
            "group_size": self.group_size.as_dict(),
            "stability": self.stability.as_dict(),
            "missing": list(self.missing),
            "settings": {row.name: {"value": row.value, "source": row.source} for row in self.settings},
            "unknown_settings": list(self.unknown_settings),
            "columns": [_slots(row) for row in self.meanings],
            "notes": list(self.notes),
            "sources": [_slots(row) for row in self.sources],
        }


def fit_dict(fitted: Fitted) -> dict[str, Any]:
    """Return the keys of `groupwise fit --json` for a fitted metric."""
    if fitted.fit is None:
        return {"metric": fitted.metric, "n": len(fitted.series.value_T), "law": None, "status": None, "message": fitted.problem}
    fields = fitted.fit.as_dict()
    change = fitted.fit.change_time
    return {"metric": fitted.metric, **fields, "change_step": finite_or_none(fitted.clock.step(change))}


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

    Returns:
        The summary; what cannot be said is said to be unavailable.

    Raises:
        MissingMetricError: the metric is not in the log.
        InvalidArgumentError: an argument is out of its range.

    Example:
        >>> from groupwise.record.table import steps_table
        >>> reward = [0.8 - 0.6 * 0.9**t + 0.01 * (-1) ** t for t in range(60)]
        >>> summarise(RunRecord("demo", steps_table(range(60), {"reward": reward}))).verdict.tone
        'done'
    """
    fitted = fit_metric(record, metric or "reward", until=until, at=at, level=level, forecast_level=forecast_level)
    functions = _functions(record, fitted, until=until, level=level, forecast_level=forecast_level)
    used = cut(record, until)
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
        "groups": tuple(group_charts(group_evidence(used), points=small)),
        "group_size": group_size.charts,
        "stability": stability.charts,
        "behaviour": tuple(behaviour),
    }
    settings, unknown = _settings(record)
    return Summary(
        name=clean(record.name) or "unnamed run",
        verdict=verdict(fitted),
        diagnosis=diagnose(used, measured=True),
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


def _functions(record: RunRecord, fitted: Fitted, *, until: float | None, level: float, forecast_level: float) -> tuple[Fitted, ...]:
    """Fit each reward function that is not the total itself."""
    columns = [m.column for m in record.meanings if m.quantity.startswith("reward/") and m.column != fitted.metric and not m.unavailable]
    total = record.steps[fitted.metric]
    logged = [c for c in dict.fromkeys(columns) if record.steps[c].count() and not record.steps[c].equals(total, null_equal=True)]
    return tuple(
        fit_metric(record, column, until=until, level=level, forecast_level=forecast_level, with_rivals=False)
        for column in logged[:MOST_FUNCTIONS]
    )


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


def _slots(row: SettingRow | MeaningRow | SourceRow) -> dict[str, Any]:
    """Return a row as a mapping."""
    return {name: getattr(row, name) for name in type(row).__slots__}


def provenance(arguments: Sequence[str]) -> dict[str, Any]:
    """Say how a page was made: versions, arguments and date."""
    import importlib.metadata

    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            from groupwise import __version__

            versions[package] = __version__ if package == "groupwise" else "not installed"
    return {
        "command": clean(" ".join(("groupwise", *arguments)), longest=2000),
        "date": _date(),
        "python": platform.python_version(),
        "packages": versions,
    }


def _date() -> str:
    """Return the date and time to the minute, UTC."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    now = dt.datetime.fromtimestamp(int(epoch), dt.UTC) if epoch.isdigit() else dt.datetime.now(dt.UTC)
    return now.strftime("%Y-%m-%d %H:%M UTC")
