"""Take the picture of the live page that the docs show: a simulated run whose answers grow longer
and longer, while it is written.

    python scripts/take_live_picture.py

It needs Playwright and a Chromium of the machine. `make picture` calls it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "img" / "watch.png"
SEED, ROWS, SIZE, COLOURS = 7, 110, (1280, 880), 64
TEXTS = (
    (1.0, "3 boxes of 14 pens are 42 pens. The answer is 42."),
    (0.0, "3 boxes of 14 pens are 42 pens. " + "Wait, let me check this again. " * 20),
    (0.0, "Let me think step by step. " + "First, read the problem again, carefully. " * 20),
)


def write(folder: Path) -> object:
    """Write the run, and return its writer, which is to stay open: a run goes on while it is."""
    sys.path.insert(0, str(ROOT / "lab" / "experiments"))
    from groupwise.record.run import RecordWriter
    from groupwise_lab.worlds.logs import run_of

    record, _ = run_of("length_runaway", seed=SEED, rows=150)
    writer = RecordWriter(folder, name="math-7b", config=record.config, meanings=record.meanings)
    rows = record.steps.head(ROWS).to_dicts()
    for row in rows:
        said = [
            {
                "prompt_id": 0,
                "prompt": "3 boxes of 14 pens: how many?",
                "completion": text,
                "reward": reward,
            }
            for reward, text in TEXTS
        ]
        writer.append(
            {key: value for key, value in row.items() if value is not None},
            said if row is rows[-1] else None,
            sync=False,
        )
    return writer


def main() -> None:
    """Serve the page, and keep its first screen as a small palette image."""
    from playwright.sync_api import sync_playwright

    browser = next(
        (
            program
            for name in ("chromium", "chromium-browser", "google-chrome")
            if (program := shutil.which(name))
        ),
        None,
    )
    with tempfile.TemporaryDirectory() as home:
        writer = write(Path(home) / "run")
        command = [
            sys.executable,
            "-m",
            "groupwise",
            "watch",
            str(Path(home) / "run"),
            "--port",
            "0",
        ]
        with (
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server,
            sync_playwright() as driver,
        ):
            assert server.stdout is not None
            program = re.search(r"http\S+", server.stdout.readline())
            assert program is not None
            page = driver.chromium.launch(executable_path=browser, args=["--no-sandbox"]).new_page(
                viewport={"width": SIZE[0], "height": SIZE[1]}
            )
            page.goto(program[0])
            page.wait_for_function(
                "() => document.querySelector('#state').textContent.includes('FAILING')",
                timeout=60_000,
            )
            page.wait_for_timeout(1000)
            page.screenshot(path=f"{home}/raw.png")
            server.terminate()
        del writer
        Image.open(f"{home}/raw.png").convert("RGB").quantize(COLOURS).save(PICTURE, optimize=True)
    print(f"{PICTURE}: {PICTURE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
