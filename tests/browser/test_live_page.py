"""The live page in a real browser: it draws, it follows, it is read with the pointer, and no text of a log becomes markup."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.browser.conftest import append_rows, reward_at

from groupwise.record.run import Meaning, RecordWriter

HOSTILE = '</script><img src=x onerror="window.pwned=1"><b>bold</b>\u202e&lt;i&gt;'
METRIC = "article figure.wide svg.chart"


def wait_for_text(page: Any, selector: str, words: str) -> None:
    page.wait_for_function(
        "([selector, words]) => [...document.querySelectorAll(selector)].some((node) => node.textContent.includes(words))",
        arg=[selector, words],
        timeout=60_000,
    )


def hover(page: Any, selector: str, part: float) -> str:
    """Point at a part of a chart's axes, from 0 left to 1 right, and return what is read."""
    chart = page.locator(selector).first
    chart.scroll_into_view_if_needed()
    frame = chart.bounding_box()
    ends = page.eval_on_selector(f"{selector} line.axis", "(line) => [line.getAttribute('x1'), line.getAttribute('x2')].map(Number)")
    page.mouse.move(frame["x"] + ends[0] + part * (ends[1] - ends[0]), frame["y"] + frame["height"] / 2)
    return str(page.locator(f"figure:has(> {selector.rsplit(' ', 1)[-1]}) .readout").first.inner_text(timeout=10_000))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_figures_and_the_verdict_appear_in_light_and_in_dark(
    scheme: str, tmp_path: Path, watch: Callable[..., Any], open_page: Callable[..., Any]
) -> None:
    opened = open_page(watch(append_rows(tmp_path / "run.jsonl", 1, 200)).address, scheme=scheme)
    page = opened.page
    wait_for_text(page, "#link", "live")
    page.wait_for_selector(f"{METRIC} path.law", state="attached", timeout=60_000)
    assert page.locator("article figure").count() >= 3
    assert "0.7" in page.locator("h2.headline").inner_text()
    assert "Newest row: step 200" in page.locator(".age").inner_text()
    assert "Judged" in page.locator("header .small").inner_text()
    assert page.title() == "run.jsonl – groupwise watch"
    paper, ink, law = (
        page.evaluate(f"getComputedStyle(document.querySelector('{node}')).{what}")
        for node, what in (("body", "backgroundColor"), ("body", "color"), (f"{METRIC} path.law.line", "stroke"))
    )
    light = [sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in (paper, ink, law)]
    assert (light[0] > light[1]) is (scheme == "light")
    assert (light[0] > light[2]) is (scheme == "light")
    page.locator("article .grid svg.chart").last.scroll_into_view_if_needed()
    page.wait_for_selector("article .grid svg.chart path.line", state="attached")
    opened.picture(f"watch-{scheme}")
    assert opened.complaints == []


def test_the_page_follows_a_log_and_has_what_a_new_page_has(
    tmp_path: Path, watch: Callable[..., Any], open_page: Callable[..., Any]
) -> None:
    """Rows are appended while the pointer rests on the figure; what was built from changes is drawn as what is sent whole."""
    path = append_rows(tmp_path / "run.jsonl", 1, 700)
    opened = open_page((watcher := watch(path, eager=True)).address)
    page = opened.page
    page.wait_for_selector(f"{METRIC} path.observed", state="attached")
    first = page.locator(f"{METRIC} path.observed").get_attribute("d")
    for last in range(701, 720):
        append_rows(path, last, last)
        page.wait_for_timeout(100)
    wait_for_text(page, ".age", "step 719")
    append_rows(path, 720, 760)
    wait_for_text(page, ".age", "step 760")
    assert page.locator(f"{METRIC} path.observed").get_attribute("d") != first
    page.wait_for_selector(f"{METRIC} path.law", state="attached", timeout=60_000)
    wait_for_text(page, "header .small", "at step 760")
    small = "article .grid svg.chart"
    assert "step 760" in hover(page, small, 0.985)
    append_rows(path, 761, 761)
    wait_for_text(page, ".age", "step 761")
    assert "step 760" in page.locator("article .grid .readout").inner_text()  # the pointer rests, and so does what it reads
    wait_for_text(page, "header .small", "at step 761")
    page.mouse.move(0, 0)
    other = open_page(watcher.address).page
    other.wait_for_selector(f"{METRIC} path.law", state="attached")
    drawn = [[path.get_attribute("d") for path in each.locator(f"{METRIC} path.line").all()] for each in (page, other)]
    assert len(drawn[0]) >= 3
    assert drawn[0] == drawn[1]
    assert opened.complaints == []


def test_values_are_read_with_the_pointer_and_the_keys(tmp_path: Path, watch: Callable[..., Any], open_page: Callable[..., Any]) -> None:
    opened = open_page(watch(append_rows(tmp_path / "run.jsonl", 1, 120)).address)
    page = opened.page
    page.wait_for_selector(f"{METRIC} path.law", state="attached", timeout=60_000)
    chart = page.locator(METRIC).first
    chart.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    read = page.locator("figure.wide .readout").inner_text()
    assert read.startswith("step 2\n")
    assert f"logged {reward_at(2):.4f}" in read
    assert "single exponential" in read
    page.keyboard.press("Escape")
    assert page.locator("figure.wide .readout").count() == 0
    small = "article .grid svg.chart"
    assert re.match(r"step \d+\n", hover(page, small, 0.5))
    opened.picture("watch-reading")
    assert opened.complaints == []


def test_hostile_names_and_completions_stay_text(tmp_path: Path, watch: Callable[..., Any], open_page: Callable[..., Any]) -> None:
    home = tmp_path / "<b>record"
    with RecordWriter(home, name=HOSTILE, meanings=[Meaning("entropy", "entropy", HOSTILE)]) as writer:
        for step in range(1, 40):
            row = {"step": step, "reward": reward_at(step), "entropy": 1.0 + step % 3, HOSTILE: 1.0}
            writer.append(row, [{"prompt_id": 0, "prompt": HOSTILE, "completion": HOSTILE, "reward": 1.0}] * 2, sync=False)
    named = append_rows(tmp_path / '<img src=x onerror="window.pwned=1">.jsonl', 1, 30)
    opened = open_page(watch(home, named).address)
    page = opened.page
    wait_for_text(page, ".sample .completion", "<b>bold</b>")
    wait_for_text(page, ".run-name", "<img src=x")
    page.wait_for_selector(f"{METRIC} path.line", state="attached")
    for index in range(2):
        wait_for_text(page, f"#run-{index + 1} header .small", "Judged")
    wait_for_text(page, "#run-1 .grid h3", "Zero-variance groups")
    hover(page, "#overview figure svg.chart", 0.3)
    opened.picture("watch-hostile")
    assert page.locator("main img, main b:not(.readout b), main script, main i:not([class])").count() == 0
    assert page.evaluate("window.pwned") is None
    assert "\u202e" not in page.content()
    assert opened.complaints == []
    report = open_page(f"{opened.page.url}report/1")
    assert report.page.locator("h1.headline").count() == 1
    assert report.page.evaluate("window.pwned") is None
    assert report.complaints == []


def test_runs_lie_side_by_side(tmp_path: Path, watch: Callable[..., Any], open_page: Callable[..., Any]) -> None:
    paths = [append_rows(tmp_path / f"run-{name}.jsonl", 1, rows) for name, rows in (("a", 150), ("b", 90))]
    opened = open_page(watch(*paths, tmp_path / "later.jsonl").address)
    page = opened.page
    page.wait_for_selector("#overview path.run", state="attached")
    assert page.locator("#overview tbody tr").count() == 3
    assert page.locator("#overview path.run").count() == 2
    read = hover(page, "#overview figure svg.chart", 0.3)
    assert "run-a.jsonl" in read
    assert "run-b.jsonl" in read
    page.select_option("#compared", "entropy")

    wait_for_text(page, "#overview svg text", "nats")
    append_rows(tmp_path / "later.jsonl", 1, 50)
    page.wait_for_function("() => document.querySelectorAll('#overview path.run').length === 3", timeout=60_000)
    opened.picture("watch-several")
    assert opened.complaints == []


def test_a_page_says_when_it_lost_the_watcher_and_comes_back(
    tmp_path: Path, watch: Callable[..., Any], open_page: Callable[..., Any]
) -> None:
    path = append_rows(tmp_path / "run.jsonl", 1, 60)
    watcher = watch(path)
    page = open_page(watcher.address).page
    wait_for_text(page, ".age", "step 60")
    assert watcher.stop() == 0
    wait_for_text(page, "#link", "stopped")
    assert page.locator(f"{METRIC} path.line").count() > 0
    append_rows(path, 61, 70)
    watch(path, port=watcher.port)
    wait_for_text(page, "#link", "live")
    wait_for_text(page, ".age", "step 70")


def test_what_happens_to_the_file_is_on_the_page(tmp_path: Path, watch: Callable[..., Any], open_page: Callable[..., Any]) -> None:
    path = append_rows(tmp_path / "run.jsonl", 1, 60)
    page = open_page(watch(path).address).page
    wait_for_text(page, ".age", "step 60")
    path.write_text("")
    append_rows(path, 1, 20)
    wait_for_text(page, ".events", "cut short")
    wait_for_text(page, ".run-name", "20 rows")
    path.unlink()
    wait_for_text(page, ".age", "gone")


def test_a_narrow_screen_is_not_overrun(tmp_path: Path, watch: Callable[..., Any], open_page: Callable[..., Any]) -> None:
    paths = [append_rows(tmp_path / f"{name * 60}.jsonl", 1, 100) for name in "ab"]
    opened = open_page(watch(*paths).address, width=380)
    opened.page.wait_for_selector(f"{METRIC} path.line", state="attached")
    wait_for_text(opened.page, "#run-1 header .small", "Judged")
    for chart in opened.page.locator("figure.wide svg.chart").all():
        assert chart.is_visible()
    opened.picture("watch-narrow")
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 380
