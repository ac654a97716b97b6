"""Fits of five fixed series against least-squares solutions made without the package."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.cases import each_case

from groupwise.forecasting.fit import fit
from groupwise.forecasting.laws import law_by_name
from groupwise.forecasting.observations import observe
from groupwise.forecasting.profile import fit_law

REFERENCE = json.loads(Path(__file__).with_name("least_squares.json").read_text())["laws"]


@each_case("law", REFERENCE)
def test_white_noise_fits_are_the_least_squares_solution(law: str) -> None:
    reference = REFERENCE[law]
    time = np.arange(60.0)
    result = fit(time, reference["value"], law=law, smoothing=1)
    alone = fit_law(observe(time, reference["value"], smoothing=1), law_by_name(law))
    assert alone.noise.best_shape.share == 0  # of noise that is not white
    values = [interval.value for interval in result.parameters.values()][
        : len(reference["parameters"])
    ]
    assert values == pytest.approx(reference["parameters"], rel=2e-3)
    assert float(result.residual_T @ result.residual_T) == pytest.approx(
        reference["residual_sum_of_squares"], rel=1e-5
    )
