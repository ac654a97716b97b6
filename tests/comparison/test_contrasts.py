"""Differences of groups: exact answers where there are some, rates in simulation, and refusals.

Sampling tests allow three standard errors of a proportion beyond the nominal rate: each fails by chance in less than 1 of 700 changes
of the random numbers, and never with those that are fixed here.
"""

from __future__ import annotations

import dataclasses
import math
from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate, stats

from groupwise.comparison.compare import Question, compare
from groupwise.comparison.contrasts import Setup, contrast, is_tested
from groupwise.comparison.curves import Curve
from groupwise.comparison.results import Contrast, Measured, SeedNoise, missing
from groupwise.comparison.seeds import minimum_detectable, power, seed_noise, seeds_needed
from groupwise.comparison.verdicts import holm, judged
from groupwise.errors import InvalidArgumentError
from groupwise.intervals import Interval


def exactly(*values: float, error: float = 0.0) -> list[Measured]:
    return [Measured(Interval(value, value - 1.96 * error, value + 1.96 * error), error) for value in values]


def setup(*groups: list[Measured], paired: bool = False, known: float | None = None) -> Setup:
    return Setup(0.95, paired, seed_noise(groups), known)


RNG = np.random.default_rng(0)
A, B = exactly(0.1, 0.2, 0.15, 0.12), exactly(0.3, 0.25, 0.5)


def test_two_groups_are_welch() -> None:
    found = contrast("level", A, B, setup(A, B), RNG)
    expected = stats.ttest_ind([r.value for r in B], [r.value for r in A], equal_var=False)
    interval = expected.confidence_interval(0.95)
    assert found.method == "welch"
    assert found.p_value == pytest.approx(expected.pvalue, rel=1e-10)
    assert (found.difference.low, found.difference.high) == pytest.approx((interval.low, interval.high), rel=1e-10)
    assert found.freedom == pytest.approx(expected.df)


def test_pairs_are_the_t_of_their_differences_and_sign_flips_are_exact() -> None:
    found = contrast("level", A[:3], B, setup(A, B, paired=True), RNG)
    expected = stats.ttest_rel([r.value for r in B], [r.value for r in A[:3]])
    assert found.method == "paired_t"
    assert found.p_value == pytest.approx(expected.pvalue, rel=1e-10)
    assert found.permutation_p == 2 / 8  # all differences have one sign: that and its mirror of 2^3


def test_one_run_against_many_takes_their_spread() -> None:
    found = contrast("level", A, B[:1], setup(A, B[:1]), RNG)
    expected = stats.ttest_ind([0.3], [r.value for r in A], equal_var=True)
    assert found.method == "pooled_t"
    assert found.p_value == pytest.approx(expected.pvalue, rel=1e-10)


def test_relabelling_is_exact() -> None:
    found = contrast("level", exactly(1, 2, 3), exactly(4, 5, 6), setup(A, B), RNG)
    assert found.permutation_p == 2 / 20
    # Too many relabellings to take all: a sample of them, about the exact 2/C(20, 10) of such groups.
    many = contrast("level", exactly(*range(10)), exactly(*range(10, 20)), setup(A, B), RNG)
    assert many.permutation_p < 3e-4


def test_one_run_each_says_that_seeds_are_unknown_and_bounds_them() -> None:
    a, b = exactly(0.2, error=0.01), exactly(0.3, error=0.01)
    found = contrast("level", a, b, setup(a, b), RNG)
    assert (found.status, found.method) == ("seed_noise_unknown", "step_noise_alone")
    assert math.isnan(found.p_value)
    # A seed spread at the bound brings the interval's end exactly to zero.
    at_bound = 1.96 * math.sqrt(2 * found.largest_seed_deviation**2 + 2 * 0.01**2)
    assert at_bound == pytest.approx(0.1, rel=1e-6)
    near = contrast("level", a, exactly(0.21, error=0.01), setup(a, b), RNG)
    assert near.status == "within_step_noise"
    assert math.isnan(near.largest_seed_deviation)


def test_seed_noise_known_beforehand_settles_one_run_each() -> None:
    a, b = exactly(0.2, error=0.01), exactly(0.3, error=0.01)
    found = contrast("level", a, b, setup(a, b, known=0.02), RNG)
    assert found.method == "known_seed_noise"
    assert found.p_value == pytest.approx(2 * stats.norm.sf(0.1 / math.sqrt(2 * 0.02**2 + 2 * 0.01**2)))


def test_step_noise_is_a_floor() -> None:
    """Two seeds that coincide by chance cannot be surer than their steps."""
    a, b = exactly(0.2, 0.2001, error=0.05), exactly(0.25, 0.2501, error=0.05)
    found = contrast("level", a, b, setup(a, b), RNG)
    assert found.p_value > 0.2
    assert found.difference.high - found.difference.value > 0.05


def test_runs_equal_to_the_digit_prove_nothing() -> None:
    a, b = exactly(0.2, 0.2), exactly(0.3, 0.3)
    found = contrast("level", a, b, setup(a, b), RNG)
    assert found.p_value == 1.0
    assert not found.difference.bounded


def test_a_level_never_reached_is_ranked() -> None:
    fast, never = exactly(10, 12, 11, 14), [Measured(Interval(math.inf, 50, math.inf), 1.0)] * 4
    found = contrast("speed", fast, never, setup(fast, never), RNG)
    assert found.method == "rank_permutation"
    assert found.p_value == 2 / math.comb(8, 4)
    assert math.isnan(found.difference.value)


def test_what_is_missing_is_said() -> None:
    found = contrast("plateau", [missing("no law holds")], exactly(0.3), setup(A, B), RNG)
    assert (found.status, found.message) == ("unavailable", "no law holds")
    with pytest.raises(InvalidArgumentError, match="as many runs"):
        contrast("level", A, B, setup(A, B, paired=True), RNG)


def test_holm_is_the_textbook() -> None:
    """Values of R's p.adjust(c(.01, .02, .03, .005), 'holm'), worked by hand."""
    assert holm([0.01, 0.02, 0.03, 0.005]) == pytest.approx([0.03, 0.04, 0.04, 0.02])


def test_equivalence_needs_the_whole_interval_inside() -> None:
    a, b = exactly(0.1, 0.11, 0.12), exactly(0.11, 0.12, 0.13)
    found = contrast("level", a, b, setup(a, b), RNG)
    assert judged(found, 0.5, level=0.95, effect=0.1, tests=1).status == "equivalent"
    assert judged(found, 0.5, level=0.95, effect=0.02, tests=1).status == "not_separable"
    turned = contrast("level", b, a, setup(a, b), RNG)
    assert judged(turned, 0.5, level=0.95, effect=0.1, tests=1).status == "equivalent"
    assert judged(turned, 0.5, level=0.95, effect=0.02, tests=1).status == "not_separable"


@pytest.mark.parametrize("freedom", [1.0, 4.0, 30.0])
@pytest.mark.parametrize("shift", [0.0, 1.0, 3.0, 10.0])
def test_power_against_an_integral(freedom: float, shift: float) -> None:
    """T is a shifted normal over the root of chi-square by its freedom: integrate over the latter."""
    point = stats.t.ppf(0.975, freedom)

    def density(root: float) -> float:
        beyond = stats.norm.sf(point * root - shift) + stats.norm.cdf(-point * root - shift)
        return float(beyond * stats.chi.pdf(root * math.sqrt(freedom), freedom) * math.sqrt(freedom))

    expected, _ = integrate.quad(density, 0, 8, limit=200)
    assert power(shift, freedom) == pytest.approx(expected, abs=1e-6)


def test_minimum_detectable_and_seeds_needed_agree() -> None:
    """With the seeds that a difference needs, that difference is detectable; with one fewer it is not."""
    for difference in (0.3, 1.0, 3.0):
        runs = seeds_needed(difference, 2.0)
        assert runs is not None
        assert minimum_detectable(math.sqrt(2.0 / runs), 2.0 * (runs - 1)) <= difference
        if runs > 2:
            assert minimum_detectable(math.sqrt(2.0 / (runs - 1)), 2.0 * (runs - 2)) > difference
    assert seeds_needed(1e-6, 2.0) is None


def test_seed_noise_is_the_sample_deviation_without_step_noise() -> None:
    found = seed_noise([A, B])
    within = [np.var([r.value for r in group], ddof=1) * (len(group) - 1) for group in (A, B)]
    assert found.freedom == 5
    assert found.deviation.value == pytest.approx(math.sqrt(sum(within) / 5))
    low, high = (math.sqrt(sum(within) / stats.chi2.ppf(q, 5)) for q in (0.975, 0.025))
    assert (found.deviation.low, found.deviation.high) == pytest.approx((low, high), rel=1e-6)


def test_seed_noise_of_single_runs_is_open() -> None:
    found = seed_noise([A[:1], B[:1]])
    assert found.freedom == 0
    assert (found.deviation.low, found.deviation.high) == (0.0, math.inf)


def drawn(rng: np.random.Generator, runs: int, mean: float, spread: float, error: float) -> list[Measured]:
    return exactly(*(mean + rng.normal(0, spread, runs) + rng.normal(0, error, runs)), error=error)


@pytest.mark.parametrize(("runs", "spread"), [((2, 2), 0.05), ((3, 3), 0.05), ((5, 5), 0.05), ((1, 4), 0.05), ((3, 3), 0.0)])
def test_false_alarms_and_coverage_hold(runs: tuple[int, int], spread: float) -> None:
    rng, alarms, covered, seeds, n = np.random.default_rng(7), 0, 0, 0, 400
    for _ in range(n):
        a, b = drawn(rng, runs[0], 0.4, spread, 0.02), drawn(rng, runs[1], 0.7, spread, 0.02)
        found = contrast("level", a, b, setup(a, b), rng)
        covered += found.difference.covers(0.3)
        seeds += seed_noise([a, b]).deviation.covers(spread)
        same = drawn(rng, runs[1], 0.4, spread, 0.02)
        alarms += contrast("level", a, same, setup(a, same), rng).p_value < 0.05
    allowance = 3 * math.sqrt(0.05 * 0.95 / n)
    assert alarms / n < 0.05 + allowance
    assert covered / n > 0.95 - allowance
    assert seeds / n > 0.95 - allowance


def test_power_is_what_the_minimum_detectable_effect_promises() -> None:
    """At the true minimum detectable difference four of five comparisons find it."""
    rng, found, n, spread = np.random.default_rng(8), 0, 600, 0.05
    difference = minimum_detectable(spread * math.sqrt(2 / 4), 6.0)
    for _ in range(n):
        a, b = drawn(rng, 4, 0.4, spread, 0.0), drawn(rng, 4, 0.4 + difference, spread, 0.0)
        found += contrast("level", a, b, setup(a, b), rng).p_value < 0.05
    assert abs(found / n - 0.8) < 3 * math.sqrt(0.16 / n) + 0.01  # Welch gives up a little where spreads are equal


def test_what_would_be_found_is_found_beside_other_contrasts() -> None:
    """Four contrasts share the rate: the difference usually stated passes the strictest threshold in about four of five."""
    rng, n = np.random.default_rng(10), 200

    def drawn_with(shift: float) -> Contrast:
        a, b = drawn(rng, 6, 0.0, 0.1, 0.0), drawn(rng, 6, shift, 0.1, 0.0)
        return contrast("level", a, b, dataclasses.replace(setup(a, b), tests=4), rng)

    usual = float(np.median([drawn_with(0.0).minimum_detectable for _ in range(n)]))
    found = sum(holm([drawn_with(usual).p_value, 1.0, 1.0, 1.0])[0] < 0.05 for _ in range(n))
    assert abs(found / n - 0.8) < 3 * math.sqrt(0.16 / n)


def test_more_groups_take_a_larger_difference() -> None:
    rng, step = np.random.default_rng(11), np.arange(60.0)
    groups = [
        [Curve(step, own + rng.normal(0, 0.01, 60), np.full(60, own), exactly(own)[0]) for own in rng.normal(0, 0.1, 3)] for _ in range(3)
    ]
    few, many = (compare(groups[:n], ["a", "b", "c"][:n], Question(), rng).pairings[0].contrasts[0] for n in (2, 3))
    assert few.difference == many.difference
    assert few.minimum_detectable < many.minimum_detectable


def test_a_real_difference_below_what_matters_is_the_same() -> None:
    a, b = exactly(0.5, 0.501, 0.499), exactly(0.51, 0.511, 0.509)
    found = contrast("level", a, b, setup(a, b), RNG)
    assert found.p_value < 0.001
    assert judged(found, found.p_value, level=0.95, effect=0.1, tests=1).status == "equivalent"
    assert judged(found, found.p_value, level=0.95, effect=0.001, tests=1).status == "different"


def test_what_is_tested_gives_a_p_value() -> None:
    never = exactly(math.inf, math.inf)
    for a, b in ((A, B), (A[:1], B[:1]), (A, never), (never, never), (A, []), (A[:1], never[:1])):
        assert is_tested(a, b, setup(a, b)) == math.isfinite(contrast("speed", a, b, setup(a, b), RNG).p_value)


def test_pairs_find_what_shared_seeds_hide() -> None:
    """Negative control and its opposite: seeds that move both runs alike drown an unpaired test, not a paired one."""
    rng = np.random.default_rng(9)
    shared = rng.normal(0, 0.3, 5)
    a, b = exactly(*shared), exactly(*(shared + 0.1 + rng.normal(0, 0.01, 5)))
    assert contrast("level", a, b, setup(a, b), RNG).p_value > 0.3
    assert contrast("level", a, b, setup(a, b, paired=True), RNG).p_value < 0.001


def test_more_noise_never_makes_it_surer() -> None:
    p = [
        contrast("level", x, y, setup(x, y), RNG).p_value
        for e in (0.0, 0.02, 0.1)
        for x, y in [(exactly(0.1, 0.13, error=e), exactly(0.3, 0.35, error=e))]
    ]
    assert all(first <= second for first, second in pairwise(p))


def test_results_are_plain_data() -> None:
    found = contrast("level", A, B, setup(A, B), RNG)
    data = found.as_dict()
    assert {"quantity", "status", "difference", "p_value", "minimum_detectable", "seeds_needed"} <= set(data)
    assert isinstance(dataclasses.replace(found, message="x"), type(found))
    assert isinstance(SeedNoise(Interval(0.1, 0, 1), 1, 0.1, 0.1).as_dict()["freedom"], int)
