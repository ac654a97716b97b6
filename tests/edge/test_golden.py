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


LAGS = ("none", "fixed", "refresh", "async")


@pytest.mark.parametrize("lag", LAGS)
def test_thresholds(lag: str) -> None:
    """To nine digits."""
    rows = [row for row in GOLDEN["thresholds"] if row["lag"] == lag]
    for interval, group in groupby(
        sorted(rows, key=lambda row: row["interval"]), lambda row: row["interval"]
    ):
        same = list(group)
        found = threshold(lag, [row["momentum"] for row in same], interval)
        assert found.tolist() == pytest.approx([row["threshold"] for row in same], rel=1e-9), (
            interval
        )


@pytest.mark.parametrize("lag", LAGS)
def test_onsets(lag: str) -> None:
    """To nine digits."""
    for row in GOLDEN["thresholds"]:
        if row["lag"] == lag:
            found = oscillation_onset(lag, row["momentum"], row["interval"])
            assert found == pytest.approx(float(row["onset"]), rel=1e-9), row


@pytest.mark.parametrize("lag", LAGS)
def test_motions(lag: str) -> None:
    for row in GOLDEN["judgements"]:
        if row["lag"] != lag:
            continue
        found = stability(row["force"], row["momentum"], refresh_interval=row["interval"], lag=lag)
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
