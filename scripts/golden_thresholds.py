"""Adds settings to tests/golden/thresholds.json: edges of stability that two independent
computations have to agree on.

The values in the repository were computed once, at commit 947700d, by that version's closed forms,
none of which the present code uses: Jury's conditions on the closed block of refresh and async
(`blocks.first_growth`), the frequency equation of a mixture of delays (`crossings.first_crossing`),
the closed thresholds of lab/docs/theory/dynamics.md, and the turns of the slow eigenvalue (roots of
a quadratic and of a cubic). The present code finds the same numbers from the matrix of one period.
Of 31 onsets that code had eight digits or a turn too few: those of a partly stale fixed lag of 100
updates, and of async with a stale share of -.5, momentum .3 and 12 updates, where a negative
eigenvalue leads from .154321 on. Their values are from 40 digits.
So a row that is there stays as it is, and only settings that are new are computed: run on the file
of the repository, this changes nothing.

Two kinds of numbers are null, since rounding alone decides them and no two computations need agree
(`undecided_threshold`, `undecided_onset`): thresholds of long blocks of which half is stale, and
onsets of asynchronous ones whose stale part pulls the other way. Without a lag the interval means
nothing: two of them are enough, and the stale share is 1. Partly stale modes are judged at two
forces, one on each side of the edge.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from groupwise.edge.mode import stability
from groupwise.edge.spectrum import oscillation_onset
from groupwise.edge.threshold import threshold

MOMENTA = (0.0, 0.1, 0.5, 0.8, 0.9, 0.95, 0.99, 0.999)
INTERVALS = (1, 2, 3, 4, 5, 8, 12, 16, 30, 64, 128, 256)
SHARES = (-0.5, 0.2, 0.5, 0.6, 0.9, 1.04, 1.5)
FORCES = {1.0: (0.01, 0.5, 0.99, 1.2), 1.04: (0.5, 1.2)}  # of the threshold, for each stale share
SETTING = ("lag", "stale_share", "momentum", "interval", "force")

Row = dict[str, Any]
Key = tuple[object, ...]


def written(number: float) -> float | str:
    """A number with 15 digits; infinity as a text."""
    return float(f"{number:.15g}") if math.isfinite(number) else str(number)


def undecided_threshold(row: Row) -> bool:
    """Whether a threshold is neutral within rounding: half of the force is stale, and the current
    half has settled within the block.

    The block then returns minus what it began with: the eigenvalue is -1 but for what the current
    half has left, about mu^(R/2), and rounding says on which side. Without momentum and with R even
    that is a square, which touches -1 and crosses it nowhere.
    """
    half_stale = row["lag"] in {"refresh", "async"} and row["stale_share"] == 0.5
    return (
        half_stale
        and decayed(row, 1e-7)
        and not (row["momentum"] == 0 and row["interval"] % 2 == 0)
    )


def undecided_onset(row: Row) -> bool:
    """Whether two eigenvalues of one size and opposite signs lead, so that rounding says which:
    async with a negative stale share.

    Once the current part has settled, lambda^2 is positive but for about mu^(R/2): a block and the
    one after it go two ways of their own.
    """
    return row["lag"] == "async" and row["stale_share"] < 0 and decayed(row, 1e-4)


def decayed(row: Row, rest: float) -> bool:
    """Whether less than this share of the current part's motion is left at the end of a block."""
    return bool(row["interval"] >= 3 and row["momentum"] ** (row["interval"] / 2) < rest)


def settings(lags: Iterator[tuple[str, float, float, int]]) -> Iterator[Row]:
    """Settings as rows; without a lag the stale share is 1."""
    for lag, share, momentum, interval in lags:
        if lag != "none" or share == 1:
            yield {"lag": lag, "stale_share": share, "momentum": momentum, "interval": interval}


def thresholds(held: dict[Key, Row]) -> Iterator[Row]:
    """Thresholds and onsets, of the whole force stale and of a part."""
    whole = product(("none", "fixed", "refresh", "async"), (1.0,), MOMENTA, INTERVALS)
    part = product(
        ("fixed", "refresh", "async"),
        SHARES,
        (0.0, 0.3, 0.5, 0.9, 0.99),
        (1, 2, 3, 5, 8, 12, 30, 100),
    )
    for row in settings(iter((*whole, *part))):
        if row["lag"] == "none" and row["interval"] > 2:
            continue
        yield held.get(key(row)) or {**row, "threshold": None, "onset": None} | {
            name: written(
                float(
                    found(
                        row["lag"], row["momentum"], row["interval"], stale_share=row["stale_share"]
                    )
                )
            )
            for name, found, undecided in (
                ("threshold", threshold, undecided_threshold),
                ("onset", oscillation_onset, undecided_onset),
            )
            if not undecided(row)
        }


def judgements(held: dict[Key, Row]) -> Iterator[Row]:
    """Spectral radius, period, time constants and longest interval at some forces."""
    for row in settings(
        product(("none", "fixed", "refresh", "async"), FORCES, (0.0, 0.9), (1, 4, 8, 100))
    ):
        lag, share, momentum, interval = row.values()
        limit = float(threshold(lag, momentum, interval, stale_share=share))
        for part in FORCES[share]:
            setting = {**row, "force": written(part * limit)}
            if key(setting) in held:
                yield held[key(setting)]
                continue
            found = stability(
                part * limit, momentum, refresh_interval=interval, lag=lag, stale_share=share
            )
            yield {
                **setting,
                "spectral_radius": written(found.spectral_radius),
                "period": written(found.period),
                "slowest": written(max(found.time_constants, default=0.0)),
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
