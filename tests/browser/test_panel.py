"""The chart of every page, in a real browser: ticks, shared cursor and zoom, keyboard, gaps,
hostile names.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

HOSTILE = '</script><img src=x onerror="window.pwned=1">\u202e&lt;i&gt;'
STEPS = list(range(101))


def asset(name: str) -> str:
    return resources.files("groupwise.pages").joinpath("assets", name).read_text(encoding="utf-8")


def line(name: str = "logged", role: str = "observed", **changes: Any) -> dict[str, Any]:
    return {"name": name, "role": role, "x": STEPS, "y": [step / 100 for step in STEPS]} | changes


@pytest.fixture
def panels(tmp_path: Path, open_page: Callable[..., Any]) -> Callable[..., Any]:
    """Opens a page with one panel a model, under the policy of our pages."""

    def open_it(*models: dict[str, Any], **how: Any) -> Any:
        css = asset("uPlot.min.css") + asset("panel.css") + "body{margin:10px;--panel-height:210px}"
        embedded = json.dumps(models).replace("<", "\\u003c")
        script = f"{asset('uPlot.iife.min.js')}{asset('panel.js')}\nconst models={embedded};"
        script += (
            "window.panels=models.map((model)=>{const "
            "home=document.createElement('div');document.body.append(home);"
        )
        script += "return groupwise.panel(home,model);});"
        style_hash, script_hash = (
            base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            for text in (css, script)
        )
        policy = (
            f"default-src 'none'; style-src 'sha256-{style_hash}'; script-src "
            f"'sha256-{script_hash}'; "
        )
        policy += "require-trusted-types-for 'script'; trusted-types 'none'"
        page = (
            '<!doctype html><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" '
            f'content="{policy}">'
        )
        (tmp_path / "panels.html").write_text(
            f"{page}<style>{css}</style><body><script>{script}</script>", encoding="utf-8"
        )
        opened = open_page((tmp_path / "panels.html").as_uri(), **how)
        opened.page.wait_for_function("panels.every((panel) => panel.plot || !panel.data)")
        opened.page.wait_for_timeout(50)
        return opened

    return open_it


def ticks(page: Any, axis: int, panel: int = 0) -> list[str]:
    return list(page.evaluate(f"panels[{panel}].plot.axes[{axis}]._values"))


def span(page: Any, panel: int = 0) -> list[float]:
    page.wait_for_timeout(50)
    return [
        round(value, 6)
        for value in page.evaluate(f"(({{min, max}}) => [min, max])(panels[{panel}].plot.scales.x)")
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("y_range", "printed"),
    [
        ([0, 1], ["0", "0.25", "0.50", "0.75", "1.00"]),
        ([0, 0.001], ["0", "0.00025", "0.00050", "0.00075", "0.00100"]),
        ([-1, 1], ["−1.0", "−0.5", "0", "0.5", "1.0"]),
        ([0, 50_000], ["0", "20k", "40k"]),
        ([0.902, 0.908], ["0.902", "0.904", "0.906", "0.908"]),
    ],
)
def test_ticks_print_what_they_mark(
    y_range: list[float], printed: list[str], panels: Callable[..., Any]
) -> None:
    opened = panels({"lines": [line()], "y_range": y_range})
    assert ticks(opened.page, 1) == printed
    assert ticks(opened.page, 0) == ["0", "20", "40", "60", "80", "100"]
    assert opened.complaints == []


@pytest.mark.slow
def test_ticks_of_steps_are_whole_and_of_logarithms_powers(panels: Callable[..., Any]) -> None:
    few = {"lines": [line(x=[1, 2, 3], y=[0, 1, 0])]}
    logarithmic = {
        "lines": [line(x=[1, 8, 64], y=[1e-6, 1e-5, 1e-3])],
        "x_scale": "log2",
        "y_scale": "log10",
    }
    page = panels(few, logarithmic).page
    assert ticks(page, 0) == ["1", "2", "3"]
    assert ticks(page, 0, 1) == ["1", "2", "4", "8", "16", "32", "64"]
    assert ticks(page, 1, 1) == ["1e−6", "1e−5", "1e−4", "0.001"]


def test_cursor_and_zoom_are_shared_by_the_panels_of_a_name(panels: Callable[..., Any]) -> None:
    model = {"sync": "run", "lines": [line()]}
    opened = panels(
        model | {"title": "A"},
        model | {"title": "B", "lines": [line(x=STEPS[40:], y=STEPS[40:])]},
        {"lines": [line()]},
        {"sync": "late", "lines": [line(x=STEPS[40:], y=STEPS[40:])]},
        {"sync": "late", "lines": [line()]},  # built after the panel that it widens
    )
    page = opened.page
    assert [span(page, panel) for panel in range(5)] == [
        [-1, 101]
    ] * 5  # each takes the range of its group
    frame = page.locator(".u-over").first.bounding_box()
    page.mouse.move(frame["x"] + frame["width"] * 0.5, frame["y"] + 40)
    page.wait_for_function("document.querySelectorAll('.panel-at')[1].textContent === 'step 50'")
    assert [cell.inner_text() for cell in page.locator(".panel-head li span").all()] == [
        "0.5",
        "50",
        *[""] * 3,
    ]
    page.mouse.down()
    page.mouse.move(frame["x"] + frame["width"] * 0.75, frame["y"] + 40, steps=5)
    page.mouse.up()
    low, high = span(page)
    assert (round(low), round(high)) == (50, 75)
    assert span(page, 1) == [low, high]
    assert span(page, 2) == [-1, 101]
    page.mouse.dblclick(frame["x"] + 100, frame["y"] + 40)
    assert [span(page, panel) for panel in range(3)] == [[-1, 101]] * 3
    assert opened.complaints == []


def test_the_cursor_reads_a_value_with_the_ends_of_its_band(panels: Callable[..., Any]) -> None:
    logged = line(low=[0.25] * len(STEPS), high=[0.75] * len(STEPS))
    page = panels({"lines": [logged]}).page
    page.evaluate("panels[0].point(50)")
    assert page.locator(".panel-head li span").inner_text() == "0.5 (0.25 to 0.75)"


@pytest.mark.slow
def test_the_keyboard_moves_the_cursor_and_zooms(panels: Callable[..., Any]) -> None:
    page = panels({"lines": [line()], "x_label": "step"}).page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "panel-plot"
    assert "arrow keys" in page.evaluate("document.activeElement.getAttribute('aria-label')")
    at = page.locator(".panel-at")
    for key, step in (
        ("ArrowRight", 0),
        ("ArrowRight", 1),
        ("PageDown", 11),
        ("End", 100),
        ("ArrowLeft", 99),
        ("Home", 0),
    ):
        page.keyboard.press(key)
        page.wait_for_timeout(30)
        assert at.inner_text() == f"step {step}"
    spoken = page.locator("[aria-live=polite][aria-atomic=true]").inner_text()
    assert "step 0" in spoken
    for _ in range(50):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("+")
    assert span(page) == [24.5, 75.5]
    page.keyboard.press("-")
    assert span(page) == [-1, 101]
    page.keyboard.press("+")
    page.keyboard.press("Escape")
    assert span(page) == [-1, 101]
    assert at.inner_text() == ""


@pytest.mark.slow
def test_new_rows_are_taken_and_a_zoom_is_kept(panels: Callable[..., Any]) -> None:
    page = panels({"lines": [line(x=[1], y=[2.0])]}, {"lines": []}).page
    assert span(page) == [-0.02, 2.02]  # one row stands in the middle
    assert "No values yet." in page.locator(".panel").nth(1).inner_text()
    page.evaluate(f"panels.map((panel) => panel.update({json.dumps({'lines': [line()]})}))")
    assert [span(page), span(page, 1)] == [[-1, 101]] * 2
    page.evaluate("panels[0].zoom(20, 30)")
    page.evaluate(
        f"panels[0].update({json.dumps({'lines': [line(x=[*STEPS, 101], y=[*STEPS, None])]})})"
    )
    assert span(page) == [20, 30]


@pytest.mark.slow
def test_a_row_alone_is_a_dot_also_where_lines_are_smoothed(panels: Callable[..., Any]) -> None:
    page = panels(
        {"lines": [line(x=[1], y=[2.0])], "smoothing": 0.6}, {"lines": [line()], "smoothing": 0.6}
    ).page
    shown = (
        "panels.map(({plot}) => plot.series.slice(1).some((one, i) => one.points.show(plot, i + "
        "1)))"
    )
    assert page.evaluate(shown) == [True, False]


@pytest.mark.slow
def test_smoothing_starts_at_the_first_value_and_keeps_gaps(panels: Callable[..., Any]) -> None:
    page = panels({"lines": [line()], "smoothing": 0.5}).page
    assert page.evaluate("groupwise.smoothed([2, null, 4, 4], 0.5)") == [
        2,
        None,
        pytest.approx(10 / 3),
        pytest.approx(26 / 7),
    ]
    assert page.evaluate("panels[0].lines.map((line) => line.role)") == ["faint", "smooth"]
    assert page.evaluate("groupwise.format(0.0000123)") == "1.23e−5"


@pytest.mark.thinned(1)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_hostile_names_stay_text_and_colours_follow_the_scheme(
    scheme: str, panels: Callable[..., Any]
) -> None:
    band = line(HOSTILE, "law", low=[0.1] * 101, high=[0.9] * 101, band=HOSTILE)
    model = {
        "title": HOSTILE,
        "unit": HOSTILE,
        "lines": [band, line("runs", "run", colour=3)],
        "shade": [30, None],
    }
    opened = panels(model | {"marks": [{"x": 30, "label": HOSTILE}]}, scheme=scheme)
    page = opened.page
    assert page.evaluate("window.pwned") is None
    assert page.locator("img").count() == 0
    assert page.locator(".panel-head b").inner_text() == HOSTILE
    assert (
        page.evaluate("panels[0].paint('--c3')") == {"light": "#a3447f", "dark": "#e39ac6"}[scheme]
    )
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("panels[0].paint('--c3')") == "#a3447f"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    opened.picture(f"panel-{scheme}")
    assert opened.complaints == []
