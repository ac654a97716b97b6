"""From a logged series to observations: cleaning, windows, moving averages, blocks, and the
basis of smooth curves.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from tests.cases import each_case

from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.forecasting.laws import LAWS, Law, law_by_name
from groupwise.forecasting.observations import MAX_BLOCKS, observe, rate_clock
from groupwise.forecasting.profile import Box, whole_box

NAN = float("nan")
ORDER = 56


def rise(time: np.ndarray, constant: float = 60.0) -> np.ndarray:
    """A clean exponential rise from .2 to .8."""
    return np.asarray(0.8 - 0.6 * np.exp(-time / constant))


def smoothed(value: np.ndarray, k: int) -> np.ndarray:
    """Plain moving average, full windows only."""
    return np.convolve(value, np.ones(k) / k, "valid")


def test_missing_values_and_times_are_dropped_with_their_variance() -> None:
    seen = observe(
        [0, 1, 2, NAN, 4, 5], [0.1, NAN, 0.3, 0.4, float("inf"), 0.6], [1, 9, 3, 9, 9, 2]
    )
    assert seen.rows == 3
    np.testing.assert_array_equal(seen.row_time_T, [0, 2, 5])
    np.testing.assert_array_equal(seen.row_value_T, [0.1, 0.3, 0.6])
    np.testing.assert_allclose(seen.relative_variance_M, [0.5, 1.5, 1.0])
    assert seen.sampling_variance == pytest.approx(2.0)


@each_case(
    ("time", "value", "keywords", "match"),
    [
        ([0, 1, 2], [1, 2], {}, "one and the same length"),
        ([[0, 1, 2]], [[1, 2, 3]], {}, "one and the same length"),
        ([0, 1, 1, 2], [1, 2, 3, 4], {}, "times must increase"),
        ([3, 2, 1], [1, 2, 3], {}, "times must increase"),
        ([0, 1, 2], [1, 2, 3], {"window": 0.5}, "at least 1 for window, got"),
        ([0, 1, 2], [1, 2, 3], {"window": NAN}, "at least 1 for window, got"),
    ],
)
def test_bad_arguments_are_refused_with_a_sentence(
    time: list, value: list, keywords: dict, match: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=match):
        observe(time, value, **keywords)


@pytest.mark.parametrize(
    "variance", [[1.0, 1.0], 1.0, [[1.0] * 4]], ids=["short", "scalar", "matrix"]
)
def test_a_variance_of_the_wrong_shape_is_refused(
    variance: float | list[float] | list[list[float]],
) -> None:
    with pytest.raises(InvalidArgumentError):
        observe([0, 1, 2, 3], [1, 2, 3, 4], variance)


def test_an_infinite_window_is_refused() -> None:
    with pytest.raises(InvalidArgumentError):
        observe([0, 1, 2, 3], [1, 2, 3, 4], window=float("inf"))


@each_case(
    "value",
    [[], [1.0, 2.0], [NAN] * 10, [1.0, NAN, NAN, 2.0]],
)
def test_too_few_values_are_refused_with_their_number(value: list[float]) -> None:
    left = int(np.isfinite(value).sum())
    with pytest.raises(InsufficientDataError, match=f"the series has {left}"):
        observe(np.arange(len(value)), value)


def test_time_is_counted_from_the_first_row() -> None:
    seen = observe([100, 103, 110], [1, 2, 3])
    assert seen.origin == 100
    np.testing.assert_array_equal(seen.time_M, [0, 3, 10])
    assert (seen.span, seen.gap) == (10, 5)


def test_a_window_starts_the_clock_at_the_first_update_it_averages() -> None:
    seen = observe([10, 20, 30], [1, 2, 3], window=10)
    assert seen.origin == 1
    np.testing.assert_array_equal(seen.row_time_T, [9, 19, 29])


def test_claims_of_exactness_get_a_floor_and_gaps_the_mean() -> None:
    seen = observe(range(4), [1, 2, 4, 8], [2.0, 0.0, NAN, 4.0])
    np.testing.assert_allclose(
        seen.relative_variance_M * seen.sampling_variance, [2.0, 0.2, 2.0, 4.0]
    )


@pytest.mark.parametrize("variance", [[0.0] * 4, [NAN] * 4], ids=["zero", "missing"])
def test_a_variance_that_says_nothing_is_unknown(variance: list[float]) -> None:
    seen = observe(range(4), [1, 2, 4, 8], variance)
    assert np.isnan(seen.sampling_variance)
    np.testing.assert_array_equal(seen.relative_variance_M, np.ones(4))


def test_long_series_are_averaged_in_blocks() -> None:
    """1,250 rows in blocks of three, the last of two."""
    rng = np.random.default_rng(0)
    value, variance = rng.normal(size=1250), rng.uniform(1, 2, 1250)
    seen = observe(np.arange(1250), value, variance)
    assert MAX_BLOCKS == 600
    parts = np.split(np.arange(1250), range(3, 1250, 3))
    np.testing.assert_allclose(seen.value_M, [value[part].mean() for part in parts])
    np.testing.assert_allclose(seen.time_M, [part.mean() for part in parts])
    block = np.array([variance[part].sum() / part.size**2 for part in parts])
    np.testing.assert_allclose(seen.relative_variance_M, block / block.mean())
    assert seen.sampling_variance == pytest.approx(variance.mean())


def test_the_basis_of_blocks_is_the_mean_of_the_rows() -> None:
    n = 1801
    seen = observe(np.arange(n), np.random.default_rng(0).normal(size=n))
    nodes, matrix = seen.basis(ORDER)
    expected = [
        part.mean()
        for part in np.split(rise(np.arange(n, dtype=float), 200.0), seen.block_starts_M[1:])
    ]
    np.testing.assert_allclose(matrix @ rise(nodes, 200.0), expected, atol=1e-12)


@pytest.mark.parametrize("k", [5, 10, 20])
def test_a_moving_average_is_thinned_to_rows_that_share_no_update(k: int) -> None:
    rng = np.random.default_rng(k)
    raw = rise(np.arange(400.0)) + rng.normal(0, 0.1, 400)
    seen = observe(np.arange(400.0)[k - 1 :], smoothed(raw, k))
    assert seen.smoothing == seen.window == k
    assert seen.rows == 400 - k + 1
    np.testing.assert_array_equal(np.diff(seen.row_time_T), np.full(seen.row_time_T.size - 1, k))
    assert seen.row_time_T[-1] + seen.origin == 399
    assert seen.origin == 0


@pytest.mark.parametrize("step", [1.0, 10.0, 1e-3])
def test_thinned_rows_of_a_clean_curve_are_its_window_means(step: float) -> None:
    """The basis of a thinned series gives the moving average of the law itself, at every row that
    is kept.

    The basis integrates where the logger summed; the midpoint rule makes that good to k^0 g'' / 24
    < 1e-5.
    """
    k, n, rng = 10, 500, np.random.default_rng(3)
    time = step * np.arange(float(n))
    clean = smoothed(rise(time, 80 * step), k)
    noisy = clean + smoothed(rng.normal(0, 0.05, n), k)
    seen = observe(time[k - 1 :], noisy)
    assert seen.smoothing == k
    nodes, matrix = seen.basis(ORDER)
    kept = np.arange(clean.size - 1, -1, -k)[::-1]
    np.testing.assert_allclose((matrix @ rise(nodes, 80 * step))[1:], clean[kept][1:], atol=1e-5)


def test_a_moving_average_is_undone_in_any_unit_of_time() -> None:
    k, n, rng = 20, 500, np.random.default_rng(3)
    steps = np.arange(float(n))
    noisy = smoothed(rise(steps, 40) + rng.normal(0, 0.05, n), k)
    (nodes, plain), (scaled_nodes, scaled) = (
        observe(c * steps[k - 1 :], noisy).basis(ORDER) for c in (1.0, 1e-3)
    )
    np.testing.assert_allclose(
        scaled @ rise(1e3 * scaled_nodes, 40), plain @ rise(nodes, 40), atol=1e-3
    )


def test_an_average_is_the_integral_over_the_window() -> None:
    got = observe(np.arange(20.0, 300, 20), np.arange(14.0), window=20).averaged(
        rise, np.array([50.0, 200.0])
    )
    for value, end in zip(got, (50.5, 200.5), strict=True):
        exact = 0.8 - 0.6 * 60 / 20 * (np.exp(-(end - 20) / 60) - np.exp(-end / 60))
        assert value == pytest.approx(exact, abs=1e-9)


def test_a_window_of_one_spacing_is_the_function_itself() -> None:
    time = np.array([0.0, 0.5, 3.0])
    np.testing.assert_array_equal(observe(time, [0.0, 1.0, 0.5]).averaged(rise, time), rise(time))


@pytest.mark.parametrize("window", [2.0, 10.0, 25.0])
def test_the_basis_averages_a_law_over_the_window_that_ends_at_each_row(window: float) -> None:
    time = np.arange(window, 40 * window, window)
    seen = observe(time, np.random.default_rng(1).normal(size=time.size), window=window)
    nodes, matrix = seen.basis(ORDER)
    curve = matrix @ rise(nodes, 7 * window)
    for i in (1, 7, time.size - 2):
        end = seen.row_time_T[i] + 0.5
        mean = (
            quad(lambda t: float(rise(np.array(t), 7 * window)), end - window, end, epsabs=1e-13)[0]
            / window
        )
        assert curve[i] == pytest.approx(mean, abs=1e-9)


def test_irregular_times_are_never_thinned() -> None:
    k, n, rng = 10, 400, np.random.default_rng(2)
    smooth = smoothed(rng.normal(size=n), k)
    time = np.arange(float(smooth.size))
    assert observe(time, smooth).smoothing == k
    moved = time.copy()
    moved[200:] += 1
    assert observe(moved, smooth).smoothing == 1
    holed = smooth.copy()
    holed[77] = NAN
    assert observe(time, holed).smoothing == 1


def test_rows_known_to_average_a_window_are_not_thinned_again() -> None:
    smooth = smoothed(np.random.default_rng(2).normal(size=400), 10)
    assert observe(np.arange(smooth.size), smooth, window=5).smoothing == 1


def interpolation_error(law: Law, spans: tuple[float, float], second: tuple[float, float]) -> float:
    """Largest error of the basis, in units of |start - plateau|, over part of the region of
    search.
    """
    time = np.arange(500.0)
    seen = observe(time, np.random.default_rng(0).normal(size=500))
    nodes, matrix = seen.basis(law.nodes)
    whole = whole_box(law, seen.span)
    ends = [(lo, hi) for lo, hi in zip(whole.low, whole.high, strict=True)]
    limits = [(spans[0] * seen.span, spans[1] * seen.span), second]
    for i, (axis, limit) in enumerate(zip(law.axes, limits, strict=False)):
        wanted = axis.to_search(np.array(limit))
        ends[i] = (max(ends[i][0], float(wanted[0])), min(ends[i][1], float(wanted[1])))
    part = Box(law, seen.span, tuple(e[0] for e in ends), tuple(e[1] for e in ends))
    shapes = [shape[:, None] for shape in part.shapes(part.points((25, 25)[: len(law.axes)]))]
    return float(
        np.abs(
            law.decay(nodes[None, :], *shapes) @ matrix.T - law.decay(time[None, :], *shapes)
        ).max()
    )


RESOLVED = {
    "exponential": ((0.005, 10.0), (0, 0)),
    "oscillator": ((0.03, 10.0), (0.03, 30.0)),
    "logistic": ((-0.5, 2.0), (0.05 * 499, 2.0 * 499)),
    "scalerl_sigmoid": ((0.05, 10.0), (0.3, 2.0)),
    "power_law": ((0.005, 10.0), (0.1, 5.0)),
}


@each_case("name", RESOLVED)
def test_the_basis_resolves_every_ordinary_curve(name: str) -> None:
    """Error below 1e-4 of the rise: a twentieth of the standard error of a mean over 500 rows of
    signal-to-noise 20.
    """
    assert interpolation_error(law_by_name(name), *RESOLVED[name]) < 1e-4


def test_the_error_of_the_basis_is_measured() -> None:
    """A ringing too fast for 56 nodes: the measured error is that of the basis at the rows."""
    law, time = law_by_name("oscillator"), np.arange(100.0)
    seen = observe(time, np.random.default_rng(0).normal(size=100))
    nodes, matrix = seen.basis(ORDER)
    direct = float(np.abs(matrix @ law.decay(nodes, 2.0, 0.03) - law.decay(time, 2.0, 0.03)).max())
    assert direct > 0.1
    assert seen.interpolation_error(lambda t: law.decay(t, 2.0, 0.03), ORDER) == pytest.approx(
        direct
    )
    assert seen.interpolation_error(lambda t: law.decay(t, 2.0, 0.03), 400) < 1e-6


@each_case(("rows", "looked_at"), [(60, 60), (199, 199), (200, 100), (450, 113)])
def test_the_error_of_the_basis_is_measured_at_fewer_than_two_hundred_rows(
    rows: int, looked_at: int
) -> None:
    asked = []

    def curve(t: np.ndarray) -> np.ndarray:
        asked.append(t.size)
        return np.zeros(t.size)

    observe(np.arange(float(rows)), np.random.default_rng(0).normal(size=rows)).interpolation_error(
        curve, ORDER
    )
    assert asked[-1] == looked_at


def test_every_law_with_a_shape_is_held_to_the_basis() -> None:
    assert set(RESOLVED) == {law.name for law in LAWS if law.shapes}


def test_the_clock_of_the_learning_rate_goes_on_along_its_last_rows() -> None:
    """A line to zero at 100 that is seen to 50 has a third of its integral left; one that has ended
    leaves nothing; without a rate that moves the clock is time.
    """
    time, ahead = np.arange(51.0), np.array([50.0, 75.0, 100.0, 300.0])
    clock = rate_clock(time, 1 - time / 100, ahead)
    np.testing.assert_allclose(clock, 50 * np.array([1.0, 1.25, 4 / 3, 4 / 3]), rtol=0.01)
    ended = rate_clock(time, np.maximum(1 - time / 40, 0), ahead)
    np.testing.assert_allclose(ended, [50.0, 50.06, 50.12, 50.6], atol=0.05)
    assert (np.diff(rate_clock(time, np.maximum(1 - time / 40, 0), time)) > 0).all()
    for rate in (None, np.ones(51), np.full(51, np.nan), -time, np.zeros(51)):
        assert rate_clock(time, rate, ahead) is ahead
