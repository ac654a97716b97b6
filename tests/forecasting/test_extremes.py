"""Any finite series: an answer with a finite plateau, or a sentence.

No warning, no other exception.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.cases import each_case

from groupwise.errors import GroupwiseError
from groupwise.forecasting.fit import fit
from groupwise.forecasting.forecast import forecast
from groupwise.forecasting.laws import law_by_name
from groupwise_lab.forecasts.backtest import backtest

CALM = settings(
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
Answer = TypeVar("Answer")


def answer_or_sentence(run: Callable[[], Answer]) -> tuple[Answer | None, str]:
    """What the call returns, or the one line in which it refuses."""
    try:
        return run(), ""
    except GroupwiseError as problem:
        return None, str(problem)


@st.composite
def hostile_series(draw: st.DrawFn, shortest: int = 3) -> np.ndarray:
    """Scales from 1e-12 to 1e12 about any offset; repeats, spikes, 0/1 values, steps, lines,
    rounding.
    """
    n = draw(st.integers(shortest, 60))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kind = draw(
        st.sampled_from(
            [
                "noise",
                "binary",
                "repeats",
                "spike",
                "step",
                "line",
                "curve",
                "alternating",
                "rounded",
                "heavy",
            ]
        )
    )
    time = np.arange(n)
    value = {
        "noise": rng.normal(size=n),
        "binary": (rng.random(n) < rng.random()).astype(float),
        "repeats": rng.choice([0.0, 0.25, 1.0], n),
        "spike": np.eye(1, n, int(rng.integers(n)))[0],
        "step": (time >= rng.integers(n)).astype(float),
        "line": time / n,
        "curve": 1 - np.exp(-time / (0.3 * n)),
        "alternating": (time % 2).astype(float),
        "rounded": np.round(np.cumsum(rng.normal(size=n)), 1),
        "heavy": rng.standard_cauchy(n),
    }[kind]
    scale = 10.0 ** draw(st.integers(-12, 12))
    offset = draw(st.sampled_from([0.0, 0.0, 1.0, -1e3, 1e6]))
    return np.asarray(scale * (value + offset))


@CALM
@given(hostile_series(), st.sampled_from([1e-6, 1.0, 1000.0]))
def test_a_fit_of_anything_is_an_answer_or_a_sentence(value: np.ndarray, gap: float) -> None:
    result, sentence = answer_or_sentence(
        lambda: fit(gap * np.arange(value.size), value, healthy="up")
    )
    if result is None:
        assert sentence
        assert "\n" not in sentence
        return
    assert math.isfinite(result.parameters["plateau"].value)
    assert np.isfinite(result.curve_T).all()
    assert result.message
    json.dumps(result.as_dict(), allow_nan=False)
    for interval in result.parameters.values():
        assert interval.low <= interval.value <= interval.high


@CALM
@given(hostile_series())
def test_a_forecast_of_anything_is_an_answer_or_a_sentence(value: np.ndarray) -> None:
    ahead, sentence = answer_or_sentence(
        lambda: forecast(np.arange(value.size), value, [value.size, 10.0 * value.size])
    )
    if ahead is None:
        assert sentence
        assert "\n" not in sentence
        return
    assert np.isfinite(ahead.mean_S).all()
    for line in (ahead.low_S, ahead.high_S, ahead.mean_low_S, ahead.mean_high_S):
        assert np.isfinite(line).all() or ahead.status == "still"
    assert np.all(ahead.low_S <= ahead.high_S)


@pytest.mark.slow
@CALM
@given(hostile_series(shortest=20))
def test_a_backtest_of_anything_is_an_answer_or_a_sentence(value: np.ndarray) -> None:
    score, sentence = answer_or_sentence(lambda: backtest(np.arange(value.size), value))
    if score is None:
        assert sentence
        assert "\n" not in sentence
        return
    assert all(math.isfinite(error) and error >= 0 for error in score.errors.values())
    assert 0 <= score.covered <= score.windows


@CALM
@given(hostile_series(shortest=5), st.data())
def test_uneven_times_and_variances_of_any_size_are_taken(
    value: np.ndarray, data: st.DataObject
) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    time = np.cumsum(10.0 ** rng.uniform(-3, 3, value.size))
    variance = 10.0 ** rng.uniform(-20, 20, value.size)
    variance[rng.integers(value.size)] = data.draw(st.sampled_from([0.0, np.nan, np.inf]))
    result = fit(time, value, variance_T=variance, window=data.draw(st.sampled_from([1.0, 5.0])))
    assert math.isfinite(result.parameters["plateau"].value)


@pytest.mark.parametrize("n", [20, 22, 24])
def test_a_line_of_twenty_rows_has_places_for_a_jump(n: int) -> None:
    assert math.isfinite(fit(np.arange(n), np.arange(n) / n).parameters["plateau"].value)


def test_eight_alternating_rows_are_fitted() -> None:
    assert math.isfinite(fit(np.arange(8), np.arange(8) % 2).parameters["plateau"].value)


def test_a_clean_curve_in_large_units_is_fitted() -> None:
    value = 1e12 * (1 - np.exp(-np.arange(36) / 10.8))
    assert fit(np.arange(36), value).parameters["plateau"].value == pytest.approx(1e12, rel=0.1)


def test_a_clean_curve_in_large_units_is_forecast() -> None:
    ahead = forecast(np.arange(30), 1e12 * (1 - np.exp(-np.arange(30) / 9.0)), [60.0])
    assert ahead.mean_S[0] == pytest.approx(1e12, rel=0.1)


def test_a_step_far_from_zero_is_backtested() -> None:
    value = 1e10 * (1e6 + (np.arange(36) >= 20))
    assert all(
        math.isfinite(error)
        for error in backtest(np.arange(36), value, from_share=0.7).errors.values()
    )


@each_case(
    "law", ["constant", "exponential", "oscillator", "logistic", "scalerl_sigmoid", "power_law"]
)
def test_a_named_law_of_three_to_eight_rows_is_that_law_or_a_sentence(law: str) -> None:
    """No other law stands in for one of which the rows cannot hold the numbers."""
    least = len(law_by_name(law).parameters) + 2
    for n in range(3, 9):
        value = np.random.default_rng(n).normal(size=n)
        result, sentence = answer_or_sentence(partial(fit, np.arange(n), value, law=law))
        if result is None:
            assert n < least
            assert f"at least {least} independent rows for the law {law}, got {n}: " in sentence
        else:
            assert result.law == law
            assert math.isfinite(result.parameters["plateau"].value)
