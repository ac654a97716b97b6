r"""Where a curve is going: a centre, a band of the mean and a band of the rows, as far above as
runs of before ended and no nearer than a mean that wanders.

Centre and spread are those of a mixture of Gaussian processes and of its wandering mean.
Above the centre the band goes as many spreads as the table `calibration.json` says, and
to both sides at least as far as the rows' own increments take a mean that wanders. It is held
within the metric's bounds; where none are known, a straight line through the range of the rows goes
as far as is believed. No law enters, so a forecast is there where none holds. It extrapolates one
series and knows nothing of what else the run may do.

A row is $y_i = \ell + f(t_i) + \sigma e_i$ with a level $\ell$ of which nothing is known, a curve
$f$ with one covariance $\sigma^2 k(t, t')$ of a fixed list, and noise of unknown size. Level and
size are integrated out, so that each covariance foretells a Student t. Time is counted in rows, and
each covariance stretches with the rows seen. Those of a mean that wanders, Brownian motion in plain
time, also foretell alone, from the later half of the rows. Derived by us from standard parts
(Rasmussen and Williams 2006, sections 2.7 and 5.4).

With centre and spread $S = (q_{95} - q_5)/3.29$ of the foresight, the quantile of level $p \ge .5$
of what comes is $\text{centre} + S \sinh z_p$, $z_p = a_p + b_p \ln(t/n) + c_p\, 3/\sqrt n$ for row
$t$ foreseen from $n$. The numbers are fitted by quantile regression of $\operatorname{arsinh}$ of
the error over $S$, every cluster of runs weighing the same, and pulled to the band without
calibration the more, the fewer clusters there are. Runs take off more often than they fall: the
upper end is never nearer with the distance, and the median moves with the distance alone. The lower
end has no table: no run is sure to hold what it has, and a mean that wanders says how far it may
fall. Derived by us.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from importlib.resources import files
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from groupwise.arrays import Ends, Float, bisected, check_at_least, checked_shape, floats
from groupwise.errors import InvalidArgumentError
from groupwise.forecasting.fit import FEW, fall_from_height
from groupwise.forecasting.observations import Observations, observe
from groupwise.forecasting.results import Forecast, ForecastStatus
from groupwise.intervals import Interval, check_level
from groupwise.parsing import LARGEST_VALUE, parse_json
from groupwise.plain import frozen
from groupwise.processes import on_one_thread

BandKind = Literal["window", "row"]
KINDS: tuple[BandKind, ...] = ("window", "row")
UPPER = (0.5, 0.75, 0.9, 0.95, 0.975, 0.99)  # probabilities of the table
SPREAD = 2 * float(ndtri(0.95))  # the spread is a standard deviation where the foresight is normal
# Rows at the end, if they are not half of all, that tell how far a mean wanders: that of a first
# rise does not go on.
_LATE = 100
# A run seen to a tenth is as far as public runs tell.
FURTHEST = float(np.log(10))
# Terms that no runs make: the hyperbolic sine of more leaves the numbers there are.
_WILDEST = 50.0


@frozen
class Calibration:
    """How to stretch the foresight of a window's mean and of a row."""

    terms: Mapping[BandKind, Float]  # a, b and c of each of UPPER, shape (P, 3)
    runs: int  # runs it was made from
    clusters: int  # and their clusters, 0 for none: the foresight as it is

    def stretch(self, kind: BandKind, probability: float, seen: float, row_S: Float) -> Float:
        """How many spreads above the centre a quantile from the median on lies; between the
        probabilities of the table by their normal quantiles.
        """
        terms = np.sort(terms_of(seen, row_S) @ self.terms[kind].T, axis=1)
        node, wanted = ndtri(UPPER), float(ndtri(probability))
        # Beyond the table a tail is as long as a normal one.
        beyond = np.arcsinh(wanted) - np.arcsinh(min(wanted, node[-1]))
        inside = np.array([np.interp(wanted, node, row) for row in terms])
        return np.asarray(np.sinh(inside + beyond))


def terms_of(seen: float, row_S: Float) -> Float:
    """What the quantiles hang on: a constant, the distance, and how few rows were seen."""
    distance = np.clip(np.log((row_S + 1) / seen), 0, FURTHEST)
    return np.stack([np.ones_like(row_S), distance, np.full_like(row_S, 3 / np.sqrt(seen))], axis=1)


@lru_cache(maxsize=1)
def shipped() -> Calibration:
    """The table of this version, made from public runs."""
    return read_calibration(
        files("groupwise.forecasting").joinpath("calibration.json").read_text(encoding="utf-8")
    )


def read_calibration(text: str) -> Calibration:
    """Read a table that `groupwise-lab calibrate` wrote."""
    try:
        data = parse_json(text)
        terms: dict[BandKind, Float] = {kind: floats(data["terms"][kind]) for kind in KINDS}
        table = Calibration(terms, int(data["runs"]), int(data["clusters"]))
        good = data["version"] == 2 and tuple(data["probabilities"]) == UPPER
    except (ValueError, TypeError, KeyError, OverflowError):
        good = False
    # Not a number is no less than anything.
    if not good or not all(
        term.shape == (len(UPPER), 3) and (np.abs(term) < _WILDEST).all() for term in terms.values()
    ):
        raise InvalidArgumentError(
            "expected a table as groupwise-lab calibrate writes it; got something else: make one "
            "with it"
        )
    return table


Kernel = Callable[[Float, Float], Float]  # covariance of the curve at two places, entry by entry

BLOCKS = 40
# Variance of the curve over the rows seen, in variances of the noise of a row.
_SIGNALS = 10.0 ** np.array([-2.0, -1.0, -0.3, 0.3, 1.0, 2.0])
_CLOCKS = (np.inf, 5.0, 50.0)  # rows after which time begins to count by its logarithm
_RATES = (1.0, 4.0)  # at which a trend is forgotten, in one over the rows seen
_APPROACHES = (
    0.1,
    0.2,
    0.4,
    0.8,
    1.6,
    3.2,
)  # time constants of an exponential approach, in the rows seen
_WALKS = (0.03, 0.3)  # share of a walk beside an approach
_SPELL = 0.08  # correlation time of slow noise, in the rows seen
_SLOW = (0.0, 0.3)  # its variance, in variances of the noise of a row
_LEAST = 0.001  # weight below which a covariance is left out, as a share of the largest
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(3)


@frozen
class Foresight:
    """What is foretold of several means: a mixture of Student t's."""

    weight_K: Float  # of each covariance that the rows leave, sums to 1
    mean_KS: Float
    scale_KS: Float
    freedom: int

    def part(self, some: slice) -> Foresight:
        """Of some of the means."""
        return replace(self, mean_KS=self.mean_KS[:, some], scale_KS=self.scale_KS[:, some])

    def quantile(self, probability: float) -> Float:
        """Quantile of each mean, by bisection."""
        reach = 30 * self.scale_KS
        return bisected(
            lambda x: self.weight_K @ student(self.freedom, (x - self.mean_KS) / self.scale_KS),
            probability,
            ((self.mean_KS - reach).min(0), (self.mean_KS + reach).max(0)),
            halvings=26,
        )


def student(freedom: int, t: Float) -> Float:
    """Distribution function of Student's t by Wallace's (1959) normal approximation, within .001
    from 5 degrees of freedom on.
    """
    normal = (8 * freedom + 1) / (8 * freedom + 3) * np.sqrt(freedom * np.log1p(t * t / freedom))
    return np.asarray(ndtr(np.copysign(normal, t)))


def foresee(
    row_T: Float,
    value_T: Float,
    at_S: Float,
    width_S: Float,
    count_S: Float,
    *,
    wandering: bool = False,
) -> Foresight:
    """Foretell means over stretches of rows.

    Args:
        row_T: place of each row seen, in rows, from 0.
        value_T: the rows.
        at_S: middle of each stretch.
        width_S: its length in rows, 0 for a point.
        count_S: rows that are averaged there; inf for the curve itself, without noise.
        wandering: whether only covariances of a mean that wanders may: in plain time, and without
            slow noise.
    """
    block, count, within = _blocks(row_T, value_T)
    kernels, signal_KJ = covariances(row_T[-1] + 1)
    if wandering:
        signal_KJ = signal_KJ[signal_KJ.sum(1) == signal_KJ[:, 0]]
    seen = np.stack([kernel(block[0][:, None], block[0]) for kernel in kernels])
    covariance = np.tensordot(signal_KJ, seen, 1) + np.diag(1 / count)
    freedom = value_T.size - 1
    ones, value = np.ones(count.size), block[1] - block[1].mean()
    solved = np.linalg.solve(covariance, np.stack([ones, value], 1))
    information, level = solved[:, :, 0] @ ones, solved[:, :, 0] @ value
    level = level / information
    # Rounding alone keeps rows from lying on a curve exactly.
    error = (
        np.maximum(solved[:, :, 1] @ value - level**2 * information, 0)
        + within
        + 1e-20 * float(value_T @ value_T)
        + 1e-300
    )
    root = np.diagonal(np.linalg.cholesky(covariance), axis1=1, axis2=2)
    likelihood = -np.log(root).sum(1) - 0.5 * (np.log(information) + freedom * np.log(error))
    weight = np.exp(likelihood - likelihood.max())
    left = weight > _LEAST
    ahead, own = _stretches(kernels, block[0], at_S, width_S)
    cross = np.tensordot(signal_KJ[left], ahead, 1)
    regression = np.linalg.solve(covariance[left], cross)
    unknown = (1 - regression.sum(1)) ** 2 / information[left, None]
    variance = signal_KJ[left] @ own - (cross * regression).sum(1) + unknown + 1 / count_S
    mean = (
        level[left, None]
        + np.einsum("kms,km->ks", regression, value - level[left, None])
        + block[1].mean()
    )
    scale = np.sqrt(np.maximum(variance, 1e-12) * (error[left] / freedom)[:, None])
    return Foresight(weight[left] / weight[left].sum(), mean, scale, freedom)


def _blocks(row_T: Float, value_T: Float) -> tuple[Float, Float, float]:
    """Mean place and mean value of each block, its count, and the squares that lie within
    blocks.
    """
    some = min(value_T.size, BLOCKS)
    start = np.arange(some) * value_T.size // some
    count = np.diff(np.append(start, value_T.size))
    block = np.add.reduceat(np.stack([row_T, value_T]), start, axis=1) / count
    rest = value_T - np.repeat(block[1], count)
    return block, count.astype(float), float(rest @ rest)


def covariances(seen: float) -> tuple[list[Kernel], Float]:
    """Kernels of unit size over the rows seen, and how much of each every covariance of the list
    has, shape (K, J).
    """
    walks = [_walk(clock, seen) for clock in _CLOCKS]
    trends = [_trend(clock, rate, seen) for clock in _CLOCKS for rate in _RATES]
    approaches = [_approach(part, seen) for part in _APPROACHES]
    # slow noise: good and bad spells
    kernels = [*walks, *trends, *approaches, lambda a, b: np.exp(-np.abs(a - b) / (_SPELL * seen))]
    unit = np.eye(len(kernels))
    moving = range(len(walks) + len(trends))
    free = [
        signal * unit[j] + slow * unit[-1] for j in moving for signal in _SIGNALS for slow in _SLOW
    ]
    lawful = [
        signal * (unit[len(moving) + j] + share * unit[0])
        for j in range(len(approaches))
        for signal in _SIGNALS
        for share in _WALKS
    ]
    return kernels, np.array(free + lawful)


def _warped(clock: float, row: Float, seen: float) -> Float:
    """Time that counts by its logarithm after some rows, 1 at the end of the rows seen."""
    return row / seen if np.isinf(clock) else np.log1p(row / clock) / np.log1p(seen / clock)


def _walk(clock: float, seen: float) -> Kernel:
    """Brownian motion in warped time."""
    return lambda a, b: np.minimum(_warped(clock, a, seen), _warped(clock, b, seen))


def _trend(clock: float, rate: float, seen: float) -> Kernel:
    """The integral of an Ornstein-Uhlenbeck velocity in warped time: a trend that is forgotten."""

    def kernel(a: Float, b: Float) -> Float:
        """Of unit variance at the end of the rows seen."""
        u, v = rate * _warped(clock, a, seen), rate * _warped(clock, b, seen)
        covariance = 2 * np.minimum(u, v) - 1 + np.exp(-u) + np.exp(-v) - np.exp(-np.abs(u - v))
        return np.asarray(covariance / (2 * (rate - 1 + np.exp(-rate))))

    return kernel


def _approach(constant: float, seen: float) -> Kernel:
    """An exponential approach of unknown height, of unit variance where the rows seen end."""

    def way(row: Float) -> Float:
        """Part of the way that is done."""
        return np.asarray(np.expm1(-row / (constant * seen)) / np.expm1(-1 / constant))

    return lambda a, b: way(a) * way(b)


def _stretches(
    kernels: list[Kernel], row_M: Float, at_S: Float, width_S: Float
) -> tuple[Float, Float]:
    """Covariance of each stretch with each block, (J, M, S), and with itself, (J, S), under
    every kernel; by quadrature.
    """
    node = at_S[:, None] + width_S[:, None] / 2 * _NODES
    weight = _WEIGHTS / 2
    ahead = np.stack([kernel(row_M[:, None, None], node) @ weight for kernel in kernels])
    own = np.stack(
        [kernel(node[:, :, None], node[:, None, :]) @ weight @ weight for kernel in kernels]
    )
    return ahead, own


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
    bounds: Ends | None = None,
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
    check_level(level)
    ahead = checked_shape("at_S", np.atleast_1d(np.asarray(at_S)), dimensions=1).astype(float)
    if not (np.abs(ahead) <= LARGEST_VALUE).all():
        raise InvalidArgumentError("the times of a forecast have to be finite numbers")
    check_at_least(1, rows=rows)
    if bounds is not None and (np.shape(bounds) != (2,) or not np.diff(floats(bounds)) > 0):
        raise InvalidArgumentError(
            f"expected a lower and a higher bound, got {bounds!r:.60}: a share has (0, 1)"
        )
    seen = observe(time_T, value_T, window=window, smoothing=smoothing)
    if ahead.min() < seen.origin:
        raise InvalidArgumentError(
            f"a forecast needs times within the log or later; got {float(ahead.min()):g}"
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
    rows_seen = seen.row_time_T.size
    status: ForecastStatus = "short" if rows_seen < FEW else "forecast"
    (mean_low, mean_high), (row_low, row_high) = (
        [target.quantile(tail) for tail in tails] for target in (mean, row)
    )
    message = (
        f"no public run was forecast from only {rows_seen} rows: the bands may be too narrow"
        if status == "short"
        else "the band allows for a drift as in the later half of these rows, and upwards for the "
        f"errors of forecasts on public runs after {rows_seen} rows; it covers no rise or fall "
        "that no row shows yet"
    )
    return Forecast(
        status=status,
        message=message,
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


def _still(seen: Observations, ahead: Float, level: float, bounds: Ends | None) -> Forecast:
    """A metric that never moved says nothing of how far it can: its band is all that its bounds
    leave.
    """
    value = float(seen.row_value_T[0])
    low, high = bounds or (-np.inf, np.inf)
    line, least, most = (np.full(ahead.size, height) for height in (value, low, high))
    message = f"every row is exactly {value:.6g}: the rows do not show how far the metric can move"
    gain = Interval(0.0, low - value, high - value, level)
    return Forecast("still", message, level, ahead, line, least, most, least, most, gain)


@frozen
class ForecastBands:
    """Means or rows ahead: what is foreseen of them, and the table that stretches it."""

    centre_S: Float
    spread_S: Float
    wandering: Foresight  # what a mean that wanders does
    ends: tuple[Float | float, Float | float]  # of the range that they are held in
    place_S: Float  # in rows, from the first seen
    seen: float  # rows from the first to the last seen, both counted
    fallen: bool  # whether the rows have lost their height: no run is foreseen to come back
    kind: BandKind
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
        return np.clip(value_S, *self.ends)


def foreseen(
    seen: Observations,
    *targets: tuple[Float, float],
    bounds: Ends | None,
    table: Calibration,
) -> list[ForecastBands]:
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
    every = foresee(row, seen.row_value_T, place, width, count)
    late = max(min(row.size - _LATE, row.size // 2, row.searchsorted(place.min())), 0)
    begin, value = row[late], seen.row_value_T[late:]
    wandering = foresee(row[late:] - begin, value, place - begin, width, count, wandering=True)
    low, centre, high = (every.quantile(p) for p in (0.05, 0.5, 0.95))
    centre = (2 * centre + wandering.quantile(0.5)) / 3
    spread, rows_seen = (high - low) / SPREAD, float(row[-1]) + 1
    least, most = float(seen.row_value_T.min()), float(seen.row_value_T.max())
    further = (most - least) * np.maximum((place + 1) / rows_seen - 1, 0)
    fallen, made, start = bool(np.isfinite(fall_from_height(seen))), [], 0
    for at, rows in targets:
        part, start = slice(start, start + at.size), start + at.size
        columns = (centre[part], spread[part], wandering.part(part))
        ends = (least - further[part], most + further[part]) if bounds is None else bounds
        kind: BandKind = "row" if rows == 1 else "window"
        made.append(ForecastBands(*columns, ends, place[part], rows_seen, fallen, kind, table))
    return made
