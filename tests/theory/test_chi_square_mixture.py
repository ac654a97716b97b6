"""Weighted sums of chi-squares: identities that must hold whatever the weights, moments,
quantiles, samples, bad input.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from worlds import contour
from worlds.chi_square_mixture import ChiSquareMixture
from worlds.contour import Terms, compressed, upper_tails

from groupwise.errors import InvalidArgumentError

GEOMETRIC = 0.9 ** np.arange(100)
LAWS = {
    "one": ChiSquareMixture([2.0]),
    "two": ChiSquareMixture([1.0, 0.25]),
    "three": ChiSquareMixture([6.0, 3.0, 1.0], [1, 2, 3]),
    "geometric": ChiSquareMixture(GEOMETRIC),
    "spiked": ChiSquareMixture([100.0, *np.linspace(0.5, 1, 200)]),
    "one dimension, not central": ChiSquareMixture([1.0], 1.0, 9.0),
    "not central": ChiSquareMixture([1.0, 0.5], [1.5, 3.0], [4.0, 0.0]),
    "both signs": ChiSquareMixture([1.0, -0.5, 0.3], 2.0, [0.0, 3.0, 1.0]),
    "difference": ChiSquareMixture([1.0, -1.0]),
    "negative": ChiSquareMixture([-1.0, -3.0]),
    "ten thousand": ChiSquareMixture(1 / np.arange(1.0, 10_001)),
}
each_law = pytest.mark.parametrize("law", LAWS.values(), ids=list(LAWS))

weights = st.lists(st.floats(1e-6, 1e3) | st.floats(-1e3, -1e-6), min_size=1, max_size=12)


@pytest.mark.thinned(5)
@each_law
def test_quantiles_invert_both_tails(law: ChiSquareMixture) -> None:
    probability = np.array([1e-100, 1e-30, 1e-9, 1e-3, 0.2, 0.5, 0.8, 0.999, 1 - 1e-9])
    assert law.cdf(law.ppf(probability)) == pytest.approx(probability, rel=1e-11)
    assert law.sf(law.isf(probability)) == pytest.approx(probability, rel=1e-11)
    assert (law.ppf([0, 1]) == np.array(law.support())).all()
    assert (law.isf([1, 0]) == np.array(law.support())).all()


@each_law
def test_the_density_is_the_derivative_and_its_bound_is_small(law: ChiSquareMixture) -> None:
    low, high = law.ppf([0.01, 0.999])
    point = np.linspace(low, high, 7)
    point = point[np.abs(point) > 1e-3 * law.std()]  # the density of a difference has a pole at 0
    step = 1e-4 * np.minimum(law.std(), np.abs(point))
    slope = (
        8 * (law.cdf(point + step) - law.cdf(point - step))
        - (law.cdf(point + 2 * step) - law.cdf(point - 2 * step))
    ) / (12 * step)
    found = law.pdf_with_error(point)
    assert found.value == pytest.approx(slope, rel=1e-7)
    assert (found.error < 1e-9 * found.value).all()
    assert law.pdf(point).tolist() == found.value.tolist()


@pytest.mark.thinned(3)
@each_law
def test_moments_are_those_of_the_density(law: ChiSquareMixture) -> None:
    """E Q and Var Q as integrals of quantiles, by Gauss-Legendre in the normal deviate."""
    node, weight = np.polynomial.legendre.leggauss(200)
    deviate = 8.5 * node
    quantile = np.where(
        deviate < 0, law.ppf(stats.norm.cdf(deviate)), law.isf(stats.norm.sf(deviate))
    )
    mass = 8.5 * weight * stats.norm.pdf(deviate)
    mean = float(mass @ quantile)
    assert mean == pytest.approx(law.mean(), rel=1e-6, abs=1e-6 * law.std())
    assert float(mass @ (quantile - mean) ** 2) == pytest.approx(law.var(), rel=1e-4)
    assert law.std() ** 2 == pytest.approx(law.var())


@pytest.mark.parametrize("name", ["not central", "both signs", "geometric"])
def test_samples_follow_the_law(name: str) -> None:
    """Kolmogorov-Smirnov on 2,000 draws from one fixed seed a law; a right law fails with
    probability 1e-4 for one seed.
    """
    law, rng = LAWS[name], np.random.default_rng(3)
    drawn = (
        rng.noncentral_chisquare(law.degrees_K, law.noncentrality_K, (2000, len(law.weight_K)))
        @ law.weight_K
    )
    assert stats.kstest(drawn, law.cdf).pvalue > 1e-4


def test_equal_weights_are_one_chi_square() -> None:
    law = ChiSquareMixture([3.0] * 4, [1, 2, 0.5, 1.5], 0.0)
    assert len(law.weight_K) == 1
    point = np.array([0.0, 1e-200, 0.1, 3, 15, 200])
    assert law.cdf(point) == pytest.approx(stats.chi2(5, scale=3).cdf(point), rel=1e-13)
    assert law.sf(point) == pytest.approx(stats.chi2(5, scale=3).sf(point), rel=1e-13)
    mean, variance, skew, excess = (
        float(moment) for moment in stats.chi2(5, scale=3).stats("mvsk")
    )
    assert [law.cumulant(order) for order in (1, 2, 3, 4)] == pytest.approx(
        [mean, variance, skew * variance**1.5, excess * variance**2]
    )


@pytest.mark.parametrize("degrees", [1, 2, 3, 7, 100])
def test_the_path_agrees_with_the_exact_form_where_there_is_one(degrees: int) -> None:
    """The path is taken past the shortcut for equal weights."""
    terms = Terms(np.ones(1), np.array([float(degrees)]), np.zeros(1))
    law = stats.chi2(degrees)
    upper, lower = law.isf([0.3, 1e-3, 1e-12, 1e-90]), law.ppf([0.3, 1e-3, 1e-12, 1e-90])
    for found, true in (
        (upper_tails(terms, upper), law.sf(upper)),
        (upper_tails(terms.mirrored, -lower), law.cdf(lower)),
    ):
        assert np.exp(found.log_factor_Q) * found.tail_Q == pytest.approx(true, rel=1e-12)


def test_far_tails_keep_their_precision_below_what_a_float_holds() -> None:
    law = ChiSquareMixture([1.0, 0.5])
    # P(Q > x) ~ sqrt(2) P(chi2_1 > x) far out: (1 - w2/w1)^(-1/2)
    assert float(law.logsf(2000.0)) == pytest.approx(
        stats.norm.logsf(math.sqrt(2000)) + math.log(2) + 0.5 * math.log(2), abs=2e-3
    )
    assert float(law.sf(2000.0)) == 0
    assert float(law.logcdf(1e-250)) == pytest.approx(
        math.log(1e-250 / 2) - 0.5 * math.log(0.5), rel=1e-14
    )


@given(weights, st.floats(0.05, 0.95), st.floats(1e-3, 1e3))
def test_scaling_mirroring_and_monotony(weight: list[float], share: float, scale: float) -> None:
    law = ChiSquareMixture(weight)
    point = float(law.ppf(share))
    assert float(law.cdf(point)) == pytest.approx(share, rel=1e-10)
    assert float(ChiSquareMixture(np.multiply(weight, -1)).sf(-point)) == pytest.approx(
        share, rel=1e-10
    )
    assert float(ChiSquareMixture(np.multiply(weight, scale)).cdf(point * scale)) == pytest.approx(
        share, rel=1e-9
    )
    grid = law.mean() + law.std() * np.linspace(-3, 6, 40)
    assert (np.diff(law.cdf(grid)) >= -1e-12).all()
    assert (law.cdf_with_error(grid).error < 1e-9).all()


@given(weights.filter(lambda values: len(values) > 1), st.floats(-2, 5))
@settings(max_examples=6, deadline=None)
def test_one_more_chi_square_is_a_convolution(weight: list[float], deviation: float) -> None:
    """P(Q + 2 w E > x) with a standard exponential E is an integral over the law without it."""
    law, extra = ChiSquareMixture(weight), ChiSquareMixture(weight).std()
    both = ChiSquareMixture([*weight, extra / 2], [1.0] * len(weight) + [2.0])
    point = both.mean() + deviation * both.std()
    node, mass = np.polynomial.legendre.leggauss(12)
    away = np.concatenate([[0], np.geomspace(1e-9, 40, 40)])
    panels = np.unique(
        np.clip(np.concatenate([away, point / extra + away, point / extra - away]), 0, 40)
    )  # finer at 0, and where Q is 0
    half, middle = np.diff(panels) / 2, (panels[1:] + panels[:-1]) / 2
    expo = (middle[:, None] + half[:, None] * node).ravel()
    value = (half[:, None] * mass).ravel() @ (np.exp(-expo) * law.sf(point - extra * expo))
    assert float(both.sf(point)) == pytest.approx(value, abs=1e-7)


def test_two_exponentials_by_hand() -> None:
    law = ChiSquareMixture([2.0, -0.5], 2.0)
    point = np.array([-3.0, -0.1, 0.0, 0.2, 9.0])
    share = 2 / 2.5
    by_hand = np.where(point >= 0, share * np.exp(-point / 4), 1 - (1 - share) * np.exp(point))
    assert law.sf(point) == pytest.approx(by_hand, rel=1e-12)
    assert float(law.pdf(9.0)) == pytest.approx(share / 4 * math.exp(-9 / 4), rel=1e-12)


def test_the_density_at_zero() -> None:
    assert ChiSquareMixture([1.0, 2.0]).pdf(0.0) == pytest.approx(1 / (2 * math.sqrt(2)), rel=1e-12)
    assert ChiSquareMixture([1.0, -2.0]).pdf(0.0) == math.inf
    assert ChiSquareMixture([1.0]).pdf(0.0) == math.inf
    assert ChiSquareMixture([1.0] * 3).pdf(0.0) == 0
    assert ChiSquareMixture([2.0, -0.5], 2.0).pdf(0.0) == pytest.approx(0.2, rel=1e-10)


def test_shapes_and_the_ends_of_the_line() -> None:
    law = ChiSquareMixture([1.0, 0.5])
    assert law.cdf([[0.0, 1.0], [2.0, math.inf]]).shape == (2, 2)
    assert isinstance(law.cdf(1.0), float)
    assert law.cdf([-1.0, 0.0, math.inf, -math.inf]).tolist() == [0, 0, 1, 0]
    assert math.isnan(law.cdf(math.nan))
    assert law.pdf([-1.0, math.inf]).tolist() == [0, 0]
    assert law.cumulant(3) == pytest.approx(8 * (1 + 0.5**3))
    assert LAWS["negative"].support() == (-math.inf, 0)
    assert LAWS["both signs"].support() == (-math.inf, math.inf)


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    "weight",
    [
        1 / np.arange(1.0, 20_001),
        np.random.default_rng(0).random(20_000),
        np.exp(-np.linspace(0, 60, 5_000)),
        np.linspace(-1, 1, 4_000),
    ],
    ids=["harmonic", "uniform", "sixty e-folds", "both signs"],
)
def test_thousands_of_weights_are_compressed_without_loss(weight: np.ndarray) -> None:
    terms = Terms(
        weight / np.abs(weight).max(), np.ones(len(weight)), np.linspace(0, 1, len(weight))
    )
    few = compressed(terms)
    assert (
        len(few.weight_K) < len(weight) / 2
    )  # 24 points each of 88 halvings where they span sixty e-folds
    point = terms.mean + math.sqrt(terms.variance) * np.array([0.1, 3, 10])
    whole, part = upper_tails(terms, point), upper_tails(few, point)
    assert part.log_factor_Q + np.log(part.tail_Q) == pytest.approx(
        whole.log_factor_Q + np.log(whole.tail_Q), abs=1e-10
    )


def test_a_hundred_thousand_weights() -> None:
    """Against the normal law with Edgeworth's two terms, which is right to about 1e-6 here."""
    weight = np.random.default_rng(1).random(100_000)
    law = ChiSquareMixture(weight)
    skew, excess = law.cumulant(3) / law.std() ** 3, law.cumulant(4) / law.std() ** 4
    z = np.array([-2.0, 0.0, 1.0, 3.0])
    hermite = {2: z**2 - 1, 3: z**3 - 3 * z, 5: z**5 - 10 * z**3 + 15 * z}
    edgeworth = stats.norm.cdf(z) - stats.norm.pdf(z) * (
        skew / 6 * hermite[2] + excess / 24 * hermite[3] + skew**2 / 72 * hermite[5]
    )
    assert law.cdf(law.mean() + z * law.std()) == pytest.approx(edgeworth, abs=3e-6)


def test_imhofs_integral_by_quadrature() -> None:
    weight, point = np.array([3.0, 1.0, -0.7, 0.4, 0.2, 1.3, 0.9]), 6.0

    def integrand(u: float) -> float:
        angle = 0.5 * np.arctan(weight * u).sum() - 0.5 * point * u
        return float(np.sin(angle) / (u * np.prod((1 + (weight * u) ** 2) ** 0.25)))

    value = integrate.quad(integrand, 1e-12, 400, limit=2000, epsabs=1e-9)[0]
    assert float(ChiSquareMixture(weight).sf(point)) == pytest.approx(
        0.5 + value / math.pi, abs=1e-6
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (([1.0, 0.0],), "not zero"),
        (([1.0, math.nan],), "finite"),
        (([],), "at least one number in weight_K"),
        (([1.0], [0.0]), "positive degrees"),
        (([1.0], 1.0, -1.0), "non-centralities"),
        (([1.0, 2.0], [1.0]), "expected 2 entries"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_bad_laws_get_a_sentence(arguments: tuple, sentence: str) -> None:
    with pytest.raises(InvalidArgumentError, match=sentence) as caught:
        ChiSquareMixture(*arguments)
    assert "\n" not in str(caught.value)


def test_bad_questions_get_a_sentence() -> None:
    law = ChiSquareMixture([1.0])
    for wrong in (-0.1, 1.1, math.nan):
        with pytest.raises(InvalidArgumentError, match="probabilities from 0 to 1"):
            law.ppf(wrong)
    with pytest.raises(InvalidArgumentError, match="cumulants"):
        law.cumulant(0)
    for call in (
        lambda: law.cdf("a"),
        lambda: law.ppf("a"),
        lambda: ChiSquareMixture("abc"),
        lambda: ChiSquareMixture([1.0], "a"),
    ):
        with pytest.raises(InvalidArgumentError, match="expected numbers in"):
            call()


@pytest.mark.parametrize("weight", [3.0, -3.0])
def test_quantiles_that_no_float_holds_are_as_near_to_zero_as_it_gets(weight: float) -> None:
    """The 1e-300 quantile of one chi-square is about 1e-600; no warning, no NaN, and the order
    stays.
    """
    law = ChiSquareMixture([weight])
    points = law.ppf([1e-300, 1e-120, 1e-6]) if weight > 0 else -law.isf([1e-300, 1e-120, 1e-6])
    assert 0 <= points[0] < 1e-290
    assert (np.diff(points) > 0).all()
    tail = law.cdf(points[2]) if weight > 0 else law.sf(-points[2])
    assert float(tail) == pytest.approx(1e-6, rel=1e-10)


@pytest.mark.parametrize("small", [1e-3, 1e-6, 1e-9, 1e-12])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_a_second_weight_of_hardly_any_size_keeps_all_digits_and_the_bound(
    small: float, sign: float
) -> None:
    """P(Q <= x) is the mean over the small chi-square of an exact distribution function, a sum
    by Gauss and Hermite.
    """
    law, points = ChiSquareMixture([21.0, sign * small]), np.array([3.0, 9.5, 40.0, 200.0])
    node, share = np.polynomial.hermite_e.hermegauss(40)
    exact = stats.chi2(1).cdf((points[:, None] - sign * small * node**2) / 21) @ share / share.sum()
    found = law.cdf_with_error(points)
    assert (np.abs(found.value - exact) <= found.error + 3e-15).all()  # the sum's own rounding
    assert law.cdf(law.ppf([0.01, 0.5, 0.99])) == pytest.approx([0.01, 0.5, 0.99], rel=1e-12)


@pytest.mark.parametrize("kind", ["one large, thousands far below", "thousands from 1e-30 to 1"])
def test_compression_keeps_lower_tails_where_weights_span_thirty_orders(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against the same law with all its weights: lower tails live at the smallest of them."""
    rng = np.random.default_rng(0)
    low = kind.startswith("one")
    weight = np.concatenate(
        [[1.0], 10 ** (rng.uniform(-40, -20, 2000) if low else rng.uniform(-30, 0, 3000))]
    )
    point = np.array([5e-20, 1e-19, 1e-18] if low else [1.0, 10.0, 40.0])
    found = ChiSquareMixture(weight)
    monkeypatch.setattr(contour, "WORTHWHILE", math.inf)
    whole = ChiSquareMixture(weight)
    assert len(whole._terms.weight_K) == len(weight) > len(found._terms.weight_K)
    assert found.logcdf(point) == pytest.approx(whole.logcdf(point), abs=1e-10)
    few, all_ = found.cdf_with_error(point), whole.cdf_with_error(point)
    assert (np.abs(few.value - all_.value) <= few.error + all_.error).all()


def test_weights_of_extreme_size_have_finite_moments_or_a_sentence() -> None:
    small, large = ChiSquareMixture([1e-150, 0.4e-150]), ChiSquareMixture([1e150, 0.4e150])
    for law in (small, large):
        assert law.std() / law.mean() == pytest.approx(ChiSquareMixture([1.0, 0.4]).std() / 1.4)
        assert float(law.cdf(law.mean())) == pytest.approx(
            float(ChiSquareMixture([1.0, 0.4]).cdf(1.4))
        )
    assert large.cumulant(3) == math.inf
    for weight in ([1e-300, 1e300], [5e-324], [1e308], [1.0, 1e-151]):
        with pytest.raises(InvalidArgumentError, match="largest"):
            ChiSquareMixture(weight)
    far = ChiSquareMixture([1.0, -1e-140, 1e-140])
    assert far.cdf([-1e-140, 0.0, 1.0])[2] == pytest.approx(stats.chi2(1).cdf(1.0), rel=1e-12)
    assert ChiSquareMixture([1.0, 0.5]).cdf([1e308, -1e308]).tolist() == [1, 0]
