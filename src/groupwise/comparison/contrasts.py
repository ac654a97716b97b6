r"""One quantity of two groups of runs: the difference, by the test that the seeds allow.

Two runs a group: Welch's t. One run in a group: the spread of seeds
is taken from the groups that have more. One run everywhere: step noise alone, and what the seeds
would have to be for the difference to be real. Where a level is not held, ranks. The variance of a
group is never taken below what its runs' step noise says. What runs are and where a group comes
from is not known here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from groupwise.arrays import Float, mean_ranks
from groupwise.comparison.curves import within
from groupwise.comparison.results import Contrast, Measured, Method, Quantity, SeedNoise, nothing
from groupwise.comparison.seeds import minimum_detectable, seeds_needed
from groupwise.intervals import Interval

MOST_RELABELLINGS = 20_000


@dataclass(frozen=True, slots=True)
class Setup:
    """What a contrast is judged by."""

    level: float  # coverage of the interval
    seeds: SeedNoise  # spread of the seeds from all groups
    # contrasts that share the false-alarm rate: what would be found has to pass the strictest of
    # Holm's thresholds
    tests: int = 1
    # the most that the quantity can differ by, which no interval exceeds; infinite where that is
    # not known
    span: float = math.inf

    @property
    def strict_level(self) -> float:
        """The level that a p-value has to pass before any other contrast did."""
        return 1 - (1 - self.level) / max(self.tests, 1)


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference of two groups before it is judged."""

    method: Method
    value: float
    error: float
    freedom: float
    variance: float  # of which 1/n remains with n runs a group

    @property
    def p_value(self) -> float:
        """Two-sided; 1 where runs are equal to the last digit.

        That says nothing of how far others would scatter.
        """
        if not self.error > 0:
            return 1.0
        score = -abs(self.value) / self.error
        return 2 * float(ndtr(score) if math.isinf(self.freedom) else stdtr(self.freedom, score))

    def interval(self, level: float) -> Interval:
        """The interval of the t test; without limit where runs are equal to the last digit."""
        tail = 0.5 + level / 2
        point = float(ndtri(tail) if math.isinf(self.freedom) else stdtrit(self.freedom, tail))
        half = point * self.error if self.error > 0 else math.inf
        return Interval(self.value, self.value - half, self.value + half, level)


def difference(a: Sequence[Measured], b: Sequence[Measured], setup: Setup) -> Difference | None:
    """The difference by the first method that applies; None where nothing tells its error."""
    x, y = _values(a), _values(b)
    value = float(y.mean() - x.mean())
    if len(x) > 1 and len(y) > 1:
        parts = [(max(float(v.var(ddof=1)), _step(runs)), len(v)) for v, runs in ((x, a), (y, b))]
        shares = [variance / count for variance, count in parts]
        below = sum(share**2 / (count - 1) for share, (_, count) in zip(shares, parts, strict=True))
        freedom = sum(shares) ** 2 / below if below > 0 else len(x) + len(y) - 2.0
        return Difference(
            "welch", value, math.sqrt(sum(shares)), freedom, parts[0][0] + parts[1][0]
        )
    if setup.seeds.freedom > 0:
        variance = max(setup.seeds.between, _step([*a, *b]))
        error = math.sqrt(variance * (1 / len(x) + 1 / len(y)))
        return Difference("pooled_t", value, error, float(setup.seeds.freedom), 2 * variance)
    return None


def _values(runs: Sequence[Measured]) -> Float:
    """The value of each run."""
    return np.array([run.value for run in runs])


def _step(runs: Sequence[Measured]) -> float:
    """Mean variance of a run's value by step noise."""
    return float(np.mean([run.step_error**2 for run in runs]))


def contrast(
    quantity: Quantity,
    first: Sequence[Measured],
    second: Sequence[Measured],
    setup: Setup,
    rng: np.random.Generator,
) -> Contrast:
    """Compare a quantity of two groups: second minus first."""
    a, b = _usable(first), _usable(second)
    if not a or not b:
        problem = next((run.problem for run in (*first, *second) if run.problem), "no run has it")
        return Contrast(
            quantity, "unavailable", problem, nothing(setup.level), runs=(len(a), len(b))
        )
    if np.isinf(_values([*a, *b])).any():
        return _ranked(quantity, a, b, setup, rng)
    estimate = difference(a, b, setup)
    tested = (
        _step_noise_alone(quantity, a[0], b[0], setup)
        if estimate is None
        else _tested(quantity, a, b, setup, estimate)
    )
    possible = not tested.minimum_detectable > setup.span
    return replace(
        tested,
        difference=within(tested.difference, (-setup.span, setup.span)),
        step_error=math.sqrt(_step(a) / len(a) + _step(b) / len(b)),
        minimum_detectable=tested.minimum_detectable if possible else math.nan,
    )


def is_tested(first: Sequence[Measured], second: Sequence[Measured], setup: Setup) -> bool:
    """Return whether `contrast` gives a p-value, and so takes its share of the false-alarm rate."""
    a, b = _usable(first), _usable(second)
    if not a or not b:
        return False
    infinite = np.isinf(_values([*a, *b]))
    if infinite.any():
        return infinite.size > 2 and not infinite.all()
    return difference(a, b, setup) is not None


def _usable(runs: Sequence[Measured]) -> list[Measured]:
    """The runs that have the quantity."""
    return [run for run in runs if run.usable]


def _tested(
    quantity: Quantity,
    a: Sequence[Measured],
    b: Sequence[Measured],
    setup: Setup,
    estimate: Difference,
) -> Contrast:
    """A contrast by a t test."""
    return Contrast(
        quantity,
        "not_separable",
        "",
        estimate.interval(setup.level),
        p_value=estimate.p_value,
        adjusted_p=estimate.p_value,
        method=estimate.method,
        freedom=estimate.freedom,
        runs=(len(a), len(b)),
        minimum_detectable=minimum_detectable(
            estimate.error, estimate.freedom, level=setup.strict_level
        )
        if estimate.error > 0
        else math.nan,
        seeds_needed=seeds_needed(estimate.value, estimate.variance, level=setup.strict_level),
    )


def _step_noise_alone(quantity: Quantity, a: Measured, b: Measured, setup: Setup) -> Contrast:
    r"""One run against one: what the noise of their steps leaves open.

    Ends as those of two intervals combined: $L = d - \sqrt{(\hat b - b_L)^2 + (a_U - \hat a)^2}$,
    and so above. The difference is real where seeds differ by less than $\tau = \sqrt{(d^2/z^2 -
    s^2)/2}$.

    Source: Donner and Zou (2012), Statistical Methods in Medical Research 21, 347-359, for the
    ends; the spread is derived here.
    """
    first, second, step = a.interval, b.interval, math.hypot(a.step_error, b.step_error)
    value = second.value - first.value
    low = value - math.hypot(second.value - second.low, first.high - first.value)
    high = value + math.hypot(second.high - second.value, first.value - first.low)
    half = value - low if value > 0 else high - value
    beyond = not low <= 0 <= high
    # The half-width stands for quantile times step error, its widening for unknown noise included.
    quantile = half / step if step > 0 else math.inf
    largest = (
        math.sqrt(max((value / quantile) ** 2 - step**2, 0.0) / 2)
        if beyond and 0 < quantile < math.inf
        else math.nan
    )
    return Contrast(
        quantity,
        "seed_noise_unknown" if beyond else "within_step_noise",
        "",
        Interval(value, low, high, setup.level),
        method="step_noise_alone",
        runs=(1, 1),
        minimum_detectable=minimum_detectable(step, math.inf, level=setup.level)
        if step > 0
        else math.nan,
        largest_seed_deviation=largest,
    )


def _ranked(
    quantity: Quantity,
    a: Sequence[Measured],
    b: Sequence[Measured],
    setup: Setup,
    rng: np.random.Generator,
) -> Contrast:
    """Times of which some are censored: ranks under relabelling, no interval."""
    counts = [int(np.isfinite(_values(runs)).sum()) for runs in (a, b)]
    rank_N = mean_ranks(_values([*a, *b]))
    several = len(rank_N) > 2 and any(counts)
    p_value = relabelled(rank_N, len(a), rng) if several else math.nan
    held = f"held in {counts[0]} of {len(a)} and in {counts[1]} of {len(b)} runs"
    return Contrast(
        quantity,
        "unavailable" if math.isnan(p_value) else "not_separable",
        held,
        nothing(setup.level),
        p_value=p_value,
        adjusted_p=p_value,
        method="rank_permutation",
        runs=(len(a), len(b)),
    )


def relabelled(value_R: Float, count: int, rng: np.random.Generator) -> float:
    """Two-sided p-value: the share of relabellings whose means differ at least as much.

    Of exchangeable runs; ties by rounding count. A sample counts the data as one of its draws.
    """
    total = len(value_R)
    exact = math.comb(total, count) <= MOST_RELABELLINGS
    every = (
        list(combinations(range(total), count))
        if exact
        else np.argsort(rng.random((MOST_RELABELLINGS, total)), axis=1)[:, :count]
    )
    sums = value_R[np.array(every)].sum(axis=1)
    differences = np.abs(sums / count - (value_R.sum() - sums) / (total - count))
    own = abs(float(value_R[:count].mean() - value_R[count:].mean()))
    extreme = int((differences >= own * (1 - 1e-12)).sum())
    return extreme / len(differences) if exact else (extreme + 1) / (len(differences) + 1)
