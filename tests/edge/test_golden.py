"""Thresholds, onsets and motions against tests/golden/thresholds.json: closed forms
that no present code uses found them.
"""

from __future__ import annotations

import json
import math
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from groupwise.edge.mode import stability
from groupwise.edge.spectrum import oscillation_onset
from groupwise.edge.threshold import threshold

GOLDEN: dict[str, list[dict[str, Any]]] = json.loads(
    (Path(__file__).parents[1] / "golden" / "thresholds.json").read_text(encoding="utf-8")
)


def setting(row: dict[str, Any]) -> tuple[str, float]:
    return row["lag"], row["stale_share"]


@pytest.mark.thinned(8)
@pytest.mark.parametrize(("lag", "share"), sorted({setting(row) for row in GOLDEN["thresholds"]}))
def test_thresholds(lag: str, share: float) -> None:
    """To nine digits; null is what is neutral within rounding (a block that is half stale and
    has decayed).
    """
    rows = [
        row
        for row in GOLDEN["thresholds"]
        if setting(row) == (lag, share) and row["threshold"] is not None
    ]
    for interval, group in groupby(
        sorted(rows, key=lambda row: row["interval"]), lambda row: row["interval"]
    ):
        same = list(group)
        found = threshold(lag, [row["momentum"] for row in same], interval, stale_share=share)
        assert found.tolist() == pytest.approx([row["threshold"] for row in same], rel=1e-9), (
            interval
        )


@pytest.mark.thinned(5)
@pytest.mark.parametrize(("lag", "share"), sorted({setting(row) for row in GOLDEN["thresholds"]}))
def test_onsets(lag: str, share: float) -> None:
    """To nine digits; of a partly fixed lag eight, since two eigenvalues that meet are no nearer
    told apart; null where two tie.
    """
    rows = [
        row
        for row in GOLDEN["thresholds"]
        if setting(row) == (lag, share) and row["onset"] is not None
    ]
    for row in rows[:: 1 if share == 1 else 4]:
        found = oscillation_onset(lag, row["momentum"], row["interval"], stale_share=share)
        wanted = float(row["onset"])
        assert found == pytest.approx(wanted, rel=1e-9 if lag != "fixed" or share == 1 else 1e-8), (
            row
        )


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("lag", "share"), sorted({setting(row) for row in GOLDEN["judgements"]}))
def test_motions(lag: str, share: float) -> None:
    for row in GOLDEN["judgements"]:
        if setting(row) != (lag, share):
            continue
        found = stability(
            row["force"],
            row["momentum"],
            refresh_interval=row["interval"],
            lag=lag,
            stale_share=share,
        )
        seen = [
            found.spectral_radius,
            found.period,
            max(found.time_constants, default=0.0),
            found.max_refresh_interval,
        ]
        wanted = [float(row[name]) for name in ("spectral_radius", "period", "slowest", "longest")]
        assert seen == pytest.approx(wanted, rel=1e-8), row
        assert found.max_refresh_status == row["longest_status"]
        assert math.isclose(found.margin * found.force, found.threshold)
