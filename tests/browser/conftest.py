"""A real browser and a real watcher; both are skipped, visibly, where Chromium or Playwright is
absent.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.processes import PROGRAM, Forked

ROOT = Path(__file__).resolve().parent.parent.parent
ACCESSIBLE = Path(__file__).with_name("accessible.js")
POLLING = 100  # ms between looks at a page; without, it is drawn sixty times a second for them
PICTURES = (
    ROOT / "build" / "browser"
)  # git-ignored; made where GROUPWISE_PICTURES is set, for a person to look at


def chromium() -> str | None:
    """The browser to use: the one that GROUPWISE_CHROMIUM names, else the system's."""
    named = os.environ.get("GROUPWISE_CHROMIUM")
    return named or next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    """Chromium, driven by Playwright; gone with its folder, since its event loop would stop
    every other one in this thread.
    """
    for library in ("starlette", "uvicorn"):
        pytest.importorskip(library)
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="needs Playwright's Python package"
    )
    path = chromium()
    if path is None:
        pytest.skip("needs Chromium (apt-get install chromium, or GROUPWISE_CHROMIUM=/path/of/it)")
    PICTURES.mkdir(parents=True, exist_ok=True)
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu"]
        )
        yield running
        running.close()


class Page:
    """A page with what the browser complained about."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.listeners = {"console": self.logged, "pageerror": self.raised, "dialog": self.asked}
        for event, listener in self.listeners.items():
            page.on(event, listener)

    def logged(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def raised(self, error: Any) -> None:
        self.complaints.append(str(error))

    def asked(self, dialog: Any) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def barriers(self) -> list[str]:
        """What keeps somebody from the page: names, headings, contrast, targets."""
        self.page.evaluate(
            "document.querySelectorAll('details').forEach((one) => (one.open = true))"
        )
        violations: list[str] = self.page.evaluate(ACCESSIBLE.read_text(encoding="utf-8"))
        return violations

    def picture(self, name: str) -> None:
        if "GROUPWISE_PICTURES" in os.environ:
            self.page.screenshot(path=str(PICTURES / f"{name}.png"), full_page=True)


@pytest.fixture(scope="package")
def tabs(browser: Any) -> list[Any]:
    """Empty pages that wait for the next test: a new one is a new process, which takes longer
    than most tests. Our pages store nothing.
    """
    return []


@pytest.fixture
def open_page(browser: Any, tabs: list[Any]) -> Iterator[Callable[..., Page]]:
    """Opens a page at an address; one that hears from a watcher is left empty afterwards."""
    opened: list[Page] = []

    def open_it(address: str, *, scheme: str = "light", width: int = 1000) -> Page:
        page = tabs.pop() if tabs else browser.new_page()
        page.emulate_media(media="screen", color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 900})
        page.mouse.move(0, 0)
        opened.append(Page(page))
        page.goto(address)
        return opened[-1]

    yield open_it
    for each_page in opened:
        for event, listener in each_page.listeners.items():
            each_page.page.remove_listener(event, listener)
        if each_page.page.url.startswith("http"):
            each_page.page.goto("about:blank")
        tabs.append(each_page.page)


# Judgements are spaced by a multiple of what the last one took, which a busy machine stretches:
# here one follows another.
EAGER = """
import sys
from groupwise.cli.app import main
from groupwise.pages import live_hub
live_hub.SHARE, live_hub._FEWEST_SECONDS_BETWEEN_JUDGEMENTS = 1, 0.0
sys.exit(main())
"""


class Watcher:
    """A `groupwise watch` in a process of its own; an eager one judges again as soon as there is
    something new.
    """

    def __init__(self, paths: list[Path], port: int = 0, *, eager: bool = False) -> None:
        words = ["watch", *map(str, paths), "--port", str(port)]
        self.code: int | None = None
        self.process = Forked(EAGER if eager else PROGRAM, words)
        self.guard = threading.Timer(240, self.process.kill)
        self.guard.start()
        match = re.search(r"http://127\.0\.0\.1:(\d+)/[\w-]{32}/", self.process.stdout.readline())
        assert match is not None, self.process.stderr.read()
        self.address, self.port = match[0], int(match[1])

    def stop(self) -> int:
        if self.code is None:
            with self.process:
                if self.process.poll() is None:
                    self.process.send_signal(signal.SIGINT)
                self.code = self.process.communicate(timeout=60).returncode
            self.guard.cancel()
        return self.code


@pytest.fixture
def watch(browser: Any) -> Iterator[Callable[..., Watcher]]:
    """Starts a watcher; it is stopped afterwards."""
    watchers = []

    def start(*paths: Path, port: int = 0, eager: bool = False) -> Watcher:
        watchers.append(Watcher(list(paths), port, eager=eager))
        return watchers[-1]

    yield start
    for watcher in watchers:
        watcher.stop()


def reward_at(step: int) -> float:
    return round(0.75 - 0.5 * 0.97**step + 0.01 * ((step * 7) % 11 - 5), 6)


def append_rows(path: Path, first: int, last: int) -> Path:
    """Rows of a run that learns; each value says its step."""
    with path.open("a") as file:
        for step in range(first, last + 1):
            row = {
                "step": step,
                "reward": reward_at(step),
                "entropy": round(1 - step / 1000, 6),
                "completions/mean_length": 200 + step % 7,
            }
            file.write(json.dumps(row) + "\n")
    return path
