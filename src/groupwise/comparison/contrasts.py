r"""One quantity of two groups of runs: the difference, by the test that the seeds allow.

Two runs a group: Welch's t. One run in a group: the spread of seeds
is taken from the groups that have more. One run everywhere: step noise alone, and what the seeds
would have to be for the difference to be real. Where a level is not held, none. The variance of a
group is never taken below what its runs' step noise says. What runs are and where a group comes
from is not known here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from groupwise.arrays import Float
from groupwise.comparison.curves import within
from groupwise.comparison.results import Contrast, Measured, Method, Quantity, SeedNoise, nothing
from groupwise.comparison.seeds import minimum_detectable, seeds_needed
from groupwise.intervals import Interval
from groupwise.plain import frozen


@frozen
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


@frozen
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
    quantity: Quantity, first: Sequence[Measured], second: Sequence[Measured], setup: Setup
) -> Contrast:
    """Compare a quantity of two groups: second minus first."""
    a, b = _usable(first), _usable(second)
    held, problem = [int(np.isfinite(_values(runs)).sum()) for runs in (a, b)], ""
    if not a or not b:
        problem = next((run.problem for run in (*first, *second) if run.problem), "no run has it")
    elif sum(held) < len(a) + len(b):
        problem = f"held in {held[0]} of {len(a)} and in {held[1]} of {len(b)} runs"
    if problem:
        return Contrast(
            quantity, "unavailable", problem, nothing(setup.level), runs=(len(a), len(b))
        )
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
    if not a or not b or np.isinf(_values([*a, *b])).any():
        return False
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
