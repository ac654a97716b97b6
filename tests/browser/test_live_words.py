"""What the live page writes of each word that its server says: no server, the page alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
from groupwise.pages.markup import FILES, page_file

NOW = 1_700_000_000.0
PAGE = resources.files("groupwise.pages")
# The server: `says` hands its messages over, as they would come.
SERVER = """
globalThis.EventSource = class {
  constructor() { this.heard = {}; globalThis.server = this; }
  addEventListener(name, hears) { this.heard[name] = hears; }
};
globalThis.requestAnimationFrame = (draws) => queueMicrotask(draws);
globalThis.shown = async (messages, places) => {
  for (const [name, message] of messages)
    globalThis.server.heard[name]({ data: JSON.stringify(message) });
  await new Promise(setTimeout);
  const texts = (place) => [...document.querySelectorAll(place)].map((one) => one.textContent);
  return Object.fromEntries(places.map((place) => [place, texts(place)]));
};
"""


@pytest.fixture
def live(tmp_path: Path, open_page: Callable[..., Any]) -> Any:
    """The page of a watcher that has said nothing yet."""
    for name in ("live.css", "live.js"):
        texts = [PAGE.joinpath(part).read_text(encoding="utf-8") for part in FILES[name]]
        server = [SERVER] if name.endswith(".js") else []
        (tmp_path / name).write_text("\n".join([*server, *texts]), encoding="utf-8")
    (tmp_path / "live.html").write_text(page_file("live.html"), encoding="utf-8")
    return open_page((tmp_path / "live.html").as_uri()).page


def shown(page: Any, *messages: tuple[str, dict[str, Any]], places: Iterable[str]) -> Any:
    """Return the texts of the places of a page when its server has said something."""
    said = [[list(message) for message in messages], list(places)]
    return page.evaluate("([messages, places]) => shown(messages, places)", said)


def state_of(number: int, **changes: Any) -> tuple[str, dict[str, Any]]:
    state = {
        "name": f"run-{number}.jsonl",
        "rows": 30,
        "step": 1200,
        "grew": NOW - 40 * 60,
        "pace": None,
        "waiting": False,
        "events": [],
        "problem": "",
        "ended": False,
        "axes": [],
    }
    return "state", {"id": number, "state": state | changes}


def test_how_long_ago_a_run_grew(live: Any) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"grew": None, "waiting": True}, "waiting for the log"),
        ({"grew": None}, "no rows yet"),
        ({"ago": 96.6}, "newest row 97 s ago"),
        ({"ago": 103}, "newest row 2 min ago"),
        ({"ago": 5900}, "newest row 98 min ago"),
        ({"ago": 6120}, "newest row 1.7 h ago"),
        ({"ago": 172_080}, "newest row 47.8 h ago"),
        ({"ago": 216_100}, "newest row 3 days ago"),
        ({"ago": 7200, "ended": True}, "finished 2 h ago"),
        ({"ago": 240, "pace": 25}, "newest row 4 min ago, one every 25 s"),
        ({"ago": 260, "pace": 25}, "no new row for 4 min, one every 25 s before"),
        ({"ago": 27.6, "pace": 2}, "newest row 28 s ago, one every 2 s"),
        ({"ago": 31.6, "pace": 2}, "no new row for 32 s, one every 2 s before"),
    ]
    for changes, expected in cases:
        ago = changes.pop("ago", None)
        grew = changes if ago is None else changes | {"grew": NOW - ago}
        said = ("hello", {"runs": 1, "now": NOW}), state_of(0, **grew)
        assert shown(live, *said, places=["#where"]) == {"#where": [f"step 1,200 · {expected}"]}
    bare = state_of(0, rows=0, step=None, grew=None)
    assert shown(live, bare, places=["#where"]) == {"#where": ["no rows yet"]}


JUDGED = {
    "head": "✗ FAILING",
    "headline": "the reward is lost",
    "lines": [["first sign", "entropy"], ["do", "restart"]],
    "last_step": 1000,
    "rows": 25,
    "forecast": "It ends at 0.5.",
    "moved": [],
    "judgement": {
        "state": "failing",
        "headline": "the reward is lost; the log ends in an error",
        "since_step": 900,
        "first_sign": {"step": 840},
        "checks": [
            {"check": f"check_{status}", "status": status, "message": f"said of {status}"}
            for status in ("none", "info", "warning", "critical", "not_logged")
        ],
        "environments": {
            "worst": [
                {"kind": "task", "name": "sums", "course": "fell", "before": 0.75, "after": 0.25}
            ]
        },
        "not_logged": ["completions"],
    },
}
HEALTHY = {
    "head": "✓ LEARNING",
    "headline": "it learns",
    "last_step": 7,
    "rows": 7,
    "judgement": {
        "state": "healthy",
        "headline": "it learns; possible problem: overfitting",
        "since_step": 3,
        "first_sign": None,
        "not_logged": [],
    },
}


def test_every_word_of_a_judgement_has_its_place(live: Any) -> None:
    said = (
        ("hello", {"runs": 4, "now": NOW}),
        state_of(0, problem="no such file", follows=False),
        ("judged", {"id": 0, "judged": JUDGED}),
        state_of(1, rows=7, step=7, grew=NOW - 7200),
        ("judged", {"id": 1, "judged": HEALTHY}),
        state_of(2, step=50),
        state_of(3, rows=0, step=None, grew=None),
        ("completions", {"id": 0, "completions": {"count": 0, "missing": "log completions"}}),
    )
    expected = {
        "#link": ["live"],
        "#name": ["run-0.jsonl"],
        "#state": ["✗ FAILING since step 840"],
        "#headline": ["the reward is lost"],
        "#lines dt": ["first sign", "do"],
        "#lines dd": ["entropy", "restart"],
        "#judged": ["Judged at step 1,000; 5 rows have come since."],
        "#forecast": ["It ends at 0.5."],
        "#events li": [
            "Not read: no such file.",
        ],
        "#no-completions": ["log completions"],
        "#checks li": [
            "check none: no sign of a problem. said of none",
            "check info: info. said of info",
            "check warning: warning. said of warning",
            "check critical: critical. said of critical",
            "check not logged: not logged. said of not_logged",
        ],
        "#environments li": ["task sums fell, 0.75 → 0.25"],
        "#to-log li": ["completions"],
        "#runs .state": ["✗ FAILING", "✓ LEARNING", "being judged", "no rows yet"],
        "#runs .name": [f"run-{number}.jsonl" for number in range(4)],
        "#runs .n": ["1,200", "7", "50", "–"],
        "#runs .age": ["40 min ago", "2 h ago", "40 min ago", "–"],
        "#filters button": ["✗ FAILING 1", "✓ LEARNING 1", "no judgement 2"],
    }
    assert shown(live, *said, places=expected) == expected
    assert live.title() == "4 runs – groupwise watch"
    assert live.locator("#report").get_attribute("href") == "report/1"
    live.evaluate("location.hash = '#run-2'")
    parts = "#state, #headline, #judged"
    beat = ("beat", {"now": NOW})
    assert shown(live, beat, places=[parts]) == {parts: ["✓ LEARNING", "it learns", ""]}
    assert live.locator("#report").get_attribute("href") == "report/2"


def track(key: str, title: str, unit: str, **more: Any) -> dict[str, Any]:
    shown = {"x": [1, 2, 3], "y": [0.1, 0.2, 0.3], "y_range": [0, 1], "about": f"About {title}."}
    return {"key": key, "title": title, "unit": unit, "column": f"col/{title}"} | shown | more


def test_events_charts_and_the_connection_are_said(live: Any) -> None:
    tracks = [
        track("metric", "Mean reward", "reward"),
        track("eval/reward", "Held-out", "reward"),
        track("entropy", "Entropy", "nats"),
        track("log/lr", "lr", ""),
        track("log/moved", "moved", ""),
    ]
    events = [{"at": NOW + number, "said": f"event {number}"} for number in range(7)]
    said = (
        ("hello", {"runs": 9, "now": NOW}),
        state_of(0, events=events),
        ("judged", {"id": 0, "judged": HEALTHY | {"problem": "unlikely", "moved": ["log/moved"]}}),
        ("tracks", {"id": 0, "tracks": tracks}),
    )
    expected = {
        "#charts figcaption": ["About moved. Key: col/moved.", "About Entropy. Key: col/Entropy."],
        "#others figcaption": ["About lr. Key: col/lr."],
        "summary": ["1 other key", "Environments, the worst first", "Checks", "What to log"],
        "#compared option": ["Mean reward", "Held-out", "Entropy", "lr", "moved"],
        "#headline": ["it learns"],
    }
    assert shown(live, *said, places=expected) == expected
    (chart,) = shown(live, places=["#main-chart"]).values()
    assert "Held-out" in chart[0]
    assert "Entropy" not in chart[0]
    (listed,) = shown(live, places=["#events li"]).values()
    assert [line.partition(": ")[2] for line in listed] == [f"event {n}" for n in range(2, 7)]
    assert all(re.fullmatch(r"\d\d:\d\d:\d\d", line.partition(": ")[0]) for line in listed)
    (lost,) = shown(live, ("full", {"most": 7}), places=["#link"]).values()
    assert lost[0].startswith("7 pages of this watcher are open, and no more are served")
    end: list[tuple[str, dict[str, Any]]] = [("hello", {"runs": 1, "now": NOW}), ("bye", {})]
    (lost,) = shown(live, *end, places=["#link"]).values()
    assert re.fullmatch(r"The watcher was stopped at [\d:]{8}; this is what it had read\.", lost[0])
