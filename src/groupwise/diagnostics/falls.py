"""The fall of a column, made once for every check and every text: whether there is one, since
when, from where to where; and a swing of it at one frequency: whether slow noise explains it,
since when it is there, whether it grows.

The onset of a swing is judged from a line that is 0 up to a row and quadratic in time from there
on, beside a smooth trend. A metric whose period drifts is followed only as far as one frequency
does. What a swing means for a run is not known here.
"""

import math
from collections.abc import Mapping

import numpy as np
from numpy.polynomial.legendre import legvander

from groupwise.arrays import (
    Ends,
    Float,
    Whole,
    mean_of,
    median,
    moving_mean,
    row_after,
    rows_before,
)
from groupwise.diagnostics.judgement import Fact, Sign
from groupwise.diagnostics.signals import (
    FALSE_ALARM,
    FALSE_WARNING,
    FEWEST_ROWS,
    Evidence,
    NoisyMetric,
    alarm,
    blocks,
    both_ends,
    floor_of,
    just_before,
    long_run_deviation,
    once,
    rare_event_factors,
    reward_floor,
    signal_of,
    signs_about,
)
from groupwise.intervals import Interval
from groupwise.plain import frozen

FEWEST_SWUNG = 16
# The first autocorrelations of a row tell a swing only if it comes round three times.
TURNS = 3
# Degree of the trend beside the line, in the square root of time: early rows change fastest.
_DEGREE = 4


@frozen
class Swing:
    """A line in the late rows."""

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
    if n < (FEWEST_SWUNG if size == 1 else 12):
        return None
    place, left = _detrended(late)
    power = left @ left
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
    return Swing(period * size, chance, max(amplitudes), growth, start)


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
    side = left[np.abs(left) > level] > 0
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
        power = sums.max()
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


_FEWEST_ROWS, _LONGEST = 24, 300
# Chance of as large a profile in white rows, over all periods that are tried.
_CHANCE = 1e-6
# Share of the power that one sine leaves; a saw-tooth, of prompts by difficulty, leaves 0.39.
_NO_SINE = 0.25


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
    if fdtrc(period - 1, n - period - 4, ratio) * len(periods) > _CHANCE:
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


def is_wave(order: DataOrder) -> bool:
    """Return whether a profile is one sine, as batches in random order make none: by Fisher's
    test (1929) of the largest of m shares of the power.
    """
    power = np.abs(np.fft.rfft(order.profile_P)[1:]) ** 2
    left, others = 1 - float(power.max() / power.sum()), len(power) - 1
    return left < _NO_SINE and (others + 1) * left**others < FALSE_ALARM


def level_of(signal: NoisyMetric) -> tuple[NoisyMetric, DataOrder | None]:
    """Return the metric with the periodic effect of the data order removed, and that effect."""
    order = order_of(signal.value_T)
    if order is None:
        return signal, None
    value = signal.value_T - order.profile_P[np.arange(len(signal)) % order.period]
    if signal.bounds:
        value = np.clip(value, *signal.bounds)
    return signal_of(signal.column, signal.step_T, value, bounds=signal.bounds), order


@once
def reward_level(evidence: Evidence) -> tuple[NoisyMetric, DataOrder | None]:
    """Return the reward without the order of its data, and the order; worked out once."""
    assert evidence.reward is not None
    return level_of(evidence.reward)


def _between(padded: Float, n: int, period: int) -> float:
    """Sum of squares of the means of the phases, of a series and the zeros behind it."""
    turns, rest = divmod(n, period)
    sum_P = np.add.reduce(padded[: (turns + 1) * period].reshape(-1, period))
    more, less = sum_P[:rest], sum_P[rest:]  # of phases that come once more than the others
    return float(more.dot(more) / (turns + 1) + less.dot(less) / turns)


HELD_OUT = "held-out reward"
# Rows that hold a tenth of the level or less, the rows before them that make it, the scatters of a
# row between both, and the chance of such rows by those that the log had before.
LOST_ROWS, LEFT, LEVEL_ROWS, CLEARLY, BY_CHANCE = 3, 0.1, 20, 5.0, 0.005
# The best rows, the share of their level that each of the last rows lacks, and how many more of
# their answers are truncated.
BEST_ROWS, LACKS, MORE_CUT = 5, 0.2, 0.3
# Share of the height whose loss, beyond its noise, is a decline.
DECLINED = 0.12
# Standard errors of a held-out reward that rises beyond doubt.
_RISES = 3.0
# Rows for which a fall of a run that goes on is watched before it alarms: dips of healthy runs last
# a few; a decline takes twice as many.
PATIENCE = 12
# The median size of a standard normal; standard deviations beyond which a row is no noise but a dip
# that came back, and rounds in which such rows are left out.
_MEDIAN, _FAR, _ROUNDS = 0.6745, 3.5, 3
# The largest first autocorrelation of the noise: beyond it slow noise is not told from a trend.
LONGEST_MEMORY = 0.95
# Rows before or since a fall that tell its noise, about a trend of this degree in the root of
# time.
FEWEST, DEGREE = 16, 4
# Rows that tell slow noise from a fall, and how many more tries stretches that overlap are, by
# simulation.
TELLING_ROWS, OVERLAP = 60, 10.0
HALF = 0.5
# Chance in health of a row below half of the height. Rows are averaged until half of the height is
# three standard deviations.
USUAL = 0.2
_CLEAR = 6.0
# A height is the lower 97.5 % limit of a mean of neighbouring blocks, so that a lucky row makes
# none.
_LUCK = 1.96
# What shows that a policy answers otherwise.
ANSWERS = {"entropy", "completion_length", "truncated_share"}
# Moves of a logarithm that another policy makes, and that other prompts do; of what varies less.
_MUCH, _LITTLE = 0.2, 0.05
# Units of the last printed digit that a fall must have.
_UNITS = 2.5
# Rows of the held-out reward on each side of a drop.
_NEAR = 4
# Nats a token at which the likeliest token has some 98 %.
CERTAIN = 0.1
# Rows of a fall that came by and by, and twice the log-likelihood by which it must be likelier than
# a step: chance is below 1 %.
_SLOPE, _BETTER = 4, 12.0
# Twice the log-likelihood by which a step must be likelier than a slope: somewhat, and by 95 % of a
# chi-square with one degree of freedom.
_RATHER, _OPEN = 1.0, 3.84
# Rows on either side of a fall that tell a slope from a step: all pairs of them are tried.
_WINDOW = 60


@frozen
class Fall:
    """A fall from a height."""

    row: int  # of the signal, where it began
    height: float  # level before
    end: float  # level since, or of the lowest stretch where it recovered
    lost: Interval  # share of the height lost, with its interval
    lasts: bool  # whether it holds to the last row


@frozen
class LevelChange:
    """From where to where a column went, and when: the one pair of levels that every text of it
    shows.
    """

    first: int  # step at which it began
    last: int  # step from which it stands
    before: float  # mean of the rows before
    after: float  # mean of the last rows since
    since: int  # the step of the first of these

    @property
    def where(self) -> str:
        """The steps of it, in words."""
        return (
            f"at step {self.first:,}"
            if self.first == self.last
            else f"at steps {self.first:,}-{self.last:,}"
        )

    @property
    def ends(self) -> Ends:
        """The level before and the level after."""
        return self.before, self.after

    def share_lost(self, floor: float, share: Interval) -> Interval:
        """The share of the height that was lost, as surely as it is known; below the level that
        counts as nothing no more than all is.
        """
        lost = (self.before - self.after) / (self.before - floor) if self.before > floor else 1.0
        ends = [lost + end - share.value for end in (share.value, share.low, share.high)]
        return Interval(*np.clip(ends, 0.0, 1.0).tolist())


def change_between(
    level: NoisyMetric, early: slice, late: slice, rows: tuple[int, int]
) -> LevelChange:
    """Return the change between the means of two stretches, of which the second is the last."""
    first, last = (level.step_at(row) for row in rows)
    since = int(level.step_T[late][0])
    return LevelChange(first, last, level.level(early), level.level(late), since)


@once
def falls_of(evidence: Evidence) -> Mapping[str, tuple[NoisyMetric, Fall | None]]:
    """Return the reward, the held-out reward and each reward function that is no penalty, without
    what comes round with the order of its data, and its last fall.
    """
    if evidence.reward is None:
        return {}
    level, floor = reward_level(evidence)[0], reward_floor(evidence)
    fall = find_fall(level, floor) or _stopped(level, floor)
    if evidence.ended and not (fall and fall.lasts):
        fall = _ends_in(evidence, level, floor) or fall
    falls = {"reward": (level, fall)}
    held_out = {} if evidence.held_out is None else {HELD_OUT: evidence.held_out}
    for name, signal in {**held_out, **evidence.earned}.items():
        if name not in falls:
            level = level_of(signal)[0]
            falls[name] = level, find_fall(level, floor_of(level))
    return falls


def level_changes(evidence: Evidence) -> Mapping[str, LevelChange]:
    """Return from where to where each of these went that fell for good; the reward also where it
    declined, or where a running run has just lost it.
    """
    changes = {
        name: change_of_fall(level, fall)
        for name, (level, fall) in falls_of(evidence).items()
        if fall and fall.lasts
    }
    decline = decline_of(evidence)
    just_lost = lost_rows(evidence) or (None if decline is None else decline.change)
    return changes if just_lost is None else {"reward": just_lost, **changes}


def column_change(evidence: Evidence, name: str, signal: NoisyMetric) -> LevelChange:
    """Return the change of a column beside the reward: its fall, or else that between its first
    and its last sixth.
    """
    early, late = sixths(signal)
    return level_changes(evidence).get(name, change_between(signal, early, late, (0, -1)))


def end_rows(rows: int) -> int:
    """Return how many rows the first and the last level of a column average."""
    return max(1, min(max(3, rows // 20), rows // 5))


def end_levels(signal: NoisyMetric) -> Ends:
    """Return the level of a column in its first rows, and now."""
    few = end_rows(len(signal))
    return signal.level(slice(0, few)), signal.level(slice(-few, None))


def sixths(signal: NoisyMetric) -> tuple[slice, slice]:
    """Return the first and the last sixth of the rows, four rows at least."""
    return both_ends(signal, max(4, len(signal) // 6))


def change_of_fall(level: NoisyMetric, fall: Fall) -> LevelChange:
    """Return from where to where a fall that lasts went: a tenth of the rows on either side of
    its slope, of those before only what stands where the reward fell from.

    It begins behind the last row that is as high but for scatter, as far as noise allows.
    """
    few = max(8, len(level) // 10)
    (begin, end), (latest, _) = (span_of_fall(level, fall.row, noise=most) for most in (0.0, _OPEN))
    past = signal_of(level.column, level.step_T[:begin], level.value_T[:begin])
    apart = np.abs(past.value_T - just_before(level, begin)) > _FAR * past.scatter
    apart = np.convolve(apart, np.ones(LOST_ROWS))[: len(apart)] >= LOST_ROWS  # for good
    before = slice(max(0, begin - few, row_after(apart[:-LOST_ROWS])), max(begin, 1))
    late = slice(min(max(end, len(level) - few), len(level) - LOST_ROWS), None)
    stands = level.value_T[begin:latest] > level.level(before) - level.scatter
    return change_between(level, before, late, (begin + row_after(stands), end))


@once
def signs_of_fall(evidence: Evidence) -> tuple[Sign, ...]:
    """Return the signs about the first row of the fall of the reward and about its alarm, the
    earliest of each signal first.
    """
    change = level_changes(evidence).get("reward")
    fall = fall_of(evidence)
    if change is None:
        return ()
    signs = signs_about(evidence, change.first, end=change.last)
    if fall and fall.lasts:
        onset = reward_level(evidence)[0].step_at(fall.row)
        signs = (*signs_about(evidence, onset), *signs)
    return tuple(sorted(signs, key=lambda sign: sign.step))


@once
def lost_rows(evidence: Evidence) -> LevelChange | None:
    """Return the loss of a reward in its last three rows, too few for the test of a fall: with
    answers that are half as long, or half of them truncated; of a run that goes on also where a
    tenth is left, too many rows for a batch without luck.
    """
    reward = evidence.reward
    if reward is None or len(reward) < FEWEST_ROWS:
        return None
    begin = _with_answers(evidence, reward)
    if begin is None and not evidence.ended:
        begin = _nearly_all(evidence, reward)
    if begin is None:
        return None
    before, late = rows_before(begin, LEVEL_ROWS), slice(begin, None)
    change, loss = change_between(reward, before, late, (begin, begin)), loss_of(evidence)
    # What stood low just before had slid there: it began with the whole loss.
    return loss.change if loss and change.before < sum(loss.change.ends) / 2 else change


def _with_answers(evidence: Evidence, reward: NoisyMetric) -> int | None:
    """The row since which a reward is lower than ever since it was there, with other answers."""
    height, late = reward.value_T - reward_floor(evidence), len(reward) - LOST_ROWS
    means, now = moving_mean(height[:late], BEST_ROWS), mean_of(height[late:])
    level, best = float(means.max()), int(means.argmax())
    error = reward.scatter * np.sqrt(1 / BEST_ROWS + 1 / LOST_ROWS)
    if height[late:].max() > (1 - LACKS) * level or level - now <= CLEARLY * error:
        return None
    begin, lowest = lowest_since(height[:late], (level + now) / 2)
    changed = _answers_changed(evidence, reward, slice(best, best + BEST_ROWS))
    return begin if now < lowest and changed else None


def lowest_since(height_T: Float, level: float) -> tuple[int, float]:
    """Return the row behind the last above a level, and the lowest three rows since the first:
    slow noise was as low before.
    """
    begin, first = row_after(height_T > level), int((height_T > level).argmax())
    return begin, float(moving_mean(height_T[first:begin], LOST_ROWS).min(initial=np.inf))


def _answers_changed(evidence: Evidence, reward: NoisyMetric, best: slice) -> bool:
    """Whether the last answers are half as long as those of the best rows, or half of them are
    truncated, many more than then.
    """
    length, cut = map(evidence.quantity, ("completion_length", "truncated_share"))
    if length:
        value = np.interp(reward.step_T, length.step_T, length.value_T)
        before, now = median(value[best]), median(value[-LOST_ROWS:])
        if now < HALF * before and before - now > CLEARLY * length.scatter:
            return True
    if cut is None:
        return False
    value = np.interp(reward.step_T, cut.step_T, cut.value_T)
    more = median(value[-LOST_ROWS:]) - median(value[best])
    return more > MORE_CUT and bool(value[-1] >= HALF)


def _nearly_all(evidence: Evidence, reward: NoisyMetric) -> int | None:
    """The row since which a reward holds a tenth of its level or less."""
    height = reward.value_T - reward_floor(evidence)
    begin = row_after(height > LEFT * _usual(height[:-LOST_ROWS]))
    lost = len(height) - begin
    if min(begin, lost) < LOST_ROWS:
        return None
    level = _usual(height[:begin])
    # Rows before the level was first reached are no dips from it.
    high = np.flatnonzero(height[:begin] > LEFT * level)
    dips = np.diff(high, prepend=high[0] - 1, append=begin) - 1
    low = (dips.sum() + 0.5) / (begin - high[0] + 1)
    by_chance = len(height) * low ** max(LOST_ROWS, lost - dips.max()) > BY_CHANCE
    if by_chance or level - height[begin:].max() < CLEARLY * reward.scatter:
        return None
    return begin


def _usual(height_T: Float) -> float:
    """The level of the last rows, as long as a quarter of them hold it."""
    return float(np.quantile(height_T[-LEVEL_ROWS:], 0.75))


@frozen
class Constant:
    """A stretch of rows that are all one number, to the end of the log."""

    row: int  # its first
    value: float  # the number
    before: float  # mean of the rows before
    abrupt: bool  # whether the rows just before it still stood where they used to


def constant_tail(signal: NoisyMetric) -> Constant | None:
    """Find the stretch of equal rows at the end of a log."""
    value = signal.value_T
    same = np.abs(value - value[-1]) <= 1e-9 * max(1.0, float(np.abs(value).max()))
    row = row_after(~same)
    usual = max(0.1, 2 * (same[:row].sum() + 1) / (row + 2))
    # A number that stood there in a quarter of the rows before is nothing new.
    if (
        usual > 0.5
        or row < 3
        or alarm(rare_event_factors(same, usual), rate=FALSE_ALARM) is None
        or len(value) - row < 3
    ):
        return None
    few = max(2, min(5, row // 4))
    level = mean_of(value[max(0, row - 4 * few) : row - few] if row > 2 * few else value[:row])
    # Rows that are window means mix both states once: the row just before the stretch is left out.
    last = mean_of(value[row - 1 - few : row - 1] if row > few else value[:row])
    fell = level - float(value[-1])
    if abs(fell) < _UNITS * 2 * signal.resolution:
        return None
    # What moved away from it, or within its noise, has not come by and by.
    noise = math.sqrt(mean_of(np.diff(value[:row]) ** 2) / few)
    abrupt = bool((level - last) * np.sign(fell) <= max(0.5 * abs(fell), noise))
    # From a level that was one: the last rows of a reward that is dying anyway, or has all but
    # arrived, are no failure of the verifier.
    smooth = moving_mean(value, few)
    farthest = float(np.max((smooth - value[-1]) * np.sign(fell)))
    abrupt &= abs(fell) > 0.3 * farthest
    return Constant(row, float(value[-1]), level, abrupt)


def _stopped(level: NoisyMetric, floor: float) -> Fall | None:
    """A reward that has been nothing in every row since a step: fewer rows show that than a fall
    to a level of noise.
    """
    tail = constant_tail(level)
    if tail is None or tail.value > floor + 1e-9 or tail.before <= tail.value:
        return None
    return Fall(tail.row, tail.before, tail.value, Interval(1.0, 1.0, 1.0), lasts=True)


def late_drop(level: NoisyMetric, floor: float) -> tuple[int, Ends] | None:
    """Return the row from which the last rows, three or more, stand a third of the height lower,
    lower than ever since it was reached, and both levels: too few for a fall, and no plateau.
    """
    few = max(FEWEST_ROWS, len(level) // 8)
    # The usual row just before is the height: a few lucky rows make none.
    height, now = median(level.value_T[-LOST_ROWS - few : -LOST_ROWS]), level.level_from(-LOST_ROWS)
    lost = height - now
    if not lost > max((height - floor) / 3, CLEARLY * level.scatter * np.sqrt(2 / LOST_ROWS)):
        return None
    begin, lowest = lowest_since(level.value_T, height - lost / 2)
    late = level.value_T[begin:]
    return (begin, (height, now)) if len(late) >= LOST_ROWS and late.mean() < lowest else None


def _ends_in(evidence: Evidence, level: NoisyMetric, floor: float) -> Fall | None:
    """The fall in which a run ended, of too few rows for the usual test: five or more, the lowest
    of the log, below half of the height and farther down than slow noise reaches.

    Where a dip half as deep came back this one may as well. What fell at once and stands above
    nothing, while no other signal moved, may be a stage of harder prompts.
    """
    drop = late_drop(level, floor) if len(level) > FEWEST else None
    row, (height, now) = drop or (0, (math.nan, math.nan))
    if not FEWEST <= row <= len(level) - BEST_ROWS or now - floor > HALF * (height - floor):
        return None
    noise = slow_noise(level.value_T[:row], np.sqrt(np.arange(row)), DEGREE)[0]
    error = noise / math.sqrt(LOST_ROWS)
    came_back = lowest_since(level.value_T[:row], height)[1] < (height + now) / 2
    if height - now < CLEARLY * error or came_back:
        return None
    nothing = now - floor <= LEFT * (height - floor) or by_and_by(level, row)
    if not nothing and not signs_about(evidence, level.step_at(row)):
        return None
    return Fall(row, height, now, _share_lost(height, now, floor, _LUCK * error), lasts=True)


def fall_of(evidence: Evidence) -> Fall | None:
    """Return the fall of the training reward; searched for once."""
    return falls_of(evidence).get("reward", (None, None))[1]


def row_size(signal: NoisyMetric, floor: float) -> int | None:
    """Return how many rows to average so that noise hides no half of the height; None where even
    an eighth of the log does not do.
    """
    few = max(3, len(signal) // 15)
    if len(signal) < FEWEST_ROWS:
        return None
    smooth = moving_mean(signal.value_T, few)
    span = float(smooth.max()) - _LUCK * signal.scatter / np.sqrt(few) - floor
    if span <= 0:
        return None
    size = max(1, int(np.ceil((_CLEAR * signal.scatter / span) ** 2)))
    return size if len(signal) // size >= FEWEST_ROWS else None


def heights(value_T: Float, deviation: float) -> Float:
    """Return the height reached before each row: the largest lower limit of a mean of
    neighbouring rows.
    """
    few = max(3, len(value_T) // 15)
    out = np.full(len(value_T), -np.inf)
    if len(value_T) <= few:
        return out
    smooth = moving_mean(value_T, few) - _LUCK * deviation / np.sqrt(few)
    out[few:] = np.maximum.accumulate(smooth)[: len(value_T) - few]
    return out


def find_fall(signal: NoisyMetric, floor: float) -> Fall | None:
    """Find the last fall below half of the height."""
    size = row_size(signal, floor)
    if size is None:
        return None
    value, first = blocks(signal, size)
    deviation = signal.scatter / np.sqrt(size)
    height = heights(value, deviation)
    usable = (height - floor >= _CLEAR * deviation) & (height > floor)
    below = value < floor + HALF * (np.where(usable, height, np.inf) - floor)
    factors = np.where(usable, rare_event_factors(below, USUAL), 0.0)
    onset_alarm = alarm(factors, rate=FALSE_ALARM)
    if onset_alarm is None:
        return None
    start = onset_alarm.onset
    after = value[start:]
    # Where the evidence has fallen below the threshold again, or the last rows stand high again, it
    # was made good: a twentieth of all rows, or half of those since.
    tail = below[-max(2, min(len(value) // 20, len(after) // 2)) :]
    lasts = onset_alarm.lasts and mean_of(tail) >= HALF
    top = float(height[start] if np.isfinite(height[start]) else height.max())
    end = mean_of(after) if lasts else mean_of(after[below[start:]])
    if signal.low < 0 and top - end < 2 * _CLEAR * deviation / np.sqrt(max(3, len(after))):
        return None  # where 0 is no floor slow noise reaches it too
    half = _LUCK * deviation / np.sqrt(len(after))
    lost = _share_lost(top, end, floor, half)
    return Fall(_closer(signal, int(first[start]), size, (top + end) / 2), top, end, lost, lasts)


def _share_lost(top: float, end: float, floor: float, half: float) -> Interval:
    """The share of a height that was lost, with the half of the interval of a level; below the
    level that counts as nothing no more than all is.
    """
    share = np.array([top - end, top - end - half, top - end + half]) / (top - floor)
    return Interval(*np.clip(share, 0.0, 1.0).tolist())


def _closer(signal: NoisyMetric, row: int, size: int, middle: float) -> int:
    """Place an onset within its block, or before it: back over the rows that were below the
    middle already.
    """
    if size > 1:
        low, high = max(0, row - size), min(len(signal), row + size)
        gain = np.cumsum(signal.value_T[low:high] - middle)
        row = low + int(np.argmax(gain)) + 1 if gain.max() > 0 else low
        return min(row, len(signal) - 1)
    while (
        row > 1
        and signal.value_T[row - 1] < middle
        and signal.value_T[row - 2 : row].mean() < middle
    ):
        row -= 1
    return row


def by_and_by(signal: NoisyMetric, row: int) -> bool:
    """Say whether a fall that has reached a row clearly took many: a slope describes it better
    than a step does, about its middle.
    """
    return _for_slope(signal, sum(span_of_fall(signal, row)) // 2) > _BETTER


def at_once(signal: NoisyMetric, row: int, *, clearly: bool = True) -> bool:
    """Say whether a fall came from one row to the next, clearly or rather: a step describes it
    better than a slope does.
    """
    return _for_slope(signal, row) < -(_OPEN if clearly else _RATHER)


def _for_slope(signal: NoisyMetric, row: int) -> float:
    """Twice the log-likelihood of a slope about a row less that of a step; 0 where nothing can
    be told.
    """
    reach = min(max(8, len(signal) // 4), _WINDOW)
    first_E, last_E, explained_E = _ramps(signal.value_T[max(0, row - reach) : row + reach])
    slope_E = last_E - first_E >= _SLOPE
    if not slope_E.any() or signal.scatter <= 0:
        return 0.0
    step = float(explained_E[first_E == last_E].max())
    return (float(explained_E[slope_E].max()) - step) / signal.scatter**2


def _ramps(value_T: Float) -> tuple[Whole, Whole, Float]:
    """Squares that a higher and a lower level explain, with a slope from one row to another;
    from a row to itself it is a step.
    """
    first_E, last_E = np.triu_indices(len(value_T))
    first_E, last_E = first_E[first_E > 0], last_E[first_E > 0]
    rows_E, after_E = last_E - first_E + 1, len(value_T) - 1 - last_E
    # A slope is the mean of the steps at its rows.
    step_T = np.cumsum((value_T - value_T.mean())[::-1])[::-1]
    sum_T = np.concatenate([[0.0], np.cumsum(step_T)])
    shape_E = (
        (rows_E + 1) * (2 * rows_E + 1) / (6 * rows_E)
        + after_E
        - ((rows_E + 1) / 2 + after_E) ** 2 / len(value_T)
    )
    return (
        first_E,
        last_E,
        np.minimum((sum_T[last_E + 1] - sum_T[first_E]) / rows_E, 0.0) ** 2 / shape_E,
    )


def span_of_fall(signal: NoisyMetric, row: int, *, noise: float = 0.0) -> tuple[int, int]:
    """Return the first and the last row of a fall that has reached a row: of the slope that
    describes the log since its height best, or of the latest that noise does not rule out.
    """
    few = max(5, len(signal) // 15)
    levels = moving_mean(signal.value_T[: max(row, few)], few)
    low, high = int(levels.argmax()), len(signal)
    if high - low < _SLOPE:
        return row, row
    while True:  # in blocks of rows, then closer
        size = int(np.ceil((high - low) / (2 * _WINDOW)))
        means = signal.value_T[low : high - (high - low) % size].reshape(-1, size).mean(axis=1)
        first_E, last_E, explained_E = _ramps(means)
        worse_E = (explained_E.max() - explained_E) * size
        best = int(np.lexsort((worse_E, -first_E, worse_E > noise * signal.scatter**2))[0])
        begin, end = low + size * int(first_E[best]), low + size * int(last_E[best] + 1) - 1
        near = max(low, begin - _WINDOW // 6 * size), min(high, end + 1 + _WINDOW // 6 * size)
        if size == 1 or near[1] - near[0] > (high - low) / 2:
            return begin, end
        low, high = near


def behaviour_change(evidence: Evidence, step: float) -> Fact | None:
    """Say whether entropy and length went on as before over a step.

    The measure is how much the same means of neighbouring stretches moved at any earlier row, and
    the noise of those rows, so that slow drift is no change. A policy that is nearly certain of
    each token is not another one for being more so: what entropy is left below a tenth of a nat
    does not count.
    """
    changes = []
    for name in ANSWERS:
        signal = evidence.quantity(name)
        if signal is None or len(signal) < FEWEST_ROWS:
            continue
        few, row = max(3, len(signal) // 12), signal.at(step)
        if row < few or len(signal) - row < 2:
            continue
        least = CERTAIN if name == "entropy" else 1e-9
        value = (
            signal.value_T
            if name == "truncated_share"
            else np.log(np.maximum(signal.value_T, least))
        )
        change = abs(mean_of(value[row : row + few]) - mean_of(value[row - few : row]))
        error = _LUCK * long_run_deviation(value[:row]) * math.sqrt(2 / few)
        means = moving_mean(value[:row], few)
        moved = np.abs(
            means[few:] - means[:-few]
        )  # between neighbouring stretches, at every row that has both
        usual = max(error, moved.max(initial=0.0))
        changes.append((change / max(_MUCH, usual), change / max(_LITTLE, usual)))
    if not changes:
        return None
    much, little = map(max, zip(*changes, strict=True))
    if much > 1.3:
        return Fact.BEHAVIOUR_CHANGED
    return Fact.BEHAVIOUR_STEPPED if little > 2 else Fact.BEHAVIOUR_UNCHANGED


def held_out_at(
    evidence: Evidence, step: float, change: float, *, ever: bool = False
) -> Fact | None:
    """Say whether the held-out reward dropped at a step, half as much as the training reward or
    more.
    """
    held = evidence.held_out
    if held is None:
        return None
    row = held.at(step)
    before = rows_before(row, _NEAR)
    after = slice(max(row, len(held) - _NEAR) if ever else row, None if ever else row + _NEAR)
    if row < 2 or len(held) - row < 2:
        return None
    held_change = held.change(before, after)
    if held_change.low > change / 2:
        # What is down already can drop no further.
        return Fact.HELD_OUT_STAYED if held.level(before) - floor_of(held) > -change / 2 else None
    return Fact.HELD_OUT_DROPPED if held_change.high < 0 else None


@frozen
class Decline:
    """A reward that ends significantly below its height."""

    best: slice  # the rows of its height
    begin: int  # its first row
    middle: int  # the row at which it is halfway
    end: int  # the row from which it stands
    change: LevelChange
    after: Interval  # the level of its last rows


def decline_of(evidence: Evidence) -> Decline | None:
    """Return the decline of the reward, or None where it stands, or goes on and may come back."""
    loss = loss_of(evidence)
    waits = (
        loss and not evidence.ended and len(reward_level(evidence)[0]) - loss.middle < 2 * PATIENCE
    )
    return None if waits else loss


@once
def loss_of(evidence: Evidence) -> Decline | None:
    """Return where the reward ends significantly below its height, for however few rows; None
    where it does not.
    """
    from scipy.special import ndtri, stdtrit

    if evidence.reward is None:
        return None
    reward, floor = reward_level(evidence)[0], reward_floor(evidence)
    n = len(reward)
    few = max(5, n // 8)
    if n < 4 * few:
        return None
    levels = moving_mean(reward.value_T, few)[: n - 2 * few + 1]
    best = int(levels.argmax())
    peak, late = slice(best, best + few), slice(n - few, n)
    if median(reward.value_T[peak]) <= floor:
        return None  # a lucky row amid rows of nothing is no height
    lost = reward.change(peak, late)
    error = (lost.high - lost.low) / (2 * 1.96)
    height = levels[best]
    # The height is the largest of some n/few independent means: a Bonferroni correction for having
    # chosen it. Of a run that goes on the last rows are looked at as often.
    chance, looks = FALSE_WARNING * few / n, 1 if evidence.ended else few / n
    limit = -ndtri(chance * looks)
    if (
        height <= floor
        or not lost.value < 0
        or -lost.value < limit * error
        or -lost.value < DECLINED * (height - floor)
    ):
        return None
    onset = best + int(np.argmax(np.cumsum(reward.value_T[best:] - (height + lost.value / 2)))) + 1
    onset = min(onset, n - 1)
    begin, end = span_of_fall(reward, onset)
    if n >= TELLING_ROWS:
        time = np.sqrt(np.arange(n))
        noise, rows = max(
            slow_noise(reward.value_T[side], time[side], DEGREE)
            for side in (slice(0, begin), slice(begin, n))
            if len(time[side]) >= FEWEST
        )
        if lost.value > stdtrit(rows, chance / OVERLAP) * noise * np.sqrt(2 / few):
            return None
    # What has regained three quarters of what it lost falls no more; where the held-out reward
    # rises the prompts of training get harder, unless the verifier broke at once.
    since = moving_mean(reward.value_T[best:], few)
    regained = since[-1] - since.min()
    climbs = since[since.argmin() :].max() - since[-1] < regained / 2
    sudden = at_once(reward, onset)
    back = climbs and regained > max(-(1 if sudden else 3) * lost.value, limit * error)
    if back or (not sudden and held_out_rose(evidence, reward.step_at(begin)) is not None):
        return None
    change = change_between(reward, peak, late, (begin, end))
    return Decline(peak, begin, onset, end, change, reward.mean(late))


def slow_noise(value_T: Float, place_T: Float, degree: int) -> tuple[float, float]:
    r"""Return the noise of a row and the number of independent rows, about a trend of a degree:
    a first-order autoregression.

    $\sigma\sqrt{(1+\rho)/(1-\rho)}$ and $(n-k)(1-\rho)/(1+\rho)$, with $\rho$ freed of its bias
    about k fitted numbers, $(k+(k+2)\rho)/n$: about a mean Kendall's $(1+3\rho)/n$.
    """
    n, fitted, kept = len(value_T), degree + 1, np.ones(len(value_T), dtype=bool)
    for _ in range(_ROUNDS):
        left = value_T - np.polyval(np.polyfit(place_T[kept], value_T[kept], degree), place_T)
        kept = np.abs(left) <= _FAR * median(np.abs(left[kept])) / _MEDIAN
    both, power = kept[1:] & kept[:-1], mean_of(left[kept] ** 2)
    product = left[1:] * left[:-1]
    memory = max(mean_of(product[both]) / max(power, 1e-300), 0.0) if both.any() else 0.0
    memory = min(memory + (fitted + (fitted + 2) * memory) / n, LONGEST_MEMORY)
    slow = (1 + memory) / (1 - memory)
    return math.sqrt(power * n / (n - fitted) * slow), max((n - fitted) / slow, 1.0)


def held_out_rose(evidence: Evidence, step: int, *, late_gain: float = 1.0) -> Ends | None:
    """Return the levels between which the held-out reward rose beyond doubt since a step, with so
    many standard errors of it in the second half; None where it did not.
    """
    held = evidence.held_out
    row = 0 if held is None else held.at(step)
    if held is None or (few := (len(held) - row) // 4) < 2:
        return None
    begin = row - few if row >= few else row
    middle = (begin + len(held) - few) // 2
    early, between, late = (slice(start, start + few) for start in (begin, middle, len(held) - few))
    if held.score(early, late) < _RISES or held.score(between, late) < late_gain:
        return None
    return held.level(early), held.level(late)


def settled(evidence: Evidence, signal: NoisyMetric, fall: Fall) -> bool:
    """Return whether a fall is there to stay as far as anybody can tell: of a run that goes on,
    once dips of healthy runs are over.
    """
    return fall.lasts and (evidence.ended or len(signal) - fall.row >= PATIENCE)
