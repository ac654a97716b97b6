r"""How far a run is from instability: exact thresholds of the force per update $a = \eta K$, the published rule, and what would be safe.

A mode of stiffness K under heavy-ball momentum is stable while $\eta K$ is below the threshold of its kind of lag. It speaks of the
linear mode that it is given: a faster one that the reward does not show may be unstable while this one is not.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from groupwise.errors import InvalidArgumentError
from groupwise.stability.crossings import Complex, Float
from groupwise.stability.lags import LONGEST_FIXED_LAG, Lag, check_setting
from groupwise.stability.mode_results import Reading, Stability
from groupwise.stability.safe_ranges import longest_interval, nearest_end, stable_momenta
from groupwise.stability.staleness import ImportanceRatio, KLTerm, partly_stale, spectrum, stale_threshold

__all__ = [
    "ImportanceRatio",
    "KLTerm",
    "Reading",
    "Stability",
    "modes",
    "momentum_windows",
    "oscillation_onset",
    "readings",
    "rule_threshold",
    "stability",
    "threshold",
]
WINDOW = (
    "The spectral radius at this force is below 1: it lies in a window of stability above the threshold. It counts as unstable, since "
    "whatever lowers the force by enough makes the mode grow."
)
AT_LEAST = "No refresh interval up to {:,.0f} updates is unstable at this force; longer ones were not looked at."


def threshold(lag: str, momentum: ArrayLike, refresh_interval: ArrayLike, *, stale_share: float = 1.0) -> Float:
    r"""Return the force per update $a = \eta K$ from which a mode grows, exactly; arrays broadcast.

    Source: derived here (docs/theory/dynamics.md); the published rule, $(1-\mu)/R$, is arXiv 2606.30789's.

    Example:
        >>> threshold("refresh", 0.9, [1, 8]).round(4).tolist()
        [3.8, 0.0339]
    """
    mu, interval = np.asarray(momentum, dtype=np.float64), np.asarray(refresh_interval, dtype=np.float64)
    check_setting(mu, interval)
    return stale_threshold(lag, mu, interval, stale_share=stale_share)


def rule_threshold(momentum: ArrayLike, refresh_interval: ArrayLike) -> Float:
    r"""Return the published rule, $\eta K R < 1 - \mu$, as a threshold of $\eta K$.

    Source: arXiv 2606.30789.

    Example:
        >>> round(float(rule_threshold(0.9, 8)), 4)
        0.0125
    """
    mu, interval = np.asarray(momentum, dtype=np.float64), np.asarray(refresh_interval, dtype=np.float64)
    check_setting(mu, interval)
    rule: Float = (1 - mu) / interval
    return rule


def stability(
    force: float,
    momentum: float,
    *,
    refresh_interval: int = 1,
    lag: str | Lag = "refresh",
    learning_rate: float = 1.0,
    importance_ratio: ImportanceRatio = "none",
    stale_share: float = 1.0,
    kl_term: KLTerm = "unknown",
) -> Stability:
    r"""Return where a mode stands.

    Source: derived here (docs/theory/dynamics.md).

    Example:
        >>> stability(0.02, 0.9, refresh_interval=8).regime
        'underdamped'
    """
    _check_mode(force, momentum, refresh_interval, importance_ratio, kl_term)
    kind = partly_stale(lag, stale_share)
    if kind.name == "fixed" and refresh_interval > LONGEST_FIXED_LAG:
        raise InvalidArgumentError(f"expected a fixed lag of at most {LONGEST_FIXED_LAG} updates, got {refresh_interval}: use threshold")
    interval = refresh_interval if kind.name not in {"none", "mixed"} else 1
    found = _standing(kind, force, momentum, interval, learning_rate)
    told = _notes(kind.name, importance_ratio, found.threshold, found.rule_threshold, kl_term=kl_term, stale_share=stale_share)
    bounds = _bounds(found.threshold, 2 * (1 + momentum), importance_ratio, kl_term)
    if not found.stable and found.spectral_radius < 1:
        told = [WINDOW, *told]
    if found.max_refresh_status == "at least":
        told = [*told, AT_LEAST.format(found.max_refresh_interval)]
    return replace(found, bounds=bounds, notes=tuple(told), stale_share=stale_share)


def _standing(kind: Lag, force: float, momentum: float, interval: int, learning_rate: float) -> Stability:
    """Where a mode stands without an importance ratio and without words."""
    limit = float(kind.threshold(np.asarray(momentum), np.asarray(interval)))
    constants, period, radius = _motion(kind, force, momentum, interval, limit)
    longest, known = longest_interval(kind, force, momentum)
    windows = stable_momenta(kind, force, interval)
    margin = limit / force if force > limit / sys.float_info.max else math.inf
    return Stability(
        force=force,
        lag=kind.name,
        refresh_interval=interval,
        momentum=momentum,
        regime="unstable" if force >= limit else "underdamped" if math.isfinite(period) else "overdamped",
        spectral_radius=radius,
        threshold=limit,
        rule_threshold=_rule(kind, momentum, interval),
        margin=margin,
        max_learning_rate=learning_rate * margin,
        max_refresh_interval=longest,
        max_momentum=nearest_end(windows, momentum),
        oscillation_onset=_onset(kind, momentum, interval),
        time_constants=constants,
        period=period,
        readings=_readings(kind, force, momentum, interval, kind.stale_share),
        bounds=(limit, limit),
        notes=(),
        max_refresh_status=known,
        momentum_windows=windows,
    )


def momentum_windows(
    force: float, *, refresh_interval: int = 1, lag: str | Lag = "refresh", stale_share: float = 1.0
) -> tuple[tuple[float, float], ...]:
    r"""Return the momenta at which a mode is stable: there may be a gap at small ones, and several windows.

    Searched for by scanning up to a momentum of .9999 and halving each change; a window that is narrower than a thousandth (a hundredth
    where a part of the force is current) may be missed.

    Source: derived here.

    Example:
        >>> [tuple(round(end, 4) for end in window) for window in momentum_windows(1.207, refresh_interval=2)]
        [(0.455, 0.5645)]
    """
    _check_mode(force, 0.0, refresh_interval, "none", "unknown")
    return stable_momenta(partly_stale(lag, stale_share), force, refresh_interval)


def _motion(kind: Lag, force: float, momentum: float, interval: int, limit: float) -> tuple[tuple[float, ...], float, float]:
    """Time constants and period of a mode, and its spectral radius, which the threshold corrects where it is 1 but for rounding."""
    values, size = spectrum(kind, force, momentum, interval)
    span = interval if kind.name == "fixed" else kind.period(interval)
    slowest = (1 - momentum) / force if force > 1e-300 else sys.float_info.max
    constants, period, radius = _times(values, size, period=kind.period(interval), span=span, slowest=slowest)
    if force < limit:
        return constants, period, min(radius, math.nextafter(1, 0))
    return constants, period, radius if radius < 1 - 1e-9 else max(radius, 1.0)


def _rule(kind: Lag, momentum: float, interval: int) -> float:
    """The published rule; a mixture's interval is that of a fixed lag of its mean."""
    updates = max(1.0, float(kind.mean_lag(np.asarray(1)))) if kind.name == "mixed" else interval
    return (1 - momentum) / updates


def _bounds(limit: float, free: float, ratio: ImportanceRatio, kl_term: KLTerm) -> tuple[float, float]:
    """Thresholds that the ratio leaves possible: with a KL term in the reward the whole force stays stale at the fixed point."""
    if ratio == "none" or kl_term == "reward":
        return limit, limit
    return (free, free) if ratio == "exact" else (min(limit, free), max(limit, free))


def readings(
    force: float, momentum: float, *, refresh_interval: int = 1, lag: str | Lag = "refresh", stale_share: float = 1.0
) -> tuple[Reading, Reading]:
    r"""Return both oscillators that stand for the discrete law, centred first.

    Centred: $m = (1+\mu)/2$ ($+ad^2/2$ for a fixed lag), $\gamma = (1-\mu) - ad$ with the mean lag d. Backward: $m = \mu$,
    $\gamma = (1-\mu) - aR$, whose sign is the published rule. In both $k = a$. Where a share of the force is stale, d and R count that
    often.

    Source: backward, arXiv 2606.30789 as far as its rule tells; centred, derived here.

    Example:
        >>> [round(reading.damping, 3) for reading in readings(0.01, 0.9, refresh_interval=8)]
        [0.065, 0.02]
    """
    return _readings(partly_stale(lag, stale_share), force, momentum, refresh_interval, stale_share)


def _readings(kind: Lag, force: float, momentum: float, interval: int, share: float) -> tuple[Reading, Reading]:
    """Both oscillators of a lag whose mean counts the stale share already."""
    mean_lag = float(kind.mean_lag(np.asarray(interval)))
    mass = (1 + momentum) / 2 + (share * force * interval**2 / 2 if kind.name == "fixed" else 0.0)
    reach = {"none": 0.0, "mixed": mean_lag}.get(kind.name, share * interval)
    return (
        Reading("centred", mass, (1 - momentum) - force * mean_lag, force),
        Reading("backward", momentum, (1 - momentum) - force * reach, force),
    )


def oscillation_onset(lag: str | Lag, momentum: float, refresh_interval: int = 1, *, stale_share: float = 1.0) -> float:
    r"""Return the smallest force from which the slowest mode of the exact map oscillates.

    It is where the two slow real eigenvalues meet: on-policy $(1-\sqrt\mu)^2$; for refresh
    $(1-q)^2/[(1+q)S + 2c + 2L\sqrt{\mu(S+c)}]$ with $c = \mu L^2 - qS$; for a fixed lag and for async the largest force that a real
    eigenvalue has, at the root of a quadratic and of a cubic; where a part of the force is current, the first one of a scan.

    Source: derived here.

    Example:
        >>> round(oscillation_onset("none", 0.81), 6)
        0.01
    """
    check_setting(momentum, refresh_interval)
    return _onset(partly_stale(lag, stale_share), momentum, refresh_interval)


def _onset(kind: Lag, momentum: float, interval: int) -> float:
    """The same of a lag."""
    if kind.onset is not None:
        return kind.onset(momentum, interval)
    assert kind.force is not None
    assert kind.turn is not None
    return kind.force(kind.turn(momentum, interval), momentum, interval)


def modes(
    stiffness: Sequence[float],
    learning_rate: float,
    momentum: float,
    *,
    refresh_interval: int = 1,
    lag: str | Lag = "refresh",
    importance_ratio: ImportanceRatio = "none",
    stale_share: float = 1.0,
    kl_term: KLTerm = "unknown",
) -> tuple[Stability, ...]:
    """Return where each of several modes stands, stiffest first: it alone decides whether the run is stable.

    Source: derived here.

    Example:
        >>> [mode.stable for mode in modes([0.01, 40.0], 0.1, 0.9, lag="none")]
        [False, True]
    """
    if not len(stiffness) or not all(math.isfinite(value) and value > 0 for value in stiffness):
        raise InvalidArgumentError("expected a list of positive stiffnesses: a mode without a restoring force never settles")
    if not (math.isfinite(learning_rate) and learning_rate > 0):
        raise InvalidArgumentError(f"expected a positive learning rate, got {learning_rate:g}")
    return tuple(
        stability(
            learning_rate * value,
            momentum,
            refresh_interval=refresh_interval,
            lag=lag,
            learning_rate=learning_rate,
            importance_ratio=importance_ratio,
            stale_share=stale_share,
            kl_term=kl_term,
        )
        for value in sorted(stiffness, reverse=True)
    )


def _check_mode(force: float, momentum: float, interval: int, ratio: str, kl_term: str) -> None:
    """Refuse what is no mode of a run."""
    check_setting(momentum, interval)
    if interval != int(interval):
        raise InvalidArgumentError(f"expected whole updates as refresh interval, got {interval:g}")
    if not (math.isfinite(force) and force > 0):
        raise InvalidArgumentError(
            f"expected a positive stiffness times learning rate, got {force}: without a restoring force nothing settles"
        )
    if ratio not in {"none", "exact", "clipped"}:
        raise InvalidArgumentError(f"expected an importance ratio of none, exact or clipped, got {ratio[:60]!r}")
    if kl_term not in {"none", "reward", "loss", "unknown"}:
        raise InvalidArgumentError(f"expected a KL term of none, reward, loss or unknown, got {kl_term[:60]!r}")


def _times(values: Complex, size: float, *, period: int, span: int, slowest: float) -> tuple[tuple[float, ...], float, float]:
    """Time constants of the decaying modes that outlast a block or a lag, period of the slowest, in updates, and the spectral radius."""
    with np.errstate(divide="ignore"):
        rate = np.log(np.abs(values)) + size
    leading = int(np.argmax(rate))
    angle = abs(math.atan2(values[leading].imag, values[leading].real))
    turn = 2 * math.pi * period / angle if angle > 1e-7 else math.inf
    slow = (rate > -period / span) | (rate == rate[leading])
    constants = sorted({float(f"{-period / part:.12g}") for part in rate[slow] if -math.inf < part < -1e-14}, reverse=True)
    radius = math.exp(rate[leading]) if rate[leading] < math.log(sys.float_info.max) else math.inf
    # An eigenvalue so near 1 is rounding: at first order the mode decays by a/(1 - mu) an update, whatever its lag.
    if abs(rate[leading]) < 1e-8 * period and math.isinf(turn) and slowest > 1e8:
        constants = [slowest, *(time for time in constants if time < 1e6)]
    return tuple(constants), turn, radius


def _notes(lag: str, ratio: ImportanceRatio, limit: float, rule: float, *, kl_term: KLTerm, stale_share: float) -> list[str]:
    """What to know of the numbers."""
    notes = []
    if rule > limit * (1 + 1e-12):
        notes.append(f"The published rule, {rule:.3g}, lies above the exact threshold: it is unsafe here.")
    elif lag != "none" and rule < 0.5 * limit:
        notes.append(f"The published rule, {rule:.3g}, is {limit / rule:.2g} times stricter than need be.")
    if lag == "mixed":
        notes.append("The published rule is taken at the mean lag; shares are of lags in updates, so a longer interval is another mixture.")
    if stale_share != 1:
        notes.append(f"A share of {stale_share:.3g} of the force is taken as stale, the rest as current.")
    if lag == "none" or ratio == "none":
        return notes
    if kl_term == "reward":
        notes.append(
            "A KL term in the reward is as old as the rollouts: at the fixed point the whole force stays stale, whatever the ratio."
        )
    elif ratio == "exact":
        notes.append("With the exact importance ratio no lag is left but in the old deviation and in a KL term inside the reward.")
    if ratio == "clipped":
        notes.append(
            "A clipped importance ratio is exact while no ratio leaves its range: small swings have the upper bound. Larger ones are held "
            "by the clip but need not settle, and no linear threshold speaks of them."
            if kl_term != "reward"
            else "The clip holds the swings beyond the threshold; it does not move the threshold."
        )
    return notes
