"""Thresholds, onsets and motions of the instrument against `thresholds.json`.

Its values were computed once, at commit 947700d, by that version's closed forms: a block of refresh
and async multiplied out by hand, the frequency equation of a mixture of delays, the thresholds of
lab/docs/theory/dynamics.md, and the turns of the slow eigenvalue. The present code finds the same
numbers by bisection, from the matrix of one period or from an angle.
"""

from __future__ import annotations

import json
import math
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise.edge.force import ForceOfMotion
from groupwise.edge.mode import period_matrix, stability, threshold, updates_of_period

GOLDEN: dict[str, list[dict[str, Any]]] = json.loads(
    (Path(__file__).parent / "thresholds.json").read_text(encoding="utf-8")
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
        limits = threshold(lag, [row["momentum"] for row in same], interval)
        assert limits.tolist() == pytest.approx([row["threshold"] for row in same], rel=1e-9), (
            interval
        )


@pytest.mark.parametrize("lag", LAGS)
def test_onsets(lag: str) -> None:
    """To nine digits."""
    for row in GOLDEN["thresholds"][::5]:  # each interval, with some of the momenta
        if row["lag"] == lag:
            onset = ForceOfMotion(lag, row["momentum"], row["interval"]).onset
            assert onset == pytest.approx(float(row["onset"]), rel=1e-9), row


@pytest.mark.parametrize("lag", LAGS)
def test_motions(lag: str) -> None:
    for row in GOLDEN["judgements"]:
        if row["lag"] != lag:
            continue
        setting = row["force"], row["momentum"], row["interval"]
        value_E = np.linalg.eigvals(period_matrix(lag, *setting))
        leading = value_E[np.argmax(np.abs(value_E))]
        turn, period = abs(np.angle(leading)), updates_of_period(lag, row["interval"])
        swing = 2 * math.pi * period / turn if turn > 1e-7 else math.inf
        assert abs(leading) == pytest.approx(float(row["spectral_radius"]), rel=1e-8), row
        assert swing == pytest.approx(float(row["period"]), rel=1e-8), row
        margin = stability(*setting[:2], refresh_interval=row["interval"], lag=lag)
        assert margin.max_refresh_interval == float(row["longest"]), row
        assert margin.max_refresh_status == row["longest_status"]
        assert math.isclose(margin.margin * margin.force, margin.threshold)
