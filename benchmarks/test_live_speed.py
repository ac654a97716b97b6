"""Speed of the live page: 20 runs of 10,000 steps and 24 keys each, as a trainer logs them, beside
the page of trackio on the same data.

    make bench    (or: python -m pytest benchmarks/test_live_speed.py --benchmark-only -o addopts=
    -s)

Of ours: what an update (one row more in one of the runs) costs the server in processor seconds,
what a look at an idle log costs, what reading everything from nothing costs, and how long the page
takes to open in Chromium once the watcher has read the logs. Of trackio: how long its page takes to
show its first figures of the same runs from its own database. Both pages are measured where
Chromium and Playwright are, and trackio where TRACKIO_PYTHON names a Python that has it (`python -m
venv /tmp/t && /tmp/t/bin/pip install trackio`), else skipped visibly. Wall times count everything
else that the machine does; processor seconds do not.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

pytest.importorskip("starlette")

from groupwise.pages.live_hub import Hub, followers_of
from groupwise.readers.follow import Follower

RUNS, STEPS, UPDATES = 20, 10_000, 40
LONGEST_OPEN, LARGEST_UPDATE = 2.0, 0.05
OURS_READY = (
    "() => document.querySelectorAll('#runs polyline[points]').length === 20 && "
    "document.querySelectorAll('canvas').length >= 10"
)
THEIRS_READY = "() => document.querySelectorAll('canvas').length >= 4"


def row(rng: np.random.Generator, step: int) -> dict[str, float]:
    """A row with 24 keys as TRL logs it."""
    level = 0.75 - 0.55 * float(np.exp(-step / 3000))
    noise = [round(float(value), 6) for value in rng.normal(size=16)]
    names = [
        *(
            "loss",
            "grad_norm",
            "entropy",
            "kl",
            "completions/mean_length",
            "completions/min_length",
            "completions/max_length",
        ),
        *(
            "completions/clipped_ratio",
            "reward_std",
            "rewards/check/mean",
            "rewards/check/std",
            "clip_ratio/low_mean",
            "step_time",
        ),
        *("clip_ratio/high_mean", "clip_ratio/region_mean", "completions/mean_terminated_length"),
    ]
    return dict(zip(names, noise, strict=True)) | {
        "reward": float(rng.binomial(64, level)) / 64,
        "frac_reward_zero_std": float(rng.binomial(8, 0.3)) / 8,
        "learning_rate": 1e-6,
        "num_tokens": 1e4 * step,
        "epoch": step / 1000,
        "clip_ratio/low_min": 0.0,
        "clip_ratio/high_max": 0.0,
        "step": step,
    }


def written(home: Path) -> list[Path]:
    """Write the logs of the runs."""
    paths = []
    for number in range(RUNS):
        rng = np.random.default_rng(number)
        paths.append(home / f"run{number:02d}.jsonl")
        paths[-1].write_text(
            "".join(json.dumps(row(rng, step)) + "\n" for step in range(1, STEPS + 1))
        )
    return paths


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The logs of the runs."""
    return written(tmp_path_factory.mktemp("logs"))


def test_update(benchmark: BenchmarkFixture, logs: list[Path]) -> None:
    """What one row more costs, from the look at the file to the message that is sent, and what
    the first reading does.
    """
    start = time.process_time()
    for path in logs:
        pl.read_ndjson(path)
    polars = time.process_time() - start
    start = time.process_time()
    hub = Hub(followers_of(logs, Follower), pool=None)
    for index in range(RUNS):
        hub.update(index)
    reading = time.process_time() - start
    rng = np.random.default_rng(99)
    costs: list[float] = []

    def update() -> None:
        index = len(costs) % RUNS
        with logs[index].open("a") as file:
            file.write(json.dumps(row(rng, STEPS + 1 + len(costs))) + "\n")
        began = time.process_time()
        assert hub.update(index)
        costs.append(time.process_time() - began)

    benchmark.pedantic(update, rounds=UPDATES, iterations=1, warmup_rounds=2)  # type: ignore[no-untyped-call]
    began = time.process_time()
    for index in range(RUNS):
        assert not hub.update(index)
    idle = (time.process_time() - began) / RUNS
    sizes = [len(data) for (_, part), (_, data) in hub._parts.items() if part == "tracks"]
    benchmark.extra_info |= {
        "update_s": statistics.median(costs),
        "largest_update_s": max(costs),
        "reading_s": reading,
        "idle_s": idle,
    }
    print(
        f"\nprocessor seconds: update median {statistics.median(costs) * 1e3:.1f} ms, largest "
        f"{max(costs) * 1e3:.1f} ms, message {statistics.median(sizes):.0f} bytes; idle look "
        f"{idle * 1e6:.0f} us; reading {RUNS} x {STEPS} rows from nothing {reading:.2f} s, "
        f"{reading / polars:.1f} times polars.read_ndjson of them"
    )
    assert statistics.median(costs) <= LARGEST_UPDATE


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs Playwright")
    path = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    if path is None:
        pytest.skip("needs Chromium")
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu"]
        )
        yield running
        running.close()


def opened(browser: Any, address: str, ready: str, longest: float = 120.0) -> float:
    """Seconds until a page shows its figures, in a new context."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    began = time.perf_counter()
    page.goto(address, wait_until="commit")
    page.wait_for_function(ready, polling=20, timeout=longest * 1000)
    took = time.perf_counter() - began
    context.close()
    return took


def test_open(benchmark: BenchmarkFixture, browser: Any, logs: list[Path]) -> None:
    """How long our page takes to show the figures of all runs, once the watcher has read the
    logs.
    """
    command = [sys.executable, "-m", "groupwise", "watch", *map(str, logs), "--port", "0"]
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            match = re.search(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())
            assert match is not None
            up = time.perf_counter() - began
            read: set[int] = set()
            with urllib.request.urlopen(f"{match[0]}events", timeout=300) as stream:
                for raw in stream:
                    data = json.loads(raw[6:]) if raw.startswith(b"data: ") else {}
                    if data.get("state", {}).get("rows", 0) >= STEPS:
                        read.add(data["id"])
                    if len(read) == RUNS:
                        break
            whole = time.perf_counter() - began
            times: list[float] = []
            benchmark.pedantic(
                lambda: times.append(opened(browser, match[0], OURS_READY)),
                rounds=5,
                iterations=1,
                warmup_rounds=1,
            )  # type: ignore[no-untyped-call]
        finally:
            process.send_signal(signal.SIGINT)
    benchmark.extra_info |= {"open_s": min(times), "served_after_s": up, "all_read_after_s": whole}
    print(
        f"\nours: page opens in {min(times):.2f} s (median {statistics.median(times):.2f}); from "
        f"the command to the address {up:.1f} s,"
    )
    print(
        f"to all rows read {whole:.1f} s; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} "
        "processors"
    )
    assert min(times) <= LONGEST_OPEN


FILL = """
import json, sys
from pathlib import Path
from trackio.sqlite_storage import SQLiteStorage
for path in map(Path, sys.argv[1:]):
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    SQLiteStorage.bulk_log("bench", path.stem, rows, [int(row.pop("step")) for row in rows])
import trackio
trackio.show("bench", open_browser=False, block_thread=True, host="127.0.0.1")
"""


def test_open_trackio(
    benchmark: BenchmarkFixture, browser: Any, logs: list[Path], tmp_path: Path
) -> None:
    """How long trackio's page takes to show its first figures of the same runs."""
    python = os.environ.get("TRACKIO_PYTHON")
    if not python:
        pytest.skip("needs TRACKIO_PYTHON, a Python that has trackio")
    environment = os.environ | {
        "TRACKIO_DIR": str(tmp_path),
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
    }
    environment.pop("PYTHONPATH", None)
    with subprocess.Popen(
        [python, "-c", FILL, *map(str, logs)], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            printed_address = next(
                match
                for line in process.stdout
                if (match := re.search(r"http://127\.0\.0\.1:\d+", line))
            )
            times: list[float] = []
            address = f"{printed_address[0]}/?project=bench"
            benchmark.pedantic(
                lambda: times.append(opened(browser, address, THEIRS_READY)), rounds=3, iterations=1
            )  # type: ignore[no-untyped-call]
        finally:
            process.terminate()
    benchmark.extra_info["open_s"] = min(times)
    print(
        f"\ntrackio: first figures after {min(times):.2f} s (median {statistics.median(times):.2f})"
    )
