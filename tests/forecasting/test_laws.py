"""What every entry of `LAWS` owes: a decay from 1 to 0, exact slopes, axes that invert.

A new law is covered as soon as it is in the registry.
"""

from __future__ import annotations

import math
from typing import get_args

import numpy as np
import pytest
from tests.cases import each_case

from groupwise.errors import InvalidArgumentError
from groupwise.files import table_rows
from groupwise.forecasting.laws import (
    LAWS,
    Law,
    ShapeAxis,
    echo,
    law_by_name,
    oscillator_quantities,
)
from groupwise.forecasting.results import FitOutcome, FitStatus
from groupwise.wording import LAW_NAMES

SPAN = 300.0
SHAPED = [law for law in LAWS if law.shapes]
TIME = np.concatenate([np.linspace(0, 1, 7)[1:], np.geomspace(1.5, SPAN, 60)])


def random_shapes(law: Law, count: int, seed: int = 0) -> np.ndarray:
    """Shape values drawn evenly from the inside of the region of search, shape (count, shapes)."""
    rng = np.random.default_rng(seed)
    axes = []
    for axis in law.axes:
        low, high = axis.ends(SPAN)
        margin = 0.01 * (high - low)
        axes.append(axis.from_search(rng.uniform(low + margin, high - margin, count)))
    return np.column_stack(law.shapes_of(*axes))


def values_of(law: Law, shape: np.ndarray) -> dict[str, float]:
    """Parameters with plateau .8 and start .2."""
    linear = {"plateau": 0.8, "start": 0.2} if law.shapes else {"plateau": 0.8}
    return linear | dict(zip(law.shapes, (float(v) for v in shape), strict=True))


# Central differences of sixth order: the error is h^6, far below 1e-7.
STENCIL = {-3: -1 / 60, -2: 3 / 20, -1: -3 / 4, 1: 3 / 4, 2: -3 / 20, 3: 1 / 60}


def difference_quotient(law: Law, shape: np.ndarray, i: int) -> np.ndarray:
    """Numerical derivative of the decay by shape i over `TIME`."""
    h = 2e-4 * abs(shape[i])
    moved = (
        factor * law.decay(TIME, *(shape + h * k * (np.arange(shape.size) == i)))
        for k, factor in STENCIL.items()
    )
    return np.asarray(sum(moved) / h)


def test_the_names_are_those_of_the_issue() -> None:
    assert [law.name for law in LAWS] == [
        "constant",
        "exponential",
        "oscillator",
        "logistic",
        "scalerl_sigmoid",
        "power_law",
    ]


def test_the_tables_of_laws_and_outcomes_have_a_row_for_each_and_no_other() -> None:
    """A row that names no law would be read by nobody."""
    assert [*LAW_NAMES] == [law.name for law in LAWS]
    rows = [(row["law"], row["shape"]) for row in table_rows("forecasting/shapes.tsv")]
    assert rows == [(law.name, shape) for law in LAWS for shape in law.shapes]
    scales = {axis.scale for law in LAWS for axis in law.axes}
    assert scales == {"log", "linear", "damping"}
    outcomes = {row["outcome"]: row["status"] for row in table_rows("forecasting/outcomes.tsv")}
    assert [*outcomes] == [outcome.value for outcome in FitOutcome]
    assert {*outcomes.values()} == {*get_args(FitStatus)}


@each_case("law", LAWS)
def test_every_law_says_what_it_is(law: Law) -> None:
    assert law_by_name(law.name) is law
    assert len(law.shapes) == len(law.axes) <= 2
    assert law.parameters[-len(law.shapes) :] == law.shapes or not law.shapes


@each_case("law", [law for law in SHAPED if law.name != "logistic"])
def test_the_decay_is_one_at_time_zero(law: Law) -> None:
    for shape in random_shapes(law, 30):
        assert float(law.decay(np.array([0.0]), *shape)[0]) == pytest.approx(1.0, abs=1e-14)


def test_the_logistic_decay_tends_to_one_long_before_its_midpoint() -> None:
    law = law_by_name("logistic")
    for midpoint, width in random_shapes(law, 30):
        assert float(
            law.decay(np.array([midpoint - 60 * width]), midpoint, width)[0]
        ) == pytest.approx(1.0, abs=1e-15)


@each_case("law", SHAPED)
def test_the_decay_ends_at_zero(law: Law) -> None:
    # The slowest power law of the search, (1 + t/ts)^-0.1, needs some patience.
    for shape in random_shapes(law, 30):
        assert abs(float(law.decay(np.array([1e130]), *shape)[0])) < 1e-9


@each_case("law", [law for law in SHAPED if law.name != "oscillator"])
def test_a_law_without_inertia_never_turns_back(law: Law) -> None:
    for shape in random_shapes(law, 30):
        decay = law.decay(TIME, *shape)
        assert np.all(np.diff(decay) <= 0)
        assert np.all((decay >= 0) & (decay <= 1))


@each_case("law", SHAPED)
def test_the_slopes_are_the_derivatives(law: Law) -> None:
    for shape in random_shapes(law, 40, seed=1):
        slopes = law.slopes(TIME, *shape)
        for i in range(len(law.shapes)):
            size = np.abs(slopes[i]).max() + 1e-4 / abs(shape[i])
            np.testing.assert_allclose(
                slopes[i], difference_quotient(law, shape, i), rtol=0, atol=1e-7 * size
            )


@each_case("law", LAWS)
def test_the_jacobian_is_the_derivative_of_the_curve(law: Law) -> None:
    for shape in random_shapes(law, 10, seed=2) if law.shapes else np.zeros((1, 0)):
        values = values_of(law, shape)
        jacobian = law.jacobian(TIME, **values)
        assert jacobian.shape == (TIME.size, len(law.parameters))
        for i, name in enumerate(law.parameters):
            h = 2e-4 * abs(values[name])
            numeric = sum(
                c / h * law.curve(TIME, **(values | {name: values[name] + k * h}))
                for k, c in STENCIL.items()
            )
            size = np.abs(jacobian[:, i]).max() + 1e-5 / abs(values[name])
            np.testing.assert_allclose(jacobian[:, i], numeric, rtol=0, atol=1e-7 * size)


@each_case("law", SHAPED)
def test_the_curve_is_plateau_plus_what_is_left(law: Law) -> None:
    shape = random_shapes(law, 1)[0]
    expected = 0.8 + (0.2 - 0.8) * law.decay(TIME, *shape)
    np.testing.assert_allclose(law.curve(TIME, **values_of(law, shape)), expected, rtol=1e-13)


@each_case("law", SHAPED)
def test_axes_and_their_scale_invert_each_other(law: Law) -> None:
    for axis in law.axes:
        values = axis.from_search(np.linspace(*axis.ends(SPAN), 30))
        np.testing.assert_allclose(
            axis.from_search(axis.to_search(values)), values, rtol=1e-12, atol=1e-9
        )


def test_the_oscillator_is_sought_by_its_rise_time() -> None:
    """A rise of 10 at critical damping is a frequency of 3/10; the map is its own inverse."""
    frequency, damping = law_by_name("oscillator").shapes_of(10.0, 1.0)
    assert (float(frequency), float(damping)) == (0.3, 1.0)
    again, _ = law_by_name("oscillator").shapes_of(frequency, damping)
    assert float(again) == 10.0


@each_case("law", SHAPED)
def test_each_axis_is_monotone_in_the_scale_of_the_search(law: Law) -> None:
    for axis in law.axes:
        values = axis.from_search(np.linspace(*axis.ends(SPAN), 200))
        assert np.all(np.diff(values) > 0)
        unit = SPAN if axis.spans else 1.0
        assert values[[0, -1]] == pytest.approx([axis.low * unit, axis.high * unit], rel=1e-9)


def test_the_damping_axis_is_continuous_and_smooth_at_one() -> None:
    axis = ShapeAxis(0.03, 30.0, spans=False, scale="damping")
    h = 1e-6
    below, at, above = axis.to_search(np.array([1 - h, 1.0, 1 + h]))
    assert at == 0
    assert (at - below) / h == pytest.approx((above - at) / h, rel=1e-5)


@each_case(("momentum", "force"), [(0.9, 0.02), (0.9, 0.1), (0.9, 0.001), (0.5, 0.02), (0.0, 0.05)])
def test_the_oscillator_is_the_curve_of_heavy_ball(momentum: float, force: float) -> None:
    """The recursion's own rates, and half an update of rest, leave a thousandth of the way;
    without it a hundredth to an eighth where there is momentum.
    """
    way, velocity, left = [], 0.0, 1.0
    for _ in range(100):
        way.append(left)
        velocity = momentum * velocity - force * left
        left += velocity
    rates = np.log(np.roots([1, force - 1 - momentum, momentum or 1e-20]).astype(complex))
    frequency = float(np.sqrt((rates[0] * rates[1]).real))
    shape = frequency, float(-rates.sum().real / 2 / frequency)
    decay = law_by_name("oscillator").decay(np.arange(100.0), *shape)
    np.testing.assert_allclose(decay, way, atol=0.0012)


def test_rows_closer_than_an_update_are_an_update_each() -> None:
    law, shape = law_by_name("oscillator"), (0.2, 0.4)
    close = law.by_rows(1e-6)
    np.testing.assert_allclose(
        close.decay(1e-6 * TIME, 1e6 * shape[0], shape[1]), law.decay(TIME, *shape), rtol=1e-9
    )
    np.testing.assert_allclose(
        close.slopes(1e-6 * TIME, 1e6 * shape[0], shape[1])[0],
        1e-6 * law.slopes(TIME, *shape)[0],
        rtol=1e-9,
    )
    assert law.by_rows(10.0) is law
    assert law_by_name("exponential").by_rows(1e-6) is law_by_name("exponential")


@each_case("law", LAWS)
@each_case("method", ["curve", "jacobian"])
def test_wrong_parameter_names_are_refused_with_the_right_ones(law: Law, method: str) -> None:
    with pytest.raises(
        InvalidArgumentError,
        match=f"the law {law.name} takes {', '.join(law.parameters)}; got nothing",
    ):
        getattr(law, method)(TIME)
    with pytest.raises(InvalidArgumentError, match=r"got .*speed"):
        getattr(law, method)(TIME, **dict.fromkeys(law.parameters, 1.0), speed=1.0)


def test_an_unknown_law_is_refused_with_the_list() -> None:
    with pytest.raises(
        InvalidArgumentError, match=r"expected a law of constant, exponential.*; got 'sigmoid'"
    ):
        law_by_name("sigmoid")


@each_case("law", SHAPED)
def test_decay_and_slopes_broadcast_over_a_column_of_shapes(law: Law) -> None:
    shapes = random_shapes(law, 12, seed=4)
    columns = [shapes[:, i, None] for i in range(shapes.shape[1])]
    grid, slopes = law.decay(TIME[None, :], *columns), law.slopes(TIME[None, :], *columns)
    np.testing.assert_allclose(
        grid, [law.decay(TIME, *shape) for shape in shapes], rtol=1e-13, atol=1e-300
    )
    np.testing.assert_allclose(
        slopes,
        np.stack([law.slopes(TIME, *shape) for shape in shapes], axis=1),
        rtol=1e-9,
        atol=1e-300,
    )


@each_case("law", SHAPED)
def test_decay_broadcasts_one_time_over_many_shapes(law: Law) -> None:
    shapes = random_shapes(law, 12, seed=4)
    many = law.decay(50.0, *shapes.T)
    np.testing.assert_allclose(
        many, [float(law.decay(np.array([50.0]), *shape)[0]) for shape in shapes], rtol=1e-13
    )


@each_case("law", SHAPED)
def test_decay_broadcasts_a_column_of_the_last_shape_alone(law: Law) -> None:
    shapes = random_shapes(law, 12, seed=4)
    fixed = [float(v) for v in shapes[0, :-1]]
    grid = law.decay(TIME, *fixed, shapes[:, -1, None])
    np.testing.assert_allclose(
        grid, [law.decay(TIME, *fixed, last) for last in shapes[:, -1]], rtol=1e-13, atol=1e-300
    )


@pytest.mark.parametrize(
    ("damping", "inflection"),
    # ln(tau1/tau2)/(1/tau2 - 1/tau1) with tau = 2 + sqrt 3 and 2 - sqrt 3; 1 between both branches;
    # arccos(1/2)/sqrt(3/4).
    [
        (2.0, math.log((2 + math.sqrt(3)) ** 2) / (2 * math.sqrt(3))),
        (1.0, 1.0),
        (0.5, (math.pi / 3) / math.sqrt(0.75)),
    ],
)
def test_the_steepest_slope_of_the_oscillator_by_hand(damping: float, inflection: float) -> None:
    turn = oscillator_quantities(np.array(0.5), np.array(damping))["inflection"]
    assert float(turn) == pytest.approx(2 * inflection, rel=1e-12)


@each_case("damping", [0.2, 0.7, 1.0, 2.5])
def test_an_echo_is_what_shocks_of_a_velocity_come_to(damping: float) -> None:
    """The integral of the product of two responses to a push, over all pushes since the start; as a
    share of what it comes to, 1/(4 zeta omega^3).
    """
    omega, step = 0.3, 0.01
    at, pushed = np.array([0.0, 2.0, 7.0, 30.0]), np.arange(0, 30, step) + step / 2
    root = np.sqrt(complex(damping**2 - 1)) * omega + 1e-9

    def response(time: np.ndarray) -> np.ndarray:
        late = np.maximum(time, 0.0)
        return np.asarray((np.exp(-damping * omega * late) * np.sinh(root * late) / root).real)

    by_push = response(at[:, None] - pushed)
    expected = step * by_push @ by_push.T * 4 * damping * omega**3
    assert echo(at, omega, damping) == pytest.approx(expected, abs=2e-4)
    assert echo(np.array([0.0, 1e6]), omega, damping) == pytest.approx(np.diag([0.0, 1.0]))


@each_case(("memory", "force"), [(0.9, 0.02), (0.8, 0.02), (0.95, 0.01), (0.7, 0.05)])
def test_an_echo_is_that_of_the_recursion_half_an_update_after_its_rest(
    memory: float, force: float
) -> None:
    """The level answers a shock of an update from the next row on; a sum from 1 on is an integral
    from 1/2 on. Half an update late the covariance is out by .026 to .071.
    """
    push, velocity = np.zeros(4000), 1.0
    for update in range(1, push.size):
        push[update] = push[update - 1] + velocity
        velocity = memory * velocity - force * push[update]
    rows = 200
    answer = np.array([[push[max(t - s, 0)] for s in range(rows)] for t in range(rows)])
    rate = np.log(np.roots([1, force - 1 - memory, memory]).astype(complex))
    omega = float(np.sqrt((rate[0] * rate[1]).real))
    zeta = float(-rate.sum().real / 2 / omega)
    made = echo(np.arange(0.5, rows), omega, zeta)
    assert np.abs(made - answer @ answer.T / (push @ push)).max() < 0.01
