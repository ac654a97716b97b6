"""The error surface, its minimum and its intervals, against dense algebra and brute force."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize_scalar
from tests.cases import each_case

from groupwise.forecasting import profile
from groupwise.forecasting.laws import LAWS, Law, law_by_name
from groupwise.forecasting.observations import NoiseShape, Observations, observe

SHAPED = [law for law in LAWS if law.shapes]
TRUTHS = {
    "exponential": {"time_constant": 0.2},
    "oscillator": {"natural_frequency": 14.0, "damping_ratio": 0.5},
    "logistic": {"midpoint": 0.4, "width": 0.09},
    "scalerl_sigmoid": {"midpoint": 0.3, "exponent": 1.8},
    "power_law": {"time_scale": 0.1, "exponent": 1.2},
}


def truth(law: Law, span: float) -> dict[str, float]:
    """Ordinary parameters, in the clock of a log of this length."""
    scaled = {
        name: value / span
        if name == "natural_frequency"
        else value * span
        if name not in ("damping_ratio", "exponent")
        else value
        for name, value in TRUTHS[law.name].items()
    }
    return {"plateau": 0.8, "start": 0.2, **scaled}


def series(law: Law, n: int, deviation: float, seed: int, variance: bool = False) -> Observations:
    """A noisy run of the law."""
    rng, time = np.random.default_rng(seed), np.arange(float(n))
    spread = rng.uniform(0.5, 2, n) if variance else None
    noise = rng.normal(0, deviation, n) * (np.sqrt(spread) if spread is not None else 1)
    return observe(time, law.curve(time, **truth(law, n - 1.0)) + noise, spread)


def dense_covariance(seen: Observations, shape: NoiseShape) -> np.ndarray:
    """The covariance written out."""
    kernel = shape.correlation ** np.abs(seen.time_M[:, None] - seen.time_M[None, :])
    return np.asarray(
        shape.share * kernel * (shape.share > 0)
        + (1 - shape.share) * np.diag(seen.relative_variance_M)
    )


def products_of(seen: Observations, shape: NoiseShape, order: int = 56) -> profile.Gram:
    """Inner products with the values as they are, not centred."""
    return profile.gram(seen, seen.basis(order), seen.value_M, shape)


def best_point(law: Law, products: profile.Gram, span: float) -> tuple[float, ...]:
    """The point of least error as the fit finds it."""
    whole = profile.whole_box(law, span)
    return profile.minimum(products, whole, profile.coarse_minimum(products, whole))


@each_case("law", SHAPED)
@each_case(
    "shape",
    [NoiseShape(0.0, 0.0), NoiseShape(0.8, 1.0), NoiseShape(0.9, 0.6)],
)
def test_the_surface_is_generalised_least_squares(law: Law, shape: NoiseShape) -> None:
    """Error, levels and their variances at 12 random shapes, against dense matrices and the law
    itself.
    """
    seen = series(law, 120, 0.05, seed=1, variance=True)
    factor = cho_factor(dense_covariance(seen, shape))
    rng = np.random.default_rng(2)
    values = truth(law, 119.0)
    shapes = [values[name] * rng.uniform(0.7, 1.4, 12) for name in law.shapes]
    surface = profile.surface(law, products_of(seen, shape), *shapes)
    for q in range(12):
        decay = law.decay(seen.time_M, *(s[q] for s in shapes))
        columns = np.column_stack([1 - decay, decay])
        information = columns.T @ cho_solve(factor, columns)
        levels = np.linalg.solve(information, columns.T @ cho_solve(factor, seen.value_M))
        left = seen.value_M - columns @ levels
        covariance = np.linalg.inv(information)
        assert surface.error_Q[q] == pytest.approx(float(left @ cho_solve(factor, left)), rel=1e-8)
        assert [surface.plateau_Q[q], surface.start_Q[q]] == pytest.approx(
            levels.tolist(), rel=1e-7
        )
        got = [surface.plateau_variance_Q[q], surface.start_variance_Q[q]]
        assert got == pytest.approx([covariance[0, 0], covariance[1, 1]], rel=1e-6)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("law", SHAPED, ids=lambda law: law.name)
def test_the_minimum_is_global_on_noisy_curves(law: Law) -> None:
    """Ten noisy curves a law, fifty in all: no point of a brute-force grid of 200 x 200 is better
    by more than 1e-4 of the error.

    The curves share their times, and so the decays of the grid, of which there are 4,000 for one
    shape.
    """
    every = [series(law, 80, (0.03, 0.1, 0.3)[seed % 3], seed=100 + seed) for seed in range(10)]
    products = [products_of(seen, NoiseShape(0.0, 0.0)) for seen in every]
    whole = profile.whole_box(law, every[0].span)
    shapes = whole.shapes(whole.points((200, 200) if len(law.axes) == 2 else (4000,)))
    brute = np.full(10, np.inf)
    for chunk in zip(*(np.array_split(shape, 16) for shape in shapes), strict=True):
        decay = law.decay(products[0].nodes_K, *(shape[:, None] for shape in chunk))
        brute = np.minimum(
            brute, [profile.solved(product, decay).error_Q.min() for product in products]
        )
    ours = [
        profile.surface(law, product, *whole.at(best_point(law, product, whole.span))).error_Q[0]
        for product in products
    ]
    assert max(np.array(ours) / brute) < 1 + 1e-4, np.round(np.array(ours) / brute - 1, 6)


@each_case("law", SHAPED)
def test_the_linear_model_at_a_point_is_that_of_dense_least_squares(law: Law) -> None:
    """Unit covariance and Gauss-Newton step at the middle of the search, against the law's own
    rows and central differences.
    """
    seen = series(law, 120, 0.05, seed=7)
    whole = profile.whole_box(law, seen.span)
    point = tuple(0.6 * low + 0.4 * high for low, high in zip(whole.low, whole.high, strict=True))
    covariance, step = profile.linearised(products_of(seen, NoiseShape(0.0, 0.0)), whole, point)

    def decay(moved: tuple[float, ...]) -> np.ndarray:
        return np.asarray(law.decay(seen.time_M, *(float(shape[0]) for shape in whole.at(moved))))

    here = decay(point)
    levels = np.linalg.lstsq(np.column_stack([np.ones(120), here]), seen.value_M, rcond=None)[0]
    slopes = []
    for i in range(len(point)):
        near, far = (
            decay(tuple(p + way * 1e-4 * (i == j) for j, p in enumerate(point))) for way in (-1, 1)
        )
        slopes.append((far - near) / 2e-4)
    columns = np.column_stack([1 - here, here, *(levels[1] * slope for slope in slopes)])
    left = seen.value_M - np.column_stack([np.ones(120), here]) @ levels
    expected = np.linalg.inv(columns.T @ columns)
    scale = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
    assert np.abs(covariance - expected).max() <= 1e-3 * np.abs(scale).max()
    assert covariance / scale == pytest.approx(expected / scale, abs=1e-3)
    assert step == pytest.approx(tuple((expected @ columns.T @ left)[2:]), rel=1e-2)


@pytest.mark.parametrize("reach", [0.5, 3.0])
def test_the_first_box_is_twice_the_reach_of_the_linear_model(reach: float) -> None:
    law = law_by_name("exponential")
    seen = series(law, 120, 0.01, seed=7)
    products, whole = products_of(seen, NoiseShape(0.0, 0.0)), profile.whole_box(law, seen.span)
    point = best_point(law, products, seen.span)
    covariance = profile.linearised(products, whole, point)[0]
    deviation = 0.02 * np.sqrt(covariance[2, 2])
    box = profile.ellipse_box(covariance, whole, point, 0.02 * reach)
    assert [box.low[0], box.high[0]] == pytest.approx(
        [point[0] - 2 * reach * deviation, point[0] + 2 * reach * deviation], rel=1e-9
    )


def region_of(
    products: profile.Gram, whole: profile.Box, point: tuple[float, ...], limit: float, reach: float
) -> profile.Region:
    """The region as the fit finds it."""
    covariance = profile.linearised(products, whole, point)[0]
    return profile.region(
        products, profile.ellipse_box(covariance, whole, point, reach), point, limit
    )


def profiled(law: Law, products: profile.Gram, name: str, value: float, span: float) -> float:
    """Least error with one shape held, by a fine search over the other."""
    whole = profile.whole_box(law, span)
    other = 1 - law.shapes.index(name)
    low, high = whole.low[other], whole.high[other]
    grid = law.axes[other].from_search(np.linspace(low, high, 600))
    if law.name == "oscillator":
        grid = (
            np.exp(np.linspace(np.log(0.03), np.log(30), 600))
            if name == "natural_frequency"
            else np.geomspace(0.1, 100, 600) / span
        )

    def at(shape: np.ndarray) -> np.ndarray:
        held = np.full(shape.shape, value)
        return profile.surface(law, products, *((held, shape) if other else (shape, held))).error_Q

    errors = at(grid)
    i = int(errors.argmin())
    ends = grid[max(i - 1, 0)], grid[min(i + 1, grid.size - 1)]
    closer = minimize_scalar(
        lambda s: float(at(np.array([s]))[0]),
        bounds=ends,
        method="bounded",
        options={"xatol": 1e-10 * grid[i]},
    )
    return float(closer.fun)


def crossing(function: object, inside: float, outside: float, limit: float) -> float:
    """Where the profile crosses the limit, by bisection to 2^-10 of the bracket."""
    for _ in range(10):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if function(middle) <= limit else (inside, middle)  # type: ignore[operator]
    return inside


def region_about_the_best(
    law: Law, products: profile.Gram, span: float
) -> tuple[tuple[np.ndarray, ...], profile.Surface, float, profile.Region]:
    """The shapes of the best point, the surface there, the limit of a 95 % interval of 150 rows
    less four, and the region within it.
    """
    whole, point = profile.whole_box(law, span), best_point(law, products, span)
    shapes = whole.shapes(tuple(np.array([place]) for place in point))
    best = profile.surface(law, products, *shapes)
    error = float(best.error_Q[0])
    limit = error * (1 + 1.98**2 / 146)
    return (
        shapes,
        best,
        limit,
        region_of(products, whole, point, limit, 1.98 * np.sqrt(error / 146)),
    )


@pytest.mark.parametrize("name", ["oscillator", "logistic", "scalerl_sigmoid"])
def test_shape_intervals_are_the_profile_limits(name: str) -> None:
    """Both shapes of a law, both ends, to 2 % of the width."""
    law = law_by_name(name)
    seen = series(law, 150, 0.04, seed=7)
    products = products_of(seen, NoiseShape(0.0, 0.0))
    best_shape, best, limit, area = region_about_the_best(law, products, seen.span)
    every = profile.ranges_of(
        area, np.stack(area.shapes), float(best.error_Q[0]), np.full(len(law.shapes), limit)
    )
    for i, (shape, low, high, below, above) in enumerate(zip(law.shapes, *every, strict=True)):
        assert not below
        assert not above
        centre, width = float(best_shape[i][0]), high - low
        for end, outside in (
            (low, max(centre - 1.5 * width, 0.02 * centre)),
            (high, centre + 1.5 * width),
        ):
            truth_end = crossing(
                lambda v, shape=shape: profiled(law, products, shape, v, seen.span),
                centre,
                outside,
                limit,
            )
            assert end == pytest.approx(truth_end, abs=0.02 * width), (shape, low, high)


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    "name", ["exponential", "oscillator", "logistic", "scalerl_sigmoid", "power_law"]
)
def test_level_intervals_are_the_profile_limits(name: str) -> None:
    """Plateau and start, both ends, to 2 % of the width, against a dense scan of the shapes."""
    law = law_by_name(name)
    seen = series(law, 150, 0.04, seed=8)
    products = products_of(seen, NoiseShape(0.0, 0.0))
    _, best, limit, area = region_about_the_best(law, products, seen.span)
    dense = profile.surface(
        law,
        products,
        *area.box.shapes(area.box.points((150, 150) if len(law.axes) == 2 else (4000,))),
    )
    at_best = float(best.plateau_Q[0]), float(best.start_Q[0])
    ranges = profile.linear_ranges(area, products, best=at_best, largest_error=(limit, limit))
    variances = dense.plateau_variance_Q, dense.start_variance_Q
    for (low, high), fine, fine_variance in zip(
        ranges, (dense.plateau_Q, dense.start_Q), variances, strict=True
    ):
        inside = dense.error_Q <= limit
        half = np.sqrt((limit - dense.error_Q[inside]) * fine_variance[inside])
        assert low == pytest.approx(float((fine[inside] - half).min()), abs=0.02 * (high - low))
        assert high == pytest.approx(float((fine[inside] + half).max()), abs=0.02 * (high - low))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("law", SHAPED, ids=lambda law: law.name)
def test_the_region_lies_inside_its_grid(law: Law) -> None:
    """A shape grid that cut the region off would make every interval too short; three runs that
    share a grid over everything.
    """
    every = [series(law, 60, 0.1, seed=seed) for seed in (11, 12, 13)]
    whole = profile.whole_box(law, every[0].span)
    everywhere = whole.points((200, 200) if len(law.axes) == 2 else (3000,))
    decay = law.decay(
        products_of(every[0], NoiseShape(0.0, 0.0)).nodes_K,
        *(shape[:, None] for shape in whole.shapes(everywhere)),
    )
    for seen in every:
        products = products_of(seen, NoiseShape(0.0, 0.0))
        point = best_point(law, products, seen.span)
        best = float(profile.surface(law, products, *whole.at(point)).error_Q[0])
        limit = best * (1 + 2.0**2 / 56)
        area = region_of(products, whole, point, limit, 2 * np.sqrt(best / 56))
        inside = profile.solved(products, decay).error_Q <= limit
        assert inside.any()
        for i in range(len(law.axes)):
            reached = everywhere[i].ravel()[inside]
            low, high = area.points[i].min(), area.points[i].max()
            slack = 0.02 * (high - low) + 1e-9
            assert low - slack <= reached.min(), i
            assert reached.max() <= high + slack, i


def test_a_parameter_the_data_do_not_limit_runs_into_the_edge() -> None:
    """A straight line: the time constant has no upper limit."""
    law, rng = law_by_name("exponential"), np.random.default_rng(0)
    seen = observe(np.arange(100.0), 0.002 * np.arange(100.0) + rng.normal(0, 0.02, 100))
    products = products_of(seen, NoiseShape(0.0, 0.0))
    point = best_point(law, products, seen.span)
    best = float(
        profile.surface(
            law, products, *profile.whole_box(law, seen.span).shapes((np.array([point[0]]),))
        ).error_Q[0]
    )
    limit = best * (1 + 4.0 / 97)
    area = region_of(
        products, profile.whole_box(law, seen.span), point, limit, 2 * np.sqrt(best / 97)
    )
    _, _, below, above = profile.ranges_of(area, area.shapes[0], best, np.array([limit]))
    assert above
    assert not below
