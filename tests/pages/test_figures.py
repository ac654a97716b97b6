"""Figures of matplotlib: whole SVG documents in which texts are texts, the same every time."""

from __future__ import annotations

import typing
from xml.etree import ElementTree as ET

import pytest

from groupwise.analysis.charts import Chart, Line, Mark, Role
from groupwise.pages.figures import figure_of, standalone

HOSTILE = "</svg><script>alert(1)</script> $\\frac$ & \"'"


def chart(**changes: typing.Any) -> Chart:
    lines = (
        Line("logged", "observed", (1, 2, 4), (0.1, None, 0.3)),
        Line(
            "law", "law", (1, 2, 4), (0.1, 0.2, 0.3), (0.0, 0.1, 0.2), (0.2, 0.3, 0.4), "95 % band"
        ),
    )
    return Chart(
        **(
            {
                "key": "key",
                "title": "Title",
                "x_label": "step",
                "unit": "reward",
                "lines": lines,
                "marks": (Mark(2, "here"),),
            }
            | changes
        )
    )


def texts(svg: str) -> list[str]:
    return [
        "".join(node.itertext()).strip()
        for node in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    ]


def test_a_figure_is_one_svg_document_and_the_same_every_time() -> None:
    svg = standalone(chart())
    assert svg == standalone(chart())
    assert {"Title", "step", "reward", "logged", "law, 95 % band", "here"} <= set(texts(svg))


@pytest.mark.parametrize("role", typing.get_args(Role))
def test_every_role_can_be_drawn(role: Role) -> None:
    figure = figure_of(
        chart(lines=(Line("one", role, (1, 2), (0.1, 0.2), (0.0, 0.0), (0.5, 0.5)),))
    )
    assert figure.axes[0].has_data()


def test_scales_and_ticks_are_those_of_the_chart() -> None:
    svg = standalone(
        chart(
            lines=(Line("a", "law", (1, 8, 64), (1e-6, 1e-5, 1e-3)),),
            marks=(),
            x_scale="log2",
            y_scale="log10",
            y_range=(1e-7, 1e-2),
        )
    )
    assert {"1", "2", "64", "1e−6", "0.001"} <= set(texts(svg))
    axes = figure_of(chart(y_range=(-1.0, 2.0))).axes[0]
    assert axes.get_ylim() == (-1.0, 2.0)


def test_texts_of_a_log_are_neither_markup_nor_formulas() -> None:
    svg = standalone(
        chart(
            title=HOSTILE,
            lines=(
                Line(HOSTILE, "law", (1, 2), (0.1, 0.2)),
                Line("b", "rival", (1, 2), (0.1, 0.2)),
            ),
        )
    )
    assert "<script" not in svg
    assert texts(svg).count(HOSTILE) == 2
