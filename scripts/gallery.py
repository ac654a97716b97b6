"""Take the pictures of reports that README and gallery show, with a Chromium that the machine has.

    python scripts/gallery.py [--runs]

Of the runs that travel with the package, five of them simulated
(`lab/src/groupwise_lab/worlds/logs.py`): with --runs those are made anew first.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

from PIL import Image

from groupwise import examples
from groupwise.analysis.summary import summarise
from groupwise.pages.html import made_by, render
from groupwise.readers import run_record
from groupwise.record.run import RunRecord
from groupwise_lab.worlds.logs import run_of

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "img"
SIZE = (1280, 664)
COLOURS = 48
RUNS = {
    "length_runaway": 2,
    "hacking_true_logged": 5,
    "verifier_broken": 3,
    "sampler_mismatch": 4,
    "cut_off": 3,
}  # kind: seed
ROWS = 150


def simulated(kind: str) -> RunRecord:
    """Return the run of the gallery of a kind, under the name of its kind."""
    return replace(run_of(kind, RUNS[kind], rows=ROWS)[0], name=kind)


def take(browser: str, record: RunRecord, picture: Path) -> None:
    """Draw the report of a run without a window, and keep its first screen as a small palette
    image.
    """
    with tempfile.TemporaryDirectory() as folder:
        page, raw = Path(folder) / "page.html", Path(folder) / "raw.png"
        page.write_text(
            render([summarise(record)], provenance=made_by(["report", record.name])),
            encoding="utf-8",
        )
        options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--window-size={SIZE[0]},{SIZE[1]}",
        ]
        options += ["--virtual-time-budget=2000", f"--screenshot={raw}"]
        subprocess.run(
            [browser, *options, page.as_uri()], check=True, capture_output=True, timeout=120
        )
        Image.open(raw).convert("RGB").quantize(COLOURS).save(picture, optimize=True)
    print(f"{picture.relative_to(ROOT)}: {picture.stat().st_size:,} bytes")


def main() -> None:
    """Take every picture."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--runs", action="store_true", help="make the simulated runs anew")
    anew = asked.parse_args().runs
    browser = next(
        (
            program
            for name in ("chromium", "chromium-browser", "google-chrome")
            if (program := shutil.which(name))
        ),
        None,
    )
    if browser is None:
        raise SystemExit(
            "expected Chromium, found none: install it, or run this on another machine"
        )
    os.environ.setdefault(
        "SOURCE_DATE_EPOCH", "1767225600"
    )  # pictures differ where pages do, and not by the hour
    take(browser, run_record(examples.trl_run()), PICTURES / "report.png")
    for kind in RUNS:
        record = simulated(kind)
        if anew:
            record.save(examples.HOME / "runs" / kind, force=True)
        take(browser, record, PICTURES / f"gallery-{kind.replace('_', '-')}.png")


if __name__ == "__main__":
    main()
