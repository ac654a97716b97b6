"""The map of stability: learning rate over refresh interval, the exact boundary, the published rule, and where a run is.

Plain data from a judgement. It computes no threshold of its own and draws nothing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from groupwise.analysis.charts import Chart, Line
from groupwise.intervals import Interval
from groupwise.wording import number

if TYPE_CHECKING:
    from groupwise.stability.mode import Stability

FloatArray = NDArray[np.float64]
_POINTS = 72
_FURTHEST = 64
_ROOM = 3.0  # factor of learning rate left free above and below what must be seen
_DIGITS = 5
_KINDS = {"fixed": "Fixed lag", "refresh": "Periodic refresh", "async": "Double-buffered async"}


def map_chart(found: Stability, learning_rate: float | None, *, force: Interval | None = None) -> Chart:
    """Chart the stability of a mode over learning rate and refresh interval."""
    from groupwise.stability.mode import largest_rates

    rate = 1.0 if learning_rate is None else learning_rate
    lag = "refresh" if found.lag == "none" else found.lag
    interval = _intervals(found.refresh_interval)
    limit, rule = largest_rates(lag, found.momentum, found.force / rate, interval, stale_share=found.stale_share)
    bottom, top = _ends(limit, rule, rate)
    x = tuple(int(value) for value in interval)
    nothing = (None,) * len(x)
    allowed = bool((rule > limit * (1 + 1e-9)).any())  # by the published rule, of what is unstable
    lines = [Line("unstable", "unstable", x, nothing, _written(limit), _written(np.full(len(x), top)))]
    if allowed:
        lines.append(Line("allowed by the rule, yet unstable", "unsafe", x, nothing, _written(limit), _written(np.maximum(limit, rule))))
    lines.append(_boundary(x, limit, found.force, force))
    lines.append(Line("published rule", "rival", x, _written(rule)))
    free = np.full(len(x), found.bounds[1] * rate / found.force)
    if found.bounds[1] > found.threshold and free[0] < top:
        lines.append(Line("boundary with the exact ratio", "second_rival", x, _written(free)))
    lines.append(Line("you are here", "here", (found.refresh_interval,), _written(np.array([rate]))))
    return Chart(
        "stability_map",
        "Stability over learning rate and refresh interval",
        "refresh interval, optimiser updates",
        "learning rate" if learning_rate is not None else "learning rate, present = 1",
        tuple(lines),
        caption=_caption(found, lag, free=free[0], unsafe=allowed, band=force is not None),
        wide=True,
        y_range=(bottom, top),
        x_scale="log2",
        y_scale="log10",
    )


def _intervals(present: int) -> FloatArray:
    """Whole intervals from 1 on, evenly spread over their logarithms, the present one among them."""
    most = max(_FURTHEST, 4 * present)
    spread = np.unique(np.round(np.geomspace(1, most, _POINTS)))
    return np.union1d(spread, [float(present)])


def _ends(limit: FloatArray, rule: FloatArray, rate: float) -> tuple[float, float]:
    """Learning rates at the bottom and the top edge; an on-policy limit far above all else is cut off."""
    seen = np.concatenate([limit[1:], rule, [rate]])
    return _digits(float(seen.min()) / _ROOM), _digits(float(seen.max()) * _ROOM)


def _boundary(x: tuple[int, ...], limit: FloatArray, force: float, interval: Interval | None) -> Line:
    """The exact boundary, with the band that the force leaves."""
    if interval is None or interval.low <= 0 or math.isinf(interval.high):
        return Line("exact boundary", "law", x, _written(limit))
    low, high = _written(limit * force / interval.high), _written(limit * force / interval.low)
    return Line("exact boundary", "law", x, _written(limit), low, high, f"{100 * interval.level:.0f} % band")


def _caption(found: Stability, lag: str, *, free: float, unsafe: bool, band: bool) -> str:
    """Say what the map holds fixed, and what to see."""
    words = [f"{_KINDS[lag]} at momentum {number(found.momentum)} and the present stiffness, without an importance ratio."]
    if found.lag == "none":
        words.append("The run is on-policy, at 1; the rest is what several updates a generation would do.")
    if found.bounds[1] > found.threshold:
        words.append(f"With the exact ratio the boundary is {number(free)} throughout.")
    if band:
        words.append("The band is what the log leaves open.")
    if unsafe:
        words.append("Part of what the published rule allows is unstable.")
    return " ".join(words)


def _written(values: FloatArray) -> tuple[float | None, ...]:
    """Round each value to its own five significant digits: a logarithmic axis shows small ones as well as large ones."""
    return tuple(_digits(float(value)) if math.isfinite(value) else None for value in values)


def _digits(value: float) -> float:
    """Round to five significant digits."""
    return float(f"{value:.{_DIGITS - 1}e}")
