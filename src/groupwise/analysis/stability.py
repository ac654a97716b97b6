"""What a run says of its stability: the force from its fitted reward, lag and momentum from its
settings, the margin, and the map.

The verdict is never "unstable": a curve alone does not tell that. The map has the learning rate
over the refresh interval.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from groupwise.analysis.charts import Chart, Line
from groupwise.analysis.fitted import Fitted
from groupwise.diagnostics.margin import (
    LARGE,
    NO_APPROACH,
    doubts_of,
    fits_with_a_force,
    judged,
    margin_of,
)
from groupwise.errors import GroupwiseError, InsufficientDataError
from groupwise.intervals import Interval
from groupwise.plain import Plain, plain
from groupwise.record.run import RunRecord
from groupwise.series.staleness import (
    LagSetting,
    UnknownSettingError,
    asking,
    kl_notes,
    lag_of,
    momentum_of,
)
from groupwise.wording import alike, law_name, number, readable, sentence

if TYPE_CHECKING:
    from groupwise.forecasting.results import FitResult
    from groupwise.stability.force import EffectiveForce
    from groupwise.stability.mode import ImportanceRatio, RateLimit, Stability
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
class StabilityEvidence(Plain):
    """The section on stability."""

    KEYS: ClassVar[tuple[str, ...]] = (
        "verdict",
        "said",
        "doubts",
        "asked",
        "swing",
        "early_warning=warning",
        "learning_rate",
        "limits",
        "notes=all_notes",
    )

    found: Stability | None = None  # where the mode that the reward shows stands, or None
    force: EffectiveForce | None = None  # per update, with its interval, or None
    margin: Interval | None = (
        None  # threshold over force, with its interval; None where none can be promised
    )
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
        """Stable (as far as the log shows), open, or unavailable: stable where the whole
        interval of the margin is above 1.
        """
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
        told = (
            f"a force of {force} an update where {limit} is the limit, a margin of "
            f"{ranged_margin(self.margin)}"
        )
        if self.verdict == "stable":
            return f"The mode that the reward shows is stable as far as the log shows: {told}."
        return (
            f"Open: {told}. The margin may be below 1, so the data do not say whether this mode is "
            "stable."
        )

    @property
    def all_notes(self) -> tuple[str, ...]:
        """What to know of the numbers, and what else should be said."""
        found = () if self.found is None else self.found.notes
        return (
            *found,
            *self.notes,
            *((asking(self.asked),) if self.asked and not self.unavailable else ()),
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; what no margin can be promised for is null."""
        shown = Plain.as_dict(self)
        if self.verdict == "unavailable":
            return shown
        force = plain(self.force)
        if self.found is None:
            names = ("threshold", "rule_threshold", "oscillation_onset", *_OF_A_FORCE)
            return {**dict.fromkeys(names), "time_constants": [], "effective_force": force, **shown}
        judged = {**self.found.as_dict(), **shown, "status": self.said, "effective_force": force}
        # Without a learning rate the limits are factors of the present one, and of a lag that there
        # is not no interval is the longest.
        if not self.knows_rate:
            judged["max_learning_rate"] = None
        if self.found.lag == "none":
            judged |= {"max_refresh_interval": None, "max_refresh_status": "not applicable"}
        if self.margin is None:
            return (
                judged | dict.fromkeys(_OF_A_FORCE) | {"time_constants": [], "momentum_windows": []}
            )
        stable = True if self.verdict == "stable" else None
        return judged | {"stable": stable, "margin_interval": self.margin.as_dict()}


def ranged(interval: Interval) -> str:
    """Write a value with its interval; a lower end of no use is not bounded."""
    if interval.low == interval.high:
        return number(interval.value)
    if math.isinf(interval.high):
        low = f"at least {number(interval.low)}" if interval.low > 0 else "not bounded"
        return f"{number(interval.value)} ({low})"
    low, value, high = alike(interval.low, interval.value, interval.high)
    return f"{value} ({low} to {high})"


def ranged_margin(interval: Interval) -> str:
    """Write a margin with its interval; beyond a thousand its size says nothing more."""
    bounded = math.isfinite(interval.high)
    if interval.value < LARGE and not (bounded and interval.high >= LARGE):
        return ranged(interval)
    value = margin_alone(interval.value)
    if interval.low >= LARGE or interval.low == interval.high:
        return value
    if bounded:
        return f"{value} ({number(interval.low)} to over {LARGE:,.0f})"
    return ranged(interval).replace(number(interval.value), value, 1)


def margin_alone(margin: float) -> str:
    """Write a margin without an interval: "1.69", "over 1,000 times"."""
    return f"over {LARGE:,.0f} times" if margin >= LARGE else number(margin)


NO_GUARANTEE = (
    "This speaks of the mode that the reward shows. A faster one may be invisible in it and "
    "unstable all the same: it is no guarantee of safety."
)
WHOLE_CURVE = (
    "The force comes from the whole curve, which far from its plateau is not one linear mode: the "
    "interval of the fit, which also covers frequency and envelope where they disagree, is widened "
    "by a factor of 3 to either side, after what simulated runs were off by."
)
ADAM = (
    "Adam is mapped heuristically: momentum = beta1, force = (1 − beta1) × learning rate × "
    "stiffness / root of the second moment, which is taken as constant."
)
ADAM_RATE = (
    "With Adam a log tells no largest learning rate: only, as a heuristic, how many times the "
    "present one it may be, which is the margin."
)
HALF_FORCE = (
    "Where the reward is at a maximum of its own, without a KL term that holds it off, it relaxes "
    "twice as fast as the parameters: the force is then half of this and the margin twice."
)
NO_LAG_LEFT = (
    "The exact importance ratio leaves no lag, so force and threshold are those of on-policy "
    "training."
)
PERHAPS_NO_LAG = (
    "What the ratio leaves of the lag is not known, so intervals cover both ends: the whole lag, "
    "and none."
)


def with_ratio(found: Stability, ratio: ImportanceRatio = "clipped") -> tuple[str, ...]:
    """Say what the importance ratio makes of an instability, which is judged without it."""
    low, high = found.bounds
    if found.stable or high <= found.threshold:
        return ()
    if found.force < low:
        return (f"With the exact importance ratio it is stable up to {number(low)}.",)
    if found.force >= high:
        return ("No importance ratio would hold it.",)
    if ratio == "exact":
        return (
            (
                f"With the exact importance ratio it is stable up to {number(high)}, unless a KL "
                "term "
                "is in the reward."
            ),
        )
    return (
        (
            "A clipped importance ratio may hold it: unclipped it would be stable up to "
            f"{number(high)}."
        ),
    )


def stability_evidence(record: RunRecord, fitted: Fitted) -> StabilityEvidence:
    """Say what the run's own settings and its fitted reward tell, or why they do not."""
    from groupwise.stability.swings import lasting_swing

    if fitted.fit is None or not fitted.rewarding:
        return StabilityEvidence()
    if fitted.fit.status in NO_APPROACH and not lasting_swing(fitted.fit.value_T).lasts:
        return StabilityEvidence()
    try:
        momentum, adam = momentum_of(record)
        return measured_stability(record, fitted, momentum, lag_of(record), adam=adam)
    except UnknownSettingError as error:
        return StabilityEvidence(unavailable=str(error), asked=(error.name,))
    except GroupwiseError as error:
        return StabilityEvidence(unavailable=sentence(str(error)))


def measured_stability(
    record: RunRecord,
    fitted: Fitted,
    momentum: float,
    lag: LagSetting,
    *,
    adam: bool = False,
    warn: bool = False,
) -> StabilityEvidence:
    """Judge the mode that a fitted reward shows."""
    from groupwise.stability.mode import rate_limits
    from groupwise.stability.swings import early_warning, lasting_swing

    fit = fitted.by_law(None)
    swing = lasting_swing(fit.value_T)
    swings = ""
    if swing.lasts:
        reach, period = number(swing.amplitude), number(swing.period)
        swings = (
            f"the reward keeps swinging at the end of the log, by {reach} to either side every "
            f"{period} rows"
        )
    if fit.status in NO_APPROACH:
        if swings:
            return StabilityEvidence(doubts=(swings,), swing=swing, adam=adam)
        raise InsufficientDataError(
            "expected a reward that approaches a plateau, got one that does not "
            f"({readable(fit.message).rstrip('.')}): no force can be read off it; give --stiffness "
            "instead of a run"
        )
    rate = record.config.value("learning_rate")
    rate = rate if rate is not None and rate > 0 else None
    told_rate = None if adam else rate
    law = law_name(fit.law)
    told, force, margin = margin_of(
        fits_with_a_force(fit, fitted.by_law, law=law), momentum, lag, rate=told_rate
    )
    doubts = doubts_of(fit, told, force, law=law, swings=swings)
    found = judged(force.force.value, momentum, lag.left[0], learning_rate=rate)
    windows = min(
        10, len(told.residual_T) // 20
    )  # five at least tell whether swings grow along the run
    warning = (
        early_warning(told.residual_T, windows=windows, level=ALARM)
        if warn and windows >= 5
        else None
    )
    notes = _notes(record, fit, found, lag, force, told=told, adam=adam)
    if warning is not None and warning.p_value < ALARM:
        notes.append(warning.status)
    return StabilityEvidence(
        found,
        force,
        None if doubts else margin,
        () if told_rate is None or doubts else rate_limits(found, told_rate),
        rate,
        tuple(notes),
        asked=lag.asked,
        charts=() if doubts else (map_chart(found, told_rate, force=force.force),),
        doubts=doubts,
        swing=swing,
        warning=warning,
        adam=adam,
    )


ALARM = 0.05
"""False-alarm rate of the sentence on growing swings."""


def mixture_notes(found: Stability, lag: LagSetting) -> list[str]:
    """What the mixture of lags behind a bound would allow."""
    if not lag.weight_D:
        return []
    from groupwise.stability.threshold import mixed_threshold

    limit = mixed_threshold(found.momentum, lag.weight_D)
    return [
        (
            f"The threshold of the mixture of lags is {number(limit)}, that of the fixed lag at "
            f"the bound {number(found.threshold)}."
        )
    ]


def _notes(
    record: RunRecord,
    fit: FitResult,
    found: Stability,
    lag: LagSetting,
    force: EffectiveForce,
    *,
    told: FitResult,
    adam: bool,
) -> list[str]:
    """What to know of a judgement from a run."""
    notes = [NO_GUARANTEE, WHOLE_CURVE, force.status]
    if told is not fit:
        notes.append(
            f"The law of the reward is the {law_name(fit.law)}, which has no force: it is read off "
            f"the {law_name(told.law)}."
        )
    if adam:
        notes += [ADAM, ADAM_RATE]
    if told.status == "not_identifiable":
        notes.append(
            f"The log does not single out this law: {readable(told.message).rstrip('.')}; the "
            "interval is for this law alone."
        )
    schedule = str(record.config.value("learning_rate_schedule") or "constant")
    if not schedule.startswith("constant"):
        notes.append(
            f"The learning rate follows a schedule ({schedule}): the force is a mean over the log, "
            "and was larger at the peak."
        )
    notes.append(HALF_FORCE)
    if len(lag.left) > 1:
        notes.append(PERHAPS_NO_LAG)
    elif lag.left[0] is not lag:
        return [*notes, NO_LAG_LEFT, *lag.notes]
    return [*notes, *lag.notes, *kl_notes(lag), *mixture_notes(found, lag)]


FloatArray = NDArray[np.float64]
_POINTS = 72
_FURTHEST = 64
_ROOM = 3.0  # factor of learning rate left free above and below what must be seen
_DIGITS = 5
_KINDS = {"fixed": "Fixed lag", "refresh": "Periodic refresh", "async": "Double-buffered async"}


def map_chart(
    found: Stability, learning_rate: float | None, *, force: Interval | None = None
) -> Chart:
    """Chart the stability of a mode over learning rate and refresh interval."""
    from groupwise.stability.mode import largest_rates

    rate = 1.0 if learning_rate is None else learning_rate
    lag = "refresh" if found.lag == "none" else found.lag
    spread = np.unique(
        np.round(np.geomspace(1, max(_FURTHEST, 4 * found.refresh_interval), _POINTS))
    )
    interval = np.union1d(spread, [float(found.refresh_interval)])
    limit, rule = largest_rates(
        lag, found.momentum, found.force / rate, interval, stale_share=found.stale_share
    )
    seen = np.concatenate(
        [limit[1:], rule, [rate]]
    )  # an on-policy limit far above all else is cut off
    bottom, top = _digits(float(seen.min()) / _ROOM), _digits(float(seen.max()) * _ROOM)
    x = tuple(int(value) for value in interval)
    nothing = (None,) * len(x)
    allowed = bool((rule > limit * (1 + 1e-9)).any())  # by the published rule, of what is unstable
    lines = [
        Line("unstable", "unstable", x, nothing, _written(limit), _written(np.full(len(x), top)))
    ]
    if allowed:
        lines.append(
            Line(
                "allowed by the rule, yet unstable",
                "unsafe",
                x,
                nothing,
                _written(limit),
                _written(np.maximum(limit, rule)),
            )
        )
    lines.append(_boundary(x, limit, found.force, force))
    lines.append(Line("published rule", "rival", x, _written(rule)))
    free = np.full(len(x), found.bounds[1] * rate / found.force)
    if found.bounds[1] > found.threshold and free[0] < top:
        lines.append(Line("boundary with the exact ratio", "second_rival", x, _written(free)))
    lines.append(
        Line("you are here", "here", (found.refresh_interval,), _written(np.array([rate])))
    )
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


def _boundary(
    x: tuple[int, ...], limit: FloatArray, force: float, interval: Interval | None
) -> Line:
    """The exact boundary, with the band that the force leaves."""
    if interval is None or interval.low <= 0 or math.isinf(interval.high):
        return Line("exact boundary", "law", x, _written(limit))
    low, high = _written(limit * force / interval.high), _written(limit * force / interval.low)
    return Line(
        "exact boundary", "law", x, _written(limit), low, high, f"{100 * interval.level:.0f} % band"
    )


def _caption(found: Stability, lag: str, *, free: float, unsafe: bool, band: bool) -> str:
    """Say what the map holds fixed, and what to see."""
    words = [
        (
            f"{_KINDS[lag]} at momentum {number(found.momentum)} and the present stiffness, "
            "without an importance ratio."
        )
    ]
    if found.lag == "none":
        words.append(
            "The run is on-policy, at 1; the rest is what several updates a generation would do."
        )
    if found.bounds[1] > found.threshold:
        words.append(f"With the exact ratio the boundary is {number(free)} throughout.")
    if band:
        words.append("The band is what the log leaves open.")
    if unsafe:
        words.append("Part of what the published rule allows is unstable.")
    return " ".join(words)


def _written(values: FloatArray) -> tuple[float | None, ...]:
    """Round each value to its own five significant digits: a logarithmic axis shows small ones
    as well as large ones.
    """
    return tuple(_digits(float(value)) if math.isfinite(value) else None for value in values)


def _digits(value: float) -> float:
    """Round to five significant digits."""
    return float(f"{value:.{_DIGITS - 1}e}")
