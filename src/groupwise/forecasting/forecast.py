r"""Where a curve is going: a centre, a band of the mean and a band of the rows, stretched as far as
runs of before went astray.

Centre and spread are those of a mixture of Gaussian processes (`process`); median and band lie as
many spreads about that centre as the table of `calibration` says, held within the metric's bounds.
No law enters, so a forecast is there where none holds. It extrapolates one series and knows nothing
of what else the run may do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from groupwise.arrays import Float
from groupwise.errors import InvalidArgumentError
from groupwise.forecasting.calibration import PROBABILITIES, SPREAD, Calibration, Kind, shipped
from groupwise.forecasting.observations import Observations, observe
from groupwise.forecasting.process import foresee
from groupwise.forecasting.results import Forecast, ForecastStatus, Target
from groupwise.intervals import Interval
from groupwise.limits import LARGEST_VALUE
from groupwise.threads import on_one_thread

# Fewer rows than this no run of the table was forecast from.
FEWEST = 8
_MOMENTS = 40  # at which it is asked whether a target is reached


@on_one_thread
def forecast(
    time_T: ArrayLike,
    value_T: ArrayLike,
    at_S: ArrayLike,
    *,
    window: float = 1.0,
    smoothing: int | None = None,
    level: float = 0.9,
    rows: int = 1,
    bounds: tuple[float, float] | None = None,
    target: float | None = None,
    calibration: Calibration | None = None,
) -> Forecast:
    r"""Forecast a metric at given times, with a band of the mean and a band of the next
    observation.

    With the centre $m$ and the spread $S = (q_{95} - q_5)/3.29$ of a mixture of Gaussian processes,
    the quantiles are $m + S \sinh z_p$; $z_p$ comes from a table of how runs of before went on.

    Args:
        time_T: increasing times in optimiser updates (or any clock), shape (T,).
        value_T: the metric, shape (T,); nan where missing.
        at_S: times at which to forecast, in the same clock, shape (S,).
        window: updates that one row averages over.
        smoothing: as in `fit`.
        level: nominal coverage of both bands.
        rows: the observation of the second band is the mean of this many neighbouring rows.
        bounds: the range that the metric cannot leave, (0, 1) for a share; None for none.
        target: a level of the mean, to be told how likely it is reached and when.
        calibration: the table of how runs of before went on; None takes the one made from public
            runs.

    Returns:
        Medians and bands, the gain from the last row to the last time, and what is foreseen of the
        target.

    Source: derived by us; lab/docs/theory/fit.md.
    """
    ahead = _checked_times(at_S)
    if rows < 1:
        raise InvalidArgumentError(f"an observation is the mean of at least one row; got {rows}")
    if not 0 < level < 1:
        raise InvalidArgumentError(f"the level of a band lies between 0 and 1; got {level}")
    if target is not None and not np.isfinite(target):
        raise InvalidArgumentError(f"a target is a finite level of the metric; got {target}")
    seen = observe(time_T, value_T, window=window, smoothing=smoothing)
    if float(ahead.min()) < seen.origin:
        raise InvalidArgumentError(
            f"a forecast looks at times of the log or later; got {float(ahead.min()):g}"
        )
    if seen.still:
        return _still(seen, ahead, level, bounds, target)
    last = seen.row_time_T[-1] + seen.origin
    moments = np.linspace(last, max(float(ahead.max()), last), _MOMENTS)
    mean, row, course = foreseen(
        seen,
        (ahead, np.inf),
        (ahead, rows),
        (moments, np.inf),
        bounds=bounds,
        table=calibration or shipped(),
    )
    tails = (1 - level) / 2, (1 + level) / 2
    middle = course.quantile(0.5)
    end, low, high = (float(one[-1] - middle[0]) for one in (middle, *map(course.quantile, tails)))
    status: ForecastStatus = "short" if seen.row_time_T.size < FEWEST else "forecast"
    (mean_low, mean_high), (row_low, row_high) = (
        [one.quantile(tail) for tail in tails] for one in (mean, row)
    )
    return Forecast(
        status=status,
        message=_message(status, seen.row_time_T.size),
        level=level,
        time_S=ahead,
        mean_S=mean.quantile(0.5),
        mean_low_S=mean_low,
        mean_high_S=mean_high,
        # A row scatters about the mean: its band, stretched by figures of its own, is no narrower.
        low_S=np.minimum(row_low, mean_low),
        high_S=np.maximum(row_high, mean_high),
        expected_gain=Interval(end, low, high, level),
        target=None if target is None else _target(target, course, moments, level),
    )


def _checked_times(at_S: ArrayLike) -> Float:
    """The times asked for, as a line of finite numbers."""
    try:
        ahead = np.atleast_1d(np.asarray(at_S, dtype=float))
    except (TypeError, ValueError):
        raise InvalidArgumentError(
            "a forecast looks at numbers; got something else among the times"
        ) from None
    if (
        ahead.ndim != 1
        or not ahead.size
        or not np.isfinite(ahead).all()
        or float(np.abs(ahead).max()) > LARGEST_VALUE
    ):
        raise InvalidArgumentError(
            "a forecast needs a line of finite times to look at, at least one"
        )
    return ahead


def _message(status: ForecastStatus, rows: int) -> str:
    """What stands behind the bands, in a sentence."""
    if status == "short":
        return (
            f"{rows} rows are fewer than any run was forecast from before: the bands are too "
            "narrow rather than too wide"
        )
    return f"the bands are those of {rows} rows, stretched as far as runs of before went astray"


def _still(
    seen: Observations,
    ahead: Float,
    level: float,
    bounds: tuple[float, float] | None,
    target: float | None,
) -> Forecast:
    """A metric that never moved says nothing of how far it can: its band is all that its bounds
    leave, and no target has a chance.
    """
    value = float(seen.row_value_T[0])
    low, high = bounds or (-np.inf, np.inf)
    line, least, most = (np.full(ahead.size, one) for one in (value, low, high))
    message = (
        f"every row is exactly {value:.6g}: the rows say nothing of how far the metric can move"
    )
    gain = Interval(0.0, low - value, high - value, level)
    unknown = (
        None if target is None else Target(target, np.nan, Interval(np.nan, np.nan, np.nan, level))
    )
    return Forecast("still", message, level, ahead, line, least, most, least, most, gain, unknown)


@dataclass(frozen=True, slots=True)
class Ahead:
    """Means or rows ahead: what is foreseen of them, and the table that stretches it."""

    centre_S: Float
    spread_S: Float
    place_S: Float  # in rows, from the first seen
    seen: float  # rows from the first to the last seen, both counted
    kind: Kind
    bounds: tuple[float, float] | None
    table: Calibration

    def quantile(self, probability: float) -> Float:
        """Quantile of each, within the bounds."""
        bounded = self.bounds is not None
        stretch = self.table.stretch(
            self.kind, probability, self.seen, self.place_S, bounded=bounded
        )
        return self.within(self.centre_S + self.spread_S * stretch)

    def within(self, value_S: Float) -> Float:
        """Values held within the bounds."""
        return value_S if self.bounds is None else np.clip(value_S, *self.bounds)

    def chance_above(self, level: float) -> Float:
        """Chance of each to lie above a level, by the quantiles of the table and their normal
        quantiles between.
        """
        known, node = (
            np.stack([self.quantile(p) for p in PROBABILITIES], axis=1),
            ndtri(PROBABILITIES),
        )
        # Where the bounds hold several quantiles in one place, the level is above all of them.
        return np.array(
            [
                1
                - ndtr(
                    np.interp(level, row + 1e-12 * node * max(self.spread_S.max(), 1e-300), node)
                )
                for row in known
            ]
        )


def foreseen(
    seen: Observations,
    *asked: tuple[Float, float],
    bounds: tuple[float, float] | None,
    table: Calibration,
) -> list[Ahead]:
    """Foresee, for each list of times, the mean of so many rows about each, or the curve itself
    for inf.
    """
    first, gap = float(seen.row_time_T[0]), float(np.median(np.diff(seen.row_time_T)))
    row, count = (
        (seen.row_time_T - first) / gap,
        np.concatenate([np.full(at.size, rows, dtype=float) for at, rows in asked]),
    )
    width = np.where((count == 1) | np.isinf(count), 0.0, count)
    place = np.maximum(
        (np.concatenate([at for at, _ in asked]) - seen.origin - first) / gap, width / 2
    )
    foresight = foresee(row, seen.row_value_T, place, width, count)
    low, centre, high = (foresight.quantile(p) for p in (0.05, 0.5, 0.95))
    ends = np.cumsum([at.size for at, _ in asked])[:-1]
    centres, spreads, places = (
        np.split(column, ends) for column in (centre, (high - low) / SPREAD, place)
    )
    kinds: list[Kind] = ["row" if rows == 1 else "window" for _, rows in asked]
    return [
        Ahead(one, spread, where, float(row[-1]) + 1, kind, bounds, table)
        for one, spread, where, kind in zip(centres, spreads, places, kinds, strict=True)
    ]


def _target(target: float, outlook: Ahead, moment_S: Float, level: float) -> Target:
    """The chance that the mean ends above a target, and from when on it is likely enough to have
    been reached.
    """
    chance_S = outlook.chance_above(target)
    reached = np.maximum.accumulate(chance_S)
    first, middle, last = (
        float(moment_S[np.argmax(reached >= p)]) if reached[-1] >= p else np.inf
        for p in ((1 - level) / 2, 0.5, (1 + level) / 2)
    )
    return Target(target, float(chance_S[-1]), Interval(middle, first, last, level))
