"""The page of a fleet in a browser: filters, search and order, thousands of runs, and nothing
that a run says becomes markup.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.golden.sentences import says

from groupwise.analysis.fleet import FleetRow, fleet_of
from groupwise.diagnostics.judgement import WORST_FIRST
from groupwise.pages.fleet import fleet_page
from groupwise.pages.html import made_by

HOSTILE = '</script><img src=x onerror="alert(1)">'


@pytest.fixture
def page(tmp_path: Path) -> str:
    """Six states, five hundred runs of each; the first run is hostile in every text."""
    row = replace(
        FleetRow.unreadable("runs/a", "reward 0.80 → 0.00, collapsed"),
        reward="10 20 - 40",
        last_step=7,
    )
    rows = [
        replace(row, path=f"runs/{state}/{number:03d}", state=str(state), last_step=number)
        for state in WORST_FIRST
        for number in range(500)
    ]
    rows[0] = replace(
        rows[0], path=HOSTILE, run=HOSTILE, headline=HOSTILE, cause=HOSTILE, do=HOSTILE
    )
    file = tmp_path / "fleet.html"
    file.write_text(fleet_page(fleet_of(rows), provenance=made_by(())))
    return file.as_uri()


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_the_list_is_filtered_searched_and_sorted(
    page: str, open_page: Callable[..., Any], width: int, scheme: str
) -> None:
    opened = open_page(page, width=width, scheme=scheme)
    shown, rows = opened.page.locator("#shown"), opened.page.locator("#runs tr")
    assert opened.barriers() == []
    assert rows.count() == 200
    says("browser/fleet_page/1", shown.inner_text())
    assert HOSTILE in rows.first.inner_text()
    assert opened.page.locator("img").count() == 0
    opened.page.locator("#filters button", has_text="FAILING").click()
    assert rows.first.locator(".name").inner_text() == "failed/000"
    assert rows.first.locator(".name wbr").count() == 2  # a name is parted where its words are
    opened.page.locator("#filters input").fill("warning 499")
    assert [cell.inner_text() for cell in rows.locator(".name").all()] == ["warning/499"]
    opened.page.locator("#filters input").fill("")
    opened.page.select_option("#order", "step")
    assert rows.first.locator(".name").inner_text() == "failed/499"
    opened.page.locator("#more").click()
    assert rows.count() == 1200
    assert opened.page.locator("#runs polyline[points]").count() == 1200
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    opened.picture(f"fleet-{width}")
    assert opened.complaints == []


def test_a_run_has_its_words_in_its_row(tmp_path: Path, open_page: Callable[..., Any]) -> None:
    row = FleetRow.unreadable("runs/a", "")
    said: dict[str, Any] = {
        "reward": "0 50 - 100",
        "last_step": 1200,
        "cause": "a cause",
        "do": "an action",
    }
    rows = [
        replace(row, path="runs/b", run="b", state="failing", headline="it falls", **said),
        replace(row, path="runs/a", run="a", state="ok", headline="it learns", last_step=1300),
        replace(row, path="runs/c", run="c", state="ok", headline="it learns too", last_step=None),
    ]
    file = tmp_path / "fleet.html"
    file.write_text(fleet_page(fleet_of(rows), provenance=made_by(())))
    page = open_page(file.as_uri()).page
    texts = "const texts = (one) => [...document.querySelectorAll(one)].map((n) => n.textContent);"
    columns = [".state", ".n", ".said", ".said small"]
    cells = page.evaluate(
        f"(all) => {{ {texts} return all.map((n) => texts('#runs ' + n)); }}", columns
    )
    assert dict(zip(columns, cells, strict=True)) == {
        ".state": ["✗ FAILING", "✓ OK", "✓ OK"],
        ".n": ["1,200", "1,300", "–"],
        ".said": ["it fallsa causean action", "it learns", "it learns too"],
        ".said small": ["a cause", "an action"],
    }
    points = page.evaluate("document.querySelector('#runs polyline').getAttribute('points')")
    assert points == "0.0,19.0 32.0,10.0 96.0,1.0"
    ask = f"""([place, value, event]) => {{
      {texts}
      const asked = document.querySelector(place);
      asked.value = value;
      asked.dispatchEvent(new Event(event));
      return [texts("#shown")[0], texts("#runs .name").map((path) => path.at(-1)).join("")];
    }}"""
    for order, names in (("state", "bac"), ("path", "abc"), ("step", "abc")):
        assert page.evaluate(ask, ["#order", order, "change"]) == ["3 of 3 runs", names]
    assert page.evaluate(ask, ["#filters input", "cause", "input"]) == ["1 of 3 runs", "b"]
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 750, "height": 1000})
    widths = page.evaluate(
        "['#filters', '#runs .name', '#runs .said'].map((one) => "
        "document.querySelector(one).getBoundingClientRect().width)"
    )
    assert widths[0] == 0
    assert widths[2] > widths[1]
