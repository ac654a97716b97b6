"""Values with intervals, and Wilson's interval of a proportion."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import brentq
from scipy.stats import binom, norm
from tests.cases import each_case

from groupwise.errors import InvalidArgumentError
from groupwise.intervals import (
    Interval,
    effective_freedom,
    finite_or_none,
    mean_interval,
    percent,
    ratio_interval,
    student_quantile,
    wilson,
)


def test_an_interval_covers_its_ends_and_nothing_beyond() -> None:
    interval = Interval(0.5, 0.2, 0.7)
    assert interval.covers(0.2)
    assert interval.covers(0.7)
    assert not interval.covers(0.7000001)
    assert not interval.covers(0.1999999)
    assert interval.width == pytest.approx(0.5)
    assert interval.level == 0.95


@each_case(
    ("low", "high"), [(-math.inf, 1.0), (0.0, math.inf), (-math.inf, math.inf), (math.nan, 1.0)]
)
def test_a_missing_end_is_not_bounded_and_not_in_json(low: float, high: float) -> None:
    interval = Interval(0.5, low, high)
    assert not interval.bounded
    text = json.dumps(interval.as_dict(), allow_nan=False)
    assert "null" in text
    assert list(interval.as_dict()) == ["value", "low", "high", "level"]


def test_only_finite_numbers_are_kept() -> None:
    assert finite_or_none(1.5) == 1.5
    assert [finite_or_none(v) for v in (math.nan, math.inf, -math.inf)] == [None, None, None]


@each_case(
    ("successes", "trials", "level"),
    [(9, 10, 0.95), (0, 20, 0.9), (20, 20, 0.99), (3.5, 7.2, 0.95)],
)
def test_wilson_inverts_the_score_test(successes: float, trials: float, level: float) -> None:
    """An end p satisfies |share - p| = z sqrt(p (1-p) / n)."""
    interval, z = wilson(successes, trials, level=level), norm.ppf(0.5 + level / 2)
    share = successes / trials

    def excess(p: float) -> float:
        return float((share - p) ** 2 - z**2 * p * (1 - p) / trials)

    assert interval.value == pytest.approx(share)
    if share > 0:
        assert interval.low == pytest.approx(brentq(excess, 1e-12, share - 1e-9), abs=1e-9)
    if share < 1:
        assert interval.high == pytest.approx(brentq(excess, share + 1e-9, 1 - 1e-12), abs=1e-9)
    assert 0 <= interval.low <= share <= interval.high <= 1


def test_wilson_covers_at_about_its_level() -> None:
    """Exact coverage at n = 50 over p from .1 to .9 stays within .91 and .99."""
    ends = [wilson(k, 50) for k in range(51)]
    for p in (0.1, 0.3, 0.5, 0.7, 0.9):
        assert 0.91 < sum(binom.pmf(k, 50, p) for k in range(51) if ends[k].covers(p)) < 0.99


@each_case(("successes", "trials"), [(1, 0), (-1, 5), (6, 5), (math.nan, 5), (1, math.nan)])
def test_impossible_counts_are_refused(successes: float, trials: float) -> None:
    with pytest.raises(InvalidArgumentError, match="a proportion needs 0 <= successes <= trials"):
        wilson(successes, trials)


@each_case("level", [0.0, 1.0, 2.0, math.nan])
def test_wilson_refuses_a_level_outside_zero_and_one(level: float) -> None:
    with pytest.raises(InvalidArgumentError):
        wilson(5, 10, level=level)


SKEW = np.array([0.0, 0.1, 0.2, 0.1, 3.0, 0.4, 0.0, 0.7])


def freedom_by_hand(values: np.ndarray) -> float:
    """2n/(kurtosis - 1) between 2 and n - 1, by scipy's kurtosis."""
    return float(
        np.clip(2 * len(values) / (stats.kurtosis(values, fisher=False) - 1), 2, len(values) - 1)
    )


@each_case("values", [SKEW, -SKEW, np.array([1.0, 2.0, 4.0, 8.0, 16.0]), np.arange(30.0) ** 3])
@each_case("level", [0.95, 0.5])
def test_the_interval_of_a_mean_inverts_halls_cubic(values: np.ndarray, level: float) -> None:
    """Every end is mean - s/sqrt(n) T, with T the root of T + skew (T^2/3 + 1/6)/sqrt(n) + skew^2
    T^3/(27 n) at Student's quantile.

    The skewness is the sample's, times 1 + 2.4/sqrt(n).
    """
    n = len(values)
    skew = float(stats.skew(values)) * (1 + 2.4 / math.sqrt(n))
    quantile = stats.t.ppf(0.5 + level / 2, freedom_by_hand(values))

    def cubic(x: float) -> float:
        return float(x + skew * (x**2 / 3 + 1 / 6) / math.sqrt(n) + skew**2 * x**3 / (27 * n))

    ends = [
        values.mean()
        - stats.sem(values) * brentq(lambda x, t=t: cubic(x) - t, -1e3, 1e3, xtol=1e-13)
        for t in (quantile, -quantile)
    ]
    interval = mean_interval(values, level=level)
    assert (interval.value, interval.low, interval.high) == pytest.approx(
        (values.mean(), *ends), rel=1e-9
    )
    assert interval.level == level


def test_without_skewness_the_interval_of_a_mean_is_students() -> None:
    values = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
    half = stats.t.ppf(0.975, 4) * math.sqrt(2.5 / 5)  # kurtosis 1.7: 2n/(.7) is above n - 1
    assert effective_freedom(values) == 4
    assert (mean_interval(values).low, mean_interval(values).high) == pytest.approx(
        (-half, half), rel=1e-12
    )


def test_means_of_few_or_equal_numbers() -> None:
    assert (
        mean_interval(np.array([1.0, 3.0])).value,
        mean_interval(np.array([1.0, 3.0])).high,
    ) == (2.0, math.inf)
    assert mean_interval(np.full(5, 0.3)).width == 0
    assert mean_interval(np.array([1.0, 2.0, 4.0])).bounded
    assert math.isnan(mean_interval(np.array([])).value)


def test_heavy_tails_have_little_freedom() -> None:
    heavy = np.array([0.0] * 62 + [1.0, 9.0])
    assert effective_freedom(heavy) == pytest.approx(
        2 * 64 / (stats.kurtosis(heavy, fisher=False) - 1), rel=1e-12
    )
    assert effective_freedom(heavy) < 5
    assert effective_freedom(np.array([0.0] * 30 + [1.0])) == pytest.approx(
        2 * 31 / (stats.kurtosis([0.0] * 30 + [1.0], fisher=False) - 1)
    )
    assert effective_freedom(np.full(7, 2.0)) == 6
    assert effective_freedom(np.array([-1.0, 1.0])) == 1


def test_students_quantile_is_that_of_the_tables() -> None:
    assert [round(student_quantile(0.95, freedom), 3) for freedom in (1, 10, 30)] == [
        12.706,
        2.228,
        2.042,
    ]
    assert student_quantile(0.9, 5) == pytest.approx(stats.t.ppf(0.95, 5), rel=1e-12)
    for level in (0.0, 1.0):
        with pytest.raises(InvalidArgumentError, match="between 0 and 1"):
            student_quantile(level, 3)


COVARIANCE = np.array([[0.04, 0.01], [0.01, 0.09]])


def test_a_ratio_with_a_denominator_that_is_surely_positive_is_the_delta_method_on_the_logarithm() -> (
    None
):
    interval = ratio_interval(2.0, 4.0, COVARIANCE, 2.0)
    error = math.sqrt(0.04 / 4 - 2 * 0.01 / 8 + 0.09 / 16)
    assert (interval.value, interval.low, interval.high) == pytest.approx(
        (0.5, 0.5 * math.exp(-2 * error), 0.5 * math.exp(2 * error)), rel=1e-12
    )


def fieller(
    numerator: float, denominator: float, quantile: float, covariance: np.ndarray = COVARIANCE
) -> np.ndarray:
    """The ratios that the data do not exclude, from a fine grid: (a - rho b)^2 <= t^2 Var(a -
    rho b).
    """
    rho = np.linspace(0, 400, 4_000_001)
    variance = covariance[0, 0] - 2 * rho * covariance[0, 1] + rho**2 * covariance[1, 1]
    return np.asarray(rho[(numerator - rho * denominator) ** 2 <= quantile**2 * variance])


@pytest.mark.slow
def test_a_ratio_with_a_denominator_that_may_be_zero_has_no_upper_end() -> None:
    interval = ratio_interval(2.0, 0.3, COVARIANCE, 2.0)
    error = math.sqrt(
        0.04 / 4 - 2 * 0.01 / (2 * 0.6) + 0.09 / 0.6**2
    )  # at 0.6, the least denominator that is told from zero
    allowed = fieller(2.0, 0.3, 2.0)
    assert allowed[-1] == 400
    assert interval.high == math.inf
    assert interval.low == pytest.approx(min(allowed[0], 2 / 0.6 * math.exp(-2 * error)), abs=2e-4)
    nearly = ratio_interval(
        2.0, 1e-9, COVARIANCE, 2.0
    )  # an estimate of next to nothing is no reason for a lower end of zero
    assert nearly.low == pytest.approx(interval.low, rel=1e-12)
    below = ratio_interval(2.0, -0.1, COVARIANCE, 2.0)
    assert (below.value, below.high) == (math.inf, math.inf)
    assert below.low == pytest.approx(fieller(2.0, -0.1, 2.0)[0], abs=2e-4)
    assert below.low > 1


def test_a_ratio_whose_numerator_may_be_zero_starts_at_zero() -> None:
    assert ratio_interval(0.3, 0.3, COVARIANCE, 2.0).low == 0
    assert (
        ratio_interval(-2.0, 0.3, COVARIANCE, 2.0).low == 0
    )  # surely negative, where no such ratio lies
    interval = ratio_interval(-0.1, 3.0, COVARIANCE, 2.0)
    assert (interval.value, interval.low) == (0, 0)
    assert interval.high == pytest.approx(fieller(-0.1, 3.0, 2.0)[-1], abs=2e-4)
    assert ratio_interval(0.0, 0.0, np.zeros((2, 2)), 2.0).value == math.inf
    tiny = ratio_interval(1e-100, 1.0, COVARIANCE, 2.0)
    assert tiny.low == 0
    assert math.isfinite(tiny.high)


def test_fiellers_lower_end_needs_a_numerator_that_is_surely_positive() -> None:
    """Where both go together the roots are positive although 0 is not excluded; where both are
    negative they bound another ratio.
    """
    together = np.array([[0.04, 0.05], [0.05, 0.09]])
    assert fieller(0.3, 0.1, 2.0, together)[0] == 0
    assert ratio_interval(0.3, 0.1, together, 2.0).low == 0
    assert ratio_interval(-2.0, -0.1, COVARIANCE, 2.0).low == 0
    surely = ratio_interval(
        2.0, -4.0, COVARIANCE, 2.0
    )  # the denominator is surely negative, where no such quantity lies
    assert (surely.value, surely.low, surely.high) == (math.inf, 0, math.inf)


def test_shares_are_told_in_per_cent() -> None:
    assert [percent(share) for share in (0.95, 0.9996, 0.995, 0.5, 1.0, 0.0, 1.2, 0.9949)] == [
        *("95 %", "99.96 %", "99.5 %", "50 %", "100 %", "0 %", "120 %", "99 %"),
    ]


def test_the_ends_of_a_ratio_by_hand_at_a_quantile_whose_square_is_not_its_double() -> None:
    covariance = np.array([[0.25, 0.05], [0.05, 0.04]])
    # 0.5 is the least that is told from zero; the variance of log(2 / 0.5) is 0.25/4 - 2 * 0.05/1 +
    # 0.04/0.25 = 0.35^2.
    interval = ratio_interval(2.0, 0.3, covariance, 2.5)
    assert interval.low == pytest.approx(4 / math.exp(2.5 * 0.35), rel=1e-12)
    assert interval.high == math.inf
    # Fieller alone, since a denominator below zero has no logarithm: 0.24 rho^2 - 1.025 rho -
    # 2.4375 = 0 at the lower end.
    below = ratio_interval(2.0, -0.1, covariance, 2.5)
    assert below.low == pytest.approx(
        (0.5125 + math.sqrt(0.5125**2 + 0.24 * 2.4375)) / 0.24, rel=1e-12
    )
    rho = below.low
    assert (2 + 0.1 * rho) ** 2 == pytest.approx(
        2.5**2 * (0.25 - 2 * rho * 0.05 + rho**2 * 0.04), rel=1e-9
    )


def test_two_draws_bound_no_mean() -> None:
    interval = mean_interval(np.array([1.0, 2.0]))
    assert (interval.value, interval.low, interval.high) == (1.5, -math.inf, math.inf)
