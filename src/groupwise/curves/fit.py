"""Fit the laws to a curve, let them compete, and say what the data support.

`fit` takes arrays and returns a `FitResult`; forecasts are in `forecast`. It knows no log and no trainer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from groupwise.curves import breaks
from groupwise.curves.law_fit import LawFit, fit_law, intervals_of, widening_of
from groupwise.curves.laws import LAWS, Law, law_by_name
from groupwise.curves.observations import Observations, averaged, observe
from groupwise.curves.results import Candidate, FitResult, Noise
from groupwise.curves.search import linearised, shapes_by_search, whole_box
from groupwise.curves.verdict import INERTIA, Verdict, doubtful, judge, ranked, unlimited
from groupwise.errors import InvalidArgumentError
from groupwise.intervals import Interval

FloatArray = NDArray[np.float64]
Direction = Literal["up", "any"]


def fit(
    time_T: ArrayLike,
    value_T: ArrayLike,
    *,
    variance_T: ArrayLike | None = None,
    window: float = 1.0,
    smoothing: int | None = None,
    law: str | None = None,
    level: float = 0.95,
    momentum: float | None = None,
    healthy: Direction = "any",
) -> FitResult:
    r"""Fit reward (or any metric) against time by generalised least squares and variable projection.

    $y_t = r_\infty + (r_0 - r_\infty) g(t) + \text{AR(1)} + \text{white}$, the curve averaged over the window that each row
    averages. Intervals are profile-likelihood intervals whose quantile is widened by what not knowing the noise costs.

    Args:
        time_T: increasing times in optimiser updates (or any clock), shape (T,).
        value_T: the metric, shape (T,); nan where missing.
        variance_T: sampling variance of each value as the groups tell it, shape (T,); None where unknown.
        window: updates that one row averages over (`logging_steps`).
        smoothing: rows over which the series was averaged before it was logged, 1 if it is raw; None: find out.
        law: name of one law; None lets all of `LAWS` compete.
        level: nominal coverage of the intervals.
        momentum: the optimiser's momentum (or Adam's beta1) where known, to compare with the fast time constant.
        healthy: "up" for a reward, whose lasting fall is a collapse; "any" for a metric that may fall in health.

    Returns:
        The fit with its status as a sentence; the number is handed over whatever the status. The interval of the plateau
        covers every law that the evidence does not rule out; the others, and all if `law` is given, take the law as true.

    Raises:
        InsufficientDataError: fewer than three finite values.
        InvalidArgumentError: an argument is outside its domain.

    Example:
        >>> t = np.arange(300.0)
        >>> rng = np.random.default_rng(1)
        >>> y = 0.8 - 0.6 * np.exp(-t / 60) + rng.normal(0, 0.02, 300)
        >>> result = fit(t, y, law="exponential")
        >>> result.status, result.parameters["plateau"].covers(0.8)
        ('converged', True)

    Source: the laws' own papers for the curves; noise, intervals and status are derived by us (docs/theory/fit.md).
    """
    if not 0 < level < 1:
        raise InvalidArgumentError(f"the level of an interval lies between 0 and 1; got {level}")
    if momentum is not None and not 0 <= momentum < 1:
        raise InvalidArgumentError(f"a momentum lies in [0, 1); got {momentum}")
    _check_direction(healthy)
    laws = LAWS if law is None else (law_by_name(law),)
    observations = observe(time_T, value_T, variance_T, window=window, smoothing=smoothing)
    if observations.still:
        return _constant_result(observations, np.asarray(time_T, float), np.asarray(value_T, float), level)
    judged = judged_fits(observations, laws, level=level, momentum=momentum, healthy=healthy)
    return _result(observations, judged, time_T, value_T)


def _check_direction(healthy: str) -> None:
    """Refuse a direction that is neither of the two."""
    if healthy not in ("up", "any"):
        raise InvalidArgumentError(f"a metric is healthy going 'up' or 'any' way; got {healthy!r}")


@dataclass(frozen=True, slots=True)
class JudgedFits:
    """All laws fitted to one series, the one to report first, its intervals, and what they support."""

    fits: list[LawFit]
    widening_P: FloatArray
    parameters: dict[str, Interval]
    verdict: Verdict


def judged_fits(
    observations: Observations,
    laws: tuple[Law, ...] = LAWS,
    *,
    level: float = 0.95,
    momentum: float | None = None,
    healthy: Direction = "any",
) -> JudgedFits:
    """Fit laws, rank them, and say what they support; a single law is taken as given and not questioned."""
    fits = _fit_all(observations, laws)
    widening = widening_of(fits[0], level)
    parameters = intervals_of(fits[0], observations, level=level, widening_P=widening)
    if fits[0].law.shapes:
        parameters = _over_laws(fits, observations, parameters, level)
    if doubtful(observations, fits[0]):
        parameters = {name: unlimited(interval) for name, interval in parameters.items()}
    jump = breaks.find_break(observations) if len(laws) > 1 else None
    direction = healthy if len(laws) > 1 else "any"
    return JudgedFits(fits, widening, parameters, judge(observations, fits, parameters, jump, momentum=momentum, healthy=direction))


def _over_laws(fits: list[LawFit], observations: Observations, parameters: dict[str, Interval], level: float) -> dict[str, Interval]:
    """The plateau's interval widened to cover every law that the evidence does not rule out.

    An interval that takes the chosen law as true is far too short where another law fits as well: the choice itself is
    the larger part of the uncertainty.
    """
    plateau = parameters["plateau"]
    low, high = plateau.low, plateau.high
    best = min(found.aicc for found in fits)
    for found in fits[1:]:
        if found.law.shapes and found.aicc - best < INERTIA:
            other = intervals_of(found, observations, level=level)["plateau"]
            low, high = min(low, other.low), max(high, other.high)
    return {**parameters, "plateau": Interval(plateau.value, low, high, level)}


def _fit_all(observations: Observations, laws: tuple[Law, ...]) -> list[LawFit]:
    """Every law the rows can carry, best first."""
    room = observations.time_M.size - 2
    able = [law for law in laws if len(law.parameters) <= room] or [law_by_name("constant")]
    return ranked([fit_law(observations, law) for law in able])


def akaike_weights(fits: list[LawFit]) -> FloatArray:
    r"""Akaike weights $w_i \propto e^{-\Delta_i/2}$ of a list of fits.

    Source: Burnham and Anderson (2002), Model Selection and Multimodel Inference, section 2.9.

    Example:
        >>> akaike_weights([])
        array([], dtype=float64)
    """
    criteria = np.array([found.aicc for found in fits])
    if not np.isfinite(criteria).any():
        return np.eye(1, len(fits))[0] if fits else np.zeros(0)
    weight = np.exp(-(criteria - criteria[np.isfinite(criteria)].min()) / 2)
    return np.asarray(weight / weight.sum())


def _curve(found: LawFit, observations: Observations, time_T: FloatArray) -> FloatArray:
    """A fitted law, averaged over the window of each row."""
    return averaged(lambda t: found.law.curve(t, **found.values), time_T, observations.window, observations.spacing)


def _band(found: LawFit, scale: float, observations: Observations, time_T: FloatArray) -> FloatArray:
    """Half-width of the band of the mean at each row, by the delta method."""
    if found.products is None:
        return np.full(time_T.size, scale * found.noise.scale_EP[found.noise.best, 0])
    whole = whole_box(found.law, observations.span)
    covariance = linearised(found.law, found.products, whole, found.point)[0] * found.noise.variance_E[found.noise.best]
    values = dict(found.values)
    jacobian = found.law.jacobian(np.maximum(time_T, 0.0), **values)
    # The covariance is in the scale of the search, the Jacobian in that of the shapes.
    jacobian[:, 2:] = jacobian[:, 2:] @ shapes_by_search(whole, found.point)
    return np.asarray(scale * np.sqrt(np.maximum(np.einsum("tp,pq,tq->t", jacobian, covariance, jacobian), 0.0)))


def _result(observations: Observations, judged: JudgedFits, time_T: ArrayLike, value_T: ArrayLike) -> FitResult:
    """Put a fit on the caller's rows."""
    fits, parameters, verdict = judged.fits, judged.parameters, judged.verdict
    time, value = np.asarray(time_T, dtype=float), np.asarray(value_T, dtype=float)
    keep = np.isfinite(time) & np.isfinite(value)
    time, value = time[keep], value[keep]
    best, local = fits[0], time - observations.origin
    curve = _curve(best, observations, local)
    half = _band(best, float(judged.widening_P.max()), observations, local)
    weights = akaike_weights(fits)
    curves = [curve, *(_curve(found, observations, local) for found in fits[1:])]
    candidates = [
        Candidate(found.law.name, found.aicc, float(w), r_squared(value, own)) for found, w, own in zip(fits, weights, curves, strict=True)
    ]
    raw = r_squared(value, curve)
    return FitResult(
        law=best.law.name,
        status=verdict.status,
        message=verdict.message,
        parameters=parameters,
        n=observations.rows,
        r_squared=raw,
        r_squared_explainable=_explainable(raw, value, observations),
        candidates=tuple(sorted(candidates, key=lambda candidate: candidate.aicc)),
        noise=noise_of(best, observations, value - curve),
        time_T=time,
        value_T=value,
        curve_T=curve,
        low_T=curve - half,
        high_T=curve + half,
        residual_T=value - curve,
        change_time=verdict.change_time + observations.origin,
        notes=verdict.notes,
    )


def r_squared(value_T: FloatArray, curve_T: FloatArray) -> float:
    r"""$R^2 = 1 - \sum (y - \hat y)^2 / \sum (y - \bar y)^2$; nan for a constant series.

    Example:
        >>> r_squared(np.array([0.0, 1.0]), np.array([0.0, 1.0]))
        1.0
    """
    total = float(((value_T - value_T.mean()) ** 2).sum())
    return 1 - float(((value_T - curve_T) ** 2).sum()) / total if total > 0 else float("nan")


def _explainable(raw: float, value_T: FloatArray, observations: Observations) -> float:
    """R squared over the largest R squared that the sampling noise leaves possible."""
    total = float(((value_T - value_T.mean()) ** 2).mean())
    ceiling = 1 - observations.sampling_variance / total if total > 0 else float("nan")
    return raw / ceiling if np.isfinite(ceiling) and ceiling > 0.05 else float("nan")


def noise_of(found: LawFit, observations: Observations, residual_T: FloatArray) -> Noise:
    """The noise of the heaviest shape, in the units of one row."""
    shape = found.noise.best_shape
    variance = float(found.noise.variance_E[found.noise.best])
    rows = observations.row_time_T.size / observations.time_M.size
    power = float(residual_T @ residual_T)
    lag1 = float(residual_T[1:] @ residual_T[:-1]) / power if power > 0 else float("nan")
    return Noise(
        white_variance=variance * (1 - shape.share) * rows,
        state_variance=variance * shape.share,
        correlation=float(shape.after(np.ones(1))[0]),
        lag1=lag1,
        sampling_variance=observations.sampling_variance,
        smoothing=observations.smoothing,
        window=observations.window,
    )


def _constant_result(observations: Observations, time: FloatArray, value: FloatArray, level: float) -> FitResult:
    """A metric that never moves by a digit: flat, and worth a look."""
    keep = np.isfinite(time) & np.isfinite(value)
    constant, zeros = float(value[keep][0]), np.zeros(int(keep.sum()))
    message = f"flat: every one of {observations.rows} rows is exactly {constant:.6g}; a metric without any noise is rarely a live one"
    nan = float("nan")
    return FitResult(
        law="constant",
        status="flat",
        message=message,
        parameters={"plateau": Interval(constant, constant, constant, level)},
        n=observations.rows,
        r_squared=nan,
        r_squared_explainable=nan,
        candidates=(Candidate("constant", nan, 1.0, nan),),
        noise=Noise(0.0, 0.0, 0.0, nan, observations.sampling_variance, 1, observations.window),
        time_T=time[keep],
        value_T=value[keep],
        curve_T=zeros + constant,
        low_T=zeros + constant,
        high_T=zeros + constant,
        residual_T=zeros,
    )
