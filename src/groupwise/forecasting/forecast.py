r"""Where a curve is going: a centre, a band of the mean and a band of the rows, as far above as
runs of before ended and no nearer than a mean that wanders.

Centre and spread are those of a mixture of Gaussian processes and of its wandering mean
(`process`). Above the centre the band goes as many spreads as the table of `calibration` says, and
to both sides at least as far as the rows' own increments take a mean that wanders. It is held
within the metric's bounds; where none are known, a straight line through the range of the rows goes
as far as is believed. No law enters, so a forecast is there where none holds. It extrapolates one
series and knows nothing of what else the run may do.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from groupwise.arrays import Float
from groupwise.errors import InvalidArgumentError
from groupwise.forecasting.calibration import SPREAD, Calibration, Kind, shipped
from groupwise.forecasting.observations import Observations, observe
from groupwise.forecasting.process import Foresight, foresee
from groupwise.forecasting.results import Forecast, ForecastStatus
from groupwise.forecasting.status import fall_from_height
from groupwise.intervals import Interval
from groupwise.limits import LARGEST_VALUE
from groupwise.plain import frozen
from groupwise.threads import on_one_thread

# Fewer rows than this no run of the table was forecast from.
FEWEST = 8


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
    calibration: Calibration | None = None,
) -> Forecast:
    r"""Forecast a metric at given times, with a band of the mean and a band of the next
    observation.

    With the centre $m$ and the spread $S = (q_{95} - q_5)/3.29$ of a mixture of Gaussian processes,
    the upper quantiles are $m + S \sinh z_p$, $z_p$ from a table of how runs of before went on, or
    those of a mean that wanders where these are higher; the lower ones are those of the latter.

    Args:
        time_T: increasing times in optimiser updates (or any clock), shape (T,).
        value_T: the metric, shape (T,); nan where missing.
        at_S: times at which to forecast, in the same clock, shape (S,).
        window: updates that one row averages over.
        smoothing: as in `fit`.
        level: nominal coverage of both bands.
        rows: the observation of the second band is the mean of this many neighbouring rows.
        bounds: the range that the metric cannot leave, (0, 1) for a share; None for none.
        calibration: the table of how runs of before went on; None takes the one made from public
            runs.

    Returns:
        Medians and bands, and the gain from the last row to the last time.

    Source: derived by us; lab/docs/theory/fit.md.
    """
    ahead = _checked_times(at_S)
    if rows < 1:
        raise InvalidArgumentError(f"an observation is the mean of at least one row; got {rows}")
    if not 0 < level < 1:
        raise InvalidArgumentError(f"the level of a band lies between 0 and 1; got {level}")
    seen = observe(time_T, value_T, window=window, smoothing=smoothing)
    if ahead.min() < seen.origin:
        raise InvalidArgumentError(
            f"a forecast looks at times of the log or later; got {float(ahead.min()):g}"
        )
    if seen.still:
        return _still(seen, ahead, level, bounds)
    last = seen.row_time_T[-1] + seen.origin
    ends = np.array([last, max(float(ahead.max()), last)])
    mean, row, course = foreseen(
        seen,
        (ahead, np.inf),
        (ahead, rows),
        (ends, np.inf),
        bounds=bounds,
        table=calibration or shipped(),
    )
    tails = (1 - level) / 2, (1 + level) / 2
    middle = course.quantile(0.5)
    end, low, high = (
        float(target[-1] - middle[0]) for target in (middle, *map(course.quantile, tails))
    )
    status: ForecastStatus = "short" if seen.row_time_T.size < FEWEST else "forecast"
    (mean_low, mean_high), (row_low, row_high) = (
        [target.quantile(tail) for tail in tails] for target in (mean, row)
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
        or np.abs(ahead).max() > LARGEST_VALUE
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
    return (
        f"the upper ends are as far off as public runs came after {rows} rows, and both ends "
        "at least as far as a mean that wanders like these rows"
    )


def _still(
    seen: Observations, ahead: Float, level: float, bounds: tuple[float, float] | None
) -> Forecast:
    """A metric that never moved says nothing of how far it can: its band is all that its bounds
    leave.
    """
    value = float(seen.row_value_T[0])
    low, high = bounds or (-np.inf, np.inf)
    line, least, most = (np.full(ahead.size, height) for height in (value, low, high))
    message = (
        f"every row is exactly {value:.6g}: the rows say nothing of how far the metric can move"
    )
    gain = Interval(0.0, low - value, high - value, level)
    return Forecast("still", message, level, ahead, line, least, most, least, most, gain)


@frozen
class Ahead:
    """Means or rows ahead: what is foreseen of them, and the table that stretches it."""

    centre_S: Float
    spread_S: Float
    wandering: Foresight  # what a mean that wanders does
    low_S: Float  # the range that they are held in
    high_S: Float
    place_S: Float  # in rows, from the first seen
    seen: float  # rows from the first to the last seen, both counted
    fallen: bool  # whether the rows have lost their height: no run is foreseen to come back
    kind: Kind
    table: Calibration

    def quantile(self, probability: float) -> Float:
        """Quantile of each, within the bounds."""
        wandering = self.wandering.quantile(probability)
        stretch = self.table.stretch(self.kind, max(probability, 0.5), self.seen, self.place_S)
        value = self.centre_S + self.spread_S * stretch
        if probability < 0.5 or (self.fallen and probability == 0.5):
            value = np.minimum(value, wandering)
        elif probability > 0.5:
            value = np.maximum(value, wandering)
        return self.within(value)

    def within(self, value_S: Float) -> Float:
        """Values held within the bounds."""
        return np.clip(value_S, self.low_S, self.high_S)


def foreseen(
    seen: Observations,
    *targets: tuple[Float, float],
    bounds: tuple[float, float] | None,
    table: Calibration,
) -> list[Ahead]:
    """Foresee, for each list of times, the mean of so many rows about each, or the curve itself
    for inf.
    """
    first = float(seen.row_time_T[0])
    gap = (seen.span - first) / (seen.row_time_T.size - 1)
    row, count = (
        (seen.row_time_T - first) / gap,
        np.concatenate([np.full(at.size, rows, dtype=float) for at, rows in targets]),
    )
    width = np.where((count == 1) | np.isinf(count), 0.0, count)
    place = np.maximum(
        (np.concatenate([at for at, _ in targets]) - seen.origin - first) / gap, width / 2
    )
    every, wandering = foresee(row, seen.row_value_T, place, width, count)
    low, centre, high = (every.quantile(p) for p in (0.05, 0.5, 0.95))
    centre = (2 * centre + wandering.quantile(0.5)) / 3
    spread, rows_seen = (high - low) / SPREAD, float(row[-1]) + 1
    least, most = float(seen.row_value_T.min()), float(seen.row_value_T.max())
    further = (most - least) * np.maximum((place + 1) / rows_seen - 1, 0)
    floor, ceiling = (
        (least - further, most + further)
        if bounds is None
        else (np.full(place.size, end) for end in bounds)
    )
    fallen, made, start = bool(np.isfinite(fall_from_height(seen))), [], 0
    for at, rows in targets:
        part, start = slice(start, start + at.size), start + at.size
        columns = (centre[part], spread[part], wandering.part(part), floor[part], ceiling[part])
        kind: Kind = "row" if rows == 1 else "window"
        made.append(Ahead(*columns, place[part], rows_seen, fallen, kind, table))
    return made
