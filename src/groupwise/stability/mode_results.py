"""What is known of one mode of a run: its oscillators, and where it stands against its threshold.

These are results with their plain data. They compute nothing: `stability` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from groupwise.intervals import finite_or_none


@dataclass(frozen=True, slots=True)
class Reading:
    r"""The oscillator $m r'' + \gamma r' + k (r - r^*) = 0$ that stands for the discrete law."""

    name: str  # backward (the paper's rule is its damping) or centred (the smaller error)
    mass: float  # m
    damping: float  # gamma, per update
    restoring: float  # k, per update squared; the force per update a, not the stiffness

    def as_dict(self) -> dict[str, float]:
        """Plain data for JSON."""
        return {"mass": self.mass, "damping": self.damping, "restoring": self.restoring}


@dataclass(frozen=True, slots=True)
class Stability:
    """Where one mode stands."""

    force: float  # learning rate x stiffness, a
    lag: str  # kind
    refresh_interval: int  # R, updates
    momentum: float  # mu
    regime: str  # overdamped, underdamped or unstable
    # of the map over one period of the lag; below 1 where it is stable, and in a window above the threshold
    spectral_radius: float
    threshold: float  # of a, for this lag without importance ratio
    rule_threshold: float  # (1 - mu)/R, the published rule
    margin: float  # threshold over a
    max_learning_rate: float  # at the threshold
    max_refresh_interval: float  # the longest one up to which all are stable; infinite where none is too long
    # upper end of the window of stable momenta that holds the present one, or else of the nearest; 0.9999 where
    # none above it is too large, NaN where none is stable
    max_momentum: float
    oscillation_onset: float  # a from which this mode oscillates; infinite where it grows before
    time_constants: tuple[float, ...]  # of the slow modes of the exact map, in updates
    period: float  # of its oscillation in updates, infinite where it has none
    readings: tuple[Reading, ...]  # oscillators, centred first
    bounds: tuple[float, float]  # thresholds that the importance ratio leaves possible, lowest first
    notes: tuple[str, ...]  # sentences
    stale_share: float = 1.0  # share of the restoring force that is as old as the rollouts
    # of the longest interval: "exact", "at least" (the longest one looked at), "any" (proved), or "none"
    max_refresh_status: str = "exact"
    # (low, high) of the stable momenta at this force and interval, up to 0.9999
    momentum_windows: tuple[tuple[float, float], ...] = ()

    @property
    def stable(self) -> bool:
        """Whether the force is below the first threshold, so that the mode returns to its fixed point without an importance ratio."""
        return self.force < self.threshold

    @property
    def tightness(self) -> float:
        """How far the bounds lie apart, upper over lower; 1 where the threshold is known."""
        return self.bounds[1] / self.bounds[0]

    @property
    def status(self) -> str:
        """What to know, in one sentence."""
        if self.stable:
            margin = f"{self.margin:.3g}" if self.margin < 1000 else "over 1,000 times"
            return f"Stable: {self.force:.3g} of {self.threshold:.3g}, a margin of {margin}; {self.regime}."
        return f"Unstable: {self.force:.3g} exceeds {self.threshold:.3g}; the largest learning rate is {self.max_learning_rate:.3g}."

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "regime": self.regime,
            "stable": self.stable,
            "spectral_radius": finite_or_none(self.spectral_radius),
            "threshold": self.threshold,
            "rule_threshold": self.rule_threshold,
            "margin": finite_or_none(self.margin),
            "max_learning_rate": finite_or_none(self.max_learning_rate),
            "max_refresh_interval": finite_or_none(self.max_refresh_interval),
            "max_refresh_status": self.max_refresh_status,
            "max_momentum": finite_or_none(self.max_momentum),
            "momentum_windows": [list(window) for window in self.momentum_windows],
            "oscillator": self.readings[0].as_dict(),
            "readings": {reading.name: reading.as_dict() for reading in self.readings},
            "time_constants": list(self.time_constants),
            "period": finite_or_none(self.period),
            "oscillation_onset": finite_or_none(self.oscillation_onset),
            "force": self.force,
            "lag": self.lag,
            "refresh_interval": self.refresh_interval,
            "momentum": self.momentum,
            "stale_share": self.stale_share,
            "bounds": list(self.bounds),
            "tightness": finite_or_none(self.tightness),
            "status": self.status,
            "notes": list(self.notes),
        }
