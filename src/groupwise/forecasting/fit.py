"""Fit the laws to a curve, let them compete, and say what the data support.

`fit` takes arrays and returns a `FitResult`; forecasts are in `forecast`. It knows no log and no
trainer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from groupwise.arrays import Float
from groupwise.errors import InvalidArgumentError
from groupwise.forecasting.law_fit import LawFit, fit_law, intervals_of, widening_of
from groupwise.forecasting.laws import LAWS, Law, law_by_name
from groupwise.forecasting.observations import Observations, observe
from groupwise.forecasting.profile import shapes_by_search
from groupwise.forecasting.results import Candidate, FitResult, Noise, Outcome
from groupwise.forecasting.status import (
    INERTIA,
    SLOW_STARTS,
    Verdict,
    close_laws,
    doubtful,
    judge,
    r_squared,
    ranked,
)
from groupwise.intervals import Interval, check_level, hull
from groupwise.plain import frozen
from groupwise.threads import on_one_thread

Direction = Literal["up", "any"]
# Pieces of a series, and groups of them that are left out of a fit by turns.
_PIECES, _GROUPS = 20, 5


@on_one_thread
def fit(
    time_T: ArrayLike,
    value_T: ArrayLike,
    *,
    variance_T: ArrayLike | None = None,
    window: float = 1.0,
    smoothing: int | None = None,
    law: str | None = None,
    level: float = 0.95,
    healthy: Direction = "any",
) -> FitResult:
    r"""Fit reward (or any metric) against time by generalised least squares and variable
    projection.

    $y_t = r_\infty + (r_0 - r_\infty) g(t) + \text{AR(1)} + \text{white}$, the curve averaged over
    the window that each row averages. Intervals are profile-likelihood intervals whose quantile is
    widened by what not knowing the noise costs.

    Args:
        time_T: increasing times in optimiser updates, shape (T,); of another clock the oscillator
            takes rows that lie closer than 1 as an update each.
        value_T: the metric, shape (T,); nan where missing.
        variance_T: sampling variance of each value as the groups tell it, shape (T,); None where
            unknown.
        window: updates that one row averages over (`logging_steps`).
        smoothing: rows over which the series was averaged before it was logged, 1 if it is raw;
            None: find out.
        law: name of one law; None lets all of `LAWS` compete.
        level: nominal coverage of the intervals.
        healthy: "up" for a reward, whose lasting fall is a collapse; "any" for a metric that may
            fall in health.

    Returns:
        The fit with its status as a sentence; the number is handed over whatever the status. The
        interval of the plateau covers every law that the evidence does not rule out, that of the
        start the law that is best by AICc, and beside a law of a slow start the oscillator; the
        others, and all if `law` is given, take the law as true.

    Source: the laws' own papers for the curves; noise, intervals and status are derived by us
    (lab/docs/theory/fit.md).
    """
    check_level(level)
    if healthy not in ("up", "any"):
        raise InvalidArgumentError(f"a metric is healthy going 'up' or 'any' way; got {healthy!r}")
    laws = LAWS if law is None else (law_by_name(law),)
    observations = observe(time_T, value_T, variance_T, window=window, smoothing=smoothing)
    time, value = np.asarray(time_T, dtype=float), np.asarray(value_T, dtype=float)
    keep = np.isfinite(time) & np.isfinite(value)
    if observations.still:
        return _still(observations, time[keep], value[keep], level)
    judged = judged_fits(observations, laws, level=level, healthy=healthy)
    return _result(observations, judged, time[keep], value[keep])


@frozen
class JudgedFits:
    """All laws fitted to one series, the one to report first, its intervals, and what they
    support.
    """

    fits: list[LawFit]
    parameters: dict[str, Interval]
    verdict: Verdict
    widening: Float  # of the first law's parameters, in standard errors


def judged_fits(
    observations: Observations,
    laws: tuple[Law, ...] = LAWS,
    *,
    level: float = 0.95,
    healthy: Direction = "any",
) -> JudgedFits:
    """Fit laws, rank them, and say what they support; a single law is taken as given and not
    questioned.
    """
    room = observations.time_M.size - 2
    able = [law.by_rows(observations.gap) for law in laws if len(law.parameters) <= room] or [
        law_by_name("constant")
    ]
    fits = ranked([fit_law(observations, law) for law in able])
    if len(fits) > 1 and fits[0].law.name == "oscillator":
        fits = ranked(
            fits, inertia=inertia_foretells(observations, [law_fit.law for law_fit in fits])
        )
    widening = widening_of(fits[0], level)
    parameters = intervals_of(fits[0], level=level, widening=widening)
    if fits[0].law.shapes:
        parameters = _over_laws(fits, parameters)
    if doubtful(observations, fits[0]):
        parameters = {
            name: Interval(interval.value, -np.inf, np.inf, level)
            for name, interval in parameters.items()
        }
    verdict = judge(observations, fits, parameters, healthy=healthy if len(laws) > 1 else "any")
    return JudgedFits(fits, parameters, verdict, widening)


def inertia_foretells(observations: Observations, laws: Sequence[Law]) -> bool:
    """Whether the oscillator comes closer to rows left out of its fit than every law without
    inertia.

    The rows are cut into pieces, and each group of pieces is foretold from all others. The first
    piece is always seen: no law says what was before it.
    """
    time, value = observations.row_time_T, observations.row_value_T
    piece = np.arange(time.size) * _PIECES // time.size
    squares = np.zeros(len(laws))
    for group in range(_GROUPS):
        left = (piece % _GROUPS == group) & (piece > 0)
        seen = observe(time[~left], value[~left], window=observations.window, smoothing=1)
        if seen.still:
            return False
        foretold = [seen.averaged(fit_law(seen, law).at, time[left] - seen.origin) for law in laws]
        squares += [float(((value[left] - curve) ** 2).sum()) for curve in foretold]
    return bool(laws[int(squares.argmin())].name == "oscillator")


def _over_laws(fits: list[LawFit], alone: dict[str, Interval]) -> dict[str, Interval]:
    """What all laws share, widened: the plateau to every law that the evidence does not rule out,
    the others to the best.

    An interval that takes the chosen law as true is far too short where another law fits as well:
    the choice itself is the larger part of the uncertainty.
    """
    level, shared = alone["plateau"].level, {}
    others = {
        law_fit.law.name: intervals_of(law_fit, level=level)
        for law_fit in close_laws(fits, INERTIA)
    }
    # What a law of a slow start calls its start lies long before the first row; that of the
    # oscillator is there.
    questioned = {
        min(fits, key=lambda law_fit: law_fit.aicc).law.name,
        *(["oscillator"] if fits[0].law.name in SLOW_STARTS else []),
    }
    for name in ("plateau", "start"):
        every = [
            alone[name],
            *(
                interval[name]
                for law, interval in others.items()
                if law in questioned or name == "plateau"
            ),
        ]
        shared[name] = hull(every)
    return alone | shared


def akaike_weights(fits: list[LawFit]) -> Float:
    r"""Akaike weights $w_i \propto e^{-\Delta_i/2}$ of a list of fits.

    Source: Burnham and Anderson (2002), Model Selection and Multimodel Inference, section 2.9.
    """
    criteria = np.array([law_fit.aicc for law_fit in fits])
    if not np.isfinite(criteria).any():
        return np.asarray(np.eye(1, len(fits))[0])
    weight = np.exp(-(criteria - criteria[np.isfinite(criteria)].min()) / 2)
    return np.asarray(weight / weight.sum())


def _half_band(law_fit: LawFit, time_T: Float, widening: float) -> Float:
    """Half-width of the band of the mean at each row, by the delta method."""
    if law_fit.covariance is None:
        return np.full(time_T.size, widening * float(law_fit.noise.errors[0]))
    covariance = law_fit.covariance * law_fit.noise.variance
    jacobian = law_fit.law.jacobian(np.maximum(time_T, 0.0), **law_fit.values)
    # The covariance is in the scale of the search, the Jacobian in that of the shapes.
    jacobian[:, 2:] = jacobian[:, 2:] @ shapes_by_search(law_fit.whole, law_fit.point)
    return np.asarray(
        widening
        * np.sqrt(np.maximum(np.einsum("tp,pq,tq->t", jacobian, covariance, jacobian), 0.0))
    )


def _result(observations: Observations, judged: JudgedFits, time: Float, value: Float) -> FitResult:
    """Put a fit on the caller's rows."""
    fits, verdict = judged.fits, judged.verdict
    best, local = fits[0], time - observations.origin
    curves = [observations.averaged(law_fit.at, local) for law_fit in fits]
    half = _half_band(best, local, float(judged.widening.max()))
    candidates = [
        Candidate(law_fit.law.name, law_fit.aicc, float(weight), r_squared(value, curve))
        for law_fit, weight, curve in zip(fits, akaike_weights(fits), curves, strict=True)
    ]
    raw, curve = r_squared(value, curves[0]), curves[0]
    return FitResult(
        law=best.law.name,
        outcome=verdict.outcome,
        message=verdict.message,
        parameters=judged.parameters,
        n=observations.rows,
        r_squared=raw,
        r_squared_explainable=_explainable(raw, value, observations),
        candidates=tuple(sorted(candidates, key=lambda candidate: candidate.aicc)),
        noise=_noise_of(value - curve, observations.smoothing),
        time_T=time,
        value_T=value,
        curve_T=curve,
        low_T=curve - half,
        high_T=curve + half,
        residual_T=value - curve,
        change_time=verdict.change_time + observations.origin,
        notes=verdict.notes,
    )


def _explainable(raw: float, value_T: Float, observations: Observations) -> float:
    """R squared over the largest R squared that the sampling noise leaves possible."""
    total = float(((value_T - value_T.mean()) ** 2).mean())
    ceiling = 1 - observations.sampling_variance / total if total > 0 else math.nan
    return raw / ceiling if np.isfinite(ceiling) and ceiling > 0.05 else math.nan


def _noise_of(residual_T: Float, smoothing: int) -> Noise:
    """What the residuals say of the noise of a row."""
    power = float(residual_T @ residual_T)
    lag1 = float(residual_T[1:] @ residual_T[:-1]) / power if power > 0 else math.nan
    return Noise(lag1, smoothing)


def _still(observations: Observations, time: Float, value: Float, level: float) -> FitResult:
    """A metric that never moves by a digit: flat, and worth a look."""
    constant, nan, line = float(value[0]), math.nan, np.full(value.size, float(value[0]))
    return FitResult(
        law="constant",
        outcome=Outcome.STILL,
        message=Outcome.STILL.sentence.format(rows=observations.rows, value=constant),
        parameters={"plateau": Interval(constant, constant, constant, level)},
        n=observations.rows,
        r_squared=nan,
        r_squared_explainable=nan,
        candidates=(Candidate("constant", nan, 1.0, nan),),
        noise=Noise(nan),
        time_T=time,
        value_T=value,
        curve_T=line,
        low_T=line,
        high_T=line,
        residual_T=np.zeros(value.size),
    )
