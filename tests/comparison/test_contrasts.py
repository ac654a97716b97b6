"""Differences of groups: numbers by hand, by scipy.stats and by enumeration; rates in simulation;
refusals.

Sampling tests allow three standard errors of a proportion beyond the nominal rate: each fails by
chance in less than 1 of 700 changes of the random numbers, and never with those that are fixed
here.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats
from tests.golden.sentences import says

from groupwise.comparison.compare import (
    Difference,
    Measured,
    SeedNoise,
    Setup,
    contrast,
    difference,
    holm,
    minimum_detectable,
    missing,
    seed_noise,
    seeds_needed,
)
from groupwise.intervals import Interval


def exactly(*values: float, error: float = 0.0) -> list[Measured]:
    return [
        Measured(Interval(value, value - 1.96 * error, value + 1.96 * error), error)
        for value in values
    ]


def setup(*groups: list[Measured]) -> Setup:
    return Setup(0.95, seed_noise(groups))


A, B = exactly(0.1, 0.2, 0.15, 0.12), exactly(0.3, 0.25, 0.5)
NEVER = exactly(math.inf, math.inf)
Z = stats.norm.ppf(0.975)


def test_two_groups_are_welch() -> None:
    answer = contrast("level", A, B, setup(A, B))
    expected = stats.ttest_ind([r.value for r in B], [r.value for r in A], equal_var=False)
    interval = expected.confidence_interval(0.95)
    assert (answer.quantity, answer.method, answer.status, answer.runs) == (
        "level",
        "welch",
        "not_separable",
        (4, 3),
    )
    assert answer.p_value == answer.adjusted_p == pytest.approx(expected.pvalue, rel=1e-10)
    assert answer.difference.value == pytest.approx(0.35 - 0.1425)
    assert (answer.difference.low, answer.difference.high) == pytest.approx(
        (interval.low, interval.high), rel=1e-10
    )
    assert answer.difference.level == 0.95
    assert answer.freedom == pytest.approx(expected.df)


def test_step_noise_is_the_floor_of_welchs_variances() -> None:
    """Seeds that coincide by chance cannot be surer than their steps: variances .0025 over 2
    runs and .0004 over 3, by hand.
    """
    a, b = exactly(0.2, 0.2001, error=0.05), exactly(0.25, 0.2501, 0.2502, error=0.02)
    answer = contrast("level", a, b, setup(a, b))
    error2 = 0.0025 / 2 + 0.0004 / 3
    freedom = error2**2 / ((0.0025 / 2) ** 2 / 1 + (0.0004 / 3) ** 2 / 2)
    assert answer.freedom == pytest.approx(freedom)
    assert answer.p_value == pytest.approx(2 * stats.t.sf(0.05005 / math.sqrt(error2), freedom))
    assert answer.difference.width == pytest.approx(
        2 * stats.t.ppf(0.975, freedom) * math.sqrt(error2)
    )


def test_welch_is_asked_for_power_with_the_variance_of_a_difference() -> None:
    """Variances .02 and .005 add to .025, of which 1/n remains with n runs a group; four
    contrasts share the rate.
    """
    a, b = exactly(0.1, 0.3), exactly(0.6, 0.7)
    answer = contrast("level", a, b, dataclasses.replace(setup(a, b), tests=4))
    assert answer.seeds_needed == seeds_needed(0.45, 0.025, level=1 - 0.05 / 4)
    error = math.sqrt(0.025 / 2)
    assert answer.minimum_detectable == pytest.approx(
        minimum_detectable(error, answer.freedom, level=0.9875)
    )
    fallen = contrast("level", b, a, setup(a, b))
    assert fallen.difference.value == pytest.approx(-0.45)
    assert fallen.seeds_needed == seeds_needed(0.45, 0.025)


def test_one_run_against_many_takes_their_spread() -> None:
    answer = contrast("level", A, B[:1], setup(A, B[:1]))
    expected = stats.ttest_ind([0.3], [r.value for r in A], equal_var=True)
    assert (answer.method, answer.freedom) == ("pooled_t", 3.0)
    assert answer.p_value == pytest.approx(expected.pvalue, rel=1e-10)
    assert answer.seeds_needed == seeds_needed(
        0.1575, 2 * float(np.var([0.1, 0.2, 0.15, 0.12], ddof=1))
    )


def test_step_noise_is_the_floor_of_a_borrowed_variance() -> None:
    """The mean step variance of the five runs, (4 * .01 + .0225) / 5 = .0125, exceeds the
    scatter: error^2 = .0125 (1/4 + 1).
    """
    a, b = exactly(0.1, 0.1, 0.1, 0.1001, error=0.1), exactly(0.3, error=0.15)
    answer = difference(a, b, setup(a, b))
    assert answer is not None
    assert [answer.error, answer.variance] == pytest.approx([math.sqrt(0.0125 * 1.25), 0.025])


def test_the_error_by_step_noise_alone_is_told() -> None:
    """Root of (.03^2 + .04^2) / 4 + .05^2."""
    a, b = [*exactly(0.2, error=0.03), *exactly(0.22, error=0.04)], exactly(0.3, error=0.05)
    assert contrast("level", a, b, setup(a, b)).step_error == pytest.approx(
        math.sqrt(0.0025 / 4 + 0.0025)
    )


def test_one_run_each_says_that_seeds_are_unknown_and_bounds_them() -> None:
    """The interval's half is z times the root of .01^2 + .02^2; a seed spread at the bound
    brings its end exactly to zero.
    """
    a, b = exactly(0.2, error=0.01), exactly(0.3, error=0.02)
    step = math.hypot(0.01, 0.02)
    for first, second, sign in ((a, b, 1), (b, a, -1)):
        answer = contrast("level", first, second, setup(a, b))
        assert (answer.status, answer.method, answer.runs) == (
            "seed_noise_unknown",
            "step_noise_alone",
            (1, 1),
        )
        assert math.isnan(answer.p_value)
        assert answer.seeds_needed is None
        assert answer.difference.value == pytest.approx(sign * 0.1)
        assert (answer.difference.low, answer.difference.high) == pytest.approx(
            (sign * 0.1 - 1.96 * step, sign * 0.1 + 1.96 * step)
        )
        assert 1.96 * math.sqrt(2 * answer.largest_seed_deviation**2 + step**2) == pytest.approx(
            0.1, rel=1e-9
        )
        assert answer.step_error == pytest.approx(step)
        assert answer.minimum_detectable == pytest.approx(
            step * (Z + stats.norm.ppf(0.8)), rel=1e-5
        )


def test_ends_of_two_lopsided_intervals_are_combined_side_by_side() -> None:
    """Low: the second's lower half and the first's upper; high: the other two (3-4-5 triangles)."""
    first, second = (
        [Measured(Interval(0.2, 0.2 - 0.12, 0.2 + 0.03), 0.02)],
        [Measured(Interval(0.5, 0.5 - 0.04, 0.5 + 0.05), 0.02)],
    )
    answer = contrast("level", first, second, setup(first, second))
    assert (answer.difference.low, answer.difference.high) == pytest.approx(
        (0.3 - 0.05, 0.3 + 0.13)
    )
    turned = contrast("level", second, first, setup(first, second))
    assert (turned.difference.low, turned.difference.high) == pytest.approx(
        (-0.3 - 0.13, -0.3 + 0.05)
    )
    # The half towards zero, .05, stands for quantile times step error, .0008^.5.
    largest = math.sqrt(((0.3 / (0.05 / math.sqrt(0.0008))) ** 2 - 0.0008) / 2)
    assert answer.largest_seed_deviation == turned.largest_seed_deviation == pytest.approx(largest)


def test_one_run_each_within_step_noise() -> None:
    a = exactly(0.2, error=0.01)
    near = contrast("level", a, exactly(0.21, error=0.01), setup(a, a))
    assert near.status == "within_step_noise"
    assert math.isnan(near.largest_seed_deviation)
    touching = [Measured(Interval(0.3, 0.2, 0.4), 0.05)], [Measured(Interval(0.2, 0.2, 0.2), 0.0)]
    assert contrast("level", *touching, setup(a, a)).status == "within_step_noise"


def test_one_run_each_without_any_noise_bounds_nothing() -> None:
    answer = contrast("level", exactly(0.2), exactly(0.3), setup(A[:1], A[:1]))
    assert answer.status == "seed_noise_unknown"
    assert math.isnan(answer.largest_seed_deviation)
    assert math.isnan(answer.minimum_detectable)


def test_runs_equal_to_the_digit_prove_nothing() -> None:
    a, b = exactly(0.2, 0.2), exactly(0.3, 0.3)
    answer = contrast("level", a, b, setup(a, b))
    assert (answer.p_value, answer.freedom) == (1.0, 2.0)
    assert (answer.difference.low, answer.difference.high) == (-math.inf, math.inf)
    assert math.isnan(answer.minimum_detectable)
    three = exactly(0.3, 0.3, 0.3)
    assert contrast("level", a, three, setup(a, three)).freedom == 3.0


def test_a_level_that_a_run_never_reached_is_told_and_not_tested() -> None:
    fast, never = exactly(10, 12, 11, 14), exactly(*[math.inf] * 4)
    answer = contrast("speed", fast, never, setup(fast, never))
    assert (answer.method, answer.status, answer.runs) == ("none", "unavailable", (4, 4))
    assert math.isnan(answer.p_value)
    says("comparison/contrasts/1", answer.message)
    assert not answer.difference.bounded
    mixed = contrast("speed", [*fast[:1], *NEVER[:1]], [*fast[1:2], *NEVER], setup(fast, never))
    says("comparison/contrasts/2", mixed.message)


def test_what_is_missing_is_said() -> None:
    answer = contrast("speed", [missing("no law holds")], exactly(0.3), setup(A, B))
    assert (answer.status, answer.message, answer.runs) == ("unavailable", "no law holds", (0, 1))
    assert not answer.difference.bounded
    assert contrast("level", A, [], setup(A, B)).message == "a group has no values"


def drawn(
    rng: np.random.Generator, runs: int, mean: float, spread: float, error: float
) -> list[Measured]:
    return exactly(*(mean + rng.normal(0, spread, runs) + rng.normal(0, error, runs)), error=error)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("runs", "spread"),
    [((2, 2), 0.05), ((3, 3), 0.05), ((5, 5), 0.05), ((1, 4), 0.05), ((3, 3), 0.0)],
)
def test_false_alarms_and_coverage_hold(runs: tuple[int, int], spread: float) -> None:
    rng, alarms, covered, seeds, n = np.random.default_rng(7), 0, 0, 0, 400
    for _ in range(n):
        a, b = drawn(rng, runs[0], 0.4, spread, 0.02), drawn(rng, runs[1], 0.7, spread, 0.02)
        noise = seed_noise([a, b])
        answer = difference(a, b, Setup(0.95, seeds=noise))
        assert answer is not None
        covered += answer.interval(0.95).covers(0.3)
        seeds += noise.deviation.covers(spread)
        alarms += dataclasses.replace(answer, value=answer.value - 0.3).p_value < 0.05
    allowance = 3 * math.sqrt(0.05 * 0.95 / n)
    assert alarms / n < 0.05 + allowance
    assert covered / n > 0.95 - allowance
    assert seeds / n > 0.95 - allowance


KNOWN_NOTHING = SeedNoise(Interval(math.nan, 0.0, math.inf), 0, math.nan, math.nan)


def test_power_is_what_the_minimum_detectable_effect_promises() -> None:
    """At the true minimum detectable difference four of five comparisons find it."""
    rng, n, spread = np.random.default_rng(8), 600, 0.05
    apart = minimum_detectable(spread * math.sqrt(2 / 4), 6.0)
    pairs = [
        (drawn(rng, 4, 0.4, spread, 0.0), drawn(rng, 4, 0.4 + apart, spread, 0.0)) for _ in range(n)
    ]
    tested = [difference(a, b, Setup(0.95, seeds=KNOWN_NOTHING)) for a, b in pairs]
    count = sum(contrast is not None and contrast.p_value < 0.05 for contrast in tested)
    assert (
        abs(count / n - 0.8) < 3 * math.sqrt(0.16 / n) + 0.01
    )  # Welch gives up a little where spreads are equal


def test_what_would_be_found_is_found_beside_other_contrasts() -> None:
    """Four contrasts share the rate: the difference usually stated passes the strictest
    threshold in about four of five.
    """
    rng, n = np.random.default_rng(10), 200
    beside = Setup(0.95, seeds=KNOWN_NOTHING, tests=4)

    def drawn_with(shift: float) -> Difference:
        answer = difference(drawn(rng, 6, 0.0, 0.1, 0.0), drawn(rng, 6, shift, 0.1, 0.0), beside)
        assert answer is not None
        return answer

    still = [drawn_with(0.0) for _ in range(n)]
    usual = float(
        np.median(
            [
                minimum_detectable(contrast.error, contrast.freedom, level=beside.strict_level)
                for contrast in still
            ]
        )
    )
    count = sum(holm([drawn_with(usual).p_value, 1.0, 1.0, 1.0])[0] < 0.05 for _ in range(n))
    assert abs(count / n - 0.8) < 3 * math.sqrt(0.16 / n)


def test_results_are_plain_data() -> None:
    data = contrast("level", A, B, setup(A, B)).as_dict()
    assert list(data) == [
        "quantity",
        "status",
        "message",
        "difference",
        "method",
        "runs",
        "seeds_needed",
        "p_value",
        "adjusted_p",
        "freedom",
        "step_error",
        "minimum_detectable",
        "largest_seed_deviation",
    ]
    assert data["runs"] == [4, 3]
    assert data["largest_seed_deviation"] is None
    assert exactly(0.5, error=0.1)[0].as_dict() == {
        "value": 0.5,
        "low": 0.304,
        "high": 0.696,
        "level": 0.95,
        "step_error": 0.1,
        "problem": "",
    }


def test_no_difference_is_named_that_the_metric_cannot_have() -> None:
    first, second = exactly(0.1, 0.8), exactly(0.3, 0.9)
    wide = contrast("level", first, second, setup(first, second))
    assert wide.minimum_detectable > 1
    assert wide.difference.low < -1
    assert wide.difference.high > 1
    answer = contrast("level", first, second, dataclasses.replace(setup(first, second), span=1.0))
    assert math.isnan(answer.minimum_detectable)
    assert (answer.difference.low, answer.difference.high, answer.seeds_needed) == (
        -1.0,
        1.0,
        wide.seeds_needed,
    )


def test_a_side_without_width_bounds_no_seeds() -> None:
    """Of a time whose interval ends where the value is, nothing can be said of the seeds that
    would make the difference real.
    """
    early, late = Measured(Interval(1.0, 1.0, 1.0), 0.5), Measured(Interval(9.0, 9.0, 12.0), 1.0)
    answer = contrast("speed", [early], [late], setup([early], [late]))
    assert (answer.status, answer.difference.low) == ("seed_noise_unknown", 8.0)
    assert math.isnan(answer.largest_seed_deviation)
