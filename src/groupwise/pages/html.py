"""Render summaries as one offline page: the judgement first, what it rests on below.

Every text is escaped, styles and script are allowed by their hash alone, nothing is requested. It
computes nothing.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import html
import os
import platform
from collections.abc import Sequence
from typing import Any

from groupwise.analysis.fleet import WORST_FIRST
from groupwise.analysis.summary import Summary
from groupwise.pages import sections
from groupwise.pages.markup import Markup, breakable, join, page_file, tag, text
from groupwise.parsing import JsonObject, JsonView
from groupwise.plain import to_json
from groupwise.wording import clean

# Styles and scripts of a page by its kind; a list draws no chart.
_FILES = {
    "report": (
        ("assets/uPlot.min.css", "assets/panel.css", "assets/viewer.css", "page.css"),
        ("assets/uPlot.iife.min.js", "assets/panel.js", "assets/viewer.js", "page.js"),
    ),
    "fleet": (("page.css", "assets/list.css"), ("assets/list.js", "fleet.js")),
}
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
    made = made_by(()) if provenance is None else provenance
    several = len(summaries) > 1
    summaries = sorted(summaries, key=lambda summary: WORST_FIRST.index(summary.judgement.state))
    runs = join(
        [
            sections.run_section(summary, index, several=several)
            for index, summary in enumerate(summaries)
        ]
    )
    title = f"{f'{len(summaries)} runs' if several else summaries[0].name} – groupwise"
    results = {"groupwise": made["packages"]["groupwise"], "provenance": made, "runs": summaries}
    body = join((_overview(summaries), runs)) if several else runs
    return document(title, body, results, provenance=made)


def document(
    title: str, body: Markup, results: JsonView, *, provenance: JsonView, kind: str = "report"
) -> str:
    """Return a whole page around its content."""
    styles, scripts = _FILES[kind]
    css, script = "".join(map(page_file, styles)), "".join(map(_script, scripts))
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
            sections.tone(summary.judgement),
            text(f"{summary.last_step:,}"),
            *(
                text(next((tile.value for tile in summary.screen.tiles if tile.name == name), "–"))
                for name in ("Now", "Peak")
            ),
            text(summary.judgement.headline),
        ]
        for place, summary in enumerate(summaries, start=1)
    ]
    head = ["Run", "State", "Last step", "Now", "Peak", "Headline"]
    return join(
        (
            tag("h1", text(f"{len(summaries)} runs")),
            sections.table(head, rows, numbers={2, 3, 4}, unbroken={1}),
        )
    )


def _footer(provenance: JsonView) -> Markup:
    """Return how the page was made."""
    packages = ", ".join(f"{name} {version}" for name, version in provenance["packages"].items())
    command = join((text("Made by "), tag("span", text(provenance["command"]), class_="key")))
    made = text(f"{provenance['date']}, Python {provenance['python']}, {packages}.")
    promise = text(
        "This page needs no network and sends nothing. Its numbers are embedded as JSON in the "
        "element groupwise-results."
    )
    return tag("footer", join(tag("p", paragraph) for paragraph in (command, made, promise)))


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
