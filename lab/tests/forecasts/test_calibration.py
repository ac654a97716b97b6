"""The table that stretches a band: how it is read, fitted and refused."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtri
from tests.cases import each_case

from groupwise.errors import InvalidArgumentError
from groupwise.forecasting.forecast import (
    FURTHEST,
    KINDS,
    UPPER,
    Calibration,
    read_calibration,
    shipped,
)
from groupwise_lab.forecasts.calibrate import (
    UNCALIBRATED,
    Continuation,
    _quantile_regression,
    calibrate,
    written,
)

HERE = np.array([99.0])  # the last of a hundred rows seen: no distance


def table(**changed: Any) -> str:
    """A table as text, with some of it changed."""
    return json.dumps(written(UNCALIBRATED) | changed)


def steep(constant: float, slope: float, short: float) -> Calibration:
    """A table whose quantiles are (constant + slope x + short 3/sqrt(n)) times the normal ones."""
    terms = np.outer(ndtri(UPPER), [constant, slope, short])
    return Calibration(dict.fromkeys(KINDS, terms), 9, 9)


# Stretches


@each_case("probability", UPPER)
def test_without_calibration_a_quantile_of_the_table_is_the_normal_one(probability: float) -> None:
    for kind in KINDS:
        got = UNCALIBRATED.stretch(kind, probability, 100, HERE)
        assert got == pytest.approx([float(ndtri(probability))], abs=1e-12)


@each_case(
    ("probability", "within"),
    [(0.83, 0.03), (0.6, 0.02), (0.93, 0.03), (0.9995, 1e-9)],
)
def test_between_its_probabilities_and_beyond_them_a_quantile_is_near_the_normal_one(
    probability: float, within: float
) -> None:
    """Between the nodes by lines in asinh, so not exactly; beyond them by the normal tail, and so
    exactly.
    """
    got = UNCALIBRATED.stretch("window", probability, 100, HERE)
    assert float(got[0]) == pytest.approx(float(ndtri(probability)), abs=within)


def test_the_stretch_by_hand() -> None:
    """At row 199 seen from 100 and p = .95: z = 1.6449 (1 + .5 ln 2 + 2 * 3/10), and z at the
    border, row 99, without the logarithm.
    """
    width = steep(1.0, 0.5, 2.0).stretch("row", 0.95, 100, np.array([199.0, 99.0]))
    normal = float(ndtri(0.95))
    assert width == pytest.approx(
        [math.sinh(normal * (1.6 + 0.5 * math.log(2))), math.sinh(normal * 1.6)]
    )


def test_a_run_seen_to_a_tenth_is_as_far_as_distance_counts() -> None:
    far = steep(0.1, 0.5, 0.0).stretch("window", 0.95, 100, np.array([999.0, 99_999.0, 0.0]))
    assert far[0] == far[1] == pytest.approx(math.sinh(float(ndtri(0.95)) * (0.1 + 0.5 * FURTHEST)))
    assert far[2] == pytest.approx(math.sinh(float(ndtri(0.95)) * 0.1))


def test_halfway_between_two_quantiles_lies_halfway_in_asinh() -> None:
    low, high = float(ndtri(0.9)), float(ndtri(0.95))
    middle = steep(1.0, 0.0, 0.0).stretch("window", float(_normal((low + high) / 2)), 100, HERE)
    assert math.asinh(float(middle[0])) == pytest.approx((low + high) / 2, abs=1e-9)


def _normal(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2))


@given(st.lists(st.floats(-3, 3), min_size=18, max_size=18), st.floats(8, 1e4), st.floats(0, 1e5))
def test_quantiles_rise_with_their_probability_whatever_the_terms(
    numbers: list[float], seen: float, row: float
) -> None:
    """Terms of a fit can cross; the quantiles that a reader gets do not."""
    crossing = Calibration(dict.fromkeys(KINDS, np.array(numbers).reshape(6, 3)), 9, 9)
    levels = np.array(
        [float(crossing.stretch("window", p, seen, np.array([row]))[0]) for p in UPPER]
    )
    assert (
        np.diff(levels) >= -1e-9 * np.abs(levels[1:]) - 1e-12
    ).all()  # but for rounding, next to 0 too


def test_the_shipped_end_never_comes_nearer_with_the_distance() -> None:
    row = np.linspace(100, 3000, 60)
    for kind in KINDS:
        assert np.all(np.diff(shipped().stretch(kind, 0.95, 100, row)) >= -1e-12)


@each_case("seen", [8, 30, 100, 1000])
def test_the_shipped_median_is_the_one_of_the_table_and_below_the_quarter(seen: int) -> None:
    row = seen * np.array([1.0, 1.3, 3.0, 10.0]) - 1
    for kind in KINDS:
        middle, high = (shipped().stretch(kind, p, seen, row) for p in (0.5, 0.75))
        assert middle == pytest.approx(
            np.sinh(shipped().terms[kind][0, 1] * np.log([1.0, 1.3, 3.0, 10.0]))
        )
        assert (middle < high + 1e-12).all()


# The fit


def test_quantile_regression_of_three_points_by_hand() -> None:
    """A constant alone: of 0, 1 and 5 the median is 1, at .1 the least, at .9 the most; where 5
    weighs 3 the median is 5.
    """
    design = np.array([[1.0, 0.0, 0.0]] * 3)
    value = np.array([0.0, 1.0, 5.0])
    coefficients = {
        p: _quantile_regression(design, value, np.ones(3), p)[0] for p in (0.1, 0.5, 0.9)
    }
    assert coefficients == {
        0.1: pytest.approx(0.0),
        0.5: pytest.approx(1.0),
        0.9: pytest.approx(5.0),
    }
    assert _quantile_regression(design, value, np.array([1.0, 1.0, 3.0]), 0.5)[0] == pytest.approx(
        5.0
    )


def test_a_line_through_all_points_is_found_and_its_slope_is_kept_from_pointing_to_the_centre() -> (
    None
):
    """Points on 1 + 2 x + .5 s; of their negative the second coefficient is 0 instead of wrong."""
    distance, short = np.array([0.0, 1.0, 2.0, 0.5, 1.5]), np.array([1.0, 0.5, 0.2, 0.9, 0.1])
    design = np.stack([np.ones(5), distance, short], axis=1)
    value = design @ [1.0, 2.0, 0.5]
    assert _quantile_regression(design, value, np.ones(5), 0.75) == pytest.approx([1.0, 2.0, 0.5])
    assert _quantile_regression(design, -value, np.ones(5), 0.75)[1] == 0.0


def drawn_along(slope: float, start: float) -> list[Continuation]:
    """Errors whose asinh lies on a line over the distance, the same in thirty clusters of runs of
    100 rows seen.
    """
    row = 100 * np.exp(np.linspace(0, FURTHEST, 12)) - 1
    line = np.sinh(start + slope * np.linspace(0, FURTHEST, 12))
    return [
        Continuation(f"c{i}", "r", 0.1, 100.0, row, dict.fromkeys(KINDS, line)) for i in range(30)
    ]


def terms_at(cases: list[Continuation], probability: float, distance: float) -> float:
    """The asinh of one quantile of the table of these cases, seen from 100 rows, as it was
    fitted.
    """
    return float(calibrate(cases).terms["window"][UPPER.index(probability)] @ [1.0, distance, 0.3])


def test_the_upper_end_never_comes_nearer_and_is_half_believed() -> None:
    """Errors of asinh 2 everywhere, from thirty clusters: 30/55 of the way from the normal quantile
    to 2.
    """
    plain = math.asinh(float(ndtri(0.95)))
    assert terms_at(drawn_along(0.0, 2.0), 0.95, 1.0) == pytest.approx(
        plain + 30 / 55 * (2 - plain), abs=1e-6
    )
    falling = drawn_along(-0.5, 2.0)
    assert terms_at(falling, 0.95, 0.0) == pytest.approx(
        terms_at(falling, 0.95, FURTHEST), abs=1e-9
    )


def test_the_median_is_the_centre_where_the_rows_end_and_rises_with_the_distance() -> None:
    slope = calibrate(drawn_along(0.4, 0.0)).terms["window"][UPPER.index(0.5)]
    assert slope == pytest.approx([0.0, 30 / 55 * 0.4, 0.0], abs=1e-6)


def made(cluster: str, run: str, error: float, count: int = 10) -> Continuation:
    """A run whose rest lies everywhere this many spreads off."""
    row = np.linspace(50, 200, count)
    return Continuation(
        cluster,
        run,
        0.2,
        40.0,
        row,
        {"window": np.full(count, error), "row": np.full(count, -error)},
    )


def test_clusters_weigh_the_same_whatever_their_runs_and_rows() -> None:
    """Nine runs of one cluster at 0, and one run of few windows at 4 of each of two others: two
    thirds of the weight lie at 4.
    """
    many = [made("a", str(i), 0.0) for i in range(9)]
    calibration = calibrate([*many, made("b", "0", 4.0, 3), made("c", "0", 4.0, 3)])
    assert (calibration.runs, calibration.clusters) == (11, 3)
    upper = _far(calibration, 0.75)
    plain = _far(UNCALIBRATED, 0.75)
    # Two thirds of the weight lie at 4 and three clusters have 3/28 of the say: asinh is pulled
    # that far.
    assert upper == pytest.approx(plain + 3 / 28 * (math.asinh(4.0) - plain), abs=1e-6)


def _far(calibration: Calibration, probability: float) -> float:
    """The asinh of a stretch where the cases lie."""
    return math.asinh(float(calibration.stretch("window", probability, 40, np.array([120.0]))[0]))


def test_a_table_of_normal_errors_is_near_none() -> None:
    rng = np.random.default_rng(5)
    row = np.geomspace(45, 390, 40)
    cases = [
        Continuation(f"c{i}", "r", 0.2, 40.0, row, {kind: rng.normal(size=40) for kind in KINDS})
        for i in range(60)
    ]
    calibration = calibrate(cases)
    for probability in (0.75, 0.95):
        got = calibration.stretch("row", probability, 40, row)
        assert got == pytest.approx(float(ndtri(probability)), abs=0.25)


# Reading


def test_a_table_that_was_written_is_read_again() -> None:
    again = read_calibration(json.dumps(written(shipped())))
    assert written(again) == written(shipped())
    assert (again.runs, again.clusters) == (shipped().runs, shipped().clusters)


def changed(kind: str, value: object) -> dict[str, object]:
    """Terms of which one kind is something else."""
    return dict(written(UNCALIBRATED)["terms"]) | {kind: value}


@each_case(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "12",
        '"terms"',
        "{}",
        "[" * 100_000,
        '{"a":' * 100_000,
        table(version=1),
        table(version=None),
        table(probabilities=[0.05, 0.95]),
        table(probabilities=None),
        table(terms=[]),
        table(terms={"window": []}),
        table(terms=changed("row", [[1.0, 2.0]] * 6)),
        table(terms=changed("row", [[1.0, 2.0, 3.0]] * 5)),
        table(terms=changed("row", [[1.0, 2.0, "x"]] * 6)),
        table(terms=changed("row", [[1.0, 2.0, None]] * 6)),
        table(terms=changed("window", [[math.nan, 0.0, 0.0]] * 6)),
        table(terms=changed("window", [[math.inf, 0.0, 0.0]] * 6)),
        table(terms=changed("window", [[1e308, 0.0, 0.0]] * 6)),
        table(terms=changed("window", [[0.0, -51.0, 0.0]] * 6)),
        table(terms=changed("window", [[1.0], [1.0, 2.0, 3.0]] * 3)),
        table(terms=changed("window", {"a": 1})),
        table(runs="many"),
        table(runs=math.inf),
        table(clusters=None),
        table(clusters=[]),
        table()[:-40],
        "\x00" * 50,
    ],
)
def test_what_is_no_table_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(
        InvalidArgumentError,
        match=(
            "expected a table as groupwise-lab calibrate writes it; got something else: make "
            "one with it"
        ),
    ):
        read_calibration(text)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner),
    )
)
def test_any_json_is_a_table_or_refused(value: object) -> None:
    for data in (
        value,
        written(UNCALIBRATED) | {"terms": value},
        written(UNCALIBRATED) | {"terms": changed("row", value)},
    ):
        with pytest.raises(InvalidArgumentError):
            read_calibration(json.dumps(data))
