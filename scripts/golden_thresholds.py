"""Writes tests/golden/thresholds.json: edges of stability that two independent computations have to agree on.

The values in the repository were computed once, at commit 947700d, by that version's closed forms, none of which the present code
uses: Jury's conditions on the closed block of refresh and async (`blocks.first_growth`), the frequency equation of a mixture of delays
(`crossings.first_crossing`), the closed thresholds of docs/theory/dynamics.md, and the turns of the slow eigenvalue (roots of a quadratic
and of a cubic). The present code finds the same numbers from the matrix of one period. Run it only to add settings; a number that changes
is a mistake.
"""

from __future__ import annotations

import json
import math
from itertools import product
from pathlib import Path

from groupwise.stability.mode import momentum_windows, stability
from groupwise.stability.threshold import mixed_threshold, oscillation_onset, threshold

MOMENTA = (0.0, 0.1, 0.5, 0.8, 0.9, 0.95, 0.99, 0.999)
INTERVALS = (1, 2, 3, 4, 5, 8, 12, 16, 30, 64, 128, 256)
SHARES = (-0.5, 0.2, 0.5, 0.6, 0.9, 1.04, 1.5)
MIXTURES = ((0.5, 0.5), (0.2, 0.3, 0.0, 0.5), (0.25,) * 4, (0.1,) * 10, (0.5, *(0.0,) * 30, 0.5), (0.0,) * 8 + (0.3, 0.7))
WINDOWS = (
    (1.207, 2, "refresh", 1.0), (3.0, 1, "refresh", 1.0), (0.02, 8, "refresh", 1.0), (2.1, 4, "none", 1.0), (5.0, 4, "async", 1.0),
    (0.05, 5, "async", 1.04), (1.2, 2, "refresh", 0.9), (0.3, 3, "fixed", 0.7), (0.02, 8, "fixed", 1.0), (0.02, 8, "async", 1.0),
)  # fmt: skip
FORCES = (0.01, 0.5, 0.99, 1.2)  # of the threshold


def written(number: float) -> float | str:
    """A number with 15 digits; infinity as a text."""
    return float(f"{number:.15g}") if math.isfinite(number) else str(number)


def thresholds() -> list[dict[str, object]]:
    """Thresholds and onsets, of the whole force stale and of a part."""
    rows = []
    whole = product(("none", "fixed", "refresh", "async"), (1.0,), MOMENTA, INTERVALS)
    part = product(("fixed", "refresh", "async"), SHARES, (0.0, 0.3, 0.5, 0.9, 0.99), (1, 2, 3, 5, 8, 12, 30, 100))
    for lag, share, momentum, interval in (*whole, *part):
        row = {"lag": lag, "stale_share": share, "momentum": momentum, "interval": interval}
        limit = float(threshold(lag, momentum, interval, stale_share=share))
        rows.append({**row, "threshold": written(limit), "onset": written(oscillation_onset(lag, momentum, interval, stale_share=share))})
    return rows


def judgements() -> list[dict[str, object]]:
    """Spectral radius, period, time constants and longest interval at some forces."""
    rows = []
    settings = product(("none", "fixed", "refresh", "async"), (1.0, 1.04, 0.4), (0.0, 0.9), (1, 4, 8, 100))
    for lag, share, momentum, interval in settings:
        limit = float(threshold(lag, momentum, interval, stale_share=share))
        for part in FORCES:
            found = stability(part * limit, momentum, refresh_interval=interval, lag=lag, stale_share=share)
            rows.append({
                "lag": lag, "stale_share": share, "momentum": momentum, "interval": interval, "force": written(part * limit),
                "spectral_radius": written(found.spectral_radius), "period": written(found.period),
                "slowest": written(max(found.time_constants, default=0.0)),
                "longest": written(found.max_refresh_interval), "longest_status": found.max_refresh_status,
            })  # fmt: skip
    return rows


def main() -> None:
    """Write the file."""
    data = {
        "thresholds": thresholds(),
        "judgements": judgements(),
        "mixtures": [
            {"shares": list(shares), "momentum": momentum, "threshold": written(mixed_threshold(momentum, shares))}
            for shares, momentum in product(MIXTURES, (0.0, 0.5, 0.9, 0.99))
        ],
        "momentum_windows": [
            {
                "force": force, "interval": interval, "lag": lag, "stale_share": share,
                "windows": [list(window) for window in momentum_windows(force, refresh_interval=interval, lag=lag, stale_share=share)],
            }
            for force, interval, lag, share in WINDOWS
        ],
    }  # fmt: skip
    lines = [f'"{name}": [\n' + ",\n".join(json.dumps(row) for row in rows) + "\n]" for name, rows in data.items()]
    path = Path(__file__).parent.parent / "tests" / "golden" / "thresholds.json"
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
