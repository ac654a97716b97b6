"""The guesses from which rivals fit a law."""

from __future__ import annotations

import numpy as np
import pytest
from tests.cases import each_case

from groupwise.forecasting.laws import LAWS, Law
from groupwise_lab.forecasts.rivals import coarse_guess

SHAPED = [law for law in LAWS if law.shapes]


@pytest.mark.thinned(2)
@pytest.mark.parametrize("law", SHAPED, ids=lambda law: law.name)
def test_a_guess_lies_in_the_basin_of_clean_data(law: Law) -> None:
    """Twenty Gauss-Newton steps with halving, from the guess, reach the truth to 1e-6."""
    truths = {
        "exponential": {"plateau": 0.8, "start": 0.2, "time_constant": 47.0},
        "oscillator": {
            "plateau": 0.8,
            "start": 0.2,
            "natural_frequency": 0.07,
            "damping_ratio": 0.45,
        },
        "logistic": {"plateau": 0.8, "start": 0.2, "midpoint": 110.0, "width": 23.0},
        "scalerl_sigmoid": {"plateau": 0.8, "start": 0.2, "midpoint": 70.0, "exponent": 1.9},
        "power_law": {"plateau": 0.8, "start": 0.2, "time_scale": 33.0, "exponent": 1.3},
    }
    truth, time = truths[law.name], np.arange(301.0)
    value = law.curve(time, **truth)
    at = np.array([coarse_guess(law, time, value)[name] for name in law.parameters])

    def error(point: np.ndarray) -> float:
        return float(
            ((value - law.curve(time, **dict(zip(law.parameters, point, strict=True)))) ** 2).sum()
        )

    for _ in range(20):
        named = dict(zip(law.parameters, at, strict=True))
        step = np.linalg.lstsq(
            law.jacobian(time, **named), value - law.curve(time, **named), rcond=None
        )[0]
        trials = [at + 0.5**k * step for k in range(8)]
        at = min(trials, key=error)
    np.testing.assert_allclose(at, [truth[name] for name in law.parameters], rtol=1e-6)


@each_case("law", SHAPED)
def test_a_guess_follows_a_rise(law: Law) -> None:
    time = np.arange(1000.0, 1301.0)
    value = 0.8 - 0.6 * np.exp(-(time - 1000) / 50)
    left = value - law.curve(time - 1000, **coarse_guess(law, time - 1000, value))
    assert float(left.std()) < 0.5 * float(value.std())
