"""The noise model against dense matrices."""

from __future__ import annotations

import numpy as np
import pytest
from tests.cases import each_case

from groupwise.forecasting.observations import (
    CORRELATIONS,
    NoiseShape,
    Whitener,
    moment_shape,
    noise_posterior,
    noise_shapes,
    rounding,
)

EVEN = np.arange(40.0)
UNEVEN = np.sort(np.random.default_rng(5).uniform(0, 60, 40))
EQUAL = np.ones(40)
UNEQUAL = np.random.default_rng(6).uniform(0.3, 3, 40)
SHAPES = {
    "white": NoiseShape(0.0, 0.0),
    "ar1": NoiseShape(0.8, 1.0),
    "mixed": NoiseShape(0.9, 0.6),
    "nearly flat": NoiseShape(0.999, 0.85),
}


SHAPES["other gap"] = NoiseShape(0.5, 0.85, gap=2.5)
SLOW = np.exp(-(((EVEN[:, None] - EVEN) / 9) ** 2))
SHAPES["any covariance"] = NoiseShape(0.0, 0.4, slow_MM=SLOW)


def dense(time: np.ndarray, relative: np.ndarray, shape: NoiseShape) -> np.ndarray:
    """rho K + (1 - rho) D, written out."""
    if shape.slow_MM is not None:
        return np.asarray(shape.share * shape.slow_MM + (1 - shape.share) * np.diag(relative))
    kernel = (
        shape.correlation ** (np.abs(time[:, None] - time[None, :]) / shape.gap)
        if shape.share
        else np.zeros((time.size, time.size))
    )
    return np.asarray(shape.share * kernel + (1 - shape.share) * np.diag(relative))


@each_case("shape", SHAPES.values())
@each_case("time", [EVEN, UNEVEN])
@each_case("relative", [EQUAL, UNEQUAL])
def test_whitener_is_the_inverse_covariance(
    time: np.ndarray, relative: np.ndarray, shape: NoiseShape
) -> None:
    columns = np.random.default_rng(7).normal(size=(40, 3))
    covariance = dense(time, relative, shape)
    expected = np.linalg.solve(covariance, columns)
    whitener = Whitener(time, relative, shape)
    np.testing.assert_allclose(
        whitener.apply(columns), expected, rtol=0, atol=1e-10 * np.abs(expected).max()
    )
    np.testing.assert_allclose(
        whitener.gram(columns),
        columns.T @ expected,
        rtol=0,
        atol=1e-10 * np.abs(columns.T @ expected).max(),
    )
    assert whitener.log_determinant == pytest.approx(np.linalg.slogdet(covariance)[1], abs=1e-9)


@pytest.mark.parametrize("time", [EVEN, UNEVEN], ids=["even", "uneven"])
def test_the_batched_posterior_is_the_dense_restricted_likelihood(time: np.ndarray) -> None:
    """Every shape of the grid, from explicit matrices and one whitener at a time."""
    rng = np.random.default_rng(8)
    columns, residual, gap = (
        rng.normal(size=(40, 3)),
        rng.normal(size=40),
        float(np.median(np.diff(time))),
    )
    posterior = noise_posterior(time, UNEQUAL, columns, residual, gap=gap)
    restricted = []
    for e, shape in enumerate(posterior.shapes):
        covariance = dense(time, UNEQUAL, shape)
        inverse = np.linalg.inv(covariance)
        information = columns.T @ inverse @ columns
        shift = np.linalg.solve(information, columns.T @ inverse @ residual)
        left = residual - columns @ shift
        rest = float(left @ inverse @ left)
        np.testing.assert_allclose(posterior.shift_EP[e], shift, rtol=1e-7, atol=1e-10)
        np.testing.assert_allclose(
            posterior.scale_EP[e],
            np.sqrt(np.diag(np.linalg.inv(information)) * rest / 37),
            rtol=1e-8,
        )
        assert posterior.variance_E[e] == pytest.approx(rest / 37, rel=1e-8)
        determinant = np.linalg.slogdet(covariance)[1]
        gauss = -0.5 * (determinant + 40 * np.log(2 * np.pi * rest / 40) + 40)
        assert posterior.log_likelihood_E[e] == pytest.approx(gauss, abs=1e-7)
        restricted.append(
            -0.5 * (determinant + np.linalg.slogdet(information)[1] + 37 * np.log(rest))
        )
    weight = np.exp(np.array(restricted) - max(restricted)) * [
        shape.prior for shape in posterior.shapes
    ]
    np.testing.assert_allclose(posterior.weight_E, weight / weight.sum(), rtol=1e-6, atol=1e-12)
    assert posterior.freedom == 37


@pytest.mark.parametrize("time", [EVEN, UNEVEN], ids=["even", "uneven"])
def test_the_batched_path_equals_one_whitener_at_a_time(time: np.ndarray) -> None:
    rng = np.random.default_rng(9)
    columns, residual = rng.normal(size=(40, 2)), rng.normal(size=40)
    posterior = noise_posterior(time, UNEQUAL, columns, residual, gap=1.5)
    for e, shape in enumerate(posterior.shapes):
        whitener = Whitener(time, UNEQUAL, shape)
        gram = whitener.gram(np.column_stack([columns, residual]))
        rest = gram[2, 2] - gram[:2, 2] @ np.linalg.solve(gram[:2, :2], gram[:2, 2])
        expected = -0.5 * (whitener.log_determinant + 40 * np.log(2 * np.pi * rest / 40) + 40)
        assert posterior.log_likelihood_E[e] == pytest.approx(expected, abs=1e-8)


def test_the_prior_is_a_distribution_that_gaps_do_not_change() -> None:
    for gap in (0.25, 1.0, 40.0):
        shapes = noise_shapes(gap)
        assert sum(shape.prior for shape in shapes) == pytest.approx(1.0, abs=1e-12)
        assert sorted({shape.correlation for shape in shapes if shape.share}) == list(CORRELATIONS)
        assert {shape.gap for shape in shapes} == {gap}


def test_the_prior_leans_to_long_correlation_by_hand() -> None:
    """Of each correlation its stretch over sqrt(1 - phi): .25/sqrt(.85) of .15, .2/sqrt(.65) of
    .35, .04/sqrt(.02) of .98.
    """
    prior = {shape.correlation: shape.prior for shape in noise_shapes(1.0) if shape.share == 1}
    assert prior[0.35] / prior[0.15] == pytest.approx(0.8 * (0.85 / 0.65) ** 0.5)
    assert prior[0.98] / prior[0.15] == pytest.approx(0.16 * (0.85 / 0.02) ** 0.5)
    assert sum(prior.values()) == pytest.approx(0.3)


@each_case("gap", [1e-9, 1e-6, 1e-3, 1e3, 1e12])
def test_any_unit_of_time_gives_the_same_posterior(gap: float) -> None:
    """The clock may be the integral of the learning rate: gaps of 1e-6 are ordinary."""
    rng = np.random.default_rng(10)
    residual, ones = np.convolve(rng.normal(size=44), np.ones(5), "valid"), np.ones((40, 1))
    expected = noise_posterior(EVEN, EQUAL, ones, residual, gap=1.0)
    np.testing.assert_allclose(
        noise_posterior(EVEN * gap, EQUAL, ones, residual, gap=gap).weight_E,
        expected.weight_E,
        atol=1e-3,
    )


def test_the_posterior_finds_the_correlation_of_a_long_series() -> None:
    rng, noise = np.random.default_rng(11), np.zeros(3000)
    for i in range(1, 3000):
        noise[i] = 0.8 * noise[i - 1] + 0.6 * rng.normal()
    posterior = noise_posterior(
        np.arange(3000.0), np.ones(3000), np.ones((3000, 1)), noise - noise.mean(), gap=1.0
    )
    assert posterior.best_shape.correlation == pytest.approx(0.8)
    assert posterior.best_shape.share == 1
    assert posterior.variance_E[posterior.best] == pytest.approx(1.0, rel=0.2)


def test_widening_is_students_quantile_when_one_shape_holds_all_weight() -> None:
    rng = np.random.default_rng(12)
    posterior = noise_posterior(
        np.arange(5000.0), np.ones(5000), np.ones((5000, 1)), rng.normal(size=5000), gap=1.0
    )
    assert posterior.best_shape.share == 0
    assert float(posterior.widening(0.95)[0]) == pytest.approx(1.96, abs=0.15)


def test_widening_grows_with_the_level_and_when_the_noise_is_poorly_known() -> None:
    rng = np.random.default_rng(13)
    short, long = (
        noise_posterior(
            np.arange(float(n)), np.ones(n), np.ones((n, 1)), rng.normal(size=n), gap=1.0
        )
        for n in (12, 5000)
    )
    assert float(short.widening(0.95)[0]) > 1.3 * float(long.widening(0.95)[0])
    assert (
        float(short.widening(0.8)[0])
        < float(short.widening(0.9)[0])
        < float(short.widening(0.99)[0])
    )


def test_moment_shape_tells_white_from_correlated() -> None:
    rng, n = np.random.default_rng(14), 2000
    white = rng.normal(size=n)
    slow = np.zeros(n)
    for i in range(1, n):
        slow[i] = 0.87 * slow[i - 1] + rng.normal()
    assert moment_shape(white, gap=1.0).share == 0
    shape = moment_shape(slow, gap=1.0)
    assert shape.neighbour == pytest.approx(0.87, abs=0.05)
    assert moment_shape(np.zeros(n), gap=1.0).share == 0


def test_a_residual_at_rounding_level_is_no_noise_and_has_no_shape() -> None:
    """A random walk of 1e-12 would be slow noise; below the floor it is white, with the floor
    for a variance.
    """
    walk, ones = 1e-12 * np.cumsum(np.random.default_rng(15).normal(size=40)), np.ones((40, 1))
    assert noise_posterior(EVEN, EQUAL, ones, walk, gap=1.0).best_shape.share > 0
    posterior = noise_posterior(EVEN, EQUAL, ones, walk, gap=1.0, floor=1e-20)
    assert (posterior.best_shape.share, posterior.weight_E[0]) == (0.0, 1.0)
    assert posterior.variance == pytest.approx(1e-20 / 39)
    above = noise_posterior(EVEN, EQUAL, ones, walk, gap=1.0, floor=1e-26)
    np.testing.assert_allclose(
        above.weight_E, noise_posterior(EVEN, EQUAL, ones, walk, gap=1.0).weight_E
    )


def test_rounding_counts_in_eps_of_the_size_and_of_the_range_times_the_condition() -> None:
    """Values up to 8 over a range of 2, condition 100: 5 rows of (4 eps 208)^2."""
    eps = 2.0**-52
    assert rounding(np.array([6.0, 7.0, 8.0, 7.0, 6.0]), condition=100.0) == pytest.approx(
        5 * (4 * eps * 208) ** 2
    )


def test_aicc_counts_the_parameters_of_the_noise() -> None:
    """By hand for white noise alone: n log(2 pi S/n) + n + 2k + 2k(k+1)/(n-k-1) with k = 3 + 1;
    no shape may do better by luck here.
    """
    residual = np.where(np.arange(40) % 2, 1.0, -1.0)
    posterior = noise_posterior(EVEN, EQUAL, np.ones((40, 1)), residual, gap=1.0)
    assert posterior.aicc(3) == pytest.approx(40 * np.log(2 * np.pi) + 40 + 8 + 40 / 35)
    short = noise_posterior(EVEN[:5], EQUAL[:5], np.ones((5, 1)), residual[:5], gap=1.0)
    assert short.aicc(3) == np.inf


def test_shapes_of_its_own_compete_with_those_of_all() -> None:
    """Noise drawn from one is chosen; white noise is not."""
    own = NoiseShape(0.0, 0.4, prior=0.1, slow_MM=SLOW)
    rng, ones = np.random.default_rng(9), np.ones((40, 1))
    drawn = np.linalg.cholesky(dense(EVEN, EQUAL, own)) @ rng.standard_normal((40, 50))
    chosen = [
        noise_posterior(EVEN, EQUAL, ones, residual, gap=1.0, echoes=(own,)).best_shape is own
        for residual in (*drawn.T, *rng.standard_normal((50, 40)))
    ]
    assert np.mean(chosen[:50]) > 0.6
    assert np.mean(chosen[50:]) < 0.1
