"""Fit the laws to a curve, let them compete, and say what the data support and where a law stops
to hold.

`fit` takes arrays and returns a `FitResult`; forecasts are in `forecast`. It knows no log and no
trainer.

The thresholds live here, each with its reason. A fall from the height once reached and aimless
wandering each name the time from which no single law describes the series; what to do about it is
for diagnosis.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from groupwise.arrays import Ends, Float, mean_of, moving_mean
from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.forecasting.laws import LAWS, Law, echo, law_by_name
from groupwise.forecasting.observations import (
    MAY_HIDE,
    NoiseShape,
    Observations,
    correlations,
    observe,
    usable_rows,
)
from groupwise.forecasting.profile import (
    LawFit,
    fit_law,
    intervals_of,
    shapes_by_search,
    widening_of,
)
from groupwise.forecasting.results import Candidate, FitOutcome, FitResult, Noise
from groupwise.intervals import Interval, check_level, hull, within
from groupwise.parsing import JsonObject
from groupwise.plain import Words
from groupwise.processes import on_one_thread
from groupwise.wording import law_name, limits, ranged

# AICc differences under 2 are no evidence (Burnham and Anderson 2002, section 2.6).
NO_EVIDENCE = 2.0
# A constant is given up only for a law this far ahead: five laws with free shapes are tried against
# it, and the best of them is ahead by 8 in 2-5 % of series that do not move at all
# (lab/docs/theory/fit.md has the table).
FLAT = 8.0
# Inertia is a finding: the oscillator is chosen only if it is this far ahead of every law that has
# none, and foretells rows better.
INERTIA = 6.0
SLOW_STARTS = ("logistic", "scalerl_sigmoid")  # laws that begin slowly without inertia
# With fewer observations than this no law can be told from any other, and no run of the table of
# calibration was forecast from fewer.
FEW = 8


def ranked(fits: Sequence[LawFit], *, inertia: bool = True) -> list[LawFit]:
    """The law to report first, then the others by AICc: the simplest that the evidence does not
    rule out; inertia may be left aside.
    """
    ordered = sorted(fits, key=lambda fit: fit.aicc)
    best = ordered[0].aicc
    lead = ordered[0]
    constant = [fit for fit in ordered if not fit.law.shapes]
    inert = [fit for fit in ordered if fit.law.name != "oscillator"]
    if constant and constant[0].aicc - best < FLAT:
        lead = constant[0]
    elif inert and (inert[0].aicc - best < INERTIA or not inertia):
        close = [fit for fit in inert if fit.aicc - inert[0].aicc < NO_EVIDENCE]
        lead = min(close, key=lambda fit: len(fit.law.parameters))
    return [lead, *(fit for fit in ordered if fit is not lead)]


def close_laws(fits: Sequence[LawFit], within: float = NO_EVIDENCE) -> list[LawFit]:
    """The laws that move, beside the one reported first, and lie so close to the best in AICc.

    A slow start has two explanations: what inertia must be ahead by to be named, it must be behind
    by to be ruled out.
    """
    best, slow = min(fit.aicc for fit in fits), fits[0].law.name in SLOW_STARTS
    wide = max(within, INERTIA) if slow else within
    return [
        fit
        for fit in fits[1:]
        if fit.law.shapes and fit.aicc - best < (wide if fit.law.name == "oscillator" else within)
    ]


_ENDS = ("plateau", "start")  # parameters that are values of the metric
Direction = Literal["up", "any"]
NumberedOutcome = tuple[FitOutcome, dict[str, Any]]
"""An outcome with the numbers of its sentence, and the time of a change as `change`."""


def _outcome(
    observations: Observations,
    fits: Sequence[LawFit],
    parameters: Mapping[str, Interval],
    loose: Words,
    *,
    rising: bool,
) -> NumberedOutcome:
    """What the fits support, of which some parameters are open."""
    best, plateau, blocks = fits[0], parameters["plateau"], observations.time_M.size
    explained = _explained(observations, best.curve_M)
    numbers: JsonObject = {
        "law": law_name(best.law.name),
        "rows": observations.rows,
        "level": ranged(plateau),
    }
    if blocks < FEW:
        return FitOutcome.TOO_FEW, numbers | {"rows": blocks}
    if rising and (fall := _collapse(observations, best, parameters, explained)):
        return fall
    settled = best.law.shapes and not loose
    if not settled and explained < 0.5 and wanders(best, observations):
        return FitOutcome.WANDERS, {"change": 0.0}
    if doubtful(observations, best):
        return FitOutcome.MAYBE_SMOOTHED, numbers
    if not best.law.shapes:
        slow = plateau.width >= float(np.ptp(observations.value_M))
        return (FitOutcome.SLOW_NOISE if slow else FitOutcome.FLAT), numbers
    if explained < 0.02:
        return FitOutcome.EMPTY, numbers
    if loose:
        names = " or the ".join(
            f"{name.replace('_', ' ').replace('tau1', 'slow time τ₁')} ({limits(parameters[name])})"
            for name in loose
        )
        return FitOutcome.OPEN, numbers | {"names": names}
    close = close_laws(fits)
    numbers["laws"] = ", ".join(law_name(fit.law.name) for fit in (best, *close))
    outcome = FitOutcome.SHARED if close else FitOutcome.CONVERGED
    return outcome, numbers | _converged(best, parameters)


def _collapse(
    observations: Observations, best: LawFit, parameters: Mapping[str, Interval], explained: float
) -> NumberedOutcome | None:
    """That a metric that should rise fell for good, and when; None where it did not."""
    # A rise and a fall are not yet an oscillation: that takes a period and a half.
    if (
        best.law.name == "oscillator"
        and parameters["damping_ratio"].high < 1
        and 1.5 * parameters["period"].value < observations.span
    ):
        return None
    change = fall_from_height(observations)
    # Where 0 is no floor, slow noise can look like a fall: then a law has to describe it.
    if not np.isfinite(change) or not (observations.value_M.min() >= 0 or explained > 0.5):
        return None
    return FitOutcome.COLLAPSED, {"change": change, "since": change + observations.origin}


def unidentified(best: LawFit, parameters: Mapping[str, Interval], bounds: Ends) -> Words:
    """Names of the parameters that the data do not limit in a way that matters.

    The plateau counts as open where its interval is wider than twice the change that was seen,
    unless the range of the metric leaves less than half of that change, and where all of it lies
    outside that range; a time scale or rate where it has no limit towards slowness. A damping ratio
    open above is the overdamped limit, which is an answer.
    """
    if not best.law.shapes:
        return ()
    seen = float(np.ptp(best.curve_M))
    loose = [
        name
        for name in _ENDS
        if min(parameters[name].width / 2, 2 * _cut(parameters[name], bounds).width) > seen
        or (name == "plateau" and _beyond(parameters[name], bounds))
    ]
    # A power law or ScaleRL sigmoid trades its time scale against its exponent; only the plateau
    # must hold.
    slow = {"oscillator": "tau1", "exponential": "time_constant", "logistic": "midpoint"}.get(
        best.law.name
    )
    if slow is not None and not np.isfinite(parameters[slow].high):
        loose.append(slow)
    return tuple(loose)


def doubtful(observations: Observations, best: LawFit) -> bool:
    """Whether a series may be a smoothed one, and its noise is smooth enough for that to matter: in
    a long one, as slow as the log, or an echo with no noise of rows beside it.
    """
    shape = best.noise.best_shape
    short = observations.rows in MAY_HIDE and shape.neighbour >= 0.65
    bare = shape.slow_MM is not None and shape.share == _ECHOES[-1]
    return observations.smoothing_doubt and (short or bare or wanders(best, observations))


def _converged(best: LawFit, parameters: Mapping[str, Interval]) -> JsonObject:
    """What the sentence says of a law that holds."""
    start, end, now = parameters["start"].value, parameters["plateau"], float(best.curve_M[-1])
    plateau, ends = end.value, (end.low, end.high)
    # A plateau that may lie on this side of the last row is reached.
    parts = ((now - start) / (end - start) for end in ends if (end - now) * (plateau - start) > 0)
    least, most = (f"{100 * max(part, 0):.0f}" for part in sorted((*parts, 1.0, 1.0)[:2]))
    where = f"; {least if least == most else f'{least} to {most}'} % of this change is done"
    if best.law.name == "oscillator" and parameters["overshoot"].value > 0.02:
        where += f"; the curve overshoots by {100 * parameters['overshoot'].value:.0f} % of it"
    way = "rises" if plateau > start else "falls"
    return {
        "way": way,
        "start": ranged(parameters["start"]),
        "plateau": ranged(end),
        "where": where,
    }


def _notes(observations: Observations, fits: Sequence[LawFit]) -> Iterator[str]:
    """That rows were left out because the series had been smoothed, that neighbouring rows are
    correlated, and which other laws fit as well.
    """
    best, rows = fits[0], observations.smoothing
    if rows > 1:
        yield (
            f"the series was smoothed over {rows} rows before logging: only one row in {rows} is "
            f"used, {observations.time_M.size} in all, because the rows between repeat the same "
            "data"
        )
    neighbour = best.noise.best_shape.neighbour
    if neighbour >= 0.3:
        hidden = "; an exponential smoother would have the same effect" if neighbour > 0.85 else ""
        yield f"the intervals are wider because neighbouring residuals correlate{hidden}"
    rivals = [law_name(fit.law.name) for fit in fits[1:] if fit.aicc - best.aicc < NO_EVIDENCE]
    if rivals:
        yield f"these laws fit about as well: {', '.join(rivals)}"


def _running_mean(observations: Observations) -> Float:
    """Mean of each block with its neighbours, a twentieth of the series wide."""
    value = observations.value_M
    half = max(1, value.size // 40)
    return moving_mean(np.pad(value, half, mode="edge"), 2 * half + 1)


def fall_from_height(observations: Observations) -> float:
    """Time from which a metric that should rise has lost most of its height for good, or nan.

    Read from the running mean and not from a fitted curve, which bridges rise and fall. The last
    twentieth of the rows has to lie in the lower half of what was reached, and further from the
    height than their scatter explains.
    """
    value, smooth = observations.value_M, _running_mean(observations)
    if value.size < 12:
        return math.nan
    few = max(3, value.size // 20)
    # The height is the mean of the highest few, so that a short good time counts and a single lucky
    # mean does not.
    height = float(np.sort(smooth)[-few:].mean())
    end = mean_of(value[-few:])
    floor = min(float(smooth.min()), 0.0) if height > 0 else float(smooth.min())
    scatter = math.sqrt(np.mean(np.diff(value) ** 2) / 2)
    if height - end < 0.5 * (height - floor) or height - end < 5 * scatter / np.sqrt(few):
        return math.nan
    high = np.flatnonzero(smooth >= height - 0.2 * (height - end))
    first, last = int(high[0]), int(high[-1])
    # Slow noise about a level visits both ends again and again; what collapsed stood high for a
    # while and was seldom low meanwhile.
    was_low = float((smooth[first : last + 1] < end + 0.25 * (height - end)).mean())
    if was_low > 0.1 or last - first < few - 1 or last >= value.size - few:
        return math.nan
    # The running mean is out by half its width: two levels fit the rows about the fall best there.
    start = max(last - few, 0)
    near = value[start : last + 2 * few + 1]
    place = np.arange(1, near.size)
    gain = np.cumsum(near - near.mean())[:-1] ** 2 / (place * (near.size - place))
    return float(observations.time_M[start + 1 + int(gain.argmax())])


def r_squared(value_T: Float, curve_T: Float) -> float:
    r"""$R^2 = 1 - \sum (y - \hat y)^2 / \sum (y - \bar y)^2$; nan for a constant series."""
    total = float(((value_T - value_T.mean()) ** 2).sum())
    return 1 - float(((value_T - curve_T) ** 2).sum()) / total if total > 0 else math.nan


def _explained(observations: Observations, curve_M: Float) -> float:
    """Share of the variance of the running mean that a fitted curve explains."""
    share = r_squared(_running_mean(observations), curve_M)
    return 1.0 if math.isnan(share) else share


def wanders(fit: LawFit, observations: Observations) -> bool:
    """Whether the noise about a curve is nearly as slow as the log is long, so that the curve
    means little.
    """
    shape = fit.noise.best_shape
    if shape.slow_MM is not None or shape.share < 0.6 or observations.time_M.size < 20:
        return False
    correlation_time = -shape.gap / math.log(max(shape.correlation, 1e-12))
    return correlation_time > max(observations.span / 8, 8 * shape.gap)


# Share of an echo in the variance: together they weigh what all other noise does.
_ECHOES = (0.2, 0.5, 0.8, 0.95, 0.995)
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
    bounds: Ends | None = None,
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
        bounds: the range that the metric cannot leave, (0, 1) for a share: it holds start, plateau
            and curve, and a law that starts wholly outside at time 0 is left out for another that
            moves; None for none.

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
        raise InvalidArgumentError(f"the argument healthy has to be 'up' or 'any'; got {healthy!r}")
    laws = LAWS if law is None else (law_by_name(law),)
    observations = observe(time_T, value_T, variance_T, window=window, smoothing=smoothing)
    time, value, _ = usable_rows(time_T, value_T)
    if observations.still:
        return _still(observations, time, value, level)
    limits = bounds or (-math.inf, math.inf)
    fits = _competing(observations, laws, limits, level)
    widening = widening_of(fits[0], level)
    parameters = intervals_of(fits[0], level=level, widening=widening)
    if fits[0].law.shapes:
        parameters = _over_laws(fits, parameters)
        if len(fits) > 1:
            parameters["plateau"] = unpassed(observations, fits[0], parameters)
    if doubtful(observations, fits[0]):
        parameters = {
            name: replace(interval, low=-np.inf, high=np.inf)
            for name, interval in parameters.items()
        }
    loose = unidentified(fits[0], parameters, limits)
    for name in parameters.keys() & _ENDS:
        parameters[name] = _cut(parameters[name], limits)
    rising = healthy == "up" and len(laws) > 1
    outcome = _outcome(observations, fits, parameters, loose, rising=rising)
    half = _half_band(fits[0], time - observations.origin, float(widening.max()))
    return _result(observations, fits, parameters, outcome, time, value, half, limits)


def _competing(
    observations: Observations, laws: tuple[Law, ...], bounds: Ends, level: float
) -> list[LawFit]:
    """Fit laws to a metric of a range, and rank them."""
    room = observations.time_M.size - 2
    able = [law.by_rows(observations.gap) for law in laws if len(law.parameters) <= room]
    if not able:
        raise InsufficientDataError(
            f"expected at least {len(laws[0].parameters) + 2} independent rows for the law "
            f"{laws[0].name}, got {room + 2}: log more, or let all laws compete"
        )
    fits = [fit_law(observations, law) for law in able]
    fits = ranked(_begun(fits, bounds, level))
    if len(fits) > 1 and fits[0].law.name == "oscillator":
        fits = ranked(
            fits, inertia=inertia_foretells(observations, [law_fit.law for law_fit in fits])
        )
    for law_fit in (fits[0], *close_laws(fits, INERTIA)):
        if law_fit.law.name == "oscillator":
            fits[fits.index(law_fit)] = shocked(observations, law_fit)
    return fits


def _begun(fits: list[LawFit], bounds: Ends, level: float) -> list[LawFit]:
    """The laws that may be within the range of the metric at time 0; all, where none of these
    moves.
    """
    inside = [
        fit
        for fit in fits
        if bounds[0] <= fit.at(np.zeros(1))[0] <= bounds[1]
        or not fit.law.shapes
        or not _beyond(intervals_of(fit, level=level)["start"], bounds)
    ]
    return inside if any(fit.law.shapes for fit in inside) else fits


def _beyond(end: Interval, bounds: Ends) -> bool:
    """Whether start or plateau lies wholly outside the range of the metric."""
    return end.high < bounds[0] or end.low > bounds[1]


def _cut(end: Interval, bounds: Ends) -> Interval:
    """Start or plateau within the range of the metric; as it is where it lies wholly outside."""
    return end if _beyond(end, bounds) else within(end, bounds)


def shocked(observations: Observations, first: LawFit) -> LawFit:
    """An oscillator whose noise may be that of its updates, which it answers with swings of its
    own; compared with other laws without them.
    """
    half = min(observations.gap, 1.0) / 2  # the recursion is at rest half an update before time 0
    slow_MM = echo(observations.time_M + half, *(first.values[name] for name in first.law.shapes))
    near = float(np.diagonal(slow_MM, 1).sum() / np.trace(slow_MM))
    echoes = tuple(
        NoiseShape(near, share, prior=1 / len(_ECHOES), slow_MM=slow_MM) for share in _ECHOES
    )
    return replace(fit_law(replace(observations, echoes=echoes), first.law), aicc=first.aicc)


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
    return laws[int(squares.argmin())].name == "oscillator"


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
    best = min(fits, key=lambda law_fit: law_fit.aicc).law.name
    questioned = {best, "oscillator" if fits[0].law.name in SLOW_STARTS else best}
    for name in _ENDS:
        asked = others if name == "plateau" else others.keys() & questioned
        shared[name] = hull([alone[name], *(others[law][name] for law in asked)])
    return alone | shared


def unpassed(
    observations: Observations, best: LawFit, parameters: Mapping[str, Interval]
) -> Interval:
    """The plateau without the end that the last tenth of the rows lies beyond, on the law's way and
    off its curve.

    A law of a steep part takes a slow one behind it for slow noise, which would come back. A law
    that swings about its plateau comes back by itself.
    """
    plateau, swing, value = parameters["plateau"], parameters.get("overshoot"), observations.value_M
    few = max(3, value.size // 10)
    now, curve = (mean_of(late[-few:]) for late in (value, best.curve_M))
    error = math.sqrt(np.mean(np.diff(value) ** 2) / 2 / few)
    if (swing is not None and swing.high > 0) or abs(now - curve) <= 3 * error:
        return plateau
    if plateau.value > best.values["start"]:
        return replace(plateau, high=math.inf if now > plateau.high else plateau.high)
    return replace(plateau, low=-math.inf if now < plateau.low else plateau.low)


def akaike_weights(fits: Sequence[LawFit]) -> Float:
    r"""Akaike weights $w_i \propto e^{-\Delta_i/2}$ of a list of fits.

    Source: Burnham and Anderson (2002), Model Selection and Multimodel Inference, section 2.9.
    """
    criteria = np.array([law_fit.aicc for law_fit in fits])
    best = criteria.min()
    if not np.isfinite(best):
        return np.asarray(np.eye(1, len(fits))[0])
    weight = np.exp(-(criteria - best) / 2)
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


def _result(
    observations: Observations,
    fits: Sequence[LawFit],
    parameters: Mapping[str, Interval],
    judged: NumberedOutcome,
    time: Float,
    value: Float,
    half: Float,
    bounds: Ends,
) -> FitResult:
    """Put a fit on the caller's rows."""
    outcome, numbers = judged
    change, where = numbers.pop("change", math.nan), numbers.pop("where", "")
    course = outcome.sentence.format(**numbers)
    curves = [observations.averaged(law_fit.at, time - observations.origin) for law_fit in fits]
    candidates = [
        Candidate(law_fit.law.name, law_fit.aicc, float(weight), r_squared(value, curve))
        for law_fit, weight, curve in zip(fits, akaike_weights(fits), curves, strict=True)
    ]
    curve, raw, ceiling = curves[0], candidates[0].r_squared, math.nan
    if total := float(((value - value.mean()) ** 2).mean()):
        # the largest R squared that the sampling noise leaves possible
        ceiling = 1 - observations.sampling_variance / total
    curve, low, high = np.clip((curve, curve - half, curve + half), *bounds)
    residual = value - curve
    lag1 = correlations(residual)[0] if residual.any() else math.nan
    return FitResult(
        law=fits[0].law.name,
        outcome=outcome,
        message=course + where,
        course=course,
        parameters=parameters,
        n=observations.rows,
        r_squared=raw,
        r_squared_explainable=raw / ceiling if ceiling > 0.05 else math.nan,
        candidates=tuple(sorted(candidates, key=lambda candidate: candidate.aicc)),
        noise=Noise(lag1, observations.smoothing),
        time_T=time,
        value_T=value,
        curve_T=curve,
        low_T=low,
        high_T=high,
        residual_T=residual,
        change_time=change + observations.origin,
        notes=tuple(_notes(observations, fits)),
    )


def _still(observations: Observations, time: Float, value: Float, level: float) -> FitResult:
    """A metric that never moves by a digit: flat, and worth a look."""
    constant, line = float(value[0]), np.full(value.size, float(value[0]))
    return FitResult(
        law="constant",
        outcome=FitOutcome.STILL,
        message=FitOutcome.STILL.sentence.format(rows=observations.rows, value=constant),
        parameters={"plateau": Interval(constant, constant, constant, level)},
        n=observations.rows,
        candidates=(Candidate("constant", math.nan, 1.0, math.nan),),
        time_T=time,
        value_T=value,
        curve_T=line,
        low_T=line,
        high_T=line,
        residual_T=np.zeros(value.size),
    )
