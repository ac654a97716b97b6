"""Charts as plain data: lines with roles, decimated.

A chart says what is to be seen, in the words of `pages/assets/panel.js`, which draws it on every
page; `--json` prints it.
"""

import math
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from groupwise.arrays import Ends, Float, Whole, floats
from groupwise.diagnostics.judgement import Judgement
from groupwise.errors import MissingMetricError
from groupwise.plain import Plain, frozen
from groupwise.record.run import RunRecord
from groupwise.series.metric import metric_series
from groupwise.wording import number

Role = Literal[
    "observed", "smooth", "law", "forecast", "held_out", "evaluation", "beside", "plateau", "usual"
]
POINTS = 600
FEW_ROWS = 30  # rows that need no mean beside them
_DIGITS = 5
_LARGEST = 2**53  # below it every whole number is one
_KNOTS = 200  # points of a clock
Ordinates = tuple[float | None, ...]


@frozen
class Line(Plain):
    """One series of a chart, decimated."""

    name: str  # what it is, for legend and read-out
    role: Role  # what it is to the reader; decides colour, dash and marker
    x: tuple[float, ...]  # abscissae, in the unit of the chart's x-axis
    y: Ordinates  # None where missing; empty for a line that is only a band
    low: Ordinates = ()  # lower ends of its band, or empty
    high: Ordinates = ()  # upper ends
    band: str = ""  # what the band is, for legend and read-out

    @property
    def ordinates(self) -> tuple[float, ...]:
        """Every known ordinate of the line and its band."""
        return tuple(value for value in (*self.y, *self.low, *self.high) if value is not None)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; an absent band is left out."""
        shown = Plain.as_dict(self)
        return shown if self.low else {name: shown[name] for name in ("name", "role", "x", "y")}


@frozen
class Mark(Plain):
    """A vertical rule across a chart."""

    x: float  # where
    label: str  # what happens there, two or three words


@frozen
class Chart(Plain):
    """One chart."""

    key: str  # unique on the page of its run
    title: str  # a few words
    x_label: str = ""  # with unit
    unit: str = ""  # of the ordinate
    lines: tuple[Line, ...] = ()  # back to front
    marks: tuple[Mark, ...] = ()  # vertical rules
    caption: str = ""  # what to see, and how it was made
    wide: bool = False  # whether it takes the full width
    subject: str = ""  # the log's own key that is shown, "" where the title says it
    # ordinates at the bottom and the top edge, or None to show everything
    y_range: Ends | None = None
    # from where to where the failure is, None for the end; or None
    shade: tuple[float, float | None] | None = None
    small: bool = False  # a sparkline


@frozen
class ChartClock(Plain):
    """A clock that charts can be drawn along in place of the step; linear between points."""

    name: str  # what a person chooses it by, and what stands before its values
    x: tuple[float, ...]  # steps
    y: Ordinates  # what the clock shows there


def axes_of(steps: pl.DataFrame) -> tuple[ChartClock, ...]:
    """Return the clocks of a steps table that go on: tokens, and hours since the first row."""
    axes = []
    for name, column, scale in (("tokens", "tokens", 1.0), ("hours", "seconds", 3600.0)):
        logged = steps.select("step", column).drop_nulls()
        clock = logged[column].to_numpy() / scale
        if len(logged) < 2 or clock[-1] <= clock[0]:
            continue
        if name == "hours":
            clock = clock - clock[0]
        kept = np.unique(np.linspace(0, len(logged) - 1, _KNOTS).round().astype(int))
        axes.append(
            ChartClock(name, abscissae(logged["step"].to_numpy()[kept]), rounded(clock[kept]))
        )
    return tuple(axes)


def kept_rows(y_T: ArrayLike, *, points: int = POINTS) -> Whole:
    """Choose smallest and largest value of each of `points / 2` runs of rows: no spike is lost."""
    y = floats(y_T)
    if y.size <= points:
        return np.arange(y.size)
    edges = np.linspace(0, y.size, max(1, (points - 2) // 2) + 1).astype(int)
    kept = {0, y.size - 1}
    for start, stop in pairwise(edges):
        kept |= {int(start + y[start:stop].argmin()), int(start + y[start:stop].argmax())}
    return np.array(sorted(kept))


def running_mean(y_T: ArrayLike, size: int) -> Float:
    """Return the mean of the `size` rows around each row, at both ends of those that there are."""
    mean = pl.Series(floats(y_T)).rolling_mean(size, min_samples=1, center=True)
    return mean.to_numpy()


def rounded(values: ArrayLike) -> Ordinates:
    """Round to five digits of the largest value, so that data stay small; missing is None."""
    array = floats(values)
    finite = array[np.isfinite(array)]
    largest = np.abs(finite).max() if finite.size else 0.0
    decimals = _DIGITS - 1 - math.floor(math.log10(largest)) if largest > 0 else _DIGITS
    small = 10.0 ** (2 - decimals)  # what has fewer than three digits then keeps three of its own
    return tuple(
        None
        if not math.isfinite(value)
        else whole_short(round(value, decimals) if abs(value) >= small else float(f"{value:.3g}"))
        for value in array.tolist()
    )


def whole_short(value: float) -> float:
    """Return whole numbers as int, which is one character less in JSON."""
    return int(value) if value.is_integer() and -_LARGEST < value < _LARGEST else value


def observed_line(
    name: str, x_T: ArrayLike, y_T: ArrayLike, *, role: Role = "observed", points: int = POINTS
) -> Line:
    """Make a line of raw rows: finite ones only, decimated without losing a spike."""
    x, y = _finite(x_T, y_T)
    kept = kept_rows(y, points=points)
    return Line(name, role, abscissae(x[kept]), rounded(y[kept]))


def _finite(x_T: ArrayLike, y_T: ArrayLike) -> tuple[Float, Float]:
    """Return the rows in which both are finite."""
    x, y = floats(x_T), floats(y_T)
    usable = np.isfinite(x) & np.isfinite(y)
    return x[usable], y[usable]


def with_mean(
    name: str, x_T: ArrayLike, y_T: ArrayLike, *, points: int = POINTS, split: float = math.inf
) -> tuple[Line, ...]:
    """Make a line of raw rows and, where they are many, their running mean.

    It never averages across `split`.
    """
    x, y = _finite(x_T, y_T)
    raw = observed_line(name, x, y, points=points)
    if y.size <= FEW_ROWS:
        return (raw,)
    later, size = x >= split, 2 * max(1, round(y.size / 60)) + 1
    mean = np.concatenate([running_mean(part, size) for part in (y[~later], y[later])])
    return raw, smooth_line(f"mean of {size} rows", "smooth", x, mean, points=points // 3)


def abscissae(x_T: ArrayLike) -> tuple[float, ...]:
    """Round abscissae like `rounded`, none of them missing, to a tenth of their usual spacing."""
    x = floats(x_T)
    if x.size < 2 or np.all(x == np.round(x)):
        return tuple(map(whole_short, x.tolist()))
    spacing = float(np.ptp(x)) / (x.size - 1)
    decimals = max(0, 1 - math.floor(math.log10(spacing))) if spacing > 0 else 3
    return tuple(whole_short(round(value, decimals)) for value in x.tolist())


def smooth_line(
    name: str,
    role: Role,
    x_T: ArrayLike,
    y_T: ArrayLike,
    *,
    low_T: ArrayLike | None = None,
    high_T: ArrayLike | None = None,
    band: str = "",
    points: int = 200,
) -> Line:
    """Make a line of a smooth curve, with its band where given."""
    x, y = floats(x_T), floats(y_T)
    kept = kept_rows(y, points=points)
    low, high = (() if end is None else rounded(floats(end)[kept]) for end in (low_T, high_T))
    return Line(name, role, abscissae(x[kept]), rounded(y[kept]), low, high, band)


def useful_range(*parts: ArrayLike, shown: ArrayLike = (), reach: float = 0.6) -> Ends | None:
    """Choose ordinates that show the data whole and the rest as far as it does not crush them."""
    must = floats(shown)
    must = must[np.isfinite(must)]
    if not must.size:
        return None
    low, high = must.min(), must.max()
    span = (high - low) or abs(high) * 0.1 or 0.1
    rest = np.concatenate([floats(part).ravel() for part in parts]) if parts else must
    rest = rest[np.isfinite(rest)]
    if rest.size:
        low, high = (
            max(min(low, rest.min()), low - reach * span),
            min(max(high, rest.max()), high + reach * span),
        )
    pad = 0.04 * (high - low) if high > low else span
    return low - pad, high + pad


_BESIDE = 5  # rows on either side of a change


def logged_rows(record: RunRecord, judgement: Judgement) -> Iterator[str]:
    """Yield of each signal that moved the rows beside its change, as they are logged."""
    for sign in judgement.signs:
        with suppress(MissingMetricError):
            series = metric_series(record, sign.signal)
            change = int(np.searchsorted(series.step_T, sign.step))
            before, since = (
                ", ".join(map(number, series.value_T[max(0, first_row) : first_row + _BESIDE]))
                for first_row in (change - _BESIDE, change)
            )
            name = sign.signal.replace("_", " ")
            when = f"before step {sign.step:,}: {before}; since then" if before else "at first"
            yield f"{name} {when}: {since or 'no number'}"
