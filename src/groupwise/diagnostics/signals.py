r"""A run as the checks see it: metrics by quantity, their noise, changes between stretches with
intervals, and which of them moved about a change.

The noise of a stretch's mean comes from the rows themselves, at whatever scale it is largest: the
mean of L rows has variance $\max_L L\,v_L/m$ over m rows, $v_L$ from second differences of block
means, by the median. That covers window means, smoothed exports and slow noise alike; a trend drops
out, and a jump touches few differences.

About a change a signal is held against its own rows before it and against how far it moved there;
what it did later is no yardstick. Nothing is judged here.

A factor $f_t \ge 0$ with $E[f_t \mid \text{past}] \le 1$ as long as nothing changed is a fair bet
against that. The product of the factors from row $j$ on is a supermartingale, and so is the mixture
over all starts and over several bets. What a factor bets on is the caller's; this module knows no
metric.
"""

import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from typing import Any, TypeVar

import numpy as np
import polars as pl

from groupwise.arrays import (
    Ends,
    Flags,
    Float,
    Whole,
    floats,
    mean_of,
    mean_ranks,
    median,
    moving_mean,
    rows_before,
)
from groupwise.diagnostics.judgement import Sign
from groupwise.edge.mode import defaults_of
from groupwise.errors import MissingMetricError
from groupwise.files import forms, table_rows
from groupwise.intervals import Interval, percent
from groupwise.parsing import LARGEST_VALUE, JsonObject
from groupwise.plain import frozen
from groupwise.record.run import RunRecord
from groupwise.record.table import TELLING, zero_rows
from groupwise.series.metric import (
    GroupEvidence,
    MetricSeries,
    group_evidence,
    metric_series,
    rollout_rewards,
)
from groupwise.wording import clean, count, short


def change_evidence(log_factor_TK: Float) -> Float:
    r"""Logarithm of the e-process of a change at an unknown row, by one bet or the mean of several.

    $M_{tk} = (M_{t-1,k} + 1/n) f_{tk}$, $E_t = \frac1K \sum_k M_{tk} + (n-t)/n$.

    Source: Ville (1939); the mixture over starts as in Shin, Ramdas and Rinaldo (2024),
    e-detectors; the horizon n is ours.
    """
    n = len(log_factor_TK)
    if not n:
        return np.empty(0)
    factors = floats(log_factor_TK).reshape(n, -1)
    if np.isneginf(factors).any():
        running = _row_by_row(factors)
    else:
        # M_t = (1/n) sum_j exp(S_t - S_{j-1}) with S the sums of the log factors: one pass for all
        # rows.
        total = np.cumsum(factors, axis=0)
        before = np.vstack([np.zeros(factors.shape[1]), total[:-1]])
        running = total + np.logaddexp.accumulate(-before, axis=0) - np.log(n)
    mixed = np.logaddexp.reduce(running, axis=1) - np.log(factors.shape[1])
    with np.errstate(divide="ignore"):
        waiting = np.log(np.arange(n - 1, -1, -1) / n)
    return np.asarray(np.logaddexp(mixed, waiting))


def _row_by_row(factors: Float) -> Float:
    """The logarithm of M after each row, where a factor of 0 ends what was won before it."""
    running, out = np.full(factors.shape[1], -np.inf), np.empty_like(factors)
    for t, log_factor in enumerate(factors):
        running = np.logaddexp(running, -np.log(len(factors))) + log_factor
        out[t] = running
    return out


Remembered = TypeVar("Remembered")

# Median of the square of a standard normal, and the variance of a second difference of white noise.
_MEDIAN_SQUARE, _SECOND_DIFFERENCE = 0.4549, 6.0
# A two-sided 95 % interval; the noise is estimated at several scales and the largest taken, so the
# normal quantile serves.
_QUANTILE = 1.96
FEWEST_ROWS = 8
# The share of truncated completions that is too few to mask.
_FEW_CUT = 0.15
# Standard errors by which a reward moves that something moved.
_MOVES = 4.0
# The share of rows at one and the same largest number from which it is the top, and no lucky row.
OFTEN = 0.25
# The top of rewards that are tenths of right and wrong.
_TENTH = 0.1
LOG_RELATIVE = "the reward before it is centred or ranked, or a held-out reward"
MORE_ROWS = "more rows of the reward"
LOG_REWARD = (
    "the mean reward of each step (TRL: reward; verl: critic/rewards/mean; else --column "
    "reward=NAME)"
)
_HELD_OUT = (
    r"(val-core/.*|(eval|val|validation|test)[/_].*(acc|accuracy|reward|score|mean@\d+|pass@1"
    r"|pass1)(/mean)?)"
)
# What an evaluation table calls the reward that it holds.
_ACCURACY = r"((answer|eval)_)?(accuracy|acc)"
FORM, _FUNCTION, _SUPERVISED, _MAY_BE_REWARD, _DERIVED, _UNCLIPPED = forms(
    "form_of_answer function supervised may_be_reward derived unclipped", "diagnostics/forms.tsv"
)
# What is 0 in every row where nobody measures it, or where a fixed number of decimals hides it.
_MEASURED = frozenset(row["quantity"] for row in table_rows("diagnostics/measured.tsv"))
_SHARES = ("dead_group_share", "truncated_share", "positive_share")


@frozen
class NoisyMetric:
    """One metric with its noise."""

    column: str  # the log's own key
    step_T: Whole  # steps at which it has a value
    value_T: Float  # the values
    # standard deviation of one row's noise, such that the mean of m rows has deviation / sqrt(m)
    deviation: float
    scatter: float  # standard deviation from one row to the next alone, without slow noise
    bounds: Ends | None = None  # range it cannot leave, or None
    resolution: float = 0.0  # half a unit of the last printed digit, 0 where the values are exact

    @property
    def is_zero(self) -> Flags:
        """The rows that hold 0 and nothing that rounding hides."""
        return zero_rows(self.value_T, self.resolution)

    def written(self, value: float) -> str:
        """Write a value as surely as it is known: exactly 0, or 0 to within half a unit of the
        last printed digit.
        """
        text = f"{value:z.6g}".replace("-", "−")
        return f"{text} (± {self.resolution:g})" if self.resolution else f"exactly {text}"

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self.value_T.size)

    @property
    def low(self) -> float:
        """Return the smallest value."""
        return float(self.value_T.min())

    @property
    def high(self) -> float:
        """Return the largest value."""
        return float(self.value_T.max())

    @property
    def span(self) -> float:
        """Return the largest value less the smallest."""
        return self.high - self.low

    @property
    def trend(self) -> float:
        """Return the change between the first and the last fifth in standard errors."""
        return self.score(*ends_of(self))

    @property
    def late(self) -> float:
        """Return the mean of the last tenth of the rows."""
        return self.level_from(-self.tenth)

    @property
    def name(self) -> str:
        """Return the log's own key as a sentence has it."""
        return clean(self.column, longest=40)

    @property
    def tenth(self) -> int:
        """Return a tenth of the number of rows, three at least."""
        return max(3, len(self) // 10)

    def level(self, rows: slice) -> float:
        """Return the mean of some rows."""
        return mean_of(self.value_T[rows])

    def level_until(self, row: int) -> float:
        """Return the mean of the rows before a row."""
        return self.level(slice(row))

    def level_from(self, row: int) -> float:
        """Return the mean of a row and those since; below 0 rows are counted from the last."""
        return self.level(slice(row, None))

    def mean(self, rows: slice) -> Interval:
        """Return the mean of some rows with its 95 % interval."""
        part = self.value_T[rows]
        half = float(_QUANTILE * self.deviation / np.sqrt(max(part.size, 1)))
        value = mean_of(part) if part.size else math.nan
        low, high = self.bounds or (-np.inf, np.inf)
        return Interval(value, max(value - half, low), min(value + half, high))

    def change(self, early: slice, late: slice) -> Interval:
        """Return the later mean minus the earlier with its 95 % interval."""
        first, last = self.value_T[early], self.value_T[late]
        if not first.size or not last.size:
            return Interval(math.nan, -np.inf, np.inf)
        value = mean_of(last) - mean_of(first)
        half = float(_QUANTILE * self.deviation * np.sqrt(1 / first.size + 1 / last.size))
        return Interval(value, value - half, value + half)

    def score(self, early: slice, late: slice) -> float:
        """Return the change over its standard error; 0 where there is none."""
        change = self.change(early, late)
        error = (change.high - change.low) / (2 * _QUANTILE)
        if not np.isfinite(change.value) or change.value == 0:
            return 0.0
        return float(change.value / error) if error > 0 else float(np.sign(change.value) * np.inf)

    def step_at(self, row: int) -> int:
        """Return the step of a row."""
        return int(self.step_T[row])

    def at(self, step: float) -> int:
        """Return the first row at or after a step."""
        return int(np.searchsorted(self.step_T, step))


def signal_of(
    column: str, step_T: Whole, value_T: Float, *, sampling: float = 0.0, bounds: Ends | None = None
) -> NoisyMetric:
    """Make a signal of rows, with its noise from the rows themselves."""
    # Where most rows are one number the median sees no scatter, and the rare others still are no
    # level.
    rare = (
        0.6 * math.sqrt(np.mean(np.diff(value_T, 2) ** 2) / _SECOND_DIFFERENCE)
        if value_T.size >= 3
        else 0.0
    )
    row = _at_scale(value_T, 1)
    return NoisyMetric(
        column,
        step_T,
        value_T,
        max(_long_run(value_T, row), sampling),
        max(row, sampling, rare),
        bounds,
    )


def share_of(step_T: Any, value_T: Any) -> NoisyMetric:
    """Make a signal of a share by step, of the rows that are finite."""
    value = floats(value_T)
    keep = np.isfinite(value)
    return signal_of(
        "share", np.asarray(step_T)[keep].astype(np.int64), value[keep], bounds=(0.0, 1.0)
    )


def at_steps(signal: NoisyMetric, step_T: Whole) -> NoisyMetric:
    """Return the rows of a signal at steps of its own."""
    value = signal.value_T[np.searchsorted(signal.step_T, step_T)]
    return replace(signal, step_T=step_T, value_T=value)


def long_run_deviation(value_T: Float) -> float:
    """Return the standard deviation of one row's noise that explains the scatter of block means
    at every scale.
    """
    return _long_run(value_T, _at_scale(value_T, 1))


def _long_run(value_T: Float, row: float) -> float:
    """The same where that at the scale of one row is known."""
    best, size = row if value_T.size >= 5 else 0.0, 2
    while value_T.size // size >= 10:
        best = max(best, _at_scale(value_T, size))
        size *= 2
    return best


def _at_scale(value_T: Float, size: int) -> float:
    """Standard deviation of one row's noise from the means of blocks of a size."""
    if value_T.size // size < 3:
        return 0.0
    blocks = value_T if size == 1 else value_T[value_T.size % size :].reshape(-1, size).mean(axis=1)
    second = blocks[2:] - 2 * blocks[1:-1] + blocks[:-2]
    return math.sqrt(size * median(second**2) / (_SECOND_DIFFERENCE * _MEDIAN_SQUARE))


@dataclass(frozen=True)
class Evidence:
    """A run with its signals, each made once."""

    record: RunRecord  # the run
    # whether the run is over; while it goes on, what may pass in a few rows is waited for
    ended: bool = True
    _columns: dict[str, NoisyMetric | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )  # asked for so far
    memo: JsonObject = field(
        default_factory=dict, init=False, repr=False, compare=False
    )  # what several checks ask for, once

    @cached_property
    def reward(self) -> NoisyMetric | None:
        """The training reward; in the absence of a total the share of positive completions, or
        else the held-out reward.
        """
        for name in ("reward", "positive_share"):
            if self._supervised:
                return None
            try:
                series = metric_series(self.record, name)
            except MissingMetricError:
                continue
            meaning = self.record.meaning(series.metric)
            if series.value_T.size and (meaning is None or not meaning.unavailable):
                signal = _of_series(series, alone=len(self.functions) < 2)
                grades = self.grades if name == "reward" else None
                self.memo["guessed"] = grades is None and series.bounds is None
                if grades is None and signal.bounds is None:
                    grades = self._ends(signal) if name == "reward" else None
                    self.memo["ends"] = grades is not None
                return signal if grades is None else replace(signal, bounds=grades)
        return self.held_out or next(iter(self.matching(_ACCURACY)), None)

    @cached_property
    def _supervised(self) -> bool:
        """Whether a success, by its name alone, stands beside what supervised training logs."""
        quantities = {meaning.column: meaning.quantity for meaning in self.record.meanings}
        others = {quantities.get(column, column) for column in self.record.metrics()} - {"reward"}
        rewards = [meaning for meaning in self.record.meanings if meaning.quantity == "reward"]
        return (
            bool(rewards)
            and all(meaning.ambiguous for meaning in rewards)
            and (bool(others) or not _MAY_BE_REWARD.match(rewards[0].column))
            and all(map(_SUPERVISED.fullmatch, others))
            and self.record.rollouts is None
            and not self.record.config.group_size.known
        )

    @cached_property
    def by_tenths(self) -> bool:
        r"""Whether a reward whose range was guessed may have a tenth as its top: nothing says that
        a row or a rollout was above it.

        Rewards of mean m and variance v from 0 to M have $v \le m(M - m)$: the top is at least m +
        v/m.
        """
        reward, spread = self.reward, self.groups.spread
        if reward is None or not self.memo.get("guessed"):
            return False
        mean = reward.level_from(0)
        variance = spread.median**2 if spread.known else 0.0
        return (
            mean > 0 and max(reward.high, mean + variance / mean) <= _TENTH + 1e-9
        )  # as sums of tenths are rounded

    @cached_property
    def grades(self) -> Ends | None:
        """The lower and the higher reward, where the log shows that there are but two."""
        try:
            column = self.record.column("reward")
        except MissingMetricError:
            return None
        mean = self.record.values(column)
        usable = np.abs(mean) <= LARGEST_VALUE
        for spread in self.batch_spreads:
            graded = usable & np.isfinite(spread)
            grades = two_values(self.record, mean[graded], spread[graded])
            if grades is not None:
                return grades
        return two_values(self.record, mean[usable], None)

    def _ends(self, reward: NoisyMetric) -> Ends | None:
        """The lowest and the highest reward of a rollout, where the highest of every batch is
        logged and is one number again and again.
        """
        least, most = map(self.quantity, ("reward_min", "reward_max"))
        if most is None or len(most) < FEWEST_ROWS:
            return None
        low = min(0.0, float((reward if least is None else least).value_T.min()))
        high = most.high
        again = mean_of(most.value_T == high) >= OFTEN
        return (low, high) if again and low <= reward.low and reward.high <= high else None

    @cached_property
    def batch_spreads(self) -> list[Float]:
        """Standard deviations over the whole batch, of the total reward or of its only function;
        one value a row of the log.
        """
        steps, alone = self.record.steps, len(self.functions) == 1
        pattern = "reward_std_batch(/.*)?" if alone else "reward_std_batch"
        columns = [
            meaning.column
            for meaning in self.record.meanings
            if re.fullmatch(pattern, meaning.quantity) and meaning.column in steps.columns
        ]
        return [self.record.values(column) for column in columns if steps[column].is_finite().any()]

    @cached_property
    def no_reward(self) -> str:
        """Why there is no reward, where there is none."""
        metrics = [clean(key, longest=40) for key in self.record.metrics()]
        names = list(filter(_MAY_BE_REWARD.match, metrics))
        none = "the log has no reward"
        if metrics:
            size = f"{count(len(self.record.steps), 'row')} of {count(len(metrics), 'column')}"
            none += f" in {size}, such as {metrics[0]}"
        if self._supervised and not names:
            return "the log has no reward: it looks like supervised training or an evaluation"
        try:
            value = self.record.steps[self.record.column("reward")]
        except MissingMetricError:
            value = None
        if value is None or self._supervised:
            return (
                f"the log has {' and '.join(names[:2])} and no total reward: give "
                f"--column {shlex.quote(f'reward={names[0]}')}"
                if names
                else none
            )
        if not value.is_finite().any():
            return f"the reward has no finite value in any of {count(len(value), 'row')}"
        beyond = bool((value.abs() > LARGEST_VALUE).all())
        return f"all rewards are beyond {LARGEST_VALUE:.0e}".replace("+", "") if beyond else none

    @cached_property
    def relative(self) -> str:
        """What speaks against a mean reward that is one number in all rows: groups that differ;
        "" where nothing does.
        """
        reward, spread = self.reward, self.groups.spread
        if reward is None or len(reward) < 2:
            return ""
        mean, ends = float(reward.value_T[0]), map(self.quantity, ("reward_min", "reward_max"))
        low, high = (mean if end is None else median(end.value_T) for end in ends)
        usual, shown = min(mean - low, high - mean), f"usually {short(low)} to {short(high)}"
        if spread.known:
            usual = float(np.nanmedian(np.abs(spread.value_T)))
            shown = f"standard deviation {short(usual)}"
        if reward.span > 1e-9 * max(1.0, abs(mean)) or usual <= max(
            1e-6, TELLING * reward.resolution
        ):
            return ""
        return (
            f"the mean reward is {short(mean)} in all rows although rewards differ ({shown}): it "
            "was centred or ranked, or it is not what completions earned"
        )

    @cached_property
    def held_out(self) -> NoisyMetric | None:
        """The evaluation reward, or else the accuracy on a validation set."""
        return next(iter(self.held_out_sets.values()), None)

    @cached_property
    def held_out_sets(self) -> Mapping[str, NoisyMetric]:
        """The mean evaluation rewards by the name of their set, "" of a total."""
        # The total comes first, the parts of a set behind it.
        named = sorted(
            self.named("eval/reward"), key=lambda entry: (bool(entry[0]), entry[0].count("/"))
        )
        if not named:  # what the readers do not know
            columns = self.matching(_HELD_OUT)
            named = [
                (entry.column, entry) for entry in columns if not self.record.meaning(entry.column)
            ]
        sets: dict[str, NoisyMetric] = {}
        for path, signal in named:
            name = path.removeprefix("/")
            is_named = any(map(name.startswith, sets)) or "std" in name
            if len(signal) >= 3 and not is_named:
                sets[name] = signal
        return sets

    @cached_property
    def best_of_sets(self) -> Mapping[str, NoisyMetric]:
        """Shares of the prompts of a set that one of several samples solves."""
        best = self.named("eval/pass_at_k/")
        return {name: signal for name, signal in best if signal.low >= 0 and not FORM.search(name)}

    @cached_property
    def functions(self) -> Mapping[str, NoisyMetric]:
        """The reward functions by name, where there are two or more, or one that is not the
        total.
        """
        functions: dict[str, NoisyMetric] = {}
        for column in self.record.metrics():
            meaning = self.record.meaning(column)
            match = (
                re.fullmatch(r"reward/(.+)", meaning.quantity)
                if meaning
                else _FUNCTION.fullmatch(column)
            )
            name = match[1] if match else "total"
            signal = (
                None
                if name in ("total_reward", "total", "reward") or _DERIVED.search(name)
                else self._column(column)
            )
            if signal:
                functions.setdefault(name, signal)
        return functions

    @property
    def earned(self) -> Mapping[str, NoisyMetric]:
        """Those that are no penalty."""
        return {name: signal for name, signal in self.functions.items() if signal.low >= 0}

    def named(self, prefix: str) -> Iterator[tuple[str, NoisyMetric]]:
        """Yield the columns of the quantities that begin so, with the rest of their names."""
        for meaning in self.record.meanings:
            if meaning.quantity.startswith(prefix) and not meaning.unavailable:
                signal = self._column(meaning.column)
                if signal:
                    yield meaning.quantity.removeprefix(prefix), signal

    def quantity(self, name: str) -> NoisyMetric | None:
        """Return a canonical quantity as a signal, or None where it is not in the log or carries
        nothing.
        """
        return None if self.unmeasured(name) else self._logged(name)

    def unmeasured(self, name: str) -> str:
        """Return why a quantity that is 0 in every row says nothing; "" where it does, or is not
        in the log.
        """
        signal = self._logged(name) if name.partition("/")[0] in _MEASURED else None
        if signal is None or signal.value_T.any():
            return ""
        column, rows = clean(signal.column, longest=60), count(len(signal), "row")
        if signal.resolution:
            decimals = round(-math.log10(2 * signal.resolution))
            return (
                f"{column} is printed with {decimals} decimals and is below "
                f"{signal.resolution:g} in all {rows}"
            )
        if name == "learning_rate":  # the user's word goes before a column of zeros
            measured = not self._moved and not self.record.config.learning_rate.given
        else:
            measured = self._stands_still or (name == "gradient_norm" and not self._moved)
        return "" if measured else f"{column} is 0 in all {rows}, so it counts as not measured"

    @cached_property
    def _stands_still(self) -> bool:
        """Whether loss and gradient are exactly 0 throughout, or all groups have zero variance:
        what is 0 beside them may be measured.
        """
        updates = [self._logged(name) for name in ("loss", "gradient_norm")]
        still = all(update and update.is_zero.all() for update in updates)
        dead = self.groups.zero_variance
        return still or (dead.known and float(np.nanmin(dead.value_T)) == 1.0)

    @cached_property
    def never_cut(self) -> bool:
        """Whether the log shows that no completion is cut off, or hardly any by now: of a mean
        length no larger share than its own part of the limit.
        """
        quantities = "truncated_share", "completion_length_max", "completion_length"
        cut, longest, mean = map(self._logged, quantities)
        limit = self.setting("max_completion_length")
        if cut:
            return not cut.resolution and not cut.value_T.any()  # a rounded 0 may be a few
        most = math.inf
        if mean:
            later = mean.value_T[len(mean) // 2 :]
            most = float(moving_mean(later, min(mean.tenth, len(later))).max()) / _FEW_CUT
        return limit is not None and (longest.high if longest else most) < float(limit)

    @cached_property
    def needless(self) -> list[str]:
        """Actions that would change nothing, as the tables write them: what they limit stayed
        within the limit, or is set so.
        """
        within = [
            row["action"]
            for row in table_rows("diagnostics/needless.tsv")
            if self._most(row["quantity"], zeros=bool(row["zeros"])) <= float(row["most"])
        ]
        return [
            *["mask"] * self.never_cut,
            *["clip"] * (not _UNCLIPPED.search(str(self.setting("loss")))),
            *["updates =1"] * self._one_update,
            *within,
        ]

    @property
    def _one_update(self) -> bool:
        """Whether a generation has one update: by the settings, or else by the trainer's default,
        unless a token was clipped, as none is in the first update.
        """
        interval, kind = self.setting("refresh_interval"), self.setting("lag_kind")
        if interval is None and kind is None and not self.quantity("clip_ratio"):
            kind = defaults_of(str(self.setting("framework")).lower()).get("lag_kind")
        return bool(interval == 1 or kind == "none")

    def _most(self, name: str, *, zeros: bool) -> float:
        """The largest that a quantity may have been: anything where its last row is no number, or
        where zeros alone, which do not count, were logged.
        """
        names = self._spellings.get(name, ())
        columns = [column for column in map(self._column, names) if column]
        most = [
            column.high + column.resolution for column in columns if zeros or column.value_T.any()
        ]
        ends = [self.record.values(column)[-1] for column in names]
        return max(most, default=math.inf) if np.isfinite(ends).all() else math.inf

    @cached_property
    def trend(self) -> float:
        """The trend of the reward; 0 without one."""
        return 0.0 if self.reward is None else self.reward.trend

    @property
    def _moved(self) -> bool:
        """Whether the reward has moved far beyond its noise, as no policy without a gradient or
        a rate makes it.
        """
        return abs(self.trend) > _MOVES

    def _logged(self, name: str) -> NoisyMetric | None:
        """The longest column of a quantity, None where there is none that carries anything."""
        signals = filter(None, map(self._column, self._spellings.get(name, ())))
        return max(signals, key=len, default=None)

    @cached_property
    def _spellings(self) -> dict[str, list[str]]:
        """The columns of each quantity."""
        names = dict[str, list[str]]()
        for meaning in self.record.meanings:
            if not meaning.unavailable:
                names.setdefault(meaning.quantity, []).append(meaning.column)
        return names

    def matching(self, pattern: str) -> list[NoisyMetric]:
        """Return the columns whose whole names match a regular expression, whatever the case."""
        rule = re.compile(pattern, re.IGNORECASE)
        signals = [
            self._column(column) for column in self.record.metrics() if rule.fullmatch(column)
        ]
        return [*filter(None, signals)]

    @cached_property
    def graded(self) -> pl.DataFrame | None:
        """The rollouts with a finite reward, or None where the log has no rewards of rollouts."""
        rollouts = self.record.rollouts
        if rollouts is None or "reward" not in rollouts.columns:
            return None
        return rollouts.filter(pl.col("reward").is_finite())

    @cached_property
    def groups(self) -> GroupEvidence:
        """What the groups say: shares of zero-variance groups, expectation, spread."""
        return group_evidence(self.record)

    @cached_property
    def rewards_differ(self) -> bool:
        """Whether rewards are known to differ within groups."""
        spread, equal = self.groups.spread, self.groups.zero_variance
        ends = map(self.quantity, ("advantage_max", "advantage_min"))
        if any(end and median(end.value_T) != 0 for end in ends):
            return True
        return (spread.known and spread.median > 0) or (equal.known and equal.median < 0.5)

    @cached_property
    def group_size(self) -> int | None:
        """Rollouts of a group, from the settings or the rollouts."""
        stated = self.record.config.value("group_size")
        if stated is not None:
            return int(stated)
        rollouts = self.record.rollouts
        if rollouts is None:
            return None
        sizes = rollouts.group_by("step", "prompt_id").len()["len"]
        size = int(sizes.median() or 0)  # type: ignore[arg-type]
        return size if size > 1 else None

    @cached_property
    def _steps(self) -> Whole:
        """The steps of the log."""
        return self.record.steps["step"].to_numpy().astype(np.int64)

    def setting(self, name: str) -> Any:
        """Return a setting of the run, or None."""
        return self.record.config.value(name)

    def _column(self, column: str) -> NoisyMetric | None:
        """Return the finite values of a column as a signal, made once; None with fewer than two."""
        if column not in self._columns:
            value = self.record.values(column)
            keep = np.isfinite(value)
            step, value = self._steps[keep], np.clip(value[keep], -LARGEST_VALUE, LARGEST_VALUE)
            meaning = self.record.meaning(column)
            bounds = (0.0, 1.0) if meaning and meaning.quantity in _SHARES else None
            rounding = 0.0 if meaning is None else meaning.resolution
            signal = signal_of(column, step, value, bounds=bounds) if value.size > 1 else None
            self._columns[column] = None if signal is None else replace(signal, resolution=rounding)
        return self._columns[column]


def judged_column(record: RunRecord) -> str:
    """Return the column that is judged as the reward; "reward" where there is none."""
    reward = Evidence(record).reward
    return "reward" if reward is None else reward.column


def once(search: Callable[[Evidence], Remembered]) -> Callable[[Evidence], Remembered]:
    """Ask a run once: several checks go by the answer."""

    @wraps(search)
    def asked(evidence: Evidence) -> Remembered:
        if search.__name__ not in evidence.memo:
            evidence.memo[search.__name__] = search(evidence)
        answer: Remembered = evidence.memo[search.__name__]
        return answer

    return asked


def _of_series(series: MetricSeries, *, alone: bool) -> NoisyMetric:
    """Turn a metric series into a signal; its noise is never below what sampling alone explains.

    Values between 0 and 1 tell the range of a reward only where it is no sum of several reward
    functions.
    """
    sampling = (
        math.sqrt(median(series.variance_T))
        if series.variance_T is not None and series.variance_T.size
        else 0.0
    )
    bounds = series.likely_bounds if alone else series.bounds
    signal = signal_of(
        series.metric, series.step_T, series.value_T, sampling=sampling, bounds=bounds
    )
    return replace(signal, resolution=series.resolution)


# Rows since a step from which a reward is shown to stand, and the part of what was left, or had
# been gained, that it cannot have gained; standard errors that make a gain.
_FEWEST_SINCE, _LITTLE, _GAIN = 9, 0.15, 2.0


def thirds_since(signal: NoisyMetric, row: int) -> tuple[slice, slice]:
    """Return the first and the last third of the rows from a row on."""
    third = max((len(signal) - row) // 3, 1)
    return slice(row, row + third), both_ends(signal, third)[1]


def gained_since(evidence: Evidence, step: int | None) -> bool:
    """Return whether the reward has gained since a step, beyond its noise."""
    reward = evidence.reward
    return reward is not None and reward.score(*thirds_since(reward, reward.at(step or 0))) > _GAIN


def stands_since(evidence: Evidence, step: int | None) -> bool:
    """Return whether the reward is shown to stand since a step: its gain is little, by the upper
    limit, of what was left to its top.

    Where the top is not known what it had gained before stands for what was left.
    """
    reward = evidence.reward
    if reward is None:
        return False
    early, late = thirds_since(reward, reward.at(step or 0))
    if len(reward) - early.start < _FEWEST_SINCE:
        return False
    here = reward.level(early)
    start = reward.level_until(late.stop - late.start)
    room = here - start if reward.bounds is None else reward.bounds[1] - here
    return reward.change(early, late).high < _LITTLE * room


def ends_of(signal: NoisyMetric) -> tuple[slice, slice]:
    """Return the first and the last fifth of the rows, three rows at least; all of them twice
    where there are fewer than six.
    """
    n = len(signal)
    few = max(3, n // 5)
    return both_ends(signal, few) if n >= 2 * few else (slice(0, n), slice(0, n))


def both_ends(signal: NoisyMetric, few: int) -> tuple[slice, slice]:
    """Return the first and the last few rows."""
    return slice(0, few), slice(max(len(signal) - few, 0), len(signal))


def blocks(signal: NoisyMetric, size: int) -> tuple[Float, Whole]:
    """Return means of neighbouring rows that do not overlap, and the first row of each."""
    count = max(len(signal) // size, 1)
    edges = np.linspace(0, len(signal), count + 1).astype(int)
    means = np.add.reduceat(signal.value_T, edges[:-1]) / np.diff(edges)
    return np.asarray(means), edges[:-1]


# Rollouts that tell the grades, and by how much the spread of a batch may miss that of two grades.
_MANY, _OFF = 50, 0.06


def lowest_grade(record: RunRecord) -> float | None:
    """Return the lowest reward of a rollout where many share it, so that it is a grade and no
    outlier.
    """
    value = rollout_rewards(record)
    if value.size < _MANY:
        return None
    lowest = float(value.min())
    return lowest if np.isclose(value, lowest).mean() > 0.01 else None


def two_values(record: RunRecord, value_T: Float, spread_T: Float | None) -> Ends | None:
    r"""Return the two grades of a reward of right and wrong, where the log shows them.

    Of grades a and b every batch of mean m has the variance $(m - a)(b - m)$: variance plus $m^2$
    is a straight line in m.
    """
    reward = rollout_rewards(record)
    if reward.size >= _MANY:
        seen = np.unique(reward)
        if seen.size != 2 or not ((value_T >= seen[0]) & (value_T <= seen[1])).all():
            return None
        return float(seen[0]), float(seen[1])
    if spread_T is None or not value_T.size:
        return None
    for grades in ((-1.0, 1.0), _grades_of(value_T, spread_T)):
        if grades and _explains(grades, value_T, spread_T):
            return grades
    return None


def _grades_of(value_T: Float, spread_T: Float) -> Ends | None:
    """The grades that a straight line through variance plus squared mean tells."""
    usable = np.isfinite(spread_T) & (spread_T > 0)
    if usable.sum() < 5 or np.ptp(value_T[usable]) == 0:
        return None
    slope, level = np.polyfit(value_T[usable], spread_T[usable] ** 2 + value_T[usable] ** 2, 1)
    inside = float(slope**2 + 4 * level)
    if not inside > 0:
        return None
    span = math.sqrt(inside)
    digits = 1 - int(np.floor(np.log10(span)))
    low, high = (round(float(slope + sign * span) / 2, digits) + 0.0 for sign in (-1, 1))
    return (low, high) if low < high else None


def _explains(grades: Ends, value_T: Float, spread_T: Float) -> bool:
    """Whether two grades give the spread of nearly all rows, and no row is outside of them."""
    low, high = grades
    if value_T.min() < low or value_T.max() > high:
        return False
    expected = np.sqrt((value_T - low) * (high - value_T))
    telling = np.isfinite(spread_T) & (expected > 0.1 * (high - low))
    if telling.sum() < 5:
        return False
    return mean_of(np.abs(spread_T[telling] / expected[telling] - 1) < _OFF) > 0.9


# Standard deviations of the rewards below the top at which a height of unknown origin begins; right
# and wrong at even odds are one apart.
_SPREADS = 2.0
# The spread where none is logged, in scatters of a row: a mean of some 400 rollouts scatters by a
# twentieth of their spread.
_ROOT_OF_BATCH = 20.0
# A gain below half a standard deviation of the rewards is too small to set a new height.
_CLEAR_GAIN = 0.5
# Of a two-sided 95 % interval.
_LUCK = 1.96


def floor_of(signal: NoisyMetric, *, spread: float = 0.0, lowest: float | None = None) -> float:
    """Return the level of a reward that counts as nothing."""
    value = signal.value_T
    if value.min() >= 0:
        return 0.0
    if lowest is None and signal.bounds:
        lowest = signal.bounds[0]
    if lowest is not None:
        return lowest
    few = max(3, len(signal) // 15)
    smooth = moving_mean(value, few) if len(signal) >= few else value
    first, top = float(smooth[0]), float(smooth.max()) - _LUCK * signal.scatter / math.sqrt(few)
    spread = spread if spread > 0 else _ROOT_OF_BATCH * signal.scatter
    gained = top - first >= max(_CLEAR_GAIN * spread, _SPREADS * signal.scatter)
    return first if gained else top - _SPREADS * spread


@once
def reward_floor(evidence: Evidence) -> float:
    """Return the level of the training reward that counts as nothing, by all that the log says
    of its rewards; worked out once.
    """
    reward, track = evidence.reward, evidence.groups.spread
    assert reward is not None
    sizes = np.abs(track.value_T[np.isfinite(track.value_T)]) if track.known else np.zeros(0)
    early = sizes[: max(len(sizes) // 4, 1)]
    spread = median(early) if early.size else 0.0
    return floor_of(reward, spread=spread, lowest=lowest_grade(evidence.record))


# Of one e-process over the whole run, where its null holds: the usual rate and the horizon are read
# off the log as it stands.
FALSE_ALARM = 0.005
FALSE_WARNING = 0.02


@frozen
class Alarm:
    """An e-process that crossed its threshold."""

    onset: int  # the row from which the evidence counted, by maximum likelihood
    lasts: bool  # whether it still stood above at the last row


def alarm(log_factor_T: Float, *, rate: float) -> Alarm | None:
    r"""Look for a change at an unknown row, after every row, with false alarms at no more than a
    rate over the whole run.

    By Ville's inequality $P(\exists t: E_t \ge 1/\alpha) \le \alpha$, with rows that depend on each
    other as long as the bound on the conditional mean of a factor holds. A null rate or a horizon
    that is taken from the same log is outside it.
    """
    if np.maximum(log_factor_T, 0.0).sum() < -np.log(rate):
        return None  # even all bets that were won together do not reach it
    above = np.flatnonzero(change_evidence(log_factor_T) >= -np.log(rate))
    if not above.size:
        return None
    last = int(above[-1])
    return Alarm(evidence_start(log_factor_T[: last + 1]), last == len(log_factor_T) - 1)


def lasting(
    log_factor_T: Float, *, rate: float = FALSE_ALARM, event_T: Flags | None = None
) -> int | None:
    """Return the row since which a change is there, if it is there to the end: where events are
    given, in half of the last rows too.
    """
    change = alarm(log_factor_T, rate=rate)
    gone = event_T is not None and event_T[-max(2, len(event_T) // 20) :].mean() < 0.5
    return None if change is None or not change.lasts or gone else change.onset


def since_when(
    event_T: Flags, usual: float = 0.2, *, rate: float = FALSE_ALARM, still: bool = True
) -> int | None:
    """Return the row since which an event is there that is rare before, if it is so to the end;
    `still`: and in the last rows.
    """
    return lasting(
        rare_event_factors(event_T, usual), rate=rate, event_T=event_T if still else None
    )


def evidence_start(log_factor_T: Float) -> int:
    """Return the row from which the evidence up to the last row is largest: the
    maximum-likelihood onset.
    """
    # Of several the last: rows on which nothing was bet are no part of it.
    return len(log_factor_T) - 1 - int(np.argmax(np.cumsum(log_factor_T[::-1])))


def rare_event_factors(event_T: Flags, usual: float) -> Float:
    r"""Log factors against "the event has at most this chance at each row, whatever came before".

    $f = q'/q$ where it happens and $(1-q')/(1-q)$ where not: its mean is at most 1 for every chance
    up to $q$.
    """
    return np.asarray(
        np.where(event_T, np.log(0.9 / usual), np.log(0.1 / (1 - usual))), dtype=float
    )


# Scatters of the rows before that a lasting move, and a spike, must exceed, and the part of the
# whole move that makes its first row.
_SCATTERS, _OF_SPIKES, _PART = 2.0, 4.0, 0.5
# The part of a move, or of its first row, by which that stands apart from where the move went.
_APART = 0.15
_FEWEST_BEFORE, _NEAR = 2, 4
# Rows at which a slow move may be seen to begin, before the band that it left is known.
_KNOTS = 40


@frozen
class Watched:
    """A signal that may move before, with or after a reward."""

    quantity: str  # canonical
    name: str  # as a reader calls it
    share: bool  # a share or a number of updates, compared by difference; else by ratio
    least: float  # the smallest difference, or ratio, that is a move
    spike: bool = False  # whether it leaps for a row and is told by its peak
    up: bool = False  # whether only a rise is a sign


WATCHED = tuple(
    Watched(quantity, name, unit in ("share", "updates"), float(least), bool(spike), bool(up))
    for quantity, name, unit, least, spike, up in map(
        dict.values, table_rows("diagnostics/signals.tsv")
    )
)


def moved(name: str, step: int, *levels: float) -> Sign:
    """Return the sign of a signal that goes by its own name, with its levels in their order."""
    return Sign(name, step, levels[0], levels[-1], f"{name.replace('_', ' ')} {arrow(*levels)}")


def reach_of(evidence: Evidence) -> int:
    """Rows before a change in which its first sign is looked for."""
    return 6 if evidence.reward is None else max(6, len(evidence.reward) // 16)


def signs_about(
    evidence: Evidence, step: int, *, reach: int | None = None, end: int | None = None
) -> tuple[Sign, ...]:
    """Return the signals that moved from some rows before a step on, the earliest first.

    Args:
        evidence: the run.
        step: of the change.
        reach: rows of the reward before the step in which a first sign is looked for; None for
            the usual ones.
        end: the step at which a slow change ends, to which what only rises is looked at; length and
            entropy drift in health too.
    """
    reward = evidence.reward
    rows = evidence.record.steps["step"].to_numpy() if reward is None else reward.step_T
    place = int(np.searchsorted(rows, step))
    low = int(rows[max(0, place - (reach or reach_of(evidence)))])
    signs = []
    for watched in WATCHED:
        signal = evidence.quantity(watched.quantity)
        over = end if watched.up and not watched.spike else None
        if signal and (sign := sign_of(signal, watched, low=low, step=step, end=over)):
            signs.append(_at_limit(evidence, sign))
    if held := evidence.held_out:
        sign = sign_of(
            held, Watched("held_out", "held-out reward", share=True, least=0.05), low=low, step=step
        )
        # A held-out reward that rises is no sign of a failure.
        if sign and not sign.rises:
            signs.append(sign)
    return tuple(sorted(signs, key=lambda sign: sign.step))


def sign_of(
    signal: NoisyMetric, watched: Watched, *, low: int, step: int, end: int | None = None
) -> Sign | None:
    """Return the move of a signal about a step, or None where it stayed within what it did
    before.
    """
    begin, onset = signal.at(low), signal.at(step)
    over = onset if end is None else max(onset, signal.at(end))
    few = max(3, len(signal) // 20)
    # The median and the scatter of these rows stand although the last of them may have begun to
    # move.
    before = slice(
        max(0, onset - max(24, len(signal) // 5)), max(onset - 4, min(onset, _FEWEST_BEFORE))
    )
    # A level leads to the change row by row; a spike counts just before it.
    start = max(begin, onset - _NEAR) if watched.spike else min(begin, before.stop)
    window = slice(start, min(len(signal), over + max(few, 4)))
    if before.stop - before.start < _FEWEST_BEFORE or onset >= len(signal):
        return None
    y_T = _scaled(signal.value_T, before, watched, signal.resolution)
    if y_T is None:
        return None
    base, usual = median(y_T[before]), _usual(watched, y_T[before])
    moved = y_T[window] - base
    late = median(y_T[min(over, len(signal) - 1) : over + few]) - base
    # A spike just before the change counts as well as a level that lasts.
    farthest = window.start + int(np.argmax(moved if watched.up else np.abs(moved)))
    spiked = watched.spike or abs(late) <= usual
    peak = float(moved[farthest - window.start]) if spiked else late
    if abs(peak) <= (_usual(watched, y_T[before], spike=True) if spiked else usual) or (
        watched.up and peak < 0
    ):
        return None
    row = window.start + _first(
        np.sign(peak) * moved, max(usual, _PART * abs(peak)), max(onset - window.start, 0)
    )
    since = max(row, min(over, len(signal) - 1))
    just, now = rows_before(max(row, 1), few), slice(since, since + few)
    last_T = signal.value_T[row : row + max(5, len(signal) // 8)]
    first, reached, last = map(median, (signal.value_T[before], signal.value_T[now], last_T))
    there = float(signal.value_T[row])
    if watched.spike:
        there = last = reached = float(signal.value_T[farthest])
    matters = _usual(watched, np.zeros(1))  # where nothing scatters
    far = rows_before(max(window.start, 1), few)  # before the reach
    ahead = np.sign(peak) * y_T
    small, drifts = (median(ahead[now]) - median(ahead[rows]) < matters for rows in (just, far))
    if small and drifts and not spiked and row > window.start:
        return None  # it drifts there as it did before
    # Of a row that leaps, or a move that began before the reach, what stood before it.
    near = first if small or watched.spike else just_before(signal, row)
    words = _move_in_words(watched, near, there, last)
    ends = median(ahead[before.start : before.start + few]), median(ahead[just])
    line_T = np.linspace(*ends, before.stop - before.start)
    slid = ends[1] - ends[0] > max(matters, _SCATTERS * scatter(ahead[before] - line_T))
    left = left_band(ahead[: row + 1], matters) if slid and not watched.spike else None
    if left is not None:
        row, last = left, reached
        near = first = just_before(signal, row)
        words = f"{_move_in_words(watched, near, near, last)} by step {signal.step_at(since):,}"
    quantity, step, column = watched.quantity, signal.step_at(row), signal.column
    return Sign(quantity, step, near, last, words, reached=reached, usual=first, column=column)


def left_band(ahead_T: Float, matters: float) -> int | None:
    """The row from which a slow move stays beyond the band of a straight line or a logarithm of
    the rows, up to a knot from which a slope is added by least squares; None where it is not far
    beyond it at the end, and so goes on as it began, or came back meanwhile.
    """
    row, place = len(ahead_T) - 1, np.arange(len(ahead_T), dtype=float)
    if row <= FEWEST_ROWS:
        return None
    knots = np.unique(np.linspace(FEWEST_ROWS, row - 1, _KNOTS).astype(int))
    best = math.inf, ahead_T, 0.0
    for usual_T in (place, np.log1p(place)):
        for knot in knots:
            basis = np.stack([np.ones_like(place), usual_T, np.maximum(place - knot, 0)], axis=1)
            weight = np.linalg.lstsq(basis, ahead_T, rcond=None)[0]
            squares = np.sum((ahead_T - basis @ weight) ** 2)
            if squares < best[0]:
                beyond = ahead_T - basis[:, :2] @ weight[:2]
                best = squares, beyond, scatter(beyond[:knot])
    _, beyond, noise = best
    usual = max(matters, _SCATTERS * noise)
    left = _first(beyond, max(_SCATTERS * noise, _APART * beyond[-1]), row)
    back = np.maximum.accumulate(beyond[left:]) - beyond[left:]
    return left if median(beyond[-_NEAR:-1]) > usual > back.max() else None


def just_before(signal: NoisyMetric, row: int) -> float:
    """Return the level of the few rows before one."""
    few = max(3, len(signal) // 20)
    return median(signal.value_T[rows_before(max(row, 1), few)])


def _usual(watched: Watched, before_T: Float, *, spike: bool = False) -> float:
    """How far a signal goes without moving: what matters, or its scatter before; single rows go
    farther.
    """
    least = watched.least if watched.share else float(np.log(watched.least))
    return max(least, (_OF_SPIKES if watched.spike or spike else _SCATTERS) * scatter(before_T))


def _scaled(value_T: Float, before: slice, watched: Watched, resolution: float) -> Float | None:
    """A share as it is; the logarithm of sizes, where next to nothing counts as a tenth of the
    usual and nothing before has no ratio.
    """
    if watched.share:
        return value_T
    if median(np.abs(value_T[before])) == 0:
        return None
    size = np.abs(value_T)
    usual = median(size[size > 0]) if (size > 0).any() else 1.0
    return np.log(np.maximum(size, max(0.1 * usual, resolution)))


def scatter(value_T: Float) -> float:
    """Return how far rows stand from their median, as a standard deviation of normal ones."""
    return 1.4826 * median(np.abs(value_T - median(value_T)))


def _first(moved_T: Float, usual: float, near: int) -> int:
    """The row from which a move lasts to the change: back from there over rows beyond the usual,
    one other row between them at most.
    """
    beyond: Flags = moved_T > usual
    later = np.flatnonzero(beyond[near:])
    row = near + int(later[0]) if later.size else int(np.argmax(moved_T))
    while row > 0 and (beyond[row - 1] or (row > 1 and beyond[row - 2])):
        row -= 1 if beyond[row - 1] else 2
    return row


def _move_in_words(watched: Watched, first: float, there: float, last: float) -> str:
    """The levels of a move in words."""
    levels = levels_of(first, there, last)
    if watched.quantity in ("truncated_share", "dead_group_share"):
        if len(levels) > 2:
            shares = " → ".join(percent(level).removesuffix(" %") for level in levels)
            return f"{watched.name} {shares} %"
        return f"{percent(last)} {watched.name} (was {percent(first)})"
    return f"{watched.name} {arrow(*levels)}"


def levels_of(before: float, there: float, after: float) -> tuple[float, ...]:
    """Return the levels of a move: before, at its first row where that stands apart from the level
    since, and that level.
    """
    apart = abs(after - there) > _APART * min(abs(there - before), abs(there))
    return (before, there, after) if apart and short(there) != short(before) else (before, after)


def _at_limit(evidence: Evidence, sign: Sign) -> Sign:
    """Say of a length that it stands at its limit."""
    limit = limit_of(evidence) if sign.signal == "completion_length" else None
    at_limit = limit is not None and (sign.at_change or 0.0) >= 0.98 * limit
    return replace(sign, words=f"{sign.words} = limit") if at_limit else sign


def limit_of(evidence: Evidence) -> float | None:
    """Return the limit of the completions where it is certain: where all are truncated it is
    their length, else what the settings say.
    """
    cut, length = map(evidence.quantity, ("truncated_share", "completion_length"))
    if cut and length:
        _, cut_rows, its = np.intersect1d(cut.step_T, length.step_T, return_indices=True)
        full = length.value_T[its][cut.value_T[cut_rows] >= 0.999]
        if full.size >= 3 and np.ptp(full) <= 0.01 * full.max():
            return float(full.max())
    most = None if length is None else repeated_most(length)
    stated = evidence.setting("max_completion_length")
    # A limit that lengths go beyond is none of this run: a notebook's other cell, another unit.
    beyond = length and stated is not None and length.high > 1.01 * float(stated)
    return most if stated is None or beyond else float(stated)


def repeated_most(length: NoisyMetric) -> float | None:
    """Return the largest mean length where many rows share it: only a limit makes them all
    alike.
    """
    most = length.high
    same = (length.value_T >= 0.999 * most).sum()
    varies = length.low < 0.9 * most
    return most if varies and same >= max(5, len(length) // 10) else None


def led_to(before: float | None, now: float) -> str:
    """Write what a level is now, and what it was before where that is known: "0.012 → 0.31"."""
    return short(now) if before is None else arrow(before, now)


def arrow(*values: float) -> str:
    """Write levels that follow each other: "0.89 → 0.00", "314 → 512"."""
    return " → ".join(map(short, values))


def rank_correlations(first: NoisyMetric, other: NoisyMetric) -> tuple[float, float]:
    """Spearman's correlation over the steps that both have, and that of their changes from row to
    row; 0 with few of them.
    """
    _, left, right = np.intersect1d(first.step_T, other.step_T, return_indices=True)
    if len(left) < 2 * FEWEST_ROWS:
        return 0.0, 0.0
    value_2T = np.stack([np.abs(first.value_T[left]), other.value_T[right]])
    pair = []
    for row_2T in (value_2T, np.diff(value_2T)):
        rank_2T = np.stack([mean_ranks(row_T) for row_T in row_2T])
        flat = rank_2T.std(axis=1).min() == 0
        pair.append(0.0 if flat else float(np.atleast_2d(np.corrcoef(rank_2T))[0, 1]))
    return pair[0], pair[1]
