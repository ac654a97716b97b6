"""The live page in a real browser: it says how a run stands, it follows, it is read with the
keys, and no text of a log becomes markup.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.browser.conftest import POLLING, Watcher, append_rows, reward_at

from groupwise.record.run import Meaning, RecordWriter

HOSTILE = '</script><img src=x onerror="window.pwned=1"><b>bold</b>\u202e&lt;i&gt;'
PLOT = "#main-chart .panel-plot"
AT = "#main-chart .panel-at"


def wait_for_text(page: Any, selector: str, words: str) -> None:
    page.wait_for_function(
        "([selector, words]) => [...document.querySelectorAll(selector)].some((node) => "
        "node.textContent.includes(words))",
        arg=[selector, words],
        timeout=60_000,
        polling=POLLING,
    )


def wait_for_visible(page: Any, runs: int) -> None:
    page.wait_for_function(
        "(runs) => [...document.querySelectorAll('#runs tr')].filter((row) => "
        "row.getClientRects().length).length === runs",
        arg=runs,
        timeout=20_000,
        polling=POLLING,
    )


def collapse(path: Path, *, minutes_ago: float = 0.0) -> Path:
    """A log whose reward is lost at step 40, written a while ago."""
    rows = [
        {
            "step": step,
            "reward": 0.8 + 0.01 * (-1) ** step if step < 40 else 0.0,
            "entropy": 1.0 + step % 3,
        }
        for step in range(1, 61)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    os.utime(path, (time.time() - 60 * minutes_ago,) * 2)
    return path


def press(page: Any, key: str, where: str = AT) -> str:
    """Press a key and return the step that the chart reads then."""
    page.keyboard.press(key)
    page.wait_for_timeout(60)
    return str(page.locator(where).inner_text())


def smooth(page: Any, weight: float) -> None:
    """Move the slider, and wait until the charts are drawn anew."""
    page.locator("#smoothing").fill(str(weight))
    page.wait_for_timeout(200)


def hover(page: Any, chart: str, part: float) -> str:
    """Point at a part of a chart's axes, from 0 left to 1 right, and return what its head says."""
    plot = page.locator(f"{chart} .u-over").first
    plot.scroll_into_view_if_needed()
    frame = plot.bounding_box()
    page.mouse.move(frame["x"] + part * frame["width"], frame["y"] + frame["height"] / 2)
    page.wait_for_timeout(100)
    return str(page.locator(f"{chart} .panel-head").first.inner_text())


@pytest.fixture(scope="module")
def failed(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a watcher of a run that failed a while ago."""
    watcher = Watcher([collapse(tmp_path_factory.mktemp("failed") / "run.jsonl", minutes_ago=43)])
    yield watcher.address
    watcher.stop()


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "width"), [("dark", 390), ("light", 1280)])
def test_a_failed_run_says_so_first_in_both_themes_and_widths(
    scheme: str, width: int, failed: str, open_page: Callable[..., Any]
) -> None:
    opened = open_page(failed, scheme=scheme, width=width)
    page = opened.page
    wait_for_text(page, "#state", "✗ FAILED since step 40")
    assert re.fullmatch(
        r"step 60 · finished (4[3-9]|5\d) min ago", page.locator("#where").inner_text()
    )
    assert page.locator("#headline").inner_text()
    assert page.locator("#lines dt").first.inner_text() == "first sign"
    assert page.locator("#forecast").inner_text() == ""
    assert "log_completions=True" in page.locator("#no-completions").inner_text()
    assert page.title() == "run.jsonl – groupwise watch"
    page.wait_for_selector(f"{PLOT} canvas")
    for part in ("#banner", "#headline", PLOT):
        frame = page.locator(part).bounding_box()
        assert 0 <= frame["x"] < frame["x"] + frame["width"] <= width
    colours = [
        page.evaluate(f"getComputedStyle(document.querySelector('{selector}')).{what}")
        for selector, what in (
            ("body", "backgroundColor"),
            ("body", "color"),
            ("#headline", "color"),
            ("#banner", "backgroundColor"),
        )
    ]
    paper, ink, headline, tone = (
        sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in colours
    )
    assert (paper > ink) is (paper > headline) is (scheme == "light")
    assert tone == 179 + 38 + 30
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    opened.picture(f"watch-failed-{scheme}-{width}")
    assert opened.barriers() == []
    assert opened.complaints == []


@pytest.mark.slow
def test_the_run_that_fails_is_looked_at_unless_another_is_asked_for(
    tmp_path: Path, watch: Callable[..., Any], open_page: Callable[..., Any]
) -> None:
    steady = append_rows(tmp_path / "steady.jsonl", 1, 60)
    lost = collapse(tmp_path / "lost.jsonl", minutes_ago=43)
    page = open_page(watch(steady, lost).address).page
    wait_for_text(page, "#name", "lost.jsonl")
    page.locator("#runs a", has_text="steady").first.click()
    wait_for_text(page, "#name", "steady.jsonl")
    wait_for_text(page, "#runs", "FAILED")
    assert page.locator("#name").inner_text() == "steady.jsonl"


@pytest.mark.slow
def test_the_failure_is_shaded_and_no_other_part(
    failed: str, open_page: Callable[..., Any]
) -> None:
    opened = open_page(failed, width=1280)
    page = opened.page
    wait_for_text(page, "#state", "✗ FAILED since step 40")
    page.wait_for_selector("#main-chart canvas")
    page.wait_for_timeout(300)
    alpha_at = """(parts) => {
      const canvas = document.querySelector('#main-chart canvas');
      const over = document.querySelector('#main-chart .u-over').getBoundingClientRect();
      const home = canvas.getBoundingClientRect(), dense = canvas.width / home.width;
      const pixels = canvas.getContext('2d').getImageData(0, (over.top - home.top + 0.5 * over.height + 3) * dense, canvas.width, 1).data;
      return parts.map((part) => pixels[4 * Math.round((over.left - home.left + part * over.width) * dense) + 3]);
    }"""
    before, after = page.evaluate(alpha_at, [0.3, 0.9])  # steps 18 and 54
    assert before == 0 < after < 255
    assert opened.complaints == []


@pytest.mark.slow
def test_the_page_follows_a_log_and_a_page_that_comes_later_has_the_same(
    tmp_path: Path, watch: Callable[..., Any], open_page: Callable[..., Any]
) -> None:
    """Rows are appended while the pointer rests on the chart."""
    path = append_rows(tmp_path / "run.jsonl", 1, 700)
    opened = open_page((watcher := watch(path, eager=True)).address)
    page = opened.page
    wait_for_text(page, "#where", "step 700 · newest row")
    page.wait_for_selector(f"{PLOT} canvas")
    page.locator(PLOT).focus()
    assert press(page, "End") == "step 700"
    for last in range(701, 720):
        append_rows(path, last, last)
        page.wait_for_timeout(50)
    wait_for_text(page, "#where", "step 719")
    append_rows(path, 720, 761)
    wait_for_text(page, "#where", "step 761")
    assert press(page, "End") == "step 761"
    assert (
        f"logged {reward_at(761):.4f}" not in page.locator("#main-chart .panel-head").inner_text()
    )  # smoothed
    smooth(page, 0)
    page.locator(PLOT).focus()
    assert press(page, "End") == "step 761"
    assert (
        f"{reward_at(761):.4f}".rstrip("0") in page.locator("#main-chart .panel-head").inner_text()
    )
    page.wait_for_function(
        "() => document.querySelector('#judged').textContent === ''", timeout=60_000
    )  # judged up to the newest row
    other = open_page(watcher.address).page
    wait_for_text(other, "#where", "step 761")
    for part in ("#state", "#headline", "#lines"):
        other.wait_for_function(
            "(part) => document.querySelector(part).textContent !== 'being judged'", arg=part
        )
        assert page.locator(part).inner_text() == other.locator(part).inner_text()
    assert opened.complaints == []


@pytest.fixture(scope="module")
def learning(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a watcher of a run that learns and counts its tokens."""
    home = tmp_path_factory.mktemp("learning") / "run"
    with RecordWriter(
        home, name="made", meanings=[Meaning("entropy", "entropy", "The entropy of a token.")]
    ) as writer:
        for step in range(1, 102):
            writer.append(
                {
                    "step": step,
                    "reward": reward_at(step),
                    "entropy": 1.0 + step % 3,
                    "tokens": 100.0 * step,
                },
                sync=False,
            )
    watcher = Watcher([home])
    yield watcher.address
    watcher.stop()


@pytest.mark.slow
def test_charts_share_cursor_and_zoom_and_the_keys_and_a_button_undo_it(
    learning: str, open_page: Callable[..., Any]
) -> None:
    opened = open_page(learning, width=1280)
    page = opened.page
    page.wait_for_selector("#charts canvas")
    smooth(page, 0)
    page.locator(PLOT).focus()
    assert press(page, "Home") == "step 1"
    assert press(page, "PageDown") == "step 11"
    assert (
        page.locator("#charts .panel-at").first.inner_text() == "step 11"
    )  # the cursor of the others
    for _ in range(4):
        press(page, "PageDown")
    press(page, "+")
    assert press(page, "Home") == "step 26"
    assert press(page, "End") == "step 76"
    assert press(page, "Escape") == ""
    assert press(page, "Home") == "step 1"
    frame = page.locator("#main-chart .u-over").bounding_box()
    page.mouse.move(frame["x"] + 0.5 * frame["width"], frame["y"] + 40)
    page.mouse.down()
    page.mouse.move(frame["x"] + 0.75 * frame["width"], frame["y"] + 40, steps=5)
    page.mouse.up()
    page.locator("#charts .panel-plot").first.focus()
    assert press(page, "Home", "#charts .panel-at >> nth=0") == "step 51"
    opened.picture("watch-zoomed")
    page.locator("#whole").click()
    page.locator(PLOT).focus()
    assert press(page, "Home") == "step 1"
    assert opened.complaints == []


@pytest.mark.slow
def test_hostile_names_and_completions_stay_text(
    tmp_path: Path, watch: Callable[..., Any], open_page: Callable[..., Any]
) -> None:
    home = tmp_path / "<b>record"
    with RecordWriter(
        home, name=HOSTILE, meanings=[Meaning("entropy", "entropy", HOSTILE)]
    ) as writer:
        for step in range(1, 40):
            row = {
                "step": step,
                "reward": reward_at(step),
                "entropy": 1.0 + step % 3,
                HOSTILE: 1.0 * step,
            }
            given = {"prompt_id": 0, "prompt": HOSTILE, f"reward/{HOSTILE}": 1.0}
            writer.append(
                row,
                [
                    {**given, "completion": f"{HOSTILE}{place}", "reward": 0.1 * place}
                    for place in range(4)
                ],
                sync=False,
            )
    named = append_rows(tmp_path / '<img src=x onerror="window.pwned=1">.jsonl', 1, 30)
    opened = open_page(watch(home, named).address)
    page = opened.page
    wait_for_text(page, "#completions pre", "<b>bold</b>")
    wait_for_text(page, "#completions .viewer-text", "<b>bold</b>")
    page.select_option("#completions select", "highest")
    wait_for_text(page, "#completions .viewer-facts dt", "<b>bold</b>")
    wait_for_text(page, "#completions .chosen .viewer-reward", "0.3")
    wait_for_text(page, "#name", "<b>record")
    page.wait_for_selector("#overlay canvas")
    for index in range(2):
        wait_for_text(page, f"#runs tr:nth-child({index + 1}) .state", " ")
    hover(page, "#overlay", 0.3)
    opened.picture("watch-hostile")
    page.locator("#runs a").nth(1).click()
    wait_for_text(page, "#name", "<img src=x")
    assert page.locator("main img, main script, main b b").count() == 0
    assert page.evaluate("window.pwned") is None
    assert "\u202e" not in page.content()
    assert opened.complaints == []
    report = open_page(f"{page.url.split('#')[0]}report/1")
    assert report.page.locator("h1").count() >= 1
    assert report.page.evaluate("window.pwned") is None
    assert report.complaints == []


@pytest.mark.slow
def test_runs_are_listed_and_those_that_are_ticked_lie_over_each_other(
    tmp_path: Path, watch: Callable[..., Any], open_page: Callable[..., Any]
) -> None:
    paths = [
        append_rows(tmp_path / f"run-{name}.jsonl", 1, rows)
        for name, rows in (("a", 150), ("b", 90))
    ]
    later = tmp_path / f"later-{60 * 'x'}.jsonl"
    opened = open_page(
        (watcher := watch(*paths, collapse(tmp_path / "lost.jsonl"), later)).address, width=1280
    )
    page = opened.page
    page.wait_for_selector("#overlay canvas")
    page.wait_for_selector("#runs tr:nth-child(4)", state="attached")
    assert page.locator("#runs tr").count() == 4
    wait_for_text(page, "#runs tr:nth-child(3) .state", "✗ FAILING")
    assert [cell.inner_text() for cell in page.locator("#runs td.n").all()] == [
        "150",
        "90",
        "60",
        "–",
    ]
    assert page.locator("#runs polyline[points]").count() == 3
    smooth(page, 0)
    read = hover(page, "#overlay", 0.5)
    assert [name in read for name in ("run-a.jsonl", "run-b.jsonl", "lost.jsonl", "later")] == [
        True,
        True,
        True,
        False,
    ]
    page.locator("#runs input").nth(2).uncheck()
    # The page draws anew a moment after the box is cleared.
    page.locator("#overlay .panel-head", has_not_text="lost.jsonl").wait_for()
    assert "run-b.jsonl" in page.locator("#overlay .panel-head").inner_text()
    page.select_option("#compared", "entropy")
    wait_for_text(page, "#overlay .panel-head", "Entropy")
    append_rows(later, 1, 50)
    wait_for_text(page, "#overlay .panel-head", "later")
    page.locator("#runs a").nth(2).click()
    wait_for_text(page, "#state", "✗ FAILING since step 40")
    assert page.url.endswith("#run-3")
    assert page.locator("#name").inner_text() == "lost.jsonl"
    page.locator("#filters button", has_text="FAILING").click()
    wait_for_visible(page, 3)  # the list is drawn anew a moment after a filter changed
    page.locator("#filters input").fill("run-b")
    wait_for_visible(page, 1)
    assert page.locator("#runs tr:visible .name").inner_text() == "run-b.jsonl"
    page.locator("#filters input").fill("")
    opened.picture("watch-several")
    assert opened.complaints == []
    narrow = open_page(watcher.address, width=380)
    for part in (f"{PLOT} canvas", "#overlay canvas"):
        narrow.page.wait_for_selector(part)
    narrow.page.wait_for_function("() => document.querySelector('#headline').textContent")
    wait_for_text(narrow.page, "#overlay .panel-head", "later")
    narrow.picture("watch-narrow")
    assert narrow.page.evaluate("document.documentElement.scrollWidth") <= 380
    assert narrow.complaints == []


@pytest.mark.slow
def test_a_page_says_when_it_lost_the_watcher_that_another_has_another_address_and_what_happens_to_the_file(
    tmp_path: Path, watch: Callable[..., Any], open_page: Callable[..., Any]
) -> None:
    path = append_rows(tmp_path / "run.jsonl", 1, 60)
    watcher = watch(path)
    page = open_page(watcher.address).page
    wait_for_text(page, "#where", "step 60")
    assert watcher.stop() == 0
    wait_for_text(page, "#link", "stopped")
    assert page.locator(f"{PLOT} canvas").count() == 1
    append_rows(path, 61, 70)
    again = watch(path, port=watcher.port)
    wait_for_text(page, "#link", "open the address that it printed")
    page.goto(again.address)
    wait_for_text(page, "#link", "live")
    wait_for_text(page, "#where", "step 70")
    path.write_text("")
    append_rows(path, 1, 20)
    wait_for_text(page, "#events", "cut short")
    wait_for_text(page, "#where", "step 20")
    path.unlink()
    wait_for_text(page, "#events", "gone")


@pytest.mark.slow
def test_charts_of_a_run_stand_over_its_tokens_too(
    learning: str, open_page: Callable[..., Any]
) -> None:
    opened = open_page(learning, width=1280)
    page = opened.page
    wait_for_text(page, "#where", "step 101")
    page.wait_for_selector(f"{PLOT} canvas")
    assert page.locator("#along option").all_inner_texts() == ["step", "tokens"]
    page.select_option("#along", "tokens")
    page.wait_for_timeout(200)
    page.locator(PLOT).focus()
    assert press(page, "End") == "tokens 10,100"
    page.select_option("#along", "step")
    page.wait_for_timeout(200)
    page.locator(PLOT).focus()
    assert press(page, "End") == "step 101"
    assert opened.complaints == []
