"""What Gaussian processes foresee: against the same written out with dense matrices, and against
distributions of another program.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import t
from tests.cases import each_case

from groupwise.forecasting import forecast
from groupwise.forecasting.forecast import Foresight, foresee, student


@each_case("freedom", [5, 7, 20, 200])
def test_the_approximation_of_student_is_good_to_a_thousandth(freedom: int) -> None:
    at = np.linspace(-8, 8, 401)
    assert np.abs(student(freedom, at) - t.cdf(at, freedom)).max() < 1e-3


def test_a_quantile_of_a_mixture_is_that_of_its_distribution() -> None:
    mixture = Foresight(
        np.array([0.3, 0.7]),
        np.array([[0.0, 1.0], [4.0, 1.0]]),
        np.array([[1.0, 2.0], [0.5, 2.0]]),
        30,
    )
    for p in (0.05, 0.3, 0.5, 0.95):
        low = mixture.quantile(p)
        assert 0.3 * t.cdf(low[0], 30) + 0.7 * t.cdf((low[0] - 4) / 0.5, 30) == pytest.approx(
            p, abs=2e-3
        )
        assert t.cdf((low[1] - 1) / 2, 30) == pytest.approx(p, abs=2e-3)


def walk_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave one covariance: Brownian motion with four times the noise of a row over the rows
    seen.
    """

    def covariances(seen: float) -> tuple[list[forecast.Kernel], np.ndarray]:
        return [forecast._walk(np.inf, seen)], np.array([[4.0]])

    monkeypatch.setattr(forecast, "covariances", covariances)


def test_one_covariance_foretells_what_dense_algebra_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kriging with an unknown level, by the bordered system; variance by the error of the
    generalised least squares.
    """
    walk_alone(monkeypatch)
    row, value = np.arange(12.0), np.random.default_rng(0).normal(0.4, 0.1, 12).cumsum()
    mean = foresee(row, value, np.array([15.0, 20.0]), np.zeros(2), np.array([1.0, np.inf]))
    seen = 12.0
    covariance = 4 * np.minimum(row[:, None], row) / seen + np.eye(12)
    bordered = np.block([[covariance, np.ones((12, 1))], [np.ones((1, 12)), np.zeros((1, 1))]])
    inverse = np.linalg.inv(bordered)
    size = value @ inverse[:12, :12] @ value / 11
    for place, (ahead, noise) in enumerate(((15.0, 1.0), (20.0, 0.0))):
        cross = np.append(4 * np.minimum(row, ahead) / seen, 1.0)
        weights = inverse @ cross
        assert mean.mean_KS[0, place] == pytest.approx(weights[:12] @ value, rel=1e-9)
        variance = 4 * ahead / seen + noise - cross @ weights
        assert mean.scale_KS[0, place] == pytest.approx(np.sqrt(size * variance), rel=1e-9)
    assert mean.freedom == 11


def test_covariances_are_weighed_by_their_restricted_likelihood(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The ratio of two weights is that of the densities of the contrasts, a multivariate t up to
    a factor that both share.
    """
    row, value = np.arange(9.0), np.random.default_rng(1).normal(size=9)
    monkeypatch.setattr(
        forecast,
        "covariances",
        lambda seen: ([forecast._walk(np.inf, seen)], np.array([[0.5], [8.0]])),
    )
    mean = foresee(row, value, np.array([10.0]), np.zeros(1), np.ones(1))
    contrast = np.linalg.svd(np.ones((1, 9)))[2][1:]
    densities = []
    for signal in (0.5, 8.0):
        shape = contrast @ (signal * np.minimum(row[:, None], row) / 9 + np.eye(9)) @ contrast.T
        # Integrating the size out leaves |shape|^-1/2 (y' shape^-1 y)^-m/2: a t whose degrees of
        # freedom go to 0.
        own = contrast @ value
        densities.append(np.linalg.det(shape) ** -0.5 * (own @ np.linalg.solve(shape, own)) ** -4.0)
    assert mean.weight_K[0] / mean.weight_K[1] == pytest.approx(
        densities[0] / densities[1], rel=1e-9
    )


def test_every_kernel_has_unit_variance_where_the_rows_end_and_none_is_negative() -> None:
    kernels, signals = forecast.covariances(30.0)
    end, row = np.array([30.0]), np.linspace(0, 90, 40)
    assert signals.shape == (180, len(kernels))
    for kernel in kernels:
        assert kernel(end, end)[0] == pytest.approx(1.0)
        assert np.linalg.eigvalsh(kernel(row[:, None], row)).min() > -1e-9


def test_rows_beyond_forty_are_averaged_and_lose_nothing_of_a_level() -> None:
    value = np.random.default_rng(2).normal(0.3, 0.05, 4000)
    mean = foresee(np.arange(4000.0), value, np.array([4100.0]), np.zeros(1), np.ones(1))
    assert mean.quantile(0.5)[0] == pytest.approx(0.3, abs=0.02)
    width = (mean.quantile(0.95) - mean.quantile(0.05))[0]
    assert pytest.approx(width, rel=0.15) == 2 * 1.645 * 0.05


def test_a_stretch_is_averaged() -> None:
    """The mean of a line over a stretch is its value in the middle, and the noise of k rows is
    that of one over k.
    """
    row = np.arange(30.0)
    value = 0.02 * row + np.random.default_rng(3).normal(0, 0.01, 30)
    single, many = (
        foresee(row, value, np.array([33.0]), np.array([width]), np.array([count]))
        for width, count in ((0.0, 1.0), (4.0, 4.0))
    )
    assert many.quantile(0.5)[0] == pytest.approx(single.quantile(0.5)[0], abs=0.003)
    assert (many.scale_KS < single.scale_KS).all()


def test_a_mean_that_wanders_is_foreseen_by_its_own_covariances_alone() -> None:
    """The mixture with all others taken out; on a clean line it says less than all together."""
    row = np.arange(30.0)
    value = 0.02 * row + np.random.default_rng(4).normal(0, 0.01, 30)
    ahead = np.array([60.0]), np.zeros(1), np.ones(1)
    every, wandering = (foresee(row, value, *ahead, wandering=alone) for alone in (False, True))
    signals = forecast.covariances(30.0)[1]
    plain = (signals[:, 0] > 0) & (signals[:, 1:] == 0).all(1)
    assert plain.sum() == 6
    assert np.count_nonzero(wandering.weight_K) <= 6
    assert every.weight_K.sum() == pytest.approx(1)
    assert wandering.weight_K.sum() == pytest.approx(1)
    assert every.quantile(0.5)[0] > wandering.quantile(0.5)[0] + 0.1
    assert wandering.quantile(0.05)[0] < 0.5 < wandering.quantile(0.95)[0] < every.quantile(0.95)[0]


def test_how_far_a_mean_wanders_is_told_by_the_later_half_of_the_rows() -> None:
    """A first rise of twenty scatters does not go on: a plateau of 300 rows keeps a band of a few
    scatters; a mean that wanders all along goes as far as its increments take it.
    """
    row, noise = np.arange(300.0), np.random.default_rng(5).normal(size=300)
    rise = forecast.forecast(row, 0.8 - 0.6 * np.exp(-row / 30) + 0.03 * noise, [450.0])
    assert 0.8 - 0.06 < rise.mean_low_S[0] < 0.8 < rise.mean_high_S[0] < 1.0
    walk = forecast.forecast(row, 0.03 * noise.cumsum(), [450.0])
    reach = 0.03 * np.sqrt(150)
    assert walk.mean_high_S[0] - walk.mean_low_S[0] > 2 * reach
