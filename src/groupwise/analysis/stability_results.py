"""What a run's stability comes to, as data and in sentences: the mode, its force and margin, and what speaks against them.

The verdict is never "unstable": a curve alone does not tell that. It judges nothing itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from groupwise.analysis.charts import Chart
from groupwise.diagnostics.margin import LARGE
from groupwise.intervals import Interval
from groupwise.series.lag import asking
from groupwise.wording import alike, number

if TYPE_CHECKING:
    from groupwise.stability.force import EffectiveForce
    from groupwise.stability.map import RateLimit
    from groupwise.stability.mode import Stability
    from groupwise.stability.swings import EarlyWarning, LastingSwing

_OF_A_FORCE = (
    "regime",
    "stable",
    "spectral_radius",
    "margin",
    "max_learning_rate",
    "max_refresh_interval",
    "max_refresh_status",
    "max_momentum",
    "oscillator",
    "period",
    "margin_interval",
)


@dataclass(frozen=True, slots=True)
class StabilityEvidence:
    """The section on stability."""

    found: Stability | None = None  # where the mode that the reward shows stands, or None
    force: EffectiveForce | None = None  # per update, with its interval, or None
    margin: Interval | None = None  # threshold over force, with its interval; None where none can be promised
    # of the learning rate, by rule; empty where the learning rate is unknown or Adam's
    limits: tuple[RateLimit, ...] = ()
    learning_rate: float | None = None  # the present one, or None
    notes: tuple[str, ...] = ()  # sentences on what to know
    unavailable: str = ""  # why nothing can be said, or ""
    asked: tuple[str, ...] = ()  # settings that would be needed
    charts: tuple[Chart, ...] = ()  # the map, or none
    doubts: tuple[str, ...] = ()  # why no margin can be promised
    swing: LastingSwing | None = None  # of the last rows, where it was looked for
    # whether swings grow along the run, or None where it was not tested or the log is too short
    warning: EarlyWarning | None = None
    adam: bool = False  # whether the force is Adam's

    @property
    def verdict(self) -> str:
        """Stable (as far as the log shows), open, or unavailable: stable where the whole interval of the margin is above 1."""
        if self.doubts:
            return "open"
        if self.margin is None:
            return "unavailable"
        return "stable" if self.margin.low > 1 else "open"

    @property
    def knows_rate(self) -> bool:
        """Whether a largest learning rate follows: it is known, and not Adam's."""
        return self.learning_rate is not None and not self.adam and self.margin is not None

    @property
    def said(self) -> str:
        """What it comes to, in one sentence."""
        if self.doubts:
            return f"Open: {'; '.join(self.doubts)}. No margin can be promised."
        if self.found is None or self.margin is None or self.force is None:
            return f"Unavailable: {self.unavailable}"
        force, limit = number(self.force.force.value), number(self.found.threshold)
        told = f"a force of {force} an update where {limit} is the limit, a margin of {ranged_margin(self.margin)}"
        if self.verdict == "stable":
            return f"The mode that the reward shows is stable as far as the log shows: {told}."
        return f"Open: {told}. The margin may be below 1, so the data do not say whether this mode is stable."

    @property
    def all_notes(self) -> tuple[str, ...]:
        """What to know of the numbers, and what else should be said."""
        found = () if self.found is None else self.found.notes
        return (*found, *self.notes, *((asking(self.asked),) if self.asked and not self.unavailable else ()))

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; what no margin can be promised for is null."""
        plain: dict[str, Any] = {
            "verdict": self.verdict,
            "said": self.said,
            "doubts": list(self.doubts),
            "asked": list(self.asked),
            "swing": None if self.swing is None else self.swing.as_dict(),
            "early_warning": None if self.warning is None else self.warning.as_dict(),
            "learning_rate": self.learning_rate,
            "limits": [limit.as_dict() for limit in self.limits],
            "notes": list(self.all_notes),
        }
        if self.verdict == "unavailable":
            return plain
        force = None if self.force is None else self.force.as_dict()
        if self.found is None:
            names = ("threshold", "rule_threshold", "oscillation_onset", *_OF_A_FORCE)
            return {**dict.fromkeys(names), "time_constants": [], "effective_force": force, **plain}
        judged = {**self.found.as_dict(), **plain, "status": self.said, "effective_force": force}
        # Without a learning rate the limits are factors of the present one, and of a lag that there is not no interval is the longest.
        if not self.knows_rate:
            judged["max_learning_rate"] = None
        if self.found.lag == "none":
            judged |= {"max_refresh_interval": None, "max_refresh_status": "not applicable"}
        if self.margin is None:
            return judged | dict.fromkeys(_OF_A_FORCE) | {"time_constants": [], "momentum_windows": []}
        stable = True if self.verdict == "stable" else None
        return judged | {"stable": stable, "margin_interval": self.margin.as_dict()}


def ranged(interval: Interval) -> str:
    """Write a value with its interval."""
    if interval.low == interval.high:
        return number(interval.value)
    if math.isinf(interval.high):
        return f"{number(interval.value)} ({_lower_end(interval.low)})"
    low, value, high = alike(interval.low, interval.value, interval.high)
    return f"{value} ({low} to {high})"


def _lower_end(low: float) -> str:
    """An interval without an upper end."""
    return f"at least {number(low)}" if low > 0 else "not bounded"


def ranged_margin(interval: Interval) -> str:
    """Write a margin with its interval; beyond a thousand its size says nothing more."""
    bounded = math.isfinite(interval.high)
    if interval.value < LARGE and not (bounded and interval.high >= LARGE):
        return ranged(interval)
    value = margin_alone(interval.value)
    if interval.low >= LARGE or interval.low == interval.high:
        return value
    return f"{value} ({f'{number(interval.low)} to over {LARGE:,.0f}' if bounded else _lower_end(interval.low)})"


def margin_alone(margin: float) -> str:
    """Write a margin without an interval: "1.69", "over 1,000 times"."""
    return f"over {LARGE:,.0f} times" if margin >= LARGE else number(margin)
