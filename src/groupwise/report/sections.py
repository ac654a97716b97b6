"""The sections of one run on the page: verdict, figures, tables, and how all of it was computed.

It arranges a summary as markup and computes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

from groupwise.analysis.charts import Chart, Line
from groupwise.analysis.group_size import shown_sizes
from groupwise.analysis.headline import THIS_LAW, facts_of, nothing_to_forecast, said_of
from groupwise.analysis.summary import Summary
from groupwise.diagnostics.former.findings import Diagnosis, Finding
from groupwise.intervals import percent
from groupwise.report.figures import Drawing, StyleSheet, draw
from groupwise.report.markup import Markup, isolated, join, tag, text
from groupwise.report.stability_tables import evidence_grid, limit_grid
from groupwise.report.tables import (
    Grid,
    baseline_grid,
    candidate_grid,
    causes_of,
    component_grid,
    forecast_grid,
    measured,
    parameter_grid,
    plan_grid,
    reward_grid,
    title_of,
    told,
    where,
)
from groupwise.wording import clean, count, file_size, law_name, number, ranged, sentence

NARROW = (430, 310)
_FEW = 8
_NOTHING = Markup("")


def run_section(summary: Summary, index: int, *, sheet: StyleSheet, several: bool) -> Markup:
    """Return the section of one run."""
    parts = [
        _opening(summary, several=several),
        _section("Diagnosis", diagnosis_section(summary.diagnosis)),
        _figures(summary, "metric", index, sheet),
        _section("What comes next", _forecast_table(summary)),
        _section("The law", _law_tables(summary)),
        _section("Reward by function, and evaluation", _figures(summary, "rewards", index, sheet)),
        _section("What the best law leaves over", _figures(summary, "residuals", index, sheet)),
        _section("Groups", _figures(summary, "groups", index, sheet)),
        _section("Group size", _group_size(summary, index, sheet)),
        _section("Stability", _stability(summary, index, sheet)),
        _section("Beside the reward", join((_figures(summary, "behaviour", index, sheet), _missing(summary)))),
        _section("How this was computed", join((_notes(summary), _settings(summary), _columns(summary), _sources(summary)))),
    ]
    return tag("article", join(parts, "\n"), class_="run", id=f"run-{index + 1}")


def tone(summary: Summary) -> Markup:
    """Return the verdict in two or three words with its sign."""
    return tag("span", text(summary.verdict.word), class_=f"tone {summary.verdict.tone}")


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[Markup]],
    *,
    numbers: Collection[int] = (),
    keys: Collection[int] = (),
    unbroken: Collection[int] = (),
    best: int = -1,
) -> Markup:
    """Return a table."""

    def kind(column: int) -> str:
        return "n" if column in numbers else "key" if column in keys else "unit" if column in unbroken else ""

    top = tag("tr", join(tag("th", text(name), class_="n" if i in numbers else "", scope="col") for i, name in enumerate(head)))
    body = join(
        tag("tr", join(tag("td", cell, class_=kind(i)) for i, cell in enumerate(row)), class_="best" if place == best else "")
        for place, row in enumerate(rows)
    )
    content = tag("table", join((tag("thead", top), tag("tbody", body))))
    label = "Table: " + ", ".join(name for name in head if name)
    return tag("div", content, class_="scroll", role="region", tabindex="0", aria_label=label)


def _section(title: str, content: Markup) -> Markup:
    """Return a section with its heading, or nothing where it has no content."""
    return tag("section", join((tag("h2", text(title)), content))) if content.source else _NOTHING


def _opening(summary: Summary, *, several: bool) -> Markup:
    """Return name, verdict and the four numbers."""
    span = f"{count(summary.rows, 'row')}, step {summary.first_step:,} to {summary.last_step:,}"
    cut = f", nothing after step {summary.until:,.0f} used" if summary.until is not None else ""
    name = tag("p", join((isolated(summary.name), text(f" · {span}{cut} · "), tone(summary))), class_="run-name")
    heading = tag("h2" if several else "h1", text(summary.verdict.headline), class_="headline")
    support = tag("p", text(" ".join(summary.verdict.sentences)), class_="lede")
    return tag("header", join((name, heading, support, _listed(facts_of(summary.fitted, summary.last_step)))))


def _listed(facts: Sequence[tuple[str, str, str]]) -> Markup:
    """Return facts as a list."""
    if not facts:
        return _NOTHING
    items = [(tag("dt", text(name)), tag("dd", join((text(value), tag("small", text(more)))))) for name, value, more in facts]
    return tag("dl", join(tag("div", join(item)) for item in items), class_="facts")


def _figures(summary: Summary, section: str, index: int, sheet: StyleSheet) -> Markup:
    """Return the figures of a section, wide ones alone and the others in a grid."""
    figures = [figure(chart, f"{index}/{section}/{place}", sheet) for place, chart in enumerate(summary.charts[section])]
    if not figures:
        return _NOTHING
    if all(chart.wide for chart in summary.charts[section]):
        return join(figures)
    return tag("div", join(figures), class_="grid")


def figure(chart: Chart, path: str, sheet: StyleSheet) -> Markup:
    """Return one figure, or the sentence that says why there is none."""
    title = tag("h3", isolated(chart.title))
    if chart.unavailable:
        return tag("div", join((title, tag("p", text(chart.unavailable), class_="missing"))))
    prefix = "c" + path.replace("/", "-")
    drawings = [_svg(chart, draw(chart, prefix=prefix, sheet=sheet), path)]
    if chart.wide:
        drawings.append(_svg(chart, draw(chart, prefix=prefix + "n", sheet=sheet, size=NARROW), path, class_="chart narrow"))
    parts = [title, _legend(chart), *drawings] if chart.wide else [title, *drawings, _legend(chart)]
    if chart.caption or chart.subject:
        key = [text(" Key: "), tag("span", isolated(chart.subject), class_="key"), text(".")] if chart.subject else []
        parts.append(tag("figcaption", join((text(chart.caption), *key))))
    return tag("figure", join(parts), class_="wide" if chart.wide else "")


def _svg(chart: Chart, drawing: Drawing, path: str, class_: str = "chart") -> Markup:
    """Return an inline SVG with its label and its scales."""
    numbers = {"data_box": drawing.box, "data_x": drawing.x_range, "data_y": drawing.y_range}
    data = {name: " ".join(f"{value:.6g}" for value in values) for name, values in numbers.items()}
    label = f"{chart.title}: {chart.y_label} against {chart.x_label}. {chart.caption} Arrow keys read values."
    return tag(
        "svg",
        Markup(drawing.svg),
        class_=class_,
        viewBox=f"0 0 {drawing.width} {drawing.height}",
        role="img",
        tabindex="0",
        aria_label=label,
        data_chart=path,
        **data,
    )


def _legend(chart: Chart) -> Markup:
    """Return the legend, where the one of the first figure does not say it already."""
    lines = [line for line in chart.lines if line.role != "plateau"]
    if chart.key.startswith("function") or {line.role for line in lines} <= {"observed", "averaged"}:
        return _NOTHING
    items = [(_swatch(line), isolated(line.name), text(f", {line.band}" if line.band else "")) for line in lines]
    return tag("ul", join(tag("li", join(item)) for item in items), class_="legend")


def _swatch(line: Line) -> Markup:
    """Return the sample of a line."""
    few = " few" if line.role == "observed" and len(line.x) <= 150 else ""
    band = " band" if line.low else ""
    only = " only" if line.low and (line.role in {"limit", "unstable", "unsafe"} or not any(value is not None for value in line.y)) else ""
    return tag("i", _NOTHING, class_=f"{line.role}{few}{band}{only}")


def _forecast_table(summary: Summary) -> Markup:
    """Return the forecast as a table."""
    outlook = summary.fitted.outlook
    fit = summary.fitted.fit
    if outlook is None or fit is None:
        return _NOTHING
    if nothing := nothing_to_forecast(summary.fitted):
        return tag("p", text(nothing))
    level = percent(outlook.result.level)
    gain = outlook.result.expected_gain
    said = f"Gain of the mean expected from step {outlook.gain_from:,.0f} to {outlook.gain_to:,.0f}: {ranged(gain)}, {level}."
    message = tag("p", text(said)) if math.isfinite(gain.value) else _NOTHING
    return join((message, grid(forecast_grid(outlook))))


def _law_tables(summary: Summary) -> Markup:
    """Return parameters with intervals, and the candidate laws."""
    fit = summary.fitted.fit
    if fit is None:
        return _NOTHING
    explained = f"R² {number(fit.r_squared)} of the raw variance"
    if math.isfinite(fit.r_squared_explainable):
        explained += f", {number(fit.r_squared_explainable)} of what sampling noise leaves to explain"
    lead = tag("p", text(f"{sentence(said_of(fit))} {explained}. A high R² alone shows no inertia; the weights compare the laws."))
    title = tag("h3", text(f"Parameters, {THIS_LAW}: {law_name(fit.law)}"))
    parameters = grid(parameter_grid(fit), wraps={3: ("span", "unit"), 4: ("small", "meaning")})
    first = join((title, parameters)) if fit.status != "non_stationary" else _NOTHING
    second = join((tag("h3", text("Candidate laws")), grid(candidate_grid(fit))))
    return join((lead, first, second))


def _group_size(summary: Summary, index: int, sheet: StyleSheet) -> Markup:
    """Return the plan with its components, or else what rewards alone say."""
    found = summary.group_size
    lead = join(tag("p", text(said)) for said in found.said)
    parts = [lead, _figures(summary, "group_size", index, sheet)] if found.components is not None else [lead]
    if found.plan is not None:
        parts += [tag("h3", text("Group sizes at this budget")), grid(plan_grid(found.plan, shown_sizes(found.plan)))]
    if found.components is not None:
        parts += [tag("h3", text("Variance components of the gradient")), grid(component_grid(found.components))]
    if found.plan is not None and found.baselines:
        parts += [tag("h3", text("Baselines at the batch in use")), grid(baseline_grid(found.baselines, found.plan))]
    if found.rewards is not None:
        parts += [grid(reward_grid(found.rewards.statistics)), _figures(summary, "group_size", index, sheet)]
    if found.notes and (found.said or not found.missing):
        parts.append(tag("ul", join(tag("li", isolated(note)) for note in found.notes), class_="notes"))
    elif found.notes:
        parts.append(join(tag("p", isolated(note), class_="missing") for note in found.notes))
    return join(parts)


def _stability(summary: Summary, index: int, sheet: StyleSheet) -> Markup:
    """Return how far the run is from instability, or what would have to be known to say it."""
    found = summary.stability
    if found.found is None:
        if found.verdict == "open":
            return tag("p", text(found.said))
        return tag("p", isolated(found.said), class_="missing") if found.unavailable else _NOTHING
    parts = [tag("p", text(found.said)), _figures(summary, "stability", index, sheet), grid(evidence_grid(found))]
    if found.limits:
        parts += [tag("h3", text("What each rule allows")), grid(limit_grid(found.limits))]
    return join((*parts, tag("ul", join(tag("li", isolated(note)) for note in found.all_notes), class_="notes")))


def grid(texts: Grid, *, wraps: Mapping[int, tuple[str, str]] | None = None) -> Markup:
    """Return a table of texts; cells of the columns in `wraps` are set in an element of a class."""
    elements = wraps or {}

    def cell(column: int, content: str) -> Markup:
        name, kind = elements.get(column, ("", ""))
        return tag(name, text(content), class_=kind) if name else text(content)

    rows = [[cell(column, content) for column, content in enumerate(row)] for row in texts.rows]
    return table(texts.head, rows, numbers=texts.numbers, best=texts.best)


def _missing(summary: Summary) -> Markup:
    """Return what the log does not hold."""
    said = "Not in this log. " + " ".join(summary.missing)
    return tag("p", text(said), class_="missing") if summary.missing else _NOTHING


def _notes(summary: Summary) -> Markup:
    """Return how the numbers come about, and what had to be decided."""
    method = (
        "Laws are fitted by weighted least squares; the noise is a white part plus an AR(1) part. Intervals are profile-likelihood; "
        "forecasts average the laws by their Akaike weights. Time runs in optimiser updates and is shown in logged steps."
    )
    fit = summary.fitted.fit
    lines = [method]
    if fit is not None:
        noise = fit.noise
        white, state = (number(math.sqrt(max(variance, 0.0))) for variance in (noise.white_variance, noise.state_variance))
        sampling = f"; sampling alone explains {number(math.sqrt(noise.sampling_variance))}" if noise.sampling_variance > 0 else ""
        correlation = f"correlation {number(noise.correlation)} per update"
        lines.append(f"Noise of one row: white {white}, autocorrelated {state} (standard deviations; {correlation}){sampling}.")
    return tag("ul", join(tag("li", text(line)) for line in (*lines, *map(sentence, summary.notes))), class_="notes")


def _settings(summary: Summary) -> Markup:
    """Return the settings with where each was found."""
    rows = [[text(row.name.replace("_", " ")), isolated(row.value), isolated(row.source)] for row in summary.settings]
    known = table(["Setting", "Value", "Found in"], rows) if rows else _NOTHING
    unknown = ", ".join(name.replace("_", " ") for name in summary.unknown_settings)
    rest = tag("p", text(f"Unknown: {unknown}. Give them with --set NAME=VALUE or --config FILE."), class_="small") if unknown else _NOTHING
    head = tag("summary", text(f"Settings: {len(rows)} known, {len(summary.unknown_settings)} unknown"))
    return tag("details", join((head, known, rest)), open="open" if 0 < len(rows) <= _FEW else "")


def _columns(summary: Summary) -> Markup:
    """Return what each logged key means."""
    if not summary.meanings:
        return _NOTHING
    rows = [
        [isolated(r.column), text(r.quantity or "unknown"), isolated(r.definition + (f" ({r.doubt})" if r.doubt else ""))]
        for r in summary.meanings
    ]
    content = table(["Key", "Read as", "Definition"], rows, keys={0})
    return tag("details", join((tag("summary", text(f"What each of the {len(rows)} logged keys means")), content)))


def _sources(summary: Summary) -> Markup:
    """Return the files."""
    rows = [[isolated(s.path), text(s.reader), text(file_size(s.bytes)), text(f"{s.rows:,}"), isolated(s.note)] for s in summary.sources]
    if not rows:
        return _NOTHING
    return join((tag("h3", text("Files")), table(["File", "Reader", "Size", "Rows", ""], rows, numbers={2, 3}, keys={0})))


_TONES = {"critical": "worse", "warning": "flat", "info": "nothing"}


def diagnosis_section(found: Diagnosis) -> Markup:
    """Return the content of the section."""
    parts = [tag("p", text(clean(found.sentence, longest=500)), class_="lede")]
    if found.causes:
        parts.append(tag("p", text(causes_of(found)), class_="small"))
    parts += [_block(finding) for finding in found.findings]
    folded = (
        ("Healthy", "check", [f"{title_of(healthy.check)}: {healthy.message}" for healthy in found.healthy]),
        ("Could not be looked at", "check", [f"{title_of(m.check)}: {m.reason}. Log {m.log_this}." for m in found.unavailable]),
        ("Measured besides", "number", [told(measure) for measure in found.measures if measure.value is not None]),
        ("Not measured", "number", [told(measure) for measure in found.measures if measure.value is None]),
    )
    parts += [_folded(f"{title}: {count(len(lines), noun)}", lines) for title, noun, lines in folded if lines]
    return join(parts, "\n")


def _block(finding: Finding) -> Markup:
    """Return one finding: what, since when, the number, what to do."""
    sign = tag("span", text(finding.severity), class_=f"tone {_TONES[finding.severity]}")
    head = tag("h3", join((sign, text(f" {title_of(finding.check)}, {where(finding)}"))))
    said = tag("p", text(clean(sentence(finding.message), longest=1000)))
    number = tag("p", text(f"Measured: {measured(finding)}."), class_="small")
    advice = tag("p", text(clean(sentence(finding.advice), longest=1000)))
    return tag("div", join((head, said, number, advice)), class_="finding")


def _folded(title: str, lines: list[str]) -> Markup:
    """Return lines that open on demand."""
    content = tag("ul", join(tag("li", text(clean(line, longest=500))) for line in lines), class_="notes")
    return tag("details", join((tag("summary", text(title)), content)))
