r"""One quantity of two groups of runs: the difference with an interval, by the test that the numbers of seeds allow.

Two runs a group: Welch's t. Pairs: t of their differences. One run in a group: the spread of seeds is taken from the groups that
have more, or as the user says it. One run everywhere: step noise alone, and what the seeds would have to be for the difference to
be real. Where a time was never reached, ranks. The variance of a group is never taken below what its runs' step noise says.
What runs are and where a group comes from is not known here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

import numpy as np

from groupwise.arrays import Float
from groupwise.comparison.results import NOTHING, UNTOLD, Contrast, Measured, Method, Quantity, SeedNoise
from groupwise.comparison.seeds import minimum_detectable, seeds_needed
from groupwise.errors import InvalidArgumentError
from groupwise.intervals import Interval

MOST_RELABELLINGS = 20_000
_NO_SEEDS = SeedNoise(NOTHING, 0, math.nan, math.nan)


@dataclass(frozen=True, slots=True)
class Setup:
    """What a contrast is judged by."""

    level: float  # coverage of the interval
    paired: bool  # whether run i of one group goes with run i of the other
    seeds: SeedNoise  # spread of the seeds from all groups
    known_deviation: float | None = None  # the spread of seeds as the user knows it, or None
    effect: float | None = None  # the smallest difference that matters, or None
    # contrasts that share the false-alarm rate: what would be found has to pass the strictest of Holm's
    # thresholds
    tests: int = 1
    span: float = math.inf  # the most that the quantity can differ by; infinite where that is not known

    @property
    def strict_level(self) -> float:
        """The level that a p-value has to pass before any other contrast did."""
        return 1 - (1 - self.level) / max(self.tests, 1)


@dataclass(frozen=True, slots=True)
class _Estimate:
    """A difference before it is judged; `variance` is that of which 1/n remains with n runs a group."""

    method: Method
    difference: float
    error: float
    freedom: float
    variance: float


def contrast(quantity: Quantity, first: Sequence[Measured], second: Sequence[Measured], setup: Setup, rng: np.random.Generator) -> Contrast:
    r"""Compare a quantity of two groups: second minus first.

    Example:
        >>> from groupwise.comparison.seeds import seed_noise
        >>> low, high = ([Measured(Interval(x, x, x), 0.0) for x in row] for row in ([0.1, 0.12, 0.11], [0.5, 0.53, 0.52]))
        >>> found = contrast("level", low, high, Setup(0.95, False, seed_noise([low, high])), np.random.default_rng(1))
        >>> found.method, found.p_value < 0.001, found.permutation_p
        ('welch', True, 0.1)
    """
    if setup.paired and len(first) != len(second):
        raise InvalidArgumentError(f"pairs need as many runs in one group as in the other; got {len(first)} and {len(second)}")
    a, b = _usable(first, second, paired=setup.paired)
    if not a or not b:
        problem = _left_out(first, second) or next((run.problem for run in (*first, *second) if run.problem), "no run has it")
        nothing = Interval(math.nan, -math.inf, math.inf, setup.level)
        return Contrast(quantity, "unavailable", problem, nothing, runs=(len(a), len(b)))
    if any(math.isinf(run.value) for run in (*a, *b)):
        return _ranked(quantity, a, b, setup, rng)
    estimate = _estimate(a, b, setup)
    step = math.hypot(_mean_error(a), _mean_error(b))
    found = _step_noise_alone(quantity, a, b, setup, step) if estimate is None else _judged(quantity, a, b, setup, estimate, step, rng)
    found = replace(found, left_out=_left_out(first, second))
    return replace(found, minimum_detectable=math.nan) if found.minimum_detectable > setup.span else found


def _left_out(first: Sequence[Measured], second: Sequence[Measured]) -> str:
    """How many plateaus cannot be told, and what to look at; "" where all can."""
    every = [*first, *second]
    untold = sum(run.problem == UNTOLD for run in every)
    return f"the plateau of {untold} of {len(every)} runs cannot be told: compare the level" if untold else ""


def is_tested(first: Sequence[Measured], second: Sequence[Measured], setup: Setup) -> bool:
    """Return whether `contrast` gives a p-value, and so takes its share of the false-alarm rate.

    Example:
        >>> one = [Measured(Interval(0.1, 0.1, 0.1), 0.0)]
        >>> is_tested(one, one, Setup(0.95, False, _NO_SEEDS)), is_tested(one * 2, one * 2, Setup(0.95, False, _NO_SEEDS))
        (False, True)
    """
    a, b = _usable(first, second, paired=setup.paired)
    if not a or not b:
        return False
    values = [run.value for run in (*a, *b)]
    if any(math.isinf(value) for value in values):
        return len(values) > 2 and any(math.isfinite(value) for value in values)
    return _estimate(a, b, setup) is not None


def seed_test(first: Sequence[Measured], second: Sequence[Measured], *, paired: bool = False) -> float:
    """Return the p-value of no difference beyond the scatter of runs: Welch's t, or that of pairs.

    Example:
        >>> a, b = ([Measured(Interval(x, x, x), 0.0) for x in row] for row in ([0.1, 0.2], [0.9, 1.0]))
        >>> round(seed_test(a, b), 4)
        0.0077
    """
    found = _estimate(first, second, Setup(0.95, paired, _NO_SEEDS))
    assert found is not None  # there are two runs in each
    return _p_value(found)


def _p_value(found: _Estimate) -> float:
    """Two-sided; 1 where runs are equal to the last digit, which says nothing of how far others would scatter."""
    from scipy.special import ndtr, stdtr

    if not found.error > 0:
        return 1.0
    score = -abs(found.difference) / found.error
    return 2 * float(ndtr(score) if math.isinf(found.freedom) else stdtr(found.freedom, score))


def _usable(first: Sequence[Measured], second: Sequence[Measured], *, paired: bool) -> tuple[list[Measured], list[Measured]]:
    """The runs that have the quantity; of pairs those where both have it."""
    if paired:
        both = [(a, b) for a, b in zip(first, second, strict=True) if a.usable and b.usable]
        return [a for a, _ in both], [b for _, b in both]
    return [run for run in first if run.usable], [run for run in second if run.usable]


def _mean_error(runs: Sequence[Measured]) -> float:
    """Standard error of the mean of a group by step noise alone."""
    return math.sqrt(sum(run.step_error**2 for run in runs)) / len(runs)


def _step(runs: Sequence[Measured]) -> float:
    """Mean variance of a run's value by step noise."""
    return float(np.mean([run.step_error**2 for run in runs]))


def _estimate(a: Sequence[Measured], b: Sequence[Measured], setup: Setup) -> _Estimate | None:
    """The difference with its standard error, by the first method that applies; None where nothing tells the spread of seeds."""
    x, y = np.array([run.value for run in a]), np.array([run.value for run in b])
    difference = float(y.mean() - x.mean())
    if setup.known_deviation is not None:
        variance = 2 * setup.known_deviation**2 + _step(a) + _step(b)
        error = math.sqrt(setup.known_deviation**2 * (1 / len(x) + 1 / len(y)) + _mean_error(a) ** 2 + _mean_error(b) ** 2)
        return _Estimate("known_seed_noise", difference, error, math.inf, variance)
    if setup.paired and len(x) > 1:
        variance = max(float((y - x).var(ddof=1)), _step(a) + _step(b))
        return _Estimate("paired_t", difference, math.sqrt(variance / len(x)), len(x) - 1.0, variance)
    if len(x) > 1 and len(y) > 1:
        parts = [(max(float(v.var(ddof=1)), _step(runs)), len(v)) for v, runs in ((x, a), (y, b))]
        shares = [variance / count for variance, count in parts]
        error2 = sum(shares)
        below = sum(share**2 / (count - 1) for share, (_, count) in zip(shares, parts, strict=True))
        freedom = error2**2 / below if below > 0 else len(x) + len(y) - 2.0
        return _Estimate("welch", difference, math.sqrt(error2), freedom, parts[0][0] + parts[1][0])
    if setup.seeds.freedom > 0 and not setup.paired:
        variance = max(setup.seeds.between, _step([*a, *b]))
        error = math.sqrt(variance * (1 / len(x) + 1 / len(y)))
        return _Estimate("pooled_t", difference, error, float(setup.seeds.freedom), 2 * variance)
    return None


def _judged(
    quantity: Quantity, a: Sequence[Measured], b: Sequence[Measured], setup: Setup, found: _Estimate, step: float, rng: np.random.Generator
) -> Contrast:
    """A contrast by a t test."""
    from scipy.special import ndtri, stdtrit

    half_level = 0.5 + setup.level / 2
    point = float(ndtri(half_level) if math.isinf(found.freedom) else stdtrit(found.freedom, half_level))
    p_value = _p_value(found)
    half = point * found.error if found.error > 0 else math.inf
    asked = found.difference if setup.effect is None else setup.effect
    return Contrast(
        quantity,
        "not_separable",
        "",
        Interval(found.difference, found.difference - half, found.difference + half, setup.level),
        p_value=p_value,
        adjusted_p=p_value,
        permutation_p=_permutation_p(a, b, setup, rng),
        method=found.method,
        freedom=found.freedom,
        runs=(len(a), len(b)),
        step_error=step,
        minimum_detectable=minimum_detectable(found.error, found.freedom, level=setup.strict_level) if found.error > 0 else math.nan,
        seeds_needed=seeds_needed(asked, found.variance, paired=found.method == "paired_t", level=setup.strict_level),
        asked=abs(asked),
    )


def _step_noise_alone(quantity: Quantity, a: Sequence[Measured], b: Sequence[Measured], setup: Setup, step: float) -> Contrast:
    r"""One run against one: what the noise of their steps leaves open.

    Ends as those of two intervals combined: $L = d - \sqrt{(\hat b - b_L)^2 + (a_U - \hat a)^2}$, and so above. The difference is real
    where seeds differ by less than $\tau = \sqrt{(d^2/z^2 - s^2)/2}$.

    Source: Donner and Zou (2012), Statistical Methods in Medical Research 21, 347-359, for the ends; the spread is derived here.
    """
    first, second = a[0].interval, b[0].interval
    difference = second.value - first.value
    low = difference - math.hypot(second.value - second.low, first.high - first.value)
    high = difference + math.hypot(second.high - second.value, first.value - first.low)
    half = difference - low if difference > 0 else high - difference
    beyond = not low <= 0 <= high
    # The half-width stands for quantile times step error, its widening for unknown noise included.
    quantile = half / step if step > 0 and math.isfinite(half) else math.inf
    largest = math.sqrt(max((difference / quantile) ** 2 - step**2, 0.0) / 2) if beyond and math.isfinite(quantile) else math.nan
    return Contrast(
        quantity,
        "seed_noise_unknown" if beyond else "within_step_noise",
        "",
        Interval(difference, low, high, setup.level),
        method="step_noise_alone",
        runs=(1, 1),
        step_error=step,
        minimum_detectable=minimum_detectable(step, math.inf, level=setup.level) if step > 0 else math.nan,
        asked=abs(difference if setup.effect is None else setup.effect),
        largest_seed_deviation=largest,
    )


def _ranked(quantity: Quantity, a: Sequence[Measured], b: Sequence[Measured], setup: Setup, rng: np.random.Generator) -> Contrast:
    """Times of which some were never reached: ranks under relabelling, no interval."""
    from scipy.stats import rankdata

    counts = [sum(math.isfinite(run.value) for run in runs) for runs in (a, b)]
    rank = rankdata([run.value for run in (*a, *b)])
    p_value = _relabelled(rank, len(a), rng) if sum(counts) and (len(a) > 1 or len(b) > 1) else math.nan
    said = f"reached in {counts[0]} of {len(a)} and in {counts[1]} of {len(b)} runs"
    return Contrast(
        quantity,
        "unavailable" if math.isnan(p_value) else "not_separable",
        said,
        Interval(math.nan, -math.inf, math.inf, setup.level),
        p_value=p_value,
        adjusted_p=p_value,
        permutation_p=p_value,
        method="rank_permutation",
        runs=(len(a), len(b)),
    )


def _permutation_p(a: Sequence[Measured], b: Sequence[Measured], setup: Setup, rng: np.random.Generator) -> float:
    """Two-sided, of exchangeable runs, or of pairs whose sides may be swapped."""
    x, y = np.array([run.value for run in a]), np.array([run.value for run in b])
    if setup.paired:
        return _flipped(y - x, rng) if len(x) > 1 else math.nan
    return _relabelled(np.concatenate([x, y]), len(x), rng) if len(x) + len(y) > 2 else math.nan


def _relabelled(value_R: Float, count: int, rng: np.random.Generator) -> float:
    """Share of relabellings whose means differ at least as much."""
    total = len(value_R)
    if math.comb(total, count) <= MOST_RELABELLINGS:
        chosen = np.array(list(combinations(range(total), count)))
        exact = True
    else:
        chosen = np.argsort(rng.random((MOST_RELABELLINGS, total)), axis=1)[:, :count]
        exact = False
    sums = value_R[chosen].sum(axis=1)
    differences = np.abs(sums / count - (value_R.sum() - sums) / (total - count))
    own = abs(float(value_R[:count].mean() - value_R[count:].mean()))
    return _share(differences, own, exact=exact)


def _flipped(difference_R: Float, rng: np.random.Generator) -> float:
    """Share of sign flips whose mean is at least as large."""
    count = len(difference_R)
    exact = 2**count <= MOST_RELABELLINGS
    signs = np.array(list(product((1.0, -1.0), repeat=count))) if exact else rng.choice([1.0, -1.0], size=(MOST_RELABELLINGS, count))
    return _share(np.abs(signs @ difference_R) / count, abs(float(difference_R.mean())), exact=exact)


def _share(drawn: Float, own: float, *, exact: bool) -> float:
    """Share at least as large, ties by rounding included; a sample counts the data as one of its draws."""
    extreme = int((drawn >= own * (1 - 1e-12)).sum())
    return extreme / len(drawn) if exact else (extreme + 1) / (len(drawn) + 1)
