"""Adds settings to tests/golden/thresholds.json: edges of stability that two independent
computations have to agree on.

The values in the repository were computed once, at commit 947700d, by that version's closed forms,
none of which the present code uses: Jury's conditions on the closed block of refresh and async
(`blocks.first_growth`), the frequency equation of a mixture of delays (`crossings.first_crossing`),
the closed thresholds of lab/docs/theory/dynamics.md, and the turns of the slow eigenvalue (roots of
a quadratic and of a cubic). The present code finds the same numbers from the matrix of one period.
So a row that is there stays as it is, and only settings that are new are computed: run on the file
of the repository, this changes nothing.

Without a lag the interval means nothing: two of them are enough.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from groupwise.edge.force import ForceOfMotion
from groupwise.edge.mode import stability, threshold

LAGS = ("none", "fixed", "refresh", "async")
MOMENTA = (0.0, 0.1, 0.5, 0.8, 0.9, 0.95, 0.99, 0.999)
INTERVALS = (1, 2, 3, 4, 5, 8, 12, 16, 30, 64, 128, 256)
FORCES = (0.01, 0.5, 0.99, 1.2)  # of the threshold
SETTING = ("lag", "momentum", "interval", "force")

Row = dict[str, Any]
Key = tuple[object, ...]


def written(number: float) -> float | str:
    """A number with 15 digits; infinity as a text."""
    return float(f"{number:.15g}") if math.isfinite(number) else str(number)


def thresholds(held: dict[Key, Row]) -> Iterator[Row]:
    """Thresholds and onsets."""
    for lag, momentum, interval in product(LAGS, MOMENTA, INTERVALS):
        if lag == "none" and interval > 2:
            continue
        row = {"lag": lag, "momentum": momentum, "interval": interval}
        yield held.get(key(row)) or row | {
            "threshold": written(float(threshold(lag, momentum, interval))),
            "onset": written(ForceOfMotion(lag, momentum, interval).onset),
        }


def judgements(held: dict[Key, Row]) -> Iterator[Row]:
    """Longest interval at some forces; rows that are there have eigenvalues of the matrix too."""
    for lag, momentum, interval in product(LAGS, (0.0, 0.9), (1, 4, 8, 100)):
        limit = float(threshold(lag, momentum, interval))
        for part in FORCES:
            row = {"lag": lag, "momentum": momentum, "interval": interval}
            row["force"] = written(part * limit)
            if key(row) in held:
                yield held[key(row)]
                continue
            found = stability(part * limit, momentum, refresh_interval=interval, lag=lag)
            yield {
                **row,
                "longest": written(found.max_refresh_interval),
                "longest_status": found.max_refresh_status,
            }


def key(row: Row) -> Key:
    """What a row is about: its setting, the force to nine digits."""
    return tuple(
        f"{row[name]:.9g}" if name == "force" else str(row[name]) for name in SETTING if name in row
    )


def main() -> None:
    """Write the file."""
    path = Path(__file__).parent.parent / "tests" / "golden" / "thresholds.json"
    held = {
        name: {key(row): row for row in rows}
        for name, rows in json.loads(path.read_text(encoding="utf-8")).items()
    }
    made = {"thresholds": thresholds, "judgements": judgements}
    lines = [
        f'"{name}": [\n' + ",\n".join(map(json.dumps, rows(held[name]))) + "\n]"
        for name, rows in made.items()
    ]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
