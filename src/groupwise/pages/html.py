"""Render summaries as one offline page: the judgement first, what it rests on below: forecast,
law, group size, stability, method.

Every text is escaped, styles and script are allowed by their hash alone, nothing is requested. It
computes nothing.
"""

import base64
import datetime as dt
import hashlib
import html
import os
import platform
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from groupwise.analysis.charts import Chart
from groupwise.analysis.fitted import THIS_LAW, ahead, gained
from groupwise.analysis.plan import size_named
from groupwise.analysis.stability import StabilityEvidence
from groupwise.analysis.summary import Screen, Summary
from groupwise.diagnostics.judgement import WORST_FIRST, Environments, Finding, Judgement, Status
from groupwise.pages.markup import FILES, Markup, breakable, filled, isolated, join, page_file, tag
from groupwise.pages.screen import actions_said, beside_the_cause, check_title, head_of, said_of
from groupwise.pages.tables import (
    Grid,
    candidate_grid,
    component_grid,
    cost_grid,
    evidence_grid,
    explained,
    forecast_grid,
    outlook_grid,
    parameter_grid,
    plan_grid,
    prompt_grid,
    replay_grids,
)
from groupwise.parsing import JsonObject, JsonView
from groupwise.plain import to_json
from groupwise.wording import capital, clean, count, file_size, law_name, number, sentence

_NOTHING = Markup("")
_ANSWERS = {Status.NONE: "no sign of a problem", Status.NOT_LOGGED: "not logged"}


def run_section(summary: Summary, index: int, *, several: bool) -> Markup:
    """Return the section of one run; what has no answer is one line."""
    path = f"runs/{index}"
    others = _grid_of(summary.screen.others, f"{path}/screen/others", f"run-{index}", "grid")
    asked = (
        ("Forecast", _forecast(summary, path), not summary.no_forecast),
        ("Law", _law(summary), summary.law_answers),
        ("Stability", _stability(summary.stability), summary.stability.answers),
        ("Group size", _group_size(summary), not summary.group_size.missing),
        ("Cost", _cost(summary.judgement), True),
        ("Rollouts", _rollouts(summary, path), True),
        ("Prompts", _prompts(summary), True),
        ("Other sampling choices", _replay(summary), True),
        ("Other signals", others, True),
    )
    method = join(_notes(summary), _settings(summary), _columns(summary), _sources(summary))
    missing = [(title, content) for title, content, ok in asked if not ok and content.source]
    unanswered = ", ".join(title.lower() for title, _ in missing)
    reasons = [part for title, content in missing for part in (tag("h2", title), content)]
    first = _first_screen(summary, path, "h2" if several else "h1")
    rest = join(
        *(_section(title, content) for title, content, answers in asked if answers),
        _folded(f"The log has no answer on {unanswered}", *reasons),
        _section("How this was computed", method),
        separator="\n",
    )
    titles = [title.lower() for title, content, answers in asked if answers and content.source]
    rest = _folded(", ".join((*titles, "method")).capitalize(), rest) if several else rest
    return tag("article", first, rest, class_="run", id=f"run-{index + 1}")


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    numbers: Collection[int] = (),
    keys: Collection[int] = (),
    unbroken: Collection[int] = (),
    best: int = -1,
) -> Markup:
    """Return a table, or nothing without rows."""
    kinds = {"n": numbers, "key": keys, "unit": unbroken}

    def kind(column: int) -> str:
        return next((name for name, columns in kinds.items() if column in columns), "")

    top = (
        tag("th", name, class_="n" if i in numbers else "", scope="col") if name else tag("td")
        for i, name in enumerate(head)
    )
    body = [
        tag(
            "tr",
            *(tag("td", cell, class_=kind(i)) for i, cell in enumerate(row)),
            class_="best" if place == best else "",
        )
        for place, row in enumerate(rows)
    ]
    content = tag("table", tag("thead", tag("tr", *top)), tag("tbody", *body))
    label = "Table: " + ", ".join(filter(None, head))
    region = tag("div", content, class_="scroll", role="region", tabindex="0", aria_label=label)
    return region if body else _NOTHING


def grid(texts: Grid, *, wraps: Mapping[int, tuple[str, str]] | None = None) -> Markup:
    """Return a table of texts; cells of the columns in `wraps` are set in an element of a class."""
    elements = wraps or {}

    def cell(column: int, content: str) -> Markup | str:
        name, kind = elements.get(column, ("", ""))
        return tag(name, content, class_=kind) if name else content

    rows = [[cell(column, content) for column, content in enumerate(row)] for row in texts.rows]
    return table(texts.head, rows, numbers=texts.numbers, best=texts.best)


def figure(chart: Chart, path: str, sync: str = "") -> Markup:
    """Return the place of a chart, which the page's script draws, with what is to be said of it."""
    kind = "panel small" if chart.small else "panel"
    parts = [tag("div", data_chart=path, data_sync=sync, class_=kind)]
    if (chart.caption or chart.subject) and not chart.small and chart.key != "reward":
        key: Sequence[object] = ()
        if chart.subject:
            key = " Key: ", tag("span", isolated(chart.subject), class_="key"), "."
        parts.append(tag("figcaption", chart.caption, *key))
    return tag("figure", *parts, class_="wide" if chart.wide else "")


def _section(title: str, content: Markup) -> Markup:
    """Return a section with its heading, or nothing where it has no content."""
    return tag("section", tag("h2", title), content) if content.source else _NOTHING


def _grid_of(charts: Sequence[Chart], path: str, sync: str, kind: str) -> Markup:
    """Return small charts side by side on one axis of steps, with what each key means."""
    figures = [figure(chart, f"{path}/{place}", sync) for place, chart in enumerate(charts)]
    return tag("div", *figures, class_=kind) if figures else _NOTHING


def _folded(title: str, *content: Markup, open_: bool = False) -> Markup:
    """Return content that opens on demand, or nothing where there is none."""
    if not join(*content).source:
        return _NOTHING
    return tag("details", tag("summary", title), *content, open="open" if open_ else "")


def _listed(lines: Iterable[object]) -> Markup:
    """Return lines as a list, or nothing without any."""
    items = [tag("li", line) for line in lines]
    return tag("ul", *items, class_="notes") if items else _NOTHING


def _first_screen(summary: Summary, path: str, heading: str) -> Markup:
    """Return banner, what is said and to do, tiles, the reward and sparklines."""
    judged, screen = summary.judgement, summary.screen
    sync = path.replace("runs/", "run-")
    tiles = [
        tag("div", tag("dt", tile.name), tag("dd", tile.value, tag("small", tile.more)))
        for tile in screen.tiles
    ]
    parts = [
        _banner(summary, heading),
        _todo(judged, screen),
        tag("dl", *tiles, class_="tiles") if tiles else _NOTHING,
        tag("div", data_axes=f"{path}/screen", class_="axes") if screen.axes else _NOTHING,
        figure(screen.chart, f"{path}/screen/chart", sync)
        if screen.chart.lines and screen.tiles
        else _NOTHING,
        _grid_of(screen.sparks, f"{path}/screen/sparks", sync, "sparks"),
        _usual(screen.sparks),
        tag("noscript", _numbers(screen)) if screen.rows else _NOTHING,
        _NOTHING if judged.environments is None else _environments(judged.environments),
    ]
    return tag("div", join(*parts, separator="\n"), class_="first")


def _usual(charts: Sequence[Chart]) -> Markup:
    """Return what the grey bands are."""
    bands = [f"{chart.title}, {chart.lines[0].band}" for chart in charts if chart.lines[0].band]
    caption = f"The grey bands are only for orientation: {'; '.join(bands)}."
    return tag("p", caption, class_="usual") if bands else _NOTHING


def _environments(each: Environments) -> Markup:
    """Return the reward of every environment or seat on its own, the worst first."""
    rows = [
        [
            isolated(member.name),
            member.course,
            number(member.before),
            number(member.after),
            "–" if member.step is None else f"{member.step:,}",
        ]
        for member in each.worst
    ]
    head = (capital(each.worst[0].kind), "Reward", "Before", "Now", "From step")
    caption = f"{count(each.count, each.worst[0].kind)}: {each.said}"
    return _folded(caption, table(head, rows, numbers={2, 3, 4}), open_=each.fell > 0)


def _banner(summary: Summary, heading: str) -> Markup:
    """Return state and headline in the state's colour, with the run's name."""
    judged = summary.judgement
    headline = tag(
        heading, tag("b", head_of(judged.state)), " · ", "; ".join(beside_the_cause(judged))
    )
    rows, until = summary.steps, summary.steps["until"]
    cut = f", steps after {until:,.0f} are ignored" if until is not None else ""
    span = f"{count(rows['rows'], 'row')}, step {rows['first']:,} to {rows['last']:,}{cut}"
    name = tag("p", breakable(summary.name), tag("small", span), class_="run-name")
    return tag("header", headline, name, class_=f"banner {judged.state}")


def _todo(judged: Judgement, screen: Screen) -> Markup:
    """Return what the judgement says, with settings, checks and numbers folded below."""
    lines = said_of(judged) or [("do", "this run needs no change")]
    said = tag(
        "dl",
        *(tag("div", tag("dt", label), tag("dd", isolated(words))) for label, words in lines),
        class_="lines",
    )
    checks = table(
        ("Check", "Answer", "From step", "Said"),
        map(_check, judged.checks),
        numbers={2},
        unbroken={1},
    )
    folds = (
        _folded("settings", _settings_to_copy(judged)),
        _folded("checks", checks),
        _folded("numbers", _numbers(screen)),
    )
    return tag("div", said, *folds, class_="todo")


def _settings_to_copy(judged: Judgement) -> Markup:
    """Return the actions, and a button that copies their settings."""
    settings = "\n".join(setting for action in judged.actions for setting in action.settings)
    copy = tag("button", "Copy", type="button", data_copy=settings) if settings else _NOTHING
    return join(_listed(actions_said(judged)), copy)


def _check(finding: Finding) -> tuple[object, ...]:
    """Return the cells of one check."""
    answer = finding.message or (f"Log {finding.log}." if finding.log else "")
    return (
        check_title(finding.check),
        tag(
            "span",
            _ANSWERS.get(finding.status, finding.status),
            class_=f"answer {finding.status}",
        ),
        "–" if finding.step is None else f"{finding.step:,}",
        sentence(answer),
    )


def _numbers(screen: Screen) -> Markup:
    """Return every signal in numbers."""
    rows = [
        [
            isolated(row.name),
            row.first,
            row.before or "–",
            row.now,
            row.low,
            row.high,
            row.rows,
        ]
        for row in screen.rows
    ]
    head = ("Signal", "At the start", "Before the first sign", "Now", "Lowest", "Highest", "Rows")
    return table(head, rows, numbers=range(1, 7))


def _forecast(summary: Summary, path: str) -> Markup:
    """Return law and forecast as a chart, its numbers folded; or why there is none."""
    outlook = summary.fitted.outlook
    if outlook is None:
        return tag("p", summary.no_forecast)
    lead = tag("p", f"{ahead(summary.fitted, summary.judgement)} {gained(summary.fitted)}")
    return join(
        lead,
        *(
            figure(chart, f"{path}/charts/forecast/{place}")
            for place, chart in enumerate(summary.charts["forecast"])
        ),
        _folded("numbers", grid(forecast_grid(outlook))),
    )


def _law(summary: Summary) -> Markup:
    """Return what the fit says, and behind a fold its parameters and the candidate laws."""
    fit = summary.fitted.fit
    if summary.fitted.problem:
        return _NOTHING
    weights = f"{explained(fit)}. A high R² alone shows no inertia; the weights compare the laws."
    lead = tag("p", summary.fitted.law_said(summary.judgement))
    title = tag("h3", f"Parameters, {THIS_LAW}: {law_name(fit.law)}")
    parameters = grid(parameter_grid(fit), wraps={3: ("span", "unit"), 4: ("small", "meaning")})
    first = (title, parameters) if fit.status != "non_stationary" else ()
    laws = tag("h3", "Candidate laws"), grid(candidate_grid(fit)), tag("p", weights)
    return join(lead, _folded("numbers", *first, *laws))


def _group_size(summary: Summary) -> Markup:
    """Return the plan with its components, or else what rewards alone say; tables folded."""
    evidence, grids = summary.group_size, []
    if evidence.plan:
        grids += [
            tag("h3", "Group sizes at this budget"),
            grid(plan_grid(evidence.plan, evidence.plan.shown_sizes)),
        ]
    if evidence.components:
        grids += [
            tag("h3", "Variance components of the gradient"),
            grid(component_grid(evidence.components)),
        ]
    if evidence.rewards and evidence.rewards.zero_variance:
        grids.append(grid(outlook_grid(evidence.rewards.zero_variance)))
    notes = _listed(map(isolated, evidence.notes))
    answers = filter(None, (*evidence.said, size_named(summary.judgement), evidence.missing))
    return join(*(tag("p", answer) for answer in answers), _folded("numbers", *grids, notes))


def _stability(evidence: StabilityEvidence) -> Markup:
    """Return how far the run is from instability, or what would have to be known to say it."""
    if evidence.mode is None:
        open_ = evidence.verdict == "open" or evidence.unavailable
        return tag("p", isolated(evidence.conclusion)) if open_ else _NOTHING
    grids = grid(evidence_grid(evidence)), _listed(map(isolated, evidence.all_notes))
    return join(tag("p", evidence.conclusion), _folded("numbers", *grids))


def _cost(judged: Judgement) -> Markup:
    """Return what the run took, what of it came after the first sign, and what is to come."""
    spent = judged.spent
    if spent is None or not (spent.amounts or spent.missing):
        return _NOTHING
    said = f"{capital(spent.missing)}."
    missing = tag("p", said, class_="small") if spent.missing else _NOTHING
    return join(grid(cost_grid(judged)), missing)


def _rollouts(summary: Summary, path: str) -> Markup:
    """Return the place of the completions, which the page's script shows, and a line in their
    place on paper or without scripts.
    """
    if summary.rollouts is None:
        return _NOTHING
    unseen = f"{summary.rollouts.said} Open this page in a browser with scripts to read them."
    viewer = tag("div", data_viewer=f"{path}/rollouts", class_="viewer")
    return join(viewer, tag("p", unseen, class_="missing"))


def _prompts(summary: Summary) -> Markup:
    """Return which prompts teach."""
    prompts = summary.prompts
    if not prompts.rows:
        return _NOTHING
    every = sum(number for _, number in prompts.standings)
    named = f"Prompts: {len(prompts.rows)} of {every:,}, those with a gradient first"
    return join(
        tag("p", prompts.said),
        _folded(named, grid(prompt_grid(prompts), wraps={0: ("bdi", "key")})),
    )


def _replay(summary: Summary) -> Markup:
    """Return what the run would have cost under other choices."""
    run = summary.replay
    if run is None or run.replay is None:
        return _NOTHING
    parts = (*map(grid, replay_grids(run)), _listed(run.notes))
    return join(tag("p", run.status), _folded("numbers", *parts))


def _notes(summary: Summary) -> Markup:
    """Return how the numbers come about, and what had to be decided."""
    method = (
        "Laws are fitted by weighted least squares; the noise is white noise plus AR(1) noise. "
        "Intervals are profile-likelihood intervals. Forecasts use no law, and their bands are "
        "as wide as the errors on public runs and a drifting mean require. Time is measured in "
        "optimiser updates, for a forecast in the sum of logged learning rates, and is shown in "
        "logged steps."
    )
    return _folded("Method and notes", _listed((method, *map(sentence, summary.notes))))


def _settings(summary: Summary) -> Markup:
    """Return the settings with where each was found."""
    rows = [
        [name.replace("_", " "), isolated(setting["value"]), isolated(setting["source"])]
        for name, setting in summary.settings.items()
    ]
    settings = table(["Setting", "Value", "Source"], rows)
    unknown = ", ".join(name.replace("_", " ") for name in summary.unknown_settings)
    rest = f"These settings are unknown: {unknown}. Give --set NAME=VALUE or --config FILE."
    return _folded(
        f"Settings: {len(rows)} known, {len(summary.unknown_settings)} unknown",
        settings,
        tag("p", rest, class_="small") if unknown else _NOTHING,
    )


def _columns(summary: Summary) -> Markup:
    """Return what each logged key means."""
    rows = [
        [
            isolated(meaning["column"]),
            meaning["quantity"] or "unknown",
            isolated(meaning["definition"] + f" ({meaning['doubt']})" * bool(meaning["doubt"])),
        ]
        for meaning in summary.meanings
    ]
    body = table(["Key", "Read as", "Definition"], rows, keys={0})
    unknown = summary.unknown_columns
    rest = (
        f"{count(len(unknown), 'key')} without a known meaning: {', '.join(unknown)}. Give "
        "--column QUANTITY=KEY."
    )
    return _folded(
        f"Meaning of logged keys: {len(rows)} known, {len(unknown)} unknown",
        body,
        tag("p", rest, class_="small") if unknown else _NOTHING,
    )


def _sources(summary: Summary) -> Markup:
    """Return the files."""
    rows = [
        [
            isolated(source["path"]),
            source["reader"],
            file_size(source["bytes"]),
            f"{source['rows']:,}",
            isolated(source["note"]),
        ]
        for source in summary.sources
    ]
    body = table(["File", "Reader", "Size", "Rows", ""], rows, numbers={2, 3}, keys={0})
    return _folded(count(len(rows), "file"), body)


_PACKAGES = ("numpy", "scipy", "polars")


def render(summaries: Sequence[Summary], *, provenance: JsonView | None = None) -> str:
    """Render a page.

    Args:
        summaries: one a run, at least one; the page shows the worst first.
        provenance: as `made_by` gives it; made here where None.

    Returns:
        A whole HTML document, in UTF-8, that needs nothing but itself.

    Example:
        >>> from groupwise.record.run import RunRecord
        >>> from groupwise.analysis.summary import summarise
        >>> from groupwise.record.table import steps_table
        >>> reward = [0.8 - 0.6 * 0.9**t + 0.01 * (-1) ** t for t in range(60)]
        >>> page = render(
        ...     [summarise(RunRecord("demo", steps_table(range(60), {"reward": reward})))]
        ... )
        >>> page.startswith("<!doctype html>"), "http" in page.replace("http-equiv", "")
        (True, False)
    """
    made = provenance or made_by(())
    several = len(summaries) > 1
    summaries = sorted(summaries, key=lambda summary: WORST_FIRST.index(summary.judgement.state))
    runs = join(
        *(run_section(summary, index, several=several) for index, summary in enumerate(summaries))
    )
    title = f"{f'{len(summaries)} runs' if several else summaries[0].name} – groupwise"
    results = {"provenance": made, "runs": summaries}
    body = join(_overview(summaries), runs) if several else runs
    return document(title, body, results, provenance=made)


def document(
    title: str, body: Markup, results: JsonView, *, provenance: JsonView, kind: str = "report"
) -> str:
    """Return a whole page around its content."""
    styles, scripts = FILES[f"{kind}.css"], FILES[f"{kind}.js"]
    css, script = "".join(map(page_file, styles)), "".join(map(_script, scripts))
    results = {"groupwise": provenance["packages"]["groupwise"], **results}
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(css, script)}">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n<meta '
        'name="referrer" content="no-referrer">\n'
        f"<title>{html.escape(title)}</title>\n<style>{css}</style>\n</head>\n<body>\n"
        f'<header class="brand"><span><b>groupwise</b> {kind}</span>'
        f"<span>{html.escape(provenance['date'])}</span></header>\n<main>\n{body}\n</main>\n"
        f'{_footer(provenance)}\n<script type="application/json" '
        f'id="groupwise-results">{embedded(results)}</script>\n'
        f"<script>{script}</script>\n</body>\n</html>\n"
    )


def embedded(value: Any) -> str:
    r"""Write JSON that can stand inside a `<script>` element: no character that HTML reads."""
    return to_json(value).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _policy(css: str, script: str) -> str:
    """Return the content security policy: our own style and script by hash, and nothing else."""
    return (
        f"default-src 'none'; style-src '{_hash(css)}'; script-src '{_hash(script)}'; base-uri "
        "'none'; form-action 'none'"
    )


def _hash(content: str) -> str:
    """Return the hash of inline content as a policy names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def _script(name: str) -> str:
    """Return a script; uPlot with its licence.

    The licence goes where the script goes, in place of the address in its first line: a page names
    none.
    """
    source = page_file(name)
    if "uPlot" not in name:
        return source
    licence = page_file("assets/uPlot.LICENSE")
    return f"/* uPlot 1.6.32\n{licence}*/\n{source[source.index('var uPlot') :]}"


def _overview(summaries: Sequence[Summary]) -> Markup:
    """Return the short table of the runs."""
    rows = [
        [
            tag("a", breakable(summary.name), href=f"#run-{place}"),
            tag("b", head_of(state := summary.judgement.state), class_=f"state {state}"),
            f"{summary.steps['last']:,}",
            *(
                next((tile.value for tile in summary.screen.tiles if tile.name == name), "–")
                for name in ("Now", "Peak")
            ),
            summary.judgement.headline,
        ]
        for place, summary in enumerate(summaries, start=1)
    ]
    head = ["Run", "State", "Last step", "Now", "Peak", "Headline"]
    runs = table(head, rows, numbers={2, 3, 4}, unbroken={1})
    return join(tag("h1", f"{len(summaries)} runs"), tag("div", runs, class_="runs"))


def _footer(provenance: JsonView) -> Markup:
    """Return how the page was made."""
    packages = ", ".join(f"{name} {version}" for name, version in provenance["packages"].items())
    made = f"{provenance['date']}, Python {provenance['python']}, {packages}."
    return filled("footer.html", command=provenance["command"], made=made)


def made_by(arguments: Sequence[str]) -> JsonObject:
    """Say how a page was made: versions, arguments and date."""
    from importlib.metadata import version

    from groupwise import __version__

    return {
        "command": clean(" ".join(("groupwise", *arguments)), longest=2000),
        "date": _date(),
        "python": platform.python_version(),
        "packages": {"groupwise": __version__} | {name: version(name) for name in _PACKAGES},
    }


def _date() -> str:
    """Return the date and time to the minute, UTC."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    now = (
        dt.datetime.fromtimestamp(int(epoch), dt.UTC)
        if epoch.isdigit()
        else dt.datetime.now(dt.UTC)
    )
    return now.strftime("%Y-%m-%d %H:%M UTC")
