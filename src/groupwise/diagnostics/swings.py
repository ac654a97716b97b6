r"""A swing of a metric at one frequency: whether slow noise explains it, how it is damped, since
when it is there, whether it grows.

The onset is judged from a line that is 0 up to a row and quadratic in time from there on, beside a
smooth trend. A metric whose period drifts is followed only as far as one frequency does.
What a swing means for a run is not known here.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.polynomial.legendre import legvander

from groupwise.arrays import Float, Whole
from groupwise.diagnostics.signals import Evidence, Signal, once, signal_of
from groupwise.intervals import Interval
from groupwise.plain import frozen

FEWEST = 16
# The first autocorrelations of a row tell a swing only if it comes round three times.
TURNS = 3
# Degree of the trend beside the line, in the square root of time: early rows change fastest.
_DEGREE = 4
# Twice the log-likelihood by which a row may be worse than the best: 95 % of a chi-square with one
# degree of freedom.
_OPEN = 3.84


@frozen
class Swing:
    """A second-order autoregression of the late rows."""

    radius: Interval  # spectral radius: 1 is the edge
    period: float  # in rows
    p_value: float  # chance of as strong a line in first-order noise
    amplitude: float  # of the line, in units of the metric
    # late over earlier amplitude, within the late rows or against those before, whichever grew more
    growth: float
    row: int  # of the series, where the line begins


def swing_of(value_T: Float, most: float) -> Swing | None:
    r"""Find a line in the last three fifths of a series whose chance in first-order noise is no
    more than `most`.

    The share of one bin of the periodogram, or of three, after $x_t - \phi x_{t-1}$ with the
    estimated $\phi$; only lines that come round three times count.
    """
    start = len(value_T) * 2 // 5
    size = _memory(value_T[start:])
    late = value_T[start + (len(value_T) - start) % size :].reshape(-1, size).mean(axis=1)
    n = len(late)
    if n < (FEWEST if size == 1 else 12):
        return None
    place, left = _detrended(late)
    power = float(left @ left)
    if power <= 1e-18 * n:
        return None
    phi = float(np.clip((left[1:] @ left[:-1]) / power, 0.0, 0.95))
    white = left[1:] - phi * left[:-1]
    spectrum = np.abs(np.fft.rfft(white)[1:]) ** 2
    if len(spectrum) < TURNS + 5:
        return None
    top, chance = _line(spectrum)
    if chance > most:
        return None
    period = len(white) / (top + 1)
    radius = _second_order(left)
    wave = np.exp(-2j * np.pi * place / period)
    half = n // 2
    amplitudes = [
        2 * float(np.abs((left[part] * wave[part]).mean()))
        for part in (slice(0, half), slice(half, n))
    ]
    growth = max(
        amplitudes[1] / max(amplitudes[0], 1e-12),
        max(amplitudes) / max(_amplitude(value_T[:start], period * size), 1e-12),
    )
    if _alternations(left, 0.35 * max(amplitudes)) < 2 * TURNS - 2:
        return None  # a single step or fall has a broad spectrum too, but goes up and down once
    one_row = Interval(
        *(float(end ** (1 / size)) for end in (radius.value, radius.low, radius.high))
    )
    return Swing(one_row, period * size, chance, max(amplitudes), growth, start)


def _detrended(value_T: Float) -> tuple[Float, Float]:
    """The rows by number, and the values about a quadratic trend."""
    place = np.arange(len(value_T), dtype=float)
    return place, value_T - np.polyval(np.polyfit(place, value_T, 2), place)


def _amplitude(value_T: Float, period: float) -> float:
    """Amplitude of a line of a given period about a quadratic trend; infinite where not even one
    turn is there.
    """
    if len(value_T) < max(period, 4):
        return math.inf
    place, left = _detrended(value_T)
    return 2 * float(np.abs((left * np.exp(-2j * np.pi * place / period)).mean()))


def onset_of(value_T: Float, period: float) -> int:
    r"""Place the onset of a swing by the profile likelihood of a change point.

    For every row $o$ the series is fitted by a trend and, from $o$ on, $q_1(t-o)\cos\omega t +
    q_2(t-o)\sin\omega t$, q quadratics; the onset is the last row with $n \log S(o)/\min S \le
    3.84$, S the squares left: under white noise the latest that the likelihood leaves open. The
    period is refined with it.

    Source: derived here.
    """
    n = len(value_T)
    place = np.arange(n)
    trend, _ = np.linalg.qr(legvander(2 * np.sqrt(place / max(n - 1, 1)) - 1, _DEGREE))
    left = value_T - trend @ (trend.T @ value_T)
    angle = 2 * np.pi * place / (period * np.linspace(0.92, 1.08, 9)[:, None])
    wave = np.stack([np.cos(angle), np.sin(angle)], axis=1)[:, None]
    # At least a turn and a half before the end: less is no line.
    rows = np.arange(0, max(n - math.ceil(1.5 * period), 1), max(1, n // 400))
    tried = np.array([_squares(left, trend, wave, place - row) for row in rows])
    squares = np.maximum(tried[:, tried.min(axis=0).argmin()], 1e-300)
    # What is 0 at first may begin at any row before: of the rows that fit as well the last.
    worse = n * np.log(squares / squares.min())
    return int(rows[worse <= _OPEN][-1])


def _squares(left: Float, trend: Float, wave: Float, place: Whole) -> Float:
    """Least squares of lines from row 0 on, one a period, beside the trend."""
    n = len(left)
    since = np.maximum(place, 0) / n
    columns = np.stack([place >= 0, since, since**2])[:, None] * wave
    columns -= columns @ trend @ trend.T
    basis, size, _ = np.linalg.svd(
        columns.reshape(len(wave), -1, n).swapaxes(1, 2), full_matrices=False
    )
    share = np.where(size > 1e-12 * size[:, :1], left @ basis, 0.0)
    return np.asarray(((left - np.einsum("pnk,pk->pn", basis, share)) ** 2).sum(axis=1))


def _alternations(left: Float, level: float) -> int:
    """How often a series goes from above a level to below its negative and back."""
    side = (left > level) * 1 - (left < -level)
    side = side[side != 0]
    return int(np.count_nonzero(np.diff(side)))


def _line(spectrum: Float) -> tuple[int, float]:
    """The strongest line of one bin or of three neighbours (a swing that grows is a broad one),
    and its chance in white rows.
    """
    from scipy.special import fdtrc

    count, total = len(spectrum), spectrum.sum()
    best = (0, 1.0)
    for width in (1, 3):
        sums = np.convolve(spectrum, np.ones(width), "valid")[TURNS - 1 :]
        place = int(sums.argmax()) + TURNS - 1
        power = float(sums.max())
        ratio = (power / width) / max((total - power) / (count - width), 1e-300)
        chance = min(1.0, 2 * count * float(fdtrc(2 * width, 2 * (count - width), ratio)))
        if chance < best[1]:
            best = (place + int(spectrum[place : place + width].argmax()), chance)
    return best


def _memory(late_T: Float) -> int:
    """Half of the rows after which the detrended series has forgotten its sign: smoothed or slow
    rows are averaged over so many.

    A line with a period of P rows comes back to 0 after P/4, and keeps eight rows a turn.
    """
    _, left = _detrended(late_T)
    longest = len(late_T) // 3
    forgotten = next((lag for lag in range(1, longest) if (left[lag:] @ left[:-lag]) <= 0), longest)
    return max(forgotten // 2, 1)


def _second_order(left: Float) -> Interval:
    """Spectral radius of a second-order autoregression, with its interval."""
    design = np.column_stack([left[1:-1], left[:-2]])
    solution, *_ = np.linalg.lstsq(design, left[2:], rcond=None)
    rest = left[2:] - design @ solution
    covariance = np.linalg.pinv(design.T @ design) * (rest @ rest) / (len(rest) - 2)
    rng = np.random.default_rng(0)
    draws = np.vstack(
        [solution, rng.multivariate_normal(solution, covariance, size=400, method="svd")]
    )
    half, root = draws[:, 0] / 2, np.sqrt(draws[:, 0].astype(complex) ** 2 / 4 + draws[:, 1])
    radii = np.abs(np.stack([half + root, half - root])).max(axis=0)
    low, high = np.quantile(radii[1:], [0.025, 0.975])
    return Interval(float(radii[0]), float(low), float(high))


_FEWEST_ROWS, _LONGEST = 24, 300
# Chance of as large a profile in white rows, over all periods that are tried.
_CHANCE = 1e-6


@frozen
class DataOrder:
    """A profile that comes round."""

    period: int  # in rows
    profile_P: Float  # deviation of each row of a period from the level
    share: float  # of the scatter about the trend that it explains


def order_of(value_T: Float) -> DataOrder | None:
    r"""Find a period of whole rows whose profile is the same in all quarters.

    $F = \frac{B/(P-1)}{W/(n-P-4)}$ with the scatter B between and W within the phases, after a
    cubic trend; then the coefficient of each quarter of the log on the profile must lie between a
    half and two.
    """
    n = len(value_T)
    if n < _FEWEST_ROWS:
        return None
    place = np.linspace(-1, 1, n)
    left = value_T - np.polyval(np.polyfit(place, value_T, 3), place)
    total = float(left @ left)
    if total <= 1e-18 * n:
        return None
    best: tuple[float, int] = (0.0, 0)
    periods = range(2, min(n // 5, _LONGEST) + 1)
    padded = np.concatenate([left, np.zeros(len(periods) + 1)])
    for period in periods:
        between = _between(padded, n, period)
        ratio = (between / (period - 1)) / max((total - between) / (n - period - 4), 1e-12 * total)
        best = max(best, (ratio, period))
    from scipy.special import fdtrc

    ratio, period = best
    if float(fdtrc(period - 1, n - period - 4, ratio)) * len(periods) > _CHANCE:
        return None
    phase = np.arange(n) % period
    profile = np.bincount(phase, weights=left) / np.bincount(phase)
    fitted = profile[phase]
    parts = [
        left[q] @ fitted[q] / np.maximum(fitted[q] @ fitted[q], 1e-300)
        for q in np.array_split(np.arange(n), 4)
    ]
    if min(parts) < 0.5 or max(parts) > 2.0:
        return None
    return DataOrder(period, profile, _between(padded, n, period) / total)


def level_of(signal: Signal) -> tuple[Signal, DataOrder | None]:
    """Return the metric with the periodic effect of the data order removed, and that effect."""
    order = order_of(signal.value_T)
    if order is None:
        return signal, None
    value = signal.value_T - order.profile_P[np.arange(len(signal)) % order.period]
    if signal.bounds is not None:
        value = np.clip(value, *signal.bounds)
    return signal_of(signal.column, signal.step_T, value, bounds=signal.bounds), order


@once
def reward_level(evidence: Evidence) -> tuple[Signal, DataOrder | None]:
    """Return the reward without the order of its data, and the order; worked out once."""
    assert evidence.reward is not None
    return level_of(evidence.reward)


def _between(padded: Float, n: int, period: int) -> float:
    """Sum of squares of the means of the phases, of a series and the zeros behind it."""
    turns, rest = divmod(n, period)
    sum_P = np.add.reduce(padded[: (turns + 1) * period].reshape(-1, period))
    more, less = sum_P[:rest], sum_P[rest:]  # of phases that come once more than the others
    return float(more.dot(more) / (turns + 1) + less.dot(less) / turns)
