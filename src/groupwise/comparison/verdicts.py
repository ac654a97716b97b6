"""The status of a contrast, and its sentence: different, equivalent, not separable from seed noise, or not to be known."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from groupwise.comparison.results import Contrast, Divergence, Quantity
from groupwise.intervals import Interval, percent

NAMES: dict[Quantity, str] = {"level": "late mean", "speed": "time to the level"}
_METHODS = {
    "welch": "Welch's t",
    "paired_t": "t of the pairs",
    "pooled_t": "t with the seed noise of all groups",
    "known_seed_noise": "the seed noise given",
    "rank_permutation": "relabelling of ranks",
}


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values by Holm's method; those that are not numbers stay and do not count.

    Source: Holm (1979), Scandinavian Journal of Statistics 6, 65-70.
    """
    known = sorted((p, i) for i, p in enumerate(p_values) if math.isfinite(p))
    out, running = list(p_values), 0.0
    for rank, (p, i) in enumerate(known):
        running = max(running, min(1.0, (len(known) - rank) * p))
        out[i] = running
    return out


def judged(found: Contrast, adjusted_p: float, *, level: float, effect: float | None, tests: int) -> Contrast:
    """Give a contrast its status and its sentence."""
    status = found.status
    if status == "not_separable":
        inside = effect is not None and -effect < found.difference.low and found.difference.high < effect
        status = "equivalent" if inside else "different" if adjusted_p < 1 - level else "not_separable"
    found = dataclasses.replace(found, status=status, adjusted_p=adjusted_p)
    said = f"The {NAMES[found.quantity]} {_said(found, effect, f' after {tests} contrasts' if tests > 1 else '')}."
    return dataclasses.replace(found, message=said)


def _said(found: Contrast, effect: float | None, after: str) -> str:
    """What a status says of its quantity; `after` tells how many contrasts share the false-alarm rate."""
    value, ranked = _value(found.difference), found.method == "rank_permutation"
    match found.status:
        case "different":
            chance = f"p {_p(found.adjusted_p)} by {_METHODS[found.method]}{after}"
            return f"differs: {found.message} ({chance})" if ranked else f"differs beyond seed noise: {value}, {chance}"
        case "equivalent":
            return f"is the same to within {_short(effect or 0)}: {value}"
        case "not_separable":
            chance = f"p {_p(found.adjusted_p)}{after}"
            return "is not separable from seed noise: " + (f"{found.message} ({chance})" if ranked else f"{value}, {chance}{_power(found)}")
        case "seed_noise_unknown":
            real = f"the difference is real only if seeds of one setting differ by less than {_short(found.largest_seed_deviation)}"
            bound = f": {real} (standard deviation)" if math.isfinite(found.largest_seed_deviation) else ""
            noise = "step noise alone. With one seed each, seed noise is unknown"
            return f"differs by more than the noise of the steps: {value}, {noise}{bound}"
        case "within_step_noise":
            noise = "step noise alone; seed noise, unknown with one seed each, comes on top"
            return f"is not separable even from the noise of the steps: {value}, {noise}"
        case "unavailable":
            return f"cannot be compared: {found.message}"


def _power(found: Contrast) -> str:
    """What so many runs would find, and how many the difference takes."""
    if not (math.isfinite(found.minimum_detectable) or found.seeds_needed):
        return ""
    runs = f"{found.runs[0]} pairs" if found.method == "paired_t" else f"{found.runs[0]} and {found.runs[1]} runs"
    said = f". {runs} would find no difference that is possible"
    if math.isfinite(found.minimum_detectable):
        said = f". {runs} would find a difference of {_short(found.minimum_detectable)} 8 times in 10"
    return said + (f"; one of {_short(found.asked)} needs about {found.seeds_needed} a group" if found.seeds_needed else "")


def where_they_part(found: Divergence, level: Contrast) -> Divergence:
    """Of curves whose late means differ, "no divergence" would be wrong: only the step at which they part cannot be told."""
    if found.status != "none" or level.status not in ("different", "seed_noise_unknown"):
        return found
    return dataclasses.replace(found, status="unavailable", message="The late means differ; from which step on cannot be told.")


def _value(interval: Interval) -> str:
    """A signed value with its interval."""
    sign = "+" if interval.value >= 0 else ""
    if not interval.bounded:
        return f"{sign}{_short(interval.value)} ({percent(interval.level)} interval without limit)"
    return f"{sign}{_short(interval.value)} ({percent(interval.level)} interval {_short(interval.low)} to {_short(interval.high)})"


def _short(value: float) -> str:
    """A number with three digits."""
    text = f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return text.replace("-", "−")


def _p(value: float) -> str:
    """A p-value."""
    return "< 0.0001" if value < 1e-4 else f"{value:.2g}"
