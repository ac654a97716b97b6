"""The report in a real browser: what the first screen of 1280 x 800 holds in every state, no
width too small, nothing asked for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise.analysis.summary import Summary, screen_of, summarise
from groupwise.diagnostics.judgement import Judgement, Sign, State
from groupwise.pages.html import render
from groupwise.record.run import Meaning, RunRecord
from groupwise.record.table import steps_table
from groupwise.series.metric import group_evidence

STEPS = np.arange(1, 201)
SIGNALS = ("completion_length", "truncated_share", "entropy", "dead_group_share")


def record() -> RunRecord:
    rng = np.random.default_rng(5)
    columns = {"reward": np.where(STEPS < 90, 0.9, 0.05) + 0.05 * rng.standard_normal(200)}
    columns |= {
        name: np.where(STEPS < 80, 0.2, 0.8) + 0.02 * rng.standard_normal(200) for name in SIGNALS
    }
    meanings = tuple(Meaning(name, name, "as said") for name in columns)
    return RunRecord(
        "runs/a-long-name_of-a-run/seed43", steps_table(STEPS, columns), meanings=meanings
    )


@pytest.fixture(scope="module")
def summary() -> Summary:
    return summarise(record())


def judged(state: State) -> Judgement:
    sign = (
        None
        if state in (State.OK, State.CANNOT_TELL)
        else Sign("completion_length", 80, 314.0, 512.0, "length 314 → 512 = limit")
    )
    return Judgement(
        "run",
        state,
        "reward 0.89 → 0.00, collapsed at steps 75-100",
        first_sign=sign,
        do="restart from step 70; lr ÷ 3",
    )


@pytest.fixture
def shown(summary: Summary, tmp_path: Path, open_page: Callable[..., Any]) -> Callable[..., Any]:
    """Opens the page of a state; whatever it asks for besides itself is a complaint."""

    def show(state: State, **how: Any) -> Any:
        path = tmp_path / f"{state}.html"
        judgement = judged(state)
        screen = screen_of(record(), summary.fitted, group_evidence(record()), judgement)
        path.write_text(
            render([dataclasses.replace(summary, judgement=judgement, screen=screen)]),
            encoding="utf-8",
        )
        opened = open_page(path.as_uri(), **how)
        opened.page.wait_for_selector(".first .sparks canvas")
        return opened

    return show


@pytest.mark.thinned(1)
@pytest.mark.parametrize(
    ("state", "scheme"), list(zip(State, cycle(("light", "dark")), strict=False))
)
def test_the_first_screen_holds_all_that_is_to_be_seen_first(
    state: State, scheme: str, shown: Callable[..., Any]
) -> None:
    opened = shown(state, scheme=scheme, width=1280)
    page = opened.page
    page.set_viewport_size({"width": 1280, "height": 800})
    boxes = {}
    for part in (".banner", ".todo", ".tiles", ".first figure.wide", ".first .sparks"):
        box = page.locator(part).first.bounding_box()
        boxes[part] = box
        assert box["y"] >= 0, part
        assert box["y"] + box["height"] <= 800, part
        assert box["width"] > 1100, part
    tops = [box["y"] for box in boxes.values()]
    assert tops == sorted(tops)
    assert page.locator(".first canvas").count() == 5
    banner = page.evaluate("getComputedStyle(document.querySelector('.banner')).backgroundColor")
    assert (
        banner
        == {
            "ok": "rgb(27, 110, 60)",
            "warning": "rgb(138, 90, 0)",
            "failing": "rgb(179, 38, 30)",
            "failed": "rgb(179, 38, 30)",
            "cannot_tell": "rgb(77, 85, 96)",
        }[state]
    )
    opened.picture(f"report-{state}-{scheme}")
    assert opened.barriers() == []
    assert opened.complaints == []


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 768, 1920])
def test_nothing_sticks_out_at_any_width(width: int, shown: Callable[..., Any]) -> None:
    opened = shown(State.FAILED, width=width)
    page = opened.page
    for fold in page.locator("details summary").all():
        fold.click()
    assert page.evaluate("document.documentElement.scrollWidth") == width
    out = page.evaluate(
        "[...document.querySelectorAll('body *')].filter((one) => !one.closest('.scroll') && "
        "!one.closest('.u-over,.u-wrap') && one.getBoundingClientRect().right > innerWidth + "
        "1).map((one) => one.className || one.tagName)"
    )
    assert out == []
    opened.picture(f"report-{width}")
    assert opened.barriers() == []
    assert opened.complaints == []


@pytest.mark.slow
@pytest.mark.parametrize(("width", "lines"), [(400, 2), (1280, 1)])
def test_the_headlines_of_several_runs_are_read_without_scrolling(
    width: int, lines: int, summary: Summary, tmp_path: Path, open_page: Callable[..., Any]
) -> None:
    headline = "reward 0.58 → 0.87, true 0.58 → 0.39: reward hacking likely"
    run = dataclasses.replace(
        summary,
        name="sweeps/gsm8k-qwen2.5-1.5b_lr1e-5/seed43",
        judgement=dataclasses.replace(judged(State.CANNOT_TELL), headline=headline),
    )
    (tmp_path / "runs.html").write_text(render([run, run]), encoding="utf-8")
    page = open_page((tmp_path / "runs.html").as_uri(), width=width).page
    spare = "(one) => one.scrollWidth - one.clientWidth"
    assert page.locator("main > .runs .scroll").evaluate(spare) == 0
    cells = [
        cell.bounding_box() for cell in page.locator(".runs tbody tr").first.locator("td").all()
    ]
    assert len({round(cell["y"]) for cell in cells}) == lines
    assert all(cell["x"] >= 0 and cell["x"] + cell["width"] <= width for cell in cells)
    assert page.locator(".runs tbody td:last-child").first.inner_text() == headline


@pytest.mark.slow
def test_cursor_and_zoom_go_through_the_first_screen(shown: Callable[..., Any]) -> None:
    page = shown(State.FAILED, width=1280).page
    page.locator(".first .wide .panel-plot").focus()
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    page.wait_for_timeout(100)
    assert page.locator(".first .panel-at").all_inner_texts() == ["step 198"] * 5
    assert all(page.locator(".first .sparks .panel-head li span").all_inner_texts())
    page.keyboard.press("Escape")
    page.wait_for_timeout(100)
    assert page.locator(".first .panel-at").all_inner_texts() == [""] * 5


@pytest.mark.slow
def test_without_scripts_the_numbers_are_a_table(
    shown: Callable[..., Any], browser: Any, tmp_path: Path, summary: Summary
) -> None:
    (tmp_path / "plain.html").write_text(render([summary]), encoding="utf-8")
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto((tmp_path / "plain.html").as_uri())
    names = page.locator("noscript table tbody tr > :first-child").all_text_contents()
    assert names == [row.name for row in summary.screen.rows]
    assert len(names) > 3
    assert page.locator("figure:visible").count() == 0
    assert len(asked) == 1
    context.close()


@pytest.mark.slow
def test_on_paper_rollouts_are_one_line_that_says_where_they_are(
    made_record: Callable[..., RunRecord], tmp_path: Path, open_page: Callable[..., Any]
) -> None:
    run = summarise(made_record())
    assert run.rollouts is not None
    (tmp_path / "rollouts.html").write_text(render([run]), encoding="utf-8")
    page = open_page((tmp_path / "rollouts.html").as_uri()).page
    viewer, line = page.locator(".viewer"), page.locator(".viewer + p")
    page.wait_for_selector(".viewer-list .viewer-row:not([hidden])")
    assert (viewer.is_visible(), line.is_visible()) == (True, False)
    page.emulate_media(media="print")
    assert (viewer.is_visible(), line.is_visible()) == (False, True)
    assert line.inner_text().startswith(run.rollouts.said)


@pytest.mark.slow
def test_on_paper_the_page_is_light_and_as_wide_as_paper(shown: Callable[..., Any]) -> None:
    page = shown(State.FAILED, width=1280, scheme="dark").page
    page.emulate_media(media="print", color_scheme="dark")
    page.set_viewport_size({"width": 718, "height": 1000})  # A4 within Chromium's margins
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    colours = page.evaluate(
        "(({backgroundColor, color}) => [backgroundColor, color])(getComputedStyle(document.body))"
    )
    assert colours == ["rgb(255, 255, 255)", "rgb(34, 38, 43)"]
    measure = (
        "(one) => [one.getBoundingClientRect().right, one.parentElement.clientWidth - "
        "one.offsetWidth]"
    )
    widths = page.evaluate(f"[...document.querySelectorAll('.first .uplot')].map({measure})")
    assert len(widths) == 5
    assert all(right <= 701 and abs(spare) <= 1 for right, spare in widths)
    parted = page.evaluate(
        "['h2', 'summary', 'p', 'figure', 'table'].map((one) => getComputedStyle(document."
        "querySelector(`main ${one}`))).map(({breakInside, breakAfter}) => [breakInside, breakAfter])"
    )
    assert parted == [["auto", "avoid"]] * 2 + [["avoid", "auto"]] * 3
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(21, 24, 28)"
