"""Take the picture of a report that the README shows, with a Chromium that the machine has.

    python scripts/take_picture.py groupwise-report.html

It makes no report: `make picture` calls it after `make demo-recorded`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "img" / "report.png"
SIZE = (1000, 835)
COLOURS = 32


def main() -> None:
    """Draw the page without a window, and keep its top as a small palette image."""
    browser = next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None)
    if browser is None or len(sys.argv) != 2:
        raise SystemExit("expected the path of a page, on a machine with Chromium")
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "raw.png"
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={SIZE[0]},{SIZE[1]}"]
        page = Path(sys.argv[1]).resolve().as_uri()
        subprocess.run([browser, *options, f"--screenshot={raw}", page], check=True, capture_output=True, timeout=120)
        Image.open(raw).convert("RGB").quantize(COLOURS).save(PICTURE, optimize=True)
    print(f"{PICTURE}: {PICTURE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
