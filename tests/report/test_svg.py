"""SVG made small: nothing drawn is lost, nothing that a page need not hold is kept."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

from groupwise.analysis.charts import Chart, Line, Mark
from groupwise.report.figures import COLOURS, HALF, WIDE, StyleSheet, compact, draw, new_sheet

ROLES = ["observed", "averaged", "law", "rival", "second_rival", "forecast", "held_out", "evaluation", "expected", "limit", "stem"]


def chart(points: int = 40, **more: object) -> Chart:
    x = tuple(range(points))
    y = tuple(0.5 + 0.001 * i for i in x)
    band = {"low": tuple(v - 0.1 for v in y), "high": tuple(v + 0.1 for v in y), "band": "95 %"}
    lines = [Line(role, role, x, y, **(band if role in {"law", "forecast", "limit"} else {})) for role in ROLES]  # type: ignore[arg-type]
    lines.append(Line("plateau", "plateau", (points,), (0.6,), (0.55,), (0.7,)))
    return Chart("c", "Title", "step", "reward", tuple(lines), (Mark(3.0, "here"), Mark(points - 1.0, "last")), **more)  # type: ignore[arg-type]


def wrapped(svg: str) -> ET.Element:
    return ET.fromstring(f'<svg xmlns="http://www.w3.org/2000/svg">{svg}</svg>')


def test_a_drawing_is_well_formed_and_has_no_style_and_no_outside_name() -> None:
    sheet = new_sheet()
    drawing = draw(chart(), prefix="p", sheet=sheet)
    wrapped(drawing.svg)
    assert "style=" not in drawing.svg
    assert "xlink" not in drawing.svg
    assert "http" not in drawing.svg
    assert "<metadata" not in drawing.svg
    assert not re.search(r"#[0-9a-f]{6}", sheet.css()), "a colour that dark mode cannot change"
    assert set(re.findall(r"var\(--(\w+)\)", sheet.css())) <= set(COLOURS)


def test_identifiers_are_those_referred_to_and_carry_the_prefix() -> None:
    first, second = (draw(chart(), prefix=prefix, sheet=new_sheet()).svg for prefix in ("a", "b"))
    for svg, prefix in ((first, "a"), (second, "b")):
        ids = set(re.findall(r' id="([^"]+)"', svg))
        assert ids == set(re.findall(r'(?:href="#|url\(#)([^")]+)', svg))
        assert all(name.startswith(prefix + "-") for name in ids)


def test_two_drawings_of_one_chart_are_the_same() -> None:
    assert draw(chart(), prefix="a", sheet=new_sheet()) == draw(chart(), prefix="a", sheet=new_sheet())


def test_labels_and_marks_are_text() -> None:
    texts = [
        "".join(node.itertext()) for node in wrapped(draw(chart(), prefix="a", sheet=new_sheet()).svg).iter() if node.tag.endswith("text")
    ]
    assert {"step", "reward", "here", "last"} <= set(texts)
    assert any("plateau" in text for text in texts)


@pytest.mark.parametrize("x", [1.0, 4.0, 8.0, 20.0])
def test_labels_of_marks_meet_neither_the_axis_title_nor_each_other(x: float) -> None:
    """A text of size 11 reaches less than 9 above its base line and 3 below, and a letter of these is narrower than 6."""
    line, sheet = Line("logged", "law", tuple(range(40)), tuple(0.01 * i for i in range(40))), new_sheet()
    marks = (Mark(x, "best 3"), Mark(x + 1, "in use 4"))
    made = draw(Chart("c", "t", "step", "mean squared error, best = 1", (line,), marks), prefix="a", sheet=sheet)
    place = {"".join(node.itertext()): node.attrib for node in wrapped(made.svg).iter() if node.tag.endswith("text")}
    title, best, used = (float(place[name]["y"]) for name in ("mean squared error, best = 1", "best 3", "in use 4"))
    assert 9 <= title <= min(best, used) - 12
    ends = "text-anchor:end" in sheet.css().split(f".{place['best 3']['class']}{{")[1].split("}")[0]
    left = float(place["best 3"]["x"]) - (6 * len("best 3") if ends else 0)
    assert left >= 0
    assert left + 6 * len("best 3") <= float(place["in use 4"]["x"])


def test_a_line_of_six_hundred_points_takes_less_than_ten_thousand_characters() -> None:
    line = Line("logged", "observed", tuple(range(600)), tuple((i * 37 % 100) / 100 for i in range(600)))
    assert len(draw(Chart("c", "t", "step", "reward", (line,)), prefix="a", sheet=new_sheet()).svg) < 10_000 + 3_000


@pytest.mark.parametrize(("wide", "size"), [(True, WIDE), (False, HALF)])
def test_scales_say_where_values_are(wide: bool, size: tuple[int, int]) -> None:
    """The script of the page finds a value where the path has it."""
    line = Line("logged", "law", (0, 100), (0.0, 1.0))
    drawing = draw(Chart("c", "t", "step", "reward", (line,), wide=wide), prefix="a", sheet=new_sheet())
    left, top, right, bottom = drawing.box
    (x0, x1), (y0, y1) = drawing.x_range, drawing.y_range
    assert (drawing.width, drawing.height) == size
    ends = [
        (left + (right - left) * (x - x0) / (x1 - x0), bottom - (bottom - top) * (y - y0) / (y1 - y0)) for x, y in ((0, 0.0), (100, 1.0))
    ]
    paths = [
        [tuple(map(float, pair)) for pair in re.findall(r"(-?[\d.]+)[ ]?(-?[\d.]+)", path)]
        for path in re.findall(r' d="([^"]+)"', drawing.svg)
    ]
    assert any(
        len(path) == 2 and path[0] == pytest.approx(ends[0], abs=0.2) and path[1] == pytest.approx(ends[1], abs=0.2) for path in paths
    )


def test_a_users_matplotlibrc_changes_nothing() -> None:
    import matplotlib as mpl

    before = draw(chart(), prefix="a", sheet=new_sheet())
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "red", "lines.linewidth": 9, "savefig.bbox": "tight"}):
        assert draw(chart(), prefix="a", sheet=new_sheet()) == before


def test_equal_styles_share_a_class_and_unneeded_ones_get_none() -> None:
    sheet = StyleSheet({"#000001": "ink"})
    assert sheet.class_of("fill: none; stroke: #000001") == sheet.class_of("fill: none;stroke: #000001;")
    assert sheet.class_of("stroke-linejoin: round") == ""
    assert sheet.css() == ".f0{fill:none;stroke:var(--ink)}"


def test_numbers_are_cut_to_tenths_and_paths_keep_their_shape() -> None:
    source = '<?xml?><svg width="1"><g id="x"><path d="M 1.25678 2 \nL -0.04 10.96 \nL 3.0 -4.5 " style="fill: none"/></g></svg>'
    assert compact(source, prefix="p", sheet=StyleSheet({})) == '<path d="M1.3 2L0 11L3-4.5" class="f0"/>'
