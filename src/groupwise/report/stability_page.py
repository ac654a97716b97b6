"""A page, or a figure alone, on the stability of one setting: the map, where the mode stands, what each rule allows.

It arranges a judgement as the report arranges a run. It computes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from groupwise.analysis.charts import Chart
from groupwise.report.figures import COLOURS, new_sheet, standalone
from groupwise.report.html import document
from groupwise.report.markup import isolated, join, tag, text
from groupwise.report.sections import figure, grid
from groupwise.report.tables import Grid


def stability_page(
    title: str, said: str, chart: Chart, grids: Sequence[Grid], notes: Sequence[str], *, results: Mapping[str, Any], made: Mapping[str, Any]
) -> str:
    """Render the page."""
    sheet = new_sheet()
    parts = [
        tag("p", isolated(title), class_="run-name"),
        tag("h1", text(said), class_="headline"),
        figure(chart, "0/stability/0", sheet),
        *(grid(texts) for texts in grids),
        tag("ul", join(tag("li", isolated(note)) for note in notes), class_="notes"),
    ]
    embedded = {"groupwise": made["packages"]["groupwise"], "provenance": made}
    embedded["runs"] = [{**results, "charts": {"stability": [chart.as_dict()]}}]
    return document("Stability – groupwise", tag("article", join(parts, "\n"), class_="run"), embedded, sheet=sheet, provenance=made)


def stability_svg(chart: Chart) -> str:
    """Render the map alone, for papers and slides: light colours, with a legend in words below."""
    return standalone(chart, prefix="map", samples=_SAMPLES)


_SAMPLES = {
    "unstable": f'<rect width="20" height="9" y="-8" fill="{COLOURS["bad"]}" opacity=".12"/>',
    "unsafe": f'<rect width="20" height="9" y="-8" fill="{COLOURS["bad"]}" opacity=".4"/>',
    "law": f'<path d="M0-4h20" stroke="{COLOURS["law"]}" stroke-width="2"/>',
    "rival": f'<path d="M0-4h20" stroke="{COLOURS["rival"]}" stroke-width="1.6" stroke-dasharray="1.4 2.2"/>',
    "second_rival": f'<path d="M0-4h20" stroke="{COLOURS["rival"]}" stroke-width="1.6" stroke-dasharray="8 2.6 1.4 2.6"/>',
    "here": f'<circle cx="10" cy="-4" r="4.5" fill="{COLOURS["evaluation"]}" stroke="{COLOURS["ink"]}" stroke-width="1.6"/>',
}
