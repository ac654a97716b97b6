"""The status of a contrast, and its sentence: different, equivalent, not separable from seed noise, or not to be known.

It writes what the numbers say. It computes none.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from groupwise.comparison.results import Contrast, Divergence, Quantity
from groupwise.intervals import Interval, percent

NAMES: dict[Quantity, str] = {"level": "late mean", "speed": "time to the level", "plateau": "plateau"}
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
    said = _SENTENCES[status](found, effect, tests)
    if found.left_out:
        said += f" {found.left_out[0].upper()}{found.left_out[1:]}."
    return dataclasses.replace(found, message=said)


def _different(found: Contrast, _effect: float | None, tests: int) -> str:
    """The difference is real."""
    name, by = NAMES[found.quantity], _METHODS[found.method]
    if found.method == "rank_permutation":
        return f"The {name} differs: {found.message} (p {_p(found.adjusted_p)} by {by}{_after(tests)})."
    return f"The {name} differs beyond seed noise: {_value(found.difference)}, p {_p(found.adjusted_p)} by {by}{_after(tests)}."


def _equivalent(found: Contrast, effect: float | None, _tests: int) -> str:
    """No difference that matters."""
    return f"The {NAMES[found.quantity]} is the same to within {_short(effect or 0)}: {_value(found.difference)}."


def _not_separable(found: Contrast, _effect: float | None, tests: int) -> str:
    """Neither shown."""
    name = NAMES[found.quantity]
    if found.method == "rank_permutation":
        return f"The {name} is not separable from seed noise: {found.message} (p {_p(found.adjusted_p)}{_after(tests)})."
    said = f"The {name} is not separable from seed noise: {_value(found.difference)}, p {_p(found.adjusted_p)}{_after(tests)}."
    if math.isfinite(found.minimum_detectable):
        said += f" {_seeds(found)} would find a difference of {_short(found.minimum_detectable)} 8 times in 10"
        said += f"; one of {_short(found.asked)} needs about {found.seeds_needed} a group." if found.seeds_needed else "."
    elif found.seeds_needed:
        said += f" {_seeds(found)} would find no difference that is possible"
        said += f"; one of {_short(found.asked)} needs about {found.seeds_needed} a group."
    return said


def _unknown(found: Contrast, _effect: float | None, _tests: int) -> str:
    """One run each, and more than step noise."""
    said = (
        f"The {NAMES[found.quantity]} differs by more than the noise of the steps: {_value(found.difference)}, step noise alone. "
        "With one seed each, seed noise is unknown"
    )
    if math.isfinite(found.largest_seed_deviation):
        said += f": the difference is real only if seeds of one setting differ by less than {_short(found.largest_seed_deviation)}"
        said += " (standard deviation)"
    return said + "."


def _within(found: Contrast, _effect: float | None, _tests: int) -> str:
    """One run each, and step noise does it."""
    return (
        f"The {NAMES[found.quantity]} is not separable even from the noise of the steps: {_value(found.difference)}, step noise alone; "
        "seed noise, unknown with one seed each, comes on top."
    )


def _unavailable(found: Contrast, _effect: float | None, _tests: int) -> str:
    """Nothing to compare."""
    return f"The {NAMES[found.quantity]} cannot be compared: {found.message}."


_SENTENCES = {
    "different": _different,
    "equivalent": _equivalent,
    "not_separable": _not_separable,
    "seed_noise_unknown": _unknown,
    "within_step_noise": _within,
    "unavailable": _unavailable,
}


def summed_up(contrasts: Sequence[Contrast], divergence: Divergence, *, first: str, second: str) -> str:
    """Return what one group against another comes to, in one sentence."""
    by_status = {status: [NAMES[c.quantity] for c in contrasts if c.status == status] for status in _SENTENCES}
    names = f"{second} against {first}"
    if by_status["different"]:
        return f"{names}: {_listed(by_status['different'])} {_verb(by_status['different'])} beyond seed noise."
    if by_status["seed_noise_unknown"]:
        what = by_status["seed_noise_unknown"]
        return (
            f"{names}: {_listed(what)} {_verb(what)} by more than step noise; with one seed each nobody can say whether by more than seeds."
        )
    if by_status["within_step_noise"]:
        return f"{names}: not separable even from step noise."
    if by_status["not_separable"]:
        return f"{names}: not separable from seed noise."
    if by_status["equivalent"]:
        return f"{names}: the same to within what matters."
    return f"{names}: nothing could be compared. {divergence.message}"


def _listed(names: Sequence[str]) -> str:
    """Names with commas and an and."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _verb(names: Sequence[str]) -> str:
    """Differs or differ."""
    return "differs" if len(names) == 1 else "differ"


def _after(tests: int) -> str:
    """How many contrasts share the rate."""
    return f" after {tests} contrasts" if tests > 1 else ""


def _seeds(found: Contrast) -> str:
    """The numbers of runs."""
    if found.method == "paired_t":
        return f"{found.runs[0]} pairs"
    return f"{found.runs[0]} and {found.runs[1]} runs"


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
