"""The tables on stability as plain texts, for page and terminal alike: where a mode stands, what each rule allows, several modes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from groupwise.analysis.stability import StabilityEvidence, margin_alone, ranged, ranged_margin
from groupwise.intervals import Interval
from groupwise.report.tables import Grid
from groupwise.wording import number

if TYPE_CHECKING:
    from groupwise.stability.mode import RateLimit, Stability


def stability_grid(
    found: Stability,
    *,
    margin: Interval | None = None,
    force: Interval | None = None,
    learning_rate: bool = True,
    promised: bool = True,
) -> Grid:
    """Return where a mode stands as a table of texts."""
    updates = f"{found.refresh_interval} update{'' if found.refresh_interval == 1 else 's'}"
    words = {"none": "no lag", "fixed": f"fixed lag of {updates}"}
    interval = words.get(found.lag, f"{found.lag}, {updates}")
    head, told = ("", "Value", ""), ranged(force) if force else number(found.force)
    threshold = ("Threshold", number(found.threshold), f"momentum {number(found.momentum)}, {interval}")
    onset = ("Oscillates from", _onset(found), "force per update")
    if not promised:
        return Grid(head, (("Force per update, as read", told, "not to be trusted here"), threshold, onset), (1,))
    rows = [
        ("Force per update", told, "learning rate × stiffness"),
        threshold,
        ("Margin", ranged_margin(margin) if margin else margin_alone(found.margin), "threshold over force; above 1 is stable"),
        ("Spectral radius", number(found.spectral_radius, digits=4), "of one period of the lag; below 1 is stable"),
    ]
    if found.bounds[0] != found.bounds[1] or found.bounds[0] != found.threshold:
        ends = [number(end) for end in dict.fromkeys(found.bounds)]
        rows.append(("Threshold with the ratio", " to ".join(ends), "what the importance ratio leaves possible"))
    if learning_rate and found.max_learning_rate is not None:
        of = "of this mode alone" if margin else "at this interval and momentum"
        rows.append(("Largest learning rate", number(found.max_learning_rate), of))
    rows += [
        ("Longest refresh interval", _longest(found), "updates, at this force"),
        ("Stable momenta", _momenta(found.momentum_windows), "at this force and interval"),
        onset,
    ]
    if found.time_constants:
        rows.append(("Time constants", ", ".join(number(time) for time in found.time_constants), "updates, of the slow modes"))
    if math.isfinite(found.period):
        rows.append(("Period", number(found.period), "updates, of the oscillation"))
    return Grid(head, tuple(rows), (1,))


def evidence_grid(evidence: StabilityEvidence) -> Grid:
    """Return where the mode of a run stands as a table of texts, without what no margin can be promised for."""
    assert evidence.found is not None
    return stability_grid(
        evidence.found,
        margin=evidence.margin,
        force=None if evidence.force is None else evidence.force.force,
        learning_rate=evidence.knows_rate,
        promised=not evidence.doubts,
    )


def _longest(found: Stability) -> str:
    """The longest interval in words; without a lag there is none to bound."""
    if found.lag == "none":
        return "not applicable"
    if math.isinf(found.max_refresh_interval):
        return "any"
    at_least = "at least " if found.max_refresh_status == "at least" else ""
    return "none" if found.max_refresh_interval < 1 else f"{at_least}{found.max_refresh_interval:,.0f}"


def _onset(found: Stability) -> str:
    """The onset of oscillation in words."""
    return number(found.oscillation_onset) if math.isfinite(found.oscillation_onset) else "grows before"


def _momenta(windows: Sequence[tuple[float, float]]) -> str:
    """The stable momenta in words."""
    words = [f"{'up' if low == 0 else number(low, digits=4)} to {number(high, digits=4)}" for low, high in windows]
    return " and ".join(words) or "none"


def limit_grid(limits: Sequence[RateLimit]) -> Grid:
    """Return the rules with what each allows."""
    names = {"exact": "Exact threshold", "published": "Published rule (2606.30789)"}
    rows = tuple((names[one.rule], number(one.learning_rate), "allows it" if one.allows else "forbids it", one.note) for one in limits)
    best = next((place for place, one in enumerate(limits) if one.binds), -1)
    return Grid(("Rule", "Learning rate below", "The present one", ""), rows, (1,), best)


def mode_grid(modes: Sequence[Stability], stiffness: Sequence[float]) -> Grid:
    """Return several modes, stiffest first."""
    pairs = zip(stiffness, modes, strict=True)
    rows = tuple((number(value), number(mode.force), mode.regime, margin_alone(mode.margin)) for value, mode in pairs)
    return Grid(("Stiffness", "Force per update", "Regime", "Margin"), rows, (0, 1, 3))
