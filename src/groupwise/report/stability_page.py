"""A page, or a figure alone, on the stability of one setting: the map, where the mode stands, what each rule allows.

It arranges a judgement as the report arranges a run. It computes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from groupwise.analysis.charts import Chart
from groupwise.report.html import document
from groupwise.report.markup import isolated, join, tag, text
from groupwise.report.sections import figure, grid
from groupwise.report.tables import Grid


def stability_page(
    title: str, said: str, chart: Chart, grids: Sequence[Grid], notes: Sequence[str], *, results: Mapping[str, Any], made: Mapping[str, Any]
) -> str:
    """Render the page."""
    parts = [
        tag("p", isolated(title), class_="run-name"),
        tag("h1", text(said), class_="headline"),
        figure(chart, "chart"),
        *(grid(texts) for texts in grids),
        tag("ul", join(tag("li", isolated(note)) for note in notes), class_="notes"),
    ]
    embedded = {"groupwise": made["packages"]["groupwise"], "provenance": made, "stability": results, "chart": chart.as_dict()}
    return document("Stability – groupwise", tag("article", join(parts, "\n"), class_="run"), embedded, provenance=made)
