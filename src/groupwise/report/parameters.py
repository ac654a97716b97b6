"""What the parameters of the laws are called, their units, and what each one means to the reader.

Words only; the values come from a fit.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Word:
    """How one parameter is shown."""

    label: str  # with its usual symbol
    unit: str  # "" for a pure number, "metric" for the unit of the metric
    meaning: str  # a clause


PARAMETER_WORDS = {
    "plateau": Word("Plateau", "metric", "level that is approached"),
    "start": Word("Start", "metric", "level at the beginning of the log"),
    "natural_frequency": Word("Natural frequency ω", "rad per update", "stiffness over inertia, square root"),
    "damping_ratio": Word("Damping ratio ζ", "", "below 1 it oscillates, above 1 it creeps"),
    "tau1": Word("Slow time τ₁", "updates", "how long the approach takes"),
    "tau2": Word("Fast time τ₂", "updates", "how long the start takes: the trace of inertia"),
    "period": Word("Period", "updates", "of the oscillation"),
    "overshoot": Word("Overshoot", "of the way", "beyond the plateau, as a share of plateau minus start"),
    "inflection": Word("Inflection", "updates", "where the rise is steepest"),
    "time_constant": Word("Time constant τ", "updates", "63 % of the way"),
    "midpoint": Word("Midpoint", "updates", "half of the way"),
    "width": Word("Width", "updates", "how long the step takes"),
    "time_scale": Word("Time scale", "updates", "where the power law begins to show"),
    "exponent": Word("Exponent", "", "steepness"),
}


def word_of(name: str) -> Word:
    """Return how a parameter is shown; an unknown one by its own name."""
    return PARAMETER_WORDS.get(name, Word(name.replace("_", " ").capitalize(), "", ""))
