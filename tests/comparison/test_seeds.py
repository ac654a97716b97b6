"""The spread of seeds and the power of a comparison, against matrices, textbook numbers and
integrals.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, optimize, stats
from tests.cases import each_case

from groupwise.comparison.compare import (
    Measured,
    SeedNoise,
    minimum_detectable,
    missing,
    power,
    seed_noise,
    seeds_needed,
)
from groupwise.intervals import Interval


def measured(values: list[float], errors: list[float]) -> list[Measured]:
    return [
        Measured(Interval(value, value, value), error)
        for value, error in zip(values, errors, strict=True)
    ]


def generalised_q(groups: list[tuple[list[float], list[float]]], tau2: float) -> float:
    """y' (W - W 1 (1' W 1)^-1 1' W) y, summed over groups."""
    total = 0.0
    for values, errors in groups:
        y, weight = np.array(values), np.diag(1 / (np.array(errors) ** 2 + tau2))
        ones = np.ones((y.size, 1))
        projection = (
            weight - weight @ ones @ np.linalg.inv(ones.T @ weight @ ones) @ ones.T @ weight
        )
        total += float(y @ projection @ y)
    return total


UNEQUAL = [([0.10, 0.30, 0.22], [0.02, 0.05, 0.01]), ([0.50, 0.61], [0.03, 0.001]), ([0.9], [0.2])]


@pytest.mark.parametrize(("end", "quantile"), [("value", None), ("low", 0.975), ("high", 0.025)])
def test_the_spread_solves_the_generalised_q(end: str, quantile: float | None) -> None:
    """Three groups of unequal step noise, the third of one run, which says nothing: 2 + 1
    degrees of freedom.
    """
    noise = seed_noise([measured(*group) for group in UNEQUAL])
    target = 3.0 if quantile is None else float(stats.chi2.ppf(quantile, 3))
    expected = optimize.brentq(
        lambda tau2: generalised_q(UNEQUAL[:2], tau2) - target, 0.0, 10.0, xtol=1e-15
    )
    assert noise.freedom == 3
    assert getattr(noise.deviation, end) == pytest.approx(math.sqrt(expected), rel=1e-7)


def test_what_is_reported_beside_the_spread() -> None:
    """Means of squares by hand: within the groups .02027 + .00605 over 3, of the steps over all
    six runs.
    """
    noise = seed_noise([measured(*group) for group in UNEQUAL])
    within = sum(float(((np.array(values) - np.mean(values)) ** 2).sum()) for values, _ in UNEQUAL)
    assert noise.between == pytest.approx(within / 3)
    assert noise.step == pytest.approx(
        (0.02**2 + 0.05**2 + 0.01**2 + 0.03**2 + 0.001**2 + 0.2**2) / 6
    )
    assert noise.as_dict()["step_deviation"] == pytest.approx(math.sqrt(noise.step))
    assert noise.deviation.level == 0.95


def test_a_higher_level_has_the_ends_of_its_own_quantiles() -> None:
    """Without step noise the ends are those of a variance: the sum of squares over the quantiles
    of chi-square.
    """
    values = [0.1, 0.2, 0.15, 0.12]
    squares = float(np.var(values)) * 4
    deviation = seed_noise([measured(values, [0.0] * 4)], level=0.8).deviation
    assert (deviation.value, deviation.low, deviation.high) == pytest.approx(
        tuple(math.sqrt(squares / q) for q in (3, stats.chi2.ppf(0.9, 3), stats.chi2.ppf(0.1, 3)))
    )


def test_equal_step_noise_is_taken_off() -> None:
    """Three runs of variance .0004 with step variance .0001: the seeds have what is left."""
    assert seed_noise([measured([0.1, 0.12, 0.14], [0.01] * 3)]).deviation.value == pytest.approx(
        math.sqrt(0.0004 - 0.0001)
    )


def test_step_noise_that_explains_all_leaves_no_spread() -> None:
    """Variance .0002 against .01: Q(0) is .02, below the chi-square quantile .0506 of the upper
    end, too.
    """
    noise = seed_noise([measured([0.1, 0.11, 0.12], [0.1] * 3)])
    assert (noise.deviation.value, noise.deviation.low, noise.deviation.high) == (0.0, 0.0, 0.0)
    assert seed_noise([measured([0.2, 0.2], [0.0, 0.0])]).deviation.value == 0.0


def test_only_runs_with_a_finite_value_count() -> None:
    runs = [*measured([0.1, 0.3, math.inf], [0.0, 0.0, 1.0]), missing("none")]
    assert seed_noise([runs]).freedom == 1
    assert seed_noise([runs]).deviation.value == pytest.approx(math.sqrt(0.02))
    assert seed_noise([runs]).step == 0.0


def test_single_runs_leave_the_spread_open() -> None:
    noise = seed_noise([measured([0.1], [0.01]), measured([0.4], [0.03])], level=0.9)
    assert (noise.freedom, noise.deviation.low, noise.deviation.high, noise.deviation.level) == (
        0,
        0.0,
        math.inf,
        0.9,
    )
    assert math.isnan(noise.deviation.value)
    assert math.isnan(noise.between)
    assert noise.step == pytest.approx(0.0005)
    nobody = seed_noise([])
    assert (nobody.freedom, math.isnan(nobody.step)) == (0, True)


def test_the_spread_as_plain_data() -> None:
    plain = SeedNoise(Interval(0.1, 0.0, 1.0), 3, 0.02, math.nan).as_dict()
    assert plain == {
        "deviation": {"value": 0.1, "low": 0.0, "high": 1.0, "level": 0.95},
        "freedom": 3,
        "step_deviation": None,
    }


@pytest.mark.thinned(6)
@pytest.mark.parametrize("freedom", [1.0, 4.0, 30.0])
@pytest.mark.parametrize("shift", [0.0, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("level", [0.95, 0.99])
def test_power_against_an_integral(freedom: float, shift: float, level: float) -> None:
    """T is a shifted normal over the root of chi-square by its freedom: integrate over the
    latter.
    """
    point = stats.t.ppf(0.5 + level / 2, freedom)

    def density(root: float) -> float:
        beyond = stats.norm.sf(point * root - shift) + stats.norm.cdf(-point * root - shift)
        return float(
            beyond * stats.chi.pdf(root * math.sqrt(freedom), freedom) * math.sqrt(freedom)
        )

    expected, _ = integrate.quad(density, 0, 8, limit=200)
    assert power(shift, freedom, level=level) == pytest.approx(expected, abs=1e-6)


def test_power_with_known_variance_is_normal() -> None:
    z = stats.norm.ppf(0.975)
    assert power(1.5, math.inf) == pytest.approx(
        stats.norm.sf(z - 1.5) + stats.norm.cdf(-z - 1.5), rel=1e-12
    )
    assert power(0.0, math.inf, level=0.9) == pytest.approx(0.1)


def test_power_far_out_is_the_normal_approximation_of_t() -> None:
    """(shift - t) / sqrt(1 + t^2 / (2 freedom)) with t = 63.66 at 99 % and 1 degree of freedom,
    beyond a shift of 35.
    """
    t = float(stats.t.ppf(0.995, 1))
    assert power(60.0, 1.0, level=0.99) == pytest.approx(
        stats.norm.cdf((60 - t) / math.sqrt(1 + t**2 / 2)), rel=1e-9
    )
    assert power(35.0, 1.0, level=0.99) == pytest.approx(1 - stats.nct.cdf(t, 1, 35.0), abs=1e-6)


# Cohen (1988), Statistical Power Analysis, table 2.4.1, and G*Power's default examples: 5 %
# two-sided, power .8.
@each_case(("size", "runs"), [(0.2, 394), (0.5, 64), (0.8, 26), (1.0, 17)])
def test_seeds_needed_are_those_of_the_tables(size: float, runs: int) -> None:
    """Standard deviation 1 in both groups: a variance of 2 for their difference.

    The sign does not matter.
    """
    assert seeds_needed(size, 2.0) == seeds_needed(-size, 2.0) == runs


def test_a_stricter_level_needs_the_seeds_that_the_noncentral_t_says() -> None:
    """One by one: the first number of runs a group whose power at 1 % reaches .8."""

    def chance(runs: int) -> float:
        point = stats.t.ppf(0.995, 2 * runs - 2)
        return float(stats.nct.sf(point, 2 * runs - 2, 0.9 * math.sqrt(runs / 2)))

    assert seeds_needed(0.9, 2.0, level=0.99) == next(
        runs for runs in range(2, 100) if chance(runs) >= 0.8
    )


def test_seeds_that_nothing_or_no_number_tells() -> None:
    assert seeds_needed(0.0, 2.0) is None
    assert seeds_needed(0.1, 0.0) == 2
    assert seeds_needed(1e-6, 2.0) is None
    assert (
        seeds_needed(0.05, 2.0) == 6281
    )  # 2 (1.95996 + .84162)^2 / .05^2 = 6279, and what an estimated variance adds


def test_what_is_detectable_is_found_eight_times_in_ten() -> None:
    assert minimum_detectable(1.0, math.inf) == pytest.approx(
        stats.norm.ppf(0.975) + stats.norm.ppf(0.8), abs=1e-5
    )
    for freedom, level in ((1.0, 0.95), (2.0, 0.95), (6.0, 0.95), (6.0, 0.9875)):
        point = stats.t.ppf(0.5 + level / 2, freedom)
        ratio = minimum_detectable(0.05, freedom, level=level) / 0.05
        assert stats.nct.sf(point, freedom, ratio) + stats.nct.cdf(
            -point, freedom, ratio
        ) == pytest.approx(0.8, abs=1e-5)


def test_what_is_detectable_and_the_seeds_needed_agree() -> None:
    """With the seeds that a difference needs, that difference is detectable; with one fewer it
    is not.
    """
    for difference in (0.3, 1.0, 3.0):
        runs = seeds_needed(difference, 2.0)
        assert runs is not None
        assert minimum_detectable(math.sqrt(2.0 / runs), 2.0 * (runs - 1)) <= difference
        if runs > 2:
            assert minimum_detectable(math.sqrt(2.0 / (runs - 1)), 2.0 * (runs - 2)) > difference
